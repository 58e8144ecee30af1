// SPDX-License-Identifier: GPL-2.0

//! Devices: allocation, registration, removal.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    str::CStr, //
};
use rdma_bindings as bindings;

use crate::{
    object::{
        Device,
        Object, //
    },
    ops::Ops,
    Provider, //
};

/// Changes of a port that consumers are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The port became active.
    Active,
    /// The port became inactive.
    Error,
}

/// A device that is allocated and not registered yet.
///
/// # Invariants
///
/// `raw` is an allocated device of provider `P`, its data initialised.
pub struct DeviceBuilder<P: Provider> {
    raw: NonNull<bindings::ib_device>,
    _p: PhantomData<fn() -> P>,
}

impl<P: Provider> DeviceBuilder<P> {
    /// Allocates a device in the namespace of `netdev`. `guid` is big endian in memory.
    pub fn new(
        netdev: &net::NetDevice,
        guid: u64,
        description: &[u8],
        data: P::Device,
    ) -> Result<Self> {
        // SAFETY: Any size that is at least that of the C struct may be asked for, and the
        // namespace is that of a device that is held.
        let raw = NonNull::new(unsafe {
            bindings::ib_alloc_device_near(Device::<P>::SIZE, netdev.as_raw().cast())
        })
        .ok_or(ENOMEM)?;
        // SAFETY: Zeroed memory of the right size that nobody else knows yet.
        unsafe {
            Device::<P>::init(raw.as_ptr(), data);
            let dev = &mut *raw.as_ptr();
            for (to, from) in dev.node_desc.iter_mut().take(63).zip(description) {
                *to = *from;
            }
            dev.node_type = bindings::RDMA_NODE_IB_CA as u8;
            dev.node_guid = guid;
            dev.phys_port_cnt = 1;
            dev.num_comp_vectors = 1;
            dev.uverbs_cmd_mask |= 1u64
                << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND
                | 1u64 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;
            bindings::ib_set_device_ops(raw.as_ptr(), Ops::<P>::table().as_raw());
        }
        // INVARIANT: Allocated and initialised.
        Ok(Self {
            raw,
            _p: PhantomData,
        })
    }

    /// Registers the device: consumers may use it from then on, even before this returns.
    ///
    /// # Errors
    ///
    /// `EEXIST`-like errors of the core if the name is taken; the device is freed.
    pub fn register(self, name: &CStr) -> Result {
        let raw = self.raw;
        // SAFETY: Allocated, with operations set, not registered; the name is copied.
        let ret = unsafe { bindings::ib_register_virtual_device(raw.as_ptr(), name.as_char_ptr()) };
        // If that failed, the builder frees the device; else the core does.
        to_result(ret)?;
        let _ = ManuallyDrop::new(self);
        Ok(())
    }

    /// Makes a handle, which is of use once the device is registered.
    pub fn handle(&self) -> DeviceHandle<P> {
        // SAFETY: The device is valid.
        unsafe { bindings::ib_device_hold_memory(self.raw.as_ptr()) };
        // INVARIANT: The reference just taken belongs to the handle.
        DeviceHandle {
            raw: self.raw,
            _p: PhantomData,
        }
    }
}

impl<P: Provider> Drop for DeviceBuilder<P> {
    fn drop(&mut self) {
        // SAFETY: Not registered, so it is ours to free; `dealloc_driver` drops the data.
        unsafe { bindings::ib_dealloc_device(self.raw.as_ptr()) };
    }
}

/// Keeps the memory of a device, which may meanwhile be unregistered by others.
///
/// # Invariants
///
/// `raw` is a device of provider `P` of whose memory a reference is held.
pub struct DeviceHandle<P: Provider> {
    raw: NonNull<bindings::ib_device>,
    _p: PhantomData<fn() -> P>,
}

// SAFETY: The core's functions used may be called by any thread.
unsafe impl<P: Provider> Send for DeviceHandle<P> {}
// SAFETY: As above.
unsafe impl<P: Provider> Sync for DeviceHandle<P> {}

impl<P: Provider> DeviceHandle<P> {
    /// Calls `f` with the device if it is registered; it stays so meanwhile. `f` must not
    /// wait for the device's removal.
    pub fn with<R>(&self, f: impl FnOnce(&Device<P>) -> R) -> Option<R> {
        // SAFETY: The memory is valid by the type invariant.
        if !unsafe { bindings::ib_device_try_get(self.raw.as_ptr()) } {
            return None;
        }
        // SAFETY: Registered, so its data is initialised and not dropped until the reference
        // is put.
        let ret = f(unsafe { Object::from_raw(self.raw.as_ptr()) });
        // SAFETY: Gives back the reference taken above.
        unsafe { bindings::ib_device_put(self.raw.as_ptr()) };
        Some(ret)
    }

    /// Unregisters the device and waits for it; does nothing if that has been done.
    ///
    /// Sleeps, and takes RTNL. If the core is just moving the device to another namespace, it waits
    /// for that first.
    pub fn unregister(&self) {
        // SAFETY: The memory is valid; the core makes repeated calls harmless.
        unsafe { bindings::ib_unregister_device(self.raw.as_ptr()) };
    }

    /// Tells consumers of a change of the port. Does not sleep.
    pub fn port_event(&self, event: PortEvent) {
        self.with(|device| {
            let mut ev: bindings::ib_event = pin_init::zeroed();
            ev.device = device.as_raw();
            ev.element.port_num = 1;
            ev.event = match event {
                PortEvent::Active => bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
                PortEvent::Error => bindings::ib_event_type_IB_EVENT_PORT_ERR,
            };
            // SAFETY: The event is complete; the core copies it.
            unsafe { bindings::ib_dispatch_event(&raw const ev) };
        });
    }

    /// Tells whether both are the same device.
    pub fn is(&self, device: &Device<P>) -> bool {
        self.raw.as_ptr() == device.as_raw()
    }
}

impl<P: Provider> Drop for DeviceHandle<P> {
    fn drop(&mut self) {
        // SAFETY: Gives back the reference of the type invariant.
        unsafe { bindings::ib_device_release_memory(self.raw.as_ptr()) };
    }
}
