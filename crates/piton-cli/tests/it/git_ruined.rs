//! Repositories of which a part is ruined, gone with the project, or hostile: what `piton git` says about them, and what
//! it brings back and leaves alone.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::git_kit::{GitProject, Shape};
use crate::kit::run;

fn kinds(list: &Value) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    items
        .map(|item| format!("{} {}", item["kind"].as_str().unwrap_or(""), item["name"].as_str().unwrap_or("")))
        .collect()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("a file").mode() & 0o7777
}

/// D15: the objects are missing, although nothing was recorded since and their directory exists.
#[test]
fn lost_objects_are_named_and_come_back_by_default() {
    for shape in [Shape::Clone, Shape::Sha256, Shape::Reftable] {
        for line in [
            "rm -rf .git/objects",
            "rm -rf .git/objects/*",
            "git gc -q && rm -f .git/objects/pack/*.pack",
            "git gc -q && rm -f .git/objects/pack/*.idx",
        ] {
            // Packing changes the reftable, which is one more difference.
            if shape == Shape::Reftable && line.contains("gc") {
                continue;
            }
            for has_end in [true, false] {
                let Some(project) = GitProject::new(shape) else { continue };
                let before = project.view();
                project.shell(line.split_once(" && ").map_or("true", |(first, _)| first));
                project.turn("t1", if has_end { line } else { "true" });
                project.shell(line);
                let context = format!("{shape:?}: {line}, end of turn: {has_end}");
                assert!(!project.is_repository() || !project.shell_succeeds("git log"), "{context}");
                let shown = project.piton(&["git", "show", "1", "--json"]).done().json();
                assert_eq!(kinds(&shown["differences"]), ["objects objects"], "{context}");
                let lost = project.piton(&["recover", "--json"]).done().json();
                assert_eq!(lost["items"][0]["kind"], "objects", "{context}: {lost}");
                let report = project.piton(&["git", "restore", "1", "--json"]).done().json();
                assert_eq!(kinds(&report["restored"]), ["objects objects"], "{context}");
                assert_eq!(project.view(), before, "{context}");
                project.assert_whole(&context);
                let shown = project.piton(&["git", "show", "1", "--json"]).done().json();
                assert_eq!(shown["differences"], json!([]), "{context}");
            }
        }
    }
}

/// What `git gc` removes is no loss: no ref reached it.
#[test]
fn objects_that_gc_removed_are_not_named() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.shell("git commit -q --allow-empty -m gone && git reset -q --soft HEAD~1");
    project.turn("t1", "git reflog expire --expire=now HEAD main; git prune --expire=now");
    let shown = project.piton(&["git", "show", "1", "--json"]).done().json();
    assert!(!kinds(&shown["differences"]).contains(&"objects objects".to_owned()), "{shown}");
    let plain = project.piton(&["git", "restore", "1", "--json"]).done().json();
    assert_eq!(plain["outcome"], "nothing_to_do", "{plain}");
    let all = project.piton(&["git", "restore", "1", "--all", "--json"]).done().json();
    assert!(kinds(&all["restored"]).contains(&"objects objects".to_owned()), "{all}");
}

/// A tree or a blob alone, deep below a tip that is there.
#[test]
fn one_lost_object_below_a_tip_is_found() {
    for object in ["HEAD~1", "HEAD~1^{tree}", "HEAD~1:f", "feature:g", "v2"] {
        let project = GitProject::new(Shape::LinkedWorktree).expect("a worktree");
        project.turn("t1", "true");
        let id = project.git(&["rev-parse", object]);
        let (first, rest) = id.trim().split_at(2);
        fs::remove_file(project.common_dir().join("objects").join(first).join(rest)).expect("a loose object");
        project.piton(&["git", "restore", "1"]).done();
        project.assert_whole(object);
    }
}

#[test]
fn a_repository_comes_back_after_the_whole_project_was_removed() {
    for restores_files_first in [true, false] {
        let project = GitProject::new(Shape::Clone).expect("a clone");
        let before = project.view();
        project.piton(&["take"]).done();
        fs::remove_dir_all(&project.dir).expect("a project");
        let dir = project.dir.to_str().expect("UTF-8").to_owned();
        let piton = |args: &[&str]| {
            run(crate::kit::in_dir(&project.sandbox, &project.sandbox.root()).args(["-C", &dir]).args(args))
        };
        if restores_files_first {
            piton(&["restore", "1"]).done();
            // Number 1 is the checkpoint that this restore made, which has no git state.
            piton(&["git", "restore", "1"]).done();
        } else {
            piton(&["git", "restore", "1"]).done();
            piton(&["restore", "1"]).done();
        }
        assert_eq!(project.view(), before);
        project.assert_whole("back");
        assert_eq!(project.git(&["status", "--porcelain"]), " M f\nA  staged\n");
    }
}

#[test]
fn a_prompt_after_the_loss_of_the_repository_means_the_state_before_it() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let before = project.view();
    project.turn("t1", "rm -rf .git; echo more > more");
    project.turn("t2", "true");
    let report = project.piton(&["git", "restore", "1", "--json"]).done().json();
    assert_eq!(report["restored"][0]["kind"], "repository", "{report}");
    assert_eq!(project.view(), before);
}

/// D17: the lock of the index is held already when the undo removes the index.
#[test]
fn an_undo_removes_an_index_that_was_missing() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let before = project.view();
    project.turn("t1", "rm .git/index");
    project.piton(&["git", "restore", "1", "--index"]).done();
    assert_eq!(project.view().staged, before.staged);
    let undone = project.piton(&["git", "undo", "--json"]).done().json();
    assert_eq!((kinds(&undone["restored"]), &undone["left"]), (vec!["index index".to_owned()], &json!([])));
    assert!(!project.dir.join(".git/index").exists() && !project.dir.join(".git/index.lock").exists());
    project.piton(&["git", "undo"]).done();
    assert_eq!(project.view(), before, "redo");
}

/// An empty `rebase-merge` is a rebase to git.
#[test]
fn an_undo_leaves_no_empty_directory_of_an_operation() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.shell(
        "git commit -q -am wip; git checkout -q feature; echo other > f; git commit -q -am other; git rebase main",
    );
    assert!(project.dir.join(".git/rebase-merge/done").exists(), "a conflict");
    project.turn("t1", "git rebase --abort; git worktree remove -f ../beside");
    let aborted = project.git(&["status"]);
    project.piton(&["git", "restore", "1", "--all", "--force"]).done();
    assert!(project.git(&["status"]).contains("rebase in progress"));
    project.piton(&["git", "undo"]).done();
    assert_eq!(project.git(&["status"]), aborted);
    for name in ["rebase-merge", "worktrees"] {
        assert!(!project.dir.join(".git").join(name).exists(), "{name}");
    }
}

#[test]
fn files_keep_their_modes_and_new_ones_have_those_of_head() {
    for (private, shared) in [(0o600, false), (0o664, true)] {
        let project = GitProject::new(Shape::Clone).expect("a clone");
        let git = project.dir.join(".git");
        project.shell("git pack-refs --all; git branch -f other HEAD");
        let change = if shared { "chmod -R g+w .git" } else { "chmod -R go-rwx .git" };
        project.shell(change);
        project.turn("t1", "git update-ref refs/heads/other HEAD~1; git branch -D feature; git stash drop");
        project.shell(change);
        project.piton(&["git", "restore", "1", "--force"]).done();
        let names = ["HEAD", "packed-refs", "refs/stash", "logs/refs/stash", "refs/heads/other", "refs/heads/feature"];
        let check = |names: &[&str]| names.iter().for_each(|name| assert_eq!(mode(&git.join(name)), private, "{name}"));
        check(&names);
        project.piton(&["git", "undo"]).done();
        check(&names[..5]);
    }
}

/// A worktree's `gitdir` is a file that anybody can have written who made the repository.
#[test]
fn a_worktree_of_a_hostile_repository_is_not_placed_over_other_things() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let home = project.sandbox.home();
    let full = project.sandbox.root().join("full");
    fs::create_dir_all(&full).and_then(|()| fs::write(full.join("file"), "")).expect("a file");
    for (name, link) in [("one", home.join(".aliases")), ("two", full.join(".git"))] {
        let own = project.dir.join(".git/worktrees").join(name);
        fs::create_dir_all(&own).expect("a directory");
        fs::write(own.join("gitdir"), format!("{}\n", link.display())).expect("a file");
        fs::write(own.join("commondir"), "../..\n").expect("a file");
        fs::write(own.join("HEAD"), "ref: refs/heads/main\n").expect("a file");
    }
    project.turn("t1", "git worktree prune");
    let ran = project.piton(&["git", "restore", "1", "--json"]);
    assert_eq!(
        (ran.code(), kinds(&ran.json()["left"])),
        (3, vec!["worktree one".to_owned(), "worktree two".to_owned()])
    );
    assert!(!home.join(".aliases").exists() && !full.join(".git").exists());
    assert!(!project.dir.join(".git/worktrees/one").exists() && !project.dir.join(".git/worktrees/two").exists());
}

/// Any text can be in `packed-refs`: a name that is no ref names no file.
#[test]
fn a_name_in_packed_refs_that_is_no_ref_is_never_written() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let git = project.dir.join(".git");
    let id = project.git(&["rev-parse", "HEAD"]);
    let names =
        ["config", "hooks/post-checkout", "refs/heads/x.lock", "refs/heads/../../y", "../z", "/tmp/piton-test-z"];
    let lines: String = names.iter().map(|name| format!("{} {name}\n", id.trim())).collect();
    project.git(&["pack-refs", "--all"]);
    let packed = fs::read_to_string(git.join("packed-refs")).expect("refs") + &lines;
    fs::write(git.join("packed-refs"), packed).expect("refs");
    project.turn("t1", "rm .git/packed-refs .git/config");
    let config = project.piton(&["git", "show", "1", "--json"]).done().json();
    assert!(!kinds(&config["differences"]).iter().any(|one| one.contains('z') || one.contains("x.lock")), "{config}");
    project.piton(&["git", "restore", "1", "--all", "--force"]).done();
    assert!(fs::read_to_string(git.join("config")).expect("a file").contains("[core]"));
    for name in &names[1..] {
        assert!(!git.join(name).exists(), "{name}");
    }
    project.piton(&["git", "undo"]).done();
}

#[test]
fn a_head_that_is_a_link_comes_back_as_a_symbolic_ref() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    fs::remove_file(project.dir.join(".git/HEAD")).expect("HEAD");
    symlink("refs/heads/main", project.dir.join(".git/HEAD")).expect("a link");
    assert_eq!(project.git(&["symbolic-ref", "HEAD"]), "refs/heads/main\n");
    project.turn("t1", "git symbolic-ref HEAD refs/heads/feature");
    project.piton(&["git", "restore", "1", "--head"]).done();
    assert_eq!(project.git(&["symbolic-ref", "HEAD"]), "refs/heads/main\n");
    project.piton(&["git", "undo"]).done();
    assert_eq!(project.git(&["symbolic-ref", "HEAD"]), "refs/heads/feature\n");
}

#[test]
fn refs_behind_a_link_are_named_as_not_saved() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let elsewhere = project.sandbox.root().join("heads");
    fs::rename(project.dir.join(".git/refs/heads"), &elsewhere).expect("moved");
    symlink(&elsewhere, project.dir.join(".git/refs/heads")).expect("a link");
    let ran = project.piton(&["take"]).done();
    assert!(ran.stderr.contains("refs behind a symbolic link (refs/heads) are not saved"), "{ran:?}");
}

/// As a power cut leaves them.
#[test]
fn empty_files_count_as_missing() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let before = project.view();
    project.turn("t1", "for file in HEAD refs/heads/main index config; do : > .git/$file; done");
    project.piton(&["git", "restore", "1"]).done();
    assert_eq!(project.view(), before);
}

#[test]
fn reflogs_that_are_gone_come_back_with_everything() {
    for line in ["rm -rf .git/logs", "git reflog expire --expire=now --all && git gc -q --prune=now"] {
        let project = GitProject::new(Shape::Clone).expect("a clone");
        project.shell("git commit -q --amend -m amended");
        let (log, stash) = (project.git(&["reflog"]), project.git(&["stash", "list"]));
        project.turn("t1", line);
        assert_ne!(project.git(&["reflog"]), log);
        let shown = project.piton(&["git", "show", "1"]).done();
        assert!(shown.stdout.contains("logs/HEAD is gone") && shown.stderr.contains("--all"), "{shown:?}");
        project.piton(&["git", "restore", "1", "--all"]).done();
        assert_eq!((project.git(&["reflog"]), project.git(&["stash", "list"])), (log, stash), "{line}");
        project.assert_whole(line);
        project.git(&["show", "HEAD@{1}"]);
    }
}

#[test]
fn a_deleted_branch_comes_back_with_its_upstream() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.git(&["branch", "-q", "-u", "origin/main", "feature"]);
    project.git(&["config", "branch.feature.description", "two\nlines [branch \"other\"]"]);
    let section = project.git(&["config", "--get-regexp", "^branch.feature"]);
    project.turn("t1", "git branch -D feature; git config user.name later");
    let lost = project.view();
    assert!(!lost.config.contains("branch.feature"), "{}", lost.config);
    project.piton(&["git", "restore", "1"]).done();
    assert_eq!(project.git(&["rev-parse", "--abbrev-ref", "feature@{upstream}"]), "origin/main\n");
    assert_eq!(project.git(&["config", "--get-regexp", "^branch.feature"]), section);
    assert!(project.view().config.contains("user.name=later"), "what was set since stays");
    project.piton(&["git", "undo"]).done();
    assert_eq!(project.view(), lost);
}

#[test]
fn what_a_plain_restore_does_not_bring_back_is_hinted_at() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project
        .turn("t1", "git notes remove HEAD; git update-ref -d refs/notes/commits; rm .git/description; git reset -q");
    let shown = project.piton(&["git", "show", "1"]).done();
    assert!(!shown.stderr.contains("brings back what is missing") && shown.stderr.contains("--all"), "{shown:?}");
    let ran = project.piton(&["git", "restore", "1"]).done();
    assert!(ran.stdout.starts_with("Nothing to do") && ran.stderr.contains("--all"), "{ran:?}");
}

/// D15. Objects are neither linked nor copied here, and git has removed those that it did not need any more.
#[test]
fn nothing_comes_back_whose_objects_are_nowhere() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let other = Path::new("/dev/shm");
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    if device(other).is_none() || device(other) == device(&project.dir) {
        testkit::note_skipped("there is no second file system");
        return;
    }
    let temp = tempfile::tempdir_in(other).expect("a directory");
    let base = temp.path().join("base");
    let piton = |args: &[&str]| {
        let mut command = crate::kit::in_dir(&project.sandbox, &project.dir);
        let ran = run(command.arg("--base").arg(&base).args(args).env("PITON_KEEP_GIT_MB", "0"));
        (ran.code(), ran.stdout)
    };
    project.git(&["reset", "-q", "--hard"]);
    project.git(&["checkout", "-q", "--detach"]);
    project.git(&["commit", "-q", "--allow-empty", "-m", "on no branch"]);
    fs::write(project.dir.join("only-staged"), "only staged\n").expect("a file");
    project.git(&["add", "only-staged"]);
    project.git(&["add", "--intent-to-add", "."]);
    assert_eq!(piton(&["take"]).0, 0);
    let forget = "git reflog expire --expire=now --all; git gc -q --prune=now";
    project.shell(&format!("git reset -q --hard; git checkout -q main; git stash clear; {forget}"));
    let lost = project.view();
    let (code, report) = piton(&["git", "restore", "1", "--all", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let left = report["left"].as_array().expect("a list").iter();
    let left: Vec<_> = left.map(|one| one["name"].as_str().expect("a name")).collect();
    assert_eq!((code, left), (3, vec!["HEAD", "stash@{0}", "stash@{1}", "index"]), "{report}");
    assert_eq!(project.view(), lost);
    project.assert_whole("nothing that is missing is named");
    // Nor does an undo: these are lost after the restore that it would take back.
    project.git(&["branch", "-f", "feature", "other"]);
    piton(&["take"]);
    project.git(&["commit", "-q", "--allow-empty", "-m", "later"]);
    project.git(&["branch", "-f", "feature"]);
    let later = project.git(&["rev-parse", "HEAD"]);
    assert_eq!(piton(&["git", "restore", "1", "feature", "--force"]).0, 0);
    project.shell(&format!("git reset -q --hard HEAD~1; {forget}"));
    let lost = project.view();
    let (code, report) = piton(&["git", "undo", "--json"]);
    assert_eq!((code, report.contains(later.trim())), (3, false), "{report}");
    assert_eq!(project.view(), lost);
    project.assert_whole("nothing that is missing is named by the undo");
}
