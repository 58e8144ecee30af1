// SPDX-License-Identifier: GPL-2.0

//! A value that is taken away from under its users.

use core::{
    cell::UnsafeCell,
    ops::Deref, //
};

use kernel::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

use crate::gate::{
    Gate,
    Pass, //
};

/// A value that users enter to use, until its owner takes it back.
///
/// For what must be released at a given time and in a context that may sleep, though references to
/// the object around it live on, such as pinned memory.
///
/// # Invariants
///
/// - `value` is accessed through a shared reference only by holders of a pass of `gate`.
/// - It is taken at most once, by whoever set `taken`, after `gate` was closed.
#[pin_data]
pub struct RunDown<T> {
    #[pin]
    gate: Gate,
    taken: Atomic<u32>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: It owns a `T` and hands it to another thread only by `take`.
unsafe impl<T: Send> Send for RunDown<T> {}

// SAFETY: A shared reference gives access to `&T` (hence `Sync`) and, by `take`, to `T` (`Send`).
unsafe impl<T: Send + Sync> Sync for RunDown<T> {}

impl<T> RunDown<T> {
    /// Lets users at `value`.
    pub fn new(value: T) -> impl PinInit<Self> {
        pin_init!(Self {
            gate <- Gate::new(),
            taken: Atomic::new(0),
            value: UnsafeCell::new(Some(value)),
        })
    }

    /// Enters, or returns [`None`] if the value has been taken back.
    ///
    /// Context: any.
    #[inline]
    pub fn enter(&self) -> Option<Inside<'_, T>> {
        let pass = self.gate.enter()?;
        // SAFETY: A pass is held: by the type invariants nobody takes the value while it is.
        let value = unsafe { (*self.value.get()).as_ref() }?;

        Some(Inside { value, _pass: pass })
    }

    /// Lets nobody in from now on, waits until all users have left, and returns the value to the
    /// first who calls this.
    ///
    /// It must not be called by a user who is inside.
    ///
    /// Context: process.
    pub fn take(&self) -> Option<T> {
        self.gate.close();
        if self.taken.xchg(1, ordering::Full) != 0 {
            return None;
        }
        // SAFETY: The gate is closed and empty, so no shared reference exists or will; `taken` was
        // clear, so no other call gets here.
        unsafe { (*self.value.get()).take() }
    }
}

/// Access to the value of a [`RunDown`]; it stays until this is dropped.
pub struct Inside<'a, T> {
    value: &'a T,
    _pass: Pass<'a>,
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}
