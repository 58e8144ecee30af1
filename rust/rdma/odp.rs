// SPDX-License-Identifier: GPL-2.0

//! Memory of processes that is paged on demand.
//!
//! Nothing is pinned. The kernel tells when pages go (they are swapped out, given back, copied on
//! write, unmapped), and from then on they are absent here. An access looks at what is there and
//! copies under one lock; if a page is absent, nothing happens except that somebody who may sleep
//! is asked to fault it in, and the access is to be tried again.

use core::{
    ops::Range,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_ulong,
        c_void, //
    },
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use rdma_bindings as bindings;
use softirq::{
    new_bh_spinlock,
    BhSpinLock,
    Gate,
    IdTable, //
};

use crate::{
    memory::{
        page_count,
        page_table,
        Bytes,
        Word, //
    },
    object::Device,
    Provider, //
};

/// Pages that are faulted in beyond those that are needed, if that can be done.
const AHEAD: usize = 16;
/// In the address of a page: it may be written to.
const WRITABLE: usize = 1;
/// It was written to, which its process's page tables don't know of.
const WRITTEN: usize = 2;
/// Pages that go at a time: who wants to access others may have to wait for so many.
const GOING: usize = 64;
/// What could not be faulted in may be there after so long: who waits for it asks more often.
const FAILED_NS: u64 = 20_000_000;
/// Between two looks whether it is one's turn.
const TURN_MS: i64 = 1;

/// Pages that are prefetched at a time.
const AT_ONCE: usize = 512;

/// Whether the kernel has what it takes.
pub const HAS_ODP: bool = cfg!(CONFIG_INFINIBAND_ON_DEMAND_PAGING);

/// Why an access did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OdpFault {
    /// It is outside of the memory, misaligned, not permitted, or there is no memory.
    Denied,
    /// The memory is not there now. Try again a little later.
    Absent,
}

/// How pages get here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// They are faulted in, to be read.
    Read,
    /// They are faulted in, to be written to.
    Write,
    /// Those that the process has at hand are found.
    Present,
}

impl Paging {
    /// What an access takes.
    fn of(write: bool) -> Self {
        if write {
            Self::Write
        } else {
            Self::Read
        }
    }
}

/// Pages that an access needs.
#[derive(Clone)]
struct Need {
    pages: Range<usize>,
    write: bool,
}

/// What is to be faulted in: one thing at a time. Whoever else waits asks again.
#[derive(Default)]
enum Faults {
    #[default]
    Idle,
    /// This is to be faulted in.
    Needed(Need),
    /// This could not be, which is to be told to who asks for it by then. Nothing else is faulted
    /// in before: else those whose memory isn't there could displace each other's answers for ever.
    Failed(Need, u64),
}

impl Faults {
    /// Tells why pages that an access needs are not there, and remembers to fault them in.
    fn fault(&mut self, pages: Range<usize>, write: bool) -> OdpFault {
        match self {
            Self::Failed(need, until) if softirq::now_ns() < *until => {
                if need.pages.start == pages.start && need.write == write {
                    *self = Self::Idle;
                    return OdpFault::Denied;
                }
            }
            Self::Needed(_) => (),
            Self::Idle | Self::Failed(..) => *self = Self::Needed(Need { pages, write }),
        }
        OdpFault::Absent
    }

    /// What is to be faulted in.
    fn needed(&self) -> Option<Need> {
        match self {
            Self::Needed(need) => Some(need.clone()),
            Self::Idle | Self::Failed(..) => None,
        }
    }

    /// Something was done about `need`.
    fn done(&mut self, need: Need, result: Result) {
        *self = match result {
            // Too much was going on: whoever needs it asks again.
            Ok(()) | Err(EBUSY) | Err(EAGAIN) => Self::Idle,
            Err(_) => Self::Failed(need, softirq::now_ns().saturating_add(FAILED_NS)),
        };
    }
}

/// What the lock protects.
struct Map {
    /// The address of each page in the kernel's direct map, plus [`WRITABLE`] and [`WRITTEN`]; 0:
    /// absent.
    pages: KVVec<usize>,
    faults: Faults,
}

impl Map {
    /// Strikes out up to [`GOING`] pages, and returns the addresses of those that were written to.
    fn strike_out(&mut self, first: usize, end: usize) -> impl Iterator<Item = usize> {
        let mut written = [0; GOING];
        let end = end.min(first.saturating_add(GOING));
        let entries = self.pages.get_mut(first..end).into_iter().flatten();
        for (entry, written) in entries.zip(&mut written) {
            if *entry & WRITTEN != 0 {
                *written = address_of(*entry);
            }
            *entry = 0;
        }
        written.into_iter().filter(|page| *page != 0)
    }
}

/// The turn to page something in, of one umem: the core notes what it finds in the umem before it
/// takes the umem's lock.
///
/// Whoever has it may have to wait for what only the process can bring about. So the process doesn't
/// wait for it in a way that it could not be killed.
struct Turn<'a>(&'a Atomic<u32>);

impl<'a> Turn<'a> {
    /// Takes it, if nobody has it.
    fn take(of: &'a Atomic<u32>) -> Option<Self> {
        // Not `then_some`: one that isn't taken would be made all the same, and given back.
        (of.xchg(1, ordering::Full) == 0).then(|| Self(of))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, ordering::Release);
    }
}

/// What there is of the memory as long as someone may be about to fault pages in.
///
/// # Invariants
///
/// - `raw` is a valid umem until `gate` has been closed and [`OdpUmem`] released it.
/// - `map.pages` has an entry for each of its pages. While the lock of `map` is held, an entry
///   other than 0 is the address of a page that is the process's at that place, and mapped.
#[pin_data]
struct Shared {
    raw: NonNull<bindings::ib_umem_odp>,
    /// Where in the first page the memory begins.
    offset: usize,
    length: usize,
    writable: bool,
    #[pin]
    gate: Gate,
    turn: Atomic<u32>,
    #[pin]
    map: BhSpinLock<Map>,
    #[pin]
    work: Work<Shared>,
}

// SAFETY: A umem may be used and released by any thread that may sleep.
unsafe impl Send for Shared {}
// SAFETY: What is not under the lock does not change, and the umem has a lock of its own.
unsafe impl Sync for Shared {}

impl_has_work! {
    impl HasWork<Self> for Shared { self.work }
}

impl WorkItem for Shared {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Nobody needs pages of memory that is given up.
        let Some(_pass) = this.gate.enter() else {
            return;
        };
        // Else whoever has it will look, or who needs pages will ask again.
        if let Some(turn) = Turn::take(&this.turn) {
            while this.serve(&turn) {}
        }
    }
}

impl Shared {
    /// Waits for the turn. May sleep.
    ///
    /// # Errors
    ///
    /// `EINTR` when a signal is pending.
    fn wait_for_turn(&self) -> Result<Turn<'_>> {
        loop {
            if kernel::current!().signal_pending() {
                return Err(EINTR);
            }
            if let Some(turn) = Turn::take(&self.turn) {
                return Ok(turn);
            }
            fsleep(Delta::from_millis(TURN_MS));
        }
    }

    /// Faults in what is needed, if anything is.
    fn serve(&self, turn: &Turn<'_>) -> bool {
        let need = self.map.lock().faults.needed();
        let Some(need) = need else {
            return false;
        };
        let result = self.page_in_and_ahead(turn, &need);
        self.map.lock().faults.done(need, result);
        true
    }

    /// Faults in what is needed, and some more if that can be done: beyond there may be no memory.
    fn page_in_and_ahead(&self, turn: &Turn<'_>, need: &Need) -> Result {
        let Range { start, end } = need.pages;
        let count = self.map.lock().pages.len();
        let ahead = end.saturating_add(AHEAD).min(count);
        let how = Paging::of(need.write);
        self.page_in(turn, start..ahead, how)
            .or_else(|_| self.page_in(turn, start..end, how))
    }

    /// Gets pages in. The gate must have been entered, unless this was just made.
    fn page_in(&self, _turn: &Turn<'_>, pages: Range<usize>, how: Paging) -> Result {
        let raw = self.raw.as_ptr();
        // SAFETY:
        // - the umem is valid: the gate has been entered, or nobody else knows of it yet;
        // - the range is within it: it was made from places within `map.pages`.
        to_result(unsafe {
            bindings::odp_page_in_and_lock(
                raw,
                pages.start as c_ulong,
                pages.len() as c_ulong,
                how == Paging::Write,
                how != Paging::Present,
            )
        })?;
        let mut hidden = false;
        {
            let mut map = self.map.lock();
            for i in pages {
                // SAFETY: As above, and locked.
                let mut page = unsafe { bindings::odp_page(raw, i as c_ulong) };
                // SAFETY: It is the address of a page, whether anything is mapped there or not.
                if page != 0 && !unsafe { bindings::odp_is_mapped(address_of(page) as c_ulong) } {
                    hidden = true;
                    page = 0;
                }
                if let Some(entry) = map.pages.get_mut(i) {
                    // INVARIANT: The page is there until `pages_go` says that it goes, with the lock of
                    // the umem and that of the map. Until then it is as mapped as it is now: that is
                    // up to what it was allocated for.
                    *entry = if page == 0 {
                        0
                    } else {
                        page | *entry & WRITTEN
                    };
                }
            }
        }
        // SAFETY: Locked above.
        unsafe { bindings::odp_unlock(raw) };
        if hidden && how != Paging::Present {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Pages go: when this returns they are not accessed any more, and what was written to them is not
    /// lost with them.
    ///
    /// # Safety
    ///
    /// The umem must be valid and locked.
    unsafe fn pages_go(&self, pages: Range<usize>) {
        let end = pages.end.min(self.map.lock().pages.len());
        for first in (pages.start..end).step_by(GOING) {
            // The lock is released by then: to mark them takes others, and may take long.
            let written = self.map.lock().strike_out(first, end);
            for page in written {
                // SAFETY: By the type invariant it was a page of the process a moment ago, and none goes
                // while the umem is locked.
                unsafe { bindings::odp_dirty(page as c_ulong) };
            }
        }
    }
}

/// The address of a page, of its entry.
fn address_of(entry: usize) -> usize {
    entry & !(PAGE_SIZE - 1)
}

/// Pages of an [`OdpUmem`] go: when this returns they are not accessed any more.
///
/// # Safety
///
/// `owner` must be what was handed to `odp_set_owner`, by an [`OdpUmem`] that has not released its
/// umem, which must be locked.
#[no_mangle]
unsafe extern "C" fn rxo_odp_pages_go(owner: *mut c_void, first: c_ulong, count: c_ulong) {
    // SAFETY: By the safety requirements it is the memory of the `Arc` of such an `OdpUmem`.
    let shared = unsafe { &*owner.cast::<Shared>() };
    // SAFETY: It has not been released, and by the safety requirements it is locked.
    unsafe { shared.pages_go(first..first.saturating_add(count)) };
}

/// Memory of a process, paged on demand.
///
/// The process may write to it at any time, and there is no reference to it ever.
///
/// # Invariants
///
/// The owner of the umem is `shared`.
pub struct OdpUmem {
    shared: Arc<Shared>,
    closed: Atomic<u32>,
}

impl OdpUmem {
    /// Takes `length` bytes of the current process from address `start`, whether there is memory
    /// or not. `access` are flags of [`crate::access`], [`crate::access::ON_DEMAND`] among them.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty range, `EOVERFLOW` for a wrapping one, `ENOMEM`.
    pub fn new<P: Provider>(
        device: &Device<P>,
        start: u64,
        length: u64,
        access: u32,
    ) -> Result<Self> {
        let start = usize::try_from(start).map_err(|_| EINVAL)?;
        let length = usize::try_from(length).map_err(|_| EINVAL)?;
        if length == 0 {
            return Err(EINVAL);
        }
        // SAFETY: The device is valid; the function checks the range itself.
        let raw = from_err_ptr(unsafe {
            bindings::odp_get(device.as_raw(), start as c_ulong, length, access as i32)
        })?;
        let raw = Raw(NonNull::new(raw).ok_or(EINVAL)?);
        Self::of(raw, start % PAGE_SIZE, length)
    }

    /// Memory of `length` bytes that begins `offset` bytes into the first page of a new umem.
    fn of(raw: Raw, offset: usize, length: usize) -> Result<Self> {
        let pages = page_table(page_count(offset, length)?)?;
        // SAFETY: It is a umem.
        let writable = unsafe { bindings::odp_is_writable(raw.0.as_ptr()) };
        let shared = Arc::pin_init(
            pin_init!(Shared {
                raw: raw.0,
                offset,
                length,
                writable,
                gate <- Gate::new(),
                turn: Atomic::new(0),
                map <- new_bh_spinlock!(Map {
                    pages,
                    faults: Faults::default(),
                }, "OdpUmem::map"),
                work <- new_work!("OdpUmem::work"),
            }),
            GFP_KERNEL,
        )?;
        let owner: *const Shared = &*shared;
        // SAFETY: The umem is valid, and so is its owner until the umem is released: see `close`.
        unsafe { bindings::odp_set_owner(raw.0.as_ptr(), owner.cast_mut().cast()) };
        // It is released by `close` from here on.
        core::mem::forget(raw);
        // INVARIANT: Just done.
        Ok(Self {
            shared,
            closed: Atomic::new(0),
        })
    }

    /// Gives the memory up: when this returns nobody looks at it or its process any more, and
    /// nothing of it is there. May sleep; to be called without an access under way.
    fn close(&self) {
        // Whoever faults pages in is done with the umem then.
        self.shared.gate.close();
        if self.closed.xchg(1, ordering::Full) != 0 {
            return;
        }
        let raw = self.shared.raw.as_ptr();
        // SAFETY: Valid by the type invariant of `Shared`; it is locked for the second.
        unsafe {
            bindings::odp_lock(raw);
            self.shared.pages_go(0..usize::MAX);
            bindings::odp_unlock(raw);
        }
        // SAFETY: As above, and used no more. When this returns nobody is told of pages any more, so
        // `shared` may go.
        unsafe { bindings::odp_release(raw) };
    }

    /// Gets the pages of a range in, ahead of their use. May sleep, for as long as the range is
    /// long.
    ///
    /// # Errors
    ///
    /// `EFAULT` for a range that is not within the memory, or where the process has none; `EPERM`
    /// if it may not be written to; `EINTR` when a signal is pending.
    pub fn prefetch(&self, at: usize, len: usize, how: Paging) -> Result {
        let shared = &self.shared;
        let _pass = shared.gate.enter().ok_or(EFAULT)?;
        if at > shared.length || len > shared.length - at {
            return Err(EFAULT);
        }
        if how == Paging::Write && !shared.writable {
            return Err(EPERM);
        }
        // No overflow: `at + len <= length`, and `offset + length` was checked in `of`.
        let at = shared.offset + at;
        let pages = at / PAGE_SIZE..(at + len).div_ceil(PAGE_SIZE);
        for first in pages.clone().step_by(AT_ONCE) {
            let turn = shared.wait_for_turn()?;
            // An access waits for that.
            shared.serve(&turn);
            shared.page_in(&turn, first..pages.end.min(first + AT_ONCE), how)?;
        }
        Ok(())
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.shared.length
    }

    /// Never true: there is no empty memory.
    pub fn is_empty(&self) -> bool {
        self.shared.length == 0
    }

    /// Calls `f` with address and length of each piece of a range that is contiguous, if all of
    /// it is there. No page goes meanwhile.
    fn pieces(
        &self,
        at: usize,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result<(), OdpFault> {
        let shared = &self.shared;
        if at > shared.length || len > shared.length - at || (write && !shared.writable) {
            return Err(OdpFault::Denied);
        }
        // No overflow: `at + len <= length`, and `offset + length` was checked in `new`.
        let mut at = shared.offset + at;
        let pages = at / PAGE_SIZE..(at + len).div_ceil(PAGE_SIZE);
        let mut map = shared.map.lock();
        let usable = |page: &usize| *page != 0 && (!write || *page & WRITABLE != 0);
        let there = map.pages.get(pages.clone()).ok_or(OdpFault::Denied)?;
        if let Some(i) = there.iter().position(|page| !usable(page)) {
            let fault = map.faults.fault(pages.start + i..pages.end, write);
            drop(map);
            if fault == OdpFault::Absent {
                // That it is on its way already is no error; nor that the module is going, when
                // there are no regions any more.
                let _ = softirq::in_background(shared.clone());
            }
            return Err(fault);
        }
        let mut left = len;
        while left > 0 {
            let entry = map.pages.get_mut(at / PAGE_SIZE).ok_or(OdpFault::Denied)?;
            if write {
                *entry |= WRITTEN;
            }
            let page = core::ptr::with_exposed_provenance_mut::<u8>(address_of(*entry));
            let n = left.min(PAGE_SIZE - at % PAGE_SIZE);
            f(page.wrapping_add(at % PAGE_SIZE), n);
            at += n;
            left -= n;
        }
        Ok(())
    }

    /// Copies out of the memory, from byte `at` on. Any context.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), OdpFault> {
        let mut done = 0;
        let len = out.len();
        self.pieces(at, len, false, |p, n| {
            // SAFETY:
            // - `p` is valid for `n` bytes: in a page of the process, which stays as long as the
            //   lock is held that `pieces` holds;
            // - the pieces add up to `len`, so `done + n <= out.len()`;
            // - the memory is that of a process, `out` is the kernel's: they don't overlap.
            unsafe { core::ptr::copy_nonoverlapping(p, out.as_mut_ptr().add(done), n) };
            done += n;
        })
    }

    /// Copies into the memory, at byte `at`. Any context.
    pub fn write(&self, at: usize, data: Bytes<'_>) -> Result<(), OdpFault> {
        let mut rest = data;
        self.pieces(at, data.len(), true, |p, n| {
            let (now, later) = rest.split_at(n);
            rest = later;
            // SAFETY: `p` is valid for `n` bytes, in a page that may be written to and stays
            // meanwhile, and `now` has no more than that.
            unsafe { now.copy_to_raw(p) };
        })
    }

    /// Calls `f` with the 8 aligned bytes at `at`. Any context.
    pub fn with_word<R>(&self, at: usize, f: impl FnOnce(Word<'_>) -> R) -> Result<R, OdpFault> {
        let mut f = Some(f);
        let mut ret = None;
        if (self.shared.offset + at) % 8 != 0 {
            return Err(OdpFault::Denied);
        }
        // One piece, as it is aligned.
        self.pieces(at, 8, true, |p, _| {
            // SAFETY: In a page that may be written to, which stays meanwhile.
            ret = f
                .take()
                .zip(unsafe { Word::new(p) })
                .map(|(f, word)| f(word));
        })?;
        ret.ok_or(OdpFault::Denied)
    }
}

impl Drop for OdpUmem {
    fn drop(&mut self) {
        self.close();
    }
}

/// A umem that nobody else knows of yet; released when dropped.
struct Raw(NonNull<bindings::ib_umem_odp>);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: It is a umem, and nobody has it.
        unsafe { bindings::odp_release(self.0.as_ptr()) };
    }
}

/// Bytes of the parts that all memory of a process is divided into.
const PART: usize = 2 << 20;
/// Parts that can be in use: with 2 MB each, as much memory as anyone has.
const PARTS: usize = 1 << 20;

/// What there is of all memory of a process as long as someone may be about to add to it.
///
/// # Invariants
///
/// `root` is a valid umem until `gate` has been closed and [`OdpSpace`] released it.
#[pin_data]
struct Space {
    root: NonNull<bindings::ib_umem_odp>,
    #[pin]
    gate: Gate,
    #[pin]
    faults: BhSpinLock<Faults>,
    #[pin]
    parts: IdTable<OdpUmem>,
    /// The same, in order to give them up.
    list: Pin<KBox<Mutex<KVVec<Arc<OdpUmem>>>>>,
    #[pin]
    work: Work<Space>,
}

// SAFETY: As for `Shared`.
unsafe impl Send for Space {}
// SAFETY: As for `Shared`.
unsafe impl Sync for Space {}

impl_has_work! {
    impl HasWork<Self> for Space { self.work }
}

impl WorkItem for Space {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(_pass) = this.gate.enter() else {
            return;
        };
        loop {
            let need = this.faults.lock().needed();
            let Some(need) = need else { break };
            let result = this.add_part(&need);
            this.faults.lock().done(need, result);
        }
    }
}

impl Space {
    /// Adds the part that pages lie in, if there is memory.
    fn add_part(&self, need: &Need) -> Result {
        let pages = PART / PAGE_SIZE;
        let id = need.pages.start / pages;
        let first = id * pages;
        let id = u32::try_from(id).map_err(|_| EFAULT)?;
        if self.parts.get(id).is_some() {
            return Ok(());
        }
        // SAFETY: The root is valid, as the gate has been entered.
        let raw = from_err_ptr(unsafe {
            bindings::odp_get_part(self.root.as_ptr(), (first * PAGE_SIZE) as c_ulong, PART)
        })?;
        let part = OdpUmem::of(Raw(NonNull::new(raw).ok_or(EINVAL)?), 0, PART)?;
        let part = Arc::new(part, GFP_KERNEL)?;
        // Where there is no memory there are no parts either, so that their number is bounded.
        let need = Need {
            pages: need.pages.start - first..(need.pages.end - first).min(pages),
            write: need.write,
        };
        let turn = Turn::take(&part.shared.turn).ok_or(EBUSY)?;
        part.shared.page_in_and_ahead(&turn, &need)?;
        drop(turn);
        // Nobody waits for this with the memory of a process awaited: that may take as long as it likes.
        let mut list = self.list.lock();
        if self.parts.get(id).is_some() {
            // Somebody else was faster; this one goes when the lock has been released.
            drop(list);
            return Ok(());
        }
        if list.len() >= PARTS {
            drop(list);
            return Err(ENOMEM);
        }
        list.push(part.clone(), GFP_KERNEL)?;
        self.parts.insert_at(id, part)
    }
}

/// All memory of a process, paged on demand, also what it will have only later.
pub struct OdpSpace {
    space: Arc<Space>,
}

impl OdpSpace {
    /// Takes the memory of the current process. `access` are flags of [`crate::access`],
    /// [`crate::access::ON_DEMAND`] among them. May sleep.
    pub fn new<P: Provider>(device: &Device<P>, access: u32) -> Result<Self> {
        // SAFETY: The device is valid.
        let raw = from_err_ptr(unsafe { bindings::odp_get_space(device.as_raw(), access as i32) })?;
        let raw = Raw(NonNull::new(raw).ok_or(EINVAL)?);
        let list = KBox::pin_init(new_mutex!(KVVec::new(), "OdpSpace::list"), GFP_KERNEL)?;
        let space = Arc::pin_init(
            pin_init!(Space {
                root: raw.0,
                gate <- Gate::new(),
                faults <- new_bh_spinlock!(Faults::default(), "OdpSpace::faults"),
                parts <- IdTable::new(c"rxo-odp-parts"),
                list,
                work <- new_work!("OdpSpace::work"),
            }),
            GFP_KERNEL,
        )?;
        core::mem::forget(raw);
        Ok(Self { space })
    }

    /// Calls `f` with each part of a range: the part, where the range begins in it, and which
    /// bytes of the range are there.
    fn parts(
        &self,
        va: usize,
        len: usize,
        write: bool,
        mut f: impl FnMut(&OdpUmem, usize, Range<usize>) -> Result<(), OdpFault>,
    ) -> Result<(), OdpFault> {
        let end = va.checked_add(len).ok_or(OdpFault::Denied)?;
        let mut at = va;
        while at < end {
            let id = u32::try_from(at / PART).map_err(|_| OdpFault::Denied)?;
            let n = (PART - at % PART).min(end - at);
            let bytes = at - va..at - va + n;
            match self.space.parts.with(id, |part| f(&part, at % PART, bytes)) {
                Some(done) => done?,
                None => {
                    let pages = at / PAGE_SIZE..(at + n).div_ceil(PAGE_SIZE);
                    let fault = self.space.faults.lock().fault(pages, write);
                    if fault == OdpFault::Absent {
                        let _ = softirq::in_background(self.space.clone());
                    }
                    return Err(fault);
                }
            }
            at += n;
        }
        Ok(())
    }

    /// As [`OdpUmem::prefetch`], by address.
    pub fn prefetch(&self, va: usize, len: usize, how: Paging) -> Result {
        let space = &self.space;
        let _pass = space.gate.enter().ok_or(EFAULT)?;
        let end = va.checked_add(len).ok_or(EFAULT)?;
        let mut at = va;
        while at < end {
            let id = u32::try_from(at / PART).map_err(|_| EFAULT)?;
            let n = (PART - at % PART).min(end - at);
            // Of a part that nobody asked for so far there is nothing at hand.
            if how != Paging::Present && space.parts.get(id).is_none() {
                space.add_part(&Need {
                    pages: at / PAGE_SIZE..(at + n).div_ceil(PAGE_SIZE),
                    write: how == Paging::Write,
                })?;
            }
            if let Some(part) = space.parts.get(id) {
                part.prefetch(at % PART, n, how)?;
            }
            at += n;
        }
        Ok(())
    }

    /// Copies out of the memory, from address `va` on. Any context.
    pub fn read(&self, va: usize, out: &mut [u8]) -> Result<(), OdpFault> {
        let len = out.len();
        self.parts(va, len, false, |part, at, bytes| {
            part.read(at, out.get_mut(bytes).ok_or(OdpFault::Denied)?)
        })
    }

    /// Copies into the memory, at address `va`. Any context.
    pub fn write(&self, va: usize, data: Bytes<'_>) -> Result<(), OdpFault> {
        self.parts(va, data.len(), true, |part, at, bytes| {
            let (_, from) = data.split_at(bytes.start);
            part.write(at, from.split_at(bytes.len()).0)
        })
    }

    /// Calls `f` with the 8 aligned bytes at `va`. Any context.
    pub fn with_word<R>(&self, va: usize, f: impl FnOnce(Word<'_>) -> R) -> Result<R, OdpFault> {
        let mut f = Some(f);
        let mut ret = Err(OdpFault::Denied);
        if va.is_multiple_of(8) {
            // In one part, as it is aligned.
            self.parts(va, 8, true, |part, at, _| {
                if let Some(f) = f.take() {
                    ret = part.with_word(at, f);
                }
                Ok(())
            })?;
        }
        ret
    }
}

impl Drop for OdpSpace {
    fn drop(&mut self) {
        // No part is added from here on.
        self.space.gate.close();
        for part in self.space.list.lock().iter() {
            part.close();
        }
        // SAFETY: Valid by the type invariant of `Space`, and used no more; its parts are gone.
        unsafe { bindings::odp_release(self.space.root.as_ptr()) };
    }
}
