//! An open remote: the bucket, the keys, and what this machine knows about it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bucket::{self, Bucket, CredentialsFrom, Location, ObjectInfo};
use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::index::{Index, PackInfo};
use crate::keys::{Keyring, Phrase, name_with, random_name};
use crate::local::{LocalDir, RemoteConfig};
use crate::records::{self, FORMAT, REPOSITORY, RefKey, RefRecord, Repository, Tomb};
use crate::seal;
use crate::slots::{Slot, all_slots};

/// Advice for a place that cannot be joined.
const NOT_OURS: &str = "see whether address, bucket and prefix are right; if they are, `piton repair --remote` on a machine \
    that uses it writes it again";

/// An open remote.
pub struct Remote {
    pub(crate) bucket: Box<dyn Bucket>,
    pub(crate) keys: Option<Keyring>,
    pub(crate) config: RemoteConfig,
    pub(crate) local: LocalDir,
    /// True once the bucket was seen to hold the repository that was added.
    is_checked: AtomicBool,
}

/// Tombs of a bucket.
#[derive(Default)]
pub(crate) struct FoundTombs {
    pub(crate) found: Vec<(ObjectInfo, Tomb)>,
    /// Those that cannot be read.
    pub(crate) corrupt: Vec<(String, RemoteError)>,
}

/// Outcome of [`Remote::add`].
#[derive(Debug)]
pub enum Opened {
    /// A new repository. The phrase is shown once.
    Created(Option<Phrase>),
    /// One that other machines use.
    Joined,
}

/// Options of [`Remote::add`]. Those that are `None` have a default, or stay as they are if the remote is added already.
#[derive(Debug, Clone)]
pub struct AddRequest {
    /// URL of the bucket.
    pub url: String,
    /// Address of the server.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Source of the credentials.
    pub credentials: Option<CredentialsFrom>,
    /// Phrase of an existing repository.
    pub phrase: Option<Phrase>,
    /// True if a new repository is encrypted. An existing one stays as it is.
    pub is_encrypted: bool,
    /// Name of this machine, if one was given.
    pub machine: Option<String>,
    /// Name of this machine if none was given.
    pub default_machine: String,
    /// Host name of this machine.
    pub host: String,
    /// Upload limit in KiB per second; 0 for none.
    pub limit_kib: Option<u64>,
    /// True if this machine may delete objects.
    pub collects: Option<bool>,
}

impl AddRequest {
    fn machine_name(&self) -> String {
        self.machine.clone().unwrap_or_else(|| self.default_machine.clone())
    }

    fn location(&self) -> Location {
        Location {
            url: self.url.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            credentials: self.credentials.clone().unwrap_or_default(),
        }
    }

    /// Returns a configuration with the options that were given.
    fn applied_to(&self, config: &RemoteConfig) -> RemoteConfig {
        let held = &config.location;
        RemoteConfig {
            location: Location {
                url: held.url.clone(),
                endpoint: self.endpoint.clone().or_else(|| held.endpoint.clone()),
                region: self.region.clone().or_else(|| held.region.clone()),
                credentials: self.credentials.clone().unwrap_or_else(|| held.credentials.clone()),
            },
            machine: self.machine.clone().unwrap_or_else(|| config.machine.clone()),
            limit_kib: self.limit_kib.unwrap_or(config.limit_kib),
            collects: self.collects.unwrap_or(config.collects),
            ..config.clone()
        }
    }
}

impl Remote {
    /// Opens the remote of a store. Fails with `NotFound` if there is none, with `WrongKey` if the key is missing, with
    /// `Credentials` without credentials.
    pub fn open(local: &LocalDir) -> Result<Self> {
        let config = local.existing_config()?;
        let keys = local.keys()?;
        if config.is_encrypted && keys.is_none() {
            return Err(RemoteError::new(
                RemoteErrorKind::WrongKey,
                "open the remote: the key of this machine is missing",
            )
            .hint("`piton remote remove`, then `piton remote add` with the recovery phrase"));
        }
        let bucket = bucket::open(&config.location)?;
        Ok(Self::new(bucket, keys.filter(|_| config.is_encrypted), config, local))
    }

    fn new(bucket: Box<dyn Bucket>, keys: Option<Keyring>, config: RemoteConfig, local: &LocalDir) -> Self {
        Self { bucket, keys, config, local: local.clone(), is_checked: AtomicBool::new(false) }
    }

    /// Adds a remote to a store: makes a repository in an empty place, or joins the one that is there. One that was added
    /// already gets the options that are given. Fails with `WrongKey` if the phrase is missing or opens none of its slots.
    pub fn add(local: &LocalDir, request: AddRequest) -> Result<(Self, Opened)> {
        if let Some(config) = local.config()? {
            let changed = request.applied_to(&config);
            if config.location.url == request.url && (changed != config || request.phrase.is_some()) {
                return add_again(local, changed, request.phrase.as_ref());
            }
            let what = format!("add {}: {} is the remote already", request.url, config.location);
            return Err(RemoteError::new(RemoteErrorKind::Invalid, what)
                .hint("`piton remote remove` forgets it here first; what was pushed stays there"));
        }
        let location = request.location();
        let bucket = bucket::open_or_create(&location)?;
        let found = bucket.get(REPOSITORY)?;
        let (repository, keys, opened) = match found {
            Some(text) => join(&*bucket, &text, request.phrase.as_ref())?,
            None => create(&*bucket, &request)?,
        };
        let config = RemoteConfig {
            location,
            repository: repository.repository,
            is_encrypted: repository.is_encrypted,
            writer: random_name()?,
            machine: request.machine_name(),
            host: request.host,
            limit_kib: request.limit_kib.unwrap_or(0),
            collects: request.collects.unwrap_or(true),
            names: Default::default(),
        };
        if let Some(keys) = &keys {
            local.write_keys(keys)?;
        }
        local.write_config(&config)?;
        Ok((Self::new(bucket, keys, config, local), opened))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &RemoteConfig {
        &self.config
    }

    fn description(&self) -> Repository {
        let RemoteConfig { repository, is_encrypted, .. } = &self.config;
        Repository { format: FORMAT, repository: repository.clone(), is_encrypted: *is_encrypted }
    }

    /// Fails with `Damaged` if the bucket does not hold the repository that was added, as an empty mount point or a bucket
    /// that was emptied. Sends one request, and none once it was found.
    pub(crate) fn check_repository(&self) -> Result<()> {
        if self.is_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let wrong = |why: &str| {
            RemoteError::damaged(REPOSITORY, why).hint(
                "nothing was written. Is it the right disk or bucket? If it is, `piton repair --remote` writes it again",
            )
        };
        let text = self.bucket.get(REPOSITORY)?.ok_or_else(|| wrong("there is no repository any more"))?;
        let found: Repository = serde_json::from_slice(&text).map_err(|_| wrong("it is corrupt"))?;
        if found.repository != self.config.repository {
            return Err(wrong("it is another repository than the one that was added"));
        }
        if found != self.description() {
            return Err(wrong("it was changed"));
        }
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the description of the repository again if it is missing or was changed. Fails with `Damaged` if it is that
    /// of another repository, and nothing of this one is there.
    pub(crate) fn repair_repository(&self) -> Result<()> {
        match self.check_repository() {
            Err(error) if error.kind == RemoteErrorKind::Damaged => {
                let own = format!("writer/{}", self.config.writer);
                let found = self.bucket.get(REPOSITORY)?.and_then(|text| serde_json::from_slice(&text).ok());
                let is_other = found.is_some_and(|found: Repository| found.repository != self.config.repository);
                if is_other && self.slots()?.is_empty() && self.bucket.head(&own)?.is_none() {
                    return Err(error.hint("`piton remote remove`, then `piton remote add` uses the one that is there"));
                }
                self.bucket.put(REPOSITORY, serde_json::to_vec_pretty(&self.description()).expect("text"))
            }
            checked => checked,
        }
    }

    /// Deletes everything of the repository, the description last. Returns the number of objects.
    pub(crate) fn delete_data(&self) -> Result<usize> {
        if self.bucket.head(REPOSITORY)?.is_some() {
            self.check_repository()?;
        }
        let mut deleted = 0;
        for prefix in ["ref/", "idx/", "pack/", "tomb/", "writer/", "time/", "key/"] {
            for found in self.bucket.list(prefix)? {
                self.bucket.delete(&found.key)?;
                deleted += 1;
            }
        }
        self.bucket.delete(REPOSITORY)?;
        Ok(deleted + 1)
    }

    /// Returns the name of something in the bucket: a keyed hash, which tells nothing to others.
    pub(crate) fn name(&self, kind: &str, text: &str) -> String {
        match &self.keys {
            Some(keys) => keys.name(kind, text.as_bytes()),
            None => name_with(
                &blake3::derive_key("piton remote 2026 open", self.config.repository.as_bytes()),
                kind,
                text.as_bytes(),
            ),
        }
    }

    /// Writes a record. It opens under this key only.
    pub(crate) fn put_record(&self, key: &str, record: &impl Serialize) -> Result<()> {
        self.bucket.put(key, seal::seal(self.keys.as_ref(), key, &records::encode(record))?)
    }

    /// Reads a record, or returns `None` if there is none. Fails with `Damaged` if it was changed, or written under another
    /// key.
    pub(crate) fn get_record<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(bytes) = self.bucket.get(key)? else { return Ok(None) };
        let text = seal::unseal(self.keys.as_ref(), key, key, &bytes)?;
        records::decode(key, &text).map(Some)
    }

    /// Writes an index for a ref, and returns its name.
    pub(crate) fn put_index(&self, of: &RefKey, index: &Index) -> Result<String> {
        let plain = index.encode();
        let name = object_name(&plain)?;
        let key = format!("idx/{name}");
        let bytes = seal::seal(self.keys.as_ref(), &key, &plain)?;
        self.bucket.put(&key, bytes.clone())?;
        self.local.cache(&cached_name(of, &name), &bytes);
        Ok(name)
    }

    /// Reads an index of a ref, from the cache if it is there. Fails with `Damaged` if it is missing.
    pub(crate) fn index(&self, of: &RefKey, name: &str) -> Result<Index> {
        let (key, cached) = (format!("idx/{name}"), cached_name(of, name));
        let known = self.local.cached(&cached).and_then(|bytes| self.open_index(&key, &bytes).ok());
        if let Some(index) = known {
            return Ok(index);
        }
        let bytes = self.bucket.get(&key)?.ok_or_else(|| RemoteError::damaged(&key, "it is missing"))?;
        let index = self.open_index(&key, &bytes)?;
        self.local.cache(&cached, &bytes);
        Ok(index)
    }

    /// Like [`Self::index`], but always from the bucket.
    pub(crate) fn fresh_index(&self, name: &str) -> Result<Index> {
        let key = format!("idx/{name}");
        let bytes = self.bucket.get(&key)?.ok_or_else(|| RemoteError::damaged(&key, "it is missing"))?;
        self.open_index(&key, &bytes)
    }

    fn open_index(&self, key: &str, bytes: &[u8]) -> Result<Index> {
        Index::decode(key, &seal::unseal(self.keys.as_ref(), key, key, bytes)?)
    }

    /// Returns one index with everything in these, which belong to a ref.
    pub(crate) fn merged_index(&self, of: &RefKey, names: &[String]) -> Result<Index> {
        let mut all = Index::default();
        for name in names {
            all.merge(&self.index(of, name)?);
        }
        Ok(all)
    }

    /// Reads a ref.
    pub(crate) fn reference(&self, key: &RefKey) -> Result<Option<RefRecord>> {
        self.get_record(&key.key())
    }

    /// Returns the keys of all refs, or of those of one project.
    pub(crate) fn ref_keys(&self, project: Option<&str>) -> Result<Vec<RefKey>> {
        let prefix = project.map_or_else(|| "ref/".to_owned(), |project| format!("ref/{project}/"));
        Ok(self.bucket.list(&prefix)?.iter().filter_map(|found| RefKey::parse(&found.key)).collect())
    }

    /// Returns every tomb, by name. A corrupt one is never completed, so that no push has to heed it.
    pub(crate) fn tombs(&self) -> Result<FoundTombs> {
        let mut tombs = FoundTombs::default();
        for info in self.bucket.list("tomb/")? {
            match self.get_record(&info.key) {
                // One that was completed meanwhile is gone.
                Ok(tomb) => tombs.found.extend(tomb.map(|tomb| (info, tomb))),
                Err(error) if error.kind == RemoteErrorKind::Damaged => tombs.corrupt.push((info.key, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(tombs)
    }

    /// Deletes the tombs that cannot be read. What they list becomes garbage again.
    pub(crate) fn delete_corrupt_tombs(&self, tombs: &FoundTombs) -> Result<()> {
        tombs.corrupt.iter().try_for_each(|(key, _)| self.bucket.delete(key))
    }

    /// Reads a part of the contents of a pack.
    pub(crate) fn pack_range(&self, pack: &PackInfo, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let key = format!("pack/{}", pack.name);
        let missing = || RemoteError::damaged(&key, "it is missing");
        let Some(keys) = &self.keys else {
            return self.bucket.get_range(&key, range)?.ok_or_else(missing);
        };
        let bad = || RemoteError::damaged(&key, "its index does not fit it");
        let head = pack.seal_head().ok_or_else(bad)?;
        let span = seal::span_of(&range, pack.bytes).ok_or_else(bad)?;
        let frames = self.bucket.get_range(&key, span.sealed)?.ok_or_else(missing)?;
        let plain = seal::unseal_frames(keys, "pack", &key, &head, pack.bytes, span.first, &frames)?;
        let from = usize::try_from(range.start - span.plain_start).map_err(|_| bad())?;
        let length = usize::try_from(range.end - range.start).map_err(|_| bad())?;
        plain.get(from..from + length).map(<[u8]>::to_vec).ok_or_else(bad)
    }
}

impl Remote {
    /// Returns the slots that a holder of the keyring made.
    pub(crate) fn slots(&self) -> Result<Vec<Slot>> {
        let Some(keys) = &self.keys else { return Ok(Vec::new()) };
        Ok(all_slots(&*self.bucket)?.into_iter().filter(|slot| slot.is_genuine(keys)).collect())
    }

    pub(crate) fn put_slot(&self, slot: &Slot) -> Result<()> {
        self.bucket.put(&format!("key/{}", slot.slot), serde_json::to_vec(slot).expect("text"))
    }

    /// Returns the slots but `without`, to be written again with the keyring of this machine. Fails with `WrongKey` if one of
    /// them has a key that this machine lacks.
    pub(crate) fn slots_to_change(&self, keys: &Keyring, without: Option<&str>) -> Result<Vec<Slot>> {
        let mut slots = self.slots()?;
        slots.retain(|slot| Some(&*slot.slot) != without);
        match slots.iter().find(|slot| !slot.is_known_to(keys)) {
            None => Ok(slots),
            Some(newer) => {
                let what = format!("change keys: the slot {} has a newer key than this machine", newer.slot);
                Err(RemoteError::new(RemoteErrorKind::WrongKey, what).hint(
                    "the key was replaced on another machine: `piton remote add` with the same URL and the recovery \
                     phrase reads it; then try again",
                ))
            }
        }
    }

    /// Seals the keyring of this machine for every slot that lacks one of its keys. A slot that has a key which this
    /// machine lacks stays as it is.
    pub(crate) fn complete_slots(&self) -> Result<()> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let slots = self.slots()?;
        for slot in slots.iter().filter(|slot| slot.is_known_to(keys) && !slot.has_all(keys)) {
            self.put_slot(&slot.resealed(keys)?)?;
        }
        Ok(())
    }
}

/// Returns the name of an immutable object: the hash of its bytes and of random ones. An object that is written again has
/// another name, so that it is not taken for one that is about to be deleted.
pub(crate) fn object_name(bytes: &[u8]) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes).update(random_name()?.as_bytes());
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Returns the name of an index in the cache.
pub(crate) fn cached_name(of: &RefKey, name: &str) -> String {
    format!("idx/{}/{}/{}/{name}", of.project, of.writer, of.place)
}

fn join(bucket: &dyn Bucket, text: &[u8], phrase: Option<&Phrase>) -> Result<(Repository, Option<Keyring>, Opened)> {
    let repository: Repository = serde_json::from_slice(text)
        .map_err(|_| RemoteError::damaged(REPOSITORY, "it describes no repository").hint(NOT_OURS))?;
    if repository.format != FORMAT {
        let what = format!("use the remote: it has format {}, and this version knows {FORMAT}", repository.format);
        return Err(RemoteError::new(RemoteErrorKind::Invalid, what).hint("use a newer version of piton"));
    }
    if !repository.is_encrypted && phrase.is_some() {
        let what = "join the remote: a phrase was given, and the remote says that it is not encrypted";
        return Err(RemoteError::new(RemoteErrorKind::Invalid, what).hint(
            "everything would be sent in the clear. It may have been changed: ask a machine that uses it; without a \
             phrase, it is joined as it is",
        ));
    }
    if !repository.is_encrypted {
        return Ok((repository, None, Opened::Joined));
    }
    let Some(phrase) = phrase else {
        return Err(RemoteError::new(RemoteErrorKind::WrongKey, "join the remote: it is encrypted")
            .hint("give its recovery phrase, with `--phrase-file FILE` or when asked"));
    };
    let keys = all_slots(bucket)?.iter().find_map(|slot| slot.open(phrase)).ok_or_else(|| {
        RemoteError::new(RemoteErrorKind::WrongKey, "open the remote with this recovery phrase")
            .hint("the phrase is valid, but of another remote, or it was removed")
    })?;
    Ok((repository, Some(keys), Opened::Joined))
}

/// Changes the configuration of the remote. With the phrase, the keyring is read again: keys may have been added since
/// this machine joined. Keys that only this machine has stay, and the slots get them.
fn add_again(local: &LocalDir, config: RemoteConfig, phrase: Option<&Phrase>) -> Result<(Remote, Opened)> {
    let bucket = bucket::open(&config.location)?;
    let held = local.keys()?;
    let keys = match phrase {
        None => held,
        Some(_) => {
            let text = bucket.get(REPOSITORY)?.unwrap_or_default();
            let (_, found, _) = join(&*bucket, &text, phrase)?;
            let what = "join the remote: its keys are those of another one";
            let other = || RemoteError::new(RemoteErrorKind::WrongKey, what);
            match (found, held) {
                (Some(found), Some(held)) => Some(found.merged(&held).ok_or_else(other)?),
                (found, _) => found,
            }
        }
    };
    let remote = Remote::new(bucket, keys, config, local);
    remote.check_repository()?;
    if let Some(keys) = &remote.keys {
        local.write_keys(keys)?;
    }
    local.write_config(&remote.config)?;
    if phrase.is_some() {
        // Credentials for reading alone do not permit it. `verify` finds a slot that lacks a key.
        let _ = remote.complete_slots();
    }
    Ok((remote, Opened::Joined))
}

fn create(bucket: &dyn Bucket, request: &AddRequest) -> Result<(Repository, Option<Keyring>, Opened)> {
    if !bucket.list("writer/")?.is_empty() || !bucket.list("ref/")?.is_empty() {
        let what = format!("use {}: it holds what machines have pushed, and {REPOSITORY} is missing", request.url);
        return Err(RemoteError::new(RemoteErrorKind::Damaged, what)
            .hint("`piton repair --remote` on one of these machines writes it again; then join with the phrase"));
    }
    if request.phrase.is_some() {
        return Err(RemoteError::new(
            RemoteErrorKind::NotFound,
            format!("join {}: there is no repository", request.url),
        )
        .hint("see whether bucket and prefix are right; without a phrase, a new one is made there"));
    }
    let repository = Repository { format: FORMAT, repository: random_name()?, is_encrypted: request.is_encrypted };
    let mut made = (None, None);
    if request.is_encrypted {
        let (keys, phrase) = (Keyring::generate()?, Phrase::generate()?);
        let slot = Slot::new(&keys, &phrase, &request.machine_name())?;
        bucket.put(&format!("key/{}", slot.slot), serde_json::to_vec(&slot).expect("text"))?;
        made = (Some(keys), Some(phrase));
    }
    bucket.put(REPOSITORY, serde_json::to_vec_pretty(&repository).expect("text"))?;
    // Two machines that did so at the same time: the later one counts, and the earlier one has to join it.
    match bucket.get(REPOSITORY)?.map(|text| serde_json::from_slice::<Repository>(&text)) {
        Some(Ok(found)) if found == repository => Ok((repository, made.0, Opened::Created(made.1))),
        _ => Err(RemoteError::new(
            RemoteErrorKind::Busy,
            "create the repository: another machine did so at the same time",
        )
        .hint("join it with the phrase that was shown there")),
    }
}

/// Returns the names of all packs in these indexes.
pub(crate) fn packs_in(index: &Index) -> HashSet<&str> {
    index.packs.iter().map(|pack| pack.name.as_str()).collect()
}
