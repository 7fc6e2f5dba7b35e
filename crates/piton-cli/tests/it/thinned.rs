//! Rows beyond the newest 20: everything that reads or shrinks the store knows them, and a take that makes one can be
//! killed anywhere.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use piton::{CheckpointKind, Moment, Outcome, Progress, Project, Request, Settings, Store};
use testkit::{Dice, Sandbox};

use crate::fault_store::{Files, answer};
use crate::kit::{Ran, command, ids, piton, run};
use crate::older::older;
use crate::purge::{SECRET, found};
use crate::sweep::{After, Scene, fail, kill};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Takes a checkpoint of new contents as if the clock showed this time.
fn take_at(sandbox: &Sandbox, number: usize, secs: i64, kind: CheckpointKind) -> String {
    sandbox.write("count", number.to_string());
    let now = Moment { secs, nanos: 0, offset_secs: 0 };
    let store = Store::open_or_create(&sandbox.base(), now).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let request = Request::default().reason("a test").kind(kind);
    let settings = Settings::default().max_total_size_mb(0);
    let report = piton::take(&store, &project, &request, &settings, now, &Progress::default()).expect("a take");
    let Outcome::Taken(id) = report.outcome else { panic!("{report:?}") };
    id.to_string()
}

/// A list with 20 rows of the last hour but one, of which the next take drops the oldest, which is then thinned.
struct Thinned {
    sandbox: Sandbox,
    /// Goes with the next take: it is older than a month by then.
    oldest: String,
    /// Thinned already.
    thinned: String,
    /// Thinned by the next take.
    next: String,
    held: BTreeMap<String, Files>,
}

impl Thinned {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let now = now();
        let take = |number, secs| take_at(&sandbox, number, secs, CheckpointKind::Manual);
        let [oldest, thinned, next] = [now - 30 * DAY - HOUR / 2, now - 5 * HOUR, now - 3 * HOUR].map(|secs| {
            // The number tells the contents apart.
            take(usize::try_from(now - secs).expect("a time in the past"), secs)
        });
        (0..19).for_each(|number| drop(take(number, now - HOUR)));
        // No process in the background.
        fs::write(sandbox.base().join(".last_prune"), now.to_string()).expect("a file");
        sandbox.write("count", "20");
        let rows = ids(&sandbox);
        assert_eq!(rows[19..], [next.clone(), thinned.clone(), oldest.clone()]);
        let held = rows.iter().map(|id| (id.clone(), sandbox.held_by(id))).collect();
        Self { sandbox, oldest, thinned, next, held }
    }

    /// Asserts that the rule keeps everything that it must, with its contents.
    fn assert_kept(&self, when: &str) {
        let rows = ids(&self.sandbox);
        for (id, held) in self.held.iter().filter(|(id, _)| **id != self.oldest) {
            assert!(rows.contains(id), "{id} is gone: {when}");
            assert!(self.sandbox.held_by(id) == *held, "{id} is another: {when}");
        }
    }
}

impl Scene for Thinned {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["take", "--json"]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        let rows = ids(&self.sandbox);
        assert_eq!(rows[20..], [self.next.clone(), self.thinned.clone()]);
    }

    fn check(&self, after: &After<'_>) {
        answer(after);
        self.sandbox.assert_store_is_whole();
        self.assert_kept(&format!("{after:?}"));
        // The files stay as they are from one fault to the next.
        self.sandbox.write("count", after.point.to_string());
        assert_eq!(piton(&self.sandbox, ["take", "--json"]).done().json()["outcome"], "taken");
        let rows = ids(&self.sandbox);
        assert!([&self.next, &self.thinned].iter().all(|id| rows.contains(id)), "{after:?}");
        assert!(!rows.contains(&self.oldest), "{after:?}");
        piton(&self.sandbox, ["verify"]).done();
        self.sandbox.assert_store_is_whole();
    }
}

/// B3.
#[test]
fn a_take_that_thins_may_be_killed_anywhere() {
    assert!(kill(Thinned::new).felt >= 15);
}

#[test]
fn a_take_that_thins_survives_the_failure_of_any_call() {
    assert!(fail(Thinned::new).felt >= 12);
}

#[test]
fn verify_repair_and_stock_git_know_thinned_rows() {
    let scene = Thinned::new();
    let sandbox = &scene.sandbox;
    sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
    sandbox.store_git(&["fsck", "--full", "--strict"]);
    piton(sandbox, ["take"]).done();
    scene.assert_kept("refs that git packed");
    let (project, rows) = (project(sandbox), ids(sandbox));
    let dir = sandbox.store().join(format!("refs/piton/{project}/rows"));
    let name = format!("{}+0000", now());
    fs::write(dir.join(&name), format!("{}\n", "07".repeat(20))).expect("a ref");
    let list = piton(sandbox, ["rollback"]);
    assert!(list.stderr.contains("damaged"), "{list:?}");
    assert_eq!(ids(sandbox), rows, "the others are listed");
    assert_ne!(piton(sandbox, ["verify"]).code(), 0);
    piton(sandbox, ["repair"]);
    assert!(!dir.join(&name).exists());
    piton(sandbox, ["verify"]).done();
    assert_eq!(ids(sandbox), rows);
}

fn project(sandbox: &Sandbox) -> String {
    let refs = sandbox.store_git(&["for-each-ref", "--format=%(refname)", "refs/hermes"]);
    String::from_utf8(refs).expect("text").trim().rsplit('/').next().expect("a project").to_owned()
}

fn refs(sandbox: &Sandbox) -> String {
    String::from_utf8(sandbox.store_git(&["for-each-ref", "refs/piton"])).expect("text")
}

/// X1, X2.
#[test]
fn a_purge_rewrites_thinned_rows_too() {
    let sandbox = Sandbox::new();
    let take = |number, secs| take_at(&sandbox, number, secs, CheckpointKind::Manual);
    sandbox.write("keys", SECRET);
    let old = take(0, now() - 4 * HOUR);
    fs::remove_file(sandbox.project().join("keys")).expect("a file");
    (1..25).for_each(|number| drop(take(number, now())));
    assert!(ids(&sandbox).contains(&old));
    let report = piton(&sandbox, ["purge", "keys", "--yes", "--json"]).done().json();
    assert_eq!((report["gone"].as_u64(), report["still_held"].as_array().map(Vec::len)), (Some(1), Some(0)));
    assert_eq!(found(&sandbox, SECRET.as_bytes()), [""; 0]);
    let rows = ids(&sandbox);
    assert!(rows.len() == 21 && !rows.contains(&old), "{rows:?}");
    assert_eq!(sandbox.held_by(&rows[20]).len(), 1);
    sandbox.assert_store_is_whole();
    piton(&sandbox, ["verify"]).done();
}

#[test]
fn a_project_that_is_dropped_takes_its_thinned_rows_with_it() {
    let scene = Thinned::new();
    let sandbox = &scene.sandbox;
    let known = piton(sandbox, ["status", "--json"]).done().json();
    assert_eq!(known["projects"][0]["commits"], 22);
    piton(sandbox, ["prune", "--retention-days", "0"]).done();
    assert_eq!(ids(sandbox).len(), 22, "a prune drops no row");
    assert!(!refs(sandbox).is_empty());
    piton(sandbox, ["prune", "--forget", sandbox.project().to_str().expect("UTF-8"), "--yes"]).done();
    assert_eq!(refs(sandbox), "");
    sandbox.assert_store_is_whole();
    let scene = Thinned::new();
    piton(&scene.sandbox, ["clear", "-f"]).done();
    assert!(!scene.sandbox.store().exists());
}

/// G5, G6.
#[test]
fn steps_go_before_ends_of_turns_then_thinned_rows_then_rows() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(9);
    let start = now() - 20 * HOUR;
    let mut take = |number: usize, secs, kind| {
        sandbox.write("noise", dice.noise(200_000));
        take_at(&sandbox, number, secs, kind)
    };
    let mut taken = BTreeMap::new();
    for number in 0..23 {
        // Three rows that are thinned, then twenty, each with a step and an end.
        let secs = start + HOUR * i64::try_from(number.min(3)).expect("few");
        taken.insert((number, "row"), take(3 * number, secs, CheckpointKind::Manual));
        taken.insert((number, "step"), take(3 * number + 1, secs, CheckpointKind::Step));
        taken.insert((number, "end"), take(3 * number + 2, secs, CheckpointKind::End));
    }
    let all = |kind| (0..23).map(|number| taken[&(number, kind)].clone()).filter(|id| has(&sandbox, id)).count();
    let shrink = |mb: u64| piton(&sandbox, ["prune", "--max-size-mb", &mb.to_string()]).done();
    piton(&sandbox, ["prune", "--max-size-mb", "0"]).done();
    assert_eq!((ids(&sandbox).len(), all("row")), (23, 23));
    let ends_before = all("end");
    assert!(ends_before >= 20 && all("step") >= 20, "{ends_before}");
    let newest = [taken[&(22, "row")].clone(), taken[&(22, "end")].clone()];
    let mut seen = Vec::new();
    for mb in [11, 9, 8, 6, 5, 4, 3, 2, 1] {
        shrink(mb);
        sandbox.assert_store_is_whole();
        assert!(newest.iter().all(|id| has(&sandbox, id)), "at {mb} MB");
        let (rows, ends, steps) = (all("row"), all("end"), all("step"));
        assert_eq!(ids(&sandbox).len(), rows, "at {mb} MB");
        assert!(rows == 23 || ends == 1, "at {mb} MB: {rows} rows, {ends} ends");
        assert!(ends == ends_before || steps == 0, "at {mb} MB: {ends} ends, {steps} steps");
        let oldest_first = (0..23).map(|number| has(&sandbox, &taken[&(number, "row")])).skip_while(|has| !has);
        assert!(oldest_first.clone().all(|has| has), "at {mb} MB");
        piton(&sandbox, ["verify"]).done();
        seen.push((rows, ends, steps));
    }
    assert!(seen.iter().any(|(_, ends, steps)| *ends == ends_before && *steps < 20), "{seen:?}");
    assert!(seen.iter().any(|(rows, ends, _)| *rows == 23 && *ends < 20), "{seen:?}");
    assert!(seen.last().is_some_and(|(rows, ..)| *rows < 20), "{seen:?}");
    // The rows that were kept without their ends count like all others.
    piton(&sandbox, ["take", "-m", "one more"]).done();
    let limited = run(command(&sandbox).env("PITON_MAX_SNAPSHOTS", "2").args(["take", "-m", "x"]));
    limited.done();
    sandbox.write("count", "last");
    run(command(&sandbox).env("PITON_MAX_SNAPSHOTS", "2").args(["take", "-m", "x"])).done();
    assert_eq!(ids(&sandbox).len(), 2);
    assert_eq!(refs(&sandbox), "");
    sandbox.assert_store_is_whole();
}

fn has(sandbox: &Sandbox, id: &str) -> bool {
    let mut git = Command::new("git");
    git.arg("--git-dir").arg(sandbox.store()).args(["cat-file", "-e", id]).output().expect("git").status.success()
}

/// Version 0.1 lists the history alone, and leaves the refs of thinned rows and marks as they are.
#[test]
fn version_0_1_works_in_a_store_with_thinned_rows() {
    let scene = Thinned::new();
    let sandbox = &scene.sandbox;
    let Some(older) = older(sandbox) else { return };
    piton(sandbox, ["mark", &scene.thinned, "works"]).done();
    assert_eq!(older.run(&["rollback", "--json"]).json().as_array().map(Vec::len), Some(20));
    for number in 30..35 {
        sandbox.write("count", number.to_string());
        older.run(&["take", "--json"]);
    }
    older.run(&["restore", "3", "-y"]);
    older.run(&["prune"]);
    older.run(&["verify"]);
    sandbox.assert_store_is_whole();
    let rows = ids(sandbox);
    assert!(rows.contains(&scene.thinned) && rows.contains(&scene.oldest), "{rows:?}");
    assert!(!rows.contains(&scene.next), "it thins nothing");
    sandbox.write("count", "40");
    piton(sandbox, ["take"]).done();
    piton(sandbox, ["prune"]).done();
    let rows = ids(sandbox);
    assert!(rows.contains(&scene.thinned) && !rows.contains(&scene.oldest), "{rows:?}");
    piton(sandbox, ["verify"]).done();
    sandbox.assert_store_is_whole();
}
