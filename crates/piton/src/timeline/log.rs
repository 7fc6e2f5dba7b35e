//! The log: the periods in which paths changed, with counts.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::local::LocalHistory;
use super::{Author, Period, Timeline};
use crate::diff::{self, FileDiff};
use crate::error::{Error, ErrorKind, Result};
use crate::history::History;
use crate::id::CheckpointId;
use crate::json::{AtPath, JsonPath};
use crate::progress::Progress;
use crate::store::{Objects, SharedObjects, TreeChange, TreeWalk};
use crate::threads;
use crate::time::Moment;

/// Options of a log.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LogOptions<'a> {
    /// Only changes at or below these paths. Empty for all.
    pub paths: &'a [Vec<u8>],
    /// Number of entries, newest first.
    pub most: usize,
    /// True to make a patch for each entry.
    pub with_patch: bool,
}

impl Default for LogOptions<'_> {
    fn default() -> Self {
        Self { paths: &[], most: usize::MAX, with_patch: false }
    }
}

impl<'a> LogOptions<'a> {
    /// Sets [`LogOptions::paths`].
    #[must_use]
    pub fn paths(mut self, paths: &'a [Vec<u8>]) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`LogOptions::most`].
    #[must_use]
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Sets [`LogOptions::with_patch`].
    #[must_use]
    pub fn with_patch(mut self, with_patch: bool) -> Self {
        self.with_patch = with_patch;
        self
    }
}

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry {
    /// Author of the changes, and the checkpoints before and after them.
    pub period: Period,
    /// Changed files, by path.
    pub files: Vec<FileDiff>,
    /// Paths of local files that changed. Their contents are not part of a log.
    pub local: Vec<Vec<u8>>,
    /// Unified diff for `git apply`; `None` without [`LogOptions::with_patch`].
    pub patch: Option<Vec<u8>>,
}

/// A log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProjectLog {
    /// Entries, newest first.
    pub entries: Vec<LogEntry>,
    /// Checkpoints that could not be compared with the ones before them, because their contents are missing or corrupt.
    pub unread: Vec<CheckpointId>,
}

/// Keys about the author of a change.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct PeriodJson<'a> {
    /// author of the changes: `agent`, `you` (between two turns), `earlier` (before the oldest checkpoint), or `unknown` (an
    /// agent or you: the end of its turn was not reported)
    by: Author,
    /// number of the checkpoint before the changes, or null if it is not in the list
    row: Option<usize>,
    /// turn of the agent, or null
    turn: Option<&'a str>,
    /// session of the turn, or null
    session: Option<&'a str>,
    /// agent that worked, or null
    agent: Option<&'a str>,
    /// prompt of the turn as far as it is stored, or null
    prompt: Option<&'a str>,
    /// time of the prompt; for your own changes, of the checkpoint that holds them first; or null
    time: Option<Moment>,
    /// id of the checkpoint before the changes, or null
    from: Option<CheckpointId>,
    /// id of the checkpoint after the changes, or null if they are in no checkpoint
    to: Option<CheckpointId>,
    /// id of the checkpoint that you restored, or null
    restored: Option<CheckpointId>,
}

impl<'a> From<&'a Period> for PeriodJson<'a> {
    fn from(period: &'a Period) -> Self {
        let turn = period.turn.as_ref();
        Self {
            by: period.by,
            row: period.row,
            turn: turn.map(|turn| turn.turn.as_str()),
            session: turn.map(|turn| turn.session.as_str()),
            agent: turn.and_then(|turn| turn.agent.as_deref()),
            prompt: turn.and_then(|turn| turn.prompt.as_deref()),
            time: period.time,
            from: period.from,
            to: period.to,
            restored: period.restored,
        }
    }
}

/// JSON of a [`LogEntry`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LogEntryJson<'a> {
    #[serde(flatten)]
    period: PeriodJson<'a>,
    /// number of changed files
    files_changed: usize,
    /// number of lines added
    insertions: u64,
    /// number of lines removed
    deletions: u64,
    /// changed files
    files: &'a [FileDiff],
    /// files out of scope that changed, by name only
    local: Vec<JsonPath<'a, AtPath>>,
    /// the changes as a patch, or null; bytes that are not UTF-8 are replaced
    diff: Option<String>,
}

impl<'a> From<&'a LogEntry> for LogEntryJson<'a> {
    fn from(entry: &'a LogEntry) -> Self {
        let (insertions, deletions) = entry.totals();
        Self {
            period: PeriodJson::from(&entry.period),
            files_changed: entry.files.len(),
            insertions,
            deletions,
            files: &entry.files,
            local: entry.local.iter().map(JsonPath::new).collect(),
            diff: entry.patch.as_ref().map(|patch| String::from_utf8_lossy(patch).into_owned()),
        }
    }
}

crate::json::serialized_as! {
    LogEntry => LogEntryJson<'_>;
}

impl LogEntry {
    /// Returns the number of lines added and the number of lines removed.
    pub fn totals(&self) -> (u64, u64) {
        self.files.iter().fold((0, 0), |(plus, minus), file| (plus + file.insertions, minus + file.deletions))
    }
}

/// Returns the turns and the user's edits between them that changed paths, newest first. Changes since the newest
/// checkpoint are not part of it.
///
/// Fails with `Stopped` if it was cancelled.
///
/// ```
/// use piton::{History, LogOptions, log};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &piton::Request::default(), &settings, now, &progress)?;
/// std::fs::write(code.join("main.rs"), "fn main() { run() }\n")?;
/// # piton::take(&store, &project, &piton::Request::default(), &settings, now, &progress)?;
/// let history = History::of(&store, &project)?;
/// let log = log(&history, &LogOptions::default().paths(&[b"main.rs".to_vec()]), &progress)?;
/// assert_eq!((log.entries.len(), log.entries[0].totals()), (1, (1, 1)));
/// # Ok(())
/// # }
/// ```
pub fn log(history: &History, options: &LogOptions<'_>, progress: &Progress) -> Result<ProjectLog> {
    let timeline = Timeline::new(history);
    let mut ranges = timeline.ranges();
    ranges.reverse();
    let trees: Vec<_> = timeline.states.iter().map(|state| state.tree).collect();
    let shared = history.objects().shared();
    let local_files = LocalHistory::of(history)?;
    let (mut log, mut changed) = (ProjectLog::default(), Vec::new());
    // In batches: the caller may want the newest entries only.
    let mut batch = options.most.clamp(16, 256);
    let mut rest = ranges.as_slice();
    while !rest.is_empty() && changed.len() < options.most {
        let (now, later) = rest.split_at(batch.min(rest.len()));
        let found = in_parts(now, &shared, |walk, _, range| {
            check_cancelled(progress)?;
            Ok(walk.compare(trees[range.start], trees[range.end], options.paths))
        })?;
        for (range, changes) in now.iter().zip(found) {
            let (from, to) = (timeline.states[range.start].id, timeline.states[range.end].id);
            let local = local_files.changed(Some(from), to, options.paths);
            match changes.and_then(|changes| Ok((changes, local?))) {
                Err(error) if error.kind() == ErrorKind::Damaged => log.unread.extend(timeline.period(range).to),
                both => {
                    let (changes, local) = both?;
                    changed.push((range, changes, local));
                }
            }
        }
        changed.retain(|(_, changes, local)| !changes.is_empty() || !local.is_empty());
        (rest, batch) = (later, 2 * batch);
    }
    changed.truncate(options.most);
    let read = in_parts(&changed, &shared, |_, objects, (_, changes, _)| {
        check_cancelled(progress)?;
        Ok(read(changes.clone(), options, objects))
    })?;
    for ((range, _, local), read) in changed.into_iter().zip(read) {
        let period = timeline.period(range);
        match read {
            Err(error) if error.kind() == ErrorKind::Damaged => log.unread.extend(period.to),
            read => {
                let (files, patch) = read?;
                log.entries.push(LogEntry { period, files, local, patch });
            }
        }
    }
    Ok(log)
}

/// Runs `work` on all items, on all cores. Consecutive items are given to the same thread, because most trees of one
/// are part of the next.
fn in_parts<T: Sync, R: Send>(
    items: &[T],
    shared: &SharedObjects,
    work: impl Fn(&mut TreeWalk<'_>, &Objects, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let part = items.len().div_ceil(4 * threads::cores()).max(4);
    let done = threads::together(threads::cores().min(items.len().div_ceil(part)), |_| {
        let objects = shared.objects();
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(part, Ordering::Relaxed);
            let mut walk = TreeWalk::new(&objects);
            let Some(items) = items.get(start..).filter(|rest| !rest.is_empty()) else { return Ok(done) };
            let results = items.iter().take(part).map(|item| work(&mut walk, &objects, item));
            done.push((start, results.collect::<Result<Vec<R>>>()?));
        }
    });
    let mut done: Vec<_> = done.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    done.sort_by_key(|(start, _)| *start);
    Ok(done.into_iter().flat_map(|(_, results)| results).collect())
}

pub(super) fn check_cancelled(progress: &Progress) -> Result<()> {
    if !progress.is_cancelled() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Stopped, "read the history").because("stopped"))
}

/// Returns the changed files of an entry, and the patch if it was asked for.
fn read(
    changes: Vec<TreeChange>,
    options: &LogOptions<'_>,
    objects: &Objects,
) -> Result<(Vec<FileDiff>, Option<Vec<u8>>)> {
    if options.with_patch {
        let diff = diff::of_trees(changes, objects)?;
        return Ok((diff.files, Some(diff.patch)));
    }
    Ok((diff::brief(changes, objects)?, None))
}
