//! `kill -9` at any moment: the sweep kills a take before one system call after the other, and looks at what is left.
//!
//! Every call that can change the disk is a point; of those that only read, some are. `PITON_CRASH_POINTS` sets how many
//! points of each call are tried at most.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use testkit::{Sandbox, has_program};

use crate::kit::{
    assert_no_half_pack, assert_store_is_complete, ids, piton, replace_dir, system_calls_of_take, take_under_strace,
    take_works,
};

/// Calls that change what is on the disk, or who holds a lock: all of them are points.
const CHANGING: [&str; 26] = [
    "chmod",
    "copy_file_range",
    "fallocate",
    "fchmod",
    "fchmodat",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sync",
    "symlink",
    "truncate",
    "unlink",
    "unlinkat",
    "utimensat",
    "write",
    "writev",
];

/// How many points of any other call are tried.
const POINTS_MAX: usize = 7;

fn points_max() -> usize {
    let more = std::env::var("PITON_CRASH_POINTS").ok();
    more.map_or(POINTS_MAX, |more| more.parse().expect("PITON_CRASH_POINTS is a number"))
}

/// Which of `count` occurrences are tried: all, or some that lie evenly between the first and the last.
fn points(call: &str, count: usize) -> Vec<usize> {
    let most = if CHANGING.contains(&call) { usize::MAX } else { points_max() };
    if count <= most { (1..=count).collect() } else { (0..most).map(|at| 1 + at * (count - 1) / (most - 1)).collect() }
}

/// Kills a take at each point, from the same state of the home directory each time.
struct Sweep<'a> {
    sandbox: &'a Sandbox,
    /// The newest checkpoint before the take, with its tree.
    old: Option<(String, Vec<u8>)>,
}

impl Sweep<'_> {
    /// How many takes were killed.
    fn run(&self) -> usize {
        let before = self.sandbox.root().join("before");
        let home = self.sandbox.home();
        replace_dir(&home, &before);
        let calls = system_calls_of_take(self.sandbox);
        let mut killed = 0;
        for (call, count) in calls.iter().filter(|(call, _)| call != "execve") {
            for point in points(call, *count) {
                replace_dir(&before, &home);
                let inject = format!("inject={call}:signal=KILL:when={point}");
                let ran = take_under_strace(self.sandbox, ["-o", "/dev/null", "-e", &inject]);
                assert!(ran.was_killed() || ran.code() == 0, "{call} {point}: {ran:?}");
                killed += usize::from(ran.was_killed());
                self.check(&format!("{call} {point}"));
            }
        }
        killed
    }

    /// The store is whole, nothing is lost, and work goes on.
    fn check(&self, point: &str) {
        let sandbox = self.sandbox;
        assert_no_half_pack(sandbox);
        if let Some((old, tree)) = &self.old {
            sandbox.assert_store_is_whole();
            assert!(ids(sandbox).contains(old), "{point}: the old checkpoint is gone");
            assert_eq!(&tree_of(sandbox, old), tree, "{point}: the old checkpoint is another one");
        }
        for project in names_in(&sandbox.store().join("refs/hermes")).filter(|name| !name.contains('.')) {
            let record = fs::read_to_string(sandbox.store().join(format!("projects/{project}.json")));
            assert!(record.is_ok_and(|text| text.contains("\"workdir\"")), "{point}: nobody knows what it is of");
        }
        let report = piton(sandbox, ["take", "--json"]).done().json();
        let id = report["id"].as_str().unwrap_or_else(|| panic!("{point}: not taken: {report}"));
        assert_eq!(sandbox.held_by(id), testkit::files_in(&sandbox.project()), "{point}");
        // Less than any lock is waited for: a process that is dead holds up nobody.
        assert!(report["elapsed_ms"].as_u64().is_some_and(|ms| ms < 20_000), "{point}: {report}");
        sandbox.assert_store_is_whole();
        assert_store_is_complete(sandbox);
        let history = ids(sandbox);
        assert_eq!(history[0], id, "{point}: it is the newest");
        assert_eq!(history.last(), self.old.as_ref().map(|(old, _)| old).or(history.last()), "{point}: one chain");
    }
}

fn names_in(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn tree_of(sandbox: &Sandbox, id: &str) -> Vec<u8> {
    sandbox.store_git(&["rev-parse", &format!("{id}^{{tree}}")])
}

const FILES: &str =
    "a.txt = one\\n\n .gitignore = *.tmp\\n\n src/main.rs = fn main() {}\\n\n src/lib.rs\n *run.sh\n link -> a.txt";

#[test]
fn a_first_take_may_be_killed_before_any_system_call() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree(FILES);
    let killed = Sweep { sandbox: &sandbox, old: None }.run();
    assert!(killed >= 150, "only {killed} points");
}

#[test]
fn a_later_take_may_be_killed_before_any_system_call() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree(FILES);
    let old = take_works(&sandbox);
    let tree = tree_of(&sandbox, &old);
    sandbox.tree("a.txt = two\\n\n src/new.rs\n more/b.txt");
    fs::remove_file(sandbox.path("src/lib.rs")).expect("a file");
    let killed = Sweep { sandbox: &sandbox, old: Some((old, tree)) }.run();
    assert!(killed >= 100, "only {killed} points");
}

#[test]
fn what_killed_processes_left_is_swept_after_an_hour() {
    let sandbox = Sandbox::new();
    sandbox.tree(FILES);
    take_works(&sandbox);
    let old = SystemTime::now() - Duration::from_secs(3700);
    let place = |name: &str, time| {
        for dir in ["", "info", "objects/pack", "indexes", "projects"] {
            let file = File::create(sandbox.store().join(dir).join(name)).expect("a file");
            file.set_modified(time).expect("a time");
        }
    };
    place("tmp_old", old);
    place("tmp_young", SystemTime::now());
    place("not_temporary", old);
    sandbox.tree("a.txt = two");
    take_works(&sandbox);
    let count = |name: &str| {
        let mut count = 0;
        testkit::walk(&sandbox.store(), &mut |path| count += usize::from(path.ends_with(name)));
        count
    };
    assert_eq!((count("tmp_old"), count("tmp_young"), count("not_temporary")), (0, 5, 5));
}
