//! Qwen Code: the events of Claude Code, the tools and handlers of Gemini CLI.

mod conversation;

use super::event::EventKind;
use super::guide::GuideFacts;
use super::setup::{Home, OwnFile, Setup};
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec, VersionText};
use super::{claude, gemini, shared};

const COMMAND_FILE: &str = include_str!("texts/rollback-qwen.md");

pub(super) static SPEC: Spec = Spec {
    name: "qwen",
    title: "Qwen Code",
    programs: &["qwen"],
    home: Some(Home { variable: None, default: ".qwen", dir: "" }),
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        events: shared::EVENTS,
        // Qwen sends the event again after each tool, with an empty prompt.
        prompt: |text| match without_reminders(&text) {
            "" => EventKind::Other,
            typed => EventKind::Prompt { text: typed.to_owned() },
        },
        tells_turn_ends: true,
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec { readers: gemini::READERS, shells: &["run_shell_command"] },
    version: VersionSpec {
        in_env: |env| env("QWEN_CODE_STARTUP_VERSION"),
        packages: &["@qwen-code/qwen-code"],
        in_transcript: VersionText::Records,
        ..VersionSpec::DEFAULT
    },
    answers: AnswerSpec {
        context: Some(shared::additional_context),
        reply: Some(shared::block),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        events: &["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd"],
        project_dir: Some(".qwen"),
        handler: gemini::handler,
        // Claude passes the typed text to the hook, Qwen the contents of the file.
        setup: |place| Setup {
            configs: vec![place.json_with_hooks("settings.json")],
            files: vec![OwnFile::command(
                place.dir.join("commands/rollback.md"),
                COMMAND_FILE,
                &[claude::COMMAND_FILE],
            )],
            ..Setup::default()
        },
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec { switched_off: claude::all_hooks_disabled, ..CheckSpec::DEFAULT },
    guide: GuideFacts {
        tested: Some("0.24.4"),
        trust: "No approval is needed.",
        restoring: "Headless (`qwen 'PROMPT'`) the command is executed, but Qwen prints no answer: use a shell. After each \
                    answer Qwen asks the model to suggest what you might type next; that call is Qwen's own.",
        notes: &[
            "Qwen sends the text of a command file to hooks, not the typed line. `commands/rollback.md` consists of \
             `/rollback {{args}}` for that reason: do not change it.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};

/// Returns a prompt without the reminders that Qwen puts before it, about background agents for example.
fn without_reminders(text: &str) -> &str {
    let mut rest = text;
    while let Some((_, after)) = rest
        .trim_start()
        .strip_prefix("<system-reminder>")
        .and_then(|reminder| reminder.split_once("</system-reminder>"))
    {
        rest = after.trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::without_reminders;

    #[test]
    fn reminders_before_a_prompt_are_not_part_of_it() {
        let reminder = "<system-reminder>\n1 background agent was restored.\n</system-reminder>\n\n";
        for typed in ["add a line", "two\n\nparagraphs ", "about <system-reminder>", ""] {
            assert_eq!(without_reminders(&format!("{reminder}{reminder}{typed}")), typed);
            assert_eq!(without_reminders(typed), typed);
        }
        assert_eq!(without_reminders("<system-reminder> is not closed"), "<system-reminder> is not closed");
    }
}
