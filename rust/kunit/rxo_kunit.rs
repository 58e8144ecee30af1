// SPDX-License-Identifier: GPL-2.0

//! The transport's tests as KUnit suites: a module for test kernels, of which nothing is in `rxo.ko`.
//!
//! The sources are those of `cargo test`, in `rust/transport/tests`. Kbuild wraps each file in an inline module, as the
//! kernel's macro wants it, and gives the asserts the names of those below; no line moves. What they use of `std` is
//! here too: the collections are the toolchain's own `alloc`, compiled for the kernel as `core` is.
//!
//! An assert that fails fails the case, which ends there with all that it had allocated. An index out of range, an
//! `unwrap` of nothing and an overflow panic, and that is a BUG in the kernel.

// Two symbols that the compiler adds to programs (heap.rs).
#![allow(internal_features)]

/// What the tests say besides is of no use in a log.
macro_rules! println {
    () => {};
    ($($what:tt)+) => {
        let _ = format_args!($($what)+);
    };
}
macro_rules! eprint {
    ($($what:tt)+) => { println!($($what)+) };
}
macro_rules! eprintln {
    ($($what:tt)*) => { println!($($what)*) };
}

#[macro_use]
mod assert;
mod heap;

// What the tests know as `std`.
extern crate self as std;
pub use alloc::collections;
pub use core::cmp;

/// The environment: a kernel has none.
pub mod env {
    /// The value of a variable.
    pub fn var(_name: &str) -> Result<alloc::string::String, core::fmt::Error> {
        Err(core::fmt::Error)
    }
}

/// What is in scope without being named.
mod prelude {
    pub(crate) use alloc::boxed::Box;
    pub(crate) use alloc::format;
    pub(crate) use alloc::string::String;
    pub(crate) use alloc::vec;
    pub(crate) use alloc::vec::Vec;
}

/// Includes a file of tests as Kbuild made it.
macro_rules! tests {
    ($name:literal) => {
        include!(concat!(env!("RXO_OBJ"), "/rust/kunit/tests/", $name));
    };
}

tests!("common/mod.rs");
tests!("script.rs");
tests!("runs.rs");
tests!("pair.rs");
tests!("hostile.rs");

kernel::prelude::module! {
    type: RxoKunit,
    name: "rxo_kunit",
    authors: ["The rxo developers"],
    description: "KUnit suites of the InfiniBand transport",
    license: "GPL",
}

/// KUnit finds the suites by itself.
struct RxoKunit;

impl kernel::Module for RxoKunit {
    fn init(_module: &'static kernel::ThisModule) -> kernel::error::Result<Self> {
        Ok(Self)
    }
}
