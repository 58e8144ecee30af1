// SPDX-License-Identifier: GPL-2.0

//! Limits of a device: what it advertises is what it enforces.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Largest number of objects of each kind a device has.
pub(crate) const MAX_QP: u32 = 1 << 16;
/// Completion queues.
pub(crate) const MAX_CQ: u32 = 1 << 16;
/// Shared receive queues.
pub(crate) const MAX_SRQ: u32 = 1 << 16;
/// Memory regions.
pub(crate) const MAX_MR: u32 = 1 << 20;
/// Memory windows.
pub(crate) const MAX_MW: u32 = 1 << 16;
/// Pages of a fast registration.
pub(crate) const MAX_FAST_REG_PAGES: u32 = 512;
/// Protection domains.
pub(crate) const MAX_PD: u32 = 1 << 16;
/// Multicast groups.
pub(crate) const MAX_MCAST_GRP: u32 = 1 << 10;
/// Queue pairs attached to a multicast group.
pub(crate) const MAX_MCAST_QP_ATTACH: u32 = 1 << 8;
/// Queue pairs attached to all multicast groups.
pub(crate) const MAX_MCAST_ATTACH: u32 = 1 << 14;
/// Address handles of processes.
pub(crate) const MAX_AH: u32 = 1 << 16;
/// Work requests of a queue.
pub(crate) const MAX_QP_WR: u32 = (1 << 15) - 1;
/// Work requests of a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = (1 << 15) - 1;
/// Entries of a completion queue.
pub(crate) const MAX_CQE: u32 = (1 << 20) - 1;
/// Scatter/gather entries of a work request.
pub(crate) const MAX_SGE: u32 = 32;
/// Bytes of inline data.
pub(crate) const MAX_INLINE: u32 = 512;
/// READs and atomics that a QP has outstanding, as requester and as responder.
pub(crate) const MAX_RD_ATOMIC: u8 = 32;
/// Entries of the GID table.
pub(crate) const GID_TABLE_LEN: i32 = 256;
/// The only P_Key: the default partition, full membership.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// How many objects of a kind there are, and may be.
pub(crate) struct Limit {
    used: Atomic<u32>,
    max: u32,
}

impl Limit {
    /// Allows `max` objects.
    pub(crate) const fn new(max: u32) -> Self {
        Self {
            used: Atomic::new(0),
            max,
        }
    }
}

/// The limits of a device.
pub(crate) struct Limits {
    pub(crate) qps: Limit,
    pub(crate) cqs: Limit,
    pub(crate) srqs: Limit,
    pub(crate) mrs: Limit,
    pub(crate) mws: Limit,
    pub(crate) pds: Limit,
    pub(crate) ahs: Limit,
}

impl Limits {
    pub(crate) const fn new() -> Self {
        Self {
            qps: Limit::new(MAX_QP),
            cqs: Limit::new(MAX_CQ),
            srqs: Limit::new(MAX_SRQ),
            mrs: Limit::new(MAX_MR),
            mws: Limit::new(MAX_MW),
            pds: Limit::new(MAX_PD),
            ahs: Limit::new(MAX_AH),
        }
    }
}

/// Which limit a permit counts against.
type Which = fn(&Limits) -> &Limit;

/// The right to have one object; given back when dropped.
///
/// The consumer's handle has it, not the object, which packets and lookups may keep a little
/// longer: what was destroyed can be had again at once.
pub(crate) struct Permit {
    limits: Arc<Limits>,
    which: Which,
}

impl Permit {
    /// Takes one.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the limit is reached, as `ibv_create_qp(3)` and its kin have it.
    pub(crate) fn take(limits: &Arc<Limits>, which: Which) -> Result<Self> {
        let limit = which(limits);
        if limit.used.fetch_add(1, Relaxed) >= limit.max {
            limit.used.fetch_sub(1, Relaxed);
            return Err(ENOMEM);
        }
        Ok(Self {
            limits: limits.clone(),
            which,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        (self.which)(&self.limits).used.fetch_sub(1, Relaxed);
    }
}
