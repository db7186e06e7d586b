"""Compares what `weir aiperf profile` sends with what AIPerf does by the same flags, request by request:
input and output tokens in the order of start, by phase, and when requests went out.

Both run against new simulated engines, which answer as many tokens as they are asked for. Weir's warm-up
has prompts of its own, so of that phase only the number of requests is compared.

Usage: flags.py WEIR AIPERF_PYTHON [CASE...], where AIPERF_PYTHON has aiperf. CASES below names them.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BASE = ["--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--random-seed", "42", "--extra-inputs", "ignore_eos:true"]
FILES = {
    "mooncake": [
        {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 150, "input_length": 900, "output_length": 6, "hash_ids": [1, 3]},
        {"timestamp": 300, "input_length": 1300, "output_length": 7, "hash_ids": [1, 6, 7]},
        {"timestamp": 900, "input_length": 600, "output_length": 8, "hash_ids": [9, 10]},
    ],
    "sessions": [
        {"session_id": "a", "input_length": 700, "output_length": 5, "hash_ids": [1, 2]},
        {"session_id": "b", "input_length": 900, "output_length": 6, "hash_ids": [1, 3]},
        {"session_id": "a", "delay": 100, "input_length": 600, "output_length": 7, "hash_ids": [4, 5]},
    ],
}
CASES = {
    "deviations": "--isl 600 --isl-stddev 60 --osl 12 --osl-stddev 4 --request-count 40",
    "turns": "--isl 200 --osl 8 --session-turns-mean 3 --session-turns-stddev 1 --session-turn-delay-mean 50 --session-turn-delay-stddev 20 --num-sessions 8",
    "pairs": "--sequence-distribution 256|10,12|2:40;512,6:60 --request-count 40",
    "range-vllm": "--isl 400 --osl 20 --random-range-ratio 0.3 --request-count 40",
    "range-sglang": "--isl 400 --osl 20 --random-range-ratio 0.5 --random-corpus-style sglang --request-count 40",
    "poisson": "--isl 100 --osl 4 --request-rate 20 --request-count 60",
    "gamma": "--isl 100 --osl 4 --request-rate 20 --arrival-pattern gamma --arrival-smoothness 3 --request-count 60",
    "bursty": "--isl 100 --osl 4 --request-rate 20 --arrival-pattern gamma --arrival-smoothness 0.5 --request-count 60",
    "rate-ramp": "--isl 100 --osl 4 --request-rate 30 --arrival-pattern constant --request-rate-ramp-duration 3 --request-count 80",
    "poisson-ramp": "--isl 100 --osl 4 --request-rate 30 --request-rate-ramp-duration 3 --request-count 80",
    "rate-series": "--isl 100 --osl 4 --arrival-pattern constant --request-rate-series @series.json --request-count 60",
    "concurrency-ramp": "--isl 100 --osl 40 --concurrency 6 --concurrency-ramp-duration 3 --benchmark-duration 5",
    "prefill-ramp": "--isl 4000 --osl 40 --concurrency 6 --prefill-concurrency 3 --prefill-concurrency-ramp-duration 2 --benchmark-duration 4",
    "warmup": "--isl 100 --osl 4 --concurrency 2 --request-count 12 --warmup-request-count 7 --warmup-concurrency 3",
    "warmup-sessions": "--isl 100 --osl 4 --session-turns-mean 2 --concurrency 2 --num-sessions 5 --num-warmup-sessions 3",
    "warmup-rate": "--isl 100 --osl 4 --concurrency 2 --request-count 12 --warmup-request-rate 10 --warmup-arrival-pattern constant --warmup-duration 2",
    "prefixes": "--isl 200 --osl 4 --prefix-prompt-length 128 --prefix-prompt-pool-size 3 --num-sessions 12",
    "context": "--isl 200 --osl 4 --shared-system-prompt-length 128 --user-context-prompt-length 192 --session-turns-mean 2 --num-sessions 6",
    "shuffle": "--isl 200 --isl-stddev 40 --osl 4 --num-dataset-entries 15 --dataset-sampling-strategy shuffle --request-count 40",
    "random": "--isl 200 --isl-stddev 40 --osl 4 --num-dataset-entries 15 --dataset-sampling-strategy random --request-count 40",
    "users": "--isl 100 --osl 4 --session-turns-mean 3 --user-centric-rate 10 --num-users 5 --request-count 30",
    "schedule": "--fixed-schedule --custom-dataset-type mooncake_trace --input-file @mooncake.jsonl",
    "promoted": "--custom-dataset-type mooncake_trace --input-file @mooncake.jsonl",
    "unscheduled": "--custom-dataset-type mooncake_trace --no-fixed-schedule --request-count 10 --input-file @mooncake.jsonl",
    "sessions": "--custom-dataset-type mooncake_trace --request-count 9 --concurrency 2 --input-file @sessions.jsonl",
}


def serve(weir, port, log):
    p = subprocess.Popen([weir, "sim", "serve", "--addr", f"127.0.0.1:{port}", "--speed", "4", "--device-tokens", "2000000"], stdout=log, stderr=log)
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
            return p
        except OSError:
            time.sleep(0.1)
    p.kill()
    raise SystemExit("the simulated engine did not start")


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def requests(folder):
    """(phase, start s, input, output) of every request, in order of start."""
    out = []
    for line in (folder / "profile_export.jsonl").read_text().splitlines():
        r = json.loads(line)
        m, x = r["metadata"], r["metrics"]
        value = lambda k: x[k]["value"] if k in x else None
        out.append((m["benchmark_phase"], m["request_start_ns"] / 1e9, value("input_sequence_length"), value("output_sequence_length")))
    return sorted(out, key=lambda r: r[1])


def main():
    weir, python, names = sys.argv[1], sys.argv[2], sys.argv[3:] or list(CASES)
    work = Path(os.environ.get("KEEP") or tempfile.mkdtemp())
    tokenizer = work / "tokenizer"
    if not tokenizer.exists():
        subprocess.run([python, Path(__file__).with_name("tokenizer.py"), tokenizer], check=True, stdout=subprocess.DEVNULL)
    for name, lines in FILES.items():
        (work / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (work / "series.json").write_text('[{"time_s": 0, "qps": 40}, {"time_s": 1.5, "qps": 10}, {"time_s": 4, "qps": 20}]')
    print("| flags | requests | order of lengths | total input, output | greatest difference of starts, ms |\n|---|---|---|---|---|")
    for name in names:
        got = []
        for tool in ("aiperf", "weir"):
            folder = work / name / tool
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / "log", "w") as log:
                port = free()
                server = serve(weir, port, log)
                try:
                    flags = CASES[name].replace("@", str(work) + "/").split()
                    command = [weir] if tool == "weir" else [str(Path(python).with_name("aiperf"))]
                    command += ["aiperf", "profile"] if tool == "weir" else ["profile"]
                    command += ["--url", f"http://127.0.0.1:{port}", "--model", "glm-5.2", "--tokenizer", str(tokenizer), "--output-artifact-dir", str(folder)]
                    command += BASE + flags + (["--client-limit", "none"] if tool == "weir" else ["--ui", "none"])
                    done = subprocess.run(command, stdout=log, stderr=log, timeout=300)
                    got.append(requests(folder) if (folder / "profile_export.jsonl").exists() else f"no records, exit {done.returncode}")
                finally:
                    server.terminate()
                    server.wait()
        a, b = got
        if isinstance(a, str) or isinstance(b, str):
            print(f"| {name} | {a if isinstance(a, str) else len(a)}, {b if isinstance(b, str) else len(b)} | | | |", flush=True)
            continue
        warm = [sum(r[0] == "warmup" for r in g) for g in got]
        a, b = ([r for r in g if r[0] != "warmup"] for g in got)
        same = sum(x[2:] == y[2:] for x, y in zip(a, b))
        late = [abs((x[1] - a[0][1]) - (y[1] - b[0][1])) for x, y in zip(a, b)]
        total = lambda g, k: sum(r[k] or 0 for r in g)
        print(f"| {name} | {len(a)}, {len(b)}" + (f"; warm-up {warm[0]}, {warm[1]}" if any(warm) else "") + f" | {same} of {min(len(a), len(b))} equal | "
              f"{total(a, 2):.0f}, {total(a, 3):.0f} and {total(b, 2):.0f}, {total(b, 3):.0f} | {max(late, default=0) * 1000:.1f} |", flush=True)


main()
