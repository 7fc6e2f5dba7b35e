//! Detects hooks that call a program that is missing, does not run or is older than this one: agents name piton by an
//! absolute path, and an upgrade may move it. Read only.

use std::fs;
use std::path::Path;
use std::process::Command;

use piton::Store;

use super::fire;
use super::record::Records;
use crate::context::Context;
use crate::hints::Problem;

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns a problem for each installation whose hooks call a program that does not do what this one does, as the records
/// of the store name it. An installation of a version that did not record its program is left out.
pub(crate) fn stale_hooks(store: &Store) -> Vec<Problem> {
    let mut problems = Vec::new();
    for record in Records::read_only(&store.installs_dir()).all() {
        let Some(why) = record.program.as_deref().and_then(why_stale) else { continue };
        let project = record.project.as_ref();
        let place = project.map_or_else(String::new, |dir| format!(" in {}", dir.display()));
        let (option, agent) = (if project.is_some() { " --project" } else { "" }, record.agent);
        let hint = format!("`piton install{option} {agent}`{place} puts the path right");
        problems.push(Problem::new(format!("the hooks of {agent}{place} call {why}"), hint));
    }
    problems
}

/// Returns the program and what is wrong with it as the program of hooks; `None` if nothing is.
pub(crate) fn why_stale(program: &str) -> Option<String> {
    let path = Path::new(program);
    if !path.is_file() {
        return Some(format!("{program}, which is not there"));
    }
    if is_this_program(program) {
        return None;
    }
    match version_of(path) {
        Ok(version) if is_older(&version, VERSION) => {
            Some(format!("{program}, which is piton {version}; this is piton {VERSION}"))
        }
        Ok(_) => None,
        Err(why) => Some(format!("{program}, which does not say its version: {why}")),
    }
}

/// Returns true if a path leads to the running program.
pub(crate) fn is_this_program(program: &str) -> bool {
    let this = Context::program().ok().and_then(|path| fs::canonicalize(path).ok());
    this.is_some() && this == fs::canonicalize(program).ok()
}

fn version_of(program: &Path) -> Result<String, String> {
    let answer = fire::answer(Command::new(program).arg("--version"), &[])?;
    let version = answer.stdout.trim().strip_prefix("piton ").map(str::to_owned);
    version.ok_or_else(|| "it does not answer as piton does".to_owned())
}

/// Compares the numbers of two versions. Words after a number, as in `1.0.0-rc.1`, do not count.
fn is_older(version: &str, than: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
        text.split('.').take(3).map(|part| digits(part).parse().unwrap_or(0)).collect()
    };
    numbers(version) < numbers(than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (one, other) in [("0.9.9", "0.10.0"), ("0.1.0", "0.1.1"), ("1.2.3", "2.0.0-rc.1"), ("", "0.1.0")] {
            assert!(is_older(one, other) && !is_older(other, one), "{one} {other}");
        }
        assert!(!is_older("1.0.0", "1.0.0"));
    }
}
