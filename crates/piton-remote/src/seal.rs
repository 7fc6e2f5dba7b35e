//! Sealing: what leaves the machine is encrypted and authenticated in frames, so that a part can be read alone.
//!
//! A sealed object is a head (`pitonS1\0`, the id of the key, 16 random bytes) and frames of 64 KiB, each with a tag of 16
//! bytes. The nonce of a frame is the random part, its number and whether it is the last: a frame that is changed, moved,
//! repeated or missing is found, and so is one of another object. The name of a record or an index is bound to it as
//! associated data: under another name it does not open. Packs are bound by their head, which the index has.
//!
//! An object in the clear is `pitonP1\0`, the BLAKE3 of its name, NUL and the rest, and the rest; packs in the clear are plain
//! git packs.

use std::io::{Read, Write};

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::keys::{Keyring, SealKey};

const MAGIC: &[u8; 8] = b"pitonS1\0";
const PLAIN_MAGIC: &[u8; 8] = b"pitonP1\0";
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Size of a frame without its tag.
pub(crate) const FRAME_BYTES: usize = 64 << 10;
/// Size of the head.
pub(crate) const HEAD_BYTES: usize = MAGIC.len() + KEY_ID_BYTES + NONCE_BYTES;

/// Head of a sealed object: key and nonce. With it and the key, any part of the object can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealHead([u8; HEAD_BYTES]);

impl SealHead {
    fn new(key: &SealKey) -> Result<Self> {
        let mut head = [0; HEAD_BYTES];
        head[..MAGIC.len()].copy_from_slice(MAGIC);
        head[MAGIC.len()..MAGIC.len() + KEY_ID_BYTES].copy_from_slice(&key.id);
        crate::keys::random(&mut head[MAGIC.len() + KEY_ID_BYTES..])?;
        Ok(Self(head))
    }

    /// Reads the head at the start of a sealed object.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied().map(Self).filter(|head| head.0.starts_with(MAGIC))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn key_id(&self) -> &[u8] {
        &self.0[MAGIC.len()..MAGIC.len() + KEY_ID_BYTES]
    }

    fn nonce(&self, frame: u32, is_last: bool) -> XNonce {
        let mut nonce = [0; 24];
        nonce[..NONCE_BYTES].copy_from_slice(&self.0[MAGIC.len() + KEY_ID_BYTES..]);
        nonce[NONCE_BYTES..NONCE_BYTES + 4].copy_from_slice(&frame.to_be_bytes());
        nonce[23] = u8::from(is_last);
        nonce.into()
    }
}

fn cipher(key: &SealKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(Key::from_slice(&key.seal))
}

/// Returns the size of a sealed object by the size of its contents.
pub(crate) fn sealed_bytes(plain: u64) -> u64 {
    let frames = plain.div_ceil(FRAME_BYTES as u64).max(1);
    HEAD_BYTES as u64 + plain + frames * TAG_BYTES as u64
}

/// Seals a stream. `bound` is the associated data, without which it does not open: the name of the object, or its kind.
pub(crate) fn seal_stream(keys: &Keyring, bound: &str, plain: &mut dyn Read, out: &mut dyn Write) -> Result<SealHead> {
    let failed = |error: std::io::Error| RemoteError::new(RemoteErrorKind::Io, format!("seal a pack: {error}"));
    let key = keys.current();
    let (head, cipher) = (SealHead::new(key)?, cipher(key));
    out.write_all(&head.0).map_err(failed)?;
    let mut frame = read_frame(plain).map_err(failed)?;
    for number in 0_u32.. {
        let next = if frame.len() == FRAME_BYTES { read_frame(plain).map_err(failed)? } else { Vec::new() };
        let is_last = next.is_empty();
        let payload = Payload { msg: &frame, aad: bound.as_bytes() };
        let sealed = cipher.encrypt(&head.nonce(number, is_last), payload);
        let sealed = sealed.map_err(|_| RemoteError::new(RemoteErrorKind::Io, "encrypt a frame"))?;
        out.write_all(&sealed).map_err(failed)?;
        if is_last {
            return Ok(head);
        }
        frame = next;
    }
    Err(RemoteError::new(RemoteErrorKind::Invalid, "seal more than 256 TiB"))
}

fn read_frame(plain: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    plain.take(FRAME_BYTES as u64).read_to_end(&mut frame)?;
    Ok(frame)
}

/// Seals bytes, or adds a checksum to them in a repository without encryption.
pub(crate) fn seal(keys: Option<&Keyring>, bound: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + HEAD_BYTES + TAG_BYTES);
    match keys {
        Some(keys) => drop(seal_stream(keys, bound, &mut &*bytes, &mut out)?),
        None => {
            out.extend_from_slice(PLAIN_MAGIC);
            out.extend_from_slice(checksum(bound, bytes).as_bytes());
            out.extend_from_slice(bytes);
        }
    }
    Ok(out)
}

fn checksum(bound: &str, bytes: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bound.as_bytes()).update(&[0]).update(bytes);
    hasher.finalize()
}

/// Opens what [`seal`] returned. `key` is the name of the object, for the error.
pub(crate) fn unseal(keys: Option<&Keyring>, bound: &str, key: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let Some(keys) = keys else {
        let rest = bytes.strip_prefix(PLAIN_MAGIC).ok_or_else(|| RemoteError::damaged(key, "it has another format"))?;
        let (sum, rest) =
            rest.split_at_checked(blake3::OUT_LEN).ok_or_else(|| RemoteError::damaged(key, "it is cut off"))?;
        if checksum(bound, rest).as_bytes() != sum {
            return Err(RemoteError::damaged(key, "it was changed: its checksum does not match"));
        }
        return Ok(rest.to_vec());
    };
    let head = SealHead::read(bytes).ok_or_else(|| RemoteError::damaged(key, "it has another format"))?;
    let size = bytes.len() as u64;
    unseal_frames(keys, bound, key, &head, size, 0, &bytes[HEAD_BYTES..])
}

/// A part of a sealed object that consists of whole frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameSpan {
    /// Number of the first frame.
    pub(crate) first: u32,
    /// Bytes of the sealed object.
    pub(crate) sealed: std::ops::Range<u64>,
    /// Offset of the first byte of the first frame in the contents.
    pub(crate) plain_start: u64,
}

/// Returns the frames that hold a range of the contents, of an object of this sealed size.
pub(crate) fn span_of(range: &std::ops::Range<u64>, sealed_size: u64) -> Option<FrameSpan> {
    let frame = FRAME_BYTES as u64;
    let sealed_frame = frame + TAG_BYTES as u64;
    let (first, last) = (range.start / frame, range.end.saturating_sub(1).max(range.start) / frame);
    let start = HEAD_BYTES as u64 + first * sealed_frame;
    let end = (HEAD_BYTES as u64 + (last + 1) * sealed_frame).min(sealed_size);
    let first = u32::try_from(first).ok()?;
    (start < end).then(|| FrameSpan { first, sealed: start..end, plain_start: u64::from(first) * frame })
}

/// Opens consecutive frames. `size` is the size of the whole sealed object, which tells the last frame.
pub(crate) fn unseal_frames(
    keys: &Keyring,
    bound: &str,
    key: &str,
    head: &SealHead,
    size: u64,
    first: u32,
    frames: &[u8],
) -> Result<Vec<u8>> {
    let Some(found) = keys.by_id(head.key_id()) else {
        return Err(RemoteError::new(RemoteErrorKind::WrongKey, format!("open {key}: it is sealed with another key"))
            .hint(
                "the key was replaced: `piton remote add` with the same URL and the recovery phrase reads it again",
            ));
    };
    let cipher = cipher(found);
    let sealed_frame = FRAME_BYTES + TAG_BYTES;
    let count = (size - HEAD_BYTES as u64).div_ceil(sealed_frame as u64);
    let mut plain = Vec::with_capacity(frames.len());
    for (number, frame) in (u64::from(first)..).zip(frames.chunks(sealed_frame)) {
        let index = u32::try_from(number).map_err(|_| RemoteError::damaged(key, "it is too large"))?;
        let nonce = head.nonce(index, number + 1 == count);
        let opened = cipher.decrypt(&nonce, Payload { msg: frame, aad: bound.as_bytes() });
        plain.extend(opened.map_err(|_| {
            RemoteError::damaged(key, &format!("frame {number} was changed, moved or cut off, or the key is another"))
        })?);
    }
    if frames.is_empty() {
        return Err(RemoteError::damaged(key, "it is cut off"));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64) -> usize {
        usize::try_from(bytes).expect("it is in memory")
    }

    fn keys() -> Keyring {
        Keyring::generate().expect("random bytes")
    }

    #[test]
    fn what_is_sealed_opens_whole_and_in_parts() {
        let keys = keys();
        for length in [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 3 * FRAME_BYTES + 77] {
            let plain: Vec<u8> = (0..=250).cycle().take(length).collect();
            let sealed = seal(Some(&keys), "pack", &plain).expect("sealed");
            assert_eq!(sealed.len() as u64, sealed_bytes(length as u64), "{length}");
            assert_eq!(unseal(Some(&keys), "pack", "x", &sealed).expect("opened"), plain, "{length}");
            let head = SealHead::read(&sealed).expect("a head");
            for (start, end) in [(0, length), (length / 3, length / 2), (length.saturating_sub(1), length)] {
                let range = start as u64..end as u64;
                let span = span_of(&range, sealed.len() as u64).expect("frames");
                let frames = &sealed[size(span.sealed.start)..size(span.sealed.end)];
                let opened = unseal_frames(&keys, "pack", "x", &head, sealed.len() as u64, span.first, frames);
                let from = size(range.start - span.plain_start);
                assert_eq!(
                    &opened.expect("opened")[from..from + (end - start)],
                    &plain[start..end],
                    "{length} {range:?}"
                );
            }
        }
    }

    #[test]
    fn every_change_of_a_sealed_object_is_found() {
        let keys = keys();
        let plain = vec![7; 2 * FRAME_BYTES + 5];
        let sealed = seal(Some(&keys), "pack", &plain).expect("sealed");
        let fails = |bytes: &[u8], kind: &str| unseal(Some(&keys), kind, "x", bytes).expect_err("changed").kind;
        let frame = FRAME_BYTES + TAG_BYTES;
        for at in [0, 9, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + frame, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let kind = fails(&changed, "pack");
            assert!(matches!(kind, RemoteErrorKind::Damaged | RemoteErrorKind::WrongKey), "{at}");
        }
        for length in [0, HEAD_BYTES, HEAD_BYTES + frame, HEAD_BYTES + 2 * frame, sealed.len() - 1] {
            assert_eq!(fails(&sealed[..length], "pack"), RemoteErrorKind::Damaged, "{length}");
        }
        let mut swapped = sealed.clone();
        let (one, two) = swapped[HEAD_BYTES..].split_at_mut(frame);
        one.swap_with_slice(&mut two[..frame]);
        assert_eq!(fails(&swapped, "pack"), RemoteErrorKind::Damaged);
        assert_eq!(fails(&sealed, "ref"), RemoteErrorKind::Damaged);
        let other = Keyring::generate().expect("random bytes");
        let kind = unseal(Some(&other), "pack", "x", &sealed).expect_err("another key").kind;
        assert_eq!(kind, RemoteErrorKind::WrongKey);
    }

    #[test]
    fn what_is_in_the_clear_has_a_checksum() {
        let stored = seal(None, "ref", b"text").expect("stored");
        assert_eq!(unseal(None, "ref", "x", &stored).expect("read"), b"text");
        for at in 0..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 1;
            assert_eq!(unseal(None, "ref", "x", &changed).expect_err("changed").kind, RemoteErrorKind::Damaged, "{at}");
        }
        assert!(unseal(None, "ref", "x", &stored[..20]).is_err());
    }
}
