"""Compares bundles of Weir with vLLM's own counters.

Usage: table.py WEIR SERVER_LOG BUNDLE...   (BUNDLE.before and BUNDLE.after are texts of /metrics)
"""

import json
import re
import subprocess
import sys
from pathlib import Path


def counters(lines):
    sums = {}
    for series, value in lines:
        name = series.split("{")[0]
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def page(path):
    return counters(line.rsplit(" ", 1) for line in Path(path).read_text().splitlines() if line.startswith("vllm:"))


def lines(path):
    text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")
    print()


weir, log, bundles = sys.argv[1], sys.argv[2], [Path(b) for b in sys.argv[3:]]
whole, window = [], []
for b in bundles:
    result = json.loads((b / "result.json").read_text())
    conc = json.loads((b / "point.json").read_text())["point"]["conc"]
    records = lines(b / "requests.jsonl.zst")
    done = [r for r in records if not r.get("failure")]
    before, after = page(f"{b}.before"), page(f"{b}.after")
    samples = subprocess.run([weir, "scrape", str(b)], capture_output=True, check=True, text=True).stdout
    first = counters(json.loads(samples.splitlines()[0])["values"].items())
    d = lambda name: int(after[name] - first[name])
    whole.append((
        conc, len(records), len(records) - len(done), sum(r["want_in"] for r in done), sum(r["prompt_tokens"] for r in done),
        d("vllm:prompt_tokens_total"), sum(r["want_in"] == r["prompt_tokens"] for r in done),
        sum(max(r["hits"]["total"], 0) for r in done), d("vllm:prefix_cache_hits_total"),
        sum(r["want_out"] for r in done), sum(r["output_tokens"] for r in done), d("vllm:generation_tokens_total"),
        int(first["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"])))
    own, seen = result["server"]["counters"], [r for r in done if r["phase"] == "profiling"]
    window.append((
        conc, "yes" if result["valid"] else "no: " + "; ".join(r["text"] for r in result["invalid_reasons"]), len(seen), result["tokens"]["prompt_drift"],
        sum(r["prompt_tokens"] for r in seen), own["prompt_tokens"], sum(max(r["hits"]["total"], 0) for r in seen), own["hit_tokens"],
        f"{result['hits']['total']:.4f}", f"{result['hits']['ceiling']:.4f}", result["pools"]["device_tokens"]))
print("All requests of a run, warm-up included; vLLM's counters from Weir's first scrape to the end.\n")
table(["c", "requests", "failed", "prompt tokens recorded", "by usage", "by vLLM", "requests equal", "hits by usage", "by vLLM",
       "output tokens asked for", "by usage", "by vLLM", "prompt tokens of probes before"], whole)
print("The window that is measured.\n")
table(["c", "valid", "requests", "drift", "prompt tokens by usage", "by vLLM's counters", "hits by usage", "by vLLM's counters",
       "hit rate", "ceiling", "pool read"], window)
for line in Path(log).read_text().splitlines():
    if "KV cache size" in line:
        print("log:", re.sub(r"^.*?\] ", "", line))
for line in Path(f"{bundles[0]}.after").read_text().splitlines():
    if line.startswith("vllm:cache_config_info"):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        print("metrics:", ", ".join(f"{k} {labels.get(k)}" for k in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens", "kv_cache_memory_bytes")))
