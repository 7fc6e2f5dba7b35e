//! The small files of a repository with their contents, and the refs, stash entries and worktrees in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::id::{ObjectId, ProjectId, content_id};
use crate::progress::Progress;
use crate::store::{FILE_MODE, LINK_MODE, SMALL_FILE_BYTES_MAX, Store};
use crate::sys::{self, Kind};
use crate::worktree::{RepositoryPlace, staged_id};

/// Contents and mode of a small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SmallFile {
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

/// All small files of a repository, by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitSnapshot {
    pub(super) place: RepositoryPlace,
    pub(super) files: BTreeMap<Vec<u8>, SmallFile>,
    /// Permission bits of directories in a recorded state; only those that differ from the directory around them.
    pub(super) dirs: BTreeMap<Vec<u8>, u16>,
}

/// An entry of the stash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StashEntry {
    pub(super) id: String,
    pub(super) message: String,
    /// Line of the reflog after the old id.
    rest: Vec<u8>,
}

impl GitSnapshot {
    /// Reads a recorded state.
    pub(super) fn of_state(store: &Store, project: &ProjectId, id: ObjectId) -> Result<Self> {
        let states = &store.git_states;
        let state = states.get(project, id)?;
        let own = state.common.join(sys::name_from_bytes(&state.own));
        let mut files = BTreeMap::new();
        for file in &state.files {
            let bytes = states.contents(project, &file.contents)?;
            files.insert(file.path.clone(), SmallFile { mode: file.mode, bytes });
        }
        let place = RepositoryPlace { root: state.root, own, common: state.common };
        Ok(Self { place, files, dirs: state.dirs })
    }

    /// Reads the repository at a place as it is now. Returns `None` if it is gone.
    pub(super) fn now(place: &RepositoryPlace, progress: &Progress) -> Result<Option<Self>> {
        let failed = |error| Error::io("read", &place.common, error);
        let Some(repository) = place.open()? else { return Ok(None) };
        let mut files = BTreeMap::new();
        for file in repository.list_files(progress).map_err(failed)?.files {
            let Some(bytes) = repository.read(&file.path, SMALL_FILE_BYTES_MAX).map_err(failed)? else { continue };
            let kind = if file.stat.kind == Kind::Link { LINK_MODE } else { FILE_MODE };
            files.insert(file.path, SmallFile { mode: kind | u32::from(file.stat.mode & 0o777), bytes });
        }
        Ok(Some(Self { place: place.clone(), files, dirs: BTreeMap::new() }))
    }

    pub(super) fn bytes(&self, path: &[u8]) -> Option<&[u8]> {
        self.files.get(path).map(|file| file.bytes.as_slice())
    }

    /// Returns true if the refs are in a reftable, which is not parsed.
    pub(super) fn has_reftable(&self) -> bool {
        self.files.contains_key(&b"reftable/tables.list"[..])
    }

    /// Returns true if the repository uses objects of other repositories.
    pub(super) fn has_alternates(&self) -> bool {
        self.files.contains_key(&b"objects/info/alternates"[..])
    }

    /// Returns true if essential parts are missing, so that git does not recognise it as a repository.
    pub(super) fn is_ruined(&self) -> bool {
        self.bytes(b"HEAD").is_none_or(|bytes| bytes.trim_ascii().is_empty())
            || !self.place.has_dir("refs")
            || !self.place.has_dir("objects")
    }

    /// Returns `HEAD` of this worktree as text.
    pub(super) fn head(&self) -> Option<String> {
        let file = self.files.get(&self.place.own_path("HEAD"))?;
        let value = text(&file.bytes);
        let is_link = file.mode & LINK_MODE == LINK_MODE;
        // An empty file, as a power cut leaves it, is none.
        (!value.is_empty()).then(|| if is_link { format!("ref: {value}") } else { value })
    }

    /// Returns true if a file is a symbolic link.
    pub(super) fn is_link(&self, path: &[u8]) -> bool {
        self.files.get(path).is_some_and(|file| file.mode & LINK_MODE == LINK_MODE)
    }

    /// Returns a hash of what is staged, or of the whole index if it cannot be parsed.
    pub(super) fn staged(&self) -> Option<ObjectId> {
        let bytes = self.bytes(&self.place.own_path("index")).filter(|bytes| !bytes.is_empty())?;
        Some(staged_id(bytes).unwrap_or_else(|| content_id(bytes)))
    }

    /// Returns all refs by their full names. Symbolic ones have their text as the value.
    pub(super) fn refs(&self) -> BTreeMap<String, String> {
        let mut refs = packed_refs(self.bytes(b"packed-refs").unwrap_or_default());
        for (path, file) in self.files.range(b"refs/".to_vec()..b"refs0".to_vec()) {
            let Ok(name) = String::from_utf8(path.clone()) else { continue };
            let value = text(&file.bytes);
            // A torn or empty file is not a ref.
            if is_id(&value) || value.starts_with("ref:") {
                refs.insert(name, value);
            }
        }
        refs.retain(|name, _| name != "refs/stash");
        refs
    }

    /// Returns the entries of the stash, oldest first.
    pub(super) fn stash(&self) -> Vec<StashEntry> {
        let is_packed = || packed_refs(self.bytes(b"packed-refs").unwrap_or_default()).contains_key("refs/stash");
        if !self.files.contains_key(&b"refs/stash"[..]) && !is_packed() {
            return Vec::new();
        }
        let log = self.bytes(b"logs/refs/stash").unwrap_or_default();
        let lines = log.split(|byte| *byte == b'\n').filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            let rest = &line[at + 1..];
            let id = text(rest.split(|byte| *byte == b' ').next()?);
            let message = rest.iter().position(|byte| *byte == b'\t').map(|at| text(&rest[at + 1..]));
            is_id(&id).then(|| StashEntry { id, message: message.unwrap_or_default(), rest: rest.to_vec() })
        });
        lines.collect()
    }

    /// Returns a hash of the entries of the stash; `None` if there are none.
    pub(super) fn stash_value(&self) -> Option<String> {
        let entries = self.stash();
        (!entries.is_empty()).then(|| content_id(&stash_log(&entries).0).to_string())
    }

    /// Returns the names of linked worktrees.
    pub(super) fn worktrees(&self) -> BTreeSet<String> {
        let below = self.files.keys().filter_map(|path| {
            let name = path.strip_prefix(b"worktrees/")?.split(|byte| *byte == b'/').next()?;
            String::from_utf8(name.to_vec()).ok()
        });
        below.collect()
    }

    /// Returns the path of the `.git` file of a linked worktree.
    pub(super) fn worktree_link(&self, name: &str) -> Option<PathBuf> {
        let bytes = self.bytes(format!("worktrees/{name}/gitdir").as_bytes())?;
        Some(self.place.common.join("worktrees").join(name).join(sys::name_from_bytes(bytes.trim_ascii())))
    }
}

/// Returns the refs in `packed-refs`.
fn packed_refs(bytes: &[u8]) -> BTreeMap<String, String> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#") && !line.starts_with(b"^"));
    let refs = lines.filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (id, name) = line.split_once(' ')?;
        (is_id(id) && is_ref_name(name)).then(|| (name.to_owned(), id.to_owned()))
    });
    refs.collect()
}

/// Returns true for a name that git accepts for a ref. `packed-refs` can have any text: no other name becomes a path.
fn is_ref_name(name: &str) -> bool {
    let is_bad = |byte: u8| byte.is_ascii_control() || b" ~^:?*[\\".contains(&byte);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.starts_with("refs/")
        && name.split('/').all(is_part)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && !name.bytes().any(is_bad)
}

/// Returns `packed-refs` without some refs. Returns `None` if none of them is in it.
pub(super) fn without_packed(bytes: &[u8], names: &BTreeSet<&[u8]>) -> Option<Vec<u8>> {
    let (mut kept, mut is_dropped, mut is_found) = (Vec::new(), false, false);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(b"^") {
            let of = line.trim_ascii_end().splitn(2, |byte| *byte == b' ').nth(1);
            is_dropped = !line.starts_with(b"#") && of.is_some_and(|of| names.contains(of));
        }
        is_found |= is_dropped;
        if !is_dropped {
            kept.extend_from_slice(line);
        }
    }
    is_found.then_some(kept)
}

/// Returns the reflog of a stash with these entries, oldest first, and the id of the newest one.
pub(super) fn stash_log(entries: &[StashEntry]) -> (Vec<u8>, Option<String>) {
    let mut log = Vec::new();
    let mut before: Option<&str> = None;
    for entry in entries {
        let zeros = "0".repeat(entry.id.len());
        log.extend_from_slice(before.unwrap_or(&zeros).as_bytes());
        log.push(b' ');
        log.extend_from_slice(&entry.rest);
        log.push(b'\n');
        before = Some(&entry.id);
    }
    (log, entries.last().map(|entry| entry.id.clone()))
}

/// Returns true for the id of an object, of either hash.
pub(super) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";
    const OTHER: &str = "abcdefabcdefabcdefabcdefabcdefabcdefabcd";

    #[test]
    fn a_ref_is_removed_from_packed_refs_with_its_peeled_line() {
        let text =
            format!("# pack-refs with: peeled\n{ID} refs/heads/a\n{ID} refs/tags/v1\n^{OTHER}\n{ID} refs/tags/v2\n");
        let without = without_packed(text.as_bytes(), &BTreeSet::from([&b"refs/tags/v1"[..]])).expect("it is there");
        let expected = format!("# pack-refs with: peeled\n{ID} refs/heads/a\n{ID} refs/tags/v2\n");
        assert_eq!(String::from_utf8(without).expect("text"), expected);
        assert_eq!(without_packed(text.as_bytes(), &BTreeSet::from([&b"refs/tags/v"[..]])), None);
        assert_eq!(packed_refs(text.as_bytes()).len(), 3);
    }

    #[test]
    fn a_name_in_packed_refs_that_git_refuses_is_no_ref() {
        let bad = [
            "config",
            "hooks/post-checkout",
            "/tmp/x",
            "../x",
            "refs/../config",
            "refs/heads/../../config",
            "refs/heads/a.lock",
            "refs/heads/.a",
            "refs/heads//a",
            "refs/heads/",
            "refs/heads/a b",
            "refs/heads/a.",
            "refs/heads/a@{1}",
        ];
        for name in bad {
            assert_eq!(packed_refs(format!("{ID} {name}\n").as_bytes()).len(), 0, "{name}");
        }
        for name in ["refs/heads/a", "refs/heads/a/b.c", "refs/tags/\u{e4}", "refs/stash", "refs/heads/@"] {
            assert_eq!(packed_refs(format!("{ID} {name}\n").as_bytes()).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_stash_log_links_each_entry_to_the_one_before() {
        let entry = |id: &str| StashEntry {
            id: id.to_owned(),
            message: String::new(),
            rest: format!("{id} me <m> 1 +0000\tWIP").into(),
        };
        let (log, top) = stash_log(&[entry(ID), entry(OTHER)]);
        let zeros = "0".repeat(40);
        let expected = format!("{zeros} {ID} me <m> 1 +0000\tWIP\n{ID} {OTHER} me <m> 1 +0000\tWIP\n");
        assert_eq!((String::from_utf8(log).expect("text"), top.as_deref()), (expected, Some(OTHER)));
    }
}
