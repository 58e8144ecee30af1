// SPDX-License-Identifier: GPL-2.0

//! The heap of `alloc`: the kernel's.

use core::alloc::{
    GlobalAlloc,
    Layout, //
};
use core::ptr::NonNull;

use kernel::alloc::allocator::KVmalloc;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::alloc::{
    Allocator,
    NumaNode, //
};

/// Memory of `kvmalloc`.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// The address of an allocation, or null.
fn address(memory: Result<NonNull<[u8]>, kernel::alloc::AllocError>) -> *mut u8 {
    memory.map_or(core::ptr::null_mut(), |m| m.cast().as_ptr())
}

// SAFETY: `KVmalloc` gives memory of the layout asked for, which is the caller's alone until freed or reallocated, and
// keeps the content of what it reallocates. Nothing here unwinds.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        address(KVmalloc::alloc(layout, GFP_KERNEL, NumaNode::NO_NODE))
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if let Some(memory) = NonNull::new(memory) {
            // SAFETY: By the contract of this function, `memory` is of `alloc` or `realloc`, with this layout, and
            // nobody uses it.
            unsafe { KVmalloc::free(memory, layout) }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else {
            return core::ptr::null_mut();
        };
        // SAFETY: By the contract of this function, `memory` is of `alloc` or `realloc`, with this layout; if this
        // fails it is as it was.
        address(unsafe {
            KVmalloc::realloc(
                NonNull::new(memory),
                new,
                layout,
                GFP_KERNEL,
                NumaNode::NO_NODE,
            )
        })
    }
}

/// What the compiler adds where it links a program, which nobody does here.
mod linked {
    /// Called with each allocation, for nothing.
    #[rustc_std_internal_symbol]
    fn __rust_no_alloc_shim_is_unstable_v2() {}

    /// There was no memory.
    #[rustc_std_internal_symbol]
    fn __rust_alloc_error_handler(size: usize, _align: usize) -> ! {
        case_panic!("no memory for {size} bytes")
    }
}
