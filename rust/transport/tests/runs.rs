// SPDX-License-Identifier: GPL-2.0

//! Runs: the middle of a message taken in as one does what it does packet by packet.

pub mod common;

use common::*;
use rxo_transport::opcode::Opcode;
use rxo_transport::psn::Psn;
use rxo_transport::wire::Bth;
use rxo_transport::*;

const MEM: usize = 1 << 18;
const HALF: u64 = BASE + MEM as u64 / 2;
const RKEY: u32 = 0x77;

/// Two queue pairs that are connected, side 0 with everything to send.
struct World {
    nodes: [Node; 2],
    by_runs: bool,
    /// Runs that were offered, and those taken.
    runs: [u32; 2],
}

impl World {
    fn new(c: &Config, by_runs: bool) -> Self {
        let nodes = [0, 1].map(|side| {
            let mut n = Node::new(side, c, MEM);
            for (i, b) in n.host.mem.iter_mut().enumerate() {
                *b = (i * 7 + i / 256 + side * 91) as u8;
            }
            n.host.keys.push(Key {
                rkey: RKEY,
                ..full_key(MEM)
            });
            n.to_init(c);
            n.to_rtr(c, QPN[1 - side], c.psn);
            n.to_rts(c, c.psn);
            n
        });
        Self {
            nodes,
            by_runs,
            runs: [0; 2],
        }
    }

    /// Moves everything there is to move; drops each packet or run whose turn is in `lost`.
    fn settle(&mut self, budget: u32, lost: &mut impl FnMut() -> bool) {
        let mut moved = true;
        while moved {
            moved = false;
            for side in [0, 1] {
                let (a, b) = self.nodes.split_at_mut(1);
                let (from, to) = if side == 0 {
                    (&mut a[0], &mut b[0])
                } else {
                    (&mut b[0], &mut a[0])
                };
                while let Some(burst) = from.qp.poll_transmit(T0, budget, &mut from.host) {
                    moved = true;
                    let mut i = 0;
                    while i < burst.count {
                        if let Some((p, count)) = burst.run(i).filter(|_| self.by_runs) {
                            let va = match burst.source {
                                Source::None => panic!("a run without payload"),
                                Source::Send { slot } => from.host.local[slot as usize],
                                Source::Read { resource } => from.qp.region(resource).unwrap().va,
                            };
                            to.host.payload =
                                from.host.bytes(va + u64::from(p.offset), p.len).to_vec();
                            let parsed = rxo_transport::wire::Parsed {
                                headers: p.headers,
                                header_len: 0,
                                payload_len: p.len as usize,
                            };
                            self.runs[0] += 1;
                            if to.qp.on_run(T0, &parsed, count, &mut to.host) {
                                self.runs[1] += 1;
                                i += count;
                                continue;
                            }
                        }
                        let bytes = from.build(&burst, i);
                        if !lost() {
                            to.deliver(T0, &bytes);
                        }
                        i += 1;
                    }
                    from.qp.sent(T0, &burst, Ok(()), &mut from.host);
                }
            }
        }
    }

    fn post(&mut self, i: u64, op: SendOp, len: u32) {
        let to = match op {
            SendOp::Send | SendOp::SendImm(_) => 0,
            _ => HALF + i * 0x2000,
        };
        if op.takes_receive() {
            self.nodes[1].post_recv(i, HALF + i * 0x2000, 0x2000);
        }
        self.nodes[0]
            .post(T0, BASE + i * 0x2000, wqe(i, op, len, to, RKEY))
            .unwrap();
    }

    /// Everything that can be seen of a world.
    fn outcome(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|n| {
                let h = &n.host;
                format!(
                    "{:?} {:?} {:?} {:?} {:?} {:?} {}",
                    n.qp.status(),
                    n.qp.state(),
                    h.counts,
                    h.send_cq,
                    h.recv_cq,
                    h.events,
                    h.mem
                        .iter()
                        .fold(0u64, |a, b| a.wrapping_mul(31).wrapping_add(u64::from(*b))),
                )
            })
            .collect()
    }
}

#[test]
fn runs_are_what_packets_are() {
    let ops = [
        SendOp::Send,
        SendOp::SendImm(7),
        SendOp::Write,
        SendOp::WriteImm(8),
        SendOp::Read,
    ];
    let mut taken = 0;
    for ty in [QpType::Rc, QpType::Uc] {
        for psn in [0, 0xff_fff0] {
            for budget in [1, 3, 5, 64] {
                for len in [0, 1, 256, 257, 512, 768, 769, 2048, 5000, 8192] {
                    let c = Config {
                        ty,
                        psn,
                        ..Config::default()
                    };
                    let mut worlds = [false, true].map(|by_runs| World::new(&c, by_runs));
                    for w in &mut worlds {
                        for (i, op) in ops.into_iter().enumerate() {
                            if ty == QpType::Rc || op != SendOp::Read {
                                w.post(i as u64, op, len);
                            }
                        }
                        w.settle(budget, &mut || false);
                    }
                    let [packets, runs] = &worlds;
                    assert_eq!(
                        packets.outcome(),
                        runs.outcome(),
                        "{ty:?} {psn:#x} {budget} {len}"
                    );
                    assert_eq!(
                        runs.nodes[0].host.send_cq.len(),
                        if ty == QpType::Rc { 5 } else { 4 }
                    );
                    assert_eq!(runs.runs[0], runs.runs[1], "a run in order was not taken");
                    taken += runs.runs[1];
                }
            }
        }
    }
    assert!(taken > 500, "{taken} runs");
}

/// What is not in order, does not fit or is not allowed is left to packets, untouched.
#[test]
fn what_is_unusual_is_refused() {
    let c = Config::default();
    let mut w = World::new(&c, true);
    // Credits are known from then on.
    w.post(0, SendOp::Send, 1);
    w.nodes[1].post_recv(1, HALF, 1000);
    w.settle(64, &mut || false);
    w.nodes[0]
        .post(T0, BASE, wqe(1, SendOp::Send, 2048, 0, 0))
        .unwrap();
    let [a, b] = &mut w.nodes;
    let burst = a.qp.poll_transmit(T0, 64, &mut a.host).unwrap();
    let (p, count) = burst.run(1).unwrap();
    assert_eq!((count, p.len), (6, 6 * 256));
    assert_eq!(burst.run(0), None, "the first is no middle");
    assert_eq!(burst.run(6), None, "one packet is no run");
    assert_eq!(burst.run(7), None, "the last is no middle");
    let parsed = |psn: psn::Psn, len: usize| {
        let mut headers = p.headers;
        headers.bth.psn = psn;
        rxo_transport::wire::Parsed {
            headers,
            header_len: 0,
            payload_len: len,
        }
    };
    b.host.payload = a.host.bytes(BASE + 256, 6 * 256).to_vec();
    let before = format!("{:?} {:?}", b.qp.status(), b.host.counts);
    // Before the first; then ahead, of a wrong length, and beyond the receive.
    assert!(!b
        .qp
        .on_run(T0, &parsed(p.headers.bth.psn, 6 * 256), 6, &mut b.host));
    assert_eq!(before, format!("{:?} {:?}", b.qp.status(), b.host.counts));
    b.deliver(T0, &a.build(&burst, 0));
    let next = p.headers.bth.psn;
    b.host.payload = a.host.bytes(BASE + 256, 6 * 256).to_vec();
    let before = format!("{:?} {:?}", b.qp.status(), b.host.counts);
    assert!(!b
        .qp
        .on_run(T0, &parsed(next.next(), 6 * 256), 6, &mut b.host));
    assert!(!b.qp.on_run(T0, &parsed(next, 6 * 256 - 4), 6, &mut b.host));
    assert!(!b.qp.on_run(T0, &parsed(next, 6 * 256), 5, &mut b.host));
    assert!(!b.qp.on_run(T0, &parsed(next, 6 * 256), 6, &mut b.host));
    assert!(!b
        .qp
        .on_run(T0, &parsed(next, usize::MAX), u32::MAX, &mut b.host));
    assert_eq!(before, format!("{:?} {:?}", b.qp.status(), b.host.counts));
}

/// With losses, by runs and by packets, everything arrives.
#[test]
fn losses_between_runs() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let c = Config {
            timeout: 0,
            ..Config::default()
        };
        let mut w = World::new(&c, true);
        for i in 0..6 {
            let op = [SendOp::Send, SendOp::Write, SendOp::Read][i as usize % 3];
            w.post(i, op, 3000 + 700 * i as u32);
        }
        // What is lost is made good by NAKs or by nothing, without a timer: then by a new attempt.
        let mut left = 4;
        w.settle(16, &mut || {
            left > 0 && rng.permille(200) && {
                left -= 1;
                true
            }
        });
        for s in &w.nodes[0].host.send_cq {
            assert_eq!(s.status, WcStatus::Success, "seed {seed}");
            let i = s.wr_id;
            let len = 3000 + 700 * i as u32;
            let (here, there) = (BASE + i * 0x2000, HALF + i * 0x2000);
            assert_eq!(
                w.nodes[0].host.bytes(here, len),
                w.nodes[1].host.bytes(there, len),
                "seed {seed}, request {i}"
            );
        }
    }
}

#[test]
fn only_the_next_packet_of_a_middle_follows() {
    let first = Bth {
        opcode: Opcode::RC_WRITE_MIDDLE,
        migreq: true,
        pkey: 0xffff,
        dest_qp: 0x1234,
        psn: Psn::new(0xff_ffff),
        ..Bth::default()
    };
    let next = Bth {
        psn: Psn::new(0),
        ..first
    };
    assert!(first.is_followed_by(&next, 1));
    assert!(!first.is_followed_by(&next, 2));
    assert!(first.is_followed_by(
        &Bth {
            psn: Psn::new(5),
            ..next
        },
        6
    ));
    type Change = fn(&mut Bth);
    let changes: [(Change, bool); 11] = [
        (|b| b.ack_req = true, true),
        (|b| b.fecn = true, true),
        (|b| b.becn = true, true),
        (|b| b.psn = Psn::new(1), false),
        (|b| b.opcode = Opcode::RC_WRITE_LAST, false),
        (|b| b.opcode = Opcode::RC_SEND_MIDDLE, false),
        (|b| b.dest_qp = 0x1235, false),
        (|b| b.pkey = 0x7fff, false),
        (|b| b.solicited = true, false),
        (|b| b.migreq = false, false),
        (|b| b.pad = 1, false),
    ];
    for (i, (change, follows)) in changes.iter().enumerate() {
        let mut other = next;
        change(&mut other);
        assert_eq!(first.is_followed_by(&other, 1), *follows, "change {i}");
    }
    for opcode in [
        Opcode::RC_WRITE_FIRST,
        Opcode::RC_WRITE_LAST,
        Opcode::RC_ACKNOWLEDGE,
    ] {
        let (first, next) = (Bth { opcode, ..first }, Bth { opcode, ..next });
        assert!(!first.is_followed_by(&next, 1));
    }
}
