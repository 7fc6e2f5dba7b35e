//! Data of the model: session records, checkpoints, projects and restores under way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use piton::Moment;
use serde_json::Value;

use super::call::To;
use super::files::{Scope, is_within};
use crate::restore_kit::State;

/// Session record: its author and its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) is_automatic: bool,
    pub(super) steps: Vec<u64>,
}

/// One checkpoint, and the state that it was taken of.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) id: String,
    pub(super) state: State,
    /// True for a numbered row of the list; false for the end of a turn and a step.
    pub(super) is_row: bool,
    /// For a safety checkpoint: true if the restore was an undo, and its paths.
    pub(super) restored: Option<(bool, Vec<Vec<u8>>)>,
    /// Session that it was taken for.
    pub(super) session: Option<String>,
    pub(super) record: Option<Noted>,
    pub(super) is_purged: bool,
    /// True if it holds exactly the files in scope of its state: no purge removed any, and no restore added more.
    pub(super) is_plain: bool,
    /// True if the settings excluded some names at the time.
    pub(super) excludes: bool,
    /// Its time, once the list was read.
    pub(super) time: Option<Moment>,
}

#[derive(Debug, Default)]
pub(super) struct Project {
    pub(super) dir: PathBuf,
    /// Oldest first.
    pub(super) kept: Vec<Kept>,
    /// Last turn of each session that used its attempt here, and true if that is certain. Otherwise it is one of these,
    /// or none.
    pub(super) turns: BTreeMap<String, (Vec<String>, bool)>,
    /// Sessions whose last turn used its attempt while there was no checkpoint yet, and made none.
    pub(super) refused: BTreeSet<String>,
    /// True if it has not been used for longer than the retention time.
    pub(super) is_stale: bool,
    /// Files before and after the last restore: as long as the latter are unchanged, undo restores the former.
    pub(super) undoable: Option<(State, State)>,
}

/// A restore under way: state before, target and paths.
pub(super) struct Going {
    pub(super) before: State,
    pub(super) target: Kept,
    pub(super) verb: To,
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) moves_aside: bool,
}

pub(super) fn noted(record: Option<Value>) -> Option<Noted> {
    let record = record?;
    let steps = record["progress"].as_array().into_iter().flatten().map(|step| step.as_u64().expect("a number"));
    Some(Noted { is_automatic: record["automatic"] == true, steps: steps.collect() })
}

impl Kept {
    /// Returns a checkpoint of these files that holds all of them.
    pub(super) fn new(id: String, state: State, excludes: bool) -> Self {
        let (restored, session, record, time) = (None, None, None, None);
        Self { id, state, is_row: true, restored, session, record, is_plain: true, excludes, is_purged: false, time }
    }

    /// Records that a purge removed a path.
    pub(super) fn lose(&mut self, path: &[u8]) {
        let rules = Scope::of(&self.state, self.excludes);
        self.state.retain(|other, _| !is_within(other, path) || rules.ignore(other));
        self.is_plain = false;
        self.is_purged = true;
    }
}
