//! Expected state after a cut: recorded step by step during the work, and looked up by the position of the cut.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};

/// Every entry below a directory, by path: kind and permission bits, and bytes or link target.
pub(super) type Files = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

/// State of one project at the end of a step.
#[derive(Clone)]
pub(super) struct ProjectThen {
    pub(super) name: &'static str,
    /// Entries of its directory; `None` if the directory does not exist.
    pub(super) files: Option<Rc<Files>>,
    /// True if the files were synced: then only the file system and piton are responsible for keeping them.
    pub(super) is_synced: bool,
    /// The ids of its checkpoints, newest first.
    pub(super) listed: Vec<String>,
}

/// Effect of a step on the files of a project.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touches {
    Nothing,
    /// The user edits this project: during the step its state is unknown.
    Edits(&'static str),
    /// The project is being restored: its files are all as before or all as after, or the restore is reported as
    /// interrupted.
    Restores(&'static str),
    /// Like `Restores`, for some of its files.
    RestoresSome(&'static str),
}

impl Touches {
    /// Returns the project whose files the step changes.
    pub(super) fn project(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Edits(project) | Self::Restores(project) | Self::RestoresSome(project) => Some(project),
        }
    }

    pub(super) fn is_restore(self) -> bool {
        matches!(self, Self::Restores(_) | Self::RestoresSome(_))
    }
}

/// One action of the user or of a piton process.
pub(super) struct Step {
    pub(super) what: String,
    pub(super) touches: Touches,
    /// Length of the log of writes when the step had ended: by then it was acknowledged.
    pub(super) log_end: u64,
    pub(super) then: Vec<ProjectThen>,
}

/// Everything that was done on one disk.
#[derive(Default)]
pub(super) struct History {
    /// The first step is the initial state.
    pub(super) steps: Vec<Step>,
    /// Files of the project at each checkpoint, by checkpoint id.
    pub(super) contents: HashMap<String, Rc<Files>>,
}

/// Expected state of one project after a cut.
pub(super) struct Demand<'a> {
    pub(super) before: &'a ProjectThen,
    pub(super) after: &'a ProjectThen,
    /// True if its files are known: they were synced and were not being edited.
    pub(super) is_known: bool,
    pub(super) in_restore: bool,
    /// True if the files after completing or aborting that restore are known: it restores all files, or the other files
    /// are known.
    pub(super) is_end_known: bool,
    /// Checkpoints that were reported as taken and that nothing may have dropped since.
    pub(super) must_have: BTreeSet<&'a str>,
}

impl History {
    /// Returns the step in progress when the log had this length; the last step if all were done.
    pub(super) fn under_way(&self, log_bytes: u64) -> usize {
        let found = self.steps.iter().position(|step| step.log_end > log_bytes);
        found.unwrap_or(self.steps.len() - 1).max(1)
    }

    /// Returns true if the step had been acknowledged by then.
    fn is_over(&self, step: usize, log_bytes: u64) -> bool {
        self.steps[step].log_end <= log_bytes
    }

    /// Returns the expected state of every project if the power fails when the log has this length.
    pub(super) fn demands(&self, log_bytes: u64) -> Vec<Demand<'_>> {
        let at = self.under_way(log_bytes);
        let (step, is_over) = (&self.steps[at], self.is_over(at, log_bytes));
        let before = if is_over { &step.then } else { &self.steps[at - 1].then };
        let mut demands = Vec::new();
        for (before, after) in before.iter().zip(&step.then) {
            let touches = if is_over { Touches::Nothing } else { step.touches };
            let is_known = before.is_synced && touches != Touches::Edits(before.name);
            let kept = before.listed.iter().filter(|id| after.listed.contains(id));
            demands.push(Demand {
                before,
                after,
                is_known,
                in_restore: touches.is_restore() && touches.project() == Some(before.name),
                is_end_known: is_known || touches == Touches::Restores(before.name),
                must_have: kept.map(String::as_str).collect(),
            });
        }
        demands
    }
}

/// Reads every entry below a directory. Returns `None` if the directory does not exist.
pub(super) fn files_in(dir: &Path) -> Result<Option<Files>> {
    let mut files = Files::new();
    if !dir.exists() {
        return Ok(None);
    }
    read_into(dir, &mut Vec::new(), &mut files).with_context(|| format!("cannot read {}", dir.display()))?;
    Ok(Some(files))
}

fn read_into(dir: &Path, path: &mut Vec<u8>, files: &mut Files) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let (entry, length) = (entry?, path.len());
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(entry.file_name().as_bytes());
        let stat = entry.path().symlink_metadata()?;
        let mode = stat.permissions().mode() & 0o7777;
        let found = if stat.is_symlink() {
            ("link".to_owned(), fs::read_link(entry.path())?.into_os_string().into_vec())
        } else if stat.is_dir() {
            read_into(&entry.path(), path, files)?;
            (format!("dir {mode:o}"), Vec::new())
        } else {
            (format!("file {mode:o}"), fs::read(entry.path())?)
        };
        files.insert(path.clone(), found);
        path.truncate(length);
    }
    Ok(())
}

/// Describes the first 5 differences; empty if there are none.
pub(super) fn difference(now: &Files, want: &Files) -> String {
    let names: BTreeSet<_> = now.keys().chain(want.keys()).collect();
    let shown = |one: Option<&(String, Vec<u8>)>| {
        one.map_or("nothing".to_owned(), |(kind, bytes)| format!("{kind} of {} bytes", bytes.len()))
    };
    let differing = names.into_iter().filter(|name| now.get(*name) != want.get(*name));
    let lines = differing.map(|name| {
        let (is, should) = (shown(now.get(name)), shown(want.get(name)));
        format!("{} is {is}, should be {should}", String::from_utf8_lossy(name))
    });
    lines.take(5).collect::<Vec<_>>().join("; ")
}
