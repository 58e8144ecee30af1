// SPDX-License-Identifier: GPL-2.0

//! A task that stays on its CPU.

use kernel::types::NotThreadSafe;

use crate::bindings;

/// Keeps the current task on the CPU that it runs on, until this is dropped.
///
/// What the task gives to the network stack meanwhile is queued and processed in one order. On
/// another CPU it might overtake what is still in the queue of the first.
///
/// The task can still be preempted, and sleep.
///
/// Context: process.
#[must_use = "the task may leave its CPU when this is dropped"]
pub struct OneCpu(NotThreadSafe);

impl OneCpu {
    /// Begins to stay.
    #[inline]
    pub fn stay() -> Self {
        // SAFETY: It is always safe to call by a task, and undone by the same task: the type is
        // not `Send`.
        unsafe { bindings::task_stay() };
        Self(NotThreadSafe)
    }
}

impl Drop for OneCpu {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: It was disabled by this task when this was made.
        unsafe { bindings::task_go() }
    }
}
