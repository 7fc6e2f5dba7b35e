//! How much the store takes on the disk, known without looking at every file.
//!
//! `store/size` holds the last count, and every take adds what it is about to write *before* it does so. So the note may
//! be too high after a take that failed, and never too low by what a take wrote. Only where it leaves no room is
//! everything counted again. Nobody relies on it for anything but the limit: it is replaced atomically and not synced.

use std::fs;
use std::io;
use std::path::Path;

use super::Store;
use super::lock::{self, GcLock};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};

/// File systems give space in blocks, of this size nearly everywhere.
const BLOCK_BYTES: u64 = 4096;
/// A number.
const NOTE_BYTES_MAX: u64 = 64;

/// What a file of this length takes.
pub(crate) fn on_disk(length: u64) -> u64 {
    length.next_multiple_of(BLOCK_BYTES)
}

/// Whether there is room for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is, and it is noted as taken.
    Reserved,
    /// There is not.
    Lacking,
}

impl Store {
    /// What all files of the store take, temporary ones included. What a repair put aside does not count: no checkpoint
    /// is to go for it.
    pub(crate) fn count_bytes(&self) -> Result<u64> {
        Ok(bytes_below(self.layout.store())?.saturating_sub(bytes_below(&self.layout.repairs())?))
    }

    /// Counts everything, and notes it.
    pub(crate) fn recount(&self) -> Result<u64> {
        let _held = self.lock_size()?;
        let counted = self.count_bytes()?;
        if self.note_size(counted).is_err() {
            // On a full disk, say. Without a note the next one counts.
            fsx::remove_file(&self.layout.size())?;
        }
        Ok(counted)
    }

    /// Sets `bytes` aside, if the store stays within `bytes_max` with them. `written` of them are on the disk already,
    /// in temporary files. While another process makes room, what comes free is not to be had: it is for that one.
    pub(crate) fn reserve(
        &self,
        bytes: u64,
        written: u64,
        bytes_max: u64,
        collecting: Option<&GcLock>,
    ) -> Result<Room> {
        let _held = self.lock_size()?;
        let noted = fsx::read_small(&self.layout.size(), NOTE_BYTES_MAX).ok().flatten();
        let noted = noted.and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse::<u64>().ok());
        let fits = |size: &u64| size.saturating_add(bytes) <= bytes_max;
        let has_limit = bytes_max < u64::MAX;
        let size = match noted.filter(fits) {
            Some(size) => size,
            None if has_limit && collecting.is_none() && self.somebody_collects()? => return Ok(Room::Lacking),
            None => self.count_bytes()?.saturating_sub(written),
        };
        if !fits(&size) {
            return Ok(Room::Lacking);
        }
        self.note_size(size + bytes)?;
        Ok(Room::Reserved)
    }

    fn lock_size(&self) -> Result<fs::File> {
        let file = self.lock_file(lock::SIZE)?;
        self.wait_for(&file, lock::Mode::Exclusive, "the size of the store")?;
        Ok(file)
    }

    fn note_size(&self, bytes: u64) -> Result<()> {
        match fsx::replace(&self.layout.size(), format!("{bytes}\n").as_bytes(), Durability::Rebuildable) {
            // Whoever gives space back must not fail for want of it. Without a note everything is counted.
            Err(error) if error.kind() == ErrorKind::Full => fsx::remove_file(&self.layout.size()),
            noted => noted,
        }
    }
}

/// What all files in a directory and below it take. What goes away meanwhile takes nothing.
pub(crate) fn bytes_below(dir: &Path) -> Result<u64> {
    let mut total = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for name in fsx::names_in(&dir)? {
            let path = dir.join(name);
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => open.push(path),
                Ok(found) => total += on_disk(found.len()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("look at", &path, error)),
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Moment;

    #[test]
    fn the_store_takes_what_its_files_take_in_blocks_without_what_a_repair_put_aside() {
        assert_eq!([0, 1, 4096, 4097].map(on_disk), [0, 4096, 4096, 8192]);
        let temp = tempfile::tempdir().expect("a directory");
        let now = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
        let store = Store::open_or_create(&temp.path().join("base"), now).expect("a store");
        store.recount().expect("a size");
        let before = store.recount().expect("a size");
        for (path, more) in [("objects/pack/deep/er", 8192), ("objects/info/x", 16384), ("repairs/1/x", 16384)] {
            let path = store.git_dir().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(&path, [7; 5000]).expect("a file");
            assert_eq!(store.recount().expect("a size"), before + more, "{}", path.display());
        }
    }

    /// Whoever fails afterwards leaves it too high, and nobody leaves it too low.
    #[test]
    fn what_is_set_aside_is_noted_and_counted_again_only_where_it_leaves_no_room() {
        let temp = tempfile::tempdir().expect("a directory");
        let now = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
        let store = Store::open_or_create(&temp.path().join("base"), now).expect("a store");
        store.recount().expect("a size");
        let size = store.recount().expect("a size");
        let noted = || fs::read_to_string(store.layout.size()).expect("a note").trim().parse::<u64>();
        let reserve = |bytes, written, bytes_max| store.reserve(bytes, written, bytes_max, None).expect("a size");
        assert_eq!(reserve(10_000, 0, size + 25_000), Room::Reserved);
        assert_eq!(noted(), Ok(size + 10_000));
        assert_eq!(reserve(10_000, 0, size + 25_000), Room::Reserved);
        assert_eq!(noted(), Ok(size + 20_000), "there was room by the note");
        assert_eq!(reserve(10_000, 0, size + 25_000), Room::Reserved);
        assert_eq!(noted(), Ok(size + 10_000), "it was counted again: nobody had written anything");
        assert_eq!(reserve(25_001, 0, size + 25_000), Room::Lacking);
        // What is on the disk in part already is not counted twice.
        fs::write(store.layout.packs().join("tmp_x"), [7; 8192]).expect("a file");
        assert_eq!(
            (reserve(20_000, 0, size + 25_000), reserve(20_000, 8192, size + 25_000)),
            (Room::Lacking, Room::Reserved)
        );
        assert_eq!(noted(), Ok(size + 20_000));
    }
}
