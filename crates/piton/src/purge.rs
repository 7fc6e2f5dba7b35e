//! Removing a path from every checkpoint of a project, for example after a secret was recorded.
//!
//! - X1. This is the one verb that rewrites history. The first checkpoint that held the path, and every later one, gets
//!   a new id; times, reasons and everything else stay. The report maps old ids to new ones.
//! - X2. Contents that are reported as gone are in no file of the store any more.
//! - X3. A checkpoint that held the path records that it did: a restore does not take the file for one that was created
//!   since, and leaves it alone.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::{CheckpointId, ObjectId, ObjectKind};
use crate::json::{AtPaths, JsonPaths};
use crate::kept::{as_kept, find_kept};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::skipped::{Extent, SkipReason, Skipped};
use crate::store::{
    Checkpoint, EntryMode, LocalRef, LocalState, NewObjects, Objects, Pin, Rewrite, Store, TurnRecord, collect_every,
    moved_meanwhile, push_entry, where_held,
};
use crate::sys;
use crate::time::Moment;

/// Shortest prefix of a turn's name that is accepted.
const TURN_CHARS_MIN: usize = 4;

/// Result of a purge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Old and new id of each rewritten checkpoint, oldest first.
    pub rewritten: Vec<(CheckpointId, CheckpointId)>,
    /// Paths that were removed, sorted.
    pub paths: Vec<Vec<u8>>,
    /// Number of distinct contents that are gone.
    pub gone: u64,
    /// Contents that checkpoints held at these paths, without local files. A copy of the checkpoints elsewhere still
    /// holds them.
    pub contents: Vec<ObjectId>,
    /// Contents that other paths or projects still hold: id and place, one entry per place.
    pub still_held: Vec<(ObjectId, String)>,
    /// Number of bytes freed on disk.
    pub bytes_freed: u64,
}

/// JSON of a [`PurgeReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PurgeReportJson<'a> {
    #[serde(flatten)]
    paths: JsonPaths<'a, AtPaths>,
    /// number of contents that are gone
    gone: u64,
    /// checkpoints that have new ids, oldest first
    rewritten: Vec<RewrittenJson>,
    /// contents that other paths, projects or the remote still hold
    still_held: Vec<StillHeldJson<'a>>,
    /// number of bytes freed
    bytes_freed: u64,
}

/// JSON of a checkpoint with a new id.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RewrittenJson {
    /// id before
    old: CheckpointId,
    /// id after
    new: CheckpointId,
}

/// JSON of a content that is still in the store.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StillHeldJson<'a> {
    /// id of the content
    id: ObjectId,
    /// where it is, as text
    place: &'a str,
}

impl<'a> From<&'a PurgeReport> for PurgeReportJson<'a> {
    fn from(report: &'a PurgeReport) -> Self {
        Self {
            paths: JsonPaths::new(&report.paths),
            gone: report.gone,
            rewritten: report.rewritten.iter().map(|&(old, new)| RewrittenJson { old, new }).collect(),
            still_held: report.still_held.iter().map(|(id, place)| StillHeldJson { id: *id, place }).collect(),
            bytes_freed: report.bytes_freed,
        }
    }
}

crate::json::serialized_as! {
    PurgeReport => PurgeReportJson<'_>;
}

/// Plan of a purge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgePlan {
    /// Number of checkpoints that would be rewritten.
    pub checkpoints: usize,
    /// Number of checkpoints whose local files include one of the paths.
    pub local: usize,
    /// Paths that would be removed, sorted.
    pub paths: Vec<Vec<u8>>,
}

/// Returns the plan of a purge. Changes nothing. See the example of [`purge`].
pub fn plan_purge(store: &Store, project: &Project, paths: &[Vec<u8>]) -> Result<PurgePlan> {
    let held = store.locks.share()?;
    refuse_while_restoring(store, project)?;
    let objects = store.objects.open(&held)?;
    let purge = Purge { objects: &objects, paths };
    let AffectedHistory { mut found, pinned, chain, .. } = purge.affected(store, project)?;
    let (locals, found_local) = purge.find_local(store, project)?;
    found.extend(found_local);
    let local = locals.iter().filter(|(.., held)| held.is_some()).count();
    Ok(PurgePlan { checkpoints: pinned.len() + chain.len(), local, paths: paths_of(found) })
}

/// Fails with `Busy` if a restore was interrupted: it needs its checkpoints under the ids that it recorded.
fn refuse_while_restoring(store: &Store, project: &Project) -> Result<()> {
    match store.intents.get(project.id())? {
        None => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Busy, "purge")
            .because("a restore of this project was cut short")
            .with_hint(Hint::FinishRestore)),
    }
}

/// Removes the text of one prompt from the ledger. Finds the turn as [`find_prompt`] does, and returns it.
///
/// A prompt in the reason of a checkpoint, written by versions without a ledger, is not removed.
pub fn purge_prompt(store: &Store, project: &Project, name: &str) -> Result<TurnRecord> {
    let turn = find_prompt(store, project, name)?;
    store.ledger.forget_prompt(&turn.session, &turn.turn)?;
    Ok(turn)
}

/// Returns the turn named `name`, out of those whose prompt text is in the ledger. A prefix of at least 4 characters is
/// enough.
///
/// Fails with `NotFound` if there is no such turn, and with `Ambiguous` if there are several.
pub fn find_prompt(store: &Store, project: &Project, name: &str) -> Result<TurnRecord> {
    let with_words = store.ledger.turns(project.id()).into_iter().filter(|turn| turn.prompt.is_some());
    let (exact, longer): (Vec<_>, Vec<_>) =
        with_words.filter(|turn| turn.turn.starts_with(name)).partition(|turn| turn.turn == name);
    let longer = longer.into_iter().filter(|_| name.chars().count() >= TURN_CHARS_MIN).collect();
    let mut found = if exact.is_empty() { longer } else { exact };
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(Error::new(ErrorKind::NotFound, format!("find the prompt of the turn {name:?}"))
            .because("the ledger of this project has no words of such a turn")
            .with_hint(Hint::ListTurns)),
        (Some(_), false) => Err(Error::new(ErrorKind::Ambiguous, format!("tell which turn {name:?} is"))
            .because(format!("{} turns begin with that", found.len() + 1))
            .with_hint(Hint::GiveWholeTurn)),
        (Some(turn), true) => Ok(turn),
    }
}

/// Paths to remove, each with one of the contents that it had.
type PathVersions = HashSet<(Vec<u8>, ObjectId)>;

/// Checkpoint, state of its local files, and the contents of that state if it holds a path to remove.
type PurgedLocal = (CheckpointId, ObjectId, Option<LocalState>);

fn paths_of(found: PathVersions) -> Vec<Vec<u8>> {
    found.into_iter().map(|(path, _)| path).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Removes the paths, files or directories, from every checkpoint of the project. Kept files are not changed; the report
/// names those that hold the paths or their contents.
///
/// Fails with `NotFound` if neither a checkpoint nor kept files hold one.
///
/// ```
/// use piton::{Progress, plan_purge, purge};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # std::fs::write(code.join("keys.json"), "secret")?;
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let request = piton::Request::default().reason("before patch");
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// let paths = [b"keys.json".to_vec()];
/// assert_eq!(plan_purge(&store, &project, &paths)?.checkpoints, 1); // looks only
/// let report = purge(&store, &project, &paths, now, &Progress::default())?;
/// assert_eq!((report.rewritten.len(), report.gone), (1, 1)); // one checkpoint has a new id, one content is gone
/// # Ok(())
/// # }
/// ```
pub fn purge(
    store: &Store,
    project: &Project,
    paths: &[Vec<u8>],
    now: Moment,
    progress: &Progress,
) -> Result<PurgeReport> {
    let collecting = store.locks.lock_gc()?;
    // Fail before the rewrite if the refs cannot be read, because garbage collection would fail after it.
    store.catalog.newest_of_all()?;
    let before = store.size.count_bytes()?;
    let dirs: Vec<_> = paths.iter().map(|path| project.dir().join(sys::name_from_bytes(path))).collect();
    let mut tries = 0..MOVES_MAX;
    let (mut report, contents) = loop {
        match rewrite_history(store, project, paths, now) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let still_held = kept_copies(store, &dirs, &HashSet::new());
                let report = PurgeReport { still_held, ..PurgeReport::default() };
                return if report.still_held.is_empty() { Err(error) } else { Ok(report) };
            }
            Err(error) => return Err(error),
            Ok(Some(rewritten)) => break rewritten,
            // Another process took a checkpoint meanwhile, which must be rewritten, too.
            Ok(None) if tries.next().is_some() => {}
            Ok(None) => return Err(moved_meanwhile("purge")),
        }
    };
    collect_every(store, &collecting, now, progress)?;
    report.still_held = where_held(store, &contents)?;
    for holder in store.git_states.projects()? {
        let is_held = store.git_states.held_ids(&holder)?;
        let place = store.dir_of(&holder).map_or_else(|| holder.to_string(), |dir| dir.display().to_string());
        let held = contents.iter().filter(|id| is_held(&id.to_string()));
        report.still_held.extend(held.map(|id| (*id, format!("objects of the git repository of {place}"))));
    }
    report.still_held.extend(kept_copies(store, &dirs, &contents));
    let still_there: HashSet<_> = report.still_held.iter().map(|(id, _)| *id).collect();
    report.gone = contents.difference(&still_there).count() as u64;
    report.bytes_freed = before.saturating_sub(store.size.count_bytes()?);
    Ok(report)
}

/// Returns the copies among kept files of these paths, and of these contents.
fn kept_copies(store: &Store, paths: &[PathBuf], contents: &HashSet<ObjectId>) -> Vec<(ObjectId, String)> {
    let kept = find_kept(store, |path| paths.iter().any(|wanted| path.starts_with(wanted)), contents);
    let place = |path: PathBuf, set: String| format!("{} in the kept files {set}", path.display());
    kept.into_iter().map(|(path, set, id)| (id, place(path, set))).collect()
}

/// Reports which kept files hold paths outside of projects. No checkpoint holds such a path, so nothing is removed.
///
/// Fails with `NotFound` if no kept file holds one.
pub fn purge_outside(store: &Store, paths: &[PathBuf]) -> Result<PurgeReport> {
    let paths: Vec<_> = paths.iter().map(|path| as_kept(path)).collect();
    let still_held = kept_copies(store, &paths, &HashSet::new());
    if still_held.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "purge").because("neither a checkpoint nor kept files hold it"));
    }
    Ok(PurgeReport { still_held, ..PurgeReport::default() })
}

/// Number of retries after another process moved the ref meanwhile.
const MOVES_MAX: u32 = 8;

/// Writes the checkpoints without the paths, and moves the ref to them. Returns the report and the removed contents, or
/// `None` if another process moved the ref meanwhile.
fn rewrite_history(
    store: &Store,
    project: &Project,
    paths: &[Vec<u8>],
    now: Moment,
) -> Result<Option<(PurgeReport, HashSet<ObjectId>)>> {
    let mut report = PurgeReport::default();
    let held = store.locks.share()?;
    let locked = store.locks.lock_project(&held, project.id())?;
    refuse_while_restoring(store, project)?;
    let objects = store.objects.open(&held)?;
    let purge = Purge { objects: &objects, paths };
    let AffectedHistory { newest, all, pins, mut found, pinned, chain } = purge.affected(store, project)?;
    let (locals, found_local) = purge.find_local(store, project)?;
    report.contents = found.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().into_iter().collect();
    found.extend(found_local);
    if pinned.is_empty() && chain.is_empty() && locals.iter().all(|local| local.2.is_none()) {
        return Err(Error::new(ErrorKind::NotFound, "purge")
            .because("no checkpoint of this project holds it")
            .with_hint(Hint::ListFiles));
    }
    let contents = found.iter().map(|(_, id)| *id).collect();
    report.paths = paths_of(found);
    let new_objects = store.objects.new_objects(&objects, false);
    let boundary = store.boundary.ends()?;
    let mut ids: HashMap<CheckpointId, CheckpointId> = HashMap::new();
    let mut renamed = HashMap::new();
    let is_end = |checkpoint: &Checkpoint| boundary.contains(&checkpoint.id) || !all.contains(&checkpoint.id);
    for checkpoint in pinned.iter().chain(chain.iter().rev()) {
        let parent = checkpoint.parent.filter(|_| !is_end(checkpoint));
        let parent = parent.map(|parent| ids.get(&parent).copied().unwrap_or(parent));
        let (new, tree) = purge.rewrite(checkpoint, parent, &ids, &new_objects)?;
        ids.insert(checkpoint.id, new);
        renamed.insert(checkpoint.id, (new, tree));
        report.rewritten.push((checkpoint.id, new));
    }
    let locals = purge.rewrite_local(locals, &new_objects)?;
    // Held until the ref has moved: stock git's garbage collection would delete the packs.
    let _published = new_objects.publish()?;
    // Before the ref moves: the ledger has both ids from here on, so it is right whether or not the ref moves.
    store.ledger.rename_checkpoints(project.id(), &renamed)?;
    if let Some(new) = newest.and_then(|newest| ids.get(&newest).copied())
        && !store.refs.advance(&locked, project.id(), newest, new, now)?
    {
        return Ok(None);
    }
    for Pin { name, id } in pins {
        if let Some(&id) = ids.get(&id) {
            store.pins.set(&locked, project.id(), &Pin { name, id }, now)?;
        }
    }
    for LocalRef { checkpoint, state } in locals {
        let renamed = ids.get(&checkpoint).copied();
        store.locals.set(&locked, project.id(), &LocalRef { checkpoint: renamed.unwrap_or(checkpoint), state }, now)?;
        if renamed.is_some() {
            store.locals.remove(&locked, project.id(), checkpoint, now)?;
        }
    }
    // Whatever lies behind the other pins may hold the paths.
    let all = all.into_iter().map(|id| ids.get(&id).copied().unwrap_or(id)).collect();
    store.pins.cut_loose(&locked, project.id(), &all, now)?;
    store.git_states.rename_checkpoints(&locked, project.id(), &report.rewritten)?;
    store.indexes.forget(&locked, project.id())?;
    store.unfinished.drop_all(&locked, project.id(), now)?;
    Ok(Some((report, contents)))
}

/// Checkpoints of a project that hold purged paths, or come after one that does.
struct AffectedHistory {
    newest: Option<CheckpointId>,
    /// Ids of the whole history.
    all: HashSet<CheckpointId>,
    pins: Vec<Pin>,
    found: PathVersions,
    /// Pinned ones that are not in the history, oldest first.
    pinned: Vec<Checkpoint>,
    /// The part of the history from the newest to the first that holds any of the paths.
    chain: Vec<Checkpoint>,
}

struct Purge<'a> {
    objects: &'a Objects,
    paths: &'a [Vec<u8>],
}

impl Purge<'_> {
    fn is_purged(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|purged| relpath::is_within(path, purged))
    }

    fn affected(&self, store: &Store, project: &Project) -> Result<AffectedHistory> {
        let newest = store.refs.newest(project.id())?;
        let mut chain = store.histories.from(self.objects, newest)?.whole()?;
        let all: HashSet<_> = chain.iter().map(|one| one.id).collect();
        let (mut found, first) = self.find(&chain)?;
        chain.truncate(first.map_or(0, |at| at + 1));
        let pins = store.pins.of(project.id())?;
        let beyond: BTreeSet<_> = pins.iter().map(|pin| pin.id).filter(|id| !all.contains(id)).collect();
        let mut pinned = Vec::new();
        for id in beyond {
            let checkpoint = [self.objects.checkpoint(id)?];
            let (more, holds) = self.find(&checkpoint)?;
            found.extend(more);
            pinned.extend(checkpoint.into_iter().filter(|_| holds.is_some()));
        }
        pinned.sort_by_key(|one| (one.time.as_nanos(), one.id));
        Ok(AffectedHistory { newest, all, pins, found, pinned, chain })
    }

    /// Returns the local files of all checkpoints, each with its state if it holds a path to remove, and those paths with
    /// their contents.
    fn find_local(&self, store: &Store, project: &Project) -> Result<(Vec<PurgedLocal>, PathVersions)> {
        let (mut locals, mut found) = (Vec::new(), PathVersions::new());
        let mut known: HashMap<ObjectId, Option<LocalState>> = HashMap::new();
        for LocalRef { checkpoint, state } in store.locals.of(project.id())? {
            if let Entry::Vacant(vacant) = known.entry(state) {
                let read = store.locals.read(self.objects, state)?;
                let gone = self.objects.compare_trees(Some(read.tree), None)?.into_iter();
                let gone: Vec<_> = gone.filter(|change| self.is_purged(&change.path)).collect();
                vacant.insert((!gone.is_empty()).then_some(read));
                found.extend(gone.into_iter().filter_map(|change| Some((change.path, change.old?.1))));
            }
            locals.push((checkpoint, state, known[&state].clone()));
        }
        Ok((locals, found))
    }

    /// Writes the states without the purged paths. Returns all local files.
    fn rewrite_local(&self, locals: Vec<PurgedLocal>, new_objects: &NewObjects) -> Result<Vec<LocalRef>> {
        let mut rewritten = Vec::new();
        for (checkpoint, state, held) in locals {
            let state = match held {
                None => state,
                Some(mut held) => {
                    held.tree = self.strip(held.tree, b"", Some(new_objects))?.expect("the root always has a tree");
                    held.facts.modes.retain(|(path, _)| !self.is_purged(path));
                    held.in_use.retain(|path| !self.is_purged(path));
                    held.facts.files = None;
                    held.add_to(new_objects, None)?
                }
            };
            rewritten.push(LocalRef { checkpoint, state });
        }
        Ok(rewritten)
    }

    /// Returns all paths to remove with their contents, and the index of the oldest checkpoint that holds any of them.
    fn find(&self, history: &[Checkpoint]) -> Result<(PathVersions, Option<usize>)> {
        let (mut found, mut oldest) = (HashSet::new(), None);
        for (at, checkpoint) in history.iter().enumerate() {
            let stripped = self.strip(checkpoint.tree, b"", None)?;
            let gone = self.objects.compare_trees(Some(checkpoint.tree), None)?;
            if stripped != Some(checkpoint.tree) {
                oldest = Some(at);
                let gone = gone.into_iter().filter(|change| self.is_purged(&change.path));
                found.extend(gone.filter_map(|change| Some((change.path, change.old?.1))));
            }
        }
        Ok((found, oldest))
    }

    /// Returns the tree without the purged paths, or `None` if nothing is left of it. Without `new_objects` no tree is
    /// written, and `None` means any change.
    fn strip(&self, tree: ObjectId, dir: &[u8], new_objects: Option<&NewObjects>) -> Result<Option<ObjectId>> {
        // Only directories above a purged path are entered, so the recursion is as deep as the paths that the user
        // typed.
        let concerns = self.paths.iter().any(|path| relpath::is_within(path, dir));
        if !concerns && !dir.is_empty() {
            return Ok(Some(tree));
        }
        let mut bytes = Vec::new();
        let (mut is_same, mut count) = (true, 0);
        for entry in self.objects.tree(tree)? {
            let path = relpath::join(dir, &entry.name);
            let kept = match entry.mode {
                _ if self.is_purged(&path) => None,
                EntryMode::Dir => self.strip(entry.id, &path, new_objects)?,
                _ => Some(entry.id),
            };
            is_same &= kept == Some(entry.id);
            if let Some(id) = kept {
                push_entry(&mut bytes, entry.mode, &entry.name, id);
                count += 1;
            }
        }
        match new_objects {
            _ if is_same => Ok(Some(tree)),
            _ if count == 0 && !dir.is_empty() => Ok(None),
            None => Ok(None),
            Some(new_objects) => {
                let added = new_objects.writer().add(ObjectKind::Tree, &bytes)?;
                added.map(Some).map_err(|collision| Error::damaged("make a tree", collision))
            }
        }
    }

    fn rewrite(
        &self,
        checkpoint: &Checkpoint,
        parent: Option<CheckpointId>,
        ids: &HashMap<CheckpointId, CheckpointId>,
        new_objects: &NewObjects,
    ) -> Result<(CheckpointId, ObjectId)> {
        let tree = self.strip(checkpoint.tree, b"", Some(new_objects))?.expect("the root always has a tree");
        let all = self.objects.compare_trees(Some(checkpoint.tree), None)?;
        let gone_in = |path: &[u8]| all.iter().filter(|change| relpath::is_within(&change.path, path)).count() as u64;
        let gone = all.iter().filter(|change| self.is_purged(&change.path)).count() as u64;
        let mut purged = Vec::new();
        for path in self.paths {
            let extent = match self.objects.entry_at(checkpoint.tree, path)? {
                Some((EntryMode::Dir, _)) => Extent::Dir(Some(gone_in(path))),
                Some(_) => Extent::File,
                None => continue,
            };
            purged.push(Skipped { path: path.clone(), why: SkipReason::Purged, extent });
        }
        let bytes = self.objects.read(checkpoint.id, ObjectKind::Commit)?;
        let is_purged = |path: &[u8]| self.is_purged(path);
        let files = checkpoint.facts.files.map(|files| files.saturating_sub(gone));
        let bytes = Rewrite { tree, parent, files, ids, is_purged: &is_purged, purged: &purged }.apply(&bytes);
        let added = new_objects.writer().add(ObjectKind::Commit, &bytes)?;
        let id = added.map_err(|collision| Error::damaged("make a checkpoint", collision))?;
        Ok((id, tree))
    }
}
