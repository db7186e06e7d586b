#!/usr/bin/env bash
# node 0 of 1, recipe glm5.2-b300-sglang, engine sglang
# image lmsysorg/sglang:v0.5.16-cu130
set -euo pipefail
: "${WEIR_NODE_0:?address of node 0}"

# unified-0, 8 GPUs
env \
  SGLANG_HEALTH_CHECK_TIMEOUT=600 \
  python3 \
    -m sglang.launch_server \
    --model-path nvidia/GLM-5.2-NVFP4 \
    --served-model-name nvidia/GLM-5.2-NVFP4 \
    --host 0.0.0.0 \
    --port 8000 \
    --tp-size 8 \
    --mem-fraction-static 0.85 \
    --kv-cache-dtype fp8_e4m3 \
    --page-size 64 \
    --enable-hierarchical-cache \
    --hicache-size 241 \
    --hicache-write-policy write_back \
    --speculative-algorithm EAGLE \
    --speculative-num-steps 3 \
    --speculative-eagle-topk 1 \
    --speculative-num-draft-tokens 4 \
    --trust-remote-code \
    --chunked-prefill-size 16384 \
    --max-running-requests 32 \
    --cuda-graph-max-bs 32 \
    --tool-call-parser glm47 \
    --reasoning-parser glm45 \
    --quantization modelopt_fp4 \
    --hicache-io-backend direct \
    --hicache-mem-layout page_first_direct \
    --enable-metrics \
    --enable-cache-report \
    >unified-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

wait
