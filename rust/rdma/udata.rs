// SPDX-License-Identifier: GPL-2.0

//! The provider's part of a user command and of its answer.

use core::mem::MaybeUninit;
use kernel::{
    error::to_result,
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};
use rdma_bindings as bindings;

/// The provider's part of a command.
///
/// # Invariants
///
/// `raw` is null (kernel consumers) or valid during `'a`.
pub struct Udata<'a> {
    raw: *mut bindings::ib_udata,
    _p: core::marker::PhantomData<&'a ()>,
}

impl<'a> Udata<'a> {
    /// # Safety
    ///
    /// `raw` must be null or valid during `'a`.
    pub(crate) unsafe fn new(raw: *mut bindings::ib_udata) -> Self {
        // INVARIANT: The caller's promise.
        Self {
            raw,
            _p: core::marker::PhantomData,
        }
    }

    /// Tells whether a process sent the command.
    pub fn is_user(&self) -> bool {
        !self.raw.is_null()
    }

    /// Room for the answer, in bytes.
    pub fn reply_room(&self) -> usize {
        // SAFETY: Null or valid, by the type invariant.
        unsafe { self.raw.as_ref() }.map_or(0, |u| u.outlen)
    }

    /// Refuses a command that carries input which is not all zero.
    pub fn expect_no_input(&self) -> Result {
        if self.raw.is_null() {
            return Ok(());
        }
        // SAFETY: Valid; the function checks the lengths itself.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(self.raw, core::ptr::null_mut(), 0, 0)
        })
    }

    /// Copies the input. Fields that the process does not know of are zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` for kernel consumers and for less input than `T`; `EOPNOTSUPP` for more of it
    /// that is not all zero; `EFAULT`.
    pub fn input<T: FromBytes + Copy>(&self) -> Result<T> {
        if self.raw.is_null() {
            return Err(EINVAL);
        }
        let mut out = MaybeUninit::<T>::zeroed();
        // SAFETY: Valid; `out` has room for the bytes asked for.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.raw,
                out.as_mut_ptr().cast(),
                size_of::<T>(),
                size_of::<T>(),
            )
        })?;
        // SAFETY: Zeroed and then written as bytes, and `T` is valid for all of them.
        Ok(unsafe { out.assume_init() })
    }

    /// Copies the answer to the process, as much of it as there is room for, and zeroes the rest.
    pub fn reply<T: AsBytes>(&self, answer: &T) -> Result {
        if self.raw.is_null() {
            return Ok(());
        }
        let bytes = answer.as_bytes();
        // SAFETY: `raw` is valid; `bytes` is readable for its length.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.raw, bytes.as_ptr().cast(), bytes.len())
        })
    }
}
