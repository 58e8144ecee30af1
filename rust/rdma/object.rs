// SPDX-License-Identifier: GPL-2.0

//! Objects of the verbs: the core's struct, then the provider's data.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit, //
};
use kernel::types::Opaque;
use rdma_bindings as bindings;

use crate::Provider;

/// A verbs object: the C struct that the core works with, followed by the data of provider `P`.
///
/// That `P` is part of the type keeps the objects of two providers apart, even if their data is of
/// one type.
///
/// The core allocates the memory (by the `size_ib_*` fields of the operations table),
/// zeroed, fills its own part and calls the creating operation; [`Object::init`] then
/// writes the data. The core calls no other operation on the object before the creating
/// one has succeeded, nor after the destroying one has.
///
/// # Invariants
///
/// A reference to an `Object` exists only between [`Object::init`] and
/// [`Object::destroy`]; in that time `data` is initialised and `c` is valid, of a device of `P`.
#[repr(C)]
pub struct Object<C, P, T> {
    c: Opaque<C>,
    data: UnsafeCell<MaybeUninit<T>>,
    _p: PhantomData<fn() -> P>,
}

/// A device.
pub type Device<P> = Object<bindings::ib_device, P, <P as Provider>::Device>;
/// A user context: one opening of the device by a process.
pub type Context<P> = Object<bindings::ib_ucontext, P, <P as Provider>::Context>;
/// A protection domain.
pub type Pd<P> = Object<bindings::ib_pd, P, <P as Provider>::Pd>;
/// An address handle.
pub type Ah<P> = Object<bindings::ib_ah, P, <P as Provider>::Ah>;
/// A completion queue.
pub type Cq<P> = Object<bindings::ib_cq, P, <P as Provider>::Cq>;
/// A queue pair.
pub type Qp<P> = Object<bindings::ib_qp, P, <P as Provider>::Qp>;
/// A shared receive queue.
pub type Srq<P> = Object<bindings::ib_srq, P, <P as Provider>::Srq>;
/// A memory window.
pub type Mw<P> = Object<bindings::ib_mw, P, <P as Provider>::Mw>;
/// A memory region.
pub type Mr<P> = Object<bindings::ib_mr, P, <P as Provider>::Mr>;

/// A set of counters that queue pairs are bound to; made when the first one is.
pub(crate) type BoundCounter<P> =
    Object<bindings::rdma_counter, P, UnsafeCell<Option<<P as Provider>::Counter>>>;

impl<C, P, T> Object<C, P, T> {
    /// The bytes that the core must allocate for it.
    pub(crate) const SIZE: usize = size_of::<Self>();

    /// Borrows the object behind a pointer of the core.
    ///
    /// # Safety
    ///
    /// `c` must point to the first field of an object of this very type, of a device of `P`,
    /// initialised by [`Object::init`], which is not destroyed while the reference lives.
    pub(crate) unsafe fn from_raw<'a>(c: *mut C) -> &'a Self {
        // SAFETY:
        // - `c` is the first field of a `repr(C)` struct, so the address is the same;
        // - the caller promises type, initialisation and lifetime.
        unsafe { &*c.cast::<Self>() }
    }

    /// Writes the provider's data.
    ///
    /// # Safety
    ///
    /// `c` must point to the first field of memory for an object of this type that nobody
    /// else accesses and whose data was not initialised yet.
    pub(crate) unsafe fn init(c: *mut C, data: T) {
        let this = c.cast::<Self>();
        // SAFETY: The caller promises exclusive access to memory of this size; nothing is
        // overwritten that would have to be dropped.
        unsafe { (*this).data.get().write(MaybeUninit::new(data)) };
    }

    /// Drops the provider's data.
    ///
    /// # Safety
    ///
    /// As [`Object::from_raw`], and no reference to the object exists or is made later.
    pub(crate) unsafe fn destroy(c: *mut C) {
        let this = c.cast::<Self>();
        // SAFETY: By the caller's promise the data is initialised and nobody else has it.
        unsafe { (*(*this).data.get()).assume_init_drop() };
    }

    /// Returns the provider's data.
    pub fn data(&self) -> &T {
        // SAFETY: By the type invariant `data` is initialised; it is only ever shared.
        unsafe { (*self.data.get()).assume_init_ref() }
    }

    /// Returns the core's struct.
    pub(crate) fn as_raw(&self) -> *mut C {
        self.c.get()
    }
}

impl<P: Provider> Pd<P> {
    /// Tells whether the PD belongs to a process, else to the kernel.
    pub fn is_user(&self) -> bool {
        // SAFETY: By the type invariant the struct is valid; the field does not change.
        unsafe { !(*self.as_raw()).uobject.is_null() }
    }

    /// Returns the device that the PD was allocated on.
    pub fn device(&self) -> &Device<P> {
        // SAFETY: A PD holds its device, which is one of `P` by the type invariant.
        unsafe { Object::from_raw((*self.as_raw()).device) }
    }
}

impl<P: Provider> Cq<P> {
    /// Returns the device that the CQ belongs to.
    pub fn device(&self) -> &Device<P> {
        // SAFETY: As for a PD: a CQ holds its device.
        unsafe { Object::from_raw((*self.as_raw()).device) }
    }
}

impl<P: Provider> Qp<P> {
    /// Returns the QP number.
    pub fn number(&self) -> u32 {
        // SAFETY: By the type invariant the struct is valid; the field does not change.
        unsafe { (*self.as_raw()).qp_num }
    }
}

impl<P: Provider> Context<P> {
    /// Returns the device that the context belongs to.
    pub fn device(&self) -> &Device<P> {
        // SAFETY: As for a PD: a context holds its device.
        unsafe { Object::from_raw((*self.as_raw()).device) }
    }
}

impl<P: Provider> Device<P> {
    /// Tells whether the port's table has a GID of RoCEv2. Any context.
    pub fn has_gid(&self, gid: &[u8; 16]) -> bool {
        // SAFETY: By the type invariant the device is valid; the GID is copied.
        unsafe { bindings::rdma_port_has_roce_v2_gid(self.as_raw(), gid.as_ptr()) }
    }
}
