// SPDX-License-Identifier: GPL-2.0

//! The responder: what request packets mean, and what they are answered with.
//!
//! Answers leave in the order of their PSNs. READ responses and answers to atomics wait in the resources; what comes after
//! them, an ACK for everything up to then or a NAK, is one value ([`Reply`]): a later ACK says all that an earlier one would
//! have said, and the same goes for the response to a READ.

use crate::burst::{
    AckReq,
    Burst,
    Family,
    Owner,
    Plan,
    Source,
    Tail, //
};
use crate::credit;
use crate::env::{
    AsyncEvent,
    AtomicOp,
    Counter,
    Env,
    KeyFault,
    NakKind,
    RecvCompletion,
    RecvInfo,
    RecvOp,
    RemoteAccess,
    Trace, //
};
use crate::opcode::{
    Info,
    Op,
    Opcode,
    Position, //
};
use crate::psn::{
    Msn,
    Psn, //
};
use crate::qp::Qp;
use crate::verbs::{
    Access,
    QpState,
    QpType,
    WcStatus,
    MAX_MSG_LEN, //
};
use crate::wire::{
    Aeth,
    AtomicAckEth,
    Headers,
    NakCode,
    Parsed,
    Reth,
    Syndrome,
    GRH_LEN, //
};

/// How many requests one ACK may cover before [`Qp::answers_due`] asks for it.
pub const ACK_BOUND: u32 = 64;

/// The serial number of a PSN counts full turns too. It begins here, so that the PSNs before the first have one as well.
const FIRST_TURN: u64 = 1 << 24;

/// What a resource remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Memory {
    /// Nothing.
    #[default]
    Nothing,
    /// A READ.
    Read(Reth),
    /// An atomic, by the value that its target had.
    Atomic {
        /// That value.
        original: u64,
    },
}

/// The part of a response that is being sent: packets of the whole response, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    /// The first that was asked for.
    from: u32,
    /// The next to send.
    at: u32,
    /// Bytes of the whole response up to the end of what was asked for.
    end: u32,
}

/// What is remembered of a READ or an atomic of the peer, so that it can be answered, also again.
#[derive(Debug)]
pub struct Resource<R> {
    memory: Memory,
    /// What the READ reads from; [`None`] if it is empty.
    pub(crate) region: Option<R>,
    /// The serial number of the first PSN of the response.
    serial: u64,
    /// PSNs of the response.
    packets: u32,
    /// The message count to answer with.
    msn: Msn,
    /// How often the resource was used.
    usage: u32,
    /// What is still to be sent.
    answer: Option<Answer>,
    /// The answer under way is the first.
    fresh: bool,
}

impl<R> Default for Resource<R> {
    fn default() -> Self {
        Self {
            memory: Memory::Nothing,
            region: None,
            serial: 0,
            packets: 0,
            msn: Msn::new(0),
            usage: 0,
            answer: None,
            fresh: false,
        }
    }
}

impl<R> Resource<R> {
    /// Whether the PSN of this serial number is one of the response.
    fn holds(&self, serial: u64) -> bool {
        let past = serial.checked_sub(self.serial);
        self.memory != Memory::Nothing && past.is_some_and(|n| n < u64::from(self.packets))
    }

    /// The PSN of packet `at` of the response.
    fn psn(&self, at: u32) -> Psn {
        // CAST: the low bits are the PSN.
        Psn::new(self.serial as u32).add(at)
    }
}

/// The inbound message that has begun and not ended.
enum Inbound<R> {
    /// None.
    Idle,
    /// A SEND.
    Send {
        /// Bytes so far.
        received: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// Where to; [`None`] if it is empty.
        region: Option<R>,
        /// Bytes so far.
        received: u32,
        /// Bytes of the whole.
        total: u32,
    },
}

/// What is to be sent after all READ responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// An ACK for all SENDs and WRITEs carried out.
    Ack,
    /// A NAK for the packet that is expected, which came too early or is missing.
    Nak {
        /// RNR or PSN sequence error.
        syndrome: Syndrome,
    },
    /// The last packet of this queue pair, which is in ERR.
    Fatal {
        /// What could not be carried out.
        psn: Psn,
        /// Why.
        code: NakCode,
    },
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The request is invalid.
    Invalid,
    /// It is longer than the receive.
    TooLong,
    /// The key does not serve.
    Key(KeyFault),
    /// The receive does not serve: the status that it completes with.
    Receive(WcStatus),
}

impl From<KeyFault> for Refusal {
    fn from(f: KeyFault) -> Self {
        Self::Key(f)
    }
}

/// What a refusal means on a reliable connection (9.9.3).
struct Consequence {
    code: NakCode,
    /// For the receive, if one was taken.
    status: WcStatus,
    /// Else (C9-222).
    event: AsyncEvent,
    counter: Counter,
}

impl Refusal {
    fn consequence(self) -> Consequence {
        let (code, status, event, counter) = match self {
            Self::NotReady | Self::Invalid => (
                NakCode::InvalidRequest,
                WcStatus::RemInvReqErr,
                AsyncEvent::QpReqErr,
                Counter::InvalidRequests,
            ),
            Self::TooLong => (
                NakCode::InvalidRequest,
                WcStatus::LocLenErr,
                AsyncEvent::QpReqErr,
                Counter::ReceiveTooShort,
            ),
            Self::Key(KeyFault::Access) => (
                NakCode::RemoteAccess,
                WcStatus::RemAccessErr,
                AsyncEvent::QpAccessErr,
                Counter::AccessErrors,
            ),
            Self::Key(KeyFault::Operational) => (
                NakCode::RemoteOperational,
                WcStatus::RemOpErr,
                AsyncEvent::QpFatal,
                Counter::OperationalErrors,
            ),
            Self::Receive(status) => (
                NakCode::RemoteOperational,
                status,
                AsyncEvent::QpFatal,
                Counter::OperationalErrors,
            ),
        };
        Consequence {
            code,
            status,
            event,
            counter,
        }
    }

    /// The counter where the packet is dropped without a word.
    fn drop_counter(self) -> Counter {
        match self {
            Self::NotReady => Counter::DropNoReceive,
            Self::Invalid => Counter::DropMessage,
            Self::TooLong => Counter::DropLength,
            Self::Key(_) => Counter::DropAccess,
            Self::Receive(_) => Counter::OperationalErrors,
        }
    }
}

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
    inbound: Inbound<R>,
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
    /// The first packet came.
    established: bool,
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
            established: false,
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
        if !self.is_closing() {
            self.reply = None;
        }
    }

    /// Whether a fatal NAK is still to be sent.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.reply, Some(Reply::Fatal { .. }))
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

    /// Steps over `packets` PSNs.
    fn advance(&mut self, packets: u32) {
        self.expected = self.expected.add(packets);
        self.serial = self.serial.wrapping_add(u64::from(packets));
    }

    /// An ACK is to be sent, unless something stronger is.
    fn want_ack(&mut self) {
        if self.reply.is_none() {
            self.reply = Some(Reply::Ack);
        }
    }
}

impl<E: Env> Qp<E> {
    /// Takes in a request.
    pub(crate) fn on_request(&mut self, pkt: &Parsed, info: &Info, env: &mut E) {
        match self.ty {
            QpType::Rc => self.on_reliable(pkt, info, env),
            QpType::Uc => self.on_unreliable(pkt, info, env),
            QpType::Ud | QpType::Gsi => self.on_datagram(pkt, env),
        }
    }

    /// Whether answers should leave now, although more packets are at hand: [`ACK_BOUND`] requests wait for one.
    pub fn answers_due(&self) -> bool {
        self.resp.unanswered >= ACK_BOUND
    }

    /// Raises the event of the first packet.
    fn note_established(&mut self, env: &mut E) {
        if self.state == QpState::Rtr && !self.resp.established {
            self.resp.established = true;
            self.raise(AsyncEvent::CommEst, env);
        }
    }

    fn on_reliable(&mut self, pkt: &Parsed, info: &Info, env: &mut E) {
        let psn = pkt.headers.bth.psn;
        if psn.before(self.resp.expected) {
            return self.on_duplicate(pkt, info, env);
        }
        if psn != self.resp.expected {
            return self.on_early(env);
        }
        self.resp.gap = false;
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
            Err(refusal) => self.refuse(psn, refusal, env),
        }
    }

    /// A packet came before the one that is expected: that is asked for, once.
    fn on_early(&mut self, env: &mut E) {
        if self.resp.gap {
            return env.count(Counter::DropGap);
        }
        env.count(Counter::RxOutOfSequence);
        self.resp.gap = true;
        self.resp.reply = Some(Reply::Nak {
            syndrome: Syndrome::Nak(NakCode::PsnSequence),
        });
    }

    /// A packet came again.
    fn on_duplicate(&mut self, pkt: &Parsed, info: &Info, env: &mut E) {
        env.count(Counter::RxDuplicates);
        let back = self.resp.expected.distance_from(pkt.headers.bth.psn);
        let serial = self.resp.serial.wrapping_sub(u64::from(back));
        match info.op {
            // C9-105: with the PSN of the last one, not its own.
            Op::Send | Op::Write => self.resp.want_ack(),
            Op::ReadRequest => self.replay_read(serial, pkt.headers.reth.unwrap_or_default(), env),
            Op::CmpSwap | Op::FetchAdd => self.replay_atomic(serial, env),
            _ => env.count(Counter::DropUnknownDuplicate),
        }
    }

    /// Answers a READ again, or a part of it.
    fn replay_read(&mut self, serial: u64, asked: Reth, env: &mut E) {
        let mtu = self.set.mtu.bytes();
        let found = self.resources.iter_mut().find_map(|r| {
            let Memory::Read(reth) = r.memory else {
                return None;
            };
            if !r.holds(serial) {
                return None;
            }
            // CAST: less than the number of packets.
            let from = serial.wrapping_sub(r.serial) as u32;
            let offset = from.saturating_mul(mtu);
            let same =
                reth.rkey == asked.rkey && reth.va.wrapping_add(u64::from(offset)) == asked.va;
            let inside = reth
                .len
                .checked_sub(offset)
                .is_some_and(|left| asked.len <= left);
            // C9-88: an empty one has neither key nor address.
            if (reth.len == 0 && asked.len == 0) || (same && inside && asked.len > 0) {
                let end = offset.saturating_add(asked.len);
                Some((
                    r,
                    Answer {
                        from,
                        at: from,
                        end,
                    },
                ))
            } else {
                None
            }
        });
        let Some((r, answer)) = found else {
            return env.count(Counter::DropUnknownDuplicate);
        };
        if r.answer.replace(answer).is_none() {
            self.resp.answers = self.resp.answers.saturating_add(1);
        }
        env.count(Counter::RxReplays);
    }

    /// Answers an atomic again, with what was found the first time.
    fn replay_atomic(&mut self, serial: u64, env: &mut E) {
        let found = self
            .resources
            .iter_mut()
            .find(|r| matches!(r.memory, Memory::Atomic { .. }) && r.holds(serial));
        let Some(r) = found else {
            return env.count(Counter::DropUnknownDuplicate);
        };
        let answer = Answer {
            from: 0,
            at: 0,
            end: 0,
        };
        if r.answer.replace(answer).is_none() {
            self.resp.answers = self.resp.answers.saturating_add(1);
        }
        env.count(Counter::RxReplays);
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
            _ => Err(Refusal::Invalid),
        }
    }

    /// Carries out a packet of a SEND or WRITE, and tells whether the message ended.
    fn part(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Result<bool, Refusal> {
        // CAST: at most 4096.
        let len = pkt.payload_len as u32;
        if !info.payload.permits(len, self.set.mtu.bytes()) {
            return Err(Refusal::Invalid);
        }
        match info.op {
            Op::Send => self.part_of_send(pkt, info.position, len, env)?,
            _ => self.part_of_write(pkt, info.position, len, env)?,
        }
        if info.position.ends() {
            self.resp.inbound = Inbound::Idle;
        }
        Ok(info.position.ends())
    }

    /// Makes sure that there is a current receive, and gives its capacity.
    fn need_receive(&mut self, env: &mut E) -> Result<u32, Refusal> {
        if let Some(r) = self.resp.recv {
            return Ok(r.capacity);
        }
        let taken = env.take_recv().ok_or(Refusal::NotReady)?;
        self.resp.recv = Some(taken.unwrap_or_default());
        taken.map(|r| r.capacity).map_err(Refusal::Receive)
    }

    fn part_of_send(
        &mut self,
        pkt: &Parsed,
        at: Position,
        len: u32,
        env: &mut E,
    ) -> Result<(), Refusal> {
        let received = match (&self.resp.inbound, at.begins()) {
            (Inbound::Idle, true) => 0,
            (Inbound::Send { received }, false) => *received,
            _ => return Err(Refusal::Invalid),
        };
        let capacity = self.need_receive(env)?;
        let end = received.saturating_add(len);
        if end > capacity {
            return Err(Refusal::TooLong);
        }
        if len > 0 {
            env.place_recv(received, len).map_err(Refusal::Receive)?;
        }
        self.resp.inbound = Inbound::Send { received: end };
        if at.ends() {
            let invalidated = pkt.headers.ieth.map(|h| h.0);
            if let Some(rkey) = invalidated {
                env.invalidate(rkey).map_err(|f| match f {
                    KeyFault::Access => Refusal::Invalid,
                    KeyFault::Operational => Refusal::Key(f),
                })?;
            }
            self.complete_receive(pkt, RecvOp::Recv, end, invalidated, env);
        }
        Ok(())
    }

    fn part_of_write(
        &mut self,
        pkt: &Parsed,
        at: Position,
        len: u32,
        env: &mut E,
    ) -> Result<(), Refusal> {
        let with_imm = pkt.headers.imm.is_some();
        let (received, total) = match (&self.resp.inbound, at.begins(), pkt.headers.reth) {
            (Inbound::Idle, true, Some(reth)) => (0, reth.len),
            (
                Inbound::Write {
                    received, total, ..
                },
                false,
                _,
            ) => (*received, *total),
            _ => return Err(Refusal::Invalid),
        };
        let left = total.checked_sub(received).ok_or(Refusal::Invalid)?;
        let fits = if at.ends() { left == len } else { left > len };
        if !fits || total > MAX_MSG_LEN || !self.set.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Invalid);
        }
        if with_imm {
            self.need_receive(env)?;
        }
        if let (true, Some(reth)) = (at.begins(), pkt.headers.reth) {
            let region = if total > 0 {
                Some(env.open_remote(reth.rkey, reth.va, total, RemoteAccess::Write)?)
            } else {
                None
            };
            self.resp.inbound = Inbound::Write {
                region,
                received: 0,
                total,
            };
        }
        if let Inbound::Write {
            region, received, ..
        } = &mut self.resp.inbound
        {
            if let (Some(region), true) = (region.as_ref(), len > 0) {
                env.place_remote(region, *received, len)?;
            }
            *received = received.saturating_add(len);
        }
        if with_imm && at.ends() {
            self.complete_receive(pkt, RecvOp::WriteImm, total, None, env);
        }
        Ok(())
    }

    /// Ends the current receive with success.
    fn complete_receive(
        &mut self,
        pkt: &Parsed,
        op: RecvOp,
        byte_len: u32,
        invalidated: Option<u32>,
        env: &mut E,
    ) {
        let h = &pkt.headers;
        self.resp.recv = None;
        env.count(Counter::RecvCompletions);
        env.complete_recv(RecvCompletion {
            status: WcStatus::Success,
            op,
            byte_len,
            imm: h.imm.map(|i| i.0),
            invalidated,
            src_qp: h.deth.map_or(self.set.dest_qpn, |d| d.src_qp),
            solicited: h.bth.solicited,
            grh: h.deth.is_some(),
            vendor_err: 0,
        });
    }

    /// A new READ.
    fn read(&mut self, pkt: &Parsed, env: &mut E) -> Result<(), Refusal> {
        let reth = pkt.headers.reth.ok_or(Refusal::Invalid)?;
        if reth.len > MAX_MSG_LEN || !self.set.access.contains(Access::REMOTE_READ) {
            return Err(Refusal::Invalid);
        }
        let slot = self.free_resource()?;
        let region = if reth.len > 0 {
            Some(env.open_remote(reth.rkey, reth.va, reth.len, RemoteAccess::Read)?)
        } else {
            None
        };
        let packets = self.set.mtu.packets(reth.len);
        self.remember(slot, Memory::Read(reth), region, packets, reth.len);
        Ok(())
    }

    /// A new atomic.
    fn atomic(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Result<(), Refusal> {
        let h = pkt.headers.atomic.ok_or(Refusal::Invalid)?;
        if h.va & 7 != 0 || !self.set.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Refusal::Invalid);
        }
        let slot = self.free_resource()?;
        let region = env.open_remote(h.rkey, h.va, 8, RemoteAccess::Atomic)?;
        let op = match info.op {
            Op::CmpSwap => AtomicOp::CmpSwap {
                compare: h.compare,
                swap: h.swap_add,
            },
            _ => AtomicOp::FetchAdd { add: h.swap_add },
        };
        let original = env.atomic(&region, op)?;
        self.remember(slot, Memory::Atomic { original }, None, 1, 0);
        Ok(())
    }

    /// The resource for a new READ or atomic. The peer may have no more of them outstanding than it was told, and none
    /// within another message.
    fn free_resource(&self) -> Result<u32, Refusal> {
        let slot = self.resp.next_resource;
        let busy = self
            .resources
            .get(slot as usize)
            .is_none_or(|r| r.fresh && r.answer.is_some());
        if busy
            || slot >= u32::from(self.set.max_dest_rd_atomic)
            || !matches!(self.resp.inbound, Inbound::Idle)
        {
            return Err(Refusal::Invalid);
        }
        Ok(slot)
    }

    /// Remembers a READ or an atomic, and steps over its PSNs.
    fn remember(
        &mut self,
        slot: u32,
        memory: Memory,
        region: Option<E::Region>,
        packets: u32,
        end: u32,
    ) {
        self.resp.msn = self.resp.msn.next();
        if let Some(r) = self.resources.get_mut(slot as usize) {
            if r.answer.is_none() {
                self.resp.answers = self.resp.answers.saturating_add(1);
            }
            *r = Resource {
                memory,
                region,
                serial: self.resp.serial,
                packets,
                msn: self.resp.msn,
                usage: r.usage.wrapping_add(1),
                answer: Some(Answer {
                    from: 0,
                    at: 0,
                    end,
                }),
                fresh: true,
            };
        }
        self.resp.advance(packets);
        let next = slot.saturating_add(1);
        self.resp.next_resource = if next < u32::from(self.set.max_dest_rd_atomic) {
            next
        } else {
            0
        };
        // The response says what the ACK would have said.
        if self.resp.reply == Some(Reply::Ack) {
            self.resp.reply = None;
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

    /// A READ response could not be made: a NAK takes its place.
    pub(crate) fn answer_failed(
        &mut self,
        resource: u32,
        usage: u32,
        psn: Psn,
        status: WcStatus,
        env: &mut E,
    ) {
        let current = self
            .resources
            .get(resource as usize)
            .is_some_and(|r| r.usage == usage);
        if !current || !(self.state.permits().receive || self.resp.is_closing()) {
            return;
        }
        let refusal = match status {
            WcStatus::LocProtErr | WcStatus::LocAccessErr | WcStatus::RemAccessErr => {
                Refusal::Key(KeyFault::Access)
            }
            _ => Refusal::Key(KeyFault::Operational),
        };
        for r in self.resources.iter_mut() {
            r.answer = None;
        }
        self.resp.answers = 0;
        self.refuse(psn, refusal, env);
    }

    fn on_unreliable(&mut self, pkt: &Parsed, info: &Info, env: &mut E) {
        let psn = pkt.headers.bth.psn;
        if psn != self.resp.expected {
            // 9.8.2.2: the message under way is lost, the next can be taken.
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
            Err(refusal) => self.give_up(refusal, env),
        }
    }

    /// Drops an unreliable message. The current receive stays current; only its own faults end it.
    fn give_up(&mut self, refusal: Refusal, env: &mut E) {
        self.resp.inbound = Inbound::Idle;
        env.count(refusal.drop_counter());
        if let Refusal::Receive(status) = refusal {
            self.fail_receive(status, env);
            self.enter_error(env);
        }
    }

    fn on_datagram(&mut self, pkt: &Parsed, env: &mut E) {
        let deth = pkt.headers.deth.unwrap_or_default();
        if deth.qkey != self.qkey() {
            return env.count(Counter::DropQkey);
        }
        self.note_established(env);
        match self.receive_datagram(pkt, env) {
            Ok(()) => env.count(Counter::RxRequests),
            Err(refusal) => self.give_up(refusal, env),
        }
    }

    fn receive_datagram(&mut self, pkt: &Parsed, env: &mut E) -> Result<(), Refusal> {
        // CAST: at most 4096.
        let len = pkt.payload_len as u32;
        let capacity = self.need_receive(env)?;
        let end = len.saturating_add(GRH_LEN);
        if end > capacity {
            return Err(Refusal::TooLong);
        }
        if len > 0 {
            env.place_recv(GRH_LEN, len).map_err(Refusal::Receive)?;
        }
        self.complete_receive(pkt, RecvOp::Recv, end, None, env);
        Ok(())
    }

    /// The answers that wait in resources.
    pub(crate) fn pending_answers(&self) -> u32 {
        self.resp.answers
    }

    /// Forgets the READs and atomics of the peer.
    pub(crate) fn forget_resources(&mut self) {
        for r in self.resources.iter_mut() {
            *r = Resource {
                usage: r.usage.wrapping_add(1),
                ..Resource::default()
            };
        }
        self.resp.answers = 0;
        self.resp.next_resource = 0;
    }

    /// The AETH of an ACK that counts `msn` messages.
    fn ack(&self, msn: Msn, env: &E) -> Aeth {
        let credit = if self.has_srq {
            credit::UNLIMITED
        } else {
            // The receive of the message under way counts, as that message does not count yet.
            let held = u32::from(matches!(self.resp.inbound, Inbound::Send { .. }));
            credit::encode(env.posted_recvs().map(|n| n.saturating_add(held)))
        };
        Aeth {
            syndrome: Syndrome::Ack { credit },
            msn,
        }
    }

    /// The next answers.
    pub(crate) fn poll_answers(&mut self, budget: u32, env: &mut E) -> Option<Burst> {
        if !(self.state.permits().receive || self.resp.is_closing()) {
            return None;
        }
        self.resp.unanswered = 0;
        if self.resp.answers > 0 {
            if let Some(b) = self.poll_resources(budget, env) {
                return Some(b);
            }
        }
        let reply = self.resp.reply.take()?;
        let (psn, aeth) = match reply {
            Reply::Ack => {
                env.count(Counter::TxAcks);
                (self.resp.acked_by_ack, self.ack(self.resp.msn, env))
            }
            Reply::Nak { syndrome } => {
                let (counter, kind) = match syndrome {
                    Syndrome::Rnr { timer } => (Counter::TxRnrNaks, NakKind::Rnr(timer)),
                    _ => (Counter::TxSeqNaks, NakKind::Sequence),
                };
                self.note_nak(counter, kind, self.resp.expected, env);
                let aeth = Aeth {
                    syndrome,
                    msn: self.resp.msn,
                };
                (self.resp.expected, aeth)
            }
            Reply::Fatal { psn, code } => {
                let kind = match code {
                    NakCode::RemoteAccess => NakKind::RemoteAccess,
                    NakCode::RemoteOperational => NakKind::RemoteOperational,
                    _ => NakKind::InvalidRequest,
                };
                self.note_nak(Counter::TxFatalNaks, kind, psn, env);
                self.forget_resources();
                let aeth = Aeth {
                    syndrome: Syndrome::Nak(code),
                    msn: self.resp.msn,
                };
                (psn, aeth)
            }
        };
        let mut h = Headers {
            bth: self.bth(psn),
            aeth: Some(aeth),
            ..Headers::default()
        };
        h.bth.opcode = Opcode::RC_ACKNOWLEDGE;
        Some(self.single(h, Owner::Nobody))
    }

    fn note_nak(&self, counter: Counter, kind: NakKind, psn: Psn, env: &mut E) {
        env.count(counter);
        env.trace(Trace::NakSent { kind, psn });
    }

    /// A burst of one packet without payload.
    fn single(&self, headers: Headers, owner: Owner) -> Burst {
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

    /// Packets of the oldest answer that waits in a resource.
    fn poll_resources(&mut self, budget: u32, env: &mut E) -> Option<Burst> {
        let (slot, r) = (0..u32::MAX)
            .zip(self.resources.iter())
            .filter(|(_, r)| r.answer.is_some())
            .min_by_key(|(_, r)| r.serial)?;
        let (answer, memory) = (r.answer?, r.memory);
        let aeth = self.ack(r.msn, env);
        let mtu = self.set.mtu.bytes();
        let bth = self.bth(r.psn(answer.at));
        let owner = Owner::Response {
            resource: slot,
            usage: r.usage,
        };

        let offset = answer.at.saturating_mul(mtu);
        let left = match memory {
            Memory::Read(_) => self.set.mtu.packets(answer.end.saturating_sub(offset)),
            _ => 1,
        };
        let count = left.min(budget);
        let burst = match memory {
            Memory::Atomic { original } => {
                let mut h = Headers {
                    bth,
                    aeth: Some(aeth),
                    atomic_ack: Some(AtomicAckEth(original)),
                    ..Headers::default()
                };
                h.bth.opcode = Opcode::RC_ATOMIC_ACKNOWLEDGE;
                env.count(Counter::TxAtomicAcks);
                self.single(h, Owner::Nobody)
            }
            _ => {
                env.count_n(Counter::TxReadResponses, count);
                Burst {
                    source: match r.region {
                        Some(_) => Source::Read { resource: slot },
                        None => Source::None,
                    },
                    offset,
                    len: answer
                        .end
                        .saturating_sub(offset)
                        .min(count.saturating_mul(mtu)),
                    count,
                    mtu,
                    plan: Plan::Run {
                        family: Family::ReadResponse,
                        tail: Tail::Plain,
                        at: answer.at.saturating_sub(answer.from),
                        total: answer.at.saturating_sub(answer.from).saturating_add(left),
                        bth,
                        reth: None,
                        aeth: Some(aeth),
                        ack_req: AckReq::Never,
                    },
                    owner,
                }
            }
        };
        if let Some(r) = self.resources.get_mut(slot as usize) {
            if count >= left {
                r.answer = None;
                r.fresh = false;
                self.resp.answers = self.resp.answers.saturating_sub(1);
            } else {
                r.answer = Some(Answer {
                    at: answer.at.saturating_add(count),
                    ..answer
                });
            }
        }
        Some(burst)
    }
}
