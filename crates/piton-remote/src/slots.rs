//! Slots, which hold the keyring for each recovery phrase.
//!
//! A slot has a public key, derived from its phrase. The keyring is sealed to it, so that a key can be replaced without
//! the phrases of the other slots. A slot that was not made by a holder of the keyring is ignored.
//!
//! A slot lists the ids of its keys in the clear. A machine that finds an id there that it does not have never writes the
//! slots: it would drop that key for the holders of all phrases.

use crypto_box::PublicKey;
use serde::{Deserialize, Serialize};

use crate::bucket::Bucket;
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
    /// Ids of the keys in it.
    keys: Vec<String>,
    /// Keyed checksum of all other fields, which only a holder of the keyring can compute.
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
        let empty =
            Self { salt: hex(&salt), slot, public, sealed: String::new(), label, keys: Vec::new(), mac: String::new() };
        empty.resealed(keys)
    }

    /// Returns the slot with another keyring, for the same phrase.
    pub(crate) fn resealed(&self, keys: &Keyring) -> Result<Self> {
        let damaged = || RemoteError::damaged(&format!("key/{}", self.slot), "its public key is invalid");
        let public: [u8; 32] = unhex(&self.public).and_then(|key| key.try_into().ok()).ok_or_else(damaged)?;
        let sealed = PublicKey::from(public)
            .seal(&mut crypto_box::aead::OsRng, keys.encode().as_bytes())
            .map_err(|_| damaged())?;
        let mut resealed = Self { sealed: hex(&sealed), keys: keys.ids(), ..self.clone() };
        resealed.mac = keys.mac(&resealed.signed_text()).to_string();
        Ok(resealed)
    }

    /// Returns everything that the checksum covers.
    fn signed_text(&self) -> String {
        [&*self.slot, &self.salt, &self.public, &self.sealed, &self.label, &self.keys.join(",")].join(" ")
    }

    /// Returns the keyring if the phrase is that of this slot.
    pub(crate) fn open(&self, phrase: &Phrase) -> Option<Keyring> {
        let secret = phrase.secret(&unhex(&self.salt)?);
        let text = secret.unseal(&unhex(&self.sealed)?).ok()?;
        Keyring::decode(&text).filter(|keys| self.is_genuine(keys))
    }

    /// Returns true if a holder of the keyring made the slot.
    pub(crate) fn is_genuine(&self, keys: &Keyring) -> bool {
        blake3::Hash::from_hex(&self.mac).is_ok_and(|mac| mac == keys.mac(&self.signed_text()))
    }

    /// Returns true if the keyring has all keys of the slot.
    pub(crate) fn is_known_to(&self, keys: &Keyring) -> bool {
        self.keys.iter().all(|id| keys.has(id))
    }

    /// Returns true if the slot has all keys of the keyring.
    pub(crate) fn has_all(&self, keys: &Keyring) -> bool {
        keys.ids().iter().all(|id| self.keys.contains(id))
    }

    /// Returns the label of the slot.
    pub(crate) fn label(&self, keys: &Keyring) -> Option<String> {
        let text = crate::seal::unseal(Some(keys), "label", "a label", &unhex(&self.label)?).ok()?;
        String::from_utf8(text).ok()
    }
}

/// Returns everything below `key/` that can be read as a slot.
pub(crate) fn all_slots(bucket: &dyn Bucket) -> Result<Vec<Slot>> {
    let mut slots = Vec::new();
    for found in bucket.list("key/")? {
        let bytes = bucket.get(&found.key)?.unwrap_or_default();
        slots.extend(
            serde_json::from_slice::<Slot>(&bytes).ok().filter(|slot| format!("key/{}", slot.slot) == found.key),
        );
    }
    Ok(slots)
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
        assert!(again.is_known_to(&rotated) && !again.is_known_to(&keys));
        assert!(again.has_all(&keys) && !slot.has_all(&rotated));
        let hidden = Slot { keys: slot.keys.clone(), ..again };
        assert!(!hidden.is_genuine(&keys), "the list of keys is covered by the checksum");
    }

    #[test]
    fn merging_keyrings_drops_no_key() {
        let keys = Keyring::generate().expect("random bytes");
        let (one, two) = (keys.rotated().expect("a key"), keys.rotated().expect("a key"));
        let both = one.merged(&two).expect("one repository");
        assert_eq!((both.count(), both.current().id), (3, two.current().id));
        assert!([one, two].iter().flat_map(Keyring::ids).all(|id| both.has(&id)));
        let longer = keys.merged(&both).expect("one repository");
        assert_eq!(longer.encode(), both.encode());
        assert_eq!(both.merged(&keys).expect("one repository").encode(), both.encode());
        assert!(keys.merged(&Keyring::generate().expect("random bytes")).is_none());
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
