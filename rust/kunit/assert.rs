// SPDX-License-Identifier: GPL-2.0

//! Asserts that fail the KUnit case that runs, instead of the kernel.
//!
//! The macro of the kernel crate has its own, which take no message and aren't seen by functions that tests share.

use core::ffi::CStr;
use core::fmt;

use kernel::{
    bindings,
    str::CStrExt as _, //
};

/// Fails the case that runs, and ends it.
pub(crate) fn fail(file: &'static CStr, line: u32, what: fmt::Arguments<'_>) -> ! {
    let loc = bindings::kunit_loc {
        file: file.as_char_ptr(),
        line: line as i32,
    };
    let assert = bindings::kunit_assert {};
    // SAFETY: There are no requirements.
    let test = unsafe { bindings::kunit_get_current_test() };
    if test.is_null() {
        panic!("{what}");
    }
    // SAFETY: `test` is the test of this thread, which waits for us. The other pointers are to what lives until the end
    // of this function, and is not kept: what is to be said is formatted at once, by the function given, which
    // takes no more of `assert` than its address; `%pA` goes with a pointer to `fmt::Arguments`.
    unsafe {
        bindings::__kunit_do_failed_assertion(
            test,
            &loc,
            bindings::kunit_assert_type_KUNIT_ASSERTION,
            &assert,
            Some(bindings::kunit_fail_assert_format),
            c"    %pA\n".as_char_ptr(),
            core::ptr::from_ref(&what),
        );
    }
    // SAFETY: `test` is the test of this thread, which ends here. No destructor runs, so what the frames above own is
    // leaked, and nothing of it is pinned, or known to anybody else.
    unsafe { bindings::__kunit_abort(test) }
}

/// [`panic!`]: fails the case.
macro_rules! case_panic {
    ($($what:tt)+) => {
        $crate::assert::fail(
            const {
                match core::ffi::CStr::from_bytes_with_nul(concat!(file!(), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            },
            line!(),
            format_args!($($what)+),
        )
    };
}

/// [`assert!`].
macro_rules! case_assert {
    ($cond:expr $(,)?) => {
        case_assert!($cond, "{}", stringify!($cond))
    };
    ($cond:expr, $($what:tt)+) => {
        if !$cond {
            case_panic!($($what)+)
        }
    };
}

/// [`assert_eq!`] and [`assert_ne!`] in one, by the operator.
macro_rules! case_compare {
    ($op:tt, $left:expr, $right:expr, $what:expr) => {
        match (&$left, &$right) {
            (left, right) => {
                if !(*left $op *right) {
                    case_panic!("{}\n    left:  {left:?}\n    right: {right:?}", $what)
                }
            }
        }
    };
}

/// [`assert_eq!`].
macro_rules! case_assert_eq {
    ($left:expr, $right:expr $(,)?) => {
        case_compare!(==, $left, $right, concat!(stringify!($left), " == ", stringify!($right)))
    };
    ($left:expr, $right:expr, $($what:tt)+) => {
        case_compare!(==, $left, $right, format_args!($($what)+))
    };
}

/// [`assert_ne!`].
macro_rules! case_assert_ne {
    ($left:expr, $right:expr $(,)?) => {
        case_compare!(!=, $left, $right, concat!(stringify!($left), " != ", stringify!($right)))
    };
    ($left:expr, $right:expr, $($what:tt)+) => {
        case_compare!(!=, $left, $right, format_args!($($what)+))
    };
}
