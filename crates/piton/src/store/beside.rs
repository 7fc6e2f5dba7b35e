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
use super::layout::Layout;
use super::objects::Objects;
use super::pack::{Deflater, Form, LEVEL_FAST, PackDirs, PackWriter, SealedPack};
use crate::error::{Error, Result};
use crate::fsx;
use crate::id::ObjectId;
use crate::sys;
use crate::time::Moment;

/// Age at which stock git treats a `gc.pid` as stale.
const GC_STALE_AFTER_SECS: i128 = 12 * 60 * 60;
/// Size limit of `gc.pid`, which holds a process id and a host name.
const GC_PID_BYTES_MAX: u64 = 1024;

/// Blobs above this size are copied in chunks instead of being read into memory.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

/// Returns true while stock git runs garbage collection in this store, according to its `gc.pid`. A `gc.pid` that is
/// stale, or whose process on this host has ended, does not count.
pub(super) fn git_collects(layout: &Layout, now: Moment) -> bool {
    let path = layout.git_gc_pid();
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

/// Writes copies of objects into new packs and publishes them. Returns `None` if one of the objects is missing or
/// corrupt.
pub(super) fn write_again(
    dirs: &PackDirs,
    objects: &Objects,
    ids: &HashSet<ObjectId>,
) -> Result<Option<PublishedPacks>> {
    let (mut open, mut sealed) = (None, Vec::new());
    let (mut deflater, mut bytes, mut deflated) = (Deflater::new(LEVEL_FAST), Vec::new(), Vec::new());
    for id in ids {
        let mut writer = open.take().map_or_else(|| PackWriter::begin(dirs), Ok)?;
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
