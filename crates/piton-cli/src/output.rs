//! Output for people and programs. Data goes to stdout, messages go to stderr.

use std::cell::RefCell;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use piton::json::keyword;
use piton::{Error, ErrorKind, Moment, Waiting};
use serde::Serialize;

use crate::hints;
use crate::options::Global;
use crate::request::Request;
use crate::surface::Surface;
use crate::{interrupt, usage};

pub(crate) use crate::printable::{misleads, plain};

pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();
/// Style of the id of a checkpoint.
pub(crate) const ID: Style = AnsiColor::Yellow.on_default();
pub(crate) const PLUS: Style = AnsiColor::Green.on_default();
pub(crate) const MINUS: Style = AnsiColor::Red.on_default();
/// Style of the agent and its session.
pub(crate) const WHO: Style = AnsiColor::Cyan.on_default();
/// Style of less important text.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Output options, and the state of the output.
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) is_quiet: bool,
    pub(crate) is_verbose: bool,
    /// The surface on which the output is read.
    pub(crate) surface: Surface,
    choice: ColorChoice,
    /// The last error in writing to stdout that was not a closed pipe.
    unsaid: RefCell<Option<io::Error>>,
    /// The request that is answered. Nothing is printed then: stdin and stdout carry the messages of the protocol.
    request: Option<Arc<Request>>,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let choice = if global.no_color { ColorChoice::Never } else { ColorChoice::Auto };
        Self {
            is_json: global.json || global.request.is_some(),
            is_quiet: global.quiet,
            is_verbose: global.verbose,
            surface: global.surface,
            choice,
            unsaid: RefCell::new(None),
            request: global.request.clone(),
        }
    }

    /// Returns the request that is answered, if the command runs for one.
    pub(crate) fn request(&self) -> Option<&Request> {
        self.request.as_deref()
    }

    /// Returns true if a signal or the program that sent the request has cancelled the work.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.request.as_ref().map_or_else(|| interrupt::caught().is_some(), |request| request.is_cancelled())
    }

    /// Returns stdout, or nothing if a request is answered.
    fn stdout(&self) -> Box<dyn io::Write> {
        if self.request.is_some() { Box::new(io::sink()) } else { Box::new(io::stdout().lock()) }
    }

    /// Prints text for a person, unless `--quiet` or `--json` is given.
    pub(crate) fn text(&self, text: &str) {
        if !self.is_quiet && !self.is_json {
            self.answer(text);
        }
    }

    /// Prints a report as JSON if `--json` is given.
    pub(crate) fn json(&self, report: &impl Serialize) {
        if let Some(request) = &self.request {
            request.answer(as_line(report));
        } else if self.is_json {
            // Not through `AutoStream`: when it strips colours, it would strip control characters from strings, too.
            self.note(write_to(io::stdout(), &as_line(report)));
        }
    }

    /// Prints text to stdout. A closed pipe is ignored: the reader has seen enough. Any other error, such as a full
    /// disk, is reported by [`Self::done`].
    fn answer(&self, text: &str) {
        self.note(write_to(AutoStream::new(io::stdout(), self.choice), text));
    }

    fn note(&self, written: io::Result<()>) {
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => *self.unsaid.borrow_mut() = Some(error),
            _ => {}
        }
    }

    /// Returns the exit code of a successful command. It is a failure if stdout could not be written.
    pub(crate) fn done(&self) -> ExitCode {
        match self.unsaid.take() {
            None => ExitCode::SUCCESS,
            Some(error) => {
                let error = Error::io("write the answer to", "stdout", error);
                self.to_stderr(&format!("{BAD}error:{BAD:#} {error}"));
                ExitCode::FAILURE
            }
        }
    }

    /// Prints bytes unchanged, whether to a terminal or not.
    pub(crate) fn data(&self, bytes: &[u8]) {
        let mut out = self.stdout();
        self.note(out.write_all(bytes).and_then(|()| out.flush()));
    }

    /// Prints what `write` writes, unchanged. A closed pipe is not an error: the reader has seen enough, and `None` is
    /// returned.
    pub(crate) fn stream<T>(
        &self,
        write: impl FnOnce(&mut dyn io::Write) -> piton::Result<T>,
    ) -> piton::Result<Option<T>> {
        let mut out = io::BufWriter::with_capacity(1 << 16, self.stdout());
        let written = write(&mut out);
        self.note(out.flush());
        match written {
            Err(error) if is_broken_pipe(&error) => Ok(None),
            written => written.map(Some),
        }
    }

    /// Prints a warning, even with `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        if let Some(request) = &self.request {
            return request.warn(plain(text));
        }
        self.to_stderr(&format!("{WARN}warning:{WARN:#} {}", plain(text)));
    }

    /// Prints a hint on what to do next, unless `--quiet` or `--json` is given.
    pub(crate) fn hint(&self, text: &str) {
        if !self.is_quiet && !self.is_json {
            self.to_stderr(&format!("{HINT}hint:{HINT:#} {}", self.surface.reword(text)));
        }
    }

    fn to_stderr(&self, text: &str) {
        if self.request.is_some() {
            return;
        }
        let _ = write_to(AutoStream::new(io::stderr(), self.choice), text);
    }

    /// Prints a question, without a line end.
    pub(crate) fn prompt(&self, text: &str) {
        let mut out = AutoStream::new(io::stderr(), self.choice);
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// Asks a question, and waits for the answer. Returns false without asking if `--json` is given, or `--quiet`,
    /// which hides what would be done. `option` is the option that agrees in advance.
    pub(crate) fn confirmed(&self, question: &str, option: &str) -> io::Result<bool> {
        if self.is_quiet && !self.is_json {
            self.warn(&format!("--quiet does not say what would be done, and so does not ask; {option} agrees to it"));
        }
        if self.is_quiet || self.is_json {
            return Ok(false);
        }
        Ok(matches!(self.asked(question)?.as_deref(), Some("y" | "yes")))
    }

    /// Asks a question and returns the answer in lower case, or `None` at the end of the input.
    pub(crate) fn asked(&self, question: &str) -> io::Result<Option<String>> {
        if self.request.is_some() {
            return Ok(None);
        }
        self.prompt(question);
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            // At the end of the input, the line end was not typed.
            self.prompt("\n");
            return Ok(None);
        }
        Ok(Some(answer.trim().to_ascii_lowercase()))
    }

    /// Returns true if stdout may get colours.
    pub(crate) fn has_colours(&self) -> bool {
        AutoStream::new(io::stdout(), self.choice).current_choice() != ColorChoice::Never
    }

    /// Returns true if stdout is read by a person, in a terminal or inside an agent, and not by a file or a program.
    pub(crate) fn is_read_by_a_person(&self) -> bool {
        self.surface != Surface::Shell || io::stdout().is_terminal()
    }

    /// Returns the width of the terminal on stdout. `None` for a file or a program, for which lines are never cut.
    pub(crate) fn columns(&self) -> Option<usize> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let real = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        named.or_else(real).filter(|columns| *columns > 0)
    }

    /// Prints a long text: through the pager on a terminal, directly otherwise.
    pub(crate) fn page(&self, text: &[u8]) {
        if self.is_quiet || self.is_json {
            return;
        }
        if io::stdout().is_terminal() && self.through_pager(text).is_some() {
            return;
        }
        let mut out = io::stdout().lock();
        self.note(out.write_all(text).and_then(|()| out.flush()));
    }

    fn through_pager(&self, text: &[u8]) -> Option<()> {
        let pager = std::env::var("PAGER").ok().filter(|pager| !pager.is_empty()).unwrap_or_else(|| "less".to_owned());
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", &pager]).stdin(std::process::Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        let mut child = command.spawn().ok()?;
        // A pager that is closed early has shown enough.
        let _ = child.stdin.take()?.write_all(text);
        // A shell exits with these codes if it cannot run the program. After any other exit code, the text was shown.
        let is_missing = matches!(child.wait().ok()?.code(), Some(126 | 127));
        (!is_missing).then_some(())
    }

    /// Returns true if progress is shown.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.is_json && !self.is_quiet && io::stderr().is_terminal()
    }

    /// Returns true if stdin and stdout are a terminal that can be drawn on.
    pub(crate) fn has_screen(&self) -> bool {
        let can_draw = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        can_draw && !self.is_json && !self.is_quiet && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    fn complain(&self, kind: &str, message: &str, hint: Option<&str>) {
        if self.is_json {
            self.json(&ErrorJson { error: ErrorKeys { kind, message: plain(message), hint } });
        } else {
            self.to_stderr(&format!("{BAD}error:{BAD:#} {}", plain(message)));
            if let Some(hint) = hint {
                self.hint(&plain(hint));
            }
        }
    }

    /// Prints an error, and returns its exit code.
    pub(crate) fn error(&self, error: &anyhow::Error) -> ExitCode {
        let (failure, code) = Failure::of(error);
        if let Some(Failure { kind, message, hint }) = &failure {
            self.complain(kind, message, hint.as_deref());
        }
        ExitCode::from(code)
    }
}

/// An error in words, for people and programs.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: &str, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self { kind: kind.to_owned(), message: message.into(), hint: hint.map(str::to_owned) }
    }

    /// Returns an error in words, and the exit code. There are no words if the report has said what is wrong.
    pub(crate) fn of(error: &anyhow::Error) -> (Option<Self>, u8) {
        if error.is::<PartlyDone>() {
            return (None, 3);
        }
        if let Some(Said(code)) = error.downcast_ref() {
            return (None, *code);
        }
        if let Some(Relayed(failure)) = error.downcast_ref() {
            let code = match failure.kind.as_str() {
                "not_found" => 4,
                "busy" => 5,
                "invalid" => 2,
                _ => 1,
            };
            return (Some(Self { message: plain(&failure.message), ..failure.clone() }), code);
        }
        let could_not = error.downcast_ref::<CouldNot>();
        let ours = error.downcast_ref::<Error>().or(could_not.map(|CouldNot(error)| error));
        let (message, hint) = match ours {
            Some(error) => (error.to_string(), hints::of(error)),
            None => split_hint(&format!("{error:#}")),
        };
        let kind = ours.map(Error::kind);
        let other = if error.is::<Declined>() { "declined" } else { "other" };
        let code = match kind {
            _ if could_not.is_some() => 2,
            Some(ErrorKind::NotFound) => 4,
            Some(ErrorKind::Busy) => 5,
            Some(ErrorKind::Invalid | ErrorKind::Ambiguous) => 2,
            Some(ErrorKind::Stopped) => interrupt::exit_code(),
            _ => 1,
        };
        let kind = kind.map_or_else(|| other.to_owned(), |kind| keyword(&kind));
        (Some(Self { kind, message: plain(&message), hint }), code)
    }
}

fn is_broken_pipe(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::BrokenPipe)
}

/// Error for work that was partly done. The report has listed what was not; only exit code 3 is left.
#[derive(Debug)]
pub(crate) struct PartlyDone;

impl std::fmt::Display for PartlyDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("partly done")
    }
}

impl std::error::Error for PartlyDone {}

/// Error for work that failed after the user agreed to it. Exits with 2, to tell it from a refusal.
#[derive(Debug)]
pub(crate) struct CouldNot(pub(crate) Error);

impl std::fmt::Display for CouldNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for CouldNot {}

/// Error that the program for the remote reported.
#[derive(Debug)]
pub(crate) struct Relayed(pub(crate) Failure);

impl std::fmt::Display for Relayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Relayed {}

/// Error for a problem that the report has described. Only the exit code is left.
#[derive(Debug)]
pub(crate) struct Said(pub(crate) u8);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the report says what is wrong")
    }
}

impl std::error::Error for Said {}

/// Error for a question that the user did not agree to: the consequence, and a hint on how to skip the question.
#[derive(Debug)]
pub(crate) struct Declined(pub(crate) &'static str, pub(crate) Option<&'static str>);

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "declined; {}", self.0)?;
        self.1.map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Declined {}

fn split_hint(message: &str) -> (String, Option<String>) {
    match message.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (message.to_owned(), None),
    }
}

/// JSON of an error.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ErrorJson<'a> {
    /// what went wrong
    error: ErrorKeys<'a>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ErrorKeys<'a> {
    /// kind of failure: `usage`, `invalid`, `not_found`, `ambiguous`, `busy`, `damaged`, `not_ours`, `full`, `io`,
    /// `stopped`, `needs_consent`, `declined` or `other`; about the remote also `credentials`, `denied`, `clock`,
    /// `unavailable`, `wrong_key` or `rolled_back`
    kind: &'a str,
    /// what could not be done, and why
    message: String,
    /// what to do next, or null
    hint: Option<&'a str>,
}

/// JSON of `--version`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct VersionJson<'a> {
    /// name of the program
    name: &'a str,
    /// its version
    version: &'a str,
    /// its licence, as an SPDX expression
    licence: &'a str,
}

/// Returns a report as one line of JSON.
fn as_line(report: &impl Serialize) -> String {
    serde_json::to_string(report).expect("reports have text as keys")
}

fn write_to(mut out: impl io::Write, text: &str) -> io::Result<()> {
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Prints an error of clap and returns its exit code. Help and version are results, anything else is a usage error.
pub(crate) fn misused(error: &clap::Error, piton: clap::Command) -> ExitCode {
    let has = |names: &[&str]| std::env::args_os().any(|arg| names.iter().any(|name| arg == *name));
    let wants_json = has(&["--json"]);
    if error.kind() == clap::error::ErrorKind::DisplayVersion {
        return version(wants_json, has(&["--verbose", "-v"]));
    }
    let is_help = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || is_help && !wants_json {
        let _ = error.print();
    } else {
        let global = Global { json: wants_json, no_color: has(&["--no-color"]), ..Global::default() };
        let (message, hint) = usage::in_words(error, piton);
        Output::new(&global).complain("usage", &message, Some(&hint));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints that the process waits for another one. Clears the line first on a terminal, because it may show progress.
pub(crate) fn tell_of_wait(waiting: &Waiting) {
    let clear = if io::stderr().is_terminal() { "\r\u{1b}[K" } else { "" };
    let _ = write_to(io::stderr(), &format!("{clear}{}", plain(&waiting.to_string())));
}

/// Prints the version; with `--verbose`, also the licence and the list of dependencies.
fn version(wants_json: bool, is_verbose: bool) -> ExitCode {
    const PARTS: &str = include_str!("../THIRD-PARTY.md");
    let (name, version) = ("piton", env!("CARGO_PKG_VERSION"));
    let mut text = format!("{name} {version}");
    if wants_json {
        text = as_line(&VersionJson { name, version, licence: env!("CARGO_PKG_LICENSE") });
    } else if is_verbose {
        let parts = PARTS.split_once("\n\n").map_or(PARTS, |(_, parts)| parts);
        text = format!("{text}\nLicence: {}\n\n{}", env!("CARGO_PKG_LICENSE"), parts.trim_end());
    }
    // A closed pipe is ignored: the reader has seen enough.
    let _ = write_to(io::stdout(), &text);
    ExitCode::SUCCESS
}

/// Returns the text in a style; an empty text stays empty.
pub(crate) fn painted(text: &str, style: Style) -> String {
    if text.is_empty() { String::new() } else { format!("{style}{text}{style:#}") }
}

/// Formats a number of bytes for people: `4.2 MB`.
pub(crate) fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let mut size = count as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TB")
}

/// Returns the same moment in the local time zone.
pub(crate) fn local(moment: Moment) -> Moment {
    let offset_secs = Timestamp::from_second(moment.secs).map_or(moment.offset_secs, offset_secs);
    Moment { offset_secs, ..moment }
}

/// Returns the offset of the local time zone from UTC at this time.
pub(crate) fn offset_secs(at: Timestamp) -> i32 {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(local_zone).to_offset(at).seconds()
}

/// Returns the local time zone from `/etc/localtime`. `TimeZone::system` would first list all zones to find the name of
/// this one, which takes longer than a small checkpoint and is not needed.
fn local_zone() -> TimeZone {
    let by_data = || TimeZone::tzif("local", &std::fs::read("/etc/localtime").ok()?).ok();
    let named = std::env::var_os("TZ");
    named.is_none().then(by_data).flatten().unwrap_or_else(TimeZone::system)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_does_something_to_a_terminal_is_not_let_through() {
        assert_eq!(plain("a\u{1b}[31m\r\nb"), "a\u{fffd}[31m\u{fffd} b");
        assert_eq!(plain("evil\u{202e}gpj.exe\u{2066}\u{200f}"), "evil\u{fffd}gpj.exe\u{fffd}\u{fffd}");
        for text in ["e\u{301}tude", "変更前", "שלום", "\u{1f469}\u{200d}\u{1f4bb}"] {
            assert_eq!(plain(text), text);
        }
    }
}
