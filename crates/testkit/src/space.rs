//! Disk usage of a directory during an operation, sampled continuously by a second thread.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a directory before, during and after an operation, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size before.
    pub before: u64,
    /// Largest size seen during the operation.
    pub peak: u64,
    /// Size afterwards.
    pub after: u64,
    /// Number of samples.
    pub looks: u64,
}

impl Space {
    /// Returns the peak growth in thousandths of the size before.
    pub fn extra_permille(&self) -> u64 {
        self.peak.saturating_sub(self.before) * 1000 / self.before.max(1)
    }
}

/// Returns the total length of all files below a directory, as the size limit counts it.
pub fn bytes_below(dir: &Path) -> u64 {
    let mut bytes = 0;
    crate::walk(dir, &mut |path| {
        let found = path.symlink_metadata();
        bytes += found.map_or(0, |found| if found.is_dir() { 0 } else { found.len() });
    });
    bytes
}

/// Runs `work` and samples the size of a directory while it runs.
pub fn measure(dir: &Path, work: impl FnOnce()) -> Space {
    let before = bytes_below(dir);
    let is_over = AtomicBool::new(false);
    let (peak, looks) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut peak, mut looks) = (before, 0);
            while !is_over.load(Ordering::Acquire) {
                peak = peak.max(bytes_below(dir));
                looks += 1;
            }
            (peak, looks)
        });
        work();
        is_over.store(true, Ordering::Release);
        watcher.join().expect("looking does not fail")
    });
    Space { before, peak, after: bytes_below(dir), looks }
}
