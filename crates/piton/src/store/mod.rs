//! The store: one bare git repository that all projects share. Touches nothing outside the base, except the object files
//! of a user's repository, which it is handed open to link or copy them.
//!
//! Invariants, which hold between any two system calls, and so after a crash at any point:
//!
//! - S1. A ref names a commit whose tree and blobs are all present and synced.
//! - S2. A commit is never rewritten: an id, once shown, keeps its meaning.
//! - S3. Every file is accessible to its owner only.
//! - S4. Leftovers of a killed process block no other process: locks are released when their holder dies, and temporary
//!   files have names that readers ignore.
//!
//! Stock git may read and write the same store. Refs are changed under git's own `*.lock` protocol.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::base::BaseDir;
use self::boundary::Boundary;
use self::catalog::Catalog;
use self::git_states::GitStates;
use self::histories::Histories;
use self::indexes::Indexes;
use self::intents::Intents;
use self::ledger::Ledger;
use self::lock::Locks;
use self::object_db::ObjectDb;
use self::pins::Pins;
use self::projects::Records;
use self::refs::Refs;
use self::running_hooks::RunningHooks;
use self::size::StoreSize;
use self::turns::TurnNotes;
use self::unfinished::UnfinishedTakes;
use crate::error::{Error, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::ProjectId;
use crate::time::Moment;

mod activity;
mod base;
mod beside;
mod boundary;
mod brought_back;
mod catalog;
mod commit;
mod create;
mod decode;
mod delta;
mod facts;
mod file_modes;
mod forget;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gc;
mod git_states;
mod histories;
mod indexes;
mod integrity;
mod intents;
mod keeps;
mod kept;
mod kept_check;
mod layout;
mod ledger;
mod lineage;
mod locals;
mod lock;
mod loose;
mod marks;
mod object_copies;
mod object_db;
mod objects;
mod pack;
mod pack_builder;
mod pack_entry;
mod pack_index;
mod packs;
mod pins;
mod projects;
mod quota;
mod reachability;
mod ref_lock;
mod refs;
mod repair;
mod retention;
mod rewrite;
mod running_hooks;
mod salvage;
mod size;
mod stale_locals;
mod stream;
mod sweep;
mod tree;
mod turns;
mod unfinished;
mod usage;
mod verify;
mod wait;

pub(crate) use activity::Activity;
pub use base::Archive;
pub(crate) use brought_back::{BackNote, BackRecord, BroughtBack};
pub use commit::Checkpoint;
pub(crate) use commit::{END_REASON, NewCheckpoint, Readable, STEP_PREFIX, parse as parse_commit};
pub(crate) use create::claim_base;
pub use facts::{CheckpointKind, Facts, FetchedFrom, Origin, RestoreVerb, Restoring, UsualModes};
pub(crate) use file_modes::FileModes;
pub(crate) use forget::{ForgetIf, forget_project};
pub(crate) use gc::{GcGoal, collect_every, collect_garbage, has_many_packs};
pub use git_states::GitStateMoment;
pub(crate) use git_states::{
    FILE_MODE, GitChange, GitState, GitStateCache, GitStateRecord, HeldFile, HoldObjects, HoldResult, LINK_MODE,
    ReleasePolicy, SMALL_FILE_BYTES_MAX, StateFile,
};
pub(crate) use indexes::IndexKind;
pub use intents::Intent;
pub(crate) use kept::{
    HeldBy, KeptDraft, KeptEntry, KeptFiles, KeptHeader, KeptKind, KeptSet, id_of as kept_id, time_in as kept_time,
};
pub(crate) use layout::{Layout, journal as journal_path};
pub(crate) use ledger::stored_prompt;
pub use ledger::{RewindMark, StepRecord, TurnRecord, without_secrets};
pub(crate) use locals::{LocalRef, LocalState, Locals, build_tree};
pub(crate) use lock::{GcLock, ProjectLock, StoreLock};
pub use object_copies::ReadData;
pub(crate) use objects::{NewObjects, Objects, SharedObjects, Writer};
pub(crate) use pack_builder::PackBuilder;
pub use pack_builder::{BuiltPack, PackedObject, decode_entry};
pub(crate) use pins::{Cut, Pin, PinName, PinTime, check_mark};
pub(crate) use projects::ProjectRecord;
pub(crate) use quota::{MakeRoomOutcome, limit_locals, make_room, would_drop};
pub(crate) use refs::moved_meanwhile;
pub(crate) use repair::RepairRun;
pub use repair::{Loss, RepairStep};
pub(crate) use retention::{newest_rows, rows_kept};
pub(crate) use rewrite::{Rewrite, where_held};
pub(crate) use running_hooks::BegunHook;
pub(crate) use salvage::salvage_newest;
pub(crate) use size::Room;
pub(crate) use sweep::sweep;
pub(crate) use tree::{
    EntryMode, PATHS_MAX, TreeChange, TreeEntry, TreeWalk, parse as parse_tree, push_entry, too_many_paths,
};
pub use turns::Notice;
pub(crate) use turns::{SessionKey, TurnNote, turn_name};
pub(crate) use unfinished::{FinishLock, UnfinishedRequest};
pub(crate) use usage::usage_by_project;
pub use verify::{Affected, Finding, FindingKind, Severity, VerifyReport, check_saved_beside, verify};
pub use wait::Waiting;
pub(crate) use wait::{BaseLock, lock_base};

/// Size limit of an exclude list that is read.
const EXCLUDE_BYTES_MAX: u64 = 1 << 20;

/// An open store.
///
/// ```
/// use piton::{Moment, Store};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let base = temp.path().join("base");
/// # let now = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// assert!(Store::open_existing(&base)?.is_none());
/// let store = Store::open_or_create(&base, now)?;
/// assert!(store.git_dir().join("HEAD").is_file()); // a bare repository, for stock git
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    layout: Arc<Layout>,
    pub(crate) base_dir: BaseDir,
    pub(crate) locks: Locks,
    pub(crate) size: StoreSize,
    pub(crate) objects: ObjectDb,
    pub(crate) refs: Refs,
    pub(crate) boundary: Boundary,
    pub(crate) pins: Pins,
    pub(crate) locals: Locals,
    pub(crate) catalog: Catalog,
    pub(crate) histories: Histories,
    pub(crate) records: Records,
    pub(crate) indexes: Indexes,
    pub(crate) intents: Intents,
    pub(crate) unfinished: UnfinishedTakes,
    pub(crate) turns: TurnNotes,
    pub(crate) ledger: Ledger,
    pub(crate) hooks: RunningHooks,
    pub(crate) kept: KeptFiles,
    pub(crate) git_states: GitStates,
}

/// Returns the directory in which the forks of conversations are recorded. The caller creates it.
pub fn forks_dir(store: &Store) -> PathBuf {
    store.layout.forks()
}

/// Returns the directory in which the remote's configuration, key and cache are stored. The caller creates it.
pub fn remote_dir(store: &Store) -> PathBuf {
    store.layout.remote()
}

impl Store {
    /// Opens the store in `base`, and creates it if there is none. Finishes an interrupted creation, and moves the
    /// repositories of an older layout into an archive.
    ///
    /// Fails with `NotOurs` if the base belongs to another user, or is a directory with foreign files: the setting is
    /// probably wrong, and the files must not be moved.
    pub fn open_or_create(base: &Path, now: Moment) -> Result<Self> {
        let layout = Layout::new(create::absolute_base(base)?);
        create::ensure(&layout, now)?;
        Ok(Self::compose(Locks::new(layout)))
    }

    /// Opens the store in `base`. Returns `None` if there is none. Fails with `Damaged` if parts of it are missing.
    /// Writes nothing.
    pub fn open_existing(base: &Path) -> Result<Option<Self>> {
        if !base.is_absolute() || !fsx::is_dir(base)? {
            return Ok(None);
        }
        let layout = Layout::new(fsx::canonical(base)?);
        let is_there = create::is_there(&layout)?;
        let store = Self::compose(Locks::new(layout));
        // Projects are recorded only after a store is complete.
        if !is_there && !store.records.projects()?.is_empty() {
            return Err(Error::damaged(format!("use {}", store.layout.store().display()), "parts of it are gone")
                .with_hint(Hint::Repair));
        }
        Ok(is_there.then_some(store))
    }

    /// Opens a base, with or without a store in it, for the data beside the store. Returns `None` if there is no base.
    pub fn open_base(base: &Path) -> Result<Option<Self>> {
        if !base.is_absolute() || !fsx::is_dir(base)? {
            return Ok(None);
        }
        let layout = Layout::new(fsx::canonical(base)?);
        create::is_there(&layout)?;
        Ok(Some(Self::compose(Locks::new(layout))))
    }

    /// Opens the remains of a store in `base`, for a check or a repair: pieces of it may be missing. Returns `None`
    /// unless the directory can be a store and has an `objects` directory or a project record.
    pub fn open_damaged(base: &Path) -> Result<Option<Self>> {
        if !base.is_absolute() || !fsx::is_dir(base)? {
            return Ok(None);
        }
        let layout = Layout::new(fsx::canonical(base)?);
        create::is_there(&layout)?;
        let (has_objects, is_ours) = (fsx::is_dir(&layout.objects())?, create::is_a_store(layout.store())?);
        let store = Self::compose(Locks::new(layout));
        Ok((is_ours && (has_objects || !store.records.projects()?.is_empty())).then_some(store))
    }

    fn compose(locks: Locks) -> Self {
        let layout = Arc::clone(locks.layout());
        let at = || Arc::clone(&layout);
        let size = StoreSize { layout: at(), locks: locks.clone() };
        let objects = ObjectDb { layout: at() };
        let refs = Refs { layout: at(), locks: locks.clone() };
        let boundary = Boundary { layout: at(), locks: locks.clone() };
        let (records, intents, ledger) = (Records { layout: at() }, Intents { layout: at() }, Ledger { layout: at() });
        let git_states = GitStates { layout: at() };
        let pins = Pins { layout: at(), refs: refs.clone(), boundary: boundary.clone() };
        let locals = Locals { layout: at(), refs: refs.clone() };
        let catalog = Catalog {
            layout: at(),
            records: records.clone(),
            refs: refs.clone(),
            boundary: boundary.clone(),
            intents: intents.clone(),
            objects: objects.clone(),
        };
        Self {
            base_dir: BaseDir {
                layout: at(),
                locks: locks.clone(),
                size: size.clone(),
                ledger: ledger.clone(),
                git_states: git_states.clone(),
            },
            histories: Histories {
                layout: at(),
                objects: objects.clone(),
                refs: refs.clone(),
                boundary: boundary.clone(),
                catalog: catalog.clone(),
                ledger: ledger.clone(),
                pins: pins.clone(),
            },
            unfinished: UnfinishedTakes { layout: at(), locks: locks.clone(), refs: refs.clone() },
            indexes: Indexes { layout: at() },
            turns: TurnNotes { layout: at() },
            hooks: RunningHooks { layout: at() },
            git_states: git_states.clone(),
            kept: KeptFiles { layout: at() },
            size,
            objects,
            refs,
            boundary,
            pins,
            locals,
            records,
            intents,
            ledger,
            catalog,
            locks,
            layout,
        }
    }

    /// Sets the callback for lock waits. `tell` is called once for each lock, on the waiting thread, after half a
    /// second, with the lock holder.
    #[must_use]
    pub fn on_lock_wait(self, tell: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self::compose(self.locks.on_wait(tell))
    }

    /// Returns the directory of a project, if the store knows it.
    pub fn dir_of(&self, project: &ProjectId) -> Option<PathBuf> {
        self.records.get(project).dir()
    }

    /// Returns true if the store has or had a checkpoint of the project. A record alone does not count: a refused
    /// attempt may have left one. If the record cannot be read, returns true.
    pub fn knows(&self, project: &ProjectId) -> bool {
        self.catalog.knows(project)
    }

    /// Returns true if the project has a checkpoint, or if its ref cannot be read.
    pub fn has_checkpoint(&self, project: &ProjectId) -> bool {
        self.catalog.has_checkpoint(project)
    }

    /// Returns every project that has a record or a checkpoint.
    pub fn known_projects(&self) -> Result<BTreeSet<ProjectId>> {
        self.catalog.projects()
    }

    /// Returns the interrupted restore of a project, if there is one. Returns `None` while another command holds the
    /// project's lock: it may be that restore. Fails with `Damaged` if its intent is corrupt.
    pub fn interrupted_restore(&self, project: &ProjectId) -> Result<Option<Intent>> {
        if self.intents.get(project)?.is_none() {
            return Ok(None);
        }
        // Read again under the lock: a restore that held it until now has removed its intent.
        self.locks.while_idle(project, || self.intents.get(project)).unwrap_or(Ok(None))
    }

    /// Returns the directory that holds everything.
    pub fn base(&self) -> &Path {
        self.layout.base()
    }

    /// Returns the bare repository, for stock git.
    pub fn git_dir(&self) -> &Path {
        self.layout.store()
    }

    /// Returns the directory in which an installer records its changes to the configuration of agents. The installer
    /// creates it.
    pub fn installs_dir(&self) -> PathBuf {
        self.layout.installs()
    }

    /// Returns the exclude list of the store in gitignore syntax, or the default list if there is none or it is git's
    /// template.
    pub(crate) fn exclude_list(&self) -> Result<Vec<u8>> {
        let list = fsx::read_small(&self.layout.exclude(), EXCLUDE_BYTES_MAX)?;
        let list = list.filter(|list| !create::is_template_of_git(list));
        Ok(list.unwrap_or_else(|| create::exclude_list().into_bytes()))
    }
}

/// Fixtures for the unit tests of the store.
#[cfg(test)]
mod kit {
    use super::Store;
    use crate::time::Moment;

    pub(in crate::store) const NOW: Moment = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };

    pub(super) fn store(temp: &tempfile::TempDir) -> Store {
        Store::open_or_create(&temp.path().join("base"), NOW).expect("a store")
    }
}
