// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs over a link: every posted request completes exactly once, in order, with the right data.

pub mod common;

use common::*;
use rxo_transport::*;

const MEM: usize = 1 << 17;
const RKEY: u32 = 0x77;

/// The kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CmpSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    Local,
}

const RC_KINDS: &[Kind] = &[
    Kind::Send,
    Kind::SendImm,
    Kind::SendInv,
    Kind::Write,
    Kind::WriteImm,
    Kind::Read,
    Kind::CmpSwap,
    Kind::FetchAdd,
    Kind::AtomicWrite,
    Kind::Flush,
    Kind::Local,
];

/// A request with its own piece of memory on both sides.
#[derive(Clone, Copy, Debug)]
struct Job {
    wr_id: u64,
    kind: Kind,
    len: u32,
    addr: u64,
    /// Of an atomic: what its target holds before.
    before: u64,
    signaled: bool,
}

/// What is expected of the requests of one side.
struct Plan {
    side: usize,
    jobs: Vec<Job>,
    next_addr: u64,
}

impl Plan {
    /// The memory of each side is halved: what it sends and what it is sent.
    fn new(side: usize) -> Self {
        Self {
            side,
            jobs: Vec::new(),
            next_addr: BASE + (side * MEM / 2) as u64,
        }
    }

    fn has_room(&self, len: u32) -> bool {
        self.next_addr + u64::from(len) + 16 <= BASE + ((self.side + 1) * MEM / 2) as u64
    }

    /// Posts a job if the queue has room.
    fn post(&mut self, pair: &mut Pair, kind: Kind, len: u32, signaled: bool, fence: bool) -> bool {
        let wr_id = self.jobs.len() as u64;
        let atomic = matches!(kind, Kind::CmpSwap | Kind::FetchAdd);
        let len = match kind {
            Kind::Local | Kind::Flush => 0,
            _ if atomic || kind == Kind::AtomicWrite => 8,
            _ => len,
        };
        let addr = self.next_addr;
        let (mine, peer) = (self.side, 1 - self.side);
        // SEND: from addr here to addr there, where the receive lies. The same for all others.
        let source = if kind == Kind::Read || atomic {
            peer
        } else {
            mine
        };
        let salt = pair.rng.next();
        for (i, b) in pair.nodes[source]
            .host
            .bytes_mut(addr, len)
            .iter_mut()
            .enumerate()
        {
            *b = (salt >> (i % 8 * 8)) as u8 ^ (i / 8) as u8;
        }
        let before = if atomic {
            u64::from_le_bytes(pair.nodes[peer].host.bytes(addr, 8).try_into().unwrap())
        } else {
            0
        };
        let tag = (wr_id as u32) ^ 0xabcd_0000;
        let op = match kind {
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm(tag),
            Kind::SendInv => SendOp::SendInv(0x1000_0000 + wr_id as u32),
            Kind::Write => SendOp::Write,
            Kind::WriteImm => SendOp::WriteImm(tag),
            Kind::Read => SendOp::Read,
            Kind::CmpSwap => SendOp::CmpSwap {
                compare: if wr_id.is_multiple_of(3) {
                    before.wrapping_add(1)
                } else {
                    before
                },
                swap: wr_id,
            },
            Kind::FetchAdd => SendOp::FetchAdd { add: wr_id + 1 },
            Kind::AtomicWrite => SendOp::AtomicWrite,
            Kind::Flush => SendOp::Flush(FlushKind {
                global: true,
                whole: wr_id.is_multiple_of(2),
                ..FlushKind::default()
            }),
            Kind::Local => SendOp::Local,
        };
        // What a FLUSH names isn't sent.
        let range = if kind == Kind::Flush { 16 } else { len };
        let w = SendWqe {
            flags: SendFlags {
                signaled,
                fence,
                ..SendFlags::default()
            },
            ..wqe(wr_id, op, range, addr, RKEY)
        };
        if kind == Kind::SendInv {
            pair.nodes[peer].host.keys.push(Key {
                rkey: 0x1000_0000 + wr_id as u32,
                va: 0,
                len: 0,
                read: false,
                write: false,
                atomic: false,
            });
        }
        if pair.post(mine, addr, w).is_err() {
            return false;
        }
        self.next_addr = (addr + u64::from(len) + 7) & !7;
        self.jobs.push(Job {
            wr_id,
            kind,
            len,
            addr,
            before,
            signaled,
        });
        true
    }

    /// The receives that the jobs need, in order.
    fn receives(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|j| {
            matches!(
                j.kind,
                Kind::Send | Kind::SendImm | Kind::SendInv | Kind::WriteImm
            )
        })
    }

    /// Posts the receive of the `n`th job that needs one.
    fn post_recv(&self, pair: &mut Pair, n: usize) -> bool {
        let Some(j) = self.receives().nth(n) else {
            return false;
        };
        let (wr_id, addr, len) = (j.wr_id, j.addr, j.len);
        pair.nodes[1 - self.side].post_recv(wr_id, addr, len);
        true
    }

    fn check(&self, pair: &Pair) {
        let (mine, peer) = (&pair.nodes[self.side].host, &pair.nodes[1 - self.side].host);
        assert_eq!(mine.send_cq.len(), self.jobs.len(), "send completions");
        for (j, done) in self.jobs.iter().zip(&mine.send_cq) {
            assert_eq!(done.wr_id, j.wr_id, "order");
            assert_eq!(done.status, WcStatus::Success, "{j:?}");
            assert_eq!(done.signal, j.signaled);
            assert_eq!(done.byte_len, j.len);
            let (here, there) = (mine.bytes(j.addr, j.len), peer.bytes(j.addr, j.len));
            match j.kind {
                Kind::CmpSwap | Kind::FetchAdd => {
                    let here = u64::from_le_bytes(here.try_into().unwrap());
                    let there = u64::from_le_bytes(there.try_into().unwrap());
                    assert_eq!(here, j.before, "original of {j:?}");
                    let after = match j.kind {
                        Kind::FetchAdd => j.before.wrapping_add(j.wr_id + 1),
                        _ if j.wr_id.is_multiple_of(3) => j.before,
                        _ => j.wr_id,
                    };
                    assert_eq!(there, after, "target of {j:?}");
                }
                _ => assert_eq!(here, there, "data of {j:?}"),
            }
        }
        let wanted: Vec<&Job> = self.receives().collect();
        assert_eq!(peer.recv_cq.len(), wanted.len(), "receive completions");
        for (j, done) in wanted.iter().zip(&peer.recv_cq) {
            assert_eq!(done.wr_id, j.wr_id, "order of receives");
            assert_eq!(done.c.status, WcStatus::Success);
            assert_eq!(done.c.byte_len, j.len);
            let imm = matches!(j.kind, Kind::SendImm | Kind::WriteImm);
            assert_eq!(done.c.imm, imm.then_some((j.wr_id as u32) ^ 0xabcd_0000));
            let inv = j.kind == Kind::SendInv;
            assert_eq!(
                done.c.invalidated,
                inv.then_some(0x1000_0000 + j.wr_id as u32)
            );
            let op = if j.kind == Kind::WriteImm {
                RecvOp::WriteImm
            } else {
                RecvOp::Recv
            };
            assert_eq!(done.c.op, op);
        }
        let atomics = self
            .jobs
            .iter()
            .filter(|j| matches!(j.kind, Kind::CmpSwap | Kind::FetchAdd))
            .count();
        assert_eq!(peer.atomics as usize, atomics, "atomics carried out");
        let of = |kind| self.jobs.iter().filter(|j| j.kind == kind).count();
        assert_eq!(peer.atomic_writes as usize, of(Kind::AtomicWrite));
        assert_eq!(peer.flushes.len(), of(Kind::Flush));
        assert_eq!(
            mine.local_ops.len(),
            self.jobs.iter().filter(|j| j.kind == Kind::Local).count()
        );
    }
}

fn pair(c: &Config, seed: u64) -> Pair {
    let mut p = Pair::new(c, MEM, seed);
    for n in &mut p.nodes {
        n.host.keys.push(full_key(MEM));
    }
    p
}

/// One request of each kind and size, alone, without loss.
#[test]
fn every_operation_every_size() {
    for mtu in Mtu::ALL {
        let m = mtu.bytes();
        for psn in [0, 0xff_fff0, 0xff_ffff] {
            for kind in RC_KINDS {
                for len in [0, 1, m - 1, m, m + 1, 3 * m, 3 * m + 5] {
                    let c = Config {
                        mtu,
                        psn,
                        ..Config::default()
                    };
                    let mut p = pair(&c, 1);
                    let mut plan = Plan::new(0);
                    assert!(plan.post(&mut p, *kind, len, true, false));
                    plan.post_recv(&mut p, 0);
                    p.run();
                    plan.check(&p);
                    for n in &p.nodes {
                        assert_eq!(n.host.counted(Counter::TxRetransmits), 0);
                        assert_eq!(n.host.counted(Counter::Timeouts), 0);
                    }
                }
            }
        }
    }
}

/// Loses the `n`th packet of a side, `times` times where it comes again.
fn lose(p: &mut Pair, side: usize, n: usize, times: usize) {
    let mut lost: Option<(u8, [u8; 3])> = None;
    let mut left = times;
    p.filter = Some(Box::new(move |s, i, bytes| {
        let id = (bytes[0], [bytes[9], bytes[10], bytes[11]]);
        if s != side || left == 0 {
            return true;
        }
        if i == n || lost.is_some_and(|l| l.1 == id.1) {
            lost = Some(id);
            left -= 1;
            return false;
        }
        true
    }));
}

/// Each single packet of either side lost once or twice.
#[test]
fn every_operation_every_loss() {
    for psn in [0, 0xff_fff0] {
        for kind in RC_KINDS {
            for len in [0, 1, 256, 257, 768] {
                for side in 0..2 {
                    for times in 1..3 {
                        for n in 0..8 {
                            let c = Config {
                                psn,
                                ..Config::default()
                            };
                            let mut p = pair(&c, 2);
                            lose(&mut p, side, n, times);
                            let mut plan = Plan::new(0);
                            plan.post(&mut p, Kind::Write, 10, true, false);
                            plan.post(&mut p, *kind, len, true, false);
                            plan.post(&mut p, Kind::Read, 300, true, false);
                            plan.post(&mut p, *kind, len, false, true);
                            plan.post(&mut p, Kind::Send, 5, true, false);
                            for i in 0..5 {
                                plan.post_recv(&mut p, i);
                            }
                            p.run();
                            plan.check(&p);
                        }
                    }
                }
            }
        }
    }
}

/// One seeded run of both directions.
fn soak(seed: u64, verbose: bool) -> Events {
    soak_with(Rng::new(seed), Rng::new(seed ^ 0x5555), seed, verbose)
}

/// A run of both directions: `rng` chooses the settings and what is posted when, `weather` what the link does.
pub fn soak_with(mut rng: Rng, weather: Rng, seed: u64, verbose: bool) -> Events {
    let pick = |rng: &mut Rng, of: &[u32]| of[rng.below(of.len() as u64) as usize];
    let c = Config {
        mtu: [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024][rng.below(3) as usize],
        psn: pick(&mut rng, &[0, 0xff_fff0, 0x7f_fff0, 0x12_3456]),
        slots: pick(&mut rng, &[1, 4, 16, 64]) as usize,
        max_rd_atomic: pick(&mut rng, &[1, 2, 4, 16]) as u8,
        window: pick(&mut rng, &[1, 2, 5, 32, 256]),
        srq: rng.permille(300),
        // Never to run out.
        timeout: 6,
        ..Config::default()
    };
    let mut p = pair(&c, 0);
    p.rng = weather;
    for node in &mut p.nodes {
        node.host.absent_every = [0, 2, 3, 50][(seed % 4) as usize];
    }
    p.weather = Weather {
        loss: pick(&mut rng, &[0, 10, 50, 150, 400]),
        duplicate: pick(&mut rng, &[0, 20, 100]),
        reorder: pick(&mut rng, &[0, 20, 200]),
        refuse: pick(&mut rng, &[0, 0, 100, 500]),
        delay: 1000,
        jitter: u64::from(pick(&mut rng, &[0, 10, 5000])),
    };
    p.budget = pick(&mut rng, &[1, 3, 16, 64]);
    if verbose {
        eprintln!("seed {seed}: {c:?} {:?} budget {}", p.weather, p.budget);
    }
    let mut plans = [Plan::new(0), Plan::new(1)];
    let mut posted_recvs = [0; 2];
    let mut full = [false; 2];
    let jobs = 60;
    for turn in 0.. {
        assert!(
            turn < 400_000,
            "livelock, seed {seed}: {:?} {:?}",
            p.nodes[0].qp.status(),
            p.nodes[1].qp.status()
        );
        let mut busy = false;
        for side in 0..2 {
            let plan = &mut plans[side];
            if !full[side] && rng.permille(300) {
                let kind = RC_KINDS[rng.below(RC_KINDS.len() as u64) as usize];
                let max = u64::from(c.mtu.bytes()) * 4;
                let len = if rng.permille(100) {
                    0
                } else {
                    rng.below(max) as u32
                };
                if plan.has_room(len) && plan.jobs.len() < jobs {
                    plan.post(&mut p, kind, len, rng.permille(500), rng.permille(100));
                } else {
                    full[side] = true;
                }
            }
            // Receives come late at times.
            if rng.permille(200) && plan.post_recv(&mut p, posted_recvs[side]) {
                posted_recvs[side] += 1;
            }
            let done = p.nodes[side].host.send_cq.len() == plan.jobs.len();
            busy |= !full[side] || !done;
        }
        let moved = p.step();
        if !busy && !moved {
            break;
        }
    }
    if std::env::var("RXO_LOG").is_ok() {
        for n in &p.nodes {
            eprintln!("{:?}", n.qp.status());
            for c in Counter::ALL {
                eprint!("{} {}, ", c.name(), n.host.counted(*c));
            }
            eprintln!();
            for t in &n.host.traces {
                eprintln!("{t:?}");
            }
        }
        eprintln!("{:x?}", p.log);
    }
    for plan in &plans {
        plan.check(&p);
    }
    p.events
}

/// As many random events on the link as RXO_EVENTS says: packets that arrive, are lost, doubled or overtaken, and timers.
#[test]
fn soak_events() {
    let wanted = std::env::var("RXO_EVENTS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(100_000);
    let (mut sum, mut seed) = (Events::default(), 1_000_000);
    while sum.total() < wanted {
        sum.add(&soak(seed, false));
        seed += 1;
    }
    println!(
        "{} events in {} runs, none against the rules: {sum:?}",
        sum.total(),
        seed - 1_000_000
    );
}

#[test]
fn soak_some() {
    let runs = std::env::var("RXO_SOAK")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(300);
    let verbose = std::env::var("RXO_VERBOSE").is_ok();
    let first = std::env::var("RXO_SEED")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(1);
    for seed in first..first + runs {
        soak(seed, verbose);
    }
}

/// Unreliable messages over a bad link: what arrives is whole and in order, what does not is not seen.
fn unreliable(ty: QpType, seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let c = Config {
        ty,
        psn: 0xff_fff0,
        ..Config::default()
    };
    let mut p = pair(&c, seed);
    p.weather = Weather {
        loss: 50,
        duplicate: 0,
        reorder: rng.below(2) as u32 * 20,
        refuse: 0,
        delay: 1000,
        jitter: 0,
    };
    const LEN: u32 = 700;
    const GRH: u64 = 40;
    let grh = if ty == QpType::Ud { GRH } else { 0 };
    let count = 64;
    for id in 0..count {
        // Each message is filled with its number, and so long that no other has its length.
        let len = if ty == QpType::Ud {
            id as u32
        } else {
            LEN - id as u32
        };
        let from = BASE + id * 1024;
        p.nodes[0].host.bytes_mut(from, len).fill(id as u8);
        let into = BASE + id * 1024;
        p.nodes[1].post_recv(id, into, LEN + 40);
        let op = if rng.permille(500) {
            SendOp::Send
        } else {
            SendOp::SendImm(id as u32)
        };
        let w = SendWqe {
            ud: (ty == QpType::Ud).then_some(UdDest {
                qpn: QPN[1],
                qkey: 0x1234,
                ..UdDest::default()
            }),
            ..wqe(id, op, len, 0, 0)
        };
        p.post(0, from, w).unwrap();
        p.step();
    }
    p.run();
    let sent: Vec<u64> = p.nodes[0].host.send_cq.iter().map(|d| d.wr_id).collect();
    assert_eq!(sent, (0..count).collect::<Vec<_>>());
    let host = &p.nodes[1].host;
    let mut before = None;
    for (n, done) in host.recv_cq.iter().enumerate() {
        assert_eq!(done.wr_id, n as u64);
        assert_eq!(done.c.status, WcStatus::Success);
        let len = done.c.byte_len - grh as u32;
        let id = if ty == QpType::Ud { len } else { LEN - len };
        if let Some(imm) = done.c.imm {
            assert_eq!(imm, id);
        }
        if ty == QpType::Uc || p.weather.reorder == 0 {
            assert!(before < Some(id), "order, seed {seed}");
        }
        before = Some(id);
        let data = host.bytes(BASE + done.wr_id * 1024 + grh, len);
        assert!(data.iter().all(|b| *b == id as u8), "data, seed {seed}");
    }
    assert_eq!(p.sent[1], 0, "an unreliable peer answers nothing");
    host.recv_cq.len()
}

#[test]
fn unreliable_messages_arrive_whole_or_not_at_all() {
    for ty in [QpType::Uc, QpType::Ud] {
        let arrived: usize = (1..100).map(|seed| unreliable(ty, seed)).sum();
        assert!(
            arrived > 99 * 64 / 2 && arrived < 99 * 64,
            "{ty:?}: {arrived}"
        );
    }
}
