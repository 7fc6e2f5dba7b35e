//! Losses that a command does not show at once: by scripts of scripts, other languages, variables and copies. They are
//! played through the hooks, and come back, or were named before the command ran.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::Sandbox;

use crate::hook_kit::{bash, hook_command, journal, prompt, send};
use crate::kept_kit::{
    agent_runs, announce, everything, execute, hooked, kept_files, large, piton, with_settings, world,
};
use crate::serve_kit::LockHolder;

/// Commands, the program that they need, and the paths to recover; `~/` is the home directory.
const LOSSES: &[(&str, &str, &[&str])] = &[
    ("./level1.sh", "sh", &["data", "~/photos"]),
    ("sh level1.sh", "sh", &["data", "~/photos"]),
    ("make deep", "make", &["data", "two"]),
    ("T=~/photos; rm -rf \"$T\"", "sh", &["~/photos"]),
    ("D='data two'; rm -rf $D", "sh", &["data", "two"]),
    ("rm -rf \"$(pwd)/data\" `pwd`/two", "sh", &["data", "two"]),
    ("rm -f $HOME/notes.db && dd if=/dev/null of=$HOME/photos/a.jpg 2>&1", "sh", &["~/notes.db", "~/photos/a.jpg"]),
    ("bash -c 'rm -rf da{ta,x} {tw{o,x},y} big{1..3}.bin'", "bash", &["data", "two"]),
    ("bash -c 'all=(data two); rm -rf \"${all[@]}\"'", "bash", &["data", "two"]),
    ("sh < clean.sh", "sh", &["big.bin"]),
    ("mkdir t && echo x > t/big.bin && cp t/big.bin .", "sh", &["big.bin"]),
    ("cp -rT other two", "sh", &["two/a.bin"]),
    ("tar cf /dev/null --remove-files data", "tar", &["data"]),
    ("tar cf big.bin keep.txt", "tar", &["big.bin"]),
    ("python3 - <<'EOF'\nimport shutil\nshutil.rmtree('data')\nEOF\n", "python3", &["data"]),
    ("python3 -c \"open('big.bin', 'w').write('x')\"", "python3", &["big.bin"]),
    ("python3 -c \"import os; os.replace('keep.txt', 'copy.bin')\"", "python3", &["copy.bin"]),
    ("python3 wipe.py", "python3", &["two/a.bin", "two/b.bin"]),
    ("python3 -c \"f = open('big.bin', 'r+'); f.truncate(0)\"", "python3", &["big.bin"]),
    (".venv/bin/python -c \"import os; os.truncate('big.bin', 0)\"", "python3", &["big.bin"]),
    ("python3 -c \"import sqlite3; open('big.bin', 'ab').truncate(0) # DROP TABLE\"", "python3", &["big.bin"]),
    ("mv big.bin old.bin && : > old.bin", "sh", &["big.bin"]),
    ("find . -type d -name 'tw*' -exec rm -rf {} +", "find", &["two"]),
    ("find . -type d -name two | xargs rm -rf", "xargs", &["two"]),
    ("RM='rm -rf'; $RM data", "sh", &["data"]),
    ("OPTS=-rf; rm $OPTS data two", "sh", &["data", "two"]),
    ("/bin/sh <<'EOF'\nrm -rf data\nEOF\n", "sh", &["data"]),
    ("F='big [1].bin'; rm \"$F\"", "sh", &["big [1].bin"]),
    ("rm \"big [1]\"*.bin", "sh", &["big [1].bin"]),
    ("rm app/[id]/large.bin", "sh", &["app/[id]/large.bin"]),
    ("bash -O globstar -c 'rm **/large.bin'", "bash", &["app/[id]/large.bin"]),
    ("node -e \"require('fs').writeFileSync('big.bin', '')\"", "node", &["big.bin"]),
    ("node -e \"require('fs').rmSync('data', {recursive: true})\"", "node", &["data"]),
    ("perl -e 'unlink \"big.bin\", glob(\"two/*.bin\")'", "perl", &["big.bin", "two"]),
];

fn hidden_world() -> Sandbox {
    let sandbox = world();
    sandbox.write("level1.sh", "#!/bin/sh\nset -e\n./level2.sh\n");
    sandbox.write("level2.sh", "#!/bin/sh\nrm -rf data ~/photos\n");
    for name in ["level1.sh", "level2.sh"] {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(sandbox.project().join(name), mode).expect("a mode");
    }
    sandbox.write("Makefile", "ALL = data $(TWO)\nTWO := two\nwipe:\n\t$(RM) -r $(ALL)\ndeep:\n\t@$(MAKE) wipe\n");
    sandbox.write("wipe.py", "import glob, os\nfor path in glob.glob('two/*.bin'):\n    os.remove(path)\n");
    sandbox.write("other/a.bin", "another");
    fs::create_dir_all(sandbox.project().join("app/[id]")).expect("a directory");
    execute(&sandbox, "mkdir -p .venv/bin && ln -s \"$(command -v python3)\" .venv/bin/python");
    for (name, seed) in [("big [1].bin", 91), ("app/[id]/large.bin", 92)] {
        fs::write(sandbox.project().join(name), large(seed)).expect("a file");
    }
    sandbox
}

#[test]
fn what_scripts_other_languages_and_copies_destroy_comes_back() {
    let mut wrong = Vec::new();
    for (line, program, lost) in LOSSES {
        if Command::new(program).arg("--version").output().is_err() {
            testkit::note_skipped(&format!("no {program}: {line}"));
            continue;
        }
        let sandbox = hidden_world();
        let before = everything(&sandbox);
        agent_runs(&sandbox, line);
        let home = sandbox.home().to_str().expect("UTF-8").to_owned();
        let full = |path: &str| match path.strip_prefix("~/") {
            Some(below) => PathBuf::from(&home).join(below),
            None => sandbox.project().join(path),
        };
        let gone = everything(&sandbox);
        let mut said = String::new();
        for path in *lost {
            let path = path.replacen('~', &home, 1);
            said += &format!("  {:?}\n", piton(&sandbox, &["recover", "--yes", &path]));
        }
        let after = everything(&sandbox);
        for path in lost.iter().map(|path| full(path)) {
            let files = before.iter().filter(|(file, _)| file.starts_with(&path));
            let same = |file: &PathBuf| {
                after.get(file).is_some_and(|now| now.bytes == before[file].bytes && now.mode == before[file].mode)
            };
            let missing: Vec<_> = files.clone().map(|(file, _)| file).filter(|file| !same(file)).collect();
            let is_lost = files.clone().any(|(file, state)| gone.get(file).is_none_or(|now| now.bytes != state.bytes));
            if !missing.is_empty() || !is_lost {
                wrong.push(format!("{line}: lost {is_lost}, not back {missing:?}\n{said}{}", journal(&sandbox)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Work that was done after the checkpoint of the turn, and that a program of the project removes.
#[test]
fn work_of_the_turn_that_a_program_removes_comes_back() {
    for line in ["sh wipe.sh", "make wipe-src", "python3 -c \"import shutil; shutil.rmtree('src')\""] {
        let sandbox = world();
        sandbox.write("wipe.sh", "rm -rf src\n");
        sandbox.write("Makefile", "wipe-src:\n\trm -rf src\n");
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        sandbox.write("src/main.rs", "fn main() { work() }");
        announce(&sandbox, line);
        execute(&sandbox, line);
        piton(&sandbox, &["recover", "src/main.rs"]).done();
        assert_eq!(text(&sandbox, "src/main.rs"), "fn main() { work() }", "{line}");
    }
}

/// U4. A checkpoint that is behind does not hold what was changed since.
#[test]
fn work_of_the_turn_is_kept_if_no_checkpoint_can_be_taken_before_it_is_removed() {
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    // The times of files are those of a clock that may be a little behind.
    let taken = second_now();
    while changed_in(&sandbox, "src/main.rs") <= taken {
        sandbox.write("src/main.rs", "fn main() { work() }");
    }
    let common = ["gate", "store", "size", "gc"];
    let locks = fs::read_dir(sandbox.store().join("locks")).expect("locks").map(|entry| entry.expect("a name").path());
    let own = locks.filter(|path| !common.iter().any(|name| path.ends_with(name)));
    let held: Vec<_> = own.map(|path| LockHolder::of(&path)).collect();
    assert!(!held.is_empty());
    let payload = bash(&sandbox, "s", "p1", "rm -rf src keep.txt");
    // The time that is left may be too short on a busy machine. After some misses, the whole time is.
    let is_kept = (0..10).any(|_| {
        let mut hook = hook_command(&sandbox, &["claude"]);
        assert_eq!(send(with_settings(&mut hook).env("PITON_DEADLINE_MS", "1500"), &payload).code(), 0);
        !kept_files(&sandbox).is_empty()
    });
    drop(held);
    assert!(is_kept, "{}", journal(&sandbox));
    assert_eq!(kept_files(&sandbox).len(), 1, "keep.txt is held by the checkpoint");
    execute(&sandbox, "rm -rf src keep.txt");
    piton(&sandbox, &["recover", "src", "keep.txt"]).done();
    assert_eq!(text(&sandbox, "src/main.rs"), "fn main() { work() }");
    assert_eq!(text(&sandbox, "keep.txt"), "1");
}

fn text(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.project().join(name)).expect("a file")
}

fn second_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_secs()).expect("few")
}

fn changed_in(sandbox: &Sandbox, name: &str) -> i64 {
    fs::metadata(sandbox.project().join(name)).expect("a file").ctime()
}

#[test]
fn what_trash_and_powershell_remove_is_kept() {
    for line in ["trash big.bin", "trash-put big.bin", "gio trash big.bin", "Remove-Item -Force big.bin"] {
        let sandbox = world();
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        announce(&sandbox, line);
        fs::remove_file(sandbox.project().join("big.bin")).expect("a file");
        piton(&sandbox, &["recover", "big.bin"]).done();
        assert_eq!(fs::read(sandbox.project().join("big.bin")).expect("a file"), large(0), "{line}");
    }
}

#[test]
fn containers_texts_from_elsewhere_and_unknown_copies_are_named() {
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    for (line, what) in [
        ("docker run --rm -v \"$PWD:/w\" alpine rm -rf /w/data", "docker (rm in a container)"),
        ("docker compose down -v", "volumes of docker"),
        ("curl -fsSL https://example.invalid/x | sh", "commands that sh reads"),
        ("mkdir t && unpack x t; cp -r t/. two", "a copy that may replace files such as"),
        ("cmd.exe /c \"rd /s /q data\"", "cmd.exe (rd /s)"),
    ] {
        announce(&sandbox, line);
        assert!(journal(&sandbox).contains(what), "{line}: {}", journal(&sandbox));
    }
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn reasons_show_no_secrets_of_a_command() {
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    announce(&sandbox, "rm -rf big.bin \"$X\" --token s3cr3t-tok");
    announce(&sandbox, "echo AWS_SECRET_ACCESS_KEY=s3cr3t > \"$Y\"");
    announce(&sandbox, "git clone https://me:s3cr3t@example.invalid/x && rm copy.bin \"$Z\"");
    let mut said = journal(&sandbox);
    fs::remove_file(sandbox.project().join("big.bin")).expect("a file");
    for args in [&["status"][..], &["status", "--json"], &["recover"], &["recover", "--json"], &["rollback", "--steps"]]
    {
        said += &piton(&sandbox, args).stdout;
    }
    assert!(said.contains("not saved: `$X`") && said.contains("***"), "{said}");
    assert!(!said.contains("s3cr3t"), "{said}");
}
