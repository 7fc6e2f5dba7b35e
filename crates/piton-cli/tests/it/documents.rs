//! The documents are executed: every command in them, one after another in a separate home, and its output is compared.
//!
//! - In a `console` block, a line that begins with `$ ` is a command, `> ` continues it, and everything else is its
//!   output; a line `...` matches any number of lines. Ids, dates, sizes and durations may differ.
//! - In a `sh` block, every line is a command that must succeed. Its output does not matter.
//! - `<!-- run: COMMAND -->` is a command that readers do not see. A block below `<!-- not run: WHY -->` is left out.
//!
//! `PITON_UPDATE_SNAPSHOTS=1` updates the documents with the actual output of the commands.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use testkit::{Sandbox, clean_command};

use crate::kit::PITON;
use crate::remote_kit;
use crate::transcript::Steady;

/// Home directory in the documents.
const HOME: &str = "/home/you";
/// Marker that no command prints.
const MARK: &str = "\u{1}done ";

#[test]
fn two_minutes_are_a_real_run() {
    run_document("docs/guide/two-minutes.md");
}

#[test]
fn a_lost_function_comes_back_in_two_commands() {
    run_document("docs/guide/lost-a-function.md");
}

#[test]
fn what_programs_are_told_works() {
    run_document("docs/guide/programs.md");
}

#[test]
fn a_rewind_takes_files_and_conversation_back() {
    run_document("docs/guide/rewind.md");
}

#[test]
fn a_ruined_repository_comes_back() {
    run_document("docs/guide/ruined-repository.md");
}

#[test]
fn the_remote_brings_back_a_lost_laptop() {
    remote_kit::ensure_program();
    run_document("docs/guide/remote.md");
}

#[test]
fn what_recovery_says_works() {
    run_document("docs/RECOVERY.md");
}

#[test]
fn what_the_readme_says_works() {
    run_document("README.md");
}

fn run_document(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    let text = fs::read_to_string(&path).expect("a document");
    let steps = steps(&text);
    assert!(steps.len() > 3, "{name}: its commands are not found any more");
    let is_update = std::env::var_os("PITON_UPDATE_SNAPSHOTS").is_some();
    let sandbox = Sandbox::new();
    let mut shell = Shell::start(&sandbox);
    let (mut doc, mut real) = (Steady::default(), Steady::default());
    let mut updates = Vec::new();
    for step in steps {
        let command = with_names(&step.command, &doc, &real);
        let (said, code) = shell.run(&command);
        let place = format!("{name}:{} $ {command}", step.line + 1);
        // If output is documented, it shows whether the command succeeded.
        let is_silent = step.says.as_ref().is_none_or(Vec::is_empty);
        assert!(code == 0 || !is_silent || is_update, "{place}\n{said}\nended with {code}");
        let says = step.says.clone().unwrap_or_default();
        if step.says.is_some() {
            let is_cut = says.iter().any(|line| line == "...");
            // Output that the document leaves out must not count among the names.
            let (mut doc_then, mut real_then) = (doc.clone(), real.clone());
            let (wanted, is) = (doc_then.text(&says.join("\n")), real_then.text(&said));
            let is_same = matches(&lines_of(&wanted), &lines_of(&is));
            assert!(is_same || is_update, "{place}\nis documented to say\n{wanted}\nand says\n{is}");
            if is_cut {
                // An update keeps what is written there, and only the names follow the rest of the document.
                updates.push((step, command, with_names(&says.join("\n"), &doc, &real)));
                continue;
            }
            (doc, real) = (doc_then, real_then);
        }
        updates.push((step, command, said));
    }
    if is_update {
        fs::write(&path, updated(&text, &updates)).expect("a document");
    }
}

/// Returns the document with the output of this run. Abbreviated output gets the names of this run only.
fn updated(text: &str, run: &[(Step, String, String)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // From the end, so that the numbers of earlier lines stay valid.
    for (step, command, said) in run.iter().rev() {
        if let Some(says) = &step.says {
            lines.splice(step.from..step.from + says.len(), said.lines().map(str::to_owned));
        }
        if !command.contains('\n') {
            lines[step.line] = lines[step.line].replace(&step.command, command);
        }
    }
    lines.join("\n") + "\n"
}

/// One command of a document.
#[derive(Clone)]
struct Step {
    line: usize,
    command: String,
    /// Documented output, and the line where it begins (`from`). `None` if the output does not matter.
    says: Option<Vec<String>>,
    from: usize,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut block, mut is_left_out) = (None, false);
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), block) {
            (Some(_), Some(_)) => (block, is_left_out) = (None, false),
            (Some(kind), None) => block = Some(if is_left_out { "" } else { kind }),
            (None, None) => {
                is_left_out |= line.starts_with("<!-- not run: ");
                if let Some(command) = line.strip_prefix("<!-- run: ").and_then(|rest| rest.strip_suffix(" -->")) {
                    steps.push(Step { line: at, command: command.to_owned(), says: None, from: at });
                }
            }
            (None, Some("sh")) if !line.trim().is_empty() => {
                steps.push(Step { line: at, command: line.to_owned(), says: None, from: at });
            }
            (None, Some("console")) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    let (command, says) = (command.to_owned(), Some(Vec::new()));
                    steps.push(Step { line: at, command, says, from: at + 1 });
                }
                (None, Some(Step { command, from, says: Some(says), .. })) => match line.strip_prefix("> ") {
                    Some(more) if says.is_empty() => {
                        *command += &format!("\n{more}");
                        *from = at + 1;
                    }
                    _ => says.push(line.to_owned()),
                },
                _ => panic!("{}: {line:?} is printed by no command", at + 1),
            },
            (None, Some(_)) => {}
        }
    }
    // An empty line separates the next command; no command's output ends with one.
    for says in steps.iter_mut().filter_map(|step| step.says.as_mut()) {
        while says.last().is_some_and(String::is_empty) {
            says.pop();
        }
    }
    steps
}

fn lines_of(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

/// Returns true if the lines are equal, where `...` matches any number of them.
fn matches(wanted: &[&str], is: &[&str]) -> bool {
    match (wanted, is) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=is.len()).any(|at| matches(rest, &is[at..])),
        ([wanted, rest @ ..], [line, more @ ..]) => wanted == line && matches(rest, more),
        _ => false,
    }
}

/// Returns the text with the ids of the document replaced by those of this run.
fn with_names(text: &str, documented: &Steady, real: &Steady) -> String {
    let ids = documented.ids.iter().zip(&real.ids);
    let pairs = ids.chain(documented.projects.iter().zip(&real.projects));
    pairs.fold(text.to_owned(), |text, (was, is)| text.replace(was.as_str(), is))
}

/// A shell that runs one command after another.
struct Shell {
    child: Child,
    typed: ChildStdin,
    said: BufReader<ChildStdout>,
    home: PathBuf,
}

impl Shell {
    fn start(sandbox: &Sandbox) -> Self {
        let home = sandbox.home();
        let programs = home.join(".cargo/bin");
        fs::create_dir_all(&programs).expect("a directory");
        symlink(PITON, programs.join("piton")).expect("a link");
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let mut command = clean_command("sh");
        command.env("HOME", &home).env("TZ", "UTC").env("PATH", path).env("LC_ALL", "C").current_dir(&home);
        let mut child = command
            .args(["-c", "exec 2>&1; exec sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let typed = child.stdin.take().expect("a pipe");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, typed, said, home }
    }

    /// Runs a command and returns its output and exit code.
    fn run(&mut self, command: &str) -> (String, i32) {
        let home = self.home.display().to_string();
        let command = command.replace(HOME, &home);
        // In this shell, so that it can change the directory; but it must not read the following commands from stdin.
        write!(self.typed, "{{ {command}\n}} </dev/null\nprintf '\\n\\001done %d\\n' $?\n").expect("the shell reads");
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let length = self.said.read_line(&mut line).expect("UTF-8");
            assert!(length > 0, "$ {command}\n{said}\nthe shell has ended");
            if let Some(code) = line.strip_prefix(MARK) {
                said.truncate(said.trim_end_matches('\n').len());
                return (said, code.trim().parse().expect("a number"));
            }
            said += &at_home(&line, &home);
        }
    }
}

/// Returns the line with the home of the documents. A column after a path keeps its position.
fn at_home(line: &str, home: &str) -> String {
    let shown = line.replace(home, HOME);
    let gap = shown.find(HOME).and_then(|at| Some(at + shown[at..].find("  ")?));
    match gap {
        Some(gap) => {
            let (path, rest) = shown.split_at(gap);
            format!("{path}{}{rest}", " ".repeat(line.len() - shown.len()))
        }
        None => shown,
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell ends with its input; nothing more is typed.
        let _ = self.typed.write_all(b"exit\n");
        let _ = self.child.wait();
        testkit::wait_for_maintenance(self.home.parent().expect("the sandbox"));
    }
}
