//! The error type of the library.
//!
//! The message completes the sentence "cannot ...": `cannot write src/main.rs: permission denied`. A refusal by rule
//! (too many files, nothing changed) is a value in the verb's report, not an error.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::hint::Hint;
use crate::id::Collision;

/// Result of every fallible function of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// Kind of failure, for programs to match on. Exit codes derive from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file system operation failed.
    Io,
    /// No such checkpoint, project or record.
    NotFound,
    /// Prefix of the ids of more than one checkpoint.
    Ambiguous,
    /// The request is invalid.
    Invalid,
    /// Another process holds a lock. A retry can help.
    Busy,
    /// The store is corrupt.
    Damaged,
    /// The store or its base belongs to another user, or is not a piton store.
    NotOurs,
    /// The disk is full.
    Full,
    /// Cancelled by the caller.
    Stopped,
    /// The operation would do more than was asked for, and needs consent.
    NeedsConsent,
}

/// Cause of an error: another error, or text.
pub type Reason = Box<dyn std::error::Error + Send + Sync>;

/// Failed action, with its kind, path, cause and hint.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    action: String,
    path: Option<PathBuf>,
    hint: Option<Box<Hint>>,
    source: Option<Reason>,
}

impl Error {
    /// Returns an error that completes "cannot `action`".
    pub fn new(kind: ErrorKind, action: impl Into<String>) -> Self {
        Self { kind, action: action.into(), path: None, hint: None, source: None }
    }

    /// Returns the error for a failed system call on `path`.
    pub fn io(action: &str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
            _ => ErrorKind::Io,
        };
        let hint = match source.kind() {
            io::ErrorKind::StorageFull => Some("free some disk space or inodes, then try again"),
            io::ErrorKind::ReadOnlyFilesystem => Some("the file system is mounted read-only"),
            _ => None,
        };
        let hint = hint.map(|text| Box::new(text.into()));
        Self {
            kind,
            action: action.to_owned(),
            path: Some(path.as_ref().to_owned()),
            hint,
            source: Some(Box::new(source)),
        }
    }

    /// Returns the error for a corrupt part of the store.
    pub(crate) fn damaged(action: impl Into<String>, reason: impl Into<Reason>) -> Self {
        Self::new(ErrorKind::Damaged, action).because(reason)
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Reason>) -> Self {
        self.source = Some(reason.into());
        self
    }

    /// Sets the hint, which tells the user what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(Box::new(hint.into()));
        self
    }

    /// Sets the path.
    #[must_use]
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the hint: the one set on the error, otherwise the usual one for its kind and cause.
    pub fn hint(&self) -> Option<Hint> {
        self.hint.as_deref().cloned().or_else(|| self.usual_hint())
    }

    fn usual_hint(&self) -> Option<Hint> {
        let cause = self.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
        let is_collision = self.source.as_ref().is_some_and(|source| source.is::<Collision>());
        let text = match self.kind {
            ErrorKind::Damaged if is_collision => "remove or rename the files that were added last",
            ErrorKind::Damaged => return Some(Hint::Repair),
            ErrorKind::Busy => "try again when the other process has ended",
            ErrorKind::Full => "free some disk space, then try again",
            ErrorKind::Io => match cause? {
                io::ErrorKind::PermissionDenied => {
                    "check the owner and the permissions of it and of the directories around it"
                }
                io::ErrorKind::Unsupported => "move it to a file system that supports this, such as ext4 or xfs",
                _ => return None,
            },
            // The user cancelled it, and needs no hint.
            ErrorKind::Stopped
            | ErrorKind::NotFound
            | ErrorKind::Ambiguous
            | ErrorKind::Invalid
            | ErrorKind::NotOurs
            | ErrorKind::NeedsConsent => return None,
        };
        Some(text.into())
    }
}

/// Returns an operating system's message without the error number.
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

/// Removes the error number from an operating system's message: users search for the words.
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
            (Error::damaged("make a tree", Collision), "files that were added last"),
            (Error::new(ErrorKind::Busy, "lock the store"), "when the other process has ended"),
            (io(io::ErrorKind::PermissionDenied), "the owner and the permissions"),
            (io(io::ErrorKind::StorageFull), "inodes"),
            (io(io::ErrorKind::QuotaExceeded), "free some disk space"),
            (io(io::ErrorKind::ReadOnlyFilesystem), "read-only"),
            (Error::new(ErrorKind::Busy, "restore").with_hint("look at the list again"), "look at the list again"),
        ] {
            let hint = error.hint();
            assert!(matches!(&hint, Some(Hint::Text(text)) if text.contains(words)), "{error}: {hint:?}");
        }
        assert_eq!(Error::damaged("read the tree", "it is cut short").hint(), Some(Hint::Repair));
    }
}
