"""Says what bundles of a sweep hold about the vLLM that Weir started for them.

Usage: recipe.py BUNDLE...
"""

import json
import re
import subprocess
import sys
from pathlib import Path


def lines(path):
    text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


print("| c | valid | cache clean at start | version | pool by metrics | by its log | requests | cut or failed | drift | hits by usage | by vLLM | hit rate | ceiling |")
print("|---" * 13 + "|")
notes = []
for b in sorted(map(Path, sys.argv[1:]), key=lambda b: json.loads((b / "point.json").read_text())["point"]["conc"]):
    meta = json.loads((b / "point.json").read_text())
    conc, engine = meta["point"]["conc"], meta["engine"]
    if not (b / "result.json").exists():
        print(f"| {conc} | {json.loads((b / 'FAILED').read_text())['reason']} |" + " |" * 11)
        continue
    result = json.loads((b / "result.json").read_text())
    records = [r for r in lines(b / "requests.jsonl.zst") if r["phase"] == "profiling"]
    log = (b / "logs" / "unified-0.log").read_text()
    pool = re.search(r"KV cache size: ([\d,]+) tokens", log)
    clean = {True: "yes", False: "no", None: "nobody looked"}[meta.get("cache_clean")]
    row = (conc, "yes" if result["valid"] else "; ".join(r["text"] for r in result["invalid_reasons"]), clean, engine.get("version"),
           meta["observed_pools"]["device_tokens"], pool and pool[1], len(records), sum(bool(r.get("failure")) for r in records),
           result["tokens"]["prompt_drift"], sum(max(r["hits"]["total"], 0) for r in records), result["server"]["counters"]["hit_tokens"],
           f"{result['hits']['total']:.4f}", f"{result['hits']['ceiling']:.4f}")
    print("| " + " | ".join(map(str, row)) + " |")
    told = {f["name"]: f["value"] for f in meta.get("told") or []}
    notes.append(f"c={conc}: told " + ", ".join(f"{k} {v}" for k, v in sorted(told.items()))[:1500])
    notes += [f"c={conc}: {line}" for line in (b / "logs" / "stop.log").read_text().splitlines()]
print()
print("\n".join(notes))
