//! Runs a `/rollback ...` that was typed to an agent: without the model, by the command that a terminal would run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::own_text::{self, OwnText};
use crate::agents::Agent;
use crate::platform;
use crate::surface::Surface;

/// Time to wait for a rollback. Agents are configured to wait 15 seconds; a restore that takes longer continues on its
/// own.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of characters in an answer: a diff can be as long as the project.
const SHOWN_CHARS_MAX: usize = 20_000;

/// Returns the arguments of a rollback that was typed as a prompt; `None` for any other prompt.
///
/// A prompt that begins with the word `/rollback` is a command, valid or not. One that begins with `piton rollback` may
/// be a sentence: it is a command only if it ends there or continues with a number, an id, `diff`, which only a
/// number or an id may follow, or `revert`, which one of these must follow. The text of piton's own command file counts as the command for which the agent read it.
pub(super) fn rollback(prompt: &str) -> Option<Vec<String>> {
    if let Some(OwnText::Typed { arguments, .. }) = own_text::find(prompt) {
        return Some(words(arguments));
    }
    let prompt = prompt.trim();
    let after = |start: &str| {
        prompt.strip_prefix(start).filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    if let Some(rest) = after("/rollback") {
        return Some(words(rest));
    }
    let words = words(after("piton rollback")?);
    let names_one = |word: &String| {
        let is_number = word.len() < 4 && word.bytes().all(|byte| byte.is_ascii_digit());
        is_number || (word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let is_command = match words.split_first() {
        None => true,
        Some((first, rest)) if first == "revert" => rest.first().is_some_and(names_one),
        Some((first, rest)) if first == "diff" => rest.first().is_none_or(names_one),
        Some((first, _)) => names_one(first),
    };
    is_command.then_some(words)
}

/// Beginning of the journal's warning about a command file whose text arrived as a prompt. `doctor` searches for it.
pub(crate) const OWN_TEXT_ARRIVED: &str = "the text of piton's own command file arrived as a prompt";

/// Returns the problem of an agent's command file that shows in a prompt; `None` if there is none.
pub(super) fn own_text_problem(agent: Agent, prompt: &str) -> Option<String> {
    let remedy = format!("`piton install {}` in a shell writes the file again", agent.name);
    match own_text::find(prompt)? {
        OwnText::Typed { is_skill: true, .. } => None,
        OwnText::Typed { .. } => Some(format!("{OWN_TEXT_ARRIVED}: the file is of an older version; {remedy}")),
        OwnText::Quoted => Some(format!("{OWN_TEXT_ARRIVED}, in a form that piton does not know; {remedy}")),
    }
}

/// Splits at whitespace; quotes and backslashes keep words with spaces together. An unclosed quote ends with the text.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut is_begun, mut quote) = (String::new(), false, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None | Some('"'), '\\') => word.extend(characters.next()),
            (None, open @ ('"' | '\'')) => (quote, is_begun) = (Some(open), true),
            (None, space) if space.is_whitespace() => {
                if is_begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_begun = false;
            }
            (_, other) => word.push(other),
        }
    }
    if is_begun || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Directory, base, configuration, session and surface of a typed rollback.
pub(super) struct TypedPlace {
    pub(super) dir: PathBuf,
    pub(super) base: PathBuf,
    pub(super) config: Option<PathBuf>,
    /// The session in which it was typed. Its own later work may be undone.
    pub(super) session: Option<String>,
    /// The surface on which the answer is read.
    pub(super) surface: Surface,
}

/// Runs the rollback and returns the text that a terminal would show.
pub(super) fn run(place: &TypedPlace, words: &[String]) -> String {
    let command = format!("piton rollback {}", words.join(" "));
    match std::env::current_exe().and_then(|program| start(&program, place, words)) {
        Ok(Some(output)) => shown(&output, command.trim()),
        Ok(None) => {
            format!("`{}` is still going on. `piton rollback` in a terminal shows its result.", command.trim())
        }
        Err(error) => format!("cannot run piton: {error}\nhint: type `{}` in a terminal", command.trim()),
    }
}

/// Runs the rollback in a child process. Returns `None` if it is still running after `PATIENCE`; it is not killed then,
/// because a restore must not stop halfway.
fn start(program: &Path, place: &TypedPlace, words: &[String]) -> std::io::Result<Option<Output>> {
    let mut command = Command::new(program);
    command.arg("--no-color").arg("-C").arg(&place.dir).arg("--base").arg(&place.base);
    if let Some(config) = &place.config {
        command.arg("--config").arg(config);
    }
    command.args(arguments(place.session.as_deref(), place.surface, words));
    // In a process group of its own, so that signals from the agent to the hook do not reach the restore.
    platform::start_in_own_group(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let child = command.spawn()?;
    let (done, is_done) = mpsc::channel();
    thread::Builder::new().spawn(move || done.send(child.wait_with_output()))?;
    is_done.recv_timeout(PATIENCE).ok().transpose()
}

/// Options that may be typed as in a terminal: consent to undo the work of other sessions, and a preview of the
/// changes.
const OPTIONS: [&str; 2] = ["--across-sessions", DRY_RUN];
/// Further options of a revert.
const REVERT_OPTIONS: [&str; 2] = ["--with-own-edits", "--skip-conflicts"];
const REVERT: &str = "revert";
const DRY_RUN: &str = "--dry-run";

/// Returns true if a typed rollback changes files.
pub(super) fn changes_files(words: &[String]) -> bool {
    words.first().is_some_and(|first| first != "diff") && !words.iter().any(|word| word == DRY_RUN)
}

/// Returns the command and its arguments. A typed word is never an option, except those in `OPTIONS`.
pub(super) fn arguments(session: Option<&str>, surface: Surface, words: &[String]) -> Vec<String> {
    let is_revert = words.first().is_some_and(|first| first == REVERT);
    let is_option =
        |word: &String| OPTIONS.contains(&word.as_str()) || is_revert && REVERT_OPTIONS.contains(&word.as_str());
    let (mut flags, words): (Vec<_>, Vec<_>) = words.iter().cloned().partition(is_option);
    flags.push(format!("--surface={}", surface.name()));
    // A revert without a turn is refused with the usage of `rollback`.
    if is_revert && words.len() > 1 {
        let start = [REVERT, "-y"].map(str::to_owned).into_iter();
        return start.chain(flags).chain(["--".to_owned()]).chain(words.into_iter().skip(1)).collect();
    }
    // As one argument: an agent may give a session a name that looks like an option.
    let session = session.map(|session| format!("--session={session}"));
    let start = ["rollback", "-y"].map(str::to_owned).into_iter().chain(session);
    start.chain(flags).chain(["--".to_owned()]).chain(words).collect()
}

fn shown(output: &Output, command: &str) -> String {
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim_end().to_owned());
    let text = texts.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("\n");
    let Some((end, _)) = text.char_indices().nth(SHOWN_CHARS_MAX) else {
        return text;
    };
    let end = text[..end].rfind('\n').unwrap_or(end);
    format!("{}\n... `{command}` in a terminal shows the rest", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_rollback_is_distinguished_from_a_sentence() {
        let typed = |prompt: &str| rollback(prompt).map(|words| words.join("|"));
        let command = |words: &str| Some(words.to_owned());
        assert_eq!(typed("/rollback"), command(""));
        assert_eq!(typed("  /rollback 2 \n"), command("2"));
        assert_eq!(typed("/rollback diff 4f2a"), command("diff|4f2a"));
        assert_eq!(typed("/rollback 2 'a b' \"c d\" e\\ f ''"), command("2|a b|c d|e f|"));
        assert_eq!(typed("/rollback nonsense"), command("nonsense"));
        assert_eq!(typed("piton rollback"), command(""));
        assert_eq!(typed("piton rollback 2 src/a.rs"), command("2|src/a.rs"));
        assert_eq!(typed("piton rollback diff"), command("diff"));
        assert_eq!(typed("piton rollback revert 2 a.rs"), command("revert|2|a.rs"));
        for prompt in [
            "piton rollback is broken, mend it",
            "piton rollback diff shows nothing",
            "piton rollback revert",
            "piton rollback revert the last change",
            "piton rollbacks 2",
            "/rollbacks",
            "please /rollback 2",
            "",
        ] {
            assert_eq!(typed(prompt), None, "{prompt}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_line() {
        use std::os::unix::process::ExitStatusExt as _;
        let line = "ä".repeat(99) + "\n";
        let output = Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: line.repeat(500).into_bytes(),
            stderr: vec![],
        };
        let text = shown(&output, "piton rollback diff 1");
        assert!(text.chars().count() < SHOWN_CHARS_MAX + 100);
        assert!(text.ends_with("ä\n... `piton rollback diff 1` in a terminal shows the rest"));
    }
}
