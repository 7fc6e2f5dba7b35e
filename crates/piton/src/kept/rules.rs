//! Settings that leave files of a project out of what is kept: those that leave them out of the local files.

use std::path::{Path, PathBuf};

use crate::settings::{KeepIgnored, Settings};
use crate::skipped::SkipReason;
use crate::store::Store;
use crate::sys::{self, Dir, Kind, Stat};
use crate::worktree::{Lists, Scope, ScopePreview, holds_secrets};

/// Rules of one project.
pub(super) struct KeepRules {
    root: PathBuf,
    dir: Dir,
    scope: Scope,
    keep_ignored: KeepIgnored,
    /// Size up to which a file out of scope is not kept.
    left_out_bytes_max: Option<u64>,
}

impl KeepRules {
    /// Returns the rules of the project in `root`. Returns `None` if no setting leaves anything out, or if there is no
    /// project.
    pub(super) fn of(store: &Store, root: Option<&Path>, settings: &Settings) -> Option<Self> {
        let keep_ignored = settings.keep_ignored;
        let left_out_bytes_max = (settings.keep_file_size_mb == 0).then(|| settings.file_bytes_max());
        let leaves_out = keep_ignored != KeepIgnored::All || left_out_bytes_max.is_some();
        let root = root.filter(|_| leaves_out || !settings.exclude.is_empty())?;
        let list = store.exclude_list().unwrap_or_default();
        let lists = Lists { store: &list, exclude: &settings.exclude, include: &settings.include };
        let scope = Scope::new(root, lists, None, Vec::new());
        Some(Self { root: root.to_owned(), dir: Dir::open(root).ok()?, scope, keep_ignored, left_out_bytes_max })
    }

    pub(super) fn judge(&self) -> KeepJudge<'_> {
        KeepJudge { rules: self, preview: ScopePreview::new(&self.scope, &self.dir, None) }
    }
}

/// Applies the rules to many paths.
pub(super) struct KeepJudge<'a> {
    rules: &'a KeepRules,
    preview: ScopePreview<'a>,
}

impl KeepJudge<'_> {
    /// Returns the name of the setting that leaves a file, or a directory with everything in it, out.
    pub(super) fn setting_against(&mut self, path: &Path, stat: &Stat) -> Option<&'static str> {
        let rules = self.rules;
        let below = sys::path_bytes(path.strip_prefix(&rules.root).ok()?);
        let is_dir = stat.kind == Kind::Dir;
        if below.is_empty() {
            return None;
        }
        let why = self.preview.left_out(below, is_dir)?;
        if !matches!(why, SkipReason::Ignored | SkipReason::Excluded | SkipReason::Secret) {
            return None;
        }
        let is_small = || !is_dir && rules.left_out_bytes_max.is_some_and(|bytes_max| stat.size <= bytes_max);
        match rules.keep_ignored {
            _ if rules.scope.is_excluded_by_user(below, is_dir) => Some("exclude"),
            KeepIgnored::None => Some("keep_ignored"),
            KeepIgnored::NoSecrets if holds_secrets(below, is_dir) => Some("keep_ignored"),
            _ if is_small() => Some("keep_file_size_mb"),
            _ => None,
        }
    }
}
