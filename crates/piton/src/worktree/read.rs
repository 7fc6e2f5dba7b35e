//! Reading files so that what is kept is what was there at one moment.
//!
//! A file is asked about before and after it is read. If it moved meanwhile it is read again, a few times, and then
//! left out: half of one version and half of another is worse than nothing.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};

use crate::id::{Collision, IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::skipped::SkipReason;
use crate::sys::{self, Dir, Kind, Stat};

/// Larger files are not held in memory.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

const TRIES: usize = 4;

/// Reads the files of one project, one after the other, with the same buffer.
pub(crate) struct Reader<'a> {
    root: &'a Dir,
    buffer: Vec<u8>,
}

/// What reading a file came to.
pub(crate) enum ReadFile<T> {
    /// Read, with what the file system said of the file before and after.
    Read(Stat, T),
    /// It is not there any more.
    Gone,
    /// Left out.
    Skip(SkipReason),
    /// No fault of the file's: this process can open no more. To leave it out would be to leave out everything.
    Exhausted(io::Error),
}

/// How `take_in` received the contents.
pub(crate) enum Contents<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// To be read; of that many bytes. `is_unmoved` tells, when all of it was read, if the file is what it was before.
    Large { size: u64, read: &'a mut dyn Read, is_unmoved: &'a dyn Fn() -> bool },
}

impl<'a> Reader<'a> {
    pub(crate) fn new(root: &'a Dir) -> Self {
        Self { root, buffer: Vec::new() }
    }

    /// Gives the contents of a file to `take_in`, again if the file moved meanwhile. What the last call returned stands;
    /// `None` from it means that what it read was not the file as it was.
    ///
    /// `take_in` may fail for reasons of its own; its error ends everything.
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

    /// Where a link leads.
    pub(crate) fn read_link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (parent, name) = relpath::split(path);
        self.root.open_dir(parent)?.read_link(&CString::new(name)?)
    }

    /// The id that the contents of a file would have. None where it cannot be read.
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

    /// Returns whether the file had exactly `size` bytes.
    fn read_whole(&mut self, file: &File, size: u64) -> io::Result<bool> {
        self.buffer.clear();
        self.buffer.reserve(usize::try_from(size).map_err(io::Error::other)? + 1);
        file.take(size + 1).read_to_end(&mut self.buffer)?;
        Ok(self.buffer.len() as u64 == size)
    }
}

/// Returns whether nobody wrote to the file between the two. Being read may change neither.
fn is_same(before: &Stat, after: &Stat) -> bool {
    (before.size, before.mtime, before.ctime, before.ino) == (after.size, after.mtime, after.ctime, after.ino)
}

/// The id of contents that come piece by piece. `None` where there were not `size` bytes to be had.
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
