// SPDX-License-Identifier: GPL-2.0

//! Being told when devices of the provider come, go and are renamed.

use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    error::to_result,
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*,
    str::CStr,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

use crate::{
    object::Device,
    Provider, //
};

/// Keeps something for each device of a provider.
pub trait Follower<P: Provider>: 'static {
    /// The name, for messages.
    const NAME: &'static CStr;
    /// What is kept for a device; dropped when the device is unregistered.
    type Data: Send + 'static;

    /// A device was registered. May sleep.
    fn added(device: &Device<P>, name: &CStr) -> Self::Data;
    /// A device has a new name. May sleep.
    fn renamed(device: &Device<P>, name: &CStr, data: &mut Self::Data);
}

/// The client that is registered: the core does not tell `added` which one it is called for.
static CLIENT: Atomic<*mut bindings::ib_client> = Atomic::new(ptr::null_mut());

/// A registered follower. After it was dropped nothing is kept any more.
#[pin_data(PinnedDrop)]
pub struct FollowerRegistration<P: Provider, F: Follower<P>> {
    #[pin]
    client: Opaque<bindings::ib_client>,
    _p: PhantomData<fn() -> (P, F)>,
}

// SAFETY: Nothing can be done with it but dropping it, which any thread may.
unsafe impl<P: Provider, F: Follower<P>> Send for FollowerRegistration<P, F> {}
// SAFETY: As above.
unsafe impl<P: Provider, F: Follower<P>> Sync for FollowerRegistration<P, F> {}

impl<P: Provider, F: Follower<P>> FollowerRegistration<P, F> {
    /// Registers the follower, of which a module can have one. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` for a second one.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            client <- Opaque::try_ffi_init(|slot: *mut bindings::ib_client| {
                if CLIENT.cmpxchg(ptr::null_mut(), slot, Release).is_err() {
                    return Err(EBUSY);
                }
                // SAFETY: The slot is valid for writes and stays in place until `drop`
                // unregisters it, since the struct is pinned; or until right below, if the
                // registration fails.
                let ret = unsafe {
                    slot.write(pin_init::zeroed());
                    (*slot).name = F::NAME.as_char_ptr();
                    (*slot).add = Some(add::<P, F>);
                    (*slot).remove = Some(remove::<P, F>);
                    (*slot).rename = Some(rename::<P, F>);
                    bindings::ib_register_client(slot)
                };
                to_result(ret).inspect_err(|_| CLIENT.store(ptr::null_mut(), Relaxed))
            }),
            _p: PhantomData,
        }? Error)
    }
}

#[pinned_drop]
impl<P: Provider, F: Follower<P>> PinnedDrop for FollowerRegistration<P, F> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered in `new`. The core removes it from all devices and waits for that.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
        CLIENT.store(ptr::null_mut(), Relaxed);
    }
}

/// The name of a device.
///
/// # Safety
///
/// The device must be valid and not be renamed while the name is in use.
unsafe fn name<'a>(device: *mut bindings::ib_device) -> &'a CStr {
    // SAFETY: The core keeps a terminated name there; the caller promises that it stays.
    unsafe { CStr::from_char_ptr((&raw const (*device).name).cast()) }
}

/// # Safety
///
/// To be called as the core calls `add`.
unsafe extern "C" fn add<P: Provider, F: Follower<P>>(device: *mut bindings::ib_device) -> c_int {
    // SAFETY: The core passes a valid device.
    if unsafe { (*device).ops.owner } != P::module().as_ptr().cast() {
        return EOPNOTSUPP.to_errno();
    }
    // SAFETY: A registered device of this module, thus of `P`. It is renamed with the lock of all
    // devices taken for writing, which the core holds for reading or writing now.
    let data = unsafe { F::added(Device::<P>::from_raw(device), name(device)) };
    match KBox::new(data, GFP_KERNEL) {
        Ok(data) => {
            let data = KBox::into_raw(data).cast::<c_void>();
            // SAFETY: The core calls `add` with the client registered, so it is the one in
            // `CLIENT`; device and client stay until `remove`.
            unsafe { bindings::ib_set_client_data(device, CLIENT.load(Acquire), data) };
            0
        }
        Err(_) => ENOMEM.to_errno(),
    }
}

/// # Safety
///
/// To be called as the core calls `remove`.
unsafe extern "C" fn remove<P: Provider, F: Follower<P>>(
    _device: *mut bindings::ib_device,
    data: *mut c_void,
) {
    // SAFETY: `add` succeeded, so it is what that stored; nothing else is called with it now or
    // later.
    drop(unsafe { KBox::from_raw(data.cast::<F::Data>()) });
}

/// # Safety
///
/// To be called as the core calls `rename`.
unsafe extern "C" fn rename<P: Provider, F: Follower<P>>(
    device: *mut bindings::ib_device,
    data: *mut c_void,
) {
    // SAFETY:
    // - `add` succeeded, so the data is what that stored. `remove` is only called after the mark
    //   was cleared under the write lock that `rename` holds for reading, and one `rename` at a
    //   time runs, as each begins with the lock of all devices for writing.
    // - The device is one of `P`, and not renamed again meanwhile.
    unsafe {
        F::renamed(
            Device::<P>::from_raw(device),
            name(device),
            &mut *data.cast::<F::Data>(),
        );
    }
}
