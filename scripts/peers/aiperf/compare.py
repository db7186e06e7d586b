"""Runs AIPerf and Weir with the same flags and prints how far they agree; see run."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import tables
from runs import Server, execute

HERE = Path(__file__).parent
SPEED = ["--ttft", "300ms", "--itl", "10ms"]
ENGINE = ["--device-tokens", "2000000", "--host-tokens", "4000000"]  # nothing is evicted
PAIRS = int(os.environ.get("PAIRS", 3))
PARTS = os.environ.get("PARTS", "agentx cache fixed busy").split()
SECONDS = os.environ.get("SECONDS_PER_RUN", "28")  # no request begins within 0.4 s of that end

TRACES = "--traces 12 --seed 3 --turns 20 --first-input 8000 --system 4000 --growth 400 --out 40 --rewrites=-1 --resumes=-1"

# benchmark_lib.sh of InferenceX, build_replay_cmd (2026-08), with a file of traces in place of a data
# set from the hub, a short window, and short pauses.
AGENTX = f"""--scenario inferencex-agentx-mvp --endpoint /v1/chat/completions --endpoint-type chat --streaming --model glm-5.2
    --concurrency 6 --benchmark-duration {SECONDS} --stats-interval 30 --random-seed 42 --failed-request-threshold 0.10
    --trajectory-start-min-ratio 0.25 --trajectory-start-max-ratio 0.75 --warmup-requests-per-lane 1
    --trace-idle-gap-cap-seconds 1 --warmup-grace-period 1800 --use-server-token-count --no-gpu-telemetry
    --tokenizer-trust-remote-code --num-dataset-entries 393 --slice-duration 1.0 --unsafe-override
    --custom-dataset-type weka_trace"""

FIXED = """--endpoint /v1/chat/completions --endpoint-type chat --streaming --model glm-5.2 --warmup-request-count 8 --isl 1024
    --osl 128 --extra-inputs ignore_eos:true --random-seed 42 --use-server-token-count --no-gpu-telemetry --slice-duration 1.0"""

ENVIRONMENT = {  # as InferenceX sets it
    "AIPERF_DATASET_CONFIGURATION_TIMEOUT": "1800",
    "AIPERF_SERVICE_PROFILE_CONFIGURE_TIMEOUT": "1800",
    "AIPERF_UI_REALTIME_METRICS_ENABLED": "true",
    "AIPERF_DATASET_WEKA_LIVE_ASSISTANT_RESPONSES": "0",
}


def version(python, package):
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return f"{package} {subprocess.check_output([python, '-c', code], text=True).strip()}"


class Comparison:
    def __init__(self, weir, work):
        self.weir, self.work, self.n = weir, work, 0

    def tokenizer(self, python, name):
        folder = self.work / f"tokenizer-{name}"
        if not folder.exists():
            subprocess.run([python, HERE / "tokenizer.py", folder], check=True, stderr=subprocess.DEVNULL)
        return folder

    def one(self, tool, python, server, flags, part):
        self.n += 1
        folder = self.work / f"{self.n:02d}-{part}-{tool}"
        command = [self.weir] if tool == "weir" else [python, "-m"]
        s = Server(self.weir, server, self.work / f"{self.n:02d}-server.log")
        try:
            argv = [*command, "aiperf", "profile", "--url", s.url, *flags.split(), "--output-artifact-dir", str(folder / "artifacts"), "--ui", "none"]
            env = {**os.environ, **ENVIRONMENT, "AIPERF_DATASET_MMAP_CACHE_DIR": str(self.work / f"cache-{part}")}
            run = execute(tool, argv, env, folder)
        finally:
            s.stop()
        load = os.getloadavg()[0]
        print(f"{time.strftime('%H:%M:%S', time.gmtime())} {part} {tool}: {len(run.records)} requests, {run.wall:.1f} s, "
              f"{run.cpu:.2f} CPU s, first request after {run.first:.2f} s, load {load:.1f}", file=sys.stderr, flush=True)
        return run

    def pairs(self, part, python, server, flags, n):
        runs = {"aiperf": [], "weir": []}
        for i in range(n):
            order = ["aiperf", "weir"] if i % 2 == 0 else ["weir", "aiperf"]
            for tool in order:
                runs[tool].append(self.one(tool, python, server, flags, part))
        return runs


def definitions(python, runs):
    """Do AIPerf's own functions make the same of the records?"""
    sys.stdout.flush()
    subprocess.run([python, HERE / "curves.py", *(r.folder for t in runs for r in runs[t])], check=True)


def main():
    weir, agentx, aiperf, work = sys.argv[1:5]
    work = Path(work).resolve()
    c = Comparison(weir, work)
    begun = time.gmtime()
    load = os.getloadavg()
    if not (work / "traces").exists():
        subprocess.run([weir, "corpus", "generate", *TRACES.split(), "-o", str(work / "traces")], check=True, stdout=subprocess.DEVNULL)
    print(f"{time.strftime('%Y-%m-%d %H:%M', begun)} UTC, {os.cpu_count()} cores, load {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}, "
          f"{subprocess.check_output([weir, 'version'], text=True).split(chr(10))[0]}, {version(agentx, 'agentx-harness')}, {version(aiperf, 'aiperf')}, "
          f"Python {platform.python_version()}.\n")
    harness = version(agentx, "agentx-harness")
    if "agentx" in PARTS:
        flags = f"{AGENTX} --input-file {work / 'traces'} --tokenizer {c.tokenizer(agentx, 'agentx')}"
        runs = c.pairs("agentx", agentx, SPEED, flags, PAIRS)
        print(f"## The AgentX scenario, {harness}, server of 300 ms and 10 ms\n")
        tables.everything(runs, {"time_to_first_token": 300.0, "inter_token_latency": 10.0})
        definitions(agentx, runs)
    if "cache" in PARTS:
        flags = f"{AGENTX} --input-file {work / 'traces'} --tokenizer {c.tokenizer(agentx, 'agentx')}"
        runs = c.pairs("cache", agentx, ENGINE, flags, 1)
        print(f"## The same against a simulated engine with a cache, {harness}\n")
        tables.cache(runs)
    if "fixed" in PARTS:
        flags = f"{FIXED} --concurrency 8 --request-count 96 --tokenizer {c.tokenizer(aiperf, 'aiperf')}"
        runs = c.pairs("fixed", aiperf, SPEED, flags, PAIRS)
        print(f"## Prompts of one length, {version(aiperf, 'aiperf')}, server of 300 ms and 10 ms\n")
        tables.everything(runs, {"time_to_first_token": 300.0, "inter_token_latency": 10.0})
        definitions(aiperf, runs)
    if "busy" in PARTS:
        flags = f"{FIXED} --concurrency 64 --request-count 640 --num-dataset-entries 640 --tokenizer {c.tokenizer(aiperf, 'aiperf')}"
        runs = c.pairs("busy", aiperf, SPEED, flags, 1)
        print(f"## What 64 streams at once cost, {version(aiperf, 'aiperf')}, server of 300 ms and 10 ms, two cores for client and server\n")
        tables.cost(runs)
        tables.requests(runs)
        tables.main_metrics(runs, {"time_to_first_token": 300.0, "inter_token_latency": 10.0})
    if "startup" in PARTS:
        traces = Path(os.environ["TRACES"]).resolve()
        flags = AGENTX.replace(f"--benchmark-duration {SECONDS}", "--benchmark-duration 2")
        runs = c.pairs("startup", agentx, SPEED, f"{flags} --input-file {traces} --tokenizer {c.tokenizer(agentx, 'agentx')}", 1)
        print(f"## Start-up with {len(list(traces.iterdir()))} recorded traces, {harness}\n")
        tables.cost(runs)
    print(f"Took {(time.time() - time.mktime(begun) + time.timezone) / 60:.1f} minutes; load at the end {os.getloadavg()[0]:.2f}.")


main()
