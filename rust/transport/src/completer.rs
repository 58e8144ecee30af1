// SPDX-License-Identifier: GPL-2.0

//! The completer: what ACKs, NAKs, READ responses, answers to atomics and timeouts mean.
//!
//! Responses come in PSN order. [`Completer::una`] is the oldest PSN without a response; everything before it is done.

use crate::credit;
use crate::env::{
    Counter,
    Env,
    NakKind,
    PlaceFault,
    RetransmitCause,
    Trace,
    Verdict, //
};
use crate::opcode::{
    Info,
    Op, //
};
use crate::psn::{
    Psn,
    Ssn, //
};
use crate::qp::Qp;
use crate::ring::{
    Progress,
    SendSlot, //
};
use crate::rnr;
use crate::time::Instant;
use crate::verbs::{
    QpState,
    SendOp,
    WcStatus, //
};
use crate::wire::{
    Aeth,
    NakCode,
    Parsed,
    Syndrome, //
};

/// The value of `rnr_retry` that never runs out.
const RNR_RETRY_FOREVER: u8 = 7;

/// State of the completer.
pub(crate) struct Completer {
    /// The oldest PSN that is not acknowledged.
    pub(crate) una: Psn,
    /// The first PSN that the peer has not shown to have taken. It runs ahead of `una` where data of a READ is missing.
    reached: Psn,
    /// Transport retries left until progress refills them. Seven means seven.
    pub(crate) retries_left: u8,
    /// RNR retries left until progress refills them.
    pub(crate) rnr_left: u8,
    /// When the ACK timer runs out.
    pub(crate) deadline: Option<Instant>,
    /// A lost response was noticed and asked for again; further signs of the loss say nothing new until there is progress.
    recovering: bool,
}

impl Completer {
    pub(crate) const fn new() -> Self {
        Self {
            una: Psn::new(0),
            reached: Psn::new(0),
            retries_left: 0,
            rnr_left: 0,
            deadline: None,
            recovering: false,
        }
    }

    /// Begins at `psn`.
    pub(crate) fn start(&mut self, psn: Psn) {
        *self = Self::new();
        self.una = psn;
        self.reached = psn;
    }

    /// Everything was flushed.
    pub(crate) fn halt(&mut self) {
        self.deadline = None;
        self.recovering = false;
    }
}

/// What stands in the way of acknowledging everything before a PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// Nothing.
    No,
    /// A READ or atomic whose response is missing, which holds the PSN itself.
    Within,
    /// A READ or atomic whose response is missing, which ends before the PSN.
    Before,
    /// The queue pair failed meanwhile.
    Dead,
}

impl<E: Env> Qp<E> {
    /// Takes in a response.
    pub(crate) fn on_response(
        &mut self,
        now: Instant,
        pkt: &Parsed,
        info: &Info,
        env: &mut E,
    ) -> Verdict {
        let psn = pkt.headers.bth.psn;
        let outstanding = self.req.edge.distance_from(self.comp.una);
        if psn.distance_from(self.comp.una) >= outstanding {
            self.on_stale(now, pkt, info, env);
            return Verdict::Done;
        }
        let aeth = pkt.headers.aeth();
        self.note_reached(psn, aeth);
        match (info.op, aeth) {
            (Op::Ack, Some(aeth)) => self.on_ack(now, psn, aeth, env),
            (Op::ReadResponse, _) => return self.on_read_response(now, psn, pkt, info, env),
            (Op::AtomicAck, Some(aeth)) => return self.on_atomic_ack(now, psn, aeth, pkt, env),
            _ => env.count(Counter::RxStaleResponses),
        }
        Verdict::Done
    }

    /// A response shows how far the peer has come. Retries are not used up as long as it comes further, even where a READ's
    /// lost data stands in the way of acknowledging that.
    pub(crate) fn note_reached(&mut self, psn: Psn, aeth: Option<Aeth>) {
        let taken = aeth.is_none_or(|a| matches!(a.syndrome, Syndrome::Ack { .. }));
        let to = if taken { psn.next() } else { psn };
        let una = self.comp.una;
        let outstanding = self.req.edge.distance_from(una);
        let known = match self.comp.reached.distance_from(una) {
            n if n <= outstanding => n,
            // Left behind.
            _ => 0,
        };
        if to.distance_from(una) > known {
            self.comp.reached = to;
            self.comp.retries_left = self.set.retry_cnt;
        }
    }

    /// A response to nothing that is outstanding. It may still bring credits, or say that a READ will not be finished.
    fn on_stale(&mut self, now: Instant, pkt: &Parsed, info: &Info, env: &mut E) {
        env.count(Counter::RxStaleResponses);
        let psn = pkt.headers.bth.psn;
        let (Op::Ack, Some(aeth)) = (info.op, pkt.headers.aeth()) else {
            return;
        };
        match aeth.syndrome {
            // It counts from the beginning: an old one grants nothing new.
            Syndrome::Ack { .. } => self.take_credits(now, aeth),
            Syndrome::Nak(code) if code != NakCode::PsnSequence => {
                let reading = self
                    .begun()
                    .is_some_and(|s| s.wqe.op == SendOp::Read && s.contains(psn));
                if reading {
                    self.on_fatal_nak(now, self.comp.una, code, env);
                }
            }
            _ => (),
        }
    }

    /// The oldest work request, if it is on its way.
    pub(crate) fn begun(&self) -> Option<SendSlot> {
        match self.sq.oldest() {
            Some((_, s)) if s.progress == Progress::Begun => Some(*s),
            _ => None,
        }
    }

    /// Acknowledges everything before `to`, as far as that is possible without data.
    fn acknowledge(&mut self, now: Instant, to: Psn, env: &mut E) -> Blocked {
        let before = self.comp.una;
        let result = loop {
            if self.comp.una == to {
                break Blocked::No;
            }
            let Some(entry) = self.begun() else {
                break Blocked::No;
            };
            if entry.wqe.op.needs_response() {
                let within = entry.contains(to);
                break if within {
                    Blocked::Within
                } else {
                    Blocked::Before
                };
            }
            let wanted = to.distance_from(self.comp.una);
            let end = entry.last.next();
            if wanted < end.distance_from(self.comp.una) {
                self.comp.una = to;
                break Blocked::No;
            }
            self.comp.una = end;
            self.retire(env);
            if self.state == QpState::Err {
                return Blocked::Dead;
            }
        };
        if self.comp.una != before {
            self.req.grow(self.comp.una.distance_from(before));
            self.note_progress(now);
        }
        result
    }

    /// The oldest work request is done.
    fn retire(&mut self, env: &mut E) {
        let tail = self.sq.tail;
        if let Some(s) = self.sq.get_mut(tail) {
            s.progress = Progress::Done;
        }
        self.pump(env);
    }

    /// Something new was acknowledged.
    fn note_progress(&mut self, now: Instant) {
        if self.state == QpState::Err {
            return;
        }
        self.refill_retries();
        self.comp.recovering = false;
        let una = self.comp.una;
        // Responses may overtake a retransmission.
        let sent = self.req.edge.distance_from(una);
        if self.req.edge.distance_from(self.req.pos) > sent {
            self.req.pos = una;
            self.sq.cur = self.sq.tail;
        }
        self.comp.deadline = if self.awaits_answer() {
            crate::time::ack_timeout(self.set.timeout).map(|t| now.saturating_add(t))
        } else {
            None
        };
        if sent == 0 {
            self.req.asking.at = None;
        }
    }

    /// Sets the retry counters to what was asked for.
    pub(crate) fn refill_retries(&mut self) {
        self.comp.retries_left = self.set.retry_cnt;
        self.comp.rnr_left = self.set.rnr_retry;
    }

    /// Learns how many more receives the peer has.
    fn take_credits(&mut self, now: Instant, aeth: Aeth) {
        let Syndrome::Ack { credit: code } = aeth.syndrome else {
            return;
        };
        let limit = credit::decode(code).map(|n| Ssn::of_msn(aeth.msn).add(n));
        self.req.grant(now, limit);
    }

    /// An ACK or a NAK for something outstanding.
    fn on_ack(&mut self, now: Instant, psn: Psn, aeth: Aeth, env: &mut E) {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                env.count(Counter::RxAcks);
                self.take_credits(now, aeth);
                match self.acknowledge(now, psn.next(), env) {
                    // A READ is acknowledged by its data only.
                    Blocked::Before if !self.begun().is_some_and(|s| s.contains(psn)) => {
                        self.implied_nak(env);
                    }
                    _ => (),
                }
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                env.count(Counter::RxSeqNaks);
                env.trace(Trace::NakReceived {
                    kind: NakKind::Sequence,
                    psn,
                });
                let blocked = self.acknowledge(now, psn, env);
                // One that was overtaken: the peer has shown meanwhile that it came further.
                let una = self.comp.una;
                let old = psn.distance_from(una) < self.comp.reached.distance_from(una);
                if old && blocked != Blocked::No {
                    return env.count(Counter::RxStaleResponses);
                }
                if blocked != Blocked::Dead && self.req.pos != una {
                    self.retry(RetransmitCause::SequenceNak, env);
                }
            }
            Syndrome::Rnr { timer } => self.on_rnr(now, psn, timer, env),
            Syndrome::Nak(code) => self.on_fatal_nak(now, psn, code, env),
            Syndrome::Reserved(_) => env.count(Counter::RxStaleResponses),
        }
    }

    /// The peer has no receive for the packet at `psn`.
    fn on_rnr(&mut self, now: Instant, psn: Psn, timer: u8, env: &mut E) {
        env.count(Counter::RxRnrNaks);
        self.req.asking.had_no_receive();
        env.trace(Trace::NakReceived {
            kind: NakKind::Rnr(timer),
            psn,
        });
        match self.acknowledge(now, psn, env) {
            Blocked::Dead => return,
            Blocked::Before => return self.implied_nak(env),
            Blocked::Within | Blocked::No => (),
        }
        if self.req.rnr_until.is_some() || self.begun().is_none() {
            return;
        }
        if self.comp.rnr_left == 0 {
            env.count(Counter::RnrRetryExceeded);
            return self.fail_oldest(WcStatus::RnrRetryExcErr, env);
        }
        if self.set.rnr_retry != RNR_RETRY_FOREVER {
            self.comp.rnr_left = self.comp.rnr_left.saturating_sub(1);
        }
        self.go_back(RetransmitCause::Rnr, self.comp.rnr_left, env);
        self.req.rnr_until = Some(now.saturating_add(rnr::delay(timer)));
    }

    /// The peer refuses the request at `psn`.
    fn on_fatal_nak(&mut self, now: Instant, psn: Psn, code: NakCode, env: &mut E) {
        let (kind, status) = match code {
            NakCode::InvalidRequest => (NakKind::InvalidRequest, WcStatus::RemInvReqErr),
            NakCode::RemoteAccess => (NakKind::RemoteAccess, WcStatus::RemAccessErr),
            NakCode::RemoteOperational => (NakKind::RemoteOperational, WcStatus::RemOpErr),
            // Not of this service.
            NakCode::InvalidRdRequest | NakCode::PsnSequence => {
                return env.count(Counter::RxStaleResponses);
            }
        };
        env.count(Counter::RxFatalNaks);
        env.trace(Trace::NakReceived { kind, psn });
        match self.acknowledge(now, psn, env) {
            Blocked::Dead => (),
            Blocked::Before => self.implied_nak(env),
            Blocked::Within | Blocked::No => self.fail_oldest(status, env),
        }
    }

    /// Acknowledges what comes before the response at `psn`, and gives the work request that it answers.
    fn answered(&mut self, now: Instant, psn: Psn, env: &mut E) -> Option<SendSlot> {
        if self.acknowledge(now, psn, env) == Blocked::Dead {
            return None;
        }
        if self.comp.una != psn {
            self.implied_nak(env);
            return None;
        }
        self.begun()
    }

    fn on_read_response(
        &mut self,
        now: Instant,
        psn: Psn,
        pkt: &Parsed,
        info: &Info,
        env: &mut E,
    ) -> Verdict {
        let Some(entry) = self.answered(now, psn, env) else {
            return Verdict::Done;
        };
        let last = psn == entry.last;
        let aeth = pkt.headers.aeth();
        let acked = aeth.is_none_or(|a| matches!(a.syndrome, Syndrome::Ack { .. }));
        let asked = match entry.wqe.op {
            SendOp::Read => Some(entry.wqe.length),
            // Answered without data (A19).
            SendOp::AtomicWrite | SendOp::Flush(_) => Some(0),
            _ => None,
        };
        let (Some(asked), true, true) = (asked, info.position.ends() == last, acked) else {
            self.fail_oldest(WcStatus::BadRespErr, env);
            return Verdict::Done;
        };
        let mtu = self.set.mtu.bytes();
        let offset = psn.distance_from(entry.first).saturating_mul(mtu);
        let len = asked.saturating_sub(offset).min(mtu);
        if pkt.payload_len != len as usize {
            self.fail_oldest(WcStatus::LocLenErr, env);
            return Verdict::Done;
        }
        if len > 0 {
            let placed = env.place_send(self.sq.slot_of(self.sq.tail), offset, len);
            if let Err(fault) = placed {
                return self.not_placed(fault, env);
            }
        }
        if let Some(aeth) = aeth {
            self.take_credits(now, aeth);
        }
        self.answered_to(now, psn, last, env);
        Verdict::Done
    }

    fn on_atomic_ack(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        pkt: &Parsed,
        env: &mut E,
    ) -> Verdict {
        let Some(entry) = self.answered(now, psn, env) else {
            return Verdict::Done;
        };
        let (Some(original), true, Syndrome::Ack { .. }) = (
            pkt.headers.atomic_ack(),
            entry.wqe.op.is_atomic(),
            aeth.syndrome,
        ) else {
            self.fail_oldest(WcStatus::BadRespErr, env);
            return Verdict::Done;
        };
        let placed = env.place_atomic_result(self.sq.slot_of(self.sq.tail), original.0);
        if let Err(fault) = placed {
            return self.not_placed(fault, env);
        }
        self.take_credits(now, aeth);
        self.answered_to(now, psn, true, env);
        Verdict::Done
    }

    /// The data of a response can't be put in its place.
    fn not_placed(&mut self, fault: PlaceFault, env: &mut E) -> Verdict {
        match fault {
            PlaceFault::Absent => Verdict::Absent,
            PlaceFault::Status(status) => {
                self.fail_oldest(status, env);
                Verdict::Done
            }
        }
    }

    /// The response at `psn` is in place.
    pub(crate) fn answered_to(&mut self, now: Instant, psn: Psn, last: bool, env: &mut E) {
        self.comp.una = psn.next();
        if last {
            // All of a response belongs to one request packet.
            self.req.grow(1);
            self.retire(env);
        }
        self.note_progress(now);
    }

    /// Fails the oldest work request.
    fn fail_oldest(&mut self, status: WcStatus, env: &mut E) {
        let tail = self.sq.tail;
        if let Some(s) = self.sq.get_mut(tail) {
            s.progress = Progress::Failed(status);
        }
        self.pump(env);
    }

    /// A response shows that an earlier one is lost.
    fn implied_nak(&mut self, env: &mut E) {
        if self.comp.recovering || self.state == QpState::Err {
            return;
        }
        env.count(Counter::RxImpliedNaks);
        self.retry(RetransmitCause::ImpliedNak, env);
        self.comp.recovering = true;
    }

    /// No response in time.
    pub(crate) fn on_ack_timeout(&mut self, env: &mut E) {
        self.comp.deadline = None;
        if self.begun().is_none() {
            return;
        }
        env.count(Counter::Timeouts);
        self.comp.recovering = false;
        self.retry(RetransmitCause::Timeout, env);
    }

    /// Goes back if retries are left.
    fn retry(&mut self, cause: RetransmitCause, env: &mut E) {
        if self.comp.retries_left == 0 {
            env.count(Counter::RetryExceeded);
            return self.fail_oldest(WcStatus::RetryExcErr, env);
        }
        self.comp.retries_left = self.comp.retries_left.saturating_sub(1);
        self.go_back(cause, self.comp.retries_left, env);
    }

    /// Sends again from the oldest unacknowledged PSN on. The timer starts anew with that.
    fn go_back(&mut self, cause: RetransmitCause, left: u8, env: &mut E) {
        self.comp.deadline = None;
        self.req.shrink(cause);
        self.req.pos = self.comp.una;
        self.sq.cur = self.sq.tail;
        env.trace(Trace::Retransmit {
            cause,
            psn: self.comp.una,
            left,
        });
    }
}
