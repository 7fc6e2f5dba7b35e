//! Options of a restore of a repository.

/// Options of a restore of a repository.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct GitRestoreOptions<'a> {
    /// Names of branches, tags, stash entries, worktrees or files. All missing branches, tags, stash entries and
    /// worktrees if it is empty.
    pub names: &'a [String],
    /// Restore what was staged, too.
    pub is_index: bool,
    /// Restore `HEAD`, too.
    pub is_head: bool,
    /// Restore everything.
    pub is_all: bool,
    /// Replace what exists and differs.
    pub is_forced: bool,
    /// Only make the plan.
    pub is_dry: bool,
}

impl<'a> GitRestoreOptions<'a> {
    /// Sets [`GitRestoreOptions::names`].
    #[must_use]
    pub fn names(mut self, names: &'a [String]) -> Self {
        self.names = names;
        self
    }

    /// Sets [`GitRestoreOptions::is_index`].
    #[must_use]
    pub fn is_index(mut self, is_index: bool) -> Self {
        self.is_index = is_index;
        self
    }

    /// Sets [`GitRestoreOptions::is_head`].
    #[must_use]
    pub fn is_head(mut self, is_head: bool) -> Self {
        self.is_head = is_head;
        self
    }

    /// Sets [`GitRestoreOptions::is_all`].
    #[must_use]
    pub fn is_all(mut self, is_all: bool) -> Self {
        self.is_all = is_all;
        self
    }

    /// Sets [`GitRestoreOptions::is_forced`].
    #[must_use]
    pub fn is_forced(mut self, is_forced: bool) -> Self {
        self.is_forced = is_forced;
        self
    }

    /// Sets [`GitRestoreOptions::is_dry`].
    #[must_use]
    pub fn is_dry(mut self, is_dry: bool) -> Self {
        self.is_dry = is_dry;
        self
    }
}
