//! Results and stat data of the last capture. They can be rebuilt, and are not synced.

use super::{GitStateMoment, GitStateRecord, GitStates, STATE_BYTES_MAX};
use crate::error::Result;
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};

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
    /// Stat data of small files.
    pub(crate) files: Vec<u8>,
    /// Stat data of the directories of objects.
    pub(crate) objects: Vec<u8>,
}

impl GitStates {
    /// Returns the cache of the last capture. An unreadable one is as good as none.
    pub(crate) fn cache(&self, project: &ProjectId) -> GitStateCache {
        let bytes = fsx::read_small(&self.dir(project).join("cache"), STATE_BYTES_MAX).ok().flatten();
        bytes.and_then(|bytes| GitStateCache::decode(&bytes)).unwrap_or_default()
    }

    pub(crate) fn save_cache(&self, project: &ProjectId, cache: &GitStateCache) -> Result<()> {
        fsx::replace(&self.dir(project).join("cache"), &cache.encode(), Durability::Rebuildable)
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
    /// A line with the version, the state, the bytes copied and the lengths of the parts, and the parts themselves.
    fn encode(&self) -> Vec<u8> {
        let state = self.state.map_or_else(|| "-".to_owned(), |id| id.to_string());
        let Self { copied_bytes, place, dirs, files, objects, .. } = self;
        let head = format!("2 {state} {copied_bytes} {} {} {}\n", place.len(), dirs.len(), files.len());
        [head.as_bytes(), place, dirs, files, objects].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let at = bytes.iter().position(|byte| *byte == b'\n')?;
        let (head, rest) = (std::str::from_utf8(&bytes[..at]).ok()?, &bytes[at + 1..]);
        let mut words = head.split(' ');
        (words.next()? == "2").then_some(())?;
        let state = ObjectId::from_hex(words.next()?.as_bytes());
        let copied_bytes = words.next()?.parse().ok()?;
        let mut length = || words.next()?.parse::<usize>().ok();
        let (place, rest) = rest.split_at_checked(length()?)?;
        let (dirs, rest) = rest.split_at_checked(length()?)?;
        let (files, objects) = rest.split_at_checked(length()?)?;
        let [place, dirs, files, objects] = [place, dirs, files, objects].map(<[u8]>::to_vec);
        Some(Self { state, copied_bytes, place, dirs, files, objects })
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
        let cache = GitStateCache { state, copied_bytes: 5, place, dirs, files, objects };
        let bytes = cache.encode();
        assert_eq!(GitStateCache::decode(&bytes), Some(cache));
        assert_eq!(GitStateCache::decode(&bytes[..bytes.len() - 10]), None);
        assert_eq!(GitStateCache::decode(b"1 - - 0 0 0\n"), None);
    }
}
