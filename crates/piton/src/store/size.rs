//! The size of the store on disk, known without a stat of every file.
//!
//! `store/size` holds the last count, and every take adds the bytes that it is about to write *before* it writes them.
//! So the note may be too high after a take that failed, and never too low by the bytes of a take. Only if it leaves no
//! room are all files counted again, while no process writes: a reservation that is not on the disk yet would be lost
//! to the note. It is used for the limit only, so it is replaced atomically and not synced.
//!
//! Part of the limit is reserved for garbage collection, for the pack that it writes before it unlinks others. Takes
//! stay below it, and need not know about that pack.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::layout::Layout;
use super::lock::{Exclusive, GcLock, Locks};
use super::pack::PACK_BYTES_MAX;
use super::wait::SIZE;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::hint::Hint;
use crate::sys;

/// Upper bound of the cost of a small file or a new pack besides its contents.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Longest note: one decimal number.
const NOTE_BYTES_MAX: u64 = 64;

/// One part in this many of the limit is reserved for garbage collection. It costs fewer checkpoints than merging and
/// deltas gain.
const COLLECTION_PART: u64 = 32;

/// Returns the number of bytes that a collection may write at a time under this limit, whatever takes do.
pub(super) fn collection_bytes(bytes_max: u64) -> u64 {
    (bytes_max / COLLECTION_PART).min(PACK_BYTES_MAX)
}

/// Returns the rest of the limit, which takes may use.
pub(super) fn bytes_max_of_takes(bytes_max: u64) -> u64 {
    if bytes_max == u64::MAX { bytes_max } else { bytes_max - collection_bytes(bytes_max) }
}

/// Result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room, and it is noted as used.
    Reserved,
    /// There is no room.
    Lacking,
}

/// The size of a store, as counted and as noted.
#[derive(Debug, Clone)]
pub(crate) struct StoreSize {
    pub(super) layout: Arc<Layout>,
    pub(super) locks: Locks,
}

impl StoreSize {
    /// Returns the size of all files of the store, including temporary ones. Files that a repair moved to `repairs/` do
    /// not count: no checkpoint may be dropped for them.
    pub(crate) fn count_bytes(&self) -> Result<u64> {
        Ok(bytes_below(self.layout.store())?.saturating_sub(bytes_below(&self.layout.repairs())?))
    }

    /// Counts all files and notes the sum. No reservation is open, because the caller holds the exclusive lock.
    pub(super) fn recount(&self, _alone: &Exclusive) -> Result<u64> {
        self.recount_beside_others()
    }

    /// Like [`Self::recount`], while others may write: their open reservations are not counted.
    pub(super) fn recount_beside_others(&self) -> Result<u64> {
        let _held = self.lock()?;
        let counted = self.count_bytes()?;
        if self.note_size(counted).is_err() {
            // On a full disk, for example. Without a note the next process counts.
            fsx::remove_file(&self.layout.size())?;
        }
        Ok(counted)
    }

    /// Reserves `bytes` if the store stays within `bytes_max` with them. `written` of them are on the disk already, in
    /// temporary files. The part that is reserved for collections is available only to the holder of the collection
    /// lock.
    pub(crate) fn reserve(
        &self,
        bytes: u64,
        written: u64,
        bytes_max: u64,
        collecting: Option<&GcLock>,
    ) -> Result<Room> {
        let bytes_max = if collecting.is_some() { bytes_max } else { bytes_max_of_takes(bytes_max) };
        let _held = self.lock()?;
        let size = match self.noted_size() {
            Some(size) => size,
            // The process that makes room counts the files then.
            None if bytes_max < u64::MAX && collecting.is_none() && self.locks.is_collecting()? => {
                return Ok(Room::Lacking);
            }
            None => self.count_bytes()?.saturating_sub(written),
        };
        if size.saturating_add(bytes) > bytes_max {
            return Ok(Room::Lacking);
        }
        self.note_size(size.saturating_add(bytes))?;
        Ok(Room::Reserved)
    }

    /// Like [`Self::reserve`] without the part for collections, but fails with `Full` if there is no room: `what` completes
    /// "cannot …".
    pub(crate) fn reserve_for(&self, what: &str, bytes: u64, written: u64, bytes_max: Option<u64>) -> Result<()> {
        match self.reserve(bytes, written, bytes_max.unwrap_or(u64::MAX), None)? {
            Room::Lacking => Err(Error::new(ErrorKind::Full, what)
                .because("the store has reached its limit")
                .with_hint(Hint::RaiseLimitOrPrune.nothing_touched())),
            Room::Reserved => Ok(()),
        }
    }

    /// Reserves the bytes that a collection is about to write beyond its own part, if takes leave room for both. They
    /// are noted like those of a take: a take that finds no room because of them makes the collection yield. A
    /// collection that makes room (`is_urgent`) always gets them, and others wait for it then.
    pub(super) fn reserve_to_collect(&self, bytes: u64, bytes_max: u64, is_urgent: bool) -> Result<Room> {
        let beyond = bytes.saturating_sub(collection_bytes(bytes_max));
        self.reserve(beyond, 0, if is_urgent { u64::MAX } else { bytes_max }, None)
    }

    /// Releases a reservation of [`Self::reserve_to_collect`].
    pub(super) fn give_back(&self, bytes: u64, bytes_max: u64) -> Result<()> {
        let bytes = bytes.saturating_sub(collection_bytes(bytes_max));
        let _held = self.lock()?;
        match self.noted_size().filter(|_| bytes > 0) {
            Some(size) => self.note_size(size.saturating_sub(bytes)),
            None => Ok(()),
        }
    }

    fn noted_size(&self) -> Option<u64> {
        let noted = fsx::read_small(&self.layout.size(), NOTE_BYTES_MAX).ok().flatten()?;
        std::str::from_utf8(&noted).ok()?.trim().parse().ok()
    }

    fn lock(&self) -> Result<fs::File> {
        self.locks.hold(SIZE, "the size of the store")
    }

    fn note_size(&self, bytes: u64) -> Result<()> {
        match fsx::replace(&self.layout.size(), format!("{bytes}\n").as_bytes(), Durability::Rebuildable) {
            // A process that frees space must not fail for lack of it. Without a note all files are counted.
            Err(error) if error.kind() == ErrorKind::Full => fsx::remove_file(&self.layout.size()),
            noted => noted,
        }
    }
}

/// Returns the size of all files in a directory and below it. Files that vanish in the meantime do not count.
pub(crate) fn bytes_below(dir: &Path) -> Result<u64> {
    let mut total = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for name in fsx::names_in(&dir)? {
            let path = dir.join(name);
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => open.push(path),
                Ok(found) => total += found.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("look at", &path, error)),
            }
        }
    }
    Ok(total)
}

/// Returns the size of a file in bytes; 0 if it is missing.
pub(super) fn bytes_of(path: &Path) -> u64 {
    sys::stat_path(path).map_or(0, |stat| stat.size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::time::Moment;

    #[test]
    fn the_store_takes_what_its_files_hold_without_what_a_repair_put_aside() {
        let temp = tempfile::tempdir().expect("a directory");
        let now = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
        let store = Store::open_or_create(&temp.path().join("base"), now).expect("a store");
        // Without the note of the size itself, which has more digits by then.
        let count = || {
            store.size.recount_beside_others().expect("a size");
            store.size.count_bytes().expect("a size") - fs::metadata(store.layout.size()).expect("a note").len()
        };
        let before = count();
        for (path, more) in [("objects/pack/deep/er", 5000), ("objects/info/x", 10_000), ("repairs/1/x", 10_000)] {
            let path = store.git_dir().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(&path, [7; 5000]).expect("a file");
            assert_eq!(count(), before + more, "{}", path.display());
        }
    }

    /// A take that fails afterwards leaves the note too high; nothing leaves it too low.
    #[test]
    fn reservations_are_noted_and_files_counted_only_without_a_note() {
        let temp = tempfile::tempdir().expect("a directory");
        let now = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
        let store = Store::open_or_create(&temp.path().join("base"), now).expect("a store");
        store.size.recount_beside_others().expect("a size");
        let size = store.size.recount_beside_others().expect("a size");
        let noted = || fs::read_to_string(store.layout.size()).expect("a note").trim().parse::<u64>();
        let bytes_max = ((size + 25_000) * COLLECTION_PART).div_ceil(COLLECTION_PART - 1);
        let reserve = |bytes, written| store.size.reserve(bytes, written, bytes_max, None).expect("a size");
        assert_eq!([reserve(10_000, 0), reserve(10_000, 0)], [Room::Reserved; 2]);
        assert_eq!(noted(), Ok(size + 20_000));
        assert_eq!(reserve(10_000, 0), Room::Lacking, "others may be about to write that");
        assert_eq!(noted(), Ok(size + 20_000));
        // Bytes that are already on disk are not counted twice.
        fs::remove_file(store.layout.size()).expect("a note");
        fs::write(store.layout.packs().join("tmp_x"), [7; 8192]).expect("a file");
        assert_eq!([reserve(24_000, 0), reserve(24_000, 8192)], [Room::Lacking, Room::Reserved]);
    }
}
