//! Session records: storing, refusing and removing them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use piton::session::{Record, RecordAuthor, RecordChange, SessionId, Sessions};
use piton::{ErrorKind, Moment, Store};
use testkit::Sandbox;

use crate::kit::{now, without_roots_powers};

const DAY: i64 = 24 * 60 * 60;

fn id(name: &str) -> SessionId {
    SessionId::parse(name).expect("an id")
}

fn sessions(sandbox: &Sandbox) -> Sessions {
    Sessions::in_base(&sandbox.base())
}

/// Writes a record as an agent. Panics if it is not accepted.
fn write(sandbox: &Sandbox, name: &str, text: &str) {
    let changed = sessions(sandbox).write(&id(name), text.as_bytes(), RecordAuthor::Agent, now()).expect("a record");
    assert_eq!(changed, RecordChange::Done);
}

fn update(sandbox: &Sandbox, name: &str, text: &str) {
    let changed = sessions(sandbox).update(&id(name), text.as_bytes(), RecordAuthor::Agent, now()).expect("a record");
    assert_eq!(changed, RecordChange::Done);
}

fn read(sandbox: &Sandbox, name: &str) -> Record {
    sessions(sandbox).read(&id(name)).expect("readable").expect("a record")
}

/// Returns the file without its last line, which is the time of the change.
fn unstamped(sandbox: &Sandbox, name: &str) -> String {
    let text = fs::read_to_string(sandbox.base().join(format!("{name}.yaml"))).expect("a file");
    let (text, stamp) = text.rsplit_once("updated: ").expect("the time of the change");
    assert_eq!(stamp.len(), "'2026-11-15T10:00:00.000000'\n".len(), "{stamp}");
    text.to_owned()
}

/// Puts a file into the base, as another program would, with a modification time that long ago.
fn plant(sandbox: &Sandbox, name: &str, text: impl AsRef<[u8]>, age_secs: i64) {
    fs::create_dir_all(sandbox.base()).expect("a base");
    let path = sandbox.base().join(name);
    fs::write(&path, text).expect("a file");
    let then = SystemTime::now() - Duration::from_secs(u64::try_from(age_secs).expect("not in the future"));
    File::options().write(true).open(path).and_then(|file| file.set_modified(then)).expect("a time");
}

fn names_in_base(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.base()).expect("a base").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_id_is_a_file_name_and_nothing_more() {
    let long = "x".repeat(201);
    let refused = [
        "",
        ".",
        "..",
        ".x",
        "../x",
        "/x",
        "a/b",
        "a\\b",
        "a\0",
        "a\n",
        "a\tb",
        "a\u{7f}",
        "a\u{85}",
        "a\u{2028}",
        &long,
        "con",
        "NUL",
        "Com1",
        "lpt9.txt",
        "aux .x",
        "store",
        "legacy-1",
        "piton.log",
        "piton.log.1",
        "tmp_x",
    ];
    for name in refused {
        let error = SessionId::parse(name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("cannot use ") && error.hint().is_some(), "{error}");
    }
    let longest = "x".repeat(200);
    for name in ["a", "20261115_101500_abc", "a.b", "é 😀", "com10", "console", "stores", "-x", "a:b", &longest] {
        assert_eq!(id(name).as_str(), name);
    }
}

#[test]
fn a_record_keeps_order_unknown_keys_and_unicode_and_gets_its_time() {
    let sandbox = Sandbox::new();
    let text = "zeta: 1\ntask: Füße 😀\nunknown:\n  b: [x, {y: z}]\n  a: 2026-11-15\n";
    write(&sandbox, "s", text);
    let kept = "zeta: 1\ntask: Füße 😀\nunknown:\n  b:\n  - x\n  - y: z\n  a: 2026-11-15\n";
    assert_eq!(unstamped(&sandbox, "s"), kept);
    let mode = |path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(sandbox.base()), mode(sandbox.base().join("s.yaml"))), (0o700, 0o600));
    // An existing time keeps its position.
    write(&sandbox, "t", "updated: long ago\ntask: x\n");
    let text = fs::read_to_string(sandbox.base().join("t.yaml")).expect("a file");
    assert!(text.starts_with("updated: '20") && text.ends_with("task: x\n"), "{text}");
}

#[test]
fn json_is_read_as_json() {
    let sandbox = Sandbox::new();
    let text = "{\"task\": \"t\", \"n\": 1e3, \"big\": 123456789012345678901234567890, \"yes\": \"no\",\n\t\"face\": \"\\ud83d\\ude00\", \"raw\": \"a\u{2028} b\u{7f}\", \"none\": null, \"t\": true}";
    write(&sandbox, "s", text);
    let expected = "task: t\n'n': 1.0e+3\nbig: 123456789012345678901234567890\n'yes': 'no'\nface: '😀'\n\
                    raw: \"a\\u2028 b\\x7F\"\nnone: null\nt: true\n";
    assert_eq!(unstamped(&sandbox, "s"), expected);
    let json = read(&sandbox, "s").to_json();
    assert_eq!((json["n"].as_f64(), json["yes"].as_str()), (Some(1000.0), Some("no")));
    assert_eq!(json["raw"], "a\u{2028} b\u{7f}");
}

#[test]
fn what_is_no_record_is_refused_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let laughs: String =
        (1..12).map(|n| format!("b{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(","))).collect();
    let deep = format!("task: t\nx: {}{}\n", "[".repeat(65), "]".repeat(65));
    let chain: String = (1..80).map(|n| format!("b{n}: &a{n} [*a{}]\n", n - 1)).collect();
    let heavy = format!("task: t\na: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 1000].join(","));
    let large = format!("task: {}\n", "x".repeat(1 << 20));
    let cases = [
        ("", "it is empty"),
        ("- a\n", "it is a list"),
        ("word", "it is a single value"),
        ("a: 1\n", "it has no `task`"),
        ("task:\n", "it has no `task`"),
        ("task: '  '\n", "it has no `task`"),
        ("task: t\nx: [1\ny: 2\n", "line 3: "),
        ("task: t\nx: \"a\n", "line "),
        ("task: t\n---\ntask: u\n", "line 3: a second document"),
        ("task: t\nx: &a [*a]\n", "line 2: an alias refers to a value that contains it"),
        ("task: t\nx: *a\n", "line 2: "),
        ("task: t\n? [1]\n: x\n", "line 2: a key is a list"),
        ("task: t\nx: !python/object:os.system x\n", "other programs could not read"),
        ("task: t\nx: !!int word\n", "other programs could not read"),
        (&format!("task: t\na: &a0 [x,x,x,x,x,x,x,x,x]\n{laughs}"), "larger than a record may be"),
        (&heavy, "larger than a record may be"),
        (&format!("task: t\na: &a0 [x]\n{chain}"), "nested more than 64 deep"),
        (&deep, "line 2: collections are nested more than 64 deep"),
        (&large, "it is larger than 1024 KiB"),
    ];
    for (text, why) in cases {
        let written = sessions(&sandbox).write(&id("s"), text.as_bytes(), RecordAuthor::Agent, now());
        let error = written.expect_err(why);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let error =
        sessions(&sandbox).write(&id("s"), b"task: t\nx: \xff\n", RecordAuthor::Agent, now()).expect_err("bytes");
    assert!(error.to_string().contains("line 2: it is not UTF-8"), "{error}");
    assert!(!sandbox.base().exists());
}

#[test]
fn a_record_may_be_nested_and_have_aliases() {
    let sandbox = Sandbox::new();
    let nested = format!("{}leaf{}", "[".repeat(60), "]".repeat(60));
    write(&sandbox, "s", &format!("task: t\nbase: &b {{p: 1}}\nuse: {{<<: *b, q: *b}}\ndeep: {nested}\n"));
    let json = read(&sandbox, "s").to_json();
    assert_eq!(json["use"].to_string(), r#"{"p":1,"q":{"p":1}}"#);
    let mut node = &json["deep"];
    for _ in 0..60 {
        node = &node[0];
    }
    assert_eq!(node, "leaf");
}

#[test]
fn an_update_appends_merges_and_replaces() {
    let sandbox = Sandbox::new();
    write(
        &sandbox,
        "s",
        "task: t\nprogress:\n- step: one\n  status: completed\nstate:\n  branch: main\n  files: [a]\ndecisions: first\n\
         blocked: [x]\nextra: 1e3\n",
    );
    update(
        &sandbox,
        "s",
        "progress: [{step: two, status: in_progress}]\nstate: {files: [b], tests: pass}\ndecisions: [second]\n\
         blocked: []\nunresolved: [why]\nstatus: in_progress\n",
    );
    update(&sandbox, "s", r#"{"progress": {"step": "three"}, "decisions": null}"#);
    let expected = "task: t\nprogress:\n- step: one\n  status: completed\n- step: two\n  status: in_progress\n- step: three\n\
                    state:\n  branch: main\n  files:\n  - b\n  tests: pass\ndecisions:\n- first\n- second\nblocked: []\n\
                    extra: 1e3\n";
    let text = fs::read_to_string(sandbox.base().join("s.yaml")).expect("a file");
    let (before, after) = text.split_once("updated: ").expect("the time of the change");
    assert_eq!(before, expected);
    assert!(after.ends_with("\nunresolved:\n- why\nstatus: in_progress\n"), "{after}");
}

#[test]
fn an_update_that_makes_no_sense_changes_nothing() {
    let sandbox = Sandbox::new();
    let missing = sessions(&sandbox).update(&id("none"), b"x: 1", RecordAuthor::Agent, now()).expect_err("no record");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!sandbox.base().exists());
    write(&sandbox, "s", "task: t\nstate: words\n");
    let before = fs::read(sandbox.base().join("s.yaml")).expect("a file");
    for (given, why) in [
        ("state: {a: 1}", "`state` in the record is not a mapping"),
        ("task: null", "no `task`"),
        ("x: [", "line "),
        ("- x", "it is a list"),
    ] {
        let error = sessions(&sandbox).update(&id("s"), given.as_bytes(), RecordAuthor::Agent, now()).expect_err(given);
        assert!(error.to_string().contains(why), "{error}");
    }
    let full = format!("progress: [{}]\n", "x".repeat((1 << 20) - 20));
    let error =
        sessions(&sandbox).update(&id("s"), full.as_bytes(), RecordAuthor::Agent, now()).expect_err("too large");
    assert!(error.to_string().contains("larger than 1024 KiB"), "{error}");
    assert_eq!(fs::read(sandbox.base().join("s.yaml")).expect("a file"), before);
}

/// N4.
#[test]
fn what_an_agent_wrote_is_never_replaced_by_an_automatic_record() {
    let sandbox = Sandbox::new();
    let auto = |text: &str| {
        sessions(&sandbox).write(&id("s"), text.as_bytes(), RecordAuthor::Automatic, now()).expect("a value")
    };
    let auto_update = |text: &str| {
        sessions(&sandbox).update(&id("s"), text.as_bytes(), RecordAuthor::Automatic, now()).expect("a value")
    };
    assert_eq!(auto("task: guess"), RecordChange::Done);
    assert!(read(&sandbox, "s").is_automatic());
    assert_eq!((auto("task: a better guess"), auto_update("x: 1")), (RecordChange::Done, RecordChange::Done));
    // An update by an agent makes the record the agent's.
    update(&sandbox, "s", "progress: [one]");
    assert!(!read(&sandbox, "s").is_automatic());
    assert_eq!((auto("task: guess"), auto_update("x: 2")), (RecordChange::Declined, RecordChange::Declined));
    // An agent cannot write a record that counts as automatic and would be replaced.
    write(&sandbox, "s", "task: mine\nautomatic: true\n");
    assert_eq!(auto("task: guess"), RecordChange::Declined);
    assert_eq!(read(&sandbox, "s").to_json()["task"], "mine");
    // A file of unknown author is not replaced either.
    plant(&sandbox, "s.yaml", "task: [half", 0);
    assert_eq!(auto("task: guess"), RecordChange::Declined);
    assert_eq!(fs::read_to_string(sandbox.base().join("s.yaml")).expect("a file"), "task: [half");
}

#[test]
fn reading_and_deleting_what_is_not_there_is_fine() {
    let sandbox = Sandbox::new();
    assert_eq!(sessions(&sandbox).read(&id("s")).expect("no error"), None);
    assert!(!sessions(&sandbox).delete(&id("s")).expect("no error"));
    assert_eq!(sessions(&sandbox).list().expect("no error"), []);
    assert!(!sandbox.base().exists());
    plant(&sandbox, "list.yaml", "- a\n", 0);
    plant(&sandbox, "half.yaml", "task: t\nx: \"half", 0);
    assert_eq!(sessions(&sandbox).read(&id("list")).expect("no error"), None);
    let error = sessions(&sandbox).read(&id("half")).expect_err("half a file");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("line "), "{error}");
    write(&sandbox, "b", "task: t");
    write(&sandbox, "a", "task: t");
    plant(&sandbox, ".hidden.yaml", "task: t", 0);
    fs::create_dir(sandbox.base().join("dir.yaml")).expect("a directory");
    assert_eq!(sessions(&sandbox).list().expect("a list"), ["a", "b", "half", "list"].map(id));
    assert!(sessions(&sandbox).delete(&id("a")).expect("no error"));
    assert_eq!(sessions(&sandbox).read(&id("a")).expect("no error"), None);
}

#[test]
fn a_fifo_in_the_place_of_a_record_does_not_block() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.base()).expect("a base");
    let made = testkit::clean_command("mkfifo").arg(sandbox.base().join("s.yaml")).status().expect("mkfifo runs");
    assert!(made.success());
    let error = sessions(&sandbox).read(&id("s")).expect_err("no file");
    assert!(error.to_string().contains("it is not a regular file"), "{error}");
    assert_eq!(sessions(&sandbox).list().expect("a list"), []);
}

#[test]
fn what_cannot_be_read_is_put_aside_before_an_agent_writes() {
    let sandbox = Sandbox::new();
    plant(&sandbox, "s.yaml", "task: [half", 0);
    write(&sandbox, "s", "task: new");
    let stamp = now().stamp();
    let aside = names_in_base(&sandbox).into_iter().find(|name| name != "s.yaml").expect("the old file");
    assert!(aside.starts_with(&format!("s.yaml.damaged-{}", &stamp[..8])), "{aside}");
    assert_eq!(fs::read_to_string(sandbox.base().join(&aside)).expect("a file"), "task: [half");
}

/// Puts a record into the base that states when it was changed, with `more` at its end.
fn aged(sandbox: &Sandbox, name: &str, updated: &str, more: &str, file_age_secs: i64) {
    plant(sandbox, &format!("{name}.yaml"), format!("task: t\nupdated: {updated}\n{more}"), file_age_secs);
}

fn iso(moment: Moment, secs_ago: i64) -> String {
    Moment { secs: moment.secs - secs_ago, ..moment }.iso()
}

#[test]
fn records_are_aged_by_their_updated_field() {
    let sandbox = Sandbox::new();
    let now = now();
    let ago = |secs: i64| iso(now, secs);
    // The file's own time contradicts the stated one, so only the stated time can make a record old or keep it young.
    aged(&sandbox, "young", &format!("'{}'", ago(6 * DAY)), "", 30 * DAY);
    aged(&sandbox, "old", &format!("'{}'", ago(8 * DAY)), "", 0);
    aged(&sandbox, "done-young", &format!("'{}'", ago(DAY / 2)), "status: completed\n", 30 * DAY);
    aged(&sandbox, "done-old", &format!("'{}'", ago(DAY + 60)), "status: completed\n", 0);
    aged(&sandbox, "unquoted-young", &ago(6 * DAY), "", 30 * DAY);
    aged(&sandbox, "unquoted-old", &ago(8 * DAY), "", 0);
    aged(&sandbox, "spaced-old", &ago(8 * DAY).replace('T', " "), "", 0);
    aged(&sandbox, "date-old", &ago(9 * DAY)[..10], "", 0);
    // The time zone decides: the same clock time is more than a day old in one, and less in the other.
    let clock = Moment { secs: now.secs - DAY, offset_secs: 0, ..now }.iso();
    aged(&sandbox, "zone-east", &format!("'{clock}+03:00'"), "status: completed\n", 0);
    aged(&sandbox, "zone-west", &format!("{clock}-03:00"), "status: completed\n", 30 * DAY);
    aged(
        &sandbox,
        "zulu",
        &format!("\"{}Z\"", Moment { offset_secs: 0, ..now }.iso()),
        "status: completed\n",
        30 * DAY,
    );
    for (name, updated) in
        [("missing", "~"), ("garbage", "once upon"), ("number", "12"), ("future", "'9999-01-01T00:00:00'")]
    {
        aged(&sandbox, &format!("{name}-old"), updated, "", 8 * DAY);
        aged(&sandbox, &format!("{name}-young"), updated, "", 6 * DAY);
    }
    let collected = sessions(&sandbox).collect_garbage(7, now).expect("a collection");
    let gone = [
        "date-old",
        "done-old",
        "future-old",
        "garbage-old",
        "missing-old",
        "number-old",
        "old",
        "spaced-old",
        "unquoted-old",
        "zone-east",
    ];
    assert_eq!(collected.removed, gone.map(id));
    assert_eq!((collected.put_aside.len(), collected.removed_damaged.len()), (0, 0));
    let left =
        ["done-young", "future-young", "garbage-young", "missing-young", "number-young", "unquoted-young", "young"];
    let left: Vec<_> = left.into_iter().chain(["zone-west", "zulu"]).map(id).collect();
    assert_eq!(sessions(&sandbox).list().expect("a list"), left);
}

/// N5.
#[test]
fn a_file_that_is_no_record_is_set_aside_and_removed_by_age() {
    let sandbox = Sandbox::new();
    plant(&sandbox, "half.yaml", "task: [half", 30 * DAY);
    plant(&sandbox, "empty.yaml", "", 30 * DAY);
    plant(&sandbox, "bytes.yaml", b"\xff\xfe", 0);
    plant(&sandbox, "fine.yaml", "task: t\n", 0);
    let first = sessions(&sandbox).collect_garbage(7, now()).expect("a collection");
    let ids: Vec<_> = first.put_aside.iter().map(|aside| aside.id.as_str()).collect();
    assert_eq!(ids, ["bytes", "empty", "half"]);
    assert!(first.put_aside[2].why.contains("line "), "{:?}", first.put_aside);
    assert_eq!(first.removed, []);
    let aside = &first.put_aside[2].name;
    assert_eq!(fs::read_to_string(sandbox.base().join(aside)).expect("a file"), "task: [half");
    // The files are piton's own: a store is created beside them, and they stay.
    fs::create_dir_all(sandbox.base().join("0123456789abcdef/objects")).expect("an old repository");
    fs::write(sandbox.base().join("0123456789abcdef/HEAD"), "ref: refs/heads/master\n").expect("a file");
    plant(&sandbox, "tmp_killed", "task: ha", 0);
    Store::open_or_create(&sandbox.base(), now()).expect("a store");
    assert!(!sandbox.base().join("0123456789abcdef").exists());
    assert!(first.put_aside.iter().all(|aside| sandbox.base().join(&aside.name).is_file()));
    // However old the files are, they are removed only this many days after they were renamed.
    let later = |days: i64| Moment { secs: now().secs + days * DAY, ..now() };
    write(&sandbox, "fine", "task: t\n");
    let second = sessions(&sandbox).collect_garbage(7, later(6)).expect("a collection");
    assert_eq!((second.removed.len(), second.put_aside.len(), second.removed_damaged.len()), (0, 0, 0));
    assert!(!sandbox.base().join("tmp_killed").exists());
    let third = sessions(&sandbox).collect_garbage(7, later(8)).expect("a collection");
    let names: Vec<_> = first.put_aside.iter().map(|aside| aside.name.clone()).collect();
    assert_eq!(third.removed_damaged, names);
    assert_eq!(names_in_base(&sandbox).iter().filter(|name| name.contains("damaged")).count(), 0);
}

#[test]
fn a_file_that_is_being_written_is_not_put_aside() {
    let sandbox = Sandbox::new();
    plant(&sandbox, "s.yaml", "task: [half", 0);
    let writer = File::options().append(true).open(sandbox.base().join("s.yaml")).expect("a file");
    assert_eq!(sessions(&sandbox).collect_garbage(7, now()).expect("a collection").put_aside, []);
    drop(writer);
    assert_eq!(sessions(&sandbox).collect_garbage(7, now()).expect("a collection").put_aside.len(), 1);
}

#[test]
fn a_directory_of_other_files_is_no_place_for_records() {
    let sandbox = Sandbox::new();
    plant(&sandbox, "main.rs", "fn main() {}", 0);
    plant(&sandbox, "config.yaml", "a: 1", 30 * DAY);
    for error in [
        sessions(&sandbox).write(&id("s"), b"task: t", RecordAuthor::Agent, now()).expect_err("other files"),
        sessions(&sandbox).collect_garbage(7, now()).expect_err("other files"),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotOurs, "{error}");
    }
    assert_eq!(names_in_base(&sandbox), ["config.yaml", "main.rs"]);
}

#[test]
fn the_resume_text_has_task_steps_and_decisions() {
    let sandbox = Sandbox::new();
    write(
        &sandbox,
        "s",
        "task: Mend the login\nstatus: in_progress\nprogress:\n- {step: find it, status: completed, result: in auth.rs}\n\
         - {step: mend it, status: in_progress}\n- just a note\n- {step: test it, status: pending}\n\
         - {step: mend it, status: done, result: 'line 12'}\ndecisions: [keep the cookie]\nblocked: no network\n\
         unresolved: []\nstate:\n  active_branch: fix\n  files_changed: [a.rs, b.rs]\n  pushed: false\n  last_commit: null\n",
    );
    let block = read(&sandbox, "s").resume(&id("s")).expect("a block");
    let (head, rest) = block.split_once('\n').expect("lines");
    assert!(head.starts_with("Resume of session s, status: in_progress, updated: 20"), "{head}");
    let expected = "Task: Mend the login\nDone:\n- find it: in auth.rs\n- just a note\n- mend it: line 12\nOpen:\n\
                    - test it [pending]\nDecisions:\n- keep the cookie\nBlocked:\n- no network\nState:\n- active_branch: fix\n\
                    - files_changed: a.rs, b.rs\n- pushed: false\n";
    assert_eq!(rest, expected);
    update(&sandbox, "s", "status: completed");
    assert_eq!(read(&sandbox, "s").resume(&id("s")), None);
}

#[test]
fn the_resume_text_stays_short_and_keeps_the_newest() {
    let sandbox = Sandbox::new();
    let steps: String = (0..500).map(|n| format!("- {{step: 'schritt ß {n} 😀', status: completed}}\n")).collect();
    let open: String = (0..50).map(|n| format!("- {{step: open {n}, status: pending}}\n")).collect();
    let decisions: String = (0..50).map(|n| format!("- decision {n} {}\n", "x".repeat(1000))).collect();
    let task = "ß".repeat(9000);
    let longest = "s".repeat(200);
    write(
        &sandbox,
        &longest,
        &format!(
            "task: {task}\nprogress:\n{steps}{open}decisions:\n{decisions}blocked: {task}\nunresolved: {task}\nstate: {{a: {task}}}\n"
        ),
    );
    let block = read(&sandbox, &longest).resume(&id(&longest)).expect("a block");
    let chars = block.chars().count();
    assert!((3500..=4000).contains(&chars), "{chars}: {block}");
    for newest in
        ["schritt ß 499 😀", "open 49 [pending]", "decision 49 x", "Blocked:\n- ß", "Unresolved:\n- ß", "- a: ß"]
    {
        assert!(block.contains(newest), "{newest}: {block}");
    }
    assert_eq!(block.matches(" earlier)").count(), 3, "{block}");
    assert!(!block.contains("schritt ß 0 "), "{block}");
    // Characters that could move a cursor are not printed.
    write(&sandbox, "s", "task: \"a\\e[2J\\nb\"\n");
    let block = read(&sandbox, "s").resume(&id("s")).expect("a block");
    assert!(block.ends_with("Task: a [2J b\n"), "{block}");
}

/// It may be intact, which only a process that can read it can tell.
#[test]
fn a_record_that_cannot_be_read_is_not_put_aside() {
    if !without_roots_powers("session::a_record_that_cannot_be_read_is_not_put_aside") {
        return;
    }
    let sandbox = Sandbox::new();
    write(&sandbox, "login", "task: old");
    let path = sandbox.base().join("login.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("permissions");
    let written = sessions(&sandbox).write(&id("login"), b"task: new", RecordAuthor::Agent, now());
    assert_eq!(written.expect_err("it cannot be read").kind(), ErrorKind::Io);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
    assert_eq!(unstamped(&sandbox, "login"), "task: old\n");
    assert_eq!(sessions(&sandbox).list().expect("names"), [id("login")]);
}
