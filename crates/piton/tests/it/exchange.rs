//! Checkpoints for other machines, and from them, without a network: two stores in one process.

use std::collections::HashSet;

use piton::{
    CheckpointId, FetchRequest, FetchedPath, History, Incoming, ObjectId, ObjectKind, Outgoing, Policy, Progress,
    Project, PromptText, RestoreOptions, RestoreTo, Settings, Store, checkpoint_tree, decode_entry, tree_items,
};
use testkit::Sandbox;

use crate::kit::{now, project_id, take};

fn store(sandbox: &Sandbox) -> Store {
    Store::open_or_create(&sandbox.base(), now()).expect("a store")
}

/// Takes a checkpoint, and returns its id.
fn taken(sandbox: &Sandbox) -> CheckpointId {
    ObjectId::from_hex(crate::kit::taken(&take(sandbox)).as_bytes()).expect("an id")
}

fn project(sandbox: &Sandbox) -> Project {
    Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project")
}

/// An object, as it is sent.
type SentObject = (ObjectId, ObjectKind, Vec<u8>);

/// Returns everything that a push of these checkpoints sends.
fn sent(sandbox: &Sandbox, ids: &[CheckpointId]) -> Vec<SentObject> {
    let store = store(sandbox);
    let outgoing = Outgoing::open(&store).expect("objects");
    let objects = outgoing.objects_of(ids, &|_| false).expect("objects");
    let dir = tempfile::tempdir().expect("a directory");
    let pack = outgoing.pack(&objects, dir.path(), &Progress::default()).expect("a pack");
    assert_eq!(pack.objects.len(), objects.len());
    let bytes = std::fs::read(pack.path()).expect("a pack");
    assert_eq!(bytes.len() as u64, pack.bytes);
    let entry = |object: &piton::PackedObject| {
        let size = |bytes: u64| usize::try_from(bytes).expect("it is in memory");
        let (from, length) = (size(object.offset), size(object.bytes));
        let (kind, contents) = decode_entry(object.id, &bytes[from..from + length]).expect("an object");
        assert_eq!(kind, object.kind);
        (object.id, kind, contents)
    };
    pack.objects.iter().map(entry).collect()
}

fn commit(objects: &[SentObject], id: CheckpointId) -> Vec<u8> {
    objects.iter().find(|(one, ..)| *one == id).expect("the commit").2.clone()
}

/// Adds a checkpoint of one sandbox to the store of another.
fn fetch(into: &Sandbox, id: CheckpointId, objects: &[SentObject]) -> CheckpointId {
    let (store, project) = (store(into), project(into));
    let incoming = Incoming::begin(&store, &project).expect("a store");
    for (id, kind, bytes) in objects.iter().filter(|(_, kind, _)| *kind != ObjectKind::Commit) {
        incoming.add(*id, *kind, bytes).expect("an object");
    }
    let commit = commit(objects, id);
    let request = FetchRequest { machine: "other", id, commit: &commit, files: None, dirs: &[], paths: &[] };
    incoming.finish(request, &Settings::default(), now()).expect("a checkpoint")
}

/// Z4.
#[test]
fn only_commits_trees_and_files_in_scope_are_sent() {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox.write(".gitignore", "data/\n");
    sandbox.write("data/numbers", "ignored contents");
    sandbox.write(".env", "SECRET=hidden contents");
    let id = taken(&sandbox);
    let refs = sandbox.store_git(&["for-each-ref", "refs/local/"]);
    assert!(!refs.is_empty(), "the test has local files");
    let objects = sent(&sandbox, &[id]);
    for (_, _, bytes) in &objects {
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(!has(b"ignored contents") && !has(b"hidden contents"));
    }
    assert!(objects.iter().any(|(_, _, bytes)| bytes == b"fn main() {}\n"));
    let kinds: Vec<_> = objects.iter().map(|(_, kind, _)| *kind).collect();
    let first_blob = kinds.iter().position(|kind| *kind == ObjectKind::Blob).expect("a file");
    assert!(
        kinds[first_blob..].iter().all(|kind| *kind == ObjectKind::Blob),
        "commits and trees come first: {kinds:?}"
    );
}

#[test]
fn what_is_known_there_is_not_sent_again() {
    let sandbox = Sandbox::new();
    sandbox.write("a/one", "1");
    sandbox.write("b/two", "2");
    let first = taken(&sandbox);
    let known: HashSet<_> = sent(&sandbox, &[first]).iter().map(|(id, ..)| *id).collect();
    sandbox.write("b/two", "22");
    let second = taken(&sandbox);
    let store = store(&sandbox);
    let outgoing = Outgoing::open(&store).expect("objects");
    let new = outgoing.objects_of(&[first, second], &|id| known.contains(id)).expect("objects");
    // The commit, the trees of the root and of `b`, one file.
    assert_eq!(new.len(), 4, "{new:?}");
    let listed = outgoing.checkpoints(project(&sandbox).id(), PromptText::Short).expect("a list");
    assert_eq!(listed.iter().map(|one| one.id).collect::<Vec<_>>(), [second, first]);
    let projects = outgoing.projects().expect("projects");
    assert_eq!((projects.len(), projects[0].newest), (1, second));
}

/// Z5.
#[test]
fn a_fetched_checkpoint_is_complete_found_by_its_id_and_part_of_no_history() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    one.write("src/main.rs", "fn main() {}\n");
    one.write("run", "#!/bin/sh\n");
    let id = taken(&one);
    let objects = sent(&one, &[id]);
    other.write("own", "work");
    let own = taken(&other);
    let fetched = fetch(&other, id, &objects);
    assert_eq!(fetch(&other, id, &objects), fetched, "a second fetch adds nothing");

    let (store, project) = (store(&other), project(&other));
    let history = History::of(&store, &project).expect("a list");
    assert_eq!(history.checkpoints().iter().map(|one| one.id).collect::<Vec<_>>(), [own]);
    let found = history.find(&fetched.to_string()).expect("it is found");
    let from = found.facts.fetched.as_ref().expect("its origin");
    assert_eq!((&*from.machine, from.id, found.is_row()), ("other", id, true));
    assert!(history.listed(found).expect("an entry").number.is_none());
    assert!(
        Outgoing::open(&store).expect("objects").checkpoints(project.id(), PromptText::Short).expect("a list").len()
            == 1
    );
    drop(history);
    // It survives a collection, by piton and by stock git, and takes of its own project.
    piton::prune(&store, &Policy::default(), now(), &Progress::default()).expect("a prune");
    other.store_git(&["gc", "--quiet", "--prune=now"]);
    other.store_git(&["fsck", "--strict"]);
    other.write("own", "more work");
    taken(&other);
    let options = RestoreOptions::default();
    let (settings, progress) = (Settings::default(), Progress::default());
    let to = fetched.to_string();
    let restore =
        piton::Restore::prepare(&store, &project, RestoreTo::Named(&to), options, &settings, now(), &progress);
    restore.expect("a plan").apply().expect("a restore");
    assert_eq!(testkit::files_in(&other.project()), testkit::files_in(&one.project()));
    let undo = piton::Restore::prepare(&store, &project, RestoreTo::Undo, options, &settings, now(), &progress);
    undo.expect("a plan").apply().expect("an undo");
    assert!(other.project().join("own").is_file() && !other.project().join("run").exists());
    assert_eq!(piton::forget_fetched(&store, project.id(), now()).expect("refs"), 1);
    assert!(History::of(&store, &project).expect("a list").find(&to).is_err());
}

#[test]
fn some_paths_of_a_checkpoint_are_a_checkpoint_of_these_paths() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    one.write("a/wanted", "wanted");
    one.write("a/other", "other");
    let id = taken(&one);
    let objects = sent(&one, &[id]);
    let get = |id: ObjectId| objects.iter().find(|(one, ..)| *one == id).expect("an object");
    let root = checkpoint_tree(id, &commit(&objects, id)).expect("a tree");
    let dir = tree_items(root, &get(root).2).expect("a tree").into_iter().find(|item| item.name == b"a").expect("a");
    let item = tree_items(dir.id, &get(dir.id).2).expect("a tree").into_iter().find(|item| item.name == b"wanted");
    let item = item.expect("the file");
    let (store, project) = (store(&other), project(&other));
    let incoming = Incoming::begin(&store, &project).expect("a store");
    assert!(!incoming.has(item.id));
    let wrong = incoming.add(item.id, ObjectKind::Blob, b"forged");
    assert_eq!(wrong.expect_err("it has another id").kind(), piton::ErrorKind::Damaged);
    incoming.add(item.id, ObjectKind::Blob, b"wanted").expect("an object");
    let files = [FetchedPath::new(b"a/wanted".to_vec(), &item)];
    let (commit, paths) = (commit(&objects, id), [b"a/wanted".to_vec()]);
    let request = FetchRequest { machine: "other", id, commit: &commit, files: Some(&files), dirs: &[], paths: &paths };
    let fetched = incoming.finish(request, &Settings::default(), now()).expect("a checkpoint");
    let listing = other.store_git(&["ls-tree", "-r", "--name-only", &fetched.to_string()]);
    assert_eq!(listing, b"a/wanted\n");
    other.store_git(&["fsck", "--strict"]);
    let refs = other.store_git(&[
        "for-each-ref",
        "--format=%(refname)",
        &format!("refs/piton/{}/fetched", project_id(&other)),
    ]);
    assert_eq!(String::from_utf8_lossy(&refs).lines().count(), 1);
}

#[test]
fn old_fetched_checkpoints_make_room_for_new_ones() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    let mut all = Vec::new();
    for number in 0..23 {
        one.write("a", format!("{number}"));
        let id = taken(&one);
        all.push(fetch(&other, id, &sent(&one, &[id])));
    }
    let history = History::of(&store(&other), &project(&other)).expect("a list");
    let found = all.iter().filter(|id| history.find(&id.to_string()).is_ok()).count();
    assert_eq!(found, 20);
    assert!(history.find(&all[22].to_string()).is_ok() && history.find(&all[0].to_string()).is_err());
}
