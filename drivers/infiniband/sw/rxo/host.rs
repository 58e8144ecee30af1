// SPDX-License-Identifier: GPL-2.0

//! What the transport of a queue pair asks of its surroundings: queues, memory, completions.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxBuf;
use rdma::{
    wc_flags,
    wc_network,
    wc_opcode,
    Bytes,
    QpEvent,
    QpTarget,
    Wc, //
};
use rxo_transport::{
    AsyncEvent,
    AtomicOp,
    Counter,
    Env,
    FlushKind,
    KeyFault,
    PlaceFault,
    RecvCompletion,
    RecvInfo,
    RecvOp,
    RemoteAccess,
    Resource,
    SendOp,
    SendSlot,
    SendWqe,
    Trace,
    WcStatus, //
};

use crate::{
    cq::{
        Calls,
        CompletionQueue, //
    },
    history::History,
    mr::{
        Domain,
        ListFault,
        Refusal,
        RemoteRange,
        Steady,
        User, //
    },
    near::Near,
    port::Port,
    rq::RecvQueue,
    sq::{
        Data,
        Local,
        SendQueue, //
    },
    srq::SharedQueue,
    stats::{
        Stat,
        Stats, //
    }, //
};

/// Bytes of the routing header before a datagram in its receive.
const GRH_LEN: usize = 40;

/// Where the payload of one packet or several is in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Where that of the first begins.
    from: usize,
    /// How long that of each is, but for the last.
    each: usize,
    /// How far they are apart.
    stride: usize,
}

impl Place {
    /// That of one packet.
    pub(crate) const fn one(from: usize) -> Self {
        Self {
            from,
            each: usize::MAX,
            stride: 0,
        }
    }

    /// That of packets with `each` bytes each, `stride` bytes apart.
    pub(crate) const fn many(from: usize, each: usize, stride: usize) -> Self {
        Self { from, each, stride }
    }
}

/// The packet being processed.
pub(crate) enum Packet {
    /// From the network.
    Wire {
        buf: RxBuf,
        /// Where its payload is.
        payload: Place,
    },
    /// From another queue pair of this host.
    Near(Near),
}

impl Packet {
    /// The buffer of one that came from the network.
    pub(crate) fn into_buf(self) -> Option<RxBuf> {
        match self {
            Packet::Wire { buf, .. } => Some(buf),
            Packet::Near(_) => None,
        }
    }
}

/// The surroundings of a queue pair.
pub(crate) struct Host {
    pub(crate) port: Arc<Port>,
    /// The port's counters, and those that the queue pair is bound to.
    pub(crate) stats: Stats,
    pub(crate) domain: Domain,
    /// The domain of the memory of receives.
    pub(crate) recv_domain: Domain,
    /// Who it is to memory keys.
    pub(crate) identity: u64,
    pub(crate) number: u32,
    /// Packets are datagrams: a routing header goes before each.
    pub(crate) datagrams: bool,
    pub(crate) target: QpTarget,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) sq: SendQueue,
    pub(crate) rq: RecvQueue,
    /// Set while the transport looks at a packet.
    pub(crate) packet: Option<Packet>,
    /// To be done when the queue pair's lock has been released.
    pub(crate) pending: Pending,
    /// What happened.
    pub(crate) history: History,
}

/// What waits for the end of the critical section: calls to consumers.
#[derive(Default)]
pub(crate) struct Pending {
    send_cq: Calls,
    recv_cq: Calls,
    events: u32,
    srq_limit: bool,
}

impl Pending {
    /// Returns how many completions found no room: with any, the queue pair can't go on.
    pub(crate) fn lost(&self) -> u32 {
        self.send_cq.lost().saturating_add(self.recv_cq.lost())
    }

    /// Makes the calls. No lock may be held.
    pub(crate) fn deliver(
        self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: Option<&SharedQueue>,
        target: &QpTarget,
    ) {
        send_cq.call(self.send_cq);
        recv_cq.call(self.recv_cq);
        if let (true, Some(srq)) = (self.srq_limit, srq) {
            srq.tell_limit_reached();
        }
        if self.events == 0 {
            return;
        }
        for e in EVENTS {
            if self.events & 1 << *e as u32 != 0 {
                target.event(qp_event(*e));
            }
        }
    }
}

/// Events in the order in which they are told.
const EVENTS: &[AsyncEvent] = &[
    AsyncEvent::CommEst,
    AsyncEvent::SqDrained,
    AsyncEvent::QpReqErr,
    AsyncEvent::QpAccessErr,
    AsyncEvent::QpFatal,
    AsyncEvent::LastWqeReached,
];

fn qp_event(e: AsyncEvent) -> QpEvent {
    match e {
        AsyncEvent::QpFatal => QpEvent::Fatal,
        AsyncEvent::QpReqErr => QpEvent::RequestError,
        AsyncEvent::QpAccessErr => QpEvent::AccessError,
        AsyncEvent::CommEst => QpEvent::CommEstablished,
        AsyncEvent::SqDrained => QpEvent::SqDrained,
        AsyncEvent::LastWqeReached => QpEvent::LastWqeReached,
    }
}

impl Host {
    /// Copies the data of a send slot, `offset` bytes into it.
    pub(crate) fn gather(&self, slot: u32, offset: u32, out: &mut [u8]) -> Result<(), PlaceFault> {
        match self.sq.data(slot).ok_or(WcStatus::LocQpOpErr)? {
            Data::Inline(data) => {
                let from = data
                    .get(offset as usize..)
                    .and_then(|d| d.get(..out.len()))
                    .ok_or(WcStatus::LocLenErr)?;
                out.copy_from_slice(from);
                Ok(())
            }
            Data::List(list) => self
                .port
                .regions
                .gather(&self.stats, self.domain, list, offset, out)
                .map_err(|fault| local_fault(&self.port, self.number, fault)),
        }
    }

    /// Where the data of a send slot lies from byte `offset` on, if that is one plain region.
    pub(crate) fn steady(&self, slot: u32, offset: u32) -> Option<Steady> {
        let list = self.sq.list(slot)?;
        self.port.regions.steady(self.domain, list, offset)
    }

    /// Counts packets that came to this queue pair alone, of `bytes` bytes of UDP payload.
    pub(crate) fn count_received(&self, packets: u32, bytes: usize) {
        self.stats.add(Stat::RxPackets, packets.into());
        self.stats.add(Stat::RxBytes, bytes as u64);
    }

    /// Who names keys.
    fn user(&self) -> User {
        User {
            domain: self.domain,
            identity: self.identity,
        }
    }

    /// The routing header of the current datagram: that of IPv6, or zeros and that of IPv4 (A17.4.5).
    fn place_grh(&self) -> Result<(), PlaceFault> {
        let mut grh = [0; GRH_LEN];
        if let Some(Packet::Wire { buf, .. }) = &self.packet {
            let ip = buf.ip();
            if let Some(to) = GRH_LEN
                .checked_sub(ip.len())
                .and_then(|at| grh.get_mut(at..))
            {
                to.copy_from_slice(ip);
            }
        }
        self.port
            .regions
            .scatter(
                &self.stats,
                self.recv_domain,
                self.rq.list(),
                0,
                (&grh[..]).into(),
            )
            .map_err(|fault| local_fault(&self.port, self.number, fault))
    }

    fn wc(&self, wr_id: u64, status: WcStatus, opcode: u32) -> Wc {
        Wc {
            wr_id,
            status: status as u32,
            opcode,
            vendor_err: 0,
            byte_len: 0,
            ex: 0,
            qp_num: self.number,
            qp: self.target.token(),
            src_qp: 0,
            flags: 0,
            pkey_index: 0,
            sl: 0,
            network_hdr_type: 0,
            smac: [0; 6],
        }
    }
}

/// Calls `f` with each piece of the current packet's payload and where it begins in it.
fn payload<E: Copy>(
    packet: &mut Option<Packet>,
    len: u32,
    missing: E,
    mut f: impl FnMut(u32, Bytes<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0u32;
    let mut piece = |bytes: Bytes<'_>| {
        let at = done;
        // CAST: A packet has less than 64 KiB.
        done = done.saturating_add(bytes.len() as u32);
        f(at, bytes)
    };
    let (buf, place) = match packet {
        None => return Err(missing),
        Some(Packet::Near(near)) => return near.pieces(len as usize, missing, piece),
        Some(Packet::Wire { buf, payload }) => (buf, *payload),
    };
    let (mut from, mut left) = (place.from, len as usize);
    loop {
        let n = left.min(place.each);
        let mut failed = None;
        let walked = buf.for_each_chunk(from, n, |chunk| {
            piece(chunk.into()).map_err(|e| {
                failed = Some(e);
                EIO
            })
        });
        if let (Some(e), _) | (None, Err(e)) = (failed, walked.map_err(|_| missing)) {
            return Err(e);
        }
        left = left.saturating_sub(n);
        if left == 0 {
            return Ok(());
        }
        from = from.saturating_add(place.stride);
    }
}

/// What becomes of a work request whose own list does not serve.
fn local_fault(port: &Port, number: u32, fault: ListFault) -> PlaceFault {
    port.trace_list_fault(number, fault);
    match fault.why {
        Refusal::Absent => PlaceFault::Absent,
        _ => WcStatus::LocProtErr.into(),
    }
}

/// The memory that work requests of a queue pair name.
struct Own<'a> {
    port: &'a Port,
    stats: &'a Stats,
    number: u32,
    domain: Domain,
}

impl Own<'_> {
    /// Copies the current packet's payload to the memory of a list.
    fn scatter(
        &self,
        packet: &mut Option<Packet>,
        list: &[rdma::Sge],
        offset: u32,
        len: u32,
    ) -> Result<(), PlaceFault> {
        payload(packet, len, WcStatus::LocProtErr.into(), |at, chunk| {
            self.port
                .regions
                .scatter(
                    self.stats,
                    self.domain,
                    list,
                    offset.saturating_add(at),
                    chunk,
                )
                .map_err(|fault| local_fault(self.port, self.number, fault))
        })
    }
}

fn opcode_of(op: SendOp) -> u32 {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => wc_opcode::SEND,
        // The slot knows.
        SendOp::Local => wc_opcode::SEND,
        SendOp::Write | SendOp::WriteImm(_) => wc_opcode::RDMA_WRITE,
        SendOp::Read => wc_opcode::RDMA_READ,
        SendOp::CmpSwap { .. } => wc_opcode::COMP_SWAP,
        SendOp::FetchAdd { .. } => wc_opcode::FETCH_ADD,
        SendOp::AtomicWrite => wc_opcode::ATOMIC_WRITE,
        SendOp::Flush(_) => wc_opcode::FLUSH,
    }
}

impl Env for Host {
    type Region = RemoteRange;
    type SendSlots = KVVec<SendSlot>;
    type Resources = KVVec<Resource<RemoteRange>>;

    fn take_recv(&mut self) -> Option<Result<RecvInfo, WcStatus>> {
        let taken = self.rq.take();
        self.pending.srq_limit |= self.rq.limit_reached();
        taken
    }

    fn posted_recvs(&self) -> Option<u32> {
        self.rq.len()
    }

    fn place_recv(&mut self, offset: u32, len: u32) -> Result<(), PlaceFault> {
        if self.datagrams {
            self.place_grh()?;
        }
        let own = Own {
            port: &self.port,
            stats: &self.stats,
            number: self.number,
            domain: self.recv_domain,
        };
        own.scatter(&mut self.packet, self.rq.list(), offset, len)
    }

    fn complete_recv(&mut self, c: RecvCompletion) {
        let opcode = match c.op {
            RecvOp::Recv => wc_opcode::RECV,
            RecvOp::WriteImm => wc_opcode::RECV_RDMA_WITH_IMM,
        };
        let mut wc = self.wc(self.rq.wr_id(), c.status, opcode);
        wc.byte_len = c.byte_len;
        wc.src_qp = c.src_qp;
        wc.vendor_err = c.vendor_err;
        if let Some(imm) = c.imm {
            wc.ex = imm;
            wc.flags |= wc_flags::WITH_IMM;
        }
        if let Some(rkey) = c.invalidated {
            wc.ex = rkey;
            wc.flags |= wc_flags::WITH_INVALIDATE;
        }
        if c.grh {
            wc.flags |= wc_flags::GRH;
            if let Some(Packet::Wire { buf, .. }) = &self.packet {
                wc.flags |= wc_flags::WITH_NETWORK_HDR_TYPE;
                wc.network_hdr_type = if buf.saddr().is_v4() {
                    wc_network::IPV4
                } else {
                    wc_network::IPV6
                };
                if let Some(smac) = buf.smac() {
                    wc.flags |= wc_flags::WITH_SMAC;
                    wc.smac = smac;
                }
            }
        }
        let calls = self.recv_cq.push(&wc, c.solicited);
        self.pending.recv_cq.merge(calls);
    }

    fn open_remote(
        &mut self,
        rkey: u32,
        va: u64,
        len: u32,
        access: RemoteAccess,
    ) -> Result<RemoteRange, KeyFault> {
        self.port
            .regions
            .open(&self.stats, self.user(), rkey, va, len, access)
            .map_err(|refusal| self.key_fault(rkey, refusal))
    }

    fn place_remote(
        &mut self,
        region: &RemoteRange,
        offset: u32,
        len: u32,
    ) -> Result<(), KeyFault> {
        let to = region.open()?;
        payload(&mut self.packet, len, KeyFault::Operational, |at, chunk| {
            to.write(offset.saturating_add(at), chunk)
        })
    }

    fn atomic(&mut self, region: &RemoteRange, op: AtomicOp) -> Result<u64, KeyFault> {
        region.atomic(op)
    }

    fn atomic_write(&mut self, region: &RemoteRange) -> Result<(), KeyFault> {
        let mut bytes = [0; 8];
        payload(&mut self.packet, 8, KeyFault::Operational, |at, chunk| {
            let to = bytes
                .get_mut(at as usize..)
                .and_then(|b| b.get_mut(..chunk.len()))
                .ok_or(KeyFault::Operational)?;
            chunk.copy_to(to);
            Ok(())
        })?;
        region.store(bytes)
    }

    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        kind: FlushKind,
    ) -> Result<(), KeyFault> {
        self.port
            .regions
            .flush(&self.stats, self.user(), rkey, range, kind)
            .map_err(|refusal| self.key_fault(rkey, refusal))?;
        if kind.persistent {
            return Err(KeyFault::Operational);
        }
        rdma::write_barrier();
        Ok(())
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), KeyFault> {
        self.port
            .regions
            .invalidate(&self.stats, self.user(), rkey)
            .map_err(|refusal| self.key_fault(rkey, refusal))
    }

    fn place_send(&mut self, slot: u32, offset: u32, len: u32) -> Result<(), PlaceFault> {
        match self.sq.data(slot) {
            Some(Data::List(list)) => {
                let own = Own {
                    port: &self.port,
                    stats: &self.stats,
                    number: self.number,
                    domain: self.domain,
                };
                own.scatter(&mut self.packet, list, offset, len)
            }
            _ => Err(WcStatus::LocQpOpErr.into()),
        }
    }

    fn place_atomic_result(&mut self, slot: u32, original: u64) -> Result<(), PlaceFault> {
        let Some(Data::List(list)) = self.sq.data(slot) else {
            return Err(WcStatus::LocQpOpErr.into());
        };
        self.port
            .regions
            .scatter(
                &self.stats,
                self.domain,
                list,
                0,
                (&original.to_ne_bytes()[..]).into(),
            )
            .map_err(|fault| local_fault(&self.port, self.number, fault))
    }

    fn local_op(&mut self, slot: u32) -> Result<(), WcStatus> {
        if let Some(fault) = self.sq.fault(slot) {
            return Err(fault);
        }
        let (stats, regions, user) = (&self.stats, &self.port.regions, self.user());
        match self.sq.local(slot).ok_or(WcStatus::LocQpOpErr)? {
            Local::Register(r) => r.mr.register(user.domain, r),
            Local::Invalidate(key) => regions.invalidate(stats, user, *key),
            Local::Bind(bind) => regions.bind(stats, user, bind),
        }
        .map_err(|_| {
            stats.count(Stat::MemoryOpErrors);
            WcStatus::MwBindErr
        })
    }

    fn complete_send(
        &mut self,
        slot: u32,
        wqe: &SendWqe,
        status: WcStatus,
        byte_len: u32,
        signal: bool,
    ) {
        let opcode = match wqe.op {
            SendOp::Local => self.sq.local_opcode(slot),
            op => opcode_of(op),
        };
        // Who sees the completion may post at once, and has to find room.
        self.sq.release(slot);
        if signal {
            let mut wc = self.wc(wqe.wr_id, status, opcode);
            wc.byte_len = byte_len;
            let calls = self.send_cq.push(&wc, false);
            self.pending.send_cq.merge(calls);
        }
    }

    fn event(&mut self, e: AsyncEvent) {
        self.pending.events |= 1 << e as u32;
    }

    fn count_n(&mut self, c: Counter, n: u32) {
        self.stats.transport(c, n);
    }

    fn trace(&mut self, t: Trace) {
        self.note_step(t);
    }
}
