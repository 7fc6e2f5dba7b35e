//! `doctor`: its findings in prepared homes, and that it changes nothing there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, walk};

use crate::kit::{PITON, Ran, run};

/// A working hook: takes a checkpoint of its directory and prints nothing.
const GOOD: &str = "cat >/dev/null; \"$REAL\" take --config /dev/null --quiet >/dev/null";

/// A home with agents that are only names on the search path.
struct Home {
    sandbox: Sandbox,
}

impl Home {
    fn new() -> Self {
        let home = Self { sandbox: Sandbox::new() };
        fs::create_dir(home.bin()).expect("a directory");
        fs::create_dir(home.sandbox.root().join("tmp")).expect("a directory");
        home.put(".hermes/config.yaml", "checkpoints: true\n");
        home
    }

    fn bin(&self) -> PathBuf {
        self.sandbox.root().join("bin")
    }

    fn put(&self, path: &str, text: &str) -> PathBuf {
        let path = self.sandbox.home().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        fs::write(&path, text).expect("a file");
        path
    }

    fn program(&self, name: &str, script: &str) {
        let script =
            format!("#!/bin/sh\nREAL={PITON}\n[ \"$1\" != --version ] || exec \"$REAL\" --version\n{script}\n");
        self.sandbox.write_program(&self.bin().join(name), &script);
    }

    /// Writes hooks for claude whose program is this script.
    fn hook_claude(&self, script: &str) {
        self.program("piton", script);
        let line = format!("{} hook claude", self.bin().join("piton").display());
        let item = json!([{"hooks": [{"type": "command", "command": line}]}]);
        let hooks = json!({"hooks": {"UserPromptSubmit": item, "PreToolUse": item}});
        self.put(".claude/settings.json", &hooks.to_string());
    }

    /// Calls the hook of an agent as the agent would.
    fn call(&self, agent: &str, files_max: &str, payload: &Value) {
        let file = self.sandbox.root().join("payload");
        fs::write(&file, payload.to_string()).expect("a file");
        let mut hook = clean_command(PITON);
        hook.env("HOME", self.sandbox.home()).env("PITON_MAX_FILES", files_max).current_dir(self.sandbox.project());
        run(hook.args(["hook", agent]).stdin(fs::File::open(&file).expect("a file"))).done();
    }

    fn command(&self) -> Command {
        let mut command = clean_command(PITON);
        let path = format!("{}:/usr/bin:/bin", self.bin().display());
        command.env("HOME", self.sandbox.home()).env("PATH", path).env("TZ", "UTC");
        command.env("TMPDIR", self.sandbox.root().join("tmp"));
        command.current_dir(self.sandbox.project()).arg("doctor");
        command
    }

    /// Returns the JSON answer, after asserting that `ok` and the exit code agree and that everything in the sandbox is
    /// unchanged.
    #[track_caller]
    fn doctor(&self) -> Value {
        let before = tree(&self.sandbox.root());
        let ran = run(self.command().arg("--json"));
        assert_eq!(tree(&self.sandbox.root()), before, "doctor changed something");
        let answer = ran.json();
        assert_eq!(ran.code(), i32::from(answer["ok"] != true), "{answer}");
        answer
    }
}

fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    walk(dir, &mut |path| {
        all.insert(path.to_owned(), fs::read(path).unwrap_or_default());
    });
    all
}

fn of<'a>(answer: &'a Value, agent: &str) -> &'a Value {
    let agents = answer["agents"].as_array().expect("a list");
    agents.iter().find(|one| one["agent"] == agent).unwrap_or_else(|| panic!("{answer}"))
}

/// Returns the problems and hints as text.
fn words(value: &Value) -> String {
    let problems = value["problems"].as_array().expect("a list");
    problems.iter().map(|one| format!("{}: {}\n", one["what"], one["hint"])).collect()
}

#[test]
fn a_home_without_agents_is_told_how_to_hook_one_up() {
    let home = Home::new();
    let answer = home.doctor();
    assert_eq!(answer["ok"], false);
    assert!(words(&answer).contains("no agent is hooked up") && words(&answer).contains("piton install AGENT"));
    assert_eq!(answer["agents"].as_array().map(Vec::len), Some(9));
    assert_eq!(of(&answer, "hermes")["found"], false, "its directory holds only what is piton's");
}

#[test]
fn a_hook_that_works_is_seen_to_work() {
    let home = Home::new();
    home.hook_claude(GOOD);
    let answer = home.doctor();
    let claude = of(&answer, "claude");
    assert_eq!(answer["ok"], true, "{answer}");
    for key in ["found", "installed", "trusted", "fired"] {
        assert_eq!(claude[key], true, "{key}: {answer}");
    }
    assert_eq!((&claude["last_event"], &claude["unprotected_turns"]), (&Value::Null, &json!(0)));
    let said = run(&mut home.command()).done();
    assert!(
        said.stdout.contains("claude    hooked up, ")
            && said.stdout.contains(", fires (")
            && said.stdout.ends_with("All is well\n"),
        "{said:?}"
    );
    assert!(said.stdout.contains("no event seen yet"), "what doctor itself fires is none: {said:?}");
}

#[test]
fn the_last_event_of_each_agent_is_shown() {
    let home = Home::new();
    home.hook_claude(GOOD);
    home.sandbox.tree("a");
    let cwd = home.sandbox.project();
    let last = |agent: &str| of(&home.doctor(), agent)["last_event"].clone();
    home.call("claude", "0", &json!({"hook_event_name": "SessionStart", "session_id": "s", "cwd": cwd}));
    assert_eq!((&last("claude")["what"], &last("claude")["level"]), (&json!("a session began"), &json!("seen")));
    home.call(
        "claude",
        "0",
        &json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": cwd, "prompt": "do it"}),
    );
    assert_eq!(last("claude")["what"], "prompt: do it");
    assert!(last("claude")["time"].as_str().is_some_and(|time| time.starts_with("20")), "{}", last("claude"));
    assert_eq!((last("gemini"), last("codex")), (Value::Null, Value::Null), "each has its own");
    home.call("gemini", "0", &json!({"hook_event_name": "BeforeAgent", "session_id": "g", "cwd": cwd, "prompt": "x"}));
    assert_eq!(last("gemini")["what"], "prompt: x", "nothing had changed, so that there is no new checkpoint");
    let said = run(home.command().arg("--no-fire")).stdout;
    assert!(
        said.contains("claude    hooked up, ") && said.contains(", last event 20") && said.contains(": prompt: do it"),
        "{said}"
    );
}

#[test]
fn a_hook_that_does_not_work_is_named_with_why() {
    for (script, why) in [
        ("exit 2", "ended with code 2"),
        ("echo words >&2; exit 1", "ended with code 1: words"),
        ("kill -9 $$", "does not work: it "),
        ("cat >/dev/null; echo oops >&2", "it wrote to stderr: oops"),
        ("cat >/dev/null; echo oops", "its answer is not JSON: oops"),
        ("cat >/dev/null; echo '{\"decision\": \"block\"}'", "its answer stops the agent"),
        ("cat >/dev/null; echo '{\"permission\": \"deny\"}'", "its answer stops the agent"),
        ("cat >/dev/null", "it ran, but took no checkpoint"),
        ("exec 0<&-; exit 0", "it ran, but took no checkpoint"),
    ] {
        let home = Home::new();
        home.hook_claude(script);
        let answer = home.doctor();
        let claude = of(&answer, "claude");
        assert_eq!((&answer["ok"], &claude["fired"]), (&json!(false), &json!(false)), "{script}");
        assert!(words(claude).contains(why), "{script}: {answer}");
        let said = run(&mut home.command());
        assert!(said.stdout.starts_with("1 thing to fix:\n  claude: the hook `"), "{said:?}");
    }
}

#[test]
fn each_agent_is_called_as_it_calls() {
    for (agent, event) in [
        ("claude", "UserPromptSubmit"),
        ("codex", "UserPromptSubmit"),
        ("gemini", "BeforeAgent"),
        ("qwen", "UserPromptSubmit"),
        ("cursor", "beforeSubmitPrompt"),
        ("crush", "PreToolUse"),
        ("hermes", "pre_llm_call"),
        ("opencode", "chat.message"),
        ("copilot", "userPromptSubmitted"),
    ] {
        let home = Home::new();
        let told = home.sandbox.root().join("told");
        // The copy of the arguments and of the event is outside of the directories that doctor must not change.
        home.program("piton", &format!("{{ echo \"$*\"; cat; }} > {}; \"$REAL\" take --quiet", told.display()));
        let mut install = clean_command(PITON);
        install.env("HOME", home.sandbox.home()).current_dir(home.sandbox.project());
        run(install.args(["install", agent])).done();
        walk(&home.sandbox.home(), &mut |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            if text.contains(&format!("{PITON} hook")) || text.contains(&format!("\"{PITON}\",\"hook\"")) {
                fs::write(path, text.replace(PITON, &home.bin().join("piton").display().to_string())).expect("a file");
            }
        });
        let answer = run(home.command().arg("--json")).json();
        assert_eq!(of(&answer, agent)["fired"], true, "{answer}");
        let told = fs::read_to_string(told).expect("what the hook was told");
        let (args, payload) = told.split_once('\n').expect("a line of arguments");
        let payload: Value = serde_json::from_str(payload).expect("JSON");
        let (line, name) = if agent == "copilot" {
            (format!("hook copilot {event}"), None)
        } else {
            (format!("hook {agent}"), payload["hook_event_name"].as_str().or(payload["event"].as_str()))
        };
        assert_eq!((args, name.unwrap_or(event)), (line.as_str(), event));
    }
}

#[test]
fn a_program_that_is_gone_is_a_leftover_to_be_fixed() {
    let home = Home::new();
    home.hook_claude(GOOD);
    fs::remove_file(home.bin().join("piton")).expect("a file");
    let answer = home.doctor();
    let claude = of(&answer, "claude");
    assert!(
        words(claude).contains("which is not there") && words(claude).contains("`piton uninstall claude`"),
        "{answer}"
    );
    assert_eq!(claude["fired"], false);
}

#[test]
fn an_agent_that_is_there_and_not_hooked_up_is_a_problem() {
    let home = Home::new();
    home.hook_claude(GOOD);
    home.program("codex", "");
    home.put(".gemini/settings.json", "{}");
    let answer = home.doctor();
    assert!(words(of(&answer, "codex")).contains("`piton install codex`"), "{answer}");
    let gemini = of(&answer, "gemini");
    assert_eq!(
        (&gemini["found"], &gemini["installed"], &gemini["problems"]),
        (&json!(true), &json!(false), &json!([]))
    );
}

#[test]
fn codex_runs_only_what_was_approved() {
    let home = Home::new();
    home.program("piton", GOOD);
    let line = format!("{} hook codex", home.bin().join("piton").display());
    let ours = json!({"hooks": [{"type": "command", "command": line}]});
    let theirs = json!({"hooks": [{"type": "command", "command": "/x"}]});
    let hooks = json!({"hooks": {"UserPromptSubmit": [theirs, ours], "PreToolUse": [ours]}});
    let path = home.put(".codex/hooks.json", &hooks.to_string());
    let approve = |keys: &[&str], end: &str| {
        let states = keys
            .iter()
            .map(|key| format!("[hooks.state.\"{}:{key}\"]\ntrusted_hash = \"sha256:00\"\n{end}\n", path.display()));
        home.put(".codex/config.toml", &format!("model = \"x\"\n{}", states.collect::<String>()));
        let answer = home.doctor();
        (of(&answer, "codex")["trusted"].clone(), words(of(&answer, "codex")))
    };
    let all = ["user_prompt_submit:1:0", "pre_tool_use:0:0"];
    assert_eq!(approve(&all, ""), (json!(true), String::new()));
    for (keys, end) in
        [(&all[..1], ""), (&all[..0], ""), (&all[..], "enabled = false"), (&["user_prompt_submit:0:0"][..], "")]
    {
        let (trusted, words) = approve(keys, end);
        assert_eq!(trusted, false, "{keys:?}");
        assert!(words.contains("of 2 hooks are approved") && words.contains("/hooks"), "{words}");
    }
    home.put(".codex/config.toml", "not toml [");
    assert_eq!(of(&home.doctor(), "codex")["trusted"], false);
}

#[test]
fn hermes_runs_only_what_has_consent() {
    let home = Home::new();
    home.program("piton", GOOD);
    let line = format!("{} hook hermes", home.bin().join("piton").display());
    let config = format!("checkpoints: true\nhooks:\n  pre_llm_call:\n    - command: {line}\n");
    home.put(".hermes/config.yaml", &config);
    let trusted = || of(&home.doctor(), "hermes")["trusted"].clone();
    assert_eq!(trusted(), false);
    let approval = |event: &str| json!({"approvals": [{"event": event, "command": line}]}).to_string();
    home.put(".hermes/shell-hooks-allowlist.json", &approval("pre_tool_call"));
    assert_eq!(trusted(), false);
    home.put(".hermes/shell-hooks-allowlist.json", &approval("pre_llm_call"));
    assert_eq!(trusted(), true);
    home.put(".hermes/shell-hooks-allowlist.json", "{}");
    let accepted = run(home.command().arg("--json").env("HERMES_ACCEPT_HOOKS", "1")).json();
    assert_eq!(of(&accepted, "hermes")["trusted"], true);
    home.put(".hermes/config.yaml", &format!("{config}hooks_auto_accept: true\n"));
    assert_eq!(trusted(), true);
}

#[test]
fn a_folder_that_gemini_does_not_trust_is_named() {
    let home = Home::new();
    home.program("piton", GOOD);
    let line = format!("{} hook gemini 2>/dev/null || true", home.bin().join("piton").display());
    let settings = json!({"hooks": {"BeforeAgent": [{"hooks": [{"type": "command", "command": line}]}]}});
    home.put(".gemini/settings.json", &settings.to_string());
    let trusted = |folder: PathBuf, word: &str| {
        home.put(".gemini/trustedFolders.json", &json!({folder.display().to_string(): word}).to_string());
        of(&home.doctor(), "gemini")["trusted"].clone()
    };
    let project = home.sandbox.project();
    assert_eq!(trusted(project.clone(), "TRUST_FOLDER"), true);
    assert_eq!(trusted(home.sandbox.root().join("sibling"), "TRUST_PARENT"), true);
    assert_eq!(trusted(home.sandbox.root().join("sibling"), "TRUST_FOLDER"), Value::Null);
    assert_eq!(trusted(project, "DO_NOT_TRUST"), false);
}

#[test]
fn a_broken_configuration_is_a_problem_and_not_the_end() {
    let home = Home::new();
    home.hook_claude(GOOD);
    for (text, why) in [
        ("checkpoints:\n  enabled: true\n  max_files: many\n", "line 3: max_files: expected a whole number"),
        ("checkpoints: [", "checkpoints"),
        ("checkpoints:\n  enabled: true\n  max_fils: 3\n", "max_fils: unknown key"),
    ] {
        home.put(".hermes/config.yaml", text);
        let answer = home.doctor();
        assert!(words(&answer).contains(why), "{answer}");
        assert_eq!(of(&answer, "claude")["fired"], true);
    }
    home.put(".hermes/config.yaml", "checkpoints:\n  enabled: true\n  deadline_ms: 20000\n");
    assert!(words(&home.doctor()).contains("agents wait 15 s for a hook"));
    home.put(".hermes/config.yaml", "checkpoints: false\n");
    assert!(words(&home.doctor()).contains("automatic checkpoints are switched off"));
    home.put(".hermes/config.yaml", "checkpoints: true\n");
    home.put(".claude/settings.json", "{ not json");
    assert!(words(of(&home.doctor(), "claude")).contains("settings.json cannot be read: line 1"));
    home.hook_claude(GOOD);
    let text = fs::read_to_string(home.sandbox.home().join(".claude/settings.json")).expect("a file");
    home.put(".claude/settings.json", &text.replacen('{', "{\"disableAllHooks\": true, ", 1));
    assert!(words(of(&home.doctor(), "claude")).contains("`disableAllHooks`"));
}

#[test]
fn a_base_that_cannot_be_used_is_named() {
    let home = Home::new();
    home.hook_claude(GOOD);
    let file = home.put("file", "");
    let problems = |base: &Path| -> String {
        let ran: Ran = run(home.command().arg("--json").arg("--base").arg(base));
        words(&ran.json())
    };
    assert!(problems(&file.join("base")).contains("cannot be written"), "{}", problems(&file.join("base")));
    let other = home.sandbox.root().join("other");
    fs::create_dir(&other).expect("a directory");
    assert_eq!(problems(&other), "", "an empty one will do");
}

/// The real installer and the real hook, checked by doctor.
#[test]
fn what_is_installed_works_for_every_agent() {
    let home = Home::new();
    let agents = ["claude", "codex", "gemini", "cursor", "opencode", "hermes", "qwen", "crush", "copilot"];
    let mut install = clean_command(PITON);
    install.env("HOME", home.sandbox.home()).current_dir(home.sandbox.project());
    run(install.arg("install").args(agents).arg("--trust")).done();
    let answer = home.doctor();
    for agent in agents {
        let one = of(&answer, agent);
        assert_eq!((&one["installed"], &one["fired"]), (&json!(true), &json!(true)), "{one}");
        let is_approved = agent != "codex";
        assert_eq!(one["problems"].as_array().map(Vec::is_empty), Some(is_approved), "{one}");
    }
}

#[test]
fn turns_without_a_checkpoint_are_counted() {
    let home = Home::new();
    home.hook_claude(GOOD);
    home.sandbox.tree("a\n b\n c");
    for (turn, counted) in [("1", "1 turn ran without"), ("2", "2 turns ran without")] {
        let payload = json!({
            "hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": turn, "prompt": "x",
            "cwd": home.sandbox.project(),
        });
        home.call("claude", "2", &payload);
        assert!(words(of(&home.doctor(), "claude")).contains(counted), "{counted}");
    }
    let answer = home.doctor();
    let claude = of(&answer, "claude");
    assert_eq!((&answer["ok"], &claude["unprotected_turns"]), (&json!(false), &json!(2)), "{answer}");
    assert_eq!(claude["last_event"]["level"], "unprotected");
    assert!(words(claude).contains("2 turns ran without a checkpoint") && words(claude).contains("the last: "));
}

#[test]
fn a_command_file_that_goes_to_the_model_is_named() {
    let home = Home::new();
    let install = |agent: &str| {
        let mut command = clean_command(PITON);
        run(command.env("HOME", home.sandbox.home()).current_dir(home.sandbox.project()).args(["install", agent]))
            .done();
    };
    home.sandbox.tree("a");
    install("gemini");
    assert_eq!(words(of(&home.doctor(), "gemini")), "");
    // A file of version 0.1.
    let file = home.put(".gemini/commands/rollback.toml", include_str!("../../src/agents/texts/0.1/rollback.toml"));
    let found = words(of(&home.doctor(), "gemini"));
    assert!(
        found.contains("rollback.toml is of another version of piton") && found.contains("`piton install gemini`"),
        "{found}"
    );
    fs::remove_file(&file).expect("a file");
    install("gemini");
    assert_eq!(words(of(&home.doctor(), "gemini")), "");
    // A prompt that such a file produced is recorded until the file is rewritten.
    fs::remove_file(&file).expect("a file");
    let old = include_str!("../../src/agents/texts/0.1/rollback.toml").split("\"\"\"").nth(1).expect("a prompt");
    let sent =
        json!({"hook_event_name": "BeforeAgent", "session_id": "g", "cwd": home.sandbox.project(), "prompt": old});
    home.call("gemini", "0", &sent);
    let found = words(of(&home.doctor(), "gemini"));
    assert!(found.contains("the text of piton's own command file arrived as a prompt"), "{found}");
    // A quick command in Hermes that drops its arguments.
    install("hermes");
    let config = home.sandbox.home().join(".hermes/config.yaml");
    let text = fs::read_to_string(&config).expect("a file");
    fs::write(
        &config,
        format!("{text}quick_commands:\n  piton: {{\"type\": \"exec\", \"command\": \"{PITON} rollback\"}}\n"),
    )
    .expect("a file");
    let found = words(of(&home.doctor(), "hermes"));
    assert!(found.contains("`quick_commands.piton` in ") && found.contains("/piton may only list"), "{found}");
}
