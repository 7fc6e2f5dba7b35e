//! Keeps files that a command is about to destroy and that nothing else holds: large ones in a project, and any outside.
//!
//! - U3. Keeping never changes, moves or locks the user's files; at most it adds a hard link to one.
//! - U4. A file that the newest checkpoint of its project holds is not kept again, unless it has grown too large for
//!   the next checkpoint.
//! - U5. Kept files give way when the disk fills up: below the limit of free space they are released at once, and
//!   nothing more is kept.
//! - U9. The git repository of a project is not kept, and restoring kept files never writes to one: git states cover
//!   it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::project::{Home, Project};
use crate::relpath;
use crate::settings::Settings;
use crate::store::{HeldBy, KeptDraft, KeptEntry, KeptHeader, KeptKind, KeptSet, Origin, Store};
use crate::sys::{self, Kind, Stat};
use crate::time::Moment;
use crate::worktree::{
    Expanded, SaveLimits, SaveResult, Saved, SavedEntry, Wanted, expand, is_regenerated, name_matcher, replaced,
    resolved, save, stat_of,
};
use piton_triggers::{Loss, LossExtent, LossKind};

mod back;
mod gap;
mod held;
mod lost;
mod release;
mod rules;
mod with_restore;

pub use back::BackReport;
pub(crate) use back::{BackRequest, as_kept, back, reverse};
pub use gap::{Gap, GapReason};
use held::HeldFiles;
pub use lost::KeptLoss;
pub(crate) use lost::{KeptQuery, KeptVersion, find_kept, find_lost, is_kept_at};
pub use release::{KeptStatus, ReleaseReport, kept_status, release_kept};
pub(crate) use release::{expire, is_low, sweep_kept};
use rules::KeepRules;
pub(crate) use with_restore::KeptPlan;

/// Decides if a path is among those that are meant.
pub(crate) type KeptPathFilter<'a> = &'a dyn Fn(&Path) -> bool;

/// Number of files that are kept before one command.
const FILES_MAX: usize = 100_000;
/// Number of versions of one path that are kept.
const VERSIONS_MAX: usize = 8;
/// Directories of the system in which nothing is a user's data.
const SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What a command is about to destroy.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct KeepRequest {
    /// Paths, as the analysis of the command found them.
    pub losses: Vec<Loss>,
    /// Parts of the command that could not be analysed, shortened.
    pub unread: Vec<String>,
    /// The command, shortened.
    pub reason: String,
    /// Session and turn.
    pub origin: Origin,
    /// True to also keep files that a checkpoint already holds.
    pub is_held_too: bool,
    /// Directories of the projects whose newest checkpoint holds the present files. `None` if no checkpoint was wanted before
    /// the command: a file that is held under its name is not kept again then, whatever version that is.
    pub current: Option<Vec<PathBuf>>,
}

impl KeepRequest {
    /// Returns a request without origin.
    pub fn new(losses: Vec<Loss>, unread: Vec<String>, reason: impl Into<String>) -> Self {
        Self { losses, unread, reason: reason.into(), origin: Origin::default(), is_held_too: false, current: None }
    }

    /// Returns true if there is nothing to keep and nothing to report.
    pub fn is_empty(&self) -> bool {
        self.losses.is_empty() && self.unread.is_empty()
    }
}

/// Result of keeping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepReport {
    /// Paths that were kept, each with the name of its set.
    pub kept: Vec<(PathBuf, String)>,
    /// Paths that are unchanged since they were kept.
    pub unchanged: Vec<PathBuf>,
    /// Files that could not be kept.
    pub gaps: Vec<Gap>,
    /// Number of sets that were released because the disk is nearly full.
    pub released: u64,
}

impl KeepReport {
    /// Returns true if the path, or a directory around it, was kept or is named as not kept.
    pub(crate) fn names(&self, path: &Path) -> bool {
        let gaps = self.gaps.iter().filter_map(|gap| gap.path.as_ref());
        let all = self.kept.iter().map(|(kept, _)| kept).chain(&self.unchanged).chain(gaps);
        all.into_iter().any(|named| path.starts_with(named))
    }
}

/// Files at or below one path.
struct LossTarget {
    path: PathBuf,
    /// True if it includes everything below the path.
    is_tree: bool,
    /// Pattern of file names.
    names: Option<String>,
    /// True if the pattern may also match a directory around the file.
    is_deep: bool,
    kind: LossKind,
}

/// Keeps what a command is about to destroy. Never fails: what could not be kept is in the report.
pub fn keep_files(
    store: &Store,
    request: &KeepRequest,
    settings: &Settings,
    home: Option<&Path>,
    now: Moment,
    progress: &Progress,
) -> KeepReport {
    let mut report = KeepReport::default();
    report.gaps.extend(request.unread.iter().map(|what| Gap::unread(what)));
    let mut targets = Vec::new();
    for loss in &request.losses {
        targets_of(loss, &mut targets, &mut report.gaps);
    }
    targets.retain(|target| !is_system(&target.path));
    if targets.is_empty() {
        return report;
    }
    report.released = expire(store, settings, now);
    let mut keeping = Keeping {
        store,
        request,
        settings,
        now,
        progress,
        home: Home::new(home),
        held: HashMap::new(),
        is_low: is_low(store, settings),
        copied_bytes: None,
        files: 0,
        report,
    };
    for target in &targets {
        keeping.keep(target);
    }
    let Keeping { mut report, .. } = keeping;
    // Copies may have taken the last space. (U5)
    report.released += expire(store, settings, now);
    report
}

/// Finds the existing paths that a loss covers.
fn targets_of(loss: &Loss, targets: &mut Vec<LossTarget>, gaps: &mut Vec<Gap>) {
    let Expanded { paths, is_cut } = match &loss.extent {
        LossExtent::Onto { sources, merges } => replaced(&loss.path, sources, *merges),
        _ if loss.is_pattern => expand(&loss.path),
        _ => Expanded { paths: vec![loss.path.clone()], is_cut: false },
    };
    if is_cut {
        gaps.push(Gap::of(&loss.path, GapReason::TooMany));
    }
    for path in paths {
        // What is written through a link is the file that it leads to.
        let Some(path) = resolved(&path, loss.kind == LossKind::Rewritten) else { continue };
        let (is_tree, names, is_deep) = match &loss.extent {
            LossExtent::Tree | LossExtent::Untracked => (true, None, false),
            LossExtent::Below { names, is_deep } => (true, names.clone(), *is_deep),
            _ => (false, None, false),
        };
        targets.push(LossTarget { path, is_tree, names, is_deep, kind: loss.kind });
    }
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|dir| path.starts_with(dir))
}

struct Keeping<'a> {
    store: &'a Store,
    request: &'a KeepRequest,
    settings: &'a Settings,
    now: Moment,
    progress: &'a Progress,
    home: Home<'a>,
    /// What the newest checkpoints of projects hold, by the directory of the project.
    held: HashMap<PathBuf, Rc<HeldFiles>>,
    is_low: bool,
    /// Number of bytes that all copies take. Counted when the first copy may be needed.
    copied_bytes: Option<u64>,
    files: usize,
    report: KeepReport,
}

impl Keeping<'_> {
    fn keep(&mut self, target: &LossTarget) {
        let Some(stat) = stat_of(&target.path) else { return };
        let is_dir = stat.kind == Kind::Dir;
        if stat.kind == Kind::Special || is_dir && !target.is_tree || target.path.starts_with(self.store.base()) {
            return;
        }
        let root = Project::protecting_beside(&target.path, Some(self.store), &self.home);
        let held = self.held_in(root.as_deref());
        if held.is_repository(&target.path) {
            return;
        }
        let dir = if is_dir { Some(target.path.as_path()) } else { target.path.parent() };
        let is_made_again = dir.is_some_and(|dir| holds_regenerated(dir, root.as_deref()));
        if !self.request.is_held_too && (is_made_again || !is_dir && held.holds(&target.path, &stat)) {
            return;
        }
        if self.progress.is_cancelled() {
            return self.report.gaps.push(Gap::of(&target.path, GapReason::OutOfTime));
        }
        if self.is_low {
            return self.report.gaps.push(Gap::of(&target.path, GapReason::DiskLow));
        }
        if !is_dir && self.is_kept(target, &stat) {
            return self.report.unchanged.push(target.path.clone());
        }
        if let Err(error) = self.make(target, &held, root.as_deref()) {
            self.report.gaps.push(Gap::of(&target.path, GapReason::Failed(error.to_string())));
        }
    }

    /// Returns what the newest checkpoint of a project holds.
    fn held_in(&mut self, root: Option<&Path>) -> Rc<HeldFiles> {
        let is_current =
            self.request.current.as_ref().is_none_or(|dirs| dirs.iter().any(|dir| Some(dir.as_path()) == root));
        let known = self.held.entry(root.unwrap_or(Path::new("")).to_owned());
        Rc::clone(
            known.or_insert_with(|| Rc::new(HeldFiles::of(self.store, root, self.settings, is_current, self.progress))),
        )
    }

    /// Returns true if the newest set of a file has it as it is now, so that a command that is run again costs nothing.
    fn is_kept(&self, target: &LossTarget, stat: &Stat) -> bool {
        let Some(set) = self.store.kept.sets_of(&target.path).into_iter().next() else { return false };
        let entries = self.store.kept.entries(&set.name).unwrap_or_default();
        let is_same = |entry: &KeptEntry| {
            let is_safe = target.kind == LossKind::Unlinked || entry.kind != KeptKind::File(HeldBy::Link);
            is_safe && (entry.dev, entry.ino, entry.size, entry.mtime) == (stat.dev, stat.ino, stat.size, stat.mtime)
        };
        matches!(&entries[..], [entry] if is_same(entry))
    }

    fn make(&mut self, target: &LossTarget, held: &HeldFiles, root: Option<&Path>) -> Result<()> {
        let kept = &self.store.kept;
        let draft = kept.begin()?;
        let limits = SaveLimits {
            files_max: FILES_MAX.saturating_sub(self.files),
            copy_bytes_max: self.copy_room(target),
            may_link: target.kind == LossKind::Unlinked,
        };
        let is_match = target.names.as_deref().map(name_matcher);
        let rules = KeepRules::of(self.store, root, self.settings);
        let mut judge = rules.as_ref().map(KeepRules::judge);
        let base = self.store.base().to_owned();
        let (mut has_base, is_held_too) = (false, self.request.is_held_too);
        let mut is_wanted = |path: &[u8], stat: &Stat| {
            let full = if path.is_empty() { target.path.clone() } else { target.path.join(sys::name_from_bytes(path)) };
            let name = relpath::split(path).1;
            if stat.kind == Kind::Dir {
                has_base |= full == base;
                let is_left = full == base || holds_regenerated(&full, root) || held.is_repository(&full);
                // With a pattern of names, each file is asked about.
                let setting = judge.as_mut().filter(|_| is_match.is_none() && !is_left);
                return match setting.and_then(|judge| judge.setting_against(&full, stat)) {
                    Some(setting) => Wanted::Declined(setting),
                    None if is_left => Wanted::No,
                    None => Wanted::Yes,
                };
            }
            let is_lost = is_match.as_ref().is_none_or(|is_match| {
                let is_around = |dir: &[u8]| target.is_deep && is_match(relpath::split(dir).1);
                is_match(if path.is_empty() { own_name(&target.path) } else { name })
                    || relpath::ancestors(path).any(is_around)
                    || target.is_deep && is_match(own_name(&target.path))
            });
            if !is_lost || !is_held_too && held.holds(&full, stat) {
                return Wanted::No;
            }
            let setting = judge.as_mut().and_then(|judge| judge.setting_against(&full, stat));
            setting.map_or(Wanted::Yes, Wanted::Declined)
        };
        let saved = save(&target.path, draft.dir(), KeptDraft::data_name(), limits, &mut is_wanted, self.progress);
        let saved = saved.map_err(|error| Error::io("keep", &target.path, error))?;
        if has_base {
            self.report.gaps.push(Gap::of(self.store.base(), GapReason::IsStore));
        }
        self.report.gaps.extend(Gap::all_of(&target.path, &saved));
        let files = saved.entries.iter().filter(|entry| is_file(entry)).count();
        if files == 0 {
            return Ok(());
        }
        self.files += saved.entries.len();
        self.copied_bytes = self.copied_bytes.map(|bytes| bytes + saved.copied_bytes);
        let set = kept.publish(draft, &self.header(target, &saved, files), &entries_of(&saved))?;
        self.report.kept.push((target.path.clone(), set.id()));
        self.release_versions(&set)
    }

    /// Releases older versions of the path of a new set: as many as there are too many, and copies until all copies are
    /// within the limit again. Those in between go first, the oldest of them first, and the oldest of all goes last: it
    /// is the one that no agent made.
    fn release_versions(&mut self, new: &KeptSet) -> Result<()> {
        let sets = &self.store.kept;
        let mut older: Vec<KeptSet> = sets.sets_of(&new.header.path).into_iter().rev().collect();
        older.retain(|set| set.name != new.name);
        let mut excess = (older.len() + 1).saturating_sub(VERSIONS_MAX);
        let bytes_max = self.copied_bytes_max();
        let mut copied = self.copied_bytes.filter(|_| new.header.copied_bytes > 0).unwrap_or_default();
        let oldest = (!older.is_empty()).then(|| older.remove(0));
        for old in older.into_iter().chain(oldest) {
            let makes_room = copied > bytes_max && old.header.copied_bytes > 0;
            if excess > 0 || makes_room {
                sets.release(&old.name)?;
                excess = excess.saturating_sub(1);
                copied = copied.saturating_sub(old.header.copied_bytes);
                self.copied_bytes = self.copied_bytes.map(|bytes| bytes.saturating_sub(old.header.copied_bytes));
            }
        }
        Ok(())
    }

    fn copied_bytes_max(&self) -> u64 {
        self.settings.keep_total_size_mb << 20
    }

    fn header(&self, target: &LossTarget, saved: &SaveResult, files: usize) -> KeptHeader {
        KeptHeader {
            path: target.path.clone(),
            time: self.now,
            origin: self.request.origin.clone(),
            reason: self.request.reason.clone(),
            files: files as u64,
            bytes: saved.entries.iter().filter(|entry| is_file(entry)).map(|entry| entry.stat.size).sum(),
            copied_bytes: saved.copied_bytes,
            is_whole: saved.unsaved_count == 0,
        }
    }

    /// Returns the number of bytes that may be copied now. Those of older copies of the same path count as free: they are
    /// released once the new set is complete, if need be.
    fn copy_room(&mut self, target: &LossTarget) -> u64 {
        let sum = |sets: Vec<KeptSet>| sets.iter().map(|set| set.header.copied_bytes).sum::<u64>();
        let sets = &self.store.kept;
        let copied = *self.copied_bytes.get_or_insert_with(|| sum(sets.sets()));
        self.copied_bytes_max().saturating_sub(copied.saturating_sub(sum(sets.sets_of(&target.path))))
    }
}

/// Returns true if a directory of the project in `root` holds only what programs make again.
fn holds_regenerated(dir: &Path, root: Option<&Path>) -> bool {
    root.and_then(|root| dir.strip_prefix(root).ok()).is_some_and(|below| is_regenerated(sys::path_bytes(below), true))
}

fn own_name(path: &Path) -> &[u8] {
    path.file_name().map(|name| sys::path_bytes(Path::new(name))).unwrap_or_default()
}

fn is_file(entry: &SavedEntry) -> bool {
    entry.stat.kind != Kind::Dir
}

fn entries_of(saved: &SaveResult) -> Vec<KeptEntry> {
    let entry = |entry: &SavedEntry| {
        let kind = match entry.saved {
            Some(Saved::Link) => KeptKind::File(HeldBy::Link),
            Some(Saved::Clone) => KeptKind::File(HeldBy::Clone),
            Some(Saved::Copy) => KeptKind::File(HeldBy::Copy),
            None if is_file(entry) => KeptKind::Link(entry.target.clone()),
            None => KeptKind::Dir,
        };
        let Stat { mode, size, mtime, dev, ino, .. } = entry.stat;
        KeptEntry { kind, path: entry.path.clone(), mode, size, mtime, dev, ino }
    };
    saved.entries.iter().map(entry).collect()
}
