//! What this process, its neighbours and the machine are.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The name of this run of the machine, from its start to the next. Where the system has none, nobody can tell.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Who this process acts as.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether some process that this one may look at has the file open. Where the system does not tell, nobody has.
pub(crate) fn is_open_anywhere(path: &Path) -> bool {
    let Ok(wanted) = std::fs::metadata(path) else {
        return false;
    };
    let descriptors = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|process| process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok())
        .flatten()
        .flatten();
    descriptors
        .filter_map(|descriptor| std::fs::metadata(descriptor.path()).ok())
        .any(|open| open.ino() == wanted.ino() && open.dev() == wanted.dev())
}
