// SPDX-License-Identifier: GPL-2.0

//! Anything may arrive, in any state: nothing panics, no byte lands outside what was checked (the model host asserts it),
//! and each work request completes at most once, in order, and for certain once the queue pair is in ERR.

pub mod common;

use std::collections::VecDeque;

use common::*;
use rxo_transport::opcode::{
    HeaderSet,
    TABLE, //
};
use rxo_transport::psn::{
    Msn,
    Psn, //
};
use rxo_transport::time::{
    Duration,
    Instant, //
};
use rxo_transport::wire::*;
use rxo_transport::*;

const MEM: usize = 1 << 14;

/// A packet that is nearly right.
fn packet(rng: &mut Rng, n: &Node, mtu: u32) -> Vec<u8> {
    let s = n.qp.status();
    let info = &TABLE[rng.below(TABLE.len() as u64) as usize];
    let near = [
        s.expected_psn,
        s.expected_psn,
        s.expected_psn,
        s.unacked_psn,
        s.unacked_psn,
        s.next_psn,
        s.sent_psn,
        Psn::new(rng.next() as u32),
    ][rng.below(8) as usize];
    let psn = near.add(
        (rng.below(5) as u32)
            .wrapping_sub(2)
            .wrapping_mul(u32::from(rng.permille(300))),
    );
    let mut len = match info.payload {
        opcode::Payload::None => 0,
        opcode::Payload::Full => mtu,
        opcode::Payload::Some => 1 + rng.below(u64::from(mtu)) as u32,
        opcode::Payload::Any => rng.below(u64::from(mtu) + 1) as u32,
        opcode::Payload::Exact(n) => u32::from(n),
    };
    if rng.permille(30)
        && !matches!(
            info.payload,
            opcode::Payload::None | opcode::Payload::Exact(_)
        )
    {
        len = rng.below(1000) as u32;
    }
    let total = match rng.below(8) {
        0 => 0,
        1 => len,
        2 => rng.next() as u32,
        3 => u32::MAX,
        _ if info.position == opcode::Position::Only => len,
        _ => mtu * (2 + rng.below(3) as u32) + 4,
    };
    let va = match rng.below(8) {
        0 => rng.next(),
        1 => u64::MAX - rng.below(600),
        _ => BASE + rng.below(64) * 8,
    };
    let rkey = if rng.permille(950) { 0x77 } else { 0x78 };
    let syndrome = match rng.below(8) {
        0 => rng.next() as u8,
        1 => 0x60 | rng.below(5) as u8,
        2 => 0x20 | rng.below(4) as u8,
        _ => rng.below(32) as u8,
    };
    let deth = Deth {
        qkey: if rng.permille(900) { 0x1234 } else { 1 },
        src_qp: 3,
    };
    let feth = Feth(if rng.permille(900) {
        1 + rng.below(2) as u32 + 16 * rng.below(2) as u32
    } else {
        rng.next() as u32
    });
    let reth = Reth {
        va,
        rkey,
        len: total,
    };
    let atomic = AtomicEth {
        va,
        rkey,
        swap_add: 1,
        compare: 1,
    };
    let aeth = Aeth {
        syndrome: Syndrome::from_byte(syndrome),
        msn: Msn::new(rng.next() as u32),
    };
    let has = |s| info.headers.has(s);
    let h = Headers {
        bth: Bth {
            opcode: info.opcode,
            psn,
            ack_req: rng.permille(700),
            pad: (len.wrapping_neg() & 3) as u8,
            ..Bth::default()
        },
        ext: if has(HeaderSet::DETH) {
            Ext::Datagram(deth)
        } else if has(HeaderSet::RETH) {
            Ext::Flush(feth, reth)
        } else if has(HeaderSet::ATOMIC) {
            Ext::Atomic(atomic)
        } else {
            Ext::AtomicAck(aeth, AtomicAckEth(1))
        },
        tail: if has(HeaderSet::IMM) {
            Tail::Imm(ImmDt(1))
        } else {
            Tail::Invalidate(Ieth(rng.below(2) as u32))
        },
    };
    let mut out = vec![0; MAX_HEADER_LEN];
    let size = h.emit(&mut out);
    out.truncate(size);
    out.resize(size + (len as usize).next_multiple_of(4), 0xaa);
    if rng.permille(30) {
        let at = rng.below(size as u64) as usize;
        out[at] = rng.next() as u8;
    }
    out
}

fn work(rng: &mut Rng, id: u64, ud: bool) -> SendWqe {
    let op = match rng.below(11) {
        0 => SendOp::Send,
        1 => SendOp::SendImm(1),
        2 => SendOp::SendInv(1),
        3 => SendOp::Write,
        4 => SendOp::WriteImm(1),
        5 => SendOp::Read,
        6 => SendOp::CmpSwap {
            compare: 0,
            swap: 1,
        },
        7 => SendOp::FetchAdd { add: 1 },
        8 => SendOp::AtomicWrite,
        9 => SendOp::Flush(FlushKind {
            global: rng.permille(800),
            persistent: rng.permille(300),
            whole: rng.permille(300),
        }),
        _ => SendOp::Local,
    };
    let len = if op.is_atomic() || op == SendOp::AtomicWrite {
        8
    } else {
        rng.below(1500) as u32
    };
    let mut w = wqe(id, op, len, BASE, 0x77);
    w.flags.fence = rng.permille(100);
    w.flags.signaled = rng.permille(500);
    w.ud = ud.then(UdDest::default);
    w
}

fn hostile(seed: u64) {
    hostile_with(Rng::new(seed), seed);
}

/// `rng` chooses the settings and what happens.
pub fn hostile_with(mut rng: Rng, seed: u64) {
    let ty = [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud][rng.below(4) as usize];
    let c = Config {
        ty,
        psn: [0, 0xff_fffe, 0x7f_ffff][rng.below(3) as usize],
        slots: 1 << rng.below(5),
        timeout: 5,
        retry_cnt: rng.below(8) as u8,
        rnr_retry: rng.below(8) as u8,
        max_rd_atomic: rng.below(5) as u8,
        window: 1 + rng.below(10) as u32,
        srq: rng.permille(200),
        ..Config::default()
    };
    let mut n = Node::new(0, &c, MEM);
    n.to_init(&c);
    n.to_rtr(&c, 5, c.psn);
    if rng.permille(900) {
        n.to_rts(&c, c.psn);
    }
    n.host.keys.push(full_key(MEM));
    n.host.absent_every = [0, 0, 2, 5][(seed % 4) as usize];
    let mut now = T0;
    let (mut posted, mut received) = (Vec::new(), 0);
    let mut unreported: Vec<Burst> = Vec::new();
    let mut earlier: VecDeque<Vec<u8>> = VecDeque::new();
    for _ in 0..300 {
        match rng.below(20) {
            0..=9 => {
                // Often one that came before, as it was or nearly so.
                let bytes = if !earlier.is_empty() && rng.permille(300) {
                    let mut bytes = earlier[rng.below(earlier.len() as u64) as usize].clone();
                    if rng.permille(400) {
                        let at = rng.below(MAX_HEADER_LEN.min(bytes.len()) as u64) as usize;
                        bytes[at] = rng.next() as u8;
                    }
                    bytes
                } else {
                    packet(&mut rng, &n, c.mtu.bytes())
                };
                if earlier.len() == 16 {
                    earlier.pop_front();
                }
                earlier.push_back(bytes.clone());
                if let Ok(p) = Headers::parse(&bytes, bytes.len()) {
                    n.host.payload = bytes[p.header_len..p.header_len + p.payload_len].to_vec();
                    // One that found memory absent may as well be lost.
                    let _ = n.qp.on_packet(now, &p, &mut n.host);
                }
            }
            10 | 11 => {
                let w = work(&mut rng, posted.len() as u64, ty.is_datagram());
                if n.post(now, BASE, w).is_ok() {
                    posted.push(w.wr_id);
                }
            }
            12 => {
                n.post_recv(received, BASE, rng.below(2000) as u32);
                received += 1;
                if rng.permille(20) {
                    n.host.recvs.back_mut().unwrap().fault = Some(WcStatus::LocQpOpErr);
                }
            }
            13..=15 => {
                if let Some(b) =
                    n.qp.poll_transmit(now, 1 + rng.below(5) as u32, &mut n.host)
                {
                    let mut stepped = b.packet(0);
                    for i in 1..b.count + 1 {
                        b.step(&mut stepped, i);
                        assert_eq!(stepped, b.packet(i));
                    }
                    // Nothing is sent from outside of what was opened or posted.
                    let room = match b.source {
                        Source::None => 0,
                        Source::Send { slot } => n.qp.wqe(slot).unwrap().length,
                        Source::Read { resource } => n.qp.region(resource).unwrap().len,
                    };
                    assert!(b.offset.checked_add(b.len).unwrap() <= room || b.len == 0);
                    unreported.push(b);
                }
            }
            16 | 17 => {
                // Reports come late, also after the queue pair has gone on.
                for b in unreported.drain(..) {
                    let result = if rng.permille(30) {
                        Err(WcStatus::LocProtErr)
                    } else {
                        Ok(())
                    };
                    n.qp.sent(now, &b, result, &mut n.host);
                }
            }
            18 => {
                now = now.saturating_add(Duration::from_micros(rng.below(200)));
                n.qp.on_deadline(now, &mut n.host);
            }
            _ => {
                let r = rng.below(100);
                let to = match r {
                    0 => Some(QpState::Err),
                    1..=10 => Some(QpState::Sqd),
                    11..=40 => Some(QpState::Rts),
                    _ => None,
                };
                let a = QpAttr {
                    state: to,
                    en_sqd_async_notify: (to == Some(QpState::Sqd)).then_some(true),
                    ..QpAttr::default()
                };
                let _ = n.qp.modify(now, &a, &mut n.host);
                n.host.place_fault = rng.permille(10).then_some(WcStatus::LocProtErr);
                n.host.remote_fault = rng.permille(10).then_some(KeyFault::Operational);
                n.host.local_fault = rng.permille(50).then_some(WcStatus::LocQpOpErr);
            }
        }
        let done: Vec<u64> = n.host.send_cq.iter().map(|d| d.wr_id).collect();
        assert_eq!(done[..], posted[..done.len()], "seed {seed}");
        let s = n.qp.status();
        assert_eq!(
            s.send_queue_used as usize,
            posted.len() - done.len(),
            "seed {seed}"
        );
        if s.state == QpState::Err {
            assert_eq!(s.send_queue_used, 0);
            assert_eq!(s.timer, None);
        }
        n.host.traces.clear();
    }
    let to_err = QpAttr {
        state: Some(QpState::Err),
        ..QpAttr::default()
    };
    n.qp.modify(now, &to_err, &mut n.host).unwrap();
    n.qp.flush_recv(&mut n.host);
    assert_eq!(n.host.send_cq.len(), posted.len());
    let order: Vec<u64> = n.host.recv_cq.iter().map(|d| d.wr_id).collect();
    let all: Vec<u64> = (0..received).collect();
    assert_eq!(order[..], all[..order.len()]);
    if !c.srq {
        assert_eq!(order.len() as u64, received);
    }
    assert!(n.host.current.is_none());
    // A last NAK may leave; nothing else, and not for ever.
    let mut left = 0;
    while let Some(b) = n.qp.poll_transmit(now, 100, &mut n.host) {
        assert!(!b.is_request());
        n.qp.sent(now, &b, Ok(()), &mut n.host);
        left += 1;
        assert!(left < 100);
    }
    let _ = Instant::default();
}

#[test]
fn anything_may_arrive() {
    let runs = std::env::var("RXO_SOAK")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(3000);
    for seed in 1..=runs {
        hostile(seed);
    }
}
