//! The ledger: a line for every turn that began in a project, in `local/ledger/<project>.jsonl`.
//!
//! It is kept beside the store, because prompts are the user's words and never part of a commit.
//!
//! - K1. A line is appended by one write. A torn or unreadable line is skipped, and the line after it is read.
//! - K2. Lines of a later version and keys that this version does not know survive a rewrite.
//! - K3. The file is bounded. At its limit the oldest lines are dropped, those of checkpoints that still exist last.
//! - K4. A rewrite replaces the whole file, and a writer that waited for it appends to the new one.
//!
//! Appends are not synced: a power cut may lose the text of the last prompts, never a checkpoint. Several lines about
//! one turn form one record: keys of a later line replace those of an earlier one, so that the end of a turn can be
//! added.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};

use super::Checkpoint;
use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::sys;

mod rows;
mod text;
mod turn;

pub(crate) use text::stored_prompt;
pub use text::without_secrets;
pub use turn::{RewindMark, StepRecord, TurnRecord};

/// Size at which a ledger is compacted.
const LEDGER_BYTES_MAX: u64 = 1 << 20;
/// Size at which a ledger is compacted even if the existing checkpoints cannot be listed.
const POSTPONED_BYTES_MAX: u64 = 4 << 20;
/// Largest size after a compaction, well below the limit so that compactions are rare.
const COMPACTED_BYTES_MAX: usize = 3 << 18;
/// Size of the largest ledger that is read.
const READ_BYTES_MAX: u64 = 64 << 20;
/// Number of lines of one checkpoint that a compaction keeps in preference to others.
const TURNS_KEPT_OF_CHECKPOINT: usize = 50;
/// Number of attempts to lock a ledger. A rewrite takes milliseconds.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The ledgers of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(super) layout: Arc<Layout>,
}

impl Ledger {
    /// Appends a line about a turn. `existing` returns the ids and trees of the project's checkpoints and is called
    /// only if the ledger has reached its limit. If it returns `None`, the compaction is postponed, up to 4 MiB.
    pub(crate) fn append(
        &self,
        project: &ProjectId,
        record: &TurnRecord,
        existing: impl FnOnce() -> Option<HashSet<ObjectId>>,
    ) -> Result<()> {
        let path = self.layout.ledger(project);
        let line = record.encode();
        let mut file = match open_locked(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fsx::ensure_dir(&self.layout.ledgers())?;
                open_locked(&path)
            }
            opened => opened,
        }
        .map_err(|error| Error::io("open", &path, error))?;
        let size = file.metadata().map_err(|error| Error::io("look at", &path, error))?.len();
        if size + line.len() as u64 > LEDGER_BYTES_MAX {
            let existing = existing();
            if existing.is_some() || size > POSTPONED_BYTES_MAX {
                let kept = compacted(&read_lines(&path)?, &existing.unwrap_or_default()).join("\n");
                return fsx::replace(&path, format!("{kept}\n{line}").as_bytes(), Durability::Synced);
            }
        }
        append(&mut file, size, &line).map_err(|error| Error::io("write", &path, error))
    }

    /// Returns the turns of a project in the order in which they began. An unreadable ledger counts as empty: the
    /// checkpoints do not depend on it.
    pub(crate) fn turns(&self, project: &ProjectId) -> Vec<TurnRecord> {
        merged(&read_lines(&self.layout.ledger(project)).unwrap_or_default())
    }

    /// Adds to each checkpoint the turns that began from it.
    pub(crate) fn assign(&self, project: &ProjectId, checkpoints: &mut [Checkpoint]) {
        rows::assign(checkpoints, self.turns(project));
    }

    /// Records the new id and tree of checkpoints that are about to be replaced. The old id stays as `formerly`, so
    /// that the ledger is right both before and after the ref moves.
    pub(crate) fn rename_checkpoints(
        &self,
        project: &ProjectId,
        new: &HashMap<CheckpointId, (CheckpointId, ObjectId)>,
    ) -> Result<()> {
        self.rewrite(project, |line| {
            let ends = [["before", "tree", "formerly"], ["after", "after_tree", "after_formerly"]];
            let mut is_changed = false;
            for [checkpoint, tree, formerly] in ends {
                let old = line.get(checkpoint).and_then(Value::as_str).map(str::to_owned);
                let new_names = old.as_deref().and_then(|old| new.get(&ObjectId::from_hex(old.as_bytes())?));
                let (Some(old), Some((new_id, new_tree))) = (old, new_names) else { continue };
                line.insert(checkpoint.to_owned(), new_id.to_string().into());
                line.insert(tree.to_owned(), new_tree.to_string().into());
                line.insert(formerly.to_owned(), old.into());
                is_changed = true;
            }
            for step in line.get_mut("steps").and_then(Value::as_array_mut).into_iter().flatten() {
                let Some(step) = step.as_object_mut() else { continue };
                let old = step.get("id").and_then(Value::as_str).map(str::to_owned);
                let new_names = old.as_deref().and_then(|old| new.get(&ObjectId::from_hex(old.as_bytes())?));
                let (Some(old), Some((new_id, new_tree))) = (old, new_names) else { continue };
                step.insert("id".to_owned(), new_id.to_string().into());
                step.insert("tree".to_owned(), new_tree.to_string().into());
                step.insert("formerly".to_owned(), old.into());
                is_changed = true;
            }
            is_changed
        })?;
        Ok(())
    }

    /// Removes the text of a turn's prompt from the ledgers of all projects. Returns the number of lines that held it.
    pub(crate) fn forget_prompt(&self, session: &str, turn: &str) -> Result<usize> {
        let is_meant = |line: &Map<String, Value>| {
            let is = |key: &str, value: &str| line.get(key).and_then(Value::as_str) == Some(value);
            is("session", session) && is("turn", turn)
        };
        let mut forgotten = 0;
        for project in self.projects()? {
            forgotten += self.rewrite(&project, |line| is_meant(line) && line.remove("prompt").is_some())?;
        }
        Ok(forgotten)
    }

    /// Rewrites the lines that `change` changes, and returns their number. If there are none, nothing is written.
    fn rewrite(&self, project: &ProjectId, mut change: impl FnMut(&mut Map<String, Value>) -> bool) -> Result<usize> {
        let path = self.layout.ledger(project);
        if !fsx::exists(&path)? {
            return Ok(0);
        }
        let _held = open_locked(&path).map_err(|error| Error::io("open", &path, error))?;
        let (mut changed, mut text) = (0, String::new());
        for line in read_lines(&path)? {
            let new = decode(&line).and_then(|mut keys| change(&mut keys).then(|| Value::Object(keys).to_string()));
            changed += usize::from(new.is_some());
            text.push_str(&new.unwrap_or(line));
            text.push('\n');
        }
        if changed > 0 {
            fsx::replace(&path, text.as_bytes(), Durability::Synced)?;
        }
        Ok(changed)
    }

    pub(super) fn remove(&self, project: &ProjectId) -> Result<()> {
        fsx::remove_file(&self.layout.ledger(project))
    }

    /// Removes the ledgers of projects that are not among the known ones. `known` is called after the ledgers were
    /// listed.
    pub(crate) fn remove_unknown(&self, known: impl FnOnce() -> Result<BTreeSet<ProjectId>>) -> Result<()> {
        // In this order: a project has its record before its ledger.
        let with_ledger = self.projects()?;
        let known = known()?;
        let mut unknown = with_ledger.iter().filter(|project| !known.contains(*project));
        unknown.try_for_each(|project| self.remove(project))
    }

    /// Removes all ledgers and their temporary files. Other files in the directory stay.
    pub(super) fn remove_all(&self) -> Result<()> {
        self.projects()?.iter().try_for_each(|project| self.remove(project))?;
        fsx::remove_beginning_with(fsx::TEMP_PREFIX, &self.layout.ledgers())?;
        // Fails, as intended, if a directory holds other files.
        let _ = fs::remove_dir(self.layout.ledgers());
        let _ = fs::remove_dir(self.layout.local());
        Ok(())
    }

    fn projects(&self) -> Result<Vec<ProjectId>> {
        let names = fsx::names_in(&self.layout.ledgers())?;
        Ok(names.iter().filter_map(|name| ProjectId::parse(name.to_str()?.strip_suffix(".jsonl")?)).collect())
    }
}

/// Opens a ledger for appending and locks it. If the file is replaced while this waits, the new one is opened. If the
/// lock stays held, the file is returned unlocked, because a line that may be lost is better than none.
fn open_locked(path: &Path) -> io::Result<File> {
    let mut file = sys::open_to_append(path)?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => {
                let (opened, named) = (file.metadata()?, fs::symlink_metadata(path));
                if !opened.is_file() {
                    return Err(io::Error::other("it is not a regular file"));
                }
                if named.is_ok_and(|named| sys::file_identity(&named) == sys::file_identity(&opened)) {
                    return Ok(file);
                }
                file = sys::open_to_append(path)?;
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            // The file system has no locks.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
    Ok(file)
}

fn append(file: &mut File, size: u64, line: &str) -> io::Result<()> {
    let mut last = [b'\n'];
    if size > 0 {
        sys::read_exact_at(file, &mut last, size - 1)?;
    }
    // A full disk may have torn the previous line.
    let bytes = if last == *b"\n" { line.to_owned() } else { format!("\n{line}") };
    let written = file.write(bytes.as_bytes())?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Returns the lines of a ledger, without those that are torn or not valid JSON.
fn read_lines(path: &Path) -> Result<Vec<String>> {
    let bytes = match fsx::read_small(path, READ_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::Damaged => None,
        read => read?,
    };
    let bytes = bytes.unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    Ok(lines.filter(|line| decode(line).is_some()).map(str::to_owned).collect())
}

fn decode(line: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(line) {
        Ok(Value::Object(keys)) => Some(keys),
        _ => None,
    }
}

/// Returns agent, session and turn of a line.
fn name_of(line: &Map<String, Value>) -> Option<[String; 3]> {
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
    Some([text("agent").unwrap_or_default(), text("session")?, text("turn")?])
}

/// Merges the lines of each turn into one record, in the order of their first lines.
fn merged(lines: &[String]) -> Vec<TurnRecord> {
    let mut places: HashMap<[String; 3], usize> = HashMap::new();
    let mut records: Vec<Map<String, Value>> = Vec::new();
    for mut line in lines.iter().filter_map(|line| decode(line)) {
        let Some(name) = name_of(&line) else { continue };
        line.retain(|_, value| !value.is_null());
        match places.get(&name) {
            Some(at) => {
                if let Some(Value::Array(mut steps)) = records[*at].remove("steps") {
                    steps.extend(line.remove("steps").and_then(|more| more.as_array().cloned()).unwrap_or_default());
                    line.insert("steps".to_owned(), steps.into());
                }
                records[*at].extend(line);
            }
            None => {
                places.insert(name, records.len());
                records.push(line);
            }
        }
    }
    records.into_iter().filter_map(|keys| serde_json::from_value(Value::Object(keys)).ok()).collect()
}

/// Returns the lines to keep, in their order. Lines of existing checkpoints take precedence over others, and newer
/// lines over older ones.
fn compacted(lines: &[String], existing: &HashSet<ObjectId>) -> Vec<String> {
    let mut of_checkpoint: HashMap<ObjectId, usize> = HashMap::new();
    let mut needed_turns: HashSet<[String; 3]> = HashSet::new();
    let mut is_needed = vec![false; lines.len()];
    for (at, keys) in lines.iter().enumerate().rev().filter_map(|(at, line)| Some((at, decode(line)?))) {
        let name = name_of(&keys);
        let id = |key: &str| ObjectId::from_hex(keys.get(key)?.as_str()?.as_bytes());
        let names = ["before", "formerly", "tree", "after", "after_formerly", "after_tree"];
        let steps = keys.get("steps").and_then(Value::as_array).into_iter().flatten();
        let of_steps = steps.filter_map(|step| ObjectId::from_hex(step.get("id")?.as_str()?.as_bytes()));
        let checkpoint = names.into_iter().filter_map(id).chain(of_steps).find(|id| existing.contains(id));
        if let Some(checkpoint) = checkpoint {
            let count = of_checkpoint.entry(checkpoint).or_default();
            *count += 1;
            is_needed[at] = *count <= TURNS_KEPT_OF_CHECKPOINT;
        }
        is_needed[at] |= name.as_ref().is_some_and(|name| needed_turns.contains(name));
        if is_needed[at] {
            needed_turns.extend(name);
        }
    }
    let mut room = COMPACTED_BYTES_MAX;
    let mut stays = vec![false; lines.len()];
    for wanted in [true, false] {
        for at in (0..lines.len()).rev().filter(|at| is_needed[*at] == wanted) {
            let Some(left) = room.checked_sub(lines[at].len() + 1) else { break };
            (room, stays[at]) = (left, true);
        }
    }
    lines.iter().zip(stays).filter(|(_, stays)| *stays).map(|(line, _)| line.clone()).collect()
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
