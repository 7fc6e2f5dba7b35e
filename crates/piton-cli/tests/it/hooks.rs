//! Captured events of agents and their effect: one checkpoint per turn and project, and an answer that lets the agent
//! continue.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, has_program};

use crate::hook_kit::{
    CAPTURED, bash, captured, checkpoints, checkpoints_of, event, hook, hook_command, journal, prompt, send, start,
};
use crate::kit::{PITON, Ran, ids, run};

/// Returns the answer that Cursor expects; all other agents expect none.
fn answer(agent: &str, event: &str) -> &'static str {
    match (agent, event) {
        ("cursor", "preToolUse") => "{\"permission\":\"allow\"}\n",
        ("cursor", _) => "{}\n",
        _ => "",
    }
}

/// Replays captured events, with a change to the project before each. Returns each event with the contents of the file
/// at that time.
fn replay(sandbox: &Sandbox, agent: (&str, &str), is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    sandbox.tree("x.txt = 0\n sub/f.txt = a\\n\n victim/a.txt = precious");
    let mut played = Vec::new();
    for (number, (name, sent)) in captured(sandbox, agent.0).into_iter().enumerate() {
        let contents = format!("{number}");
        sandbox.write("x.txt", &contents);
        if is_wanted(&name) {
            let said = hook(sandbox, &[agent.1, &name], &sent);
            assert_eq!(said, answer(agent.0, &name), "{agent:?} {name}");
            played.push((name, contents));
        }
    }
    played
}

const PROMPTS: [&str; 6] =
    ["UserPromptSubmit", "BeforeAgent", "userPromptSubmitted", "pre_llm_call", "chat.message", "beforeSubmitPrompt"];

#[test]
fn each_prompt_has_one_checkpoint_of_the_files_before_it() {
    for agent in CAPTURED.into_iter().filter(|(agent, _)| *agent != "crush") {
        let sandbox = Sandbox::new();
        let played = replay(&sandbox, agent, |_| true);
        let prompts = played.iter().filter(|(name, _)| PROMPTS.contains(&name.as_str()));
        // Qwen reports the prompt again after each tool.
        let before: Vec<_> = if agent.0 == "qwen" {
            vec!["2".to_owned(), "14".to_owned()]
        } else {
            prompts.map(|(_, contents)| contents.clone()).collect()
        };
        let held: Vec<_> = ids(&sandbox)
            .iter()
            .rev()
            .map(|id| String::from_utf8(sandbox.store_git(&["show", &format!("{id}:x.txt")])).expect("UTF-8"))
            .collect();
        assert_eq!(held, before, "{agent:?}");
        let facts = checkpoints(&sandbox, &["agent", "kind", "reason"]);
        for (number, fact) in facts.iter().enumerate() {
            let text = match agent.0 {
                "cursor" => "hi".to_owned(),
                "opencode" => format!("\"E2E-TURN-{} please\"", number + 1),
                _ => format!("E2E-TURN-{} please", number + 1),
            };
            assert_eq!(*fact, [agent.1, "auto", &format!("prompt: {text}")], "{agent:?}");
        }
        let turns: std::collections::BTreeSet<_> = checkpoints(&sandbox, &["turn"]).into_iter().collect();
        assert_eq!(turns.len(), before.len(), "{agent:?}");
        assert_eq!(journal(&sandbox), "", "{agent:?}");
        sandbox.assert_store_is_whole();
    }
}

#[test]
fn without_its_prompts_the_first_changing_tool_of_each_turn_has_one() {
    let rm = "before terminal: rm -rf victim";
    let sed = "before terminal: sed -i s/a/b/ f.txt";
    let cases: [(&str, &[&str]); 10] = [
        ("claude", &["before Write", sed]),
        ("codex", &["before apply_patch", sed]),
        ("qwen", &["before write_file", sed]),
        ("hermes", &["before write_file", sed]),
        // These events name no turn: they belong to the turn in progress, even if its beginning was never reported.
        ("gemini", &["before write_file"]),
        ("copilot", &["before create"]),
        ("copilot-pascal", &["before Write"]),
        ("opencode", &["before write"]),
        ("crush", &["before terminal: rm a"]),
        ("cursor", &["before terminal: rm a"]),
    ];
    assert_ne!(rm, sed);
    for agent in CAPTURED {
        let sandbox = Sandbox::new();
        replay(&sandbox, agent, |name| !PROMPTS.contains(&name) && !name.to_lowercase().contains("session"));
        let reasons: Vec<_> = checkpoints(&sandbox, &["reason"]).into_iter().flatten().collect();
        let expected = cases.iter().find(|(name, _)| *name == agent.0).expect("a case").1;
        assert_eq!(reasons, expected, "{agent:?}");
    }
}

#[test]
fn switched_off_the_answers_are_the_same_and_nothing_is_opened() {
    for (agent, named) in CAPTURED {
        let sandbox = Sandbox::new();
        sandbox.tree("x.txt");
        for (name, sent) in captured(&sandbox, agent) {
            let mut command = hook_command(&sandbox, &[named, &name]);
            let child = start(command.env("PITON_ENABLED", "false"), sent.as_bytes());
            let ran = Ran::from(child.wait_with_output().expect("it ends"));
            assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
            assert_eq!(ran.stdout, answer(agent, &name), "{agent} {name}");
        }
        assert_eq!(fs::read_dir(sandbox.home()).expect("a home").count(), 0, "{agent}");
    }
}

#[test]
fn what_only_reads_takes_nothing_and_makes_no_store() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let tool = |tool: &str, input: &Value| {
        event(&sandbox, "s", "t", "PreToolUse", &json!({"tool_name": tool, "tool_input": input}))
    };
    for sent in [
        tool("Read", &json!({"file_path": "/x"})),
        tool("Grep", &json!({"pattern": "x"})),
        tool("Bash", &json!({"command": "git status && ls -l | head"})),
        event(&sandbox, "s", "t", "Stop", &json!({})),
    ] {
        assert_eq!(hook(&sandbox, &["claude"], sent), "");
    }
    assert_eq!(fs::read_dir(sandbox.home()).expect("a home").count(), 0);
}

/// Returns the files below the sandbox that a hook opens or looks up.
fn opened(sandbox: &Sandbox, enabled: &str, sent: &str) -> Vec<String> {
    let (log, input) = (sandbox.root().join("strace.log"), sandbox.root().join("sent.json"));
    fs::write(&input, sent).expect("a file");
    let mut strace = clean_command("strace");
    strace.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(&log).args([PITON, "hook", "claude"]);
    strace.env("HOME", sandbox.home()).env("PITON_ENABLED", enabled).current_dir(sandbox.root());
    run(strace.stdin(fs::File::open(&input).expect("a file"))).done();
    let home = sandbox.home().to_str().expect("UTF-8").to_owned();
    let log = fs::read_to_string(&log).expect("what strace wrote");
    let paths = log.lines().filter(|line| !line.contains("execve(")).filter_map(|line| line.split('"').nth(1));
    paths.filter(|path| path.starts_with(&home)).map(|path| path.replace(&home, "~")).collect()
}

/// H4.
#[test]
fn what_needs_no_checkpoint_opens_no_file() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let read = event(&sandbox, "s", "t", "PreToolUse", &json!({"tool_name": "Read", "tool_input": {}}));
    let none = [""; 0];
    assert_eq!(opened(&sandbox, "true", &read), none);
    assert_eq!(opened(&sandbox, "true", &bash(&sandbox, "s", "t", "git log | head")), none);
    assert_eq!(opened(&sandbox, "false", &bash(&sandbox, "s", "t", "rm x.txt")), ["~/.hermes/config.yaml"]);
    assert!(opened(&sandbox, "true", &bash(&sandbox, "s", "t", "rm x.txt")).len() > 10);
}

#[test]
fn cursor_that_finds_claudes_hooks_gets_its_own_answer() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let (_, sent) = captured(&sandbox, "cursor").pop().expect("a payload");
    assert_eq!(hook(&sandbox, &["claude"], sent), "{\"permission\":\"allow\"}\n");
    assert_eq!(checkpoints(&sandbox, &["agent", "session", "turn"]), [["cursor", "c-1", "gen-1"]]);
}

#[test]
fn every_project_that_a_command_touches_has_its_checkpoint_and_home_has_none() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let (other, third) = (sandbox.other_project("other"), sandbox.other_project("third"));
    fs::create_dir(third.join("sub")).expect("a directory");
    for file in [other.join("z"), third.join("package.json"), third.join("sub/f"), sandbox.home().join("h")] {
        fs::write(file, "z").expect("a file");
    }
    let line = format!(
        "rm {} && cd {} && echo x > f && rm {} && rm -rf /nonexistent",
        other.join("z").display(),
        third.join("sub").display(),
        sandbox.home().join("h").display()
    );
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t", &line));
    for dir in [&sandbox.project(), &other, &third] {
        assert_eq!(checkpoints_of(&sandbox, dir, &["turn"]), [["t"]], "{}", dir.display());
    }
    assert_eq!(fs::read_dir(sandbox.store().join("refs/hermes")).expect("refs").count(), 3);
    assert_eq!(journal(&sandbox), "", "the file in the home directory was kept");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t", &format!("chmod +x {}", sandbox.home().join("h").display())));
    let named = format!("{} is in no project", sandbox.home().join("h").display());
    assert!(journal(&sandbox).contains(&named) && journal(&sandbox).lines().count() == 1, "{}", journal(&sandbox));
}

#[test]
fn a_file_tool_protects_the_project_of_its_file_also_through_a_link() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let other = sandbox.other_project("other");
    fs::write(other.join("real.txt"), "z").expect("a file");
    sandbox.link("link.txt", other.join("real.txt").to_str().expect("UTF-8"));
    let write = |path: &str, turn: &str| {
        let more = json!({"tool_name": "Write", "tool_input": {"file_path": path, "content": "x"}});
        event(&sandbox, "s", turn, "PreToolUse", &more)
    };
    hook(&sandbox, &["claude"], write("link.txt", "t"));
    assert_eq!(checkpoints_of(&sandbox, &other, &["reason"]), [["before Write"]]);
    let new = sandbox.other_project("new");
    fs::write(new.join("a"), "a").expect("a file");
    hook(&sandbox, &["claude"], write(new.join("not/yet/there.txt").to_str().expect("UTF-8"), "t2"));
    assert_eq!(checkpoints_of(&sandbox, &new, &["turn"]), [["t2"]]);
    let at_home = sandbox.home().join("tool/.git");
    fs::create_dir_all(&at_home).expect("a project");
    fs::write(at_home.with_file_name("rc"), "a").expect("a file");
    hook(&sandbox, &["claude"], write("~/tool/rc", "t3"));
    assert_eq!(checkpoints_of(&sandbox, &sandbox.home().join("tool"), &["turn"]), [["t3"]]);
}

#[test]
fn where_the_session_began_stays_protected_wherever_the_agent_goes() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1\n deep/sub/y.txt");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "begin"));
    sandbox.write("x.txt", "2");
    let elsewhere = sandbox.other_project("elsewhere");
    fs::write(elsewhere.join("e"), "e").expect("a file");
    let sent = event(&sandbox, "s", "t2", "UserPromptSubmit", &json!({"prompt": "go on", "cwd": elsewhere}));
    hook(&sandbox, &["claude"], sent);
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t2"]]);
    assert_eq!(checkpoints_of(&sandbox, &elsewhere, &["turn"]), [["t2"]]);
    let sub = sandbox.path("deep/sub");
    sandbox.write("x.txt", "3");
    hook(&sandbox, &["claude"], event(&sandbox, "s", "t3", "UserPromptSubmit", &json!({"prompt": "", "cwd": sub})));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t2"], ["t3"]]);
}

#[test]
fn subagents_are_in_the_turn_in_which_they_began() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    let codex = |name: &str, turn: &str, more: &Value| {
        let mut all = json!({"turn_id": turn, "prompt_id": null});
        all.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        event(&sandbox, "s", "", name, &all)
    };
    hook(&sandbox, &["codex"], codex("UserPromptSubmit", "t1", &json!({"prompt": "x"})));
    sandbox.write("x.txt", "2");
    let patch = json!({"agent_id": "a", "tool_name": "apply_patch", "tool_input": {"command": "*** Add File: y"}});
    hook(&sandbox, &["codex"], codex("PreToolUse", "own", &patch));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"]]);

    let opencode = |more: &Value| {
        let mut sent = json!({"directory": sandbox.project(), "worktree": "/"});
        sent.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        sent.to_string()
    };
    let message = |session: &str, id: &str| {
        let output = json!({"message": {"id": id}, "parts": [{"type": "text", "text": "x"}]});
        opencode(&json!({"hook_event_name": "chat.message", "input": {"sessionID": session}, "output": output}))
    };
    hook(&sandbox, &["opencode"], message("parent", "m1"));
    sandbox.write("x.txt", "3");
    let info = json!({"id": "child", "parentID": "parent"});
    let created = json!({"hook_event_name": "event:session.created", "event": {"properties": {"info": info}}});
    hook(&sandbox, &["opencode"], opencode(&created));
    hook(&sandbox, &["opencode"], message("child", "m2"));
    let tool = json!({"hook_event_name": "tool.execute.before", "input": {"tool": "bash", "sessionID": "child"},
        "output": {"args": {"command": "rm x.txt"}}});
    hook(&sandbox, &["opencode"], opencode(&tool));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["m1"]]);
}

/// Sends all events at the same moment while the project changes continuously, so that each additional take would find
/// a change.
fn all_at_once(sandbox: &Sandbox, calls: &[(&str, String)]) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let next = sandbox.root().join("next");
            for n in 0_u64.. {
                // Replaced atomically: a file that changes while it is read is left out.
                fs::write(&next, n.to_string())
                    .and_then(|()| fs::rename(&next, sandbox.path("busy.txt")))
                    .expect("a file");
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let send = |(agent, sent): &(&str, String)| start(&mut hook_command(sandbox, &[agent]), sent.as_bytes());
        let children: Vec<_> = calls.iter().map(send).collect();
        let ran: Vec<Ran> =
            children.into_iter().map(|child| child.wait_with_output().expect("it ends").into()).collect();
        is_over.store(true, Ordering::Relaxed);
        for ran in ran {
            assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
        }
    });
}

#[test]
fn twenty_calls_at_the_same_moment_make_one_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let calls: Vec<_> = (0..20).map(|_| ("claude", bash(&sandbox, "s", "t", "rm x.txt"))).collect();
    all_at_once(&sandbox, &calls);
    assert_eq!(checkpoints(&sandbox, &["session", "turn"]), [["s", "t"]]);
    // These events do not name a turn.
    let gemini = json!({"session_id": "g", "cwd": sandbox.project(), "hook_event_name": "BeforeTool",
        "tool_name": "write_file", "tool_input": {"file_path": "y.txt"}});
    let calls: Vec<_> = (0..20).map(|_| ("gemini", gemini.to_string())).collect();
    sandbox.write("y.txt", "another");
    all_at_once(&sandbox, &calls);
    assert_eq!(checkpoints(&sandbox, &["session"]), [["s"], ["g"]]);
    assert_eq!(journal(&sandbox), "");
    sandbox.assert_store_is_whole();
}

#[test]
fn two_sessions_at_once_have_one_each() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    let call = |n: usize| ("claude", bash(&sandbox, if n.is_multiple_of(2) { "even" } else { "odd" }, "t", "rm x.txt"));
    all_at_once(&sandbox, &(0..16).map(call).collect::<Vec<_>>());
    let mut sessions: Vec<_> = checkpoints(&sandbox, &["session"]).into_iter().flatten().collect();
    let all = sessions.len();
    sessions.sort();
    sessions.dedup();
    assert_eq!(all, sessions.len(), "at most one each: {sessions:?}");
    let record = fs::read_dir(sandbox.store().join("projects")).expect("records").next().expect("one").expect("one");
    let record: Value = serde_json::from_slice(&fs::read(record.path()).expect("a record")).expect("JSON");
    assert_eq!((&record["turns"]["even"], &record["turns"]["odd"]), (&json!("t"), &json!("t")));
}

#[test]
fn a_long_prompt_is_shown_by_its_first_line() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    for (turn, text) in [("1", "short"), ("2", &*"long ".repeat(20)), ("3", "two\nlines"), ("4", "")] {
        sandbox.write("x.txt", turn);
        hook(&sandbox, &["claude"], prompt(&sandbox, "s", turn, text));
    }
    let long = format!("prompt: {}", "long ".repeat(20).trim_end());
    assert_eq!(checkpoints(&sandbox, &["reason"]), [["prompt: short"], [&long], ["prompt: two"], ["prompt"]]);
}

#[test]
fn an_agent_in_a_directory_that_all_share_is_on_record() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt");
    fs::set_permissions(sandbox.project(), fs::Permissions::from_mode(0o1777)).expect("permissions");
    let mut off = hook_command(&sandbox, &["claude"]);
    send(off.env("PITON_ENABLED", "0"), bash(&sandbox, "s", "t", "rm x.txt")).done();
    assert_eq!(journal(&sandbox), "");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t", "rm x.txt"));
    assert!(!sandbox.store().join("refs/hermes").exists() || ids(&sandbox).is_empty());
    assert!(journal(&sandbox).contains("all users share"), "{}", journal(&sandbox));
    fs::set_permissions(sandbox.project(), fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Claude creates a prompt of its own when a background task ends, and continues under the id of that prompt.
#[test]
fn a_background_task_that_ends_is_no_turn() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "start a background task"));
    sandbox.write("a.txt", "2");
    let ended = "<task-notification>\n<task-id>a1</task-id>\n<status>completed</status>\n</task-notification>";
    assert_eq!(hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", ended)), "");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t2", "rm a.txt"));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"]], "what comes of it belongs to the user's prompt");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t3", "go on"));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t3"]]);
    // A tool with an unknown prompt id starts another turn.
    sandbox.write("a.txt", "4");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t4", "rm a.txt"));
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t3"], ["t4"]]);
}
