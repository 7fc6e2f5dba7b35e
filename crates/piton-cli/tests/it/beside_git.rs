//! Sharing a store with stock git, whose garbage collection does not honour piton's locks. One program is stopped
//! before a system call, the other runs from start to end, and the first continues: at each call that changes
//! something.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Dice, Held, Sandbox, clean_command, files_in, git, has_program};

use crate::kit::{PITON, Ran, ids, piton, replace_dir, run, spawn_piped};

/// System calls to stop at: between them nothing changes that the other program could see.
const CALLS: &[&str] = &["rename", "renameat", "renameat2", "unlink", "unlinkat", "symlink", "link", "linkat", "fsync"];

/// Maximum number of occurrences of each call at which a program is stopped.
const POINTS_MAX: usize = 4;

/// Returns the garbage collection that Hermes runs at every checkpoint above its limit.
fn collection(sandbox: &Sandbox) -> Command {
    let mut command = git();
    command.arg("--git-dir").arg(sandbox.store()).args(["gc", "--prune=now", "--quiet"]);
    command.current_dir(sandbox.root());
    command
}

/// Runs a garbage collection. If it meets a lock of piton's, it fails and deletes nothing.
fn collect(sandbox: &Sandbox) {
    let _ = collection(sandbox).output().expect("git runs");
}

fn piton_command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = clean_command(PITON);
    command.args(args).env("HOME", sandbox.home()).env("TZ", "UTC").env("TMPDIR", sandbox.root());
    command.env("PITON_MAX_SNAPSHOTS", "3").current_dir(sandbox.project());
    command
}

fn under_strace(args: &[&str], log: &Path, command: &Command) -> Command {
    let mut strace = clean_command("strace");
    strace.args(["-f", "-qq", "-o"]).arg(log).args(args).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(key, value),
            None => strace.env_remove(key),
        };
    }
    strace.current_dir(command.get_current_dir().expect("set above"));
    strace
}

/// Returns, for each of the calls, the most occurrences in any one thread of the command.
fn calls_of(sandbox: &Sandbox, command: &Command) -> BTreeMap<&'static str, usize> {
    let log = sandbox.root().join("strace.log");
    let trace = format!("trace=?{}", CALLS.join(",?"));
    run(&mut under_strace(&["-e", &trace], &log, command)).done();
    let log = fs::read_to_string(log).expect("what strace wrote");
    let mut counts = BTreeMap::<(&str, &str), usize>::new();
    for line in log.lines() {
        if let Some((thread, call)) = line.split_once(' ')
            && let Some(name) = CALLS.iter().find(|name| call.trim_start().starts_with(&format!("{name}(")))
        {
            *counts.entry((name, thread)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((name, _), count) in counts {
        let name = CALLS.iter().find(|call| **call == name).expect("one of them");
        let known = most.entry(*name).or_default();
        *known = count.max(*known);
    }
    most
}

/// Runs a command, stops it before the nth occurrence of a call, runs `meanwhile`, and lets the command continue.
fn stopped_at(sandbox: &Sandbox, command: &Command, (call, nth): (&str, usize), meanwhile: impl FnOnce()) -> Ran {
    let pipe = sandbox.root().join("strace.pipe");
    let _ = fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let inject = format!("inject={call}:signal=STOP:when={nth}");
    let child = spawn_piped(&mut under_strace(&["-e", &format!("trace={call}"), "-e", &inject], &pipe, command));
    let mut meanwhile = Some(meanwhile);
    for line in BufReader::new(File::open(&pipe).expect("a pipe")).lines() {
        let line = line.expect("what strace writes");
        if line.contains("--- stopped by SIGSTOP ---") {
            meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
            let process = line.split(' ').next().expect("a number");
            // Each stopped thread is reported, but the first SIGCONT resumes all of them, so later ones may fail.
            let _ = Command::new("kill").args(["-CONT", process]).stderr(Stdio::null()).status().expect("kill runs");
        }
    }
    child.wait_with_output().expect("it ends").into()
}

/// A store with piton's packs, stock git's loose objects, and contents that no checkpoint holds any more.
struct Scene {
    sandbox: Sandbox,
    dead: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let mut dice = Dice::new(5);
        let dead = dice.noise(3_000);
        for number in 0..5 {
            let noise = if number == 0 { dead.clone() } else { dice.noise(3_000) };
            sandbox.write("noise", noise);
            sandbox.write("dir/count", number.to_string());
            run(&mut piton_command(&sandbox, &["take", "--json"])).done();
        }
        let own = sandbox.root().join("own");
        fs::write(&own, dice.noise(500)).expect("a file");
        sandbox.store_git(&["hash-object", "-w", own.to_str().expect("UTF-8")]);
        testkit::wait_for_maintenance(&sandbox.root());
        Self { sandbox, dead }
    }

    /// Runs `each` from the same state for each point at which the command can be stopped.
    fn at_each_point(&self, command: &Command, each: impl Fn((&str, usize))) {
        if !has_program("strace") {
            return;
        }
        let (home, aside) = (self.sandbox.home(), self.sandbox.root().join("aside"));
        replace_dir(&home, &aside);
        let calls = calls_of(&self.sandbox, command);
        assert!(calls.values().sum::<usize>() > 3, "{calls:?}");
        for (call, count) in calls {
            for nth in (1..=count).step_by(count.div_ceil(POINTS_MAX)) {
                replace_dir(&aside, &home);
                each((call, nth));
                assert!(leftovers(&self.sandbox).is_empty() || !command_is_piton(command), "{call} {nth}");
            }
        }
        replace_dir(&aside, &home);
    }
}

fn command_is_piton(command: &Command) -> bool {
    command.get_program() == PITON
}

/// Returns the `.keep` files that were left behind.
fn leftovers(sandbox: &Sandbox) -> Vec<String> {
    let names = fs::read_dir(sandbox.store().join("objects/pack")).expect("packs");
    let names = names.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".keep")).collect()
}

/// Asserts that a checkpoint reported as taken exists with every file, and is listed, in an intact store.
fn assert_held(sandbox: &Sandbox, taken: &Ran, files: &BTreeMap<Vec<u8>, Held>, when: &str) {
    let answer = taken.json();
    assert_eq!(answer["outcome"], "taken", "{when}: {taken:?}");
    let id = answer["id"].as_str().expect("an id");
    assert!(ids(sandbox).iter().any(|listed| listed == id), "{when}: {id} is not listed");
    assert_eq!(&sandbox.held_by(id), files, "{when}");
    sandbox.assert_store_is_whole();
}

fn check_takes(sandbox: &Sandbox, scene: &Scene) {
    let files = files_in(&sandbox.project());
    let take = piton_command(sandbox, &["take", "--json"]);
    scene.at_each_point(&take, |point| {
        let ran = stopped_at(sandbox, &take, point, || collect(sandbox));
        assert_held(sandbox, &ran, &files, &format!("{point:?}"));
    });
    let gc = collection(sandbox);
    scene.at_each_point(&gc, |point| {
        let mut taken = None;
        let take = || run(&mut piton_command(sandbox, &["take", "--json"]));
        let ran = stopped_at(sandbox, &gc, point, || taken = Some(take()));
        // A take that was refused because git held the ref lock is retried.
        let taken = taken.filter(|taken| taken.code() != 5).unwrap_or_else(take);
        assert_held(sandbox, &taken.done(), &files, &format!("{point:?} of {ran:?}"));
    });
}

/// S1 and T1, with a pack that is not reachable from any ref yet.
#[test]
fn stock_gits_collection_at_any_moment_of_a_take_deletes_nothing_of_it() {
    let scene = Scene::new();
    scene.sandbox.write("noise", Dice::new(9).noise(3_000));
    check_takes(&scene.sandbox, &scene);
}

/// A take may reuse contents in the store that the garbage collection is about to delete.
#[test]
fn contents_that_only_a_dropped_checkpoint_held_are_in_the_new_one_whatever_is_collected() {
    let scene = Scene::new();
    scene.sandbox.write("noise", &scene.dead);
    check_takes(&scene.sandbox, &scene);
}

#[test]
fn the_first_checkpoint_of_a_project_survives_a_collection_at_any_moment() {
    let scene = Scene::new();
    let sandbox = &scene.sandbox;
    let other = sandbox.other_project("other");
    fs::write(other.join("noise"), &scene.dead).expect("a file");
    fs::write(other.join("new"), "new").expect("a file");
    let files = files_in(&other);
    let mut take = piton_command(sandbox, &["take", "--json"]);
    take.current_dir(&other);
    scene.at_each_point(&take, |point| {
        let ran = stopped_at(sandbox, &take, point, || collect(sandbox)).done();
        let id = ran.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(sandbox.held_by(&id), files, "{point:?}");
        sandbox.assert_store_is_whole();
    });
}

/// The safety checkpoint of a restore, then undo.
#[test]
fn a_restore_is_undone_whatever_is_collected_meanwhile() {
    let scene = Scene::new();
    let sandbox = &scene.sandbox;
    sandbox.write("noise", &scene.dead);
    sandbox.write("new", "made since");
    let before = files_in(&sandbox.project());
    let (project, aside) = (sandbox.project(), sandbox.root().join("project-aside"));
    replace_dir(&project, &aside);
    let restore = piton_command(sandbox, &["restore", "2", "--yes", "--json"]);
    scene.at_each_point(&restore, |point| {
        replace_dir(&aside, &project);
        stopped_at(sandbox, &restore, point, || collect(sandbox)).done();
        assert_ne!(files_in(&project), before, "{point:?}");
        piton(sandbox, ["undo", "--yes"]).done();
        assert_eq!(files_in(&project), before, "{point:?}");
        sandbox.assert_store_is_whole();
        replace_dir(&aside, &project);
    });
}

/// Two garbage collections at once: neither deletes the copy that the other relies on.
#[test]
fn two_collections_at_once_lose_nothing() {
    let scene = Scene::new();
    let sandbox = &scene.sandbox;
    let held: Vec<_> = ids(sandbox).iter().map(|id| (id.clone(), sandbox.held_by(id))).collect();
    let prune = piton_command(sandbox, &["prune", "--json"]);
    let check = |when: &str| {
        sandbox.assert_store_is_whole();
        held.iter().for_each(|(id, files)| assert_eq!(&sandbox.held_by(id), files, "{when}"));
    };
    scene.at_each_point(&prune, |point| {
        stopped_at(sandbox, &prune, point, || collect(sandbox)).done();
        check(&format!("{point:?}"));
    });
    let gc = collection(sandbox);
    scene.at_each_point(&gc, |point| {
        let ran = stopped_at(sandbox, &gc, point, || drop(run(&mut piton_command(sandbox, &["prune", "--json"]))));
        check(&format!("{point:?} of {ran:?}"));
    });
}

/// A killed process leaves its `.keep` file behind; a user's own is not touched.
#[test]
fn a_keep_file_of_a_killed_take_is_removed_and_a_users_own_stays() {
    let scene = Scene::new();
    let sandbox = &scene.sandbox;
    let packs = sandbox.store().join("objects/pack");
    let names = || fs::read_dir(&packs).expect("packs").map(|entry| entry.expect("a name").path());
    let mut packs_there = names().filter(|path| path.extension().is_some_and(|end| end == "pack"));
    let (theirs, ours) = (packs_there.next().expect("a pack"), packs_there.next().expect("another"));
    fs::write(theirs.with_extension("keep"), "").expect("a file");
    std::os::unix::fs::symlink(ours.file_name().expect("a name"), ours.with_extension("keep")).expect("a link");
    piton(sandbox, ["prune"]).done();
    let user = theirs.file_stem().expect("a name").to_string_lossy().into_owned() + ".keep";
    assert_eq!(leftovers(sandbox), [user]);
    sandbox.assert_store_is_whole();
}
