// SPDX-License-Identifier: GPL-2.0

//! Memory windows: parts of a region that peers may access for a while.
//!
//! A window of type 1 is bound, bound anew or unbound by any queue pair of its protection domain,
//! and opens to peers of all of them. One of type 2 (2B) is bound by a queue pair, opens to the
//! peer of that one alone, and must be invalidated before it is bound again. An access looks at
//! the state and copies under one lock, so nothing goes through a window that was unbound.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    access,
    MwKind, //
};
use softirq::{
    new_bh_spinlock,
    BhSpinLock, //
};

use crate::mr::{
    Domain,
    Mr,
    Refusal,
    User,
    TAG_MASK, //
};

/// Rights that windows may have.
const RIGHTS: u32 = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;

/// What a work request asks to bind.
pub(crate) struct Bind {
    pub(crate) window_key: u32,
    /// The key that the window is to have.
    pub(crate) new_key: u32,
    pub(crate) mr_key: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

/// What a window is bound to.
struct Bound {
    mr: Arc<Mr>,
    /// Where in the region it begins.
    at: u64,
    /// The address that its beginning is known by.
    base: u64,
    length: u64,
    access: u32,
    /// The queue pair that bound it.
    identity: u64,
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.mr.unbound();
    }
}

/// What the lock protects.
struct Inner {
    key: u32,
    bound: Option<Bound>,
    /// Counts bindings, so that none is taken for another.
    generation: u64,
}

/// A memory window. Its lock is taken with that of a queue pair held.
#[pin_data]
pub(crate) struct Window {
    domain: Domain,
    kind: MwKind,
    first_key: u32,
    #[pin]
    inner: BhSpinLock<Inner>,
}

impl Window {
    /// Makes a window, bound to nothing.
    pub(crate) fn new(domain: Domain, key: u32, kind: MwKind) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                domain,
                kind,
                first_key: key,
                inner <- new_bh_spinlock!(Inner {
                    key,
                    bound: None,
                    generation: 0,
                }, "Window::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// The key that it was made with; the index in it never changes.
    pub(crate) fn first_key(&self) -> u32 {
        self.first_key
    }

    /// Binds the window to a part of `mr`; with a length of 0, unbinds it.
    pub(crate) fn bind(&self, user: User, bind: &Bind, mr: Option<Arc<Mr>>) -> Result<(), Refusal> {
        if self.domain != user.domain {
            return Err(Refusal::Domain);
        }
        if (self.first_key ^ bind.new_key) & !TAG_MASK != 0 {
            return Err(Refusal::Unknown);
        }
        let two = self.kind == MwKind::Two;
        let zero_based = bind.access & access::ZERO_BASED != 0;
        // The right to write locally is that of the region: no window gives or takes it.
        let allowed = if two {
            RIGHTS | access::LOCAL_WRITE | access::ZERO_BASED
        } else {
            RIGHTS | access::LOCAL_WRITE
        };
        if bind.access & !allowed != 0 {
            return Err(Refusal::Rights);
        }
        let bound = if bind.length == 0 {
            // Type 2 has invalidation for it.
            if two {
                return Err(Refusal::Range);
            }
            None
        } else {
            let mr = mr.ok_or(Refusal::Unknown)?;
            let at = mr.check_bind(
                user.domain,
                bind.mr_key,
                bind.addr,
                bind.length,
                bind.access,
            )?;
            mr.bound();
            Some(Bound {
                mr,
                at,
                base: if zero_based { 0 } else { bind.addr },
                length: bind.length,
                access: bind.access,
                identity: user.identity,
            })
        };
        // What it was bound to is let go outside of the lock.
        let _old = {
            let mut inner = self.inner.lock();
            let permitted = if two {
                inner.bound.is_none()
            } else {
                inner.key == bind.window_key
            };
            if !permitted {
                return Err(Refusal::Rights);
            }
            inner.key = bind.new_key;
            inner.generation = inner.generation.wrapping_add(1);
            core::mem::replace(&mut inner.bound, bound)
        };
        Ok(())
    }

    /// Invalidates a window of type 2 that is bound with `key`.
    pub(crate) fn invalidate(&self, user: User, key: u32) -> Result<(), Refusal> {
        if self.domain != user.domain {
            return Err(Refusal::Domain);
        }
        if self.kind != MwKind::Two {
            return Err(Refusal::Rights);
        }
        let _old = {
            let mut inner = self.inner.lock();
            match &inner.bound {
                Some(bound) if inner.key == key => {
                    if bound.identity != user.identity {
                        return Err(Refusal::Rights);
                    }
                }
                _ => return Err(Refusal::Unknown),
            }
            inner.bound.take()
        };
        Ok(())
    }

    /// Unbinds the window, however it is bound.
    pub(crate) fn revoke(&self) {
        let _old = self.inner.lock().bound.take();
    }

    /// Checks an access of a peer and returns where in the region it begins.
    pub(crate) fn open(
        this: Arc<Self>,
        user: User,
        key: u32,
        va: u64,
        len: u64,
        rights: u32,
    ) -> Result<(BoundWindow, u64), Refusal> {
        if this.domain != user.domain {
            return Err(Refusal::Domain);
        }
        let (at, generation) = {
            let inner = this.inner.lock();
            let bound = match &inner.bound {
                Some(bound) if inner.key == key => bound,
                _ => return Err(Refusal::Unknown),
            };
            if bound.access & rights != rights
                || (this.kind == MwKind::Two && bound.identity != user.identity)
            {
                return Err(Refusal::Rights);
            }
            let at = va.checked_sub(bound.base).ok_or(Refusal::Range)?;
            if at > bound.length || len > bound.length - at {
                return Err(Refusal::Range);
            }
            (
                bound.at.checked_add(at).ok_or(Refusal::Range)?,
                inner.generation,
            )
        };
        let window = BoundWindow {
            window: this,
            generation,
        };
        Ok((window, at))
    }
}

/// A binding that a peer was found entitled to; of no use once it is another.
pub(crate) struct BoundWindow {
    window: Arc<Window>,
    generation: u64,
}

impl BoundWindow {
    /// Calls `f` with the region, to which the window stays bound meanwhile.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&Mr) -> Result<R, Refusal>) -> Result<R, Refusal> {
        let inner = self.window.inner.lock();
        match &inner.bound {
            Some(bound) if inner.generation == self.generation => f(&bound.mr),
            _ => Err(Refusal::Unknown),
        }
    }
}
