// SPDX-License-Identifier: GPL-2.0

//! What a provider adds to the entries of `rdma resource show -dd`.

use core::marker::PhantomData;
use kernel::{
    ffi::{
        c_char,
        c_int, //
    },
    prelude::*, //
};
use rdma_bindings as bindings;

/// Longest name or text, with its NUL.
const TEXT_LEN: usize = 48;

/// A name or text as C has it; what is too long is cut.
struct Text([u8; TEXT_LEN]);

impl Text {
    fn new(text: &str) -> Self {
        let mut out = [0; TEXT_LEN];
        for (to, from) in out.iter_mut().take(TEXT_LEN - 1).zip(text.bytes()) {
            *to = from;
        }
        Self(out)
    }

    fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// The provider's part of an object's entry, under construction.
///
/// # Invariants
///
/// `msg` is a message of the core's with an open nest for the provider's part.
pub struct Detail<'a> {
    msg: *mut kernel::bindings::sk_buff,
    full: bool,
    _msg: PhantomData<&'a mut ()>,
}

impl Detail<'_> {
    /// Fills the provider's part of a message and returns what the core wants to know of it: 0, or
    /// `-EMSGSIZE` if there was no room, after which the core tries again with another message.
    ///
    /// # Safety
    ///
    /// `msg` must be the message that the core passes to a `fill_res_*_entry` operation.
    pub(crate) unsafe fn fill(
        msg: *mut kernel::bindings::sk_buff,
        f: impl FnOnce(&mut Detail<'_>),
    ) -> c_int {
        // SAFETY: The caller promises a valid message.
        let nest = unsafe { bindings::rdma_driver_nest_start(msg) };
        if nest.is_null() {
            return EMSGSIZE.to_errno();
        }
        // INVARIANT: The nest was just opened.
        let mut detail = Detail {
            msg,
            full: false,
            _msg: PhantomData,
        };
        f(&mut detail);
        let full = detail.full;
        // SAFETY: `nest` was opened in `msg` above; it is ended once.
        unsafe { bindings::rdma_driver_nest_end(msg, nest, full) };
        if full {
            EMSGSIZE.to_errno()
        } else {
            0
        }
    }

    /// Adds a number.
    pub fn number(&mut self, name: &str, value: u64) {
        let name = Text::new(name);
        // SAFETY: By the type invariant the message is valid, and the name ends in a NUL.
        let ret = unsafe {
            match u32::try_from(value) {
                Ok(value) => bindings::rdma_nl_put_driver_u32(self.msg, name.as_ptr(), value),
                Err(_) => bindings::rdma_nl_put_driver_u64(self.msg, name.as_ptr(), value),
            }
        };
        self.full |= ret != 0;
    }

    /// Adds a text.
    pub fn text(&mut self, name: &str, value: &str) {
        let (name, value) = (Text::new(name), Text::new(value));
        // SAFETY: As above, for both.
        let ret =
            unsafe { bindings::rdma_nl_put_driver_string(self.msg, name.as_ptr(), value.as_ptr()) };
        self.full |= ret != 0;
    }
}
