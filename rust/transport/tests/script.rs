// SPDX-License-Identifier: GPL-2.0

//! Scripts of packets against one queue pair: one test for each rule, named after it.

mod common;

use common::*;
use rxo_transport::opcode::Opcode;
use rxo_transport::psn::{
    Msn,
    Psn, //
};
use rxo_transport::time::{
    self,
    Duration,
    Instant, //
};
use rxo_transport::wire::*;
use rxo_transport::*;

const MEM: usize = 1 << 16;
const RKEY: u32 = 0x77;
const GLOBAL: FlushKind = FlushKind {
    global: true,
    persistent: false,
    whole: false,
};
const SEND_ONLY: Opcode = Opcode::RC_SEND_ONLY;

/// One queue pair in RTS; the test plays its peer.
struct Script {
    n: Node,
    now: Instant,
    c: Config,
}

fn config() -> Config {
    Config {
        psn: 100,
        ..Config::default()
    }
}

fn script(c: Config) -> Script {
    let mut n = Node::new(0, &c, MEM);
    n.to_init(&c);
    n.to_rtr(&c, QPN[1], c.psn);
    n.to_rts(&c, c.psn);
    n.host.keys.push(full_key(MEM));
    Script { n, now: T0, c }
}

/// A packet from the peer.
#[derive(Clone, Default)]
struct P {
    h: Headers,
    data: Vec<u8>,
}

fn p(opcode: Opcode, psn: u32) -> P {
    let mut p = P::default();
    p.h.bth.opcode = opcode;
    p.h.bth.psn = Psn::new(psn);
    p.h.bth.dest_qp = QPN[0];
    p.h.bth.ack_req = true;
    p
}

impl P {
    fn data(mut self, len: usize, fill: u8) -> Self {
        self.data = vec![fill; len];
        self
    }

    fn reth(mut self, va: u64, rkey: u32, len: u32) -> Self {
        let reth = Reth { va, rkey, len };
        self.h.ext = match self.h.feth() {
            Some(feth) => Ext::Flush(feth, reth),
            None => Ext::Rdma(reth),
        };
        self
    }

    fn feth(mut self, bits: u32) -> Self {
        self.h.ext = Ext::Flush(Feth(bits), self.h.reth().unwrap_or_default());
        self
    }

    fn aeth(mut self, syndrome: u8, msn: u32) -> Self {
        self.h.ext = Ext::Ack(Aeth {
            syndrome: Syndrome::from_byte(syndrome),
            msn: Msn::new(msn),
        });
        self
    }

    fn quiet(mut self) -> Self {
        self.h.bth.ack_req = false;
        self
    }

    fn bytes(mut self) -> Vec<u8> {
        let pad = self.data.len().wrapping_neg() & 3;
        self.h.bth.pad = pad as u8;
        let mut out = vec![0; MAX_HEADER_LEN];
        let n = self.h.emit(&mut out);
        out.truncate(n);
        out.extend_from_slice(&self.data);
        out.resize(out.len() + pad, 0);
        out
    }
}

fn ack(psn: u32, syndrome: u8, msn: u32) -> P {
    p(Opcode::RC_ACKNOWLEDGE, psn).aeth(syndrome, msn).quiet()
}

fn response(opcode: Opcode, psn: u32, len: usize, fill: u8) -> P {
    p(opcode, psn).aeth(0x1f, 0).quiet().data(len, fill)
}

/// What the tests look at in a packet sent.
type Seen = (u8, u32);

impl Script {
    fn rx(&mut self, p: P) {
        self.n.deliver(self.now, &p.bytes());
    }

    fn out(&mut self) -> Vec<Vec<u8>> {
        self.n.transmit(self.now, 16)
    }

    fn tx(&mut self) -> Vec<Parsed> {
        self.out().iter().map(|b| parse(b)).collect()
    }

    /// Opcode and PSN of all that is sent.
    fn seen(&mut self) -> Vec<Seen> {
        self.tx()
            .iter()
            .map(|p| (p.headers.bth.opcode.raw(), p.headers.bth.psn.get()))
            .collect()
    }

    /// The one ACK or NAK that is sent: PSN, syndrome, MSN.
    fn reply(&mut self) -> Option<(u32, u8, u32)> {
        let tx = self.tx();
        assert!(tx.len() <= 1, "{tx:?}");
        tx.first().map(|p| {
            let a = p.headers.aeth().unwrap();
            assert_eq!(p.headers.bth.opcode, Opcode::RC_ACKNOWLEDGE);
            (p.headers.bth.psn.get(), a.syndrome.to_byte(), a.msn.get())
        })
    }

    fn post(&mut self, id: u64, op: SendOp, len: u32) -> u32 {
        self.n
            .post(self.now, BASE, wqe(id, op, len, BASE + 0x8000, RKEY))
            .unwrap()
    }

    /// Waits for the next deadline.
    fn wait(&mut self) -> Duration {
        let d = self.n.qp.deadline().expect("a deadline");
        let took = d.saturating_since(self.now);
        self.now = d;
        self.n.qp.on_deadline(d, &mut self.n.host);
        took
    }

    fn done(&self) -> Vec<(u64, WcStatus)> {
        self.n
            .host
            .send_cq
            .iter()
            .map(|d| (d.wr_id, d.status))
            .collect()
    }

    fn received(&self) -> Vec<(u64, WcStatus)> {
        self.n
            .host
            .recv_cq
            .iter()
            .map(|d| (d.wr_id, d.c.status))
            .collect()
    }

    fn idle(&self) -> Idle {
        self.n.qp.waits_for(self.now)
    }

    fn state(&self) -> QpState {
        self.n.qp.state()
    }

    fn set(&mut self, a: QpAttr) {
        self.n.qp.modify(self.now, &a, &mut self.n.host).unwrap();
    }

    fn to(&mut self, state: QpState) {
        self.set(QpAttr {
            state: Some(state),
            ..QpAttr::default()
        });
    }

    /// Lets all credits be known as unlimited.
    fn unlimited(&mut self) -> &mut Self {
        self.post(999, SendOp::Write, 0);
        let psn = self.seen()[0].1;
        self.rx(ack(psn, 0x1f, 1));
        self.n.host.send_cq.clear();
        self
    }
}

use WcStatus::*;

// --- requester -----------------------------------------------------------------------------------

#[test]
fn message_is_cut_at_the_path_mtu() {
    for mtu in Mtu::ALL {
        let m = mtu.bytes();
        let mut s = script(Config { mtu, ..config() });
        s.unlimited();
        s.post(1, SendOp::WriteImm(5), 3 * m + 1);
        let tx = s.tx();
        let lens: Vec<_> = tx.iter().map(|p| p.payload_len as u32).collect();
        assert_eq!(lens, [m, m, m, 1]);
        let ops: Vec<_> = tx.iter().map(|p| p.headers.bth.opcode.raw()).collect();
        assert_eq!(ops, [0x06, 0x07, 0x07, 0x09]);
        let reth = tx[0].headers.reth().unwrap();
        assert_eq!(
            (reth.va, reth.rkey, reth.len),
            (BASE + 0x8000, RKEY, 3 * m + 1)
        );
        assert_eq!(tx[3].headers.imm(), Some(ImmDt(5)));
        assert_eq!(tx[3].headers.bth.pad, 3);
    }
}

#[test]
fn migration_bit_is_set_and_pkey_is_carried() {
    let mut s = script(config());
    s.n.qp.set_pkey(0x8001);
    s.post(1, SendOp::Send, 0);
    let h = s.tx()[0].headers.bth;
    assert!(h.migreq);
    assert_eq!((h.pkey, h.dest_qp), (0x8001, QPN[1]));
}

#[test]
fn ack_is_asked_for_at_the_end_and_every_so_often() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 100 * 256);
    let asked = asked(&mut s);
    assert_eq!(asked.len(), 100);
    assert!(asked[99]);
    assert_asks_often(&asked);
    assert_eq!(asked.iter().filter(|a| **a).count(), 4);
}

/// Posts a message whose completion nobody waits for.
fn post_quietly(s: &mut Script, id: u64, op: SendOp, len: u32) {
    post_as(s, id, op, len, |w| w.flags.signaled = false);
}

/// Posts a message that is changed before.
fn post_as(s: &mut Script, id: u64, op: SendOp, len: u32, change: impl FnOnce(&mut SendWqe)) {
    let mut w = wqe(id, op, len, BASE + 0x8000, RKEY);
    change(&mut w);
    s.n.post(s.now, BASE, w).unwrap();
}

/// None of the packets is far from one that asks.
fn assert_asks_often(asked: &[bool]) {
    for run in asked.split(|a| *a) {
        assert!(run.len() < ACK_INTERVAL as usize);
    }
}

/// Which of the packets sent ask.
fn asked(s: &mut Script) -> Vec<bool> {
    s.tx().iter().map(|p| p.headers.bth.ack_req).collect()
}

#[test]
fn retracted_requests_are_made_again() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 600);
    s.post(2, SendOp::Read, 600);
    s.post(3, SendOp::Send, 1);
    let mark = s.n.qp.mark();
    assert!(s.n.qp.has_more());
    let sent = s.out();
    assert_eq!(sent.len(), 5);
    assert!(!s.n.qp.has_more());
    s.n.qp.retract(mark);
    assert!(s.n.qp.has_more());
    assert_eq!(s.idle(), Idle::Active);
    assert_eq!(s.out(), sent);
    assert_eq!(s.n.host.counted(Counter::TxRetransmits), 0);
    s.rx(ack(103, 0x1f, 2));
    s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 104, 256, 1));
    s.rx(p(Opcode::RC_READ_RESPONSE_MIDDLE, 105).quiet().data(256, 2));
    s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 106, 88, 3));
    s.rx(ack(107, 0x1f, 4));
    assert_eq!(s.done(), [(1, Success), (2, Success), (3, Success)]);
}

#[test]
fn retracted_retransmissions_are_made_again() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 600);
    let sent = s.out();
    s.wait();
    s.post(2, SendOp::Write, 1);
    let mark = s.n.qp.mark();
    assert_eq!(
        s.seen(),
        [(0x06, 101), (0x07, 102), (0x08, 103), (0x0a, 104)]
    );
    s.n.qp.retract(mark);
    assert_eq!(s.out()[..3], sent[..]);
    // Not the one that was never sent before.
    assert_eq!(s.n.host.counted(Counter::TxRetransmits), 6);
    s.rx(ack(104, 0x1f, 3));
    assert_eq!(s.done().len(), 2);
}

#[test]
fn retracted_requests_before_a_failed_one_are_made_again() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Write, 2);
    s.post(3, SendOp::Write, 3);
    let (now, mark) = (s.now, s.n.qp.mark());
    for result in [Ok(()), Ok(()), Err(LocProtErr)] {
        let b = s.n.qp.poll_transmit(now, 8, &mut s.n.host).unwrap();
        s.n.qp.sent(now, &b, result, &mut s.n.host);
    }
    s.n.qp.retract(mark);
    assert_eq!(s.seen(), [(0x0a, 101), (0x0a, 102)]);
    s.rx(ack(102, 0x1f, 3));
    assert_eq!(s.done(), [(1, Success), (2, Success), (3, LocProtErr)]);
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn ack_may_be_late_until_the_peer_reads() {
    let mut s = script(config());
    s.n.post_recv(1, BASE, 8);
    s.rx(p(Opcode::RC_SEND_ONLY, 100).data(4, 1));
    let b = s.n.qp.poll_transmit(s.now, 1, &mut s.n.host).unwrap();
    assert!(b.is_ack() && s.n.qp.ack_may_be_late());
    // It was refused.
    s.n.qp.ack_anyway();
    assert_eq!(s.reply(), Some((100, 0x00, 1)));
    s.rx(read_request(101, 8));
    let b = s.n.qp.poll_transmit(s.now, 1, &mut s.n.host).unwrap();
    assert!(!b.is_ack() && !s.n.qp.ack_may_be_late());
    s.rx(p(SEND_ONLY, 103).data(4, 1));
    let b = s.n.qp.poll_transmit(s.now, 1, &mut s.n.host).unwrap();
    assert!(!b.is_ack());
    s.to(QpState::Err);
    s.n.qp.ack_anyway();
    assert_eq!(s.seen(), []);
}

/// A READ request of the peer's.
fn read_request(psn: u32, len: u32) -> P {
    p(Opcode::RC_READ_REQUEST, psn).reth(BASE, RKEY, len)
}

#[test]
fn retracted_answers_are_made_again() {
    let mut s = script(config());
    for psn in 100..104 {
        s.rx(read_request(psn, 8));
    }
    assert!(s.n.qp.has_small_answer());
    let sent = s.out();
    assert_eq!(sent.len(), 4);
    assert!(!s.n.qp.has_small_answer());
    // Not the first, nor what comes after the last.
    s.n.qp.retract_answers(Psn::new(101), Psn::new(102));
    assert!(s.n.qp.has_small_answer());
    assert_eq!(s.out(), sent[1..3]);
    // Nor twice what waits anyway.
    s.n.qp.retract_answers(Psn::new(100), Psn::new(103));
    s.n.qp.retract_answers(Psn::new(100), Psn::new(103));
    assert_eq!(s.out(), sent);
    assert!(!s.n.qp.answers_due());
}

#[test]
fn answers_are_small_if_they_are_one_packet_and_next() {
    let mut s = script(config());
    s.rx(read_request(100, 600));
    s.rx(read_request(103, 8));
    let mut fetch_add = p(Opcode::RC_FETCH_ADD, 104);
    fetch_add.h.ext = Ext::Atomic(AtomicEth {
        va: BASE,
        rkey: RKEY,
        ..AtomicEth::default()
    });
    s.rx(fetch_add);
    s.rx(read_request(105, 0));
    assert!(!s.n.qp.has_small_answer());
    let mut small = Vec::new();
    while let Some(b) = s.n.qp.poll_transmit(s.now, 16, &mut s.n.host) {
        s.n.qp.sent(s.now, &b, Ok(()), &mut s.n.host);
        small.push((b.psn().get(), s.n.qp.has_small_answer()));
    }
    assert_eq!(
        small,
        [(100, true), (103, false), (104, true), (105, false)]
    );
    // An answer of several packets is never retracted, nor one that is forgotten.
    s.n.qp.retract_answers(Psn::new(100), Psn::new(102));
    assert_eq!(s.seen(), []);
    s.to(QpState::Err);
    s.n.qp.retract_answers(Psn::new(103), Psn::new(105));
    assert!(!s.n.qp.has_small_answer());
    assert_eq!(s.seen(), []);
}

#[test]
fn nothing_is_retracted_that_is_over() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 600);
    let mark = s.n.qp.mark();
    s.out();
    s.to(QpState::Err);
    s.n.qp.retract(mark);
    assert_eq!(s.seen(), []);
    assert_eq!(s.done(), [(1, WrFlushErr)]);
    s.to(QpState::Reset);
    s.n.qp.retract(mark);
    assert_eq!(s.idle(), Idle::State);
}

const PATIENCE: Duration = Duration::from_micros(1000);

#[test]
fn unawaited_message_asks_for_no_ack() {
    let mut s = script(config());
    s.unlimited();
    post_quietly(&mut s, 1, SendOp::Write, 600);
    post_quietly(&mut s, 2, SendOp::Send, 600);
    assert_eq!(asked(&mut s), [false; 6]);
    s.post(3, SendOp::Write, 1);
    assert_eq!(asked(&mut s), [true]);
    s.rx(ack(107, 0x1f, 4));
    assert_eq!(s.done().len(), 3);
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn last_of_several_messages_asks_for_all() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 600);
    s.post(2, SendOp::Send, 1);
    s.post(3, SendOp::Write, 300);
    assert_eq!(asked(&mut s), [false, false, false, false, false, true]);
    s.rx(ack(106, 0x1f, 4));
    assert_eq!(s.done(), [(1, Success), (2, Success), (3, Success)]);
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn last_of_many_messages_is_not_waited_for() {
    let mut s = script(Config {
        slots: 256,
        ..config()
    });
    s.unlimited();
    for id in 0..100 {
        s.post(id, SendOp::Write, 1);
    }
    let asked = asked(&mut s);
    assert_asks_often(&asked);
    assert!(asked[99]);
}

#[test]
fn message_asks_where_the_next_one_may_not_leave_at_once() {
    let next: [fn(&mut SendWqe); 4] = [
        |w| w.op = SendOp::Read,
        |w| w.op = SendOp::FetchAdd { add: 1 },
        |w| w.op = SendOp::Local,
        |w| w.flags.fence = true,
    ];
    for change in next {
        let mut s = script(config());
        s.unlimited();
        s.post(1, SendOp::Write, 8);
        post_as(&mut s, 2, SendOp::Write, 8, change);
        assert!(asked(&mut s)[0]);
    }
    // Nor without credit, or room in the window.
    let mut s = script(config());
    s.post(1, SendOp::Write, 8);
    s.post(2, SendOp::Send, 8);
    assert!(asked(&mut s)[0]);
    let mut s = script(Config {
        window: 2,
        ..config()
    });
    s.post(1, SendOp::Write, 300);
    s.post(2, SendOp::Write, 8);
    assert_eq!(asked(&mut s), [false, true]);
}

#[test]
fn what_came_before_a_request_that_fails_here_is_asked_for() {
    // With 0 there is no ACK timeout that would do it.
    for (timeout, signaled) in [(0, true), (0, false), (8, true), (8, false)] {
        let mut s = script(Config {
            timeout,
            ..config()
        });
        s.unlimited();
        post_as(&mut s, 1, SendOp::Write, 300, |w| {
            w.flags.signaled = signaled
        });
        s.post(2, SendOp::Write, 8);
        for result in [Ok(()), Err(LocProtErr)] {
            let b = s.n.qp.poll_transmit(s.now, 8, &mut s.n.host).unwrap();
            assert!(!b.packet(b.count - 1).headers.bth.ack_req || result.is_err());
            s.n.qp.sent(s.now, &b, result, &mut s.n.host);
        }
        assert!(!s.n.qp.is_quiet());
        assert_eq!(s.seen(), [(0x0a, 100)]);
        assert_eq!(s.seen(), []);
        s.rx(ack(102, 0x1f, 2));
        assert_eq!(s.done(), [(1, Success), (2, LocProtErr)]);
        assert_eq!(s.state(), QpState::Err);
    }
}

/// Whatever comes before, and whatever fails here: what came before is acknowledged, and the error told, within a while that
/// has nothing to do with the ACK timeout.
#[test]
fn error_of_a_request_is_told_without_an_ack_timeout() {
    let before: [fn(&mut SendWqe); 4] = [
        |w| w.op = SendOp::Write,
        |w| w.op = SendOp::Send,
        |w| w.length = 0,
        |w| w.flags.signaled = true,
    ];
    let failing = [
        SendOp::Write,
        SendOp::Send,
        SendOp::Local,
        SendOp::Read,
        SendOp::AtomicWrite,
    ];
    for (change, op) in before.iter().flat_map(|b| failing.map(|f| (b, f))) {
        for together in [true, false] {
            let mut s = script(Config {
                timeout: 0,
                max_rd_atomic: 0,
                ..config()
            });
            s.unlimited();
            s.n.host.local_fault = Some(LocProtErr);
            let mut psn = 100;
            for id in 1..4 {
                if id == 3 {
                    s.post(id, op, 8);
                } else {
                    post_as(&mut s, id, SendOp::Write, 300, |w| {
                        w.flags.signaled = false;
                        change(w);
                    });
                    if together {
                        continue;
                    }
                }
                while let Some(b) = s.n.qp.poll_transmit(s.now, 8, &mut s.n.host) {
                    let fails = id == 3 && b.slot() == Some(3);
                    let result = if fails { Err(LocProtErr) } else { Ok(()) };
                    s.n.qp.sent(s.now, &b, result, &mut s.n.host);
                    let last = b.packet(b.count - 1).headers.bth;
                    if !fails && b.is_request() {
                        psn = last.psn.get();
                    }
                    if !fails && last.ack_req {
                        s.rx(ack(psn, 0x1f, 9));
                    }
                }
            }
            let begin = s.now;
            while s.state() == QpState::Rts && s.n.qp.deadline().is_some() {
                s.wait();
                let asked = asked(&mut s);
                if asked.contains(&true) {
                    s.rx(ack(psn, 0x1f, 9));
                }
            }
            let ended = s.done().last().map(|d| d.0);
            assert_eq!(ended, Some(3), "{op:?}, together: {together}");
            assert_eq!(s.state(), QpState::Err);
            assert!(s.now.saturating_since(begin) < Duration::from_micros(3000));
        }
    }
}

#[test]
fn what_came_before_a_request_that_has_to_wait_here_can_be_asked_for() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Write, 8);
    s.post(2, SendOp::Write, 8);
    let poll = |s: &mut Script| s.n.qp.poll_transmit(s.now, 8, &mut s.n.host).unwrap();
    let first = poll(&mut s);
    assert_eq!(s.n.qp.ask_before(&first, &mut s.n.host), None);
    s.n.qp.sent(s.now, &first, Ok(()), &mut s.n.host);
    let second = poll(&mut s);
    let question = s.n.qp.ask_before(&second, &mut s.n.host).unwrap();
    let h = question.packet(0).headers;
    assert_eq!(
        (h.bth.opcode, h.bth.psn, h.bth.ack_req),
        (Opcode::RC_WRITE_ONLY, Psn::new(100), true)
    );
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(s.done(), [(1, Success)]);
    assert_eq!(s.n.qp.ask_before(&second, &mut s.n.host), None);
    s.n.qp.sent(s.now, &second, Ok(()), &mut s.n.host);
    s.rx(ack(102, 0x1f, 3));
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
}

#[test]
fn unawaited_messages_ask_every_so_often() {
    let mut s = script(Config {
        slots: 256,
        ..config()
    });
    for id in 0..100 {
        post_quietly(&mut s, id, SendOp::Write, 1);
    }
    let asked = asked(&mut s);
    assert_asks_often(&asked);
    assert_eq!(asked.iter().filter(|a| **a).count(), 3);
}

#[test]
fn unawaited_messages_ask_when_all_are_to_be_signalled() {
    let mut s = script(Config {
        sig_all: true,
        ..config()
    });
    post_quietly(&mut s, 1, SendOp::Write, 1);
    assert_eq!(asked(&mut s), [true]);
}

#[test]
fn unawaited_messages_ask_when_half_of_the_queue_is_taken() {
    let mut s = script(Config {
        slots: 8,
        ..config()
    });
    let mut all = Vec::new();
    for id in 0..6 {
        post_quietly(&mut s, id, SendOp::Write, 1);
        all.extend(asked(&mut s));
    }
    assert_eq!(all, [false, false, false, false, true, true]);
}

#[test]
fn unawaited_messages_ask_when_credits_are_few() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 1);
    assert_eq!(asked(&mut s), [true]);
    // Code 14 stands for 96.
    s.rx(ack(100, 0x0e, 1));
    let mut all = Vec::new();
    for id in 0..34 {
        post_quietly(&mut s, id, SendOp::Send, 1);
        all.extend(asked(&mut s));
    }
    let quiet = all.iter().filter(|a| !**a).count();
    assert!((30..=32).contains(&quiet), "{quiet}");
    assert!(all[33]);
}

#[test]
fn unawaited_message_is_asked_for_after_a_while_without_its_data() {
    for timeout in [0, 8, 18] {
        let mut s = script(Config {
            timeout,
            ..config()
        });
        post_quietly(&mut s, 1, SendOp::Write, 600);
        assert_eq!(s.seen().len(), 3);
        // Nothing else does the time start for.
        assert_eq!(s.wait(), PATIENCE);
        let tx = s.tx();
        assert_eq!(tx.len(), 1);
        let h = &tx[0].headers;
        assert_eq!(
            (h.bth.opcode, h.bth.psn),
            (Opcode::RC_WRITE_ONLY, Psn::new(99))
        );
        assert!(h.bth.ack_req);
        assert_eq!((h.reth(), tx[0].payload_len), (Some(Reth::default()), 0));
        assert_eq!(s.n.host.counted(Counter::TxAckProbes), 1);
        assert_eq!(s.n.host.counted(Counter::TxRetransmits), 0);
        s.rx(ack(102, 0x1f, 1));
        assert_eq!(s.done(), [(1, Success)]);
        assert_eq!(s.n.qp.deadline(), None);
    }
}

#[test]
fn unawaited_message_that_was_lost_is_sent_again_after_the_ack_timeout() {
    let mut s = script(config());
    post_quietly(&mut s, 1, SendOp::Write, 600);
    s.tx();
    s.wait();
    assert_eq!(s.tx().len(), 1);
    // The peer has the first packet, and says so.
    s.rx(ack(100, 0x1f, 0));
    assert_eq!(s.tx().len(), 0);
    assert_eq!(Some(s.wait()), time::ack_timeout(8));
    let tx = s.tx();
    assert_eq!(tx[0].headers.bth.psn, Psn::new(101));
    assert_eq!(tx.len(), 2);
    assert!(tx[1].headers.bth.ack_req);
    assert_eq!(s.n.host.counted(Counter::Timeouts), 1);
}

#[test]
fn unawaited_message_is_not_asked_for_while_others_follow() {
    let mut s = script(config());
    for id in 0..5 {
        post_quietly(&mut s, id, SendOp::Write, 1);
        assert_eq!(s.tx().len(), 1);
        s.now = s.now.saturating_add(Duration::from_micros(900));
        s.n.qp.on_deadline(s.now, &mut s.n.host);
    }
    assert_eq!(s.n.host.counted(Counter::TxAckProbes), 0);
    assert_eq!(s.wait(), Duration::from_micros(100));
    assert_eq!(s.tx().len(), 1);
    assert_eq!(s.n.host.counted(Counter::TxAckProbes), 1);
}

#[test]
fn unawaited_message_before_one_that_asks_keeps_the_timer() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    post_quietly(&mut s, 2, SendOp::Write, 1);
    s.tx();
    s.rx(ack(100, 0x1f, 1));
    // The second was not asked for: what is waited for is only to ask.
    assert_eq!(s.wait(), PATIENCE);
    assert_eq!(s.seen(), [(0x0a, 100)]);
    assert_eq!(s.n.host.counted(Counter::Timeouts), 0);
}

#[test]
fn unawaited_message_is_asked_for_at_once_in_sqd() {
    let mut s = script(config());
    post_quietly(&mut s, 1, SendOp::Write, 1);
    s.tx();
    sqd(&mut s, true);
    assert_eq!(s.seen(), [(0x0a, 99)]);
    s.rx(ack(100, 0x1f, 1));
    assert_eq!(s.n.host.events, [AsyncEvent::SqDrained]);
}

#[test]
fn unawaited_message_that_is_sent_again_asks() {
    let mut s = script(config());
    post_quietly(&mut s, 1, SendOp::Write, 600);
    s.tx();
    s.rx(ack(101, 0x60, 0));
    assert_eq!(asked(&mut s), [false, true]);
}

#[test]
fn empty_duplicate_is_answered_with_how_far_it_came() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_ONLY, 100)
        .reth(BASE, RKEY, 4)
        .data(4, 1)
        .quiet());
    assert_eq!(s.reply(), None);
    s.rx(p(Opcode::RC_WRITE_ONLY, 99).reth(0, 0, 0));
    assert_eq!(s.reply(), Some((100, 0, 1)));
    assert_eq!(s.n.host.counted(Counter::RxAckProbes), 1);
    assert_eq!(s.n.host.counted(Counter::RxDuplicates), 0);
}

#[test]
fn solicited_goes_with_the_last_packet_only() {
    let mut s = script(config());
    let mut w = wqe(1, SendOp::Send, 600, 0, 0);
    w.flags.solicited = true;
    s.unlimited();
    s.n.post(s.now, BASE, w).unwrap();
    let se: Vec<_> = s.tx().iter().map(|p| p.headers.bth.solicited).collect();
    assert_eq!(se, [false, false, true]);
}

#[test]
fn coalesced_ack_completes_all_before_it_in_order() {
    let mut s = script(config());
    for id in 0..4 {
        s.post(id, SendOp::Write, 300);
    }
    assert_eq!(s.tx().len(), 8);
    s.rx(ack(104, 0x1f, 2));
    // The fifth packet is the first of the third message.
    assert_eq!(s.done(), [(0, Success), (1, Success)]);
    s.rx(ack(107, 0x1f, 4));
    assert_eq!(s.done().len(), 4);
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn unsignalled_success_only_releases_the_entry() {
    let mut s = script(config());
    post_quietly(&mut s, 1, SendOp::Write, 1);
    s.tx();
    s.rx(ack(100, 0x1f, 1));
    assert!(!s.n.host.send_cq[0].signal);
    assert_eq!(s.n.qp.status().send_queue_used, 0);
}

#[test]
fn sig_all_signals_everything() {
    let mut s = script(Config {
        sig_all: true,
        ..config()
    });
    post_quietly(&mut s, 1, SendOp::Write, 1);
    s.tx();
    s.rx(ack(100, 0x1f, 1));
    assert!(s.n.host.send_cq[0].signal);
}

#[test]
fn ack_for_what_was_never_sent_is_ignored() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.tx();
    for psn in [99, 101, 0x80_0000, 0xff_ffff] {
        s.rx(ack(psn, 0x1f, 1));
    }
    assert_eq!(s.done(), []);
    assert_eq!(s.n.host.counted(Counter::RxStaleResponses), 4);
}

#[test]
fn ack_for_packets_assigned_but_not_sent_is_ignored() {
    let mut s = script(Config {
        window: 2,
        ..config()
    });
    s.post(1, SendOp::Write, 1024);
    assert_eq!(s.tx().len(), 2);
    s.rx(ack(103, 0x1f, 1));
    assert_eq!(s.done(), []);
}

#[test]
fn sequence_nak_acknowledges_what_is_before_and_goes_back_to_it() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Write, 1024);
    assert_eq!(s.tx().len(), 5);
    s.rx(ack(102, 0x60, 1));
    assert_eq!(s.done(), [(1, Success)]);
    assert_eq!(s.seen(), [(0x07, 102), (0x07, 103), (0x08, 104)]);
    assert_eq!(s.n.host.counted(Counter::TxRetransmits), 3);
}

#[test]
fn sequence_nak_that_says_nothing_new_costs_no_retry() {
    let mut s = script(Config {
        retry_cnt: 1,
        ..config()
    });
    s.post(1, SendOp::Write, 600);
    s.tx();
    s.rx(ack(100, 0x60, 0));
    s.rx(ack(100, 0x60, 0));
    s.rx(ack(100, 0x60, 0));
    assert_eq!(s.state(), QpState::Rts);
    assert_eq!(s.seen().len(), 3);
}

#[test]
fn timeout_is_exact_and_resends_from_the_oldest() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 600);
    assert_eq!(s.tx().len(), 3);
    assert_eq!(Some(s.wait()), time::ack_timeout(s.c.timeout));
    assert_eq!(s.seen(), [(0x06, 100), (0x07, 101), (0x08, 102)]);
    s.rx(ack(102, 0x1f, 1));
    assert_eq!(s.done(), [(1, Success)]);
}

#[test]
fn progress_restarts_the_timer() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 600);
    s.tx();
    s.now = s.now.saturating_add(Duration::from_nanos(1000));
    s.rx(ack(100, 0x1f, 0));
    let d = s.n.qp.deadline().unwrap().saturating_since(s.now);
    assert_eq!(Some(d), time::ack_timeout(s.c.timeout));
}

#[test]
fn timer_is_that_of_the_oldest_packet() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.tx();
    let d = s.n.qp.deadline();
    s.now = s.now.saturating_add(Duration::from_nanos(1000));
    s.post(2, SendOp::Write, 1);
    s.tx();
    assert_eq!(s.n.qp.deadline(), d);
}

#[test]
fn early_call_of_the_deadline_does_nothing() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.tx();
    s.n.qp.on_deadline(s.now, &mut s.n.host);
    assert_eq!(s.n.host.counted(Counter::Timeouts), 0);
    assert_eq!(s.seen(), []);
}

#[test]
fn retry_cnt_counts_and_seven_means_seven() {
    for retry_cnt in 0..8 {
        let mut s = script(Config {
            retry_cnt,
            ..config()
        });
        s.post(1, SendOp::Write, 1);
        s.post(2, SendOp::Send, 1);
        let mut sends = 0;
        while s.state() == QpState::Rts {
            sends += s.seen().iter().filter(|(_, psn)| *psn == 100).count();
            s.wait();
        }
        assert_eq!(sends, usize::from(retry_cnt) + 1);
        assert_eq!(s.done(), [(1, RetryExcErr), (2, WrFlushErr)]);
        assert_eq!(s.n.qp.deadline(), None);
    }
}

#[test]
fn retries_are_refilled_by_progress() {
    let mut s = script(Config {
        retry_cnt: 1,
        ..config()
    });
    s.post(1, SendOp::Write, 600);
    for psn in 100..103 {
        s.tx();
        s.wait();
        s.tx();
        s.rx(ack(psn, 0x1f, 0));
    }
    assert_eq!(s.done(), [(1, Success)]);
}

#[test]
fn timeout_zero_is_never() {
    let mut s = script(Config {
        timeout: 0,
        ..config()
    });
    s.post(1, SendOp::Write, 1);
    s.tx();
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn rnr_nak_waits_for_exactly_the_table() {
    for timer in 0..32 {
        let mut s = script(config());
        s.post(1, SendOp::Send, 600);
        s.unlimited_by_ack();
        s.tx();
        s.rx(ack(100, 0x20 | timer, 0));
        assert_eq!(s.seen(), []);
        assert_eq!(s.idle(), Idle::Rnr);
        // Nothing makes it hurry.
        s.post(2, SendOp::Write, 1);
        assert_eq!(s.seen(), []);
        assert_eq!(s.wait(), rnr::delay(timer));
        assert_eq!(s.seen()[0], (0x00, 100));
    }
}

impl Script {
    /// As if the peer had said that it does not count credits, by an ACK of nothing.
    fn unlimited_by_ack(&mut self) {
        let psn = self.n.qp.status().unacked_psn.prev().get();
        self.rx(ack(psn, 0x1f, 0));
    }
}

#[test]
fn rnr_nak_acknowledges_what_is_before() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Send, 1);
    s.tx();
    s.rx(ack(101, 0x21, 1));
    assert_eq!(s.done(), [(1, Success)]);
    s.wait();
    assert_eq!(s.seen(), [(0x04, 101)]);
}

#[test]
fn rnr_retry_counts_and_seven_is_for_ever() {
    for rnr_retry in 0..8 {
        let mut s = script(Config {
            rnr_retry,
            ..config()
        });
        s.post(1, SendOp::Send, 1);
        let mut sends = 0;
        while s.state() == QpState::Rts && sends < 1000 {
            sends += s.seen().len();
            s.rx(ack(100, 0x21, 0));
            if s.state() == QpState::Rts {
                s.wait();
            }
        }
        if rnr_retry == 7 {
            assert_eq!(sends, 1000);
        } else {
            assert_eq!(sends, usize::from(rnr_retry) + 1);
            assert_eq!(s.done(), [(1, RnrRetryExcErr)]);
        }
    }
}

#[test]
fn rnr_nak_again_while_waiting_costs_nothing() {
    let mut s = script(Config {
        rnr_retry: 1,
        ..config()
    });
    s.post(1, SendOp::Send, 1);
    s.tx();
    s.rx(ack(100, 0x21, 0));
    s.rx(ack(100, 0x21, 0));
    s.wait();
    assert_eq!(s.seen(), [(0x04, 100)]);
}

#[test]
fn rnr_wait_does_not_count_as_ack_timeout() {
    let mut s = script(config());
    s.unlimited();
    for id in 0..3 {
        s.post(id, SendOp::Send, 1);
    }
    s.tx();
    s.rx(ack(101, 0x3f, 1));
    // It was taken after all, by a packet on its way.
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(s.wait(), rnr::delay(31));
    s.n.qp.on_deadline(s.now, &mut s.n.host);
    assert_eq!(s.n.host.counted(Counter::Timeouts), 0);
    assert_eq!(s.seen(), [(0x04, 102), (0x04, 103)]);
}

#[test]
fn rnr_wait_does_not_stop_answers() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 1);
    s.tx();
    s.rx(ack(100, 0x3f, 0));
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.seen(), [(0x11, 100)]);
}

#[test]
fn credit_second_message_waits_for_the_first_ack() {
    let mut s = script(config());
    for id in 0..5 {
        s.post(id, SendOp::Send, 1);
    }
    assert_eq!(s.seen(), [(0x04, 100)]);
    assert_eq!(s.idle(), Idle::Credit);
    // Two more receives: messages 2 and 3 are free, 4 has to wait.
    s.rx(ack(100, 0x02, 1));
    assert_eq!(s.seen(), [(0x04, 101), (0x04, 102)]);
    assert_eq!(s.idle(), Idle::Credit);
    assert_eq!(s.n.host.counted(Counter::CreditStalls), 2);
    s.rx(ack(102, 0x1f, 3));
    assert_eq!(s.seen(), [(0x04, 103), (0x04, 104)]);
}

#[test]
fn stalls_are_counted_and_timed_and_their_end_is_noted() {
    let mut s = script(config());
    for id in 0..3 {
        s.post(id, SendOp::Send, 1);
    }
    s.tx();
    // One receive, which the first took, and no more until later.
    s.rx(ack(100, 0x00, 1));
    s.tx();
    assert_eq!(s.idle(), Idle::Credit);
    let (before, begun) = (s.n.host.counted(Counter::CreditStallUs), s.now);
    s.now = s.now.saturating_add(Duration::from_nanos(1_234_567));
    s.rx(ack(100, 0x1f, 1));
    s.tx();
    assert_eq!(s.n.host.counted(Counter::CreditStallUs), before + 1234);
    assert_eq!(s.now.saturating_since(begun).as_micros(), 1234);
    assert!(s.n.host.traces.contains(&Trace::StallEnd {
        why: Idle::Credit,
        psn: Psn::new(101),
        us: 1234,
    }));
    assert_eq!(s.idle(), Idle::Unacknowledged);
    // What ends it may be the end of everything.
    let mut s = script(config());
    s.post(1, SendOp::Send, 1000);
    s.tx();
    s.now = s.now.saturating_add(Duration::from_micros(10));
    s.to(QpState::Err);
    s.tx();
    assert_eq!(s.n.host.counted(Counter::CreditStallUs), 10);
    assert_eq!(s.idle(), Idle::State);
}

#[test]
fn what_the_sender_waits_for_is_known_without_polling_it() {
    let mut s = script(config());
    let why = |s: &Script| s.n.qp.waits_for(s.now);
    assert_eq!(why(&s), Idle::NoWork);
    s.post(1, SendOp::Write, 1);
    assert_eq!(why(&s), Idle::Active);
    s.tx();
    assert_eq!(why(&s), Idle::Unacknowledged);
    s.wait();
    assert_eq!(why(&s), Idle::Active);
    s.tx();
    assert_eq!(why(&s), Idle::Retrying);
    // Of two messages the second is beyond the credits.
    s.post(2, SendOp::Send, 1);
    s.tx();
    s.post(3, SendOp::Send, 1);
    assert_eq!(why(&s), Idle::Credit);
    s.rx(ack(101, 0x20, 1));
    assert_eq!(why(&s), Idle::Rnr);
    s.wait();
    assert_eq!(why(&s), Idle::Active);
    s.to(QpState::Sqd);
    s.tx();
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(why(&s), Idle::Draining);
    s.to(QpState::Err);
    assert_eq!(why(&s), Idle::State);
}

#[test]
fn dropped_packets_are_noted_with_their_reason() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_ONLY, 102).reth(BASE, RKEY, 0));
    s.rx(p(Opcode::RC_WRITE_ONLY, 103).reth(BASE, RKEY, 0));
    let dropped = |why, psn| Trace::Drop {
        why,
        psn: Psn::new(psn),
    };
    assert!(s.n.host.traces.contains(&dropped(Counter::DropGap, 103)));
    s.to(QpState::Err);
    s.rx(ack(100, 0x1f, 0));
    assert!(s.n.host.traces.contains(&dropped(Counter::DropState, 100)));
}

#[test]
fn credit_probe_is_one_packet_that_asks_for_an_ack() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 1000);
    let tx = s.tx();
    assert_eq!(tx.len(), 1);
    assert!(tx[0].headers.bth.ack_req);
    assert_eq!(s.idle(), Idle::Credit);
    // The peer has a receive for it, and no other.
    s.rx(ack(100, 0x01, 0));
    assert_eq!(s.seen(), [(0x01, 101), (0x01, 102), (0x02, 103)]);
}

#[test]
fn credit_probe_is_released_by_the_ack_of_its_first_packet() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 600);
    s.tx();
    s.rx(ack(100, 0x00, 0));
    assert_eq!(s.seen(), [(0x01, 101), (0x02, 102)]);
}

#[test]
fn credit_probe_is_all_that_is_sent_again() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 600);
    s.tx();
    s.wait();
    assert_eq!(s.seen(), [(0x00, 100)]);
    s.rx(ack(100, 0x21, 0));
    s.wait();
    assert_eq!(s.seen(), [(0x00, 100)]);
}

#[test]
fn credit_told_to_be_none_is_probed_after_the_ack_timeout() {
    let mut s = script(config());
    for id in 0..3 {
        s.post(id, SendOp::Send, 600);
    }
    assert_eq!(s.seen(), [(0x00, 100)]);
    s.rx(ack(100, 0x00, 0));
    assert_eq!(s.seen(), [(0x01, 101), (0x02, 102)]);
    s.rx(ack(102, 0x00, 1));
    assert_eq!(s.seen(), [(0x0a, 102)]);
    assert_eq!(s.idle(), Idle::Credit);
    s.rx(ack(102, 0x00, 1));
    assert_eq!(s.seen(), []);
    let probes = s.n.host.counted(Counter::CreditProbes);
    assert_eq!(Some(s.wait()), time::ack_timeout(s.c.timeout));
    // Its first packet only.
    assert_eq!(s.seen(), [(0x00, 103)]);
    assert_eq!(s.n.host.counted(Counter::CreditProbes), probes + 1);
    assert_eq!(s.n.host.counted(Counter::Timeouts), 0);
}

#[test]
fn credit_update_ends_the_wait_whatever_it_acknowledges() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 1);
    s.tx();
    s.rx(ack(100, 0x00, 1));
    s.post(2, SendOp::Read, 1);
    assert_eq!(s.seen(), [(0x0c, 101)]);
    s.rx(p(Opcode::RC_READ_RESPONSE_ONLY, 101)
        .aeth(0x00, 2)
        .quiet()
        .data(1, 0));
    s.post(3, SendOp::Send, 1);
    assert_eq!(s.seen(), [(0x0a, 101)]);
    // An ACK never names a READ: this one is of the SEND before it.
    s.rx(ack(100, 0x01, 2));
    assert_eq!(s.seen(), [(0x04, 102)]);
    assert_eq!(Some(s.wait()), time::ack_timeout(s.c.timeout));
}

/// The only receive was taken.
fn none_left() -> Script {
    let mut s = script(config());
    s.n.post_recv(1, BASE, 8);
    s.rx(p(Opcode::RC_SEND_ONLY, 100).data(4, 1));
    assert_eq!(s.reply(), Some((100, 0x00, 1)));
    s
}

/// An empty duplicate, as from a requester that waits for credit.
fn question(psn: u32) -> P {
    p(Opcode::RC_WRITE_ONLY, psn).reth(0, 0, 0)
}

#[test]
fn credit_is_asked_for_once_where_one_is_waited_for() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 1);
    s.tx();
    s.rx(ack(100, 0x00, 1));
    assert_eq!(s.seen(), []);
    let asked = s.n.host.counted(Counter::TxAckProbes);
    s.post(2, SendOp::Send, 1);
    assert_eq!(s.seen(), [(0x0a, 100)]);
    s.post(3, SendOp::Send, 1);
    assert_eq!(s.seen(), []);
    s.rx(ack(100, 0x00, 1));
    assert_eq!(s.seen(), []);
    assert_eq!(s.n.host.counted(Counter::TxAckProbes), asked + 1);
    // The next wait is another.
    s.rx(ack(100, 0x01, 1));
    assert_eq!(s.seen(), [(0x04, 101)]);
    s.rx(ack(101, 0x00, 2));
    assert_eq!(s.seen(), [(0x0a, 101)]);
}

#[test]
fn credit_is_not_asked_for_while_an_acknowledgement_is_to_bring_some() {
    let mut s = script(config());
    for id in 0..3 {
        s.post(id, SendOp::Send, 1);
    }
    assert_eq!(s.seen(), [(0x04, 100)]);
    s.rx(ack(100, 0x01, 1));
    assert_eq!(s.seen(), [(0x04, 101)]);
    assert_eq!(s.idle(), Idle::Credit);
    s.rx(ack(101, 0x00, 2));
    assert_eq!(s.seen(), [(0x0a, 101)]);
}

#[test]
fn peer_that_had_credit_whenever_asked_is_asked_no_more() {
    let mut s = script(config());
    s.post(0, SendOp::Send, 1);
    s.tx();
    s.rx(ack(100, 0x00, 1));
    let (mut n, mut last) = (1, 100);
    // One message with a question before it; says whether there was one.
    let mut message = |s: &mut Script| {
        s.post(n, SendOp::Send, 1);
        let mut seen = s.seen();
        let asked = seen == [(0x0a, last)];
        if asked {
            s.rx(ack(last, 0x01, n as u32));
            seen = s.seen();
        }
        last += 1;
        n += 1;
        assert_eq!(seen, [(0x04, last)]);
        (asked, last, n as u32)
    };
    for _ in 0..64 {
        let (asked, psn, msn) = message(&mut s);
        assert!(asked);
        s.rx(ack(psn, 0x00, msn));
    }
    for _ in 0..10 {
        let (asked, psn, msn) = message(&mut s);
        assert!(!asked);
        s.rx(ack(psn, 0x00, msn));
    }
    // Once it has none, it is asked again, for longer.
    let (_, psn, msn) = message(&mut s);
    s.rx(ack(psn, 0x20, msn - 1));
    s.wait();
    assert_eq!(s.seen(), [(0x04, psn)]);
    s.rx(ack(psn, 0x00, msn));
    for _ in 0..4 * 64 {
        let (asked, psn, msn) = message(&mut s);
        assert!(asked);
        s.rx(ack(psn, 0x00, msn));
    }
    assert!(!message(&mut s).0);
}

#[test]
fn question_for_credit_is_answered_with_what_there_is() {
    let mut s = none_left();
    s.n.post_recv(2, BASE, 8);
    s.rx(question(100));
    assert_eq!(s.reply(), Some((100, 0x01, 1)));
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn receives_are_not_looked_for_unless_the_peer_asked() {
    let mut s = none_left();
    assert_eq!(s.n.qp.deadline(), None);
    // Nor once it has sent something else.
    s.rx(question(100));
    assert_eq!(s.reply(), Some((100, 0x00, 1)));
    assert!(s.n.qp.deadline().is_some());
    s.rx(p(Opcode::RC_WRITE_ONLY, 101).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.reply(), Some((101, 0x00, 2)));
    assert_eq!(s.n.qp.deadline(), None);
}

/// That receive was taken, and the peer asked for another in vain.
fn asked_in_vain() -> Script {
    let mut s = none_left();
    s.rx(question(100));
    assert_eq!(s.reply(), Some((100, 0x00, 1)));
    s
}

#[test]
fn receive_posted_after_none_was_left_is_told() {
    let mut s = asked_in_vain();
    // Looks again and again, less and less often.
    let first = s.wait();
    assert_eq!(s.reply(), None);
    assert_eq!(s.wait(), first.saturating_mul(2));
    assert_eq!(s.reply(), None);
    s.n.post_recv(2, BASE, 8);
    s.n.post_recv(3, BASE, 8);
    s.wait();
    assert_eq!(s.reply(), Some((100, 0x02, 1)));
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn receive_that_never_comes_is_not_looked_for_for_ever() {
    let mut s = asked_in_vain();
    let mut looks = 0;
    while s.n.qp.deadline().is_some() {
        s.wait();
        assert_eq!(s.reply(), None);
        looks += 1;
    }
    assert!((50..100).contains(&looks), "{looks}");
}

#[test]
fn receive_is_told_with_the_next_thing_that_happens() {
    let mut s = asked_in_vain();
    // A reply, say, to the message.
    s.n.post_recv(2, BASE, 8);
    s.post(1, SendOp::Send, 1);
    assert_eq!(s.seen(), [(0x11, 100), (0x04, 100)]);
}

#[test]
fn credit_told_long_ago_does_not_delay_a_message() {
    let mut s = script(config());
    s.post(1, SendOp::Send, 1);
    s.tx();
    s.rx(ack(100, 0x00, 1));
    s.now = s.now.saturating_add(Duration::from_micros(1_000_000));
    s.post(2, SendOp::Send, 1);
    assert_eq!(s.seen(), [(0x04, 101)]);
}

#[test]
fn credit_is_not_waited_for_before_the_first_message_that_takes_a_receive() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.tx();
    s.rx(ack(100, 0x00, 1));
    s.post(2, SendOp::Send, 1);
    assert_eq!(s.seen(), [(0x04, 101)]);
}

#[test]
fn receives_are_not_looked_for_where_none_is_ever_taken() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.reply(), Some((100, 0x00, 1)));
    assert_eq!(s.n.qp.deadline(), None);
    // The peer asks how far its WRITEs have come.
    s.rx(question(100));
    assert_eq!(s.reply(), Some((100, 0x00, 1)));
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn credit_is_not_needed_by_writes_reads_and_atomics() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Read, 1);
    s.post(3, SendOp::FetchAdd { add: 1 }, 8);
    s.post(4, SendOp::Write, 1);
    // Each of them has moved the limit along.
    s.post(5, SendOp::WriteImm(1), 1);
    s.post(6, SendOp::Send, 1);
    assert_eq!(s.seen().len(), 5);
    assert_eq!(s.idle(), Idle::Credit);
}

#[test]
fn credit_never_shrinks() {
    let mut s = script(config());
    for id in 0..6 {
        s.post(id, SendOp::Send, 1);
    }
    s.tx();
    s.rx(ack(100, 0x03, 1));
    assert_eq!(s.tx().len(), 3);
    s.rx(ack(101, 0x00, 2));
    assert_eq!(s.n.qp.status().credit_limit.unwrap().get(), 4);
}

#[test]
fn fence_waits_for_reads_and_atomics_only() {
    let mut s = script(config());
    s.unlimited();
    s.post(1, SendOp::Read, 1);
    s.post(2, SendOp::Write, 1);
    let mut w = wqe(3, SendOp::Send, 1, 0, 0);
    w.flags.fence = true;
    s.n.post(s.now, BASE, w).unwrap();
    assert_eq!(s.seen(), [(0x0c, 101), (0x0a, 102)]);
    assert_eq!(s.idle(), Idle::Fence);
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 101, 1, 9));
    // The WRITE is not acknowledged yet.
    assert_eq!(s.done(), [(1, Success)]);
    assert_eq!(s.seen(), [(0x04, 103)]);
}

#[test]
fn local_operation_takes_its_turn_and_obeys_the_fence() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 1);
    let mut w = wqe(2, SendOp::Local, 0, 0, 0);
    w.flags.fence = true;
    w.flags.signaled = false;
    s.n.post(s.now, BASE, w).unwrap();
    s.post(3, SendOp::Write, 1);
    assert_eq!(s.seen(), [(0x0c, 100)]);
    assert_eq!(s.n.host.local_ops, []);
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 100, 1, 9));
    assert_eq!(s.seen(), [(0x0a, 101)]);
    assert_eq!(s.n.host.local_ops, [1]);
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
}

#[test]
fn failed_local_operation_completes_after_the_earlier_ones() {
    let mut s = script(config());
    s.n.host.local_fault = Some(MwBindErr);
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Local, 0);
    s.post(3, SendOp::Write, 1);
    assert_eq!(s.seen(), [(0x0a, 100)]);
    assert_eq!(s.idle(), Idle::Failed);
    assert_eq!(s.done(), []);
    s.rx(ack(100, 0x1f, 1));
    assert_eq!(s.done(), [(1, Success), (2, MwBindErr), (3, WrFlushErr)]);
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn reads_and_atomics_outstanding_are_limited() {
    let mut s = script(Config {
        max_rd_atomic: 2,
        ..config()
    });
    s.post(1, SendOp::Read, 1);
    s.post(
        2,
        SendOp::CmpSwap {
            compare: 0,
            swap: 1,
        },
        8,
    );
    s.post(3, SendOp::Read, 1);
    assert_eq!(s.seen(), [(0x0c, 100), (0x13, 101)]);
    assert_eq!(s.idle(), Idle::ReadLimit);
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 100, 1, 9));
    assert_eq!(s.seen(), [(0x0c, 102)]);
}

#[test]
fn read_without_any_allowed_fails() {
    let mut s = script(Config {
        max_rd_atomic: 0,
        ..config()
    });
    s.post(1, SendOp::Read, 1);
    assert_eq!(s.seen(), []);
    assert_eq!(s.done(), [(1, LocQpOpErr)]);
}

#[test]
fn read_takes_a_psn_for_each_packet_of_its_response() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 700);
    s.post(2, SendOp::Write, 1);
    assert_eq!(s.seen(), [(0x0c, 100), (0x0a, 103)]);
}

#[test]
fn read_responses_are_placed_in_order() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 700);
    s.tx();
    s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 100, 256, 1));
    s.rx(p(Opcode::RC_READ_RESPONSE_MIDDLE, 101).quiet().data(256, 2));
    assert_eq!(s.done(), []);
    s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 102, 188, 3));
    assert_eq!(s.done(), [(1, Success)]);
    let mem = s.n.host.bytes(BASE, 700);
    assert!(mem[..256].iter().all(|b| *b == 1));
    assert!(mem[256..512].iter().all(|b| *b == 2));
    assert!(mem[512..].iter().all(|b| *b == 3));
}

#[test]
fn read_response_acknowledges_what_is_before() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Read, 1);
    s.tx();
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 101, 1, 9));
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
}

#[test]
fn missing_read_response_is_asked_for_once_from_where_it_broke_off() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 1024);
    s.tx();
    s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 100, 256, 1));
    s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 103, 256, 1));
    s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 103, 256, 1));
    let tx = s.tx();
    assert_eq!(tx.len(), 1);
    assert_eq!(tx[0].headers.bth.psn.get(), 101);
    let r = tx[0].headers.reth().unwrap();
    assert_eq!((r.va, r.len), (BASE + 0x8000 + 256, 768));
    assert_eq!(s.n.host.counted(Counter::RxImpliedNaks), 1);
    s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 101, 256, 1));
    s.rx(p(Opcode::RC_READ_RESPONSE_MIDDLE, 102).quiet().data(256, 2));
    s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 103, 256, 1));
    assert_eq!(s.done(), [(1, Success)]);
}

#[test]
fn retries_last_while_the_peer_comes_further() {
    let mut s = script(Config {
        retry_cnt: 1,
        ..config()
    });
    s.post(1, SendOp::Read, 1);
    for id in 2..10 {
        s.post(id, SendOp::Write, 1);
    }
    // The response to the READ is lost each time, and a WRITE too.
    for psn in 102..108 {
        assert_eq!(s.seen()[0], (0x0c, 100));
        s.rx(ack(psn, 0x60, 0));
        assert_eq!(s.state(), QpState::Rts);
    }
    // Again the same is no news.
    s.tx();
    s.rx(ack(107, 0x60, 0));
    assert_eq!(s.done()[0], (1, RetryExcErr));
}

#[test]
fn overtaken_nak_costs_no_retry() {
    let mut s = script(Config {
        retry_cnt: 1,
        ..config()
    });
    s.post(1, SendOp::Read, 1);
    for id in 2..10 {
        s.post(id, SendOp::Write, 1);
    }
    s.tx();
    s.rx(ack(107, 0x60, 0));
    for psn in 102..107 {
        s.tx();
        s.rx(ack(psn, 0x60, 0));
    }
    assert_eq!(s.state(), QpState::Rts);
    assert_eq!(s.seen(), []);
}

#[test]
fn ack_beyond_a_read_says_that_its_response_is_lost() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 1);
    s.post(2, SendOp::Write, 1);
    s.tx();
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(s.done(), []);
    assert_eq!(s.seen(), [(0x0c, 100), (0x0a, 101)]);
}

#[test]
fn ack_never_completes_a_read() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 300);
    s.tx();
    s.rx(ack(100, 0x1f, 1));
    s.rx(ack(101, 0x1f, 1));
    assert_eq!(s.done(), []);
    assert_eq!(s.seen(), []);
}

#[test]
fn read_response_with_a_wrong_opcode_is_a_bad_response() {
    for (op, psn, len) in [
        (Opcode::RC_READ_RESPONSE_ONLY, 100, 10),
        (Opcode::RC_READ_RESPONSE_LAST, 100, 10),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, 100, 0),
    ] {
        let mut s = script(config());
        s.post(1, SendOp::Read, 300);
        s.tx();
        let mut r = response(op, psn, len, 1);
        r.h.ext = Ext::AtomicAck(r.h.aeth().unwrap(), AtomicAckEth(1));
        s.rx(r);
        assert_eq!(s.done(), [(1, BadRespErr)]);
        assert_eq!(s.state(), QpState::Err);
    }
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.tx();
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 100, 1, 1));
    assert_eq!(s.done(), [(1, BadRespErr)]);
}

#[test]
fn read_response_with_a_wrong_length_is_a_length_error() {
    for (op, len) in [
        (Opcode::RC_READ_RESPONSE_FIRST, 255),
        (Opcode::RC_READ_RESPONSE_FIRST, 512),
    ] {
        let mut s = script(config());
        s.post(1, SendOp::Read, 300);
        s.tx();
        s.rx(response(op, 100, len, 1));
        assert_eq!(s.done(), [(1, LocLenErr)]);
    }
    for len in [43, 45, 256] {
        let mut s = script(config());
        s.post(1, SendOp::Read, 300);
        s.tx();
        s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 100, 256, 1));
        s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 101, len, 1));
        assert_eq!(s.done(), [(1, LocLenErr)]);
    }
}

#[test]
fn read_into_protected_memory_is_a_protection_error() {
    let mut s = script(config());
    s.n.host.place_fault = Some(LocProtErr);
    s.post(1, SendOp::Read, 1);
    s.post(2, SendOp::FetchAdd { add: 1 }, 8);
    s.tx();
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 100, 1, 1));
    assert_eq!(s.done(), [(1, LocProtErr), (2, WrFlushErr)]);
}

#[test]
fn atomic_result_into_protected_memory_is_a_protection_error() {
    let mut s = script(config());
    s.n.host.place_fault = Some(LocProtErr);
    s.post(1, SendOp::FetchAdd { add: 1 }, 8);
    s.tx();
    let mut r = response(Opcode::RC_ATOMIC_ACKNOWLEDGE, 100, 0, 0);
    r.h.ext = Ext::AtomicAck(r.h.aeth().unwrap(), AtomicAckEth(1));
    s.rx(r);
    assert_eq!(s.done(), [(1, LocProtErr)]);
}

#[test]
fn fatal_nak_fails_its_message_and_flushes_the_rest() {
    for (code, status) in [(0x61, RemInvReqErr), (0x62, RemAccessErr), (0x63, RemOpErr)] {
        let mut s = script(config());
        s.n.post_recv(7, BASE, 10);
        s.post(1, SendOp::Write, 1);
        s.post(2, SendOp::Write, 600);
        s.post(3, SendOp::Write, 1);
        s.tx();
        s.rx(ack(102, code, 1));
        assert_eq!(s.done(), [(1, Success), (2, status), (3, WrFlushErr)]);
        assert_eq!(s.received(), [(7, WrFlushErr)]);
        assert_eq!(s.state(), QpState::Err);
        assert_eq!(s.seen(), []);
    }
}

#[test]
fn receives_posted_while_others_are_flushed_do_not_keep_it_going() {
    let mut s = script(config());
    s.n.post_recv(7, BASE, 10);
    s.n.post_recv(8, BASE, 10);
    s.n.host.reposts = true;
    let to_err = QpAttr {
        state: Some(QpState::Err),
        ..QpAttr::default()
    };
    s.n.qp.modify(T0, &to_err, &mut s.n.host).unwrap();
    assert_eq!(s.received(), [(7, WrFlushErr), (8, WrFlushErr)]);
    s.n.qp.flush_recv(&mut s.n.host);
    assert_eq!(s.received().len(), 4);
}

#[test]
fn full_queue_says_so_before_a_slot_is_touched() {
    let mut s = script(Config {
        slots: 2,
        ..config()
    });
    assert_eq!(s.n.qp.may_post(), Ok(()));
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Write, 1);
    assert_eq!(s.n.qp.may_post(), Err(PostError::Full));
    s.tx();
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(s.n.qp.may_post(), Ok(()));
}

#[test]
fn fatal_nak_within_a_read_fails_it() {
    // The peer's memory went away while it answered.
    for psn in [100, 101, 102] {
        let mut s = script(config());
        s.post(1, SendOp::Read, 700);
        s.tx();
        s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 100, 256, 1));
        s.rx(ack(psn, 0x62, 1));
        assert_eq!(s.done(), [(1, RemAccessErr)]);
    }
}

#[test]
fn reserved_syndrome_is_ignored() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.tx();
    for syndrome in [0x40, 0x5f, 0x64, 0x65, 0x7f, 0x80, 0xff] {
        s.rx(ack(100, syndrome, 1));
    }
    assert_eq!(s.done(), []);
    assert_eq!(s.state(), QpState::Rts);
}

#[test]
fn gather_fault_completes_after_the_earlier_ones() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Write, 1);
    s.post(3, SendOp::Write, 1);
    let now = s.now;
    let n = &mut s.n;
    let b1 = n.qp.poll_transmit(now, 8, &mut n.host).unwrap();
    let b2 = n.qp.poll_transmit(now, 8, &mut n.host).unwrap();
    let b3 = n.qp.poll_transmit(now, 8, &mut n.host).unwrap();
    n.qp.sent(now, &b1, Ok(()), &mut n.host);
    n.qp.sent(now, &b2, Err(LocProtErr), &mut n.host);
    n.qp.sent(now, &b3, Ok(()), &mut n.host);
    assert_eq!(s.done(), []);
    // The first is still retried.
    s.wait();
    assert_eq!(s.seen(), [(0x0a, 100)]);
    assert_eq!(s.idle(), Idle::Failed);
    s.rx(ack(100, 0x1f, 1));
    assert_eq!(s.done(), [(1, Success), (2, LocProtErr), (3, WrFlushErr)]);
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn nothing_is_sent_behind_a_failed_request() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.post(2, SendOp::Write, 1);
    s.post(3, SendOp::Write, 1);
    let now = s.now;
    let n = &mut s.n;
    let bursts: Vec<_> = (0..3)
        .map(|_| n.qp.poll_transmit(now, 8, &mut n.host).unwrap())
        .collect();
    n.qp.sent(now, &bursts[1], Err(LocProtErr), &mut n.host);
    s.post(4, SendOp::Write, 1);
    // But for what asks for the first.
    assert_eq!(s.seen(), [(0x0a, 99)]);
    assert_eq!(s.idle(), Idle::Failed);
}

#[test]
fn late_report_of_an_earlier_life_is_ignored() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    let now = s.now;
    let b = s.n.qp.poll_transmit(now, 8, &mut s.n.host).unwrap();
    s.to(QpState::Reset);
    s.n.to_init(&s.c.clone());
    s.n.to_rtr(&s.c.clone(), QPN[1], 100);
    s.n.to_rts(&s.c.clone(), 100);
    assert_eq!(s.post(2, SendOp::Write, 1), 0);
    s.tx();
    s.n.qp.sent(now, &b, Err(LocProtErr), &mut s.n.host);
    s.rx(ack(100, 0x1f, 1));
    assert_eq!(s.done(), [(2, Success)]);
}

#[test]
fn window_limits_the_unacknowledged_and_asks_for_an_ack_when_full() {
    for window in [1, 2, 5] {
        let mut s = script(Config { window, ..config() });
        s.post(1, SendOp::Write, 20 * 256);
        let tx = s.tx();
        assert_eq!(tx.len(), window as usize);
        assert!(tx.last().unwrap().headers.bth.ack_req);
        assert_eq!(s.idle(), Idle::Window);
        s.rx(ack(100, 0x1f, 0));
        assert_eq!(s.tx().len(), 1);
    }
}

#[test]
fn window_falls_with_losses_and_grows_with_acks() {
    let mut s = script(Config {
        window: 64,
        ..config()
    });
    s.post(1, SendOp::Write, 200 * 256);
    assert_eq!(s.tx().len(), 64);
    // A NAK halves it, a timeout quarters it, and eight is the least.
    s.rx(ack(100, 0x60, 0));
    assert_eq!(s.tx().len(), 32);
    s.wait();
    let tx = s.tx();
    assert_eq!(tx.len(), 8);
    assert!(tx[7].headers.bth.ack_req);
    s.wait();
    assert_eq!(s.tx().len(), 8);
    // It doubles in a round trip, up to where it was.
    let mut psn = 100;
    for n in [16, 32, 64, 64] {
        psn += s.n.qp.status().next_psn.distance_from(Psn::new(psn));
        s.rx(ack(psn - 1, 0x1f, 0));
        assert_eq!(s.tx().len(), n.min(300 - psn as usize));
    }
}

#[test]
fn window_grows_with_the_answers_to_reads_too() {
    let mut s = script(Config {
        window: 16,
        max_rd_atomic: 16,
        ..config()
    });
    for id in 0..64 {
        s.post(id, SendOp::Read, 1);
    }
    assert_eq!(s.tx().len(), 16);
    s.wait();
    assert_eq!(s.tx().len(), 8);
    for psn in 100..108 {
        s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, psn, 1, 1));
    }
    assert_eq!(s.tx().len(), 16);
}

#[test]
fn long_read_counts_as_one_packet_of_the_window() {
    let mut s = script(Config {
        window: 2,
        ..config()
    });
    s.post(1, SendOp::Read, 100 * 256);
    s.post(2, SendOp::Write, 1);
    s.post(3, SendOp::Write, 1);
    assert_eq!(s.seen(), [(0x0c, 100), (0x0a, 200)]);
    assert_eq!(s.idle(), Idle::Window);
}

#[test]
fn two_gibibytes_are_one_message() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 1 << 31);
    s.post(2, SendOp::Read, 1);
    let tx = s.tx();
    // All of the PSN space that can be told apart.
    assert_eq!(tx.len(), 1);
    assert_eq!(tx[0].headers.reth().unwrap().len, 1 << 31);
    assert_eq!(s.idle(), Idle::Window);
    assert_eq!(s.n.qp.status().sent_psn, Psn::new(100 + (1 << 23)));
    for i in 0..1 << 23 {
        let op = match i {
            0 => Opcode::RC_READ_RESPONSE_FIRST,
            0x7f_ffff => Opcode::RC_READ_RESPONSE_LAST,
            _ => Opcode::RC_READ_RESPONSE_MIDDLE,
        };
        let r = Parsed {
            headers: response(op, 100 + i, 0, 0).h,
            header_len: 16,
            payload_len: 256,
        };
        s.n.host.payload.resize(256, 0);
        // Only the bookkeeping is of interest.
        s.n.host.local[0] = BASE.wrapping_sub(u64::from(i) * 256);
        let verdict = s.n.qp.on_packet(s.now, &r, &mut s.n.host);
        assert_eq!(verdict, Verdict::Done);
    }
    assert_eq!(s.done(), [(1, Success)]);
    assert_eq!(s.seen().len(), 1);
}

#[test]
fn posting_is_checked() {
    let mut s = script(config());
    let n = &mut s.n;
    let post = |n: &mut Node, w| n.qp.post_send(T0, w, &mut n.host);
    assert_eq!(
        post(n, wqe(1, SendOp::Write, (1 << 31) + 1, 0, 0)),
        Err(PostError::Length)
    );
    assert_eq!(
        post(n, wqe(1, SendOp::FetchAdd { add: 1 }, 4, 0, 0)),
        Err(PostError::Length)
    );
    assert_eq!(
        post(n, wqe(1, SendOp::AtomicWrite, 4, 0, 0)),
        Err(PostError::Length)
    );
    assert_eq!(
        post(n, wqe(1, SendOp::Flush(FlushKind::default()), 4, 0, 0)),
        Err(PostError::Opcode)
    );
    for i in 0..64 {
        assert_eq!(post(n, wqe(1, SendOp::Write, 1, 0, 0)), Ok(i));
    }
    assert_eq!(
        post(n, wqe(1, SendOp::Write, 1, 0, 0)),
        Err(PostError::Full)
    );

    for ty in [QpType::Uc, QpType::Ud] {
        let mut s = script(Config { ty, ..config() });
        for op in [
            SendOp::Read,
            SendOp::SendInv(1),
            SendOp::FetchAdd { add: 1 },
            SendOp::AtomicWrite,
            SendOp::Flush(GLOBAL),
        ] {
            let r = s.n.qp.post_send(T0, wqe(1, op, 8, 0, 0), &mut s.n.host);
            assert_eq!(r, Err(PostError::Opcode));
        }
    }
    let mut s = script(Config {
        ty: QpType::Ud,
        ..config()
    });
    let r =
        s.n.qp
            .post_send(T0, wqe(1, SendOp::Send, 8, 0, 0), &mut s.n.host);
    assert_eq!(r, Err(PostError::Destination));
}

#[test]
fn posting_needs_a_state_that_sends() {
    let c = config();
    let mut n = Node::new(0, &c, MEM);
    let post = |n: &mut Node| {
        n.qp.post_send(T0, wqe(1, SendOp::Write, 1, 0, 0), &mut n.host)
    };
    assert_eq!(post(&mut n), Err(PostError::State));
    n.to_init(&c);
    assert_eq!(post(&mut n), Err(PostError::State));
    n.to_rtr(&c, 1, 1);
    assert_eq!(post(&mut n), Err(PostError::State));
    n.to_rts(&c, 1);
    assert_eq!(post(&mut n), Ok(0));
}

// --- responder -----------------------------------------------------------------------------------

#[test]
fn send_lands_in_the_receive_and_is_acknowledged() {
    let mut s = script(config());
    s.n.post_recv(7, BASE, 1000);
    s.n.post_recv(8, BASE, 1000);
    s.rx(p(Opcode::RC_SEND_FIRST, 100).quiet().data(256, 1));
    s.rx(p(Opcode::RC_SEND_MIDDLE, 101).quiet().data(256, 2));
    let mut last = p(Opcode::RC_SEND_LAST_IMM, 102).data(3, 3);
    last.h.tail = Tail::Imm(ImmDt(0x1234));
    last.h.bth.solicited = true;
    s.rx(last);
    // One more receive is posted.
    assert_eq!(s.reply(), Some((102, 0x01, 1)));
    let d = s.n.host.recv_cq[0];
    assert_eq!(
        (d.wr_id, d.c.status, d.c.byte_len, d.c.imm),
        (7, Success, 515, Some(0x1234))
    );
    assert!(d.c.solicited && !d.c.grh);
    assert_eq!(d.c.src_qp, QPN[1]);
    assert_eq!(s.n.host.bytes(BASE + 512, 3), [3, 3, 3]);
}

#[test]
fn one_ack_covers_all_that_came_since() {
    let mut s = script(config());
    for i in 0..10 {
        s.rx(p(Opcode::RC_WRITE_ONLY, 100 + i)
            .reth(BASE, RKEY, 4)
            .data(4, 1));
    }
    assert_eq!(s.reply(), Some((109, 0, 10)));
    assert_eq!(s.reply(), None);
}

#[test]
fn many_requests_make_an_answer_due() {
    let mut s = script(config());
    for i in 0..ACK_BOUND {
        assert!(!s.n.qp.answers_due());
        s.rx(p(Opcode::RC_WRITE_ONLY, 100 + i)
            .reth(BASE, RKEY, 4)
            .data(4, 1));
    }
    assert!(s.n.qp.answers_due());
    s.tx();
    assert!(!s.n.qp.answers_due());
}

#[test]
fn nothing_is_acknowledged_unasked() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_ONLY, 100)
        .reth(BASE, RKEY, 4)
        .data(4, 1)
        .quiet());
    assert_eq!(s.reply(), None);
}

#[test]
fn credits_count_the_receive_under_way() {
    let mut s = script(config());
    for i in 0..3 {
        s.n.post_recv(i, BASE, 1000);
    }
    s.rx(p(Opcode::RC_SEND_FIRST, 100).data(256, 1));
    // Two are left, and one belongs to message 1, which does not count yet.
    assert_eq!(s.reply(), Some((100, 3, 0)));
    s.rx(p(Opcode::RC_SEND_LAST, 101).data(1, 1));
    assert_eq!(s.reply(), Some((101, 2, 1)));
}

#[test]
fn shared_receive_queue_means_unlimited_credit() {
    let mut s = script(Config {
        srq: true,
        ..config()
    });
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.reply(), Some((100, 0x1f, 1)));
}

#[test]
fn early_packet_is_answered_by_one_nak() {
    let mut s = script(config());
    let write = |psn| p(Opcode::RC_WRITE_ONLY, psn).reth(BASE, RKEY, 4).data(4, 1);
    s.rx(write(100));
    s.rx(write(102));
    s.rx(write(103));
    assert_eq!(s.reply(), Some((101, 0x60, 1)));
    s.rx(write(104));
    assert_eq!(s.reply(), None);
    s.rx(write(101));
    assert_eq!(s.reply(), Some((101, 0, 2)));
    s.rx(write(103));
    assert_eq!(s.reply(), Some((102, 0x60, 2)));
}

#[test]
fn late_packet_takes_the_nak_back() {
    let mut s = script(config());
    let write = |psn| p(Opcode::RC_WRITE_ONLY, psn).reth(BASE, RKEY, 4).data(4, 1);
    s.rx(write(101));
    s.rx(write(100));
    s.rx(write(101));
    assert_eq!(s.reply(), Some((101, 0, 2)));
}

#[test]
fn duplicate_is_acknowledged_with_the_last_psn_and_not_carried_out() {
    let mut s = script(config());
    for i in 0..3 {
        s.n.post_recv(i, BASE, 1000);
    }
    s.rx(p(SEND_ONLY, 100).data(4, 1));
    s.rx(p(SEND_ONLY, 101).data(4, 2));
    s.reply();
    s.rx(p(SEND_ONLY, 100).data(4, 3).quiet());
    assert_eq!(s.reply(), Some((101, 1, 2)));
    assert_eq!(s.received().len(), 2);
    assert_eq!(s.n.host.bytes(BASE, 1), [2]);
}

#[test]
fn duplicate_is_never_acknowledged_with_the_psn_of_a_read() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1));
    s.rx(p(Opcode::RC_READ_REQUEST, 101).reth(BASE, RKEY, 4));
    assert_eq!(s.seen(), [(0x10, 101)]);
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.reply(), Some((100, 0, 2)));
}

#[test]
fn answers_leave_in_psn_order() {
    let mut s = script(config());
    let write = |psn| p(Opcode::RC_WRITE_ONLY, psn).reth(BASE, RKEY, 4).data(4, 1);
    s.rx(write(100));
    s.rx(p(Opcode::RC_READ_REQUEST, 101).reth(BASE, RKEY, 600));
    s.rx(write(104));
    s.rx(p(Opcode::RC_READ_REQUEST, 105).reth(BASE, RKEY, 4));
    s.rx(write(106));
    // Each READ response acknowledges the WRITE before it.
    assert_eq!(
        s.seen(),
        [
            (0x0d, 101),
            (0x0e, 102),
            (0x0f, 103),
            (0x10, 105),
            (0x11, 106)
        ]
    );
}

#[test]
fn answers_go_before_requests() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 1);
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.seen(), [(0x11, 100), (0x0a, 100)]);
}

#[test]
fn rnr_nak_comes_before_anything_is_placed() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_SEND_FIRST, 100).data(256, 1));
    s.rx(p(Opcode::RC_SEND_LAST, 101).data(1, 1));
    assert_eq!(s.reply(), Some((100, 0x21, 0)));
    s.n.post_recv(7, BASE, 1000);
    // Only the one that was refused is taken.
    s.rx(p(Opcode::RC_SEND_LAST, 101).data(1, 1));
    assert_eq!(s.reply(), None);
    s.rx(p(Opcode::RC_SEND_FIRST, 100).data(256, 1));
    s.rx(p(Opcode::RC_SEND_LAST, 101).data(1, 1));
    assert_eq!(s.received(), [(7, Success)]);
}

#[test]
fn write_with_immediate_needs_its_receive_at_the_end() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_FIRST, 100)
        .reth(BASE, RKEY, 300)
        .data(256, 1));
    assert_eq!(s.reply(), Some((100, 0, 0)));
    let mut last = p(Opcode::RC_WRITE_LAST_IMM, 101).data(44, 2);
    last.h.tail = Tail::Imm(ImmDt(9));
    s.rx(last.clone());
    assert_eq!(s.reply(), Some((101, 0x21, 0)));
    assert_eq!(s.n.host.bytes(BASE + 256, 1), [0]);
    s.n.post_recv(7, BASE, 0);
    s.rx(last);
    assert_eq!(s.reply(), Some((101, 0, 1)));
    let c = s.n.host.recv_cq[0].c;
    assert_eq!((c.op, c.byte_len, c.imm), (RecvOp::WriteImm, 300, Some(9)));
}

/// The request is refused with this NAK code; nothing more is carried out.
fn refused(mut s: Script, bad: P, code: u8, event: Option<AsyncEvent>, recv: &[(u64, WcStatus)]) {
    let psn = bad.h.bth.psn.get();
    s.rx(bad);
    assert_eq!(s.state(), QpState::Err);
    s.rx(p(Opcode::RC_WRITE_ONLY, psn + 1)
        .reth(BASE, RKEY, 4)
        .data(4, 0xee));
    let r = s.reply().expect("a NAK");
    assert_eq!((r.0, r.1), (psn, code));
    assert_eq!(s.reply(), None);
    assert_eq!(s.n.host.events, event.into_iter().collect::<Vec<_>>());
    assert_eq!(s.received(), recv);
    assert!(!s.n.host.bytes(BASE, 256).contains(&0xee));
}

#[test]
fn invalid_opcode_sequence_is_refused() {
    use AsyncEvent::QpReqErr;
    for op in [Opcode::RC_SEND_MIDDLE, Opcode::RC_WRITE_MIDDLE] {
        refused(
            script(config()),
            p(op, 100).data(256, 1),
            0x61,
            Some(QpReqErr),
            &[],
        );
    }
    for op in [
        Opcode::RC_SEND_LAST,
        Opcode::RC_WRITE_LAST,
        Opcode::RC_SEND_LAST_INV,
    ] {
        refused(
            script(config()),
            p(op, 100).data(1, 1),
            0x61,
            Some(QpReqErr),
            &[],
        );
    }
    // Within a SEND: the receive tells it.
    for bad in [
        p(SEND_ONLY, 101).data(1, 1),
        p(Opcode::RC_SEND_FIRST, 101).data(256, 1),
        p(Opcode::RC_WRITE_MIDDLE, 101).data(256, 1),
        p(Opcode::RC_WRITE_ONLY, 101).reth(BASE, RKEY, 1).data(1, 1),
        p(Opcode::RC_READ_REQUEST, 101).reth(BASE, RKEY, 1),
    ] {
        let mut s = script(config());
        s.n.post_recv(7, BASE, 1000);
        s.n.post_recv(8, BASE, 1000);
        s.rx(p(Opcode::RC_SEND_FIRST, 100).quiet().data(256, 1));
        refused(s, bad, 0x61, None, &[(7, RemInvReqErr), (8, WrFlushErr)]);
    }
    // Within a WRITE.
    for bad in [
        p(SEND_ONLY, 101).data(1, 1),
        p(Opcode::RC_SEND_MIDDLE, 101).data(256, 1),
        p(Opcode::RC_WRITE_ONLY, 101).reth(BASE, RKEY, 1).data(1, 1),
        p(Opcode::RC_READ_REQUEST, 101).reth(BASE, RKEY, 1),
        p(Opcode::RC_FETCH_ADD, 101),
    ] {
        let mut s = script(config());
        s.rx(p(Opcode::RC_WRITE_FIRST, 100)
            .quiet()
            .reth(BASE, RKEY, 600)
            .data(256, 1));
        refused(s, bad, 0x61, Some(QpReqErr), &[]);
    }
}

#[test]
fn wrong_payload_length_is_refused() {
    for (op, len) in [
        (Opcode::RC_SEND_FIRST, 255),
        (Opcode::RC_SEND_FIRST, 257),
        (Opcode::RC_SEND_ONLY, 257),
        (Opcode::RC_SEND_FIRST, 0),
    ] {
        let mut s = script(config());
        s.n.post_recv(7, BASE, 1000);
        refused(
            s,
            p(op, 100).data(len, 1),
            0x61,
            Some(AsyncEvent::QpReqErr),
            &[(7, WrFlushErr)],
        );
    }
    for (op, len) in [
        (Opcode::RC_SEND_MIDDLE, 100),
        (Opcode::RC_SEND_LAST, 0),
        (Opcode::RC_SEND_LAST, 257),
    ] {
        let mut s = script(config());
        s.n.post_recv(7, BASE, 1000);
        s.rx(p(Opcode::RC_SEND_FIRST, 100).quiet().data(256, 1));
        refused(s, p(op, 101).data(len, 1), 0x61, None, &[(7, RemInvReqErr)]);
    }
}

#[test]
fn write_whose_length_does_not_fit_is_refused() {
    let bad = |op, total, len| p(op, 100).reth(BASE, RKEY, total).data(len, 0xee);
    for b in [
        bad(Opcode::RC_WRITE_ONLY, 10, 9),
        bad(Opcode::RC_WRITE_ONLY, 9, 10),
        bad(Opcode::RC_WRITE_ONLY, 257, 256),
        bad(Opcode::RC_WRITE_FIRST, 256, 256),
        bad(Opcode::RC_WRITE_FIRST, 0, 256),
        bad(Opcode::RC_WRITE_FIRST, (1 << 31) + 1, 256),
    ] {
        refused(script(config()), b, 0x61, Some(AsyncEvent::QpReqErr), &[]);
    }
    for (op, len) in [
        (Opcode::RC_WRITE_LAST, 43),
        (Opcode::RC_WRITE_LAST, 45),
        (Opcode::RC_WRITE_MIDDLE, 256),
    ] {
        let mut s = script(config());
        s.rx(p(Opcode::RC_WRITE_FIRST, 100)
            .quiet()
            .reth(BASE, RKEY, 300)
            .data(256, 1));
        refused(
            s,
            p(op, 101).data(len, 1),
            0x61,
            Some(AsyncEvent::QpReqErr),
            &[],
        );
    }
}

#[test]
fn key_is_checked_for_the_whole_write_before_a_byte_moves() {
    let end = BASE + MEM as u64;
    for (va, rkey) in [
        (end - 299, RKEY),
        (BASE - 1, RKEY),
        (BASE, RKEY ^ 1),
        (u64::MAX - 255, RKEY),
    ] {
        let b = p(Opcode::RC_WRITE_FIRST, 100)
            .reth(va, rkey, 300)
            .data(256, 0xee);
        refused(
            script(config()),
            b,
            0x62,
            Some(AsyncEvent::QpAccessErr),
            &[],
        );
    }
}

#[test]
fn access_error_of_a_write_with_immediate_rides_on_the_receive() {
    let mut s = script(config());
    s.n.post_recv(7, BASE, 0);
    let b = p(Opcode::RC_WRITE_ONLY_IMM, 100)
        .reth(BASE, 1, 4)
        .data(4, 1);
    refused(s, b, 0x62, None, &[(7, RemAccessErr)]);
}

#[test]
fn access_not_enabled_on_the_queue_pair_is_invalid() {
    let c = Config {
        access: Access::NONE,
        ..config()
    };
    let mut a = p(Opcode::RC_FETCH_ADD, 100);
    a.h.ext = Ext::Atomic(AtomicEth {
        va: BASE,
        rkey: RKEY,
        ..AtomicEth::default()
    });
    for b in [
        p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 4).data(4, 1),
        p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 4),
        atomic_write(100, BASE, RKEY),
        flush(100, 1),
        flush(100, 2),
        a,
    ] {
        refused(script(c), b, 0x61, Some(AsyncEvent::QpReqErr), &[]);
    }
}

#[test]
fn empty_write_and_read_ignore_key_and_address() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(u64::MAX, 0xdead, 0));
    s.rx(p(Opcode::RC_READ_REQUEST, 101).reth(u64::MAX, 0xdead, 0));
    s.rx(p(Opcode::RC_WRITE_ONLY, 102).reth(u64::MAX, 0xdead, 0));
    assert_eq!(s.seen(), [(0x10, 101), (0x11, 102)]);
    // Also again, with another key.
    s.rx(p(Opcode::RC_READ_REQUEST, 101).reth(1, 2, 0));
    assert_eq!(s.seen(), [(0x10, 101)]);
    assert_eq!(s.n.host.opened, 0);
}

#[test]
fn receive_too_short_is_a_length_error_and_an_invalid_request() {
    let mut s = script(config());
    s.n.post_recv(7, BASE, 3);
    refused(
        s,
        p(SEND_ONLY, 100).data(4, 0xee),
        0x61,
        None,
        &[(7, LocLenErr)],
    );
    let mut s = script(config());
    s.n.post_recv(7, BASE, 256);
    s.rx(p(Opcode::RC_SEND_FIRST, 100).quiet().data(256, 1));
    refused(
        s,
        p(Opcode::RC_SEND_LAST, 101).data(1, 0xee),
        0x61,
        None,
        &[(7, LocLenErr)],
    );
}

#[test]
fn bad_receive_is_a_remote_operational_error() {
    let mut s = script(config());
    s.n.post_recv(7, BASE, 10);
    s.n.host.recvs[0].fault = Some(LocQpOpErr);
    refused(
        s,
        p(SEND_ONLY, 100).data(4, 0xee),
        0x63,
        None,
        &[(7, LocQpOpErr)],
    );
    let mut s = script(config());
    s.n.post_recv(7, BASE, 10);
    s.n.host.place_fault = Some(LocProtErr);
    refused(
        s,
        p(SEND_ONLY, 100).data(4, 0xee),
        0x63,
        None,
        &[(7, LocProtErr)],
    );
}

#[test]
fn local_failure_of_a_write_is_a_remote_operational_error() {
    let mut s = script(config());
    s.n.host.remote_fault = Some(KeyFault::Operational);
    let b = p(Opcode::RC_WRITE_ONLY, 100)
        .reth(BASE, RKEY, 4)
        .data(4, 0xee);
    refused(s, b, 0x63, Some(AsyncEvent::QpFatal), &[]);
}

#[test]
fn send_with_invalidate_invalidates() {
    let mut s = script(config());
    s.n.post_recv(7, BASE, 10);
    let mut b = p(Opcode::RC_SEND_ONLY_INV, 100).data(4, 1);
    b.h.tail = Tail::Invalidate(Ieth(RKEY));
    s.rx(b.clone());
    assert_eq!(s.n.host.keys.len(), 0);
    assert_eq!(s.n.host.recv_cq[0].c.invalidated, Some(RKEY));

    let mut s = script(config());
    s.n.post_recv(7, BASE, 10);
    b.h.tail = Tail::Invalidate(Ieth(1));
    refused(s, b, 0x61, None, &[(7, RemInvReqErr)]);
}

#[test]
fn read_is_answered_by_its_own_psns() {
    let mut s = script(config());
    for (i, b) in s.n.host.bytes_mut(BASE, 600).iter_mut().enumerate() {
        *b = i as u8;
    }
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE + 1, RKEY, 515));
    let out = s.out();
    let tx: Vec<_> = out.iter().map(|b| parse(b)).collect();
    let lens: Vec<_> = tx.iter().map(|p| p.payload_len).collect();
    assert_eq!(lens, [256, 256, 3]);
    assert_eq!(out[2][16..19], [1, 2, 3]);
    assert_eq!(tx[0].headers.aeth().unwrap().msn, Msn::new(1));
    assert_eq!(tx[1].headers.aeth(), None);
    // The next request has the PSN after the response.
    s.rx(p(Opcode::RC_WRITE_ONLY, 103).reth(BASE, RKEY, 4).data(4, 1));
    assert_eq!(s.reply(), Some((103, 0, 2)));
}

#[test]
fn read_is_answered_again_in_part() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 1000));
    assert_eq!(s.tx().len(), 4);
    s.rx(p(Opcode::RC_READ_REQUEST, 102).reth(BASE + 512, RKEY, 488));
    assert_eq!(s.seen(), [(0x0d, 102), (0x0f, 103)]);
    s.rx(p(Opcode::RC_READ_REQUEST, 103).reth(BASE + 768, RKEY, 232));
    assert_eq!(s.seen(), [(0x10, 103)]);
    // Only a piece of it.
    s.rx(p(Opcode::RC_READ_REQUEST, 101).reth(BASE + 256, RKEY, 300));
    assert_eq!(s.seen(), [(0x0d, 101), (0x0f, 102)]);
}

#[test]
fn duplicate_read_that_does_not_match_is_dropped() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 1000));
    s.tx();
    for r in [
        p(Opcode::RC_READ_REQUEST, 102).reth(BASE, RKEY, 488),
        p(Opcode::RC_READ_REQUEST, 102).reth(BASE + 512, RKEY ^ 1, 488),
        p(Opcode::RC_READ_REQUEST, 102).reth(BASE + 512, RKEY, 489),
        p(Opcode::RC_READ_REQUEST, 102).reth(BASE + 512, RKEY, u32::MAX),
        p(Opcode::RC_READ_REQUEST, 102).reth(BASE + 512, RKEY, 0),
        p(Opcode::RC_READ_REQUEST, 99).reth(BASE, RKEY, 1000),
        p(Opcode::RC_FETCH_ADD, 100),
    ] {
        s.rx(r);
        assert_eq!(s.seen(), []);
    }
    assert_eq!(s.n.host.counted(Counter::DropUnknownDuplicate), 7);
}

#[test]
fn duplicate_read_within_a_write_disturbs_nothing() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 4));
    s.rx(p(Opcode::RC_WRITE_FIRST, 101)
        .reth(BASE, RKEY, 300)
        .data(256, 1));
    s.tx();
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 4));
    assert_eq!(s.seen(), [(0x10, 100)]);
    s.rx(p(Opcode::RC_WRITE_LAST, 102).data(44, 1));
    assert_eq!(s.reply(), Some((102, 0, 2)));
}

#[test]
fn remembered_read_is_forgotten_when_psns_have_gone_round() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 4));
    s.tx();
    // Almost a full turn of WRITEs; the PSN of the READ is behind once more.
    let mut w = parse(&p(Opcode::RC_WRITE_ONLY, 0).reth(BASE, RKEY, 0).bytes());
    for psn in 101..(1 << 24) + 200 {
        w.headers.bth.psn = Psn::new(psn);
        let verdict = s.n.qp.on_packet(s.now, &w, &mut s.n.host);
        assert_eq!(verdict, Verdict::Done);
    }
    s.tx();
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 4));
    assert_eq!(s.seen(), []);
}

#[test]
fn more_reads_than_agreed_are_invalid() {
    let mut s = script(Config {
        max_rd_atomic: 2,
        ..config()
    });
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 4));
    s.rx(p(Opcode::RC_READ_REQUEST, 101).reth(BASE, RKEY, 4));
    s.rx(p(Opcode::RC_READ_REQUEST, 102).reth(BASE, RKEY, 4));
    // What was accepted is answered, then comes the NAK.
    assert_eq!(s.seen(), [(0x10, 100), (0x10, 101), (0x11, 102)]);
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn reads_may_follow_each_other_for_ever() {
    let mut s = script(Config {
        max_rd_atomic: 2,
        ..config()
    });
    for psn in 100..120 {
        s.rx(p(Opcode::RC_READ_REQUEST, psn).reth(BASE, RKEY, 4));
        assert_eq!(s.seen(), [(0x10, psn)]);
    }
}

#[test]
fn read_that_cannot_be_gathered_becomes_a_nak() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_READ_REQUEST, 100).reth(BASE, RKEY, 1000));
    let now = s.now;
    let n = &mut s.n;
    let b = n.qp.poll_transmit(now, 2, &mut n.host).unwrap();
    n.qp.sent(now, &b, Ok(()), &mut n.host);
    n.host.keys.clear();
    let b = n.qp.poll_transmit(now, 2, &mut n.host).unwrap();
    assert_eq!(n.gather(&b), Err(LocProtErr));
    n.qp.sent(now, &b, Err(LocProtErr), &mut n.host);
    assert_eq!(s.reply(), Some((102, 0x62, 1)));
    assert_eq!(s.n.host.events, [AsyncEvent::QpAccessErr]);
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn atomic_is_carried_out_once_and_answered_again() {
    let mut s = script(config());
    let mut a = p(Opcode::RC_FETCH_ADD, 100);
    a.h.ext = Ext::Atomic(AtomicEth {
        va: BASE,
        rkey: RKEY,
        swap_add: 5,
        compare: 0,
    });
    s.n.host.bytes_mut(BASE, 8)[0] = 7;
    for _ in 0..3 {
        s.rx(a.clone());
        let tx = s.tx();
        assert_eq!(tx.len(), 1);
        assert_eq!(tx[0].headers.atomic_ack(), Some(AtomicAckEth(7)));
        assert_eq!(tx[0].headers.aeth().unwrap().msn, Msn::new(1));
    }
    assert_eq!(s.n.host.bytes(BASE, 8)[0], 12);
    assert_eq!(s.n.host.atomics, 1);
}

#[test]
fn misaligned_atomic_is_invalid() {
    for low in 1..8 {
        let mut a = p(Opcode::RC_COMPARE_SWAP, 100);
        a.h.ext = Ext::Atomic(AtomicEth {
            va: BASE + low,
            rkey: RKEY,
            ..AtomicEth::default()
        });
        refused(script(config()), a, 0x61, Some(AsyncEvent::QpReqErr), &[]);
    }
}

#[test]
fn atomic_with_a_bad_key_is_an_access_error() {
    let mut a = p(Opcode::RC_COMPARE_SWAP, 100);
    a.h.ext = Ext::Atomic(AtomicEth {
        va: BASE,
        rkey: 1,
        ..AtomicEth::default()
    });
    refused(
        script(config()),
        a,
        0x62,
        Some(AsyncEvent::QpAccessErr),
        &[],
    );
}

fn atomic_write(psn: u32, va: u64, rkey: u32) -> P {
    p(Opcode::RC_ATOMIC_WRITE, psn)
        .reth(va, rkey, 8)
        .data(8, 0xee)
}

fn flush(psn: u32, feth: u32) -> P {
    p(Opcode::RC_FLUSH, psn)
        .feth(feth)
        .reth(BASE + 3, RKEY, 300)
}

/// The answer to an ATOMIC WRITE or a FLUSH: one, without data.
fn done_reply(s: &mut Script) -> Option<(u32, u32)> {
    let tx = s.tx();
    assert!(tx.len() <= 1, "{tx:?}");
    tx.first().map(|p| {
        assert_eq!(p.headers.bth.opcode, Opcode::RC_READ_RESPONSE_ONLY);
        assert_eq!((p.payload_len, p.headers.bth.pad), (0, 0));
        let a = p.headers.aeth().unwrap();
        assert!(matches!(a.syndrome, Syndrome::Ack { .. }));
        (p.headers.bth.psn.get(), a.msn.get())
    })
}

#[test]
fn atomic_write_is_carried_out_once_and_answered_again() {
    let mut s = script(config());
    let w = atomic_write(100, BASE + 16, RKEY);
    for _ in 0..3 {
        s.rx(w.clone());
        assert_eq!(done_reply(&mut s), Some((100, 1)));
    }
    assert_eq!(s.n.host.bytes(BASE + 16, 8), [0xee; 8]);
    assert_eq!(s.n.host.bytes(BASE + 24, 8), [0; 8]);
    assert_eq!(s.n.host.atomic_writes, 1);
}

#[test]
fn atomic_write_needs_eight_aligned_bytes_and_no_pad() {
    let with = |len: u32, data: usize, va: u64| {
        p(Opcode::RC_ATOMIC_WRITE, 100)
            .reth(va, RKEY, len)
            .data(data, 0xee)
    };
    let mut bad: Vec<_> = (1..8).map(|low| with(8, 8, BASE + low)).collect();
    for (len, data) in [(8, 0), (8, 4), (8, 7), (8, 12), (8, 256), (0, 8), (16, 8)] {
        bad.push(with(len, data, BASE));
    }
    bad.push(with(16, 16, BASE));
    for b in bad {
        refused(script(config()), b, 0x61, Some(AsyncEvent::QpReqErr), &[]);
    }
    // Eight bytes of payload and four that are padding would be twelve: the padding count can't say so.
    let mut b = with(8, 8, BASE).bytes();
    b[1] |= 0x10;
    assert_eq!(Headers::parse(&b, b.len()).unwrap().payload_len, 7);
}

#[test]
fn atomic_write_needs_the_right_to_write() {
    let mut s = script(config());
    s.n.host.keys[0].write = false;
    let event = Some(AsyncEvent::QpAccessErr);
    refused(s, atomic_write(100, BASE, RKEY), 0x62, event, &[]);
    let end = BASE + MEM as u64;
    for (va, rkey) in [(BASE, 1), (end, RKEY), (BASE - 8, RKEY)] {
        refused(
            script(config()),
            atomic_write(100, va, rkey),
            0x62,
            event,
            &[],
        );
    }
}

#[test]
fn flush_covers_a_range_or_the_region_and_is_answered() {
    let mut s = script(config());
    for (i, (feth, range, kind)) in [
        (1, Some((BASE + 3, 300)), GLOBAL),
        (
            2,
            Some((BASE + 3, 300)),
            FlushKind {
                persistent: true,
                ..FlushKind::default()
            },
        ),
        (
            0x13,
            None,
            FlushKind {
                global: true,
                persistent: true,
                whole: true,
            },
        ),
    ]
    .into_iter()
    .enumerate()
    {
        s.rx(flush(100 + i as u32, feth));
        assert_eq!(done_reply(&mut s), Some((100 + i as u32, 1 + i as u32)));
        assert_eq!(s.n.host.flushes.pop(), Some((RKEY, range, kind)));
    }
}

#[test]
fn flush_of_nothing_looks_at_no_key() {
    let mut s = script(config());
    s.rx(p(Opcode::RC_FLUSH, 100).feth(1).reth(u64::MAX, 0xdead, 0));
    assert_eq!(done_reply(&mut s), Some((100, 1)));
    assert!(s.n.host.flushes.is_empty());
}

#[test]
fn flush_with_payload_or_unknown_placement_is_invalid() {
    let payload = flush(100, 1).data(4, 0xee);
    for b in [
        payload,
        flush(100, 0),
        flush(100, 0x10),
        flush(100, 4),
        flush(100, 0x21),
    ] {
        refused(script(config()), b, 0x61, Some(AsyncEvent::QpReqErr), &[]);
    }
}

#[test]
fn flush_outside_the_key_is_an_access_error() {
    let event = Some(AsyncEvent::QpAccessErr);
    let outside = p(Opcode::RC_FLUSH, 100)
        .feth(1)
        .reth(BASE + 1, RKEY, MEM as u32);
    refused(script(config()), outside, 0x62, event, &[]);
    for feth in [1, 0x11] {
        let unknown = p(Opcode::RC_FLUSH, 100).feth(feth).reth(BASE, 1, 8);
        refused(script(config()), unknown, 0x62, event, &[]);
    }
}

/// What came before it was carried out in any case, so it needs no memory of it.
#[test]
fn duplicate_flush_is_acknowledged_even_when_forgotten() {
    let mut s = script(config());
    for psn in 100..112 {
        s.rx(flush(psn, 1));
        assert_eq!(done_reply(&mut s), Some((psn, psn - 99)));
    }
    assert_eq!(s.n.host.flushes.len(), 12);
    // Four are remembered.
    s.rx(flush(110, 1));
    assert_eq!(done_reply(&mut s), Some((110, 11)));
    s.rx(flush(102, 1));
    assert_eq!(s.n.qp.status().pending_answers, 1);
    assert_eq!(done_reply(&mut s), Some((102, 12)));
    s.rx(atomic_write(103, BASE, RKEY));
    s.rx(flush(101, 1));
    s.rx(flush(104, 1));
    assert_eq!(done_reply(&mut s), Some((101, 12)));
    assert_eq!(s.n.host.flushes.len(), 12);
    assert_eq!(s.n.host.atomic_writes, 0);
}

#[test]
fn as_many_requests_as_can_be_remembered_make_answers_due() {
    let mut s = script(config());
    for psn in 100..104 {
        assert!(!s.n.qp.answers_due());
        s.rx(flush(psn, 1));
    }
    assert!(s.n.qp.answers_due());
    assert_eq!(
        s.seen(),
        [(0x10, 100), (0x10, 101), (0x10, 102), (0x10, 103)]
    );
    assert!(!s.n.qp.answers_due());
    for psn in 104..108 {
        s.rx(flush(psn, 1));
    }
    // One more than agreed.
    s.rx(flush(108, 1));
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn local_failure_of_a_flush_is_a_remote_operational_error() {
    for b in [flush(100, 1), atomic_write(100, BASE, RKEY)] {
        let mut s = script(config());
        s.n.host.remote_fault = Some(KeyFault::Operational);
        refused(s, b, 0x63, Some(AsyncEvent::QpFatal), &[]);
    }
}

#[test]
fn flush_and_atomic_write_within_a_message_are_invalid() {
    for b in [flush(101, 1), atomic_write(101, BASE + 512, RKEY)] {
        let mut s = script(config());
        s.rx(p(Opcode::RC_WRITE_FIRST, 100)
            .reth(BASE, RKEY, 600)
            .data(256, 1)
            .quiet());
        refused(s, b, 0x61, Some(AsyncEvent::QpReqErr), &[]);
    }
}

#[test]
fn atomic_write_carries_eight_bytes_and_waits_for_its_response() {
    let mut s = script(config());
    s.post(1, SendOp::AtomicWrite, 8);
    s.post(2, SendOp::Write, 0);
    let tx = s.tx();
    let h = tx[0].headers;
    assert_eq!(h.bth.opcode, Opcode::RC_ATOMIC_WRITE);
    assert_eq!((tx[0].payload_len, h.bth.pad, h.bth.ack_req), (8, 0, true));
    assert_eq!(
        h.reth(),
        Some(Reth {
            va: BASE + 0x8000,
            rkey: RKEY,
            len: 8
        })
    );
    // An ACK of what follows shows that the response is lost.
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(s.done(), []);
    assert_eq!(s.seen()[0], (0x1d, 100));
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 100, 0, 0));
    assert_eq!(s.done(), [(1, Success)]);
    assert_eq!(s.n.host.send_cq[0].byte_len, 8);
    s.rx(ack(101, 0x1f, 2));
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
}

#[test]
fn flush_carries_its_kind_and_range_and_no_data() {
    let mut s = script(config());
    let kind = FlushKind {
        whole: true,
        ..GLOBAL
    };
    for (id, kind, bits) in [(1, GLOBAL, 1), (2, kind, 0x11)] {
        s.post(id, SendOp::Flush(kind), 1 << 20);
        let tx = s.tx();
        let psn = 99 + id as u32;
        let h = tx[0].headers;
        assert_eq!((h.bth.opcode, h.bth.psn), (Opcode::RC_FLUSH, Psn::new(psn)));
        assert_eq!((h.feth(), h.bth.ack_req), (Some(Feth(bits)), true));
        assert_eq!(h.reth().unwrap().len, 1 << 20);
        assert_eq!((tx.len(), tx[0].payload_len), (1, 0));
        s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 0));
    }
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
    assert_eq!(s.n.host.send_cq[0].byte_len, 0);
}

#[test]
fn flush_and_atomic_write_count_against_the_read_limit_and_fence() {
    let mut s = script(Config {
        max_rd_atomic: 2,
        ..config()
    });
    s.post(1, SendOp::Flush(GLOBAL), 8);
    s.post(2, SendOp::AtomicWrite, 8);
    s.post(3, SendOp::Flush(GLOBAL), 8);
    assert_eq!(s.seen(), [(0x1c, 100), (0x1d, 101)]);
    assert_eq!(s.idle(), Idle::ReadLimit);
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 101, 0, 0));
    // The second shows that the first is lost.
    assert_eq!(s.done(), []);
    assert_eq!(s.seen(), [(0x1c, 100), (0x1d, 101)]);
    for psn in [100, 101] {
        s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 0));
    }
    let mut w = wqe(4, SendOp::Write, 0, 0, 0);
    w.flags.fence = true;
    s.n.post(s.now, BASE, w).unwrap();
    assert_eq!(s.seen(), [(0x1c, 102)]);
    assert_eq!(s.idle(), Idle::Fence);
    s.rx(response(Opcode::RC_READ_RESPONSE_ONLY, 102, 0, 0));
    assert_eq!(s.seen(), [(0x0a, 103)]);
}

#[test]
fn wrong_answer_to_flush_and_atomic_write_fails_them() {
    for op in [SendOp::Flush(GLOBAL), SendOp::AtomicWrite] {
        for (answer, len, status) in [
            (Opcode::RC_READ_RESPONSE_FIRST, 256, BadRespErr),
            (Opcode::RC_READ_RESPONSE_MIDDLE, 256, BadRespErr),
            (Opcode::RC_ATOMIC_ACKNOWLEDGE, 0, BadRespErr),
            (Opcode::RC_READ_RESPONSE_ONLY, 8, LocLenErr),
        ] {
            let mut s = script(config());
            s.post(1, op, 8);
            s.tx();
            let mut r = response(answer, 100, len, 1);
            r.h.ext = Ext::AtomicAck(r.h.aeth().unwrap(), AtomicAckEth(1));
            s.rx(r);
            assert_eq!(s.done(), [(1, status)]);
        }
        for (syndrome, status) in [(0x61, RemInvReqErr), (0x62, RemAccessErr), (0x63, RemOpErr)] {
            let mut s = script(config());
            s.post(1, op, 8);
            s.tx();
            s.rx(ack(100, syndrome, 0));
            assert_eq!(s.done(), [(1, status)]);
        }
    }
}

#[test]
fn psns_wrap_at_the_responder() {
    let mut s = script(Config {
        psn: 0xff_ffff,
        ..config()
    });
    let write = |psn| p(Opcode::RC_WRITE_ONLY, psn).reth(BASE, RKEY, 4).data(4, 1);
    s.rx(write(0xff_ffff));
    s.rx(write(0));
    assert_eq!(s.reply(), Some((0, 0, 2)));
    s.rx(write(0xff_ffff));
    assert_eq!(s.reply(), Some((0, 0, 2)));
    s.rx(write(2));
    assert_eq!(s.reply(), Some((1, 0x60, 2)));
}

#[test]
fn first_packet_in_rtr_raises_comm_est_once() {
    let c = config();
    let mut n = Node::new(0, &c, MEM);
    n.to_init(&c);
    n.to_rtr(&c, QPN[1], 100);
    n.host.keys.push(full_key(MEM));
    for psn in [101, 100, 101] {
        n.deliver(
            T0,
            &p(Opcode::RC_WRITE_ONLY, psn)
                .reth(BASE, RKEY, 4)
                .data(4, 1)
                .bytes(),
        );
    }
    assert_eq!(n.host.events, [AsyncEvent::CommEst]);
    // It answers already.
    assert_eq!(n.transmit(T0, 4).len(), 1);
}

// --- unreliable connections ----------------------------------------------------------------------

fn uc() -> Config {
    Config {
        ty: QpType::Uc,
        ..config()
    }
}

#[test]
fn uc_completes_when_handed_over_and_asks_for_no_ack() {
    let mut s = script(uc());
    s.post(1, SendOp::SendImm(3), 600);
    s.post(2, SendOp::Write, 1);
    let tx = s.tx();
    assert!(tx.iter().all(|p| !p.headers.bth.ack_req));
    let ops: Vec<_> = tx.iter().map(|p| p.headers.bth.opcode.raw()).collect();
    assert_eq!(ops, [0x20, 0x21, 0x23, 0x2a]);
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn uc_gap_drops_the_message_and_keeps_the_receive() {
    let mut s = script(uc());
    s.n.post_recv(7, BASE, 1000);
    s.rx(p(Opcode::UC_SEND_FIRST, 100).quiet().data(256, 1));
    s.rx(p(Opcode::UC_SEND_LAST, 102).quiet().data(10, 1));
    assert_eq!(s.received(), []);
    s.rx(p(Opcode::UC_SEND_ONLY, 110).quiet().data(10, 2));
    assert_eq!(s.received(), [(7, Success)]);
    assert_eq!(s.n.host.recv_cq[0].c.byte_len, 10);
    assert_eq!(s.n.host.counted(Counter::UcSequenceGaps), 2);
    assert_eq!(s.seen(), []);
}

#[test]
fn uc_errors_of_the_peer_are_dropped_without_a_word() {
    let mut s = script(uc());
    s.rx(p(Opcode::UC_SEND_ONLY, 100).quiet().data(1, 1));
    s.n.post_recv(7, BASE, 4);
    s.rx(p(Opcode::UC_SEND_ONLY, 101).quiet().data(5, 1));
    s.rx(p(Opcode::UC_WRITE_ONLY, 102)
        .quiet()
        .reth(BASE, 1, 4)
        .data(4, 0xee));
    s.rx(p(Opcode::UC_SEND_MIDDLE, 103).quiet().data(256, 1));
    assert_eq!(s.state(), QpState::Rts);
    assert_eq!(s.n.host.events, []);
    s.rx(p(Opcode::UC_SEND_ONLY, 104).quiet().data(4, 9));
    assert_eq!(s.received(), [(7, Success)]);
    for c in [
        Counter::DropNoReceive,
        Counter::DropLength,
        Counter::DropAccess,
        Counter::DropMessage,
    ] {
        assert_eq!(s.n.host.counted(c), 1, "{c:?}");
    }
}

#[test]
fn uc_send_error_enters_sqe_and_the_receive_queue_lives() {
    let mut s = script(uc());
    for id in 0..3 {
        s.post(id, SendOp::Send, 1);
    }
    let now = s.now;
    let b: Vec<_> = (0..2)
        .map(|_| s.n.qp.poll_transmit(now, 8, &mut s.n.host).unwrap())
        .collect();
    s.n.qp.sent(now, &b[0], Ok(()), &mut s.n.host);
    s.n.qp.sent(now, &b[1], Err(LocProtErr), &mut s.n.host);
    assert_eq!(s.done(), [(0, Success), (1, LocProtErr), (2, WrFlushErr)]);
    assert_eq!(s.state(), QpState::Sqe);
    s.post(3, SendOp::Send, 1);
    assert_eq!(s.done()[3], (3, WrFlushErr));
    s.n.post_recv(7, BASE, 10);
    s.rx(p(Opcode::UC_SEND_ONLY, 100).quiet().data(4, 9));
    assert_eq!(s.received(), [(7, Success)]);
    s.to(QpState::Rts);
    s.post(4, SendOp::Send, 1);
    assert_eq!(s.seen().len(), 1);
    assert_eq!(s.done()[4], (4, Success));
}

// --- datagrams -----------------------------------------------------------------------------------

fn ud() -> Config {
    Config {
        ty: QpType::Ud,
        ..config()
    }
}

fn datagram(len: usize, qkey: u32) -> P {
    let mut d = p(Opcode::UD_SEND_ONLY, 5).quiet().data(len, 4);
    d.h.ext = Ext::Datagram(Deth { qkey, src_qp: 0x99 });
    d
}

fn post_ud(s: &mut Script, id: u64, op: SendOp, len: u32, qkey: u32) {
    let w = SendWqe {
        ud: Some(UdDest {
            qpn: 0x33,
            qkey,
            pkey_index: 0,
            ah: 5,
        }),
        ..wqe(id, op, len, 0, 0)
    };
    s.n.post(s.now, BASE, w).unwrap();
}

#[test]
fn ud_carries_destination_and_q_key() {
    let mut s = script(ud());
    post_ud(&mut s, 1, SendOp::SendImm(7), 5, 0x42);
    post_ud(&mut s, 2, SendOp::Send, 256, 0x8000_0042);
    let tx = s.tx();
    let h = tx[0].headers;
    assert_eq!(
        (h.bth.opcode, h.bth.dest_qp),
        (Opcode::UD_SEND_ONLY_IMM, 0x33)
    );
    assert_eq!(
        h.deth(),
        Some(Deth {
            qkey: 0x42,
            src_qp: QPN[0]
        })
    );
    assert_eq!(h.imm(), Some(ImmDt(7)));
    assert!(!h.bth.ack_req);
    // The top bit asks for the key of the queue pair.
    assert_eq!(tx[1].headers.deth().unwrap().qkey, 0x1234);
    assert_eq!(tx[1].headers.bth.psn, h.bth.psn.next());
    assert_eq!(s.done(), [(1, Success), (2, Success)]);
}

#[test]
fn ud_longer_than_the_mtu_goes_nowhere_and_succeeds() {
    let mut s = script(ud());
    post_ud(&mut s, 1, SendOp::Send, 257, 0);
    assert_eq!(s.seen(), []);
    assert_eq!(s.done(), [(1, Success)]);
    assert_eq!(s.n.host.counted(Counter::DropSendTooLong), 1);
}

#[test]
fn ud_work_request_that_makes_no_sense_fails_in_its_turn() {
    let mut s = script(ud());
    s.n.host.local_fault = Some(LocQpOpErr);
    post_ud(&mut s, 1, SendOp::Send, 4, 0x11);
    s.post(2, SendOp::Local, 0);
    assert_eq!(s.seen().len(), 1);
    assert_eq!(s.done(), [(1, Success), (2, LocQpOpErr)]);
    assert_eq!(s.state(), QpState::Sqe);
}

#[test]
fn ud_is_received_behind_a_routing_header() {
    let mut s = script(ud());
    s.n.post_recv(7, BASE, 45);
    s.n.post_recv(8, BASE, 40);
    s.rx(datagram(5, 0x1234));
    s.rx(datagram(0, 0x1234));
    let c = s.n.host.recv_cq[0].c;
    assert_eq!(
        (c.status, c.byte_len, c.src_qp, c.grh),
        (Success, 45, 0x99, true)
    );
    assert_eq!(s.n.host.bytes(BASE + 39, 6), [0, 4, 4, 4, 4, 4]);
    assert_eq!(s.n.host.recv_cq[1].c.byte_len, 40);
}

#[test]
fn ud_is_dropped_for_key_receive_and_length() {
    let mut s = script(ud());
    s.rx(datagram(5, 0x1235));
    s.rx(datagram(5, 0x1234));
    s.n.post_recv(7, BASE, 44);
    s.rx(datagram(5, 0x1234));
    for c in [
        Counter::DropQkey,
        Counter::DropNoReceive,
        Counter::DropLength,
    ] {
        assert_eq!(s.n.host.counted(c), 1, "{c:?}");
    }
    s.rx(datagram(4, 0x1234));
    assert_eq!(s.received(), [(7, Success)]);
}

#[test]
fn gsi_has_the_well_known_key() {
    let mut s = script(Config {
        ty: QpType::Ud,
        ..config()
    });
    let mut n = Node::new(0, &s.c, MEM);
    *n.qp = Qp::new(
        QpType::Gsi,
        1,
        vec![SendSlot::default(); 8],
        Vec::new(),
        false,
        false,
    );
    s.n = n;
    s.set(QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        qkey: Some(0),
        ..QpAttr::default()
    });
    s.to(QpState::Rtr);
    s.set(QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(Psn::new(0)),
        ..QpAttr::default()
    });
    s.n.post_recv(7, BASE, 296);
    s.rx(datagram(256, 0x8001_0000));
    assert_eq!(s.received(), [(7, Success)]);
    post_ud(&mut s, 1, SendOp::Send, 256, 0x8001_0000);
    assert_eq!(
        s.tx()[0].headers.deth(),
        Some(Deth {
            qkey: 0x8001_0000,
            src_qp: 1
        })
    );
}

// --- states --------------------------------------------------------------------------------------

#[test]
fn error_flushes_everything_in_order() {
    let mut s = script(config());
    for i in 0..3 {
        s.n.post_recv(i, BASE, 1000);
    }
    s.rx(p(Opcode::RC_SEND_FIRST, 100).data(256, 1));
    s.post(1, SendOp::Write, 600);
    s.post(2, SendOp::Read, 1);
    s.tx();
    s.post(3, SendOp::Send, 1);
    s.to(QpState::Err);
    assert_eq!(
        s.done(),
        [(1, WrFlushErr), (2, WrFlushErr), (3, WrFlushErr)]
    );
    assert_eq!(
        s.received(),
        [(0, WrFlushErr), (1, WrFlushErr), (2, WrFlushErr)]
    );
    // What is posted later is flushed too, nothing is carried out, and nothing is sent.
    s.post(4, SendOp::Send, 1);
    s.n.post_recv(9, BASE, 1000);
    s.n.qp.flush_recv(&mut s.n.host);
    s.rx(p(Opcode::RC_SEND_LAST, 101).data(1, 1));
    s.rx(ack(100, 0x1f, 1));
    assert_eq!(s.done().len(), 4);
    assert_eq!(s.received().len(), 4);
    assert_eq!(s.seen(), []);
    assert_eq!(s.n.qp.deadline(), None);
}

#[test]
fn error_with_a_shared_receive_queue_takes_no_more_from_it() {
    let mut s = script(Config {
        srq: true,
        ..config()
    });
    s.n.post_recv(1, BASE, 1000);
    s.n.post_recv(2, BASE, 1000);
    s.rx(p(Opcode::RC_SEND_FIRST, 100).data(256, 1));
    s.to(QpState::Err);
    s.to(QpState::Err);
    assert_eq!(s.received(), [(1, WrFlushErr)]);
    assert_eq!(s.n.host.recvs.len(), 1);
    assert_eq!(s.n.host.events, [AsyncEvent::LastWqeReached]);
}

#[test]
fn reset_forgets_everything_and_completes_nothing() {
    let mut s = script(config());
    s.n.post_recv(1, BASE, 1000);
    s.post(1, SendOp::Write, 1);
    s.tx();
    s.to(QpState::Reset);
    assert_eq!(s.done(), []);
    assert_eq!(s.received(), []);
    assert_eq!(s.n.qp.status().send_queue_used, 0);
    s.rx(ack(100, 0x1f, 1));
    assert_eq!(s.n.host.counted(Counter::DropState), 1);
}

fn sqd(s: &mut Script, notify: bool) {
    s.set(QpAttr {
        state: Some(QpState::Sqd),
        en_sqd_async_notify: Some(notify),
        ..QpAttr::default()
    });
}

#[test]
fn sqd_finishes_what_is_begun_and_begins_nothing() {
    let mut s = script(Config {
        window: 2,
        ..config()
    });
    s.post(1, SendOp::Write, 600);
    s.post(2, SendOp::Write, 1);
    assert_eq!(s.tx().len(), 2);
    sqd(&mut s, true);
    assert!(s.n.qp.status().sq_draining);
    s.rx(ack(101, 0x1f, 0));
    assert_eq!(s.seen(), [(0x08, 102)]);
    s.rx(ack(102, 0x1f, 1));
    assert_eq!(s.n.host.events, [AsyncEvent::SqDrained]);
    assert!(!s.n.qp.status().sq_draining);
    assert_eq!(s.seen(), []);
    assert_eq!(s.idle(), Idle::Draining);
    s.to(QpState::Rts);
    assert_eq!(s.seen(), [(0x0a, 103)]);
}

#[test]
fn sqd_drains_at_once_if_nothing_is_begun() {
    for notify in [false, true] {
        let mut s = script(config());
        s.post(1, SendOp::Write, 600);
        sqd(&mut s, notify);
        assert_eq!(s.n.host.events.len(), usize::from(notify));
        assert!(!s.n.qp.status().sq_draining);
    }
}

#[test]
fn packets_of_other_services_are_dropped() {
    let mut s = script(config());
    s.rx(p(Opcode::UC_SEND_ONLY, 100));
    s.rx(datagram(1, 0));
    assert_eq!(s.n.host.counted(Counter::DropService), 2);
    s.rx(p(Opcode::CNP, 0).data(16, 0));
    assert_eq!(s.n.host.counted(Counter::RxCnps), 1);
}

#[test]
fn query_tells_all() {
    let mut s = script(config());
    s.post(1, SendOp::Write, 600);
    s.tx();
    let a = s.n.qp.query();
    assert_eq!(a.state, Some(QpState::Rts));
    assert_eq!(a.sq_psn, Some(Psn::new(103)));
    assert_eq!(a.rq_psn, Some(Psn::new(100)));
    assert_eq!(a.dest_qpn, Some(QPN[1]));
    assert_eq!(
        (a.retry_cnt, a.rnr_retry, a.timeout),
        (Some(7), Some(7), Some(8))
    );
}

#[test]
fn query_tells_what_was_set_before_it_is_in_use() {
    let c = config();
    let mut n = Node::new(0, &c, MEM);
    n.to_init(&c);
    n.to_rtr(&c, QPN[1], 5);
    let a = n.qp.query();
    assert_eq!((a.rq_psn, a.sq_psn), (Some(Psn::new(5)), Some(Psn::new(0))));
    n.to_rts(&c, 7);
    assert_eq!(n.qp.query().sq_psn, Some(Psn::new(7)));
    assert_eq!((n.qp.qp_type(), n.qp.qpn()), (QpType::Rc, QPN[0]));
    assert_eq!(n.qp.query().access.map(Access::bits), Some(c.access.bits()));
    let fresh = Node::new(0, &c, MEM);
    assert_eq!(fresh.qp.query().rq_psn, Some(Psn::new(0)));
}

#[test]
fn fewer_resources_serve_new_reads_after_sqd() {
    let mut s = script(config());
    let read = |psn| p(Opcode::RC_READ_REQUEST, psn).reth(BASE, RKEY, 1);
    for psn in 100..103 {
        s.rx(read(psn));
        assert_eq!(s.seen(), [(0x10, psn)]);
    }
    sqd(&mut s, false);
    s.set(QpAttr {
        state: Some(QpState::Sqd),
        max_dest_rd_atomic: Some(2),
        ..QpAttr::default()
    });
    for psn in 103..106 {
        s.rx(read(psn));
        assert_eq!(s.seen(), [(0x10, psn)]);
    }
    // What the others remember can still be asked for.
    s.rx(read(102));
    assert_eq!(s.seen(), [(0x10, 102)]);
    s.rx(read(106));
    s.rx(read(107));
    s.rx(read(108));
    assert_eq!(s.state(), QpState::Err);
}

#[test]
fn fatal_nak_beyond_a_read_says_that_its_response_is_lost() {
    let mut s = script(config());
    s.post(1, SendOp::Read, 300);
    s.post(2, SendOp::Write, 1);
    assert_eq!(s.tx().len(), 2);
    s.rx(ack(102, 0x62, 1));
    assert_eq!(s.done(), []);
    assert_eq!(s.seen(), [(0x0c, 100), (0x0a, 102)]);
}

#[test]
fn names_are_those_of_the_specification() {
    let statuses = [
        WcStatus::Success,
        WcStatus::LocLenErr,
        WcStatus::LocQpOpErr,
        WcStatus::LocProtErr,
        WcStatus::WrFlushErr,
        WcStatus::MwBindErr,
        WcStatus::BadRespErr,
        WcStatus::LocAccessErr,
        WcStatus::RemInvReqErr,
        WcStatus::RemAccessErr,
        WcStatus::RemOpErr,
        WcStatus::RetryExcErr,
        WcStatus::RnrRetryExcErr,
        WcStatus::RemInvRdReqErr,
        WcStatus::FatalErr,
        WcStatus::GeneralErr,
    ];
    // Spelt as the variants are, with words apart.
    let spelt = |debug: String| debug.split('(').next().unwrap().to_lowercase();
    let same = |name: &str, debug| assert_eq!(name.replace('_', ""), spelt(debug));
    for s in statuses {
        same(s.name(), format!("{s:?}"));
    }
    for e in [
        AsyncEvent::QpFatal,
        AsyncEvent::QpReqErr,
        AsyncEvent::QpAccessErr,
        AsyncEvent::CommEst,
        AsyncEvent::SqDrained,
        AsyncEvent::LastWqeReached,
    ] {
        same(e.name(), format!("{e:?}"));
    }
    for k in [
        NakKind::Sequence,
        NakKind::Rnr(3),
        NakKind::InvalidRequest,
        NakKind::RemoteAccess,
        NakKind::RemoteOperational,
    ] {
        same(k.name(), format!("{k:?}"));
    }
    for c in [
        RetransmitCause::Timeout,
        RetransmitCause::SequenceNak,
        RetransmitCause::ImpliedNak,
        RetransmitCause::Rnr,
    ] {
        same(c.name(), format!("{c:?}"));
    }
    let names: Vec<_> = QpState::ALL.iter().map(|s| s.name()).collect();
    assert_eq!(names, ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]);
    for why in [
        Idle::Active,
        Idle::NoWork,
        Idle::Unacknowledged,
        Idle::Retrying,
        Idle::State,
        Idle::Draining,
        Idle::Window,
        Idle::Credit,
        Idle::Rnr,
        Idle::Fence,
        Idle::ReadLimit,
        Idle::Failed,
        Idle::Network,
        Idle::Pages,
    ] {
        let spelt: String = format!("{why:?}").to_lowercase();
        assert_eq!(why.name().replace('_', ""), spelt);
    }
}

#[test]
fn burst_tells_its_slot_and_the_slot_its_work_request() {
    let mut s = script(config());
    let slot = s.post(1, SendOp::Write, 300);
    let b = s.n.qp.poll_transmit(s.now, 16, &mut s.n.host).unwrap();
    assert_eq!((b.slot(), b.is_request()), (Some(slot), true));
    assert_eq!((b.packet_len(), b.count, b.len), (256, 2, 300));
    assert_eq!(s.n.qp.wqe(slot).map(|w| w.wr_id), Some(1));
    assert_eq!(s.n.qp.wqe(64), None);
    s.n.qp.sent(s.now, &b, Ok(()), &mut s.n.host);
    assert!(s.n.qp.poll_transmit(s.now, 0, &mut s.n.host).is_none());
    s.rx(p(Opcode::RC_WRITE_ONLY, 100).reth(BASE, RKEY, 0));
    let b = s.n.qp.poll_transmit(s.now, 16, &mut s.n.host).unwrap();
    assert_eq!((b.slot(), b.is_request()), (None, false));
}

#[test]
fn modify_checks_before_it_changes() {
    let c = config();
    let mut n = Node::new(0, &c, MEM);
    let to = |s| QpAttr {
        state: Some(s),
        ..QpAttr::default()
    };
    for s in [QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe] {
        assert_eq!(n.modify(to(s)), Err(ModifyError::Transition));
    }
    assert_eq!(n.modify(to(QpState::Init)), Err(ModifyError::Missing));
    n.to_init(&c);
    let rtr = QpAttr {
        state: Some(QpState::Rtr),
        path: true,
        path_mtu: Some(Mtu::Mtu256),
        dest_qpn: Some(1),
        rq_psn: Some(Psn::new(1)),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    };
    let bad = [
        (
            ModifyError::Value,
            QpAttr {
                max_dest_rd_atomic: Some(17),
                ..rtr
            },
        ),
        (
            ModifyError::Value,
            QpAttr {
                min_rnr_timer: Some(32),
                ..rtr
            },
        ),
        (
            ModifyError::Value,
            QpAttr {
                dest_qpn: Some(1 << 24),
                ..rtr
            },
        ),
        (
            ModifyError::NotPermitted,
            QpAttr {
                qkey: Some(1),
                ..rtr
            },
        ),
        (ModifyError::Missing, QpAttr { path: false, ..rtr }),
        (
            ModifyError::Transition,
            QpAttr {
                cur_state: Some(QpState::Rts),
                ..rtr
            },
        ),
    ];
    for (e, a) in bad {
        assert_eq!(n.modify(a), Err(e));
        assert_eq!(n.qp.state(), QpState::Init);
    }
    n.modify(rtr).unwrap();
}

// --- wire ----------------------------------------------------------------------------------------

#[test]
fn headers_survive_the_wire() {
    use opcode::HeaderSet as S;
    let deth = Deth {
        qkey: 0x1122_3344,
        src_qp: 0x55_6677,
    };
    let reth = Reth {
        va: 0x0102_0304_0506_0708,
        rkey: 9,
        len: 10,
    };
    let atomic = AtomicEth {
        va: 1,
        rkey: 2,
        swap_add: 3,
        compare: 4,
    };
    let aeth = Aeth {
        syndrome: Syndrome::Rnr { timer: 5 },
        msn: Msn::new(0x99_8877),
    };
    let exts = [
        (vec![], Ext::None),
        (vec![S::DETH], Ext::Datagram(deth)),
        (vec![S::RETH], Ext::Rdma(reth)),
        (vec![S::FETH, S::RETH], Ext::Flush(Feth(0x12), reth)),
        (vec![S::ATOMIC], Ext::Atomic(atomic)),
        (vec![S::AETH], Ext::Ack(aeth)),
        (
            vec![S::AETH, S::ATOMIC_ACK],
            Ext::AtomicAck(aeth, AtomicAckEth(77)),
        ),
    ];
    let tails = [
        (vec![], Tail::None),
        (vec![S::IMM], Tail::Imm(ImmDt(0xdead_beef))),
        (vec![S::IETH], Tail::Invalidate(Ieth(0xfeed))),
    ];
    let all = [
        S::DETH,
        S::FETH,
        S::RETH,
        S::ATOMIC,
        S::AETH,
        S::ATOMIC_ACK,
        S::IMM,
        S::IETH,
    ];
    for info in opcode::TABLE {
        let bth = Bth {
            opcode: info.opcode,
            solicited: true,
            migreq: true,
            pad: 0,
            pkey: 0x8123,
            fecn: true,
            becn: true,
            dest_qp: 0x12_3456,
            ack_req: true,
            psn: Psn::new(0xab_cdef),
        };
        let asked: Vec<_> = all.into_iter().filter(|s| info.headers.has(*s)).collect();
        let mut right = 0;
        for (ext_set, ext) in &exts {
            for (tail_set, tail) in &tails {
                let (ext, tail) = (*ext, *tail);
                let h = Headers { bth, ext, tail };
                let mut b = [0; 64];
                let n = h.emit(&mut b);
                assert_eq!((n, n), (h.len(), info.headers.wire_len()));
                let payload = match info.payload {
                    opcode::Payload::Exact(n) => usize::from(n),
                    _ => 0,
                };
                let got = Headers::parse(&b[..n], n + payload).unwrap();
                assert_eq!((got.header_len, got.headers.bth), (n, bth));
                // The headers that the opcode has are on the wire, and no others.
                let fits = [&ext_set[..], tail_set].concat() == asked;
                assert_eq!(got.headers == h, fits);
                right += usize::from(fits);
                // Too little room: nothing.
                assert_eq!(h.emit(&mut b[..n - 1]), 0);
            }
        }
        assert_eq!(right, 1);
    }
}

#[test]
fn any_opcode_any_length_any_pad_is_parsed_or_refused() {
    let mut bytes = [0xff; 80];
    for op in 0..=255 {
        for len in 0..=80 {
            for pad in 0..4 {
                bytes[0] = op;
                bytes[1] = pad << 4;
                for total in [len, len + 1, len + 4096, usize::MAX] {
                    if let Ok(p) = Headers::parse(&bytes[..len], total) {
                        assert!(p.header_len <= len);
                        assert_eq!(p.header_len + p.payload_len + usize::from(pad), total);
                        assert!(p.payload_len <= MAX_PAYLOAD);
                        assert_eq!(total % 4, 0);
                    }
                }
            }
        }
    }
}

#[test]
fn version_opcode_and_length_are_checked() {
    let good = p(SEND_ONLY, 1).data(5, 1).bytes();
    assert!(Headers::parse(&good, good.len()).is_ok());
    let mut b = good.clone();
    b[1] |= 1;
    assert_eq!(Headers::parse(&b, b.len()), Err(Malformed::Version));
    b = good.clone();
    b[0] = 0x15;
    assert_eq!(Headers::parse(&b, b.len()), Err(Malformed::Opcode));
    assert_eq!(Headers::parse(&good[..11], 20), Err(Malformed::Short));
    assert_eq!(Headers::parse(&good, 11), Err(Malformed::Short));
    assert_eq!(Headers::parse(&good, 19), Err(Malformed::Length));
    let read = p(Opcode::RC_READ_REQUEST, 1).data(4, 1).bytes();
    assert_eq!(Headers::parse(&read, read.len()), Err(Malformed::Length));
}

// --- memory that is not there yet ------------------------------------------------------------------

/// What is left of a script at its end.
type Left = (
    Vec<(u64, WcStatus)>,
    Vec<RecvCompletion>,
    Vec<AsyncEvent>,
    Vec<u8>,
    Vec<Vec<u8>>,
    Vec<u64>,
);

/// Plays a script with memory that is absent at each `every`th access.
fn played(c: Config, every: u32, play: fn(&mut Script)) -> (Left, u32) {
    let mut s = script(c);
    s.n.host.absent_every = every;
    play(&mut s);
    let sent = s.out();
    let h = &s.n.host;
    let left = (
        s.done(),
        h.recv_cq.iter().map(|d| d.c).collect(),
        h.events.clone(),
        h.mem.clone(),
        sent,
        h.counts.clone(),
    );
    (left, h.accesses)
}

#[test]
fn packet_whose_memory_was_absent_has_left_no_trace() {
    type Play = fn(&mut Script);
    let plays: &[(Config, Play)] = &[
        // SENDs, with a part of the message and the receive already taken.
        (config(), |s| {
            s.n.post_recv(7, BASE, 1000);
            s.rx(p(Opcode::RC_SEND_FIRST, 100).quiet().data(256, 1));
            s.rx(p(Opcode::RC_SEND_MIDDLE, 101).quiet().data(256, 2));
            s.rx(p(Opcode::RC_SEND_LAST, 102).data(9, 3));
        }),
        // A WRITE of several packets, then a short one.
        (config(), |s| {
            let first = p(Opcode::RC_WRITE_FIRST, 100).quiet();
            s.rx(first.reth(BASE + 8, RKEY, 522).data(256, 1));
            s.rx(p(Opcode::RC_WRITE_MIDDLE, 101).quiet().data(256, 2));
            s.rx(p(Opcode::RC_WRITE_LAST, 102).quiet().data(10, 3));
            let only = p(Opcode::RC_WRITE_ONLY, 103);
            s.rx(only.reth(BASE, RKEY, 4).data(4, 9));
        }),
        (config(), |s| {
            for psn in 100..104 {
                s.rx(atomic_write(psn, BASE + 16, RKEY));
                s.out();
            }
        }),
        (config(), |s| {
            for psn in 100..104 {
                let mut a = p(Opcode::RC_FETCH_ADD, psn);
                a.h.ext = Ext::Atomic(AtomicEth {
                    va: BASE + 8,
                    rkey: RKEY,
                    swap_add: 3,
                    compare: 0,
                });
                s.rx(a);
                s.out();
            }
        }),
        // Responses.
        (config(), |s| {
            s.post(1, SendOp::Read, 700);
            s.post(2, SendOp::FetchAdd { add: 1 }, 8);
            s.tx();
            s.rx(response(Opcode::RC_READ_RESPONSE_FIRST, 100, 256, 1));
            s.rx(p(Opcode::RC_READ_RESPONSE_MIDDLE, 101).quiet().data(256, 2));
            s.rx(response(Opcode::RC_READ_RESPONSE_LAST, 102, 188, 3));
            let mut a = p(Opcode::RC_ATOMIC_ACKNOWLEDGE, 103).aeth(0x1f, 1).quiet();
            a.h.ext = Ext::AtomicAck(a.h.aeth().unwrap(), AtomicAckEth(77));
            s.rx(a);
        }),
        // Unreliable messages: it is no gap.
        (uc(), |s| {
            s.n.post_recv(7, BASE, 1000);
            s.rx(p(Opcode::UC_SEND_FIRST, 100).quiet().data(256, 1));
            s.rx(p(Opcode::UC_SEND_LAST, 101).quiet().data(256, 2));
            let first = p(Opcode::UC_WRITE_FIRST, 102).quiet();
            s.rx(first.reth(BASE + 512, RKEY, 300).data(256, 1));
            s.rx(p(Opcode::UC_WRITE_LAST, 103).quiet().data(44, 1));
        }),
        (ud(), |s| {
            s.n.post_recv(7, BASE, 45);
            s.n.post_recv(8, BASE, 40);
            s.rx(datagram(5, 0x1234));
            s.rx(datagram(0, 0x1234));
        }),
    ];
    for (i, (c, play)) in plays.iter().enumerate() {
        let (there, accesses) = played(*c, 0, *play);
        let (late, tries) = played(*c, 2, *play);
        assert_eq!(late, there, "script {i}");
        assert!(accesses > 1 && tries + 1 >= 2 * accesses, "script {i}");
    }
}
