//! What all targets share: a limit on memory, and that a panic which piton catches stays caught.
//!
//! What is called and what must hold is with the code that it is about: `piton::fuzz` and `piton_cli::fuzz`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What inputs of some kilobytes may come to. Without a limit of our own, room that is asked for and never used would not
/// be seen.
const BYTES_MAX: usize = 256 << 20;

struct Limited;

static BYTES: AtomicUsize = AtomicUsize::new(0);

fn grow(by: usize) {
    if BYTES.fetch_add(by, Ordering::Relaxed).saturating_add(by) > BYTES_MAX {
        // Nothing here may ask for memory; the fuzzer keeps the input of a process that ends so.
        std::process::abort();
    }
}

fn shrink(by: usize) {
    BYTES.fetch_sub(by, Ordering::Relaxed);
}

// Safety: everything is passed on to the system's allocator as it came.
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

/// Takes the place of the hook that ends the process at every panic: piton catches those of the library that parses shell
/// commands. One that nobody catches ends the process all the same.
pub fn let_panics_be_caught() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}

/// A target: the crate that it is in, and its name there.
#[macro_export]
macro_rules! target {
    ($in:ident, $name:literal) => {
        libfuzzer_sys::fuzz_target!(init: $crate::let_panics_be_caught(), |bytes: &[u8]| {
            $in::fuzz::target($name).expect("a target of this name")(bytes);
        });
    };
}
