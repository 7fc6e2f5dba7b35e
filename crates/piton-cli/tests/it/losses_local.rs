//! Losses of ignored, excluded and secret files, played through the hooks as an agent would cause them, and taken back by
//! the documented commands.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use testkit::{Sandbox, clean_command};

use crate::hook_kit::{bash, event, hook, prompt};
use crate::kit::{in_dir, piton, run};
use crate::older::older;

/// How a user takes a loss back.
#[derive(Clone, Copy)]
enum Back {
    /// `piton recover` with the paths that it lists itself.
    Listed,
    /// `piton recover PATH...`.
    Recover(&'static [&'static str]),
    /// `piton restore 1`.
    Restore,
    /// `piton restore 1 --with-ignored`.
    WithIgnored,
    /// `piton restore 1 PATH...`.
    RestorePaths(&'static [&'static str]),
}

/// Files of the project that git does not track.
const LOCAL: [&str; 8] = [
    ".env",
    ".env.local",
    ".claude/settings.local.json",
    "data/raw/a.csv",
    "data/b.csv",
    "local.db",
    "notes.txt",
    "server.log",
];

/// Each loss: the command that the agent runs, and the way back.
const LOSSES: &[(&str, Back)] = &[
    ("rm .env", Back::Recover(&[".env"])),
    ("rm -f .env .env.local", Back::Listed),
    ("rm -rf data", Back::Recover(&["data"])),
    ("rm -rf data/", Back::Restore),
    ("rm local.db", Back::RestorePaths(&["local.db"])),
    ("git clean -fdx", Back::Listed),
    ("git clean -fX", Back::Restore),
    ("git clean -fX -- one.pyc data", Back::Listed),
    ("git checkout -- . && git clean -xffd", Back::Restore),
    ("git stash --all --quiet", Back::Restore),
    ("> .env", Back::Recover(&[".env"])),
    ("echo KEY=agent > .env", Back::Recover(&[".env"])),
    ("sed -i s/KEY/TOKEN/ .env", Back::WithIgnored),
    ("cp main.py .env", Back::Recover(&[".env"])),
    ("mv .env .env.bak", Back::Recover(&[".env"])),
    ("mv -f .env.local .env", Back::WithIgnored),
    ("truncate -s 0 notes.txt", Back::Recover(&["notes.txt"])),
    ("shred -u notes.txt", Back::Recover(&["notes.txt"])),
    ("dd if=/dev/zero of=local.db bs=1 count=4 conv=notrunc status=none", Back::Recover(&["local.db"])),
    ("find . -name '*.db' -delete", Back::Listed),
    ("find . -name '*.csv' -exec rm {} +", Back::Recover(&["data"])),
    ("rm -rf -- * .claude", Back::Restore),
    ("sh ./clean.sh", Back::Recover(&["data", "notes.txt"])),
    ("python3 -c \"import shutil; shutil.rmtree('data')\"", Back::Listed),
    ("cp /dev/null data/b.csv", Back::WithIgnored),
    ("chmod 000 .env && rm -f .env", Back::Restore),
];

fn sh(sandbox: &Sandbox, line: &str) {
    let mut command = clean_command("sh");
    command.env("HOME", sandbox.home()).current_dir(sandbox.project());
    command.env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@b");
    command.env("GIT_COMMITTER_NAME", "a").env("GIT_COMMITTER_EMAIL", "a@b");
    let output = command.args(["-c", line]).output().expect("a shell");
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Returns a project with a repository of its own and files that it ignores.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("main.py", "print()\n");
    sandbox.write("clean.sh", "rm -rf data notes.txt\n");
    sandbox.write(".gitignore", "data/\n*.db\n*.db-*\nnotes.txt\n.claude/\n.env*\n*.log\n*.pyc\nnode_modules/\n");
    sh(&sandbox, "git init -q && git add main.py clean.sh .gitignore && git commit -qm first");
    for path in LOCAL {
        sandbox.write(path, format!("KEY of {path}\n"));
    }
    sandbox.write("one.pyc", "");
    sandbox.write("node_modules/x/index.js", "x");
    sandbox.chmod(".env", 0o600);
    sandbox
}

fn local_files(sandbox: &Sandbox) -> BTreeMap<&'static str, Option<String>> {
    LOCAL.map(|path| (path, fs::read_to_string(sandbox.path(path)).ok())).into_iter().collect()
}

fn take_back(sandbox: &Sandbox, back: Back) {
    match back {
        Back::Listed => {
            let listed = piton(sandbox, ["recover", "--json"]).done().json();
            let items = listed["items"].as_array().expect("a list");
            let paths: Vec<_> = items.iter().map(|item| item["path"].as_str().expect("a path")).collect();
            assert!(items.iter().any(|item| item["kind"] == "local"), "{listed}");
            piton(sandbox, ["recover"].into_iter().chain(paths)).done();
        }
        Back::Recover(paths) => drop(piton(sandbox, [&["recover"], paths].concat()).done()),
        Back::Restore => drop(piton(sandbox, ["restore", "1", "--yes"]).done()),
        Back::WithIgnored => drop(piton(sandbox, ["restore", "1", "--yes", "--with-ignored"]).done()),
        Back::RestorePaths(paths) => drop(piton(sandbox, [&["restore", "1", "--yes"], paths].concat()).done()),
    }
}

#[test]
fn ignored_and_secret_files_that_an_agent_destroys_come_back() {
    for (line, back) in LOSSES {
        let sandbox = project();
        let before = local_files(&sandbox);
        hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "clean up"));
        hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", line));
        sh(&sandbox, line);
        hook(&sandbox, &["claude"], event(&sandbox, "s", "t1", "Stop", &json!({})));
        let lost = local_files(&sandbox);
        assert_ne!(lost, before, "{line} destroys nothing");
        take_back(&sandbox, *back);
        assert_eq!(local_files(&sandbox), before, "{line}");
        let mode = fs::metadata(sandbox.path(".env")).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{line}");
        sandbox.assert_store_is_whole();
        // What there was before the way back is one step away.
        piton(&sandbox, ["undo"]).done();
        assert_eq!(local_files(&sandbox), lost, "undo after {line}");
    }
}

/// Made and destroyed within one turn: the step before the command has it.
#[test]
fn a_secret_that_was_made_in_the_same_turn_comes_back() {
    let sandbox = project();
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "set it up"));
    sandbox.write("data/new.key", "made in this turn");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", "rm -rf data"));
    fs::remove_dir_all(sandbox.path("data")).expect("a directory");
    piton(&sandbox, ["recover", "data"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("data/new.key")).expect("a file"), "made in this turn");
}

#[test]
fn a_deleted_project_comes_back_with_its_ignored_files() {
    let sandbox = project();
    let before = local_files(&sandbox);
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "start over"));
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", "rm -rf ."));
    fs::remove_dir_all(sandbox.project()).expect("a directory");
    let dir = sandbox.project().to_str().expect("UTF-8").to_owned();
    run(in_dir(&sandbox, &sandbox.root()).args(["-C", &dir, "restore", "1", "--yes"])).done();
    assert_eq!(local_files(&sandbox), before);
}

#[test]
fn nothing_is_written_through_a_link_in_the_place_of_an_ignored_directory() {
    let sandbox = project();
    let before = local_files(&sandbox);
    let elsewhere = sandbox.root().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "link it"));
    let line = format!("rm -rf .claude && ln -s {} .claude", elsewhere.display());
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", &line));
    sh(&sandbox, &line);
    let ran = piton(&sandbox, ["restore", "1", "--yes"]);
    assert_eq!(ran.code(), 3, "{ran:?}");
    assert!(ran.stdout.contains(".claude/settings.local.json: something else is in its place"), "{ran:?}");
    assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 0);
    fs::remove_file(sandbox.path(".claude")).expect("a link");
    piton(&sandbox, ["restore", "1", "--yes"]).done();
    assert_eq!(local_files(&sandbox), before);
}

/// An edit of ignored files alone is a change: the state before it is a row of its own.
#[test]
fn the_row_before_a_prompt_has_the_files_as_they_were_before_it() {
    let sandbox = project();
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write(".env", "KEY=agent\n");
    hook(&sandbox, &["claude"], event(&sandbox, "s", "t1", "Stop", &json!({})));
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "second"));
    sandbox.write(".env", "KEY=worse\n");
    piton(&sandbox, ["restore", "1", "--yes", "--with-ignored"]).done();
    assert_eq!(fs::read_to_string(sandbox.path(".env")).expect("a file"), "KEY=agent\n");
    piton(&sandbox, ["restore", "3", "--yes", "--with-ignored"]).done();
    assert_eq!(fs::read_to_string(sandbox.path(".env")).expect("a file"), "KEY of .env\n");
}

/// Names are shown, contents are not.
#[test]
fn no_command_an_agent_reads_prints_the_contents_of_ignored_files() {
    let sandbox = project();
    sandbox.write(".env", "KEY=hunter2\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write(".env", "KEY=hunter3\n");
    hook(&sandbox, &["claude"], event(&sandbox, "s", "t1", "Stop", &json!({})));
    let mut said = String::new();
    for args in [
        &["show", "1"][..],
        &["show", "1", "--json"],
        &["status"],
        &["diff", "1"],
        &["log"],
        &["recover", "--all"],
        &["rollback", "--steps"],
        &["search", "hunter"],
        &["recover", "--dry-run", ".env"],
    ] {
        let ran = piton(&sandbox, args.iter().copied());
        said += &(ran.stdout + &ran.stderr);
    }
    assert!(said.contains(".env"), "{said}");
    assert!(!said.contains("hunter2") && !said.contains("hunter3"), "{said}");
    let dir = sandbox.root().join("exported");
    piton(&sandbox, ["export", "1", dir.to_str().expect("UTF-8")]).done();
    assert!(!dir.join(".env").exists() && dir.join("main.py").exists());
    let log = fs::read_to_string(sandbox.base().join("piton.log")).unwrap_or_default();
    assert!(!log.contains("hunter"), "{log}");
}

#[test]
fn status_log_search_and_diff_name_ignored_files() {
    let sandbox = project();
    piton(&sandbox, ["take"]).done();
    fs::remove_file(sandbox.path("data/b.csv")).expect("a file");
    sandbox.write(".env", "KEY=other\n");
    piton(&sandbox, ["take"]).done();
    sandbox.write("data/made-since.csv", "1");
    fs::remove_file(sandbox.path("notes.txt")).expect("a file");
    let json = |args: &[&str]| piton(&sandbox, ["--json"].into_iter().chain(args.iter().copied())).done().json();
    let paths = |list: &serde_json::Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|one| one["path"].as_str().expect("UTF-8").to_owned()).collect()
    };
    let log = json(&["log"]);
    assert_eq!(
        (paths(&log[0]["local"]), log[0]["files_changed"].as_u64()),
        (vec![".env".to_owned(), "data/b.csv".to_owned()], Some(0))
    );
    assert_eq!(json(&["log", "data"])[0]["local"].as_array().map(Vec::len), Some(1));
    assert_eq!(json(&["log", "local.db"]), json!([]), "known, and unchanged");
    piton(&sandbox, ["log", "mistyped"]).failed(4);
    assert!(piton(&sandbox, ["log"]).done().stdout.contains("data/b.csv  (ignored)"));
    assert_eq!(paths(&json(&["search", "b.csv"])[0]["local"]), ["data/b.csv"]);
    assert!(piton(&sandbox, ["search", "b.csv"]).done().stdout.contains("data/b.csv  (path, ignored)"));
    assert_eq!(paths(&json(&["search", "raw", "--all"])[0]["local"]), ["data/raw/a.csv"]);
    assert_eq!(piton(&sandbox, ["search", "KEY"]).code(), 4, "contents are not searched");
    let status = json(&["status"]);
    let local = &status["projects"][0];
    assert_eq!((&local["local_files"], paths(&local["local"]).len()), (&json!(7), 7));
    let text = piton(&sandbox, ["status"]).done().stdout;
    assert!(text.contains("Ignored files that are saved, too:") && text.contains(".env"), "{text}");
    let diff = json(&["diff"]);
    assert_eq!(paths(&diff["local"]), ["data/made-since.csv", "notes.txt"]);
    assert_eq!(paths(&json(&["diff", "2", "1"])["local"]), [".env", "data/b.csv"]);
    assert_eq!(paths(&json(&["diff", "1", "--", "data"])["local"]), ["data/made-since.csv"]);
    let shown = piton(&sandbox, ["diff"]).done();
    assert!(shown.stderr.contains("data/made-since.csv, notes.txt"), "{shown:?}");
}

#[test]
fn the_first_take_says_once_what_is_saved_now_and_how_to_turn_it_off() {
    let sandbox = project();
    let first = piton(&sandbox, ["take"]).done();
    assert!(first.stderr.contains("`piton config set keep_ignored false` turns it off"), "{first:?}");
    sandbox.write("main.py", "2");
    let second = piton(&sandbox, ["take"]).done();
    assert!(!second.stderr.contains("keep_ignored"), "{second:?}");
    assert!(second.stdout.contains("out of scope: 8 small files"), "{second:?}");
    let other = project();
    let answer = hook(&other, &["claude"], prompt(&other, "s", "t1", "first"));
    assert!(answer.contains("keep_ignored false"), "{answer}");
    other.write("main.py", "3");
    assert_eq!(hook(&other, &["claude"], prompt(&other, "s", "t2", "second")), "");
}

/// Version 0.1 cuts histories and collects without a word about these files.
#[test]
fn a_store_that_version_0_1_has_used_still_has_the_ignored_files() {
    let sandbox = project();
    let mut taken = Vec::new();
    for number in 0..3 {
        sandbox.write("main.py", number.to_string());
        sandbox.write(".env", format!("KEY={number}\n"));
        taken.push(piton(&sandbox, ["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned());
    }
    if let Some(older) = older(&sandbox) {
        assert_eq!(older.run(&["rollback", "--json"]).json().as_array().map(Vec::len), Some(3));
        sandbox.write("main.py", "of 0.1");
        older.run(&["take"]);
        older.run(&["restore", &taken[1], "--yes"]);
        older.run(&["prune"]);
        piton(&sandbox, ["verify"]).done();
        piton(&sandbox, ["restore", &taken[2], "--yes", "--with-ignored"]).done();
    }
    // What it leaves of a history that it cut: the ends, and the refs of everything before them.
    fs::write(sandbox.store().join("shallow"), format!("{}\n", taken[1])).expect("a file");
    sandbox.store_git(&["gc", "--quiet", "--prune=now"]);
    sandbox.assert_store_is_whole();
    piton(&sandbox, ["verify"]).done();
    piton(&sandbox, ["prune"]).done();
    sandbox.assert_store_is_whole();
    let refs = sandbox.store_git(&["for-each-ref", "--format=%(refname:lstrip=3)", "refs/local/"]);
    let refs = String::from_utf8(refs).expect("names");
    assert!(!refs.contains(&taken[0]) && refs.contains(&taken[1]), "{refs}");
    fs::remove_file(sandbox.path(".env")).expect("a file");
    piton(&sandbox, ["recover", "--from", &taken[1], ".env"]).done();
    assert_eq!(fs::read_to_string(sandbox.path(".env")).expect("a file"), "KEY=1\n");
}
