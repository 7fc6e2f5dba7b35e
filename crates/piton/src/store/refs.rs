//! Refs: the newest checkpoint of each project, and everything else that names objects. These are git's own files and
//! its own `*.lock` protocol, with the syncs that git leaves out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::{LOCAL_REFS, Layout, PIN_REFS, PROJECT_REFS};
use super::lock::{Exclusive, Locks, ProjectLock};
use super::ref_lock::{is_stale, put_lock};
use super::wait;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::hint::Hint;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::time::Moment;

/// A ref is 41 bytes; the packed refs of a hundred thousand projects are 6 MB.
pub(super) const REFS_BYTES_MAX: u64 = 64 << 20;
/// Size limit of a file of names, packed refs or logs, enough for a hundred thousand projects.
const NAMES_BYTES_MAX: u64 = 256 << 20;
/// Depth limit of the directories below `refs` and `logs`.
pub(super) const REF_DEPTH_MAX: usize = 32;
/// Files in which stock git names commits besides `HEAD` and the refs.
const OTHER_HEADS: [&str; 3] = ["ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD"];
/// Maximum number of times that the refs are read again because stock git packed some of them meanwhile.
const PACKED_REFS_CHANGES_MAX: u32 = 100;
/// Lock for the file of packed refs.
const PACKED_REFS: &str = "packed-refs";

/// The refs of a store.
#[derive(Debug, Clone)]
pub(crate) struct Refs {
    pub(super) layout: Arc<Layout>,
    pub(super) locks: Locks,
}

impl Refs {
    /// Returns the newest checkpoint of a project.
    pub(crate) fn newest(&self, project: &ProjectId) -> Result<Option<CheckpointId>> {
        let path = self.layout.reference(project);
        match fsx::read_small(&path, REFS_BYTES_MAX)? {
            Some(text) => match ObjectId::from_hex(text.trim_ascii()) {
                Some(id) => Ok(Some(id)),
                None => Err(Error::damaged(format!("read {}", path.display()), "it names no checkpoint")
                    .with_hint(Hint::Repair)),
            },
            None => self.packed_ref(project),
        }
    }

    /// Returns the packed refs whose names begin with `prefix`. Invalid lines are ignored.
    pub(super) fn packed_below(&self, prefix: &str) -> Result<Vec<(String, ObjectId)>> {
        let text = fsx::read_small(&self.layout.packed_refs(), NAMES_BYTES_MAX)?.unwrap_or_default();
        let below = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let (id, name) = line.split_at_checked(40)?;
            let name = std::str::from_utf8(name.strip_prefix(b" ")?).ok().filter(|name| name.starts_with(prefix))?;
            Some((name.to_owned(), ObjectId::from_hex(id)?))
        });
        Ok(below.collect())
    }

    fn packed_ref(&self, project: &ProjectId) -> Result<Option<CheckpointId>> {
        let text = self.whole_packed_refs()?;
        let wanted = Layout::ref_name(project);
        let found = text.split(|byte| *byte == b'\n').find_map(|line| {
            let (id, name) = line.split_at_checked(40)?;
            (name.strip_prefix(b" ")? == wanted.as_bytes()).then(|| ObjectId::from_hex(id))
        });
        Ok(found.flatten())
    }

    /// Returns the packed refs. Fails if a line is invalid: it may be the ref of any project, and a caller that ignored
    /// it would start that history over, or treat its checkpoints as unreachable.
    pub(super) fn whole_packed_refs(&self) -> Result<Vec<u8>> {
        let path = self.layout.packed_refs();
        let text = fsx::read_small(&path, REFS_BYTES_MAX)?.unwrap_or_default();
        match wrong_packed_line(&text) {
            None => Ok(text),
            Some(number) => {
                Err(Error::damaged(format!("read {}", path.display()), format!("line {number} is not a ref"))
                    .with_hint(Hint::Repair))
            }
        }
    }

    /// Moves the ref from `expected` to `new`. Returns false if another program has moved it. The new value is synced
    /// on return.
    pub(crate) fn advance(
        &self,
        _held: &ProjectLock,
        project: &ProjectId,
        expected: Option<CheckpointId>,
        new: CheckpointId,
        now: Moment,
    ) -> Result<bool> {
        let path = self.layout.reference(project);
        let lock = put_lock(&self.layout, project.as_str(), &path, format!("{new}\n").as_bytes(), now)?;
        if self.newest(project)? != expected {
            fsx::remove_file(&lock)?;
            return Ok(false);
        }
        fs::rename(&lock, &path).map_err(|error| Error::io("replace", &path, error))?;
        fsx::sync_dir(path.parent().expect("a ref is below refs/hermes"))?;
        Ok(true)
    }

    /// Moves the ref back from `new` to `before`, or deletes it. Returns false if another program has moved it.
    pub(crate) fn retreat(
        &self,
        held: &ProjectLock,
        project: &ProjectId,
        new: CheckpointId,
        before: Option<CheckpointId>,
        now: Moment,
    ) -> Result<bool> {
        match before {
            Some(before) => self.advance(held, project, Some(new), before, now),
            None if self.newest(project)? == Some(new) => self.delete_ref(held, project, now).map(|()| true),
            None => Ok(false),
        }
    }

    /// Syncs the ref of the newest checkpoint, in case the process that moved it was killed before it did so.
    pub(crate) fn sync_newest(&self, project: &ProjectId) -> Result<()> {
        fsx::sync_dir(self.layout.reference(project).parent().expect("a ref is below refs/hermes"))
    }

    /// Sets a ref of any name to `id`, or deletes it, whatever its old value.
    pub(super) fn repair_ref(&self, _alone: &Exclusive, name: &str, id: Option<ObjectId>, now: Moment) -> Result<()> {
        self.set_ref(wait::GC, name, id, now)
    }

    /// Sets a ref of any name to `id`, or deletes it. The caller holds the lock named `by`.
    pub(super) fn set_ref(&self, by: &str, name: &str, id: Option<ObjectId>, now: Moment) -> Result<()> {
        let path = self.layout.store().join(name);
        let dir = path.parent().expect("a ref is below refs");
        fsx::ensure_dir(dir)?;
        let text = id.map(|id| format!("{id}\n")).unwrap_or_default();
        let lock = put_lock(&self.layout, by, &path, text.as_bytes(), now)?;
        if id.is_some() {
            fs::rename(&lock, &path).map_err(|error| Error::io("replace", &path, error))?;
        } else {
            fsx::remove_file(&path)?;
            fsx::remove_file(&lock)?;
        }
        fsx::sync_dir(dir)
    }

    /// Removes the lines of packed refs for which `is_right` returns false.
    pub(super) fn repair_packed_refs(
        &self,
        _alone: &Exclusive,
        is_right: impl Fn(&[u8]) -> bool,
        now: Moment,
    ) -> Result<()> {
        let path = self.layout.packed_refs();
        let lock = put_lock(&self.layout, wait::GC, &path, b"", now)?;
        let text = fsx::read_small(&path, REFS_BYTES_MAX)?.unwrap_or_default();
        // A line that begins with `^` belongs to the previous one.
        let mut keeping = false;
        let mut kept = Vec::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            keeping = is_right(line) && (keeping || !line.starts_with(b"^"));
            if keeping {
                kept.extend_from_slice(line);
                kept.push(b'\n');
            }
        }
        if kept.is_empty() {
            fsx::remove_file(&path)?;
        } else {
            fsx::replace(&path, &kept, Durability::Synced)?;
        }
        fsx::remove_file(&lock)
    }

    /// Deletes a project's ref, both the loose and the packed one.
    pub(crate) fn delete_ref(&self, held: &ProjectLock, project: &ProjectId, now: Moment) -> Result<()> {
        self.delete(held, project, &Layout::ref_name(project), now)
    }

    /// Deletes a ref that belongs to a project, both the loose and the packed one.
    pub(super) fn delete(&self, _held: &ProjectLock, project: &ProjectId, name: &str, now: Moment) -> Result<()> {
        let packed = self.layout.packed_refs();
        let text = fsx::read_small(&packed, REFS_BYTES_MAX)?.unwrap_or_default();
        let is_it = |line: &[u8]| line.get(40..).is_some_and(|rest| rest.trim_ascii() == name.as_bytes());
        if text.split(|byte| *byte == b'\n').any(is_it) {
            let _guard = self.locks.hold(PACKED_REFS, "the packed refs")?;
            let lock = put_lock(&self.layout, project.as_str(), &packed, &text, now)?;
            // Read again under git's own lock. A line that begins with `^` belongs to the previous one.
            let text = fsx::read_small(&packed, REFS_BYTES_MAX)?.unwrap_or_default();
            let mut skipping = false;
            let kept = text.split_inclusive(|byte| *byte == b'\n').filter(|line| {
                skipping = is_it(line) || skipping && line.starts_with(b"^");
                !skipping
            });
            let kept: Vec<u8> = kept.flatten().copied().collect();
            fsx::replace(&packed, &kept, Durability::Synced)?;
            fsx::remove_file(&lock)?;
        }
        let path = self.layout.store().join(name);
        let lock = put_lock(&self.layout, project.as_str(), &path, b"", now)?;
        fsx::remove_file(&path)?;
        fsx::remove_file(&lock)?;
        fsx::sync_dir(path.parent().expect("a ref is in a directory"))
    }

    /// Removes stale lock files of killed processes that no process may come to take over: stock git would wait for
    /// them for ever. The caller knows that no living piton process is using them.
    pub(super) fn remove_stale_locks(&self, now: Moment) -> Result<()> {
        let refs = self.layout.references();
        let names = fsx::names_in(&refs)?;
        let refs = names.iter().filter(|name| name.as_encoded_bytes().ends_with(b".lock")).map(|name| refs.join(name));
        let [pins, locals] = [PIN_REFS, LOCAL_REFS].map(|dir| self.files_below(dir.trim_end_matches('/')));
        let below = pins?.into_iter().chain(locals?).filter(|name| name.ends_with(".lock"));
        let refs = refs.chain(below.map(|name| self.layout.store().join(name)));
        let all = [self.layout.shallow(), self.layout.packed_refs()].map(|path| path.with_added_extension("lock"));
        all.into_iter().chain(refs).filter(|lock| is_stale(lock, now)).try_for_each(|lock| fsx::remove_file(&lock))
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
    pub(super) fn logged(&self) -> Result<Vec<ObjectId>> {
        let mut logged = Vec::new();
        let is_own = |name: &str| [PROJECT_REFS, PIN_REFS, LOCAL_REFS].iter().any(|own| name.starts_with(own));
        let is_other = |name: &&String| !name.strip_prefix("logs/").is_some_and(is_own);
        for name in self.files_below("logs")?.iter().filter(is_other) {
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
                    return Err(Error::new(ErrorKind::NotOurs, "read")
                        .with_path(&path)
                        .because(why)
                        .with_hint("nothing is deleted while it exists; rename or remove that ref with stock git"));
                };
                let name = format!("{dir}/{name}");
                if is_dir { open.push((name, depth + 1)) } else { files.push(name) }
            }
        }
        Ok(files)
    }

    /// Returns every ref by its name. A loose ref takes precedence over a packed one. Fails with `Damaged` if a file in
    /// `refs` is not a valid ref.
    pub(super) fn all(&self) -> Result<BTreeMap<String, ObjectId>> {
        let RefListing { refs, packed: _, garbage } = self.beside_git(|| self.whole_packed_refs())?;
        match garbage.into_iter().next() {
            None => Ok(refs),
            Some(name) => {
                let path = self.layout.store().join(name);
                Err(Error::damaged(format!("read {}", path.display()), "it names no checkpoint")
                    .with_hint(Hint::RepairSetsAside))
            }
        }
    }

    /// Returns every ref, and the files in `refs` that are not valid refs.
    pub(super) fn list_all(&self) -> Result<RefListing> {
        let packed = || Ok(fsx::read_small(&self.layout.packed_refs(), NAMES_BYTES_MAX)?.unwrap_or_default());
        self.beside_git(packed)
    }

    /// Returns every ref, while stock git may be moving loose refs to `packed-refs`. It replaces `packed-refs` before
    /// it removes the loose files, so a ref is missed only if `packed-refs` changed meanwhile. Fails with `Busy` if it
    /// keeps changing.
    fn beside_git(&self, packed_refs: impl Fn() -> Result<Vec<u8>>) -> Result<RefListing> {
        let mut packed = packed_refs()?;
        for _ in 0..PACKED_REFS_CHANGES_MAX {
            let refs = self.refs_with(&packed)?;
            let after = packed_refs()?;
            if after == packed {
                return Ok(refs);
            }
            packed = after;
        }
        Err(Error::new(ErrorKind::Busy, "read the refs").because("another program keeps changing them"))
    }

    /// Like [`Self::beside_git`], with the given contents of `packed-refs`.
    fn refs_with(&self, packed_refs: &[u8]) -> Result<RefListing> {
        let mut packed = BTreeMap::new();
        for line in packed_refs.split(|byte| *byte == b'\n') {
            if let Some((id, name)) = line.split_at_checked(40)
                && let (Some(id), Some(name)) = (ObjectId::from_hex(id), name.strip_prefix(b" "))
            {
                packed.insert(String::from_utf8_lossy(name).into_owned(), id);
            }
        }
        let mut listed = RefListing { refs: packed.clone(), packed, garbage: BTreeSet::new() };
        for name in self.files_below("refs")?.into_iter().filter(|name| !name.ends_with(".lock")) {
            let Some(text) = fsx::read_small(&self.layout.store().join(&name), NAMES_BYTES_MAX)? else { continue };
            let text = text.trim_ascii();
            match ObjectId::from_hex(text) {
                Some(id) => drop(listed.refs.insert(name, id)),
                None if text.starts_with(b"ref: ") && !name.starts_with(PROJECT_REFS) => {}
                None => {
                    listed.refs.remove(&name);
                    listed.garbage.insert(name);
                }
            }
        }
        Ok(listed)
    }
}

/// All refs, valid or not.
pub(super) struct RefListing {
    /// Refs that name an object.
    pub(super) refs: BTreeMap<String, ObjectId>,
    /// Refs in `packed-refs`, which a loose ref may override.
    pub(super) packed: BTreeMap<String, ObjectId>,
    /// Files in `refs` that do not name an object.
    pub(super) garbage: BTreeSet<String>,
}

/// Returns the error for a ref or a list of refs that another program changed at the same time.
pub(crate) fn moved_meanwhile(action: &str) -> Error {
    Error::new(ErrorKind::Busy, action).because("another program did so at the same moment").with_hint("try again")
}

/// Returns the number of the first invalid line of packed refs, counted from 1.
pub(super) fn wrong_packed_line(text: &[u8]) -> Option<usize> {
    let wrong = text.split(|byte| *byte == b'\n').position(|line| !line.is_empty() && !is_packed_line(line));
    wrong.map(|at| at + 1)
}

/// Returns true if a line of packed refs is valid.
pub(super) fn is_packed_line(line: &[u8]) -> bool {
    match line.first() {
        Some(b'#') => line.starts_with(b"# pack-refs with:"),
        Some(b'^') => ObjectId::from_hex(&line[1..]).is_some(),
        _ => line.split_at_checked(40).is_some_and(|(id, name)| {
            let name = name.strip_prefix(b" ").and_then(|name| std::str::from_utf8(name).ok());
            ObjectId::from_hex(id).is_some() && name.is_some_and(is_ref_name)
        }),
    }
}

/// Returns true if stock git accepts this as the name of a ref.
pub(super) fn is_ref_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_bad = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    name.starts_with("refs/")
        && name.split('/').all(is_part)
        && !name.bytes().any(is_bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const NOW: Moment = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };

    #[test]
    fn a_removed_packed_ref_is_removed_with_its_peeled_line() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = Store::open_or_create(&temp.path().join("base"), NOW).expect("a store");
        let line = |start: &str, name: &str| format!("{start}{}{name}\n", "07".repeat(20));
        let header = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        let (stays, goes) = (line("", " refs/tags/stays"), line("", " refs/tags/goes"));
        let (peeled, last) = (line("^", ""), line("", " refs/tags/zoo"));
        let all =
            [&header, &stays, &peeled, &goes, &peeled, &peeled, &"\n".to_owned(), &last].map(String::as_str).concat();
        fs::write(store.layout.packed_refs(), all).expect("a file");
        let held = store.locks.lock_gc().expect("a lock");
        let alone = store.locks.exclude(&held).expect("a lock").expect("no other holder");
        store.refs.repair_packed_refs(&alone, |line| !line.ends_with(b"goes"), NOW).expect("packed refs");
        let left = fs::read_to_string(store.layout.packed_refs()).expect("a file");
        assert_eq!(left, [header, stays, peeled, last].concat());
        store.refs.repair_packed_refs(&alone, |_| false, NOW).expect("packed refs");
        assert!(!store.layout.packed_refs().exists());
    }

    #[test]
    fn names_of_refs_are_told_from_others() {
        assert!(["refs/heads/master", "refs/hermes/0123456789abcdef"].iter().all(|name| is_ref_name(name)));
        for bad in ["", "master", "refs/", "refs//x", "refs/x.lock", "refs/.x", "refs/a b", "refs/a\u{7f}", "refs/a..b"]
        {
            assert!(!is_ref_name(bad), "{bad:?}");
        }
    }
}
