//! The three trees of a merge, limited to the paths and hunks that are to be reverted.

use std::collections::{BTreeMap, BTreeSet};

use super::RevertOptions;
use super::states::{State, StateContents};
use crate::diff::CONTEXT;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ObjectId;
use crate::merge::{self, Conflict, ConflictReason, Entry, Tree};
use crate::relpath;
use crate::store::{EntryMode, TreeChange};

/// The part of a turn's changes that is reverted.
pub(super) struct Selection<'a> {
    pub(super) options: RevertOptions<'a>,
    /// Paths that stay as they are.
    pub(super) excluded: &'a BTreeSet<Vec<u8>>,
}

impl Selection<'_> {
    fn has(&self, path: &[u8]) -> bool {
        let paths = self.options.paths;
        let is_meant = paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(path, wanted));
        is_meant && !self.excluded.contains(path)
    }
}

/// The three trees of a merge, at the paths at which they differ.
pub(super) struct Trees {
    pub(super) base: Tree,
    pub(super) ours: Tree,
    pub(super) theirs: Tree,
}

impl Trees {
    /// Reads the trees of three states: the end of the turn, ours and the start of the turn. Also returns the paths of
    /// the turn at which there is a file that is not part of the current state.
    pub(super) fn read(
        [base, ours, start]: [&State; 3],
        selection: &Selection<'_>,
        contents: &mut StateContents<'_>,
    ) -> Result<(Self, Vec<Conflict>)> {
        let mut trees = Self { base: Tree::new(), ours: Tree::new(), theirs: Tree::new() };
        let put = |tree: &mut Tree, path: &[u8], entry: Option<(EntryMode, ObjectId)>| {
            tree.extend(entry.and_then(Entry::of).map(|entry| (path.to_vec(), entry)));
        };
        let mut of_turn = base.changes_to(start, contents.objects)?;
        of_turn.retain(|change| selection.has(&change.path));
        let mut uncovered = Vec::new();
        for change in &of_turn {
            if contents.is_uncovered(&change.path)? {
                let (path, others) = (change.path.clone(), Vec::new());
                uncovered.push(Conflict { path, others, reason: ConflictReason::Uncovered });
            }
        }
        of_turn.retain(|change| !uncovered.iter().any(|conflict| conflict.path == change.path));
        let of_turn: BTreeMap<&[u8], &TreeChange> =
            of_turn.iter().map(|change| (change.path.as_slice(), change)).collect();
        let later = base.changes_to(ours, contents.objects)?;
        let later: BTreeMap<&[u8], &TreeChange> = later.iter().map(|change| (change.path.as_slice(), change)).collect();
        for path in of_turn.keys().chain(later.keys()).copied().collect::<BTreeSet<&[u8]>>() {
            let (turned, changed) = (of_turn.get(path), later.get(path));
            let old = turned.or(changed).and_then(|change| change.old);
            put(&mut trees.base, path, old);
            put(&mut trees.ours, path, changed.map_or(old, |change| change.new));
            put(&mut trees.theirs, path, turned.map_or(old, |change| change.new));
        }
        for (path, lines) in selection.options.hunks {
            trees.select_hunks(path, lines, contents)?;
        }
        Ok((trees, uncovered))
    }

    /// Limits the change of one file to the hunks at these lines.
    fn select_hunks(&mut self, path: &[u8], lines: &BTreeSet<usize>, contents: &mut StateContents<'_>) -> Result<()> {
        let invalid = |why: String| {
            let shown = String::from_utf8_lossy(path);
            Error::new(ErrorKind::Invalid, format!("revert hunks of {shown}")).because(why)
        };
        let no_text = || invalid("it is not text, or too large".to_owned());
        let (end, start) = match (self.base.get(path).copied(), self.theirs.get(path).copied()) {
            (Some(end), Some(start)) => (end, start),
            (None, None) => return Err(invalid("the turn did not change a file of this name".to_owned())),
            (end, _) => {
                let did = if end.is_some() { "added" } else { "deleted" };
                return Err(invalid(format!("the turn {did} the whole file"))
                    .with_hint("name the file as a path instead, to revert it as a whole"));
            }
        };
        let (old, new) = (contents.read(start.id)?, contents.read(end.id)?);
        let (old, new) = old.zip(new).ok_or_else(no_text)?;
        let hunks = merge::hunks(&old, &new).ok_or_else(no_text)?;
        let mut numbers = BTreeSet::new();
        for line in lines {
            let is_at = |hunk: &&merge::TextHunk| hunk.new.start < line + CONTEXT && *line <= hunk.new.end + CONTEXT;
            let hunk = hunks.iter().find(is_at);
            numbers.insert(hunk.ok_or_else(|| invalid(format!("the turn changed nothing at line {line}")))?.number);
        }
        let partly = merge::revert_hunks(&old, &new, &numbers).ok_or_else(no_text)?;
        let id = contents.make(partly)?;
        self.theirs.insert(path.to_vec(), Entry { kind: end.kind, id });
        Ok(())
    }
}
