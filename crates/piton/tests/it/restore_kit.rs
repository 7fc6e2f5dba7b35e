//! Restoring in a sandbox, and what a directory holds to the last bit.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use piton::{
    ErrorKind, History, Progress, Project, Restore, RestoreOptions, RestoreOutcome, RestoreReport, RestoreTo, Settings,
    Store,
};
use testkit::{Sandbox, walk};

use crate::kit::now;

/// What stands at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(u32, Vec<u8>),
    Link(Vec<u8>),
    Dir(u32),
    Special,
}

/// Everything below a directory.
pub(crate) type State = BTreeMap<Vec<u8>, Node>;

/// Everything below a directory, with permission bits and empty directories.
pub(crate) fn state_of(dir: &Path) -> State {
    let mut state = State::new();
    walk(dir, &mut |path| {
        let relative = path.strip_prefix(dir).expect("below it").as_os_str().as_bytes().to_vec();
        let stat = path.symlink_metadata().expect("what was just listed");
        let mode = stat.permissions().mode() & 0o7777;
        let node = if stat.is_symlink() {
            Node::Link(fs::read_link(path).expect("a link").into_os_string().into_vec())
        } else if stat.is_dir() {
            Node::Dir(mode)
        } else if stat.file_type().is_fifo() || stat.file_type().is_socket() {
            Node::Special
        } else {
            Node::File(mode, fs::read(path).unwrap_or_else(|_| b"(unreadable)".to_vec()))
        };
        state.insert(relative, node);
    });
    state
}

/// The two states are the same; says where they are not.
#[track_caller]
pub(crate) fn assert_same(now: &State, want: &State, when: &str) {
    let names: std::collections::BTreeSet<_> = now.keys().chain(want.keys()).collect();
    let shown = |node: Option<&Node>| match node {
        Some(Node::File(mode, bytes)) => format!("file {mode:o} {:.60}", String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    };
    let differing: Vec<_> = names
        .into_iter()
        .filter(|name| now.get(*name) != want.get(*name))
        .map(|name| {
            let (now, want) = (shown(now.get(name)), shown(want.get(name)));
            format!("{}: is {now}, should be {want}", String::from_utf8_lossy(name))
        })
        .collect();
    assert!(differing.is_empty(), "{when}:\n{}", differing.join("\n"));
}

/// Restores, with a store that was opened for it; `between` runs when the plan is made and nothing is done yet.
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
    let options = RestoreOptions { paths: &paths, ..RestoreOptions::default() };
    restore_between(sandbox, to, options, &Settings::default(), |_| {})
}

/// Restores everything, and nothing is left.
#[track_caller]
pub(crate) fn restored(sandbox: &Sandbox, to: RestoreTo<'_>, paths: &[&str]) -> RestoreReport {
    let report = try_restore(sandbox, to, paths).expect("a restore");
    assert_eq!((report.outcome, &*report.left), (RestoreOutcome::Restored, &[][..]), "{report:?}");
    report
}

/// Restores one thing, and some of it is left: which, and why.
pub(crate) fn left_by(report: &RestoreReport) -> Vec<(String, String)> {
    let text = |left: &piton::Left| (String::from_utf8_lossy(&left.path).into_owned(), left.why.word().to_owned());
    report.left.iter().map(text).collect()
}

/// The same in the words of a test.
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

/// The ids and times of the list.
pub(crate) fn listed(sandbox: &Sandbox) -> Vec<(String, String)> {
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let list = History::of(&store, &project).and_then(|history| history.list()).expect("a list");
    list.iter().map(|line| (line.checkpoint.id.to_string(), line.checkpoint.time.to_string())).collect()
}
