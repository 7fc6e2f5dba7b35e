//! `take`, `rollback` and `show`: their output for people and for programs, and their exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Sandbox, git};

use crate::kit::{command, ids, in_dir, piton, run, take_works};

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[track_caller]
fn assert_has_keys(value: &Value, wanted: &[&str]) {
    let missing: Vec<_> = wanted.iter().filter(|key| !keys(value).contains(**key)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {value}");
}

const TAKE_KEYS: [&str; 7] = ["outcome", "why", "id", "short_id", "files", "skipped", "elapsed_ms"];
const LIST_KEYS: [&str; 11] = [
    "number",
    "id",
    "short_id",
    "time",
    "reason",
    "files_changed",
    "insertions",
    "deletions",
    "session",
    "turn",
    "kind",
];

#[test]
fn take_prints_its_outcome_as_json() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n node_modules/x.js\n .env");
    let first = piton(&sandbox, ["take", "--json", "-m", "by hand"]).done();
    let taken = first.json();
    assert_eq!(first.stderr, "");
    assert_has_keys(&taken, &TAKE_KEYS);
    assert_eq!((&taken["outcome"], &taken["why"], &taken["files"]), (&json!("taken"), &Value::Null, &json!(1)));
    let id = taken["id"].as_str().expect("an id");
    assert_eq!(id.len(), 40);
    assert!(id.starts_with(taken["short_id"].as_str().expect("a short id")));
    assert!(taken["elapsed_ms"].is_u64());
    let skipped = taken["skipped"].as_array().expect("a list");
    let why = |path: &str| &skipped.iter().find(|one| one["path"] == path).unwrap_or_else(|| panic!("{taken}"))["why"];
    assert_eq!((why("node_modules/"), why(".env")), (&json!("excluded"), &json!("secret")));

    let unchanged = piton(&sandbox, ["take", "--json"]).done().json();
    assert_has_keys(&unchanged, &TAKE_KEYS);
    assert_eq!((&unchanged["outcome"], &unchanged["why"]), (&json!("unchanged"), &Value::Null));
    assert_eq!((&unchanged["id"], &unchanged["short_id"]), (&taken["id"], &taken["short_id"]));
}

#[test]
fn take_says_why_it_took_nothing() {
    let sandbox = Sandbox::new();
    let why = |command: &mut std::process::Command| {
        let report = run(command.args(["take", "--json"])).done().json();
        assert_has_keys(&report, &TAKE_KEYS);
        assert_eq!(
            (&report["outcome"], &report["id"], &report["short_id"]),
            (&json!("skipped"), &Value::Null, &Value::Null)
        );
        report["why"].as_str().expect("a word").to_owned()
    };
    assert_eq!(why(&mut command(&sandbox)), "empty");
    assert_eq!(why(&mut in_dir(&sandbox, &sandbox.home())), "too_broad");
    assert_eq!(why(&mut in_dir(&sandbox, &sandbox.root())), "too_broad");
    sandbox.tree("a\n b\n c");
    assert_eq!(why(command(&sandbox).env("PITON_MAX_FILES", "2")), "too_many_files");
    let said = run(command(&sandbox).env("PITON_MAX_FILES", "2").arg("take")).done();
    assert_eq!(said.stdout, "Not taken: there are more files in scope than max_files allows (2)\n");
}

/// One thread finds too many files while the others wait for the one directory that it found.
#[test]
fn too_many_files_end_the_scan_on_all_threads() {
    let sandbox = Sandbox::new();
    for n in 0..2000 {
        sandbox.write(format!("{n}.txt"), "");
    }
    sandbox.tree("dir/file");
    for _ in 0..5 {
        let report = run(command(&sandbox).args(["take", "--json"]).env("PITON_MAX_FILES", "2")).done().json();
        assert_eq!(report["why"], "too_many_files");
    }
}

#[test]
fn take_tells_people_in_words() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n build/x");
    let taken = piton(&sandbox, ["take", "-m", "before the rename"]).done();
    let short = &ids(&sandbox)[0][..7];
    assert!(taken.stdout.starts_with(&format!("Taken: {short}  ")), "{taken:?}");
    for words in ["  before the rename  (1 file of ", "\nLeft out:\n  build/ (excluded"] {
        assert!(taken.stdout.contains(words), "{words:?} in {taken:?}");
    }
    let unchanged = piton(&sandbox, ["take"]).done();
    assert!(unchanged.stdout.starts_with(&format!("Unchanged since {short} (1 file)\n")), "{unchanged:?}");
    assert_eq!(piton(&sandbox, ["take", "--quiet"]).done().stdout, "");
    sandbox.write(".gitignore", "/*\n");
    let unprotected = piton(&sandbox, ["take"]).done();
    assert!(unprotected.stderr.contains("warning: UNPROTECTED") && unprotected.stderr.contains("hint: "));
}

#[test]
fn the_list_is_empty_without_a_store_and_makes_none() {
    let sandbox = Sandbox::new();
    let list = piton(&sandbox, ["rollback"]).done();
    assert_eq!(list.stdout, format!("No checkpoints found for {}\n", sandbox.project().display()));
    assert_eq!(list.stderr, "hint: `piton take` takes one\n");
    assert_eq!(piton(&sandbox, ["rollback", "--json"]).done().json(), json!([]));
    piton(&sandbox, ["show", "1"]).failed(4);
    assert!(!sandbox.base().exists());
}

#[test]
fn the_list_has_every_key_newest_first() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\\n");
    let old = take_works(&sandbox);
    sandbox.tree("a.txt = two\\n\n b.txt = b\\n");
    piton(&sandbox, ["take", "-m", "before patch"]).done();
    let list = piton(&sandbox, ["rollback", "--json"]).done().json();
    let [newest, oldest] = &list.as_array().expect("a list")[..] else { panic!("{list}") };
    for one in [newest, oldest] {
        assert_has_keys(one, &LIST_KEYS);
        assert_eq!((&one["session"], &one["turn"], &one["kind"]), (&Value::Null, &Value::Null, &json!("manual")));
        let time: jiff::Timestamp = one["time"].as_str().expect("a time").parse().expect("RFC 3339");
        assert!((jiff::Timestamp::now() - time).get_seconds().abs() < 3600);
    }
    assert_eq!((&newest["number"], &oldest["number"], &oldest["id"]), (&json!(1), &json!(2), &json!(old)));
    assert_eq!(newest["reason"], "before patch");
    let counts = |one: &Value| [&one["files_changed"], &one["insertions"], &one["deletions"]].map(Value::as_u64);
    assert_eq!((counts(newest), counts(oldest)), ([Some(2), Some(2), Some(1)], [Some(0), Some(0), Some(0)]));
    let text = piton(&sandbox, ["rollback"]).done().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], [&format!("📸 Checkpoints for {}:", sandbox.project().display()), ""]);
    assert!(lines[2].starts_with(&format!("  1. {}  20", newest["short_id"].as_str().expect("an id"))), "{text}");
    assert!(lines[2].ends_with("  before patch  (2 files, +2/-1)"), "{text}");
    assert!(lines[3].starts_with(&format!("  2. {}  20", &old[..7])) && lines[3].ends_with("  manual"), "{text}");
}

/// Returns the counts of `git diff --shortstat` between two checkpoints.
fn shortstat(sandbox: &Sandbox, old: &str, new: &str) -> [u64; 3] {
    let line = sandbox.store_git(&["diff", "--shortstat", "--no-renames", "--no-ext-diff", old, new]);
    let line = String::from_utf8(line).expect("words");
    let count = |word: &str| {
        let part = line.split(',').find(|part| part.contains(word));
        part.map_or(0, |part| part.split_whitespace().next().expect("a number").parse().expect("a number"))
    };
    [count("file"), count("insertion"), count("deletion")]
}

/// Takes a checkpoint without dropping any.
fn keep_all(sandbox: &Sandbox) {
    run(command(sandbox).env("PITON_MAX_SNAPSHOTS", "1000").arg("take")).done();
}

#[test]
fn the_counts_are_those_of_git() {
    let sandbox = Sandbox::new();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut text = |lines: u64| (0..lines).map(|_| format!("line {}\n", next(12))).collect::<String>();
    let changes: [&dyn Fn(&Sandbox); 11] = [
        &|s| s.tree("a.txt = one\\ntwo\\nthree\\n\n b.txt = b\\n\n dir/c.txt = c\\nd\\n"),
        &|s| s.tree("a.txt = one\\n2\\nthree\\nfour\n new/file = x\\ny\\n"),
        &|s| fs::remove_file(s.path("dir/c.txt")).expect("a file"),
        &|s| s.write("binary", b"a\0b\nc\n"),
        &|s| s.write("binary", b"a\0b\nc\nd\n"),
        &|s| s.chmod("b.txt", 0o755),
        &|s| s.link("link", "a.txt"),
        &|s| s.write("b.txt", "b\r\n"),
        &|s| s.write("a.txt", ""),
        &|s| s.write("turns", "target"),
        &|s| {
            fs::remove_file(s.path("turns")).expect("a file");
            s.link("turns", "target");
        },
    ];
    for change in changes {
        change(&sandbox);
        keep_all(&sandbox);
    }
    for _ in 0..30 {
        sandbox.write("random.txt", text(40));
        keep_all(&sandbox);
    }
    let list = piton(&sandbox, ["rollback", "--json"]).done().json();
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), 41);
    for pair in list.windows(2) {
        let [new, old] = [&pair[0], &pair[1]];
        let counted = ["files_changed", "insertions", "deletions"].map(|key| new[key].as_u64().expect("a count"));
        let id = |one: &Value| one["id"].as_str().expect("an id").to_owned();
        assert_eq!(counted, shortstat(&sandbox, &id(old), &id(new)), "{new}");
    }
}

#[test]
fn show_finds_a_checkpoint_by_number_and_by_id() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n empty/\n x.log");
    piton(&sandbox, ["take"]).done();
    sandbox.tree("b.txt = b");
    piton(&sandbox, ["take"]).done();
    let [new, old] = &ids(&sandbox)[..] else { panic!("two checkpoints") };
    for (name, id) in [("1", new), ("2", old), (&old[..4], old), (&old[..12], old), (old, old)] {
        let shown = piton(&sandbox, ["show", "--json", name]).done().json();
        assert_eq!(shown["id"], json!(id), "{name}");
    }
    let upper = piton(&sandbox, ["show", "--json", &old.to_ascii_uppercase()]).done().json();
    assert_has_keys(&upper, &LIST_KEYS);
    assert_eq!((&upper["files"], &upper["paths"]), (&json!(1), &json!(["a.txt"])));
    assert_eq!((&upper["empty_dirs"], &upper["skipped"][0]["path"]), (&json!(["empty"]), &json!("x.log")));
    let text = piton(&sandbox, ["show", "2", "--verbose"]).done().stdout;
    for words in [
        &format!("Checkpoint 2  {old}\nReason:    manual\n"),
        "Kind:      manual\n",
        "  x.log (excluded)\n",
        "Holds:\n  a.txt\n",
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
}

#[test]
fn show_refuses_what_is_no_checkpoint_of_this_project() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n dir/b.txt");
    let id = take_works(&sandbox);
    let other = sandbox.other_project("other");
    fs::write(other.join("c.txt"), "c").expect("a file");
    let foreign = run(in_dir(&sandbox, &other).args(["take", "--json"])).done().json();
    let object =
        |name: String| String::from_utf8(sandbox.store_git(&["rev-parse", &name])).expect("an id").trim().to_owned();
    let (tree, blob) = (object(format!("{id}^{{tree}}")), object(format!("{id}:a.txt")));
    let foreign = foreign["id"].as_str().expect("an id");
    let zeros = "0".repeat(40);
    for name in ["2", "0", "00000", "99999999999999999999999999", &zeros, &tree, &blob, foreign, &foreign[..7]] {
        let ran = piton(&sandbox, ["show", name]).failed(4);
        assert!(ran.stderr.starts_with(&format!("error: cannot find the checkpoint {name}: ")), "{ran:?}");
        assert_eq!(piton(&sandbox, ["show", "--json", name]).json()["error"]["kind"], "not_found");
    }
    let long = "a".repeat(65);
    let not_ids = [
        "",
        " ",
        "abc",
        "xyzw",
        "-x",
        "-1",
        "+1",
        "1.0",
        "HEAD",
        "../x",
        "1\n",
        "\u{1b}[31m",
        &long,
        &id[..39].replace(&id[..1], "g"),
    ];
    for name in not_ids {
        let ran = piton(&sandbox, ["show", name]).failed(2);
        assert!(ran.stderr.contains("hint: ") && !ran.stderr.contains('\u{1b}'), "{ran:?}");
        let error = piton(&sandbox, ["show", "--json", name]);
        let kind = if name.starts_with('-') { "usage" } else { "invalid" };
        assert_eq!((error.code(), &error.json()["error"]["kind"]), (2, &json!(kind)), "{name:?}");
    }
}

/// A history so long that two ids begin with the same four digits, and one with decimal digits only.
#[test]
fn show_names_the_candidates_of_an_ambiguous_id() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    take_works(&sandbox);
    let name = String::from_utf8(sandbox.store_git(&["for-each-ref", "--format=%(refname)"])).expect("a name");
    let mut import = git();
    import.arg(format!("--git-dir={}", sandbox.store().display())).args(["fast-import", "--quiet", "--force"]);
    let mut import = import.stdin(Stdio::piped()).spawn().expect("git runs");
    let mut script = String::new();
    for n in 0..1500 {
        let text = format!("number {n}");
        script += &format!(
            "commit refs/heads/new\ncommitter A <a@b> {} +0000\ndata {}\n{text}\n",
            1_700_000_000 + n,
            text.len()
        );
    }
    import.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("git reads");
    assert!(import.wait().expect("git ends").success());
    sandbox.store_git(&["update-ref", name.trim(), "refs/heads/new"]);
    let mut ids = ids(&sandbox);
    assert_eq!(ids.len(), 1500);
    ids.sort();
    let same = ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4] && pair[0].bytes().take(4).any(|b| b > b'9'));
    let [one, other] = same.expect("the ids are the same in each run") else { panic!("two") };
    let ran = piton(&sandbox, ["show", &one[..4]]).failed(2);
    assert!(ran.stderr.contains(&one[..12]) && ran.stderr.contains(&other[..12]), "{ran:?}");
    assert_eq!(piton(&sandbox, ["show", "--json", &one[..4]]).json()["error"]["kind"], "ambiguous");
    let digits = ids.iter().find(|id| id.bytes().take(6).all(|byte| byte.is_ascii_digit()) && !id.starts_with("00"));
    let digits = digits.expect("the ids are the same in each run");
    assert_eq!(piton(&sandbox, ["show", "--json", &digits[..6]]).done().json()["id"], json!(digits));
    assert_eq!(piton(&sandbox, ["show", "--json", "1500"]).done().json()["reason"], "number 0", "a number comes first");
}

#[test]
fn wrong_usage_is_told_in_both_forms() {
    let sandbox = Sandbox::new();
    for args in [&["bogus"][..], &["show"], &["take", "--bogus"], &["take", "-q", "-v"], &["take", "x"]] {
        piton(&sandbox, args).failed(2);
        let ran = piton(&sandbox, args.iter().chain(&["--json"]));
        let error = &ran.json()["error"];
        assert_eq!((ran.code(), &error["kind"], ran.stderr.as_str()), (2, &json!("usage"), ""), "{args:?}");
        assert_eq!(keys(error), BTreeSet::from(["kind", "message", "hint"]), "{args:?}");
    }
    for args in [["take", "--help"], ["show", "--help"], ["rollback", "--help"]] {
        let help = piton(&sandbox, args).done().stdout;
        assert!(help.contains("Exit codes: 0 done, 1 error or declined, 2 usage or could not"), "{help}");
    }
    assert!(!sandbox.base().exists());
}
