// SPDX-License-Identifier: GPL-2.0

//! Memory that another driver shares as a dma-buf.
//!
//! A provider of software moves data with the processor, so the buffer is mapped for that, which
//! also keeps the exporter from moving it.

use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*, //
};
use rdma_bindings as bindings;

use crate::memory::{
    Bytes,
    MemoryFault,
    Word, //
};

/// A reference to a dma-buf.
///
/// # Invariants
///
/// `0` is a dma-buf that this holds a reference to.
struct Buffer(NonNull<c_void>);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a reference to give back.
        unsafe { bindings::dmabuf_put(self.0.as_ptr()) };
    }
}

/// A part of a dma-buf, mapped into the kernel.
///
/// Others may write to it at any time, and there is no reference to the memory ever.
///
/// # Invariants
///
/// - `base` is where all of `buffer` is mapped, until this is dropped.
/// - `offset + length` does not overflow and is at most the size of `buffer`.
pub struct DmaBuf {
    buffer: Buffer,
    base: NonNull<u8>,
    offset: usize,
    length: usize,
}

// SAFETY: A dma-buf and a mapping of it belong to no thread.
unsafe impl Send for DmaBuf {}
// SAFETY: Shared use copies from and to the memory, which is raced with others anyway.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Maps `length` bytes from `offset` on of the buffer behind a file descriptor of the current
    /// process. May sleep.
    ///
    /// # Errors
    ///
    /// `EBADF` for no file, `EINVAL` for one that is no dma-buf and for an empty range or one that
    /// is not within it, `EOPNOTSUPP` for memory of a device, or that the exporter can't map.
    pub fn map(fd: c_int, offset: u64, length: u64) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        let length = usize::try_from(length).map_err(|_| EINVAL)?;
        // SAFETY: The function checks the descriptor.
        let raw = from_err_ptr(unsafe { bindings::dmabuf_get(fd) })?;
        // INVARIANT: It was returned with a reference.
        let buffer = Buffer(NonNull::new(raw).ok_or(EINVAL)?);
        // SAFETY: It is a dma-buf.
        let size = unsafe { bindings::dmabuf_size(buffer.0.as_ptr()) };
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if length == 0 || end > size {
            return Err(EINVAL);
        }
        let mut base = core::ptr::null_mut::<c_void>();
        // SAFETY: It is a dma-buf; `base` is valid for a write.
        to_result(unsafe { bindings::dmabuf_map(buffer.0.as_ptr(), &raw mut base) })?;
        // INVARIANT: It was just mapped, and the range checked.
        Ok(Self {
            buffer,
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
            offset,
            length,
        })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never true: nothing empty is mapped.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of `len` bytes at `at`.
    fn place(&self, at: usize, len: usize) -> Result<*mut u8, MemoryFault> {
        if at > self.length || len > self.length - at {
            return Err(MemoryFault);
        }
        // No overflow, by the type invariants.
        Ok(self.base.as_ptr().wrapping_add(self.offset + at))
    }

    /// Copies out of the memory, from byte `at` on. Any context.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), MemoryFault> {
        let from = self.place(at, out.len())?;
        // SAFETY: Mapped, by the type invariants; `out` is the kernel's own.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies into the memory, at byte `at`. Any context.
    pub fn write(&self, at: usize, data: Bytes<'_>) -> Result<(), MemoryFault> {
        let to = self.place(at, data.len())?;
        // SAFETY: As in `read`, the other way.
        unsafe { data.copy_to_raw(to) };
        Ok(())
    }

    /// Calls `f` with the 8 aligned bytes at `at`. Any context.
    pub fn with_word<R>(&self, at: usize, f: impl FnOnce(Word<'_>) -> R) -> Result<R, MemoryFault> {
        let word = self.place(at, 8)?;
        // SAFETY: Mapped, by the type invariants, while `self` is borrowed.
        unsafe { Word::new(word) }.map(f).ok_or(MemoryFault)
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: Mapped there by `map`, and accessed no more.
        unsafe { bindings::dmabuf_unmap(self.buffer.0.as_ptr(), self.base.as_ptr().cast()) };
    }
}
