//! Several agents and sessions in one project: one list, and the work of another session is never undone without
//! consent.

use std::fs;

use piton::{
    CheckpointKind, ErrorKind, History, Origin, Progress, Project, Request, Restore, RestoreOptions, RestoreTo,
    Settings,
};
use testkit::Sandbox;

use crate::kit::{now, take, take_for, taken};
use crate::upkeep::store_of;

/// Takes a checkpoint before a turn of a session, then changes one file as its work.
fn turn(sandbox: &Sandbox, agent: &str, session: &str, file: &str, contents: &str) -> String {
    let origin = Origin::default().agent(agent).session(session).turn(contents);
    let request = Request::default().kind(CheckpointKind::Auto).origin(origin).reason("before patch");
    let settings = Settings::default().enabled(true);
    let id = taken(&take_for(sandbox, &sandbox.project(), &settings, &request));
    fs::write(sandbox.project().join(file), contents).expect("a file");
    id
}

/// Returns what a restore reports of other sessions: name, number of checkpoints, and the paths they changed.
fn others(sandbox: &Sandbox, to: RestoreTo<'_>, options: RestoreOptions<'_>) -> Vec<(String, usize, Vec<String>)> {
    let (store, project) = (store_of(sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let options = options.is_dry(true);
    let planned = Restore::prepare(&store, &project, to, options, &Settings::default(), now(), &Progress::default())
        .expect("a plan");
    let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    let found = planned.others().iter();
    found.map(|other| (other.session.clone(), other.checkpoints, other.paths.iter().map(text).collect())).collect()
}

fn restore(sandbox: &Sandbox, to: RestoreTo<'_>, across_sessions: bool) -> Result<(), ErrorKind> {
    let (store, project) = (store_of(sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let options = RestoreOptions::default().across_sessions(across_sessions);
    let restore = Restore::prepare(&store, &project, to, options, &Settings::default(), now(), &Progress::default());
    restore.expect("a plan").apply().map(drop).map_err(|error| error.kind())
}

fn two_sessions(sandbox: &Sandbox) -> Vec<String> {
    fs::write(sandbox.project().join("a"), "0").expect("a file");
    vec![
        turn(sandbox, "claude", "one", "a", "1"),
        turn(sandbox, "codex", "two", "b", "2"),
        turn(sandbox, "claude", "one", "a", "3"),
        turn(sandbox, "codex", "two", "c", "4"),
        turn(sandbox, "claude", "one", "a", "5"),
    ]
}

#[test]
fn a_restore_that_takes_back_another_sessions_later_work_must_be_agreed_to() {
    let sandbox = Sandbox::new();
    let ids = two_sessions(&sandbox);
    let files = testkit::files_in(&sandbox.project());
    let expected = vec![("two".to_owned(), 2, vec!["b".to_owned(), "c".to_owned()])];
    assert_eq!(others(&sandbox, RestoreTo::Named(&ids[0]), RestoreOptions::default()), expected);
    assert_eq!(restore(&sandbox, RestoreTo::Named(&ids[0]), false), Err(ErrorKind::NeedsConsent));
    assert!(testkit::files_in(&sandbox.project()) == files, "nothing was touched");
    assert_eq!(restore(&sandbox, RestoreTo::Named(&ids[0]), true), Ok(()));
    assert_eq!(fs::read_to_string(sandbox.project().join("a")).expect("a file"), "0");
    assert!(!sandbox.project().join("c").exists());
}

#[test]
fn a_sessions_own_later_work_needs_no_consent() {
    let sandbox = Sandbox::new();
    let ids = two_sessions(&sandbox);
    assert_eq!(others(&sandbox, RestoreTo::Named(&ids[4]), RestoreOptions::default()), []);
    assert_eq!(restore(&sandbox, RestoreTo::Named(&ids[4]), false), Ok(()));
    assert_eq!(fs::read_to_string(sandbox.project().join("a")).expect("a file"), "3");
}

#[test]
fn another_session_is_told_of_the_first_prompt() {
    let sandbox = Sandbox::new();
    let ids = two_sessions(&sandbox);
    let options = RestoreOptions::default().session("two");
    // Changes after the newest checkpoint count as the work of that checkpoint's session.
    for id in &ids[3..] {
        let found = others(&sandbox, RestoreTo::Named(id), options);
        assert_eq!(found.iter().map(|(session, ..)| session.as_str()).collect::<Vec<_>>(), ["one"]);
    }
}

#[test]
fn only_the_paths_that_are_restored_count() {
    let sandbox = Sandbox::new();
    let ids = two_sessions(&sandbox);
    let paths = [b"a".to_vec()];
    let options = RestoreOptions::default().paths(&paths);
    assert_eq!(others(&sandbox, RestoreTo::Named(&ids[2]), options), [], "the other session did not touch it");
    let paths = [b"b".to_vec()];
    let options = RestoreOptions::default().paths(&paths);
    let first = turn(&sandbox, "claude", "one", "a", "6");
    turn(&sandbox, "codex", "two", "b", "7");
    let expected = ("two".to_owned(), 1, vec!["b".to_owned()]);
    assert_eq!(others(&sandbox, RestoreTo::Named(&first), options), [expected], "no other session has touched it");
}

#[test]
fn an_undo_asks_if_another_session_has_worked_since() {
    let sandbox = Sandbox::new();
    let ids = two_sessions(&sandbox);
    restore(&sandbox, RestoreTo::Named(&ids[4]), false).expect("a restore");
    assert_eq!(others(&sandbox, RestoreTo::Undo, RestoreOptions::default()), []);
    turn(&sandbox, "codex", "two", "d", "6");
    let expected = ("two".to_owned(), 1, vec!["d".to_owned()]);
    assert_eq!(others(&sandbox, RestoreTo::Undo, RestoreOptions::default()), [expected]);
    assert_eq!(restore(&sandbox, RestoreTo::Undo, false), Err(ErrorKind::NeedsConsent));
    assert_eq!(restore(&sandbox, RestoreTo::Undo, true), Ok(()));
    assert_eq!(fs::read_to_string(sandbox.project().join("a")).expect("a file"), "5");
}

#[test]
fn checkpoints_of_all_sessions_stand_in_one_list() {
    let sandbox = Sandbox::new();
    two_sessions(&sandbox);
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let history = History::of(&store_of(&sandbox), &project).expect("a history");
    let sessions = history.checkpoints().iter().map(|one| one.facts.origin.session.clone().expect("a session"));
    assert_eq!(sessions.collect::<Vec<_>>(), ["one", "two", "one", "two", "one"]);
}

/// These versions are compared to find the checkpoints in which a file changed; git must agree with them.
#[test]
fn the_versions_of_a_path_are_those_that_git_finds() {
    let sandbox = Sandbox::new();
    let trees = ["dir/sub/a = one\n b = one", "*dir/sub/a = one", "dir/sub/a = two\n c", "b = two"];
    let mut checkpoints: Vec<_> = trees
        .iter()
        .map(|tree| {
            sandbox.tree(tree);
            taken(&take(&sandbox))
        })
        .collect();
    checkpoints.reverse();
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let history = History::of(&store_of(&sandbox), &project).expect("a history");
    for path in ["dir/sub/a", "dir/sub", "dir", "b", "c", "b/x", "nothing", "dir/nothing"] {
        let versions = history.versions(path.as_bytes()).expect("versions");
        let shown = versions.iter().map(|version| version.map(|(mode, id)| format!("{mode:06o} {id}")));
        let by_git = checkpoints.iter().map(|checkpoint| {
            let line = sandbox.store_git(&["ls-tree", checkpoint, path]);
            let line = String::from_utf8(line).expect("text");
            let words: Vec<_> = line.split_whitespace().collect();
            (!words.is_empty()).then(|| format!("{} {}", words[0], words[2]))
        });
        assert_eq!(shown.collect::<Vec<_>>(), by_git.collect::<Vec<_>>(), "{path}");
    }
}
