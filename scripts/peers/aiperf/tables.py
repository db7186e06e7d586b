"""Prints how far runs of AIPerf and of Weir agree."""

import re
import statistics
from collections import Counter

from runs import value

STATS = ("avg", "p50", "p90", "p99")
NEAR = 0.03

# Metrics that the load alone settles: they must be equal, not near.
EXACT = {
    "request_count", "error_request_count", "completed_request_count", "good_request_count", "output_sequence_length", "output_token_count",
    "reasoning_token_count", "requested_osl", "osl_mismatch_diff_pct", "osl_mismatch_count", "total_osl", "total_output_tokens", "total_reasoning_tokens",
    "usage_completion_tokens", "total_usage_completion_tokens", "theoretical_prefix_cache_hit", "request_error_rate", "context_overflow_count",
    "http_req_connection_reused",
}

# Why a metric may be further off, or is not comparable. First match by the beginning of the name.
REASONS = (
    ("time_to_second_token", "one gap: what one read brings"),
    ("inter_chunk_latency", "single gaps: what one read brings"),
    ("min_request_timestamp", "an instant, not a size"),
    ("max_response_timestamp", "an instant, not a size"),
    ("credit_to_start_latency", "the client's own delay"),
    ("credit_drop_latency", "the client's own delay"),
    ("http_req_data", "bytes of the words that each tool makes its prompts of"),
    ("http_req_chunks", "reads and writes, which each tool cuts itself"),
    ("http_req_", "the client's own work around a request"),
    ("stream_setup_latency", "the server's headers come with the first token"),
    ("stream_prefill_latency", "between headers and first token, which the server sends together"),
    ("network", "the client's own measurement"),
    ("replay_", "the client's own delay"),
    ("active_prefill", "which requests are in prefill at once shifts with milliseconds of their starts, the client's own delay"),
    ("effective_prefill", "which requests are in prefill at once shifts with milliseconds of their starts, the client's own delay"),
    ("active_decode_throughput_per_user", "rates between two frames: frames read late and then close together"),
    ("effective_decode_throughput_per_user", "rates between two frames: frames read late and then close together"),
    ("active_decode", "how much of the time anything decodes: streams that start together end together"),
    ("effective_decode", "how much of the time anything decodes: streams that start together end together"),
    ("inter_token_latency", "a late frame of an answer of few tokens"),
    ("full_response_inter_token_latency", "a late frame of an answer of few tokens"),
    ("time_to_first", "the largest of a hundred: one request's delay"),
)


def reason(tag):
    return next((why for start, why in REASONS if tag.startswith(start)), "")


def median(runs, tag, stat):
    values = [r.summary[tag][stat] for r in runs if isinstance(r.summary.get(tag), dict) and r.summary[tag].get(stat) is not None]
    return statistics.median(values) if values else None


def tags(runs):
    return {k for r in runs for k, v in r.summary.items() if isinstance(v, dict) and "avg" in v and "unit" in v}


def off(a, b):
    """How far b is from a, as a share; None when one of them is unknown."""
    if a is None or b is None:
        return None
    if a == b:
        return 0.0
    return float("inf") if a == 0 else abs(b / a - 1)


def show(v):
    return "-" if v is None else f"{v:.6g}"


def percent(d):
    return "-" if d is None else "from 0" if d == float("inf") else "0" if d == 0 else f"{100 * d:.2f} %"


def signed(a, b):
    if a is None or b is None or a == 0:
        return "-"
    return "0" if a == b else f"{100 * (b / a - 1):+.2f} %"


def everything(runs, truth):
    cost(runs)
    requests(runs)
    main_metrics(runs, truth)
    all_metrics(runs)


def cost(runs):
    """What the runs cost the client, and how soon they began."""
    print("| run | tool | requests | CPU seconds | CPU ms a request | seconds to the first request | wall seconds |\n|---|---|---:|---:|---:|---:|---:|")
    for tool in runs:
        for i, r in enumerate(runs[tool]):
            n = len(r.records)
            print(f"| {i + 1} | {tool} | {n} | {r.cpu:.2f} ({r.user:.2f} user, {r.system:.2f} system) | {1000 * r.cpu / n:.1f} | {r.first:.2f} | {r.wall:.1f} |")
    per = {t: statistics.median(r.cpu / len(r.records) for r in runs[t]) for t in runs}
    first = {t: statistics.median(r.first for r in runs[t]) for t in runs}
    print(f"\nCPU a request: AIPerf {1000 * per['aiperf']:.1f} ms, Weir {1000 * per['weir']:.1f} ms, {per['aiperf'] / per['weir']:.1f} times less (medians). "
          f"First request: AIPerf after {first['aiperf']:.2f} s ({runs['aiperf'][0].first:.2f} s with nothing cached), Weir after {first['weir']:.2f} s.\n")


def requests(runs):
    """Are the requests the same, in the same order, stream by stream?"""
    print("| pair | streams | requests | streams in the same order | same output tokens | input tokens, AIPerf less Weir: total | a request |\n|---|---:|---:|---:|---:|---:|---|")
    for i, (a, w) in enumerate(zip(runs["aiperf"], runs["weir"])):
        sa, sw = (comparable(r.streams()) for r in (a, w))
        order = sum(steps(sa.get(k)) == steps(sw.get(k)) for k in sa.keys() | sw.keys())
        both = [(x, y) for k in sa.keys() & sw.keys() for x, y in zip(sa[k], sw[k]) if x[:2] == y[:2]]
        out = sum(x[3] == y[3] for x, y in both)
        diff = Counter(x[2] - y[2] for x, y in both)
        isl = sum(y[2] for _, y in both)
        total = sum(d * n for d, n in diff.items())
        spread = f"{min(diff)} to {max(diff)} tokens" if diff else "-"
        na, nw = len(a.records), len(w.records)
        print(f"| {i + 1} | {len(sa)} and {len(sw)} | {na} and {nw} | {order} of {len(sa.keys() | sw.keys())} | {out} of {len(both)} | {total:+d} of {isl} ({100 * total / max(isl, 1):+.3f} %) | {spread} |")
        for k in sorted(sa.keys() | sw.keys()):
            if steps(sa.get(k)) != steps(sw.get(k)):
                print(f"\n  pair {i + 1}, stream {k}: AIPerf {brief(sa.get(k))}, Weir {brief(sw.get(k))}\n")
    print()


def comparable(streams):
    """Streams under names that both tools use. Made-up conversations have names of each tool's own,
    with one number; their warm-up is left out, for which AIPerf sends the first prompts of the list
    and then again, Weir prompts of their own, so that nothing is warm."""
    out = {}
    for k, v in streams.items():
        if m := re.fullmatch(r"session[_-](?:\d+-)?(\d+)", k):  # session_000007, session-SEED-000007
            k, v = f"session {int(m[1])}", [s for s in v if s[0] != "warmup"]
        if v:
            out[k] = v
    return out


def steps(stream):
    return [s[:2] for s in stream] if stream else None


def brief(stream):
    return "nothing" if not stream else " ".join(("w" if s[0] == "warmup" else "") + str(s[1]) for s in stream)


def main_metrics(runs, truth):
    names = ("time_to_first_token", "inter_token_latency", "request_latency", "full_response_inter_token_latency",
             "output_token_throughput_per_user", "e2e_output_token_throughput", "input_sequence_length", "output_sequence_length",
             "request_throughput", "output_token_throughput", "input_token_throughput", "total_token_throughput", "benchmark_duration")
    print("| metric | unit | statistic | AIPerf | runs from, to | Weir | runs from, to | Weir to AIPerf | within 3 % | server's |\n|---|---|---|---:|---|---:|---|---:|---|---:|")
    for tag in names:
        for stat in STATS:
            a, w = (median(runs[t], tag, stat) for t in ("aiperf", "weir"))
            if a is None and w is None:
                continue
            d = off(a, w)
            unit = next(r.summary[tag]["unit"] for t in runs for r in runs[t] if tag in r.summary)
            print(f"| `{tag}` | {unit} | {stat} | {show(a)} | {spread(runs['aiperf'], tag, stat)} | {show(w)} | {spread(runs['weir'], tag, stat)} | {signed(a, w)} | "
                  f"{'-' if d is None else 'equal' if d == 0 else 'yes' if d <= NEAR else 'no'} | {show(truth.get(tag))} |")
    print()


def spread(runs, tag, stat):
    values = [r.summary[tag][stat] for r in runs if isinstance(r.summary.get(tag), dict) and r.summary[tag].get(stat) is not None]
    return f"{show(min(values))}, {show(max(values))}" if values else "-"


def all_metrics(runs):
    """Every metric that one of the tools wrote, by how far it is off."""
    ta, tw = tags(runs["aiperf"]), tags(runs["weir"])
    groups = {"equal": [], "within 3 %": [], "further": []}
    wrong_unit = []
    for tag in sorted(ta & tw):
        x, y = (next(r.summary[tag] for r in runs[t] if tag in r.summary) for t in ("aiperf", "weir"))
        if x["unit"] != y["unit"]:
            wrong_unit.append(f"`{tag}`: {x['unit']} and {y['unit']}")
        stats = {s: (median(runs["aiperf"], tag, s), median(runs["weir"], tag, s)) for s in STATS}
        stats = {s: v for s, v in stats.items() if v != (None, None)}
        offs = {s: off(*v) for s, v in stats.items()}
        missing = [s for s, d in offs.items() if d is None]
        worst = max((s for s in offs if offs[s] is not None), key=lambda s: offs[s], default=None)
        d = float("inf") if missing else offs[worst]
        group = "equal" if d == 0 or worst and equal(*stats[worst]) else "within 3 %" if d <= NEAR and tag not in EXACT else "further"
        groups[group].append((tag, worst, stats, offs, missing))
    n = len(ta & tw)
    print(f"{len(ta)} metrics of AIPerf, {len(tw)} of Weir, {n} of both: {len(groups['equal'])} equal, {len(groups['within 3 %'])} within 3 % in mean, "
          f"p50, p90 and p99, {len(groups['further'])} not. Units differ: {', '.join(wrong_unit) or 'none'}.\n")
    print("Equal: " + ", ".join(f"`{g[0]}`" for g in groups["equal"]) + ".\n")
    print("| within 3 % | mean | p50 | p90 | p99 |\n|---|---:|---:|---:|---:|")
    for tag, _, stats, _, _ in groups["within 3 %"]:
        print(f"| `{tag}` | " + " | ".join(signed(*stats[s]) if s in stats else "" for s in STATS) + " |")
    print("\n| not within 3 % in all | statistic | AIPerf | runs from, to | Weir | runs from, to | Weir to AIPerf | why |\n|---|---|---:|---|---:|---|---:|---|")
    for tag, _, stats, offs, missing in groups["further"]:
        for s in stats:
            if s in missing or offs[s] > NEAR or tag in EXACT and offs[s] > 0:
                ours, theirs = (spread(runs[t], tag, s) for t in ("weir", "aiperf"))
                print(f"| `{tag}` | {s} | {show(stats[s][0])} | {theirs} | {show(stats[s][1])} | {ours} | {signed(*stats[s])} | {reason(tag)} |")
    print(f"\nOnly AIPerf: {', '.join(f'`{t}`' for t in sorted(ta - tw)) or 'none'}.\n\nOnly Weir: {', '.join(f'`{t}`' for t in sorted(tw - ta)) or 'none'}.\n")
    columns(runs)


def equal(a, b):
    """Equal but for the last digits of a sum in another order."""
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def columns(runs):
    """Fields of a line of profile_export.jsonl that one of the tools writes."""
    seen = {t: (set(), set()) for t in runs}
    for t in runs:
        for r in runs[t]:
            for record in r.records:
                seen[t][0].update(record["metadata"])
                seen[t][1].update(record["metrics"])
    for i, what in enumerate(("metadata", "metrics")):
        a, w = seen["aiperf"][i], seen["weir"][i]
        print(f"A line of profile_export.jsonl, {what}: {len(a & w)} fields of both; only AIPerf: {', '.join(sorted(a - w)) or 'none'}; only Weir: {', '.join(sorted(w - a)) or 'none'}.\n")


def cache(runs):
    """What the server found in its cache, over the requests that both tools sent in the window."""
    a, w = runs["aiperf"][0], runs["weir"][0]
    requests(runs)
    ra, rw = (sent(r) for r in (a, w))
    both = ra.keys() & rw.keys()
    print(f"{len(both)} requests of the window were sent by both, {len(ra) - len(both)} by AIPerf alone, {len(rw) - len(both)} by Weir alone.\n")
    print("| of the requests of both | AIPerf | Weir | Weir to AIPerf |\n|---|---:|---:|---:|")
    total = lambda rows, tag: sum(value(rows[k], tag) or 0 for k in both)
    values = lambda rows, tag: [value(rows[k], tag) for k in both if value(rows[k], tag) is not None]
    for what, f in (
        ("prompt tokens", lambda r: total(r, "usage_prompt_tokens")),
        ("cached tokens", lambda r: total(r, "usage_prompt_cache_read_tokens")),
        ("cached share, %", lambda r: 100 * total(r, "usage_prompt_cache_read_tokens") / total(r, "usage_prompt_tokens")),
        ("output tokens", lambda r: total(r, "usage_completion_tokens")),
        ("mean TTFT, ms", lambda r: statistics.fmean(values(r, "time_to_first_token"))),
        ("median TTFT, ms", lambda r: statistics.median(values(r, "time_to_first_token"))),
        ("mean ITL, ms", lambda r: statistics.fmean(values(r, "inter_token_latency"))),
        ("median ITL, ms", lambda r: statistics.median(values(r, "inter_token_latency"))),
    ):
        x, y = f(ra), f(rw)
        print(f"| {what} | {show(x)} | {show(y)} | {signed(x, y)} |")
    off_by = Counter(abs(value(ra[k], "usage_prompt_cache_read_tokens") - value(rw[k], "usage_prompt_cache_read_tokens")) for k in both)
    print(f"\nCached tokens of a request differ by: {', '.join(f'{d} ({n} requests)' for d, n in sorted(off_by.items()))}.\n")
    names = a.server.keys() | w.server.keys()
    same = sum(n in a.server and n in w.server and a.server[n]["type"] == w.server[n]["type"] for n in names)
    print(f"server_metrics_export.json: {len(a.server)} series of AIPerf, {len(w.server)} of Weir, {same} of one name and type.\n")


def sent(run):
    """The requests of the window by stream, turn and how often that was sent before."""
    out, seen = {}, Counter()
    for r in sorted(run.records, key=lambda r: r["metadata"]["request_start_ns"]):
        m = r["metadata"]
        if m["benchmark_phase"] == "profiling" and not r.get("error"):
            key = m["conversation_id"], m["turn_index"]
            out[(*key, seen[key])] = r
            seen[key] += 1
    return out
