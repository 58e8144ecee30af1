// SPDX-License-Identifier: GPL-2.0

//! When the peer is asked for an acknowledgement.
//!
//! It is up to the requester which packets have the AckReq bit. Where a completion is wanted, the last packet of the message
//! asks, or that of the last one of several that leave one after the other; and one packet of 32 in any case. A message that
//! nobody waits for is acknowledged by and by, with those that follow. Should none follow, a request that was acknowledged
//! long ago is repeated, without its data: a duplicate is not carried out again, and answered with how far the peer has come
//! (C9-105). The same question is asked where the peer told of no receive left: it may have some by now. A peer that always
//! had is not asked any more, until it says that it wasn't ready.

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
use crate::ring::{
    Progress,
    SendSlot, //
};
use crate::time::{
    Duration,
    Instant, //
};
use crate::verbs::{
    QpState,
    QpType,
    SendOp, //
};
use crate::wire::{
    Bth,
    Ext,
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
    /// For credit, in this wait for it.
    for_credit: Question,
    /// How often in a row it had some when asked.
    had_credit: u32,
    /// How often makes it one that always has.
    trust: u32,
}

/// A question of one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// There is none, or it was answered.
    None,
    /// To be asked.
    Due,
    /// Not answered yet.
    Open,
}

/// How often in a row a peer has credit when asked, to be trusted to have some always;
const TRUST: u32 = 64;
/// and if that proved wrong several times.
const MOST_TRUST: u32 = 1 << 12;

impl Asking {
    /// Nothing was sent before `psn`.
    pub(crate) const fn new(psn: Psn) -> Self {
        Self {
            until: psn,
            at: None,
            due: false,
            for_credit: Question::None,
            had_credit: 0,
            trust: TRUST,
        }
    }

    /// Whether it is time to ask.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// A wait began that is for credit, or for something else.
    pub(super) fn wait_begins(&mut self, for_credit: bool) {
        self.for_credit = if for_credit {
            Question::Due
        } else {
            Question::None
        };
    }

    /// The peer told how many receives it has: more than was known, or not.
    pub(super) fn credit_told(&mut self, more: bool) {
        if self.for_credit == Question::Open {
            self.for_credit = Question::None;
            self.had_credit = if more {
                self.had_credit.saturating_add(1)
            } else {
                0
            };
        }
    }

    /// Whether the peer has a receive whenever a message comes, as far as is known.
    pub(super) fn has_always_credit(&self) -> bool {
        self.had_credit >= self.trust
    }

    /// Nothing of the request that begins at `first` can be sent, though it was to ask for what came before: that is to be
    /// asked for at once.
    pub(super) fn left_undone(&mut self, first: Psn) {
        self.until = first;
        self.due = true;
    }

    /// The peer had none.
    pub(crate) fn had_no_receive(&mut self) {
        if self.has_always_credit() {
            self.trust = self.trust.saturating_mul(4).min(MOST_TRUST);
        }
        self.had_credit = 0;
    }
}

impl<E: Env> Qp<E> {
    /// Whether the last packet of a message asks. `room` is what is left for packets after it.
    pub(super) fn asks_at_end(&self, index: u32, entry: &SendSlot, room: u32) -> bool {
        let again = self.req.pos != self.req.edge;
        let awaited =
            (self.sig_all || entry.wqe.flags.signaled) && !self.goes_on(index, entry, room);
        let scarce = entry.wqe.op.takes_receive() && !self.req.has_credit(entry.ssn.add(SCARCE));
        // Work requests leave the queue when they are acknowledged.
        let filling = self.sq.used() > self.sq.capacity() / 2;
        awaited || scarce || filling || again || self.state == QpState::Sqd
    }

    /// Whether the next message leaves right after that of `entry` and is acknowledged like it, so that it may ask for both.
    /// Should it fail here, see [`Asking::left_undone`]; should it have to wait, see [`Self::ask_before`].
    fn goes_on(&self, index: u32, entry: &SendSlot, room: u32) -> bool {
        self.sq.get(index.wrapping_add(1)).is_some_and(|next| {
            let op = next.wqe.op;
            room > 0
                && next.progress == Progress::Posted
                && op != SendOp::Local
                && !op.needs_response()
                && !next.wqe.flags.fence
                && (!op.takes_receive() || self.req.has_credit(entry.ssn.next()))
        })
    }

    /// The packet that asks for what came before a burst that has to wait where it is, and for which time stands still
    /// meanwhile; [`None`] if nothing did.
    pub fn ask_before(&self, burst: &Burst, env: &mut E) -> Option<Burst> {
        let waits = burst.is_request() && self.ty == QpType::Rc && self.comp.una != burst.psn();
        waits.then(|| self.empty_duplicate(env))
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
        Some(self.empty_duplicate(env))
    }

    /// The packet that asks for credit, where one is waited for: once, and when all was acknowledged. Before that,
    /// acknowledgements that are under way bring it.
    pub(super) fn credit_question(&mut self, env: &mut E) -> Option<Burst> {
        let asks = self.req.asking.for_credit == Question::Due && self.comp.una == self.req.edge;
        asks.then(|| {
            self.req.asking.for_credit = Question::Open;
            self.empty_duplicate(env)
        })
    }

    /// What is answered with how far the peer has come and how many receives it has.
    fn empty_duplicate(&self, env: &mut E) -> Burst {
        env.count(Counter::TxAckProbes);
        let headers = Headers {
            bth: Bth {
                opcode: Opcode::RC_WRITE_ONLY,
                ack_req: true,
                ..self.bth(self.comp.una.prev())
            },
            // The key of an empty WRITE is not looked at (C9-88).
            ext: Ext::Rdma(Reth::default()),
            ..Headers::default()
        };
        self.single(headers, Owner::Nobody)
    }
}
