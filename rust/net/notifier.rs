// SPDX-License-Identifier: GPL-2.0

//! What happens to network devices.

use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    types::Opaque, //
};

use crate::{
    bindings,
    NetDevice, //
};

/// What happened to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetEvent {
    /// It appeared in its namespace: it was registered, or moved there.
    Register,
    /// It leaves its namespace: it is being unregistered, or moved away. References to it have to
    /// be given up.
    Unregister,
    /// It is about to be set up.
    PreUp,
    /// It was set up.
    Up,
    /// It is about to be set down.
    GoingDown,
    /// It was set down.
    Down,
    /// Its state changed, such as whether it has a carrier.
    Change,
    /// Its MTU changed.
    ChangeMtu,
    /// Its link-layer address changed.
    ChangeAddr,
    /// Its name changed.
    ChangeName,
    /// It became a port of another device, or ceased to be one.
    ChangeUpper,
    /// Its features changed.
    FeatChange,
    /// Something else, by the number of the kernel (`NETDEV_*`).
    Other(usize),
}

impl NetEvent {
    fn from_raw(event: usize) -> Self {
        match bindings::netdev_cmd::try_from(event) {
            Ok(bindings::netdev_cmd_NETDEV_REGISTER) => NetEvent::Register,
            Ok(bindings::netdev_cmd_NETDEV_UNREGISTER) => NetEvent::Unregister,
            Ok(bindings::netdev_cmd_NETDEV_PRE_UP) => NetEvent::PreUp,
            Ok(bindings::netdev_cmd_NETDEV_UP) => NetEvent::Up,
            Ok(bindings::netdev_cmd_NETDEV_GOING_DOWN) => NetEvent::GoingDown,
            Ok(bindings::netdev_cmd_NETDEV_DOWN) => NetEvent::Down,
            Ok(bindings::netdev_cmd_NETDEV_CHANGE) => NetEvent::Change,
            Ok(bindings::netdev_cmd_NETDEV_CHANGEMTU) => NetEvent::ChangeMtu,
            Ok(bindings::netdev_cmd_NETDEV_CHANGEADDR) => NetEvent::ChangeAddr,
            Ok(bindings::netdev_cmd_NETDEV_CHANGENAME) => NetEvent::ChangeName,
            Ok(bindings::netdev_cmd_NETDEV_CHANGEUPPER) => NetEvent::ChangeUpper,
            Ok(bindings::netdev_cmd_NETDEV_FEAT_CHANGE) => NetEvent::FeatChange,
            _ => NetEvent::Other(event),
        }
    }
}

/// Someone who is told what happens to network devices.
pub trait NetEvents: Send + Sync + 'static {
    /// Something happened to a device.
    ///
    /// It is called in process context with the RTNL lock held, so it must not wait for anything
    /// that takes that lock.
    fn event(&self, dev: &NetDevice, event: NetEvent);
}

/// Tells a handler what happens to the devices of all namespaces.
///
/// When it is created, the handler is told of the devices that there are, with
/// [`NetEvent::Register`] and [`NetEvent::Up`]. When it is dropped, the handler is told that they
/// go, with [`NetEvent::GoingDown`], [`NetEvent::Down`] and [`NetEvent::Unregister`], although they
/// stay. After that it is not called any more.
///
/// Both take the RTNL lock, and need process context.
///
/// # Invariants
///
/// `block` is registered, with `NotifierRegistration::notify` as its function.
#[pin_data(PinnedDrop)]
pub struct NotifierRegistration<H: NetEvents> {
    handler: H,
    // Registered last: the handler must be there by then.
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: It can be unregistered by every thread, and `H` is `Send`.
unsafe impl<H: NetEvents> Send for NotifierRegistration<H> {}

// SAFETY: A shared reference gives access to `&H` and nothing else.
unsafe impl<H: NetEvents> Sync for NotifierRegistration<H> {}

impl<H: NetEvents> NotifierRegistration<H> {
    /// Registers a handler.
    pub fn new(handler: H) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            handler,
            block <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                let block = bindings::notifier_block {
                    notifier_call: Some(Self::notify),
                    ..pin_init::zeroed()
                };

                // SAFETY: `slot` is valid for writes.
                unsafe { slot.write(block) };
                // SAFETY: `slot` is a part of a pinned object, whose other fields are initialised,
                // and that unregisters it when it is dropped.
                to_result(unsafe { bindings::register_netdevice_notifier(slot) })
            }),
        })
    }

    /// Returns the handler.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// The function of the notifier block.
    ///
    /// # Safety
    ///
    /// `block` must be that of a `NotifierRegistration<H>` whose handler is initialised, `info` the
    /// information that comes with events of network devices.
    unsafe extern "C" fn notify(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        let event = NetEvent::from_raw(event);

        // Nobody waits for references to a device that fails to be registered, so handlers don't
        // get to see one before it is certain to be.
        if event == NetEvent::Other(bindings::netdev_cmd_NETDEV_POST_INIT as usize)
            || event == NetEvent::Other(bindings::netdev_cmd_NETDEV_PRE_UNINIT as usize)
        {
            return bindings::NOTIFY_DONE as c_int;
        }

        let this = container_of!(Opaque::cast_from(block), Self, block);
        // SAFETY: By the safety requirements it is initialised, and it is only shared. The block
        // itself may still be in the course of being registered, but it is not touched.
        let handler = unsafe { &(*this).handler };
        // SAFETY: By the safety requirements. The device is not freed during the call. All events
        // but those above come for devices that have been registered.
        let dev = unsafe { NetDevice::from_raw(bindings::netdev_notifier_dev(info)) };

        handler.event(dev, event);
        // CAST: It is a small number.
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<H: NetEvents> PinnedDrop for NotifierRegistration<H> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants it is registered. Its function is not called any more
        // when this returns.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get()) };
    }
}
