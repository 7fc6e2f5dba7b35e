//! Finds kept files that are missing or differ now.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::id::ObjectId;
use crate::store::{HeldBy, KeptEntry, KeptKind, KeptSet, Store};
use crate::sys::{self, Kind, Stat};
use crate::time::Moment;
use crate::worktree::{has_same_contents, id_of_file, link_target, stat_of};

/// Files of one kept path that are missing or differ now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptLoss {
    /// Name of the set, as `--from` takes it.
    pub id: String,
    /// Original path.
    pub path: PathBuf,
    /// Time at which it was kept.
    pub time: Moment,
    /// Command that was about to destroy it, shortened.
    pub reason: String,
    /// Number of files that are missing or differ.
    pub files: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// True if there are other files at their paths now.
    pub is_replaced: bool,
    /// True if the contents were changed, through another name of the file, since it was kept.
    pub is_changed: bool,
    pub(crate) jobs: Vec<BackJob>,
}

impl KeptLoss {
    /// Returns the paths of its files.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.jobs.iter().filter(|job| job.entry.kind != KeptKind::Dir).map(|job| job.to.as_path())
    }

    /// Removes the files at whose paths something is, and returns these paths.
    pub(super) fn leave_existing(&mut self) -> Vec<PathBuf> {
        let existing: Vec<PathBuf> =
            self.jobs.iter().filter(|job| job.over.is_some()).map(|job| job.to.clone()).collect();
        existing.iter().for_each(|path| self.leave_out(path));
        existing
    }

    /// Removes the files for which `is_wanted` returns false, and the directories that are neither wanted nor around a
    /// wanted file.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Path) -> bool) {
        self.jobs.retain(|job| job.entry.kind == KeptKind::Dir || is_wanted(&job.to));
        let mut around: HashSet<PathBuf> = HashSet::new();
        for file in self.files() {
            let new: Vec<&Path> = file.ancestors().skip(1).take_while(|dir| !around.contains(*dir)).collect();
            around.extend(new.into_iter().map(Path::to_owned));
        }
        let is_file = |job: &BackJob| job.entry.kind != KeptKind::Dir;
        self.jobs.retain(|job| is_file(job) || is_wanted(&job.to) || around.contains(&job.to));
        self.files = self.files().count() as u64;
        self.bytes = self.jobs.iter().filter(|job| is_file(job)).map(|job| job.entry.size).sum();
    }

    /// Returns true if a file of it is at or below this path.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        self.jobs.iter().any(|job| job.to.starts_with(path))
    }

    /// Removes the file at this path from it.
    pub(crate) fn leave_out(&mut self, path: &Path) {
        let Some(at) = self.jobs.iter().position(|job| job.to == path && job.entry.kind != KeptKind::Dir) else {
            return;
        };
        let job = self.jobs.remove(at);
        self.files -= 1;
        self.bytes -= job.entry.size;
    }
}

/// One file, directory or link to bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackJob {
    pub(super) set: String,
    pub(super) entry: KeptEntry,
    pub(super) to: PathBuf,
    /// The file that is there now.
    pub(super) over: Option<Stat>,
}

/// Selection of kept files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeptQuery<'a> {
    /// Only files at or below these paths; all if it is empty.
    pub(crate) paths: &'a [PathBuf],
    /// Only files in this directory.
    pub(crate) within: Option<&'a Path>,
    /// Only the set of this name, instead of the newest version of each file.
    pub(crate) from: Option<&'a str>,
    /// Only what was kept at this time or later.
    pub(crate) since: Option<Moment>,
    /// Version of each file.
    pub(crate) version: KeptVersion,
}

/// Selection among the kept versions of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KeptVersion {
    /// The newest, unless it is the current file.
    #[default]
    Newest,
    /// The newest that differs from the current file.
    NewestOther,
    /// The oldest, unless it is the current file.
    Oldest,
    /// Every version that differs from the current file.
    EveryOther,
}

/// Finds kept files that are missing or differ now. The last kept come first, unless the oldest versions are selected.
pub(crate) fn find_lost(store: &Store, query: KeptQuery<'_>) -> Vec<KeptLoss> {
    let is_meant = |path: &Path| {
        query.within.is_none_or(|dir| path.starts_with(dir))
            && (query.paths.is_empty() || query.paths.iter().any(|wanted| path.starts_with(wanted)))
    };
    // Directories around a file of a project come back with it, as they were.
    let is_around = |path: &Path| {
        query.within.is_some_and(|dir| path.starts_with(dir) && path != dir)
            && query.paths.iter().any(|wanted| wanted.starts_with(path))
    };
    let may_hold = |path: &Path| is_meant(path) || query.paths.iter().any(|wanted| wanted.starts_with(path));
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut losses = Vec::new();
    let mut sets = store.kept.sets();
    if query.version == KeptVersion::Oldest {
        sets.reverse();
    }
    for set in sets {
        let is_old = query.since.is_some_and(|since| set.header.time.secs < since.secs);
        let is_other = query.from.is_some_and(|from| set.id() != from);
        if is_old || is_other || !may_hold(&set.header.path) {
            continue;
        }
        let mut jobs = Vec::new();
        for entry in store.kept.entries(&set.name).unwrap_or_default() {
            let to = original(&set, &entry);
            let is_file = entry.kind != KeptKind::Dir;
            if !is_meant(&to) && (is_file || !is_around(&to)) || is_file && seen.contains(&to) {
                continue;
            }
            let over = stat_of(&to);
            let is_other = over.as_ref().is_none_or(|now| is_other_file(store, &set, &entry, &to, now));
            let is_last = match query.version {
                KeptVersion::Newest | KeptVersion::Oldest => true,
                KeptVersion::NewestOther => is_other,
                KeptVersion::EveryOther => false,
            };
            if is_file && is_last {
                seen.insert(to.clone());
            }
            if is_other {
                jobs.push(BackJob { set: set.name.clone(), entry, to, over });
            }
        }
        losses.extend(loss(store, &set, jobs));
    }
    losses
}

/// Returns true if something was kept at or below a path, whatever exists there now. With `from`, only the set of that
/// name counts.
pub(crate) fn is_kept_at(store: &Store, path: &Path, from: Option<&str>) -> bool {
    let sets = store.kept.sets().into_iter().filter(|set| from.is_none_or(|from| set.id() == from));
    let mut sets = sets.filter(|set| set.header.path.starts_with(path) || path.starts_with(&set.header.path));
    sets.any(|set| {
        let entries = store.kept.entries(&set.name).unwrap_or_default();
        entries.iter().any(|entry| original(&set, entry).starts_with(path))
    })
}

/// Size up to which a kept file is read to find out if it has certain contents.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// Returns the kept files that `is_meant` selects, and those with one of these contents unless they are large: the
/// original path, the name of the set and the id of the contents.
pub(crate) fn find_kept(
    store: &Store,
    is_meant: impl Fn(&Path) -> bool,
    contents: &HashSet<ObjectId>,
) -> Vec<(PathBuf, String, ObjectId)> {
    let mut found = Vec::new();
    for set in store.kept.sets() {
        let entries = store.kept.entries(&set.name).unwrap_or_default();
        for entry in entries.iter().filter(|entry| matches!(entry.kind, KeptKind::File(_))) {
            let (path, file) = (original(&set, entry), store.kept.contents(&set.name, &entry.path));
            let is_meant = is_meant(&path);
            if !is_meant && entry.size > COMPARED_BYTES_MAX {
                continue;
            }
            if let Some(id) = id_of_file(&file).filter(|id| is_meant || contents.contains(id)) {
                found.push((path, set.id(), id));
            }
        }
    }
    found
}

pub(super) fn original(set: &KeptSet, entry: &KeptEntry) -> PathBuf {
    if entry.path.is_empty() {
        set.header.path.clone()
    } else {
        set.header.path.join(sys::name_from_bytes(&entry.path))
    }
}

/// Returns true if the path now holds something other than what was kept. Files with equal contents are the same.
fn is_other_file(store: &Store, set: &KeptSet, entry: &KeptEntry, path: &Path, now: &Stat) -> bool {
    let is_same_inode = (now.dev, now.ino) == (entry.dev, entry.ino);
    let is_known = match &entry.kind {
        KeptKind::Dir => return false,
        KeptKind::Link(target) => return link_target(path).as_ref() != Some(target),
        _ if now.kind != Kind::File => return true,
        // Both names show the same contents.
        KeptKind::File(HeldBy::Link) => is_same_inode,
        KeptKind::File(_) => is_same_inode && (now.size, now.mtime) == (entry.size, entry.mtime),
    };
    !is_known && !has_same_contents(&store.kept.contents(&set.name, &entry.path), path)
}

fn loss(store: &Store, set: &KeptSet, jobs: Vec<BackJob>) -> Option<KeptLoss> {
    let files: Vec<&BackJob> = jobs.iter().filter(|job| job.entry.kind != KeptKind::Dir).collect();
    let first = files.first()?;
    let is_changed = files.iter().any(|job| is_changed(store, job));
    // A single file of a tree is named by its own path.
    let path = if files.len() == 1 { first.to.clone() } else { set.header.path.clone() };
    Some(KeptLoss {
        id: set.id(),
        path,
        time: set.header.time,
        reason: set.header.reason.clone(),
        files: files.len() as u64,
        bytes: files.iter().map(|job| job.entry.size).sum(),
        is_replaced: files.iter().any(|job| job.over.is_some()),
        is_changed,
        jobs,
    })
}

/// Returns true if a hard link shows other contents than when it was made.
pub(super) fn is_changed(store: &Store, job: &BackJob) -> bool {
    job.entry.kind == KeptKind::File(HeldBy::Link)
        && stat_of(&store.kept.contents(&job.set, &job.entry.path))
            .is_some_and(|now| (now.size, now.mtime) != (job.entry.size, job.entry.mtime))
}
