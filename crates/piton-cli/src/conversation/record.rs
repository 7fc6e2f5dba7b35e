//! Records of the forks that piton made: `local/forks/<digest of agent and session>.json` in the base.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use piton::{Error, Moment, Result};
use serde::{Deserialize, Serialize};

use super::{ConversationSpec, ForkDatabase, WhyNot, temporary};
use crate::edit::files;

/// A fork that piton made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ForkRecord {
    pub(crate) agent: String,
    /// Session that was forked.
    pub(crate) session: String,
    /// Turn before which the fork ends.
    pub(crate) turn: String,
    pub(crate) forked_session: String,
    pub(crate) title: String,
    /// Time at which it was made, as in RFC 3339.
    pub(crate) time: String,
    /// Directory in which the agent continues.
    pub(crate) directory: PathBuf,
    /// Configuration directory of the agent.
    pub(crate) home: PathBuf,
    /// Files of the fork; empty if the agent stores it.
    pub(crate) files: Vec<ForkedFile>,
    /// Digest of a fork that the agent stores.
    pub(crate) state: Option<String>,
}

/// A file of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForkedFile {
    pub(crate) path: PathBuf,
    /// SHA-256 of its contents, in hexadecimal digits.
    pub(crate) sum: String,
}

/// State of a fork that piton made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum ForkState {
    /// It is as piton wrote it.
    Unused,
    /// It was continued: it is the user's.
    Continued,
    /// It does not exist.
    Gone,
    /// It cannot be checked.
    Unknown,
}

impl ForkRecord {
    pub(crate) fn stamped(mut self, now: Moment) -> Self {
        self.time = now.to_string();
        self
    }

    /// Returns the state of the fork, and why it cannot be checked.
    pub(crate) fn fork_state(&self, databases: &mut ForkDatabases) -> (ForkState, Option<WhyNot>) {
        let Some(state) = &self.state else { return (self.state_of_files(), None) };
        let found = databases.of(self).and_then(|database| database.state(&self.directory, &self.forked_session));
        match found {
            Ok(None) => (ForkState::Gone, None),
            Ok(Some(found)) if found == *state => (ForkState::Unused, None),
            Ok(Some(_)) => (ForkState::Continued, None),
            Err(why) => (ForkState::Unknown, Some(why)),
        }
    }

    /// Removes the fork if it is still as it was written. Returns false if it is not.
    pub(crate) fn remove(&self, databases: &mut ForkDatabases) -> std::result::Result<bool, String> {
        let Some(state) = &self.state else { return self.remove_files().map_err(|error| error.to_string()) };
        let database = databases.of(self);
        database.and_then(|database| database.remove(&self.directory, &self.forked_session, state)).map_err(|why| why.0)
    }

    fn state_of_files(&self) -> ForkState {
        let found: Vec<_> = self.files.iter().map(|file| (fs::read(&file.path), &file.sum)).collect();
        let is_gone =
            |read: &io::Result<Vec<u8>>| read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if found.iter().all(|(read, _)| is_gone(read)) {
            return ForkState::Gone;
        }
        // A killed process may have written some of the files only.
        let is_same = |(read, sum): &(io::Result<Vec<u8>>, &String)| match read {
            Ok(bytes) => files::sum(bytes) == **sum,
            Err(_) => is_gone(read),
        };
        match found.iter().all(is_same) && !self.has_other_files() {
            true => ForkState::Unused,
            false
                if found
                    .iter()
                    .any(|(read, _)| read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound)) =>
            {
                ForkState::Unknown
            }
            false => ForkState::Continued,
        }
    }

    /// Returns the directory that holds this fork and nothing else, if there is one: it has the name of the session.
    fn own_dir(&self) -> Option<&Path> {
        let dir = self.files.first()?.path.parent()?;
        (dir.file_name()? == self.forked_session.as_str()).then_some(dir)
    }

    /// Returns true if the agent has put files of its own into the directory of the fork. Temporary files of a killed
    /// process are not the agent's.
    fn has_other_files(&self) -> bool {
        let Some(dir) = self.own_dir() else { return false };
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let others = entries.filter(|entry| !temporary::is_temporary(&entry.file_name()));
        others.map(|entry| entry.path()).any(|path| !self.files.iter().any(|file| file.path == path))
    }

    /// Removes the files of the fork if all of them are as they were written. Returns false if they are not.
    pub(crate) fn remove_files(&self) -> Result<bool> {
        match self.state_of_files() {
            ForkState::Gone => return self.remove_own_dir().map(|()| true),
            ForkState::Unused => {}
            ForkState::Continued | ForkState::Unknown => return Ok(false),
        }
        // The last file makes it a conversation: it is removed first.
        self.files.iter().rev().try_for_each(|file| files::remove(&file.path))?;
        self.remove_own_dir()?;
        Ok(true)
    }

    /// Removes the directory of the fork, and temporary files of a killed process in it. Fails if other files are there.
    pub(crate) fn remove_own_dir(&self) -> Result<()> {
        let Some(dir) = self.own_dir() else { return Ok(()) };
        temporary::sweep(dir);
        match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", dir, error)),
            _ => Ok(()),
        }
    }
}

/// The databases of agents, each opened when it is first needed: the server of an agent takes seconds to start.
pub(crate) struct ForkDatabases {
    spec_of: fn(&ForkRecord) -> Option<&'static ConversationSpec>,
    find_program: fn(&str) -> Option<PathBuf>,
    /// By agent and configuration directory.
    opened: HashMap<(String, PathBuf), std::result::Result<Box<dyn ForkDatabase>, WhyNot>>,
}

impl ForkDatabases {
    pub(crate) fn new(
        spec_of: fn(&ForkRecord) -> Option<&'static ConversationSpec>,
        find_program: fn(&str) -> Option<PathBuf>,
    ) -> Self {
        Self { spec_of, find_program, opened: HashMap::new() }
    }

    /// Returns the database that holds a fork.
    fn of(&mut self, record: &ForkRecord) -> std::result::Result<&dyn ForkDatabase, WhyNot> {
        let Some(open) = (self.spec_of)(record).and_then(|spec| spec.open_database) else {
            return Err(WhyNot::new("the agent made it, and only the agent can compare it"));
        };
        let key = (record.agent.clone(), record.home.clone());
        let opened = self.opened.entry(key).or_insert_with(|| open(&record.home, self.find_program));
        opened.as_deref().map_err(Clone::clone)
    }
}

/// The records of one base.
pub(crate) struct ForkRecords {
    dir: PathBuf,
}

impl ForkRecords {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, record: &ForkRecord) -> PathBuf {
        let name = files::sum(format!("{}\0{}", record.agent, record.forked_session).as_bytes());
        self.dir.join(format!("{}.json", &name[..16]))
    }

    /// Writes a record. It is synced on return.
    pub(crate) fn put(&self, record: &ForkRecord) -> Result<()> {
        files::make_dirs(&self.dir, 0o700)?;
        let bytes = serde_json::to_vec(record).expect("plain data");
        files::write(&self.path(record), &bytes, 0o600)
    }

    pub(crate) fn forget(&self, record: &ForkRecord) -> Result<()> {
        files::remove(&self.path(record))
    }

    /// Returns all records, newest first. Files that are not records are left out.
    pub(crate) fn all(&self) -> Vec<ForkRecord> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let paths = entries.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let read = |path: PathBuf| serde_json::from_str(&files::read(&path).ok()??).ok();
        let mut all: Vec<ForkRecord> = paths.filter_map(read).collect();
        all.sort_by(|a, b| (&b.time, &b.forked_session).cmp(&(&a.time, &a.forked_session)));
        all
    }
}
