#!/usr/bin/env bash
# node 0 of 1, recipe external, engine external
# image lmsysorg/sglang:v0.5.16-cu130
set -euo pipefail

# external, 8 GPUs
cat >point.json <<'EOF'
{"key":"glm5.2-external","origin":{"file":"../../examples/external/master.yaml","line":14},"name":"glm5.2_tp8_conc2_kvnone","image":"lmsysorg/sglang:v0.5.16-cu130","model":"nvidia/GLM-5.2-NVFP4","model-prefix":"glm5.2","precision":"fp4","framework":"sglang","runner":"cluster:b200-dgxc","scenario":"agentic-coding","conc":2,"multinode":false,"disagg":false,"unified":{"tp":8,"pp":1,"ep":1,"dcp-size":1,"pcp-size":1,"dp-attn":false},"spec-decoding":"none","offload":{"mode":"none","backend":{"name":""},"budget-gb":0},"router":{"name":""},"duration-ns":3600000000000,"gpus-per-node":8,"node-dram-bytes":3246161657856,"weir":{"recipe":"external","seed":42,"repeats":1}}
EOF
env \
  WEIR_POINT=point.json \
  sh \
    -c 'weir sim serve --addr 127.0.0.1:8000 --speed 20 >server.log 2>&1 & echo $! >server.pid' \
    >external.log 2>&1 &

wait
