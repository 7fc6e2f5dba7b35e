//! `piton revert` in a terminal: questions, and hunks that are chosen one by one.

use std::fs;

use testkit::{Sandbox, wait_for_maintenance};

use crate::hook_kit::{hook, prompt};
use crate::kit::{PITON, piton};
use crate::picker::Terminal;

const LONG: usize = 40;

fn lines(change: impl Fn(usize) -> Option<String>) -> String {
    (1..=LONG).map(|line| change(line).unwrap_or_else(|| format!("line {line}")) + "\n").collect()
}

/// One turn, still running, that changes three places of a file, and adds and deletes one.
fn turn() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", lines(|_| None));
    sandbox.write("gone.txt", "words\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p1", "first"));
    sandbox.write("a.txt", lines(|line| [2, 20, 39].contains(&line).then(|| format!("changed {line}"))));
    sandbox.write("new.txt", "made\n");
    fs::remove_file(sandbox.path("gone.txt")).expect("a file");
    sandbox
}

fn changed(sandbox: &Sandbox) -> Vec<usize> {
    let text = fs::read_to_string(sandbox.path("a.txt")).expect("a file");
    let is_changed = |(at, line): (usize, &str)| line.starts_with("changed").then_some(at + 1);
    text.lines().enumerate().filter_map(is_changed).collect()
}

#[test]
fn hunks_are_chosen_as_git_add_asks_for_them() {
    let sandbox = turn();
    let Some(terminal) = Terminal::open(&sandbox, (100, 60), &format!("{PITON} revert 1 -p")) else { return };
    terminal.wait_for("(1/3) Take back this hunk [y,n,a,d,q,?]?");
    terminal.press(&["?", "Enter"]).wait_for("take back neither this hunk nor a later one in the file");
    terminal.press(&["n", "Enter"]).wait_for("(2/3) Take back this hunk");
    let screen = terminal.press(&["y", "Enter"]).wait_for("(3/3) Take back this hunk");
    assert!(screen.contains("-line 39") && screen.contains("+changed 39"), "{screen}");
    terminal.press(&["d", "Enter"]).wait_for("Take back the deletion of gone.txt");
    terminal.press(&["y", "Enter"]).wait_for("Take back the addition of new.txt");
    terminal.press(&["n", "Enter"]).wait_for("Reverted prompt: first: 2 files changed");
    terminal.wait_for("exit=0");
    assert_eq!(changed(&sandbox), [2, 39]);
    assert!(sandbox.path("gone.txt").exists() && sandbox.path("new.txt").exists());
    wait_for_maintenance(&sandbox.root());
    piton(&sandbox, ["undo"]).done();
    assert_eq!(changed(&sandbox), [2, 20, 39]);
    assert!(!sandbox.path("gone.txt").exists());
}

#[test]
fn quitting_takes_back_what_was_chosen_and_no_choice_takes_back_nothing() {
    let sandbox = turn();
    let command = format!("{PITON} revert 1 -p a.txt");
    let Some(terminal) = Terminal::open(&sandbox, (100, 60), &command) else { return };
    terminal.press(&["q", "Enter"]).wait_for("nothing was chosen");
    terminal.wait_for("exit=1");
    assert_eq!(changed(&sandbox), [2, 20, 39]);
    let terminal = Terminal::open(&sandbox, (100, 60), &command).expect("tmux");
    terminal.press(&["y", "Enter"]).wait_for("(2/3)");
    terminal.press(&["q", "Enter"]).wait_for("exit=0");
    assert_eq!(changed(&sandbox), [20, 39]);
}

#[test]
fn a_program_that_wants_to_choose_hunks_is_told_how_to_name_them() {
    let sandbox = turn();
    let ran = piton(&sandbox, ["revert", "1", "-p"]).failed(2);
    assert!(ran.stderr.contains("--hunk FILE:LINE"), "{ran:?}");
    piton(&sandbox, ["revert", "1", "--hunk", "a.txt:36", "a.txt"]).done();
    assert_eq!(changed(&sandbox), [2, 20]);
}

#[test]
fn the_plan_is_shown_and_what_cannot_be_told_apart_is_asked_for() {
    let sandbox = turn();
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p2", "second"));
    let Some(terminal) = Terminal::open(&sandbox, (100, 60), &format!("{PITON} revert 2")) else { return };
    terminal.wait_for("Undo that, too? [y/N]");
    let screen = terminal.press(&["y", "Enter"]).wait_for("Revert? [y/N]");
    assert!(screen.contains("Plan for prompt: first: 3 files to change"), "{screen}");
    terminal.press(&["n", "Enter"]).wait_for("exit=1");
    assert_eq!(changed(&sandbox), [2, 20, 39]);
    let terminal = Terminal::open(&sandbox, (100, 60), &format!("{PITON} restore 2 --keep-edits")).expect("tmux");
    terminal.press(&["y", "Enter"]).wait_for("Restore? [y/N]");
    terminal.press(&["y", "Enter"]).wait_for("and kept your edits: 3 files changed");
    terminal.wait_for("exit=0");
    assert_eq!(changed(&sandbox), [0; 0]);
}
