//! Finds kept files that are missing or differ now, brings them back, and takes that back again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{KeepRequest, keep_files};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, random_token};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::store::{BackNote, BackRecord, BroughtBack, HeldBy, KeptEntry, KeptKind, KeptSet, Store};
use crate::sys::{self, Kind, Stat};
use crate::time::Moment;
use crate::worktree::{
    BackAs, bring_back, bring_back_dir, bring_back_link, is_own_dir, make_dir, remove_temporaries, resolved, stat_of,
    take_away, take_away_dir,
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
    for set in store.kept.sets() {
        let is_old = query.since.is_some_and(|since| set.header.time < since);
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

/// Brings files back. What is at their paths is kept first, and left alone if that is not possible.
pub(crate) fn back(store: &Store, request: &BackRequest<'_>, progress: &Progress) -> Result<BackReport> {
    sweep_unfinished(store);
    let mut report = BackReport::default();
    let jobs: Vec<&BackJob> = request.losses.iter().flat_map(|loss| &loss.jobs).collect();
    let (token, mut record) =
        (random_token(), BackRecord { time: request.now, safety: request.safety, files: Vec::new() });
    let mut dirs: Vec<PathBuf> = jobs.iter().filter_map(|job| job.to.parent().map(Path::to_owned)).collect();
    dirs.dedup();
    let _note = store.kept.note_begun(&BackNote { token: token.clone(), dirs })?;
    let total = jobs.len();
    for (number, job) in jobs.into_iter().enumerate() {
        if progress.is_cancelled() {
            return Err(
                Error::new(ErrorKind::Stopped, "recover files").because(format!("stopped after {number} of {total}"))
            );
        }
        match one(store, request, job, &token, number) {
            Ok(Some(done)) => {
                report.files.extend((!done.is_dir).then(|| job.to.clone()));
                record.files.push(done);
            }
            Ok(None) => {}
            Err(why) => report.left.push((job.to.clone(), why)),
        }
    }
    if !record.files.is_empty() {
        report.id = Some(store.kept.save_back(&record)?);
    }
    Ok(report)
}

/// Brings one entry back. Returns `None` if it is a directory that exists.
fn one(
    store: &Store,
    request: &BackRequest<'_>,
    job: &BackJob,
    token: &str,
    number: usize,
) -> std::result::Result<Option<BroughtBack>, String> {
    let failed = |error: std::io::Error| crate::error::plain_io(&error);
    make_parent(job, request.within)?;
    let done = |stat: Option<&Stat>, saved, is_dir| Some(BroughtBack::new(&job.to, stat, saved, is_dir));
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
            let saved = job.over.as_ref().map(|over| save_first(store, request, job, over)).transpose()?;
            let mtime = (!is_changed(store, job)).then_some(entry.mtime);
            let (from, attributes) =
                (store.kept.contents(&job.set, &entry.path), BackAs { mode: entry.mode & 0o777, mtime });
            let made = bring_back(&from, &job.to, attributes, job.over.as_ref(), token, number).map_err(failed)?;
            let made = made.ok_or("it changed meanwhile")?;
            Ok(done(Some(&made), saved, false))
        }
    }
}

/// Makes the directory around a file of a project. Elsewhere, checks that it exists and is the user's.
fn make_parent(job: &BackJob, within: Option<&Path>) -> std::result::Result<(), String> {
    let Some(parent) = job.to.parent() else { return Err("it has no parent directory".to_owned()) };
    if stat_of(parent).is_some_and(|found| found.kind == Kind::Dir) {
        let is_allowed = within.is_some_and(|dir| parent.starts_with(dir)) || is_own_dir(parent);
        return if is_allowed { Ok(()) } else { Err("its directory belongs to another user".to_owned()) };
    }
    match within.filter(|dir| parent.starts_with(dir)) {
        Some(_) => make_dir(parent).map(drop).map_err(|error| error.to_string()),
        None => Err("its directory does not exist".to_owned()),
    }
}

/// Keeps the file that is at the path now. Returns the name of the set.
fn save_first(
    store: &Store,
    request: &BackRequest<'_>,
    job: &BackJob,
    over: &Stat,
) -> std::result::Result<String, String> {
    if !matches!(over.kind, Kind::File | Kind::Link) {
        return Err("something else is there".to_owned());
    }
    let loss = Loss::file(job.to.clone(), LossKind::Unlinked);
    let wanted = KeepRequest { is_held_too: true, ..KeepRequest::new(vec![loss], Vec::new(), "a recovery") };
    let kept = keep_files(store, &wanted, request.settings, request.home, request.now, &Progress::default());
    let set = kept.kept.into_iter().next().map(|(_, id)| id).or_else(|| {
        // It was kept before, and is unchanged.
        store.kept.sets_of(&job.to).first().filter(|_| kept.gaps.is_empty()).map(KeptSet::id)
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
    for file in record.files.iter().rev() {
        if file.is_dir {
            take_away_dir(&file.path);
            continue;
        }
        let replaced = file.saved.as_ref().and_then(|id| store.kept.find(id));
        let done = match (&file.saved, replaced) {
            (Some(id), None) => Err(format!("the version before it, {id}, has expired")),
            (Some(_), Some(set)) if is_unchanged(file) => put_back(store, &set, file, request),
            (None, _) if stat_of(&file.path).is_none() => Ok(()),
            (None, _) if is_unchanged(file) => {
                let seen = stat_of(&file.path).expect("looked at above");
                take_away(&file.path, &seen).map_err(|error| crate::error::plain_io(&error)).map(drop)
            }
            _ => Err("it was changed since".to_owned()),
        };
        match done {
            Ok(()) => report.files.push(file.path.clone()),
            Err(why) => report.left.push((file.path.clone(), why)),
        }
    }
    Ok(report)
}

fn is_unchanged(file: &BroughtBack) -> bool {
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

/// Removes the temporary files of recoveries that were killed.
pub(crate) fn sweep_unfinished(store: &Store) {
    store.kept.take_killed(|note| note.dirs.iter().for_each(|dir| remove_temporaries(dir, &note.token)));
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
