// SPDX-License-Identifier: GPL-2.0

//! The headers between the base transport header and the payload.

use super::{
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Feth,
    Headers,
    Ieth,
    ImmDt,
    Malformed,
    Reader,
    Reth,
    Syndrome,
    Writer,
    LOW_24, //
};
use crate::opcode::HeaderSet;
use crate::psn::Msn;

/// What follows the base transport header. No opcode has more than one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ext {
    /// Nothing.
    #[default]
    None,
    /// Of datagrams.
    Datagram(Deth),
    /// Of WRITE and READ requests.
    Rdma(Reth),
    /// Of FLUSH requests.
    Flush(Feth, Reth),
    /// Of atomic requests.
    Atomic(AtomicEth),
    /// Of responses.
    Ack(Aeth),
    /// Of answers to atomics.
    AtomicAck(Aeth, AtomicAckEth),
}

/// What comes last before the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    #[default]
    None,
    /// Immediate data.
    Imm(ImmDt),
    /// The rkey to invalidate.
    Invalidate(Ieth),
}

impl Ext {
    #[inline(always)]
    pub(super) fn read(set: HeaderSet, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let has = |h: HeaderSet| set.has(h);
        Ok(if has(HeaderSet::RETH) && has(HeaderSet::FETH) {
            Self::Flush(Feth(r.u32()?), Reth::read(r)?)
        } else if has(HeaderSet::RETH) {
            Self::Rdma(Reth::read(r)?)
        } else if has(HeaderSet::AETH) && has(HeaderSet::ATOMIC_ACK) {
            Self::AtomicAck(Aeth::read(r)?, AtomicAckEth(r.u64()?))
        } else if has(HeaderSet::AETH) {
            Self::Ack(Aeth::read(r)?)
        } else if has(HeaderSet::DETH) {
            Self::Datagram(Deth {
                qkey: r.u32()?,
                src_qp: r.u32()? & LOW_24,
            })
        } else if has(HeaderSet::ATOMIC) {
            Self::Atomic(AtomicEth {
                va: r.u64()?,
                rkey: r.u32()?,
                swap_add: r.u64()?,
                compare: r.u64()?,
            })
        } else {
            Self::None
        })
    }
}

impl Tail {
    #[inline(always)]
    pub(super) fn read(set: HeaderSet, r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(if set.has(HeaderSet::IMM) {
            Self::Imm(ImmDt(u32::from_ne_bytes(r.take()?)))
        } else if set.has(HeaderSet::IETH) {
            Self::Invalidate(Ieth(r.u32()?))
        } else {
            Self::None
        })
    }
}

impl Reth {
    fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            va: r.u64()?,
            rkey: r.u32()?,
            len: r.u32()?,
        })
    }
}

impl Aeth {
    fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let v = r.u32()?;
        Ok(Self {
            // CAST: the top byte.
            syndrome: Syndrome::from_byte((v >> 24) as u8),
            msn: Msn::new(v),
        })
    }
}

/// The headers one by one, where a packet has them.
impl Headers {
    /// Of datagrams.
    pub fn deth(&self) -> Option<Deth> {
        match self.ext {
            Ext::Datagram(h) => Some(h),
            _ => None,
        }
    }

    /// Of WRITE, READ and FLUSH requests.
    pub fn reth(&self) -> Option<Reth> {
        match self.ext {
            Ext::Rdma(h) | Ext::Flush(_, h) => Some(h),
            _ => None,
        }
    }

    /// Of FLUSH requests.
    pub fn feth(&self) -> Option<Feth> {
        match self.ext {
            Ext::Flush(h, _) => Some(h),
            _ => None,
        }
    }

    /// Of atomic requests.
    pub fn atomic(&self) -> Option<AtomicEth> {
        match self.ext {
            Ext::Atomic(h) => Some(h),
            _ => None,
        }
    }

    /// Of responses.
    pub fn aeth(&self) -> Option<Aeth> {
        match self.ext {
            Ext::Ack(h) | Ext::AtomicAck(h, _) => Some(h),
            _ => None,
        }
    }

    /// Of answers to atomics.
    pub fn atomic_ack(&self) -> Option<AtomicAckEth> {
        match self.ext {
            Ext::AtomicAck(_, h) => Some(h),
            _ => None,
        }
    }

    /// Immediate data.
    pub fn imm(&self) -> Option<ImmDt> {
        match self.tail {
            Tail::Imm(h) => Some(h),
            _ => None,
        }
    }

    /// The rkey to invalidate.
    pub fn ieth(&self) -> Option<Ieth> {
        match self.tail {
            Tail::Invalidate(h) => Some(h),
            _ => None,
        }
    }

    /// Writes those of `set`, which come after the base transport header; what there isn't is zero.
    pub(super) fn write_rest(&self, set: HeaderSet, w: &mut Writer<'_>) {
        let has = |h: HeaderSet| set.has(h);
        if has(HeaderSet::RETH) {
            if has(HeaderSet::FETH) {
                w.put(self.feth().unwrap_or_default().0.to_be_bytes());
            }
            let h = self.reth().unwrap_or_default();
            w.put(h.va.to_be_bytes());
            w.put(h.rkey.to_be_bytes());
            w.put(h.len.to_be_bytes());
        } else if has(HeaderSet::AETH) {
            let word = self
                .aeth()
                .map_or(0, |h| (u32::from(h.syndrome.to_byte()) << 24) | h.msn.get());
            w.put(word.to_be_bytes());
            if has(HeaderSet::ATOMIC_ACK) {
                w.put(self.atomic_ack().unwrap_or_default().0.to_be_bytes());
            }
        } else if has(HeaderSet::DETH) {
            let h = self.deth().unwrap_or_default();
            w.put(h.qkey.to_be_bytes());
            w.put((h.src_qp & LOW_24).to_be_bytes());
        } else if has(HeaderSet::ATOMIC) {
            let h = self.atomic().unwrap_or_default();
            w.put(h.va.to_be_bytes());
            w.put(h.rkey.to_be_bytes());
            w.put(h.swap_add.to_be_bytes());
            w.put(h.compare.to_be_bytes());
        }
        if has(HeaderSet::IMM) {
            w.put(self.imm().unwrap_or_default().0.to_ne_bytes());
        } else if has(HeaderSet::IETH) {
            w.put(self.ieth().unwrap_or_default().0.to_be_bytes());
        }
    }
}
