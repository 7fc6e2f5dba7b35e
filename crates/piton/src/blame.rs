//! Attribution of the lines of a file to the steps that wrote them, as pure functions over versions.
//!
//! A step leads from one state of the project to the next: a turn of an agent, the user's edits between two turns, or
//! the first state that is known. A line belongs to the step that last wrote it.

use crate::diff::{changed_lines, is_text, split_lines};
use crate::error::Result;
use crate::id::ObjectId;
use crate::merge::Tree;
use crate::merge::renames::{self, Candidates};

/// One version of a file.
#[derive(Debug, Clone)]
pub struct FileVersion<'a, S> {
    /// Contents of the file after the step. Empty if the file did not exist.
    pub text: &'a [u8],
    /// The step that led to this version.
    pub step: S,
}

/// Returns for each line of the last version the step that wrote it. `versions` are in the order of time; equal
/// versions in a row count as one. Returns `None` if the last version is not text, or if there are no versions.
///
/// A line that was moved belongs to the step that moved it. A version that is not text, or is larger than 16 MiB, has
/// no lines in common with those around it.
///
/// ```
/// use piton::blame::{FileVersion, attribute};
///
/// let versions = [
///     FileVersion { text: b"fn main() {}\n", step: "earlier" },
///     FileVersion { text: b"// Starts here.\nfn main() {}\n", step: "turn 1" },
/// ];
/// assert_eq!(attribute(&versions), Some(vec!["turn 1", "earlier"]));
/// ```
pub fn attribute<S: Clone>(versions: &[FileVersion<'_, S>]) -> Option<Vec<S>> {
    if !is_text(versions.last()?.text) {
        return None;
    }
    let mut last: &[u8] = b"";
    let mut steps: Vec<S> = Vec::new();
    for version in versions {
        if version.text != last {
            steps = carry_over(last, &steps, version);
            last = version.text;
        }
    }
    Some(steps)
}

/// Returns the steps of the lines of `version`, given those of the version before.
fn carry_over<S: Clone>(old: &[u8], steps: &[S], version: &FileVersion<'_, S>) -> Vec<S> {
    if !is_text(old) || !is_text(version.text) {
        return vec![version.step.clone(); split_lines(version.text).len()];
    }
    let (old, new) = (split_lines(old), split_lines(version.text));
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let ends = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = ends.take_while(|(old, new)| old == new).count();
    let mut carried = Vec::with_capacity(new.len());
    carried.extend_from_slice(&steps[..start]);
    let mut at = start;
    for hunk in changed_lines(&old[start..old.len() - end], &new[start..new.len() - end]) {
        carried.extend_from_slice(&steps[at..start + hunk.old.start]);
        carried.extend(hunk.new.map(|_| version.step.clone()));
        at = start + hunk.old.end;
    }
    carried.extend_from_slice(&steps[at..]);
    carried
}

/// Returns the path that a file had before a step, if the step renamed it to `path`. Returns `None` if the path existed
/// before, or if the step added the file.
///
/// `before` and `after` are the trees on both sides of the step; paths that are equal in both may be left out. Files are
/// paired as in a merge, by equal contents, equal names and similarity. `read` returns the contents with an id, or `None`
/// if they are too large to be compared. Fails only if `read` does.
pub fn renamed_from(
    path: &[u8],
    before: &Tree,
    after: &Tree,
    read: &mut dyn FnMut(ObjectId) -> Result<Option<Vec<u8>>>,
) -> Result<Option<Vec<u8>>> {
    if before.contains_key(path) || !after.contains_key(path) {
        return Ok(None);
    }
    let only = |tree: &'_ Tree, other: &Tree| {
        let only = tree.iter().filter(|(path, _)| !other.contains_key(*path));
        only.map(|(path, entry)| (path.clone(), *entry)).collect::<Vec<_>>()
    };
    let (deleted, added) = (only(before, after), only(after, before));
    let candidates = Candidates {
        deleted: deleted.iter().map(|(path, entry)| (path.as_slice(), *entry)).collect(),
        added: added.iter().map(|(path, entry)| (path.as_slice(), *entry)).collect(),
        relevant: deleted.iter().map(|(path, _)| path.as_slice()).collect(),
    };
    let renames = renames::find(&candidates, read)?;
    Ok(renames.pairs.iter().find(|(_, new)| **new == path).map(|(old, _)| old.to_vec()))
}
