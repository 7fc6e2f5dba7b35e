//! What this process, its neighbours and the machine are.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How much of a command line is worth showing.
const COMMAND_CHARS_MAX: usize = 60;

/// The name of this run of the machine, from its start to the next. Where the system has none, nobody can tell.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The name of this machine.
pub(crate) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns false if there is certainly no process of this number.
pub(crate) fn is_running(process: u32) -> bool {
    let processes = Path::new("/proc");
    processes.join(process.to_string()).exists() || !processes.join("self").exists()
}

/// Who this process acts as.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns whether some process that this one may look at has the file open. Where the system does not tell, nobody has.
pub(crate) fn is_open_anywhere(path: &Path) -> bool {
    let Ok(wanted) = std::fs::metadata(path) else {
        return false;
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .any(|process| has_open(&process.path(), &wanted))
}

/// Returns whether a process, by its directory in `/proc`, has a file open.
fn has_open(process: &Path, wanted: &Metadata) -> bool {
    let descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| std::fs::metadata(descriptor.path()).ok())
        .any(|open| open.ino() == wanted.ino() && open.dev() == wanted.dev())
}

/// Which processes have locked a file, and how each was called. What the system does not tell is left out.
pub(crate) fn lock_holders(file: &File) -> Vec<(u32, String)> {
    let (Ok(wanted), Ok(locks)) = (file.metadata(), std::fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`. Some file systems have another device number there: who has the
    // file open decides.
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

/// How a process was called: the name of its program, and its arguments.
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
