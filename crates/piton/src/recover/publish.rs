//! A checkpoint of the current files with versions from several checkpoints, so that one restore brings them all back.

use std::collections::{BTreeMap, HashMap};

use super::LostKind;
use super::local::LocalVersions;
use super::version::Version;
use crate::error::{Error, ErrorKind, Result};
use crate::history::History;
use crate::id::CheckpointId;
use crate::merge::{Entry, EntryKind, MergedContents, MergedEntry, PathChange};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::revert::{Publish, withdraw};
use crate::settings::Settings;
use crate::store::{Checkpoint, EntryMode, FileModes, Origin, Store};
use crate::take::{Outcome, Request, take};
use crate::time::Moment;

/// Reason of the checkpoints.
const REASON: &str = "recovery of lost files";

/// A checkpoint that was made to be restored.
pub(super) struct Made {
    pub(super) target: CheckpointId,
    parent: CheckpointId,
}

impl Made {
    /// Removes it, unless a restore of it has begun.
    pub(super) fn withdraw(&self, store: &Store, project: &Project, now: Moment) -> Result<()> {
        withdraw(store, project, self.target, self.parent, now)
    }
}

/// Input for publishing a checkpoint of a recovery.
pub(super) struct RecoveryPublisher<'a> {
    pub(super) store: &'a Store,
    pub(super) project: &'a Project,
    pub(super) history: &'a History,
    pub(super) local: &'a LocalVersions,
    pub(super) settings: &'a Settings,
    pub(super) now: Moment,
}

impl RecoveryPublisher<'_> {
    /// Publishes the current files with these versions.
    pub(super) fn run(&self, versions: &[Version<'_>], progress: &Progress) -> Result<Made> {
        let Self { store, project, history, settings, now, .. } = *self;
        self.save_first(progress)?;
        let held = store.locks.share_until(Some(progress))?;
        let locked = store.locks.lock_project_until(&held, project.id(), Some(progress))?;
        let objects = store.objects.open(&held)?;
        let current = store.histories.of(&objects, project.id())?;
        let Some(newest) = current.checkpoints.first() else {
            return Err(Error::new(ErrorKind::NotFound, "recover files").because("the checkpoints are gone"));
        };
        let (local, versions): (Vec<_>, Vec<_>) = versions.iter().partition(|version| version.kind == LostKind::Local);
        let mut changes = Vec::new();
        for version in &versions {
            let old = objects.entry_at(newest.tree, &version.path)?;
            let old = old.and_then(|(mode, id)| Some(Entry { kind: kind_of(mode)?, id }));
            let new = kind_of(version.entry.0).map(|kind| {
                let contents = MergedContents::Stored(version.entry.1);
                MergedEntry { kind, contents }
            });
            changes.push(PathChange { path: version.path.clone(), old, new, renamed_from: None });
        }
        let sources = sources(&versions, history.checkpoints().first().unwrap_or(newest));
        let (start, origin) = (&sources, Origin::default());
        let publish = Publish { store, project, locked: &locked, objects: &objects, newest, start, origin, now };
        let target = publish.run(&changes, &HashMap::new(), REASON, settings)?;
        let made = Made { target, parent: newest.id };
        if !local.is_empty() {
            let saved = self.local.publish((store, project, &locked), &objects, (newest.id, target), &local, now);
            if let Err(error) = saved {
                drop((locked, held));
                let _ = made.withdraw(store, project, now);
                return Err(error);
            }
        }
        Ok(made)
    }

    /// Takes a checkpoint of the current files.
    fn save_first(&self, progress: &Progress) -> Result<()> {
        let request = Request { reason: format!("before {REASON}"), ..Request::default() };
        // No checkpoint may be dropped while the recovery is about to need it. The next take enforces the limits.
        let (max_snapshots, max_total_size_mb) = (u64::MAX.into(), 0);
        let settings = Settings { enabled: true, max_snapshots, max_total_size_mb, ..self.settings.clone() };
        match take(self.store, self.project, &request, &settings, self.now, progress)?.outcome {
            Outcome::Taken(_) | Outcome::Unchanged(_) => Ok(()),
            Outcome::Skipped(why) => Err(Error::new(ErrorKind::Invalid, "recover files")
                .because(format!("the current files could not be saved first: {why}"))),
        }
    }
}

fn kind_of(mode: EntryMode) -> Option<EntryKind> {
    match mode {
        EntryMode::File => Some(EntryKind::File),
        EntryMode::Executable => Some(EntryKind::Executable),
        EntryMode::Link => Some(EntryKind::Link),
        EntryMode::Dir | EntryMode::Commit => None,
    }
}

/// Returns a checkpoint with the permission bits of every version, and of the directories around it.
fn sources(versions: &[&Version<'_>], like: &Checkpoint) -> Checkpoint {
    let mut modes: BTreeMap<Vec<u8>, u16> = BTreeMap::new();
    for version in versions {
        let wanted = FileModes::new(&version.checkpoint.facts);
        modes.insert(version.path.clone(), wanted.file(&version.path, version.entry.0 == EntryMode::Executable));
        let mut dir = relpath::split(&version.path).0;
        while !dir.is_empty() {
            modes.entry(dir.to_vec()).or_insert_with(|| wanted.dir(dir));
            dir = relpath::split(dir).0;
        }
    }
    let mut sources = like.clone();
    sources.facts.modes = modes.into_iter().collect();
    sources
}
