//! `uninstall` reverts more than the hooks, and `install` updates the files of an older version.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::Sandbox;

use crate::install::{put, tree};
use crate::kit::{PITON, piton};

const CONFIG: &str = ".hermes/config.yaml";

fn read(sandbox: &Sandbox, path: &str) -> String {
    fs::read_to_string(sandbox.home().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn uninstalling_the_last_agent_restores_the_switch_exactly() {
    for text in [
        "",
        "# mine\nmodel: x\n",
        "checkpoints: false # no\n",
        "checkpoints:\n  enabled: false # later\n  max_files: 7",
        "checkpoints: {max_files: 7}\n",
    ] {
        let sandbox = Sandbox::new();
        put(&sandbox, CONFIG, text);
        let before = tree(&sandbox.home());
        piton(&sandbox, ["install", "claude", "hermes"]).done();
        piton(&sandbox, ["install", "codex"]).done();
        let said = piton(&sandbox, ["uninstall", "claude", "hermes"]).done();
        assert!(!said.stdout.contains("`enabled`"), "codex still needs it: {said:?}");
        assert!(piton(&sandbox, ["config", "get", "enabled"]).done().stdout == "true\n", "{text:?}");
        let planned = piton(&sandbox, ["uninstall", "codex", "--dry-run"]).done();
        assert!(planned.stdout.contains("Would put `enabled` back to what it was in "), "{planned:?}");
        let said = piton(&sandbox, ["uninstall", "codex", "--json"]).done().json();
        assert_eq!((&said["enabled"], &said["disabled"]), (&json!(false), &json!(true)));
        assert_eq!(tree(&sandbox.home()), before, "{text:?}");
    }
    // A file that did not exist is removed.
    let sandbox = Sandbox::new();
    piton(&sandbox, ["install", "claude"]).done();
    let said = piton(&sandbox, ["uninstall", "claude"]).done();
    assert!(said.stdout.contains("Put `enabled` back to what it was in "), "{said:?}");
    assert!(!sandbox.home().join(CONFIG).exists());
}

#[test]
fn what_the_user_did_to_the_switch_or_beside_it_stays() {
    // Changes beside the switch.
    for (text, after) in [
        ("model: x\n", "model: x\nmine: 1\n"),
        ("checkpoints:\n  enabled: false\n", "checkpoints:\n  enabled: false\nmine: 1\n"),
        ("checkpoints: false\n", "checkpoints: false\nmine: 1\n"),
    ] {
        let sandbox = Sandbox::new();
        let file = put(&sandbox, CONFIG, text);
        piton(&sandbox, ["install", "claude"]).done();
        fs::write(&file, read(&sandbox, CONFIG) + "mine: 1\n").expect("a file");
        piton(&sandbox, ["uninstall", "claude"]).done();
        assert_eq!(read(&sandbox, CONFIG), after);
    }
    // A file that can no longer be edited keeps its switch, but the hooks are removed.
    let sandbox = Sandbox::new();
    let file = put(&sandbox, CONFIG, "checkpoints: {max_files: 7}\n");
    piton(&sandbox, ["install", "claude"]).done();
    fs::write(&file, read(&sandbox, CONFIG) + "mine: 1\n").expect("a file");
    let said = piton(&sandbox, ["uninstall", "claude"]).done();
    assert!(said.stdout.contains("claude: removed") && said.stdout.contains("`enabled` stays on"), "{said:?}");
    // A switch that the user turned on later stays on.
    piton(&sandbox, ["install", "claude"]).done();
    piton(&sandbox, ["uninstall", "claude"]).done();
    assert_eq!(read(&sandbox, CONFIG), "checkpoints: {max_files: 7, enabled: true}\nmine: 1\n");
    // The switch itself: on before, and turned off by hand since.
    let sandbox = Sandbox::new();
    put(&sandbox, CONFIG, "checkpoints: true\n");
    piton(&sandbox, ["install", "claude"]).done();
    let said = piton(&sandbox, ["uninstall", "claude"]).done();
    assert!(said.stdout.contains("`enabled` stays on"), "{said:?}");
    assert_eq!(read(&sandbox, CONFIG), "checkpoints: true\n");
    let sandbox = Sandbox::new();
    piton(&sandbox, ["install", "claude"]).done();
    piton(&sandbox, ["config", "set", "enabled", "false"]).done();
    let text = read(&sandbox, CONFIG);
    piton(&sandbox, ["uninstall", "claude"]).done();
    assert_eq!(read(&sandbox, CONFIG), text);
}

/// Replaces the files of an agent with those of version 0.1, and adapts its record.
fn as_older(sandbox: &Sandbox, agent: &str, path: &str, text: &str) {
    put(sandbox, path, text);
    let record = sandbox.store().join(format!("installs/{agent}.json"));
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&record).expect("a record")).expect("JSON");
    let whole = sandbox.home().join(path);
    for file in value["files"].as_array_mut().expect("a list") {
        if Path::new(file["path"].as_str().expect("a path")) == whole {
            let sum: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
            file["after"] = sum.into();
        }
    }
    fs::write(&record, value.to_string()).expect("a record");
}

/// Codex silently skips a hook that changed since it was approved.
#[test]
fn over_an_older_version_command_files_are_updated_and_hooks_stay_to_the_byte() {
    let sandbox = Sandbox::new();
    let agents = ["claude", "codex", "gemini", "qwen", "copilot"];
    piton(&sandbox, ["install"].iter().chain(&agents)).done();
    as_older(
        &sandbox,
        "gemini",
        ".gemini/commands/rollback.toml",
        include_str!("../../src/agents/texts/0.1/rollback.toml"),
    );
    as_older(&sandbox, "qwen", ".qwen/commands/rollback.md", include_str!("data/commands-0.1/qwen.md"));
    let hooks = [".claude/settings.json", ".codex/hooks.json", ".gemini/settings.json", ".qwen/settings.json"];
    let before = hooks.map(|path| read(&sandbox, path));
    let said = piton(&sandbox, ["install"].iter().chain(&agents)).done();
    assert_eq!(hooks.map(|path| read(&sandbox, path)), before);
    assert!(said.stdout.contains("claude: already installed") && said.stdout.contains("codex: already installed"));
    assert!(read(&sandbox, ".gemini/commands/rollback.toml").ends_with("\nprompt = \"/rollback {{args}}\"\n"));
    assert!(read(&sandbox, ".qwen/commands/rollback.md").ends_with("\n---\n\n/rollback {{args}}\n"));
    // A file that piton wrote is recognised as piton's, whatever the records say.
    put(&sandbox, ".gemini/commands/rollback.toml", include_str!("../../src/agents/texts/0.1/rollback.toml"));
    piton(&sandbox, ["install", "gemini"]).done();
    assert!(read(&sandbox, ".gemini/commands/rollback.toml").ends_with("\nprompt = \"/rollback {{args}}\"\n"));
    let mine = include_str!("../../src/agents/texts/0.1/rollback.toml").replace("piton rollback", "my rollback");
    fs::write(sandbox.home().join(".gemini/commands/rollback.toml"), &mine).expect("a file");
    assert_eq!(piton(&sandbox, ["install", "gemini"]).code(), 3, "a file that the user changed is theirs");
    assert_eq!(read(&sandbox, ".gemini/commands/rollback.toml"), mine);
}

#[test]
fn the_quick_command_of_an_older_version_gives_way_to_the_plugin() {
    let hooks = format!("hooks:\n  pre_llm_call:\n    - command: \"{PITON} hook hermes\"\n      timeout: 15\n");
    let quick = format!("quick_commands:\n  piton:\n    type: \"exec\"\n    command: \"{PITON} rollback\"\n");
    for (theirs, left) in
        [("", ""), ("  up: {type: exec, command: uptime}\n", "quick_commands:\n  up: {type: exec, command: uptime}\n")]
    {
        let sandbox = Sandbox::new();
        put(&sandbox, CONFIG, &format!("checkpoints: true\n{hooks}{quick}{theirs}plugins:\n  enabled:\n    - mine\n"));
        piton(&sandbox, ["install", "hermes"]).done();
        let text = read(&sandbox, CONFIG);
        assert!(text.starts_with(&format!("checkpoints: true\n{hooks}")), "what has consent stays: {text}");
        assert!(text.contains(&format!("{left}plugins:\n  enabled:\n    - mine\n    - \"piton\"\n")), "{text}");
        assert!(!text.contains(" rollback"), "{text}");
        let plugin = PathBuf::from(".hermes/plugins/piton");
        assert!(
            read(&sandbox, plugin.join("__init__.py").to_str().expect("UTF-8"))
                .contains(&format!("[\"{PITON}\",\"hook\",\"hermes\"]"))
        );
        piton(&sandbox, ["uninstall", "hermes"]).done();
        assert_eq!(read(&sandbox, CONFIG), format!("checkpoints: true\n{left}plugins:\n  enabled:\n    - mine\n"));
        assert!(!sandbox.home().join(".hermes/plugins").exists());
    }
}
