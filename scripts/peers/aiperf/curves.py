"""Usage: PYTHON curves.py RUN...

Gives the records of each run, AIPerf's or Weir's, to AIPerf's own functions for curves over time, and
compares what they compute with the run's summary: where that is the same, only the instants that the
tool saw can make two runs differ, and not what the metrics mean. PYTHON has agentx-harness or aiperf.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
from aiperf.analysis import sweepline

STATS = ("avg", "p50", "p90", "p99")


def curves(records):
    value = lambda r, tag: r["metrics"].get(tag, {}).get("value")
    column = lambda f: np.array([np.nan if (v := f(r)) is None else v for r in records], dtype=float)
    start, end = (column(lambda r: r["metadata"][name]) for name in ("request_start_ns", "request_end_ns"))
    first = start + 1e6 * column(lambda r: value(r, "time_to_first_token"))
    isl, osl = (column(lambda r: value(r, tag)) for tag in ("input_sequence_length", "output_sequence_length"))
    gaps = [1e6 * np.array(value(r, "inter_chunk_latency") or []) for r in records]
    of = np.repeat(np.arange(len(records), dtype=np.int32), [len(g) for g in gaps])
    offsets = np.cumsum([0, *(len(g) for g in gaps[:-1])])
    gaps = np.concatenate(gaps)
    running, decoding, prefilling = (sweepline.concurrency_sweep_line(*pair) for pair in ((start, end), (first, end), (start, first)))
    decode = sweepline.throughput_sweep_line_icl(first, osl, gaps, of, offsets)
    prefill = sweepline.prefill_throughput_sweep_line(start, first, isl)
    total = sweepline.total_throughput_sweep_line(start, first, end, isl, output_tokens=osl)
    per_user = sweepline.divide_step_functions(*decode, *decoding)
    prefill_per_user = sweepline.divide_step_functions(*prefill, *prefilling)
    held = sweepline.tokens_in_flight_sweep_line_icl(start, first, end, isl, osl, gaps, of, offsets)
    parts = (running, decode, prefill, decoding, prefilling, total, per_user, prefill_per_user, held)
    return sweepline.SweepLineCurves(*(x for pair in parts for x in pair))


def compare(folder):
    artifacts = Path(folder) / "artifacts"
    summary = json.loads((artifacts / "profile_export_aiperf.json").read_text())
    records = [json.loads(line) for line in open(artifacts / "profile_export.jsonl")]
    records = [r for r in records if r["metadata"]["benchmark_phase"] == "profiling"]
    window = (1e9 * datetime.fromisoformat(summary[k]).timestamp() for k in ("start_time", "end_time"))
    worst, n = 0.0, 0
    for tag, result in curves(records).compute_metrics(*window).items():
        for stat in STATS:
            a, b = getattr(result, stat), summary[tag][stat]
            worst = max(worst, abs(b / a - 1) if a else abs(b))
            n += 1
    return worst, n


worst, n = map(max, zip(*(compare(folder) for folder in sys.argv[1:])))
print(f"AIPerf's own functions, given the records of each run of either tool, compute the {n} statistics of active_*, effective_* and "
      f"tokens_in_flight in that run's summary to within {100 * worst:.2g} %: what differs is what each tool saw, not what is computed of it.\n")
