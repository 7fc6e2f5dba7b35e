//! Tests of the picker without a terminal, a store or a thread: effects of events on the state, and the drawn screens.

use std::collections::HashSet;
use std::path::Path;

use piton::{Change, CheckpointId, Diff, DiffStatus, FileDiff, RestoreOutcome};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Size;

use super::layout::Focus;
use super::list::Row;
use super::patch::Patch;
use super::state::{Action, Busy, Event, JobResult, Overlay, Planned, RestoreRequest, Stage, State, WorkError};
use super::view::{self, Look};

fn id(number: usize) -> CheckpointId {
    CheckpointId::from_bytes([u8::try_from(number % 256).expect("a byte"); 20])
}

fn row(number: usize, reason: &str, session: Option<&str>) -> Row {
    Row {
        id: id(number),
        number,
        when: "2026-03-16 04:36".to_owned(),
        reason: reason.to_owned(),
        who: session.map(|session| format!("claude {session}")),
        session: session.map(str::to_owned),
        is_incomplete: false,
        change: None,
    }
}

fn rows(count: usize) -> Vec<Row> {
    (1..=count).map(|number| row(number, &format!("reason {number}"), None)).collect()
}

/// Opens a picker of this size with a list, and returns the actions that it asks for.
fn opened(width: u16, height: u16, rows: Vec<Row>) -> (State, Vec<Action>) {
    let mut state = State::new(Size { width, height });
    let actions = state.update(Event::Listed(Ok((rows, None))));
    (state, actions)
}

fn press(state: &mut State, code: KeyCode) -> Vec<Action> {
    state.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

/// Types characters, and returns the actions of the last one.
fn keys(state: &mut State, typed: &str) -> Vec<Action> {
    typed.chars().map(|character| press(state, KeyCode::Char(character))).last().unwrap_or_default()
}

fn mouse(state: &mut State, kind: MouseEventKind, column: u16, row: u16) -> Vec<Action> {
    state.update(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }))
}

fn selected(state: &State) -> usize {
    state.list.selected().expect("one is selected").number
}

/// Makes a diff of files with this many lines each.
fn patch(files: &[(&str, DiffStatus)], lines: usize) -> Patch {
    let mut diff = Diff::default();
    for (path, status) in files {
        diff.patch.extend(format!("diff --git a/{path} b/{path}\n@@ -0,0 +1 @@\n").into_bytes());
        (0..lines).for_each(|line| diff.patch.extend(format!("+{path} {line}\n").into_bytes()));
        let mut file = FileDiff::new(*path, *status);
        file.insertions = lines as u64;
        diff.files.push(file);
    }
    Patch::new(&diff)
}

const AB: [(&str, DiffStatus); 2] = [("a", DiffStatus::Modified), ("b", DiffStatus::Added)];

fn planned(request: &RestoreRequest, others: &[&str]) -> Planned {
    Planned {
        request: request.clone(),
        target: request.to.unwrap_or(id(9)),
        reason: "why".to_owned(),
        written: 3,
        removed: 1,
        left: 0,
        changes: 4,
        lines: (0..100).map(|line| format!("  write   {line}")).collect(),
        others: others.iter().map(|&other| other.to_owned()).collect(),
    }
}

/// Presses a key that asks for a plan, and delivers the plan.
fn plan_comes(state: &mut State, key: KeyCode, others: &[&str]) -> Planned {
    let asked = press(state, key);
    let [Action::Plan(request)] = &asked[..] else { panic!("{asked:?}") };
    let planned = planned(request, others);
    assert_eq!(state.update(Event::Planned(request.clone(), Ok(planned.clone()))), []);
    planned
}

fn drawn(state: &State) -> String {
    drawn_at(state, state.size, true)
}

fn drawn_at(state: &State, size: Size, has_colours: bool) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.width, size.height)).expect("a terminal in memory");
    let look = Look::new(has_colours, Path::new("/project"), None);
    terminal.draw(|frame| view::draw(frame, state, &look)).expect("drawing in memory");
    terminal.backend().to_string()
}

#[test]
fn opening_asks_for_the_diff_of_the_newest_and_the_counts_of_what_is_on_the_screen() {
    let (_, actions) = opened(120, 13, rows(300));
    let window = (1..=10).map(id).collect();
    assert_eq!(actions, [Action::Compare(id(1)), Action::Count(window)]);
}

#[test]
fn what_must_be_said_about_the_project_is_said() {
    let mut state = State::new(Size { width: 120, height: 35 });
    state.update(Event::Listed(Ok((rows(1), Some("A restore was cut short".to_owned())))));
    assert!(drawn(&state).contains("A restore was cut short"));
    state.update(Event::Listed(Ok((rows(1), None))));
    assert!(drawn(&state).contains("A restore was cut short"), "a new list says nothing of it");
}

#[test]
fn counts_are_asked_for_once_and_again_where_the_window_moves() {
    let (mut state, _) = opened(120, 13, rows(200));
    let change = Change { files: 1, insertions: 2, deletions: 3 };
    assert_eq!(state.update(Event::Counted(id(1), change)), []);
    assert!(drawn(&state).contains("+2/-3"));
    assert_eq!(keys(&mut state, "j"), [Action::Compare(id(2))]);
    let last = keys(&mut state, "G");
    assert_eq!(last, [Action::Compare(id(200)), Action::Count((191..=200).map(id).collect())]);
    // Counts stay known when the list is read again.
    let actions = state.update(Event::Listed(Ok((rows(200), None))));
    assert_eq!(actions, [Action::Compare(id(200)), Action::Count((191..=200).map(id).collect())]);
    assert_eq!(keys(&mut state, "g").last(), Some(&Action::Count((2..=10).map(id).collect())));
}

#[test]
fn keys_move_the_selection_and_it_stays_on_the_screen() {
    let (mut state, _) = opened(120, 13, rows(50));
    for (typed, place) in [("j", 2), ("jj", 4), ("k", 3), ("G", 50), ("j", 50), ("g", 1), ("k", 1)] {
        keys(&mut state, typed);
        assert_eq!(selected(&state), place, "{typed}");
        assert!(state.list.window(state.list_height()).any(|(_, is_selected)| is_selected));
    }
    for (code, place) in [(KeyCode::Down, 2), (KeyCode::Up, 1), (KeyCode::End, 50), (KeyCode::Home, 1)] {
        press(&mut state, code);
        assert_eq!(selected(&state), place);
    }
}

#[test]
fn only_the_newest_answer_is_shown() {
    let (mut state, _) = opened(120, 35, rows(3));
    keys(&mut state, "j");
    state.update(Event::Compared(id(1), Ok(patch(&AB, 1))));
    assert!(state.shown.is_none());
    state.update(Event::Compared(id(2), Ok(patch(&AB, 1))));
    assert!(state.current().is_some());
    keys(&mut state, "j");
    assert!(state.is_stale() && state.current().is_none() && drawn(&state).contains("comparing"));
    assert_eq!(keys(&mut state, "o"), [], "a file of another checkpoint is not restored");
}

#[test]
fn the_diff_scrolls_to_its_end_and_no_further_and_the_file_follows() {
    let (mut state, _) = opened(120, 35, rows(1));
    state.update(Event::Compared(id(1), Ok(patch(&AB, 50_000))));
    keys(&mut state, "JJK");
    assert_eq!((state.line, state.file), (1, 0));
    press(&mut state, KeyCode::Tab);
    keys(&mut state, "G");
    assert_eq!((state.line, state.file), (state.last_line(), 1));
    assert!(drawn(&state).contains("+b 49999"));
    press(&mut state, KeyCode::PageDown);
    assert_eq!(state.line, state.last_line());
    keys(&mut state, "N");
    assert_eq!((state.line, state.file), (0, 0));
    press(&mut state, KeyCode::Down);
    assert_eq!((state.line, state.file), (50_002, 1));
    press(&mut state, KeyCode::Right);
    assert!(!drawn(&state).contains("diff --git") && drawn(&state).contains("it a/b b/b"));
}

#[test]
fn text_filters_while_it_is_typed_by_reason_and_by_id() {
    let mut all = rows(3);
    all[1].reason = "Before PATCH".to_owned();
    let (mut state, _) = opened(120, 35, all);
    assert_eq!(keys(&mut state, "/patch"), []);
    assert_eq!((selected(&state), state.list.counts()), (2, (3, 1)));
    press(&mut state, KeyCode::Enter);
    assert!(drawn(&state).contains("1 of 3 checkpoints, text \"patch\""));
    assert_eq!(keys(&mut state, "q"), [Action::Quit], "the prompt is closed");
    press(&mut state, KeyCode::Esc);
    assert_eq!((selected(&state), state.list.counts()), (2, (3, 3)), "what was selected stays so");
    keys(&mut state, "/0303");
    assert_eq!((selected(&state), state.list.counts()), (3, (3, 1)));
    (0..4).for_each(|_| drop(press(&mut state, KeyCode::Backspace)));
    assert_eq!(state.list.counts(), (3, 3));
    keys(&mut state, "nothing like it");
    assert!(drawn(&state).contains("No checkpoint is left"));
    assert_eq!(press(&mut state, KeyCode::Esc), [Action::Compare(id(1))]);
    assert_eq!((state.overlay.is_none(), state.list.counts()), (true, (3, 3)));
}

#[test]
fn a_file_filters_as_soon_as_it_is_known_which_checkpoints_have_to_do_with_it() {
    let (mut state, _) = opened(120, 35, rows(3));
    state.update(Event::Compared(id(1), Ok(patch(&AB, 1))));
    keys(&mut state, "f");
    assert!(matches!(&state.overlay, Some(Overlay::Prompt(_, text)) if text == "a"), "{:?}", state.overlay);
    keys(&mut state, "/c");
    assert_eq!(press(&mut state, KeyCode::Enter), [Action::Find(b"a/c".to_vec())]);
    assert_eq!(state.list.counts(), (3, 3));
    state.update(Event::Found(b"another".to_vec(), Ok(HashSet::new())));
    assert_eq!(state.list.counts(), (3, 3), "an answer to an older question");
    let found = state.update(Event::Found(b"a/c".to_vec(), Ok(HashSet::from([id(3)]))));
    assert_eq!((found, selected(&state)), (vec![Action::Compare(id(3))], 3));
    let listed = state.update(Event::Listed(Ok((rows(3), None))));
    assert!(listed.contains(&Action::Find(b"a/c".to_vec())), "a new list is filtered anew: {listed:?}");
    keys(&mut state, "f");
    (0..3).for_each(|_| drop(press(&mut state, KeyCode::Backspace)));
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.list.counts(), (3, 3));
    keys(&mut state, "f");
    press(&mut state, KeyCode::Backspace);
    keys(&mut state, "../x");
    assert_eq!(press(&mut state, KeyCode::Enter), []);
    assert!(matches!(state.overlay, Some(Overlay::Error(_))));
}

#[test]
fn sessions_are_gone_through_one_by_one() {
    let all = vec![row(1, "x", Some("one")), row(2, "x", None), row(3, "x", Some("two")), row(4, "x", Some("one"))];
    let (mut state, _) = opened(120, 35, all);
    let shown = |state: &State| state.list.window(9).map(|(row, _)| row.number).collect::<Vec<_>>();
    assert!(drawn(&state).contains("[claude one]"));
    for wanted in [vec![1, 4], vec![3], vec![1, 2, 3, 4]] {
        keys(&mut state, "s");
        assert_eq!(shown(&state), wanted);
    }
    let (mut state, _) = opened(120, 35, vec![row(1, "x", Some("one"))]);
    keys(&mut state, "s");
    assert_eq!(state.status, "There is only one session");
}

#[test]
fn nothing_is_restored_without_a_yes_to_how_many_files_change() {
    let (mut state, _) = opened(120, 35, rows(2));
    let planned = plan_comes(&mut state, KeyCode::Enter, &[]);
    assert!(drawn(&state).contains("Restore to 0101010: 3 files written, 1 removed. y/n"));
    for no in [KeyCode::Char('n'), KeyCode::Esc, KeyCode::Char('q')] {
        assert_eq!(press(&mut state, no), []);
        assert_eq!((state.overlay.is_none(), state.status.as_str()), (true, "Nothing was done"));
        plan_comes(&mut state, KeyCode::Char('r'), &[]);
    }
    for other in [KeyCode::Enter, KeyCode::Char('r'), KeyCode::Char('x'), KeyCode::Tab] {
        assert_eq!(press(&mut state, other), []);
        assert!(matches!(state.overlay, Some(Overlay::Plan(_, Stage::Confirm))));
    }
    assert_eq!(keys(&mut state, "y"), [Action::Do(planned, false)]);
    assert_eq!(state.busy, Some(Busy::Restoring));
    assert_eq!((keys(&mut state, "r"), keys(&mut state, "q")), (vec![], vec![]), "one thing at a time");
    let done =
        JobResult { outcome: RestoreOutcome::Restored, text: "Restored to 0101010\nmore".to_owned(), is_rewind: false };
    assert_eq!(state.update(Event::Done(Ok(done))), [Action::List]);
    assert_eq!((state.status.as_str(), state.busy.as_ref()), ("Restored to 0101010 (u: undo)", None));
    assert_eq!(keys(&mut state, "q"), [Action::Quit]);
    assert_eq!(state.done.len(), 1);
}

#[test]
fn the_work_of_other_sessions_needs_a_second_yes() {
    let (mut state, _) = opened(120, 35, rows(2));
    let planned = plan_comes(&mut state, KeyCode::Enter, &["later work of codex"]);
    assert_eq!(keys(&mut state, "y"), []);
    let question = drawn(&state);
    assert!(question.contains("later work of codex") && question.contains("Undo that, too? y/n"), "{question}");
    assert_eq!((keys(&mut state, "n"), state.status.as_str()), (vec![], "Nothing was done"));
    plan_comes(&mut state, KeyCode::Enter, &["later work of codex"]);
    keys(&mut state, "y");
    assert_eq!(keys(&mut state, "y"), [Action::Do(planned, true)]);
}

#[test]
fn one_file_is_restored_by_itself_and_a_new_one_is_refused_with_a_hint() {
    let (mut state, _) = opened(120, 35, rows(2));
    state.update(Event::Compared(id(1), Ok(patch(&AB, 1))));
    let planned = plan_comes(&mut state, KeyCode::Char('o'), &[]);
    assert_eq!(
        planned.request,
        RestoreRequest { to: Some(id(1)), path: Some(b"a".to_vec()), only_look: false, revert: None, is_rewind: false }
    );
    assert!(drawn(&state).contains("Restore a from 0101010: 3 files written"));
    keys(&mut state, "n");
    assert_eq!(keys(&mut state, "no"), []);
    let refused = drawn(&state);
    assert!(refused.contains("cannot restore b from 0101010") && refused.contains("hint: restoring everything"));
    keys(&mut state, "q");
    assert!(state.overlay.is_none());
}

#[test]
fn the_plan_is_looked_at_scrolled_and_leads_to_the_question() {
    let (mut state, _) = opened(120, 20, rows(2));
    plan_comes(&mut state, KeyCode::Char('p'), &[]);
    assert!(matches!(state.overlay, Some(Overlay::Plan(_, Stage::Look))));
    assert!(drawn(&state).contains("write   0") && !drawn(&state).contains("write   99"));
    assert_eq!(keys(&mut state, "y"), [], "looking is not agreeing");
    (0..300).for_each(|_| drop(press(&mut state, KeyCode::PageDown)));
    assert!(drawn(&state).contains("write   99"));
    press(&mut state, KeyCode::Up);
    assert!(!drawn(&state).contains("write   99"), "it moves at once");
    press(&mut state, KeyCode::Enter);
    assert!(matches!(state.overlay, Some(Overlay::Plan(_, Stage::Confirm))));
    keys(&mut state, "p");
    assert!(matches!(state.overlay, Some(Overlay::Plan(_, Stage::Look))));
    press(&mut state, KeyCode::Esc);
    assert!(state.overlay.is_none());
}

#[test]
fn undo_asks_too_and_errors_stay_in_a_box() {
    let (mut state, _) = opened(120, 35, rows(2));
    let planned = plan_comes(&mut state, KeyCode::Char('u'), &[]);
    assert_eq!(planned.request.to, None);
    assert!(drawn(&state).contains("Undo: back to 0909090"));
    keys(&mut state, "n");
    let asked = keys(&mut state, "u");
    let [Action::Plan(request)] = &asked[..] else { panic!("{asked:?}") };
    let work_error = || WorkError { message: "cannot undo".to_owned(), hint: Some("do this".to_owned()) };
    assert_eq!(state.update(Event::Planned(request.clone(), Err(work_error()))), []);
    assert!(drawn(&state).contains("cannot undo") && drawn(&state).contains("hint: do this"));
    assert_eq!(press(&mut state, KeyCode::Enter), []);
    for failed in [Event::Listed(Err(work_error())), Event::Done(Err(work_error()))] {
        state.update(failed);
        assert!(matches!(state.overlay.take(), Some(Overlay::Error(_))));
    }
    state.update(Event::Compared(id(1), Err(work_error())));
    assert!(drawn(&state).contains("do this"));
}

#[test]
fn a_plan_that_was_given_up_does_not_come_back() {
    let (mut state, _) = opened(120, 35, rows(2));
    let asked = keys(&mut state, "r");
    let [Action::Plan(request)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(press(&mut state, KeyCode::Esc), []);
    state.update(Event::Planned(request.clone(), Ok(planned(request, &[]))));
    assert!(state.overlay.is_none());
}

#[test]
fn nothing_to_do_is_said_and_what_is_left_is_shown() {
    let (mut state, _) = opened(120, 35, rows(1));
    for left in [0, 1] {
        let asked = keys(&mut state, "r");
        let [Action::Plan(request)] = &asked[..] else { panic!("{asked:?}") };
        let nothing = Planned { changes: 0, written: 0, removed: 0, left, ..planned(request, &[]) };
        state.update(Event::Planned(request.clone(), Ok(nothing)));
        assert_eq!(state.overlay.is_some(), left == 1);
    }
    assert_eq!(press(&mut state, KeyCode::Enter), []);
    assert!(matches!(state.overlay, Some(Overlay::Plan(_, Stage::Look))), "there is nothing to agree to");
}

#[test]
fn a_signal_lets_a_restore_finish_and_a_second_one_does_not() {
    let (mut state, _) = opened(120, 35, rows(1));
    assert_eq!(state.update(Event::Signal(15)), [Action::Quit]);
    for insists in [false, true] {
        let (mut state, _) = opened(120, 35, rows(1));
        plan_comes(&mut state, KeyCode::Enter, &[]);
        keys(&mut state, "y");
        assert_eq!(state.update(Event::Signal(15)), []);
        let end = if insists {
            Event::Signal(15)
        } else {
            Event::Done(Ok(JobResult { outcome: RestoreOutcome::Restored, text: String::new(), is_rewind: false }))
        };
        assert_eq!(state.update(end), [Action::Quit]);
        assert_eq!(state.signal, Some(15));
    }
    assert_eq!(state.update(Event::Gone("why".to_owned())), [Action::Quit]);
    assert_eq!(state.gone.as_deref(), Some("why"));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    keys(&mut state, "?");
    assert_eq!(state.update(Event::Key(control_c)), [Action::Quit]);
}

#[test]
fn the_mouse_selects_and_scrolls_what_is_below_it() {
    let (mut state, _) = opened(120, 13, rows(50));
    let click = MouseEventKind::Down(MouseButton::Left);
    assert_eq!(mouse(&mut state, click, 5, 3), [Action::Compare(id(3))]);
    mouse(&mut state, MouseEventKind::ScrollDown, 5, 3);
    assert_eq!((state.list.top, selected(&state)), (3, 4), "the selection stays on the screen");
    state.update(Event::Compared(id(4), Ok(patch(&AB, 100))));
    mouse(&mut state, MouseEventKind::ScrollDown, 100, 3);
    assert_eq!((state.list.top, state.line), (3, 3));
    mouse(&mut state, click, 100, 4);
    assert_eq!((state.focus, state.file), (Focus::Diff, 1));
    mouse(&mut state, click, 5, 9);
    assert_eq!((state.focus, selected(&state)), (Focus::List, 12));
    keys(&mut state, "?");
    assert_eq!((mouse(&mut state, click, 5, 1), selected(&state)), (vec![], 12), "a click behind a box is none");
    let (mut state, _) = opened(120, 13, rows(2));
    mouse(&mut state, click, 5, 9);
    assert_eq!(selected(&state), 1, "a click below the list selects nothing");
}

#[test]
fn on_a_narrow_screen_tab_shows_the_other_pane_and_pages_turn_what_is_shown() {
    let (mut state, _) = opened(40, 12, rows(50));
    state.update(Event::Compared(id(1), Ok(patch(&AB, 100))));
    assert!(drawn(&state).contains("50 checkpoints") && !drawn(&state).contains("since then"));
    press(&mut state, KeyCode::PageDown);
    assert_eq!(selected(&state), 10);
    press(&mut state, KeyCode::Tab);
    assert!(drawn(&state).contains("comparing") && !drawn(&state).contains("checkpoints"));
    state.update(Event::Resized(Size { width: 120, height: 35 }));
    assert!(drawn(&state).contains("comparing") && drawn(&state).contains("50 checkpoints"));
}

#[test]
fn a_project_that_lost_all_its_checkpoints_is_shown_and_takes_keys() {
    let (mut state, _) = opened(120, 35, rows(2));
    assert_eq!(state.update(Event::Listed(Ok((Vec::new(), None)))), []);
    assert!(drawn(&state).contains("No checkpoints"));
    for key in "jkgGnNJKrops".chars() {
        assert_eq!(keys(&mut state, &key.to_string()), [], "{key}");
    }
}

#[test]
fn nothing_is_drawn_outside_of_a_screen_of_any_size() {
    let mut all = rows(30);
    all[0].reason = "日本語の長い理由 🎉👩‍👩‍👧 e\u{301} ".repeat(5);
    all[0].change = Some(Change { files: 12_345, insertions: u64::MAX, deletions: u64::MAX });
    all[1].who = Some("エージェント 会話".to_owned());
    all[1].session = Some("x".to_owned());
    let wide = [("日本語/ファイル🎉.txt", DiffStatus::Renamed), ("b", DiffStatus::Added)];
    for (width, height) in [(1, 1), (2, 2), (3, 9), (9, 3), (40, 12), (41, 31), (89, 40), (90, 5), (120, 35), (300, 80)]
    {
        for key in [None, Some('?'), Some('/'), Some('f'), Some('p'), Some('r')] {
            let (mut state, _) = opened(width, height, all.clone());
            state.update(Event::Compared(id(1), Ok(patch(&wide, 60))));
            let asked = key.map(|key| press(&mut state, KeyCode::Char(key))).unwrap_or_default();
            if let [Action::Plan(request)] = &asked[..] {
                state.update(Event::Planned(request.clone(), Ok(planned(request, &["他の人の仕事"]))));
            }
            for focus in [Focus::List, Focus::Diff] {
                (state.focus, state.column) = (focus, state.column + 3);
                drawn(&state);
                // The terminal may be smaller, or larger, than the state knows.
                drawn_at(&state, Size { width: width / 2 + 1, height: height / 2 + 1 }, true);
                drawn_at(&state, Size { width: width * 2, height: height * 2 }, true);
            }
        }
    }
}

#[test]
fn without_colours_there_are_none_and_the_selection_is_still_seen() {
    let (mut state, _) = opened(120, 35, rows(3));
    state.update(Event::Compared(id(1), Ok(patch(&AB, 9))));
    let mut terminal = Terminal::new(TestBackend::new(120, 35)).expect("a terminal in memory");
    let mut colours = |has_colours| {
        let look = Look::new(has_colours, Path::new("/project"), None);
        let drawn = terminal.draw(|frame| view::draw(frame, &state, &look)).expect("drawing in memory");
        drawn.buffer.content().iter().map(|cell| cell.fg).collect::<HashSet<_>>().len()
    };
    assert_eq!(colours(false), 1);
    assert!(colours(true) > 3);
    assert!(drawn(&state).contains(">  1 0101010"));
}

#[test]
fn an_incomplete_checkpoint_is_marked_in_its_row_and_above_the_diff() {
    let mut all = rows(3);
    all[1].is_incomplete = true;
    let (mut state, _) = opened(160, 20, all);
    let marked = |state: &State| drawn(state).lines().filter(|line| line.contains("incomplete")).count();
    let shown = drawn(&state);
    assert!(shown.lines().any(|line| line.contains("reason 2") && line.contains("incomplete")), "{shown}");
    assert_eq!(marked(&state), 1, "{shown}");
    press(&mut state, KeyCode::Down);
    assert!(marked(&state) >= 1, "{}", drawn(&state));
    let (mut narrow, _) = opened(50, 30, {
        let mut all = rows(2);
        all[0].is_incomplete = true;
        all
    });
    let shown = drawn(&narrow);
    assert!(shown.lines().any(|line| line.contains("reason 1") && line.contains("incomplete")), "{shown}");
    press(&mut narrow, KeyCode::Down);
    assert_eq!(marked(&narrow), 0, "the other one holds everything: {}", drawn(&narrow));
}

#[test]
fn a_turn_a_file_of_it_and_a_hunk_are_reverted_by_keys() {
    let (mut state, _) = opened(120, 30, rows(3));
    let since = keys(&mut state, "h");
    assert_eq!((since, state.status.contains("t shows")), (Vec::new(), true));
    assert_eq!(keys(&mut state, "t"), [Action::CompareTurn(id(1))]);
    // The answer to the request before is not shown as what the turn did.
    state.update(Event::Compared(id(1), Ok(patch(&AB, 1))));
    assert!(state.current().is_none());
    let mut diff = Diff::default();
    diff.files = vec![FileDiff::new("a", DiffStatus::Modified), FileDiff::new("b", DiffStatus::Added)];
    diff.patch =
        b"diff --git a/a b/a\n@@ -1 +1 @@\n+1\n@@ -20 +21,2 @@\n+2\ndiff --git a/b b/b\n@@ -0,0 +1 @@\n+b\n".into();
    state.update(Event::ComparedTurn(id(1), Ok(Patch::new(&diff))));
    assert!(drawn(&state).contains("what this turn did"), "{}", drawn(&state));
    let part = |state: &mut State, typed: &str| {
        let asked = keys(state, typed);
        let [Action::Plan(RestoreRequest { to, revert: Some(part), .. })] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(*to, Some(id(1)));
        state.busy = None;
        (part.paths.concat(), part.hunk)
    };
    assert_eq!(part(&mut state, "v"), (b"".to_vec(), None));
    assert_eq!(part(&mut state, "V"), (b"a".to_vec(), None));
    assert_eq!(part(&mut state, "h"), (b"a".to_vec(), Some(1)));
    assert_eq!(part(&mut state, "]h"), (b"a".to_vec(), Some(21)));
    assert_eq!(part(&mut state, "]h"), (b"b".to_vec(), None));
    assert_eq!(part(&mut state, "V"), (b"b".to_vec(), None));
    assert_eq!(part(&mut state, "[[[h"), (b"a".to_vec(), Some(1)));
    assert_eq!(keys(&mut state, "t"), [Action::Compare(id(1))]);
}
