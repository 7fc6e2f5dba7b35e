//! Sending and receiving packs: the upload limit, progress, and reading many objects with few requests.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use piton::{BuiltPack, ObjectId, ObjectKind, decode_entry};

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::index::{Index, ObjectPlace, PackInfo};
use crate::parallel::try_each;
use crate::remote::{Remote, object_name};
use crate::seal;

/// Entries that are this near to each other are read together.
const GAP_BYTES: u64 = 256 << 10;
/// Size of a request for several entries.
const REQUEST_BYTES_MAX: u64 = 16 << 20;
/// Requests at the same time.
const REQUESTS_AT_ONCE: usize = 4;

/// Progress of a transfer, to be read from another thread, and its cancellation.
#[derive(Debug, Default)]
pub struct Meter {
    /// Bytes to send or receive, as far as they are known.
    pub total: AtomicU64,
    /// Bytes that were sent or received.
    pub done: AtomicU64,
    /// Set to cancel the transfer.
    pub is_cancelled: AtomicBool,
}

impl Meter {
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(RemoteError::new(RemoteErrorKind::Busy, "continue: it was cancelled")
                .hint("the next push continues from here"));
        }
        Ok(())
    }
}

/// Sends a pack, and returns its description. Slows down to the upload limit.
pub(crate) fn send_pack(remote: &Remote, pack: &BuiltPack, dir: &Path, meter: &Meter) -> Result<PackInfo> {
    let failed = |error: std::io::Error| RemoteError::io("write", dir, &error);
    let (limit, begun) = (remote.config.limit_kib * 1024, Instant::now());
    let mut all = 0_u64;
    let mut sent = |bytes: u64| {
        all += bytes;
        meter.done.fetch_add(bytes, Ordering::Relaxed);
        if let Some(millis) = (all * 1000).checked_div(limit) {
            let due = Duration::from_millis(millis);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
    };
    let Some(keys) = &remote.keys else {
        let name = object_name(&pack.bytes.to_be_bytes())?;
        meter.total.fetch_add(pack.bytes, Ordering::Relaxed);
        remote.bucket.put_file(&format!("pack/{name}"), pack.path(), &mut sent)?;
        return Ok(PackInfo::new(name, pack.bytes, None, &remote.config.writer));
    };
    let mut sealed = tempfile::Builder::new().prefix("tmp_").tempfile_in(dir).map_err(failed)?;
    let mut plain = std::io::BufReader::new(std::fs::File::open(pack.path()).map_err(failed)?);
    let mut out = std::io::BufWriter::new(sealed.as_file_mut());
    let head = seal::seal_stream(keys, "pack", &mut plain, &mut out)?;
    std::io::Write::flush(&mut out).map_err(failed)?;
    drop(out);
    // The head holds 16 random bytes.
    let name = object_name(head.bytes())?;
    let bytes = seal::sealed_bytes(pack.bytes);
    meter.total.fetch_add(bytes, Ordering::Relaxed);
    remote.bucket.put_file(&format!("pack/{name}"), sealed.path(), &mut sent)?;
    Ok(PackInfo::new(name, bytes, Some(&head), &remote.config.writer))
}

/// Adds the objects of a pack to an index.
pub(crate) fn add_pack(index: &mut Index, info: &PackInfo, pack: &BuiltPack) {
    for object in &pack.objects {
        let place = ObjectPlace { pack: 0, kind: object.kind, offset: object.offset, bytes: object.bytes };
        index.add(object.id, info, place);
    }
}

/// An object and its place.
type PlacedObject = (ObjectId, ObjectPlace);

/// A part of a pack, and the objects in it.
struct PackPart<'a> {
    pack: &'a PackInfo,
    range: std::ops::Range<u64>,
    objects: Vec<PlacedObject>,
}

/// Returns the parts of packs that hold these objects, near ones together. Fails with `Damaged` if an object is in no pack.
fn parts<'a>(index: &'a Index, ids: &[ObjectId]) -> Result<Vec<PackPart<'a>>> {
    let mut by_pack: BTreeMap<&str, (&PackInfo, Vec<PlacedObject>)> = BTreeMap::new();
    for id in ids {
        let (pack, place) = index.get(id).ok_or_else(|| RemoteError::damaged(&id.to_string(), "no index names it"))?;
        by_pack.entry(&pack.name).or_insert_with(|| (pack, Vec::new())).1.push((*id, place));
    }
    let mut parts: Vec<PackPart<'a>> = Vec::new();
    for (pack, mut objects) in by_pack.into_values() {
        objects.sort_by_key(|(_, place)| place.offset);
        for (id, place) in objects {
            let end = place.offset + place.bytes;
            match parts.last_mut() {
                Some(part)
                    if part.pack.name == pack.name
                        && place.offset <= part.range.end + GAP_BYTES
                        && end - part.range.start <= REQUEST_BYTES_MAX =>
                {
                    part.range.end = part.range.end.max(end);
                    part.objects.push((id, place));
                }
                _ => parts.push(PackPart { pack, range: place.offset..end, objects: vec![(id, place)] }),
            }
        }
    }
    Ok(parts)
}

/// Objects that were received.
pub(crate) type Received = HashMap<ObjectId, (ObjectKind, Vec<u8>)>;

/// Receives objects, several requests at a time, and passes them to `take` on the calling threads.
pub(crate) fn receive(
    remote: &Remote,
    index: &Index,
    ids: &[ObjectId],
    meter: &Meter,
    take: &(dyn Fn(ObjectId, ObjectKind, Vec<u8>) -> Result<()> + Sync),
) -> Result<()> {
    let parts = parts(index, ids)?;
    let bytes: u64 = parts.iter().map(|part| part.range.end - part.range.start).sum();
    meter.total.fetch_add(bytes, Ordering::Relaxed);
    try_each(&parts, REQUESTS_AT_ONCE, |part| {
        meter.check()?;
        receive_part(remote, part, take)?;
        meter.done.fetch_add(part.range.end - part.range.start, Ordering::Relaxed);
        Ok(())
    })
}

fn receive_part(
    remote: &Remote,
    part: &PackPart<'_>,
    take: &(dyn Fn(ObjectId, ObjectKind, Vec<u8>) -> Result<()> + Sync),
) -> Result<()> {
    let bytes = remote.pack_range(part.pack, part.range.clone())?;
    for (id, place) in &part.objects {
        let bad =
            || RemoteError::damaged(&format!("pack/{}", part.pack.name), &format!("the object {id} is not in it"));
        let from = usize::try_from(place.offset - part.range.start).map_err(|_| bad())?;
        let length = usize::try_from(place.bytes).map_err(|_| bad())?;
        let entry = bytes.get(from..from + length).ok_or_else(bad)?;
        let (kind, contents) = decode_entry(*id, entry).map_err(|_| bad())?;
        take(*id, kind, contents)?;
    }
    Ok(())
}

/// Like [`receive`], into memory.
pub(crate) fn receive_all(remote: &Remote, index: &Index, ids: &[ObjectId], meter: &Meter) -> Result<Received> {
    let received = Mutex::new(Received::new());
    receive(remote, index, ids, meter, &|id, kind, bytes| {
        received.lock().expect("no thread panics with it").insert(id, (kind, bytes));
        Ok(())
    })?;
    Ok(received.into_inner().expect("no thread panics with it"))
}
