//! Recognises the text of piton's own command files when it arrives as a prompt.
//!
//! An agent may send the text of a command file instead of the line that was typed, alone or wrapped. The command files
//! of such agents therefore consist of `/rollback {{args}}`, but those of version 0.1 contain the paragraph below, and
//! stay on disk until the next install. In every form the arguments are at the end.
//!
//! A prompt that only quotes the paragraph is an ordinary prompt: the paragraph counts only in the position where an
//! agent puts it.

use crate::agents::Agent;

/// Text of the command files, addressed to a model that should never see it.
const PARAGRAPH: &str = "\
piton answers this command before the model sees it. If you read this, its hook did not run, and nothing was restored. Do not \
restore anything yourself: tell the user to run `piton doctor` in a shell, and `piton rollback` there for the list.";
/// Beginning of the paragraph, which occurs in no other text.
const BEGINNING: &str = "piton answers this command before the model sees it. If you read this, its hook did not run";
/// A prompt that contains the text of a command file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnText<'a> {
    /// The command was typed, with these arguments.
    Typed { arguments: &'a str, is_skill: bool },
    /// The text is in a position where no known agent puts it: it may be a quotation.
    Quoted,
}

/// Finds the text of a command file in a prompt; `None` if the prompt does not contain it.
pub(super) fn find(prompt: &str) -> Option<OwnText<'_>> {
    let prompt = prompt.trim();
    let skill = Agent::all().filter_map(|agent| agent.spec().payload.command_wrap.as_ref()).find_map(|wrap| {
        let (_, text) = prompt.strip_prefix(wrap.words)?.strip_suffix(wrap.close)?.split_once(wrap.open)?;
        Some(match text.trim_start().split_once('\n') {
            Some((line, rest)) if line.starts_with(wrap.line) => rest,
            _ => text,
        })
    });
    let expanded = skill.unwrap_or(prompt);
    let is_quoted = || strip_words(&prompt[prompt.find("piton answers")?..], BEGINNING).map(|_| OwnText::Quoted);
    let typed = strip_words(without_comment(expanded), PARAGRAPH).and_then(|rest| arguments(rest.trim()));
    typed.map(|arguments| OwnText::Typed { arguments, is_skill: skill.is_some() }).or_else(is_quoted)
}

/// Returns the arguments in the text that follows the paragraph: nothing, the line as it was typed, or the arguments
/// after `ARGUMENTS:`. `None` if it is anything else.
fn arguments(rest: &str) -> Option<&str> {
    let ends = |rest: &&str| rest.is_empty() || rest.starts_with(char::is_whitespace);
    match rest {
        "" => Some(""),
        rest => rest.strip_prefix("/rollback").filter(ends).or_else(|| rest.strip_prefix("ARGUMENTS:")),
    }
}

/// Returns the text without the HTML comment at its beginning, if there is one.
fn without_comment(text: &str) -> &str {
    let text = text.trim_start();
    let after = text.strip_prefix("<!--").and_then(|rest| rest.split_once("-->"));
    after.map_or(text, |(_, after)| after)
}

/// Strips `words` from the beginning of a text, regardless of spacing and line breaks; `None` if the text does not
/// begin with them.
fn strip_words<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    words.split_whitespace().try_fold(text, |rest, word| rest.trim_start().strip_prefix(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paragraph with the line breaks that files of version 0.1 have.
    const WRITTEN: &str = "\
piton answers this command before the model sees it. If you read this, its hook did not run, and nothing was restored. Do not
restore anything yourself: tell the user to run `piton doctor` in a shell, and `piton rollback` there for the list.
";

    fn typed(arguments: &str, is_skill: bool) -> Option<OwnText<'_>> {
        Some(OwnText::Typed { arguments, is_skill })
    }

    #[test]
    fn the_arguments_are_found_in_every_form_that_agents_send() {
        // Gemini with a file of 0.1, with and without arguments.
        assert_eq!(find(&format!("{WRITTEN}\n\n/rollback diff 1")), typed(" diff 1", false));
        assert_eq!(find(WRITTEN), typed("", false));
        // Qwen keeps the comment of the file.
        let comment = "<!-- Written by `piton install`, removed by `piton uninstall`. -->\n\n";
        assert_eq!(find(&format!("{comment}{WRITTEN}\n/rollback 2 'a b'")), typed(" 2 'a b'", false));
        assert_eq!(find(&format!("{comment}{}", WRITTEN.replace('\n', "\r\n"))), typed("", false));
        assert_eq!(find(&format!("{comment}{WRITTEN}\nARGUMENTS: 2")), typed(" 2", false));
        // Copilot's TUI.
        let skill = |rest: &str| {
            format!(
                "The user explicitly invoked the \"/rollback\" skill. Follow its instructions now.\n\n\
                 <skill-context name=\"rollback\">\nBase directory for this skill: /home/u/.copilot/skills/rollback\n\n\
                 {comment}{WRITTEN}\n{rest}</skill-context>"
            )
        };
        assert_eq!(find(&skill("\nARGUMENTS: diff 1\n")), typed(" diff 1", true));
        assert_eq!(find(&skill("")), typed("", true));
    }

    #[test]
    fn a_prompt_that_quotes_the_text_is_a_prompt() {
        for prompt in ["tidy up", "", "piton answers", "<!-- x", "/rollback 2"] {
            assert_eq!(find(prompt), None, "{prompt}");
        }
        for prompt in [
            format!("why does the model say this?\n{WRITTEN}"),
            format!("{WRITTEN}\nWhat does that mean?"),
            format!("{WRITTEN}\n/rollbacks 2"),
            format!("<skill-context name=\"rollback\">{WRITTEN}ARGUMENTS: 2</skill-context>"),
            "piton answers this command before the model sees it. If you read this, its hook did not run!".to_owned(),
        ] {
            assert_eq!(find(&prompt), Some(OwnText::Quoted), "{prompt}");
        }
    }
}
