// SPDX-License-Identifier: GPL-2.0

//! Memory shared with a process: rings that both sides read and write.

use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicU32,
        Ordering, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use rdma_bindings as bindings;

use crate::{
    object::Context,
    MemoryFault,
    Provider, //
};

/// Zeroed memory of whole pages that can be mapped into a process.
///
/// The process may write to it at any time. It is read only by copying, byte ranges checked
/// against the length; what was read once must not be read again for the same decision.
///
/// # Invariants
///
/// `ptr` points to `len` bytes of `vmalloc_user` memory that this value owns.
pub struct SharedBuffer {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: The memory is owned and only accessed by copies and atomics.
unsafe impl Send for SharedBuffer {}
// SAFETY: As above.
unsafe impl Sync for SharedBuffer {}

impl SharedBuffer {
    /// Allocates at least `len` bytes. May sleep.
    pub fn new(len: usize) -> Result<Self> {
        let len = len
            .max(1)
            .checked_next_multiple_of(kernel::page::PAGE_SIZE)
            .ok_or(EINVAL)?;
        // SAFETY: Any size may be asked for.
        let ptr =
            NonNull::new(unsafe { bindings::vmalloc_user_bytes(len) }.cast()).ok_or(ENOMEM)?;
        // INVARIANT: Just allocated with this length.
        Ok(Self { ptr, len })
    }

    /// Bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn check(&self, at: usize, len: usize) -> Result<*mut u8, MemoryFault> {
        if at > self.len || len > self.len - at {
            return Err(MemoryFault);
        }
        Ok(self.ptr.as_ptr().wrapping_add(at))
    }

    fn word(&self, at: usize) -> Option<&AtomicU32> {
        let p = self.check(at, 4).ok()?;
        if !p.addr().is_multiple_of(4) {
            return None;
        }
        // SAFETY: In bounds, aligned, alive as long as `self`; the kernel accesses the words it
        // shares as indices only through here. The process may write at any time: each access
        // is a single atomic one of the machine.
        Some(unsafe { AtomicU32::from_ptr(p.cast()) })
    }

    /// Reads a 32-bit index of the other side; what it wrote before is visible afterwards.
    pub fn load_acquire(&self, at: usize) -> u32 {
        self.word(at).map_or(0, |w| w.load(Ordering::Acquire))
    }

    /// Writes a 32-bit index; what was written before is visible to who reads it.
    pub fn store_release(&self, at: usize, value: u32) {
        if let Some(w) = self.word(at) {
            w.store(value, Ordering::Release);
        }
    }

    /// Copies out.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), MemoryFault> {
        let from = self.check(at, out.len())?;
        // SAFETY: In bounds; `out` is the kernel's own. A race with the process can tear the
        // bytes, nothing else.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies in.
    pub fn write(&self, at: usize, data: &[u8]) -> Result<(), MemoryFault> {
        let to = self.check(at, data.len())?;
        // SAFETY: As in `read`, the other way.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        // SAFETY: Owned vmalloc memory; `vfree` defers itself where it may not sleep. Mappings
        // of the process hold the pages on their own.
        unsafe { bindings::vfree_bytes(self.ptr.as_ptr().cast()) };
    }
}

/// The core's entry and the buffer that it stands for.
#[repr(C)]
struct Entry {
    core: Opaque<bindings::rdma_user_mmap_entry>,
    buffer: Arc<SharedBuffer>,
}

/// A buffer offered to a process for mapping; withdrawn when dropped (maps stay).
///
/// To be dropped while the context exists, so in the operation that destroys its owner.
///
/// # Invariants
///
/// `entry` was inserted into its context and not removed.
pub struct MmapEntry {
    entry: NonNull<Entry>,
    len: usize,
}

// SAFETY: The core's functions on entries may be called by any thread.
unsafe impl Send for MmapEntry {}
// SAFETY: No shared operation changes it.
unsafe impl Sync for MmapEntry {}

impl MmapEntry {
    /// Offers `buffer` to the process of `context`.
    pub fn new<P: Provider>(context: &Context<P>, buffer: Arc<SharedBuffer>) -> Result<Self> {
        let len = buffer.len();
        let entry = KBox::new(
            Entry {
                core: Opaque::zeroed(),
                buffer,
            },
            GFP_KERNEL,
        )?;
        let entry = KBox::into_raw(entry);
        // SAFETY: The context is valid and the entry a fresh zeroed one that stays in place
        // until `free` is called for it.
        let ret =
            unsafe { bindings::rdma_user_mmap_entry_insert(context.as_raw(), entry.cast(), len) };
        if let Err(e) = to_result(ret) {
            // SAFETY: Not inserted: it is still ours alone.
            drop(unsafe { KBox::from_raw(entry) });
            return Err(e);
        }
        // INVARIANT: Inserted. `into_raw` never gives null.
        Ok(Self {
            entry: NonNull::new(entry).ok_or(EINVAL)?,
            len,
        })
    }

    /// What the process has to pass to `mmap` as offset.
    pub fn offset(&self) -> u64 {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::rdma_user_mmap_get_offset(self.entry.as_ptr().cast()) }
    }

    /// What the process has to pass to `mmap` as length.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for MmapEntry {
    fn drop(&mut self) {
        // SAFETY: Inserted and not removed, by the type invariant; the core frees it by `free`.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.entry.as_ptr().cast()) };
    }
}

/// Maps the buffer that `vma` asks for.
///
/// # Safety
///
/// To be called as the core calls `mmap`, for a context of a provider whose entries all come
/// from [`MmapEntry`].
pub(crate) unsafe fn map(
    context: *mut bindings::ib_ucontext,
    vma: *mut kernel::bindings::vm_area_struct,
) -> Result {
    // SAFETY: Both are valid by the caller's promise.
    let entry = unsafe { bindings::rdma_user_mmap_entry_get(context, vma) };
    if entry.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: The reference taken keeps the entry, which is of our type, and so its buffer.
    let buffer = unsafe { (*entry.cast::<Entry>()).buffer.clone() };
    // SAFETY: The buffer is `vmalloc_user` memory; the core checked that the length of the
    // vma is the entry's.
    let ret = unsafe { bindings::remap_shared_pages(vma, buffer.ptr.as_ptr().cast(), 0) };
    // SAFETY: Gives back the reference taken above.
    unsafe { bindings::rdma_user_mmap_entry_put(entry) };
    to_result(ret)
}

/// Frees an entry that nobody uses any more.
///
/// # Safety
///
/// `entry` must have been inserted by [`MmapEntry::new`]; it is not used afterwards.
pub(crate) unsafe fn free(entry: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: It came from `KBox::into_raw` of an `Entry`, whose first field it is.
    drop(unsafe { KBox::from_raw(entry.cast::<Entry>()) });
}
