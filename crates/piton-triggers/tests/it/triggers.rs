//! A table of commands with the directories they may change, and the precision of the analysis on it; then its
//! behaviour on input that a user would not type.

#![allow(clippy::print_stdout, reason = "precision and recall are read from the output")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use piton_triggers::{Verdict, analyse};
use testkit::unescape_command;

const TABLE: &str = include_str!("data/commands.tsv");

struct Row {
    changing: bool,
    dirs: BTreeSet<PathBuf>,
    command: String,
}

fn look(command: &str) -> Verdict {
    analyse(command, Path::new("/w"), Some(Path::new("/home/u")))
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines
        .map(|line| {
            let mut fields = line.splitn(3, '\t');
            let mut field = || fields.next().unwrap_or_else(|| panic!("three fields: {line}"));
            let (verdict, dirs, command) = (field(), field(), field());
            let dirs = dirs.split(',').filter(|dir| *dir != "-");
            let dirs = dirs.map(|dir| if dir == "." { "/w".into() } else { Path::new("/w").join(dir) }).collect();
            Row { changing: verdict == "changing", dirs, command: unescape_command(command) }
        })
        .collect()
}

/// A1, A3.
#[test]
fn the_table_holds_and_no_changing_command_is_called_harmless() {
    let rows = rows();
    assert!(rows.len() >= 300, "{} rows", rows.len());
    let (mut hits, mut missed, mut spare, mut wrong) = (0, 0, 0, Vec::new());
    for row in &rows {
        let verdict = look(&row.command);
        match (row.changing, verdict.may_change) {
            (true, true) => hits += 1,
            (true, false) => missed += 1,
            (false, true) => spare += 1,
            (false, false) => {}
        }
        let dirs: BTreeSet<PathBuf> = verdict.dirs.iter().cloned().collect();
        if row.changing != verdict.may_change || row.dirs != dirs {
            wrong.push(format!(
                "{:?}\n  expected {} {:?}\n  found    {} {:?}",
                row.command, row.changing, row.dirs, verdict.may_change, verdict.dirs
            ));
        }
        assert_eq!(dirs.len(), verdict.dirs.len(), "each directory once: {:?}", row.command);
        assert!(verdict.summary.chars().count() <= 80 && !verdict.summary.contains('\n'), "{:?}", verdict.summary);
    }
    let percent = |part: usize, all: usize| 100.0 * part as f64 / all as f64;
    println!("{} commands, {} changing", rows.len(), hits + missed);
    println!("precision {:.2} %, recall {:.2} %", percent(hits, hits + spare), percent(hits, hits + missed));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(missed, 0);
}

#[test]
fn the_summary_names_the_command_that_changes() {
    assert_eq!(look("ls && rm -rf x; pwd").summary, "rm -rf x");
    assert_eq!(look("echo $(touch y) | cat").summary, "touch y");
    let long = format!("rm {}", "x".repeat(500));
    assert_eq!(look(&long).summary.chars().count(), 80);
}

#[test]
fn an_operand_that_may_be_a_directory_is_reported_as_a_path() {
    let verdict = look("rm -rf /other/project");
    assert_eq!(verdict.dirs, [PathBuf::from("/other")]);
    assert_eq!(verdict.paths, [PathBuf::from("/other/project")]);
}

#[test]
fn without_a_home_a_tilde_is_not_guessed() {
    let verdict = analyse("rm ~/x", Path::new("/w"), None);
    assert_eq!((verdict.may_change, verdict.dirs), (true, vec![PathBuf::from("/w")]));
}

/// A harmless command becomes a changing one if something that writes is inserted, at every place that a shell
/// evaluates.
#[test]
fn a_harmless_command_with_a_changing_part_is_changing() {
    let harmless: Vec<String> = rows().into_iter().filter(|row| !row.changing).map(|row| row.command).collect();
    for command in &harmless {
        let heredoc = command.contains("<<");
        for (before, after) in [("rm x; ", ""), ("rm x\n", ""), ("true $(rm x)\n", ""), ("", "\nrm x"), ("", "\n>x")] {
            let mixed = format!("{before}{command}{after}");
            assert!(look(&mixed).may_change, "{mixed:?}");
        }
        if !heredoc && !command.contains('#') && !command.ends_with('&') {
            for (before, after) in [("{ ", "\nrm x; }"), ("( ", "\n) >x"), ("if ", "\nthen rm x; fi"), ("", "; rm x")] {
                let mixed = format!("{before}{command}{after}");
                assert!(look(&mixed).may_change, "{mixed:?}");
            }
        }
    }
}

/// Small pseudorandom generator, so that a failure can be reproduced.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % end.max(1)
    }
}

fn check(text: &str) {
    let verdict = look(text);
    assert_eq!(verdict.may_change, !verdict.dirs.is_empty(), "{text:?}");
    assert!(verdict.dirs.iter().all(|dir| dir.is_absolute()), "{text:?}");
}

#[test]
fn random_bytes_neither_panic_nor_hang() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let alphabet = b" \t\n;&|<>(){}[]$`'\"\\#!*?~=-+/%^:,.@abrmx019";
    for round in 0..20_000 {
        let len = dice.below(120);
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                if round % 4 == 0 {
                    u8::try_from(dice.below(256)).unwrap_or(0)
                } else {
                    alphabet[dice.below(alphabet.len())]
                }
            })
            .collect();
        check(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn mutated_commands_neither_panic_nor_hang() {
    let mut dice = Dice(0xD1B5_4A32_D192_ED03);
    let commands: Vec<Vec<char>> = rows().iter().map(|row| row.command.chars().collect()).collect();
    let pieces =
        ["$(", ")", "`", "\"", "'", "${", "}", "((", "))", "<<E", "\n", "\\", "[[", "]]", "case ", "esac", "é"];
    for _ in 0..20_000 {
        let mut text = commands[dice.below(commands.len())].clone();
        for _ in 0..1 + dice.below(4) {
            let at = dice.below(text.len() + 1);
            match dice.below(4) {
                0 if !text.is_empty() => {
                    text.remove(at.min(text.len() - 1));
                }
                1 => text.truncate(at),
                2 => {
                    let other = &commands[dice.below(commands.len())];
                    text.splice(at..at, other.iter().copied());
                }
                _ => {
                    text.splice(at..at, pieces[dice.below(pieces.len())].chars());
                }
            }
        }
        check(&text.iter().collect::<String>());
    }
}

/// A2.
#[test]
fn nesting_of_any_kind_and_depth_is_survived() {
    let units = [
        ("(", ")"),
        ("( ", " )"),
        ("((", "))"),
        ("{", "}"),
        ("{ ", "; }"),
        ("[", "]"),
        ("[[ ", " ]]"),
        ("$(", ")"),
        ("echo $(", ")"),
        ("echo \"$(", ")\""),
        ("${", "}"),
        ("${x:-", "}"),
        ("\"${x:-", "}\""),
        ("$((", "))"),
        ("`", "`"),
        ("\\`", "\\`"),
        ("<(", ")"),
        ("cat <(", ")"),
        ("if ", "; then ls; fi"),
        ("while ", "; do ls; done"),
        ("for x in y; do ", "; done"),
        ("case x in x) ", ";; esac"),
        ("f() ", ""),
        ("f() { ", "; }"),
        ("! ", ""),
        ("time ", ""),
        ("coproc ", ""),
        ("sudo ", ""),
        ("eval ", ""),
        ("env ", ""),
        ("bash -c ", ""),
        ("a=(", ")"),
        ("@(", ")"),
        ("'", "'"),
        ("\"", "\""),
        ("\\", ""),
        ("<<E ", ""),
        ("cat <<E\n", "\nE"),
        ("a|", ""),
        ("a&&", ""),
        ("a;", ""),
        ("{a,", "}"),
        ("$[", "]"),
        ("$( ')' ", ")"),
        ("$(cat <<E\n)\nE\n", ")"),
        ("x=", ""),
        ("> ", ""),
        ("$(case x in x) ", ";; esac)"),
        ("echo $(( 1 + ", "))"),
        ("function f ", ""),
        ("if a; then b; el", "fi"),
    ];
    for (open, close) in units {
        for depth in [1, 10, 31, 33, 100, 500, 1000, 3000, 10_000, 100_000] {
            check(&open.repeat(depth));
            check(&format!("{}ls{}", open.repeat(depth), close.repeat(depth)));
        }
    }
}

#[test]
fn long_chains_of_any_kind_are_survived() {
    for (head, unit, tail) in [
        ("[[ ", "! ", "a ]]"),
        ("[[ ", "( ", "a ]]"),
        ("[[ ", "a && ", "a ]]"),
        ("((", "1+", "1))"),
        ("((", "-", "1))"),
        ("((", "1?1:", "1))"),
        ("((", "a=", "1))"),
        ("echo $((", "~", "1))"),
        ("if a; then b; ", "elif a; then b; ", "fi"),
        ("echo ", "$(ls) ", ""),
        ("echo ", "`ls` ", ""),
        ("echo $('", ")", "')"),
        ("echo $(# ", ")", "\n)"),
    ] {
        for depth in [100, 1000, 10_000, 30_000] {
            check(&format!("{head}{}{tail}", unit.repeat(depth)));
        }
    }
}

#[test]
fn over_the_limits_is_changing() {
    assert!(look(&"a".repeat(65 * 1024)).may_change);
    assert!(look(&format!("echo {}", " ".repeat(65 * 1024))).may_change);
    assert!(look(&format!("{}ls{}", "echo $(".repeat(40), ")".repeat(40))).may_change);
    assert!(!look(&format!("{}ls{}", "echo $(".repeat(20), ")".repeat(20))).may_change);
    assert!(!look(&format!("ls {}", "a ".repeat(10_000))).may_change);
    assert!(look("ls \0 x").may_change);
}

#[test]
fn a_command_whose_purpose_is_to_remove_or_replace_destroys_and_a_build_does_not() {
    let destroying = [
        "rm -rf build",
        "sudo env X=1 /bin/rm x",
        "cd sub && mv a b",
        "find . -name '*.o' -delete",
        "find . -type f -exec rm {} +",
        "ls | xargs rm",
        "bash -c 'truncate -s 0 log'",
        "for f in *; do unlink $f; done",
        "rsync -a --delete src/ dst/",
        "dd if=/dev/zero of=disk",
        "git reset --hard",
        "git -C sub clean -fdx",
        "git checkout -- .",
        "git restore x",
        "git stash",
        "git rebase main",
        "git branch -D topic",
        "git tag -d v1",
        "git stash drop",
        "git stash clear",
        "git worktree remove -f ../wt",
        "git reflog expire --expire=now --all",
        "git gc --prune=now",
        "git repack -a -d",
        "git update-ref -d refs/heads/x",
        "git symbolic-ref HEAD refs/heads/x",
        "git filter-branch --all",
        "git checkout --orphan empty",
        "git notes remove HEAD",
        "git remote remove origin",
        "rm -rf .git",
        "rm -rf \"$(git rev-parse --git-dir)\"",
        "git something-unknown",
        "echo 'unfinished",
    ];
    for command in destroying {
        assert!(look(command).destroys, "{command}");
    }
    let keeping = [
        "ls",
        "cargo build",
        "npm test",
        "make -j4",
        "touch x",
        "mkdir -p a/b",
        "cp a b",
        "echo x > y",
        "sed -i s/a/b/ x",
        "git add -A && git commit -m 'remove rm'",
        "git branch topic",
        "git push",
        "git status",
        "rsync -a src/ dst/",
        "echo rm -rf /",
    ];
    for command in keeping {
        assert!(!look(command).destroys, "{command}");
    }
}
