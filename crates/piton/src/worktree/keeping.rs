//! Saves files that a command is about to destroy: by clone, by hard link or by copy, into a directory of the caller.
//!
//! The user's files are not changed: they are opened for reading only, and a hard link changes only their link count.
//! Links are not followed below the given path, and other file systems are not entered.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::progress::Progress;
use crate::relpath;
use crate::sys::{self, Dir, Kind, Stat};

/// Depth up to which directories are entered.
const DEPTH_MAX: usize = 128;
/// Number of gaps that are named one by one.
const GAPS_MAX: usize = 16;

/// How a file was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saved {
    Link,
    Clone,
    Copy,
}

/// A file, directory or link that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedEntry {
    /// Path below the given one; empty for that one itself.
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
    /// `None` for a directory or a link.
    pub(crate) saved: Option<Saved>,
    /// Target of a link.
    pub(crate) target: Vec<u8>,
}

/// Why a file could not be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsaved {
    /// A copy is needed, and there is no room for it.
    TooLarge {
        /// True if a link is not possible because it is on another file system.
        is_elsewhere: bool,
    },
    OnNetwork,
    /// It is another user's, and cannot be read.
    NotOwned,
    Unreadable,
    /// It is on a file system that is mounted below the path.
    Mounted,
    TooMany,
    OutOfTime,
    /// The directory of kept files is full or cannot be written.
    NoSpace,
    /// The setting of this name leaves it out.
    BySetting(&'static str),
}

/// A file that could not be saved. Of many, the first are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsavedFile {
    /// Path below the given one.
    pub(crate) path: Vec<u8>,
    pub(crate) why: Unsaved,
    pub(crate) bytes: u64,
}

/// Decision about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Yes,
    /// It is not lost, or held elsewhere.
    No,
    /// The setting of this name leaves it out.
    Declined(&'static str),
}

/// Limits of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SaveLimits {
    pub(crate) files_max: usize,
    /// Number of bytes that may be copied.
    pub(crate) copy_bytes_max: u64,
    /// True if a hard link protects the contents.
    pub(crate) may_link: bool,
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct SaveResult {
    /// Directories come before what is in them.
    pub(crate) entries: Vec<SavedEntry>,
    pub(crate) unsaved: Vec<UnsavedFile>,
    /// Number of files that could not be saved.
    pub(crate) unsaved_count: u64,
    pub(crate) copied_bytes: u64,
}

/// Saves the file or directory at `path` as `name` in the directory `into`. `is_wanted` decides for each path below it,
/// with its stat data; a directory that is not wanted is not entered. Fails if `path` or `into` cannot be opened.
pub(crate) fn save(
    path: &Path,
    into: &Path,
    name: &[u8],
    limits: SaveLimits,
    is_wanted: &mut dyn FnMut(&[u8], &Stat) -> Wanted,
    progress: &Progress,
) -> io::Result<SaveResult> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let own = path.file_name().map(|own| sys::path_bytes(Path::new(own)).to_vec()).unwrap_or_default();
    let (from, to) = (Dir::open(parent)?, Dir::open(into)?);
    let (from_name, stat) =
        if own.is_empty() { (b".".to_vec(), from.stat()?) } else { (own.clone(), from.stat_at(&CString::new(own)?)?) };
    let is_elsewhere = to.stat()?.dev != stat.dev;
    let mut run = SaveRun {
        limits,
        is_wanted,
        progress,
        root_dev: stat.dev,
        is_elsewhere,
        is_on_network: is_elsewhere && sys::is_on_network(path),
        cannot_clone: false,
        has_cloned: false,
        buffer: Vec::new(),
        done: SaveResult::default(),
    };
    let here = SavePlace { from: &from, to: &SaveDir::Open(&to), from_name: &from_name, to_name: name };
    run.entry(&here, &[], stat, 0);
    Ok(run.done)
}

/// Directory into which files are saved. Made when the first file needs it.
enum SaveDir<'a> {
    Open(&'a Dir),
    Later { parent: &'a SaveDir<'a>, name: &'a [u8], made: std::cell::OnceCell<Dir> },
}

impl SaveDir<'_> {
    fn dir(&self) -> io::Result<&Dir> {
        match self {
            Self::Open(dir) => Ok(dir),
            Self::Later { parent, name, made } => {
                if made.get().is_none() {
                    let parent = parent.dir()?;
                    parent.make_dir(name)?;
                    let _ = made.set(parent.open_dir(name)?);
                }
                Ok(made.get().expect("set above"))
            }
        }
    }
}

struct SavePlace<'a> {
    from: &'a Dir,
    to: &'a SaveDir<'a>,
    from_name: &'a [u8],
    to_name: &'a [u8],
}

struct SaveRun<'a> {
    limits: SaveLimits,
    is_wanted: &'a mut dyn FnMut(&[u8], &Stat) -> Wanted,
    progress: &'a Progress,
    root_dev: u64,
    is_elsewhere: bool,
    is_on_network: bool,
    cannot_clone: bool,
    has_cloned: bool,
    buffer: Vec<std::mem::MaybeUninit<u8>>,
    done: SaveResult,
}

impl SaveRun<'_> {
    fn entry(&mut self, place: &SavePlace<'_>, path: &[u8], stat: Stat, depth: usize) {
        if stat.kind == Kind::Special {
            return;
        }
        match (self.is_wanted)(path, &stat) {
            Wanted::Yes => {}
            Wanted::No => return,
            Wanted::Declined(setting) => {
                let bytes = if stat.kind == Kind::File { stat.size } else { 0 };
                return self.note(path, Unsaved::BySetting(setting), bytes);
            }
        }
        let failure = match stat.kind {
            Kind::Dir if stat.dev != self.root_dev => Some(Unsaved::Mounted),
            Kind::Dir if depth >= DEPTH_MAX => Some(Unsaved::TooMany),
            Kind::Dir => return self.directory(place, path, stat, depth),
            _ if self.progress.is_cancelled() => Some(Unsaved::OutOfTime),
            _ if self.done.entries.len() >= self.limits.files_max => Some(Unsaved::TooMany),
            Kind::Link => match place.from.read_link(&CString::new(place.from_name).unwrap_or_default()) {
                Ok(target) => {
                    self.done.entries.push(SavedEntry { path: path.to_vec(), stat, saved: None, target });
                    None
                }
                Err(_) => Some(Unsaved::Unreadable),
            },
            _ => match self.file(place, &stat) {
                Ok((saved, stat)) => {
                    self.done.entries.push(SavedEntry {
                        path: path.to_vec(),
                        stat,
                        saved: Some(saved),
                        target: Vec::new(),
                    });
                    None
                }
                Err(why) => Some(why),
            },
        };
        if let Some(why) = failure {
            self.note(path, why, stat.size);
        }
    }

    fn note(&mut self, path: &[u8], why: Unsaved, bytes: u64) {
        self.done.unsaved_count += 1;
        if self.done.unsaved.len() < GAPS_MAX {
            self.done.unsaved.push(UnsavedFile { path: path.to_vec(), why, bytes });
        }
    }

    fn directory(&mut self, place: &SavePlace<'_>, path: &[u8], stat: Stat, depth: usize) {
        let opened =
            if place.from_name == b"." { place.from.open_dir(b"") } else { place.from.open_dir(place.from_name) };
        let mut names = Vec::new();
        let listed = opened.and_then(|dir| {
            dir.for_each(&mut self.buffer, |name, _| names.push(name.to_vec()))?;
            Ok(dir)
        });
        let dir = match listed {
            Ok(dir) => dir,
            Err(error) if sys::is_gone(&error) => return,
            Err(_) => return self.note(path, Unsaved::Unreadable, 0),
        };
        let at = self.done.entries.len();
        self.done.entries.push(SavedEntry { path: path.to_vec(), stat, saved: None, target: Vec::new() });
        let to = SaveDir::Later { parent: place.to, name: place.to_name, made: std::cell::OnceCell::new() };
        names.sort_unstable();
        for name in &names {
            if self.progress.is_cancelled() {
                return self.note(path, Unsaved::OutOfTime, 0);
            }
            if self.done.entries.len() > self.limits.files_max {
                return self.note(path, Unsaved::TooMany, 0);
            }
            let Ok(stat) = CString::new(name.as_slice()).map_err(io::Error::from).and_then(|name| dir.stat_at(&name))
            else {
                continue;
            };
            let below = relpath::join(path, name);
            self.entry(&SavePlace { from: &dir, to: &to, from_name: name, to_name: name }, &below, stat, depth + 1);
        }
        // A directory of which nothing was wanted is not lost.
        if !names.is_empty() && self.done.entries.len() == at + 1 {
            self.done.entries.pop();
        }
    }

    /// Saves a file. Returns its stat data at that moment.
    fn file(&mut self, place: &SavePlace<'_>, seen: &Stat) -> Result<(Saved, Stat), Unsaved> {
        let to = place.to.dir().map_err(|_| Unsaved::NoSpace)?;
        if !self.is_elsewhere
            && !self.cannot_clone
            && let Some(stat) = self.cloned(place, to)
        {
            return Ok((Saved::Clone, stat));
        }
        let is_own = seen.uid == sys::effective_uid();
        if self.limits.may_link
            && !self.is_elsewhere
            && is_own
            && to.hard_link_from(place.from, place.from_name, place.to_name).is_ok()
        {
            let linked = CString::new(place.to_name).ok().and_then(|name| to.stat_at(&name).ok());
            // The name may have been given to another file meanwhile.
            if let Some(stat) = linked.filter(|stat| stat.kind == Kind::File && stat.uid == sys::effective_uid()) {
                return Ok((Saved::Link, stat));
            }
            let _ = to.remove(place.to_name);
        }
        if self.is_on_network {
            return Err(Unsaved::OnNetwork);
        }
        if self.done.copied_bytes.saturating_add(seen.size) > self.limits.copy_bytes_max {
            return Err(Unsaved::TooLarge { is_elsewhere: self.is_elsewhere });
        }
        let copied = self.copied(place, to, if is_own { Unsaved::Unreadable } else { Unsaved::NotOwned });
        if copied.is_err() {
            let _ = to.remove(place.to_name);
        }
        copied.map(|stat| (Saved::Copy, stat))
    }

    fn cloned(&mut self, place: &SavePlace<'_>, to: &Dir) -> Option<Stat> {
        let from = place.from.open_file(place.from_name).ok()?;
        let stat = sys::stat_file(&from).ok().filter(|stat| stat.kind == Kind::File)?;
        if to.create_clone(place.to_name, &from).ok()?.is_some() {
            self.has_cloned = true;
            return Some(stat);
        }
        // A file system that cannot clone is not asked again.
        self.cannot_clone = !self.has_cloned;
        None
    }

    /// Copies a file, in pieces so that a cancellation is noticed. The copy is synced: the command that destroys the
    /// original may be durable before it otherwise.
    fn copied(&mut self, place: &SavePlace<'_>, to: &Dir, unreadable: Unsaved) -> Result<Stat, Unsaved> {
        let mut from = place.from.open_file(place.from_name).map_err(|_| unreadable)?;
        let stat = sys::stat_file(&from).map_err(|_| unreadable)?;
        if stat.kind != Kind::File {
            return Err(unreadable);
        }
        let mut made = to.create(place.to_name).map_err(|_| Unsaved::NoSpace)?;
        let bytes = copy_all(&mut from, &mut made, stat.size, self.progress)?;
        sys::sync_file(&made).map_err(|_| Unsaved::NoSpace)?;
        self.done.copied_bytes += bytes;
        Ok(stat)
    }
}

/// Copies at most `bytes_max` bytes, and returns their number.
fn copy_all(from: &mut File, to: &mut File, bytes_max: u64, progress: &Progress) -> Result<u64, Unsaved> {
    use std::io::{Read as _, Write as _};
    let mut buffer = vec![0; 1 << 20];
    let mut left = bytes_max;
    while left > 0 {
        if progress.is_cancelled() {
            return Err(Unsaved::OutOfTime);
        }
        let most = usize::try_from(left).unwrap_or(buffer.len()).min(buffer.len());
        let read = from.read(&mut buffer[..most]).map_err(|_| Unsaved::Unreadable)?;
        if read == 0 {
            break;
        }
        to.write_all(&buffer[..read]).map_err(|_| Unsaved::NoSpace)?;
        left -= read as u64;
    }
    Ok(bytes_max - left)
}

/// Returns the stat data of a path, if there is anything. Does not follow a link at its end.
pub(crate) fn stat_of(path: &Path) -> Option<Stat> {
    sys::stat_path(path).ok()
}

/// Returns the path with all links before its last component resolved; `follow` resolves the last one, too. Returns
/// `None` if there is nothing.
pub(crate) fn resolved(path: &Path, follow: bool) -> Option<PathBuf> {
    if follow {
        return path.canonicalize().ok();
    }
    let found = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => parent.canonicalize().ok()?.join(name),
        _ => path.to_owned(),
    };
    stat_of(&found).map(|_| found)
}
