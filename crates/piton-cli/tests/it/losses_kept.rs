//! Large files of a project, and files outside of every project, that commands of an agent destroy: played through the
//! hooks, and brought back by the documented commands.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, note_skipped, walk};

use crate::hook_kit::{bash, hook_command, journal, prompt, send};
use crate::kept_kit::{
    FileState, agent_runs, announce, everything, execute, filled, hooked, kept_files, large, piton, with_settings,
    world,
};

/// Commands, and the paths to recover; `~/` is the home directory.
const LOSSES: &[(&str, &[&str])] = &[
    ("rm big.bin", &["big.bin"]),
    ("rm -f big.bin copy.bin", &["big.bin", "copy.bin"]),
    ("rm *.bin", &["big.bin", "copy.bin"]),
    ("rm -rf data", &["data"]),
    ("rm -rf data/deep", &["data/deep"]),
    ("rm -rf two", &["two"]),
    ("unlink big.bin", &["big.bin"]),
    ("mv copy.bin big.bin", &["big.bin"]),
    ("mv -f keep.txt data/set.bin", &["data/set.bin"]),
    ("cp keep.txt big.bin", &["big.bin"]),
    ("cp /dev/null big.bin", &["big.bin"]),
    ("echo gone > big.bin", &["big.bin"]),
    (": > data/set.bin", &["data/set.bin"]),
    ("echo x | tee big.bin", &["big.bin"]),
    ("truncate -s 0 big.bin", &["big.bin"]),
    ("dd if=/dev/zero of=big.bin bs=1k count=1 status=none", &["big.bin"]),
    ("shred -n 1 big.bin", &["big.bin"]),
    ("shred -u -n 1 data/set.bin", &["data/set.bin"]),
    ("sed -i s/a/b/ big.bin", &["big.bin"]),
    ("find . -name '*.bin' -delete", &["big.bin", "copy.bin", "data", "two"]),
    ("find two -type f -exec rm {} +", &["two"]),
    ("find data -name 'set*' | xargs rm", &["data/set.bin"]),
    ("for f in two/*.bin; do rm \"$f\"; done", &["two"]),
    ("D=data; rm -rf \"$D\"", &["data"]),
    ("cd data && rm -r deep", &["data/deep"]),
    ("bash -c 'rm -rf data'", &["data"]),
    ("mkdir empty && rsync -a --delete empty/ data/ 2>/dev/null || rm -rf data/*", &["data"]),
    ("./clean.sh", &["big.bin"]),
    ("sh clean.sh", &["big.bin"]),
    ("rm ~/thesis.txt", &["~/thesis.txt"]),
    ("echo x > ~/thesis.txt", &["~/thesis.txt"]),
    ("rm -f $HOME/notes.db", &["~/notes.db"]),
    ("mv keep.txt ~/notes.db", &["~/notes.db"]),
    ("rm -rf ~/photos", &["~/photos"]),
    ("rm ~/photos/a.jpg", &["~/photos/a.jpg"]),
    ("ln -sf /dev/null ~/thesis.txt", &["~/thesis.txt"]),
];

#[test]
fn every_loss_comes_back_by_recover() {
    let mut wrong = Vec::new();
    for (line, lost) in LOSSES {
        let sandbox = world();
        let before = everything(&sandbox);
        agent_runs(&sandbox, line);
        let home = sandbox.home().to_str().expect("UTF-8").to_owned();
        let paths: Vec<String> = lost.iter().map(|path| path.replacen('~', &home, 1)).collect();
        let mut args = vec!["recover", "--yes"];
        args.extend(paths.iter().map(String::as_str));
        let ran = piton(&sandbox, &args);
        let after = everything(&sandbox);
        let full = |path: &str| if path.starts_with('/') { PathBuf::from(path) } else { sandbox.project().join(path) };
        let is_named = |path: &Path| paths.iter().any(|wanted| path.starts_with(full(wanted)));
        let named = before.iter().filter(|(path, _)| is_named(path));
        // Checkpoints keep no times.
        let is_back = |path: &PathBuf, state: &FileState| {
            after.get(path).is_some_and(|now| (&now.bytes, now.mode) == (&state.bytes, state.mode))
        };
        let missing: Vec<_> =
            named.clone().filter(|(path, state)| !is_back(path, state)).map(|(path, _)| path).collect();
        if ran.code() != 0 || !missing.is_empty() || named.count() == 0 {
            wrong.push(format!("{line}\n  not back: {missing:?}\n  {ran:?}\n  {}", journal(&sandbox)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the identity and the attributes of a file that a hard link must not change.
fn attributes(path: &Path) -> (u64, u32, u32, u32, i64, i64, u64) {
    let stat = fs::symlink_metadata(path).expect("a file");
    (stat.ino(), stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.mtime_nsec(), stat.size())
}

/// U7, U3.
#[test]
fn a_link_changes_nothing_of_the_file_and_is_released_by_unlinking_it() {
    let sandbox = world();
    let (set, other) = (sandbox.project().join("data/set.bin"), sandbox.project().join("data/second name"));
    fs::hard_link(&set, &other).expect("a link");
    let before = attributes(&other);
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    announce(&sandbox, "rm data/set.bin");
    assert_eq!(attributes(&set), before, "kept, and not changed");
    execute(&sandbox, "rm data/set.bin");
    let kept = kept_files(&sandbox);
    assert_eq!((kept.len(), attributes(&other)), (1, before));
    let report = piton(&sandbox, &["prune", "--kept", "--json"]).done().json();
    assert_eq!((&report["released"], attributes(&other)), (&json!(1), before));
    assert_eq!(fs::metadata(&other).expect("a file").nlink(), 1);
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn a_command_that_did_not_run_lost_nothing_and_is_kept_once() {
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    for _ in 0..3 {
        announce(&sandbox, "rm big.bin ~/thesis.txt");
    }
    assert_eq!(kept_files(&sandbox).len(), 2, "once each");
    let report = piton(&sandbox, &["recover", "--all", "--json"]).done().json();
    assert_eq!((&report["outcome"], &report["items"]), (&json!("nothing_lost"), &json!([])));
}

/// U4.
#[test]
fn what_a_checkpoint_holds_and_what_is_built_again_is_not_kept() {
    let sandbox = world();
    fs::create_dir_all(sandbox.project().join("node_modules/x")).expect("a directory");
    fs::write(sandbox.project().join("node_modules/x/large.js"), large(9)).expect("a file");
    agent_runs(&sandbox, "rm -rf src keep.txt node_modules");
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0]);
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    announce(&sandbox, "ls -l; git status; cargo --version");
    assert!(!sandbox.base().join("local/files").exists(), "harmless commands make nothing");
}

/// U2.
#[test]
fn a_recovery_saves_what_is_there_and_is_taken_back() {
    let sandbox = world();
    let thesis = sandbox.home().join("thesis.txt");
    agent_runs(&sandbox, "rm ~/thesis.txt big.bin");
    fs::write(&thesis, "a second thesis\n").expect("a file");
    let name = thesis.to_str().expect("UTF-8");
    let declined = piton(&sandbox, &["recover", name]);
    assert_eq!((declined.code(), fs::read_to_string(&thesis).expect("a file").as_str()), (1, "a second thesis\n"));
    assert!(declined.stderr.contains("`--yes` agrees to write outside of every project"), "{declined:?}");
    let plan = piton(&sandbox, &["recover", name, "--dry-run", "--json"]).done().json();
    let item = &plan["items"][0];
    assert_eq!((&item["kind"], &item["replaced"], &item["path"]), (&json!("kept"), &json!(true), &json!(name)));
    let report = piton(&sandbox, &["recover", name, "--yes", "--json"]).done().json();
    assert_eq!((&report["outcome"], &report["recovered"]), (&json!("recovered"), &json!([name])));
    assert_eq!(fs::read_to_string(&thesis).expect("a file"), "years of work\n");
    let id = report["recovery"].as_str().expect("a name").to_owned();
    let undone = piton(&sandbox, &["recover", "--undo", &id, "--json"]).done().json();
    assert_eq!((&undone["files"], &undone["left"]), (&json!([name]), &json!([])));
    assert_eq!(fs::read_to_string(&thesis).expect("a file"), "a second thesis\n");
    // A file that was missing goes again, unless it was changed since.
    let report = piton(&sandbox, &["recover", "big.bin", "--json"]).done().json();
    let id = report["recovery"].as_str().expect("a name").to_owned();
    assert_eq!(fs::read(sandbox.project().join("big.bin")).expect("a file"), large(0));
    fs::write(sandbox.project().join("big.bin"), "edited").expect("a file");
    let left = piton(&sandbox, &["recover", "--undo", &id, "--json"]);
    assert_eq!((left.code(), &left.json()["left"][0]["why"]), (3, &json!("it was changed since")));
    assert_eq!(fs::read_to_string(sandbox.project().join("big.bin")).expect("a file"), "edited");
    assert_eq!(piton(&sandbox, &["recover", "--undo", "r-12345678"]).code(), 4);
}

/// A file that is written in place shows in its hard link; a recovery says so.
#[test]
fn a_link_that_was_written_to_since_says_so_and_older_versions_have_names() {
    let sandbox = world();
    let (set, other) = (sandbox.project().join("data/set.bin"), sandbox.project().join("data/second name"));
    fs::hard_link(&set, &other).expect("a link");
    agent_runs(&sandbox, "rm data/set.bin");
    fs::write(&other, "written in place").expect("a file");
    let clones = fs::read(kept_files(&sandbox).first().expect("kept")).expect("a file") != b"written in place";
    let item = piton(&sandbox, &["recover", "--json"]).done().json()["items"][0].clone();
    assert_eq!((&item["path"], &item["changed_since"]), (&json!("data/set.bin"), &json!(!clones)));
    fs::write(&set, "a new one").expect("a file");
    announce(&sandbox, "rm data/set.bin");
    execute(&sandbox, "rm data/set.bin");
    piton(&sandbox, &["recover", "data/set.bin"]).done();
    assert_eq!(fs::read_to_string(&set).expect("a file"), "a new one", "the newest");
    let first = item["from"].as_str().expect("a name");
    piton(&sandbox, &["recover", "data/set.bin", "--from", first]).done();
    let want = if clones { large(2) } else { b"written in place".to_vec() };
    assert_eq!(fs::read(&set).expect("a file"), want);
}

#[test]
fn of_a_kept_file_and_a_checkpoint_the_newer_version_comes_back() {
    let sandbox = world();
    let big = sandbox.project().join("big.bin");
    agent_runs(&sandbox, "rm big.bin");
    fs::write(&big, "small now").expect("a file");
    announce(&sandbox, "rm big.bin");
    execute(&sandbox, "rm big.bin");
    let report = piton(&sandbox, &["recover", "big.bin", "--json"]).done().json();
    assert_eq!((report["items"].as_array().map(Vec::len), &report["items"][0]["kind"]), (Some(1), &json!("file")));
    assert_eq!(fs::read_to_string(&big).expect("a file"), "small now");
    let kept = piton(&sandbox, &["recover", "--all", "--json"]).done().json()["items"][0].clone();
    assert_eq!((&kept["kind"], &kept["replaced"]), (&json!("kept"), &json!(true)));
    piton(&sandbox, &["recover", "big.bin", "--from", kept["from"].as_str().expect("a name")]).done();
    assert_eq!(fs::read(&big).expect("a file"), large(0));
}

fn unsaved(sandbox: &Sandbox) -> Vec<String> {
    let status = piton(sandbox, &["status", "--json"]).done().json();
    let text = |event: &Value| event["why"].as_str().expect("a text").to_owned();
    status["unsaved"].as_array().expect("a list").iter().map(text).collect()
}

#[test]
fn what_could_not_be_saved_is_named_before_the_command_runs_and_until_it_was_seen() {
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    let mut limited = hook_command(&sandbox, &["claude"]);
    with_settings(&mut limited).env("PITON_KEEP_TOTAL_SIZE_MB", "1");
    send(&mut limited, bash(&sandbox, "s", "p1", "echo x > big.bin"));
    announce(&sandbox, "rm -rf \"$SOMEWHERE/x\"");
    announce(&sandbox, "python3 -c 'import shutil; shutil.rmtree(\"data\")'");
    fs::write(sandbox.project().join("tidy.py"), "import os\nos.remove('big.bin')\n").expect("a script");
    announce(&sandbox, "python3 tidy.py");
    announce(&sandbox, "make distclean");
    let told = unsaved(&sandbox);
    let has = |words: &[&str]| told.iter().any(|line| words.iter().all(|word| line.contains(word)));
    let clones = !has(&["big.bin (2 MB)"]);
    assert!(clones || has(&["echo x > big.bin", "big.bin (2 MB)", "keep_total_size_mb"]), "{told:#?}");
    assert!(has(&["$SOMEWHERE/x", "cannot be told from the command"]), "{told:#?}");
    assert!(has(&["python3 (rmtree)"]) && has(&["python3 tidy.py (os.remove)"]), "{told:#?}");
    assert!(has(&["make distclean"]), "{told:#?}");
    // The hook has written it down before the command runs, and doctor says it, too.
    assert!(journal(&sandbox).contains("$SOMEWHERE/x"), "{}", journal(&sandbox));
    let doctor = piton(&sandbox, &["doctor"]).stdout;
    assert!(
        doctor.contains("could not be saved before a command ran") && doctor.contains("make distclean"),
        "{doctor}"
    );
    let text = piton(&sandbox, &["status"]).done().stdout;
    assert!(text.contains("$SOMEWHERE/x") && text.contains("piton status --ack"), "{text}");
    piton(&sandbox, &["status", "--ack"]).done();
    assert_eq!(unsaved(&sandbox), [] as [String; 0]);
}

#[test]
fn scripts_makefiles_and_packages_are_read_one_level_deep() {
    for (line, runs) in [("./clean.sh", true), ("make clean", true), ("npm run clean", false)] {
        let sandbox = world();
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        announce(&sandbox, line);
        assert!(!kept_files(&sandbox).is_empty(), "{line}: {}", journal(&sandbox));
        if runs && (line != "make clean" || Command::new("make").arg("--version").output().is_ok()) {
            execute(&sandbox, line);
            let lost = piton(&sandbox, &["recover", "--json"]).done().json();
            assert_eq!(lost["items"][0]["kind"], "kept", "{line}: {lost}");
        }
    }
}

/// A file system of its own, unmounted on drop.
struct LoopDisk(PathBuf);

impl LoopDisk {
    /// Returns `None` if it cannot be made or mounted here.
    fn mount(dir: &Path, kind: &str) -> Option<Self> {
        let (image, at) = (dir.join("image"), dir.join("disk"));
        fs::create_dir(&at).expect("a directory");
        fs::File::create(&image).expect("a file").set_len(512 << 20).expect("room");
        let ok = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_mounted = ok(clean_command(format!("mkfs.{kind}")).arg("-q").arg(&image))
            && ok(clean_command("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        is_mounted.then_some(Self(at))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = clean_command("umount").arg("-l").arg(&self.0).output();
    }
}

/// A clone is not a link: what is written to the file in place does not reach it.
#[test]
fn where_files_can_be_cloned_all_that_is_destroyed_is_kept_by_clones() {
    for kind in ["btrfs", "xfs"] {
        let outer = Sandbox::new();
        let Some(disk) = LoopDisk::mount(&outer.root(), kind) else {
            note_skipped(&format!("cannot mount {kind}"));
            continue;
        };
        let sandbox = filled(Sandbox::new_in(&disk.0));
        let before = everything(&sandbox);
        let lines = ["echo x > big.bin", "rm -rf data", "truncate -s 0 ~/notes.db", "shred -n 1 two/a.bin"];
        for line in lines {
            agent_runs(&sandbox, line);
        }
        let mut ways = Vec::new();
        walk(&sandbox.base().join("local/files"), &mut |path| {
            if path.file_name().is_some_and(|name| name == "manifest") {
                let text = fs::read_to_string(path).expect("a list");
                let files = text.lines().skip(1).filter(|line| !line.starts_with("dir "));
                ways.extend(files.map(|line| line.split(' ').next().unwrap_or_default().to_owned()));
            }
        });
        assert_eq!(ways, ["clone"; 5], "{kind}");
        assert!(kept_files(&sandbox).iter().all(|path| fs::metadata(path).expect("a file").nlink() == 1));
        piton(&sandbox, &["recover", "big.bin", "data", "two"]).done();
        piton(&sandbox, &["recover", "--yes", sandbox.home().join("notes.db").to_str().expect("UTF-8")]).done();
        assert_eq!(everything(&sandbox), before, "{kind}");
    }
}

/// U5.
#[test]
fn a_disk_that_is_nearly_full_releases_everything_and_keeps_nothing() {
    let sandbox = world();
    agent_runs(&sandbox, "rm big.bin");
    assert_eq!(kept_files(&sandbox).len(), 1);
    let status = piton(&sandbox, &["status", "--json"]).done().json();
    assert_eq!((&status["kept"]["files"], &status["kept"]["bytes"]), (&json!(1), &json!(2 << 20)));
    let mut full = hook_command(&sandbox, &["claude"]);
    with_settings(&mut full).env("PITON_KEEP_MIN_FREE_MB", "1000000000");
    send(&mut full, bash(&sandbox, "s", "p1", "rm copy.bin"));
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0]);
    let told = unsaved(&sandbox);
    assert!(told.iter().any(|line| line.contains("copy.bin: the disk is nearly full (keep_min_free_mb")), "{told:#?}");
    assert!(journal(&sandbox).contains("the kept files of 1 destroyed paths were released"), "{}", journal(&sandbox));
}

#[test]
fn kept_files_expire_and_clear_removes_them() {
    let sandbox = world();
    agent_runs(&sandbox, "rm big.bin");
    hooked(&sandbox, &prompt(&sandbox, "s", "p2", "go on"));
    assert_eq!(kept_files(&sandbox).len(), 1, "it is young");
    // The name of a set has the time at which it was kept.
    let dir = sandbox.base().join("local/files");
    let set = fs::read_dir(&dir).expect("sets").next().expect("one").expect("an entry").file_name();
    let parts: Vec<String> = set.to_str().expect("UTF-8").split('.').map(str::to_owned).collect();
    let secs = i64::from_str_radix(&parts[1], 16).expect("a time") - 8 * 24 * 60 * 60;
    fs::rename(dir.join(&set), dir.join(format!("{}.{secs:010x}.{}", parts[0], parts[2]))).expect("renamed");
    hooked(&sandbox, &prompt(&sandbox, "s", "p3", "go on"));
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0], "older than keep_days");
    announce(&sandbox, "rm copy.bin");
    assert_eq!(kept_files(&sandbox).len(), 1);
    piton(&sandbox, &["clear", "--force"]).done();
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn a_pattern_that_git_clean_spares_hides_nothing_of_what_it_removes() {
    for line in ["git clean -fdxq -e .env", "git clean -fdxq -enode_modules"] {
        let sandbox = world();
        execute(&sandbox, "git init -q");
        agent_runs(&sandbox, line);
        piton(&sandbox, &["recover", "big.bin", "data"]).done();
        assert_eq!(fs::read(sandbox.project().join("big.bin")).expect("a file"), large(0), "{line}");
        assert_eq!(fs::read(sandbox.project().join("data/deep/other.bin")).expect("a file"), large(3), "{line}");
    }
}

#[test]
fn a_large_tracked_file_with_changes_is_kept_before_git_replaces_it() {
    let lines = [
        "git restore bigdata",
        "git restore -s HEAD -- bigdata",
        "git checkout -q -- bigdata",
        "git restore .",
        "git checkout -q .",
        "git checkout -q HEAD -- .",
        "git restore ':/'",
        "git restore 'big*'",
        "git reset -q --hard",
        "git checkout -q -f",
    ];
    for line in lines {
        let sandbox = world();
        let file = sandbox.project().join("bigdata");
        fs::write(&file, large(40)).expect("a file");
        execute(&sandbox, "git init -q && git add bigdata && git -c user.name=a -c user.email=a commit -qm one");
        fs::write(&file, large(41)).expect("a file");
        agent_runs(&sandbox, line);
        assert_eq!(fs::read(&file).expect("a file"), large(40), "{line}");
        piton(&sandbox, &["recover", "bigdata"]).done();
        assert_eq!(fs::read(&file).expect("a file"), large(41), "{line}");
    }
    let sandbox = world();
    execute(&sandbox, "git init -q && git add big.bin");
    agent_runs(&sandbox, "git restore --staged . || git reset -q");
    assert_eq!(kept_files(&sandbox), [] as [PathBuf; 0], "the index only");
}

/// An ignored file is saved with checkpoints up to another size than a file in scope.
#[test]
fn an_ignored_file_between_the_two_limits_is_kept_before_a_tool_writes_it() {
    let sandbox = world();
    let set = sandbox.project().join("data/set.bin");
    let event = json!({"session_id": "s", "prompt_id": "p1", "transcript_path": "/t", "cwd": sandbox.project(),
        "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": {"file_path": set, "content": "c"}});
    for payload in [prompt(&sandbox, "s", "p1", "go"), event.to_string()] {
        let mut hook = hook_command(&sandbox, &["claude"]);
        send(with_settings(&mut hook).env("PITON_MAX_FILE_SIZE_MB", "10"), payload);
    }
    fs::write(&set, "c").expect("a file");
    piton(&sandbox, &["recover", "data/set.bin"]).done();
    assert_eq!(fs::read(&set).expect("a file"), large(2));
    let kept = kept_files(&sandbox).len();
    let in_scope = json!({"session_id": "s", "prompt_id": "p1", "transcript_path": "/t", "cwd": sandbox.project(),
        "hook_event_name": "PreToolUse", "tool_name": "Write",
        "tool_input": {"file_path": sandbox.project().join("big.bin"), "content": "c"}});
    let mut hook = hook_command(&sandbox, &["claude"]);
    send(with_settings(&mut hook).env("PITON_MAX_FILE_SIZE_MB", "10"), in_scope.to_string());
    assert_eq!(kept_files(&sandbox).len(), kept, "a checkpoint holds it");
}

#[test]
fn a_directory_of_the_system_never_becomes_a_project() {
    let sandbox = world();
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    for line in [
        "dd if=big.bin of=/dev/null",
        "tar cf /dev/null src",
        "echo 3 > /proc/sys/vm/nothing",
        "tee /sys/nothing < keep.txt",
        "touch /etc/nothing",
        "rm -f /usr/lib/nothing",
        "mkdir -p /run/nothing",
    ] {
        announce(&sandbox, line);
    }
    let list = piton(&sandbox, &["status", "--json"]).done().json();
    let text = list.to_string();
    for dir in ["/dev", "/proc", "/sys", "/etc", "/usr", "/run"] {
        assert!(!text.contains(&format!("\"{dir}")), "{dir}: {text}");
    }
    let mut projects = Vec::new();
    walk(&sandbox.base(), &mut |path| {
        if path.is_file() && path.to_string_lossy().contains("projects") {
            projects.push(fs::read_to_string(path).unwrap_or_default());
        }
    });
    assert!(!projects.iter().any(|text| text.contains("/dev") || text.contains("/proc/sys/vm")), "{projects:?}");
    assert_eq!(unsaved(&sandbox), [] as [String; 0]);
}

#[test]
fn copies_of_a_directory_downloads_and_moves_that_end_in_a_removal_are_kept() {
    for (told, run, path, seed) in [
        ("cp -r other/. .", "cp -r other/. .", "big.bin", 0),
        ("cp -a other/. ./", "cp -a other/. ./", "two/a.bin", 4),
        ("curl -sO https://example.invalid/x/big.bin?y=1", "cp other/big.bin big.bin", "big.bin", 0),
        ("curl -fsSLO --output-dir two https://example.invalid/a.bin", "echo x > two/a.bin", "two/a.bin", 4),
        ("curl -so big.bin https://example.invalid/", "cp other/big.bin big.bin", "big.bin", 0),
        ("wget -qO big.bin https://example.invalid/", "cp other/big.bin big.bin", "big.bin", 0),
        ("mv data ~/trash; rm -rf ~/trash", "mv data ~/trash; rm -rf ~/trash", "data/set.bin", 2),
        ("mkdir ~/t && mv data ~/t && rm -r ~/t/data", "mkdir ~/t && mv data ~/t && rm -r ~/t/data", "data/set.bin", 2),
    ] {
        let sandbox = world();
        fs::create_dir_all(sandbox.project().join("other/two")).expect("a directory");
        for name in ["big.bin", "two/a.bin"] {
            fs::write(sandbox.project().join("other").join(name), "x").expect("a file");
        }
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        announce(&sandbox, told);
        execute(&sandbox, run);
        assert_ne!(fs::read(sandbox.project().join(path)).unwrap_or_default(), large(seed), "{told}");
        let ran = piton(&sandbox, &["recover", path]);
        assert_eq!(fs::read(sandbox.project().join(path)).unwrap_or_default(), large(seed), "{told}: {ran:?}");
    }
}

#[test]
fn an_archive_that_may_replace_unsaved_files_is_named() {
    for line in ["tar xf x.tar", "tar -xzf x.tgz -C two", "tar -x -f x.tar", "unzip -o x.zip", "unzip -qo x.zip -d two"]
    {
        let sandbox = world();
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        announce(&sandbox, line);
        let told = unsaved(&sandbox);
        assert!(told.iter().any(|one| one.contains(line) && one.contains(".bin")), "{line}: {told:#?}");
    }
    for line in ["tar xf x.tar -C src", "tar cf x.tar two", "unzip -l x.zip", "unzip -n x.zip", "tar tf x.tar"] {
        let sandbox = world();
        hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
        announce(&sandbox, line);
        assert_eq!(unsaved(&sandbox), [] as [String; 0], "{line}");
    }
}
