//! A directory as a bucket: on another disk, or a network file system. Objects are synced before they get their names.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{Bucket, ObjectInfo};
use crate::error::{RemoteError, RemoteErrorKind, Result};

/// Prefix of temporary files, which listings leave out until they are abandoned.
const TEMPORARY: &str = ".tmp-";
/// Directories in which abandoned temporary files are listed, as objects to which nothing refers: a collection deletes them.
const LARGE: [&str; 2] = ["pack", "idx"];
/// Seconds without a write after which a temporary file is abandoned: the process was killed.
const ABANDONED_SECS: u64 = 24 * 60 * 60;
/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Returns the error for an operation on the bucket: `Denied` if the file system does not permit it, `Full` if it has no
/// room.
fn failed(what: &str, path: &Path, error: &io::Error) -> RemoteError {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (RemoteErrorKind::Denied, "give this user the right to read and write in that directory")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (RemoteErrorKind::Full, "free space on that disk; the next push goes on from here")
        }
        _ => return RemoteError::io(what, path, error),
    };
    RemoteError { kind, ..RemoteError::io(what, path, error) }.hint(hint)
}

/// A bucket in a directory.
pub(super) struct DirectoryBucket {
    root: PathBuf,
}

impl DirectoryBucket {
    /// Opens a directory. Fails with `Unavailable` if it does not exist.
    pub(super) fn open(root: &Path) -> Result<Self> {
        if root.is_dir() {
            return Ok(Self { root: root.to_owned() });
        }
        let what = format!("open the remote: {} is not a directory", root.display());
        Err(RemoteError::new(RemoteErrorKind::Unavailable, what)
            .hint("is the disk mounted? Nothing is lost: the next push sends what is missing there"))
    }

    /// Creates a directory if its parent exists: a missing parent is a disk that is not mounted.
    pub(super) fn create(root: &Path) -> Result<()> {
        if root.is_dir() {
            return Ok(());
        }
        fs::create_dir(root).map_err(|error| match failed("create", root, &error) {
            denied if denied.kind == RemoteErrorKind::Denied => denied,
            other => other.hint("is the disk mounted? The directory around it must exist"),
        })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn write(&self, key: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        let path = self.path(key);
        let dir = path.parent().unwrap_or(&self.root);
        let written = (|| {
            // The root itself is not created: it is gone with the disk that it was on.
            fs::metadata(&self.root)?;
            fs::create_dir_all(dir)?;
            let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(dir)?;
            fill(file.as_file_mut())?;
            piton::sync_file(file.as_file())?;
            file.persist(&path).map_err(|error| error.error)?;
            piton::sync_file(&File::open(dir)?)
        })();
        written.map_err(|error| failed("write", &path, &error))
    }

    fn info(&self, path: &Path) -> Option<ObjectInfo> {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let key = path.strip_prefix(&self.root).ok()?.to_str()?.to_owned();
        Some(ObjectInfo { key, bytes: found.len(), modified_secs: i64::try_from(modified).unwrap_or(i64::MAX) })
    }

    fn walk(&self, dir: &Path, found: &mut Vec<ObjectInfo>) -> io::Result<()> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.walk(&entry.path(), found)?;
            } else if !entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes())
                || LARGE.iter().any(|name| dir == self.root.join(name)) && is_abandoned(&entry)
            {
                // One that was removed meanwhile has no metadata.
                found.extend(self.info(&entry.path()));
            }
        }
        Ok(())
    }

    fn open_file(&self, key: &str) -> Result<Option<File>> {
        let path = self.path(key);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }
}

/// Returns true for a file that was not written for long. A clock that is behind makes it look younger.
fn is_abandoned(entry: &fs::DirEntry) -> bool {
    let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|modified| modified.elapsed().ok());
    age.is_some_and(|age| age.as_secs() > ABANDONED_SECS)
}

impl Bucket for DirectoryBucket {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open_file(key)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| failed("read", &self.path(key), &error))?;
        Ok(Some(bytes))
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open_file(key)? else { return Ok(None) };
        let length = usize::try_from(range.end - range.start).map_err(|_| RemoteError::damaged(key, "too large"))?;
        let mut bytes = vec![0; length];
        let read = file.seek(io::SeekFrom::Start(range.start)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|_| RemoteError::damaged(key, "it is shorter than it was"))?;
        Ok(Some(bytes))
    }

    fn put(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        self.write(key, |file| file.write_all(&bytes))
    }

    fn put_file(&self, key: &str, file: &Path, sent: &mut dyn FnMut(u64)) -> Result<()> {
        self.write(key, |into| {
            let mut from = File::open(file)?;
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                let got = from.read(&mut piece)?;
                if got == 0 {
                    return Ok(());
                }
                into.write_all(&piece[..got])?;
                sent(got as u64);
            }
        })
    }

    fn head(&self, key: &str) -> Result<Option<ObjectInfo>> {
        Ok(self.info(&self.path(key)))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let dir = self.path(prefix);
        let mut found = Vec::new();
        self.walk(&dir, &mut found).map_err(|error| failed("list", &dir, &error))?;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, &error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of Linux.
    #[cfg(target_os = "linux")]
    #[test]
    fn errors_say_what_to_do_and_name_no_temporary_file() {
        for (number, kind) in [(28, RemoteErrorKind::Full), (122, RemoteErrorKind::Full), (30, RemoteErrorKind::Denied)]
        {
            let error = failed("write", "/x".as_ref(), &io::Error::from_raw_os_error(number));
            assert!(error.kind == kind && error.hint.is_some(), "{error:?}");
        }
        let missing = tempfile::tempfile_in("/nowhere/at/all").expect_err("no directory");
        let named = tempfile::NamedTempFile::new_in("/nowhere/at/all").expect_err("no directory");
        for error in [missing, named] {
            let text = failed("write", "/x".as_ref(), &error).to_string();
            assert_eq!(text, "cannot write /x: No such file or directory (os error 2)");
        }
    }
}
