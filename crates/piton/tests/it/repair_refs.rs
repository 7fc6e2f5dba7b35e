//! One kind of damage to a store at a time: it is reported as what it is, and a repair fixes that and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use piton::{FindingKind, Moment, Progress, ReadData, RepairReport, Settings};
use testkit::{Sandbox, git};

use crate::kit::{project_id, settled, take, take_at, take_with, taken};
use crate::repair::{all_checkpoints, assert_repaired, id_of, names_by_git, repair, repair_with, steps};
use crate::upkeep::{ids_of, packs, store_of};
use crate::verify::{HandMade, damage_object, kinds, sha1, verify};

/// Creates a sandbox whose project has two checkpoints.
fn with_two() -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::new();
    for text in ["one", "two"] {
        sandbox.write("file", text);
        sandbox.write("same", "always");
        taken(&take(&sandbox));
    }
    let ids = ids_of(&sandbox, &sandbox.project());
    (sandbox, ids)
}

fn ref_of(sandbox: &Sandbox) -> String {
    format!("refs/hermes/{}", project_id(sandbox))
}

fn set_ref(sandbox: &Sandbox, name: &str, id: &str) {
    let path = sandbox.store().join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, format!("{id}\n")).expect("a ref");
}

/// Has stock git write a loose object, and returns its id.
fn kept(sandbox: &Sandbox, kind: &str, bytes: &[u8]) -> String {
    let file = sandbox.root().join("kept");
    fs::write(&file, bytes).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let id = sandbox.store_git(&["hash-object", "-w", "-t", kind, file]);
    String::from_utf8(id).expect("an id").trim().to_owned()
}

fn tree_of(mode: &str, id: &str) -> Vec<u8> {
    let id = piton::ObjectId::from_hex(id.as_bytes()).expect("an id");
    [format!("{mode} name\0").as_bytes(), id.as_bytes()].concat()
}

/// Creates a commit with one file by stock git. Returns its id, and that of the file's blob.
fn stock_commit(sandbox: &Sandbox, text: &str, parent: Option<&str>) -> (String, String) {
    let blob = kept(sandbox, "blob", text.as_bytes());
    let tree = kept(sandbox, "tree", &tree_of("100644", &blob));
    let parent = parent.map_or(String::new(), |parent| format!("parent {parent}\n"));
    let people = "author A <a> 5 +0000\ncommitter A <a> 5 +0000";
    (kept(sandbox, "commit", format!("tree {tree}\n{parent}{people}\n\n{text}\n").as_bytes()), blob)
}

fn file_of_object(sandbox: &Sandbox, id: &str) -> PathBuf {
    sandbox.store().join("objects").join(&id[..2]).join(&id[2..])
}

/// Returns the pack that contains an object.
fn pack_of(sandbox: &Sandbox, id: &str) -> PathBuf {
    let id = piton::ObjectId::from_hex(id.as_bytes()).expect("an id");
    let names = |idx: Vec<u8>| idx.windows(20).any(|name| name == id.as_bytes());
    let holds = |pack: &PathBuf| fs::read(pack.with_extension("idx")).is_ok_and(names);
    packs(sandbox).into_iter().find(holds).expect("a pack that has it")
}

/// Returns the lost checkpoints, one per loss that names a checkpoint, sorted.
fn lost_checkpoints(report: &RepairReport) -> Vec<String> {
    let mut lost: Vec<_> = report.lost.iter().filter_map(|loss| Some(loss.checkpoint?.to_string())).collect();
    lost.sort();
    lost
}

fn recovered(sandbox: &Sandbox) -> Vec<String> {
    names_by_git(sandbox).into_iter().filter(|name| name.contains("refs/recovered/")).collect()
}

#[test]
fn a_ref_to_the_wrong_object_is_found_and_repaired() {
    let (missing, project) = ("07".repeat(20), "the project's");
    for (name, to, why) in [
        (project, "blob", "it names no checkpoint"),
        (project, "missing", "it names an object that is missing or damaged"),
        ("refs/heads/theirs", "missing", "it names an object that is missing or damaged"),
        ("refs/hermes/nobody", "blob", "it is the ref of no project"),
        ("refs/hermes/nobody", "commit", "it is the ref of no project"),
        ("refs/hermes/nobody", "missing", "it names an object that is missing or damaged"),
    ] {
        let (sandbox, ids) = with_two();
        let id = match to {
            "blob" => id_of(&sandbox, &format!("{}:file", ids[0])),
            "commit" => ids[0].clone(),
            _ => missing.clone(),
        };
        let name = if name == project { ref_of(&sandbox) } else { name.to_owned() };
        set_ref(&sandbox, &name, &id);
        let report = verify(&sandbox, ReadData::No);
        let found = report.findings.iter().find(|finding| finding.kind == FindingKind::Ref).expect("a finding");
        assert_eq!((found.why.as_str(), report.is_whole()), (why, false), "{name}");
        let report = repair(&sandbox);
        assert_repaired(&sandbox, &report, &name);
        let lost = if to == "missing" { vec![missing.clone()] } else { vec![] };
        assert_eq!(lost_checkpoints(&report), lost, "{name}");
        assert_eq!(ids_of(&sandbox, &sandbox.project()), ids, "{name}");
        assert_eq!(sandbox.store().join(&name).exists(), name == ref_of(&sandbox), "{name}");
        assert_eq!(recovered(&sandbox), [""; 0], "{name}");
    }
}

#[test]
fn refs_of_the_user_stay_when_a_checkpoint_is_repaired() {
    let (sandbox, ids) = with_two();
    let (commit, blob) = stock_commit(&sandbox, "theirs", None);
    set_ref(&sandbox, "refs/heads/theirs", &commit);
    set_ref(&sandbox, "refs/kept/blob", &blob);
    set_ref(&sandbox, "refs/kept/tree", &id_of(&sandbox, &format!("{commit}^{{tree}}")));
    sandbox.store_git(&["tag", "-a", "-m", "a tag", "tagged", &blob]);
    let names = names_by_git(&sandbox);
    set_ref(&sandbox, &ref_of(&sandbox), "garbage");
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((names_by_git(&sandbox), ids_of(&sandbox, &sandbox.project())), (names, ids));
}

/// A stock git branch does not name a project: only a commit reachable from it can replace its tip.
#[test]
fn a_branch_whose_newest_commit_is_not_whole_goes_back_to_one_that_is() {
    let (sandbox, ids) = with_two();
    let (first, _) = stock_commit(&sandbox, "first", None);
    let (second, blob) = stock_commit(&sandbox, "second", Some(&first));
    set_ref(&sandbox, "refs/heads/theirs", &second);
    fs::remove_file(file_of_object(&sandbox, &blob)).expect("an object");
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!(id_of(&sandbox, "refs/heads/theirs"), first);
    assert_eq!((lost_checkpoints(&report), ids_of(&sandbox, &sandbox.project())), (vec![second], ids));
}

/// Checkpoints by another program in this store do not record their project.
#[test]
fn a_history_that_names_no_project_goes_back_to_what_is_whole() {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    fs::write(other.join("file"), "1").expect("a file");
    taken(&take_with(&sandbox, &other, &Settings::default()));
    let (first, _) = stock_commit(&sandbox, "first", None);
    let (second, blob) = stock_commit(&sandbox, "second", Some(&first));
    set_ref(&sandbox, &ref_of(&sandbox), &second);
    fs::remove_file(file_of_object(&sandbox, &blob)).expect("an object");
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((id_of(&sandbox, &ref_of(&sandbox)), lost_checkpoints(&report)), (first, vec![second]));
}

#[test]
fn a_ref_is_not_repaired_with_a_foreign_or_dropped_checkpoint() {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    let settings = Settings::default().max_snapshots(2.into());
    for text in ["one", "two", "three", "four"] {
        sandbox.write("file", text);
        taken(&take_with(&sandbox, &sandbox.project(), &settings));
    }
    fs::write(other.join("theirs"), "newer").expect("a file");
    let newer = taken(&take_at(&sandbox.base(), &other, &settings, settled()));
    let ids = ids_of(&sandbox, &sandbox.project());
    assert_eq!(ids.len(), 2);
    for wrong in [newer.as_str(), "garbage"] {
        set_ref(&sandbox, &ref_of(&sandbox), wrong);
        let report = repair(&sandbox);
        assert_repaired(&sandbox, &report, wrong);
        assert_eq!(
            (ids_of(&sandbox, &sandbox.project()), ids_of(&sandbox, &other)),
            (ids.clone(), vec![newer.clone()])
        );
        assert_eq!((report.lost, recovered(&sandbox)), (vec![], vec![]), "{wrong}");
    }
}

/// A killed take leaves an unreachable checkpoint.
#[test]
fn a_checkpoint_that_was_never_named_beside_the_newest_gets_no_name() {
    let (sandbox, ids) = with_two();
    set_ref(&sandbox, &ref_of(&sandbox), &ids[1]);
    sandbox.write("file", "another way");
    let later = Moment { secs: settled().secs + 60, ..settled() };
    let newest = taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), later));
    set_ref(&sandbox, &ref_of(&sandbox), "garbage");
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [newest, ids[1].clone()]);
    assert_eq!(recovered(&sandbox), [""; 0]);
}

#[test]
fn checkpoints_in_files_of_their_own_are_found_without_a_ref() {
    let (sandbox, ids) = with_two();
    for pack in packs(&sandbox) {
        let away = sandbox.root().join("away.pack");
        fs::rename(&pack, &away).and_then(|()| fs::remove_file(pack.with_extension("idx"))).expect("a pack");
        let mut unpack = git();
        unpack.arg(format!("--git-dir={}", sandbox.store().display())).args(["unpack-objects", "-q"]);
        let done = unpack.stdin(fs::File::open(&away).expect("a pack")).status().expect("git runs");
        assert!(done.success());
    }
    assert_eq!((packs(&sandbox).len(), ids_of(&sandbox, &sandbox.project())), (0, ids.clone()));
    fs::remove_file(sandbox.store().join(ref_of(&sandbox))).expect("a ref");
    assert_eq!(kinds(&verify(&sandbox, ReadData::No)), [FindingKind::RefMissing]);
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((report.lost, ids_of(&sandbox, &sandbox.project())), (vec![], ids));
}

/// The parent of an unreadable checkpoint is unknown; other unreadable checkpoints are known.
#[test]
fn every_checkpoint_that_is_lost_is_named_once() {
    let sandbox = Sandbox::new();
    for text in ["one", "two", "three", "four"] {
        sandbox.write("file", text);
        taken(&take(&sandbox));
    }
    let ids = ids_of(&sandbox, &sandbox.project());
    for id in &ids[..2] {
        damage_object(&sandbox, &pack_of(&sandbox, id), id);
    }
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    let mut lost = ids[..2].to_vec();
    lost.sort();
    assert_eq!(lost_checkpoints(&report), lost, "{report:?}");
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids[2..]);
}

#[test]
fn a_directory_that_is_a_file_is_damage() {
    let (sandbox, _) = with_two();
    let blob = kept(&sandbox, "blob", b"no directory");
    set_ref(&sandbox, "refs/kept/tree", &kept(&sandbox, "tree", &tree_of("40000", &blob)));
    let report = verify(&sandbox, ReadData::No);
    assert!(!report.is_whole());
    let told: Vec<_> =
        report.findings.iter().filter(|finding| finding.id.is_some_and(|id| id.to_string() == blob)).collect();
    assert_eq!(told.iter().map(|finding| finding.why.as_str()).collect::<Vec<_>>(), ["it is a blob"]);
}

/// Changes a file before its trailing checksum and recomputes the checksum.
fn sum_up(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file");
    bytes.truncate(bytes.len() - 20);
    change(&mut bytes);
    bytes.extend(sha1(&bytes));
    fs::write(path, bytes).expect("a file");
}

/// Damage that is not visible in any single object.
#[test]
fn a_pack_with_whole_objects_is_still_a_wrong_one() {
    for how in ["its checksum", "the checksum in its idx", "the number of its objects", "no idx, and that number"] {
        let sandbox = Sandbox::new();
        sandbox.tree("a = 1\n dir/b = 2");
        let id = taken(&take(&sandbox));
        let pack = packs(&sandbox).remove(0);
        let (idx, mut bytes) = (pack.with_extension("idx"), fs::read(&pack).expect("a pack"));
        let name_sum = |sum: &[u8]| {
            sum_up(&idx, |idx| {
                let at = idx.len() - 20;
                idx[at..].copy_from_slice(sum);
            });
        };
        match how {
            "its checksum" => {
                *bytes.last_mut().expect("a byte") ^= 1;
                fs::write(&pack, &bytes).expect("a pack");
                name_sum(&bytes[bytes.len() - 20..]);
            }
            "the checksum in its idx" => name_sum(&[7; 20]),
            _ => {
                sum_up(&pack, |bytes| bytes[11] += 1);
                bytes = fs::read(&pack).expect("a pack");
                name_sum(&bytes[bytes.len() - 20..]);
            }
        }
        if how.starts_with("no idx") {
            fs::remove_file(&idx).expect("an idx");
        } else {
            let report = verify(&sandbox, ReadData::All);
            assert_eq!((kinds(&report), report.is_whole()), (vec![FindingKind::Pack], false), "{how}");
        }
        let report = repair(&sandbox);
        assert_repaired(&sandbox, &report, how);
        assert_eq!((&report.lost[..], ids_of(&sandbox, &sandbox.project())), (&[][..], vec![id]), "{how}");
        let is_pack = |path: &&PathBuf| path.extension().is_some_and(|end| end == "pack");
        if let Some(aside) = report.moved_aside.iter().find(is_pack) {
            assert!(fs::read(sandbox.base().join(aside)).expect("a pack") == bytes, "{how}: as it was");
        } else {
            assert_eq!(how, "the checksum in its idx", "what is replaced goes aside first");
        }
    }
}

/// An object read under the wrong id is corrupt only until its own id is known.
#[test]
fn an_idx_that_takes_one_object_for_another_costs_neither() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n b = 2");
    let id = taken(&take(&sandbox));
    let blobs = ["a", "b"].map(|path| {
        let id = id_of(&sandbox, &format!("{id}:{path}"));
        piton::ObjectId::from_hex(id.as_bytes()).expect("an id")
    });
    let idx = packs(&sandbox).remove(0).with_extension("idx");
    sum_up(&idx, |idx| {
        let count = usize::try_from(u32::from_be_bytes(idx[1028..1032].try_into().expect("a number"))).expect("few");
        let sums = 1032 + 20 * count;
        let ids: Vec<_> = idx[1032..sums].chunks(20).map(<[u8]>::to_vec).collect();
        let [a, b] = blobs.map(|blob| ids.iter().position(|id| id == blob.as_bytes()).expect("a blob"));
        // The CRCs, and the offsets.
        for table in [sums, sums + 4 * count] {
            (0..4).for_each(|byte| idx.swap(table + 4 * a + byte, table + 4 * b + byte));
        }
    });
    assert!(!verify(&sandbox, ReadData::All).is_whole());
    // The repair must not find the contents in the project.
    sandbox.tree("a = other\n b = contents");
    assert_eq!(repair_with(&sandbox, true).lost, []);
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((&report.lost[..], ids_of(&sandbox, &sandbox.project())), (&[][..], vec![id]));
    assert!(steps(&report).contains(&"rebuilt_idx") && !steps(&report).contains(&"saved_objects"), "{report:?}");
}

/// Stock git rejects an idx that lists an object twice, and a commit that is not one.
#[test]
fn what_is_saved_from_a_pack_is_saved_once_and_makes_sense() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    let names = names_by_git(&sandbox);
    let twice = HandMade::new().entry(3, 5, b"", b"twice").entry(3, 5, b"", b"twice");
    twice.entry(1, 4, b"", b"none").entry(2, 4, b"", b"none").write(&sandbox, &[]);
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert!(steps(&report).contains(&"saved_objects") && !steps(&report).contains(&"rebuilt_idx"), "{report:?}");
    let all = sandbox.store_git(&["cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectsize)"]);
    let all = String::from_utf8(all).expect("text");
    assert_eq!(all.lines().filter(|line| *line == "blob 5").count(), 1);
    assert!(!all.lines().any(|line| line.ends_with(" 4")), "{all}");
    assert_eq!(names_by_git(&sandbox), names);
}

#[test]
fn a_damaged_copy_costs_nothing_where_another_is_whole() {
    let (sandbox, ids) = with_two();
    let blob = id_of(&sandbox, &format!("{}:file", ids[0]));
    damage_object(&sandbox, &pack_of(&sandbox, &blob), &blob);
    let told = |report: &piton::VerifyReport| {
        let finding = report.findings.iter().find(|finding| finding.kind == FindingKind::ObjectDamaged);
        finding.map(|finding| finding.why.contains("another copy is whole"))
    };
    assert_eq!(told(&verify(&sandbox, ReadData::All)), Some(false));
    // Stock git would not write a second copy, so it comes from another repository.
    let elsewhere = sandbox.root().join("elsewhere");
    let run = |args: &[&str]| {
        let output = git().current_dir(sandbox.root()).args(args).output().expect("git runs");
        assert!(output.status.success(), "{args:?}");
    };
    run(&["init", "-q", "--bare", "elsewhere"]);
    run(&["--git-dir=elsewhere", "hash-object", "-w", sandbox.path("file").to_str().expect("UTF-8")]);
    let loose = file_of_object(&sandbox, &blob);
    fs::create_dir_all(loose.parent().expect("a directory")).expect("a directory");
    fs::copy(elsewhere.join("objects").join(&blob[..2]).join(&blob[2..]), &loose).expect("an object");
    assert_eq!(told(&verify(&sandbox, ReadData::All)), Some(true));
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((report.lost, ids_of(&sandbox, &sandbox.project())), (vec![], ids));
}

/// Files that stock git derives from all packs may refer to missing objects; files derived from one pack are removed
/// with that pack.
#[test]
fn what_is_made_over_all_packs_goes_with_one_of_them_and_no_more() {
    let (sandbox, ids) = with_two();
    sandbox.store_git(&["commit-graph", "write", "--reachable", "--split"]);
    let derived = |end: &str| -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        testkit::walk(&sandbox.store().join("objects"), &mut |path| {
            found.extend(path.extension().is_some_and(|it| it == end).then(|| path.to_owned()));
        });
        found
    };
    let of_one = sandbox.store().join(format!("objects/pack/pack-{}.rev", "0".repeat(40)));
    fs::write(&of_one, sha1(b"")).expect("a file");
    let chain = sandbox.store().join("objects/pack/multi-pack-index.d");
    let link = format!("multi-pack-index-{}", "1".repeat(40));
    fs::create_dir(&chain).expect("a directory");
    fs::write(chain.join("multi-pack-index-chain"), format!("{}\n", "1".repeat(40))).expect("a file");
    fs::write(chain.join(format!("{link}.midx")), sha1(b"")).expect("a file");
    fs::write(chain.join(format!("{link}.rev")), sha1(b"")).expect("a file");
    let other = sandbox.store().join("objects/pack/somebodys.pack");
    fs::write(&other, "no pack by its name").expect("a file");
    assert_eq!((derived("graph").len(), verify(&sandbox, ReadData::All).findings), (1, vec![]));
    let commit = &ids[0];
    damage_object(&sandbox, &pack_of(&sandbox, commit), commit);
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((derived("graph"), derived("midx")), (BTreeSet::new(), BTreeSet::new()));
    assert!(!chain.join("multi-pack-index-chain").exists(), "it names what is not there");
    assert!(of_one.exists() && other.exists());
    assert_eq!(all_checkpoints(&sandbox), ids[1..]);
}

/// The file still exists in the project, but the object that the index has for it is no longer in the store.
#[test]
fn what_was_purged_and_is_still_there_is_held_by_the_next_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.tree("keys = secret\n other = 1");
    let settings = Settings::default();
    taken(&take_at(&sandbox.base(), &sandbox.project(), &settings, settled()));
    let project = piton::Project::at(&sandbox.project(), None).expect("a project");
    piton::purge(&store_of(&sandbox), &project, &[b"keys".to_vec()], settled(), &Progress::default()).expect("a purge");
    let next = taken(&take_at(&sandbox.base(), &sandbox.project(), &settings, settled()));
    assert_eq!(sandbox.store_git(&["show", &format!("{next}:keys")]), b"secret");
    sandbox.assert_store_is_whole();
}

/// A read error is not corruption: a repair would move away files that may be intact.
#[test]
fn a_small_file_that_cannot_be_read_is_an_error_and_one_that_is_too_long_is_damage() {
    let (sandbox, _) = with_two();
    for (dir, name, bytes) in [("indexes", "", (2 << 30) + 1), ("restores", ".json", 2 << 30)] {
        let path = sandbox.store().join(dir).join(format!("{}{name}", project_id(&sandbox)));
        let _ = fs::remove_file(&path);
        fs::create_dir_all(&path).expect("a directory");
        let error = piton::verify(&store_of(&sandbox), ReadData::No, &Progress::default()).expect_err(dir);
        assert_eq!(error.kind(), piton::ErrorKind::Io, "{dir}: {error}");
        fs::remove_dir(&path).and_then(|()| fs::File::create(&path)?.set_len(bytes)).expect("a file");
        let kind = if dir == "indexes" { FindingKind::Index } else { FindingKind::Intent };
        assert_eq!(kinds(&verify(&sandbox, ReadData::No)), [kind]);
        fs::remove_file(&path).expect("a file");
    }
}
