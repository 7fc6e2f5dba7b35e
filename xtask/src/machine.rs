//! Facts about the machine, without which measured times cannot be interpreted.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::measure::{self, isolated};

pub(crate) fn facts(work: &Path, piton: &Path, home: &Path) -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let version = |command: &mut Command| {
        let text = measure::text(command).unwrap_or_default();
        text.lines().next().map_or_else(|| "not installed".to_owned(), str::to_owned)
    };
    vec![
        ("date", version(isolated("date", home).arg("-I"))),
        ("processor", format!("{cores} cores, {}", value_of("/proc/cpuinfo", "model name"))),
        ("memory", value_of("/proc/meminfo", "MemTotal")),
        ("load at the start", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()),
        ("kernel", fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()),
        ("file system", file_system(work).unwrap_or_else(|| "unknown".to_owned())),
        ("piton", version(isolated(piton, home).arg("--version"))),
        ("git", version(isolated("git", home).arg("--version"))),
        ("restic", version(isolated("restic", home).arg("version"))),
    ]
}

fn value_of(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// Returns the type of the deepest mount that contains `path`; of several mounts on the same path, the last one is
/// visible.
fn file_system(path: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let path = path.canonicalize().ok()?;
    let holding = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let place = Path::new(fields.next()?);
        path.starts_with(place).then_some((place.components().count(), fields.next()?))
    });
    holding.max_by_key(|&(depth, _)| depth).map(|(_, kind)| kind.to_owned())
}
