//! One engine for all faults: a command is run again and again from the same state, each time killed before one system
//! call, or with one that fails, and what it leaves is looked at.
//!
//! `PITON_FAULT_POINTS` sets at how many occurrences of each call each fault is tried, at most: few by default, all with
//! `PITON_FAULT_POINTS=10000`. Which ones is the same in each run. With `PITON_FAULT_CHANGING=1` only calls that change
//! something count, a tenth of all. `PITON_FAULT_ONLY=POINT` tries one point, by the name that a failure is reported with.

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

/// Every call that may fail, with what a bad or full disk, missing rights and limits make of it.
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

/// Calls that change what is on the disk, or who holds a lock. Between two of these nothing changes.
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

/// What is not made to fail: it cannot, or the process would not be one without it.
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

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    /// The call fails once.
    Once(&'static str),
    /// It fails from then on, each time.
    Lasting(&'static str),
}

/// One call of a thread, and what is done to it.
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

/// What a command came to at a point. Printed whole where a check fails.
#[derive(Debug)]
pub(crate) struct After<'a> {
    pub(crate) point: &'a Point,
    pub(crate) ran: Ran,
}

impl After<'_> {
    /// Whether the command says that it did all of what it was asked to.
    pub(crate) fn is_done(&self) -> bool {
        self.ran.status.success()
    }

    /// Whether the answer itself is what could not be written.
    pub(crate) fn is_mute(&self) -> bool {
        let is_unwritten = ["write", "writev"].contains(&self.point.call.as_str()) && self.ran.stdout.is_empty();
        is_unwritten && (self.ran.stderr.is_empty() || self.ran.stderr.starts_with("error: cannot "))
    }

    pub(crate) fn is_kill(&self) -> bool {
        self.point.fault == Fault::Kill
    }
}

/// A command in a state that it is run from, and what must hold whatever becomes of it.
pub(crate) trait Scene: Sized {
    fn sandbox(&self) -> &Sandbox;

    /// The arguments of the command.
    fn args(&self) -> Vec<&str>;

    /// What it is sent on stdin.
    fn input(&self) -> Vec<u8> {
        Vec::new()
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// What it changes, and is put back before each run.
    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox().home()]
    }

    /// After a run without a fault: what the others are compared with.
    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
    }

    /// After a run with one.
    fn check(&self, after: &After<'_>);
}

/// What was tried, and how much of it was felt.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) points: usize,
    /// How many runs were killed, or did not end with success.
    pub(crate) felt: usize,
}

/// Kills the command before calls that change something; before all calls, if all points are asked for.
pub(crate) fn kill<S: Scene>(make: impl Fn() -> S + Sync) -> Swept {
    let is_whole = points_max().is_some() && !is_about_changes();
    sweep(make, 2, &|call| {
        let is_point = CHANGING.contains(&call) || is_whole && call != "execve";
        if is_point { vec![Fault::Kill] } else { Vec::new() }
    })
}

/// Makes every call fail, in every way that it can, once and for good.
pub(crate) fn fail<S: Scene>(make: impl Fn() -> S + Sync) -> Swept {
    sweep(make, 1, &|call| {
        if is_about_changes() && !CHANGING.contains(&call) {
            return Vec::new();
        }
        let errors = ERRORS.iter().find(|(calls, _)| calls.contains(&call)).map(|(_, errors)| *errors);
        let errors = errors.unwrap_or_else(|| {
            assert!(HARMLESS.contains(&call), "nobody said what becomes of {call}");
            &[]
        });
        let both = |(at, error): (usize, &&'static str)| {
            let (once, lasting) = (Fault::Once(error), Fault::Lasting(error));
            match points_max() {
                Some(_) => vec![once, lasting],
                // One of the two is enough for a short run, in turn.
                None => vec![if (at + call.len()).is_multiple_of(2) { once } else { lasting }],
            }
        };
        errors.iter().enumerate().flat_map(both).collect()
    })
}

/// How many points of each call and fault are asked for. One that is named is found among all there are.
fn points_max() -> Option<usize> {
    if only().is_some() {
        return Some(usize::MAX);
    }
    let most = std::env::var("PITON_FAULT_POINTS").ok()?;
    Some(most.parse().expect("PITON_FAULT_POINTS is a number"))
}

/// Whether only calls that change something are asked for.
fn is_about_changes() -> bool {
    std::env::var_os("PITON_FAULT_CHANGING").is_some()
}

/// The one point that is asked for.
fn only() -> Option<String> {
    std::env::var("PITON_FAULT_ONLY").ok()
}

/// Runs from a state that is put back before each.
struct Stage<S> {
    scene: S,
    aside: Vec<(PathBuf, PathBuf)>,
}

impl<S: Scene> Stage<S> {
    /// Sets it up, and runs the command once without a fault; what it called.
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

    /// Whether the fault was felt.
    fn try_at(&self, point: &Point) -> bool {
        for (dir, aside) in &self.aside {
            replace_dir(aside, dir);
        }
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={}", point.call)]);
        strace.args(["-e", &format!("inject={point}")]);
        if point.fault != Fault::Kill {
            // Only that call is stopped at then, and all others are as fast as ever. Signals get lost that way.
            strace.arg("--seccomp-bpf");
        }
        let ran = run(&self.scene, strace);
        testkit::wait_for_maintenance(&self.scene.sandbox().root());
        // The program was not even loaded: nothing of ours ran.
        if ran.status.code() == Some(127) && ran.stderr.contains("error while loading shared libraries") {
            return false;
        }
        let after = After { point, ran };
        // A thread that another run had may not come to that call, so that nobody is killed.
        assert!(after.ran.status.code().is_some() || after.is_kill() && after.ran.was_killed(), "{after:?}");
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
    // Whoever was killed or failed reads no more.
    let _ = child.stdin.take().expect("a pipe").write_all(&scene.input());
    child.wait_with_output().expect("it ends").into()
}

/// The calls of a run after its program was loaded: which occurrences of each, in one thread or another.
struct Calls(BTreeMap<String, BTreeSet<usize>>);

impl Calls {
    fn read(log: &Path) -> Self {
        let log = fs::read_to_string(log).expect("what strace wrote");
        let first_thread = log.split(' ').next().unwrap_or_default();
        let mut counts = BTreeMap::<(&str, &str), usize>::new();
        let mut calls = BTreeMap::<String, BTreeSet<usize>>::new();
        // The first thing that a Rust program does is to look whether it has stdin, stdout and stderr.
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
            // Memory is not a file, and who has none has nothing.
            let is_memory = name == "mmap" && arguments.contains("MAP_ANONYMOUS");
            if is_loaded && !is_memory {
                calls.entry(name.to_owned()).or_default().insert(*count);
            }
        }
        Self(calls)
    }

    /// The points to be tried: at most so many for each call and fault.
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

/// Two at a time, each in a sandbox of its own. What went wrong is told when all points were tried.
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
        // The threads of two runs differ a little: each worker has its share of what it saw itself.
        let mut points = calls.points(most, faults);
        if let Some(only) = &only {
            points.retain(|point| point.to_string() == *only);
        }
        let mut own = 0..points.len();
        // One that is named is tried by whoever has it.
        let mut next = || if only.is_some() { own.next() } else { Some(next.fetch_add(1, Ordering::Relaxed)) };
        while let Some(point) = next().and_then(|at| points.get(at)) {
            let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.try_at(point)));
            let mut swept = swept.lock().expect("nobody panics here");
            swept.points += 1;
            match tried {
                Ok(is_felt) => swept.felt += usize::from(is_felt),
                Err(_) => failed.lock().expect("nobody panics here").push(point.to_string()),
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
