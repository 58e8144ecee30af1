// SPDX-License-Identifier: GPL-2.0

//! Packets to send.

use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};

use kernel::prelude::*;

use crate::{
    bindings,
    Family,
    Headers,
    Route, //
};

/// The longest IP packet.
const MAX_PACKET: usize = u16::MAX as usize;
/// A train of at most so many bytes is made in one piece of memory, a longer one in pages.
const SHORT_TRAIN: usize = 2048;

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
/// - `skb` points to a socket buffer that this owns alone. What it has in pages it owns alone, too.
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

    /// How many bytes there are.
    #[inline]
    fn len(&self) -> usize {
        // SAFETY: By the type invariants it is a socket buffer, which is only changed through a
        // mutable reference.
        //
        // CAST: `usize` is at least 32 bits wide.
        unsafe { self.skb.as_ref().len as usize }
    }

    /// Puts headers in front, which are final.
    fn finish(self, route: &Route, headers: &Headers) -> Result<TxPacket> {
        if route.family() != self.family || headers.family() != self.family {
            return Err(EINVAL);
        }
        // More than was asked for may have been allocated.
        if self.len() > MAX_PACKET - self.family.headers_len() {
            return Err(EMSGSIZE);
        }
        // SAFETY: By the type invariants there is room for the headers, which are as long as is
        // said, and the destination entry is one of the family.
        unsafe {
            bindings::tx_skb_finish(
                self.as_raw(),
                route.as_raw(),
                headers.bytes().as_ptr(),
                self.family == Family::V6,
            )
        };
        // INVARIANT: The function adds the headers and a reference to the route.
        Ok(TxPacket { skb: self })
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

    /// Adds `n` bytes to the payload and returns them, or [`None`] if there is no room.
    ///
    /// What the bytes are is not specified: they must all be overwritten, lest what was in memory
    /// before is sent to the network.
    #[inline]
    pub fn put_for_overwrite(&mut self, n: usize) -> Option<&mut [u8]> {
        let len = u32::try_from(n).ok()?;
        // SAFETY: By the type invariants it is a linear socket buffer. The function checks that
        // there is room.
        let data = NonNull::new(unsafe { bindings::tx_skb_put(self.skb.as_raw(), len) })?;

        // SAFETY: They are bytes of the socket buffer, which are accessed through `self` alone. The
        // memory comes from an allocator in C, which may or may not have initialised it, so to Rust
        // these are bytes with values that are not known, but not uninitialised.
        Some(unsafe { slice::from_raw_parts_mut(data.as_ptr(), n) })
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
    /// changes them. They must be those of a packet of this length.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the families are not all the same.
    /// - `EMSGSIZE`: an IP packet can't be so long.
    pub fn finish(self, route: &Route, headers: &Headers) -> Result<TxPacket> {
        self.skb.finish(route, headers)
    }
}

/// UDP packets of one size that are being made, to go through the network stack as one.
///
/// They are taken apart by the device that they leave by, or by nobody if they stay on the machine
/// (UDP segmentation offload). All but the last are of the same size. Their IPv4 identifications
/// count up.
///
/// The packets get a UDP checksum if they are taken apart.
///
/// Context: any.
pub struct TxTrain {
    skb: Skb,
    size: usize,
    room: usize,
    count: usize,
    ended: bool,
}

impl TxTrain {
    /// Begins a train of packets whose UDP payload has `size` bytes each, and `room` at most in all:
    /// no more than [`Route::train_len`].
    ///
    /// # Errors
    ///
    /// As for [`TxSkb::alloc`].
    pub fn alloc(family: Family, link_room: usize, size: usize, room: usize) -> Result<Self> {
        let room = room.min(MAX_PACKET - family.headers_len());
        let at_once = if room <= SHORT_TRAIN { room } else { 0 };

        Ok(Self {
            skb: TxSkb::alloc(family, link_room, at_once)?.skb,
            size,
            room,
            count: 0,
            ended: false,
        })
    }

    /// Returns how many packets there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns how many bytes of payload the packets have in all.
    pub fn payload_len(&self) -> usize {
        self.skb.len()
    }

    /// Adds a packet of `len` bytes and calls a function to write its payload; one that is shorter
    /// than the others is the last. If the function fails the packet is not added.
    ///
    /// What the bytes are before is not specified: they must all be overwritten, lest what was in
    /// memory before is sent to the network.
    ///
    /// Returns [`None`] if there is no room or no memory for it.
    pub fn add<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let total = self.skb.len().checked_add(len)?;

        if self.ended || len == 0 || len > self.size || total > self.room {
            return None;
        }

        let n = u32::try_from(len).ok()?;
        // SAFETY: By the type invariants it is a socket buffer that this owns alone.
        let data = NonNull::new(unsafe { bindings::tx_skb_reserve(self.skb.as_raw(), n) })?;
        // SAFETY: The function returned the address of so many bytes in the socket buffer or a page
        // of it, behind what is used of it. It comes from an allocator in C, so to Rust these are
        // bytes with values that are not known, but not uninitialised.
        let written = write(unsafe { slice::from_raw_parts_mut(data.as_ptr(), len) });

        if written.is_ok() {
            // SAFETY: So many bytes were just reserved.
            unsafe { bindings::tx_skb_commit(self.skb.as_raw(), n) };
            self.count += 1;
            self.ended = len < self.size;
        } else {
            // SAFETY: They were just reserved, and the reference to them has ended.
            unsafe { bindings::tx_skb_cancel(self.skb.as_raw()) };
        }
        Some(written)
    }

    /// Puts the UDP and IP headers in front: those of a single packet with all of the payload, and
    /// with the identification of the first packet.
    ///
    /// # Errors
    ///
    /// As for [`TxSkb::finish`]; `EINVAL` too if there are no packets.
    pub fn finish(self, route: &Route, headers: &Headers) -> Result<TxPacket> {
        let size = u32::try_from(self.size).map_err(|_| EINVAL)?;
        let count = u32::try_from(self.count).map_err(|_| EINVAL)?;

        if count == 0 {
            return Err(EINVAL);
        }

        let packet = self.skb.finish(route, headers)?;

        if count > 1 {
            // SAFETY: By the type invariants it has IP and UDP headers of the family, and the
            // payload is as long as is said.
            unsafe {
                bindings::tx_skb_make_train(
                    packet.skb.as_raw(),
                    size,
                    count,
                    packet.skb.family == Family::V6,
                )
            };
        }
        Ok(packet)
    }
}

/// A UDP packet that is ready to be sent.
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
    /// Gives it a UDP checksum, which is computed by the device that it leaves by, or by nobody if it
    /// stays on the machine. The packets of a [`TxTrain`] have one anyway.
    pub fn with_checksum(self) -> Self {
        // SAFETY: By the type invariants it has IP and UDP headers of the family.
        unsafe {
            bindings::tx_skb_defer_checksum(self.skb.as_raw(), self.skb.family == Family::V6)
        };
        self
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
