//! An interrupted restore: killed at any system call, stopped by any that fails, and by a full disk.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Sandbox, clean_command, has_program};

use crate::fault_store::answer;
use crate::faults::Mounted;
use crate::kit::{PITON, Ran};
use crate::restore_kit::{State, assert_same, difference, exits, in_sandbox, json, leftovers, piton, state_of, text};
use crate::sweep::{After, Scene, fail, kill};

fn skips(why: &str) {
    assert!(std::env::var_os("PITON_TEST_ALL").is_none(), "PITON_TEST_ALL is set, and {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Prepares everything that a restore may have to do. Returns the checkpoint to restore, and its state.
pub(crate) fn prepare(sandbox: &Sandbox) -> (String, State) {
    sandbox
        .tree("changed = 1\n gone = 1\n deep/er/gone = 1\n deep/er/changed = 1\n link -> one\n dir-to-file/in/x = 1");
    sandbox.tree(
        "file-to-dir = 1\n mode = 1\n empty/in/\n *run = 1\n .gitignore = *.ig\\n\n kept.ig = 1\n link-to-file -> x",
    );
    sandbox.tree("dir-mode/x = 1\n to-link = 1");
    for (path, mode) in [("mode", 0o600), ("dir-mode", 0o700), ("deep/er/gone", 0o444), ("empty", 0o750)] {
        sandbox.chmod(path, mode);
    }
    sandbox.write("large", vec![b'x'; 300_000]);
    let (id, before) =
        (json(sandbox, &["take"], 0)["id"].as_str().expect("an id").to_owned(), state_of(&sandbox.project()));
    for path in ["gone", "deep/er/gone", "link", "file-to-dir", "link-to-file", "to-link"] {
        fs::remove_file(sandbox.path(path)).expect("a file");
    }
    for path in ["dir-to-file", "empty"] {
        fs::remove_dir_all(sandbox.path(path)).expect("a directory");
    }
    sandbox.tree("changed = 2\n deep/er/changed = 2\n link -> two\n dir-to-file = 2\n file-to-dir/a/b = 2\n made = 2");
    sandbox
        .tree("made-dir/sub/one = 2\n made-dir/two = 2\n made-empty/\n kept.ig = 2\n link-to-file = 2\n to-link -> y");
    sandbox.write("large", vec![b'y'; 300_000]);
    for (path, mode) in [("mode", 0o644), ("run", 0o644), ("dir-mode", 0o755), ("made-dir", 0o700)] {
        sandbox.chmod(path, mode);
    }
    // Ignored files stay as they are.
    let mut target = before;
    target.insert(b"kept.ig".to_vec(), state_of(&sandbox.project())[&b"kept.ig"[..]].clone());
    (id, target)
}

/// Copies of the project and the base, to be put back under the same paths: the id of a project is derived from its
/// path.
pub(crate) struct Aside(Vec<(PathBuf, PathBuf)>);

impl Aside {
    pub(crate) fn copy(sandbox: &Sandbox, name: &str) -> Self {
        let pairs = [sandbox.project(), sandbox.home()].map(|dir| (dir.clone(), dir.with_extension(name)));
        for (dir, aside) in &pairs {
            let _ = fs::remove_dir_all(aside);
            copy(dir, aside);
        }
        Self(pairs.into())
    }

    pub(crate) fn put_back(&self) {
        for (dir, aside) in &self.0 {
            fs::remove_dir_all(dir).expect("the old one");
            copy(aside, dir);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(clean_command("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
}

/// A restore of everything at once.
struct Restore {
    sandbox: Sandbox,
    args: Vec<String>,
    before: State,
    target: State,
    /// Number of runs that left the tree partly restored.
    partly: &'static AtomicUsize,
}

impl Restore {
    fn new(partly: &'static AtomicUsize) -> Self {
        let sandbox = Sandbox::new();
        let (id, target) = prepare(&sandbox);
        let before = state_of(&sandbox.project());
        Self { sandbox, args: vec!["--json".into(), "restore".into(), id], before, target, partly }
    }

    fn is_cut_short(&self) -> bool {
        text(&exits(&self.sandbox, &["rollback"], 0).stderr).contains("was cut short")
    }

    /// Checks that undo brings everything back after a partial restore. Files that could not be read for the safety
    /// checkpoint were not changed either, and undo leaves them as they are.
    fn check_undo(&self, when: &str) {
        let output = piton(&self.sandbox, &["undo"]);
        assert!([Some(0), Some(3)].contains(&output.status.code()), "undo after {when}: {}", text(&output.stderr));
        assert_same(
            &state_of(&self.sandbox.project()),
            &self.before,
            &format!("undo {} after {when}", text(&output.stdout)),
        );
    }

    /// Checks that the restore can be completed, and that it can be aborted.
    fn check_both_ways(&self, found: &State, when: &str) {
        let sandbox = &self.sandbox;
        exits(sandbox, &["restore", "1"], 2);
        exits(sandbox, &["undo"], 2);
        assert_same(&state_of(&sandbox.project()), found, &format!("refused after {when}"));
        let aside = Aside::copy(sandbox, "killed");
        for (flag, want) in [("--continue", &self.target), ("--abort", &self.before)] {
            if flag == "--abort" {
                aside.put_back();
            }
            let output = piton(sandbox, &["restore", flag]);
            let words = format!("{flag} after {when}: {}{}", text(&output.stdout), text(&output.stderr));
            assert_same(&state_of(&sandbox.project()), want, &words);
            assert_eq!(output.status.code(), Some(0), "{words}");
            assert!(!self.is_cut_short(), "{words}");
            if flag == "--continue" {
                exits(sandbox, &["undo"], 0);
                assert_same(&state_of(&sandbox.project()), &self.before, &format!("undo after {words}"));
            }
        }
    }
}

impl Scene for Restore {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        assert_same(&state_of(&self.sandbox.project()), &self.target, "without a fault");
    }

    fn check(&self, after: &After<'_>) {
        let (sandbox, when) = (&self.sandbox, format!("{after:?}"));
        let found = state_of(&sandbox.project());
        let is_whole = found == self.before || found == self.target;
        self.partly.fetch_add(usize::from(!is_whole), Ordering::Relaxed);
        let report = answer(after);
        sandbox.assert_store_is_whole();
        if self.is_cut_short() {
            assert!(!after.is_done(), "{when}");
            return self.check_both_ways(&found, &when);
        }
        let is_partly = after.ran.status.code() == Some(3);
        assert!(is_partly || leftovers(sandbox).is_empty(), "{when}");
        let report = report.unwrap_or_default();
        if after.is_done() && !report.is_null() {
            assert_same(&found, &self.target, &when);
        } else if is_partly {
            let is_told = report["left"].as_array().is_some_and(|left| !left.is_empty());
            assert!(is_told || after.is_mute(), "{when}");
            self.check_undo(&when);
        } else {
            assert!(is_whole, "nobody says so: {}{when}", difference(&found, &self.target));
        }
        exits(sandbox, &["restore", &self.args[2]], 0);
        assert_same(&state_of(&sandbox.project()), &self.target, &format!("once more after {when}"));
    }
}

/// R4, W3.
#[test]
fn a_kill_anywhere_leaves_a_restore_that_can_be_finished_or_taken_back() {
    static PARTLY: AtomicUsize = AtomicUsize::new(0);
    let swept = kill(|| Restore::new(&PARTLY));
    assert!(swept.felt >= 15 && PARTLY.load(Ordering::Relaxed) >= 5, "{swept:?}, {PARTLY:?} in the middle");
}

#[test]
fn a_failure_anywhere_leaves_a_restore_that_can_be_finished_or_taken_back() {
    static PARTLY: AtomicUsize = AtomicUsize::new(0);
    let swept = fail(|| Restore::new(&PARTLY));
    assert!(swept.felt >= 15 && PARTLY.load(Ordering::Relaxed) >= 5, "{swept:?}, {PARTLY:?} in the middle");
}

/// Continuing or aborting an interrupted restore.
struct Resume {
    restore: Restore,
    flag: &'static str,
}

impl Resume {
    fn new(flag: &'static str) -> Self {
        static PARTLY: AtomicUsize = AtomicUsize::new(0);
        // On some architectures, the store makes a link with the same call before.
        let mut killed = (1..=3).filter_map(|when| {
            let restore = Restore::new(&PARTLY);
            let inject = format!("inject=symlinkat:signal=KILL:when={when}");
            let mut strace = clean_command("strace");
            strace.args(["-f", "-o", "/dev/null", "-e", &inject, PITON]).args(restore.args());
            in_sandbox(&restore.sandbox, &mut strace).output().expect("strace runs");
            let found = state_of(&restore.sandbox.project());
            (found != restore.before && found != restore.target).then_some(restore)
        });
        let mut restore = killed.next().expect("a restore that is killed in the middle");
        restore.args = vec!["--json".into(), "restore".into(), flag.into()];
        Self { restore, flag }
    }
}

impl Scene for Resume {
    fn sandbox(&self) -> &Sandbox {
        self.restore.sandbox()
    }

    fn args(&self) -> Vec<&str> {
        self.restore.args()
    }

    fn changes(&self) -> Vec<PathBuf> {
        self.restore.changes()
    }

    fn check(&self, after: &After<'_>) {
        let (sandbox, before, target) = (self.sandbox(), &self.restore.before, &self.restore.target);
        let report = answer(after);
        if !self.restore.is_cut_short() && after.ran.status.code() == Some(3) {
            assert!(report.is_none_or(|report| !report["left"].as_array().expect("a list").is_empty()), "{after:?}");
            return self.restore.check_undo(&format!("{after:?}"));
        }
        let aside = Aside::copy(sandbox, "killed");
        for (last, want) in [("--continue", target), ("--abort", before)] {
            aside.put_back();
            let output = piton(sandbox, &["restore", last]);
            let words = format!("{last} after {after:?}: {}", text(&output.stderr));
            // If it was killed at the very end, it is complete. Continuing an abort completes the abort.
            let is_over = output.status.code() == Some(4);
            let now = state_of(&sandbox.project());
            let goes_back = self.flag == "--abort" && now == *before;
            let want = if goes_back || (is_over && self.flag == "--abort") { before } else { want };
            assert_same(&now, if is_over && self.flag == "--continue" { target } else { want }, &words);
            assert!(is_over || output.status.success(), "{words}");
        }
    }
}

#[test]
fn going_on_or_back_can_be_killed_like_the_restore_itself() {
    for flag in ["--continue", "--abort"] {
        assert!(!has_program("strace") || kill(|| Resume::new(flag)).felt >= 10, "{flag}");
    }
}

#[test]
fn going_on_or_back_survives_the_failure_of_any_call() {
    for flag in ["--continue", "--abort"] {
        assert!(!has_program("strace") || fail(|| Resume::new(flag)).felt >= 10, "{flag}");
    }
}

#[test]
fn a_disk_that_is_full_in_the_middle_is_partly_done_and_undone() {
    let sandbox = Sandbox::new();
    let at = sandbox.project();
    let Some(_disk) = Mounted::tmpfs(&at, "size=1m") else {
        return skips("nothing can be mounted here");
    };
    sandbox.tree(".gitignore = *.ig\\n\n small = 1");
    for n in 0..8 {
        sandbox.write(format!("dir{}/{n}", n % 2), vec![b'0' + n; 90_000]);
    }
    let id = json(&sandbox, &["take"], 0)["id"].as_str().expect("an id").to_owned();
    let target = state_of(&sandbox.project());
    for n in 0..8 {
        fs::remove_file(sandbox.path(format!("dir{}/{n}", n % 2))).expect("a file");
    }
    sandbox.write("small", "2");
    sandbox.write("dir0/made", "2");
    sandbox.write("filler.ig", vec![b'f'; 700_000]);
    let before = state_of(&sandbox.project());
    let report = json(&sandbox, &["restore", &id], 3);
    let left = report["left"].as_array().expect("a list");
    let written = report["written"].as_u64().expect("a count");
    assert!(written > 0 && !left.is_empty(), "{report}");
    assert_eq!(written + left.len() as u64, 9, "{report}");
    assert!(left.iter().all(|left| left["why"] == "failed"), "{report}");
    let now = state_of(&sandbox.project());
    for left in left {
        assert!(!now.contains_key(left["path"].as_str().expect("a path").as_bytes()), "half a file: {left}");
    }
    assert_eq!(leftovers(&sandbox), [""; 0]);
    exits(&sandbox, &["undo"], 0);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
    fs::remove_file(sandbox.path("filler.ig")).expect("a file");
    exits(&sandbox, &["restore", &id], 0);
    assert_same(&state_of(&sandbox.project()), &target, "with space again");
}
