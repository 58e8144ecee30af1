// SPDX-License-Identifier: GPL-2.0

//! Receive queues: where posted receives come from, and the one that is being filled.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::Sge;
use rxo_transport::{
    RecvInfo,
    WcStatus, //
};

use crate::{
    abi::{
        self,
        Fields, //
    },
    ring::Ring,
    srq::SharedQueue, //
};

/// A receive posted by a kernel consumer.
#[derive(Clone, Copy, Default)]
struct Posted {
    wr_id: u64,
    num_sge: usize,
}

/// Where receives are posted.
enum Source {
    /// A ring that a process fills.
    User {
        ring: Ring,
        /// The kernel's own index.
        consumer: u32,
        /// A work request is copied here once.
        scratch: KVVec<u8>,
    },
    /// Work requests of a kernel consumer, copied when posted.
    Kernel {
        posted: KVVec<Posted>,
        sges: KVVec<Sge>,
        head: usize,
        used: usize,
    },
}

/// Posted receives, of a queue pair or shared by several.
pub(crate) struct Posts {
    source: Source,
    max_sge: usize,
}

/// A receive taken out of [`Posts`].
pub(crate) struct Taken {
    wr_id: u64,
    num_sge: usize,
    sges: KVVec<Sge>,
}

impl Taken {
    fn new(max_sge: usize) -> Result<Self> {
        Ok(Self {
            wr_id: 0,
            num_sge: 0,
            sges: KVVec::from_elem(Sge::default(), max_sge, GFP_KERNEL)?,
        })
    }

    fn list(&self) -> &[Sge] {
        self.sges.get(..self.num_sge).unwrap_or_default()
    }
}

impl Posts {
    /// Receives in a process's ring.
    pub(crate) fn user(ring: Ring, max_sge: usize) -> Result<Self> {
        let scratch = KVVec::from_elem(0, Self::elem(max_sge), GFP_KERNEL)?;
        Ok(Self {
            source: Source::User {
                ring,
                consumer: 0,
                scratch,
            },
            max_sge,
        })
    }

    /// At most `len` work requests of a kernel consumer.
    pub(crate) fn kernel(len: usize, max_sge: usize) -> Result<Self> {
        let posted = KVVec::from_elem(Posted::default(), len, GFP_KERNEL)?;
        let sges = KVVec::from_elem(
            Sge::default(),
            len.checked_mul(max_sge).ok_or(EINVAL)?,
            GFP_KERNEL,
        )?;
        Ok(Self {
            source: Source::Kernel {
                posted,
                sges,
                head: 0,
                used: 0,
            },
            max_sge,
        })
    }

    /// Bytes of a work request in a process's ring.
    pub(crate) fn elem(max_sge: usize) -> usize {
        abi::RECV_HEAD + max_sge * abi::SGE_LEN
    }

    /// Posts a receive of a kernel consumer.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too long a list, `ENOMEM` when the queue is full.
    pub(crate) fn post(&mut self, wr_id: u64, list: impl ExactSizeIterator<Item = Sge>) -> Result {
        let Source::Kernel {
            posted,
            sges,
            head,
            used,
        } = &mut self.source
        else {
            return Err(EINVAL);
        };
        let (len, num_sge) = (posted.len(), list.len());
        if num_sge > self.max_sge {
            return Err(EINVAL);
        }
        if *used >= len {
            return Err(ENOMEM);
        }
        let at = (*head + *used) % len;
        let places = sges.iter_mut().skip(at * self.max_sge);
        for (to, from) in places.zip(list) {
            *to = from;
        }
        if let Some(slot) = posted.get_mut(at) {
            *slot = Posted { wr_id, num_sge };
        }
        *used += 1;
        Ok(())
    }

    /// Forgets everything posted.
    fn reset(&mut self) {
        match &mut self.source {
            Source::User { ring, consumer, .. } => {
                *consumer = ring.producer();
                ring.show_consumer(*consumer);
            }
            Source::Kernel { head, used, .. } => (*head, *used) = (0, 0),
        }
    }

    /// How many receives are posted.
    pub(crate) fn len(&self) -> u32 {
        match &self.source {
            Source::User { ring, consumer, .. } => ring.used(*consumer, ring.producer()),
            // CAST: A queue has fewer than 2^32 entries.
            Source::Kernel { used, .. } => *used as u32,
        }
    }

    /// How many receives can be posted.
    pub(crate) fn capacity(&self) -> u32 {
        match &self.source {
            Source::User { ring, .. } => ring.capacity(),
            // CAST: As above.
            Source::Kernel { posted, .. } => posted.len() as u32,
        }
    }

    /// Moves what is posted, in order, to an empty queue of the same kind.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not fit; nothing has moved.
    pub(crate) fn move_to(&mut self, to: &mut Self) -> Result {
        let count = self.len();
        if count > to.capacity() || self.max_sge != to.max_sge {
            return Err(EINVAL);
        }
        match (&mut self.source, &mut to.source) {
            (
                Source::User {
                    ring: from,
                    consumer,
                    scratch,
                },
                Source::User { ring: to, .. },
            ) => {
                for i in 0..count {
                    from.read(consumer.wrapping_add(i), scratch)
                        .map_err(|_| EINVAL)?;
                    to.write(i, scratch).map_err(|_| EINVAL)?;
                }
                to.show_producer(count);
                Ok(())
            }
            (
                Source::Kernel {
                    posted,
                    sges,
                    head,
                    used,
                },
                Source::Kernel {
                    posted: to_posted,
                    sges: to_sges,
                    used: to_used,
                    ..
                },
            ) => {
                let (len, width) = (posted.len().max(1), self.max_sge);
                for i in 0..*used {
                    let at = (*head + i) % len;
                    if let (Some(to), Some(from)) = (to_posted.get_mut(i), posted.get(at)) {
                        *to = *from;
                    }
                    let from = sges.iter().skip(at * width).take(width);
                    for (to, from) in to_sges.iter_mut().skip(i * width).zip(from) {
                        *to = *from;
                    }
                }
                *to_used = *used;
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    /// Takes the oldest posted receive out.
    pub(crate) fn take(&mut self, into: &mut Taken) -> Option<Result<RecvInfo, WcStatus>> {
        match &mut self.source {
            Source::User {
                ring,
                consumer,
                scratch,
            } => {
                if *consumer == ring.producer() {
                    return None;
                }
                let copied = ring.read(*consumer, scratch);
                *consumer = ring.next(*consumer);
                ring.show_consumer(*consumer);
                let wqe = Fields(scratch);
                into.wr_id = wqe.u64(abi::recv::WR_ID);
                into.num_sge = wqe.u32(abi::recv::NUM_SGE) as usize;
                if copied.is_err() || into.num_sge > self.max_sge {
                    into.num_sge = 0;
                    return Some(Err(WcStatus::LocQpOpErr));
                }
                let list = into.sges.iter_mut().take(into.num_sge).enumerate();
                for (i, to) in list {
                    *to = wqe.sge(abi::recv::LIST + i * abi::SGE_LEN);
                }
            }
            Source::Kernel {
                posted,
                sges,
                head,
                used,
            } => {
                if *used == 0 {
                    return None;
                }
                let taken = posted.get(*head).copied().unwrap_or_default();
                into.wr_id = taken.wr_id;
                into.num_sge = taken.num_sge;
                let from = sges.iter().skip(*head * self.max_sge).take(taken.num_sge);
                for (to, from) in into.sges.iter_mut().zip(from) {
                    *to = *from;
                }
                *head = (*head + 1) % posted.len().max(1);
                *used -= 1;
            }
        }
        let bytes: u64 = into.list().iter().map(|s| u64::from(s.length)).sum();
        Some(Ok(RecvInfo {
            capacity: u32::try_from(bytes).unwrap_or(u32::MAX),
        }))
    }
}

/// Whose receives a queue pair takes.
enum Feed {
    /// Its own.
    Own(Posts),
    /// Those of a queue that others take from too.
    Shared(Arc<SharedQueue>),
}

/// The receive queue of a queue pair.
pub(crate) struct RecvQueue {
    feed: Feed,
    current: Taken,
    limit_reached: bool,
}

impl RecvQueue {
    /// A queue of the queue pair's own.
    pub(crate) fn own(posts: Posts) -> Result<Self> {
        let current = Taken::new(posts.max_sge)?;
        Ok(Self {
            feed: Feed::Own(posts),
            current,
            limit_reached: false,
        })
    }

    /// Receives of a shared queue.
    pub(crate) fn shared(queue: Arc<SharedQueue>) -> Result<Self> {
        Ok(Self {
            current: Taken::new(queue.max_sge())?,
            feed: Feed::Shared(queue),
            limit_reached: false,
        })
    }

    /// Posts a receive of a kernel consumer.
    ///
    /// # Errors
    ///
    /// Those of [`Posts::post`]; `EINVAL` where receives come from a shared queue.
    pub(crate) fn post(&mut self, wr_id: u64, list: impl ExactSizeIterator<Item = Sge>) -> Result {
        match &mut self.feed {
            Feed::Own(posts) => posts.post(wr_id, list),
            Feed::Shared(_) => Err(EINVAL),
        }
    }

    /// Forgets everything posted to this queue pair alone.
    pub(crate) fn reset(&mut self) {
        if let Feed::Own(posts) = &mut self.feed {
            posts.reset();
        }
    }

    /// How many receives are posted; `None` if others may take them.
    pub(crate) fn len(&self) -> Option<u32> {
        match &self.feed {
            Feed::Own(posts) => Some(posts.len()),
            Feed::Shared(_) => None,
        }
    }

    /// Takes the oldest posted receive as the one to fill.
    pub(crate) fn take(&mut self) -> Option<Result<RecvInfo, WcStatus>> {
        match &mut self.feed {
            Feed::Own(posts) => posts.take(&mut self.current),
            Feed::Shared(queue) => {
                let (taken, limit_reached) = queue.take(&mut self.current);
                self.limit_reached |= limit_reached;
                taken
            }
        }
    }

    /// Tells, once, whether a shared queue fell below its limit.
    pub(crate) fn limit_reached(&mut self) -> bool {
        core::mem::take(&mut self.limit_reached)
    }

    /// Cookie of the receive being filled.
    pub(crate) fn wr_id(&self) -> u64 {
        self.current.wr_id
    }

    /// List of the receive being filled.
    pub(crate) fn list(&self) -> &[Sge] {
        self.current.list()
    }
}
