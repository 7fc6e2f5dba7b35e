//! The project that the picker is opened for.

use piton::{CheckpointId, Error, Progress, Project, Settings, Store};

use super::state::WorkError;
use crate::output::{Relayed, plain};
use crate::remote::named::OtherMachine;

/// Data shared by all workers.
pub(super) struct OpenedProject {
    pub(super) store: Store,
    pub(super) project: Project,
    pub(super) settings: Settings,
    /// The machine whose checkpoints are shown, if it is another one.
    pub(super) other: Option<OtherMachine>,
}

impl OpenedProject {
    /// Returns the id of a row in the store. A checkpoint of another machine is fetched first.
    pub(super) fn stored(&self, id: CheckpointId, progress: &Progress) -> Result<CheckpointId, WorkError> {
        match &self.other {
            None => Ok(id),
            Some(other) => other.fetch_with(id, progress).map_err(|error| work_error(&error)),
        }
    }

    /// Fails for checkpoints of another machine: `what` completes "cannot …".
    pub(super) fn only_here(&self, what: &str) -> Result<(), WorkError> {
        match &self.other {
            None => Ok(()),
            Some(other) => Err(WorkError {
                message: format!("cannot {what}: these are checkpoints of {}", plain(&other.name)),
                hint: Some("`piton rollback` shows those of this machine".to_owned()),
            }),
        }
    }
}

/// Returns an error of the program for the remote.
pub(super) fn work_error(error: &anyhow::Error) -> WorkError {
    match (error.downcast_ref::<Relayed>(), error.downcast_ref::<Error>()) {
        (Some(Relayed(failure)), _) => {
            WorkError { message: plain(&failure.message), hint: failure.hint.as_deref().map(plain) }
        }
        (None, Some(known)) => WorkError::of(known),
        (None, None) => WorkError { message: plain(&format!("{error:#}")), hint: None },
    }
}
