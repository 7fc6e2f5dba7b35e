//! Checks of a disk after a cut: everything that must exist does, and further work succeeds.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Output, Stdio};

use anyhow::{Context as _, Error, Result, ensure};
use testkit::Dice;

use super::model::{Demand, Files, History, difference, files_in};
use super::work::{Piton, SNAPSHOTS_MAX, held, ids_in, said};
use crate::measure;

/// Findings on one disk.
#[derive(Default)]
pub(super) struct Verdict {
    /// Checkpoints that were reported as taken and are missing, or have other content.
    pub(super) lost: Vec<String>,
    /// Descriptions of damage to the store, and of commands that fail.
    pub(super) broken: Vec<String>,
    /// Deviations of the user's files.
    pub(super) wrong: Vec<String>,
    /// Interrupted restores that were then completed, and that were aborted (`taken_back`).
    pub(super) finished: u64,
    pub(super) taken_back: u64,
}

impl Verdict {
    pub(super) fn is_good(&self) -> bool {
        self.lost.is_empty() && self.broken.is_empty() && self.wrong.is_empty()
    }

    pub(super) fn complaints(&self) -> impl Iterator<Item = String> {
        let kinds = [("lost", &self.lost), ("broken", &self.broken), ("files", &self.wrong)];
        kinds.into_iter().flat_map(|(kind, all)| all.iter().map(move |one| format!("{kind}: {one}")))
    }
}

pub(super) struct Check<'a> {
    pub(super) piton: &'a Piton,
    pub(super) history: &'a History,
    /// Length of the log at the cut.
    pub(super) log_bytes: u64,
    pub(super) dice: &'a mut Dice,
    pub(super) verdict: Verdict,
}

impl Check<'_> {
    /// Checks everything, then goes on working as a user would.
    pub(super) fn run(mut self) -> Result<Verdict> {
        let history = self.history;
        let demands = history.demands(self.log_bytes);
        // Until the first checkpoint is reported, the store may be incomplete: the next take creates the rest.
        let is_made = demands.iter().any(|demand| !demand.must_have.is_empty());
        if is_made {
            self.ask_git("after the cut")?;
            // Compared before any command changes something: continuing a restore may drop checkpoints above the limit.
            self.compare_contents(&demands)?;
            self.command("plain", &["status"])?;
        }
        for demand in &demands {
            self.look_at_files(demand)?;
            // If the user was about to remove the directory, it may or may not exist.
            let is_there = demand.after.files.is_some() || self.piton.root.join(demand.before.name).exists();
            if is_made && demand.before.files.is_some() && is_there {
                self.look_at_list(demand)?;
            }
        }
        for demand in &demands {
            if demand.before.files.is_some() && demand.after.files.is_some() {
                self.go_on(demand)?;
            }
        }
        let has_store = self.piton.store().join("HEAD").exists();
        if has_store && self.verdict.is_good() {
            self.ask_git("after it went on")?;
        }
        Ok(self.verdict)
    }

    fn ask_git(&mut self, when: &str) -> Result<()> {
        testkit::wait_for_maintenance(&self.piton.root);
        let output = measure::output(self.piton.git().args(["fsck", "--full", "--strict", "--no-dangling"]))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || text.contains("error") || text.contains("missing") {
            self.verdict.broken.push(format!("git fsck {when}: {}", said(&output)));
        }
        Ok(())
    }

    /// Runs a command that must succeed.
    fn command(&mut self, project: &str, args: &[&str]) -> Result<Option<Output>> {
        let output = self.piton.run(project, args, &[])?;
        if output.status.success() {
            return Ok(Some(output));
        }
        self.verdict.broken.push(format!("piton {} in {project}: {}", args.join(" "), said(&output)));
        Ok(None)
    }

    fn differs(&self, project: &str, want: Option<&Files>) -> Result<Option<String>> {
        let now = files_in(&self.piton.root.join(project))?;
        Ok(match (&now, want) {
            (None, None) => None,
            (Some(now), Some(want)) => Some(difference(now, want)).filter(|difference| !difference.is_empty()),
            (Some(_), None) => Some("the directory is there again".to_owned()),
            (None, Some(_)) => Some("the directory is gone".to_owned()),
        })
    }

    /// Checks the user's files: only a restore may have changed them.
    fn look_at_files(&mut self, demand: &Demand<'_>) -> Result<()> {
        let project = demand.before.name;
        if !demand.is_known || demand.in_restore {
            return Ok(());
        }
        if let Some(difference) = self.differs(project, demand.before.files.as_deref())? {
            self.verdict.wrong.push(format!("{project}, in no restore: {difference}"));
        }
        Ok(())
    }

    fn look_at_list(&mut self, demand: &Demand<'_>) -> Result<()> {
        let project = demand.before.name;
        let Some(list) = self.command(project, &["rollback"])? else { return Ok(()) };
        let listed = ids_in(&list)?;
        let missing = demand.must_have.iter().filter(|id| !listed.iter().any(|one| one == *id));
        self.verdict.lost.extend(missing.map(|id| format!("{project} {id} is not in its list")));
        let is_cut_short = String::from_utf8_lossy(&list.stderr).contains("cut short");
        if is_cut_short && demand.in_restore {
            return self.end_restore(demand);
        }
        if is_cut_short {
            self.verdict.wrong.push(format!("{project}: a restore is said to be cut short, and none was under way"));
        } else if demand.in_restore && demand.is_known {
            let (before, after) = (demand.before.files.as_deref(), demand.after.files.as_deref());
            if let (Some(one), Some(_)) = (self.differs(project, before)?, self.differs(project, after)?) {
                self.verdict.wrong.push(format!("{project}, half restored, and not reported: {one}"));
            }
        }
        Ok(())
    }

    /// Continues or aborts an interrupted restore.
    fn end_restore(&mut self, demand: &Demand<'_>) -> Result<()> {
        let goes_on = self.dice.roll(2) == 0;
        let (flag, want) =
            if goes_on { ("--continue", &demand.after.files) } else { ("--abort", &demand.before.files) };
        let project = demand.before.name;
        if self.command(project, &["restore", "-y", flag])?.is_none() {
            return Ok(());
        }
        *(if goes_on { &mut self.verdict.finished } else { &mut self.verdict.taken_back }) += 1;
        if demand.is_end_known
            && let Some(difference) = self.differs(project, want.as_deref())?
        {
            self.verdict.wrong.push(format!("{project} after restore {flag}: {difference}"));
        }
        Ok(())
    }

    /// Reads every file of every checkpoint that must exist, with stock git, and compares it.
    fn compare_contents(&mut self, demands: &[Demand<'_>]) -> Result<()> {
        let ids = demands.iter().flat_map(|demand| demand.must_have.iter());
        let wanted: Vec<_> = ids.flat_map(|id| held(&self.history.contents, id)).collect();
        let mut git = self.piton.git();
        git.args(["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut git = git.spawn().context("cannot start git")?;
        let mut questions = git.stdin.take().context("a pipe")?;
        let mut answers = BufReader::new(git.stdout.take().context("a pipe")?);
        let mut lost = BTreeSet::new();
        for (name, bytes) in wanted {
            let id = name.split(':').next().unwrap_or_default().to_owned();
            let asked = questions.write_all(format!("{name}\n").as_bytes()).map_err(Error::from);
            match asked.and_then(|()| read(&mut answers)) {
                Ok(Some(found)) if found == bytes => {}
                Ok(_) => drop(lost.insert(format!("{id} does not hold what it held"))),
                Err(_) => {
                    lost.insert(format!("{id} cannot be read by git"));
                    break;
                }
            }
        }
        drop(questions);
        git.wait()?;
        self.verdict.lost.extend(lost);
        Ok(())
    }

    /// Checks that the next take succeeds and that a checkpoint from before the cut can be restored.
    fn go_on(&mut self, demand: &Demand<'_>) -> Result<()> {
        let project = demand.before.name;
        if self.command(project, &["take", "-m", "after the cut"])?.is_none() {
            return Ok(());
        }
        // This take, the takes of an interrupted revert, and safety checkpoints may have dropped the oldest ones.
        let newest = demand.before.listed.iter().take(SNAPSHOTS_MAX - 6).map(String::as_str);
        let ids: Vec<_> = newest.filter(|id| demand.must_have.contains(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = ids[self.dice.roll(ids.len())];
        if self.command(project, &["restore", "-y", id])?.is_some()
            && let Some(difference) = self.differs(project, self.history.contents.get(id).map(AsRef::as_ref))?
        {
            self.verdict.wrong.push(format!("{project} restored to {id}: {difference}"));
        }
        Ok(())
    }
}

/// Reads one answer of `git cat-file --batch`. Returns `None` if git has no such object.
fn read(answers: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = String::new();
    ensure!(answers.read_line(&mut line)? > 0, "git says nothing");
    if line.trim_end().ends_with("missing") {
        return Ok(None);
    }
    let size = line.trim_end().rsplit(' ').next().unwrap_or_default().parse()?;
    let mut bytes = vec![0; size];
    answers.read_exact(&mut bytes)?;
    answers.read_exact(&mut [0])?;
    Ok(Some(bytes))
}
