// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of work requests between posting and completion.

use core::ops::DerefMut;

use crate::psn::{
    Psn,
    Ssn, //
};
use crate::verbs::{
    SendWqe,
    WcStatus, //
};

/// How far a work request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nobody's.
    #[default]
    Free,
    /// Posted, and nothing of it was sent.
    Posted,
    /// It has its PSNs, and some of it may have been sent.
    Begun,
    /// Carried out; completes when its turn comes.
    Done,
    /// Failed; completes when its turn comes.
    Failed(WcStatus),
}

/// A place in the send queue: a work request and what the transport knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSlot {
    pub(crate) wqe: SendWqe,
    pub(crate) progress: Progress,
    /// The PSN of its first packet, once begun.
    pub(crate) first: Psn,
    /// The PSN of its last packet, or of the last packet of its response.
    pub(crate) last: Psn,
    /// Its place among the messages sent.
    pub(crate) ssn: Ssn,
    /// The running number of its first request packet.
    pub(crate) number: u32,
}

impl SendSlot {
    /// Whether `psn` is one of those of this message.
    pub(crate) fn contains(&self, psn: Psn) -> bool {
        psn.distance_from(self.first) <= self.last.distance_from(self.first)
    }

    /// The running number of the request packet that `psn` belongs to. All of a response belongs to its one request.
    pub(crate) fn number_at(&self, psn: Psn) -> u32 {
        let into = if self.wqe.op.needs_response() {
            0
        } else {
            psn.distance_from(self.first)
        };
        self.number.wrapping_add(into)
    }
}

/// The ring. The indices run freely; a slot is found by their low bits.
///
/// # Invariants
///
/// `tail`, `cur`, `head` are in this order, and at most a ring's length apart.
pub(crate) struct SendQueue<S> {
    slots: S,
    len: u32,
    /// The next index to be posted.
    pub(crate) head: u32,
    /// The next index that the requester looks at.
    pub(crate) cur: u32,
    /// The oldest index that has not completed.
    pub(crate) tail: u32,
    /// How often the queue was reset: late reports of an earlier life are told by it.
    pub(crate) life: u32,
}

/// The length of a ring of so many slots: a power of two.
fn ring_len(slots: usize) -> u32 {
    // CAST: rings are shorter than 2^32.
    match slots as u32 {
        0 => 0,
        n => 1 << n.ilog2(),
    }
}

impl<S: DerefMut<Target = [SendSlot]>> SendQueue<S> {
    pub(crate) fn new(slots: S) -> Self {
        Self {
            len: ring_len(slots.len()),
            slots,
            head: 0,
            cur: 0,
            tail: 0,
            life: 0,
        }
    }

    /// Takes slots, if there are none yet: nothing can have been posted then.
    pub(crate) fn furnish(&mut self, slots: &mut S) {
        if self.len == 0 {
            core::mem::swap(&mut self.slots, slots);
            self.len = ring_len(self.slots.len());
        }
    }

    /// The slot of an index.
    pub(crate) fn slot_of(&self, index: u32) -> u32 {
        index & self.len.wrapping_sub(1)
    }

    /// How many can be.
    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// How many are posted and not completed.
    pub(crate) fn used(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used() >= self.len
    }

    /// Whether `index` is posted and not completed.
    pub(crate) fn is_live(&self, index: u32) -> bool {
        index.wrapping_sub(self.tail) < self.used()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&SendSlot> {
        self.slots.get(self.slot_of(index) as usize)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut SendSlot> {
        let slot = self.slot_of(index) as usize;
        self.slots.get_mut(slot)
    }

    /// The oldest that has not completed, with its slot.
    pub(crate) fn oldest(&self) -> Option<(u32, &SendSlot)> {
        if self.used() == 0 {
            return None;
        }
        self.get(self.tail).map(|s| (self.slot_of(self.tail), s))
    }

    /// Appends one and returns its slot.
    pub(crate) fn push(&mut self, wqe: SendWqe) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let index = self.head;
        *self.get_mut(index)? = SendSlot {
            wqe,
            progress: Progress::Posted,
            ..SendSlot::default()
        };
        self.head = index.wrapping_add(1);
        Some(self.slot_of(index))
    }

    /// Takes the oldest out.
    pub(crate) fn pop(&mut self) -> Option<(u32, SendSlot)> {
        let (slot, entry) = self.oldest().map(|(n, s)| (n, *s))?;
        if let Some(s) = self.get_mut(self.tail) {
            s.progress = Progress::Free;
        }
        if self.cur == self.tail {
            self.cur = self.cur.wrapping_add(1);
        }
        self.tail = self.tail.wrapping_add(1);
        Some((slot, entry))
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        for s in self.slots.iter_mut() {
            *s = SendSlot::default();
        }
        self.head = 0;
        self.cur = 0;
        self.tail = 0;
        self.life = self.life.wrapping_add(1);
    }

    /// What lies at a slot, posted or not.
    pub(crate) fn at_slot(&self, slot: u32) -> Option<&SendSlot> {
        self.slots.get(slot as usize)
    }
}
