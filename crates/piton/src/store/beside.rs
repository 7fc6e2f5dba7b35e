//! Sharing a store with stock git, whose collection (`git gc --prune=now`) knows none of piton's locks.
//!
//! That collection lists the packs, walks the refs, writes what they lead to into a new pack, and deletes the packs that it
//! listed. From this order follows what is safe beside it:
//!
//! - A pack that is published under a `.keep` file, held until the ref has moved, is either not on the list or walked.
//! - Whatever the newest checkpoint holds is walked, as long as the ref leads there.
//! - Any other object that a take found and did not write again may be deleted: no ref may have led to it when the refs
//!   were walked. After the ref has moved, such objects are looked for again, or, while a collection runs, written again.
//! - A collection of piton's unlinks nothing while one of stock git's runs, nor after one has deleted packs that the plan
//!   relied upon.

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

/// Stock git takes a `gc.pid` of this age for stale.
const GC_STALE_AFTER_SECS: i128 = 12 * 60 * 60;
/// A process number and the name of a machine.
const GC_PID_BYTES_MAX: u64 = 1024;

/// Larger blobs are copied piece by piece.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

impl Store {
    /// Returns true while stock git collects in this store, as far as its `gc.pid` tells.
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
            // Another machine, or the file is being written.
            _ => true,
        }
    }

    /// Makes sure that objects which were found and not written again survive a collection of stock git's that began before
    /// the ref moved. Returns false if one of them is gone.
    pub(crate) fn secure(&self, published: &Published, now: Moment) -> Result<bool> {
        self.secure_all(&published.relied, now)
    }

    /// Like [`Self::secure`], for any objects.
    pub(crate) fn secure_all(&self, ids: &HashSet<ObjectId>, now: Moment) -> Result<bool> {
        if ids.is_empty() {
            return Ok(true);
        }
        // Asked first: a collection that ends later may still delete what is found now; one that begins later walks the ref.
        let git_collects = self.git_collects(now);
        let objects = self.objects(&StoreLock::none())?;
        if !git_collects {
            return Ok(ids.iter().all(|id| objects.has(*id)));
        }
        // The ref leads there already: these packs need no `.keep` file.
        Ok(self.write_again(&objects, ids)?.is_some())
    }

    /// Returns true if `id` is `newest` or one of the checkpoints before it. A newest one that is gone leads nowhere.
    pub(crate) fn leads_to(&self, newest: Option<CheckpointId>, id: CheckpointId) -> Result<bool> {
        match self.history_now(newest) {
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            history => Ok(history?.checkpoints.iter().any(|checkpoint| checkpoint.id == id)),
        }
    }

    /// A checkpoint and those before it, with the objects that are there now.
    pub(crate) fn history_now(&self, newest: Option<CheckpointId>) -> Result<Readable> {
        self.history(&self.objects(&StoreLock::none())?, newest)
    }

    /// Writes copies of objects into new packs. Returns `None` if one of them is gone.
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
