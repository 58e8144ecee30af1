// SPDX-License-Identifier: GPL-2.0

//! Regions for fast registration, of kernel consumers.
//!
//! Such a region goes between two states: invalid, with a key that opens nothing, and registered
//! by a work request, with the pages that were mapped to it before, a key whose tag the consumer
//! chose, and rights. A work request of its owner, or a message of the peer, invalidates it. From
//! then on nothing accesses the pages: an access looks at the state and copies under one lock.

use kernel::{
    ffi::c_int,
    prelude::*,
    sync::Arc, //
};
use rdma::{
    access,
    Bytes,
    KernelPages,
    SgMap,
    Word, //
};
use rxo_transport::KeyFault;
use softirq::{
    new_bh_spinlock,
    BhSpinLock, //
};

use crate::{
    detail::Listener,
    mr::{
        Domain,
        Refusal,
        TAG_MASK, //
    }, //
};

/// What the lock protects.
struct Inner {
    /// What was mapped last, if that was after the last registration (`fresh`).
    mapped: KernelPages,
    fresh: bool,
    /// What was registered last. It stays mapped: unless something else is, the next registration
    /// registers it again.
    pages: KernelPages,
    key: u32,
    access: u32,
    iova: u64,
    length: u64,
    valid: bool,
    /// Counts registrations, so that none is taken for another.
    generation: u64,
}

impl Inner {
    /// Checks an access and returns where in the region it begins.
    fn check(&self, key: u32, va: u64, len: u64, rights: u32) -> Result<u64, Refusal> {
        if !self.valid || self.key != key {
            return Err(Refusal::Unknown);
        }
        if self.access & rights != rights {
            return Err(Refusal::Rights);
        }
        let at = va.checked_sub(self.iova).ok_or(Refusal::Range)?;
        if at > self.length || len > self.length - at {
            return Err(Refusal::Range);
        }
        Ok(at)
    }
}

/// A region for fast registration. Its lock is taken with that of a queue pair held.
#[pin_data]
pub(crate) struct FastMr {
    domain: Domain,
    first_key: u32,
    #[pin]
    inner: BhSpinLock<Inner>,
}

/// A registration that a work request asks for.
pub(crate) struct Register {
    pub(crate) mr: Arc<FastMr>,
    pub(crate) key: u32,
    pub(crate) access: u32,
    pub(crate) iova: u64,
    pub(crate) length: u64,
}

impl FastMr {
    /// Makes a region, invalid.
    pub(crate) fn new(domain: Domain, key: u32, max_pages: usize) -> Result<Arc<Self>> {
        let (mapped, pages) = (KernelPages::new(max_pages)?, KernelPages::new(max_pages)?);
        Arc::pin_init(
            pin_init!(Self {
                domain,
                first_key: key,
                inner <- new_bh_spinlock!(Inner {
                    mapped,
                    fresh: false,
                    pages,
                    key,
                    access: 0,
                    iova: 0,
                    length: 0,
                    valid: false,
                    generation: 0,
                }, "FastMr::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// The key that it was made with; the index in it never changes.
    pub(crate) fn first_key(&self) -> u32 {
        self.first_key
    }

    /// Tells what there is to know.
    pub(crate) fn tell(&self, to: &mut impl Listener) {
        let (valid, access, length) = {
            let inner = self.inner.lock();
            (inner.valid, inner.access, inner.length)
        };
        to.word("kind", "fast");
        to.word("state", if valid { "registered" } else { "invalid" });
        if valid {
            to.number("access", u64::from(access));
            to.number("length", length);
        }
    }

    /// Takes the pages that the next registration registers. Any context.
    pub(crate) fn map(&self, list: SgMap<'_>) -> Result<c_int> {
        let mut inner = self.inner.lock();
        inner.fresh = true;
        list.map_to(&mut inner.mapped)
    }

    /// Registers what was mapped.
    pub(crate) fn register(&self, domain: Domain, r: &Register) -> Result<(), Refusal> {
        if self.domain != domain {
            return Err(Refusal::Domain);
        }
        if (self.first_key ^ r.key) & !TAG_MASK != 0 {
            return Err(Refusal::Unknown);
        }
        let mut inner = self.inner.lock();
        if inner.valid {
            // It must be invalidated first (o10-37.2.30 has it so for windows).
            return Err(Refusal::Rights);
        }
        let inner = &mut *inner;
        if inner.fresh {
            core::mem::swap(&mut inner.mapped, &mut inner.pages);
            inner.fresh = false;
        }
        if r.length > inner.pages.len() as u64 || r.iova.checked_add(r.length).is_none() {
            return Err(Refusal::Range);
        }
        inner.key = r.key;
        inner.access = r.access;
        inner.iova = r.iova;
        inner.length = r.length;
        inner.valid = true;
        inner.generation = inner.generation.wrapping_add(1);
        Ok(())
    }

    /// Invalidates the region that is registered with `key`.
    pub(crate) fn invalidate(&self, domain: Domain, key: u32) -> Result<(), Refusal> {
        if self.domain != domain {
            return Err(Refusal::Domain);
        }
        let mut inner = self.inner.lock();
        if !inner.valid || inner.key != key {
            return Err(Refusal::Unknown);
        }
        inner.valid = false;
        Ok(())
    }

    /// Invalidates the region, however it is registered.
    pub(crate) fn revoke(&self) {
        self.inner.lock().valid = false;
    }

    /// Checks an access of a peer and returns where in the region it begins.
    pub(crate) fn open(
        this: Arc<Self>,
        domain: Domain,
        key: u32,
        va: u64,
        len: u64,
        rights: u32,
    ) -> Result<(Registration, u64), Refusal> {
        if this.domain != domain {
            return Err(Refusal::Domain);
        }
        let (at, generation) = {
            let inner = this.inner.lock();
            (inner.check(key, va, len, rights)?, inner.generation)
        };
        let registration = Registration {
            mr: this,
            generation,
        };
        Ok((registration, at))
    }

    /// Copies from the region, for its owner.
    pub(crate) fn gather(
        &self,
        domain: Domain,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), Refusal> {
        if self.domain != domain {
            return Err(Refusal::Domain);
        }
        let inner = self.inner.lock();
        let at = inner.check(key, va, out.len() as u64, 0)?;
        inner
            .pages
            .read(at as usize, out)
            .map_err(|_| Refusal::Range)
    }

    /// Copies to the region, for its owner.
    pub(crate) fn scatter(
        &self,
        domain: Domain,
        key: u32,
        va: u64,
        data: Bytes<'_>,
    ) -> Result<(), Refusal> {
        if self.domain != domain {
            return Err(Refusal::Domain);
        }
        let inner = self.inner.lock();
        let at = inner.check(key, va, data.len() as u64, access::LOCAL_WRITE)?;
        inner
            .pages
            .write(at as usize, data)
            .map_err(|_| Refusal::Range)
    }
}

/// A registration that a peer was found entitled to; of no use once it has been invalidated.
pub(crate) struct Registration {
    mr: Arc<FastMr>,
    generation: u64,
}

impl Registration {
    fn with<R>(&self, f: impl FnOnce(&KernelPages) -> Result<R, Refusal>) -> Result<R, Refusal> {
        let inner = self.mr.inner.lock();
        if !inner.valid || inner.generation != self.generation {
            return Err(Refusal::Unknown);
        }
        f(&inner.pages)
    }

    /// Copies from the region, from byte `at` on.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Refusal> {
        self.with(|pages| pages.read(at as usize, out).map_err(|_| Refusal::Range))
    }

    /// Copies to the region, at byte `at`.
    pub(crate) fn write(&self, at: u64, data: Bytes<'_>) -> Result<(), Refusal> {
        self.with(|pages| pages.write(at as usize, data).map_err(|_| Refusal::Range))
    }

    /// Calls `f` with the eight bytes at `at`.
    pub(crate) fn with_word<R>(
        &self,
        at: u64,
        f: impl FnOnce(Word<'_>) -> R,
    ) -> Result<R, KeyFault> {
        self.with(|pages| Ok(pages.with_word(at as usize, f)))
            .map_err(|_| KeyFault::Access)?
            .map_err(|_| KeyFault::Operational)
    }
}
