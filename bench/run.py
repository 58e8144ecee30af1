#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measures rxo, rdma_rxe and siw in one guest: a JSON record a line on stdout.

The devices take turns on one pair of hosts, group of points by group of points,
so that what disturbs the machine meanwhile disturbs all of them alike.

BENCH    words, joined by colons, that a point must have: a path (wire, loop), a
         metric (bw, rate, lat, evlat, cpu, conn, scale), a verb (send, write,
         read, stream, cm, idle), a size in bytes, a number of queue pairs (q16).  Several
         such, separated by blanks: either.  A size that is measured otherwise
         nowhere is added.
ROUNDS   how often (5; with QUICK 3)
QUICK=1  few sizes and short runs
DRIVERS  "rxo rxe siw", or fewer
"""

import collections
import itertools
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOPOLOGY = os.path.join(HERE, "../selftests/lib/topology.sh")
ADDRESS = "10.7.0.2"  # of host b
QUANTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
VERBS = ("send", "write", "read")
# What takes long and differs little is measured in the first rounds only.
ROUNDS_OF = {"scale": 2}

Point = collections.namedtuple("Point", "path metric verb size qps")


class Failed(Exception):
    """A measurement that gave no figure, and why."""


# ---- what is measured --------------------------------------------------------


def words_of(point):
    return {point.path, point.metric, point.verb, str(point.size), f"q{point.qps}"}


def wanted(point, patterns):
    return not patterns or any(set(p.split(":")) <= words_of(point) for p in patterns)


def plan(quick, bench=""):
    """All points in the order in which they are measured."""
    patterns = bench.split()
    extra = {int(w) for p in patterns for w in p.split(":") if w.isdigit()}
    usual = (64, 65536, 1 << 20) if quick else [1 << n for n in range(6, 23, 2)] + [65536, 1 << 20, 8 << 20]
    sizes = sorted(extra | set(usual))
    for path in ("wire", "loop"):
        points = [Point(path, "bw", v, s, 1) for v in (*VERBS, "stream") for s in sizes]
        rated = ("write",) if quick else VERBS
        points += [Point(path, "rate", v, 8, q) for v in rated for q in ((1, 16) if quick else (1, 4, 16))]
        lat_sizes = sorted({8} | (extra - set(usual)))
        points += [Point(path, "lat", v, s, 1) for v in VERBS for s in lat_sizes]
        points += [Point(path, "evlat", v, s, 1) for v in (("send",) if quick else ("send", "read")) for s in lat_sizes]
        points += [Point(path, "cpu", v, s, 1) for v in ("send", "read", "stream") for s in ((65536,) if quick else (65536, 1 << 20))]
        points += [Point(path, "conn", "cm", 0, 1)]
        if path == "wire":
            points += [Point(path, "scale", "idle", 0, 1000)]
            points += [Point(path, "scale", "send", 256, q) for q in (10, 100, 1000, *(() if quick else (10000,)))]
        yield from (p for p in points if wanted(p, patterns))


def devices(point, drivers):
    """Who is measured there: the drivers, or what they have to reach."""
    if point.metric in ("conn", "scale"):
        # siw makes connections by rdma_cm only, and listens at a TCP port, which
        # cmtime wants for itself.
        return [d for d in drivers if d != "siw"]
    if point.verb != "stream":
        return drivers
    return ("tcp", "udp") if point.path == "wire" or point.metric == "cpu" else ("tcp", "udp", "copy")


# ---- reading the tools' output -----------------------------------------------


def bandwidth(text):
    """(bytes a second, messages a second) of a bandwidth test of perftest."""
    for line in text.splitlines():
        f = line.split()
        if len(f) == 5 and f[0].isdigit() and f[1].isdigit():
            size, mib, mpps = int(f[0]), float(f[3]), float(f[4])
            # Both are rounded: take that with more digits.
            rate = mpps * 1e6 if mpps > mib / 100 else mib * 1048576 / size
            if 0 < rate < float("inf"):
                return rate * size, rate
    raise Failed("perftest gave no figure")


def latencies(text):
    """The sorted results, in microseconds, of a latency test with -H."""
    found = sorted(float(v) for v in re.findall(r"^\d+, ([0-9.e+-]+)$", text, re.M))
    if not found or found[0] <= 0 or found[-1] == float("inf"):
        raise Failed("perftest gave no figure")
    return found


def quantile(ordered, percent):
    """By nearest rank."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank) - 1, 0)]


def connects(text):
    """Connections a second of cmtime."""
    m = re.search(r"^full connect +(\d+)", text, re.M)
    if not m or int(m[1]) == 0:
        raise Failed("cmtime gave no figure")
    return 1e6 / int(m[1])


def scaled(text):
    """What selftests/verbs/scale.c says of many queue pairs."""
    m = re.search(r"^# scale (.*)", text, re.M)
    if not m:
        raise Failed(text.strip()[-200:])
    f = dict(w.split("=") for w in m[1].split())
    # Of a few, what others do meanwhile is more.
    memory = [("mem", float(f["bytes"]), "B")] if int(f["qps"]) >= 1000 else []
    if f["state"] != "rts":
        return memory
    return memory + [(f"scale-{n}", float(f[n]), "us") for n in ("create", "connect", "message", "destroy")]


# ---- running them ------------------------------------------------------------


def on(host, *command):
    return ["ip", "netns", "exec", "host" + host, *map(str, command)]


def busy():
    """CPU seconds of the whole guest until now, less idle, I/O wait and stolen."""
    with open("/proc/stat", encoding="ascii") as f:
        t = [int(v) for v in f.readline().split()[1:8]]
    return (t[0] + t[1] + t[2] + t[5] + t[6]) / os.sysconf("SC_CLK_TCK")


class Pace:
    """How many messages take about the time that a point has, learned from the
    runs before."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.rates = {}  # (driver, point): messages a second
        self.last = {}  # (driver, path, verb): size and rate

    def count(self, driver, point, least):
        rate = self.rates.get((driver, point))
        if rate is None:
            size, rate = self.last.get((driver, point.path, point.verb), (point.size, 1000))
            rate *= min(1, max(size, 1024) / max(point.size, 1024))
        return max(least, min(int(rate * self.seconds), 2_000_000))

    def learn(self, driver, point, rate):
        self.rates[driver, point] = rate
        self.last[driver, point.path, point.verb] = (point.size, rate)

    def run(self, driver, point, least, measure):
        """measure(messages) gives (messages a second, result); again until it
        took long enough to be believed."""
        for _ in range(4):
            n = self.count(driver, point, least)
            rate, result = measure(n)
            self.learn(driver, point, rate)
            if n / rate > self.seconds / 3:
                break
        return result


class Bench:
    def __init__(self, quick, tools):
        self.tools = tools
        self.seconds = 0.3 if quick else 0.6
        self.conns = 50 if quick else 200
        self.pace = Pace(self.seconds)
        self.ports = itertools.count(20000)
        # perftest hangs with siw and events.
        self.limit = 60 if os.environ.get("RXO_LANE") == "vm" else 20
        mhz = subprocess.run([tools + "/ceiling", "clock"], text=True, capture_output=True, check=True).stdout
        self.steady = {**os.environ, "LD_PRELOAD": tools + "/clock.so", "RXO_BENCH_TSC": mhz.strip()}

    def topology(self, function, driver="rxo"):
        env = {**os.environ, "RXO_DRIVER": driver, "RXO_NETNS": "shared"}
        done = subprocess.run(
            ["bash", "-c", f". {TOPOLOGY}; {function}"], env=env, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise Failed(f"{function} {driver}: {done.stderr.strip()}")

    def listening(self, server, by_cm, port):
        """Waits until the server listens at the port: by rdma_cm, or by TCP."""
        end = time.monotonic() + 20
        while server.poll() is None and time.monotonic() < end:
            if by_cm:
                look = on("b", "rdma", "resource", "show", "cm_id")
                shown = subprocess.run(look, text=True, capture_output=True, check=False).stdout
                listens = re.search(rf"state LISTEN .*:{port}\b", shown)
            else:
                shown = subprocess.run(on("b", "cat", "/proc/net/tcp"), text=True, capture_output=True, check=False).stdout
                listens = re.search(rf":{port:04X} [0-9A-F]+:0000 0A", shown)
            if listens:
                return
            time.sleep(0.01)
        raise Failed("the server doesn't listen")

    def pair(self, path, port, server, client, by_cm=True, env=None, half=False):
        """Runs the server on b and the client; client's output, even if it fails
        after the half of it."""
        s = subprocess.Popen(
            on("b", *server("b")), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=env,
        )
        try:
            self.listening(s, by_cm, port)
            done = subprocess.run(
                on("a" if path == "wire" else "b", *client("a" if path == "wire" else "b")),
                stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=self.limit, check=False, env=env,
            )
            if done.returncode and not half:
                raise Failed((done.stderr or done.stdout).strip()[-200:])
            if not done.returncode:
                s.wait(5)
            return done.stdout
        except subprocess.TimeoutExpired as e:
            raise Failed("too slow") from e
        finally:
            s.kill()
            s.wait()

    def perftest(self, driver, point, kind, *args):
        port = next(self.ports)
        prog = f"ib_{point.verb}_{kind}"
        common = ["-F", "-R", "-p", port, "-s", point.size, *args]
        for attempt in range(2):
            try:
                # siw can't listen at all addresses of two hosts that have the same interface index.
                out = self.pair(
                    point.path, port,
                    lambda h: [prog, "-d", driver + h, *common, "--bind_source_ip", ADDRESS],
                    lambda h: [prog, "-d", driver + h, *common, ADDRESS],
                    env=self.steady,
                )
                break
            except Failed as e:
                # A new device's QP numbers were those of the last one's, which the CM still remembers.
                if attempt or "REJECTED" not in str(e):
                    raise
        return latencies(out) if kind == "lat" else bandwidth(out)

    # Each of these gives [(name of the metric, value, unit)].

    def bw(self, driver, point):
        def once(n):
            speed, rate = self.perftest(driver, point, "bw", "-N", "-n", max(n // point.qps, 5), "-q", point.qps)
            return rate, (speed, rate)

        speed, rate = self.pace.run(driver, point, 5 * point.qps, once)
        if point.metric == "rate":
            return [("rate", rate, "msg/s")]
        return [("bw", speed / 1e6, "MB/s")]

    rate = bw

    def lat(self, driver, point):
        events = ["-e"] if point.metric == "evlat" else []
        # A read's latency is that of the round trip, the others' half of it.
        trips = 1e6 if point.verb == "read" else 5e5

        def once(n):
            found = self.perftest(driver, point, "lat", "-H", "-n", n, *events)
            return trips * len(found) / sum(found), found

        found = self.pace.run(driver, point, 300, once)
        return [(f"{point.metric}-q{q}", quantile(found, q), "us") for q in QUANTILES]

    evlat = lat

    def cpu(self, driver, point):
        """Waiting for events, as polling takes all there is.  What the programs
        take to start is the difference of two runs."""

        def once(n):
            used = busy()
            _, rate = self.perftest(driver, point, "bw", "-N", "-e", "-n", n)
            return rate, (n, busy() - used)

        n, used = self.pace.run(driver, point, 20, once)
        few, start = once(max(n // 10, 5))[1]
        if used <= start:
            raise Failed("other things took more CPU")
        return [("cpu", (used - start) / ((n - few) * point.size / 1e9), "s/GB")]

    def conn(self, driver, point):
        out = self.pair(
            point.path, 7471,
            lambda h: ["cmtime", "-b", ADDRESS, "-c", self.conns],
            lambda h: ["cmtime", "-s", ADDRESS, "-c", self.conns],
            # Which it does last.
            by_cm=False,
            # Afterwards it makes connections without queue pairs, which works between two hosts only.
            half=True,
        )
        return [("conn", connects(out), "conn/s")]

    def scale(self, driver, point):
        case = "idle_1000" if point.verb == "idle" else f"qps_{point.qps}"
        done = subprocess.run(
            [self.tools + "/scale", "-a", f"hosta:{driver}a", "-b", f"hostb:{driver}b", case],
            text=True, capture_output=True, check=False,
        )
        return scaled(done.stdout)

    def stream(self, what, point):
        ends = ("hosta" if point.path == "wire" else "hostb", "hostb", ADDRESS)
        done = subprocess.run(
            [self.tools + "/ceiling", what, *ends, str(point.size), "1"],
            text=True, capture_output=True, timeout=self.limit, check=False,
        )
        if done.returncode:
            raise Failed(done.stderr.strip())
        sent, seconds, used = map(float, done.stdout.split())
        if point.metric == "cpu":
            return [("cpu", used / (sent / 1e9), "s/GB")]
        return [("bw", sent / seconds / 1e6, "MB/s")]

    def measure(self, device, point):
        try:
            if point.verb == "stream":
                return self.stream(device, point)
            return getattr(self, point.metric)(device, point)
        except (Failed, OSError, subprocess.TimeoutExpired) as e:
            print(f"# {device} {'-'.join(map(str, point))}: {e}", flush=True)
            return [(point.metric, None, "")]


def main():
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    rounds = int(os.environ.get("ROUNDS") or (3 if quick else 5))
    drivers = (os.environ.get("DRIVERS") or "rxo rxe siw").split()
    lane = os.environ.get("RXO_BENCH_LANE", "unknown")
    points = list(plan(quick, os.environ.get("BENCH", "")))
    if not points:
        sys.exit(f"bench: no point is like BENCH={os.environ.get('BENCH')}")
    bench = Bench(quick, os.environ["RXO_BENCH_TOOLS"])
    for d in drivers:
        bench.topology("topo_modules", d)
    bench.topology("topo_net_up")
    groups = [list(g) for _, g in itertools.groupby(points, lambda p: p[:3])]
    missing = 0
    start = time.monotonic()
    for number, group in itertools.product(range(1, rounds + 1), groups):
        path, metric, verb = group[0][:3]
        if number > ROUNDS_OF.get(metric, rounds):
            continue
        shown = []
        for device in devices(group[0], drivers):
            if verb != "stream":
                bench.topology("topo_link_up", device)
            for p in group:
                results = bench.measure(device, p)
                for name, value, unit in results:
                    missing += value is None
                    print(json.dumps({
                        "path": p.path, "verb": p.verb, "metric": name, "size": p.size, "qps": p.qps,
                        "device": device, "value": value, "unit": unit, "lane": lane, "round": number,
                    }), flush=True)
            if verb != "stream":
                bench.topology("topo_link_down", device)
            typical = results[len(results) // 2]
            shown.append(f"{device} {typical[1] or 0:.4g} {typical[2]}")
        print(
            f"# {time.monotonic() - start:5.0f} s  round {number} of {rounds}  {path} {metric} {verb},"
            f" the last of {len(group)}: {', '.join(shown)}", flush=True,
        )
    print(f"# {missing} figures are missing")


if __name__ == "__main__":
    main()
