// SPDX-License-Identifier: GPL-2.0

//! Consecutive packets of one message, taken in as one.
//!
//! The middle of a message is dull: packet after packet of the same kind and length, each of which does nothing but move data
//! and count up. Where many of them are at hand at once, with their data in one piece, the machines can take them in one
//! step. What comes of it is exactly what would come of them one by one. Anything unusual is left to that.

use crate::burst::{
    Burst,
    PacketOut, //
};
use crate::env::{
    Counter,
    Env, //
};
use crate::opcode::{
    Op,
    Role, //
};
use crate::qp::Qp;
use crate::responder::Inbound;
use crate::time::Instant;
use crate::verbs::{
    QpType,
    SendOp, //
};
use crate::wire::Parsed;

impl Burst {
    /// Packets `i` and following that are the middle of a message, as one with the payload of all and the AckReq bit of any;
    /// and how many they are. `None` unless they are two at least.
    pub fn run(&self, i: u32) -> Option<(PacketOut, u32)> {
        let is_middle = |p: &PacketOut| p.headers.bth.opcode.is_middle();
        let last = self.packet(self.count.saturating_sub(1));
        // Only the last packet of a message is none of its middle, once the first is behind.
        let end = self.count.saturating_sub(u32::from(!is_middle(&last)));
        let mut first = self.packet(i);
        let count = end.saturating_sub(i);
        if count < 2 || !is_middle(&first) {
            return None;
        }
        first.len = first.len.saturating_mul(count);
        first.headers.bth.ack_req = self.asks_for_ack(i, count);
        Some((first, count))
    }
}

impl<E: Env> Qp<E> {
    /// Takes in `count` packets as [`Burst::run`] makes them, as [`Self::on_packet`] would take one after the other. `pkt` has
    /// the headers of the first and the payload of all, which "the current packet" has in one piece.
    ///
    /// Returns false, and has done nothing, if they have to be taken one by one.
    pub fn on_run(&mut self, now: Instant, pkt: &Parsed, count: u32, env: &mut E) -> bool {
        let Some(info) = pkt.headers.bth.opcode.info() else {
            return false;
        };
        let len = self.set.mtu.bytes().checked_mul(count);
        let whole = u32::try_from(pkt.payload_len)
            .ok()
            .filter(|n| Some(*n) == len);
        let Some(len) = whole else {
            return false;
        };
        let permitted = self.state.permits();
        match (info.op, info.role) {
            (Op::Send | Op::Write, Role::Request) if permitted.receive => {
                self.on_request_run(pkt, info.op, count, len, env)
            }
            (Op::ReadResponse, Role::Response) if permitted.send => {
                self.on_response_run(now, pkt, count, len, env)
            }
            _ => false,
        }
    }

    fn on_request_run(&mut self, pkt: &Parsed, op: Op, count: u32, len: u32, env: &mut E) -> bool {
        let in_order = pkt.headers.bth.psn == self.resp.expected && !self.resp.in_gap();
        if !in_order || self.ty.is_datagram() {
            return false;
        }
        match (&mut self.resp.inbound, op, self.resp.recv) {
            (Inbound::Send { received }, Op::Send, Some(recv)) => {
                let Some(end) = received.checked_add(len).filter(|e| *e <= recv.capacity) else {
                    return false;
                };
                if env.place_recv(*received, len).is_err() {
                    return false;
                }
                *received = end;
            }
            (
                Inbound::Write {
                    region: Some(region),
                    received,
                    total,
                },
                Op::Write,
                _,
            ) => {
                // The last packet is still to come, and not empty.
                let Some(end) = received.checked_add(len).filter(|e| *e < *total) else {
                    return false;
                };
                if env.place_remote(region, *received, len).is_err() {
                    return false;
                }
                *received = end;
            }
            _ => return false,
        }
        self.resp.note_run(count);
        if self.ty == QpType::Rc && pkt.headers.bth.ack_req {
            self.resp.want_ack();
        }
        env.count_n(Counter::RxRequests, count);
        true
    }

    fn on_response_run(
        &mut self,
        now: Instant,
        pkt: &Parsed,
        count: u32,
        len: u32,
        env: &mut E,
    ) -> bool {
        let psn = pkt.headers.bth.psn;
        let Some(entry) = self.begun() else {
            return false;
        };
        let at = psn.distance_from(entry.first);
        let all = entry.last.distance_from(entry.first);
        let sent = self.req.edge.distance_from(psn);
        let in_order = psn == self.comp.una && entry.wqe.op == SendOp::Read && count <= sent;
        // The last packet is still to come.
        if !in_order || !at.checked_add(count).is_some_and(|end| end <= all) {
            return false;
        }
        let offset = at.saturating_mul(self.set.mtu.bytes());
        let fits = offset
            .checked_add(len)
            .is_some_and(|end| end < entry.wqe.length);
        if !fits
            || env
                .place_send(self.sq.slot_of(self.sq.tail), offset, len)
                .is_err()
        {
            return false;
        }
        let last = psn.add(count.saturating_sub(1));
        self.note_reached(last, None);
        self.answered_to(now, last, false, env);
        true
    }
}
