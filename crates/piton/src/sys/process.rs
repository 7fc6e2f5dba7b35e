//! What this process and its neighbours are.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
