"""Says which engine behind a router got which sessions, from bundles alone.

Usage: table.py BUNDLE...
"""

import json
import subprocess
import sys
from pathlib import Path


def lines(path):
    text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def grown(samples):
    """By how much every series of every source grew from the first sample, which was taken before
    the load, to the last; a sample may hold only what changed."""
    first, out = {}, {}
    for s in samples:
        if not s.get("delta"):
            out[s["source"]] = {}
        out[s["source"]].update(s["values"])
        for gone in s.get("gone", []):
            out[s["source"]].pop(gone, None)
        first.setdefault(s["source"], dict(s["values"]))
    return {source: {k: v - first[source].get(k, 0) for k, v in values.items()} for source, values in out.items()}


def total(values, name):
    return int(sum(v for k, v in values.items() if k.split("{")[0] == name))


print("| policy | c | valid | requests | sessions | on engine 0 | on engine 1 | sum | requests on 0 | on 1 | hits by usage | by the engines | hit rate | ceiling | router's own word |")
print("|---" * 15 + "|")
rows = []
for b in map(Path, sys.argv[1:]):
    result, meta = json.loads((b / "result.json").read_text()), json.loads((b / "point.json").read_text())
    records = lines(b / "requests.jsonl.zst")
    sessions = {(r["tree"], r["stream"]) for r in records}
    every = grown(lines(b / "metrics.jsonl.zst"))
    engines = [v for k, v in sorted(every.items()) if any(s.startswith("sglang:") for s in v)]
    router = [v for v in every.values() if any(s.startswith("smg_") for s in v)]
    argv = next(p["argv"] for p in meta["processes"] if p["role"] == "router")
    word = ", ".join(f"{k.split('_policy')[0].removeprefix('smg_')} {k.split('branch=')[1].split(chr(34))[1]} {int(v)}"
                     for r in router for k, v in r.items() if k.startswith("smg_") and "policy_branch_total" in k and v)
    s, n = [total(e, "weir:sessions_total") for e in engines], [total(e, "sglang:num_requests_total") for e in engines]
    rows.append((-result["hits"]["total"], (argv[argv.index("--policy") + 1], meta["point"]["conc"], "yes" if result["valid"] else "; ".join(r["text"] for r in result["invalid_reasons"]),
                 len(records), len(sessions), *s, sum(s), *n, sum(max(r["hits"]["total"], 0) for r in records),
                 sum(total(e, "sglang:cached_tokens_total") for e in engines), f"{result['hits']['total']:.4f}", f"{result['hits']['ceiling']:.4f}", word)))
for _, row in sorted(rows):
    print("| " + " | ".join(map(str, row)) + " |")
