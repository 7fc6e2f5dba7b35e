//! Attacks on the command that no other suite covers. docs/SECURITY.md has the whole list, with the test for each
//! point.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;
use testkit::{Sandbox, clean_command, has_program, walk};

use crate::hook_kit::{bash, event, hook, hook_command, journal, prompt, send};
use crate::kit::{PITON, Ran, command, piton, replace_dir, run, take_works};
use crate::surroundings::on_a_terminal;

/// One call of every command that changes or reads something, in an order that works.
const ALL: &[&[&str]] = &[
    &["take", "-m", "first"],
    &["rollback"],
    &["status"],
    &["show", "1"],
    &["diff", "1"],
    &["restore", "1", "-y"],
    &["undo", "-y"],
    &["session", "write", "task"],
    &["session", "list"],
    &["session", "read", "task"],
    &["install", "claude", "hermes"],
    &["doctor"],
    &["purge", "-y", "a.txt"],
    &["verify", "--read-data"],
    &["repair"],
    &["prune"],
    &["maintain"],
    &["uninstall", "claude", "hermes"],
    &["config"],
];

/// Returns the exit code of one of these if nothing prevents it. An agent that is not hooked up is a problem to doctor.
fn usual_code(args: &[&str]) -> i32 {
    i32::from(args[0] == "doctor")
}

/// Runs a command with a record on stdin, for those that read it.
fn send_to(sandbox: &Sandbox, command: &mut std::process::Command) -> Ran {
    let path = sandbox.root().join("record.yaml");
    fs::write(&path, "task: x\n").expect("a file");
    run(command.stdin(fs::File::open(path).expect("a file")))
}

/// Everything that commands, hooks and maintenance create in the base, with the widest umask.
#[test]
fn everything_in_the_base_is_for_its_owner_alone_under_any_umask() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1\n dir/b.txt");
    let wide = |line: &str, sent: &str| {
        let mut shell = clean_command("sh");
        shell.args(["-c", &format!("umask 0; exec {PITON} {line}")]);
        shell.env("HOME", sandbox.home()).env("PITON_ENABLED", "1").env("TZ", "UTC").current_dir(sandbox.project());
        if sent.is_empty() { send_to(&sandbox, &mut shell) } else { send(&mut shell, sent) }
    };
    for (number, args) in ALL.iter().enumerate() {
        sandbox.write("dir/b.txt", number.to_string());
        let ran = wide(&args.join(" "), "");
        assert_eq!(ran.code(), usual_code(args), "{args:?}: {ran:?}");
    }
    wide("take", "").done();
    wide("restore 1 -y", "").done();
    wide("hook claude", &prompt(&sandbox, "s", "t1", "x")).done();
    wide("hook claude", &bash(&sandbox, "s", "t2", "rm a.txt")).done();
    wide("--base /dev/null/x hook claude", &bash(&sandbox, "s", "t3", "rm a.txt")).done();
    let mut seen = 0;
    for dir in [sandbox.base(), sandbox.home().join(".local")] {
        walk(&dir, &mut |path| {
            let stat = path.symlink_metadata().expect("what was just listed");
            assert_eq!(stat.mode() & 0o077, 0, "{} is {:o}", path.display(), stat.mode());
            seen += 1;
        });
    }
    assert!(seen > 35, "only {seen} things");
    assert_eq!(sandbox.base().metadata().expect("a base").mode() & 0o7777, 0o700);
}

/// A secret that is nowhere else. Different in each place, so that it can be told where it came from.
fn canary(place: &str) -> String {
    format!("canary-{place}-7f3a9c51d2")
}

/// Ignored, kept and git data with secrets: no other user can read a byte of the base, and no file in it shows a secret
/// in plain, except where the files themselves are saved.
#[test]
fn secrets_of_ignored_kept_and_git_data_are_in_no_log_record_or_list() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a.txt = 1");
    sandbox.write(".gitignore", "data/\n");
    sandbox.write(".env", format!("KEY={}\n", canary("env")));
    sandbox.write("data/token.txt", canary("ignored"));
    sandbox.write(".git/info/exclude", canary("git"));
    sandbox.write("dump.sql", format!("{}\n", canary("large")).repeat(60_000));
    let outside = sandbox.home().join("passwords.txt");
    fs::write(&outside, canary("outside")).expect("a file");
    let settings = |command: &mut std::process::Command, sent: &str| {
        send(
            command
                .env("PITON_MAX_FILE_SIZE_MB", "1")
                .env("PITON_KEEP_FILE_SIZE_MB", "1")
                .env("PITON_KEEP_MIN_FREE_MB", "0"),
            sent,
        )
        .done();
    };
    settings(&mut hook_command(&sandbox, &["claude"]), &prompt(&sandbox, "s", "t1", "go"));
    let line = "rm -rf .env data dump.sql ~/passwords.txt .git";
    settings(&mut hook_command(&sandbox, &["claude"]), &bash(&sandbox, "s", "t1", line));
    for path in [sandbox.path(".env"), sandbox.path("dump.sql"), outside.clone()] {
        fs::remove_file(path).expect("a file");
    }
    settings(&mut hook_command(&sandbox, &["claude"]), &event(&sandbox, "s", "t1", "Stop", &json!({})));
    piton(&sandbox, ["recover", "--all"]);
    piton(&sandbox, ["recover", ".env", "dump.sql"]).done();
    piton(&sandbox, ["git", "show", "1"]);
    piton(&sandbox, ["prune"]).done();
    let (mut seen, mut kept) = (0, 0);
    walk(&sandbox.base(), &mut |path| {
        let stat = path.symlink_metadata().expect("what was just listed");
        let below = path.strip_prefix(sandbox.base()).expect("below").to_string_lossy().into_owned();
        let is_kept_data = below.starts_with("local/files/") && below.contains("/data");
        let is_held_object = below.starts_with("local/git/") && below.contains("/held/");
        // Links keep the modes of the user's files, in directories that no other user can enter.
        let is_link = (is_kept_data || is_held_object) && stat.is_file();
        assert!(is_link || stat.mode() & 0o077 == 0, "{} is {:o}", path.display(), stat.mode());
        if !stat.is_file() {
            return;
        }
        seen += 1;
        let bytes = fs::read(path).expect("a file");
        let has_secret = bytes.windows(8).any(|part| {
            part == b"canary-g"
                || part == b"canary-e"
                || part == b"canary-i"
                || part == b"canary-l"
                || part == b"canary-o"
        });
        kept += usize::from(has_secret && is_kept_data);
        let is_git_state = below.starts_with("local/git/") && below.contains("/states/");
        assert!(!has_secret || is_kept_data || is_git_state, "{}", path.display());
    });
    assert!(seen > 30 && kept == 2, "{seen} {kept}");
    assert_eq!(sandbox.base().metadata().expect("a base").mode() & 0o7777, 0o700);
    if has_program("setpriv") {
        let mut other = clean_command("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "ls"]).arg(sandbox.base());
        assert!(!run(&mut other).status.success(), "another user lists the base");
    }
}

/// Plants programs that stock git would run: from the store's own configuration, from the project's, from hooks and
/// attributes.
fn plant_what_git_would_run(sandbox: &Sandbox, marker: &Path) {
    let evil = sandbox.root().join("evil.sh");
    fs::write(&evil, format!("#!/bin/sh\ntouch {}\n", marker.display())).expect("a file");
    fs::set_permissions(&evil, Permissions::from_mode(0o755)).expect("permissions");
    let evil = evil.display();
    let included = sandbox.root().join("included");
    fs::write(&included, format!("[core]\n\tpager = {evil}\n\tfsmonitor = {evil}\n")).expect("a file");
    let config = format!(
        "[include]\n\tpath = {}\n[core]\n\tfsmonitor = {evil}\n\thooksPath = {}\n\tsshCommand = {evil}\n\teditor = {evil}\n\
         \tpager = {evil}\n\taskPass = {evil}\n\talternateRefsCommand = {evil}\n\tworktree = /\n[diff]\n\texternal = {evil}\n\
         [filter \"x\"]\n\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n[gpg]\n\tprogram = {evil}\n[commit]\n\tgpgsign = true\n\
         [extensions]\n\tpartialClone = x\n[remote \"x\"]\n\turl = ext::{evil}\n\tpromisor = true\n",
        included.display(),
        sandbox.root().join("hooks").display(),
    );
    for git_dir in [sandbox.store(), sandbox.path(".git")] {
        let own = fs::read_to_string(git_dir.join("config")).unwrap_or_default();
        fs::write(git_dir.join("config"), own + &config).expect("a file");
        for hooks in [git_dir.join("hooks"), sandbox.root().join("hooks")] {
            fs::create_dir_all(&hooks).expect("a directory");
            for name in [
                "post-commit",
                "pre-commit",
                "reference-transaction",
                "post-checkout",
                "pre-auto-gc",
                "post-index-change",
            ] {
                fs::copy(sandbox.root().join("evil.sh"), hooks.join(name)).expect("a file");
            }
        }
    }
    sandbox.write(".gitattributes", "* filter=x diff=x\n");
}

#[test]
fn nothing_that_a_repository_names_is_run_and_nothing_is_asked_of_a_network() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a.txt = 1");
    take_works(&sandbox);
    let marker = sandbox.root().join("it-was-run");
    plant_what_git_would_run(&sandbox, &marker);
    let log = sandbox.root().join("strace.log");
    for (number, args) in ALL.iter().enumerate().filter(|(_, args)| args[0] != "doctor") {
        sandbox.write("a.txt", number.to_string());
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-e", "trace=execve,execveat,socket,connect", "-o"]).arg(&log).arg(PITON).args(*args);
        let ran = send_to(&sandbox, strace.env("HOME", sandbox.home()).current_dir(sandbox.project()));
        assert_eq!(ran.code(), usual_code(args), "{args:?}: {ran:?}");
        testkit::wait_for_maintenance(&sandbox.root());
        for line in fs::read_to_string(&log).expect("what strace wrote").lines() {
            let is_own = line.contains("+++") || line.contains("---") || line.contains(&format!("execve(\"{PITON}\""));
            assert!(is_own, "{args:?} starts or calls another program: {line}");
        }
    }
    assert!(!marker.exists());
}

/// A repository may contain hooks for agents. Inspecting them must not run the programs that they name.
#[test]
fn doctor_runs_nothing_that_a_project_names() {
    let sandbox = Sandbox::new();
    let marker = sandbox.root().join("it-was-run");
    let evil = sandbox.path("bin/piton");
    sandbox.write("bin/piton", format!("#!/bin/sh\ntouch {}\n", marker.display()));
    sandbox.chmod("bin/piton", 0o755);
    let touch = format!("touch {}", marker.display());
    let lines = [
        format!("{} hook claude", evil.display()),
        format!("{PITON} hook claude; {touch}"),
        format!("{PITON} hook claude $({touch})"),
        format!("{PITON} hook claude \"`{touch}`\""),
        format!("{PITON} hook claude | {touch}"),
        format!("{PITON} hook claude\n{touch}"),
    ];
    for (number, line) in lines.iter().enumerate() {
        let item = json!([{"hooks": [{"type": "command", "command": line}]}]);
        let hooks = json!({"hooks": {"UserPromptSubmit": item, "PreToolUse": item}});
        sandbox.write(".claude/settings.json", hooks.to_string());
        let ran = run(command(&sandbox).args(["doctor", "--json"]));
        let answer = ran.json();
        let claude = answer["agents"].as_array().and_then(|all| all.iter().find(|one| one["agent"] == "claude"));
        // Only the first is a plain call of a program named piton, which is inspected further.
        assert!(claude.is_some_and(|claude| claude["installed"] == (number == 0)), "{line}: {ran:?}");
        assert!(!marker.exists(), "{line} was run");
    }
}

#[test]
fn the_environment_of_git_changes_no_command() {
    let told = |is_evil: bool| {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt = 1");
        let mut all = Vec::new();
        for (number, args) in ALL.iter().enumerate().filter(|(_, args)| !["doctor", "install"].contains(&args[0])) {
            sandbox.write("a.txt", number.to_string());
            let mut command = command(&sandbox);
            for name in
                ["DIR", "INDEX_FILE", "WORK_TREE", "OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "COMMON_DIR"]
                    .iter()
                    .chain(&[
                        "CONFIG",
                        "CONFIG_GLOBAL",
                        "CONFIG_PARAMETERS",
                        "SHALLOW_FILE",
                        "REPLACE_REF_BASE",
                        "EXTERNAL_DIFF",
                    ])
                    .filter(|_| is_evil)
            {
                command.env(format!("GIT_{name}"), sandbox.root().join("nonsense"));
            }
            all.push((args.join(" "), send_to(&sandbox, command.args(*args)).code()));
        }
        assert!(!sandbox.root().join("nonsense").exists());
        sandbox.assert_store_is_whole();
        all
    };
    let undisturbed = told(false);
    assert!(undisturbed.iter().all(|(_, code)| *code == 0), "{undisturbed:?}");
    assert_eq!(told(true), undisturbed);
}

/// Sequences that set a title, clear the screen, move the cursor back, answer for the user, in 7 and 8 bits.
const EVIL: &str = "x\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[6n\u{9b}31m\u{8}\u{90}q";

fn is_clean(shown: &str) -> bool {
    // Colours and styles end in `m` and are piton's own; no other sequence may begin with an escape.
    let mut rest = shown;
    while let Some(at) = rest.find('\u{1b}') {
        let sequence: String = rest[at + 1..].chars().take_while(|c| !c.is_ascii_alphabetic()).collect();
        let end = rest[at + 1 + sequence.len()..].chars().next();
        let is_style = sequence.starts_with('[') && end == Some('m');
        // The progress line that appears on a slow machine is cleared.
        let is_quiet = ["[?25", "[", "[0", "[2"].contains(&sequence.as_str()) && matches!(end, Some('h' | 'l' | 'K'));
        if !is_style && !is_quiet {
            return false;
        }
        rest = &rest[at + 1..];
    }
    !shown.chars().any(|c| c.is_control() && !['\n', '\r', '\t', '\u{1b}'].contains(&c))
}

#[test]
fn control_characters_from_names_contents_reasons_and_records_reach_no_terminal() {
    if !has_program("script") {
        return;
    }
    let sandbox = Sandbox::new();
    let dir = sandbox.other_project(&format!("other-{EVIL}"));
    fs::write(dir.join("a"), "1").expect("a file");
    run(crate::kit::in_dir(&sandbox, &dir).args(["take", "-m", EVIL])).done();
    sandbox.write(EVIL, "one\n");
    sandbox.write("plain.txt", "one\n");
    piton(&sandbox, ["take", "-m", EVIL]).done();
    sandbox.write(EVIL, format!("two {EVIL}\n"));
    sandbox.write("plain.txt", format!("two {EVIL}\n"));
    let record = serde_json::to_string(&json!({"task": EVIL, "decisions": [EVIL], EVIL: EVIL})).expect("JSON");
    send(command(&sandbox).args(["session", "write", "s"]), record).done();
    let log = "cannot write: no space left";
    fs::write(sandbox.base().join("piton.log"), format!("2026-01-01T00:00:00+00:00 unprotected {EVIL} {log}\n"))
        .expect("a log");
    for args in [
        "rollback < /dev/null",
        "list -v < /dev/null",
        "status -v",
        "show 1 -v",
        "diff 1",
        "rollback diff 1",
        "restore 1 --dry-run",
        "restore 1 -y -v",
        "undo -y",
        "session read s",
        "session read s --resume",
        "session list",
        "purge -y --dry-run \"$EVIL\"",
        "purge -y \"$EVIL\"",
        "diff 1 \"$EVIL\"",
        "verify",
        "prune --dry-run",
        "doctor",
    ] {
        sandbox.write("plain.txt", format!("{args} {EVIL}\n"));
        // `cat` shows the input of a pager.
        let shown = on_a_terminal(&sandbox, args, &[("EVIL", EVIL), ("PAGER", "cat")]);
        assert!(!shown.is_empty() && is_clean(&shown), "{args}: {shown:?}");
    }
}

#[test]
fn a_patch_for_a_program_has_every_byte() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    take_works(&sandbox);
    sandbox.write("a.txt", format!("two {EVIL}\n"));
    let patch = piton(&sandbox, ["diff", "1"]).done().stdout;
    assert!(patch.contains(&format!("+two {EVIL}\n")), "{patch:?}");
}

#[test]
fn deeply_nested_and_endless_payloads_do_not_block_the_agent() {
    let sandbox = Sandbox::new();
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let payloads = [
        deep("[", "]"),
        deep("{\"a\":", "}"),
        "[".repeat(1_000_000),
        format!("{{\"cwd\": {:?}, \"x\": 1{}}}", sandbox.project(), "0".repeat(100_000)),
        format!("{{{}\"z\":1}}", "\"k\":1,".repeat(200_000)),
        format!("{{\"tool_input\": {{\"command\": \"{}\"}}}}", "$(".repeat(100_000)),
    ];
    for (number, payload) in payloads.iter().enumerate() {
        sandbox.write("x.txt", number.to_string());
        for agent in ["claude", "cursor"] {
            let ran = send(hook_command(&sandbox, &[agent]).current_dir(sandbox.project()), payload);
            assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{agent} {number}");
        }
    }
    take_works(&sandbox);
}

/// J3. On any failure the log says what failed, but not what the agent was told.
#[test]
fn the_journal_and_the_reasons_hold_no_secrets() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let sandbox = Sandbox::new();
    // The contents of local files are in the store, and nothing else of them is.
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  keep_ignored: false\n").expect("a file");
    sandbox.tree("x.txt\n .env = KEY=hunter2-hunter2-hunter2\n sub/.env.local = KEY=hunter2-hunter2-hunter2");
    let long = format!("please use the password {SECRET} to log in, and then {}", "go on ".repeat(20));
    let write = json!({"tool_name": "Write", "tool_input": {"file_path": "x.txt", "content": SECRET}});
    let sent = [
        prompt(&sandbox, "s", "t1", &long),
        event(&sandbox, "s", "t2", "PreToolUse", &write),
        bash(&sandbox, "s", "t3", &format!("API_KEY={SECRET} deploy --all; rm x.txt")),
        format!("{{\"broken\": \"{SECRET}"),
    ];
    for is_broken in [false, true] {
        if is_broken {
            // From here on no checkpoint can be taken, and each failure is recorded.
            replace_dir(&sandbox.store(), &sandbox.root().join("aside"));
            fs::remove_dir_all(sandbox.store()).expect("a store");
            fs::write(sandbox.store(), "in the way").expect("a file");
        }
        for (number, sent) in sent.iter().enumerate() {
            sandbox.write("x.txt", format!("{is_broken} {number}"));
            hook(&sandbox, &["claude"], sent.replace("\"t", &format!("\"{is_broken}-t")));
        }
    }
    assert!(journal(&sandbox).matches(" unprotected ").count() >= 3, "{}", journal(&sandbox));
    fs::remove_file(sandbox.store()).expect("a file");
    replace_dir(&sandbox.root().join("aside"), &sandbox.store());
    assert!(crate::kit::ids(&sandbox).len() >= 3);
    let found = crate::purge::found(&sandbox, SECRET.as_bytes());
    assert_eq!(found, [""; 0]);
    let list = piton(&sandbox, ["rollback", "--json"]).done().stdout;
    assert!(!list.contains(SECRET), "{list}");
}
