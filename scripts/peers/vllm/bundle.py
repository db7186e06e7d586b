"""Reads bundles of Weir and pages of vLLM's metrics, and checks that all of vLLM that Weir's adapter
knows is there."""

import json
import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "../../../internal/engine"

# Families of the adapter that this server need not have, by what they start with, and why.
ABSENT = {
    "vllm:gpu_prefix_cache_": "older name of prefix_cache",
    "vllm:gpu_cache_usage_perc": "older name of kv_cache_usage_perc",
    "vllm:time_per_output_token_seconds": "older name of inter_token_latency_seconds",
    "vllm:cpu_kv_cache_usage_perc": "only with a host tier",
    "vllm:kv_offload_": "only with a host tier",
    "vllm:spec_decode_": "only with speculative decoding",
    "vllm:nixl_": "only between prefill and decode workers",
}


def lines(path):
    text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def failed(records):
    """How many failed, and how many Weir itself cut at the end of the load, which the server began and counted."""
    classes = [r["failure"]["class"] for r in records if r.get("failure")]
    cut = classes.count("cancelled")
    return len(classes) - cut, cut


def samples(weir, bundle):
    """Of every sample of the server in the bundle, in order: value by series."""
    text = subprocess.run([weir, "scrape", str(bundle)], capture_output=True, check=True, text=True).stdout
    out = [s["values"] for s in map(json.loads, text.splitlines())]
    return [v for v in out if any(series.startswith("vllm:") for series in v)]


def page(path):
    """Value by series of a text of /metrics, by nothing of Weir."""
    rows = (line.rsplit(" ", 1) for line in Path(path).read_text().splitlines() if line.startswith("vllm:"))
    return {series: float(value) for series, value in rows}


def sums(values):
    out = {}
    for series, value in values.items():
        name = series.split("{")[0]
        out[name] = out.get(name, 0.0) + float(value)
    return out


def plain(series):
    """A series with its labels in order, as name and pairs."""
    name, _, labels = series.partition("{")
    return name, tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))


def family(series):
    return re.sub(r"_(total|bucket|count|sum)$", "", series.split("{")[0])


def adapter():
    """The families of vLLM that stand in the adapter's own source."""
    text = "".join(p.read_text() for p in sorted(SOURCE.glob("*.go")) if not p.name.endswith("_test.go"))
    return sorted(set(re.findall(r'"(vllm:\w+)"', text)))


def families(seen):
    """What the adapter knows: found in the series seen, absent for a known reason, missing."""
    have = {family(s) for s in seen}
    found, absent, missing = [], {}, []
    for f in adapter():
        if f in have:
            found.append(f)
            continue
        why = next((why for start, why in ABSENT.items() if f.startswith(start)), None)
        if why:
            absent.setdefault(why, []).append(f)
        else:
            missing.append(f)
    return found, absent, missing


def print_families(seen):
    """Prints that as a list and gives what is missing."""
    found, absent, missing = families(seen)
    short = lambda names: ", ".join(f"`{n.removeprefix('vllm:')}`" for n in names) or "none"
    print(f"- found, {len(found)}: {short(found)}")
    for why, names in absent.items():
        print(f"- absent, {why}: {short(names)}")
    print(f"- missing: {short(missing)}\n")
    return [f"{f} is not on /metrics" for f in missing]


def verdict(bad):
    """Says what does not hold and gives the exit code."""
    for line in bad:
        print("DIFFERS:", line)
    print("All checks hold." if not bad else f"{len(bad)} checks do not hold.")
    return 1 if bad else 0
