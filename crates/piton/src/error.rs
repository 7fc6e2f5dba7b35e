//! The one error of the library.
//!
//! It completes the sentence "cannot ...": `cannot write src/main.rs: permission denied`. What piton declines to do by
//! rule (too many files, nothing changed) is a value of the verb's report and never comes here.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::id::Collision;

/// The result of everything in this library that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What sort of failure it was: what a program decides by, and where exit codes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The file system said no.
    Io,
    /// There is no such checkpoint, project or record.
    NotFound,
    /// A short id that more than one checkpoint begins with.
    Ambiguous,
    /// What was asked for makes no sense as it stands.
    Invalid,
    /// Another process holds what this one needs. Trying again can help.
    Busy,
    /// The store holds something that is not as it was written.
    Damaged,
    /// The store or its base belongs to somebody else, or is no store of ours.
    NotOurs,
    /// The disk is full.
    Full,
    /// The caller asked to stop.
    Stopped,
    /// It would do more than was asked for, and that must be agreed to.
    NeedsConsent,
}

impl ErrorKind {
    /// The word for it in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::Invalid => "invalid",
            Self::Busy => "busy",
            Self::Damaged => "damaged",
            Self::NotOurs => "not_ours",
            Self::Full => "full",
            Self::Stopped => "stopped",
            Self::NeedsConsent => "needs_consent",
        }
    }
}

/// What lies behind an error: another error, or words.
pub type Reason = Box<dyn std::error::Error + Send + Sync>;

/// What could not be done, to what, and why.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    action: String,
    path: Option<PathBuf>,
    hint: Option<String>,
    source: Option<Reason>,
}

impl Error {
    /// An error that completes "cannot `action`".
    pub fn new(kind: ErrorKind, action: impl Into<String>) -> Self {
        Self { kind, action: action.into(), path: None, hint: None, source: None }
    }

    /// A failed system call on `path`.
    pub fn io(action: &str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
            _ => ErrorKind::Io,
        };
        let hint = match source.kind() {
            io::ErrorKind::StorageFull => Some("free some disk space or inodes, then try again".to_owned()),
            io::ErrorKind::ReadOnlyFilesystem => Some("the file system is mounted read-only".to_owned()),
            _ => None,
        };
        Self {
            kind,
            action: action.to_owned(),
            path: Some(path.as_ref().to_owned()),
            hint,
            source: Some(Box::new(source)),
        }
    }

    /// Something in the store that is not as it was written.
    pub(crate) fn damaged(action: impl Into<String>, reason: impl Into<Reason>) -> Self {
        Self::new(ErrorKind::Damaged, action).because(reason)
    }

    /// Says why.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Reason>) -> Self {
        self.source = Some(reason.into());
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what it was about.
    #[must_use]
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// What sort of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the next step: the one that was given with the error, else the usual one for its kind and cause.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref().or_else(|| self.usual_hint())
    }

    fn usual_hint(&self) -> Option<&'static str> {
        let cause = self.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
        let is_collision = self.source.as_ref().is_some_and(|source| source.is::<Collision>());
        match self.kind {
            ErrorKind::Damaged if is_collision => Some("remove or rename the files that were added last"),
            ErrorKind::Damaged => Some("`piton verify` shows what is damaged, `piton repair` saves what is whole"),
            ErrorKind::Busy => Some("try again when the other process has ended"),
            ErrorKind::Full => Some("free some disk space, then try again"),
            ErrorKind::Io => match cause? {
                io::ErrorKind::PermissionDenied => {
                    Some("check the owner and the permissions of it and of the directories around it")
                }
                io::ErrorKind::Unsupported => Some("move it to a file system that supports this, such as ext4 or xfs"),
                _ => None,
            },
            // The user stopped it, and knows.
            ErrorKind::Stopped
            | ErrorKind::NotFound
            | ErrorKind::Ambiguous
            | ErrorKind::Invalid
            | ErrorKind::NotOurs
            | ErrorKind::NeedsConsent => None,
        }
    }
}

/// An operating system's message as people read it: without its number.
pub(crate) fn plain_io(error: &io::Error) -> String {
    plain(&error.to_string())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.action)?;
        if let Some(path) = &self.path {
            write!(f, " {}", path.display())?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {}", plain(&source.to_string()))?;
        }
        Ok(())
    }
}

/// An operating system's message without its number: people look for words.
fn plain(message: &str) -> String {
    match message.find(" (os error ") {
        Some(at) => message[..at].to_lowercase(),
        None => message.to_owned(),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_hint_of_its_own_names_the_usual_next_step() {
        let io = |kind: io::ErrorKind| Error::io("write", "/a/file", io::Error::from(kind));
        for (error, words) in [
            (Error::damaged("read the tree", "it is cut short"), "`piton repair`"),
            (Error::damaged("make a tree", Collision), "files that were added last"),
            (Error::new(ErrorKind::Busy, "lock the store"), "when the other process has ended"),
            (io(io::ErrorKind::PermissionDenied), "the owner and the permissions"),
            (io(io::ErrorKind::StorageFull), "inodes"),
            (io(io::ErrorKind::QuotaExceeded), "free some disk space"),
            (io(io::ErrorKind::ReadOnlyFilesystem), "read-only"),
            (Error::new(ErrorKind::Busy, "restore").with_hint("look at the list again"), "look at the list again"),
        ] {
            assert!(error.hint().is_some_and(|hint| hint.contains(words)), "{error}: {:?}", error.hint());
        }
    }
}
