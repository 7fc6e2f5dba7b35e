//! Helpers that combine the library and a sandbox.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use piton::{
    Checkpoint, CheckpointKind, History, Moment, Outcome, Progress, Project, Report, Request, Settings, Store,
};
use testkit::Sandbox;

pub(crate) use testkit::Dice;

/// Returns the current time, for `now`: certainly not later than the time of any following call.
pub(crate) fn now() -> Moment {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Moment {
        secs: i64::try_from(since.as_secs()).expect("not that late"),
        nanos: since.subsec_nanos(),
        offset_secs: 7200,
    }
}

/// Takes a manual checkpoint of the sandbox's project with the default settings.
pub(crate) fn take(sandbox: &Sandbox) -> Report {
    take_with(sandbox, &sandbox.project(), &Settings::default())
}

/// Like [`take`], of any directory and with any settings.
pub(crate) fn take_with(sandbox: &Sandbox, dir: &Path, settings: &Settings) -> Report {
    let request = Request::default().reason("a test").kind(CheckpointKind::Manual);
    take_for(sandbox, dir, settings, &request)
}

/// Like [`take_with`], for any request.
pub(crate) fn take_for(sandbox: &Sandbox, dir: &Path, settings: &Settings, request: &Request) -> Report {
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(dir, Some(&sandbox.home())).expect("a project");
    piton::take(&store, &project, request, settings, now(), &Progress::default()).expect("a take")
}

/// Like [`take_with`], at any time and in any base.
pub(crate) fn take_at(base: &Path, dir: &Path, settings: &Settings, now: Moment) -> Report {
    let store = Store::open_or_create(base, now).expect("a store");
    let project = Project::at(dir, None).expect("a project");
    let request = Request::default().reason("a test").kind(CheckpointKind::Manual);
    piton::take(&store, &project, &request, settings, now, &Progress::default()).expect("a take")
}

/// Returns a time for `now` that makes the next scan trust everything that this one records. A test that changes a file
/// afterwards must wait for the [`next_tick`] first: the library's own margin exists for that.
pub(crate) fn settled() -> Moment {
    Moment { secs: now().secs + 60, ..now() }
}

/// Blocks until the clock that stamps files has advanced, by comparing the timestamps of a file.
pub(crate) fn next_tick(sandbox: &Sandbox) {
    let path = sandbox.root().join("clock");
    let stamp = || {
        fs::write(&path, "tick").expect("a file");
        let stat = path.metadata().expect("a file");
        (stat.ctime(), stat.ctime_nsec())
    };
    let first = stamp();
    while stamp() == first {}
}

/// Returns the paths in a checkpoint, sorted.
pub(crate) fn paths_in(sandbox: &Sandbox, checkpoint: &str) -> Vec<String> {
    let listing = sandbox.store_git(&["ls-tree", "-r", "-z", "--name-only", checkpoint]);
    let paths = listing.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let mut paths: Vec<_> = paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    paths.sort();
    paths
}

/// Returns the skipped files of a report, one line each.
pub(crate) fn left_out(report: &Report) -> Vec<String> {
    report.skipped.iter().map(ToString::to_string).collect()
}

/// Returns the newest checkpoint of the sandbox's project.
pub(crate) fn newest(sandbox: &Sandbox) -> Checkpoint {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    History::of(&store, &project).expect("a history").checkpoints().first().expect("a checkpoint").clone()
}

/// Returns the id of the sandbox's project in the store.
pub(crate) fn project_id(sandbox: &Sandbox) -> String {
    Project::at(&sandbox.project(), None).expect("a project").id().to_string()
}

/// Returns the number of cases a random test tries: that of the environment variable, or the default.
pub(crate) fn cases(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the id of the checkpoint that was taken. Panics if none was.
pub(crate) fn taken(report: &Report) -> String {
    match report.outcome {
        Outcome::Taken(id) => id.to_string(),
        other => panic!("not taken: {other:?}, {:?}", report.skipped),
    }
}

/// Returns true if the test should go on in this process, where permissions can deny it access to files. Root reads
/// everything: as root, the test runs again in a process without that capability, must succeed there, and ends in this
/// one.
pub(crate) fn without_roots_powers(test: &str) -> bool {
    if !is_root() {
        return true;
    }
    testkit::has_program("setpriv") && runs_under(test, &["setpriv", "--bounding-set=-dac_override,-dac_read_search"])
}

/// Returns true if this process runs as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Returns true if this process was started through that command. If not, runs the test again in one that is; it must
/// succeed.
pub(crate) fn runs_under(test: &str, command: &[&str]) -> bool {
    const MARK: &str = "PITON_TEST_AGAIN";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("this program");
    let mut again = testkit::clean_command(command[0]);
    again.args(&command[1..]).arg(own).args([test, "--exact"]).env(MARK, "1");
    let output = again.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}
