// SPDX-License-Identifier: GPL-2.0

//! Receive queues: where posted receives come from, and the one that is being filled.

use kernel::prelude::*;
use rdma::{
    RecvWr,
    Sge, //
};
use rxo_transport::{
    RecvInfo,
    WcStatus, //
};

use crate::{
    abi::{
        self,
        Fields, //
    },
    ring::Ring, //
};

/// A receive posted by a kernel consumer.
#[derive(Clone, Copy, Default)]
struct Posted {
    wr_id: u64,
    num_sge: usize,
}

/// Where receives are posted.
enum Posts {
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

/// The receive being filled.
struct Current {
    wr_id: u64,
    num_sge: usize,
    sges: KVVec<Sge>,
}

/// A receive queue.
pub(crate) struct RecvQueue {
    posts: Posts,
    max_sge: usize,
    current: Current,
}

impl RecvQueue {
    /// A queue on a process's ring.
    pub(crate) fn user(ring: Ring, max_sge: usize) -> Result<Self> {
        let scratch = KVVec::from_elem(0, abi::RECV_HEAD + max_sge * abi::SGE_LEN, GFP_KERNEL)?;
        Self::new(
            Posts::User {
                ring,
                consumer: 0,
                scratch,
            },
            max_sge,
        )
    }

    /// A queue of `len` work requests of a kernel consumer.
    pub(crate) fn kernel(len: usize, max_sge: usize) -> Result<Self> {
        let posted = KVVec::from_elem(Posted::default(), len, GFP_KERNEL)?;
        let sges = KVVec::from_elem(Sge::default(), len * max_sge, GFP_KERNEL)?;
        Self::new(
            Posts::Kernel {
                posted,
                sges,
                head: 0,
                used: 0,
            },
            max_sge,
        )
    }

    fn new(posts: Posts, max_sge: usize) -> Result<Self> {
        Ok(Self {
            posts,
            max_sge,
            current: Current {
                wr_id: 0,
                num_sge: 0,
                sges: KVVec::from_elem(Sge::default(), max_sge, GFP_KERNEL)?,
            },
        })
    }

    /// Posts a receive of a kernel consumer.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too long a list, `ENOMEM` when the queue is full.
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result {
        let Posts::Kernel {
            posted,
            sges,
            head,
            used,
        } = &mut self.posts
        else {
            return Err(EINVAL);
        };
        let len = posted.len();
        if wr.num_sge() > self.max_sge {
            return Err(EINVAL);
        }
        if *used >= len {
            return Err(ENOMEM);
        }
        let at = (*head + *used) % len;
        let list = sges.iter_mut().skip(at * self.max_sge);
        for (to, from) in list.zip(wr.sges()) {
            *to = from;
        }
        if let Some(slot) = posted.get_mut(at) {
            *slot = Posted {
                wr_id: wr.wr_id(),
                num_sge: wr.num_sge(),
            };
        }
        *used += 1;
        Ok(())
    }

    /// Forgets everything posted.
    pub(crate) fn reset(&mut self) {
        match &mut self.posts {
            Posts::User { ring, consumer, .. } => {
                *consumer = ring.producer();
                ring.show_consumer(*consumer);
            }
            Posts::Kernel { head, used, .. } => (*head, *used) = (0, 0),
        }
    }

    /// How many receives are posted.
    pub(crate) fn len(&self) -> u32 {
        match &self.posts {
            Posts::User { ring, consumer, .. } => ring.used(*consumer, ring.producer()),
            // CAST: A queue has fewer than 2^32 entries.
            Posts::Kernel { used, .. } => *used as u32,
        }
    }

    /// Takes the oldest posted receive as the one to fill.
    pub(crate) fn take(&mut self) -> Option<Result<RecvInfo, WcStatus>> {
        let current = &mut self.current;
        match &mut self.posts {
            Posts::User {
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
                current.wr_id = wqe.u64(abi::recv::WR_ID);
                current.num_sge = wqe.u32(abi::recv::NUM_SGE) as usize;
                if copied.is_err() || current.num_sge > self.max_sge {
                    current.num_sge = 0;
                    return Some(Err(WcStatus::LocQpOpErr));
                }
                let list = current.sges.iter_mut().take(current.num_sge).enumerate();
                for (i, to) in list {
                    *to = wqe.sge(abi::recv::LIST + i * abi::SGE_LEN);
                }
            }
            Posts::Kernel {
                posted,
                sges,
                head,
                used,
            } => {
                if *used == 0 {
                    return None;
                }
                let taken = posted.get(*head).copied().unwrap_or_default();
                current.wr_id = taken.wr_id;
                current.num_sge = taken.num_sge;
                let from = sges.iter().skip(*head * self.max_sge).take(taken.num_sge);
                for (to, from) in current.sges.iter_mut().zip(from) {
                    *to = *from;
                }
                *head = (*head + 1) % posted.len().max(1);
                *used -= 1;
            }
        }
        let bytes: u64 = self.list().iter().map(|s| u64::from(s.length)).sum();
        Some(Ok(RecvInfo {
            capacity: u32::try_from(bytes).unwrap_or(u32::MAX),
        }))
    }

    /// Cookie of the receive being filled.
    pub(crate) fn wr_id(&self) -> u64 {
        self.current.wr_id
    }

    /// List of the receive being filled.
    pub(crate) fn list(&self) -> &[Sge] {
        self.current
            .sges
            .get(..self.current.num_sge)
            .unwrap_or_default()
    }
}
