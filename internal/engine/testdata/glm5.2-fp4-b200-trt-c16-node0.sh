#!/usr/bin/env bash
# node 0 of 1, recipe trtllm, engine trtllm
# image nvcr.io/nvidia/tensorrt-llm/release:1.3.0
set -euo pipefail
: "${WEIR_NODE_0:?address of node 0}"

# unified-0, 8 GPUs
cat >trtllm-options.yaml <<'EOF'
{
  "enable_iter_perf_stats": true,
  "kv_cache_config": {
    "dtype": "fp8",
    "enable_block_reuse": true,
    "free_gpu_memory_fraction": 0.9,
    "host_cache_size": 299874910208,
    "tokens_per_block": 32
  },
  "return_perf_metrics": true
}
EOF
env trtllm-serve nvidia/GLM-5.2-NVFP4 \
    --host 0.0.0.0 \
    --port 8000 \
    --tp_size 8 \
    --backend pytorch \
    --trust_remote_code \
    --max_batch_size 32 \
    --extra_llm_api_options trtllm-options.yaml \
    >unified-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

wait
