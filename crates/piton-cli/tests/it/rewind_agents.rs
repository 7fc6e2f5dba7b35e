//! `piton rewind` with the agents other than Claude: the fork of each ends before the prompt, and a conversation that is
//! damaged, cut short, too large or of an unknown version is declined.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, has_program};

use crate::hook_kit::{hook_command, send};
use crate::kit::{Ran, piton, run};
use crate::restore_kit::{assert_same, state_of};
use crate::rewind_kit::with_programs;

const SESSION: &str = "5e551013-0000-4000-8000-00000000abcd";

/// An agent that writes its conversation to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Codex,
    Gemini,
    Qwen,
    Copilot,
}

const KINDS: [Kind; 4] = [Kind::Codex, Kind::Gemini, Kind::Qwen, Kind::Copilot];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::Copilot => "copilot",
        }
    }

    /// Version that was tested, and the version of the package for which the agent's process is known.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Codex => "0.166.0",
            Self::Gemini => "0.61.0",
            Self::Qwen => "0.24.4",
            Self::Copilot => "1.0.102",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Codex => "@openai/codex",
            Self::Gemini => "@google/gemini-cli",
            Self::Qwen => "@qwen-code/qwen-code",
            Self::Copilot => "@github/copilot",
        }
    }

    fn transcript(self) -> String {
        match self {
            Self::Codex => format!(".codex/sessions/2026/11/18/rollout-2026-11-18T06-00-00-{SESSION}.jsonl"),
            Self::Gemini => format!(".gemini/tmp/p/chats/session-2026-11-18T06-00-{}.jsonl", &SESSION[..8]),
            Self::Qwen => format!(".qwen/projects/-work/chats/{SESSION}.jsonl"),
            Self::Copilot => format!(".copilot/session-state/{SESSION}/events.jsonl"),
        }
    }
}

/// A session with its transcript: each prompt is reported to the hook, answered, and changes a file.
struct Talk<'a> {
    sandbox: &'a Sandbox,
    kind: Kind,
    version: String,
    transcript: PathBuf,
    /// Id of the last record.
    leaf: Option<String>,
}

impl<'a> Talk<'a> {
    /// Starts a session, with what the agent writes before the first prompt.
    fn new(sandbox: &'a Sandbox, kind: Kind, version: &str) -> Self {
        let transcript = sandbox.home().join(kind.transcript());
        fs::create_dir_all(transcript.parent().expect("a directory")).expect("a directory");
        let talk = Self { sandbox, kind, version: version.to_owned(), transcript, leaf: None };
        let dir = sandbox.project();
        match kind {
            Kind::Codex => {
                let meta = json!({"id": SESSION, "session_id": SESSION, "cwd": dir, "cli_version": version, "history_mode": "paginated"});
                talk.line(&json!({"ordinal": 0, "type": "session_meta", "payload": meta}));
            }
            Kind::Gemini => {
                talk.line(&json!({"sessionId": SESSION, "projectHash": "p", "kind": "main"}));
                let root = talk.transcript.ancestors().nth(2).expect("a directory").join(".project_root");
                fs::write(root, dir.to_str().expect("UTF-8")).expect("a file");
            }
            Kind::Qwen => {}
            Kind::Copilot => {
                let start = json!({"sessionId": SESSION, "copilotVersion": version, "context": {"cwd": dir}});
                talk.line(&json!({"type": "session.start", "data": start, "id": "e0"}));
                let description = format!("id: {SESSION}\nname: a talk\nuser_named: false\n");
                fs::write(talk.transcript.with_file_name("workspace.yaml"), description).expect("a file");
            }
        }
        talk
    }

    fn line(&self, record: &Value) {
        let text = fs::read_to_string(&self.transcript).unwrap_or_default();
        fs::write(&self.transcript, format!("{text}{record}\n")).expect("a file");
    }

    /// Calls the hook from a script of the agent's package, by which piton knows the version.
    fn hook(&self, payload: &Value) {
        let dir = self.sandbox.root().join("package");
        fs::create_dir_all(&dir).expect("a directory");
        let package = json!({"name": self.kind.package(), "version": self.version});
        fs::write(dir.join("package.json"), package.to_string()).expect("a file");
        let script = dir.join("agent.sh");
        if !script.exists() {
            self.sandbox.write_program(&script, "#!/bin/sh\n\"$@\"\nexit $?\n");
        }
        let inner = hook_command(self.sandbox, &[self.kind.name()]);
        let mut outer = Command::new("/bin/sh");
        outer.arg(&script).arg(inner.get_program()).args(inner.get_args()).env_clear();
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.current_dir(inner.get_current_dir().expect("a directory"));
        let ran = send(&mut outer, payload.to_string());
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    }

    /// Appends a record of Qwen that follows the last one.
    fn record(&mut self, id: &str, kind: &str, text: &str) {
        let parent = self.leaf.replace(id.to_owned());
        self.line(&json!({
            "uuid": id, "parentUuid": parent, "sessionId": SESSION, "type": kind, "version": self.version,
            "cwd": self.sandbox.project(), "message": {"parts": [{"text": text}]},
        }));
    }

    fn turn(&mut self, number: usize) {
        let (turn, dir) = (format!("t{number}"), self.sandbox.project());
        let (asked, answer) = (format!("prompt number {number}"), format!("answer number {number}"));
        let stamp = 1_794_733_116_000 + number as u64;
        let time = format!("2026-11-18T06:00:{number:02}.000Z");
        let common = json!({"session_id": SESSION, "transcript_path": self.transcript, "cwd": dir, "prompt": asked});
        let with = |more: Value| {
            let mut all = common.clone();
            all.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            all
        };
        match self.kind {
            Kind::Codex => {
                self.hook(&with(json!({"hook_event_name": "UserPromptSubmit", "turn_id": turn})));
                let message = |role: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]});
                let started = json!({"type": "task_started", "turn_id": turn});
                self.line(&json!({"type": "event_msg", "payload": started}));
                self.line(&json!({"type": "response_item", "payload": message("user", &asked)}));
                self.line(&json!({"type": "response_item", "payload": message("assistant", &answer)}));
                self.line(&json!({"type": "event_msg", "payload": {"type": "task_complete", "thread_id": SESSION}}));
            }
            Kind::Gemini => {
                self.hook(&with(json!({"hook_event_name": "BeforeAgent", "timestamp": time})));
                for (kind, text) in [("user", &asked), ("gemini", &answer)] {
                    let id = format!("{kind}-{number}");
                    self.line(&json!({"id": id, "timestamp": time, "type": kind, "content": [{"text": text}]}));
                }
            }
            Kind::Qwen => {
                self.hook(&with(json!({"hook_event_name": "UserPromptSubmit", "prompt_id": turn})));
                self.record(&format!("user-{number}"), "user", &asked);
                self.record(&format!("agent-{number}"), "assistant", &answer);
            }
            Kind::Copilot => {
                self.hook(&json!({"sessionId": SESSION, "timestamp": stamp, "cwd": dir, "prompt": asked}));
                let input = json!({"sessionId": SESSION, "timestamp": stamp, "prompt": asked});
                let started = json!({"hookType": "userPromptSubmitted", "input": input});
                self.line(&json!({"type": "hook.start", "data": started, "id": format!("h{number}")}));
                self.line(&json!({"type": "user.message", "data": {"content": asked}, "id": format!("u{number}")}));
                self.line(
                    &json!({"type": "assistant.message", "data": {"content": answer}, "id": format!("a{number}")}),
                );
            }
        }
        self.sandbox.write("file", format!("after {number}"));
    }
}

pub(crate) fn four_turns(sandbox: &Sandbox, kind: Kind, version: &str) -> PathBuf {
    sandbox.tree("file = before\n other = 1");
    let mut talk = Talk::new(sandbox, kind, version);
    (1..=4).for_each(|number| talk.turn(number));
    talk.transcript
}

/// Returns the number of the row at which a prompt began.
fn row_of(sandbox: &Sandbox, prompt: &str) -> String {
    let rows = piton(sandbox, ["rollback", "--json"]).done().json();
    let has = |row: &&Value| row["prompts"].as_array().is_some_and(|all| all.iter().any(|one| one["prompt"] == prompt));
    let row = rows.as_array().expect("a list").iter().find(has);
    row.unwrap_or_else(|| panic!("no row has `{prompt}`: {rows}"))["number"].to_string()
}

/// Returns all text of the files below a directory whose path names a session.
fn text_of_session(dir: &Path, session: &str) -> String {
    let short = &session[..8];
    let mut text = String::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.to_string_lossy().contains(short) {
                text += &fs::read_to_string(&path).expect("text");
            }
        }
    }
    text
}

/// D1, D2.
#[test]
fn the_fork_of_each_agent_ends_before_the_prompt() {
    for kind in KINDS {
        let sandbox = Sandbox::new();
        let transcript = four_turns(&sandbox, kind, kind.version());
        let before = fs::read(&transcript).expect("a transcript");
        let row = row_of(&sandbox, "prompt number 3");
        let report = piton(&sandbox, ["rewind", &row, "--json"]).done().json();
        let conversation = &report["conversation"];
        assert_eq!((&conversation["agent"], &conversation["session"]), (&json!(kind.name()), &json!(SESSION)));
        assert_eq!(fs::read(&transcript).expect("a transcript"), before, "{kind:?}");
        assert_eq!(fs::read_to_string(sandbox.path("file")).expect("a file"), "after 2", "{kind:?}");
        let forked = conversation["forked_session"].as_str().expect("a fork");
        let home = sandbox.home().join(format!(".{}", kind.name()));
        let fork = text_of_session(&home, forked);
        for number in 1..=4 {
            assert_eq!(fork.contains(&format!("answer number {number}")), number < 3, "{kind:?}: {fork}");
        }
        // The title of Codex is in a database.
        assert_eq!(fork.contains("before: prompt number 3"), kind != Kind::Codex, "{kind:?}: {fork}");
        assert!(
            !fork.lines().filter(|line| !line.contains("forked_from_id")).any(|line| line.contains(SESSION)),
            "{fork}"
        );
        let cleaned = piton(&sandbox, ["rewind", "--clean", "--json"]).done().json();
        assert_eq!(cleaned["removed"][0]["forked_session"], forked, "{kind:?}");
        assert_eq!(text_of_session(&home, forked), "");
    }
}

/// Asserts that a rewind to a row is declined for a reason with these words, and that nothing is written.
#[track_caller]
fn declined(sandbox: &Sandbox, home: &str, row: &str, words: &str, what: &str) {
    let home = sandbox.home().join(home);
    let (conversations, project) = (state_of(&home), state_of(&sandbox.project()));
    let ran = with_programs(sandbox, &["rewind", row]);
    assert_eq!(ran.code(), 1, "{what}: {ran:?}");
    assert!(ran.stderr.contains(words) && ran.stderr.contains("nothing was touched"), "{what}: {ran:?}");
    with_programs(sandbox, &["rewind", row, "--conversation-only"]).failed(2);
    assert_same(&state_of(&sandbox.project()), &project, what);
    assert_same(&state_of(&home), &conversations, what);
    assert!(!sandbox.base().join("local/forks").exists(), "{what}");
    with_programs(sandbox, &["rewind", row, "--files-only"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("file")).expect("a file"), "after 2", "{what}");
}

#[test]
fn conversations_of_each_agent_that_are_damaged_cut_short_huge_or_gone_are_declined() {
    type Spoil = fn(&Path);
    let cases: [(&str, &[&str], Spoil); 4] = [
        ("damaged", &["is damaged", "does not begin with its session"], |path| {
            let text = fs::read_to_string(path).expect("a transcript");
            fs::write(path, text.replacen("\"answer number 1", " answer number 1", 1)).expect("a file");
        }),
        ("cut short", &["shorter now", "the prompt is not in it", "is cut short"], |path| {
            let bytes = fs::read(path).expect("a transcript");
            fs::write(path, &bytes[..bytes.len() / 3]).expect("a file");
        }),
        ("huge", &["larger than 128 MB"], |path| {
            fs::File::options().write(true).open(path).and_then(|file| file.set_len(200 << 20)).expect("a sparse file");
        }),
        ("gone", &["is gone"], |path| fs::remove_file(path).expect("a file")),
    ];
    for kind in KINDS {
        for (what, words, spoil) in cases {
            let sandbox = Sandbox::new();
            let transcript = four_turns(&sandbox, kind, kind.version());
            let row = row_of(&sandbox, "prompt number 3");
            spoil(&transcript);
            let why = piton(&sandbox, ["rewind", &row, "--dry-run", "--json"]).done().json();
            let why = why["conversation"]["why_not"].as_str().unwrap_or_default().to_owned();
            assert!(words.iter().any(|words| why.contains(words)), "{kind:?}, {what}: {why:?}");
            declined(&sandbox, &format!(".{}", kind.name()), &row, &why, &format!("{kind:?}, {what}"));
        }
    }
}

#[test]
fn conversations_of_later_versions_are_declined() {
    for kind in KINDS {
        let sandbox = Sandbox::new();
        four_turns(&sandbox, kind, "9.0.0");
        let row = row_of(&sandbox, "prompt number 3");
        let words = "it was written by version 9.0.0, and piton knows ";
        declined(&sandbox, &format!(".{}", kind.name()), &row, words, &format!("{kind:?}"));
        expect_named_by_doctor(&sandbox, kind.name(), "9.0.0");
    }
}

/// Asserts that `doctor` names an agent, once it is hooked up, as one whose conversations are not taken back.
#[track_caller]
fn expect_named_by_doctor(sandbox: &Sandbox, agent: &str, version: &str) {
    with_programs(sandbox, &["install", agent]).done();
    let ran = with_programs(sandbox, &["doctor", "--no-fire"]);
    let words = format!("version {version}: `piton rewind` takes back files only");
    assert!(ran.stdout.contains(&words), "{agent}: {ran:?}");
}

/// Reports a prompt as the plugin of opencode does, in a session of this version.
fn ask_opencode(sandbox: &Sandbox, version: &str, number: usize) {
    let dir = sandbox.project();
    let info = json!({"id": "ses_1", "version": version, "directory": dir});
    let created = json!({"type": "session.created", "properties": {"sessionID": "ses_1", "info": info}});
    let message = json!({"id": format!("msg_{number}"), "role": "user", "sessionID": "ses_1"});
    let parts =
        json!([{"type": "text", "text": format!("prompt number {number}"), "messageID": format!("msg_{number}")}]);
    let events = [
        json!({"hook_event_name": "event:session.created", "directory": dir, "worktree": dir, "event": created}),
        json!({
            "hook_event_name": "chat.message", "directory": dir, "worktree": dir, "input": {"sessionID": "ses_1"},
            "output": {"message": message, "parts": parts},
        }),
    ];
    for event in &events[usize::from(number > 1)..] {
        let ran = send(&mut hook_command(sandbox, &["opencode"]), event.to_string());
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    }
    sandbox.write("file", format!("after {number}"));
}

#[test]
fn opencode_is_declined_if_it_is_unknown_missing_or_does_not_start() {
    let program = "#!/bin/sh\nexit 1\n";
    let cases = [
        ("2.0.0", Some(program), "it was written by version 2.0.0, and piton knows 1.18.x"),
        ("1.18.33", None, "opencode is not on the search path"),
        ("1.18.33", Some(program), "the server of opencode did not start"),
    ];
    for (version, program, words) in cases {
        let sandbox = Sandbox::new();
        sandbox.tree("file = before");
        fs::create_dir(sandbox.root().join("bin")).expect("a directory");
        (1..=4).for_each(|number| ask_opencode(&sandbox, version, number));
        let row = row_of(&sandbox, "prompt number 3");
        if let Some(text) = program {
            sandbox.write_program(&sandbox.root().join("bin/opencode"), text);
        }
        declined(&sandbox, ".config", &row, words, words);
        if version == "2.0.0" {
            expect_named_by_doctor(&sandbox, "opencode", version);
        }
    }
}

/// A server that answers as that of opencode does: a session, and messages of 200 MB.
const HUGE_OPENCODE: &str = r#"#!/usr/bin/env python3
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        if "/message" in self.path:
            self.send_header("Content-Length", str(200 << 20))
            self.end_headers()
            for _ in range(200):
                self.wfile.write(b" " * (1 << 20))
            return
        body = json.dumps({"id": "ses_1", "version": "1.18.33", "directory": "/"}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("opencode server listening on http://127.0.0.1:" + str(server.server_port), flush=True)
server.serve_forever()
"#;

#[test]
fn a_huge_conversation_in_a_database_is_declined() {
    if !has_program("python3") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    fs::create_dir(sandbox.root().join("bin")).expect("a directory");
    (1..=4).for_each(|number| ask_opencode(&sandbox, "1.18.33", number));
    sandbox.write_program(&sandbox.root().join("bin/opencode"), HUGE_OPENCODE);
    declined(&sandbox, ".config", &row_of(&sandbox, "prompt number 3"), "it is larger than 128 MB", "opencode");
    let sandbox = hermes();
    sql(&sandbox, &["UPDATE messages SET content = printf('%.*c', 200000000, 'x') WHERE id = 1"]);
    declined(&sandbox, ".hermes/state.db", &row_of(&sandbox, "prompt number 3"), "it is larger than 128 MB", "hermes");
}

/// Answers every request, and keeps it.
const ANSWERING_CODEX: &str = r#"#!/bin/sh
[ "$1" = app-server ] || exit 1
while read -r line; do
    echo "$line" >> "$CODEX_HOME/requests"
    id=$(echo "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    [ -z "$id" ] || echo "{\"id\":$id,\"result\":{}}"
done
"#;

#[test]
fn codex_gives_a_fork_its_title() {
    for (program, is_titled) in [(ANSWERING_CODEX, true), ("#!/bin/sh\nexit 1\n", false)] {
        let sandbox = Sandbox::new();
        four_turns(&sandbox, Kind::Codex, Kind::Codex.version());
        fs::create_dir(sandbox.root().join("bin")).expect("a directory");
        sandbox.write_program(&sandbox.root().join("bin/codex"), program);
        let report = with_programs(&sandbox, &["rewind", &row_of(&sandbox, "prompt number 3"), "--json"]).done().json();
        let forked = report["conversation"]["forked_session"].as_str().expect("a fork");
        let requests = fs::read_to_string(sandbox.home().join(".codex/requests")).unwrap_or_default();
        let named = requests.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let named: Vec<_> = named.filter(|request| request["method"] == "thread/name/set").collect();
        assert_eq!(named.len(), usize::from(is_titled), "{requests}");
        let want = json!({"threadId": forked, "name": "before: prompt number 3"});
        assert!(named.iter().all(|request| request["params"] == want), "{requests}");
    }
}

/// Makes the database of Hermes with the tables that its version 0.19 has, and runs statements in it.
const DATABASE: &str = r#"
import re, sqlite3, sys
source = open(sys.argv[1]).read()
columns = lambda name: " ".join(re.findall(r'"([^"]*)"', source.split(name + " = (", 1)[1].split(")", 1)[0])).split()
db = sqlite3.connect(sys.argv[2])
if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
    for table, names in (("sessions", columns("SESSIONS")), ("messages", columns("MESSAGES"))):
        keys = [name + (" INTEGER PRIMARY KEY" if (table, name) == ("messages", "id") else "") for name in names]
        db.execute("CREATE TABLE " + table + " (" + ", ".join(keys) + ")")
    db.execute("CREATE TABLE schema_version (version)")
    db.execute("INSERT INTO schema_version VALUES (22)")
for statement in sys.argv[3:]:
    db.execute(statement)
db.commit()
for row in db.execute("SELECT session_id, role, content, active, compacted FROM messages ORDER BY id"):
    print("|".join(map(str, row)))
"#;

/// Runs statements in the database of Hermes. Returns its messages, one a line.
fn sql(sandbox: &Sandbox, statements: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/agents/texts/hermes/fork.py");
    let mut python = clean_command("python3");
    python.args(["-c", DATABASE]).arg(source).arg(sandbox.home().join(".hermes/state.db")).args(statements);
    run(&mut python).done().stdout
}

/// A prompt of Hermes: the hook, and then the rows.
fn ask_hermes(sandbox: &Sandbox, number: usize, ordinal: usize) {
    let history = vec![json!({"role": "user", "content": "x"}); ordinal];
    let extra = json!({
        "turn_id": format!("t{number}"), "user_message": format!("prompt number {number}"), "conversation_history": history,
    });
    let event = json!({"hook_event_name": "pre_llm_call", "session_id": "s", "cwd": sandbox.project(), "extra": extra});
    let mut command = hook_command(sandbox, &["hermes"]);
    let ran = send(command.env("PITON_HERMES_VERSION", "0.19.0"), event.to_string());
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    for (role, text) in [("user", format!("prompt number {number}")), ("assistant", format!("answer number {number}"))]
    {
        store(sandbox, role, &text, "strftime('%s', 'now') + 0.5");
    }
    sandbox.write("file", format!("after {number}"));
}

fn store(sandbox: &Sandbox, role: &str, text: &str, time: &str) {
    let into = "INSERT INTO messages (session_id, role, content, timestamp, active, compacted) VALUES";
    sql(sandbox, &[&format!("{into} ('s', '{role}', '{text}', {time}, 1, 0)")]);
}

/// Returns a project with four prompts to Hermes.
fn hermes() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    fs::create_dir_all(sandbox.root().join("bin")).expect("a directory");
    sandbox.write_program(&sandbox.root().join("bin/hermes"), "#!/bin/sh\n");
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    sql(&sandbox, &["INSERT INTO sessions (id, model_config, title) VALUES ('s', '{}', 'a talk')"]);
    (1..=4).for_each(|number| ask_hermes(&sandbox, number, number));
    sandbox
}

fn rewind_hermes(sandbox: &Sandbox, prompt: usize) -> Ran {
    let row = row_of(sandbox, &format!("prompt number {prompt}"));
    with_programs(sandbox, &["rewind", &row, "--json"])
}

/// Returns the messages of the fork that a report names.
fn forked_messages(sandbox: &Sandbox, report: &Value) -> Vec<String> {
    let forked = report["conversation"]["forked_session"].as_str().expect("a fork");
    let rows = sql(sandbox, &[]);
    rows.lines().filter_map(|row| row.strip_prefix(&format!("{forked}|"))).map(str::to_owned).collect()
}

#[test]
fn a_database_of_hermes_that_is_damaged_or_unknown_is_declined() {
    if !has_program("python3") {
        return;
    }
    let cases: [(&str, &[&str]); 4] = [
        ("schema [23]", &["UPDATE schema_version SET version = 23"]),
        ("other columns in messages", &["ALTER TABLE messages ADD COLUMN more"]),
        ("there is no session s", &["DELETE FROM sessions"]),
        ("the prompt is not in it", &["DELETE FROM messages WHERE id > 4"]),
    ];
    for (words, statements) in cases {
        let sandbox = hermes();
        let row = row_of(&sandbox, "prompt number 3");
        sql(&sandbox, statements);
        declined(&sandbox, ".hermes/state.db", &row, words, words);
    }
    let sandbox = hermes();
    let (row, path) = (row_of(&sandbox, "prompt number 3"), sandbox.home().join(".hermes/state.db"));
    let bytes = fs::read(&path).expect("a database");
    fs::write(&path, &bytes[bytes.len() / 3..]).expect("a file");
    declined(&sandbox, ".hermes/state.db", &row, "its database cannot be read", "cut short");
}

#[test]
fn a_compaction_of_hermes_does_not_hide_what_was_said_before_it() {
    if !has_program("python3") {
        return;
    }
    let sandbox = hermes();
    // As Hermes does it: the messages stay, and copies of some of them follow with a summary, all within a moment.
    // The last prompt before it was long ago.
    sql(
        &sandbox,
        &[
            "UPDATE messages SET active = 0, compacted = 1",
            "UPDATE messages SET timestamp = timestamp - 100 WHERE id > 6",
        ],
    );
    let texts =
        [("user", "prompt number 1"), ("assistant", "[CONTEXT COMPACTION] a summary"), ("user", "prompt number 2")];
    for (at, (role, text)) in texts.into_iter().enumerate() {
        store(
            &sandbox,
            role,
            text,
            &format!("(SELECT max(timestamp) FROM messages WHERE id <= 8) + 0.25 + {at} * 0.000001"),
        );
    }
    ask_hermes(&sandbox, 5, 3);
    ask_hermes(&sandbox, 6, 4);
    let before = sql(&sandbox, &[]);
    let report = rewind_hermes(&sandbox, 6).done().json();
    let want = ["user|prompt number 1|1|0", "assistant|[CONTEXT COMPACTION] a summary|1|0", "user|prompt number 2|1|0"];
    let last = ["user|prompt number 5|1|0", "assistant|answer number 5|1|0"];
    assert_eq!(forked_messages(&sandbox, &report), [&want[..], &last].concat());
    assert!(sql(&sandbox, &[]).starts_with(&before), "rows were changed");
    let report = rewind_hermes(&sandbox, 2).done().json();
    assert_eq!(forked_messages(&sandbox, &report), ["user|prompt number 1|1|0", "assistant|answer number 1|1|0"]);
    assert!(sql(&sandbox, &[]).starts_with(&before), "rows were changed");
}

#[test]
fn prompts_that_hermes_gives_itself_are_no_turns() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    for (turn, text) in [("t1", "add a line"), ("t2", "Review the conversation above and update the skill library. Be")]
    {
        let extra = json!({"turn_id": turn, "user_message": text, "conversation_history": []});
        for event in ["pre_llm_call", "post_llm_call"] {
            let event = json!({"hook_event_name": event, "session_id": "s", "cwd": sandbox.project(), "extra": extra});
            let ran = send(&mut hook_command(&sandbox, &["hermes"]), event.to_string());
            assert_eq!(ran.code(), 0, "{ran:?}");
        }
        sandbox.write("file", turn);
    }
    let turns = piton(&sandbox, ["turns", "--json"]).done().json();
    let prompts: Vec<_> = turns.as_array().expect("a list").iter().map(|turn| turn["prompt"].clone()).collect();
    assert_eq!(prompts, ["add a line"], "{turns}");
}
