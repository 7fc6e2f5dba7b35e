//! Options of a revert.

use std::collections::BTreeSet;

/// Options of a revert.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RevertOptions<'a> {
    /// Revert only these paths and everything below them, relative to the project. Empty for all.
    pub paths: &'a [Vec<u8>],
    /// Revert only these hunks of a file, each named by a line of the file at the end of the turn, from 1 on: a changed
    /// line, or one of the three lines around it that a patch shows. Files that are not named here are reverted as a
    /// whole.
    pub hunks: &'a [(Vec<u8>, BTreeSet<usize>)],
    /// Revert the files without a conflict, and leave the others as they are.
    pub skip_conflicts: bool,
    /// Revert a turn whose end was not reported, together with edits of the user until the next prompt.
    pub with_own_edits: bool,
    /// Revert a turn during which other sessions worked, together with their changes in that time.
    pub across_sessions: bool,
    /// The session that requests the revert, if any. Its own work may be reverted together with the work since a
    /// checkpoint.
    pub session: Option<&'a str>,
    /// Report what would be done, and write nothing.
    pub is_dry: bool,
}

impl<'a> RevertOptions<'a> {
    /// Sets [`RevertOptions::paths`].
    #[must_use]
    pub fn paths(mut self, paths: &'a [Vec<u8>]) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`RevertOptions::hunks`].
    #[must_use]
    pub fn hunks(mut self, hunks: &'a [(Vec<u8>, BTreeSet<usize>)]) -> Self {
        self.hunks = hunks;
        self
    }

    /// Sets [`RevertOptions::skip_conflicts`].
    #[must_use]
    pub fn skip_conflicts(mut self, skip_conflicts: bool) -> Self {
        self.skip_conflicts = skip_conflicts;
        self
    }

    /// Sets [`RevertOptions::with_own_edits`].
    #[must_use]
    pub fn with_own_edits(mut self, with_own_edits: bool) -> Self {
        self.with_own_edits = with_own_edits;
        self
    }

    /// Sets [`RevertOptions::across_sessions`].
    #[must_use]
    pub fn across_sessions(mut self, across_sessions: bool) -> Self {
        self.across_sessions = across_sessions;
        self
    }

    /// Sets [`RevertOptions::session`].
    #[must_use]
    pub fn session(mut self, session: impl Into<Option<&'a str>>) -> Self {
        self.session = session.into();
        self
    }

    /// Sets [`RevertOptions::is_dry`].
    #[must_use]
    pub fn is_dry(mut self, is_dry: bool) -> Self {
        self.is_dry = is_dry;
        self
    }
}
