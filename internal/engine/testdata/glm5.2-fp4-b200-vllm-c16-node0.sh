#!/usr/bin/env bash
# node 0 of 1, recipe vllm-native, engine vllm
# image vllm/vllm-openai:v0.20.0
set -euo pipefail
: "${WEIR_NODE_0:?address of node 0}"

# unified-0, 8 GPUs
env \
  PYTHONHASHSEED=0 \
  VLLM_SERVER_DEV_MODE=1 \
  vllm serve nvidia/GLM-5.2-NVFP4 \
    --served-model-name nvidia/GLM-5.2-NVFP4 \
    --host 0.0.0.0 \
    --port 8000 \
    --tensor-parallel-size 8 \
    --gpu-memory-utilization 0.9 \
    --kv-cache-dtype fp8 \
    --kv-offloading-size 2234 \
    --kv-offloading-backend native \
    --trust-remote-code \
    --max-num-seqs 32 \
    --enable-prompt-tokens-details \
    >unified-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

wait
