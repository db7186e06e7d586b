#!/usr/bin/env bash
# node 1 of 2, recipe dsv4-mi355x-sglang-pd, engine sglang
# image lmsysorg/sglang-rocm:v0.5.17-rocm720-mi35x-20260817
set -euo pipefail
: "${WEIR_NODE_1:?address of node 1}"

# decode-0, 8 GPUs
env \
  SGLANG_HEALTH_CHECK_TIMEOUT=600 \
  SGLANG_USE_AITER=1 \
  SGLANG_ENABLE_UNIFIED_RADIX_TREE=1 \
  SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=3600 \
  SGLANG_DISAGGREGATION_WAITING_TIMEOUT=3600 \
  SGLANG_MORI_QP_PER_TRANSFER=4 \
  SGLANG_MORI_NUM_WORKERS=4 \
  MORI_SHMEM_MODE=ISOLATION \
  MORI_RDMA_TC=104 \
  MORI_IO_QP_MAX_SEND_WR=32768 \
  MORI_IO_SQ_BACKOFF_TIMEOUT_US=500000 \
  python3 \
    -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V4-Pro \
    --served-model-name deepseek-ai/DeepSeek-V4-Pro \
    --host 0.0.0.0 \
    --port 8000 \
    --tp-size 8 \
    --disaggregation-mode decode \
    --disaggregation-transfer-backend mori \
    --mem-fraction-static 0.85 \
    --page-size 256 \
    --speculative-algorithm EAGLE \
    --speculative-num-steps 3 \
    --speculative-eagle-topk 1 \
    --speculative-num-draft-tokens 4 \
    --trust-remote-code \
    --disaggregation-ib-device rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7 \
    --attention-backend dsv4 \
    --watchdog-timeout 3600 \
    --max-running-requests 128 \
    --enable-metrics \
    --enable-cache-report \
    >decode-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_1:8000/health"; do sleep 2; done

wait
