"""Compares two rows key by key, or the artifacts of AIPerf and Weir metric by metric."""

import json
import sys
from pathlib import Path


def flat(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else key)
        if not value:
            yield path, {}
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from flat(item, f"{path}[{i}]")
        if not value:
            yield path, []
    else:
        yield path, value


def rows(theirs, ours):
    a, b = (dict(flat(json.loads(Path(p).read_text()))) for p in (theirs, ours))
    b = {k: v for k, v in b.items() if not k.startswith("weir_")}  # Weir's own, beside InferenceX's
    bad = [k for k in sorted(a.keys() | b.keys()) if k not in a or k not in b or a[k] != b[k]]
    for k in bad:
        print(f"differs: {k}: InferenceX {a.get(k, 'absent')}, Weir {b.get(k, 'absent')}")
    print(f"{len(a)} keys of InferenceX, {len(b)} of Weir, {len(bad)} differ")
    return 1 if bad else 0


def tools(theirs, ours):
    a, b = (json.loads((Path(p) / "profile_export_aiperf.json").read_text()) for p in (theirs, ours))
    print("| metric | unit | statistic | AIPerf | Weir | Weir / AIPerf |\n|---|---|---|---:|---:|---:|")
    names = sorted(k for k in a.keys() & b.keys() if isinstance(a[k], dict) and isinstance(b[k], dict) and "avg" in a[k] and "avg" in b[k])
    for k in names:
        for stat in ("avg", "p50", "p90"):
            x, y = a[k].get(stat), b[k].get(stat)
            if x is None or y is None or k.endswith("_timestamp"):
                continue
            ratio = f"{y / x:.3f}" if x else "-"
            unit = a[k].get("unit") if a[k].get("unit") == b[k].get("unit") else f"{a[k].get('unit')} / {b[k].get('unit')}"
            print(f"| `{k}` | {unit} | {stat} | {x:.6g} | {y:.6g} | {ratio} |")
    only = lambda p, q: ", ".join(f"`{k}`" for k in sorted(p.keys() - q.keys()) if isinstance(p[k], dict) and "avg" in p[k]) or "none"
    print(f"\nOnly AIPerf: {only(a, b)}.\n\nOnly Weir: {only(b, a)}.\n")
    sa, sb = (json.loads((Path(p) / "server_metrics_export.json").read_text())["metrics"] for p in (theirs, ours))
    print("| series of the server | type AIPerf | type Weir | statistic | AIPerf | Weir |\n|---|---|---|---|---:|---:|")
    for name in sorted(sa.keys() | sb.keys()):
        x, y = sa.get(name), sb.get(name)
        stat = lambda f, s: sum(i["stats"].get(s) or 0 for i in f["series"]) if f else None
        s = {"counter": "total", "gauge": "avg", "histogram": "count"}.get((x or y)["type"], "avg")
        show = lambda v: "absent" if v is None else f"{v:.6g}"
        print(f"| `{name}` | {x and x['type']} | {y and y['type']} | {s} | {show(stat(x, s))} | {show(stat(y, s))} |")
    return 0


if __name__ == "__main__":
    sys.exit({"rows": rows, "tools": tools}[sys.argv[1]](*sys.argv[2:]))
