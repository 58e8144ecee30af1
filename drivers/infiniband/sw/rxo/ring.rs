// SPDX-License-Identifier: GPL-2.0

//! Rings shared with a process: a head with two indices, and elements of equal size.
//!
//! One side produces, the other consumes; each owns one index and only reads the other. The
//! ring is empty when the indices are equal, so one element always stays unused. The side of
//! the kernel keeps its own index privately and only shows it; that of the process is masked
//! each time it is read, so the worst that a process can do is to see its own ring in disorder.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    MemoryFault,
    MmapEntry,
    SharedBuffer, //
};

use crate::{
    abi::{
        head,
        MapInfo, //
    },
    provider::Rxo, //
};

/// A ring.
#[derive(Clone)]
pub(crate) struct Ring {
    buffer: Arc<SharedBuffer>,
    log2_elem: u32,
    mask: u32,
}

impl Ring {
    /// Makes a ring that holds at least `count` elements of at least `elem` bytes.
    pub(crate) fn new(count: u32, elem: usize) -> Result<Self> {
        let elem = elem.max(64).checked_next_power_of_two().ok_or(EINVAL)?;
        let slots = count
            .checked_add(1)
            .and_then(u32::checked_next_power_of_two)
            .ok_or(EINVAL)?;
        let len = elem
            .checked_mul(slots as usize)
            .and_then(|n| n.checked_add(head::DATA))
            .ok_or(EINVAL)?;
        let this = Self {
            buffer: Arc::new(SharedBuffer::new(len)?, GFP_KERNEL)?,
            log2_elem: elem.trailing_zeros(),
            mask: slots - 1,
        };
        // For the process to compute with; never read back.
        this.buffer.store_release(head::LOG2_ELEM, this.log2_elem);
        this.buffer.store_release(head::MASK, this.mask);
        Ok(this)
    }

    /// Elements, one more than can be used.
    pub(crate) fn slots(&self) -> u32 {
        self.mask + 1
    }

    /// Elements that can be used.
    pub(crate) fn capacity(&self) -> u32 {
        self.mask
    }

    /// Offers the ring to the process of `context`.
    pub(crate) fn map(&self, context: &rdma::Context<Rxo>) -> Result<(MmapEntry, MapInfo)> {
        let entry = MmapEntry::new::<Rxo>(context, self.buffer.clone())?;
        let info = MapInfo {
            offset: entry.offset(),
            size: u32::try_from(entry.len()).map_err(|_| EINVAL)?,
            pad: 0,
        };
        Ok((entry, info))
    }

    /// The producer's index as the process shows it.
    pub(crate) fn producer(&self) -> u32 {
        self.buffer.load_acquire(head::PRODUCER) & self.mask
    }

    /// The consumer's index as the process shows it.
    pub(crate) fn consumer(&self) -> u32 {
        self.buffer.load_acquire(head::CONSUMER) & self.mask
    }

    /// Shows the kernel's index as producer; elements written before are visible with it.
    pub(crate) fn show_producer(&self, index: u32) {
        self.buffer.store_release(head::PRODUCER, index & self.mask);
    }

    /// Shows the kernel's index as consumer; elements before it may be reused.
    pub(crate) fn show_consumer(&self, index: u32) {
        self.buffer.store_release(head::CONSUMER, index & self.mask);
    }

    /// The index after `index`.
    pub(crate) fn next(&self, index: u32) -> u32 {
        index.wrapping_add(1) & self.mask
    }

    /// Elements between a consumer's and a producer's index.
    pub(crate) fn used(&self, consumer: u32, producer: u32) -> u32 {
        producer.wrapping_sub(consumer) & self.mask
    }

    /// Copies from an element; `out` must not be longer than one.
    pub(crate) fn read(&self, index: u32, out: &mut [u8]) -> Result<(), MemoryFault> {
        self.buffer.read(self.at(index, out.len())?, out)
    }

    /// Reads 32 aligned bits of an element; 0 if it has none there.
    pub(crate) fn word(&self, index: u32, offset: usize) -> u32 {
        self.at(index, offset.saturating_add(4))
            .map_or(0, |at| self.buffer.load_acquire(at + offset))
    }

    /// Copies to an element; `data` must not be longer than one.
    pub(crate) fn write(&self, index: u32, data: &[u8]) -> Result<(), MemoryFault> {
        self.buffer.write(self.at(index, data.len())?, data)
    }

    /// Where the element begins, if it has `len` bytes.
    fn at(&self, index: u32, len: usize) -> Result<usize, MemoryFault> {
        if len > 1 << self.log2_elem {
            return Err(MemoryFault);
        }
        Ok(head::DATA + (((index & self.mask) as usize) << self.log2_elem))
    }
}
