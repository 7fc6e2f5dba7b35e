//! Options of a restore.

use super::local::IgnoredFiles;

/// Options of a restore.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RestoreOptions<'a> {
    /// Restore only these paths, relative to the project. Empty for all.
    pub paths: &'a [Vec<u8>],
    /// Move files that no checkpoint covers aside, instead of leaving them in the way.
    pub move_uncovered_files: bool,
    /// Also undo the work that other sessions have done since.
    pub across_sessions: bool,
    /// Treatment of files out of scope that were saved with the checkpoint.
    pub ignored: IgnoredFiles,
    /// The session that requests the restore, if any. Its own work may be undone.
    pub session: Option<&'a str>,
    /// Only make the plan. Writes nothing to the store and takes no lock that others would wait for.
    pub is_dry: bool,
}

impl<'a> RestoreOptions<'a> {
    /// Sets [`RestoreOptions::paths`].
    #[must_use]
    pub fn paths(mut self, paths: &'a [Vec<u8>]) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`RestoreOptions::move_uncovered_files`].
    #[must_use]
    pub fn move_uncovered_files(mut self, move_uncovered_files: bool) -> Self {
        self.move_uncovered_files = move_uncovered_files;
        self
    }

    /// Sets [`RestoreOptions::across_sessions`].
    #[must_use]
    pub fn across_sessions(mut self, across_sessions: bool) -> Self {
        self.across_sessions = across_sessions;
        self
    }

    /// Sets [`RestoreOptions::ignored`].
    #[must_use]
    pub fn ignored(mut self, ignored: IgnoredFiles) -> Self {
        self.ignored = ignored;
        self
    }

    /// Sets [`RestoreOptions::session`].
    #[must_use]
    pub fn session(mut self, session: impl Into<Option<&'a str>>) -> Self {
        self.session = session.into();
        self
    }

    /// Sets [`RestoreOptions::is_dry`].
    #[must_use]
    pub fn is_dry(mut self, is_dry: bool) -> Self {
        self.is_dry = is_dry;
        self
    }
}
