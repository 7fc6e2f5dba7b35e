//! Information about this process, other processes and the machine.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Length to which a command line is cut for display.
const COMMAND_CHARS_MAX: usize = 60;

/// Returns the id of the current boot, or `None` if the system has none.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns the name of this machine, or `None` if it has none that is UTF-8.
pub fn host_name() -> Option<String> {
    let names = rustix::system::uname();
    names.nodename().to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns false if there is certainly no process with this id. A process of another user counts as running.
pub(crate) fn is_running(process: u32) -> bool {
    let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    id.is_some_and(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH))
}

/// Returns the effective user id of this process.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns true if some process visible to this one has the file open. Returns false if the system does not tell.
pub(crate) fn is_open_anywhere(path: &Path) -> bool {
    let Ok(wanted) = std::fs::metadata(path) else {
        return false;
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .any(|process| has_open(&process.path(), &wanted))
}

/// Returns true if a process, given by its directory in `/proc`, has the file open.
fn has_open(process: &Path, wanted: &Metadata) -> bool {
    let descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| std::fs::metadata(descriptor.path()).ok())
        .any(|open| open.ino() == wanted.ino() && open.dev() == wanted.dev())
}

/// Returns the lock holders of a file, with their command lines. Holders that the system does not show are left out.
pub(crate) fn lock_holders(file: &File) -> Vec<(u32, String)> {
    // The list may miss a lock while others are taken and released.
    let mut reads = (0..3).map(|_| listed_holders(file));
    reads.find(|holders| !holders.is_empty()).unwrap_or_default()
}

fn listed_holders(file: &File) -> Vec<(u32, String)> {
    let (Ok(wanted), Ok(locks)) = (file.metadata(), std::fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`. Some file systems show another device number there, so the
    // open files of the process decide.
    let held = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let process: u32 = words.next()?.parse().ok()?;
        let inode: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
        let of_process = Path::new("/proc").join(process.to_string());
        (inode == wanted.ino() && has_open(&of_process, &wanted)).then(|| (process, command_of(&of_process)))
    };
    let mut holders: Vec<_> = locks.lines().filter_map(held).collect();
    holders.sort();
    holders.dedup();
    holders
}

/// Returns the command line of a process: the name of its program, and its arguments.
fn command_of(process: &Path) -> String {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0').filter(|word| !word.is_empty());
    let program = words.next().map(|program| program.rsplit('/').next().unwrap_or(program));
    let words: Vec<_> = program.into_iter().chain(words).collect();
    let line = words.join(" ");
    match line.char_indices().nth(COMMAND_CHARS_MAX) {
        _ if line.is_empty() => "?".to_owned(),
        None => line,
        Some((end, _)) => format!("{}...", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_the_name_that_uname_prints() {
        let printed = std::process::Command::new("uname").arg("-n").output().expect("a program").stdout;
        assert_eq!(host_name().as_deref(), Some(String::from_utf8(printed).expect("a name").trim()));
    }

    #[test]
    fn a_process_that_has_ended_is_not_running() {
        assert!(is_running(std::process::id()) && is_running(1));
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let id = child.id();
        child.wait().expect("it ends");
        assert!(!is_running(id) && !is_running(0) && !is_running(u32::MAX));
    }
}
