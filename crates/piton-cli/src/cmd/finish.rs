//! The hidden `piton finish` command: completes a checkpoint that ran out of time, in a background process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use piton::{
    Attempt, CheckpointId, CheckpointKind, Completion, Ensured, Event, Level, Moment, Origin, Progress, Project, Store,
};

use crate::context::{ConfigPolicy, Context};
use crate::hints;
use crate::maintenance;
use crate::options::Global;
use crate::output::Output;

/// Total time limit for completing one checkpoint.
const LIMIT: Duration = Duration::from_secs(10 * 60);
/// Time limit of one attempt, which then saves what it has read: a killed process loses no more than that.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Interval at which other processes waiting for the project are looked for.
const POLL: Duration = Duration::from_millis(20);
/// Pause between two attempts, in which other processes may use the project.
const PAUSE: Duration = Duration::from_millis(100);

/// Complete a checkpoint that ran out of time (run by piton itself, in the background)
#[derive(Debug, Args)]
pub(crate) struct Finish {}

/// Runs the command. Its output is not seen: a checkpoint that cannot be completed is noted in the journal, which
/// `piton status` shows.
pub(crate) fn run(global: &Global, output: &Output) -> anyhow::Result<()> {
    crate::platform::detach();
    let context = Context::build(global, ConfigPolicy::Background)?;
    output.json(&finish(&context)?);
    Ok(())
}

/// JSON of the command.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "done", rename_all = "snake_case")]
enum FinishJson {
    Nothing,
    Busy,
    Stopped,
    Finished { id: Option<CheckpointId> },
}

fn finish(context: &Context) -> anyhow::Result<FinishJson> {
    let Some(store) = context.existing_store()? else { return Ok(FinishJson::Nothing) };
    let project = Project::at(&context.dir, context.home.as_deref())?;
    let Some(completion) = Completion::begin(&store, &project)? else { return Ok(FinishJson::Busy) };
    let began = Instant::now();
    let note = |origin: &Origin, time: Moment, what: String| {
        let mut event = Event::new(time, Level::Unprotected, what);
        Origin { agent: event.agent, session: event.session, turn: event.turn, .. } = origin.clone();
        event.project = Some(project.dir().to_owned());
        context.journal().note(&event);
    };
    loop {
        match attempt(&completion, context, began) {
            Ok(Attempt::Stopped) if began.elapsed() < LIMIT => thread::sleep(PAUSE),
            Ok(Attempt::Done { report, origin, kind, since }) => {
                let ensured = Ensured::finished(project.dir(), *report);
                if kind == CheckpointKind::End {
                    // The end of a turn says nothing about its protection.
                } else if ensured.checkpoint().is_some() {
                    context.journal().note_protected_turn(project.dir(), &origin, Context::now());
                    drop(completion);
                    maintain(&store, context);
                } else if let Some(why) = ensured.missed(&context.settings) {
                    note(&origin, since, hints::after(&why, ensured.hint().as_ref()));
                }
                return Ok(FinishJson::Finished { id: ensured.checkpoint() });
            }
            Ok(Attempt::Stopped) => {
                let why = "it could not be completed in 10 minutes; the next try goes on from there".to_owned();
                completion.origin().iter().for_each(|(origin, since)| note(origin, *since, why.clone()));
                completion.give_up()?;
                return Ok(FinishJson::Stopped);
            }
            Ok(_) => return Ok(FinishJson::Nothing),
            Err(error) => {
                // The request is kept: the next hook tries again.
                completion.origin().iter().for_each(|(origin, since)| note(origin, *since, error.to_string()));
                return Err(error.into());
            }
        }
    }
}

/// Works on the checkpoint until the time limit of the attempt, or until another process waits for the project.
fn attempt(completion: &Completion<'_>, context: &Context, began: Instant) -> piton::Result<Attempt> {
    let (progress, is_over) = (Progress::default(), AtomicBool::new(false));
    let until = Instant::now() + ATTEMPT.min(LIMIT.saturating_sub(began.elapsed()));
    thread::scope(|scope| {
        let watch = || {
            while !is_over.load(Ordering::Relaxed) {
                if Instant::now() >= until || completion.must_make_way() {
                    progress.cancel();
                    return;
                }
                thread::park_timeout(POLL);
            }
        };
        // If the watcher cannot be started, one attempt goes on until everything is done.
        let watcher = thread::Builder::new().spawn_scoped(scope, watch);
        let done = completion.attempt(&context.settings, &progress);
        is_over.store(true, Ordering::Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        done
    })
}

fn maintain(store: &Store, context: &Context) {
    maintenance::start_if_due(store, &context.settings, context.config.as_deref());
}
