#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
#
# insns.py KALLSYMS COUNTS N [SHOWN]: what bench/insns.c counted, by module and by
# function, for each of N: instructions, calls, and what the emulator had to look up.

import bisect
import collections
import sys


def symbols(path):
    found = []
    with open(path, encoding="ascii") as f:
        for line in f:
            at, kind, name, *module = line.split()
            if kind in "tT":
                found.append((int(at, 16), name, module[0] if module else "kernel"))
    return sorted(found)


def main():
    table = symbols(sys.argv[1])
    starts = [at for at, _, _ in table]
    n = int(sys.argv[3])
    shown = int(sys.argv[4]) if len(sys.argv) > 4 else 60
    insns, calls, lookups, modules, looked = (collections.Counter() for _ in range(5))
    with open(sys.argv[2], encoding="ascii") as f:
        for line in f:
            if line.startswith("#"):
                print(line, end="")
                continue
            at, size, times, looks = (int(w, b) for w, b in zip(line.split(), (16, 10, 10, 10)))
            i = bisect.bisect_right(starts, at) - 1
            if i < 0:
                continue
            start, *key = table[i]
            key = tuple(key)
            insns[key] += size * times
            modules[key[1]] += size * times
            lookups[key] += looks * times
            looked[key[1]] += looks * times
            if at == start:
                calls[key] += times
    for module, count in modules.most_common():
        print(f"{count / n:10.1f} in {module}, {looked[module] / n:.1f} lookups")
    print(f"{'insns':>10} {'calls':>8} {'lookups':>8}")
    for key, count in insns.most_common(shown):
        print(f"{count / n:10.1f} {calls[key] / n:8.2f} {lookups[key] / n:8.2f} {key[0]} {key[1]}")


main()
