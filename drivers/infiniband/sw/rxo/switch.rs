// SPDX-License-Identifier: GPL-2.0

//! The switch of a network namespace: from packets to queue pairs.
//!
//! UDP port 4791 is open while the namespace has a device. Queue pair numbers are unique in a
//! namespace, so a packet finds its queue pair by number alone; only QP 1, which each device has,
//! is found by the address.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use net::{
    Family,
    IpAddr,
    Namespace,
    NetNs,
    PerNet,
    Receiver,
    RxBuf,
    RxSkb,
    UdpSocket, //
};
use rxo_transport::wire::{
    Bth,
    Headers,
    Malformed,
    Parsed,
    BTH_LEN,
    ICRC_LEN,
    MAX_HEADER_LEN, //
};
use softirq::{
    new_bh_spinlock,
    BhSpinLock,
    IdTable,
    Reservation, //
};

use crate::{
    ah::address,
    crc::{
        self,
        Segments, //
    },
    host::Place,
    mcast::Groups,
    port::Port,
    qp::{
        Arrivals,
        QueuePair,
        Run, //
    },
    stats::Stat,
    way::ROCE_PORT, //
};

/// The general services interface.
const QP1: u32 = 1;
/// The number that datagrams to a multicast group go to.
const MULTICAST: u32 = 0xff_ffff;
/// Numbers of queue pairs that aren't special.
const NUMBERS: core::ops::RangeInclusive<u32> = 16..=0xff_fffe;

/// A namespace's switch.
#[pin_data]
pub(crate) struct Switch {
    #[pin]
    qps: IdTable<QueuePair>,
    #[pin]
    ports: BhSpinLock<KVec<Arc<Port>>>,
    #[pin]
    groups: Groups,
}

impl Switch {
    /// Reserves a number for a new queue pair.
    pub(crate) fn reserve(&self) -> Result<Reservation<'_, QueuePair>> {
        self.qps.reserve_cyclic(NUMBERS)
    }

    /// The queue pair of a number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<QueuePair>> {
        self.qps.get(number)
    }

    /// Tells whether an address is one of a device here.
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        let gid = crate::ah::gid(address);
        self.ports.lock().iter().any(|p| p.owns(&gid))
    }

    /// Takes a queue pair out.
    pub(crate) fn remove(&self, number: u32) {
        self.qps.remove(number);
    }

    /// The port that a packet came in by; for packets of the host to itself, the one that owns
    /// the address.
    fn port(&self, buf: &RxBuf) -> Option<Arc<Port>> {
        let ports = self.ports.lock();
        let gid = crate::ah::gid(buf.daddr());
        ports
            .iter()
            .find(|p| p.ifindex == buf.ifindex())
            .or_else(|| ports.iter().find(|p| p.owns(&gid)))
            .cloned()
    }

    /// Drops a packet that no queue pair is concerned by.
    fn refuse(&self, buf: &RxBuf, why: Stat, number: u32) {
        if let Some(port) = self.port(buf) {
            port.refuse(why, number);
        }
    }

    /// Calls a function with each queue pair. It may sleep if the caller may.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&QueuePair)) {
        self.qps.for_each(|_, qp| f(&qp));
    }

    /// Gives a datagram to all queue pairs that are attached to its group.
    fn spread(&self, buf: &RxBuf, parsed: &Parsed) {
        let Some(members) = self.groups.members(buf.ifindex(), buf.daddr()) else {
            return self.refuse(buf, Stat::RxNoQp, MULTICAST);
        };
        let attached = members.iter().filter(|m| m.is_attached());
        for (i, qp) in attached.map(|m| &m.qp).enumerate() {
            let stats = &qp.port.stats;
            if i == 0 {
                stats.count(Stat::RxPackets);
                stats.count(Stat::RxMulticast);
                stats.add(Stat::RxBytes, buf.len() as u64);
            }
            let Some(copy) = buf.share() else {
                stats.count(Stat::RxNoMemory);
                continue;
            };
            let found = (*parsed, parsed.header_len);
            QueuePair::receive(qp.as_arc_borrow(), copy, &mut Some(&found));
        }
    }

    /// Reads and parses the headers of a packet of a train; also tells where its payload begins.
    #[inline(always)]
    fn parse(buf: &mut RxBuf, index: usize) -> Result<(Parsed, usize), Stat> {
        let (from, len) = buf.segment(index);
        let len = len.checked_sub(ICRC_LEN).ok_or(Stat::RxMalformed)?;
        let at_most = len.min(MAX_HEADER_LEN);
        let parsed = if let Some(head) = buf.piece(from, at_most) {
            Headers::parse(head, len)
        } else {
            let mut head = [0; MAX_HEADER_LEN];
            let head = head.get_mut(..at_most).ok_or(Stat::RxMalformed)?;
            buf.copy_to(from, head).map_err(|_| Stat::RxMalformed)?;
            Headers::parse(head, len)
        }
        .map_err(|_: Malformed| Stat::RxMalformed)?;
        Ok((parsed, from.saturating_add(parsed.header_len)))
    }

    /// The base transport header that begins at a byte.
    fn bth(buf: &mut RxBuf, at: usize) -> Option<Bth> {
        let mut head = [0; BTH_LEN];
        buf.copy_to(at, &mut head).ok()?;
        Bth::parse(head).ok()
    }

    /// Tells whether to do without the invariant CRC: as with the checksums of the network stack, there
    /// is nothing to be found in what has been nowhere else.
    fn is_spared(buf: &RxBuf) -> bool {
        buf.is_local() && crate::module_parameters::check_local.value() == 0
    }

    /// Parses and checks a packet that came alone; the error says how to count it.
    #[inline(always)]
    fn check(buf: &mut RxBuf, spared: bool) -> Result<(Parsed, usize), Stat> {
        let found = Self::parse(buf, 0)?;
        if spared {
            return Ok(found);
        }
        let below = crc::below(buf.ip(), buf.udp());
        Self::verify(buf, 0, below)?;
        Ok(found)
    }

    /// Checks the invariant CRC of a packet of a train, where `below` is that of the headers before it.
    fn verify(buf: &mut RxBuf, index: usize, below: Option<u32>) -> Result<(), Stat> {
        let below = below.ok_or(Stat::RxMalformed)?;
        let (computed, sent) = Self::icrc(buf, index, below).ok_or(Stat::RxMalformed)?;
        if computed == sent {
            Ok(())
        } else {
            Err(Stat::RxIcrcErrors)
        }
    }

    /// The invariant CRC of a packet of a train as it should be, and as it is.
    fn icrc(buf: &mut RxBuf, index: usize, below: u32) -> Option<(u32, u32)> {
        let (from, len) = buf.segment(index);
        if let Some(bytes) = buf.piece(from, len) {
            let (bytes, sent) = bytes.split_last_chunk()?;
            let crc = crc::invariant(below, bytes)?;
            return Some((!crc, u32::from_le_bytes(*sent)));
        }
        let len = len.checked_sub(ICRC_LEN)?;
        let mut begin = [0; MAX_HEADER_LEN];
        let begin = begin.get_mut(..len.min(MAX_HEADER_LEN))?;
        buf.copy_to(from, begin).ok()?;
        let mut crc = crc::invariant(below, begin)?;
        let (at, rest) = (
            from.checked_add(begin.len())?,
            len.checked_sub(begin.len())?,
        );
        buf.for_each_chunk(at, rest, |chunk| {
            crc = crc::update(crc, chunk);
            Ok(())
        })
        .ok()?;
        let mut sent = [0; ICRC_LEN];
        buf.copy_to(at.checked_add(rest)?, &mut sent).ok()?;
        Some((!crc, u32::from_le_bytes(sent)))
    }

    /// The queue pair that a packet goes to.
    fn find(&self, buf: &RxBuf, number: u32) -> Option<Arc<QueuePair>> {
        match number {
            QP1 => self.port(buf).and_then(|p| p.gsi()),
            // It stands for members of a group, and none was addressed (10.5.2).
            MULTICAST => None,
            _ => self.qps.get(number),
        }
    }
}

/// Packets of a train that were found intact.
struct Intact {
    /// The first that was looked at.
    first: usize,
    /// A bit for each of those that follow, and for it.
    bits: u64,
    /// Where those go that the next visit is for.
    number: u32,
    /// So many of the next ones were a run that could not be taken in as one.
    one_by_one: u32,
    /// So many of those taken had headers that were none.
    malformed: u32,
    /// The one taken last.
    found: Option<(Parsed, usize)>,
}

impl Intact {
    /// Those that have a bit set, from `first` on.
    fn of(buf: &mut RxBuf, first: usize, bits: u64) -> Self {
        let mut this = Self {
            first,
            bits,
            number: 0,
            one_by_one: 0,
            malformed: 0,
            found: None,
        };
        let (from, _) = buf.segment(this.index());
        this.number = Switch::bth(buf, from).map_or(0, |bth| bth.dest_qp);
        this
    }

    /// Checks as many packets as there are bits, from `first` on.
    fn look(switch: &Switch, buf: &mut RxBuf, segments: &Segments, first: usize) -> Self {
        let mut bits = 0;
        for i in 0..u64::BITS {
            let index = first.saturating_add(i as usize);
            if index >= buf.segments() {
                break;
            }
            let (_, len) = buf.segment(index);
            match Switch::verify(buf, index, segments.below(index, len)) {
                Ok(()) => bits |= 1 << i,
                Err(why) => switch.refuse(buf, why, 0),
            }
        }
        Self::of(buf, first, bits)
    }

    /// Takes them for intact.
    fn all(buf: &mut RxBuf, first: usize) -> Self {
        let left = buf.segments().saturating_sub(first);
        let none = u64::BITS.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX));
        Self::of(buf, first, u64::MAX.checked_shr(none).unwrap_or(0))
    }

    /// The index in the train of the next packet; that of none if nothing is left.
    fn index(&self) -> usize {
        self.first
            .saturating_add(self.bits.trailing_zeros() as usize)
    }

    /// Takes the next packets away.
    fn take(&mut self, count: u32) {
        for _ in 0..count {
            self.bits &= self.bits.wrapping_sub(1);
        }
        self.one_by_one = self.one_by_one.saturating_sub(count);
    }
}

impl Arrivals for Intact {
    fn run(&mut self, buf: &mut RxBuf) -> Option<Run> {
        let next = self.bits.checked_shr(self.bits.trailing_zeros())?;
        let intact = next.trailing_ones();
        if self.one_by_one > 0 || intact < 2 {
            return None;
        }
        let index = self.index();
        let (begin, len) = buf.segment(index);
        // Most that is no run shows here, before all of the headers are read.
        let bth = Switch::bth(buf, begin)?;
        if !bth.opcode.is_middle() || bth.dest_qp != self.number {
            return None;
        }
        let (mut parsed, from) = Switch::parse(buf, index).ok()?;
        let mut count = 1;
        while count < intact {
            let (at, next_len) = buf.segment(index.saturating_add(count as usize));
            let next = Switch::bth(buf, at)?;
            if next_len != len || !bth.is_followed_by(&next, count) {
                break;
            }
            parsed.headers.bth.ack_req |= next.ack_req;
            count = count.saturating_add(1);
        }
        if count < 2 {
            return None;
        }
        // Should the queue pair not want them so, it is not asked again.
        self.one_by_one = count;
        let (each, stride) = (parsed.payload_len, buf.segment(1).0);
        parsed.payload_len = each.saturating_mul(count as usize);
        Some(Run {
            parsed,
            count,
            payload: Place::many(from, each, stride),
            wire_len: len.saturating_mul(count as usize),
        })
    }

    fn skip(&mut self, run: &Run) {
        self.take(run.count);
    }

    /// If the next packet goes to another queue pair, what is left begins with that number.
    fn next(&mut self, buf: &mut RxBuf) -> Option<&(Parsed, usize)> {
        while self.bits != 0 {
            let parsed = Switch::parse(buf, self.index());
            if let Ok((parsed, _)) = &parsed {
                if parsed.headers.bth.dest_qp != self.number {
                    self.number = parsed.headers.bth.dest_qp;
                    return None;
                }
            }
            // Whatever is found, each is looked at but once.
            self.take(1);
            match parsed {
                Ok(found) => return Some(self.found.insert(found)),
                Err(_) => self.malformed = self.malformed.saturating_add(1),
            }
        }
        None
    }
}

impl Receiver for Switch {
    fn receive(&self, skb: RxSkb<'_>) {
        let mut buf = skb.into_buf();
        // It is looked at more than once: what was checked must be what is used.
        if buf.settle().is_err() {
            return self.refuse(&buf, Stat::RxNoMemory, 0);
        }
        if buf.daddr().is_multicast() {
            self.receive_multicast(buf);
        } else if buf.segments() > 1 {
            self.receive_train(buf);
        } else {
            self.receive_one(buf);
        }
    }
}

impl Switch {
    /// Takes a packet.
    fn receive_one(&self, mut buf: RxBuf) {
        let spared = Self::is_spared(&buf);
        let found = match Self::check(&mut buf, spared) {
            Ok(found) => found,
            Err(why) => return self.refuse(&buf, why, 0),
        };
        let number = found.0.headers.bth.dest_qp;
        match self.find(&buf, number) {
            Some(qp) => {
                if spared {
                    qp.port.stats.count(Stat::RxIcrcSkipped);
                }
                QueuePair::receive(qp.as_arc_borrow(), buf, &mut Some(&found));
            }
            None => self.refuse(&buf, Stat::RxNoQp, number),
        }
    }

    /// Takes packets that came as one.
    fn receive_train(&self, mut buf: RxBuf) {
        let (count, size) = (buf.segments(), buf.segment(0).1);
        let spared = Self::is_spared(&buf);
        if let Some(port) = self.port(&buf) {
            port.stats.count(Stat::RxTrains);
            if spared {
                port.stats.add(Stat::RxIcrcSkipped, count as u64);
            }
        }
        let mut segments = None;
        if !spared {
            let headers = buf.headers(0);
            segments = headers.and_then(|h| Segments::new(&h, size));
            if segments.is_none() {
                return self.refuse(&buf, Stat::RxMalformed, 0);
            }
        }
        let mut first = 0;
        while first < count {
            let mut intact = match &segments {
                Some(segments) => Intact::look(self, &mut buf, segments, first),
                None => Intact::all(&mut buf, first),
            };
            first = first.saturating_add(u64::BITS as usize);
            while intact.bits != 0 {
                match self.find(&buf, intact.number) {
                    Some(qp) => {
                        match QueuePair::receive(qp.as_arc_borrow(), buf, &mut intact) {
                            Some(back) => buf = back,
                            // It is on its way out, and the rest of the train is lost.
                            None => return,
                        }
                    }
                    None => {
                        while intact.next(&mut buf).is_some() {
                            self.refuse(&buf, Stat::RxNoQp, intact.number);
                        }
                    }
                }
            }
            for _ in 0..intact.malformed {
                self.refuse(&buf, Stat::RxMalformed, 0);
            }
        }
    }

    /// Takes a datagram to a group.
    fn receive_multicast(&self, mut buf: RxBuf) {
        match Self::check(&mut buf, false) {
            // The one is not without the other (10.5.2).
            Ok((parsed, _)) if parsed.headers.bth.dest_qp == MULTICAST => {
                self.spread(&buf, &parsed);
            }
            Ok((parsed, _)) => self.refuse(&buf, Stat::RxNoQp, parsed.headers.bth.dest_qp),
            Err(why) => self.refuse(&buf, why, 0),
        }
    }
}

/// The sockets of a namespace, and how many devices want them.
#[derive(Default)]
struct Sockets {
    users: usize,
    v4: Option<Arc<UdpSocket>>,
    v6: Option<Arc<UdpSocket>>,
}

/// What rxo has in each network namespace.
pub(crate) struct RxoNet {
    pub(crate) switch: Arc<Switch>,
    sockets: Pin<KBox<Mutex<Sockets>>>,
}

impl PerNet for RxoNet {
    fn init(_net: &NetNs) -> Result<Self> {
        Ok(Self {
            switch: Arc::pin_init(
                try_pin_init!(Switch {
                    qps <- IdTable::new(c"rxo-qps"),
                    ports <- new_bh_spinlock!(KVec::new(), "Switch::ports"),
                    groups <- Groups::new(),
                }),
                GFP_KERNEL,
            )?,
            sockets: KBox::pin_init(
                new_mutex!(Sockets::default(), "RxoNet::sockets"),
                GFP_KERNEL,
            )?,
        })
    }
}

impl RxoNet {
    /// The socket for an address.
    fn socket(&self, address: IpAddr) -> Option<Arc<UdpSocket>> {
        let sockets = self.sockets.lock();
        match address {
            IpAddr::V4(_) => sockets.v4.clone(),
            IpAddr::V6(_) => sockets.v6.clone(),
        }
    }

    /// Attaches a queue pair to a multicast group. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Groups::attach`]; `EINVAL` for a group of IPv6 where there is none.
    pub(crate) fn attach(&self, qp: &Arc<QueuePair>, gid: &[u8; 16]) -> Result {
        // Not with the lock held: to join takes RTNL.
        let socket = self.socket(address(gid)).ok_or(EINVAL)?;
        self.switch.groups.attach(qp, gid, &socket)
    }

    /// Detaches it. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Groups::detach`].
    pub(crate) fn detach(&self, qp: &Arc<QueuePair>, gid: &[u8; 16]) -> Result {
        let socket = self.socket(address(gid));
        self.switch.groups.detach(qp, gid, socket.as_deref())
    }
}

/// Connects a port to its namespace's switch, opening the sockets for the first.
///
/// # Errors
///
/// `EADDRINUSE` if another driver has UDP port 4791 in the namespace.
pub(crate) fn plug(ns: &Namespace<RxoNet>, port: &Arc<Port>) -> Result {
    let mut sockets = ns.sockets.lock();
    // The ports' lock must not be held while memory is allocated.
    let mut list = KVec::with_capacity(sockets.users + 1, GFP_KERNEL)?;
    if sockets.users == 0 {
        let open = |family| {
            ns.open_udp(family, ROCE_PORT, ns.switch.clone())?
                .map(|socket| Ok(Arc::new(socket, GFP_KERNEL)?))
                .transpose()
        };
        sockets.v4 = open(Family::V4)?;
        // Without IPv6 there are no IPv6 GIDs either.
        sockets.v6 = match open(Family::V6) {
            Ok(s) => s,
            Err(e) => {
                sockets.v4 = None;
                return Err(e);
            }
        };
    }
    {
        let mut ports = ns.switch.ports.lock();
        for p in ports.drain_all() {
            let _ = list.push_within_capacity(p);
        }
        let _ = list.push_within_capacity(port.clone());
        core::mem::swap(&mut *ports, &mut list);
    }
    sockets.users += 1;
    Ok(())
}

/// Takes a port off, closing the sockets after the last. Does nothing if it isn't there.
pub(crate) fn unplug(ns: &Namespace<RxoNet>, port: &Port) {
    let mut sockets = ns.sockets.lock();
    let removed = {
        let mut ports = ns.switch.ports.lock();
        let before = ports.len();
        ports.retain(|p| !core::ptr::eq(&**p, port));
        before != ports.len()
    };
    if removed {
        sockets.users = sockets.users.saturating_sub(1);
        if sockets.users == 0 {
            *sockets = Sockets::default();
        }
    }
}
