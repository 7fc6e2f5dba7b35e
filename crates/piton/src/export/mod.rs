//! Reading files out of a checkpoint: one file, all of them as a new directory, or all of them as a tar archive.
//!
//! - O1. A directory gets its name only once it is complete and synced. Before that it is called
//!   `NAME.piton-incomplete-…`, and that is what a killed process leaves behind.
//! - O2. Nothing that exists is replaced.
//! - O3. Contents that do not match their id are never handed out as those of a file.

use std::collections::BTreeSet;
use std::io::Write;

use crate::diff::{Diff, diff};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::History;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::lookup;
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::settings::Settings;
use crate::store::{Checkpoint, EntryMode, FileModes, Objects, Store, StoreLock};
use crate::turns::TurnEnd;

mod dir;
mod tar;

pub use dir::{ExportReport, export};
pub use tar::export_tar;

/// Larger contents are streamed, and are never in memory as a whole.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

/// A file or link in a checkpoint.
///
/// ```
/// use piton::CheckpointFile;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &piton::Request::default(), &settings, now, &progress)?;
/// std::fs::remove_file(code.join("main.rs"))?;
/// let mut contents = Vec::new();
/// CheckpointFile::open(&store, &project, "1", b"main.rs")?.write_to(&mut contents)?;
/// assert_eq!(contents, b"fn main() {}\n");
/// # Ok(())
/// # }
/// ```
pub struct CheckpointFile {
    /// Checkpoint that holds the file.
    pub checkpoint: Checkpoint,
    /// Path of the file.
    pub path: Vec<u8>,
    /// Permission bits. Those of a link have no meaning.
    pub mode: u16,
    /// True if it is a link, whose contents are its target.
    pub is_link: bool,
    /// Number of bytes.
    pub bytes: u64,
    id: ObjectId,
    objects: Objects,
    _held: StoreLock,
}

impl CheckpointFile {
    /// Finds a file in the checkpoint that `name` names. Fails like [`crate::History::find`], with `NotFound` if the
    /// checkpoint has no such file, and with `Invalid` if the path is a directory.
    pub fn open(store: &Store, project: &Project, name: &str, path: &[u8]) -> Result<Self> {
        let held = store.locks.share()?;
        let objects = store.objects.open(&held)?;
        let checkpoint = lookup::find(&store.histories.of(&objects, project.id())?, name)?.clone();
        let what = || format!("read {} of checkpoint {}", String::from_utf8_lossy(path), checkpoint.id.short());
        let (mode, id) = match objects.entry_at(checkpoint.tree, path)? {
            Some((EntryMode::Dir, _)) => {
                return Err(Error::new(ErrorKind::Invalid, what())
                    .because("it is a directory")
                    .with_hint(Hint::ListFiles));
            }
            Some((mode @ (EntryMode::File | EntryMode::Executable | EntryMode::Link), id)) => (mode, id),
            Some((EntryMode::Commit, _)) | None => {
                return Err(Error::new(ErrorKind::NotFound, what())
                    .because("the checkpoint has no such file")
                    .with_hint(Hint::ListFiles));
            }
        };
        Ok(Self {
            path: path.to_vec(),
            mode: FileModes::new(&checkpoint.facts).file(path, mode == EntryMode::Executable),
            is_link: mode == EntryMode::Link,
            bytes: objects.blob_size(id)?,
            checkpoint,
            id,
            objects,
            _held: held,
        })
    }

    /// Writes the contents. Writes nothing if they are corrupt: they are verified first.
    pub fn write_to(&self, out: &mut dyn Write) -> Result<()> {
        if self.bytes > IN_MEMORY_BYTES_MAX {
            self.objects.stream_blob(self.id, &mut |_| true)?;
        }
        write_blob(&self.objects, self.id, out)
    }
}

/// Writes the contents of a blob. Small ones are verified before the first byte is written, large ones after the last.
fn write_blob(objects: &Objects, id: ObjectId, out: &mut dyn Write) -> Result<()> {
    let failed = |error| Error::io("write", "the contents", error);
    if objects.blob_size(id)? <= IN_MEMORY_BYTES_MAX {
        let bytes = objects.read(id, ObjectKind::Blob)?;
        if IdHasher::of(ObjectKind::Blob, &bytes) == Ok(id) {
            return out.write_all(&bytes).map_err(failed);
        }
        // Another copy may be intact.
    }
    let mut written = Ok(());
    objects.stream_blob(id, &mut |bytes| {
        written = out.write_all(bytes);
        written.is_ok()
    })?;
    written.map_err(failed)
}

/// Returns the difference between the start and the end of a turn, with a patch for `git apply`. A turn that is still
/// open ends with the current files. `name` and `agent` name the turn as for [`History::turn`], which also says how this
/// fails; in addition, with `NotFound` if the checkpoint of the end no longer exists.
pub fn turn_patch(
    store: &Store,
    project: &Project,
    name: &str,
    agent: Option<&str>,
    settings: &Settings,
    progress: &Progress,
) -> Result<Diff> {
    let turn = History::of(store, project)?.turn(name, agent)?;
    let end = match turn.end {
        TurnEnd::Reported(end) | TurnEnd::OpenEnded(end) => Some(end.to_string()),
        TurnEnd::Open => None,
        TurnEnd::Dropped => {
            return Err(Error::new(ErrorKind::NotFound, "export a turn as a patch")
                .because("the checkpoint in which it ended no longer exists"));
        }
    };
    diff(store, project, (&turn.before.to_string(), end.as_deref()), &[], settings, progress)
}

/// Entries of a checkpoint, for an export.
struct Entries {
    /// Directories, each after its parent, with their permission bits.
    dirs: Vec<(Vec<u8>, u16)>,
    /// Files and links, by path.
    files: Vec<FileEntry>,
}

struct FileEntry {
    path: Vec<u8>,
    id: ObjectId,
    /// Permission bits; `None` for a link.
    mode: Option<u16>,
}

impl Entries {
    fn of(checkpoint: &Checkpoint, objects: &Objects) -> Result<Self> {
        let modes = FileModes::new(&checkpoint.facts);
        let mut files = Vec::new();
        let mut dirs: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut add_dirs = |mut dir: &[u8]| {
            while !dir.is_empty() && dirs.insert(dir.to_vec()) {
                dir = relpath::split(dir).0;
            }
        };
        for change in objects.compare_trees(None, Some(checkpoint.tree))? {
            let mode = match change.new {
                None | Some((EntryMode::Dir | EntryMode::Commit, _)) => continue,
                Some((EntryMode::Link, _)) => None,
                Some((mode, _)) => Some(modes.file(&change.path, mode == EntryMode::Executable)),
            };
            add_dirs(relpath::split(&change.path).0);
            files.extend(change.new.map(|(_, id)| FileEntry { path: change.path, id, mode }));
        }
        checkpoint.facts.empty_dirs.iter().for_each(|dir| add_dirs(dir));
        let with_mode = |dir: Vec<u8>| (modes.dir(&dir), dir);
        let dirs = dirs.into_iter().map(with_mode).map(|(mode, dir)| (dir, mode)).collect();
        Ok(Self { dirs, files })
    }
}

fn check_cancelled(progress: &Progress) -> Result<()> {
    if !progress.is_cancelled() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Stopped, "export").because("stopped; nothing is left of it"))
}
