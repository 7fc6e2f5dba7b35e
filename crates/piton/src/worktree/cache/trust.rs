//! Trust in the stat cache: decides when a cached entry replaces reading a file.
//!
//! - C1. An entry replaces reading a file only if its stat data equals that of the file, and would differ had the file
//!   changed since. (An entry that cannot guarantee the second is written with size 0, as git does, so that it never
//!   matches.)
//! - C2. An index that piton did not write is not trusted: only piton's own guarantees C1.
//! - C3. If the power may have failed since, an entry is trusted only if the file had changed so long before that its
//!   contents were on disk.
//! - C4. An index may be older than the newest checkpoint. Every path on which the two differ is recorded then, and the
//!   index is not trusted for these paths and the directories that contain them.
//! - C5. A file that changed shortly before it was read is read again, up to a limit: a write through a memory mapping
//!   does not update the times while the page is dirty.
//! - C6. A caller may name the directories in which something may have changed since the take of the newest checkpoint
//!   began. Another directory is taken from the cache without listing it, if every entry of it is settled (C1) and not
//!   young (C5), and if the index has the newest checkpoint (C2, C4), the rules and the size limit of this scan, and was
//!   written since the last boot (C3). Directories with skipped files, empty ones and the project's own are always
//!   listed, and so is everything below a changed `.gitignore`. A change that the caller does not name is missing in
//!   this checkpoint, and found by the next scan that lists its directory.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::super::manifest::Manifest;
use super::behind::{self, paths_behind};
use super::changed::{ChangedDirs, NewestFiles, Vouched};
use super::codec::{self, CachedEntry, IndexSums, stat_text};
use super::lookup::{CachedDirs, DirInCache};
use super::note::{CacheNote, hidden_rules_of};
use super::young::{forget_young, young_from_nanos};
use crate::id::{CheckpointId, ObjectId};
use crate::sys::{self, FileTime, Stat};
use crate::threads;
use crate::time::Moment;

/// Time after which everything that was written to a file is on the disk. The kernel writes it back after half a
/// minute, or after ten minutes in a power-saving mode.
const WRITTEN_BACK_SECS: i64 = 60 * 60;

/// Size from which on an index is large: writing it takes longer than reading a few files again.
const INDEX_BYTES_LARGE: usize = 1 << 20;

/// The newest checkpoint of the project, as far as the cache depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewestState {
    pub(crate) id: CheckpointId,
    pub(crate) tree: ObjectId,
    /// True if piton made it.
    pub(crate) is_own: bool,
}

/// Index and note of a project, and how far they are trusted.
pub(crate) struct StatCache<'a> {
    /// The entries, if the index is piton's own and whole. (C2)
    cached: Option<CachedDirs<'a>>,
    note: CacheNote,
    /// Paths at which the index is outdated. (C4)
    behind: BTreeSet<Vec<u8>>,
    is_held: bool,
    index_bytes: usize,
    trusted_before_nanos: i128,
    young_from_nanos: i128,
}

impl<'a> StatCache<'a> {
    /// Returns the cache of an index and the note about it.
    pub(crate) fn new(index: Option<&'a [u8]>, note: CacheNote, newest: Option<NewestState>) -> Self {
        let mut cache = Self {
            cached: None,
            behind: BTreeSet::new(),
            is_held: false,
            index_bytes: index.map_or(0, <[u8]>::len),
            trusted_before_nanos: trusted_before_nanos(&note),
            young_from_nanos: note.read_secs().map_or(i128::MIN, young_from_nanos),
            note,
        };
        if let Some(mut cached) = index.and_then(|index| own_entries(index, &cache.note)) {
            let newest_tree = newest.map(|newest| newest.tree);
            let behind = newest_tree.and_then(|tree| cache.note.behind(tree));
            let behind = behind.filter(|paths| paths.len() <= behind::PATHS_MAX);
            let is_held = behind.is_some() || cached.root_tree().is_some() && cached.root_tree() == newest_tree;
            // Garbage collection by other programs may delete what their own checkpoints hold: those are verified once.
            cache.is_held = is_held && newest.is_none_or(|newest| newest.is_own || cache.note.is_held(newest.id));
            cache.behind = behind.unwrap_or_default();
            cached.distrust(&cache.behind);
            cache.cached = Some(cached);
        }
        cache
    }

    /// Returns the entries.
    pub(in crate::worktree) fn entries(&self) -> Option<&CachedDirs<'a>> {
        self.cached.as_ref()
    }

    /// Returns the entries, if the objects that they name certainly exist.
    pub(crate) fn held_entries(&self) -> Option<&CachedDirs<'a>> {
        self.cached.as_ref().filter(|_| self.is_held)
    }

    /// Returns true if the newest checkpoint holds the objects that the index names, so that they certainly exist.
    /// Otherwise each has to be looked up, for example because the power failed before the index was on the disk.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns true if the index was made with these rules, so that they need not be evaluated for the files in it.
    pub(in crate::worktree) fn has_rules(&self, rules: ObjectId) -> bool {
        self.cached.is_some() && self.note.index_and_rules().is_some_and(|(_, noted)| noted == rules.to_string())
    }

    /// Returns the id in the entry of a file with this stat data, if the entry replaces reading the file. (C1, C3)
    pub(in crate::worktree) fn trusted_id(&self, entry: &CachedEntry<'_>, stat: &Stat) -> Option<ObjectId> {
        (self.believes(stat) && entry.agrees_with(stat)).then_some(entry.id)
    }

    /// Returns true if the rules of a directory are those of the scan that made the index: its `.gitignore` has this
    /// stat data, and this entry if it is in scope.
    pub(in crate::worktree) fn has_same_rules(
        &self,
        dir: &[u8],
        entry: Option<&CachedEntry<'_>>,
        stat: Option<&Stat>,
    ) -> bool {
        match (entry, stat) {
            (None, None) => self.note.hidden_rules(dir).is_none(),
            (Some(_), None) => false,
            (_, Some(stat)) if !self.believes(stat) => false,
            (Some(entry), Some(stat)) => entry.agrees_with(stat),
            (None, Some(stat)) => self.note.hidden_rules(dir).is_some_and(|noted| stat_text(stat) == noted),
        }
    }

    fn believes(&self, stat: &Stat) -> bool {
        stat.ctime.as_nanos() < self.trusted_before_nanos
    }

    /// Returns true if the file changed so shortly before it was read that the entry may be outdated. (C5)
    pub(in crate::worktree) fn is_young(&self, stat: &Stat) -> bool {
        stat.ctime.as_nanos() >= self.young_from_nanos
    }

    /// Returns the directories that need not be listed in a scan with these rules and this size limit, if the caller
    /// names those that changed; `None` if all have to be. (C6)
    pub(crate) fn vouched<'b>(
        &self,
        changed: &ChangedDirs,
        newest: &NewestFiles<'b>,
        rules: ObjectId,
        file_bytes_max: u64,
    ) -> Option<Vouched<'b>> {
        let is_current = self.is_held && self.is_current_boot() && self.has_rules(rules);
        let is_usable = is_current && self.note.has_size_limit(file_bytes_max);
        is_usable.then(|| Vouched::new(changed.clone(), &self.behind, newest))
    }

    /// Returns true if a directory need not be listed: the caller vouches for it, and its entries would be trusted. (C6)
    pub(in crate::worktree) fn is_vouched(&self, vouched: &Vouched<'_>, dir: &[u8], cached: DirInCache<'_>) -> bool {
        let is_trusted = |entry: &CachedEntry<'_>| entry.is_trusted() && !self.is_young(&entry.stat());
        vouched.contains(dir, cached)
            && self.note.hidden_rules(dir).is_none()
            && cached.files().all(|file| is_trusted(&file.entry))
    }

    fn is_current_boot(&self) -> bool {
        self.trusted_before_nanos == i128::MAX
    }

    /// Removes the ids of young files, so that they are read again. (C5)
    pub(crate) fn forget_young(&self, manifest: &mut Manifest) {
        forget_young(manifest, self.young_from_nanos);
    }

    /// Decides what happens to the index after a scan with these rules. `is_unchanged` means that no file had to be read
    /// and that the result is the newest checkpoint.
    pub(crate) fn update(
        self,
        manifest: &Manifest,
        rules: ObjectId,
        is_unchanged: bool,
        may_be_behind: bool,
    ) -> IndexUpdate {
        if self.is_held && self.behind.is_empty() && is_unchanged {
            return IndexUpdate::Current;
        }
        let is_large = self.index_bytes >= INDEX_BYTES_LARGE;
        let may_stay = may_be_behind && is_large && self.is_current_boot() && self.is_held && self.has_rules(rules);
        let cached = self.cached.filter(|_| may_stay && self.note.has_hidden_rules_of(manifest));
        let behind = cached.and_then(|cached| paths_behind(manifest, &cached, self.behind, self.index_bytes));
        behind.map_or(IndexUpdate::Stale, IndexUpdate::Behind)
    }

    /// Returns true if freeing the index takes a while.
    pub(crate) fn is_large(&self) -> bool {
        self.index_bytes >= INDEX_BYTES_LARGE
    }
}

/// Parses an index that piton wrote, and checks that every byte is as written. (C2)
fn own_entries<'a>(index: &'a [u8], note: &CacheNote) -> Option<CachedDirs<'a>> {
    let (checksum, _) = note.index_and_rules()?;
    let parse = || CachedDirs::parse(index, checksum);
    let sum_up = || CachedDirs::is_whole(index, note.index_crc());
    let (is_whole, cached) =
        if index.len() < INDEX_BYTES_LARGE { (sum_up(), parse()) } else { threads::beside(sum_up, parse) };
    cached.filter(|_| is_whole)
}

/// Returns the time up to which the index is trusted. After a power failure, the timestamps of a file may be on the
/// disk without the data written then: the index has the file as it was in memory, and the file system reports it as
/// unchanged. (C3)
fn trusted_before_nanos(note: &CacheNote) -> i128 {
    match note.boot() {
        Some((boot, _)) if sys::boot_id().is_some_and(|now| now == boot) => i128::MAX,
        Some((_, written)) => i128::from(written.saturating_sub(WRITTEN_BACK_SECS)) * 1_000_000_000,
        None => i128::MIN,
    }
}

/// Returns true if a later edit of the file would show in its stat data. (C1)
///
/// Equal size and time are not enough. A file written twice within one tick of the file system's clock keeps its time,
/// so an entry whose file changed no earlier than the scan that recorded it cannot be told from a later edit. The clock
/// that stamps files lags up to 10 ms behind the one that `began` is read from; file systems with a resolution of one
/// or two seconds show no nanoseconds at all.
pub(crate) fn is_settled(changed: FileTime, began_nanos: i128) -> bool {
    const TICK_NANOS: i128 = 100_000_000;
    const COARSE_NANOS: i128 = 3_000_000_000;
    let margin = |time: FileTime| if time.nanos == 0 { COARSE_NANOS } else { TICK_NANOS };
    changed.as_nanos() + margin(changed) < began_nanos
}

/// Writes the index of a scan that began at `began_nanos`: every file with its id, and the trees of all directories
/// (`trees`, in the order of the manifest). Entries of files that are not settled never match.
pub(crate) fn write_index(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    began_nanos: i128,
    out: impl Write,
) -> io::Result<IndexSums> {
    codec::write_index(manifest, trees, |stat| is_settled(stat.ctime, began_nanos), out)
}

/// Change of the index file that follows from a scan.
#[derive(Debug)]
pub(crate) enum IndexUpdate {
    /// The index contains everything that was found.
    Current,
    /// The index is large, and outdated at these paths only: it is kept, and the paths are recorded.
    Behind(BTreeSet<Vec<u8>>),
    /// The index has to be rewritten.
    Stale,
}

/// Change of the cache after a scan.
#[derive(Debug)]
pub(crate) struct CacheUpdate {
    pub(crate) index: IndexUpdate,
    /// Hash of the rules, without `.gitignore` files.
    pub(crate) rules: ObjectId,
    /// Size limit of files in the scan.
    pub(crate) file_bytes_max: u64,
    /// True if young files were read again.
    pub(crate) reread_young: bool,
}

impl CacheUpdate {
    /// Returns true if the index has to be rewritten.
    pub(crate) fn writes_index(&self) -> bool {
        matches!(self.index, IndexUpdate::Stale)
    }

    /// Returns true if the note changes although the index is not rewritten.
    pub(crate) fn changes_note(&self) -> bool {
        matches!(self.index, IndexUpdate::Behind(_)) || self.reread_young
    }

    /// Changes the note after a scan that found this tree. `written` are the sums of the rewritten index, if that
    /// succeeded; otherwise the note keeps naming the old one, and the next take reads every file again.
    pub(crate) fn apply(
        &self,
        note: &mut CacheNote,
        written: Option<IndexSums>,
        manifest: &Manifest,
        tree: ObjectId,
        now: Moment,
    ) {
        if let IndexUpdate::Behind(paths) = &self.index {
            note.set_behind(tree, paths);
        }
        if self.reread_young && written.is_none() && !self.writes_index() {
            note.set_reread(now);
        }
        if let Some(sums) = written {
            let hidden_rules = hidden_rules_of(manifest, |stat| is_settled(stat.ctime, now.as_nanos()));
            note.set_index(sums, self.rules, hidden_rules, sys::boot_id().unwrap_or_default(), now);
            note.set_size_limit(self.file_bytes_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_once_the_clock_that_stamps_files_has_moved_on() {
        let fine = FileTime { secs: 1_700_000_000, nanos: 5 };
        let changed = fine.as_nanos();
        assert!(!is_settled(fine, changed) && !is_settled(fine, changed - 1));
        assert!(!is_settled(fine, changed + 100_000_000) && is_settled(fine, changed + 100_000_001));
        // A file system without nanoseconds has a resolution of one or two seconds.
        let coarse = FileTime { nanos: 0, ..fine };
        let changed = coarse.as_nanos();
        assert!(!is_settled(coarse, changed + 2_999_999_999) && is_settled(coarse, changed + 3_000_000_001));
    }
}
