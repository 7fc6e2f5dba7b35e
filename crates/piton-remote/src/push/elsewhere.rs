//! Objects that are in the bucket already: sent by other machines, for other projects, or by a push that was interrupted.

use std::collections::HashSet;
use std::sync::Mutex;

use piton::{ObjectId, ObjectKind, Outgoing};

use super::{Pusher, Pushing};
use crate::error::Result;
use crate::index::{Index, PackInfo};
use crate::local::RemoteState;
use crate::parallel::try_each;
use crate::records::RefKey;

/// Refs of other machines and projects whose objects are not sent again.
const OTHERS_MAX: usize = 1000;
/// Refs that are read at the same time.
const AT_ONCE: usize = 8;
/// With fewer objects and bytes to send, others are not looked at: that takes a request for each of their refs.
const FEW_OBJECTS: usize = 200;
const FEW_BYTES: u64 = 256 << 10;

impl Pusher<'_> {
    /// Adds to the index the objects that the bucket has already. Returns the others, and the number of those that were
    /// found.
    pub(super) fn without_others(
        &self,
        pushing: &Pushing,
        wanted: Vec<(ObjectId, ObjectKind)>,
        avoid: &HashSet<String>,
        state: &RemoteState,
        index: &mut Index,
    ) -> Result<(Vec<(ObjectId, ObjectKind)>, usize)> {
        let mut elsewhere = self.interrupted(state);
        if pushing.own.is_none() || self.is_much(&wanted)? {
            self.merge_others(pushing, &mut elsewhere)?;
        }
        let mut rest = Vec::new();
        let mut found = 0;
        for (id, kind) in wanted {
            match elsewhere.get(&id).filter(|(pack, _)| !avoid.contains(&pack.name)) {
                Some((pack, place)) => {
                    index.add(id, pack, place);
                    found += 1;
                }
                None => rest.push((id, kind)),
            }
        }
        Ok((rest, found))
    }

    /// Returns the places of objects that an interrupted push has sent.
    fn interrupted(&self, state: &RemoteState) -> Index {
        let is_there = |pack: &PackInfo| {
            self.remote.bucket.head(&format!("pack/{}", pack.name)).is_ok_and(|found| found.is_some())
        };
        let sent = state.sent.iter().filter_map(|name| Index::decode(name, &self.remote.local.cached(name)?).ok());
        let mut all = Index::default();
        sent.filter(|one| one.packs.iter().all(is_there)).for_each(|one| all.merge(&one));
        all
    }

    fn is_much(&self, wanted: &[(ObjectId, ObjectKind)]) -> Result<bool> {
        Ok(wanted.len() > FEW_OBJECTS || Outgoing::open(self.store)?.bytes_of(wanted)? > FEW_BYTES)
    }

    /// Adds the indexes of other refs, first those of the same project.
    fn merge_others(&self, pushing: &Pushing, elsewhere: &mut Index) -> Result<()> {
        let mut keys = self.remote.ref_keys(None)?;
        keys.retain(|key| *key != pushing.key);
        keys.sort_by_key(|key| key.project != pushing.key.project);
        keys.truncate(OTHERS_MAX);
        let named = pushing.before.iter().flat_map(|before| before.indexes.iter().cloned()).collect();
        let found = Mutex::new((elsewhere, named));
        try_each(&keys, AT_ONCE, |key| {
            self.meter.check()?;
            let indexes = self.indexes_of(key);
            let (elsewhere, named): &mut (&mut Index, HashSet<String>) =
                &mut found.lock().expect("no thread panics with it");
            for (name, index) in indexes {
                elsewhere.merge(&index);
                named.insert(name);
            }
            Ok(())
        })?;
        let (_, named) = found.into_inner().expect("no thread panics with it");
        self.remote.local.trim_cache("idx/", &named);
        Ok(())
    }

    /// Returns the indexes of a ref, without those that are corrupt or gone: they are no help, and no obstacle.
    fn indexes_of(&self, key: &RefKey) -> Vec<(String, Index)> {
        let Ok(Some(record)) = self.remote.reference(key) else { return Vec::new() };
        let read = record.indexes.into_iter().map(|name| (self.remote.index(key, &name), name));
        read.filter_map(|(index, name)| Some((name, index.ok()?))).collect()
    }
}
