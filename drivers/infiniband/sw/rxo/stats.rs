// SPDX-License-Identifier: GPL-2.0

//! The counters of a port: those of the transport, then those of the driver.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rxo_transport::Counter;
use softirq::Counters;

/// What the driver counts besides the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    /// Packets sent.
    TxPackets,
    /// Bytes of UDP payload sent.
    TxBytes,
    /// Packets, among those sent, that went to a queue pair of the same host without the network.
    LoopbackPackets,
    /// Times that packets of one size went through the network stack as one.
    TxTrains,
    /// Doorbells that left a message for the next visit.
    TxHeld,
    /// Packets that the network stack did not take.
    TxDropped,
    /// Times that the network stack had no room for a packet, which is then offered again.
    TxRefused,
    /// Packets that had no route.
    TxNoRoute,
    /// Packets received, valid ones.
    RxPackets,
    /// Bytes of UDP payload received, of valid packets.
    RxBytes,
    /// Times that packets of one size came as one.
    RxTrains,
    /// Packets that never left this machine, whose invariant CRC was not computed once more.
    RxIcrcSkipped,
    /// Packets with a wrong invariant CRC.
    RxIcrcErrors,
    /// Packets that are not RoCEv2.
    RxMalformed,
    /// Datagrams received for a multicast group.
    RxMulticast,
    /// Packets that there was no memory for.
    RxNoMemory,
    /// Packets for a QP that isn't there.
    RxNoQp,
    /// Packets from or to another address than the QP's.
    RxWrongAddress,
    /// Packets of another partition.
    RxBadPkey,
    /// Packets that waited for memory to be paged in.
    RxPageWaits,
    /// Packets that came meanwhile, and were more than can wait.
    RxPageWaitDrops,
    /// Times that sending waited for memory to be paged in.
    TxPageWaits,
    /// Accesses with a key that isn't there.
    KeyUnknown,
    /// Accesses with a key of another protection domain.
    KeyDomain,
    /// Accesses that the region does not allow.
    KeyRights,
    /// Accesses outside of the region.
    KeyRange,
    /// Registrations, invalidations and bindings that were refused.
    MemoryOpErrors,
    /// Work requests in a ring that make no sense; posts of kernel consumers beyond a queue's room.
    WqeInvalid,
    /// Completions that found no room.
    CqOverflows,
}

impl Stat {
    /// The name, as `rdma statistic` shows it.
    pub(crate) const fn name(self) -> &'static str {
        NAMES[TRANSPORT + self as usize]
    }
}

const DRIVER: usize = Stat::CqOverflows as usize + 1;
const TRANSPORT: usize = Counter::ALL.len();
/// How many counters there are.
pub(crate) const COUNT: usize = TRANSPORT + DRIVER;

/// The names, as `rdma statistic` shows them.
pub(crate) const NAMES: [&str; COUNT] = {
    let mut out = [""; COUNT];
    let mut i = 0;
    while i < TRANSPORT {
        out[i] = Counter::ALL[i].name();
        i += 1;
    }
    let own: [&str; DRIVER] = [
        "tx_packets",
        "tx_bytes",
        "loopback_packets",
        "tx_trains",
        "tx_held",
        "tx_dropped",
        "tx_refused",
        "tx_no_route",
        "rx_packets",
        "rx_bytes",
        "rx_trains",
        "rx_icrc_skipped",
        "rx_icrc_errors",
        "rx_malformed",
        "rx_multicast",
        "rx_no_memory",
        "rx_no_qp",
        "rx_wrong_address",
        "rx_bad_pkey",
        "rx_page_waits",
        "rx_page_wait_drops",
        "tx_page_waits",
        "key_unknown",
        "key_domain",
        "key_rights",
        "key_range",
        "memory_op_errors",
        "wqe_invalid",
        "cq_overflows",
    ];
    let mut i = 0;
    while i < DRIVER {
        out[TRANSPORT + i] = own[i];
        i += 1;
    }
    out
};

static C_NAMES: rdma::StatNames<COUNT> = rdma::StatNames::new(&NAMES);
static TABLE: rdma::StatTable<COUNT> = C_NAMES.table();

/// Descriptions of the counters for the core.
pub(crate) const DESCS: rdma::StatDescs = rdma::StatDescs::new(&TABLE);

/// One set of counters.
pub(crate) type Set = Counters<COUNT>;

/// The counters of a port, as someone who counts has them.
///
/// Whoever counts for a queue pair that is bound to a set of its own (`rdma statistic qp bind`)
/// counts in three places: the port's, that set, and the port's sum of all such sets. The core adds
/// all sets to what it is told of the port, so it is told of the rest alone; see [`Self::unbound`].
#[derive(Clone)]
pub(crate) struct Stats {
    all: Arc<Set>,
    in_sets: Arc<Set>,
    set: Option<Arc<Set>>,
}

impl Stats {
    /// All at zero.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            all: Arc::new(Set::new()?, GFP_KERNEL)?,
            in_sets: Arc::new(Set::new()?, GFP_KERNEL)?,
            set: None,
        })
    }

    /// Counts from now on in this set too, or in none besides the port's. Returns the one before.
    #[must_use = "it may be the last reference, to be dropped where no lock is held"]
    pub(crate) fn bind(&mut self, set: Option<Arc<Set>>) -> Option<Arc<Set>> {
        core::mem::replace(&mut self.set, set)
    }

    /// Tells whether what is counted here counts in the port's alone.
    pub(crate) fn is_unbound(&self) -> bool {
        self.set.is_none()
    }

    #[inline]
    fn add_at(&self, index: usize, n: u64) {
        self.all.add(index, n);
        if let Some(set) = &self.set {
            set.add(index, n);
            self.in_sets.add(index, n);
        }
    }

    /// Counts something of the driver's.
    pub(crate) fn count(&self, s: Stat) {
        self.add(s, 1);
    }

    /// Adds to something of the driver's.
    pub(crate) fn add(&self, s: Stat, n: u64) {
        self.add_at(TRANSPORT + s as usize, n);
    }

    /// Counts something of the transport's.
    pub(crate) fn transport(&self, c: Counter, n: u32) {
        self.add_at(c as usize, u64::from(n));
    }

    /// Reads a counter of the port by its place.
    pub(crate) fn read(&self, index: usize) -> u64 {
        self.all.read(index)
    }

    /// Reads what was not counted in any set besides the port's, by its place.
    pub(crate) fn unbound(&self, index: usize) -> u64 {
        // In the order in which it is not less than nothing.
        let in_sets = self.in_sets.read(index);
        self.all.read(index).saturating_sub(in_sets)
    }

    /// Reads something of the driver's.
    pub(crate) fn get(&self, s: Stat) -> u64 {
        self.read(TRANSPORT + s as usize)
    }

    /// Reads something of the transport's.
    pub(crate) fn get_transport(&self, c: Counter) -> u64 {
        self.read(c as usize)
    }
}
