//! Hermes, the checkpoint system that piton replaces, as the sequence of git processes that it runs, with git's own
//! defaults.
//!
//! Hermes' own work between the processes (counting files, checking the size of staged files, adding up the store) is
//! done here natively, which takes less time than in Hermes. Its limits on the number and size of files and on the size
//! of the store are lifted, as piton's are; the number of checkpoints stays below its limit, so that it never rewrites
//! its history.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::contestants::{Column, Contestant, Outcome, Repository};
use crate::{measure, trees};

const REF: &str = "refs/hermes/0123456789abcdef";

/// Patterns that every store excludes, in gitignore syntax.
pub(crate) const EXCLUDES: &str = "\
node_modules/\ndist/\nbuild/\ntarget/\nout/\n.next/\n.nuxt/\n\
__pycache__/\n*.pyc\n*.pyo\n.cache/\n.pytest_cache/\n.mypy_cache/\n.ruff_cache/\ncoverage/\n.coverage\n\
.venv/\nvenv/\nenv/\n.git/\n.hg/\n.svn/\n.worktrees/\n\
*.so\n*.dylib\n*.dll\n*.o\n*.a\n*.jar\n*.class\n*.exe\n*.obj\n\
*.mp4\n*.mov\n*.mkv\n*.webm\n*.zip\n*.tar\n*.tar.gz\n*.tgz\n*.7z\n*.rar\n*.iso\n\
.env\n.env.*\n.env.local\n.env.*.local\n.DS_Store\nThumbs.db\n*.log\n";

pub(crate) struct Hermes(pub(crate) Repository);

impl Contestant for Hermes {
    fn column(&self) -> Column {
        Column::Hermes
    }

    fn fresh(&mut self) -> Result<()> {
        trees::remove(&self.0.dir)
    }

    fn take(&mut self) -> Result<(Duration, Option<Outcome>)> {
        let start = Instant::now();
        let outcome = self.sequence()?;
        Ok((start.elapsed(), Some(outcome)))
    }
}

impl Hermes {
    fn sequence(&self) -> Result<Outcome> {
        let repository = &self.0;
        self.open_store()?;
        trees::count_files(&repository.tree)?;
        if repository.index.exists() {
            match self.tip()? {
                // This discards the stat data of the index: the `add` below reads every file again.
                Some(tip) => measure::run(&mut repository.git(["read-tree", &tip])).map(drop)?,
                None => fs::remove_file(&repository.index)?,
            }
        }
        measure::run(&mut repository.git(["add", "-A"]))?;
        self.look_for_oversize()?;
        let tip = self.tip()?;
        if let Some(tip) = &tip {
            let mut diff = repository.git(["diff-index", "--cached", "--quiet", tip]);
            if measure::output(&mut diff)?.status.success() {
                return Ok(Outcome::Unchanged);
            }
        } else {
            measure::run(&mut repository.git(["ls-files", "--cached"]))?;
        }
        self.commit(tip.as_deref())?;
        measure::run(&mut repository.git(["rev-list", "--count", REF]))?;
        add_up_store(&repository.dir)?;
        Ok(Outcome::Taken)
    }

    fn open_store(&self) -> Result<()> {
        let store = &self.0.dir;
        if !store.join("HEAD").exists() {
            fs::create_dir_all(store.join("indexes"))?;
            fs::create_dir_all(store.join("projects"))?;
            self.0.init()?;
            self.0.configure()?;
        }
        let record = format!("{{\"workdir\": \"{}\"}}", self.0.tree.display());
        Ok(fs::write(store.join("projects/0123456789abcdef.json"), record)?)
    }

    fn tip(&self) -> Result<Option<String>> {
        let output = measure::output(&mut self.0.git(["rev-parse", "--verify", &format!("{REF}^{{commit}}")]))?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok((output.status.success() && !id.is_empty()).then_some(id))
    }

    /// Stats every staged file, as Hermes does to drop files above its size limit.
    fn look_for_oversize(&self) -> Result<()> {
        for name in self.0.files()? {
            // A dangling symlink has no size; Hermes skips it too.
            let _ = fs::metadata(self.0.tree.join(name));
        }
        Ok(())
    }

    fn commit(&self, tip: Option<&str>) -> Result<()> {
        let tree = measure::text(&mut self.0.git(["write-tree"]))?;
        let mut commit = vec!["commit-tree", &tree];
        commit.extend(tip.into_iter().flat_map(|tip| ["-p", tip]));
        commit.extend(["-m", "bench", "--no-gpg-sign"]);
        let id = measure::text(&mut self.0.git(commit))?;
        let mut update = vec!["update-ref", REF, &id];
        update.extend(tip);
        measure::run(&mut self.0.git(update)).map(drop)
    }
}

fn add_up_store(store: &Path) -> Result<u64> {
    let mut bytes = 0;
    trees::visit(store, &mut |path, _| {
        bytes += fs::metadata(path).with_context(|| path.display().to_string())?.len();
        Ok(())
    })?;
    Ok(bytes)
}

/// Lists the newest 20 checkpoints as Hermes does: the log, then one process per checkpoint to count its changes.
/// Returns the number of checkpoints found.
pub(crate) fn list(repository: &Repository, reference: &str) -> Result<usize> {
    let log = measure::text(&mut repository.git(["log", reference, "--format=%H|%h|%aI|%s", "-n", "20"]))?;
    for line in log.lines() {
        let id = line.split('|').next().unwrap_or_default();
        measure::output(&mut repository.git(["diff", "--shortstat", &format!("{id}~1"), id]))?;
    }
    Ok(log.lines().count())
}
