//! Many processes at once, some of them killed or stopped: no update is lost, none fails, and no lock outlives its
//! holder.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use testkit::{Sandbox, clean_command};

use crate::kit::{Ran, ids, in_dir, piton, run, take_works};

const PROJECTS: usize = 4;
const PROCESSES: usize = 8;

fn duration() -> Duration {
    let seconds = std::env::var("PITON_CONCURRENCY_SECONDS").ok();
    let seconds = seconds.map_or(6, |seconds| seconds.parse().expect("PITON_CONCURRENCY_SECONDS is a number"));
    Duration::from_secs(seconds)
}

/// Results reported to one worker by its processes.
#[derive(Default)]
struct Told {
    taken: Vec<String>,
    killed: usize,
}

/// Takes one checkpoint of a project after another, each time with a change of its own.
fn work(sandbox: &Sandbox, project: &Path, worker: usize, is_killed: bool) -> Told {
    let mut told = Told::default();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker as u64 + 1);
    let end = Instant::now() + duration();
    for round in 0.. {
        if Instant::now() >= end {
            break;
        }
        fs::write(project.join(format!("{worker}.txt")), format!("round {round}\n")).expect("a file");
        let mut command = in_dir(sandbox, project);
        command.args(["take", "--json"]).env("PITON_MAX_SNAPSHOTS", "1000000").env("PITON_MAX_TOTAL_SIZE_MB", "0");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        if is_killed {
            random = (random ^ random << 13) ^ (random ^ random << 13) >> 7;
            std::thread::sleep(Duration::from_micros(random % 40_000));
            child.kill().expect("a process of ours");
        }
        let ran = Ran::from(child.wait_with_output().expect("the process ends"));
        if ran.was_killed() {
            told.killed += 1;
            continue;
        }
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
        let report = ran.json();
        if report["outcome"] == "taken" {
            told.taken.push(report["id"].as_str().expect("an id").to_owned());
        }
    }
    told
}

/// Returns the commits of a project as stock git finds them, newest first. Asserts that each is the only child of the
/// next.
fn chain(sandbox: &Sandbox, newest: &str) -> Vec<String> {
    let log = String::from_utf8(sandbox.store_git(&["log", "--format=%H %P", newest])).expect("hexadecimal digits");
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split_whitespace().collect()).collect();
    for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
        assert_eq!(line[1..], next[..1], "one parent, and it is the next");
    }
    lines.iter().map(|line| line[0].to_owned()).collect()
}

/// Runs eight workers on four projects. Asserts that no acknowledged checkpoint is lost, and that there are at most as
/// many more as processes were killed.
fn take_all_at_once(is_killed: impl Fn(usize) -> bool + Sync) {
    let sandbox = Sandbox::new();
    let projects: Vec<PathBuf> = (0..PROJECTS).map(|n| sandbox.other_project(&format!("project-{n}"))).collect();
    let told: Vec<Told> = std::thread::scope(|scope| {
        let start = |worker: usize| {
            let (sandbox, project, is_killed) = (&sandbox, &projects[worker % PROJECTS], is_killed(worker));
            scope.spawn(move || work(sandbox, project, worker, is_killed))
        };
        let workers: Vec<_> = (0..PROCESSES).map(start).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends well")).collect()
    });
    sandbox.assert_store_is_whole();
    for (number, project) in projects.iter().enumerate() {
        let list = run(in_dir(&sandbox, project).args(["rollback", "--json"])).done().json();
        let listed: Vec<&str> = list.as_array().expect("a list").iter().filter_map(|one| one["id"].as_str()).collect();
        let chain = chain(&sandbox, listed[0]);
        assert_eq!(chain, listed);
        let mine = || told.iter().skip(number).step_by(PROJECTS);
        let acknowledged: BTreeSet<&str> = mine().flat_map(|told| &told.taken).map(String::as_str).collect();
        assert_eq!(acknowledged.len(), mine().map(|told| told.taken.len()).sum::<usize>(), "each is taken once");
        let there: BTreeSet<&str> = listed.into_iter().collect();
        assert!(acknowledged.is_subset(&there), "lost: {:?}", acknowledged.difference(&there));
        let killed: usize = mine().map(|told| told.killed).sum();
        assert!(there.len() <= acknowledged.len() + killed, "more than was asked for");
        assert!(!acknowledged.is_empty());
    }
}

/// L3.
#[test]
fn every_acknowledged_checkpoint_of_eight_processes_is_there() {
    take_all_at_once(|_| false);
}

#[test]
fn killed_processes_lose_no_checkpoint_of_others() {
    take_all_at_once(|worker| worker >= PROCESSES / 2);
}

#[test]
fn two_processes_that_make_the_store_at_the_same_moment_make_one() {
    for round in 0..20 {
        let sandbox = Sandbox::new();
        // In every other round there is also an older layout to be archived.
        let old_repositories = if round % 2 == 0 { 0 } else { 30 };
        for n in 0..old_repositories {
            let old = sandbox.base().join(format!("{n:016x}"));
            fs::create_dir_all(&old).expect("a directory");
            fs::write(old.join("HEAD"), "ref: refs/heads/master\n").expect("a file");
            fs::write(old.join("HERMES_WORKDIR"), "/somewhere").expect("a file");
        }
        let start = |name: &str| {
            let project = sandbox.other_project(name);
            fs::write(project.join("a.txt"), name).expect("a file");
            let mut command = in_dir(&sandbox, &project);
            command.args(["take", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the program starts")
        };
        let both = [start("one"), start("two")];
        for child in both {
            let ran = Ran::from(child.wait_with_output().expect("the process ends")).done();
            assert_eq!((&ran.json()["outcome"], ran.stderr.as_str()), (&Value::from("taken"), ""));
        }
        sandbox.assert_store_is_whole();
        assert_eq!(sandbox.count_objects("commit"), 2);
        let archives = fs::read_dir(sandbox.base()).expect("a base").flatten().map(|entry| entry.path());
        let archives: Vec<_> = archives.filter(|path| path.is_dir() && !path.ends_with("store")).collect();
        let moved = archives.iter().flat_map(|archive| fs::read_dir(archive).expect("an archive")).count();
        assert_eq!((archives.len(), moved), (usize::from(old_repositories > 0), old_repositories));
        assert!(sandbox.temporary_files().is_empty());
    }
}

/// Returns the path of the ref lock of the only project, as stock git would create it.
fn ref_lock(sandbox: &Sandbox) -> PathBuf {
    let refs = sandbox.store_git(&["for-each-ref", "--format=%(refname)"]);
    sandbox.store().join(String::from_utf8(refs).expect("a name").trim()).with_extension("lock")
}

fn make_old(file: &File) {
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("a time");
}

/// S4.
#[test]
fn a_lock_left_by_a_dead_process_is_taken_over() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    let old = take_works(&sandbox);
    let lock = ref_lock(&sandbox);
    make_old(&File::create(&lock).expect("a lock"));
    sandbox.tree("a.txt = two");
    let new = take_works(&sandbox);
    assert_eq!(ids(&sandbox), [new, old]);
    assert!(!lock.exists());
}

#[test]
fn a_young_or_held_lock_is_respected() {
    for is_old in [false, true] {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt = one");
        let old = take_works(&sandbox);
        let lock = ref_lock(&sandbox);
        let held = File::create(&lock).expect("a lock");
        if is_old {
            make_old(&held);
        }
        sandbox.tree("a.txt = two");
        let busy = piton(&sandbox, ["take"]).failed(5);
        assert!(busy.stderr.contains("cannot move the project's ref") && busy.stderr.contains("hint: "), "{busy:?}");
        assert_eq!(piton(&sandbox, ["take", "--json"]).json()["error"]["kind"], "busy");
        sandbox.assert_store_is_whole();
        assert_eq!(ids(&sandbox), [old.as_str()]);
        assert!(lock.exists(), "another process holds it");
        drop(held);
        fs::remove_file(&lock).expect("its owner removes it");
        take_works(&sandbox);
    }
}

/// Starts a take of the project and stops it while it holds the project's lock.
fn stopped_take(sandbox: &Sandbox) -> Child {
    let project = ref_lock(sandbox).file_stem().expect("a name").to_owned();
    let lock = File::open(sandbox.store().join("locks").join(project)).expect("the project's lock");
    let is_held = || match lock.try_lock() {
        Err(TryLockError::WouldBlock) => true,
        tried => {
            tried.and_then(|()| lock.unlock().map_err(TryLockError::Error)).expect("a lock");
            false
        }
    };
    for round in 0..1000 {
        sandbox.write("a.txt", format!("round {round}"));
        let mut child =
            in_dir(sandbox, &sandbox.project()).arg("take").stdout(Stdio::null()).spawn().expect("the program starts");
        while !is_held() && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        let stop = format!("kill -STOP {} 2>/dev/null", child.id());
        clean_command("sh").args(["-c", &stop]).status().expect("sh runs");
        if is_held() {
            return child;
        }
        child.kill().expect("a child");
        child.wait().expect("a child");
    }
    panic!("no take was ever seen to hold its project's lock");
}

#[test]
fn a_stopped_process_holds_up_its_own_project_only_and_not_for_ever() {
    let sandbox = Sandbox::new();
    for n in 0..500 {
        sandbox.write(format!("dir/{n}"), format!("{n}"));
    }
    let old = take_works(&sandbox);
    let mut stopped = stopped_take(&sandbox);
    let other = sandbox.other_project("other");
    fs::write(other.join("b.txt"), "b").expect("a file");
    let ran = run(in_dir(&sandbox, &other).args(["take", "--json"])).done();
    assert_eq!(ran.json()["outcome"], "taken");
    assert_eq!(ids(&sandbox).last(), Some(&old), "reading goes on");
    let busy = piton(&sandbox, ["take"]).failed(5);
    assert!(busy.stderr.contains("cannot lock this project"), "{busy:?}");
    stopped.kill().expect("a child");
    stopped.wait().expect("a child");
    sandbox.assert_store_is_whole();
    take_works(&sandbox);
}
