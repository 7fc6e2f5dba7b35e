//! The picker in a terminal: a rewind shows the conversation first, and says how to continue.

use std::fs;

use testkit::Sandbox;

use crate::picker::Terminal;
use crate::rewind_kit::{Claude, SESSION, files_beside};

#[test]
fn a_rewind_shows_the_last_messages_and_makes_the_fork() {
    let sandbox = Sandbox::new();
    sandbox.tree("file = before");
    let mut claude = Claude::new(&sandbox);
    (1..=3).for_each(|number| claude.turn(number));
    let before = fs::read(&claude.transcript).expect("a transcript");
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["w"]).wait_for("Claude Code: answer number 2");
    terminal.press(&["Enter"]).wait_for("Rewind files and conversation to");
    assert_eq!(files_beside(&claude.transcript).len(), 1, "nothing is written yet");
    terminal.press(&["y"]).wait_for("claude --resume ");
    assert_eq!(fs::read_to_string(sandbox.path("file")).expect("a file"), "after 2");
    assert_eq!(fs::read(&claude.transcript).expect("a transcript"), before);
    let fork = files_beside(&claude.transcript).into_iter().find(|name| !name.contains(SESSION)).expect("a fork");
    terminal.press(&["Enter", "q"]);
    terminal.wait_for(&format!("claude --resume {}", fork.trim_end_matches(".jsonl")));
}
