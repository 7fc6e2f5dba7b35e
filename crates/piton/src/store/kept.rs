//! Kept files: files that a command was about to destroy, in `local/files/`, one directory for each path.
//!
//! ```text
//! <path>.<time>.<random>/manifest   first line: a JSON object; then one line for each file, directory and link
//! <path>.<time>.<random>/data       the file; or a directory with the files, by their names
//! ```
//!
//! `<path>` is the first half of the hash of the original path, `<time>` the second in which it was kept, both in
//! hexadecimal. Files that are hard links keep their mode, owner and times; everything else is readable by its owner
//! only.
//!
//! - U6. A set gets its name after its manifest and the names in it are synced. A directory with a temporary name is
//!   never read as a set.
//! - U7. No existing file in `data` is written to or gets another mode, owner or time; it is released by unlinking it.
//! - U8. A set that cannot be read is reported, but not offered for recovery. Like any other set, it is released by age
//!   or on a full disk.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::facts::Origin;
use super::layout::Layout;
use crate::error::{Error, Result};
use crate::fsx;
use crate::json::escaped;
use crate::relpath::{escape, unescape};
use crate::sys::{self, FileTime};
use crate::time::{self, Moment};

const MANIFEST: &str = "manifest";
const DATA: &str = "data";
/// Prefix of the name of a set that is being released. It is also that of a temporary file.
const RELEASED: &str = "tmp_gone_";
/// Size limit of a manifest: 100,000 long paths.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;
/// Size limit of the first line of a manifest.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Age from which a directory with a temporary name is abandoned.
const ABANDONED_AFTER_SECS: i128 = 60 * 60;

/// How the contents of a kept file are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldBy {
    /// A hard link: later changes in place show.
    Link,
    /// A clone: shares the blocks that neither side has changed.
    Clone,
    Copy,
}

impl HeldBy {
    const ALL: [Self; 3] = [Self::Link, Self::Clone, Self::Copy];

    fn word(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Clone => "clone",
            Self::Copy => "copy",
        }
    }
}

/// Type of a kept entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptKind {
    File(HeldBy),
    Dir,
    /// A symbolic link, with its target.
    Link(Vec<u8>),
}

/// A file, directory or link of a set, as it was when it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptEntry {
    pub(crate) kind: KeptKind,
    /// Path below the original path; empty for that path itself.
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) mtime: FileTime,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl KeptEntry {
    fn encode(&self, text: &mut String) {
        let kind = match &self.kind {
            KeptKind::File(held) => held.word(),
            KeptKind::Dir => "dir",
            KeptKind::Link(_) => "symlink",
        };
        let FileTime { secs, nanos } = self.mtime;
        let Self { mode, size, dev, ino, .. } = self;
        let _ = write!(text, "{kind} {mode:o} {size} {secs} {nanos} {dev} {ino} ./{}", escape(&self.path));
        if let KeptKind::Link(target) = &self.kind {
            let _ = write!(text, " {}", escape(target));
        }
        text.push('\n');
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mode = u16::from_str_radix(words.next()?, 8).ok()?;
        let size = words.next()?.parse().ok()?;
        let mtime = FileTime { secs: words.next()?.parse().ok()?, nanos: words.next()?.parse().ok()? };
        let (dev, ino) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let path = unescape(words.next()?.strip_prefix("./")?.as_bytes())?;
        // A name that leads out of the set.
        if path.split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b"..")) || path.starts_with(b"/") {
            return None;
        }
        let kind = match kind {
            "dir" => KeptKind::Dir,
            "symlink" => KeptKind::Link(unescape(words.next()?.as_bytes())?),
            _ => KeptKind::File(HeldBy::ALL.into_iter().find(|held| held.word() == kind)?),
        };
        Some(Self { kind, path, mode, size, mtime, dev, ino })
    }
}

/// First line of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptHeader {
    /// Original path.
    #[serde(with = "escaped::path")]
    pub(crate) path: PathBuf,
    #[serde(flatten, with = "time::parts")]
    pub(crate) time: Moment,
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// Command that was about to destroy it, shortened.
    pub(crate) reason: String,
    /// Number of files and links.
    pub(crate) files: u64,
    /// Sum of their sizes.
    pub(crate) bytes: u64,
    /// Number of those bytes that were copied, and take additional space.
    pub(crate) copied_bytes: u64,
    /// False if files of the path were left out.
    pub(crate) is_whole: bool,
}

/// A set of kept files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptSet {
    /// Name of its directory.
    pub(crate) name: String,
    pub(crate) header: KeptHeader,
}

impl KeptSet {
    /// Returns its name as users see it.
    pub(crate) fn id(&self) -> String {
        id_of(&self.name)
    }
}

/// Returns the name of the set in this directory as users see it.
pub(crate) fn id_of(name: &str) -> String {
    format!("k-{}", name.rsplit('.').next().unwrap_or(name))
}

/// A set under construction. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct KeptDraft {
    dir: tempfile::TempDir,
}

impl KeptDraft {
    /// Returns the directory in which the caller creates `data`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the name of the file or directory that the caller creates there.
    pub(crate) fn data_name() -> &'static [u8] {
        DATA.as_bytes()
    }
}

/// The kept files of a base.
#[derive(Debug, Clone)]
pub(crate) struct KeptFiles {
    pub(super) layout: Arc<Layout>,
}

impl KeptFiles {
    /// Returns the names of all sets. Cheap if there are none.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.layout.kept_files()).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| time_in(name).is_some()).collect();
        names.sort_by_key(|name| std::cmp::Reverse(time_in(name)));
        names
    }

    /// Returns all sets that can be read, the newest first.
    pub(crate) fn sets(&self) -> Vec<KeptSet> {
        newest_first(self.names().into_iter().filter_map(|name| self.set(name).ok()).collect())
    }

    /// Returns the sets of this path, the newest first.
    pub(crate) fn sets_of(&self, path: &Path) -> Vec<KeptSet> {
        let prefix = format!("{}.", hash_of(path));
        let names = self.names().into_iter().filter(|name| name.starts_with(&prefix));
        newest_first(names.filter_map(|name| self.set(name).ok()).filter(|set| set.header.path == path).collect())
    }

    /// Returns the set with this name, as users see it.
    pub(crate) fn find(&self, id: &str) -> Option<KeptSet> {
        self.names().into_iter().find(|name| id_of(name) == id).and_then(|name| self.set(name).ok())
    }

    /// Reads the first line of a manifest.
    pub(crate) fn set(&self, name: String) -> Result<KeptSet> {
        use std::io::BufRead as _;
        let path = self.layout.kept_set(&name).join(MANIFEST);
        let read = || {
            let file = fs::File::open(&path)?;
            let mut line = String::new();
            std::io::BufReader::new(std::io::Read::take(file, HEADER_BYTES_MAX as u64)).read_line(&mut line)?;
            Ok(line)
        };
        let line = read().map_err(|error: std::io::Error| Error::io("read", &path, error))?;
        let header = serde_json::from_str(&line).map_err(|_| damaged(&path))?;
        Ok(KeptSet { name, header })
    }

    /// Returns the entries of a set, directories before what is in them.
    pub(crate) fn entries(&self, name: &str) -> Result<Vec<KeptEntry>> {
        let path = self.layout.kept_set(name).join(MANIFEST);
        let bytes = fsx::read_small(&path, MANIFEST_BYTES_MAX)?.ok_or_else(|| damaged(&path))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged(&path))?;
        let entries = text.lines().skip(1).map(KeptEntry::decode).collect::<Option<Vec<_>>>();
        entries.filter(|_| text.ends_with('\n')).ok_or_else(|| damaged(&path))
    }

    /// Returns the path of an entry's contents.
    pub(crate) fn contents(&self, name: &str, entry: &[u8]) -> PathBuf {
        let data = self.layout.kept_set(name).join(DATA);
        if entry.is_empty() { data } else { data.join(sys::name_from_bytes(entry)) }
    }

    /// Begins a set.
    pub(crate) fn begin(&self) -> Result<KeptDraft> {
        let dir = self.layout.kept_files();
        fsx::ensure_dir(&dir)?;
        let made =
            tempfile::Builder::new().prefix(fsx::TEMP_PREFIX).permissions(sys::permissions(0o700)).tempdir_in(&dir);
        Ok(KeptDraft { dir: made.map_err(|error| Error::io("make a directory in", &dir, error))? })
    }

    /// Gives a complete set its name. (U6)
    pub(crate) fn publish(&self, draft: KeptDraft, header: &KeptHeader, entries: &[KeptEntry]) -> Result<KeptSet> {
        let text = list_text(header, entries);
        let path = draft.dir().join(MANIFEST);
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.set_permissions(sys::permissions(0o600))?;
            file.write_all(text.as_bytes())?;
            sys::sync_file(&file)
        };
        write().map_err(|error| Error::io("write", &path, error))?;
        fsx::sync_dir(draft.dir())?;
        let secs = u64::try_from(header.time.secs).unwrap_or(0);
        let unique = draft.dir().file_name().map(|name| sys::path_bytes(Path::new(name)).to_vec()).unwrap_or_default();
        let unique = &hash(&[&unique[..], text.as_bytes()].concat())[..8];
        let name = format!("{}.{secs:010x}.{unique}", hash_of(&header.path));
        let to = self.layout.kept_set(&name);
        fs::rename(draft.dir(), &to).map_err(|error| Error::io("rename", &to, error))?;
        // It has another name now.
        let _ = draft.dir.keep();
        fsx::sync_dir(&self.layout.kept_files())?;
        Ok(KeptSet { name, header: header.clone() })
    }

    /// Replaces the list of a set by one with these entries.
    pub(super) fn replace_list(&self, set: &KeptSet, entries: &[KeptEntry]) -> Result<()> {
        let path = self.layout.kept_set(&set.name).join(MANIFEST);
        fsx::replace(&path, list_text(&set.header, entries).as_bytes(), fsx::Durability::Synced)
    }

    /// Removes a set. Unlinks its files, and changes nothing else of them. (U7)
    pub(crate) fn release(&self, name: &str) -> Result<()> {
        let path = self.layout.kept_set(name);
        let gone = self.layout.kept_set(&format!("{RELEASED}{name}"));
        match fs::rename(&path, &gone) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(|error| Error::io("remove", &path, error))?,
        }
        remove_released(&gone)
    }

    /// Removes sets whose release was interrupted.
    pub(crate) fn finish_releases(&self) -> Result<()> {
        let dir = self.layout.kept_files();
        let names = fsx::names_in(&dir)?;
        let mut released = names.iter().filter(|name| name.as_encoded_bytes().starts_with(RELEASED.as_bytes()));
        released.try_for_each(|name| remove_released(&dir.join(name)))
    }

    /// Returns the number of bytes that a release of the set frees: copies, and files that have no other name left.
    pub(crate) fn bytes_held(&self, set: &KeptSet) -> u64 {
        let entries = self.entries(&set.name).unwrap_or_default();
        let held = entries.iter().map(|entry| match entry.kind {
            KeptKind::File(HeldBy::Copy) => entry.size,
            KeptKind::File(HeldBy::Link) => {
                let found = fs::symlink_metadata(self.contents(&set.name, &entry.path));
                found.map_or(0, |found| if sys::link_count(&found) == 1 { found.len() } else { 0 })
            }
            _ => 0,
        });
        held.sum()
    }

    /// Returns the space of the disk that the kept files are on.
    pub(crate) fn disk_space(&self) -> Option<sys::DiskSpace> {
        sys::disk_space(self.layout.base()).ok()
    }

    /// Removes the leftovers of killed processes.
    pub(crate) fn sweep(&self, now: Moment) {
        let dir = self.layout.kept_files();
        for name in fsx::names_in(&dir).unwrap_or_default() {
            let path = dir.join(&name);
            let is_temporary = name.as_encoded_bytes().starts_with(fsx::TEMP_PREFIX.as_bytes());
            if is_temporary && fsx::is_older(&path, ABANDONED_AFTER_SECS, now) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }

    /// Removes everything. (U7)
    pub(crate) fn remove_all(&self) -> Result<()> {
        let dir = self.layout.kept_files();
        for name in self.names() {
            self.release(&name)?;
        }
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &dir, error)),
            _ => Ok(()),
        }
    }
}

fn newest_first(mut sets: Vec<KeptSet>) -> Vec<KeptSet> {
    sets.sort_by(|a, b| (b.header.time, &b.name).cmp(&(a.header.time, &a.name)));
    sets
}

/// Removes a set that is being released. Another process may do the same.
fn remove_released(gone: &Path) -> Result<()> {
    match fs::remove_dir_all(gone) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", gone, error)),
        _ => Ok(()),
    }
}

fn list_text(header: &KeptHeader, entries: &[KeptEntry]) -> String {
    let mut text = serde_json::to_string(header).expect("plain data");
    text.push('\n');
    entries.iter().for_each(|entry| entry.encode(&mut text));
    text
}

/// Returns the time in the name of a set, in seconds since 1970. Returns `None` if it is no such name.
pub(crate) fn time_in(name: &str) -> Option<i64> {
    let mut parts = name.split('.');
    let (hash, time, unique) = (parts.next()?, parts.next()?, parts.next()?);
    let is_set = hash.len() == 32 && unique.len() == 8 && parts.next().is_none();
    i64::from_str_radix(time, 16).ok().filter(|_| is_set)
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hash_of(path: &Path) -> String {
    hash(sys::path_bytes(path))
}

fn damaged(path: &Path) -> Error {
    Error::damaged(format!("read {}", path.display()), "it is not a list of kept files")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::{NOW, store};

    fn header(path: &str) -> KeptHeader {
        let (path, reason) = (PathBuf::from(path), "rm x".to_owned());
        let origin = Origin { agent: Some("claude".to_owned()), ..Origin::default() };
        KeptHeader { path, time: NOW, origin, reason, files: 1, bytes: 3, copied_bytes: 3, is_whole: true }
    }

    fn entry(path: &[u8], kind: KeptKind) -> KeptEntry {
        let mtime = FileTime { secs: -5, nanos: 7 };
        KeptEntry { kind, path: path.to_vec(), mode: 0o640, size: 3, mtime, dev: 1, ino: u64::MAX }
    }

    /// U6.
    #[test]
    fn a_set_is_there_when_it_is_complete_and_its_entries_come_back() {
        let temp = tempfile::tempdir().expect("a directory");
        let kept = store(&temp).kept;
        let draft = kept.begin().expect("a draft");
        fs::write(draft.dir().join(DATA), "abc").expect("a file");
        assert_eq!(kept.names(), [] as [String; 0], "a draft is not a set");
        let entries = [
            entry(b"", KeptKind::Dir),
            entry(b"a \xff\n", KeptKind::File(HeldBy::Copy)),
            entry(b"l", KeptKind::Link(b"to a".to_vec())),
        ];
        let set = kept.publish(draft, &header("/x/y z"), &entries).expect("a set");
        assert_eq!(kept.sets(), std::slice::from_ref(&set));
        assert_eq!(kept.sets_of(Path::new("/x/y z")), std::slice::from_ref(&set));
        assert_eq!(kept.sets_of(Path::new("/x")), []);
        assert_eq!(kept.entries(&set.name).expect("entries"), entries);
        assert_eq!(kept.find(&set.id()), Some(set.clone()));
        drop(kept.begin().expect("a draft"));
        assert_eq!(fsx::names_in(&kept.layout.kept_files()).expect("names").len(), 1, "a dropped draft is gone");
        kept.release(&set.name).expect("released");
        assert_eq!(fsx::names_in(&kept.layout.kept_files()).expect("names").len(), 0);
    }

    /// U8.
    #[test]
    fn a_manifest_that_is_damaged_or_leads_out_of_its_set_is_refused() {
        let temp = tempfile::tempdir().expect("a directory");
        let kept = store(&temp).kept;
        let publish = || kept.publish(kept.begin().expect("a draft"), &header("/x"), &[entry(b"a", KeptKind::Dir)]);
        let set = publish().expect("a set");
        let manifest = kept.layout.kept_set(&set.name).join(MANIFEST);
        let whole = fs::read_to_string(&manifest).expect("a manifest");
        for (from, to) in [("./a", "./../a"), ("./a", "./%2e%2e/a"), ("./a", ".//a"), ("dir", "door"), ("./a\n", "./a")]
        {
            fs::write(&manifest, whole.replace(from, to)).expect("a file");
            assert!(kept.entries(&set.name).is_err(), "{to}");
        }
        fs::write(&manifest, "{}").expect("a file");
        assert_eq!((kept.sets(), kept.names().len()), (Vec::new(), 1), "it is not offered, and counted");
    }
}
