//! Releases git states that nothing refers to any more, and object files that no state needs.
//!
//! An object file is needed by every state that was recorded before the file was gone from the repository. A repack
//! replaces packs by new ones, which are held, too: an old pack all of whose objects are in other held files is released
//! at once. That is decided from the names of objects alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use super::held::{Gone, HeldFile, release};
use super::object_ids::{ObjectIds, PackIds, of_loose};
use super::state::GitContents;
use super::{GitStateMoment, GitStateRecord, GitStates};
use crate::error::Result;
use crate::fsx;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::relpath;
use crate::store::ProjectLock;
use crate::sys;
use crate::time::Moment;

const DAY_SECS: i64 = 24 * 3600;

/// Rules for the release of git states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleasePolicy {
    pub(crate) keep_days: u64,
    /// Limit of object files that are gone from the repository for longer than that, in bytes. `None` if there is none.
    pub(crate) gone_bytes_max: Option<u64>,
}

impl ReleasePolicy {
    /// Returns the time before which a file must have disappeared from the repository to be released.
    fn expired_before(self, now: Moment) -> i64 {
        let kept_secs = i64::try_from(self.keep_days).unwrap_or(i64::MAX).saturating_mul(DAY_SECS);
        now.secs.saturating_sub(kept_secs)
    }
}

/// Object files that belong together: a pack with its idx, or one loose object.
struct HeldGroup<'a> {
    files: Vec<&'a HeldFile>,
    /// Time at which it was noticed that they are gone.
    gone_secs: i64,
}

impl GitStates {
    /// Releases data that is no longer needed: records of checkpoints that are not in `live` and older than
    /// `keep_days`, their states, and object files. `is_present` tells if an object file is still in the repository.
    /// Returns the number of bytes freed.
    pub(crate) fn release(
        &self,
        _locked: &ProjectLock,
        project: &ProjectId,
        live: &HashSet<CheckpointId>,
        is_present: impl Fn(&[u8]) -> bool,
        policy: ReleasePolicy,
        now: Moment,
    ) -> Result<u64> {
        let expired_before = policy.expired_before(now);
        let mut log = self.log(project);
        let before = log.len();
        let newest = log.len().saturating_sub(1);
        let last_change = log.iter().rposition(|record| record.moment == GitStateMoment::BeforeChange);
        let mut nth = 0;
        log.retain(|record| {
            let at = nth;
            nth += 1;
            record.checkpoint.is_some_and(|id| live.contains(&id))
                || record.time.secs >= expired_before
                || at == newest
                || Some(at) == last_change
        });
        if log.len() < before {
            self.replace_log(project, &log)?;
        }
        let freed = self.release_states(project, &log)?;
        Ok(freed + self.release_objects(project, &log, is_present, policy, expired_before, now)?)
    }

    /// Removes states that are not in the log, and contents that are in none of the others.
    fn release_states(&self, project: &ProjectId, log: &[GitStateRecord]) -> Result<u64> {
        let mut kept: HashSet<ObjectId> = log.iter().map(|record| record.state).collect();
        kept.extend(self.cache(project).state);
        let mut freed = 0;
        let states = self.dir(project).join("states");
        for name in fsx::names_in(&states)? {
            let id = name.to_str().and_then(|name| ObjectId::from_hex(name.as_bytes()));
            if id.is_none_or(|id| !kept.contains(&id)) {
                freed += remove_counted(&states.join(&name))?;
            }
        }
        let mut needed = HashSet::new();
        for id in &kept {
            match self.get(project, *id) {
                Ok(state) => needed.extend(state.files.into_iter().filter_map(|file| match file.contents {
                    GitContents::Stored(id) => Some(id),
                    GitContents::Inline(_) => None,
                })),
                // Without this state it is not known which contents are needed.
                Err(_) => return Ok(freed),
            }
        }
        let files = self.dir(project).join("files");
        for name in fsx::names_in(&files)? {
            let id = name.to_str().and_then(|name| ObjectId::from_hex(name.as_bytes()));
            if id.is_none_or(|id| !needed.contains(&id)) {
                freed += remove_counted(&files.join(&name))?;
            }
        }
        Ok(freed)
    }

    /// D13: releases object files that are gone from the repository and not needed.
    fn release_objects(
        &self,
        project: &ProjectId,
        log: &[GitStateRecord],
        is_present: impl Fn(&[u8]) -> bool,
        policy: ReleasePolicy,
        expired_before: i64,
        now: Moment,
    ) -> Result<u64> {
        let held = self.held(project)?;
        let mut gone = Gone::read(&self.gone_path(project));
        let mut there = ObjectIds::default();
        for file in &held {
            if is_present(&file.path) {
                gone.remove(&file.path);
                there.add(file);
            } else {
                gone.add(file.path.clone(), now.secs);
            }
        }
        let mut groups = grouped(&held, &gone);
        // The newest first: an older pack may be contained in one that disappeared later.
        groups.sort_by_key(|group| std::cmp::Reverse(group.gone_secs));
        let (mut released, mut kept) = (Vec::new(), Vec::new());
        for group in groups {
            let is_needed = log.iter().any(|record| record.time.secs < group.gone_secs);
            let is_expired = group.gone_secs < expired_before;
            if is_contained(&group, &there) || is_expired && !is_needed {
                released.push(group);
            } else {
                group.files.iter().for_each(|file| there.add(file));
                kept.push(group);
            }
        }
        let mut bytes: u64 = kept.iter().map(HeldGroup::bytes_alone).sum();
        while policy.gone_bytes_max.is_some_and(|max| bytes > max)
            && kept.last().is_some_and(|group| group.gone_secs < expired_before)
        {
            let Some(group) = kept.pop() else { break };
            bytes -= group.bytes_alone();
            released.push(group);
        }
        self.remove_listed(project, released.iter().flat_map(|group| &group.files).map(|file| &file.path))?;
        let mut freed = 0;
        for group in &released {
            freed += group.bytes_alone();
            for file in &group.files {
                release(&file.file)?;
                gone.remove(&file.path);
            }
        }
        gone.save(&self.gone_path(project))?;
        Ok(freed)
    }

    /// Returns the held object files that the repository lacks and that have objects which no file in it has. The idx of
    /// a pack comes last. `present` lists the object files in the repository, relative to its common directory.
    ///
    /// A pack without its idx is lost, and so is an idx without its pack.
    pub(crate) fn lost_files(
        &self,
        project: &ProjectId,
        common: &Path,
        present: &BTreeSet<Vec<u8>>,
    ) -> Result<Vec<HeldFile>> {
        let held = self.held(project)?;
        let is_lost = |file: &HeldFile| is_essential(&file.path) && !present.contains(&file.path);
        let mut lost: BTreeMap<Vec<u8>, Vec<HeldFile>> = BTreeMap::new();
        for file in held {
            lost.entry(stem(&file.path)).or_default().push(file);
        }
        lost.retain(|_, files| files.iter().any(is_lost));
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let there = ids_at(common, present);
        let mut found = Vec::new();
        for mut files in lost.into_values() {
            files.sort_by_key(|file| file.path.ends_with(b".idx"));
            let group = HeldGroup { files: files.iter().collect(), gone_secs: 0 };
            if !is_contained(&group, &there) {
                found.extend(files);
            }
        }
        Ok(found)
    }

    /// Returns the ids of the objects in held files, in bytes.
    pub(super) fn ids_in(files: &[HeldFile]) -> ObjectIds {
        let mut ids = ObjectIds::default();
        files.iter().for_each(|file| ids.add(file));
        ids
    }

    /// Returns a function that tells if an object is in a held file, by its id in hexadecimal digits.
    pub(crate) fn held_ids(&self, project: &ProjectId) -> Result<impl Fn(&str) -> bool + use<>> {
        Ok(has_id(Self::ids_in(&self.held(project)?)))
    }

    /// Returns a function that tells if an object is in one of these object files of a repository, like [`Self::held_ids`].
    pub(crate) fn ids_at(&self, common: &Path, present: &BTreeSet<Vec<u8>>) -> impl Fn(&str) -> bool + use<> {
        has_id(ids_at(common, present))
    }

    /// Releases the held object files of a forgotten project, except those that its repository lacks. Notes that these
    /// are gone. Returns the number of bytes freed.
    pub(crate) fn release_all_but(
        &self,
        _locked: &ProjectLock,
        project: &ProjectId,
        lost: &[HeldFile],
        now: Moment,
    ) -> Result<u64> {
        let lost: BTreeSet<&[u8]> = lost.iter().map(|file| file.path.as_slice()).collect();
        let (kept, released): (Vec<_>, Vec<_>) =
            self.held(project)?.into_iter().partition(|file| lost.contains(file.path.as_slice()));
        let mut gone = Gone::read(&self.gone_path(project));
        kept.into_iter().for_each(|file| gone.add(file.path, now.secs));
        if !released.is_empty() {
            // If the project becomes known again, its next capture has to hold all of them.
            self.drop_cache(project)?;
            self.remove_listed(project, released.iter().map(|file| &file.path))?;
        }
        let mut freed = 0;
        for file in &released {
            release(&file.file)?;
            gone.remove(&file.path);
            freed += if file.links == 1 { file.bytes } else { 0 };
        }
        gone.save(&self.gone_path(project))?;
        Ok(freed)
    }

    /// Returns true if everything that is held of a project was gone from its repository for longer than `keep_days`.
    pub(crate) fn is_expired(&self, project: &ProjectId, policy: ReleasePolicy, now: Moment) -> bool {
        let expired_before = policy.expired_before(now);
        let gone = Gone::read(&self.gone_path(project));
        let newest = self.log(project).last().map_or(i64::MIN, |record| record.time.secs);
        newest < expired_before && gone.files.values().all(|secs| *secs < expired_before)
    }

    /// Returns the number of bytes that are held and would be free otherwise: states, copies, and object files of which
    /// no other name is left.
    pub(crate) fn held_bytes(&self, project: &ProjectId) -> Result<u64> {
        let mut bytes = 0;
        for name in ["states", "files"] {
            let dir = self.dir(project).join(name);
            for name in fsx::names_in(&dir)? {
                bytes += fsx::metadata_opt(&dir.join(name))?.map_or(0, |found| found.len());
            }
        }
        let alone = self.held(project)?.iter().filter(|file| file.links == 1).map(|file| file.bytes).sum::<u64>();
        Ok(bytes + alone)
    }
}

impl HeldGroup<'_> {
    /// Returns the number of bytes that a release frees.
    fn bytes_alone(&self) -> u64 {
        self.files.iter().filter(|file| file.links == 1).map(|file| file.bytes).sum()
    }
}

/// Returns the ids of the objects in these object files of a repository.
fn ids_at(common: &Path, present: &BTreeSet<Vec<u8>>) -> ObjectIds {
    let mut ids = ObjectIds::default();
    for path in present {
        ids.add_at(path, &common.join(sys::name_from_bytes(path)));
    }
    ids
}

/// Returns a function that tells if an object is among these, by its id in hexadecimal digits.
fn has_id(ids: ObjectIds) -> impl Fn(&str) -> bool {
    move |id: &str| {
        let bytes: Vec<u8> = id.as_bytes().chunks_exact(2).filter_map(relpath::hex_byte).collect();
        ids.contains(&bytes)
    }
}

/// Returns the groups of files that are gone as a whole. The idx of a pack comes first, so that it is released first.
fn grouped<'a>(held: &'a [HeldFile], gone: &Gone) -> Vec<HeldGroup<'a>> {
    let mut groups: BTreeMap<Vec<u8>, Vec<&HeldFile>> = BTreeMap::new();
    for file in held {
        groups.entry(stem(&file.path)).or_default().push(file);
    }
    let whole = groups.into_values().filter_map(|mut files| {
        let times: Option<Vec<i64>> = files.iter().map(|file| gone.files.get(&file.path).copied()).collect();
        files.sort_by_key(|file| !file.path.ends_with(b".idx"));
        Some(HeldGroup { files, gone_secs: times?.into_iter().max()? })
    });
    whole.collect()
}

/// Returns the path of a pack without what follows its hash, and any other path as it is.
fn stem(path: &[u8]) -> Vec<u8> {
    let (_, name) = relpath::split(path);
    let end = name.iter().position(|byte| *byte == b'.').filter(|_| name.starts_with(b"pack-"));
    let cut = end.map_or(0, |end| name.len() - end);
    path[..path.len() - cut].to_vec()
}

/// Returns true for a file without which its objects cannot be read.
fn is_essential(path: &[u8]) -> bool {
    path.ends_with(b".pack") || path.ends_with(b".idx") || of_loose(path).is_some()
}

/// Returns true if other object files have every object of these.
fn is_contained(group: &HeldGroup<'_>, others: &ObjectIds) -> bool {
    match group.files.iter().find(|file| file.path.ends_with(b".idx")) {
        Some(idx) => PackIds::open(&idx.file).is_some_and(|ids| ids.iter().all(|id| others.contains(id))),
        None => group.files.iter().all(|file| of_loose(&file.path).is_some_and(|id| others.contains(&id))),
    }
}

fn remove_counted(path: &Path) -> Result<u64> {
    let bytes = fsx::metadata_opt(path)?.map_or(0, |found| found.len());
    fsx::remove_file(path).map(|()| bytes)
}
