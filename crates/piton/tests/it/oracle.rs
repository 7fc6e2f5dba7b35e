//! Stock git reads what piton wrote, and its maintenance of a store loses nothing.

use std::fs;

use piton::{History, Outcome, Project, Settings, Store};
use testkit::{Sandbox, files_in};

use crate::kit::{next_tick, now, project_id, settled, take, take_at, take_for, taken};

const TREE: &str =
    "a.txt = one\\n\n *run.sh\n dir/b.txt\n dir/deep/c.txt\n link -> dir\n empty/\n .gitignore = *.tmp\\n\n x.tmp";

/// Takes a few checkpoints, with a change before each. Returns their ids, oldest first.
fn take_some(sandbox: &Sandbox) -> Vec<String> {
    sandbox.tree(TREE);
    let changes: [fn(&Sandbox); 4] = [
        |_| (),
        |sandbox| sandbox.write("a.txt", "two\n"),
        |sandbox| fs::remove_dir_all(sandbox.path("dir")).expect("a directory"),
        |sandbox| sandbox.tree("dir = a file now\n new/file"),
    ];
    let take_one = |change: &fn(&Sandbox)| {
        change(sandbox);
        taken(&take(sandbox))
    };
    changes.iter().map(take_one).collect()
}

fn listed(sandbox: &Sandbox) -> Vec<String> {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let history = History::of(&store, &project).expect("a history");
    let list = history.list().expect("a list");
    list.iter().rev().map(|line| line.checkpoint.id.to_string()).collect()
}

/// Asserts that stock git, as Hermes runs it, sees no difference between the project's files, the index and the
/// checkpoint.
fn assert_status_is_clean(sandbox: &Sandbox, when: &str) {
    let project = project_id(sandbox);
    // Without a branch everything would be new.
    let head = format!("refs/hermes/{project}");
    for args in [
        &["diff-index", "--cached", "--name-status", &head][..],
        &["diff", "--name-status"],
        &["ls-files", "--others", "--exclude-standard"],
        &["ls-files", "--deleted"],
    ] {
        let output = sandbox.seed_git(&project, args);
        let words = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success() && words.is_empty(),
            "{when}, git {args:?}: {}",
            String::from_utf8_lossy(&words)
        );
    }
    // No branch has a commit, so that everything is new to it; but nothing differs from the index.
    let status = sandbox.seed_git(&project, &["status", "--porcelain"]).stdout;
    let status = String::from_utf8_lossy(&status);
    assert!(status.lines().count() > 3 && status.lines().all(|line| line.starts_with("A  ")), "{when}: {status}");
}

#[test]
fn the_log_shows_every_checkpoint_with_its_reason_and_time() {
    let sandbox = Sandbox::new();
    let ids = take_some(&sandbox);
    sandbox.assert_store_is_whole();
    let name = format!("refs/hermes/{}", project_id(&sandbox));
    let log =
        String::from_utf8(sandbox.store_git(&["log", "--reverse", "--format=%H %s %ai %an", &name])).expect("text");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), ids.len());
    for (line, id) in lines.iter().zip(&ids) {
        assert!(line.starts_with(&format!("{id} a test 20")) && line.ends_with("+0200 piton"), "{line}");
    }
    assert_eq!(listed(&sandbox), ids);
}

#[test]
fn every_checkpoint_keeps_its_files() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0\n dir/b.txt = 0");
    let mut expected = Vec::new();
    for round in 0..6 {
        sandbox.write(["a.txt", "dir/b.txt", "dir/c.txt"][round % 3], format!("{round}"));
        expected.push((taken(&take(&sandbox)), files_in(&sandbox.project())));
    }
    for (id, files) in expected {
        assert_eq!(sandbox.held_by(&id), files);
    }
}

#[test]
fn the_index_is_one_that_git_finds_clean() {
    let sandbox = Sandbox::new();
    take_some(&sandbox);
    assert_status_is_clean(&sandbox, "right after a take");
    // At this point git has written the index itself.
    assert!(matches!(take(&sandbox).outcome, Outcome::Unchanged(_)));
    let project = project_id(&sandbox);
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
    assert_status_is_clean(&sandbox, "with entries that are trusted");
    let tree = String::from_utf8(sandbox.seed_git(&project, &["write-tree"]).stdout).expect("text");
    let newest = sandbox.store_git(&["rev-parse", &format!("refs/hermes/{project}^{{tree}}")]);
    assert_eq!(tree.as_bytes(), newest, "the trees in the index are those of the checkpoint");
}

#[test]
fn git_sees_a_change_through_the_index() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n b.txt");
    take(&sandbox);
    // Same length, immediately after the take: only an entry that git does not trust reveals the change.
    sandbox.write("a.txt", "two");
    let changed = sandbox.seed_git(&project_id(&sandbox), &["diff", "--name-only"]).stdout;
    assert_eq!(String::from_utf8_lossy(&changed), "a.txt\n");
}

#[test]
fn whatever_git_does_to_pack_the_store_loses_nothing() {
    let commands: [&[&str]; 6] = [
        &["gc", "--quiet", "--prune=now"],
        &["repack", "-adq"],
        &["pack-refs", "--all"],
        &["pack-refs", "--all", "--prune"],
        &["prune", "--expire=now"],
        &["reflog", "expire", "--expire=now", "--all"],
    ];
    for command in commands {
        let sandbox = Sandbox::new();
        let ids = take_some(&sandbox);
        let files = files_in(&sandbox.project());
        sandbox.store_git(command);
        assert_eq!(listed(&sandbox), ids, "{command:?}");
        assert_eq!(sandbox.held_by(&ids[3]).len(), files.len() - 1, "{command:?}");
        assert!(matches!(take(&sandbox).outcome, Outcome::Unchanged(id) if id.to_string() == ids[3]), "{command:?}");
        sandbox.write("a.txt", "after");
        let id = taken(&take(&sandbox));
        assert_eq!(listed(&sandbox), [&ids[..], &[id]].concat(), "{command:?}");
        sandbox.assert_store_is_whole();
    }
}

#[test]
fn a_project_begun_after_git_packed_the_refs_is_taken() {
    let sandbox = Sandbox::new();
    take_some(&sandbox);
    sandbox.store_git(&["pack-refs", "--all"]);
    let other = sandbox.other_project("other");
    fs::write(other.join("file"), "x").expect("a file");
    taken(&crate::kit::take_with(&sandbox, &other, &Settings::default()));
    assert_eq!(listed(&sandbox).len(), 4);
    sandbox.assert_store_is_whole();
}

#[test]
fn files_that_fsck_takes_for_an_attack_do_not_spoil_the_store() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".gitmodules",
        "[submodule \"../x\"]\n\tpath = -oops\n\turl = --upload-pack=touch\n\tupdate = !rm -rf /\n[submodule \"y\"]\n\turl = ext::sh\n",
    );
    sandbox.write("sub/.gitmodules", "[not a config");
    sandbox.write("sub/.gitattributes", format!("* {}\n", "a".repeat(3000)));
    sandbox.write("big/.gitattributes", "# 123456789\n".repeat(100_000));
    sandbox.link("links/.gitmodules", "/etc/passwd");
    sandbox.link("links/.gitattributes", "../x");
    sandbox.link("links/.gitignore", "../x");
    sandbox.link("links/.mailmap", "../x");
    let settings = Settings::default().max_file_size_mb(200);
    let id = taken(&crate::kit::take_with(&sandbox, &sandbox.project(), &settings));
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
    sandbox.assert_store_is_whole();
}

#[test]
fn reasons_of_every_kind_make_valid_commits() {
    let sandbox = Sandbox::new();
    let reasons =
        ["", " ", "two\nlines", "nul \0 and \x1b[31m", "é 漢字", "piton 1", "\n\npiton 1\nkind x", "tree 123", "#"];
    for (round, reason) in reasons.iter().enumerate() {
        sandbox.write("a.txt", format!("{round}"));
        let origin = piton::Origin::default().agent("x\ny").session(String::new()).turn("a b % \u{7f}");
        let kind = piton::CheckpointKind::Manual;
        let request = piton::Request::default().reason(*reason).kind(kind).origin(origin.clone());
        taken(&take_for(&sandbox, &sandbox.project(), &Settings::default(), &request));
        let newest = crate::kit::newest(&sandbox);
        assert_eq!((newest.facts.origin, newest.facts.kind), (origin, kind), "{reason:?}");
        assert!(!newest.reason.is_empty() && !newest.reason.contains(char::is_control), "{reason:?}");
    }
    let long = piton::Request::default().reason("long ".repeat(2000));
    let enabled = Settings::default().enabled(true);
    sandbox.write("a.txt", "last");
    taken(&take_for(&sandbox, &sandbox.project(), &enabled, &long));
    sandbox.assert_store_is_whole();
}

#[test]
fn a_time_before_1970_or_far_away_makes_a_valid_commit() {
    let sandbox = Sandbox::new();
    for (round, secs) in [-5, 0, 1, i64::from(u32::MAX) + 1, 253_402_300_799].into_iter().enumerate() {
        sandbox.write("a.txt", format!("round {round}"));
        let at = piton::Moment { secs, nanos: 0, offset_secs: -12_600 };
        taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at));
        next_tick(&sandbox);
    }
    sandbox.assert_store_is_whole();
    assert_eq!(listed(&sandbox).len(), 5);
    assert!(now().secs > 0);
}
