//! What the picker knows and how it changes: an event goes in, actions come out. It touches nothing but itself, so that
//! all of its behaviour can be tested without a terminal, a store or a thread.

use std::collections::HashSet;
use std::sync::Arc;

use piton::{Change, CheckpointId, RestoreOutcome};
use ratatui::crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Size;

use super::input::HELP;
use super::layout::{Areas, DiffAreas, Focus, overlay_height};
use super::list::{FileFilter, List, Row};
use super::patch::Patch;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Resized(Size),
    /// The list, and what must be said about the project.
    Listed(Result<(Vec<Row>, Option<String>), Trouble>),
    /// What changed in a checkpoint against the one before it.
    Counted(CheckpointId, Change),
    /// What changed since a checkpoint.
    Compared(CheckpointId, Result<Patch, Trouble>),
    /// The checkpoints that have to do with a file.
    Found(Vec<u8>, Result<HashSet<CheckpointId>, Trouble>),
    Planned(Deed, Result<Planned, Trouble>),
    Done(Result<Done, Trouble>),
    /// A worker waits for another process.
    Waits(String),
    /// Somebody wants the process to end.
    Signal(i32),
    /// Something that nothing goes on without: the terminal, a thread.
    Gone(String),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    List,
    /// These are on the screen.
    Count(Vec<CheckpointId>),
    Compare(CheckpointId),
    Find(Vec<u8>),
    Plan(Deed),
    /// What was agreed to, and whether the work of other sessions may be taken back.
    Do(Planned, bool),
    Quit,
}

/// What is to be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deed {
    /// None to undo the last restore.
    pub(super) to: Option<CheckpointId>,
    /// Only this; everything, if there is none.
    pub(super) path: Option<Vec<u8>>,
    /// True if the plan is to be looked at first.
    pub(super) only_look: bool,
}

/// What a restore would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) deed: Deed,
    pub(super) target: CheckpointId,
    pub(super) reason: String,
    pub(super) written: usize,
    pub(super) removed: usize,
    pub(super) left: usize,
    /// All that will change: files, permissions, directories.
    pub(super) changes: usize,
    /// The same one by one.
    pub(super) lines: Vec<String>,
    /// The later work of other sessions that it takes back.
    pub(super) others: Vec<String>,
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) outcome: RestoreOutcome,
    /// As the command prints it.
    pub(super) text: String,
}

impl Done {
    /// The gist of it.
    pub(super) fn line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// What went wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// How far a question has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The plan is looked at.
    Look,
    Confirm,
    /// The work of other sessions.
    Others,
}

/// What is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Text,
    File,
}

/// What stands before the panes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    Trouble(Trouble),
    Plan(Planned, Stage),
    Prompt(Asked, String),
}

impl Overlay {
    /// Returns how many lines there are to scroll through.
    fn lines(&self) -> usize {
        match self {
            Self::Help => HELP.len(),
            Self::Trouble(trouble) => trouble.message.lines().count(),
            Self::Plan(planned, Stage::Look) => planned.lines.len() + planned.others.len(),
            Self::Plan(..) | Self::Prompt(..) => 0,
        }
    }
}

/// What a worker does that nothing else may be done beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Busy {
    Planning(Deed),
    Restoring,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) list: List,
    pub(super) size: Size,
    pub(super) focus: Focus,
    /// What changed since a checkpoint: the one that is selected, or, for a moment, the one before.
    pub(super) shown: Option<(CheckpointId, Result<Arc<Patch>, Trouble>)>,
    /// The first line of the diff on the screen, and the first column.
    pub(super) line: usize,
    pub(super) column: usize,
    /// The file that is selected.
    pub(super) file: usize,
    pub(super) overlay: Option<Overlay>,
    /// The first line of the overlay on the screen.
    pub(super) overlay_line: usize,
    pub(super) status: String,
    /// Who is waited for.
    pub(super) waits: Option<String>,
    pub(super) busy: Option<Busy>,
    pub(super) done: Vec<Done>,
    /// The signal that ends the process.
    pub(super) signal: Option<i32>,
    /// The reason why nothing goes on.
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

    /// Takes an event in; what to do about it.
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
                // Whoever answers does not wait any more.
                self.waits = None;
                self.told(told)
            }
        };
        self.settle(&mut actions);
        actions
    }

    /// What a worker has found.
    fn told(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Listed(Ok((rows, notice))) => {
                self.list.set_rows(rows);
                self.status = notice.unwrap_or_else(|| std::mem::take(&mut self.status));
                // The files are not as they were, either.
                (self.wanted, self.counting) = (None, Vec::new());
                return self.list.file().map(|file| Action::Find(file.path.clone())).into_iter().collect();
            }
            Event::Counted(id, change) => self.list.set_change(id, change),
            Event::Compared(id, patch) if self.wanted == Some(id) => self.show(id, patch),
            Event::Found(path, found) if self.list.file().is_some_and(|file| file.path == path) => match found {
                Ok(ids) => self.list.set_file(Some(FileFilter { path, ids: Some(ids) })),
                Err(trouble) => {
                    self.list.set_file(None);
                    self.open(Overlay::Trouble(trouble));
                }
            },
            Event::Planned(deed, planned) if self.busy == Some(Busy::Planning(deed.clone())) => {
                self.busy = None;
                match planned {
                    Ok(planned) => self.planned(planned),
                    Err(trouble) => self.open(Overlay::Trouble(trouble)),
                }
            }
            Event::Done(done) => return self.finished(done),
            Event::Listed(Err(trouble)) => self.open(Overlay::Trouble(trouble)),
            // An answer to what is not asked any more.
            _ => {}
        }
        Vec::new()
    }

    fn show(&mut self, id: CheckpointId, patch: Result<Patch, Trouble>) {
        if self.shown.as_ref().is_none_or(|(before, _)| *before != id) {
            (self.line, self.column, self.file) = (0, 0, 0);
        }
        self.shown = Some((id, patch.map(Arc::new)));
    }

    fn planned(&mut self, planned: Planned) {
        let short = planned.target.short();
        match (planned.deed.only_look, planned.changes, planned.left) {
            (true, ..) => self.open(Overlay::Plan(planned, Stage::Look)),
            (_, 0, 0) => self.status = format!("Nothing to do: the files are as they were at {short}"),
            (_, 0, _) => self.open(Overlay::Plan(planned, Stage::Look)),
            _ => self.open(Overlay::Plan(planned, Stage::Confirm)),
        }
    }

    fn finished(&mut self, done: Result<Done, Trouble>) -> Vec<Action> {
        self.busy = None;
        match done {
            Ok(done) => {
                self.status = match done.outcome {
                    RestoreOutcome::NothingToDo => done.line().to_owned(),
                    _ => format!("{} (u: undo)", done.line()),
                };
                if done.outcome == RestoreOutcome::Partly {
                    self.open(Overlay::Trouble(Trouble { message: done.text.clone(), hint: None }));
                }
                self.done.push(done);
            }
            Err(trouble) => self.open(Overlay::Trouble(trouble)),
        }
        if self.signal.is_some() { vec![Action::Quit] } else { vec![Action::List] }
    }

    /// A restore under way is finished first, unless somebody insists.
    fn leave(&mut self, signal: i32) -> Vec<Action> {
        let insists = self.signal.replace(signal).is_some();
        if self.busy == Some(Busy::Restoring) && !insists {
            "Leaving as soon as the restore is done".clone_into(&mut self.status);
            return Vec::new();
        }
        vec![Action::Quit]
    }

    /// What holds after every event: the selection is on the screen, and what the screen lacks is asked for.
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
            actions.extend(selected.map(Action::Compare));
        }
        let uncounted = self.list.window(height).filter(|(row, _)| row.change.is_none()).map(|(row, _)| row.id);
        let uncounted: Vec<_> = uncounted.collect();
        // Of those that were asked for, some are known by now.
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

    /// What is shown of what changed.
    pub(super) fn patch(&self) -> Option<&Arc<Patch>> {
        self.shown.as_ref().and_then(|(_, patch)| patch.as_ref().ok())
    }

    /// Returns whether what is shown is of another checkpoint than the one that is selected.
    pub(super) fn is_stale(&self) -> bool {
        self.shown.as_ref().map(|(id, _)| *id) != self.list.selected().map(|row| row.id)
    }

    /// What the selected checkpoint is compared to, where that is known.
    pub(super) fn current(&self) -> Option<(CheckpointId, &Arc<Patch>)> {
        let (id, patch) = self.shown.as_ref().filter(|_| !self.is_stale())?;
        Some((*id, patch.as_ref().ok()?))
    }

    /// The first line of the last page.
    pub(super) fn last_line(&self) -> usize {
        let height = usize::from(self.diff_areas().lines.height);
        self.patch().map_or(0, |patch| patch.len().saturating_sub(height))
    }

    /// The part of the files on the screen: the first of them.
    pub(super) fn first_file(&self) -> usize {
        (self.file + 1).saturating_sub(usize::from(self.diff_areas().files.height))
    }
}
