// SPDX-License-Identifier: GPL-2.0

//! What is given up when lookups that may have seen it are over.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu, //
    },
    workqueue::{
        Queue,
        RawWorkItem, //
    }, //
};

use crate::{
    bindings,
    OwnedQueue,
    QueueKind, //
};

/// The queue of the [`Reclaimer`], or null.
static QUEUE: Atomic<*mut bindings::workqueue_struct> = Atomic::new(ptr::null_mut());

/// Gives up what was removed from the tables of a module, in the background.
///
/// An [`IdTable`](crate::IdTable) can give up its reference to an object only when all lookups
/// that may have seen it are over, and only in process context, as the reference may be the last.
/// With a reclaimer in existence nobody has to wait for that.
///
/// A module creates one before its first table, and drops it after all else: dropping it waits
/// until everything has been given up. Only after that nothing of the module runs any more on
/// behalf of removed objects. Without a reclaimer, removing waits, and fails to free memory where
/// waiting is not possible.
///
/// Creating and dropping it needs process context.
///
/// # Invariants
///
/// [`QUEUE`] is `queue`.
pub struct Reclaimer {
    queue: OwnedQueue,
}

impl Reclaimer {
    /// Creates the reclaimer of the module. `name` is that of its work queue.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: there is one.
    /// - `ENOMEM`.
    pub fn new(name: &CStr) -> Result<Self> {
        let queue = OwnedQueue::new(name, QueueKind::Unbound)?;

        QUEUE
            .cmpxchg(ptr::null_mut(), queue.as_raw(), ordering::Full)
            .map_err(|_| EBUSY)?;
        // INVARIANT: It was just set.
        Ok(Self { queue })
    }

    /// Waits until everything that has been removed so far was given up.
    ///
    /// Context: process, and not what is run by that.
    pub fn flush(&self) {
        // Things get onto the queue by RCU callbacks.
        rcu::rcu_barrier();
        self.queue.flush();
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        QUEUE.store(ptr::null_mut(), ordering::Relaxed);
        // Now for those who have still got the pointer, and after them for the RCU callbacks that
        // put things onto the queue. When the queue is dropped it runs empty.
        rcu::synchronize_rcu();
        rcu::rcu_barrier();
    }
}

/// Runs a work item after a grace period, if there is a reclaimer.
///
/// Returns whether it will be, or has been, run.
///
/// Context: any.
///
/// # Safety
///
/// `work` must be initialised and not in use. Whether or not this succeeds, it must stay valid
/// until it has run.
pub(crate) unsafe fn after_grace_period(work: *mut bindings::rcu_work) -> bool {
    let _rcu = rcu::read_lock();
    let queue = QUEUE.load(ordering::Acquire);

    if queue.is_null() {
        return false;
    }
    // SAFETY: The queue is not destroyed before the RCU read lock is released, and then only after
    // all of this has run. The rest is by the safety requirements.
    unsafe { bindings::queue_rcu_work(queue, work) }
}

/// Enqueues a work item, to run in process context, if there is a reclaimer: dropping that waits
/// for it. Returns [`None`] if there is none.
///
/// Context: any.
pub fn in_background<W, const ID: u64>(work: W) -> Option<W::EnqueueOutput>
where
    W: RawWorkItem<ID> + Send + 'static,
{
    let _rcu = rcu::read_lock();
    let queue = QUEUE.load(ordering::Acquire);

    if queue.is_null() {
        return None;
    }
    // SAFETY: It is a work queue, which is not destroyed before the RCU read lock is released.
    Some(unsafe { Queue::from_raw(queue) }.enqueue(work))
}

/// Waits for a grace period, if the caller may sleep as far as can be told.
pub(crate) fn try_synchronize() -> bool {
    // SAFETY: It is always safe to call.
    let may_sleep = unsafe { bindings::in_process_context() };

    if may_sleep {
        rcu::synchronize_rcu();
    }
    may_sleep
}
