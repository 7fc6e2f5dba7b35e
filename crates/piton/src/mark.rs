//! Marking checkpoints: a name for a checkpoint, which no automatic rule drops then.

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::CheckpointId;
use crate::lookup;
use crate::project::Project;
use crate::store::{Checkpoint, Pin, PinName, Store, check_mark};
use crate::time::Moment;

/// Result of setting or removing a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MarkOutcome {
    /// The checkpoint has the mark.
    Marked,
    /// The mark was moved from another checkpoint.
    Moved,
    /// The checkpoint had the mark already.
    Unchanged,
    /// The mark was removed.
    Unmarked,
}

/// Report about a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MarkReport {
    /// Result.
    pub outcome: MarkOutcome,
    /// Name of the mark.
    pub mark: String,
    /// The checkpoint; after [`unmark`], the one that had the mark. `None` if that is missing or corrupt.
    pub checkpoint: Option<Checkpoint>,
    /// Its id.
    pub id: CheckpointId,
    /// Its number in the list. `None` if it is not there any more, and for the end and the steps of a turn.
    pub number: Option<usize>,
    /// True if the checkpoint stays. False after [`unmark`] if only the mark kept it: it is dropped.
    pub is_kept: bool,
    /// The checkpoint that had the mark before.
    pub previous: Option<CheckpointId>,
}

/// JSON of a [`MarkReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MarkReportJson<'a> {
    /// result
    outcome: MarkOutcome,
    /// name of the mark
    mark: &'a str,
    /// id of the checkpoint
    id: CheckpointId,
    /// its first seven digits
    short_id: String,
    /// its number in the list, or null if it has none
    number: Option<usize>,
    /// time at which it was taken, as in RFC 3339, or null
    time: Option<Moment>,
    /// why it was taken, or null
    reason: Option<String>,
    /// id of the checkpoint that had the mark before, or null
    previous: Option<CheckpointId>,
}

impl<'a> From<&'a MarkReport> for MarkReportJson<'a> {
    fn from(report: &'a MarkReport) -> Self {
        Self {
            outcome: report.outcome,
            mark: &report.mark,
            id: report.id,
            short_id: report.id.short(),
            number: report.number,
            time: report.checkpoint.as_ref().map(|one| one.time),
            reason: report.checkpoint.as_ref().map(Checkpoint::reason_or_prompt),
            previous: report.previous,
        }
    }
}

crate::json::serialized_as! {
    MarkReport => MarkReportJson<'_>;
}

/// Gives the checkpoint that `name` names a mark. It stays until the mark is removed, whatever the limits are.
///
/// Fails with `Invalid` if a checkpoint cannot have such a mark, and with `NeedsConsent` if another checkpoint has it,
/// unless `may_move` is true.
///
/// ```
/// use piton::{MarkOutcome, mark, unmark};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let request = piton::Request::default().reason("before patch");
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// assert_eq!(mark(&store, &project, "1", "works", false, now)?.outcome, MarkOutcome::Marked);
/// assert_eq!(piton::History::of(&store, &project)?.find("works")?.reason, "before patch");
/// assert_eq!(unmark(&store, &project, "works", now)?.outcome, MarkOutcome::Unmarked);
/// # Ok(())
/// # }
/// ```
pub fn mark(
    store: &Store,
    project: &Project,
    name: &str,
    mark: &str,
    may_move: bool,
    now: Moment,
) -> Result<MarkReport> {
    check_mark(mark)?;
    let held = store.locks.share()?;
    let locked = store.locks.lock_project(&held, project.id())?;
    let objects = store.objects.open(&held)?;
    let history = store.histories.of(&objects, project.id())?;
    let checkpoint = lookup::find(&history, name)?.clone();
    let name = PinName::Mark(mark.to_owned());
    let previous = store.pins.of(project.id())?.into_iter().find(|pin| pin.name == name).map(|pin| pin.id);
    // After Hermes rewrote commits, the pin has another id than the row that shows the mark.
    let has_it = previous == Some(checkpoint.id) || checkpoint.marks.iter().any(|one| one == mark);
    let outcome = match previous {
        Some(_) if has_it => MarkOutcome::Unchanged,
        Some(other) if !may_move => {
            return Err(Error::new(ErrorKind::NeedsConsent, format!("mark {} as {mark}", checkpoint.id.short()))
                .because(format!("{} has this mark", other.short()))
                .with_hint(Hint::MoveMark));
        }
        Some(_) => MarkOutcome::Moved,
        None => MarkOutcome::Marked,
    };
    if outcome != MarkOutcome::Unchanged {
        store.pins.set(&locked, project.id(), &Pin { name, id: checkpoint.id }, now)?;
    }
    let number = lookup::rows(&history).position(|one| one.id == checkpoint.id).map(|at| at + 1);
    let (mark, id) = (mark.to_owned(), checkpoint.id);
    let previous = previous.filter(|_| outcome == MarkOutcome::Moved);
    Ok(MarkReport { outcome, mark, id, checkpoint: Some(checkpoint), number, is_kept: true, previous })
}

/// Removes a mark. A checkpoint that only the mark has kept is dropped. Fails with `NotFound` if no checkpoint has it.
pub fn unmark(store: &Store, project: &Project, mark: &str, now: Moment) -> Result<MarkReport> {
    let held = store.locks.share()?;
    let locked = store.locks.lock_project(&held, project.id())?;
    let name = PinName::Mark(mark.to_owned());
    let Some(pin) = store.pins.of(project.id())?.into_iter().find(|pin| pin.name == name) else {
        return Err(Error::new(ErrorKind::NotFound, format!("remove the mark {mark:?}"))
            .because("no checkpoint of this project has it")
            .with_hint(Hint::ListCheckpoints));
    };
    let objects = store.objects.open(&held)?;
    let checkpoint = objects.checkpoint(pin.id).ok();
    store.pins.remove(&locked, project.id(), &name, now)?;
    let left = store.histories.of(&objects, project.id())?;
    let number = lookup::rows(&left).position(|one| one.id == pin.id).map(|at| at + 1);
    let is_kept = left.checkpoints.iter().any(|one| one.id == pin.id);
    let outcome = MarkOutcome::Unmarked;
    Ok(MarkReport { outcome, mark: mark.to_owned(), id: pin.id, checkpoint, number, is_kept, previous: None })
}
