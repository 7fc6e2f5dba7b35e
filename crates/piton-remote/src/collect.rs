//! Garbage collection of a bucket, in two runs that are at least a day apart.
//!
//! 1. Every ref is read. Packs and indexes that no ref leads to are listed in a tomb.
//! 2. A later run completes a tomb once it is old enough by the clock of the bucket, and every machine with a lease has
//!    seen it. All refs are read again, and what is still not referred to is deleted. (B13)
//!
//! No object that is needed is deleted: a machine that chose to rely on a pack before the tomb was written has written
//! its ref before it has seen the tomb, and the second reading finds that ref; one that has seen the tomb does not rely
//! on it. A machine without a lease for a day is not waited for: it looks at the tombs before it writes a ref, and if
//! it was suspended in between, it looks for its packs afterwards and sends again what is missing.
//!
//! Listings may lag behind by up to half of the grace period. The clocks of machines do not matter.

use std::collections::HashSet;
use std::sync::Mutex;

use serde::Serialize;

use crate::bucket::ObjectInfo;
use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::keys::random_name;
use crate::parallel::try_each;
use crate::push::LEASE_SECS;
use crate::records::{RefKey, Tomb, WriterRecord};
use crate::remote::{Remote, packs_in};

/// Seconds between two collections that run by themselves, of all machines together.
pub(crate) const COLLECT_EVERY_SECS: u64 = 24 * 60 * 60;
/// Written by each collection when it has ended.
const COLLECTED: &str = "time/collected";
/// Refs that are read, and objects that are deleted, at the same time.
const AT_ONCE: usize = 8;

/// Times of a garbage collection.
#[derive(Debug, Clone, Copy)]
pub struct CollectPolicy {
    /// Seconds between the two runs.
    pub grace_secs: i64,
    /// Seconds for which a lease holds.
    pub lease_secs: i64,
    /// Days after which the refs of a machine that no longer pushes are deleted; 0 for never.
    pub retention_days: u32,
}

impl Default for CollectPolicy {
    fn default() -> Self {
        let lease_secs = i64::try_from(LEASE_SECS).unwrap_or(i64::MAX);
        Self { grace_secs: 24 * 60 * 60, lease_secs, retention_days: 90 }
    }
}

/// Result of a garbage collection.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CollectReport {
    /// Objects that will be deleted by a later run.
    pub marked: usize,
    /// Objects that were deleted.
    pub deleted: usize,
    /// Their size.
    pub bytes_freed: u64,
    /// Refs that were deleted because their machines no longer push.
    pub refs_expired: usize,
    /// Tombs that were not completed, each with the reason.
    pub waiting: Vec<String>,
    /// Error of an object that was not deleted, if there is one.
    #[serde(skip)]
    pub failure: Option<RemoteError>,
}

/// Everything that refs lead to.
#[derive(Default)]
struct Live {
    packs: HashSet<String>,
    indexes: HashSet<String>,
}

impl Live {
    /// Reads all refs and their indexes. Fails if one of them cannot be read: what it leads to is unknown.
    fn read(remote: &Remote, keys: &HashSet<RefKey>) -> Result<Self> {
        let live = Mutex::new(Self::default());
        try_each(&Vec::from_iter(keys), AT_ONCE, |key| {
            let read = Self::of_ref(remote, key)?;
            let mut live = live.lock().expect("no thread panics with it");
            live.packs.extend(read.packs);
            live.indexes.extend(read.indexes);
            Ok(())
        })?;
        Ok(live.into_inner().expect("no thread panics with it"))
    }

    fn of_ref(remote: &Remote, key: &RefKey) -> Result<Self> {
        let mut live = Self::default();
        let Some(record) = remote.reference(key)? else { return Ok(live) };
        for name in record.indexes {
            let index = remote.index(key, &name)?;
            live.packs.extend(packs_in(&index).into_iter().map(str::to_owned));
            live.indexes.insert(name);
        }
        Ok(live)
    }
}

/// Deletes what nothing refers to, and lists what may be deleted next time. Nothing is deleted if anything that could
/// refer to objects cannot be read.
///
/// Fails with `Invalid` if this machine was added as one that deletes nothing, with `Damaged` if the bucket holds another
/// repository, with `Denied` if the credentials do not permit to write tombs.
pub fn collect(remote: &Remote, policy: CollectPolicy) -> Result<CollectReport> {
    let now = allowed_time(remote)?;
    collect_at(remote, policy, now)
}

/// Like [`collect`], but returns `None` if a machine has done so within a day.
pub(crate) fn collect_daily(remote: &Remote, policy: CollectPolicy) -> Result<Option<CollectReport>> {
    let now = allowed_time(remote)?;
    let last = remote.bucket.head(COLLECTED)?;
    match last.is_some_and(|last| now.abs_diff(last.modified_secs) < COLLECT_EVERY_SECS) {
        true => Ok(None),
        false => collect_at(remote, policy, now).map(Some),
    }
}

/// Returns the time of the bucket, if this machine may delete what it holds.
fn allowed_time(remote: &Remote) -> Result<i64> {
    if !remote.config.collects {
        return Err(RemoteError::new(
            RemoteErrorKind::Invalid,
            "collect garbage: this machine was added with `--no-collect`",
        )
        .hint("run it on a machine that may delete, or add the remote again with `--collect`"));
    }
    remote.check_repository()?;
    server_time(remote)
}

fn collect_at(remote: &Remote, policy: CollectPolicy, now: i64) -> Result<CollectReport> {
    let mut report = CollectReport::default();
    let writers = writers(remote)?;
    expire_refs(remote, policy, now, &writers, &mut report)?;
    let live = Live::read(remote, &all_refs(remote, &writers)?)?;
    remote.local.trim_cache("idx/", &live.indexes);
    let tombs = remote.tombs()?;
    remote.delete_corrupt_tombs(&tombs)?;
    let mut marked = HashSet::new();
    for (info, tomb) in &tombs.found {
        let is_done = match why_waiting(info, policy, now, &writers) {
            Some(why) => {
                report.waiting.push(why);
                false
            }
            None => complete(remote, info, tomb, &live, &mut report)?,
        };
        if !is_done {
            marked.extend(tomb.packs.iter().chain(&tomb.indexes).cloned());
        }
    }
    let fresh = Tomb {
        packs: garbage(remote, "pack/", &live.packs, &marked)?,
        indexes: garbage(remote, "idx/", &live.indexes, &marked)?,
    };
    report.marked = fresh.packs.len() + fresh.indexes.len();
    if report.marked > 0 {
        remote.put_record(&format!("tomb/{}", random_name()?), &fresh)?;
    }
    remote.bucket.put(COLLECTED, Vec::new())?;
    Ok(report)
}

/// Returns the time by the clock of the bucket: that of an object that was just written.
fn server_time(remote: &Remote) -> Result<i64> {
    let key = format!("time/{}", remote.config.writer);
    remote.bucket.put(&key, Vec::new())?;
    let written = remote.bucket.head(&key)?;
    remote.bucket.delete(&key)?;
    let missing =
        || RemoteError::new(RemoteErrorKind::Unavailable, "tell the time of the remote: what was written is gone");
    Ok(written.ok_or_else(missing)?.modified_secs)
}

/// Returns all leases. A machine whose lease is corrupt counts as one that has seen no tomb.
fn writers(remote: &Remote) -> Result<Vec<(ObjectInfo, WriterRecord)>> {
    let mut found = Vec::new();
    for info in remote.bucket.list("writer/")? {
        let record = match remote.get_record::<WriterRecord>(&info.key) {
            Err(error) if error.kind == RemoteErrorKind::Damaged => {
                let machine = format!("a machine with a corrupt lease ({})", info.key);
                Some(WriterRecord { machine, ..WriterRecord::default() })
            }
            read => read?,
        };
        found.extend(record.map(|record| (info, record)));
    }
    Ok(found)
}

/// Returns the keys of all refs: those that are listed, and those that the leases name.
fn all_refs(remote: &Remote, writers: &[(ObjectInfo, WriterRecord)]) -> Result<HashSet<RefKey>> {
    let named = writers.iter().flat_map(|(_, record)| &record.refs).filter_map(|key| RefKey::parse(key));
    Ok(remote.ref_keys(None)?.into_iter().chain(named).collect())
}

/// Returns why a tomb cannot be completed yet.
fn why_waiting(
    tomb: &ObjectInfo,
    policy: CollectPolicy,
    now: i64,
    writers: &[(ObjectInfo, WriterRecord)],
) -> Option<String> {
    let age = now - tomb.modified_secs;
    if age < policy.grace_secs {
        return Some(format!("{} is {age} s old, and is completed after {} s", tomb.key, policy.grace_secs));
    }
    let is_alive = |info: &ObjectInfo| now - info.modified_secs < policy.lease_secs;
    let blind = writers.iter().find(|(info, record)| is_alive(info) && !record.seen.contains(&tomb.key));
    blind.map(|(_, record)| format!("{} has not seen {} yet", record.machine, tomb.key))
}

/// Deletes what a tomb lists and nothing refers to, the indexes first, and then the tomb. Returns false if an object was
/// not deleted: the tomb stays, and the next run goes on with it.
fn complete(remote: &Remote, info: &ObjectInfo, tomb: &Tomb, live: &Live, report: &mut CollectReport) -> Result<bool> {
    let indexes = tomb.indexes.iter().filter(|name| !live.indexes.contains(*name)).map(|name| format!("idx/{name}"));
    let packs = tomb.packs.iter().filter(|name| !live.packs.contains(*name)).map(|name| format!("pack/{name}"));
    // Other errors than a missing permission end only the deletion of one object.
    let failure = Mutex::new(None);
    for keys in [indexes.collect::<Vec<_>>(), packs.collect()] {
        let report = Mutex::new(&mut *report);
        try_each(&keys, AT_ONCE, |key| {
            let deleted = remote.bucket.head(key).and_then(|found| {
                let bytes = found.map(|found| remote.bucket.delete(key).map(|()| found.bytes));
                bytes.transpose()
            });
            match deleted {
                Ok(Some(bytes)) => {
                    let mut report = report.lock().expect("no thread panics with it");
                    report.deleted += 1;
                    report.bytes_freed += bytes;
                }
                Ok(None) => {}
                Err(error) if error.kind == RemoteErrorKind::Denied => return Err(error),
                Err(error) => *failure.lock().expect("no thread panics with it") = Some(error),
            }
            Ok(())
        })?;
    }
    match failure.into_inner().expect("no thread panics with it") {
        None => remote.bucket.delete(&info.key).map(|()| true),
        Some(error) => {
            report.waiting.push(format!("{} is not done: {error}", info.key));
            report.failure = Some(error);
            Ok(false)
        }
    }
}

fn garbage(remote: &Remote, prefix: &str, live: &HashSet<String>, marked: &HashSet<String>) -> Result<Vec<String>> {
    let names = remote.bucket.list(prefix)?.into_iter().map(|info| info.key[prefix.len()..].to_owned());
    Ok(names.filter(|name| !live.contains(name) && !marked.contains(name)).collect())
}

/// Deletes the refs and leases of machines that push no more.
fn expire_refs(
    remote: &Remote,
    policy: CollectPolicy,
    now: i64,
    writers: &[(ObjectInfo, WriterRecord)],
    report: &mut CollectReport,
) -> Result<()> {
    let age_max = i64::from(policy.retention_days) * 24 * 60 * 60;
    if age_max == 0 {
        return Ok(());
    }
    let is_old = |info: &ObjectInfo| now - info.modified_secs > age_max;
    let alive: HashSet<_> =
        writers.iter().filter(|(info, _)| !is_old(info)).map(|(info, _)| info.key.clone()).collect();
    for info in remote.bucket.list("ref/")?.into_iter().filter(is_old) {
        let writer = RefKey::parse(&info.key).map(|key| format!("writer/{}", key.writer));
        if writer.is_some_and(|writer| !alive.contains(&writer)) {
            remote.bucket.delete(&info.key)?;
            report.refs_expired += 1;
        }
    }
    for (info, _) in writers.iter().filter(|(info, _)| is_old(info)) {
        remote.bucket.delete(&info.key)?;
    }
    Ok(())
}
