//! Commands that destroy branches, stashes, worktrees or the whole repository, run by an agent with its hooks, in
//! repositories of every shape. Everything is back after a restore, by the word of stock git.
//!
//! A part of the commands is run in each shape; `PITON_LOSSES_ALL=1` runs all of them in all shapes.

use crate::git_kit::{GitProject, GitView, Shape};

/// Commands, and what they destroy.
const COMMANDS: [&str; 66] = [
    "git branch -D feature",
    "git branch -d -f feature other",
    "git branch -M feature renamed",
    "git branch -f feature HEAD~1",
    "git branch -m feature other-name",
    "git tag -d v1",
    "git tag -d v1 v2",
    "git tag -f v1 HEAD~1",
    "git stash drop",
    "git stash drop stash@{1}",
    "git stash clear",
    "git checkout -q -- . && git stash pop",
    "git reset -q --hard && git stash pop && git stash clear",
    "git stash push -q -u && git stash clear",
    "git update-ref -d refs/heads/feature",
    "git update-ref refs/heads/feature HEAD~1",
    "git update-ref -d refs/stash",
    "git update-ref -d refs/tags/v1",
    "git update-ref -d HEAD",
    "git symbolic-ref HEAD refs/heads/nowhere",
    "git reset -q --hard HEAD~1",
    "git reset -q --soft HEAD~1",
    "git reset -q",
    "git reset -q --mixed HEAD~1",
    "git rm -r -q --cached .",
    "git rm -r -f -q .",
    "git checkout -q --orphan empty && git rm -r -f -q --cached .",
    "git checkout -q -f feature",
    "git checkout -q -f -B feature",
    "git switch -q -f --detach HEAD~1",
    "git switch -q -f -C other HEAD~1",
    "git restore --staged .",
    "git restore --source=HEAD~1 --staged --worktree .",
    "git commit -q --amend -m other",
    "git commit -q --amend --no-edit -a",
    "git commit -q -am wip && git rebase -q --onto HEAD~2 HEAD~1",
    "git commit -q -am wip && git merge -q --no-edit feature",
    "git commit -q -am wip && git cherry-pick feature",
    "git reflog expire --expire=now --all",
    "git reflog expire --expire=now --all && git gc -q --prune=now",
    "git reflog delete stash@{0}",
    "git gc -q --prune=now",
    "git prune --expire=now",
    "git branch -D feature && git reflog expire --expire=now --all && git gc -q --prune=now",
    "git stash clear && git gc -q --prune=now",
    "git tag -d v2 && git prune --expire=now",
    "git repack -q -a -d && git pack-refs --all --prune && git branch -D feature other",
    "git filter-branch -f --msg-filter 'cat; echo changed' HEAD",
    "git checkout -q -f HEAD~1",
    "git notes remove HEAD",
    "git notes --ref=commits prune && git update-ref -d refs/notes/commits",
    "git worktree remove -f -f ../beside",
    "rm -rf ../beside && git worktree prune",
    "git remote add elsewhere /nowhere && git remote remove elsewhere",
    "git config --unset core.filemode",
    "git config core.bare true",
    "git config --local --rename-section core broken",
    "git update-index --force-remove f",
    "git read-tree --empty",
    "git read-tree HEAD~1",
    "git add -A",
    "rm -f \"$(git rev-parse --git-path index)\"",
    "rm -f \"$(git rev-parse --git-path HEAD)\"",
    "rm -rf \"$(git rev-parse --git-common-dir)/refs\" \"$(git rev-parse --git-common-dir)/packed-refs\"",
    "rm -rf \"$(git rev-parse --git-common-dir)/objects\"",
    "rm -rf .git",
];

/// Returns true if a command is run in a shape by default: a third of them in each, all of them in some.
fn is_in_sample(nth: usize, shape: Shape) -> bool {
    let all = std::env::var_os("PITON_LOSSES_ALL").is_some_and(|value| value == "1");
    let at = Shape::ALL.iter().position(|other| *other == shape).expect("listed");
    // The last ones destroy the most, and differ by shape.
    all || (nth + at).is_multiple_of(5) || nth + 4 >= COMMANDS.len()
}

/// Runs the commands one after the other, each followed by a restore of everything.
fn run_all(shape: Shape) {
    let Some(project) = GitProject::new(shape) else {
        testkit::note_skipped(&format!("stock git here cannot make a repository with {shape:?}"));
        return;
    };
    let mut ran = 0;
    let before = project.view();
    for (nth, line) in COMMANDS.iter().enumerate().filter(|(nth, _)| is_in_sample(*nth, shape)) {
        let turn = format!("t{nth}");
        project.turn(&turn, line);
        let report = project.piton(&["git", "restore", "1", "--all", "--force", "--json"]);
        let context = format!("{shape:?}: {line}\n{report:?}");
        assert!([0, 3].contains(&report.code()), "{context}");
        assert!(project.is_repository(), "{context}");
        let after = project.view();
        // A new ref is not a loss, and stays.
        assert_eq!(kept(&after, &before), before, "{context}");
        project.assert_whole(&context);
        // Files are as before for the next command; what a command left in the way goes.
        project.shell("git worktree prune; git for-each-ref --format='%(refname)' refs/recovered refs/replace refs/original | xargs -r -n 1 git update-ref -d");
        restore_files(&project, &context);
        for extra in extra_refs(&project.view(), &before) {
            project.git(&["update-ref", "-d", &extra]);
        }
        ran += 1;
    }
    assert!(ran >= COMMANDS.len() / 5, "{ran} commands");
}

fn restore_files(project: &GitProject, context: &str) {
    let ran = project.piton(&["restore", "1", "--json", "--across-sessions"]);
    assert!([0, 3].contains(&ran.code()), "{context}\n{ran:?}");
}

fn extra_refs(after: &GitView, before: &GitView) -> Vec<String> {
    let known: Vec<_> = before.refs.lines().filter_map(|line| line.split(' ').next()).collect();
    let names = after.refs.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| !known.contains(name)).map(str::to_owned).collect()
}

/// Returns a view without refs that are new.
fn kept(after: &GitView, before: &GitView) -> GitView {
    let extra = extra_refs(after, before);
    let lines = after.refs.lines().filter(|line| !extra.iter().any(|name| line.starts_with(&format!("{name} "))));
    GitView { refs: lines.map(|line| format!("{line}\n")).collect(), ..after.clone() }
}

#[test]
fn a_clone_comes_back() {
    run_all(Shape::Clone);
}

#[test]
fn a_linked_worktree_comes_back() {
    run_all(Shape::LinkedWorktree);
}

#[test]
fn a_submodule_comes_back() {
    run_all(Shape::Submodule);
}

#[test]
fn a_repository_with_sha256_comes_back() {
    run_all(Shape::Sha256);
}

#[test]
fn a_repository_with_a_reftable_comes_back() {
    run_all(Shape::Reftable);
}
