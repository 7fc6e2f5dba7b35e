//! Push: new checkpoints go to the bucket. In this order: packs, an index, a look at the tombs, the ref.

mod elsewhere;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use piton::{CheckpointId, ObjectId, ObjectKind, Outgoing, Progress, SentCheckpoint, SentProject, Store};
use serde::Serialize;

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::index::{Index, ObjectPlace};
use crate::keys::random_name;
use crate::local::{LocalDir, OwnRef, PushLock, RemoteState, TEMPORARY, UNKNOWN_HOST, directory_text};
use crate::records::{RefKey, RefRecord, WriterRecord};
use crate::remote::{Remote, cached_name};
use crate::transfer::{Meter, add_pack, send_pack};

/// Time after which a machine that has not renewed its lease no longer delays the deletion of garbage.
pub const LEASE_SECS: u64 = 24 * 60 * 60;
/// Indexes of a ref before they are merged into one, and checkpoints that were dropped since.
const INDEXES_MAX: usize = 8;
const DROPPED_MAX: usize = 10;
/// Attempts, if objects that a push relies on are about to be deleted, or its id is used by another machine.
const ATTEMPTS_MAX: usize = 5;
/// A pack of which less than this share is in use is replaced when indexes are merged.
const USED_PERCENT_MIN: u64 = 50;

/// Reason for a new writer id.
const COPIED: &str = "another machine uses the id of this one, as after copying a disk image";

/// Options of a push.
#[derive(Debug, Clone)]
pub struct PushRequest {
    /// Directories to push; all projects if empty.
    pub directories: Vec<PathBuf>,
    /// Treatment of prompts.
    pub prompt_text: piton::PromptText,
    /// Current time.
    pub now_secs: i64,
    /// Host name of this machine.
    pub host: String,
    /// Seconds for which a lease holds: the same as for the collection.
    pub lease_secs: u64,
    /// Names of packs and indexes that are not used, for a repair: their objects are sent again.
    pub avoid: HashSet<String>,
    /// Keys of own refs, and of the lease, that are written again with all that they name, for a repair.
    pub again: HashSet<String>,
}

/// Result of a push.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PushReport {
    /// Projects with something new.
    pub projects: Vec<PushedProject>,
    /// Projects of which nothing was new.
    pub unchanged: usize,
    /// Bytes of packs that were sent.
    pub bytes_sent: u64,
    /// Findings that the user has to see.
    pub warnings: Vec<String>,
}

/// Result of a push for one project.
#[derive(Debug, Clone, Serialize)]
pub struct PushedProject {
    /// Its directory.
    pub directory: String,
    /// Checkpoints that other machines can restore from now on.
    pub checkpoints: usize,
    /// Objects that were sent.
    pub objects: usize,
    /// Objects that were found in packs of other machines.
    pub found: usize,
}

/// Result of one attempt.
enum Attempt<T> {
    Done(T),
    /// Another machine has the id of this one.
    OtherWriter(String),
}

/// Pushes what is new. The caller holds the lock.
pub fn push(
    store: &Store,
    local: &LocalDir,
    held: &PushLock,
    request: &PushRequest,
    meter: &Meter,
) -> Result<PushReport> {
    let mut report = PushReport::default();
    let mut remote = Remote::open(local)?;
    if remote.config.host == UNKNOWN_HOST && request.host != UNKNOWN_HOST {
        // An older version did not know the name of a host without `/proc`.
        remote.config.host.clone_from(&request.host);
        local.write_config(&remote.config)?;
    }
    if remote.config.host != request.host {
        remote.renew_writer(request, "the base was copied from another host", &mut report)?;
    }
    for _ in 0..ATTEMPTS_MAX {
        let pusher = Pusher { store, remote: &remote, request, meter, dir: local.outgoing(held)? };
        match pusher.run(&mut report)? {
            Attempt::Done(()) => return Ok(report),
            Attempt::OtherWriter(why) => remote.renew_writer(request, &why, &mut report)?,
        }
    }
    Err(RemoteError::new(RemoteErrorKind::Busy, "push: other machines keep changing what this one wrote")
        .hint("two machines may share one base directory; give each its own"))
}

impl Remote {
    /// Takes a new id as a writer. (B11)
    fn renew_writer(&mut self, request: &PushRequest, why: &str, report: &mut PushReport) -> Result<()> {
        let mut state = self.local.state();
        // What is under the old id is from now on that of another machine.
        state.seen.retain(|key, _| RefKey::parse(key).is_none_or(|key| key.writer != self.config.writer));
        self.config.writer = random_name()?;
        self.config.host.clone_from(&request.host);
        (state.refs, state.lease) = (BTreeMap::new(), Vec::new());
        let warning = format!("this machine pushes under a new id: {why}");
        if !why.starts_with("the base was copied") {
            state.warnings.push(warning.clone());
        }
        report.warnings.push(warning);
        // The state first: with the old id and no refs, the next push finds them and takes a new id, too.
        self.local.write_state(&state)?;
        self.local.write_config(&self.config)
    }
}

struct Pusher<'a> {
    store: &'a Store,
    remote: &'a Remote,
    request: &'a PushRequest,
    meter: &'a Meter,
    dir: PathBuf,
}

/// A project that is being pushed.
struct Pushing {
    project: SentProject,
    key: RefKey,
    checkpoints: Vec<SentCheckpoint>,
    /// The ref as it is.
    before: Option<RefRecord>,
    own: Option<OwnRef>,
}

impl Pusher<'_> {
    fn run(&self, report: &mut PushReport) -> Result<Attempt<()>> {
        let mut state = self.remote.local.state();
        let mut gone = if self.has_fresh_lease(&state) { HashSet::new() } else { self.gone_refs(&state)? };
        gone.extend(self.request.again.iter().cloned());
        if let Some(why) = self.renew_lease(&mut state, None)? {
            return Ok(Attempt::OtherWriter(why));
        }
        let projects = Outgoing::open(self.store)?.projects()?;
        let wanted = |project: &&SentProject| {
            self.request.directories.is_empty() || self.request.directories.contains(&project.dir)
        };
        let mut failure = None;
        for project in projects.iter().filter(wanted) {
            self.meter.check()?;
            match self.push_if_new(project, &mut gone, &mut state, report) {
                Ok(Attempt::Done(())) => {}
                Ok(Attempt::OtherWriter(why)) => return Ok(Attempt::OtherWriter(why)),
                Err(error) if error.is_of_project() => failure = failure.or(Some((project, error))),
                Err(error) => return Err(error),
            }
        }
        if let Some((project, error)) = failure {
            return Err(RemoteError { message: format!("push {}: {}", project.dir.display(), error.message), ..error }
                .hint("the other projects are pushed; `piton verify` checks this one"));
        }
        if self.request.directories.is_empty() {
            self.forget_refs(&gone, &mut state)?;
        }
        state.sent.clear();
        state.note_success(self.request.now_secs);
        self.remote.local.write_state(&state)?;
        self.remote.local.trim_cache("sent/", &HashSet::new());
        self.remote.local.trim_cache(TEMPORARY, &HashSet::new());
        Ok(Attempt::Done(()))
    }

    /// Pushes a project, unless the remote has all of it. Takes its ref out of `gone`.
    fn push_if_new(
        &self,
        project: &SentProject,
        gone: &mut HashSet<String>,
        state: &mut RemoteState,
        report: &mut PushReport,
    ) -> Result<Attempt<()>> {
        let checkpoints = Outgoing::open(self.store)?.checkpoints(&project.id, self.request.prompt_text)?;
        let key = self.key_of(project);
        let own = state.refs.get(&key.key()).cloned();
        let is_known = own.as_ref().is_some_and(|own| own.digest == self.digest_of(project, &checkpoints));
        let is_new = !checkpoints.is_empty() && (gone.remove(&key.key()) || !is_known);
        if checkpoints.is_empty() || !is_new && self.request.avoid.is_empty() {
            report.unchanged += 1;
            return Ok(Attempt::Done(()));
        }
        let before = match self.own_ref(&key, own.as_ref())? {
            Attempt::Done(before) => before,
            Attempt::OtherWriter(why) => return Ok(Attempt::OtherWriter(why)),
        };
        if own.is_some() && before.is_none() {
            let dir = project.dir.display();
            let warning =
                format!("what {dir} had pushed is gone from the remote or corrupt there, and is pushed again");
            state.warnings.push(warning.clone());
            report.warnings.push(warning);
        }
        let pushing = Pushing { project: project.clone(), key, checkpoints, before, own };
        match self.push_project(&pushing, state, &mut report.bytes_sent)? {
            Attempt::Done(pushed) => report.projects.push(pushed),
            Attempt::OtherWriter(why) => return Ok(Attempt::OtherWriter(why)),
        }
        Ok(Attempt::Done(()))
    }

    /// Reads the ref of a project of this machine. A corrupt one that this machine wrote counts as missing.
    fn own_ref(&self, key: &RefKey, own: Option<&OwnRef>) -> Result<Attempt<Option<RefRecord>>> {
        let before = match self.remote.reference(key) {
            Err(error) if error.kind == RemoteErrorKind::Damaged && own.is_some() => None,
            Err(error) if error.kind == RemoteErrorKind::Damaged => {
                return Ok(Attempt::OtherWriter(COPIED.to_owned()));
            }
            read => read?,
        };
        if before.is_none() {
            self.remote.check_repository()?;
        }
        match other_writer(own, before.as_ref()) {
            Some(why) => Ok(Attempt::OtherWriter(why)),
            None => Ok(Attempt::Done(before)),
        }
    }

    /// Returns a checksum of all that a ref says about its project: names, checkpoints, their marks and prompts.
    fn digest_of(&self, project: &SentProject, checkpoints: &[SentCheckpoint]) -> String {
        let said = (&self.remote.config.machine, self.remote.project_name(project), checkpoints);
        blake3::hash(&serde_json::to_vec(&said).expect("text")).to_string()
    }

    fn key_of(&self, project: &SentProject) -> RefKey {
        let dir = directory_text(&project.dir);
        let identity = self.remote.project_identity(&dir, project.repository.as_deref());
        RefKey {
            project: self.remote.name("project", &identity),
            writer: self.remote.config.writer.clone(),
            place: self.remote.name("place", &dir),
        }
    }

    /// Forgets refs that no project with checkpoints has any more, as after one got another name, and that are missing or
    /// corrupt.
    fn forget_refs(&self, keys: &HashSet<String>, state: &mut RemoteState) -> Result<()> {
        for key in keys {
            // If another machine uses the former id of this one, they are its refs.
            let own = RefKey::parse(key).filter(|key| key.writer == self.remote.config.writer);
            let Some(parsed) = own else { continue };
            match self.remote.reference(&parsed) {
                Ok(Some(_)) => continue,
                Err(error) if error.kind == RemoteErrorKind::Damaged => self.remote.bucket.delete(key)?,
                read => drop(read?),
            }
            state.refs.remove(key);
            state.seen.remove(key);
        }
        Ok(())
    }

    fn has_fresh_lease(&self, state: &RemoteState) -> bool {
        let age = self.request.now_secs.abs_diff(state.leased_secs);
        age < self.request.lease_secs / 4 && !state.lease.is_empty()
    }

    /// Returns the refs of this machine that are not in the bucket any more, as after it pushed nothing for so long that
    /// they have expired.
    fn gone_refs(&self, state: &RemoteState) -> Result<HashSet<String>> {
        let mut gone = HashSet::new();
        for key in state.refs.keys() {
            if self.remote.bucket.head(key)?.is_none() {
                gone.insert(key.clone());
            }
        }
        Ok(gone)
    }

    /// Writes the lease of this machine, unless the last one is fresh and names these tombs. Returns why the id has to
    /// change if another machine wrote it.
    fn renew_lease(&self, state: &mut RemoteState, tombs: Option<&[String]>) -> Result<Option<String>> {
        let key = format!("writer/{}", self.remote.config.writer);
        if tombs.is_none() && self.has_fresh_lease(state) && !self.request.again.contains(&key) {
            return Ok(None);
        }
        let found: Option<WriterRecord> = match self.remote.get_record(&key) {
            // A corrupt one that this machine wrote is replaced.
            Err(error) if error.kind == RemoteErrorKind::Damaged && !state.lease.is_empty() => None,
            Err(error) if error.kind == RemoteErrorKind::Damaged => return Ok(Some(COPIED.to_owned())),
            read => read?,
        };
        if found.is_none() {
            self.remote.check_repository()?;
        }
        let is_ours = |found: &WriterRecord| state.lease.contains(&found.nonce);
        if found.as_ref().is_some_and(|found| !is_ours(found)) {
            return Ok(Some(COPIED.to_owned()));
        }
        let seen = match tombs {
            Some(tombs) => tombs.to_vec(),
            None => found.map(|found| found.seen).unwrap_or_default(),
        };
        let nonce = random_name()?;
        // Both are ours until the write has succeeded for certain.
        state.lease.push(nonce.clone());
        self.remote.local.write_state(state)?;
        let refs = state.refs.iter().filter(|(_, own)| own.sequence > 0).map(|(key, _)| key.clone()).collect();
        let record = WriterRecord { machine: self.remote.config.machine.clone(), nonce: nonce.clone(), seen, refs };
        self.remote.put_record(&key, &record)?;
        state.lease = vec![nonce];
        state.leased_secs = self.request.now_secs;
        Ok(None)
    }

    /// Sends what is missing, and writes the ref. (B10)
    fn push_project(
        &self,
        pushing: &Pushing,
        state: &mut RemoteState,
        bytes: &mut u64,
    ) -> Result<Attempt<PushedProject>> {
        let mut avoid = self.request.avoid.clone();
        let was_unchecked = pushing.own.as_ref().is_some_and(|own| own.digest.is_empty());
        for _ in 0..ATTEMPTS_MAX {
            let begun = Instant::now();
            let is_doubtful = || was_unchecked || self.may_have_been_suspended(begun);
            let sent = self.send(pushing, &avoid, state, bytes)?;
            let tombs = self.remote.tombs()?.found;
            let dying: HashSet<_> = tombs.iter().flat_map(|(_, tomb)| tomb.packs.iter().chain(&tomb.indexes)).collect();
            let relied: Vec<_> =
                sent.packs.iter().chain(&sent.record.indexes).filter(|name| dying.contains(name)).collect();
            if !relied.is_empty() {
                avoid.extend(relied.into_iter().cloned());
                continue;
            }
            // A tomb that was completed while objects were sent is not listed any more.
            let gone = if is_doubtful() { self.lost(&sent)? } else { self.missing("pack/", &sent.resumed)? };
            if !gone.is_empty() {
                avoid.extend(gone);
                continue;
            }
            let names: Vec<_> = tombs.iter().map(|(info, _)| info.key.clone()).collect();
            if !names.is_empty()
                && let Some(why) = self.renew_lease(state, Some(&names))?
            {
                return Ok(Attempt::OtherWriter(why));
            }
            if let Attempt::OtherWriter(why) = self.write_ref(pushing, &sent, state)? {
                return Ok(Attempt::OtherWriter(why));
            }
            if is_doubtful() {
                let lost = self.lost(&sent)?;
                if !lost.is_empty() {
                    avoid.extend(lost);
                    continue;
                }
            }
            self.note_pushed(pushing, &sent, state)?;
            let directory = pushing.project.dir.to_string_lossy().into_owned();
            let checkpoints = pushing.checkpoints.len();
            return Ok(Attempt::Done(PushedProject {
                directory,
                checkpoints,
                objects: sent.objects,
                found: sent.found,
            }));
        }
        Err(RemoteError::new(RemoteErrorKind::Busy, "push: objects that it relies on keep being deleted")
            .hint("a garbage collection of the remote is at work; try again later"))
    }

    /// Returns true if the lease of this machine may have run out since the push began, by either of its clocks: one of them
    /// stands still while the machine is suspended.
    fn may_have_been_suspended(&self, begun: Instant) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let by_calendar = i64::try_from(now).unwrap_or(i64::MAX).abs_diff(self.request.now_secs);
        begun.elapsed().as_secs().max(by_calendar) > self.request.lease_secs / 2
    }

    /// Returns those of the packs and indexes that are gone. Looks at each: a listing may lag behind.
    fn missing<'n>(&self, prefix: &str, names: impl IntoIterator<Item = &'n String>) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for name in names {
            if self.remote.bucket.head(&format!("{prefix}{name}"))?.is_none() {
                missing.push(name.clone());
            }
        }
        Ok(missing)
    }

    /// Returns the packs and indexes that a ref relies on and that are gone, or about to be deleted.
    fn lost(&self, sent: &Sent) -> Result<Vec<String>> {
        let tombs = self.remote.tombs()?.found;
        let dying = tombs.iter().flat_map(|(_, tomb)| tomb.packs.iter().chain(&tomb.indexes));
        let mut lost: Vec<_> =
            dying.filter(|name| sent.packs.contains(*name) || sent.record.indexes.contains(name)).cloned().collect();
        lost.extend(self.missing("pack/", &sent.packs)?);
        lost.extend(self.missing("idx/", &sent.record.indexes)?);
        Ok(lost)
    }

    /// Sends the objects that are in no usable pack, and an index. Returns the ref that names it all.
    fn send(
        &self,
        pushing: &Pushing,
        avoid: &HashSet<String>,
        state: &mut RemoteState,
        bytes: &mut u64,
    ) -> Result<Sent> {
        let before = pushing.before.as_ref().map(|before| before.indexes.clone()).unwrap_or_default();
        let earlier: HashSet<_> =
            state.sent.iter().filter_map(|name| name.strip_prefix("sent/").map(str::to_owned)).collect();
        let (mut read, named) = (Vec::new(), before.len());
        for name in before.into_iter().filter(|name| !avoid.contains(name)) {
            match self.remote.index(&pushing.key, &name) {
                Ok(index) => read.push((index, name)),
                // One that is gone or corrupt is as if it were not named: its objects are sent again.
                Err(error) if error.kind == RemoteErrorKind::Damaged => {}
                Err(error) => return Err(error),
            }
        }
        let mut own = Index::default();
        read.iter().for_each(|(index, _)| own.merge(index));
        // With an index missing, a known tree does not tell that everything below it is known.
        let rewrites = self.request.again.contains(&pushing.key.key())
            || read.len() >= INDEXES_MAX
            || read.len() < named
            || pushing.own.as_ref().is_some_and(|own| own.dropped >= DROPPED_MAX)
            || own.packs.iter().any(|pack| avoid.contains(&pack.name));
        let ids: Vec<CheckpointId> = pushing.checkpoints.iter().map(|one| one.id).collect();
        let is_usable = |id: &ObjectId| own.get(id).is_some_and(|(pack, _)| !avoid.contains(&pack.name));
        let outgoing = Outgoing::open(self.store)?;
        let all =
            if rewrites { outgoing.objects_of(&ids, &|_| false)? } else { outgoing.objects_of(&ids, &is_usable)? };
        drop(outgoing);
        let mut index = Index::default();
        let worn = if rewrites { worn_packs(&own, &all, &self.remote.config.writer) } else { HashSet::new() };
        let mut rest = Vec::new();
        for (id, kind) in all {
            match own.get(&id).filter(|(pack, _)| rewrites && !avoid.contains(&pack.name) && !worn.contains(&pack.name))
            {
                Some((pack, place)) => index.add(id, pack, place),
                None => rest.push((id, kind)),
            }
        }
        let (rest, found) = self.without_others(pushing, rest, avoid, state, &mut index)?;
        let objects = rest.len();
        *bytes += self.send_packs(&rest, state, &mut index)?;
        let mut indexes: Vec<_> = if rewrites { Vec::new() } else { read.into_iter().map(|(_, name)| name).collect() };
        let mut packs: HashSet<_> = index.packs.iter().map(|pack| pack.name.clone()).collect();
        if !rewrites {
            packs.extend(own.packs.iter().map(|pack| pack.name.clone()));
        }
        let resumed = packs.intersection(&earlier).cloned().collect();
        if !index.places.is_empty() {
            indexes.push(self.remote.put_index(&pushing.key, &index)?);
        }
        let record = self.record_of(pushing, indexes, state)?;
        Ok(Sent { record, packs, resumed, objects, found, is_rewritten: rewrites })
    }

    /// Returns the ref of a project.
    fn record_of(&self, pushing: &Pushing, indexes: Vec<String>, state: &RemoteState) -> Result<RefRecord> {
        let written = state.refs.get(&pushing.key.key()).map_or(0, |own| own.sequence);
        let read = pushing.before.as_ref().map_or(0, |before| before.sequence);
        Ok(RefRecord {
            sequence: written.max(read) + 1,
            nonce: random_name()?,
            machine: self.remote.config.machine.clone(),
            project: self.remote.project_name(&pushing.project),
            directory: pushing.project.dir.to_string_lossy().into_owned(),
            secs: self.request.now_secs,
            checkpoints: pushing.checkpoints.clone(),
            indexes,
        })
    }

    /// Sends objects in packs of 64 MiB. Each is noted, so that an interrupted push goes on after it.
    fn send_packs(
        &self,
        objects: &[(ObjectId, ObjectKind)],
        state: &mut RemoteState,
        index: &mut Index,
    ) -> Result<u64> {
        let (mut at, mut bytes) = (0, 0);
        let progress = Progress::default();
        while at < objects.len() {
            self.meter.check()?;
            let pack = Outgoing::open(self.store)?.pack(&objects[at..], &self.dir, &progress)?;
            let info = send_pack(self.remote, &pack, &self.dir, self.meter)?;
            add_pack(index, &info, &pack);
            let mut alone = Index::default();
            add_pack(&mut alone, &info, &pack);
            let name = format!("sent/{}", info.name);
            self.remote.local.cache(&name, &alone.encode());
            state.sent.push(name);
            self.remote.local.write_state(state)?;
            bytes += info.bytes;
            at += pack.objects.len();
        }
        Ok(bytes)
    }

    /// Writes the ref, unless another machine has written it since it was read: a copy of this one, while objects were sent.
    fn write_ref(&self, pushing: &Pushing, sent: &Sent, state: &mut RemoteState) -> Result<Attempt<()>> {
        let key = pushing.key.key();
        if let Attempt::OtherWriter(why) = self.own_ref(&pushing.key, state.refs.get(&key))? {
            return Ok(Attempt::OtherWriter(why));
        }
        let before = state.refs.get(&key).cloned().unwrap_or_default();
        let directory = directory_text(&pushing.project.dir);
        let identity = self.remote.project_identity(&directory, pushing.project.repository.as_deref());
        let mut own = OwnRef { directory, identity, digest: String::new(), ..before };
        own.nonces.push(sent.record.nonce.clone());
        // Noted before the write: after a kill, either of the two is known as ours, and the next push looks for the packs.
        state.refs.insert(key.clone(), own);
        self.remote.local.write_state(state)?;
        self.remote.put_record(&key, &sent.record)?;
        // At the same moment.
        if self.remote.reference(&pushing.key)?.is_none_or(|found| found.nonce != sent.record.nonce) {
            return Ok(Attempt::OtherWriter(COPIED.to_owned()));
        }
        Ok(Attempt::Done(()))
    }

    /// Notes a ref that was written, and of which no pack is lost.
    fn note_pushed(&self, pushing: &Pushing, sent: &Sent, state: &mut RemoteState) -> Result<()> {
        let key = pushing.key.key();
        let ids: Vec<_> = pushing.checkpoints.iter().map(|one| one.id).collect();
        let own = state.refs.entry(key.clone()).or_default();
        let gone = own.checkpoints.iter().filter(|id| !ids.contains(id)).count();
        own.sequence = sent.record.sequence;
        own.nonces = vec![sent.record.nonce.clone()];
        own.dropped = if sent.is_rewritten { 0 } else { own.dropped + gone };
        own.checkpoints = ids;
        own.digest = self.digest_of(&pushing.project, &pushing.checkpoints);
        state.seen.insert(key, sent.record.sequence);
        self.remote.local.write_state(state)?;
        let named = sent.record.indexes.iter().cloned().collect();
        self.remote.local.trim_cache(&cached_name(&pushing.key, ""), &named);
        Ok(())
    }
}

/// Objects of one project that a push has sent, and the ref that will name them.
struct Sent {
    record: RefRecord,
    /// Packs that the ref relies on.
    packs: HashSet<String>,
    /// Those of them that an earlier push or attempt has sent, and that no ref has led to since.
    resumed: Vec<String>,
    objects: usize,
    found: usize,
    is_rewritten: bool,
}

/// Returns why the ref is not as this machine left it. (B11)
fn other_writer(own: Option<&OwnRef>, before: Option<&RefRecord>) -> Option<String> {
    let before = before?;
    match own {
        Some(own) if own.nonces.contains(&before.nonce) => None,
        Some(own) if before.sequence < own.sequence => {
            Some("the remote was rolled back to an earlier state of what this machine had pushed".to_owned())
        }
        _ => Some(COPIED.to_owned()),
    }
}

/// Returns the packs of this machine of which little is in use any more.
fn worn_packs(own: &Index, used: &[(ObjectId, ObjectKind)], writer: &str) -> HashSet<String> {
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, _) in used {
        if let Some((pack, ObjectPlace { bytes: length, .. })) = own.get(id) {
            *bytes.entry(&pack.name).or_default() += length;
        }
    }
    let is_worn = |pack: &&crate::index::PackInfo| {
        let used = bytes.get(pack.name.as_str()).copied().unwrap_or(0);
        pack.writer == writer && used * 100 < pack.bytes * USED_PERCENT_MIN
    };
    own.packs.iter().filter(is_worn).map(|pack| pack.name.clone()).collect()
}
