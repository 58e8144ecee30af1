// SPDX-License-Identifier: GPL-2.0

//! What drivers whose data path runs in softirq need of the kernel.
//!
//! The context of each operation is given in three words:
//!
//! - *process*: the caller may sleep;
//! - *softirq*: bottom halves are disabled, by the caller or because a softirq runs;
//! - *any*: process, softirq, and either of them with interrupts disabled. It never includes hard
//!   interrupts and NMIs.
//!
//! | type | use |
//! |---|---|
//! | [`BhSpinLock`] | data shared between process and softirq context |
//! | [`Gate`] | to wait until nobody is inside any more, and let nobody in |
//! | [`RunDown`] | a value that is taken away from under its users |
//! | [`IdTable`] | numbers to counted objects, looked up without a lock |
//! | [`Reclaimer`] | to give up what was removed from tables, later |
//! | [`DeadlineTimer`] | a deadline that moves with every packet |
//! | [`OwnedQueue`] | work that ends before its queue |
//! | [`Counters`] | statistics |

mod bh_lock;
mod counters;
mod deadline;
mod gate;
mod id_table;
mod one_cpu;
mod queue;
mod reclaim;
mod run_down;

/// The prefix of messages.
const __LOG_PREFIX: &[u8] = b"softirq\0";

/// The bindings of the kernel crate and those that it lacks.
mod bindings {
    pub(crate) use kernel::bindings::*;
    pub(crate) use rdma_bindings::*;
}

pub use bh_lock::{
    lock_both,
    BhSpinLock,
    BhSpinLockBackend,
    BhSpinLockGuard,
    BothGuards, //
};
pub use counters::Counters;
pub use deadline::{
    DeadlineTimer,
    HasDeadline, //
};
pub use gate::{
    ArcPass,
    Gate,
    Gated,
    Pass, //
};
pub use id_table::{
    IdTable,
    Reservation, //
};
pub use one_cpu::OneCpu;
pub use queue::{
    OwnedQueue,
    QueueKind, //
};
pub use reclaim::{
    in_background,
    Reclaimer, //
};
pub use run_down::{
    Inside,
    RunDown, //
};

/// Returns the time of the monotonic clock in nanoseconds.
///
/// Context: any.
#[inline]
pub fn now_ns() -> u64 {
    // SAFETY: It is always safe to read the clock.
    let now = unsafe { bindings::ktime_get() };

    // CAST: The monotonic clock is never negative.
    now as u64
}

/// Returns whether interrupts are disabled on this CPU.
///
/// Packets can't be transmitted then: work that may end in a transmission has to be deferred, see
/// [`QueueKind::Bh`].
///
/// Context: any.
#[inline]
pub fn irqs_disabled() -> bool {
    // SAFETY: It is always safe to read the interrupt flag.
    unsafe { bindings::irqs_disabled() }
}
