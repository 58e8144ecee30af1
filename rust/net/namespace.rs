// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.

use core::ptr::NonNull;

use kernel::types::Opaque;

use crate::bindings;

/// Which network namespace, for comparison.
///
/// Another namespace may have the same identity once this one has gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetId(pub(crate) usize);

/// A network namespace.
///
/// # Invariants
///
/// While a reference to it exists, the protocols are up in the namespace: step 3 of what the
/// [documentation of the crate](crate) says about its end has not begun. It may have begun to go.
#[repr(transparent)]
pub struct NetNs(Opaque<bindings::net>);

// SAFETY: All that is done with a shared reference can be done by all threads.
unsafe impl Sync for NetNs {}

impl NetNs {
    /// Makes a reference of a pointer.
    ///
    /// # Safety
    ///
    /// It must be a pointer to a network namespace whose protocols stay up for `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(net: *const bindings::net) -> &'a Self {
        // SAFETY: The type is transparent. INVARIANT: By the safety requirements.
        unsafe { &*net.cast() }
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// Returns the namespace that the system starts with.
    pub fn init() -> &'static Self {
        // SAFETY: That namespace never goes.
        unsafe { Self::from_raw(bindings::initial_net()) }
    }

    /// Returns the identity.
    #[inline]
    pub fn id(&self) -> NetId {
        NetId(self.as_raw() as usize)
    }

    /// Returns whether the two are the same namespace.
    #[inline]
    pub fn same(&self, other: &Self) -> bool {
        self.id() == other.id()
    }

    /// Returns the number by which user space knows the namespace (that of `/proc/PID/ns/net`).
    pub fn inum(&self) -> u32 {
        // SAFETY: By the type invariants it is a namespace.
        unsafe { bindings::net_inum(self.as_raw()) }
    }

    /// Becomes a user of the namespace, which will then not go, or returns [`None`] if it is
    /// already going.
    ///
    /// Context: any.
    pub fn hold(&self) -> Option<NetRef> {
        // SAFETY: By the type invariants it is a namespace.
        let net = unsafe { bindings::maybe_get_net(self.as_raw()) };

        // INVARIANT: The reference was just taken.
        NonNull::new(net).map(|net| NetRef { net })
    }
}

/// A counted reference to a network namespace.
///
/// It keeps the namespace and all that is in it, also when no process uses it any more. So it is
/// for operations that have an end, not for objects that are to go when the namespace goes.
///
/// # Invariants
///
/// `net` points to a network namespace, to which this owns a reference.
pub struct NetRef {
    net: NonNull<bindings::net>,
}

// SAFETY: References belong to no thread.
unsafe impl Send for NetRef {}

// SAFETY: It gives access to `&NetNs`, which is `Send`.
unsafe impl Sync for NetRef {}

impl core::ops::Deref for NetRef {
    type Target = NetNs;

    #[inline]
    fn deref(&self) -> &NetNs {
        // SAFETY: By the type invariants it is a namespace. It can't begin to go as long as there
        // is a reference.
        unsafe { NetNs::from_raw(self.net.as_ptr()) }
    }
}

impl Clone for NetRef {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants it is a namespace with a reference.
        unsafe { bindings::get_net(self.net.as_ptr()) };

        // INVARIANT: The reference was just taken.
        Self { net: self.net }
    }
}

impl Drop for NetRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariants there is a reference to give back.
        unsafe { bindings::put_net(self.net.as_ptr()) }
    }
}
