//! User's files: scope rules, scanning, reading and writing. Knows no store and no git objects.

mod cache;
mod directory;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod git_index;
mod inspect;
mod local;
mod manifest;
mod read;
mod repository;
mod scan;
mod scope;
mod tracked;
mod write;

pub use cache::ChangedDirs;
pub(crate) use cache::{
    CacheNote, CacheUpdate, CachedDirs, IndexSums, IndexUpdate, NewestFiles, NewestState, StatCache, Vouched,
    index_bytes_max, is_settled, write_index,
};
pub use directory::Presence;
pub(crate) use directory::{
    ParentDirectory, check_access, device_around, dir_identity, has_marker, is_dir, is_file, is_shared, make_dir,
    presence, subdirs,
};
pub(crate) use git_index::staged_id;
pub(crate) use inspect::{id_of_path, missing_paths, read_path, stat_path};
pub(crate) use local::{
    FileReading, LocalLimits, LocalScan, database_of, database_set, has_local_candidates, is_database, scan_local,
};
pub(crate) use manifest::{Child, DirNode, FileNode, Manifest};
pub(crate) use read::{Contents, ReadFile, Reader, id_of_stream};
pub(crate) use repository::{
    Located, ObjectDir, Repository, RepositoryFile, RepositoryLock, RepositoryPlace, RepositoryWriter, busy_error,
    locate, place_pointer, remove_unfinished, rename_dir, running_commands, temp_lock,
};
pub(crate) use scan::{Scan, ScanEnd, count_files, scan};
pub(crate) use scope::{Lists, RulesAfter, Scope, ScopePreview};
pub(crate) use write::{ChangeResult, NewContents, SeenFile, WorktreeWriter};
