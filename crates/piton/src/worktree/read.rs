//! Reading files consistently, as of one point in time.
//!
//! A file is examined before and after it is read. If it changed meanwhile, it is read again, a few times, and then
//! skipped: half of one version and half of another is worse than nothing.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};

use crate::id::{Collision, IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::skipped::SkipReason;
use crate::sys::{self, Dir, Kind, Stat};

/// Size limit of files that are held in memory.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

const TRIES: usize = 4;

/// Reader of the files of one project, which reuses one buffer.
pub(crate) struct Reader<'a> {
    root: &'a Dir,
    buffer: Vec<u8>,
}

/// Result of reading a file.
pub(crate) enum ReadFile<T> {
    /// The file was read, with its stat data.
    Read(Stat, T),
    /// The file does not exist any more.
    Gone,
    /// The file is skipped.
    Skip(SkipReason),
    /// This process cannot open more files. That says nothing about the file: skipping it would mean skipping all
    /// others, too.
    Exhausted(io::Error),
}

/// Contents as passed to `take_in`.
pub(crate) enum Contents<'a> {
    /// Whole contents.
    Whole(&'a [u8]),
    /// Contents of `size` bytes, to be read. After the last byte, `is_unmoved` returns true if the file has not
    /// changed.
    Large { size: u64, read: &'a mut dyn Read, is_unmoved: &'a dyn Fn() -> bool },
}

impl<'a> Reader<'a> {
    pub(crate) fn new(root: &'a Dir) -> Self {
        Self { root, buffer: Vec::new() }
    }

    /// Passes the contents of a file to `take_in`, and again if the file changed meanwhile. Returns the result of the
    /// last call. `take_in` returns `None` if the bytes that it read were not the file as it was.
    ///
    /// Fails if `take_in` fails.
    pub(crate) fn read<T, E>(
        &mut self,
        path: &[u8],
        bytes_max: Option<u64>,
        mut take_in: impl FnMut(Contents<'_>) -> Result<Option<T>, E>,
    ) -> Result<ReadFile<T>, E> {
        for _ in 0..TRIES {
            let (file, before) = match self.open(path, bytes_max) {
                Ok(opened) => opened,
                Err(end) => return Ok(end),
            };
            let is_unmoved = || sys::stat_file(&file).is_ok_and(|after| is_same(&before, &after));
            let taken = if before.size > IN_MEMORY_BYTES_MAX {
                let size = before.size;
                take_in(Contents::Large { size, read: &mut (&file).take(size), is_unmoved: &is_unmoved })?
            } else {
                match self.read_whole(&file, before.size) {
                    Ok(true) => take_in(Contents::Whole(&self.buffer))?,
                    Ok(false) => None,
                    Err(_) => return Ok(ReadFile::Skip(SkipReason::Unreadable)),
                }
            };
            if let Some(taken) = taken
                && is_unmoved()
            {
                return Ok(ReadFile::Read(before, taken));
            }
        }
        Ok(ReadFile::Skip(SkipReason::Changing))
    }

    /// Returns the target of a link.
    pub(crate) fn read_link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (parent, name) = relpath::split(path);
        self.root.open_dir(parent)?.read_link(&CString::new(name)?)
    }

    /// Returns the id of a file's contents, or `None` if it cannot be read.
    pub(crate) fn id_of(&mut self, path: &[u8]) -> Option<ObjectId> {
        let mut id = |contents: Contents<'_>| {
            let (size, read): (u64, &mut dyn Read) = match contents {
                Contents::Whole(bytes) => return Ok::<_, Infallible>(IdHasher::of(ObjectKind::Blob, bytes).ok()),
                Contents::Large { size, read, .. } => (size, read),
            };
            Ok(id_of_stream(size, read).and_then(Result::ok))
        };
        match self.read(path, None, &mut id) {
            Ok(ReadFile::Read(_, id)) => Some(id),
            _ => None,
        }
    }

    fn open<T>(&self, path: &[u8], bytes_max: Option<u64>) -> Result<(File, Stat), ReadFile<T>> {
        let opened = self.root.open_file(path).and_then(|file| {
            let stat = sys::stat_file(&file)?;
            Ok((file, stat))
        });
        match opened {
            Ok((_, stat)) if stat.kind != Kind::File => Err(ReadFile::Gone),
            Ok((_, stat)) if bytes_max.is_some_and(|max| stat.size > max) => Err(ReadFile::Skip(SkipReason::TooLarge)),
            Ok(opened) => Ok(opened),
            Err(error) if sys::is_gone(&error) => Err(ReadFile::Gone),
            Err(error) if sys::is_exhausted(&error) => Err(ReadFile::Exhausted(error)),
            Err(_) => Err(ReadFile::Skip(SkipReason::Unreadable)),
        }
    }

    /// Reads the file into the buffer. Returns true if it had exactly `size` bytes.
    fn read_whole(&mut self, file: &File, size: u64) -> io::Result<bool> {
        self.buffer.clear();
        self.buffer.reserve(usize::try_from(size).map_err(io::Error::other)? + 1);
        file.take(size + 1).read_to_end(&mut self.buffer)?;
        Ok(self.buffer.len() as u64 == size)
    }
}

/// Returns true if the file was not written to between the two. Reading changes none of these fields.
fn is_same(before: &Stat, after: &Stat) -> bool {
    (before.size, before.mtime, before.ctime, before.ino) == (after.size, after.mtime, after.ctime, after.ino)
}

/// Returns the id of a stream, or `None` if it does not have exactly `size` bytes.
pub(crate) fn id_of_stream(size: u64, read: &mut dyn Read) -> Option<Result<ObjectId, Collision>> {
    let mut hasher = IdHasher::new(ObjectKind::Blob, size);
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(usize::MAX).clamp(1, 1 << 18)];
    let mut left = size;
    while left > 0 {
        let got = match read.read(&mut buffer) {
            Ok(0) => return None,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        hasher.update(&buffer[..got]);
        left = left.checked_sub(got as u64)?;
    }
    Some(hasher.finish())
}
