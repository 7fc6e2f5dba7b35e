//! On any failure in a hook the agent continues, and the missed checkpoint is recorded.

use std::fs::{self, File};
use std::io::Write as _;

use serde_json::json;
use testkit::{Sandbox, clean_command};

use crate::faults::Mounted;
use crate::hook_kit::{bash, checkpoints, event, hook, hook_command, journal, prompt, send};
use crate::kit::{PITON, Ran, piton, run, spawn_piped};
use crate::sweep::{After, Fault, Scene, fail, kill};

/// Agents, each with the answer they get if the event is not understood.
const AGENTS: [(&str, &str); 4] =
    [("claude", ""), ("gemini", ""), ("copilot", ""), ("cursor", "{\"permission\":\"allow\"}\n")];

fn in_project(sandbox: &Sandbox, args: &[&str]) -> std::process::Command {
    let mut command = hook_command(sandbox, args);
    command.current_dir(sandbox.project());
    command
}

#[track_caller]
fn goes_on(ran: &Ran, said: &str) {
    assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, said, ""), "{ran:?}");
}

/// H2.
#[test]
fn what_cannot_be_read_may_change_files() {
    let garbage: [&[u8]; 8] = [
        b"",
        b"garbage",
        b"{",
        b"{}",
        b"[1,2]",
        b"\xff\xfe\x00\x01",
        b"{\"cwd\":\"/nonexistent\"}",
        b"{\"a\":\"\\ud800\"}",
    ];
    for (agent, said) in AGENTS {
        let sandbox = Sandbox::new();
        for (number, sent) in garbage.iter().enumerate() {
            sandbox.write("x.txt", number.to_string());
            goes_on(&send(&mut in_project(&sandbox, &[agent]), sent), said);
        }
        let taken = checkpoints(&sandbox, &["reason"]);
        assert_eq!(taken.len(), garbage.len(), "{agent}");
        assert_eq!(taken[0], ["before something that piton could not read"]);
    }
}

#[test]
fn an_event_that_was_cut_off_is_taken_by_what_is_left_of_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let whole = event(&sandbox, "s", "t", "PreToolUse", &json!({"tool_name": "Write", "tool_input": {"content": "x"}}));
    // From a directory that is too broad, so that only the payload can name the project.
    hook(&sandbox, &["claude"], &whole[..whole.len() - 10]);
    assert_eq!(checkpoints(&sandbox, &["session", "turn", "reason"]), [["s", "t", "before Write"]]);
}

#[test]
fn a_hundred_megabytes_are_read_and_the_checkpoint_is_taken() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let content = "x".repeat(100 << 20);
    let more = json!({"tool_name": "Write", "tool_input": {"file_path": "x.txt", "content": content}});
    let mut child = spawn_piped(&mut hook_command(&sandbox, &["claude"]));
    // On a busy machine the hook answers before it has read everything: the beginning is sufficient.
    let _ = child.stdin.take().expect("a pipe").write_all(event(&sandbox, "s", "t", "PreToolUse", &more).as_bytes());
    goes_on(&child.wait_with_output().expect("it ends").into(), "");
    assert_eq!(checkpoints(&sandbox, &["session", "reason"]), [["s", "before Write"]]);
}

#[test]
fn no_stdin_and_no_stdout_are_no_reason_to_fail() {
    let sandbox = Sandbox::new();
    for (number, redirects) in
        ["<&-", "</dev/null", "<&- >&-", "</dev/null >&- 2>&-", "</dev/null >/dev/full"].iter().enumerate()
    {
        sandbox.write("x.txt", number.to_string());
        let mut shell = clean_command("sh");
        shell.args(["-c", &format!("exec {PITON} hook cursor {redirects}")]);
        shell.env("HOME", sandbox.home()).env("PITON_ENABLED", "1").current_dir(sandbox.project());
        shell.env("PITON_DEADLINE_MS", "10000");
        let ran = run(&mut shell);
        let said = if redirects.contains('>') { "" } else { "{\"permission\":\"allow\"}\n" };
        goes_on(&ran, said);
    }
    assert_eq!(checkpoints(&sandbox, &["agent"]).len(), 5);
}

#[test]
fn an_agent_that_does_not_close_the_pipe_is_answered() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let mut child = spawn_piped(&mut hook_command(&sandbox, &["claude"]));
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(bash(&sandbox, "s", "t", "rm x.txt").as_bytes()).expect("it reads");
    goes_on(&child.wait_with_output().expect("it ends").into(), "");
    drop(pipe);
    assert_eq!(checkpoints(&sandbox, &["reason"]), [["before terminal: rm x.txt"]]);
}

#[test]
fn wrong_arguments_do_not_stop_an_agent() {
    let sandbox = Sandbox::new();
    for args in
        [&["hook"][..], &["hook", "nobody"], &["hook", "claude", "--from-the-future"], &["--new", "hook", "claude"]]
    {
        sandbox.write("x.txt", args.join(" "));
        let mut command = clean_command(PITON);
        command.args(args).env("HOME", sandbox.home()).env("PITON_ENABLED", "1").current_dir(sandbox.project());
        command.env("PITON_DEADLINE_MS", "10000");
        goes_on(&send(&mut command, bash(&sandbox, "s", &args.join(" "), "rm x.txt")), "");
    }
    assert_eq!(checkpoints(&sandbox, &["turn"]).len(), 4);
    assert_eq!(journal(&sandbox).matches("was called ").count(), 4, "{}", journal(&sandbox));
    assert!(piton(&sandbox, ["hook", "--help"]).done().stdout.contains("AGENT"));
}

/// A surplus argument must not override `--base`, `--config` or `--fail-closed`.
#[test]
fn wrong_arguments_leave_the_right_ones_as_they_are() {
    let sandbox = Sandbox::new();
    let (base, config) = (sandbox.root().join("elsewhere"), sandbox.root().join("config.yaml"));
    fs::write(&config, "checkpoints: true\n").expect("a file");
    let (base, config) = (base.to_str().expect("UTF-8"), config.to_str().expect("UTF-8"));
    let sent = |args: &[&str], turn: &str, limit: &str| {
        sandbox.write("x.txt", turn);
        let mut command = hook_command(&sandbox, args);
        let command = command.env_remove("PITON_ENABLED").env("PITON_MAX_FILES", limit);
        send(command, bash(&sandbox, "s", turn, "rm x.txt"))
    };
    goes_on(&sent(&["claude", "--base", base, "--config", config, "--from-the-future"], "t1", "0"), "");
    goes_on(&sent(&["claude", &format!("--base={base}"), "--new", &format!("--config={config}")], "t2", "0"), "");
    assert!(!sandbox.base().exists(), "the usual base is not used");
    let mut list = clean_command(PITON);
    list.env("HOME", sandbox.home()).current_dir(sandbox.project()).args(["--base", base, "rollback", "--json"]);
    assert_eq!(run(&mut list).done().json().as_array().expect("a list").len(), 2);
    sandbox.write("y.txt", "");
    let strict = ["claude", "--new", "--fail-closed", "--base", base, "--config", config];
    assert_eq!(sent(&strict, "t3", "1").code(), 2, "it is stopped");
}

#[test]
fn a_base_that_cannot_be_is_on_record_elsewhere_and_the_next_success_cures_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    fs::create_dir_all(sandbox.base().parent().expect("a parent")).expect("a directory");
    fs::write(sandbox.base(), "in the way").expect("a file");
    goes_on(&send(&mut hook_command(&sandbox, &["claude"]), prompt(&sandbox, "s", "t", "x")), "");
    goes_on(&send(&mut hook_command(&sandbox, &["claude"]), bash(&sandbox, "s", "t", "rm x.txt")), "");
    let log = sandbox.home().join(".local/state/piton/piton.log");
    let text = fs::read_to_string(&log).expect("a journal");
    assert_eq!(text.matches(" unprotected ").count(), 1, "{text}");
    assert!(text.contains("session=s turn=t project="), "{text}");
    assert!(!text.contains("rm x.txt"), "{text}");
    fs::remove_file(sandbox.base()).expect("out of the way");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t", "rm x.txt"));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t"]]);
    assert!(journal(&sandbox).contains(" protected "), "{}", journal(&sandbox));
}

#[test]
fn a_home_that_takes_nothing_leaves_the_temporary_directory() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    fs::remove_dir(sandbox.home()).expect("an empty home");
    fs::write(sandbox.home(), "no directory").expect("a file");
    let temp = sandbox.root().join("tmp");
    fs::create_dir(&temp).expect("a directory");
    let mut command = hook_command(&sandbox, &["cursor"]);
    let ran = send(command.env("TMPDIR", &temp), bash(&sandbox, "s", "t", "rm x.txt"));
    goes_on(&ran, "{}\n");
    let dir = fs::read_dir(&temp).expect("a directory").next().expect("something in it").expect("an entry").path();
    assert!(fs::read_to_string(dir.join("piton.log")).expect("a journal").contains(" unprotected "));
}

#[test]
fn a_read_only_or_full_disk_does_not_block_the_agent() {
    let sandbox = Sandbox::new();
    let base = sandbox.base();
    let Some(disk) = Mounted::tmpfs(&base, "size=1m,mode=700") else { return };
    sandbox.tree("x.txt = 1");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "x"));
    sandbox.write("x.txt", "2");
    disk.remount("ro");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "x"));
    assert_eq!(journal(&sandbox).matches(" unprotected ").count(), 1, "{}", journal(&sandbox));
    disk.remount("rw");
    let filled = fs::write(base.join("filler.yaml"), vec![1; 2 << 20]);
    assert!(filled.is_err(), "the disk is not full");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t3", "x"));
    let text = journal(&sandbox);
    assert!(text.contains("turn=t3") && text.contains("no space left"), "{text}");
    fs::remove_file(base.join("filler.yaml")).expect("a file");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t4", "x"));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t4"]]);
}

/// A hook before a file-changing tool of Cursor.
struct Hook(Sandbox);

impl Hook {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.tree("x.txt");
        Self(sandbox)
    }
}

impl Scene for Hook {
    fn sandbox(&self) -> &Sandbox {
        &self.0
    }

    fn args(&self) -> Vec<&str> {
        vec!["hook", "cursor"]
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        vec![("PITON_ENABLED", "1"), ("PITON_DEADLINE_MS", "10000")]
    }

    fn input(&self) -> Vec<u8> {
        let sent = json!({"conversation_id": "c", "generation_id": "g", "cursor_version": "2", "cwd": self.0.project(),
            "hook_event_name": "preToolUse", "tool_name": "Shell", "tool_input": {"command": "rm x.txt"}});
        sent.to_string().into_bytes()
    }

    fn check(&self, after: &After<'_>) {
        let taken = checkpoints(&self.0, &["turn"]);
        if !after.is_kill() {
            // The write of the answer may be the call that failed.
            let is_mute = after.point.call == "write" && after.ran.stdout.is_empty();
            goes_on(&after.ran, if is_mute { "" } else { "{\"permission\":\"allow\"}\n" });
            // If nothing can be opened or written any more, nothing can be recorded either.
            let is_silenced = matches!(after.point.fault, Fault::Lasting(_));
            let is_on_record = journal(&self.0).contains(" unprotected ");
            assert!(!taken.is_empty() || is_on_record || is_silenced, "nothing is on record: {after:?}");
        }
        self.0.write("y.txt", "y");
        hook(&self.0, &["claude"], bash(&self.0, "s", "next", "rm y.txt"));
        let now = checkpoints(&self.0, &["turn"]);
        assert_eq!(now.last().map(Vec::as_slice), Some(&["next".to_owned()][..]), "{after:?}");
        assert_eq!(now.len(), taken.len() + 1, "{after:?}");
        fs::remove_file(self.0.path("y.txt")).expect("a file");
        self.0.assert_store_is_whole();
    }
}

/// H1.
#[test]
fn a_failing_system_call_does_not_block_the_agent_and_is_in_the_journal() {
    assert!(fail(Hook::new).points >= 30);
}

#[test]
fn a_killed_hook_does_not_block_later_ones() {
    assert!(kill(Hook::new).felt >= 10);
}

#[test]
fn a_configuration_that_is_wrong_is_used_as_far_as_it_is_right() {
    let sandbox = Sandbox::new();
    let config = sandbox.home().join(".hermes/config.yaml");
    fs::create_dir_all(config.parent().expect("a parent")).expect("a directory");
    let on = |turn: &str| {
        sandbox.write("x.txt", turn);
        let mut command = hook_command(&sandbox, &["claude"]);
        goes_on(&send(command.env_remove("PITON_ENABLED"), prompt(&sandbox, "s", turn, "x")), "");
    };
    fs::write(&config, "checkpoints:\n  enabled: true\n  max_files: many\n  colour: red\n").expect("a file");
    on("t1");
    on("t2");
    assert_eq!(checkpoints_with_no_config(&sandbox, &config), [["t1"], ["t2"]]);
    let text = journal(&sandbox);
    assert_eq!(text.matches("line 3: max_files: expected a whole number").count(), 1, "{text}");
    // A typo in the switch itself: enabled, since the hook is installed.
    fs::write(&config, "checkpoints:\n  enabled: ture\n").expect("a file");
    on("t3");
    assert_eq!(checkpoints_with_no_config(&sandbox, &config), [["t1"], ["t2"], ["t3"]]);
    assert!(journal(&sandbox).contains("line 2: enabled: expected true or false"), "{}", journal(&sandbox));
    // Not a configuration at all.
    fs::write(&config, b"\xff\xfe: [").expect("a file");
    sandbox.write("x.txt", "t4");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t4", "x"));
    assert!(journal(&sandbox).contains("cannot read"), "{}", journal(&sandbox));
    assert_eq!(checkpoints_with_no_config(&sandbox, &config).len(), 4);
}

fn checkpoints_with_no_config(sandbox: &Sandbox, config: &std::path::Path) -> Vec<Vec<String>> {
    fs::write(config, "").expect("a file");
    checkpoints(sandbox, &["turn"])
}

fn project_lock(sandbox: &Sandbox) -> File {
    let record = fs::read_dir(sandbox.store().join("projects")).expect("records").next().expect("one").expect("one");
    let name = record.path().file_stem().expect("a name").to_owned();
    File::create(sandbox.store().join("locks").join(name)).expect("a lock")
}

#[test]
fn a_lock_that_is_held_costs_the_deadline_and_the_turn_is_tried_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "x"));
    sandbox.write("x.txt", "2");
    let lock = project_lock(&sandbox);
    lock.lock().expect("a lock");
    let mut command = hook_command(&sandbox, &["claude"]);
    goes_on(&send(command.env("PITON_DEADLINE_MS", "30"), prompt(&sandbox, "s", "t2", "x")), "");
    let text = journal(&sandbox);
    assert!(text.lines().any(|line| line.contains(" unprotected ") && line.contains("turn=t2 ")), "{text}");
    lock.unlock().expect("a lock");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t2", "rm x.txt"));
    // The checkpoint is taken for the tool, but its row shows the prompt that it belongs to.
    assert_eq!(checkpoints(&sandbox, &["turn", "reason"]), [["t1", "prompt: x"], ["t2", "prompt: x"]]);
}

#[test]
fn a_hanging_hook_abandons_its_work() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    fs::create_dir_all(sandbox.base()).expect("a base");
    // A process that creates the store holds this lock, and waiting for it cannot be cancelled.
    let base = File::open(sandbox.base()).expect("a base");
    base.lock().expect("a lock");
    let mut command = hook_command(&sandbox, &["claude"]);
    goes_on(&send(command.env("PITON_DEADLINE_MS", "30"), bash(&sandbox, "s", "t", "rm x.txt")), "");
    assert!(journal(&sandbox).contains("did not come to an end"), "{}", journal(&sandbox));
}

/// No checkpoint was due: no turn ran without one.
#[test]
fn a_session_that_begins_too_late_is_no_turn_without_protection() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    fs::create_dir_all(sandbox.base()).expect("a base");
    // Opening the store waits for this lock, and the wait cannot be cancelled.
    let base = File::open(sandbox.base()).expect("a base");
    base.lock().expect("a lock");
    let late = |sent: String| {
        let mut command = hook_command(&sandbox, &["claude"]);
        goes_on(&send(command.env("PITON_DEADLINE_MS", "30"), sent), "");
        journal(&sandbox)
    };
    let text = late(event(&sandbox, "s", "t", "SessionStart", &json!({})));
    assert!(!text.contains(" unprotected ") && text.contains(" warning "), "{text}");
    let text = late(prompt(&sandbox, "s", "t", "x"));
    assert_eq!(text.matches(" unprotected ").count(), 1, "{text}");
}

#[test]
fn fail_closed_stops_the_agent() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt\n y.txt");
    let strict = |agent: &str, limit: &str, sent: String| {
        let mut command = hook_command(&sandbox, &[agent, "--fail-closed"]);
        send(command.env("PITON_MAX_FILES", limit), sent)
    };
    goes_on(&strict("claude", "1", prompt(&sandbox, "s", "t", "x")), "");
    for _ in 0..2 {
        let ran = strict("claude", "1", bash(&sandbox, "s", "t", "rm x.txt"));
        assert_eq!((ran.code(), ran.stdout.as_str()), (2, ""), "{ran:?}");
        assert!(ran.stderr.starts_with("piton: no checkpoint could be taken"), "{ran:?}");
    }
    goes_on(&strict("claude", "1", bash(&sandbox, "s", "t", "ls")), "");
    goes_on(&strict("claude", "0", bash(&sandbox, "s", "t2", "rm x.txt")), "");
    let cursor = json!({"conversation_id": "c", "generation_id": "g", "cursor_version": "2", "cwd": sandbox.project(),
        "hook_event_name": "preToolUse", "tool_name": "Delete", "tool_input": {"path": "x.txt"}});
    let ran = strict("cursor", "1", cursor.to_string());
    assert!(ran.stdout.starts_with("{\"permission\":\"deny\""), "{ran:?}");
}

#[test]
fn a_project_whose_rules_leave_out_everything_is_on_record() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = /*\n x.txt\n y.txt\n z.txt");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t", "x"));
    assert!(journal(&sandbox).contains("ignore rules"), "{}", journal(&sandbox));
}
