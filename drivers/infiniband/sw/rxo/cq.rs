// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    }, //
};
use rdma::{
    CqEvent,
    CqNotify,
    CqTarget,
    Wc,
    WcSlots, //
};

use crate::{
    detail::Listener,
    hold::LeftBehind,
    ring::Ring, //
};

/// Where completions go.
enum Entries {
    /// A ring that a process polls.
    User {
        ring: Ring,
        /// The kernel's own index.
        producer: u32,
    },
    /// A queue that a kernel consumer polls.
    Kernel {
        entries: KVVec<Option<Wc>>,
        head: usize,
        used: usize,
    },
}

/// What the consumer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

impl Armed {
    fn name(self) -> &'static str {
        match self {
            Armed::No => "no",
            Armed::Solicited => "solicited",
            Armed::Any => "any",
        }
    }
}

struct Inner {
    entries: Entries,
    armed: Armed,
    overrun: bool,
}

/// So many completions are moved to another ring at a time: interrupts are disabled meanwhile.
const MOVED: u32 = 64;

/// A completion queue.
///
/// Kernel consumers poll and arm it in any context, hard interrupts included. So its lock is never held
/// with interrupts enabled, and inside of it none is taken.
#[pin_data]
pub(crate) struct CompletionQueue {
    target: CqTarget,
    /// Of its send queues.
    pub(crate) left_behind: LeftBehind,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

/// What adding a completion calls for, once no lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    notify: bool,
    /// The queue just went into error.
    overrun: bool,
    /// Completions that found no room.
    lost: u32,
}

impl Calls {
    /// Both.
    pub(crate) fn merge(&mut self, other: Self) {
        self.notify |= other.notify;
        self.overrun |= other.overrun;
        self.lost = self.lost.saturating_add(other.lost);
    }

    /// Returns how many completions found no room: with any, the queue pair can't go on.
    pub(crate) fn lost(self) -> u32 {
        self.lost
    }
}

impl CompletionQueue {
    /// Makes a queue on a process's ring.
    pub(crate) fn user(target: CqTarget, ring: Ring) -> Result<Arc<Self>> {
        Self::new(target, Entries::User { ring, producer: 0 })
    }

    /// Makes a queue of `cqe` entries for a kernel consumer.
    pub(crate) fn kernel(target: CqTarget, cqe: u32) -> Result<Arc<Self>> {
        let entries = KVVec::from_elem(None, cqe as usize, GFP_KERNEL)?;
        Self::new(
            target,
            Entries::Kernel {
                entries,
                head: 0,
                used: 0,
            },
        )
    }

    fn new(target: CqTarget, entries: Entries) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                target,
                left_behind: LeftBehind::new(),
                inner <- new_spinlock_irq!(Inner {
                    entries,
                    armed: Armed::No,
                    overrun: false,
                }, "CompletionQueue::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a completion. Any context; a queue pair's lock may be held.
    ///
    /// One that finds no room is lost, and the queue is in error from then on: its
    /// consumer can no longer know what it missed.
    pub(crate) fn push(&self, wc: &Wc, solicited: bool) -> Calls {
        let mut inner = self.inner.lock();
        if inner.overrun || !inner.entries.push(wc) {
            let first = !inner.overrun;
            inner.overrun = true;
            return Calls {
                notify: false,
                overrun: first,
                lost: 1,
            };
        }
        let notify = match inner.armed {
            Armed::No => false,
            Armed::Solicited => solicited || wc.status != 0,
            Armed::Any => true,
        };
        if notify {
            inner.armed = Armed::No;
        }
        Calls {
            notify,
            ..Calls::default()
        }
    }

    /// Makes the calls. No lock may be held.
    pub(crate) fn call(&self, calls: Calls) {
        if calls.overrun {
            self.target.event(CqEvent::Error);
        }
        if calls.notify {
            self.target.notify();
        }
    }

    /// Moves to another ring, of at least `cqe` entries, with what was not polled yet, in order.
    ///
    /// # Errors
    ///
    /// `EINVAL` if more than `cqe` completions wait, or the queue is not a process's; nothing
    /// has changed.
    pub(crate) fn resize(&self, ring: Ring, cqe: u32) -> Result {
        let mut first = None;
        let mut moved: u32 = 0;
        loop {
            let mut inner = self.inner.lock();
            let Entries::User {
                ring: from,
                producer,
            } = &inner.entries
            else {
                return Err(EINVAL);
            };
            // The process polls nothing meanwhile.
            let first = *first.get_or_insert_with(|| from.consumer());
            let count = from.used(first, *producer);
            if count > cqe.min(ring.capacity()) {
                return Err(EINVAL);
            }
            let end = count.min(moved.saturating_add(MOVED));
            for i in moved..end {
                let mut entry = [0; Wc::USER_LEN];
                from.read(first.wrapping_add(i), &mut entry)
                    .map_err(|_| EINVAL)?;
                ring.write(i, &entry).map_err(|_| EINVAL)?;
            }
            moved = end;
            if moved < count {
                continue;
            }
            ring.show_producer(count);
            let new = Entries::User {
                ring,
                producer: count,
            };
            let old = core::mem::replace(&mut inner.entries, new);
            // What is replaced is freed outside of the lock.
            drop(inner);
            drop(old);
            return Ok(());
        }
    }

    /// Takes completions for a kernel consumer.
    pub(crate) fn poll(&self, slots: &mut WcSlots<'_>) {
        let mut inner = self.inner.lock();
        let Entries::Kernel {
            entries,
            head,
            used,
        } = &mut inner.entries
        else {
            return;
        };
        while *used > 0 && !slots.is_full() {
            if let Some(wc) = entries.get_mut(*head).and_then(Option::take) {
                slots.push(&wc);
            }
            *head = (*head + 1) % entries.len().max(1);
            *used -= 1;
        }
    }

    /// Tells what there is to know.
    pub(crate) fn tell(&self, to: &mut impl Listener) {
        let (waiting, armed, overrun) = {
            let inner = self.inner.lock();
            (inner.entries.count(), inner.armed, inner.overrun)
        };
        to.number("waiting", u64::from(waiting));
        to.word("armed", armed.name());
        to.number("overrun", u64::from(overrun));
    }

    /// Tells whether its consumer has so many completions to read before the next one, and didn't ask to
    /// be told of that.
    pub(crate) fn is_left_unread(&self, most: u32) -> bool {
        let inner = self.inner.lock();
        inner.armed == Armed::No && inner.entries.count() >= most
    }

    /// Asks for a notification and tells whether completions are there already.
    pub(crate) fn arm(&self, what: CqNotify) -> bool {
        let mut inner = self.inner.lock();
        inner.armed = if what.solicited_only && inner.armed != Armed::Any {
            Armed::Solicited
        } else {
            Armed::Any
        };
        inner.entries.count() > 0
    }
}

impl Entries {
    fn push(&mut self, wc: &Wc) -> bool {
        match self {
            Entries::User { ring, producer } => {
                let consumer = ring.consumer();
                if ring.used(consumer, *producer) >= ring.capacity()
                    || ring.write(*producer, &wc.to_user()).is_err()
                {
                    return false;
                }
                *producer = ring.next(*producer);
                ring.show_producer(*producer);
                true
            }
            Entries::Kernel {
                entries,
                head,
                used,
            } => {
                let len = entries.len();
                if *used >= len {
                    return false;
                }
                if let Some(slot) = entries.get_mut((*head + *used) % len) {
                    *slot = Some(*wc);
                }
                *used += 1;
                true
            }
        }
    }

    /// How many completions were not polled yet.
    fn count(&self) -> u32 {
        match self {
            Entries::User { ring, producer } => ring.used(ring.consumer(), *producer),
            // CAST: A queue has fewer than 2^32 entries.
            Entries::Kernel { used, .. } => *used as u32,
        }
    }
}
