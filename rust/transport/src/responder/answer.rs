// SPDX-License-Identifier: GPL-2.0

//! Answers, in the order of their PSNs.

use super::message::Inbound;
use super::refusal::Refusal;
use super::resource::{
    Answer,
    Memory,
    Resource, //
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
use crate::credit;
use crate::env::{
    Counter,
    Env,
    KeyFault,
    NakKind,
    Trace, //
};
use crate::opcode::Opcode;
use crate::psn::{
    Msn,
    Psn, //
};
use crate::qp::Qp;
use crate::time::Instant;
use crate::verbs::WcStatus;
use crate::wire::{
    Aeth,
    AtomicAckEth,
    Bth,
    Ext,
    Headers,
    NakCode,
    Syndrome,
    Tail, //
};

/// What is to be sent after all READ responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// An ACK for all SENDs and WRITEs carried out.
    Ack,
    /// A NAK for the packet that is expected, which came too early or is missing.
    Nak {
        /// RNR or PSN sequence error.
        syndrome: Syndrome,
    },
    /// The last packet of this queue pair, which is in ERR.
    Fatal {
        /// What could not be carried out.
        psn: Psn,
        /// Why.
        code: NakCode,
    },
}

impl<E: Env> Qp<E> {
    /// The AETH of an ACK that counts `msn` messages.
    pub(super) fn ack(&mut self, now: Instant, msn: Msn, env: &E) -> Aeth {
        let credit = if self.has_srq {
            credit::UNLIMITED
        } else {
            // The receive of the message under way counts, as that message does not count yet.
            let held = u32::from(matches!(self.resp.inbound, Inbound::Send { .. }));
            credit::encode(env.posted_recvs().map(|n| n.saturating_add(held)))
        };
        self.note_credits(now, credit);
        Aeth {
            syndrome: Syndrome::Ack { credit },
            msn,
        }
    }

    /// The next answers.
    pub(crate) fn poll_answers(&mut self, now: Instant, budget: u32, env: &mut E) -> Option<Burst> {
        if !(self.state.permits().receive || self.resp.is_closing()) {
            return None;
        }
        self.resp.unanswered = 0;
        self.look_for_receives(env);
        if let Some(serial) = self.resp.done_again.take() {
            env.count(Counter::TxReadResponses);
            // CAST: the low bits are the PSN.
            let bth = self.bth(Psn::new(serial as u32));
            let aeth = self.ack(now, self.resp.msn, env);
            return Some(self.done(bth, aeth));
        }
        if self.resp.answers > 0 {
            if let Some(b) = self.poll_resources(now, budget, env) {
                return Some(b);
            }
        }
        let reply = self.resp.reply.take()?;
        let (psn, aeth) = match reply {
            Reply::Ack => {
                env.count(Counter::TxAcks);
                (self.resp.acked_by_ack, self.ack(now, self.resp.msn, env))
            }
            Reply::Nak { syndrome } => {
                let (counter, kind) = match syndrome {
                    Syndrome::Rnr { timer } => (Counter::TxRnrNaks, NakKind::Rnr(timer)),
                    _ => (Counter::TxSeqNaks, NakKind::Sequence),
                };
                self.note_nak(counter, kind, self.resp.expected, env);
                let aeth = Aeth {
                    syndrome,
                    msn: self.resp.msn,
                };
                (self.resp.expected, aeth)
            }
            Reply::Fatal { psn, code } => {
                let kind = match code {
                    NakCode::RemoteAccess => NakKind::RemoteAccess,
                    NakCode::RemoteOperational => NakKind::RemoteOperational,
                    _ => NakKind::InvalidRequest,
                };
                self.note_nak(Counter::TxFatalNaks, kind, psn, env);
                self.forget_resources();
                let aeth = Aeth {
                    syndrome: Syndrome::Nak(code),
                    msn: self.resp.msn,
                };
                (psn, aeth)
            }
        };
        let mut h = Headers {
            bth: self.bth(psn),
            ext: Ext::Ack(aeth),
            ..Headers::default()
        };
        h.bth.opcode = Opcode::RC_ACKNOWLEDGE;
        Some(self.single(h, Owner::Nobody))
    }

    pub(super) fn note_nak(&self, counter: Counter, kind: NakKind, psn: Psn, env: &mut E) {
        env.count(counter);
        env.trace(Trace::NakSent { kind, psn });
    }

    /// Whether what [`Qp::poll_transmit`] gives next is the response to a READ, and the only packet of it.
    pub fn has_small_answer(&self) -> bool {
        if self.resp.answers == 0 || self.resp.done_again.is_some() {
            return false;
        }
        self.state.permits().receive
            && self
                .oldest_answer()
                .is_some_and(|(_, r)| matches!(r.memory, Memory::Read(_)) && r.packets == 1)
    }

    /// Takes back the responses to READs, each of them small, that were polled with the PSNs from `first` to `last`: none of
    /// them left after all, and they are to be made anew.
    ///
    /// Nothing may have come in meanwhile.
    pub fn retract_answers(&mut self, first: Psn, last: Psn) {
        let back = u64::from(self.resp.expected.distance_from(first));
        let begin = self.resp.serial.wrapping_sub(back);
        let end = begin.wrapping_add(u64::from(last.distance_from(first)));
        for r in self.resources.iter_mut() {
            let Memory::Read(reth) = r.memory else {
                continue;
            };
            if r.packets == 1 && r.answer.is_none() && (begin..=end).contains(&r.serial) {
                r.answer = Some(Answer {
                    from: 0,
                    at: 0,
                    end: reth.len,
                });
                self.resp.answers = self.resp.answers.saturating_add(1);
            }
        }
    }

    /// The oldest answer that waits in a resource.
    fn oldest_answer(&self) -> Option<(u32, &Resource<E::Region>)> {
        (0..u32::MAX)
            .zip(self.resources.iter())
            .filter(|(_, r)| r.answer.is_some())
            .min_by_key(|(_, r)| r.serial)
    }

    /// The answer to an ATOMIC WRITE or a FLUSH: a READ response without data (A19).
    fn done(&self, bth: Bth, aeth: Aeth) -> Burst {
        let h = Headers {
            bth: Bth {
                opcode: Opcode::RC_READ_RESPONSE_ONLY,
                ..bth
            },
            ext: Ext::Ack(aeth),
            ..Headers::default()
        };
        self.single(h, Owner::Nobody)
    }

    /// Packets of the oldest answer that waits in a resource.
    pub(super) fn poll_resources(
        &mut self,
        now: Instant,
        budget: u32,
        env: &mut E,
    ) -> Option<Burst> {
        let (slot, r) = self.oldest_answer()?;
        let (answer, memory, msn) = (r.answer?, r.memory, r.msn);
        let aeth = self.ack(now, msn, env);
        let r = self.resources.get(slot as usize)?;
        let mtu = self.set.mtu.bytes();
        let bth = self.bth(r.psn(answer.at));
        let owner = Owner::Response {
            resource: slot,
            usage: r.usage,
        };

        let offset = answer.at.saturating_mul(mtu);
        let left = match memory {
            Memory::Read(_) => self.set.mtu.packets(answer.end.saturating_sub(offset)),
            _ => 1,
        };
        let count = left.min(budget);
        let burst = match memory {
            Memory::Atomic { original } => {
                let mut h = Headers {
                    bth,
                    ext: Ext::AtomicAck(aeth, AtomicAckEth(original)),
                    ..Headers::default()
                };
                h.bth.opcode = Opcode::RC_ATOMIC_ACKNOWLEDGE;
                env.count(Counter::TxAtomicAcks);
                self.single(h, Owner::Nobody)
            }
            Memory::Done => {
                env.count(Counter::TxReadResponses);
                self.done(bth, aeth)
            }
            _ => {
                env.count_n(Counter::TxReadResponses, count);
                Burst {
                    source: match r.region {
                        Some(_) => Source::Read { resource: slot },
                        None => Source::None,
                    },
                    offset,
                    len: answer
                        .end
                        .saturating_sub(offset)
                        .min(count.saturating_mul(mtu)),
                    count,
                    mtu,
                    plan: Plan::Run {
                        family: Family::ReadResponse,
                        tail: Tail::None,
                        at: answer.at.saturating_sub(answer.from),
                        total: answer.at.saturating_sub(answer.from).saturating_add(left),
                        bth,
                        lead: Lead::Ack(aeth),
                        ack_req: AckReq::Never,
                    },
                    owner,
                }
            }
        };
        if let Some(r) = self.resources.get_mut(slot as usize) {
            if count >= left {
                r.answer = None;
                r.fresh = false;
                self.resp.answers = self.resp.answers.saturating_sub(1);
            } else {
                r.answer = Some(Answer {
                    at: answer.at.saturating_add(count),
                    ..answer
                });
            }
        }
        Some(burst)
    }

    /// A READ response could not be made: a NAK takes its place.
    pub(crate) fn answer_failed(
        &mut self,
        resource: u32,
        usage: u32,
        psn: Psn,
        status: WcStatus,
        env: &mut E,
    ) {
        let current = self
            .resources
            .get(resource as usize)
            .is_some_and(|r| r.usage == usage);
        if !current || !(self.state.permits().receive || self.resp.is_closing()) {
            return;
        }
        let refusal = match status {
            WcStatus::LocProtErr | WcStatus::LocAccessErr | WcStatus::RemAccessErr => {
                Refusal::Key(KeyFault::Access)
            }
            _ => Refusal::Key(KeyFault::Operational),
        };
        for r in self.resources.iter_mut() {
            r.answer = None;
        }
        self.resp.answers = 0;
        self.refuse(psn, refusal, env);
    }
}
