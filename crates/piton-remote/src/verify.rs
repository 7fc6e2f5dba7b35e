//! Checks a remote: refs, indexes and packs; with `read_data`, also every byte of them, and that every object reachable
//! from a checkpoint exists.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Mutex;

use piton::{CheckpointId, ObjectId, ObjectKind, checkpoint_tree, tree_items};
use serde::Serialize;

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::index::Index;
use crate::local::RemoteState;
use crate::machines::ids;
use crate::records::{REPOSITORY, RefKey, RefRecord, WriterRecord};
use crate::remote::Remote;
use crate::transfer::{Meter, receive};

mod pack;

/// What commits and trees lead to, by their ids.
type Children = HashMap<ObjectId, Vec<ObjectId>>;

/// Something that is wrong with a remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteFinding {
    /// Name of the object.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
    /// Checkpoints that cannot be restored because of it: machine, directory and id.
    pub affects: Vec<String>,
}

/// Result of a check.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RemoteVerifyReport {
    /// Refs that were checked.
    pub refs: usize,
    /// Checkpoints in them.
    pub checkpoints: usize,
    /// Packs that they lead to.
    pub packs: usize,
    /// Their size.
    pub bytes: u64,
    /// Findings.
    pub findings: Vec<RemoteFinding>,
    /// Names of packs and indexes that are missing, truncated or corrupt.
    #[serde(skip)]
    pub bad: HashSet<String>,
    /// Keys of refs of this machine, and of its lease, that it has to write again.
    #[serde(skip)]
    pub again: HashSet<String>,
}

impl RemoteVerifyReport {
    fn find(&mut self, key: &str, what: &str, affects: &[String]) {
        let finding = RemoteFinding { key: key.to_owned(), what: what.to_owned(), affects: affects.to_vec() };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Adds an object that a checkpoint of a ref leads to and that no index of the ref names.
    fn find_unnamed(&mut self, object: ObjectId, id: CheckpointId, record: &RefRecord, own: Option<&RefKey>) {
        let affects = format!("{}:{} {}", record.machine, record.directory, id.short());
        self.find(&object.to_string(), "no index names it", &[affects]);
        self.again.extend(own.map(RefKey::key));
    }
}

/// Checks everything that refs lead to. Fails only if the remote cannot be reached.
pub fn verify(remote: &Remote, reads_data: bool, meter: &Meter) -> Result<RemoteVerifyReport> {
    let mut report = RemoteVerifyReport::default();
    check_description(remote, &mut report)?;
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut read: HashSet<String> = HashSet::new();
    let mut children = Children::new();
    let memory = Memory::read(remote)?;
    let mut there = HashSet::new();
    let mut records = Vec::new();
    for key in remote.ref_keys(None)? {
        report.refs += 1;
        there.insert(key.key());
        match remote.reference(&key) {
            Ok(record) => records.extend(record.map(|record| (key, record))),
            Err(error) => memory.blame(&key.writer, &key.key(), &error, &mut report)?,
        }
    }
    // After the refs: what another machine pushes meanwhile is in the listing, unless that lags behind.
    let sizes: BTreeMap<_, _> = remote.bucket.list("pack/")?.into_iter().map(|info| (info.key, info.bytes)).collect();
    for (key, record) in records {
        memory.check_age(&key, &record, &mut report);
        report.checkpoints += record.checkpoints.len();
        let own = memory.is_own(&key.writer).then_some(&key);
        let Some(index) = check_indexes(remote, &record, own, &mut report) else { continue };
        let affects = affected(&record);
        for pack in &index.packs {
            let key = format!("pack/{}", pack.name);
            let bytes = match sizes.get(&key) {
                Some(bytes) if *bytes == pack.bytes => Some(*bytes),
                _ => remote.bucket.head(&key)?.map(|info| info.bytes),
            };
            match bytes {
                None => {
                    report.bad.insert(pack.name.clone());
                    report.find(&key, "it is missing", &affects);
                }
                Some(bytes) if bytes != pack.bytes => {
                    report.bad.insert(pack.name.clone());
                    report.find(&key, &format!("it has {bytes} bytes instead of {}", pack.bytes), &affects);
                }
                Some(bytes) if seen.insert(key.clone()) => report.bytes += bytes,
                Some(_) => {}
            }
        }
        report.packs = seen.len();
        if reads_data {
            check_data(remote, &index, &affects, (&mut read, &mut children), &mut report, meter);
            check_complete(&record, own, (&index, &children), &mut report);
        }
    }
    memory.check_missing(&there, &mut report)?;
    memory.check_leases(&mut report)?;
    for (key, error) in remote.tombs()?.corrupt {
        report.find(&key, &format!("{}; `piton repair --remote` deletes it", error.message), &[]);
    }
    Ok(report)
}

/// Knowledge of this machine about refs, and that of other machines, by their leases.
struct Memory<'a> {
    remote: &'a Remote,
    state: RemoteState,
    /// By the id of the machine.
    leases: BTreeMap<String, WriterRecord>,
    /// Leases that cannot be read.
    corrupt: Vec<(String, RemoteError)>,
}

impl<'a> Memory<'a> {
    fn read(remote: &'a Remote) -> Result<Self> {
        let (mut leases, mut corrupt) = (BTreeMap::new(), Vec::new());
        for info in remote.bucket.list("writer/")? {
            let writer = info.key["writer/".len()..].to_owned();
            match remote.get_record(&info.key) {
                Ok(lease) => leases.extend(lease.map(|lease| (writer, lease))),
                Err(error) if is_finding(&error) => corrupt.push((writer, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(Self { remote, state: remote.local.state(), leases, corrupt })
    }

    fn is_own(&self, writer: &str) -> bool {
        writer == self.remote.config.writer
    }

    /// Returns what is to be done about an object that only its machine can write again.
    fn advice(&self, writer: &str) -> String {
        match self.leases.get(writer) {
            _ if self.is_own(writer) => "`piton repair --remote` writes it again".to_owned(),
            Some(lease) => format!("`piton repair --remote` on {} writes it again", lease.machine),
            None => "`piton repair --remote` on the machine that pushed it writes it again".to_owned(),
        }
    }

    /// Adds a finding about a ref or a lease. Fails with the error if that tells nothing about the object.
    fn blame(&self, writer: &str, key: &str, error: &RemoteError, report: &mut RemoteVerifyReport) -> Result<()> {
        match error.kind {
            RemoteErrorKind::Damaged => self.find(writer, key, &error.message, report),
            _ if is_finding(error) => report.find(key, &error.message, &[]),
            _ => return Err(error.clone()),
        }
        Ok(())
    }

    fn find(&self, writer: &str, key: &str, what: &str, report: &mut RemoteVerifyReport) {
        let affects = if key.starts_with("ref/") { "all checkpoints of one project on one machine" } else { "" };
        let affects: Vec<_> = Some(affects.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
        report.find(key, &format!("{what}; {}", self.advice(writer)), &affects);
        if self.is_own(writer) {
            report.again.insert(key.to_owned());
        }
    }

    /// Adds a ref that is older than one that this machine wrote or saw before.
    fn check_age(&self, key: &RefKey, record: &RefRecord, report: &mut RemoteVerifyReport) {
        let written = self.state.refs.get(&key.key()).map_or(0, |own| own.sequence);
        let seen = self.state.seen.get(&key.key()).copied().unwrap_or_default();
        if record.sequence < written.max(seen) {
            let what = format!("it is older than before: {} on {} was rolled back", record.directory, record.machine);
            self.find(&key.writer, &key.key(), &what, report);
        }
    }

    /// Adds the leases that cannot be read, and the own one if it is gone.
    fn check_leases(&self, report: &mut RemoteVerifyReport) -> Result<()> {
        for (writer, error) in &self.corrupt {
            self.blame(writer, &format!("writer/{writer}"), error, report)?;
        }
        let own = &self.remote.config.writer;
        let is_there = self.leases.contains_key(own) || self.corrupt.iter().any(|(writer, _)| writer == own);
        let key = format!("writer/{own}");
        if !is_there && !self.state.lease.is_empty() && self.remote.bucket.head(&key)?.is_none() {
            self.find(own, &key, "it is missing", report);
        }
        Ok(())
    }

    /// Looks for refs that this machine wrote, that leases name, or that were seen and whose machines still have a lease:
    /// those of a machine that pushes no more expire with its lease.
    fn check_missing(&self, there: &HashSet<String>, report: &mut RemoteVerifyReport) -> Result<()> {
        let own = self.state.refs.iter().filter(|(_, own)| own.sequence > 0).map(|(key, _)| key);
        let named = self.leases.values().flat_map(|lease| &lease.refs);
        let expected: BTreeSet<_> = own.chain(named).chain(self.state.seen.keys()).collect();
        for key in expected.into_iter().filter(|key| !there.contains(*key)) {
            let Some(RefKey { writer, .. }) = RefKey::parse(key) else { continue };
            let is_expected = self.is_own(&writer) || self.leases.contains_key(&writer);
            if is_expected && self.remote.bucket.head(key)?.is_none() {
                self.find(&writer, key, "it is missing", report);
            }
        }
        Ok(())
    }
}

/// Returns true for an error that is about the object, and not about the way to it.
fn is_finding(error: &RemoteError) -> bool {
    matches!(error.kind, RemoteErrorKind::Damaged | RemoteErrorKind::WrongKey)
}

/// Checks what is in the clear: the description of the repository, and the slots.
fn check_description(remote: &Remote, report: &mut RemoteVerifyReport) -> Result<()> {
    match remote.check_repository() {
        Err(error) if error.kind == RemoteErrorKind::Damaged => report.find(REPOSITORY, &error.message, &[]),
        checked => checked?,
    }
    let Some(keys) = &remote.keys else { return Ok(()) };
    let slots: BTreeMap<_, _> = remote.slots()?.into_iter().map(|slot| (format!("key/{}", slot.slot), slot)).collect();
    for info in remote.bucket.list("key/")? {
        match slots.get(&info.key) {
            None => {
                let what =
                    "it was changed: `piton remote key remove` removes it, `piton remote key add` makes a new one";
                report.find(&info.key, what, &[]);
            }
            Some(slot) if slot.is_known_to(keys) && !slot.has_all(keys) => {
                report.find(&info.key, "its phrase does not open what this machine pushes", &[]);
            }
            Some(_) => {}
        }
    }
    if slots.is_empty() {
        report.find("key/", "no recovery phrase opens the remote: `piton remote key add` makes a new one", &[]);
    }
    Ok(())
}

fn affected(record: &RefRecord) -> Vec<String> {
    ids(record).map(|id| format!("{}:{} {}", record.machine, record.directory, id.short())).collect()
}

/// Reads the indexes of a ref from the bucket, and looks for its checkpoints in them. `own` is the key of a ref of this
/// machine. Returns `None` if one of them cannot be read.
fn check_indexes(
    remote: &Remote,
    record: &RefRecord,
    own: Option<&RefKey>,
    report: &mut RemoteVerifyReport,
) -> Option<Index> {
    let (mut all, mut is_whole) = (Index::default(), true);
    for name in &record.indexes {
        let key = format!("idx/{name}");
        match remote.fresh_index(name) {
            Ok(index) => all.merge(&index),
            Err(error) => {
                report.bad.insert(name.clone());
                report.find(&key, &error.message, &affected(record));
                is_whole = false;
            }
        }
    }
    for id in ids(record).filter(|id| is_whole && all.get(id).is_none()) {
        report.find_unnamed(id, id, record, own);
    }
    is_whole.then_some(all)
}

/// Reads every object of an index that was not read before, and the rest of each pack.
fn check_data(
    remote: &Remote,
    index: &Index,
    affects: &[String],
    (read, children): (&mut HashSet<String>, &mut Children),
    report: &mut RemoteVerifyReport,
    meter: &Meter,
) {
    let mut by_pack: BTreeMap<&str, Vec<ObjectId>> = BTreeMap::new();
    for id in index.places.keys() {
        let Some((pack, _)) = index.get(id) else { continue };
        if !report.bad.contains(&pack.name) && read.insert(format!("{} {id}", pack.name)) {
            by_pack.entry(&pack.name).or_default().push(*id);
        }
    }
    let found = Mutex::new(Vec::new());
    for (name, ids) in by_pack {
        let take = |id: ObjectId, kind: ObjectKind, bytes: Vec<u8>| {
            let led_to = match kind {
                ObjectKind::Commit => vec![checkpoint_tree(id, &bytes)?],
                ObjectKind::Tree => tree_items(id, &bytes)?.into_iter().map(|item| item.id).collect(),
                _ => return Ok(()),
            };
            found.lock().expect("no thread panics with it").push((id, led_to));
            Ok(())
        };
        let whole = match index.packs.iter().find(|pack| pack.name == name) {
            Some(pack) if read.insert(pack.name.clone()) => pack::check_around_entries(remote, pack),
            _ => Ok(()),
        };
        if let Err(error) = receive(remote, index, &ids, meter, &take).and(whole) {
            report.bad.insert(name.to_owned());
            report.find(&format!("pack/{name}"), &error.message, affects);
        }
    }
    children.extend(found.into_inner().expect("no thread panics with it"));
}

/// Looks for everything that the checkpoints of a ref lead to. Objects of packs that could not be read are found already.
fn check_complete(
    record: &RefRecord,
    own: Option<&RefKey>,
    (index, children): (&Index, &Children),
    report: &mut RemoteVerifyReport,
) {
    let mut seen = HashSet::new();
    for id in ids(record) {
        let mut open = vec![id];
        while let Some(object) = open.pop() {
            if !seen.insert(object) {
                continue;
            }
            if index.get(&object).is_none() {
                report.find_unnamed(object, id, record, own);
            }
            open.extend(children.get(&object).into_iter().flatten());
        }
    }
}
