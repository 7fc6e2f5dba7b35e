//! The programs that are measured: piton, plain git, restic, filesnap and the stat walk. Hermes' sequence is in `hermes.rs`.
//!
//! Each keeps its store outside the tree, starts from an empty store on `fresh`, and reports what it found, so that a
//! run in which a contestant overlooked the change it was timed for does not count.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::hermes::EXCLUDES;
use crate::measure::{self, isolated};
use crate::trees;
use crate::workspace::workspace_root;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    Piton,
    Hermes,
    Git,
    Restic,
    Filesnap,
    Walk,
}

impl Column {
    pub(crate) const ALL: [Self; 6] = [Self::Piton, Self::Hermes, Self::Git, Self::Restic, Self::Filesnap, Self::Walk];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Piton => "piton",
            Self::Hermes => "(a) Hermes",
            Self::Git => "(b) warm git",
            Self::Restic => "(c) restic",
            Self::Filesnap => "(d) filesnap",
            Self::Walk => "(e) stat walk",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    Unchanged,
}

pub(crate) trait Contestant {
    fn column(&self) -> Column;

    /// Deletes all state. Not timed.
    fn fresh(&mut self) -> Result<()>;

    /// Takes one checkpoint and returns the time from the start of the first process to the end of the last. The
    /// outcome is `None` if a contestant does not look for changes.
    fn take(&mut self) -> Result<(Duration, Option<Outcome>)>;
}

pub(crate) struct Piton {
    pub(crate) program: PathBuf,
    pub(crate) base: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) home: PathBuf,
}

impl Piton {
    /// Returns a piton command without its default limits: the large tree has more files, and larger ones, than piton
    /// covers by default, and the other contestants cover all of them.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = isolated(&self.program, &self.home);
        for limit in ["PITON_MAX_FILES", "PITON_MAX_FILE_SIZE_MB", "PITON_MAX_TOTAL_SIZE_MB"] {
            command.env(limit, "0");
        }
        command.arg("--base").arg(&self.base).arg("-C").arg(&self.tree).args(arguments);
        command
    }

    /// Returns a piton command as an agent's hooks start it, with checkpoints on and without maintenance.
    pub(crate) fn hook_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("PITON_ENABLED", "true").env("PITON_AUTO_PRUNE", "false");
        command
    }

    /// Returns what Claude Code sends to its hook before a tool, always in the same turn.
    pub(crate) fn tool_event(&self, tool: &str) -> String {
        format!(
            r#"{{"hook_event_name":"PreToolUse","tool_name":"{tool}","tool_input":{{"file_path":"x"}},"session_id":"s","prompt_id":"p","cwd":"{}"}}"#,
            self.tree.display()
        )
    }

    pub(crate) fn take_command(&self) -> Command {
        self.command(&["take", "-m", "bench", "--json"])
    }
}

impl Contestant for Piton {
    fn column(&self) -> Column {
        Column::Piton
    }

    fn fresh(&mut self) -> Result<()> {
        trees::remove(&self.base)
    }

    fn take(&mut self) -> Result<(Duration, Option<Outcome>)> {
        let (elapsed, stdout) = measure::timed(&mut self.take_command())?;
        let answer: String = String::from_utf8_lossy(&stdout).split_whitespace().collect();
        let outcome = match answer {
            _ if answer.contains(r#""outcome":"taken""#) => Outcome::Taken,
            _ if answer.contains(r#""outcome":"unchanged""#) => Outcome::Unchanged,
            _ => bail!("piton take answered {answer:.200}"),
        };
        Ok((elapsed, Some(outcome)))
    }
}

/// A bare repository outside the tree, with its own index and an environment that excludes the user's settings.
pub(crate) struct Repository {
    pub(crate) dir: PathBuf,
    pub(crate) index: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) home: PathBuf,
}

impl Repository {
    pub(crate) fn without_repository(home: &Path) -> Command {
        let mut command = isolated("git", home);
        command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    pub(crate) fn git<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Self::without_repository(&self.home);
        command.env("GIT_DIR", &self.dir).env("GIT_WORK_TREE", &self.tree).env("GIT_INDEX_FILE", &self.index);
        command.current_dir(&self.tree).args(arguments);
        command
    }

    pub(crate) fn configure(&self) -> Result<()> {
        for (key, value) in [
            ("user.email", "bench@localhost"),
            ("user.name", "bench"),
            ("commit.gpgsign", "false"),
            ("tag.gpgSign", "false"),
            ("gc.auto", "0"),
        ] {
            measure::run(self.git(["config", key, value]).current_dir(&self.home))?;
        }
        fs::create_dir_all(self.dir.join("info"))?;
        Ok(fs::write(self.dir.join("info/exclude"), EXCLUDES)?)
    }

    pub(crate) fn init(&self) -> Result<()> {
        let mut init = Self::without_repository(&self.home);
        measure::run(init.args(["init", "--quiet", "--bare"]).arg(&self.dir)).map(drop)
    }

    /// Returns every file in the index, which is every file in scope.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let names = measure::run(&mut self.git(["ls-files", "--cached", "-z"]))?;
        let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| PathBuf::from(OsString::from_vec(name.to_vec()))).collect())
    }
}

/// Plain git with a warm index. It syncs nothing, which is git's default. It uses Hermes' exclude list, so that the
/// scope is the same; creating the repository is not timed.
pub(crate) struct WarmGit {
    pub(crate) repository: Repository,
    tip: Option<Tip>,
}

struct Tip {
    tree: String,
    commit: String,
}

pub(crate) const WARM_GIT_REF: &str = "refs/heads/bench";

impl WarmGit {
    pub(crate) fn new(repository: Repository) -> Self {
        Self { repository, tip: None }
    }

    pub(crate) fn checkout_command(&self, to: &Path) -> Command {
        let mut prefix = OsString::from("--prefix=");
        prefix.push(to);
        prefix.push("/");
        let arguments = ["checkout-index", "--all", "--force", "--quiet"].map(OsString::from);
        self.repository.git(arguments.into_iter().chain([prefix]))
    }
}

impl Contestant for WarmGit {
    fn column(&self) -> Column {
        Column::Git
    }

    fn fresh(&mut self) -> Result<()> {
        self.tip = None;
        trees::remove(&self.repository.dir)?;
        self.repository.init()?;
        self.repository.configure()
    }

    fn take(&mut self) -> Result<(Duration, Option<Outcome>)> {
        let start = Instant::now();
        measure::run(&mut self.repository.git(["add", "-A"]))?;
        let tree = measure::text(&mut self.repository.git(["write-tree"]))?;
        if self.tip.as_ref().is_some_and(|tip| tip.tree == tree) {
            return Ok((start.elapsed(), Some(Outcome::Unchanged)));
        }
        let mut arguments = vec!["commit-tree", &tree, "-m", "bench"];
        if let Some(tip) = &self.tip {
            arguments.extend(["-p", &tip.commit]);
        }
        let commit = measure::text(&mut self.repository.git(arguments))?;
        measure::run(&mut self.repository.git(["update-ref", WARM_GIT_REF, &commit]))?;
        let elapsed = start.elapsed();
        self.tip = Some(Tip { tree, commit });
        Ok((elapsed, Some(Outcome::Taken)))
    }
}

/// Restic; creating the repository is not timed.
pub(crate) struct Restic {
    pub(crate) repository: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) no_scan: bool,
}

impl Restic {
    /// Returns `None` if restic is not installed, else true if it can skip the scan that only feeds its progress bar.
    pub(crate) fn probe(home: &Path) -> Option<bool> {
        let help = measure::text(isolated("restic", home).args(["backup", "--help"])).ok()?;
        Some(help.contains("--no-scan"))
    }

    fn command(&self) -> Command {
        let mut command = isolated("restic", &self.home);
        command.env("RESTIC_PASSWORD", "bench").env("RESTIC_REPOSITORY", &self.repository);
        command.env("RESTIC_CACHE_DIR", self.home.join("restic-cache")).current_dir(&self.tree);
        command
    }
}

impl Contestant for Restic {
    fn column(&self) -> Column {
        Column::Restic
    }

    fn fresh(&mut self) -> Result<()> {
        trees::remove(&self.repository)?;
        measure::run(self.command().arg("init")).map(drop)
    }

    fn take(&mut self) -> Result<(Duration, Option<Outcome>)> {
        let mut command = self.command();
        command.args(["backup", "."]).args(self.no_scan.then_some("--no-scan"));
        let (elapsed, stdout) = measure::timed(&mut command)?;
        let summary = String::from_utf8_lossy(&stdout).into_owned();
        let line = summary.lines().find_map(|line| line.trim().strip_prefix("Files:"));
        let counts: String = line.context("restic printed no summary")?.split_whitespace().collect();
        let unchanged = counts.starts_with("0new,0changed");
        Ok((elapsed, Some(if unchanged { Outcome::Unchanged } else { Outcome::Taken })))
    }
}

/// The library filesnap, in the small program of `xtask/filesnap`.
pub(crate) struct Filesnap {
    pub(crate) program: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) home: PathBuf,
    /// Output of the previous run: the number of files and a hash of them.
    pub(crate) last: Option<Vec<u8>>,
}

impl Filesnap {
    /// Builds the program below `work`. Fails if its dependencies cannot be downloaded.
    pub(crate) fn build(work: &Path) -> Result<PathBuf> {
        eprintln!("building filesnap");
        let target = work.join("filesnap");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]);
        build.arg(workspace_root().join("xtask/filesnap/Cargo.toml")).arg("--target-dir").arg(&target);
        measure::run(&mut build)?;
        Ok(target.join("release/bench-filesnap"))
    }
}

impl Contestant for Filesnap {
    fn column(&self) -> Column {
        Column::Filesnap
    }

    fn fresh(&mut self) -> Result<()> {
        self.last = None;
        trees::remove(&self.data)
    }

    fn take(&mut self) -> Result<(Duration, Option<Outcome>)> {
        let mut command = isolated(&self.program, &self.home);
        let (elapsed, stdout) = measure::timed(command.arg(&self.data).arg(&self.tree))?;
        let is_same = self.last.as_ref() == Some(&stdout);
        self.last = Some(stdout);
        Ok((elapsed, Some(if is_same { Outcome::Unchanged } else { Outcome::Taken })))
    }
}

/// This program, run again as `statwalk`.
pub(crate) struct Walk {
    pub(crate) program: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) home: PathBuf,
}

impl Contestant for Walk {
    fn column(&self) -> Column {
        Column::Walk
    }

    fn fresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn take(&mut self) -> Result<(Duration, Option<Outcome>)> {
        let mut command = isolated(&self.program, &self.home);
        let (elapsed, _) = measure::timed(command.arg("statwalk").arg(&self.tree))?;
        Ok((elapsed, None))
    }
}
