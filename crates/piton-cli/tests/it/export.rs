//! Reading files out of checkpoints: `cat`, `export` to a directory, to a tar archive and as a patch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Sandbox, clean_command, git};

use crate::hook_kit::{bash, hook, prompt};
use crate::kit::{PITON, Ran, command, piton, run};
use crate::restore_kit::{State, assert_same, state_of, text};
use crate::sweep::{After, Scene, fail, kill};

/// Everything that a checkpoint can hold: modes, links, empty directories, long names and names that are not UTF-8.
fn prepare(sandbox: &Sandbox) -> String {
    sandbox.tree("a = 1\n *run = 2\n dir/er/b = 3\n empty/in/\n link -> dir/er/b\n dangling -> nowhere\n closed/x = 4");
    let long = [b"long/".as_slice(), &[b'n'; 180], b"/", &[b'm'; 180]].concat();
    sandbox.write(&long, "deep");
    sandbox.link("long/link", [b't'; 300]);
    sandbox.write(b"not \xff UTF-8", "bytes");
    sandbox.write("exactly-100-".to_owned() + &"x".repeat(88), "fits");
    sandbox.write("large", (0..3_000_000_u32).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    sandbox.write("none", "");
    for (path, mode) in [("a", 0o600), ("closed/x", 0o444), ("closed", 0o555), ("empty", 0o700)] {
        sandbox.chmod(path, mode);
    }
    piton(sandbox, ["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned()
}

/// Returns the bytes that a command prints.
fn bytes(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

#[test]
fn cat_prints_the_bytes_that_git_has() {
    let sandbox = Sandbox::new();
    let id = prepare(&sandbox);
    fs::remove_file(sandbox.path("large")).expect("a file");
    for path in ["a", "run", "dir/er/b", "link", "large", "none"] {
        let want = sandbox.store_git(&["cat-file", "blob", &format!("{id}:{path}")]);
        assert_eq!(bytes(command(&sandbox).args(["cat", "1", path])), want, "{path}");
        assert_eq!(bytes(command(&sandbox).args(["cat", &id[..8], path])), want, "{path}");
    }
    let odd = testkit::os(b"not \xff UTF-8");
    assert_eq!(bytes(command(&sandbox).args(["cat", "1"]).arg(&odd)), b"bytes");
    let report = run(command(&sandbox).args(["cat", "--json", "1"]).arg(&odd)).done().json();
    assert_eq!((&report["path_bytes"], &report["contents"]), (&"not%20%ff%20UTF-8".into(), &"bytes".into()));
    let report = piton(&sandbox, ["cat", "--json", "1", "closed/x"]).done().json();
    assert_eq!((&report["mode"], &report["link"], &report["bytes"]), (&"444".into(), &false.into(), &1.into()));
}

#[test]
fn cat_says_what_is_wrong_with_a_path_or_a_checkpoint() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    for (args, code, words) in [
        (["cat", "1", "missing"], 4, "the checkpoint has no such file"),
        (["cat", "1", "a/below-a-file"], 4, "the checkpoint has no such file"),
        (["cat", "1", "dir"], 2, "it is a directory"),
        (["cat", "9", "a"], 4, "this project has 1 checkpoint"),
        (["cat", "1", "../a"], 2, "paths are relative to the project"),
    ] {
        let ran = piton(&sandbox, args).failed(code);
        assert!(ran.stderr.contains(words) && ran.stderr.contains("hint: "), "{ran:?}");
    }
}

/// O3.
#[test]
fn cat_prints_nothing_of_a_corrupt_file() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let dir = sandbox.store().join("objects/pack");
    for entry in
        fs::read_dir(dir).expect("packs").flatten().filter(|one| one.path().extension() == Some("pack".as_ref()))
    {
        let mut pack = fs::read(entry.path()).expect("a pack");
        let middle = pack.len() / 2;
        pack[middle] ^= 0x55;
        fs::remove_file(entry.path()).expect("a pack");
        fs::write(entry.path(), pack).expect("a pack");
    }
    let ran = piton(&sandbox, ["cat", "1", "large"]).failed(1);
    assert!(ran.stderr.contains("piton repair"), "{ran:?}");
}

#[test]
fn an_exported_directory_is_exactly_the_checkpoint() {
    let sandbox = Sandbox::new();
    let id = prepare(&sandbox);
    let want = state_of(&sandbox.project());
    sandbox.write("dir/er/b", "changed since");
    fs::remove_file(sandbox.path("large")).expect("a file");
    let dir = sandbox.root().join("out");
    let report = piton(&sandbox, ["export", "--json", &id, dir.to_str().expect("UTF-8")]).done().json();
    assert_same(&state_of(&dir), &want, "exported");
    assert_eq!((&report["id"], &report["dir"]), (&id.into(), &dir.to_str().into()));
    assert_eq!(report["files"], want.len() as u64 - report["dirs"].as_u64().expect("a number"));
    // A directory below the present one, named relative to it.
    piton(&sandbox, ["export", "1", "../again"]).done();
    assert_same(&state_of(&sandbox.root().join("again")), &want, "exported once more");
}

#[test]
fn a_file_that_changed_since_is_not_cloned_into_an_export() {
    let sandbox = Sandbox::new();
    let before: Vec<u8> = b"before\n".repeat(2000);
    sandbox.write("same", &before);
    sandbox.write("other", &before);
    piton(&sandbox, ["take"]).done();
    // The same size, so that only the contents tell.
    sandbox.write("other", b"after.\n".repeat(2000));
    let dir = sandbox.root().join("out");
    let report = piton(&sandbox, ["export", "--json", "1", dir.to_str().expect("UTF-8")]).done().json();
    for name in ["same", "other"] {
        assert_eq!(fs::read(dir.join(name)).expect("a file"), before, "{name}");
    }
    let mut clone = clean_command("cp");
    clone.arg("--reflink=always").args([sandbox.path("same"), sandbox.root().join("clone")]);
    let can_clone = clone.output().expect("cp runs").status.success();
    assert_eq!(report["cloned"], u64::from(can_clone));
    // A later change of the file does not show in the export.
    sandbox.write("same", "written over");
    assert_eq!(fs::read(dir.join("same")).expect("a file"), before);
}

/// O2.
#[test]
fn an_export_replaces_nothing() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let (dir, file, link) = ("dir", "a", "dangling");
    let before = state_of(&sandbox.project());
    for name in [dir, file, link, ".", "/"] {
        let ran = piton(&sandbox, ["export", "1", name]).failed(2);
        assert!(ran.stderr.contains("it exists") && ran.stderr.contains("hint: name a new directory"), "{ran:?}");
    }
    let ran = piton(&sandbox, ["export", "1", "missing/out"]).failed(1);
    assert!(ran.stderr.contains("missing"), "{ran:?}");
    assert_same(&state_of(&sandbox.project()), &before, "after refusals");
}

#[test]
fn a_tar_archive_is_unpacked_by_gnu_tar_to_the_same_files() {
    let sandbox = Sandbox::new();
    let id = prepare(&sandbox);
    let archive = bytes(command(&sandbox).args(["export", "1", "--tar"]));
    let (file, dir) = (sandbox.root().join("it.tar"), sandbox.root().join("unpacked"));
    fs::write(&file, &archive).expect("a file");
    fs::create_dir(&dir).expect("a directory");
    let unpacked = clean_command("tar").arg("-xpf").arg(&file).arg("-C").arg(&dir).output().expect("tar runs");
    assert!(unpacked.status.success() && unpacked.stderr.is_empty(), "{}", text(&unpacked.stderr));
    assert_same(&state_of(&dir), &state_of(&sandbox.project()), "unpacked");
    // Every entry has the time of the checkpoint.
    let time = sandbox.store_git(&["log", "-1", "--format=%ct", &id]);
    let found = fs::metadata(dir.join("a")).and_then(|found| found.modified()).expect("a time");
    let secs = found.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert_eq!(secs.to_string(), text(&time).trim());
    assert_eq!(archive.len() % 512, 0);
    let ran = piton(&sandbox, ["export", "1", "--tar", "--json"]);
    assert_eq!(ran.code(), 2, "{ran:?}");
}

/// A turn of an agent, and edits of the user before and after it.
fn a_turn_among_edits(sandbox: &Sandbox) {
    sandbox.tree("kept = 1\n gone = 1\n moved = 1\n *run = 1\n bin = 1");
    sandbox.write("bin", b"\0\x01\xff".repeat(50));
    piton(sandbox, ["take"]).done();
    sandbox.write("mine", "before\n");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p1", "change it"));
    hook(sandbox, &["claude"], bash(sandbox, "s", "p1", "rm gone"));
    sandbox.write("kept", "2\n");
    sandbox.write("bin", b"\0\x02\xff".repeat(60));
    sandbox.write(b"new \xff", "no line end");
    sandbox.chmod("run", 0o644);
    fs::remove_file(sandbox.path("gone")).expect("a file");
    fs::rename(sandbox.path("moved"), sandbox.path("elsewhere")).expect("a file");
}

#[test]
fn the_patch_of_a_turn_takes_git_apply_from_its_start_to_its_end() {
    let sandbox = Sandbox::new();
    a_turn_among_edits(&sandbox);
    // The turn is open: it ends with the files as they are.
    let open = bytes(command(&sandbox).args(["export", "1", "--patch"]));
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p2", "and more"));
    let ended = bytes(command(&sandbox).args(["export", "p1", "--patch"]));
    assert_eq!(text(&open), text(&ended));
    let end = state_of(&sandbox.project());
    let dir = sandbox.root().join("start");
    piton(&sandbox, ["export", "2", dir.to_str().expect("UTF-8")]).done();
    let patch = sandbox.root().join("turn.patch");
    fs::write(&patch, &ended).expect("a file");
    let applied = git().current_dir(&dir).arg("apply").arg(&patch).output().expect("git runs");
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    assert_same(&state_of(&dir), &end, "applied");
    let report = piton(&sandbox, ["export", "2", "--patch", "--json"]).done().json();
    assert_eq!(report["files_changed"], 6, "{report}");
    let ran = piton(&sandbox, ["export", "3", "--patch"]).failed(4);
    assert!(ran.stderr.contains("no turn began from this checkpoint"), "{ran:?}");
}

/// An export of a small checkpoint.
struct Export {
    sandbox: Sandbox,
    out: PathBuf,
    args: Vec<String>,
    want: State,
}

impl Export {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.tree("a = 1\n *run = 2\n dir/er/b = 3\n empty/in/\n link -> a");
        sandbox.write("blocks", b"x".repeat(10_000));
        piton(&sandbox, ["take"]).done();
        let places = sandbox.root().join("places");
        fs::create_dir(&places).expect("a directory");
        let (out, project) = (places.join("out"), sandbox.project());
        let word = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let args = vec!["-C".to_owned(), word(&project), "--json".into(), "export".into(), "1".into(), word(&out)];
        let want = state_of(&project);
        Self { sandbox, out, args, want }
    }
}

impl Scene for Export {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.root().join("places")]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        assert_same(&state_of(&self.out), &self.want, "without a fault");
    }

    fn check(&self, after: &After<'_>) {
        let when = format!("{after:?}");
        if self.out.exists() {
            assert_same(&state_of(&self.out), &self.want, &when);
        } else {
            assert!(!after.is_done(), "{when}");
        }
        let names = fs::read_dir(self.sandbox.root().join("places")).expect("a directory").flatten();
        for name in names.map(|entry| entry.file_name().into_string().expect("UTF-8")) {
            assert!(name == "out" || name.starts_with("out.piton-incomplete-"), "{name} {when}");
        }
        if !self.out.exists() {
            let again = run(clean_command(PITON).env("HOME", self.sandbox.home()).args(&self.args));
            again.done();
            assert_same(&state_of(&self.out), &self.want, &format!("again after {when}"));
        }
        self.sandbox.assert_store_is_whole();
    }
}

/// O1.
#[test]
fn a_kill_anywhere_leaves_no_half_filled_export() {
    let swept = kill(Export::new);
    assert!(swept.felt >= 10, "{swept:?}");
}

#[test]
fn a_failure_anywhere_leaves_no_half_filled_export() {
    let swept = fail(Export::new);
    assert!(swept.felt >= 10, "{swept:?}");
}
