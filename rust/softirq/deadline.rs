// SPDX-License-Identifier: GPL-2.0

//! Deadlines.

use core::{
    mem::size_of,
    ptr, //
};

use kernel::{
    container_of,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    new_bh_spinlock,
    now_ns,
    BhSpinLock, //
};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The latest time that the clock can express.
const LATEST: u64 = i64::MAX as u64;

/// An object that has a [`DeadlineTimer`].
///
/// `ID` tells apart several timers of an object.
pub trait HasDeadline<const ID: u64 = 0>: Sized + Send + Sync + 'static {
    /// The deadline has passed.
    ///
    /// It is called once for each deadline, without locks, in softirq context. It never runs on
    /// two CPUs at once for the same timer. It may arm the timer again.
    ///
    /// If the deadline is moved or taken back while this is about to be called, it is called
    /// nevertheless: under the lock that protects what the deadline is for, look again whether it
    /// has passed.
    fn expired(this: ArcBorrow<'_, Self>);
}

struct State<T> {
    /// When to call [`HasDeadline::expired`], or [`NEVER`].
    wanted: u64,
    /// When the C timer fires, or [`NEVER`] if it is not queued.
    programmed: u64,
    /// Keeps the object alive.
    owner: Option<Arc<T>>,
    shut_down: bool,
}

/// A deadline that is moved often and rarely reached.
///
/// It is for timers like that of a retransmission, which is set with each packet. Moving the
/// deadline to a later time or taking it back doesn't touch the underlying timer: that one fires at
/// the earlier time, notices, and is set anew. So the cost of moving it is that of an uncontended
/// lock.
///
/// It is a part of an object in an [`Arc`]. While the underlying timer is queued it holds a
/// reference to that object. Whoever destroys the object calls [`DeadlineTimer::shutdown`] first.
/// If that is forgotten, then the object lives on until the timer fires, and the last reference may
/// be dropped in softirq context.
///
/// The clock is that of [`now_ns`]; the timer is exact within what the hardware gives.
///
/// Locks: it has one of its own, inside of all others. Nothing is called with it held, except to
/// start the underlying timer.
///
/// # Invariants
///
/// - `timer` is initialised, with `DeadlineTimer::fire` as its function.
/// - `timer` is started only with the lock of `state` held, and only when `owner` is [`Some`] and
///   refers to the object that this is a part of.
/// - While `timer` is queued, or its function is called but has not taken the lock yet, `owner` is
///   [`Some`].
#[pin_data(PinnedDrop)]
pub struct DeadlineTimer<T: HasDeadline<ID>, const ID: u64 = 0> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    #[pin]
    state: BhSpinLock<State<T>>,
}

// SAFETY: `T` is `Send` and `Sync`, thus `Arc<T>` is `Send`, and timers belong to no thread.
unsafe impl<T: HasDeadline<ID>, const ID: u64> Send for DeadlineTimer<T, ID> {}

// SAFETY: `timer` is only started under a lock, and can be cancelled by many threads at once.
unsafe impl<T: HasDeadline<ID>, const ID: u64> Sync for DeadlineTimer<T, ID> {}

impl<T: HasDeadline<ID>, const ID: u64> DeadlineTimer<T, ID> {
    const MODE: bindings::hrtimer_mode = bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT;

    /// Creates a timer without a deadline.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: It is initialised, and not queued.
            timer <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is valid for writes, and stays in place since the timer is pinned.
                unsafe {
                    bindings::hrtimer_setup(
                        slot,
                        Some(Self::fire),
                        bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                        Self::MODE,
                    )
                }
            }),
            state <- new_bh_spinlock!(
                State {
                    wanted: NEVER,
                    programmed: NEVER,
                    owner: None,
                    shut_down: false,
                },
                "DeadlineTimer::state"
            ),
        })
    }

    /// Returns whether this is a part of the object.
    fn is_part_of(&self, object: &T) -> bool {
        let own = ptr::from_ref(self) as usize;
        let object = ptr::from_ref(object) as usize;

        own.checked_sub(object)
            .and_then(|offset| offset.checked_add(size_of::<Self>()))
            .is_some_and(|end| end <= size_of::<T>())
    }

    /// Starts the underlying timer.
    ///
    /// # Safety
    ///
    /// `state` must be that of this timer, with `owner` set to the object that this is a part of.
    unsafe fn start(&self, state: &mut State<T>, deadline: u64) {
        state.programmed = deadline;
        // CAST: `LATEST` is the largest value of the type.
        let expires = deadline.min(LATEST) as bindings::ktime_t;

        // SAFETY: By the type invariants it is initialised. The lock is held, since there is a
        // mutable reference to `state`. The owner keeps the timer in memory while it is queued.
        unsafe { bindings::hrtimer_start_range_ns(self.timer.get(), expires, 0, Self::MODE) }
    }

    fn set(&self, this: ArcBorrow<'_, T>, deadline: u64, earlier_only: bool) {
        if !self.is_part_of(&this) {
            kernel::warn_on!(true);
            return;
        }

        let mut state = self.state.lock();
        let state = &mut *state;

        if state.shut_down || (earlier_only && deadline >= state.wanted) {
            return;
        }
        state.wanted = deadline;
        if deadline < state.programmed {
            if state.owner.is_none() {
                state.owner = Some(this.into());
            }
            // SAFETY: `state` is that of this timer, and its owner was checked to have this as a
            // part when it was set.
            unsafe { self.start(state, deadline) };
        }
    }

    /// Sets the deadline, in place of the one before; [`u64::MAX`] is none.
    ///
    /// `this` must be the object that the timer is a part of; nothing happens otherwise, nor after
    /// [`DeadlineTimer::shutdown`]. If the deadline has already passed, it expires at once, but not
    /// before the caller enables softirqs.
    ///
    /// Context: any.
    pub fn arm(&self, this: ArcBorrow<'_, T>, deadline: u64) {
        self.set(this, deadline, false);
    }

    /// Sets the deadline, unless there is one that is earlier.
    ///
    /// See [`DeadlineTimer::arm`].
    ///
    /// Context: any.
    pub fn arm_at_latest(&self, this: ArcBorrow<'_, T>, deadline: u64) {
        self.set(this, deadline, true);
    }

    /// Takes the deadline back.
    ///
    /// [`HasDeadline::expired`] may be about to be called on another CPU, see there.
    ///
    /// Context: any.
    pub fn disarm(&self) {
        self.state.lock().wanted = NEVER;
    }

    /// Returns the deadline, if there is one.
    ///
    /// Context: any.
    pub fn deadline(&self) -> Option<u64> {
        Some(self.state.lock().wanted).filter(|&wanted| wanted != NEVER)
    }

    /// Takes the deadline back for good.
    ///
    /// Once this returns, [`HasDeadline::expired`] is not running and won't be called again, and
    /// the timer has no reference to the object.
    ///
    /// It must not be called by [`HasDeadline::expired`], nor with a lock held that it takes.
    ///
    /// Context: process.
    pub fn shutdown(&self) {
        {
            let mut state = self.state.lock();

            state.shut_down = true;
            state.wanted = NEVER;
        }
        self.cancel();
    }

    /// Waits until the function of the timer neither runs nor will run, and drops the owner.
    ///
    /// Nothing must start the timer meanwhile.
    fn cancel(&self) {
        // SAFETY: By the type invariants it is initialised.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };

        let owner = {
            let mut state = self.state.lock();

            state.programmed = NEVER;
            // INVARIANT: The timer is not queued, nor is its function called.
            state.owner.take()
        };

        // Outside of the lock, as it may be the last.
        drop(owner);
    }

    /// The function of the C timer.
    ///
    /// # Safety
    ///
    /// It must be called by the timer of a `DeadlineTimer<T, ID>`.
    unsafe extern "C" fn fire(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: By the safety requirements it is the timer of such a type. By its invariants
        // `owner` is set and keeps it alive, until it is taken below.
        let this = unsafe { &*container_of!(Opaque::cast_from(timer), Self, timer) };

        let (owner, due) = {
            let mut state = this.state.lock();
            let state = &mut *state;
            let due = state.wanted <= now_ns();

            if due {
                state.wanted = NEVER;
            }

            // It may have been started again after it fired. If not, nothing can start it now, as
            // the lock is held, and the timer is not taken off the queue while this runs.
            //
            // SAFETY: By the type invariants it is initialised.
            let mut queued = unsafe { bindings::hrtimer_is_queued(timer) };

            if !queued {
                let wanted = state.wanted;

                state.programmed = NEVER;
                if wanted != NEVER {
                    // SAFETY: `state` is that of this timer, and its owner is set by the type
                    // invariants.
                    unsafe { this.start(state, wanted) };
                    queued = true;
                }
            }

            let owner = if queued {
                state.owner.clone()
            } else {
                // INVARIANT: It is not queued, and its function has taken the lock.
                state.owner.take()
            };

            (owner, due)
        };

        // From here on only `owner` keeps the object, and with it the timer, alive.
        if let Some(owner) = owner {
            if due {
                T::expired(owner.as_arc_borrow());
            }
            // This may free the timer. The C side doesn't touch it after the function has returned
            // this value, unless it is queued again, and then there is another owner.
        }
        bindings::hrtimer_restart::HRTIMER_NORESTART
    }
}

#[pinned_drop]
impl<T: HasDeadline<ID>, const ID: u64> PinnedDrop for DeadlineTimer<T, ID> {
    fn drop(self: Pin<&mut Self>) {
        // If the whole object is being dropped, there is no owner and the timer is not queued. But
        // the timer may be dropped in place before its object. It has to be cancelled then.
        let owned = {
            let mut state = self.state.lock();

            state.shut_down = true;
            state.owner.is_some()
        };

        if owned {
            self.cancel();
        }
    }
}
