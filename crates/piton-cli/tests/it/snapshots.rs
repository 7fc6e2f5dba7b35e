//! The output of every command, for users and as JSON, compared with the files in `snapshots/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use testkit::{Sandbox, clean_command};

use crate::kit::{PITON, run};
use crate::remote_kit;
use crate::transcript::{Transcript, compare, words};

/// Returns the names of all commands, from the reference.
fn commands() -> Vec<String> {
    let page = reference();
    let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## piton ").map(str::to_owned)).collect();
    assert!(names.len() > 20, "{names:?}");
    names
}

fn reference() -> String {
    run(clean_command(PITON).args(["man", "--markdown"]).env("HOME", "/nonexistent").current_dir("/")).done().stdout
}

/// Compares the help at 80 columns. Options of all commands are shown once, in the help of `piton` itself.
#[test]
fn help_of_every_command() {
    let sandbox = Sandbox::new();
    for name in std::iter::once(String::new()).chain(commands()) {
        let mut command = clean_command(PITON);
        command.env("HOME", sandbox.home()).env("COLUMNS", "80").current_dir(sandbox.project());
        let help = run(command.args(words(&name)).arg("--help")).done().stdout;
        let paragraphs = help.split("\n\n").map(str::trim_end);
        let is_shown = |paragraph: &&str| name.is_empty() || !paragraph.starts_with("Options of all commands:");
        let text = paragraphs.filter(is_shown).collect::<Vec<_>>().join("\n\n") + "\n";
        let file = if name.is_empty() { "piton".to_owned() } else { name.replace(' ', "-") };
        compare(&format!("help/{file}.txt"), &text);
    }
}

/// Every help text shows examples, and the exit codes for scripts.
#[test]
fn every_help_has_examples_and_exit_codes() {
    for name in std::iter::once(String::new()).chain(commands()) {
        let mut command = clean_command(PITON);
        let help = run(command.env("HOME", "/nonexistent").current_dir("/").args(words(&name)).arg("--help")).done();
        let (_, examples) = help.stdout.split_once("Example").unwrap_or_else(|| panic!("{name}: no example"));
        let typed = format!("piton {name}");
        assert!(examples.lines().any(|line| line.contains(typed.trim_end())), "{name}: no example of it: {examples}");
        assert!(help.stdout.contains("\nExit codes: 0"), "{name}: no exit codes");
    }
}

#[test]
fn the_reference_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/REFERENCE.md");
    let page = reference();
    if std::env::var_os("PITON_UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &page).expect("a file");
    }
    let is_current = fs::read_to_string(&path).expect("the reference") == page;
    assert!(is_current, "`piton man --markdown > docs/REFERENCE.md` brings it up to date");
}

#[test]
fn the_guide_of_each_agent_is_what_the_program_says() {
    let command = |words: &[&str]| run(clean_command(PITON).env("HOME", "/nonexistent").args(words)).done().stdout;
    let help = command(&["install", "--help"]);
    let names = help.lines().find_map(|line| line.strip_prefix("Agents: ")?.strip_suffix('.')).expect("the agents");
    for name in names.split(", ") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/guide/{name}.md"));
        let page = command(&["man", "--guide", name]);
        if std::env::var_os("PITON_UPDATE_SNAPSHOTS").is_some() {
            fs::write(&path, &page).expect("a file");
        }
        let is_current = fs::read_to_string(&path).expect("the guide") == page;
        assert!(is_current, "`piton man --guide {name} > docs/guide/{name}.md` brings it up to date");
    }
}

/// Every key that a command prints is in the reference.
#[test]
fn the_reference_names_every_key() {
    let page = reference();
    let transcript = Transcript::new();
    transcript.sandbox.tree("a.txt = one\\n");
    let cases = [
        ("take", "take --json"),
        ("rollback", "rollback --json"),
        ("show", "show 1 --json"),
        ("diff", "diff --json"),
        ("restore", "restore 1 --dry-run --json"),
        ("restore", "restore 1 --json"),
        ("status", "status --json"),
        ("prune", "prune --dry-run --json"),
        ("prune", "prune --json"),
        ("config", "config --json"),
        ("config get", "config get max_files --json"),
        ("config set", "config set max_files 9 --json"),
        ("session list", "session list --json"),
        ("session gc", "session gc --json"),
        ("session delete", "session delete x --json"),
        ("doctor", "doctor --no-fire --json"),
        ("purge", "purge a.txt --dry-run --json"),
        ("purge", "purge a.txt --yes --json"),
        ("completions", "completions bash --json"),
        ("man", "man --json"),
        ("clear", "clear --force --json"),
        ("clear-legacy", "clear-legacy --json"),
        ("install", "install claude --json"),
        ("uninstall", "uninstall claude --dry-run --json"),
    ];
    for (command, line) in cases {
        let said = run(&mut transcript.command(line)).json();
        let object = if said.is_array() { said[0].clone() } else { said };
        let section = page.split("\n## piton ").find(|section| section.lines().next() == Some(command));
        let mut section = section.unwrap_or_else(|| panic!("{command} is not in the reference"));
        if let Some(other) = section.split("JSON: as `").nth(1).and_then(|rest| rest.split('`').next()) {
            let other = page.split("\n## piton ").find(|section| section.lines().next() == Some(other));
            section = other.expect("a command that is described");
        }
        let keys: BTreeSet<_> = object.as_object().expect("an object").keys().cloned().collect();
        assert!(!keys.contains("error"), "{line}: {object}");
        let missing: Vec<_> = keys
            .iter()
            .filter(|key| !section.contains(&format!("`{key}`")) && !section.contains(&format!("`[].{key}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?} of {line} are not in the reference");
    }
}

#[test]
fn take() {
    let mut transcript = Transcript::new();
    transcript.piton("take").piton("take --json");
    transcript.sandbox.tree("a.txt = one\\n\n node_modules/x.js\n .env\n src/main.rs = fn main() {}\\n");
    transcript.piton("take -m 'before the big rename'").piton("take").piton("take --json").piton("take --quiet");
    transcript.piton_where("PITON_MAX_FILES", "1", "take").piton_where("PITON_MAX_FILES", "1", "take --json");
    let home = transcript.sandbox.home();
    transcript.piton_in(&home, "take").piton_in(&home, "take --json");
    transcript.sandbox.write(".gitignore", "/*\n");
    transcript.piton("take").piton("take --reson x").piton("take --reson x --json").piton("tkae");
    transcript.piton("take -q -v").piton("-C nowhere take").piton("-C nowhere take --json");
    transcript.check("take");
}

/// Returns a project with a history: three checkpoints by hand, one by an agent.
fn with_history() -> Transcript {
    let transcript = Transcript::new();
    let sandbox = &transcript.sandbox;
    sandbox.tree("a.txt = one\\ntwo\\n\n src/main.rs = fn main() {}\\n");
    run(&mut transcript.command("take")).done();
    sandbox.tree("a.txt = one\\n2\\nthree\\n");
    run(&mut transcript.command("take -m 'before terminal: sed -i s/old/new/ config.py'")).done();
    sandbox.tree("変更.txt = x\\n");
    run(&mut transcript.command("take -m '変更前のファイルをすべて保存する'")).done();
    sandbox.tree("new.txt = new\\n");
    transcript
}

#[test]
fn rollback() {
    let mut transcript = Transcript::new();
    transcript.piton("rollback").piton("rollback --json").piton("rollback 1").piton("rollback 1 --json");
    transcript.check("rollback-without-checkpoints");

    let mut transcript = with_history();
    transcript.piton("rollback").piton("rollback --json").piton("rollback --quiet");
    transcript.piton("rollback diff 2").piton("rollback 2 --dry-run").piton("rollback 2 a.txt").piton("rollback 3");
    transcript.piton("rollback 9").piton("rollback HEAD").piton("rollback 9 --json").piton("rollback 1 nothing.txt");
    transcript.piton("rollback 1 ../x").piton("rolback");
    transcript.check("rollback");
}

#[test]
fn restore_undo_and_redo() {
    let mut transcript = with_history();
    transcript.piton("undo").piton("redo").piton("undo --json").piton("restore").piton("restore --json");
    transcript.piton("restore 2 --dry-run").piton("restore 2 --dry-run --json").piton("restore 2").piton("restore 1");
    transcript.piton("redo").piton("undo").piton("redo").piton("undo --json").piton("restore 1 --quiet");
    transcript.piton("restore --continue").piton("restore --abort --json").piton("restore 1 --abort");
    transcript.check("restore");
}

#[test]
fn diff_and_show() {
    let mut transcript = with_history();
    transcript.piton("diff").piton("diff 3").piton("diff 3 1").piton("diff 3 -- a.txt").piton("diff 3 --json");
    transcript.piton("diff 9").piton("diff 1 1").piton("show 1").piton("show 2 --verbose").piton("show 2 --json");
    transcript.piton("show 9").piton("show").piton("show xyz --json");
    transcript.check("diff-and-show");
}

#[test]
fn status() {
    let mut transcript = Transcript::new();
    transcript.piton("").piton("status --json");
    transcript.check("status-without-a-store");

    let mut transcript = with_history();
    let other = transcript.sandbox.other_project("other");
    fs::write(other.join("b.txt"), "b").expect("a file");
    transcript.piton_in(&other, "take --quiet");
    fs::remove_dir_all(&other).expect("a directory");
    let archive = transcript.sandbox.base().join("legacy-20260506-050616");
    fs::create_dir(&archive).expect("a directory");
    fs::write(archive.join("x"), "x".repeat(5000)).expect("a file");
    transcript.piton("status").piton("list --limit 1").piton("status --verbose").piton("status --json").piton("-q");
    transcript
        .piton("status --limit many")
        .piton("clear-legacy")
        .piton_with("clear-legacy", "y\n")
        .piton("clear-legacy");
    transcript.check("status");
}

/// Two machines are two bases here. The program that talks to the remote is beside the one under test.
#[test]
fn remote() {
    remote_kit::ensure_program();
    let mut transcript = with_history();
    let bucket = format!("file://{}", transcript.sandbox.root().join("bucket").display());
    let (add, join) = (format!("remote add {bucket}"), format!("remote add {bucket} --machine laptop"));
    transcript.piton("push").piton("push --json").piton("remote status").piton("restore box/1");
    run(&mut transcript.command(&format!("{add} --machine box --phrase-out ../phrase"))).done();
    transcript.piton("remote add file:///elsewhere").piton("status").piton("remote status --json").piton("push");
    transcript.piton("push").piton("push --json").piton("remote status").piton("machines");
    transcript.piton("rollback --machine box").piton("rollback --machine box --limit 1");
    transcript
        .piton("verify --remote")
        .piton("verify --remote --json")
        .piton("repair --remote")
        .piton("prune --remote");
    transcript.piton("prune --remote --json").piton("remote remove").piton("remote remove --json");
    let second = |transcript: &mut Transcript, line: &str| {
        transcript.piton_where("PITON_BASE", "../second", line);
    };
    let mut command = transcript.command(&format!("{join} --phrase-file ../phrase"));
    run(command.env("PITON_BASE", "../second")).done();
    for line in [
        "machines",
        "rollback --machine unknown",
        "fetch box/9",
        "fetch box/1",
        "show box/2",
        "diff box/3 box/1",
        "cat box/3 a.txt",
        "restore box/3 a.txt --dry-run",
        "restore box/3 a.txt",
        "restore 1 --project x",
        "remote name website",
        "remote remove --yes",
        "remote remove --yes --json",
    ] {
        second(&mut transcript, line);
    }
    transcript.check("remote");
}

/// Output in a terminal, with colours, at three widths. Nothing else is ever truncated.
#[test]
fn the_list_and_the_status_in_a_terminal() {
    let mut transcript = with_history();
    // The place where paths are cut depends on their length: the snapshot is of sandboxes below /tmp.
    if std::env::temp_dir() != Path::new("/tmp") {
        return;
    }
    let deep = transcript.sandbox.other_project("a/directory/with/a/rather/long/name/変更前のファイル/in/the/middle");
    fs::write(deep.join("b.txt"), "b").expect("a file");
    transcript.piton_in(&deep, "take --quiet");
    for columns in [40, 80, 200] {
        for line in ["rollback", "status", "status --verbose", "rollback diff 3", "take"] {
            if transcript.terminal(columns, line).is_none() {
                return;
            }
        }
    }
    transcript.check("terminal");
}

#[test]
fn prune_clear_and_purge() {
    let mut transcript = Transcript::new();
    transcript.piton("prune").piton("prune --json").piton("clear").piton("clear --json").piton("purge a.txt");
    transcript.sandbox.tree("a.txt = one\\n\n keys.json = secret\\n");
    transcript
        .piton("take")
        .piton("prune --dry-run")
        .piton("prune")
        .piton("prune --json")
        .piton("prune --dry-run --json");
    transcript.piton("purge nothing.txt").piton("purge keys.json --dry-run").piton("purge keys.json");
    transcript.piton("purge keys.json --json").piton_with("purge keys.json", "y\n").piton("purge");
    transcript.piton("clear").piton("clear --json").piton_with("clear", "yes\n").piton("clear --force --json");
    transcript.check("prune-clear-purge");
}

#[test]
fn session() {
    let mut transcript = Transcript::new();
    transcript.piton("session list").piton("session").piton("session read x").piton("session read x --json");
    transcript.piton_with("session write login", "task: fix the login\n");
    transcript.piton_with("session update login --json", "progress: [{step: tests, status: done}]\n");
    transcript.piton("session read login --resume").piton("session list").piton("session list --json");
    transcript.piton_with("session write login --auto", "task: guess\n").piton_with("session write x", "[1, 2]\n");
    transcript.piton("session write ../x").piton("session gc").piton("session gc --json");
    transcript.piton("session delete login").piton("session delete login").piton("session delete login --json");
    transcript.check("session");
}

#[test]
fn config() {
    let mut transcript = Transcript::new();
    transcript.piton("config").piton("config get max_files").piton("config get max_flies");
    transcript
        .piton("config set max-files 7")
        .piton("config set max_files many")
        .piton("config set max_files 9 --json");
    transcript.piton("config get max_files --json").piton("config init").piton_where("PITON_MAX_FILES", "3", "config");
    transcript.check("config");

    let mut transcript = Transcript::new();
    transcript.piton("config init").piton("config --json");
    let path = transcript.sandbox.home().join(".hermes/config.yaml");
    fs::write(&path, "checkpoints:\n  max_files: many\n  max_flies: 3\n").expect("a file");
    transcript.piton("take").piton("take --json").piton("config");
    transcript.check("config-with-mistakes");
}

#[test]
fn install_uninstall_and_doctor() {
    let mut transcript = Transcript::new();
    transcript
        .piton("doctor")
        .piton("doctor --json")
        .piton("install")
        .piton("install cluade")
        .piton("install --json x");
    transcript.piton("install claude --dry-run").piton("install claude").piton("install claude codex");
    transcript.piton("doctor --no-fire").piton("doctor --no-fire --json").piton("uninstall claude --dry-run --json");
    transcript.piton("uninstall claude codex").piton("uninstall claude").piton("install hermes --project");
    transcript.check("install-and-doctor");
}

#[test]
fn what_is_for_programs_anyhow() {
    let mut transcript = Transcript::new();
    transcript.piton("--version").piton("--version --json").piton("completions").piton("completions tcsh");
    transcript.piton("man --dir pages").piton("man --dir pages --json").piton("hook").piton("hook claude");
    transcript.piton_with("hook plain", "{\"event\": \"prompt\"}").piton("--bogus").piton("--bogus --json");
    transcript.check("for-programs");
    let verbose = run(&mut transcript.command("--version --verbose")).done().stdout;
    assert!(verbose.contains("\n| clap | ") && verbose.contains("Licence: MIT OR Apache-2.0\n"), "{verbose}");
}
