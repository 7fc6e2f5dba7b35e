//! Files that changed shortly before they were read.
//!
//! A write through a memory mapping changes the times of a file only if the page was clean. The kernel writes a dirty
//! page back within half a minute; until then later writes change nothing that a scan could see. So an entry of a file
//! that was read within that time is not reliable, and the next scan reads the file again.

use super::super::manifest::Manifest;
use crate::sys::Kind;

/// Time after which a written page is clean again, and the next write changes the times. The kernel looks for dirty
/// pages every 5 s and writes back those older than 30 s.
const WRITE_BACK_SECS: i64 = 35;
/// Number of bytes that one scan reads again. Beyond it the stat data is trusted.
const REREAD_BYTES_MAX: u64 = 64 << 20;

/// Returns the time of the first change that entries read at `read_secs` may have missed.
pub(super) fn young_from_nanos(read_secs: i64) -> i128 {
    i128::from(read_secs.saturating_sub(WRITE_BACK_SECS)) * 1_000_000_000
}

/// Removes the ids of files that changed at `from_nanos` or later, so that they are read again: newest first, up to a
/// total size at which a take would be slow.
pub(super) fn forget_young(manifest: &mut Manifest, from_nanos: i128) {
    forget_young_within(manifest, from_nanos, REREAD_BYTES_MAX);
}

fn forget_young_within(manifest: &mut Manifest, from_nanos: i128, bytes_max: u64) {
    let mut young = Vec::new();
    for (at, dir) in manifest.dirs.iter().enumerate() {
        for (place, file) in dir.files.iter().enumerate() {
            let changed = file.stat.ctime.as_nanos();
            if changed >= from_nanos && file.id.is_some() && file.stat.kind == Kind::File {
                young.push((changed, at, place));
            }
        }
    }
    young.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes_left = bytes_max;
    for (_, at, place) in young {
        let dir = &mut manifest.dirs[at];
        let file = &mut dir.files[place];
        // A file that does not fit leaves room for others.
        if let Some(left) = bytes_left.checked_sub(file.stat.size) {
            bytes_left = left;
            (file.id, file.may_be_known) = (None, true);
            dir.same_files = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::manifest::{DirNode, FileNode, Modes};
    use super::*;
    use crate::id::ObjectId;
    use crate::sys::{FileTime, Stat};

    fn file(changed_secs: i64, size: u64) -> FileNode {
        let time = FileTime { secs: changed_secs, nanos: 5 };
        let (mtime, ctime, id) = (time, time, Some(ObjectId::from_bytes([7; 20])));
        let stat = Stat { kind: Kind::File, mode: 0o644, size, mtime, ctime, dev: 1, ino: 2, links: 1, uid: 3, gid: 4 };
        FileNode { name: 0..0, stat, id, target: None, may_be_known: false }
    }

    #[test]
    fn the_newest_files_are_read_again_until_there_is_no_more_room() {
        let dir = |files| DirNode {
            ctime: FileTime { secs: 0, nanos: 1 },
            mtime: FileTime { secs: 0, nanos: 1 },
            path: Box::default(),
            mode: 0o755,
            files,
            names: Vec::new(),
            dirs: Vec::new(),
            cached: None,
            same_files: true,
            modes: Modes::default(),
            hidden_rules: None,
            exceptional: false,
        };
        let young = young_from_nanos(1000);
        let mut manifest = Manifest {
            dirs: vec![
                dir(vec![file(964, 1), file(965, 30), file(990, 50)]),
                dir(vec![file(980, 60), file(985, 40), file(2000, 5)]),
                dir(vec![file(100, 1)]),
            ],
        };
        forget_young_within(&mut manifest, young, 100);
        let forgotten: Vec<Vec<_>> =
            manifest.dirs.iter().map(|dir| dir.files.iter().map(|file| file.id.is_none()).collect()).collect();
        assert_eq!(forgotten, [vec![false, false, true], vec![false, true, true], vec![false]]);
        assert_eq!(manifest.dirs.iter().map(|dir| dir.same_files).collect::<Vec<_>>(), [false, false, true]);
    }
}
