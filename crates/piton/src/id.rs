//! Ids of objects and projects. No other module knows which hash functions they use.

use std::fmt;
use std::path::Path;

use sha2::Digest as _;

use crate::relpath;
use crate::sys;

/// Length of an object id in bytes.
pub(crate) const ID_BYTES: usize = 20;

/// Name of an object in the store: SHA-1 of its kind, size and bytes, as in git.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; ID_BYTES]);

/// Id of a checkpoint: that of the commit that describes it.
pub type CheckpointId = ObjectId;

/// Error for bytes that were crafted to have the same hash as others. Such a file is skipped and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the contents were made to collide with another file's hash")]
pub(crate) struct Collision;

impl ObjectId {
    /// Id of an empty file.
    pub(crate) const EMPTY_BLOB: Self = Self([
        0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8, 0xc2, 0xe4, 0x8c,
        0x53, 0x91,
    ]);

    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the id at the start of `bytes`, or `None` if they are too short.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    /// Returns the bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }

    /// Parses exactly 40 hexadecimal digits.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; ID_BYTES];
        if hex.len() != 2 * ID_BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = relpath::hex_byte(pair)?;
        }
        Some(Self(bytes))
    }

    /// Returns the first seven digits, for display.
    pub fn short(&self) -> String {
        self.to_string()[..7].to_owned()
    }
}

/// Returns the first 20 bytes of the SHA-256 of these bytes, as the id of something that is not an object of git.
pub(crate) fn content_id(bytes: &[u8]) -> ObjectId {
    let digest = sha2::Sha256::digest(bytes);
    ObjectId::read(&digest).expect("a digest has 32 bytes")
}

/// Returns two hexadecimal digits for each byte.
pub(crate) fn hex<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
    let digit = |digit: u8| char::from(b"0123456789abcdef"[usize::from(digit & 15)]);
    bytes.into_iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

crate::json::serialized_as_text! {
    ObjectId = "id, as 40 hexadecimal digits";
    ProjectId = "name of the project in the store";
}

crate::json::deserialized_by! {
    ObjectId, |text: &str| Self::from_hex(text.as_bytes()), "40 hexadecimal digits";
    ProjectId, Self::parse, "the name of a project";
}

/// Type of an object, in git's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// Bytes of a file, or target of a link.
    Blob,
    /// Names in one directory.
    Tree,
    /// Checkpoint.
    Commit,
    /// Name for another object. Stock git may create one; piton never does.
    Tag,
}

impl ObjectKind {
    /// Returns git's word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
            Self::Tag => "tag",
        }
    }

    /// Parses the result of [`Self::word`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Blob, Self::Tree, Self::Commit, Self::Tag].into_iter().find(|kind| kind.word() == word)
    }
}

/// Incremental computation of an object id.
pub(crate) struct IdHasher(sha1dc::Hasher);

impl IdHasher {
    /// Starts an object of `size` bytes; exactly that many must follow.
    pub(crate) fn new(kind: ObjectKind, size: u64) -> Self {
        let mut hasher = sha1dc::Hasher::new();
        hasher.update(format!("{} {size}\0", kind.word()).as_bytes());
        Self(hasher)
    }

    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the id, or [`Collision`] if the bytes were crafted to share it with others.
    pub(crate) fn finish(self) -> Result<ObjectId, Collision> {
        self.0.finalize().map(|digest| ObjectId(digest.into())).map_err(|_| Collision)
    }

    /// Returns the id of an object in memory.
    pub(crate) fn of(kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId, Collision> {
        let mut hasher = Self::new(kind, bytes.len() as u64);
        hasher.update(bytes);
        hasher.finish()
    }
}

/// Checksum at the end of git's packs and indexes: SHA-1 of the plain bytes.
pub(crate) struct Checksum(sha1dc::Hasher);

impl Checksum {
    /// Starts with no bytes.
    pub(crate) fn new() -> Self {
        Self(sha1dc::Hasher::new())
    }

    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum, even of bytes that were crafted to collide: it only guards against accidents.
    pub(crate) fn finish(self) -> [u8; ID_BYTES] {
        match self.0.finalize() {
            Ok(digest) => digest.into(),
            Err(collision) => collision.digest().into(),
        }
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}

/// Name of a project in the store: the first 16 hexadecimal digits of the SHA-256 of the path of its directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(String);

impl ProjectId {
    /// Returns the name for a directory. The path must be absolute and free of links.
    pub fn of(canonical: &Path) -> Self {
        let digest = sha2::Sha256::digest(sys::path_bytes(canonical));
        Self(hex(&digest[..8]))
    }

    /// Parses the name of a file in the store. Returns `None` unless it consists of 16 lower-case hexadecimal digits.
    pub fn parse(name: &str) -> Option<Self> {
        let fits = name.len() == 16 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        fits.then(|| Self(name.to_owned()))
    }

    /// Returns the 16 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Length limit of the name of a session or a turn, in characters.
const NAME_CHARS_MAX: usize = 200;

/// Returns the name of a session or a turn, cut to 200 characters. A cut name ends in a hash of the whole, so that
/// names with a common prefix stay distinct.
pub fn bounded_name(name: &str) -> String {
    if name.len() <= NAME_CHARS_MAX || name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let hash = sha2::Sha256::digest(name.as_bytes());
    let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let start: String = name.chars().take(NAME_CHARS_MAX - hash.len() - 1).collect();
    format!("{start}-{hash}")
}

/// Returns a random text that no file name of the user contains by chance.
pub(crate) fn random_token() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_blob_has_the_name_that_git_gives_it() {
        let id = IdHasher::of(ObjectKind::Blob, b"").expect("no collision");
        assert_eq!(id.to_string(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(id, ObjectId::EMPTY_BLOB);
        assert_eq!(ObjectId::from_hex(id.to_string().as_bytes()), Some(id));
    }

    #[test]
    fn a_project_has_the_name_that_hermes_gives_it() {
        // python3 -c 'import hashlib; print(hashlib.sha256(b"/home/you/code").hexdigest()[:16])'
        assert_eq!(ProjectId::of(Path::new("/home/you/code")).as_str(), "191b6b6fd3277872");
    }

    /// Start of one of two files that were crafted to have the same SHA-1 (Stevens et al., 2017).
    const MADE_TO_COLLIDE: &str = "\
        255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f48656967687420332030 \
        20522f547970652034203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163 \
        652037203020522f4c656e6774682038203020522f42697473506572436f6d706f6e656e7420383e3e0a73747265616d0aff \
        d8fffe00245348412d3120697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe017346dc9166b67e11 \
        8f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5df45c14f26fedfb3dc38e96ac22fe7bd728f \
        0e45bce046d23c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500eb4ddc0decc1a864790c782c \
        76215660dd309791d06bd0af3f98cda4bc4629b1";

    #[test]
    fn contents_that_were_made_to_collide_are_found() {
        let digits: Vec<u8> = MADE_TO_COLLIDE.bytes().filter(u8::is_ascii_hexdigit).collect();
        let bytes: Vec<u8> = digits.chunks(2).filter_map(relpath::hex_byte).collect();
        assert_eq!(bytes.len(), 320);
        // Hashed as plain bytes: no two colliding blobs are known.
        let mut hasher = IdHasher(sha1dc::Hasher::new());
        hasher.update(&bytes);
        assert!(hasher.finish().is_err());
        assert!(IdHasher::of(ObjectKind::Blob, &bytes).is_ok());
    }

    #[test]
    fn hex_that_is_not_an_id_is_refused() {
        assert_eq!(ObjectId::from_hex(b"e69de2"), None);
        assert_eq!(ObjectId::from_hex(&[b'g'; 40]), None);
        assert_eq!(ProjectId::parse("../../../etc/pass"), None);
        assert_eq!(ProjectId::parse("0123456789ABCDEF"), None);
    }
}
