//! Streams the contents of blobs from the store, so that memory does not grow with their size.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;

use gix_object::FindHeader as _;

use super::decode::{Decoder, RawPack, WholeEntry, Why};
use super::loose;
use super::objects::{Objects, gix_id};
use super::pack::PackWriter;
use super::pack_index;
use crate::error::{Error, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::{IdHasher, ObjectId, ObjectKind};

/// Number of attempts to list the packs while another program's garbage collection replaces them.
const LISTINGS_MAX: u32 = 8;

impl Objects {
    /// Returns the number of bytes in a blob. Fails if there is no such blob.
    pub(crate) fn blob_size(&self, id: ObjectId) -> Result<u64> {
        let damaged = |why: String| Error::damaged(format!("read the object {id}"), why).with_hint(Hint::Repair);
        let found = match self.handle().try_header(&gix_id(id)) {
            Ok(Some(header)) => Ok(Some(header)),
            // Stock git's garbage collection may have moved it to another pack since the packs were listed.
            _ => self.fresh_handle().try_header(&gix_id(id)),
        };
        let found = found.map_err(|error| damaged(error.to_string()))?;
        match found {
            Some(header) if header.kind == gix_object::Kind::Blob => Ok(header.size),
            Some(header) => Err(damaged(format!("it is a {}", header.kind))),
            None => Err(damaged("it is not in the store".to_owned())),
        }
    }

    /// Calls `each` with the contents of a blob, piece by piece, until it returns false. Fails if the blob is missing
    /// or corrupt; a mismatch with its id is known only after the last piece.
    ///
    /// Memory does not grow with the size of the blob, unless stock git stored it as a delta.
    pub(crate) fn stream_blob(&self, id: ObjectId, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let damaged =
            |why: &str| Error::damaged(format!("read the object {id}"), why.to_owned()).with_hint(Hint::Repair);
        let mut hasher = None;
        let mut is_ended = false;
        let mut take = |kind: ObjectKind, size: u64, bytes: &[u8]| {
            hasher.get_or_insert_with(|| IdHasher::new(kind, size)).update(bytes);
            is_ended = is_ended || !each(bytes);
            !is_ended
        };
        if !self.stream_packed(id, &mut take)? && !self.stream_loose(id, &mut take)? {
            let bytes = self.read(id, ObjectKind::Blob)?;
            take(ObjectKind::Blob, bytes.len() as u64, &bytes);
        }
        match hasher.map(IdHasher::finish) {
            _ if is_ended => Ok(()),
            Some(Ok(found)) if found == id => Ok(()),
            _ => Err(damaged("it is not what was written under this name")),
        }
    }

    /// Returns false if no pack holds the object, or only as a delta. Of several copies an intact one is used: an
    /// object with a corrupt copy may have been written again.
    fn stream_packed(&self, id: ObjectId, take: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool) -> Result<bool> {
        let mut found = self.open_packed(id)?;
        if found.len() > 1 {
            let at = found.iter().position(|(pack, start)| is_whole(id, pack, *start)).unwrap_or(0);
            found.swap(0, at);
        }
        let Some((pack, start)) = found.first() else { return Ok(false) };
        let streamed = stream_entry(pack, *start, take);
        streamed.map_err(|why| {
            Error::damaged(format!("read the object {id} in {}", pack.name.display()), why.into_owned())
                .with_hint(Hint::Repair)
        })
    }

    /// Adds a copy of a blob to a pack, piece by piece. Returns false if there is no intact copy, or only a delta.
    pub(super) fn copy_blob(&self, id: ObjectId, into: &mut PackWriter) -> Result<bool> {
        let large = Mutex::new(());
        let mut decoder = Decoder::new(&large);
        for (pack, start) in self.open_packed(id)? {
            if !is_whole(id, &pack, start) {
                continue;
            }
            let (Ok(Some(entry)), Ok(end)) = (decoder.whole_entry(&pack, start), decoder.end_of(&pack, start)) else {
                continue;
            };
            let WholeEntry { kind, size, data } = entry;
            into.add_copied(id, kind, size, end - data, |buffer, at| pack.read_at(buffer, data + at))?;
            return Ok(true);
        }
        let Some((size, mut read)) = self.open_loose(id)? else { return Ok(false) };
        Ok(into.add_stream(size, &mut read)? == Some(Ok(id)))
    }

    /// Opens the packs that hold an object, and returns its offset in each. Stock git's garbage collection may delete a
    /// pack after it was listed; it has written another one by then, so the listing is retried.
    fn open_packed(&self, id: ObjectId) -> Result<Vec<(RawPack, u64)>> {
        for attempt in 0..LISTINGS_MAX {
            let (mut opened, mut is_moved) = (Vec::new(), false);
            for (name, start) in self.find_packed(id)? {
                match RawPack::without_idx(&name) {
                    Ok(pack) => opened.push((pack, start)),
                    Err(_) if !fsx::exists(&name.with_added_extension("pack"))? => is_moved = true,
                    Err(error) => return Err(error),
                }
            }
            if !opened.is_empty() || !is_moved || attempt + 1 == LISTINGS_MAX {
                return Ok(opened);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the paths of the packs that hold an object, without extensions, and its offset in each.
    fn find_packed(&self, id: ObjectId) -> Result<Vec<(PathBuf, u64)>> {
        let dir = self.dir().join("pack");
        let mut found = Vec::new();
        for name in fsx::names_in(&dir)? {
            let path = dir.join(&name);
            if path.extension().is_none_or(|end| end != "idx") {
                continue;
            }
            // An unreadable idx does not affect the others.
            found.extend(pack_index::find(&path, id).map(|start| (path.with_extension(""), start)));
        }
        Ok(found)
    }

    /// Opens a loose blob: its size, and a reader of its contents. Returns `None` if it is missing or not a blob.
    pub(super) fn open_loose(&self, id: ObjectId) -> Result<Option<(u64, impl Read + use<>)>> {
        let path = self.loose_path(id);
        if !fsx::exists(&path)? {
            return Ok(None);
        }
        let opened = loose::open(&path);
        let (kind, size, read) =
            opened.map_err(|why| Error::damaged(format!("read {}", path.display()), why).with_hint(Hint::Repair))?;
        Ok((kind == ObjectKind::Blob).then_some((size, read)))
    }

    /// Returns true if a loose object can be read to its end and matches its id.
    pub(super) fn is_whole_loose(&self, id: ObjectId) -> bool {
        loose::identify(&self.loose_path(id)).is_ok_and(|found| found == id)
    }

    fn loose_path(&self, id: ObjectId) -> PathBuf {
        let name = id.to_string();
        self.dir().join(&name[..2]).join(&name[2..])
    }

    /// Returns false if the object is not loose.
    fn stream_loose(&self, id: ObjectId, take: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool) -> Result<bool> {
        let path = self.loose_path(id);
        if !fsx::exists(&path)? {
            return Ok(false);
        }
        let mut goes_on = true;
        let read = loose::stream(&path, &mut |kind, size, bytes| {
            goes_on = take(kind, size, bytes);
            goes_on
        });
        match read {
            Err(why) if goes_on => Err(Error::damaged(format!("read {}", path.display()), why).with_hint(Hint::Repair)),
            _ => Ok(true),
        }
    }
}

/// Passes the bytes of an entry to `take`, until it returns false. Returns false for a delta.
fn stream_entry(
    pack: &RawPack,
    start: u64,
    take: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool,
) -> std::result::Result<bool, Why> {
    let large = Mutex::new(());
    let mut decoder = Decoder::new(&large);
    let Some(entry) = decoder.whole_entry(pack, start)? else { return Ok(false) };
    if entry.size == 0 {
        take(entry.kind, 0, &[]);
    }
    let mut goes_on = true;
    let inflated = decoder.inflate(pack, entry.data, entry.size, &mut |bytes| {
        goes_on = take(entry.kind, entry.size, bytes);
        goes_on
    });
    match inflated {
        Err(why) if goes_on => Err(why),
        _ => Ok(true),
    }
}

/// Returns true if the entry is not a delta and its contents match the id.
fn is_whole(id: ObjectId, pack: &RawPack, start: u64) -> bool {
    let mut hasher = None;
    let streamed = stream_entry(pack, start, &mut |kind, size, bytes| {
        hasher.get_or_insert_with(|| IdHasher::new(kind, size)).update(bytes);
        true
    });
    streamed == Ok(true) && hasher.is_some_and(|hasher| hasher.finish() == Ok(id))
}
