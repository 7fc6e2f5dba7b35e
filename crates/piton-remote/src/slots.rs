//! Slots, which hold the keyring for each recovery phrase.
//!
//! A slot has a public key, derived from its phrase. The keyring is sealed to it, so that a key can be replaced without
//! the phrases of the other slots. A slot that was not made by a holder of the keyring is ignored.

use crypto_box::PublicKey;
use serde::{Deserialize, Serialize};

use crate::error::{RemoteError, Result};
use crate::keys::{Keyring, Phrase, hex, random, random_name, unhex};

/// A slot as it is stored: the keyring for the holder of one phrase.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Slot {
    /// Name of the slot.
    pub(crate) slot: String,
    salt: String,
    public: String,
    /// Keyring, sealed to the public key.
    sealed: String,
    /// Label, sealed with the keyring.
    pub(crate) label: String,
    mac: String,
}

impl Slot {
    /// Makes a slot for a phrase.
    pub(crate) fn new(keys: &Keyring, phrase: &Phrase, label: &str) -> Result<Self> {
        let mut salt = [0; 16];
        random(&mut salt)?;
        let slot = random_name()?[..8].to_owned();
        let public = hex(phrase.secret(&salt).public_key().as_bytes());
        let label = hex(&crate::seal::seal(Some(keys), "label", label.as_bytes())?);
        let empty = Self {
            salt: hex(&salt),
            mac: keys.mac(&slot, &public).to_string(),
            slot,
            public,
            sealed: String::new(),
            label,
        };
        empty.resealed(keys)
    }

    /// Returns the slot with another keyring, for the same phrase.
    pub(crate) fn resealed(&self, keys: &Keyring) -> Result<Self> {
        let damaged = || RemoteError::damaged(&format!("key/{}", self.slot), "its public key is none");
        let public: [u8; 32] = unhex(&self.public).and_then(|key| key.try_into().ok()).ok_or_else(damaged)?;
        let sealed = PublicKey::from(public)
            .seal(&mut crypto_box::aead::OsRng, keys.encode().as_bytes())
            .map_err(|_| damaged())?;
        Ok(Self { sealed: hex(&sealed), ..self.clone() })
    }

    /// Returns the keyring if the phrase is that of this slot.
    pub(crate) fn open(&self, phrase: &Phrase) -> Option<Keyring> {
        let secret = phrase.secret(&unhex(&self.salt)?);
        let text = secret.unseal(&unhex(&self.sealed)?).ok()?;
        Keyring::decode(&text).filter(|keys| self.is_genuine(keys))
    }

    /// Returns true if a holder of the keyring made the slot.
    pub(crate) fn is_genuine(&self, keys: &Keyring) -> bool {
        blake3::Hash::from_hex(&self.mac).is_ok_and(|mac| mac == keys.mac(&self.slot, &self.public))
    }

    /// Returns the label of the slot.
    pub(crate) fn label(&self, keys: &Keyring) -> Option<String> {
        let text = crate::seal::unseal(Some(keys), "label", "a label", &unhex(&self.label)?).ok()?;
        String::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_opens_its_slot_and_no_other() {
        let keys = Keyring::generate().expect("random bytes");
        let (phrase, other) = (Phrase::generate().expect("words"), Phrase::generate().expect("words"));
        let slot = Slot::new(&keys, &phrase, "laptop").expect("a slot");
        let typed = Phrase::parse(&format!("  {} ", phrase.words().to_uppercase())).expect("a phrase");
        let opened = slot.open(&typed).expect("the keyring");
        assert_eq!(opened.encode(), keys.encode());
        assert!(slot.open(&other).is_none());
        assert_eq!(slot.label(&keys).as_deref(), Some("laptop"));
        let rotated = keys.rotated().expect("a key");
        let again = slot.resealed(&rotated).expect("a slot");
        assert_eq!(again.open(&phrase).expect("the keyring").count(), 2);
        assert_eq!(keys.name("project", b"x"), rotated.name("project", b"x"));
        let text = serde_json::to_string(&slot).expect("text");
        let keyring = keys.encode();
        let key = keyring.split('"').nth(3).filter(|key| key.len() == 64).expect("a key");
        assert!(!text.contains("laptop") && !text.contains(key));
    }

    #[test]
    fn a_slot_of_a_stranger_is_not_trusted() {
        let keys = Keyring::generate().expect("random bytes");
        let theirs = Keyring::generate().expect("random bytes");
        let phrase = Phrase::generate().expect("words");
        let forged = Slot::new(&theirs, &phrase, "x").expect("a slot");
        assert!(!forged.is_genuine(&keys) && forged.is_genuine(&theirs));
        let swapped = Slot { public: forged.public.clone(), ..Slot::new(&keys, &phrase, "x").expect("a slot") };
        assert!(!swapped.is_genuine(&keys));
    }
}
