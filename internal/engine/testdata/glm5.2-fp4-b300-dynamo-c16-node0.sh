#!/usr/bin/env bash
# node 0 of 1, recipe dynamo-sglang, engine dynamo
# image lmsysorg/sglang:v0.5.16-cu130
set -euo pipefail
: "${WEIR_NODE_0:?address of node 0}"

# etcd
env etcd \
    --data-dir etcd-data \
    --listen-client-urls http://0.0.0.0:2379 \
    --advertise-client-urls "http://$WEIR_NODE_0:2379" \
    >etcd.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:2379/health"; do sleep 2; done

# nats
env nats-server \
    -js \
    -p 4222 \
    >nats.log 2>&1 &

# unified-0, 8 GPUs, once stage 0 serves
env \
  "ETCD_ENDPOINTS=http://$WEIR_NODE_0:2379" \
  "NATS_SERVER=nats://$WEIR_NODE_0:4222" \
  DYN_SYSTEM_ENABLED=true \
  DYN_SYSTEM_PORT=7500 \
  python3 \
    -m dynamo.sglang \
    --model-path nvidia/GLM-5.2-NVFP4 \
    --served-model-name nvidia/GLM-5.2-NVFP4 \
    --tp-size 8 \
    --mem-fraction-static 0.85 \
    --kv-cache-dtype fp8_e4m3 \
    --page-size 64 \
    --enable-hierarchical-cache \
    --hicache-size 241 \
    --hicache-write-policy write_through \
    --speculative-algorithm EAGLE \
    --speculative-num-steps 3 \
    --speculative-eagle-topk 1 \
    --speculative-num-draft-tokens 4 \
    --trust-remote-code \
    --max-running-requests 32 \
    --enable-metrics \
    --enable-cache-report \
    >unified-0.log 2>&1 &

# frontend, once stage 1 serves
env \
  "ETCD_ENDPOINTS=http://$WEIR_NODE_0:2379" \
  "NATS_SERVER=nats://$WEIR_NODE_0:4222" \
  python3 \
    -m dynamo.frontend \
    --http-port 8000 \
    --router-session-affinity-ttl-secs 3600 \
    --router-mode kv \
    >frontend.log 2>&1 &
until curl -fsS -o /dev/null "http://$WEIR_NODE_0:8000/health"; do sleep 2; done

wait
