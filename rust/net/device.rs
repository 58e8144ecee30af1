// SPDX-License-Identifier: GPL-2.0

//! Network devices.

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    fmt,
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        rcu, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    NetId,
    NetNs, //
};

/// The link layer of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DevKind {
    /// Ethernet, or something that looks like it.
    Ether,
    /// The loopback device.
    Loopback,
    /// No link-layer header (tun, for example).
    None,
    /// Another, by its ARP hardware type.
    Other(u16),
}

/// The name of a device, as it was when asked for.
#[derive(Clone, Copy)]
pub struct DevName([u8; DevName::LEN]);

impl DevName {
    const LEN: usize = bindings::IFNAMSIZ as usize;
}

impl Deref for DevName {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for DevName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.to_bytes().utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

/// A network device.
///
/// [`ARef<NetDevice>`] is a counted reference. It keeps the memory of the device, and when the
/// device is unregistered that waits until all references are gone: whoever holds one for long
/// must give it up at [`NetEvent::Unregister`](crate::NetEvent::Unregister).
///
/// Properties can change at any time, unless the caller holds the RTNL lock.
///
/// Context: any, unless said otherwise.
///
/// # Invariants
///
/// While a reference to it exists, it is a network device that has been registered at least once,
/// and that is not freed.
#[repr(transparent)]
pub struct NetDevice(Opaque<bindings::net_device>);

// SAFETY: Devices belong to no thread.
unsafe impl Send for NetDevice {}

// SAFETY: All that is done with a shared reference can be done by all threads.
unsafe impl Sync for NetDevice {}

// SAFETY: The functions count the references to the device, all of which have such a count.
unsafe impl AlwaysRefCounted for NetDevice {
    fn inc_ref(&self) {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::dev_hold(self.as_raw()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirements there is a reference to give back.
        unsafe { bindings::dev_put(obj.as_ptr().cast()) }
    }
}

impl PartialEq for NetDevice {
    /// Whether they are the same device.
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for NetDevice {}

impl NetDevice {
    /// Makes a reference of a pointer, for other abstractions.
    ///
    /// # Safety
    ///
    /// It must be a pointer to a network device that has been registered and is not freed for
    /// `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(dev: *const bindings::net_device) -> &'a Self {
        // SAFETY: The type is transparent. INVARIANT: By the safety requirements.
        unsafe { &*dev.cast() }
    }

    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// It must be null, or a pointer to a network device that has been registered, with a
    /// reference that the caller owns and gives up.
    pub(crate) unsafe fn from_owned(dev: *mut bindings::net_device) -> Option<ARef<Self>> {
        // SAFETY: By the safety requirements, as the type is transparent.
        NonNull::new(dev.cast::<Self>()).map(|dev| unsafe { ARef::from_raw(dev) })
    }

    /// Returns a pointer to the C structure, for other abstractions.
    ///
    /// It is valid as long as `self`.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// Finds a device by name.
    pub fn by_name(net: &NetNs, name: &CStr) -> Option<ARef<Self>> {
        // SAFETY: By the type invariants it is a namespace, and a string.
        let dev = unsafe { bindings::dev_get_by_name(net.as_raw(), name.as_char_ptr()) };

        // SAFETY: The function returns a device with a reference, or null.
        unsafe { Self::from_owned(dev) }
    }

    /// Finds a device by index.
    pub fn by_index(net: &NetNs, index: u32) -> Option<ARef<Self>> {
        let index = c_int::try_from(index).ok()?;
        // SAFETY: By the type invariants it is a namespace.
        let dev = unsafe { bindings::dev_get_by_index(net.as_raw(), index) };

        // SAFETY: The function returns a device with a reference, or null.
        unsafe { Self::from_owned(dev) }
    }

    /// Returns the name. If the device is renamed meanwhile, it may be a mixture of both.
    pub fn name(&self) -> DevName {
        let mut name = [0; DevName::LEN];

        // SAFETY: By the type invariants it is a device. `name` has the size that the function
        // expects.
        unsafe { bindings::dev_name_copy(self.as_raw(), name.as_mut_ptr()) };
        DevName(name)
    }

    /// Returns the index, which is unique in the namespace.
    pub fn ifindex(&self) -> u32 {
        // SAFETY: By the type invariants it is a device.
        let index = unsafe { bindings::dev_ifindex(self.as_raw()) };

        // CAST: It is never negative.
        index as u32
    }

    /// Returns the largest packet, without the link-layer header.
    pub fn mtu(&self) -> u32 {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::dev_mtu(self.as_raw()) }
    }

    /// Returns the link layer.
    pub fn kind(&self) -> DevKind {
        // SAFETY: By the type invariants it is a device.
        let kind = unsafe { bindings::dev_type(self.as_raw()) };

        match u32::from(kind) {
            bindings::ARPHRD_ETHER => DevKind::Ether,
            bindings::ARPHRD_LOOPBACK => DevKind::Loopback,
            bindings::ARPHRD_NONE => DevKind::None,
            _ => DevKind::Other(kind),
        }
    }

    /// Returns the flags (`IFF_*`).
    pub fn flags(&self) -> u32 {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::dev_flags(self.as_raw()) }
    }

    /// Returns whether it is a loopback device.
    pub fn is_loopback(&self) -> bool {
        self.flags() & bindings::net_device_flags_IFF_LOOPBACK != 0
    }

    /// Returns whether the administrator has it up.
    pub fn is_running(&self) -> bool {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::netif_running(self.as_raw()) }
    }

    /// Returns whether there is a link.
    pub fn has_carrier(&self) -> bool {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::netif_carrier_ok(self.as_raw()) }
    }

    /// Returns whether it can carry packets.
    pub fn is_up(&self) -> bool {
        self.is_running() && self.has_carrier()
    }

    /// Returns whether it is registered, and not about to be unregistered.
    pub fn is_registered(&self) -> bool {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::dev_registered(self.as_raw()) }
    }

    /// Returns the link-layer address, if it has the form of one of Ethernet.
    pub fn addr(&self) -> Option<[u8; 6]> {
        let mut addr = [0; 6];

        // SAFETY: By the type invariants it is a device. `addr` has the size that the function
        // expects.
        unsafe { bindings::dev_eth_addr(self.as_raw(), addr.as_mut_ptr()) }.then_some(addr)
    }

    /// Returns whether it is a VLAN on another device.
    pub fn is_vlan(&self) -> bool {
        // SAFETY: By the type invariants it is a device.
        unsafe { bindings::is_vlan_dev(self.as_raw()) }
    }

    /// Returns the number of the VLAN that it is.
    pub fn vlan_id(&self) -> Option<u16> {
        self.is_vlan().then(|| {
            // SAFETY: By the type invariants it is a device.
            unsafe { bindings::vlan_dev_vlan_id(self.as_raw()) }
        })
    }

    /// Returns the device below, if it is a VLAN.
    pub fn real_dev(&self) -> Option<ARef<Self>> {
        // SAFETY: By the type invariants it is a device. A VLAN has a reference to the device
        // below until it is freed.
        let dev = unsafe { bindings::vlan_real_dev_get(self.as_raw()) };

        // SAFETY: The function returns a device with a reference, or null.
        unsafe { Self::from_owned(dev) }
    }

    /// Returns the device that it is a port of (a bridge, a bond, a VRF).
    pub fn master(&self) -> Option<ARef<Self>> {
        // SAFETY: By the type invariants it is a device.
        let dev = unsafe { bindings::dev_master_get(self.as_raw()) };

        // SAFETY: The function returns a device with a reference, or null.
        unsafe { Self::from_owned(dev) }
    }

    /// Returns the identity of the namespace.
    pub fn net_id(&self) -> NetId {
        // SAFETY: By the type invariants it is a device.
        NetId(unsafe { bindings::dev_net_id(self.as_raw()) } as usize)
    }

    /// Returns the namespace.
    ///
    /// It stays up while the RCU read lock is held; nothing that the caller then does may sleep.
    /// If the device is moved at this time, it may be the one before or after.
    #[inline]
    pub fn net<'a>(&'a self, _rcu: &'a rcu::Guard) -> &'a NetNs {
        // SAFETY: By the type invariants it is a device that is not freed. The protocols of its
        // namespace are up for now, since they go only after
        // - the device was unregistered, which waits for references and grace periods, or
        // - it was moved to another namespace, which ends with waiting for a grace period.
        unsafe { NetNs::from_raw(bindings::dev_net_rcu(self.as_raw())) }
    }

    /// Calls a function with the namespace, under the RCU read lock. It must not sleep.
    #[inline]
    pub fn with_net<R>(&self, f: impl FnOnce(&NetNs) -> R) -> R {
        let rcu = rcu::read_lock();

        f(self.net(&rcu))
    }
}
