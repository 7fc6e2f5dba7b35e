//! Stores and checkpoints made with the sequence of git commands that Hermes runs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use piton::{CheckpointKind, History, Outcome, Project, RestoreTo, Store};
use testkit::{Sandbox, files_in, git};

use crate::kit::{now, project_id, take, taken};
use crate::restore_kit::restored;

/// Creates a store as Hermes does.
fn seed_init(sandbox: &Sandbox) {
    let store = sandbox.store();
    for dir in ["indexes", "projects"] {
        fs::create_dir_all(store.join(dir)).expect("a directory");
    }
    let output = git().args(["init", "-q", "--bare"]).arg(&store).output().expect("git runs");
    assert!(output.status.success());
    for (key, value) in [
        ("user.email", "hermes@local"),
        ("user.name", "Hermes Checkpoint"),
        ("commit.gpgsign", "false"),
        ("tag.gpgSign", "false"),
        ("gc.auto", "0"),
    ] {
        sandbox.store_git(&["config", key, value]);
    }
    fs::write(store.join("info/exclude"), "node_modules/\n.env\n*.log\n").expect("the list");
}

/// Takes a checkpoint as Hermes does. Returns `None` if nothing changed.
fn seed_take(sandbox: &Sandbox, reason: &str) -> Option<String> {
    let project = project_id(sandbox);
    let (name, store) = (format!("refs/hermes/{project}"), sandbox.store());
    let run = |args: &[&str]| {
        let output = sandbox.seed_git(&project, args);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let meta = serde_json::json!({"workdir": sandbox.project(), "created_at": 1_700_000_000.25, "last_touch": 1_700_000_000.25});
    let record = store.join(format!("projects/{project}.json"));
    if !record.exists() {
        fs::write(record, meta.to_string()).expect("a record");
    }
    let newest = run(&["rev-parse", "--verify", &format!("{name}^{{commit}}")]);
    if store.join("indexes").join(&project).exists() {
        run(&["read-tree", newest.as_deref()?]).expect("an index");
    }
    run(&["add", "-A"]).expect("all added");
    if let Some(newest) = &newest
        && run(&["diff-index", "--cached", "--quiet", newest]).is_some()
    {
        return None;
    }
    let tree = run(&["write-tree"]).expect("a tree");
    let mut args = vec!["commit-tree", &tree];
    args.extend(newest.iter().flat_map(|newest| ["-p", newest]));
    args.extend(["-m", reason, "--no-gpg-sign"]);
    let new = run(&args).expect("a commit");
    let mut args = vec!["update-ref", &name, &new];
    args.extend(newest.as_deref());
    run(&args).expect("a ref");
    Some(new)
}

fn history(sandbox: &Sandbox) -> History {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    History::of(&store, &project).expect("a history")
}

/// Returns the ids that piton lists, oldest first.
fn listed(sandbox: &Sandbox) -> Vec<String> {
    history(sandbox).list().expect("a list").iter().rev().map(|line| line.checkpoint.id.to_string()).collect()
}

#[test]
fn a_store_made_by_hermes_is_listed_before_piton_writes_to_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\\n\n dir/b.txt");
    seed_init(&sandbox);
    seed_take(&sandbox, "before write_file").expect("taken");
    sandbox.write("a.txt", "one\ntwo\n");
    seed_take(&sandbox, "before patch").expect("taken");
    let list = history(&sandbox).list().expect("a list");
    let lines: Vec<_> = list.iter().map(|line| (line.number, line.checkpoint.reason.as_str(), line.change)).collect();
    let change = |files, insertions| Some(piton::Change { files, insertions, deletions: 0 });
    assert_eq!(lines, [(Some(1), "before patch", change(1, 1)), (Some(2), "before write_file", change(0, 0))]);
    assert!(!sandbox.store().join("locks").exists(), "looking writes nothing");
}

/// C2.
#[test]
fn piton_and_hermes_alternate_in_one_history() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0\n dir/b.txt\n *run\n link -> a.txt\n empty/\n private");
    sandbox.chmod("private", 0o600);
    seed_init(&sandbox);
    let mut ids = vec![seed_take(&sandbox, "before write_file").expect("taken")];
    let mut held = vec![files_in(&sandbox.project())];
    for round in 1..=6 {
        // Each program recognises the other's last checkpoint.
        if round % 2 == 1 {
            assert!(matches!(take(&sandbox).outcome, Outcome::Unchanged(id) if id.to_string() == ids[round - 1]));
        } else {
            assert_eq!(seed_take(&sandbox, "nothing new"), None);
        }
        sandbox.write(["a.txt", "dir/b.txt", "new/c.txt"][round % 3], format!("{round}"));
        let id = if round % 2 == 1 { Some(taken(&take(&sandbox))) } else { seed_take(&sandbox, "before patch") };
        ids.push(id.expect("taken"));
        held.push(files_in(&sandbox.project()));
        let parent = sandbox.store_git(&["rev-parse", &format!("{}^", ids[round])]);
        assert_eq!(String::from_utf8_lossy(&parent).trim(), ids[round - 1]);
        sandbox.assert_store_is_whole();
    }
    assert_eq!(listed(&sandbox), ids);
    for (id, files) in ids.iter().zip(held) {
        assert_eq!(sandbox.held_by(id), files);
    }
}

#[test]
fn exclude_list_settings_and_record_of_hermes_are_kept() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n x.o\n y.log");
    seed_init(&sandbox);
    seed_take(&sandbox, "before write_file").expect("taken");
    let read = |path: &str| fs::read_to_string(sandbox.store().join(path)).expect("a file");
    let (config, list) = (read("config"), read("info/exclude"));
    sandbox.write("a.txt", "changed");
    let id = taken(&take(&sandbox));
    assert_eq!((read("config"), read("info/exclude")), (config, list));
    assert_eq!(crate::kit::paths_in(&sandbox, &id), ["a.txt", "x.o"], "by the list that is there");
    assert!(read(&format!("projects/{}.json", project_id(&sandbox))).contains("\"created_at\":1700000000.25"));
}

#[test]
fn a_store_made_by_hermes_becomes_private() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    seed_init(&sandbox);
    seed_take(&sandbox, "before write_file").expect("taken");
    // The target of a link does not belong to the store.
    sandbox.chmod("a.txt", 0o644);
    std::os::unix::fs::symlink(sandbox.path("a.txt"), sandbox.store().join("hooks/mine")).expect("a link");
    Store::open_or_create(&sandbox.base(), now()).expect("a store");
    testkit::walk(&sandbox.base(), &mut |path| {
        let found = path.symlink_metadata().expect("what was just listed");
        assert!(found.is_symlink() || found.mode() & 0o077 == 0, "{}", path.display());
    });
    assert_eq!(sandbox.path("a.txt").metadata().expect("a file").mode() & 0o777, 0o644);
}

#[test]
fn the_checkpoint_of_hermes_before_a_rollback_is_a_safety_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    seed_init(&sandbox);
    seed_take(&sandbox, "pre-rollback snapshot (restoring to 01234567)").expect("taken");
    assert_eq!(history(&sandbox).checkpoints()[0].facts.kind, CheckpointKind::Safety);
}

/// Stock git stores the executable bit, no other permissions, and no empty directories.
#[test]
fn a_restore_to_a_checkpoint_of_hermes_changes_only_what_it_records() {
    let sandbox = Sandbox::new();
    sandbox.tree("plain = 1\n private\n *run = 1\n *tool\n lib");
    seed_init(&sandbox);
    seed_take(&sandbox, "before write_file").expect("taken");
    sandbox.tree("plain = 2\n *run = 2\n empty/\n made/file");
    let since = [("plain", 0o600), ("private", 0o600), ("run", 0o700), ("tool", 0o640), ("lib", 0o775)];
    since.iter().for_each(|(path, mode)| sandbox.chmod(path, *mode));
    restored(&sandbox, RestoreTo::Named("1"), &[]);
    let mode = |path: &str| sandbox.path(path).metadata().expect("a file").mode() & 0o777;
    let want = [("plain", 0o600), ("private", 0o600), ("run", 0o700), ("tool", 0o750), ("lib", 0o664)];
    assert_eq!(want.map(|(path, _)| (path, mode(path))), want);
    assert_eq!(["plain", "run"].map(|path| fs::read(sandbox.path(path)).expect("a file")), [b"1", b"1"]);
    assert!(sandbox.path("empty").is_dir() && !sandbox.path("made").exists());
}

#[test]
fn a_nested_repository_that_git_kept_as_a_link_is_content_from_now_on() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n nested/b.txt");
    for args in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "one"]] {
        sandbox.project_git(&[&["-C", "nested"], args].concat());
    }
    seed_init(&sandbox);
    seed_take(&sandbox, "before write_file").expect("taken");
    let id = taken(&take(&sandbox));
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
    assert_eq!(history(&sandbox).list().expect("a list").len(), 2);
}

#[test]
fn a_history_ends_where_it_was_cut() {
    let sandbox = Sandbox::new();
    let ids: Vec<_> = (0..4)
        .map(|round| {
            sandbox.write("a.txt", format!("{round}"));
            taken(&take(&sandbox))
        })
        .collect();
    fs::write(sandbox.store().join("shallow"), format!("{}\n", ids[2])).expect("a boundary");
    assert_eq!(listed(&sandbox), ids[2..]);
    let name = format!("refs/hermes/{}", project_id(&sandbox));
    sandbox.store_git(&["gc", "--quiet", "--prune=now"]);
    assert_eq!(sandbox.store_git(&["rev-list", "--count", &name]), b"2\n");
    assert_eq!(listed(&sandbox), ids[2..], "what git dropped is not missed");
    let found = history(&sandbox).find(&ids[0][..12]).map(|checkpoint| checkpoint.id.to_string());
    assert!(found.is_err(), "{found:?}");
    sandbox.write("a.txt", "last");
    let last = taken(&take(&sandbox));
    assert_eq!(listed(&sandbox), [&ids[2..], &[last]].concat());
    sandbox.assert_store_is_whole();
}

#[test]
fn a_lock_that_a_dead_git_left_is_taken_over() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    taken(&take(&sandbox));
    let lock = sandbox.store().join(format!("refs/hermes/{}.lock", project_id(&sandbox)));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::create(&lock).and_then(|file| file.set_modified(long_ago)).expect("a lock");
    fs::write(sandbox.store().join(format!("indexes/{}.lock", project_id(&sandbox))), "").expect("a lock");
    sandbox.write("a.txt", "2");
    taken(&take(&sandbox));
    assert!(!lock.exists());
}

#[test]
fn a_message_that_only_looks_like_ours_is_listed_as_it_is() {
    for message in ["x\n\npiton 1\ngarbage", "piton 1\n\npiton 1\nmode 9999 x\nskipped by_a_later_piton file ./x\nkind"]
    {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt");
        seed_init(&sandbox);
        seed_take(&sandbox, message).expect("taken");
        assert_eq!(listed(&sandbox).len(), 1, "{message:?}");
        sandbox.write("a.txt", "changed");
        taken(&take(&sandbox));
        assert_eq!(listed(&sandbox).len(), 2, "{message:?}");
    }
}
