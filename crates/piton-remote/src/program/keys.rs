//! The verbs about keys: recovery phrases, and replacing the key.

use serde_json::{Value, json};

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::keys::{Keyring, Phrase};
use crate::local::LocalDir;
use crate::remote::Remote;
use crate::slots::Slot;

/// Lists the slots.
pub(super) fn keys(local: &LocalDir) -> Result<Value> {
    let remote = Remote::open(local)?;
    let Some(keys) = &remote.keys else { return Ok(json!({"encrypted": false, "slots": []})) };
    let slots = remote.slots()?;
    let slots: Vec<_> = slots.iter().map(|slot| json!({"slot": slot.slot, "label": slot.label(keys)})).collect();
    Ok(json!({"encrypted": true, "keys": keys.count(), "slots": slots}))
}

fn keyring(remote: &Remote) -> Result<&Keyring> {
    let none = || RemoteError::new(RemoteErrorKind::Invalid, "change keys: this remote is not encrypted");
    remote.keys.as_ref().ok_or_else(none)
}

/// Returns the keyring of this machine with a key that an interrupted replacement may have written to some slots.
fn keys_in_slots(remote: &Remote) -> Result<Keyring> {
    let keys = keyring(remote)?;
    let next = remote.local.next_keys()?.and_then(|next| keys.merged(&next));
    Ok(next.unwrap_or_else(|| keys.clone()))
}

/// Makes a slot with a new phrase.
pub(super) fn key_add(local: &LocalDir, label: &str) -> Result<Value> {
    let _held = local.lock()?;
    let remote = Remote::open(local)?;
    let keys = keyring(&remote)?;
    remote.check_repository()?;
    remote.slots_to_change(&keys_in_slots(&remote)?, None)?;
    let phrase = Phrase::generate()?;
    let slot = Slot::new(keys, &phrase, label)?;
    remote.put_slot(&slot)?;
    Ok(json!({"slot": slot.slot, "phrase": phrase.words()}))
}

/// Removes a slot, and replaces the key: the holder of the phrase knows the old one.
pub(super) fn key_remove(local: &LocalDir, slot: &str) -> Result<Value> {
    let _held = local.lock()?;
    let remote = Remote::open(local)?;
    let slots = remote.slots_to_change(&keys_in_slots(&remote)?, Some(slot))?;
    let key = format!("key/{slot}");
    if !remote.bucket.list("key/")?.iter().any(|info| info.key == key) {
        return Err(RemoteError::new(RemoteErrorKind::NotFound, format!("find the slot {slot}"))
            .hint("`piton remote key list` lists them"));
    }
    if slots.is_empty() {
        return Err(RemoteError::new(
            RemoteErrorKind::Invalid,
            "remove the last slot: no phrase would open the remote",
        )
        .hint("`piton remote key add` makes another one first"));
    }
    replace_key(&remote, Some(slot))
}

/// Replaces the key for everything that is pushed from now on.
pub(super) fn key_rotate(local: &LocalDir) -> Result<Value> {
    let _held = local.lock()?;
    replace_key(&Remote::open(local)?, None)
}

/// Adds a key to the keyring, and seals the keyring for every slot but one that is removed.
fn replace_key(remote: &Remote, without: Option<&str>) -> Result<Value> {
    let keys = keyring(remote)?;
    remote.check_repository()?;
    let known = keys_in_slots(remote)?;
    let rotated = if known.count() > keys.count() { known } else { keys.rotated()? };
    let slots = remote.slots_to_change(&rotated, without)?;
    if slots.is_empty() {
        return Err(RemoteError::new(RemoteErrorKind::Invalid, "replace the key: no recovery phrase would open it")
            .hint("the key slots are missing or damaged; `piton remote key add` makes one first"));
    }
    // Noted before the first slot is written: one that has a key which no machine knows could not be written again.
    remote.local.write_next_keys(&rotated)?;
    // The slots first: this machine can open them again with its phrase, but not the other way round.
    for slot in &slots {
        remote.put_slot(&slot.resealed(&rotated)?)?;
    }
    if let Some(slot) = without {
        remote.bucket.delete(&format!("key/{slot}"))?;
    }
    if remote.slots()?.iter().any(|slot| !slot.has_all(&rotated) || !slot.is_known_to(&rotated)) {
        let what = "replace the key: another machine did so at the same time";
        return Err(RemoteError::new(RemoteErrorKind::Busy, what)
            .hint("`piton remote add` with the same URL and the recovery phrase reads its key"));
    }
    remote.local.write_keys(&rotated)?;
    Ok(json!({"keys": rotated.count(), "slots": slots.len()}))
}
