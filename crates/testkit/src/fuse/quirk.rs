//! What a poorer file system does differently, and what it does to names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use unicode_normalization::UnicodeNormalization as _;

/// One way in which a file system differs from those of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// Names that differ only in case are one name; the first spelling is kept, as on APFS.
    FoldsCase,
    /// Names that differ only in their Unicode form are one name; the first form is kept, as on APFS.
    FoldsForms,
    /// Names are stored and listed in their decomposed form, as on HFS+.
    StoresDecomposed,
    /// Colons and bytes that are not UTF-8 become `_`, and a dot or a space at the end is cut off.
    LossyNames,
    /// Names that are not UTF-8 are refused, as on APFS.
    Utf8Only,
    /// Locks fail, as on a network share without a lock server.
    NoLocks,
    /// Every lock is granted, also if another process holds it.
    IdleLocks,
    /// Nothing can be renamed.
    NoRename,
    /// Two names cannot be exchanged, and a rename always replaces.
    NoExchange,
    /// Permission bits cannot be set.
    NoModes,
    /// There are no symbolic links.
    NoLinks,
    /// A sync fails.
    NoSync,
    /// Times have steps of two seconds, as on FAT.
    CoarseTimes,
    /// Bytes that are written as CR LF are read as LF.
    TextMode,
}

/// The quirks of one file system.
#[derive(Debug, Clone)]
pub(super) struct Quirks(pub(super) Vec<Quirk>);

impl Quirks {
    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.0.contains(&quirk)
    }

    /// Returns the name under which a file is stored and listed, or `None` if it is refused.
    pub(super) fn stored(&self, name: &OsStr) -> Option<OsString> {
        let Some(text) = name.to_str() else {
            let kept = !self.has(Quirk::Utf8Only);
            let lossy = self.has(Quirk::LossyNames).then(|| name.to_string_lossy().replace('\u{fffd}', "_").into());
            return kept.then(|| lossy.unwrap_or_else(|| name.to_owned()));
        };
        let mut text = text.to_owned();
        if self.has(Quirk::StoresDecomposed) {
            text = text.nfd().collect();
        }
        if self.has(Quirk::LossyNames) {
            text = text.replace(':', "_").trim_end_matches(['.', ' ']).to_owned();
        }
        Some(text.into())
    }

    /// Returns the key by which a name is found: equal for names that are one.
    pub(super) fn key(&self, name: &OsStr) -> Vec<u8> {
        let stored = self.stored(name).unwrap_or_else(|| name.to_owned());
        let Some(text) = stored.to_str() else { return stored.as_bytes().to_vec() };
        let mut text = text.to_owned();
        if self.has(Quirk::FoldsForms) {
            text = text.nfd().collect();
        }
        if self.has(Quirk::FoldsCase) {
            text = text.to_lowercase();
        }
        text.into_bytes()
    }
}
