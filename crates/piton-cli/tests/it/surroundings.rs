//! Environment of the command: directory, base, configuration, variables, terminal. And the files that it must leave
//! alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, files_in, has_program, os, walk};

use crate::kit::{PITON, command, ids, in_dir, piton, run, take_works};

/// Returns the project that a take in `dir` is of.
fn project_of(sandbox: &Sandbox, dir: &Path) -> PathBuf {
    let said = run(in_dir(sandbox, dir).arg("take")).done().stdout;
    let line = said.lines().next().expect("a line");
    let (_, rest) = line.split_once(" of ").unwrap_or_else(|| panic!("{said}"));
    rest.rsplit_once(", ").expect("a duration").0.into()
}

#[test]
fn the_project_is_the_nearest_known_or_marked_directory_or_this() {
    let sandbox = Sandbox::new();
    sandbox.tree("plain/deep/a.txt\n marked/package.json\n marked/src/b.txt\n known/c.txt\n known/sub/Cargo.toml");
    let at = |path: &str| sandbox.path(path);
    assert_eq!(project_of(&sandbox, &at("plain/deep")), at("plain/deep"));
    assert_eq!(project_of(&sandbox, &at("marked/src")), at("marked"));
    assert_eq!(project_of(&sandbox, &at("known")), at("known"));
    sandbox.tree("known/c.txt = changed");
    assert_eq!(project_of(&sandbox, &at("known/sub")), at("known/sub"), "a marker that is nearer comes first");
    sandbox.tree("known/below/e.txt");
    assert_eq!(project_of(&sandbox, &at("known/below")), at("known"), "else the known one");
    sandbox.tree("plain/deep/er/d.txt");
    assert_eq!(project_of(&sandbox, &at("plain/deep/er")), at("plain/deep"));
    for marker in [".git/", "pyproject.toml", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg/", "Gemfile"] {
        let dir = marker.trim_matches(|c| c == '.' || c == '/');
        sandbox.tree(&format!("m-{dir}/{marker}\n m-{dir}/x/file"));
        assert_eq!(project_of(&sandbox, &at(&format!("m-{dir}/x"))), at(&format!("m-{dir}")), "{marker}");
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn a_marker_in_the_home_directory_marks_nothing() {
    let sandbox = Sandbox::new();
    let dir = sandbox.home().join("work/dir");
    fs::create_dir_all(&dir).expect("directories");
    fs::create_dir(sandbox.home().join(".git")).expect("a marker");
    fs::write(dir.join("a.txt"), "a").expect("a file");
    assert_eq!(project_of(&sandbox, &dir), dir);
}

#[test]
fn a_directory_is_given_with_capital_c() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let from = |dir: &Path, given: &Path| run(in_dir(&sandbox, dir).arg("-C").arg(given).args(["rollback", "--json"]));
    take_works(&sandbox);
    for (dir, given) in [("/", sandbox.project()), ("home", "../project".into()), ("project", ".".into())] {
        let list = from(&sandbox.root().join(dir), &given).done().json();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{dir} {given:?}");
    }
    let missing = run(command(&sandbox).args(["-C", "nowhere", "take"])).failed(1);
    assert!(missing.stderr.contains("nowhere: there is no such directory"), "{missing:?}");
}

#[test]
fn the_base_is_looked_for_in_order() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let at = |name: &str| sandbox.root().join(name);
    let is_made = |command: &mut Command, base: PathBuf| {
        assert!(!base.exists());
        run(command.arg("take")).done();
        assert!(base.join("store/HEAD").is_file(), "{}", base.display());
    };
    is_made(&mut command(&sandbox), sandbox.base());
    let hermes = |sandbox: &Sandbox| {
        let mut command = command(sandbox);
        command.env("HERMES_HOME", sandbox.root().join("hermes"));
        command
    };
    is_made(&mut hermes(&sandbox), at("hermes/checkpoints"));
    is_made(hermes(&sandbox).env("PITON_BASE", at("piton")), at("piton"));
    is_made(hermes(&sandbox).env("PITON_BASE", at("unused")).arg("--base").arg(at("flag")), at("flag"));
    assert!(!at("unused").exists());
    is_made(hermes(&sandbox).env("PITON_BASE", "").arg("--base").arg(at("flag2")), at("flag2"));
    let mode = |path: PathBuf| fs::metadata(path).expect("a directory").mode() & 0o777;
    assert_eq!((mode(at("flag")), mode(at("flag/store"))), (0o700, 0o700));
}

#[test]
fn a_base_that_holds_other_files_is_refused_and_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let base = sandbox.root().join("photos");
    fs::create_dir(&base).expect("a directory");
    fs::write(base.join("cat.jpg"), "meow").expect("a file");
    let ran = run(command(&sandbox).arg("--base").arg(&base).arg("take")).failed(1);
    assert!(ran.stderr.contains("the directory holds other files (cat.jpg)"), "{ran:?}");
    assert_eq!(fs::read_dir(&base).expect("a directory").count(), 1);
}

#[test]
fn a_base_that_cannot_be_made_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    sandbox.link("link", "nowhere");
    for base in ["/proc/x/y".into(), sandbox.path("link/x"), sandbox.path("a.txt/x"), "/dev/null".into()] {
        let ran = run(command(&sandbox).arg("--base").arg(&base).arg("take")).failed(1);
        assert!(ran.stderr.starts_with("error: cannot "), "{ran:?}");
        let hook = run(command(&sandbox).arg("--base").arg(&base).args(["hook", "plain"]));
        assert_eq!(hook.code(), 0, "{hook:?}");
    }
}

#[test]
fn without_a_home_the_base_must_be_given() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let ran = run(command(&sandbox).env("HOME", "not/absolute").arg("take")).failed(1);
    assert!(ran.stderr.contains("cannot find the base") && ran.stderr.contains("hint: give it with --base"), "{ran:?}");
    let base = sandbox.root().join("base");
    run(command(&sandbox).env("HOME", "not/absolute").arg("take").arg("--base").arg(base)).done();
}

#[test]
fn a_deleted_current_directory_is_an_error_and_nothing_else() {
    let sandbox = Sandbox::new();
    let gone = sandbox.other_project("gone");
    let line = format!("rmdir {} && exec {PITON} \"$@\"", gone.display());
    let shell = |args: &[&str]| {
        fs::create_dir_all(&gone).expect("a directory");
        run(clean_command("sh").env("HOME", sandbox.home()).current_dir(&gone).args(["-c", &line, "sh"]).args(args))
    };
    for args in [&["take"][..], &["rollback"], &["show", "1"], &["-C", ".", "take"]] {
        let ran = shell(args).failed(1);
        assert!(ran.stderr.contains("cannot find the current directory: it was deleted"), "{ran:?}");
    }
    sandbox.tree("a.txt");
    shell(&["take", "-C", &sandbox.project().display().to_string()]).done();
}

fn configure(sandbox: &Sandbox, text: &str) -> PathBuf {
    let path = sandbox.home().join(".hermes/config.yaml");
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(&path, text).expect("a file");
    path
}

#[test]
fn status_shows_what_it_can_with_a_wrong_setting_first_and_forgets_one_that_was_fixed() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    take_works(&sandbox);
    let path = configure(&sandbox, "checkpoints:\n  enabled: true\n  max_files: many\n");
    // The entries that hooks and maintenance record about it are shown and resolved together with it.
    run(command(&sandbox).arg("maintain")).done();
    for args in [&["status", "--json"][..], &["--json"]] {
        let status = piton(&sandbox, args).done().json();
        let problems = status["problems"].as_array().expect("problems");
        let named = format!("{}: line 3: max_files: expected a whole number", path.display());
        assert!(problems[0]["what"].as_str().is_some_and(|what| what.starts_with(&named)), "{problems:?}");
        assert_eq!(problems[0]["hint"], "fix it there, or with `piton config set max_files VALUE`");
        assert_eq!((problems.len(), &status["project_count"]), (1, &1.into()), "{status}");
    }
    piton(&sandbox, ["config", "set", "max_files", "7"]).done();
    assert_eq!(piton(&sandbox, ["status", "--json"]).done().json()["problems"], serde_json::json!([]));
    let status = run(command(&sandbox).env("PITON_MAX_FILES", "x").args(["status", "--json"])).done().json();
    assert_eq!(status["problems"][0]["hint"], "give the variable PITON_MAX_FILES another value, or unset it");
    fs::remove_file(&path).expect("a file");
    fs::create_dir(&path).expect("a directory");
    let status = piton(&sandbox, ["status"]).done().stdout;
    assert!(status.starts_with(&format!("! cannot read {}: ", path.display())), "{status}");
    assert!(status.contains("Projects:        1") && !status.contains("os error"), "{status}");
}

#[test]
fn a_wrong_setting_is_named_by_file_line_and_key() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let path = configure(&sandbox, "model: x\ncheckpoints:\n  enabled: true\n  max_files: many\n");
    let ran = piton(&sandbox, ["take"]).failed(1);
    let words = format!("error: cannot use the configuration {}: line 4: max_files: expected", path.display());
    assert!(ran.stderr.starts_with(&words), "{ran:?}");
    let error = piton(&sandbox, ["take", "--json"]);
    assert_eq!(error.code(), 1);
    assert!(error.json()["error"]["message"].as_str().is_some_and(|text| text.contains("line 4: max_files")));
    for text in ["checkpoints: [", "checkpoints:\n\t- x: {", "checkpoints: 7", "- a\n"] {
        configure(&sandbox, text);
        let ran = piton(&sandbox, ["take"]).failed(1);
        assert!(ran.stderr.contains(&path.display().to_string()), "{text:?}: {ran:?}");
    }
    let ran = run(command(&sandbox).env("PITON_MAX_FILES", "x").args(["take", "--config", "/dev/null"])).failed(1);
    assert!(ran.stderr.contains("PITON_MAX_FILES: max_files: expected a whole number"), "{ran:?}");
    assert!(ran.stderr.contains("hint: give the variable PITON_MAX_FILES another value, or unset it"), "{ran:?}");
    let ran = piton(&sandbox, ["take", "--config", "/nowhere/config.yaml"]).failed(1);
    assert!(ran.stderr.contains("cannot read /nowhere/config.yaml"), "{ran:?}");
    assert!(!sandbox.base().exists());
}

#[test]
fn an_unknown_key_is_a_warning() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let path = configure(&sandbox, "checkpoints:\n  max_fils: 3\n");
    let ran = piton(&sandbox, ["take", "--json"]).done();
    assert_eq!(ran.stderr, format!("warning: {}: line 2: max_fils: unknown key\n", path.display()));
    assert_eq!(ran.json()["outcome"], "taken");
}

#[test]
fn the_environment_comes_before_the_file_and_a_flag_names_another_file() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n b.txt\n c.txt");
    configure(&sandbox, "checkpoints:\n  max_files: 1\n");
    let outcome = |command: &mut Command| run(command.args(["take", "--json"])).done().json()["outcome"].clone();
    assert_eq!(outcome(&mut command(&sandbox)), "skipped");
    assert_eq!(outcome(command(&sandbox).env("PITON_MAX_FILES", "3")), "taken");
    let other = sandbox.root().join("other.yaml");
    fs::write(&other, "checkpoints: {exclude: ['b.*', 'c.*'], max_files: 1}\n").expect("a file");
    assert_eq!(outcome(command(&sandbox).arg("--config").arg(&other)), "taken");
    assert_eq!(sandbox.held_by(&ids_with(&sandbox, &other)[0]).len(), 1);
    let hermes = sandbox.other_project("hermes");
    fs::write(hermes.join("config.yaml"), "checkpoints: {max_files: 2}\n").expect("a file");
    assert_eq!(outcome(command(&sandbox).env("HERMES_HOME", &hermes)), "skipped");
}

fn ids_with(sandbox: &Sandbox, config: &Path) -> Vec<String> {
    let list = run(command(sandbox).arg("--config").arg(config).args(["rollback", "--json"])).done().json();
    list.as_array().expect("a list").iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    take_works(&sandbox);
    sandbox.tree("a.txt = changed");
    for line in [
        "rollback",
        "rollback --json",
        "show 1",
        "diff",
        "diff --json",
        "status --json",
        "man",
        "completions bash",
        "--version --verbose",
        "--help",
        "take",
        "show 9",
    ] {
        let args: Vec<_> = line.split(' ').collect();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (quiet_reader, quiet_writer) = std::io::pipe().expect("a pipe");
        drop((reader, quiet_reader));
        let status = command(&sandbox).args(&args).stdout(writer).stderr(quiet_writer).status().expect("it runs");
        assert_eq!(status.code(), Some(if args == ["show", "9"] { 4 } else { 0 }), "{args:?}");
    }
    let line = format!("{PITON} rollback >&- && {PITON} take >&- 2>&-");
    let ran = run(clean_command("sh").env("HOME", sandbox.home()).current_dir(sandbox.project()).args(["-c", &line]));
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""));
}

#[test]
fn an_answer_that_does_not_get_out_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    for args in [&["take"][..], &["take", "--json"], &["rollback"], &["rollback", "--json"], &["show", "1"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has one");
        let ran = run(command(&sandbox).args(args).stdout(full)).failed(1);
        assert_eq!(ran.stderr, "error: cannot write the answer to stdout: no space left on device\n", "{args:?}");
    }
    take_works(&sandbox);
}

#[test]
fn colours_are_for_terminals() {
    let sandbox = Sandbox::new();
    for args in [&["show", "1"][..], &["rollback"], &["take"], &["bogus"]] {
        let ran = run(command(&sandbox).env("TERM", "xterm-256color").args(args));
        assert!(!(ran.stdout + &ran.stderr).contains('\u{1b}'), "{args:?}");
    }
    if !has_program("script") {
        return;
    }
    let shown = |args: &str, no_color: &str| on_a_terminal(&sandbox, args, &[("NO_COLOR", no_color)]);
    assert!(shown("show 1", "").contains('\u{1b}'));
    assert!(!shown("show 1 --no-color", "").contains('\u{1b}'));
    assert!(!shown("show 1", "1").contains('\u{1b}'));
}

/// Returns the output of the command on a terminal. Its arguments go through a shell.
pub(crate) fn on_a_terminal(sandbox: &Sandbox, args: &str, env: &[(&str, &str)]) -> String {
    let mut script = clean_command("script");
    script.env("HOME", sandbox.home()).env("TERM", "xterm-256color").envs(env.iter().copied());
    run(script.current_dir(sandbox.project()).args(["-qec", &format!("{PITON} {args}"), "/dev/null"])).stdout
}

#[test]
fn what_a_pager_has_shown_is_not_shown_again() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1\n");
    take_works(&sandbox);
    sandbox.write("a", "2\n");
    for pager in ["cat", "cat; exit 1", "no-such-pager"] {
        let shown = on_a_terminal(&sandbox, "diff 1", &[("PAGER", pager)]);
        assert_eq!(shown.matches("+2").count(), 1, "{pager}: {shown}");
    }
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let sandbox = Sandbox::new();
    let evil = "x\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m";
    sandbox.write(evil, "x");
    sandbox.write([evil.as_bytes(), b"\xff.log"].concat(), "left out");
    let dir = sandbox.path(format!("{evil}.d"));
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("Makefile"), "all:").expect("a file");
    configure(&sandbox, "checkpoints:\n  \"a\\e[2Jb\": 1\n");
    let is_plain = |text: &str| !text.chars().any(|c| c.is_control() && c != '\n');
    for args in [&["take", "-v", "-m", evil][..], &["rollback", "-v"], &["show", "1", "-v"], &["show", evil]] {
        for dir in [&sandbox.project(), &dir] {
            let ran = run(in_dir(&sandbox, dir).args(args));
            assert!(is_plain(&ran.stdout) && is_plain(&ran.stderr), "{args:?}: {ran:?}");
        }
    }
    let gone = run(command(&sandbox).arg("-C").arg(os(b"\x1b[2J\xff")).arg("take"));
    assert!(gone.code() == 1 && is_plain(&gone.stderr), "{gone:?}");
    // Without a terminal, escape sequences are removed from all output: only a terminal shows which of them are piton's
    // own.
    if !has_program("script") {
        return;
    }
    sandbox.write("another", "change");
    for args in [
        "take -v -m \"$EVIL\"",
        // The list: with a stdin to type on, this would be the picker.
        "rollback < /dev/null",
        "show 1 -v",
        "show \"$EVIL\"",
        "-C \"$EVIL.d\" rollback < /dev/null",
        "-C \"$EVIL\" take",
    ] {
        let shown = on_a_terminal(&sandbox, args, &[("EVIL", evil)]);
        let sequences = ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{9b}"];
        assert!(!shown.is_empty() && !sequences.iter().any(|bytes| shown.contains(bytes)), "{args}: {shown:?}");
    }
}

#[test]
fn the_environment_of_git_changes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a.txt = one\\r\\n\n .gitattributes = * text=auto\\n\n sub/b.txt");
    let nonsense = [
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_WORK_TREE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
        "GIT_NAMESPACE",
        "GIT_SHALLOW_FILE",
        "GIT_REPLACE_REF_BASE",
        "GIT_DEFAULT_HASH",
        "GIT_AUTHOR_DATE",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_DATE",
        "GIT_LITERAL_PATHSPECS",
        "GIT_TRACE",
    ];
    for change in ["one", "two"] {
        sandbox.tree(&format!("sub/b.txt = {change}"));
        let mut take = command(&sandbox);
        for name in nonsense {
            take.env(name, sandbox.root().join("nonsense"));
        }
        let ran = run(take.args(["take", "--json"])).done();
        assert_eq!(ran.stderr, "");
        let report = ran.json();
        let id = report["id"].as_str().expect("an id");
        assert_eq!(sandbox.held_by(id), files_in(&sandbox.project()));
        let who = String::from_utf8(sandbox.store_git(&["log", "-1", "--format=%an %cn", id])).expect("names");
        assert!(!who.contains("nonsense"), "{who}");
    }
    assert!(!sandbox.root().join("nonsense").exists());
    sandbox.assert_store_is_whole();
    assert_eq!(ids(&sandbox).len(), 2);
}

/// Type and permissions, inode, timestamps and contents.
type Traces = (u32, u64, [i64; 4], Vec<u8>);

/// Returns the traces of a directory and of every entry below it.
fn traces_in(dir: &Path) -> BTreeMap<PathBuf, Traces> {
    let mut state = BTreeMap::new();
    let mut note = |path: &Path| {
        let stat = fs::symlink_metadata(path).expect("what was just listed");
        // A hard link to an object of the repository moves its ctime, and nothing else.
        let is_object = stat.is_file() && path.starts_with(dir.join(".git/objects"));
        let changed = if is_object { [0, 0] } else { [stat.ctime(), stat.ctime_nsec()] };
        let times = [stat.mtime(), stat.mtime_nsec(), changed[0], changed[1]];
        let contents = if stat.is_file() { fs::read(path).expect("a file") } else { Vec::new() };
        state.insert(path.to_owned(), (stat.mode(), stat.ino(), times, contents));
    };
    note(dir);
    walk(dir, &mut note);
    state
}

#[test]
fn the_project_and_its_own_git_are_left_as_they_are() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a.txt = one\n sub/b.txt\n node_modules/x.js\n .gitignore = *.tmp\\n\n c.tmp\n link -> a.txt");
    sandbox.project_git(&["add", "."]);
    sandbox.project_git(&["commit", "-qm", "one"]);
    sandbox.project_git(&["config", "core.hooksPath", "/nonexistent"]);
    sandbox.tree("a.txt = two");
    let before = traces_in(&sandbox.project());
    for args in [&["take"][..], &["take"], &["rollback"], &["show", "1"], &["take", "-v", "--json"]] {
        piton(&sandbox, args).done();
    }
    assert!(traces_in(&sandbox.project()) == before, "something in the project changed");
    assert_eq!(json!(ids(&sandbox).len()), Value::from(1));
}
