//! Hard links, and files named like a restore's temporary files: a restore changes the files that it was asked to
//! change, and nothing that is merely linked to them or looks like its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use piton::{RestoreOptions, RestoreOutcome, RestoreTo, Settings};
use testkit::Sandbox;

use crate::kit::{Dice, cases, paths_in, project_id, take, taken};
use crate::restore_kit::{assert_same, left_by, pairs, restore_between, restored, state_of, try_restore};

const FIRST: RestoreTo<'static> = RestoreTo::Named("1");

/// Creates a hard link to a file of the project, outside of the project.
fn linked_outside(sandbox: &Sandbox, path: &str) -> PathBuf {
    let outside = sandbox.root().join(format!("outside-{}", path.replace('/', "-")));
    fs::hard_link(sandbox.path(path), &outside).expect("a link");
    outside
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

/// W4.
#[test]
fn a_restored_mode_does_not_reach_the_other_names_of_a_file() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n script = 2\n single = 3\n inside/one = 4");
    taken(&take(&sandbox));
    let outside = ["a", "script"].map(|path| linked_outside(&sandbox, path));
    fs::hard_link(sandbox.path("inside/one"), sandbox.path("inside/two")).expect("a link");
    sandbox.chmod("a", 0o600);
    sandbox.chmod("script", 0o755);
    sandbox.chmod("single", 0o600);
    sandbox.chmod("inside/one", 0o640);
    let before = state_of(&sandbox.project());
    let report = restored(&sandbox, FIRST, &[]);
    assert_eq!((report.modes_changed, report.removed.len(), report.written.len()), (4, 1, 0), "{report:?}");
    assert_eq!(["a", "script", "single", "inside/one"].map(|path| mode_of(&sandbox.path(path))), [0o644; 4]);
    assert_eq!(outside.each_ref().map(|path| mode_of(path)), [0o600, 0o755]);
    assert_eq!(outside.each_ref().map(|path| fs::read(path).expect("a file")), [b"1", b"2"]);
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
    assert_eq!(outside.each_ref().map(|path| mode_of(path)), [0o600, 0o755]);
}

/// The file gets its second link after the plan was made: then the restore must not change its mode.
#[test]
fn a_file_that_gets_another_name_meanwhile_keeps_its_mode() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    sandbox.chmod("a", 0o600);
    let mut outside = PathBuf::new();
    let options = RestoreOptions::default();
    let report = restore_between(&sandbox, FIRST, options, &Settings::default(), |_| {
        outside = linked_outside(&sandbox, "a");
    });
    let report = report.expect("a restore");
    assert_eq!((report.outcome, left_by(&report)), (RestoreOutcome::Partly, pairs(&[("a", "changed")])));
    assert_eq!((mode_of(&outside), mode_of(&sandbox.path("a"))), (0o600, 0o600));
}

/// The timestamps of a file with two links prove nothing, and any file's may be set back.
#[test]
fn an_edit_of_equal_size_with_its_time_put_back_is_neither_replaced_nor_removed() {
    let sandbox = Sandbox::new();
    sandbox.tree("replaced = 1");
    taken(&take(&sandbox));
    sandbox.tree("replaced = 2\n removed = 2");
    ["replaced", "removed"].iter().for_each(|path| drop(linked_outside(&sandbox, path)));
    let options = RestoreOptions::default();
    let report = restore_between(&sandbox, FIRST, options, &Settings::default(), |_| {
        for path in ["replaced", "removed"] {
            let file = fs::File::options().write(true).open(sandbox.path(path)).expect("a file");
            let time = file.metadata().and_then(|stat| stat.modified()).expect("a time");
            std::io::Write::write_all(&mut &file, b"3").expect("room");
            file.set_modified(time).expect("a time");
        }
    });
    let report = report.expect("a restore");
    assert_eq!(left_by(&report), pairs(&[("removed", "changed"), ("replaced", "changed")]));
    assert_eq!(["removed", "replaced"].map(|path| fs::read(sandbox.path(path)).expect("a file")), [b"3", b"3"]);
    assert_eq!(fs::read_dir(sandbox.project()).expect("a directory").count(), 2);
}

#[test]
fn a_file_that_is_named_like_a_temporary_one_is_a_file_like_any_other() {
    let sandbox = Sandbox::new();
    let names = [".piton-restore-w-1", ".piton-restore-w", "d/.piton-restore-x-0123abc-m-1", ".piton-restore-"];
    let tree = |text: &str| names.iter().for_each(|name| sandbox.write(name, text));
    tree("first");
    sandbox.write("a", "1");
    let first = taken(&take(&sandbox));
    let mut expected: Vec<_> = names.iter().copied().chain(["a"]).collect();
    expected.sort_unstable();
    assert_eq!(paths_in(&sandbox, &first), expected);
    tree("second");
    sandbox.write(".piton-restore-w-2", "made since");
    let before = state_of(&sandbox.project());
    let report = restored(&sandbox, FIRST, &[]);
    assert_eq!(report.removed, [b".piton-restore-w-2".to_vec()]);
    assert_eq!(report.written.len(), names.len());
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
}

/// Only the names that a restore recorded before it used them are its own, and of those only files that are in the
/// store or were never in place are removed.
#[test]
fn leftovers_of_an_interrupted_restore_are_found_by_its_token() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/b");
    let first = taken(&take(&sandbox));
    sandbox.tree("a = 2");
    let safety = taken(&take(&sandbox));
    // Written but not yet in place; moved out of its place, and in the store or not; and the user's own.
    sandbox
        .tree(".piton-restore-w-cafe-0-1 = half of it\n d/.piton-restore-w-cafe-m-2\n .piton-restore-x-cafe-0-3 = 1");
    sandbox.tree(".piton-restore-x-cafe-0-4 = nobody else has it\n .piton-restore-w-beef-0-1 = the user's");
    let intent = format!(r#"{{"target":"{first}","safety":"{safety}","paths":[],"tokens":["cafe"]}}"#);
    fs::create_dir_all(sandbox.store().join("restores")).expect("a directory");
    let path = sandbox.store().join("restores").join(format!("{}.json", project_id(&sandbox)));
    fs::write(path, intent).expect("an intent");
    let report = try_restore(&sandbox, RestoreTo::Continue, &[]).expect("a restore");
    assert_eq!(left_by(&report), pairs(&[(".piton-restore-x-cafe-0-4", "temporary")]));
    assert_eq!(report.removed, [b".piton-restore-w-beef-0-1".to_vec()]);
    let names: Vec<_> = state_of(&sandbox.project()).into_keys().collect();
    assert_eq!(names, [&b".piton-restore-x-cafe-0-4"[..], b"a", b"d", b"d/b"]);
    // Removed as a file created since, so the newest checkpoint contains it.
    let newest = crate::kit::newest(&sandbox).id.to_string();
    assert!(paths_in(&sandbox, &newest).contains(&".piton-restore-w-beef-0-1".to_owned()));
}

/// Random edits of contents and modes, in place or by replacement, of files with hard links outside. After any restore,
/// the files outside are as the edits left them, and an undo brings everything back.
#[test]
fn no_restore_changes_what_is_outside_of_the_project() {
    for seed in 0..cases("PITON_LINKS_CASES", 30) {
        let mut dice = Dice::new(seed);
        let sandbox = Sandbox::new();
        let outside = sandbox.root().join("outside");
        fs::create_dir(&outside).expect("a directory");
        let names = ["a", "b", "d/c", ".piton-restore-w-7", "d/.piton-restore-x-8"];
        for name in names {
            sandbox.write(name, format!("{name} at first"));
            if dice.roll(2) == 0 {
                fs::hard_link(sandbox.path(name), outside.join(name.replace('/', "-"))).expect("a link");
            }
        }
        taken(&take(&sandbox));
        for step in 0..6 {
            let name = names[dice.roll(names.len())];
            let path = sandbox.path(name);
            match dice.roll(5) {
                0 => sandbox.write(name, format!("{name} in step {step}")),
                1 if path.exists() => fs::remove_file(&path).expect("a file"),
                2 if path.exists() => sandbox.chmod(name, [0o600, 0o644, 0o755, 0o700][dice.roll(4)]),
                3 if !path.exists() => sandbox.write(name, "made again"),
                4 if path.exists() => {
                    let link = outside.join(format!("{step}-{}", name.replace('/', "-")));
                    fs::hard_link(&path, link).expect("a link");
                }
                _ => {}
            }
        }
        let (before, others) = (state_of(&sandbox.project()), state_of(&outside));
        let _ = try_restore(&sandbox, FIRST, &[]).expect("a restore");
        assert_same(&state_of(&outside), &others, &format!("outside, seed {seed}"));
        let _ = try_restore(&sandbox, RestoreTo::Undo, &[]).expect("an undo");
        assert_same(&state_of(&outside), &others, &format!("outside after undo, seed {seed}"));
        assert_same(&state_of(&sandbox.project()), &before, &format!("after undo, seed {seed}"));
    }
}
