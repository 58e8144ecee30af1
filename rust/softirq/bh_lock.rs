// SPDX-License-Identifier: GPL-2.0

//! A spinlock that keeps softirqs away.

use core::cmp::Ordering;

use kernel::{
    ffi::c_char,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    }, //
};

use crate::bindings;

/// Creates a [`BhSpinLock`] initialiser with the given name and a newly-created lock class.
///
/// It uses the name if one is given, otherwise it generates one based on the file name and line
/// number.
///
/// [`BhSpinLock`]: crate::BhSpinLock
#[macro_export]
macro_rules! new_bh_spinlock {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::BhSpinLock::new(
            $inner, ::kernel::optional_name!($($name)?), ::kernel::sync::static_lock_class!())
    };
}

/// A spinlock that can be taken in process and softirq context.
///
/// It is a [`Lock`] of the kernel crate and has the same interface as the kernel's own
/// [`SpinLock`], which can't be used by both: a softirq that interrupts the holder of the lock on
/// the same CPU would wait for it forever.
///
/// While it is held no softirq runs on the CPU of the holder. That is had in one of two ways:
///
/// - a softirq could run when the lock is taken: bottom halves are disabled along with it, as
///   `spin_lock_bh` does;
/// - none can run anyway, so the lock is taken plainly. That is so in a softirq, with another such
///   lock held, and with interrupts disabled. Then bottom halves must be left alone, for they can't be
///   enabled again while interrupts are disabled: this is the case in callbacks of subsystems that
///   may be called from code that holds a lock taken with `spin_lock_irqsave`.
///
/// Guards must nest, with each other and with the state of bottom halves and interrupts: whoever
/// takes the lock while no softirq can run must release it before any can. Otherwise a softirq may
/// deadlock on the lock (lockdep complains). The other way round, the lock taken with interrupts
/// enabled and released with interrupts disabled, is no problem except that pending softirqs are
/// delayed.
///
/// Context: any. Not in hard interrupts, whatever the state of the interrupts in the other users.
///
/// # Examples
///
/// ```ignore
/// #[pin_data]
/// struct Queue {
///     #[pin]
///     waiting: BhSpinLock<u32>,
/// }
///
/// impl Queue {
///     fn new() -> impl PinInit<Self> {
///         pin_init!(Self { waiting <- new_bh_spinlock!(0, "Queue::waiting") })
///     }
/// }
/// ```
///
/// [`SpinLock`]: kernel::sync::SpinLock
pub type BhSpinLock<T> = Lock<T, BhSpinLockBackend>;

/// The guard of a [`BhSpinLock`].
pub type BhSpinLockGuard<'a, T> = Guard<'a, T, BhSpinLockBackend>;

/// The backend of [`BhSpinLock`].
pub struct BhSpinLockBackend;

// SAFETY: The underlying `spinlock_t` ensures mutual exclusion, with either way to lock it.
// `relock` uses the default implementation that calls `lock`.
unsafe impl Backend for BhSpinLockBackend {
    type State = bindings::spinlock_t;

    /// Whether bottom halves were disabled along with the lock.
    type GuardState = bool;

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: The safety requirements ensure that `ptr` is valid for writes, and `name` and
        // `key` are valid for read indefinitely.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The safety requirements ensure that `ptr` points to an initialised lock.
        unsafe { bindings::bh_spin_lock(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The safety requirements ensure that `ptr` points to an initialised lock.
        match unsafe { bindings::bh_spin_trylock(ptr) } {
            0 => None,
            how => Some(how == 2),
        }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The safety requirements ensure that the caller owns the lock that `ptr` points
        // to. The guard state is what locking it returned, so bottom halves are enabled if and
        // only if they were disabled.
        unsafe { bindings::bh_spin_unlock(ptr, *guard_state) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // Else nobody knows, and it is asked each time that the lock is taken.
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The safety requirements ensure that `ptr` points to an initialised lock.
            unsafe { bindings::spin_assert_is_held(ptr) }
        }
    }
}

/// Two locks of one kind, both held.
///
/// Whoever needs both gets them by [`lock_both`], always: it takes them in the order of their
/// addresses, so that nobody waits for one while holding the other.
pub struct BothGuards<'a, T> {
    // In this order they are released: bottom halves stay disabled until both are.
    second: BhSpinLockGuard<'a, T>,
    first: BhSpinLockGuard<'a, T>,
    swapped: bool,
}

impl<T: Unpin> BothGuards<'_, T> {
    /// What they protect, in the order that [`lock_both`] was given.
    pub fn get(&mut self) -> (&mut T, &mut T) {
        if self.swapped {
            (&mut *self.second, &mut *self.first)
        } else {
            (&mut *self.first, &mut *self.second)
        }
    }
}

/// Takes two locks; [`None`] if both are the same.
///
/// Context: as for [`BhSpinLock`].
pub fn lock_both<'a, T>(a: &'a BhSpinLock<T>, b: &'a BhSpinLock<T>) -> Option<BothGuards<'a, T>> {
    let swapped = match core::ptr::from_ref(a).cmp(&core::ptr::from_ref(b)) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => return None,
    };
    let (first, second) = if swapped { (b, a) } else { (a, b) };
    let first = first.lock();
    // The state is the first field of the type, as `Lock::from_raw` relies on.
    let state = core::ptr::from_ref(second)
        .cast::<bindings::spinlock_t>()
        .cast_mut();

    // SAFETY:
    // - it is an initialised lock, and another than the one that is held: that keeps bottom halves
    //   or interrupts disabled until both are released, see `BothGuards`;
    // - nobody takes two in another order, so nobody who holds this one waits for the first.
    unsafe { bindings::spin_lock_second(state) };
    Some(BothGuards {
        // SAFETY: It was just acquired, without disabling bottom halves.
        second: unsafe { BhSpinLockGuard::new(second, false) },
        first,
        swapped,
    })
}
