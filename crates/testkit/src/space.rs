//! How much a directory takes while something is done to it: another thread looks all the time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a directory came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Before.
    pub before: u64,
    /// At most, meanwhile.
    pub peak: u64,
    /// Afterwards.
    pub after: u64,
    /// How often it was looked at.
    pub looks: u64,
}

impl Space {
    /// What it took at most besides what it took before, in thousandths of that.
    pub fn extra_permille(&self) -> u64 {
        self.peak.saturating_sub(self.before) * 1000 / self.before.max(1)
    }
}

/// The length of all files below a directory, which is what the limit on the size counts.
pub fn bytes_below(dir: &Path) -> u64 {
    let mut bytes = 0;
    crate::walk(dir, &mut |path| {
        let found = path.symlink_metadata();
        bytes += found.map_or(0, |found| if found.is_dir() { 0 } else { found.len() });
    });
    bytes
}

/// Does something, and looks at a directory meanwhile.
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
