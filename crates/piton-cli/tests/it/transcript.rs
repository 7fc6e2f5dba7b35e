//! Output of the command as reproducible text: commands and answers, one after another, compared with a file.
//! `PITON_UPDATE_SNAPSHOTS=1` rewrites the files; the difference is then reviewed by a person.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::{Sandbox, clean_command};

use crate::kit::{PITON, Ran, spawn_piped};
use crate::schema;

/// A sandbox, and the output so far.
pub(crate) struct Transcript {
    pub(crate) sandbox: Sandbox,
    text: String,
    steady: Steady,
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self { sandbox: Sandbox::new(), text: String::new(), steady: Steady::default() }
    }

    /// Returns the command with only a home in its environment: no search path, no agents.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = clean_command(PITON);
        command.env("HOME", self.sandbox.home()).env("TZ", "UTC").env("PATH", "").env("TMPDIR", self.sandbox.root());
        command.current_dir(self.sandbox.project()).args(words(line));
        command
    }

    /// Runs the command and records its output.
    pub(crate) fn piton(&mut self, line: &str) -> &mut Self {
        let command = self.command(line);
        self.run(line, command, "")
    }

    /// Like [`Self::piton`], with text on stdin.
    pub(crate) fn piton_with(&mut self, line: &str, stdin: &str) -> &mut Self {
        let command = self.command(line);
        self.run(line, command, stdin)
    }

    /// Like [`Self::piton`], in another directory.
    pub(crate) fn piton_in(&mut self, dir: &Path, line: &str) -> &mut Self {
        let mut command = self.command(line);
        command.current_dir(dir);
        self.run(line, command, "")
    }

    /// Like [`Self::piton`], with a variable set.
    pub(crate) fn piton_where(&mut self, name: &str, value: &str, line: &str) -> &mut Self {
        let mut command = self.command(line);
        command.env(name, value);
        self.run(&format!("{name}={value} {line}"), command, "")
    }

    fn run(&mut self, line: &str, mut command: Command, stdin: &str) -> &mut Self {
        let mut child = spawn_piped(&mut command);
        // Best effort: the command may not read its stdin.
        let _ = child.stdin.take().expect("a pipe").write_all(stdin.as_bytes());
        let ran = Ran::from(child.wait_with_output().expect("the program ends"));
        schema::check(command.get_args(), &ran.stdout);
        let stdout = match serde_json::from_str::<Value>(&ran.stdout) {
            Ok(value) if line.contains("--json") => {
                serde_json::to_string_pretty(&steady_json(value)).expect("JSON") + "\n"
            }
            _ => ran.stdout.clone(),
        };
        self.note(line, &stdout, &ran.stderr, ran.code());
        self
    }

    /// Records the output of a command.
    pub(crate) fn note(&mut self, line: &str, stdout: &str, stderr: &str, code: i32) {
        let _ = writeln!(self.text, "$ {line}");
        let (stdout, stderr) = (self.steady(stdout), self.steady(stderr));
        for line in stdout.lines() {
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
        for line in stderr.lines() {
            let _ = writeln!(self.text, "!  {}", line.trim_end());
        }
        let _ = writeln!(self.text, "[{code}]\n");
    }

    /// Compares all recorded output with the expected file.
    #[track_caller]
    pub(crate) fn check(&self, name: &str) {
        compare(&format!("{name}.txt"), &self.text);
    }

    /// Returns the text without parts that differ from run to run.
    fn steady(&mut self, text: &str) -> String {
        let root = self.sandbox.root().display().to_string();
        self.steady.text(&text.replace(&root, "/ROOT").replace(PITON, "/BIN/piton"))
    }
}

/// Replaces the parts of the output that differ from run to run.
#[derive(Default, Clone)]
pub(crate) struct Steady {
    /// Ids of checkpoints, in the order in which they were seen.
    pub(crate) ids: Vec<String>,
    /// Ids of projects, in the same order.
    pub(crate) projects: Vec<String>,
}

impl Steady {
    /// Returns the text without dates, ids, ages, sizes and durations.
    pub(crate) fn text(&mut self, text: &str) -> String {
        ages_and_sizes(&self.names(&dates(text)))
    }

    /// Replaces ids of checkpoints by their order, and projects by a word.
    fn names(&mut self, text: &str) -> String {
        let mut steady = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|letter: char| letter.is_ascii_alphanumeric()) {
            let end =
                rest[start..].find(|letter: char| !letter.is_ascii_alphanumeric()).map_or(rest.len(), |at| start + at);
            let word = &rest[start..end];
            steady.push_str(&rest[..start]);
            let is_hex = word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
            match word.len() {
                7 | 40 if is_hex => steady.push_str(&self.name(word)),
                16 if is_hex => {
                    if !self.projects.iter().any(|known| known == word) {
                        self.projects.push(word.to_owned());
                    }
                    steady.push_str("<PROJECT>");
                }
                _ => steady.push_str(word),
            }
            rest = &rest[end..];
        }
        steady + rest
    }

    fn name(&mut self, id: &str) -> String {
        let short = &id[..7];
        let at = self.ids.iter().position(|known| known == short).unwrap_or_else(|| {
            self.ids.push(short.to_owned());
            self.ids.len() - 1
        });
        if id.len() == 7 { format!("<ID-{:02}>", at + 1) } else { format!("<FULL-ID-{:02}>", at + 1) }
    }
}

/// Compares text with the expected file of that name.
#[track_caller]
pub(crate) fn compare(name: &str, text: &str) {
    let path = dir().join(name);
    if std::env::var_os("PITON_UPDATE_SNAPSHOTS").is_some() {
        fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        fs::write(&path, text).expect("a file");
        return;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(wanted.lines()).position(|(is, was)| is != was);
    let at = differs.unwrap_or_else(|| text.lines().count().min(wanted.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    assert!(
        text == wanted,
        "{} line {} was\n  {}\nand is\n  {}\nPITON_UPDATE_SNAPSHOTS=1 rewrites it; all of it is now:\n{text}",
        path.display(),
        at + 1,
        line(&wanted),
        line(text),
    );
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots")
}

/// Splits a line as a shell does, with single quotes as the only syntax.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Replaces numbers in JSON that differ from run to run.
fn steady_json(value: Value) -> Value {
    let is_unsteady =
        |key: &str| key.contains("bytes") || ["elapsed_ms", "created_at", "last_touch", "mtime"].contains(&key);
    match value {
        Value::Object(map) => {
            let steady = |(key, value): (String, Value)| {
                let value = match value {
                    Value::Number(_) if is_unsteady(&key) => Value::from("<NUMBER>"),
                    other => steady_json(other),
                };
                (key, value)
            };
            Value::Object(map.into_iter().map(steady).collect())
        }
        Value::Array(list) => list.into_iter().map(steady_json).collect(),
        other => other,
    }
}

/// Replaces dates like `2026-03-16 04:36`, and those in RFC 3339 format.
fn dates(text: &str) -> String {
    let shape = |bytes: &[u8], shape: &str| {
        bytes.len() >= shape.len()
            && bytes.iter().zip(shape.bytes()).all(|(byte, sign)| match sign {
                b'0' => byte.is_ascii_digit(),
                sign => *byte == sign,
            })
    };
    let mut steady = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("20") {
        let bytes = &rest.as_bytes()[start..];
        steady.push_str(&rest[..start]);
        let length = if shape(bytes, "0000-00-00 00:00") {
            steady.push_str("2026-01-02 03:04");
            16
        } else if shape(bytes, "0000-00-00T00:00:00") {
            steady.push_str("2026-01-02T03:04:05");
            let more = bytes[19..].iter().take_while(|byte| byte.is_ascii_digit() || b".+-:Z".contains(byte)).count();
            steady.push('Z');
            19 + more
        } else {
            steady.push_str("20");
            2
        };
        rest = &rest[start + length..];
    }
    steady + rest
}

/// Replaces ages, sizes and durations.
fn ages_and_sizes(text: &str) -> String {
    let number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !word.is_empty();
    let line = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 1..words.len() {
            let (before, word) = (words[at - 1].clone(), words[at].clone());
            let unit = word.trim_matches(|letter: char| !letter.is_ascii_alphabetic());
            let bare = before.trim_start_matches('(').to_owned();
            if ["B", "KB", "MB"].contains(&unit) && number(&bare) && bare != "0" {
                words[at - 1] = before.replace(&bare, "<SIZE>");
                words[at] = word.replace(unit, "");
            } else if unit == "ms" && number(&bare) {
                words[at - 1] = before.replace(&bare, "<N>");
            } else if unit == "ago" && before.ends_with(['s', 'm', 'h']) && number(&before[..before.len() - 1]) {
                words[at - 1] = "0s".to_owned();
            }
        }
        let line = words.join(" ");
        // The width of a column depends on the numbers in it, and on the length of the directory.
        match line.split_once("<SIZE>") {
            Some((start, end)) => format!("{} <SIZE>{end}", start.trim_end()),
            None if line.ends_with(" live") || line.ends_with(" orphan") => {
                line.split_whitespace().collect::<Vec<_>>().join("  ")
            }
            None => line,
        }
    };
    let lines: Vec<_> = text.lines().map(line).collect();
    let end = if text.ends_with('\n') { "\n" } else { "" };
    lines.join("\n") + end
}

/// Replaces colours by readable numbers in angle quotes: `‹33›`.
fn colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let readable = |part: &str| match part.split_once('m') {
        Some((code, rest)) => format!("‹{code}›{rest}"),
        None => format!("‹?›{part}"),
    };
    parts.fold(first, |text, part| text + &readable(part))
}

/// Returns the output on a terminal with this many columns. Returns `None` if `script` is not installed.
pub(crate) fn in_terminal(sandbox: &Sandbox, columns: usize, line: &str, variables: &[(&str, &str)]) -> Option<String> {
    if !testkit::has_program("script") {
        return None;
    }
    let mut command = clean_command("script");
    command.env("HOME", sandbox.home()).env("TZ", "UTC").env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
    command.env("PAGER", "cat");
    command.envs(variables.iter().copied()).current_dir(sandbox.project());
    let inner = format!("stty rows 24 cols {columns}; exec {PITON} {line} </dev/null");
    let output = command.args(["-q", "-e", "-c", &inner, "/dev/null"]).output().expect("script runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    // The progress line appears only on a slow machine and is cleared in the end.
    let stays = |line: &str| line.rsplit("\r\u{1b}[2K").next().unwrap_or_default().to_owned();
    Some(text.replace("\r\n", "\n").split('\n').map(stays).collect::<Vec<_>>().join("\n"))
}

impl Transcript {
    /// Records the output on a terminal with this many columns.
    pub(crate) fn terminal(&mut self, columns: usize, line: &str) -> Option<&mut Self> {
        let shown = in_terminal(&self.sandbox, columns, line, &[])?;
        self.note(&format!("{line}   ({columns} columns)"), &colours(&shown), "", 0);
        Some(self)
    }
}
