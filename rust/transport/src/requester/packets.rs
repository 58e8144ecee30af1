// SPDX-License-Identifier: GPL-2.0

//! The packets of work requests.

use super::{
    GSI_QKEY,
    QKEY_OF_QP, //
};
use crate::burst::{
    AckReq,
    Burst,
    Family,
    Lead,
    Owner,
    Plan,
    Source, //
};
use crate::env::Env;
use crate::opcode::Opcode;
use crate::qp::Qp;
use crate::ring::SendSlot;
use crate::verbs::{
    QpType,
    SendOp,
    SendWqe, //
};
use crate::wire::{
    AtomicEth,
    Bth,
    Deth,
    Ext,
    Feth,
    Headers,
    Ieth,
    ImmDt,
    Reth,
    Tail, //
};

impl<E: Env> Qp<E> {
    /// Packets of a SEND or a WRITE.
    pub(super) fn run(
        &self,
        entry: &SendSlot,
        at: u32,
        total: u32,
        count: u32,
        ack_req: AckReq,
        owner: Owner,
    ) -> Burst {
        let wqe = &entry.wqe;
        let rc = self.ty == QpType::Rc;
        let (family, tail) = match (wqe.op, rc) {
            (SendOp::SendImm(v), true) => (Family::RcSend, Tail::Imm(ImmDt(v))),
            (SendOp::SendInv(v), _) => (Family::RcSend, Tail::Invalidate(Ieth(v))),
            (SendOp::Write, true) => (Family::RcWrite, Tail::None),
            (SendOp::WriteImm(v), true) => (Family::RcWrite, Tail::Imm(ImmDt(v))),
            (_, true) => (Family::RcSend, Tail::None),
            (SendOp::SendImm(v), false) => (Family::UcSend, Tail::Imm(ImmDt(v))),
            (SendOp::Write, false) => (Family::UcWrite, Tail::None),
            (SendOp::WriteImm(v), false) => (Family::UcWrite, Tail::Imm(ImmDt(v))),
            (_, false) => (Family::UcSend, Tail::None),
        };
        let mtu = self.set.mtu.bytes();
        let offset = at.saturating_mul(mtu);
        let len = wqe
            .length
            .saturating_sub(offset)
            .min(count.saturating_mul(mtu));
        Burst {
            source: source(
                wqe.length,
                Source::Send {
                    slot: slot_of(owner),
                },
            ),
            offset,
            len,
            count,
            mtu,
            plan: Plan::Run {
                family,
                tail,
                at,
                total,
                bth: Bth {
                    solicited: wqe.flags.solicited && wqe.op.takes_receive(),
                    ..self.bth(entry.first.add(at))
                },
                lead: Lead::Rdma(reth(wqe)),
                ack_req,
            },
            owner,
        }
    }

    /// A request with a response of its own: a READ of what is missing from packet `at` of the response on, an atomic, an
    /// ATOMIC WRITE or a FLUSH.
    pub(super) fn response_request(&self, entry: &SendSlot, at: u32, owner: Owner) -> Burst {
        let wqe = &entry.wqe;
        let offset = at.saturating_mul(self.set.mtu.bytes()).min(wqe.length);
        let atomic = |swap_add, compare| {
            Ext::Atomic(AtomicEth {
                va: wqe.remote_addr,
                rkey: wqe.rkey,
                swap_add,
                compare,
            })
        };
        let mut h = Headers {
            bth: Bth {
                ack_req: true,
                ..self.bth(entry.first.add(at))
            },
            ..Headers::default()
        };
        let mut payload = (Source::None, 0);
        match wqe.op {
            SendOp::CmpSwap { compare, swap } => {
                h.bth.opcode = Opcode::RC_COMPARE_SWAP;
                h.ext = atomic(swap, compare);
            }
            SendOp::FetchAdd { add } => {
                h.bth.opcode = Opcode::RC_FETCH_ADD;
                h.ext = atomic(add, 0);
            }
            SendOp::AtomicWrite => {
                h.bth.opcode = Opcode::RC_ATOMIC_WRITE;
                h.ext = Ext::Rdma(reth(wqe));
                payload = (
                    Source::Send {
                        slot: slot_of(owner),
                    },
                    wqe.length,
                );
            }
            SendOp::Flush(kind) => {
                h.bth.opcode = Opcode::RC_FLUSH;
                h.ext = Ext::Flush(Feth::of(kind), reth(wqe));
            }
            _ => {
                h.bth.opcode = Opcode::RC_READ_REQUEST;
                h.ext = Ext::Rdma(Reth {
                    va: wqe.remote_addr.wrapping_add(u64::from(offset)),
                    len: wqe.length.saturating_sub(offset),
                    ..reth(wqe)
                });
            }
        }
        let (source, len) = payload;
        Burst {
            source,
            len,
            ..self.single(h, owner)
        }
    }

    /// A datagram.
    pub(super) fn datagram(&self, entry: &SendSlot, owner: Owner) -> Burst {
        let wqe = &entry.wqe;
        let dest = wqe.ud.unwrap_or_default();
        let (opcode, tail) = match wqe.op {
            SendOp::SendImm(v) => (Opcode::UD_SEND_ONLY_IMM, Tail::Imm(ImmDt(v))),
            _ => (Opcode::UD_SEND_ONLY, Tail::None),
        };
        let h = Headers {
            bth: Bth {
                opcode,
                solicited: wqe.flags.solicited,
                dest_qp: dest.qpn,
                ..self.bth(entry.first)
            },
            ext: Ext::Datagram(Deth {
                qkey: if dest.qkey & QKEY_OF_QP != 0 {
                    self.qkey()
                } else {
                    dest.qkey
                },
                src_qp: self.qpn,
            }),
            tail,
        };
        Burst {
            source: source(
                wqe.length,
                Source::Send {
                    slot: slot_of(owner),
                },
            ),
            len: wqe.length,
            ..self.single(h, owner)
        }
    }

    /// The Q_Key of the queue pair.
    pub(crate) fn qkey(&self) -> u32 {
        match self.ty {
            QpType::Gsi => GSI_QKEY,
            _ => self.set.qkey,
        }
    }
}

/// The remote memory that a work request names.
fn reth(wqe: &SendWqe) -> Reth {
    Reth {
        va: wqe.remote_addr,
        rkey: wqe.rkey,
        len: wqe.length,
    }
}

/// The source of a message, which an empty one does not have.
fn source(len: u32, of: Source) -> Source {
    if len == 0 {
        Source::None
    } else {
        of
    }
}

/// The slot of a request.
fn slot_of(owner: Owner) -> u32 {
    match owner {
        Owner::Request { slot, .. } => slot,
        _ => 0,
    }
}
