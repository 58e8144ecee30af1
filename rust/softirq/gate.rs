// SPDX-License-Identifier: GPL-2.0

//! Run-down protection.

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        Completion, //
    }, //
};

/// Set once the gate is closed; the bits below count the passes.
const CLOSED: u64 = 1 << 63;

/// Lets users in, until it is closed and waits for the last of them to leave.
///
/// An object that others find by number, pointer or callback can outlive the call that destroys
/// it: someone may just have looked it up. With a gate in the object, each of them
/// [enters](Gate::enter) before touching what the destruction takes away, and the destruction
/// [closes](Gate::close) the gate first.
///
/// # Invariants
///
/// - The bits of `state` below `CLOSED` are the number of passes that exist.
/// - Once `CLOSED` is set, it stays set and the number of passes never rises.
/// - `empty` is completed exactly once, by whoever makes the state `CLOSED` with no passes.
#[pin_data]
pub struct Gate {
    state: Atomic<u64>,
    #[pin]
    empty: Completion,
}

impl Gate {
    /// Creates an open gate.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: Atomic::new(0),
            empty <- Completion::new(),
        })
    }

    fn try_enter(&self) -> bool {
        // As it is most times.
        let mut state = 0;

        loop {
            if state & CLOSED != 0 {
                return false;
            }
            // Passes can be leaked, but not 2^63 of them: no carry into `CLOSED`.
            match self
                .state
                .cmpxchg(state, state.wrapping_add(1), ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Gives a pass back.
    ///
    /// The closer may free the gate as soon as this has completed `empty`, which takes no part of
    /// the gate after that.
    fn leave(&self) {
        let before = self.state.fetch_sub(1, ordering::Release);

        if before == CLOSED + 1 {
            self.empty.complete_all();
        }
    }

    /// Enters, or returns [`None`] if the gate is closed.
    ///
    /// Context: any.
    #[inline]
    pub fn enter(&self) -> Option<Pass<'_>> {
        self.try_enter().then(|| Pass { gate: self })
    }

    /// Lets nobody in from now on, and waits until all passes have been given back.
    ///
    /// Whatever the holders of passes did before they gave them back happens before the return of
    /// this. It can be called more than once, also concurrently: each call waits.
    ///
    /// It must not be called by a holder of a pass, who would wait for itself.
    ///
    /// Context: process.
    pub fn close(&self) {
        let mut state = self.state.load(ordering::Relaxed);

        while state & CLOSED == 0 {
            match self.state.cmpxchg(state, state | CLOSED, ordering::Full) {
                Ok(_) => {
                    if state == 0 {
                        self.empty.complete_all();
                    }
                    break;
                }
                Err(now) => state = now,
            }
        }
        self.empty.wait_for_completion();
    }

    /// Returns whether the gate is closed. Passes may still exist.
    ///
    /// Context: any.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.state.load(ordering::Acquire) & CLOSED != 0
    }
}

/// Proof that a [`Gate`] has been entered; dropping it leaves.
#[must_use = "the gate is left when the pass is dropped"]
pub struct Pass<'a> {
    gate: &'a Gate,
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave();
    }
}

/// An object with a [`Gate`].
pub trait Gated {
    /// Returns the gate.
    fn gate(&self) -> &Gate;
}

/// A counted reference to an object whose gate has been entered; dropping it leaves.
///
/// It can be handed to another context, such as a work item, unlike a [`Pass`].
///
/// # Invariants
///
/// `gate` was returned by `object.gate()` and has been entered once for this.
#[must_use = "the gate is left when the pass is dropped"]
pub struct ArcPass<T: Gated + 'static> {
    object: Arc<T>,
    gate: NonNull<Gate>,
}

// SAFETY: It is an `Arc<T>` and a pointer to a `Gate`, and `&Gate` is `Send`.
unsafe impl<T: Gated + Send + Sync + 'static> Send for ArcPass<T> {}

// SAFETY: A shared reference gives access to `&T` and nothing else.
unsafe impl<T: Gated + Send + Sync + 'static> Sync for ArcPass<T> {}

impl<T: Gated + 'static> ArcPass<T> {
    /// Enters the gate of an object, or returns [`None`] if it is closed.
    ///
    /// Context: any, if the object may be dropped there.
    pub fn enter(object: Arc<T>) -> Option<Self> {
        let gate = object.gate();

        if !gate.try_enter() {
            return None;
        }

        let gate = NonNull::from(gate);
        // INVARIANT: It has just been entered.
        Some(Self { object, gate })
    }

    /// Returns the object.
    pub fn object(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: Gated + 'static> Deref for ArcPass<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Gated + 'static> Drop for ArcPass<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the reference came from `T::gate`, which returns one
        // that lives as long as a shared borrow of the object. `object` keeps the object in place
        // and shared until after this.
        let gate = unsafe { self.gate.as_ref() };

        gate.leave();
    }
}
