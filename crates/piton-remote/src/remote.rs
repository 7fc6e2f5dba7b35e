//! An open remote: the bucket, the keys, and what this machine knows about it.

use std::collections::HashSet;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bucket::{self, Bucket, Location, ObjectInfo};
use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::index::{Index, PackInfo};
use crate::keys::{Keyring, Phrase, name_with, random_name};
use crate::local::{LocalDir, RemoteConfig};
use crate::records::{self, FORMAT, REPOSITORY, RefKey, RefRecord, Repository, Tomb};
use crate::seal;
use crate::slots::Slot;

/// An open remote.
pub struct Remote {
    pub(crate) bucket: Box<dyn Bucket>,
    pub(crate) keys: Option<Keyring>,
    pub(crate) config: RemoteConfig,
    pub(crate) local: LocalDir,
}

/// Answer to a request for the key of a repository.
#[derive(Debug)]
pub enum Opened {
    /// A new repository. The phrase is shown once.
    Created(Option<Phrase>),
    /// One that other machines use.
    Joined,
}

/// Options of [`Remote::add`].
#[derive(Debug, Clone)]
pub struct AddRequest {
    /// Place of the bucket.
    pub location: Location,
    /// Phrase of an existing repository.
    pub phrase: Option<Phrase>,
    /// False: a new repository is made in the clear.
    pub is_encrypted: bool,
    /// Name of this machine.
    pub machine: String,
    /// Host name of this machine.
    pub host: String,
    /// Upload limit in KiB per second; 0 for none.
    pub limit_kib: u64,
    /// True if this machine may delete objects.
    pub collects: bool,
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
        Ok(Self { bucket, keys: keys.filter(|_| config.is_encrypted), config, local: local.clone() })
    }

    /// Adds a remote to a store: makes a repository in an empty place, or joins the one that is there. Fails with
    /// `WrongKey` if the phrase is missing or opens none of its slots.
    pub fn add(local: &LocalDir, request: AddRequest) -> Result<(Self, Opened)> {
        if let Some(config) = local.config()? {
            if let Some(phrase) = request.phrase.as_ref().filter(|_| config.location.url == request.location.url) {
                return rejoin(local, config, phrase);
            }
            let (held, wanted) = (config.location.to_string(), request.location.to_string());
            return Err(RemoteError::new(
                RemoteErrorKind::Invalid,
                format!("add {wanted}: {held} is the remote already"),
            )
            .hint("`piton remote remove` forgets it here first; what was pushed stays there"));
        }
        let bucket = bucket::open(&request.location)?;
        let found = bucket.get(REPOSITORY)?;
        let (repository, keys, opened) = match found {
            Some(text) => join(&*bucket, &text, request.phrase.as_ref())?,
            None => create(&*bucket, &request)?,
        };
        let config = RemoteConfig {
            location: request.location,
            repository: repository.repository,
            is_encrypted: repository.is_encrypted,
            writer: random_name()?,
            machine: request.machine,
            host: request.host,
            limit_kib: request.limit_kib,
            collects: request.collects,
            names: Default::default(),
        };
        if let Some(keys) = &keys {
            local.write_keys(keys)?;
        }
        local.write_config(&config)?;
        Ok((Self { bucket, keys, config, local: local.clone() }, opened))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &RemoteConfig {
        &self.config
    }

    /// Fails if the bucket cannot be reached, or holds another repository than the one that was added.
    pub(crate) fn is_reachable(&self) -> Result<()> {
        let found = self.bucket.get(REPOSITORY)?.and_then(|text| serde_json::from_slice::<Repository>(&text).ok());
        match found {
            Some(found) if found.repository == self.config.repository => Ok(()),
            Some(_) => Err(RemoteError::damaged(REPOSITORY, "it is another repository than the one that was added")),
            None => Err(RemoteError::damaged(REPOSITORY, "there is no repository any more")),
        }
    }

    /// Deletes everything of the repository, the description last. Returns the number of objects.
    pub(crate) fn delete_data(&self) -> Result<usize> {
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

    /// Writes a record.
    pub(crate) fn put_record(&self, key: &str, kind: &str, record: &impl Serialize) -> Result<()> {
        self.bucket.put(key, seal::seal(self.keys.as_ref(), kind, &records::encode(record))?)
    }

    /// Reads a record, or returns `None` if there is none.
    pub(crate) fn get_record<T: DeserializeOwned>(&self, key: &str, kind: &str) -> Result<Option<T>> {
        let Some(bytes) = self.bucket.get(key)? else { return Ok(None) };
        let text = seal::unseal(self.keys.as_ref(), kind, key, &bytes)?;
        records::decode(key, &text).map(Some)
    }

    /// Writes an index for a ref, and returns its name.
    pub(crate) fn put_index(&self, of: &RefKey, index: &Index) -> Result<String> {
        let bytes = seal::seal(self.keys.as_ref(), "idx", &index.encode())?;
        let name = object_name(&bytes)?;
        self.bucket.put(&format!("idx/{name}"), bytes.clone())?;
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
        Index::decode(key, &seal::unseal(self.keys.as_ref(), "idx", key, bytes)?)
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
        self.get_record(&key.key(), "ref")
    }

    /// Returns the keys of all refs, or of those of one project.
    pub(crate) fn ref_keys(&self, project: Option<&str>) -> Result<Vec<RefKey>> {
        let prefix = project.map_or_else(|| "ref/".to_owned(), |project| format!("ref/{project}/"));
        Ok(self.bucket.list(&prefix)?.iter().filter_map(|found| RefKey::parse(&found.key)).collect())
    }

    /// Returns every tomb, by name.
    pub(crate) fn tombs(&self) -> Result<Vec<(ObjectInfo, Tomb)>> {
        let mut found = Vec::new();
        for info in self.bucket.list("tomb/")? {
            // One that was completed meanwhile is gone.
            if let Some(tomb) = self.get_record(&info.key, "tomb")? {
                found.push((info, tomb));
            }
        }
        Ok(found)
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

    /// Returns the slots that a holder of the keyring made.
    pub(crate) fn slots(&self) -> Result<Vec<Slot>> {
        let Some(keys) = &self.keys else { return Ok(Vec::new()) };
        Ok(all_slots(&*self.bucket)?.into_iter().filter(|slot| slot.is_genuine(keys)).collect())
    }

    pub(crate) fn put_slot(&self, slot: &Slot) -> Result<()> {
        self.bucket.put(&format!("key/{}", slot.slot), serde_json::to_vec(slot).expect("text"))
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

fn all_slots(bucket: &dyn Bucket) -> Result<Vec<Slot>> {
    let mut slots = Vec::new();
    for found in bucket.list("key/")? {
        let bytes = bucket.get(&found.key)?.unwrap_or_default();
        slots.extend(
            serde_json::from_slice::<Slot>(&bytes).ok().filter(|slot| format!("key/{}", slot.slot) == found.key),
        );
    }
    Ok(slots)
}

fn join(bucket: &dyn Bucket, text: &[u8], phrase: Option<&Phrase>) -> Result<(Repository, Option<Keyring>, Opened)> {
    let repository: Repository =
        serde_json::from_slice(text).map_err(|_| RemoteError::damaged(REPOSITORY, "it is none"))?;
    if repository.format != FORMAT {
        let what = format!("use the remote: it has format {}, and this version knows {FORMAT}", repository.format);
        return Err(RemoteError::new(RemoteErrorKind::Invalid, what).hint("use a newer version of piton"));
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

/// Reads the keyring again, with the phrase: keys were added since this machine joined.
fn rejoin(local: &LocalDir, config: RemoteConfig, phrase: &Phrase) -> Result<(Remote, Opened)> {
    let bucket = bucket::open(&config.location)?;
    let text = bucket.get(REPOSITORY)?.unwrap_or_default();
    let (repository, keys, opened) = join(&*bucket, &text, Some(phrase))?;
    if repository.repository != config.repository {
        return Err(RemoteError::damaged(REPOSITORY, "it is another repository than the one that was added"));
    }
    if let Some(keys) = &keys {
        local.write_keys(keys)?;
    }
    Ok((Remote { bucket, keys, config, local: local.clone() }, opened))
}

fn create(bucket: &dyn Bucket, request: &AddRequest) -> Result<(Repository, Option<Keyring>, Opened)> {
    if request.phrase.is_some() {
        return Err(RemoteError::new(
            RemoteErrorKind::NotFound,
            format!("join {}: there is no repository", request.location),
        )
        .hint("see whether bucket and prefix are right; without a phrase, a new one is made there"));
    }
    let repository = Repository { format: FORMAT, repository: random_name()?, is_encrypted: request.is_encrypted };
    let mut made = (None, None);
    if request.is_encrypted {
        let (keys, phrase) = (Keyring::generate()?, Phrase::generate()?);
        let slot = Slot::new(&keys, &phrase, &request.machine)?;
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
