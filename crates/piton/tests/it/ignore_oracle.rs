//! `.gitignore` as git reads it: random trees with random rules, compared with stock git's own list of files that are
//! not ignored.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use piton::{Outcome, Settings};
use testkit::{Sandbox, git, os};

use crate::kit::{Dice, cases, now, take_at};

const NAMES: [&str; 16] =
    ["a", "b", "ab", "a.o", "b.o", "a.b.o", "foo", "Foo", "foo bar", "!a", "#a", "[a]", "a\\b", "*", "é", "x "];
const DIRS: [&str; 6] = ["a", "b", "foo", "sub", "a.o", "[d]"];

/// Creates a directory with up to three levels, and rules in some of them.
fn grow(dice: &mut Dice, dir: &Path, depth: usize) {
    fs::create_dir_all(dir).expect("a directory");
    for _ in 0..dice.roll(6) + 1 {
        let _ = fs::write(dir.join(dice.pick(&NAMES)), "x");
    }
    if dice.roll(3) < 2 {
        fs::write(dir.join(".gitignore"), rules(dice)).expect("rules");
    }
    for _ in 0..if depth < 3 { dice.roll(3) } else { 0 } {
        let below = dir.join(dice.pick(&DIRS));
        if !below.exists() {
            grow(dice, &below, depth + 1);
        }
    }
}

fn rules(dice: &mut Dice) -> String {
    let mut text = if dice.roll(20) == 0 { "\u{feff}".to_owned() } else { String::new() };
    for _ in 0..dice.roll(5) + 1 {
        text += dice.pick(&["", "", "", "", "!", "!", "!", "\\", "#"]);
        text += dice.pick(&["", "", "", "", "", "/", "**/", "*/"]);
        for part in 0..dice.pick(&[1, 1, 1, 1, 2, 3]) {
            text += if part > 0 { dice.pick(&["/", "/", "/**/", ""]) } else { "" };
            text += &piece(dice);
        }
        text += dice.pick(&["", "", "", "", "", "", "", "", "/", "/**", "/*", "*", " ", "  ", "\\ ", "\t"]);
        text += dice.pick(&["\n", "\n", "\n", "\r\n", "\n\n"]);
    }
    text
}

fn piece(dice: &mut Dice) -> String {
    let name = dice.pick(&NAMES);
    match dice.roll(9) {
        0 => format!("*{}", name.chars().last().unwrap_or('a')),
        1 => "*".to_owned(),
        2 => dice
            .pick(&["?", "[ab]*", "[!a]", "[a-z].o", "[[:upper:]]oo", "a*o", "**", "*.*", "[]a]", "[a", "f?o"])
            .to_owned(),
        3 => name.replace('\\', "\\\\").replace('*', "\\*").replace('[', "\\["),
        4 => dice.pick(&DIRS).to_owned(),
        _ => name.to_owned(),
    }
}

#[test]
fn the_files_in_scope_are_those_that_git_does_not_ignore() {
    let sandbox = Sandbox::new();
    let base = sandbox.base();
    piton::Store::open_or_create(&base, now()).expect("a store");
    fs::write(sandbox.store().join("info/exclude"), "").expect("an empty list");
    let mut ignored = 0;
    for seed in 0..cases("PITON_ORACLE_CASES", 150) {
        let dir = sandbox.other_project(&format!("p{seed}"));
        grow(&mut Dice::new(seed + 77), &dir, 0);
        let run = |args: &[&str]| git().current_dir(&dir).args(args).output().expect("git runs").stdout;
        run(&["init", "-q"]);
        let expected = names(&run(&["ls-files", "-z", "--others", "--exclude-standard"]));
        ignored += names(&run(&["ls-files", "-z", "--others"])).len() - expected.len();
        let found = match take_at(&base, &dir, &Settings::default(), now()).outcome {
            Outcome::Taken(id) => names(&sandbox.store_git(&["ls-tree", "-r", "-z", "--name-only", &id.to_string()])),
            _ => BTreeSet::new(),
        };
        assert_eq!(found, expected, "seed {seed}\n{}", all_rules(&dir));
        fs::remove_dir_all(&dir).expect("a directory");
    }
    assert!(ignored > 100, "rules that leave out only {ignored} files say nothing");
}

fn names(listing: &[u8]) -> BTreeSet<String> {
    let paths = listing.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| os(path).to_string_lossy().into_owned()).collect()
}

fn all_rules(dir: &Path) -> String {
    let mut text = String::new();
    testkit::walk(dir, &mut |path| {
        if path.file_name().is_some_and(|name| name.as_bytes() == b".gitignore") {
            let rules = fs::read_to_string(path).expect("rules");
            text += &format!("{}: {rules:?}\n", path.strip_prefix(dir).expect("below it").display());
        }
    });
    text
}
