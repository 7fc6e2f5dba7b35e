//! Every path under the base. Nothing else joins a path to it.

use std::path::{Path, PathBuf};

use crate::id::ProjectId;

/// Where everything is, given the base.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    base: PathBuf,
    store: PathBuf,
}

/// The name of the store's directory in the base.
pub(super) const STORE: &str = "store";
/// The time of the last automatic prune.
pub(super) const LAST_PRUNE: &str = ".last_prune";
/// A store that is being removed.
pub(super) const CLEARING: &str = ".clearing";
/// What every archive of an older layout begins with.
pub(super) const LEGACY_PREFIX: &str = "legacy-";
/// The file that names a repository's directory in the older layout.
pub(super) const LEGACY_WORKDIR: &str = "HERMES_WORKDIR";

impl Layout {
    pub(super) fn new(base: PathBuf) -> Self {
        let store = base.join(STORE);
        Self { base, store }
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    pub(super) fn head(&self) -> PathBuf {
        self.store.join("HEAD")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.store.join("config")
    }

    pub(super) fn exclude(&self) -> PathBuf {
        self.store.join("info/exclude")
    }

    pub(super) fn attributes(&self) -> PathBuf {
        self.store.join("info/attributes")
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.store.join("objects")
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.store.join("objects/pack")
    }

    pub(super) fn object_info(&self) -> PathBuf {
        self.store.join("objects/info")
    }

    pub(super) fn shallow(&self) -> PathBuf {
        self.store.join("shallow")
    }

    pub(super) fn packed_refs(&self) -> PathBuf {
        self.store.join("packed-refs")
    }

    pub(super) fn ref_name(project: &ProjectId) -> String {
        format!("refs/hermes/{project}")
    }

    /// The directory of the projects' refs.
    pub(super) fn references(&self) -> PathBuf {
        self.store.join("refs/hermes")
    }

    pub(super) fn reference(&self, project: &ProjectId) -> PathBuf {
        self.store.join(Self::ref_name(project))
    }

    pub(super) fn index(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(project.as_str())
    }

    pub(super) fn indexes(&self) -> PathBuf {
        self.store.join("indexes")
    }

    pub(super) fn projects(&self) -> PathBuf {
        self.store.join("projects")
    }

    pub(super) fn record(&self, project: &ProjectId) -> PathBuf {
        self.projects().join(format!("{project}.json"))
    }

    pub(super) fn intents(&self) -> PathBuf {
        self.store.join("restores")
    }

    pub(super) fn intent(&self, project: &ProjectId) -> PathBuf {
        self.intents().join(format!("{project}.json"))
    }

    pub(super) fn last_prune(&self) -> PathBuf {
        self.base.join(LAST_PRUNE)
    }

    /// Where a store goes that is being removed.
    pub(super) fn aside(&self) -> PathBuf {
        self.base.join(CLEARING)
    }

    pub(super) fn size(&self) -> PathBuf {
        self.store.join("size")
    }

    pub(super) fn lock(&self, name: &str) -> PathBuf {
        self.store.join("locks").join(name)
    }

    /// The directories in which a process that is killed may leave temporary files.
    pub(super) fn with_temporaries(&self) -> [PathBuf; 6] {
        ["", "info", "objects/pack", "indexes", "projects", "restores"].map(|dir| self.store.join(dir))
    }

    /// The directories of a store, parents first.
    pub(super) fn directories(&self) -> impl Iterator<Item = PathBuf> {
        const DIRECTORIES: [&str; 10] = [
            "objects",
            "objects/pack",
            "objects/info",
            "refs",
            "refs/heads",
            "refs/hermes",
            "info",
            "indexes",
            "projects",
            "locks",
        ];
        DIRECTORIES.iter().map(|dir| self.store.join(dir))
    }
}
