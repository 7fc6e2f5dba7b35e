//! Marks: a named checkpoint stays, whatever cuts the history around it, and everything that reads the store knows it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::{Dice, Sandbox};

use crate::fault_store::{Files, answer};
use crate::kit::{Ran, command, ids, in_dir, piton, run};
use crate::older::older;
use crate::purge::{SECRET, found};
use crate::sweep::{After, Scene, fail, kill};

fn take(sandbox: &Sandbox, number: usize) -> String {
    sandbox.write("count", number.to_string());
    let taken = run(command(sandbox).env("PITON_MAX_SNAPSHOTS", "3").args(["take", "--json"])).done();
    taken.json()["id"].as_str().expect("an id").to_owned()
}

fn marks(sandbox: &Sandbox) -> Vec<(String, Vec<String>)> {
    let list = piton(sandbox, ["rollback", "--json"]).done().json();
    let row = |row: &Value| {
        let marks = row["marks"].as_array().expect("a list").iter().map(|mark| mark.as_str().expect("text").to_owned());
        (row["id"].as_str().expect("an id").to_owned(), marks.collect())
    };
    list.as_array().expect("a list").iter().map(row).collect()
}

fn marked(sandbox: &Sandbox) -> Vec<(String, Vec<String>)> {
    marks(sandbox).into_iter().filter(|(_, marks)| !marks.is_empty()).collect()
}

fn project(sandbox: &Sandbox) -> String {
    let refs = sandbox.store_git(&["for-each-ref", "--format=%(refname)", "refs/hermes"]);
    String::from_utf8(refs).expect("text").trim().rsplit('/').next().expect("a project").to_owned()
}

fn has(sandbox: &Sandbox, id: &str) -> bool {
    let store = sandbox.store();
    let git = Command::new("git").arg("--git-dir").arg(store).args(["cat-file", "-e", id]).output().expect("git");
    git.status.success()
}

/// B1, B2: ids and contents stay, ancestors go, and stock git has nothing to complain about.
#[test]
fn a_marked_checkpoint_outlives_the_limit_and_its_ancestors_do_not() {
    let sandbox = Sandbox::new();
    let before = take(&sandbox, 0);
    let kept = take(&sandbox, 1);
    piton(&sandbox, ["mark", "1", "works"]).done();
    let held = sandbox.held_by(&kept);
    let newest: Vec<_> = (2..8).map(|number| take(&sandbox, number)).collect();
    let rows = marks(&sandbox);
    let wanted: Vec<_> = newest.iter().rev().take(3).cloned().map(|id| (id, vec![])).collect();
    assert_eq!(rows[..3], wanted);
    assert_eq!(rows[3..], [(kept.clone(), vec!["works".to_owned()])]);
    sandbox.assert_store_is_whole();
    piton(&sandbox, ["prune"]).done();
    assert!(has(&sandbox, &kept) && !has(&sandbox, &before));
    sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
    sandbox.store_git(&["fsck", "--full", "--strict"]);
    assert_eq!(marks(&sandbox), rows);
    assert!(sandbox.held_by(&kept) == held);
    take(&sandbox, 9);
    piton(&sandbox, ["restore", "works"]).done();
    assert_eq!(fs::read_to_string(sandbox.project().join("count")).expect("a file"), "1");
    piton(&sandbox, ["verify"]).done();
    let status = piton(&sandbox, ["status", "--json"]).done().json();
    assert_eq!(status["projects"][0]["marks"], serde_json::json!(["works"]));
    let removed = piton(&sandbox, ["unmark", "works", "--json"]).done().json();
    assert_eq!(removed["outcome"], "unmarked");
    assert!(removed["number"].is_null());
    piton(&sandbox, ["prune"]).done();
    assert!(!has(&sandbox, &kept));
    sandbox.assert_store_is_whole();
}

#[test]
fn a_mark_names_a_checkpoint_in_every_command_and_is_given_once() {
    let sandbox = Sandbox::new();
    let first = take(&sandbox, 0);
    let second = take(&sandbox, 1);
    for (name, code) in [("12", 2), ("abcd", 2), ("diff", 2), ("revert", 2), ("a/b", 2), ("", 2), (&"x".repeat(65), 2)]
    {
        piton(&sandbox, ["mark", "1", name]).failed(code);
    }
    let report = piton(&sandbox, ["mark", "2", "two words.lock", "--json"]).done().json();
    let keys = ["outcome", "mark", "id", "number"].map(|key| report[key].clone());
    assert_eq!(Value::from(keys.to_vec()), serde_json::json!(["marked", "two words.lock", first, 2]));
    piton(&sandbox, ["mark", "1", "two words.lock"]).failed(1);
    assert_eq!(marked(&sandbox), [(first.clone(), vec!["two words.lock".to_owned()])]);
    let again = piton(&sandbox, ["mark", &first, "two words.lock", "--json"]).done().json();
    assert_eq!(again["outcome"], "unchanged");
    for args in [["show", "two words.lock"], ["diff", "two words.lock"]] {
        piton(&sandbox, args).done();
    }
    piton(&sandbox, ["rollback", "diff", "two words.lock"]).done();
    piton(&sandbox, ["rollback", "two words.lock", "--dry-run"]).done();
    let moved = piton(&sandbox, ["mark", "1", "two words.lock", "--move", "--json"]).done().json();
    assert_eq!((moved["outcome"].as_str(), moved["previous"].as_str()), (Some("moved"), Some(first.as_str())));
    assert_eq!(marked(&sandbox), [(second, vec!["two words.lock".to_owned()])]);
    let list = piton(&sandbox, ["rollback"]).done().stdout;
    assert!(list.contains("<two words.lock>"), "{list}");
    piton(&sandbox, ["unmark", "two words.lock"]).done();
    piton(&sandbox, ["unmark", "two words.lock"]).failed(4);
    assert_eq!(marked(&sandbox), []);
}

/// G5.
#[test]
fn a_mark_stays_when_the_store_is_made_smaller() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(5);
    let mut taken = Vec::new();
    for number in 0..6 {
        sandbox.write("noise", dice.noise(400_000));
        taken.push(take_all(&sandbox, number));
    }
    piton(&sandbox, ["mark", &taken[1], "works"]).done();
    piton(&sandbox, ["prune", "--max-size-mb", "1"]).done();
    let left = ids(&sandbox);
    assert_eq!((left.first(), left.last()), (taken.last(), Some(&taken[1])));
    assert!(left.len() < 4, "{left:?}");
    assert!(!has(&sandbox, &taken[0]) && !has(&sandbox, &taken[2]));
    sandbox.assert_store_is_whole();
    sandbox.write("noise", dice.noise(400_000));
    run(command(&sandbox).env("PITON_MAX_TOTAL_SIZE_MB", "1").args(["take", "--json"]));
    assert_eq!(marked(&sandbox), [(taken[1].clone(), vec!["works".to_owned()])]);
}

fn take_all(sandbox: &Sandbox, number: usize) -> String {
    sandbox.write("count", number.to_string());
    piton(sandbox, ["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_project_with_a_mark_goes_only_if_the_user_agrees() {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("gone");
    fs::write(other.join("file"), "1").expect("a file");
    run(in_dir(&sandbox, &other).args(["take", "--json"])).done();
    run(in_dir(&sandbox, &other).args(["mark", "1", "works"])).done();
    take(&sandbox, 0);
    fs::remove_dir_all(&other).expect("a directory");
    let known = || piton(&sandbox, ["status", "--json"]).done().json()["projects"].as_array().expect("a list").len();
    let last_prune = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() - 2 * 86_400;
    let touched = fs::read_dir(sandbox.store().join("projects")).expect("records").map(|entry| entry.expect("a file"));
    for record in touched {
        let text = fs::read_to_string(record.path()).expect("a record");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        value["last_touch"] = (last_prune - 20 * 86_400).into();
        fs::write(record.path(), value.to_string()).expect("a record");
    }
    let prune = |args: &[&str]| piton(&sandbox, ["prune", "--retention-days", "0"].iter().chain(args));
    let plan = prune(&["--dry-run"]).done();
    assert!(plan.stdout.contains("with the marks works"), "{plan:?}");
    let asks = |ran: Ran| assert!(ran.code() == 1 && ran.stdout.contains("works"), "{ran:?}");
    asks(prune(&[]));
    asks(piton(&sandbox, ["prune", "--forget", other.to_str().expect("UTF-8")]));
    asks(piton(&sandbox, ["clear"]));
    fs::write(sandbox.base().join(".last_prune"), last_prune.to_string()).expect("a file");
    let pruned = piton(&sandbox, ["maintain", "--json"]).done().json();
    assert_eq!(pruned["report"]["deleted_stale"], 1, "the other project has no mark: {pruned}");
    let left = String::from_utf8(sandbox.store_git(&["for-each-ref", "refs/piton"])).expect("text");
    assert!(left.contains("/marks/works"), "{left}");
    assert_eq!(known(), 1);
    prune(&["--yes"]).done();
    assert_eq!(known(), 0);
    let refs = sandbox.store_git(&["for-each-ref", "refs/piton"]);
    assert_eq!(String::from_utf8_lossy(&refs), "");
}

/// X1, X2.
#[test]
fn a_purge_rewrites_marked_checkpoints_too() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", SECRET);
    take(&sandbox, 0);
    take(&sandbox, 1);
    piton(&sandbox, ["mark", "1", "beyond"]).done();
    for number in 2..6 {
        take(&sandbox, number);
    }
    fs::remove_file(sandbox.project().join("keys")).expect("a file");
    let clean = take(&sandbox, 6);
    piton(&sandbox, ["mark", "2", "within"]).done();
    let planned = piton(&sandbox, ["purge", "keys", "--dry-run", "--json"]).done().json();
    let report = piton(&sandbox, ["purge", "keys", "--yes", "--json"]).done().json();
    assert_eq!(planned["checkpoints"], report["rewritten"].as_array().expect("a list").len());
    assert_eq!((report["gone"].as_u64(), report["still_held"].as_array().map(Vec::len)), (Some(1), Some(0)));
    assert_eq!(found(&sandbox, SECRET.as_bytes()), [""; 0]);
    let rows = marks(&sandbox);
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_ne!(rows[0].0, clean);
    assert_eq!(rows[1].1, ["within"]);
    assert_eq!(rows[3].1, ["beyond"]);
    assert_eq!(sandbox.held_by(&rows[3].0).len(), 1);
    sandbox.assert_store_is_whole();
    piton(&sandbox, ["verify"]).done();
}

/// Rewrites the newest `count` commits as Hermes' own prune does: tree, time and subject stay.
fn rewrite(sandbox: &Sandbox, count: usize) {
    let project = project(sandbox);
    let text = |args: &[&str]| String::from_utf8(sandbox.store_git(args)).expect("text").trim().to_owned();
    let newest = text(&["rev-list", &format!("--max-count={count}"), &format!("refs/hermes/{project}")]);
    let mut parent = None;
    for id in newest.lines().rev() {
        let tree = text(&["rev-parse", &format!("{id}^{{tree}}")]);
        let (date, subject) =
            (text(&["log", "-1", "--format=%ad", "--date=raw", id]), text(&["log", "-1", "--format=%s", id]));
        let mut git = Command::new("git");
        git.arg("--git-dir").arg(sandbox.store()).args(["commit-tree", &tree, "-m", &subject]);
        git.args(parent.iter().flat_map(|parent: &String| ["-p", parent]));
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "hermes").env(format!("GIT_{who}_EMAIL"), "h@local");
            git.env(format!("GIT_{who}_DATE"), &date);
        }
        let made = git.output().expect("git");
        assert!(made.status.success(), "{made:?}");
        parent = Some(String::from_utf8(made.stdout).expect("an id").trim().to_owned());
    }
    sandbox.store_git(&["update-ref", &format!("refs/hermes/{project}"), &parent.expect("a commit")]);
}

#[test]
fn a_mark_is_found_again_after_another_program_rewrote_the_commits() {
    let sandbox = Sandbox::new();
    let taken: Vec<_> = (0..3).map(|number| take(&sandbox, number)).collect();
    piton(&sandbox, ["mark", &taken[1], "middle"]).done();
    piton(&sandbox, ["mark", &taken[0], "oldest"]).done();
    let held = sandbox.held_by(&taken[1]);
    rewrite(&sandbox, 2);
    sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
    let rows = marks(&sandbox);
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_ne!(rows[0].0, taken[2]);
    assert_eq!(rows[1], (taken[1].clone(), vec!["middle".to_owned()]), "it has the facts that the other lost");
    assert_eq!(rows[2], (taken[0].clone(), vec!["oldest".to_owned()]));
    assert!(sandbox.held_by(&taken[1]) == held);
    assert_eq!(piton(&sandbox, ["mark", "2", "middle", "--json"]).done().json()["outcome"], "unchanged");
    for number in 3..8 {
        take(&sandbox, number);
    }
    assert_eq!(marked(&sandbox).len(), 2);
    sandbox.assert_store_is_whole();
}

#[test]
fn a_mark_whose_checkpoint_is_gone_is_shown_as_unavailable_and_repaired() {
    let sandbox = Sandbox::new();
    take(&sandbox, 0);
    piton(&sandbox, ["mark", "1", "works"]).done();
    let file = sandbox.store().join(format!("refs/piton/{}/marks/works", project(&sandbox)));
    fs::write(&file, format!("{}\n", "07".repeat(20))).expect("a ref");
    let list = piton(&sandbox, ["rollback"]).done();
    assert!(list.stderr.contains("the checkpoint marked works is unavailable"), "{list:?}");
    let restored = piton(&sandbox, ["restore", "works"]);
    assert!(restored.code() != 0 && restored.stderr.contains("missing or damaged"), "{restored:?}");
    assert_ne!(piton(&sandbox, ["verify"]).code(), 0);
    piton(&sandbox, ["repair"]);
    assert!(!file.exists());
    piton(&sandbox, ["verify"]).done();
    assert_eq!(marks(&sandbox).len(), 1);
}

/// Version 0.1 cuts a history and leaves the marked checkpoint behind the cut as it is.
#[test]
fn a_history_cut_by_version_0_1_keeps_its_marks() {
    let sandbox = Sandbox::new();
    let taken: Vec<_> = (0..3).map(|number| take(&sandbox, number)).collect();
    piton(&sandbox, ["mark", &taken[1], "works"]).done();
    fs::write(sandbox.store().join("shallow"), format!("{}\n", taken[2])).expect("a file");
    sandbox.assert_store_is_whole();
    assert_eq!(ids(&sandbox), [taken[2].clone(), taken[1].clone()]);
    if let Some(older) = older(&sandbox) {
        let older = older.with_max_snapshots(3);
        for number in 10..16 {
            sandbox.write("count", number.to_string());
            older.run(&["take", "--json"]);
        }
        assert_eq!(older.run(&["rollback", "--json"]).json().as_array().map(Vec::len), Some(3));
        older.run(&["restore", "2"]);
        older.run(&["prune"]);
        sandbox.assert_store_is_whole();
        assert!(has(&sandbox, &taken[1]));
    }
    for number in 3..8 {
        take(&sandbox, number);
    }
    piton(&sandbox, ["prune"]).done();
    assert_eq!(marked(&sandbox), [(taken[1].clone(), vec!["works".to_owned()])]);
    assert!(!has(&sandbox, &taken[0]), "nothing older is kept for the sake of a mark");
    sandbox.assert_store_is_whole();
}

/// A history that the next take cuts, with a mark at the cut.
struct AtTheCut {
    sandbox: Sandbox,
    args: &'static [&'static str],
    held: BTreeMap<String, Files>,
}

impl AtTheCut {
    fn new(args: &'static [&'static str]) -> Self {
        let sandbox = Sandbox::new();
        take(&sandbox, 0);
        piton(&sandbox, ["mark", "1", "works"]).done();
        take(&sandbox, 1);
        take(&sandbox, 2);
        sandbox.write("count", "3");
        let held = ids(&sandbox).iter().map(|id| (id.clone(), sandbox.held_by(id))).collect();
        Self { sandbox, args, held }
    }
}

impl Scene for AtTheCut {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.to_vec()
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        vec![("PITON_MAX_SNAPSHOTS", "3")]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
    }

    fn check(&self, after: &After<'_>) {
        answer(after);
        self.sandbox.assert_store_is_whole();
        for (id, held) in &self.held {
            assert!(!ids(&self.sandbox).contains(id) || self.sandbox.held_by(id) == *held, "{after:?}");
        }
        let oldest = ids(&self.sandbox).pop();
        let is_marked = marked(&self.sandbox).iter().any(|(_, marks)| marks.contains(&"works".to_owned()));
        assert!(is_marked || self.args[0] != "take", "{after:?}");
        for number in 4..9 {
            take(&self.sandbox, number);
        }
        piton(&self.sandbox, ["verify"]).done();
        assert!(!is_marked || ids(&self.sandbox).pop() == oldest, "{after:?}");
        assert_eq!(ids(&self.sandbox).len(), 3 + marked(&self.sandbox).len(), "{after:?}");
        self.sandbox.assert_store_is_whole();
    }
}

#[test]
fn a_take_that_leaves_a_mark_behind_may_be_killed_anywhere() {
    assert!(kill(|| AtTheCut::new(&["take", "--json"])).felt >= 10);
}

#[test]
fn marking_may_be_killed_anywhere() {
    assert!(kill(|| AtTheCut::new(&["mark", "3", "too", "--json"])).felt >= 3);
}

#[test]
fn moving_and_removing_a_mark_may_be_killed_anywhere() {
    assert!(kill(|| AtTheCut::new(&["mark", "3", "works", "--move", "--json"])).felt >= 1);
    assert!(kill(|| AtTheCut::new(&["unmark", "works", "--json"])).felt >= 3);
}

#[test]
fn marking_survives_the_failure_of_any_call() {
    assert!(fail(|| AtTheCut::new(&["mark", "3", "too", "--json"])).felt >= 10);
}

#[test]
fn moving_and_removing_a_mark_survives_the_failure_of_any_call() {
    assert!(fail(|| AtTheCut::new(&["mark", "3", "works", "--move", "--json"])).felt >= 10);
    assert!(fail(|| AtTheCut::new(&["unmark", "works", "--json"])).felt >= 10);
}
