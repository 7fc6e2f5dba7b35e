//! The manager: one checkpoint per turn and project, and an agent that is never blocked or made to fail.

use std::fs::{self, File};
use std::path::PathBuf;

use piton::{Level, Manager, Outcome, Project, RestoreOptions, RestoreTo, Settings, WhySkipped};
use testkit::Sandbox;

use crate::kit::{now, project_id};

fn enabled() -> Settings {
    Settings::default().enabled(true)
}

fn manager(sandbox: &Sandbox) -> Manager {
    Manager::new(&sandbox.base(), Some(&sandbox.home()), enabled()).for_agent("test")
}

fn outcome(manager: &Manager, sandbox: &Sandbox) -> Outcome {
    manager.ensure_checkpoint(&sandbox.project(), "before a test", now()).report.expect("a report").outcome
}

const ALREADY: Outcome = Outcome::Skipped(WhySkipped::AlreadyThisTurn);

/// M4.
#[test]
fn one_checkpoint_a_turn_across_managers() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let mut first = manager(&sandbox);
    first.new_turn("s", now());
    assert!(matches!(outcome(&first, &sandbox), Outcome::Taken(_)));
    sandbox.write("a.txt", "2");
    let mut second = manager(&sandbox);
    second.continue_turn("s", None, now());
    assert_eq!(second.turn(), first.turn());
    assert_eq!(outcome(&second, &sandbox), ALREADY);
    second.new_turn("s", now());
    assert!(matches!(outcome(&second, &sandbox), Outcome::Taken(_)));
    let mut other = manager(&sandbox);
    other.continue_turn("t", None, now());
    assert!(matches!(outcome(&other, &sandbox), Outcome::Unchanged(_)));
}

/// M3.
#[test]
fn switched_off_it_opens_nothing() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let mut off = Manager::new(&sandbox.base(), None, Settings::default());
    off.new_turn("s", now());
    off.start_session("s", None, Some(&sandbox.project()), now());
    assert_eq!(outcome(&off, &sandbox), Outcome::Skipped(WhySkipped::Disabled));
    assert!(off.take_notice(now()).is_none());
    assert!(!sandbox.base().exists());
}

#[test]
fn concurrent_processes_without_a_begun_turn_share_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let turns: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
        let ask = || {
            let mut manager = manager(&sandbox);
            manager.continue_turn("s", None, now());
            manager.turn().map(str::to_owned)
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        all.into_iter().map(|one| one.join().expect("a turn")).collect()
    });
    assert_eq!(turns.len(), 1, "{turns:?}");
}

#[test]
fn a_subagents_session_is_in_the_turn_of_the_one_it_works_for() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let mut parent = manager(&sandbox);
    parent.new_turn("parent", now());
    outcome(&parent, &sandbox);
    sandbox.write("a.txt", "2");
    let mut child = manager(&sandbox);
    child.start_session("child", Some("parent"), None, now());
    child.begin_turn("child", Some("own name"), None, now());
    assert_eq!(child.turn(), parent.turn());
    assert_eq!(outcome(&child, &sandbox), ALREADY);
}

/// M1.
#[test]
fn what_cannot_be_done_is_a_value_and_in_the_journal_and_past_once_it_works() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n b.txt");
    let small = enabled().max_files(1);
    let mut manager = Manager::new(&sandbox.base(), None, small).for_agent("test");
    manager.new_turn("s", now());
    let ensured = manager.ensure_checkpoint(&sandbox.project(), "x", now());
    assert!(ensured.missed(manager.settings()).is_some_and(|why| why.contains("max_files")), "{ensured:?}");
    let state = manager.journal().unprotected();
    assert_eq!((state.len(), state[0].turns, state[0].is_past), (1, 1, false));
    assert_eq!(state[0].project.as_deref(), Some(sandbox.project().as_path()));
    assert!(manager.is_unprotected(&sandbox.project()));

    let mut manager = Manager::new(&sandbox.base(), None, enabled()).for_agent("test");
    manager.new_turn("s", now());
    assert!(matches!(outcome(&manager, &sandbox), Outcome::Taken(_)));
    assert!(manager.journal().unprotected()[0].is_past);
    manager.new_turn("s", now());
    outcome(&manager, &sandbox);
    let protected = manager.journal().recent(9).iter().filter(|event| event.level == Level::Protected).count();
    assert_eq!(protected, 1, "said once");
}

#[test]
fn a_base_that_is_no_directory_is_a_value() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.base().parent().expect("a parent")).expect("a directory");
    fs::write(sandbox.base(), "a file").expect("a file");
    let other = sandbox.root().join("state");
    let journal = piton::Journal::at(&sandbox.base()).or_in(Some(other));
    let mut manager = manager(&sandbox).with_journal(journal);
    manager.new_turn("s", now());
    let all = manager.ensure_checkpoints(&[sandbox.project(), sandbox.root()], "x", now());
    assert_eq!(all.len(), 1);
    assert!(all[0].report.is_err());
    assert_eq!(manager.journal().unprotected().len(), 1);
}

/// M2.
#[test]
fn a_lock_that_is_held_costs_the_deadline_and_the_turn_may_try_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let hasty = || {
        let settings = enabled().deadline_ms(20);
        let mut manager = Manager::new(&sandbox.base(), None, settings);
        manager.begin_turn("s", Some("t"), None, now());
        manager
    };
    let held = {
        hasty();
        let path = sandbox.store().join("locks").join(project_id(&sandbox));
        File::create(path).expect("a lock")
    };
    held.lock().expect("a lock");
    assert_eq!(outcome(&hasty(), &sandbox), Outcome::Skipped(WhySkipped::Busy));
    assert_eq!(hasty().journal().unprotected()[0].turns, 1);
    held.unlock().expect("a lock");
    let mut patient = manager(&sandbox).for_agent("agent");
    patient.continue_turn("s", Some("t"), now());
    assert!(matches!(outcome(&patient, &sandbox), Outcome::Taken(_)));
    assert!(patient.journal().unprotected()[0].is_past);
}

#[test]
fn a_turn_that_ran_out_of_time_again_and_again_is_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let settings = enabled().deadline_ms(1);
    let mut hasty = Manager::new(&sandbox.base(), None, settings);
    hasty.new_turn("s", now());
    let held = File::create(sandbox.store().join("locks").join(project_id(&sandbox))).expect("a lock");
    held.lock().expect("a lock");
    for _ in 0..3 {
        assert_eq!(outcome(&hasty, &sandbox), Outcome::Skipped(WhySkipped::Busy));
    }
    held.unlock().expect("a lock");
    assert_eq!(outcome(&hasty, &sandbox), Outcome::Skipped(WhySkipped::Deadline));
    let mut next = manager(&sandbox).for_agent("agent");
    next.new_turn("s", now());
    assert!(matches!(outcome(&next, &sandbox), Outcome::Taken(_)));
}

#[test]
fn each_project_once_and_nearest_directories_stand_in_for_new_ones() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n sub/b.txt");
    let other = sandbox.other_project("other");
    fs::write(other.join("x"), "x").expect("a file");
    let mut manager = manager(&sandbox);
    manager.new_turn("s", now());
    let dirs: Vec<PathBuf> =
        vec![sandbox.project(), sandbox.path("sub"), other.join("not/yet/there"), sandbox.home(), "/".into()];
    let ensured = manager.ensure_checkpoints(&dirs, "x", now());
    let taken: Vec<_> = ensured.iter().filter(|one| one.checkpoint().is_some()).map(|one| one.dir.clone()).collect();
    assert_eq!(taken, [sandbox.project(), other]);
    assert_eq!(ensured.len(), 4, "each once: {ensured:?}");
    assert_eq!(manager.journal().unprotected(), [], "home and / beside a project are no news");
    manager.new_turn("s", now());
    manager.ensure_checkpoint(&sandbox.home(), "x", now());
    assert_eq!(manager.journal().unprotected().len(), 1, "home alone is");
}

#[test]
fn a_session_remembers_where_it_began() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n sub/b.txt");
    let mut manager = manager(&sandbox);
    manager.begin_turn("s", None, Some(&sandbox.project()), now());
    manager.begin_turn("s", None, Some(&sandbox.path("sub")), now());
    assert_eq!(manager.root(), Some(sandbox.project().as_path()));
    manager.begin_turn("t", None, Some(&sandbox.home()), now());
    assert_eq!(manager.root(), None, "the home directory is not a root");
    manager.continue_turn("s", Some("named"), now());
    assert_eq!((manager.root(), manager.turn()), (Some(sandbox.project().as_path()), Some("named")));
}

#[test]
fn a_prompt_is_answered_once() {
    let sandbox = Sandbox::new();
    let mut manager = manager(&sandbox);
    manager.new_turn("s", now());
    let answer = |prompt: &str, text: &str| manager.answer_once("s", prompt, || text.to_owned());
    assert_eq!(answer("p1", "one"), "one");
    assert_eq!(answer("p1", "two"), "one");
    assert_eq!(answer("p2", "two"), "two");
}

#[test]
fn a_restore_leaves_one_notice_for_each_session_since() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1\n gone.txt = 1");
    let mut before = manager(&sandbox);
    before.new_turn("before", piton::Moment { secs: now().secs - 1000, ..now() });
    before.ensure_checkpoint(&sandbox.project(), "x", piton::Moment { secs: now().secs - 1000, ..now() });
    sandbox.tree("a.txt = 2");
    let mut writer = manager(&sandbox);
    writer.new_turn("writer", now());
    outcome(&writer, &sandbox);
    let mut reader = manager(&sandbox);
    reader.new_turn("reader", now());
    assert!(matches!(outcome(&reader, &sandbox), Outcome::Unchanged(_)));
    sandbox.tree("a.txt = 3\n new.txt");

    let report = manager(&sandbox)
        .restore(&sandbox.project(), RestoreTo::Named("1"), RestoreOptions::default(), now())
        .expect("a restore");
    let store = piton::Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    assert_eq!(piton::tell_sessions(&store, &project, &report).expect("told"), 2);
    for told in [&writer, &reader] {
        let notice = told.take_notice(now()).expect("a notice");
        assert_eq!((notice.written, notice.removed, notice.more), (vec!["a.txt".into()], vec!["new.txt".into()], 0));
        assert!(notice.headline.contains(&report.target.id.short()), "{}", notice.headline);
        assert!(told.take_notice(now()).is_none(), "told once");
    }
    assert!(before.take_notice(now()).is_none());
    assert!(sandbox.temporary_files().is_empty());
}

#[test]
fn notes_on_sessions_that_are_long_over_go_with_the_next_take() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let mut old = manager(&sandbox);
    old.new_turn("old", now());
    let notes = || fs::read_dir(sandbox.store().join("turns")).expect("notes").count();
    for entry in fs::read_dir(sandbox.store().join("turns")).expect("notes") {
        let note = File::options().append(true).open(entry.expect("an entry").path()).expect("a note");
        let days = |days: u64| std::time::Duration::from_secs(days * 24 * 60 * 60);
        note.set_modified(std::time::SystemTime::now() - days(31)).expect("a time");
    }
    assert_eq!(notes(), 1);
    let mut new = manager(&sandbox);
    new.new_turn("new", now());
    outcome(&new, &sandbox);
    assert_eq!(notes(), 1);
    new.continue_turn("new", None, now());
    assert_eq!(outcome(&new, &sandbox), ALREADY, "the other one stays");
}

/// Some agents report neither prompts nor turns. One checkpoint for the whole session would be too few.
#[test]
fn without_reported_prompts_a_pause_begins_a_turn() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let start = now();
    let turn_after = |secs: i64, name: Option<&str>| {
        let mut manager = manager(&sandbox);
        manager.continue_turn("s", name, piton::Moment { secs: start.secs + secs, ..start });
        manager.turn().map(str::to_owned)
    };
    let first = turn_after(0, None);
    // As long as events continue without a pause, it is one turn.
    assert_eq!([50, 100, 150].map(|secs| turn_after(secs, None)), [(); 3].map(|()| first.clone()));
    let second = turn_after(220, None);
    assert_ne!(second, first);
    assert_eq!(turn_after(221, None), second);
    assert_eq!(turn_after(1000, Some("its own")), Some("its own".to_owned()));
    // The same if only the start of the session was reported.
    let mut started = manager(&sandbox);
    started.start_session("t", None, None, start);
    let started_after = |secs: i64| {
        let mut manager = manager(&sandbox);
        manager.continue_turn("t", None, piton::Moment { secs: start.secs + secs, ..start });
        manager.turn().map(str::to_owned)
    };
    let first = started_after(5);
    assert_eq!(started_after(50), first);
    assert_ne!(started_after(200), first);
    // From the first prompt on, prompts delimit turns.
    let mut prompted = manager(&sandbox);
    prompted.new_turn("s", start);
    assert_eq!(turn_after(100_000, None).as_deref(), prompted.turn());
}

#[test]
fn a_project_of_which_nothing_can_be_read_is_on_record() {
    if !crate::kit::without_roots_powers("manager::a_project_of_which_nothing_can_be_read_is_on_record") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    sandbox.chmod("a.txt", 0o000);
    let mut manager = manager(&sandbox);
    manager.new_turn("s", now());
    assert_eq!(outcome(&manager, &sandbox), Outcome::Skipped(WhySkipped::Empty));
    let journal = fs::read_to_string(sandbox.base().join("piton.log")).expect("a journal");
    assert!(journal.contains(" unprotected ") && journal.contains("could be read"), "{journal}");
}

/// Some agents report a session and its first prompt at the same moment, from two processes.
#[test]
fn a_session_that_begins_beside_its_first_prompt_keeps_the_turn() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    manager(&sandbox).new_turn("before", now());
    for number in 0..200 {
        let session = format!("s{number}");
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                manager(&sandbox).start_session(&session, None, Some(&sandbox.project()), now());
            });
            both.wait();
            manager(&sandbox).begin_turn(&session, Some("the turn"), Some(&sandbox.project()), now());
        });
        let mut next = manager(&sandbox);
        next.continue_turn(&session, None, now());
        assert_eq!(next.turn(), Some("the turn"), "{session}");
    }
}
