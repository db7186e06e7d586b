"""Makes random result folders of every engine kind and compares the row of InferenceX's own
process_agentic_result.py with that of `weir aggregate`, key by key.

Usage: random.py WEIR INFERENCEX [COUNT] [SEED]
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from compare import flat

weir, source = sys.argv[1], Path(sys.argv[2]).resolve()
count = int(sys.argv[3]) if len(sys.argv) > 3 else 40
r = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)


def stats(kind):
    if kind == "counter":
        return {"total": float(r.randrange(0, 10**7)), "rate": r.random() * 100}
    if kind == "histogram":
        return {"count": r.randrange(1, 1000), "sum": float(r.randrange(1, 10**6)), "avg": r.random() * 100}
    top = r.random()
    return {"avg": top * r.random(), "min": 0.0, "max": top, "p50": top / 2}


def metric(kind, labels, scale=1.0):
    out = []
    for set_of in labels:
        s = stats(kind)
        if kind == "gauge":
            s = {k: v * scale for k, v in s.items()}
        out.append({"endpoint_url": r.choice(["http://a:1/metrics", "http://b:1/metrics"]), "labels": set_of, "stats": s})
    return {"type": kind, "description": "", "series": out}


ranks = lambda: [{"engine": str(i), "dp_rank": str(i)} for i in range(r.choice([1, 2, 4]))]
by = lambda key, values: [{key: v} for v in values if r.random() < 0.8] or [{key: values[0]}]


def sglang():
    return {
        "sglang:prompt_tokens": metric("counter", ranks()), "sglang:generation_tokens": metric("counter", ranks()),
        "sglang:cached_tokens": metric("counter", by("cache_source", ["device", "host", "storage_file", "total"])),
        "sglang:cache_hit_rate": metric("gauge", ranks(), r.choice([1, 100])), "sglang:token_usage": metric("gauge", ranks()),
        "sglang:max_total_num_tokens": metric("gauge", ranks(), 1e6), "sglang:hicache_host_used_tokens": metric("gauge", ranks(), 1e6),
        "sglang:hicache_host_total_tokens": metric("gauge", ranks(), 1e6),
        "sglang:realtime_tokens": metric("counter", by("mode", ["prefill_compute", "prefill_cache", "decode"])),
    }


def vllm():
    return {
        "vllm:prompt_tokens": metric("counter", ranks()), "vllm:generation_tokens": metric("counter", ranks()),
        "vllm:prefix_cache_hits": metric("counter", ranks()), "vllm:prefix_cache_queries": metric("counter", ranks()),
        "vllm:external_prefix_cache_hits": metric("counter", ranks()), "vllm:external_prefix_cache_queries": metric("counter", ranks()),
        "vllm:prompt_tokens_by_source": metric("counter", by("source", ["local_compute", "local_cache_hit", "external_kv_transfer"])),
        "vllm:kv_cache_usage_perc": metric("gauge", ranks(), r.choice([1, 100])), "vllm:cpu_kv_cache_usage_perc": metric("gauge", ranks()),
        "vllm:kv_offload_bytes_gpu_to_cpu": metric("counter", ranks()), "vllm:kv_offload_bytes_cpu_to_gpu": metric("counter", ranks()),
        "vllm:kv_offload_time_gpu_to_cpu": metric("counter", ranks()), "vllm:kv_offload_time_cpu_to_gpu": metric("counter", ranks()),
    }


def dynamo():
    m = vllm() if r.random() < 0.7 else {}
    parts = [{"dynamo_component": c, "worker_id": str(i)} for i, c in enumerate(["prefill", "backend", "decode", "frontend"])]
    m |= {
        "dynamo_frontend_input_sequence_tokens": metric("histogram", [{}]), "dynamo_frontend_output_tokens": metric("counter", [{}]),
        "dynamo_frontend_cached_tokens": metric("histogram", [{}]), "dynamo_component_gpu_cache_usage_percent": metric("gauge", parts, 100),
        "dynamo_component_router_kv_hit_rate": metric("gauge", parts), "dynamo_component_router_shared_cache_hit_rate": metric("gauge", parts),
    }
    return m


def atom():
    p = r.choice(["atom:", "atom_"])
    names = ["prompt_tokens", "generation_tokens", "prefix_cache_cached_tokens", "prefix_cache_full_tokens", "lmcache_loaded_tokens"]
    m = {p + n + r.choice(["", "_total"]): metric("counter", ranks()) for n in names}
    m[p + "kv_cache_usage_ratio"] = metric("gauge", ranks())
    return m


def trtllm():
    return {"trtllm:kv_cache_hit_rate": metric("gauge", [{}]), "trtllm:num_requests_running": metric("gauge", ranks())}


def server_log(kind):
    """What engines say of their pools near the beginning of a log."""
    n = lambda: r.randrange(10**5, 10**7)
    if kind == "vllm":
        tags = r.choice([[""], ["(EngineCore pid=1) "], [f"(EngineCore_DP{i} pid={i}) " for i in range(r.choice([1, 2, 4]))]])
        return "".join(f"{t}INFO 10-01 GPU KV cache size: {n():,} tokens\n" for t in tags)
    tags = r.choice([[""], [f"DP{i} TP{i} EP{i} " for i in range(r.choice([1, 2, 8]))]])
    head = r.choice(["", f"server_args=ServerArgs(dp_size={r.choice([1, 2, 8])})\n"])
    return head + "".join(f"[2026-10-01 00:00:00 {t}] max_total_num_tokens={n()}, chunked_prefill_size=8192\n" for t in tags)


def record(i, t):
    start = 1_780_000_000_000_000_000 + int(t * 1e9)
    ttft, osl = r.uniform(1, 9000), r.choice([1, 2, 7, 300, 4000])
    itl = r.uniform(0.5, 60)
    latency = ttft + itl * (osl - 1)
    out = {
        "metadata": {"session_num": i, "conversation_id": f"t{i % 5}", "turn_index": i, "request_start_ns": start,
                     "request_end_ns": start + int((latency + r.uniform(0, 30)) * 1e6), "benchmark_phase": r.choice(["profiling"] * 6 + ["warmup"])},
        "metrics": {"time_to_first_token": {"value": ttft, "unit": "ms"}, "request_latency": {"value": latency, "unit": "ms"},
                    "input_sequence_length": {"value": r.randrange(1, 200000), "unit": "tokens"}, "output_sequence_length": {"value": osl, "unit": "tokens"}},
    }
    if osl > 1:
        out["metrics"]["inter_token_latency"] = {"value": itl, "unit": "ms"}
        out["metrics"]["full_response_inter_token_latency"] = {"value": itl * 1.01, "unit": "ms"}
    for k in list(out["metrics"]):
        if r.random() < 0.03:
            del out["metrics"][k]
    if r.random() < 0.1:
        out["metrics"] = {}
        out["error"] = r.choice([{"code": 499, "type": "RequestCancellationError", "message": "x"}, {"code": 500, "type": "HTTPStatusError", "message": "y"}])
    return out


def environment(kind):
    env = {"RUNNER_TYPE": "b200", "CONC": str(r.choice([1, 8, 64])), "MODEL": "m", "FRAMEWORK": {"dynamo": "dynamo-vllm"}.get(kind, kind), "PRECISION": "fp4",
           "TP": str(r.choice([1, 8])), "EP_SIZE": str(r.choice([1, 8])), "PP_SIZE": "2", "KV_OFFLOADING": "none"}
    if r.random() < 0.5:
        env |= {"KV_OFFLOADING": "dram", "KV_OFFLOAD_BACKEND": "b", "KV_OFFLOAD_BACKEND_METADATA": '{"name": "b", "version": "1"}', "TOTAL_CPU_DRAM_GB": "900"}
    if r.random() < 0.4:
        env |= {"IS_MULTINODE": "true", "DISAGG": r.choice(["true", "false"]), "PREFILL_NUM_WORKERS": "2", "PREFILL_TP": "4", "PREFILL_EP": "4", "PREFILL_DP_ATTN": "true",
                "DECODE_NUM_WORKERS": r.choice(["0", "1"]), "DECODE_TP": "8", "DECODE_EP": "8"}
    return env


bad = both = 0
for n in range(count):
    kind = r.choice(["sglang", "vllm", "dynamo", "atom"] * 4 + ["trtllm"])
    with tempfile.TemporaryDirectory() as d:
        art = Path(d) / "aiperf_artifacts"
        art.mkdir()
        size = r.choice([0, 1, 2, 40])
        t, lines = 0.0, []
        for i in range(size):
            t += r.expovariate(2)
            lines.append(json.dumps(record(i, t)))
        (art / "profile_export.jsonl").write_text("".join(l + "\n" for l in lines))
        if r.random() < 0.8:
            summary = {"metadata": {"dataset": {"entries": 3}}}
            if r.random() < 0.7:
                summary["theoretical_prefix_cache_hit"] = {"unit": "%", "avg": 91.5, "sum": 100.0, "count": r.choice([0, 110])}
            (art / "profile_export_aiperf.json").write_text(json.dumps(summary))
        metrics = {"sglang": sglang, "vllm": vllm, "dynamo": dynamo, "atom": atom, "trtllm": trtllm}[kind]()
        metrics = {k: v for k, v in metrics.items() if r.random() < 0.85}
        if r.random() < 0.9:
            (art / "server_metrics_export.json").write_text(json.dumps({"metrics": metrics}))
        if r.random() < 0.4:
            (Path(d) / "server.log").write_text(server_log(r.choice([kind, "sglang", "vllm"])))
        if r.random() < 0.05:
            with open(art / "profile_export.jsonl", "a") as f:
                f.write(json.dumps(record(0, 0))[:80])
        env = dict(os.environ) | environment(kind) | {"RESULT_DIR": d, "AGENTIC_OUTPUT_DIR": d}
        theirs = subprocess.run([sys.executable, "-m", "agentic.aggregation.process_agentic_result"], cwd=source / "utils",
                                env=env | {"RESULT_FILENAME": "theirs"}, capture_output=True, text=True)
        ours = subprocess.run([weir, "aggregate"], env=env | {"RESULT_FILENAME": "ours"}, capture_output=True, text=True)
        if (theirs.returncode == 0) != (ours.returncode == 0):
            bad += 1
            print(f"{n} {kind}, {size} records: InferenceX ends with {theirs.returncode}, Weir with {ours.returncode}:", theirs.stderr[-200:], ours.stderr[-300:])
            continue
        both += theirs.returncode != 0
        if theirs.returncode:
            continue
        a, b = (dict(flat(json.loads((Path(d) / f"{x}.json").read_text()))) for x in ("theirs", "ours"))
        b = {k: v for k, v in b.items() if not k.startswith("weir_")}  # Weir's own, beside InferenceX's
        diff = [k for k in sorted(a.keys() | b.keys()) if k not in a or k not in b or a[k] != b[k]]
        if diff:
            bad += 1
            print(f"{n} {kind}, {size} records: " + "; ".join(f"{k}: {a.get(k, 'absent')} / {b.get(k, 'absent')}" for k in diff[:6]))
print(f"{count} folders, {both} refused by both, {bad} differ")
sys.exit(bad > 0)
