//! A checkpoint as files in a new directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Entries, FileEntry, check_cancelled, write_blob};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, IdHasher, ObjectId, ObjectKind};
use crate::json::{AtDir, JsonPath};
use crate::lookup;
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::store::{Checkpoint, Objects, Store};
use crate::sys::{self, Dir, Kind};
use crate::threads;

/// Middle of the name of a directory that is not complete.
const INCOMPLETE: &str = ".piton-incomplete-";
/// A file name has at most 255 bytes.
const NAME_BYTES_MAX: usize = 200;
/// Smaller files are copied: a clone takes a block in any case.
const CLONED_BYTES_MIN: u64 = 4096;

/// Report of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Checkpoint that was exported.
    pub checkpoint: Checkpoint,
    /// The new directory.
    pub dir: PathBuf,
    /// Number of files and links.
    pub files: u64,
    /// Number of directories in it.
    pub dirs: u64,
    /// Total size of the files.
    pub bytes: u64,
    /// Number of files that share their blocks with the files of the project.
    pub cloned: u64,
}

/// JSON of an [`ExportReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ExportReportJson<'a> {
    /// id of the checkpoint
    id: CheckpointId,
    /// its first seven digits
    short_id: String,
    #[serde(flatten)]
    dir: JsonPath<'a, AtDir>,
    /// number of files and links
    files: u64,
    /// number of directories in it
    dirs: u64,
    /// total size of the files in bytes
    bytes: u64,
    /// number of files that share their blocks with the files of the project
    cloned: u64,
}

impl<'a> From<&'a ExportReport> for ExportReportJson<'a> {
    fn from(report: &'a ExportReport) -> Self {
        let id = report.checkpoint.id;
        Self {
            id,
            short_id: id.short(),
            dir: JsonPath::of(&report.dir),
            files: report.files,
            dirs: report.dirs,
            bytes: report.bytes,
            cloned: report.cloned,
        }
    }
}

crate::json::serialized_as! {
    ExportReport => ExportReportJson<'_>;
}

/// Writes the files of a checkpoint to a new directory, with permission bits, links and empty directories. A file that
/// the project still has is cloned, if the file system can.
///
/// Fails like [`crate::History::find`]; with `Invalid` if `dir` exists; with `Damaged` if contents are missing or
/// corrupt; with `Stopped` if it was cancelled. Nothing is left behind then.
///
/// ```
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
/// let dir = temp.path().join("as-it-was");
/// assert_eq!(piton::export(&store, &project, "1", &dir, &progress)?.files, 1);
/// assert_eq!(std::fs::read(dir.join("main.rs"))?, b"fn main() {}\n");
/// # Ok(())
/// # }
/// ```
pub fn export(store: &Store, project: &Project, name: &str, dir: &Path, progress: &Progress) -> Result<ExportReport> {
    let held = store.locks.share_until(Some(progress))?;
    let objects = store.objects.open(&held)?;
    let checkpoint = lookup::find(&store.histories.of(&objects, project.id())?, name)?.clone();
    let entries = Entries::of(&checkpoint, &objects)?;
    let (parent, name) = parent_of(dir)?;
    let around = Dir::open(&parent).map_err(|error| Error::io("open", &parent, error))?;
    let cut = &name[..name.len().min(NAME_BYTES_MAX)];
    let temporary = [cut, INCOMPLETE.as_bytes(), random_digits().as_bytes()].concat();
    let made = around.make_dir(&temporary).and_then(|()| around.open_dir(&temporary));
    let root = made.map_err(|error| Error::io("create", dir, error))?;
    let project = project.open_dir()?;
    let export = Export { dir, root: &root, project: project.as_ref(), entries: &entries, progress };
    let done = export.run(&objects).and_then(|done| {
        // O1.
        let published = root.sync_file_system().and_then(|()| around.rename_to_unused(&temporary, name));
        published.map_err(|error| if is_taken(&error) { exists(dir) } else { Error::io("create", dir, error) })?;
        around.sync_file_system().map_err(|error| Error::io("sync", &parent, error))?;
        Ok(done)
    });
    let ExportedFiles { bytes, cloned } = done.inspect_err(|_| {
        // Best effort: the name says what the directory is.
        let _ = fs::remove_dir_all(parent.join(sys::name_from_bytes(&temporary)));
    })?;
    let (files, dirs) = (entries.files.len() as u64, entries.dirs.len() as u64);
    Ok(ExportReport { checkpoint, dir: dir.to_owned(), files, dirs, bytes, cloned })
}

/// Returns the directory around a new one, and its name. Fails with `Invalid` if it exists.
fn parent_of(dir: &Path) -> Result<(PathBuf, &[u8])> {
    let Some(name) = dir.file_name() else { return Err(exists(dir)) };
    if sys::stat_path(dir).is_ok() {
        return Err(exists(dir));
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent.to_owned(), sys::path_bytes(Path::new(name))))
}

fn exists(dir: &Path) -> Error {
    Error::new(ErrorKind::Invalid, "export to")
        .with_path(dir)
        .because("it exists")
        .with_hint("name a new directory; nothing was written")
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// Returns digits that no other export uses.
fn random_digits() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

struct Export<'a> {
    /// The new directory, for messages.
    dir: &'a Path,
    root: &'a Dir,
    /// The project, unless its directory is gone.
    project: Option<&'a Dir>,
    entries: &'a Entries,
    progress: &'a Progress,
}

struct ExportedFiles {
    bytes: u64,
    cloned: u64,
}

impl Export<'_> {
    fn run(&self, objects: &Objects) -> Result<ExportedFiles> {
        for (path, _) in &self.entries.dirs {
            let (parent, name) = relpath::split(path);
            let made = self.root.open_dir(parent).and_then(|parent| parent.make_dir(name));
            made.map_err(|error| self.failed(path, error))?;
        }
        let (shared, next) = (objects.shared(), AtomicUsize::new(0));
        let (bytes, cloned, can_clone) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(true));
        let failed: Mutex<Option<Error>> = Mutex::default();
        let files = &self.entries.files;
        threads::together(threads::cores().min(files.len().div_ceil(4)), |_| {
            let objects = shared.objects();
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let written = check_cancelled(self.progress).and_then(|()| self.write(file, &objects, &can_clone));
                match written {
                    Ok(Written { size, is_cloned }) => {
                        bytes.fetch_add(size, Ordering::Relaxed);
                        cloned.fetch_add(is_cloned.into(), Ordering::Relaxed);
                    }
                    Err(error) => {
                        next.store(files.len(), Ordering::Relaxed);
                        *failed.lock().expect("no thread panics with it") = Some(error);
                    }
                }
            }
        });
        if let Some(error) = failed.into_inner().expect("no thread panics with it") {
            return Err(error);
        }
        // Last, and the deepest first: nothing can be created in a directory without write permission.
        for (path, mode) in self.entries.dirs.iter().rev() {
            let set = self.root.open_dir(path).and_then(|dir| dir.set_mode(*mode));
            set.map_err(|error| self.failed(path, error))?;
        }
        self.root.set_mode(0o755).map_err(|error| self.failed(b"", error))?;
        Ok(ExportedFiles { bytes: bytes.into_inner(), cloned: cloned.into_inner() })
    }

    fn failed(&self, path: &[u8], error: io::Error) -> Error {
        Error::io("write", self.dir.join(sys::name_from_bytes(path)), error)
    }

    fn write(&self, file: &FileEntry, objects: &Objects, can_clone: &AtomicBool) -> Result<Written> {
        let failed = |error| self.failed(&file.path, error);
        let (parent, name) = relpath::split(&file.path);
        let parent = self.root.open_dir(parent).map_err(failed)?;
        let Some(mode) = file.mode else {
            let target = objects.read(file.id, ObjectKind::Blob)?;
            check_id(&target, file.id)?;
            parent.create_link(name, &target).map_err(failed)?;
            return Ok(Written { size: 0, is_cloned: false });
        };
        let size = objects.blob_size(file.id)?;
        let may_clone = size >= CLONED_BYTES_MIN && can_clone.load(Ordering::Relaxed);
        let cloned = if may_clone { self.clone_current(file, size, &parent, can_clone).map_err(failed)? } else { None };
        let is_cloned = cloned.is_some();
        let new = match cloned {
            Some(cloned) => cloned,
            None => {
                let mut new = parent.create(name).map_err(failed)?;
                write_blob(objects, file.id, &mut new)?;
                new.flush().map_err(failed)?;
                new
            }
        };
        sys::set_file_mode(&new, mode).map_err(failed)?;
        Ok(Written { size, is_cloned })
    }

    /// Clones the project's file if it has the wanted contents. Creates nothing and returns `None` if it has other
    /// contents or cannot be cloned.
    fn clone_current(
        &self,
        file: &FileEntry,
        size: u64,
        parent: &Dir,
        can_clone: &AtomicBool,
    ) -> io::Result<Option<File>> {
        let Some(current) = self.project.and_then(|project| project.open_file(&file.path).ok()) else {
            return Ok(None);
        };
        if !sys::stat_file(&current).is_ok_and(|stat| stat.kind == Kind::File && stat.size == size) {
            return Ok(None);
        }
        let name = relpath::split(&file.path).1;
        let Some(cloned) = parent.create_clone(name, &current)? else {
            can_clone.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        // The file may have changed before it was cloned: the clone itself is verified.
        if parent.open_file(name).is_ok_and(|reread| id_of(reread, size).is_some_and(|id| id == file.id)) {
            return Ok(Some(cloned));
        }
        parent.remove(name)?;
        Ok(None)
    }
}

struct Written {
    size: u64,
    is_cloned: bool,
}

fn check_id(bytes: &[u8], id: ObjectId) -> Result<()> {
    if IdHasher::of(ObjectKind::Blob, bytes) == Ok(id) {
        return Ok(());
    }
    Err(Error::damaged(format!("read the object {id}"), "it is not what was written under this name"))
}

/// Returns the id of the contents of a file of this size.
fn id_of(mut file: File, size: u64) -> Option<ObjectId> {
    let (mut hasher, mut buffer) = (IdHasher::new(ObjectKind::Blob, size), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return hasher.finish().ok(),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
