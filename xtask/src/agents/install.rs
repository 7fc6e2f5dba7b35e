//! Installs the agents at pinned versions into a cache directory, by npm and pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::agent::Agent;

/// Some agents need a newer Node than the machine may have.
const NODE: Package = Package { name: "node", version: "22.23.3", source: Source::Npm("node") };

/// A program from a package registry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) source: Source,
}

/// Registry, and name of the package there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Npm(&'static str),
    Pypi(&'static str),
}

/// Directory with everything that was installed.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn dir(&self, package: &Package) -> PathBuf {
        self.root.join(format!("{}-{}", package.name, package.version))
    }

    /// Returns true if everything that an agent needs is installed.
    pub(super) fn has(&self, agent: &dyn Agent) -> bool {
        needed(agent).iter().all(|package| self.mark(package).exists())
    }

    /// Installs an agent, and Node for those that run in it. Does nothing if both are installed.
    pub(super) fn install(&self, agent: &dyn Agent) -> Result<()> {
        needed(agent).iter().try_for_each(|package| self.add(package))
    }

    /// Returns the path of a file that is created last, so that an interrupted installation is not mistaken for a
    /// complete one.
    fn mark(&self, package: &Package) -> PathBuf {
        self.dir(package).join(".installed")
    }

    /// Returns the directories with the programs of an agent, for `PATH`.
    pub(super) fn programs(&self, agent: &dyn Agent) -> Vec<PathBuf> {
        let package = agent.package();
        match package.source {
            Source::Npm(_) => {
                vec![self.dir(&package).join("node_modules/.bin"), self.dir(&NODE).join("node_modules/node/bin")]
            }
            Source::Pypi(_) => vec![self.dir(&package).join("bin")],
        }
    }

    fn add(&self, package: &Package) -> Result<()> {
        let dir = self.dir(package);
        let mark = self.mark(package);
        if mark.exists() {
            return Ok(());
        }
        println!("installing {} {}", package.name, package.version);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        match package.source {
            Source::Npm(name) => {
                let mut npm = Command::new("npm");
                npm.arg("install").arg("--prefix").arg(&dir).current_dir(&dir);
                npm.args(["--no-save", "--no-audit", "--no-fund", "--loglevel=error"]);
                run(npm.arg(format!("{name}@{}", package.version)))?;
            }
            Source::Pypi(name) => {
                run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
                let mut pip = Command::new(dir.join("bin/pip"));
                run(pip.args(["install", "--quiet"]).arg(format!("{name}=={}", package.version)))?;
            }
        }
        fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))
    }
}

fn needed(agent: &dyn Agent) -> Vec<Package> {
    let package = agent.package();
    match package.source {
        Source::Npm(_) => vec![NODE, package],
        Source::Pypi(_) => vec![package],
    }
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = said.lines().rev().take(6).collect();
    ensure!(output.status.success(), "{program} failed: {}", said.into_iter().rev().collect::<Vec<_>>().join(" | "));
    Ok(())
}

/// Returns true if the package registries answer. Asks for the version of one small package.
pub(super) fn registries_answer() -> bool {
    let mut npm = Command::new("npm");
    npm.args(["view", "--fetch-retries=0", "--fetch-timeout=10000", "is-number", "version"]);
    npm.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    npm.status().is_ok_and(|status| status.success())
}

/// Returns the first of `names` that is not in `PATH`.
pub(super) fn missing<'a>(names: &[&'a str]) -> Option<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir: PathBuf| is_file(&dir.join(name)));
    names.iter().find(|name| !is_there(name)).copied()
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file())
}
