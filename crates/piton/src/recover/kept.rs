//! Kept files as a source of lost files.

use std::path::{Path, PathBuf};

use super::{LostFrom, LostItem, LostKind, RecoverOptions, RecoverOutcome, RecoverReport};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::kept::{
    BackReport, BackRequest, KeptLoss, KeptQuery, KeptVersion, as_kept, back, find_lost, is_kept_at, reverse,
};
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::store::Store;
use crate::sys;
use crate::time::Moment;

/// Prefix of the names of kept files.
const KEPT: &str = "k-";

/// Returns true if a name after `--from` is that of kept files.
pub(super) fn is_named(from: Option<&str>) -> bool {
    from.is_some_and(|from| from.starts_with(KEPT))
}

/// Kept files of a project that are missing or differ now.
pub(super) struct KeptInProject<'a> {
    pub(super) losses: Vec<KeptLoss>,
    store: &'a Store,
    dir: PathBuf,
}

/// Finds the kept files of a project that the options select.
pub(super) fn in_project<'a>(
    store: &'a Store,
    project: &Project,
    options: RecoverOptions<'_>,
    since: Option<Moment>,
) -> KeptInProject<'a> {
    let dir = project.dir().to_owned();
    let paths: Vec<PathBuf> = options.paths.iter().map(|path| dir.join(sys::name_from_bytes(path))).collect();
    let query = KeptQuery {
        paths: &paths,
        within: Some(&dir),
        from: options.from,
        since: since.filter(|_| options.paths.is_empty() && !options.is_all),
        version: match options.paths {
            [] if options.is_all => KeptVersion::EveryOther,
            [] => KeptVersion::Newest,
            _ => KeptVersion::NewestOther,
        },
    };
    // Another name after `--from` is that of a checkpoint.
    let is_other = options.from.is_some() && !is_named(options.from);
    let losses = if is_other { Vec::new() } else { find_lost(store, query) };
    KeptInProject { losses, store, dir }
}

/// Fails with `NotFound` if a name after `--from` is that of kept files, and there are none of it at one of the paths.
pub(super) fn check_named(store: &Store, from: Option<&str>, mut paths: impl Iterator<Item = PathBuf>) -> Result<()> {
    let Some(from) = from.filter(|_| is_named(from)) else { return Ok(()) };
    let why = match store.kept.find(from) {
        None => "nothing was kept under this name, or it has expired".to_owned(),
        Some(_) => match paths.find(|path| !is_kept_at(store, path, Some(from))) {
            Some(path) => format!("nothing of {} was kept under this name", path.display()),
            None => return Ok(()),
        },
    };
    Err(Error::new(ErrorKind::NotFound, format!("recover from {from}")).because(why).with_hint(Hint::ListLost))
}

impl KeptInProject<'_> {
    fn holds(&self, path: &[u8], is_it: impl Fn(&KeptLoss) -> bool) -> bool {
        let path = self.dir.join(sys::name_from_bytes(path));
        self.losses.iter().any(|loss| is_it(loss) && loss.holds(&path))
    }

    /// Returns true if something was kept at or below this path, whatever exists there now.
    pub(super) fn is_at(&self, path: &[u8]) -> bool {
        is_kept_at(self.store, &self.dir.join(sys::name_from_bytes(path)), None)
    }

    /// Returns true if the file at this path was kept after that time. A file is kept only if the newest checkpoint does not
    /// hold it: a checkpoint of the same second, if it holds the file, was taken later.
    pub(super) fn is_newer(&self, path: &[u8], than: Moment) -> bool {
        self.holds(path, |loss| loss.time.secs > than.secs)
    }

    /// Leaves out a file of which a checkpoint has a newer version.
    pub(super) fn leave_out(&mut self, path: &[u8]) {
        let path = self.dir.join(sys::name_from_bytes(path));
        self.losses.iter_mut().for_each(|loss| loss.leave_out(&path));
        self.losses.retain(|loss| loss.files > 0);
    }

    pub(super) fn bring_back(
        &self,
        within: Option<&Path>,
        home: Option<&Path>,
        settings: &Settings,
        now: Moment,
        progress: &Progress,
    ) -> Result<Option<BackReport>> {
        if self.losses.is_empty() {
            return Ok(None);
        }
        let request = BackRequest { losses: &self.losses, within, safety: None, settings, home, now };
        let mut report = back(self.store, &request, progress)?;
        // Paths of the project are relative, as those of the items.
        let below = |path: &mut PathBuf| {
            if let Some(relative) = within.and_then(|dir| path.strip_prefix(dir).ok()) {
                *path = relative.to_owned();
            }
        };
        report.files.iter_mut().for_each(below);
        report.left.iter_mut().for_each(|(path, _)| below(path));
        Ok(Some(report))
    }
}

/// Returns a loss as an item. Its path is relative to `dir`, if it is in that.
pub(super) fn item(loss: &KeptLoss, dir: Option<&Path>) -> LostItem {
    let below = dir.and_then(|dir| loss.path.strip_prefix(dir).ok());
    LostItem {
        kind: LostKind::Kept,
        // The project itself is a dot, as a command takes it.
        path: sys::path_bytes(
            below.map_or(&loss.path, |below| if below == Path::new("") { Path::new(".") } else { below }),
        )
        .to_vec(),
        from: LostFrom::Kept(loss.id.clone()),
        row: None,
        bytes: loss.bytes,
        files: loss.files,
        is_changed: loss.is_changed,
        command: Some(loss.reason.clone()),
        lost: None,
        is_replaced: loss.is_replaced,
        git_state: None,
    }
}

/// Returns kept files outside of the directory `dir` that were lost since a time, missing ones first, and the number of
/// those lost earlier.
pub(super) fn outside(store: &Store, dir: &Path, since: Option<Moment>) -> (Vec<LostItem>, usize) {
    let version = if since.is_none() { KeptVersion::EveryOther } else { KeptVersion::Newest };
    let mut losses = find_lost(store, KeptQuery { version, ..KeptQuery::default() });
    losses.retain(|loss| !loss.path.starts_with(dir));
    let (mut losses, earlier): (Vec<_>, Vec<_>) =
        losses.into_iter().partition(|loss| since.is_none_or(|since| loss.time.secs >= since.secs));
    losses.sort_by_key(|loss| loss.is_replaced);
    let earlier = earlier.iter().filter(|loss| !loss.is_replaced).count();
    (losses.iter().map(|loss| item(loss, None)).collect(), earlier)
}

/// Brings back kept files at or below `paths`, which are outside of every project. Of the options, only `from` and
/// `is_dry` apply.
///
/// Fails with `NotFound` if nothing was kept at or below one of the paths.
pub fn recover_outside(
    store: &Store,
    paths: &[PathBuf],
    options: RecoverOptions<'_>,
    settings: &Settings,
    home: Option<&Path>,
    now: Moment,
    progress: &Progress,
) -> Result<RecoverReport> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| as_kept(path)).collect();
    check_named(store, options.from, paths.iter().cloned())?;
    let version = KeptVersion::NewestOther;
    let query = KeptQuery { paths: &paths, from: options.from, version, ..KeptQuery::default() };
    let losses = find_lost(store, query);
    if let Some(path) = paths.iter().find(|path| !is_kept_at(store, path, None)) {
        return Err(Error::new(ErrorKind::NotFound, format!("recover {}", path.display()))
            .because("nothing was kept of it")
            .with_hint(Hint::ShowUnsaved));
    }
    let items = losses.iter().map(|loss| item(loss, None)).collect();
    let report = |outcome, kept| RecoverReport { outcome, items, older: 0, restore: None, kept };
    if losses.is_empty() {
        return Ok(report(RecoverOutcome::NothingLost, None));
    }
    if options.is_dry {
        return Ok(report(RecoverOutcome::Listed, None));
    }
    let found = KeptInProject { losses, store, dir: PathBuf::new() };
    let back = found.bring_back(None, home, settings, now, progress)?;
    let is_partly = back.as_ref().is_some_and(|back| !back.left.is_empty());
    Ok(report(if is_partly { RecoverOutcome::Partly } else { RecoverOutcome::Recovered }, back))
}

/// Undoes a recovery of kept files: removes the files that it created, and restores those that it replaced. Files that
/// changed since are left alone.
///
/// Fails with `NotFound` if there is no such recovery.
pub fn undo_recovery(
    store: &Store,
    id: &str,
    settings: &Settings,
    home: Option<&Path>,
    now: Moment,
) -> Result<BackReport> {
    let record = store.kept.back(id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("take back the recovery {id}")).because("there is no such recovery")
    })?;
    let request = BackRequest { losses: &[], within: None, safety: None, settings, home, now };
    let report = reverse(store, &record, &request)?;
    if report.left.is_empty() {
        store.kept.forget_back(id);
    }
    Ok(report)
}
