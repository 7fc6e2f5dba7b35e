//! The agents: what each needs to run against the scripted model, headless and in its terminal interface.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod hermes;
mod opencode;
mod qwen;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::install::Package;
use super::scratch::Scratch;

/// An agent, and how to run it. Does not know what is checked.
pub(super) trait Agent: Sync {
    fn package(&self) -> Package;

    /// Writes the configuration of a user who has the agent but not piton.
    fn configure(&self, scratch: &Scratch) -> Result<()>;

    /// Gives the consent that the agent asks its user for before it runs hooks.
    fn approve_hooks(&self, _scratch: &Scratch) -> Result<()> {
        Ok(())
    }

    /// Returns further arguments for `piton install`.
    fn install_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the environment variables with which the agent runs.
    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)>;

    /// Returns the command line for one prompt without a terminal, in a new session or in `session`.
    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String>;

    /// Returns the command line for one prompt without a terminal, in a fork of `session` that the agent makes itself;
    /// `None` if it makes none.
    fn headless_fork(&self, _prompt: &str, _session: &str) -> Option<Vec<String>> {
        None
    }

    /// Returns the session of a headless run, from its output.
    fn session(&self, printed: &str) -> Option<String>;

    /// Returns the command line of the terminal interface.
    fn interactive(&self) -> Vec<String>;

    /// Returns texts on the screen once the agent waits for a prompt.
    fn ready(&self) -> &'static [&'static str];

    /// Returns questions at the start, by texts on the screen, and the keys that answer them.
    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[]
    }

    /// Returns the event at the end of a turn with which a hook can make the agent continue, if the agent then reports
    /// a prompt.
    fn turn_end(&self) -> Option<&'static str> {
        None
    }

    /// Returns the keys that interrupt a turn in the terminal interface.
    fn interrupt_keys(&self) -> &'static [&'static str] {
        &["Escape"]
    }

    /// Returns true if the agent reports the end of a turn that was interrupted while a command ran.
    fn reports_interrupts(&self) -> bool {
        false
    }

    /// Returns true if the agent reports the end of a turn in which the model answered with an error.
    fn reports_errors(&self) -> bool {
        false
    }

    /// Returns the start of the last message in calls of the model that the agent makes for itself, such as suggestions
    /// and memory.
    fn background(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the text before the arguments of a rollback typed as a prompt; `None` if the agent does not support
    /// that.
    fn rollback(&self) -> Option<&'static str>;

    /// Returns true if `/resume ID` continues in another session, typed in the terminal interface.
    fn resumes_inside(&self) -> bool {
        false
    }

    /// Returns the command that starts a new session in the terminal interface.
    fn clear(&self) -> &'static str;

    /// Returns the keys that confirm it.
    fn clear_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the command that replaces the conversation by a summary, in the terminal interface.
    fn compact(&self) -> &'static str {
        "/compact"
    }

    /// Adds an MCP server to the configuration. Returns false if the suite does not know how.
    fn add_mcp_server(&self, _scratch: &Scratch, _name: &str, _line: &[&str]) -> Result<bool> {
        Ok(false)
    }

    /// Returns the keys that answer the question of an MCP server, which is one box to check: with yes, and with no.
    fn mcp_answers(&self) -> [&'static [&'static str]; 2] {
        [&[], &[]]
    }

    /// Returns everything that the agent stores of a session, to be compared with what it stores later: by default the
    /// files with the session in their path.
    fn conversation(&self, scratch: &Scratch, session: &str) -> Result<Vec<u8>> {
        files_of(&scratch.home, session)
    }

    /// Returns bytes that contain the title of a session: by default everything that is stored of it.
    fn title(&self, scratch: &Scratch, session: &str) -> Result<Vec<u8>> {
        self.conversation(scratch, session)
    }

    /// Returns the modes of the files of a session; none if it is in a database with all others.
    fn modes(&self, scratch: &Scratch, session: &str) -> Result<BTreeSet<u32>> {
        let files = transcripts(&scratch.home, session)?;
        files.iter().map(|path| Ok(path.metadata()?.permissions().mode() & 0o7777)).collect()
    }

    /// Returns the files that contain the hook's command and its timeout.
    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf>;
}

pub(super) const ALL: [&dyn Agent; 7] = [
    &claude::Claude,
    &codex::Codex,
    &gemini::Gemini,
    &opencode::Opencode,
    &hermes::Hermes,
    &qwen::Qwen,
    &copilot::Copilot,
];

/// Returns names and contents of the transcripts of a session.
fn files_of(home: &Path, session: &str) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for path in transcripts(home, session)? {
        all.extend([path.as_os_str().as_encoded_bytes(), &fs::read(&path)?].concat());
    }
    Ok(all)
}

/// Returns the files with a session in their path. Some agents put only its first part there.
fn transcripts(home: &Path, session: &str) -> Result<Vec<PathBuf>> {
    let short = session.split('-').next().unwrap_or(session);
    let mut all = Vec::new();
    let mut dirs = vec![home.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.strip_prefix(home)?.to_string_lossy().into_owned();
            let is_own = name.contains(session) || name.contains("chats") && name.contains(short);
            if path.is_dir() && !path.is_symlink() && !name.contains(".hermes/checkpoints") {
                dirs.push(path);
            } else if is_own && (name.ends_with(".jsonl") || name.ends_with("/workspace.yaml")) {
                all.push(path);
            }
        }
    }
    all.sort();
    ensure!(!all.is_empty(), "no transcript of {session} in {}", home.display());
    Ok(all)
}

/// Returns the rows that a query finds in a database, as text. The driver of Python reads it.
fn rows_of(scratch: &Scratch, database: &Path, queries: &[(&str, &str)]) -> Result<Vec<u8>> {
    const SCRIPT: &str = "import sqlite3, sys\ndb = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True)\n\
        for query, value in zip(sys.argv[2::2], sys.argv[3::2]):\n    for row in db.execute(query, (value,)): print(row)\n";
    let mut line = vec!["python3".to_owned(), "-c".to_owned(), SCRIPT.to_owned(), database.display().to_string()];
    line.extend(queries.iter().flat_map(|(query, value)| [(*query).to_owned(), (*value).to_owned()]));
    let rows = scratch.run(&line, "rows")?.ok("python3")?.out;
    ensure!(!rows.is_empty(), "no rows in {}", database.display());
    Ok(rows.into_bytes())
}

/// Returns the words of a command line.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns the value of the first string with this key in lines of JSON.
fn json_string(printed: &str, key: &str) -> Option<String> {
    let mark = format!("\"{key}\":");
    let rest = printed.split(&mark).nth(1)?.trim_start().strip_prefix('"')?;
    rest.split('"').next().map(str::to_owned)
}
