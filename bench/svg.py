# SPDX-License-Identifier: GPL-2.0
"""A line chart as SVG: what the reports need, and no more."""

import math
from html import escape

COLOURS = {
    "rxo": "#c0392b", "rxe": "#2471a3", "siw": "#1e8449",
    "tcp": "#7f8c8d", "udp": "#566573", "copy": "#b7950b",
}
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 90, 36, 48


def short(v):
    """65536 as 64K: powers of two by their binary prefix, others by thousands."""
    for unit, digit in (("M", 20), ("K", 10)):
        if v >= 1 << digit and v % (1 << digit) == 0:
            return f"{int(v) >> digit}{unit}"
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if v >= factor:
            return f"{v / factor:g}{unit}"
    return f"{v:g}"


class Axis:
    """Maps values to places from `begin` to `end`, evenly or by logarithm."""

    def __init__(self, values, log, begin, end):
        self.map = math.log10 if log else float
        self.log = log
        low, high = min(values), max(values)
        if log:
            low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high * 1.0001))
        elif low > 0:
            low = 0
        self.low, self.high = low, high if high > low else low + 1
        self.begin, self.end = begin, end

    def at(self, v):
        low, high = self.map(self.low), self.map(self.high)
        return self.begin + (self.map(v) - low) / (high - low) * (self.end - self.begin)

    def ticks(self):
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**e for e in range(first, last + 1)]
        step = 10 ** math.floor(math.log10(self.high))
        while self.high / step < 4:
            step /= 2
        return [i * step for i in range(int(self.high / step) + 1)]


def chart(title, xlabel, ylabel, series, xlog=True, ylog=True, xticks=None):
    """series: {name: [(x, y)]}; the names are shown at the lines' ends."""
    series = {n: sorted(p) for n, p in series.items() if p}
    points = [p for line in series.values() for p in line]
    x = Axis([p[0] for p in points], xlog, LEFT, WIDTH - RIGHT)
    y = Axis([p[1] for p in points], ylog, HEIGHT - BOTTOM, TOP)
    if xticks:
        x.low, x.high = min(xticks), max(xticks)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(xlabel)}</text>',
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(ylabel)}</text>',
    ]
    for v in xticks or x.ticks():
        out.append(f'<path d="M{x.at(v):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(f'<text x="{x.at(v):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(v)}</text>')
    for v in y.ticks():
        out.append(f'<path d="M{LEFT} {y.at(v):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y.at(v) + 4:.1f}" text-anchor="end">{short(v)}</text>')
    ends = []
    for name, line in series.items():
        colour = COLOURS.get(name.split()[0], "#000")
        dash = "" if name.split()[0] in ("rxo", "rxe", "siw") else ' stroke-dasharray="5 4"'
        places = [(x.at(a), y.at(b)) for a, b in line]
        out.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="'
            + " ".join(f"{a:.1f},{b:.1f}" for a, b in places) + '"/>'
        )
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in places]
        ends.append([places[-1][1], name, colour])
    # The names must not lie on each other.
    ends.sort()
    for above, below in zip(ends, ends[1:]):
        below[0] = max(below[0], above[0] + 13)
    out += [f'<text x="{WIDTH - RIGHT + 6}" y="{at + 4:.1f}" fill="{c}">{escape(n)}</text>' for at, n, c in ends]
    return "\n".join([*out, "</svg>", ""])
