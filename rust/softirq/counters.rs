// SPDX-License-Identifier: GPL-2.0

//! Statistics.

use core::ptr::NonNull;

use kernel::prelude::*;

use crate::bindings;

/// `N` counters, each of them one word a CPU.
///
/// Adding touches only the words of the current CPU, so it is cheap and never contended; reading
/// adds all of them up. A read that races with additions may or may not see them.
///
/// # Invariants
///
/// `words` is a per-CPU allocation of `N` words.
pub struct Counters<const N: usize> {
    words: NonNull<bindings::local64_t>,
}

// SAFETY: The allocation belongs to no CPU or thread.
unsafe impl<const N: usize> Send for Counters<N> {}

// SAFETY: The words are only accessed by per-CPU operations, which can be used by all CPUs and in
// all contexts at once.
unsafe impl<const N: usize> Sync for Counters<N> {}

impl<const N: usize> Counters<N> {
    /// Creates counters that are all zero.
    ///
    /// There can't be more than 4096, as per-CPU memory is allocated in small pieces.
    ///
    /// Context: process.
    pub fn new() -> Result<Self> {
        const { assert!(N <= 4096) };

        // SAFETY: It is always safe to allocate, whatever the size.
        let words = unsafe { bindings::counters_alloc(N) };

        // INVARIANT: It was just allocated, and per-CPU memory is zeroed.
        Ok(Self {
            words: NonNull::new(words).ok_or(ENOMEM)?,
        })
    }

    /// Adds `n` to counter `i`, wrapping around.
    ///
    /// Nothing happens if there is no such counter.
    ///
    /// Context: any, and hard interrupts.
    #[inline]
    pub fn add(&self, i: usize, n: u64) {
        if i < N {
            // SAFETY: By the type invariants there are `N` words.
            unsafe { bindings::counters_add(self.words.as_ptr(), i, n) }
        }
    }

    /// Adds one to counter `i`.
    ///
    /// Context: any.
    #[inline]
    pub fn inc(&self, i: usize) {
        self.add(i, 1);
    }

    /// Returns the sum of counter `i`, or zero if there is no such counter.
    ///
    /// Context: any.
    pub fn read(&self, i: usize) -> u64 {
        if i < N {
            // SAFETY: By the type invariants there are `N` words.
            unsafe { bindings::counters_sum(self.words.as_ptr(), i) }
        } else {
            0
        }
    }
}

impl<const N: usize> Drop for Counters<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it was allocated, and nobody uses it any more.
        unsafe { bindings::counters_free(self.words.as_ptr()) }
    }
}
