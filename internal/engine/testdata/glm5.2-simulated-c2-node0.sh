#!/usr/bin/env bash
# node 0 of 1, recipe sim-serve, engine sim
# image lmsysorg/sglang:v0.5.16-cu130
set -euo pipefail
: "${WEIR_NODE_0:?address of node 0}"

# unified-0, 8 GPUs
env weir sim serve \
    --model glm-5.2 \
    --served-model-name nvidia/GLM-5.2-NVFP4 \
    --addr "$WEIR_NODE_0:8000" \
    --gpu b200 \
    --precision fp4 \
    --tp 8 \
    --device-tokens 1698368 \
    --kv-dtype fp8 \
    --page-size 64 \
    --host-tokens 5408704 \
    --write-policy write_back \
    --speed 20 \
    >unified-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

wait
