// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use kernel::{
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLockIrq, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use rdma::{
    MmapEntry,
    RecvWrs,
    SrqAttr,
    SrqChange,
    SrqEvent,
    SrqTarget, //
};
use rxo_transport::{
    RecvInfo,
    WcStatus, //
};

use crate::{
    abi::MapInfo,
    detail::Listener,
    limits::{
        Permit,
        MAX_SRQ_WR, //
    },
    mr::Domain,
    provider::Rxo,
    ring::Ring,
    rq::{
        Posts,
        Taken, //
    }, //
};

/// What the lock protects.
struct Inner {
    posts: Posts,
    /// With fewer receives than this the consumer is told, once; 0: it does not want to be.
    limit: u32,
}

impl Inner {
    /// Tells whether the limit is reached, and disarms it if so.
    fn disarm_if_reached(&mut self) -> bool {
        let reached = self.limit != 0 && self.posts.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

/// A shared receive queue. Its lock may be taken while that of a queue pair is held, and is never held
/// with interrupts enabled: kernel consumers post in any context.
#[pin_data]
pub(crate) struct SharedQueue {
    /// The protection domain of the receives' memory, whatever those of the queue pairs are.
    pub(crate) domain: Domain,
    max_sge: usize,
    target: SrqTarget,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl SharedQueue {
    /// Makes a queue.
    pub(crate) fn new(
        target: SrqTarget,
        domain: Domain,
        posts: Posts,
        max_sge: usize,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                domain,
                max_sge,
                target,
                inner <- new_spinlock_irq!(Inner { posts, limit: 0 }, "SharedQueue::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// Scatter/gather entries of a receive.
    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Takes the oldest receive; tells whether the consumer is now to be told of the limit, by
    /// [`SharedQueue::tell_limit_reached`]. Any context.
    pub(crate) fn take(&self, into: &mut Taken) -> (Option<Result<RecvInfo, WcStatus>>, bool) {
        let mut inner = self.inner.lock();
        let taken = inner.posts.take(into);
        let reached = taken.is_some() && inner.disarm_if_reached();
        (taken, reached)
    }

    /// Tells the consumer that the limit was reached. No lock may be held.
    pub(crate) fn tell_limit_reached(&self) {
        self.target.event(SrqEvent::LimitReached);
    }

    /// Posts receives of a kernel consumer.
    pub(crate) fn post(&self, wrs: &mut RecvWrs<'_>) -> Result {
        let mut inner = self.inner.lock();
        for wr in wrs {
            inner.posts.post(wr.wr_id(), wr.sges())?;
        }
        Ok(())
    }

    /// Returns size and limit.
    pub(crate) fn query(&self) -> SrqAttr {
        let inner = self.inner.lock();
        SrqAttr {
            max_wr: inner.posts.capacity(),
            // CAST: It came as 32 bits.
            max_sge: self.max_sge as u32,
            limit: inner.limit,
        }
    }

    /// Tells what there is to know.
    pub(crate) fn tell(&self, to: &mut impl Listener) {
        let (posted, size, limit) = {
            let inner = self.inner.lock();
            (inner.posts.len(), inner.posts.capacity(), inner.limit)
        };
        to.number("posted", u64::from(posted));
        to.number("size", u64::from(size));
        to.number("limit", u64::from(limit));
    }

    /// Sets a new limit and, if `posts` are given, moves to them: both or nothing.
    ///
    /// # Errors
    ///
    /// `EINVAL` if what is posted does not fit, or the limit is above the size.
    fn change(&self, posts: Option<Posts>, limit: Option<u32>) -> Result {
        let (reached, _old) = {
            let mut inner = self.inner.lock();
            let capacity = posts
                .as_ref()
                .map_or(inner.posts.capacity(), Posts::capacity);
            if limit.unwrap_or(inner.limit) > capacity {
                return Err(EINVAL);
            }
            // What is replaced is freed outside of the lock.
            let old = match posts {
                Some(mut new) => {
                    inner.posts.move_to(&mut new)?;
                    Some(core::mem::replace(&mut inner.posts, new))
                }
                None => None,
            };
            if let Some(limit) = limit {
                inner.limit = limit;
            }
            (inner.disarm_if_reached(), old)
        };
        // Also when there were too few receives already: who arms it too late would wait forever.
        if reached {
            self.tell_limit_reached();
        }
        Ok(())
    }
}

/// A consumer's shared receive queue, with the ring offered to a process.
pub(crate) struct SrqHandle {
    pub(crate) queue: Arc<SharedQueue>,
    ring: Pin<KBox<Mutex<Option<MmapEntry>>>>,
    _permit: Permit,
}

impl SrqHandle {
    /// Wraps a queue up.
    pub(crate) fn new(
        queue: Arc<SharedQueue>,
        ring: Option<MmapEntry>,
        permit: Permit,
    ) -> Result<Self> {
        Ok(Self {
            queue,
            ring: KBox::pin_init(new_mutex!(ring, "SrqHandle::ring"), GFP_KERNEL)?,
            _permit: permit,
        })
    }

    /// Changes size and limit. `answer_at` is where the process wants to be told where its new
    /// ring is to be mapped.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a size above the device's limit or below what is posted and for a limit
    /// above the size; `EFAULT`.
    pub(crate) fn modify(
        &self,
        context: Option<&rdma::Context<Rxo>>,
        change: SrqChange,
        answer_at: impl FnOnce() -> Result<u64>,
    ) -> Result {
        let Some(max_wr) = change.max_wr else {
            return self.queue.change(None, change.limit);
        };
        if max_wr == 0 || max_wr > MAX_SRQ_WR {
            return Err(EINVAL);
        }
        let max_sge = self.queue.max_sge;
        let Some(context) = context else {
            let posts = Posts::kernel(max_wr as usize, max_sge)?;
            return self.queue.change(Some(posts), change.limit);
        };
        // One resize at a time.
        let mut entry = self.ring.lock();
        let ring = Ring::new(max_wr, Posts::elem(max_sge))?;
        let (new_entry, info) = ring.map(context)?;
        let at = usize::try_from(answer_at()?).map_err(|_| EFAULT)?;
        UserSlice::new(UserPtr::from_addr(at), size_of::<MapInfo>())
            .writer()
            .write(&info)?;
        self.queue
            .change(Some(Posts::user(ring, max_sge)?), change.limit)?;
        *entry = Some(new_entry);
        Ok(())
    }
}
