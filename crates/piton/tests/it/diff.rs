//! The output of a diff, compared with stock git: `git apply` accepts it and makes the new state from the old one, and
//! the counts are those of `git diff --numstat`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use piton::{Diff, DiffStatus, Progress, Project, Settings, Store};
use testkit::{Held, Sandbox, files_in, git, os};

use crate::kit::{now, take, taken};
use crate::restore_kit::{assert_same, state_of};

type Files = BTreeMap<Vec<u8>, Held>;

fn diff(sandbox: &Sandbox, pair: (&str, Option<&str>), paths: &[&[u8]]) -> Diff {
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.to_vec()).collect();
    piton::diff(&store, &project, pair, &paths, &Settings::default(), &Progress::default()).expect("a diff")
}

/// Makes a directory contain exactly these files.
fn fill(dir: &Path, files: &Files) {
    for entry in fs::read_dir(dir).expect("a directory").flatten().filter(|entry| entry.file_name() != ".git") {
        let is_dir = entry.file_type().expect("its kind").is_dir();
        if is_dir { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }.expect("removed");
    }
    for (path, held) in files {
        let path = dir.join(os(path));
        fs::create_dir_all(path.parent().expect("a directory around it")).expect("directories");
        match held {
            Held::Link(target) => symlink(os(target), &path).expect("a link"),
            Held::File(is_executable, bytes) => {
                fs::write(&path, bytes).expect("a file");
                let mode = if *is_executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
            }
        }
    }
}

fn in_repository(dir: &Path, args: &[&str]) -> Vec<u8> {
    let output = git().current_dir(dir).args(args).output().expect("git runs");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs `git apply` in a separate repository with the old state, and returns the result.
#[track_caller]
fn applied(sandbox: &Sandbox, old: &Files, patch: &[u8], when: &str) -> Files {
    let dir = sandbox.other_project("applied");
    if !dir.join(".git").exists() {
        in_repository(&dir, &["init", "-q"]);
    }
    fill(&dir, old);
    let file = sandbox.root().join("patch");
    fs::write(&file, patch).expect("a file");
    let output = git().current_dir(&dir).args(["apply", "--whitespace=nowarn"]).arg(file).output().expect("git runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{when}: git apply: {words}\n{}", String::from_utf8_lossy(patch));
    files_in(&dir)
}

/// Returns insertions and deletions by path, as git counts them; `None` for binary files.
fn counted_by_git(sandbox: &Sandbox, old: &str, new: &str) -> BTreeMap<Vec<u8>, Option<(u64, u64)>> {
    let args = ["diff", "--numstat", "--no-renames", "--diff-algorithm=histogram", "-z", old, new];
    let output = sandbox.store_git(&args);
    let lines = output.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    let parsed = lines.map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b'\t');
        let mut number = || std::str::from_utf8(fields.next().expect("a field")).expect("digits").parse().ok();
        let counts = (number(), number());
        (fields.next().expect("a path").to_vec(), counts.0.zip(counts.1))
    });
    parsed.collect()
}

/// Compares the diff of two states with git in every way.
fn check(old: &Files, new: &Files, when: &str) {
    let sandbox = Sandbox::new();
    sandbox.tree("always");
    let with_always = |files: &Files| {
        let mut files = files.clone();
        files.insert(b"always".to_vec(), Held::File(false, b"always".to_vec()));
        files
    };
    let (old, new) = (with_always(old), with_always(new));
    fill(&sandbox.project(), &old);
    let first = taken(&take(&sandbox));
    fill(&sandbox.project(), &new);
    let store = state_of(&sandbox.base());
    let to_files = diff(&sandbox, (&first, None), &[]);
    assert_same(&state_of(&sandbox.base()), &store, &format!("the store after a diff, {when}"));
    if old == new {
        return assert_eq!((to_files.files.len(), to_files.patch.len()), (0, 0), "{when}");
    }
    assert_eq!(applied(&sandbox, &old, &to_files.patch, when), new, "{when}");
    let second = taken(&take(&sandbox));
    let between = diff(&sandbox, (&first, Some(&second)), &[]);
    let shown = |diff: &Diff| String::from_utf8_lossy(&diff.patch).into_owned();
    assert_eq!(shown(&between), shown(&to_files), "{when}");
    let back = diff(&sandbox, (&second, Some(&first)), &[]);
    assert_eq!(applied(&sandbox, &new, &back.patch, when), old, "back, {when}");
    let counted = counted_by_git(&sandbox, &first, &second);
    for file in &between.files {
        if file.status == DiffStatus::Renamed {
            continue;
        }
        let ours = (!file.is_binary).then_some((file.insertions, file.deletions));
        let theirs = counted.get(&file.path).unwrap_or_else(|| panic!("{when}: git knows nothing of {:?}", file.path));
        // If lines can be matched in several ways, only the difference of the counts is certain.
        let balance = |counts: Option<(u64, u64)>| counts.map(|(plus, minus)| i128::from(plus) - i128::from(minus));
        assert_eq!(balance(ours), balance(*theirs), "{when}: {}", String::from_utf8_lossy(&file.path));
        if !when.starts_with("random") {
            assert_eq!(ours, *theirs, "{when}: {}", String::from_utf8_lossy(&file.path));
        }
    }
    let renamed = between.files.iter().filter(|file| file.status == DiffStatus::Renamed).count();
    assert_eq!(between.files.len() + renamed, counted.len(), "{when}: {:?}", between.files);
}

fn file(text: &str) -> Held {
    Held::File(false, text.as_bytes().to_vec())
}

fn one(path: &str, held: Held) -> Files {
    Files::from([(path.as_bytes().to_vec(), held)])
}

#[test]
fn git_apply_takes_every_kind_of_change() {
    let lines = |range: std::ops::Range<u32>| range.map(|n| format!("line {n}\n")).collect::<String>();
    let binary = |seed: u8| Held::File(false, (0..2000_u32).map(|n| (n.wrapping_mul(7) % 251) as u8 ^ seed).collect());
    let link = |target: &str| Held::Link(target.into());
    let run = |text: &str| Held::File(true, text.into());
    let states: [(&str, Held); 22] = [
        ("empty", file("")),
        ("one line", file("one\n")),
        ("one line without an end", file("one")),
        ("two lines without an end", file("one\ntwo")),
        ("other line", file("two\n")),
        ("only a line end", file("\n")),
        ("many", file(&lines(0..100))),
        ("many, some changed", file(&lines(0..100).replace("line 50\n", "x\ny\n").replace("line 3\n", ""))),
        ("many, the end changed", file(&(lines(0..99) + "line 99"))),
        ("many, more before", file(&("x\n".to_owned() + &lines(0..100)))),
        ("CRLF", file("one\r\ntwo\r\n")),
        ("mixed", file("one\r\ntwo\nthree\r")),
        ("trailing spaces", file("one \t\n\n \n")),
        ("binary", binary(0)),
        ("other binary", binary(9)),
        ("a NUL", file("a\0b")),
        ("looks like a patch", file("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n")),
        ("backslashes", file("\\ No newline at end of file\n")),
        ("executable", run("one\n")),
        ("executable, changed", run("three\n")),
        ("link", link("one\n")),
        ("other link", link("some/where")),
    ];
    let named = |prefix: &str, state: &(&str, Held)| (format!("dir/{prefix}{}", state.0).into_bytes(), state.1.clone());
    for old in &states {
        let all = |held: &dyn Fn(&Held) -> Held| -> Files {
            states.iter().map(|new| named("to ", &(new.0, held(&new.1)))).collect()
        };
        check(&all(&|_| old.1.clone()), &all(&Held::clone), &format!("from {}", old.0));
        check(&Files::new(), &Files::from([named("new ", old)]), &format!("new: {}", old.0));
    }
}

#[test]
fn git_apply_takes_every_name() {
    let names: [&[u8]; 18] = [
        b"a b",
        b" x",
        b"x ",
        b"a\tb",
        b"a\nb",
        b"a\"b",
        b"a\\b",
        b"a'b",
        "\u{e9}\u{1f600}".as_bytes(),
        b"\xff\xfe",
        b"-x",
        b"a -> b",
        b"b/a b/b/x y",
        b"a/b b/a",
        b"\x01\x7f",
        b"{a => b}",
        b"/dev/null"[1..].as_ref(),
        b"tab\tand space ",
    ];
    let all = |held: &dyn Fn(usize) -> Held| -> Files {
        names.iter().enumerate().map(|(at, name)| (name.to_vec(), held(at))).collect()
    };
    let moved: Files =
        (0..names.len()).map(|at| (format!("plain {at}").into_bytes(), file(&format!("{at}\n")))).collect();
    for (old, new, when) in [
        (Files::new(), all(&|_| file("new\n")), "made"),
        (all(&|_| file("old\n")), all(&|_| file("new\n")), "changed"),
        (all(&|_| file("old\n")), all(&|_| Held::File(true, b"old\n".to_vec())), "made executable"),
        (Files::new(), all(&|_| file("")), "made empty"),
        (all(&|_| file("\0one")), all(&|_| file("\0two")), "binary"),
        (all(&|at| file(&format!("{at}\n"))), moved, "moved"),
        (all(&|_| Held::Link(b"x".to_vec())), all(&|_| file("x")), "a link"),
    ] {
        check(&old, &new, when);
    }
}

#[test]
fn files_directories_and_renames_take_each_others_place() {
    let files = |list: &[(&str, &str)]| -> Files {
        list.iter().map(|(path, text)| (path.as_bytes().to_vec(), file(text))).collect()
    };
    let states = [
        files(&[("x", "one\n")]),
        files(&[("x/y", "one\n")]),
        files(&[("x/y/z", "one\n"), ("y", "two\n")]),
        files(&[("y", "one\n"), ("x", "two\n")]),
        files(&[("x", "two\n"), ("y", "one\n"), ("z", "one\n")]),
        files(&[("z", "one\n"), ("a", "one\n")]),
        files(&[("x.y", "one\n"), ("x/a", "two\n"), ("x-y", "")]),
        files(&[("y", ""), ("z", "")]),
        one("x", Held::Link(b"one\n".to_vec())),
    ];
    for (from, old) in states.iter().enumerate() {
        for (to, new) in states.iter().enumerate() {
            check(old, new, &format!("state {from} to {to}"));
        }
    }
}

#[test]
fn a_rename_is_told_as_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("old/name = some text\\n\n other");
    let id = taken(&take(&sandbox));
    fs::rename(sandbox.path("old/name"), sandbox.path("new name")).expect("a rename");
    let diff = diff(&sandbox, (&id, None), &[]);
    let found = (&*diff.files[0].path, diff.files[0].old_path.as_deref(), diff.files[0].status, diff.files.len());
    assert_eq!(found, (&b"new name"[..], Some(&b"old/name"[..]), DiffStatus::Renamed, 1));
    assert!(String::from_utf8_lossy(&diff.patch).contains("rename from old/name\nrename to new name\n"));
}

#[test]
fn a_diff_of_paths_shows_these_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/a = 1\n d/b = 1\n da = 1\n d*/x = 1");
    let first = taken(&take(&sandbox));
    sandbox.tree("a = 2\n d/a = 2\n d/made\n da = 2\n d*/x = 2");
    fs::remove_file(sandbox.path("d/b")).expect("a file");
    let second = taken(&take(&sandbox));
    for to in [None, Some(&*second)] {
        let paths = |wanted: &[&[u8]]| -> Vec<String> {
            let files = diff(&sandbox, (&first, to), wanted).files;
            files.iter().map(|file| String::from_utf8_lossy(&file.path).into_owned()).collect()
        };
        assert_eq!(paths(&[b"d"]), ["d/a", "d/b", "d/made"]);
        assert_eq!(paths(&[b"a", b"d/b"]), ["a", "d/b"]);
        assert_eq!(paths(&[b"d*"]), ["d*/x"]);
        assert_eq!(paths(&[b"nothing"]), [""; 0]);
        let patch = diff(&sandbox, (&first, to), &[b"d"]).patch;
        let mut want = sandbox.held_by(&first);
        want.retain(|path, _| !path.starts_with(b"d/"));
        want.extend(sandbox.held_by(&second).into_iter().filter(|(path, _)| path.starts_with(b"d/")));
        assert_eq!(applied(&sandbox, &sandbox.held_by(&first), &patch, "paths"), want);
    }
}

#[test]
fn git_apply_takes_random_changes() {
    let mut seed = 7_u64;
    let mut below = move |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let mut state = |before: &Files| -> Files {
        let mut files = before.clone();
        for _ in 0..6 {
            let path = ["a", "b", "c", "d/a", "d/e/b", "a b/c"][usize::try_from(below(6)).expect("small")];
            let count = below(30);
            let mut text: String = (0..count).map(|_| format!("{}\n", below(6))).collect();
            if below(3) == 0 {
                text.pop();
            }
            let held = match below(8) {
                0 => None,
                1 => Some(Held::Link(b"somewhere".to_vec())),
                2 => Some(Held::File(true, text.into())),
                _ => Some(Held::File(false, text.into())),
            };
            files.remove(path.as_bytes());
            files.extend(held.map(|held| (path.as_bytes().to_vec(), held)));
        }
        files
    };
    let mut old = Files::new();
    for round in 0..30 {
        let new = state(&old);
        check(&old, &new, &format!("random {round}"));
        old = new;
    }
}
