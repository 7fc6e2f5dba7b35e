//! Installing hooks for agents, and uninstalling them: plan, then carry out.
//!
//! The plan for all agents is made before anything is changed; one configuration that cannot be edited refuses all. The
//! plan is plain data: for each file, its text before and after. A dry run prints it and stops.
//!
//! - I1. Installing and then uninstalling restores the exact bytes, unless the file was changed in between; then only
//!   our entries are removed.
//! - I2. A file that is not ours is never overwritten or removed. Before a file is changed, a copy of it is kept.
//! - I3. Repeating an installation changes nothing.

pub(crate) mod fire;
pub(crate) mod outdated;
pub(crate) mod pieces;
pub(crate) mod programs;
pub(crate) mod record;
pub(crate) mod switch;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use piton::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use self::pieces::Pieces;
use self::record::{Before, Changed, Record, Records};
use crate::agents::Agent;
use crate::agents::setup::{ConfigFile, OwnFile, Setup, What, Whose};
use crate::edit::{self, Config, files};

/// Change of one file.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    /// The record of the change; `None` if there is none, as for piton's own configuration.
    remember: Option<Changed>,
    /// Path of the copy of the old contents.
    pub(crate) copy: Option<PathBuf>,
}

impl Change {
    /// Returns the kind of change, as a keyword.
    pub(crate) fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "made",
            (_, None) => "removed",
            _ => "changed",
        }
    }
}

/// Something that was left undone, and the reason.
#[derive(Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Left {
    /// what was left
    pub(crate) what: String,
    /// why
    pub(crate) why: String,
}

/// Changes for one agent.
#[derive(Debug)]
pub(crate) struct AgentPlan {
    pub(crate) agent: Agent,
    pub(crate) changes: Vec<Change>,
    pub(crate) left: Vec<Left>,
    /// True if hooks of ours were installed before.
    pub(crate) was_there: bool,
    /// Files whose records are dropped, whether they are removed or left in place.
    forget: Vec<PathBuf>,
}

/// Makes plans, on top of the files as changed by the plans before.
pub(crate) struct Planner<'a> {
    records: &'a Records,
    whose: Whose,
    drafts: HashMap<PathBuf, Option<String>>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(records: &'a Records, whose: Whose) -> Self {
        Self { records, whose, drafts: HashMap::new() }
    }

    fn read(&self, path: &Path) -> Result<Option<String>> {
        self.drafts.get(path).map_or_else(|| files::read(path), |draft| Ok(draft.clone()))
    }

    fn change(
        &mut self,
        path: &Path,
        before: Option<String>,
        after: Option<String>,
        remember: Option<Changed>,
    ) -> Change {
        self.drafts.insert(path.to_owned(), after.clone());
        Change { path: path.to_owned(), before, after, remember, copy: None }
    }

    pub(crate) fn install(&mut self, agent: Agent, setup: &Setup) -> Result<AgentPlan> {
        let record = self.records.get(agent, self.whose.project())?;
        let mut plan = AgentPlan { agent, changes: Vec::new(), left: Vec::new(), was_there: false, forget: Vec::new() };
        for config in &setup.configs {
            self.install_config(config, &record, &mut plan)?;
        }
        for file in &setup.files {
            self.install_file(file, &record, &mut plan)?;
        }
        Ok(plan)
    }

    fn install_config(&mut self, file: &ConfigFile, record: &Record, plan: &mut AgentPlan) -> Result<()> {
        let before = self.read(&file.path)?;
        let text = before.as_deref().unwrap_or_default();
        let failed = |why: String| refused(file, "edit", &why);
        let mut config = Config::parse(text, file.format).map_err(failed)?;
        let pieces = Pieces { all: &file.pieces, agent: plan.agent };
        let has_ours = !pieces.our_commands(&config).is_empty();
        plan.was_there |= has_ours;
        let edited = pieces.install(&mut config).map_err(failed)?;
        plan.left.extend(
            edited.left.into_iter().map(|(key, why)| Left { what: format!("`{key}` in {}", file.path.display()), why }),
        );
        if before.as_deref() == Some(config.text()) {
            return Ok(());
        }
        let known = record.files.iter().find(|known| known.path == file.path);
        let is_as_we_left_it = known.is_some_and(|known| known.after == files::sum(text.as_bytes()));
        let (earlier, made) = match known {
            Some(known) if is_as_we_left_it => {
                let made = known.made.clone().map(|made| [made, edited.made].concat());
                (known.before.clone(), made)
            }
            _ if !has_ours => (Some(before_of(&file.path, before.as_deref())), Some(edited.made)),
            known => (None, known.and_then(|known| known.made.clone())),
        };
        let after = config.text().to_owned();
        let remember = Changed {
            path: file.path.clone(),
            after: files::sum(after.as_bytes()),
            before: earlier,
            made,
            dirs: known.map(|known| known.dirs.clone()).unwrap_or_default(),
        };
        let change = self.change(&file.path, before, Some(after), Some(remember));
        plan.changes.push(change);
        Ok(())
    }

    fn install_file(&mut self, file: &OwnFile, record: &Record, plan: &mut AgentPlan) -> Result<()> {
        let before = self.read(&file.path)?;
        if before.as_deref() == Some(&file.text) {
            return Ok(());
        }
        let known = record.files.iter().find(|known| known.path == file.path);
        if before.as_deref().is_some_and(|text| !is_ours(file, text, known)) {
            if file.is_needed {
                let error =
                    Error::new(ErrorKind::Invalid, "write").with_path(&file.path).because("the file is not piton's");
                return Err(error.with_hint("move it away, then try again; nothing was changed"));
            }
            let why = "a file of that name is there, and it is not piton's, or was changed".to_owned();
            plan.left.push(Left { what: file.path.display().to_string(), why });
            return Ok(());
        }
        plan.was_there |= file.is_needed && before.is_some();
        let remember = Changed {
            path: file.path.clone(),
            after: files::sum(file.text.as_bytes()),
            before: Some(Before::Absent),
            made: None,
            dirs: known.map(|known| known.dirs.clone()).unwrap_or_default(),
        };
        let change = self.change(&file.path, before, Some(file.text.clone()), Some(remember));
        plan.changes.push(change);
        Ok(())
    }

    pub(crate) fn uninstall(&mut self, agent: Agent, setup: &Setup) -> Result<AgentPlan> {
        let record = self.records.get(agent, self.whose.project())?;
        let forget = record.files.iter().map(|known| known.path.clone()).collect();
        let mut plan = AgentPlan { agent, changes: Vec::new(), left: Vec::new(), was_there: false, forget };
        for config in &setup.configs {
            self.uninstall_config(config, &record, &mut plan)?;
        }
        for file in &setup.files {
            let Some(text) = self.read(&file.path)? else { continue };
            let known = record.files.iter().find(|known| known.path == file.path);
            if is_ours(file, &text, known) {
                let change = self.change(&file.path, Some(text), None, known.cloned());
                plan.changes.push(change);
            } else if known.is_some() {
                let why = "it was changed since it was installed".to_owned();
                plan.left.push(Left { what: file.path.display().to_string(), why });
            }
        }
        Ok(plan)
    }

    fn uninstall_config(&mut self, file: &ConfigFile, record: &Record, plan: &mut AgentPlan) -> Result<()> {
        let Some(text) = self.read(&file.path)? else { return Ok(()) };
        let known = record.files.iter().find(|known| known.path == file.path);
        let after = match known
            .filter(|known| known.after == files::sum(text.as_bytes()))
            .and_then(|known| known.before.as_ref())
        {
            Some(Before::Absent) => Some(None),
            Some(Before::Copy(name)) => self.records.copy(name, &file.path)?.map(Some),
            None => None,
        };
        let after = match after {
            Some(after) => after,
            None if !text.contains("piton") => return Ok(()),
            None => {
                let failed = |why: String| refused(file, "take piton out of", &why);
                let mut config = Config::parse(&text, file.format).map_err(failed)?;
                let made = known.and_then(|known| known.made.as_deref());
                Pieces { all: &file.pieces, agent: plan.agent }.uninstall(&mut config, made).map_err(failed)?;
                let was_absent = known.is_some_and(|known| known.before == Some(Before::Absent));
                (!(was_absent && is_bare(&config.value(), file))).then(|| config.text().to_owned())
            }
        };
        if after.as_ref() != Some(&text) {
            let change = self.change(&file.path, Some(text), after, known.cloned());
            plan.changes.push(change);
        }
        Ok(())
    }
}

/// Returns true if a file is one that we wrote and is unchanged. A file that the agent runs is recognised by its mark
/// alone: a modified one must neither be left behind nor prevent an installation.
fn is_ours(file: &OwnFile, text: &str, known: Option<&Changed>) -> bool {
    let is_unchanged = text == file.text
        || file.older.contains(&text)
        || known.is_some_and(|known| known.after == files::sum(text.as_bytes()));
    is_unchanged || text.contains(file.mark) && (file.is_needed || known.is_none())
}

/// Returns true if only the defaults are left that we added for the agent to read the file.
fn is_bare(value: &Value, file: &ConfigFile) -> bool {
    let is_default = |(key, value): (&String, &Value)| {
        file.pieces
            .iter()
            .any(|piece| piece.keys == [key.as_str()] && matches!(&piece.what, What::Default(own) if own == value))
    };
    value.is_null() || value.as_object().is_some_and(|members| members.iter().all(is_default))
}

fn before_of(path: &Path, text: Option<&str>) -> Before {
    text.map_or(Before::Absent, |text| Before::Copy(record::copy_name(path, text)))
}

fn refused(file: &ConfigFile, action: &str, why: &str) -> Error {
    let mut wanted = Value::Null;
    for piece in &file.pieces {
        match &piece.what {
            What::Item(item) => edit::put(&mut wanted, &piece.keys, json!([item])),
            What::Default(value) => edit::put(&mut wanted, &piece.keys, value.clone()),
            What::Word(word) => edit::put(&mut wanted, &piece.keys, json!([word])),
            What::Gone => {}
        }
    }
    let hint = format!("nothing was changed; fix the file and try again, or do it by hand: {wanted}");
    Error::new(ErrorKind::Invalid, action).with_path(&file.path).because(why.to_owned()).with_hint(hint)
}

/// Changes one file. Fails with `Busy` if it is not as the plan saw it.
pub(crate) fn apply(change: &Change, records: &Records, mode: u32) -> Result<()> {
    let _alone = files::lock_around(&change.path, mode)?;
    if files::read(&change.path)? != change.before {
        let error = Error::new(ErrorKind::Busy, "change").with_path(&change.path).because("it was changed meanwhile");
        return Err(error.with_hint("try again"));
    }
    match &change.after {
        Some(after) => files::write(&change.path, after.as_bytes(), mode),
        None => files::remove(&change.path),
    }
    .inspect(|_| {
        if let (Some(after), Some(Before::Copy(name))) =
            (&change.after, change.remember.as_ref().and_then(|known| known.before.as_ref()))
            && record::copy_name(&change.path, after) == *name
        {
            // The file has the contents of the copy again.
            records.drop_copy(name);
        }
    })
}

/// Carries out the plan for one agent. `program` is the path that installed hooks call; without one, the plan is to
/// uninstall.
pub(crate) fn carry_out(plan: &mut AgentPlan, records: &Records, whose: &Whose, program: Option<&str>) -> Result<()> {
    let mode = if *whose == Whose::User { 0o600 } else { 0o644 };
    let mut record = records.get(plan.agent, whose.project())?;
    let is_install = program.is_some();
    let recorded = std::mem::replace(&mut record.program, program.map(str::to_owned));
    if is_install && plan.changes.is_empty() && recorded != record.program {
        // Written by a version that did not record it.
        records.put(plan.agent, &record)?;
    }
    for change in &mut plan.changes {
        let known = record.files.iter().find(|known| known.path == change.path);
        if let Some(before) = &change.before
            && known.is_none_or(|known| known.after != files::sum(before.as_bytes()))
        {
            // The file is not as we left it: the user may want these contents again.
            change.copy = Some(records.copy_path(&records.keep(&change.path, before)?));
        }
        if is_install && let Some(remember) = &change.remember {
            record.files.retain(|known| known.path != change.path);
            let dirs = [remember.dirs.clone(), files::missing_dirs(&change.path)?].concat();
            record.files.push(Changed { dirs, ..remember.clone() });
            records.put(plan.agent, &record)?;
        }
        apply(change, records, mode)?;
    }
    if !is_install {
        let dirs = record.files.iter().filter(|known| plan.forget.contains(&known.path)).flat_map(|known| &known.dirs);
        let dirs: Vec<_> = dirs.cloned().collect();
        plan.changes
            .iter()
            .filter(|change| change.after.is_none())
            .for_each(|change| files::remove_bytecode(&change.path));
        files::remove_empty(dirs.clone());
        record.files.retain(|known| !plan.forget.contains(&known.path));
        records.put(plan.agent, &record)?;
        let left: Vec<_> = dirs.into_iter().filter(|dir| dir.is_dir()).collect();
        records.hand_over(&left)?;
    }
    Ok(())
}
