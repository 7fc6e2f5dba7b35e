//! Restoring in a sandbox, and the exact state of a directory.

use piton::{
    ErrorKind, History, Progress, Project, Restore, RestoreOptions, RestoreOutcome, RestoreReport, RestoreTo, Settings,
    Store,
};
use testkit::Sandbox;
pub(crate) use testkit::state::{Node, State, assert_same, state_of};

use crate::kit::now;

/// Restores, with a store that is opened for it; `between` runs after the plan is made and before anything is done.
pub(crate) fn restore_between(
    sandbox: &Sandbox,
    to: RestoreTo<'_>,
    options: RestoreOptions<'_>,
    settings: &Settings,
    between: impl FnOnce(&Restore<'_>),
) -> piton::Result<RestoreReport> {
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let restore = Restore::prepare(&store, &project, to, options, settings, now(), &Progress::default())?;
    between(&restore);
    restore.apply()
}

pub(crate) fn try_restore(sandbox: &Sandbox, to: RestoreTo<'_>, paths: &[&str]) -> piton::Result<RestoreReport> {
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    let options = RestoreOptions::default().paths(&paths);
    restore_between(sandbox, to, options, &Settings::default(), |_| {})
}

/// Restores, and asserts that nothing was left undone.
#[track_caller]
pub(crate) fn restored(sandbox: &Sandbox, to: RestoreTo<'_>, paths: &[&str]) -> RestoreReport {
    let report = try_restore(sandbox, to, paths).expect("a restore");
    assert_eq!((report.outcome, &*report.left), (RestoreOutcome::Restored, &[][..]), "{report:?}");
    report
}

/// Returns the paths that a restore left alone, and why.
pub(crate) fn left_by(report: &RestoreReport) -> Vec<(String, String)> {
    let text = |left: &piton::Left| (String::from_utf8_lossy(&left.path).into_owned(), left.why.word().to_owned());
    report.left.iter().map(text).collect()
}

/// Converts expected values to the form of [`left_by`].
pub(crate) fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, why)| ((*path).to_owned(), (*why).to_owned())).collect()
}

#[track_caller]
pub(crate) fn kind_of<T>(result: piton::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it must fail"),
        Err(error) => error.kind(),
    }
}

/// Returns the ids and times in the list.
pub(crate) fn listed(sandbox: &Sandbox) -> Vec<(String, String)> {
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let list = History::of(&store, &project).and_then(|history| history.list()).expect("a list");
    list.iter().map(|line| (line.checkpoint.id.to_string(), line.checkpoint.time.to_string())).collect()
}
