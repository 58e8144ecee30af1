// SPDX-License-Identifier: GPL-2.0

//! Deadlines.

use core::{
    mem::size_of,
    ptr, //
};

use kernel::{
    container_of,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    now_ns, //
};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The latest time that the clock can express.
const LATEST: u64 = i64::MAX as u64;

/// What is so many nanoseconds ahead waits on the wheel: some of its ticks, however long they are.
const FAR_NS: u64 = 20_000_000;

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
    /// When the near timer fires, or [`NEVER`] if it is not queued.
    near: u64,
    /// By when the far timer has fired, or [`NEVER`] if it is not queued.
    far: u64,
    /// Keeps the object alive.
    owner: Option<Arc<T>>,
    shut_down: bool,
}

impl<T> State<T> {
    const IDLE: Self = Self {
        wanted: NEVER,
        near: NEVER,
        far: NEVER,
        owner: None,
        shut_down: false,
    };

    /// By when a timer has fired, or [`NEVER`] if none is queued.
    fn programmed(&self) -> u64 {
        self.near.min(self.far)
    }

    /// Returns the deadline, if no timer that is queued fires before.
    fn unattended(&self) -> Option<u64> {
        Some(self.wanted).filter(|&wanted| wanted < self.programmed())
    }

    /// Tells whether a timer is queued.
    fn is_queued(&self) -> bool {
        self.programmed() != NEVER
    }
}

/// A deadline that is moved often and rarely reached.
///
/// It is for timers like that of a retransmission, which is set with each packet. Moving the
/// deadline to a later time or taking it back doesn't touch the underlying timers: one of them fires
/// at the earlier time, notices, and is set anew. So the cost of moving it is that of an uncontended
/// lock.
///
/// There are two of them. What is far ahead is put on the kernel's timer wheel first, which takes
/// the same time for ten thousand timers as for one, and doesn't touch the others. It fires a good
/// while before the deadline. What is left of the way, if the deadline still stands then, is up to a
/// high-resolution timer, which is kept in a tree with all others.
///
/// It is a part of an object in an [`Arc`]. While an underlying timer is queued it holds a
/// reference to that object. Whoever destroys the object calls [`DeadlineTimer::shutdown`] first.
/// If that is forgotten, then the object lives on until the timer fires, and the last reference may
/// be dropped in softirq context.
///
/// The clock is that of [`now_ns`]; the timer is exact within what the hardware gives.
///
/// Locks: it has one of its own, inside of all others, which is never held with interrupts enabled.
/// Nothing is called with it held, except to start the underlying timers.
///
/// # Invariants
///
/// - `timer` and `wheel` are initialised, with `DeadlineTimer::fire` and `DeadlineTimer::approach`
///   as their functions.
/// - Both are started only with the lock of `state` held, and only when `owner` is [`Some`] and
///   refers to the object that this is a part of.
/// - While one of them is queued, or its function is called but has not taken the lock yet, its time
///   in `state` is not [`NEVER`].
/// - While one of these times is not [`NEVER`], `owner` is [`Some`].
#[pin_data(PinnedDrop)]
pub struct DeadlineTimer<T: HasDeadline<ID>, const ID: u64 = 0> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    #[pin]
    wheel: Opaque<bindings::timer_list>,
    #[pin]
    state: SpinLockIrq<State<T>>,
}

// SAFETY: `T` is `Send` and `Sync`, thus `Arc<T>` is `Send`, and timers belong to no thread.
unsafe impl<T: HasDeadline<ID>, const ID: u64> Send for DeadlineTimer<T, ID> {}

// SAFETY: Both timers are only started under a lock, and can be cancelled by many threads at once.
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
            // INVARIANT: It is initialised, and not queued.
            wheel <- Opaque::ffi_init(|slot| {
                // SAFETY: As above.
                unsafe { bindings::wheel_timer_setup(slot, Some(Self::approach)) }
            }),
            state <- new_spinlock_irq!(State::IDLE, "DeadlineTimer::state"),
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

    /// Starts an underlying timer that fires at a deadline, or some time before if it is far.
    ///
    /// # Safety
    ///
    /// `state` must be that of this timer, with `owner` set to the object that this is a part of.
    unsafe fn start(&self, state: &mut State<T>, deadline: u64) {
        let ahead = deadline.saturating_sub(now_ns());

        if ahead >= FAR_NS {
            state.far = deadline;
            // The wheel is late by an eighth of the time and a tick at most.
            //
            // SAFETY: By the type invariants it is initialised. The lock is held, since there is a
            // mutable reference to `state`. The owner keeps the timer in memory while it is queued.
            unsafe { bindings::wheel_timer_start(self.wheel.get(), ahead / 4 * 3) };
            return;
        }
        state.near = deadline;
        // CAST: `LATEST` is the largest value of the type.
        let expires = deadline.min(LATEST) as bindings::ktime_t;

        // SAFETY: As above.
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
        if let Some(deadline) = state.unattended() {
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
    /// Context: any, hard interrupts included.
    pub fn arm(&self, this: ArcBorrow<'_, T>, deadline: u64) {
        self.set(this, deadline, false);
    }

    /// Sets the deadline, unless there is one that is earlier.
    ///
    /// See [`DeadlineTimer::arm`].
    ///
    /// Context: any, hard interrupts included.
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
        self.close();
        self.cancel();
    }

    /// Takes the deadline back for good, and tells whether a timer is queued or its function is
    /// called. From now on they are not started any more.
    fn close(&self) -> bool {
        let mut state = self.state.lock();

        state.shut_down = true;
        state.wanted = NEVER;
        state.is_queued()
    }

    /// Waits until the functions of the timers neither run nor will run, and drops the owner.
    ///
    /// Nothing must start the timers meanwhile.
    fn cancel(&self) {
        // SAFETY: By the type invariants both are initialised.
        unsafe {
            bindings::timer_delete_sync(self.wheel.get());
            bindings::hrtimer_cancel(self.timer.get());
        }

        let owner = {
            let mut state = self.state.lock();

            // INVARIANT: The timers are not queued, nor are their functions called.
            state.near = NEVER;
            state.far = NEVER;
            state.owner.take()
        };

        // Outside of the lock, as it may be the last.
        drop(owner);
    }

    /// Sees to it that a timer is queued for the deadline, if there is one. Returns the owner if none
    /// is.
    ///
    /// # Safety
    ///
    /// As for [`DeadlineTimer::start`], if a timer was queued so far.
    unsafe fn go_on(&self, state: &mut State<T>) -> Option<Arc<T>> {
        if let Some(deadline) = state.unattended() {
            // SAFETY: By the safety requirements.
            unsafe { self.start(state, deadline) };
        }
        if state.is_queued() {
            return None;
        }
        // INVARIANT: None is queued, and who called has the lock.
        state.owner.take()
    }

    /// The function of the far timer: what is left is for the other.
    ///
    /// # Safety
    ///
    /// It must be called by the far timer of a `DeadlineTimer<T, ID>`.
    unsafe extern "C" fn approach(wheel: *mut bindings::timer_list) {
        // SAFETY: By the safety requirements it is the timer of such a type. By its invariants
        // `owner` is set and keeps it alive, until it is taken below.
        let this = unsafe { &*container_of!(Opaque::cast_from(wheel), Self, wheel) };

        let owner = {
            let mut state = this.state.lock();
            let state = &mut *state;

            // It may have been started again after it fired. If not, nothing can start it now, as
            // the lock is held, and the timer is not taken off the queue while this runs.
            //
            // SAFETY: By the type invariants it is initialised.
            if !unsafe { bindings::wheel_timer_is_queued(wheel) } {
                // INVARIANT: It is not queued, and its function has taken the lock.
                state.far = NEVER;
            }
            // SAFETY: `state` is that of this timer, and its owner is set by the type invariants.
            unsafe { this.go_on(state) }
        };

        // This may free the timer, which the C side doesn't touch after the function was called.
        drop(owner);
    }

    /// The function of the near timer.
    ///
    /// # Safety
    ///
    /// It must be called by the near timer of a `DeadlineTimer<T, ID>`.
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

            // As for the far timer.
            //
            // SAFETY: By the type invariants it is initialised.
            if !unsafe { bindings::hrtimer_is_queued(timer) } {
                // INVARIANT: It is not queued, and its function has taken the lock.
                state.near = NEVER;
            }
            // SAFETY: `state` is that of this timer, and its owner is set by the type invariants.
            let last = unsafe { this.go_on(state) };

            (last.or_else(|| state.owner.clone()), due)
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
        // If the whole object is being dropped, there is no owner and no timer is queued. But the
        // timer may be dropped in place before its object. It has to be cancelled then.
        if self.close() {
            self.cancel();
        }
    }
}
