//! Keys of a repository, and recovery phrases.

use std::fmt;

use crypto_box::SecretKey;
use serde::{Deserialize, Serialize};

use crate::error::{RemoteError, RemoteErrorKind, Result};

/// Cost of deriving a key from a phrase: memory in KiB, passes.
const PHRASE_MEMORY_KIB: u32 = 64 << 10;
const PHRASE_PASSES: u32 = 3;
/// Words of a phrase: 128 bits and a checksum.
const PHRASE_WORDS: usize = 12;
/// Keys of a keyring. A limit for what is read.
const KEYS_MAX: usize = 1000;

/// Fills a buffer with random bytes.
pub(crate) fn random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| RemoteError::new(RemoteErrorKind::Io, format!("get random bytes: {error}")))
}

/// Returns a random name of 32 hexadecimal digits.
pub(crate) fn random_name() -> Result<String> {
    let mut bytes = [0; 16];
    random(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Returns two hexadecimal digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reverses [`hex`].
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    text.len().is_multiple_of(2).then(|| (0..text.len()).step_by(2).map(pair).collect()).flatten()
}

/// Key with which objects are sealed.
#[derive(Clone)]
pub(crate) struct SealKey {
    pub(crate) id: [u8; 8],
    pub(crate) seal: [u8; 32],
}

/// All keys of a repository, the newest last. Older ones open what was written before a rotation.
#[derive(Clone)]
pub struct Keyring {
    masters: Vec<[u8; 32]>,
    keys: Vec<SealKey>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} keys)", self.keys.len())
    }
}

#[derive(Serialize, Deserialize)]
struct KeyringText {
    keys: Vec<String>,
}

impl Keyring {
    /// Returns a keyring with one new key.
    pub fn generate() -> Result<Self> {
        let mut master = [0; 32];
        random(&mut master)?;
        Ok(Self::new(vec![master]))
    }

    fn new(masters: Vec<[u8; 32]>) -> Self {
        let key = |master: &[u8; 32]| {
            let id = blake3::derive_key("piton remote 2026 key id", master);
            let seal = blake3::derive_key("piton remote 2026 seal", master);
            SealKey { id: *id.first_chunk().expect("32 bytes"), seal }
        };
        Self { keys: masters.iter().map(key).collect(), masters }
    }

    /// Returns this keyring with one more key, which seals everything from then on.
    pub fn rotated(&self) -> Result<Self> {
        let mut masters = self.masters.clone();
        let mut master = [0; 32];
        random(&mut master)?;
        masters.push(master);
        Ok(Self::new(masters))
    }

    pub(crate) fn current(&self) -> &SealKey {
        self.keys.last().expect("a keyring has a key")
    }

    pub(crate) fn by_id(&self, id: &[u8]) -> Option<&SealKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Returns the number of keys.
    pub(crate) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Returns a keyed hash of a name. It stays the same when keys are added.
    pub(crate) fn name(&self, kind: &str, text: &[u8]) -> String {
        name_with(&blake3::derive_key("piton remote 2026 names", &self.masters[0]), kind, text)
    }

    /// Returns the ids of all keys, as slots list them.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.keys.iter().map(|key| hex(&key.id)).collect()
    }

    /// Returns true if the keyring has a key of this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        unhex(id).is_some_and(|id| self.by_id(&id).is_some())
    }

    /// Returns the keys of both: those of this keyring, then those that only `other` has. Returns `None` if they are of two
    /// repositories.
    pub(crate) fn merged(&self, other: &Self) -> Option<Self> {
        let only_other = other.masters.iter().filter(|master| !self.masters.contains(master));
        let all = self.masters.iter().chain(only_other).copied().collect();
        (self.masters[0] == other.masters[0]).then(|| Self::new(all))
    }

    /// Returns a checksum of the text of a slot that only a holder of the keyring can make.
    pub(crate) fn mac(&self, slot: &str) -> blake3::Hash {
        let key = blake3::derive_key("piton remote 2026 slots", &self.masters[0]);
        blake3::keyed_hash(&key, slot.as_bytes())
    }

    /// Returns the keyring as text, for the file of this machine and for slots.
    pub fn encode(&self) -> String {
        let keys = self.masters.iter().map(|master| hex(master)).collect();
        serde_json::to_string(&KeyringText { keys }).expect("text")
    }

    /// Reverses [`Self::encode`].
    pub fn decode(text: &[u8]) -> Option<Self> {
        let text: KeyringText = serde_json::from_slice(text).ok()?;
        let masters: Option<Vec<_>> =
            text.keys.iter().take(KEYS_MAX).map(|key| unhex(key)?.first_chunk().copied()).collect();
        masters.filter(|masters| !masters.is_empty()).map(Self::new)
    }
}

/// Returns the hash of a name in a repository, with a key that is public in a repository without encryption.
pub(crate) fn name_with(key: &[u8; 32], kind: &str, text: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(kind.as_bytes()).update(&[0]).update(text);
    hex(&hasher.finalize().as_bytes()[..16])
}

/// A recovery phrase: twelve words, of which the last has a checksum.
#[derive(Clone, PartialEq, Eq)]
pub struct Phrase(String);

impl fmt::Debug for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phrase(…)")
    }
}

impl Phrase {
    /// Returns a new phrase.
    pub fn generate() -> Result<Self> {
        let mut entropy = [0; 16];
        random(&mut entropy)?;
        let words = bip39::Mnemonic::from_entropy(&entropy);
        Ok(Self(words.expect("16 bytes are 12 words").to_string()))
    }

    /// Parses a phrase as a user types it. Fails with `Invalid` and the word that is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
        let bad = |why: String| {
            RemoteError::new(RemoteErrorKind::Invalid, format!("read the recovery phrase: {why}"))
                .hint("it has twelve words, as `piton remote add` showed them")
        };
        if words.len() != PHRASE_WORDS {
            return Err(bad(format!("it has {} words", words.len())));
        }
        let list = bip39::Language::English;
        if let Some(unknown) = words.iter().find(|word| list.find_word(word).is_none()) {
            return Err(bad(format!("`{unknown}` is not one of its words")));
        }
        let text = words.join(" ");
        bip39::Mnemonic::parse_normalized(&text).map_err(|_| bad("a word is wrong or in another place".to_owned()))?;
        Ok(Self(text))
    }

    /// Returns the words, to be shown once.
    pub fn words(&self) -> &str {
        &self.0
    }

    /// Returns the secret key of the phrase.
    pub(crate) fn secret(&self, salt: &[u8]) -> SecretKey {
        let params = argon2::Params::new(PHRASE_MEMORY_KIB, PHRASE_PASSES, 1, Some(32)).expect("valid costs");
        let argon = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let mut key = [0; 32];
        argon.hash_password_into(self.0.as_bytes(), salt, &mut key).expect("valid lengths");
        SecretKey::from(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_phrase_is_told_from_a_wrong_one() {
        let phrase = Phrase::generate().expect("words");
        let words: Vec<_> = phrase.words().split(' ').collect();
        for text in ["", "abandon", &words[..11].join(" "), &phrase.words().replace(words[0], "xyzzy")] {
            assert_eq!(Phrase::parse(text).expect_err("no phrase").kind, RemoteErrorKind::Invalid, "{text}");
        }
    }
}
