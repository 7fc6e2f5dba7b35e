//! Take, restore and undo on the file system at hand, with every byte compared.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use piton::{
    CheckpointKind, Outcome, Progress, Project, ReadData, Request, Restore, RestoreOptions, RestoreOutcome, RestoreTo,
    Settings, Store, take,
};

use super::check::Verdict::Ok as Works;
use super::check::{Checks, VerdictInWords, new_dir};
use super::tree::{self, Tree};
use crate::context::Context;
use crate::platform;

/// A project and a store of its own.
pub(super) struct TestProject {
    pub(super) store: Store,
    pub(super) project: Project,
}

/// Number of plain files, so that a restore takes long enough to be killed in its middle.
const FILES: usize = 200;

fn words(error: &piton::Error) -> String {
    error.to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err asks for")]
fn io(error: std::io::Error) -> String {
    error.to_string()
}

impl TestProject {
    /// Creates the store and opens the project.
    pub(super) fn new(root: &Path, name: &str) -> Result<Self, String> {
        let (dir, base) = (new_dir(root, &format!("{name}/project"))?, new_dir(root, &format!("{name}/base"))?);
        let store = Store::open_or_create(&base, Context::now()).map_err(|error| words(&error))?;
        let project = Project::at(&dir, None).map_err(|error| words(&error))?;
        Ok(Self { store, project })
    }

    pub(super) fn tree(&self) -> Result<Tree, String> {
        tree::read(self.project.dir())
    }

    /// Takes a checkpoint, and returns its id. Fails if files were left out.
    pub(super) fn take(&self) -> Result<String, String> {
        let request = Request::default().reason("self-test").kind(CheckpointKind::Manual);
        let (settings, progress) = (Settings::default(), Progress::default());
        let report = take(&self.store, &self.project, &request, &settings, Context::now(), &progress);
        let report = report.map_err(|error| words(&error))?;
        match report.outcome {
            Outcome::Taken(id) | Outcome::Unchanged(id) if report.skipped.is_empty() => Ok(id.to_string()),
            Outcome::Taken(_) | Outcome::Unchanged(_) => Err(format!("a file was left out: {}", report.skipped[0])),
            outcome => Err(format!("no checkpoint was taken: {outcome:?}")),
        }
    }

    pub(super) fn restore(&self, to: RestoreTo<'_>) -> Result<RestoreOutcome, String> {
        let (settings, progress) = (Settings::default(), Progress::default());
        let options = RestoreOptions::default();
        let restore = Restore::prepare(&self.store, &self.project, to, options, &settings, Context::now(), &progress);
        restore.and_then(Restore::apply).map(|report| report.outcome).map_err(|error| words(&error))
    }

    /// Fails if the files are not as they were.
    pub(super) fn compare(&self, wanted: &Tree, when: &str) -> Result<(), String> {
        match tree::difference(wanted, &self.tree()?) {
            Some(difference) => Err(format!("{when}, {difference}")),
            None => Ok(()),
        }
    }

    /// Reads everything in the store. Fails if something is damaged.
    pub(super) fn verify(&self) -> Result<(), String> {
        let report = piton::verify(&self.store, ReadData::All, &Progress::default()).map_err(|error| words(&error))?;
        if report.is_whole() { Ok(()) } else { Err(format!("the store is damaged: {}", report.findings[0].why)) }
    }
}

/// Fills a project: plain files, the given names, modes, a link, an empty directory.
pub(super) fn fill(dir: &Path, names: &[OsString]) -> Result<(), String> {
    let deep = dir.join("deep/er");
    fs::create_dir_all(&deep).and_then(|()| fs::create_dir(dir.join("empty"))).map_err(io)?;
    for at in 0..FILES {
        fs::write(deep.join(format!("{at}.txt")), format!("{at}\r\n\0").repeat(at)).map_err(io)?;
    }
    for name in names {
        fs::write(dir.join(name), name.as_encoded_bytes()).map_err(io)?;
    }
    fs::write(dir.join("run.sh"), "#!/bin/sh\n").map_err(io)?;
    // A file system without modes or links has said so.
    let _ = File::open(dir.join("run.sh")).and_then(|file| platform::set_mode(&file, 0o755));
    let _ = platform::make_link(Path::new("deep/er/1.txt"), &dir.join("link"));
    Ok(())
}

/// Changes, removes and adds, so that a restore has everything to do.
pub(super) fn wreck(dir: &Path) -> Result<(), String> {
    let deep = dir.join("deep/er");
    for at in (0..FILES).step_by(2) {
        fs::write(deep.join(format!("{at}.txt")), format!("changed {at}\n")).map_err(io)?;
    }
    for at in (1..FILES).step_by(4) {
        fs::remove_file(deep.join(format!("{at}.txt"))).map_err(io)?;
    }
    fs::remove_file(dir.join("run.sh")).and_then(|()| fs::create_dir(dir.join("run.sh"))).map_err(io)?;
    fs::write(dir.join("run.sh/inside"), "a directory now\n").map_err(io)?;
    fs::remove_dir(dir.join("empty")).and_then(|()| fs::write(dir.join("empty"), "a file now\n")).map_err(io)?;
    let _ = fs::remove_file(dir.join("link"));
    let _ = platform::make_link(Path::new("elsewhere"), &dir.join("link"));
    fs::write(dir.join("new.txt"), "new\n").map_err(io)
}

/// Runs the checks.
pub(super) fn all(root: &Path, names: &[OsString], checks: &mut Checks<'_>) {
    checks.add("take and restore", || exact(root, names));
}

fn exact(root: &Path, names: &[OsString]) -> Result<VerdictInWords, String> {
    let place = TestProject::new(root, "exact")?;
    fill(place.project.dir(), names)?;
    let before = place.tree()?;
    let id = place.take()?;
    wreck(place.project.dir())?;
    let after = place.tree()?;
    place.restore(RestoreTo::Named(&id))?;
    place.compare(&before, "after a restore")?;
    place.restore(RestoreTo::Undo)?;
    place.compare(&after, "after an undo")?;
    place.restore(RestoreTo::Redo)?;
    place.compare(&before, "after a redo")?;
    place.verify()?;
    Ok((Works, format!("{} names come back exactly, by restore, undo and redo; the store is whole", before.len())))
}
