//! Reads the files whose ids are not known, on all cores.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Collision, ObjectId, ObjectKind};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::skipped::{SkipReason, Skipped};
use crate::store::{NewObjects, Writer};
use crate::sys::{self, Dir, Kind, Stat};
use crate::threads;
use crate::worktree::{Contents, FileNode, Manifest, ReadFile, Reader, id_of_stream, is_settled};

/// Indices of a directory in the manifest and of a file in it. Small, because there may be millions.
type ReadSlot = (u32, u32);

/// Result of reading one file, small for the same reason.
pub(super) struct FileRead {
    place: ReadSlot,
    came_to: ReadResult,
}

enum ReadResult {
    Unmoved(ObjectId),
    /// The file changed between the scan and the read.
    Moved(Box<(Stat, ObjectId)>),
    Skip(SkipReason),
    Gone,
}

pub(super) struct Reading<'a> {
    pub(super) root: &'a Dir,
    pub(super) manifest: &'a Manifest,
    pub(super) new_objects: &'a NewObjects,
    pub(super) settings: &'a Settings,
    pub(super) progress: &'a Progress,
    pub(super) threads: usize,
}

impl Reading<'_> {
    /// Reads every file whose id is not known, on all cores, until `progress` is cancelled.
    pub(super) fn run(&self) -> Result<Vec<Vec<FileRead>>> {
        let dirs = self.manifest.dirs.iter().enumerate().filter(|(_, dir)| !dir.same_files);
        let places =
            dirs.flat_map(|(at, dir)| dir.files.iter().enumerate().map(move |(file, node)| ((at, file), node)));
        let small = |at: usize| u32::try_from(at).map_err(|_| too_many_files());
        let unknown = places.filter(|(_, file)| file.id.is_none());
        let places: Vec<ReadSlot> =
            unknown.map(|((dir, file), _)| Ok((small(dir)?, small(file)?))).collect::<Result<_>>()?;
        let bytes: u64 = places.iter().map(|place| self.file(*place).stat.size).sum();
        self.progress.bytes_to_read.store(bytes, Ordering::Relaxed);
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let work = || {
            let read = self.read_some(&places, &next, &failed);
            failed.fetch_or(read.is_err(), Ordering::Relaxed);
            read
        };
        let all = threads::together(self.threads.min(places.len() / 4 + 1), |_| work());
        all.into_iter().collect()
    }

    fn file(&self, (dir, file): ReadSlot) -> &FileNode {
        &self.manifest.dirs[dir as usize].files[file as usize]
    }

    fn read_some(&self, places: &[ReadSlot], next: &AtomicUsize, failed: &AtomicBool) -> Result<Vec<FileRead>> {
        let mut reader = Reader::new(self.root);
        let mut writer = self.new_objects.writer();
        let mut read = Vec::new();
        let is_over = || failed.load(Ordering::Relaxed) || self.progress.is_cancelled();
        while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed))
            && !is_over()
        {
            let file = self.file(*place);
            let path = self.manifest.dirs[place.0 as usize].path_of(file);
            let came_to = match &file.target {
                Some(target) => ReadFile::Read(file.stat, writer.add(ObjectKind::Blob, target)?),
                // A link whose id was in the cache, but whose target is missing from the store.
                None if file.stat.kind == Kind::Link => match reader.read_link(&path) {
                    Ok(target) => ReadFile::Read(file.stat, writer.add(ObjectKind::Blob, &target)?),
                    Err(error) if sys::is_gone(&error) => ReadFile::Gone,
                    Err(_) => ReadFile::Skip(SkipReason::Unreadable),
                },
                None => {
                    let mut reads_first = file.may_be_known;
                    reader.read(&path, Some(self.settings.file_bytes_max()), |contents| {
                        take_in(contents, &mut writer, &mut reads_first, self.progress)
                    })?
                }
            };
            let came_to = match came_to {
                ReadFile::Read(stat, Ok(id)) if stat == file.stat => ReadResult::Unmoved(id),
                ReadFile::Read(stat, Ok(id)) => ReadResult::Moved(Box::new((stat, id))),
                ReadFile::Read(_, Err(Collision)) => ReadResult::Skip(SkipReason::Collision),
                ReadFile::Skip(why) => ReadResult::Skip(why),
                ReadFile::Gone => ReadResult::Gone,
                ReadFile::Exhausted(error) => {
                    return Err(Error::io("read", String::from_utf8_lossy(&path).as_ref(), error));
                }
            };
            self.progress.bytes_read.fetch_add(file.stat.size, Ordering::Relaxed);
            read.push(FileRead { place: *place, came_to });
        }
        Ok(read)
    }
}

type TakenIn = Option<std::result::Result<ObjectId, Collision>>;

/// Adds the contents of a file to the new objects and returns their id. `None` asks for another read: the file changed
/// meanwhile, or only its id was computed.
///
/// A large file is compressed while it is read. A large file whose contents may be unchanged is first read for its id
/// alone, and a second time only if the store does not have the contents.
pub(super) fn take_in(
    contents: Contents<'_>,
    writer: &mut Writer<'_>,
    reads_first: &mut bool,
    progress: &Progress,
) -> Result<TakenIn> {
    match contents {
        Contents::Whole(bytes) => writer.add(ObjectKind::Blob, bytes).map(Some),
        Contents::Large { size, read, .. } if std::mem::take(reads_first) => {
            Ok(match id_of_stream(size, &mut CancellableRead { read, progress }) {
                Some(Ok(id)) if !writer.has(id) => None,
                known => known,
            })
        }
        Contents::Large { size, read, is_unmoved } => {
            writer.add_stream(size, &mut CancellableRead { read, progress }, is_unmoved)
        }
    }
}

/// Reader of a large file that fails once `progress` is cancelled.
struct CancellableRead<'a> {
    read: &'a mut dyn Read,
    progress: &'a Progress,
}

impl Read for CancellableRead<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.progress.is_cancelled() { Err(io::Error::other("stopped")) } else { self.read.read(into) }
    }
}

/// Enters the ids into the manifest, and removes the files that were not read. Returns true if a file was gone, or had
/// changed after `late`.
pub(super) fn apply(
    read: Vec<Vec<FileRead>>,
    manifest: &mut Manifest,
    skipped: &mut Vec<Skipped>,
    late: Option<i128>,
) -> bool {
    let mut is_any_gone = false;
    let is_too_late = |stat: &Stat| late.is_some_and(|since| !is_settled(stat.ctime, since));
    for FileRead { place: (dir, file), came_to } in read.into_iter().flatten() {
        let dir = &mut manifest.dirs[dir as usize];
        let node = &mut dir.files[file as usize];
        match came_to {
            ReadResult::Unmoved(id) => node.id = Some(id),
            ReadResult::Moved(moved) if is_too_late(&moved.0) => {
                is_any_gone = true;
                let path = dir.path_of(&dir.files[file as usize]);
                skipped.push(Skipped::file(path, SkipReason::Changing));
            }
            ReadResult::Moved(moved) => (node.stat, node.id) = (moved.0, Some(moved.1)),
            ReadResult::Skip(why) => skipped.push(Skipped::file(dir.path_of(&dir.files[file as usize]), why)),
            ReadResult::Gone => is_any_gone = true,
        }
    }
    for dir in &mut manifest.dirs {
        dir.files.retain(|file| file.id.is_some());
    }
    is_any_gone
}

fn too_many_files() -> Error {
    Error::new(ErrorKind::Invalid, "take a checkpoint")
        .because("a directory holds more files than piton can count")
        .with_hint("name in .gitignore what need not be protected")
}
