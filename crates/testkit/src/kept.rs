//! The inputs that fuzzing is seeded with, and those that once broke something: `fuzz/corpus` and `fuzz/regressions`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// Calls a target with each input that is kept for it. Names the one at which it panics.
pub fn each_kept_input(name: &str, target: impl Fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let files = |dir: &str| {
        let entries = fs::read_dir(fuzz.join(dir).join(name)).into_iter().flatten();
        entries.map(|entry| entry.expect("a directory that can be listed").path()).collect::<Vec<PathBuf>>()
    };
    let seeds = files("corpus");
    assert!(!seeds.is_empty(), "fuzz/corpus/{name} holds nothing to begin with");
    for path in seeds.into_iter().chain(files("regressions")) {
        let bytes = fs::read(&path).expect("a file that can be read");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&bytes))) {
            // The panic itself is printed above this.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("at {}\n", path.display()).as_bytes());
            resume_unwind(panic);
        }
    }
}
