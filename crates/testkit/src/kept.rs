//! The seed inputs of the fuzzers in `fuzz/corpus`, and the inputs that once failed in `fuzz/regressions`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// Calls a target with each of its stored inputs. Prints the name of the one at which it panics.
pub fn each_kept_input(name: &str, target: impl Fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let files = |dir: &str| {
        let entries = fs::read_dir(fuzz.join(dir).join(name)).into_iter().flatten();
        entries.map(|entry| entry.expect("a directory that can be listed").path()).collect::<Vec<PathBuf>>()
    };
    let seeds = files("corpus");
    assert!(!seeds.is_empty(), "fuzz/corpus/{name} holds nothing to begin with");
    let read = |path: PathBuf| (path.display().to_string(), fs::read(&path).expect("a file that can be read"));
    let files = seeds.into_iter().chain(files("regressions")).map(read);
    let generated = generated_seeds(name).into_iter().map(|seed| (format!("{seed:?}"), seed.into_bytes()));
    for (place, bytes) in files.chain(generated) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&bytes))) {
            // The panic message is printed above this line.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("at {place}\n").as_bytes());
            resume_unwind(panic);
        }
    }
}

/// Returns the seeds of a target that are taken from other test data: for `triggers`, the table of shell commands.
pub fn generated_seeds(name: &str) -> Vec<String> {
    if name != "triggers" {
        return Vec::new();
    }
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-triggers/tests/it/data/commands.tsv");
    let text = fs::read_to_string(table).expect("the table of commands");
    let rows = text.lines().filter(|line| !line.starts_with("# ")).filter_map(|line| line.splitn(3, '\t').nth(2));
    rows.map(unescape_command).collect()
}

/// Decodes a command of that table: `\n`, `\t` and, for a continued line, `\\n`. A backslash before any other character
/// is kept.
pub fn unescape_command(text: &str) -> String {
    text.replace("\\\\n", "\\\u{1}").replace("\\n", "\n").replace("\\t", "\t").replace('\u{1}', "\n")
}
