//! Local files: small files out of scope that are saved with each checkpoint.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use piton::{
    CheckpointKind, IgnoredFiles, KeepIgnored, Moment, Outcome, Policy, Progress, Project, Report, Request, Restore,
    RestoreOptions, RestoreOutcome, RestoreReport, RestoreTo, Settings, Store,
};
use testkit::Sandbox;

use crate::kit::{next_tick, now, project_id, settled, take, take_at, take_with, taken};

/// Returns a sandbox whose project ignores `data/`, `*.db` and `notes.txt`.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox.write(".gitignore", "data/\n*.db\n*.db-*\nnotes.txt\nnode_modules/\n");
    sandbox
}

/// Returns the paths of the local files of a checkpoint, as stock git lists them.
fn local_paths(sandbox: &Sandbox, checkpoint: &str) -> BTreeSet<String> {
    let state = format!("refs/local/{}/{checkpoint}:files", project_id(sandbox));
    let listing = sandbox.store_git(&["ls-tree", "-r", "-z", "--name-only", &state]);
    let paths = listing.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

fn local_refs(sandbox: &Sandbox) -> Vec<String> {
    let refs = sandbox.store_git(&["for-each-ref", "--format=%(refname:lstrip=3)", "refs/local/"]);
    String::from_utf8(refs).expect("text").lines().map(str::to_owned).collect()
}

fn restore(sandbox: &Sandbox, to: RestoreTo<'_>, options: RestoreOptions<'_>) -> RestoreReport {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let (settings, progress) = (Settings::default(), Progress::default());
    let restore = Restore::prepare(&store, &project, to, options, &settings, now(), &progress).expect("a plan");
    restore.apply().expect("a restore")
}

fn text(sandbox: &Sandbox, path: &str) -> Option<String> {
    fs::read_to_string(sandbox.project().join(path)).ok()
}

fn outcome(report: &Report) -> &'static str {
    match report.outcome {
        Outcome::Taken(_) => "taken",
        Outcome::Unchanged(_) => "unchanged",
        _ => "skipped",
    }
}

#[test]
fn small_files_out_of_scope_are_saved_with_the_checkpoint_and_what_is_made_again_is_not() {
    let sandbox = sandbox();
    for path in ["data/a.csv", "data/deep/b.csv", ".env", ".env.local", "notes.txt", "x.log", "x.db"] {
        sandbox.write(path, path);
    }
    for path in ["node_modules/x/index.js", "target/debug/app", "data/__pycache__/m.pyc", ".cache/y", "venv/bin/python"]
    {
        sandbox.write(path, path);
    }
    sandbox.write("data/env/pyvenv.cfg", "");
    sandbox.write("data/env/lib/x.py", "");
    sandbox.write("data/large", vec![7; (5 << 20) + 1]);
    let report = take(&sandbox);
    let local = report.local.clone().expect("local files");
    let expected = ["data/a.csv", "data/deep/b.csv", ".env", ".env.local", "notes.txt", "x.log", "x.db"];
    assert_eq!(local_paths(&sandbox, &taken(&report)), expected.iter().map(ToString::to_string).collect());
    assert_eq!((local.files, local.too_large), (7, vec![b"data/large".to_vec()]));
    assert!(local.is_first && !local.is_cut && local.failed.is_none());
    sandbox.store_git(&["fsck", "--strict"]);
    // Z1: nothing of the checkpoint leads to them.
    let blob = sandbox
        .store_git(&["rev-parse", &format!("refs/local/{}/{}:files/.env", project_id(&sandbox), taken(&report))]);
    let reachable = sandbox.store_git(&["rev-list", "--objects", &taken(&report)]);
    let blob = String::from_utf8(blob).expect("text");
    assert!(!String::from_utf8_lossy(&reachable).contains(blob.trim()));
}

#[test]
fn a_change_of_local_files_alone_makes_a_checkpoint_and_no_change_makes_none() {
    let sandbox = sandbox();
    sandbox.write(".env", "one");
    let at = settled();
    let take = || take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at);
    let first = taken(&take());
    assert_eq!(outcome(&take()), "unchanged");
    next_tick(&sandbox);
    sandbox.write(".env", "two");
    let second = taken(&take());
    assert_ne!(first, second);
    assert_eq!(outcome(&take()), "unchanged");
    let content = |id: &str| {
        sandbox.store_git(&["cat-file", "-p", &format!("refs/local/{}/{id}:files/.env", project_id(&sandbox))])
    };
    assert_eq!((content(&first), content(&second)), (b"one".to_vec(), b"two".to_vec()));
    fs::remove_file(sandbox.project().join(".env")).expect("a file");
    let third = taken(&take());
    assert!(!local_refs(&sandbox).contains(&third), "there are none any more");
    assert_eq!(outcome(&take()), "unchanged");
}

#[test]
fn a_project_without_files_out_of_scope_has_no_trace_of_them() {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox.write("node_modules/x.js", "");
    assert_eq!(take(&sandbox).local, None);
    assert!(!sandbox.base().join("store/refs/local").exists());
    let indexes = sandbox.base().join("store/indexes");
    assert!(!indexes.join(format!("{}.local", project_id(&sandbox))).exists());
}

#[test]
fn the_settings_decide_what_is_saved() {
    let sandbox = sandbox();
    for path in [".env", "data/server.key", "data/a", "data/b", "notes.txt"] {
        sandbox.write(path, path);
    }
    let saved = |settings: Settings| {
        sandbox.write("main.rs", format!("{settings:?}"));
        let report = take_with(&sandbox, &sandbox.project(), &settings);
        let files = report.local.as_ref().map_or(0, |local| local.files);
        if files == 0 { BTreeSet::new() } else { local_paths(&sandbox, &taken(&report)) }
    };
    let set = |paths: &[&str]| paths.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let settings = Settings::default();
    assert_eq!(saved(settings.clone()).len(), 5);
    assert_eq!(saved(settings.clone().keep_ignored(KeepIgnored::None)), set(&[]));
    assert_eq!(saved(settings.clone().keep_file_size_mb(0)), set(&[]));
    assert_eq!(saved(settings.clone().keep_ignored(KeepIgnored::NoSecrets)), set(&["data/a", "data/b", "notes.txt"]));
    assert_eq!(saved(settings.exclude(vec!["data/b".into(), "*.txt".into()])).len(), 3);
}

#[test]
fn missing_local_files_come_back_with_their_modes_and_undo_removes_them_again() {
    let sandbox = sandbox();
    sandbox.write(".env", "KEY=1");
    fs::set_permissions(sandbox.project().join(".env"), fs::Permissions::from_mode(0o600)).expect("a mode");
    sandbox.write("data/deep/a.csv", "1,2");
    fs::set_permissions(sandbox.project().join("data"), fs::Permissions::from_mode(0o700)).expect("a mode");
    sandbox.write("notes.txt", "mine");
    let id = taken(&take(&sandbox));
    fs::remove_file(sandbox.project().join(".env")).expect("a file");
    fs::remove_dir_all(sandbox.project().join("data")).expect("a directory");
    sandbox.write("notes.txt", "mine, later");
    sandbox.write("main.rs", "fn main() { broken }\n");
    let report = restore(&sandbox, RestoreTo::Named(&id), RestoreOptions::default());
    assert_eq!(report.outcome, RestoreOutcome::Restored);
    assert_eq!(report.ignored_written, [b".env".to_vec(), b"data/deep/a.csv".to_vec()]);
    assert_eq!(report.ignored_differing, [b"notes.txt".to_vec()], "an existing file is left alone");
    assert_eq!(text(&sandbox, ".env").as_deref(), Some("KEY=1"));
    assert_eq!(text(&sandbox, "data/deep/a.csv").as_deref(), Some("1,2"));
    assert_eq!(text(&sandbox, "notes.txt").as_deref(), Some("mine, later"));
    let mode = |path: &str| fs::metadata(sandbox.project().join(path)).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(".env"), mode("data")), (0o600, 0o700));
    restore(&sandbox, RestoreTo::Undo, RestoreOptions::default());
    assert_eq!((text(&sandbox, ".env"), text(&sandbox, "data/deep/a.csv")), (None, None));
    assert!(!sandbox.project().join("data").exists());
    assert_eq!(text(&sandbox, "main.rs").as_deref(), Some("fn main() { broken }\n"));
    restore(&sandbox, RestoreTo::Undo, RestoreOptions::default());
    assert_eq!(text(&sandbox, "data/deep/a.csv").as_deref(), Some("1,2"), "undo twice is redo");
}

#[test]
fn only_the_named_paths_come_back_and_none_without_ignored() {
    let sandbox = sandbox();
    sandbox.write(".env", "KEY=1");
    sandbox.write("data/a", "a");
    sandbox.write("data/b", "b");
    let id = taken(&take(&sandbox));
    fs::remove_file(sandbox.project().join(".env")).expect("a file");
    fs::remove_dir_all(sandbox.project().join("data")).expect("a directory");
    let options = RestoreOptions::default();
    let report = restore(&sandbox, RestoreTo::Named(&id), options.ignored(IgnoredFiles::Without));
    assert_eq!((report.outcome, text(&sandbox, ".env")), (RestoreOutcome::NothingToDo, None));
    let paths = [b"data/a".to_vec()];
    let report = restore(&sandbox, RestoreTo::Named(&id), options.paths(&paths));
    assert_eq!(report.written, paths);
    let paths = [b"data".to_vec()];
    let report = restore(&sandbox, RestoreTo::Named(&id), options.paths(&paths));
    assert_eq!((report.written, text(&sandbox, ".env")), (vec![b"data/b".to_vec()], None));
}

#[test]
fn existing_local_files_are_replaced_with_ignored_only_and_undo_brings_them_back() {
    let sandbox = sandbox();
    sandbox.write(".env", "KEY=good");
    let id = taken(&take(&sandbox));
    sandbox.write(".env", "KEY=bad");
    let paths = [b".env".to_vec()];
    let named = restore(&sandbox, RestoreTo::Named(&id), RestoreOptions::default().paths(&paths));
    assert_eq!((named.outcome, named.left[0].why.word()), (RestoreOutcome::Partly, "needs_with_ignored"));
    let with = RestoreOptions::default().ignored(IgnoredFiles::With);
    let report = restore(&sandbox, RestoreTo::Named(&id), with);
    assert_eq!((report.outcome, report.ignored_written), (RestoreOutcome::Restored, vec![b".env".to_vec()]));
    assert_eq!(text(&sandbox, ".env").as_deref(), Some("KEY=good"));
    restore(&sandbox, RestoreTo::Undo, RestoreOptions::default());
    assert_eq!(text(&sandbox, ".env").as_deref(), Some("KEY=bad"));
    restore(&sandbox, RestoreTo::Undo, RestoreOptions::default());
    assert_eq!(text(&sandbox, ".env").as_deref(), Some("KEY=good"));
}

#[test]
fn a_file_that_could_not_be_saved_is_left_alone() {
    let sandbox = sandbox();
    sandbox.write("data/a", "small");
    let id = taken(&take(&sandbox));
    sandbox.write("data/a", vec![b'x'; (5 << 20) + 1]);
    let report = restore(&sandbox, RestoreTo::Named(&id), RestoreOptions::default().ignored(IgnoredFiles::With));
    assert_eq!(report.outcome, RestoreOutcome::Partly);
    assert_eq!((report.left[0].path.clone(), report.left[0].why.word()), (b"data/a".to_vec(), "ignored"));
    assert_eq!(fs::metadata(sandbox.project().join("data/a")).expect("a file").len(), (5 << 20) + 1);
}

/// A log beside another version of its database destroys it.
#[test]
fn a_log_comes_back_with_its_database_or_not_at_all() {
    let sandbox = sandbox();
    sandbox.write("x.db", "database 1");
    sandbox.write("x.db-wal", "log 1");
    sandbox.write("x.db-shm", "shared");
    let first = take(&sandbox);
    let id = taken(&first);
    assert_eq!(local_paths(&sandbox, &id), BTreeSet::from(["x.db".to_owned(), "x.db-wal".to_owned()]));
    fs::remove_file(sandbox.project().join("x.db-wal")).expect("a file");
    sandbox.write("x.db", "database 2");
    restore(&sandbox, RestoreTo::Named(&id), RestoreOptions::default());
    assert_eq!(text(&sandbox, "x.db-wal"), None, "the database is another version");
    fs::remove_file(sandbox.project().join("x.db")).expect("a file");
    sandbox.write("x.db-wal", "log of another");
    restore(&sandbox, RestoreTo::Named(&id), RestoreOptions::default());
    assert_eq!(text(&sandbox, "x.db"), None, "the log is another's");
    restore(&sandbox, RestoreTo::Named(&id), RestoreOptions::default().ignored(IgnoredFiles::With));
    assert_eq!(text(&sandbox, "x.db").as_deref(), Some("database 1"));
    assert_eq!(text(&sandbox, "x.db-wal").as_deref(), Some("log 1"));
    // A database without a log takes the log of another version away.
    fs::remove_file(sandbox.project().join("x.db-wal")).expect("a file");
    sandbox.write("x.db", "database 3");
    let alone = taken(&take(&sandbox));
    sandbox.write("x.db", "database 4");
    sandbox.write("x.db-wal", "log 4");
    restore(&sandbox, RestoreTo::Named(&alone), RestoreOptions::default().ignored(IgnoredFiles::With));
    assert_eq!((text(&sandbox, "x.db").as_deref(), text(&sandbox, "x.db-wal")), (Some("database 3"), None));
    restore(&sandbox, RestoreTo::Undo, RestoreOptions::default());
    assert_eq!(text(&sandbox, "x.db").as_deref(), Some("database 4"));
    assert_eq!(text(&sandbox, "x.db-wal").as_deref(), Some("log 4"));
}

/// R1. `y.db` is missing: it must not come back beside a log of another version.
#[test]
fn a_database_and_its_log_stay_as_they_are_if_one_of_them_could_not_be_saved() {
    let sandbox = sandbox();
    for path in ["x.db", "y.db", "y.db-wal", ".env"] {
        sandbox.write(path, format!("{path} 1"));
    }
    let id = taken(&take(&sandbox));
    for path in ["x.db", "x.db-wal", "y.db-wal"] {
        sandbox.write(path, format!("{path} 2"));
    }
    for path in ["y.db", ".env"] {
        fs::remove_file(sandbox.project().join(path)).expect("a file");
    }
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let (settings, progress) = (Settings::default(), Progress::default());
    let (to, options) = (RestoreTo::Named(&id), RestoreOptions::default().ignored(IgnoredFiles::With));
    let restore = Restore::prepare(&store, &project, to, options, &settings, now(), &progress).expect("a plan");
    // A file is where the refs of the local files are: the safety checkpoint gets none.
    let refs = sandbox.base().join("store/refs/local").join(project_id(&sandbox));
    fs::rename(&refs, sandbox.root().join("refs")).and_then(|()| fs::write(&refs, "")).expect("a file");
    let report = restore.apply().expect("a restore");
    let mut left: Vec<_> = report.left.iter().map(|left| (left.path.as_slice(), left.why.word())).collect();
    left.sort_unstable();
    let paths: [&[u8]; 4] = [b"x.db", b"x.db-wal", b"y.db", b"y.db-wal"];
    assert_eq!(left, paths.map(|path| (path, "failed")));
    assert!(report.ignored_unsaved.is_some() && report.outcome == RestoreOutcome::Partly, "{report:?}");
    for path in ["x.db", "x.db-wal", "y.db-wal"] {
        assert_eq!(text(&sandbox, path), Some(format!("{path} 2")), "{path}");
    }
    assert_eq!(text(&sandbox, "y.db"), None);
    assert_eq!(text(&sandbox, ".env").as_deref(), Some(".env 1"), "nothing was in its place");
}

/// Z3.
#[test]
fn the_local_files_of_a_dropped_checkpoint_go_with_it() {
    let sandbox = sandbox();
    let settings = Settings::default().max_snapshots(2.into());
    let mut ids = Vec::new();
    for number in 0..5 {
        sandbox.write(".env", format!("KEY={number}"));
        sandbox.write("main.rs", format!("{number}"));
        ids.push(taken(&take_with(&sandbox, &sandbox.project(), &settings)));
    }
    assert_eq!(local_refs(&sandbox).len(), 5);
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    piton::prune(&store, &Policy::default(), now(), &Progress::default()).expect("a prune");
    let left: BTreeSet<_> = local_refs(&sandbox).into_iter().collect();
    assert_eq!(left, ids[3..].iter().cloned().collect());
    sandbox.store_git(&["fsck", "--strict"]);
    let report = piton::verify(&store, piton::ReadData::All, &Progress::default()).expect("a check");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Z2: no pack holds local files and anything else, after takes and after any collection.
#[test]
fn local_files_are_in_packs_of_their_own() {
    let sandbox = sandbox();
    let mut all = BTreeSet::new();
    let packs_are_apart = |local: &BTreeSet<String>| {
        let packs = fs::read_dir(sandbox.base().join("store/objects/pack")).expect("packs");
        for idx in packs
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "idx"))
        {
            let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("text")]);
            let listing = String::from_utf8(listing).expect("text");
            let is_id = |id: &&str| id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let ids: BTreeSet<_> =
                listing.lines().filter_map(|line| line.get(..40)).filter(is_id).map(str::to_owned).collect();
            let count = ids.intersection(local).count();
            assert!(count == 0 || count == ids.len(), "{}: {count} of {}", idx.display(), ids.len());
        }
    };
    for number in 0..4 {
        sandbox.write("data/a", format!("local {number} {}", "x".repeat(3000)));
        sandbox.write("main.rs", format!("in scope {number} {}", "y".repeat(3000)));
        let id = taken(&take(&sandbox));
        let state = format!("refs/local/{}/{id}", project_id(&sandbox));
        let objects = sandbox.store_git(&["rev-list", "--objects", &state]);
        let objects = String::from_utf8(objects).expect("text");
        all.extend(objects.lines().filter_map(|line| line.get(..40)).map(str::to_owned));
        packs_are_apart(&all);
    }
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    piton::prune(&store, &Policy::default(), now(), &Progress::default()).expect("a prune");
    packs_are_apart(&all);
    // Stock git makes one pack of everything; the next collection takes it apart.
    sandbox.store_git(&["gc", "--quiet", "--prune=now"]);
    piton::prune(&store, &Policy::default(), now(), &Progress::default()).expect("a prune");
    packs_are_apart(&all);
    sandbox.store_git(&["fsck", "--strict"]);
    let at = Moment { secs: now().secs + 1, ..now() };
    assert_eq!(outcome(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at)), "unchanged");
}

#[test]
fn over_a_limit_the_local_files_of_the_oldest_checkpoints_go_before_any_checkpoint() {
    let sandbox = sandbox();
    let noise = |seed: u64, bytes: usize| {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..bytes).map(|_| next()).collect::<Vec<_>>()
    };
    let mut ids = Vec::new();
    for number in 0..6 {
        sandbox.write("data/a", noise(number + 1, 1 << 20));
        sandbox.write("main.rs", format!("{number}"));
        ids.push(taken(&take(&sandbox)));
    }
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let rows = || piton::History::of(&store, &project).expect("a history").checkpoints().len();
    // The limit of local files.
    let policy = Policy::default().local_bytes_max(4_500_000);
    piton::prune(&store, &policy, now(), &Progress::default()).expect("a prune");
    let left: BTreeSet<_> = local_refs(&sandbox).into_iter().collect();
    assert_eq!((left, rows()), (ids[2..].iter().cloned().collect(), 6));
    // The limit of the store.
    let policy = Policy::default().total_bytes_max(2 << 20);
    piton::prune(&store, &policy, now(), &Progress::default()).expect("a prune");
    let left: BTreeSet<_> = local_refs(&sandbox).into_iter().collect();
    assert_eq!((left, rows()), (ids[5..].iter().cloned().collect(), 6));
    assert!(piton::verify(&store, piton::ReadData::All, &Progress::default()).expect("a check").findings.is_empty());
}

#[test]
fn a_purge_removes_a_local_file_from_every_byte() {
    let sandbox = sandbox();
    sandbox.write(".env", "KEY=a-secret-that-goes");
    sandbox.write("data/a", "stays");
    let first = taken(&take(&sandbox));
    sandbox.write("main.rs", "2");
    let second = taken(&take(&sandbox));
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let paths = [b".env".to_vec()];
    let plan = piton::plan_purge(&store, &project, &paths).expect("a plan");
    assert_eq!((plan.checkpoints, plan.paths), (0, paths.to_vec()));
    assert!(plan.local > 0);
    let report = piton::purge(&store, &project, &paths, now(), &Progress::default()).expect("a purge");
    assert_eq!((report.gone, report.paths, report.rewritten), (1, paths.to_vec(), vec![]));
    for id in [first, second] {
        assert_eq!(local_paths(&sandbox, &id), BTreeSet::from(["data/a".to_owned()]));
    }
    let all = sandbox.store_git(&["cat-file", "--batch-all-objects", "--batch"]);
    assert!(!all.windows(20).any(|bytes| bytes == b"a-secret-that-goes\n\n" || bytes.starts_with(b"KEY=a-secret")));
    assert!(piton::verify(&store, piton::ReadData::All, &Progress::default()).expect("a check").findings.is_empty());
}

#[test]
fn local_files_follow_a_checkpoint_whose_id_a_purge_changes() {
    let sandbox = sandbox();
    sandbox.write("keys.json", "in scope");
    sandbox.write(".env", "KEY=1");
    let old = taken(&take(&sandbox));
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let paths = [b"keys.json".to_vec()];
    let report = piton::purge(&store, &project, &paths, now(), &Progress::default()).expect("a purge");
    let new = report.rewritten[0].1.to_string();
    assert_ne!(old, new);
    assert_eq!(local_refs(&sandbox), std::slice::from_ref(&new));
    assert_eq!(local_paths(&sandbox, &new), BTreeSet::from([".env".to_owned()]));
}

#[test]
fn a_step_and_the_end_of_a_turn_have_their_local_files() {
    let sandbox = sandbox();
    sandbox.write(".env", "KEY=1");
    for (number, kind) in [CheckpointKind::Manual, CheckpointKind::Step, CheckpointKind::End].into_iter().enumerate() {
        sandbox.write(".env", format!("KEY={number} {kind:?}"));
        let request = Request::default().reason("a test").kind(kind);
        let report = crate::kit::take_for(&sandbox, &sandbox.project(), &Settings::default(), &request);
        assert_eq!(local_paths(&sandbox, &taken(&report)), BTreeSet::from([".env".to_owned()]));
    }
}
