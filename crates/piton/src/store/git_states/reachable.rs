//! Objects that refs of the user's repository reach.

use std::collections::{BTreeSet, BinaryHeap, HashSet, VecDeque};
use std::path::Path;

use gix_hash::Kind;
use gix_object::Find as _;

use super::GitStates;
use super::held::HeldFile;
use crate::progress::Progress;
use crate::relpath;

/// Number of commits that are visited.
const COMMITS_MAX: usize = 100_000;
/// Number of objects that are visited to find out if one of the lost ones is needed.
const OBJECTS_MAX: usize = 100_000;
/// Clocks of machines differ: a parent may be dated later than its child by this much.
const SLACK_SECS: i64 = 7 * 24 * 3600;
/// Size limit of an object that is read.
const OBJECT_BYTES_MAX: usize = 64 << 20;

impl GitStates {
    /// Returns those of the commits `wanted` that no commit in `tips` reaches, all in hexadecimal digits. `objects` is the
    /// directory of the repository's objects.
    ///
    /// Returns none of SHA-256, which is not read, and none that are missing from the repository but for which the search
    /// was cut short.
    pub(crate) fn unreachable(
        &self,
        objects: &Path,
        tips: impl Iterator<Item = String>,
        wanted: &BTreeSet<String>,
        progress: &Progress,
    ) -> BTreeSet<String> {
        let id = sha1_id;
        let mut open: BTreeSet<gix_hash::ObjectId> = wanted.iter().filter_map(|text| id(text)).collect();
        let Some(handle) = open_objects(objects).filter(|_| !open.is_empty()) else { return BTreeSet::new() };
        let mut buffer = Vec::new();
        let mut commit = |id: gix_hash::ObjectId| {
            let mut id = id;
            // A tag leads to another object.
            for _ in 0..8 {
                let found = handle.try_find(&id, &mut buffer).ok().flatten()?;
                match found.kind {
                    gix_object::Kind::Commit => return Some((id, WalkedCommit::parse(&buffer))),
                    gix_object::Kind::Tag => id = line_id(&buffer, b"object ")?,
                    _ => return None,
                }
            }
            None
        };
        // The date of a commit that is gone is not known: the whole history is searched for it.
        let oldest = open.iter().map(|id| commit(*id).map_or(i64::MIN, |(_, commit)| commit.secs)).min();
        let oldest = oldest.unwrap_or(i64::MIN).saturating_sub(SLACK_SECS);
        let (mut queue, mut seen) = (BinaryHeap::new(), HashSet::new());
        for tip in tips.filter_map(|text| id(&text)) {
            open.remove(&tip);
            if let Some((id, found)) = commit(tip).filter(|(id, _)| seen.insert(*id)) {
                open.remove(&id);
                queue.push((found.secs, found.parents));
            }
        }
        while let Some((_, parents)) = queue.pop().filter(|_| !open.is_empty()) {
            if seen.len() > COMMITS_MAX || progress.is_cancelled() {
                return BTreeSet::new();
            }
            for parent in parents.into_iter().filter(|parent| seen.insert(*parent)).collect::<Vec<_>>() {
                open.remove(&parent);
                if let Some((_, found)) = commit(parent).filter(|(_, found)| found.secs >= oldest) {
                    queue.push((found.secs, found.parents));
                }
            }
        }
        open.iter().map(ToString::to_string).collect()
    }
}

impl GitStates {
    /// Returns true if a lost object is needed: `tips`, in hexadecimal digits, reach one that is in the files `lost`.
    /// `objects` is the directory of the repository's objects.
    ///
    /// Of SHA-256, and beyond a limit of visited objects, only the tips themselves are looked at.
    pub(crate) fn is_needed(
        &self,
        objects: &Path,
        tips: impl Iterator<Item = String>,
        lost: &[HeldFile],
        progress: &Progress,
    ) -> bool {
        if lost.is_empty() {
            return false;
        }
        let lost = Self::ids_in(lost);
        let tips: BTreeSet<String> = tips.collect();
        let bytes = |id: &String| -> Vec<u8> { id.as_bytes().chunks_exact(2).filter_map(relpath::hex_byte).collect() };
        if tips.iter().any(|tip| lost.contains(&bytes(tip))) {
            return true;
        }
        let Some(handle) = open_objects(objects) else { return false };
        let mut queue: VecDeque<gix_hash::ObjectId> = tips.iter().filter_map(|tip| sha1_id(tip)).collect();
        let mut seen: HashSet<gix_hash::ObjectId> = queue.iter().copied().collect();
        let mut buffer = Vec::new();
        while let Some(id) = queue.pop_front() {
            if lost.contains(id.as_bytes()) {
                return true;
            }
            if seen.len() > OBJECTS_MAX || progress.is_cancelled() {
                return false;
            }
            // What nothing held ever had is no loss that a restore can make good.
            let found = handle.try_find(&id, &mut buffer).ok().flatten().map(|found| found.kind);
            let next = found.map(|kind| named_objects(kind, &buffer)).unwrap_or_default();
            if next.iter().any(|id| lost.contains(id.as_bytes())) {
                return true;
            }
            // Blobs name nothing, and are not read: the tree that names them was looked at.
            let is_tree = found == Some(gix_object::Kind::Tree);
            let trees = || tree_entries(&buffer).filter(|(is_dir, _)| *is_dir).map(|(_, id)| id).collect();
            let next: Vec<_> = if is_tree { trees() } else { next };
            queue.extend(next.into_iter().filter(|id| seen.insert(*id)));
        }
        false
    }
}

fn sha1_id(text: &str) -> Option<gix_hash::ObjectId> {
    gix_hash::ObjectId::from_hex(text.as_bytes()).ok().filter(|id| id.kind() == Kind::Sha1)
}

/// Opens the objects of a repository with SHA-1.
fn open_objects(objects: &Path) -> Option<impl gix_object::Find + use<>> {
    let options = gix_odb::store::init::Options {
        alloc_limit_bytes: Some(OBJECT_BYTES_MAX),
        ..gix_odb::store::init::Options::default()
    };
    let store = gix_odb::Store::at_opts(objects.to_owned(), Kind::Sha1, &mut std::iter::empty(), options).ok()?;
    Some(std::sync::Arc::new(store).to_cache_arc())
}

/// Returns the objects that an object names. Commits of submodules are in other repositories.
fn named_objects(kind: gix_object::Kind, bytes: &[u8]) -> Vec<gix_hash::ObjectId> {
    match kind {
        gix_object::Kind::Commit => {
            line_id(bytes, b"tree ").into_iter().chain(WalkedCommit::parse(bytes).parents).collect()
        }
        gix_object::Kind::Tag => line_id(bytes, b"object ").into_iter().collect(),
        gix_object::Kind::Tree => tree_entries(bytes).map(|(_, id)| id).collect(),
        gix_object::Kind::Blob => Vec::new(),
    }
}

/// Iterates over the entries of a tree except submodules, each with true if it is a tree itself.
fn tree_entries(bytes: &[u8]) -> impl Iterator<Item = (bool, gix_hash::ObjectId)> {
    let entries = gix_object::TreeRefIter::from_bytes(bytes, Kind::Sha1).filter_map(Result::ok);
    let inside = entries.filter(|entry| !entry.mode.is_commit());
    inside.map(|entry| (entry.mode.is_tree(), entry.oid.to_owned()))
}

/// Parts of a commit that a walk needs.
struct WalkedCommit {
    secs: i64,
    parents: Vec<gix_hash::ObjectId>,
}

impl WalkedCommit {
    fn parse(bytes: &[u8]) -> Self {
        let mut parsed = Self { secs: i64::MIN, parents: Vec::new() };
        for line in bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty()) {
            if let Some(parent) = line_id(line, b"parent ") {
                parsed.parents.push(parent);
            } else if line.starts_with(b"committer ") {
                let mut words = line.rsplit(|byte| *byte == b' ').skip(1);
                let secs = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
                parsed.secs = secs.unwrap_or(i64::MIN);
            }
        }
        parsed
    }
}

/// Returns the id in a line that starts with a key.
fn line_id(bytes: &[u8], key: &[u8]) -> Option<gix_hash::ObjectId> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    gix_hash::ObjectId::from_hex(line.strip_prefix(key)?).ok()
}
