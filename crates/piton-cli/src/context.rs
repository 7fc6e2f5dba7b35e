//! Where a command runs: the directory, the base, the settings, the time. The only place that asks the environment.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, bail};
use jiff::Zoned;
use piton::{Error, ErrorKind, Moment, Problem, Project, Settings, Store};

use crate::cli::Global;
use crate::output::Output;

/// What every command starts from.
pub(crate) struct Context {
    pub(crate) dir: PathBuf,
    pub(crate) base: PathBuf,
    pub(crate) settings: Settings,
    home: Option<PathBuf>,
}

impl Context {
    pub(crate) fn new(global: &Global, output: &Output) -> anyhow::Result<Self> {
        let home = env::home_dir().filter(|home| home.is_absolute());
        let here = env::current_dir().context("cannot find the current directory, which may have been deleted");
        let dir = match &global.dir {
            Some(dir) if dir.is_absolute() => dir.clone(),
            Some(dir) => here?.join(dir),
            None => here?,
        };
        if !dir.is_dir() {
            bail!("cannot use {}: there is no such directory", dir.display());
        }
        let base = base(global, home.as_deref())?;
        let settings = settings(global, home.as_deref(), output)?;
        Ok(Self { base: dir.join(base), dir, settings, home })
    }

    /// The time, and the local zone.
    pub(crate) fn now() -> Moment {
        let now = Zoned::now();
        Moment {
            secs: now.timestamp().as_second(),
            nanos: u32::try_from(now.timestamp().subsec_nanosecond()).unwrap_or(0),
            offset_secs: now.offset().seconds(),
        }
    }

    /// The store, made where there is none.
    pub(crate) fn store(&self, now: Moment) -> piton::Result<Store> {
        Store::open_or_create(&self.base, now)
    }

    /// The store, if there is one.
    pub(crate) fn existing_store(&self) -> piton::Result<Option<Store>> {
        Store::open_existing(&self.base)
    }

    /// The store, where only one that is there makes sense.
    pub(crate) fn store_with_checkpoints(&self) -> piton::Result<Store> {
        self.existing_store()?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "find a checkpoint")
                .because(format!("there is no store in {}", self.base.display()))
                .with_hint("`piton take` makes one and takes a checkpoint")
        })
    }

    /// The store in whatever state it is.
    pub(crate) fn store_as_it_is(&self) -> piton::Result<Store> {
        Store::open_damaged(&self.base)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "find a store").because(format!("there is none in {}", self.base.display()))
        })
    }

    /// The user's home directory.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The project that the command means.
    pub(crate) fn project(&self, store: Option<&Store>) -> piton::Result<Project> {
        Project::around(&self.dir, store, self.home.as_deref())
    }

    /// Says so if a restore of the project was cut short.
    pub(crate) fn warn_of_interrupted_restore(&self, store: &Store, project: &Project, output: &Output) {
        if let Ok(Some(intent)) = store.interrupted_restore(project.id()) {
            output.warn(&format!("a restore of this project to {} was cut short", intent.target.short()));
            output.hint("`piton restore --continue` finishes it, `piton restore --abort` goes back to before it");
        }
    }
}

fn in_hermes_home(name: &str, home: Option<&Path>) -> Option<PathBuf> {
    let hermes = env::var_os("HERMES_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    Some(hermes.or_else(|| home.map(|home| home.join(".hermes")))?.join(name))
}

fn base(global: &Global, home: Option<&Path>) -> anyhow::Result<PathBuf> {
    let named = env::var_os("PITON_BASE").filter(|base| !base.is_empty()).map(PathBuf::from);
    let base = global.base.clone().or(named).or_else(|| in_hermes_home("checkpoints", home));
    base.context("cannot find the base: there is no home directory\nhint: give it with --base or PITON_BASE")
}

/// File, then environment, then flags. A value that is wrong is an error here: a user is there to mend it.
fn settings(global: &Global, home: Option<&Path>, output: &Output) -> anyhow::Result<Settings> {
    let mut settings = Settings::default();
    let path = global.config.clone().or_else(|| in_hermes_home("config.yaml", home));
    if let Some(path) = path {
        match fs::read_to_string(&path) {
            Ok(text) => report(&settings.read_yaml(&text), &path.display().to_string(), output)?,
            Err(error) if global.config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
    for key in Settings::KEYS {
        let name = format!("PITON_{}", key.to_ascii_uppercase());
        if let Some(value) = env::var_os(&name) {
            let set = settings.set_text(key, &value.to_string_lossy());
            report(&set.err().into_iter().collect::<Vec<_>>(), &name, output)?;
        }
    }
    settings.enabled |= global.checkpoints;
    Ok(settings)
}

fn report(problems: &[Problem], source: &str, output: &Output) -> anyhow::Result<()> {
    for problem in problems {
        if problem.is_error {
            bail!("cannot use the configuration {source}: {problem}");
        }
        output.warn(&format!("{source}: {problem}"));
    }
    Ok(())
}
