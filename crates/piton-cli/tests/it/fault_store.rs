//! A command on the store that is killed, or fails, at any system call: it reports the failure, no acknowledged
//! checkpoint is lost, the store is intact, and the next run works. One scene per command; [`crate::sweep`] is the
//! engine.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;
use testkit::{Held, Sandbox, clean_command, files_in, git, walk};

use crate::kit::{Ran, assert_no_half_pack, assert_store_is_complete, command, ids, piton, run, take_works};
use crate::sweep::{After, Scene, fail, kill};

pub(crate) type Files = BTreeMap<Vec<u8>, Held>;

/// Returns the output of the command: its report, or its error in the usual form. Returns `None` if it was killed or
/// could not print.
pub(crate) fn answer(after: &After<'_>) -> Option<Value> {
    if after.ran.was_killed() || after.is_mute() {
        return None;
    }
    let report = after.ran.json();
    // The report was printed but the text for people was not; or the report describes damage.
    let is_cut_off = after.point.call == "write" && report["error"].is_null() || report["whole"] == false;
    if !after.is_done() && after.ran.code() != 3 && !is_cut_off {
        let message = report["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {after:?}"));
        assert!(message.starts_with("cannot "), "{after:?}");
    }
    Some(report)
}

/// Asserts that each file is in the checkpoint unchanged, or is reported as left out.
pub(crate) fn assert_held_or_reported(held: &Files, now: &Files, report: &Value, when: &str) {
    for (path, what) in now {
        let is_reported = |one: &Value| {
            let skipped = one["path"].as_str().unwrap_or_default().as_bytes();
            path == skipped
                || skipped.ends_with(b"/") && path.starts_with(skipped)
                || skipped.is_empty()
                || skipped == b"."
        };
        let is_reported = report["skipped"].as_array().is_some_and(|all| all.iter().any(is_reported));
        assert!(held.get(path) == Some(what) || is_reported, "{} is missing: {when}", String::from_utf8_lossy(path));
    }
}

/// Asserts that every project with checkpoints has a record with its directory: otherwise they could not be attributed.
fn assert_projects_are_known(sandbox: &Sandbox, after: &After<'_>) {
    let names = fs::read_dir(sandbox.store().join("refs/hermes")).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| !name.contains('.'));
    for project in names {
        let record = fs::read_to_string(sandbox.store().join(format!("projects/{project}.json")));
        assert!(record.is_ok_and(|text| text.contains("\"workdir\"")), "the record of {project} is lost: {after:?}");
    }
}

/// `piton take`, the first or a later one.
struct Take {
    sandbox: Sandbox,
    old: Option<(String, Files)>,
}

impl Take {
    const FILES: &str =
        "a.txt = one\\n\n .gitignore = *.tmp\\n\n src/main.rs = fn main() {}\\n\n src/lib.rs\n *run.sh\n link -> a.txt";

    fn first() -> Self {
        let sandbox = Sandbox::new();
        sandbox.tree(Self::FILES);
        Self { sandbox, old: None }
    }

    fn later() -> Self {
        let Self { sandbox, .. } = Self::first();
        let id = take_works(&sandbox);
        let old = Some((id.clone(), sandbox.held_by(&id)));
        sandbox.tree("a.txt = two\\n\n src/new.rs\n more/b.txt");
        fs::remove_file(sandbox.path("src/lib.rs")).expect("a file");
        Self { sandbox, old }
    }

    /// Creates a scene with an older layout: repositories directly in the base.
    fn migrating() -> Self {
        let scene = Self::first();
        old_layout(&scene.sandbox.base());
        scene
    }
}

impl Scene for Take {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["take", "--json"]
    }

    fn check(&self, after: &After<'_>) {
        let sandbox = &self.sandbox;
        assert_no_half_pack(sandbox);
        if let Some((old, held)) = &self.old {
            sandbox.assert_store_is_whole();
            assert!(ids(sandbox).contains(old), "the old checkpoint is gone: {after:?}");
            assert!(sandbox.held_by(old) == *held, "the old checkpoint is another one: {after:?}");
        }
        let now = files_in(&sandbox.project());
        let report = answer(after).filter(|_| after.is_done());
        if let Some(report) = &report {
            assert!(after.is_kill() || after.point.call != "fsync", "what is not on the disk is not taken: {after:?}");
            assert_eq!(report["outcome"], "taken", "{after:?}");
            let id = report["id"].as_str().expect("an id");
            assert_held_or_reported(&sandbox.held_by(id), &now, report, &format!("{after:?}"));
        }
        if after.is_kill() {
            assert_projects_are_known(sandbox, after);
        }
        let next = piton(sandbox, ["take", "--json"]);
        assert_eq!(next.code(), 0, "{next:?} after {after:?}");
        let next = next.json();
        let id = next["id"].as_str().unwrap_or_else(|| panic!("not taken: {next}"));
        assert!(sandbox.held_by(id) == now, "{next} after {after:?}");
        // Shorter than any lock timeout: a dead process blocks nothing.
        assert!(next["elapsed_ms"].as_u64().is_some_and(|ms| ms < 20_000), "{next} after {after:?}");
        sandbox.assert_store_is_whole();
        assert_store_is_complete(sandbox);
        let history = ids(sandbox);
        assert_eq!(history[0], id, "it is the newest: {after:?}");
        assert_eq!(history.last(), self.old.as_ref().map(|(old, _)| old).or(history.last()), "one chain: {after:?}");
        if let Some(report) = report {
            assert!(history.iter().any(|id| report["id"] == **id), "an acknowledged one is gone: {after:?}");
        }
    }
}

#[test]
fn a_first_take_may_be_killed_anywhere() {
    assert!(kill(Take::first).felt >= 10);
}

/// S1, T1.
#[test]
fn a_later_take_may_be_killed_anywhere() {
    assert!(kill(Take::later).felt >= 7);
}

#[test]
fn a_first_take_survives_the_failure_of_any_call() {
    assert!(fail(Take::first).felt >= 12);
}

#[test]
fn a_later_take_survives_the_failure_of_any_call() {
    assert!(fail(Take::later).felt >= 12);
}

/// An archive that already exists.
const EARLIER: &str = "legacy-20200101-000000";

/// Creates a base in the older layout: a repository for each directory, session records beside them, and an archive.
fn old_layout(base: &Path) {
    for name in ["0123456789abcdef", "1123456789abcdef", "2123456789abcdef"] {
        let made = git().args(["init", "-q", "--bare"]).arg(base.join(name)).status().expect("git runs");
        assert!(made.success());
        fs::write(base.join(name).join("HERMES_WORKDIR"), "/somewhere\n").expect("a file");
    }
    fs::create_dir_all(base.join("stray/dir")).expect("a directory");
    // An earlier archive may contain the same name.
    fs::create_dir_all(base.join(EARLIER).join("0123456789abcdef")).expect("a directory");
    fs::write(base.join(EARLIER).join("0123456789abcdef/HEAD"), "older").expect("a file");
    for (name, text) in [("s-1.yaml", "task: a\n"), ("s-2.yaml", "task: b\n"), (".last_prune", &now_secs())] {
        fs::write(base.join(name), text).expect("a file");
    }
    assert!(clean_command("chmod").arg("-R").arg("go=").arg(base).status().expect("chmod runs").success());
}

/// Returns the current time, as the mark of the last prune, so that no prune is started beside the command.
fn now_secs() -> String {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs().to_string()
}

/// A take that finds an older layout and archives it.
struct Migrate {
    take: Take,
    /// Every file in the base, with its bytes.
    before: BTreeMap<PathBuf, Vec<u8>>,
}

/// Returns every file below a directory with its bytes, from one moment at which no temporary file came or went.
fn everything(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let attempt = || {
        let (mut all, mut has_moved) = (BTreeMap::new(), false);
        walk(dir, &mut |path| {
            let relative = path.strip_prefix(dir).expect("below it").to_owned();
            match if path.is_dir() { Ok(Vec::new()) } else { fs::read(path) } {
                Err(error) if error.kind() == ErrorKind::NotFound => has_moved = true,
                bytes => _ = all.insert(relative, bytes.unwrap_or_else(|error| panic!("{}: {error}", path.display()))),
            }
        });
        (!has_moved).then_some(all)
    };
    (0..1_000).find_map(|_| attempt()).expect("a moment without changes")
}

impl Migrate {
    fn new() -> Self {
        let take = Take::migrating();
        let before = everything(&take.sandbox.base());
        Self { take, before }
    }

    /// Returns the archives that hold parts of the older layout. Panics if a part is lost or changed.
    fn archives(&self, after: &After<'_>) -> Vec<String> {
        let now = everything(&self.take.sandbox.base());
        let mut archives = Vec::new();
        for (path, bytes) in self.before.iter().filter(|(path, _)| *path != Path::new(".last_prune")) {
            let first = path.components().next().expect("a name").as_os_str().to_str().expect("UTF-8");
            let is_ours = first.starts_with("legacy-") || first.ends_with(".yaml");
            if now.get(path) == Some(bytes) {
                archives.extend((!is_ours).then_some(String::new()));
                continue;
            }
            let moved = now.iter().find_map(|(place, found)| {
                let (archive, rest) = place.to_str()?.split_once('/')?;
                let is_it =
                    archive.starts_with("legacy-2") && archive != EARLIER && Path::new(rest) == path && found == bytes;
                (is_it && !is_ours).then(|| archive.to_owned())
            });
            archives.push(moved.unwrap_or_else(|| panic!("{} is lost: {after:?}", path.display())));
        }
        archives.sort();
        archives.dedup();
        archives
    }
}

impl Scene for Migrate {
    fn sandbox(&self) -> &Sandbox {
        &self.take.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.take.args()
    }

    fn check(&self, after: &After<'_>) {
        self.archives(after);
        self.take.check(after);
        let archives = self.archives(after);
        assert!(matches!(&archives[..], [one] if one != EARLIER), "{archives:?}: {after:?}");
    }
}

#[test]
fn moving_an_older_layout_aside_may_be_killed_anywhere() {
    assert!(kill(Migrate::new).felt >= 10);
}

#[test]
fn moving_an_older_layout_aside_survives_the_failure_of_any_call() {
    assert!(fail(Migrate::new).felt >= 12);
}

/// A command that changes the session record `login`, beside an unrelated record.
struct SessionRecord {
    sandbox: Sandbox,
    verb: &'static str,
    /// Content of the record before (`old`) and after (`new`) the command.
    old: Value,
    new: Value,
}

impl SessionRecord {
    fn new(verb: &'static str) -> Self {
        let sandbox = Sandbox::new();
        let base = sandbox.base();
        fs::create_dir_all(&base).expect("a base");
        fs::write(base.join("login.yaml"), "task: old\nprogress:\n- step: one\nmine: kept\n").expect("a record");
        fs::write(base.join("other.yaml"), "task: other # kept\n").expect("a record");
        fs::write(base.join("over.yaml"), "task: over\nstatus: completed\nupdated: 2020-01-01T00:00:00\n")
            .expect("a record");
        let old = Self::record(&sandbox, "login");
        Self { sandbox, verb, old, new: Value::Null }
    }

    /// Returns the record without its time.
    fn record(sandbox: &Sandbox, id: &str) -> Value {
        let ran = piton(sandbox, ["session", "read", "--json", id]);
        if ran.code() == 4 {
            return Value::Null;
        }
        let mut record = ran.done().json()["record"].take();
        record.as_object_mut().expect("a mapping").remove("updated");
        record
    }
}

impl Scene for SessionRecord {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        let id: &[&str] = if self.verb == "gc" { &[] } else { &["login"] };
        [&["session", self.verb, "--json"], id].concat()
    }

    fn input(&self) -> Vec<u8> {
        b"{task: new, progress: [{step: two}]}".to_vec()
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        self.new = Self::record(&self.sandbox, "login");
    }

    fn check(&self, after: &After<'_>) {
        let base = self.sandbox.base();
        let now = Self::record(&self.sandbox, "login");
        let is_done = answer(after).is_some() && after.is_done();
        assert!(now == self.new || now == self.old && !is_done, "{now} after {after:?}");
        let other = fs::read_to_string(base.join("other.yaml")).expect("a record");
        assert_eq!(other, "task: other # kept\n", "{after:?}");
        if self.verb != "update" || now == self.old {
            let given = self.sandbox.root().join("given");
            fs::write(&given, self.input()).expect("a file");
            let mut next = command(&self.sandbox);
            let next = run(next.args(self.args()).stdin(fs::File::open(given).expect("a file")));
            assert_eq!(next.code(), 0, "{next:?} after {after:?}");
        }
        assert_eq!(Self::record(&self.sandbox, "login"), self.new, "{after:?}");
        let is_over = base.join("over.yaml").exists();
        assert_eq!(is_over, self.verb != "gc", "{after:?}");
        let list = piton(&self.sandbox, ["session", "list", "--json"]).done().json();
        let mut wanted = vec!["login", "other", "over"];
        wanted.retain(|id| !(self.verb == "delete" && *id == "login" || self.verb == "gc" && *id == "over"));
        assert_eq!(list["ids"], Value::from(wanted), "{after:?}");
    }
}

/// N1, F1.
#[test]
fn a_session_record_is_the_old_or_the_new_one_whatever_is_killed() {
    for verb in ["write", "update", "delete", "gc"] {
        assert!(kill(|| SessionRecord::new(verb)).felt >= 2, "{verb}");
    }
}

#[test]
fn a_session_record_is_the_old_or_the_new_one_whatever_fails() {
    for verb in ["write", "update", "delete", "gc"] {
        assert!(fail(|| SessionRecord::new(verb)).felt >= 2, "{verb}");
    }
}

/// A read-only command: it prints the correct answer, or fails.
struct Tells {
    sandbox: Sandbox,
    args: &'static [&'static str],
    told: String,
}

impl Tells {
    fn new(args: &'static [&'static str]) -> Self {
        let Take { sandbox, .. } = Take::later();
        take_works(&sandbox);
        sandbox.tree("a.txt = three\n");
        fs::write(sandbox.base().join("login.yaml"), "task: old\n").expect("a record");
        Self { sandbox, args, told: String::new() }
    }
}

impl Scene for Tells {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.to_vec()
    }

    fn undisturbed(&mut self, ran: Ran) {
        self.told = ran.done().stdout;
    }

    fn check(&self, after: &After<'_>) {
        let Some(told) = answer(after).filter(|_| after.is_done()) else { return };
        let has_some = |key: &str| told[key].as_array().is_some_and(|all| !all.is_empty());
        let is_warned = !after.ran.stderr.is_empty() || has_some("problems");
        assert!(after.ran.stdout == self.told || is_warned, "{} and not {after:?}", self.told);
    }
}

#[test]
fn what_cannot_be_read_is_not_kept_quiet() {
    let all: [&[&str]; 7] = [
        &["rollback", "--json"],
        &["show", "2", "--json"],
        &["session", "list", "--json"],
        &["session", "read", "login", "--json"],
        &["diff", "2", "1", "--json"],
        &["diff", "2", "--json"],
        &["verify", "--json", "--read-data"],
    ];
    for args in all {
        assert!(fail(|| Tells::new(args)).felt >= 2, "{args:?}");
    }
}
