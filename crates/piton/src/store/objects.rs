//! Reading the objects of a store, and collecting the new objects of one checkpoint.

use std::collections::HashSet;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};

use gix_hash::Kind;
use gix_object::{Exists as _, Find as _};

use super::keeps::PublishedPacks;
use super::layout::Layout;
use super::object_copies::{Copies, CopyLookup};
use super::pack::{Deflater, Form, LEVEL_FAST, PackDirs, PackWriter, SealedPack};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::id::{Collision, IdHasher, ObjectId, ObjectKind};

/// The objects of a store, as listed when it was locked.
pub(crate) struct Objects {
    layout: Arc<Layout>,
    store: Arc<gix_odb::Store>,
    loose: Option<gix_odb::loose::Store>,
    handle: gix_odb::HandleArc,
}

pub(super) fn gix_id(id: ObjectId) -> gix_hash::ObjectId {
    gix_hash::ObjectId::Sha1(*id.as_bytes())
}

impl Objects {
    pub(super) fn new(layout: Arc<Layout>, store: Arc<gix_odb::Store>, has_loose: bool) -> Self {
        let loose = has_loose.then(|| gix_odb::loose::Store::at(store.path(), Kind::Sha1));
        let mut handle = store.to_cache_arc();
        // A lookup of a missing object must not list the packs again: every new file is such a lookup.
        handle.refresh_never();
        Self { layout, store, loose, handle }
    }

    pub(super) fn handle(&self) -> &gix_odb::HandleArc {
        &self.handle
    }

    /// Returns a handle that lists the packs again if an object is not found.
    pub(super) fn fresh_handle(&self) -> gix_odb::HandleArc {
        self.store.to_cache_arc()
    }

    /// Returns the `objects` directory.
    pub(super) fn dir(&self) -> &std::path::Path {
        self.store.path()
    }

    /// Returns a handle with which other threads can open the same objects.
    pub(crate) fn shared(&self) -> SharedObjects {
        SharedObjects(Arc::clone(&self.layout), Arc::clone(&self.store), self.loose.is_some())
    }

    /// Returns true if an object exists and need not be written again. A packed object was synced before it became
    /// visible. A loose object was not, and may be empty after a power failure, so it is read first.
    pub(crate) fn has(&self, id: ObjectId) -> bool {
        match &self.loose {
            Some(loose) if loose.contains(&gix_id(id)) => self.is_whole_loose(id),
            _ => self.handle.exists(&gix_id(id)),
        }
    }

    /// Returns true if an object with these bytes exists and can be read. A corrupt one does not count, so that it is
    /// written again.
    pub(crate) fn holds(&self, id: ObjectId, bytes: &[u8]) -> bool {
        if !self.handle.exists(&gix_id(id)) {
            return false;
        }
        let mut buffer = Vec::new();
        matches!(self.handle.try_find(&gix_id(id), &mut buffer), Ok(Some(_))) && buffer == bytes
    }

    /// Like [`Self::holds`], for a blob that may be larger than memory.
    fn holds_large(&self, id: ObjectId) -> bool {
        self.handle.exists(&gix_id(id)) && self.stream_blob(id, &mut |_| true).is_ok()
    }

    /// Looks an object up. If it is not found, the packs are listed again: stock git's collection may have moved it to
    /// another pack since. If it is corrupt, every copy is tried: it may have been written again.
    fn find(&self, id: ObjectId, buffer: &mut Vec<u8>) -> std::result::Result<Option<gix_object::Kind>, String> {
        if let Ok(Some(found)) = self.handle.try_find(&gix_id(id), buffer) {
            return Ok(Some(found.kind));
        }
        match self.fresh_handle().try_find(&gix_id(id), buffer) {
            Ok(found) => Ok(found.map(|found| found.kind)),
            Err(error) => self.find_whole_copy(id, buffer).map(Some).ok_or_else(|| error.to_string()),
        }
    }

    fn find_whole_copy(&self, id: ObjectId, buffer: &mut Vec<u8>) -> Option<gix_object::Kind> {
        let copies = Copies::list(&self.layout).ok()?;
        let CopyLookup::Whole((kind, bytes)) = copies.read(&mut copies.decoder(), id) else { return None };
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        Some(gix_kind(kind))
    }

    /// Returns the bytes of an object. Fails with `Damaged` if it is missing, corrupt or of another kind. Trees and
    /// commits, through which everything else is found, are checked against their id; blobs are not, the caller that
    /// hands their contents to a user does so.
    pub(crate) fn read(&self, id: ObjectId, kind: ObjectKind) -> Result<Vec<u8>> {
        let what = || format!("read the object {id}");
        let mut buffer = Vec::new();
        let found =
            self.find(id, &mut buffer).map_err(|error| Error::damaged(what(), error).with_hint(Hint::Repair))?;
        match found {
            Some(found) if found == gix_kind(kind) => {
                if kind != ObjectKind::Blob && IdHasher::of(kind, &buffer) != Ok(id) {
                    return Err(
                        Error::damaged(what(), "it is not what was written under this name").with_hint(Hint::Repair)
                    );
                }
                Ok(buffer)
            }
            Some(found) => Err(Error::damaged(what(), format!("it is a {found}")).with_hint(Hint::Repair)),
            None => Err(Error::damaged(what(), "it is not in the store").with_hint(Hint::Repair)),
        }
    }
}

impl Objects {
    /// Reads an object of any kind into `buffer`. Returns `None` if it is missing, and fails with `Damaged` if it does
    /// not match its id.
    pub(super) fn read_any(&self, id: ObjectId, buffer: &mut Vec<u8>) -> Result<Option<ObjectKind>> {
        let what = || format!("read the object {id}");
        let Some(found) = self.find(id, buffer).map_err(|error| Error::damaged(what(), error))? else {
            return Ok(None);
        };
        let kind = our_kind(found);
        if IdHasher::of(kind, buffer) != Ok(id) {
            return Err(Error::damaged(what(), "it is not what was written under this name"));
        }
        Ok(Some(kind))
    }
}

/// A handle to the objects of a store that any thread can open.
pub(crate) struct SharedObjects(Arc<Layout>, Arc<gix_odb::Store>, bool);

impl SharedObjects {
    pub(crate) fn objects(&self) -> Objects {
        Objects::new(Arc::clone(&self.0), Arc::clone(&self.1), self.2)
    }
}

fn gix_kind(kind: ObjectKind) -> gix_object::Kind {
    match kind {
        ObjectKind::Blob => gix_object::Kind::Blob,
        ObjectKind::Tree => gix_object::Kind::Tree,
        ObjectKind::Commit => gix_object::Kind::Commit,
        ObjectKind::Tag => gix_object::Kind::Tag,
    }
}

fn our_kind(kind: gix_object::Kind) -> ObjectKind {
    match kind {
        gix_object::Kind::Blob => ObjectKind::Blob,
        gix_object::Kind::Tree => ObjectKind::Tree,
        gix_object::Kind::Commit => ObjectKind::Commit,
        gix_object::Kind::Tag => ObjectKind::Tag,
    }
}

/// The new objects of one checkpoint, added by many threads, without those that the store has. They are invisible
/// before [`Self::publish`]; dropping this leaves no files behind.
pub(crate) struct NewObjects {
    is_dry: bool,
    dirs: PackDirs,
    known: SharedObjects,
    gathered: Mutex<Gathered>,
}

struct Gathered {
    seen: HashSet<ObjectId>,
    /// Objects that were found in the store and not written again.
    relied: HashSet<ObjectId>,
    /// Created with the first new object: a checkpoint without new objects writes no pack.
    pack: Option<PackWriter>,
    /// Packs that have reached their size limit, and those of single large blobs.
    full: Vec<SealedPack>,
}

impl NewObjects {
    /// Starts collecting new objects. With `is_dry`, they are hashed and not stored.
    pub(super) fn new(dirs: PackDirs, objects: &Objects, is_dry: bool) -> Self {
        let (seen, relied, pack, full) = (HashSet::new(), HashSet::new(), None, Vec::new());
        let gathered = Mutex::new(Gathered { seen, relied, pack, full });
        Self { is_dry, dirs, known: objects.shared(), gathered }
    }

    /// Returns a writer that adds objects from one thread.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { to: self, known: self.known.objects(), deflater: Deflater::new(LEVEL_FAST), deflated: Vec::new() }
    }

    /// Records that an object was found in the store and is not written again.
    pub(crate) fn rely_on(&self, id: ObjectId) {
        self.lock().relied.insert(id);
    }

    /// Returns true if every added object was already in the store.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().seen.is_empty() && self.lock().full.is_empty()
    }

    /// Discards the added objects, and returns those that were found in the store instead.
    pub(crate) fn into_relied(self) -> HashSet<ObjectId> {
        self.gathered.into_inner().expect("no thread panicked while it held the pack").relied
    }

    /// Returns the number of bytes that the added objects will take on disk.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        let gathered = self.lock();
        let open = gathered.pack.as_ref().map(PackWriter::bytes_with_idx);
        open.into_iter().chain(gathered.full.iter().map(SealedPack::bytes_with_idx)).sum()
    }

    /// Returns the number of those bytes that are already written to temporary files.
    pub(crate) fn bytes_written(&self) -> u64 {
        let gathered = self.lock();
        let open = gathered.pack.as_ref().map(PackWriter::bytes_written);
        let sealed = gathered.full.iter().map(SealedPack::bytes_with_idx);
        open.into_iter().chain(sealed).sum()
    }

    /// Makes the added objects visible and durable. The pack directory is synced even without new objects, for the sake
    /// of objects that were found: a killed process may have published them without that sync.
    ///
    /// The packs are protected from stock git's collection as long as the result is held. Drop it once a ref points to
    /// their objects.
    pub(crate) fn publish(self) -> Result<Published> {
        let gathered = self.gathered.into_inner().expect("no thread panicked while it held the pack");
        let mut sealed = gathered.full;
        sealed.extend(gathered.pack.map(PackWriter::seal).transpose()?);
        let packs = SealedPack::publish(sealed, &self.dirs.packs)?;
        Ok(Published { relied: gathered.relied, packs })
    }

    /// Seals a pack that has reached its size limit. Sealing takes a while, during which the other threads continue.
    fn seal_if_full(&self) -> Result<()> {
        let full = self.lock().pack.take_if(|pack| pack.is_full());
        if let Some(full) = full {
            let sealed = full.seal()?;
            self.lock().full.push(sealed);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().expect("no thread panicked while it held the pack")
    }
}

/// Published objects, and objects that were found in the store instead of being written.
#[must_use = "the packs are not protected from stock git's collection once this is dropped"]
pub(crate) struct Published {
    pub(super) relied: HashSet<ObjectId>,
    pub(super) packs: PublishedPacks,
}

impl Gathered {
    fn pack(&mut self, dirs: &PackDirs) -> Result<&mut PackWriter> {
        if self.pack.is_none() {
            self.pack = Some(PackWriter::begin(dirs)?);
        }
        Ok(self.pack.as_mut().expect("made above"))
    }
}

/// Adds objects to [`NewObjects`] from one thread.
pub(crate) struct Writer<'a> {
    to: &'a NewObjects,
    known: Objects,
    deflater: Deflater,
    deflated: Vec<u8>,
}

impl Writer<'_> {
    /// Adds an object that is in memory, unless the store has it. Returns its id either way.
    pub(crate) fn add(&mut self, kind: ObjectKind, bytes: &[u8]) -> Result<std::result::Result<ObjectId, Collision>> {
        let Ok(id) = IdHasher::of(kind, bytes) else {
            return Ok(Err(Collision));
        };
        if self.to.is_dry || self.relies_on(id, Some(bytes)) || !self.to.lock().seen.insert(id) {
            return Ok(Ok(id));
        }
        let deflated = self.deflater.deflate(bytes, &mut self.deflated);
        deflated.map_err(|error| Error::io("compress for", &self.to.dirs.packs, error))?;
        let mut gathered = self.to.lock();
        gathered.pack(&self.to.dirs)?.add(id, Form::Whole(kind), bytes.len() as u64, &self.deflated)?;
        drop(gathered);
        self.to.seal_if_full()?;
        Ok(Ok(id))
    }

    /// Returns true if the object is in the store or among the new ones.
    pub(crate) fn has(&self, id: ObjectId) -> bool {
        self.to.is_dry || self.relies_on(id, None) || self.to.lock().seen.contains(&id)
    }

    /// Returns true if the object is in the store, and records that it was not written again: it may be unreachable
    /// until the ref moves.
    fn relies_on(&self, id: ObjectId, bytes: Option<&[u8]>) -> bool {
        let is_there = match bytes {
            Some(bytes) => self.known.holds(id, bytes),
            None => self.known.has(id),
        };
        if is_there {
            self.to.rely_on(id);
        }
        is_there
    }

    /// Adds a file that is too large for memory while it is read. Returns `None`, and adds nothing, if `read` does not
    /// give exactly `size` bytes or if `is_unmoved` returns false after the last of them.
    ///
    /// The file gets its own pack, so that no other thread waits for it.
    pub(crate) fn add_stream(
        &mut self,
        size: u64,
        read: &mut dyn Read,
        is_unmoved: &dyn Fn() -> bool,
    ) -> Result<Option<std::result::Result<ObjectId, Collision>>> {
        if self.to.is_dry {
            let hashed = super::pack::hash_stream(size, read);
            return Ok(hashed.filter(|_| is_unmoved()));
        }
        let mut pack = PackWriter::begin_single(&self.to.dirs)?;
        let id = match pack.add_stream(size, read)? {
            Some(Ok(id)) if is_unmoved() => id,
            Some(Err(Collision)) => return Ok(Some(Err(Collision))),
            _ => return Ok(None),
        };
        if self.known.holds_large(id) {
            self.to.rely_on(id);
        } else if self.to.lock().seen.insert(id) {
            let sealed = pack.seal()?;
            self.to.lock().full.push(sealed);
        }
        Ok(Some(Ok(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::store;

    #[test]
    fn an_object_is_read_by_its_kind_and_stored_once() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let held = store.locks.share().expect("a lock");
        let (text, kind) = (&b"a file that is read piece by piece"[..], ObjectKind::Blob);
        let id = IdHasher::of(kind, text).expect("no collision");
        for _ in 0..2 {
            let new = store.objects.new_objects(&store.objects.open(&held).expect("objects"), false);
            let mut writer = new.writer();
            let moved = writer.add_stream(3, &mut &b"now"[..], &|| false).expect("room");
            assert_eq!(moved, None);
            for _ in 0..2 {
                let added = writer.add_stream(text.len() as u64, &mut &text[..], &|| true).expect("room");
                assert_eq!(added, Some(Ok(id)));
                assert!(writer.has(id));
            }
            assert!(!writer.has(ObjectId::from_bytes([7; 20])));
            drop(new.publish().expect("a pack"));
        }
        let packs = store.objects.packs().expect("packs");
        assert_eq!(packs.iter().map(super::super::packs::Pack::len).collect::<Vec<_>>(), [1]);
        let objects = store.objects.open(&held).expect("objects");
        assert_eq!(objects.read(id, kind).expect("a file"), text);
        for other in [ObjectKind::Tree, ObjectKind::Commit, ObjectKind::Tag] {
            assert!(objects.read(id, other).is_err(), "{other:?}");
        }
        let new = store.objects.new_objects(&objects, false);
        let tree = new.writer().add(ObjectKind::Tree, b"").expect("room").expect("no collision");
        drop(new.publish().expect("a pack"));
        let objects = store.objects.open(&held).expect("objects");
        assert!(objects.read(tree, ObjectKind::Tree).is_ok() && objects.read(tree, kind).is_err());
    }
}
