//! The `.keep` files under which packs are published: stock git's garbage collection leaves such packs alone.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fsx;
use crate::sys;

/// Published packs, each with a `.keep` file that is removed when this is dropped.
///
/// The file is a symbolic link to the pack: one system call makes it, a power cut leaves no empty one, and it is
/// distinguishable from a user's `.keep` file. One that a killed process left is removed by the next process that locks
/// the store exclusively, or after an hour.
#[derive(Debug, Default)]
#[must_use = "stock git's collection deletes unreferenced packs once this is dropped"]
pub(crate) struct PublishedPacks {
    /// Paths of the packs without extensions.
    pub(super) names: Vec<PathBuf>,
    keeps: Vec<PathBuf>,
}

impl PublishedPacks {
    pub(super) fn keep(&mut self, name: &Path) -> Result<()> {
        let keep = name.with_added_extension("keep");
        let made = match sys::symlink(&keep_target(name), &keep) {
            // Some file systems have no symbolic links.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                File::create_new(&keep).and_then(|mut file| file.write_all(KEPT_BY_PITON))
            }
            made => made,
        };
        match made {
            Ok(()) => self.keeps.push(keep),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Error::io("make", &keep, error)),
            // Left by a killed process. A user's own file is left alone, and protects the pack as well.
            Err(_) if is_own_keep(&keep) => self.keeps.push(keep),
            Err(_) => {}
        }
        Ok(())
    }

    /// Adds other packs to these.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.names.append(&mut other.names);
        self.keeps.append(&mut other.keeps);
    }
}

impl Drop for PublishedPacks {
    fn drop(&mut self) {
        for keep in &self.keeps {
            // If this fails, a later collection removes it.
            let _ = fs::remove_file(keep);
        }
    }
}

/// Contents of a `.keep` file on file systems without symbolic links.
const KEPT_BY_PITON: &[u8] = b"piton\n";

fn keep_target(name: &Path) -> PathBuf {
    PathBuf::from(name.file_name().unwrap_or_default()).with_added_extension("pack")
}

/// Returns true for a `.keep` file that [`PublishedPacks`] made.
pub(super) fn is_own_keep(keep: &Path) -> bool {
    match fs::read_link(keep) {
        Ok(target) => target == keep_target(&keep.with_extension("")),
        Err(_) => matches!(fsx::read_small(keep, 64), Ok(Some(bytes)) if bytes == KEPT_BY_PITON),
    }
}

/// Returns the `.keep` files in a directory that [`PublishedPacks`] made.
pub(super) fn own_keeps(dir: &Path) -> Result<Vec<PathBuf>> {
    let keeps = fsx::names_in(dir)?.into_iter().map(|name| dir.join(name));
    Ok(keeps.filter(|path| path.extension().is_some_and(|end| end == "keep") && is_own_keep(path)).collect())
}
