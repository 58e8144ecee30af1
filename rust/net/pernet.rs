// SPDX-License-Identifier: GPL-2.0

//! Data for each network namespace.

use core::{
    ops::Deref,
    ptr, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu,
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};
use softirq::Gate;

use crate::{
    bindings,
    udp::Sockets,
    Family,
    NetId,
    NetNs,
    Receiver,
    UdpSocket, //
};

/// Data of a driver for each network namespace.
///
/// Implementing it takes an [`impl_per_net!`](crate::impl_per_net) too.
pub trait PerNet: HasSlot + Sized + Send + Sync + 'static {
    /// A namespace appears, or has been there when the driver was loaded.
    ///
    /// An error keeps the namespace from being created, or the driver from being loaded.
    ///
    /// Context: process. It is called with a lock held that all changes of the set of network
    /// drivers and namespaces take; so it must not wait for those.
    fn init(net: &NetNs) -> Result<Self>;

    /// A namespace goes, or the driver is unloaded.
    ///
    /// If the namespace goes then its devices have gone before. Its UDP sockets are closed. The
    /// data are dropped once nobody has a reference to them, which may be after the namespace.
    ///
    /// Context: process, as for [`PerNet::init`].
    fn exit(&self) {}
}

/// Where the data of a type are found in a namespace.
///
/// # Invariants
///
/// While `taken`, `id` is that of a `pernet_operations` with `size` that of a [`Words`], or there
/// is none that is registered.
#[doc(hidden)]
pub struct Slot {
    taken: Atomic<bool>,
    id: Atomic<u32>,
}

impl Slot {
    /// Creates a slot that is not in use.
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self {
            taken: Atomic::new(false),
            id: Atomic::new(0),
        }
    }
}

/// A type that has a [`Slot`].
///
/// # Safety
///
/// [`HasSlot::slot`] must always return the same slot, and no other type must return that.
#[doc(hidden)]
pub unsafe trait HasSlot {
    /// Returns the slot.
    fn slot() -> &'static Slot;
}

/// Makes a type known as one that may implement [`PerNet`].
#[macro_export]
macro_rules! impl_per_net {
    ($type:ty) => {
        // SAFETY: The static exists once, for this implementation.
        unsafe impl $crate::HasSlot for $type {
            fn slot() -> &'static $crate::Slot {
                static SLOT: $crate::Slot = $crate::Slot::new();

                &SLOT
            }
        }
    };
}

/// What is stored in a namespace, zeroed at first.
///
/// # Invariants
///
/// `owned` is null, or came from [`Arc::into_raw`] of an `Arc<Namespace<T>>` for the type of the
/// slot. `published` is null or the same as `owned`; after it is reset, a grace period passes
/// before `owned` is dropped.
#[repr(C)]
struct Words {
    published: Atomic<*mut c_void>,
    owned: Atomic<*mut c_void>,
}

/// The registration of a type that has data for each namespace.
///
/// There can be one for a type at any time. Dropping it ends the data as if the namespaces went.
///
/// Creating and dropping it needs process context.
///
/// # Invariants
///
/// `operations` is registered, with the functions of this type, and the slot of `T` is taken for
/// it.
#[pin_data(PinnedDrop)]
pub struct Namespaces<T: PerNet> {
    #[pin]
    operations: Opaque<bindings::pernet_operations>,
    _data: core::marker::PhantomData<Arc<Namespace<T>>>,
}

// SAFETY: It can be unregistered by every thread, and `T` is `Send` and `Sync`.
unsafe impl<T: PerNet> Send for Namespaces<T> {}

// SAFETY: A shared reference gives access to `Arc<Namespace<T>>`, which is `Send` and `Sync`.
unsafe impl<T: PerNet> Sync for Namespaces<T> {}

impl<T: PerNet> Namespaces<T> {
    /// Registers the type.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: it is registered already.
    /// - What [`PerNet::init`] returns.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            operations <- Opaque::try_ffi_init(Self::register),
            _data: core::marker::PhantomData,
        })
    }

    fn register(slot: *mut bindings::pernet_operations) -> Result {
        T::slot()
            .taken
            .cmpxchg(false, true, ordering::Full)
            .map_err(|_| EBUSY)?;

        let operations = bindings::pernet_operations {
            init: Some(Self::init_callback),
            pre_exit: Some(Self::pre_exit_callback),
            exit: Some(Self::exit_callback),
            id: T::slot().id.as_ptr(),
            size: size_of::<Words>(),
            ..pin_init::zeroed()
        };

        // SAFETY: This is called by an initialiser, with a pointer that is valid for writes.
        unsafe { slot.write(operations) };
        // SAFETY: `slot` is a part of a pinned object that unregisters it when it is dropped. `id`
        // is only written while nothing reads it: the slot was not taken before, and callbacks
        // come later.
        let registered = to_result(unsafe { bindings::register_pernet_subsys(slot) });

        if registered.is_err() {
            T::slot().taken.store(false, ordering::Release);
        }
        registered
    }

    /// Returns what the namespace has stored for the type.
    ///
    /// # Safety
    ///
    /// Operations with the slot of `T` must be registered, and `net` a namespace that has been
    /// initialised by them, or is being. The result is valid until it has been freed from there.
    unsafe fn words<'a>(net: *mut bindings::net) -> Option<&'a Words> {
        let id = T::slot().id.load(ordering::Relaxed);
        // SAFETY: By the safety requirements it is a namespace. The index is checked.
        let words = unsafe { bindings::net_generic(net, id) };

        // SAFETY: By the safety requirements, and the type invariants of the slot, it is null or
        // points to as much zeroed memory as such a value takes.
        unsafe { words.cast::<Words>().as_ref() }
    }

    /// Returns what there is for a namespace, or [`None`] if that is going.
    ///
    /// Context: any, if `T` may be dropped there.
    pub fn of(&self, net: &NetNs) -> Option<Arc<Namespace<T>>> {
        let _rcu = rcu::read_lock();
        // SAFETY: By the type invariants the operations are registered, and stay so for the borrow
        // of `self`. What the namespace has stored for them is freed only after it was taken
        // apart, which `net` holds off.
        let words = unsafe { Self::words(net.as_raw()) }?;
        let namespace = words.published.load(ordering::Acquire);

        if namespace.is_null() {
            return None;
        }
        // SAFETY: By the type invariants of `Words` it came from an `Arc`, which is not dropped
        // while the RCU read lock is held.
        let namespace = unsafe { ArcBorrow::from_raw(namespace.cast::<Namespace<T>>()) };

        Some(namespace.into())
    }

    /// # Safety
    ///
    /// It must be called by operations with the slot of `T`.
    unsafe extern "C" fn init_callback(net: *mut bindings::net) -> c_int {
        // SAFETY: A namespace is initialised by drivers after protocols, and stays for the call.
        let ns = unsafe { NetNs::from_raw(net) };
        let namespace = match Namespace::<T>::new(ns) {
            Ok(namespace) => namespace,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: This is called by the operations.
        let Some(words) = (unsafe { Self::words(net) }) else {
            return ENOMEM.to_errno();
        };
        let namespace = Arc::into_raw(namespace).cast_mut().cast::<c_void>();

        // INVARIANT: It came from an `Arc`, of the type of the slot.
        words.owned.store(namespace, ordering::Relaxed);
        words.published.store(namespace, ordering::Release);
        0
    }

    /// # Safety
    ///
    /// It must be called by operations with the slot of `T`, after their `init`.
    unsafe extern "C" fn pre_exit_callback(net: *mut bindings::net) {
        // SAFETY: This is called by the operations.
        if let Some(words) = unsafe { Self::words(net) } {
            words.published.store(ptr::null_mut(), ordering::Relaxed);
        }
    }

    /// # Safety
    ///
    /// It must be called by operations with the slot of `T`, a grace period after their
    /// `pre_exit`.
    unsafe extern "C" fn exit_callback(net: *mut bindings::net) {
        // SAFETY: This is called by the operations.
        let Some(words) = (unsafe { Self::words(net) }) else {
            return;
        };
        let namespace = words.owned.xchg(ptr::null_mut(), ordering::Full);

        if namespace.is_null() {
            return;
        }
        // SAFETY: By the type invariants it came from an `Arc`, to which there is no pointer any
        // more: it was just reset. Those who have got it by `published` have a reference of their
        // own by now, as a grace period has passed since that was reset.
        let namespace = unsafe { Arc::from_raw(namespace.cast::<Namespace<T>>()) };

        namespace.end();
    }
}

#[pinned_drop]
impl<T: PerNet> PinnedDrop for Namespaces<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants they are registered. None of their functions is called
        // any more when this returns.
        unsafe { bindings::unregister_pernet_subsys(self.operations.get()) };
        T::slot().taken.store(false, ordering::Release);
    }
}

/// A network namespace, from the view of a driver with data for it.
///
/// It may outlive the namespace itself, as an object without use.
///
/// # Invariants
///
/// The protocols of the namespace `net` are up until `gate` has been closed.
#[pin_data]
pub struct Namespace<T: PerNet> {
    net: *const bindings::net,
    #[pin]
    gate: Gate,
    sockets: Arc<Sockets>,
    data: T,
}

// SAFETY: The pointer is to a namespace, which belongs to no thread, and the rest is `Send`.
unsafe impl<T: PerNet> Send for Namespace<T> {}

// SAFETY: The pointer is to a namespace, which is `Sync`, and the rest is `Sync`.
unsafe impl<T: PerNet> Sync for Namespace<T> {}

impl<T: PerNet> Namespace<T> {
    fn new(net: &NetNs) -> Result<Arc<Self>> {
        let sockets = Sockets::new()?;
        let data = T::init(net)?;

        // INVARIANT: The protocols are up, as they are for all `&NetNs`; and they stay up until
        // the exit callback returns, which closes the gate.
        Arc::pin_init(
            try_pin_init!(Self {
                net: net.as_raw(),
                gate <- Gate::new(),
                sockets,
                data,
            }),
            GFP_KERNEL,
        )
    }

    /// The namespace goes.
    fn end(&self) {
        self.gate.close();
        self.sockets.close_all();
        self.data.exit();
    }

    /// Returns the identity of the namespace.
    pub fn net_id(&self) -> NetId {
        NetId(self.net as usize)
    }

    /// Calls a function with the namespace, or returns [`None`] if it is going.
    ///
    /// The namespace does not go meanwhile. The function may sleep if the caller may, but must not
    /// wait for the end of a namespace, nor for that of [`Namespaces`].
    ///
    /// Context: any.
    pub fn with_net<R>(&self, f: impl FnOnce(&NetNs) -> R) -> Option<R> {
        let _pass = self.gate.enter()?;

        // SAFETY: By the type invariants the protocols of the namespace are up, as long as there
        // is a pass.
        Some(f(unsafe { NetNs::from_raw(self.net) }))
    }

    /// Opens a UDP port on all addresses of the namespace.
    ///
    /// Packets to it are given to `receiver`. The port is closed when the returned value is
    /// dropped, or when the namespace goes.
    ///
    /// Returns [`None`] for IPv6 if the kernel doesn't have that, or has it switched off.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`: the port is taken.
    /// - `ENODEV`: the namespace is going.
    /// - `ENOMEM` and others of the kernel's.
    ///
    /// Context: process.
    pub fn open_udp<R: Receiver>(
        &self,
        family: Family,
        port: u16,
        receiver: Arc<R>,
    ) -> Result<Option<UdpSocket>> {
        self.with_net(|net| UdpSocket::open(net, &self.sockets, family, port, receiver))
            .unwrap_or(Err(ENODEV))
    }
}

impl<T: PerNet> Deref for Namespace<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}
