//! Scope of a checkpoint, and the report about everything outside of it.

use std::fs;
use std::os::unix::net::UnixListener;

use piton::{CheckpointKind, Outcome, Report, Request, Settings, WhySkipped};
use testkit::{Sandbox, files_in, git};

use crate::kit::{left_out, paths_in, take, take_at, take_for, take_with, taken, without_roots_powers};

/// Takes a checkpoint; returns the paths in scope and the skipped ones.
fn scope(sandbox: &Sandbox) -> (Vec<String>, Vec<String>) {
    scope_with(sandbox, &Settings::default())
}

fn scope_with(sandbox: &Sandbox, settings: &Settings) -> (Vec<String>, Vec<String>) {
    let report = take_with(sandbox, &sandbox.project(), settings);
    (paths_in(sandbox, &taken(&report)), left_out(&report))
}

fn counted(sandbox: &Sandbox) -> Report {
    let request = Request::default().kind(CheckpointKind::Manual).count_left_out(true);
    take_for(sandbox, &sandbox.project(), &Settings::default(), &request)
}

#[test]
fn ignore_files_hold_for_their_directory_and_the_deepest_wins() {
    let sandbox = Sandbox::new();
    sandbox.tree(
        ".gitignore = *.tmp\\n/only-here\\n!*.keep.tmp\\n
        a.tmp\n a.keep.tmp\n only-here
        sub/.gitignore = !b.tmp\\nc.txt\\n
        sub/a.tmp\n sub/b.tmp\n sub/c.txt\n sub/only-here",
    );
    let (paths, skipped) = scope(&sandbox);
    assert_eq!(paths, [".gitignore", "a.keep.tmp", "sub/.gitignore", "sub/b.tmp", "sub/only-here"]);
    assert_eq!(skipped, ["a.tmp (ignored)", "only-here (ignored)", "sub/a.tmp (ignored)", "sub/c.txt (ignored)"]);
}

#[test]
fn a_file_cannot_be_let_in_where_its_directory_is_out() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = cache.d/\\n!cache.d/keep\\n\n cache.d/keep\n a.txt");
    let (paths, skipped) = scope(&sandbox);
    assert_eq!(paths, [".gitignore", "a.txt"]);
    assert_eq!(skipped, ["cache.d/ (ignored, not entered)"]);
}

#[test]
fn the_exclude_list_holds_unless_an_ignore_file_says_otherwise() {
    let sandbox = Sandbox::new();
    sandbox.tree(
        ".gitignore = !build/\\n!trace.log\\n
        a.txt\n node_modules/x.js\n sub/node_modules/x.js\n build/kept.txt\n x.o\n trace.log\n other.log\n .env
        .env.local\n .envrc\n sub/.env.production\n dist = a file of this name is not a directory",
    );
    let (paths, skipped) = scope(&sandbox);
    assert_eq!(paths, [".envrc", ".gitignore", "a.txt", "build/kept.txt", "dist", "trace.log"]);
    assert_eq!(
        skipped,
        [
            ".env (secret)",
            ".env.local (secret)",
            "node_modules/ (excluded, not entered)",
            "other.log (excluded)",
            "sub/.env.production (secret)",
            "sub/node_modules/ (excluded, not entered)",
            "x.o (excluded)",
        ]
    );
}

const TRACKED: &str = "
    .gitignore = *.tmp\\ngen/\\n
    a.tmp\n b.tmp
    gen/tracked.txt\n gen/other.txt
    dist/deep/tracked.js\n dist/deep/other.js\n dist/other.js\n dist/not/at-all.js
    .env\n sub/.env.local\n x.log";
const TRACKED_PATHS: [&str; 6] =
    ["a.tmp", "gen/tracked.txt", "dist/deep/tracked.js", ".env", "sub/.env.local", "x.log"];

fn assert_tracked_files_are_in(sandbox: &Sandbox, how: &str) {
    let report = take(sandbox);
    let (Outcome::Taken(id) | Outcome::Unchanged(id)) = report.outcome else { panic!("{how}: {report:?}") };
    let expected = [".gitignore", "a.tmp", "dist/deep/tracked.js", "gen/tracked.txt", "x.log"];
    assert_eq!(paths_in(sandbox, &id.to_string()), expected, "{how}");
    let skipped = [
        ".env (secret)",
        ".git/ (git's own directory, not entered)",
        "b.tmp (ignored)",
        "dist/deep/other.js (excluded)",
        "dist/not/ (excluded, not entered)",
        "dist/other.js (excluded)",
        "gen/other.txt (ignored)",
        "sub/.env.local (secret)",
    ];
    // The `.git` of a worktree is a file.
    let git_file = |line: &String| line.replace(".git (git's own directory)", skipped[1]);
    assert_eq!(left_out(&report).iter().map(git_file).collect::<Vec<_>>(), skipped, "{how}");
}

#[test]
fn tracked_files_are_in_scope_whatever_the_rules_say_secrets_apart() {
    for format in ["sha1", "sha256"] {
        let sandbox = Sandbox::new();
        sandbox.project_git(&["init", "-q", &format!("--object-format={format}")]);
        sandbox.tree(TRACKED);
        sandbox.project_git(&[&["add", "-f"][..], &TRACKED_PATHS].concat());
        assert_tracked_files_are_in(&sandbox, &format!("version 2, {format}"));
        sandbox.project_git(&["update-index", "--index-version", "4"]);
        assert_tracked_files_are_in(&sandbox, &format!("version 4, {format}"));
        sandbox.project_git(&["update-index", "--split-index"]);
        assert_tracked_files_are_in(&sandbox, &format!("split, {format}"));
    }
}

#[test]
fn tracked_files_are_found_in_every_kind_of_index() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree(TRACKED);
    sandbox.project_git(&[&["add", "-f", "-N"][..], &TRACKED_PATHS].concat());
    assert_eq!(fs::read(sandbox.path(".git/index")).expect("an index")[..8], *b"DIRC\0\0\0\x03");
    assert_tracked_files_are_in(&sandbox, "version 3, intent to add");
    sandbox.project_git(&["rm", "-q", "--cached", "x.log"]);
    sandbox.project_git(&["update-index", "--split-index"]);
    sandbox.project_git(&["add", "-f", "x.log", "a.tmp"]);
    assert_tracked_files_are_in(&sandbox, "a split index");
    sandbox.project_git(&["update-index", "--no-split-index", "--untracked-cache", "--index-version", "2"]);
    assert_tracked_files_are_in(&sandbox, "with extensions");
}

#[test]
fn tracked_files_are_found_in_a_worktree_and_in_a_submodule() {
    let upstream = Sandbox::new();
    upstream.project_git(&["init", "-q"]);
    upstream.tree(TRACKED);
    upstream.project_git(&[&["add", "-f", ".gitignore"][..], &TRACKED_PATHS].concat());
    upstream.project_git(&["commit", "-qm", "all"]);

    let worktree = Sandbox::new();
    fs::remove_dir(worktree.project()).expect("an empty directory");
    upstream.project_git(&["worktree", "add", "-q", worktree.project().to_str().expect("UTF-8")]);
    worktree.tree(TRACKED);
    assert!(worktree.path(".git").is_file());
    assert_tracked_files_are_in(&worktree, "a worktree");

    let around = Sandbox::new();
    around.project_git(&["init", "-q"]);
    let url = upstream.project().to_str().expect("UTF-8").to_owned();
    around.project_git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &url, "sub"]);
    let id = taken(&take_with(&around, &around.path("sub"), &Settings::default()));
    assert!(paths_in(&around, &id).contains(&"dist/deep/tracked.js".to_owned()));
    let id = taken(&take(&around));
    let paths = paths_in(&around, &id);
    assert!([".gitmodules", "sub/.gitignore"].iter().all(|path| paths.contains(&(*path).to_owned())), "{paths:?}");
    around.assert_store_is_whole();
}

#[test]
fn nested_repositories_are_content_without_their_git_directories() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a.txt\n empty-repo/b.txt\n deep/full-repo/c.txt\n deep/bare.git/HEAD");
    for repository in ["empty-repo", "deep/full-repo"] {
        sandbox.project_git(&["-C", repository, "init", "-q"]);
    }
    sandbox.project_git(&["-C", "deep/full-repo", "add", "."]);
    sandbox.project_git(&["-C", "deep/full-repo", "commit", "-qm", "one"]);
    let (paths, skipped) = scope(&sandbox);
    assert_eq!(paths, ["a.txt", "deep/bare.git/HEAD", "deep/full-repo/c.txt", "empty-repo/b.txt"]);
    let git_dir = |path: &str| format!("{path} (git's own directory, not entered)");
    assert_eq!(skipped, [".git/", "deep/full-repo/.git/", "empty-repo/.git/"].map(git_dir));
    sandbox.assert_store_is_whole();
}

#[test]
fn the_users_own_lists_are_stronger_than_all_others() {
    let sandbox = Sandbox::new();
    sandbox.tree(
        ".gitignore = *.secret\\n\n a.txt\n b.txt\n dist/keep.txt\n dist/other.txt\n dist/sub/x\n my.secret
        vendor/big/x\n vendor/big/keep/y\n .env",
    );
    let list = |items: &[&str]| items.iter().map(ToString::to_string).collect();
    let settings = Settings::default().exclude(list(&["b.txt", "vendor/big"])).include(list(&[
        "dist/keep.txt",
        "/my.secret",
        "vendor/big/keep/",
        ".env",
    ]));
    let (paths, skipped) = scope_with(&sandbox, &settings);
    let expected = [".env", ".gitignore", "a.txt", "dist/keep.txt", "my.secret", "vendor/big/keep/y"];
    assert_eq!(paths, expected);
    assert_eq!(
        skipped,
        [
            "b.txt (excluded)",
            "dist/other.txt (excluded)",
            "dist/sub/ (excluded, not entered)",
            "vendor/big/x (excluded)"
        ]
    );
}

/// A directory that the user excluded, but which is scanned for the paths that `include` names in it.
#[test]
fn what_git_tracks_beside_an_included_file_stays_excluded() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a\n data/tracked\n data/deep/tracked\n data/keep/x");
    sandbox.project_git(&["add", "-A"]);
    let list = |item: &str| vec![item.to_owned()];
    let settings = Settings::default().exclude(list("data/")).include(list("data/keep/"));
    assert_eq!(scope_with(&sandbox, &settings).0, ["a", "data/keep/x"]);
}

#[test]
fn rules_that_cover_the_whole_tree_are_said_to_protect_nothing() {
    for (rules, unprotected) in
        [("/*", true), ("*", true), ("/*\\n!/debian/", true), ("*.txt", false), ("/src/", false), ("/*\\n!/*", false)]
    {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt\n Makefile\n src/main.rs\n doc/index\n debian/control");
        sandbox.write(".gitignore", rules.replace("\\n", "\n"));
        assert_eq!(take(&sandbox).unprotected, unprotected, "{rules:?}");
        assert_eq!(take(&sandbox).unprotected, unprotected, "{rules:?}, the second time");
    }
}

#[test]
fn a_base_inside_the_project_is_not_part_of_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n .hermes/other.txt");
    let base = sandbox.path(".hermes/checkpoints");
    for round in 0..3 {
        sandbox.write("a.txt", format!("{round}"));
        let report = take_at(&base, &sandbox.project(), &Settings::default(), crate::kit::now());
        let args = ["ls-tree", "-r", "--name-only", &taken(&report)];
        let listing = git().arg("--git-dir").arg(base.join("store")).args(args).output().expect("git runs").stdout;
        assert_eq!(String::from_utf8_lossy(&listing), ".hermes/other.txt\na.txt\n");
        assert_eq!(left_out(&report), [".hermes/checkpoints/ (the store itself, not entered)"]);
    }
}

/// T3.
#[test]
fn what_cannot_be_taken_is_reported_and_the_rest_is_taken() {
    if !without_roots_powers("scope::what_cannot_be_taken_is_reported_and_the_rest_is_taken") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n .GIT\n sub/git~1/config\n sub/b.txt\n locked = x\n closed/file\n sub/.git\\\\x = x");
    sandbox.chmod("locked", 0);
    sandbox.chmod("closed", 0);
    let made = testkit::clean_command("mkfifo").arg(sandbox.path("fifo")).status().expect("mkfifo runs");
    assert!(made.success());
    let _socket = UnixListener::bind(sandbox.path("socket")).expect("a socket");
    let (paths, skipped) = scope(&sandbox);
    sandbox.chmod("closed", 0o700);
    assert_eq!(paths, ["a.txt", "sub/b.txt"]);
    assert_eq!(
        skipped,
        [
            ".GIT (git cannot hold this name)",
            "closed/ (unreadable, not entered)",
            "fifo (not a regular file)",
            "locked (unreadable)",
            "socket (not a regular file)",
            "sub/.git\\\\x (git cannot hold this name)",
            "sub/git~1/ (git cannot hold this name, not entered)",
        ]
    );
    sandbox.assert_store_is_whole();
}

#[test]
fn a_project_that_cannot_be_read_is_an_error_and_no_empty_checkpoint() {
    if !without_roots_powers("scope::a_project_that_cannot_be_read_is_an_error_and_no_empty_checkpoint") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    taken(&take(&sandbox));
    sandbox.chmod("", 0o100);
    let store = piton::Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = piton::Project::at(&sandbox.project(), None).expect("a project");
    let request = Request::default().kind(CheckpointKind::Manual);
    let progress = piton::Progress::default();
    let end = piton::take(&store, &project, &request, &Settings::default(), crate::kit::now(), &progress);
    sandbox.chmod("", 0o700);
    assert!(end.is_err(), "{end:?}");
}

#[test]
fn one_file_beside_sixty_thousand_excluded_ones_is_taken() {
    let sandbox = Sandbox::new();
    sandbox.write("main.js", "x");
    for dir in 0..60 {
        let dir = sandbox.path(format!("node_modules/{dir}"));
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join("0"), "x").expect("a file");
        for file in 1..1000 {
            fs::hard_link(dir.join("0"), dir.join(file.to_string())).expect("a link");
        }
    }
    let report = counted(&sandbox);
    assert_eq!(paths_in(&sandbox, &taken(&report)), ["main.js"]);
    assert_eq!(left_out(&report), ["node_modules/ (excluded, 60,000 files not entered)"]);
}

#[test]
fn a_file_above_the_limit_is_reported_and_one_at_the_limit_is_taken() {
    let sandbox = Sandbox::new();
    sandbox.write("at", vec![b'x'; 1 << 20]);
    sandbox.write("above", vec![b'x'; (1 << 20) + 1]);
    let settings = Settings::default().max_file_size_mb(1);
    let (paths, skipped) = scope_with(&sandbox, &settings);
    assert_eq!((paths.as_slice(), skipped.as_slice()), (&["at".to_owned()][..], &["above (too large)".to_owned()][..]));
    let id = taken(&take_with(&sandbox, &sandbox.project(), &settings.max_file_size_mb(0)));
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
}

#[test]
fn many_left_out_alike_are_one_line_each_time_and_in_the_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n few/1.o\n few/2.o");
    for number in 0..20 {
        sandbox.write(format!("many/{number}.o"), "x");
    }
    let report = take(&sandbox);
    assert_eq!(left_out(&report), ["few/1.o (excluded)", "few/2.o (excluded)", "many/ (excluded, 20 files)"]);
    assert_eq!(crate::kit::newest(&sandbox).facts.skipped, report.skipped);
    assert_eq!(left_out(&take(&sandbox)), left_out(&report));
}

#[test]
fn a_tree_of_nothing_but_left_out_files_is_empty() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.o\n node_modules/y.js");
    let report = take(&sandbox);
    assert_eq!(report.outcome, Outcome::Skipped(WhySkipped::Empty));
    assert_eq!(left_out(&report), ["node_modules/ (excluded, not entered)", "x.o (excluded)"]);
}
