//! Every path under the base. No other module joins a path to it.

use std::path::{Path, PathBuf};

use super::pack::PackDirs;
use crate::error::Result;
use crate::fsx;
use crate::id::{ObjectId, ProjectId};

/// Paths of a base and its store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    base: PathBuf,
    store: PathBuf,
}

/// Name of the store's directory in the base.
pub(super) const STORE: &str = "store";
/// File that holds the time of the last automatic prune.
pub(super) const LAST_PRUNE: &str = ".last_prune";
/// Directory of a store that is being removed.
pub(super) const CLEARING: &str = ".clearing";
/// Prefix of the archives of an older layout.
pub(super) const LEGACY_PREFIX: &str = "legacy-";
/// File in a repository of the older layout that names the project's directory.
pub(super) const LEGACY_WORKDIR: &str = "HERMES_WORKDIR";

/// Prefix of the refs of projects.
pub(super) const PROJECT_REFS: &str = "refs/hermes/";
/// Prefix of the refs of pins.
pub(super) const PIN_REFS: &str = "refs/piton/";
/// Prefix of the refs of local files.
pub(super) const LOCAL_REFS: &str = "refs/local/";
/// File name of the journal, in a base or in a directory that replaces one. Rotated journals have this name with a
/// suffix.
pub(super) const JOURNAL: &str = "piton.log";

/// Directory of data that is kept beside the store.
pub(super) const LOCAL: &str = "local";

/// Suffix of session records.
const SESSION_SUFFIX: &str = ".yaml";
/// Separates the session id from the time in the name of a damaged session record.
const DAMAGED_INFIX: &str = ".yaml.damaged-";

/// Returns the path of the journal in a base.
pub(crate) fn journal(base: &Path) -> PathBuf {
    base.join(JOURNAL)
}

impl Layout {
    pub(crate) fn new(base: PathBuf) -> Self {
        let store = base.join(STORE);
        Self { base, store }
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the path of a file in the base itself.
    pub(crate) fn in_base(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join(name)
    }

    /// Returns true for a name that piton itself uses in the base, or that has one of its prefixes.
    pub(crate) fn is_own_name(name: &str) -> bool {
        name == STORE || [LEGACY_PREFIX, JOURNAL, fsx::TEMP_PREFIX].iter().any(|own| name.starts_with(own))
    }

    pub(crate) fn session(&self, id: &str) -> PathBuf {
        self.in_base(format!("{id}{SESSION_SUFFIX}"))
    }

    /// Returns the session id in the name of a session record.
    pub(crate) fn session_in(name: &str) -> Option<&str> {
        name.strip_suffix(SESSION_SUFFIX)
    }

    /// Returns the name for a damaged session record that was renamed at the time `stamp`. Readers of session records
    /// ignore it.
    pub(crate) fn damaged_session_name(id: &str, stamp: &str, nth: u64) -> String {
        let nth = if nth > 1 { format!("-{nth}") } else { String::new() };
        format!("{id}{DAMAGED_INFIX}{stamp}{nth}")
    }

    /// Returns the time in the name of a damaged session record.
    pub(crate) fn damaged_session_in(name: &str) -> Option<&str> {
        let (id, stamp) = name.rsplit_once(DAMAGED_INFIX)?;
        (!id.is_empty()).then_some(stamp)
    }

    pub(super) fn head(&self) -> PathBuf {
        self.store.join("HEAD")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.store.join("config")
    }

    pub(super) fn info(&self) -> PathBuf {
        self.store.join("info")
    }

    pub(super) fn exclude(&self) -> PathBuf {
        self.info().join("exclude")
    }

    pub(super) fn attributes(&self) -> PathBuf {
        self.info().join("attributes")
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.store.join("objects")
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.store.join("objects/pack")
    }

    /// Returns the directories for packs. Packs are written in the directory of the store itself: stock git's
    /// collection removes every file in `objects/pack` whose name begins with `tmp_`, even if it is in use.
    pub(super) fn pack_dirs(&self) -> PackDirs {
        PackDirs { packs: self.packs(), temporary: self.store.clone() }
    }

    /// File that holds the process id of stock git's collection while it runs.
    pub(super) fn git_gc_pid(&self) -> PathBuf {
        self.store.join("gc.pid")
    }

    pub(super) fn object_info(&self) -> PathBuf {
        self.store.join("objects/info")
    }

    pub(super) fn alternates(&self) -> PathBuf {
        self.store.join("objects/info/alternates")
    }

    pub(super) fn shallow(&self) -> PathBuf {
        self.store.join("shallow")
    }

    pub(super) fn packed_refs(&self) -> PathBuf {
        self.store.join("packed-refs")
    }

    pub(super) fn ref_name(project: &ProjectId) -> String {
        format!("{PROJECT_REFS}{project}")
    }

    /// Returns the project of a ref name.
    pub(super) fn project_in_ref(name: &str) -> Option<ProjectId> {
        name.strip_prefix(PROJECT_REFS).and_then(ProjectId::parse)
    }

    /// Directory of the projects' refs.
    pub(super) fn references(&self) -> PathBuf {
        self.store.join("refs/hermes")
    }

    pub(super) fn reference(&self, project: &ProjectId) -> PathBuf {
        self.store.join(Self::ref_name(project))
    }

    pub(super) fn indexes(&self) -> PathBuf {
        self.store.join("indexes")
    }

    /// File of a loose object.
    pub(super) fn loose_object(&self, id: &ObjectId) -> PathBuf {
        let name = id.to_string();
        self.objects().join(&name[..2]).join(&name[2..])
    }

    pub(super) fn lineage(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(format!("{}.rows", project.as_str()))
    }

    /// File in which version 0.1 keeps the order of a project's checkpoints.
    pub(super) fn lineage_0_1(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(format!("{}.ids", project.as_str()))
    }

    pub(super) fn index(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(project.as_str())
    }

    /// Index of the local files of a project.
    pub(super) fn local_index(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(format!("{}.local", project.as_str()))
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

    /// Directory of checkpoints that ran out of time and are to be completed.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.base.join(LOCAL).join("unfinished")
    }

    /// Request of a project's unfinished checkpoint.
    pub(super) fn unfinished_request(&self, project: &ProjectId) -> PathBuf {
        self.unfinished().join(format!("{project}.json"))
    }

    /// Index of the files that an unfinished checkpoint has read so far.
    pub(super) fn unfinished_index(&self, project: &ProjectId) -> PathBuf {
        self.unfinished().join(format!("{project}.index"))
    }

    /// Name of the ref that keeps those files from being collected.
    pub(super) fn unfinished_ref(project: &ProjectId) -> String {
        format!("refs/unfinished/{project}")
    }

    /// Directory with a file for each hook that is running, or was running when it was killed.
    pub(super) fn begun(&self) -> PathBuf {
        self.base.join(LOCAL).join("begun")
    }

    /// Directory of the files that repairs have replaced or removed.
    pub(super) fn repairs(&self) -> PathBuf {
        self.store.join("repairs")
    }

    pub(super) fn last_prune(&self) -> PathBuf {
        self.base.join(LAST_PRUNE)
    }

    /// Directory to which a store is renamed while it is being removed.
    pub(super) fn aside(&self) -> PathBuf {
        self.base.join(CLEARING)
    }

    pub(super) fn size(&self) -> PathBuf {
        self.store.join("size")
    }

    /// Directory of the notes about the current turn of each session.
    pub(super) fn turns(&self) -> PathBuf {
        self.store.join("turns")
    }

    /// Directory of the notices for the next prompt of each session.
    pub(super) fn notices(&self) -> PathBuf {
        self.store.join("notices")
    }

    /// Directory in which an installer records its changes to the configuration of agents.
    pub(super) fn installs(&self) -> PathBuf {
        self.store.join("installs")
    }

    /// Directory of data that is kept beside the store. It has no `HEAD`: a directory with one would be taken for a
    /// repository of the older layout.
    pub(super) fn local(&self) -> PathBuf {
        self.base.join(LOCAL)
    }

    /// Directory of the ledgers of all projects.
    pub(super) fn ledgers(&self) -> PathBuf {
        self.local().join("ledger")
    }

    pub(super) fn ledger(&self, project: &ProjectId) -> PathBuf {
        self.ledgers().join(format!("{project}.jsonl"))
    }

    /// Directory of the records of forked conversations.
    pub(super) fn forks(&self) -> PathBuf {
        self.local().join("forks")
    }

    /// Directory of the configuration, the key and the cache of a remote.
    pub(super) fn remote(&self) -> PathBuf {
        self.local().join("remote")
    }

    /// Directory of the git states of all projects.
    pub(super) fn git_states(&self) -> PathBuf {
        self.local().join("git")
    }

    /// Directory of the git states of one project.
    pub(super) fn git_state(&self, project: &ProjectId) -> PathBuf {
        self.git_states().join(project.as_str())
    }

    /// Directory of the files that commands were about to destroy.
    pub(super) fn kept_files(&self) -> PathBuf {
        self.local().join("files")
    }

    /// Directory of one set of them.
    pub(super) fn kept_set(&self, name: &str) -> PathBuf {
        self.kept_files().join(name)
    }

    pub(super) fn lock(&self, name: &str) -> PathBuf {
        self.store.join("locks").join(name)
    }

    /// Directories to which only holders of the `store` lock write.
    pub(super) fn with_temporaries_of_lockers(&self) -> [PathBuf; 6] {
        ["", "objects/pack", "indexes", "projects", "restores", "locks"].map(|dir| self.store.join(dir))
    }

    /// Directories in which a killed process may leave temporary files whose mtime tells their age. Temporary files
    /// among the locks are not included: their mtime is 1970 from the start.
    pub(super) fn with_temporaries(&self) -> [PathBuf; 10] {
        let [store, info, packs, indexes, projects, restores, turns, notices] =
            ["", "info", "objects/pack", "indexes", "projects", "restores", "turns", "notices"]
                .map(|dir| self.store.join(dir));
        [store, info, packs, indexes, projects, restores, turns, notices, self.unfinished(), self.begun()]
    }

    /// Directories of a store, parents first.
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

    /// Directories that are created on first use.
    pub(super) fn directories_made_later(&self) -> impl Iterator<Item = PathBuf> {
        ["restores", "turns", "notices", "installs", "repairs"].iter().map(|dir| self.store.join(dir))
    }
}

/// Returns the projects that have a file in this directory, named `<project>.json`.
pub(super) fn projects_by_file(dir: &Path) -> Result<Vec<ProjectId>> {
    let names = fsx::names_in(dir)?;
    Ok(names.iter().filter_map(|name| ProjectId::parse(name.to_str()?.strip_suffix(".json")?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_damaged_records_of_one_second_has_a_name_of_its_own() {
        let names = [1, 2, 3].map(|nth| Layout::damaged_session_name("s-1", "20260316-043600", nth));
        assert_eq!(names[0], "s-1.yaml.damaged-20260316-043600");
        assert_eq!(names[1..], ["2", "3"].map(|nth| format!("{}-{nth}", names[0])));
        assert_eq!(Layout::damaged_session_in(&names[0]), Some("20260316-043600"));
    }
}
