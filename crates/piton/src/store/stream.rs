//! Reading the contents of files from the store piece by piece, so that their size does not matter.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;

use gix_hash::Kind;
use gix_object::FindHeader as _;
use gix_odb::pack;

use super::copies;
use super::decode::{Decoder, RawPack};
use super::objects::{DAMAGED_HINT, Objects, gix_id};
use crate::error::{Error, Result};
use crate::fsx;
use crate::id::{IdHasher, ObjectId, ObjectKind};

impl Objects {
    /// The number of bytes in a blob. Fails if there is no such blob.
    pub(crate) fn blob_size(&self, id: ObjectId) -> Result<u64> {
        let damaged = |why: String| Error::damaged(format!("read the object {id}"), why).with_hint(DAMAGED_HINT);
        let found = self.handle().try_header(&gix_id(id)).map_err(|error| damaged(error.to_string()))?;
        match found {
            Some(header) if header.kind == gix_object::Kind::Blob => Ok(header.size),
            Some(header) => Err(damaged(format!("it is a {}", header.kind))),
            None => Err(damaged("it is not in the store".to_owned())),
        }
    }

    /// Calls `each` with the contents of a blob, piece by piece, until it returns false. Fails if the blob is not whole, or
    /// is not what its id says, which is known after the last piece.
    ///
    /// Memory does not grow with the size of the blob, unless stock git stored it as a delta.
    pub(crate) fn stream_blob(&self, id: ObjectId, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let damaged =
            |why: &str| Error::damaged(format!("read the object {id}"), why.to_owned()).with_hint(DAMAGED_HINT);
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

    /// False if no pack holds it, or only as a delta.
    fn stream_packed(&self, id: ObjectId, take: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool) -> Result<bool> {
        let Some((name, start)) = self.find_packed(id)? else { return Ok(false) };
        let damaged = |why: super::decode::Why| {
            Error::damaged(format!("read the object {id} in {}", name.display()), why.into_owned())
                .with_hint(DAMAGED_HINT)
        };
        let pack = RawPack::without_idx(&name)?;
        let large = Mutex::new(());
        let mut decoder = Decoder::new(&large);
        let Some(entry) = decoder.whole_entry(&pack, start).map_err(damaged)? else { return Ok(false) };
        if entry.size == 0 {
            take(entry.kind, 0, &[]);
        }
        let mut goes_on = true;
        let inflated = decoder.inflate(&pack, entry.data, entry.size, &mut |bytes| {
            goes_on = take(entry.kind, entry.size, bytes);
            goes_on
        });
        match inflated {
            Err(why) if goes_on => Err(damaged(why)),
            _ => Ok(true),
        }
    }

    /// The first pack that has an object, without its ending, and the place of the object there.
    fn find_packed(&self, id: ObjectId) -> Result<Option<(PathBuf, u64)>> {
        let dir = self.dir().join("pack");
        for name in fsx::names_in(&dir)? {
            let path = dir.join(&name);
            if path.extension().is_none_or(|end| end != "idx") {
                continue;
            }
            // One that cannot be read says nothing of the others.
            let Ok(idx) = pack::index::File::at(&path, Kind::Sha1) else { continue };
            if let Some(at) = idx.lookup(gix_id(id)) {
                return Ok(Some((path.with_extension(""), idx.pack_offset_at_index(at))));
            }
        }
        Ok(None)
    }

    /// Opens a blob that stands in a file of its own: its size, and a reader of its contents. `None` where there is none.
    pub(super) fn open_loose(&self, id: ObjectId) -> Result<Option<(u64, impl Read + use<>)>> {
        let path = self.loose_path(id);
        if !fsx::is_there(&path)? {
            return Ok(None);
        }
        let opened = copies::open_loose(&path);
        let (kind, size, read) =
            opened.map_err(|why| Error::damaged(format!("read {}", path.display()), why).with_hint(DAMAGED_HINT))?;
        Ok((kind == ObjectKind::Blob).then_some((size, read)))
    }

    /// Whether an object that stands in a file of its own can be read to its end, and is what its name says.
    pub(super) fn is_whole_loose(&self, id: ObjectId) -> bool {
        copies::identify_loose(&self.loose_path(id)).is_ok_and(|found| found == id)
    }

    fn loose_path(&self, id: ObjectId) -> PathBuf {
        let name = id.to_string();
        self.dir().join(&name[..2]).join(&name[2..])
    }

    /// False if it does not stand in a file of its own.
    fn stream_loose(&self, id: ObjectId, take: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool) -> Result<bool> {
        let path = self.loose_path(id);
        if !fsx::is_there(&path)? {
            return Ok(false);
        }
        let mut goes_on = true;
        let read = copies::stream_loose(&path, &mut |kind, size, bytes| {
            goes_on = take(kind, size, bytes);
            goes_on
        });
        match read {
            Err(why) if goes_on => Err(Error::damaged(format!("read {}", path.display()), why).with_hint(DAMAGED_HINT)),
            _ => Ok(true),
        }
    }
}
