//! Kept files come back as they were, only where they belong, and only if the settings allow that they are kept.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{bash, hook_command, prompt, send};
use crate::kept_kit::{
    agent_runs, announce, execute, files_below, hooked, kept_files, large, piton, with_settings, world,
};
use crate::kit::{Ran, in_dir};

/// Waits until the next second: sets and checkpoints have times in seconds.
fn next_second() {
    let past = std::time::SystemTime::now() + std::time::Duration::from_millis(1_100);
    while std::time::SystemTime::now() < past {
        std::thread::yield_now();
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("a file").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// U9.
#[test]
fn no_restore_writes_to_the_repository_or_deletes_from_it() {
    const COMMIT: &str = "git -c user.name=a -c user.email=a@b commit -qam";
    for line in [
        "rm -f .git/index.lock",
        "rm .git/refs/heads/feat; git branch feat main; git pack-refs --all",
        "rm -rf .git/hooks .git/logs",
        "rm -f .git/description .git/info/exclude",
    ] {
        let sandbox = world();
        execute(&sandbox, "git init -q -b main . && git add keep.txt");
        execute(&sandbox, &format!("{COMMIT} one && git branch feat && echo 2 > keep.txt && {COMMIT} two"));
        fs::write(sandbox.project().join(".git/index.lock"), "").expect("a file");
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        next_second();
        announce(&sandbox, line);
        fs::remove_file(sandbox.project().join(".git/index.lock")).expect("a file");
        execute(&sandbox, line);
        execute(&sandbox, "echo other > keep.txt");
        let repository = files_below(&sandbox.project().join(".git"));
        for args in [&["restore", "1", "--yes"][..], &["undo"], &["redo"]] {
            piton(&sandbox, args).done();
            let now = files_below(&sandbox.project().join(".git"));
            let paths =
                |files: &std::collections::BTreeMap<std::path::PathBuf, _>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(paths(&now), paths(&repository), "{line}: {args:?}");
            assert!(now == repository, "{line}: {args:?}");
        }
        assert_eq!(kept_files(&sandbox), [] as [std::path::PathBuf; 0], "{line}: the git state has it");
    }
}

/// Tells the hook about a command with other settings, and returns what `piton status` names as unsaved.
fn announced_with(sandbox: &Sandbox, settings: &[(&str, &str)], line: &str) -> Vec<String> {
    let run = |payload: &str| {
        let mut command = hook_command(sandbox, &["claude"]);
        with_settings(&mut command).envs(settings.iter().copied());
        assert_eq!(send(&mut command, payload).code(), 0);
    };
    run(&prompt(sandbox, "s", "p1", "go"));
    run(&bash(sandbox, "s", "p1", line));
    let status = piton(sandbox, &["status", "--json"]).done().json();
    let unsaved = status["unsaved"].as_array().expect("a list").iter();
    unsaved.map(|event| event["why"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn files_that_the_settings_leave_out_are_not_kept_and_are_named_with_the_setting() {
    let line = "rm .env; echo x > secrets.txt; rm -rf private";
    for (settings, named, kept) in [
        (&[][..], &[][..], 1),
        (&[("PITON_KEEP_IGNORED", "no_secrets")], &[(".env", "keep_ignored"), ("secrets.txt", "keep_ignored")], 1),
        (
            &[("PITON_KEEP_IGNORED", "false")],
            &[(".env", "keep_ignored"), ("secrets.txt", "keep_ignored"), ("private", "keep_ignored")],
            0,
        ),
        (&[("PITON_EXCLUDE", ".env,private")], &[(".env", "exclude"), ("private", "exclude")], 0),
        (
            &[("PITON_KEEP_FILE_SIZE_MB", "0")],
            &[(".env", "keep_file_size_mb"), ("secrets.txt", "keep_file_size_mb")],
            1,
        ),
    ] {
        let sandbox = world();
        sandbox.write(".gitignore", "secrets.txt\nprivate/\n");
        sandbox.write(".env", "KEY=canary");
        sandbox.write("secrets.txt", "canary");
        fs::create_dir(sandbox.project().join("private")).expect("a directory");
        fs::write(sandbox.project().join("private/big.bin"), large(9)).expect("a file");
        let unsaved = announced_with(&sandbox, settings, line);
        for (name, setting) in named {
            let is_it =
                |why: &String| why.contains(name) && why.contains(&format!("the setting {setting} leaves it out"));
            assert!(unsaved.iter().any(is_it), "{settings:?}: {name}: {unsaved:?}");
        }
        assert_eq!(kept_files(&sandbox).len(), kept, "{settings:?}: {:?}", kept_files(&sandbox));
    }
}

#[test]
fn a_version_with_equal_contents_is_not_another_one_and_older_ones_are_reached() {
    let sandbox = world();
    let big = sandbox.project().join("big.bin");
    let now = || fs::read(&big).expect("a file");
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    for line in ["cp copy.bin big.bin", "rm big.bin"] {
        next_second();
        announce(&sandbox, line);
        execute(&sandbox, line);
    }
    let list = piton(&sandbox, &["recover", "--all", "--json"]).done().json();
    let versions: Vec<&Value> =
        list["items"].as_array().expect("items").iter().filter(|item| item["path"] == "big.bin").collect();
    assert_eq!(versions.len(), 2, "each version has a line: {list}");
    let text = piton(&sandbox, &["recover", "--all"]).done().stdout;
    for version in &versions {
        assert!(text.contains(version["from"].as_str().expect("a name")), "{text}");
    }
    piton(&sandbox, &["recover", "big.bin"]).done();
    assert_eq!(now(), large(1), "the newest");
    let report = piton(&sandbox, &["recover", "--json"]).done().json();
    assert_eq!((&report["outcome"], &report["items"]), (&json!("nothing_lost"), &json!([])));
    let text = piton(&sandbox, &["restore", "1", "keep.txt", "--yes"]).done().stdout;
    assert!(!text.contains("differ"), "{text}");
    piton(&sandbox, &["recover", "big.bin"]).done();
    assert_eq!(now(), large(0), "the one before it");
    piton(&sandbox, &["recover", "big.bin"]).done();
    assert_eq!(now(), large(1));
    piton(&sandbox, &["recover", "big.bin", "--from", versions[1]["from"].as_str().expect("a name")]).done();
    assert_eq!(now(), large(0), "by its name");
    assert_eq!(kept_files(&sandbox).len(), 2, "a version that is kept is not kept again");
}

#[test]
fn a_file_that_grew_too_large_for_a_checkpoint_is_kept() {
    for (file, line) in [("grow.dat", "> grow.dat"), ("data/grow.dat", "cp keep.txt data/grow.dat")] {
        let sandbox = world();
        sandbox.write(file, "s");
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        next_second();
        fs::write(sandbox.project().join(file), large(11)).expect("a file");
        announce(&sandbox, line);
        execute(&sandbox, line);
        piton(&sandbox, &["recover", file]).done();
        assert!(fs::read(sandbox.project().join(file)).expect("a file") == large(11), "{file}");
    }
}

#[test]
fn directories_come_back_with_their_permission_bits() {
    let sandbox = world();
    let (ssh, data) = (sandbox.home().join(".ssh"), sandbox.project().join("data"));
    fs::create_dir(&ssh).expect("a directory");
    fs::write(ssh.join("id"), "K").expect("a file");
    set_mode(&ssh, 0o700);
    set_mode(&data, 0o750);
    set_mode(&data.join("deep"), 0o710);
    agent_runs(&sandbox, "rm -rf ~/.ssh data");
    piton(&sandbox, &["recover", "--yes", ssh.to_str().expect("UTF-8")]).done();
    assert_eq!(mode(&ssh), 0o700, "a directory of its own");
    piton(&sandbox, &["recover", "data/deep/other.bin"]).done();
    assert_eq!((mode(&data), mode(&data.join("deep"))), (0o750, 0o710), "around one file");
}

#[test]
fn a_deleted_project_directory_comes_back_with_its_permission_bits() {
    let sandbox = world();
    set_mode(&sandbox.project(), 0o750);
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    let line = format!("cd .. && rm -rf {}", sandbox.project().display());
    announce(&sandbox, &line);
    execute(&sandbox, &line);
    in_home(&sandbox, &["-C", sandbox.project().to_str().expect("UTF-8"), "restore", "1", "--yes"]).done();
    assert_eq!(mode(&sandbox.project()), 0o750);
}

fn in_home(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let mut command: Command = in_dir(sandbox, &sandbox.home());
    with_settings(&mut command).args(args).output().expect("piton").into()
}

#[test]
fn a_restore_with_ignored_files_restores_the_permission_bits_of_their_directories() {
    let sandbox = world();
    sandbox.write(".gitignore", "private/\n");
    let (outer, inner) = (sandbox.project().join("private"), sandbox.project().join("private/keys"));
    fs::create_dir_all(&inner).expect("directories");
    fs::write(inner.join("k"), "K").expect("a file");
    set_mode(&outer, 0o700);
    set_mode(&inner, 0o700);
    agent_runs(&sandbox, "chmod -R 777 private");
    piton(&sandbox, &["restore", "1", "--with-ignored", "--yes"]).done();
    assert_eq!((mode(&outer), mode(&inner)), (0o700, 0o700));
    piton(&sandbox, &["undo"]).done();
    assert_eq!((mode(&outer), mode(&inner)), (0o777, 0o777), "as before");
}

#[test]
fn a_file_with_other_permission_bits_is_recovered() {
    let sandbox = world();
    sandbox.write(".env", "KEY=1");
    let (env, keep) = (sandbox.project().join(".env"), sandbox.project().join("keep.txt"));
    set_mode(&env, 0o600);
    set_mode(&keep, 0o640);
    agent_runs(&sandbox, "chmod 777 .env keep.txt");
    for (path, want) in [(&env, 0o600), (&keep, 0o640)] {
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let report = piton(&sandbox, &["recover", name, "--json"]).done().json();
        assert_eq!((mode(path), texts(&report["recovered"])), (want, vec![name]), "{report}");
    }
}

#[test]
fn a_link_that_was_replaced_comes_back() {
    for line in ["ln -sfn notes.db ~/link", "rm ~/link; echo x > ~/link"] {
        let sandbox = world();
        let link = sandbox.home().join("link");
        symlink("thesis.txt", &link).expect("a link");
        agent_runs(&sandbox, line);
        let after = files_below(&sandbox.home()).remove(&link);
        let report = piton(&sandbox, &["recover", "--yes", "--json", link.to_str().expect("UTF-8")]).done().json();
        assert_eq!(fs::read_link(&link).ok(), Some("thesis.txt".into()), "{line}: {report}");
        assert_eq!(fs::read_to_string(sandbox.home().join("thesis.txt")).expect("a file"), "years of work\n");
        piton(&sandbox, &["recover", "--undo", report["recovery"].as_str().expect("a name")]).done();
        assert_eq!(files_below(&sandbox.home()).remove(&link), after, "{line}");
    }
}

#[test]
fn an_ignored_directory_that_was_replaced_by_a_file_comes_back_once_the_file_is_renamed() {
    let sandbox = world();
    sandbox.write("data/small", "small");
    agent_runs(&sandbox, "rm -rf data && echo x > data");
    let recovered = piton(&sandbox, &["recover", "data"]);
    assert_eq!(recovered.code(), 3, "{recovered:?}");
    let said = format!("{}{}", recovered.stdout, recovered.stderr);
    assert!(said.contains("rename what is in the way, and repeat the command"), "{recovered:?}");
    fs::rename(sandbox.project().join("data"), sandbox.project().join("data.txt")).expect("a file");
    piton(&sandbox, &["recover", "data"]).done();
    assert_eq!(fs::read_to_string(sandbox.project().join("data/small")).expect("a file"), "small");
    assert!(fs::read(sandbox.project().join("data/set.bin")).expect("a file") == large(2));
}

/// A plan names a kept file as left if what is in its way stays.
#[test]
fn a_kept_file_behind_something_that_stays_is_left_by_the_plan_too() {
    let sandbox = world();
    sandbox.write(".gitignore", "data\n");
    agent_runs(&sandbox, "rm -rf data && echo x > data");
    let plan = piton(&sandbox, &["restore", "1", "--dry-run", "--json"]).done().json();
    assert_eq!((texts(&plan["kept"]), texts(&plan["write"])), (vec![], vec![]), "{plan}");
    let left: Vec<_> = plan["left"].as_array().expect("a list").iter().map(|left| &left["path"]).collect();
    assert!(left.contains(&&json!("data/set.bin")), "{plan}");
}

/// Without the `.gitignore`, which goes first, the kept file is in scope.
#[test]
fn an_undo_of_the_restore_of_a_deleted_project_leaves_nothing() {
    let sandbox = world();
    let mut settings = vec![("PITON_MAX_FILE_SIZE_MB", "10")];
    let run = |payload: &str, settings: &[(&str, &str)]| {
        let mut command = hook_command(&sandbox, &["claude"]);
        with_settings(&mut command).envs(settings.iter().copied());
        assert_eq!(send(&mut command, payload).code(), 0);
    };
    let piton = |args: &[&str], settings: &[(&str, &str)]| -> Ran {
        let mut command = in_dir(&sandbox, &sandbox.home());
        with_settings(&mut command).envs(settings.iter().copied());
        let dir = sandbox.project();
        command.args(["-C", dir.to_str().expect("UTF-8")]).args(args).output().expect("piton").into()
    };
    settings.push(("PITON_KEEP_FILE_SIZE_MB", "1"));
    run(&prompt(&sandbox, "s", "p1", "go"), &settings);
    next_second();
    let line = format!("cd .. && rm -rf {}", sandbox.project().display());
    run(&bash(&sandbox, "s", "p1", &line), &settings);
    execute(&sandbox, &line);
    piton(&["restore", "1", "--yes"], &settings).done();
    assert!(fs::read(sandbox.project().join("data/set.bin")).expect("a file") == large(2));
    let undone = piton(&["undo", "--json"], &settings);
    assert_eq!((undone.code(), &undone.json()["left"]), (0, &json!([])), "{undone:?}");
    assert_eq!(files_below(&sandbox.project()).len(), 0);
    piton(&["redo"], &settings).done();
    assert!(fs::read(sandbox.project().join("data/set.bin")).expect("a file") == large(2));
}

#[test]
fn a_name_after_from_that_does_not_exist_is_not_found() {
    let sandbox = world();
    agent_runs(&sandbox, "rm big.bin ~/thesis.txt");
    let thesis = sandbox.home().join("thesis.txt");
    for path in ["big.bin", thesis.to_str().expect("UTF-8")] {
        let ran = piton(&sandbox, &["recover", "--yes", "--from", "k-00000000", path]);
        assert_eq!(ran.code(), 4, "{ran:?}");
        assert!(ran.stderr.contains("nothing was kept under this name"), "{ran:?}");
    }
    let list = piton(&sandbox, &["recover", "--json"]).done().json();
    let big = list["items"].as_array().expect("items").iter().find(|item| item["path"] == "big.bin");
    let from = big.and_then(|item| item["from"].as_str()).expect("a name").to_owned();
    assert_eq!(piton(&sandbox, &["recover", "--from", &from, "copy.bin"]).code(), 4, "another file");
    piton(&sandbox, &["recover", "--from", &from, "big.bin"]).done();
}

#[test]
fn a_recovery_in_another_project_names_the_command_that_takes_it_back() {
    let sandbox = world();
    let docs = sandbox.home().join("docs");
    fs::create_dir(&docs).expect("a directory");
    fs::write(docs.join("a.txt"), "a").expect("a file");
    let run = |args: &[&str]| in_home(&sandbox, &[&["-C", docs.to_str().expect("UTF-8")], args].concat()).done();
    run(&["take"]);
    fs::remove_file(docs.join("a.txt")).expect("a file");
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    let text = piton(&sandbox, &["recover", "--yes", docs.join("a.txt").to_str().expect("UTF-8")]).done();
    assert!(docs.join("a.txt").exists());
    let command = format!("`piton -C {} undo` takes it back", docs.display());
    assert!(text.stdout.contains(&command) || text.stderr.contains(&command), "{text:?}");
    run(&["undo"]);
    assert!(!docs.join("a.txt").exists());
}

/// Everything happens within one second, if the machine is fast enough.
#[test]
fn an_undo_brings_no_kept_file_back_that_was_gone_before_the_restore() {
    let sandbox = world();
    agent_runs(&sandbox, "rm -rf data big.bin keep.txt");
    let before = files_below(&sandbox.project());
    piton(&sandbox, &["restore", "1", "--without-ignored", "--yes"]).done();
    piton(&sandbox, &["undo"]).done();
    assert!(files_below(&sandbox.project()) == before, "{:?}", files_below(&sandbox.project()).keys());
}

#[test]
fn recovered_files_of_a_project_have_relative_paths() {
    let sandbox = world();
    agent_runs(&sandbox, "rm big.bin keep.txt && rm -rf data && echo x > data");
    let report = piton(&sandbox, &["recover", "--json", "big.bin", "keep.txt", "data"]).json();
    assert_eq!(texts(&report["recovered"]), ["keep.txt", "big.bin"], "{report}");
    let left: Vec<_> = report["left"].as_array().expect("a list").iter().map(|left| &left["path"]).collect();
    assert!(left.contains(&&json!("data/set.bin")), "{report}");
    assert!(left.iter().all(|path| path.as_str().is_some_and(|path| !path.starts_with('/'))), "{report}");
}
