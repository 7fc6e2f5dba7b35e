//! Engine of all fault tests: a command is run repeatedly from the same state, each time killed before one system call,
//! or with one that fails, and the result is checked.
//!
//! `PITON_FAULT_POINTS` sets the maximum number of occurrences of each call at which each fault is tried: few by
//! default, all with `PITON_FAULT_POINTS=10000`. The selection is the same in each run. With `PITON_FAULT_CHANGING=1`
//! only calls that change something count, a tenth of all. `PITON_FAULT_ONLY=POINT` tries one point, by the name that a
//! failure is reported with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Dice, Sandbox, clean_command, has_program};

use crate::kit::{PITON, Ran, replace_dir, spawn_piped};

/// Every call that may fail, with the errors of a bad or full disk, missing permissions and limits.
const ERRORS: &[(&[&str], &[&str])] = &[
    (&["open", "openat", "openat2"], &["EACCES", "EMFILE", "EIO", "ENOSPC"]),
    (&["stat", "lstat", "statx", "newfstatat", "readlink", "readlinkat"], &["EACCES", "EIO"]),
    (&["fstat", "statfs", "fstatfs", "lseek", "getdents64", "read", "pread64", "flock", "ftruncate"], &["EIO"]),
    (&["mmap", "getcwd", "chdir", "access", "faccessat", "faccessat2", "fchown", "chown"], &["EACCES"]),
    (&["write", "pwrite64", "writev", "fsync", "fdatasync", "syncfs", "fallocate"], &["EIO", "ENOSPC"]),
    (&["rename", "renameat", "renameat2", "link", "linkat", "mkdir", "mkdirat"], &["EACCES", "EIO", "ENOSPC"]),
    (&["symlink", "symlinkat", "copy_file_range"], &["EACCES", "EIO", "ENOSPC"]),
    (&["unlink", "unlinkat", "rmdir", "chmod", "fchmod", "fchmodat", "fchmodat2", "utimensat"], &["EACCES", "EIO"]),
    (&["pipe2", "socketpair", "eventfd2", "epoll_create1"], &["EMFILE"]),
    (&["clone", "clone3"], &["EAGAIN"]),
];

/// Calls that change the disk or the holder of a lock. Between two of these nothing changes.
const CHANGING: &[&str] = &[
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
    "openat",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "symlink",
    "symlinkat",
    "syncfs",
    "unlink",
    "unlinkat",
    "utimensat",
    "write",
    "writev",
];

/// Calls that are not made to fail: they cannot fail, or the process could not run without them.
const HARMLESS: &[&str] = &[
    "brk",
    "close",
    "dup",
    "execve",
    "exit",
    "exit_group",
    "fcntl",
    "futex",
    "geteuid",
    "getpid",
    "getrandom",
    "gettid",
    "getpriority",
    "getuid",
    "ioctl",
    "ioprio_set",
    "kill",
    "madvise",
    "mprotect",
    "mremap",
    "munmap",
    "nanosleep",
    "clock_nanosleep",
    "poll",
    "prctl",
    "prlimit64",
    "recvfrom",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "sendto",
    "set_robust_list",
    "setpriority",
    "setsid",
    "sigaltstack",
    "sysinfo",
    "uname",
    "wait4",
    "waitid",
];

/// Fault injected at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    /// The call fails once.
    Once(&'static str),
    /// The call fails every time from then on.
    Lasting(&'static str),
}

/// One call of a thread, and its fault.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) call: String,
    nth: usize,
    pub(crate) fault: Fault,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, nth, fault } = self;
        match fault {
            Fault::Kill => write!(f, "{call}:signal=KILL:when={nth}"),
            Fault::Once(error) => write!(f, "{call}:error={error}:when={nth}"),
            Fault::Lasting(error) => write!(f, "{call}:error={error}:when={nth}+"),
        }
    }
}

/// Result of a command at a point. Printed completely if a check fails.
#[derive(Debug)]
pub(crate) struct After<'a> {
    pub(crate) point: &'a Point,
    pub(crate) ran: Ran,
}

impl After<'_> {
    /// Returns true if the command reports complete success.
    pub(crate) fn is_done(&self) -> bool {
        self.ran.status.success()
    }

    /// Returns true if the write of the answer itself failed.
    pub(crate) fn is_mute(&self) -> bool {
        let is_unwritten = ["write", "writev"].contains(&self.point.call.as_str()) && self.ran.stdout.is_empty();
        is_unwritten && (self.ran.stderr.is_empty() || self.ran.stderr.starts_with("error: cannot "))
    }

    /// Returns true if the process was to be killed, or aborted.
    pub(crate) fn is_kill(&self) -> bool {
        self.point.fault == Fault::Kill || self.is_abort()
    }

    /// Returns true if the Rust runtime aborted because a thread that was starting got no memory. The number of a mapping is
    /// that in each thread, so the fault of a mapped file may hit such memory.
    fn is_abort(&self) -> bool {
        self.point.call == "mmap" && self.ran.stderr.starts_with("fatal runtime error: failed to initiate panic")
    }
}

/// A command with its initial state, and the conditions that hold after any fault.
pub(crate) trait Scene: Sized {
    fn sandbox(&self) -> &Sandbox;

    /// The arguments of the command.
    fn args(&self) -> Vec<&str>;

    /// Bytes to send to its stdin.
    fn input(&self) -> Vec<u8> {
        Vec::new()
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Directories that the command changes, put back before each run.
    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox().home()]
    }

    /// Called after a run without a fault, with which the others are compared.
    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
    }

    /// Called after a run with a fault.
    fn check(&self, after: &After<'_>);
}

/// Numbers of points tried and of faults that had an effect.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) points: usize,
    /// Number of runs that were killed or did not end with success.
    pub(crate) felt: usize,
}

/// Kills the command before calls that change something; before all calls, if all points are requested.
pub(crate) fn kill<S: Scene>(make: impl Fn() -> S + Sync) -> Swept {
    let is_whole = points_max().is_some() && !is_about_changes();
    sweep(make, 2, &|call| {
        let is_point = CHANGING.contains(&call) || is_whole && call != "execve";
        if is_point { vec![Fault::Kill] } else { Vec::new() }
    })
}

/// Makes every call fail, with every error it can return, once and permanently.
pub(crate) fn fail<S: Scene>(make: impl Fn() -> S + Sync) -> Swept {
    sweep(make, 1, &|call| {
        if is_about_changes() && !CHANGING.contains(&call) {
            return Vec::new();
        }
        let errors = ERRORS.iter().find(|(calls, _)| calls.contains(&call)).map(|(_, errors)| *errors);
        let errors = errors.unwrap_or_else(|| {
            assert!(HARMLESS.contains(&call), "{call} is not classified");
            &[]
        });
        let both = |(at, error): (usize, &&'static str)| {
            let (once, lasting) = (Fault::Once(error), Fault::Lasting(error));
            match points_max() {
                Some(_) => vec![once, lasting],
                // For a short run one of the two is enough, alternately.
                None => vec![if (at + call.len()).is_multiple_of(2) { once } else { lasting }],
            }
        };
        errors.iter().enumerate().flat_map(both).collect()
    })
}

/// Returns the requested number of points per call and fault. A point requested by name is looked up among all of them.
fn points_max() -> Option<usize> {
    if only().is_some() {
        return Some(usize::MAX);
    }
    let most = std::env::var("PITON_FAULT_POINTS").ok()?;
    Some(most.parse().expect("PITON_FAULT_POINTS is a number"))
}

/// Returns true if only calls that change something are requested.
fn is_about_changes() -> bool {
    std::env::var_os("PITON_FAULT_CHANGING").is_some()
}

/// Returns the name of the only point requested.
fn only() -> Option<String> {
    std::env::var("PITON_FAULT_ONLY").ok()
}

/// A scene, and copies of its directories that are put back before each run.
struct Stage<S> {
    scene: S,
    aside: Vec<(PathBuf, PathBuf)>,
}

impl<S: Scene> Stage<S> {
    /// Prepares the copies and runs the command once without a fault. Also returns the calls that it made.
    fn new(mut scene: S) -> (Self, Calls) {
        let root = scene.sandbox().root();
        let aside = |(number, dir): (usize, PathBuf)| {
            let aside = root.join(format!("aside-{number}"));
            replace_dir(&dir, &aside);
            (dir, aside)
        };
        let aside: Vec<_> = scene.changes().into_iter().enumerate().map(aside).collect();
        let log = root.join("strace.log");
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-o"]).arg(&log);
        let ran = run(&scene, strace);
        testkit::wait_for_maintenance(&root);
        scene.undisturbed(ran);
        let calls = Calls::read(&log);
        (Self { scene, aside }, calls)
    }

    /// Runs the command with a fault. Returns true if the fault had an effect.
    fn try_at(&self, point: &Point) -> bool {
        for (dir, aside) in &self.aside {
            replace_dir(aside, dir);
        }
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={}", point.call)]);
        strace.args(["-e", &format!("inject={point}")]);
        if point.fault != Fault::Kill {
            // Then only that call is intercepted, and all others are as fast as usual. This loses signals.
            strace.arg("--seccomp-bpf");
        }
        let ran = run(&self.scene, strace);
        testkit::wait_for_maintenance(&self.scene.sandbox().root());
        // The program was not even loaded: no code of piton's ran.
        if ran.status.code() == Some(127) && ran.stderr.contains("error while loading shared libraries") {
            return false;
        }
        let after = After { point, ran };
        // A thread of another run may not reach that call, so that the process is not killed.
        let is_expected = after.is_abort() || after.is_kill() && after.ran.was_killed();
        assert!(after.ran.status.code().is_some() || is_expected, "{after:?}");
        assert!(!after.ran.stderr.contains("panicked"), "{after:?}");
        self.scene.check(&after);
        !after.is_done()
    }
}

fn run(scene: &impl Scene, mut strace: Command) -> Ran {
    let sandbox = scene.sandbox();
    strace.arg(PITON).args(scene.args()).env("HOME", sandbox.home()).env("TZ", "UTC").env("TMPDIR", sandbox.root());
    strace.envs(scene.environment()).current_dir(sandbox.project());
    let mut child = spawn_piped(&mut strace);
    // A killed or failed process reads no more.
    let _ = child.stdin.take().expect("a pipe").write_all(&scene.input());
    child.wait_with_output().expect("it ends").into()
}

/// Calls of a run after its program was loaded: the occurrences of each, in any thread.
struct Calls(BTreeMap<String, BTreeSet<usize>>);

impl Calls {
    fn read(log: &Path) -> Self {
        let log = fs::read_to_string(log).expect("what strace wrote");
        let first_thread = log.split(' ').next().unwrap_or_default();
        let mut counts = BTreeMap::<(&str, &str), usize>::new();
        let mut calls = BTreeMap::<String, BTreeSet<usize>>::new();
        // A Rust program first checks that it has stdin, stdout and stderr.
        let mut is_loaded = false;
        for line in log.lines() {
            let Some((thread, (name, arguments))) =
                line.split_once(' ').and_then(|(thread, call)| Some((thread, call.trim_start().split_once('(')?)))
            else {
                continue;
            };
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                continue;
            }
            let count = counts.entry((name, thread)).or_default();
            *count += 1;
            is_loaded |= name == "poll" || thread != first_thread;
            // Anonymous memory is not a file, and a process without it cannot run.
            let is_memory = name == "mmap" && arguments.contains("MAP_ANONYMOUS");
            if is_loaded && !is_memory {
                calls.entry(name.to_owned()).or_default().insert(*count);
            }
        }
        Self(calls)
    }

    /// Returns the points to try: at most `most` for each call and fault.
    fn points(&self, most: usize, faults: &dyn Fn(&str) -> Vec<Fault>) -> Vec<Point> {
        let mut points = Vec::new();
        for (call, occurrences) in &self.0 {
            for fault in faults(call) {
                let seed =
                    format!("{call} {fault:?}").bytes().fold(7, |seed: u64, byte| seed * 31 % 65_521 + u64::from(byte));
                let mut dice = Dice::new(seed);
                let mut left: Vec<usize> = occurrences.iter().copied().collect();
                while left.len() > most {
                    left.remove(dice.roll(left.len()));
                }
                points.extend(left.into_iter().map(|nth| Point { call: call.clone(), nth, fault }));
            }
        }
        points
    }
}

/// Tries all points, two at a time, each in its own sandbox. Reports failures after all points were tried.
fn sweep<S: Scene>(make: impl Fn() -> S + Sync, most: usize, faults: &(dyn Fn(&str) -> Vec<Fault> + Sync)) -> Swept {
    if !has_program("strace") {
        return Swept { points: usize::MAX, felt: usize::MAX };
    }
    let most = points_max().unwrap_or(most);
    let only = only();
    let next = AtomicUsize::new(0);
    let (swept, failed) = (Mutex::new(Swept::default()), Mutex::new(Vec::new()));
    let work = || {
        let (stage, calls) = Stage::new(make());
        // The threads of two runs differ a little: each worker takes its share of the points that it saw itself.
        let mut points = calls.points(most, faults);
        if let Some(only) = &only {
            points.retain(|point| point.to_string() == *only);
        }
        let mut own = 0..points.len();
        // A point requested by name is tried by each worker that has it.
        let mut next = || if only.is_some() { own.next() } else { Some(next.fetch_add(1, Ordering::Relaxed)) };
        while let Some(point) = next().and_then(|at| points.get(at)) {
            let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.try_at(point)));
            let mut swept = swept.lock().expect("no thread panics here");
            swept.points += 1;
            match tried {
                Ok(is_felt) => swept.felt += usize::from(is_felt),
                Err(_) => failed.lock().expect("no thread panics here").push(point.to_string()),
            }
        }
    };
    std::thread::scope(|scope| {
        [scope.spawn(work), scope.spawn(work)].map(|worker| worker.join().expect("a trial run"))
    });
    let (swept, failed) = (swept.into_inner().expect("no panic"), failed.into_inner().expect("no panic"));
    assert!(failed.is_empty(), "{} of {} points: {failed:#?}", failed.len(), swept.points);
    let _ = writeln!(std::io::stderr(), "{swept:?}");
    if only.is_some() {
        assert!(swept.points > 0, "there is no such point: {only:?}");
        return Swept { points: usize::MAX, felt: usize::MAX };
    }
    swept
}
