"""Says what bundles of a sweep hold about the vLLM that Weir started for them, and ends with 1 if a point is
missing or anything differs: token counts, hits, the size of the pool, the families of metrics.

Usage: recipe.py WEIR POINTS BUNDLE...
"""

import json
import re
import sys
from pathlib import Path

from bundle import failed, lines, print_families, samples, sums, verdict

weir, points, bundles = sys.argv[1], int(sys.argv[2]), [Path(b) for b in sys.argv[3:] if (Path(b) / "point.json").exists()]
bad, notes, seen, count = [], [], {}, 0


def same(what, *numbers):
    if any(n != numbers[0] for n in numbers):
        bad.append(f"{what}: " + ", ".join(map(str, numbers)))


print("| c | valid | cache clean at start | version | pool by metrics | by its log | requests of the window | failed or cut | drift | hits by usage | by vLLM | hit rate | ceiling "
      "| requests of the run | prompt tokens by usage | by vLLM | hits by usage | by vLLM |")
print("|---" * 18 + "|")
for b in sorted(bundles, key=lambda b: json.loads((b / "point.json").read_text())["point"]["conc"]):
    meta = json.loads((b / "point.json").read_text())
    conc, engine = meta["point"]["conc"], meta["engine"]
    if not (b / "result.json").exists():
        why = json.loads((b / "FAILED").read_text())["reason"] if (b / "FAILED").exists() else "no result.json"
        print(f"| {conc} | {why} |" + " |" * 16)
        bad.append(f"c={conc}: {why}")
        continue
    count += 1
    result = json.loads((b / "result.json").read_text())
    every = lines(b / "requests.jsonl.zst")
    records = [r for r in every if r["phase"] == "profiling"]
    log = (b / "logs" / "unified-0.log").read_text()
    pool = re.search(r"KV cache size: ([\d,]+) tokens", log)
    pool = pool and int(pool[1].replace(",", ""))
    clean = {True: "yes", False: "no", None: "nobody looked"}[meta.get("cache_clean")]
    taken = samples(weir, b)
    seen |= taken[-1]
    first, last = sums(taken[0]), sums(taken[-1])
    d = lambda name: int(last[name] - first[name])
    hits = lambda of: sum(max(r["hits"]["total"], 0) for r in of)
    tokens = lambda of: sum(max(r["prompt_tokens"], 0) for r in of)
    own = result["server"]["counters"]
    row = (conc, "yes" if result["valid"] else "no: " + "; ".join(r["text"] for r in result["invalid_reasons"]), clean, engine.get("version"),
           meta["observed_pools"]["device_tokens"], pool, len(records), sum(failed(records)),
           result["tokens"]["prompt_drift"], hits(records), own["hit_tokens"], f"{result['hits']['total']:.4f}", f"{result['hits']['ceiling']:.4f}",
           len(every), tokens(every), d("vllm:prompt_tokens_total"), hits(every), d("vllm:prefix_cache_hits_total"))
    print("| " + " | ".join(map(str, row)) + " |")
    same(f"c={conc}: the cache is clean at the start", clean, "yes")
    same(f"c={conc}: the pool by metrics, by the log", row[4], pool)
    same(f"c={conc}: drift", row[8], 0)
    done = [r for r in every if not r.get("failure")]
    same(f"c={conc}: requests, and those that count what was recorded", len(done), sum(r["want_in"] == r["prompt_tokens"] for r in done))
    wrong, cut = failed(every)
    same(f"c={conc}: requests that failed", wrong, 0)
    if cut:
        notes.append(f"c={conc}: {cut} requests were cut; vLLM's counters hold what it began of them, so they were not compared")
    else:
        same(f"c={conc}: prompt tokens of the run by usage, vLLM", row[14], row[15])
        same(f"c={conc}: hits of the run by usage, vLLM", row[16], row[17])
    told = {f["name"]: f["value"] for f in meta.get("told") or []}
    notes.append(f"c={conc}: told " + ", ".join(f"{k} {v}" for k, v in sorted(told.items()))[:1500])
    notes += [f"c={conc}: {line}" for line in (b / "logs" / "stop.log").read_text().splitlines()]
same("points that were asked for, and measured", points, count)
print("\nFamilies of vLLM's metrics that the adapter knows.\n")
bad += print_families(seen)
print("\n".join(notes) + "\n")
sys.exit(verdict(bad))
