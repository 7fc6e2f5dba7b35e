//! Note of the stat cache: what the project's record says about the index. Its fields are keys of the record, which
//! docs/FORMAT.md defines.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::manifest::Manifest;
use super::codec::{IndexSums, stat_text};
use crate::id::ObjectId;
use crate::relpath;
use crate::sys::Stat;
use crate::time::Moment;

/// Number of `.gitignore` files out of scope that are recorded. Below the others, rules are evaluated again.
const HIDDEN_RULES_MAX: usize = 4096;
/// Size limit of their text, in a record that has a limit of its own.
const HIDDEN_RULES_BYTES_MAX: usize = 256 << 10;

/// Note about one index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CacheNote {
    /// Checksum at the end of the index. An index with another one was written by another program.
    index: Option<String>,
    /// Checksum of the rules of the scan that made the index, without `.gitignore` files.
    rules: Option<String>,
    /// Fingerprints of the `.gitignore` files that are out of scope themselves, by directory.
    hidden_rules: Option<BTreeMap<String, String>>,
    /// CRC-32 of the index.
    index_crc: Option<u32>,
    /// Boot id of the machine when the index was written.
    index_boot: Option<String>,
    /// Time at which it was written, in seconds.
    index_time: Option<i64>,
    index_behind: Option<Behind>,
    /// Checkpoint all of whose objects were found in the store.
    index_held: Option<String>,
    index_reread: Option<Reread>,
    index_limit: Option<SizeLimit>,
}

/// Paths at which an index differs from the tree of a checkpoint, because it was not rewritten for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Behind {
    index: String,
    tree: String,
    paths: Vec<String>,
}

/// Time at which the young entries of an index were read again and had not changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reread {
    index: String,
    time: i64,
}

/// Size limit of files in the scan that made an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SizeLimit {
    index: String,
    file_bytes_max: u64,
}

impl CacheNote {
    /// Reads the note among the keys of a record. A note that cannot be decoded is empty: the files are read again.
    pub(crate) fn read(keys: &Map<String, Value>) -> Self {
        Self::deserialize(keys).unwrap_or_default()
    }

    /// Writes the note to the keys of a record. Other keys stay.
    pub(crate) fn write(&self, keys: &mut Map<String, Value>) {
        let Ok(Value::Object(own)) = serde_json::to_value(self) else { return };
        for (key, value) in own {
            if value.is_null() {
                keys.shift_remove(&key);
            } else {
                keys.insert(key, value);
            }
        }
    }

    /// Returns the checksum of the index and that of the rules.
    pub(super) fn index_and_rules(&self) -> Option<(&str, &str)> {
        Some((self.index.as_deref()?, self.rules.as_deref()?))
    }

    pub(super) fn index_crc(&self) -> Option<u32> {
        self.index_crc
    }

    /// Returns the boot id of the machine when the index was written, and the time in seconds.
    pub(super) fn boot(&self) -> Option<(&str, i64)> {
        Some((self.index_boot.as_deref()?, self.index_time?))
    }

    /// Returns the time in seconds at which the entries of the index were last read: when it was written, or when the
    /// files that had changed shortly before that were read again. Returns `None` if there is no index.
    pub(super) fn read_secs(&self) -> Option<i64> {
        let (_, written) = self.boot()?;
        let reread = self.index_reread.as_ref().filter(|reread| reread.index == self.index_sum());
        Some(written.max(reread.map_or(written, |reread| reread.time)))
    }

    /// Returns the paths at which the index differs from this tree, if it was not rewritten for the checkpoint of the
    /// tree.
    pub(super) fn behind(&self, tree: ObjectId) -> Option<BTreeSet<Vec<u8>>> {
        let (index, _) = self.index_and_rules()?;
        let noted =
            self.index_behind.as_ref().filter(|noted| noted.index == index && noted.tree == tree.to_string())?;
        noted.paths.iter().map(|path| relpath::unescape(path.as_bytes())).collect()
    }

    /// Returns true if every object of this checkpoint was found in the store when the index was last compared with it.
    pub(super) fn is_held(&self, newest: ObjectId) -> bool {
        self.index_held.as_ref().is_some_and(|held| *held == newest.to_string())
    }

    /// Returns the fingerprint of the `.gitignore` of a directory, if it is out of scope.
    pub(super) fn hidden_rules(&self, dir: &[u8]) -> Option<&str> {
        self.hidden_rules.as_ref()?.get(&relpath::escape(dir)).map(String::as_str)
    }

    /// Returns true if [`hidden_rules_of`] would return the noted fingerprints.
    pub(super) fn has_hidden_rules_of(&self, manifest: &Manifest) -> bool {
        let mut rules = manifest.dirs.iter().filter_map(|dir| Some((dir, dir.hidden_rules?)));
        rules.clone().count() == self.hidden_rules.as_ref().map_or(0, BTreeMap::len)
            && rules.all(|(dir, stat)| self.hidden_rules(&dir.path).is_some_and(|noted| stat_text(&stat) == noted))
    }

    /// Returns true if the index was made by a scan with this size limit of files.
    pub(super) fn has_size_limit(&self, file_bytes_max: u64) -> bool {
        let limit = self.index_limit.as_ref().filter(|limit| limit.index == self.index_sum());
        limit.is_some_and(|limit| limit.file_bytes_max == file_bytes_max)
    }

    /// Records the size limit of files in the scan that made the index.
    pub(super) fn set_size_limit(&mut self, file_bytes_max: u64) {
        self.index_limit = Some(SizeLimit { index: self.index_sum().to_owned(), file_bytes_max });
    }

    /// Records that every object of this checkpoint is in the store.
    pub(crate) fn set_held(&mut self, newest: ObjectId) {
        self.index_held = Some(newest.to_string());
    }

    /// Records that the recent entries of the index were read again and had not changed.
    pub(super) fn set_reread(&mut self, now: Moment) {
        self.index_reread = Some(Reread { index: self.index_sum().to_owned(), time: now.secs });
    }

    /// Records the paths at which the index differs from this tree.
    pub(super) fn set_behind(&mut self, tree: ObjectId, paths: &BTreeSet<Vec<u8>>) {
        let Some((index, _)) = self.index_and_rules() else { return };
        let paths = paths.iter().map(|path| relpath::escape(path)).collect();
        self.index_behind = Some(Behind { index: index.to_owned(), tree: tree.to_string(), paths });
    }

    /// Records a new index of this scan.
    pub(super) fn set_index(
        &mut self,
        sums: IndexSums,
        rules: ObjectId,
        hidden_rules: BTreeMap<String, String>,
        boot: String,
        now: Moment,
    ) {
        self.index = Some(sums.checksum.to_string());
        self.index_crc = Some(sums.crc);
        self.rules = Some(rules.to_string());
        self.hidden_rules = Some(hidden_rules);
        self.index_boot = Some(boot);
        self.index_time = Some(now.secs);
        self.index_behind = None;
    }

    fn index_sum(&self) -> &str {
        self.index_and_rules().map_or("", |(sum, _)| sum)
    }
}

/// Returns fingerprints of the `.gitignore` files that are out of scope and can be trusted later, by directory.
pub(super) fn hidden_rules_of(manifest: &Manifest, is_trusted: impl Fn(&Stat) -> bool) -> BTreeMap<String, String> {
    let rules = manifest.dirs.iter().filter_map(|dir| Some((dir, dir.hidden_rules?)));
    let settled = rules.filter(|(_, stat)| is_trusted(stat));
    let mut bytes = 0;
    let fits = |(dir, print): &(String, String)| {
        bytes += dir.len() + print.len();
        bytes <= HIDDEN_RULES_BYTES_MAX
    };
    let prints = settled.map(|(dir, stat)| (relpath::escape(&dir.path), stat_text(&stat)));
    prints.take(HIDDEN_RULES_MAX).take_while(fits).collect()
}
