//! The environment of a command: directory, base, settings and time. No other module reads environment variables.

mod settings;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs};

use anyhow::Context as _;
use piton::{Error, ErrorKind, Event, Journal, Level, Moment, Project, Settings, Store, Waiting, note_killed_hooks};

use crate::columns::counted;
use crate::hints::Problem;
use crate::options::Global;
use crate::output::{Output, offset_secs, tell_of_wait};

pub(crate) use self::settings::{ConfigProblem, variable};
use self::settings::{ReadSettings, about_configuration};

/// Maximum age of a warning that is shown.
const WARNED_SECS: i64 = 24 * 60 * 60;
/// Number of losses that are shown.
const UNSAVED_MAX: usize = 5;
/// Maximum number of journal events searched for warnings.
const EVENTS_MAX: usize = 200;
const WARNINGS_MAX: usize = 5;

/// Treatment of an invalid configuration, by who is there to fix it.
#[derive(Clone, Copy)]
pub(crate) enum ConfigPolicy<'a> {
    /// An invalid value is an error: a user is there to fix it.
    Strict(&'a Output),
    /// An invalid value is as if it were not set, and the user is warned. For commands that show or restore
    /// checkpoints: other programs edit that file, too, and checkpoints must be reachable whatever they write to it.
    Warn(&'a Output),
    /// An invalid value is as if it were not set, and is one of the [`Context::config_problems`]. For commands that
    /// look for problems.
    Collect(&'a Output),
    /// Like `Collect`, for work in the background: an invalid value removes nothing.
    Background,
    /// Like `Collect`, for a hook: an invalid value never switches the protection off. The directory and the base may
    /// be unknown, and are empty then. Never fails.
    Hook,
}

impl<'a> ConfigPolicy<'a> {
    fn output(self) -> Option<&'a Output> {
        match self {
            Self::Strict(output) | Self::Warn(output) | Self::Collect(output) => Some(output),
            Self::Background | Self::Hook => None,
        }
    }
}

/// Input that all commands share.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) dir: PathBuf,
    pub(crate) base: PathBuf,
    pub(crate) settings: Settings,
    /// Path of the configuration file. The file may be missing.
    pub(crate) config: Option<PathBuf>,
    /// True if the configuration file was named on the command line.
    is_config_named: bool,
    pub(crate) home: Option<PathBuf>,
    /// Problems with the configuration, unless it has to be valid.
    pub(crate) config_problems: Vec<ConfigProblem>,
    /// Callback for the wait for another process.
    told: Option<fn(&Waiting)>,
}

impl Context {
    pub(crate) fn build(global: &Global, policy: ConfigPolicy<'_>) -> anyhow::Result<Self> {
        let home = Self::home();
        let (dir, base) = match policy {
            ConfigPolicy::Hook => places_of_hook(global, home.as_deref()),
            _ => places(global, home.as_deref())?,
        };
        let config = config_path(global, home.as_deref()).map(|path| dir.join(path));
        let read = match policy {
            ConfigPolicy::Hook => settings::read_for_hook,
            ConfigPolicy::Background => settings::read_for_pruning,
            _ => settings::read,
        };
        let ReadSettings { settings, problems: mut config_problems, unread } = read(global, config.as_deref());
        if let ConfigPolicy::Strict(output) = policy {
            refuse_errors(config_problems.drain(..), unread, output)?;
        } else {
            config_problems.extend(unread.map(|error| ConfigProblem::unread(config.as_deref(), &error)));
        }
        if let ConfigPolicy::Warn(output) = policy {
            warn_of(&config_problems, output);
        }
        let told = policy.output().and_then(told);
        let is_config_named = global.config.is_some();
        Ok(Self { dir, base, settings, config, is_config_named, home, config_problems, told })
    }

    /// Returns the path of the configuration file if it was named on the command line.
    pub(crate) fn named_config(&self) -> Option<&Path> {
        self.config.as_deref().filter(|_| self.is_config_named)
    }

    /// Returns true if the value that `source` gives for a setting is invalid and therefore not used.
    pub(crate) fn is_refused(&self, source: &str, key: &str) -> bool {
        self.config_problems.iter().any(|problem| problem.refuses_from(source, key))
    }

    /// Returns the absolute path in an environment variable. Relative paths are ignored.
    pub(crate) fn variable(name: &str) -> Option<PathBuf> {
        env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns the text of an environment variable, unless it is empty.
    pub(crate) fn text(name: &str) -> Option<String> {
        env::var(name).ok().filter(|text| !text.is_empty())
    }

    /// Returns true if an environment variable is set.
    pub(crate) fn is_set(name: &str) -> bool {
        env::var_os(name).is_some()
    }

    /// Returns the path of a program on the search path.
    pub(crate) fn on_search_path(program: impl AsRef<Path>) -> Option<PathBuf> {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|dir| dir.join(program.as_ref())).find(|path| path.is_absolute() && path.is_file())
    }

    /// Returns the path by which this program can be called from anywhere, also after an update. That is the path by
    /// which it was called, if it leads to the same file: package managers put each version into its own directory.
    pub(crate) fn program() -> anyhow::Result<PathBuf> {
        let real = env::current_exe().and_then(fs::canonicalize).context("cannot find the program file of piton")?;
        let called = env::args_os().next().map(PathBuf::from).unwrap_or_default();
        let named = if called.components().count() > 1 {
            env::current_dir().ok().map(|dir| dir.join(&called))
        } else {
            Self::on_search_path(&called)
        };
        Ok(named.filter(|path| fs::canonicalize(path).is_ok_and(|target| target == real)).unwrap_or(real))
    }

    /// Returns the user's home directory.
    pub(crate) fn home() -> Option<PathBuf> {
        env::home_dir().filter(|home| home.is_absolute())
    }

    /// Returns the current time with the local time zone.
    pub(crate) fn now() -> Moment {
        moment_of(SystemTime::now())
    }

    /// Opens the store, or creates it.
    pub(crate) fn store(&self, now: Moment) -> piton::Result<Store> {
        Store::open_or_create(&self.base, now).map(|store| self.telling(store))
    }

    /// Opens the store if it exists.
    pub(crate) fn existing_store(&self) -> piton::Result<Option<Store>> {
        Ok(Store::open_existing(&self.base)?.map(|store| self.telling(store)))
    }

    /// Opens the base if it exists, for the files in it outside the store.
    pub(crate) fn base_without_store(&self) -> piton::Result<Option<Store>> {
        Store::open_base(&self.base)
    }

    /// Opens the store. Fails with `NotFound` if there is none.
    pub(crate) fn store_with_checkpoints(&self) -> piton::Result<Store> {
        self.existing_store()?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "find a checkpoint")
                .because(format!("there is no store in {}", self.base.display()))
                .with_hint("`piton take` makes one and takes a checkpoint")
        })
    }

    /// Opens the store even if it is damaged. Fails with `NotFound` if there is none.
    pub(crate) fn store_as_it_is(&self) -> piton::Result<Store> {
        Store::open_damaged(&self.base)?.map(|store| self.telling(store)).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "find a store")
                .because(format!("there is none in {}", self.base.display()))
                .with_hint("`piton take` makes one; `--base DIR` or PITON_BASE names another place")
        })
    }

    /// Opens the store if it exists, for commands that show or remove the remains of a damaged one. Returns what is
    /// wrong with it as the second value.
    pub(crate) fn store_or_its_rest(&self) -> piton::Result<(Option<Store>, Option<Error>)> {
        match self.existing_store() {
            Err(error) if error.kind() == ErrorKind::Damaged => match self.store_as_it_is() {
                Ok(store) => Ok((Some(store), Some(error))),
                // Nothing in it is known to be piton's.
                Err(_) => Err(error),
            },
            store => Ok((store?, None)),
        }
    }

    /// Sets the callback that tells a user at a terminal which process is waited for.
    fn telling(&self, store: Store) -> Store {
        match self.told {
            Some(tell) => store.on_lock_wait(tell),
            None => store,
        }
    }

    /// Returns the journal, which records the problems of hooks and background work.
    pub(crate) fn journal(&self) -> Journal {
        journal(&self.base, self.home.as_deref())
    }

    /// Returns the project around the command's directory.
    pub(crate) fn project(&self, store: Option<&Store>) -> piton::Result<Project> {
        Project::around(&self.dir, store, self.home.as_deref())
    }

    /// Returns the problems and unprotected turns that are known from settings, base and journal.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut note = |what: &str, hint: &str| problems.push(Problem::new(what, hint));
        if !self.settings.enabled {
            note(
                "automatic checkpoints are off: agents work unprotected",
                "`piton install AGENT` hooks an agent up and turns them on",
            );
        }
        if self.base.exists() && tempfile::tempfile_in(&self.base).is_err() {
            note(
                "the base cannot be written to: no checkpoint can be taken",
                "see who owns it, and whether the disk is full",
            );
        }
        let journal = self.journal();
        let (turns, states) = (self.unprotected_turns(), journal.unprotected());
        let mut projects: Vec<_> = turns.iter().map(|turn| &turn.project).collect();
        projects.dedup();
        let is_first = |(at, one): &(usize, &&Option<PathBuf>)| !projects[..*at].contains(one);
        for (_, project) in projects.iter().enumerate().filter(is_first) {
            let own: Vec<_> = turns.iter().filter(|turn| turn.project == **project).collect();
            let dir = project.as_ref().map_or_else(String::new, |dir| format!(" in {}", dir.display()));
            let is_past = states.iter().any(|state| state.project == **project && state.is_past);
            note(
                &format!("{} ran without a checkpoint{dir}: {}", counted(own.len(), "turn"), own[0].what),
                match (is_past, own[0].level) {
                    (true, _) => "checkpoints work again there; `piton status --ack` once you have seen this",
                    (_, Level::Declined) => {
                        "work in a project to be protected; `piton status --ack` once you have seen this"
                    }
                    _ => {
                        "`piton doctor` shows what to fix, `piton take` there whether it works now; \
                         `piton status --ack` once you have seen this"
                    }
                },
            );
        }
        for event in self.unsaved().iter().take(UNSAVED_MAX) {
            note(&event.what, "nothing has a copy of it; `piton status --ack` once you have seen this");
        }
        let since = Self::now().secs - WARNED_SECS;
        // The configuration file was read by this command, so earlier warnings about it may be outdated.
        let file = self.config.as_ref().map(|path| about_configuration(&path.display().to_string()));
        let is_judged = |event: &Event| file.as_ref().is_some_and(|file| event.what.contains(file));
        let warnings = journal.recent(EVENTS_MAX).into_iter().filter(|event| event.level == Level::Warning);
        let warnings = warnings.filter(|event| !is_judged(event));
        for event in warnings.filter(|event| event.time.secs > since).take(WARNINGS_MAX) {
            note(&event.what, &format!("noted {}", crate::output::local(event.time).date_and_time()));
        }
        problems
    }

    /// Returns the turns that ran without a checkpoint and that the user has not acknowledged, newest first, each
    /// once. Records the hooks that were killed first.
    pub(crate) fn unprotected_turns(&self) -> Vec<Event> {
        if let Ok(Some(store)) = self.existing_store() {
            note_killed_hooks(&store, &self.journal());
        }
        self.journal().unprotected_turns(self.shown_since())
    }

    /// Returns what could not be saved before it was destroyed and what the user has not acknowledged, newest first.
    pub(crate) fn unsaved(&self) -> Vec<Event> {
        self.journal().unsaved(self.shown_since())
    }

    /// Returns the time since which events of the journal are shown, in seconds since 1970.
    fn shown_since(&self) -> i64 {
        let days = i64::try_from(self.settings.retention_days).unwrap_or(i64::MAX);
        if days == 0 { i64::MIN } else { Self::now().secs.saturating_sub(days.saturating_mul(24 * 60 * 60)) }
    }

    /// Warns if a restore of the project was interrupted.
    pub(crate) fn warn_of_interrupted_restore(&self, store: &Store, project: &Project, output: &Output) {
        if let Ok(Some(intent)) = store.interrupted_restore(project.id()) {
            output.warn(&format!("a restore of this project to {} was cut short", intent.target.short()));
            output.hint("`piton restore --continue` finishes it, `piton restore --abort` goes back to before it");
        }
    }
}

/// Returns a time in the local time zone. A time outside the calendar's range is clamped: a clock may say anything.
fn moment_of(time: SystemTime) -> Moment {
    let (after, before) = (time.duration_since(SystemTime::UNIX_EPOCH), SystemTime::UNIX_EPOCH.duration_since(time));
    let secs = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let (secs, nanos) = match (after, before) {
        (Ok(after), _) => (secs(after), after.subsec_nanos()),
        (Err(_), before) => (before.map_or(0, |before| -secs(before)), 0),
    };
    let (least, most) = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
    let at = jiff::Timestamp::from_second(secs.clamp(least, most)).unwrap_or_default();
    Moment { secs: at.as_second(), nanos, offset_secs: offset_secs(at) }
}

/// Returns the directory in `PWD` if the current one was deleted, with the error to report if no project is known
/// there. Fails if `PWD` does not help.
fn deleted_dir(error: &std::io::Error) -> Result<(PathBuf, Option<Error>), Error> {
    let is_gone = error.kind() == std::io::ErrorKind::NotFound;
    let deleted = Error::new(ErrorKind::Io, "find the current directory")
        .because(if is_gone { "it was deleted".to_owned() } else { error.to_string() })
        .with_hint("go to a directory that is there, or name one with `-C DIR`");
    match Context::variable("PWD").filter(|_| is_gone) {
        Some(dir) => Ok((dir, Some(deleted))),
        None => Err(deleted),
    }
}

fn not_a_directory(dir: &Path) -> Error {
    let error = Error::new(ErrorKind::Io, "use").with_path(dir);
    if dir.symlink_metadata().is_ok() {
        return error.because("it is not a directory").with_hint("`-C` takes a directory, not a file");
    }
    error.because("there is no such directory, and no checkpoint of one").with_hint(
        "`-C` takes a directory that is there, or a deleted one that has checkpoints; `piton status` lists those",
    )
}

/// Returns the default directory of the store and of the configuration.
pub(crate) fn default_dir(home: &Path) -> PathBuf {
    home.join(".hermes")
}

fn in_hermes_home(name: &str, home: Option<&Path>) -> Option<PathBuf> {
    let hermes = env::var_os("HERMES_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    Some(hermes.or_else(|| home.map(default_dir))?.join(name))
}

fn config_path(global: &Global, home: Option<&Path>) -> Option<PathBuf> {
    global.config.clone().or_else(|| in_hermes_home("config.yaml", home))
}

fn base(global: &Global, home: Option<&Path>) -> anyhow::Result<PathBuf> {
    let named = env::var_os("PITON_BASE").filter(|base| !base.is_empty()).map(PathBuf::from);
    let base = global.base.clone().or(named).or_else(|| in_hermes_home("checkpoints", home));
    base.context("cannot find the base: there is no home directory\nhint: give it with --base or PITON_BASE")
}

/// Returns the options with the directory, the base and the configuration file as absolute paths. A server must not
/// resolve them against the directory of each request: the store would be created inside the user's project.
pub(crate) fn with_absolute_paths(global: &Global) -> Global {
    let Ok(here) = env::current_dir() else { return global.clone() };
    let (home, dir) = (Context::home(), here.join(global.dir.as_deref().unwrap_or(Path::new(""))));
    let is_relative = |path: &PathBuf| path.is_relative();
    let base = base(global, home.as_deref()).ok().filter(is_relative).map(|base| dir.join(base));
    // A file in a relative $HERMES_HOME counts as named only if it exists, since a named one is passed on.
    let config = config_path(global, home.as_deref()).filter(is_relative).map(|config| dir.join(config));
    let config = config.filter(|config| global.config.is_some() || config.exists());
    Global {
        dir: global.dir.as_ref().map(|_| dir),
        base: base.or_else(|| global.base.clone()),
        config: config.or_else(|| global.config.clone()),
        ..global.clone()
    }
}

/// Returns the directory of a hook, which is empty if it is unknown, and its base, which is empty if it is unknown.
fn places_of_hook(global: &Global, home: Option<&Path>) -> (PathBuf, PathBuf) {
    let here = env::current_dir().unwrap_or_default();
    let dir = global.dir.as_ref().map_or_else(|| here.clone(), |dir| here.join(dir));
    let base = base(global, home).map(|base| dir.join(base)).unwrap_or_default();
    (dir, base)
}

/// Returns the directory of a command and its base. Fails if the directory does not exist and no checkpoint of it does.
fn places(global: &Global, home: Option<&Path>) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (dir, deleted) = match (&global.dir, env::current_dir()) {
        (Some(dir), _) if dir.is_absolute() => (dir.clone(), None),
        (named, here) => {
            let (here, deleted) = here.map_or_else(|error| deleted_dir(&error), |here| Ok((here, None)))?;
            (named.as_ref().map_or_else(|| here.clone(), |dir| here.join(dir)), deleted)
        }
    };
    let base = dir.join(base(global, home)?);
    if !dir.is_dir() {
        // The checkpoints of a deleted project can still be listed and restored.
        let store = Store::open_existing(&base).ok().flatten();
        if store.is_none_or(|store| Project::gone(&dir, &store, home).is_none()) {
            return Err(deleted.unwrap_or_else(|| not_a_directory(&dir)).into());
        }
    }
    Ok((dir, base))
}

/// Returns the journal of a base, with the fallback directories for a base that cannot be written.
fn journal(base: &Path, home: Option<&Path>) -> Journal {
    let named = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = named.or_else(|| Some(home?.join(".local/state")));
    Journal::at(base).or_in(state.map(|dir| dir.join("piton"))).or_in_shared(&env::temp_dir())
}

/// Returns the journal without reading the configuration, for a hook that has timed out: even reading that file may
/// hang.
pub(crate) fn journal_of(global: &Global) -> Journal {
    let home = Context::home();
    let (_, base) = places_of_hook(global, home.as_deref());
    journal(&base, home.as_deref())
}

/// Returns the deadline of a hook that holds before any file is opened. The environment takes precedence over the
/// configuration file.
pub(crate) fn hook_deadline_ms() -> u64 {
    let named = env::var("PITON_DEADLINE_MS").ok().and_then(|text| text.trim().parse().ok());
    named.or_else(settings::hermes_timeout_ms).unwrap_or(Settings::default().deadline_ms)
}

/// Fails at the first error in the configuration, and warns of everything before it.
fn refuse_errors(
    problems: impl Iterator<Item = ConfigProblem>,
    unread: Option<Error>,
    output: &Output,
) -> anyhow::Result<()> {
    for problem in problems {
        if problem.is_error {
            return Err(problem.into_error());
        }
        output.warn(&problem.for_user().what);
    }
    unread.map_or(Ok(()), |error| Err(error.into()))
}

fn warn_of(problems: &[ConfigProblem], output: &Output) {
    problems.iter().for_each(|problem| output.warn(&problem.for_user().what));
    if problems.iter().any(|problem| problem.is_error) {
        output.hint("what cannot be read there is as if it were not set; `piton config` shows what is in force");
    }
}

fn told(output: &Output) -> Option<fn(&Waiting)> {
    (output.is_verbose || output.shows_progress()).then_some(tell_of_wait as fn(&Waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_beyond_the_calendar_is_shown_as_its_last_day() {
        let at = |secs: u64| moment_of(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(at(1_773_635_760).secs, 1_773_635_760);
        // The year 10,000, and a time near the largest that a file system can store.
        for secs in [253_402_300_800, i64::MAX as u64 / 2] {
            assert!(at(secs).to_string().starts_with("9999-12-3"), "{}", at(secs));
        }
        let early = moment_of(SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 40));
        assert!(early.to_string().starts_with('-'), "{early}");
    }
}
