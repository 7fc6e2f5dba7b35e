//! Stores made by an attacker: reading them fails with an error that says so, never panics, and leaves the user's files
//! intact.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use piton::{ErrorKind, History, Progress, Project, RestoreOptions, RestoreTo, Settings, Store, WhyLeft};
use testkit::{Sandbox, git};

use crate::kit::{now, take, taken};
use crate::restore_kit::{State, assert_same, kind_of, restore_between, restored, state_of, try_restore};

const FIRST: RestoreTo<'_> = RestoreTo::Named("1");

/// A project with a checkpoint and changes since, and a directory beside it.
pub(crate) struct Victim {
    pub(crate) sandbox: Sandbox,
    outside: PathBuf,
    before: [State; 2],
}

impl Victim {
    pub(crate) fn new() -> Self {
        let sandbox = Sandbox::new();
        let outside = sandbox.other_project("outside");
        fs::write(outside.join("file"), "theirs").expect("a file");
        sandbox.tree("a = 1\n d/b = 1\n d/c = 1");
        taken(&take(&sandbox));
        sandbox.tree("a = 2\n made = 2\n d/b = 2");
        let before = [state_of(&sandbox.project()), state_of(&outside)];
        Self { sandbox, outside, before }
    }

    fn project(&self) -> Project {
        Project::at(&self.sandbox.project(), Some(&self.sandbox.home())).expect("a project")
    }

    fn reference(&self) -> PathBuf {
        self.sandbox.store().join("refs/hermes").join(self.project().id().to_string())
    }

    /// Writes an object that stock git would not create.
    pub(crate) fn object(&self, kind: &str, bytes: &[u8]) -> String {
        let mut command = git();
        command.arg(format!("--git-dir={}", self.sandbox.store().display()));
        command.args(["hash-object", "-w", "--literally", "--stdin", "-t", kind]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git runs");
        child.stdin.take().expect("a pipe").write_all(bytes).expect("written");
        let output = child.wait_with_output().expect("git ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("an id").trim().to_owned()
    }

    pub(crate) fn tree(&self, entries: &[(&str, &[u8], &str)]) -> String {
        let mut bytes = Vec::new();
        for (mode, name, id) in entries {
            bytes.extend_from_slice(mode.as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.extend((0..20).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).expect("hex")));
        }
        self.object("tree", &bytes)
    }

    /// Creates a commit and makes it the newest checkpoint.
    pub(crate) fn plant(&self, tree: &str, message: &str) {
        let who = "x <x@x> 1700000000 +0000";
        let commit = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}\n");
        let id = self.object("commit", commit.as_bytes());
        fs::write(self.reference(), format!("{id}\n")).expect("a ref");
    }

    #[track_caller]
    pub(crate) fn assert_untouched(&self, when: &str) {
        assert_same(&state_of(&self.sandbox.project()), &self.before[0], &format!("the project, {when}"));
        assert_same(&state_of(&self.outside), &self.before[1], &format!("the directory outside, {when}"));
    }

    /// Asserts that everything that reads the checkpoint reports it as damaged.
    #[track_caller]
    fn assert_refused(&self, when: &str) {
        for paths in [&[][..], &["sub"]] {
            let result = try_restore(&self.sandbox, FIRST, paths);
            let kind = result.map_or_else(|error| error.kind(), |report| panic!("{when}: {report:?}"));
            assert!(
                kind == ErrorKind::Damaged || (!paths.is_empty() && kind == ErrorKind::NotFound),
                "{when}: {kind:?}"
            );
        }
        let store = Store::open_or_create(&self.sandbox.base(), now()).expect("a store");
        let _ = History::of(&store, &self.project()).and_then(|history| history.list());
        let _ = piton::diff(&store, &self.project(), ("1", None), &[], &Settings::default(), &Progress::default());
        self.assert_untouched(when);
    }
}

#[test]
fn names_that_no_tree_may_hold_are_refused() {
    let victim = Victim::new();
    let blob = victim.object("blob", b"evil");
    let inner = victim.tree(&[("100644", b"file", &blob)]);
    let names: [&[u8]; 12] = [
        b"..",
        b".",
        b".git",
        b".GIT",
        b".gIt",
        b"git~1",
        b"",
        b"../outside/file",
        b"/etc/piton",
        b"a/b",
        ".g\u{200c}it".as_bytes(),
        b".git ",
    ];
    for name in names {
        for entry in [("100644", name, &*blob), ("120000", name, &*blob), ("40000", name, &*inner)] {
            let shown = format!("{} {}", entry.0, String::from_utf8_lossy(name));
            let tree = victim.tree(&[entry]);
            victim.plant(&tree, "evil");
            victim.assert_refused(&shown);
            let around = victim.tree(&[("100644", b"ok", &blob), ("40000", b"sub", &tree)]);
            victim.plant(&around, "evil below");
            victim.assert_refused(&format!("{shown}, below"));
        }
    }
}

#[test]
fn trees_that_are_no_trees_are_refused() {
    let victim = Victim::new();
    let blob = victim.object("blob", b"evil");
    let inner = victim.tree(&[("100644", b"file", &blob)]);
    let missing = "1234567890123456789012345678901234567890";
    let trees: [(&str, String); 12] = [
        ("twice the same name", victim.tree(&[("100644", b"x", &blob), ("100644", b"x", &blob)])),
        ("a file and a directory of one name", victim.tree(&[("100644", b"x", &blob), ("40000", b"x", &inner)])),
        ("wrong order", victim.tree(&[("100644", b"y", &blob), ("100644", b"x", &blob)])),
        ("absurd mode", victim.tree(&[("777777", b"x", &blob)])),
        ("no mode", victim.tree(&[("", b"x", &blob)])),
        ("a device", victim.tree(&[("20644", b"x", &blob)])),
        ("missing blob", victim.tree(&[("100644", b"x", missing)])),
        ("missing tree", victim.tree(&[("40000", b"x", missing)])),
        ("a tree for a file", victim.tree(&[("100644", b"x", &inner)])),
        ("a file for a tree", victim.tree(&[("40000", b"x", &blob)])),
        ("cut off", victim.object("tree", b"100644 x\0short")),
        ("garbage", victim.object("tree", &[0xff; 100])),
    ];
    for (what, tree) in trees.iter().chain([&("a blob", blob.clone()), &("nothing", missing.to_owned())]) {
        victim.plant(tree, what);
        victim.assert_refused(what);
    }
}

#[test]
fn a_tree_that_is_deeper_than_any_directory_is_refused() {
    let victim = Victim::new();
    let mut tree = victim.tree(&[("100644", b"x", &victim.object("blob", b"deep"))]);
    // Each level contains the one below it twice: a walk that visits every path never ends.
    for _ in 0..40 {
        tree = victim.tree(&[("40000", b"a", &tree), ("40000", b"b", &tree)]);
    }
    victim.plant(&tree, "a bomb");
    let paths = [b"a/a/a/nothing".to_vec()];
    let options = RestoreOptions::default().paths(&paths);
    assert_eq!(
        kind_of(restore_between(&victim.sandbox, FIRST, options, &Settings::default(), |_| {})),
        ErrorKind::NotFound
    );
    victim.assert_untouched("after the bomb");
}

#[test]
fn refs_and_histories_that_lead_nowhere_are_refused() {
    let victim = Victim::new();
    let id = fs::read_to_string(victim.reference()).expect("a ref");
    let tree =
        String::from_utf8(victim.sandbox.store_git(&["rev-parse", &format!("{}^{{tree}}", id.trim())])).expect("an id");
    let who = "x <x@x> 1700000000 +0000";
    let orphan = format!("tree {tree}parent {}\nauthor {who}\ncommitter {who}\n\nx\n", "12".repeat(20));
    let refs = [
        victim.object("blob", b"x"),
        tree.trim().to_owned(),
        "12".repeat(20),
        "garbage".to_owned(),
        "ref: refs/heads/main".to_owned(),
        "ref: ../../../etc/passwd".to_owned(),
        String::new(),
        "x".repeat(100_000),
        victim.object("commit", b"nothing of a commit"),
        victim.object("commit", b"\xff\xfe\n\n\0"),
        victim.object("commit", format!("tree {tree}\n\nno author\n").as_bytes()),
    ];
    for text in refs {
        fs::write(victim.reference(), format!("{text}\n")).expect("a ref");
        let shown = format!("{text:.60}");
        assert_eq!(kind_of(try_restore(&victim.sandbox, FIRST, &[])), ErrorKind::Damaged, "{shown}");
        victim.assert_untouched(&shown);
    }
    // A history with a dangling parent is valid as far as it can be read.
    fs::write(victim.reference(), victim.object("commit", orphan.as_bytes()) + "\n").expect("a ref");
    assert_eq!(kind_of(try_restore(&victim.sandbox, RestoreTo::Named("2"), &[])), ErrorKind::Damaged);
    victim.assert_untouched("a history that leads nowhere");
    // If the history is truncated by `shallow`, commits before the boundary do not matter; garbage in that file
    // truncates nothing.
    fs::write(victim.reference(), &id).expect("a ref");
    fs::write(victim.sandbox.store().join("shallow"), b"\xff\xfegarbage\n\n1234\n").expect("a file");
    restored(&victim.sandbox, FIRST, &[]);
}

#[test]
fn facts_that_lead_outside_write_nothing_there() {
    let lines = [
        "empty ../outside/made",
        "empty ..",
        "empty .git/hooks",
        "empty a/../../outside/made",
        "empty %2e%2e/outside/made",
        "empty /tmp/piton-was-here",
        "empty ",
        "empty //",
        "empty x%00y",
        "mode 7777 a",
        "mode 0 ../outside/file",
        "usual 7777 7777 7777",
        "restoring undo 1234567890123456789012345678901234567890\nrestoring-path ./../outside",
        "skipped ignored file ./../outside/file",
        "files 18446744073709551615",
    ];
    for line in lines {
        let victim = Victim::new();
        let id = fs::read_to_string(victim.reference()).expect("a ref");
        let tree = victim.sandbox.store_git(&["rev-parse", &format!("{}^{{tree}}", id.trim())]);
        let tree = String::from_utf8(tree).expect("an id");
        victim.plant(tree.trim(), &format!("evil\n\npiton 1\nkind safety\nfiles 3\nusual 644 755 755\n{line}"));
        for to in [FIRST, RestoreTo::Undo] {
            if let Ok(report) = try_restore(&victim.sandbox, to, &[]) {
                let is_said = |left: &piton::Left| matches!(left.why, WhyLeft::Failed(_) | WhyLeft::InTheWay);
                assert!(report.left.iter().all(is_said), "{line}: {report:?}");
            }
        }
        assert_same(&state_of(&victim.outside), &victim.before[1], line);
        let project = state_of(&victim.sandbox.project());
        assert!(!project.keys().any(|path| path.starts_with(b".git")), "{line}");
        let is_set_id = |node: &crate::restore_kit::Node| matches!(node, crate::restore_kit::Node::File(mode, _) if mode & 0o7000 != 0);
        assert!(!project.values().any(is_set_id), "{line}");
        assert!(!PathBuf::from("/tmp/piton-was-here").exists());
    }
}

/// A commit is checked against its id, so such lines are not corruption: a later version or another program wrote them.
#[test]
fn facts_that_cannot_be_read_are_passed_over() {
    for line in ["mode 99999 a", "mode 644", "usual 644", "usual 1 2 3 4", "empty %zz", "restoring fly 12", "nospace"] {
        let victim = Victim::new();
        let id = fs::read_to_string(victim.reference()).expect("a ref");
        let tree = victim.sandbox.store_git(&["rev-parse", &format!("{}^{{tree}}", id.trim())]);
        let tree = String::from_utf8(tree).expect("an id");
        victim.plant(tree.trim(), &format!("strange\n\npiton 1\n{line}"));
        let held = victim.sandbox.held_by(id.trim());
        try_restore(&victim.sandbox, FIRST, &[]).expect("a restore");
        assert_eq!(testkit::files_in(&victim.sandbox.project()), held, "{line}");
        assert_same(&state_of(&victim.outside), &victim.before[1], line);
    }
}

#[test]
fn a_record_of_a_restore_that_is_garbage_is_said_and_nothing_is_touched() {
    let victim = Victim::new();
    restored(&victim.sandbox, FIRST, &["a"]);
    restored(&victim.sandbox, RestoreTo::Undo, &[]);
    let dir = victim.sandbox.store().join("restores");
    assert!(dir.is_dir(), "where the records are");
    let intent = dir.join(format!("{}.json", victim.project().id()));
    let other = "12".repeat(20);
    let cases = [
        "".to_owned(),
        "{".to_owned(),
        "[]".to_owned(),
        "{\"target\": 5, \"safety\": null, \"paths\": {}}".to_owned(),
        format!("{{\"target\": \"{other}\", \"safety\": \"xx\", \"paths\": []}}"),
        format!("{{\"target\": \"{other}\", \"safety\": \"{other}\", \"paths\": [\"../outside\"]}}"),
    ];
    for text in cases {
        fs::write(&intent, &text).expect("a file");
        for to in [FIRST, RestoreTo::Undo, RestoreTo::Continue, RestoreTo::Abort] {
            let _ = kind_of(try_restore(&victim.sandbox, to, &[]));
            victim.assert_untouched(&text);
        }
    }
}
