// SPDX-License-Identifier: GPL-2.0

//! Requests with a response of their own (READs, atomics, ATOMIC WRITEs, FLUSHes): carried out once, remembered, answered
//! again.

use super::answer::Reply;
use super::message::Inbound;
use super::refusal::Refusal;
use crate::env::{
    AtomicOp,
    Counter,
    Env,
    RemoteAccess, //
};
use crate::opcode::{
    Info,
    Op, //
};
use crate::psn::{
    Msn,
    Psn, //
};
use crate::qp::Qp;
use crate::verbs::{
    Access,
    MAX_MSG_LEN, //
};
use crate::wire::{
    Feth,
    Parsed,
    Reth, //
};

/// What a resource remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// Nothing.
    #[default]
    Nothing,
    /// A READ.
    Read(Reth),
    /// An atomic, by the value that its target had.
    Atomic {
        /// That value.
        original: u64,
    },
    /// An ATOMIC WRITE or a FLUSH: that it was carried out.
    Done,
}

/// The part of a response that is being sent: packets of the whole response, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The first that was asked for.
    pub(super) from: u32,
    /// The next to send.
    pub(super) at: u32,
    /// Bytes of the whole response up to the end of what was asked for.
    pub(super) end: u32,
}

/// What is remembered of a READ or an atomic of the peer, so that it can be answered, also again.
#[derive(Debug)]
pub struct Resource<R> {
    pub(super) memory: Memory,
    /// What the READ reads from; [`None`] if it is empty.
    pub(crate) region: Option<R>,
    /// The serial number of the first PSN of the response.
    pub(super) serial: u64,
    /// PSNs of the response.
    pub(super) packets: u32,
    /// The message count to answer with.
    pub(super) msn: Msn,
    /// How often the resource was used.
    pub(super) usage: u32,
    /// What is still to be sent.
    pub(super) answer: Option<Answer>,
    /// The answer under way is the first.
    pub(super) fresh: bool,
}

impl<R> Default for Resource<R> {
    fn default() -> Self {
        Self {
            memory: Memory::Nothing,
            region: None,
            serial: 0,
            packets: 0,
            msn: Msn::new(0),
            usage: 0,
            answer: None,
            fresh: false,
        }
    }
}

impl<R> Resource<R> {
    /// Whether the PSN of this serial number is one of the response.
    pub(super) fn holds(&self, serial: u64) -> bool {
        let past = serial.checked_sub(self.serial);
        self.memory != Memory::Nothing && past.is_some_and(|n| n < u64::from(self.packets))
    }

    /// The PSN of packet `at` of the response.
    pub(super) fn psn(&self, at: u32) -> Psn {
        // CAST: the low bits are the PSN.
        Psn::new(self.serial as u32).add(at)
    }
}

impl<E: Env> Qp<E> {
    /// Answers a READ again, or a part of it.
    pub(super) fn replay_read(&mut self, serial: u64, pkt: &Parsed, env: &mut E) {
        let asked = pkt.headers.reth().unwrap_or_default();
        let mtu = self.set.mtu.bytes();
        let found = self.resources.iter_mut().find_map(|r| {
            let Memory::Read(reth) = r.memory else {
                return None;
            };
            if !r.holds(serial) {
                return None;
            }
            // CAST: less than the number of packets.
            let from = serial.wrapping_sub(r.serial) as u32;
            let offset = from.saturating_mul(mtu);
            let same =
                reth.rkey == asked.rkey && reth.va.wrapping_add(u64::from(offset)) == asked.va;
            let inside = reth
                .len
                .checked_sub(offset)
                .is_some_and(|left| asked.len <= left);
            // C9-88: an empty one has neither key nor address.
            if (reth.len == 0 && asked.len == 0) || (same && inside && asked.len > 0) {
                let end = offset.saturating_add(asked.len);
                Some((
                    r,
                    Answer {
                        from,
                        at: from,
                        end,
                    },
                ))
            } else {
                None
            }
        });
        let Some((r, answer)) = found else {
            return self.drop_packet(Counter::DropUnknownDuplicate, pkt, env);
        };
        if r.answer.replace(answer).is_none() {
            self.resp.answers = self.resp.answers.saturating_add(1);
        }
        env.count(Counter::RxReplays);
    }

    /// Answers an atomic again, with what was found the first time.
    pub(super) fn replay_atomic(&mut self, serial: u64, pkt: &Parsed, env: &mut E) {
        let found = self
            .resources
            .iter_mut()
            .find(|r| matches!(r.memory, Memory::Atomic { .. }) && r.holds(serial));
        let Some(r) = found else {
            return self.drop_packet(Counter::DropUnknownDuplicate, pkt, env);
        };
        let answer = Answer {
            from: 0,
            at: 0,
            end: 0,
        };
        if r.answer.replace(answer).is_none() {
            self.resp.answers = self.resp.answers.saturating_add(1);
        }
        env.count(Counter::RxReplays);
    }

    /// Acknowledges an ATOMIC WRITE or a FLUSH again (oA19-14, oA19-15).
    ///
    /// What comes before the expected PSN was carried out, so there is an answer although the resource may be in other use by
    /// now: a peer need not count its FLUSHes (rxe doesn't). Of several of those, the oldest is answered; the peer asks again
    /// for what it misses then.
    pub(super) fn replay_done(&mut self, serial: u64, env: &mut E) {
        let found = self
            .resources
            .iter_mut()
            .find(|r| r.memory == Memory::Done && r.holds(serial));
        env.count(Counter::RxReplays);
        match found {
            Some(r) => {
                let answer = Answer {
                    from: 0,
                    at: 0,
                    end: 0,
                };
                if r.answer.replace(answer).is_none() {
                    self.resp.answers = self.resp.answers.saturating_add(1);
                }
            }
            None => {
                let oldest = self.resp.done_again.map_or(serial, |s| s.min(serial));
                self.resp.done_again = Some(oldest);
            }
        }
    }

    /// A new ATOMIC WRITE.
    pub(super) fn atomic_write(&mut self, pkt: &Parsed, env: &mut E) -> Result<(), Refusal> {
        let reth = pkt.headers.reth().ok_or(Refusal::Invalid)?;
        // oA19-28.
        let fits = reth.len == 8 && pkt.payload_len == 8 && pkt.headers.bth.pad == 0;
        if !fits || reth.va & 7 != 0 || !self.set.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Invalid);
        }
        let slot = self.free_resource()?;
        let region = env.open_remote(reth.rkey, reth.va, 8, RemoteAccess::Write)?;
        env.atomic_write(&region)?;
        self.remember(slot, Memory::Done, None, 1, 0);
        Ok(())
    }

    /// A new FLUSH.
    pub(super) fn flush(&mut self, pkt: &Parsed, env: &mut E) -> Result<(), Refusal> {
        let reth = pkt.headers.reth().ok_or(Refusal::Invalid)?;
        let kind = pkt
            .headers
            .feth()
            .and_then(Feth::kind)
            .ok_or(Refusal::Invalid)?;
        // oA19-2: there is no payload.
        if pkt.payload_len != 0 || !self.set.access.contains(kind.rights()) {
            return Err(Refusal::Invalid);
        }
        let slot = self.free_resource()?;
        let range = (!kind.whole).then_some((reth.va, reth.len));
        if kind.whole || reth.len > 0 {
            env.flush(reth.rkey, range, kind)?;
        }
        self.remember(slot, Memory::Done, None, 1, 0);
        Ok(())
    }

    /// A new READ.
    pub(super) fn read(&mut self, pkt: &Parsed, env: &mut E) -> Result<(), Refusal> {
        let reth = pkt.headers.reth().ok_or(Refusal::Invalid)?;
        if reth.len > MAX_MSG_LEN || !self.set.access.contains(Access::REMOTE_READ) {
            return Err(Refusal::Invalid);
        }
        let slot = self.free_resource()?;
        let region = if reth.len > 0 {
            Some(env.open_remote(reth.rkey, reth.va, reth.len, RemoteAccess::Read)?)
        } else {
            None
        };
        let packets = self.set.mtu.packets(reth.len);
        self.remember(slot, Memory::Read(reth), region, packets, reth.len);
        Ok(())
    }

    /// A new atomic.
    pub(super) fn atomic(&mut self, pkt: &Parsed, info: &Info, env: &mut E) -> Result<(), Refusal> {
        let h = pkt.headers.atomic().ok_or(Refusal::Invalid)?;
        if h.va & 7 != 0 || !self.set.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Refusal::Invalid);
        }
        let slot = self.free_resource()?;
        let region = env.open_remote(h.rkey, h.va, 8, RemoteAccess::Atomic)?;
        let op = match info.op {
            Op::CmpSwap => AtomicOp::CmpSwap {
                compare: h.compare,
                swap: h.swap_add,
            },
            _ => AtomicOp::FetchAdd { add: h.swap_add },
        };
        let original = env.atomic(&region, op)?;
        self.remember(slot, Memory::Atomic { original }, None, 1, 0);
        Ok(())
    }

    /// Whether the next resource still has its first answer to send.
    pub(super) fn is_resource_busy(&self) -> bool {
        self.resources
            .get(self.resp.next_resource as usize)
            .is_none_or(|r| r.fresh && r.answer.is_some())
    }

    /// The resource for a new READ or atomic. The peer may have no more of them outstanding than it was told, and none
    /// within another message.
    pub(super) fn free_resource(&self) -> Result<u32, Refusal> {
        let slot = self.resp.next_resource;
        if self.is_resource_busy()
            || slot >= u32::from(self.set.max_dest_rd_atomic)
            || !matches!(self.resp.inbound, Inbound::Idle)
        {
            return Err(Refusal::Invalid);
        }
        Ok(slot)
    }

    /// Remembers a READ or an atomic, and steps over its PSNs.
    pub(super) fn remember(
        &mut self,
        slot: u32,
        memory: Memory,
        region: Option<E::Region>,
        packets: u32,
        end: u32,
    ) {
        self.resp.msn = self.resp.msn.next();
        self.resp.uses_resources = true;
        if let Some(r) = self.resources.get_mut(slot as usize) {
            if r.answer.is_none() {
                self.resp.answers = self.resp.answers.saturating_add(1);
            }
            *r = Resource {
                memory,
                region,
                serial: self.resp.serial,
                packets,
                msn: self.resp.msn,
                usage: r.usage.wrapping_add(1),
                answer: Some(Answer {
                    from: 0,
                    at: 0,
                    end,
                }),
                fresh: true,
            };
        }
        self.resp.advance(packets);
        let next = slot.saturating_add(1);
        self.resp.next_resource = if next < u32::from(self.set.max_dest_rd_atomic) {
            next
        } else {
            0
        };
        // The response says what the ACK would have said.
        if self.resp.reply == Some(Reply::Ack) {
            self.resp.reply = None;
        }
    }

    /// Forgets the READs and atomics of the peer.
    pub(crate) fn forget_resources(&mut self) {
        for r in self.resources.iter_mut() {
            *r = Resource {
                usage: r.usage.wrapping_add(1),
                ..Resource::default()
            };
        }
        self.resp.answers = 0;
        self.resp.done_again = None;
        self.resp.next_resource = 0;
    }

    /// The answers that wait in resources.
    pub(crate) fn pending_answers(&self) -> u32 {
        self.resp
            .answers
            .saturating_add(u32::from(self.resp.done_again.is_some()))
    }
}
