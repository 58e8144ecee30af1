// SPDX-License-Identifier: GPL-2.0

//! What drivers that speak a protocol over UDP need of the network stack.
//!
//! The contexts of the operations are given as in the `softirq` crate: *process* (may sleep),
//! *softirq* and *any* (which includes disabled interrupts, but not hard interrupts).
//!
//! | type | use |
//! |---|---|
//! | [`NetNs`], [`Namespaces`] | network namespaces, and data of the driver for each of them |
//! | [`NetDevice`], [`NotifierRegistration`] | network devices, and what happens to them |
//! | [`UdpSocket`], [`RxBuf`] | packets to a UDP port, taken in softirq before they are queued |
//! | [`Route`] | the way to an address |
//! | [`TxSkb`], [`TxTrain`], [`TxPacket`] | packets with headers of the driver's choice |
//!
//! # Namespaces and lifetimes
//!
//! A network namespace goes when its last user goes, unlike most objects of the kernel even when
//! there are still pointers to it: sockets of the kernel, devices and routes don't keep it. It is
//! taken apart in this order:
//!
//! 1. its devices are unregistered, each of them waiting until nobody holds a reference to it;
//! 2. the data that subsystems and drivers have for it ([`PerNet`]) go, latest registered first;
//! 3. the protocols (IPv4, IPv6, UDP) leave;
//! 4. its memory is freed when the last pointer to it is gone.
//!
//! All types here are sound in the face of that. It shows in that a [`NetNs`] is always borrowed
//! from something that holds off step 3.

mod addr;
mod device;
mod headers;
mod namespace;
mod notifier;
mod pernet;
mod route;
mod rx;
mod tx;
mod udp;

/// The bindings of the kernel crate and those that it lacks.
mod bindings {
    pub(crate) use kernel::bindings::*;
    pub(crate) use rdma_bindings::*;
}

pub use addr::{
    Family,
    IpAddr, //
};
pub use device::{
    DevKind,
    DevName,
    NetDevice, //
};
pub use headers::{
    Headers,
    TxHeader, //
};
pub use namespace::{
    NetId,
    NetNs,
    NetRef, //
};
pub use notifier::{
    NetEvent,
    NetEvents,
    NotifierRegistration, //
};
#[doc(hidden)]
pub use pernet::{
    HasSlot,
    Slot, //
};
pub use pernet::{
    Namespace,
    Namespaces,
    PerNet, //
};
pub use route::{
    FlowKey,
    Route, //
};
pub use rx::{
    RxBuf,
    RxSkb, //
};
pub use tx::{
    TxPacket,
    TxResult,
    TxSkb,
    TxTrain, //
};
pub use udp::{
    Receiver,
    UdpSocket, //
};

/// Continues a CRC-32 (IEEE 802.3, least significant bit first).
///
/// Neither `seed` nor the result is inverted, so the result is the seed of what follows.
///
/// Context: any.
#[inline]
pub fn crc32_le(seed: u32, data: &[u8]) -> u32 {
    // SAFETY: The pointer and the length are those of a slice.
    unsafe { bindings::crc32_fast_le(seed, data.as_ptr(), data.len()) }
}

/// Returns whether [`crc32_le`] uses instructions of the machine, else it goes byte by byte.
///
/// Context: any.
#[inline]
pub fn crc32_is_fast() -> bool {
    // SAFETY: It is always safe to call.
    unsafe { bindings::crc32_has_fast_le() }
}

/// Returns a random number, good enough for keys.
///
/// Context: any.
#[inline]
pub fn random_u32() -> u32 {
    // SAFETY: It is always safe to call.
    unsafe { bindings::get_random_u32() }
}

/// Fills a slice with random bytes, good enough for keys.
///
/// Context: any.
pub fn random_bytes(bytes: &mut [u8]) {
    // SAFETY: The pointer and the length are those of a slice.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) }
}
