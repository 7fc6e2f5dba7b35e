//! Background threads that call the library, so that the user interface never blocks on it. Each thread handles one
//! kind of request, of which only the newest counts: a newer request cancels one in progress and replaces one that is
//! waiting.
//!
//! Locks of the store are held while one request is handled, never while the user is being asked.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use piton::{CheckpointId, Error, ErrorKind, History, Listed, Progress, Restore, RestoreOptions, RestoreTo, diff};

use super::list::Row;
use super::opened::{OpenedProject, work_error};
use super::patch::Patch;
use super::revert;
use super::state::{Action, DiffOf, Event, JobResult, Planned, RestoreRequest, WorkError};
use crate::cmd::fork::{ConversationFork, prompt_at};
use crate::cmd::machines::ListAnswer;
use crate::cmd::restore::{ReportFor, other_lines, plan_lines, report_text, tell_agents, tell_of_rewind};
use crate::context::Context;
use crate::hints;
use crate::output::plain;
use crate::remote::named::OtherMachine;
use crate::surface::Surface;

/// Maximum number of versions of a file that are compared with the current one. Checkpoints with any other version are
/// shown without a comparison, whether it differs or not.
const VERSIONS_COMPARED_MAX: usize = 8;

/// Maximum number of paths of another session's work that a plan names.
const OTHER_PATHS_MAX: usize = 5;

/// The request slots of the workers.
pub(super) struct Workers {
    list: Arc<Slot<()>>,
    counts: Arc<Slot<Vec<CheckpointId>>>,
    diffs: Arc<Slot<(CheckpointId, DiffOf)>>,
    finds: Arc<Slot<Vec<u8>>>,
    deeds: Arc<Slot<Order>>,
}

enum Order {
    Plan(RestoreRequest),
    Do(Planned, bool),
}

impl Workers {
    pub(super) fn start(opened: &Arc<OpenedProject>, events: &Sender<Event>) -> std::io::Result<Self> {
        Ok(Self {
            list: start("list", opened, events, |opened, (), progress, send| {
                send(Event::Listed(match &opened.other {
                    None => list(opened),
                    Some(other) => list_of(other, progress),
                }));
            })?,
            counts: start("counts", opened, events, count)?,
            diffs: start("diff", opened, events, |opened, (id, of), progress, send| {
                match of {
                    DiffOf::Since => {
                        let patch = opened.stored(id, progress).map(|stored| compare(opened, stored, progress));
                        unless_cancelled(patch, progress).map(|patch| send(Event::Compared(id, patch)))
                    }
                    DiffOf::Turn => {
                        let patch = opened.only_here("show the changes of a turn");
                        let patch = patch.map(|()| revert::compare_turn(opened, id, progress));
                        unless_cancelled(patch, progress).map(|patch| send(Event::ComparedTurn(id, patch)))
                    }
                };
            })?,
            finds: start("find", opened, events, |opened, path: Vec<u8>, progress, send| {
                let found = opened.only_here("find the versions of a file").map(|()| find(opened, &path, progress));
                if let Some(found) = unless_cancelled(found, progress) {
                    send(Event::Found(path, found));
                }
            })?,
            deeds: start("restore", opened, events, |opened, order, progress, send| {
                send(match order {
                    Order::Plan(request) if request.revert.is_some() => {
                        Event::Planned(request.clone(), revert::plan(opened, &request, progress))
                    }
                    Order::Plan(request) => Event::Planned(request.clone(), plan(opened, &request, progress)),
                    Order::Do(planned, consent) if planned.request.revert.is_some() => {
                        Event::Done(revert::carry_out(opened, &planned, consent, progress))
                    }
                    Order::Do(planned, across) => Event::Done(restore(opened, &planned, across, progress)),
                });
            })?,
        })
    }

    /// Queues the action for its worker. `Quit` is handled by the event loop, and ignored here.
    pub(super) fn ask(&self, action: Action) {
        match action {
            Action::List => self.list.put(()),
            Action::Count(ids) => self.counts.put(ids),
            Action::Compare(id) => self.diffs.put((id, DiffOf::Since)),
            Action::CompareTurn(id) => self.diffs.put((id, DiffOf::Turn)),
            Action::Find(path) => self.finds.put(path),
            Action::Plan(request) => self.deeds.put(Order::Plan(request)),
            Action::Do(planned, across) => self.deeds.put(Order::Do(planned, across)),
            Action::Quit => {}
        }
    }
}

/// Holds the newest request of one kind, and the progress of the one in progress.
struct Slot<T> {
    wanted: Mutex<(Option<T>, Arc<Progress>)>,
    bell: Condvar,
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self { wanted: Mutex::default(), bell: Condvar::new() }
    }

    /// Stores a request, replacing any that is waiting, and cancels the one in progress.
    fn put(&self, request: T) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.1.cancel();
        wanted.0 = Some(request);
        self.bell.notify_one();
    }

    /// Blocks until there is a request.
    fn take(&self) -> (T, Arc<Progress>) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(request) = wanted.0.take() {
                wanted.1 = Arc::default();
                return (request, Arc::clone(&wanted.1));
            }
            wanted = self.bell.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn start<T: Send + 'static>(
    name: &str,
    opened: &Arc<OpenedProject>,
    events: &Sender<Event>,
    work: impl Fn(&OpenedProject, T, &Progress, &dyn Fn(Event)) + Send + 'static,
) -> std::io::Result<Arc<Slot<T>>> {
    let slot = Arc::new(Slot::new());
    let (opened, events, requests) = (Arc::clone(opened), events.clone(), Arc::clone(&slot));
    thread::Builder::new().name(format!("picker: {name}")).spawn(move || {
        let send = |event| {
            // Fails only if the receiver is gone: the process is about to end.
            let _ = events.send(event);
        };
        loop {
            let (request, progress) = requests.take();
            work(&opened, request, &progress, &send);
        }
    })?;
    Ok(slot)
}

impl WorkError {
    pub(super) fn of(error: &Error) -> Self {
        Self { message: plain(&error.to_string()), hint: hints::of(error).map(|hint| plain(&hint)) }
    }
}

impl From<Error> for WorkError {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

/// Returns `None` if the request was cancelled by a newer one.
fn unless_cancelled<T>(
    result: Result<piton::Result<T>, WorkError>,
    progress: &Progress,
) -> Option<Result<T, WorkError>> {
    match result {
        Ok(Err(error)) if error.kind() == ErrorKind::Stopped => None,
        Err(_) if progress.is_cancelled() => None,
        Ok(result) => Some(result.map_err(WorkError::from)),
        Err(error) => Some(Err(error)),
    }
}

/// Returns the rows of another machine, and the warnings about the remote.
fn list_of(other: &OtherMachine, progress: &Progress) -> Result<(Vec<Row>, Option<String>), WorkError> {
    let (answer, warnings): (ListAnswer, _) = other.list_with(progress).map_err(|error| work_error(&error))?;
    let notice = Some(plain(&warnings.join("; "))).filter(|text| !text.is_empty());
    Ok(((1..).zip(&answer.rows).map(|(number, sent)| Row::of_machine(number, sent)).collect(), notice))
}

fn list(opened: &OpenedProject) -> Result<(Vec<Row>, Option<String>), WorkError> {
    let history = History::of(&opened.store, &opened.project)?;
    let rows = (1..).zip(history.rows()).map(|(number, checkpoint)| Row::new(number, checkpoint)).collect();
    let intent = opened.store.interrupted_restore(opened.project.id())?;
    let notice = intent.map(|intent| {
        let short = intent.target.short();
        format!("A restore to {short} was cut short: `piton restore --continue` or `piton restore --abort`")
    });
    Ok((rows, notice))
}

/// Sends the counts of each checkpoint. An error is ignored here: the row has no counts, and the error shows when the
/// checkpoint is compared or restored.
fn count(opened: &OpenedProject, ids: Vec<CheckpointId>, progress: &Progress, send: &dyn Fn(Event)) {
    if opened.other.is_some() {
        return;
    }
    let Ok(history) = History::of(&opened.store, &opened.project) else { return };
    for id in ids {
        if progress.is_cancelled() {
            return;
        }
        if let Some(checkpoint) = history.checkpoints().iter().find(|one| one.id == id)
            && let Ok(Listed { change: Some(change), .. }) = history.listed(checkpoint)
        {
            send(Event::Counted(id, change));
        }
    }
}

fn compare(opened: &OpenedProject, id: CheckpointId, progress: &Progress) -> piton::Result<Patch> {
    let OpenedProject { store, project, settings, .. } = opened;
    let diff = diff(store, project, (&id.to_string(), None), &[], settings, progress)?;
    Ok(Patch::new(&diff))
}

/// Returns the checkpoints in which the file differs from the one before, and those in which it differs from the
/// current file.
fn find(opened: &OpenedProject, path: &[u8], progress: &Progress) -> piton::Result<HashSet<CheckpointId>> {
    let OpenedProject { store, project, settings, .. } = opened;
    let history = History::of(store, project)?;
    let versions = history.versions(path)?;
    let rows = history.checkpoints().iter().zip(versions).filter(|(checkpoint, _)| checkpoint.is_row());
    let (ids, versions): (Vec<_>, Vec<_>) = rows.map(|(row, version)| (row.id, version)).unzip();
    // `diff` takes the locks itself.
    drop(history);
    let paths = [path.to_vec()];
    let mut seen = HashSet::new();
    let distinct = versions.iter().zip(&ids).filter(|(version, _)| seen.insert(**version));
    let mut now = None;
    for (version, id) in distinct.take(VERSIONS_COMPARED_MAX) {
        if diff(store, project, (&id.to_string(), None), &paths, settings, progress)?.files.is_empty() {
            now = Some(*version);
            break;
        }
    }
    let has_to_do = |at: &usize| {
        let is_changed = versions.get(at + 1).is_some_and(|before| *before != versions[*at]);
        is_changed || now != Some(versions[*at])
    };
    Ok((0..ids.len()).filter(has_to_do).map(|at| ids[at]).collect())
}

fn prepare<'a>(
    opened: &'a OpenedProject,
    (request, to): (&RestoreRequest, Option<CheckpointId>),
    (is_dry, across_sessions): (bool, bool),
    progress: &Progress,
) -> piton::Result<Restore<'a>> {
    let id = to.map(|id| id.to_string());
    let to = id.as_deref().map_or(RestoreTo::Undo, RestoreTo::Named);
    let paths: Vec<_> = request.path.iter().cloned().collect();
    let options = RestoreOptions::default().paths(&paths).across_sessions(across_sessions).is_dry(is_dry);
    Restore::prepare(&opened.store, &opened.project, to, options, &opened.settings, Context::now(), progress)
}

fn describe(request: &RestoreRequest, prepared: &Restore<'_>) -> Planned {
    let (plan, target) = (prepared.plan(), prepared.target());
    Planned {
        request: request.clone(),
        target: target.id,
        reason: plain(&target.headline()),
        written: plan.written().count(),
        removed: plan.removed().count(),
        left: plan.left().len(),
        changes: plan.changes(),
        lines: plan_lines(plan),
        others: prepared.others().iter().flat_map(|other| other_lines(other, OTHER_PATHS_MAX)).collect(),
    }
}

/// Adds the conversation to the plan of a rewind. Fails if it cannot be forked.
fn with_fork(opened: &OpenedProject, mut planned: Planned) -> Result<(Planned, Option<ConversationFork>), WorkError> {
    if !planned.request.is_rewind {
        return Ok((planned, None));
    }
    let history = History::of(&opened.store, &opened.project)?;
    let turn = prompt_at(history.find(&planned.target.to_string())?, None).cloned();
    drop(history);
    let fork = turn.and_then(|turn| ConversationFork::plan(&turn, &opened.store, &opened.project));
    let fork = fork.map_err(|no| WorkError {
        message: format!("cannot rewind the conversation: {}", plain(&no.why.0)),
        hint: Some("r restores the files alone".to_owned()),
    })?;
    planned.lines = fork.preview().into_iter().chain(planned.lines).collect();
    // The fork is one.
    planned.changes += 1;
    Ok((planned, Some(fork)))
}

fn plan(opened: &OpenedProject, request: &RestoreRequest, progress: &Progress) -> Result<Planned, WorkError> {
    let to = request.to.map(|id| opened.stored(id, progress)).transpose()?;
    let prepared = prepare(opened, (request, to), (true, false), progress)?;
    Ok(with_fork(opened, describe(request, &prepared))?.0)
}

/// Carries out the plan that the user confirmed. Fails with `Busy`, without touching anything, if the plan would be a
/// different one by then.
fn restore(
    opened: &OpenedProject,
    agreed: &Planned,
    across: bool,
    progress: &Progress,
) -> Result<JobResult, WorkError> {
    let to = agreed.request.to.map(|_| agreed.target);
    let prepared = prepare(opened, (&agreed.request, to), (false, across), progress)?;
    let (planned, mut fork) = with_fork(opened, describe(&agreed.request, &prepared))?;
    if planned != *agreed {
        return Err(Error::new(ErrorKind::Busy, "restore")
            .because("the files or the checkpoints changed meanwhile; nothing was touched")
            .with_hint("ask again: the new plan says what changes")
            .into());
    }
    if let Some(fork) = &mut fork {
        fork.write()
            .map_err(|error| WorkError { message: plain(&format!("{error:#}; no file was touched")), hint: None })?;
    }
    let report = prepared.apply().inspect_err(|_| {
        if let Some(fork) = &mut fork {
            fork.take_back();
        }
    })?;
    let Some(fork) = fork else {
        tell_agents(&opened.settings, &opened.store, &opened.project, &report);
        let text = report_text(&report, &[], Surface::Shell, None, ReportFor::Restore);
        return Ok(JobResult { outcome: report.outcome, text, is_rewind: false });
    };
    tell_of_rewind(&opened.settings, &opened.store, &opened.project, &report, &fork);
    let text = report_text(&report, &[], Surface::Shell, None, ReportFor::Rewind);
    let lines = fork.lines(Surface::Shell, opened.project.dir());
    let text = std::iter::once(text).chain(lines).collect::<Vec<_>>().join("\n");
    Ok(JobResult { outcome: report.outcome, text, is_rewind: true })
}
