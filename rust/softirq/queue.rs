// SPDX-License-Identifier: GPL-2.0

//! Work queues that belong to someone.

use core::ptr::NonNull;

use kernel::{
    alloc::{
        AllocError,
        Flags, //
    },
    prelude::*,
    sync::static_lock_class,
    workqueue::{
        impl_has_work,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

use crate::bindings;

/// Where the work of an [`OwnedQueue`] runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// In process context, on whatever CPU is free.
    ///
    /// Progress is guaranteed under memory pressure.
    Unbound,
    /// In process context, on whatever CPU is free, and later under memory pressure.
    ///
    /// For work that waits for others, whose queues have no such guarantee either.
    Patient,
    /// In process context, on the CPU that enqueues.
    ///
    /// Progress is guaranteed under memory pressure.
    PerCpu,
    /// In softirq context, on the CPU that enqueues.
    Bh,
}

impl QueueKind {
    fn flags(self) -> c_uint {
        match self {
            QueueKind::Unbound => bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM,
            QueueKind::Patient => bindings::wq_flags_WQ_UNBOUND,
            QueueKind::PerCpu => bindings::wq_flags_WQ_PERCPU | bindings::wq_flags_WQ_MEM_RECLAIM,
            QueueKind::Bh => bindings::wq_flags_WQ_PERCPU | bindings::wq_flags_WQ_BH,
        }
    }
}

/// A work queue of one's own.
///
/// The work items are those of the kernel crate. Unlike with the queues of the system, the owner
/// can wait for them: dropping the queue waits until all work has run. So code that runs as work
/// can't outlive the module that it is part of.
///
/// Delayed work is not offered: it is not waited for.
///
/// Dropping it needs process context, and must not happen in work that runs on it. An object that
/// has the queue, if it is kept alive by work on that queue, must not be left to the work alone.
///
/// # Invariants
///
/// `wq` is a work queue that was allocated for this and has not been destroyed.
pub struct OwnedQueue {
    wq: NonNull<bindings::workqueue_struct>,
    kind: QueueKind,
}

// SAFETY: Work queues can be used and destroyed by every thread.
unsafe impl Send for OwnedQueue {}

// SAFETY: Work queues can be used by many threads at once.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Creates a queue.
    ///
    /// Context: process.
    pub fn new(name: &CStr, kind: QueueKind) -> Result<Self> {
        // SAFETY: `name` is a string, which is copied.
        let wq = unsafe { bindings::alloc_queue(name.as_char_ptr(), kind.flags()) };

        // INVARIANT: It was just allocated.
        Ok(Self {
            wq: NonNull::new(wq).ok_or(ENOMEM)?,
            kind,
        })
    }

    fn queue(&self) -> &Queue {
        // SAFETY: By the type invariants it is a work queue, for at least as long as the borrow.
        unsafe { Queue::from_raw(self.wq.as_ptr()) }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::workqueue_struct {
        self.wq.as_ptr()
    }

    /// Enqueues a work item, see [`Queue::enqueue`].
    ///
    /// Context: any.
    pub fn enqueue<W, const ID: u64>(&self, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        self.queue().enqueue(work)
    }

    /// Runs a closure as work.
    ///
    /// This is like [`Queue::try_spawn`], which can't be used for process and softirq context
    /// alike without lockdep taking offence.
    ///
    /// Context: that of `flags`.
    pub fn try_spawn<T: 'static + Send + FnOnce()>(
        &self,
        flags: Flags,
        func: T,
    ) -> Result<(), AllocError> {
        let (name, class) = match self.kind {
            QueueKind::Bh => (c"OwnedQueue::try_spawn, softirq", static_lock_class!()),
            _ => (c"OwnedQueue::try_spawn", static_lock_class!()),
        };
        let closure = pin_init!(Closure {
            work <- Work::new(name, class),
            func: Some(func),
        });

        self.enqueue(KBox::pin_init(closure, flags).map_err(|_| AllocError)?);
        Ok(())
    }

    /// Waits until all work that is on the queue now has run.
    ///
    /// Context: process, and not in work that runs on the queue.
    pub fn flush(&self) {
        // SAFETY: By the type invariants it is a work queue.
        unsafe { bindings::__flush_workqueue(self.wq.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is a work queue that was allocated for this. Nothing
        // can be enqueued while it goes: that takes a borrow of `self`, and delayed work, which
        // is enqueued by a timer, is not offered.
        unsafe { bindings::destroy_workqueue(self.wq.as_ptr()) }
    }
}

/// A closure that runs as work.
#[pin_data]
struct Closure<T> {
    #[pin]
    work: Work<Closure<T>>,
    func: Option<T>,
}

impl_has_work! {
    impl{T} HasWork<Self> for Closure<T> { self.work }
}

impl<T: FnOnce()> WorkItem for Closure<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(mut this: Pin<KBox<Self>>) {
        if let Some(func) = this.as_mut().project().func.take() {
            func();
        }
    }
}
