// SPDX-License-Identifier: GPL-2.0

//! SENDs and WRITEs, packet by packet.

use super::refusal::Refusal;
use crate::env::{
    Counter,
    Env,
    KeyFault,
    RecvCompletion,
    RecvOp,
    RemoteAccess, //
};
use crate::opcode::{
    Info,
    Op,
    Position, //
};
use crate::qp::Qp;
use crate::verbs::{
    Access,
    WcStatus,
    MAX_MSG_LEN, //
};
use crate::wire::Parsed;

/// The inbound message that has begun and not ended.
pub(crate) enum Inbound<R> {
    /// None.
    Idle,
    /// A SEND.
    Send {
        /// Bytes so far.
        received: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// Where to; [`None`] if it is empty.
        region: Option<R>,
        /// Bytes so far.
        received: u32,
        /// Bytes of the whole.
        total: u32,
    },
}

impl<E: Env> Qp<E> {
    /// Carries out a packet of a SEND or WRITE, and tells whether the message ended.
    pub(super) fn part(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Result<bool, Refusal> {
        // CAST: at most 4096.
        let len = pkt.payload_len as u32;
        if !info.payload.permits(len, self.set.mtu.bytes()) {
            return Err(Refusal::Invalid);
        }
        match info.op {
            Op::Send => self.part_of_send(pkt, info.position, len, env)?,
            _ => self.part_of_write(pkt, info.position, len, env)?,
        }
        if info.position.ends() {
            self.resp.inbound = Inbound::Idle;
        }
        Ok(info.position.ends())
    }

    /// Makes sure that there is a current receive, and gives its capacity.
    pub(super) fn need_receive(&mut self, env: &mut E) -> Result<u32, Refusal> {
        if let Some(r) = self.resp.recv {
            return Ok(r.capacity);
        }
        self.resp.takes_receives = true;
        let taken = env.take_recv().ok_or(Refusal::NotReady)?;
        self.resp.recv = Some(taken.unwrap_or_default());
        taken.map(|r| r.capacity).map_err(Refusal::Receive)
    }

    pub(super) fn part_of_send(
        &mut self,
        pkt: &Parsed,
        at: Position,
        len: u32,
        env: &mut E,
    ) -> Result<(), Refusal> {
        let received = match (&self.resp.inbound, at.begins()) {
            (Inbound::Idle, true) => 0,
            (Inbound::Send { received }, false) => *received,
            _ => return Err(Refusal::Invalid),
        };
        let capacity = self.need_receive(env)?;
        let end = received.saturating_add(len);
        if end > capacity {
            return Err(Refusal::TooLong);
        }
        if len > 0 {
            env.place_recv(received, len)?;
        }
        self.resp.inbound = Inbound::Send { received: end };
        if at.ends() {
            let invalidated = pkt.headers.ieth().map(|h| h.0);
            if let Some(rkey) = invalidated {
                env.invalidate(rkey).map_err(|f| match f {
                    KeyFault::Access => Refusal::Invalid,
                    KeyFault::Operational | KeyFault::Absent => Refusal::Key(f),
                })?;
            }
            self.complete_receive(pkt, RecvOp::Recv, end, invalidated, env);
        }
        Ok(())
    }

    pub(super) fn part_of_write(
        &mut self,
        pkt: &Parsed,
        at: Position,
        len: u32,
        env: &mut E,
    ) -> Result<(), Refusal> {
        let with_imm = pkt.headers.imm().is_some();
        let reth = pkt.headers.reth();
        let (received, total) = match (&self.resp.inbound, at.begins(), reth) {
            (Inbound::Idle, true, Some(reth)) => (0, reth.len),
            (
                Inbound::Write {
                    received, total, ..
                },
                false,
                _,
            ) => (*received, *total),
            _ => return Err(Refusal::Invalid),
        };
        let left = total.checked_sub(received).ok_or(Refusal::Invalid)?;
        let fits = if at.ends() { left == len } else { left > len };
        if !fits || total > MAX_MSG_LEN || !self.set.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Invalid);
        }
        if with_imm {
            self.need_receive(env)?;
        }
        if let (true, Some(reth)) = (at.begins(), reth) {
            let region = if total > 0 {
                Some(env.open_remote(reth.rkey, reth.va, total, RemoteAccess::Write)?)
            } else {
                None
            };
            self.resp.inbound = Inbound::Write {
                region,
                received: 0,
                total,
            };
        }
        if let Inbound::Write {
            region, received, ..
        } = &mut self.resp.inbound
        {
            let placed = match region {
                Some(region) if len > 0 => env.place_remote(region, *received, len),
                _ => Ok(()),
            };
            match placed {
                Ok(()) => *received = received.saturating_add(len),
                Err(fault) => {
                    if fault == KeyFault::Absent && at.begins() {
                        // The packet will come again, and begin it again.
                        self.resp.inbound = Inbound::Idle;
                    }
                    return Err(fault.into());
                }
            }
        }
        if with_imm && at.ends() {
            self.complete_receive(pkt, RecvOp::WriteImm, total, None, env);
        }
        Ok(())
    }

    /// Ends the current receive with success.
    pub(super) fn complete_receive(
        &mut self,
        pkt: &Parsed,
        op: RecvOp,
        byte_len: u32,
        invalidated: Option<u32>,
        env: &mut E,
    ) {
        let h = &pkt.headers;
        let deth = h.deth();
        self.resp.recv = None;
        env.count(Counter::RecvCompletions);
        env.complete_recv(RecvCompletion {
            status: WcStatus::Success,
            op,
            byte_len,
            imm: h.imm().map(|i| i.0),
            invalidated,
            src_qp: deth.map_or(self.set.dest_qpn, |d| d.src_qp),
            solicited: h.bth.solicited,
            grh: deth.is_some(),
            vendor_err: 0,
        });
    }
}
