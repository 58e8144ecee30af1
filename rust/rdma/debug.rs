// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs whose contents are made when they are read.
//!
//! Unlike those of the kernel crate they hold the module while they are open, since part of their
//! operations lies in it. A device's removal does not wait for who has its file open, only for
//! who is reading it; to read on gives an error.

use core::ptr;
use kernel::{
    error::from_err_ptr,
    ffi::{
        c_int,
        c_void, //
    },
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    str::CStr,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// A file or folder, removed when dropped.
///
/// # Invariants
///
/// `raw` was returned by debugfs, without error, and is removed by nobody else: not by the removal
/// of the folder that it is in either, as `_parent` is removed later.
struct Entry {
    raw: *mut kernel::bindings::dentry,
    _parent: Option<Arc<Entry>>,
}

// SAFETY: debugfs's functions may be called by any thread.
unsafe impl Send for Entry {}
// SAFETY: As above.
unsafe impl Sync for Entry {}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is there and is removed once. This waits for readers.
        unsafe { bindings::debug_remove(self.raw) };
    }
}

/// A folder in debugfs, there as long as it or anything in it is.
#[derive(Clone)]
pub struct DebugDir(Arc<Entry>);

impl DebugDir {
    /// Makes a folder, in another one or at the top. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST`; `ENODEV` without debugfs; `ENOMEM`.
    pub fn new(name: &CStr, parent: Option<&DebugDir>) -> Result<Self> {
        let raw = parent.map_or(ptr::null_mut(), |p| p.0.raw);
        // SAFETY: The name ends in a NUL and is copied; the parent is null or a folder that is
        // there.
        let raw = from_err_ptr(unsafe { bindings::debug_new_dir(name.as_char_ptr(), raw) })?;
        // INVARIANT: Just made. If there is no memory for the `Arc`, it is removed at once.
        let entry = Entry {
            raw,
            _parent: parent.map(|p| p.0.clone()),
        };
        Ok(Self(Arc::new(entry, GFP_KERNEL)?))
    }
}

/// What the file's inode points to.
#[repr(C)]
struct Target<T> {
    /// First: it is what the helper that opens the file looks for.
    show: unsafe extern "C" fn(*mut kernel::bindings::seq_file, *mut c_void) -> c_int,
    data: T,
}

/// A file that root may read, and that shows `T` as it is at that time. Removed when dropped.
pub struct DebugFile<T: fmt::Display + Send + Sync> {
    // Goes first: nobody reads the target after that.
    _entry: Entry,
    _target: KBox<Target<T>>,
}

impl<T: fmt::Display + Send + Sync> DebugFile<T> {
    /// Makes a file. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`DebugDir::new`].
    pub fn new(name: &CStr, dir: &DebugDir, data: T) -> Result<Self> {
        let target = KBox::new(
            Target {
                show: show::<T>,
                data,
            },
            GFP_KERNEL,
        )?;
        // SAFETY:
        // - The name ends in a NUL and is copied; the folder is there.
        // - The target begins with the function, and stays in place until after the file is
        //   removed, which waits for who opens or reads it.
        let raw = from_err_ptr(unsafe {
            bindings::debug_new_file(
                name.as_char_ptr(),
                dir.0.raw,
                (&raw const *target).cast::<c_void>().cast_mut(),
            )
        })?;
        Ok(Self {
            // INVARIANT: Just made.
            _entry: Entry {
                raw,
                _parent: Some(dir.0.clone()),
            },
            _target: target,
        })
    }
}

/// Shows a target.
///
/// # Safety
///
/// To be called as seq_file calls it, with a `Target<T>` as its private data.
unsafe extern "C" fn show<T: fmt::Display + Send + Sync>(
    seq: *mut kernel::bindings::seq_file,
    _: *mut c_void,
) -> c_int {
    // SAFETY: By the safety requirement; it is only ever shared.
    let target = unsafe { &*(*seq).private.cast::<Target<T>>() };
    // SAFETY: It is valid and this thread's during the call.
    let seq = unsafe { SeqFile::from_raw(seq) };
    seq_print!(seq, "{}", target.data);
    0
}
