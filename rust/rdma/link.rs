// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`: making devices on network devices.

use core::marker::PhantomData;
use kernel::{
    error::from_result,
    ffi::{
        c_char,
        c_int, //
    },
    prelude::*,
    str::CStr,
    types::Opaque, //
};
use rdma_bindings as bindings;

/// Makes devices of a link type. They are deleted by the core (`rdma link delete`).
pub trait LinkOps: 'static {
    /// The name in `rdma link add ... type NAME`.
    const TYPE: &'static CStr;

    /// Makes a device `name` on `netdev`. May sleep; RTNL is not held.
    fn new_link(name: &CStr, netdev: &net::NetDevice) -> Result;
}

/// A registered link type. Unregistered when dropped; no operation runs after that.
#[pin_data(PinnedDrop)]
pub struct LinkRegistration<T: LinkOps> {
    #[pin]
    ops: Opaque<bindings::rdma_link_ops>,
    _p: PhantomData<fn() -> T>,
}

// SAFETY: Nothing can be done with it but dropping it, which any thread may.
unsafe impl<T: LinkOps> Send for LinkRegistration<T> {}
// SAFETY: As above.
unsafe impl<T: LinkOps> Sync for LinkRegistration<T> {}

impl<T: LinkOps> LinkRegistration<T> {
    /// Registers the link type.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            ops <- Opaque::ffi_init(|slot: *mut bindings::rdma_link_ops| {
                // SAFETY: The slot is valid for writes and stays in place until `drop`
                // unregisters it, since the struct is pinned.
                unsafe {
                    slot.write(pin_init::zeroed());
                    (*slot).type_ = T::TYPE.as_char_ptr();
                    (*slot).newlink = Some(new_link::<T>);
                    bindings::rdma_link_register(slot);
                }
            }),
            _p: PhantomData,
        })
    }
}

#[pinned_drop]
impl<T: LinkOps> PinnedDrop for LinkRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered in `new`. The core's lock makes this wait for running operations.
        unsafe { bindings::rdma_link_unregister(self.ops.get()) };
    }
}

/// # Safety
///
/// To be called as the core calls `newlink`: with a terminated name and a device that is held.
unsafe extern "C" fn new_link<T: LinkOps>(
    name: *const c_char,
    netdev: *mut kernel::bindings::net_device,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a terminated string that lives during the call.
        let name = unsafe { CStr::from_char_ptr(name) };
        // SAFETY: The core holds the network device during the call.
        let netdev = unsafe { net::NetDevice::from_raw(netdev) };
        T::new_link(name, netdev)?;
        Ok(0)
    })
}
