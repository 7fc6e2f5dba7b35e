//! Table of payloads and the events that they decode to. Captured payloads are replayed by the tests of the command.

use super::*;

fn of(named: &str, text: &str) -> HookEvent {
    decode(Agent::named(named), None, text.as_bytes())
}

#[test]
fn the_payload_decides_which_agent_sent_it() {
    let cases = [
        ("claude", r#"{"hook_event_name":"preToolUse","cursor_version":"2"}"#, "cursor"),
        ("claude", r#"{"hook_event_name":"PreToolUse","transcript_path":"/t"}"#, "claude"),
        ("claude", r#"{"hook_event_name":"PreToolUse"}"#, "claude"),
        ("claude", r#"{"hook_event_name":"PreToolUse","timestamp":"2026"}"#, "copilot"),
        ("qwen", r#"{"hook_event_name":"PreToolUse","timestamp":"2026","transcript_path":"/t"}"#, "qwen"),
        ("codex", r#"{"hook_event_name":"PreToolUse","turn_id":"t"}"#, "codex"),
        ("claude", r#"{"sessionId":"s","toolName":"bash"}"#, "copilot"),
        ("claude", r#"{"hook_event_name":"BeforeTool"}"#, "gemini"),
        ("plain", r#"{"hook_event_name":"pre_tool_call"}"#, "hermes"),
        ("plain", r#"{"hook_event_name":"tool.execute.before"}"#, "opencode"),
        ("claude", r#"{"event":"PreToolUse"}"#, "crush"),
        ("plain", r#"{"event":"before_tool"}"#, "plain"),
        ("cursor", "garbage", "cursor"),
        ("claude", r#"{"cursor_version":"2.4","hook_event_name":"preToolUse","tool_input":{"x":"cut"#, "cursor"),
    ];
    for (named, text, speaks) in cases {
        assert_eq!(of(named, text).agent.name, speaks, "{named} {text}");
    }
}

#[test]
fn what_is_about_to_happen_is_known() {
    let tool = |tool: &str, change| EventKind::BeforeTool { tool: tool.to_owned(), change };
    let files = |names: &[&str]| ToolChange::Files(names.iter().map(PathBuf::from).collect());
    let command = |line: &str| ToolChange::Command { line: line.to_owned(), dir: None };
    let prompt = |text: &str| EventKind::Prompt { text: text.to_owned() };
    let cases = [
        ("claude", r#"{"hook_event_name":"UserPromptSubmit","prompt":"hi"}"#, prompt("hi")),
        ("claude", r#"{"hook_event_name":"UserPromptSubmit"}"#, prompt("")),
        ("qwen", r#"{"hook_event_name":"UserPromptSubmit","prompt":"","prompt_id":"p"}"#, EventKind::Other),
        ("qwen", r#"{"hook_event_name":"UserPromptSubmit","prompt":"x","prompt_id":"p"}"#, prompt("x")),
        ("gemini", r#"{"hook_event_name":"PreCompress"}"#, EventKind::Other),
        ("claude", r#"{"hook_event_name":"PostToolUse","tool_name":"Bash"}"#, EventKind::Other),
        ("claude", r#"{"hook_event_name":"SessionStart"}"#, EventKind::SessionStart),
        ("claude", r#"{"hook_event_name":"Stop"}"#, EventKind::TurnEnd),
        ("claude", r#"{"hook_event_name":"SubagentStop"}"#, EventKind::Other),
        ("claude", r#"{"hook_event_name":"SessionEnd","reason":"clear"}"#, EventKind::SessionEnd),
        ("gemini", r#"{"hook_event_name":"AfterAgent"}"#, EventKind::TurnEnd),
        ("plain", r#"{"hook_event_name":"on_session_finalize"}"#, EventKind::SessionEnd),
        ("plain", r#"{"hook_event_name":"on_session_end"}"#, EventKind::TurnEnd),
        (
            "copilot",
            r#"{"sessionId":"s","toolName":"bash","toolArgs":"{\"command\":\"rm x\"}"}"#,
            tool("bash", command("rm x")),
        ),
        ("copilot", r#"{"sessionId":"s","toolName":"bash","toolArgs":{},"toolResult":{}}"#, EventKind::Unreadable),
        ("copilot", r#"{"sessionId":"s","prompt":"hi"}"#, prompt("hi")),
        ("copilot", r#"{"sessionId":"s","hookName":"permissionRequest","toolName":"bash"}"#, EventKind::Other),
        (
            "cursor",
            r#"{"hook_event_name":"beforeShellExecution","command":"rm a","cursor_version":"2"}"#,
            tool("Shell", command("rm a")),
        ),
        (
            "cursor",
            r#"{"hook_event_name":"beforeMCPExecution","tool_name":"x","cursor_version":"2"}"#,
            tool("mcp", files(&[])),
        ),
        ("cursor", r#"{"hook_event_name":"afterFileEdit","cursor_version":"2"}"#, EventKind::Other),
        (
            "opencode",
            r#"{"hook_event_name":"chat.message","output":{"parts":[{"text":"a"},{"x":1},{"text":"b"}]}}"#,
            prompt("a\nb"),
        ),
        (
            "plain",
            r#"{"event":"before_tool","tool_name":"edit","tool_input":{"path":"f"}}"#,
            tool("edit", files(&["f"])),
        ),
        ("claude", "{}", EventKind::Unreadable),
        ("claude", "", EventKind::Unreadable),
        ("claude", "null", EventKind::Unreadable),
        // Truncated: even a call of a tool that only reads may have been something else.
        ("claude", r#"{"hook_event_name":"PreToolUse","tool_name":"Read","tool_in"#, tool("Read", files(&[]))),
    ];
    for (named, text, expected) in cases {
        assert_eq!(of(named, text).kind, expected, "{named} {text}");
    }
}

#[test]
fn the_event_on_the_command_line_counts_where_none_is_sent() {
    let sent = br#"{"sessionId":"s","cwd":"/p","source":"new","initialPrompt":"x"}"#;
    let event = decode(Agent::named("copilot"), Some("sessionStart"), sent);
    assert_eq!((event.kind, event.name.as_str()), (EventKind::SessionStart, "sessionStart"));
    let event = decode(Agent::named("claude"), Some("sessionStart"), br#"{"hook_event_name":"Stop"}"#);
    assert_eq!(event.kind, EventKind::TurnEnd);
    assert_eq!(decode(Agent::named("cursor"), Some("preToolUse"), b"garbage").name, "preToolUse");
}

#[test]
fn sessions_and_turns_of_subagents_are_their_parents() {
    let turn = |named: &str, text: &str| (of(named, text).session, of(named, text).turn);
    let some = |session: &str, turn: Option<&str>| (Some(session.to_owned()), turn.map(str::to_owned));
    let codex = r#"{"session_id":"s","turn_id":"t","agent_id":"a","hook_event_name":"PreToolUse"}"#;
    assert_eq!(turn("codex", codex), some("s", None));
    let claude = r#"{"session_id":"s","prompt_id":"p","agent_id":"a","hook_event_name":"PreToolUse"}"#;
    assert_eq!(turn("claude", claude), some("s", Some("p")));
    let copilot = r#"{"sessionId":"child","parentAgentId":"parent","toolName":"bash"}"#;
    assert_eq!(turn("copilot", copilot), some("parent", None));
    let hermes = r#"{"session_id":"s","hook_event_name":"pre_tool_call","extra":{"turn_id":"t"}}"#;
    assert_eq!(turn("hermes", hermes), some("s", Some("t")));
    let cursor = r#"{"conversation_id":"c","generation_id":"g","hook_event_name":"preToolUse"}"#;
    assert_eq!(turn("claude", cursor), some("c", Some("g")));
    let child =
        r#"{"hook_event_name":"event:session.created","event":{"properties":{"info":{"id":"c","parentID":"p"}}}}"#;
    let event = of("opencode", child);
    assert_eq!((event.session.as_deref(), event.parent.as_deref()), (Some("c"), Some("p")));
}

#[test]
fn a_relative_cwd_is_ignored() {
    let cwd = |text: &str| of("cursor", text).cwd;
    assert_eq!(cwd(r#"{"cwd":"/p","workspace_roots":["/w"]}"#), Some("/p".into()));
    assert_eq!(cwd(r#"{"workspace_roots":["/w","/v",7,"rel"]}"#), Some("/w".into()));
    assert_eq!(cwd(r#"{"cwd":"p"}"#), None);
    assert_eq!(cwd(r#"{"directory":"/d","worktree":"/"}"#), Some("/d".into()));
    assert_eq!(of("cursor", r#"{"workspace_roots":["/w","/v",7,"rel"]}"#).roots.len(), 2);
}

#[test]
fn names_are_cut_to_a_length_that_a_record_can_hold() {
    let long = "ä".repeat(100_000);
    let event = of(
        "claude",
        &format!(
            r#"{{"session_id":"{long}","prompt_id":"{long}","hook_event_name":"PreToolUse","tool_name":"{long}"}}"#
        ),
    );
    assert_eq!(event.session.map(|name| name.chars().count()), Some(200));
    assert!(matches!(event.kind, EventKind::BeforeTool { tool, .. } if tool.chars().count() == 200));
}
