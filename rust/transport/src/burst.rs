// SPDX-License-Identifier: GPL-2.0

//! Runs of packets to send.

use crate::opcode::{
    Opcode,
    Position, //
};
use crate::psn::Psn;
use crate::wire::{
    Aeth,
    Bth,
    Ext,
    Headers,
    Reth,
    Syndrome,
    Tail,
    ICRC_LEN, //
};

/// Where the payload of a burst comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// There is none.
    None,
    /// The memory of a send slot, at the burst's offset.
    Send {
        /// The slot.
        slot: u32,
    },
    /// The region of a responder resource ([`crate::Qp::region`]), at the burst's offset.
    Read {
        /// The resource.
        resource: u32,
    },
}

/// What a burst belongs to: tells a late report from a timely one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A work request, by its free-running ring index, in the given life of the send queue.
    Request { index: u32, life: u32, slot: u32 },
    /// A READ response, by resource, in the given use of that resource.
    Response { resource: u32, usage: u32 },
    /// Anything that needs no report.
    Nobody,
}

/// The kind of a message that takes several packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    RcSend,
    RcWrite,
    UcSend,
    UcWrite,
    ReadResponse,
}

/// What the first packet of a message carries before the data, in responses the last one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    Rdma(Reth),
    Ack(Aeth),
}

impl Family {
    /// The opcode of a packet of this kind of message.
    fn opcode(self, at: Position, tail: Tail) -> Opcode {
        use Opcode as O;
        use Position::{
            First,
            Last,
            Middle,
            Only, //
        };
        match (self, at, tail) {
            (Self::RcSend, First, _) => O::RC_SEND_FIRST,
            (Self::RcSend, Middle, _) => O::RC_SEND_MIDDLE,
            (Self::RcSend, Last, Tail::None) => O::RC_SEND_LAST,
            (Self::RcSend, Last, Tail::Imm(_)) => O::RC_SEND_LAST_IMM,
            (Self::RcSend, Last, Tail::Invalidate(_)) => O::RC_SEND_LAST_INV,
            (Self::RcSend, Only, Tail::None) => O::RC_SEND_ONLY,
            (Self::RcSend, Only, Tail::Imm(_)) => O::RC_SEND_ONLY_IMM,
            (Self::RcSend, Only, Tail::Invalidate(_)) => O::RC_SEND_ONLY_INV,
            (Self::RcWrite, First, _) => O::RC_WRITE_FIRST,
            (Self::RcWrite, Middle, _) => O::RC_WRITE_MIDDLE,
            (Self::RcWrite, Last, Tail::Imm(_)) => O::RC_WRITE_LAST_IMM,
            (Self::RcWrite, Last, _) => O::RC_WRITE_LAST,
            (Self::RcWrite, Only, Tail::Imm(_)) => O::RC_WRITE_ONLY_IMM,
            (Self::RcWrite, Only, _) => O::RC_WRITE_ONLY,
            (Self::UcSend, First, _) => O::UC_SEND_FIRST,
            (Self::UcSend, Middle, _) => O::UC_SEND_MIDDLE,
            (Self::UcSend, Last, Tail::Imm(_)) => O::UC_SEND_LAST_IMM,
            (Self::UcSend, Last, _) => O::UC_SEND_LAST,
            (Self::UcSend, Only, Tail::Imm(_)) => O::UC_SEND_ONLY_IMM,
            (Self::UcSend, Only, _) => O::UC_SEND_ONLY,
            (Self::UcWrite, First, _) => O::UC_WRITE_FIRST,
            (Self::UcWrite, Middle, _) => O::UC_WRITE_MIDDLE,
            (Self::UcWrite, Last, Tail::Imm(_)) => O::UC_WRITE_LAST_IMM,
            (Self::UcWrite, Last, _) => O::UC_WRITE_LAST,
            (Self::UcWrite, Only, Tail::Imm(_)) => O::UC_WRITE_ONLY_IMM,
            (Self::UcWrite, Only, _) => O::UC_WRITE_ONLY,
            (Self::ReadResponse, First, _) => O::RC_READ_RESPONSE_FIRST,
            (Self::ReadResponse, Middle, _) => O::RC_READ_RESPONSE_MIDDLE,
            (Self::ReadResponse, Last, _) => O::RC_READ_RESPONSE_LAST,
            (Self::ReadResponse, Only, _) => O::RC_READ_RESPONSE_ONLY,
        }
    }
}

/// When the packets of a burst ask for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckReq {
    /// Never: unreliable services, and responses.
    Never,
    /// At the end of the message if `end`, at the end of the burst if `last`, and where the running packet number, which is
    /// `first` at the first packet, is a multiple of `every`.
    Paced {
        first: u32,
        every: u32,
        last: bool,
        end: bool,
    },
}

impl AckReq {
    /// Whether any of `n` packets from `i` on asks, of the `count` of a burst, apart from the end of the message.
    fn any(self, i: u32, n: u32, count: u32) -> bool {
        let Self::Paced {
            first, every, last, ..
        } = self
        else {
            return false;
        };
        let since = first.wrapping_add(i).checked_rem(every);
        // How many packets until the next number that is a multiple.
        let until = since.map(|s| if s == 0 { 0 } else { every.wrapping_sub(s) });
        (last && i.saturating_add(n) >= count) || until.is_some_and(|u| u < n)
    }

    /// How many of the `count` packets of a burst come after the last that asks; [`None`] if none does. `ends` tells whether
    /// it holds the end of the message.
    fn after_last(self, count: u32, ends: bool) -> Option<u32> {
        let Self::Paced {
            first,
            every,
            last,
            end,
        } = self
        else {
            return None;
        };
        if last || (end && ends) {
            return Some(0);
        }
        let newest = first.wrapping_add(count).wrapping_sub(1);
        newest.checked_rem(every).filter(|after| *after < count)
    }
}

/// How to make the headers of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// One packet with these headers.
    Single(Headers),
    /// Packets `at` and following of the `total` of a message.
    Run {
        family: Family,
        tail: Tail,
        at: u32,
        total: u32,
        bth: Bth,
        lead: Lead,
        ack_req: AckReq,
    },
}

/// Consecutive packets of one message.
///
/// All but the message's last are full: they differ in length only by their headers, which are longer in the first and the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Where the payload comes from.
    pub source: Source,
    /// Where the payload of the first packet begins in the source.
    pub offset: u32,
    /// Bytes of payload of all packets.
    pub len: u32,
    /// How many packets; at least one.
    pub count: u32,
    /// Bytes of payload of each packet but the last.
    pub(crate) mtu: u32,
    pub(crate) plan: Plan,
    pub(crate) owner: Owner,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// Its headers, padding count included.
    pub headers: Headers,
    /// Where its payload begins in the source.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
    /// Bytes of padding to append, up to 3.
    pub pad: u8,
}

impl PacketOut {
    /// Bytes that it takes above UDP: headers, payload, padding and ICRC.
    pub fn wire_len(&self) -> usize {
        self.headers
            .len()
            .saturating_add(self.len as usize)
            .saturating_add(usize::from(self.pad))
            .saturating_add(ICRC_LEN)
    }
}

impl Burst {
    /// Packet `i`, below [`Self::count`]; what lies above is given as the last.
    pub fn packet(&self, i: u32) -> PacketOut {
        let i = i.min(self.count.saturating_sub(1));
        let skip = i.saturating_mul(self.mtu).min(self.len);
        let len = self.len.saturating_sub(skip).min(self.mtu);
        // CAST: below 4.
        let pad = (len.wrapping_neg() & 3) as u8;
        let mut headers = self.headers(i);
        headers.bth.pad = pad;
        PacketOut {
            headers,
            offset: self.offset.saturating_add(skip),
            len,
            pad,
        }
    }

    /// Makes packet `i` out of the one before it: in the middle of a message there is little that differs.
    pub fn step(&self, packet: &mut PacketOut, i: u32) {
        match self.plan {
            Plan::Run {
                at, total, ack_req, ..
            } if i < self.count
                && packet.headers.bth.opcode.is_middle()
                && Position::of(at.saturating_add(i), total) == Position::Middle =>
            {
                let bth = &mut packet.headers.bth;
                bth.psn = bth.psn.next();
                bth.ack_req = ack_req.any(i, 1, self.count);
                packet.offset = packet.offset.saturating_add(self.mtu);
            }
            _ => *packet = self.packet(i),
        }
    }

    /// Headers of packet `i`, without padding count.
    fn headers(&self, i: u32) -> Headers {
        let (family, tail, at, total, mut bth, lead, ack_req) = match self.plan {
            Plan::Single(h) => return h,
            Plan::Run {
                family,
                tail,
                at,
                total,
                bth,
                lead,
                ack_req,
            } => (family, tail, at, total, bth, lead, ack_req),
        };
        let position = Position::of(at.saturating_add(i), total);
        bth.opcode = family.opcode(position, tail);
        bth.psn = bth.psn.add(i);
        bth.solicited &= position.ends();
        bth.ack_req = match ack_req {
            AckReq::Never => false,
            AckReq::Paced { end, .. } => (end && position.ends()) || ack_req.any(i, 1, self.count),
        };
        let ext = match lead {
            Lead::Rdma(reth) if position.begins() => Ext::Rdma(reth),
            Lead::Ack(aeth) if position != Position::Middle => Ext::Ack(aeth),
            _ => Ext::None,
        };
        let tail = if position.ends() { tail } else { Tail::None };
        Headers { bth, ext, tail }
    }

    /// Whether any of `count` packets from `i` on, none of them the last of a message, asks for an acknowledgement.
    pub(crate) fn asks_for_ack(&self, i: u32, count: u32) -> bool {
        match self.plan {
            Plan::Single(h) => h.bth.ack_req,
            Plan::Run { ack_req, .. } => ack_req.any(i, count, self.count),
        }
    }

    /// The first PSN after the last packet that asks for an acknowledgement, where `to` is that after the burst.
    pub(crate) fn asks_before(&self, to: Psn) -> Option<Psn> {
        match self.plan {
            Plan::Single(h) => h.bth.ack_req.then_some(to),
            Plan::Run {
                at, total, ack_req, ..
            } => {
                let ends = at.saturating_add(self.count) >= total;
                let after = ack_req.after_last(self.count, ends)?;
                Some(to.add(after.wrapping_neg()))
            }
        }
    }

    /// The PSN of the first packet.
    pub fn psn(&self) -> Psn {
        match self.plan {
            Plan::Single(h) => h.bth.psn,
            Plan::Run { bth, .. } => bth.psn,
        }
    }

    /// Bytes of payload of each packet but the last of the message.
    pub fn packet_len(&self) -> u32 {
        self.mtu
    }

    /// Whether these are requests, not responses.
    pub fn is_request(&self) -> bool {
        matches!(self.owner, Owner::Request { .. })
    }

    /// Whether this is an ACK: one that follows says the same, and how far the peer has come since.
    pub fn is_ack(&self) -> bool {
        match self.plan {
            Plan::Single(h) => {
                h.bth.opcode == Opcode::RC_ACKNOWLEDGE
                    && h.aeth()
                        .is_some_and(|a| matches!(a.syndrome, Syndrome::Ack { .. }))
            }
            Plan::Run { .. } => false,
        }
    }

    /// The send slot that a request belongs to, whether it has payload or not.
    pub fn slot(&self) -> Option<u32> {
        match self.owner {
            Owner::Request { slot, .. } => Some(slot),
            _ => None,
        }
    }
}
