// SPDX-License-Identifier: GPL-2.0

//! What the transport costs a packet, apart from the kernel: `cargo bench`.
//!
//! Two queue pairs of a host with a model memory; each stage is timed over all packets of a round, of which the best of
//! several counts. The smallest path MTU, so that moving the payload is the least part of it.

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::{
    Duration,
    Instant, //
};

use common::*;
use rxo_transport::wire::{
    crc32,
    Headers,
    MAX_HEADER_LEN, //
};
use rxo_transport::*;

const MTU: u32 = 256;
const MEM: usize = 1 << 20;
const KEY: u32 = 0x77;
/// Packets of a round, however many messages they are.
const PACKETS: u32 = 128;
const ROUNDS: u32 = 4000;
/// The most READs at once.
const READS: u8 = 16;

/// One packet as bytes, in one place.
struct Wire {
    header: [u8; MAX_HEADER_LEN],
    header_len: usize,
    payload: u32,
}

#[derive(Clone, Copy)]
struct Stages {
    requester: Duration,
    responder: Duration,
    answers: Duration,
    completer: Duration,
}

/// Everything that the node has to send, up to a burst of 16 packets at once, as headers.
fn transmit(n: &mut Node, out: &mut Vec<Wire>) {
    while let Some(burst) = n.qp.poll_transmit(T0, 16, &mut n.host) {
        for i in 0..burst.count {
            let p = burst.packet(i);
            let mut header = [0; MAX_HEADER_LEN];
            let header_len = p.headers.emit(&mut header);
            out.push(Wire {
                header,
                header_len,
                payload: p.len,
            });
        }
        n.qp.sent(T0, &burst, Ok(()), &mut n.host);
    }
}

fn receive(n: &mut Node, packets: &[Wire]) {
    for w in packets {
        let len = w.header_len + w.payload as usize;
        let p = Headers::parse(&w.header, len).expect("malformed");
        n.host.payload.resize(w.payload as usize, 0);
        assert_eq!(n.qp.on_packet(T0, &p, &mut n.host), Verdict::Done);
    }
}

fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// So many messages of so many packets: the best time of each stage of a round, and how many answers there were.
fn rounds(op: SendOp, messages: u32, packets: u32) -> (Stages, usize) {
    let c = Config {
        window: 2 * PACKETS,
        slots: 2 * PACKETS as usize,
        max_rd_atomic: READS,
        ..Config::default()
    };
    let mut pair = Pair::new(&c, MEM, 1);
    let [a, b] = &mut pair.nodes;
    b.host.keys.push(full_key(MEM));
    b.host.no_credits = true;
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    let mut best = Stages {
        requester: Duration::MAX,
        responder: Duration::MAX,
        answers: Duration::MAX,
        completer: Duration::MAX,
    };
    for round in 0..ROUNDS {
        // The first message finds out that credits are not limited.
        let (messages, of) = if round == 0 {
            (1, 1)
        } else {
            (messages, packets)
        };
        requests.clear();
        answers.clear();
        a.host.send_cq.clear();
        b.host.recv_cq.clear();
        if op == SendOp::Send {
            (0..messages).for_each(|i| b.post_recv(i.into(), BASE, of * MTU));
        }
        let requester = timed(|| {
            for i in 0..messages {
                let message = wqe(i.into(), op, of * MTU, BASE, KEY);
                a.post(T0, BASE, message).expect("posted");
            }
            transmit(a, &mut requests);
        });
        let responder = timed(|| receive(b, &requests));
        let answered = timed(|| transmit(b, &mut answers));
        let completer = timed(|| receive(a, &answers));
        assert_eq!(a.host.send_cq.len(), messages as usize);
        assert!(a.host.send_cq.iter().all(|d| d.status == WcStatus::Success));
        if round > 0 {
            best.requester = best.requester.min(requester);
            best.responder = best.responder.min(responder);
            best.answers = best.answers.min(answered);
            best.completer = best.completer.min(completer);
        }
    }
    (best, answers.len())
}

fn ns(time: Duration, n: f64) -> f64 {
    time.as_secs_f64() * 1e9 / n
}

fn main() {
    println!("ns for each packet of data, up to {PACKETS} at once; [answers] are what the responder sends, in ns for each of them");
    println!("                requester responder  completer    [answers]");
    for (name, op) in [
        ("WRITE", SendOp::Write),
        ("SEND", SendOp::Send),
        ("READ", SendOp::Read),
    ] {
        for packets in [1, 64] {
            let most = if op == SendOp::Read {
                READS.into()
            } else {
                PACKETS
            };
            let messages = (PACKETS / packets).min(most);
            let (s, answers) = rounds(op, messages, packets);
            let each = f64::from(messages * packets);
            println!(
                "{:<16} {:>8.1}  {:>8.1}   {:>8.1}     {:>8.1} x {answers}",
                format!("{name} of {packets}"),
                ns(s.requester, each),
                ns(s.responder, each),
                ns(s.completer, each),
                ns(s.answers, answers as f64),
            );
        }
    }
    let data = vec![0x5a; 4096];
    let crc = (0..ROUNDS)
        .map(|_| {
            timed(|| {
                black_box(crc32::update(!0, black_box(&data)));
            })
        })
        .min();
    println!(
        "CRC-32 of 4096 bytes: {:.0} ns",
        ns(crc.unwrap_or_default(), 1.0)
    );
}
