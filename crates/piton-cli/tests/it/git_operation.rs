//! An operation of git in progress, such as a merge with conflicts, goes and comes with the index and `HEAD`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::walk;

use crate::git_kit::{GitProject, Shape};

const MERGE: &str = "git merge feature";
const REBASE: &str = "git rebase feature";
const APPLY: &str = "git rebase --apply feature";
const PICK: &str = "git cherry-pick feature feature~1";
const REVERT: &str = "git revert --no-edit HEAD~1";
const BISECT: &str = "git bisect start; git bisect bad; git bisect good HEAD~2";

/// Makes a clean project whose branch conflicts with `feature`.
fn project(shape: Shape) -> Option<GitProject> {
    let project = GitProject::new(shape)?;
    project.git(&["reset", "-q", "--hard"]);
    project.git(&["checkout", "-q", "feature"]);
    fs::write(project.dir.join("f"), "theirs\n").expect("a file");
    project.git(&["commit", "-qam", "theirs"]);
    project.git(&["checkout", "-q", "-"]);
    fs::write(project.dir.join("f"), "ours\n").expect("a file");
    project.git(&["commit", "-qam", "ours"]);
    Some(project)
}

/// Everything in the git directory of the worktree that an operation makes, and what is staged.
#[derive(Debug, PartialEq, Eq)]
struct Operation {
    files: BTreeMap<PathBuf, String>,
    head: String,
    staged: String,
}

fn operation(project: &GitProject) -> Operation {
    let dir = PathBuf::from(project.git(&["rev-parse", "--absolute-git-dir"]).trim_end());
    let mut files = BTreeMap::new();
    walk(&dir, &mut |path| {
        let name = path.strip_prefix(&dir).expect("below it");
        let first = name.iter().next().and_then(|first| first.to_str()).unwrap_or_default();
        let lasting = ["objects", "logs", "hooks", "info", "index", "config", "HEAD", "ORIG_HEAD", "FETCH_HEAD"];
        let is_lasting = lasting.contains(&first)
            || [
                "COMMIT_EDITMSG",
                "packed-refs",
                "branches",
                "description",
                "worktrees",
                "commondir",
                "gitdir",
                "modules",
            ]
            .contains(&first)
            || first == "refs" && !name.starts_with("refs/bisect");
        if !is_lasting && path.is_file() {
            files.insert(name.to_owned(), String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned());
        }
    });
    let head = fs::read_to_string(dir.join("HEAD")).expect("HEAD");
    Operation { files, head, staged: project.git(&["ls-files", "--stage"]) }
}

/// Returns what stock git says about the worktree. Where `HEAD` was detached is in its reflog, which goes on.
fn status(project: &GitProject) -> String {
    let said = project.git(&["status"]);
    said.lines()
        .map(|line| if line.starts_with("HEAD detached") { "HEAD detached" } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

fn names(report: &Value, list: &str) -> Vec<String> {
    let items = report[list].as_array().expect("a list").iter();
    items.map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
}

/// Takes a checkpoint, and returns its id: a restore takes another one before it.
fn take(project: &GitProject) -> String {
    project.piton(&["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned()
}

/// Takes a checkpoint of the clean project, lets an operation stop in the middle, and restores with this option.
#[track_caller]
fn assert_goes(shape: Shape, line: &str, option: &str) {
    let Some(project) = project(shape) else { return };
    let context = format!("{shape:?}, {line}, {option}");
    let (before, said) = (operation(&project), status(&project));
    assert!(before.files.is_empty(), "{context}: {before:?}");
    let id = take(&project);
    project.shell(line);
    let during = operation(&project);
    assert!(!during.files.is_empty(), "{context}");
    project.piton(&["restore", &id]).done();
    let plan = project.piton(&["git", "restore", &id, option, "--dry-run", "--json"]).done().json();
    assert_eq!(operation(&project), during, "{context}: a dry run");
    let report = project.piton(&["git", "restore", &id, option, "--json"]).done().json();
    assert_eq!((&report["outcome"], &plan["restored"]), (&json!("restored"), &report["restored"]), "{context}");
    for path in during.files.keys() {
        let is_named = |name: &String| PathBuf::from(name).ends_with(path);
        assert!(names(&report, "restored").iter().any(is_named), "{context}: {}: {report}", path.display());
    }
    assert_eq!((operation(&project), status(&project)), (before, said), "{context}");
    project.piton(&["git", "undo"]).done();
    assert_eq!(operation(&project), during, "{context}: undo");
    project.piton(&["git", "undo"]).done();
    assert!(operation(&project).files.is_empty(), "{context}: redo");
    fs::write(project.dir.join("f"), "more\n").expect("a file");
    project.git(&["commit", "-qam", "more"]);
    assert!(!project.shell_succeeds("git merge-base --is-ancestor feature HEAD"), "{context}: it counts as merged");
    project.assert_whole(&context);
}

#[test]
fn an_operation_that_began_after_the_checkpoint_goes_with_the_index() {
    for line in [MERGE, PICK, REVERT] {
        assert_goes(Shape::Clone, line, "--index");
    }
    for shape in [Shape::LinkedWorktree, Shape::Submodule] {
        assert_goes(shape, MERGE, "--index");
    }
}

#[test]
fn an_operation_that_began_after_the_checkpoint_goes_with_everything() {
    for line in [MERGE, REBASE, APPLY, PICK, BISECT] {
        assert_goes(Shape::Clone, line, "--all");
    }
    for line in [REBASE, BISECT] {
        assert_goes(Shape::LinkedWorktree, line, "--all");
    }
}

/// They have detached `HEAD`: it would stay where they put it, and nothing would say so.
#[test]
fn a_rebase_or_bisection_stays_if_head_does_not_come_back() {
    for (line, name) in [(REBASE, "rebase-merge"), (BISECT, "BISECT_LOG")] {
        let project = project(Shape::Clone).expect("a clone");
        project.piton(&["take"]).done();
        project.shell(line);
        let during = operation(&project);
        let ran = project.piton(&["git", "restore", "1", "--index", "--json"]);
        assert_eq!(ran.code(), 3, "{ran:?}");
        let left = ran.json()["left"].clone();
        let is_named = |left: &Value| left["name"] == name && left["why"].to_string().contains("HEAD is not restored");
        assert!(left.as_array().expect("a list").iter().any(is_named), "{line}: {left}");
        let after = operation(&project);
        assert_eq!((after.files, after.head), (during.files, during.head), "{line}");
        project.piton(&["git", "restore", "1", "--head", "--index"]).done();
        assert!(operation(&project).files.is_empty(), "{line}");
    }
}

/// Without `MERGE_HEAD`, the commit that resolves the conflict would be no merge.
#[test]
fn an_operation_at_the_checkpoint_comes_back_with_the_index() {
    let cases = [
        (MERGE, "git merge --abort", "--index"),
        (MERGE, "git merge --abort; git cherry-pick feature", "--index"),
        (PICK, "git cherry-pick --abort", "--index"),
        (REBASE, "git rebase --abort", "--all"),
        (BISECT, "git bisect reset", "--all"),
    ];
    for (shape, (line, end, option)) in
        cases.into_iter().map(|case| (Shape::Clone, case)).chain([(Shape::LinkedWorktree, cases[4])])
    {
        let project = project(shape).expect("a repository");
        let context = format!("{shape:?}, {line}, {end}");
        project.shell(line);
        let (during, said) = (operation(&project), status(&project));
        assert!(!during.files.is_empty(), "{context}");
        let id = take(&project);
        project.shell(end);
        let after = operation(&project);
        assert_ne!(after.files, during.files, "{context}");
        project.piton(&["restore", &id]).done();
        project.piton(&["git", "restore", &id, option]).done();
        assert_eq!(status(&project), said, "{context}");
        assert_eq!(operation(&project), during, "{context}");
        project.piton(&["git", "undo"]).done();
        assert_eq!(operation(&project), after, "{context}: undo");
    }
}

#[test]
fn show_names_an_operation_that_the_recorded_state_did_not_have() {
    let project = project(Shape::Clone).expect("a clone");
    project.piton(&["take"]).done();
    project.shell(MERGE);
    let report = project.piton(&["git", "show", "1", "--json"]).done().json();
    let differences = report["differences"].as_array().expect("a list");
    let merge = differences.iter().find(|one| one["name"] == "MERGE_HEAD").expect("a difference");
    assert_eq!((&merge["kind"], &merge["then"]), (&json!("file"), &json!(null)));
    assert!(merge["now"].is_string(), "{merge}");
}
