"""Says which engine behind a router got which sessions, from bundles alone, and ends with 1 if the engines
counted other requests or hits than the client's records, or if a session met both engines
under a policy that keeps it on one.

Usage: table.py WEIR POLICIES BUNDLE...
"""

import json
import subprocess
import sys
from pathlib import Path


def lines(path):
    text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def grown(weir, bundle):
    """By how much every series of every source grew from the first sample, which was taken before
    the load, to the last."""
    text = subprocess.run([weir, "scrape", str(bundle)], capture_output=True, check=True, text=True).stdout
    first, out = {}, {}
    for s in map(json.loads, text.splitlines()):
        out[s["source"]] = s["values"]
        first.setdefault(s["source"], s["values"])
    return {source: {k: v - first[source].get(k, 0) for k, v in values.items()} for source, values in out.items()}


def total(values, name):
    return int(sum(v for k, v in values.items() if k.split("{")[0] == name))


print("| policy | c | valid | requests | sessions | on engine 0 | on engine 1 | sum | requests on 0 | on 1 | hits by usage | by the engines | hit rate | ceiling | router's own word |")
print("|---" * 15 + "|")
STICKY = {"consistent_hashing", "manual"}  # policies that keep a key on one engine
rows, bad = [], []
weir, policies = sys.argv[1], int(sys.argv[2])
for b in map(Path, sys.argv[3:]):
    if not (b / "point.json").exists():
        continue
    if not (b / "result.json").exists():
        bad.append(f"{b.name}: " + (json.loads((b / "FAILED").read_text())["reason"] if (b / "FAILED").exists() else "no result.json"))
        continue
    result, meta = json.loads((b / "result.json").read_text()), json.loads((b / "point.json").read_text())
    records = lines(b / "requests.jsonl.zst")
    sessions = {(r["tree"], r["stream"]) for r in records}
    every = grown(weir, b)
    engines = [v for k, v in sorted(every.items()) if any(s.startswith("sglang:") for s in v)]
    router = [v for v in every.values() if any(s.startswith("smg_") for s in v)]
    argv = next(p["argv"] for p in meta["processes"] if p["role"] == "router")
    word = ", ".join(f"{k.split('_policy')[0].removeprefix('smg_')} {k.split('branch=')[1].split(chr(34))[1]} {int(v)}"
                     for r in router for k, v in r.items() if k.startswith("smg_") and "policy_branch_total" in k and v)
    s, n = [total(e, "weir:sessions_total") for e in engines], [total(e, "sglang:num_requests_total") for e in engines]
    policy = argv[argv.index("--policy") + 1]
    hits, found = sum(max(r["hits"]["total"], 0) for r in records), sum(total(e, "sglang:cached_tokens_total") for e in engines)
    rows.append((-result["hits"]["total"], (policy, meta["point"]["conc"], "yes" if result["valid"] else "no: " + "; ".join(r["text"] for r in result["invalid_reasons"]),
                 len(records), len(sessions), *s, sum(s), *n, hits, found, f"{result['hits']['total']:.4f}", f"{result['hits']['ceiling']:.4f}", word)))
    classes = [r["failure"]["class"] for r in records if r.get("failure")]
    cut = classes.count("cancelled")  # by Weir, at the end of the load; an engine may have begun and counted them
    if len(classes) > cut:
        bad.append(f"{policy}: {len(classes) - cut} requests failed")
    if not len(records) - cut <= sum(n) <= len(records):
        bad.append(f"{policy}: {len(records)} requests sent, {cut} of them cut, {sum(n)} at the engines")
    if hits > found or hits < found and not cut:
        bad.append(f"{policy}: {hits} tokens found by usage, {found} by the engines")
    if policy in STICKY and sum(s) != len(sessions):
        bad.append(f"{policy}: {len(sessions)} sessions, {' + '.join(map(str, s))} on the engines")
if len(rows) != policies:
    bad.append(f"{policies} policies were asked for, {len(rows)} were measured")
for _, row in sorted(rows):
    print("| " + " | ".join(map(str, row)) + " |")
print()
for line in bad or ["All checks hold."]:
    print("DIFFERS: " * bool(bad) + line)
sys.exit(bool(bad))
