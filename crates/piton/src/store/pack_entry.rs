//! The head of a pack entry: its kind, its size and the reference to its base.

use crate::id::{ID_BYTES, ObjectId, ObjectKind};

/// Length of the longest head.
pub(super) const HEAD_BYTES_MAX: usize = 32;

/// Head of a pack entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHead {
    pub(super) form: HeadForm,
    /// Number of bytes after inflating.
    pub(super) size: u64,
    /// Length of the head, after which the compressed bytes begin.
    pub(super) bytes: usize,
}

/// Form in which an object is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadForm {
    Whole(ObjectKind),
    /// A delta against the entry at this offset.
    OfEntry(u64),
    /// A delta against this object.
    OfObject(ObjectId),
}

impl EntryHead {
    /// Parses the head of the entry at the offset `start`, which begins with `bytes`. Fails with a description of the
    /// defect if it is corrupt or longer than `HEAD_BYTES_MAX`.
    pub(super) fn parse(bytes: &[u8], start: u64) -> Result<Self, &'static str> {
        let mut bytes = bytes.iter().copied().take(HEAD_BYTES_MAX);
        let mut read = 0;
        let mut next = || {
            read += 1;
            bytes.next().ok_or("it ends too early")
        };
        let first = next()?;
        let mut size = u64::from(first & 0x0f);
        let (mut byte, mut shift) = (first, 4_u32);
        while byte & 0x80 != 0 {
            byte = next()?;
            let more = u64::from(byte & 0x7f);
            size |= more.checked_shl(shift).filter(|it| it >> shift == more).ok_or("its size is invalid")?;
            shift += 7;
        }
        let form = match first >> 4 & 7 {
            1 => HeadForm::Whole(ObjectKind::Commit),
            2 => HeadForm::Whole(ObjectKind::Tree),
            3 => HeadForm::Whole(ObjectKind::Blob),
            4 => HeadForm::Whole(ObjectKind::Tag),
            6 => {
                let mut byte = next()?;
                let mut distance = u64::from(byte & 0x7f);
                while byte & 0x80 != 0 {
                    byte = next()?;
                    let shifted = distance.checked_add(1).and_then(|more| more.checked_mul(128));
                    distance = shifted.ok_or("its base is not in the pack")? | u64::from(byte & 0x7f);
                }
                let base = start.checked_sub(distance).filter(|_| distance > 0);
                HeadForm::OfEntry(base.ok_or("its base is not in the pack")?)
            }
            7 => {
                let mut id = [0; ID_BYTES];
                for byte in &mut id {
                    *byte = next()?;
                }
                HeadForm::OfObject(ObjectId::from_bytes(id))
            }
            _ => return Err("it is of a kind that git does not have"),
        };
        Ok(Self { form, size, bytes: read })
    }
}
