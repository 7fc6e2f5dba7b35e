//! `piton rewind`: the files and the conversation go back together, and the conversation that exists is never changed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{event, hook, prompt, send};
use crate::kit::{command, piton};
use crate::restore_kit::{assert_same, state_of};
use crate::rewind_kit::{Claude, SESSION, files_beside, fork_of, with_programs};

pub(crate) fn four_turns(sandbox: &Sandbox) -> PathBuf {
    sandbox.tree("file = before\n other = 1");
    let mut claude = Claude::new(sandbox);
    (1..=4).for_each(|number| claude.turn(number));
    claude.transcript
}

fn file(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.path("file")).expect("a file")
}

/// D1, D2.
#[test]
fn files_and_conversation_go_back_to_each_prompt() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let before = fs::read(&transcript).expect("a transcript");
    for number in (2..=4).rev() {
        let report = piton(&sandbox, ["rewind", &format!("p{number}"), "--json"]).done().json();
        assert_eq!(file(&sandbox), format!("after {}", number - 1));
        assert_eq!(fs::read(&transcript).expect("a transcript"), before, "the original is not changed");
        let conversation = &report["conversation"];
        assert_eq!((&conversation["agent"], &conversation["session"]), (&json!("claude"), &json!(SESSION)));
        let forked = conversation["forked_session"].as_str().expect("a fork");
        assert_eq!(conversation["command"], format!("claude --resume {forked}"));
        let fork = fork_of(&transcript, forked);
        for other in 1..=4 {
            let is_before = other < number;
            assert_eq!(fork.contains(&format!("prompt number {other}\"")), is_before || other == number, "{fork}");
            assert_eq!(fork.contains(&format!("\"promptId\":\"p{other}\"")), is_before, "{fork}");
            assert_eq!(fork.contains(&format!("answer number {other}")), is_before, "{fork}");
        }
        // Only the title names the prompt that was cut off.
        let title = json!({"type": "custom-title", "customTitle": format!("before: prompt number {number}"), "sessionId": forked});
        assert!(fork.ends_with(&format!("{title}\n")), "{fork}");
        assert!(!fork.contains(SESSION), "{fork}");
        assert!(fork.contains("\"cost\":0.50"), "numbers are not rewritten");
        let mode =
            fs::metadata(transcript.with_file_name(format!("{forked}.jsonl"))).expect("a fork").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let report = piton(&sandbox, ["rewind", "p1", "--json"]).done().json();
    assert_eq!(
        (&report["conversation"]["forked_session"], &report["conversation"]["command"]),
        (&json!(null), &json!("claude"))
    );
    assert_eq!(file(&sandbox), "before");
    piton(&sandbox, ["undo"]).done();
    assert_eq!(file(&sandbox), "after 1");
    assert_eq!(files_beside(&transcript).len(), 4, "the original and three forks");
}

#[test]
fn a_rewind_says_where_to_continue() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let ran = piton(&sandbox, ["rewind", "1"]).done();
    let fork = files_beside(&transcript).into_iter().find(|name| !name.contains(SESSION)).expect("a fork");
    let fork = fork.trim_end_matches(".jsonl");
    assert!(
        ran.stdout.contains(&format!("forked before that prompt as session {fork} (before: prompt number 4)")),
        "{ran:?}"
    );
    assert!(ran.stdout.contains(&format!("Continue there with\n  claude --resume {fork}\n")), "{ran:?}");
    let elsewhere = sandbox.root();
    let dir = sandbox.project();
    let ran = crate::kit::run(crate::kit::in_dir(&sandbox, &elsewhere).args([
        "-C",
        dir.to_str().expect("UTF-8"),
        "rewind",
        "p3",
        "--json",
    ]));
    // `-C` is as if started there, but the shell is not.
    assert!(ran.done().json()["conversation"]["command"].as_str().expect("a command").contains("claude --resume "));
}

#[test]
fn a_dry_run_and_a_fork_alone_leave_what_they_should() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let (home, project) = (state_of(&sandbox.home().join(".claude")), state_of(&sandbox.project()));
    let plan = piton(&sandbox, ["rewind", "p3", "--dry-run", "--json"]).done().json();
    assert_eq!(
        (&plan["conversation"]["forked_session"], &plan["conversation"]["command"]),
        (&json!(null), &json!(null))
    );
    let last = json!({"by": "agent", "text": "answer number 2"});
    assert_eq!(plan["conversation"]["messages"].as_array().and_then(|all| all.last()), Some(&last));
    let ran = piton(&sandbox, ["rewind", "p3", "--dry-run"]).done();
    assert!(ran.stdout.contains("  you: prompt number 2\n  Claude Code: answer number 2"), "{ran:?}");
    let ran = piton(&sandbox, ["rewind", "p3", "--conversation-only", "--dry-run", "--json"]).done();
    assert_eq!(ran.json()["outcome"], "planned");
    assert_same(&state_of(&sandbox.home().join(".claude")), &home, "a dry run");
    let made = piton(&sandbox, ["rewind", "p3", "--conversation-only", "--json"]).done().json();
    assert_eq!(made["outcome"], "forked");
    assert_same(&state_of(&sandbox.project()), &project, "a fork alone");
    assert_eq!(files_beside(&transcript).len(), 2);
    let report = piton(&sandbox, ["rewind", "p3", "--files-only", "--json"]).done().json();
    assert_eq!(report["conversation"], json!({"agent": "claude", "why_not": "it was not asked for"}));
    assert_eq!((file(&sandbox).as_str(), files_beside(&transcript).len()), ("after 2", 2));
}

#[test]
fn prompts_that_were_taken_back_are_not_in_the_fork() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    let mut claude = Claude::new(&sandbox);
    claude.turn(1);
    let leaf = claude.leaf.clone();
    claude.ask("left", "a prompt that was interrupted");
    claude.leaf = leaf;
    claude.turn(2);
    // Two tools in parallel: the results are siblings, and only the last is an ancestor of what follows.
    claude.ask("p3", "prompt number 3");
    claude.record("calls", "assistant", &json!({"message": {"content": [{"type": "tool_use"}, {"type": "tool_use"}]}}));
    let calls = claude.leaf.clone();
    let result =
        |text: &str| json!({"promptId": "p3", "message": {"content": [{"type": "tool_result", "content": text}]}});
    claude.record("result-1", "user", &result("first result"));
    claude.leaf = calls;
    claude.record("result-2", "user", &result("second result"));
    // A compaction: the next record names what was before it under another key.
    let summary = json!({"parentUuid": null, "logicalParentUuid": claude.leaf, "subtype": "compact_boundary"});
    claude.record("boundary", "system", &summary);
    claude.record(
        "summary",
        "user",
        &json!({"isCompactSummary": true, "promptId": "p3", "message": {"content": "a summary"}}),
    );
    sandbox.write("file", "after 3");
    claude.turn(4);
    let report = piton(&sandbox, ["rewind", "p4", "--json"]).done().json();
    let fork = fork_of(&claude.transcript, report["conversation"]["forked_session"].as_str().expect("a fork"));
    assert!(!fork.contains("interrupted"), "{fork}");
    for words in ["first result", "second result", "a summary", "prompt number 1", "answer number 2"] {
        assert!(fork.contains(words), "{words}: {fork}");
    }
    let report = piton(&sandbox, ["rewind", "p2", "--json"]).done().json();
    let fork = fork_of(&claude.transcript, report["conversation"]["forked_session"].as_str().expect("a fork"));
    assert!(!fork.contains("interrupted") && fork.contains("answer number 1"), "{fork}");
}

/// In a fork of its own, Claude Code gives earlier prompts the id of the first prompt there.
#[test]
fn the_first_prompt_in_a_fork_of_the_agent_is_not_the_first_prompt() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    let mut claude = Claude::new(&sandbox);
    let prompt = |turn: u64, text: &str| json!({"promptId": "p2", "turnPosition": {"promptIndex": 0, "turnIndex": turn}, "message": {"content": text}});
    claude.record("inherited", "user", &prompt(1, "prompt number 1"));
    claude.answer("p1", "answer number 1");
    let more = json!({"prompt": "prompt number 2", "transcript_path": claude.transcript});
    hook(&sandbox, &["claude"], event(&sandbox, SESSION, "p2", "UserPromptSubmit", &more));
    claude.record("own", "user", &prompt(2, "prompt number 2"));
    let mut queued = prompt(2, "a prompt typed meanwhile");
    queued["turnPosition"]["promptIndex"] = json!(1);
    claude.record("queued", "user", &queued);
    claude.answer("p2", "answer number 2");
    let report = piton(&sandbox, ["rewind", "p2", "--json"]).done().json();
    let fork = fork_of(&claude.transcript, report["conversation"]["forked_session"].as_str().expect("a fork"));
    assert!(fork.contains("prompt number 1") && fork.contains("answer number 1"), "{fork}");
    assert!(
        !fork.contains("\"prompt number 2") && !fork.contains("meanwhile") && !fork.contains("answer number 2"),
        "{fork}"
    );
    // Damage matters up to the prompt.
    let text = fs::read_to_string(&claude.transcript).expect("a transcript");
    fs::write(&claude.transcript, text.replacen("\"answer number 2", "answer number 2", 1)).expect("a file");
    piton(&sandbox, ["rewind", "p2", "--dry-run"]).done();
    fs::write(&claude.transcript, text.replacen("\"answer number 1", "answer number 1", 1)).expect("a file");
    let plan = piton(&sandbox, ["rewind", "p2", "--dry-run", "--json"]).done().json();
    assert!(plan["conversation"]["why_not"].as_str().is_some_and(|why| why.contains("is damaged")), "{plan}");
}

/// Asserts that a rewind is declined for a reason with these words, and changes nothing.
#[track_caller]
fn declined(sandbox: &Sandbox, name: &str, words: &str) {
    let (home, project) = (state_of(&sandbox.home().join(".claude")), state_of(&sandbox.project()));
    let ran = piton(sandbox, ["rewind", name]).failed(1);
    assert!(ran.stderr.contains(words) && ran.stderr.contains("nothing was touched"), "{words}: {ran:?}");
    assert!(ran.stderr.contains(&format!("`piton rewind {name} --files-only` restores the files")), "{ran:?}");
    piton(sandbox, ["rewind", name, "--conversation-only"]).failed(2);
    assert_same(&state_of(&sandbox.project()), &project, words);
    assert_same(&state_of(&sandbox.home().join(".claude")), &home, words);
    assert!(!sandbox.base().join("local/forks").exists());
    let plan = piton(sandbox, ["rewind", name, "--dry-run", "--json"]).done().json();
    assert!(plan["conversation"]["why_not"].as_str().expect("a reason").contains(words), "{plan}");
    piton(sandbox, ["rewind", name, "--files-only"]).done();
    assert_eq!(file(sandbox), "after 2");
}

#[test]
fn a_conversation_that_is_damaged_unknown_or_gone_is_declined() {
    type Spoil = fn(&str) -> Option<String>;
    let cases: [(&str, Spoil); 6] = [
        ("is damaged", |text| Some(text.replacen("\"type\":\"assistant\"", "\"type\":\"assist", 1))),
        ("the prompt is not in it", |text| Some(text[..text.len() / 2].rsplit_once('\n')?.0.to_owned() + "\n")),
        ("is damaged", |text| Some(text[..text.len() / 2].to_owned())),
        ("its record user-p1 is missing", |text| {
            Some(
                text.lines()
                    .filter(|line| !line.contains("\"uuid\":\"user-p1\""))
                    .fold(String::new(), |all, line| all + line + "\n"),
            )
        }),
        ("it was written by version 3.0.0, and piton knows 2.1.x", |text| Some(text.replace("2.1.325", "3.0.0"))),
        ("there is no session", |_| None),
    ];
    for (words, spoil) in cases {
        let sandbox = Sandbox::new();
        let transcript = four_turns(&sandbox);
        let text = fs::read_to_string(&transcript).expect("a transcript");
        match spoil(&text) {
            Some(text) => fs::write(&transcript, text).expect("a file"),
            None => fs::remove_file(&transcript).expect("a file"),
        }
        declined(&sandbox, "p3", words);
    }
}

#[test]
fn a_huge_conversation_is_declined_without_reading_it() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let grown = fs::File::options().write(true).open(&transcript).expect("a file");
    grown.set_len(200 << 20).expect("a sparse file");
    let project = state_of(&sandbox.project());
    let ran = piton(&sandbox, ["rewind", "p3"]).failed(1);
    assert!(ran.stderr.contains("it is larger than 128 MB; nothing was touched"), "{ran:?}");
    assert_same(&state_of(&sandbox.project()), &project, "declined");
    assert_eq!(files_beside(&transcript).len(), 1);
}

#[test]
fn a_running_session_is_forked_from_what_is_on_disk() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let mut text = fs::read_to_string(&transcript).expect("a transcript");
    text += "{\"type\":\"assistant\",\"torn";
    fs::write(&transcript, &text).expect("a file");
    piton(&sandbox, ["rewind", "p4"]).done();
    assert_eq!(fs::read_to_string(&transcript).expect("a transcript"), text);
}

#[test]
fn what_is_no_prompt_or_no_known_agent_is_declined() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = 1");
    piton(&sandbox, ["take"]).done();
    let ran = piton(&sandbox, ["rewind", "1"]).failed(1);
    assert!(ran.stderr.contains("no prompt began at this checkpoint"), "{ran:?}");
    sandbox.write("file", "2");
    hook(
        &sandbox,
        &["cursor"],
        json!({
            "hook_event_name": "beforeSubmitPrompt", "conversation_id": "c", "generation_id": "g", "prompt": "do it",
            "workspace_roots": [sandbox.project()],
        })
        .to_string(),
    );
    let ran = piton(&sandbox, ["rewind", "1"]).failed(1);
    assert!(ran.stderr.contains("piton cannot fork conversations of Cursor"), "{ran:?}");
    sandbox.write("file", "3");
    let event =
        json!({"event": "prompt", "cwd": sandbox.project(), "session_id": "s", "turn_id": "t", "prompt": "do it"});
    hook(&sandbox, &["plain"], event.to_string());
    let ran = piton(&sandbox, ["rewind", "1"]).failed(1);
    assert!(ran.stderr.contains("piton cannot fork conversations of your agent"), "{ran:?}");
    piton(&sandbox, ["rewind", "9"]).failed(4);
    piton(&sandbox, ["rewind", "no-such-turn"]).failed(2);
}

/// D3.
#[test]
fn only_forks_that_were_never_used_are_removed() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    assert_eq!(piton(&sandbox, ["rewind", "--list", "--json"]).done().json(), json!([]));
    let made = |name: &str| {
        let report = piton(&sandbox, ["rewind", name, "--conversation-only", "--json"]).done().json();
        transcript
            .with_file_name(format!("{}.jsonl", report["conversation"]["forked_session"].as_str().expect("a fork")))
    };
    let (used, unused, gone) = (made("p2"), made("p3"), made("p4"));
    fs::write(&used, fs::read_to_string(&used).expect("a fork") + "{\"type\":\"user\"}\n").expect("a file");
    fs::remove_file(&gone).expect("a fork");
    let listed = piton(&sandbox, ["rewind", "--list", "--json"]).done().json();
    let mut states: Vec<_> = listed.as_array().expect("a list").iter().map(|one| one["state"].clone()).collect();
    states.sort_by_key(Value::to_string);
    assert_eq!(states, ["continued", "unused"]);
    let before = state_of(&sandbox.home().join(".claude"));
    let plan = piton(&sandbox, ["rewind", "--clean", "--dry-run", "--json"]).done().json();
    assert_eq!((plan["removed"].as_array().map(Vec::len), plan["left"].as_array().map(Vec::len)), (Some(1), Some(1)));
    assert_same(&state_of(&sandbox.home().join(".claude")), &before, "a dry run");
    let ran = piton(&sandbox, ["rewind", "--clean"]).done();
    assert!(ran.stdout.starts_with("Removed 1 fork\n") && ran.stdout.contains("continued: yours"), "{ran:?}");
    assert!(!unused.exists() && used.exists() && transcript.exists());
    let left = piton(&sandbox, ["rewind", "--clean", "--json"]).done().json();
    assert_eq!((&left["removed"], left["left"].as_array().map(Vec::len)), (&json!([]), Some(1)));
    assert!(used.exists() && transcript.exists());
}

#[test]
fn with_exec_the_agent_is_run_in_the_fork() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let program = sandbox.root().join("bin/claude");
    fs::create_dir(sandbox.root().join("bin")).expect("a directory");
    sandbox.write_program(&program, "#!/bin/sh\necho \"ran $* in $PWD\"\nexit 7\n");
    let ran = with_programs(&sandbox, &["rewind", "p4", "--exec"]);
    assert_eq!(ran.code(), 7, "{ran:?}");
    let fork = files_beside(&transcript).into_iter().find(|name| !name.contains(SESSION)).expect("a fork");
    let fork = fork.trim_end_matches(".jsonl");
    let want = format!("ran --resume {fork} in {}", sandbox.project().display());
    assert!(ran.stdout.lines().last().is_some_and(|line| line == want), "{ran:?}");
    assert_eq!(file(&sandbox), "after 3");
    fs::remove_file(&program).expect("a program");
    let ran = piton(&sandbox, ["rewind", "p3", "--exec"]);
    assert!(ran.code() == 1 && ran.stderr.contains("cannot run claude"), "{ran:?}");
}

#[test]
fn a_rollback_typed_in_the_agent_says_how_to_continue() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    let more = json!({"prompt": "/rollback 1", "transcript_path": transcript});
    let answer = hook(&sandbox, &["claude"], event(&sandbox, SESSION, "p5", "UserPromptSubmit", &more));
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let words = answer["reason"].as_str().expect("a text");
    let fork = files_beside(&transcript).into_iter().find(|name| !name.contains(SESSION)).expect("a fork");
    let fork = fork.trim_end_matches(".jsonl");
    assert!(words.contains(&format!("claude --resume {fork}")), "{words}");
    assert!(words.contains(&format!("or, in Claude Code, /resume {fork}")), "{words}");
    assert_eq!(file(&sandbox), "after 3");
    // The old session goes on nevertheless: it is told.
    let told = hook(&sandbox, &["claude"], prompt(&sandbox, SESSION, "p6", "and now"));
    assert!(told.contains("rewound") && told.contains(fork), "{told}");
    // One file is not a rewind.
    let more = json!({"prompt": "/rollback 2 file", "transcript_path": transcript});
    let answer = hook(&sandbox, &["claude"], event(&sandbox, SESSION, "p7", "UserPromptSubmit", &more));
    assert!(!answer.contains("--resume"), "{answer}");
    // A transcript that is gone does not hold the files back.
    fs::remove_file(&transcript).expect("a transcript");
    let more = json!({"prompt": "/rollback p2", "transcript_path": transcript});
    hook(&sandbox, &["claude"], event(&sandbox, SESSION, "p8", "UserPromptSubmit", &more));
}

#[test]
fn the_record_of_the_session_goes_back_too() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    let mut claude = Claude::new(&sandbox);
    let write = |task: &str| {
        send(command(&sandbox).args(["session", "write", SESSION]), format!("task: {task}")).done();
    };
    for (number, task) in (1..).zip(["first", "second", "third"]) {
        write(task);
        claude.turn(number);
    }
    let report = piton(&sandbox, ["rewind", "p2", "--json"]).done().json();
    assert_eq!(report["record"], "replaced");
    assert!(report["conversation"]["forked_session"].is_string(), "{report}");
    let record = || fs::read_to_string(sandbox.base().join(format!("{SESSION}.yaml"))).expect("a record");
    assert!(record().starts_with("task: second\n"), "{}", record());
    piton(&sandbox, ["undo"]).done();
    assert!(record().starts_with("task: third\n"), "{}", record());
}

#[test]
fn a_store_without_marks_is_enough_where_the_agent_names_its_prompts() {
    let sandbox = Sandbox::new();
    let transcript = four_turns(&sandbox);
    fs::remove_dir_all(sandbox.base().join("local/ledger")).expect("a ledger");
    let report = piton(&sandbox, ["rewind", "1", "--json"]).done().json();
    let fork = fork_of(&transcript, report["conversation"]["forked_session"].as_str().expect("a fork"));
    assert!(fork.contains("answer number 3") && !fork.contains("answer number 4"), "{fork}");
}

#[test]
fn doctor_names_an_agent_whose_conversations_are_not_known() {
    for (version, is_known) in [("2.1.400", true), ("3.0.0", false)] {
        let sandbox = Sandbox::new();
        sandbox.tree("file = before");
        piton(&sandbox, ["install", "claude"]).done();
        let mut claude = Claude::of_version(&sandbox, version);
        claude.turn(1);
        claude.turn(2);
        let ran = piton(&sandbox, ["doctor", "--no-fire"]);
        let words = format!("version {version}: `piton rewind` takes back files only");
        assert_eq!(ran.stdout.contains(&words), !is_known, "{ran:?}");
    }
}
