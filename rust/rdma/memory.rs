// SPDX-License-Identifier: GPL-2.0

//! Memory that a provider moves data to and from: pinned memory of processes, and memory
//! of the kernel that kernel consumers name by its address.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    ffi::{
        c_int,
        c_uint, //
    },
    page::PAGE_SIZE,
    prelude::*, //
};
use rdma_bindings as bindings;

use crate::{
    object::Device,
    Provider, //
};

/// An access that memory does not allow: outside of it, misaligned, or to be written though
/// pinned for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault;

/// Bytes to copy from: the kernel's own, or registered memory.
///
/// Others may write to registered memory at any time: what is copied may be torn, and no reference
/// to it is ever made.
///
/// # Invariants
///
/// `from` is valid for reads of `len` bytes during `'a`.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    from: *const u8,
    len: usize,
    _p: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // INVARIANT: A slice is valid for as long as it is borrowed.
        Self {
            from: bytes.as_ptr(),
            len: bytes.len(),
            _p: PhantomData,
        }
    }
}

impl Bytes<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `n`, or all if there are fewer, and the others.
    pub fn split_at(self, n: usize) -> (Self, Self) {
        let n = n.min(self.len);
        // INVARIANT: Both are parts of what is valid.
        (
            Self { len: n, ..self },
            Self {
                from: self.from.wrapping_add(n),
                len: self.len - n,
                ..self
            },
        )
    }

    /// Copies as many of them as there is room for.
    pub fn copy_to(&self, out: &mut [u8]) {
        let n = self.len.min(out.len());
        // SAFETY:
        // - readable, by the type invariant, and `out` is writable for as many;
        // - `out` is borrowed by nobody else and is memory of the kernel's own, so they don't
        //   overlap.
        unsafe { core::ptr::copy_nonoverlapping(self.from, out.as_mut_ptr(), n) };
    }

    /// Copies all of them.
    ///
    /// # Safety
    ///
    /// `to` must be valid for writes of as many.
    pub(crate) unsafe fn copy_to_raw(&self, to: *mut u8) {
        // SAFETY: By the type invariant and the caller's promise. Both may be parts of the same
        // registered memory, so they may overlap.
        unsafe { core::ptr::copy(self.from, to, self.len) };
    }
}

/// Eight aligned bytes of registered memory, for what is to be done as one step.
///
/// # Invariants
///
/// It is aligned, and valid for reads and writes during `'a`.
pub struct Word<'a>(*mut kernel::bindings::atomic64_t, PhantomData<&'a ()>);

impl Word<'_> {
    /// The eight bytes at `at`; [`None`] if they are not aligned.
    ///
    /// # Safety
    ///
    /// They must be valid for reads and writes during the lifetime of the result.
    pub(crate) unsafe fn new(at: *mut u8) -> Option<Self> {
        // INVARIANT: Aligned, and valid by the caller's promise.
        at.addr()
            .is_multiple_of(8)
            .then_some(Self(at.cast(), PhantomData))
    }

    /// Adds and returns what was there before.
    pub fn fetch_add(&self, add: u64) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::atomic64_fetch_add_at(self.0, add as i64) as u64 }
    }

    /// Writes `swap` if what is there equals `compare`, and returns what was there before.
    pub fn compare_swap(&self, compare: u64, swap: u64) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::atomic64_cmpxchg_at(self.0, compare as i64, swap as i64) as u64 }
    }

    /// Writes, after everything that was written before.
    pub fn store(&self, bytes: [u8; 8]) {
        // SAFETY: By the type invariant.
        unsafe { bindings::atomic64_set_release_at(self.0, i64::from_ne_bytes(bytes)) }
    }
}

/// Pages that a region has at most: the kernel allocates no larger tables of them, and warns of who
/// asks for one. That is 1 TiB.
const MOST_PAGES: usize = i32::MAX as usize / size_of::<usize>();

/// How many pages `length` bytes lie in that begin `offset` bytes into the first.
///
/// # Errors
///
/// `EOVERFLOW`; `ENOMEM` if they are too many for a table.
pub(crate) fn page_count(offset: usize, length: usize) -> Result<usize> {
    let bytes = offset.checked_add(length).ok_or(EOVERFLOW)?;
    let count = bytes.div_ceil(PAGE_SIZE);
    if count > MOST_PAGES {
        return Err(ENOMEM);
    }
    Ok(count)
}

/// A table of so many pages. What is not worth such a table should have been refused before.
pub(crate) fn page_table(count: usize) -> Result<KVVec<usize>> {
    Ok(KVVec::from_elem(0usize, count, GFP_KERNEL | __GFP_NOWARN)?)
}

/// Pinned memory of a process.
///
/// The pages may be written by the process at any time: what is read may be torn, and no
/// reference to the memory is ever made.
///
/// # Invariants
///
/// - `raw` is a valid umem that pins its pages until it is released.
/// - `pages` holds the address, in the kernel's direct map, of each page from the one that
///   `offset` lies in to the one of the last byte; `offset < PAGE_SIZE`.
/// - If `writable`, the pages were pinned for writing.
pub struct Umem {
    raw: NonNull<bindings::ib_umem>,
    start: usize,
    pages: KVVec<usize>,
    offset: usize,
    length: usize,
    writable: bool,
}

// SAFETY: A umem may be used and released by any thread that may sleep.
unsafe impl Send for Umem {}
// SAFETY: Shared use copies from and to the pages, which is raced with user space anyway.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `length` bytes of the current process from address `start`.
    ///
    /// `access` are flags of [`crate::access`]: without any that writes, the memory is pinned
    /// for reading. The memory counts against `RLIMIT_MEMLOCK`. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty or wrapping range, `EFAULT` for memory that is not mapped (or not
    /// writable), `ENOMEM` when the limit is reached or memory is short, `EPERM` as
    /// `ib_umem_get_va` has it.
    pub fn pin<P: Provider>(
        device: &Device<P>,
        start: u64,
        length: u64,
        access: u32,
    ) -> Result<Self> {
        let length = usize::try_from(length).map_err(|_| EINVAL)?;
        let start = usize::try_from(start).map_err(|_| EINVAL)?;
        if length == 0 {
            return Err(EINVAL);
        }
        // As the core has it, which is not asked if the range is too long.
        start
            .checked_add(length)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .ok_or(EINVAL)?;
        let offset = start % PAGE_SIZE;
        let count = page_count(offset, length)?;
        // SAFETY: The device is valid; the function checks the range itself.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_get_va(device.as_raw(), start, length, access as i32)
        })?;
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        let mut this = Self {
            raw,
            start,
            pages: KVVec::new(),
            offset,
            length,
            // SAFETY: `raw` is valid.
            writable: unsafe { raw.as_ref().writable() } != 0,
        };
        // Only now, as it is known that the process may have so much.
        this.pages = page_table(count)?;
        // SAFETY: The umem is valid and the array has room for `count` addresses.
        let got = unsafe {
            bindings::ib_umem_page_addresses(raw.as_ptr(), this.pages.as_mut_ptr().cast(), count)
        };
        // INVARIANT: All addresses have been written.
        if got != count {
            return Err(EFAULT);
        }
        Ok(this)
    }

    /// The address in the process that the memory begins at.
    pub fn start(&self) -> u64 {
        self.start as u64
    }

    /// Tells whether the memory was pinned for writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Tells whether it is memory of the current process.
    pub fn is_current(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::ib_umem_is_current(self.raw.as_ptr()) }
    }

    /// Bytes pinned.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never true: empty memory can't be pinned.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Calls `f` with address and length of each piece of the range that is contiguous, until it
    /// fails.
    fn pieces<E: From<MemoryFault>>(
        &self,
        at: usize,
        len: usize,
        mut f: impl FnMut(*mut u8, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if at > self.length || len > self.length - at {
            return Err(MemoryFault.into());
        }
        // No overflow: `at <= length`, and `offset + length` was checked in `pin`.
        let mut at = self.offset + at;
        let mut left = len;
        while left > 0 {
            let page = *self.pages.get(at / PAGE_SIZE).ok_or(MemoryFault)?;
            let n = left.min(PAGE_SIZE - at % PAGE_SIZE);
            f(
                core::ptr::with_exposed_provenance_mut::<u8>(page).wrapping_add(at % PAGE_SIZE),
                n,
            )?;
            at += n;
            left -= n;
        }
        Ok(())
    }

    /// Copies out of the memory, from byte `at` on. Any context.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        let len = out.len();
        self.pieces(at, len, |p, n| {
            // SAFETY:
            // - `p` is valid for `n` bytes: in a pinned page, by the type invariant;
            // - the pieces add up to `len`, so `done + n <= out.len()`;
            // - the memory is that of a process, `out` is the kernel's: they don't overlap.
            unsafe { core::ptr::copy_nonoverlapping(p, out.as_mut_ptr().add(done), n) };
            done += n;
            Ok(())
        })
    }

    /// Calls `f` with each piece of a range, in order, until it fails. Any context.
    pub fn with_bytes<E: From<MemoryFault>>(
        &self,
        at: usize,
        len: usize,
        mut f: impl FnMut(Bytes<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // INVARIANT: In a pinned page, by the type invariant; the pages stay while `self` is
        // borrowed, which is for longer than `f` can use the value.
        self.pieces(at, len, |p, len| {
            f(Bytes {
                from: p,
                len,
                _p: PhantomData,
            })
        })
    }

    /// Copies into the memory, at byte `at`. Any context.
    pub fn write(&self, at: usize, data: Bytes<'_>) -> Result<(), MemoryFault> {
        if !self.writable {
            return Err(MemoryFault);
        }
        let mut rest = data;
        self.pieces(at, data.len(), |p, n| {
            let (now, later) = rest.split_at(n);
            rest = later;
            // SAFETY: `p` is valid for `n` bytes, in a page pinned for writing, and `now` has no
            // more than that.
            unsafe { now.copy_to_raw(p) };
            Ok(())
        })
    }

    /// Calls `f` with the 8 aligned bytes at `at`. Any context.
    pub fn with_word<R>(&self, at: usize, f: impl FnOnce(Word<'_>) -> R) -> Result<R, MemoryFault> {
        let mut word = core::ptr::null_mut::<u8>();
        self.pieces(at, 8, |p, n| {
            if n == 8 {
                word = p;
            }
            Ok::<_, MemoryFault>(())
        })?;
        if !self.writable || word.is_null() {
            return Err(MemoryFault);
        }
        // SAFETY: In a page pinned for writing, which stays while `self` is borrowed.
        unsafe { Word::new(word) }.map(f).ok_or(MemoryFault)
    }
}

/// Makes what this CPU wrote before visible to all observers, devices among them, before it goes
/// on.
pub fn write_barrier() {
    // SAFETY: May be called anywhere.
    unsafe { bindings::full_barrier() };
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariant and not used after this.
        unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
    }
}

/// Kernel memory that a kernel consumer registered page by page (`ib_map_mr_sg`).
///
/// A consumer that registers such memory promises that it stays valid until the registration
/// has been invalidated; the provider accesses it in no other time.
///
/// # Invariants
///
/// - The first `used` of `pages` are addresses of `page_size` bytes of kernel memory each, apart
///   from the first and the last, of which the range of `offset` and `length` leaves out what
///   need not be there.
/// - `page_size` is 2 to the power of `page_shift` and more than `offset`; `offset + length` does
///   not overflow and is at most `used * page_size`.
pub struct KernelPages {
    pages: KVVec<usize>,
    used: usize,
    page_size: usize,
    page_shift: u32,
    offset: usize,
    length: usize,
}

impl KernelPages {
    /// Makes room for `max` pages; none is there yet.
    pub fn new(max: usize) -> Result<Self> {
        Ok(Self {
            pages: KVVec::from_elem(0usize, max, GFP_KERNEL)?,
            used: 0,
            page_size: PAGE_SIZE,
            page_shift: PAGE_SIZE.trailing_zeros(),
            offset: 0,
            length: 0,
        })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn pieces(
        &self,
        at: usize,
        len: usize,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result<(), MemoryFault> {
        if at > self.length || len > self.length - at {
            return Err(MemoryFault);
        }
        // No overflow, by the type invariant.
        let mut at = self.offset + at;
        let mut left = len;
        while left > 0 {
            let index = at.wrapping_shr(self.page_shift);
            let page = *self
                .pages
                .get(..self.used)
                .and_then(|p| p.get(index))
                .ok_or(MemoryFault)?;
            let within = at & self.page_size.wrapping_sub(1);
            let n = left.min(self.page_size.wrapping_sub(within));
            f(
                core::ptr::with_exposed_provenance_mut::<u8>(page).wrapping_add(within),
                n,
            );
            at += n;
            left -= n;
        }
        Ok(())
    }

    /// Copies out of the memory, from byte `at` on. Any context.
    ///
    /// To be called while the memory is registered only.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        let len = out.len();
        self.pieces(at, len, |p, n| {
            // SAFETY:
            // - `p` is valid for `n` bytes, by the type invariant and the consumer's promise;
            // - the pieces add up to `len`, so `done + n <= out.len()`;
            // - `out` is private to the provider, so they don't overlap.
            unsafe { core::ptr::copy_nonoverlapping(p, out.as_mut_ptr().add(done), n) };
            done += n;
        })
    }

    /// Copies into the memory, at byte `at`. Any context.
    ///
    /// To be called while the memory is registered only.
    pub fn write(&self, at: usize, data: Bytes<'_>) -> Result<(), MemoryFault> {
        let mut rest = data;
        self.pieces(at, data.len(), |p, n| {
            let (now, later) = rest.split_at(n);
            rest = later;
            // SAFETY: `p` is valid for `n` bytes, by the type invariant and the consumer's
            // promise, and `now` has no more than that.
            unsafe { now.copy_to_raw(p) };
        })
    }

    /// Calls `f` with the 8 aligned bytes at `at`. Any context.
    ///
    /// To be called while the memory is registered only.
    pub fn with_word<R>(&self, at: usize, f: impl FnOnce(Word<'_>) -> R) -> Result<R, MemoryFault> {
        let mut word = core::ptr::null_mut::<u8>();
        self.pieces(at, 8, |p, n| {
            if n == 8 {
                word = p;
            }
        })?;
        if word.is_null() {
            return Err(MemoryFault);
        }
        // SAFETY: Valid, by the type invariant and the consumer's promise.
        unsafe { Word::new(word) }.map(f).ok_or(MemoryFault)
    }
}

/// The scatter/gather list that a kernel consumer wants a region to consist of.
///
/// # Invariants
///
/// `mr` is a valid region, `list` a list of `len` entries mapped for its device, `offset` null or
/// valid, all of them during `'a`.
pub struct SgMap<'a> {
    mr: *mut bindings::ib_mr,
    list: *mut kernel::bindings::scatterlist,
    len: c_int,
    offset: *mut c_uint,
    _p: PhantomData<&'a ()>,
}

impl SgMap<'_> {
    /// # Safety
    ///
    /// As the type invariant has it. The device must be one whose DMA addresses are addresses of
    /// the kernel.
    pub(crate) unsafe fn new(
        mr: *mut bindings::ib_mr,
        list: *mut kernel::bindings::scatterlist,
        len: c_int,
        offset: *mut c_uint,
    ) -> Self {
        // INVARIANT: The caller's promise.
        Self {
            mr,
            list,
            len,
            offset,
            _p: PhantomData,
        }
    }

    /// Replaces the pages by those of the list, and returns how many of its entries they cover:
    /// all, or as many as there was room for, or as can follow one another without a gap.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty list or page sizes that aren't; there are no pages then.
    pub fn map_to(self, pages: &mut KernelPages) -> Result<c_int> {
        // SAFETY: Valid by the type invariant.
        let page_size = unsafe { (*self.mr).page_size } as usize;
        (pages.used, pages.length) = (0, 0);
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let max = u32::try_from(pages.pages.len()).unwrap_or(u32::MAX);
        let mut used = 0;
        // SAFETY:
        // - region, list and offset are valid by the type invariant;
        // - the array has room for `max` addresses.
        let covered = unsafe {
            bindings::ib_sg_to_addresses(
                self.mr,
                self.list,
                self.len,
                self.offset,
                pages.pages.as_mut_ptr().cast(),
                max,
                &raw mut used,
            )
        };
        if covered < 0 {
            return Err(Error::from_errno(covered));
        }
        // SAFETY: As above.
        let (iova, length) = unsafe { ((*self.mr).iova as usize, (*self.mr).length as usize) };
        let offset = iova & page_size.wrapping_sub(1);
        let used = used as usize;
        let fits = used
            .checked_mul(page_size)
            .zip(offset.checked_add(length))
            .is_some_and(|(room, end)| end <= room);
        if !fits {
            return Err(EINVAL);
        }
        // INVARIANT: `used` addresses were written, of pages of this size, and the range was
        // just checked.
        pages.used = used;
        pages.page_size = page_size;
        pages.page_shift = page_size.trailing_zeros();
        pages.offset = offset;
        pages.length = length;
        Ok(covered)
    }
}

/// The right to use the kernel addresses in work requests of kernel consumers.
///
/// Made for `get_dma_mr` alone: a consumer that posts a work request with the key of such a
/// region promises that the addresses in it are valid kernel memory until the completion.
pub struct DmaMemory(pub(crate) ());

impl DmaMemory {
    /// Copies from kernel memory.
    ///
    /// `addr` must come from a work request of a kernel consumer.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), MemoryFault> {
        let from = Self::pointer(addr, out.len())?;
        // SAFETY:
        // - readable, by the consumer's promise that comes with the key;
        // - `out` is private to the provider, so they don't overlap.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies to kernel memory.
    ///
    /// `addr` must come from a work request of a kernel consumer.
    pub fn write(&self, addr: u64, data: Bytes<'_>) -> Result<(), MemoryFault> {
        let to = Self::pointer(addr, data.len())?;
        // SAFETY: Writable, by the consumer's promise that comes with the key.
        unsafe { data.copy_to_raw(to) };
        Ok(())
    }

    /// Calls `f` with a range of kernel memory.
    ///
    /// `addr` must come from a work request of a kernel consumer.
    pub fn with_bytes<E: From<MemoryFault>>(
        &self,
        addr: u64,
        len: usize,
        f: impl FnOnce(Bytes<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let from = Self::pointer(addr, len)?;
        // INVARIANT: Readable, by the consumer's promise that comes with the key: until the
        // completion, which is after `f`.
        f(Bytes {
            from,
            len,
            _p: PhantomData,
        })
    }

    /// An address of kernel memory, as far as can be told: one that the consumer mapped for the
    /// device is in the direct map. A peer that was given the key can name any other.
    fn pointer(addr: u64, len: usize) -> Result<*mut u8, MemoryFault> {
        let addr = usize::try_from(addr).map_err(|_| MemoryFault)?;
        let p = core::ptr::with_exposed_provenance_mut::<u8>(addr);
        if len == 0 {
            return Ok(p);
        }
        addr.checked_add(len).ok_or(MemoryFault)?;
        // SAFETY: The function looks at the addresses only.
        if !unsafe { bindings::is_kernel_memory(p.cast(), len) } {
            return Err(MemoryFault);
        }
        Ok(p)
    }
}
