//! Tests of K1 to K4, and of the checkpoints at which turns are shown.

use std::collections::HashSet;
use std::path::PathBuf;

use super::*;
use crate::settings::PromptText;
use crate::store::Store;
use crate::store::kit::{NOW, store};
use crate::time::Moment;
use crate::{CheckpointKind, History, Manager, Outcome, Progress, Project, Request, RestoreTo, Settings, TurnStart};

fn id(byte: u8) -> ObjectId {
    ObjectId::from_bytes([byte; 20])
}

fn record(turn: &str, before: u8) -> TurnRecord {
    TurnRecord {
        agent: Some("claude".to_owned()),
        session: "s".to_owned(),
        turn: turn.to_owned(),
        time: Some(NOW),
        prompted: true,
        prompt: Some(format!("words of {turn}")),
        before: Some(id(before)),
        tree: Some(id(before + 100)),
        mark: RewindMark {
            transcript: Some(PathBuf::from("/t/ä b.jsonl")),
            transcript_bytes: Some(7),
            ordinal: Some(2),
            ..RewindMark::default()
        },
        ..TurnRecord::default()
    }
}

fn project() -> ProjectId {
    ProjectId::of(Path::new("/p"))
}

fn turns(store: &Store) -> Vec<String> {
    store.ledger.turns(&project()).into_iter().map(|record| record.turn).collect()
}

fn put(store: &Store, record: &TurnRecord) {
    store.ledger.append(&project(), record, || None).expect("a line");
}

/// K1.
#[test]
fn a_torn_line_loses_only_itself() {
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    put(&store, &record("one", 1));
    assert_eq!(store.ledger.turns(&project()), [record("one", 1)], "it comes back as it was");
    let path = store.layout.ledger(&project());
    let whole = fs::read(&path).expect("a ledger");
    for length in 1..whole.len() {
        fs::write(&path, [&whole[..], &whole[..length]].concat()).expect("a ledger");
        put(&store, &record("two", 2));
        assert_eq!(turns(&store), ["one", "two"], "torn after {length} bytes");
    }
    fs::write(&path, [b"\xff\xfe\n7\n[]\n{}\n{\"turn\":7}\n\n", &whole[..]].concat()).expect("a ledger");
    assert_eq!(turns(&store), ["one"]);
}

/// K1.
#[test]
fn the_ledger_is_the_owners_alone_and_follows_no_link() {
    use std::os::unix::fs::PermissionsExt as _;
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    put(&store, &record("one", 1));
    let path = store.layout.ledger(&project());
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!([&store.layout.local(), &store.layout.ledgers(), &path].map(|path| mode(path)), [0o700, 0o700, 0o600]);
    let other = temp.path().join("other");
    fs::write(&other, "theirs").expect("a file");
    fs::remove_file(&path).and_then(|()| std::os::unix::fs::symlink(&other, &path)).expect("a link");
    store.ledger.append(&project(), &record("two", 2), || None).expect_err("a link is in the way");
    assert_eq!(fs::read(&other).expect("a file"), b"theirs");
}

/// K1.
#[test]
fn many_writers_at_once_lose_no_line() {
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || (0..50).for_each(|n| put(store, &record(&format!("{writer}-{n}"), 1))));
        }
        // K4: a rewrite in between.
        let renamed = HashMap::from([(id(1), (id(2), id(3)))]);
        (0..20).for_each(|_| store.ledger.rename_checkpoints(&project(), &renamed).expect("renamed"));
    });
    let found: HashSet<_> = turns(&store).into_iter().collect();
    assert_eq!(found.len(), 200);
}

/// K2.
#[test]
fn a_later_line_adds_to_a_turn_and_unknown_keys_survive_a_rewrite() {
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    put(&store, &TurnRecord { before: None, tree: None, missed: Some("deadline".to_owned()), ..record("one", 1) });
    let path = store.layout.ledger(&project());
    let later = "{\"agent\":\"claude\",\"session\":\"s\",\"turn\":\"one\",\"ended\":\"soon\",\"before\":\"0101010101010101010101010101010101010101\"}\n{\"kind\":\"of another version\"}\n";
    fs::write(&path, fs::read_to_string(&path).expect("a ledger") + later).expect("a ledger");
    let found = store.ledger.turns(&project());
    assert_eq!((found.len(), found[0].before, found[0].prompt.as_deref()), (1, Some(id(1)), Some("words of one")));
    assert_eq!(store.ledger.forget_prompt("s", "one").expect("forgotten"), 1);
    let text = fs::read_to_string(&path).expect("a ledger");
    assert!(text.ends_with(later), "{text}");
    assert!(!text.contains("words"), "{text}");
    assert_eq!(store.ledger.forget_prompt("s", "one").expect("nothing"), 0);
}

/// K3.
#[test]
fn at_its_limit_a_ledger_keeps_what_existing_checkpoints_need() {
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    let long = |turn: String, before| TurnRecord { prompt: Some("x".repeat(10_000)), ..record(&turn, before) };
    put(&store, &record("first", 1));
    let mut largest = 0;
    for n in 0..400 {
        let existing = || Some(HashSet::from([id(1), id(9)]));
        store.ledger.append(&project(), &long(format!("t{n}"), 2), existing).expect("a line");
        largest = largest.max(fs::metadata(store.layout.ledger(&project())).expect("a ledger").len());
    }
    assert!(largest <= LEDGER_BYTES_MAX, "{largest}");
    let kept = turns(&store);
    assert_eq!((kept[0].as_str(), kept.last().map(String::as_str)), ("first", Some("t399")));
    assert!(kept.len() > 50, "{}", kept.len());
    // One checkpoint with very many prompts does not displace the others.
    for n in 0..400 {
        store
            .ledger
            .append(&project(), &long(format!("u{n}"), 9), || Some(HashSet::from([id(1), id(9)])))
            .expect("a line");
    }
    assert_eq!(turns(&store)[0], "first");
}

fn ended(turn: &str, secs: i64, after: u8) -> TurnRecord {
    TurnRecord {
        agent: Some("claude".to_owned()),
        session: "s".to_owned(),
        turn: turn.to_owned(),
        ended: Some(Moment { secs, ..NOW }),
        after: Some(id(after)),
        after_tree: Some(id(after + 100)),
        ..TurnRecord::default()
    }
}

#[test]
fn the_last_end_of_a_turn_is_part_of_its_record() {
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    put(&store, &record("one", 1));
    put(&store, &ended("one", 100, 2));
    put(&store, &ended("one", 200, 3));
    let TurnRecord { ended, after, after_tree, .. } = ended("one", 200, 3);
    assert_eq!(store.ledger.turns(&project()), [TurnRecord { ended, after, after_tree, ..record("one", 1) }]);
    let renamed = HashMap::from([(id(1), (id(11), id(12))), (id(3), (id(13), id(14)))]);
    store.ledger.rename_checkpoints(&project(), &renamed).expect("renamed");
    let found = &store.ledger.turns(&project())[0];
    assert_eq!((found.before, found.tree, found.formerly), (Some(id(11)), Some(id(12)), Some(id(1))));
    assert_eq!((found.after, found.after_tree, found.after_formerly), (Some(id(13)), Some(id(14)), Some(id(3))));
}

/// K3.
#[test]
fn at_its_limit_a_ledger_keeps_the_ends_in_existing_checkpoints() {
    let temp = tempfile::tempdir().expect("a directory");
    let store = store(&temp);
    put(&store, &record("first", 1));
    put(&store, &ended("first", 100, 5));
    for n in 0..400 {
        let long = TurnRecord { prompt: Some("x".repeat(10_000)), ..record(&format!("t{n}"), 2) };
        store.ledger.append(&project(), &long, || Some(HashSet::from([id(1), id(5)]))).expect("a line");
    }
    let first = &store.ledger.turns(&project())[0];
    assert_eq!((first.turn.as_str(), first.before, first.after), ("first", Some(id(1)), Some(id(5))));
}

/// A project with one file, and a manager that plays turns in it.
struct Played {
    store: Store,
    project: Project,
    manager: Manager,
    dir: PathBuf,
    secs: i64,
}

impl Played {
    fn new(temp: &tempfile::TempDir) -> Self {
        let (store, dir) = (store(temp), temp.path().join("project"));
        fs::create_dir(&dir).and_then(|()| fs::write(dir.join("file"), "1")).expect("a file");
        let project = Project::at(&dir, None).expect("a project");
        let settings =
            Settings { enabled: true, deadline_ms: 60_000, prompt_text: PromptText::Short, ..Settings::default() };
        let manager = Manager::new(store.base(), None, settings).for_agent("claude");
        Self { store, project, manager, dir, secs: NOW.secs }
    }

    fn now(&mut self) -> Moment {
        self.secs += 1;
        Moment { secs: self.secs, ..NOW }
    }

    fn prompt(&mut self, session: &str, turn: &str, prompt: &str) {
        let now = self.now();
        let start = TurnStart { name: Some(turn.into()), prompt: Some(prompt.into()), ..TurnStart::default() };
        self.manager.start_turn(session, start, now);
        let ensured = self.manager.ensure_checkpoint(&self.dir, "prompt", now);
        assert!(ensured.checkpoint().is_some(), "{ensured:?}");
    }

    fn take(&mut self, reason: &str) {
        let request = Request { kind: CheckpointKind::Manual, reason: reason.into(), ..Request::default() };
        let now = self.now();
        crate::take(&self.store, &self.project, &request, &Settings::default(), now, &Progress::default())
            .expect("taken");
    }

    fn headlines(&self) -> Vec<String> {
        let history = History::of(&self.store, &self.project).expect("a history");
        let shown = |one: &Checkpoint| match one.earlier_prompts() {
            0 => one.headline(),
            more => format!("{}  (+{more})", one.headline()),
        };
        history.checkpoints().iter().map(shown).collect()
    }
}

#[test]
fn every_prompt_that_began_from_a_state_is_at_its_row() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    for (turn, words) in [("t1", "what is this?"), ("t2", "and that?"), ("t3", "why?"), ("t4", "delete it all\nnow")] {
        played.prompt("s", turn, words);
    }
    fs::write(played.dir.join("file"), "2").expect("a file");
    played.take("by hand");
    played.prompt("s", "t5", "again");
    assert_eq!(played.headlines(), ["by hand; prompt: again", "prompt: delete it all  (+3)"]);
    let history = History::of(&played.store, &played.project).expect("a history");
    let row = history.find("2").expect("a row");
    let turns: Vec<_> = row.turns.iter().map(|turn| turn.turn.as_str()).collect();
    assert_eq!(turns, ["t4", "t3", "t2", "t1"]);
    assert_eq!(row.reason, "prompt", "the words are not in the commit");
    played.prompt("other", "u1", "from another session");
    let history = History::of(&played.store, &played.project).expect("a history");
    let row = history.find("1").expect("a row");
    assert_eq!(row.turn_of(Some("s")).map(|turn| turn.turn.as_str()), Some("t5"));
    assert_eq!(row.turn_of(Some("none")).map(|turn| turn.turn.as_str()), Some("u1"));
}

#[test]
fn a_row_without_a_line_has_the_prompt_of_its_commit() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    let now = played.now();
    played.manager.begin_turn("s", Some("old"), None, now);
    played.manager.ensure_checkpoint(&played.dir, "prompt: old words", now);
    fs::remove_file(played.store.layout.ledger(played.project.id())).expect("no ledger");
    assert_eq!(played.headlines(), ["prompt: old words"]);
    played.prompt("s", "new", "new words");
    assert_eq!(played.headlines(), ["prompt: new words  (+1)"]);
}

#[test]
fn a_commit_that_another_program_rewrote_is_found_by_its_tree() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    played.prompt("s", "t1", "words");
    let mut checkpoints = {
        let history = History::of(&played.store, &played.project).expect("a history");
        history.checkpoints().to_vec()
    };
    (checkpoints[0].id, checkpoints[0].turns) = (id(77), Vec::new());
    checkpoints[0].facts.origin = crate::Origin::default();
    played.store.ledger.assign(played.project.id(), &mut checkpoints);
    assert_eq!(checkpoints[0].headline(), "prompt: words");
}

#[test]
fn a_purge_a_forgotten_project_and_a_clear_reach_the_ledger() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    fs::write(played.dir.join("secret"), "s").expect("a file");
    played.prompt("s", "turn-1", "words");
    let (store, project) = (played.store.clone(), played.project.clone());
    let report = crate::purge(&store, &project, &[b"secret".to_vec()], NOW, &Progress::default()).expect("purged");
    assert_eq!(played.headlines(), ["prompt: words"]);
    let found = store.ledger.turns(project.id());
    assert_eq!((found[0].before, found[0].formerly), (Some(report.rewritten[0].1), Some(report.rewritten[0].0)));
    assert_eq!(crate::purge_prompt(&store, &project, "tur").expect_err("too short").kind(), ErrorKind::NotFound);
    assert_eq!(crate::purge_prompt(&store, &project, "turn").expect("gone").turn, "turn-1");
    assert_eq!(played.headlines(), ["prompt"]);
    let stranger = ProjectId::of(Path::new("/nobody"));
    store.ledger.append(&stranger, &record("x", 1), || None).expect("a line");
    store.ledger.remove_unknown(|| store.known_projects()).expect("removed");
    assert_eq!(store.ledger.projects().expect("ledgers"), [project.id().clone()]);
    let touched = store.records.get(project.id()).last_touch();
    assert!(
        {
            let only = crate::store::ForgetIf { last_touch: touched, is_gone: true, is_unmarked: false };
            crate::store::forget_project(&store, project.id(), only, NOW, &Progress::default())
        }
        .expect("forgotten")
    );
    assert!(store.ledger.projects().expect("ledgers").is_empty());
    played.prompt("s", "turn-2", "words");
    crate::clear(&store).expect("cleared");
    assert!(!store.layout.local().exists());
}

#[test]
fn a_turn_that_could_not_be_protected_is_in_the_ledger_with_the_reason() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    let settings = Settings { enabled: true, max_files: 1, ..Settings::default() };
    fs::write(played.dir.join("another"), "2").expect("a file");
    let mut manager = Manager::new(played.store.base(), None, settings);
    let now = played.now();
    manager.start_turn("s", TurnStart { prompt: Some("words".into()), ..TurnStart::default() }, now);
    let ensured = manager.ensure_checkpoint(&played.dir, "prompt", now);
    assert!(matches!(ensured.report.expect("an outcome").outcome, Outcome::Skipped(_)));
    let found = played.store.ledger.turns(played.project.id());
    assert_eq!((found[0].before, found[0].missed.as_deref()), (None, Some("too_many_files")));
    assert_eq!(found[0].prompt.as_deref(), Some("words"));
}

#[test]
fn an_undo_after_a_restore_keeps_the_rows_of_the_turns() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    played.prompt("s", "t1", "words");
    fs::write(played.dir.join("file"), "2").expect("a file");
    let now = played.now();
    played
        .manager
        .restore(&played.dir, RestoreTo::Named("1"), crate::RestoreOptions::default(), now)
        .expect("restored");
    let headlines = played.headlines();
    assert_eq!(headlines[1], "prompt: words");
    assert!(headlines[0].starts_with("before restore to "), "{headlines:?}");
}

#[test]
fn a_turn_that_another_hook_asked_for_is_no_prompt() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    let ask = |played: &mut Played, words: &str| {
        let now = played.now();
        let start = TurnStart { prompt: Some(words.into()), tells_end: true, ..TurnStart::default() };
        played.manager.start_turn("s", start, now);
        assert!(played.manager.ensure_checkpoint(&played.dir, "prompt", now).checkpoint().is_some());
    };
    ask(&mut played, "typed");
    played.manager.end_turn("s", None, NOW);
    ask(&mut played, "words of a hook");
    played.manager.end_continuation("s", NOW);
    assert_eq!(played.headlines(), ["prompt: typed"]);
    fs::write(played.dir.join("file"), "2").expect("a file");
    ask(&mut played, "words of a hook");
    played.manager.end_continuation("s", NOW);
    assert_eq!(played.headlines(), ["before the agent went on, as another hook asked", "prompt: typed"]);
    ask(&mut played, "typed again");
    played.manager.end_turn("s", None, NOW);
    // No start was reported for this continuation: the turn is the user's.
    played.manager.end_continuation("s", NOW);
    assert_eq!(played.headlines(), ["prompt: typed again", "prompt: typed"]);
}

#[test]
fn a_version_that_is_learnt_late_is_in_the_record_of_its_turn() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut played = Played::new(&temp);
    let versions = |played: &Played| -> Vec<Option<String>> {
        played.store.ledger.turns(played.project.id()).into_iter().map(|turn| turn.agent_version).collect()
    };
    let text = |version: &str| Some(version.to_owned());
    played.prompt("s", "t1", "one");
    played.manager.learn_agent_version(|| None);
    played.manager.end_turn("s", Some("t1"), NOW);
    assert_eq!(versions(&played), [None]);
    played.manager.learn_agent_version(|| text("1.2.3"));
    assert_eq!(versions(&played), [text("1.2.3")]);
    played.prompt("s", "t2", "two");
    played.manager.learn_agent_version(|| unreachable!("it is known"));
    assert_eq!(versions(&played), [text("1.2.3"), text("1.2.3")]);
    // The session is resumed, perhaps by another version.
    played.manager.start_session("s", None, None, NOW);
    played.manager.start_turn("s", TurnStart { name: text("t3"), ..TurnStart::default() }, NOW);
    played.manager.learn_agent_version(|| text("1.3.0"));
    played.manager.ensure_checkpoint(&played.dir, "prompt", NOW);
    assert_eq!(versions(&played), [text("1.2.3"), text("1.2.3"), text("1.3.0")]);
    assert_eq!(played.store.ledger.turns(played.project.id())[0].prompt, text("one"), "the rest stays");
}
