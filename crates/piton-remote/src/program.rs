//! The program: arguments, one call of the library, one JSON document on stdout. `piton` words it for people.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use piton::json::unescape_path;
use piton::{Moment, Outgoing, Project, PromptText, Settings, Store};
use serde_json::{Value, json};

use crate::bucket::CredentialsFrom;
use crate::collect::{COLLECT_EVERY_SECS, CollectPolicy, collect, collect_daily};
use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::fetch::{FetchCheckpoint, fetch_checkpoint};
use crate::keys::Phrase;
use crate::local::{LocalDir, PushLock, RemoteConfig, UNKNOWN_HOST, directory_text};
use crate::machines::{ProjectChoice, list_checkpoints, machine_name, machine_name_of_host, machines};
use crate::push::{PushReport, PushRequest, push};
use crate::remote::{AddRequest, Opened, Remote};
use crate::transfer::Meter;
use crate::verify::verify;

mod keys;

use keys::{key_add, key_remove, key_rotate, keys};

/// Pause between two lines of progress.
const PROGRESS_MILLIS: u64 = 200;
/// Pause before an automatic push, in which further checkpoints may come.
const COALESCE_MILLIS: u64 = 1500;
/// Background collections that fail in a row, a day apart, before a failure is noted that may pass by itself.
const FAILED_COLLECTIONS_MAX: u32 = 3;
/// Start of the warning about a collection that failed.
const NOT_COLLECTED: &str = "garbage in the remote is not collected";
/// Added to the advice for a push that failed because of the store.
const TRIED_LATER: &str = "it is tried again later; `piton remote status` shows what is not pushed yet";

/// Checkpoints of many machines in one bucket; started by `piton`
#[derive(Debug, Parser)]
#[command(name = "piton-remote", version)]
struct Arguments {
    /// Directory that holds the store
    #[arg(long, value_name = "DIR")]
    base: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add a remote, or join it
    Add(Add),
    /// Show the remote, and what is not pushed yet
    Status,
    /// Forget the remote
    Remove {
        /// Delete everything in it, of all machines
        #[arg(long)]
        delete_data: bool,
    },
    /// List the key slots
    Keys,
    /// Make a recovery phrase for another machine or person
    KeyAdd {
        /// Name of the slot
        #[arg(long, default_value = "")]
        label: String,
    },
    /// Remove a slot; the keys it held are replaced
    KeyRemove {
        /// Id of the slot
        slot: String,
    },
    /// Replace the key for everything that is pushed from now on
    KeyRotate,
    /// Name a project, for all machines
    Name {
        /// Directory of the project
        directory: PathBuf,
        /// Name, the same on each machine
        name: String,
    },
    /// Send new checkpoints
    Push(Push),
    /// List machines and their projects
    Machines,
    /// List the checkpoints of a machine
    List(Choice),
    /// Add a checkpoint of another machine to the store
    Fetch(FetchArgs),
    /// Delete what nothing refers to
    Collect(Collect),
    /// Check everything
    Verify {
        /// Read every byte
        #[arg(long)]
        read_data: bool,
    },
    /// Send again what is missing or corrupt
    Repair {
        /// Read every byte first
        #[arg(long)]
        read_data: bool,
        /// Prompts that are sent along
        #[arg(long, default_value = "short")]
        prompt_text: String,
    },
}

#[derive(Debug, Args)]
struct Add {
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory
    url: String,
    /// Address of a server that is not the provider's own
    #[arg(long)]
    endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long)]
    region: Option<String>,
    /// Profile in ~/.aws/credentials
    #[arg(long, conflicts_with = "credentials_file")]
    profile: Option<String>,
    /// File with the credentials
    #[arg(long)]
    credentials_file: Option<PathBuf>,
    /// File with the recovery phrase, `-` for stdin
    #[arg(long)]
    phrase_file: Option<PathBuf>,
    /// Make a repository of plain git packs
    #[arg(long)]
    no_encryption: bool,
    /// Name of this machine
    #[arg(long)]
    machine: Option<String>,
    /// Upload limit in KiB per second
    #[arg(long)]
    limit_kib: Option<u64>,
    /// Never delete anything: for credentials that do not permit it
    #[arg(long)]
    no_collect: bool,
    /// Delete what nothing refers to, after --no-collect
    #[arg(long, conflicts_with = "no_collect")]
    collect: bool,
}

#[derive(Debug, Args)]
struct Push {
    /// Project to push; all if none is given
    #[arg(long)]
    directory: Vec<PathBuf>,
    /// Prompts that are sent along
    #[arg(long, default_value = "short")]
    prompt_text: String,
    /// After a take: wait for further checkpoints, and go on after failures later
    #[arg(long)]
    background: bool,
    /// Wait for another push
    #[arg(long)]
    wait: bool,
    /// Seconds for which a lease holds
    #[arg(long, default_value_t = crate::push::LEASE_SECS, hide = true)]
    lease_secs: u64,
}

#[derive(Debug, Args)]
struct Choice {
    /// Name of the machine
    #[arg(long)]
    machine: String,
    /// Project of this machine that is meant
    #[arg(long)]
    directory: PathBuf,
    /// Name, id or directory of the project on that machine
    #[arg(long)]
    project: Option<String>,
}

#[derive(Debug, Args)]
struct FetchArgs {
    #[command(flatten)]
    choice: Choice,
    /// Number, id or mark
    #[arg(long)]
    checkpoint: String,
    /// Only this path, percent-encoded where it is not printable ASCII
    #[arg(long)]
    path: Vec<String>,
    /// Size limit of the store
    #[arg(long)]
    max_total_size_mb: Option<u64>,
}

#[derive(Debug, Args)]
struct Collect {
    /// Seconds between the two runs
    #[arg(long)]
    grace_secs: Option<i64>,
    /// Seconds for which a lease holds
    #[arg(long)]
    lease_secs: Option<i64>,
    /// Days after which refs of machines that push no more are deleted
    #[arg(long)]
    retention_days: Option<u32>,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (answer, code) = match run(&arguments) {
        Ok(answer) => (answer, 0),
        Err(error) => {
            (json!({"error": {"kind": error.kind, "message": error.to_string(), "hint": error.hint}}), code_of(&error))
        }
    };
    // A caller that has gone needs no answer.
    let _ = writeln!(std::io::stdout(), "{answer}");
    ExitCode::from(code)
}

fn code_of(error: &RemoteError) -> u8 {
    match error.kind {
        RemoteErrorKind::NotFound => 4,
        RemoteErrorKind::Busy => 5,
        RemoteErrorKind::Invalid => 2,
        _ => 1,
    }
}

fn run(arguments: &Arguments) -> Result<Value> {
    let now = now();
    let store = Store::open_or_create(&arguments.base, now)?;
    let local = LocalDir::of(&store);
    let meter = Arc::new(Meter::default());
    let ended = Arc::new(AtomicBool::new(false));
    let telling = tell(Arc::clone(&meter), Arc::clone(&ended));
    let answer = answer(&arguments.verb, &store, &local, now, &meter);
    ended.store(true, Ordering::Relaxed);
    if let Some(telling) = telling {
        telling.thread().unpark();
        let _ = telling.join();
    }
    for notice in local.notices() {
        let _ = writeln!(std::io::stderr(), "{}", json!({"warning": notice}));
    }
    answer
}

fn answer(verb: &Verb, store: &Store, local: &LocalDir, now: Moment, meter: &Meter) -> Result<Value> {
    match verb {
        Verb::Add(add) => added(local, add),
        Verb::Status => status(store, local),
        Verb::Remove { delete_data } => remove(local, *delete_data),
        Verb::Keys => keys(local),
        Verb::KeyAdd { label } => key_add(local, label),
        Verb::KeyRemove { slot } => key_remove(local, slot),
        Verb::KeyRotate => key_rotate(local),
        Verb::Name { directory, name } => name_project(local, directory, name),
        Verb::Push(args) => pushed(store, local, args, meter),
        Verb::Machines => Ok(json!(machines(&Remote::open(local)?)?)),
        Verb::List(choice) => {
            let remote = Remote::open(local)?;
            Ok(json!(list_checkpoints(&remote, &choice.machine, &choice_of(choice, store)?)?))
        }
        Verb::Fetch(args) => fetched(store, local, args, now, meter),
        Verb::Collect(args) => {
            let default = CollectPolicy::default();
            let policy = CollectPolicy {
                grace_secs: args.grace_secs.unwrap_or(default.grace_secs),
                lease_secs: args.lease_secs.unwrap_or(default.lease_secs),
                retention_days: args.retention_days.unwrap_or(default.retention_days),
            };
            Ok(json!(collect(&Remote::open(local)?, policy)?))
        }
        Verb::Verify { read_data } => Ok(json!(verify(&Remote::open(local)?, *read_data, meter)?)),
        Verb::Repair { read_data, prompt_text } => repaired(store, local, (*read_data, prompt_text), now, meter),
    }
}

/// Prints progress until the work has ended.
fn tell(meter: Arc<Meter>, ended: Arc<AtomicBool>) -> Option<std::thread::JoinHandle<()>> {
    let work = move || {
        let mut last = 0;
        while !ended.load(Ordering::Relaxed) {
            let (done, total) = (meter.done.load(Ordering::Relaxed), meter.total.load(Ordering::Relaxed));
            if done + total != last {
                last = done + total;
                let _ = writeln!(std::io::stderr(), "{}", json!({"done": done, "total": total}));
            }
            std::thread::park_timeout(Duration::from_millis(PROGRESS_MILLIS));
        }
    };
    std::thread::Builder::new().spawn(work).ok()
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos(), offset_secs: 0 }
}

/// Returns the name of this host. On macOS, the domain is left out: it is that of the network.
fn host() -> String {
    let without_domain = |name: String| match name.split_once('.') {
        Some((first, _)) if cfg!(target_os = "macos") => first.to_owned(),
        _ => name,
    };
    let named = std::env::var("PITON_MACHINE").ok().or_else(|| piton::host_name().map(without_domain));
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| UNKNOWN_HOST.to_owned())
}

fn added(local: &LocalDir, add: &Add) -> Result<Value> {
    let credentials = match (&add.profile, &add.credentials_file) {
        (Some(profile), _) => Some(CredentialsFrom::Profile(profile.clone())),
        (None, Some(file)) => Some(CredentialsFrom::File(file.clone())),
        (None, None) => None,
    };
    let phrase = add.phrase_file.as_deref().map(read_phrase).transpose()?;
    let request = AddRequest {
        url: add.url.clone(),
        endpoint: add.endpoint.clone(),
        region: add.region.clone(),
        credentials,
        phrase,
        is_encrypted: !add.no_encryption,
        machine: add.machine.as_deref().map(machine_name).transpose()?,
        default_machine: machine_name_of_host(&host()),
        host: host(),
        limit_kib: add.limit_kib,
        collects: (add.collect || add.no_collect).then_some(add.collect),
    };
    let _held = local.lock()?;
    let (remote, opened) = Remote::add(local, request)?;
    let (created, phrase) = match opened {
        Opened::Created(phrase) => (true, phrase),
        Opened::Joined => (false, None),
    };
    let config = remote.config();
    Ok(json!({
        "url": config.location.url, "machine": config.machine, "encrypted": config.is_encrypted,
        "created": created, "phrase": phrase.as_ref().map(Phrase::words),
    }))
}

fn read_phrase(file: &Path) -> Result<Phrase> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)
    } else {
        File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| RemoteError::io("read the recovery phrase in", file, &error))?;
    Phrase::parse(&text)
}

fn status(store: &Store, local: &LocalDir) -> Result<Value> {
    let config = local.existing_config()?;
    let state = local.state();
    let mut unpushed = Vec::new();
    let outgoing = Outgoing::open(store)?;
    for project in outgoing.projects()? {
        let directory = directory_text(&project.dir);
        let identity = config.project_identity(&directory, project.repository.as_deref());
        // A push says that a project cannot be read; the state of the others, and of the remote, is shown all the same.
        let Ok(checkpoints) = outgoing.checkpoints(&project.id, PromptText::None) else { continue };
        let count = checkpoints.iter().filter(|one| !state.is_pushed(&directory, &identity, &one.id)).count();
        if count > 0 {
            unpushed.push(json!({"directory": project.dir.to_string_lossy(), "checkpoints": count}));
        }
    }
    drop(outgoing);
    let reachable = Remote::open(local).and_then(|remote| remote.check_repository());
    Ok(json!({
        "url": config.location.url, "endpoint": config.location.endpoint, "credentials": config.location.credentials,
        "machine": config.machine, "encrypted": config.is_encrypted, "collects": config.collects,
        "unpushed": unpushed, "pushed_secs": state.pushed_secs, "failure": state.failure, "retry_secs": state.retry_secs,
        "warnings": state.warnings,
        "problem": reachable.err().map(|error| json!({"kind": error.kind, "message": error.to_string(), "hint": error.hint})),
    }))
}

fn remove(local: &LocalDir, deletes_data: bool) -> Result<Value> {
    let _held = local.lock()?;
    let url = match local.existing_config() {
        Ok(config) => Some(config.location.url),
        // One that cannot be parsed is forgotten all the same.
        Err(error) if error.kind == RemoteErrorKind::Invalid && !deletes_data => None,
        Err(error) => return Err(error),
    };
    let deleted = if deletes_data { Remote::open(local)?.delete_data()? } else { 0 };
    local.remove()?;
    Ok(json!({"url": url, "deleted": deleted}))
}

fn name_project(local: &LocalDir, directory: &Path, name: &str) -> Result<Value> {
    let _held = local.lock()?;
    let mut config: RemoteConfig = local.existing_config()?;
    let directory = std::fs::canonicalize(directory).map_err(|error| RemoteError::io("find", directory, &error))?;
    config.names.insert(directory_text(&directory), name.to_owned());
    local.write_config(&config)?;
    Ok(json!({"directory": directory.to_string_lossy(), "name": name}))
}

fn push_request(args: &Push, now: Moment) -> PushRequest {
    let prompt_text = match &*args.prompt_text {
        "none" => PromptText::None,
        "full" => PromptText::Full,
        _ => PromptText::Short,
    };
    let directories =
        args.directory.iter().map(|dir| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone())).collect();
    PushRequest {
        directories,
        prompt_text,
        now_secs: now.secs,
        host: host(),
        lease_secs: args.lease_secs,
        avoid: Default::default(),
        again: Default::default(),
    }
}

fn pushed(store: &Store, local: &LocalDir, args: &Push, meter: &Meter) -> Result<Value> {
    if args.background {
        return pushed_in_background(store, local, args, meter);
    }
    let held = if args.wait { Some(local.lock()?) } else { local.try_lock()? };
    let held = held.ok_or_else(|| {
        RemoteError::new(RemoteErrorKind::Busy, "push: another process does so").hint("`--wait` waits for it")
    })?;
    Ok(json!(push_and_note(store, local, &held, args, meter)?))
}

/// Pushes after a take. The process that starts this one passes the lock `start.lock` on as its stdin: while it is held,
/// takes start no other one. It is held until this process is about to read the store, so that no checkpoint is missed.
fn pushed_in_background(store: &Store, local: &LocalDir, args: &Push, meter: &Meter) -> Result<Value> {
    if local.state().is_waiting(now().secs) {
        return Ok(json!({"waiting": true}));
    }
    std::thread::sleep(Duration::from_millis(COALESCE_MILLIS));
    let held = local.lock()?;
    // Of anything else that stdin may be, nothing is locked here.
    let _ = std::io::stdin().as_fd().try_clone_to_owned().map(|stdin| File::from(stdin).unlock());
    let report = push_and_note(store, local, &held, args, meter)?;
    collect_if_due(local, held)?;
    Ok(json!(report))
}

/// Collects garbage, once a day and if this machine may delete. Unlocks first: a collection may take long, and no push
/// waits for it. A failure that does not pass by itself, or any failure that comes back for days, is noted for the user.
fn collect_if_due(local: &LocalDir, held: PushLock) -> Result<()> {
    let (remote, mut state, now_secs) = (Remote::open(local)?, local.state(), now().secs);
    if !remote.config().collects || now_secs.abs_diff(state.collected_secs) < COLLECT_EVERY_SECS {
        return Ok(());
    }
    // Noted before: one that fails is tried again a day later.
    state.collected_secs = now_secs;
    local.write_state(&state)?;
    drop(held);
    let failure = match collect_daily(&remote, CollectPolicy::default()) {
        Ok(report) => report.and_then(|report| report.failure),
        Err(error) => Some(error),
    };
    if failure.is_none() && local.state().failed_collections == 0 {
        return Ok(());
    }
    let _held = local.lock()?;
    let mut state = local.state();
    state.failed_collections = if failure.is_some() { state.failed_collections.saturating_add(1) } else { 0 };
    if let Some(error) = failure {
        let may_pass = matches!(error.kind, RemoteErrorKind::Unavailable | RemoteErrorKind::Clock);
        let is_told = state.warnings.iter().any(|warning| warning.starts_with(NOT_COLLECTED));
        if !is_told && (!may_pass || state.failed_collections >= FAILED_COLLECTIONS_MAX) {
            state.warnings.push(format!("{NOT_COLLECTED}: {error}"));
        }
    }
    local.write_state(&state)
}

/// Pushes, and notes a failure.
fn push_and_note(store: &Store, local: &LocalDir, held: &PushLock, args: &Push, meter: &Meter) -> Result<PushReport> {
    let request = push_request(args, now());
    let pushed = push(store, local, held, &request, meter).inspect_err(|error| {
        let mut state = local.state();
        state.note_failure(error, request.now_secs);
        // If it cannot be written either, the next push is tried at once.
        let _ = local.write_state(&state);
    });
    pushed.map_err(|error| match (error.kind, &error.hint) {
        (RemoteErrorKind::Unavailable, Some(hint)) => {
            let hint = format!("{}; {TRIED_LATER}", hint.trim_end_matches(", and try again"));
            error.hint(hint)
        }
        _ => error,
    })
}

fn choice_of(choice: &Choice, store: &Store) -> Result<ProjectChoice> {
    if let Some(name) = &choice.project {
        return Ok(ProjectChoice::Named(name.clone()));
    }
    let project = Project::around(&choice.directory, Some(store), std::env::home_dir().as_deref())?;
    let directory = directory_text(project.dir());
    Ok(ProjectChoice::Here { repository: piton::repository_identity(project.dir()), directory })
}

fn fetched(store: &Store, local: &LocalDir, args: &FetchArgs, now: Moment, meter: &Meter) -> Result<Value> {
    let remote = Remote::open(local)?;
    let project = Project::around(&args.choice.directory, Some(store), std::env::home_dir().as_deref())?;
    let bad = |path: &String| RemoteError::new(RemoteErrorKind::Invalid, format!("read the path {path}"));
    let paths: Vec<_> =
        args.path.iter().map(|path| unescape_path(path).ok_or_else(|| bad(path))).collect::<Result<_>>()?;
    let wanted = FetchCheckpoint {
        machine: &args.choice.machine,
        choice: choice_of(&args.choice, store)?,
        checkpoint: &args.checkpoint,
        paths: &paths,
    };
    let mut settings = Settings::default();
    if let Some(megabytes) = args.max_total_size_mb {
        settings.max_total_size_mb = megabytes;
    }
    Ok(json!(fetch_checkpoint(store, &project, &remote, &wanted, &settings, now, meter)?))
}

/// Sends again what is missing or corrupt in the remote, as far as this machine has it.
fn repaired(
    store: &Store,
    local: &LocalDir,
    (reads_data, prompt_text): (bool, &str),
    now: Moment,
    meter: &Meter,
) -> Result<Value> {
    let held = local.lock()?;
    let remote = Remote::open(local)?;
    let before = verify(&remote, reads_data, meter)?;
    remote.repair_repository()?;
    remote.complete_slots()?;
    remote.delete_corrupt_tombs(&remote.tombs()?)?;
    let args = Push {
        directory: Vec::new(),
        prompt_text: prompt_text.to_owned(),
        background: false,
        wait: true,
        lease_secs: crate::push::LEASE_SECS,
    };
    let mut request = push_request(&args, now);
    request.avoid.extend(before.bad.iter().cloned());
    request.again.extend(before.again.iter().cloned());
    let pushed = push(store, local, &held, &request, meter)?;
    // A new one: the push may have taken another id.
    let after = verify(&Remote::open(local)?, reads_data, meter)?;
    Ok(json!({"found": before.findings, "sent": pushed, "left": after.findings}))
}
