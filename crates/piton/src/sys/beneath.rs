//! Opening a path below a directory without following links.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::platform;

/// Longest path that the kernel accepts in one call, including its NUL.
const PATH_BYTES_MAX: usize = 4096;

/// Opens `path` below `dir`. Fails if a component is a link, or if the path leads out.
pub(super) fn open(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    // A single name takes one `openat`, which is half the work of `openat2`.
    if path.contains(&b'/')
        && path.len() < PATH_BYTES_MAX
        && let Some(opened) = platform::open_at_once(dir, path, flags)?
    {
        return Ok(opened);
    }
    step_by_step(dir, path, flags)
}

fn step_by_step(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let on_the_way = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = path.split(|byte| *byte == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        if name == b".." || name.is_empty() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let flags = if names.peek().is_some() { on_the_way } else { flags | OFlags::NOFOLLOW };
        let from = at.as_ref().map_or(dir, std::os::fd::AsFd::as_fd);
        at = Some(rustix::fs::openat(from, name, flags, Mode::empty())?);
    }
    at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    /// Both implementations must give the same results: the second one is hardly ever run otherwise.
    #[test]
    fn no_link_on_the_way_is_followed() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let root = temp.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).expect("directories");
        std::fs::write(root.join("a/b/file"), "inside").expect("a file");
        std::fs::create_dir(temp.path().join("outside")).expect("a directory");
        std::fs::write(temp.path().join("outside/file"), "outside").expect("a file");
        symlink("../../outside", root.join("a/link")).expect("a link");
        symlink("b/file", root.join("a/leaf")).expect("a link");
        symlink("../outside", root.join("top")).expect("a link");
        let dir = std::fs::File::open(&root).expect("the root");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        type Way = fn(BorrowedFd<'_>, &[u8], OFlags) -> io::Result<OwnedFd>;
        for way in [open as Way, step_by_step as Way] {
            assert!(way(dir.as_fd(), b"a/b/file", flags).is_ok() && way(dir.as_fd(), b"a", flags).is_ok());
            let within = [&b"a/link/file"[..], b"a/leaf", b"top", b"top/file"];
            let outside = [&b"../outside/file"[..], b"..", b"a/../../outside/file", b"/etc/passwd", b"/", b""];
            for path in within.iter().chain(&outside) {
                assert!(way(dir.as_fd(), path, flags).is_err(), "{:?}", String::from_utf8_lossy(path));
            }
        }
    }
}
