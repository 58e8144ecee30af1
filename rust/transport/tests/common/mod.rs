// SPDX-License-Identifier: GPL-2.0

//! Two hosts with a model memory, and a link between them that loses, repeats, reorders and delays by a seed.

#![allow(dead_code, missing_docs, unreachable_pub)]
#![allow(
    clippy::wrong_self_convention,
    clippy::type_complexity,
    clippy::should_implement_trait
)]

use std::cmp::Reverse;
use std::collections::{
    BTreeMap,
    BinaryHeap,
    VecDeque, //
};

use rxo_transport::psn::Psn;
use rxo_transport::time::{
    Duration,
    Instant, //
};
use rxo_transport::wire::{
    Headers,
    Parsed,
    MAX_HEADER_LEN, //
};
use rxo_transport::*;

/// A small generator of pseudo-random numbers (xorshift), which first uses up given bytes, if there are any.
#[derive(Clone)]
pub struct Rng {
    state: u64,
    bytes: VecDeque<u8>,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            bytes: VecDeque::new(),
        }
    }

    /// Each choice takes as few of the bytes as it can, so that a change of one changes little else.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.iter().copied().collect(),
            ..Self::new(1)
        }
    }

    fn take(&mut self, n: usize) -> Option<u64> {
        (self.bytes.len() >= n).then(|| {
            self.bytes
                .drain(..n)
                .fold(0, |v, b| (v << 8) | u64::from(b))
        })
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn next(&mut self) -> u64 {
        self.take(8).unwrap_or_else(|| self.random())
    }

    pub fn below(&mut self, n: u64) -> u64 {
        let n = n.max(1);
        let digits = (64 - (n - 1).leading_zeros()).div_ceil(8) as usize;
        match self.take(digits) {
            Some(v) => v % n,
            None => (self.random() >> 11) % n,
        }
    }

    /// True `n` times of 1000.
    pub fn permille(&mut self, n: u32) -> bool {
        match self.take(1) {
            Some(v) => v * 1000 < u64::from(n) * 256,
            None => self.below(1000) < u64::from(n),
        }
    }
}

/// A remote key: a range of the host's memory.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub rkey: u32,
    pub va: u64,
    pub len: u64,
    pub read: bool,
    pub write: bool,
    pub atomic: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub rkey: u32,
    pub va: u64,
    pub len: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Recv {
    pub wr_id: u64,
    pub addr: u64,
    pub capacity: u32,
    pub fault: Option<WcStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendDone {
    pub wr_id: u64,
    pub status: WcStatus,
    pub byte_len: u32,
    pub signal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvDone {
    pub wr_id: u64,
    pub c: RecvCompletion,
}

/// Everything around one queue pair.
#[derive(Default)]
pub struct Host {
    pub mem: Vec<u8>,
    pub keys: Vec<Key>,
    /// The local address of each send slot.
    pub local: Vec<u64>,
    pub recvs: VecDeque<Recv>,
    pub current: Option<Recv>,
    pub payload: Vec<u8>,
    pub send_cq: Vec<SendDone>,
    pub recv_cq: Vec<RecvDone>,
    pub events: Vec<AsyncEvent>,
    pub counts: Vec<u64>,
    pub traces: Vec<Trace>,
    /// Do not tell the number of receives.
    pub no_credits: bool,
    /// Another receive is posted whenever one is taken.
    pub reposts: bool,
    pub local_ops: Vec<u32>,
    pub local_fault: Option<WcStatus>,
    pub place_fault: Option<WcStatus>,
    pub remote_fault: Option<KeyFault>,
    /// Each access of this number finds the memory absent; 0: none does.
    pub absent_every: u32,
    /// Accesses to memory so far.
    pub accesses: u32,
    pub atomics: u32,
    pub atomic_writes: u32,
    pub flushes: Vec<(u32, Option<(u64, u32)>, FlushKind)>,
    pub opened: u32,
}

/// Where memory begins.
pub const BASE: u64 = 0x10_0000;

impl Host {
    pub fn new(mem: usize) -> Self {
        Self {
            mem: vec![0; mem],
            counts: vec![0; Counter::ALL.len()],
            ..Self::default()
        }
    }

    pub fn bytes(&self, va: u64, len: u32) -> &[u8] {
        let at = (va - BASE) as usize;
        &self.mem[at..at + len as usize]
    }

    pub fn bytes_mut(&mut self, va: u64, len: u32) -> &mut [u8] {
        let at = (va - BASE) as usize;
        &mut self.mem[at..at + len as usize]
    }

    pub fn counted(&self, c: Counter) -> u64 {
        self.counts[c as usize]
    }

    fn key(&self, rkey: u32) -> Option<&Key> {
        self.keys.iter().find(|k| k.rkey == rkey)
    }

    fn copy_payload(&mut self, va: u64, len: u32) {
        assert_eq!(self.payload.len(), len as usize);
        let payload = core::mem::take(&mut self.payload);
        self.bytes_mut(va, len).copy_from_slice(&payload);
        self.payload = payload;
    }

    /// An access to memory, which may be absent.
    fn is_absent(&mut self) -> bool {
        self.accesses = self.accesses.wrapping_add(1);
        self.absent_every != 0 && self.accesses.is_multiple_of(self.absent_every)
    }

    /// Whether a region may still be used.
    pub fn alive(&self, r: &Region) -> bool {
        self.key(r.rkey).is_some()
    }
}

impl Env for Host {
    type Region = Region;
    type SendSlots = Vec<SendSlot>;
    type Resources = Vec<Resource<Region>>;

    fn take_recv(&mut self) -> Option<Result<RecvInfo, WcStatus>> {
        assert!(self.current.is_none(), "two current receives");
        self.current = self.recvs.pop_front();
        if let (true, Some(r)) = (self.reposts, self.current) {
            self.recvs.push_back(r);
        }
        self.current.map(|r| match r.fault {
            Some(f) => Err(f),
            None => Ok(RecvInfo {
                capacity: r.capacity,
            }),
        })
    }

    fn posted_recvs(&self) -> Option<u32> {
        (!self.no_credits).then_some(self.recvs.len() as u32)
    }

    fn place_recv(&mut self, offset: u32, len: u32) -> Result<(), PlaceFault> {
        let r = self.current.expect("no current receive");
        assert!(offset + len <= r.capacity);
        if let Some(f) = self.place_fault {
            return Err(f.into());
        }
        if self.is_absent() {
            return Err(PlaceFault::Absent);
        }
        self.copy_payload(r.addr + u64::from(offset), len);
        Ok(())
    }

    fn complete_recv(&mut self, c: RecvCompletion) {
        let r = self.current.take().expect("no current receive");
        self.recv_cq.push(RecvDone { wr_id: r.wr_id, c });
    }

    fn open_remote(
        &mut self,
        rkey: u32,
        va: u64,
        len: u32,
        access: RemoteAccess,
    ) -> Result<Region, KeyFault> {
        assert!(len > 0);
        self.opened += 1;
        let k = self.key(rkey).ok_or(KeyFault::Access)?;
        let right = match access {
            RemoteAccess::Read => k.read,
            RemoteAccess::Write => k.write,
            RemoteAccess::Atomic => k.atomic,
        };
        let inside = va
            .checked_sub(k.va)
            .is_some_and(|o| o <= k.len && u64::from(len) <= k.len - o);
        if right && inside {
            Ok(Region { rkey, va, len })
        } else {
            Err(KeyFault::Access)
        }
    }

    fn place_remote(&mut self, region: &Region, offset: u32, len: u32) -> Result<(), KeyFault> {
        assert!(offset + len <= region.len);
        if let Some(f) = self.remote_fault {
            return Err(f);
        }
        if !self.alive(region) {
            return Err(KeyFault::Access);
        }
        if self.is_absent() {
            return Err(KeyFault::Absent);
        }
        self.copy_payload(region.va + u64::from(offset), len);
        Ok(())
    }

    fn atomic(&mut self, region: &Region, op: AtomicOp) -> Result<u64, KeyFault> {
        if let Some(f) = self.remote_fault {
            return Err(f);
        }
        assert_eq!(region.len, 8);
        if self.is_absent() {
            return Err(KeyFault::Absent);
        }
        self.atomics += 1;
        let b = self.bytes_mut(region.va, 8);
        let old = u64::from_le_bytes(b.try_into().unwrap());
        let new = match op {
            AtomicOp::CmpSwap { compare, swap } if old == compare => swap,
            AtomicOp::CmpSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        };
        b.copy_from_slice(&new.to_le_bytes());
        Ok(old)
    }

    fn atomic_write(&mut self, region: &Region) -> Result<(), KeyFault> {
        assert_eq!((region.len, region.va % 8), (8, 0));
        self.place_remote(region, 0, 8)?;
        self.atomic_writes += 1;
        Ok(())
    }

    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        kind: FlushKind,
    ) -> Result<(), KeyFault> {
        if let Some(f) = self.remote_fault {
            return Err(f);
        }
        match range {
            Some((va, len)) => {
                self.open_remote(rkey, va, len, RemoteAccess::Read)?;
            }
            None if self.key(rkey).is_none() => return Err(KeyFault::Access),
            None => (),
        }
        self.flushes.push((rkey, range, kind));
        Ok(())
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), KeyFault> {
        let n = self.keys.len();
        self.keys.retain(|k| k.rkey != rkey);
        if self.keys.len() == n {
            Err(KeyFault::Access)
        } else {
            Ok(())
        }
    }

    fn place_send(&mut self, slot: u32, offset: u32, len: u32) -> Result<(), PlaceFault> {
        if let Some(f) = self.place_fault {
            return Err(f.into());
        }
        if self.is_absent() {
            return Err(PlaceFault::Absent);
        }
        let va = self.local[slot as usize].wrapping_add(u64::from(offset));
        self.copy_payload(va, len);
        Ok(())
    }

    fn place_atomic_result(&mut self, slot: u32, original: u64) -> Result<(), PlaceFault> {
        if let Some(f) = self.place_fault {
            return Err(f.into());
        }
        if self.is_absent() {
            return Err(PlaceFault::Absent);
        }
        let va = self.local[slot as usize];
        self.bytes_mut(va, 8)
            .copy_from_slice(&original.to_le_bytes());
        Ok(())
    }

    fn local_op(&mut self, slot: u32) -> Result<(), WcStatus> {
        self.local_ops.push(slot);
        self.local_fault.map_or(Ok(()), Err)
    }

    fn complete_send(
        &mut self,
        _slot: u32,
        wqe: &SendWqe,
        status: WcStatus,
        byte_len: u32,
        signal: bool,
    ) {
        self.send_cq.push(SendDone {
            wr_id: wqe.wr_id,
            status,
            byte_len,
            signal,
        });
    }

    fn event(&mut self, e: AsyncEvent) {
        self.events.push(e);
    }

    fn count_n(&mut self, c: Counter, n: u32) {
        self.counts[c as usize] += u64::from(n);
    }

    fn trace(&mut self, t: Trace) {
        self.traces.push(t);
    }
}

/// A queue pair and its surroundings: in boxes, as a kernel's stack is small.
pub struct Node {
    pub qp: Box<Qp<Host>>,
    pub host: Box<Host>,
}

/// What to make of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub ty: QpType,
    pub mtu: Mtu,
    pub psn: u32,
    pub slots: usize,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub window: u32,
    pub sig_all: bool,
    pub srq: bool,
    pub access: Access,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ty: QpType::Rc,
            mtu: Mtu::Mtu256,
            psn: 0,
            slots: 64,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 4,
            window: DEFAULT_WINDOW,
            sig_all: false,
            srq: false,
            access: Access::from_bits(0x30e),
        }
    }
}

pub const QPN: [u32; 2] = [0x11, 0x22];
pub const T0: Instant = Instant::from_nanos(1_000_000);

impl Node {
    pub fn new(side: usize, c: &Config, mem: usize) -> Self {
        let mut n = Self {
            qp: Box::new(Qp::new(
                c.ty,
                QPN[side],
                vec![SendSlot::default(); c.slots],
                (0..16).map(|_| Resource::default()).collect(),
                c.sig_all,
                c.srq,
            )),
            host: Box::new(Host::new(mem)),
        };
        n.host.local = vec![BASE; c.slots];
        n.host.no_credits = c.srq;
        n.qp.set_window(c.window);
        n
    }

    pub fn modify(&mut self, a: QpAttr) -> Result<(), ModifyError> {
        self.qp.modify(T0, &a, &mut self.host)
    }

    pub fn to_init(&mut self, c: &Config) {
        let datagram = c.ty.is_datagram();
        let a = QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: (!datagram).then_some(c.access),
            qkey: datagram.then_some(0x1234),
            ..QpAttr::default()
        };
        self.modify(a).unwrap();
    }

    pub fn to_rtr(&mut self, c: &Config, peer: u32, psn: u32) {
        let (datagram, rc) = (c.ty.is_datagram(), c.ty == QpType::Rc);
        let a = QpAttr {
            state: Some(QpState::Rtr),
            path: !datagram,
            path_mtu: (!datagram).then_some(c.mtu),
            dest_qpn: (!datagram).then_some(peer),
            rq_psn: (!datagram).then_some(Psn::new(psn)),
            max_dest_rd_atomic: rc.then_some(c.max_rd_atomic),
            min_rnr_timer: rc.then_some(c.min_rnr_timer),
            ..QpAttr::default()
        };
        self.modify(a).unwrap();
        self.qp.set_port_mtu(c.mtu);
    }

    pub fn to_rts(&mut self, c: &Config, psn: u32) {
        let rc = c.ty == QpType::Rc;
        let a = QpAttr {
            state: Some(QpState::Rts),
            timeout: rc.then_some(c.timeout),
            retry_cnt: rc.then_some(c.retry_cnt),
            rnr_retry: rc.then_some(c.rnr_retry),
            max_rd_atomic: rc.then_some(c.max_rd_atomic),
            sq_psn: Some(Psn::new(psn)),
            ..QpAttr::default()
        };
        self.modify(a).unwrap();
    }

    pub fn post(&mut self, now: Instant, local: u64, wqe: SendWqe) -> Result<u32, PostError> {
        let slot = self.qp.post_send(now, wqe, &mut self.host)?;
        self.host.local[slot as usize] = local;
        Ok(slot)
    }

    /// The bytes of a packet of a burst: headers, payload, padding.
    pub fn build(&self, burst: &Burst, i: u32) -> Vec<u8> {
        let p = burst.packet(i);
        if i > 0 {
            let mut stepped = burst.packet(i - 1);
            burst.step(&mut stepped, i);
            assert_eq!(stepped, p);
        }
        let mut out = vec![0; MAX_HEADER_LEN];
        let n = p.headers.emit(&mut out);
        out.truncate(n);
        if p.len > 0 {
            let va = match burst.source {
                Source::None => panic!("payload without source"),
                Source::Send { slot } => self.host.local[slot as usize],
                Source::Read { resource } => self.qp.region(resource).expect("region").va,
            };
            out.extend_from_slice(self.host.bytes(va + u64::from(p.offset), p.len));
        }
        out.resize(out.len() + usize::from(p.pad), 0);
        out
    }

    /// Whether the payload of a burst can be gathered.
    pub fn gather(&self, burst: &Burst) -> Result<(), WcStatus> {
        match burst.source {
            Source::Read { resource } if !self.host.alive(self.qp.region(resource).unwrap()) => {
                Err(WcStatus::LocProtErr)
            }
            _ => Ok(()),
        }
    }

    /// Takes in the bytes of a packet: again, until the memory is there that it needs.
    pub fn deliver(&mut self, now: Instant, bytes: &[u8]) {
        let p = Headers::parse(bytes, bytes.len()).expect("malformed");
        self.host.payload = bytes[p.header_len..p.header_len + p.payload_len].to_vec();
        while self.qp.on_packet(now, &p, &mut self.host) == Verdict::Absent {
            assert_ne!(self.host.absent_every, 0);
        }
    }

    /// Everything that is to be sent now.
    pub fn transmit(&mut self, now: Instant, budget: u32) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(b) = self.qp.poll_transmit(now, budget, &mut self.host) {
            assert!(b.count >= 1 && b.count <= budget);
            let result = self.gather(&b);
            if result.is_ok() {
                out.extend((0..b.count).map(|i| self.build(&b, i)));
            }
            self.qp.sent(now, &b, result, &mut self.host);
        }
        // What sends nothing says why.
        assert_ne!(self.qp.waits_for(now), Idle::Active);
        out
    }

    pub fn post_recv(&mut self, wr_id: u64, addr: u64, capacity: u32) {
        self.host.recvs.push_back(Recv {
            wr_id,
            addr,
            capacity,
            fault: None,
        });
    }
}

/// What the link does to packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Of 1000.
    pub loss: u32,
    pub duplicate: u32,
    pub reorder: u32,
    /// How often the network takes nothing of what is to be sent, and gets all of it anew.
    pub refuse: u32,
    /// Nanoseconds.
    pub delay: u64,
    pub jitter: u64,
}

/// What happened on the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    pub delivered: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub timers: u64,
}

impl Events {
    pub fn total(&self) -> u64 {
        self.delivered + self.lost + self.duplicated + self.reordered + self.timers
    }

    pub fn add(&mut self, e: &Self) {
        self.delivered += e.delivered;
        self.lost += e.lost;
        self.duplicated += e.duplicated;
        self.reordered += e.reordered;
        self.timers += e.timers;
    }
}

/// Whether these are requests of a reliable service, nothing else.
fn can_be_retracted(packets: &[Vec<u8>]) -> bool {
    let request = |bytes: &Vec<u8>| matches!(bytes[0], 0x00..=0x0c | 0x13..=0x1f);
    !packets.is_empty() && packets.iter().all(request)
}

/// A hook that sees each packet sent: side, running number on that side, bytes. False: it is lost.
pub type Filter = Box<dyn FnMut(usize, usize, &[u8]) -> bool>;

/// Two queue pairs and the link between them.
pub struct Pair {
    pub nodes: [Node; 2],
    pub now: Instant,
    pub rng: Rng,
    pub weather: Weather,
    pub filter: Option<Filter>,
    pub budget: u32,
    pub sent: [usize; 2],
    pub log: Vec<(usize, u8, u32)>,
    pub events: Events,
    /// How often a packet was lost, by side, opcode and PSN.
    lost: BTreeMap<(usize, u8, u32), u32>,
    /// How many responses of a side were lost since one was not.
    in_a_row: [u32; 2],
    seq: u64,
    air: BinaryHeap<Reverse<(u64, u64, usize, Vec<u8>)>>,
}

impl Pair {
    pub fn new(c: &Config, mem: usize, seed: u64) -> Self {
        let mut nodes = [Node::new(0, c, mem), Node::new(1, c, mem)];
        for (side, n) in nodes.iter_mut().enumerate() {
            n.to_init(c);
            n.to_rtr(c, QPN[1 - side], c.psn);
            n.to_rts(c, c.psn);
        }
        Self {
            nodes,
            now: T0,
            rng: Rng::new(seed),
            weather: Weather {
                delay: 1000,
                ..Weather::default()
            },
            filter: None,
            budget: 16,
            sent: [0; 2],
            log: Vec::new(),
            events: Events::default(),
            lost: BTreeMap::new(),
            in_a_row: [0; 2],
            seq: 0,
            air: BinaryHeap::new(),
        }
    }

    pub fn post(&mut self, side: usize, local: u64, wqe: SendWqe) -> Result<u32, PostError> {
        self.nodes[side].post(self.now, local, wqe)
    }

    /// Sends what both sides have to send.
    pub fn transmit(&mut self) {
        for side in 0..2 {
            let node = &mut self.nodes[side];
            let mark = node.qp.mark();
            let mut packets = node.transmit(self.now, self.budget);
            while can_be_retracted(&packets) && self.rng.permille(self.weather.refuse) {
                node.qp.retract(mark);
                packets = node.transmit(self.now, self.budget);
            }
            for bytes in packets {
                self.launch(side, bytes);
            }
        }
    }

    fn launch(&mut self, side: usize, bytes: Vec<u8>) {
        let n = self.sent[side];
        self.sent[side] += 1;
        let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
        self.log.push((side, bytes[0], psn));
        if let Some(f) = &mut self.filter {
            if !f(side, n, &bytes) {
                return;
            }
        }
        let w = self.weather;
        // Never so much that a sender may rightly give up: no packet more than twice, no three responses in a row.
        let lost = self.lost.entry((side, bytes[0], psn)).or_insert(0);
        let response = (0x0d..=0x12).contains(&bytes[0]);
        if *lost < 2 && !(response && self.in_a_row[side] >= 2) && self.rng.permille(w.loss) {
            *lost += 1;
            self.events.lost += 1;
            self.in_a_row[side] += u32::from(response);
            return;
        }
        if response {
            self.in_a_row[side] = 0;
        }
        let copies = 1 + usize::from(self.rng.permille(w.duplicate));
        self.events.duplicated += copies as u64 - 1;
        for _ in 0..copies {
            let mut at = self.now.as_nanos() + w.delay + self.rng.below(w.jitter + 1);
            if self.rng.permille(w.reorder) {
                at += w.delay * (1 + self.rng.below(4));
                self.events.reordered += 1;
            }
            self.seq += 1;
            self.air
                .push(Reverse((at, self.seq, 1 - side, bytes.clone())));
        }
    }

    /// One step of time. False if nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.transmit();
        let flight = self.air.peek().map(|Reverse(p)| p.0);
        let timers = self
            .nodes
            .iter()
            .filter_map(|n| n.qp.deadline())
            .map(Instant::as_nanos)
            .min();
        let Some(next) = flight.into_iter().chain(timers).min() else {
            return false;
        };
        self.now = self.now.max(Instant::from_nanos(next));
        if flight.is_some_and(|t| t <= self.now.as_nanos()) {
            // A batch, as a driver would see it.
            while self
                .air
                .peek()
                .is_some_and(|Reverse(p)| p.0 <= self.now.as_nanos())
            {
                let Reverse((_, _, side, bytes)) = self.air.pop().unwrap();
                self.nodes[side].deliver(self.now, &bytes);
                self.events.delivered += 1;
            }
        } else {
            self.events.timers += 1;
            for n in &mut self.nodes {
                n.qp.on_deadline(self.now, &mut n.host);
            }
        }
        true
    }

    /// Runs until nothing happens any more.
    pub fn run(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!(
            "no end: {:?} {:?}",
            self.nodes[0].qp.status(),
            self.nodes[1].qp.status()
        );
    }

    /// Runs for a while.
    pub fn run_for(&mut self, d: Duration) {
        let end = self.now.saturating_add(d);
        loop {
            self.transmit();
            let flight = self.air.peek().map(|Reverse(p)| p.0);
            let timers = self
                .nodes
                .iter()
                .filter_map(|n| n.qp.deadline())
                .map(Instant::as_nanos)
                .min();
            match flight.into_iter().chain(timers).min() {
                Some(t) if t <= end.as_nanos() => {
                    self.step();
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// How many packets of an opcode a side sent.
    pub fn count_sent(&self, side: usize, opcode: u8) -> usize {
        self.log
            .iter()
            .filter(|(s, o, _)| *s == side && *o == opcode)
            .count()
    }
}

/// A work request.
pub fn wqe(wr_id: u64, op: SendOp, length: u32, remote_addr: u64, rkey: u32) -> SendWqe {
    SendWqe {
        wr_id,
        op,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        length,
        remote_addr,
        rkey,
        ud: None,
    }
}

/// The parse of bytes.
pub fn parse(bytes: &[u8]) -> Parsed {
    Headers::parse(bytes, bytes.len()).unwrap()
}

/// A key with all rights over all of a host's memory.
pub fn full_key(mem: usize) -> Key {
    Key {
        rkey: 0x77,
        va: BASE,
        len: mem as u64,
        read: true,
        write: true,
        atomic: true,
    }
}
