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
    host::Packet,
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
/// Numbers of queue pairs that aren't special.
const NUMBERS: core::ops::RangeInclusive<u32> = 16..=0xff_fffe;

/// A namespace's switch.
#[pin_data]
pub(crate) struct Switch {
    #[pin]
    qps: IdTable<QueuePair>,
    #[pin]
    ports: BhSpinLock<KVec<Arc<Port>>>,
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
    _v4: Option<UdpSocket>,
    _v6: Option<UdpSocket>,
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
        sockets._v4 = ns.open_udp(Family::V4, ROCE_PORT, ns.switch.clone())?;
        // Without IPv6 there are no IPv6 GIDs either.
        sockets._v6 = match ns.open_udp(Family::V6, ROCE_PORT, ns.switch.clone()) {
            Ok(s) => s,
            Err(e) => {
                sockets._v4 = None;
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
