//! The error type of this crate.

use std::fmt;

/// Result with a [`RemoteError`].
pub type Result<T> = std::result::Result<T, RemoteError>;

/// Classes of errors, by what a caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemoteErrorKind {
    /// There is no remote, no such machine, checkpoint or file.
    NotFound,
    /// The request is invalid.
    Invalid,
    /// No credentials were found, or the store does not accept them.
    Credentials,
    /// The store refuses an operation.
    Denied,
    /// The clocks of this machine and of the store differ too much for a signature.
    Clock,
    /// The store cannot be reached, or fails. A later attempt may succeed.
    Unavailable,
    /// Another process does the same.
    Busy,
    /// The key of this machine does not open an object.
    WrongKey,
    /// An object is missing, truncated or was changed.
    Damaged,
    /// A ref is older than one that was seen before.
    RolledBack,
    /// The store is full.
    Full,
    /// A local file cannot be read or written.
    Io,
}

/// An error: the text completes "cannot …".
#[derive(Debug, Clone)]
pub struct RemoteError {
    /// Class of the error.
    pub kind: RemoteErrorKind,
    /// Description that completes "cannot …".
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
    /// True if the store of this machine has failed, and not the remote.
    pub(crate) is_local: bool,
}

impl RemoteError {
    /// Returns an error without a hint.
    pub fn new(kind: RemoteErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, is_local: false }
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns true for an error of the local store that concerns one project alone.
    pub(crate) fn is_of_project(&self) -> bool {
        self.is_local && !matches!(self.kind, RemoteErrorKind::Busy | RemoteErrorKind::Full)
    }

    pub(crate) fn damaged(key: &str, why: &str) -> Self {
        Self::new(RemoteErrorKind::Damaged, format!("read {key}: {why}")).hint(
            "`piton verify --remote` checks everything; `piton repair --remote` writes again what this machine has",
        )
    }

    pub(crate) fn io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        // The error of a temporary file names its path, which says nothing to the user.
        let text = error.to_string();
        let why = text.split(" at path \"").next().unwrap_or_default();
        Self::new(RemoteErrorKind::Io, format!("{what} {}: {why}", path.display()))
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.message)
    }
}

impl std::error::Error for RemoteError {}

impl From<piton::Error> for RemoteError {
    fn from(error: piton::Error) -> Self {
        let kind = match error.kind() {
            piton::ErrorKind::NotFound => RemoteErrorKind::NotFound,
            piton::ErrorKind::Busy => RemoteErrorKind::Busy,
            piton::ErrorKind::Damaged => RemoteErrorKind::Damaged,
            piton::ErrorKind::Full => RemoteErrorKind::Full,
            piton::ErrorKind::Invalid => RemoteErrorKind::Invalid,
            _ => RemoteErrorKind::Io,
        };
        let text = error.to_string();
        Self { is_local: true, ..Self::new(kind, text.strip_prefix("cannot ").unwrap_or(&text)) }
    }
}
