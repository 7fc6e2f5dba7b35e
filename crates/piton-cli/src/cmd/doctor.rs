//! The `piton doctor` command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use piton::{
    Event, FindingKind, LastEvent, Level, Moment, Store, check_saved_beside, git_state_problems, grouped, last_heard,
    mistaken_projects,
};
use serde_json::Value;

use crate::agents::Agent;
use crate::agents::setup::{Caller, Homes, Ours, Setup, TIMEOUT_SECS, Trust, TrustInput, Whose};
use crate::columns::counted;
use crate::context::{ConfigPolicy, ConfigProblem, Context};
use crate::conversation::is_known_version;
use crate::edit::{Config, files};
use crate::hints::{self, Problem};
use crate::hook::OWN_TEXT_ARRIVED;
use crate::install::fire;
use crate::install::outdated::{outdated, written_secs};
use crate::install::pieces::Pieces;
use crate::install::programs::{is_this_program, why_stale};
use crate::options::{EXIT_CODES, Global};
use crate::output::{Output, Said, local, plain};
use crate::platform;
use crate::remote::health::known_remote;
use crate::self_test;
use crate::shell;

/// Minimum free disk space; with less, the next checkpoints may fail.
const DISK_BYTES_MIN: u64 = 200 << 20;

/// Is everything protected? Fires a test event through each hook, and says how to fix what is wrong
#[derive(Debug, Args)]
#[command(after_help = format!("\
Exits with 0 if all is well, and with 1 if something is wrong.

Examples:
  piton doctor
  piton doctor --no-fire
  piton doctor --self-test /mnt/usb   does piton work on that file system?

{EXIT_CODES}"))]
pub(crate) struct Doctor {
    /// Do not call the hooks
    #[arg(long)]
    no_fire: bool,
    /// Prove on the file system of DIR [default: the current directory] that take, restore, undo and recovery from a kill
    /// are exact, and say what it cannot do. Takes seconds; uses a temporary directory there
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", conflicts_with = "no_fire")]
    self_test: Option<PathBuf>,
    /// Number of times that the self-test kills each command
    #[arg(long, value_name = "N", default_value_t = 16, requires = "self_test")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
}

/// JSON of the command.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DoctorJson<'a> {
    /// true if nothing is wrong
    ok: bool,
    /// the agents that piton knows
    agents: &'a [Checked],
    /// what is wrong apart from agents
    problems: &'a [Problem],
}

/// Result of the checks of one agent.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Checked {
    /// name of the agent
    #[serde(serialize_with = "name_of")]
    #[cfg_attr(test, schemars(with = "String"))]
    agent: Agent,
    /// true if it is installed on this machine
    #[serde(rename = "found")]
    is_found: bool,
    /// true if its hooks are installed
    #[serde(rename = "installed")]
    is_installed: bool,
    /// true if it runs the hooks without asking, or null if that is not known
    #[serde(rename = "trusted")]
    is_trusted: Option<bool>,
    /// true if the hooks work, or null if they were not called
    #[serde(rename = "fired")]
    has_fired: Option<bool>,
    /// the last event of the agent, or null
    last_event: Option<Seen>,
    /// number of turns without a checkpoint
    unprotected_turns: usize,
    /// what is wrong with the agent
    problems: Vec<Problem>,
    /// Remarks that are not problems.
    #[serde(skip)]
    notes: Vec<String>,
}

/// The last event or problem of an agent.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Seen {
    /// time of the event, as in RFC 3339
    time: Moment,
    /// meaning of the event: `seen`, `protected`, `warning`, `unsaved`, `unprotected`, `declined` or `acknowledged`
    level: &'static str,
    /// description
    what: String,
}

impl Seen {
    fn new(event: Option<&Event>, heard: Option<&LastEvent>) -> Option<Self> {
        match (event, heard) {
            (Some(event), _) if heard.is_none_or(|heard| heard.time.secs <= event.time.secs) => {
                Some(Self { time: event.time, level: event.level.word(), what: event.what.clone() })
            }
            (_, Some(heard)) => Some(Self { time: heard.time, level: "seen", what: heard.what.clone() }),
            _ => None,
        }
    }
}

/// Recorded events of all agents.
struct OnRecord {
    /// Events of the journal, newest first.
    events: Vec<Event>,
    heard: BTreeMap<String, LastEvent>,
}

impl OnRecord {
    fn of(context: &Context) -> Self {
        const EVENTS_MAX: usize = 10_000;
        let store = context.existing_store().ok().flatten();
        Self {
            events: context.journal().recent(EVENTS_MAX),
            heard: store.map(|store| last_heard(&store)).unwrap_or_default(),
        }
    }
}

pub(crate) fn run(args: &Doctor, global: &Global, output: &Output) -> anyhow::Result<()> {
    if let Some(dir) = &args.self_test {
        let around = global.dir.as_deref().unwrap_or(Path::new("."));
        return self_test::run(&around.join(dir), args.kills, output);
    }
    let context = Context::build(global, ConfigPolicy::Collect(output))?;
    let config = context.config.as_deref().unwrap_or(Path::new("config.yaml")).display().to_string();
    let mut problems: Vec<_> = context.config_problems.iter().map(ConfigProblem::for_user).collect();
    problems.extend(store_problems(&context));
    let on_record = OnRecord::of(&context);
    let agents: Vec<_> = match &context.home {
        Some(home) => {
            let homes = Homes::new(home, Context::variable);
            Agent::installable().map(|agent| check(agent, &homes, &context, &on_record, args)).collect()
        }
        None => Vec::new(),
    };
    if agents.iter().any(|agent| agent.is_installed) && !context.settings.enabled {
        let hint = format!("write `enabled: true` under `checkpoints:` in {config}");
        problems.push(Problem::new("automatic checkpoints are switched off", hint));
    }
    if context.settings.deadline_ms >= TIMEOUT_SECS * 1000 {
        let what = format!("agents wait {TIMEOUT_SECS} s for a hook, and deadline_ms lets one take longer");
        problems.push(Problem::new(what, format!("set deadline_ms in {config} to less, or leave it out")));
    }
    if !agents.iter().any(|agent| agent.is_installed) {
        let hint = "`piton install AGENT` hooks one up; `piton install --help` names them";
        problems.push(Problem::new("no agent is hooked up", hint));
    }
    known_remote(context.existing_store().ok().flatten().as_ref(), &mut problems);
    let unsaved = context.unsaved();
    if let Some(last) = unsaved.first() {
        let what = format!("{} could not be saved before a command ran", counted(unsaved.len(), "thing"));
        let hint =
            format!("the last: {}; `piton status` lists them, `piton status --ack` ends that", plain(&last.what));
        problems.push(Problem::new(what, hint));
    }
    let is_ok = problems.is_empty() && agents.iter().all(|agent| agent.problems.is_empty());
    output.json(&DoctorJson { ok: is_ok, agents: &agents, problems: &problems });
    output.text(&as_text(&problems, &agents));
    if is_ok { Ok(()) } else { Err(Said(1).into()) }
}

fn store_problems(context: &Context) -> Vec<Problem> {
    let base = &context.base;
    let mut problems = Vec::new();
    match context.existing_store() {
        Err(error) => {
            let hint = hints::of(&error).unwrap_or_else(|| "`piton verify` says more".to_owned());
            problems.push(Problem::new(error.to_string(), hint));
        }
        Ok(store) => {
            let mistaken = store.as_ref().and_then(|store| mistaken_projects(store).ok()).unwrap_or_default();
            problems.extend(mistaken.into_iter().map(Problem::from));
            problems.extend(store.iter().flat_map(saved_problems));
            let git = store.as_ref().and_then(|store| git_state_problems(store).ok()).unwrap_or_default();
            problems.extend(git.into_iter().map(Problem::from));
        }
    }
    let nearest = base.ancestors().find(|path| path.exists());
    let probe = nearest.map(|dir| tempfile::Builder::new().prefix("tmp_").tempfile_in(dir));
    if let Some(Err(error)) = probe {
        let what = format!("the base {} cannot be written: {error}", base.display());
        problems.push(Problem::new(what, "make it writable, or name another place with PITON_BASE"));
    }
    let free = nearest.and_then(platform::free_bytes);
    if let Some(free) = free.filter(|free| *free < DISK_BYTES_MIN) {
        let what = format!("the disk of {} is nearly full: {} MB are free", base.display(), grouped(free >> 20));
        problems.push(Problem::new(what, "free some space: without it, no checkpoint can be taken"));
    }
    problems
}

/// Returns a problem for each kind of data beside the checkpoints that has defects.
fn saved_problems(store: &Store) -> Vec<Problem> {
    let findings = check_saved_beside(store).unwrap_or_default();
    let count = |kind| findings.iter().filter(|finding| finding.kind == kind).count();
    let words = [
        (count(FindingKind::GitState), "of the recorded states of git repositories"),
        (count(FindingKind::Kept), "of the kept files"),
    ];
    let problem = |(count, what): (usize, &str)| {
        Problem::new(
            format!("{} {what} cannot be read", grouped(count as u64)),
            "`piton repair` drops them; `piton verify` names them",
        )
    };
    words.into_iter().filter(|(count, _)| *count > 0).map(problem).collect()
}

/// A configuration in which our hooks were found.
struct ConfigPlace {
    config: PathBuf,
    ours: Vec<Ours>,
    /// True if the file is part of the project: its author may be another person than the user.
    is_the_projects: bool,
}

fn check(agent: Agent, homes: &Homes, context: &Context, on_record: &OnRecord, args: &Doctor) -> Checked {
    let name = agent.name;
    let on_path = agent.programs.iter().find_map(Context::on_search_path);
    let mut checked = Checked {
        agent,
        is_found: on_path.is_some() || homes.of(agent).is_some_and(agent.checks.has_home),
        is_installed: false,
        is_trusted: None,
        has_fired: None,
        last_event: None,
        unprotected_turns: 0,
        problems: Vec::new(),
        notes: Vec::new(),
    };
    let places = places(agent, homes, context, &mut checked.problems);
    checked.is_installed = !places.is_empty();
    if places.is_empty() {
        match on_path {
            Some(path) if checked.problems.is_empty() => {
                let what = format!("{} is there, and piton is not hooked up to it", path.display());
                checked.problems.push(Problem::new(what, format!("`piton install {name}`")));
            }
            None if checked.is_found => checked.notes.push("not hooked up".to_owned()),
            _ => {}
        }
    }
    for place in &places {
        check_place(&mut checked, place, homes, context, args);
    }
    if checked.is_installed {
        checked.problems.extend(command_problems(agent, homes, context, on_record));
    }
    if places.len() > 1 {
        checked.notes.push("hooked up for the user and for this project".to_owned());
    }
    checked.notes.extend(unknown_conversations(agent, on_record));
    let mut own = on_record.events.iter().filter(|event| event.agent.as_deref() == Some(name)).peekable();
    checked.last_event = Seen::new(own.peek().copied(), on_record.heard.get(name));
    let (turns, past) = unprotected_turns(context, agent);
    checked.unprotected_turns = turns;
    if past > 0 {
        let turns = counted(past, "turn");
        checked
            .notes
            .push(format!("{turns} without a checkpoint before that or where none is taken, see `piton status`"));
    }
    if checked.unprotected_turns > 0 {
        let what = format!("{} ran without a checkpoint", counted(checked.unprotected_turns, "turn"));
        let last = own.find(|event| event.level == Level::Unprotected);
        let why = last.map_or_else(String::new, |event| format!("the last: {}", event.what));
        checked.problems.push(Problem::new(what, why));
    }
    checked
}

/// Returns a remark if the last version of the agent that was seen is not one whose conversations can be forked.
fn unknown_conversations(agent: Agent, on_record: &OnRecord) -> Option<String> {
    let known = agent.spec().conversation.as_ref()?.versions;
    let version = on_record.heard.get(agent.name)?.version.as_deref()?;
    let names: Vec<_> = known.iter().map(|known| format!("{known}x")).collect();
    (!is_known_version(version, known)).then(|| {
        let version = plain(version);
        format!(
            "version {version}: `piton rewind` takes back files only, as piton knows conversations of {}",
            names.join(" and ")
        )
    })
}

/// Returns problems with the `/rollback` command: a command file of an older version, or one whose text arrived
/// at the hook as a prompt after it was written.
fn command_problems(agent: Agent, homes: &Homes, context: &Context, on_record: &OnRecord) -> Vec<Problem> {
    let hint = || format!("`piton install {}` writes it again; one that you changed must go first", agent.name);
    let setups: Vec<_> =
        wheres(context).iter().filter_map(|whose| agent.setup(whose, homes, &Caller::default())).collect();
    let hooked = |setup: &&Setup| setup.files.iter().any(|file| !file.is_needed && file.path.is_file());
    let mut problems: Vec<_> = setups.iter().filter(hooked).flat_map(|setup| outdated(agent, setup)).collect();
    if problems.is_empty() {
        let written_secs = setups.iter().filter_map(written_secs).max().unwrap_or(i64::MIN);
        let arrived = on_record.events.iter().find(|event| {
            event.agent.as_deref() == Some(agent.name)
                && event.what.starts_with(OWN_TEXT_ARRIVED)
                && event.time.secs > written_secs
        });
        problems.extend(arrived.map(|event| event.what.clone()));
    }
    problems.into_iter().map(|what| Problem::new(what, hint())).collect()
}

/// Returns the number of turns of an agent without a checkpoint in projects where checkpoints still fail, and the
/// number of all others.
fn unprotected_turns(context: &Context, agent: Agent) -> (usize, usize) {
    let states = context.journal().unprotected();
    let is_past = |turn: &Event| states.iter().any(|state| state.project == turn.project && state.is_past);
    let turns = context.unprotected_turns();
    let own = turns.iter().filter(|turn| turn.agent.as_deref() == Some(agent.name));
    let (past, present): (Vec<_>, Vec<_>) = own.partition(|turn| turn.level == Level::Declined || is_past(turn));
    (present.len(), past.len())
}

/// Returns the scopes to check: the user and this project.
fn wheres(context: &Context) -> [Whose; 2] {
    let store = context.existing_store().ok().flatten();
    let project =
        context.project(store.as_ref()).map_or_else(|_| context.dir.clone(), |project| project.dir().to_owned());
    [Whose::User, Whose::Project(project)]
}

/// Returns the configurations with our hooks: of the user and of this project.
fn places(agent: Agent, homes: &Homes, context: &Context, problems: &mut Vec<Problem>) -> Vec<ConfigPlace> {
    let mut places: Vec<ConfigPlace> = Vec::new();
    for whose in wheres(context) {
        let Some(setup) = agent.setup(&whose, homes, &Caller::default()) else { continue };
        let is_the_projects = matches!(whose, Whose::Project(_));
        for config in &setup.configs {
            let read = files::read(&config.path).map_err(|error| error.to_string());
            let parsed = read.and_then(|text| Config::parse(&text.unwrap_or_default(), config.format));
            match parsed {
                Ok(parsed) => {
                    let ours = Pieces { all: &config.pieces, agent }.our_commands(&parsed);
                    places.push(ConfigPlace { config: config.path.clone(), ours, is_the_projects });
                    problems.extend(switched_off(agent, &parsed.value(), &config.path));
                }
                Err(why) => {
                    let what = format!("{} cannot be read: {why}", config.path.display());
                    problems.push(Problem::new(what, format!("fix it, then `piton install {}`", agent.name)));
                }
            }
        }
        for file in setup.files.iter().filter(|file| file.is_needed) {
            let text = files::read(&file.path).ok().flatten().unwrap_or_default();
            let ours = (agent.checks.commands)(&text).into_iter().filter(|ours| agent.is_own_command(&ours.command));
            places.push(ConfigPlace { config: file.path.clone(), ours: ours.collect(), is_the_projects });
        }
    }
    places.retain(|place| !place.ours.is_empty());
    places.dedup_by(|a, b| a.config == b.config);
    places
}

/// Returns a problem if the agent's switch for all hooks is off.
fn switched_off(agent: Agent, value: &Value, path: &Path) -> Option<Problem> {
    let key = (agent.checks.switched_off)(value)?;
    let what = format!("`{key}` in {} switches all hooks off", path.display());
    Some(Problem::new(what, "take it out: no hook runs with it"))
}

fn check_place(checked: &mut Checked, place: &ConfigPlace, homes: &Homes, context: &Context, args: &Doctor) {
    let (agent, name) = (checked.agent, checked.agent.name);
    let event = agent.prompt_event();
    let Some(hook) = place.ours.iter().find(|hook| hook.event == event) else {
        let what = format!("{} has no hook for {event}", place.config.display());
        checked.problems.push(Problem::new(what, format!("`piton install {name}` puts it in")));
        return;
    };
    let missing = missing_ends(agent, place);
    match (why_no_ends(agent, place, homes, context), missing.first()) {
        (Some(why), _) => checked.notes.push(format!("ends of turns are not reported: {why}")),
        (None, Some(missing)) => {
            checked.notes.push(format!("some ends of turns are not reported: `piton install {name}` adds {missing}"));
        }
        (None, None) => {}
    }
    let mut programs: Vec<_> = place.ours.iter().filter_map(|hook| shell::program(&hook.command)).collect();
    programs.sort();
    programs.dedup();
    let is_gone = programs.iter().any(|program| !Path::new(program).is_file());
    let is_foreign = place.is_the_projects && !programs.iter().all(|program| is_this_program(program));
    // The author of the project may have named any program here: the check must not run it.
    let stale = programs.iter().filter(|program| !is_foreign || !Path::new(program).is_file());
    if let Some(why) = stale.filter_map(|program| why_stale(program)).next() {
        let what = format!("{} names {why}", place.config.display());
        let hint = format!("`piton install {name}` puts the path right, `piton uninstall {name}` takes the hooks out");
        checked.problems.push(Problem::new(what, hint));
    }
    if is_gone {
        checked.has_fired = Some(false);
    } else if is_foreign {
        checked.notes.push(format!("{} names another piton, which is not tried", place.config.display()));
    } else if !args.no_fire {
        let fired = fire::fire(agent, &hook.command);
        checked.has_fired = Some(fired.is_ok() && checked.has_fired != Some(false));
        match fired {
            Ok(elapsed) => checked.notes.push(format!("fires ({} ms)", elapsed.as_millis())),
            Err(why) => {
                let what = format!("the hook `{}` does not work: {why}", hook.command);
                checked.problems.push(Problem::new(what, format!("try `piton install {name}` with this piton")));
            }
        }
    }
    let home = homes.of(agent).unwrap_or(Path::new(""));
    let input = TrustInput { home, config: &place.config, ours: &place.ours, dir: &context.dir, env: &Context::text };
    match (agent.checks.trust)(&input) {
        Trust::Yes => checked.is_trusted = Some(checked.is_trusted != Some(false)),
        Trust::No(what, hint) => {
            checked.is_trusted = Some(false);
            checked.problems.push(Problem::new(what, hint));
        }
        Trust::Unknown => checked.notes.push("asks in each folder whether it is trusted".to_owned()),
    }
}

/// An agent that is hooked up and does not report the ends of turns: they end at the next prompt.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NoEnds {
    /// name of the agent
    pub(super) agent: &'static str,
    /// reason, and what to do about it
    pub(super) why: String,
}

/// Returns the agents that are hooked up and do not report the ends of turns. Fires no hook.
pub(super) fn agents_without_ends(context: &Context) -> Vec<NoEnds> {
    let Some(home) = &context.home else { return Vec::new() };
    let homes = Homes::new(home, Context::variable);
    let of = |agent: Agent| {
        let places = places(agent, &homes, context, &mut Vec::new());
        let why: Option<Vec<_>> = places.iter().map(|place| why_no_ends(agent, place, &homes, context)).collect();
        Some(NoEnds { agent: agent.name, why: why?.into_iter().next()? })
    };
    Agent::installable().filter_map(of).collect()
}

/// Returns the events that report the end of a turn and have no hook.
fn missing_ends(agent: Agent, place: &ConfigPlace) -> Vec<&'static str> {
    agent.end_events().filter(|end| !place.ours.iter().any(|hook| hook.event == *end)).collect()
}

/// Returns the reason why the hooks of one configuration do not report the ends of turns.
fn why_no_ends(agent: Agent, place: &ConfigPlace, homes: &Homes, context: &Context) -> Option<String> {
    let name = agent.name;
    let (all, missing) = (agent.end_events().count(), missing_ends(agent, place));
    match missing.first() {
        _ if all == 0 => return Some(format!("{name} has no event for them")),
        Some(first) if missing.len() == all => return Some(format!("`piton install {name}` adds {first}")),
        _ => {}
    }
    let is_end = |hook: &&Ours| agent.end_events().any(|end| end == hook.event);
    let ours: Vec<_> = place.ours.iter().filter(is_end).cloned().collect();
    let home = homes.of(agent).unwrap_or(Path::new(""));
    let input = TrustInput { home, config: &place.config, ours: &ours, dir: &context.dir, env: &Context::text };
    match (agent.checks.trust)(&input) {
        Trust::No(_, hint) => Some(format!("they wait for approval: {hint}")),
        Trust::Yes | Trust::Unknown => None,
    }
}

fn name_of<S: serde::Serializer>(agent: &Agent, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(agent.name)
}

fn as_text(problems: &[Problem], agents: &[Checked]) -> String {
    let own =
        agents.iter().flat_map(|checked| checked.problems.iter().map(|problem| (Some(checked.agent.name), problem)));
    let all: Vec<_> = problems.iter().map(|problem| (None, problem)).chain(own).collect();
    let mut lines = Vec::new();
    if !all.is_empty() {
        lines.push(format!(
            "{} to fix:",
            if all.len() == 1 { "1 thing".to_owned() } else { format!("{} things", all.len()) }
        ));
        for (agent, problem) in &all {
            let who = agent.map(|agent| format!("{agent}: ")).unwrap_or_default();
            lines.push(format!("  {who}{}", plain(&problem.what)));
            lines.extend((!problem.hint.is_empty()).then(|| format!("    {}", plain(&problem.hint))));
        }
    }
    let shown: Vec<_> = agents.iter().filter(|checked| checked.is_found || checked.is_installed).collect();
    if !all.is_empty() && !shown.is_empty() {
        lines.push(String::new());
    }
    for checked in shown {
        let mut words = vec![if checked.is_installed { "hooked up".to_owned() } else { "not hooked up".to_owned() }];
        words.extend(checked.notes.iter().filter(|note| *note != "not hooked up").cloned());
        match &checked.last_event {
            Some(seen) => {
                words.push(format!("last event {}: {}", local(seen.time).date_and_time(), plain(&seen.what)));
            }
            None if checked.is_installed => words.push("no event seen yet".to_owned()),
            None => {}
        }
        lines.push(format!("{:9} {}", checked.agent.name, words.join(", ")));
    }
    if all.is_empty() {
        lines.push("All is well".to_owned());
    }
    lines.join("\n")
}
