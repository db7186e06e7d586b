"""Makes a result folder whose server_metrics_export.json is as large as InferenceX's can be, has
`weir aggregate` read it, and says what that took. Without FOLDER nothing of it is kept.

Usage: huge.py WEIR [GB] [FOLDER]
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

weir = sys.argv[1]
size = int(float(sys.argv[2]) * 1e9) if len(sys.argv) > 2 else 3_000_000_000
work = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(tempfile.mkdtemp())
artifacts = work / "aiperf_artifacts"
artifacts.mkdir(parents=True, exist_ok=True)
with open(artifacts / "profile_export.jsonl", "w") as f:
    for i in range(6000):
        start = 1_780_000_000_000_000_000 + i * 600_000_000
        f.write(json.dumps({
            "metadata": {"conversation_id": f"t{i % 50}", "turn_index": i, "request_start_ns": start, "request_end_ns": start + 9_000_000_000, "benchmark_phase": "profiling"},
            "metrics": {"time_to_first_token": {"value": 900.0 + i % 300, "unit": "ms"}, "request_latency": {"value": 8900.0, "unit": "ms"},
                        "inter_token_latency": {"value": 20.0, "unit": "ms"}, "input_sequence_length": {"value": 90000 + i, "unit": "tokens"},
                        "output_sequence_length": {"value": 400, "unit": "tokens"},
                        "inter_chunk_latency": {"value": [20.0 + k / 7 for k in range(400)], "unit": "ms"}}}) + "\n")
names = ["sglang:prompt_tokens", "sglang:generation_tokens", "sglang:cached_tokens", "sglang:num_requests"] + [f"sglang:other_{i}" for i in range(400)]
slices = ",".join(json.dumps({"start_ns": 1_780_000_000_000_000_000 + i * 10**9, "end_ns": 1_780_000_001_000_000_000 + i * 10**9, "total": i * 1.5, "rate": i * 1.5})
                  for i in range(3600))
with open(artifacts / "server_metrics_export.json", "w") as f:
    f.write('{"schema_version": "1.0", "summary": {"endpoints_configured": []}, "metrics": {')
    n = 0
    while f.tell() < size or n < len(names):
        name = names[n] if n < len(names) else f"sglang:more_{n}"
        labels = {"cache_source": "device"} if name == "sglang:cached_tokens" else {"engine_type": "unified"}
        if n:
            f.write(", ")
        f.write(f'"{name}": {{"type": "counter", "description": "", "series": [')
        f.write(json.dumps({"endpoint_url": "http://h:30000/metrics", "labels": labels, "stats": {"total": 1000.0 - n % 900, "rate": 1.0}})[:-1])
        f.write(f', "timeslices": [{slices}]}}]}}')
        n += 1
    f.write("}}")
sizes = {p.name: p.stat().st_size for p in artifacts.iterdir()}
env = os.environ | {"RESULT_DIR": str(work), "AGENTIC_OUTPUT_DIR": str(work), "RESULT_FILENAME": "row", "KV_OFFLOADING": "none", "FRAMEWORK": "sglang", "TP": "8", "CONC": "8"}
begun = time.time()
pid = os.posix_spawn(weir, [weir, "aggregate"], env)
_, status, usage = os.wait4(pid, 0)
took = time.time() - begun
print(f"{sizes}, {n} families\n{took:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} s of a processor, {usage.ru_maxrss / 1024:.0f} MiB at most, status {status}")
row = json.loads((work / "row.json").read_text())
cache = row["server_metrics"]["cache"]
print("requests", row["num_requests_successful"], "device hit rate", cache["gpu_cache_hit_rate"], "families", row["server_metrics"]["metric_count"])
if len(sys.argv) <= 3:
    shutil.rmtree(work)
sys.exit(status != 0 or row["server_metrics"]["metric_count"] != n)
