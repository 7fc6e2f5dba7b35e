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
/// What every archive of an older layout begins with.
pub(super) const LEGACY_PREFIX: &str = "legacy-";
/// The file that names a repository's directory in the older layout.
pub(super) const LEGACY_WORKDIR: &str = "HERMES_WORKDIR";

/// The journal in a base.
pub(crate) fn journal(base: &Path) -> PathBuf {
    base.join("piton.log")
}

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

    pub(super) fn shallow(&self) -> PathBuf {
        self.store.join("shallow")
    }

    pub(super) fn packed_refs(&self) -> PathBuf {
        self.store.join("packed-refs")
    }

    pub(super) fn ref_name(project: &ProjectId) -> String {
        format!("refs/hermes/{project}")
    }

    pub(super) fn reference(&self, project: &ProjectId) -> PathBuf {
        self.store.join(Self::ref_name(project))
    }

    pub(super) fn index(&self, project: &ProjectId) -> PathBuf {
        self.store.join("indexes").join(project.as_str())
    }

    pub(super) fn projects(&self) -> PathBuf {
        self.store.join("projects")
    }

    pub(super) fn record(&self, project: &ProjectId) -> PathBuf {
        self.projects().join(format!("{project}.json"))
    }

    pub(super) fn intent(&self, project: &ProjectId) -> PathBuf {
        self.store.join("restores").join(format!("{project}.json"))
    }

    /// What is remembered of the turn that a session is in.
    pub(super) fn turns(&self) -> PathBuf {
        self.store.join("turns")
    }

    /// What a session is to be told at its next prompt.
    pub(super) fn notices(&self) -> PathBuf {
        self.store.join("notices")
    }

    /// What an installer changed in the configuration of agents.
    pub(super) fn installs(&self) -> PathBuf {
        self.store.join("installs")
    }

    pub(super) fn lock(&self, name: &str) -> PathBuf {
        self.store.join("locks").join(name)
    }

    /// The directories in which a process that is killed may leave temporary files.
    pub(super) fn with_temporaries(&self) -> [PathBuf; 8] {
        ["", "info", "objects/pack", "indexes", "projects", "restores", "turns", "notices"]
            .map(|dir| self.store.join(dir))
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
