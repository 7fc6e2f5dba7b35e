//! Files of this machine about its remote, in `local/remote` of the base: configuration, keyring, state and cache.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::bucket::Location;
use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::keys::{Keyring, hex};

const CONFIG: &str = "config.json";
const KEY: &str = "key";
/// Keyring with a key that is being added to the slots, until all of them have it.
const NEXT_KEY: &str = "key.next";
const STATE: &str = "state.json";
const LOCK: &str = "push.lock";
const CACHE: &str = "cache";
const OUTGOING: &str = "outgoing";
/// Name of a host that has none.
pub(crate) const UNKNOWN_HOST: &str = "machine";
/// Start of the names of files that are being written.
pub(crate) const TEMPORARY: &str = "tmp_";
/// Seconds of the first pause after a failure, and of the longest.
const BACKOFF_SECS: i64 = 30;
const BACKOFF_SECS_MAX: i64 = 3600;

/// Configuration of the remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteConfig {
    /// Place of the bucket.
    pub location: Location,
    /// Id of the repository in it.
    pub repository: String,
    /// True if everything is sealed.
    pub is_encrypted: bool,
    /// Id of this machine as a writer: random, and changed if another machine uses it, too.
    pub writer: String,
    /// Name of this machine, for people.
    pub machine: String,
    /// Host name when the id was made: a copy of the base on another host gets an id of its own.
    pub host: String,
    /// Upload limit in KiB per second; 0 for none.
    #[serde(default)]
    pub limit_kib: u64,
    /// True if this machine may delete objects, and so collects garbage.
    #[serde(default = "yes")]
    pub collects: bool,
    /// Names of projects that the user chose, by directory as in [`OwnRef::directory`].
    #[serde(default)]
    pub names: BTreeMap<String, String>,
}

impl RemoteConfig {
    /// Returns the identity of a project, by the names that the user gave on this machine.
    pub(crate) fn project_identity(&self, directory: &str, repository: Option<&str>) -> String {
        piton::project_identity(self.names.get(directory).map(String::as_str), repository, directory)
    }
}

fn yes() -> bool {
    true
}

/// Knowledge of this machine about what it wrote and saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteState {
    /// Own refs, by key.
    pub refs: BTreeMap<String, OwnRef>,
    /// Nonces of the last own lease, and of one whose write may not have happened.
    pub lease: Vec<String>,
    /// Time at which it was written.
    pub leased_secs: i64,
    /// Highest number of every ref that was seen, by key.
    pub seen: BTreeMap<String, u64>,
    /// Packs that were sent and are in no ref yet, with their objects: an interrupted push goes on after them.
    pub sent: Vec<String>,
    /// Failures in a row.
    pub failures: u32,
    /// Time before which no automatic push is tried.
    pub retry_secs: i64,
    /// Text of the last failure; empty after a success.
    pub failure: String,
    /// Time of the last push that succeeded.
    pub pushed_secs: i64,
    /// Findings that the user has to see, such as a ref that was rolled back.
    pub warnings: Vec<String>,
    /// Time of the last garbage collection that began by itself.
    pub collected_secs: i64,
    /// Collections of this kind that failed in a row.
    pub failed_collections: u32,
}

/// A ref as this machine wrote it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnRef {
    /// Number of the write.
    pub sequence: u64,
    /// Nonces of the last write, and of one that may not have happened.
    pub nonces: Vec<String>,
    /// Directory of the project; `bytes:` and hexadecimal digits if it is not UTF-8.
    pub directory: String,
    /// Identity under which the project was pushed; empty if an older version wrote the ref.
    pub identity: String,
    /// Ids of the checkpoints in it, newest first.
    pub checkpoints: Vec<piton::CheckpointId>,
    /// Checksum of all that the ref says about the project, its marks and prompts included.
    pub digest: String,
    /// Checkpoints that were dropped since the last rewrite of the indexes.
    pub dropped: usize,
}

impl RemoteState {
    /// Returns true if a checkpoint is in the ref of its project. What was pushed under other names of the project does
    /// not count: other machines do not find it under this one.
    pub(crate) fn is_pushed(&self, directory: &str, identity: &str, id: &piton::CheckpointId) -> bool {
        let is_its =
            |own: &&OwnRef| own.directory == directory && (own.identity == identity || own.identity.is_empty());
        self.refs.values().filter(is_its).any(|own| own.checkpoints.contains(id))
    }

    /// Notes a failure, and when to try again.
    pub(crate) fn note_failure(&mut self, error: &RemoteError, now_secs: i64) {
        self.failures = self.failures.saturating_add(1);
        let pause = BACKOFF_SECS.saturating_mul(1 << self.failures.saturating_sub(1).min(20));
        self.retry_secs = now_secs.saturating_add(pause.min(BACKOFF_SECS_MAX));
        self.failure = error.to_string();
    }

    /// Returns true before the time of the next attempt. One that is further away than the longest pause was noted by a clock
    /// that was ahead then.
    pub(crate) fn is_waiting(&self, now_secs: i64) -> bool {
        (1..=BACKOFF_SECS_MAX).contains(&self.retry_secs.saturating_sub(now_secs))
    }

    pub(crate) fn note_success(&mut self, now_secs: i64) {
        (self.failures, self.retry_secs, self.pushed_secs) = (0, 0, now_secs);
        self.failure.clear();
    }
}

/// The directory of these files.
#[derive(Debug, Clone)]
pub struct LocalDir {
    dir: PathBuf,
    /// Messages for the user of this command.
    notices: Arc<Mutex<Vec<String>>>,
}

/// Held by the process that pushes or changes the configuration.
#[derive(Debug)]
pub struct PushLock {
    _file: File,
}

impl LocalDir {
    /// Returns the directory of a store. It may not exist.
    pub fn of(store: &piton::Store) -> Self {
        Self { dir: piton::remote_dir(store), notices: Arc::default() }
    }

    /// Returns the directory. It exists if there is a remote.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a message for the user of this command, unless it has it already.
    pub(crate) fn notify(&self, text: String) {
        let mut notices = self.notices.lock().expect("no thread panics with it");
        if !notices.contains(&text) {
            notices.push(text);
        }
    }

    /// Returns the messages for the user of this command.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.notices.lock().expect("no thread panics with it").clone()
    }

    /// Returns the configuration, or `None` if there is no remote.
    pub fn config(&self) -> Result<Option<RemoteConfig>> {
        self.read(CONFIG)
    }

    /// Returns the configuration. Fails with `NotFound` if there is no remote.
    pub fn existing_config(&self) -> Result<RemoteConfig> {
        self.config()?.ok_or_else(|| {
            RemoteError::new(RemoteErrorKind::NotFound, "find a remote: none was added")
                .hint("`piton remote add URL` adds one, such as s3://bucket/piton or file:///mnt/disk/piton")
        })
    }

    pub(crate) fn write_config(&self, config: &RemoteConfig) -> Result<()> {
        self.write(CONFIG, &serde_json::to_vec_pretty(config).expect("text"))
    }

    /// Returns the state. A missing or corrupt state counts as empty: everything in it can be rebuilt.
    pub fn state(&self) -> RemoteState {
        self.read(STATE).ok().flatten().unwrap_or_default()
    }

    pub(crate) fn write_state(&self, state: &RemoteState) -> Result<()> {
        self.write(STATE, &serde_json::to_vec(state).expect("text"))
    }

    /// Returns the keyring of this machine.
    pub(crate) fn keys(&self) -> Result<Option<Keyring>> {
        self.read_keys(KEY)
    }

    pub(crate) fn write_keys(&self, keys: &Keyring) -> Result<()> {
        self.write(KEY, keys.encode().as_bytes())
    }

    /// Returns the keyring that the last replacement of the key was to make. It seals nothing yet; slots may have it if the
    /// replacement was interrupted.
    pub(crate) fn next_keys(&self) -> Result<Option<Keyring>> {
        self.read_keys(NEXT_KEY)
    }

    pub(crate) fn write_next_keys(&self, keys: &Keyring) -> Result<()> {
        self.write(NEXT_KEY, keys.encode().as_bytes())
    }

    fn read_keys(&self, name: &str) -> Result<Option<Keyring>> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(text) => Ok(Keyring::decode(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RemoteError::io("read", &path, &error)),
        }
    }

    /// Removes everything, the key last: until then `remove` can be repeated.
    pub(crate) fn remove(&self) -> Result<()> {
        for name in [CONFIG, STATE, NEXT_KEY, KEY] {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RemoteError::io("remove", &path, &error));
                }
                _ => {}
            }
        }
        for name in [CACHE, OUTGOING] {
            let _ = fs::remove_dir_all(self.dir.join(name));
        }
        Ok(())
    }

    /// Locks the files for a push, or for any change of the configuration or the state. Blocks until no other process has
    /// them locked.
    pub fn lock(&self) -> Result<PushLock> {
        let (file, path) = self.lock_file()?;
        file.lock().map_err(|error| RemoteError::io("lock", &path, &error))?;
        Ok(PushLock { _file: file })
    }

    /// Like [`Self::lock`], but returns `None` if another process has the files locked.
    pub fn try_lock(&self) -> Result<Option<PushLock>> {
        let (file, path) = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(PushLock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(RemoteError::io("lock", &path, &error)),
        }
    }

    fn lock_file(&self) -> Result<(File, PathBuf)> {
        self.ensure()?;
        let path = self.dir.join(LOCK);
        match File::options().create(true).append(true).mode(0o600).open(&path) {
            Ok(file) => Ok((file, path)),
            Err(error) => Err(RemoteError::io("lock", &path, &error)),
        }
    }

    /// Returns a directory for packs that are being sent. What a killed process left there is removed under the lock.
    pub(crate) fn outgoing(&self, _held: &PushLock) -> Result<PathBuf> {
        let dir = self.dir.join(OUTGOING);
        let _ = fs::remove_dir_all(&dir);
        self.ensure()?;
        make_dir(&dir)?;
        Ok(dir)
    }

    /// Returns what the cache has under this name.
    pub(crate) fn cached(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.join(CACHE).join(file_name(name))).ok()
    }

    /// Adds something immutable to the cache. A failure costs a download.
    pub(crate) fn cache(&self, name: &str, bytes: &[u8]) {
        let dir = self.dir.join(CACHE);
        if self.ensure().is_ok() && make_dir(&dir).is_ok() {
            let _ = replace(&dir.join(file_name(name)), bytes);
        }
    }

    /// Removes what the cache has under names that begin with `prefix`, unless their last part is in `kept`. A process
    /// that uses it meanwhile downloads it again.
    pub(crate) fn trim_cache(&self, prefix: &str, kept: &HashSet<String>) {
        let prefix = file_name(prefix);
        for entry in fs::read_dir(self.dir.join(CACHE)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_kept = name.rsplit('-').next().is_some_and(|last| kept.contains(last));
            if name.starts_with(&prefix) && !is_kept {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                RemoteError::new(RemoteErrorKind::Invalid, format!("read {}: {error}", path.display()))
                    .hint("`piton remote remove` forgets the remote here; add it again")
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RemoteError::io("read", &path, &error)),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.ensure()?;
        let path = self.dir.join(name);
        replace(&path, bytes).map_err(|error| RemoteError::io("write", &path, &error))
    }

    fn ensure(&self) -> Result<()> {
        let local = self.dir.parent().unwrap_or(&self.dir);
        make_dir(local)?;
        make_dir(&self.dir)
    }
}

/// Returns a directory as text, another one for each directory: as it is, or in hexadecimal if it is not UTF-8.
pub(crate) fn directory_text(dir: &Path) -> String {
    dir.to_str().map_or_else(|| format!("bytes:{}", hex(dir.as_os_str().as_bytes())), str::to_owned)
}

fn file_name(name: &str) -> String {
    name.replace('/', "-")
}

fn make_dir(dir: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(RemoteError::io("create", dir, &error)),
        _ => Ok(()),
    }
}

/// Replaces a file atomically. Synced on return; only the owner can read it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(dir)?;
    file.write_all(bytes)?;
    piton::sync_file(file.as_file())?;
    file.persist(path).map_err(|error| error.error)?;
    piton::sync_file(&File::open(dir)?)
}
