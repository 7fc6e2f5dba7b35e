//! User's files: scope rules, scanning, reading and writing. Knows no store and no git objects.

mod bring_back;
mod cache;
mod directory;
mod expand;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod git_index;
mod inspect;
mod keeping;
mod local;
mod manifest;
mod read;
mod regenerated;
mod repository;
mod scan;
mod scope;
mod tracked;
mod write;

pub(crate) use bring_back::{
    BackAs, BackTemporaries, bring_back, bring_back_dir, bring_back_link, remove_temporaries, take_away, take_away_dir,
};
pub use cache::ChangedDirs;
pub(crate) use cache::{
    CacheNote, CacheUpdate, CachedDirs, IndexSums, IndexUpdate, NewestFiles, NewestState, StatCache, Vouched,
    index_bytes_max, is_settled, write_index,
};
pub use directory::Presence;
pub(crate) use directory::{
    ParentDirectory, check_access, device_around, dir_identity, has_marker, is_dir, is_file, is_own_dir, is_shared,
    make_dir, presence, subdirs,
};
pub(crate) use expand::{Expanded, expand, name_matcher, replaced};
pub(crate) use git_index::{staged_id, staged_objects};
pub(crate) use inspect::{has_same_contents, id_of_file, id_of_path, link_target, missing_paths, read_path, stat_path};
pub(crate) use keeping::{
    SaveLimits, SaveResult, Saved, SavedEntry, Unsaved, UnsavedFile, Wanted, resolved, save, stat_of,
};
pub(crate) use local::{
    FileReading, LocalLimits, LocalScan, database_of, database_set, has_local_candidates, holds_secrets, is_database,
    scan_local,
};
pub(crate) use manifest::{Child, DirNode, FileNode, Manifest};
pub(crate) use read::{Contents, ReadFile, Reader, id_of_stream};
pub(crate) use regenerated::is_regenerated;
pub(crate) use repository::{
    Located, ObjectDir, Repository, RepositoryFile, RepositoryLock, RepositoryPlace, RepositoryWriter, SeenFiles,
    SeenPath, busy_error, encode_seen, locate, place_pointer, remove_unfinished, rename_dir, repository_identity,
    running_commands, seen_paths, temp_lock,
};
pub(crate) use scan::{Scan, ScanEnd, count_files, scan};
pub(crate) use scope::{Lists, RulesAfter, Scope, ScopePreview};
pub(crate) use write::{ChangeResult, NewContents, SeenFile, WorktreeWriter};
