//! Code shared by all targets: a memory limit, and a panic hook that lets piton catch the panics it handles.
//!
//! The fuzzed functions and their assertions are beside the code under test: `piton::fuzz` and `piton_cli::fuzz`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of bytes allocated for inputs of some kilobytes. Without this limit, memory that is allocated but
/// never used would go unnoticed.
const BYTES_MAX: usize = 256 << 20;

struct Limited;

static BYTES: AtomicUsize = AtomicUsize::new(0);

fn grow(by: usize) {
    if BYTES.fetch_add(by, Ordering::Relaxed).saturating_add(by) > BYTES_MAX {
        // Nothing here may allocate, so the process aborts; the fuzzer keeps the input.
        std::process::abort();
    }
}

fn shrink(by: usize) {
    BYTES.fetch_sub(by, Ordering::Relaxed);
}

// Safety: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        shrink(layout.size());
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        shrink(layout.size());
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited;

/// Replaces the hook that aborts the process on every panic: piton catches panics of the library that parses shell
/// commands. An uncaught panic still ends the process.
pub fn let_panics_be_caught() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}

/// Defines a target: the crate that contains the function, and the name of the function there.
#[macro_export]
macro_rules! target {
    ($in:ident, $name:literal) => {
        libfuzzer_sys::fuzz_target!(init: $crate::let_panics_be_caught(), |bytes: &[u8]| {
            $in::fuzz::target($name).expect("a target of this name")(bytes);
        });
    };
}
