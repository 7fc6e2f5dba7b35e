//! A planned fork, and writing it.

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use piton::{Error, Result};

use super::record::{ForkRecord, ForkRecords, ForkedFile};
use super::temporary::{self, TEMP_PREFIX};
use super::{ChatMessage, WhyNot};
use crate::edit::files;
use crate::platform;

/// A fork that was planned. Nothing is written yet.
pub(crate) struct Draft {
    /// Directory in which the agent worked; `None` if the conversation does not say.
    pub(crate) dir: Option<PathBuf>,
    /// Messages of the fork, oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// Warning for the user before the agent is started in the fork.
    pub(crate) warning: Option<String>,
    pub(crate) body: DraftBody,
}

impl Draft {
    /// Returns a fork without contents: nothing was before the prompt.
    pub(crate) fn nothing(dir: Option<PathBuf>) -> Self {
        Self { dir, messages: Vec::new(), warning: None, body: DraftBody::Nothing }
    }

    /// Returns a fork that consists of files.
    pub(crate) fn of_files(
        dir: Option<PathBuf>,
        messages: Vec<ChatMessage>,
        session: String,
        files: Vec<NewFile>,
    ) -> Self {
        Self { dir, messages, warning: None, body: DraftBody::Files { session, files, set_title: None } }
    }

    /// Returns the fork with a call that gives it its title, for an agent whose files have no place for one.
    pub(crate) fn titled_by(mut self, call: impl FnOnce() + 'static) -> Self {
        if let DraftBody::Files { set_title, .. } = &mut self.body {
            *set_title = Some(Box::new(call));
        }
        self
    }

    /// Returns a fork that the agent makes itself.
    pub(crate) fn of_call(
        dir: Option<PathBuf>,
        messages: Vec<ChatMessage>,
        make: impl FnOnce() -> std::result::Result<MadeFork, WhyNot> + 'static,
    ) -> Self {
        Self { dir, messages, warning: None, body: DraftBody::Made(Box::new(make)) }
    }
}

/// Contents of a fork.
pub(crate) enum DraftBody {
    /// There is nothing before the prompt: a new session is the same.
    Nothing,
    /// New files. The last one makes the fork visible to the agent; then it gets its title, best effort.
    Files { session: String, files: Vec<NewFile>, set_title: Option<Box<dyn FnOnce()>> },
    /// The agent makes the fork itself, when this is called.
    Made(Box<dyn FnOnce() -> std::result::Result<MadeFork, WhyNot>>),
}

/// A fork that the agent made itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MadeFork {
    pub(crate) session: String,
    /// Digest of everything in it.
    pub(crate) state: String,
}

/// A file that does not exist yet.
pub(crate) struct NewFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    /// File whose owner and mode it gets; a directory that is created for it gets those that fit.
    pub(crate) like: Metadata,
}

impl NewFile {
    fn recorded(&self) -> ForkedFile {
        ForkedFile { path: self.path.clone(), sum: files::sum(&self.bytes) }
    }
}

/// A fork that was written.
pub(crate) struct WrittenFork {
    pub(crate) session: String,
    record: ForkRecord,
}

impl WrittenFork {
    /// Writes a fork and its record. Everything is synced on return. The record comes first: a crash leaves at worst the
    /// record of a fork that does not exist.
    pub(crate) fn write(
        body: DraftBody,
        mut record: ForkRecord,
        records: &ForkRecords,
    ) -> anyhow::Result<Option<Self>> {
        match body {
            DraftBody::Nothing => Ok(None),
            DraftBody::Files { session, files, set_title } => {
                record.forked_session.clone_from(&session);
                record.files = files.iter().map(NewFile::recorded).collect();
                records.put(&record)?;
                let written = files.iter().try_for_each(write_new);
                let fork = Self { session, record };
                if let Err(error) = written {
                    // The part that was written is of no use.
                    let _ = fork.remove(records);
                    return Err(error.into());
                }
                if let Some(set_title) = set_title {
                    set_title();
                }
                Ok(Some(fork))
            }
            DraftBody::Made(make) => {
                let MadeFork { session, state } =
                    make().map_err(|why| anyhow::anyhow!("cannot fork the conversation: {}", why.0))?;
                record.forked_session.clone_from(&session);
                record.state = Some(state);
                records.put(&record)?;
                Ok(Some(Self { session, record }))
            }
        }
    }

    /// Removes the files of the fork again, because what should have followed failed. A fork that the agent made itself
    /// stays, and is listed.
    pub(crate) fn remove(&self, records: &ForkRecords) -> Result<()> {
        if self.record.state.is_none() && self.record.remove_files()? {
            records.forget(&self.record)?;
        }
        Ok(())
    }
}

/// Creates a file with these contents. Fails if it exists.
fn write_new(file: &NewFile) -> Result<()> {
    let path = &file.path;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mode = platform::mode(&file.like);
    files::make_dirs(dir, if mode & 0o077 == 0 { 0o700 } else { 0o755 })?;
    temporary::sweep(dir);
    let failed = |error: io::Error| Error::io("write", path, error);
    let mut temp = tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(dir).map_err(failed)?;
    temp.write_all(&file.bytes).map_err(failed)?;
    platform::set_owner_like(temp.as_file(), temp.path(), &file.like).map_err(failed)?;
    platform::set_mode(temp.as_file(), mode).map_err(failed)?;
    piton::sync_file(temp.as_file()).map_err(failed)?;
    temp.persist_noclobber(path).map_err(|error| failed(error.error))?;
    File::open(dir).and_then(|dir| piton::sync_file(&dir)).map_err(|error| Error::io("sync", dir, error))
}
