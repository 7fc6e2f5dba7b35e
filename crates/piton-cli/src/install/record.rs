//! What was installed, as it is remembered in the store: `installs/<agent>.json`, and copies of what was changed.
//!
//! - I8. A copy is on the disk before the record that names it, and the record before the change that it is about. So a
//!   crash leaves at worst a record of a change that was not made, which the sum of the file tells.
//!
//! All of it may be lost: then our pieces are found by their command lines, and taken out one by one.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use piton::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::files;
use crate::agents::Agent;

/// One installation: an agent, of the user or in one project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) agent: String,
    /// The project; none for the user.
    pub(crate) project: Option<PathBuf>,
    pub(crate) files: Vec<Changed>,
}

/// One file that was changed or made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) path: PathBuf,
    /// SHA-256 of it afterwards.
    pub(crate) after: String,
    /// What it was before: nothing, or a copy. `None` where it held pieces of ours already.
    pub(crate) before: Option<Before>,
    /// Keys that were made in it, if that is known.
    pub(crate) made: Option<Vec<Vec<String>>>,
    /// Directories that were made for it, outermost first.
    pub(crate) dirs: Vec<PathBuf>,
}

/// What a file was before it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Before {
    Absent,
    /// The name of the copy.
    Copy(String),
}

/// All records of one store.
pub(crate) struct Records {
    dir: PathBuf,
    /// Nobody else installs meanwhile.
    _lock: Option<File>,
}

impl Records {
    /// Those in `dir`, to be changed by nobody else until this is dropped.
    pub(crate) fn lock(dir: &Path) -> Result<Self> {
        let path = dir.join("lock");
        files::make_dirs(dir, 0o700)?;
        let open = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = open.and_then(|file| file.lock().map(|()| file));
        let lock = lock.map_err(|error| Error::io("lock", &path, error))?;
        Ok(Self { dir: dir.to_owned(), _lock: Some(lock) })
    }

    /// Those in `dir`, to be read.
    pub(crate) fn read_only(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), _lock: None }
    }

    fn path(&self, agent: Agent, project: Option<&Path>) -> PathBuf {
        let name = agent.name();
        self.dir.join(match project {
            None => format!("{name}.json"),
            Some(dir) => format!("{name}-{}.json", &files::sum(dir.as_os_str().as_encoded_bytes())[..16]),
        })
    }

    /// One that is damaged counts as lost. One that cannot be read now may well be whole, and is not to be replaced.
    pub(crate) fn get(&self, agent: Agent, project: Option<&Path>) -> Result<Record> {
        let read = read_own(&self.path(agent, project))?;
        let known = read.and_then(|text| serde_json::from_str(&text).ok());
        Ok(known.unwrap_or_else(|| Record {
            agent: agent.name().to_owned(),
            project: project.map(Path::to_owned),
            files: Vec::new(),
        }))
    }

    pub(crate) fn put(&self, agent: Agent, record: &Record) -> Result<()> {
        let path = self.path(agent, record.project.as_deref());
        if record.files.is_empty() {
            return files::remove(&path);
        }
        let text = serde_json::to_string_pretty(record).map_err(|error| {
            Error::new(ErrorKind::Invalid, "remember what was installed").because(error.to_string())
        })?;
        files::write(&path, text.as_bytes(), 0o600)
    }

    /// How many installations there are.
    pub(crate) fn count(&self) -> usize {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "json")).count()
    }

    /// Keeps a copy of what a file was; its name.
    pub(crate) fn keep(&self, path: &Path, text: &str) -> Result<String> {
        let name = copy_name(path, text);
        files::write(&self.copy_path(&name), text.as_bytes(), 0o600)?;
        Ok(name)
    }

    /// What a copy holds, if it is whole.
    pub(crate) fn copy(&self, name: &str, of: &Path) -> Result<Option<String>> {
        Ok(read_own(&self.copy_path(name))?.filter(|text| copy_name(of, text) == name))
    }

    pub(crate) fn drop_copy(&self, name: &str) {
        let _ = files::remove(&self.copy_path(name));
    }

    pub(crate) fn copy_path(&self, name: &str) -> PathBuf {
        // Whatever a damaged record says, it is a name in this directory.
        self.dir.join("copies").join(Path::new(name).file_name().unwrap_or_default())
    }
}

/// A file that we wrote; `None` where it is missing or damaged.
fn read_own(path: &Path) -> Result<Option<String>> {
    match files::read(path) {
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
        read => read,
    }
}

/// The name of a copy says what it is of, where that was, and what it holds.
pub(crate) fn copy_name(path: &Path, text: &str) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let place = files::sum(path.as_os_str().as_encoded_bytes());
    format!("{}-{}-{file}", &place[..8], &files::sum(text.as_bytes())[..16])
}
