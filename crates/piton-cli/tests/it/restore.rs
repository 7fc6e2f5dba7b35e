//! Restoring through the command: its output, exit codes and refusals.

use std::fs;

use serde_json::{Value, json as value};
use testkit::{Sandbox, clean_command, has_program};

use crate::kit::ids;
use crate::restore_kit::{State, assert_same, exits, in_sandbox, json, leftovers, state_of, text};

/// Creates a project with one checkpoint and changes since. Returns its state then and now.
fn changed(sandbox: &Sandbox) -> (State, State) {
    sandbox.tree("a = one\\n\n d/b = 1\n d/gone\n fi*");
    let before = state_of(&sandbox.project());
    exits(sandbox, &["take", "-m", "before patch"], 0);
    sandbox.tree("a = two\\n\n d/b = 2\n made\n fi* = 2\n file");
    fs::remove_file(sandbox.path("d/gone")).expect("a file");
    (before, state_of(&sandbox.project()))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn rollback_restores_and_undo_and_redo_go_back_and_forth() {
    let sandbox = Sandbox::new();
    let (before, after) = changed(&sandbox);
    let output = exits(&sandbox, &["rollback", "1"], 0);
    assert!(text(&output.stdout).starts_with("Restored to "), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("4 files written, 2 files removed"), "{}", text(&output.stdout));
    assert_same(&state_of(&sandbox.project()), &before, "after rollback");
    exits(&sandbox, &["redo"], 4);
    for _ in 0..2 {
        exits(&sandbox, &["undo"], 0);
        assert_same(&state_of(&sandbox.project()), &after, "after undo");
        exits(&sandbox, &["redo"], 0);
        assert_same(&state_of(&sandbox.project()), &before, "after redo");
    }
    assert!(text(&exits(&sandbox, &["restore", "1"], 0).stdout).contains("Restored"));
}

#[test]
fn rollback_of_a_path_takes_it_literally_and_touches_nothing_else() {
    let sandbox = Sandbox::new();
    let (before, after) = changed(&sandbox);
    exits(&sandbox, &["rollback", "1", "fi*"], 0);
    let mut want = after.clone();
    want.insert(b"fi*".to_vec(), before[&b"fi*"[..]].clone());
    assert_same(&state_of(&sandbox.project()), &want, "after the rollback of one file");
    exits(&sandbox, &["rollback", "2", "./d/", "a"], 0);
    let mut want = before.clone();
    for path in ["made", "file"] {
        want.insert(path.into(), after[path.as_bytes()].clone());
    }
    assert_same(&state_of(&sandbox.project()), &want, "after the rollback of two paths");
    exits(&sandbox, &["undo"], 0);
    exits(&sandbox, &["rollback", "1", "*"], 4);
    exits(&sandbox, &["rollback", "1", "d/*"], 4);
}

#[test]
fn bad_paths_are_refused_and_nothing_is_touched() {
    let sandbox = Sandbox::new();
    let (_, after) = changed(&sandbox);
    let base = state_of(&sandbox.base());
    let absolute = sandbox.path("a").display().to_string();
    for path in
        ["..", "../project/a", "d/../a", "d/..", "", "/etc/passwd", &absolute, ".git/config", "d/.GIT/x", "git~1"]
    {
        for args in [&["rollback", "1", path][..], &["restore", "1", path], &["rollback", "1", "a", path]] {
            exits(&sandbox, args, 2);
        }
        exits(&sandbox, &["diff", "1", "--", path], 2);
    }
    for path in ["nope", "d/nope", "a/b"] {
        exits(&sandbox, &["rollback", "1", path], 4);
    }
    assert_same(&state_of(&sandbox.project()), &after, "the project");
    assert_same(&state_of(&sandbox.base()), &base, "the base");
}

#[test]
fn checkpoints_that_are_not_there_or_make_no_sense_have_their_exit_codes() {
    let sandbox = Sandbox::new();
    exits(&sandbox, &["restore", "1"], 4);
    exits(&sandbox, &["undo"], 4);
    let (_, after) = changed(&sandbox);
    for name in ["2", "0", "99", "ffffffff", "deadbeef"] {
        for args in [&["rollback", name][..], &["restore", name], &["rollback", "diff", name], &["diff", name]] {
            exits(&sandbox, args, 4);
        }
    }
    for name in ["-x", "xyz", "HEAD", "abc", "", "1.5", "HEAD~1", "refs/hermes"] {
        exits(&sandbox, &["restore", "--", name], 2);
    }
    exits(&sandbox, &["restore"], 2);
    exits(&sandbox, &["restore", "--continue", "--abort"], 2);
    exits(&sandbox, &["restore", "--continue"], 4);
    exits(&sandbox, &["restore", "--abort"], 4);
    assert_same(&state_of(&sandbox.project()), &after, "the project");
    let error = json(&sandbox, &["restore", "77"], 4);
    assert_eq!(error["error"]["kind"], "not_found");
    assert_eq!(keys(&error["error"]), ["kind", "message", "hint"]);
}

#[test]
fn a_checkpoint_of_another_project_is_not_found_by_any_command() {
    let sandbox = Sandbox::new();
    changed(&sandbox);
    let other = sandbox.other_project("other");
    fs::write(other.join("theirs"), "t").expect("a file");
    let other = other.display().to_string();
    let id = json(&sandbox, &["-C", &other, "take"], 0)["id"].as_str().expect("an id").to_owned();
    for name in [&id[..], &id[..8]] {
        for args in
            [&["restore", name][..], &["rollback", name], &["diff", name], &["diff", "1", name], &["show", name]]
        {
            exits(&sandbox, args, 4);
        }
    }
}

#[test]
fn a_dry_run_says_what_would_be_done_and_writes_nothing() {
    let sandbox = Sandbox::new();
    let (_, after) = changed(&sandbox);
    let base = state_of(&sandbox.base());
    let plan = json(&sandbox, &["restore", "1", "--dry-run"], 0);
    assert_eq!(plan["write"], value!(["a", "fi*", "d/b", "d/gone"]));
    assert_eq!(plan["remove"], value!(["file", "made"]));
    let output = exits(&sandbox, &["restore", "1", "--dry-run"], 0);
    for line in ["  create  d/gone", "  write   a", "  remove  made"] {
        assert!(text(&output.stdout).contains(line), "{line}: {}", text(&output.stdout));
    }
    assert_same(&state_of(&sandbox.project()), &after, "the project");
    assert_same(&state_of(&sandbox.base()), &base, "the base");
}

#[test]
fn the_keys_of_a_restore_are_those_that_programs_count_on() {
    let sandbox = Sandbox::new();
    changed(&sandbox);
    let report = json(&sandbox, &["restore", "1"], 0);
    let promised = ["outcome", "id", "safety_id", "written", "removed", "left", "rewind"];
    let found = keys(&report);
    assert!(promised.iter().all(|key| found.contains(key)), "{found:?}");
    assert_eq!(report["outcome"], "restored");
    assert_eq!((&report["written"], &report["removed"], &report["left"]), (&value!(4), &value!(2), &value!([])));
    assert_eq!(report["rewind"], Value::Null);
    assert!(report["safety_id"].as_str().is_some_and(|id| id.len() == 40));
    let again = json(&sandbox, &["restore", "2"], 0);
    assert_eq!((&again["outcome"], &again["safety_id"]), (&value!("nothing_to_do"), &Value::Null));
    assert_eq!(again["id"], report["id"]);
    for (verb, outcome) in [("undo", "restored"), ("redo", "restored")] {
        assert_eq!(json(&sandbox, &[verb], 0)["outcome"], outcome);
    }
    sandbox.tree(".gitignore = a\\n\n a = ignored now");
    let partly = json(&sandbox, &["restore", report["id"].as_str().expect("an id"), "a"], 3);
    let reason = "ignored, so its present contents are in no checkpoint";
    let left = value!([{"path": "a", "why": "ignored", "reason": reason}]);
    assert_eq!((&partly["outcome"], &partly["left"]), (&value!("partly"), &left));
}

#[test]
fn rollback_diff_shows_what_changed_since() {
    let sandbox = Sandbox::new();
    changed(&sandbox);
    let output = text(&exits(&sandbox, &["rollback", "diff", "1"], 0).stdout);
    for part in ["-one\n+two\n", " a ", "6 files changed", "diff --git a/d/gone b/d/gone\ndeleted file mode 100644"] {
        assert!(output.contains(part), "{part:?}: {output}");
    }
    let diff = json(&sandbox, &["diff", "1", "--", "a"], 0);
    assert_eq!(keys(&diff)[..5], ["files_changed", "insertions", "deletions", "files", "diff"]);
    assert_eq!((&diff["files_changed"], &diff["insertions"], &diff["deletions"]), (&value!(1), &value!(1), &value!(1)));
    assert_eq!(diff["files"][0]["status"], "modified");
    let other = text(&exits(&sandbox, &["rollback", "diff", "1", "d"], 0).stdout);
    assert!(other.contains("2 files changed") && !other.contains("+two"), "{other}");
}

/// Run as a user who does not own half of the project.
#[test]
fn half_of_the_tree_read_only_is_partly_done_and_undone() {
    let sandbox = Sandbox::new();
    if std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").expect("this process")) != 0
        || !has_program("setpriv")
    {
        assert!(std::env::var_os("PITON_TEST_ALL").is_none(), "this needs the superuser and setpriv");
        return;
    }
    let program = sandbox.copy_of_program(crate::kit::PITON, "");
    let run = |args: &[&str]| {
        let mut command = clean_command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(args);
        in_sandbox(&sandbox, &mut command).output().expect("setpriv runs")
    };
    let give = |to: &str, paths: &[std::path::PathBuf]| {
        assert!(clean_command("chown").args(["-R", to]).args(paths).status().expect("chown runs").success());
    };
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("permissions");
    };
    open(&sandbox.root());
    open(&program);
    sandbox.tree("mine/a = 1\n mine/gone = 1\n theirs/a = 1\n theirs/gone = 1\n theirs/deep/b = 1");
    give("65534:65534", &[sandbox.project(), sandbox.home()]);
    assert!(run(&["take"]).status.success());
    for half in ["mine", "theirs"] {
        sandbox.tree(&format!("{half}/a = 2\n {half}/made = 2"));
        fs::remove_file(sandbox.path(format!("{half}/gone"))).expect("a file");
    }
    give("65534:65534", &[sandbox.path("mine")]);
    give("0:0", &[sandbox.path("theirs")]);
    let before = state_of(&sandbox.project());
    let output = run(&["--json", "restore", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}{}", text(&output.stdout), text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let left: Vec<_> = report["left"].as_array().expect("a list").iter().map(|left| left["path"].as_str()).collect();
    assert_eq!(left, ["theirs/a", "theirs/gone", "theirs/made"].map(Some));
    assert_eq!(fs::read(sandbox.path("mine/a")).expect("a file"), b"1");
    assert_eq!(run(&["undo"]).status.code(), Some(0));
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
}

/// Edits a file once a restore has written the new version beside it, and asserts that the edit is left and reported.
fn assert_leaves_a_late_edit(sandbox: &Sandbox, restore: std::process::Child) {
    let is_ready = |name: std::ffi::OsString| name.as_encoded_bytes().starts_with(b".piton-restore-x");
    let names = || fs::read_dir(sandbox.project()).expect("the project").flatten();
    while !names().any(|entry| is_ready(entry.file_name())) {}
    sandbox.write("a", "written at the last moment");
    let restore = restore.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&restore.stdout).expect("a report");
    let left = value!([{"path": "a", "why": "changed", "reason": "it changed meanwhile"}]);
    assert_eq!((&report["outcome"], &report["left"]), (&value!("partly"), &left));
    assert_eq!(fs::read(sandbox.path("a")).expect("a file"), b"written at the last moment");
    assert_eq!(leftovers(sandbox), [""; 0]);
}

/// The last moment for an editor: the restore has checked the file, and is delayed before it replaces it.
#[test]
fn what_an_editor_writes_at_the_last_moment_is_given_back() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    changed(&sandbox);
    let mut strace = clean_command("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "inject=renameat2:delay_enter=2000000"]);
    strace.args([crate::kit::PITON, "--json", "restore", "1", "a"]);
    let restore = in_sandbox(&sandbox, &mut strace).stdout(std::process::Stdio::piped()).spawn().expect("strace runs");
    assert_leaves_a_late_edit(&sandbox, restore);
}

/// A file system without the exchange (and without renames that do not replace) uses another method, with the same
/// guarantee.
#[test]
fn without_the_exchange_files_are_restored_and_edits_at_the_last_moment_are_given_back() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    changed(&sandbox);
    let strace = |injections: &[&str], args: &[&str]| {
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL"]);
        for injection in injections {
            strace.args(["-e", injection]);
        }
        strace.arg(crate::kit::PITON).args(args).stdout(std::process::Stdio::piped());
        in_sandbox(&sandbox, &mut strace).spawn().expect("strace runs")
    };
    let restore = strace(&["inject=renameat:delay_enter=2000000"], &["--json", "restore", "1", "a"]);
    assert_leaves_a_late_edit(&sandbox, restore);
    let before = state_of(&sandbox.project());
    let target = ids(&sandbox).last().expect("a checkpoint").clone();
    assert!(strace(&[], &["restore", &target]).wait().expect("it ends").success());
    assert_ne!(state_of(&sandbox.project()), before);
    assert_eq!(leftovers(&sandbox), [""; 0]);
    assert!(strace(&[], &["undo"]).wait().expect("it ends").success());
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
}

/// Paths are relative to the project. In one of its directories, the user is told which file is meant.
#[test]
fn a_path_that_is_here_and_in_the_project_is_told_apart() {
    let sandbox = Sandbox::new();
    sandbox.tree("main.rs = one\n src/main.rs = one\n src/only.rs = one\n src/gone.rs = one");
    exits(&sandbox, &["take"], 0);
    sandbox.tree("main.rs = two\n src/main.rs = two\n src/only.rs = two");
    fs::remove_file(sandbox.path("src/gone.rs")).expect("a file");
    let before = state_of(&sandbox.project());
    let below = |args: &[&str], code: i32| {
        let output = exits(&sandbox, &[&["-C", "src"], args].concat(), code);
        (text(&output.stdout), text(&output.stderr))
    };
    // Only in the current directory: nothing is done, and the path to type is printed. The same if it exists only in
    // the checkpoint.
    for name in ["only.rs", "gone.rs"] {
        for args in [&["restore", "1", name][..], &["purge", "-y", name], &["diff", "1", "--", name]] {
            let (_, said) = below(args, 4);
            assert!(said.contains(&format!("hint: type `src/{name}` for the one here")), "{args:?}: {said}");
        }
    }
    let (_, said) = below(&["restore", "1", "."], 2);
    assert!(said.contains("type `src` for all that is here"), "{said}");
    assert_same(&state_of(&sandbox.project()), &before, "after what was refused");
    // In both places: the project's is used, with a warning.
    let (done, said) = below(&["restore", "1", "main.rs"], 0);
    let told = "warning: paths are relative to the project: main.rs is not the one here, which is src/main.rs\n";
    assert_eq!(said, told);
    assert!(done.contains("), only main.rs: 1 file written"), "{done}");
    let read = |path: &str| fs::read_to_string(sandbox.path(path)).expect("a file");
    assert_eq!((read("main.rs").as_str(), read("src/main.rs").as_str()), ("one", "two"));
    // As suggested: no message.
    let (_, said) = below(&["restore", "1", "src/only.rs"], 0);
    assert_eq!((said.as_str(), read("src/only.rs").as_str()), ("", "two"), "the newest is the safety checkpoint");
    let (_, said) = below(&["restore", "2", "src/only.rs"], 0);
    assert_eq!((said.as_str(), read("src/only.rs").as_str()), ("", "one"));
}

#[test]
fn an_undo_names_the_large_file_that_the_restore_made() {
    let sandbox = Sandbox::new();
    let large = vec![b'L'; 2 << 20];
    sandbox.tree("a = one");
    sandbox.write("dir/big", &large);
    exits(&sandbox, &["take"], 0);
    fs::remove_file(sandbox.path("dir/big")).expect("a file");
    // It was never in a checkpoint.
    sandbox.write("own", &large);
    let first = ids(&sandbox).last().expect("a checkpoint").clone();
    let small = |line: &[&str]| {
        let mut command = clean_command(crate::kit::PITON);
        let command = in_sandbox(&sandbox, &mut command).env("PITON_MAX_FILE_SIZE_MB", "1").arg("--json").args(line);
        let output = command.output().expect("piton runs");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), json)
    };
    for paths in [&["dir/big"][..], &[]] {
        let (code, made) = small(&[&["restore", &first], paths].concat());
        assert_eq!((code, &made["written_paths"]), (Some(0), &value!(["dir/big"])), "{made}");
        let (code, undone) = small(&["undo"]);
        let left: Vec<_> = undone["left"].as_array().expect("a list").iter().map(|one| &one["path"]).collect();
        assert_eq!((code, left), (Some(3), vec![&value!("dir/big")]), "{undone}");
        assert_eq!(undone["left"][0]["why"], "too_large", "{undone}");
        assert!(fs::read(sandbox.path("dir/big")).expect("a file") == large);
        fs::remove_file(sandbox.path("dir/big")).expect("a file");
        let (code, again) = small(&["undo"]);
        assert_eq!((code, &again["left"]), (Some(0), &value!([])), "it is gone: {again}");
    }
}
