//! The files written for each agent, in the form that the agent was observed to read; and the behaviour of the plugins.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, files_in, has_program};

use crate::kit::{PITON, piton, run};

fn enabled() -> Sandbox {
    let sandbox = Sandbox::new();
    let config = sandbox.home().join(".hermes/config.yaml");
    fs::create_dir_all(config.parent().expect("a directory")).expect("a directory");
    fs::write(config, "checkpoints: true\n").expect("a file");
    sandbox
}

fn installed(agent: &str, path: &str) -> (Sandbox, String) {
    let sandbox = enabled();
    piton(&sandbox, ["install", agent]).done();
    let text = fs::read_to_string(sandbox.home().join(path)).expect("a file");
    (sandbox, text)
}

fn installed_json(agent: &str, path: &str) -> Value {
    serde_json::from_str(&installed(agent, path).1).expect("JSON")
}

#[test]
fn claude_and_codex_nest_handlers_and_count_seconds() {
    for (agent, path, all_tools) in [("claude", ".claude/settings.json", "*"), ("codex", ".codex/hooks.json", ".*")] {
        let handlers = json!([{"type": "command", "command": format!("{PITON} hook {agent}"), "timeout": 15}]);
        let mut expected = json!({"hooks": {
            "SessionStart": [{"hooks": handlers}],
            "UserPromptSubmit": [{"hooks": handlers}],
            "PreToolUse": [{"matcher": all_tools, "hooks": handlers}],
        }});
        // Codex asks for approval of each hook.
        let ends: &[&str] = if agent == "claude" { &["Stop", "SessionEnd"] } else { &["Stop"] };
        for event in ends {
            expected["hooks"][event] = json!([{"hooks": handlers}]);
        }
        assert_eq!(installed_json(agent, path), expected);
    }
}

#[test]
fn gemini_and_qwen_count_milliseconds_and_gemini_outlives_a_missing_program() {
    for (agent, events, end) in [
        ("gemini", ["SessionStart", "BeforeAgent", "BeforeTool", "AfterAgent", "SessionEnd"], " 2>/dev/null || true"),
        ("qwen", ["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd"], ""),
    ] {
        let command = format!("{PITON} hook {agent}{end}");
        let handlers = json!([{"type": "command", "name": "piton", "command": command, "timeout": 15000}]);
        let expected = json!({"hooks": {
            events[0]: [{"hooks": handlers}],
            events[1]: [{"hooks": handlers}],
            events[2]: [{"matcher": ".*", "hooks": handlers}],
            events[3]: [{"hooks": handlers}],
            events[4]: [{"hooks": handlers}],
        }});
        assert_eq!(installed_json(agent, &format!(".{agent}/settings.json")), expected);
    }
}

#[test]
fn cursor_and_crush_have_flat_lists() {
    let handler = json!({"command": format!("{PITON} hook cursor"), "timeout": 15});
    let tool = json!({"matcher": ".*", "command": format!("{PITON} hook cursor"), "timeout": 15});
    let expected = json!({"version": 1, "hooks": {
        "sessionStart": [handler], "beforeSubmitPrompt": [handler], "preToolUse": [tool], "stop": [handler],
    }});
    assert_eq!(installed_json("cursor", ".cursor/hooks.json"), expected);
    let tool = json!({"matcher": ".*", "command": format!("{PITON} hook crush"), "timeout": 15});
    assert_eq!(installed_json("crush", ".config/crush/crush.json"), json!({"hooks": {"PreToolUse": [tool]}}));
}

#[test]
fn copilot_gets_a_file_of_its_own_with_the_event_in_each_command() {
    let handler = |event: &str| {
        let command = format!("{PITON} hook copilot {event} 2>/dev/null || true");
        json!([{"type": "command", "command": command, "timeoutSec": 15}])
    };
    let events = ["sessionStart", "userPromptSubmitted", "preToolUse", "agentStop", "sessionEnd"];
    let hooks: serde_json::Map<_, _> = events.iter().map(|event| ((*event).to_owned(), handler(event))).collect();
    assert_eq!(installed_json("copilot", ".copilot/hooks/piton.json"), json!({"version": 1, "hooks": hooks}));
}

#[test]
fn hermes_has_yaml_that_stock_python_reads() {
    let (sandbox, text) = installed("hermes", ".hermes/config.yaml");
    let command = format!("{PITON} hook hermes");
    let list = json!([{"command": command, "timeout": 15}]);
    let expected = json!({
        "checkpoints": true,
        "hooks": {
            "on_session_start": list, "pre_llm_call": list, "pre_tool_call": list, "post_llm_call": list,
            "on_session_finalize": list, "on_session_end": list,
        },
        "plugins": {"enabled": ["piton"]},
    });
    let python = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let has_yaml = clean_command("python3").args(["-c", "import yaml"]).stderr(Stdio::null()).status();
    if !has_yaml.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("PITON_TEST_ALL").is_none(), "PyYAML is missing, and PITON_TEST_ALL is set");
        assert_eq!(text.matches(&format!("command: \"{command}\"\n      timeout: 15\n")).count(), 5, "{text}");
        return;
    }
    let config = fs::File::open(sandbox.home().join(".hermes/config.yaml")).expect("a file");
    let said = run(clean_command("python3").args(["-c", python]).stdin(config)).done();
    assert_eq!(serde_json::from_str::<Value>(&said.stdout).expect("JSON"), expected);
}

/// Hermes rewrites its configuration from time to time: without comments, with its own indentation, and folded.
#[test]
fn a_file_that_hermes_rewrote_is_still_uninstalled_and_repaired() {
    let list = |name: &str, command: &str| format!("  {name}:\n  - command: {command}\n    timeout: 15\n");
    let command = "/old/place/piton hook hermes".to_owned();
    let folded = format!("/{}/piton hook\n      hermes", "long/".repeat(14));
    let quick = "quick_commands:\n  status:\n    type: exec\n    command: uptime\n";
    let theirs = "  - command: /x/theirs\n    timeout: 5\n";
    let text = |command: &str| {
        let hooks = list("pre_llm_call", command) + &list("pre_tool_call", command) + theirs;
        let piton = "  piton:\n    type: exec\n    command: /old/place/piton rollback\n";
        format!("model: x\nhooks:\n{hooks}hooks_auto_accept: false\n{quick}{piton}checkpoints:\n  enabled: true\n")
    };
    let expected = format!(
        "model: x\nhooks:\n  pre_tool_call:\n{theirs}hooks_auto_accept: false\n{quick}checkpoints:\n  enabled: true\n"
    );
    for command in [&command, &folded] {
        let sandbox = enabled();
        let file = sandbox.home().join(".hermes/config.yaml");
        fs::write(&file, text(command)).expect("a file");
        piton(&sandbox, ["uninstall", "hermes"]).done();
        assert_eq!(fs::read_to_string(&file).expect("a file"), expected);
    }
    for command in [&command, &folded] {
        let sandbox = enabled();
        let file = sandbox.home().join(".hermes/config.yaml");
        fs::write(&file, text(command)).expect("a file");
        piton(&sandbox, ["install", "hermes"]).done();
        let now = fs::read_to_string(&file).expect("a file");
        assert_eq!(now.matches(&format!("command: \"{PITON} hook hermes\"\n")).count(), 6, "{now}");
        assert!(!now.contains(" rollback\n") && now.matches("/piton").count() == 6, "{now}");
        assert!(now.contains(quick) && now.contains("- \"piton\"\n"), "{now}");
        piton(&sandbox, ["uninstall", "hermes"]).done();
        assert_eq!(fs::read_to_string(&file).expect("a file"), expected);
    }
}

#[test]
fn consent_is_given_to_hermes_only_when_asked_for() {
    let (sandbox, _) = installed("hermes", ".hermes/config.yaml");
    let list = sandbox.home().join(".hermes/shell-hooks-allowlist.json");
    assert!(!list.exists());
    let theirs = "{\"approvals\": [{\"event\": \"pre_tool_call\", \"command\": \"/x\"}], \"k\": 1}";
    fs::write(&list, theirs).expect("a file");
    piton(&sandbox, ["install", "hermes", "--trust"]).done();
    let value: Value = serde_json::from_str(&fs::read_to_string(&list).expect("a file")).expect("JSON");
    let approvals: Vec<_> =
        value["approvals"].as_array().expect("a list").iter().map(|one| one["event"].clone()).collect();
    let ours =
        ["on_session_start", "pre_llm_call", "pre_tool_call", "post_llm_call", "on_session_finalize", "on_session_end"];
    assert_eq!(approvals[0], "pre_tool_call");
    assert_eq!(approvals[1..], ours);
    assert_eq!(value["approvals"][1]["command"], format!("{PITON} hook hermes"));
    let said = piton(&sandbox, ["install", "hermes", "--trust"]).done();
    assert_eq!(said.stdout, "hermes: already installed, nothing to change\n");
    piton(&sandbox, ["uninstall", "hermes"]).done();
    assert_eq!(fs::read_to_string(&list).expect("a file"), theirs);
}

/// An agent may run hooks in an environment that is not its user's.
#[test]
fn a_base_and_a_configuration_that_are_not_the_usual_ones_are_in_the_command() {
    let sandbox = enabled();
    let (base, config) = (sandbox.root().join("the base"), sandbox.root().join("config.yaml"));
    fs::write(&config, "checkpoints: true\n").expect("a file");
    let mut install = crate::kit::command(&sandbox);
    install.env("PITON_BASE", &base).arg("--config").arg(&config);
    run(install.args(["install", "claude", "opencode", "copilot", "hermes"])).done();
    let options = format!("--base '{}' --config {}", base.display(), config.display());
    let read = |path: &str| fs::read_to_string(sandbox.home().join(path)).expect("a file");
    let claude = read(".claude/settings.json");
    assert!(claude.contains(&format!("\"{PITON} hook claude {options}\"")), "{claude}");
    let copilot = read(".copilot/hooks/piton.json");
    assert!(copilot.contains(&format!("hook copilot preToolUse {options} 2>/dev/null || true\"")), "{copilot}");
    let words = json!([PITON, "hook", "hermes", "--base", base, "--config", config]);
    assert!(read(".hermes/plugins/piton/__init__.py").contains(&format!("\nCOMMAND = {words}\n")));
    let words = json!([PITON, "hook", "opencode", "--base", base, "--config", config]);
    assert!(read(".config/opencode/plugins/piton.js").contains(&words.to_string()));
    // The checkpoints of the test events that doctor sends are not stored in that base.
    let store = || files_in(&base.join("store/refs"));
    let before = store();
    let mut doctor = crate::kit::command(&sandbox);
    let answer = run(doctor.env("PITON_BASE", &base).arg("--config").arg(&config).args(["doctor", "--json"])).json();
    let fired = answer["agents"].as_array().expect("a list").iter().filter(|one| one["fired"] == true);
    assert_eq!((fired.count(), store()), (4, before), "{answer}");
    let mut install = crate::kit::command(&sandbox);
    run(install.args(["install", "claude"])).done();
    assert!(read(".claude/settings.json").contains(&format!("\"{PITON} hook claude\"")), "the usual ones again");
}

#[test]
fn commands_for_rollback_are_written_and_start_nothing() {
    for (agent, path) in [
        ("claude", ".claude/commands/rollback.md"),
        ("gemini", ".gemini/commands/rollback.toml"),
        ("qwen", ".qwen/commands/rollback.md"),
        ("copilot", ".copilot/skills/rollback/SKILL.md"),
    ] {
        let (_, text) = installed(agent, path);
        assert!(
            text.contains("Written by `piton install") && text.contains("description") && !text.contains("!{"),
            "{text}"
        );
        // These two agents send the text of the file to the hook instead of what was typed.
        assert_eq!(text.contains("/rollback {{args}}"), ["gemini", "qwen"].contains(&agent), "{text}");
    }
}

/// Python program that loads the plugin as Hermes does and runs its command.
const HERMES_DRIVER: &str = r#"
import importlib.util, sys
spec = importlib.util.spec_from_file_location("hermes_plugins.piton", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
class Context:
    def register_hook(self, name, callback): self.hook = callback
    def register_command(self, name, handler, description="", args_hint=""): self.command = (name, handler)
context = Context()
module.register(context)
for session, platform in [used.split("@") for used in sys.argv[3:]]:
    assert context.hook(session_id=session, platform=platform, turn_id="t", unknown=1) is None
assert context.command[0] == "piton"
print(context.command[1](sys.argv[2]))
"#;

/// Runs the command of the plugin after these sessions were used, each `SESSION@PLATFORM`. Returns its output.
fn type_in_hermes(sandbox: &Sandbox, arguments: &str, used: &[&str]) -> String {
    let plugin = sandbox.home().join(".hermes/plugins/piton/__init__.py");
    let mut python = clean_command("python3");
    python.env("HOME", sandbox.home()).env("TZ", "UTC").env("PYTHONDONTWRITEBYTECODE", "1");
    python.current_dir(sandbox.project()).args(["-c", HERMES_DRIVER]).arg(plugin).arg(arguments).args(used);
    run(&mut python).done().stdout
}

#[test]
fn the_plugin_for_hermes_names_the_session_that_was_used_last() {
    if !has_program("python3") {
        return;
    }
    let (sandbox, text) = installed("hermes", ".hermes/plugins/piton/__init__.py");
    let echo = json!(["python3", "-c", "import json, sys; print(json.dumps({'text': sys.stdin.read()}))"]);
    let line = text.lines().find(|line| line.starts_with("COMMAND = ")).expect("a command");
    let plugin = sandbox.home().join(".hermes/plugins/piton/__init__.py");
    fs::write(plugin, text.replace(line, &format!("COMMAND = {echo}"))).expect("a file");
    let session = |used: &[&str]| {
        let event: Value = serde_json::from_str(&type_in_hermes(&sandbox, "1", used)).expect("an event");
        event["session_id"].as_str().map(str::to_owned)
    };
    assert_eq!(session(&[]), None);
    assert_eq!(session(&["a@cli", "b@cli"]).as_deref(), Some("b"), "after /new");
    assert_eq!(session(&["a@tui", "b@subagent"]).as_deref(), Some("a"), "a subagent does not type");
    assert_eq!(session(&["a@telegram"]).as_deref(), Some("a"));
    assert_eq!(session(&["a@telegram", "b@telegram"]), None, "a gateway serves several");
}

#[test]
fn the_plugin_passes_on_what_is_typed_in_hermes() {
    if !has_program("python3") {
        return;
    }
    let (sandbox, _) = installed("hermes", ".hermes/plugins/piton/plugin.yaml");
    sandbox.tree("a.txt = 1");
    piton(&sandbox, ["take"]).done();
    sandbox.write("a.txt", "2");
    let plugin = sandbox.home().join(".hermes/plugins/piton/__init__.py");
    let call = |arguments: &str| type_in_hermes(&sandbox, arguments, &["s@cli"]);
    assert!(call("").contains("\n  /piton N        restore to checkpoint N\n"), "{}", call(""));
    assert!(call("1 a.txt").starts_with("Restored to "));
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "1");
    fs::write(&plugin, fs::read_to_string(&plugin).expect("a file").replace(PITON, "/nowhere/piton")).expect("a file");
    assert!(call("").contains("run `piton rollback` in a shell"), "{}", call(""));
}

#[test]
fn bytecode_that_python_made_of_the_plugin_is_removed_with_it() {
    for (kept, is_gone) in [(None, true), (Some("notes.txt"), false), (Some("__pycache__/mine.cpython-311.pyc"), false)]
    {
        let (sandbox, _) = installed("hermes", ".hermes/plugins/piton/__init__.py");
        let plugin = sandbox.home().join(".hermes/plugins/piton");
        fs::create_dir(plugin.join("__pycache__")).expect("a directory");
        for name in ["__init__.cpython-311.pyc", "__init__.cpython-313.opt-1.pyc"] {
            fs::write(plugin.join("__pycache__").join(name), "bytes").expect("a file");
        }
        if let Some(kept) = kept {
            fs::write(plugin.join(kept), "mine").expect("a file");
        }
        piton(&sandbox, ["uninstall", "hermes"]).done();
        assert_eq!(!sandbox.home().join(".hermes/plugins").exists(), is_gone, "{kept:?}");
        assert!(kept.is_none_or(|kept| plugin.join(kept).exists()), "{kept:?}");
        assert!(!plugin.join("__pycache__/__init__.cpython-311.pyc").exists());
    }
}

/// Node program that loads the plugin as opencode does and calls the hooks that it returns.
const DRIVER: &str = r#"
import { pathToFileURL } from "node:url";
const module = await import(pathToFileURL(process.argv[2]).href);
const hooks = await Object.values(module)[0]({ directory: process.argv[3], worktree: "/" });
const loop = {}; loop.loop = loop;
const info = { id: "child", parentID: "s" };
await hooks.event({ event: { type: "session.created", properties: { sessionID: "child", info } } });
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "child" } } });
await hooks.event();
await hooks.event({ event: { type: "session.created", properties: loop } });
const parts = [{ type: "text", text: "ü" }];
await hooks["chat.message"]({ sessionID: "s" }, { message: { id: "msg_1" }, parts });
const answered = parts.slice(1);
await hooks["tool.execute.before"]({ tool: "write", sessionID: "s", callID: "c" }, { args: { filePath: "/x" } });
await hooks["tool.execute.before"](loop, loop);
await hooks["tool.execute.before"](undefined, 1n);
const others = await Object.values(module)[0](undefined);
await others["chat.message"]();
console.log(`went on${answered.length ? " " + JSON.stringify(answered) : ""}`);
"#;

/// Runs the plugin under node with this shell script in place of piton. Returns the events that the script received,
/// one per line.
fn drive(script: &str, deadline_ms: u32) -> Vec<Value> {
    let (told, said) = drive_and_read(script, deadline_ms);
    assert_eq!(said, "went on\n");
    told
}

/// Like [`drive`], and returns the output of node too.
fn drive_and_read(script: &str, deadline_ms: u32) -> (Vec<Value>, String) {
    let (sandbox, text) = installed("opencode", ".config/opencode/plugins/piton.js");
    let fake = sandbox.root().join("fake");
    fs::write(&fake, format!("#!/bin/sh\n{script}\n")).expect("a file");
    let told = sandbox.root().join("told");
    let line = format!("const COMMAND = [\"sh\",\"{}\",\"{}\"];", fake.display(), told.display());
    let text: Vec<_> =
        text.lines().map(|old| if old.starts_with("const COMMAND = ") { line.as_str() } else { old }).collect();
    let plugin = sandbox.root().join("piton.mjs");
    let deadline = format!("DEADLINE_MS = {deadline_ms};");
    fs::write(&plugin, text.join("\n").replace("DEADLINE_MS = 15000;", &deadline)).expect("a file");
    let driver = sandbox.root().join("driver.mjs");
    fs::write(&driver, DRIVER).expect("a file");
    let ran = run(clean_command("node").arg(driver).arg(plugin).arg("/the/project")).done();
    assert_eq!(ran.stderr, "");
    let told = fs::read_to_string(told).unwrap_or_default();
    (told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), ran.stdout)
}

#[test]
fn the_plugin_for_opencode_adds_the_answer_to_the_prompt() {
    if !has_program("node") {
        return;
    }
    let added = |script: &str| drive_and_read(script, 60_000).1;
    let part = json!([{
        "id": "prt_1piton", "messageID": "msg_1", "sessionID": "s", "type": "text", "text": "a\nb", "synthetic": true,
    }]);
    let said = added(r#"cat > /dev/null; printf '{"context":"a\\nb"}\n'"#);
    let said: Value = serde_json::from_str(said.trim().strip_prefix("went on ").expect("a part")).expect("JSON");
    assert_eq!(said, part);
    for silent in ["{}", r#"{"context":""}"#, r#"{"context":7}"#, "null", "noise", ""] {
        assert_eq!(added(&format!("cat > /dev/null; printf '%s' '{silent}'")), "went on\n", "{silent}");
    }
}

#[test]
fn the_plugin_for_opencode_tells_piton_and_never_throws() {
    if !has_program("node") {
        return;
    }
    let told = drive("cat >> \"$1\"; echo >> \"$1\"; echo noise; echo noise >&2; exit 1", 60_000);
    let created = json!({
        "hook_event_name": "event:session.created", "directory": "/the/project", "worktree": "/",
        "event": {"type": "session.created", "properties": {"sessionID": "child", "info": {"id": "child", "parentID": "s"}}},
    });
    let first = json!({
        "hook_event_name": "chat.message", "directory": "/the/project", "worktree": "/", "input": {"sessionID": "s"},
        "output": {"message": {"id": "msg_1"}, "parts": [{"type": "text", "text": "ü"}]},
    });
    let second = json!({
        "hook_event_name": "tool.execute.before", "directory": "/the/project", "worktree": "/",
        "input": {"tool": "write", "sessionID": "s", "callID": "c"}, "output": {"args": {"filePath": "/x"}},
    });
    assert_eq!(told[1]["hook_event_name"], "event:session.idle", "the end of a turn");
    assert_eq!([&told[0], &told[2], &told[3]], [&created, &first, &second]);
    assert_eq!(told.len(), 5, "what has no JSON is not told");
    assert_eq!(drive("exec sleep 60", 300), [Value::Null; 0], "it waits for its deadline and no longer");
    assert_eq!(drive("kill -9 $$", 60_000), [Value::Null; 0]);
}

#[test]
fn the_plugin_for_opencode_outlives_a_missing_program() {
    if !has_program("node") {
        return;
    }
    let (sandbox, text) = installed("opencode", ".config/opencode/plugins/piton.js");
    let plugin = sandbox.root().join("piton.mjs");
    fs::write(&plugin, text.replace(PITON, "/nowhere/piton")).expect("a file");
    let driver = sandbox.root().join("driver.mjs");
    fs::write(&driver, DRIVER).expect("a file");
    let ran = run(clean_command("node").arg(driver).arg(plugin).arg("/the/project")).done();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("went on\n", ""));
}

#[test]
fn two_at_the_same_moment_install_one_thing() {
    let sandbox = enabled();
    let start = || {
        let mut command = crate::kit::command(&sandbox);
        command.args(["install", "claude", "gemini"]).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    };
    let children: Vec<_> = (0..6).map(|_| start()).collect();
    for child in children {
        let ran = child.wait_with_output().expect("it ends");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    let text = fs::read_to_string(sandbox.home().join(".claude/settings.json")).expect("a file");
    assert_eq!(text.matches(" hook claude").count(), 5, "{text}");
}

/// Codex skips a hook whose entry changed, without a word: what was approved must stay as it is.
#[test]
fn the_end_of_a_turn_is_a_new_entry_beside_those_of_version_0_1() {
    let entry = |event: &str, matcher: &str| {
        format!(
            "    \"{event}\": [\n      {{\n{matcher}        \"hooks\": [\n          {{\n            \"type\": \"command\",\n            \
             \"command\": \"{PITON} hook codex\",\n            \"timeout\": 15\n          }}\n        ]\n      }}\n    ]"
        )
    };
    let entries = [
        entry("SessionStart", ""),
        entry("UserPromptSubmit", ""),
        entry("PreToolUse", "        \"matcher\": \".*\",\n"),
    ];
    let file = |entries: &[String]| format!("{{\n  \"hooks\": {{\n{}\n  }}\n}}\n", entries.join(",\n"));
    let sandbox = enabled();
    let path = sandbox.home().join(".codex/hooks.json");
    fs::create_dir_all(sandbox.home().join(".codex")).expect("a directory");
    fs::write(&path, file(&entries)).expect("a file");
    let told = piton(&sandbox, ["doctor", "--no-fire"]);
    assert!(told.stdout.contains("ends of turns are not reported: `piton install codex` adds Stop"), "{told:?}");
    let status = || piton(&sandbox, ["status", "--json"]).done().json()["no_ends"].clone();
    assert_eq!(status(), json!([{"agent": "codex", "why": "`piton install codex` adds Stop"}]));
    let told = piton(&sandbox, ["status"]).done().stdout;
    assert!(
        told.contains("\nEnds of turns that are not reported:\n  codex: `piton install codex` adds Stop"),
        "{told}"
    );
    piton(&sandbox, ["install", "codex"]).done();
    let all: Vec<_> = entries.iter().cloned().chain([entry("Stop", "")]).collect();
    assert_eq!(fs::read_to_string(&path).expect("a file"), file(&all));
    let told = piton(&sandbox, ["doctor", "--no-fire"]);
    let waits = "they wait for approval: start codex and approve them in /hooks";
    assert!(told.stdout.contains(&format!("ends of turns are not reported: {waits}")), "{told:?}");
    assert!(told.stdout.contains("0 of 4 hooks are approved"), "{told:?}");
    assert_eq!(status(), json!([{"agent": "codex", "why": waits}]));
}
