#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The measuring's own tests, on recorded output and made-up records; TAP."""

import json
import os
import sys
import traceback
import xml.dom.minidom

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report
import run
import svg

BW = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      300              0.00               51.20              0.000819
"""
SMALL = BW.replace("65536 ", "8     ").replace("51.20", "0.28 ").replace("0.000819", "0.036700")
UNSTEADY = "Correlation coefficient r^2: 0.6 < 0.9\n" + BW.replace("51.20", "inf  ").replace("0.000819", "inf")
LAT = "#, usec\n1, 23.5\n2, 21\n3, 1.5e+02\n4, 22\n #bytes #iterations\n 8  6  21.00 200.00\n"
CMTIME = """\
step             avg/conn  total(us)    us/conn    sum(us)    max(us)    min(us)
full connect          400      80000          0          0      90000      10000
"""


def record(device, value, round_number, **other):
    r = {"path": "wire", "verb": "write", "metric": "bw", "size": 65536, "qps": 1,
         "device": device, "value": value, "unit": "MB/s", "lane": "uml", "round": round_number}
    return {**r, **other}


def sample():
    """Three rounds of all that there is a table for."""
    values = {"rxo": (600, 500, 550), "rxe": (100, 110, 90), "siw": (190, 200, None)}
    out = [record(d, v, i + 1) for d, vs in values.items() for i, v in enumerate(vs)]
    out += [record(d, v, 1, verb="stream") for d, v in (("udp", 1100), ("tcp", 900))]
    for q in run.QUANTILES:
        for d, us in (("rxo", 10), ("rxe", 40), ("siw", 15)):
            out.append(record(d, us + q / 10, 1, metric=f"lat-q{q}", size=8, unit="us"))
    out += [record("rxo", 3, 1, metric="scale-message", verb="send", size=256, qps=n, unit="us") for n in (10, 1000)]
    return out


def figures_of(records):
    return report.figures(records)


def test_bandwidth_is_in_bytes_and_messages():
    speed, rate = run.bandwidth(BW)
    assert abs(speed - 51.2 * 1048576) < 1 and abs(rate - 819.2) < 0.1, (speed, rate)


def test_small_messages_are_counted_not_weighed():
    assert run.bandwidth(SMALL) == (36700.0 * 8, 36700.0)


def test_a_figure_of_an_unsteady_clock_is_none():
    for text in (UNSTEADY, BW.replace("51.20", "0.00 ").replace("0.000819", "0.000000"), ""):
        try:
            run.bandwidth(text)
        except run.Failed:
            continue
        raise AssertionError(text)


def test_latencies_are_sorted_and_ranked():
    found = run.latencies(LAT)
    assert found == [21, 22, 23.5, 150]
    assert [run.quantile(found, q) for q in (0, 25, 50, 75, 99)] == [21, 21, 22, 23.5, 150]


def test_connections_a_second():
    assert run.connects(CMTIME) == 2500


def test_many_queue_pairs():
    line = "ok\n# scale qps=1000 state={} create=10.0 connect=20.5 message=3.25 destroy=4.0 bytes=9000\nok 1 - x\n"
    assert run.scaled(line.format("reset")) == [("mem", 9000, "B")]
    assert dict((n, v) for n, v, _ in run.scaled(line.format("rts"))) == {
        "mem": 9000, "scale-create": 10, "scale-connect": 20.5, "scale-message": 3.25, "scale-destroy": 4}


def test_filters_want_all_words_of_one_pattern():
    points = list(run.plan(False, "bw:write:65536 wire:rate:q16:send"))
    assert {(p.path, p.metric, p.verb, p.size, p.qps) for p in points} == {
        ("wire", "bw", "write", 65536, 1), ("loop", "bw", "write", 65536, 1), ("wire", "rate", "send", 8, 16)}
    assert [p.size for p in run.plan(True, "wire:bw:read:12345")] == [12345]
    assert not list(run.plan(False, "nonsense"))


def test_every_point_can_be_measured_and_shown():
    for quick in (False, True):
        points = list(run.plan(quick))
        assert len(points) == len(set(points))
        for p in points:
            assert p.verb == "stream" or hasattr(run.Bench, p.metric), p
            assert p.metric in report.TITLES, p
    full = set(run.plan(False))
    assert set(run.plan(True)) <= full
    for path in ("wire", "loop"):
        for verb in run.VERBS:
            assert {s for s in (64, 65536, 1 << 20, 8 << 20)} <= {p.size for p in full if p[:3] == (path, "bw", verb)}
            assert {1, 4, 16} == {p.qps for p in full if p[:3] == (path, "rate", verb)}


def test_the_pace_makes_points_last_about_as_long():
    pace = run.Pace(0.5)
    asked = []

    def machine(rate):
        def measure(n):
            asked.append(n)
            return rate, n
        return measure

    p = run.Point("wire", "bw", "write", 64, 1)
    assert pace.run("rxo", p, 5, machine(100_000)) == 50_000
    assert pace.run("rxo", p, 5, machine(100_000)) == 50_000 and len(asked) == 3
    # A thousand times larger: no run may take long because the last was quick.
    asked.clear()
    pace.run("rxo", p._replace(size=65536), 5, machine(1000))
    assert asked[0] <= 1000 and asked[-1] >= 200, asked


def test_medians_spreads_and_ratios():
    f = figures_of(sample())
    key = report.Key("wire", "bw", "write", 65536, 1)
    assert f[key]["rxo"].value == 550 and abs(f[key]["rxo"].spread - 50 / 550) < 1e-9
    assert f[key]["siw"].value == 195, "a round without a figure doesn't count"
    assert report.ratio(f[key], "rxe") == 5.5
    assert report.ceiling(f, key) == 0.5
    lat = report.Key("wire", "lat-q50", "write", 8, 1)
    assert report.ratio(f[lat], "rxe") == 3, "of latencies, the smaller is the better"


def test_floors():
    key = report.Key("wire", "bw", "write", 65536, 1)
    assert report.verdict(key, [5.0, 3.0]) == "met"
    assert report.verdict(key, [5.5, 2.7]) == "below: 90 %"
    assert report.floor(key._replace(path="loop")) == (8, 5)
    assert report.floor(key._replace(size=64)) == (1, 1)
    assert report.floor(key._replace(metric="rate", size=8)) == (3, 3)
    assert report.verdict(key._replace(metric="lat-q99"), [2.1, 1.9]) == "below: 95 %"
    assert report.verdict(key._replace(metric="cpu"), [0.1, 0.1]) == ""


def test_records_have_the_agreed_fields():
    lines = ["# a line for people", *map(json.dumps, sample())]
    assert report.records(lines) == sample()
    broken = sample()[0]
    del broken["round"]
    try:
        report.records([json.dumps(broken)])
    except ValueError:
        return
    raise AssertionError("a record without its round was taken")


def test_the_report_shows_each_figure_once_and_draws_it():
    text, pictures = report.report(sample())
    row = next(l for l in text.splitlines() if l.startswith("| wire write 64K"))
    assert [c.strip() for c in row.split("|")[1:-1]] == [
        "wire write 64K", "550.0 ±9%", "100.0 ±10%", "195.0 ±3%", "5.50", "2.82", "50 %", "below: 94 %"], row
    assert "| wire send 256 1000 QP a message" in text
    assert "| wire write 8 typical" in text and "1 measurements gave no figure" in text
    assert set(pictures) == {"bw-wire-write.svg", "lat-wire-write-8.svg", "scale-message.svg"}
    for picture in pictures.values():
        xml.dom.minidom.parseString(picture)


def test_a_chart_puts_larger_values_higher():
    x = svg.Axis([64, 8 << 20], True, 0, 100)
    y = svg.Axis([0, 7], False, 100, 0)
    assert x.at(64) < x.at(65536) < x.at(8 << 20) <= 100
    assert y.at(0) == 100 > y.at(3) > y.at(7) >= 0
    assert (svg.short(65536), svg.short(8 << 20), svg.short(1000), svg.short(0.1)) == ("64K", "8M", "1k", "0.1")


def main():
    tests = [(n, f) for n, f in globals().items() if n.startswith("test_")]
    bad = 0
    print(f"1..{len(tests)}")
    for i, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {i} - {name[5:].replace('_', ' ')}")
        except Exception:
            bad += 1
            print("".join(f"# {l}\n" for l in traceback.format_exc().splitlines()), end="")
            print(f"not ok {i} - {name[5:].replace('_', ' ')}")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
