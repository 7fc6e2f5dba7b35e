//! Rows beyond the newest ones: thinned by time, kept by refs of their own, dropped in the right order.

use std::fs;
use std::process::Command;

use piton::{History, MaxSnapshots, Moment, Project, RestoreTo, Settings, Store, mark, unmark};
use testkit::{Dice, Sandbox};

use crate::kit::{cases, take_at, taken};
use crate::restore_kit::restored;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const START: i64 = 1_790_000_000;

fn at(secs: i64) -> Moment {
    Moment { secs, nanos: 0, offset_secs: 0 }
}

fn store(sandbox: &Sandbox) -> Store {
    Store::open_existing(&sandbox.base()).expect("a base").expect("a store")
}

fn project(sandbox: &Sandbox) -> Project {
    Project::at(&sandbox.project(), None).expect("a project")
}

/// Takes a checkpoint of new contents.
fn take(sandbox: &Sandbox, number: usize, settings: &Settings, secs: i64) -> String {
    sandbox.write("count", number.to_string());
    taken(&take_at(&sandbox.base(), &sandbox.project(), settings, at(secs)))
}

/// Returns time and id of all rows, in the order of the list.
fn rows(sandbox: &Sandbox) -> Vec<(i64, String)> {
    let history = History::of(&store(sandbox), &project(sandbox)).expect("a history");
    assert!(history.damage().is_none());
    history.rows().map(|row| (row.time.secs, row.id.to_string())).collect()
}

fn ids(rows: &[(i64, String)]) -> Vec<&String> {
    rows.iter().map(|(_, id)| id).collect()
}

fn has(sandbox: &Sandbox, id: &str) -> bool {
    let mut git = Command::new("git");
    git.arg("--git-dir").arg(sandbox.store()).args(["cat-file", "-e", id]).output().expect("git").status.success()
}

/// The rule, word by word: the newest 20, the first of each hour for a day, the first of each day for 30 days.
fn reference(rows: &[(i64, String)], now: i64) -> Vec<(i64, String)> {
    let stays = |at: usize| {
        let secs = rows[at].0;
        let is_first_of =
            |span: i64| rows[..at].iter().all(|(other, _)| other.div_euclid(span) != secs.div_euclid(span));
        at < 20 || now - secs <= DAY && is_first_of(HOUR) || now - secs <= 30 * DAY && is_first_of(DAY)
    };
    let mut kept: Vec<_> = (0..rows.len()).filter(|at| stays(*at)).map(|at| rows[at].clone()).collect();
    // Beyond the newest ones, rows are in the order of time.
    let newest = kept.len().min(20);
    kept[newest..].sort_by_key(|(secs, _)| std::cmp::Reverse(*secs));
    kept
}

/// Returns the time of the next take.
fn later(dice: &mut Dice, secs: i64, goes_back: bool) -> i64 {
    let step = match dice.roll(8) {
        0 => 0,
        1 | 2 => 60,
        3 | 4 => 20 * 60,
        5 => HOUR + 7,
        6 => 7 * HOUR,
        _ if goes_back => -5 * HOUR,
        _ => 2 * DAY,
    };
    secs + step * i64::try_from(1 + dice.roll(3)).expect("few")
}

/// B1, B3, S2.
#[test]
fn the_rows_that_stay_are_those_of_the_rule_whatever_the_times() {
    for seed in 0..cases("PITON_THINNED_CASES", 6) {
        let sandbox = Sandbox::new();
        let mut dice = Dice::new(seed);
        let (mut expected, mut all, mut secs) = (Vec::new(), Vec::new(), START);
        let goes_back = seed % 2 == 1;
        for number in 0..70 {
            secs = later(&mut dice, secs, goes_back);
            let id = take(&sandbox, number, &Settings::default(), secs);
            all.insert(0, (secs, id.clone()));
            expected.insert(0, (secs, id));
            expected = reference(&expected, secs);
            assert_eq!(rows(&sandbox), expected, "seed {seed}, take {number}");
            if !goes_back {
                assert_eq!(reference(&all, secs), expected, "it does not matter how often the rule was applied");
            }
        }
        assert!(expected.len() > 20, "some rows are thinned");
        sandbox.assert_store_is_whole();
        sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
        sandbox.store_git(&["fsck", "--full", "--strict"]);
        let gone = all.iter().find(|row| !expected.contains(row)).expect("a row that was dropped");
        assert!(!has(&sandbox, &gone.1), "nothing older is kept for the sake of a row");
        assert_eq!(rows(&sandbox), expected);
        secs += HOUR;
        expected.insert(0, (secs, take(&sandbox, 70, &Settings::default(), secs)));
        assert_eq!(rows(&sandbox), reference(&expected, secs), "refs that git packed are removed, too");
        sandbox.assert_store_is_whole();
    }
}

/// Returns a store with a row an hour for the last 30 hours.
fn hourly(sandbox: &Sandbox) -> Vec<(i64, String)> {
    for number in 0..30 {
        take(sandbox, number, &Settings::default(), START + i64::try_from(number).expect("few") * HOUR);
    }
    let rows = rows(sandbox);
    assert!(rows.len() > 24, "{rows:?}");
    rows
}

#[test]
fn a_number_is_a_ceiling_and_thinned_rows_go_with_the_next_take() {
    let sandbox = Sandbox::new();
    let before = hourly(&sandbox);
    let settings = Settings::default().max_snapshots(MaxSnapshots::Rows(22));
    let newest = take(&sandbox, 30, &settings, START + 30 * HOUR);
    let after = rows(&sandbox);
    assert_eq!(ids(&after), [&newest].into_iter().chain(ids(&before)).take(22).collect::<Vec<_>>());
    take(&sandbox, 31, &Settings::default().max_snapshots(MaxSnapshots::Rows(3)), START + 31 * HOUR);
    assert_eq!(rows(&sandbox).len(), 3);
    let refs = sandbox.store_git(&["for-each-ref", "refs/piton"]);
    assert_eq!(String::from_utf8_lossy(&refs), "");
    sandbox.assert_store_is_whole();
}

#[test]
fn a_thinned_row_is_restored_and_undone_like_any_other() {
    let sandbox = Sandbox::new();
    let before = hourly(&sandbox);
    let oldest = before.last().expect("rows").1.clone();
    let held = sandbox.held_by(&oldest);
    restored(&sandbox, RestoreTo::Named(&before.len().to_string()), &[]);
    assert_eq!(testkit::files_in(&sandbox.project()), held);
    assert_eq!(rows(&sandbox).len(), before.len() + 1, "a safety checkpoint drops nothing");
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_eq!(fs::read_to_string(sandbox.project().join("count")).expect("a file"), "29");
}

#[test]
fn a_marked_row_that_stays_by_the_rule_stays_when_it_is_unmarked() {
    let sandbox = Sandbox::new();
    let store = Store::open_or_create(&sandbox.base(), at(START)).expect("a store");
    let project = project(&sandbox);
    let first = take(&sandbox, 0, &Settings::default(), START);
    mark(&store, &project, "1", "first", false, at(START)).expect("a mark");
    let second = take(&sandbox, 1, &Settings::default(), START + 1);
    mark(&store, &project, "1", "second", false, at(START)).expect("a mark");
    for number in 2..30 {
        take(&sandbox, number, &Settings::default(), START + DAY);
    }
    let has = |id: &String| ids(&rows(&sandbox)).contains(&id);
    assert!(has(&first) && has(&second));
    for name in ["first", "second"] {
        unmark(&store, &project, name, at(START + DAY)).expect("no mark");
    }
    assert!(!has(&first) && has(&second), "the second is the last of its hour");
    sandbox.assert_store_is_whole();
}
