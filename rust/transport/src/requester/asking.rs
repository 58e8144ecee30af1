// SPDX-License-Identifier: GPL-2.0

//! When the peer is asked for an acknowledgement.
//!
//! It is up to the requester which packets have the AckReq bit. Where a completion is wanted, the last packet of the message
//! asks. A message that nobody waits for is acknowledged by and by, with those that follow. Should none follow, a request
//! that was acknowledged long ago is repeated, without its data: a duplicate is not carried out again, and answered with
//! how far the peer has come (C9-105).

use super::ACK_INTERVAL;
use crate::burst::{
    Burst,
    Owner, //
};
use crate::env::{
    Counter,
    Env, //
};
use crate::opcode::Opcode;
use crate::psn::Psn;
use crate::qp::Qp;
use crate::ring::SendSlot;
use crate::time::{
    Duration,
    Instant, //
};
use crate::verbs::QpState;
use crate::wire::{
    Bth,
    Headers,
    Reth, //
};

/// How long nothing is sent until the peer is asked for what was not acknowledged.
const PATIENCE: Duration = Duration::from_micros(1000);
/// With fewer credits than this, each message asks: acknowledgements bring new ones.
const SCARCE: u32 = 2 * ACK_INTERVAL;

/// What the peer was asked for.
pub(crate) struct Asking {
    /// The first PSN after the last packet that asked.
    until: Psn,
    /// When to ask for what came after that.
    pub(crate) at: Option<Instant>,
    /// That time has come.
    due: bool,
}

impl Asking {
    /// Nothing was sent before `psn`.
    pub(crate) const fn new(psn: Psn) -> Self {
        Self {
            until: psn,
            at: None,
            due: false,
        }
    }
}

impl<E: Env> Qp<E> {
    /// Whether the last packet of a message asks; `again` if it was sent before.
    pub(super) fn asks_at_end(&self, entry: &SendSlot, again: bool) -> bool {
        let awaited = self.sig_all || entry.wqe.flags.signaled;
        let scarce = entry.wqe.op.takes_receive() && !self.req.has_credit(entry.ssn.add(SCARCE));
        // Work requests leave the queue when they are acknowledged.
        let filling = self.sq.used() > self.sq.capacity() / 2;
        awaited || scarce || filling || again || self.state == QpState::Sqd
    }

    /// Packets were sent up to `to`; the last that asked comes just before `asked`.
    pub(super) fn note_asked(&mut self, now: Instant, asked: Option<Psn>, to: Psn) {
        if let Some(psn) = asked {
            let una = self.comp.una;
            let farther = psn.distance_from(una) > self.req.asking.until.distance_from(una);
            if farther || !self.awaits_answer() {
                self.req.asking.until = psn;
            }
            self.arm_ack_timer(now);
        }
        let open = to == self.req.edge && self.req.asking.until != to;
        self.req.asking.at = open.then(|| now.saturating_add(PATIENCE));
        self.req.asking.due = false;
    }

    /// Whether an answer that was asked for is outstanding.
    pub(crate) fn awaits_answer(&self) -> bool {
        let una = self.comp.una;
        let asked = self.req.asking.until.distance_from(una);
        asked != 0 && asked <= self.req.edge.distance_from(una)
    }

    /// The peer is to be asked for all that was not acknowledged.
    pub(crate) fn ask(&mut self) {
        self.req.asking.at = None;
        self.req.asking.due = self.comp.una != self.req.edge;
    }

    /// The packet that asks, if it is time for it.
    pub(super) fn question(&mut self, now: Instant, env: &mut E) -> Option<Burst> {
        let due = core::mem::take(&mut self.req.asking.due);
        let edge = self.req.edge;
        // What is sent again asks for itself.
        let open = self.req.pos == edge && self.req.asking.until != edge;
        if !due || !open || self.comp.una == edge || !self.state.permits().send {
            return None;
        }
        self.req.asking.until = edge;
        self.arm_ack_timer(now);
        env.count(Counter::TxAckProbes);
        let headers = Headers {
            bth: Bth {
                opcode: Opcode::RC_WRITE_ONLY,
                ack_req: true,
                ..self.bth(self.comp.una.prev())
            },
            // The key of an empty WRITE is not looked at (C9-88).
            reth: Some(Reth::default()),
            ..Headers::default()
        };
        Some(self.single(headers, Owner::Nobody))
    }
}
