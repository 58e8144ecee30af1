// SPDX-License-Identifier: GPL-2.0

//! What kernel consumers post while interrupts are disabled.
//!
//! They may post in any context: in a hard interrupt, which may have come to whoever holds the queue
//! pair's lock, and with a lock of their own held that such an interrupt waits for. So the queue pair's
//! lock can't be waited for there. What is posted is copied here, in order, and the timer of the queue
//! pair is set; whoever visits the queue pair next takes it along.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        SpinLockIrq, //
    }, //
};
use rdma::{
    RecvWr,
    SendWr,
    Sge, //
};

use rxo_transport::{
    check_wqe,
    QpType, //
};

use crate::{
    mr::Domain,
    provider::Rxo,
    sq::Post, //
};

/// A send, and its list.
pub(crate) struct Send {
    pub(crate) post: Post,
    pub(crate) list: KVec<Sge>,
}

/// A receive.
pub(crate) struct Recv {
    pub(crate) wr_id: u64,
    pub(crate) list: KVec<Sge>,
}

/// What was posted, in the order in which it was.
#[derive(Default)]
pub(crate) struct Posted {
    pub(crate) sends: KVec<Send>,
    pub(crate) recvs: KVec<Recv>,
}

/// What posts are taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taking {
    /// Sends are, in this state of the queue pair.
    pub(crate) sends: bool,
    /// Receives are, in this state.
    pub(crate) recvs: bool,
}

/// What the lock protects.
#[derive(Default)]
struct Inner {
    posted: Posted,
    taking: Taking,
}

/// How much a queue pair takes.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) sends: u32,
    pub(crate) recvs: u32,
    pub(crate) send_sges: usize,
    pub(crate) recv_sges: usize,
    pub(crate) domain: Domain,
    pub(crate) ty: QpType,
}

/// Where the posts wait. The lock is inside of all others but that of the timer.
#[pin_data]
pub(crate) struct Posting {
    sizes: Sizes,
    /// Whether there is something, for who doesn't have the lock.
    waits: Atomic<u32>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

/// A copy of a list. Any context.
fn copied(list: impl ExactSizeIterator<Item = Sge>, most: usize) -> Result<KVec<Sge>> {
    if list.len() > most {
        return Err(EINVAL);
    }
    let mut copy = KVec::with_capacity(list.len(), GFP_ATOMIC)?;
    for sge in list {
        copy.push(sge, GFP_ATOMIC)?;
    }
    Ok(copy)
}

/// Adds a post to those that wait, which are at most so many.
fn add<T>(posts: &mut KVec<T>, most: u32, post: T) -> Result {
    if posts.len() >= most as usize {
        return Err(ENOMEM);
    }
    Ok(posts.push(post, GFP_ATOMIC)?)
}

impl Posting {
    pub(crate) fn new(sizes: Sizes) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                sizes,
                waits: Atomic::new(0),
                inner <- new_spinlock_irq!(Inner::default(), "Posting::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a send. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` in a state that takes none, for an operation that the queue pair has not, and as for
    /// [`Post::of`]; `ENOMEM`.
    pub(crate) fn send(&self, wr: &SendWr<'_, Rxo>) -> Result {
        let sizes = &self.sizes;
        let post = Post::of(wr, sizes.send_sges, sizes.domain, sizes.ty.is_datagram())?;
        check_wqe(sizes.ty, &post.wqe).map_err(|_| EINVAL)?;
        let list = copied(wr.sges(), sizes.send_sges)?;
        let mut inner = self.inner.lock();
        if !inner.taking.sends {
            return Err(EINVAL);
        }
        add(&mut inner.posted.sends, sizes.sends, Send { post, list })?;
        self.waits.store(1, Relaxed);
        Ok(())
    }

    /// Adds a receive. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` in RESET and for too long a list; `ENOMEM`.
    pub(crate) fn recv(&self, wr: &RecvWr<'_>) -> Result {
        let (wr_id, list) = (wr.wr_id(), copied(wr.sges(), self.sizes.recv_sges)?);
        let mut inner = self.inner.lock();
        if !inner.taking.recvs {
            return Err(EINVAL);
        }
        let recv = Recv { wr_id, list };
        add(&mut inner.posted.recvs, self.sizes.recvs, recv)?;
        self.waits.store(1, Relaxed);
        Ok(())
    }

    /// Tells whether something waits.
    ///
    /// Who has posted sets the timer after that. So who sets it later asks once more.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.load(Relaxed) != 0
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> Posted {
        let mut inner = self.inner.lock();
        self.waits.store(0, Relaxed);
        core::mem::take(&mut inner.posted)
    }

    /// The state of the queue pair is another.
    pub(crate) fn now_takes(&self, taking: Taking) {
        self.inner.lock().taking = taking;
    }
}
