#!/usr/bin/env bash
# node 0 of 1, recipe atom, engine atom
# image rocm/atom:v0.1.0
set -euo pipefail
: "${WEIR_NODE_0:?address of node 0}"

# unified-0, 8 GPUs
env python3 \
    -m atom.entrypoints.openai_server \
    --model nvidia/GLM-5.2-NVFP4 \
    --host 0.0.0.0 \
    --server-port 8000 \
    -tp 8 \
    --gpu-memory-utilization 0.9 \
    --kv_cache_dtype fp8 \
    --trust-remote-code \
    >unified-0.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

wait
