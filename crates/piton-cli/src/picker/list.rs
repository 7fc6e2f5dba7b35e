//! The list of checkpoints: filters, selection and scroll position.

use std::collections::HashSet;

use piton::{Change, Checkpoint, CheckpointId, Moment, SentCheckpoint};

use crate::cmd::rollback::{earlier, marks, who};
use crate::output::{local, plain};

/// One checkpoint, formatted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: CheckpointId,
    /// Position in the history; 1 is the newest.
    pub(super) number: usize,
    pub(super) when: String,
    pub(super) reason: String,
    /// The agent and its session.
    pub(super) who: Option<String>,
    pub(super) session: Option<String>,
    /// True if the checkpoint does not hold every file of its time.
    pub(super) is_incomplete: bool,
    /// Size of the change against the checkpoint before it; `None` until a worker has counted it.
    pub(super) change: Option<Change>,
}

impl Row {
    pub(super) fn new(number: usize, checkpoint: &Checkpoint) -> Self {
        Self {
            id: checkpoint.id,
            number,
            when: local(checkpoint.time).date_and_time(),
            reason: plain(&checkpoint.headline()) + &marks(checkpoint) + &earlier(checkpoint),
            who: who(checkpoint),
            session: checkpoint.newest_origin().session,
            is_incomplete: checkpoint.facts.is_incomplete,
            change: None,
        }
    }
}

impl Row {
    /// Returns the row of a checkpoint of another machine. Its change is not counted.
    pub(super) fn of_machine(number: usize, sent: &SentCheckpoint) -> Self {
        let time = Moment { secs: sent.secs, nanos: 0, offset_secs: sent.offset_secs };
        let marks = if sent.marks.is_empty() { String::new() } else { format!("  <{}>", sent.marks.join(", ")) };
        Self {
            id: sent.id,
            number,
            when: local(time).date_and_time(),
            reason: plain(&format!("{}{marks}", sent.prompts.first().unwrap_or(&sent.reason))),
            who: None,
            session: None,
            is_incomplete: false,
            change: None,
        }
    }
}

/// Filter for the checkpoints that concern one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileFilter {
    pub(super) path: Vec<u8>,
    /// The matching checkpoints. `None` until they are known: all are shown until then.
    pub(super) ids: Option<HashSet<CheckpointId>>,
}

#[derive(Debug, Default)]
pub(super) struct List {
    rows: Vec<Row>,
    /// Indices into `rows` of the rows that pass the filters.
    shown: Vec<usize>,
    /// Index into `shown`.
    selected: usize,
    pub(super) top: usize,
    text: String,
    file: Option<FileFilter>,
    session: Option<String>,
}

impl List {
    /// Replaces the rows. Keeps the selection, and the counts that are known.
    pub(super) fn set_rows(&mut self, mut rows: Vec<Row>) {
        let known: std::collections::HashMap<_, _> = self.rows.iter().map(|row| (row.id, row.change)).collect();
        // The oldest has no predecessor to compare with, and a prune makes another checkpoint the oldest.
        let oldest = rows.last().map(|row| row.id);
        for row in &mut rows {
            row.change = known.get(&row.id).copied().flatten().filter(|_| Some(row.id) != oldest);
        }
        let selected = self.selected().map(|row| row.id);
        self.rows = rows;
        self.refilter(selected);
    }

    pub(super) fn set_change(&mut self, id: CheckpointId, change: Change) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == id) {
            row.change = Some(change);
        }
    }

    pub(super) fn selected(&self) -> Option<&Row> {
        self.shown.get(self.selected).map(|at| &self.rows[*at])
    }

    /// Returns the number of all rows, and of those that pass the filters.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.rows.len(), self.shown.len())
    }

    /// Returns the rows on a screen of this height, each with true if it is selected.
    pub(super) fn window(&self, height: usize) -> impl Iterator<Item = (&Row, bool)> {
        let end = self.shown.len().min(self.top + height);
        (self.top.min(end)..end).map(|at| (&self.rows[self.shown[at]], at == self.selected))
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.sessions().len() > 1
    }

    pub(super) fn move_by(&mut self, rows: isize) {
        self.select(self.selected.saturating_add_signed(rows));
    }

    /// Selects a row by its index among those shown; the last one if the index is too large.
    pub(super) fn select(&mut self, place: usize) {
        self.selected = place.min(self.shown.len().saturating_sub(1));
    }

    /// Scrolls the list. The selection moves only if it would leave the screen.
    pub(super) fn scroll_by(&mut self, rows: isize, height: usize) {
        self.top = self.top.saturating_add_signed(rows).min(self.shown.len().saturating_sub(height));
        self.select(self.selected.clamp(self.top, self.top + height.max(1) - 1));
    }

    /// Scrolls so that the selection is on the screen.
    pub(super) fn show_selected(&mut self, height: usize) {
        let height = height.max(1);
        self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(height));
        self.top = self.top.min(self.shown.len().saturating_sub(height));
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn set_text(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.refilter(self.selected().map(|row| row.id));
    }

    pub(super) fn file(&self) -> Option<&FileFilter> {
        self.file.as_ref()
    }

    pub(super) fn set_file(&mut self, file: Option<FileFilter>) {
        self.file = file;
        self.refilter(self.selected().map(|row| row.id));
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Cycles the session filter: none, the session of the newest checkpoint, each older one in turn, none again.
    pub(super) fn next_session(&mut self) {
        let sessions = self.sessions();
        let place = self.session.as_ref().and_then(|now| sessions.iter().position(|one| *one == now));
        let next = place.map_or(0, |place| place + 1);
        self.session = sessions.get(next).map(|session| (*session).clone());
        self.refilter(self.selected().map(|row| row.id));
    }

    /// Removes all filters. Returns true if there were any.
    pub(super) fn clear_filters(&mut self) -> bool {
        let selected = self.selected().map(|row| row.id);
        let had_any = !self.text.is_empty() || self.file.is_some() || self.session.is_some();
        (self.text, self.file, self.session) = Default::default();
        self.refilter(selected);
        had_any
    }

    /// Returns the sessions, that of the newest checkpoint first.
    fn sessions(&self) -> Vec<&String> {
        let mut seen = HashSet::new();
        self.rows.iter().filter_map(|row| row.session.as_ref()).filter(|session| seen.insert(*session)).collect()
    }

    fn refilter(&mut self, selected: Option<CheckpointId>) {
        let text = self.text.to_lowercase();
        let is_shown = |row: &Row| {
            let has_text = row.reason.to_lowercase().contains(&text) || row.id.to_string().starts_with(&text);
            let has_session = self.session.is_none() || self.session == row.session;
            let ids = self.file.as_ref().and_then(|file| file.ids.as_ref());
            has_text && has_session && ids.is_none_or(|ids| ids.contains(&row.id))
        };
        self.shown = (0..self.rows.len()).filter(|at| is_shown(&self.rows[*at])).collect();
        let place = selected.and_then(|id| self.shown.iter().position(|at| self.rows[*at].id == id));
        self.select(place.unwrap_or(0));
    }
}
