//! Repair of a store: intact data stays the same to the last byte, data that can be found elsewhere is recovered, and
//! losses are named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use piton::{FindingKind, Hint, Progress, Project, ReadData, RepairOptions, RepairReport, Settings, Store};
use testkit::{Sandbox, git};

use crate::damaged::{bytes_of, put_back};
use crate::kit::{Dice, cases, now, project_id, take, take_with, taken};
use crate::upkeep::{collect, ids_of, packs};
use crate::verify::{Rich, damage_object, verify};

pub(crate) fn repair(sandbox: &Sandbox) -> RepairReport {
    repair_with(sandbox, false)
}

pub(crate) fn repair_with(sandbox: &Sandbox, is_dry: bool) -> RepairReport {
    let store = Store::open_damaged(&sandbox.base()).expect("a base").expect("a store");
    let (settings, home) = (Settings::default(), sandbox.home());
    let options = RepairOptions::new(&settings).home(home.as_path()).is_dry(is_dry);
    piton::repair(&store, options, now(), &Progress::default()).expect("a repair")
}

pub(crate) fn steps(report: &RepairReport) -> Vec<&str> {
    report.steps.iter().map(|step| step.what).collect()
}

pub(crate) fn id_of(sandbox: &Sandbox, name: &str) -> String {
    String::from_utf8(sandbox.store_git(&["rev-parse", name])).expect("an id").trim().to_owned()
}

#[track_caller]
pub(crate) fn assert_repaired(sandbox: &Sandbox, report: &RepairReport, when: &str) {
    assert!(report.is_whole, "{when}: {report:?}");
    assert_eq!(verify(sandbox, ReadData::All).findings, [], "{when}");
    let again = catch_unwind(AssertUnwindSafe(|| sandbox.assert_store_is_whole()));
    assert!(again.is_ok(), "{when}: stock git is not content: {report:?}");
}

#[test]
fn a_sound_store_is_left_alone() {
    let rich = Rich::new();
    let before = rich.files();
    let report = repair(&rich.sandbox);
    assert!(report.is_whole && report.steps.is_empty() && report.lost.is_empty(), "{report:?}");
    assert!(rich.files() == before);
}

/// Byte for byte the same idx, for piton's packs and stock git's, including deltas that name their base by id.
#[test]
fn an_idx_is_made_again_as_it_was() {
    let rich = Rich::new();
    rich.sandbox.store_git(&["-c", "repack.useDeltaBaseOffset=false", "repack", "-q", "--depth=20", "--window=30"]);
    for damage in ["gone", "flipped", "empty"] {
        for pack in packs(&rich.sandbox) {
            let idx = pack.with_extension("idx");
            let before = fs::read(&idx).expect("an idx");
            fs::remove_file(&idx).expect("an idx");
            let mut bytes = before.clone();
            bytes[1100] ^= 4;
            match damage {
                "flipped" => fs::write(&idx, bytes).expect("an idx"),
                "empty" => fs::write(&idx, b"").expect("an idx"),
                _ => {}
            }
            let report = repair(&rich.sandbox);
            assert!(steps(&report).contains(&"rebuilt_idx"), "{damage}: {report:?}");
            assert_eq!(report.lost, [], "{damage}");
            assert!(fs::read(&idx).expect("an idx") == before, "{damage}: {}", idx.display());
            assert_repaired(&rich.sandbox, &report, damage);
        }
    }
}

#[test]
fn contents_that_the_project_still_has_come_back() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n dir/b = something\n dir/c = 1");
    let id = taken(&take(&sandbox));
    let pack = packs(&sandbox).remove(0);
    let before = sandbox.held_by(&id);
    for lost in ["dir/b", "dir", ""] {
        let object = id_of(&sandbox, &format!("{id}:{lost}"));
        let pack = packs(&sandbox).into_iter().find(|pack| {
            let idx = pack.with_extension("idx");
            let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]);
            String::from_utf8(listing).expect("text").contains(&object)
        });
        damage_object(&sandbox, &pack.expect("a pack that has it"), &object);
        let report = repair(&sandbox);
        assert_eq!((report.healed, &report.lost[..]), (1, &[][..]), "{lost}: {report:?}");
        assert_repaired(&sandbox, &report, lost);
        assert_eq!(sandbox.held_by(&id), before, "{lost}");
    }
    assert!(!pack.exists(), "what was damaged is put aside");
}

/// The newest version of a file is stored whole, and older ones are deltas of it. If it is corrupt, all are; if the
/// project still has it, all are recovered.
#[test]
fn deltas_come_back_with_their_base() {
    let sandbox = Sandbox::new();
    let long: String = (0..400).map(|line| format!("line {line} that does not change\n")).collect();
    for number in 0..6 {
        sandbox.write("file", format!("{long}{number}\n"));
        taken(&take(&sandbox));
    }
    collect(&sandbox);
    let ids = ids_of(&sandbox, &sandbox.project());
    let held: Vec<_> = ids.iter().map(|id| sandbox.held_by(id)).collect();
    let base = id_of(&sandbox, &format!("{}:file", ids[0]));
    damage_object(&sandbox, &packs(&sandbox)[0], &base);
    assert!(verify(&sandbox, ReadData::All).findings.len() > 5, "the others need it");
    let report = repair(&sandbox);
    assert_eq!(report.lost, [], "{report:?}");
    assert!(report.healed >= 6, "{report:?}");
    assert_repaired(&sandbox, &report, "the base is back");
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids);
    assert_eq!(ids.iter().map(|id| sandbox.held_by(id)).collect::<Vec<_>>(), held);
}

/// Creates five checkpoints; a blob of the middle one is corrupt, and its contents exist nowhere else.
fn with_a_hole() -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::new();
    for text in ["one", "two", "three", "four", "five"] {
        sandbox.write("file", text);
        sandbox.write("same", "always");
        taken(&take(&sandbox));
    }
    let ids = ids_of(&sandbox, &sandbox.project());
    let blob = id_of(&sandbox, &format!("{}:file", ids[2]));
    for pack in packs(&sandbox) {
        let idx = pack.with_extension("idx");
        let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]);
        if String::from_utf8(listing).expect("text").contains(&blob) {
            damage_object(&sandbox, &pack, &blob);
        }
    }
    (sandbox, ids)
}

/// V4.
#[test]
fn a_history_with_a_hole_ends_above_it_and_what_is_below_gets_a_name() {
    let (sandbox, ids) = with_a_hole();
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "a hole");
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids[..2]);
    let lost: Vec<_> = report.lost.iter().map(|loss| (loss.checkpoint, loss.path.clone())).collect();
    let hole = piton::ObjectId::from_hex(ids[2].as_bytes());
    assert_eq!(lost, [(hole, Some(b"file".to_vec()))]);
    let name = format!("refs/recovered/{}/{}", project_id(&sandbox), &ids[3][..7]);
    assert_eq!(id_of(&sandbox, &name), ids[3]);
    let below = sandbox.store_git(&["log", "--format=%H", &name]);
    assert_eq!(String::from_utf8(below).expect("ids").lines().collect::<Vec<_>>(), ids[3..]);
    assert_eq!(sandbox.store_git(&["show", &format!("{name}:file")]), b"two");
    let told = report.steps.iter().find(|step| step.what == "recovered").expect("a step");
    assert!(matches!(&told.hint, Some(Hint::ListCommits { name: told, .. }) if *told == name), "{told:?}");
    // A garbage collection keeps all of it, and a second repair has nothing to do.
    collect(&sandbox);
    assert_eq!(repair(&sandbox).steps, []);
    assert_eq!(sandbox.store_git(&["show", &format!("{name}^:file")]), b"one");
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_is_lost() {
    let (sandbox, _) = with_a_hole();
    let before = bytes_of(&sandbox.base());
    let dry = repair_with(&sandbox, true);
    let mut after = bytes_of(&sandbox.base());
    after.retain(|path, _| before.contains_key(path));
    assert!(after == before);
    assert!(!sandbox.store().join("repairs").exists());
    let real = repair(&sandbox);
    assert_eq!(dry.lost, real.lost);
    assert_eq!((dry.healed, steps(&dry)), (real.healed, steps(&real)));
    assert!(!dry.is_whole);
}

/// Checkpoints of the same second are ordered by their parent links.
#[test]
fn a_ref_that_is_garbage_or_gone_leads_to_the_newest_checkpoint_again() {
    let rich = Rich::new();
    let (ids, others) = (rich.ids(), rich.other_ids());
    let path = rich.sandbox.store().join("refs/hermes").join(project_id(&rich.sandbox));
    let packed = rich.sandbox.store().join("packed-refs");
    let packed_bytes = fs::read(&packed).expect("packed refs");
    for text in [&b""[..], b"garbage\n", &[0; 41], b"0123456789012345678901234567890123456789\n"] {
        fs::write(&path, text).expect("a ref");
        let report = repair(&rich.sandbox);
        assert_repaired(&rich.sandbox, &report, &String::from_utf8_lossy(text));
        assert_eq!(rich.ids(), ids, "{}", String::from_utf8_lossy(text));
        // A checkpoint with that id may have existed, which cannot be determined.
        assert_eq!(report.lost.len(), usize::from(text.starts_with(b"01")), "{report:?}");
    }
    fs::remove_file(&path).expect("a ref");
    fs::remove_file(&packed).expect("packed refs");
    let report = repair(&rich.sandbox);
    assert!(report.is_whole && report.lost.is_empty(), "{report:?}");
    assert_eq!((rich.ids(), rich.other_ids()), (ids.clone(), others.clone()));
    fs::write(&packed, [b"garbage\n", &packed_bytes[..]].concat()).expect("packed refs");
    let report = repair(&rich.sandbox);
    assert_repaired(&rich.sandbox, &report, "a line of garbage");
    assert_eq!((rich.ids(), rich.other_ids()), (ids, others));
}

#[test]
fn a_pack_that_is_gone_costs_what_was_in_it_and_no_more() {
    let rich = Rich::new();
    let all = bytes_of(&rich.sandbox.base());
    let (ids, others) = (rich.ids(), rich.other_ids());
    let held: BTreeMap<_, _> = ids.iter().chain(&others).map(|id| (id.clone(), rich.sandbox.held_by(id))).collect();
    for pack in packs(&rich.sandbox) {
        for with_idx in [true, false] {
            fs::remove_file(&pack).expect("a pack");
            if with_idx {
                fs::remove_file(pack.with_extension("idx")).expect("an idx");
            }
            let report = repair(&rich.sandbox);
            assert_repaired(&rich.sandbox, &report, &pack.display().to_string());
            let found: BTreeSet<_> = all_checkpoints(&rich.sandbox).into_iter().collect();
            let told: BTreeSet<_> = report.lost.iter().filter_map(|loss| Some(loss.checkpoint?.to_string())).collect();
            for history in [&ids, &others] {
                for (at, id) in history.iter().enumerate() {
                    // If a checkpoint is lost, the id of its parent is unknown.
                    let is_unknown = at > 0 && !found.contains(&history[at - 1]);
                    assert!(found.contains(id) || told.contains(id) || is_unknown, "{id}: {report:?}");
                    assert!(!found.contains(id) || !told.contains(id), "{id}: {report:?}");
                    if found.contains(id) {
                        assert_eq!(&rich.sandbox.held_by(id), &held[id]);
                    }
                }
            }
            taken_or_same(&rich.sandbox);
            reset(&rich.sandbox, &all);
        }
    }
}

/// Returns every checkpoint reachable from any ref.
pub(crate) fn all_checkpoints(sandbox: &Sandbox) -> Vec<String> {
    String::from_utf8(sandbox.store_git(&["rev-list", "--all"])).expect("ids").lines().map(str::to_owned).collect()
}

fn taken_or_same(sandbox: &Sandbox) {
    let report = take_with(sandbox, &sandbox.project(), &Settings::default());
    assert!(!matches!(report.outcome, piton::Outcome::Skipped(_)), "{report:?}");
    sandbox.assert_store_is_whole();
}

pub(crate) fn reset(sandbox: &Sandbox, all: &BTreeMap<PathBuf, Vec<u8>>) {
    let _ = fs::remove_dir_all(sandbox.store().join("repairs"));
    put_back(&sandbox.base(), all);
}

/// V3.
#[test]
fn small_files_are_made_again() {
    let rich = Rich::new();
    let ids = rich.ids();
    let project = project_id(&rich.sandbox);
    for (name, text) in [
        ("HEAD", "\0\0\0"),
        ("HEAD", ""),
        ("config", "[core\nbare"),
        ("config", ""),
        (&format!("projects/{project}.json"), "{"),
        (&format!("projects/{project}.json"), r#"{"workdir":"/somewhere/else"}"#),
        (&format!("indexes/{project}"), "DIRC"),
        (&format!("restores/{project}.json"), "{}"),
    ] {
        fs::write(rich.sandbox.store().join(name), text).expect("a file");
        let found = verify(&rich.sandbox, ReadData::No).findings;
        assert!(!found.is_empty(), "{name} {text:?}");
        let report = repair(&rich.sandbox);
        assert_eq!(report.lost, [], "{name}");
        assert_repaired(&rich.sandbox, &report, name);
        assert_eq!(rich.ids(), ids);
        let aside = report.moved_aside.iter().any(|path| path.ends_with(name));
        assert!(aside, "{name}: {:?}", report.moved_aside);
        let kept = report.moved_aside.iter().find(|path| path.ends_with(name)).expect("one");
        assert_eq!(fs::read(rich.sandbox.base().join(kept)).expect("a file"), text.as_bytes());
        taken_or_same(&rich.sandbox);
    }
    let record = fs::read_to_string(rich.sandbox.store().join(format!("projects/{project}.json"))).expect("a record");
    assert!(record.contains("\"workdir\""), "the next take knows where it is: {record}");
}

/// History ends that name a missing commit, and one that is missing although the commits before it are gone.
#[test]
fn ends_of_histories_are_repaired_without_a_loss() {
    let rich = Rich::new();
    collect(&rich.sandbox);
    let ids = rich.ids();
    let path = rich.sandbox.store().join("shallow");
    let right = fs::read_to_string(&path).expect("a boundary");
    assert_eq!(right.lines().count(), 1);
    let flipped = right.replacen(|digit| digit != '0', "0", 1);
    for text in [flipped.clone(), format!("{right}{flipped}"), "garbage\n".to_owned(), String::new()] {
        fs::write(&path, &text).expect("a boundary");
        let report = repair(&rich.sandbox);
        assert_repaired(&rich.sandbox, &report, &text);
        assert_eq!(report.lost, [], "{text}");
        assert_eq!(rich.ids(), ids);
        assert_eq!(fs::read_to_string(&path).expect("a boundary"), right, "{text}");
    }
}

/// Returns all refs as stock git sees them, and all checkpoints reachable from them; empty if git refuses.
pub(crate) fn names_by_git(sandbox: &Sandbox) -> BTreeSet<String> {
    let run = |args: &[&str]| {
        let git_dir = format!("--git-dir={}", sandbox.store().display());
        let output = git().arg(git_dir).args(args).output().expect("git runs");
        if output.status.success() { String::from_utf8(output.stdout).expect("text") } else { String::new() }
    };
    let names = run(&["for-each-ref", "--format=%(objectname) %(refname)"]) + &run(&["rev-list", "--all"]);
    names.lines().map(str::to_owned).collect()
}

/// A take that finds damage fails and says what to do, or succeeds; it never panics, and a repair fixes the store after
/// it.
#[test]
fn takes_on_a_damaged_store_do_not_panic_and_say_what_to_do() {
    let rich = Rich::new();
    let all = bytes_of(&rich.sandbox.base());
    let mut dice = Dice::new(3);
    let files: Vec<_> = rich.files().into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let mut failed = 0;
    for _ in 0..cases("PITON_FLIPS", 400) / 4 {
        let (path, bytes) = &files[dice.roll(files.len())];
        let mut flipped = bytes.clone();
        let at = dice.roll(bytes.len());
        flipped[at] ^= 1 << dice.roll(8);
        fs::remove_file(path).expect("a file");
        fs::write(path, flipped).expect("a file");
        rich.sandbox.write("notes", format!("{}", dice.roll(1000)));
        let result = catch_unwind(AssertUnwindSafe(|| {
            let store = Store::open_or_create(&rich.sandbox.base(), now())?;
            let project = Project::at(&rich.sandbox.project(), None)?;
            let request = piton::Request::default().kind(piton::CheckpointKind::Manual);
            piton::take(&store, &project, &request, &Settings::default(), now(), &Progress::default())
        }));
        let shown = format!("{} byte {at}", path.display());
        match result.unwrap_or_else(|_| panic!("a panic: {shown}")) {
            Ok(_) => {}
            Err(error) => {
                failed += 1;
                let hint = error.hint();
                assert!(hint.is_some_and(is_about_repair), "{shown}: {error}");
            }
        }
        let report = repair(&rich.sandbox);
        assert_repaired(&rich.sandbox, &report, &shown);
        reset(&rich.sandbox, &all);
    }
    assert!(failed > 0, "no take failed");
}

/// A copy elsewhere counts only if it is intact.
#[test]
fn what_is_whole_in_a_damaged_pack_alone_is_saved() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n b = 2");
    let id = taken(&take(&sandbox));
    let (a, b) = (id_of(&sandbox, &format!("{id}:a")), id_of(&sandbox, &format!("{id}:b")));
    sandbox.write("a", "something else");
    damage_object(&sandbox, &packs(&sandbox)[0], &b);
    let loose = sandbox.store().join("objects").join(&a[..2]).join(&a[2..]);
    fs::create_dir_all(loose.parent().expect("a directory")).and_then(|()| fs::write(&loose, "half")).expect("a file");
    let report = repair(&sandbox);
    assert_repaired(&sandbox, &report, "after the repair");
    assert_eq!((report.lost, ids_of(&sandbox, &sandbox.project())), (vec![], vec![id]));
}

/// As long as the references to missing objects exist, nothing can be collected.
#[test]
fn what_stock_git_noted_of_objects_that_are_gone_is_put_aside() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let (there, gone, none) = (taken(&take(&sandbox)), "07".repeat(20), "00".repeat(20));
    let logs = sandbox.store().join("logs/refs/heads");
    fs::create_dir_all(&logs).expect("a directory");
    fs::write(sandbox.store().join("ORIG_HEAD"), format!("{gone}\n")).expect("a file");
    fs::write(sandbox.store().join("logs/HEAD"), format!("{there} {gone} A <a> 5 +0000\treset\n")).expect("a file");
    fs::write(logs.join("kept"), format!("{none} {there} A <a> 5 +0000\tbranch\n")).expect("a file");
    assert_eq!(crate::verify::kinds(&verify(&sandbox, ReadData::No))[0], FindingKind::Ref);
    let report = repair(&sandbox);
    assert_eq!((steps(&report), &report.lost[..]), (vec!["kept_names", "put_aside", "put_aside"], &[][..]));
    assert!(!sandbox.store().join("ORIG_HEAD").exists() && !sandbox.store().join("logs/HEAD").exists());
    assert!(logs.join("kept").exists());
    assert_repaired(&sandbox, &report, "after the repair");
}

/// Files that stock git derives are checked and repaired, too.
#[test]
fn what_stock_git_derives_is_put_aside_when_it_is_damaged() {
    let rich = Rich::new();
    rich.sandbox.store_git(&["repack", "-q", "-a", "-d", "--write-midx"]);
    rich.sandbox.assert_store_is_whole();
    assert_eq!(verify(&rich.sandbox, ReadData::All).findings, []);
    let all = bytes_of(&rich.sandbox.base());
    for name in [".rev", "multi-pack-index"] {
        let file = all.keys().find(|path| path.to_string_lossy().ends_with(name));
        let Some(file) = file else { panic!("no {name}: {:?}", all.keys()) };
        let mut bytes = all[file].clone();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::remove_file(file).expect("a file");
        fs::write(file, bytes).expect("a file");
        let report = verify(&rich.sandbox, ReadData::No);
        assert_eq!(crate::verify::kinds(&report), [FindingKind::Derived], "{name}");
        let report = repair(&rich.sandbox);
        assert_eq!(report.lost, []);
        assert_repaired(&rich.sandbox, &report, name);
        reset(&rich.sandbox, &all);
    }
}

fn is_about_repair(hint: Hint) -> bool {
    match hint {
        Hint::NothingTouched(hint) => is_about_repair(*hint),
        hint => matches!(
            hint,
            Hint::Repair | Hint::RepairSaves | Hint::RepairRestores | Hint::RepairSetsAside | Hint::RepairIntent
        ),
    }
}
