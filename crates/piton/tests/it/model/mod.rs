//! Random calls against a model: everything that the library does, in any order, by several processes, some of it at
//! the same time, some of it killed.
//!
//! A failure is shrunk, printed as a line that can be run again, and added to `regressions.jsonl`, whose lines are run
//! first by every later run. `PITON_MODEL_CASES` is the number of cases, `PITON_MODEL_SEED` chooses others,
//! `PITON_MODEL_STEPS` gives the steps of one. `PITON_MODEL_DIR` is the directory of the projects and stores, on any
//! file system, and `PITON_MODEL_CLASSES` chooses among two classes of edits (`links`, `mmap`); without it both are
//! tested. `PITON_MODEL_SHRINK_MS` limits the time for shrinking a failure. `cargo xtask model` runs it on several file
//! systems.

mod call;
mod files;
mod killed;
mod known;
mod restored;
mod work;
mod world;

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde::{Deserialize, Serialize};

use crate::kit::cases;
use call::Processes;
use files::{Edit, edit};
use world::World;

const PROJECTS: usize = 2;
const SESSIONS: usize = 2;
const STEPS: usize = 40;
/// Number of runs of each candidate while shrinking.
const TRIES: u32 = 4;

/// One step. Everything is referred to by a number that is valid in any state, so that steps can be left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Step {
    /// The user changes files.
    Edit { project: usize, edit: Edit },
    /// The user changes the settings.
    Limits { max_snapshots: u64, max_total_size_mb: u64 },
    /// The settings start or stop excluding some names.
    Exclude { excludes: bool },
    /// Many takes with the default limit, the clock going on or back by minutes between them.
    Work { project: usize, takes: u8, minutes: i64 },
    /// Time passes in which a project is not used.
    GoStale { project: usize },
    /// One call, in this process or another.
    Run { process: usize, verb: Verb },
    /// Two calls at the same time, in two other processes.
    Both { verbs: [Verb; 2] },
    /// One call in a process that is killed after this many microseconds. A restore is then continued or aborted.
    Kill { verb: Verb, after_us: u64, ending: Ending },
}

/// A call of the library.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Verb {
    Take {
        project: usize,
        is_trusted: bool,
    },
    Turn {
        project: usize,
        session: usize,
        turn: usize,
    },
    /// The end of the session's turn.
    End {
        session: usize,
    },
    /// A step within the session's turn.
    Within {
        project: usize,
        session: usize,
    },
    List {
        project: usize,
    },
    Diff {
        project: usize,
        checkpoint: usize,
    },
    Restore {
        project: usize,
        checkpoint: usize,
        path: Option<usize>,
        #[serde(default)]
        moves_aside: bool,
    },
    Undo {
        project: usize,
        wants_redo: bool,
    },
    /// `gone`: a project whose directory is missing.
    Prune {
        gone: Option<usize>,
    },
    Maintain,
    Purge {
        project: usize,
        name: usize,
    },
    Clear,
    Write {
        session: usize,
        is_automatic: bool,
    },
    Update {
        session: usize,
        is_automatic: bool,
    },
    Delete {
        session: usize,
    },
    Verify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Ending {
    Continue,
    Abort,
}

impl Verb {
    /// Returns the project of the call.
    fn project(&self) -> Option<usize> {
        match self {
            Self::Take { project, .. }
            | Self::Turn { project, .. }
            | Self::Within { project, .. }
            | Self::List { project }
            | Self::Diff { project, .. }
            | Self::Restore { project, .. }
            | Self::Undo { project, .. }
            | Self::Purge { project, .. } => Some(*project),
            _ => None,
        }
    }

    /// Returns the session whose record the call reads or writes.
    fn session(&self) -> Option<usize> {
        match self {
            Self::Turn { session, .. }
            | Self::End { session }
            | Self::Within { session, .. }
            | Self::Write { session, .. }
            | Self::Update { session, .. }
            | Self::Delete { session } => Some(*session),
            _ => None,
        }
    }
}

fn verb() -> impl Strategy<Value = Verb> {
    let (project, session) = (|| 0..PROJECTS, || 0..SESSIONS);
    let checkpoint = || 0..8usize;
    let path = proptest::option::weighted(0.3, 0..64usize);
    prop_oneof![
        8 => (project(), any::<bool>()).prop_map(|(project, is_trusted)| Verb::Take { project, is_trusted }),
        5 => (project(), session(), 0..3usize)
            .prop_map(|(project, session, turn)| Verb::Turn { project, session, turn }),
        3 => session().prop_map(|session| Verb::End { session }),
        2 => (project(), session()).prop_map(|(project, session)| Verb::Within { project, session }),
        1 => project().prop_map(|project| Verb::List { project }),
        2 => (project(), checkpoint()).prop_map(|(project, checkpoint)| Verb::Diff { project, checkpoint }),
        6 => (project(), checkpoint(), path, proptest::bool::weighted(0.25)).prop_map(
            |(project, checkpoint, path, moves_aside)| Verb::Restore { project, checkpoint, path, moves_aside }
        ),
        3 => (project(), any::<bool>()).prop_map(|(project, wants_redo)| Verb::Undo { project, wants_redo }),
        2 => proptest::option::weighted(0.2, project()).prop_map(|gone| Verb::Prune { gone }),
        1 => Just(Verb::Maintain),
        1 => (project(), 0..files::NAMES.len()).prop_map(|(project, name)| Verb::Purge { project, name }),
        3 => (session(), any::<bool>()).prop_map(|(session, is_automatic)| Verb::Write { session, is_automatic }),
        3 => (session(), any::<bool>()).prop_map(|(session, is_automatic)| Verb::Update { session, is_automatic }),
        1 => session().prop_map(|session| Verb::Delete { session }),
        1 => Just(Verb::Verify),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![Just(Ending::Continue), Just(Ending::Abort)];
    let limits = (1..6u64, prop_oneof![3 => Just(0u64), 1 => Just(1u64)]);
    prop_oneof![
        20 => (0..PROJECTS, edit()).prop_map(|(project, edit)| Step::Edit { project, edit }),
        1 => limits.prop_map(|(max_snapshots, max_total_size_mb)| Step::Limits { max_snapshots, max_total_size_mb }),
        1 => any::<bool>().prop_map(|excludes| Step::Exclude { excludes }),
        1 => (0..PROJECTS).prop_map(|project| Step::GoStale { project }),
        1 => (0..PROJECTS, 1..24u8, prop_oneof![Just(0i64), Just(7), Just(61), Just(300), Just(-200)])
            .prop_map(|(project, takes, minutes)| Step::Work { project, takes, minutes }),
        // Rarely, because it clears the store.
        1 => (0..Processes::COUNT, prop_oneof![1 => Just(Verb::Clear), 2 => Just(Verb::Verify)])
            .prop_map(|(process, verb)| Step::Run { process, verb }),
        14 => (0..Processes::COUNT, verb()).prop_map(|(process, verb)| Step::Run { process, verb }),
        5 => [verb(), verb()].prop_map(|verbs| Step::Both { verbs }),
        3 => (verb(), 0..20_000u64, ending).prop_map(|(verb, after_us, ending)| Step::Kill { verb, after_us, ending }),
    ]
}

fn run(steps: &[Step], processes: &mut Processes) {
    let mut world = World::new(processes);
    steps.iter().for_each(|step| world.step(step));
    world.finish();
}

/// Returns the file of the steps that failed, one line each, in the format of `PITON_MODEL_STEPS`.
fn regressions() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/model/regressions.jsonl")
}

fn parse(line: &str) -> Vec<Step> {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("steps that cannot be read: {error}"))
}

/// Runs `count` cases of random steps. Panics with the shortest steps that fail.
fn hunt(count: u64, steps: impl Strategy<Value = Vec<Step>>) {
    let config = ProptestConfig {
        cases: u32::try_from(count).unwrap_or(u32::MAX),
        failure_persistence: None,
        max_shrink_iters: 600,
        max_shrink_time: u32::try_from(cases("PITON_MODEL_SHRINK_MS", 180_000)).unwrap_or(u32::MAX),
        ..ProptestConfig::default()
    };
    // A different number of cases gives different cases; the default ones are the same each time.
    let mut seed = [11; 32];
    seed[..8].copy_from_slice(&count.to_le_bytes());
    seed[8..16].copy_from_slice(&cases("PITON_MODEL_SEED", 0).to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let (processes, tries) = (RefCell::new(Processes::default()), Cell::new(1));
    let made = Cell::new(0);
    let ran = runner.run(&steps, |steps| {
        made.set(made.get() + steps.len());
        // While shrinking, steps that depend on a race are run several times before they count as correct.
        for _ in 0..tries.get() {
            // A failure may leave a process with an unread answer.
            let mut own = processes.take();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&steps, &mut own))) {
                tries.set(TRIES);
                return Err(TestCaseError::fail(panic.downcast_ref::<String>().cloned().unwrap_or_default()));
            }
            processes.replace(own);
        }
        Ok(())
    });
    if let Err(TestError::Fail(why, steps)) = ran {
        let line = serde_json::to_string(&steps).expect("JSON");
        // If this program runs as another user, the file may not be writable, and the printed line has to do.
        if let Ok(mut file) = fs::File::options().create(true).append(true).open(regressions()) {
            writeln!(file, "{line}").expect("a line");
        }
        panic!("{why}\n{steps:#?}\nrun it again with\nPITON_MODEL_STEPS='{line}'");
    }
    assert!(ran.is_ok(), "{ran:?}");
    // `cargo xtask model` adds these numbers up.
    tell(&format!("\nsteps made: {}\n", made.get()));
}

#[test]
fn random_steps_and_kills_match_the_model() {
    if let Ok(line) = std::env::var("PITON_MODEL_STEPS") {
        return run(&parse(&line), &mut Processes::default());
    }
    hunt(cases("PITON_MODEL_CASES", 16), proptest::collection::vec(step(), 1..STEPS));
}

#[test]
fn recorded_failures_pass() {
    for line in fs::read_to_string(regressions()).unwrap_or_default().lines() {
        run(&parse(line), &mut Processes::default());
    }
}

#[test]
fn a_long_session_is_restored_exactly() {
    let checkpoint = || 0..64usize;
    let verbs = prop_oneof![
        4 => any::<bool>().prop_map(|is_trusted| Verb::Take { project: 0, is_trusted }),
        6 => (checkpoint(), proptest::option::weighted(0.3, 0..64usize), proptest::bool::weighted(0.25)).prop_map(
            |(checkpoint, path, moves_aside)| Verb::Restore { project: 0, checkpoint, path, moves_aside }
        ),
        4 => any::<bool>().prop_map(|wants_redo| Verb::Undo { project: 0, wants_redo }),
    ];
    let steps = prop_oneof![
        13 => edit().prop_map(|edit| Step::Edit { project: 0, edit }),
        1 => any::<bool>().prop_map(|excludes| Step::Exclude { excludes }),
        7 => verbs.prop_map(|verb| Step::Run { process: 0, verb }),
    ];
    // Every checkpoint can be restored at any time.
    let keep_all = Step::Limits { max_snapshots: 1_000_000, max_total_size_mb: 0 };
    let steps = proptest::collection::vec(steps, 300).prop_map(move |steps| [vec![keep_all.clone()], steps].concat());
    hunt(cases("PITON_MODEL_CASES", 16).div_ceil(8), steps);
}

/// Few names, most of them excluded by some rule, and rules and lists that change all the time.
#[test]
fn files_moved_aside_come_back_although_rules_change() {
    let verbs = prop_oneof![
        3 => any::<bool>().prop_map(|is_trusted| Verb::Take { project: 0, is_trusted }),
        6 => (0..64usize, proptest::option::weighted(0.2, 0..64usize), proptest::bool::weighted(0.6)).prop_map(
            |(checkpoint, path, moves_aside)| Verb::Restore { project: 0, checkpoint, path, moves_aside }
        ),
        4 => any::<bool>().prop_map(|wants_redo| Verb::Undo { project: 0, wants_redo }),
    ];
    let steps = prop_oneof![
        8 => files::edit_left_out().prop_map(|edit| Step::Edit { project: 0, edit }),
        3 => any::<bool>().prop_map(|excludes| Step::Exclude { excludes }),
        9 => verbs.prop_map(|verb| Step::Run { process: 0, verb }),
    ];
    let keep_all = Step::Limits { max_snapshots: 1_000_000, max_total_size_mb: 0 };
    let steps = proptest::collection::vec(steps, 60).prop_map(move |steps| [vec![keep_all.clone()], steps].concat());
    hunt(cases("PITON_MODEL_CASES", 16).div_ceil(2), steps);
}

/// Prints a line for `cargo xtask model`, which adds the steps up.
fn tell(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes());
}
