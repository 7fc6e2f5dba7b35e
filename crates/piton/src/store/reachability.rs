//! Reachability: the objects that can be reached from the names in the store, and so must be kept.
//!
//! - G1. An object that is found here is never removed. A name that cannot be read, or that is gone while its objects
//!   exist, stops the removal: those objects would be taken for unreachable.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use super::commit::{parents_and_tree, tagged};
use super::integrity::IntegrityChecker;
use super::layout::{Layout, PROJECT_REFS};
use super::marks::{Marks, NEVER, ReachRank};
use super::{DAMAGED_HINT, Objects, Store, tree};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectId, ObjectKind, ProjectId};

/// Size limit of a file of names, packed refs or logs, enough for a hundred thousand projects.
const NAMES_BYTES_MAX: u64 = 256 << 20;
const REF_DEPTH_MAX: usize = 32;
/// Files in which stock git names commits besides `HEAD` and the refs.
const OTHER_HEADS: [&str; 3] = ["ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD"];

/// Maximum number of times that the refs are read again because stock git packed some of them meanwhile.
const PACKED_REFS_CHANGES_MAX: u32 = 100;

/// Everything that names an object.
#[derive(Debug, Default, Clone)]
pub(super) struct ReachRoots {
    /// Commits at which histories end. Read before the names: a take moves its ref first and cuts afterwards, so an end
    /// that is newer than the name would be outside the history, and the walk would run past the real end.
    pub(super) ends: HashSet<CheckpointId>,
    /// Newest checkpoint of each project.
    pub(super) projects: BTreeMap<ProjectId, CheckpointId>,
    /// Objects that anything else names: refs that do not belong to a project, `HEAD` and similar files, interrupted
    /// restores.
    pub(super) others: Vec<ObjectId>,
    /// Objects that stock git's reflogs name. They may be missing, since git itself expires them.
    pub(super) logged: Vec<ObjectId>,
}

impl Store {
    /// Returns the newest checkpoint of every project.
    pub(crate) fn newest_of_all(&self) -> Result<BTreeMap<ProjectId, CheckpointId>> {
        Ok(self.roots()?.projects)
    }

    pub(super) fn roots(&self) -> Result<ReachRoots> {
        let mut roots = ReachRoots { ends: self.boundary()?, ..ReachRoots::default() };
        for (name, id) in self.all_refs()? {
            match Layout::project_in_ref(&name) {
                Some(project) => drop(roots.projects.insert(project, id)),
                None => roots.others.push(id),
            }
        }
        self.refuse_lost_ref(|project| roots.projects.contains_key(project))?;
        roots.others.extend(self.named_by_heads()?.into_iter().map(|(_, id)| id));
        for project in self.intents.projects()? {
            if let Some(intent) = self.intents.get(&project)? {
                roots.others.extend([intent.target, intent.safety]);
            }
        }
        roots.logged = self.logged()?;
        Ok(roots)
    }

    /// Fails with `Damaged` if a project has lost its ref while its checkpoints still exist: the project would seem to
    /// have none, and they would be taken for unreachable.
    pub(crate) fn refuse_lost_ref(&self, has_ref: impl Fn(&ProjectId) -> bool) -> Result<()> {
        let mut lost = self.without_ref(has_ref)?;
        lost.retain(|_, has_lost_it| *has_lost_it);
        if lost.is_empty() {
            return Ok(());
        }
        let copies = self.copies()?;
        let commits = IntegrityChecker::new(&copies, HashSet::new()).all_commits();
        match commits.iter().find_map(|commit| commit.project.as_ref().filter(|project| lost.contains_key(*project))) {
            None => Ok(()),
            Some(project) => {
                let path = self.layout.reference(project);
                Err(Error::damaged(format!("read {}", path.display()), "it is gone, and its checkpoints are not")
                    .with_hint("`piton repair` brings it back"))
            }
        }
    }

    /// Returns the objects that `HEAD` and similar files of stock git name, each with the file.
    pub(super) fn named_by_heads(&self) -> Result<Vec<(PathBuf, ObjectId)>> {
        let mut named = Vec::new();
        for path in [self.layout.head()].into_iter().chain(OTHER_HEADS.map(|name| self.layout.store().join(name))) {
            let text = fsx::read_small(&path, NAMES_BYTES_MAX)?.unwrap_or_default();
            let ids = text.split(|byte| *byte == b'\n').filter_map(|line| ObjectId::from_hex(line.get(..40)?));
            named.extend(ids.map(|id| (path.clone(), id)));
        }
        Ok(named)
    }

    /// Returns the objects that reflogs name, except those of piton's own refs: checkpoints that are dropped there must
    /// not be kept.
    fn logged(&self) -> Result<Vec<ObjectId>> {
        let (mut logged, own) = (Vec::new(), format!("logs/{PROJECT_REFS}"));
        for name in self.files_below("logs")?.iter().filter(|name| !name.starts_with(&own)) {
            let text = fsx::read_small(&self.layout.store().join(name), NAMES_BYTES_MAX)?.unwrap_or_default();
            for line in text.split(|byte| *byte == b'\n') {
                let ids = [line.get(..40), line.get(41..81)].into_iter().flatten();
                logged.extend(ids.filter_map(ObjectId::from_hex));
            }
        }
        Ok(logged)
    }

    /// Returns the files below a directory of the store, by their paths in the store. Fails with `NotOurs` if a name is
    /// not UTF-8 or is too deep.
    fn files_below(&self, dir: &str) -> Result<Vec<String>> {
        let mut files = Vec::new();
        let mut open = vec![(dir.to_owned(), 0)];
        while let Some((dir, depth)) = open.pop() {
            for name in fsx::names_in(&self.layout.store().join(&dir))? {
                let path = self.layout.store().join(&dir).join(&name);
                let is_dir = fsx::is_dir(&path)?;
                let Some(name) = name.to_str().filter(|_| !is_dir || depth < REF_DEPTH_MAX) else {
                    let why = "its name is not UTF-8, or it lies too deep";
                    return Err(Error::new(ErrorKind::NotOurs, "read").with_path(&path).because(why).with_hint(
                        "nothing is taken away while it is there; rename or remove that ref with stock git",
                    ));
                };
                let name = format!("{dir}/{name}");
                if is_dir { open.push((name, depth + 1)) } else { files.push(name) }
            }
        }
        Ok(files)
    }

    /// Returns every ref by its name. A loose ref takes precedence over a packed one. Fails with `Damaged` if a file in
    /// `refs` is not a valid ref.
    pub(super) fn all_refs(&self) -> Result<BTreeMap<String, ObjectId>> {
        let RefsAsTheyStand { refs, packed: _, garbage } = self.refs_beside_git(|| self.whole_packed_refs())?;
        match garbage.into_iter().next() {
            None => Ok(refs),
            Some(name) => {
                let path = self.layout.store().join(name);
                Err(Error::damaged(format!("read {}", path.display()), "it names no checkpoint")
                    .with_hint("`piton repair` puts it aside"))
            }
        }
    }

    /// Returns every ref, and the files in `refs` that are not valid refs.
    pub(super) fn refs_as_they_stand(&self) -> Result<RefsAsTheyStand> {
        let packed = || Ok(fsx::read_small(&self.layout.packed_refs(), NAMES_BYTES_MAX)?.unwrap_or_default());
        self.refs_beside_git(packed)
    }

    /// Returns every ref, while stock git may be moving loose refs to `packed-refs`. It replaces `packed-refs` before
    /// it removes the loose files, so a ref is missed only if `packed-refs` changed meanwhile. Fails with `Busy` if it
    /// keeps changing.
    fn refs_beside_git(&self, packed_refs: impl Fn() -> Result<Vec<u8>>) -> Result<RefsAsTheyStand> {
        let mut packed = packed_refs()?;
        for _ in 0..PACKED_REFS_CHANGES_MAX {
            let refs = self.refs_with(&packed)?;
            let after = packed_refs()?;
            if after == packed {
                return Ok(refs);
            }
            packed = after;
        }
        Err(Error::new(ErrorKind::Busy, "read the refs").because("another program changes them all the time"))
    }

    /// Like [`Self::refs_beside_git`], with the given contents of `packed-refs`.
    fn refs_with(&self, packed_refs: &[u8]) -> Result<RefsAsTheyStand> {
        let mut packed = BTreeMap::new();
        for line in packed_refs.split(|byte| *byte == b'\n') {
            if let Some((id, name)) = line.split_at_checked(40)
                && let (Some(id), Some(name)) = (ObjectId::from_hex(id), name.strip_prefix(b" "))
            {
                packed.insert(String::from_utf8_lossy(name).into_owned(), id);
            }
        }
        let mut stand = RefsAsTheyStand { refs: packed.clone(), packed, garbage: BTreeSet::new() };
        for name in self.files_below("refs")?.into_iter().filter(|name| !name.ends_with(".lock")) {
            let Some(text) = fsx::read_small(&self.layout.store().join(&name), NAMES_BYTES_MAX)? else { continue };
            let text = text.trim_ascii();
            match ObjectId::from_hex(text) {
                Some(id) => drop(stand.refs.insert(name, id)),
                None if text.starts_with(b"ref: ") && !name.starts_with(PROJECT_REFS) => {}
                None => {
                    stand.refs.remove(&name);
                    stand.garbage.insert(name);
                }
            }
        }
        Ok(stand)
    }
}

/// All refs, valid or not.
pub(super) struct RefsAsTheyStand {
    /// Refs that name an object.
    pub(super) refs: BTreeMap<String, ObjectId>,
    /// Refs in `packed-refs`, which a loose ref may override.
    pub(super) packed: BTreeMap<String, ObjectId>,
    /// Files in `refs` that do not name an object.
    pub(super) garbage: BTreeSet<String>,
}

/// Marks reachable objects, starting from one name after the other. An object keeps its first mark.
pub(super) struct Reachability {
    pub(super) marks: Marks,
    /// Commits at which histories end.
    pub(super) boundary: HashSet<CheckpointId>,
    /// Objects that are referenced and missing or corrupt.
    pub(super) missing: Vec<ObjectId>,
    buffer: Vec<u8>,
}

impl Reachability {
    /// Returns a `Reachability` without marks. `ids` are the existing objects; others can be marked, too.
    pub(super) fn new(ids: Vec<ObjectId>, boundary: HashSet<CheckpointId>) -> Self {
        Self { marks: Marks::new(ids), boundary, missing: Vec::new(), buffer: Vec::new() }
    }

    /// Marks every object that is reachable from the roots.
    pub(super) fn all_roots(&mut self, objects: &Objects, roots: &ReachRoots) {
        roots.projects.values().for_each(|id| self.all_from(objects, *id, NEVER));
        self.other_roots(objects, roots);
    }

    /// Like [`Self::all_roots`], without the projects. Missing objects that only reflogs name are ignored.
    pub(super) fn other_roots(&mut self, objects: &Objects, roots: &ReachRoots) {
        roots.others.iter().for_each(|id| self.all_from(objects, *id, NEVER));
        let missing = self.missing.len();
        roots.logged.iter().for_each(|id| self.all_from(objects, *id, NEVER));
        self.missing.truncate(missing);
    }

    /// Marks a commit and everything in its tree, but not its parents.
    pub(super) fn commit_alone(&mut self, objects: &Objects, id: ObjectId, rank: ReachRank) {
        self.walk(objects, id, rank, false);
    }

    /// Marks an object and everything that is reachable from it.
    pub(super) fn all_from(&mut self, objects: &Objects, id: ObjectId, rank: ReachRank) {
        self.walk(objects, id, rank, true);
    }

    fn walk(&mut self, objects: &Objects, id: ObjectId, rank: ReachRank, with_parents: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        // Iterative, since a tree may be deeper than the stack allows.
        let mut open = vec![(id, None, 0)];
        while let Some((id, kind, name)) = open.pop() {
            if self.marks.contains(&id) {
                continue;
            }
            let kind = match kind {
                Some(ObjectKind::Blob) => ObjectKind::Blob,
                _ => match objects.read_any(id, &mut buffer) {
                    Ok(Some(kind)) => kind,
                    Ok(None) | Err(_) => {
                        self.missing.push(id);
                        continue;
                    }
                },
            };
            self.marks.insert(id, kind, name, rank);
            match kind {
                ObjectKind::Blob => {}
                ObjectKind::Tree => {
                    for entry in tree::entries(&buffer).filter(|entry| entry.mode != tree::SUBMODULE) {
                        let is_dir = entry.mode == tree::DIRECTORY;
                        let kind = if is_dir { None } else { Some(ObjectKind::Blob) };
                        open.push((entry.id, kind, similar_name(name, entry.name)));
                    }
                }
                ObjectKind::Commit => {
                    let (tree, parents) = parents_and_tree(&buffer);
                    if with_parents && !self.boundary.contains(&id) {
                        open.extend(parents.into_iter().map(|parent| (parent, None, 0)));
                    }
                    open.extend(tree.map(|tree| (tree, None, 0)));
                }
                ObjectKind::Tag => open.extend(tagged(&buffer).map(|target| (target, None, 0))),
            }
        }
        self.buffer = buffer;
    }

    /// Fails with `Damaged` if a referenced object is missing or corrupt.
    pub(super) fn check_whole(&self) -> Result<()> {
        match self.missing.first() {
            None => Ok(()),
            Some(id) => Err(not_whole(format!("the object {id} is missing or damaged"))),
        }
    }
}

/// Returns the error for a store with missing objects. Nothing is freed in such a store: objects that are reachable
/// only through a missing one would be taken for unreachable.
pub(super) fn not_whole(why: String) -> Error {
    Error::damaged("tell what is still needed", why).with_hint(DAMAGED_HINT)
}

/// Git's name hash, which groups files with similar contents: the last characters of a path count most.
fn similar_name(dir: u32, name: &[u8]) -> u32 {
    let characters = std::iter::once(&b'/').chain(name).filter(|byte| !byte.is_ascii_whitespace());
    characters.fold(dir, |hash, byte| (hash >> 2).wrapping_add(u32::from(*byte) << 24))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::store::kit::store;

    fn put(store: &Store, name: impl AsRef<std::path::Path>, text: &str) {
        let path = store.git_dir().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).and_then(|()| fs::write(path, text)).expect("a file");
    }

    /// G1: objects behind a skipped name would be taken for unreachable.
    #[test]
    fn an_unreadable_ref_fails_listing_all_refs() {
        for (name, text, is_read) in [
            ("refs/heads/alias", "ref: refs/heads/master\n", true),
            ("refs/heads/garbage", "garbage\n", false),
            ("refs/heads/empty", "", false),
            ("refs/hermes/0123456789abcdef", "ref: refs/heads/master\n", false),
            ("refs/heads/being-written.lock", "garbage\n", true),
        ] {
            let temp = tempfile::tempdir().expect("a directory");
            let store = store(&temp);
            put(&store, name, text);
            assert_eq!(store.roots().is_ok(), is_read, "{name}");
            let garbage = store.refs_as_they_stand().expect("refs").garbage;
            assert_eq!(garbage.contains(name), !is_read, "{name}");
        }
    }

    #[test]
    fn a_name_that_is_not_text_or_lies_too_deep_stops_them_too() {
        let deep = |dirs: usize| PathBuf::from(format!("refs/{}x", "d/".repeat(dirs)));
        let strange = PathBuf::from(OsStr::from_bytes(b"refs/heads/\xff"));
        for (name, is_read) in [(deep(REF_DEPTH_MAX), true), (deep(REF_DEPTH_MAX + 1), false), (strange, false)] {
            let temp = tempfile::tempdir().expect("a directory");
            let store = store(&temp);
            put(&store, &name, &format!("{}\n", "07".repeat(20)));
            assert_eq!(store.roots().is_ok(), is_read, "{}", name.display());
        }
    }

    #[test]
    fn what_stock_git_names_in_files_of_its_own_counts() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let id = |digits: &str| ObjectId::from_hex(digits.repeat(20).as_bytes()).expect("an id");
        put(&store, "FETCH_HEAD", &format!("{}\t\tbranch 'a'\n{}\tnot-for-merge\tbranch 'b'\n", id("01"), id("02")));
        put(&store, "logs/HEAD", &format!("{} {} A <a> 5 +0000\treset\n", id("03"), id("04")));
        put(&store, "logs/refs/hermes/0123456789abcdef", &format!("{} {} A <a> 5 +0000\tx\n", id("05"), id("06")));
        let roots = store.roots().expect("names");
        assert_eq!((roots.others, roots.logged), (vec![id("01"), id("02")], vec![id("03"), id("04")]));
    }
}
