//! Machines for the tests: a home, a base and a project each, and the program with its environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use piton::{
    CheckpointId, Moment, Outcome, Progress, Project, Request, Restore, RestoreOptions, RestoreTo, Settings, Store,
};
use serde_json::Value;
use testkit::Sandbox;
use testkit::s3::S3Server;

/// Bucket and prefix of the tests on a server.
pub(crate) const BUCKET: &str = "bucket";

/// Credentials of Google with which no token is asked for.
const GOOGLE_KEY: &str = r#"{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#;

/// Where a test keeps its bucket.
pub(crate) enum Place {
    Directory(tempfile::TempDir),
    Server(S3Server),
    /// The same server as `gs://`: the interface of Google Cloud Storage that the library uses is that of S3.
    Google(S3Server),
    /// A server that the environment names.
    Named {
        url: String,
        endpoint: Option<String>,
    },
}

impl Place {
    pub(crate) fn directory() -> Self {
        Self::Directory(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn server() -> Self {
        Self::Server(S3Server::start(1))
    }

    pub(crate) fn google() -> Self {
        Self::Google(S3Server::start(1))
    }

    /// Returns the server that the environment names, with a new prefix.
    pub(crate) fn named() -> Option<Self> {
        let url = std::env::var("PITON_REMOTE_URL").ok()?;
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos();
        Some(Self::Named { url: format!("{url}/{unique}"), endpoint: std::env::var("PITON_REMOTE_ENDPOINT").ok() })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Named { url, .. } => url.clone(),
            Self::Directory(dir) => format!("file://{}/bucket", dir.path().display()),
            Self::Server(_) => format!("s3://{BUCKET}/a/prefix"),
            Self::Google(_) => format!("gs://{BUCKET}/a/prefix"),
        }
    }

    pub(crate) fn endpoint(&self) -> Option<String> {
        match self {
            Self::Directory(_) => None,
            Self::Server(server) | Self::Google(server) => Some(server.endpoint()),
            Self::Named { endpoint, .. } => endpoint.clone(),
        }
    }

    /// Returns the names of all objects, without the prefix. Not of a named server.
    pub(crate) fn keys(&self) -> Vec<String> {
        match self {
            Self::Directory(dir) => {
                let root = dir.path().join("bucket");
                let mut found = Vec::new();
                walk(&root, &root, &mut found);
                found.sort();
                found
            }
            Self::Named { .. } => unreachable!("a named server is used through the program only"),
            Self::Server(server) | Self::Google(server) => {
                server.keys().iter().filter_map(|key| key.strip_prefix("a/prefix/")).map(str::to_owned).collect()
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Vec<u8> {
        match self {
            Self::Directory(dir) => fs::read(dir.path().join("bucket").join(key)).expect("an object"),
            Self::Server(server) | Self::Google(server) => {
                server.get(BUCKET, &format!("a/prefix/{key}")).expect("an object")
            }
            Self::Named { .. } => unreachable!("a named server is used through the program only"),
        }
    }

    pub(crate) fn put(&self, key: &str, bytes: Option<Vec<u8>>) {
        match (self, bytes) {
            (Self::Directory(dir), Some(bytes)) => {
                fs::write(dir.path().join("bucket").join(key), bytes).expect("an object");
            }
            (Self::Directory(dir), None) => fs::remove_file(dir.path().join("bucket").join(key)).expect("an object"),
            (Self::Server(server) | Self::Google(server), bytes) => {
                server.put(BUCKET, &format!("a/prefix/{key}"), bytes);
            }
            (Self::Named { .. }, _) => unreachable!("a named server is used through the program only"),
        }
    }

    /// Returns the names below a prefix.
    pub(crate) fn below(&self, prefix: &str) -> Vec<String> {
        self.keys().into_iter().filter(|key| key.starts_with(prefix)).collect()
    }

    /// Returns the size of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.keys().iter().map(|key| self.get(key).len() as u64).sum()
    }
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            walk(root, &entry.path(), found);
        } else {
            found.push(entry.path().strip_prefix(root).expect("below").to_str().expect("a name").to_owned());
        }
    }
}

/// A machine.
pub(crate) struct Machine {
    pub(crate) sandbox: Sandbox,
    pub(crate) name: String,
    endpoint: Option<String>,
    /// Directory of the project, if it is not that of the sandbox.
    pub(crate) directory: Option<PathBuf>,
    time: std::cell::Cell<i64>,
}

impl Machine {
    /// Returns a machine without a remote.
    pub(crate) fn new(name: &str, place: &Place) -> Self {
        let time = std::cell::Cell::new(1_790_000_000);
        Self { sandbox: Sandbox::new(), name: name.to_owned(), endpoint: place.endpoint(), directory: None, time }
    }

    /// Returns a machine that has made a repository, and the phrase.
    pub(crate) fn first(name: &str, place: &Place) -> (Self, String) {
        let machine = Self::new(name, place);
        let added = machine.add(place, &[]);
        let phrase = added["phrase"].as_str().expect("a phrase").to_owned();
        (machine, phrase)
    }

    /// Returns a machine that has joined with the phrase.
    pub(crate) fn joining(name: &str, place: &Place, phrase: &str) -> Self {
        let machine = Self::new(name, place);
        machine.join(place, phrase);
        machine
    }

    pub(crate) fn join(&self, place: &Place, phrase: &str) {
        let file = self.sandbox.root().join("phrase");
        fs::write(&file, phrase).expect("a file");
        self.add(place, &["--phrase-file", file.to_str().expect("a path")]);
    }

    fn add(&self, place: &Place, more: &[&str]) -> Value {
        let (url, endpoint) = (place.url(), place.endpoint());
        let mut args = vec!["add", &url];
        // That of S3 is in the environment.
        if let Some(endpoint) = endpoint.as_deref().filter(|_| !url.starts_with("s3:")) {
            args.extend(["--endpoint", endpoint]);
        }
        args.extend(more);
        self.run(&args)
    }

    /// Returns a copy of the machine with the same name, store and project directory, as copying a disk image makes one.
    pub(crate) fn copy(&self, place: &Place) -> Self {
        let mut copy = Self::new(&self.name, place);
        self.copy_base_to(&copy);
        copy.directory = Some(self.project());
        copy.time.set(self.time.get());
        copy
    }

    /// Copies the store and everything beside it.
    pub(crate) fn copy_base_to(&self, other: &Self) {
        fs::create_dir_all(other.base().parent().expect("a directory")).expect("a directory");
        let copied = Command::new("cp").arg("-a").arg(self.base()).arg(other.base()).status().expect("cp");
        assert!(copied.success());
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.sandbox.base()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| self.sandbox.project())
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_piton-remote"));
        command.arg("--base").arg(self.base()).args(args).current_dir("/").env_clear();
        command.env("HOME", self.sandbox.home()).env("PITON_MACHINE", &self.name);
        let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        let is_named = std::env::var_os("PITON_REMOTE_URL").is_some();
        let key = if is_named { variable("AWS_ACCESS_KEY_ID", "") } else { self.name.clone() };
        command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", variable("AWS_SECRET_ACCESS_KEY", "secret"));
        command.env("AWS_REGION", variable("AWS_REGION", "us-east-1"));
        command.env("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY);
        command.envs(std::env::vars().filter(|(name, _)| name.starts_with("AZURE_")));
        if let Some(endpoint) = &self.endpoint {
            command.env("AWS_ENDPOINT_URL", endpoint);
        }
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program")
    }

    /// Runs the program, and returns its answer. Fails the test if it fails.
    pub(crate) fn run(&self, args: &[&str]) -> Value {
        let output = self.output(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs the program, and returns the kind of its error.
    pub(crate) fn fails(&self, args: &[&str]) -> (String, String) {
        let output = self.output(args);
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(!output.status.success(), "{args:?}: {answer}");
        let text = |key: &str| answer["error"][key].as_str().expect("text").to_owned();
        (text("kind"), text("message"))
    }

    /// Changes what this machine knows about its remote.
    pub(crate) fn edit_state(&self, edit: impl FnOnce(&mut Value)) {
        let path = self.base().join("local/remote/state.json");
        let mut state = serde_json::from_slice(&fs::read(&path).expect("a state")).expect("JSON");
        edit(&mut state);
        fs::write(&path, state.to_string()).expect("a state");
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program")
    }

    pub(crate) fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().expect("a directory"))
            .and_then(|()| fs::write(path, contents))
            .expect("a file");
    }

    pub(crate) fn store(&self) -> Store {
        Store::open_or_create(&self.base(), self.now()).expect("a store")
    }

    fn now(&self) -> Moment {
        self.time.set(self.time.get() + 1);
        Moment { secs: self.time.get(), nanos: 0, offset_secs: 0 }
    }

    /// Takes a checkpoint.
    pub(crate) fn take(&self, reason: &str) -> CheckpointId {
        let (store, project) = (self.store(), Project::at(&self.project(), None).expect("a project"));
        let request = Request::default().reason(reason);
        let settings = Settings::default().enabled(true);
        let report =
            piton::take(&store, &project, &request, &settings, self.now(), &Progress::default()).expect("a take");
        match report.outcome {
            Outcome::Taken(id) | Outcome::Unchanged(id) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Marks a checkpoint.
    pub(crate) fn mark(&self, name: &str, mark: &str) {
        let (store, project) = (self.store(), Project::at(&self.project(), None).expect("a project"));
        piton::mark(&store, &project, name, mark, false, self.now()).expect("a mark");
    }

    /// Restores a checkpoint, or some paths of it.
    pub(crate) fn restore(&self, id: &str, paths: &[Vec<u8>]) {
        let (store, project) = (self.store(), Project::at(&self.project(), None).expect("a project"));
        let options = RestoreOptions::default().paths(paths);
        let (settings, progress) = (Settings::default(), Progress::default());
        let to = RestoreTo::Named(id);
        let restore =
            Restore::prepare(&store, &project, to, options, &settings, self.now(), &progress).expect("a plan");
        restore.apply().expect("a restore");
    }

    /// Fetches a checkpoint of another machine, and returns its id here.
    pub(crate) fn fetch(&self, machine: &str, checkpoint: &str, more: &[&str]) -> String {
        let project = self.project();
        let mut args = vec!["fetch", "--machine", machine, "--checkpoint", checkpoint, "--directory"];
        args.push(project.to_str().expect("a path"));
        args.extend(more);
        self.run(&args)["id"].as_str().expect("an id").to_owned()
    }

    /// Makes the project a clone of a repository with this URL.
    pub(crate) fn clone_of(&self, url: &str) {
        for args in [&["init", "-q"][..], &["remote", "add", "origin", url]] {
            assert!(testkit::git().current_dir(self.project()).args(args).status().expect("git").success());
        }
    }
}

/// Returns every file, link and directory of a tree with its mode and contents, without `.git`.
pub(crate) fn state(dir: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).expect("a directory").flatten() {
            let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
            if entry.file_name() == ".git" {
                continue;
            }
            let name = path.strip_prefix(dir).expect("below").to_owned();
            let mode = || entry.metadata().expect("metadata").permissions().mode() & 0o7777;
            if kind.is_symlink() {
                found.push((name, 0, fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()));
            } else if kind.is_dir() {
                found.push((name, mode(), Vec::new()));
                open.push(path);
            } else {
                found.push((name, mode(), fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}
