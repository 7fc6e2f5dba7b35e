//! Packs for another place: written from objects of the store into a directory outside of it, and single entries of such
//! packs decoded again.

use std::io::Read as _;
use std::path::Path;

use tempfile::TempPath;

use super::objects::Objects;
use super::pack::{Deflater, Form, LEVEL_FAST, PACK_BYTES_MAX, PackDirs, PackWriter};
use super::pack_entry::{EntryHead, HeadForm};
use crate::error::{Error, Result};
use crate::id::{IdHasher, ObjectId, ObjectKind};

/// Larger blobs are copied in pieces, and are never in memory as a whole.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;

/// Place of an object in a [`BuiltPack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedObject {
    /// Id of the object.
    pub id: ObjectId,
    /// Type of the object.
    pub kind: ObjectKind,
    /// First byte of its entry.
    pub offset: u64,
    /// Length of its entry.
    pub bytes: u64,
}

/// A complete pack in git's format, without an idx. Dropping it removes the file.
#[derive(Debug)]
pub struct BuiltPack {
    file: TempPath,
    /// Size of the file.
    pub bytes: u64,
    /// Its objects, in the order of their offsets.
    pub objects: Vec<PackedObject>,
}

impl BuiltPack {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.file
    }
}

/// A pack being written. Every entry is a whole object, so that it can be decoded alone.
pub(crate) struct PackBuilder {
    pack: PackWriter,
    objects: Vec<PackedObject>,
    deflater: Deflater,
    deflated: Vec<u8>,
}

impl PackBuilder {
    pub(crate) fn begin(dir: &Path) -> Result<Self> {
        let pack = PackWriter::begin(&PackDirs { packs: dir.to_owned(), temporary: dir.to_owned() })?;
        Ok(Self { pack, objects: Vec::new(), deflater: Deflater::new(LEVEL_FAST), deflated: Vec::new() })
    }

    /// Adds an object of the store. Fails with `Damaged` if it is missing or corrupt.
    pub(crate) fn add(&mut self, objects: &Objects, id: ObjectId, kind: ObjectKind) -> Result<()> {
        let offset = self.pack.bytes_so_far();
        let is_large = kind == ObjectKind::Blob && objects.blob_size(id)? > IN_MEMORY_BYTES_MAX;
        if !is_large || !objects.copy_blob(id, &mut self.pack)? {
            let bytes = objects.read(id, kind)?;
            if IdHasher::of(kind, &bytes) != Ok(id) {
                return Err(Error::damaged(format!("send the object {id}"), "it does not match its id"));
            }
            let deflated = self.deflater.deflate(&bytes, &mut self.deflated);
            deflated.map_err(|error| Error::damaged("compress an object", error))?;
            self.pack.add(id, Form::Whole(kind), bytes.len() as u64, &self.deflated)?;
        }
        let bytes = self.pack.bytes_so_far() - offset;
        self.objects.push(PackedObject { id, kind, offset, bytes });
        Ok(())
    }

    /// Returns true if the pack has reached the size at which another one begins.
    pub(crate) fn is_full(&self) -> bool {
        self.pack.bytes() >= PACK_BYTES_MAX
    }

    /// Completes the pack.
    pub(crate) fn finish(self) -> Result<BuiltPack> {
        let bytes = self.pack.bytes();
        Ok(BuiltPack { file: self.pack.into_file()?, bytes, objects: self.objects })
    }
}

/// Decodes one entry of a [`BuiltPack`]. Fails with `Damaged` if it is not the object of this id, or a delta.
pub fn decode_entry(id: ObjectId, entry: &[u8]) -> Result<(ObjectKind, Vec<u8>)> {
    let damaged = |why: &str| Error::damaged(format!("read the object {id}"), why.to_owned());
    let head = EntryHead::parse(entry, 0).map_err(damaged)?;
    let HeadForm::Whole(kind) = head.form else { return Err(damaged("it is a delta")) };
    let mut bytes = Vec::new();
    // No more than the head promises: a hostile entry may inflate to any size.
    let inflated = flate2::read::ZlibDecoder::new(&entry[head.bytes..]).take(head.size + 1).read_to_end(&mut bytes);
    if inflated.is_err() || bytes.len() as u64 != head.size {
        return Err(damaged("its bytes cannot be decompressed"));
    }
    match IdHasher::of(kind, &bytes) {
        Ok(found) if found == id => Ok((kind, bytes)),
        _ => Err(damaged("it is not what was written under this name")),
    }
}
