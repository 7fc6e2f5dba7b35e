//! One call of the library, in this process or in another one. The others are processes of this test program that read
//! calls from stdin and write answers to stdout.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use piton::session::{RecordAuthor, RecordChange, SessionId, Sessions};
use piton::{
    CheckpointKind, Ensured, Error, History, Manager, MaxSnapshots, Moment, Outcome, Policy, Progress, Project,
    ReadData, Report, Request, Restore, RestoreOptions, RestorePlan, RestoreTo, Settings, Severity, Store, clear, diff,
    maintain, prune, purge, take,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::Scope;
use crate::kit::{now, settled};

/// A call, with the settings that it is made with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) base: PathBuf,
    pub(super) home: PathBuf,
    /// 0 is `auto`.
    pub(super) max_snapshots: u64,
    pub(super) max_total_size_mb: u64,
    pub(super) excludes: bool,
    pub(super) what: What,
}

/// Path below a project.
type RelPath = Vec<u8>;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum What {
    /// `is_trusted`: the next take trusts what this one records about files.
    Take {
        dir: PathBuf,
        is_trusted: bool,
    },
    /// A turn of an agent: starts it if it differs from the last one, and ensures its checkpoint.
    Turn {
        dir: PathBuf,
        session: String,
        turn: String,
    },
    /// The end of a session's turn, in every project that has its checkpoint of it.
    End {
        session: String,
    },
    /// A step within a session's turn.
    Within {
        dir: PathBuf,
        session: String,
    },
    /// A take when the clock shows this time.
    TakeAt {
        dir: PathBuf,
        secs: i64,
    },
    List {
        dir: PathBuf,
    },
    Diff {
        dir: PathBuf,
        id: String,
    },
    Restore {
        dir: PathBuf,
        to: To,
        paths: Vec<RelPath>,
        moves_aside: bool,
    },
    Prune,
    Maintain,
    Purge {
        dir: PathBuf,
        path: RelPath,
    },
    Clear,
    Write {
        session: String,
        text: String,
        is_automatic: bool,
    },
    Update {
        session: String,
        text: String,
        is_automatic: bool,
    },
    Delete {
        session: String,
    },
    Verify,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum To {
    Named(String),
    Undo,
    Redo,
    Continue,
    Abort,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Declined,
    Taken(String),
    Unchanged(String),
    Skipped(String),
    /// Answers for ends and steps, by project.
    Ended(Vec<(PathBuf, Answer)>),
    Listed(Vec<String>),
    /// Paths that differ.
    Differs(Vec<RelPath>),
    Restored {
        safety: Option<String>,
        left: Vec<RelPath>,
        /// Difference between the plan and what was done.
        unforeseen: Option<String>,
    },
    /// Pairs of old and new ids.
    Purged(Vec<(String, String)>),
    Deleted(bool),
    /// Damage that `verify` found.
    Found(Vec<String>),
    Failed {
        kind: String,
        text: String,
    },
}

impl Call {
    /// Makes the call in this process.
    pub(super) fn make(&self) -> Answer {
        self.answer().unwrap_or_else(|error| Answer::Failed {
            kind: piton::json::keyword(&error.kind()),
            text: error.to_string(),
        })
    }

    fn settings(&self) -> Settings {
        Settings::default()
            .enabled(true)
            .max_snapshots(if self.max_snapshots == 0 { MaxSnapshots::Auto } else { self.max_snapshots.into() })
            .max_total_size_mb(self.max_total_size_mb)
            .deadline_ms(60_000)
            .exclude(if self.excludes { vec![Scope::EXCLUDED.to_owned()] } else { Vec::new() })
    }

    fn project(&self, dir: &Path) -> Result<Project, Error> {
        Project::at(dir, Some(&self.home))
    }

    fn answer(&self) -> Result<Answer, Error> {
        let (settings, progress, watch) = (self.settings(), Progress::default(), Progress::default());
        let store = || Store::open_or_create(&self.base, now());
        let session = |name: &str| SessionId::parse(name);
        let sessions = Sessions::in_base(&self.base);
        match &self.what {
            What::Take { dir, is_trusted } => {
                let request = Request::default().reason("model").kind(CheckpointKind::Manual);
                let now = if *is_trusted { settled() } else { now() };
                take(&store()?, &self.project(dir)?, &request, &settings, now, &progress).map(|report| taken(&report))
            }
            What::TakeAt { dir, secs } => {
                let request = Request::default().reason("model").kind(CheckpointKind::Manual);
                let now = Moment { secs: *secs, nanos: 0, offset_secs: 0 };
                take(&store()?, &self.project(dir)?, &request, &settings, now, &progress).map(|report| taken(&report))
            }
            What::Turn { dir, session, turn } => self.turn(dir, session, turn, settings),
            What::End { session } => {
                let mut manager = self.manager(settings);
                manager.end_turn(session, None, now());
                ended(manager.take_turn_end(now()))
            }
            What::Within { dir, session } => {
                let mut manager = self.manager(settings);
                manager.continue_turn(session, None, now());
                ended(manager.take_steps(std::slice::from_ref(dir), &[], "before terminal: rm", now()))
            }
            What::List { dir } => {
                let list = History::of(&store()?, &self.project(dir)?)?.list()?;
                let numbered = list.iter().enumerate().all(|(at, listed)| listed.number == Some(at + 1));
                assert!(numbered, "{list:?}");
                Ok(Answer::Listed(list.iter().map(|listed| listed.checkpoint.id.to_string()).collect()))
            }
            What::Diff { dir, id } => {
                let found = diff(&store()?, &self.project(dir)?, (id, None), &[], &settings, &progress)?;
                let paths = found.files.into_iter().flat_map(|file| [Some(file.path), file.old_path]);
                Ok(Answer::Differs(paths.flatten().collect()))
            }
            What::Restore { dir, to, paths, moves_aside } => self.restore(dir, to, paths, *moves_aside, &settings),
            What::Prune => {
                let report = prune(&store()?, &Policy::from(&settings), now(), &watch)?;
                assert!(report.problems.is_empty() || self.max_total_size_mb > 0, "{report:?}");
                Ok(Answer::Done)
            }
            What::Maintain => maintain(&store()?, &settings, now(), &watch).map(|_| Answer::Done),
            What::Purge { dir, path } => {
                let report = purge(&store()?, &self.project(dir)?, std::slice::from_ref(path), now(), &watch)?;
                let ids = report.rewritten.iter().map(|(old, new)| (old.to_string(), new.to_string()));
                Ok(Answer::Purged(ids.collect()))
            }
            What::Clear => clear(&store()?).map(|_| Answer::Done),
            What::Write { session: name, text, is_automatic } => {
                sessions.write(&session(name)?, text.as_bytes(), author(*is_automatic), now()).map(changed)
            }
            What::Update { session: name, text, is_automatic } => {
                sessions.update(&session(name)?, text.as_bytes(), author(*is_automatic), now()).map(changed)
            }
            What::Delete { session: name } => sessions.delete(&session(name)?).map(Answer::Deleted),
            What::Verify => {
                let report = piton::verify(&store()?, ReadData::All, &watch)?;
                let damage = report.findings.iter().filter(|finding| finding.severity == Severity::Damage);
                Ok(Answer::Found(damage.map(|finding| format!("{finding:?}")).collect()))
            }
        }
    }

    fn manager(&self, settings: Settings) -> Manager {
        Manager::new(&self.base, Some(&self.home), settings).for_agent("model")
    }

    fn turn(&self, dir: &Path, session: &str, turn: &str, settings: Settings) -> Result<Answer, Error> {
        let mut manager = self.manager(settings);
        manager.begin_turn(session, Some(turn), Some(dir), now());
        let Ensured { report, .. } = manager.ensure_checkpoint(dir, "before write_file", now());
        report.map(|report| taken(&report))
    }

    fn restore(
        &self,
        dir: &Path,
        to: &To,
        paths: &[RelPath],
        moves_aside: bool,
        settings: &Settings,
    ) -> Result<Answer, Error> {
        let to = match to {
            To::Named(id) => RestoreTo::Named(id),
            To::Undo => RestoreTo::Undo,
            To::Redo => RestoreTo::Redo,
            To::Continue => RestoreTo::Continue,
            To::Abort => RestoreTo::Abort,
        };
        let options = RestoreOptions::default().paths(paths).across_sessions(true).move_uncovered_files(moves_aside);
        let (store, project) = (Store::open_or_create(&self.base, now())?, self.project(dir)?);
        let prepare = |options| Restore::prepare(&store, &project, to, options, settings, now(), &Progress::default());
        let planned = prepare(options.is_dry(true))?;
        let foreseen = foreseen(planned.plan());
        drop(planned);
        let report = prepare(options)?.apply()?;
        let written: Vec<_> = report.written.clone();
        let mut left: Vec<_> = report.left.into_iter().map(|left| left.path).collect();
        left.sort();
        let came_to = (written, report.removed, left.clone());
        let unforeseen = (foreseen != came_to).then(|| format!("{foreseen:?} was planned, and {came_to:?} done"));
        Ok(Answer::Restored { safety: report.safety.map(|id| id.to_string()), left, unforeseen })
    }
}

/// Returns the paths that a plan writes, removes and leaves, each list sorted.
fn foreseen(plan: &RestorePlan) -> (Vec<RelPath>, Vec<RelPath>, Vec<RelPath>) {
    let mut written: Vec<_> = plan.written().map(|(path, _)| path.to_vec()).collect();
    let removed = plan.removed().map(<[u8]>::to_vec).collect();
    let mut left: Vec<_> = plan.left().iter().map(|left| left.path.clone()).collect();
    written.sort();
    left.sort();
    (written, removed, left)
}

/// Returns the current record of a session.
pub(super) fn read_record(base: &Path, session: &str) -> Option<Value> {
    let id = SessionId::parse(session).expect("a name of ours");
    Sessions::in_base(base).read(&id).expect("a record that can be read").map(|record| record.to_json())
}

fn author(is_automatic: bool) -> RecordAuthor {
    if is_automatic { RecordAuthor::Automatic } else { RecordAuthor::Agent }
}

fn changed(changed: RecordChange) -> Answer {
    match changed {
        RecordChange::Done => Answer::Done,
        RecordChange::Declined => Answer::Declined,
    }
}

fn ended(all: Vec<Ensured>) -> Result<Answer, Error> {
    let answers = all.into_iter().map(|one| Ok((one.dir, taken(&one.report?))));
    answers.collect::<Result<_, Error>>().map(Answer::Ended)
}

fn taken(report: &Report) -> Answer {
    match report.outcome {
        Outcome::Taken(id) => Answer::Taken(id.to_string()),
        Outcome::Unchanged(id) => Answer::Unchanged(id.to_string()),
        Outcome::Skipped(why) => Answer::Skipped(piton::json::keyword(&why)),
        other => panic!("an outcome that the model does not know: {other:?}"),
    }
}

/// Name of the test that the processes of the model run. It tests nothing by itself.
const NAME: &str = "model::call::makes_the_calls_of_another_process";
const MARK: &str = "PITON_MODEL_PROCESS";
/// Prefix of an answer. The test program itself writes to stdout, too.
const ANSWER: &str = "answer: ";

#[test]
fn makes_the_calls_of_another_process() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    for line in std::io::stdin().lines() {
        let call: Call = serde_json::from_str(&line.expect("a line")).expect("a call");
        let answer = serde_json::to_string(&call.make()).expect("JSON");
        writeln!(std::io::stdout(), "\n{ANSWER}{answer}").expect("the parent reads it");
    }
}

/// Another process that makes calls.
struct Process {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> Self {
        let mut command = testkit::clean_command(std::env::current_exe().expect("this program"));
        command.args([NAME, "--exact", "--nocapture"]).env(MARK, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the process starts");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, answers }
    }

    fn send(&mut self, call: &Call) {
        let line = serde_json::to_string(call).expect("JSON");
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("it listens");
    }

    /// Returns the answer, or `None` if the process ended before it.
    fn answer(&mut self) -> Option<Answer> {
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return Some(serde_json::from_str(answer).expect("an answer"));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes that make calls. Number 0 is this one; the others are started when needed.
#[derive(Default)]
pub(super) struct Processes([Option<Process>; 2]);

impl Processes {
    pub(super) const COUNT: usize = 3;

    fn other(&mut self, number: usize) -> &mut Process {
        self.0[number - 1].get_or_insert_with(Process::start)
    }

    pub(super) fn call(&mut self, number: usize, call: &Call) -> Answer {
        if number == 0 {
            return call.make();
        }
        let process = self.other(number);
        process.send(call);
        process.answer().expect("a process that was not killed")
    }

    /// Makes two calls at the same time, in two processes.
    pub(super) fn both(&mut self, calls: &[Call; 2]) -> [Answer; 2] {
        self.other(1).send(&calls[0]);
        self.other(2).send(&calls[1]);
        [1, 2].map(|number| self.other(number).answer().expect("a process that was not killed"))
    }

    /// Makes a call in a process that is killed after `after`. Returns its answer if it was faster.
    pub(super) fn killed(&mut self, call: &Call, after: std::time::Duration) -> Option<Answer> {
        self.other(1).send(call);
        std::thread::sleep(after);
        let mut process = self.0[0].take().expect("started above");
        process.child.kill().expect("a process of ours");
        process.answer()
    }
}
