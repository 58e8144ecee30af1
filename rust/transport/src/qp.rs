// SPDX-License-Identifier: GPL-2.0

//! The queue pair: what its three machines share, and the way in.

use crate::burst::{
    Burst,
    Owner,
    Plan,
    Source, //
};
use crate::completer::Completer;
use crate::env::{
    AsyncEvent,
    Counter,
    Env,
    Trace,
    Verdict, //
};
use crate::opcode::{
    Role,
    Service, //
};
use crate::psn::{
    Msn,
    Psn,
    Ssn, //
};
use crate::requester::{
    Probe,
    Requester, //
};
use crate::responder::Responder;
use crate::ring::SendQueue;
use crate::state::{
    self,
    ModifyError,
    QpAttr, //
};
use crate::time::Instant;
use crate::verbs::{
    Access,
    Mtu,
    QpState,
    QpType,
    SendOp,
    SendWqe,
    WcStatus,
    MAX_MSG_LEN, //
};
use crate::wire::{
    Bth,
    Headers,
    Parsed, //
};

mod finish;
mod settings;

pub(crate) use settings::Settings;

/// Why a work request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The send queue is full.
    Full,
    /// Not in this state.
    State,
    /// The service does not have this operation.
    Opcode,
    /// The length is illegal.
    Length,
    /// A datagram without destination.
    Destination,
}

/// What the timer of a queue pair is armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The answer to what was sent.
    Ack,
    /// The wait that the peer asked for by an RNR NAK.
    Rnr,
    /// A message that may do without the credit.
    Probe,
    /// A look for receives, which the peer waits for.
    Receives,
    /// To ask for acknowledgements that nobody waits for.
    Ask,
}

impl Timer {
    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Rnr => "rnr",
            Self::Probe => "probe",
            Self::Receives => "receives",
            Self::Ask => "ask",
        }
    }
}

/// A queue pair at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: QpState,
    /// The next PSN of the requester; behind [`Self::sent_psn`] while it sends again.
    pub next_psn: Psn,
    /// The first PSN that was never sent.
    pub sent_psn: Psn,
    /// The oldest PSN that is not acknowledged.
    pub unacked_psn: Psn,
    /// The PSN that the responder expects.
    pub expected_psn: Psn,
    /// Messages completed by the responder.
    pub msn: Msn,
    /// Messages begun by the requester.
    pub ssn: Ssn,
    /// The last message that the peer has a receive for; [`None`]: credits are not counted.
    pub credit_limit: Option<Ssn>,
    /// Transport retries left.
    pub retries_left: u8,
    /// RNR retries left.
    pub rnr_retries_left: u8,
    /// READs and atomics outstanding.
    pub outstanding_reads: u32,
    /// READs and atomics of the peer that are yet to be answered.
    pub pending_answers: u32,
    /// Work requests posted and not completed.
    pub send_queue_used: u32,
    /// The window: request packets that may be unacknowledged now.
    pub window: u32,
    /// The responder awaits a missing packet.
    pub in_gap: bool,
    /// The send queue is draining: in SQD, and not drained.
    pub sq_draining: bool,
    /// The next deadline, and what it is for.
    pub timer: Option<(Instant, Timer)>,
}

/// A queue pair.
///
/// Locking: all methods that take `&mut self` belong under one lock; nothing in here is shared behind it.
pub struct Qp<E: Env> {
    pub(crate) ty: QpType,
    pub(crate) qpn: u32,
    pub(crate) sig_all: bool,
    pub(crate) has_srq: bool,
    pub(crate) state: QpState,
    pub(crate) set: Settings,
    pub(crate) sq: SendQueue<E::SendSlots>,
    pub(crate) resources: E::Resources,
    pub(crate) req: Requester,
    pub(crate) comp: Completer,
    pub(crate) resp: Responder<E::Region>,
}

impl<E: Env> Qp<E> {
    /// A queue pair in RESET.
    ///
    /// `slots` is the send queue, of a power-of-two length; `resources` limits `max_dest_rd_atomic`.
    pub fn new(
        ty: QpType,
        qpn: u32,
        slots: E::SendSlots,
        resources: E::Resources,
        sig_all: bool,
        has_srq: bool,
    ) -> Self {
        Self {
            ty,
            qpn,
            sig_all,
            has_srq,
            state: QpState::Reset,
            set: Settings::new(),
            sq: SendQueue::new(slots),
            resources,
            req: Requester::new(),
            comp: Completer::new(),
            resp: Responder::new(),
        }
    }

    /// Gives the send queue its slots, if it has none: until then it is full.
    pub fn furnish_sends(&mut self, slots: &mut E::SendSlots) {
        self.sq.furnish(slots);
    }

    /// Replaces the responder resources by more of them. What was remembered stays. Nothing changes if `more` are not more.
    pub fn furnish_resources(&mut self, more: &mut E::Resources) {
        if more.len() > self.resources.len() {
            for (to, from) in more.iter_mut().zip(self.resources.iter_mut()) {
                core::mem::swap(to, from);
            }
            core::mem::swap(more, &mut self.resources);
        }
    }

    /// The service.
    pub fn qp_type(&self) -> QpType {
        self.ty
    }

    /// The number.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The number of the connected peer.
    pub fn dest_qpn(&self) -> u32 {
        self.set.dest_qpn
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Sets the P_Key that packets carry.
    pub fn set_pkey(&mut self, pkey: u16) {
        self.set.pkey = pkey;
    }

    /// Sets the longest datagram: the MTU of the port. Connected queue pairs have theirs by [`Self::modify`].
    pub fn set_port_mtu(&mut self, mtu: Mtu) {
        if self.ty.is_datagram() {
            self.set.mtu = mtu;
        }
    }

    /// Sets how many request packets may be unacknowledged; [`crate::DEFAULT_WINDOW`] unless told.
    pub fn set_window(&mut self, packets: u32) {
        self.req.set_window(packets);
    }

    /// The work request at a slot, posted or not.
    pub fn wqe(&self, slot: u32) -> Option<&SendWqe> {
        self.sq.at_slot(slot).map(|s| &s.wqe)
    }

    /// The memory that the READ of a responder resource reads from.
    pub fn region(&self, resource: u32) -> Option<&E::Region> {
        self.resources
            .get(resource as usize)
            .and_then(|r| r.region.as_ref())
    }

    /// Changes state and attributes.
    ///
    /// # Errors
    ///
    /// Nothing has changed.
    pub fn modify(&mut self, now: Instant, attr: &QpAttr, env: &mut E) -> Result<(), ModifyError> {
        let from = self.state;
        let to = attr.state.unwrap_or(from);
        state::check(self.ty, from, to, attr)?;
        if attr
            .max_dest_rd_atomic
            .is_some_and(|n| usize::from(n) > self.resources.len())
        {
            return Err(ModifyError::Value);
        }
        match to {
            QpState::Err => self.enter_error(env),
            QpState::Reset => self.reset(env),
            _ => {
                self.set.apply(attr);
                self.enter(to, env);
                self.settle(from, to, attr, env);
            }
        }
        let _ = now;
        Ok(())
    }

    /// Makes the machines follow a transition that is not to RESET or ERR.
    fn settle(&mut self, from: QpState, to: QpState, attr: &QpAttr, env: &mut E) {
        match (from, to) {
            (QpState::Init, QpState::Rtr) => self.resp.start(self.set.rq_psn),
            (QpState::Rtr, QpState::Rts) => {
                self.req.start(self.set.sq_psn);
                self.comp.start(self.set.sq_psn);
            }
            (QpState::Rts, QpState::Sqd) => {
                self.req.drained = false;
                self.ask();
                self.check_drained(env);
            }
            _ => (),
        }
        if attr.retry_cnt.is_some() || attr.rnr_retry.is_some() {
            self.refill_retries();
        }
        if attr.max_dest_rd_atomic.is_some() && from == to {
            self.resp.limit_resources(self.set.max_dest_rd_atomic);
        }
    }

    /// All attributes as they are.
    pub fn query(&self) -> QpAttr {
        let s = &self.set;
        QpAttr {
            state: Some(self.state),
            cur_state: Some(self.state),
            en_sqd_async_notify: Some(s.sqd_notify),
            access: Some(s.access),
            pkey_index: Some(s.pkey_index),
            port: Some(s.port),
            qkey: Some(s.qkey),
            path: true,
            path_mtu: Some(s.mtu),
            timeout: Some(s.timeout),
            retry_cnt: Some(s.retry_cnt),
            rnr_retry: Some(s.rnr_retry),
            rq_psn: Some(self.resp.expected_or(s.rq_psn, self.state)),
            max_rd_atomic: Some(s.max_rd_atomic),
            max_dest_rd_atomic: Some(s.max_dest_rd_atomic),
            alt_path: false,
            path_mig_state: false,
            min_rnr_timer: Some(s.min_rnr_timer),
            sq_psn: Some(self.req.next_or(s.sq_psn, self.state)),
            dest_qpn: Some(s.dest_qpn),
        }
    }

    /// Tells whether a send work request can be posted. To be asked before anything is kept at the slot that it would get,
    /// which in a full queue is that of another.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn may_post(&self) -> Result<(), PostError> {
        if !self.state.permits().post_send {
            return Err(PostError::State);
        }
        if self.sq.is_full() {
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// Posts a send work request, and returns its slot: slots are used in ring order, from 0 after RESET.
    ///
    /// In SQE and ERR it is flushed at once.
    ///
    /// # Errors
    ///
    /// Nothing was posted.
    pub fn post_send(&mut self, now: Instant, wqe: SendWqe, env: &mut E) -> Result<u32, PostError> {
        self.may_post()?;
        check_wqe(self.ty, &wqe)?;
        let slot = self.sq.push(wqe).ok_or(PostError::Full)?;
        if self.state.permits().flush_send {
            self.flush_sends(env);
        }
        let _ = now;
        Ok(slot)
    }

    /// The next packets to send, `budget` at most: the answers of the responder in the order of their PSNs, then requests.
    ///
    /// Each burst is to be reported by [`Self::sent`]. To be called again until it returns [`None`], which it also does for
    /// a budget of 0.
    pub fn poll_transmit(&mut self, now: Instant, budget: u32, env: &mut E) -> Option<Burst> {
        if budget == 0 || self.is_quiet() {
            return None;
        }
        if let Some(b) = self.poll_answers(now, budget, env) {
            return Some(b);
        }
        self.poll_requests(now, budget, env)
    }

    /// Whether there is nothing to send, without a closer look: most polls are the second of two.
    pub fn is_quiet(&self) -> bool {
        self.resp.is_quiet() && !self.has_more() && self.req.is_quiet()
    }

    /// Tells what became of a burst.
    ///
    /// `Ok`: it was handed to the network, which may have lost it. `Err`: its payload could not be gathered, and none of it
    /// was sent. A failed request fails its work request when the earlier ones have completed; a failed READ response is
    /// turned into a NAK.
    pub fn sent(&mut self, now: Instant, burst: &Burst, result: Result<(), WcStatus>, env: &mut E) {
        let _ = now;
        match burst.owner {
            Owner::Nobody => (),
            Owner::Request { index, life, .. } => {
                if life == self.sq.life && self.sq.is_live(index) {
                    self.request_sent(index, burst, result, env);
                }
            }
            Owner::Response { resource, usage } => {
                if let Err(status) = result {
                    self.answer_failed(resource, usage, burst.psn(), status, env);
                }
            }
        }
    }

    /// Takes in a packet for this queue pair whose ICRC and P_Key were found right.
    pub fn on_packet(&mut self, now: Instant, pkt: &Parsed, env: &mut E) -> Verdict {
        let Some(info) = pkt.headers.bth.opcode.info() else {
            self.drop_packet(Counter::DropService, pkt, env);
            return Verdict::Done;
        };
        let wanted = match self.ty {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud | QpType::Gsi => Service::Ud,
        };
        if info.service == Service::Cnp {
            env.count(Counter::RxCnps);
            return Verdict::Done;
        }
        if info.service != wanted {
            self.drop_packet(Counter::DropService, pkt, env);
            return Verdict::Done;
        }
        let permitted = self.state.permits();
        match info.role {
            Role::Request if permitted.receive => self.on_request(pkt, info, env),
            Role::Response if permitted.send => self.on_response(now, pkt, info, env),
            _ => {
                self.drop_packet(Counter::DropState, pkt, env);
                Verdict::Done
            }
        }
    }

    /// Drops a packet, for the reason that the counter has.
    pub(crate) fn drop_packet(&self, why: Counter, pkt: &Parsed, env: &mut E) {
        env.count(why);
        env.trace(Trace::Drop {
            why,
            psn: pkt.headers.bth.psn,
        });
    }

    /// When [`Self::on_deadline`] is to be called next. Earlier calls do no harm.
    pub fn deadline(&self) -> Option<Instant> {
        self.timer().map(|(at, _)| at)
    }

    /// The next deadline, and what it is for.
    fn timer(&self) -> Option<(Instant, Timer)> {
        let requester = match self.req.rnr_until {
            Some(until) => Some((until, Timer::Rnr)),
            None => self.comp.deadline.map(|at| (at, Timer::Ack)),
        };
        let probe = match self.req.probe {
            Probe::At(at) => Some((at, Timer::Probe)),
            _ => None,
        };
        let watch = self.resp.watch.map(|w| (w.at, Timer::Receives));
        let ask = self.req.asking.at.map(|at| (at, Timer::Ask));
        [requester, probe, watch, ask]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// Tells that time has passed.
    pub fn on_deadline(&mut self, now: Instant, env: &mut E) {
        if let Some(until) = self.req.rnr_until {
            if now >= until {
                self.req.rnr_until = None;
                // It starts anew with the retransmission.
                self.comp.deadline = None;
                env.count(Counter::RnrTimeouts);
            }
        } else if self.comp.deadline.is_some_and(|d| now >= d) {
            self.on_ack_timeout(env);
        }
        if matches!(self.req.probe, Probe::At(t) if now >= t) {
            self.req.probe = Probe::Due;
        }
        if self.req.asking.at.is_some_and(|at| now >= at) {
            self.ask();
        }
        self.on_watch(now, env);
    }

    /// Flushes the receives that were posted in ERR.
    pub fn flush_recv(&mut self, env: &mut E) {
        if self.state == QpState::Err {
            self.flush_receives(env);
        }
    }

    /// The queue pair at a glance.
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            next_psn: self.req.pos,
            sent_psn: self.req.edge,
            unacked_psn: self.comp.una,
            expected_psn: self.resp.expected,
            msn: self.resp.msn,
            ssn: self.req.ssn,
            credit_limit: self.req.credit_limit(),
            retries_left: self.comp.retries_left,
            rnr_retries_left: self.comp.rnr_left,
            outstanding_reads: self.req.outstanding_reads,
            pending_answers: self.pending_answers(),
            send_queue_used: self.sq.used(),
            window: self.req.allowed(),
            in_gap: self.resp.in_gap(),
            sq_draining: self.state == QpState::Sqd && !self.req.drained,
            timer: self.timer(),
        }
    }

    /// The part of the base header that all packets of this queue pair have in common.
    pub(crate) fn bth(&self, psn: Psn) -> Bth {
        Bth {
            // No alternate path is ever armed.
            migreq: true,
            pkey: self.set.pkey,
            dest_qp: self.set.dest_qpn,
            psn,
            ..Bth::default()
        }
    }

    /// A burst of one packet without payload.
    pub(crate) fn single(&self, headers: Headers, owner: Owner) -> Burst {
        Burst {
            source: Source::None,
            offset: 0,
            len: 0,
            count: 1,
            mtu: self.set.mtu.bytes(),
            plan: Plan::Single(headers),
            owner,
        }
    }

    /// Changes the state and notes it.
    pub(crate) fn enter(&mut self, to: QpState, env: &mut E) {
        if self.state != to {
            env.trace(Trace::State {
                from: self.state,
                to,
            });
            self.state = to;
        }
    }

    pub(crate) fn raise(&mut self, e: AsyncEvent, env: &mut E) {
        env.trace(Trace::Event(e));
        env.event(e);
    }
}

/// What a work request to a queue pair of this type must be, whatever memory it names.
pub fn check_wqe(ty: QpType, wqe: &SendWqe) -> Result<(), PostError> {
    use SendOp as O;
    let known = match ty {
        QpType::Rc => true,
        QpType::Uc => matches!(
            wqe.op,
            O::Send | O::SendImm(_) | O::Write | O::WriteImm(_) | O::Local
        ),
        QpType::Ud | QpType::Gsi => matches!(wqe.op, O::Send | O::SendImm(_) | O::Local),
    };
    if !known {
        return Err(PostError::Opcode);
    }
    if ty.is_datagram() && wqe.op != O::Local && wqe.ud.is_none() {
        return Err(PostError::Destination);
    }
    let fits = match wqe.op {
        O::CmpSwap { .. } | O::FetchAdd { .. } | O::AtomicWrite => wqe.length == 8,
        O::Flush(kind) if kind.rights() == Access::NONE => return Err(PostError::Opcode),
        O::Flush(_) => true,
        _ => wqe.length <= MAX_MSG_LEN,
    };
    if !fits {
        return Err(PostError::Length);
    }
    Ok(())
}
