//! Conversations of Hermes: rows in the SQLite database `state.db`.
//!
//! The interpreter that runs Hermes reads and writes them, in one transaction: it brings the SQLite library that Hermes itself
//! uses, with its locks, its triggers and its full-text indexes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::conversation::{
    CONVERSATION_BYTES_MAX, ChatMessage, ConversationSpec, CutRequest, Draft, ForkDatabase, MadeFork, WhyNot,
};

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["0.19."],
    plan,
    resume: |session| vec!["hermes".to_owned(), "--resume".to_owned(), session.to_owned()],
    resume_inside: Some(|session| format!("/resume {session}")),
    open_database: Some(|home, find_program| {
        Ok(Box::new(StateDatabase { path: database(home)?, python: python(find_program)? }))
    }),
};

const SCRIPT: &str = include_str!("../texts/hermes/fork.py");
/// Maximum length of the first line of a script.
const SHEBANG_BYTES_MAX: u64 = 512;

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    request.check_recorded_version(SPEC.versions)?;
    let mark = &request.turn.mark;
    let (Some(ordinal), Some(time)) = (mark.ordinal, request.turn.time) else {
        return Err(crate::conversation::not_marked());
    };
    let python = python(request.find_program)?;
    let ask = json!({
        "do": "plan", "db": database(request.home)?, "session": request.turn.session, "ordinal": ordinal, "time": time.secs,
        "bytes_max": CONVERSATION_BYTES_MAX,
    });
    let answer = run(&python, &ask)?;
    if answer["is_too_large"] == true {
        return Err(WhyNot::too_large());
    }
    let dir = answer["cwd"].as_str().map(PathBuf::from);
    if answer["is_empty"] == true {
        return Ok(Draft::nothing(dir));
    }
    let of = |message: &Value| match message[0].as_str()? {
        "user" => Some(ChatMessage::user(message[1].as_str()?)),
        _ => Some(ChatMessage::agent(message[1].as_str()?)),
    };
    let messages = answer["messages"].as_array().into_iter().flatten().filter_map(of).collect();
    let id = uuid::Uuid::new_v4().simple().to_string();
    let new = format!("{}_{}", request.now.stamp().replace('-', "_"), &id[..6]);
    let mut ask = ask;
    (ask["do"], ask["new"], ask["title"]) = (json!("fork"), json!(new), json!(request.title));
    ask["now"] = json!(request.now.secs);
    let make = move || {
        let answer = run(&python, &ask)?;
        let state = answer["state"].as_str().ok_or_else(|| WhyNot::format("the answer of Python"))?;
        Ok(MadeFork { session: new, state: state.to_owned() })
    };
    Ok(Draft::of_call(dir, messages, make))
}

/// The database of Hermes. Each request runs Python once, which takes a tenth of a second.
struct StateDatabase {
    path: String,
    python: PathBuf,
}

impl ForkDatabase for StateDatabase {
    fn state(&self, _dir: &Path, session: &str) -> Result<Option<String>, WhyNot> {
        let answer = run(&self.python, &json!({"do": "state", "db": self.path, "session": session}))?;
        Ok(answer["state"].as_str().map(str::to_owned))
    }

    fn remove(&self, _dir: &Path, session: &str, state: &str) -> Result<bool, WhyNot> {
        let ask = json!({"do": "remove", "db": self.path, "session": session, "state": state});
        Ok(run(&self.python, &ask)?["removed"] == true)
    }
}

fn database(home: &Path) -> Result<String, WhyNot> {
    let path = home.join("state.db");
    if !path.is_file() {
        return Err(WhyNot::new(format!("{} is gone", path.display())));
    }
    path.to_str().map(str::to_owned).ok_or_else(|| WhyNot::new("the path of its database is not UTF-8"))
}

/// Returns the interpreter that runs Hermes, from the first line of its program.
fn python(find_program: fn(&str) -> Option<PathBuf>) -> Result<PathBuf, WhyNot> {
    let program = find_program("hermes").ok_or_else(|| WhyNot::new("hermes is not on the search path"))?;
    let mut head = Vec::new();
    let file = fs::File::open(&program).map_err(|error| WhyNot::unreadable(&program, &error))?;
    file.take(SHEBANG_BYTES_MAX).read_to_end(&mut head).map_err(|error| WhyNot::unreadable(&program, &error))?;
    let head = String::from_utf8_lossy(&head);
    let named = head.lines().next().and_then(|line| line.strip_prefix("#!")).map(|line| PathBuf::from(line.trim()));
    let is_python = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let own = named.filter(|path| path.is_file() && is_python(path));
    own.or_else(|| find_program("python3")).ok_or_else(|| WhyNot::new("the Python that runs hermes is not found"))
}

/// Runs the script with one request. The script waits no longer than ten seconds for a lock.
fn run(python: &Path, ask: &Value) -> Result<Value, WhyNot> {
    let failed = |error: std::io::Error| WhyNot::new(format!("cannot run {}: {error}", python.display()));
    let mut command = Command::new(python);
    command.args(["-I", "-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().ok_or_else(|| WhyNot::new("Python has no input"))?;
    let sent = stdin.write_all(ask.to_string().as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(failed)?;
    sent.map_err(failed)?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| WhyNot::new(format!("{} did not read its database", python.display())))?;
    match answer["why_not"].as_str() {
        Some(why) => Err(WhyNot::new(why)),
        None => Ok(answer),
    }
}
