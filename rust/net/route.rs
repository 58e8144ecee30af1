// SPDX-License-Identifier: GPL-2.0

//! The way to an address.

use core::ptr::NonNull;

use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::aref::ARef, //
};

use crate::{
    bindings,
    Family,
    IpAddr,
    NetDevice, //
};

/// What the way of a packet depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowKey {
    /// The address of the sender, which is one of this host.
    pub saddr: IpAddr,
    /// The address to go to, of the same family.
    pub daddr: IpAddr,
    /// The type of service or traffic class.
    pub tos: u8,
    /// The flow label, for IPv6.
    pub flow_label: u32,
    /// The UDP port of the sender.
    pub sport: u16,
    /// The UDP port to go to.
    pub dport: u16,
    /// The mark, for policy routing; usually zero.
    pub mark: u32,
}

/// A route to an address, as the routing tables had it when it was looked up.
///
/// It can be kept, for as long as it [is valid](Route::is_valid). It does not keep the device that
/// it leads to from being unregistered.
///
/// Context: any, unless said otherwise.
///
/// # Invariants
///
/// `dst` points to the destination entry of an output route of the family, to which this owns a
/// reference.
pub struct Route {
    dst: NonNull<bindings::dst_entry>,
    cookie: u32,
    family: Family,
}

// SAFETY: Destination entries belong to no thread.
unsafe impl Send for Route {}

// SAFETY: All that is done with a shared reference can be done by all threads.
unsafe impl Sync for Route {}

impl Route {
    /// Looks a route up in the namespace of a device.
    ///
    /// With `bind` the route has to lead through that device. That also makes addresses of this
    /// host foreign unless they are on the device. Without, it need not, except that if the device
    /// is in a VRF then the route is one of that.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the addresses are of different families.
    /// - `ENETUNREACH`, `EHOSTUNREACH`, `EACCES` and others: there is no route.
    /// - `EAFNOSUPPORT`: there is no IPv6.
    ///
    /// Context: process or softirq.
    pub fn lookup(dev: &NetDevice, bind: bool, key: &FlowKey) -> Result<Self> {
        let mut cookie = 0;

        let (family, dst) = match (&key.saddr, &key.daddr) {
            (IpAddr::V4(saddr), IpAddr::V4(daddr)) => (
                Family::V4,
                // SAFETY: By the type invariants it is a device, and the addresses are as long as
                // the function expects.
                unsafe {
                    bindings::route_lookup4(
                        dev.as_raw(),
                        bind,
                        saddr.as_ptr(),
                        daddr.as_ptr(),
                        key.tos,
                        key.sport,
                        key.dport,
                        key.mark,
                    )
                },
            ),
            (IpAddr::V6(saddr), IpAddr::V6(daddr)) => (
                Family::V6,
                // SAFETY: As above.
                unsafe {
                    bindings::route_lookup6(
                        dev.as_raw(),
                        bind,
                        saddr.as_ptr(),
                        daddr.as_ptr(),
                        key.tos,
                        key.flow_label,
                        key.sport,
                        key.dport,
                        key.mark,
                        &mut cookie,
                    )
                },
            ),
            _ => return Err(EINVAL),
        };
        let dst = NonNull::new(from_err_ptr(dst)?).ok_or(EHOSTUNREACH)?;

        // INVARIANT: The function returns the entry with a reference.
        Ok(Self {
            dst,
            cookie,
            family,
        })
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::dst_entry {
        self.dst.as_ptr()
    }

    /// Returns the version of the protocol.
    #[inline]
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns whether the routing tables have not changed in a way that may affect it. If they
    /// have, look it up again.
    #[inline]
    pub fn is_valid(&self) -> bool {
        // SAFETY: By the type invariants it is a destination entry.
        unsafe { bindings::dst_valid(self.as_raw(), self.cookie) }
    }

    /// Returns the largest packet, including the IP header.
    pub fn mtu(&self) -> u32 {
        // SAFETY: By the type invariants it is a destination entry.
        unsafe { bindings::dst_mtu(self.as_raw()) }
    }

    /// Returns how many bytes of UDP payload its device takes as a train, see
    /// [`TxTrain`](crate::TxTrain); zero if it takes none.
    pub fn train_len(&self) -> usize {
        // SAFETY: By the type invariants it is a destination entry.
        let room = unsafe { bindings::dst_train_room(self.as_raw(), self.family == Family::V6) };

        // CAST: `usize` is at least 32 bits wide.
        (room as usize)
            .min(usize::from(u16::MAX))
            .saturating_sub(self.family.headers_len())
    }

    /// Returns the device that it leads to. If that has been unregistered, it is one that drops
    /// everything.
    pub fn dev(&self) -> Result<ARef<NetDevice>> {
        // SAFETY: By the type invariants it is a destination entry. The function returns its
        // device with a reference.
        unsafe { NetDevice::from_owned(bindings::dst_dev_get(self.as_raw())) }.ok_or(ENODEV)
    }

    /// Returns whether it leads to a device.
    #[inline]
    pub fn leads_to(&self, dev: &NetDevice) -> bool {
        // SAFETY: By the type invariants it is a destination entry and a device.
        unsafe { bindings::dst_dev_is(self.as_raw(), dev.as_raw()) }
    }

    /// Returns whether the address is one of this host, in the same namespace.
    #[inline]
    pub fn is_local(&self) -> bool {
        // SAFETY: By the type invariants it is the destination entry of a route of that family.
        unsafe { bindings::dst_is_local(self.as_raw(), self.family == Family::V6) }
    }

    /// Returns how much room the link layer wants in front of a packet.
    pub fn link_room(&self) -> usize {
        // SAFETY: By the type invariants it is a destination entry.
        //
        // CAST: `usize` is at least 32 bits wide.
        unsafe { bindings::dst_link_room(self.as_raw()) as usize }
    }
}

impl Clone for Route {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariants it is a destination entry with a reference.
        unsafe { bindings::dst_hold(self.as_raw()) };

        // INVARIANT: The reference was just taken.
        Self {
            dst: self.dst,
            cookie: self.cookie,
            family: self.family,
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: By the type invariants there is a reference to give back.
        unsafe { bindings::dst_release(self.as_raw()) }
    }
}
