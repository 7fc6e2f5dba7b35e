//! Repair of packs: intact objects of a corrupt pack are saved, and an idx is rebuilt.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use super::super::decode::{Decoder, IdxFault, InMemory, RawPack, WholeEntry, Why};
use super::super::object_copies::{Copies, CopyLookup, ObjectPlace};
use super::super::object_db::PACK_FILES;
use super::super::pack::{Deflater, Form, HEADER_BYTES, LEVEL_SMALL, PackDirs, PackWriter, SealedPack, write_idx_of};
use super::super::{commit, tree};
use super::{Diagnosis, RepairRun};
use crate::error::{Error, Result};
use crate::id::{ObjectId, ObjectKind};

/// A corrupt pack that was moved to `repairs/`, and the offsets of the entries that could not be read.
pub(crate) struct DamagedPack {
    pack: usize,
    unread: HashSet<u64>,
}

impl DamagedPack {
    /// Returns the ids of unreadable commits that the idx names.
    pub(super) fn unread_commits(&self, copies: &Copies) -> Vec<ObjectId> {
        let pack = &copies.packs[self.pack];
        let mut decoder = copies.decoder();
        let is_commit = |start: &&u64| decoder.kind(pack, **start) == Some(ObjectKind::Commit);
        self.unread.iter().filter(is_commit).filter_map(|start| pack.id_at(*start)).collect()
    }
}

/// Result of searching a pack.
struct PackSearch {
    unread: HashSet<u64>,
    /// True if the pack was read from beginning to end, and every object in it is intact and occurs once.
    is_complete: bool,
}

/// Reads the entries of a pack one after the other, and those that its idx names, and records the id at each offset.
fn search(copies: &mut Copies, at: usize) -> PackSearch {
    let pack = &copies.packs[at];
    let mut named: BTreeMap<u64, ObjectId> = pack.in_order().map(|(id, start)| (start, id)).collect();
    let mut unread: BTreeSet<u64> = named.keys().copied().collect();
    let (mut next, mut walked) = (HEADER_BYTES as u64, 0);
    let mut decoder = copies.decoder();
    while next < pack.end() {
        unread.insert(next);
        let Ok(end) = decoder.end_of(pack, next) else { break };
        (next, walked) = (end, walked + 1);
    }
    drop(decoder);
    let is_walked = next == pack.end() && walked == unread.len() && pack.count() == u32::try_from(walked).ok();
    // A delta that names its base by id becomes readable once the base has been read.
    loop {
        let pack = &copies.packs[at];
        let spare = FallbackSource::of(copies);
        let mut decoder = copies.decoder();
        let read = unread.iter().filter_map(|start| {
            let id = decoder.identify(pack, *start, &|id| spare.find(id)).ok()?;
            Some((*start, id))
        });
        let read: Vec<_> = read.collect();
        drop((spare, decoder));
        for (start, id) in &read {
            unread.remove(start);
            named.insert(*start, *id);
            copies.acquit(&ObjectPlace::Packed(at, *start));
        }
        copies.packs[at].learn(&named);
        if read.is_empty() {
            break;
        }
    }
    // A pack that holds an object twice is rewritten: stock git rejects the idx of such a pack.
    let is_single = named.values().collect::<HashSet<_>>().len() == named.len();
    PackSearch { is_complete: is_walked && is_single && unread.is_empty(), unread: unread.into_iter().collect() }
}

/// Fallback for objects: any intact copy.
struct FallbackSource<'a> {
    copies: &'a Copies,
    decoder: RefCell<Decoder<'a>>,
}

impl<'a> FallbackSource<'a> {
    fn of(copies: &'a Copies) -> Self {
        Self { copies, decoder: RefCell::new(copies.decoder()) }
    }

    fn find(&self, id: ObjectId) -> Option<InMemory> {
        match self.copies.read(&mut self.decoder.borrow_mut(), id) {
            CopyLookup::Whole(object) => Some(object),
            CopyLookup::Missing | CopyLookup::Damaged(_) => None,
        }
    }
}

fn is_valid_object(kind: ObjectKind, bytes: &[u8]) -> bool {
    match kind {
        ObjectKind::Blob => true,
        ObjectKind::Tree => tree::is_valid_tree(bytes),
        ObjectKind::Commit => commit::is_valid_commit(bytes),
        ObjectKind::Tag => bytes.starts_with(b"object "),
    }
}

/// New packs for the objects that are saved.
struct RescuePacks {
    dirs: PackDirs,
    is_dry: bool,
    seen: HashSet<ObjectId>,
    writer: Option<PackWriter>,
    full: Vec<SealedPack>,
    deflater: Deflater,
}

impl RescuePacks {
    fn new(mending: &RepairRun<'_>) -> Self {
        let deflater = Deflater::new(LEVEL_SMALL);
        let dirs = mending.store.layout.pack_dirs();
        Self { dirs, is_dry: mending.is_dry, seen: HashSet::new(), writer: None, full: Vec::new(), deflater }
    }

    /// Saves the object at this offset. Returns false if it was saved before or is not a valid object.
    fn save(
        &mut self,
        decoder: &mut Decoder<'_>,
        pack: &RawPack,
        id: ObjectId,
        start: u64,
        spare: &FallbackSource<'_>,
    ) -> Result<bool> {
        if !self.seen.insert(id) {
            return Ok(false);
        }
        if self.is_dry {
            return Ok(true);
        }
        let damaged = |why: Why| Error::damaged(format!("read the object {id}"), why.into_owned());
        let file = decoder.whole_entry(pack, start).map_err(damaged)?.filter(|entry| entry.kind == ObjectKind::Blob);
        let mut writer = self.writer.take().map_or_else(|| PackWriter::begin(&self.dirs), Ok)?;
        if let Some(WholeEntry { kind, size, data }) = file {
            // Copied compressed, piece by piece: it may be larger than memory.
            let end = decoder.end_of(pack, start).map_err(damaged)?;
            writer.add_copied(id, kind, size, end - data, |into, at| pack.read_at(into, data + at))?;
        } else {
            let (kind, bytes) = decoder.object(pack, start, &|id| spare.find(id)).map_err(damaged)?;
            // One flipped bit can make a blob look like a commit. Nothing refers to such an object, and stock git
            // complains about it.
            if !is_valid_object(kind, &bytes) {
                self.writer = Some(writer);
                return Ok(false);
            }
            let mut deflated = Vec::new();
            let done = self.deflater.deflate(&bytes, &mut deflated);
            done.map_err(|error| Error::io("compress for", &self.dirs.packs, error))?;
            writer.add(id, Form::Whole(kind), bytes.len() as u64, &deflated)?;
        }
        if writer.is_full() {
            self.full.push(writer.seal()?);
        } else {
            self.writer = Some(writer);
        }
        Ok(true)
    }

    fn seal(mut self) -> Result<Vec<SealedPack>> {
        self.full.extend(self.writer.take().map(PackWriter::seal).transpose()?);
        Ok(self.full)
    }
}

impl RepairRun<'_> {
    /// Rebuilds idx files, saves the intact objects of corrupt packs, and moves those packs to `repairs/`.
    pub(crate) fn repair_packs(&mut self, diagnosis: &mut Diagnosis) -> Result<Vec<DamagedPack>> {
        diagnosis.copies.refuse_unread()?;
        let mut wrecks = Vec::new();
        for at in 0..diagnosis.copies.packs.len() {
            let pack = &diagnosis.copies.packs[at];
            let is_bad = |place: &ObjectPlace| matches!(place, ObjectPlace::Packed(pack, _) if *pack == at);
            let is_damaged = pack.fault.is_some()
                || diagnosis.checked.bad_packs.contains_key(&at)
                || diagnosis.checked.bad.iter().any(|bad| is_bad(&bad.place));
            if !is_damaged && pack.idx_fault.is_none() {
                continue;
            }
            if !pack.is_there() {
                let name = pack.name.clone();
                self.say("pack_missing", self.shown(&name), "there is an idx and no pack");
                self.put_pack_aside(&name)?;
                continue;
            }
            let searched = search(&mut diagnosis.copies, at);
            if searched.is_complete && !diagnosis.checked.bad_packs.contains_key(&at) {
                self.rebuild_idx(&diagnosis.copies, at)?;
                continue;
            }
            wrecks.push(DamagedPack { pack: at, unread: searched.unread });
        }
        let new = self.save_from(&diagnosis.copies, &wrecks)?;
        diagnosis.copies.refuse_unread()?;
        for wreck in &wrecks {
            let name = &diagnosis.copies.packs[wreck.pack].name;
            if !new.contains(name) {
                self.put_pack_aside(name)?;
            }
        }
        self.put_loose_aside(diagnosis)?;
        Ok(wrecks)
    }

    fn put_pack_aside(&mut self, name: &std::path::Path) -> Result<()> {
        // The idx first: without it readers ignore the rest.
        for ending in PACK_FILES {
            self.put_aside(&name.with_added_extension(ending))?;
        }
        // Files that stock git derived from all packs or commits name objects that may be gone.
        for path in self.store.objects.derived_files()? {
            let is_over_all = path.extension().is_none_or(|end| end == "graph" || end == "midx");
            if is_over_all {
                self.put_derived_aside(&path)?;
            }
        }
        Ok(())
    }

    fn put_loose_aside(&mut self, diagnosis: &Diagnosis) -> Result<()> {
        for bad in &diagnosis.checked.bad {
            if let ObjectPlace::Loose(path) = &bad.place {
                self.say("put_aside", self.shown(path), bad.why.clone());
                self.put_aside(path)?;
            }
        }
        Ok(())
    }

    fn rebuild_idx(&mut self, copies: &Copies, at: usize) -> Result<()> {
        let pack = &copies.packs[at];
        let path = pack.name.with_added_extension("idx");
        let why = match &pack.idx_fault {
            Some(IdxFault::Wrong(why)) => why.clone(),
            Some(IdxFault::Missing) => "it was not there".into(),
            None => "it does not fit its pack".into(),
        };
        self.say("rebuilt_idx", self.shown(&path), why);
        self.put_aside(&path)?;
        if self.is_dry {
            return Ok(());
        }
        let damaged = |why: Why| Error::damaged(format!("read {}", pack.name.display()), why.into_owned());
        let starts: Vec<_> = pack.in_order().collect();
        let mut entries = Vec::with_capacity(starts.len());
        for (place, (id, start)) in starts.iter().enumerate() {
            let end = starts.get(place + 1).map_or(pack.end(), |next| next.1);
            entries.push((*id, pack.crc_of(*start..end).map_err(damaged)?, *start));
        }
        let trailer = pack.trailer().ok_or_else(|| damaged("it ends too early".into()))?;
        write_idx_of(&self.store.layout.pack_dirs(), &pack.name, entries.into_iter(), trailer)
    }

    /// Writes all readable objects of these packs that have no intact copy elsewhere into new packs. Returns the names
    /// of those.
    fn save_from(&mut self, copies: &Copies, wrecks: &[DamagedPack]) -> Result<Vec<PathBuf>> {
        let mut saving = RescuePacks::new(self);
        for wreck in wrecks {
            let pack = &copies.packs[wreck.pack];
            let is_elsewhere = |id: &ObjectId| {
                let mut others = copies.places(*id).filter(|place| !copies.is_bad(place));
                others.any(
                    |place| !matches!(place, ObjectPlace::Packed(at, _) if wrecks.iter().any(|one| one.pack == at)),
                )
            };
            let mut saved = 0;
            let (spare, mut decoder) = (FallbackSource::of(copies), copies.decoder());
            for (id, start) in pack.in_order().filter(|(_, start)| !wreck.unread.contains(start)) {
                saved += u64::from(!is_elsewhere(&id) && saving.save(&mut decoder, pack, id, start, &spare)?);
            }
            let detail = format!("{saved} objects saved, {} not readable", wreck.unread.len());
            self.say("saved_objects", self.shown(&pack.name.with_added_extension("pack")), detail);
        }
        let sealed = saving.seal()?;
        // A pack of the same objects in the same order has the same name, and replaces the corrupt one.
        for name in sealed.iter().map(SealedPack::name) {
            self.copy_aside(&name.with_added_extension("pack"))?;
            self.copy_aside(&name.with_added_extension("idx"))?;
        }
        let published = SealedPack::publish(sealed, &self.store.layout.packs())?;
        let names = published.names.clone();
        self.published.push(published);
        Ok(names)
    }

    /// Saves objects that were unreadable because their base was corrupt, if the base has been recovered in the
    /// meantime.
    pub(crate) fn try_again(&mut self, diagnosis: &Diagnosis, wrecks: &[DamagedPack]) -> Result<()> {
        if self.is_dry || wrecks.iter().all(|wreck| wreck.unread.is_empty()) {
            return Ok(());
        }
        let now = self.store.objects.copies()?;
        let spare = FallbackSource::of(&now);
        let mut saving = RescuePacks::new(self);
        let mut saved = 0;
        for wreck in wrecks {
            let pack = &diagnosis.copies.packs[wreck.pack];
            let mut decoder = diagnosis.copies.decoder();
            for start in &wreck.unread {
                let Ok(id) = decoder.identify(pack, *start, &|id| spare.find(id)) else { continue };
                let is_new = !now.has(id) && saving.save(&mut decoder, pack, id, *start, &spare)?;
                saved += u64::from(is_new);
            }
        }
        if saved > 0 {
            let detail = format!("{saved} more objects, made from what came back");
            self.say("saved_objects", self.shown(&self.store.layout.packs()), detail);
        }
        self.published.push(SealedPack::publish(saving.seal()?, &self.store.layout.packs())?);
        Ok(())
    }
}
