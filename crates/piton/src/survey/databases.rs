//! SQLite databases among local files. A database and its log are saved as of one moment, or reported as in use.
//!
//! The times of a file have a coarse clock: two writes within a tick look like one. So a set of files counts as whole if
//! nothing changed since well before the survey, or if two readings in a row, one after the other, have the same
//! contents: it had them at every moment in between.

use std::collections::{BTreeSet, HashSet};

use super::reading::take_in;
use crate::error::Result;
use crate::local_report::LocalReport;
use crate::progress::Progress;
use crate::store::{NewObjects, Writer};
use crate::sys::{self, Dir, Kind};
use crate::time::Moment;
use crate::worktree::{
    FileReading, Manifest, ReadFile, Reader, database_of, database_set, is_database, is_settled, stat_path,
};

/// Number of attempts to read a database before it counts as in use.
const READINGS_MAX: u32 = 4;

/// Files of a database that were read: each path with its contents, or `None` if it is missing.
type SetRead = Vec<FileReading>;

/// Reads databases again until each is consistent. Those that keep changing are removed from the manifest and reported.
/// `read` are the files that this survey has read.
pub(super) fn settle_databases(
    root: &Dir,
    manifest: &mut Manifest,
    read: &HashSet<Vec<u8>>,
    new_objects: &NewObjects,
    bytes_max: u64,
    now: Moment,
    report: &mut LocalReport,
) -> Result<()> {
    let mut databases = BTreeSet::new();
    for (path, _) in manifest.all_files().filter(|(_, file)| file.stat.kind == Kind::File) {
        if let Some(database) = database_of(&path) {
            databases.insert(database.to_vec());
        } else if read.contains(&path) && is_database(root, &path) {
            databases.insert(path);
        }
    }
    // A file that moved each time it was read is missing in the manifest.
    databases.extend(report.unread.iter().filter(|path| is_database(root, path)).cloned());
    databases.extend(report.unread.iter().filter_map(|path| database_of(path)).map(<[u8]>::to_vec));
    for database in databases {
        let set = database_set(&database);
        if is_unmoved(root, manifest, &set, now) {
            continue;
        }
        report.unread.retain(|path| !set.contains(path));
        match read_set(root, &set, new_objects, bytes_max)? {
            Some(files) => manifest.replace_files(&files),
            None => {
                manifest.replace_files(&set.map(|path| (path, None)));
                report.in_use.push(database);
            }
        }
    }
    Ok(())
}

/// Returns true if the files are as the manifest has them, and did not change recently.
fn is_unmoved(root: &Dir, manifest: &Manifest, set: &[Vec<u8>], now: Moment) -> bool {
    let known: Vec<_> = manifest.all_files().filter(|(path, _)| set.contains(path)).collect();
    set.iter().all(|path| {
        let known = known.iter().find(|(known, _)| known == path).map(|(_, file)| file.stat);
        match (stat_path(root, path), known) {
            (Ok(stat), Some(known)) => stat == known && is_settled(stat.ctime, now.as_nanos()),
            (Err(error), None) => sys::is_gone(&error),
            _ => false,
        }
    })
}

/// Reads a set until two consecutive reads agree. Returns `None` if none do.
fn read_set(root: &Dir, set: &[Vec<u8>], new_objects: &NewObjects, bytes_max: u64) -> Result<Option<SetRead>> {
    let mut writer = new_objects.writer();
    let mut last: Option<SetRead> = None;
    for _ in 0..READINGS_MAX {
        let read = read_once(root, set, &mut writer, bytes_max)?;
        let ids = |read: &SetRead| read.iter().map(|(_, file)| file.map(|(_, id)| id)).collect::<Vec<_>>();
        match (&last, &read) {
            (Some(before), Some(after)) if ids(before) == ids(after) => return Ok(read),
            _ => last = read,
        }
    }
    Ok(None)
}

/// Reads a set once. Returns `None` if a file changed while it was read.
fn read_once(root: &Dir, set: &[Vec<u8>], writer: &mut Writer<'_>, bytes_max: u64) -> Result<Option<SetRead>> {
    let mut reader = Reader::new(root);
    let progress = Progress::default();
    let mut files = SetRead::new();
    for path in set {
        let mut reads_first = false;
        let read =
            reader.read(path, Some(bytes_max), |contents| take_in(contents, writer, &mut reads_first, &progress))?;
        files.push(match read {
            ReadFile::Read(stat, Ok(id)) => (path.clone(), Some((stat, id))),
            ReadFile::Gone => (path.clone(), None),
            ReadFile::Read(_, Err(_)) | ReadFile::Skip(_) | ReadFile::Exhausted(_) => return Ok(None),
        });
    }
    Ok(Some(files))
}
