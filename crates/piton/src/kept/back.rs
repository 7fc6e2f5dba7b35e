//! Finds kept files that are missing or differ now, brings them back, and takes that back again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{KeepRequest, keep_files};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ObjectId, random_token};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::store::{
    BackNote, BackRecord, BroughtBack, HeldBy, KeptEntry, KeptFiles, KeptKind, KeptSet, Store, kept_id as id_of,
};
use crate::sys::{self, Kind, Stat};
use crate::time::Moment;
use crate::worktree::{
    BackAs, BackTemporaries, bring_back, bring_back_dir, bring_back_link, id_of_file, is_own_dir, make_dir,
    remove_temporaries, resolved, stat_of, take_away, take_away_dir,
};
use piton_triggers::{Loss, LossKind};

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
    /// Command that was about to destroy it, in short.
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
    set: String,
    entry: KeptEntry,
    to: PathBuf,
    /// The file that is there now.
    over: Option<Stat>,
}

/// Which kept files are meant.
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
    /// The oldest version of each file, instead of the newest.
    pub(crate) is_oldest: bool,
}

/// Result of bringing files back, or of taking that back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackReport {
    /// Name of the recovery, by which it is taken back. `None` if nothing was done.
    pub id: Option<String>,
    /// Files that are back; or that are gone again.
    pub files: Vec<PathBuf>,
    /// Files that were left as they are, with the reasons.
    pub left: Vec<(PathBuf, String)>,
}

/// Finds kept files that are missing or differ now. The last kept come first, and of each file the newest version.
pub(crate) fn find_lost(store: &Store, query: KeptQuery<'_>) -> Vec<KeptLoss> {
    let is_meant = |path: &Path| {
        query.within.is_none_or(|dir| path.starts_with(dir))
            && (query.paths.is_empty() || query.paths.iter().any(|wanted| path.starts_with(wanted)))
    };
    let may_hold = |path: &Path| is_meant(path) || query.paths.iter().any(|wanted| wanted.starts_with(path));
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut losses = Vec::new();
    let mut sets = store.kept.sets();
    if query.is_oldest {
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
            if !is_meant(&to) || entry.kind != KeptKind::Dir && !seen.insert(to.clone()) {
                continue;
            }
            let over = stat_of(&to);
            if over.as_ref().is_none_or(|now| is_other_file(&entry, now)) {
                jobs.push(BackJob { set: set.name.clone(), entry, to, over });
            }
        }
        losses.extend(loss(store, &set, jobs));
    }
    losses
}

/// Size up to which a kept file is read to find out if it has certain contents.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// Returns the kept files for which `is_meant` returns true, and those with one of these contents unless they are large:
/// the original path, the name of the set and the id of the contents.
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

fn original(set: &KeptSet, entry: &KeptEntry) -> PathBuf {
    if entry.path.is_empty() {
        set.header.path.clone()
    } else {
        set.header.path.join(sys::name_from_bytes(&entry.path))
    }
}

/// Returns true if what is at the path now is not what was kept.
fn is_other_file(entry: &KeptEntry, now: &Stat) -> bool {
    let is_same_inode = (now.dev, now.ino) == (entry.dev, entry.ino);
    match &entry.kind {
        KeptKind::Dir => false,
        KeptKind::Link(_) => now.kind != Kind::Link,
        // Both names show the same contents.
        KeptKind::File(HeldBy::Link) => !is_same_inode,
        KeptKind::File(_) => !is_same_inode || (now.size, now.mtime) != (entry.size, entry.mtime),
    }
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
fn is_changed(store: &Store, job: &BackJob) -> bool {
    job.entry.kind == KeptKind::File(HeldBy::Link)
        && stat_of(&store.kept.contents(&job.set, &job.entry.path))
            .is_some_and(|now| (now.size, now.mtime) != (job.entry.size, job.entry.mtime))
}

/// Input of [`back`].
pub(crate) struct BackRequest<'a> {
    pub(crate) losses: &'a [KeptLoss],
    /// Directory in which missing directories may be made. Elsewhere the parent must exist and be the user's.
    pub(crate) within: Option<&'a Path>,
    /// Checkpoint of the state before, if there is one.
    pub(crate) safety: Option<CheckpointId>,
    pub(crate) settings: &'a Settings,
    pub(crate) home: Option<&'a Path>,
    pub(crate) now: Moment,
}

/// Brings files back. What is at their paths is kept first, and left alone if that is not possible. The files that are to
/// be made are on record before the first is, so that a recovery that was killed can be taken back, too.
pub(crate) fn back(store: &Store, request: &BackRequest<'_>, progress: &Progress) -> Result<BackReport> {
    sweep_unfinished(store);
    let mut report = BackReport::default();
    let jobs: Vec<&BackJob> = request.losses.iter().flat_map(|loss| &loss.jobs).collect();
    let (token, mut record) =
        (random_token(), BackRecord { time: request.now, safety: request.safety, files: Vec::new() });
    let mut dirs: Vec<PathBuf> = jobs.iter().filter_map(|job| job.to.parent().map(Path::to_owned)).collect();
    dirs.dedup();
    let replaced = jobs.iter().enumerate().filter(|(_, job)| job.over.is_some());
    let replaced =
        replaced.map(|(number, job)| (number, BroughtBack::new(&job.to, job.over.as_ref(), None, false))).collect();
    let mut mark = store.kept.note_begun(&BackNote { token: token.clone(), dirs, replaced })?;
    let mut temporaries = BackTemporaries::new(&token);
    let id = KeptFiles::new_back_id();
    let new = jobs.iter().filter(|job| job.over.is_none() && matches!(job.entry.kind, KeptKind::File(_)));
    let planned: Vec<_> = new.map(|job| BroughtBack::planned(&job.to, &job.entry, &id_of(&job.set))).collect();
    if !planned.is_empty() {
        store.kept.save_back(&id, &BackRecord { files: planned, ..record.clone() })?;
    }
    let total = jobs.len();
    for (number, job) in jobs.into_iter().enumerate() {
        if progress.is_cancelled() {
            return Err(
                Error::new(ErrorKind::Stopped, "recover files").because(format!("stopped after {number} of {total}"))
            );
        }
        let is_there = || stat_of(&job.to).is_some_and(|found| found.kind == Kind::Dir);
        if job.entry.kind == KeptKind::Dir && is_there() {
            continue;
        }
        let made_dirs = make_parent(job, request.within);
        let made = made_dirs.and_then(|dirs| {
            record.files.extend(dirs.iter().map(|dir| BroughtBack::new(dir, None, None, true)));
            one(store, request, job, &mut temporaries, number)
        });
        if temporaries.is_left() {
            mark.leave();
        }
        match made {
            Ok(Some(done)) => {
                report.files.extend((!done.is_dir).then(|| job.to.clone()));
                record.files.push(done);
            }
            Ok(None) => {}
            Err(why) => report.left.push((job.to.clone(), why)),
        }
    }
    if record.files.is_empty() {
        store.kept.forget_back(&id);
    } else {
        store.kept.save_back(&id, &record)?;
        report.id = Some(id);
    }
    Ok(report)
}

/// Brings one entry back. Returns `None` if it is a directory that exists.
fn one(
    store: &Store,
    request: &BackRequest<'_>,
    job: &BackJob,
    temporaries: &mut BackTemporaries<'_>,
    number: usize,
) -> std::result::Result<Option<BroughtBack>, String> {
    let failed = |error: std::io::Error| crate::error::plain_io(&error);
    let done = |stat: Option<&Stat>, saved, is_dir| {
        Some(BroughtBack::new(&job.to, stat, saved, is_dir).with_source(id_of(&job.set)))
    };
    let entry = &job.entry;
    match &entry.kind {
        KeptKind::Dir => {
            let is_made = bring_back_dir(&job.to, entry.mode).map_err(failed)?;
            Ok(if is_made { done(None, None, true) } else { None })
        }
        KeptKind::Link(target) => {
            if !bring_back_link(target, &job.to).map_err(failed)? {
                return Err("something else is there".to_owned());
            }
            Ok(done(stat_of(&job.to).as_ref(), None, false))
        }
        KeptKind::File(_) => {
            let saved = job.over.as_ref().map(|over| save_first(store, request, &job.to, over)).transpose()?;
            let mtime = (!is_changed(store, job)).then_some(entry.mtime);
            let (from, attributes) =
                (store.kept.contents(&job.set, &entry.path), BackAs { mode: entry.mode & 0o777, mtime });
            let made =
                bring_back(&from, &job.to, attributes, job.over.as_ref(), temporaries, number).map_err(failed)?;
            let made = made.ok_or("it changed meanwhile")?;
            Ok(done(Some(&made), saved, false))
        }
    }
}

/// Makes the directories around a file of a project, and returns them, the outermost first. Elsewhere, checks that the
/// directory exists and is the user's.
fn make_parent(job: &BackJob, within: Option<&Path>) -> std::result::Result<Vec<PathBuf>, String> {
    let Some(parent) = job.to.parent() else { return Err("it has no parent directory".to_owned()) };
    let Some(within) = within.filter(|dir| parent.starts_with(dir)) else {
        return match stat_of(parent) {
            Some(found) if found.kind == Kind::Dir && is_own_dir(parent) => Ok(Vec::new()),
            Some(found) if found.kind == Kind::Dir => Err("its directory belongs to another user".to_owned()),
            _ => Err("its directory does not exist".to_owned()),
        };
    };
    // Nothing is written through a link.
    let inner: Vec<&Path> = parent.ancestors().take_while(|dir| *dir != within).collect();
    let mut missing = Vec::new();
    for dir in inner.into_iter().rev() {
        match stat_of(dir) {
            Some(found) if found.kind == Kind::Dir => {}
            Some(_) => return Err(format!("{} is in the way", dir.display())),
            None => missing.push(dir.to_owned()),
        }
    }
    make_dir(parent).map_err(|error| error.to_string())?;
    Ok(missing)
}

/// Keeps the file that is at the path now. Returns the name of the set.
fn save_first(
    store: &Store,
    request: &BackRequest<'_>,
    path: &Path,
    over: &Stat,
) -> std::result::Result<String, String> {
    if !matches!(over.kind, Kind::File | Kind::Link) {
        return Err("something else is there".to_owned());
    }
    let loss = Loss::file(path.to_owned(), LossKind::Unlinked);
    let wanted = KeepRequest { is_held_too: true, ..KeepRequest::new(vec![loss], Vec::new(), "a recovery") };
    let kept = keep_files(store, &wanted, request.settings, request.home, request.now, &Progress::default());
    let set = kept.kept.into_iter().next().map(|(_, id)| id).or_else(|| {
        // It was kept before, and is unchanged.
        store.kept.sets_of(path).first().filter(|_| kept.gaps.is_empty()).map(KeptSet::id)
    });
    set.ok_or_else(|| match kept.gaps.first() {
        Some(gap) => format!("what is there now could not be saved first: {gap}"),
        None => "what is there now could not be saved first".to_owned(),
    })
}

/// Takes a recovery back: removes the files that it made, and restores those that it replaced. Files that were changed
/// since are left alone.
pub(crate) fn reverse(store: &Store, record: &BackRecord, request: &BackRequest<'_>) -> Result<BackReport> {
    sweep_unfinished(store);
    let mut report = BackReport::default();
    for file in record.files.iter().rev().filter(|file| !file.is_gone) {
        if file.is_dir {
            take_away_dir(&file.path);
            continue;
        }
        let replaced = file.saved.as_ref().and_then(|id| store.kept.find(id));
        let done = match (&file.saved, replaced) {
            (Some(id), None) => Err(format!("the version before it, {id}, has expired")),
            (Some(_), Some(set)) if is_unchanged(file) => put_back(store, &set, file, request),
            (None, _) if stat_of(&file.path).is_none() => Ok(()),
            (None, _) if is_unchanged(file) => remove_again(store, file, request),
            _ => Err("it was changed since".to_owned()),
        };
        match done {
            Ok(()) => report.files.push(file.path.clone()),
            Err(why) => report.left.push((file.path.clone(), why)),
        }
    }
    Ok(report)
}

/// Removes a file that a recovery made.
fn remove_again(store: &Store, file: &BroughtBack, request: &BackRequest<'_>) -> std::result::Result<(), String> {
    secure(store, file, request)?;
    take_again(file)
}

/// Makes sure that a file that a recovery made is kept, and returns the name of the set. What it came from may have
/// expired or changed, and the file may be the only copy.
pub(super) fn secure(
    store: &Store,
    file: &BroughtBack,
    request: &BackRequest<'_>,
) -> std::result::Result<String, String> {
    let Some(seen) = stat_of(&file.path).filter(|now| file.is(now)) else {
        return Err("it was changed since".to_owned());
    };
    let source = file.from.as_ref().and_then(|id| store.kept.find(id));
    match source.filter(|set| has_unchanged(store, set, &file.path)) {
        Some(set) => Ok(set.id()),
        None => save_first(store, request, &file.path, &seen),
    }
}

/// Returns true if a set has the file of this path, as it was when it was kept.
fn has_unchanged(store: &Store, set: &KeptSet, path: &Path) -> bool {
    let entries = store.kept.entries(&set.name).unwrap_or_default();
    let entry = entries.into_iter().find(|entry| original(set, entry) == path);
    entry.is_some_and(|entry| match &entry.kind {
        KeptKind::File(_) => {
            let found = stat_of(&store.kept.contents(&set.name, &entry.path));
            found.is_some_and(|now| {
                now.size == entry.size && (entry.kind != KeptKind::File(HeldBy::Link) || now.mtime == entry.mtime)
            })
        }
        KeptKind::Link(_) => true,
        KeptKind::Dir => false,
    })
}

/// Removes a file that a recovery made, if it is unchanged.
pub(super) fn take_again(file: &BroughtBack) -> std::result::Result<(), String> {
    let changed = || Err("it was changed since".to_owned());
    let Some(seen) = stat_of(&file.path).filter(|now| file.is(now)) else { return changed() };
    match take_away(&file.path, &seen) {
        Ok(true) => Ok(()),
        Ok(false) => changed(),
        Err(error) => Err(crate::error::plain_io(&error)),
    }
}

pub(super) fn is_unchanged(file: &BroughtBack) -> bool {
    stat_of(&file.path).is_some_and(|now| file.is(&now))
}

/// Restores the version that a recovery replaced.
fn put_back(
    store: &Store,
    set: &KeptSet,
    file: &BroughtBack,
    request: &BackRequest<'_>,
) -> std::result::Result<(), String> {
    let query = KeptQuery { paths: std::slice::from_ref(&file.path), from: Some(&set.id()), ..KeptQuery::default() };
    let losses = find_lost(store, query);
    let again = BackRequest { losses: &losses, safety: None, ..*request };
    let report = back(store, &again, &Progress::default()).map_err(|error| error.to_string())?;
    match report.left.into_iter().next() {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

/// Removes the temporary files of a recovery that was killed. Returns false if one could not be removed. A file with a
/// temporary name that is not saved, because it was changed at the moment at which it was to be replaced, stays.
fn clean_up(note: &BackNote) -> bool {
    let is_saved = |number: usize, found: &Stat| {
        let replaced = note.replaced.iter().find(|(own, _)| *own == number);
        // It is the file that was saved before; or that is still in its place, and this is the new one.
        replaced.is_some_and(|(_, file)| file.is(found) || is_unchanged(file))
    };
    note.dirs.iter().filter(|dir| !remove_temporaries(dir, &note.token, is_saved)).count() == 0
}

/// Removes the temporary files of recoveries that were killed.
pub(crate) fn sweep_unfinished(store: &Store) {
    store.kept.take_killed(clean_up);
}

/// Returns a path as it is written in the sets: without links before its last component.
pub(crate) fn as_kept(path: &Path) -> PathBuf {
    if let Some(found) = resolved(path, false) {
        return found;
    }
    let around = path.ancestors().skip(1).find_map(|dir| Some((dir, dir.canonicalize().ok()?)));
    match around {
        Some((dir, real)) => real.join(path.strip_prefix(dir).unwrap_or(path)),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A recovery of two files was killed. One had been replaced, one not yet; a third had been changed by another program at
    /// the moment of the swap, so that its newest version has a temporary name.
    #[test]
    fn of_a_killed_recovery_every_temporary_file_goes_unless_it_is_not_saved() {
        let temp = tempfile::tempdir().expect("a directory");
        let dir = temp.path();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).expect("a file");
        let seen = |number: usize, name: &str| {
            let path = dir.join(name);
            (number, BroughtBack::new(&path, stat_of(&path).as_ref(), None, false))
        };
        let temporary = |kind: &str, number: usize| format!(".piton-restore-{kind}-token-{number}");
        ["replaced", "waiting", "changed"].iter().for_each(|name| write(name, "found"));
        let replaced = [seen(0, "replaced"), seen(1, "waiting"), seen(2, "changed")].to_vec();
        let note = BackNote { token: "token".to_owned(), dirs: vec![dir.to_owned(), dir.join("gone")], replaced };

        fs::rename(dir.join("replaced"), dir.join(temporary("x", 0))).expect("a swap");
        write("replaced", "brought back");
        write(&temporary("x", 1), "half");
        fs::rename(dir.join("changed"), dir.join(temporary("x", 2))).expect("a swap");
        write(&temporary("x", 2), "edited meanwhile");
        write("changed", "brought back");
        write(&temporary("w", 3), "half");
        write(".piton-restore-w-other-0", "of another process");

        assert!(clean_up(&note));
        let mut left: Vec<_> = fs::read_dir(dir).expect("a list").flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        let expected = [".piton-restore-w-other-0", &temporary("x", 2), "changed", "replaced", "waiting"];
        assert_eq!(left, expected);
    }
}
