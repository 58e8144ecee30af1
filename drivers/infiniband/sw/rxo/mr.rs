// SPDX-License-Identifier: GPL-2.0

//! Memory regions and their keys.
//!
//! A key is an index of 24 bits, drawn at random, and a tag of 8 bits, drawn at random. lkey and
//! rkey of a region are equal. The top bits of the index tell what it is the key of ([`Kind`]).
//! An access names a key; what it may do is decided here alone: the region must exist with that
//! very key, belong to the protection domain of the queue pair, allow the access, and contain the
//! whole range.
//!
//! Regions for fast registration and windows, whose keys come and go, are in [`crate::fast`] and
//! [`crate::mw`].

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    }, //
};
use rdma::{
    access,
    Bytes,
    DmaBuf,
    DmaMemory,
    MemoryFault,
    MwKind,
    OdpFault,
    OdpSpace,
    OdpUmem,
    Paging,
    Sge,
    Umem,
    Word, //
};
use rxo_transport::{
    AtomicOp,
    FlushKind,
    KeyFault,
    RemoteAccess, //
};
use softirq::{
    IdTable,
    Inside,
    Reservation,
    RunDown, //
};

use crate::{
    detail::Listener,
    fast::{
        FastMr,
        Registration, //
    },
    mw::{
        Bind,
        BoundWindow,
        Window, //
    },
    stats::{
        Stat,
        Stats, //
    },
};

/// A protection domain: equal numbers, same domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain(pub(crate) u64);

/// Who names a key: a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) domain: Domain,
    /// No other queue pair has or had it, unlike its number.
    pub(crate) identity: u64,
}

/// What a region consists of.
enum Memory {
    /// Pinned pages of a process: of several regions only while one replaces the other.
    User(Arc<Umem>),
    /// Memory of a process, paged on demand.
    OnDemand(OdpUmem),
    /// All memory of a process, paged on demand.
    Everything(OdpSpace),
    /// Memory of another driver.
    DmaBuf(DmaBuf),
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
    /// Windows bound to it.
    windows: Atomic<u32>,
}

/// Why a key does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unknown,
    Domain,
    Rights,
    Range,
    /// It will: the memory is being paged in.
    Absent,
}

impl From<MemoryFault> for Refusal {
    fn from(_: MemoryFault) -> Self {
        Refusal::Range
    }
}

impl Refusal {
    /// What it is counted as; what is only put off is counted by who puts it off.
    pub(crate) fn stat(self) -> Option<Stat> {
        Some(match self {
            Refusal::Unknown => Stat::KeyUnknown,
            Refusal::Domain => Stat::KeyDomain,
            Refusal::Rights => Stat::KeyRights,
            Refusal::Range => Stat::KeyRange,
            Refusal::Absent => return None,
        })
    }

    fn count(self, stats: &Stats) {
        if let Some(stat) = self.stat() {
            stats.count(stat);
        }
    }

    /// Counts it; the fault of a list by one of its entries.
    fn of_entry(self, stats: &Stats, entry: &Sge) -> ListFault {
        self.count(stats);
        ListFault {
            why: self,
            key: Some(entry.lkey),
        }
    }

    /// What a peer's access fails with, whose key was found to serve.
    fn remote(self) -> KeyFault {
        match self {
            Refusal::Absent => KeyFault::Absent,
            _ => KeyFault::Access,
        }
    }
}

/// Why the memory that a list names can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListFault {
    pub(crate) why: Refusal,
    /// The key that does not serve; none if the list is too short.
    pub(crate) key: Option<u32>,
}

impl From<Refusal> for ListFault {
    fn from(why: Refusal) -> Self {
        Self { why, key: None }
    }
}

impl From<OdpFault> for Refusal {
    fn from(fault: OdpFault) -> Self {
        match fault {
            OdpFault::Denied => Self::Range,
            OdpFault::Absent => Self::Absent,
        }
    }
}

/// What an atomic on memory paged on demand fails with.
fn odp_fault(fault: OdpFault) -> KeyFault {
    match fault {
        OdpFault::Denied => KeyFault::Operational,
        OdpFault::Absent => KeyFault::Absent,
    }
}

impl Mr {
    /// A region of a key that is not known yet.
    fn new(
        key: u32,
        domain: Domain,
        access: u32,
        iova: u64,
        length: u64,
        memory: Memory,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                key,
                domain,
                access,
                iova,
                length,
                memory <- RunDown::new(memory),
                windows: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Checks that a window may be bound to a range, and returns where that begins.
    pub(crate) fn check_bind(
        &self,
        domain: Domain,
        key: u32,
        addr: u64,
        length: u64,
        rights: u32,
    ) -> Result<u64, Refusal> {
        // What a window lets peers write the region must let its owner write (C10-67).
        let local = if rights & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0 {
            access::LOCAL_WRITE
        } else {
            0
        };
        self.check(domain, key, addr, length, access::MW_BIND | local)
    }

    /// A window was bound.
    pub(crate) fn bound(&self) {
        self.windows.fetch_add(1, Relaxed);
    }

    /// A window is bound no more.
    pub(crate) fn unbound(&self) {
        self.windows.fetch_sub(1, Relaxed);
    }

    /// Tells whether windows are bound.
    fn has_windows(&self) -> bool {
        self.windows.load(Relaxed) != 0
    }

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

    /// Tells whether it is paged on demand.
    fn is_paged(&self) -> bool {
        self.memory
            .enter()
            .is_some_and(|memory| matches!(&*memory, Memory::OnDemand(_) | Memory::Everything(_)))
    }

    /// Gets a range of the region in, ahead of its use, if it is paged on demand. May sleep.
    ///
    /// # Errors
    ///
    /// As [`OdpUmem::prefetch`] has it.
    pub(crate) fn prefetch(&self, at: u64, len: usize, how: Paging) -> Result {
        let memory = self.memory.enter().ok_or(ENOENT)?;
        let at = usize::try_from(at).map_err(|_| EFAULT)?;
        match &*memory {
            Memory::OnDemand(umem) => umem.prefetch(at, len, how),
            Memory::Everything(space) => space.prefetch(at, len, how),
            Memory::User(_) | Memory::DmaBuf(_) | Memory::Kernel(_) => Ok(()),
        }
    }

    /// Holds on to the memory, to copy from and to it.
    pub(crate) fn open(&self) -> Result<Opened<'_>, Refusal> {
        Ok(Opened(self.memory.enter().ok_or(Refusal::Unknown)?))
    }

    /// Copies from the region, from byte `at` on.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Refusal> {
        self.open()?.read(at, out)
    }

    /// Tells whether the memory is there as long as the region is, so that [`Self::with_bytes`]
    /// has it.
    fn is_steady(&self) -> bool {
        self.memory
            .enter()
            .is_some_and(|memory| matches!(&*memory, Memory::User(_) | Memory::Kernel(_)))
    }

    /// Calls `f` with each piece of a range of the region, in order, until it fails. The region must
    /// be a steady one.
    pub(crate) fn with_bytes(
        &self,
        at: u64,
        len: usize,
        f: impl FnMut(Bytes<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let memory = self.memory.enter().ok_or(Refusal::Unknown)?;
        match &*memory {
            Memory::User(umem) => umem.with_bytes(offset(at)?, len, f),
            Memory::Kernel(kernel) => kernel.with_bytes(at, len, f),
            Memory::OnDemand(_) | Memory::Everything(_) | Memory::DmaBuf(_) => Err(Refusal::Range),
        }
    }

    /// Copies to the region, at byte `at`.
    pub(crate) fn write(&self, at: u64, data: Bytes<'_>) -> Result<(), Refusal> {
        self.open()?.write(at, data)
    }

    /// Calls `f` with the eight bytes at `at`.
    pub(crate) fn with_word<R>(
        &self,
        at: u64,
        f: impl FnOnce(Word<'_>) -> R,
    ) -> Result<R, KeyFault> {
        let memory = self.memory.enter().ok_or(KeyFault::Access)?;
        let at = usize::try_from(at).map_err(|_| KeyFault::Access)?;
        match &*memory {
            Memory::User(umem) => umem.with_word(at, f).map_err(|_| KeyFault::Operational),
            Memory::OnDemand(umem) => umem.with_word(at, f).map_err(odp_fault),
            Memory::Everything(space) => space.with_word(at, f).map_err(odp_fault),
            Memory::DmaBuf(buf) => buf.with_word(at, f).map_err(|_| KeyFault::Operational),
            Memory::Kernel(_) => Err(KeyFault::Operational),
        }
    }
}

/// The memory of a region: whoever deregisters that waits until this is gone.
pub(crate) struct Opened<'a>(Inside<'a, Memory>);

impl Opened<'_> {
    /// Copies from the region, from byte `at` on.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Refusal> {
        match &*self.0 {
            Memory::User(umem) => umem.read(offset(at)?, out)?,
            Memory::OnDemand(umem) => umem.read(offset(at)?, out)?,
            Memory::Everything(space) => space.read(offset(at)?, out)?,
            Memory::DmaBuf(buf) => buf.read(offset(at)?, out)?,
            Memory::Kernel(kernel) => kernel.read(at, out)?,
        }
        Ok(())
    }

    /// Copies to the region, at byte `at`.
    pub(crate) fn write(&self, at: u64, data: Bytes<'_>) -> Result<(), Refusal> {
        match &*self.0 {
            Memory::User(umem) => umem.write(offset(at)?, data)?,
            Memory::OnDemand(umem) => umem.write(offset(at)?, data)?,
            Memory::Everything(space) => space.write(offset(at)?, data)?,
            Memory::DmaBuf(buf) => buf.write(offset(at)?, data)?,
            Memory::Kernel(kernel) => kernel.write(at, data)?,
        }
        Ok(())
    }
}

fn offset(at: u64) -> Result<usize, Refusal> {
    usize::try_from(at).map_err(|_| Refusal::Range)
}

/// Where a peer's accesses go.
enum Target {
    Region(Arc<Mr>),
    Window(BoundWindow),
    Fast(Registration),
}

/// A range of a region that a peer was found entitled to.
pub(crate) struct RemoteRange {
    target: Target,
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
        match &self.target {
            Target::Region(mr) => mr.read(at, out),
            Target::Window(window) => window.with(|mr| mr.read(at, out)),
            Target::Fast(mr) => mr.read(at, out),
        }
        .map_err(Refusal::remote)
    }

    /// Where the range lies from byte `offset` on, if it is one of a plain, steady region.
    pub(crate) fn steady(&self, offset: u32) -> Option<Steady> {
        let at = self.within(offset, 0).ok()?;
        match &self.target {
            Target::Region(mr) => mr.is_steady().then(|| Steady {
                mr: mr.clone(),
                at,
                len: self.len.saturating_sub(u64::from(offset)),
            }),
            Target::Window(_) | Target::Fast(_) => None,
        }
    }

    /// Holds on to the memory of the range, to copy to it.
    pub(crate) fn open(&self) -> Result<OpenedRange<'_>, KeyFault> {
        let target = match &self.target {
            Target::Region(mr) => OpenedTarget::Region(mr.open().map_err(Refusal::remote)?),
            Target::Window(window) => OpenedTarget::Window(window),
            Target::Fast(mr) => OpenedTarget::Fast(mr),
        };
        Ok(OpenedRange {
            range: self,
            target,
        })
    }

    /// Calls `f` with the first eight bytes.
    fn with_word<R>(&self, f: impl FnOnce(Word<'_>) -> R) -> Result<R, KeyFault> {
        let at = self.within(0, 8)?;
        match &self.target {
            Target::Region(mr) => mr.with_word(at, f),
            Target::Window(window) => window
                .with(|mr| Ok(mr.with_word(at, f)))
                .unwrap_or_else(|refusal| Err(refusal.remote())),
            Target::Fast(mr) => mr.with_word(at, f),
        }
    }

    /// Carries out an atomic on the first eight bytes.
    pub(crate) fn atomic(&self, op: AtomicOp) -> Result<u64, KeyFault> {
        self.with_word(|word| match op {
            AtomicOp::CmpSwap { compare, swap } => word.compare_swap(compare, swap),
            AtomicOp::FetchAdd { add } => word.fetch_add(add),
        })
    }

    /// Stores the first eight bytes as one step.
    pub(crate) fn store(&self, bytes: [u8; 8]) -> Result<(), KeyFault> {
        self.with_word(|word| word.store(bytes))
    }
}

/// A range that is open to be written to.
pub(crate) struct OpenedRange<'a> {
    range: &'a RemoteRange,
    target: OpenedTarget<'a>,
}

/// Where its data go. The keys of windows and of fast registration may end at any time, so each
/// access looks at them.
enum OpenedTarget<'a> {
    Region(Opened<'a>),
    Window(&'a BoundWindow),
    Fast(&'a Registration),
}

impl OpenedRange<'_> {
    /// Copies to the range.
    pub(crate) fn write(&self, offset: u32, data: Bytes<'_>) -> Result<(), KeyFault> {
        let at = self.range.within(offset, data.len())?;
        match &self.target {
            OpenedTarget::Region(memory) => memory.write(at, data),
            OpenedTarget::Window(window) => window.with(|mr| mr.write(at, data)),
            OpenedTarget::Fast(mr) => mr.write(at, data),
        }
        .map_err(Refusal::remote)
    }
}

/// A place in a plain region whose memory is there as long as that is registered.
pub(crate) struct Steady {
    pub(crate) mr: Arc<Mr>,
    /// Where in the region.
    pub(crate) at: u64,
    /// So many bytes there are what was asked for.
    pub(crate) len: u64,
}

/// The regions and windows of a device.
#[pin_data]
pub(crate) struct Regions {
    #[pin]
    table: IdTable<Mr>,
    #[pin]
    windows: IdTable<Window>,
    #[pin]
    fast: IdTable<FastMr>,
}

/// What a key is the key of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Region,
    Window,
    Fast,
}

impl Kind {
    fn of(key: u32) -> Self {
        match key >> 30 {
            0 | 1 => Self::Region,
            2 => Self::Window,
            _ => Self::Fast,
        }
    }

    /// A random index of this kind. 0 is the key of nothing, so no index is 0.
    fn draw(self) -> u32 {
        let random = net::random_u32();
        let key = match self {
            Self::Region => random & 0x7fff_ffff,
            Self::Window => random & 0x3fff_ffff | 0x8000_0000,
            Self::Fast => random | 0xc000_0000,
        };
        (key >> TAG_BITS).max(1)
    }
}

/// Reserves a random index.
fn reserve<T: Send + Sync>(table: &IdTable<T>, kind: Kind) -> Result<Reservation<'_, T>> {
    (0..DRAWS)
        .find_map(|_| table.reserve_at(kind.draw()).ok())
        .ok_or(ENOMEM)
}

/// A random key of an index.
fn key_of(index: u32) -> u32 {
    index << TAG_BITS | net::random_u32() & TAG_MASK
}

/// Where the tag of a key begins: above it lies the index.
const TAG_BITS: u32 = 8;
/// The tag of a key.
pub(crate) const TAG_MASK: u32 = (1 << TAG_BITS) - 1;
/// Draws of an index before the table counts as full.
const DRAWS: u32 = 64;

impl Regions {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            table <- IdTable::new(c"rxo-keys"),
            windows <- IdTable::new(c"rxo-windows"),
            fast <- IdTable::new(c"rxo-fast-keys"),
        })
    }

    /// Tells what there is to know of a region by its key.
    pub(crate) fn tell(&self, key: u32, to: &mut impl Listener) {
        let Some(mr) = self.table.get(key >> TAG_BITS) else {
            return;
        };
        let kind = mr.memory.enter().map(|memory| match &*memory {
            Memory::User(_) => "user",
            Memory::OnDemand(_) => "odp",
            Memory::Everything(_) => "odp_all",
            Memory::DmaBuf(_) => "dmabuf",
            Memory::Kernel(_) => "all",
        });
        to.word("kind", kind.unwrap_or("gone"));
        to.number("access", u64::from(mr.access));
        to.number("windows", u64::from(mr.windows.load(Relaxed)));
    }

    /// Registers memory of a process.
    pub(crate) fn add_user(
        &self,
        domain: Domain,
        access: u32,
        iova: u64,
        umem: Umem,
    ) -> Result<Arc<Mr>> {
        let length = umem.len() as u64;
        let memory = Memory::User(Arc::new(umem, GFP_KERNEL)?);
        self.add(domain, access, iova, length, memory)
    }

    /// Registers memory of a process that is paged on demand.
    pub(crate) fn add_on_demand(
        &self,
        domain: Domain,
        access: u32,
        iova: u64,
        umem: OdpUmem,
    ) -> Result<Arc<Mr>> {
        let length = umem.len() as u64;
        self.add(domain, access, iova, length, Memory::OnDemand(umem))
    }

    /// Registers all memory of a process, by its addresses there.
    pub(crate) fn add_everything(
        &self,
        domain: Domain,
        access: u32,
        space: OdpSpace,
    ) -> Result<Arc<Mr>> {
        self.add(domain, access, 0, u64::MAX, Memory::Everything(space))
    }

    /// Registers memory of another driver.
    pub(crate) fn add_dmabuf(
        &self,
        domain: Domain,
        access: u32,
        iova: u64,
        memory: DmaBuf,
    ) -> Result<Arc<Mr>> {
        let length = memory.len() as u64;
        self.add(domain, access, iova, length, Memory::DmaBuf(memory))
    }

    /// Changes memory of a process that is registered; the key stays. `pin` is given the
    /// memory as it is, and pins other memory if needed. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` while windows are bound, those of `pin`; nothing has changed. `EOPNOTSUPP` for
    /// memory that is paged on demand or another driver's, `EINVAL` for a key that isn't that of memory of a process.
    pub(crate) fn change(
        &self,
        key: u32,
        domain: Option<Domain>,
        access: Option<u32>,
        iova: Option<u64>,
        pin: impl FnOnce(&Umem, u32) -> Result<Option<Umem>>,
    ) -> Result {
        let old = self.table.get(key >> TAG_BITS).ok_or(EINVAL)?;
        if old.has_windows() {
            return Err(EBUSY);
        }
        let rights = access.unwrap_or(old.access);
        let umem = {
            let memory = old.memory.enter().ok_or(EINVAL)?;
            let umem = match &*memory {
                Memory::User(umem) => umem,
                Memory::OnDemand(_) | Memory::Everything(_) | Memory::DmaBuf(_) => {
                    return Err(EOPNOTSUPP)
                }
                Memory::Kernel(_) => return Err(EINVAL),
            };
            match pin(umem, rights)? {
                Some(new) => Arc::new(new, GFP_KERNEL)?,
                None => umem.clone(),
            }
        };
        let length = umem.len() as u64;
        let iova = if rights & access::ZERO_BASED != 0 {
            0
        } else {
            iova.unwrap_or(old.iova)
        };
        iova.checked_add(length).ok_or(EINVAL)?;
        let domain = domain.unwrap_or(old.domain);
        let new = Mr::new(old.key, domain, rights, iova, length, Memory::User(umem))?;
        // Whoever still works with the old region finds it gone from here on.
        self.table.replace(key >> TAG_BITS, new)?;
        drop(old.memory.take());
        Ok(())
    }

    /// Makes the region of all kernel memory.
    pub(crate) fn add_kernel(
        &self,
        domain: Domain,
        access: u32,
        memory: DmaMemory,
    ) -> Result<Arc<Mr>> {
        self.add(domain, access, 0, u64::MAX, Memory::Kernel(memory))
    }

    /// Makes a region for fast registration.
    pub(crate) fn add_fast(&self, domain: Domain, max_pages: usize) -> Result<Arc<FastMr>> {
        let slot = reserve(&self.fast, Kind::Fast)?;
        let mr = FastMr::new(domain, key_of(slot.id()), max_pages)?;
        slot.fill(mr.clone())?;
        Ok(mr)
    }

    /// Makes a window.
    pub(crate) fn add_window(&self, domain: Domain, kind: MwKind) -> Result<Arc<Window>> {
        let slot = reserve(&self.windows, Kind::Window)?;
        let window = Window::new(domain, key_of(slot.id()), kind)?;
        slot.fill(window.clone())?;
        Ok(window)
    }

    fn add(
        &self,
        domain: Domain,
        access: u32,
        iova: u64,
        length: u64,
        memory: Memory,
    ) -> Result<Arc<Mr>> {
        // A range that wraps around would have addresses of two meanings.
        iova.checked_add(length).ok_or(EINVAL)?;
        let slot = reserve(&self.table, Kind::Region)?;
        let mr = Mr::new(key_of(slot.id()), domain, access, iova, length, memory)?;
        slot.fill(mr.clone())?;
        Ok(mr)
    }

    /// Deregisters a region: when this returns nothing accesses its memory, which is given back.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` while windows are bound: nothing has changed.
    pub(crate) fn remove(&self, key: u32) -> Result {
        if self
            .table
            .with(key >> TAG_BITS, |mr| mr.has_windows())
            .unwrap_or(false)
        {
            return Err(EBUSY);
        }
        if let Some(mr) = self.table.remove(key >> TAG_BITS) {
            drop(mr.memory.take());
        }
        Ok(())
    }

    /// Gives a region for fast registration up: nothing accesses its memory when this returns.
    pub(crate) fn remove_fast(&self, mr: &FastMr) {
        self.fast.remove(mr.first_key() >> TAG_BITS);
        mr.revoke();
    }

    /// Gives a window up: nothing is accessed through it when this returns.
    pub(crate) fn remove_window(&self, window: &Window) {
        self.windows.remove(window.first_key() >> TAG_BITS);
        window.revoke();
    }

    /// Finds a range that is to be got in, and where in its region it begins.
    ///
    /// # Errors
    ///
    /// Those of `ibv_advise_mr(3)`: `ENOENT` for what is no key of a region, `EPERM` for one of
    /// another domain or one that may not be written to, `EFAULT` for a range beyond it; `EINVAL`
    /// for a region that is not paged on demand.
    pub(crate) fn paged(&self, domain: Domain, range: &Sge, how: Paging) -> Result<(Arc<Mr>, u64)> {
        let rights = match how {
            Paging::Write => access::LOCAL_WRITE,
            Paging::Read | Paging::Present => 0,
        };
        let len = u64::from(range.length);
        let mr = self.table.get(range.lkey >> TAG_BITS).ok_or(ENOENT)?;
        let at = mr
            .check(domain, range.lkey, range.addr, len, rights)
            .map_err(|refusal| match refusal {
                Refusal::Unknown => ENOENT,
                Refusal::Domain | Refusal::Rights => EPERM,
                Refusal::Range | Refusal::Absent => EFAULT,
            })?;
        if !mr.is_paged() {
            return Err(EINVAL);
        }
        Ok((mr, at))
    }

    /// Invalidates a key, of fast registration or of a window of type 2, for the owner of a queue
    /// pair or for its peer.
    pub(crate) fn invalidate(&self, stats: &Stats, user: User, key: u32) -> Result<(), Refusal> {
        let index = key >> TAG_BITS;
        match Kind::of(key) {
            Kind::Region => Err(match self.table.get(index) {
                Some(_) => Refusal::Rights,
                None => Refusal::Unknown,
            }),
            Kind::Window => self
                .windows
                .with(index, |window| window.invalidate(user, key))
                .unwrap_or(Err(Refusal::Unknown)),
            Kind::Fast => self
                .fast
                .with(index, |mr| mr.invalidate(user.domain, key))
                .unwrap_or(Err(Refusal::Unknown)),
        }
        .inspect_err(|refusal| refusal.count(stats))
    }

    /// Binds a window, or unbinds it if the length is 0.
    pub(crate) fn bind(&self, stats: &Stats, user: User, bind: &Bind) -> Result<(), Refusal> {
        self.windows
            .get(bind.window_key >> TAG_BITS)
            .filter(|_| Kind::of(bind.window_key) == Kind::Window)
            .ok_or(Refusal::Unknown)
            .and_then(|window| {
                let mr = self
                    .table
                    .get(bind.mr_key >> TAG_BITS)
                    .filter(|_| bind.length > 0);
                window.bind(user, bind, mr)
            })
            .inspect_err(|refusal| refusal.count(stats))
    }

    /// Looks a key up for the peer of a queue pair.
    pub(crate) fn open(
        &self,
        stats: &Stats,
        user: User,
        key: u32,
        va: u64,
        len: u32,
        what: RemoteAccess,
    ) -> Result<RemoteRange, Refusal> {
        let rights = match what {
            RemoteAccess::Read => access::REMOTE_READ,
            RemoteAccess::Write => access::REMOTE_WRITE,
            RemoteAccess::Atomic => access::REMOTE_ATOMIC,
        };
        let (index, len) = (key >> TAG_BITS, u64::from(len));
        let found = match Kind::of(key) {
            Kind::Region => self
                .table
                .get(index)
                .ok_or(Refusal::Unknown)
                .and_then(|mr| {
                    let at = mr.check(user.domain, key, va, len, rights)?;
                    Ok((Target::Region(mr), at))
                }),
            Kind::Window => self
                .windows
                .get(index)
                .ok_or(Refusal::Unknown)
                .and_then(|window| {
                    let (bound, at) = Window::open(window, user, key, va, len, rights)?;
                    Ok((Target::Window(bound), at))
                }),
            Kind::Fast => self.fast.get(index).ok_or(Refusal::Unknown).and_then(|mr| {
                let (registration, at) = FastMr::open(mr, user.domain, key, va, len, rights)?;
                Ok((Target::Fast(registration), at))
            }),
        };
        found
            .map(|(target, at)| RemoteRange { target, at, len })
            .inspect_err(|refusal| refusal.count(stats))
    }

    /// Checks a FLUSH of the peer of a queue pair: of a range, or of all that the key covers.
    ///
    /// What the peer wrote was written by the processor, so it is visible as soon as that has
    /// left its buffers. To make it outlast a loss of power would take persistent memory, which
    /// is not told from other: no region is given that right.
    pub(crate) fn flush(
        &self,
        stats: &Stats,
        user: User,
        key: u32,
        range: Option<(u64, u32)>,
        kind: FlushKind,
    ) -> Result<(), Refusal> {
        let rights = kind.rights().bits();
        self.table
            .with(key >> TAG_BITS, |mr| {
                let (va, len) = range.unwrap_or((mr.iova, 0));
                mr.check(user.domain, key, va, u64::from(len), rights)
            })
            .unwrap_or(Err(Refusal::Unknown))
            .inspect_err(|refusal| refusal.count(stats))
            .map(|_| ())
    }

    /// Copies from the memory that a list names, beginning `skip` bytes into it.
    pub(crate) fn gather(
        &self,
        stats: &Stats,
        domain: Domain,
        list: &[Sge],
        skip: u32,
        out: &mut [u8],
    ) -> Result<(), ListFault> {
        let mut rest = out;
        for_pieces(list, skip, rest.len(), |piece| {
            let (now, later) = core::mem::take(&mut rest).split_at_mut(piece.length as usize);
            rest = later;
            match Kind::of(piece.lkey) {
                Kind::Region => self.local(stats, domain, piece, 0, |mr, at| mr.read(at, now)),
                _ => self.local_fast(stats, piece, |mr, key, va| mr.gather(domain, key, va, now)),
            }
        })
    }

    /// Where the memory lies that a list names, beginning `skip` bytes into it, if an entry names a
    /// plain, steady region. If it does not serve, that is not counted.
    pub(crate) fn steady(&self, domain: Domain, list: &[Sge], skip: u32) -> Option<Steady> {
        let mut skip = skip;
        let entry = list.iter().find(|sge| {
            let within = skip < sge.length;
            skip -= if within { 0 } else { sge.length };
            within
        })?;
        if Kind::of(entry.lkey) != Kind::Region {
            return None;
        }
        let (va, len) = (entry.addr.checked_add(skip.into())?, entry.length - skip);
        let len = u64::from(len);
        self.table.with(entry.lkey >> TAG_BITS, |mr| {
            let at = mr.check(domain, entry.lkey, va, len, 0).ok()?;
            mr.is_steady().then(|| Steady {
                mr: mr.into(),
                at,
                len,
            })
        })?
    }

    /// Copies to the memory that a list names, beginning `skip` bytes into it.
    pub(crate) fn scatter(
        &self,
        stats: &Stats,
        domain: Domain,
        list: &[Sge],
        skip: u32,
        data: Bytes<'_>,
    ) -> Result<(), ListFault> {
        let mut rest = data;
        for_pieces(list, skip, data.len(), |piece| {
            let (now, later) = rest.split_at(piece.length as usize);
            rest = later;
            match Kind::of(piece.lkey) {
                Kind::Region => self.local(stats, domain, piece, access::LOCAL_WRITE, |mr, at| {
                    mr.write(at, now)
                }),
                _ => self.local_fast(stats, piece, |mr, key, va| mr.scatter(domain, key, va, now)),
            }
        })
    }

    /// As [`Self::local`], for regions of fast registration, which check the access themselves.
    /// The key of a window is none to be used locally.
    fn local_fast(
        &self,
        stats: &Stats,
        piece: &Sge,
        f: impl FnOnce(&FastMr, u32, u64) -> Result<(), Refusal>,
    ) -> Result<(), ListFault> {
        Some(piece.lkey)
            .filter(|key| Kind::of(*key) == Kind::Fast)
            .and_then(|key| {
                self.fast
                    .with(key >> TAG_BITS, |mr| f(&mr, key, piece.addr))
            })
            .unwrap_or(Err(Refusal::Unknown))
            .map_err(|why| why.of_entry(stats, piece))
    }

    fn local(
        &self,
        stats: &Stats,
        domain: Domain,
        piece: &Sge,
        rights: u32,
        f: impl FnOnce(ArcBorrow<'_, Mr>, u64) -> Result<(), Refusal>,
    ) -> Result<(), ListFault> {
        self.table
            .with(piece.lkey >> TAG_BITS, |mr| {
                let len = u64::from(piece.length);
                let at = mr.check(domain, piece.lkey, piece.addr, len, rights)?;
                f(mr, at)
            })
            .unwrap_or(Err(Refusal::Unknown))
            .map_err(|why| why.of_entry(stats, piece))
    }
}

/// Calls `f` with each piece of `len` bytes of a list, beginning `skip` bytes into it.
fn for_pieces(
    list: &[Sge],
    skip: u32,
    len: usize,
    mut f: impl FnMut(&Sge) -> Result<(), ListFault>,
) -> Result<(), ListFault> {
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
        Err(Refusal::Range.into())
    }
}
