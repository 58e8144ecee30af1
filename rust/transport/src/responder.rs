// SPDX-License-Identifier: GPL-2.0

//! The responder: what request packets mean, and what they are answered with.
//!
//! Answers leave in the order of their PSNs. READ responses and answers to atomics wait in the resources; what comes after
//! them, an ACK for everything up to then or a NAK, is one value ([`Reply`]): a later ACK says all that an earlier one would
//! have said, and the same goes for the response to a READ.

use crate::env::{
    AsyncEvent,
    Counter,
    Env,
    RecvInfo,
    RecvOp,
    Verdict, //
};
use crate::opcode::{
    Info,
    Op,
    Position, //
};
use crate::psn::{
    Msn,
    Psn, //
};
use crate::qp::Qp;
use crate::time::{
    Duration,
    Instant, //
};
use crate::verbs::{
    QpState,
    QpType, //
};
use crate::wire::{
    NakCode,
    Parsed,
    Syndrome,
    GRH_LEN, //
};
mod answer;
mod message;
mod refusal;
mod resource;

use answer::Reply;
pub(crate) use message::Inbound;
use refusal::Refusal;
pub use resource::Resource;

/// How many requests one ACK may cover before [`Qp::answers_due`] asks for it.
pub const ACK_BOUND: u32 = 64;

/// The serial number of a PSN counts full turns too. It begins here, so that the PSNs before the first have one as well.
const FIRST_TURN: u64 = 1 << 24;

/// The peer asked, and was told that no receive is posted. When one is, by a process that makes no call for it, the peer is
/// to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    /// When to look.
    pub(crate) at: Instant,
    /// How long until the next look: twice as long each time, up to [`LONGEST_LOOK`].
    wait: Duration,
    /// How many looks are left.
    left: u32,
}

/// The first look.
const FIRST_LOOK: Duration = Duration::from_micros(16);
/// The time between later ones.
const LONGEST_LOOK: Duration = Duration::from_micros(1024);
/// How many there are: 68 ms of them. After that the peer probes of its own accord.
const LOOKS: u32 = 72;

/// State of the responder.
pub(crate) struct Responder<R> {
    /// The next PSN expected.
    pub(crate) expected: Psn,
    /// Its serial number.
    serial: u64,
    /// Messages completed.
    pub(crate) msn: Msn,
    /// The current receive.
    pub(crate) recv: Option<RecvInfo>,
    pub(crate) inbound: Inbound<R>,
    /// A NAK asked for the expected packet; until it comes, those after it are dropped.
    gap: bool,
    reply: Option<Reply>,
    /// The PSN of the last SEND or WRITE packet: what an ACK names. Never that of a READ, which only data acknowledges.
    acked_by_ack: Psn,
    /// Requests that wait for an answer.
    unanswered: u32,
    /// The resource for the next READ or atomic.
    next_resource: u32,
    /// How many resources have an answer to send.
    answers: u32,
    /// One of them was used.
    uses_resources: bool,
    /// The serial number of an ATOMIC WRITE or a FLUSH that is to be acknowledged again, and that no resource remembers.
    done_again: Option<u64>,
    /// The first packet came.
    established: bool,
    /// The peer sends what takes receives.
    takes_receives: bool,
    /// It asked how many there are, and sent nothing new since.
    asked: bool,
    /// For receives, if none was left.
    pub(crate) watch: Option<Watch>,
}

impl<R> Responder<R> {
    pub(crate) const fn new() -> Self {
        Self {
            expected: Psn::new(0),
            serial: FIRST_TURN,
            msn: Msn::new(0),
            recv: None,
            inbound: Inbound::Idle,
            gap: false,
            reply: None,
            acked_by_ack: Psn::new(0),
            unanswered: 0,
            next_resource: 0,
            answers: 0,
            uses_resources: false,
            done_again: None,
            established: false,
            takes_receives: false,
            asked: false,
            watch: None,
        }
    }

    /// Begins at `psn`.
    pub(crate) fn start(&mut self, psn: Psn) {
        let recv = self.recv.take();
        *self = Self::new();
        self.recv = recv;
        self.expected = psn;
        self.acked_by_ack = psn.prev();
        self.serial = FIRST_TURN.wrapping_add(u64::from(psn.get()));
    }

    /// Nothing is carried out any more; what a fatal NAK closes is still sent.
    pub(crate) fn halt(&mut self) {
        self.inbound = Inbound::Idle;
        self.gap = false;
        self.unanswered = 0;
        self.watch = None;
        if !self.is_closing() {
            self.reply = None;
        }
    }

    /// Whether a fatal NAK is still to be sent.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.reply, Some(Reply::Fatal { .. }))
    }

    /// Whether there is nothing to answer, nor to look for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.answers == 0
            && self.unanswered == 0
            && self.reply.is_none()
            && self.done_again.is_none()
            && self.watch.is_none()
    }

    /// Whether a missing packet is awaited.
    pub(crate) fn in_gap(&self) -> bool {
        self.gap
    }

    /// The expected PSN for a query, where the responder has begun.
    pub(crate) fn expected_or(&self, psn: Psn, state: QpState) -> Psn {
        match state {
            QpState::Reset | QpState::Init => psn,
            _ => self.expected,
        }
    }

    /// At most `max` resources serve new READs and atomics; what the others remember can still be answered again.
    pub(crate) fn limit_resources(&mut self, max: u8) {
        if self.next_resource >= u32::from(max) {
            self.next_resource = 0;
        }
    }

    /// Steps over `packets` PSNs.
    fn advance(&mut self, packets: u32) {
        self.expected = self.expected.add(packets);
        self.serial = self.serial.wrapping_add(u64::from(packets));
    }

    /// So many packets of a SEND or WRITE that goes on were carried out.
    pub(crate) fn note_run(&mut self, packets: u32) {
        self.advance(packets);
        self.acked_by_ack = self.expected.prev();
        self.unanswered = self.unanswered.saturating_add(packets);
    }

    /// An ACK is to be sent, unless something stronger is.
    pub(crate) fn want_ack(&mut self) {
        if self.reply.is_none() {
            self.reply = Some(Reply::Ack);
        }
    }
}

impl<E: Env> Qp<E> {
    /// Whether an ACK may come after answers that were polled later: there are none but ACKs and NAKs, so far.
    ///
    /// Those to READs and atomics are not to be overtaken. rxe takes an ACK amid the responses to a READ for their end.
    pub fn ack_may_be_late(&self) -> bool {
        !self.resp.uses_resources
    }

    /// There is to be an ACK of all that came so far, whether it was asked for or not: one that was polled did not leave, or
    /// what comes next, which was to ask for it, has to wait.
    pub fn ack_anyway(&mut self) {
        if self.state.permits().receive {
            self.resp.want_ack();
        }
    }

    /// Looks for receives after none was left, and tells the peer of them.
    pub(crate) fn look_for_receives(&mut self, env: &mut E) {
        if self.resp.watch.is_some() && env.posted_recvs() != Some(0) {
            self.resp.watch = None;
            self.resp.want_ack();
        }
    }

    /// The time for a look may have come.
    pub(crate) fn on_watch(&mut self, now: Instant, env: &mut E) {
        self.look_for_receives(env);
        let Some(w) = self.resp.watch.filter(|w| now >= w.at) else {
            return;
        };
        let wait = w.wait.saturating_mul(2).min(LONGEST_LOOK);
        self.resp.watch = w.left.checked_sub(1).map(|left| Watch {
            at: now.saturating_add(wait),
            wait,
            left,
        });
    }

    /// The peer is being told so many credits.
    fn note_credits(&mut self, now: Instant, credit: u8) {
        // A peer that only WRITEs asks too, for acknowledgements.
        let wanted = self.resp.asked && self.resp.takes_receives;
        let awaited = credit == 0 && wanted && self.state.permits().receive;
        self.resp.watch = awaited.then(|| Watch {
            at: now.saturating_add(FIRST_LOOK),
            wait: FIRST_LOOK,
            left: LOOKS,
        });
    }

    /// Takes in a request.
    pub(crate) fn on_request(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Verdict {
        match self.ty {
            QpType::Rc => self.on_reliable(pkt, info, env),
            QpType::Uc => self.on_unreliable(pkt, info, env),
            QpType::Ud | QpType::Gsi => self.on_datagram(pkt, env),
        }
    }

    /// Whether answers should leave now, although more packets are at hand: [`ACK_BOUND`] requests wait for one, or as many
    /// READs, atomics and FLUSHes as can be remembered.
    pub fn answers_due(&self) -> bool {
        self.resp.unanswered >= ACK_BOUND || (self.ty.is_reliable() && self.is_resource_busy())
    }

    /// Raises the event of the first packet.
    fn note_established(&mut self, env: &mut E) {
        if self.state == QpState::Rtr && !self.resp.established {
            self.resp.established = true;
            self.raise(AsyncEvent::CommEst, env);
        }
    }

    fn on_reliable(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Verdict {
        let psn = pkt.headers.bth.psn;
        if psn.before(self.resp.expected) {
            self.on_duplicate(pkt, info, env);
            return Verdict::Done;
        }
        if psn != self.resp.expected {
            self.on_early(pkt, env);
            return Verdict::Done;
        }
        self.resp.gap = false;
        self.resp.asked = false;
        // It was only late: what was about to be said of it is wrong by now.
        if matches!(self.resp.reply, Some(Reply::Nak { .. })) {
            self.resp.reply = None;
        }
        self.note_established(env);
        match self.carry_out(pkt, info, env) {
            Ok(()) => {
                env.count(Counter::RxRequests);
                self.resp.unanswered = self.resp.unanswered.saturating_add(1);
            }
            Err(Refusal::NotReady) => {
                self.resp.gap = true;
                self.resp.reply = Some(Reply::Nak {
                    syndrome: Syndrome::Rnr {
                        timer: self.set.min_rnr_timer,
                    },
                });
            }
            Err(Refusal::ABSENT) => return Verdict::Absent,
            Err(refusal) => self.refuse(psn, refusal, env),
        }
        Verdict::Done
    }

    /// A packet came before the one that is expected: that is asked for, once.
    fn on_early(&mut self, pkt: &Parsed, env: &mut E) {
        if self.resp.gap {
            return self.drop_packet(Counter::DropGap, pkt, env);
        }
        env.count(Counter::RxOutOfSequence);
        self.resp.gap = true;
        self.resp.reply = Some(Reply::Nak {
            syndrome: Syndrome::Nak(NakCode::PsnSequence),
        });
    }

    /// A packet came again.
    fn on_duplicate(&mut self, pkt: &Parsed, info: &Info, env: &mut E) {
        let empty = pkt.headers.reth().is_some_and(|r| r.len == 0);
        let asks = info.op == Op::Write && info.position == Position::Only && empty;
        self.resp.asked |= asks;
        env.count(if asks {
            Counter::RxAckProbes
        } else {
            Counter::RxDuplicates
        });
        let back = self.resp.expected.distance_from(pkt.headers.bth.psn);
        let serial = self.resp.serial.wrapping_sub(u64::from(back));
        match info.op {
            // C9-105: with the PSN of the last one, not its own.
            Op::Send | Op::Write => self.resp.want_ack(),
            Op::ReadRequest => self.replay_read(serial, pkt, env),
            Op::CmpSwap | Op::FetchAdd => self.replay_atomic(serial, pkt, env),
            Op::AtomicWrite | Op::Flush => self.replay_done(serial, env),
            _ => self.drop_packet(Counter::DropUnknownDuplicate, pkt, env),
        }
    }

    /// Carries out a request that is in order.
    fn carry_out(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Result<(), Refusal> {
        match info.op {
            Op::Send | Op::Write => {
                let ended = self.part(pkt, info, env)?;
                self.resp.acked_by_ack = pkt.headers.bth.psn;
                self.resp.advance(1);
                if ended {
                    self.resp.msn = self.resp.msn.next();
                }
                if pkt.headers.bth.ack_req {
                    self.resp.want_ack();
                }
                Ok(())
            }
            Op::ReadRequest => self.read(pkt, env),
            Op::CmpSwap | Op::FetchAdd => self.atomic(pkt, info, env),
            Op::AtomicWrite => self.atomic_write(pkt, env),
            Op::Flush => self.flush(pkt, env),
            _ => Err(Refusal::Invalid),
        }
    }

    /// Refuses a request of a reliable connection: NAK, then ERR.
    fn refuse(&mut self, psn: Psn, refusal: Refusal, env: &mut E) {
        let c = refusal.consequence();
        env.count(c.counter);
        self.resp.reply = Some(Reply::Fatal { psn, code: c.code });
        if self.resp.recv.is_some() {
            self.fail_receive(c.status, env);
        } else {
            self.raise(c.event, env);
        }
        self.enter_error(env);
    }

    fn on_unreliable(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Verdict {
        let psn = pkt.headers.bth.psn;
        if psn != self.resp.expected {
            // The message under way is lost, the next can be taken.
            self.resp.inbound = Inbound::Idle;
            env.count(Counter::UcSequenceGaps);
        }
        self.resp.expected = psn.next();
        self.note_established(env);
        if info.position.begins() {
            // It begins anew, even where the end of the last is missing.
            self.resp.inbound = Inbound::Idle;
        }
        match self.part(pkt, info, env) {
            Ok(_) => env.count(Counter::RxRequests),
            Err(Refusal::ABSENT) => {
                self.resp.expected = psn;
                return Verdict::Absent;
            }
            Err(refusal) => self.give_up(pkt, refusal, env),
        }
        Verdict::Done
    }

    /// Drops an unreliable message. The current receive stays current; only its own faults end it.
    fn give_up(&mut self, pkt: &Parsed, refusal: Refusal, env: &mut E) {
        self.resp.inbound = Inbound::Idle;
        self.drop_packet(refusal.drop_counter(), pkt, env);
        if let Refusal::Receive(status) = refusal {
            self.fail_receive(status, env);
            self.enter_error(env);
        }
    }

    fn on_datagram(&mut self, pkt: &Parsed, env: &mut E) -> Verdict {
        let deth = pkt.headers.deth().unwrap_or_default();
        if deth.qkey != self.qkey() {
            self.drop_packet(Counter::DropQkey, pkt, env);
            return Verdict::Done;
        }
        self.note_established(env);
        match self.receive_datagram(pkt, env) {
            Ok(()) => env.count(Counter::RxRequests),
            Err(Refusal::ABSENT) => return Verdict::Absent,
            Err(refusal) => self.give_up(pkt, refusal, env),
        }
        Verdict::Done
    }

    fn receive_datagram(&mut self, pkt: &Parsed, env: &mut E) -> Result<(), Refusal> {
        // CAST: at most 4096.
        let len = pkt.payload_len as u32;
        let capacity = self.need_receive(env)?;
        let end = len.saturating_add(GRH_LEN);
        if end > capacity {
            return Err(Refusal::TooLong);
        }
        env.place_recv(GRH_LEN, len)?;
        self.complete_receive(pkt, RecvOp::Recv, end, None, env);
        Ok(())
    }
}
