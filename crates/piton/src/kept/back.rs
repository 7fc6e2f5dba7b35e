//! Brings kept files back, and undoes that.

use std::path::{Path, PathBuf};

use super::lost::{BackJob, KeptLoss, KeptQuery, find_lost, is_changed, original};
use super::{KeepRequest, keep_files};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, random_token};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::store::{BackNote, BackRecord, BroughtBack, HeldBy, KeptFiles, KeptKind, KeptSet, Store, kept_id as id_of};
use crate::sys::{Kind, Stat};
use crate::time::Moment;
use crate::worktree::{
    BackAs, BackTemporaries, bring_back, bring_back_dir, bring_back_link, has_same_contents, is_own_dir, make_dir,
    remove_temporaries, resolved, stat_of, take_away, take_away_dir,
};
use piton_triggers::{Loss, LossKind};

/// Result of bringing files back, or of taking that back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackReport {
    /// Name of the recovery, by which it is taken back. `None` if nothing was done.
    pub id: Option<String>,
    /// Files that were recovered or, by an undo, are as they were before the recovery.
    pub files: Vec<PathBuf>,
    /// Files that were left as they are, with the reasons.
    pub left: Vec<(PathBuf, String)>,
}

/// Input of [`back`].
pub(crate) struct BackRequest<'a> {
    pub(crate) losses: &'a [KeptLoss],
    /// Directory in which missing directories may be created. Elsewhere the parent must exist and belong to the user.
    pub(crate) within: Option<&'a Path>,
    /// Checkpoint of the state before, if there is one.
    pub(crate) safety: Option<CheckpointId>,
    pub(crate) settings: &'a Settings,
    pub(crate) home: Option<&'a Path>,
    pub(crate) now: Moment,
}

/// Brings files back. Existing files at their paths are kept first, and are left alone if that fails. The files to be
/// created are recorded before the first is created, so that a killed recovery can be undone, too.
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

/// Brings back one entry. Returns `None` for a directory that exists.
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
    let saved_first = || job.over.as_ref().map(|over| save_first(store, request, &job.to, over)).transpose();
    let entry = &job.entry;
    match &entry.kind {
        KeptKind::Dir => {
            let is_made = bring_back_dir(&job.to, entry.mode).map_err(failed)?;
            Ok(if is_made { done(None, None, true) } else { None })
        }
        KeptKind::Link(target) => {
            let saved = saved_first()?;
            let made = bring_back_link(target, &job.to, job.over.as_ref(), temporaries, number).map_err(failed)?;
            let made = made.ok_or("it changed meanwhile")?;
            Ok(done(Some(&made), saved, false))
        }
        KeptKind::File(_) => {
            let saved = saved_first()?;
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

/// Creates the missing parent directories of a file in a project, and returns them, outermost first. Elsewhere, checks
/// that the parent exists and belongs to the user.
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
        return Err("a directory is in the way".to_owned());
    }
    if let Some(id) = held_version(store, path, over) {
        return Ok(id);
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

/// Returns the set that already holds the current version of a file, if any, so that it is not kept twice.
fn held_version(store: &Store, path: &Path, now: &Stat) -> Option<String> {
    let holds = |set: &KeptSet| {
        let Ok([entry]) = <[_; 1]>::try_from(store.kept.entries(&set.name).unwrap_or_default()) else { return false };
        let held = store.kept.contents(&set.name, &entry.path);
        // Through another name of it, a hard link may be changed later.
        let is_own =
            || entry.kind != KeptKind::File(HeldBy::Link) || stat_of(&held).is_some_and(|held| held.links == 1);
        let is_as_now = (entry.size, entry.mtime, entry.mode & 0o777) == (now.size, now.mtime, now.mode & 0o777);
        let is_file = now.kind == Kind::File && matches!(entry.kind, KeptKind::File(_));
        is_file && is_as_now && is_own() && has_same_contents(&held, path)
    };
    store.kept.sets_of(path).iter().find(|set| holds(set)).map(KeptSet::id)
}

/// Undoes a recovery: removes the files that it created, and restores those that it replaced. Files that changed since
/// are left alone.
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

/// Ensures that a file that a recovery created is kept, and returns the name of the set. Its source may have expired or
/// changed since, so the file may be the only copy.
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

/// Removes the temporary files of a recovery that was killed. Returns false if one could not be removed. A temporary
/// file whose contents are not saved stays: it was changed at the moment of the swap.
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
    fn temporary_files_of_a_killed_recovery_are_removed_unless_unsaved() {
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
