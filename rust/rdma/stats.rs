// SPDX-License-Identifier: GPL-2.0

//! Port counters.

use rdma_bindings as bindings;

/// Longest name of a counter, with its NUL.
const NAME_LEN: usize = 48;

/// Names of counters as C strings, made at compile time.
pub struct StatNames<const N: usize>([[u8; NAME_LEN]; N]);

impl<const N: usize> StatNames<N> {
    /// Copies the names. Fails to compile if one is too long.
    pub const fn new(names: &[&str; N]) -> Self {
        let mut out = [[0; NAME_LEN]; N];
        let mut i = 0;
        while i < N {
            let name = names[i].as_bytes();
            assert!(name.len() < NAME_LEN);
            let mut j = 0;
            while j < name.len() {
                out[i][j] = name[j];
                j += 1;
            }
            i += 1;
        }
        Self(out)
    }

    /// Makes the descriptions that the core asks for.
    pub const fn table(&'static self) -> StatTable<N> {
        let mut out = [bindings::rdma_stat_desc {
            name: core::ptr::null(),
            flags: 0,
            priv_: core::ptr::null(),
        }; N];
        let mut i = 0;
        while i < N {
            out[i].name = self.0[i].as_ptr().cast();
            i += 1;
        }
        StatTable(out)
    }
}

/// Descriptions of counters.
pub struct StatTable<const N: usize>([bindings::rdma_stat_desc; N]);

// SAFETY: Points to names that are static and never written.
unsafe impl<const N: usize> Sync for StatTable<N> {}

/// Borrowed descriptions of counters, of any number.
#[derive(Clone, Copy)]
pub struct StatDescs(&'static [bindings::rdma_stat_desc]);

impl StatDescs {
    /// Borrows a table.
    pub const fn new<const N: usize>(table: &'static StatTable<N>) -> Self {
        Self(&table.0)
    }

    pub(crate) fn as_slice(&self) -> &'static [bindings::rdma_stat_desc] {
        self.0
    }
}
