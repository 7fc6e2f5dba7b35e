//! Checks a remote: refs, indexes and packs; with `read_data`, every byte of them, and that nothing is missing that a
//! checkpoint leads to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Mutex;

use piton::{ObjectId, ObjectKind, checkpoint_tree, tree_items};
use serde::Serialize;

use crate::error::Result;
use crate::index::Index;
use crate::machines::ids;
use crate::records::RefRecord;
use crate::remote::Remote;
use crate::transfer::{Meter, receive};

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
}

impl RemoteVerifyReport {
    fn find(&mut self, key: &str, what: &str, affects: &[String]) {
        let finding = RemoteFinding { key: key.to_owned(), what: what.to_owned(), affects: affects.to_vec() };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

/// Checks everything that refs lead to. Fails only if the remote cannot be reached.
pub fn verify(remote: &Remote, reads_data: bool, meter: &Meter) -> Result<RemoteVerifyReport> {
    let mut report = RemoteVerifyReport::default();
    let sizes: BTreeMap<_, _> = remote.bucket.list("pack/")?.into_iter().map(|info| (info.key, info.bytes)).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut read: HashSet<String> = HashSet::new();
    let mut children = Children::new();
    for key in remote.ref_keys(None)? {
        report.refs += 1;
        let record = match remote.reference(&key) {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(error) => {
                report.find(&key.key(), &error.message, &["all checkpoints of one project on one machine".to_owned()]);
                continue;
            }
        };
        report.checkpoints += record.checkpoints.len();
        let Some(index) = check_indexes(remote, &record, &mut report) else { continue };
        let affects = affected(&record);
        for pack in &index.packs {
            let key = format!("pack/{}", pack.name);
            match sizes.get(&key) {
                None => {
                    report.bad.insert(pack.name.clone());
                    report.find(&key, "it is missing", &affects);
                }
                Some(bytes) if *bytes != pack.bytes => {
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
            check_complete(&record, &index, &children, &mut report);
        }
    }
    let state = remote.local.state();
    for warning in state.warnings {
        report.find("ref", &warning, &[]);
    }
    Ok(report)
}

fn affected(record: &RefRecord) -> Vec<String> {
    ids(record).map(|id| format!("{}:{} {}", record.machine, record.directory, id.short())).collect()
}

/// Reads the indexes of a ref from the bucket, and looks for its checkpoints in them.
fn check_indexes(remote: &Remote, record: &RefRecord, report: &mut RemoteVerifyReport) -> Option<Index> {
    let mut all = Index::default();
    for name in &record.indexes {
        let key = format!("idx/{name}");
        match remote.fresh_index(name) {
            Ok(index) => all.merge(&index),
            Err(error) => {
                report.bad.insert(name.clone());
                report.find(&key, &error.message, &affected(record));
                return None;
            }
        }
    }
    for id in ids(record).filter(|id| all.get(id).is_none()) {
        let affects = format!("{}:{} {}", record.machine, record.directory, id.short());
        report.find(&id.to_string(), "no index names it", &[affects]);
    }
    Some(all)
}

/// Reads every object of an index that was not read before.
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
        if let Err(error) = receive(remote, index, &ids, meter, &take) {
            report.bad.insert(name.to_owned());
            report.find(&format!("pack/{name}"), &error.message, affects);
        }
    }
    children.extend(found.into_inner().expect("no thread panics with it"));
}

/// Looks for everything that the checkpoints of a ref lead to. Objects of packs that could not be read are found already.
fn check_complete(record: &RefRecord, index: &Index, children: &Children, report: &mut RemoteVerifyReport) {
    let mut seen = HashSet::new();
    for id in ids(record) {
        let mut open = vec![id];
        while let Some(object) = open.pop() {
            if !seen.insert(object) {
                continue;
            }
            if index.get(&object).is_none() {
                let affects = format!("{}:{} {}", record.machine, record.directory, id.short());
                report.find(&object.to_string(), "no index names it", &[affects]);
            }
            open.extend(children.get(&object).into_iter().flatten());
        }
    }
}
