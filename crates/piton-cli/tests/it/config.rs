//! Settings: where they come from, and changing them without losing a comment.

use std::fs;
use std::path::PathBuf;

use testkit::Sandbox;

use crate::kit::{Ran, in_dir, run};

fn file(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().join(".hermes/config.yaml")
}

fn with_file(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir_all(file(&sandbox).parent().expect("a directory")).expect("a directory");
    fs::write(file(&sandbox), text).expect("a file");
    sandbox
}

fn config(sandbox: &Sandbox, args: &[&str]) -> Ran {
    run(in_dir(sandbox, &sandbox.project()).arg("config").args(args))
}

#[test]
fn each_value_says_where_it_is_from() {
    let sandbox = with_file("checkpoints:\n  max_files: 7\n  max_snapshots: 3\n");
    let mut command = in_dir(&sandbox, &sandbox.project());
    command.env("PITON_MAX_SNAPSHOTS", "9").args(["--checkpoints", "config", "--json"]);
    let shown = run(&mut command).done().json();
    let of = |key: &str| {
        let setting = &shown["settings"][key];
        (setting["value"].clone(), setting["source"].as_str().expect("a source").to_owned())
    };
    assert_eq!(of("enabled"), (true.into(), "--checkpoints".to_owned()));
    assert_eq!(of("max_snapshots"), (9.into(), "PITON_MAX_SNAPSHOTS".to_owned()));
    assert_eq!(of("max_files"), (7.into(), file(&sandbox).display().to_string()));
    assert_eq!(of("retention_days"), (7.into(), "default".to_owned()));
}

#[test]
fn setting_a_value_keeps_comments_and_order() {
    let before = "# mine\nmodel: x   # the model\ncheckpoints:\n  # how many\n  max_snapshots: 20   # enough\n  enabled: true\nother: [1, 2]\n";
    let sandbox = with_file(before);
    config(&sandbox, &["set", "max_snapshots", "50"]).done();
    assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), before.replace("20 ", "50 "));
    config(&sandbox, &["set", "max-files", "100"]).done();
    let text = fs::read_to_string(file(&sandbox)).expect("a file");
    assert!(text.contains("  enabled: true\n  max_files: 100\nother: [1, 2]\n"), "{text}");
    assert_eq!(config(&sandbox, &["get", "max_files"]).done().stdout, "100\n");
}

#[test]
fn lists_and_the_short_form_can_be_set() {
    let sandbox = with_file("checkpoints: true\n");
    config(&sandbox, &["set", "exclude", "*.bin, data/"]).done();
    config(&sandbox, &["set", "exclude", "*.iso"]).done();
    assert_eq!(config(&sandbox, &["get", "exclude"]).done().stdout, "[\"*.iso\"]\n");
    assert_eq!(config(&sandbox, &["get", "enabled"]).done().stdout, "true\n");
}

#[test]
fn a_file_is_made_where_there_is_none_and_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    config(&sandbox, &["init"]).done();
    let mode = fs::metadata(file(&sandbox)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o077, 0);
    let shown = config(&sandbox, &["--json"]).done().json();
    assert_eq!(shown["settings"]["enabled"]["value"], true);
    for (key, setting) in shown["settings"].as_object().expect("settings") {
        assert_eq!(setting["source"], file(&sandbox).display().to_string(), "{key} is written out");
    }
    let again = config(&sandbox, &["init"]);
    assert_eq!(again.code(), 1);
    assert!(again.stderr.contains("it has one"), "{again:?}");
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_changed() {
    let sandbox = with_file("checkpoints:\n  max_files: 7\n");
    for (args, words) in [
        (["set", "max_files", "many"], "whole number"),
        (["set", "max_flies", "7"], "a similar value exists: 'max_files'"),
        (["set", "enabled", "perhaps"], "true or false"),
    ] {
        let ran = config(&sandbox, &args);
        assert_eq!(ran.code(), 2, "{ran:?}");
        assert!(ran.stderr.contains(words), "{ran:?}");
    }
    assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), "checkpoints:\n  max_files: 7\n");
}

#[test]
fn a_mistake_in_the_file_can_be_mended_with_it() {
    let sandbox = with_file("checkpoints:\n  max_files: lots\n");
    let shown = config(&sandbox, &[]);
    assert!(shown.stderr.contains("max_files") && shown.code() == 0, "{shown:?}");
    config(&sandbox, &["set", "max_files", "9"]).done();
    assert_eq!(config(&sandbox, &["get", "max_files"]).done().stdout, "9\n");
}

#[test]
fn a_file_that_is_named_from_another_directory_is_read_and_changed_there() {
    let sandbox = Sandbox::new();
    let (here, there) = (sandbox.root().join("rel.yaml"), sandbox.path("rel.yaml"));
    fs::write(&here, "checkpoints:\n  max_files: 1\n").expect("a file");
    sandbox.write("rel.yaml", "checkpoints:\n  max_files: 2\n");
    let from_above = |args: &[&str]| {
        let mut command = in_dir(&sandbox, &sandbox.root());
        run(command.arg("-C").arg(sandbox.project()).args(["--config", "rel.yaml", "config"]).args(args)).done().stdout
    };
    assert_eq!(from_above(&["get", "max_files"]), "2\n");
    from_above(&["set", "max_files", "3"]);
    assert_eq!(from_above(&["get", "max_files"]), "3\n");
    assert_eq!(fs::read_to_string(there).expect("a file"), "checkpoints:\n  max_files: 3\n");
    assert_eq!(fs::read_to_string(here).expect("a file"), "checkpoints:\n  max_files: 1\n");
}

#[test]
fn two_at_the_same_moment_change_both_settings() {
    let keys =
        ["max_snapshots", "max_files", "retention_days", "deadline_ms", "max_file_size_mb", "min_interval_hours"];
    for round in 0..10 {
        let sandbox = with_file("checkpoints: true\n");
        let start = |key: &&str| {
            let mut command = in_dir(&sandbox, &sandbox.project());
            crate::kit::spawn_piped(command.args(["config", "set", key, "77"]))
        };
        for child in keys.iter().map(start).collect::<Vec<_>>() {
            Ran::from(child.wait_with_output().expect("it ends")).done();
        }
        for key in keys {
            assert_eq!(config(&sandbox, &["get", key]).done().stdout, "77\n", "{key} in round {round}");
        }
    }
}
