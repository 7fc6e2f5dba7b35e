//! Behaviour of the command in abnormal situations: each message is a sentence that says what to do next. A signal ends
//! the command cleanly.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::{Sandbox, clean_command, wait_for_maintenance};

use crate::kit::{
    Ran, assert_store_is_complete, command, has_signal, ids, in_dir, interruptible, piton, run, status, take_works,
};
use crate::transcript::in_terminal;

/// Creates a checkpoint of a file, then changes the file.
fn with_checkpoint() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\\n");
    take_works(&sandbox);
    sandbox.tree("a.txt = two\\n");
    sandbox
}

#[test]
fn wrong_usage_says_what_cannot_be_done_and_what_was_meant() {
    let sandbox = Sandbox::new();
    for (args, what, hint) in [
        (&["rolback"][..], "cannot run `piton rolback`: there is no such command", "did you mean `rollback`? "),
        (&["restore", "--dryrun", "1"], "cannot use --dryrun: there is no such option", "did you mean `--dry-run`? "),
        (&["rollback", "--jsn"], "cannot use --jsn: there is no such option", "did you mean `--json`? "),
        (&["diff", "--jsn", "1"], "cannot use --jsn: there is no such option", "did you mean `--json`? "),
        (&["show", "-1"], "cannot use -1: there is no such option", "`piton show --help` shows"),
        (&["restore"], "cannot run `piton restore` without <N|ID>", "`piton restore --help` shows"),
        (&["status", "extra"], "cannot use \"extra\": `piton status` takes no more words", "`piton status --help`"),
        (&["status", "--limit"], "cannot use --limit <N> alone: it needs a value", "`piton status --help`"),
        (
            &["status", "--limit", "x"],
            "cannot use \"x\" for --limit <N>: it must be a whole number, 0 or more",
            "`piton",
        ),
        (&["take", "--json=1"], "cannot use \"1\" for --json: it takes no value", "`piton take --help` shows"),
        (&["take", "-m", "a", "-m", "b"], "cannot use --reason <REASON> more than once", "`piton take --help`"),
        (&["restore", "--continue", "--abort"], "cannot use --continue together with --abort", "`piton restore"),
        (&["completions", "ksh"], "cannot use \"ksh\" for <SHELL>: it must be one of bash, zsh, fish", "did you mean"),
        (&["config", "get"], "cannot run `piton config get` without <KEY>", "`piton config get --help` shows"),
    ] {
        let ran = piton(&sandbox, args);
        assert_eq!(ran.code(), 2, "{args:?}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: {what}\nhint: {hint}")), "{args:?}: {ran:?}");
        if !what.contains("--json") {
            let error = piton(&sandbox, args.iter().chain(&["--json"])).json()["error"].clone();
            assert_eq!((&error["kind"], &error["message"]), (&json!("usage"), &json!(what)), "{args:?}");
        }
    }
}

#[test]
fn an_error_names_its_cause_and_the_next_step() {
    let sandbox = Sandbox::new();
    for (args, cause, hint) in [
        (&["verify"][..], "there is none in ", "`piton take` makes one; `--base DIR`"),
        (&["config", "set", "max_files", "many"], "cannot set max_files: ", "`piton config` shows each setting"),
    ] {
        let ran = piton(&sandbox, args);
        assert!(ran.code() != 0 && ran.stderr.contains(cause), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(&format!("\nhint: {hint}")), "{args:?}: {ran:?}");
    }
}

#[test]
fn numbers_of_the_system_are_no_reasons() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.home().join(".hermes/config.yaml")).expect("a directory");
    for args in
        [&["man", "--dir", "/proc/x"][..], &["take"], &["config"], &["config", "set", "max_files", "1"], &["doctor"]]
    {
        let ran = piton(&sandbox, args);
        assert!(!format!("{}{}", ran.stderr, ran.stdout).contains("os error"), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_rollback_where_nothing_is_kept_says_where_to_go() {
    let sandbox = with_checkpoint();
    for dir in [sandbox.home(), "/".into()] {
        let list = run(in_dir(&sandbox, &dir).arg("rollback")).done();
        assert!(list.stderr.contains("go into a project, or name one with `-C DIR`"), "{list:?}");
        let taken = run(in_dir(&sandbox, &dir).arg("take")).done();
        assert!(taken.stderr.contains("go into a project, or name one with `-C DIR`"), "{taken:?}");
    }
    let other = sandbox.other_project("other");
    let list = run(in_dir(&sandbox, &other).arg("rollback")).done();
    assert_eq!(list.stderr, "hint: `piton take` takes one\n");
    let ran = run(in_dir(&sandbox, &other).args(["rollback", "1"])).failed(4);
    assert!(ran.stderr.contains("this project has no checkpoints\nhint: `piton status` lists the projects"), "{ran:?}");
}

#[test]
fn a_diff_of_what_is_nowhere_is_not_told_as_no_difference() {
    let sandbox = with_checkpoint();
    sandbox.tree("new.txt\n dir/b.txt");
    take_works(&sandbox);
    for args in [&["diff", "1", "--", "b.txt"][..], &["rollback", "diff", "1", "2"], &["diff", "2", "1", "--", "di"]] {
        let ran = piton(&sandbox, args).failed(4);
        assert!(ran.stderr.contains("neither now nor in the checkpoint\nhint: "), "{ran:?}");
        let json = piton(&sandbox, ["--json"].iter().chain(args));
        assert_eq!((json.code(), &json.json()["error"]["kind"]), (4, &json!("not_found")), "{json:?}");
    }
    fs::remove_dir_all(sandbox.path("dir")).expect("a directory");
    for paths in [&["a.txt"][..], &["new.txt"], &["dir"], &["a.txt", "dir/b.txt"]] {
        piton(&sandbox, ["diff", "1", "--"].iter().chain(paths)).done();
        piton(&sandbox, ["diff", "1", "1", "--"].iter().chain(paths)).done();
    }
}

#[test]
fn a_rollback_in_a_deleted_directory_says_where_to_go() {
    let sandbox = with_checkpoint();
    let gone = sandbox.other_project("gone");
    let line = format!("rmdir {} && exec {} rollback", gone.display(), crate::kit::PITON);
    let mut shell = clean_command("sh");
    let ran = run(shell.env("HOME", sandbox.home()).current_dir(&gone).args(["-c", &line])).failed(1);
    assert!(ran.stderr.contains("hint: go to a directory that is there, or name one with `-C DIR`"), "{ran:?}");
    assert!(!ran.stderr.contains("os error"), "{ran:?}");
}

#[test]
fn a_store_that_is_busy_damaged_or_not_ours_is_told_from_one_that_is_missing() {
    let sandbox = with_checkpoint();
    let missing = sandbox.root().join("missing");
    let ran = run(command(&sandbox).args(["rollback", "1", "--base"]).arg(&missing)).failed(4);
    assert!(ran.stderr.contains("there is no store in ") && ran.stderr.contains("hint: `piton take` "), "{ran:?}");

    let name = String::from_utf8(sandbox.store_git(&["for-each-ref", "--format=%(refname)"])).expect("a name");
    let place = sandbox.store().join(name.trim());
    let lock = place.with_extension("lock");
    let held = File::create(&lock).expect("a lock");
    let ran = piton(&sandbox, ["rollback", "1"]).failed(5);
    assert!(ran.stderr.contains("hint: "), "{ran:?}");
    assert_eq!(piton(&sandbox, ["rollback", "1", "--json"]).json()["error"]["kind"], "busy");
    assert_eq!(fs::read(sandbox.path("a.txt")).expect("a file"), b"two\n", "nothing was touched");
    drop(held);
    fs::remove_file(&lock).expect("a lock");

    let good = fs::read(&place).expect("a ref");
    fs::write(&place, "garbage\n").expect("a ref");
    for args in [&["rollback"][..], &["rollback", "1"], &["take"], &["diff"]] {
        let ran = piton(&sandbox, args).failed(1);
        assert!(ran.stderr.contains("it names no checkpoint\nhint: "), "{ran:?}");
    }
    assert_eq!(piton(&sandbox, ["rollback", "--json"]).json()["error"]["kind"], "damaged");
    fs::write(&place, good).expect("a ref");

    // Only root can change the owner.
    if rustix::process::geteuid().is_root() {
        chown(sandbox.base(), Some(65534), None).expect("root may");
        for args in [&["rollback"][..], &["rollback", "1"], &["take"], &["status"]] {
            let ran = piton(&sandbox, args).failed(1);
            assert!(ran.stderr.contains("it belongs to another user\nhint: choose a base of your own"), "{ran:?}");
        }
    }
}

#[test]
fn without_consent_a_command_declines_in_text_and_json() {
    let sandbox = with_checkpoint();
    for args in [&["clear"][..], &["purge", "a.txt"]] {
        let ran = piton(&sandbox, args);
        assert_eq!(ran.code(), 1, "{ran:?}");
        assert!(ran.stderr.contains("\nerror: declined; nothing was "), "on a line of its own: {ran:?}");
        let ran = piton(&sandbox, args.iter().chain(&["--json"]));
        assert_eq!((ran.code(), &ran.json()["error"]["kind"]), (1, &json!("declined")), "{ran:?}");
    }
    assert_eq!(ids(&sandbox).len(), 1);
}

#[test]
fn colours_are_for_terminals_unless_configured_otherwise() {
    let sandbox = with_checkpoint();
    let piped = |variables: &[(&str, &str)]| {
        let list = run(command(&sandbox).arg("rollback").envs(variables.iter().copied())).done();
        list.stdout.contains('\u{1b}')
    };
    assert!(!piped(&[]) && piped(&[("CLICOLOR_FORCE", "1")]));
    assert!(!piped(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    let shown =
        |variables: &[(&str, &str)], line: &str| Some(in_terminal(&sandbox, 80, line, variables)?.contains('\u{1b}'));
    let Some(by_itself) = shown(&[], "rollback") else { return };
    assert!(by_itself && shown(&[], "diff") == Some(true));
    for off in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        for line in ["rollback", "diff", "status"] {
            assert_eq!(shown(&[off], line), Some(false), "{off:?} {line}");
        }
    }
    assert_eq!(shown(&[], "rollback --no-color"), Some(false));
}

/// Returns true if the process has a handler for the signal.
fn catches(child: &Child, signal: Signal) -> bool {
    let process = child.id().to_string();
    assert!(!status(&process, "State:").starts_with('Z'), "it has ended");
    has_signal(&status(&process, "SigCgt:"), signal)
}

/// Starts a command and blocks until it handles signals.
fn start(command: &mut Command) -> Child {
    let child =
        interruptible(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    while !catches(&child, Signal::TERM) {
        std::thread::yield_now();
    }
    child
}

fn signal(child: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(child.id()).expect("a process")).expect("a process");
    kill_process(id, signal).expect("a process");
}

fn end(child: Child) -> Ran {
    child.wait_with_output().expect("it ends").into()
}

/// Holds a lock of the store, as another process would.
fn store_lock(sandbox: &Sandbox, name: &str) -> File {
    wait_for_maintenance(&sandbox.root());
    let lock = File::open(sandbox.store().join("locks").join(name)).expect("a lock");
    lock.lock().expect("no other process has it");
    lock
}

#[test]
fn a_signal_ends_a_process_that_waits_for_a_lock() {
    let sandbox = with_checkpoint();
    for (which, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        for (lock, args, words) in [
            ("store", &["take"][..], "error: cannot take a checkpoint: stopped; nothing was written\n"),
            ("store", &["restore", "1"], "error: cannot lock the store: `"),
            ("store", &["diff"], "error: cannot "),
            ("gc", &["prune"], "error: cannot lock the collection: `"),
        ] {
            let held = store_lock(&sandbox, lock);
            let child = start(command(&sandbox).args(args));
            signal(&child, which);
            let ran = end(child);
            drop(held);
            assert_eq!(ran.code(), code, "{args:?} {ran:?}");
            assert!(ran.stderr.starts_with(words), "{args:?} {ran:?}");
        }
    }
    let held = store_lock(&sandbox, "store");
    let child = start(command(&sandbox).args(["take", "--json"]));
    signal(&child, Signal::INT);
    assert_eq!(end(child).json()["error"]["kind"], "stopped");
    drop(held);
    assert_eq!(fs::read(sandbox.path("a.txt")).expect("a file"), b"two\n");
    assert_eq!(ids(&sandbox).len(), 1);
    take_works(&sandbox);
}

#[test]
fn the_second_signal_does_not_wait() {
    let sandbox = with_checkpoint();
    // A purge is not interrupted by the first signal; here it waits for this lock.
    let held = store_lock(&sandbox, "gc");
    let child = start(command(&sandbox).args(["purge", "a.txt", "--yes"]));
    let is_alive = |child: &Child| {
        fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| !stat.contains(") Z "))
    };
    // Two signals at once count as one.
    let mut sent = 0;
    while is_alive(&child) && sent < 2_000 {
        signal(&child, Signal::INT);
        sent += 1;
        // Too many signals leave the process no time to act on one.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ran = end(child);
    drop(held);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ran.status), Some(2), "{ran:?}");
    assert_eq!(ids(&sandbox).len(), 1);
}

/// In the middle of reading files: everything written so far is removed again.
#[test]
fn a_signal_leaves_nothing_of_a_take_behind() {
    let sandbox = with_checkpoint();
    let mut random = 88_172_645_463_325_252_u64;
    for n in 0..60 {
        let words = (0..600_000).flat_map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_le_bytes()
        });
        sandbox.write(format!("{n}.bin"), words.collect::<Vec<u8>>());
    }
    let child = start(command(&sandbox).arg("take"));
    while sandbox.temporary_files().is_empty() {
        assert!(catches(&child, Signal::INT));
    }
    signal(&child, Signal::INT);
    let ran = end(child);
    assert_eq!(ran.code(), 130, "{ran:?}");
    assert_eq!(ran.stderr, "error: cannot take a checkpoint: stopped; nothing was written\n");
    assert_eq!(sandbox.temporary_files(), Vec::<std::path::PathBuf>::new());
    assert_eq!(ids(&sandbox).len(), 1);
    assert_store_is_complete(&sandbox);
    sandbox.assert_store_is_whole();
}

/// Three projects are gone. The second is locked when the signal comes: the first stays dropped, and nothing else is
/// dropped.
#[test]
fn a_signal_ends_a_prune_and_what_was_done_is_kept() {
    let sandbox = with_checkpoint();
    let mut projects = Vec::new();
    for name in ["one", "two", "three"] {
        let dir = sandbox.other_project(name);
        fs::write(dir.join("a.txt"), name).expect("a file");
        run(in_dir(&sandbox, &dir).arg("take")).done();
        let status = piton(&sandbox, ["status", "--json"]).done().json();
        let all = status["projects"].as_array().expect("a list").clone();
        let it = all.iter().find(|one| one["workdir"] == dir.display().to_string()).expect("a project");
        projects.push(it["hash"].as_str().expect("a name").to_owned());
        fs::remove_dir_all(dir).expect("a directory");
    }
    // The order in which they are dropped.
    projects.sort();
    let record = |project: &String| sandbox.store().join("projects").join(format!("{project}.json"));
    let busy = store_lock(&sandbox, &projects[1]);
    let child = start(command(&sandbox).arg("prune"));
    while record(&projects[0]).exists() {
        assert!(catches(&child, Signal::INT));
    }
    signal(&child, Signal::INT);
    let ran = end(child);
    drop(busy);
    assert_eq!(ran.code(), 130, "{ran:?}");
    assert!(ran.stdout.contains("Deleted orphan:   1\n") && ran.stdout.contains("Errors:           0\n"), "{ran:?}");
    assert_eq!(ran.stderr, "warning: stopped; what was done so far is kept\n");
    assert!(record(&projects[1]).exists() && record(&projects[2]).exists());
    sandbox.assert_store_is_whole();
    assert_eq!(piton(&sandbox, ["prune", "--json"]).done().json()["deleted_orphan"], 2);
    assert_eq!(ids(&sandbox).len(), 1);
}

/// Objects that were not checked must not count as intact.
#[test]
fn a_signal_ends_a_check_and_it_says_that_it_is_none() {
    let sandbox = with_checkpoint();
    let mut random = testkit::Dice::new(7);
    (0..8).for_each(|n| sandbox.write(format!("{n}.bin"), random.noise(8 << 20)));
    take_works(&sandbox);
    for args in [&["verify", "--read-data"][..], &["verify", "--read-data", "--json"]] {
        let child = start(command(&sandbox).args(args));
        signal(&child, Signal::INT);
        let ran = end(child);
        assert_eq!(ran.code(), 130, "{ran:?}");
        if args.contains(&"--json") {
            assert_eq!((&ran.json()["stopped"], &ran.json()["whole"]), (&json!(true), &json!(false)), "{ran:?}");
        } else {
            assert!(ran.stdout.starts_with("STOPPED: nothing wrong so far ("), "{ran:?}");
            assert!(ran.stderr.starts_with("hint: what was not checked may be corrupt"), "{ran:?}");
        }
    }
    assert!(piton(&sandbox, ["verify", "--read-data"]).done().stdout.starts_with("Whole ("));
}

/// On a terminal, or with `--verbose`, the command says after a moment which process it waits for.
#[test]
fn a_process_that_waits_for_a_lock_names_the_holder() {
    let sandbox = with_checkpoint();
    let this = format!(" (process {}), which holds the store; 30 s at most", std::process::id());
    for args in [&["rollback", "--verbose"][..], &["status", "-v"], &["show", "1", "-v"], &["verify", "-v"]] {
        let held = store_lock(&sandbox, "store");
        let mut child =
            command(&sandbox).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("UTF-8");
        assert!(line.starts_with("waiting for `") && line.trim_end().ends_with(&this), "{args:?}: {line}");
        drop(held);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?} {output:?}");
    }
    if !testkit::has_program("script") {
        return;
    }
    let held = store_lock(&sandbox, "store");
    let mut script = clean_command("script");
    script.env("HOME", sandbox.home()).env("TERM", "xterm").env("SHELL", "/bin/sh").current_dir(sandbox.project());
    let line = format!("{} rollback </dev/null", crate::kit::PITON);
    let mut child = script.args(["-qec", &line, "/dev/null"]).stdout(Stdio::piped()).spawn().expect("script runs");
    let mut shown = child.stdout.take().expect("a pipe");
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&text).contains(&this) {
        assert_eq!(shown.read(&mut byte).expect("a terminal"), 1, "{}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    drop(held);
    shown.read_to_end(&mut text).expect("a terminal");
    assert!(child.wait().expect("it ends").success());
    assert!(String::from_utf8_lossy(&text).contains("Checkpoints for "));
}

/// Shells make background processes ignore Ctrl-C.
#[test]
fn a_signal_that_is_to_be_ignored_is_ignored() {
    let sandbox = with_checkpoint();
    let held = store_lock(&sandbox, "store");
    let line = format!("trap '' INT; exec {} take", crate::kit::PITON);
    let mut shell = clean_command("sh");
    shell.env("HOME", sandbox.home()).current_dir(sandbox.project()).args(["-c", &line]);
    let child = start(&mut shell);
    signal(&child, Signal::INT);
    drop(held);
    let ran = end(child).done();
    assert!(ran.stdout.starts_with("Taken: "), "{ran:?}");
}

#[test]
fn a_list_that_is_piped_is_a_list_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    piton(&sandbox, ["take"]).done();
    let ran = piton(&sandbox, ["rollback"]).done();
    assert!(ran.stdout.ends_with("  manual\n") && !ran.stdout.contains("piton restore"), "{ran:?}");
    assert_eq!(ran.stderr, "");
}

/// Every library costs each call of a hook some system calls and page faults.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn the_program_loads_the_c_library_and_the_unwinder_only() {
    let listed = clean_command(crate::kit::PITON).env("LD_TRACE_LOADED_OBJECTS", "1").output().expect("a list");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let names = listed.lines().filter_map(|line| line.split_whitespace().next()?.rsplit('/').next());
    let known = ["linux-vdso.so", "linux-gate.so", "libc.so", "libgcc_s.so", "ld-linux"];
    let others: Vec<_> = names.filter(|name| !known.iter().any(|known| name.starts_with(known))).collect();
    assert!(others.is_empty() && listed.contains("libc.so"), "{listed}");
}
