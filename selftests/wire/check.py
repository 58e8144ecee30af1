#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Judge a capture of RoCEv2 packets, with scapy.

check.py [--want OPCODES] [--flip] CAPTURE [PAIRS]

PAIRS is a file with lines "# pair TYPE QPN-OF-A QPN-OF-B"; packets name only
the queue pair that they go to.  Every packet is judged by itself (lengths,
reserved bits, padding, invariant CRC) and as part of its flow (packet numbers,
order of the parts of a message, what answers what).  Without PAIRS, by itself
only.

--want all: every opcode must be there, those with data with each padding, and
each kind of NAK; or a list of opcodes.  --flip: the judge is tried too: with any one bit changed
that the CRC covers a packet must fail, with one that it leaves out it must not.
"""

import argparse
import random
import re
import sys

from scapy.contrib.roce import AETH, BTH
from scapy.fields import XBitField, XByteField, XIntField, XLongField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import rdpcap


class RETH(Packet):
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XIntField("dlen", 0)]


class DETH(Packet):
    fields_desc = [XIntField("qkey", 0), XByteField("resv8", 0), XBitField("sqpn", 0, 24)]


class ImmDt(Packet):
    fields_desc = [XIntField("data", 0)]


class IETH(Packet):
    fields_desc = [XIntField("rkey", 0)]


class FETH(Packet):
    fields_desc = [XIntField("what", 0)]


class AtomicETH(Packet):
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XLongField("swap", 0),
                   XLongField("compare", 0)]


class AtomicAckETH(Packet):
    fields_desc = [XLongField("original", 0)]


LENGTH = {RETH: 16, DETH: 8, ImmDt: 4, IETH: 4, AtomicETH: 28, AtomicAckETH: 8, AETH: 4,
          FETH: 4}

BEGIN, END = 1, 2
FIRST, MIDDLE, LAST, ONLY = BEGIN, 0, END, BEGIN | END


class Op:
    """An opcode: kind, part of the message, headers after the BTH, whether there is data."""

    def __init__(self, name, kind, part, headers, data):
        self.name, self.kind, self.part, self.headers, self.data = name, kind, part, headers, data
        self.size = 12 + sum(LENGTH[h] for h in headers)
        self.imm = ImmDt in headers


def opcodes():
    ops = {}

    def add(code, name, kind, part, *headers, data=True):
        ops[code] = Op(name, kind, part, headers, data)

    for base, service in ((0x00, "RC"), (0x20, "UC")):
        add(base + 0x00, service + " SEND First", "send", FIRST)
        add(base + 0x01, service + " SEND Middle", "send", MIDDLE)
        add(base + 0x02, service + " SEND Last", "send", LAST)
        add(base + 0x03, service + " SEND Last+Imm", "send", LAST, ImmDt)
        add(base + 0x04, service + " SEND Only", "send", ONLY)
        add(base + 0x05, service + " SEND Only+Imm", "send", ONLY, ImmDt)
        add(base + 0x06, service + " WRITE First", "write", FIRST, RETH)
        add(base + 0x07, service + " WRITE Middle", "write", MIDDLE)
        add(base + 0x08, service + " WRITE Last", "write", LAST)
        add(base + 0x09, service + " WRITE Last+Imm", "write", LAST, ImmDt)
        add(base + 0x0a, service + " WRITE Only", "write", ONLY, RETH)
        add(base + 0x0b, service + " WRITE Only+Imm", "write", ONLY, RETH, ImmDt)
    add(0x0c, "RC READ Request", "read", ONLY, RETH, data=False)
    add(0x0d, "RC READ Response First", "data", FIRST, AETH)
    add(0x0e, "RC READ Response Middle", "data", MIDDLE)
    add(0x0f, "RC READ Response Last", "data", LAST, AETH)
    add(0x10, "RC READ Response Only", "data", ONLY, AETH)
    add(0x11, "RC Acknowledge", "ack", ONLY, AETH, data=False)
    add(0x12, "RC Atomic Acknowledge", "atomic ack", ONLY, AETH, AtomicAckETH, data=False)
    add(0x13, "RC CmpSwap", "atomic", ONLY, AtomicETH, data=False)
    add(0x14, "RC FetchAdd", "atomic", ONLY, AtomicETH, data=False)
    add(0x16, "RC SEND Last+Inv", "send", LAST, IETH)
    add(0x17, "RC SEND Only+Inv", "send", ONLY, IETH)
    add(0x1c, "RC FLUSH", "flush", ONLY, FETH, RETH, data=False)
    add(0x1d, "RC ATOMIC WRITE", "atomic write", ONLY, RETH)
    add(0x64, "UD SEND Only", "send", ONLY, DETH)
    add(0x65, "UD SEND Only+Imm", "send", ONLY, DETH, ImmDt)
    return ops


OPS = opcodes()
# Of those the common programs know nothing: they are asked for by number.
RARE = (0x1c, 0x1d)
REQUESTS = ("send", "write", "read", "atomic")
NAKS = {0x60: "PSN sequence", 0x61: "invalid request", 0x62: "remote access",
        0x63: "remote operational"}
PSN_MASK = 0xffffff


def ahead(a, b):
    """How far PSN a is ahead of PSN b, negative if it is behind."""
    d = (a - b) & PSN_MASK
    return d - (PSN_MASK + 1) if d >> 23 else d


class Wrong(Exception):
    pass


def must(condition, what, *values):
    if not condition:
        raise Wrong(what % values if values else what)


class Parsed:
    """A packet taken apart, each header checked by itself."""

    def __init__(self, frame):
        must(UDP in frame and frame[UDP].dport == 4791, "not to UDP port 4791")
        self.v4 = IP in frame
        ip, udp = frame[IP] if self.v4 else frame[IPv6], frame[UDP]
        raw = bytes(ip)
        if self.v4:
            must(ip.ihl == 5 and ip.version == 4, "IPv4 header of %d words", ip.ihl)
            must(ip.flags == "DF" and ip.frag == 0, "IPv4 flags %s", ip.flags)
            must(ip.ttl == 64, "time to live %d", ip.ttl)
            again = IP(raw[:20])
            del again.chksum
            must(IP(bytes(again)).chksum == ip.chksum, "IPv4 checksum 0x%04x", ip.chksum)
            raw = raw[:ip.len]
            at = 20
        else:
            must(ip.version == 6 and ip.nh == 17, "IPv6 next header %d", ip.nh)
            must(ip.hlim == 64, "hop limit %d", ip.hlim)
            raw = raw[:40 + ip.plen]
            at = 40
        must(udp.len == len(raw) - at, "UDP length %d in %d bytes", udp.len, len(raw) - at)
        must(udp.chksum == 0, "UDP checksum 0x%04x: ours are 0 (A17.3.1)", udp.chksum)
        must(udp.sport >= 0xc000, "source port 0x%04x", udp.sport)
        self.src, self.dst, self.sport = ip.src, ip.dst, udp.sport

        body = raw[at + 8:]
        must(len(body) >= 16, "%d bytes of UDP payload", len(body))
        bth = frame[BTH]
        must(bth.opcode in OPS, "opcode 0x%02x", bth.opcode)
        self.code, self.op, self.psn, self.dqpn = bth.opcode, OPS[bth.opcode], bth.psn, bth.dqpn
        self.ackreq, self.solicited, self.pad = bth.ackreq, bth.solicited, bth.padcount
        must(bth.version == 0, "transport version %d", bth.version)
        must(bth.migreq == 1, "MigReq 0 without path migration")
        must(bth.pkey == 0xffff, "P_Key 0x%04x", bth.pkey)
        must((bth.fecn, bth.becn, bth.resv6, bth.resv7) == (0, 0, 0, 0), "reserved bits")
        must(bth.psn >> 24 == 0 and bth.dqpn not in (0, PSN_MASK), "destination 0x%x", bth.dqpn)

        rest = body[12:-4]
        self.headers = {}
        for header in self.op.headers:
            n = LENGTH[header]
            must(len(rest) >= n, "no room for its %s", header.__name__)
            self.headers[header] = header(rest[:n])
            rest = rest[n:]
        must(len(rest) % 4 == 0, "data and padding of %d bytes", len(rest))
        must(len(rest) >= self.pad, "padding longer than the packet")
        must(not any(rest[len(rest) - self.pad:]), "padding that isn't zero")
        self.len = len(rest) - self.pad
        if not self.op.data:
            must(not rest, "%s with %d bytes of data", self.op.name, len(rest))
        if self.op.kind == "atomic write":
            # oA19-28
            must(self.len == 8 and self.headers[RETH].dlen == 8, "%d bytes, not 8", self.len)
            must(self.headers[RETH].va % 8 == 0, "to an address that isn't aligned")
        if self.op.kind == "flush":
            feth = self.headers[FETH].what
            must(feth & 3 and feth >> 6 == 0 and (feth >> 4) & 3 < 2, "FETH 0x%08x", feth)
        if not self.op.part & END:
            must(self.pad == 0, "padding before the end of a message")
        want = bth.compute_icrc(b"")
        must(body[-4:] == want, "invariant CRC %s, scapy computes %s", body[-4:].hex(), want.hex())


class Flow:
    """What one end sends to the other on one connection."""

    def __init__(self, kind):
        self.kind = kind
        self.psn = None     # the next new one
        self.part = None    # the message under way: kind, bytes so far, bytes announced
        self.mtu = None
        self.msn = None
        self.requests = {}  # PSN of a READ or atomic: the request and its packets
        self.sent = set()   # PSNs of SENDs and WRITEs
        self.answers = {}   # PSN of a READ response: what is expected
        self.sport = None


class Judge:
    def __init__(self, pairs):
        self.peer = {}
        self.flows = {}
        self.seen = {}
        self.naks = set()
        for kind, a, b in pairs:
            for one, other in ((a, b), (b, a)):
                self.peer[one] = (kind, other)

    def packet(self, frame, sides):
        p = Parsed(frame)
        self.seen.setdefault(p.code, set()).add(p.pad)
        if not self.peer:
            return None
        side = sides[p.src]
        key = (1 - side, p.dqpn)
        must(key in self.peer, "for QP 0x%x, which isn't there", p.dqpn)
        kind, other = self.peer[key]
        service = {0: "RC", 1: "UC", 3: "UD"}[p.code >> 5]
        must(service == kind, "%s packet for a %s queue pair", service, kind)
        forth = self.flows.setdefault(key, Flow(kind))
        back = self.flows.setdefault((side, other[1]), Flow(kind))
        must(forth.sport in (None, p.sport), "another source port than before")
        forth.sport = p.sport
        if kind == "UD":
            return self.datagram(p, other)
        if p.op.kind in REQUESTS:
            return self.request(p, forth, back)
        return self.response(p, forth, back)

    def datagram(self, p, other):
        deth = p.headers[DETH]
        must(deth.resv8 == 0, "reserved byte of the DETH")
        must(deth.sqpn == other[1], "source QP 0x%x, not 0x%x", deth.sqpn, other[1])
        must(deth.qkey == 0x11223344, "Q_Key 0x%x", deth.qkey)
        must(not p.ackreq, "AckReq on a datagram")

    def request(self, p, forth, back):
        op, part = p.op, p.op.part
        if forth.kind == "UC":
            must(not p.ackreq, "AckReq on UC")
        elif part & END:
            must(p.ackreq, "no AckReq at the end of a message")
        must(not p.solicited or (part & END and (op.kind == "send" or op.imm)), "solicited event")
        if forth.psn is None:
            forth.psn = p.psn
        distance = ahead(p.psn, forth.psn)
        must(distance <= 0, "PSN 0x%06x where 0x%06x is next", p.psn, forth.psn)
        if part & BEGIN and not part & END:
            must(p.len in (256, 512, 1024, 2048, 4096), "first packet of %d bytes", p.len)
            forth.mtu = back.mtu = p.len
        if part == MIDDLE:
            must(p.len == forth.mtu, "middle packet of %d bytes", p.len)
        if part == LAST:
            must(0 < p.len <= forth.mtu, "last packet of %d bytes", p.len)
        packets = 1
        if op.kind == "read":
            length = p.headers[RETH].dlen
            mtu = forth.mtu or 256
            packets = max(1, -(-length // mtu))
            for i in range(packets):
                left = length - i * mtu
                forth.answers[(p.psn + i) & PSN_MASK] = (i == 0, i == packets - 1, min(mtu, left))
        elif op.kind == "atomic":
            forth.answers[p.psn] = "atomic"
        else:
            forth.sent.add(p.psn)
        if distance < 0:
            # Sent again: the message that it was part of is checked no more.
            if part & BEGIN or forth.part is None:
                forth.part = None
            if not part & END:
                forth.part = "again"
            if distance + packets > 0:
                forth.psn = (p.psn + packets) & PSN_MASK
            return
        forth.psn = (p.psn + packets) & PSN_MASK
        self.message(p, forth)

    def message(self, p, forth):
        """The parts of a message, in their order."""
        op, part = p.op, p.op.part
        reth = p.headers.get(RETH)
        if part & BEGIN:
            must(forth.part in (None, "again"), "a new message within one")
            forth.part = [op.kind, 0, reth.dlen if reth else None]
        if forth.part == "again":
            if part & END:
                forth.part = None
            return
        must(forth.part and forth.part[0] == op.kind, "part of no message")
        forth.part[1] += p.len
        if part & END:
            if op.kind == "write":
                must(forth.part[1] == forth.part[2], "WRITE of %d bytes, %d announced",
                     forth.part[1], forth.part[2])
            forth.part = None

    def response(self, p, forth, back):
        op = p.op
        must(not p.ackreq and not p.solicited, "AckReq or solicited event of a response")
        aeth = p.headers.get(AETH)
        if aeth:
            must(not aeth.syndrome & 0x80, "reserved bit of the AETH")
            must(aeth.syndrome >> 5 != 2, "reserved kind of AETH")
            must(forth.msn is None or ahead(aeth.msn, forth.msn) >= 0 or op.kind == "data",
                 "message count goes back from %s to %d", forth.msn, aeth.msn)
            forth.msn = aeth.msn
        if op.kind == "ack":
            kind = aeth.syndrome >> 5
            if kind == 3:
                must(aeth.syndrome in NAKS, "NAK of kind 0x%02x", aeth.syndrome)
                self.naks.add(NAKS[aeth.syndrome])
            elif kind == 1:
                self.naks.add("RNR")
            else:
                must(p.psn in back.sent or p.psn in back.answers, "ACK for what wasn't sent")
            return
        must(aeth is None or aeth.syndrome >> 5 == 0, "data with a NAK")
        expected = back.answers.get(p.psn)
        must(expected is not None, "%s for what wasn't asked for", op.name)
        if op.kind == "atomic ack":
            must(expected == "atomic", "an atomic's answer to a READ")
            return
        must(expected != "atomic", "a READ's answer to an atomic")
        _, last, length = expected
        must(p.len == length, "READ response of %d bytes, not %d", p.len, length)
        must(bool(op.part & END) == last, "%s at the wrong place", op.name)

    def missing(self):
        """What --want all asks for and wasn't there."""
        out = []
        for code, op in OPS.items():
            if code in RARE:
                continue
            pads = self.seen.get(code, set())
            if not pads:
                out.append(op.name)
            elif op.data and op.part & END and pads != {0, 1, 2, 3}:
                out.append("%s with padding %s" % (op.name, sorted({0, 1, 2, 3} - pads)))
        for nak in ("PSN sequence", "invalid request", "remote access", "remote operational",
                    "RNR"):
            if nak not in self.naks:
                out.append("NAK: " + nak)
        return out


def flip(frames):
    """Packets with one bit changed: is the CRC's coverage what it must be?"""
    rng = random.Random(4791)
    bad = 0
    for frame in rng.sample(frames, min(24, len(frames))):
        raw = bytearray(bytes(frame))
        v4 = IP in frame
        ip = 14
        bth = ip + (20 if v4 else 40) + 8
        end = bth - 8 + frame[UDP].len
        # Addresses, UDP ports, BTH and what follows it, without the byte that is left out.
        covered = list(range(ip + (12 if v4 else 8), bth - 4)) + \
            [i for i in range(bth + 1, end) if i != bth + 4]
        masked = [ip + 1, ip + 8] if v4 else [ip + 2, ip + 7]
        for positions, expect in ((covered, True), (masked, False)):
            i = rng.choice(positions)
            changed = bytearray(raw)
            changed[i] ^= 1 << rng.randrange(8)
            try:
                again = Ether(bytes(changed))
                wrong = bytes(again)[end - 4:end] != again[BTH].compute_icrc(b"")
            except (IndexError, AttributeError):
                # Not recognised as RoCE any more, which is as good.
                wrong = True
            if wrong != expect:
                print("a changed byte at %d of %s is %s" %
                      (i, frame.summary(), "missed" if expect else "taken for an error"))
                bad += 1
    return bad


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--want")
    args.add_argument("--flip", action="store_true")
    args.add_argument("--hosts", default="10.7.0.1,fd07::1", help="addresses of host A")
    args.add_argument("--max", type=int, default=0, help="judge this many packets only")
    args.add_argument("capture")
    args.add_argument("pairs", nargs="?")
    args = args.parse_args()

    pairs = []
    if args.pairs:
        with open(args.pairs, encoding="ascii") as f:
            for line in f:
                m = re.match(r"# pair (\w+) 0x([0-9a-f]+) 0x([0-9a-f]+)", line)
                if m:
                    pairs.append((m[1], (0, int(m[2], 16)), (1, int(m[3], 16))))
        if not pairs:
            sys.exit("no pairs in " + args.pairs)
    frames = list(rdpcap(args.capture, args.max or -1))
    judge = Judge(pairs)
    here = args.hosts.split(",")
    wrong = 0
    for number, frame in enumerate(frames, 1):
        try:
            ip = frame[IP] if IP in frame else frame[IPv6]
            judge.packet(frame, {ip.src: 0 if ip.src in here else 1})
        except Wrong as e:
            wrong += 1
            if wrong <= 10:
                print("packet %d: %s: %s" % (number, e, bytes(frame)[:120].hex()))
    codes = len(judge.seen)
    print("%d packets, %d opcodes, NAKs: %s; %d wrong" %
          (len(frames), codes, ", ".join(sorted(judge.naks)) or "none", wrong))
    if args.want == "all":
        missing = judge.missing()
    else:
        wanted = [int(code, 0) for code in (args.want or "").split(",") if code]
        missing = [OPS[code].name for code in wanted if code not in judge.seen]
    for what in missing:
        print("not there: " + what)
    missed = flip(frames) if args.flip else 0
    sys.exit(1 if wrong or missing or missed or not frames else 0)


if __name__ == "__main__":
    main()
