//! Ids of the objects in an object file, from its name or its idx. No object is parsed, so that it works for every hash.

use std::collections::BTreeSet;
use std::path::Path;

use memmap2::MmapMut;

use super::held::HeldFile;
use crate::fsx;
use crate::relpath;

/// Size limit of an idx: more than 100 million objects.
const IDX_BYTES_MAX: u64 = 8 << 30;

/// Start of an idx of version 2.
const IDX_MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FAN_OUT_BYTES: usize = 256 * 4;

/// Returns the id of a loose object from its path.
pub(super) fn of_loose(path: &[u8]) -> Option<Vec<u8>> {
    let (dir, name) = relpath::split(path);
    let (_, first) = relpath::split(dir);
    let digits = [first, name].concat();
    let is_hex = matches!(digits.len(), 40 | 64) && digits.iter().all(u8::is_ascii_hexdigit);
    is_hex.then(|| digits.chunks_exact(2).filter_map(relpath::hex_byte).collect())
}

/// Returns the number of bytes of an id, from the name of a pack: `pack-<hash>.idx`.
fn id_bytes(path: &Path) -> Option<usize> {
    let digits = path.file_stem()?.to_str()?.strip_prefix("pack-")?.len();
    matches!(digits, 40 | 64).then_some(digits / 2)
}

/// The ids in an idx, sorted.
pub(super) struct PackIds {
    bytes: MmapMut,
    count: usize,
    id_bytes: usize,
}

impl PackIds {
    /// Opens an idx. Returns `None` if it is not one.
    pub(super) fn open(idx: &Path) -> Option<Self> {
        let id_bytes = id_bytes(idx)?;
        let bytes = fsx::read_large(idx, IDX_BYTES_MAX).ok()??;
        let count = bytes.get(IDX_MAGIC.len() + FAN_OUT_BYTES - 4..)?.first_chunk::<4>()?;
        let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
        let is_whole = bytes.starts_with(&IDX_MAGIC)
            && bytes.len() >= IDX_MAGIC.len() + FAN_OUT_BYTES + count.checked_mul(id_bytes + 8)? + 2 * id_bytes;
        is_whole.then_some(Self { bytes, count, id_bytes })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let start = IDX_MAGIC.len() + FAN_OUT_BYTES;
        self.bytes[start..start + self.count * self.id_bytes].chunks_exact(self.id_bytes)
    }

    /// Returns the checksum at the end of the pack, as the idx has it.
    pub(super) fn pack_checksum(&self) -> &[u8] {
        let end = self.bytes.len() - self.id_bytes;
        &self.bytes[end - self.id_bytes..end]
    }

    fn contains(&self, id: &[u8]) -> bool {
        let start = IDX_MAGIC.len() + FAN_OUT_BYTES;
        let at = |nth: usize| &self.bytes[start + nth * self.id_bytes..start + (nth + 1) * self.id_bytes];
        let (mut low, mut high) = (0, self.count);
        while id.len() == self.id_bytes && low < high {
            let middle = usize::midpoint(low, high);
            match at(middle).cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return true,
            }
        }
        false
    }
}

/// Every object in a set of object files.
#[derive(Default)]
pub(super) struct ObjectIds {
    packs: Vec<PackIds>,
    loose: BTreeSet<Vec<u8>>,
}

impl ObjectIds {
    pub(super) fn add(&mut self, file: &HeldFile) {
        self.add_at(&file.path, &file.file);
    }

    /// Adds the objects of the file `file`, which has this path in a repository.
    pub(super) fn add_at(&mut self, path: &[u8], file: &Path) {
        if path.ends_with(b".idx") {
            // Without its pack, an idx is of no use.
            let has_pack = file.with_extension("pack").is_file();
            self.packs.extend(has_pack.then(|| PackIds::open(file)).flatten());
        } else {
            self.loose.extend(of_loose(path));
        }
    }

    pub(super) fn contains(&self, id: &[u8]) -> bool {
        self.loose.contains(id) || self.packs.iter().any(|pack| pack.contains(id))
    }
}
