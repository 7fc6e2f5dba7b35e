//! `install` and `uninstall`: the exact bytes come back, no foreign key is touched, and each agent gets the files it
//! reads.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, walk};

use crate::kit::{PITON, Ran, command, in_dir, piton, run};

/// Every agent with the path of its configuration below the home directory.
const CONFIGS: [(&str, &str); 9] = [
    ("claude", ".claude/settings.json"),
    ("codex", ".codex/hooks.json"),
    ("gemini", ".gemini/settings.json"),
    ("cursor", ".cursor/hooks.json"),
    ("qwen", ".qwen/settings.json"),
    ("crush", ".config/crush/crush.json"),
    ("hermes", ".hermes/config.yaml"),
    ("opencode", ".config/opencode/plugins/piton.js"),
    ("copilot", ".copilot/hooks/piton.json"),
];

/// Unusual JSON, as people and programs leave it.
const JSON: &[&str] = &[
    "{}",
    "{}\n",
    "{ }",
    "{\n}\n",
    "",
    "\n",
    "// nothing yet\n",
    "// nothing yet",
    "\u{feff}{}\r\n",
    "{\"model\":\"x\"}",
    "{\"model\": \"x\", \"n\": [1, 2, {}]}\n",
    "{\n  \"model\": \"x\"\n}\n",
    "{\n  \"model\": \"x\",\n}\n",
    "{\n\t\"model\": \"x\"\n}",
    "{\r\n    \"model\": \"x\" // why\r\n}\r\n",
    "{\n    \"model\": \"x\", /* a */ // b\n    // c\n}\n",
    "/* head */\n{\n   // first\n   \"a\": {\"b\": [ ] },\n   \"c\" : null ,\n   \"d\":\"{}[],//\\\"\"\n}\n// tail",
    "{\"hooks\":{}}",
    "{\"hooks\": {}}\n",
    "{\n  \"hooks\": {},\n  \"z\": 1\n}\n",
    "{\n  \"hooks\": {\n  }\n}\n",
    "{\n  \"hooks\": {\n    // none\n  }\n}\n",
    "{\n  \"hooks\": {\"PreToolUse\": []}\n}\n",
    "{\n  \"hooks\": {\n    \"PreToolUse\": [\n    ],\n    \"preToolUse\": [ ],\n    \"BeforeTool\": [/* x */]\n  }\n}\n",
    "{\n  \"hooks\": {\n    \"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"echo\"}]}],\n    \
     \"Stop\": [\n      {\"hooks\": []}, // c\n    ],\n  },\n}\n",
    "{\n  \"hooks\": {\n    \"UserPromptSubmit\": [\n      {\n        \"hooks\": [\n          { \"type\": \"command\", \
     \"command\": \"/x/other hook claude\" }\n        ]\n      } // mine\n    ]\n  },\n  \"version\": 1\n}",
    "{\"a\":1,\"hooks\":{\"PreToolUse\":[{\"matcher\":\"*\",\"hooks\":[]}]},\"b\":[]}",
    "{\n\n\n  \"a\"   :   1   ,\n\n\n}\n\n\n",
    "{\"ключ\": \"значение\", \"emoji\": \"🧗\", \"esc\": \"\\u0041\\n\"}\n",
    "{\"n\": 1e400, \"big\": 123456789012345678901234567890, \"neg\": -0.0}\n",
    "{\n \"a\": 1, \"b\": 2}\n",
    "{ \"a\": 1\n, \"b\": 2\n}",
];

/// Unusual YAML, with checkpoints enabled, so that only the hooks have to be changed.
const YAML: &[&str] = &[
    "model: x\nplugins:\n  enabled:\n  - other\n",
    "plugins:\n  enabled: []\n",
    "plugins:\n  disabled: [z]\n",
    "checkpoints: true\n",
    "checkpoints: true",
    "checkpoints:\n  enabled: true\n",
    "---\ncheckpoints: {\"enabled\": true}\n",
    "\u{feff}checkpoints: true\nmodel: x\n",
    "checkpoints: true\r\nmodel:\r\n    default: x # y\r\n",
    "# head\ncheckpoints: true # on\n\n# tail\n\n\n",
    "checkpoints: true\nhooks: {}\nhooks_auto_accept: false\n",
    "checkpoints: true\nhooks:\nmodel: x\n",
    "checkpoints: true\nhooks:\n  # none yet\nmodel: x\n",
    "hooks:\n  pre_tool_call:\n    - command: /x/y.sh\n      timeout: 5\n    # last\ncheckpoints: true\n",
    "hooks:\n  pre_tool_call:\n  - command: /x/y.sh\n\n  post_tool_call:\n  - {command: z}\n\ncheckpoints: true\n",
    "hooks:\n    pre_llm_call: []\n    pre_tool_call: [{\"command\": \"x\"}]\ncheckpoints: true\n",
    "\"hooks\":\n  'pre_tool_call':\n    -   command: |\n          x\n        timeout: 1\ncheckpoints: true\n",
    "quick_commands:\n  status: {type: exec, command: uptime}\ncheckpoints: true\n",
    "quick_commands: {}\ncheckpoints: true\ntext: |\n  hooks:\n    not: this\nlist:\n- a\n- b\n",
    "checkpoints: true\nprompt: >-\n  many\n\n  words\nend: ~\n",
];

/// Returns every entry below a directory, except the store: modes, link targets and bytes.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    walk(dir, &mut |path| {
        let stat = path.symlink_metadata().expect("what was just listed");
        let bytes = if stat.is_symlink() {
            fs::read_link(path).expect("a link").into_os_string().into_encoded_bytes()
        } else if stat.is_file() {
            fs::read(path).expect("a file")
        } else {
            Vec::new()
        };
        if !path.components().any(|part| part.as_os_str() == "checkpoints") {
            all.insert(path.to_owned(), (stat.mode(), bytes));
        }
    });
    all
}

pub(crate) fn put(sandbox: &Sandbox, path: &str, text: &str) -> PathBuf {
    let path = sandbox.home().join(path);
    fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
    fs::write(&path, text).expect("a file");
    path
}

/// Creates a sandbox with checkpoints already enabled, so that a test sees only the changes for its agent.
fn enabled() -> Sandbox {
    let sandbox = Sandbox::new();
    put(&sandbox, ".hermes/config.yaml", "checkpoints: true\n");
    sandbox
}

fn json_at(sandbox: &Sandbox, path: &str) -> Value {
    let text = fs::read_to_string(sandbox.home().join(path)).expect("a file");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// I1, I3.
#[test]
fn the_very_bytes_come_back_from_odd_json() {
    // One agent per shape: nested, nested with a name, flat with a version, flat.
    for (agent, path) in CONFIGS.iter().filter(|(agent, _)| ["claude", "gemini", "cursor", "crush"].contains(agent)) {
        for text in JSON {
            let sandbox = enabled();
            let file = put(&sandbox, path, text);
            let before = tree(&sandbox.home());
            let ran = piton(&sandbox, ["install", agent]).done();
            assert!(
                fs::read_to_string(&file).expect("a file").contains(&format!("hook {agent}")),
                "{agent} {text:?}: {ran:?}"
            );
            let again = piton(&sandbox, ["install", agent]).done();
            assert_eq!(again.stdout, format!("{agent}: already installed, nothing to change\n"), "{text:?}");
            piton(&sandbox, ["uninstall", agent]).done();
            assert_eq!(tree(&sandbox.home()), before, "{agent} {text:?}");
        }
    }
}

#[test]
fn the_very_bytes_come_back_from_odd_yaml() {
    for text in YAML {
        let sandbox = Sandbox::new();
        let file = put(&sandbox, ".hermes/config.yaml", text);
        let before = tree(&sandbox.home());
        let ran = piton(&sandbox, ["install", "hermes"]).done();
        assert_eq!(fs::read_to_string(&file).expect("a file").matches(" hook hermes").count(), 6, "{text:?}: {ran:?}");
        let again = piton(&sandbox, ["install", "hermes"]).done();
        assert_eq!(again.stdout, "hermes: already installed, nothing to change\n", "{text:?}");
        piton(&sandbox, ["uninstall", "hermes"]).done();
        assert_eq!(tree(&sandbox.home()), before, "{text:?}");
    }
}

#[test]
fn all_agents_at_once_leave_nothing_behind() {
    let sandbox = enabled();
    let before = tree(&sandbox.home());
    let agents = CONFIGS.map(|(agent, _)| agent);
    piton(&sandbox, ["install"].iter().chain(&agents)).done();
    for (agent, path) in CONFIGS {
        assert!(sandbox.home().join(path).is_file(), "{agent}");
    }
    let said = piton(&sandbox, ["uninstall"].iter().chain(&agents)).done();
    assert!(said.stdout.contains("No agent is installed any more; `enabled` stays on"), "{said:?}");
    assert_eq!(tree(&sandbox.home()), before, "also the directory that was made for one agent and used by another");
    let said = piton(&sandbox, ["uninstall", "claude"]).done();
    assert!(said.stdout.starts_with("claude: not installed, nothing to change\n"), "{said:?}");
}

/// Changes by others to the file in the meantime are kept, and piton's entries are removed.
#[test]
fn changes_of_others_in_between_stay() {
    for text in JSON.iter().filter(|text| text.contains(['"'])) {
        let sandbox = enabled();
        let file = put(&sandbox, ".claude/settings.json", text);
        piton(&sandbox, ["install", "claude"]).done();
        let end = "\n// added later\n";
        let with = fs::read_to_string(&file).expect("a file") + end;
        fs::write(&file, with).expect("a file");
        let said = piton(&sandbox, ["uninstall", "claude"]).done();
        let now = fs::read_to_string(&file).expect("a file");
        assert!(!now.contains("piton") && said.stdout.contains("as it was: "), "{now}");
        // The whitespace of an empty list may differ; the list is still there, and empty.
        let squeezed = |text: &str| text.replace([' ', '\n', '\r', '\t'], "");
        assert_eq!(squeezed(&now), squeezed(&format!("{text}{end}")), "{text:?}");
    }
    for text in YAML {
        let sandbox = Sandbox::new();
        let file = put(&sandbox, ".hermes/config.yaml", text);
        piton(&sandbox, ["install", "hermes"]).done();
        let with = fs::read_to_string(&file).expect("a file").trim_end().to_owned() + "\nlater: 1\n";
        fs::write(&file, with).expect("a file");
        piton(&sandbox, ["uninstall", "hermes"]).done();
        let now = fs::read_to_string(&file).expect("a file");
        let content =
            |text: &str| text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
        assert_eq!(content(&now), content(&format!("{text}\nlater: 1\n")), "{text:?}");
    }
}

/// I5.
#[test]
fn a_foreign_handler_beside_ours_stays() {
    let sandbox = enabled();
    piton(&sandbox, ["install", "claude"]).done();
    let file = sandbox.home().join(".claude/settings.json");
    let mut value = json_at(&sandbox, ".claude/settings.json");
    let theirs = json!({"type": "command", "command": "/x/theirs"});
    value["hooks"]["PreToolUse"][0]["hooks"].as_array_mut().expect("a list").push(theirs.clone());
    fs::write(&file, value.to_string()).expect("a file");
    piton(&sandbox, ["uninstall", "claude"]).done();
    let left = json!({"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [theirs]}]}});
    assert_eq!(json_at(&sandbox, ".claude/settings.json"), left);
}

#[test]
fn without_its_memory_uninstall_still_takes_out_what_is_ours() {
    for (agent, path) in CONFIGS {
        let sandbox = Sandbox::new();
        let text = if path.ends_with("yaml") { "checkpoints: true\nmodel: x\n" } else { "{\"model\": \"x\"}\n" };
        if !["opencode", "copilot"].contains(&agent) {
            put(&sandbox, path, text);
        }
        put(&sandbox, ".hermes/config.yaml", "checkpoints: true\nmodel: x\n");
        piton(&sandbox, ["install", agent]).done();
        fs::remove_dir_all(sandbox.base()).expect("the base goes");
        piton(&sandbox, ["uninstall", agent]).done();
        let left = fs::read_to_string(sandbox.home().join(path)).ok();
        // Without the records, piton cannot know who wrote the version key.
        let left = left.map(|text| text.replace(", \"version\": 1", ""));
        let expected = (!["opencode", "copilot"].contains(&agent)).then(|| text.to_owned());
        assert_eq!(left, expected, "{agent}");
    }
}

#[test]
fn a_dry_run_shows_a_diff_and_changes_nothing() {
    let sandbox = Sandbox::new();
    put(&sandbox, ".claude/settings.json", "{\n  \"model\": \"x\"\n}\n");
    let before = tree(&sandbox.root());
    let agents = CONFIGS.map(|(agent, _)| agent);
    let ran = piton(&sandbox, ["install", "--dry-run"].iter().chain(&agents)).done();
    for words in [
        "-  \"model\": \"x\"\n+  \"model\": \"x\",\n",
        "+checkpoints:\n+  enabled: true\n",
        "claude: would be installed",
    ] {
        assert!(ran.stdout.contains(words), "{words:?}: {}", ran.stdout);
    }
    assert_eq!(tree(&sandbox.root()), before);
    assert!(!sandbox.base().exists());
    piton(&sandbox, ["install", "claude"]).done();
    let before = tree(&sandbox.root());
    let ran = piton(&sandbox, ["uninstall", "claude", "--dry-run", "--json"]).done().json();
    assert!(ran["diff"].as_str().is_some_and(|diff| diff.contains("+  \"model\": \"x\"\n")), "{ran}");
    assert_eq!((&ran["dry_run"], &ran["agents"][0]["outcome"]), (&json!(true), &json!("removed")));
    assert_eq!(tree(&sandbox.root()), before);
}

/// I4.
#[test]
fn what_cannot_be_edited_is_refused_and_nothing_is_changed() {
    let bad =
        ["{", "{\"hooks\": 1}", "{\"hooks\": []}", "{\"hooks\": {\"PreToolUse\": {}}}", "[]", "{\"a\": 1} x", "\u{1}"];
    for text in bad {
        let sandbox = Sandbox::new();
        let path = put(&sandbox, ".claude/settings.json", text);
        let before = tree(&sandbox.home());
        let ran = piton(&sandbox, ["install", "gemini", "claude"]).failed(2);
        assert!(ran.stderr.contains(&format!("cannot edit {}: ", path.display())), "{ran:?}");
        assert!(ran.stderr.contains("hint: nothing was changed;") && ran.stderr.contains("by hand"), "{ran:?}");
        assert_eq!(tree(&sandbox.home()), before, "{text:?}");
    }
    let bad = [
        "hooks: [",
        "model: [1, 2\nb: 3\n",
        "a: b: c\n",
        "plugins:\n\t- x\n",
        "hooks: 1\n",
        "hooks: &a\n  x: 1\nb: *a\n",
        "a: 1\n---\nb: 2\n",
        "hooks: {pre_tool_call: [x]}\n",
        "- a\n",
        // A list merged from elsewhere would be hidden by one written here.
        "base: &b\n  hooks:\n    pre_tool_call:\n    - command: x\n<<: *b\ncheckpoints: true\n",
    ];
    for text in bad {
        let sandbox = Sandbox::new();
        put(&sandbox, ".hermes/config.yaml", text);
        let before = tree(&sandbox.home());
        let ran = piton(&sandbox, ["install", "claude", "hermes"]);
        assert!(ran.code() != 0 && ran.stderr.contains("config.yaml"), "{text:?}: {ran:?}");
        assert_eq!(tree(&sandbox.home()), before, "{text:?}");
    }
    let sandbox = enabled();
    let file = put(&sandbox, ".claude/settings.json", "");
    fs::write(&file, b"{\"a\": \"\xff\"}").expect("a file");
    assert!(piton(&sandbox, ["install", "claude"]).failed(2).stderr.contains("it is not UTF-8"));
    fs::remove_file(&file).expect("a file");
    symlink("nowhere", &file).expect("a link");
    assert!(piton(&sandbox, ["install", "claude"]).failed(1).stderr.contains("cannot follow the link"));
    fs::remove_file(&file).expect("a link");
    fs::create_dir(&file).expect("a directory");
    assert!(piton(&sandbox, ["install", "claude"]).failed(2).stderr.contains("it is not a regular file"));
}

#[test]
fn a_piton_that_moved_is_put_right_in_place() {
    for (agent, path) in CONFIGS {
        let sandbox = enabled();
        if !["opencode", "copilot", "hermes"].contains(&agent) {
            put(&sandbox, path, "{\n    // mine\n    \"hooks\": {},\n}");
        }
        let before = tree(&sandbox.home());
        piton(&sandbox, ["install", agent]).done();
        let text = fs::read_to_string(sandbox.home().join(path)).expect("a file");
        let moved = sandbox.copy_of_program(PITON, "other place/it's here");
        let from = |args: &[&str]| -> Ran {
            run(clean_command(&moved).env("HOME", sandbox.home()).current_dir(sandbox.project()).args(args))
        };
        let ran = from(&["install", agent]).done();
        assert!(ran.stdout.starts_with(&format!("{agent}: updated\n")), "{ran:?}");
        let now = fs::read_to_string(sandbox.home().join(path)).expect("a file");
        assert!(!now.contains(PITON), "{now}");
        assert_eq!(now.lines().count(), text.lines().count(), "{now}");
        from(&["uninstall", agent]).done();
        assert_eq!(tree(&sandbox.home()), before, "{agent}");
    }
}

/// For any path of the program, a shell finds it by the command in the configuration.
#[test]
fn the_command_is_quoted_for_a_shell() {
    for dir in ["a b", "it's", "$HOME `x` \"y\"", "semi;colon&", "ü"] {
        let sandbox = enabled();
        let moved = sandbox.copy_of_program(PITON, dir);
        run(clean_command(&moved)
            .env("HOME", sandbox.home())
            .current_dir(sandbox.project())
            .args(["install", "claude"]))
        .done();
        let value = json_at(&sandbox, ".claude/settings.json");
        let line = value["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().expect("a command").to_owned();
        let said = run(clean_command("sh").args(["-c", &format!("set -- {line}; printf '%s|' \"$@\"")])).done();
        assert_eq!(said.stdout, format!("{}|hook|claude|", moved.display()));
    }
}

/// Package managers keep each version in a separate directory, behind a symlink that stays.
#[test]
fn a_link_by_which_piton_was_called_is_what_is_written_down() {
    let sandbox = enabled();
    let bin = sandbox.root().join("bin");
    fs::create_dir(&bin).expect("a directory");
    symlink(PITON, bin.join("piton")).expect("a link");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a search path"));
    let mut shell = clean_command("sh");
    shell.env("HOME", sandbox.home()).env("PATH", path).current_dir(sandbox.project());
    run(shell.args(["-c", "piton install crush"])).done();
    let value = json_at(&sandbox, ".config/crush/crush.json");
    assert_eq!(value["hooks"]["PreToolUse"][0]["command"], format!("{} hook crush", bin.join("piton").display()));
}

/// I7.
#[test]
fn mode_and_link_stay() {
    let sandbox = enabled();
    let real = put(&sandbox, "dotfiles/claude.json", "{}\n");
    fs::set_permissions(&real, Permissions::from_mode(0o640)).expect("permissions");
    fs::create_dir(sandbox.home().join(".claude")).expect("a directory");
    symlink("../dotfiles/claude.json", sandbox.home().join(".claude/settings.json")).expect("a link");
    let before = tree(&sandbox.home());
    piton(&sandbox, ["install", "claude"]).done();
    let link = sandbox.home().join(".claude/settings.json");
    assert!(link.is_symlink());
    assert_eq!(fs::metadata(&real).expect("a file").mode() & 0o777, 0o640);
    assert!(fs::read_to_string(&real).expect("a file").contains("hook claude"));
    piton(&sandbox, ["uninstall", "claude"]).done();
    assert_eq!(tree(&sandbox.home()), before);
    piton(&sandbox, ["install", "gemini"]).done();
    let made = fs::metadata(sandbox.home().join(".gemini/settings.json")).expect("a file");
    assert_eq!(made.mode() & 0o777, 0o600);
}

#[test]
fn a_copy_of_what_was_there_is_kept_for_the_owner_alone() {
    let sandbox = enabled();
    let text = "{\"token\": \"secret\"}\n";
    put(&sandbox, ".claude/settings.json", text);
    let ran = piton(&sandbox, ["install", "claude", "--json"]).done().json();
    let copy = PathBuf::from(ran["agents"][0]["files"][0]["copy"].as_str().expect("a copy"));
    assert_eq!(fs::read_to_string(&copy).expect("a file"), text);
    walk(&sandbox.base(), &mut |path| {
        assert_eq!(fs::metadata(path).expect("what was listed").mode() & 0o077, 0, "{}", path.display());
    });
    piton(&sandbox, ["uninstall", "claude"]).done();
    assert!(!copy.exists(), "the file is what the copy was");
    sandbox.assert_store_is_whole();
}

#[test]
fn the_directories_of_agents_are_where_the_environment_says() {
    let sandbox = enabled();
    let at = |name: &str| sandbox.root().join(name);
    let homes = [
        ("claude", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("codex", "CODEX_HOME", "hooks.json"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("copilot", "COPILOT_HOME", "hooks/piton.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/plugins/piton.js"),
        ("crush", "XDG_CONFIG_HOME", "crush/crush.json"),
        ("hermes", "HERMES_HOME", "config.yaml"),
    ];
    for (agent, variable, file) in homes {
        run(command(&sandbox).env(variable, at(agent)).args(["install", agent])).done();
        assert!(at(agent).join(file).is_file(), "{agent}");
        run(command(&sandbox).env(variable, at(agent)).args(["uninstall", agent])).done();
    }
    assert_eq!(fs::read_dir(sandbox.home()).expect("a directory").count(), 1, "only .hermes");
}

#[test]
fn checkpoints_are_switched_on_and_nothing_else_of_the_configuration_changes() {
    for (text, expected) in [
        ("", "checkpoints:\n  enabled: true\n"),
        ("model: x # y\n", "model: x # y\ncheckpoints:\n  enabled: true\n"),
        ("checkpoints: false # why\nz: 1\n", "checkpoints: true # why\nz: 1\n"),
        (
            "checkpoints:\n    max_files: 7 # n\n\nz: 1\n",
            "checkpoints:\n    max_files: 7 # n\n    enabled: true\n\nz: 1\n",
        ),
        (
            "checkpoints:\n  enabled: no # later\n  max_files: 7",
            "checkpoints:\n  enabled: true # later\n  max_files: 7",
        ),
        ("checkpoints:\r\nz: 1\r\n", "checkpoints:\r\n  enabled: true\r\nz: 1\r\n"),
        ("checkpoints: {}\n", "checkpoints: {enabled: true}\n"),
        ("checkpoints: {enabled: false} # why\n", "checkpoints: {enabled: true} # why\n"),
        ("checkpoints: {max_files: 7}\n", "checkpoints: {max_files: 7, enabled: true}\n"),
        ("checkpoints: {\"max_files\": 7}\n", "checkpoints: {\"max_files\": 7, \"enabled\": true}\n"),
        ("checkpoints: {\"enabled\": false}\n", "checkpoints: {\"enabled\": true}\n"),
    ] {
        let sandbox = Sandbox::new();
        let file = put(&sandbox, ".hermes/config.yaml", text);
        let ran = piton(&sandbox, ["install", "claude"]).done();
        assert_eq!(fs::read_to_string(&file).expect("a file"), expected);
        assert!(ran.stdout.starts_with("Turned automatic checkpoints on in "), "{ran:?}");
        assert!(!piton(&sandbox, ["install", "codex"]).done().stdout.contains("Turned"));
        assert_eq!(piton(&sandbox, ["install", "claude", "--json"]).done().json()["enabled"], false);
    }
    let sandbox = Sandbox::new();
    put(&sandbox, ".hermes/config.yaml", "checkpoints: &anchor\n  enabled: false\nother: *anchor\n");
    let ran = piton(&sandbox, ["install", "claude"]).failed(2);
    assert!(ran.stderr.contains("hint: write `enabled: true` under `checkpoints:`"), "{ran:?}");
    assert!(!sandbox.home().join(".claude").exists());
}

/// I2.
#[test]
fn a_foreign_rollback_command_is_left_alone() {
    for (agent, path) in [("claude", ".claude/commands/rollback.md"), ("gemini", ".gemini/commands/rollback.toml")] {
        let sandbox = enabled();
        let file = put(&sandbox, path, "mine");
        let ran = piton(&sandbox, ["install", agent]);
        assert_eq!(ran.code(), 3, "{ran:?}");
        assert!(ran.stderr.contains("left alone") && ran.stdout.contains(": installed\n"), "{ran:?}");
        piton(&sandbox, ["uninstall", agent]).done();
        assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
        fs::remove_file(&file).expect("a file");
        piton(&sandbox, ["install", agent]).done();
        let changed = fs::read_to_string(&file).expect("a file") + "and mine\n";
        fs::write(&file, &changed).expect("a file");
        assert_eq!(piton(&sandbox, ["uninstall", agent]).code(), 3);
        assert_eq!(fs::read_to_string(&file).expect("a file"), changed);
    }
    let sandbox = enabled();
    let file = put(&sandbox, ".config/opencode/plugins/piton.js", "mine");
    piton(&sandbox, ["install", "opencode"]).failed(2);
    piton(&sandbox, ["uninstall", "opencode"]).done();
    assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
}

#[test]
fn in_a_project_only_its_own_configuration_is_changed() {
    let sandbox = enabled();
    sandbox.tree("Cargo.toml\n src/main.rs");
    let projects = [
        ("claude", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("gemini", ".gemini/settings.json"),
        ("qwen", ".qwen/settings.json"),
        ("cursor", ".cursor/hooks.json"),
        ("opencode", ".opencode/plugins/piton.js"),
        ("crush", ".crush.json"),
    ];
    let (home, before) = (tree(&sandbox.home()), tree(&sandbox.project()));
    for (agent, path) in projects {
        run(in_dir(&sandbox, &sandbox.path("src")).args(["install", agent, "--project"])).done();
        assert!(sandbox.path(path).is_file(), "{agent}");
        assert_eq!(tree(&sandbox.home()), home, "{agent}");
        piton(&sandbox, ["uninstall", agent]).done();
        assert!(sandbox.path(path).is_file(), "{agent}: only the user's was asked for");
        piton(&sandbox, ["uninstall", agent, "--project"]).done();
        assert_eq!(tree(&sandbox.project()), before, "{agent}");
    }
    for agent in ["hermes", "copilot"] {
        let ran = piton(&sandbox, ["install", agent, "--project"]).failed(2);
        assert!(ran.stderr.contains("it has no configuration of its own there"), "{ran:?}");
    }
    // In the home directory, the configuration of a project is the user's own.
    let ran = run(in_dir(&sandbox, &sandbox.home()).args(["install", "claude", "--project"])).failed(2);
    assert!(ran.stderr.contains("it is your home directory"), "{ran:?}");
    // Copilot also runs claude's hooks of a project, and denies the tool if one fails.
    piton(&sandbox, ["install", "claude", "--project"]).done();
    let text = fs::read_to_string(sandbox.path(".claude/settings.json")).expect("a file");
    assert_eq!(text.matches(" hook claude 2>/dev/null || true\"").count(), 5, "{text}");
}

#[test]
fn unknown_agents_are_named_with_those_that_are_known() {
    let sandbox = Sandbox::new();
    for agent in ["emacs", "plain", ""] {
        let ran = piton(&sandbox, ["install", agent]);
        assert_eq!(ran.code(), 2);
        assert!(ran.stderr.contains("it must be one of claude, codex, gemini"), "{ran:?}");
    }
    assert_eq!(piton(&sandbox, ["install"]).code(), 2);
    assert!(!sandbox.base().exists());
}
