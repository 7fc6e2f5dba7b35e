//! The reply of the hook, in the format of each agent. Pure functions.
//!
//! An empty reply lets most agents continue; some take it for a denial. Some pass the reply at a prompt to the model, so
//! it is empty unless there is something to say. Some reject unknown keys, so no single reply suits all agents.

use piton::Notice;
use serde_json::{Value, json};

use crate::agents::event::{EventKind, HookEvent};
use crate::output::plain;

/// Returns the reply that lets the agent continue.
pub(super) fn go_on(event: &HookEvent) -> String {
    event.agent.answers.go_on.map(|reply| line(&reply(event))).unwrap_or_default()
}

/// Returns the part of a denial that is written to stdout. The exit code is enough to stop most agents.
pub(super) fn stop(event: &HookEvent, why: &str) -> String {
    event.agent.answers.deny.map(|reply| line(&reply(why))).unwrap_or_default()
}

/// Returns a reply that lets the agent continue and passes `text` to its model at a prompt; `None` if the agent does
/// not accept context.
pub(super) fn with_context(event: &HookEvent, text: &str) -> Option<String> {
    event.agent.answers.context.map(|reply| line(&reply(&event.name, text)))
}

/// Returns a reply with a message that the agent shows to its user, in addition to `context`. If the agent shows none,
/// the message is passed to the model at a prompt; `None` if that is not possible either.
pub(super) fn with_message(event: &HookEvent, text: &str, context: Option<&str>) -> Option<String> {
    match event.agent.answers.message_key {
        Some(key) => {
            let answer = context.and_then(|context| with_context(event, context)).unwrap_or_else(|| "{}".to_owned());
            let mut answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| json!({}));
            answer[key] = text.into();
            Some(line(&answer))
        }
        None if matches!(event.kind, EventKind::Prompt { .. }) => {
            let told = format!("{text} Tell the user so.");
            with_context(event, &context.map_or_else(|| told.clone(), |context| format!("{context}\n{told}")))
        }
        None => None,
    }
}

/// Returns true if the agent accepts context for its model at a prompt.
pub(super) fn accepts_context(event: &HookEvent) -> bool {
    with_context(event, "").is_some()
}

/// Returns a reply that answers a prompt in place of the model; `None` if the agent does not support that.
pub(super) fn block_prompt_with(event: &HookEvent, text: &str) -> Option<String> {
    event.agent.answers.reply.and_then(|reply| reply(event, text)).map(|answer| line(&answer))
}

/// Returns the text that tells the model about a restore.
pub(super) fn words(notice: &Notice) -> String {
    let names = |verb: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!(" {verb}: {}.", names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ")),
    };
    let more = match notice.more {
        0 => String::new(),
        more => format!(" And {more} more."),
    };
    format!(
        "The user has rolled back: {}.{}{}{more} What you remember of these files is out of date: read them again \
         before you rely on them.",
        plain(&notice.headline),
        names("Written", &notice.written),
        names("Removed", &notice.removed),
    )
}

fn line(answer: &Value) -> String {
    format!("{answer}\n")
}

#[cfg(test)]
mod tests {
    use super::super::decode::decode;
    use super::*;
    use crate::agents::Agent;

    fn event(agent: Agent, name: &str) -> HookEvent {
        decode(agent, Some(name), br#"{"cwd":"/p"}"#)
    }

    #[test]
    fn an_empty_reply_lets_every_agent_but_cursor_continue() {
        for agent in Agent::all().filter(|agent| *agent != Agent::named("cursor")) {
            for name in ["UserPromptSubmit", "PreToolUse", "SessionStart", "Stop"] {
                assert_eq!(go_on(&event(agent, name)), "", "{agent:?} {name}");
            }
        }
        for name in ["preToolUse", "beforeShellExecution", "beforeMCPExecution"] {
            assert_eq!(go_on(&event(Agent::named("cursor"), name)), "{\"permission\":\"allow\"}\n");
        }
        for name in ["beforeSubmitPrompt", "stop", "afterFileEdit"] {
            assert_eq!(go_on(&event(Agent::named("cursor"), name)), "{}\n");
        }
        assert_eq!(go_on(&decode(Agent::named("cursor"), None, b"?")), "{\"permission\":\"allow\"}\n");
    }

    #[test]
    fn each_model_is_told_in_its_own_way() {
        let told = |agent, name| with_context(&event(agent, name), "x");
        let claude = r#"{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"x"}}"#;
        for agent in [Agent::named("claude"), Agent::named("codex"), Agent::named("qwen")] {
            assert_eq!(told(agent, "UserPromptSubmit"), Some(format!("{claude}\n")));
        }
        assert_eq!(
            told(Agent::named("gemini"), "BeforeAgent"),
            Some(claude.replace("UserPromptSubmit", "BeforeAgent") + "\n")
        );
        assert_eq!(
            told(Agent::named("copilot"), "userPromptSubmitted"),
            Some("{\"additionalContext\":\"x\"}\n".to_owned())
        );
        for (agent, name) in [(Agent::named("hermes"), "pre_llm_call"), (Agent::named("opencode"), "chat.message")] {
            assert_eq!(told(agent, name), Some("{\"context\":\"x\"}\n".to_owned()));
        }
        for agent in [Agent::named("cursor"), Agent::named("crush"), Agent::named("plain")] {
            assert_eq!(told(agent, "prompt"), None);
        }
    }

    #[test]
    fn a_user_is_told_where_the_agent_shows_it_and_else_the_model() {
        let told = |agent, name, context| with_message(&event(agent, name), "slow.", context);
        assert_eq!(
            told(Agent::named("claude"), "PreToolUse", None).as_deref(),
            Some("{\"systemMessage\":\"slow.\"}\n")
        );
        let both = told(Agent::named("gemini"), "BeforeAgent", Some("x")).expect("an answer");
        let both: Value = serde_json::from_str(&both).expect("JSON");
        assert_eq!(
            (both["systemMessage"].as_str(), &both["hookSpecificOutput"]["additionalContext"]),
            (Some("slow."), &json!("x"))
        );
        let codex = told(Agent::named("codex"), "UserPromptSubmit", Some("x")).expect("an answer");
        let codex: Value = serde_json::from_str(&codex).expect("JSON");
        assert_eq!(codex["hookSpecificOutput"]["additionalContext"], "x\nslow. Tell the user so.");
        for (agent, name) in [
            (Agent::named("codex"), "PreToolUse"),
            (Agent::named("crush"), "PreToolUse"),
            (Agent::named("plain"), "prompt"),
        ] {
            assert_eq!(told(agent, name, None), None);
        }
    }

    #[test]
    fn a_prompt_is_answered_where_the_agent_lets_us() {
        let answered = |agent, name: &str, text: &str| block_prompt_with(&event(agent, name), text);
        for agent in [Agent::named("claude"), Agent::named("codex"), Agent::named("gemini"), Agent::named("qwen")] {
            let answer = answered(agent, "UserPromptSubmit", "t\n");
            assert_eq!(answer.as_deref(), Some("{\"decision\":\"block\",\"reason\":\"t\\n\"}\n"));
        }
        assert_eq!(answered(Agent::named("hermes"), "piton_command", "t").as_deref(), Some("{\"text\":\"t\"}\n"));
        for agent in [
            Agent::named("cursor"),
            Agent::named("opencode"),
            Agent::named("hermes"),
            Agent::named("crush"),
            Agent::named("plain"),
        ] {
            assert_eq!(answered(agent, "prompt", "t"), None);
        }
    }

    #[test]
    fn markdown_does_not_touch_what_copilot_shows() {
        let shown = |text: &str| {
            let answer =
                block_prompt_with(&event(Agent::named("copilot"), "userPromptSubmitted"), text).expect("an answer");
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            assert_eq!(answer["handled"], true);
            answer["responseContent"].as_str().expect("text").to_owned()
        };
        assert_eq!(shown("  1. <N>  `x`\n"), "```\n  1. <N>  `x`\n```");
        assert_eq!(shown("+````md\n+```"), "`````\n+````md\n+```\n`````");
    }

    #[test]
    fn a_notice_names_the_files_and_hides_nothing_in_them() {
        let mut notice = Notice::default();
        notice.headline = "files in /p were restored".to_owned();
        notice.written = vec!["a\u{1b}[31m.txt".to_owned(), "b".to_owned()];
        notice.more = 2;
        let words = words(&notice);
        assert!(words.contains("Written: a\u{fffd}[31m.txt, b. And 2 more."), "{words}");
        assert!(!words.contains("Removed"));
    }
}
