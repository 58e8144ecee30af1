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
    host::Packet,
    mcast::Groups,
    port::Port,
    qp::QueuePair,
    stats::Stat,
    tx::{
        crc32,
        invariant_crc,
        ROCE_PORT, //
    },
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

    fn count(&self, buf: &RxBuf, stat: Stat) {
        if let Some(port) = self.port(buf) {
            port.stats.count(stat);
        }
    }

    /// Gives a datagram to all queue pairs that are attached to its group.
    fn spread(&self, buf: &RxBuf, parsed: &Parsed) {
        let Some(members) = self.groups.members(buf.ifindex(), buf.daddr()) else {
            return self.count(buf, Stat::RxNoQp);
        };
        for (i, qp) in members.iter().enumerate() {
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
            let payload = parsed.header_len;
            let packet = Packet { buf: copy, payload };
            QueuePair::receive(qp.as_arc_borrow(), parsed, packet);
        }
    }

    /// Parses and checks a packet; the error says how to count it.
    fn check(buf: &mut RxBuf) -> Result<Parsed, Stat> {
        let len = buf.len().checked_sub(ICRC_LEN).ok_or(Stat::RxMalformed)?;
        let head = len.min(MAX_HEADER_LEN);
        buf.pull(head).ok_or(Stat::RxMalformed)?;
        let bytes = buf.linear();
        let parsed = Headers::parse(bytes, len).map_err(|_: Malformed| Stat::RxMalformed)?;
        let mut crc = invariant_crc(buf.ip(), buf.udp(), bytes).ok_or(Stat::RxMalformed)?;
        // Parsed, so it has a base transport header.
        buf.for_each_chunk(BTH_LEN, len.saturating_sub(BTH_LEN), |chunk| {
            crc = crc32(crc, chunk);
            Ok(())
        })
        .map_err(|_| Stat::RxMalformed)?;
        let mut sent = [0; ICRC_LEN];
        buf.copy_to(len, &mut sent).map_err(|_| Stat::RxMalformed)?;
        if u32::from_le_bytes(sent) != !crc {
            return Err(Stat::RxIcrcErrors);
        }
        Ok(parsed)
    }
}

impl Receiver for Switch {
    fn receive(&self, skb: RxSkb<'_>) {
        let mut buf = skb.into_buf();
        let parsed = match Self::check(&mut buf) {
            Ok(parsed) => parsed,
            Err(stat) => return self.count(&buf, stat),
        };
        let number = parsed.headers.bth.dest_qp;
        // The one is not without the other (10.5.2).
        match (number == MULTICAST, buf.daddr().is_multicast()) {
            (true, true) => return self.spread(&buf, &parsed),
            (false, false) => (),
            _ => return self.count(&buf, Stat::RxNoQp),
        }
        let qp = if number == QP1 {
            self.port(&buf).and_then(|p| p.gsi())
        } else {
            self.qps.get(number)
        };
        let Some(qp) = qp else {
            return self.count(&buf, Stat::RxNoQp);
        };
        qp.port.stats.count(Stat::RxPackets);
        qp.port.stats.add(Stat::RxBytes, buf.len() as u64);
        let payload = parsed.header_len;
        QueuePair::receive(qp.as_arc_borrow(), &parsed, Packet { buf, payload });
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
