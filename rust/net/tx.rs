// SPDX-License-Identifier: GPL-2.0

//! Packets to send.

use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};

use kernel::prelude::*;

use crate::{
    addr::UDP_HEADER_LEN,
    bindings,
    Family,
    IpAddr,
    Route, //
};

/// The longest IP packet.
const MAX_PACKET: usize = u16::MAX as usize;

/// The headers of a packet, see [`TxSkb::finish`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxHeader {
    /// The address of the sender.
    pub saddr: IpAddr,
    /// The address to go to, of the same family.
    pub daddr: IpAddr,
    /// The type of service or traffic class, with the two bits for congestion notification.
    pub tos: u8,
    /// The time to live or hop limit.
    pub ttl: u8,
    /// The flow label, for IPv6.
    pub flow_label: u32,
    /// The identification, for IPv4. It tells fragments of a packet from those of others, so it
    /// is of no importance if `df` is set.
    pub ip_id: u16,
    /// Whether the packet must not be fragmented, for IPv4.
    pub df: bool,
    /// The UDP port of the sender.
    pub sport: u16,
    /// The UDP port to go to.
    pub dport: u16,
}

/// What has become of a packet that was sent.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxResult {
    /// It is on its way, or waits for the link-layer address.
    Sent,
    /// It is on its way, or was dropped for another one: a queue is full.
    Congested,
    /// It was dropped: a queue is full.
    Dropped,
    /// It was dropped for another reason, such as that a firewall wants it so (`EPERM`) or that it
    /// is too long (`EMSGSIZE`).
    Error(Error),
}

impl TxResult {
    fn from_raw(result: c_int) -> Self {
        // CAST: They are small numbers.
        const DROP: c_int = bindings::NET_XMIT_DROP as c_int;
        const CN: c_int = bindings::NET_XMIT_CN as c_int;

        match result {
            DROP => TxResult::Dropped,
            CN => TxResult::Congested,
            0.. => TxResult::Sent,
            errno => TxResult::Error(Error::from_errno(errno)),
        }
    }
}

/// A socket buffer that a packet is made in.
///
/// # Invariants
///
/// - `skb` points to a socket buffer that this owns alone, all of it linear.
/// - Its data are initialised.
/// - There is room for the headers of the family in front of the data.
struct Skb {
    skb: NonNull<bindings::sk_buff>,
    family: Family,
}

// SAFETY: Socket buffers belong to no thread.
unsafe impl Send for Skb {}

// SAFETY: All that is done with a shared reference is reading what does not change.
unsafe impl Sync for Skb {}

impl Skb {
    #[inline]
    fn as_raw(&self) -> *mut bindings::sk_buff {
        self.skb.as_ptr()
    }

    #[inline]
    fn data(&self) -> &[u8] {
        // SAFETY: By the type invariants it is a linear socket buffer, which is only changed
        // through a mutable reference, and whose data are initialised.
        //
        // CAST: `usize` is at least 32 bits wide.
        unsafe {
            let skb = self.skb.as_ref();

            slice::from_raw_parts(skb.data, skb.len as usize)
        }
    }

    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariants it is a linear socket buffer that is accessed through
        // `self` alone, and whose data are initialised.
        //
        // CAST: `usize` is at least 32 bits wide.
        unsafe {
            let skb = self.skb.as_ref();

            slice::from_raw_parts_mut(skb.data, skb.len as usize)
        }
    }
}

impl Drop for Skb {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is a socket buffer that this owns.
        unsafe { bindings::skb_discard(self.as_raw()) }
    }
}

/// A UDP packet that is being made: its payload.
///
/// Context: any.
pub struct TxSkb {
    skb: Skb,
}

impl TxSkb {
    /// Allocates a packet with room for a payload of up to `payload` bytes, which is empty yet.
    ///
    /// `link_room` is what the link layer will want, see [`Route::link_room`]; zero is for whatever
    /// may be needed usually. It is no error if it is not enough, but expensive.
    ///
    /// # Errors
    ///
    /// - `EMSGSIZE`: an IP packet can't be so long.
    /// - `ENOMEM`.
    pub fn alloc(family: Family, link_room: usize, payload: usize) -> Result<Self> {
        if payload > MAX_PACKET - family.headers_len() {
            return Err(EMSGSIZE);
        }
        let link_room = u16::try_from(link_room).map_err(|_| EINVAL)?;

        // CAST: They were checked to be small.
        //
        // SAFETY: It is always safe to call.
        let skb = unsafe {
            bindings::tx_skb_alloc(
                u32::from(link_room),
                family.headers_len() as u32,
                payload as u32,
                bindings::GFP_ATOMIC,
            )
        };

        // INVARIANT: It was just allocated, with room for the headers, and has no data yet.
        Ok(Self {
            skb: Skb {
                skb: NonNull::new(skb).ok_or(ENOMEM)?,
                family,
            },
        })
    }

    /// Returns the version of the protocol.
    pub fn family(&self) -> Family {
        self.skb.family
    }

    /// Returns how much the payload can grow.
    pub fn room(&self) -> usize {
        // CAST: `usize` is at least 32 bits wide.
        //
        // SAFETY: By the type invariants it is a socket buffer.
        unsafe { bindings::skb_tailroom(self.skb.as_raw()) as usize }
    }

    /// Adds `n` bytes to the payload and calls a function to initialise them.
    ///
    /// # Safety
    ///
    /// The function must initialise as many bytes from the pointer on.
    unsafe fn put_with(&mut self, n: usize, init: impl FnOnce(*mut u8)) -> Option<&mut [u8]> {
        let len = u32::try_from(n).ok()?;
        // SAFETY: By the type invariants it is a linear socket buffer. The function checks that
        // there is room.
        let data = NonNull::new(unsafe { bindings::tx_skb_put(self.skb.as_raw(), len) })?;

        init(data.as_ptr());
        // SAFETY: They are bytes of the socket buffer, which were just initialised, and which are
        // accessed through `self` alone.
        Some(unsafe { slice::from_raw_parts_mut(data.as_ptr(), n) })
    }

    /// Adds `n` zeros to the payload and returns them, or [`None`] if there is no room.
    pub fn put(&mut self, n: usize) -> Option<&mut [u8]> {
        // SAFETY: The function initialises them. `put_with` passes a pointer to as many.
        unsafe { self.put_with(n, |data| data.write_bytes(0, n)) }
    }

    /// Adds `n` bytes to the payload and returns them, or [`None`] if there is no room.
    ///
    /// What the bytes are is not specified: they must all be overwritten, lest what was in memory
    /// before is sent to the network.
    #[inline]
    pub fn put_for_overwrite(&mut self, n: usize) -> Option<&mut [u8]> {
        // SAFETY: The memory comes from an allocator in C, which may or may not have initialised
        // it, so to Rust these are bytes with values that are not known, but not uninitialised.
        unsafe { self.put_with(n, |_| ()) }
    }

    /// Adds bytes to the payload.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: there is no room.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.put_for_overwrite(bytes.len())
            .ok_or(ENOSPC)?
            .copy_from_slice(bytes);
        Ok(())
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        self.skb.data()
    }

    /// Returns the payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.skb.data_mut()
    }

    /// Sets the priority by which queueing disciplines, and VLAN devices for their priority bits,
    /// classify it. It is zero otherwise.
    pub fn set_priority(&mut self, priority: u32) {
        // SAFETY: By the type invariants it is a socket buffer.
        unsafe { bindings::tx_skb_set_priority(self.skb.as_raw(), priority) }
    }

    /// Sets the mark by which firewalls and policy routing can tell it. It is zero otherwise.
    pub fn set_mark(&mut self, mark: u32) {
        // SAFETY: By the type invariants it is a socket buffer.
        unsafe { bindings::tx_skb_set_mark(self.skb.as_raw(), mark) }
    }

    /// Puts the UDP and IP headers in front of the payload, which now has its final length.
    ///
    /// The headers are as given, and final: they leave this host as they are now, unless a firewall
    /// changes them. The UDP checksum is zero, which says that there is none.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the families are not all the same.
    /// - `EMSGSIZE`: an IP packet can't be so long.
    pub fn finish(self, route: &Route, header: &TxHeader) -> Result<TxPacket> {
        let skb = self.skb;

        if route.family() != skb.family {
            return Err(EINVAL);
        }
        // More than was asked for may have been allocated.
        if skb.data().len() > MAX_PACKET - skb.family.headers_len() {
            return Err(EMSGSIZE);
        }
        match (skb.family, &header.saddr, &header.daddr) {
            // SAFETY: By the type invariants it is a linear socket buffer with room for the
            // headers, and a destination entry of the family. The addresses are as long as the
            // function expects. The length was checked.
            (Family::V4, IpAddr::V4(saddr), IpAddr::V4(daddr)) => unsafe {
                bindings::tx_skb_finish4(
                    skb.as_raw(),
                    route.as_raw(),
                    saddr.as_ptr(),
                    daddr.as_ptr(),
                    header.tos,
                    header.ttl,
                    header.ip_id,
                    header.df,
                    header.sport,
                    header.dport,
                )
            },
            // SAFETY: As above.
            (Family::V6, IpAddr::V6(saddr), IpAddr::V6(daddr)) => unsafe {
                bindings::tx_skb_finish6(
                    skb.as_raw(),
                    route.as_raw(),
                    saddr.as_ptr(),
                    daddr.as_ptr(),
                    header.tos,
                    header.ttl,
                    header.flow_label,
                    header.sport,
                    header.dport,
                )
            },
            _ => return Err(EINVAL),
        }
        // INVARIANT: The functions add the headers and a reference to the route.
        Ok(TxPacket { skb })
    }
}

/// A UDP packet that is ready to be sent.
///
/// The payload can still be changed, such as for a checksum over all of the packet.
///
/// Context: any, unless said otherwise.
///
/// # Invariants
///
/// The data of `skb` are an IP header and a UDP header of the family, and the payload. It has a
/// reference to a route of the family.
pub struct TxPacket {
    skb: Skb,
}

impl TxPacket {
    fn header(&self, from: usize, n: usize) -> &[u8] {
        self.skb
            .data()
            .get(from..)
            .and_then(|rest| rest.get(..n))
            .unwrap_or_default()
    }

    /// Returns the version of the protocol.
    pub fn family(&self) -> Family {
        self.skb.family
    }

    /// Returns the IP header, of 20 bytes for IPv4 and 40 for IPv6.
    #[inline]
    pub fn ip(&self) -> &[u8] {
        self.header(0, self.skb.family.ip_header_len())
    }

    /// Returns the UDP header, of 8 bytes.
    #[inline]
    pub fn udp(&self) -> &[u8] {
        self.header(self.skb.family.ip_header_len(), UDP_HEADER_LEN)
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.skb
            .data()
            .get(self.skb.family.headers_len()..)
            .unwrap_or_default()
    }

    /// Returns the payload.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let headers = self.skb.family.headers_len();

        self.skb.data_mut().get_mut(headers..).unwrap_or_default()
    }

    /// Continues a CRC-32 with a range of the payload, see [`crc32_le`](crate::crc32_le).
    ///
    /// Returns [`None`] if there is no such range.
    pub fn crc32(&self, seed: u32, offset: usize, len: usize) -> Option<u32> {
        let bytes = self.payload().get(offset..)?.get(..len)?;

        Some(crate::crc32_le(seed, bytes))
    }

    /// Sends it.
    ///
    /// It goes the way of packets that the host sends: through firewalls and queueing disciplines,
    /// to the neighbour that the route leads to. It is not accounted to a socket, so the sender has
    /// to limit itself.
    ///
    /// If it is for this host then it is queued to be received. With bottom halves disabled (a lock
    /// of the `softirq` crate held, for example) it is not received before they are enabled. With
    /// bottom halves enabled that can happen before this returns, and on the same stack: the
    /// caller must not hold a lock that the receiver takes.
    ///
    /// While interrupts are disabled nothing can be sent: it is dropped, with `EBUSY`.
    ///
    /// Context: process or softirq.
    pub fn send(self) -> TxResult {
        if softirq::irqs_disabled() {
            return TxResult::Error(EBUSY);
        }

        let skb = ManuallyDrop::new(self.skb);

        // SAFETY: By the type invariants it is an IP packet with a route, which this owns and
        // gives up.
        TxResult::from_raw(unsafe { bindings::tx_skb_send(skb.as_raw()) })
    }
}
