//! The remote in `piton status` and `piton doctor`.

use piton::Store;

use super::local::KnownRemote;
use super::program::{NOT_INSTALLED, RemoteProgram};
use crate::hints::Problem;

/// Returns the remote of a store, if it has one, and adds what is wrong with it to `problems`. Asks nothing of the
/// remote.
pub(crate) fn known_remote(store: Option<&Store>, problems: &mut Vec<Problem>) -> Option<KnownRemote> {
    match KnownRemote::of(store?) {
        Ok(None) => None,
        Ok(Some(remote)) => {
            if RemoteProgram::path().is_none() {
                let what = "nothing is pushed: the program piton-remote is not installed";
                problems.push(Problem::new(what, NOT_INSTALLED));
            }
            problems.extend(remote.problems());
            Some(remote)
        }
        Err(error) => {
            problems.push(Problem::from(&error));
            None
        }
    }
}
