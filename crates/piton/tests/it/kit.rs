//! The library and a sandbox together.

use std::path::Path;

use piton::{CheckpointKind, Moment, Outcome, Progress, Project, Report, Request, Settings, Store};
use testkit::Sandbox;

/// A time for `now` that is certainly not later than any call.
pub(crate) fn now() -> Moment {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Moment {
        secs: i64::try_from(since.as_secs()).expect("not that late"),
        nanos: since.subsec_nanos(),
        offset_secs: 7200,
    }
}

/// Takes a checkpoint by hand of the sandbox's project, with the default settings.
pub(crate) fn take(sandbox: &Sandbox) -> Report {
    take_with(sandbox, &sandbox.project(), &Settings::default())
}

/// The same of any directory, with any settings.
pub(crate) fn take_with(sandbox: &Sandbox, dir: &Path, settings: &Settings) -> Report {
    let request = Request { reason: "a test".to_owned(), kind: CheckpointKind::Manual, ..Request::default() };
    take_for(sandbox, dir, settings, &request)
}

/// The same for any reason.
pub(crate) fn take_for(sandbox: &Sandbox, dir: &Path, settings: &Settings, request: &Request) -> Report {
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(dir, Some(&sandbox.home())).expect("a project");
    piton::take(&store, &project, request, settings, now(), &Progress::default()).expect("a take")
}

/// The id of the checkpoint that was taken.
pub(crate) fn taken(report: &Report) -> String {
    match report.outcome {
        Outcome::Taken(id) => id.to_string(),
        other => panic!("not taken: {other:?}, {:?}", report.skipped),
    }
}
