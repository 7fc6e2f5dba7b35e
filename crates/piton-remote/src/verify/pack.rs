//! Checks the parts of a pack that a restore does not read: the head of a sealed pack, of which the index has a copy;
//! the header and the checksum of a pack in the clear, which stock git reads.

use crate::error::{RemoteError, Result};
use crate::index::PackInfo;
use crate::keys::hex;
use crate::remote::Remote;
use crate::seal::HEAD_BYTES;

/// Start of a git pack: its version is 2.
const PACK_START: &[u8] = b"PACK\0\0\0\x02";
/// Bytes of the SHA-1 at the end of a git pack.
const SUM_BYTES: usize = 20;
/// Size of one request.
const PIECE_BYTES: u64 = 16 << 20;

/// Fails with `Damaged` if the bytes of a pack around its entries are not as they were written.
pub(super) fn check_around_entries(remote: &Remote, pack: &PackInfo) -> Result<()> {
    let key = format!("pack/{}", pack.name);
    let get = |range| remote.bucket.get_range(&key, range)?.ok_or_else(|| RemoteError::damaged(&key, "it is missing"));
    if remote.keys.is_some() {
        let is_same = hex(&get(0..HEAD_BYTES as u64)?) == pack.head;
        return if is_same { Ok(()) } else { Err(RemoteError::damaged(&key, "its head was changed")) };
    }
    let (mut sum, mut held, mut at) = (sha1dc::Hasher::new(), Vec::new(), 0);
    while at < pack.bytes {
        let end = pack.bytes.min(at + PIECE_BYTES);
        held.extend(get(at..end)?);
        if at == 0 && !held.starts_with(PACK_START) {
            return Err(RemoteError::damaged(&key, "it is no git pack"));
        }
        // The last bytes may be the checksum.
        let rest = held.split_off(held.len().saturating_sub(SUM_BYTES));
        sum.update(&held);
        (held, at) = (rest, end);
    }
    // Bytes that were crafted to collide are found by their objects.
    let sum: [u8; SUM_BYTES] = sum.finalize().map_or_else(|collision| collision.digest().into(), Into::into);
    match held == sum {
        true => Ok(()),
        false => Err(RemoteError::damaged(&key, "its checksum does not match")),
    }
}
