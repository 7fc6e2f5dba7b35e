//! Settings: their sources, and changing them without losing a comment.

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

/// Hermes reads the same file, and expects a number there.
#[test]
fn auto_is_not_written_to_the_file() {
    let sandbox = Sandbox::new();
    config(&sandbox, &["init"]).done();
    let text = fs::read_to_string(file(&sandbox)).expect("a file");
    assert!(text.contains("\n  # max_snapshots: auto\n"), "{text}");
    config(&sandbox, &["set", "max_snapshots", "50"]).done();
    assert_eq!(config(&sandbox, &["get", "max_snapshots"]).done().stdout, "50\n");
    config(&sandbox, &["set", "max_snapshots", "auto"]).done();
    assert_eq!(config(&sandbox, &["get", "max_snapshots"]).done().stdout, "\"auto\"\n");
    assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), text);
    config(&sandbox, &["set", "max_snapshots", "auto"]).done();
    assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), text);
    let short = with_file("checkpoints: true\n");
    config(&short, &["set", "max_snapshots", "auto"]).done();
    assert_eq!(fs::read_to_string(file(&short)).expect("a file"), "checkpoints: true\n");
}

#[test]
fn lists_and_the_short_form_can_be_set() {
    let sandbox = with_file("checkpoints: true\n");
    config(&sandbox, &["set", "exclude", "*.bin, data/"]).done();
    config(&sandbox, &["set", "exclude", "*.iso"]).done();
    assert_eq!(config(&sandbox, &["get", "exclude"]).done().stdout, "[\"*.iso\"]\n");
    assert_eq!(config(&sandbox, &["get", "enabled"]).done().stdout, "true\n");
}

/// Checks cases of a file, the setting changed in it, and the resulting file.
fn is_edited(cases: &[(&str, [&str; 2], &str)]) {
    for (before, [key, value], after) in cases {
        let sandbox = with_file(before);
        config(&sandbox, &["set", key, value]).done();
        assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), *after, "{key} {value} in {before:?}");
    }
}

#[test]
fn the_file_that_init_writes_takes_every_setting() {
    let sandbox = Sandbox::new();
    config(&sandbox, &["init"]).done();
    for (key, value, shown) in
        [("exclude", "config/keys.json", "[\"config/keys.json\"]"), ("include", "a,b", "[\"a\",\"b\"]")]
    {
        let before = fs::read_to_string(file(&sandbox)).expect("a file");
        config(&sandbox, &["set", key, value]).done();
        assert_eq!(config(&sandbox, &["get", key]).done().stdout, format!("{shown}\n"));
        let after = fs::read_to_string(file(&sandbox)).expect("a file");
        assert_eq!(after, before.replace(&format!("{key}: []"), &format!("{key}: {}", shown.replace(',', ", "))));
    }
}

#[test]
fn the_short_form_becomes_a_section_in_its_place() {
    is_edited(&[
        (
            "a: 1\ncheckpoints: true   # keep me\n# of b\nb: 2\n",
            ["max_files", "9"],
            "a: 1\ncheckpoints:   # keep me\n  enabled: true\n  max_files: 9\n# of b\nb: 2\n",
        ),
        ("checkpoints: ~ # none\nb: 2\n", ["max_files", "9"], "checkpoints: # none\n  max_files: 9\nb: 2\n"),
        ("checkpoints: false", ["enabled", "true"], "checkpoints:\n  enabled: true"),
    ]);
}

#[test]
fn a_list_is_changed_in_its_place_and_keeps_the_comments_of_what_stays() {
    let before = "checkpoints:\n  # what is left out\n  exclude: # mine\n    # big\n    - data/   # 4 GB\n    - '*.iso'   # images\n    # last\n    - tmp/\n  # how many\n  max_files: 7\n";
    let with =
        |list: &str| format!("checkpoints:\n  # what is left out\n  exclude:{list}  # how many\n  max_files: 7\n");
    is_edited(&[
        (
            before,
            ["exclude", "data/,tmp/"],
            &with(" # mine\n    # big\n    - data/   # 4 GB\n    # last\n    - tmp/\n"),
        ),
        (
            before,
            ["exclude", "*.iso,new/"],
            &with(" # mine\n    # big\n    - '*.iso'   # images\n    - \"new/\"\n    # last\n"),
        ),
        (before, ["exclude", "new/"], &with(" # mine\n    # big\n    # last\n    - \"new/\"\n")),
        (before, ["exclude", ""], &with(" [] # mine\n    # big\n    # last\n")),
        ("checkpoints:\n  exclude:\n  - a\n  - b", ["exclude", "b,c"], "checkpoints:\n  exclude:\n  - b\n  - \"c\""),
        (
            "checkpoints:\n  exclude: ['x, y', \"z]\"] # why\n  max_files: 7\n",
            ["exclude", "a"],
            "checkpoints:\n  exclude: [\"a\"] # why\n  max_files: 7\n",
        ),
        (
            "checkpoints:\n  exclude: [\n    x, # it's\n    y\n  ] # why\n  max_files: 7\n",
            ["exclude", "a"],
            "checkpoints:\n  exclude: [\"a\"] # why\n  max_files: 7\n",
        ),
        (
            "checkpoints:\n  exclude: # none\n  max_files: 7\n",
            ["exclude", "a"],
            "checkpoints:\n  exclude: [\"a\"] # none\n  max_files: 7\n",
        ),
        ("checkpoints:\n  exclude: x # no list\n", ["exclude", "a"], "checkpoints:\n  exclude: [\"a\"] # no list\n"),
    ]);
}

#[test]
fn a_section_in_braces_is_changed_within_them() {
    is_edited(&[
        (
            "checkpoints: {enabled: true} # mine\n",
            ["max_files", "9"],
            "checkpoints: {enabled: true, max_files: 9} # mine\n",
        ),
        (
            "checkpoints: {enabled: false, 'max_files': 1}\n",
            ["max_files", "9"],
            "checkpoints: {enabled: false, 'max_files': 9}\n",
        ),
        ("checkpoints: {}\nb: {c: d}\n", ["enabled", "true"], "checkpoints: {enabled: true}\nb: {c: d}\n"),
        (
            "checkpoints: {\n  exclude: [a, 'b, c'], # some, of them\n  enabled: true # on\n}\n",
            ["exclude", "d"],
            "checkpoints: {\n  exclude: [\"d\"], # some, of them\n  enabled: true # on\n}\n",
        ),
    ]);
}

#[test]
fn what_cannot_be_edited_says_what_to_write_by_hand_and_nothing_is_changed() {
    for before in [
        "checkpoints: &x\n  enabled: true\nother: *x\n",
        "{checkpoints: {enabled: true}}\n",
        "checkpoints:\n  exclude:\n    a: 1\n",
    ] {
        let sandbox = with_file(before);
        let ran = config(&sandbox, &["set", "exclude", "a"]);
        assert_eq!(ran.code(), 2, "{ran:?}");
        assert!(ran.stderr.contains("hint: write `exclude: [\"a\"]` under `checkpoints:` there by hand"), "{ran:?}");
        assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), before);
    }
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
        let source = file(&sandbox).display().to_string();
        let source = if key == "max_snapshots" { "default" } else { &source };
        assert_eq!(setting["source"], source, "{key} is written out");
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
        (["set", "max_flies", "7"], "did you mean `max_files`?"),
        (["set", "enabled", "perhaps"], "true or false"),
    ] {
        let ran = config(&sandbox, &args);
        assert_eq!(ran.code(), 2, "{ran:?}");
        assert!(ran.stderr.contains(words), "{ran:?}");
    }
    assert_eq!(fs::read_to_string(file(&sandbox)).expect("a file"), "checkpoints:\n  max_files: 7\n");
}

#[test]
fn an_invalid_value_in_the_file_can_be_fixed_with_config() {
    let sandbox = with_file("checkpoints:\n  max_files: lots\n");
    let shown = config(&sandbox, &[]);
    assert!(shown.stderr.contains("max_files") && shown.code() == 0, "{shown:?}");
    config(&sandbox, &["set", "max_files", "9"]).done();
    assert_eq!(config(&sandbox, &["get", "max_files"]).done().stdout, "9\n");
}

#[test]
fn a_value_that_is_not_used_is_not_where_the_setting_is_from() {
    let sandbox = with_file("checkpoints:\n  max_snapshots: lots\n  max_files: 7\n");
    let mut command = in_dir(&sandbox, &sandbox.project());
    command.env("PITON_MAX_FILES", "many").env("PITON_DEADLINE_MS", "soon").args(["config", "--json"]);
    let shown = run(&mut command).done();
    let from = |key: &str| shown.json()["settings"][key]["source"].clone();
    assert_eq!(from("max_snapshots"), "default");
    assert_eq!(from("max_files"), file(&sandbox).display().to_string());
    assert_eq!(from("deadline_ms"), "default");
    for words in ["max_snapshots: expected a whole number", "PITON_MAX_FILES: max_files: ", "PITON_DEADLINE_MS: "] {
        assert!(shown.stderr.contains(words), "{shown:?}");
    }
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

#[test]
fn a_file_that_is_made_may_be_missing_before() {
    for verb in [&["init"][..], &["set", "max_files", "7"]] {
        let sandbox = Sandbox::new();
        let path = sandbox.root().join("own/config.yaml");
        let ran = run(in_dir(&sandbox, &sandbox.project()).arg("--config").arg(&path).arg("config").args(verb)).done();
        assert_eq!(ran.stderr, "", "{verb:?}");
        assert!(path.is_file());
    }
    let sandbox = Sandbox::new();
    let missing = sandbox.root().join("missing.yaml");
    let ran = run(in_dir(&sandbox, &sandbox.project()).arg("--config").arg(&missing).arg("config"));
    assert!(ran.stderr.contains("missing.yaml"), "a call that only looks is told: {ran:?}");
}
