// SPDX-License-Identifier: GPL-2.0

//! Packets that have come.

use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};

use kernel::{
    error::to_result,
    prelude::*,
    types::NotThreadSafe, //
};

use crate::{
    addr::UDP_HEADER_LEN,
    bindings,
    Family,
    Headers,
    IpAddr,
    NetDevice, //
};

/// A UDP packet that has come, without ties to the place where it came from.
///
/// Offsets and lengths are those of the UDP payload.
///
/// Dropping it means that it was of use; see [`RxBuf::discard`].
///
/// Context: softirq, unless said otherwise. It can be kept, and dropped in any context.
///
/// # Invariants
///
/// - `skb` points to a socket buffer that this owns, on no list, without device and route.
/// - Its data begin at the UDP payload, and are at least `len` long. They are not written to:
///   neither by this nor, once settled, by others.
/// - Its transport header is the UDP header, which ends where the data begin.
/// - Its network header is a complete IP header, of the version that its first bits say, in the
///   linear part before the UDP header.
/// - `family` is that version.
/// - If `eth`, then its MAC header is a complete Ethernet header in the linear part.
/// - `view` tells where its parts are, and that its data are settled if others do not write to them
///   any more.
/// - `piece` is a part of its data that lies in one piece of memory, and its place in the data.
pub struct RxBuf {
    skb: NonNull<bindings::sk_buff>,
    view: bindings::rx_view,
    piece: bindings::rx_piece,
    len: u32,
    /// The size of each packet of a train but the last, or `len` if it is a single one.
    segment: u32,
    ifindex: u32,
    family: Family,
    eth: bool,
    local: bool,
}

// SAFETY: Socket buffers belong to no thread.
unsafe impl Send for RxBuf {}

// SAFETY: All that is done with a shared reference is reading what does not change.
unsafe impl Sync for RxBuf {}

impl RxBuf {
    /// Returns the length of the UDP payload.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        // CAST: `usize` is at least 32 bits wide.
        self.len as usize
    }

    /// Returns the bytes from a header on.
    ///
    /// # Safety
    ///
    /// `header` must point to a header of `n` bytes in the linear part of the socket buffer.
    unsafe fn header(&self, header: *const u8, n: usize) -> &[u8] {
        // SAFETY: By the safety requirements. It is not written to, and stays there unless `self`
        // is borrowed mutably.
        unsafe { slice::from_raw_parts(header, n) }
    }

    /// Returns how many packets it is: more than one if it is a train that nobody has taken apart,
    /// whose headers are those of one packet with the payload of all.
    ///
    /// Context: any.
    #[inline]
    pub fn segments(&self) -> usize {
        if self.segment == self.len {
            1
        } else {
            // CAST: `usize` is at least 32 bits wide.
            self.len.div_ceil(self.segment.max(1)) as usize
        }
    }

    /// Tells whether it was made on this machine, as a train or [with a
    /// checksum](crate::TxPacket::with_checksum), and has been in its memory ever since: what protects
    /// packets on their way has nothing to protect it from.
    ///
    /// Context: any.
    #[inline]
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// Returns where in the payload that of a packet of the train begins, and its length, which is
    /// 0 if there is no such packet.
    ///
    /// Context: any.
    #[inline]
    pub fn segment(&self, index: usize) -> (usize, usize) {
        // CAST: `usize` is at least 32 bits wide.
        let (len, size) = (self.len as usize, self.segment as usize);
        let from = index.saturating_mul(size).min(len);

        (from, len.wrapping_sub(from).min(size))
    }

    /// Returns the headers of a packet of the train, or of the packet that it is.
    ///
    /// Returns [`None`] if there is no such packet.
    ///
    /// Context: any.
    pub fn headers(&self, index: usize) -> Option<Headers> {
        let all = Headers::new(self.family(), self.ip(), self.udp())?;

        match (self.segments(), index) {
            (1, 0) => Some(all),
            (count, _) if index < count => Some(all.of_segment(index, self.segment(index).1)),
            _ => None,
        }
    }

    /// Returns the version of the protocol.
    ///
    /// Context: any.
    #[inline]
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the IP header without options or extensions: 20 bytes for IPv4, 40 for IPv6.
    ///
    /// Context: any.
    #[inline]
    pub fn ip(&self) -> &[u8] {
        // SAFETY: By the type invariants there is an IP header that is at least as long.
        unsafe { self.header(self.view.ip, self.family().ip_header_len()) }
    }

    /// Returns the UDP header, of 8 bytes.
    ///
    /// Context: any.
    #[inline]
    pub fn udp(&self) -> &[u8] {
        // SAFETY: By the type invariants there is a UDP header, which ends where the data begin.
        unsafe { self.header(self.view.data.sub(UDP_HEADER_LEN), UDP_HEADER_LEN) }
    }

    /// Returns `N` bytes of the IP header.
    ///
    /// They must be in the header of the version at hand; zeros are returned otherwise.
    #[inline]
    fn ip_bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.ip()
            .get(offset..)
            .and_then(|bytes| bytes.first_chunk())
            .copied()
            .unwrap_or([0; N])
    }

    #[inline]
    fn udp_u16(&self, offset: usize) -> u16 {
        self.udp()
            .get(offset..)
            .and_then(|bytes| bytes.first_chunk())
            .copied()
            .map_or(0, u16::from_be_bytes)
    }

    /// Returns the address of the sender.
    #[inline]
    pub fn saddr(&self) -> IpAddr {
        match self.family() {
            Family::V4 => IpAddr::V4(self.ip_bytes(12)),
            Family::V6 => IpAddr::V6(self.ip_bytes(8)),
        }
    }

    /// Returns the address it was sent to.
    #[inline]
    pub fn daddr(&self) -> IpAddr {
        match self.family() {
            Family::V4 => IpAddr::V4(self.ip_bytes(16)),
            Family::V6 => IpAddr::V6(self.ip_bytes(24)),
        }
    }

    /// Returns the type of service or traffic class, whose lowest two bits are for congestion
    /// notification.
    #[inline]
    pub fn tos(&self) -> u8 {
        match self.family() {
            Family::V4 => self.ip_bytes::<1>(1)[0],
            // CAST: Takes the low bits.
            Family::V6 => (u16::from_be_bytes(self.ip_bytes(0)) >> 4) as u8,
        }
    }

    /// Returns the two bits for congestion notification; three is "congestion experienced".
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    /// Returns the time to live or hop limit.
    #[inline]
    pub fn ttl(&self) -> u8 {
        match self.family() {
            Family::V4 => self.ip_bytes::<1>(8)[0],
            Family::V6 => self.ip_bytes::<1>(7)[0],
        }
    }

    /// Returns the flow label, which is zero for IPv4.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        match self.family() {
            Family::V4 => 0,
            Family::V6 => u32::from_be_bytes(self.ip_bytes(0)) & 0xf_ffff,
        }
    }

    /// Returns the port of the sender.
    #[inline]
    pub fn sport(&self) -> u16 {
        self.udp_u16(0)
    }

    /// Returns the port it was sent to.
    #[inline]
    pub fn dport(&self) -> u16 {
        self.udp_u16(2)
    }

    /// Returns the index of the device where it came in.
    #[inline]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Returns the Ethernet address of the sender, if it came by Ethernet.
    pub fn smac(&self) -> Option<[u8; 6]> {
        if !self.eth {
            return None;
        }
        // SAFETY: By the type invariants there is an Ethernet header.
        let header = unsafe { self.header(bindings::skb_mac_header(self.skb.as_ptr()), 14) };

        header
            .get(6..)
            .and_then(|bytes| bytes.first_chunk())
            .copied()
    }

    /// Returns the VLAN tag that a device has taken off it, unless it came by a device of that
    /// VLAN.
    pub fn vlan_tci(&self) -> Option<u16> {
        let mut tci = 0;

        // SAFETY: By the type invariants it is a socket buffer.
        unsafe { bindings::skb_vlan_tag(self.skb.as_ptr(), &mut tci) }.then_some(tci)
    }

    /// Returns a range of the payload as C wants it, if there is such a range.
    #[inline]
    fn range(&self, offset: usize, len: usize) -> Option<(u32, u32)> {
        let offset = u32::try_from(offset).ok()?;
        let len = u32::try_from(len).ok()?;

        (len <= self.len.checked_sub(offset)?).then_some((offset, len))
    }

    /// Copies a range of the payload.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there is no such range.
    /// - `EFAULT`: its data can't be read.
    pub fn copy_to(&mut self, offset: usize, to: &mut [u8]) -> Result {
        let (from, n) = self.range(offset, to.len()).ok_or(EINVAL)?;

        if let Some(bytes) = self.piece(offset, to.len()) {
            to.copy_from_slice(bytes);
            return Ok(());
        }
        // SAFETY: By the type invariants it is a socket buffer, with data in the range. `to` is as
        // long. CAST: A length of a socket buffer fits.
        to_result(unsafe {
            bindings::skb_copy_bits(
                self.skb.as_ptr(),
                from as c_int,
                to.as_mut_ptr().cast(),
                n as c_int,
            )
        })
    }

    /// Makes sure that the payload does not change any more, by a copy if others may write to it:
    /// pages that a process gave to the network stack may still be its own.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    pub fn settle(&mut self) -> Result {
        if self.view.settled {
            return Ok(());
        }
        // SAFETY: By the type invariants it is a socket buffer. References to the data have ended,
        // as `self` is borrowed mutably. The type invariants hold afterwards: what is before the
        // data is copied with them, and the view is renewed.
        unsafe {
            to_result(bindings::skb_linearize(self.skb.as_ptr()))?;
            bindings::rx_skb_view(self.skb.as_ptr(), &mut self.view);
        }
        // INVARIANT: What was not the buffer's own was copied.
        self.view.settled = true;
        self.piece = linear_part(&self.view);
        Ok(())
    }

    /// Returns a range of the payload if there is such a range, it lies in one piece of memory, and
    /// does not change any more.
    // Who asks knows how long it is.
    #[inline(always)]
    pub fn piece(&mut self, offset: usize, len: usize) -> Option<&[u8]> {
        let (from, n) = self.range(offset, len)?;

        self.settle().ok()?;
        let data = self.find(from, n)?;

        // SAFETY: There are so many bytes, by the type invariants. They belong to the buffer and stay
        // where they are unless that is borrowed mutably. It is settled, so they are not written to.
        Some(unsafe { slice::from_raw_parts(data, len) })
    }

    /// Returns where a range of the data is, if it lies in one piece of memory.
    fn find(&mut self, from: u32, n: u32) -> Option<*const u8> {
        // Most are asked for in order, and lie in few pieces.
        within(&self.piece, from, n).or_else(|| {
            // SAFETY: By the type invariants it is a socket buffer.
            //
            // INVARIANT: The function tells of a part that lies in one piece, or changes nothing.
            unsafe { bindings::skb_piece(self.skb.as_ptr(), from, &mut self.piece) }
                .then(|| within(&self.piece, from, n))
                .flatten()
        })
    }

    /// Calls a function with each piece of a range of the payload, in order, without copying.
    ///
    /// If the function returns an error, this ends and returns the same.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there is no such range.
    /// - `ENOMEM`: the data had to be copied after all: others may write to them, or they are
    ///   scattered in an unusual way.
    /// - `EFAULT`: its data can't be read.
    pub fn for_each_chunk(
        &mut self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(&[u8]) -> Result,
    ) -> Result {
        let (from, n) = self.range(offset, len).ok_or(EINVAL)?;

        if n == 0 {
            return Ok(());
        }
        if let Some(bytes) = self.piece(offset, len) {
            return f(bytes);
        }
        self.settle()?;

        let mut chunks = Chunks::new(self, from, n);

        while let Some(bytes) = chunks.next() {
            f(bytes)?;
        }
        if chunks.done == n {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Returns another buffer with the same packet, whose payload both share.
    ///
    /// Returns [`None`] if there is no memory.
    ///
    /// Context: any.
    pub fn share(&self) -> Option<Self> {
        // SAFETY: By the type invariants it is a socket buffer; cloning only counts references to
        // its data.
        let skb = unsafe { bindings::skb_share(self.skb.as_ptr()) };

        // INVARIANT: A clone has a copy of all offsets, is on no list, and what was cloned had
        // neither device nor route. Shared data are not written to.
        NonNull::new(skb).map(|skb| Self {
            skb,
            view: bindings::rx_view { ..self.view },
            piece: bindings::rx_piece { ..self.piece },
            len: self.len,
            segment: self.segment,
            ifindex: self.ifindex,
            family: self.family,
            eth: self.eth,
            local: self.local,
        })
    }

    /// Drops a packet that is of no use, so that tools which watch for drops see it.
    ///
    /// Context: any.
    pub fn discard(self) {
        let this = ManuallyDrop::new(self);

        // SAFETY: By the type invariants it is a socket buffer that this owns. It is not dropped.
        unsafe { bindings::skb_discard(this.skb.as_ptr()) }
    }
}

/// The part of a packet that its view tells of.
fn linear_part(view: &bindings::rx_view) -> bindings::rx_piece {
    bindings::rx_piece {
        data: view.data,
        from: 0,
        len: view.linear,
    }
}

/// Returns where bytes are that lie in a piece, if they do: `n` from byte `from` of the packet on.
#[inline]
fn within(piece: &bindings::rx_piece, from: u32, n: u32) -> Option<*const u8> {
    let at = from.checked_sub(piece.from)?;

    // CAST: `usize` is at least 32 bits wide.
    (n <= piece.len.checked_sub(at)?).then(|| piece.data.wrapping_add(at as usize))
}

impl Drop for RxBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is a socket buffer that this owns.
        unsafe { bindings::skb_consume(self.skb.as_ptr()) }
    }
}

/// The pieces of a range of the payload.
///
/// # Invariants
///
/// `state` is that of a sequential read of the buffer, of `len` bytes, of which `done` have been
/// read, and which is not at its end.
struct Chunks<'a> {
    _buf: &'a RxBuf,
    state: bindings::skb_seq_state,
    len: u32,
    done: u32,
    /// Pages may be mapped for this CPU or thread.
    _not_send: NotThreadSafe,
}

impl<'a> Chunks<'a> {
    /// The range must be one of the payload.
    fn new(buf: &'a RxBuf, from: u32, len: u32) -> Self {
        let mut state = MaybeUninit::<bindings::skb_seq_state>::zeroed();

        // SAFETY: By the type invariants it is a socket buffer.
        unsafe {
            bindings::skb_prepare_seq_read(
                buf.skb.as_ptr(),
                from,
                from.wrapping_add(len),
                state.as_mut_ptr(),
            )
        };
        Self {
            _buf: buf,
            // SAFETY: It consists of pointers and numbers, which may be zero.
            state: unsafe { state.assume_init() },
            len,
            done: 0,
            _not_send: NotThreadSafe,
        }
    }

    /// Returns the next piece, which is valid until this is called again.
    fn next(&mut self) -> Option<&[u8]> {
        let left = self.len.wrapping_sub(self.done);

        if left == 0 {
            return None;
        }

        let mut data = ptr::null();
        // SAFETY: By the type invariants it is the state of a read.
        let n = unsafe { bindings::skb_seq_read(self.done, &mut data, &mut self.state) };

        if n == 0 {
            return None;
        }

        let n = n.min(left);

        // At most `len`.
        self.done = self.done.wrapping_add(n);
        // SAFETY: The function has returned so many bytes or more. They stay there, and mapped,
        // until it is called again or the read is aborted. As the buffer is settled, they are not
        // written to: they are pages that the stack owns, shared with clones at most.
        //
        // CAST: `usize` is at least 32 bits wide.
        Some(unsafe { slice::from_raw_parts(data, n as usize) })
    }
}

impl Drop for Chunks<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is the state of a read. At its end this does nothing.
        unsafe { bindings::skb_abort_seq_read(&mut self.state) }
    }
}

/// A UDP packet that is just coming, see [`RxBuf`].
pub struct RxSkb<'a> {
    buf: RxBuf,
    dev: &'a NetDevice,
    /// The lifetime is that of an RCU read-side critical section.
    _not_send: NotThreadSafe,
}

impl RxSkb<'_> {
    /// Takes a packet over from UDP.
    ///
    /// # Safety
    ///
    /// `skb` must be a packet as UDP hands it to an encapsulation socket, or a train of such, owned
    /// by the caller, who gives it up. The RCU read lock must be held for the lifetime of the result.
    pub(crate) unsafe fn from_udp(skb: *mut bindings::sk_buff) -> Self {
        let mut taken = MaybeUninit::uninit();
        // SAFETY: By the safety requirements it is a packet with the data at its UDP header, in
        // the linear part. The function writes all of `taken`.
        let bindings::rx_taken {
            view,
            dev,
            len,
            segment,
            eth,
            local,
        } = unsafe {
            bindings::rx_skb_take(skb, taken.as_mut_ptr());
            taken.assume_init()
        };
        // SAFETY: By the safety requirements its device was set, and stays there under the RCU
        // read lock.
        let dev = unsafe { NetDevice::from_raw(dev) };
        // SAFETY: As above, there is an IP header.
        let version = unsafe { *view.ip } >> 4;

        // INVARIANT: IP has checked its header, and keeps it in the linear part. The rest was just
        // established.
        Self {
            buf: RxBuf {
                // SAFETY: By the safety requirements it points to a socket buffer.
                skb: unsafe { NonNull::new_unchecked(skb) },
                piece: linear_part(&view),
                view,
                len,
                segment: if segment == 0 { len } else { segment.min(len) },
                ifindex: dev.ifindex(),
                family: if version == 4 { Family::V4 } else { Family::V6 },
                eth,
                local,
            },
            dev,
            _not_send: NotThreadSafe,
        }
    }
}

impl<'a> RxSkb<'a> {
    /// Returns the device where it came in.
    #[inline]
    pub fn dev(&self) -> &'a NetDevice {
        self.dev
    }

    /// Returns the packet as one that can be kept.
    #[inline]
    pub fn into_buf(self) -> RxBuf {
        self.buf
    }
}

impl Deref for RxSkb<'_> {
    type Target = RxBuf;

    #[inline]
    fn deref(&self) -> &RxBuf {
        &self.buf
    }
}

impl DerefMut for RxSkb<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut RxBuf {
        &mut self.buf
    }
}
