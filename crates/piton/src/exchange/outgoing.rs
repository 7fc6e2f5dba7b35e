//! Reading the checkpoints and objects that a push sends.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{CheckpointId, ObjectId, ObjectKind, ProjectId};
use crate::progress::Progress;
use crate::settings::PromptText;
use crate::store::{BuiltPack, Checkpoint, EntryMode, Objects, PackBuilder, Store, StoreLock};
use crate::worktree::repository_identity;

/// Number of prompts of a checkpoint that are sent.
const PROMPTS_MAX: usize = 20;

/// A checkpoint as another machine lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentCheckpoint {
    /// Id of its commit.
    pub id: CheckpointId,
    /// Tree of its files.
    pub tree: ObjectId,
    /// Time at which it was taken, in seconds since 1970.
    pub secs: i64,
    /// Offset of the local time zone then, in seconds.
    pub offset_secs: i32,
    /// Why it was taken.
    pub reason: String,
    /// True if it is a numbered row of the list.
    pub is_row: bool,
    /// Number of files, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Agent that it was taken for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Prompts that began from it, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// Names that the user gave it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
}

impl SentCheckpoint {
    fn new(checkpoint: &Checkpoint, prompt_text: PromptText) -> Self {
        let turns = checkpoint.turns.iter().filter(|_| prompt_text != PromptText::None);
        Self {
            id: checkpoint.id,
            tree: checkpoint.tree,
            secs: checkpoint.time.secs,
            offset_secs: checkpoint.time.offset_secs,
            reason: checkpoint.reason.clone(),
            is_row: checkpoint.is_row(),
            files: checkpoint.facts.files,
            agent: checkpoint.facts.origin.agent.clone(),
            prompts: turns.filter_map(|turn| turn.prompt.clone()).take(PROMPTS_MAX).collect(),
            marks: checkpoint.marks.clone(),
        }
    }
}

/// A project whose checkpoints can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentProject {
    /// Name of the project in the store.
    pub id: ProjectId,
    /// Its directory.
    pub dir: PathBuf,
    /// Identity of the git repository that it is in and of its place there, the same on every machine: the URL of the
    /// remote `origin` without scheme and credentials, and the directory in the repository.
    pub repository: Option<String>,
    /// Its newest checkpoint.
    pub newest: CheckpointId,
}

/// The objects of a store, for a push. While it exists, no object is removed, and a garbage collection waits: hold it
/// while reading, not while sending.
pub struct Outgoing<'a> {
    store: &'a Store,
    objects: Objects,
    _held: StoreLock,
}

impl<'a> Outgoing<'a> {
    /// Opens the objects of a store. Fails with `Busy` if another process blocks it for half a minute.
    pub fn open(store: &'a Store) -> Result<Self> {
        let held = store.locks.share()?;
        Ok(Self { store, objects: store.objects.open(&held)?, _held: held })
    }

    /// Returns the projects that have a checkpoint and a known directory.
    pub fn projects(&self) -> Result<Vec<SentProject>> {
        let mut found = Vec::new();
        for id in self.store.known_projects()? {
            let (Some(dir), Some(newest)) = (self.store.dir_of(&id), self.store.refs.newest(&id)?) else { continue };
            found.push(SentProject { repository: repository_identity(&dir), id, dir, newest });
        }
        Ok(found)
    }

    /// Returns the checkpoints of a project, newest first, without fetched ones. Prompts are left out with `None`.
    pub fn checkpoints(&self, project: &ProjectId, prompt_text: PromptText) -> Result<Vec<SentCheckpoint>> {
        let history = self.store.histories.of(&self.objects, project)?.whole()?;
        Ok(history.iter().map(|checkpoint| SentCheckpoint::new(checkpoint, prompt_text)).collect())
    }

    /// Returns the objects of these checkpoints, commits and trees before blobs, each once, without those for which
    /// `is_known` returns true and without objects that are reachable only from those. Parents of the commits are not
    /// followed. (Z4)
    pub fn objects_of(
        &self,
        checkpoints: &[CheckpointId],
        is_known: &dyn Fn(&ObjectId) -> bool,
    ) -> Result<Vec<(ObjectId, ObjectKind)>> {
        let mut seen = HashSet::new();
        let (mut meta, mut blobs, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for id in checkpoints {
            if !is_known(id) && seen.insert(*id) {
                meta.push((*id, ObjectKind::Commit));
            }
            open.push(self.objects.checkpoint(*id)?.tree);
        }
        while let Some(tree) = open.pop() {
            if is_known(&tree) || !seen.insert(tree) {
                continue;
            }
            meta.push((tree, ObjectKind::Tree));
            for entry in self.objects.tree(tree)? {
                match entry.mode {
                    EntryMode::Dir => open.push(entry.id),
                    EntryMode::Commit => {}
                    _ if is_known(&entry.id) || !seen.insert(entry.id) => {}
                    _ => blobs.push((entry.id, ObjectKind::Blob)),
                }
            }
        }
        meta.extend(blobs);
        Ok(meta)
    }

    /// Returns the total size of the blobs among these objects, uncompressed. Fails with `Damaged` if one is missing.
    pub fn bytes_of(&self, objects: &[(ObjectId, ObjectKind)]) -> Result<u64> {
        let blobs = objects.iter().filter(|(_, kind)| *kind == ObjectKind::Blob);
        blobs.map(|(id, _)| self.objects.blob_size(*id)).sum()
    }

    /// Writes a pack of the first objects in `objects` to a temporary file in `dir`. Returns it with the number of
    /// objects that it holds: it is full at 64 MiB. Fails with `Damaged` if an object is gone or corrupt.
    pub fn pack(&self, objects: &[(ObjectId, ObjectKind)], dir: &Path, progress: &Progress) -> Result<BuiltPack> {
        let mut pack = PackBuilder::begin(dir)?;
        for (id, kind) in objects {
            if pack.is_full() || progress.is_cancelled() {
                break;
            }
            pack.add(&self.objects, *id, *kind)?;
        }
        pack.finish()
    }
}
