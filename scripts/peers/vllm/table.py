"""Compares bundles of Weir with vLLM's own counters, and ends with 1 if anything differs: token counts,
hits, the hit rate, the size of the pool, the families of metrics and every value in them.

Usage: table.py WEIR SERVER_LOG BUNDLE...   (BUNDLE.before and BUNDLE.after are texts of /metrics)
"""

import json
import re
import sys
from pathlib import Path

from bundle import adapter, failed, family, lines, page, plain, print_families, samples, sums, verdict

bad = []


def same(what, *numbers):
    if any(n != numbers[0] for n in numbers):
        bad.append(f"{what}: " + ", ".join(map(str, numbers)))


def counted(cut, what, *numbers):
    """Numbers of which the last is the server's: equal, or that one not less where requests were cut."""
    if cut and len(set(numbers[:-1])) == 1 and numbers[-1] >= numbers[0]:
        print(f"{what}: " + ", ".join(map(str, numbers)) + f": not compared, {cut} requests were cut\n")
    else:
        same(what, *numbers)


def table(head, rows):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")
    print()


weir, log, bundles = sys.argv[1], Path(sys.argv[2]).read_text(), [Path(b) for b in sys.argv[3:]]
pool = re.search(r"KV cache size: ([\d,]+) tokens", log)
pool = int(pool[1].replace(",", "")) if pool else bad.append("the log names no KV cache size")
known = set(adapter())
whole, window, read = [], [], []
for b in bundles:
    if not (b / "result.json").exists():
        bad.append(f"{b.name}: no result.json")
        continue
    result = json.loads((b / "result.json").read_text())
    conc = json.loads((b / "point.json").read_text())["point"]["conc"]
    records = lines(b / "requests.jsonl.zst")
    done = [r for r in records if not r.get("failure")]
    before, after, taken = page(f"{b}.before"), page(f"{b}.after"), samples(weir, b)
    first, last = sums(taken[0]), sums(after)
    d = lambda name: int(last[name] - first[name])
    total = lambda of, key: sum(key(r) for r in of)
    hits = lambda r: max(r["hits"]["total"], 0)
    row = (
        conc, len(records), len(records) - len(done), total(done, lambda r: r["want_in"]), total(done, lambda r: r["prompt_tokens"]),
        d("vllm:prompt_tokens_total"), sum(r["want_in"] == r["prompt_tokens"] for r in done), total(done, hits), d("vllm:prefix_cache_hits_total"),
        total(done, lambda r: r["want_out"]), total(done, lambda r: r["output_tokens"]), d("vllm:generation_tokens_total"),
        int(first["vllm:prompt_tokens_total"] - sums(before)["vllm:prompt_tokens_total"]))
    whole.append(row)
    same(f"c={conc}: requests, and those that count what was recorded", len(done), row[6])
    same(f"c={conc}: answers as long as asked for, and by usage", row[9], row[10])
    wrong, cut = failed(records)
    same(f"c={conc}: requests that failed", wrong, 0)
    counted(cut, f"c={conc}: prompt tokens of the run by records, usage, vLLM", *row[3:6])
    counted(cut, f"c={conc}: prompt tokens by vLLM, looked up by vLLM", row[5], d("vllm:prefix_cache_queries_total"))
    counted(cut, f"c={conc}: hits of the run by usage, vLLM", *row[7:9])
    counted(cut, f"c={conc}: output tokens of the run by usage, vLLM", *row[10:12])
    own, seen = result["server"]["counters"], [r for r in done if r["phase"] == "profiling"]
    tokens, found = total(seen, lambda r: r["prompt_tokens"]), total(seen, hits)
    rate, theirs = result["hits"]["total"], own["hit_tokens"] / own["hit_prompt_tokens"]
    window.append((
        conc, "yes" if result["valid"] else "no: " + "; ".join(r["text"] for r in result["invalid_reasons"]), len(seen), result["tokens"]["prompt_drift"],
        tokens, own["prompt_tokens"], found, own["hit_tokens"], f"{rate:.6f}", f"{theirs:.6f}", f"{result['hits']['ceiling']:.4f}",
        result["pools"]["device_tokens"], pool))
    same(f"c={conc}: drift", result["tokens"]["prompt_drift"], 0)
    same(f"c={conc}: the pool by Weir, by the log", result["pools"]["device_tokens"], pool)
    same(f"c={conc}: prompt tokens by vLLM, and hits plus computed", own["prompt_tokens"], own["hit_tokens"] + own["computed_tokens"])
    counted(cut, f"c={conc}: prompt tokens of the window by usage, vLLM", tokens, own["prompt_tokens"])
    counted(cut, f"c={conc}: hits of the window by usage, vLLM", found, own["hit_tokens"])
    if not cut:
        same(f"c={conc}: hit rate by Weir, by vLLM", rate, theirs)
    # Nothing was sent after Weir's last sample, so all that the adapter reads must be as the page has it.
    a = {plain(s): v for s, v in after.items() if family(s) in known}
    w = {plain(s): v for s, v in taken[-1].items() if family(s) in known}
    off = [s for s in sorted(a.keys() | w.keys()) if a.get(s) != w.get(s)]
    read.append((conc, len(a), len(w), len(off)))
    bad += [f"c={conc}: {s[0]} {dict(s[1])}: {w.get(s)} in the bundle, {a.get(s)} on the page" for s in off[:5]]
print("All requests of a run, warm-up included; vLLM's counters from Weir's first scrape to the end.\n")
table(["c", "requests", "failed or cut", "prompt tokens recorded", "by usage", "by vLLM", "requests equal", "hits by usage", "by vLLM",
       "output tokens asked for", "by usage", "by vLLM", "prompt tokens of probes before"], whole)
print("The window that is measured.\n")
table(["c", "valid", "requests", "drift", "prompt tokens by usage", "by vLLM's counters", "hits by usage", "by vLLM's counters",
       "hit rate by Weir", "by vLLM's counters", "ceiling", "pool by Weir", "by vLLM's log"], window)
print("Families of vLLM's metrics that the adapter knows.\n")
last = Path(f"{bundles[-1]}.after")
bad += print_families(page(last))
print("Series of these families after the run.\n")
table(["c", "on /metrics", "in Weir's last sample", "with another value"], read)
for line in log.splitlines():
    if "KV cache size" in line:
        print("log:", re.sub(r"^.*?\] ", "", line))
for line in last.read_text().splitlines():
    if line.startswith("vllm:cache_config_info"):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        print("metrics:", ", ".join(f"{k} {labels.get(k)}" for k in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens", "kv_cache_memory_bytes")))
print()
sys.exit(verdict(bad))
