//! Removes the leftovers of killed processes: temporary files that were not written to for a while.

use std::collections::HashSet;
use std::path::Path;

use super::{Store, StoreLock};
use crate::error::Result;
use crate::fsx;
use crate::sys;
use crate::time::Moment;

/// Age from which a temporary file is abandoned. A process writes to its temporary files all the time; one that was
/// suspended for longer loses its checkpoint, with an error, and nothing else.
const ABANDONED_AFTER_SECS: i128 = 60 * 60;
/// Age up to which unreachable files of stock git are kept: stock git does not take piton's locks, so a ref may be
/// about to point to objects that it wrote this recently.
const YOUNG_SECS: i128 = 60 * 60;
/// Age from which notes on a session are removed. A session that is resumed later starts over: its next prompt makes a
/// new note.
const SESSION_FORGOTTEN_AFTER_SECS: i128 = 30 * 24 * 60 * 60;

/// Removes abandoned temporary files, and notes on sessions that are long over. Errors are ignored: the next sweep
/// retries.
///
/// No reader looks at these names, so other processes may use the store at the same time.
pub(crate) fn sweep(store: &Store, _held: &StoreLock, now: Moment) {
    for dir in store.layout.with_temporaries().into_iter().chain([store.layout.ledgers()]) {
        remove_older(&dir, fsx::TEMP_PREFIX, ABANDONED_AFTER_SECS, now);
    }
    for keep in store.objects.own_keeps().unwrap_or_default() {
        if fsx::is_older(&keep, ABANDONED_AFTER_SECS, now) {
            let _ = fsx::remove_file(&keep);
        }
    }
    for dir in [store.layout.turns(), store.layout.notices(), store.layout.begun()] {
        remove_older(&dir, "", SESSION_FORGOTTEN_AFTER_SECS, now);
    }
}

/// Removes piton's `.keep` files, temporary files, packs without an idx, and stale lock files. The caller holds the
/// exclusive lock, so all such files of piton are abandoned; temporary files and packs of stock git are removed
/// once they are an hour old, or at once with `even_young`.
pub(super) fn remove_left_overs(store: &Store, now: Moment, even_young: bool) -> Result<()> {
    store.objects.own_keeps()?.iter().try_for_each(|keep| fsx::remove_file(keep))?;
    let whole: HashSet<_> = store.objects.pack_names()?.into_iter().collect();
    for dir in store.layout.with_temporaries_of_lockers() {
        for name in fsx::names_in(&dir)? {
            let (path, bytes) = (dir.join(&name), name.as_encoded_bytes());
            let is_temporary = bytes.starts_with(fsx::TEMP_PREFIX.as_bytes());
            // Temporary names of stock git contain another underscore.
            let is_ours = is_temporary && !bytes[fsx::TEMP_PREFIX.len()..].contains(&b'_');
            let has_no_idx =
                path.extension().is_some_and(|end| end == "pack") && !whole.contains(&path.with_extension(""));
            let is_ours = is_ours || has_no_idx && is_writable(&path);
            if is_ours || (is_temporary || has_no_idx) && (even_young || is_old(&path, now)) {
                fsx::remove_file(&path)?;
            }
        }
    }
    store.refs.remove_stale_locks(now)
}

/// Returns true if a file was written more than an hour ago, so that its writer has ended.
pub(super) fn is_old(path: &Path, now: Moment) -> bool {
    fsx::is_older(path, YOUNG_SECS, now)
}

/// Returns true if the owner may write to the file. Stock git makes its packs read-only, piton does not.
fn is_writable(path: &Path) -> bool {
    sys::stat_path(path).is_ok_and(|stat| stat.mode & 0o200 != 0)
}

/// Removes the files in a directory whose names start with `prefix` and that are older than `than_secs`.
fn remove_older(dir: &Path, prefix: &str, than_secs: i128, now: Moment) {
    for name in fsx::names_in(dir).unwrap_or_default() {
        let path = dir.join(&name);
        let is_file = || path.symlink_metadata().is_ok_and(|found| found.is_file());
        if name.as_encoded_bytes().starts_with(prefix.as_bytes()) && fsx::is_older(&path, than_secs, now) && is_file() {
            let _ = fsx::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::store::kit::{NOW, store};

    const HOUR: u64 = 60 * 60;

    /// Makes a file with an mtime this many seconds ago.
    fn put(path: &Path, mode: u32, secs: u64) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let file = File::create(path).expect("a file");
        file.set_permissions(fs::Permissions::from_mode(mode)).expect("permissions");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 - secs)).expect("a time");
    }

    #[test]
    fn temporary_files_are_swept_after_an_hour_and_session_notes_after_thirty_days() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let month = 30 * 24 * HOUR;
        for (path, limit) in [("tmp_a", HOUR), ("objects/pack/tmp_a", HOUR), ("turns/a", month), ("notices/a", month)] {
            for (secs, stays) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
                let path = store.git_dir().join(path);
                put(&path, 0o600, secs);
                sweep(&store, &store.locks.share().expect("a lock"), NOW);
                assert_eq!(path.exists(), stays, "{} after {secs} s", path.display());
            }
        }
    }

    /// No piton process is still writing them; stock git, which does not know piton's locks, may be.
    #[test]
    fn exclusive_sweep_removes_own_temp_files_now_and_gits_after_an_hour() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let packs = store.layout.packs();
        for (name, mode, secs, goes) in [
            ("tmp_Ab12", 0o600, 0, true),
            ("tmp_pack_Ab12", 0o600, HOUR, false),
            ("tmp_pack_Ab12", 0o600, HOUR + 1, true),
            ("pack-1.pack", 0o600, 0, true),
            ("pack-2.pack", 0o444, HOUR, false),
            ("pack-2.pack", 0o444, HOUR + 1, true),
            ("multi-pack-index", 0o600, HOUR + 1, false),
        ] {
            let _ = fs::remove_file(packs.join(name));
            put(&packs.join(name), mode, secs);
            remove_left_overs(&store, NOW, false).expect("removed");
            assert_eq!(!packs.join(name).exists(), goes, "{name} after {secs} s");
        }
        for lock in ["refs/hermes/0123456789abcdef.lock", "packed-refs.lock", "shallow.lock"] {
            for (secs, goes) in [(600, false), (601, true)] {
                let lock = store.git_dir().join(lock);
                put(&lock, 0o600, secs);
                remove_left_overs(&store, NOW, false).expect("removed");
                assert_eq!(!lock.exists(), goes, "{} after {secs} s", lock.display());
            }
        }
        // A pack with an idx is not a leftover, and a purge of all unreachable bytes does not wait an hour.
        put(&packs.join("pack-3.pack"), 0o600, HOUR + 1);
        put(&packs.join("pack-3.idx"), 0o600, HOUR + 1);
        put(&packs.join("tmp_pack_Cd34"), 0o600, 0);
        remove_left_overs(&store, NOW, true).expect("removed");
        assert!(packs.join("pack-3.pack").exists() && !packs.join("tmp_pack_Cd34").exists());
    }
}
