//! Completions and manual pages, as shells and `man` see them.

use std::fs;
use std::path::Path;

use testkit::{Sandbox, clean_command, has_program};

use crate::kit::{in_dir, run};

/// Returns the completions that bash offers for the last word.
fn offered_by_bash(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    offered_in(&sandbox.project(), sandbox, words)
}

fn offered_in(dir: &Path, sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let mut command = in_dir(sandbox, dir);
    command.env("PITON_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false").env("_CLAP_IFS", "\n");
    let ran = run(command.arg("--").args(words)).done();
    ran.stdout.lines().map(str::to_owned).collect()
}

fn with_checkpoints() -> Sandbox {
    let sandbox = Sandbox::new();
    for (number, reason) in ["before patch", "before terminal: rm -rf x"].iter().enumerate() {
        fs::write(sandbox.project().join("file"), number.to_string()).expect("a file");
        run(in_dir(&sandbox, &sandbox.project()).args(["take", "-m", reason])).done();
    }
    sandbox
}

#[test]
fn commands_and_checkpoint_numbers_are_offered() {
    let sandbox = with_checkpoints();
    assert!(offered_by_bash(&sandbox, &["piton", "roll"]).contains(&"rollback".to_owned()));
    for command in ["rollback", "restore", "show", "diff"] {
        let offered = offered_by_bash(&sandbox, &["piton", command, ""]);
        assert!(["1", "2"].iter().all(|number| offered.iter().any(|word| word == number)), "{command}: {offered:?}");
    }
}

#[test]
fn the_project_and_the_base_that_the_line_names_are_the_ones_that_are_asked() {
    let sandbox = with_checkpoints();
    let elsewhere = sandbox.root();
    let (dir, base) = (sandbox.project(), sandbox.root().join("other"));
    fs::write(dir.join("file"), "third").expect("a file");
    let mut take = in_dir(&sandbox, &dir);
    run(take.arg("take").arg("--base").arg(&base)).done();
    let numbers = |words: &[&str]| {
        let offered = offered_in(&elsewhere, &sandbox, &[words, &[""]].concat());
        offered.iter().filter(|word| word.parse::<u32>().is_ok()).count()
    };
    let (dir, base) = (dir.to_str().expect("UTF-8"), base.to_str().expect("UTF-8"));
    assert_eq!(numbers(&["piton", "restore"]), 0);
    assert_eq!(numbers(&["piton", "-C", dir, "restore"]), 2);
    assert_eq!(numbers(&["piton", "restore", &format!("-C{dir}")]), 2);
    assert_eq!(numbers(&["piton", "-C", &format!("'{dir}'"), "restore"]), 2, "quoted, as a shell passes it on");
    assert_eq!(numbers(&["piton", "-C", dir, "--base", base, "show"]), 1);
    assert_eq!(numbers(&["piton", "diff", "-C", dir, &format!("--base={base}")]), 1);
    std::os::unix::fs::symlink(dir, sandbox.home().join("there")).expect("a link");
    assert_eq!(numbers(&["piton", "-C", "~/there", "restore"]), 2);
    let offered = offered_in(&elsewhere, &sandbox, &["piton", "-C", ""]);
    assert!(offered.iter().any(|word| word == dir), "known projects: {offered:?}");
}

#[test]
fn paths_are_those_of_the_checkpoint_and_of_the_project() {
    let sandbox = Sandbox::new();
    sandbox.tree("src/main.rs\n src/lib/a.rs\n gone.txt");
    run(in_dir(&sandbox, &sandbox.project()).arg("take")).done();
    fs::remove_file(sandbox.path("gone.txt")).expect("a file");
    sandbox.tree("new.txt\n src/main.rs = changed");
    run(in_dir(&sandbox, &sandbox.project()).arg("take")).done();
    let offered = |words: &[&str]| offered_in(&sandbox.path("src"), &sandbox, words);
    let has = |words: &[&str], wanted: &str| {
        let offered = offered(words);
        assert!(offered.iter().any(|word| word == wanted), "{words:?}: {offered:?}");
    };
    for words in [
        &["piton", "restore", "2", "g"][..],
        &["piton", "rollback", "2", "g"],
        &["piton", "rollback", "diff", "2", "g"],
        &["piton", "diff", "2", "--", "g"],
        &["piton", "purge", "g"],
        &["piton", "restore", "--dry-run", "2", "src/main.rs", "g"],
    ] {
        has(words, "gone.txt");
    }
    assert!(!offered(&["piton", "restore", "1", "g"]).iter().any(|word| word == "gone.txt"), "it is not in there");
    has(&["piton", "restore", "2", "n"], "new.txt");
    has(&["piton", "restore", "2", "s"], "src/");
    has(&["piton", "restore", "2", "src/"], "src/lib/");
    has(&["piton", "restore", "2", "src/m"], "src/main.rs");
    assert_eq!(
        offered(&["piton", "rollback", "diff", ""]).iter().filter(|word| word.parse::<u32>().is_ok()).count(),
        2
    );
    has(&["piton", "hook", "cl"], "claude");
}

#[test]
fn numbers_come_with_their_reasons_where_the_shell_shows_them() {
    let sandbox = with_checkpoints();
    let mut command = in_dir(&sandbox, &sandbox.project());
    command.env("PITON_COMPLETE", "fish").args(["--", "piton", "restore", ""]);
    let offered = run(&mut command).done().stdout;
    let line = offered.lines().find(|line| line.starts_with("1\t")).expect("the newest is offered");
    assert!(line.contains("before terminal: rm -rf x"), "{line}");
}

#[test]
fn every_shell_that_is_there_takes_its_script() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(in_dir(&sandbox, &sandbox.project()).args(["completions", shell])).done().stdout;
        assert!(script.contains("piton"), "{shell}: {script}");
        let path = sandbox.root().join(shell);
        fs::write(&path, script).expect("a file");
        // Only bash is installed everywhere.
        if has_program(shell) {
            let checked = clean_command(shell).arg("-n").arg(&path).output().expect("a shell");
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let sandbox = Sandbox::new();
    let dir = sandbox.root().join("man1");
    let wanted = dir.to_str().expect("UTF-8");
    run(in_dir(&sandbox, &sandbox.project()).args(["man", "--dir", wanted])).done();
    for page in ["piton.1", "piton-take.1", "piton-restore.1", "piton-prune.1", "piton-status.1"] {
        let text = fs::read_to_string(dir.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH piton"), "{page}: {text}");
        assert!(!text.contains(" \\fR]"), "an option without a name for its value: {page}: {text}");
    }
    let page = run(in_dir(&sandbox, &sandbox.project()).arg("man")).done().stdout;
    assert!(page.contains(".SH NAME") && page.contains(r"[\fB\-C\fR \fIDIR\fR]"), "{page}");
}
