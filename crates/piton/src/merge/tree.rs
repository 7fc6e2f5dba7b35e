//! Three-way merge of trees: every path by itself, renamed files under their new path.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, EntryKind};
use super::renames::{self, Candidates, Read};
use super::text::{LineConflict, TextMerge, merge_text};
use crate::error::Result;
use crate::id::ObjectId;
use crate::relpath;

/// Files of one state by path, relative to the project. Paths that are equal in all three states may be left out.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// Result of a merge of trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeMerge {
    /// Changes that turn *ours* into the result, by path. They can be applied without the conflicting paths.
    pub changes: Vec<PathChange>,
    /// Conflicts, by path. Their paths remain as they are in *ours*.
    pub conflicts: Vec<Conflict>,
}

/// Change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathChange {
    /// Path of the file.
    pub path: Vec<u8>,
    /// The file in *ours*, if it exists there.
    pub old: Option<Entry>,
    /// The file in the result; `None` if it is deleted.
    pub new: Option<MergedEntry>,
    /// Path in *ours* of a file that is renamed to `path`.
    pub renamed_from: Option<Vec<u8>>,
}

/// File in the result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedEntry {
    /// Kind of the file.
    pub kind: EntryKind,
    /// Its contents.
    pub contents: MergedContents,
}

/// Contents of a file in the result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedContents {
    /// Contents of one of the three trees.
    Stored(ObjectId),
    /// Text that was merged by lines.
    Merged(Vec<u8>),
}

/// Paths that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// Path in *ours*, or the path that the result would have.
    pub path: Vec<u8>,
    /// Other paths that are involved, such as the other names of a renamed file.
    pub others: Vec<Vec<u8>>,
    /// Cause of the conflict.
    pub reason: ConflictReason,
}

/// Cause of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictReason {
    /// Both sides changed these lines.
    Lines(Vec<LineConflict>),
    /// Both sides changed a file that is not text, or is too large to be compared by lines.
    Binary,
    /// Both sides changed the target of a link.
    Link,
    /// The file was changed on one side, and is of another type on the other.
    Type,
    /// Both sides added the path, with different contents.
    AddAdd,
    /// Our side deleted what theirs changed.
    DeletedByUs,
    /// Their side deleted what ours changed.
    DeletedByThem,
    /// One side renamed the file, and the other deleted it.
    RenameDelete,
    /// The sides gave the file different names.
    RenameRename,
    /// A renamed file meets another file under its new path.
    RenameAdd,
    /// The file was renamed, and several files of equal contents do not tell to which name.
    AmbiguousRename,
    /// The result would need a file and a directory of this name.
    FileDirectory,
    /// There is a file of this name that is part of no side: it is ignored, or could not be read.
    Uncovered,
}

impl std::fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lines(_) => "the same lines changed",
            Self::Binary => "a file that is not text changed",
            Self::Link => "the target of the link changed",
            Self::Type => "it is of another type",
            Self::AddAdd => "another file of this name was added",
            Self::DeletedByUs => "it was deleted",
            Self::DeletedByThem => "it was changed",
            Self::RenameDelete => "it was renamed on one side and deleted on the other",
            Self::RenameRename => "it was renamed differently",
            Self::RenameAdd => "another file has the name that it was renamed to",
            Self::AmbiguousRename => "it was renamed together with files of equal contents",
            Self::FileDirectory => "a file and a directory would have this name",
            Self::Uncovered => "it is ignored, or cannot be read",
        })
    }
}

/// Merges the changes from `base` to `theirs` into `ours`.
///
/// `read` returns the contents with an id, or `None` if they are too large to be compared. It is called for files that
/// changed on both sides, and for those that may have been renamed. Fails only if `read` does.
pub fn merge_trees(
    base: &Tree,
    ours: &Tree,
    theirs: &Tree,
    read: &mut dyn FnMut(ObjectId) -> Result<Option<Vec<u8>>>,
) -> Result<TreeMerge> {
    let mut merge = Merge { base, ours, theirs, read, resolved: BTreeMap::new(), conflicts: Vec::new() };
    let mut done = merge.merge_renamed()?;
    done.extend(merge.conflicts.iter().flat_map(|conflict| conflict.others.iter().chain([&conflict.path]).cloned()));
    let paths: BTreeSet<&Vec<u8>> = base.keys().chain(ours.keys()).chain(theirs.keys()).collect();
    for path in paths.into_iter().filter(|path| !done.contains(*path)) {
        merge.merge_path(path)?;
    }
    merge.leave_colliding();
    Ok(merge.finish())
}

/// Three versions of one file; `None` where it does not exist.
#[derive(Clone, Copy)]
struct ThreeVersions {
    base: Option<Entry>,
    ours: Option<Entry>,
    theirs: Option<Entry>,
}

/// State of a path in the result.
struct ResolvedPath {
    entry: Option<MergedEntry>,
    renamed_from: Option<Vec<u8>>,
}

/// Result of merging one file.
type EntryResult = std::result::Result<Option<MergedEntry>, ConflictReason>;

struct Merge<'m, 'r> {
    base: &'m Tree,
    ours: &'m Tree,
    theirs: &'m Tree,
    read: &'m mut Read<'r>,
    resolved: BTreeMap<Vec<u8>, ResolvedPath>,
    conflicts: Vec<Conflict>,
}

impl<'m> Merge<'m, '_> {
    fn candidates(&self, side: &'m Tree, other: &Tree) -> Candidates<'m> {
        let mut candidates = Candidates::default();
        for (path, entry) in self.base.iter().filter(|(path, _)| !side.contains_key(*path)) {
            candidates.deleted.push((path, *entry));
            if other.get(path) != Some(entry) {
                candidates.relevant.insert(path);
            }
        }
        let is_added = |(path, _): &(&Vec<u8>, &Entry)| !self.base.contains_key(*path);
        candidates.added.extend(side.iter().filter(is_added).map(|(path, entry)| (path.as_slice(), *entry)));
        candidates
    }

    /// Merges the files that one side renamed and the other changed. Returns the paths that are settled.
    fn merge_renamed(&mut self) -> Result<BTreeSet<Vec<u8>>> {
        let our_names = renames::find(&self.candidates(self.ours, self.theirs), self.read)?;
        let their_names = renames::find(&self.candidates(self.theirs, self.ours), self.read)?;
        let mut unclear = BTreeSet::new();
        for (old, paths) in our_names.ambiguous.iter().chain(&their_names.ambiguous) {
            let others: BTreeSet<&[u8]> = paths.iter().copied().filter(|path| path != old).collect();
            unclear.extend(others.iter().copied().chain([*old]));
            self.add_conflict(old, others.into_iter(), ConflictReason::AmbiguousRename);
        }
        let (our_names, their_names) = (our_names.pairs, their_names.pairs);
        let olds: BTreeSet<&[u8]> = our_names.keys().chain(their_names.keys()).copied().collect();
        let mut settled = BTreeSet::new();
        for old in olds {
            let (our, their) = (our_names.get(old).copied(), their_names.get(old).copied());
            let paths: BTreeSet<&[u8]> = [our, Some(old), their].into_iter().flatten().collect();
            if unclear.contains(old) {
                continue;
            }
            let outcome = if paths.is_disjoint(&unclear) {
                self.merge_rename(old, our, their)?
            } else {
                Err(ConflictReason::AmbiguousRename)
            };
            match (outcome, our.or(their)) {
                (Ok(entry), Some(new)) => {
                    let renamed_from = our.is_none().then(|| old.to_vec());
                    self.resolved.insert(new.to_vec(), ResolvedPath { entry, renamed_from });
                    self.resolved.insert(old.to_vec(), ResolvedPath { entry: None, renamed_from: None });
                    settled.extend(paths.into_iter().map(<[u8]>::to_vec));
                }
                (Err(reason), _) => {
                    let path = our.unwrap_or(old);
                    self.add_conflict(path, paths.into_iter().filter(|other| *other != path), reason);
                }
                (Ok(_), None) => {}
            }
        }
        Ok(settled)
    }

    fn add_conflict<'p>(&mut self, path: &[u8], others: impl Iterator<Item = &'p [u8]>, reason: ConflictReason) {
        let others = others.map(<[u8]>::to_vec).collect();
        self.conflicts.push(Conflict { path: path.to_vec(), others, reason });
    }

    /// Merges a file that has a new name on our side, on theirs, or on both.
    fn merge_rename(&mut self, old: &[u8], our: Option<&[u8]>, their: Option<&[u8]>) -> Result<EntryResult> {
        let versions = ThreeVersions {
            base: self.base.get(old).copied(),
            ours: self.ours.get(our.unwrap_or(old)).copied(),
            theirs: self.theirs.get(their.unwrap_or(old)).copied(),
        };
        let reason = match (our, their) {
            (Some(our), Some(their)) if our != their => ConflictReason::RenameRename,
            (Some(_), Some(_)) | (None, None) => return self.merge_versions(versions),
            (None, _) if versions.ours.is_none() => ConflictReason::RenameDelete,
            (_, None) if versions.theirs.is_none() => ConflictReason::RenameDelete,
            (None, Some(new)) if self.ours.contains_key(new) => ConflictReason::RenameAdd,
            (Some(new), None) if self.theirs.contains_key(new) => ConflictReason::RenameAdd,
            _ if versions.ours.is_some_and(is_link) != versions.theirs.is_some_and(is_link) => ConflictReason::Type,
            _ => return self.merge_versions(versions),
        };
        Ok(Err(reason))
    }

    fn merge_path(&mut self, path: &[u8]) -> Result<()> {
        let versions = ThreeVersions {
            base: self.base.get(path).copied(),
            ours: self.ours.get(path).copied(),
            theirs: self.theirs.get(path).copied(),
        };
        match self.merge_versions(versions)? {
            Ok(entry) => {
                self.resolved.insert(path.to_vec(), ResolvedPath { entry, renamed_from: None });
            }
            Err(reason) => self.add_conflict(path, std::iter::empty(), reason),
        }
        Ok(())
    }

    /// Merges three versions of one file.
    fn merge_versions(&mut self, versions: ThreeVersions) -> Result<EntryResult> {
        let ThreeVersions { base, ours, theirs } = versions;
        if ours == theirs || base == theirs {
            return Ok(Ok(ours.map(stored)));
        }
        if base == ours {
            return Ok(Ok(theirs.map(stored)));
        }
        let (ours, theirs) = match (ours, theirs) {
            (Some(ours), Some(theirs)) => (ours, theirs),
            (None, _) => return Ok(Err(ConflictReason::DeletedByUs)),
            (_, None) => return Ok(Err(ConflictReason::DeletedByThem)),
        };
        let Some(base) = base else {
            return Ok(Err(ConflictReason::AddAdd));
        };
        let links = [base, ours, theirs].into_iter().filter(|entry| is_link(*entry)).count();
        match links {
            0 => self.merge_files(base, ours, theirs),
            3 => Ok(Err(ConflictReason::Link)),
            _ => Ok(Err(ConflictReason::Type)),
        }
    }

    fn merge_files(&mut self, base: Entry, ours: Entry, theirs: Entry) -> Result<EntryResult> {
        let kind = if base.kind == ours.kind { theirs.kind } else { ours.kind };
        let contents = if ours.id == theirs.id || base.id == theirs.id {
            MergedContents::Stored(ours.id)
        } else if base.id == ours.id {
            MergedContents::Stored(theirs.id)
        } else {
            let texts = ((self.read)(base.id)?, (self.read)(ours.id)?, (self.read)(theirs.id)?);
            let (Some(base_text), Some(our_text), Some(their_text)) = texts else {
                return Ok(Err(ConflictReason::Binary));
            };
            match merge_text(&base_text, &our_text, &their_text) {
                // Ours has all changes of theirs already.
                TextMerge::Clean(text) if text == our_text => MergedContents::Stored(ours.id),
                TextMerge::Clean(text) => MergedContents::Merged(text),
                TextMerge::Conflict(lines) => return Ok(Err(ConflictReason::Lines(lines))),
                TextMerge::Binary => return Ok(Err(ConflictReason::Binary)),
            }
        };
        Ok(Ok(Some(MergedEntry { kind, contents })))
    }

    /// Leaves changes out, and reports them as conflicts, as long as the result has a file where it needs a directory.
    ///
    /// *Ours* has no such paths, so there is an end to it.
    fn leave_colliding(&mut self) {
        loop {
            let colliding = self.colliding();
            if colliding.is_empty() {
                return;
            }
            for path in colliding {
                // A file that was renamed stays where it was.
                let from = self.resolved.remove(&path).and_then(|resolved| resolved.renamed_from);
                from.iter().for_each(|from| drop(self.resolved.remove(from)));
                let others = from.into_iter().collect();
                self.conflicts.push(Conflict { path, others, reason: ConflictReason::FileDirectory });
            }
        }
    }

    /// Returns the changed paths that collide with a file or a directory of the result.
    fn colliding(&self) -> Vec<Vec<u8>> {
        let mut result: BTreeSet<&[u8]> = self.ours.keys().map(Vec::as_slice).collect();
        for (path, resolved) in &self.resolved {
            if resolved.entry.is_some() {
                result.insert(path)
            } else {
                result.remove(path.as_slice())
            };
        }
        let is_change = |path: &[u8]| {
            let old = self.ours.get(path).copied().map(stored);
            self.resolved.get(path).is_some_and(|resolved| resolved.entry != old)
        };
        let mut colliding = BTreeSet::new();
        for path in &result {
            let mut dir = relpath::split(path).0;
            while !dir.is_empty() {
                if result.contains(dir) {
                    colliding.extend([*path, dir].into_iter().filter(|path| is_change(path)).map(<[u8]>::to_vec));
                }
                dir = relpath::split(dir).0;
            }
        }
        colliding.into_iter().collect()
    }

    fn finish(mut self) -> TreeMerge {
        self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        let changes = self.resolved.into_iter().filter_map(|(path, ResolvedPath { entry: new, renamed_from })| {
            let old = self.ours.get(&path).copied();
            (old.map(stored) != new).then_some(PathChange { path, old, new, renamed_from })
        });
        TreeMerge { changes: changes.collect(), conflicts: self.conflicts }
    }
}

fn stored(entry: Entry) -> MergedEntry {
    MergedEntry { kind: entry.kind, contents: MergedContents::Stored(entry.id) }
}

fn is_link(entry: Entry) -> bool {
    entry.kind.is_link()
}
