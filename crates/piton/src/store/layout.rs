//! Every path under the base. Nothing else joins a path to it.

use std::path::{Path, PathBuf};

use super::pack::PackDirs;
use crate::fsx;
use crate::id::{ObjectId, ProjectId};

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

/// What the ref of every project begins with.
pub(super) const PROJECT_REFS: &str = "refs/hermes/";
/// The journal, in a base or in a directory that stands in for one. What it was before is beside it, with more to its name.
pub(super) const JOURNAL: &str = "piton.log";

/// The directory of what is kept beside the store.
pub(super) const LOCAL: &str = "local";

/// What every session record's name ends with.
const SESSION_SUFFIX: &str = ".yaml";
/// What stands between the id and the time in the name of one that was put aside.
const DAMAGED_INFIX: &str = ".yaml.damaged-";

/// The journal in a base.
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

    /// Something in the base itself.
    pub(crate) fn in_base(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.join(name)
    }

    /// Returns whether files of piton's own in the base are called so, or begin so.
    pub(crate) fn is_own_name(name: &str) -> bool {
        name == STORE || [LEGACY_PREFIX, JOURNAL, fsx::TEMP_PREFIX].iter().any(|own| name.starts_with(own))
    }

    pub(crate) fn session(&self, id: &str) -> PathBuf {
        self.in_base(format!("{id}{SESSION_SUFFIX}"))
    }

    /// Whose record a file of this name is.
    pub(crate) fn session_in(name: &str) -> Option<&str> {
        name.strip_suffix(SESSION_SUFFIX)
    }

    /// The name for a file that is no record, and was put aside at that time. No reader of records takes it for one.
    pub(crate) fn damaged_session_name(id: &str, stamp: &str, nth: u64) -> String {
        let nth = if nth > 1 { format!("-{nth}") } else { String::new() };
        format!("{id}{DAMAGED_INFIX}{stamp}{nth}")
    }

    /// The time in such a name.
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

    /// Where packs go. They are written in the directory of the store itself: stock git's collection removes every file in
    /// `objects/pack` whose name begins with `tmp_`, whether or not it is in use.
    pub(super) fn pack_dirs(&self) -> PackDirs {
        PackDirs { packs: self.packs(), temporary: self.store.clone() }
    }

    /// The file in which stock git's collection names its process, as long as it runs.
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

    /// Whose ref one of this name is.
    pub(super) fn project_in_ref(name: &str) -> Option<ProjectId> {
        name.strip_prefix(PROJECT_REFS).and_then(ProjectId::parse)
    }

    /// The directory of the projects' refs.
    pub(super) fn references(&self) -> PathBuf {
        self.store.join("refs/hermes")
    }

    pub(super) fn reference(&self, project: &ProjectId) -> PathBuf {
        self.store.join(Self::ref_name(project))
    }

    pub(super) fn indexes(&self) -> PathBuf {
        self.store.join("indexes")
    }

    /// The file of an object that is in no pack.
    pub(super) fn loose_object(&self, id: &ObjectId) -> PathBuf {
        let name = id.to_string();
        self.objects().join(&name[..2]).join(&name[2..])
    }

    pub(super) fn lineage(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(format!("{}.ids", project.as_str()))
    }

    pub(super) fn index(&self, project: &ProjectId) -> PathBuf {
        self.indexes().join(project.as_str())
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

    /// Checkpoints that ran out of time and are to be completed.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.base.join(LOCAL).join("unfinished")
    }

    /// The request of a project's unfinished checkpoint.
    pub(super) fn unfinished_request(&self, project: &ProjectId) -> PathBuf {
        self.unfinished().join(format!("{project}.json"))
    }

    /// The index of the files that an unfinished checkpoint has read so far.
    pub(super) fn unfinished_index(&self, project: &ProjectId) -> PathBuf {
        self.unfinished().join(format!("{project}.index"))
    }

    /// The ref that keeps these files from being collected.
    pub(super) fn unfinished_ref(project: &ProjectId) -> String {
        format!("refs/unfinished/{project}")
    }

    /// Hooks that are at work, or were when they were killed.
    pub(super) fn begun(&self) -> PathBuf {
        self.base.join(LOCAL).join("begun")
    }

    /// What a repair puts aside.
    pub(super) fn repairs(&self) -> PathBuf {
        self.store.join("repairs")
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

    /// What is kept beside the store. It has no `HEAD`: a directory with one would be taken for an old repository.
    pub(super) fn local(&self) -> PathBuf {
        self.base.join(LOCAL)
    }

    /// The ledgers of all projects.
    pub(super) fn ledgers(&self) -> PathBuf {
        self.local().join("ledger")
    }

    pub(super) fn ledger(&self, project: &ProjectId) -> PathBuf {
        self.ledgers().join(format!("{project}.jsonl"))
    }

    pub(super) fn lock(&self, name: &str) -> PathBuf {
        self.store.join("locks").join(name)
    }

    /// Those of the directories below into which nobody writes without holding `store`.
    pub(super) fn with_temporaries_of_lockers(&self) -> [PathBuf; 6] {
        ["", "objects/pack", "indexes", "projects", "restores", "locks"].map(|dir| self.store.join(dir))
    }

    /// The directories in which a process that is killed may leave temporary files that tell their age. Those among the locks
    /// do not: they are as old as can be from the beginning.
    pub(super) fn with_temporaries(&self) -> [PathBuf; 10] {
        let [store, info, packs, indexes, projects, restores, turns, notices] =
            ["", "info", "objects/pack", "indexes", "projects", "restores", "turns", "notices"]
                .map(|dir| self.store.join(dir));
        [store, info, packs, indexes, projects, restores, turns, notices, self.unfinished(), self.begun()]
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

    /// Those that are made when something is to be put into them.
    pub(super) fn directories_made_later(&self) -> impl Iterator<Item = PathBuf> {
        ["restores", "turns", "notices", "installs", "repairs"].iter().map(|dir| self.store.join(dir))
    }
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
