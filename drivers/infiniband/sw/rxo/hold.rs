// SPDX-License-Identifier: GPL-2.0

//! Which messages wait a moment for others.
//!
//! A process that streams messages and posts them one by one pays for each a visit to the queue pair,
//! a walk through the network stack and, if it wants a completion, an acknowledgement. So a message of
//! such a stream that nobody is known to wait for is left in the ring: the next visit, whatever it is
//! for, takes it along, small ones travel as one, and one ACK is enough for all. If no visit comes within
//! [`HOLD_NS`], the timer's does. A thread that goes on with another queue pair takes along what it left
//! behind in the one before ([`LeftBehind`]), and so does one that asks to be told of the next completion.
//!
//! Nobody waits for a message if its sender wants no completion, or has not even read those that are
//! there, and its receiver wants no event and hasn't sent anything itself since the stream began: who
//! answers is waited for. That may be wrong. If a stream broke off while messages waited, the next has
//! to go on for longer before it counts as one, so what it costs in the end is little.
//!
//! What is read here a process wrote and may change at will. It decides about nothing but when its
//! own messages leave.

use kernel::{
    current,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};
use rdma::send_flags;

use crate::{
    abi::send as at,
    cq::CompletionQueue,
    ring::Ring,
    tx::Convoy, //
};

/// So long a message waits at most, in nanoseconds; none does that comes so long after another.
pub(crate) const HOLD_NS: u64 = 1_000_000;
/// So many messages one after the other are a stream,
const STREAM: u32 = 16;
/// and so many after streams often broke off.
const LONG_STREAM: u32 = 1 << 14;
/// Doorbells in a row leave what was posted as long as that is less than so many packets: as many small
/// messages as travel together. With more of long ones, their data would leave the CPU's caches.
// CAST: it is small.
const MOST: u32 = Convoy::MOST as u32;
/// Bytes of a packet, as far as it matters here.
const PACKET: u32 = 4096;
/// By so great a part less is needed after they did: what messages gain that are held until then makes
/// up for a stream that broke off, after which four times as many are needed.
const RECOVERY: u32 = 8;
/// A process that has so many completions to read doesn't wait for the next: more than may be missing.
const UNREAD: u32 = MOST;

/// What becomes of a message that a doorbell was rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It leaves now.
    Leaves,
    /// It waits, and is the first to.
    WaitsFirst,
    /// It waits with others.
    Waits,
}

/// Which queue pair a thread left messages behind in, among those that share a completion queue:
/// who polls them together fills them in turn.
///
/// If several threads do so, each finds its own now and then; the timer is there for the rest.
pub(crate) struct LeftBehind(Atomic<u64>);

impl LeftBehind {
    pub(crate) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// The current thread rang the doorbell of queue pair `number`. Returns the other one that its
    /// messages still wait in.
    pub(crate) fn rung(&self, number: u32, fate: Fate) -> Option<u32> {
        let was = self.0.load(Relaxed);
        if fate == Fate::Waits || was == 0 && fate == Fate::Leaves {
            return None;
        }
        // CAST: thread IDs are positive.
        let thread = u64::from(current!().pid() as u32) << 32;
        let mine = was & !u64::from(u32::MAX) == thread;
        match fate {
            Fate::WaitsFirst => self.0.store(thread | u64::from(number), Relaxed),
            _ if mine => self.0.store(0, Relaxed),
            _ => (),
        }
        // CAST: its lower half.
        Some(was as u32).filter(|&other| mine && other != number)
    }

    /// The process wants to be told of the next completion. Returns the queue pair that messages may
    /// still wait in.
    pub(crate) fn awaited(&self) -> Option<u32> {
        if self.0.load(Relaxed) == 0 {
            return None;
        }
        // CAST: its lower half. 0 is no number of a queue pair.
        Some(self.0.xchg(0, Relaxed) as u32).filter(|&number| number != 0)
    }
}

/// What is known of the posts of a process to a send queue.
///
/// Doorbells of one queue pair may be rung by several threads at once; a count that is off by one
/// then does no harm.
pub(crate) struct Hold {
    ring: Ring,
    /// Each message has a completion.
    signal_all: bool,
    /// Packets of the messages that wait.
    waiting: Atomic<u32>,
    /// The producer's index at the last doorbell.
    index: Atomic<u32>,
    /// When the first of what waits is to leave at last.
    due: Atomic<u64>,
    /// When that was.
    rung_at: Atomic<u64>,
    /// Messages since the stream began.
    stream: Atomic<u32>,
    /// How many it takes.
    needed: Atomic<u32>,
}

impl Hold {
    pub(crate) fn new(ring: Ring, signal_all: bool) -> Self {
        Self {
            ring,
            signal_all,
            waiting: Atomic::new(0),
            index: Atomic::new(0),
            due: Atomic::new(0),
            rung_at: Atomic::new(0),
            stream: Atomic::new(0),
            needed: Atomic::new(STREAM),
        }
    }

    /// A doorbell was rung. If what was posted waits, it is counted among what does. `cq` is where the
    /// sends complete.
    pub(crate) fn rung(&self, now: u64, cq: &CompletionQueue) -> Fate {
        let newest = self.index.load(Relaxed);
        let producer = self.ring.producer();
        let since = now.wrapping_sub(self.rung_at.load(Relaxed));
        self.index.store(producer, Relaxed);
        self.rung_at.store(now, Relaxed);
        let (stream, needed) = (self.stream.load(Relaxed), self.needed.load(Relaxed));
        if stream < needed {
            self.stream.store(stream.wrapping_add(1), Relaxed);
            return Fate::Leaves;
        }
        // Several at once are together already, and one after a while is not like those before.
        if self.ring.next(newest) != producer || since > HOLD_NS {
            return Fate::Leaves;
        }
        let flags = self.ring.word(newest, at::FLAGS);
        let packets = self.ring.word(newest, at::LENGTH).div_ceil(PACKET).max(1);
        let completes = self.signal_all || flags & send_flags::SIGNALED != 0;
        if flags & send_flags::SOLICITED != 0
            || packets >= MOST
            || completes && !cq.is_left_unread(UNREAD)
        {
            return Fate::Leaves;
        }
        if !self.is_waiting() {
            self.due.store(now.saturating_add(HOLD_NS), Relaxed);
        }
        // Visible to who looks after it has set the timer, see `is_waiting`.
        match self.waiting.fetch_add(packets, Full) {
            0 => Fate::WaitsFirst,
            n if n.saturating_add(packets) < MOST => Fate::Waits,
            _ => {
                let less = needed.saturating_sub(needed / RECOVERY).max(STREAM);
                self.needed.store(less, Relaxed);
                Fate::Leaves
            }
        }
    }

    /// What waited, and what was posted last, has been sent.
    pub(crate) fn left(&self) {
        // However long that took, the process could not go on meanwhile.
        if self.stream.load(Relaxed) >= self.needed.load(Relaxed) {
            self.rung_at.store(softirq::now_ns(), Relaxed);
        }
    }

    /// A timer of the queue pair fired, perhaps because the time is up for what waits.
    pub(crate) fn expired(&self, now: u64) {
        if !self.is_waiting() || now < self.due.load(Relaxed) {
            return;
        }
        let more = self.needed.load(Relaxed).saturating_mul(4);
        self.needed.store(more.min(LONG_STREAM), Relaxed);
        self.ends();
    }

    /// The stream ends, if there was one: the peer sent something, or all is different now.
    pub(crate) fn ends(&self) {
        self.stream.store(0, Relaxed);
    }

    /// Tells whether there is something that waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Relaxed) != 0
    }

    /// Tells whether there was something that waits, which is going to be taken now.
    pub(crate) fn take(&self) -> bool {
        self.is_waiting() && self.waiting.xchg(0, Full) != 0
    }
}
