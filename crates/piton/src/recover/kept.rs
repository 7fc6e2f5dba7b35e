//! Kept files as a source of lost things.

use std::path::{Path, PathBuf};

use super::{LostFrom, LostItem, LostKind, RecoverOptions, RecoverOutcome, RecoverReport};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::kept::{BackReport, BackRequest, KeptLoss, KeptQuery, as_kept, back, find_lost, reverse};
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
pub(super) struct KeptInProject {
    pub(super) losses: Vec<KeptLoss>,
    dir: PathBuf,
}

/// Finds the kept files of a project that the options mean.
pub(super) fn in_project(
    store: &Store,
    project: &Project,
    options: RecoverOptions<'_>,
    since: Option<Moment>,
) -> KeptInProject {
    let dir = project.dir().to_owned();
    let paths: Vec<PathBuf> = options.paths.iter().map(|path| dir.join(sys::name_from_bytes(path))).collect();
    let query = KeptQuery {
        paths: &paths,
        within: Some(&dir),
        from: options.from,
        since: since.filter(|_| options.paths.is_empty() && !options.is_all),
        is_oldest: false,
    };
    // Another name after `--from` is that of a checkpoint.
    let is_other = options.from.is_some() && !is_named(options.from);
    let losses = if is_other { Vec::new() } else { find_lost(store, query) };
    KeptInProject { losses, dir }
}

impl KeptInProject {
    fn holds(&self, path: &[u8], is_it: impl Fn(&KeptLoss) -> bool) -> bool {
        let path = self.dir.join(sys::name_from_bytes(path));
        self.losses.iter().any(|loss| is_it(loss) && loss.holds(&path))
    }

    /// Returns true if kept files are at or below this path.
    pub(super) fn is_at(&self, path: &[u8]) -> bool {
        self.holds(path, |_| true)
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
        store: &Store,
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
        back(store, &request, progress).map(Some)
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
/// those that are missing since earlier.
pub(super) fn outside(store: &Store, dir: &Path, since: Option<Moment>) -> (Vec<LostItem>, usize) {
    let mut losses = find_lost(store, KeptQuery::default());
    losses.retain(|loss| !loss.path.starts_with(dir));
    let (mut losses, earlier): (Vec<_>, Vec<_>) =
        losses.into_iter().partition(|loss| since.is_none_or(|since| loss.time.secs >= since.secs));
    losses.sort_by_key(|loss| loss.is_replaced);
    let earlier = earlier.iter().filter(|loss| !loss.is_replaced).count();
    (losses.iter().map(|loss| item(loss, None)).collect(), earlier)
}

/// Brings kept files at or below `paths`, which are in no project, back. Of the options, `from` and `is_dry` apply.
///
/// Fails with `NotFound` if nothing was kept of a path.
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
    let query = KeptQuery { paths: &paths, from: options.from, ..KeptQuery::default() };
    let losses = find_lost(store, query);
    if let Some(path) = paths.iter().find(|path| !losses.iter().any(|loss| loss.holds(path)) && !is_kept(store, path)) {
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
    let found = KeptInProject { losses, dir: PathBuf::new() };
    let back = found.bring_back(store, None, home, settings, now, progress)?;
    let is_partly = back.as_ref().is_some_and(|back| !back.left.is_empty());
    Ok(report(if is_partly { RecoverOutcome::Partly } else { RecoverOutcome::Recovered }, back))
}

/// Returns true if something was kept at, around or below a path.
fn is_kept(store: &Store, path: &Path) -> bool {
    let is_around = |kept: &Path| kept.starts_with(path) || path.starts_with(kept);
    store.kept.sets().iter().any(|set| is_around(&set.header.path))
}

/// Takes a recovery of kept files back: files that it made are removed, files that it replaced come back. Files that were
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
