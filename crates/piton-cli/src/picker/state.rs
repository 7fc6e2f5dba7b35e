//! State machine of the picker: `State::update` takes an event and returns actions. It does no I/O, so that all of its
//! behaviour can be tested without a terminal, a store or a thread.

use std::collections::HashSet;
use std::sync::Arc;

use piton::{Change, CheckpointId, RestoreOutcome};
use ratatui::crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Size;

use super::help::HELP;
use super::layout::{Areas, DiffAreas, Focus, overlay_height};
use super::list::{FileFilter, List, Row};
use super::patch::Patch;

/// Input to the state: from the user, from a worker or from the system.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Resized(Size),
    /// The checkpoints, newest first, and a notice about the project to show as status.
    Listed(Result<(Vec<Row>, Option<String>), WorkError>),
    /// Size of the change in a checkpoint against the one before it.
    Counted(CheckpointId, Change),
    /// Differences between a checkpoint and the current files.
    Compared(CheckpointId, Result<Patch, WorkError>),
    /// Changes of the turn that began from a checkpoint.
    ComparedTurn(CheckpointId, Result<Patch, WorkError>),
    /// The checkpoints that match the filter for a file.
    Found(Vec<u8>, Result<HashSet<CheckpointId>, WorkError>),
    Planned(RestoreRequest, Result<Planned, WorkError>),
    Done(Result<JobResult, WorkError>),
    /// A worker waits for a lock that another process holds; the text says which.
    Waits(String),
    /// The process received a signal that ends it.
    Signal(i32),
    /// The picker cannot continue: the terminal is gone or a thread panicked. Holds the reason.
    Gone(String),
}

/// Work that an event asks for: handled by the workers, `Quit` by the event loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    List,
    /// The checkpoints on the screen whose changes are not yet counted.
    Count(Vec<CheckpointId>),
    Compare(CheckpointId),
    CompareTurn(CheckpointId),
    Find(Vec<u8>),
    Plan(RestoreRequest),
    /// Carries out a confirmed plan; true if the user agreed to undo the work of other sessions.
    Do(Planned, bool),
    Quit,
}

/// A restore as the user asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RestoreRequest {
    /// The checkpoint to restore; `None` to undo the last restore.
    pub(super) to: Option<CheckpointId>,
    /// The only path to restore; `None` for all files.
    pub(super) path: Option<Vec<u8>>,
    /// True if the plan is shown first, instead of the question to confirm it.
    pub(super) only_look: bool,
    /// The part of a turn to revert, if the turn that began from `to` is reverted instead.
    pub(super) revert: Option<RevertPart>,
    /// True if the conversation goes back, too.
    pub(super) is_rewind: bool,
}

/// Part of a turn that is reverted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RevertPart {
    /// The only paths to revert: those of one file. Empty for all.
    pub(super) paths: Vec<Vec<u8>>,
    /// First line of the only hunk to revert.
    pub(super) hunk: Option<usize>,
}

/// Changes that the diff pane shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum DiffOf {
    /// Those since the checkpoint.
    #[default]
    Since,
    /// Those of the turn that began from it.
    Turn,
}

/// Plan of a restore, as it is shown before the user confirms it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) request: RestoreRequest,
    pub(super) target: CheckpointId,
    pub(super) reason: String,
    pub(super) written: usize,
    pub(super) removed: usize,
    pub(super) left: usize,
    /// Number of all changes: files, permissions, directories.
    pub(super) changes: usize,
    /// The same changes, one per line.
    pub(super) lines: Vec<String>,
    /// Later work of other sessions that the restore undoes.
    pub(super) others: Vec<String>,
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobResult {
    pub(super) outcome: RestoreOutcome,
    /// The report, as the `restore` command prints it.
    pub(super) text: String,
    /// True if the conversation went back, too: the report says how to continue.
    pub(super) is_rewind: bool,
}

impl JobResult {
    /// Returns what is repeated on the normal screen: all of a rewind, and the first line of any other report.
    pub(super) fn summary(&self) -> &str {
        if self.is_rewind { &self.text } else { self.line() }
    }

    /// Returns the first line of the report.
    pub(super) fn line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// An error message with its hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Stage of the dialog about a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The list of changes is shown.
    Look,
    Confirm,
    /// The second question: may the work of other sessions be undone?
    Others,
}

/// Kind of text that a prompt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Text,
    File,
}

/// Dialog drawn on top of the panes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    Error(WorkError),
    Plan(Planned, Stage),
    Prompt(Asked, String),
}

impl Overlay {
    /// Returns the number of lines to scroll through.
    fn lines(&self) -> usize {
        match self {
            Self::Help => HELP.len(),
            Self::Error(error) => error.message.lines().count(),
            Self::Plan(planned, Stage::Look) => planned.lines.len() + planned.others.len(),
            Self::Plan(..) | Self::Prompt(..) => 0,
        }
    }
}

/// Work of the restore thread. While it runs, no other restore or plan is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Busy {
    Planning(RestoreRequest),
    Restoring,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) list: List,
    pub(super) size: Size,
    pub(super) focus: Focus,
    /// Differences since a checkpoint: the selected one, or the one selected before until the worker has answered.
    pub(super) shown: Option<(CheckpointId, Result<Arc<Patch>, WorkError>)>,
    /// Changes that the diff pane is to show, and those that it shows.
    pub(super) diff_of: DiffOf,
    shown_of: DiffOf,
    /// Index of the selected hunk in the diff.
    pub(super) hunk: usize,
    /// First line of the diff on the screen, and first column.
    pub(super) line: usize,
    pub(super) column: usize,
    /// Index of the selected file in the diff.
    pub(super) file: usize,
    pub(super) overlay: Option<Overlay>,
    /// First line of the overlay on the screen.
    pub(super) overlay_line: usize,
    pub(super) status: String,
    /// Message about the lock that a worker waits for.
    pub(super) waits: Option<String>,
    pub(super) busy: Option<Busy>,
    pub(super) done: Vec<JobResult>,
    /// The signal that ends the process.
    pub(super) signal: Option<i32>,
    /// The reason why the picker cannot continue.
    pub(super) gone: Option<String>,
    wanted: Option<CheckpointId>,
    counting: Vec<CheckpointId>,
}

impl State {
    pub(super) fn new(size: Size) -> Self {
        Self {
            list: List::default(),
            size,
            focus: Focus::default(),
            shown: None,
            diff_of: DiffOf::default(),
            shown_of: DiffOf::default(),
            hunk: 0,
            line: 0,
            column: 0,
            file: 0,
            overlay: None,
            overlay_line: 0,
            status: String::new(),
            waits: None,
            busy: None,
            done: Vec::new(),
            signal: None,
            gone: None,
            wanted: None,
            counting: Vec::new(),
        }
    }

    /// Applies an event and returns the actions that it leads to.
    pub(super) fn update(&mut self, event: Event) -> Vec<Action> {
        let mut actions = match event {
            Event::Key(key) => self.key(key),
            Event::Mouse(mouse) => self.mouse(mouse),
            Event::Resized(size) => {
                self.size = size;
                Vec::new()
            }
            Event::Gone(why) => {
                self.gone = Some(why);
                vec![Action::Quit]
            }
            Event::Signal(signal) => self.leave(signal),
            Event::Waits(why) => {
                self.waits = Some(why);
                Vec::new()
            }
            told => {
                // A worker that answers does not wait for a lock any more.
                self.waits = None;
                self.told(told)
            }
        };
        self.settle(&mut actions);
        actions
    }

    /// Applies the answer of a worker.
    fn told(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Listed(Ok((rows, notice))) => {
                self.list.set_rows(rows);
                self.status = notice.unwrap_or_else(|| std::mem::take(&mut self.status));
                // A new list means that the files may have changed as well: compare and count again.
                (self.wanted, self.counting) = (None, Vec::new());
                return self.list.file().map(|file| Action::Find(file.path.clone())).into_iter().collect();
            }
            Event::Counted(id, change) => self.list.set_change(id, change),
            Event::Compared(id, patch) if self.wanted == Some(id) && self.diff_of == DiffOf::Since => {
                self.show(id, patch);
            }
            Event::ComparedTurn(id, patch) if self.wanted == Some(id) && self.diff_of == DiffOf::Turn => {
                self.show(id, patch);
            }
            Event::Found(path, found) if self.list.file().is_some_and(|file| file.path == path) => match found {
                Ok(ids) => self.list.set_file(Some(FileFilter { path, ids: Some(ids) })),
                Err(error) => {
                    self.list.set_file(None);
                    self.open(Overlay::Error(error));
                }
            },
            Event::Planned(request, planned) if self.busy == Some(Busy::Planning(request.clone())) => {
                self.busy = None;
                match planned {
                    Ok(planned) => self.planned(planned),
                    Err(error) => self.open(Overlay::Error(error)),
                }
            }
            Event::Done(done) => return self.finished(done),
            Event::Listed(Err(error)) => self.open(Overlay::Error(error)),
            // The answer to a request that has been superseded.
            _ => {}
        }
        Vec::new()
    }

    fn show(&mut self, id: CheckpointId, patch: Result<Patch, WorkError>) {
        if self.shown.as_ref().is_none_or(|(before, _)| *before != id) || self.shown_of != self.diff_of {
            (self.line, self.column, self.file, self.hunk) = (0, 0, 0, 0);
        }
        self.shown_of = self.diff_of;
        self.shown = Some((id, patch.map(Arc::new)));
    }

    fn planned(&mut self, planned: Planned) {
        let short = planned.target.short();
        match (planned.request.only_look, planned.changes, planned.left) {
            (true, ..) => self.open(Overlay::Plan(planned, Stage::Look)),
            (_, 0, 0) if planned.request.revert.is_some() => {
                "Nothing to do: the files contain no change of this turn".clone_into(&mut self.status);
            }
            (_, 0, 0) => self.status = format!("Nothing to do: the files are as they were at {short}"),
            (_, 0, _) => self.open(Overlay::Plan(planned, Stage::Look)),
            _ => self.open(Overlay::Plan(planned, Stage::Confirm)),
        }
    }

    fn finished(&mut self, done: Result<JobResult, WorkError>) -> Vec<Action> {
        self.busy = None;
        match done {
            Ok(done) => {
                self.status = match done.outcome {
                    RestoreOutcome::NothingToDo => done.line().to_owned(),
                    _ => format!("{} (u: undo)", done.line()),
                };
                if done.outcome == RestoreOutcome::Partly || done.is_rewind {
                    self.open(Overlay::Error(WorkError { message: done.text.clone(), hint: None }));
                }
                self.done.push(done);
            }
            Err(error) => self.open(Overlay::Error(error)),
        }
        if self.signal.is_some() { vec![Action::Quit] } else { vec![Action::List] }
    }

    /// Quits on a signal. A restore in progress is finished first, unless this is the second signal.
    fn leave(&mut self, signal: i32) -> Vec<Action> {
        let insists = self.signal.replace(signal).is_some();
        if self.busy == Some(Busy::Restoring) && !insists {
            "Leaving as soon as the restore is done".clone_into(&mut self.status);
            return Vec::new();
        }
        vec![Action::Quit]
    }

    /// Restores the invariants after every event: the selection is on the screen, and the data that the screen lacks is
    /// requested.
    fn settle(&mut self, actions: &mut Vec<Action>) {
        let height = self.list_height();
        self.list.show_selected(height);
        self.line = self.line.min(self.last_line());
        let overlay_lines = self.overlay.as_ref().map_or(0, Overlay::lines);
        self.overlay_line = self.overlay_line.min(overlay_lines.saturating_sub(overlay_height(self.size)));
        let selected = self.list.selected().map(|row| row.id);
        if selected.is_none() {
            self.shown = None;
        }
        if selected != self.wanted {
            self.wanted = selected;
            actions.extend(selected.map(match self.diff_of {
                DiffOf::Since => Action::Compare,
                DiffOf::Turn => Action::CompareTurn,
            }));
        }
        let uncounted = self.list.window(height).filter(|(row, _)| row.change.is_none()).map(|(row, _)| row.id);
        let uncounted: Vec<_> = uncounted.collect();
        // A request is needed only if one of them was not requested yet: the rest is on its way.
        if uncounted.iter().any(|id| !self.counting.contains(id)) {
            self.counting.clone_from(&uncounted);
            actions.push(Action::Count(uncounted));
        }
    }

    pub(super) fn open(&mut self, overlay: Overlay) {
        self.overlay_line = 0;
        self.overlay = Some(overlay);
    }

    pub(super) fn areas(&self) -> Areas {
        Areas::of(self.size, self.focus)
    }

    pub(super) fn list_height(&self) -> usize {
        usize::from(self.areas().rows().height)
    }

    pub(super) fn diff_areas(&self) -> DiffAreas {
        DiffAreas::of(self.areas().diff, self.patch().map_or(0, |patch| patch.files.len()))
    }

    /// Returns the diff on the screen, even if it is stale.
    pub(super) fn patch(&self) -> Option<&Arc<Patch>> {
        self.shown.as_ref().and_then(|(_, patch)| patch.as_ref().ok())
    }

    /// Returns true if the diff on the screen is of a checkpoint other than the selected one.
    pub(super) fn is_stale(&self) -> bool {
        self.shown.as_ref().map(|(id, _)| *id) != self.list.selected().map(|row| row.id)
            || self.shown_of != self.diff_of
    }

    /// Returns the selected checkpoint and its diff, or `None` if the diff is stale, failed or missing.
    pub(super) fn current(&self) -> Option<(CheckpointId, &Arc<Patch>)> {
        let (id, patch) = self.shown.as_ref().filter(|_| !self.is_stale())?;
        Some((*id, patch.as_ref().ok()?))
    }

    /// Shows what the selected turn did instead of what changed since, or the other way round.
    pub(super) fn toggle_turn(&mut self) {
        self.diff_of = if self.diff_of == DiffOf::Since { DiffOf::Turn } else { DiffOf::Since };
        self.wanted = None;
    }

    /// Returns the first line of the last page.
    pub(super) fn last_line(&self) -> usize {
        let height = usize::from(self.diff_areas().lines.height);
        self.patch().map_or(0, |patch| patch.len().saturating_sub(height))
    }

    /// Returns the index of the first file on the screen.
    pub(super) fn first_file(&self) -> usize {
        (self.file + 1).saturating_sub(usize::from(self.diff_areas().files.height))
    }
}
