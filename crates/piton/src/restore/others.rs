//! Whose work a restore takes back. Several agents may work in one project: going back to before what one of them did
//! also takes back what the others did since, and that needs a word of its own.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::id::ObjectId;
use crate::relpath;
use crate::store::{Checkpoint, Objects};

/// What another session did since the checkpoint that is restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherWork {
    /// The session.
    pub session: String,
    /// Its agent.
    pub agent: Option<String>,
    /// How many of its checkpoints were followed by changes.
    pub checkpoints: usize,
    /// The files that changed after them, sorted. What changed since the newest checkpoint is not among them.
    pub paths: Vec<Vec<u8>>,
}

/// What sessions other than `own` did since `since[0]`, the checkpoint that is restored; later ones follow it. `now` is
/// the tree of the files as they are, and `paths` all that is restored, everything if empty.
///
/// Without an `own` session it is the first that did something: whoever goes back to before an agent's work knows of it.
pub(super) fn others(
    objects: &Objects,
    since: &[Checkpoint],
    now: ObjectId,
    own: Option<&str>,
    paths: &[Vec<u8>],
) -> Result<Vec<OtherWork>> {
    let mut own = own.map(str::to_owned);
    let mut found: BTreeMap<String, OtherWork> = BTreeMap::new();
    for (at, checkpoint) in since.iter().enumerate() {
        let origin = &checkpoint.facts.origin;
        let Some(session) = origin.session.as_deref() else { continue };
        // Looking at paths takes two trees of the store; the last of them is not in it.
        let changed = match since.get(at + 1) {
            Some(next) => {
                let changes = objects.compare_trees(Some(checkpoint.tree), Some(next.tree))?;
                let is_restored =
                    |path: &[u8]| paths.is_empty() || paths.iter().any(|dir| relpath::is_within(path, dir));
                let changed = changes.into_iter().map(|change| change.path).filter(|path| is_restored(path));
                Some(changed.collect::<Vec<_>>()).filter(|changed| !changed.is_empty())
            }
            None => (checkpoint.tree != now).then(Vec::new),
        };
        let Some(changed) = changed else { continue };
        if *own.get_or_insert_with(|| session.to_owned()) == session {
            continue;
        }
        let work = found.entry(session.to_owned()).or_insert_with(|| OtherWork {
            session: session.to_owned(),
            agent: origin.agent.clone(),
            checkpoints: 0,
            paths: Vec::new(),
        });
        work.checkpoints += 1;
        work.paths.extend(changed);
    }
    let mut found: Vec<_> = found.into_values().collect();
    for work in &mut found {
        work.paths.sort();
        work.paths.dedup();
    }
    Ok(found)
}
