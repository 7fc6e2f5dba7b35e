//! Files that a restore leaves, moves or creates outside the scope of checkpoints: undo reverts all of it, and the
//! report names all of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json as value};
use testkit::{Sandbox, clean_command};

use crate::restore_kit::{State, assert_same, exits, json, state_of, text};

fn now(sandbox: &Sandbox) -> State {
    state_of(&sandbox.project())
}

fn take(sandbox: &Sandbox) -> String {
    let report = json(sandbox, &["take"], 0);
    report["id"].as_str().expect("an id").to_owned()
}

/// Asserts that undo and redo lead to these two states, twice.
#[track_caller]
fn assert_back_and_forth(sandbox: &Sandbox, before: &State, after: &State) {
    for _ in 0..2 {
        exits(sandbox, &["undo"], 0);
        assert_same(&now(sandbox), before, "after undo");
        exits(sandbox, &["redo"], 0);
        assert_same(&now(sandbox), after, "after redo");
    }
    sandbox.assert_store_is_whole();
}

fn left(report: &Value) -> Vec<(&str, &str)> {
    let list = report["left"].as_array().expect("a list");
    list.iter().map(|left| (left["path"].as_str().expect("text"), left["why"].as_str().expect("text"))).collect()
}

#[test]
fn a_file_or_directory_that_was_made_since_goes_when_it_is_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/b = 1");
    take(&sandbox);
    sandbox.tree("a = 2\n new.txt\n d/new\n made/x\n made/deep/y\n made/empty/\n empty/");
    let before = now(&sandbox);
    for (path, goes, removed) in [
        ("new.txt", &["new.txt"][..], 1),
        ("d/new", &["d/new"], 1),
        ("made/deep/y", &["made/deep/y", "made/deep"], 1),
        ("made", &["made", "made/x", "made/deep", "made/deep/y", "made/empty"], 2),
        ("empty", &["empty"], 0),
    ] {
        let id = json(&sandbox, &["rollback"], 0).as_array().and_then(|list| list.last().cloned()).expect("a list");
        let report = json(&sandbox, &["rollback", id["id"].as_str().expect("an id"), path], 0);
        assert_eq!((&report["outcome"], &report["removed"]), (&value!("restored"), &value!(removed)), "{path}");
        let mut want = before.clone();
        goes.iter().for_each(|path| drop(want.remove(path.as_bytes())));
        assert_same(&now(&sandbox), &want, path);
        assert_back_and_forth(&sandbox, &before, &want);
        exits(&sandbox, &["undo"], 0);
    }
}

#[test]
fn a_path_that_the_checkpoint_left_out_is_left_with_the_reason_and_an_unknown_one_is_not_found() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  keep_ignored: false\n").expect("a file");
    sandbox.tree(".gitignore = *.ig\\ngen/\\n\n a = 1\n x.ig = 1\n gone.ig = 1\n gen/o = 1\n .env = s");
    take(&sandbox);
    sandbox.tree("a = 2\n x.ig = 2\n new.ig = 2\n d/new.ig = 2");
    fs::remove_file(sandbox.path("gone.ig")).expect("a file");
    let before = now(&sandbox);
    for (path, why) in
        [("x.ig", "ignored"), ("gone.ig", "ignored"), ("gen/o", "ignored"), ("gen", "ignored"), (".env", "secret")]
    {
        let report = json(&sandbox, &["rollback", "1", path], 3);
        assert_eq!(left(&report), [(path, "left_out_then")], "{report}");
        assert!(report["left"][0]["reason"].as_str().is_some_and(|reason| reason.contains(why)), "{report}");
    }
    for path in ["nope", "new.ig", "d/nope"] {
        assert_eq!(json(&sandbox, &["rollback", "1", path], 4)["error"]["kind"], "not_found");
    }
    // A new directory that is kept because of the file in it.
    assert_eq!(left(&json(&sandbox, &["rollback", "1", "d"], 3)), [("d/new.ig", "ignored")]);
    assert_same(&now(&sandbox), &before, "nothing was touched");
}

/// One entry of a checkpoint covers more than eight ignored files of a directory. Other files in that directory that
/// appear in the same second are none of them.
#[test]
fn a_file_made_beside_many_ignored_ones_goes_in_the_same_second() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = *.ig\\n\n a = 1\n gone = 1\n d/gone = 1");
    (0..9).for_each(|number| sandbox.write(format!("{number}.ig"), "ignored"));
    take(&sandbox);
    fs::remove_file(sandbox.path("gone")).expect("a file");
    fs::remove_dir_all(sandbox.path("d")).expect("a directory");
    let before = now(&sandbox);
    assert_eq!(json(&sandbox, &["restore", "1"], 0)["written"], 2);
    assert_eq!(json(&sandbox, &["undo"], 0)["removed"], 2);
    assert_same(&now(&sandbox), &before, "undo");

    exits(&sandbox, &["take"], 0);
    // File systems take their times from a clock that advances in steps of at most 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(20));
    sandbox.tree("new = 1\n made/new = 1");
    assert_eq!(json(&sandbox, &["restore", "1"], 0)["removed"], 2);
    assert_same(&now(&sandbox), &before, "restore");
}

#[test]
fn a_report_counts_modes_and_directories() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/b = 1\n e/\n f/g/\n");
    take(&sandbox);
    sandbox.chmod("a", 0o600);
    sandbox.chmod("d", 0o700);
    fs::remove_dir(sandbox.path("e")).expect("a directory");
    fs::remove_dir_all(sandbox.path("f")).expect("a directory");
    sandbox.tree("new/x\n new/y/");
    let plan = exits(&sandbox, &["restore", "1", "--dry-run"], 0);
    let counts =
        "0 files to write, 1 file to remove, 2 modes to change, 3 directories to make, 2 directories to remove";
    assert!(text(&plan.stdout).contains(counts), "{}", text(&plan.stdout));
    let done = exits(&sandbox, &["restore", "1"], 0);
    let counts = "0 files written, 1 file removed, 2 modes changed, 3 directories made, 2 directories removed";
    assert!(text(&done.stdout).contains(counts), "{}", text(&done.stdout));
    let report = json(&sandbox, &["undo"], 0);
    assert_eq!(report["modes"], 2);
    assert_eq!(
        (&report["made_dirs"], &report["removed_dirs"]),
        (&value!(["new", "new/y"]), &value!(["f/g", "f", "e"]))
    );
}

/// R5.
#[test]
fn a_directory_that_went_aside_comes_back_whole() {
    let sandbox = Sandbox::new();
    sandbox.tree("cache = a file\n a = 1");
    take(&sandbox);
    fs::remove_file(sandbox.path("cache")).expect("a file");
    sandbox.tree(".gitignore = cache/\\n\n a = 2\n cache/one = 1\n cache/deep/two = 2\n cache/empty/");
    sandbox.chmod("cache/deep/two", 0o640);
    let before = now(&sandbox);
    let report = json(&sandbox, &["restore", "1", "cache", "--force-uncovered"], 0);
    assert_eq!(report["outcome"], "restored");
    let after = now(&sandbox);
    assert_eq!(fs::read(sandbox.path("cache")).expect("a file"), b"a file");
    let report = json(&sandbox, &["undo"], 0);
    assert_eq!(report["outcome"], "restored");
    assert_same(&now(&sandbox), &before, "after undo");
    exits(&sandbox, &["redo"], 0);
    assert_same(&now(&sandbox), &after, "after redo");
    assert_back_and_forth(&sandbox, &before, &after);
}

/// R5.
#[test]
fn undo_takes_back_what_a_restore_made_out_of_scope() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n x.ig = 1\n gen/o = 1\n gen/deep/p = 1\n gen/empty/\n l.ig -> a\n kept.ig/q = 1");
    take(&sandbox);
    for path in ["x.ig", "l.ig", "gen/o"] {
        fs::remove_file(sandbox.path(path)).expect("a file");
    }
    for path in ["gen/deep", "gen/empty", "kept.ig"] {
        fs::remove_dir_all(sandbox.path(path)).expect("a directory");
    }
    sandbox.tree("gen/mine = 1");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    let config = "checkpoints:\n  exclude: ['*.ig', 'gen/']\n";
    fs::write(sandbox.home().join(".hermes/config.yaml"), config).expect("a file");
    let before = now(&sandbox);
    exits(&sandbox, &["restore", "1"], 0);
    let after = now(&sandbox);
    for path in ["x.ig", "gen/o", "gen/deep/p", "gen/empty", "l.ig", "kept.ig/q", "gen/mine"] {
        assert!(after.contains_key(path.as_bytes()), "{path}: {after:?}");
    }
    assert_eq!(json(&sandbox, &["undo"], 0)["outcome"], "restored");
    assert_same(&now(&sandbox), &before, "after undo");
    exits(&sandbox, &["redo"], 0);
    assert_same(&now(&sandbox), &after, "after redo");
    assert_back_and_forth(&sandbox, &before, &after);
    // A file edited since is in no checkpoint, and stays.
    sandbox.write("x.ig", "edited");
    assert_eq!(left(&json(&sandbox, &["undo"], 3)), [("x.ig", "changed")]);
    assert_eq!(fs::read(sandbox.path("x.ig")).expect("a file"), b"edited");
}

/// R5.
#[test]
fn undo_of_a_path_with_what_went_aside_is_whole() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n gen/o = 1\n gen/p = 1\n d/x = 1");
    take(&sandbox);
    sandbox.tree("a = 2\n gen/o = 2\n gen/p = 2");
    fs::remove_dir_all(sandbox.path("d")).expect("a directory");
    sandbox.tree("d = a file now");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    let config = "checkpoints:\n  exclude: ['gen/', '/d']\n";
    fs::write(sandbox.home().join(".hermes/config.yaml"), config).expect("a file");
    let before = now(&sandbox);
    for path in ["gen", "gen/o", "d"] {
        let id = json(&sandbox, &["rollback"], 0).as_array().and_then(|list| list.last().cloned()).expect("a list");
        let id = id["id"].as_str().expect("an id").to_owned();
        assert_eq!(json(&sandbox, &["restore", &id, path, "--force-uncovered"], 0)["outcome"], "restored");
        let after = now(&sandbox);
        assert_back_and_forth(&sandbox, &before, &after);
        exits(&sandbox, &["undo"], 0);
        assert_same(&now(&sandbox), &before, "after the last undo");
    }
}

#[test]
fn an_ignored_file_with_other_permissions_is_named_and_goes_aside_if_asked() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n x.ig = 1");
    take(&sandbox);
    sandbox.chmod("x.ig", 0o600);
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  exclude: ['*.ig']\n").expect("a file");
    assert_eq!(left(&json(&sandbox, &["restore", "1"], 3)), [("x.ig", "excluded")]);
    assert_eq!(json(&sandbox, &["restore", "1", "--force-uncovered"], 0)["outcome"], "restored");
    let mode = fs::metadata(sandbox.path("x.ig")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn a_dry_run_foresees_what_is_in_the_way() {
    // An ignored file in place of a directory; a directory with an ignored file in place of a file.
    let sandbox = Sandbox::new();
    sandbox.tree("d.ig/x = 1\n f = 1\n a = 1\n e/x = 1");
    let id = take(&sandbox);
    fs::remove_dir_all(sandbox.path("d.ig")).expect("a directory");
    fs::remove_dir_all(sandbox.path("e")).expect("a directory");
    fs::remove_file(sandbox.path("f")).expect("a file");
    sandbox.tree("d.ig = a file\n f/x.ig\n a = 2\n e = a file");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  exclude: ['*.ig']\n").expect("a file");
    let planned = json(&sandbox, &["restore", &id, "--dry-run"], 0);
    let in_the_way = [("d.ig", "in_the_way"), ("d.ig/x", "in_the_way"), ("f", "in_the_way")];
    assert_eq!(left(&planned), in_the_way, "{planned}");
    let done = json(&sandbox, &["restore", &id], 3);
    assert_eq!(left(&done), in_the_way, "{done}");
    assert_eq!((&planned["written"], &planned["removed"]), (&done["written"], &done["removed"]));
    exits(&sandbox, &["undo"], 0);
    // A file outside of the requested paths, where a requested path leads through it.
    let planned = json(&sandbox, &["restore", &id, "e/x", "--dry-run"], 0);
    assert_eq!(left(&planned), [("e", "in_the_way"), ("e/x", "in_the_way")], "{planned}");
    assert_eq!(left(&json(&sandbox, &["restore", &id, "e/x"], 3)), left(&planned));
}

#[test]
fn what_is_left_has_its_reason_in_words() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n x.ig = 1");
    take(&sandbox);
    sandbox.tree(".gitignore = *.ig\\n\n x.ig = 2");
    for args in [&["restore", "1", "x.ig"][..], &["restore", "1", "x.ig", "--dry-run"]] {
        let report = json(&sandbox, args, if args.len() == 3 { 3 } else { 0 });
        assert_eq!(report["left"][0]["reason"], "ignored, so its present contents are in no checkpoint", "{report}");
    }
}

#[test]
fn abort_offers_a_way_back_that_leads_somewhere() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let target = take(&sandbox);
    sandbox.tree("a = 2\n b = 2");
    let before = now(&sandbox);
    let safety = json(&sandbox, &["restore", "1"], 0)["safety_id"].as_str().expect("an id").to_owned();
    // As an interrupted restore leaves it, with a change since.
    sandbox.tree("c = 3");
    let between = now(&sandbox);
    let project = json(&sandbox, &["status"], 0)["projects"][0]["hash"].as_str().expect("a hash").to_owned();
    fs::create_dir_all(sandbox.store().join("restores")).expect("a directory");
    let intent = value!({"target": target, "safety": safety, "paths": []});
    fs::write(sandbox.store().join(format!("restores/{project}.json")), intent.to_string()).expect("a file");
    let words = text(&exits(&sandbox, &["restore", "--abort"], 0).stdout);
    assert_same(&now(&sandbox), &before, "after abort");
    assert!(!words.contains("piton undo"), "{words}");
    let id = words.split("`piton restore ").nth(1).and_then(|rest| rest.split('`').next()).expect("a command");
    exits(&sandbox, &["restore", id], 0);
    assert_same(&now(&sandbox), &between, "after what abort offered");
}

#[test]
fn after_a_partial_restore_the_command_that_is_printed_does_the_same_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n it's/x = 1\n it's/y.ig = 1");
    let id = take(&sandbox);
    sandbox.tree("a = 2\n it's/x = 2\n it's/y.ig = 2");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  exclude: ['*.ig']\n").expect("a file");
    let words = text(&exits(&sandbox, &["restore", "1", "it's"], 3).stdout);
    let command = words.split('`').find(|part| part.starts_with("piton restore ")).expect("a command");
    assert!(command.contains(&id[..7]), "{words}");
    sandbox.tree("it's/x = 3");
    let mut shell = clean_command("sh");
    let program = crate::kit::PITON.replace('\'', "'\\''");
    shell.arg("-c").arg(command.replacen("piton", &format!("'{program}' --json"), 1));
    let output = crate::restore_kit::in_sandbox(&sandbox, &mut shell).output().expect("sh runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((report["id"].as_str(), &report["written_paths"]), (Some(&*id), &value!(["it's/x"])), "{words}");
}

#[test]
fn what_goes_aside_never_takes_a_name_that_is_there() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.ig = 1");
    take(&sandbox);
    sandbox.tree("x.ig = 2");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  exclude: ['*.ig*']\n").expect("a file");
    // Every name that could be used in the next minute.
    let mut date = clean_command("date");
    let seconds = date.arg("+%s").output().expect("date runs").stdout;
    let seconds: i64 = text(&seconds).trim().parse().expect("a number");
    let script = "for s in $(seq $1 $(($1 + 90))); do date -u -d @$s +%Y%m%d-%H%M%S; done";
    let stamps = clean_command("sh").args(["-c", script, "sh", &seconds.to_string()]).output().expect("sh runs");
    for stamp in text(&stamps.stdout).lines() {
        sandbox.write(format!("x.ig.uncovered-{stamp}"), "mine");
    }
    let report = json(&sandbox, &["restore", "1", "--force-uncovered"], 0);
    let name = report["moved_aside"][0]["name"].as_str().expect("a name");
    assert_eq!(
        (fs::read(sandbox.path(name)).expect("a file"), report["outcome"].as_str()),
        (b"2".to_vec(), Some("restored"))
    );
    exits(&sandbox, &["undo"], 0);
    assert_eq!(fs::read(sandbox.path("x.ig")).expect("a file"), b"2");
}

/// R1, R5.
#[test]
fn a_restore_that_changes_ignore_rules_is_done_in_one_run() {
    let sandbox = Sandbox::new();
    sandbox.tree(
        "a = 1\n x.ig = 1\n gen/o = 1\n gen/deep/gone = 1\n sub/.gitignore = *.q\\n\n sub/y.ig = 1\n sub/z.q = 1",
    );
    take(&sandbox);
    let then = now(&sandbox);
    sandbox
        .tree(".gitignore = *.ig\\ngen/\\n\n a = 2\n x.ig = 2\n gen/o = 2\n gen/made = 2\n new.ig = 2\n sub/y.ig = 2");
    fs::remove_dir_all(sandbox.path("gen/deep")).expect("a directory");
    let before = now(&sandbox);
    let planned = json(&sandbox, &["restore", "1", "--dry-run"], 0);
    let report = json(&sandbox, &["restore", "1"], 0);
    assert_eq!(report["rules"]["files"], value!([".gitignore"]), "{report}");
    assert_eq!(report["rules"]["rescoped"], value!(["gen", "new.ig", "sub/y.ig", "x.ig"]), "{report}");
    assert_eq!((&planned["rules"], &planned["written"]), (&report["rules"], &report["written"]));
    assert_same(&now(&sandbox), &then, "after the restore");
    assert_eq!(json(&sandbox, &["restore", "2"], 0)["outcome"], "nothing_to_do");
    assert_back_and_forth(&sandbox, &before, &then);
    exits(&sandbox, &["undo"], 0);
    // Restoring one path restores nothing else.
    let id = json(&sandbox, &["rollback"], 0).as_array().and_then(|list| list.last().cloned()).expect("a list");
    let id = id["id"].as_str().expect("an id").to_owned();
    exits(&sandbox, &["restore", &id, ".gitignore"], 0);
    let mut want = before.clone();
    want.remove(&b".gitignore"[..]);
    assert_same(&now(&sandbox), &want, "after the restore of the rules alone");
}

/// A checkpoint describes in few lines what it left out. Directories covered by a summary are as safe as those that are
/// named.
#[test]
fn an_empty_directory_that_was_left_out_among_many_stays_when_the_rules_change() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    take(&sandbox);
    sandbox.tree("a = 2");
    fs::create_dir_all(sandbox.path("tmp/ lead")).expect("a directory");
    for number in 0..250 {
        fs::create_dir(sandbox.path(format!("d{number}"))).expect("a directory");
    }
    let before = now(&sandbox);
    let config = sandbox.home().join(".hermes/config.yaml");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(&config, "checkpoints:\n  exclude: ['/d*', '/tmp']\n").expect("a file");
    exits(&sandbox, &["restore", "1"], 0);
    fs::remove_file(config).expect("a file");
    exits(&sandbox, &["undo"], 0);
    assert_same(&now(&sandbox), &before, "after undo");
}
