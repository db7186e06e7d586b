"""Runs both tools against `weir sim serve`, each against a new server, and measures what they cost."""

import ctypes
import json
import os
import re
import resource
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: grandchildren whose parent ended are ours to wait for


class Server:
    """A simulated server on a port of its own, with an empty cache."""

    def __init__(self, weir, flags, log):
        self.log = open(log, "w")
        engine = [] if "--ttft" in flags else ["--gpu", "b200", "--tp", "8"]  # a server of known speed has none
        self.process = subprocess.Popen(
            [weir, "sim", "serve", "--addr", "127.0.0.1:0", "--model", "glm-5.2", *engine, *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True,
        )
        for line in self.process.stdout:
            if found := re.search(r" at (http://\S+)", line):
                self.url = found[1]
                return
        raise SystemExit(f"the simulated server did not start:\n{Path(log).read_text()}")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


@dataclass
class Run:
    tool: str
    folder: Path
    begun_ns: int  # wall clock before the process was started
    wall: float  # seconds from start to end of the process
    user: float  # CPU seconds, with all descendants
    system: float
    summary: dict = field(default_factory=dict)
    records: list = field(default_factory=list)
    server: dict = field(default_factory=dict)

    @property
    def cpu(self):
        return self.user + self.system

    @property
    def first(self):
        """Seconds from the start of the process to its first request, of the warm-up or not."""
        return (min(r["metadata"]["request_start_ns"] for r in self.records) - self.begun_ns) / 1e9

    def streams(self):
        """(phase, turn) of every stream's requests in the order in which they were sent."""
        out = defaultdict(list)
        for r in sorted(self.records, key=lambda r: r["metadata"]["request_start_ns"]):
            m = r["metadata"]
            out[m["conversation_id"]].append((m["benchmark_phase"], m["turn_index"], value(r, "input_sequence_length"), value(r, "output_sequence_length")))
        return out


def value(record, tag):
    return record["metrics"].get(tag, {}).get("value")


def execute(tool, argv, env, folder, limit=1800):
    """Runs a command to its end and reads what it wrote."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    folder.mkdir(parents=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun, t0 = time.time_ns(), time.monotonic()
    with open(folder / "log.txt", "w") as log:
        p = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, cwd=folder, start_new_session=True)
        try:
            code = p.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            raise SystemExit(f"{tool} did not end in {limit} s; see {folder}/log.txt")
    wall = time.monotonic() - t0
    reap(p.pid)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        raise SystemExit(f"{tool} ended with {code}:\n" + (folder / "log.txt").read_text()[-3000:])
    run = Run(tool, folder, begun, wall, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
    artifacts = folder / "artifacts"
    run.summary = json.loads((artifacts / "profile_export_aiperf.json").read_text())
    run.records = [json.loads(line) for line in open(artifacts / "profile_export.jsonl")]
    metrics = artifacts / "server_metrics_export.json"
    run.server = json.loads(metrics.read_text())["metrics"] if metrics.exists() else {}
    return run


def reap(group):
    """Waits for what the command left behind in its session, so that its CPU time counts."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            pid, _ = os.waitpid(-group, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.05)
