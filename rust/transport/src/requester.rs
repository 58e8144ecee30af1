// SPDX-License-Identifier: GPL-2.0

//! The requester: what to send next.
//!
//! It walks the send queue in order. A work request gets its PSNs when it is begun; from then on the same packets can be made
//! again from any PSN. Going back for a retransmission is to set [`Requester::pos`] to the oldest unacknowledged PSN.

use crate::burst::{
    AckReq,
    Burst,
    Owner, //
};
use crate::env::{
    Counter,
    Env,
    RetransmitCause,
    Trace, //
};
use crate::psn::{
    Psn,
    Ssn,
    HALF, //
};
use crate::qp::Qp;
use crate::ring::{
    Progress,
    SendSlot, //
};
use crate::time::{
    self,
    Duration,
    Instant, //
};
use crate::verbs::{
    QpState,
    SendOp,
    WcStatus, //
};

mod asking;
mod packets;

pub(crate) use asking::Asking;

/// Request packets that may be unacknowledged, unless [`Qp::set_window`] says otherwise.
///
/// One mebibyte at an MTU of 4096. It bounds what one loss makes go-back-N send again, and what a burst can put into the
/// queues of a receiver; the throughput of a queue pair is at most window times MTU per round trip, 840 Mb/s at 10 ms.
/// The requests of READs and atomics count as one packet each, whatever the length of their responses.
pub const DEFAULT_WINDOW: u32 = 256;

/// The window after the worst losses.
const LEAST_WINDOW: u32 = 8;

/// The longest run of request packets, within one message or over several, without the AckReq bit.
pub const ACK_INTERVAL: u32 = 32;

/// The Q_Key of the general services interface.
const GSI_QKEY: u32 = 0x8001_0000;

/// Set in the Q_Key of a work request, it asks for that of the queue pair (10.2.5).
const QKEY_OF_QP: u32 = 1 << 31;

/// Why the requester sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// It is sending.
    Active,
    /// Nothing is posted.
    #[default]
    NoWork,
    /// Everything was sent, and some of it is not acknowledged yet.
    Unacknowledged,
    /// Everything was sent, some of it again, and no answer has come yet.
    Retrying,
    /// The state does not permit to send.
    State,
    /// In SQD, nothing new is begun.
    Draining,
    /// Too many packets are unacknowledged.
    Window,
    /// The peer has no receive for the next message.
    Credit,
    /// The peer asked to wait, by an RNR NAK.
    Rnr,
    /// A fenced work request waits for READs and atomics.
    Fence,
    /// Too many READs and atomics are outstanding.
    ReadLimit,
    /// A work request failed, and earlier ones have yet to complete.
    Failed,
    /// The network had no room for a packet. This and the next only the surroundings know, and put it in the place of
    /// [`Qp::waits_for`].
    Network,
    /// Memory is being paged in.
    Pages,
}

impl Idle {
    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NoWork => "no_work",
            Self::Unacknowledged => "unacknowledged",
            Self::Retrying => "retrying",
            Self::State => "state",
            Self::Draining => "draining",
            Self::Window => "window",
            Self::Credit => "credit",
            Self::Rnr => "rnr",
            Self::Fence => "fence",
            Self::ReadLimit => "read_limit",
            Self::Failed => "failed",
            Self::Network => "network",
            Self::Pages => "pages",
        }
    }

    /// The counters of a stall, which is a wait with work at hand: how often it began, and how long it took.
    const fn counters(self) -> Option<(Counter, Counter)> {
        match self {
            Self::Window => Some((Counter::WindowStalls, Counter::WindowStallUs)),
            Self::Credit => Some((Counter::CreditStalls, Counter::CreditStallUs)),
            Self::Fence => Some((Counter::FenceStalls, Counter::FenceStallUs)),
            Self::ReadLimit => Some((Counter::ReadLimitStalls, Counter::ReadLimitStallUs)),
            _ => None,
        }
    }
}

/// What the requester waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    why: Idle,
    /// When a probe may do without the credit.
    probe: Option<Instant>,
}

impl From<Idle> for Wait {
    fn from(why: Idle) -> Self {
        Self { why, probe: None }
    }
}

/// Whether a message may go beyond the credits that the peer told.
///
/// A peer that told of none left is asked whether there are some by now (see [`asking`]), and from then on tells when there
/// are. So a probe is for the case that this gets lost, or that the peer doesn't tell, or gave up looking. Until it took a
/// message it need not tell: the first one is a probe at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Nothing waits for credit.
    Idle,
    /// Not before then.
    At(Instant),
    /// Now.
    Due,
}

/// How long after credits were last told a probe is sent, unless the ACK timeout is shorter.
const PROBE_DELAY: Duration = Duration::from_micros(67_109);

/// State of the requester.
///
/// # Invariants
///
/// In PSN order: `comp.una`, `pos`, `edge`, `next`; `pos` lies in the work request at `sq.cur`, or is `next`.
pub(crate) struct Requester {
    /// The next PSN to send.
    pub(crate) pos: Psn,
    /// The first PSN that was never sent.
    pub(crate) edge: Psn,
    /// The first PSN that no work request has.
    pub(crate) next: Psn,
    /// Of the last message begun.
    pub(crate) ssn: Ssn,
    /// The last message that the peer has a receive for.
    lsn: Ssn,
    /// The peer does not count credits.
    unlimited: bool,
    /// When the peer last told how many there are, once it took a message.
    told: Option<Instant>,
    /// A message was begun that takes a receive.
    takes_receives: bool,
    /// Whether to do without.
    pub(crate) probe: Probe,
    /// The running number of the next request packet.
    number: u32,
    /// READs and atomics begun and not completed.
    pub(crate) outstanding_reads: u32,
    /// What the peer was asked for.
    pub(crate) asking: Asking,
    /// Until when the peer asked to wait.
    pub(crate) rnr_until: Option<Instant>,
    /// Request packets that may be unacknowledged, at most.
    window: u32,
    /// How many of them the path seems to take now: from [`LEAST_WINDOW`] to `window`.
    allowed: u32,
    /// The send queue drained in this SQD.
    pub(crate) drained: bool,
    /// What the last poll found.
    pub(crate) idle: Idle,
    /// Since when that is so.
    pub(crate) idle_since: Instant,
}

impl Requester {
    pub(crate) const fn new() -> Self {
        Self {
            pos: Psn::new(0),
            edge: Psn::new(0),
            next: Psn::new(0),
            ssn: Ssn::new(0),
            lsn: Ssn::new(0),
            unlimited: false,
            told: None,
            takes_receives: false,
            probe: Probe::Idle,
            number: 0,
            outstanding_reads: 0,
            asking: Asking::new(Psn::new(0)),
            rnr_until: None,
            window: DEFAULT_WINDOW,
            allowed: DEFAULT_WINDOW,
            drained: false,
            idle: Idle::NoWork,
            idle_since: Instant::from_nanos(0),
        }
    }

    /// Forgets everything but the window, and what it waited for: the next poll ends that.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            window: self.window,
            allowed: self.window,
            idle: self.idle,
            idle_since: self.idle_since,
            ..Self::new()
        };
    }

    /// Begins at `psn`.
    pub(crate) fn start(&mut self, psn: Psn) {
        self.reset();
        self.pos = psn;
        self.edge = psn;
        self.next = psn;
        self.asking = Asking::new(psn);
    }

    /// Everything was flushed.
    pub(crate) fn halt(&mut self) {
        self.outstanding_reads = 0;
        self.rnr_until = None;
        self.probe = Probe::Idle;
        self.pos = self.next;
        self.edge = self.next;
        self.asking = Asking::new(self.next);
    }

    /// Whether a poll without work requests would find nothing and end nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.asking.is_due() && self.idle.counters().is_none()
    }

    pub(crate) fn set_window(&mut self, packets: u32) {
        self.window = packets.clamp(1, HALF);
        self.allowed = self.window;
    }

    /// Something was lost: less at a time until the path proves better.
    ///
    /// A receiver or a queue on the way that is overrun by a whole window would be overrun by it again. After a timeout
    /// nothing is known to get through, so the window falls further than after a NAK, which did.
    pub(crate) fn shrink(&mut self, cause: RetransmitCause) {
        let divisor = match cause {
            RetransmitCause::Timeout => 4,
            RetransmitCause::SequenceNak | RetransmitCause::ImpliedNak => 2,
            RetransmitCause::Rnr => return,
        };
        self.allowed = (self.allowed / divisor).max(LEAST_WINDOW).min(self.window);
    }

    /// So many request packets were acknowledged: the window doubles in a round trip.
    pub(crate) fn grow(&mut self, packets: u32) {
        self.allowed = self.allowed.saturating_add(packets).min(self.window);
    }

    /// The next PSN for a query, where the requester has begun.
    pub(crate) fn next_or(&self, psn: Psn, state: QpState) -> Psn {
        match state {
            QpState::Reset | QpState::Init | QpState::Rtr => psn,
            _ => self.next,
        }
    }

    /// How many request packets may be unacknowledged now.
    pub(crate) fn allowed(&self) -> u32 {
        self.allowed
    }

    pub(crate) fn credit_limit(&self) -> Option<Ssn> {
        if self.unlimited {
            None
        } else {
            Some(self.lsn)
        }
    }

    /// The peer has receives up to message `limit`, or does not count.
    pub(crate) fn grant(&mut self, now: Instant, limit: Option<Ssn>) {
        self.told = self.takes_receives.then_some(now);
        let more = limit.is_none_or(|l| l.after(self.lsn));
        self.asking.credit_told(more);
        match limit {
            None => self.unlimited = true,
            Some(l) if more => self.lsn = l,
            Some(_) => return,
        }
        self.probe = Probe::Idle;
    }

    /// Whether the peer is known to have a receive for message `ssn`.
    fn has_credit(&self, ssn: Ssn) -> bool {
        self.unlimited || !ssn.after(self.lsn)
    }
}

/// How far the requester had come: see [`Qp::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pos: Psn,
    edge: Psn,
    cur: u32,
    life: u32,
}

impl<E: Env> Qp<E> {
    /// Where the requester stands, for [`Self::retract`].
    pub fn mark(&self) -> Mark {
        Mark {
            pos: self.req.pos,
            edge: self.req.edge,
            cur: self.sq.cur,
            life: self.sq.life,
        }
    }

    /// Takes back all requests that were polled since a mark: none of them left after all, and they are to be made anew.
    ///
    /// Nothing may have come in meanwhile. Reports made of them, if they were good, are void.
    pub fn retract(&mut self, to: Mark) {
        if self.ty.is_reliable() && self.sq.life == to.life && self.sq.is_live(to.cur) {
            self.req.pos = to.pos;
            self.req.edge = to.edge;
            self.sq.cur = to.cur;
        }
    }

    /// Whether a work request was posted after those that were polled so far.
    pub fn has_more(&self) -> bool {
        self.sq.cur != self.sq.head
    }

    /// The next request packets.
    pub(crate) fn poll_requests(
        &mut self,
        now: Instant,
        budget: u32,
        env: &mut E,
    ) -> Option<Burst> {
        if let Some(question) = self.question(now, env) {
            return Some(question);
        }
        let psn = self.req.pos;
        match self.next_requests(now, budget, env) {
            Ok(b) => {
                self.note_idle(now, Idle::Active, psn, env);
                Some(b)
            }
            Err(why) => {
                self.note_idle(now, why, psn, env);
                self.credit_question(env)
            }
        }
    }

    /// Notes a wait at `psn` if it is new, and counts stalls where they begin and end.
    fn note_idle(&mut self, now: Instant, why: Idle, psn: Psn, env: &mut E) {
        let before = self.req.idle;
        if before == why {
            return;
        }
        if let Some((_, time)) = before.counters() {
            let waited = now.saturating_since(self.req.idle_since).as_micros();
            let us = u32::try_from(waited).unwrap_or(u32::MAX);
            env.count_n(time, us);
            env.trace(Trace::StallEnd {
                why: before,
                psn,
                us,
            });
        }
        if let Some((stalls, _)) = why.counters() {
            env.count(stalls);
            env.trace(Trace::Stall { why, psn });
        }
        self.req.asking.wait_begins(why == Idle::Credit);
        self.req.idle = why;
        self.req.idle_since = now;
    }

    /// What the requester waits for at this moment, by all that is known; [`Idle::Active`] if it would send.
    ///
    /// Changes nothing, and does not depend on when it was last polled.
    pub fn waits_for(&self, now: Instant) -> Idle {
        match self.next_step(now) {
            Ok(_) => Idle::Active,
            Err(wait) => wait.why,
        }
    }

    fn next_requests(&mut self, now: Instant, budget: u32, env: &mut E) -> Result<Burst, Idle> {
        loop {
            let begun = self.next_step(now).and_then(|(index, progress)| {
                self.sq.cur = index;
                if progress == Progress::Posted {
                    self.begin(index, env);
                }
                let entry = self.sq.get(index).ok_or(Idle::NoWork)?;
                let sends = entry.progress == Progress::Begun;
                // What was begun before may be sent: that was the step.
                if sends && progress == Progress::Posted {
                    self.may_send(entry)?;
                }
                Ok(sends.then_some(index))
            });
            match begun {
                Ok(Some(index)) => return self.send(now, budget, index, env).ok_or(Idle::NoWork),
                // It was carried out here.
                Ok(None) => (),
                Err(Wait { why, probe }) => {
                    if let Some(at) = probe {
                        self.req.probe = Probe::At(at);
                    }
                    return Err(why);
                }
            }
        }
    }

    /// The work request that is to be begun or sent from now: its index, and which of the two; or what stands in the way.
    /// Changes nothing.
    fn next_step(&self, now: Instant) -> Result<(u32, Progress), Wait> {
        if !self.state.permits().send {
            return Err(Idle::State.into());
        }
        if self.req.rnr_until.is_some() {
            return Err(Idle::Rnr.into());
        }
        let mut index = self.sq.cur;
        loop {
            if index == self.sq.head {
                return Err(self.nothing_to_send().into());
            }
            let entry = self.sq.get(index).ok_or(Idle::NoWork)?;
            match entry.progress {
                Progress::Free | Progress::Done => index = index.wrapping_add(1),
                Progress::Failed(_) => return Err(Idle::Failed.into()),
                Progress::Posted => {
                    self.may_begin(now, entry)?;
                    return Ok((index, Progress::Posted));
                }
                Progress::Begun => {
                    self.may_send(entry)?;
                    return Ok((index, Progress::Begun));
                }
            }
        }
    }

    fn nothing_to_send(&self) -> Idle {
        if !self.ty.is_reliable() || self.sq.used() == 0 {
            Idle::NoWork
        } else if self.comp.retries_left < self.set.retry_cnt {
            Idle::Retrying
        } else {
            Idle::Unacknowledged
        }
    }

    /// How many PSNs a work request takes.
    fn packets(&self, entry: &SendSlot) -> u32 {
        let op = entry.wqe.op;
        if op.is_atomic() || matches!(op, SendOp::Flush(_)) {
            1
        } else {
            self.set.mtu.packets(entry.wqe.length)
        }
    }

    /// How a work request ends that nothing is sent of: its result; [`None`] for all others.
    fn goes_nowhere(&self, entry: &SendSlot) -> Option<Result<(), WcStatus>> {
        if self.ty.is_datagram() && entry.wqe.length > self.set.mtu.bytes() {
            // C10-93.1.1: it goes nowhere, and succeeds.
            return Some(Ok(()));
        }
        if self.ty.is_reliable() && entry.wqe.op.needs_response() && self.set.max_rd_atomic == 0 {
            return Some(Err(WcStatus::LocQpOpErr));
        }
        None
    }

    /// Whether a work request may be begun.
    fn may_begin(&self, now: Instant, entry: &SendSlot) -> Result<(), Wait> {
        let op = entry.wqe.op;
        if !self.state.permits().begin {
            return Err(Idle::Draining.into());
        }
        // 10.8.3.3: a fence waits for READs and atomics only.
        if entry.wqe.flags.fence && self.req.outstanding_reads > 0 {
            return Err(Idle::Fence.into());
        }
        if op == SendOp::Local || !self.ty.is_reliable() || self.goes_nowhere(entry).is_some() {
            return Ok(());
        }
        // The responder tells duplicates by half of the PSN space.
        let outstanding = self.req.next.distance_from(self.comp.una);
        if outstanding.saturating_add(self.packets(entry)) > HALF {
            return Err(Idle::Window.into());
        }
        if op.needs_response() && self.req.outstanding_reads >= u32::from(self.set.max_rd_atomic) {
            return Err(Idle::ReadLimit.into());
        }
        let ssn = self.req.ssn.next();
        if op.takes_receive() && !self.req.has_credit(ssn) {
            return self.may_probe(now, ssn);
        }
        Ok(())
    }

    /// Whether a message may go beyond the credits.
    fn may_probe(&self, now: Instant, ssn: Ssn) -> Result<(), Wait> {
        // 9.7.7.2: one message beyond the limit may probe.
        if ssn.after(self.req.lsn.next()) {
            return Err(Idle::Credit.into());
        }
        if self.req.asking.has_always_credit() {
            return Ok(());
        }
        let delay = time::ack_timeout(self.set.timeout).unwrap_or(PROBE_DELAY);
        let due = self
            .req
            .told
            .map(|t| t.saturating_add(delay.min(PROBE_DELAY)));
        match due {
            Some(due) if self.req.probe != Probe::Due && now < due => Err(Wait {
                why: Idle::Credit,
                probe: Some(due),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a packet of a work request that was begun may be sent.
    fn may_send(&self, entry: &SendSlot) -> Result<(), Wait> {
        if !self.ty.is_reliable() {
            return Ok(());
        }
        if self.room(entry) == 0 {
            return Err(Idle::Window.into());
        }
        if self.is_probing(entry) && self.req.pos != entry.first {
            return Err(Idle::Credit.into());
        }
        Ok(())
    }

    /// Begins a work request that may be: gives it its PSNs, or carries it out if it is local.
    fn begin(&mut self, index: u32, env: &mut E) {
        let Some(entry) = self.sq.get(index) else {
            return;
        };
        let op = entry.wqe.op;
        if op == SendOp::Local {
            let result = env.local_op(self.sq.slot_of(index));
            return self.finish(index, result, env);
        }
        if let Some(result) = self.goes_nowhere(entry) {
            if result.is_ok() {
                env.count(Counter::DropSendTooLong);
            }
            return self.finish(index, result, env);
        }
        let packets = self.packets(entry);
        let ssn = self.req.ssn.next();
        if self.ty.is_reliable() {
            if op.needs_response() {
                self.req.outstanding_reads = self.req.outstanding_reads.saturating_add(1);
            }
            if op.takes_receive() {
                if !self.req.has_credit(ssn) {
                    self.req.probe = Probe::Idle;
                }
                self.req.takes_receives = true;
            } else {
                self.req.lsn = self.req.lsn.next();
            }
        }
        let requests = if op.needs_response() { 1 } else { packets };
        let (first, number) = (self.req.next, self.req.number);
        if let Some(s) = self.sq.get_mut(index) {
            s.progress = Progress::Begun;
            s.first = first;
            s.last = first.add(packets.saturating_sub(1));
            s.ssn = ssn;
            s.number = number;
        }
        self.req.ssn = ssn;
        self.req.next = first.add(packets);
        self.req.number = number.wrapping_add(requests);
    }

    /// Ends a work request that is not to be sent.
    fn finish(&mut self, index: u32, result: Result<(), WcStatus>, env: &mut E) {
        if let Some(s) = self.sq.get_mut(index) {
            s.progress = match result {
                Ok(()) => Progress::Done,
                Err(status) => Progress::Failed(status),
            };
        }
        self.pump(env);
    }

    /// Sends from a work request that was begun and of which a packet may be sent.
    fn send(&mut self, now: Instant, budget: u32, index: u32, env: &mut E) -> Option<Burst> {
        let entry = self.sq.get(index)?;
        let pos = self.req.pos;
        let at = pos.distance_from(entry.first);
        let total = entry.last.distance_from(entry.first).saturating_add(1);
        let left = total.saturating_sub(at);
        let (count, ack_req) = if self.ty.is_reliable() {
            let room = self.room(entry);
            let probing = self.is_probing(entry);
            let count = if probing {
                1
            } else {
                left.min(room).min(budget)
            };
            let paced = AckReq::Paced {
                first: entry.number_at(pos).wrapping_add(1),
                every: ACK_INTERVAL,
                last: probing || count == room,
                end: self.asks_at_end(index, entry, room.saturating_sub(count)),
            };
            if probing {
                env.count(Counter::CreditProbes);
            }
            (count, paced)
        } else {
            (left.min(budget), AckReq::Never)
        };

        let owner = Owner::Request {
            index,
            life: self.sq.life,
            slot: self.sq.slot_of(index),
        };
        let (burst, to) = if entry.wqe.op.needs_response() {
            (self.response_request(entry, at, owner), entry.last.next())
        } else if self.ty.is_datagram() {
            (self.datagram(entry, owner), pos.next())
        } else {
            (
                self.run(entry, at, total, count, ack_req, owner),
                pos.add(count),
            )
        };

        let end = entry.last.next();
        env.count_n(Counter::TxRequests, burst.count);
        let again = self.req.edge.distance_from(pos);
        if again != 0 {
            env.count_n(Counter::TxRetransmits, burst.count.min(again));
        }
        self.req.pos = to;
        if to.distance_from(self.comp.una) > self.req.edge.distance_from(self.comp.una)
            || !self.ty.is_reliable()
        {
            self.req.edge = to;
        }
        if to == end {
            self.sq.cur = index.wrapping_add(1);
        }
        if self.ty.is_reliable() {
            self.note_asked(now, burst.asks_before(to), to);
        } else {
            self.comp.una = to;
        }
        Some(burst)
    }

    /// How many more request packets may be sent.
    fn room(&self, entry: &SendSlot) -> u32 {
        let una = match self.sq.oldest() {
            Some((_, s)) if s.progress == Progress::Begun => s.number_at(self.comp.una),
            _ => entry.number_at(self.req.pos),
        };
        let used = entry.number_at(self.req.pos).wrapping_sub(una);
        self.req.allowed.saturating_sub(used)
    }

    /// Whether only the first packet of the message may be sent: it goes beyond the credits, and nothing of it was
    /// acknowledged yet.
    fn is_probing(&self, entry: &SendSlot) -> bool {
        entry.wqe.op.takes_receive()
            && !self.req.has_credit(entry.ssn)
            && !(entry.contains(self.comp.una) && self.comp.una != entry.first)
    }

    /// Starts the ACK timer unless it runs.
    fn arm_ack_timer(&mut self, now: Instant) {
        if self.comp.deadline.is_none() {
            self.comp.deadline = time::ack_timeout(self.set.timeout).map(|t| now.saturating_add(t));
        }
    }

    /// A burst of requests was handed over, or could not be made.
    pub(crate) fn request_sent(
        &mut self,
        index: u32,
        burst: &Burst,
        result: Result<(), WcStatus>,
        env: &mut E,
    ) {
        let reliable = self.ty.is_reliable();
        let Some(entry) = self.sq.get_mut(index) else {
            return;
        };
        if entry.progress != Progress::Begun {
            return;
        }
        match result {
            Err(status) => {
                entry.progress = Progress::Failed(status);
                // What came before completes first, and may have left it to this one to ask.
                if reliable && !entry.contains(self.comp.una) {
                    self.req.asking.left_undone(entry.first);
                }
                // Nothing after it is sent any more.
                if self.sq.cur.wrapping_sub(self.sq.tail) > index.wrapping_sub(self.sq.tail) {
                    self.sq.cur = index;
                }
                self.pump(env);
            }
            Ok(()) if reliable => (),
            Ok(()) => {
                if burst.psn().add(burst.count) == entry.last.next() {
                    entry.progress = Progress::Done;
                    self.pump(env);
                }
            }
        }
    }
}
