//! `piton log`, `piton blame` and `piton search`: their texts, keys, exit codes and empty states.

use std::fs;

use serde_json::{Value, json};
use testkit::{Sandbox, os};

use crate::hook_kit::{bash, hook, prompt};
use crate::kit::{command, piton, run};
use crate::older::older;

/// A turn of an agent, an edit of the user's, and another turn, whose end is open.
fn two_turns(sandbox: &Sandbox) {
    sandbox.tree("src/main.rs = fn main() {}\\n\n notes = 1\\n");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p1", "add parse_header"));
    sandbox.write("src/main.rs", "fn main() {}\nfn parse_header() {}\n");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p2", "clean it up"));
    hook(sandbox, &["claude"], bash(sandbox, "s", "p2", "rm src/main.rs"));
    sandbox.write("src/main.rs", "fn main() {}\n");
    piton(sandbox, ["take", "-m", "by hand"]).done();
}

fn entries(value: &Value) -> Vec<Value> {
    value.as_array().expect("a list").clone()
}

#[test]
fn log_names_the_turns_that_changed_a_file() {
    let sandbox = Sandbox::new();
    two_turns(&sandbox);
    let text = piton(&sandbox, ["log", "src/main.rs"]).done().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("  2. ") && lines[0].contains("prompt: clean it up  (1 file, +0/-1)"), "{text}");
    assert!(lines[1].contains("src/main.rs  +0 -1"), "{text}");
    assert!(lines[2].starts_with("  3. ") && lines[2].contains("prompt: add parse_header  (1 file, +1/-0)"), "{text}");
    let log = entries(&piton(&sandbox, ["log", "--json"]).done().json());
    let keys = |entry: &Value| [&entry["row"], &entry["turn"], &entry["agent"], &entry["prompt"]].map(Value::clone);
    assert_eq!(keys(&log[0]), [json!(2), json!("p2"), json!("claude"), json!("clean it up")]);
    assert_eq!((&log[0]["files"][0]["path"], &log[0]["deletions"]), (&json!("src/main.rs"), &json!(1)));
    assert_eq!(entries(&piton(&sandbox, ["log", "--json", "notes"]).done().json()), Vec::<Value>::new());
    let patch = piton(&sandbox, ["log", "-p", "--limit", "1", "src"]).done();
    assert!(patch.stdout.contains("-fn parse_header() {}\n"), "{patch:?}");
    assert!(patch.stderr.contains("piton log --limit 0"), "{patch:?}");
}

#[test]
fn blame_names_the_turn_of_each_line() {
    let sandbox = Sandbox::new();
    two_turns(&sandbox);
    sandbox.write("src/main.rs", "fn main() {}\nfn by_hand() {}\n");
    let report = piton(&sandbox, ["blame", "--json", "src/main.rs"]).done().json();
    let lines = entries(&report["lines"]);
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["by"], &lines[0]["text"], &lines[0]["turn"]),
        (&json!("earlier"), &json!("fn main() {}"), &json!(null))
    );
    assert_eq!((&lines[1]["by"], &lines[1]["turn"], &lines[1]["line"]), (&json!("unknown"), &json!("p2"), &json!(2)));
    let ran = piton(&sandbox, ["blame", "src/main.rs"]).done();
    let text: Vec<&str> = ran.stdout.lines().collect();
    assert!(text[0].contains("earlier") && text[0].ends_with("1  fn main() {}"), "{ran:?}");
    assert!(text[1].contains("claude?") && text[1].ends_with("2  fn by_hand() {}"), "{ran:?}");
    assert!(ran.stderr.contains("hint: claude?: the end of the turn is not known"), "{ran:?}");
}

#[test]
fn search_tells_where_a_function_came_and_went_and_how_to_bring_it_back() {
    let sandbox = Sandbox::new();
    two_turns(&sandbox);
    let ran = piton(&sandbox, ["search", "parse_header"]).done();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].contains("prompt: clean it up"), "{ran:?}");
    assert_eq!(lines[1..3], ["     src/main.rs  vanished", "       -2: fn parse_header() {}"]);
    assert!(lines[3].contains("prompt: add parse_header"), "{ran:?}");
    assert_eq!(lines[4..], ["     src/main.rs  appeared", "       +2: fn parse_header() {}"]);
    assert!(ran.stderr.contains("`piton revert 2 src/main.rs`"), "{ran:?}");
    let restored = piton(&sandbox, ["restore", "2", "src/main.rs", "--across-sessions"]).done();
    assert!(fs::read_to_string(sandbox.path("src/main.rs")).expect("a file").contains("parse_header"), "{restored:?}");
    let found = entries(&piton(&sandbox, ["search", "--json", "parse_header", "--", "src"]).done().json());
    assert_eq!((&found[0]["contents"][0]["before"], &found[0]["contents"][0]["after"]), (&json!(1), &json!(0)));
    let found = entries(&piton(&sandbox, ["search", "--json", "parse_header", "--prompts"]).done().json());
    assert_eq!((found.len(), &found[0]["texts"][0]["text"]), (1, &json!("add parse_header")));
    let found = entries(&piton(&sandbox, ["search", "--json", "--regex", "fn [a-z]+_"]).done().json());
    assert_eq!(found.len(), 2);
    let oldest = entries(&piton(&sandbox, ["search", "--json", "--all", "fn main"]).done().json());
    assert_eq!((oldest.len(), &oldest[0]["by"]), (1, &json!("earlier")));
}

#[test]
fn a_revert_is_one_change_and_keeps_the_authors_of_other_lines() {
    let sandbox = Sandbox::new();
    two_turns(&sandbox);
    // Ends the turn before it.
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p3", "thanks"));
    sandbox.write("src/main.rs", "fn by_hand() {}\n\n\nfn main() {}\n");
    piton(&sandbox, ["take"]).done();
    piton(&sandbox, ["revert", "3", "src/main.rs", "--with-own-edits"]).done();
    let reverted = fs::read_to_string(sandbox.path("src/main.rs")).expect("a file");
    assert!(reverted.contains("parse_header") && reverted.contains("by_hand"), "{reverted}");
    let check = || {
        let lines = entries(&piton(&sandbox, ["blame", "--json", "src/main.rs"]).done().json()["lines"]);
        let by = |text: &str| lines.iter().find(|line| line["text"] == text).map(|line| line["by"].clone());
        assert_eq!(by("fn main() {}"), Some(json!("earlier")), "{lines:?}");
        assert_eq!(by("fn parse_header() {}"), Some(json!("you")), "{lines:?}");
    };
    check();
    fs::remove_file(sandbox.path("src/main.rs")).expect("a file");
    piton(&sandbox, ["recover", "src/main.rs"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("src/main.rs")).expect("a file"), reverted);
    check();
    let log = entries(&piton(&sandbox, ["log", "--json", "src/main.rs"]).done().json());
    let counts: Vec<_> = log.iter().map(|entry| (&entry["insertions"], !entry["restored"].is_null())).collect();
    assert!(counts.contains(&(&json!(1), true)), "the revert added one line: {log:#?}");
}

#[test]
fn a_search_that_finds_nothing_exits_with_4_and_says_so() {
    let sandbox = Sandbox::new();
    two_turns(&sandbox);
    let ran = piton(&sandbox, ["search", "unicorn"]);
    assert_eq!((ran.code(), ran.stdout.as_str()), (4, "unicorn was not found in the changes between 3 checkpoints\n"));
    assert!(ran.stderr.starts_with("hint: `--all` searches the oldest"), "{ran:?}");
    let ran = piton(&sandbox, ["search", "--json", "unicorn"]);
    assert_eq!((ran.code(), ran.json()), (4, json!([])));
    assert!(piton(&sandbox, ["search", "(", "--regex"]).failed(2).stderr.contains("search for"));
    assert!(piton(&sandbox, ["search", ""]).failed(2).stderr.contains("it is empty"));
}

#[test]
fn a_project_without_checkpoints_or_turns_has_an_empty_log() {
    let sandbox = Sandbox::new();
    let ran = piton(&sandbox, ["log"]).done();
    assert!(ran.stdout.starts_with("No checkpoints found for ") && ran.stderr.contains("piton take"), "{ran:?}");
    assert_eq!(piton(&sandbox, ["log", "--json"]).done().json(), json!([]));
    for args in [&["blame", "x"][..], &["search", "x"], &["cat", "1", "x"], &["export", "1", "x"]] {
        piton(&sandbox, args).failed(4);
    }
    sandbox.tree("x = 1");
    piton(&sandbox, ["take"]).done();
    assert!(piton(&sandbox, ["log"]).done().stdout.starts_with("No change of "));
    sandbox.tree("x = 2");
    piton(&sandbox, ["take"]).done();
    let ran = piton(&sandbox, ["log"]).done();
    assert!(ran.stdout.contains("your edits  (1 file, +1/-1)  you"), "{ran:?}");
    assert!(ran.stderr.contains("hint: no turns yet"), "{ran:?}");
    assert!(piton(&sandbox, ["log", "mistyped"]).failed(4).stderr.contains("no checkpoint holds"));
    fs::remove_file(sandbox.path("x")).expect("a file");
    let ran = piton(&sandbox, ["blame", "x"]).failed(4);
    assert!(ran.stderr.contains("it is not there now") && ran.stderr.contains("piton recover PATH"), "{ran:?}");
}

#[test]
fn names_that_are_not_utf_8_are_found_and_named_exactly() {
    let sandbox = Sandbox::new();
    sandbox.write(b"dir/\xff", "hay\n");
    piton(&sandbox, ["take"]).done();
    sandbox.write(b"dir/\xff", "hay\nneedle\n");
    piton(&sandbox, ["take"]).done();
    let path = os(b"dir/\xff");
    let log = run(command(&sandbox).args(["log", "--json"]).arg(&path)).done().json();
    assert_eq!(log[0]["files"][0]["path_bytes"], "dir/%ff");
    let found = run(command(&sandbox).args(["search", "--json", "needle", "--"]).arg(&path)).done().json();
    assert_eq!(found[0]["contents"][0]["path_bytes"], "dir/%ff");
    let blame = run(command(&sandbox).args(["blame", "--json"]).arg(&path)).done().json();
    assert_eq!((&blame["path_bytes"], &blame["lines"][1]["by"]), (&json!("dir/%ff"), &json!("you")));
}

#[test]
fn a_store_of_version_0_1_has_a_log_a_blame_and_a_search() {
    let sandbox = Sandbox::new();
    let Some(older) = older(&sandbox) else { return };
    sandbox.tree("file = hay\\n");
    for (turn, text) in [("p1", "hay\n"), ("p2", "hay\nneedle\n"), ("p3", "hay\n")] {
        sandbox.write("file", text);
        older.hook(&prompt(&sandbox, "s", turn, &format!("do {turn}")));
        older.hook(&bash(&sandbox, "s", turn, "rm x"));
    }
    let log = entries(&piton(&sandbox, ["log", "--json", "file"]).done().json());
    let of = |entry: &Value| (entry["by"].clone(), entry["turn"].clone(), entry["prompt"].clone());
    let want = [("p2", "do p2"), ("p1", "do p1")].map(|(turn, text)| (json!("unknown"), json!(turn), json!(text)));
    assert_eq!(log.iter().map(of).collect::<Vec<_>>(), want);
    assert_eq!(entries(&piton(&sandbox, ["search", "--json", "needle"]).done().json()).len(), 2);
    let blame = piton(&sandbox, ["blame", "--json", "file"]).done().json();
    assert_eq!(blame["lines"][0]["by"], "earlier");
}
