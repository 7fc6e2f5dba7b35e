//! Records of installations in the store: `installs/<agent>.json`, and copies of the files that were changed.
//!
//! - I8. A copy is on the disk before the record that names it, and the record before the change that it describes. So
//!   a crash leaves at worst a record of a change that was not made, which the checksum of the file reveals.
//!
//! All of it may be lost: then our entries are found by their command lines, and removed one by one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use piton::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::agents::Agent;
use crate::edit::files;
use crate::platform;

/// One installation: of an agent, for the user or in one project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) agent: String,
    /// Root of the project; `None` for an installation for the user.
    pub(crate) project: Option<PathBuf>,
    pub(crate) files: Vec<Changed>,
    /// Path of the program that the hooks call; `None` in the record of a version that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
}

/// One file that was changed or created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) path: PathBuf,
    /// SHA-256 of the file after the change.
    pub(crate) after: String,
    /// State of the file before the change. `None` if it contained entries of ours already.
    pub(crate) before: Option<Before>,
    /// Paths of the keys that were created in it; `None` if that is not known.
    pub(crate) made: Option<Vec<Vec<String>>>,
    /// Directories that were created for it, outermost first.
    pub(crate) dirs: Vec<PathBuf>,
}

/// State of a file before it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Before {
    Absent,
    /// Name of the copy.
    Copy(String),
}

/// Record that installing turned checkpoints on in piton's own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Switched {
    pub(crate) file: Changed,
    /// The value from before; `None` if there was none.
    pub(crate) was: Option<serde_json::Value>,
    /// Keys that lead to the value.
    pub(crate) keys: Vec<String>,
}

/// File name of the record of [`Switched`]. It has no extension: `.json` files are records of agents.
const SWITCH: &str = "enabled";

/// All records of one store.
pub(crate) struct Records {
    dir: PathBuf,
    /// Excludes other installations while it is held. `None` for read-only access.
    _lock: Option<File>,
}

impl Records {
    /// Opens the records in `dir` for writing. Blocks until no other process holds the lock, which is held until this
    /// is dropped.
    pub(crate) fn lock(dir: &Path) -> Result<Self> {
        let path = dir.join("lock");
        files::make_dirs(dir, 0o700)?;
        let lock = platform::open_lock(&path).and_then(|file| file.lock().map(|()| file));
        let lock = lock.map_err(|error| Error::io("lock", &path, error))?;
        Ok(Self { dir: dir.to_owned(), _lock: Some(lock) })
    }

    /// Opens the records in `dir` for reading, without a lock.
    pub(crate) fn read_only(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), _lock: None }
    }

    fn path(&self, agent: Agent, project: Option<&Path>) -> PathBuf {
        let name = agent.name;
        self.dir.join(match project {
            None => format!("{name}.json"),
            Some(dir) => format!("{name}-{}.json", &files::sum(dir.as_os_str().as_encoded_bytes())[..16]),
        })
    }

    /// Returns the record, empty if it is missing or corrupt. Fails if it cannot be read: it may be intact, and must
    /// not be overwritten.
    pub(crate) fn get(&self, agent: Agent, project: Option<&Path>) -> Result<Record> {
        let read = read_own(&self.path(agent, project))?;
        let known = read.and_then(|text| serde_json::from_str(&text).ok());
        Ok(known.unwrap_or_else(|| Record {
            agent: agent.name.to_owned(),
            project: project.map(Path::to_owned),
            files: Vec::new(),
            program: None,
        }))
    }

    pub(crate) fn put(&self, agent: Agent, record: &Record) -> Result<()> {
        let path = self.path(agent, record.project.as_deref());
        if record.files.is_empty() {
            return files::remove(&path);
        }
        write_record(&path, record)
    }

    /// Returns the paths of the records of all installations.
    fn paths(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        paths.sort();
        paths
    }

    /// Returns the records of all installations that can be read.
    pub(crate) fn all(&self) -> Vec<Record> {
        let read = |path: &PathBuf| serde_json::from_str(&read_own(path).ok().flatten()?).ok();
        self.paths().iter().filter_map(read).collect()
    }

    /// Returns the number of installations.
    pub(crate) fn count(&self) -> usize {
        self.paths().len()
    }

    /// Returns true if there is an installation other than those of these agents in this place.
    pub(crate) fn has_others(&self, agents: &[Agent], project: Option<&Path>) -> bool {
        let own: Vec<_> = agents.iter().map(|agent| self.path(*agent, project)).collect();
        self.paths().iter().any(|path| !own.contains(path))
    }

    /// Adds directories to the records of other installations with files in them, so that they are removed with the
    /// last of these.
    pub(crate) fn hand_over(&self, dirs: &[PathBuf]) -> Result<()> {
        if dirs.is_empty() {
            return Ok(());
        }
        for path in self.paths() {
            let Some(mut record) = read_own(&path)?.and_then(|text| serde_json::from_str::<Record>(&text).ok()) else {
                continue;
            };
            let mut is_changed = false;
            for known in &mut record.files {
                let new: Vec<_> = dirs
                    .iter()
                    .filter(|dir| known.path.starts_with(dir) && !known.dirs.contains(dir))
                    .cloned()
                    .collect();
                is_changed |= !new.is_empty();
                known.dirs = [new, std::mem::take(&mut known.dirs)].concat();
            }
            if is_changed {
                write_record(&path, &record)?;
            }
        }
        Ok(())
    }

    /// Returns the record of turning checkpoints on in piton's own configuration.
    pub(crate) fn switch(&self) -> Result<Option<Switched>> {
        Ok(read_own(&self.dir.join(SWITCH))?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Writes that record, or removes it.
    pub(crate) fn put_switch(&self, switched: Option<&Switched>) -> Result<()> {
        match switched {
            Some(switched) => write_record(&self.dir.join(SWITCH), switched),
            None => files::remove(&self.dir.join(SWITCH)),
        }
    }

    /// Saves a copy of a file's contents, and returns the name of the copy.
    pub(crate) fn keep(&self, path: &Path, text: &str) -> Result<String> {
        let name = copy_name(path, text);
        files::write(&self.copy_path(&name), text.as_bytes(), 0o600)?;
        Ok(name)
    }

    /// Returns the contents of a copy; `None` if it is missing or its checksum does not match.
    pub(crate) fn copy(&self, name: &str, of: &Path) -> Result<Option<String>> {
        Ok(read_own(&self.copy_path(name))?.filter(|text| copy_name(of, text) == name))
    }

    pub(crate) fn drop_copy(&self, name: &str) {
        let _ = files::remove(&self.copy_path(name));
    }

    pub(crate) fn copy_path(&self, name: &str) -> PathBuf {
        // A corrupt record must not name a file outside of this directory.
        self.dir.join("copies").join(Path::new(name).file_name().unwrap_or_default())
    }
}

fn write_record(path: &Path, record: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(record)
        .map_err(|error| Error::new(ErrorKind::Invalid, "remember what was installed").because(error.to_string()))?;
    files::write(path, text.as_bytes(), 0o600)
}

/// Reads a file that we wrote. Returns `None` if it is missing or corrupt.
fn read_own(path: &Path) -> Result<Option<String>> {
    match files::read(path) {
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
        read => read,
    }
}

/// Returns the name of a copy: checksums of the path and of the contents, and the file name.
pub(crate) fn copy_name(path: &Path, text: &str) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let place = files::sum(path.as_os_str().as_encoded_bytes());
    format!("{}-{}-{file}", &place[..8], &files::sum(text.as_bytes())[..16])
}
