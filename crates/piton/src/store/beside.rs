//! Coexistence with stock git's garbage collection (`git gc --prune=now`), which does not take piton's locks.
//!
//! That collection lists the packs, walks the refs, writes every reachable object into a new pack, and deletes the
//! packs on its list. From this order follows what is safe to do concurrently:
//!
//! - A pack that is published under a `.keep` file, held until the ref has moved, is either not on the list or walked.
//! - The objects of the newest checkpoint are walked as long as the ref points to it.
//! - Any other object that a take found and did not write again may be deleted: it may have been unreachable when the
//!   refs were walked. After the ref has moved, such objects are looked up again, or, while a collection runs, written
//!   again.
//! - A collection by piton unlinks nothing while one by stock git runs, nor after stock git has deleted packs that the
//!   plan relied on.

use std::collections::HashSet;

use super::keeps::PublishedPacks;
use super::objects::{Objects, Published};
use super::pack::{Deflater, Form, LEVEL_FAST, PackWriter, SealedPack};
use super::{Readable, Store, StoreLock};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectId};
use crate::sys;
use crate::time::Moment;

/// Age at which stock git treats a `gc.pid` as stale.
const GC_STALE_AFTER_SECS: i128 = 12 * 60 * 60;
/// Size limit of `gc.pid`, which holds a process id and a host name.
const GC_PID_BYTES_MAX: u64 = 1024;

/// Blobs above this size are copied in chunks instead of being read into memory.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

impl Store {
    /// Returns true while stock git runs garbage collection in this store, judging by its `gc.pid`. A `gc.pid` that is
    /// stale, or whose process on this host has ended, does not count.
    pub(super) fn git_collects(&self, now: Moment) -> bool {
        let path = self.layout.git_gc_pid();
        let Ok(Some(text)) = fsx::read_small(&path, GC_PID_BYTES_MAX) else { return false };
        if fsx::is_older(&path, GC_STALE_AFTER_SECS, now) {
            return false;
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut words = text.split_whitespace();
        let (process, host) = (words.next().and_then(|word| word.parse().ok()), words.next());
        match (process, host) {
            (Some(process), Some(host)) if sys::host_name().is_some_and(|own| own == host) => sys::is_running(process),
            // The process is on another host, or the file is still being written.
            _ => true,
        }
    }

    /// Protects objects that were found and not written again from a collection by stock git that began before the ref
    /// moved. Returns false if one of them is gone.
    pub(crate) fn secure(&self, published: &Published, now: Moment) -> Result<bool> {
        self.secure_all(&published.relied, now)
    }

    /// Like [`Self::secure`], for any objects.
    pub(crate) fn secure_all(&self, ids: &HashSet<ObjectId>, now: Moment) -> Result<bool> {
        if ids.is_empty() {
            return Ok(true);
        }
        // Checked first: a collection that ends later may still delete objects found below; one that begins later walks
        // the ref.
        let git_collects = self.git_collects(now);
        let objects = self.objects(&StoreLock::none())?;
        if !git_collects {
            return Ok(ids.iter().all(|id| objects.has(*id)));
        }
        // The ref already points there, so these packs need no `.keep` file.
        Ok(self.write_again(&objects, ids)?.is_some())
    }

    /// Returns true if `id` is `newest` or one of its ancestors. Returns false if the history from `newest` is damaged.
    pub(crate) fn leads_to(&self, newest: Option<CheckpointId>, id: CheckpointId) -> Result<bool> {
        match self.history_now(newest) {
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            history => Ok(history?.checkpoints.iter().any(|checkpoint| checkpoint.id == id)),
        }
    }

    /// Returns a checkpoint and its ancestors, read from a fresh list of packs.
    pub(crate) fn history_now(&self, newest: Option<CheckpointId>) -> Result<Readable> {
        self.history(&self.objects(&StoreLock::none())?, newest)
    }

    /// Writes copies of objects into new packs and publishes them. Returns `None` if one of the objects is missing or
    /// corrupt.
    fn write_again(&self, objects: &Objects, ids: &HashSet<ObjectId>) -> Result<Option<PublishedPacks>> {
        let dirs = self.layout.pack_dirs();
        let (mut open, mut sealed) = (None, Vec::new());
        let (mut deflater, mut bytes, mut deflated) = (Deflater::new(LEVEL_FAST), Vec::new(), Vec::new());
        for id in ids {
            let mut writer = open.take().map_or_else(|| PackWriter::begin(&dirs), Ok)?;
            let is_large = objects.blob_size(*id).is_ok_and(|size| size > IN_MEMORY_BYTES_MAX);
            if !is_large || !objects.copy_blob(*id, &mut writer)? {
                let Ok(Some(kind)) = objects.read_any(*id, &mut bytes) else { return Ok(None) };
                let done = deflater.deflate(&bytes, &mut deflated);
                done.map_err(|error| Error::io("compress for", &dirs.packs, error))?;
                writer.add(*id, Form::Whole(kind), bytes.len() as u64, &deflated)?;
            }
            if writer.is_full() { sealed.push(writer.seal()?) } else { open = Some(writer) }
        }
        sealed.extend(open.map(PackWriter::seal).transpose()?);
        SealedPack::publish(sealed, &dirs.packs).map(Some)
    }
}
