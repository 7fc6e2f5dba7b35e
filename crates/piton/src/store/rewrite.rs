//! Rewriting a commit with another tree, which only a purge does. All other bytes stay the same.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::facts::{FACTS_HEADER, skipped_line};
use super::{Objects, Store, tree};
use crate::error::Result;
use crate::id::{CheckpointId, ObjectId, ObjectKind};
use crate::relpath::{self, unescape};
use crate::skipped::Skipped;

/// Changes to a commit.
pub(crate) struct Rewrite<'a> {
    pub(crate) tree: ObjectId,
    pub(crate) parent: Option<CheckpointId>,
    /// New number of files.
    pub(crate) files: Option<u64>,
    /// New ids of checkpoints that were rewritten already.
    pub(crate) ids: &'a HashMap<CheckpointId, CheckpointId>,
    /// Returns true for paths that the commit may not name any more.
    pub(crate) is_purged: &'a dyn Fn(&[u8]) -> bool,
    /// Purged paths that the checkpoint held, to be listed as skipped.
    pub(crate) purged: &'a [Skipped],
}

impl Rewrite<'_> {
    /// Returns the bytes of the new commit.
    pub(crate) fn apply(&self, commit: &[u8]) -> Vec<u8> {
        let mut out: Vec<Vec<u8>> = Vec::new();
        let mut lines = commit.split(|byte| *byte == b'\n');
        for line in lines.by_ref() {
            if line.starts_with(b"tree ") {
                out.push(format!("tree {}", self.tree).into_bytes());
                out.extend(self.parent.map(|parent| format!("parent {parent}").into_bytes()));
            } else if !line.starts_with(b"parent ") {
                out.push(line.to_vec());
            }
            if line.is_empty() {
                break;
            }
        }
        let mut has_facts = false;
        for line in lines {
            let line = if has_facts { self.fact(line) } else { Some(line.to_vec()) };
            has_facts |= line.as_deref() == Some(FACTS_HEADER);
            out.extend(line);
        }
        if !self.purged.is_empty() {
            // The text ends in a newline. Commits made with stock git have no facts yet.
            out.pop_if(|last| last.is_empty());
            let header = (!has_facts).then(|| [Vec::new(), FACTS_HEADER.to_vec()]);
            out.extend(header.into_iter().flatten());
            out.extend(self.purged.iter().map(|skipped| skipped_line(skipped).into_bytes()));
            out.push(Vec::new());
        }
        out.join(&b'\n')
    }

    fn fact(&self, line: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(line).unwrap_or_default();
        let (key, value) = text.split_once(' ').unwrap_or_default();
        let names = |path: Option<&str>| {
            let path = path.and_then(|path| unescape(path.as_bytes()));
            path.is_some_and(|path| (self.is_purged)(&path))
        };
        let is_about_it = match key {
            "empty" => names(Some(value)),
            "mode" => names(value.split_once(' ').map(|(_, path)| path)),
            _ => false,
        };
        let new = match (key, self.files) {
            ("files", Some(files)) => format!("files {files}").into_bytes(),
            ("restoring", _) => {
                let (verb, target) = value.split_once(' ').unwrap_or_default();
                let new = ObjectId::from_hex(target.as_bytes()).and_then(|id| self.ids.get(&id).copied());
                new.map_or_else(|| line.to_vec(), |new| format!("restoring {verb} {new}").into_bytes())
            }
            _ => line.to_vec(),
        };
        (!is_about_it).then_some(new)
    }
}

/// Returns those of `contents` that are in the store, each with every place that holds it: each path of each
/// project once, with the newest checkpoint that has it there.
pub(crate) fn where_held(store: &Store, contents: &HashSet<ObjectId>) -> Result<Vec<(ObjectId, String)>> {
    let held = store.locks.share()?;
    // Names before objects: a take publishes objects first, so every object that is named at this point exists
    // afterwards.
    let roots = store.catalog.roots()?;
    let objects = store.objects.open(&held)?;
    let mut left: BTreeMap<_, Vec<String>> =
        contents.iter().filter(|id| objects.has(**id)).map(|id| (*id, Vec::new())).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let projects: BTreeSet<_> = roots.projects.keys().chain(roots.pins.keys()).cloned().collect();
    for project in projects {
        let (mut trees, mut named) = (HashSet::new(), HashSet::new());
        let place =
            store.records.get(&project).dir().map_or_else(|| project.to_string(), |dir| dir.display().to_string());
        let mut history = objects.history(roots.projects.get(&project).copied(), &roots.ends)?;
        for pin in roots.pins.get(&project).into_iter().flatten() {
            history.extend(objects.history(Some(pin.id), &roots.ends)?);
        }
        for checkpoint in history {
            look_for(&objects, checkpoint.tree, &mut trees, &mut |path, id| {
                if let Some(places) = left.get_mut(&id)
                    && named.insert((path.to_vec(), id))
                {
                    let path = String::from_utf8_lossy(path);
                    places.push(format!("{path} in checkpoint {} of {place}", checkpoint.id.short()));
                }
            })?;
        }
    }
    let mut all = Vec::new();
    for (id, mut places) in left {
        if places.is_empty() {
            places.push("somewhere that is not a checkpoint of a project".to_owned());
        }
        places.sort();
        all.extend(places.into_iter().map(|place| (id, place)));
    }
    Ok(all)
}

/// Calls `each` with every path in a tree and the id of its contents, once for each pair of directory and tree.
fn look_for(
    objects: &Objects,
    tree: ObjectId,
    seen: &mut HashSet<(Vec<u8>, ObjectId)>,
    each: &mut dyn FnMut(&[u8], ObjectId),
) -> Result<()> {
    let mut open = vec![(Vec::new(), tree)];
    while let Some((dir, tree)) = open.pop() {
        if !seen.insert((dir.clone(), tree)) {
            continue;
        }
        let bytes = objects.read(tree, ObjectKind::Tree)?;
        for entry in tree::entries(&bytes) {
            let path = relpath::join(&dir, entry.name);
            match entry.mode {
                tree::DIRECTORY => open.push((path, entry.id)),
                _ => each(&path, entry.id),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purged_paths_leave_the_commit_and_nothing_else_changes() {
        let id = |number: u8| ObjectId::from_bytes([number; 20]);
        let commit = |tree: u8, parent: u8, facts: &str| {
            let people = "author A <a> 5 +0000\ncommitter A <a> 5 +0000";
            let (tree, parent) = (id(tree), id(parent));
            // Lines before the facts belong to the reason, whatever they look like.
            format!("tree {tree}\nparent {parent}\n{people}\n\nreason\nfiles 9\nempty secret\n\npiton 1\n{facts}")
        };
        let before = format!(
            "kind safety\nrestoring undo {}\nfiles 3\nmode 600 secret\nmode 600 other\nempty secret\nempty other\n",
            id(5)
        );
        let after = format!("kind safety\nrestoring undo {}\nfiles 2\nmode 600 other\nempty other\n", id(6));
        let rewrite = Rewrite {
            tree: id(2),
            parent: Some(id(4)),
            files: Some(2),
            ids: &HashMap::from([(id(5), id(6))]),
            is_purged: &|path| path == b"secret",
            purged: &[],
        };
        let rewritten = rewrite.apply(commit(1, 3, &before).as_bytes());
        assert_eq!(String::from_utf8(rewritten).expect("text"), commit(2, 4, &after));
        let first = Rewrite { parent: None, ..rewrite }.apply(commit(1, 3, "").as_bytes());
        assert!(!first.windows(7).any(|word| word == b"parent "));
    }
}
