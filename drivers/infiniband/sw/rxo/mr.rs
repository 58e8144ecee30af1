// SPDX-License-Identifier: GPL-2.0

//! Memory regions and their keys.
//!
//! A key is an index of 24 bits, drawn at random, and a tag of 8 bits, drawn at random. lkey and
//! rkey of a region are equal. An access names a key; what it may do is decided here alone:
//! the region must exist with that very key, belong to the protection domain of the queue pair,
//! allow the access, and contain the whole range.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    access,
    DmaMemory,
    Sge,
    Umem, //
};
use rxo_transport::{
    AtomicOp,
    FlushKind,
    KeyFault,
    RemoteAccess, //
};
use softirq::{
    IdTable,
    RunDown, //
};

use crate::{
    limits::{
        Limits,
        Permit, //
    },
    stats::{
        Stat,
        Stats, //
    },
};

/// A protection domain: equal numbers, same domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain(pub(crate) u64);

/// What a region consists of.
enum Memory {
    /// Pinned pages of a process.
    User(Umem),
    /// All of the kernel's memory, for kernel consumers.
    Kernel(DmaMemory),
}

/// A memory region.
///
/// The memory is given back when the region is deregistered, though peers and queues may still
/// refer to it: they find it gone.
#[pin_data]
pub(crate) struct Mr {
    key: u32,
    domain: Domain,
    access: u32,
    iova: u64,
    length: u64,
    #[pin]
    memory: RunDown<Memory>,
    _permit: Permit,
}

/// Why a key does not serve; each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unknown,
    Domain,
    Rights,
    Range,
}

impl Refusal {
    fn stat(self) -> Stat {
        match self {
            Refusal::Unknown => Stat::KeyUnknown,
            Refusal::Domain => Stat::KeyDomain,
            Refusal::Rights => Stat::KeyRights,
            Refusal::Range => Stat::KeyRange,
        }
    }
}

impl Mr {
    /// Returns the key.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Checks an access and returns where in the region it begins.
    fn check(
        &self,
        domain: Domain,
        key: u32,
        va: u64,
        len: u64,
        rights: u32,
    ) -> Result<u64, Refusal> {
        if self.key != key {
            return Err(Refusal::Unknown);
        }
        if self.domain != domain {
            return Err(Refusal::Domain);
        }
        if self.access & rights != rights {
            return Err(Refusal::Rights);
        }
        // Without sums that could wrap around.
        let at = va.checked_sub(self.iova).ok_or(Refusal::Range)?;
        if at > self.length || len > self.length - at {
            return Err(Refusal::Range);
        }
        Ok(at)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Refusal> {
        let memory = self.memory.enter().ok_or(Refusal::Unknown)?;
        match &*memory {
            Memory::User(umem) => umem.read(offset(at)?, out),
            Memory::Kernel(kernel) => kernel.read(at, out),
        }
        .map_err(|_| Refusal::Range)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refusal> {
        let memory = self.memory.enter().ok_or(Refusal::Unknown)?;
        match &*memory {
            Memory::User(umem) => umem.write(offset(at)?, data),
            Memory::Kernel(kernel) => kernel.write(at, data),
        }
        .map_err(|_| Refusal::Range)
    }
}

fn offset(at: u64) -> Result<usize, Refusal> {
    usize::try_from(at).map_err(|_| Refusal::Range)
}

/// A range of a region that a peer was found entitled to.
pub(crate) struct RemoteRange {
    mr: Arc<Mr>,
    at: u64,
    len: u64,
}

impl RemoteRange {
    fn within(&self, offset: u32, len: usize) -> Result<u64, KeyFault> {
        let offset = u64::from(offset);
        if offset > self.len || len as u64 > self.len - offset {
            return Err(KeyFault::Access);
        }
        self.at.checked_add(offset).ok_or(KeyFault::Access)
    }

    /// Copies from the range.
    pub(crate) fn read(&self, offset: u32, out: &mut [u8]) -> Result<(), KeyFault> {
        let at = self.within(offset, out.len())?;
        self.mr.read(at, out).map_err(|_| KeyFault::Access)
    }

    /// Copies to the range.
    pub(crate) fn write(&self, offset: u32, data: &[u8]) -> Result<(), KeyFault> {
        let at = self.within(offset, data.len())?;
        self.mr.write(at, data).map_err(|_| KeyFault::Access)
    }

    /// Carries out an atomic on the first eight bytes.
    pub(crate) fn atomic(&self, op: AtomicOp) -> Result<u64, KeyFault> {
        let at = self.within(0, 8)?;
        let memory = self.mr.memory.enter().ok_or(KeyFault::Access)?;
        let Memory::User(umem) = &*memory else {
            return Err(KeyFault::Operational);
        };
        let at = usize::try_from(at).map_err(|_| KeyFault::Access)?;
        match op {
            AtomicOp::CmpSwap { compare, swap } => umem.compare_swap(at, compare, swap),
            AtomicOp::FetchAdd { add } => umem.fetch_add(at, add),
        }
        .map_err(|_| KeyFault::Operational)
    }

    /// Stores the first eight bytes as one step.
    pub(crate) fn store(&self, bytes: [u8; 8]) -> Result<(), KeyFault> {
        let at = self.within(0, 8)?;
        let memory = self.mr.memory.enter().ok_or(KeyFault::Access)?;
        let Memory::User(umem) = &*memory else {
            return Err(KeyFault::Operational);
        };
        let at = usize::try_from(at).map_err(|_| KeyFault::Access)?;
        umem.store(at, bytes).map_err(|_| KeyFault::Operational)
    }
}

/// The regions of a device.
#[pin_data]
pub(crate) struct Regions {
    #[pin]
    table: IdTable<Mr>,
}

/// Where the tag of a key begins: above it lies the index.
const TAG_BITS: u32 = 8;
/// Draws of an index before the table counts as full.
const DRAWS: u32 = 64;

impl Regions {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            table <- IdTable::new(c"rxo-keys"),
        })
    }

    /// Registers memory of a process.
    pub(crate) fn add_user(
        &self,
        limits: &Arc<Limits>,
        domain: Domain,
        access: u32,
        iova: u64,
        umem: Umem,
    ) -> Result<Arc<Mr>> {
        let length = umem.len() as u64;
        // A range that wraps around would have addresses of two meanings.
        iova.checked_add(length).ok_or(EINVAL)?;
        self.add(limits, domain, access, iova, length, Memory::User(umem))
    }

    /// Makes the region of all kernel memory.
    pub(crate) fn add_kernel(
        &self,
        limits: &Arc<Limits>,
        domain: Domain,
        access: u32,
        memory: DmaMemory,
    ) -> Result<Arc<Mr>> {
        self.add(limits, domain, access, 0, u64::MAX, Memory::Kernel(memory))
    }

    fn add(
        &self,
        limits: &Arc<Limits>,
        domain: Domain,
        access: u32,
        iova: u64,
        length: u64,
        memory: Memory,
    ) -> Result<Arc<Mr>> {
        let permit = Permit::take(limits, |l| &l.mrs)?;
        let slot = (0..DRAWS)
            .find_map(|_| {
                // 0 is the key of nothing, so no index is 0.
                let index = (net::random_u32() >> TAG_BITS).max(1);
                self.table.reserve_at(index).ok()
            })
            .ok_or(ENOMEM)?;
        let tag = net::random_u32() & ((1 << TAG_BITS) - 1);
        let new_key = slot.id() << TAG_BITS | tag;
        let mr = Arc::pin_init(
            pin_init!(Mr {
                key: new_key,
                domain,
                access,
                iova,
                length,
                memory <- RunDown::new(memory),
                _permit: permit,
            }),
            GFP_KERNEL,
        )?;
        slot.fill(mr.clone())?;
        Ok(mr)
    }

    /// Deregisters a region: when this returns nothing accesses its memory, which is given back.
    /// May sleep.
    pub(crate) fn remove(&self, mr: &Mr) {
        self.table.remove(mr.key >> TAG_BITS);
        drop(mr.memory.take());
    }

    /// Looks a key up for the peer of a queue pair.
    pub(crate) fn open(
        &self,
        stats: &Stats,
        domain: Domain,
        key: u32,
        va: u64,
        len: u32,
        what: RemoteAccess,
    ) -> Result<RemoteRange, KeyFault> {
        let rights = match what {
            RemoteAccess::Read => access::REMOTE_READ,
            RemoteAccess::Write => access::REMOTE_WRITE,
            RemoteAccess::Atomic => access::REMOTE_ATOMIC,
        };
        let found = self
            .table
            .get(key >> TAG_BITS)
            .ok_or(Refusal::Unknown)
            .and_then(|mr| {
                let at = mr.check(domain, key, va, u64::from(len), rights)?;
                Ok(RemoteRange {
                    mr,
                    at,
                    len: u64::from(len),
                })
            });
        found.map_err(|refusal| {
            stats.count(refusal.stat());
            KeyFault::Access
        })
    }

    /// Carries out a FLUSH of the peer of a queue pair: of a range, or of all that the key covers.
    ///
    /// What the peer wrote was written by the processor, so it is visible as soon as that has
    /// left its buffers. To make it outlast a loss of power would take persistent memory, which
    /// is not told from other: no region is given that right.
    pub(crate) fn flush(
        &self,
        stats: &Stats,
        domain: Domain,
        key: u32,
        range: Option<(u64, u32)>,
        kind: FlushKind,
    ) -> Result<(), KeyFault> {
        let rights = kind.rights().bits();
        self.table
            .with(key >> TAG_BITS, |mr| {
                let (va, len) = range.unwrap_or((mr.iova, 0));
                mr.check(domain, key, va, u64::from(len), rights)
            })
            .unwrap_or(Err(Refusal::Unknown))
            .map_err(|refusal| {
                stats.count(refusal.stat());
                KeyFault::Access
            })?;
        if kind.persistent {
            return Err(KeyFault::Operational);
        }
        rdma::write_barrier();
        Ok(())
    }

    /// Copies from the memory that a list names, beginning `skip` bytes into it.
    pub(crate) fn gather(
        &self,
        stats: &Stats,
        domain: Domain,
        list: &[Sge],
        skip: u32,
        out: &mut [u8],
    ) -> Result<(), Refusal> {
        let mut rest = out;
        for_pieces(list, skip, rest.len(), |piece| {
            let (now, later) = core::mem::take(&mut rest).split_at_mut(piece.length as usize);
            rest = later;
            self.local(stats, domain, piece, 0, |mr, at| mr.read(at, now))
        })
    }

    /// Copies to the memory that a list names, beginning `skip` bytes into it.
    pub(crate) fn scatter(
        &self,
        stats: &Stats,
        domain: Domain,
        list: &[Sge],
        skip: u32,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let mut rest = data;
        for_pieces(list, skip, data.len(), |piece| {
            let (now, later) = rest.split_at(piece.length as usize);
            rest = later;
            self.local(stats, domain, piece, access::LOCAL_WRITE, |mr, at| {
                mr.write(at, now)
            })
        })
    }

    fn local(
        &self,
        stats: &Stats,
        domain: Domain,
        piece: &Sge,
        rights: u32,
        f: impl FnOnce(&Mr, u64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.table
            .with(piece.lkey >> TAG_BITS, |mr| {
                let len = u64::from(piece.length);
                let at = mr.check(domain, piece.lkey, piece.addr, len, rights)?;
                f(&mr, at)
            })
            .unwrap_or(Err(Refusal::Unknown))
            .inspect_err(|refusal| stats.count(refusal.stat()))
    }
}

/// Calls `f` with each piece of `len` bytes of a list, beginning `skip` bytes into it.
fn for_pieces(
    list: &[Sge],
    skip: u32,
    len: usize,
    mut f: impl FnMut(&Sge) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut skip = skip;
    let mut left = u32::try_from(len).map_err(|_| Refusal::Range)?;
    for sge in list {
        if left == 0 {
            break;
        }
        if skip >= sge.length {
            skip -= sge.length;
            continue;
        }
        let piece = Sge {
            addr: sge
                .addr
                .checked_add(u64::from(skip))
                .ok_or(Refusal::Range)?,
            length: left.min(sge.length - skip),
            lkey: sge.lkey,
        };
        f(&piece)?;
        left -= piece.length;
        skip = 0;
    }
    if left == 0 {
        Ok(())
    } else {
        Err(Refusal::Range)
    }
}
