//! Results and stat data of the last capture. They can be rebuilt, and are not synced.

use std::fs::File;
use std::io::Read as _;

use super::{GitStateMoment, GitStateRecord, GitStates, STATE_BYTES_MAX};
use crate::error::Result;
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};

const VERSION: &str = "3";
/// Enough for the cache of a repository of usual size, so that it is read at once.
const FIRST_READ_BYTES: usize = 64 << 10;

/// Results and stat data of the last capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GitStateCache {
    /// State at that time.
    pub(crate) state: Option<ObjectId>,
    /// Number of bytes that were copied, because they could not be linked.
    pub(crate) copied_bytes: u64,
    /// Directories of the repository, as the caller encodes them.
    pub(crate) place: Vec<u8>,
    /// Stat data of the directories of small files.
    pub(crate) dirs: Vec<u8>,
    /// Stat data of small files that every capture stats.
    pub(crate) files: Vec<u8>,
    /// Stat data of the directories of objects.
    pub(crate) objects: Vec<u8>,
    /// Stat data of small files that are not statted as long as nothing else changed. Read by
    /// [`GitStates::whole_cache`] only.
    pub(crate) unwatched: Vec<u8>,
}

impl GitStates {
    /// Returns the cache of the last capture, without `unwatched`. An unreadable cache counts as empty.
    pub(crate) fn cache(&self, project: &ProjectId) -> GitStateCache {
        let read = || {
            let mut file = File::open(self.dir(project).join("cache")).ok()?;
            let mut bytes = vec![0; FIRST_READ_BYTES];
            let read = file.read(&mut bytes).ok()?;
            bytes.truncate(read);
            let lengths = GitStateCache::lengths(&bytes)?;
            let missing = lengths.front().checked_sub(bytes.len() as u64);
            let missing = missing.filter(|missing| *missing <= STATE_BYTES_MAX).unwrap_or(0);
            file.take(missing).read_to_end(&mut bytes).ok()?;
            GitStateCache::decode(&bytes)
        };
        read().unwrap_or_default()
    }

    /// Like [`Self::cache`], but including `unwatched`.
    pub(crate) fn whole_cache(&self, project: &ProjectId) -> GitStateCache {
        let bytes = fsx::read_small(&self.dir(project).join("cache"), STATE_BYTES_MAX).ok().flatten();
        let decode = |bytes: Vec<u8>| {
            let at = usize::try_from(GitStateCache::lengths(&bytes)?.front()).ok()?;
            Some(GitStateCache { unwatched: bytes.get(at..)?.to_vec(), ..GitStateCache::decode(&bytes)? })
        };
        bytes.and_then(decode).unwrap_or_default()
    }

    pub(crate) fn save_cache(&self, project: &ProjectId, cache: &GitStateCache) -> Result<()> {
        fsx::replace(&self.dir(project).join("cache"), &cache.encode(), Durability::Rebuildable)
    }

    /// Removes the cache, so that the next capture reads and holds everything.
    pub(super) fn drop_cache(&self, project: &ProjectId) -> Result<()> {
        fsx::remove_file(&self.dir(project).join("cache"))
    }

    /// Returns the checkpoint of the last line in the log, and true if it is a row.
    pub(crate) fn logged(&self, project: &ProjectId) -> Option<(CheckpointId, bool)> {
        let bytes = fsx::read_small(&self.dir(project).join("logged"), 100).ok().flatten()?;
        let (id, is_row) = std::str::from_utf8(&bytes).ok()?.trim_end().split_once(' ')?;
        Some((ObjectId::from_hex(id.as_bytes())?, is_row == "row"))
    }

    /// Notes the checkpoint of a line that was added to the log. Without the note, the next capture adds one more.
    pub(super) fn note_logged(&self, project: &ProjectId, record: &GitStateRecord) {
        let path = self.dir(project).join("logged");
        let text = record.checkpoint.map(|id| {
            let moment = if record.moment == GitStateMoment::Row { "row" } else { "within" };
            format!("{id} {moment}\n")
        });
        let _ = fsx::replace(&path, text.unwrap_or_default().as_bytes(), Durability::Rebuildable);
    }
}

impl GitStateCache {
    /// Encodes a line with the version, the state, the number of bytes copied and the lengths of all parts but the
    /// last, followed by the parts.
    fn encode(&self) -> Vec<u8> {
        let state = self.state.map_or_else(|| "-".to_owned(), |id| id.to_string());
        let Self { copied_bytes, place, dirs, files, objects, unwatched, .. } = self;
        let lengths = [place, dirs, files, objects].map(|part| part.len().to_string()).join(" ");
        let head = format!("{VERSION} {state} {copied_bytes} {lengths}\n");
        [head.as_bytes(), place, dirs, files, objects, unwatched].concat()
    }

    fn lengths(bytes: &[u8]) -> Option<PartLengths<'_>> {
        let at = bytes.iter().position(|byte| *byte == b'\n')?;
        let mut words = std::str::from_utf8(&bytes[..at]).ok()?.split(' ');
        (words.next()? == VERSION).then_some(())?;
        let (state, copied_bytes) = (words.next()?, words.next()?.parse().ok()?);
        let mut length = || words.next()?.parse::<u32>().ok();
        let parts = [length()?, length()?, length()?, length()?];
        Some(PartLengths { head: at + 1, state, copied_bytes, parts })
    }

    /// Decodes everything but `unwatched`, which may be missing.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let PartLengths { head, state, copied_bytes, parts } = Self::lengths(bytes)?;
        let mut rest = &bytes[head..];
        let mut part = |length: u32| {
            let (part, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            Some(part.to_vec())
        };
        let [place, dirs, files, objects] = [part(parts[0])?, part(parts[1])?, part(parts[2])?, part(parts[3])?];
        let state = ObjectId::from_hex(state.as_bytes());
        Some(Self { state, copied_bytes, place, dirs, files, objects, unwatched: Vec::new() })
    }
}

/// First line of an encoded cache.
struct PartLengths<'a> {
    /// Length of the line.
    head: usize,
    state: &'a str,
    copied_bytes: u64,
    parts: [u32; 4],
}

impl PartLengths<'_> {
    /// Returns the number of bytes before the last part.
    fn front(&self) -> u64 {
        self.head as u64 + self.parts.iter().map(|part| u64::from(*part)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_comes_back_as_it_was_written_and_a_torn_one_is_none() {
        let part = |text: &[u8]| text.to_vec();
        let state = Some(ObjectId::from_bytes([7; 20]));
        let (place, dirs, files, objects) = (part(b"/a\0"), part(b"\n\xff"), part(b""), part(b"objects"));
        let unwatched = part(b"refs\n");
        let cache = GitStateCache { state, copied_bytes: 5, place, dirs, files, objects, unwatched };
        let bytes = cache.encode();
        let front = usize::try_from(GitStateCache::lengths(&bytes).expect("lengths").front()).expect("small");
        assert_eq!(&bytes[front..], b"refs\n");
        let without = GitStateCache { unwatched: Vec::new(), ..cache };
        assert_eq!(GitStateCache::decode(&bytes).as_ref(), Some(&without));
        assert_eq!(GitStateCache::decode(&bytes[..front]), Some(without));
        assert_eq!(GitStateCache::decode(&bytes[..front - 1]), None);
        assert_eq!(GitStateCache::decode(b"2 - - 0 0 0\n"), None);
    }

    #[test]
    fn a_long_cache_is_read_to_the_part_that_is_needed_and_whole() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = crate::store::kit::store(&temp);
        let project = ProjectId::of(std::path::Path::new("/p"));
        let states = &store.git_states;
        std::fs::create_dir_all(states.dir(&project)).expect("a directory");
        for length in [10, FIRST_READ_BYTES, 3 * FIRST_READ_BYTES] {
            let (dirs, unwatched) = (vec![b'd'; length], vec![b'u'; length]);
            let cache = GitStateCache { dirs, unwatched, ..GitStateCache::default() };
            states.save_cache(&project, &cache).expect("written");
            assert_eq!(states.whole_cache(&project), cache);
            assert_eq!(states.cache(&project), GitStateCache { unwatched: Vec::new(), ..cache });
        }
    }
}
