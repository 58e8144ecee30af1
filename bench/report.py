#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""report.py OUTPUT FOLDER: from what run.py wrote, a report in the folder:
result.json, report.md and the plots; the report is printed, too.

A ratio tells how many times better rxo is: of what should be large, rxo's share
of the other's; of what should be small, the other's share of rxo's.
"""

import collections
import json
import os
import statistics
import sys

import svg

FIELDS = ("path", "verb", "metric", "size", "qps", "device", "value", "unit", "lane", "round")
PEERS = ("rxe", "siw")
TITLES = {
    "bw": "Bandwidth", "rate": "Message rate", "lat": "Latency, polling", "evlat": "Latency, events",
    "cpu": "CPU time", "conn": "Connections set up", "mem": "Kernel memory of a queue pair",
    "scale": "Many queue pairs",
}
SMALL_IS_GOOD = ("us", "s/GB", "B")
# Of a distribution, the table shows these; of many queue pairs, all.
SHOWN = {
    "q0": "min", "q50": "typical", "q99": "99 %",
    "create": "to create", "connect": "to connect", "message": "a message", "destroy": "to destroy",
}

Key = collections.namedtuple("Key", "path metric verb size qps")

# ---- the floors --------------------------------------------------------------

BIG = (65536, 1 << 20)
# The first that fits: condition, then the least ratio to rxe and to siw.
FLOORS = (
    (lambda k: k.metric == "bw" and k.path == "wire" and k.size in BIG, (5, 3)),
    (lambda k: k.metric == "bw" and k.path == "loop" and k.size in BIG, (8, 5)),
    (lambda k: k.metric == "rate", (3, 3)),
    (lambda k: k.metric == "lat-q50", (1 / 0.6, 1 / 0.6)),
    (lambda k: k.metric == "lat-q99", (1 / 0.5, 1 / 0.5)),
    (lambda k: k.metric == "bw", (1, 1)),
    (lambda k: k.metric == "mem", (1, None)),
)


def floor(key):
    return next((least for fits, least in FLOORS if fits(key)), (None, None))


# ---- figures -----------------------------------------------------------------


def records(lines):
    """The records among the lines, each checked for its fields."""
    found = []
    for line in lines:
        if line.startswith("{"):
            r = json.loads(line)
            if tuple(r) != FIELDS:
                raise ValueError(f"a record with other fields: {line}")
            found.append(r)
    return found


class Figure:
    """The median of the rounds, and how far they are from each other."""

    def __init__(self, values, unit):
        self.value = statistics.median(values)
        self.unit = unit
        self.spread = (max(values) - min(values)) / 2 / self.value if self.value else 0

    def __str__(self):
        v = self.value
        digits = 0 if abs(v) >= 1000 else 1 if abs(v) >= 100 else 2
        return f"{v:.{digits}f} ±{self.spread * 100:.0f}%"


def figures(found):
    """{Key: {device: Figure}}, in the order of the records."""
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in found:
        if r["value"] is not None:
            key = Key(r["path"], r["metric"], r["verb"], r["size"], r["qps"])
            values[key][r["device"]].append((r["value"], r["unit"]))
    return {
        key: {d: Figure([v for v, _ in vs], vs[0][1]) for d, vs in devices.items()}
        for key, devices in values.items()
    }


def ratio(devices, peer):
    if "rxo" not in devices or peer not in devices:
        return None
    ours, theirs = devices["rxo"], devices[peer]
    over, under = (theirs, ours) if ours.unit in SMALL_IS_GOOD else (ours, theirs)
    return over.value / under.value if under.value else None


def ceiling(all_figures, key):
    """Share of what there is to reach: UDP on the wire, a copy on one host."""
    stream = all_figures.get(Key(key.path, "bw", "stream", key.size, 1), {})
    top = stream.get("udp" if key.path == "wire" else "copy")
    ours = all_figures[key].get("rxo")
    return ours.value / top.value if key.metric == "bw" and top and ours else None


# ---- the table ---------------------------------------------------------------


def table(head, rows):
    """Markdown, aligned for those who read it as it is."""
    widths = [max(len(str(r[i])) for r in (head, *rows)) for i in range(len(head))]
    line = lambda r: "| " + " | ".join(str(c).ljust(w) for c, w in zip(r, widths)) + " |"
    return [line(head), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, rows), ""]


def verdict(key, ratios):
    """What the floors say: none, met, or what is missing."""
    least = floor(key)
    pairs = [(r, l) for r, l in zip(ratios, least) if r is not None and l is not None]
    if not pairs:
        return ""
    low = [f"{r / l * 100:.0f} %" for r, l in pairs if r < l]
    return "met" if not low else "below: " + ", ".join(low)


def label(key):
    parts = [key.path, key.verb]
    if key.size:
        parts.append(svg.short(key.size))
    if key.qps > 1 or key.metric == "rate":
        parts.append(f"{key.qps} QP")
    _, _, part = key.metric.partition("-")
    if part:
        parts.append(SHOWN[part])
    return " ".join(parts)


def sections(all_figures):
    out, below = [], 0
    for metric, title in TITLES.items():
        rows, unit = [], ""
        for key, devices in all_figures.items():
            name, _, q = key.metric.partition("-")
            if name != metric or key.verb == "stream" or (q and q not in SHOWN):
                continue
            unit = next(iter(devices.values())).unit
            ratios = [ratio(devices, p) for p in PEERS]
            judged = verdict(key, ratios)
            below += judged.startswith("below")
            top = ceiling(all_figures, key)
            rows.append([
                label(key), *(devices.get(d, "-") for d in ("rxo", *PEERS)),
                *(f"{r:.2f}" if r else "-" for r in ratios),
                f"{top * 100:.0f} %" if top else "", judged,
            ])
        if rows:
            out += [f"## {title}, {unit}", ""]
            out += table(["", "rxo", *PEERS, "x rxe", "x siw", "of ceiling", "floor"], rows)
    streams = [(k, d) for k, d in all_figures.items() if k.verb == "stream"]
    if streams:
        out += ["## Ceilings", ""]
        out += table(
            ["", "TCP", "UDP, segmented", "copy"],
            [[f"{k.metric} {k.path} {svg.short(k.size)}", *(d.get(x, "-") for x in ("tcp", "udp", "copy"))] for k, d in streams],
        )
    return out, below


# ---- the plots ---------------------------------------------------------------


def plots(all_figures):
    """{file name: SVG}"""
    lines = collections.defaultdict(lambda: collections.defaultdict(list))
    for key, devices in all_figures.items():
        name, _, q = key.metric.partition("-q")
        for device, figure in devices.items():
            if name.startswith("scale"):
                lines[name, key.path, key.verb, 0][device].append((key.qps, figure.value))
            elif name == "bw" and key.verb != "stream":
                lines["bw", key.path, key.verb, 0][device].append((key.size, figure.value))
            elif q:
                lines[name, key.path, key.verb, key.size][device].append((float(q), figure.value))
    for (name, path, verb, _), series in lines.items():
        if name == "bw":
            for key, devices in all_figures.items():
                if (key.path, key.metric, key.verb) == (path, "bw", "stream"):
                    for device, figure in devices.items():
                        series[device].append((key.size, figure.value))
    out = {}
    for (name, path, verb, size), series in lines.items():
        if name == "bw":
            sizes = sorted({x for line in series.values() for x, _ in line})
            out[f"bw-{path}-{verb}.svg"] = svg.chart(
                f"{verb}, {path}: bandwidth by message size", "bytes", "MB/s", series,
                xticks=sizes if len(sizes) > 1 else None)
        elif name.startswith("scale"):
            what = SHOWN[name.partition("-")[2]]
            out[f"{name}.svg"] = svg.chart(f"Time {what}, by number of queue pairs", "queue pairs", "us", series)
        else:
            out[f"{name}-{path}-{verb}-{size}.svg"] = svg.chart(
                f"{verb} of {size} B, {path}: {TITLES[name].lower()}", "percentile", "us", series,
                xlog=False, xticks=(0, 10, 25, 50, 75, 90, 100))
    return out


def report(found):
    """(text, {file name: SVG}) of the records."""
    all_figures = figures(found)
    rounds = max(r["round"] for r in found)
    text = [
        f"# rxo, rdma_rxe and siw on lane {found[0]['lane']}", "",
        f"Medians of {rounds} interleaved rounds; ± is half the distance of the extremes.  Ratios say how many",
        "times better rxo is.", "",
    ]
    tables, below = sections(all_figures)
    pictures = plots(all_figures)
    missing = sum(r["value"] is None for r in found)
    text += tables
    text += [f"{below} figures are below their floor; {missing} measurements gave no figure.", ""]
    text += [f"![{n}]({n})" for n in sorted(pictures)]
    return "\n".join(text) + "\n", pictures


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        found = records(f)
    if not found:
        sys.exit("bench: no figures")
    folder = sys.argv[2]
    text, pictures = report(found)
    files = {**pictures, "report.md": text, "result.json": json.dumps(found, indent=0) + "\n"}
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(content)
    print(text.split("![")[0].rstrip())


if __name__ == "__main__":
    main()
