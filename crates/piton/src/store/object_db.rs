//! The objects of a store, packed and loose: opening, listing and adding them, and removing files that readers do not
//! need. Together with `refs` and `boundary`, this is all that another kind of storage would have to replace.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix_hash::Kind;

use super::beside;
use super::keeps;
use super::layout::Layout;
use super::lock::StoreLock;
use super::loose;
use super::object_copies::Copies;
use super::objects::{NewObjects, Objects, Published};
use super::packs::{self, Pack};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::{CheckpointId, ObjectId};
use crate::time::Moment;

/// Size limit of an object that is read into memory. A pack that claims more is corrupt or hostile.
const OBJECT_BYTES_MAX: usize = 4 << 30;
/// Extensions of all files that belong to a pack. The idx is removed first: without it, readers ignore the others.
pub(super) const PACK_FILES: [&str; 7] = ["idx", "bitmap", "rev", "mtimes", "promisor", "keep", "pack"];

/// The object database of a store.
#[derive(Debug, Clone)]
pub(crate) struct ObjectDb {
    pub(super) layout: Arc<Layout>,
}

impl ObjectDb {
    /// Returns the objects that exist at this moment. An object that is found stays as long as the lock is held.
    pub(crate) fn open(&self, _held: &StoreLock) -> Result<Objects> {
        self.refuse_alternates()?;
        let options = gix_odb::store::init::Options {
            slots: gix_odb::store::init::Slots::AsNeededByDiskState { multiplier: 1.1, minimum: 64 },
            alloc_limit_bytes: Some(OBJECT_BYTES_MAX),
            current_dir: Some(self.layout.store().to_owned()),
            ..Default::default()
        };
        let store = gix_odb::Store::at_opts(self.layout.objects(), Kind::Sha1, &mut std::iter::empty(), options)
            .map_err(|error| Error::io("open", self.layout.objects(), error))?;
        let has_loose = fsx::names_in(&self.layout.objects())?.iter().any(|name| name.len() == 2);
        Ok(Objects::new(Arc::clone(&self.layout), Arc::new(store), has_loose))
    }

    /// Fails with `NotOurs` if the store uses the objects of another repository through `alternates`: checkpoints would
    /// be lost together with that repository.
    fn refuse_alternates(&self) -> Result<()> {
        let path = self.layout.alternates();
        match fsx::metadata_opt(&path)? {
            Some(found) if found.len() > 0 => Err(Error::new(ErrorKind::NotOurs, "use the store")
                .because(format!("it uses the objects of another repository ({})", path.display()))
                .with_hint(Hint::RemoveAlternates)),
            _ => Ok(()),
        }
    }

    /// Starts collecting new objects. With `is_dry`, they are hashed and not stored.
    pub(crate) fn new_objects(&self, objects: &Objects, is_dry: bool) -> NewObjects {
        NewObjects::new(self.layout.pack_dirs(), objects, is_dry)
    }

    /// Returns true if a checkpoint can be read at this moment, false if it is missing or corrupt.
    pub(crate) fn is_readable(&self, id: CheckpointId) -> Result<bool> {
        match self.open(&StoreLock::none())?.checkpoint(id) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists every pack and loose object, including packs without an idx and idxs without a pack.
    pub(super) fn copies(&self) -> Result<Copies> {
        Copies::list(&self.layout)
    }

    /// Returns the paths of the packs that readers see, without their extension.
    pub(super) fn pack_names(&self) -> Result<Vec<PathBuf>> {
        packs::names(&self.layout.packs())
    }

    /// Returns all packs, the newest first.
    pub(super) fn packs(&self) -> Result<Vec<Pack>> {
        packs::open_all(&self.layout.packs())
    }

    /// Returns the `.keep` files that piton made, under which packs are published.
    pub(super) fn own_keeps(&self) -> Result<Vec<PathBuf>> {
        keeps::own_keeps(&self.layout.packs())
    }

    /// Returns the ids of all loose objects, sorted.
    pub(super) fn loose_ids(&self) -> Result<Vec<ObjectId>> {
        loose::ids(&self.layout.objects())
    }

    /// Returns the ids of all objects, packed and loose; an object with several copies is listed several times. Skips
    /// packs whose idx cannot be read.
    pub(super) fn ids(&self) -> Result<Vec<ObjectId>> {
        let mut ids = packs::ids(&self.layout.packs())?;
        ids.extend(self.loose_ids()?);
        Ok(ids)
    }

    /// Removes a pack. Readers that have it open can still use it; later readers see the other packs.
    pub(super) fn unlink_pack(&self, name: &Path) -> Result<()> {
        PACK_FILES.iter().try_for_each(|ending| fsx::remove_file(&name.with_added_extension(ending)))
    }

    /// Removes stock git's multi-pack-index and commit-graph, which would name objects that are about to be removed.
    pub(super) fn remove_overviews(&self) -> Result<()> {
        fsx::remove_beginning_with("multi-pack-index", &self.layout.packs())?;
        remove_commit_graph(&self.layout)
    }

    /// Returns the files that stock git derives from the objects and can rebuild.
    pub(super) fn derived_files(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let packs = self.layout.packs();
        let graphs = self.layout.objects().join("info");
        for dir in [packs.clone(), packs.join("multi-pack-index.d"), graphs.clone(), graphs.join("commit-graphs")] {
            for name in fsx::names_in(&dir)? {
                let path = dir.join(&name);
                let bytes = name.as_encoded_bytes();
                let is_derived =
                    [".rev", ".bitmap", ".mtimes", ".midx", ".graph"].iter().any(|end| bytes.ends_with(end.as_bytes()))
                        || name == "multi-pack-index"
                        || name == "commit-graph";
                if is_derived && path.is_file() {
                    found.push(path);
                }
            }
        }
        Ok(found)
    }

    /// Protects objects that were found and not written again from a collection by stock git that began before the ref
    /// moved. Returns false if one of them is missing.
    pub(crate) fn secure(&self, published: &Published, now: Moment) -> Result<bool> {
        self.secure_all(&published.relied, now)
    }

    /// Like [`Self::secure`], for any objects.
    pub(crate) fn secure_all(&self, ids: &HashSet<ObjectId>, now: Moment) -> Result<bool> {
        if ids.is_empty() {
            return Ok(true);
        }
        // Checked first: a collection that ends later may still delete objects found below; one that begins later walks
        // the ref.
        let git_collects = beside::git_collects(&self.layout, now);
        let objects = self.open(&StoreLock::none())?;
        if !git_collects {
            return Ok(ids.iter().all(|id| objects.has(*id)));
        }
        // The ref already points there, so these packs need no `.keep` file.
        Ok(beside::write_again(&self.layout.pack_dirs(), &objects, ids)?.is_some())
    }
}

/// Removes stock git's commit-graph, before a history is cut or commits are removed. Git can create it again.
pub(super) fn remove_commit_graph(layout: &Layout) -> Result<()> {
    fsx::remove_beginning_with("commit-graph", &layout.object_info())
}
