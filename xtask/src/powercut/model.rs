//! What must be there after a cut: noted step by step while the work is done, looked up by the place of the cut.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};

/// Everything below a directory: by its path, kind and permission bits, and bytes or where it leads.
pub(super) type Files = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

/// One project at the end of a step.
#[derive(Clone)]
pub(super) struct ProjectThen {
    pub(super) name: &'static str,
    /// What its directory held; `None` where there is no such directory.
    pub(super) files: Option<Rc<Files>>,
    /// Whether the file system was told to keep them: then it is on nobody but it and piton that they are there.
    pub(super) is_synced: bool,
    /// The ids of its checkpoints, newest first.
    pub(super) listed: Vec<String>,
}

/// What a step does to the files of a project.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touches {
    Nothing,
    /// The user is at work in this one: while it lasts nobody knows what is there.
    Edits(&'static str),
    /// It is being restored: all as before, or as after, or said to be cut short.
    Restores(&'static str),
    /// The same for some of its files.
    RestoresSome(&'static str),
}

impl Touches {
    /// The project whose files it changes.
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

/// One thing that was done, by the user or by a process of piton's.
pub(super) struct Step {
    pub(super) what: String,
    pub(super) touches: Touches,
    /// How long the log of writes was when it had ended: whoever waited for it was told by then.
    pub(super) log_end: u64,
    pub(super) then: Vec<ProjectThen>,
}

/// All that was done on one disk.
#[derive(Default)]
pub(super) struct History {
    /// The first one is the beginning.
    pub(super) steps: Vec<Step>,
    /// What the project held when a checkpoint was taken.
    pub(super) contents: HashMap<String, Rc<Files>>,
}

/// What one project must be like after a cut.
pub(super) struct Demand<'a> {
    pub(super) before: &'a ProjectThen,
    pub(super) after: &'a ProjectThen,
    /// Its files can be told: nobody was at work on them, and they were synced.
    pub(super) is_known: bool,
    pub(super) in_restore: bool,
    /// What it must be like when that restore is finished or taken back can be told: it has to do with all files, or the
    /// others are known.
    pub(super) is_end_known: bool,
    /// The checkpoints that were reported as taken and that nothing may have dropped since.
    pub(super) must_have: BTreeSet<&'a str>,
}

impl History {
    /// The step that was under way when the log had so many bytes; the last one, if all was done.
    pub(super) fn under_way(&self, log_bytes: u64) -> usize {
        let found = self.steps.iter().position(|step| step.log_end > log_bytes);
        found.unwrap_or(self.steps.len() - 1).max(1)
    }

    /// Whether the step had been acknowledged by then.
    fn is_over(&self, step: usize, log_bytes: u64) -> bool {
        self.steps[step].log_end <= log_bytes
    }

    /// What every project must be like if the power fails when the log has so many bytes.
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

/// Everything below a directory; nothing where there is none.
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

/// Where two differ, in words; empty where they do not.
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
