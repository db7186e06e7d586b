"""Runs each client against a server of its own and prints what each says.

Usage: table.py WEIR PYTHON SGLANG AIPERF MODEL STREAMS...
"""

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

weir, python, sglang, aiperf, model, *streams = sys.argv[1:]
here = Path(__file__).resolve().parent
offline = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
IN, OUT = 1000, 100


def server(engine):
    p = subprocess.Popen(
        [weir, "sim", "serve", "--engine", engine, "--addr", "127.0.0.1:0", "--model", "glm-5.2", "--ttft", "50ms", "--itl", "10ms"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    for line in p.stdout:
        if found := re.search(r" at (http://\S+)", line):
            return p, found[1]
    raise SystemExit("the simulated server did not start")


def by_weir(url, c, n, out):
    argv = [weir, "load", "--url", url, "--model", "glm-5.2", "--mode", "closed", "-c", c, "--conversations", n, "--isl", IN, "--osl", OUT,
            "--endpoint", "completions", "--no-metrics", "--chunk-times", "--calibrate", "never", "--client-limit", "none", "-o", out / "bundle"]

    def read():
        r = json.loads((out / "bundle" / "result.json").read_text())
        t, g = r["latency"]["ttft_s"], r["latency"]["chunk_gap_s"]
        return {"ok": r["requests"]["ok"], "tokens in": r["tokens"]["input"], "tokens out": r["tokens"]["output"], "rate": r["throughput"]["edge"]["requests"],
                "ttft mean": ms(t["mean"]), "ttft p50": ms(t["p50"]), "ttft p99": ms(t["p99"]),
                "tpot mean": ms(r["latency"]["full_response_itl_s"]["mean"]), "gap p50": ms(g["p50"]), "gap p99": ms(g["p99"])}

    return argv, os.environ, read


def ms(seconds):
    return None if seconds is None else seconds * 1e3


def told(path):
    r = json.loads(path.read_text().strip().splitlines()[-1])
    return {"ok": r["completed"], "tokens in": r["total_input_tokens"], "tokens out": r["total_output_tokens"], "rate": r["request_throughput"],
            "ttft mean": r["mean_ttft_ms"], "ttft p50": r["median_ttft_ms"], "ttft p99": r["p99_ttft_ms"],
            "tpot mean": r["mean_tpot_ms"], "gap p50": r["median_itl_ms"], "gap p99": r["p99_itl_ms"]}


def by_vllm(url, c, n, out):
    argv = [python, here / "vllm_client.py", "--backend", "vllm", "--base-url", url, "--model", "glm-5.2", "--tokenizer", model,
            "--endpoint", "/v1/completions", "--dataset-name", "random", "--random-input-len", IN, "--random-output-len", OUT, "--num-prompts", n,
            "--max-concurrency", c, "--ignore-eos", "--disable-tqdm", "--save-result", "--result-filename", out / "r.json"]
    return argv, offline, lambda: told(out / "r.json")


def by_sglang(module, more=()):
    def make(url, c, n, out):
        argv = [python, "-m", module, "--backend", "sglang-oai", "--base-url", url, "--model", "glm-5.2", "--tokenizer", model, *more,
                "--dataset-name", "random-ids", "--random-input-len", IN, "--random-output-len", OUT, "--random-range-ratio", 1, "--num-prompts", n,
                "--max-concurrency", c, "--disable-tqdm", "--output-file", out / "r.json"]
        return argv, dict(offline, PYTHONPATH=f"{sglang}:{sglang}/beside"), lambda: told(out / "r.json")

    return make


def by_aiperf(url, c, n, out):
    argv = [aiperf, "-m", "aiperf", "profile", "--url", url, "--model", "glm-5.2", "--tokenizer", model, "--endpoint", "/v1/completions",
            "--endpoint-type", "completions", "--streaming", "--concurrency", c, "--request-count", n, "--num-dataset-entries", n, "--isl", IN, "--osl", OUT,
            "--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics", "--ui", "none",
            "--output-artifact-dir", out / "artifacts"]

    def read():
        r = json.loads((out / "artifacts" / "profile_export_aiperf.json").read_text())
        t, g = r["time_to_first_token"], r["inter_chunk_latency"]
        return {"ok": int(r["request_count"]["avg"]), "tokens in": int(r["total_isl"]["avg"]), "tokens out": int(r["total_output_tokens"]["avg"]), "rate": r["request_throughput"]["avg"],
                "ttft mean": t["avg"], "ttft p50": t["p50"], "ttft p99": t["p99"], "tpot mean": r["inter_token_latency"]["avg"],
                "gap p50": g["p50"], "gap p99": g["p99"]}

    return argv, os.environ, read


CLIENTS = [
    ("aiperf", "vllm", by_aiperf),
    ("vllm bench serve", "vllm", by_vllm),
    ("weir load", "vllm", by_weir),
    ("sglang.bench_serving", "sglang", by_sglang("sglang.bench_serving")),
    ("sglang, Rust", "sglang", by_sglang("sglang.benchmark.rust_client")),
    ("weir load", "sglang", by_weir),
]


def execute(make, engine, c, n):
    p, url = server(engine)
    try:
        with tempfile.TemporaryDirectory() as folder:
            argv, env, read = make(url, str(c), str(n), Path(folder))
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            done = subprocess.run([str(a) for a in argv], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
            for child in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
                if child != p.pid:
                    os.waitpid(child, 0)
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
            if done.returncode != 0:
                raise SystemExit(f"{argv[:3]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
            r = read()
            r["wall"], r["cpu"] = wall, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3 / n
            return r
    finally:
        p.terminate()
        p.wait()


def text(v, digits):
    return "-" if v is None else f"{v:,.{digits}f}"


print(f"{'streams':>7}  {'client':<21} {'engine':<7} {'ok':>5} {'in':>10} {'out':>8} {'req/s':>7} {'TTFT mean':>9} {'p50':>7} {'p99':>8} {'TPOT':>6} {'gap p50':>7} {'p99':>7} {'wall s':>7} {'CPU ms/req':>10}")
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what a client leaves behind is ours to wait for
bad = 0
for i, c in enumerate(map(int, streams)):
    n = max(32, 4 * c)
    for name, engine, make in CLIENTS if i % 2 == 0 else reversed(CLIENTS):
        r = execute(make, engine, c, n)
        print(f"{c:7}  {name:<21} {engine:<7} {r['ok']:5} {r['tokens in']:10,} {r['tokens out']:8,} {r['rate']:7.1f} {text(r['ttft mean'], 2):>9} {text(r['ttft p50'], 2):>7} "
              f"{text(r['ttft p99'], 2):>8} {text(r['tpot mean'], 2):>6} {text(r['gap p50'], 2):>7} {text(r['gap p99'], 2):>7} {r['wall']:7.1f} {r['cpu']:10.1f}", flush=True)
        if r["ok"] != n or r["tokens out"] != n * OUT:
            print(f"         not all: {n} requests of {OUT} tokens were asked for")
            bad = 1
print("\nTimes in ms as each tool prints them; a perfect client and server give TTFT 50, TPOT 10, gap 10. TPOT: after the first\n"
      "token, a request's mean. Gap: between two content frames, which vLLM and SGLang call ITL. CPU: all of a client's process,\n"
      "its start and its making of prompts as well. The server is simulated.")
sys.exit(bad)
