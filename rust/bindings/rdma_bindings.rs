// SPDX-License-Identifier: GPL-2.0

//! Raw bindings to the C of the RDMA subsystem and of what it needs of the
//! network stack, on top of those of the kernel crate.
//!
//! Not for drivers: the `softirq`, `net` and `rdma` crates make safe types of it.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::cast_lossless,
    clippy::as_underscore,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    improper_ctypes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unnecessary_transmutes
)]

mod raw {
    use kernel::{bindings::*, ffi};
    use pin_init::{MaybeZeroable, Zeroable};

    // SAFETY: A newtype around `Storage`.
    unsafe impl<Storage: Zeroable> Zeroable for __BindgenBitfieldUnit<Storage> {}
    include!(concat!(
        env!("RXO_OBJ"),
        "/rust/bindings/bindings_generated.rs"
    ));
}

mod helpers {
    use super::raw::{
        ib_device,
        *, //
    };
    use kernel::{bindings::*, ffi};
    include!(concat!(
        env!("RXO_OBJ"),
        "/rust/bindings/helpers_generated.rs"
    ));
}

pub use helpers::*;
pub use raw::*;
// The kernel crate may have an opaque type of this name.
pub use raw::ib_device;

// What bindgen saw is what the C compiler sees.
const _: () = assert!(size_of::<ib_device>() == SIZEOF_IB_DEVICE);
const _: () = assert!(size_of::<ib_device_ops>() == SIZEOF_IB_DEVICE_OPS);
const _: () = assert!(size_of::<ib_qp>() == SIZEOF_IB_QP);
