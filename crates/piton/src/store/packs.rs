//! Reading packs entry by entry, in their stored form, to move, count or check them.

use std::path::{Path, PathBuf};

use gix_hash::Kind;
use gix_odb::pack;

use super::keeps::is_own_keep;
use super::pack::{HEADER_BYTES, IDX_ENTRY_BYTES};
use super::pack_entry::{EntryHead, HeadForm};
use super::pack_index::{IdxFile, PackIndex, read_ids};
use crate::error::{Error, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::{ObjectId, ObjectKind};
use crate::sys;

/// Maximum number of times that the packs are listed again because stock git's collection deleted some of them.
const PACK_CHANGES_MAX: u32 = 16;

/// A pack and its idx.
pub(super) struct Pack {
    /// Path of both files without their extension.
    pub(super) name: PathBuf,
    /// Size of both files.
    pub(super) bytes: u64,
    /// Modification time of the pack file.
    pub(super) mtime_nanos: i128,
    /// True if the user has told git to keep the pack.
    pub(super) is_kept: bool,
    index: PackIndex,
    data: pack::data::File,
}

/// Position of an object in its pack.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackEntry {
    pub(super) id: ObjectId,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl PackEntry {
    /// Returns the size of the object in the pack and in the idx.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start + IDX_ENTRY_BYTES
    }
}

/// The parsed header of an entry, and the compressed data that follows.
pub(super) struct Stored<'a> {
    pub(super) form: StoredForm,
    /// Uncompressed size of the object or the delta.
    pub(super) size: u64,
    pub(super) deflated: &'a [u8],
}

pub(super) enum StoredForm {
    Whole(ObjectKind),
    /// Index of the base among the entries, in pack order.
    Delta(usize),
}

impl Stored<'_> {
    /// Returns true if the data was compressed at the fastest level, which zlib records in its second byte.
    pub(super) fn is_hasty(&self) -> bool {
        self.deflated.get(1).is_some_and(|flags| flags >> 6 == 0)
    }
}

/// Returns the paths of the packs in a directory that readers see, without their extension.
pub(super) fn names(dir: &Path) -> Result<Vec<PathBuf>> {
    let names = fsx::names_in(dir)?.into_iter().map(|name| dir.join(name));
    let is_pack = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "idx")
            && path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pack-"))
    };
    Ok(names.filter(is_pack).map(|path| path.with_extension("")).collect())
}

/// Returns the ids of all objects in the packs of a directory; an object with several copies is listed several times.
/// Skips packs whose idx cannot be read.
pub(super) fn ids(dir: &Path) -> Result<Vec<ObjectId>> {
    let ids: Vec<_> = names(dir)?.iter().filter_map(|name| read_ids(&name.with_added_extension("idx"))).collect();
    Ok(ids.concat())
}

/// Opens all packs in a directory, the newest first.
pub(super) fn open_all(dir: &Path) -> Result<Vec<Pack>> {
    let mut changes = 0;
    loop {
        let listed = names(dir)?;
        match listed.iter().map(|name| Pack::open(name)).collect::<Result<Vec<_>>>() {
            Ok(mut packs) => {
                packs.sort_by_key(|pack| std::cmp::Reverse(pack.mtime_nanos));
                return Ok(packs);
            }
            // Stock git's collection deleted a pack meanwhile, after it had moved the reachable objects to another one.
            Err(_) if changes < PACK_CHANGES_MAX && names(dir)? != listed => changes += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if a user told git to keep the pack, or if that cannot be determined.
fn is_kept(name: &Path) -> bool {
    let keep = name.with_added_extension("keep");
    fsx::exists(&keep).unwrap_or(true) && !is_own_keep(&keep)
}

impl Pack {
    pub(super) fn open(name: &Path) -> Result<Self> {
        let damaged = |error: &dyn std::fmt::Display| {
            Error::damaged(format!("read the pack {}", name.display()), error.to_string()).with_hint(Hint::RepairSaves)
        };
        let stat = |ending: &str| {
            let path = name.with_added_extension(ending);
            sys::stat_path(&path).map_err(|error| Error::io("look at", &path, error))
        };
        let (idx_stat, data_stat) = (stat("idx")?, stat("pack")?);
        let idx = IdxFile::open(&name.with_added_extension("idx")).map_err(|error| damaged(&error))?;
        let data = pack::data::File::at(name.with_added_extension("pack"), Kind::Sha1);
        let data = data.map_err(|error| damaged(&error))?;
        let IdxFile { index, pack_checksum, .. } = idx;
        if data.num_objects() as usize != index.len() || *data.checksum().as_bytes() != pack_checksum {
            return Err(damaged(&"the pack and its idx do not belong together"));
        }
        if !index.is_within(HEADER_BYTES as u64..data.pack_end() as u64) || index.has_shared_offsets() {
            return Err(damaged(&"an offset in the idx is not in the pack"));
        }
        Ok(Self {
            name: name.to_owned(),
            bytes: idx_stat.size + data_stat.size,
            mtime_nanos: data_stat.mtime.as_nanos(),
            is_kept: is_kept(name),
            index,
            data,
        })
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the entry at this index in pack order.
    pub(super) fn entry(&self, at: usize) -> PackEntry {
        let (id, start) = self.index.at(at);
        let end = if at + 1 < self.len() { self.index.at(at + 1).1 } else { self.data.pack_end() as u64 };
        PackEntry { id, start, end }
    }

    /// Returns all entries in pack order.
    pub(super) fn entries(&self) -> impl Iterator<Item = PackEntry> {
        (0..self.len()).map(|at| self.entry(at))
    }

    /// Returns the index of an object in pack order.
    pub(super) fn place_of(&self, id: ObjectId) -> Option<usize> {
        self.index.place_at(self.index.start_of(id)?)
    }

    /// Returns true if the mtime of the pack has changed since it was opened.
    pub(super) fn is_freshened(&self) -> bool {
        let path = self.name.with_added_extension("pack");
        sys::stat_path(&path).is_ok_and(|stat| stat.mtime.as_nanos() != self.mtime_nanos)
    }

    fn damaged(&self, entry: &PackEntry, why: &str) -> Error {
        Error::damaged(format!("read the object {} in {}", entry.id, self.name.display()), why.to_owned())
            .with_hint(Hint::RepairSaves)
    }

    /// Returns the entry at this index in its stored form. Fails with `Damaged` if its header is corrupt or its base is
    /// not in the pack.
    pub(super) fn stored(&self, at: usize) -> Result<Stored<'_>> {
        let entry = &self.entry(at);
        let bytes = self.data.entry_slice(entry.start..entry.end);
        let bytes = bytes.ok_or_else(|| self.damaged(entry, "it ends after the pack"))?;
        let head = EntryHead::parse(bytes, entry.start).map_err(|why| self.damaged(entry, why))?;
        let base = match head.form {
            HeadForm::Whole(_) => None,
            HeadForm::OfEntry(start) => self.index.place_at(start),
            HeadForm::OfObject(id) => self.place_of(id),
        };
        let form = match head.form {
            HeadForm::Whole(kind) => StoredForm::Whole(kind),
            _ => StoredForm::Delta(base.ok_or_else(|| self.damaged(entry, "its base is not in the pack"))?),
        };
        let deflated = bytes.get(head.bytes..).unwrap_or_default();
        Ok(Stored { form, size: head.size, deflated })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::{Form, PackDirs, PackWriter, SealedPack, write_idx_of};
    use super::*;

    #[test]
    fn a_pack_is_opened_with_its_own_idx_alone_and_no_entry_lies_outside_of_it() {
        let temp = tempfile::tempdir().expect("a directory");
        let dirs = PackDirs { packs: temp.path().to_owned(), temporary: temp.path().to_owned() };
        let mut writer = PackWriter::begin(&dirs).expect("a pack");
        let id = |number: u8| ObjectId::from_bytes([number; 20]);
        let starts =
            [1, 2].map(|number| writer.add(id(number), Form::Whole(ObjectKind::Blob), 3, b"entry").expect("room"));
        let end = writer.bytes() - 20;
        let sealed = writer.seal().expect("a pack");
        let name = SealedPack::publish(vec![sealed], temp.path()).expect("a pack").names.remove(0);
        let sum: [u8; 20] =
            *Pack::open(&name).expect("a pack").data.checksum().as_bytes().first_chunk().expect("a sum");
        for (starts, sum, is_right) in [
            (starts, sum, true),
            (starts, [7; 20], false),
            ([11, starts[1]], sum, false),
            ([starts[0], end], sum, false),
            ([starts[0], starts[0]], sum, false),
        ] {
            write_idx_of(&dirs, &name, (1..).zip(starts).map(|(number, start)| (id(number), 0, start)), sum)
                .expect("an idx");
            assert_eq!(Pack::open(&name).is_ok(), is_right, "{starts:?}");
        }
    }
}
