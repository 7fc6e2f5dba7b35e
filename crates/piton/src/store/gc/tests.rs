//! Unit tests of the garbage collection: the objects that are kept and the space that is freed.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::{CheckpointKind, Outcome, Progress, Project, Request, Settings};

const NOW: Moment = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };

fn store_and_project(temp: &tempfile::TempDir) -> (Store, Project) {
    let dir = temp.path().join("project");
    std::fs::create_dir(&dir).expect("a directory");
    let store = Store::open_or_create(&temp.path().join("base"), NOW).expect("a store");
    (store, Project::at(&dir, None).expect("a project"))
}

fn take(store: &Store, project: &Project, contents: &str) -> ObjectId {
    std::fs::write(project.dir().join("file"), contents).expect("a file");
    let request = Request { kind: CheckpointKind::Manual, ..Request::default() };
    let settings = Settings { max_snapshots: 2.into(), ..Settings::default() };
    let report = crate::take(store, project, &request, &settings, NOW, &Progress::default()).expect("a take");
    let Outcome::Taken(id) = report.outcome else { panic!("not taken: {report:?}") };
    id
}

/// Returns a collection that starts from an earlier `reach`.
fn collection<'a>(store: &'a Store, held: &'a GcLock, reach: Reachability, progress: &'a Progress) -> Collection<'a> {
    Collection { is_urgent: true, even_young: true, ..Collection::new(store, held, reach, NOW, progress) }
}

#[test]
fn a_collection_ends_when_cancelled_or_an_urgent_process_waits() {
    let temp = tempfile::tempdir().expect("a directory");
    let (store, project) = store_and_project(&temp);
    for contents in ["one", "two", "three"] {
        take(&store, &project, contents);
    }
    let before = store.objects.pack_names().expect("packs");
    let held = store.locks.lock_gc().expect("a lock");
    let (progress, stopped) = (Progress::default(), Progress::default());
    stopped.cancel();
    assert!(collect_garbage(&store, &held, GcGoal::All, None, NOW, &stopped).expect("a collection").left_some);
    let urgent = store.locks.lock_file("urgent").expect("a file");
    urgent.lock().expect("a lock");
    assert!(collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection").left_some);
    let made = crate::store::make_room(&store, &held, 0, 1, NOW, &stopped).expect("an answer");
    assert_eq!(made, crate::store::MakeRoomOutcome::Stopped { dropped: 0 });
    assert_eq!(store.objects.pack_names().expect("packs"), before);
    let reach = reach_all(&store, &store.objects.open(&StoreLock::none()).expect("objects")).expect("marks");
    let done = collection(&store, &held, reach, &progress).run(GcGoal::All).expect("a collection");
    assert!(!done.left_some, "this one is in a hurry itself");
    assert_eq!(store.objects.pack_names().expect("packs").len(), 1);
}

#[test]
fn maintenance_recompresses_fast_packs_unless_kept() {
    let temp = tempfile::tempdir().expect("a directory");
    let (store, project) = store_and_project(&temp);
    take(&store, &project, &"a line of text\n".repeat(100));
    let (held, progress) = (store.locks.lock_gc().expect("a lock"), Progress::default());
    let is_hasty = || {
        let packs = store.objects.packs().expect("packs");
        let all: Vec<_> = (0..packs[0].len()).map(|at| packs[0].stored(at).expect("an entry").is_hasty()).collect();
        (packs.len(), all.iter().all(|hasty| *hasty), all.iter().any(|hasty| *hasty))
    };
    let keep = store.objects.pack_names().expect("packs")[0].with_added_extension("keep");
    std::fs::write(&keep, "").expect("a file");
    collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection");
    assert_eq!(is_hasty(), (1, true, true));
    std::fs::remove_file(&keep).expect("a file");
    collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection");
    assert_eq!(is_hasty(), (1, false, false));
}

/// Writes a loose object, as stock git does, with an mtime `secs` seconds ago.
fn put_loose(store: &Store, contents: &str, secs: u64) -> (ObjectId, PathBuf) {
    use std::io::Write as _;
    let id = crate::id::IdHasher::of(crate::id::ObjectKind::Blob, contents.as_bytes()).expect("an id");
    let path = store.layout.objects().join(&id.to_string()[..2]).join(&id.to_string()[2..]);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    let file = std::fs::File::create(&path).expect("a file");
    let mut out = flate2::write::ZlibEncoder::new(&file, flate2::Compression::fast());
    write!(out, "blob {}\0{contents}", contents.len()).and_then(|()| out.finish().map(drop)).expect("written");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 - secs)).expect("a time");
    (id, path)
}

#[test]
fn loose_objects_of_git_are_packed_or_removed_after_an_hour() {
    let temp = tempfile::tempdir().expect("a directory");
    let (store, project) = store_and_project(&temp);
    take(&store, &project, "in a pack");
    let (_, twice) = put_loose(&store, "in a pack", 0);
    let (named, path) = put_loose(&store, "named", 0);
    std::fs::write(store.git_dir().join("refs/heads/named"), format!("{named}\n")).expect("a ref");
    let (_, young) = put_loose(&store, "young", 60 * 60);
    let (_, old) = put_loose(&store, "old", 60 * 60 + 1);
    let (held, progress) = (store.locks.lock_gc().expect("a lock"), Progress::default());
    let left = || [&twice, &path, &young, &old].map(|path| path.exists());
    // These name objects that are removed, and stock git creates them again.
    let overviews = [store.layout.packs().join("multi-pack-index"), store.layout.object_info().join("commit-graph")];
    overviews.iter().for_each(|path| std::fs::write(path, "").expect("a file"));
    collect_garbage(&store, &held, GcGoal::Due, None, NOW, &progress).expect("a collection");
    assert_eq!(left(), [false, true, true, false], "nothing is packed unless all is to be made small");
    assert!(!overviews.iter().any(|path| path.exists()));
    collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection");
    assert_eq!(left(), [false, false, true, false]);
    assert!(store.objects.open(&StoreLock::none()).expect("objects").has(named));
    collect_every(&store, &held, NOW, &progress).expect("a collection");
    assert_eq!(left(), [false; 4], "every byte goes that nothing refers to");
}

/// Takes that follow the reading of the refs move the ends of the histories.
#[test]
fn a_history_that_was_cut_after_its_name_was_read_has_its_end() {
    let temp = tempfile::tempdir().expect("a directory");
    let (store, project) = store_and_project(&temp);
    for contents in ["one", "two", "three", "four"] {
        take(&store, &project, contents);
    }
    let held = store.locks.lock_gc().expect("a lock");
    let progress = Progress::default();
    collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection");
    let roots = store.catalog.roots().expect("names");
    let ids = ["five", "six", "seven"].map(|contents| take(&store, &project, contents));
    let mut reach = Reachability::new(store.objects.ids().expect("ids"), roots.ends.clone());
    reach.all_roots(&store.objects.open(&StoreLock::none()).expect("objects"), &roots);
    collection(&store, &held, reach, &progress).run(GcGoal::All).expect("all that is named is there");
    collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection");
    assert_eq!(store.boundary.ends().expect("ends"), HashSet::from([ids[1]]));
    let objects = store.objects.open(&StoreLock::none()).expect("objects");
    assert_eq!(store.histories.of(&objects, project.id()).expect("a history").checkpoints.len(), 2);
}

#[test]
fn the_callback_is_called_for_each_moved_object() {
    let temp = tempfile::tempdir().expect("a directory");
    let (store, project) = store_and_project(&temp);
    for contents in ["one", "two", "three"] {
        take(&store, &project, contents);
    }
    let objects = &store.objects.open(&StoreLock::none()).expect("objects");
    let reach = reach_all(&store, objects).expect("marks");
    let packs = &store.objects.packs().expect("packs");
    for compress_well in [false, true] {
        let mut places = EntryTable::default();
        for (pack, of) in packs.iter().enumerate() {
            for (at, entry) in of.entries().enumerate().filter(|(_, entry)| reach.marks.contains(&entry.id)) {
                places.push((narrow(pack), narrow(at)), entry.id, false);
            }
        }
        let places = &places;
        let bytes: u64 = places.iter().map(|place| entry_at(packs, place).bytes()).sum();
        let (count, told) = (places.iter().len() as u64, (AtomicU64::new(0), AtomicU64::new(0)));
        let moved = &|bytes| {
            told.0.fetch_add(1, Ordering::Relaxed);
            told.1.fetch_add(bytes, Ordering::Relaxed);
        };
        let (marks, loose) = (&reach.marks, Vec::new());
        let (bytes_max, is_over) = (u64::MAX, &|| false);
        let moving = Moving { packs, objects, marks, places, loose, bytes_max, is_over, moved };
        moving.write(&store.layout.pack_dirs(), compress_well).expect("a pack").expect("it was not cancelled");
        assert_eq!((told.0.into_inner(), told.1.into_inner()), (count, bytes));
    }
    // The progress reaches its total, also in the second run.
    let held = store.locks.lock_gc().expect("a lock");
    let progress = Progress::default();
    for contents in ["four", "five"] {
        take(&store, &project, contents);
        collect_garbage(&store, &held, GcGoal::All, None, NOW, &progress).expect("a collection");
        let total = progress.store_bytes.load(Ordering::Relaxed);
        assert!(total > 0 && progress.store_bytes_done.load(Ordering::Relaxed) == total, "{progress:?}");
    }
}

/// G3, worst case: everything that a collection knows is stale by the time it unlinks. To it, the pack of the newest
/// checkpoint is unreachable, and so is the pack whose contents a take has found again.
#[test]
fn objects_named_after_a_collection_began_are_rescued() {
    for (goal, after) in [
        (GcGoal::All, &["new", "forgotten"][..]),
        (GcGoal::Every, &["new", "forgotten"]),
        // The pack of a single take: the rescued pack has the same name.
        (GcGoal::All, &["new"]),
        (GcGoal::Due, &["new"]),
        (GcGoal::Free(1 << 40), &["new"]),
    ] {
        let temp = tempfile::tempdir().expect("a directory");
        let (store, project) = store_and_project(&temp);
        let mut ids: Vec<_> = ["forgotten", "one", "two"].map(|contents| take(&store, &project, contents)).into();
        let held = store.locks.lock_gc().expect("a lock");
        let reach = reach_all(&store, &store.objects.open(&StoreLock::none()).expect("objects")).expect("marks");
        ids.extend(after.iter().map(|contents| take(&store, &project, contents)));
        let progress = Progress::default();
        let done = collection(&store, &held, reach, &progress).run(goal).expect("a collection");
        assert!(!done.left_some);
        let objects = store.objects.open(&StoreLock::none()).expect("objects");
        let history = store.histories.from(&objects, ids.last().copied()).expect("a history").checkpoints;
        let history: Vec<_> = history.iter().map(|one| one.id).rev().collect();
        assert_eq!(history, ids[ids.len() - 2..], "{goal:?} {after:?}");
        let reach = reach_all(&store, &objects).expect("marks");
        assert!(reach.missing.is_empty() && reach.marks.iter().all(|(id, _)| objects.has(id)), "{goal:?}");
    }
}
