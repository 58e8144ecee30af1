// SPDX-License-Identifier: GPL-2.0

//! Wire formats: the base transport header and what follows it (chapter 9).

use crate::opcode::{
    HeaderSet,
    Op,
    Opcode,
    Payload,
    Role, //
};
use crate::psn::{
    Msn,
    Psn, //
};
use crate::verbs::FlushKind;

pub mod crc32;
mod ext;
pub mod icrc;

pub use ext::{
    Ext,
    Tail, //
};

/// Bytes of the base transport header.
pub const BTH_LEN: usize = 12;

/// Bytes of the longest header that [`Headers::emit`] writes.
pub const MAX_HEADER_LEN: usize = 40;

/// Bytes of the invariant CRC that ends each packet.
pub const ICRC_LEN: usize = 4;
/// Bytes of an acknowledge extended transport header.
pub const AETH_LEN: usize = 4;

/// The largest payload of any packet.
pub const MAX_PAYLOAD: usize = 4096;

/// The global routing header that precedes each datagram in its receive buffer.
pub const GRH_LEN: u32 = 40;

const SOLICITED: u8 = 0x80;
const MIGREQ: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;
const LOW_24: u32 = 0x00ff_ffff;

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its headers.
    Short,
    /// A transport version other than 0.
    Version,
    /// A reserved opcode, or one that is not spoken here.
    Opcode,
    /// The payload has a length that the opcode or the padding forbids.
    Length,
}

/// The base transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// The opcode.
    pub opcode: Opcode,
    /// The solicited event bit.
    pub solicited: bool,
    /// The migration state bit: set while the primary path is in use and nothing is armed.
    pub migreq: bool,
    /// Bytes of padding, up to 3.
    pub pad: u8,
    /// The partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// The destination queue pair.
    pub dest_qp: u32,
    /// An acknowledgement is asked for.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
}

/// The RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// The virtual address.
    pub va: u64,
    /// The remote key.
    pub rkey: u32,
    /// The length of the whole message.
    pub len: u32,
}

/// The atomic extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// The virtual address.
    pub va: u64,
    /// The remote key.
    pub rkey: u32,
    /// The value to swap in or to add.
    pub swap_add: u64,
    /// The value to compare with.
    pub compare: u64,
}

/// The answer to an atomic: the target's original value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicAckEth(pub u64);

/// The flush extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth(pub u32);

impl Feth {
    const GLOBAL: u32 = 1;
    const PERSISTENT: u32 = 2;
    const WHOLE: u32 = 0x10;

    /// What it asks for; [`None`] if that is nothing, or something that is not known.
    pub const fn kind(self) -> Option<FlushKind> {
        let placement = Self::GLOBAL | Self::PERSISTENT;
        if self.0 & placement == 0 || self.0 & !(placement | Self::WHOLE) != 0 {
            return None;
        }
        Some(FlushKind {
            global: self.0 & Self::GLOBAL != 0,
            persistent: self.0 & Self::PERSISTENT != 0,
            whole: self.0 & Self::WHOLE != 0,
        })
    }

    /// Asks for `kind`.
    pub const fn of(kind: FlushKind) -> Self {
        let global = if kind.global { Self::GLOBAL } else { 0 };
        let persistent = if kind.persistent { Self::PERSISTENT } else { 0 };
        let whole = if kind.whole { Self::WHOLE } else { 0 };
        Self(global | persistent | whole)
    }
}

/// The datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The queue key.
    pub qkey: u32,
    /// The sending queue pair.
    pub src_qp: u32,
}

/// Immediate data: the bits of a `__be32`, as they lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImmDt(pub u32);

/// The rkey to invalidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ieth(pub u32);

/// A NAK code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// A packet is missing.
    PsnSequence = 0,
    /// The request is invalid.
    InvalidRequest = 1,
    /// The access is denied.
    RemoteAccess = 2,
    /// The responder cannot carry it out.
    RemoteOperational = 3,
    /// An invalid RD request.
    InvalidRdRequest = 4,
}

/// The syndrome of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// An ACK with a credit code.
    Ack {
        /// See [`crate::credit`].
        credit: u8,
    },
    /// Receiver not ready.
    Rnr {
        /// See [`crate::rnr`].
        timer: u8,
    },
    /// A NAK.
    Nak(NakCode),
    /// A reserved value.
    Reserved(u8),
}

impl Syndrome {
    /// The syndrome of a byte.
    pub const fn from_byte(b: u8) -> Self {
        let low = b & 0x1f;
        match (b >> 5, low) {
            (0, _) => Self::Ack { credit: low },
            (1, _) => Self::Rnr { timer: low },
            (3, 0) => Self::Nak(NakCode::PsnSequence),
            (3, 1) => Self::Nak(NakCode::InvalidRequest),
            (3, 2) => Self::Nak(NakCode::RemoteAccess),
            (3, 3) => Self::Nak(NakCode::RemoteOperational),
            (3, 4) => Self::Nak(NakCode::InvalidRdRequest),
            _ => Self::Reserved(b),
        }
    }

    /// Its byte.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credit } => credit & 0x1f,
            Self::Rnr { timer } => 0x20 | (timer & 0x1f),
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(b) => b,
        }
    }
}

/// The ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What is acknowledged, and how.
    pub syndrome: Syndrome,
    /// Messages completed by the responder.
    pub msn: Msn,
}

/// All headers of a packet. Which of those after the first go on the wire is up to the opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The base transport header.
    pub bth: Bth,
    /// What comes after it.
    pub ext: Ext,
    /// What comes last.
    pub tail: Tail,
}

/// A packet that was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Its headers.
    pub headers: Headers,
    /// The bytes that they take: where the payload begins.
    pub header_len: usize,
    /// Bytes of payload, without padding.
    pub payload_len: usize,
}

impl Parsed {
    /// Whether it is a request, not a response or a notification.
    pub fn is_request(&self) -> bool {
        let info = self.headers.bth.opcode.info();
        info.is_some_and(|info| info.role == Role::Request)
    }

    /// Bytes that it took above UDP: headers, payload, padding and ICRC.
    pub fn wire_len(&self) -> usize {
        self.headers
            .len()
            .saturating_add(self.payload_len)
            .saturating_add(usize::from(self.headers.bth.pad))
            .saturating_add(ICRC_LEN)
    }
}

/// Takes big-endian fields from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Puts big-endian fields into a buffer, one after the other; what has no room is left out.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((to, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *to = bytes;
            self.0 = rest;
        }
    }
}

impl Bth {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// [`Malformed::Version`].
    pub fn parse(b: [u8; BTH_LEN]) -> Result<Self, Malformed> {
        let [opcode, flags, pkey0, pkey1, ecn, q0, q1, q2, ack, p0, p1, p2] = b;
        if flags & 0x0f != 0 {
            return Err(Malformed::Version);
        }
        Ok(Self {
            opcode: Opcode::from_raw(opcode),
            solicited: flags & SOLICITED != 0,
            migreq: flags & MIGREQ != 0,
            pad: (flags >> 4) & 3,
            pkey: u16::from_be_bytes([pkey0, pkey1]),
            fecn: ecn & FECN != 0,
            becn: ecn & BECN != 0,
            dest_qp: u32::from_be_bytes([0, q0, q1, q2]),
            ack_req: ack & ACK_REQ != 0,
            psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
        })
    }

    /// Whether `next` is that of the packet `i` packets after this one in the middle of the same message: nothing else may
    /// be different but what routers and the requester say in passing, congestion and whether to acknowledge.
    pub fn is_followed_by(&self, next: &Self, i: u32) -> bool {
        let expected = Self {
            psn: self.psn.add(i),
            ack_req: next.ack_req,
            fecn: next.fecn,
            becn: next.becn,
            ..*self
        };
        *next == expected && self.opcode.is_middle()
    }

    fn emit(&self) -> [u8; BTH_LEN] {
        let bit = |on: bool, mask: u8| if on { mask } else { 0 };
        let flags =
            bit(self.solicited, SOLICITED) | bit(self.migreq, MIGREQ) | ((self.pad & 3) << 4);
        let [pkey0, pkey1] = self.pkey.to_be_bytes();
        let ecn = bit(self.fecn, FECN) | bit(self.becn, BECN);
        let [_, q0, q1, q2] = self.dest_qp.to_be_bytes();
        let [_, p0, p1, p2] = self.psn.get().to_be_bytes();
        let ack = bit(self.ack_req, ACK_REQ);
        [
            self.opcode.raw(),
            flags,
            pkey0,
            pkey1,
            ecn,
            q0,
            q1,
            q2,
            ack,
            p0,
            p1,
            p2,
        ]
    }
}

impl Headers {
    /// Reads the headers at the front of a UDP payload.
    ///
    /// `bytes` holds at least the headers; `total_len` is the length of the whole UDP payload without the ICRC.
    ///
    /// # Errors
    ///
    /// Says why the packet is to be dropped. Anything may be in `bytes`.
    #[inline(always)]
    pub fn parse(bytes: &[u8], total_len: usize) -> Result<Parsed, Malformed> {
        let mut r = Reader(bytes);
        let bth = Bth::parse(r.take()?)?;
        let info = bth.opcode.info().ok_or(Malformed::Opcode)?;
        let ext = Ext::read(info.headers, &mut r)?;
        let tail = Tail::read(info.headers, &mut r)?;

        let header_len = info.headers.wire_len();
        let padded = total_len.checked_sub(header_len).ok_or(Malformed::Short)?;
        let payload_len = padded
            .checked_sub(usize::from(bth.pad))
            .ok_or(Malformed::Length)?;
        let fits = match info.payload {
            // A wrong one is for the responder to refuse (oA19-2, oA19-28).
            _ if matches!(info.op, Op::Flush | Op::AtomicWrite) => payload_len <= MAX_PAYLOAD,
            Payload::None => payload_len == 0,
            Payload::Exact(n) => payload_len == usize::from(n),
            // The path MTU is for the queue pair to check.
            Payload::Full | Payload::Some | Payload::Any => payload_len <= MAX_PAYLOAD,
        };
        if !fits || padded & 3 != 0 {
            return Err(Malformed::Length);
        }
        Ok(Parsed {
            headers: Self { bth, ext, tail },
            header_len,
            payload_len,
        })
    }

    /// The bytes that [`Self::emit`] writes.
    pub fn len(&self) -> usize {
        self.bth
            .opcode
            .info()
            .map_or(BTH_LEN, |i| i.headers.wire_len())
    }

    /// Never: there is always a base transport header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers that the opcode asks for to the front of `out`, and returns their length.
    ///
    /// Writes nothing, and returns 0, if `out` is too short; [`MAX_HEADER_LEN`] bytes suffice.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let headers = self
            .bth
            .opcode
            .info()
            .map_or(HeaderSet::NONE, |i| i.headers);
        let len = headers.wire_len();
        let Some(out) = out.get_mut(..len) else {
            return 0;
        };
        let mut w = Writer(out);
        w.put(self.bth.emit());
        if len > BTH_LEN {
            self.write_rest(headers, &mut w);
        }
        len
    }
}
