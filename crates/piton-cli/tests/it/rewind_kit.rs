//! Conversations as agents write them, for the tests of `piton rewind`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{event, hook};
use crate::kit::{Ran, command, run};

pub(crate) const SESSION: &str = "0b5a9c1e-1111-4222-8333-444455556666";

/// A session of Claude with a transcript: each prompt is reported to the hook, answered, and changes a file.
pub(crate) struct Claude<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) transcript: PathBuf,
    /// Id of the last record.
    pub(crate) leaf: Option<String>,
    version: &'static str,
}

impl<'a> Claude<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox) -> Self {
        Self::of_version(sandbox, "2.1.325")
    }

    pub(crate) fn of_version(sandbox: &'a Sandbox, version: &'static str) -> Self {
        let dir = sandbox.home().join(".claude/projects/-work");
        fs::create_dir_all(&dir).expect("a directory");
        Self { sandbox, transcript: dir.join(format!("{SESSION}.jsonl")), leaf: None, version }
    }

    /// Appends a record that follows the last one.
    pub(crate) fn record(&mut self, id: &str, kind: &str, more: &Value) {
        let parent = self.leaf.replace(id.to_owned());
        let mut record = json!({
            "parentUuid": parent, "isSidechain": false, "type": kind, "uuid": id, "sessionId": SESSION, "version": self.version,
            "cwd": self.sandbox.project(), "cost": 0.5,
        });
        record.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        // A parser would not give this number back as it is.
        self.line(&record.to_string().replace("\"cost\":0.5", "\"cost\":0.50"));
    }

    pub(crate) fn line(&self, line: &str) {
        let mut text = fs::read_to_string(&self.transcript).unwrap_or_default();
        text += line;
        text += "\n";
        fs::write(&self.transcript, text).expect("a file");
        fs::set_permissions(&self.transcript, fs::Permissions::from_mode(0o600)).expect("a mode");
    }

    /// Reports a prompt to the hook and writes its record. The files are left as they are.
    pub(crate) fn ask(&mut self, turn: &str, text: &str) {
        let more = json!({"prompt": text, "transcript_path": self.transcript});
        hook(self.sandbox, &["claude"], event(self.sandbox, SESSION, turn, "UserPromptSubmit", &more));
        let queued = json!({"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": text});
        self.line(&queued.to_string());
        self.record(
            &format!("user-{turn}"),
            "user",
            &json!({"promptId": turn, "message": {"role": "user", "content": text}}),
        );
    }

    pub(crate) fn answer(&mut self, turn: &str, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        self.record(
            &format!("agent-{turn}"),
            "assistant",
            &json!({"message": {"role": "assistant", "content": content}}),
        );
        let last = json!({"type": "last-prompt", "lastPrompt": turn, "leafUuid": self.leaf, "sessionId": SESSION});
        self.line(&last.to_string());
    }

    /// One turn: a prompt, a change of the file `file`, and an answer.
    pub(crate) fn turn(&mut self, number: usize) {
        let turn = format!("p{number}");
        self.ask(&turn, &format!("prompt number {number}"));
        self.sandbox.write("file", format!("after {number}"));
        self.answer(&turn, &format!("answer number {number}"));
        let stop = event(self.sandbox, SESSION, &turn, "Stop", &json!({"transcript_path": self.transcript}));
        hook(self.sandbox, &["claude"], stop);
    }
}

/// Returns the contents of a fork in the directory of the session.
pub(crate) fn fork_of(transcript: &Path, session: &str) -> String {
    fs::read_to_string(transcript.with_file_name(format!("{session}.jsonl"))).expect("a fork")
}

/// Returns the files beside the transcript.
pub(crate) fn files_beside(transcript: &Path) -> Vec<String> {
    let names = fs::read_dir(transcript.parent().expect("a directory")).expect("a directory");
    let mut names: Vec<_> =
        names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Runs piton with programs of the sandbox on its search path.
pub(crate) fn with_programs(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(sandbox.root().join("bin")).chain(std::env::split_paths(&path));
    run(command(sandbox).args(args).env("PATH", std::env::join_paths(dirs).expect("a path")))
}
