//! The picker in a terminal: a turn, a file of it and a hunk are reverted, and undone.

use std::fs;

use testkit::Sandbox;

use crate::hook_kit::{hook, prompt};
use crate::picker::Terminal;

fn lines(changed: &[usize]) -> String {
    (1..=40).map(|n| if changed.contains(&n) { format!("changed {n}\n") } else { format!("line {n}\n") }).collect()
}

/// Two turns without a reported end: the first changes two places and adds a file, the second changes another place.
fn turns() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", lines(&[]));
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p1", "first"));
    sandbox.write("a.txt", lines(&[2, 38]));
    sandbox.write("new.txt", "made\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p2", "second"));
    sandbox.write("a.txt", lines(&[2, 20, 38]));
    sandbox
}

fn text(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.path("a.txt")).expect("a file")
}

#[test]
fn a_hunk_a_file_and_a_turn_are_reverted_and_undone() {
    let sandbox = turns();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["j", "t"]).wait_for("what this turn did");
    let screen = terminal.wait_for("+changed 38");
    assert!(!screen.contains("changed 20"), "only what the first turn did: {screen}");
    terminal.press(&["]", "h"]).wait_for("a.txt, the hunk at line 35");
    terminal.press(&["y"]).wait_for("Undo that, too? y/n");
    terminal.press(&["y"]).wait_for("Reverted prompt: first: 1 file changed");
    assert_eq!(text(&sandbox), lines(&[2, 20]));
    terminal.press(&["u"]).wait_for("Undo: back to");
    terminal.press(&["y"]).wait_for("Restored to");
    assert_eq!(text(&sandbox), lines(&[2, 20, 38]));
    terminal.press(&["G"]).wait_for("+made");
    terminal.press(&["Tab", "n", "V"]).wait_for("did in new.txt");
    terminal.press(&["y"]).wait_for("Undo that, too? y/n");
    terminal.press(&["n"]).wait_for("Nothing was done");
    assert!(sandbox.path("new.txt").exists());
    terminal.press(&["v"]).wait_for("did: 2 files changed. y/n");
    terminal.press(&["y"]).wait_for("Undo that, too? y/n");
    terminal.press(&["y"]).wait_for("Reverted prompt: first: 2 files changed");
    assert_eq!(text(&sandbox), lines(&[20]));
    assert!(!sandbox.path("new.txt").exists());
    terminal.press(&["q"]);
    terminal.is_clean(0);
}

#[test]
fn a_conflict_names_the_lines_and_touches_nothing() {
    let sandbox = turns();
    let before = lines(&[2, 20, 38]).replace("changed 2\n", "mine\n");
    sandbox.write("a.txt", &before);
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["j", "v"]).wait_for("CONFLICT a.txt: line 2");
    terminal.wait_for("Nothing was touched");
    assert_eq!(text(&sandbox), before);
}
