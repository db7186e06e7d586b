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
    --ep-size 8 \
    --enable-dp-attention \
    --dp-size 8 \
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
    --max-running-requests 128 \
    --cuda-graph-max-bs 128 \
    --tool-call-parser glm47 \
    --reasoning-parser glm45 \
    --quantization modelopt_fp4 \
    --hicache-io-backend direct \
    --hicache-mem-layout page_first_direct \
    --enable-dp-lm-head \
    --moe-dense-tp-size 1 \
    --enable-metrics \
    --enable-cache-report \
    >unified-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

# router, once stage 0 serves
env \
  SGLANG_HEALTH_CHECK_TIMEOUT=600 \
  python3 \
    -m sglang_router.launch_router \
    --host 0.0.0.0 \
    --port 30000 \
    --prometheus-port 29000 \
    --policy consistent_hashing \
    --request-timeout-secs 14400 \
    --disable-circuit-breaker \
    --health-failure-threshold 100 \
    --health-check-timeout-secs 600 \
    --health-check-interval-secs 30 \
    --dp-aware \
    --worker-urls "http://$WEIR_NODE_0:8000" \
    >router.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:30000/readiness"; do sleep 2; done

wait
