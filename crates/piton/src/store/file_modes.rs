//! Permission bits of the files and directories in a checkpoint.

use std::collections::HashMap;

use super::facts::Facts;

/// Permission bits in a checkpoint, by path.
pub(crate) struct FileModes<'a> {
    facts: &'a Facts,
    special: HashMap<&'a [u8], u16>,
}

impl<'a> FileModes<'a> {
    pub(crate) fn new(facts: &'a Facts) -> Self {
        let special = facts.modes.iter().map(|(path, mode)| (path.as_slice(), *mode)).collect();
        Self { facts, special }
    }

    /// Returns the permission bits of a file.
    pub(crate) fn file(&self, path: &[u8], is_executable: bool) -> u16 {
        let usual = self.facts.usual;
        self.of(path, if is_executable { usual.executable } else { usual.file })
    }

    /// Returns the permission bits of a directory.
    pub(crate) fn dir(&self, path: &[u8]) -> u16 {
        self.of(path, self.facts.usual.dir)
    }

    /// Set-user-ID, set-group-ID and sticky bits are left out: they were recorded, not approved.
    fn of(&self, path: &[u8], usual: u16) -> u16 {
        self.special.get(path).copied().unwrap_or(usual) & 0o777
    }
}
