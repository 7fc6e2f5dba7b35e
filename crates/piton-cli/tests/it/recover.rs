//! `piton recover`: files that checkpoints hold and that are missing now.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Sandbox, os};

use crate::hook_kit::{bash, hook, prompt};
use crate::kit::{Ran, command, ids, piton, run};
use crate::restore_kit::{State, assert_same, exits, leftovers, state_of, text};
use crate::sweep::{After, Scene, fail, kill};

/// Three checkpoints, after each of which a file is lost: `one`, `two/deep` and, since the newest, `three`.
fn three_losses(sandbox: &Sandbox) {
    sandbox.tree("one = 1\n two/deep = 2\n two/kept = 2\n *three = 3\n moved = 4\n old = 1");
    sandbox.chmod("one", 0o600);
    sandbox.chmod("two", 0o750);
    piton(sandbox, ["take"]).done();
    sandbox.write("old", "2");
    piton(sandbox, ["take"]).done();
    fs::remove_file(sandbox.path("one")).expect("a file");
    fs::rename(sandbox.path("moved"), sandbox.path("elsewhere")).expect("a file");
    sandbox.write("two/deep", "2, changed");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p1", "tidy up"));
    hook(sandbox, &["claude"], bash(sandbox, "s", "p1", "rm -r two"));
    fs::remove_dir_all(sandbox.path("two")).expect("a directory");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p2", "go on"));
    fs::remove_file(sandbox.path("three")).expect("a file");
}

fn items(report: &Value) -> Vec<(String, u64)> {
    let item = |item: &Value| (item["path"].as_str().expect("a path").to_owned(), item["row"].as_u64().expect("a row"));
    report["items"].as_array().expect("a list").iter().map(item).collect()
}

fn named(items: &[(&str, u64)]) -> Vec<(String, u64)> {
    items.iter().map(|(path, row)| ((*path).to_owned(), *row)).collect()
}

#[test]
fn what_is_missing_is_listed_with_its_newest_version() {
    let sandbox = Sandbox::new();
    three_losses(&sandbox);
    let since_prompt = piton(&sandbox, ["recover", "--json"]).done().json();
    assert_eq!((items(&since_prompt), &since_prompt["older"]), (named(&[("three", 1)]), &json!(3)));
    assert_eq!(since_prompt["items"][0]["lost"], json!(null));
    let all = piton(&sandbox, ["recover", "--all", "--json"]).done().json();
    let want = [("three", 1), ("two/deep", 2), ("two/kept", 2), ("one", 3)];
    assert_eq!((items(&all), &all["outcome"]), (named(&want), &json!("listed")), "a renamed file is not lost");
    assert_eq!((&all["items"][1]["lost"]["turn"], &all["items"][1]["bytes"]), (&json!("p1"), &json!(10)));
    let since = piton(&sandbox, ["recover", "--since", "2", "--json"]).done().json();
    assert_eq!(items(&since), named(&want[..3]));
    let ran = piton(&sandbox, ["recover"]).done();
    assert!(ran.stdout.contains("  1. three  1 B  since the newest checkpoint"), "{ran:?}");
    assert!(ran.stderr.contains("`piton recover --all` also lists 3 files lost earlier"), "{ran:?}");
    let ran = piton(&sandbox, ["recover", "--all"]).done();
    assert!(ran.stdout.contains("  2. two/deep  10 B  prompt: tidy up"), "{ran:?}");
}

/// U1.
#[test]
fn files_from_several_checkpoints_come_back_in_one_step_and_go_again_by_undo() {
    let sandbox = Sandbox::new();
    three_losses(&sandbox);
    sandbox.write("made since", "stays");
    let before = state_of(&sandbox.project());
    let rows = ids(&sandbox).len();
    let plan = piton(&sandbox, ["recover", "--dry-run", "--json", "one", "two", "three"]).done().json();
    assert_eq!((plan["items"].as_array().map(Vec::len), &plan["recovered"]), (Some(4), &json!([])));
    assert_same(&state_of(&sandbox.project()), &before, "a dry run");
    assert_eq!(ids(&sandbox).len(), rows, "a dry run takes no checkpoint");
    let report = piton(&sandbox, ["recover", "--json", "one", "two", "three"]).done().json();
    assert_eq!(report["outcome"], "recovered");
    let mut back: Vec<&str> =
        report["recovered"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    back.sort_unstable();
    assert_eq!(back, ["one", "three", "two/deep", "two/kept"]);
    assert_eq!(fs::read_to_string(sandbox.path("two/deep")).expect("a file"), "2, changed");
    let after = state_of(&sandbox.project());
    let mut want = before.clone();
    let other = Sandbox::new();
    other.tree("one = 1\n two/kept = 2\n *three = 3");
    other.write("two/deep", "2, changed");
    other.chmod("one", 0o600);
    other.chmod("two", 0o750);
    want.extend(state_of(&other.project()));
    assert_same(&after, &want, "recovered");
    sandbox.assert_store_is_whole();
    piton(&sandbox, ["undo"]).done();
    assert_same(&state_of(&sandbox.project()), &before, "undone");
    piton(&sandbox, ["redo"]).done();
    assert_same(&state_of(&sandbox.project()), &want, "redone");
}

#[test]
fn files_of_one_checkpoint_come_back_without_a_new_row_for_it() {
    let sandbox = Sandbox::new();
    three_losses(&sandbox);
    let before = state_of(&sandbox.project());
    let ran = piton(&sandbox, ["recover", "two"]).done();
    assert!(ran.stdout.starts_with("Recovered 2 files:\n  two/deep\n  two/kept"), "{ran:?}");
    let rows = piton(&sandbox, ["rollback", "--json"]).done().json();
    assert_eq!((rows.as_array().map(Vec::len), &rows[0]["kind"]), (Some(5), &json!("safety")));
    piton(&sandbox, ["undo"]).done();
    assert_same(&state_of(&sandbox.project()), &before, "undone");
}

#[test]
fn of_a_file_that_is_there_the_newest_other_version_comes_back() {
    let sandbox = Sandbox::new();
    three_losses(&sandbox);
    let plan = piton(&sandbox, ["recover", "--dry-run", "--json", "old"]).done().json();
    assert_eq!(items(&plan), named(&[("old", 4)]), "the present version is the newest");
    sandbox.write("old", "3");
    let report = piton(&sandbox, ["recover", "--json", "old"]).done().json();
    assert_eq!(report["items"][0]["replaced"], true);
    assert_eq!(fs::read_to_string(sandbox.path("old")).expect("a file"), "2");
    piton(&sandbox, ["undo"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("old")).expect("a file"), "3", "what was there was saved first");
    let oldest = ids(&sandbox).last().expect("a checkpoint").clone();
    piton(&sandbox, ["recover", "--from", &oldest, "old", "two/deep"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("old")).expect("a file"), "1");
    assert_eq!(fs::read_to_string(sandbox.path("two/deep")).expect("a file"), "2");
}

#[test]
fn what_a_restore_brought_back_is_the_newest_version() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = 1\n other = 1");
    piton(&sandbox, ["take"]).done();
    sandbox.write("file", "2");
    sandbox.write("other", "2");
    piton(&sandbox, ["restore", "1", "file"]).done();
    fs::remove_file(sandbox.path("file")).expect("a file");
    fs::remove_file(sandbox.path("other")).expect("a file");
    piton(&sandbox, ["recover", "file", "other"]).done();
    let read = |path: &str| fs::read_to_string(sandbox.path(path)).expect("a file");
    assert_eq!((read("file"), read("other")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn nothing_lost_and_nothing_known_have_words_codes_and_json() {
    let sandbox = Sandbox::new();
    piton(&sandbox, ["recover"]).failed(4);
    sandbox.tree("file = 1\n dir/x = 1");
    piton(&sandbox, ["take"]).done();
    let ran = piton(&sandbox, ["recover"]).done();
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("Nothing lost: every file of these checkpoints is there\n", "")
    );
    let report = piton(&sandbox, ["recover", "--json"]).done().json();
    assert_eq!((&report["outcome"], &report["items"]), (&json!("nothing_lost"), &json!([])));
    let report = piton(&sandbox, ["recover", "--json", "file", "dir"]).done().json();
    assert_eq!(report["outcome"], "nothing_lost");
    for args in [&["recover", "never"][..], &["recover", "file", "never"], &["recover", "--from", "1", "never"]] {
        let ran = piton(&sandbox, args).failed(4);
        assert!(ran.stderr.contains("no checkpoint holds such a file or directory"), "{ran:?}");
    }
    piton(&sandbox, ["recover", "--since", "7"]).failed(4);
    piton(&sandbox, ["recover", "../file"]).failed(2);
}

#[test]
fn a_lost_name_that_is_not_utf_8_comes_back() {
    let sandbox = Sandbox::new();
    sandbox.write(b"dir/\xff", "1");
    sandbox.tree("file = 1");
    piton(&sandbox, ["take"]).done();
    fs::remove_dir_all(sandbox.path("dir")).expect("a directory");
    let report = piton(&sandbox, ["recover", "--json"]).done().json();
    assert_eq!(report["items"][0]["path_bytes"], "dir/%ff");
    run(command(&sandbox).arg("recover").arg(os(b"dir/\xff"))).done();
    assert_eq!(fs::read(sandbox.path(b"dir/\xff")).expect("a file"), b"1");
}

#[test]
fn a_deleted_project_is_recovered() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = 1\n dir/x = 1");
    piton(&sandbox, ["take"]).done();
    let before = state_of(&sandbox.project());
    fs::remove_dir_all(sandbox.project()).expect("a directory");
    let dir = sandbox.project();
    let dir = dir.to_str().expect("UTF-8");
    let at_root = |args: &[&str]| run(crate::kit::in_dir(&sandbox, &sandbox.root()).args(["-C", dir]).args(args));
    let report = at_root(&["recover", "--json"]).done().json();
    assert_eq!(report["items"].as_array().map(Vec::len), Some(2));
    at_root(&["recover", "file", "dir"]).done();
    assert_same(&state_of(&sandbox.project()), &before, "recovered");
}

/// A recovery from several checkpoints.
struct Recovery {
    sandbox: Sandbox,
    before: State,
    target: State,
}

impl Recovery {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        three_losses(&sandbox);
        let before = state_of(&sandbox.project());
        Self { sandbox, target: before.clone(), before }
    }

    fn is_cut_short(&self) -> bool {
        text(&exits(&self.sandbox, &["rollback"], 0).stderr).contains("was cut short")
    }
}

impl Scene for Recovery {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["--json", "recover", "one", "two", "three"]
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        self.target = state_of(&self.sandbox.project());
        assert_eq!(self.target.len(), self.before.len() + 5);
    }

    fn check(&self, after: &After<'_>) {
        let (sandbox, when) = (&self.sandbox, format!("{after:?}"));
        sandbox.assert_store_is_whole();
        if self.is_cut_short() {
            assert!(!after.is_done(), "{when}");
            exits(sandbox, &["restore", "--abort"], 0);
            assert_same(&state_of(&sandbox.project()), &self.before, &format!("aborted after {when}"));
        }
        let found = state_of(&sandbox.project());
        let is_partly = after.ran.status.code() == Some(3);
        assert!(is_partly || found == self.before || found == self.target, "{when}");
        assert!(is_partly || leftovers(sandbox).is_empty(), "{when}");
        if found != self.target {
            exits(sandbox, &["recover", "one", "two", "three"], 0);
            // A directory that was made and did not get its mode is not missing.
            let but_mode = |mut state: State| state.remove(&b"two"[..]).map(|_| state);
            assert_eq!(but_mode(state_of(&sandbox.project())), but_mode(self.target.clone()), "again after {when}");
        }
        exits(sandbox, &["undo"], 0);
    }
}

#[test]
fn a_kill_anywhere_leaves_a_recovery_that_can_be_repeated() {
    let swept = kill(Recovery::new);
    assert!(swept.felt >= 15, "{swept:?}");
}

#[test]
fn a_failure_anywhere_leaves_a_recovery_that_can_be_repeated() {
    let swept = fail(Recovery::new);
    assert!(swept.felt >= 15, "{swept:?}");
}

/// SPEC 14: files gone or changed.
#[test]
fn a_list_also_has_the_files_that_changed_since_the_last_turn_began() {
    let sandbox = crate::kept_kit::world();
    let piton = |args: &[&str]| crate::kept_kit::piton(&sandbox, args);
    sandbox.write(".gitignore", ".env\n");
    sandbox.write(".env", "KEY=1\n");
    crate::kept_kit::agent_runs(&sandbox, "rm src/main.rs; echo x >> keep.txt; echo KEY=2 > .env");
    let report = piton(&["recover", "--json"]).done().json();
    let items: Vec<_> = report["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| (item["kind"].clone(), item["path"].clone(), item["replaced"].clone()))
        .collect();
    let want = [("file", "src/main.rs", false), ("file", "keep.txt", true), ("local", ".env", true)];
    for (kind, path, is_replaced) in want {
        assert!(items.contains(&(kind.into(), path.into(), is_replaced.into())), "{path}: {items:?}");
    }
    assert_eq!(items[0].1, "src/main.rs", "missing ones first");
    let text = piton(&["recover"]).done().stdout;
    assert!(text.contains("keep.txt") && text.contains("there is another version now"), "{text}");
    for number in 0..70 {
        sandbox.write(format!("many/{number}"), "1");
    }
    crate::kept_kit::agent_runs(&sandbox, "true");
    piton(&["take"]).done();
    crate::kept_kit::hooked(&sandbox, &prompt(&sandbox, "s", "p2", "go"));
    crate::kept_kit::announce(&sandbox, "touch x");
    for number in 0..70 {
        sandbox.write(format!("many/{number}"), "22");
    }
    let report = piton(&["recover", "--json"]).done().json();
    assert_eq!(report["items"].as_array().map(Vec::len), Some(70), "{report}");
    let text = piton(&["recover"]).done().stdout;
    assert!(text.contains("… and 50 more that changed"), "{text}");
}

#[test]
fn a_list_names_what_the_last_turn_lost_in_other_projects() {
    let sandbox = crate::kept_kit::world();
    let piton = |args: &[&str]| crate::kept_kit::piton(&sandbox, args);
    let docs = sandbox.home().join("docs");
    fs::create_dir(&docs).expect("a directory");
    fs::write(docs.join("t"), "text\n").expect("a file");
    crate::kept_kit::agent_runs(&sandbox, "rm -rf ~/docs");
    let report = piton(&["recover", "--json"]).done().json();
    let elsewhere = report["elsewhere"].as_array().expect("a list");
    let here = docs.canonicalize().unwrap_or(docs.clone());
    assert_eq!((&elsewhere[0]["dir"], &elsewhere[0]["files"]), (&here.to_str().into(), &1.into()), "{report}");
    let text = piton(&["recover"]).done().stdout;
    let command = format!("piton -C {} recover", here.display());
    assert!(text.contains(&command) && !text.contains("Nothing lost"), "{text}");
    piton(&["-C", here.to_str().expect("UTF-8"), "recover", "t"]).done();
    assert_eq!(fs::read_to_string(docs.join("t")).expect("a file"), "text\n");
    assert_eq!(piton(&["recover", "--json"]).done().json()["outcome"], "nothing_lost");
}
