//! Attacks on the store and the project that no other suite covers. docs/SECURITY.md has the whole list, with the test
//! for each point.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use piton::{ErrorKind, Progress, Project, Request, RestoreTo, Settings, Store};
use testkit::{Sandbox, git};

use crate::hostile::Victim;
use crate::kit::{is_root, now, project_id, take, taken};
use crate::restore_kit::{assert_same, kind_of, state_of, try_restore};

const FIRST: RestoreTo<'_> = RestoreTo::Named("1");

fn try_take(sandbox: &Sandbox) -> piton::Result<piton::Report> {
    let store = Store::open_or_create(&sandbox.base(), now())?;
    let project = Project::at(&sandbox.project(), Some(&sandbox.home()))?;
    let request = Request::default().reason("a test");
    piton::take(&store, &project, &request, &Settings::default().enabled(true), now(), &Progress::default())
}

/// Puts a symlink in place of a file or directory.
fn plant_link(at: &Path, target: &Path) {
    let _ = fs::remove_file(at);
    let _ = fs::remove_dir_all(at);
    fs::create_dir_all(at.parent().expect("a directory around it")).expect("directories");
    symlink(target, at).expect("a link");
}

#[test]
fn a_link_planted_in_place_of_any_file_of_the_store_is_not_written_through() {
    let names = ["shallow", "size", "config", "HEAD", "packed-refs", "info/exclude", "info/attributes", "shallow.lock"];
    let locks = ["locks/gc", "locks/gate", "locks/store", "locks/size", "locks/PROJECT"];
    let own = [
        "refs/hermes/PROJECT",
        "refs/hermes/PROJECT.lock",
        "indexes/PROJECT",
        "projects/PROJECT.json",
        "../.last_prune",
    ];
    for name in names.iter().chain(&locks).chain(&own) {
        for target in ["there", "missing"] {
            let sandbox = Sandbox::new();
            let outside = sandbox.other_project("outside");
            fs::write(outside.join("there"), "theirs").expect("a file");
            sandbox.tree("a.txt = 1");
            taken(&take(&sandbox));
            sandbox.write("a.txt", "2");
            let before = state_of(&outside);
            plant_link(&sandbox.store().join(name.replace("PROJECT", &project_id(&sandbox))), &outside.join(target));
            // The result is an error or a checkpoint; tried twice, because the first try may have replaced the symlink.
            for _ in 0..2 {
                let _ = try_take(&sandbox);
            }
            assert_same(&state_of(&outside), &before, &format!("{name} -> {target}"));
        }
    }
}

#[test]
fn a_link_planted_in_place_of_any_directory_of_the_store_is_refused() {
    let names = [
        "objects",
        "objects/pack",
        "objects/info",
        "refs",
        "refs/hermes",
        "info",
        "indexes",
        "projects",
        "locks",
        "restores",
        "turns",
        "notices",
        "repairs",
        "installs",
    ];
    for name in names {
        let sandbox = Sandbox::new();
        let outside = sandbox.other_project("outside");
        sandbox.tree("a.txt = 1");
        taken(&take(&sandbox));
        sandbox.write("a.txt", "2");
        plant_link(&sandbox.store().join(name), &outside);
        let error = try_take(&sandbox).expect_err(name);
        assert!(matches!(error.kind(), ErrorKind::NotOurs | ErrorKind::Io), "{name}: {error}");
        assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 0, "{name}");
    }
}

#[test]
fn a_base_or_store_that_others_may_write_to_is_made_the_owners_alone_again() {
    for dirs in [&[""][..], &["store"], &["", "store"]] {
        for mode in [0o777, 0o720, 0o702] {
            let sandbox = Sandbox::new();
            sandbox.tree("a.txt = 1");
            taken(&take(&sandbox));
            let dirs: Vec<_> = dirs.iter().map(|dir| sandbox.base().join(dir)).collect();
            for dir in &dirs {
                fs::set_permissions(dir, Permissions::from_mode(mode)).expect("permissions");
            }
            sandbox.write("a.txt", "2");
            taken(&take(&sandbox));
            for dir in dirs {
                let now = dir.metadata().expect("a directory").permissions().mode() & 0o7777;
                assert_eq!(now, 0o700, "{} was {mode:o}", dir.display());
            }
        }
    }
}

#[test]
fn a_link_to_a_store_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    taken(&take(&sandbox));
    let theirs = sandbox.root().join("theirs");
    fs::rename(sandbox.store(), &theirs).expect("a rename");
    symlink(&theirs, sandbox.store()).expect("a link");
    taken(&{
        sandbox.write("a.txt", "2");
        take(&sandbox)
    });
    chown(&theirs, Some(65_534), None).expect("an owner");
    sandbox.write("a.txt", "3");
    assert_eq!(kind_of(try_take(&sandbox)), ErrorKind::NotOurs);
    assert_eq!(kind_of(Store::open_existing(&sandbox.base())), ErrorKind::NotOurs);
}

#[test]
fn a_store_that_leans_on_another_repository_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    taken(&take(&sandbox));
    let other = sandbox.other_project("other");
    let elsewhere =
        |args: &[&str]| assert!(git().current_dir(&other).args(args).output().expect("git runs").status.success());
    elsewhere(&["init", "-q"]);
    fs::write(other.join("b.txt"), "what only the other repository holds").expect("a file");
    elsewhere(&["add", "."]);
    let alternates = sandbox.store().join("objects/info/alternates");
    fs::write(&alternates, format!("{}\n", other.join(".git/objects").display())).expect("a file");
    sandbox.write("b.txt", "what only the other repository holds");
    let error = try_take(&sandbox).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::NotOurs);
    assert_eq!(error.hint(), Some(piton::Hint::RemoveAlternates), "{error}");
    assert_eq!(kind_of(try_restore(&sandbox, FIRST, &[])), ErrorKind::NotOurs);
    // An empty alternates file refers to no other repository.
    fs::write(&alternates, "").expect("a file");
    let id = taken(&take(&sandbox));
    fs::remove_dir_all(other).expect("a directory");
    assert_eq!(sandbox.held_by(&id), testkit::files_in(&sandbox.project()));
}

#[test]
fn stock_gits_ways_to_make_one_object_stand_for_another_change_nothing() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let first = taken(&take(&sandbox));
    sandbox.write("a.txt", "2");
    let second = taken(&take(&sandbox));
    fs::write(sandbox.store().join("info/grafts"), format!("{second}\n")).expect("a file");
    sandbox.store_git(&["update-ref", &format!("refs/replace/{second}"), &first]);
    let blob = |of: &str| String::from_utf8(sandbox.store_git(&["rev-parse", of])).expect("an id").trim().to_owned();
    let (old, new) = (blob(&format!("{first}:a.txt")), blob(&format!("{second}:a.txt")));
    sandbox.store_git(&["update-ref", &format!("refs/replace/{old}"), &new]);
    sandbox.write("a.txt", "3");
    try_restore(&sandbox, RestoreTo::Named(&first[..12]), &[]).expect("a restore");
    assert_eq!(fs::read(sandbox.path("a.txt")).expect("a file"), b"1");
}

#[test]
fn a_tree_with_names_that_no_file_can_have_costs_those_and_nothing_else() {
    let victim = Victim::new();
    let blob = victim.object("blob", b"evil");
    let long = vec![b'n'; 300];
    let tree = victim.tree(&[("100644", b"fine", &blob), ("100644", &long, &blob)]);
    victim.plant(&tree, "too long");
    let report = try_restore(&victim.sandbox, FIRST, &[]).expect("a restore");
    assert!(report.left.iter().any(|left| left.path == long), "{report:?}");
    assert_eq!(fs::read(victim.sandbox.path("fine")).expect("a file"), b"evil");
    // A path longer than the system accepts in one call.
    let mut tree = victim.tree(&[("100644", b"x", &blob)]);
    for _ in 0..40 {
        tree = victim.tree(&[("40000", &[b'd'; 200], &tree)]);
    }
    victim.plant(&tree, "too deep");
    let _ = try_restore(&victim.sandbox, FIRST, &[]);
    try_restore(&victim.sandbox, RestoreTo::Undo, &[]).ok();
}

#[test]
fn a_tree_of_a_hundred_thousand_names_that_are_all_one_file_is_read_within_limits() {
    let victim = Victim::new();
    let blob = victim.object("blob", b"x");
    let names: Vec<String> = (0..100_000).map(|number| format!("{number:06}")).collect();
    let entries: Vec<(&str, &[u8], &str)> = names.iter().map(|name| ("100644", name.as_bytes(), &*blob)).collect();
    let tree = victim.tree(&entries);
    victim.plant(&tree, "many");
    let paths = ["000007"];
    let report = try_restore(&victim.sandbox, FIRST, &paths).expect("a restore");
    assert_eq!(report.written.len(), 1);
}

/// The directories that a restore writes to are swapped continuously for symlinks to the outside and back.
#[test]
fn directories_that_are_swapped_for_links_during_a_restore_lead_nowhere() {
    let sandbox = Sandbox::new();
    let outside = sandbox.other_project("outside");
    for number in 0..40 {
        sandbox.write(format!("d/{number}"), "1");
        fs::write(outside.join(number.to_string()), "theirs").expect("a file");
    }
    fs::create_dir(outside.join("sub")).expect("a directory");
    sandbox.tree("d/sub/x = 1\n other = 1");
    taken(&take(&sandbox));
    let before = state_of(&outside);
    let (real, link) = (sandbox.path("d"), sandbox.root().join("link"));
    symlink(&outside, &link).expect("a link");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let aside = sandbox.root().join("aside");
            while !is_over.load(Ordering::Relaxed) {
                // Each rename may fail: a restore creates its own directory in place of the symlink.
                if fs::rename(&real, &aside).is_ok() {
                    let _ = fs::rename(&link, &real);
                    let _ = fs::rename(&real, &link);
                    let _ = fs::rename(&aside, &real);
                }
                if !link.is_symlink() {
                    let _ = fs::remove_dir_all(&link);
                    let _ = symlink(&outside, &link);
                }
            }
        });
        for round in 0..60 {
            for number in 0..40 {
                let _ = fs::write(real.join(number.to_string()).with_extension("new"), "2");
            }
            let _ = fs::write(sandbox.path("other"), round.to_string());
            // The result depends on timing. The places that it may write to do not.
            let _ = try_restore(&sandbox, FIRST, &[]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut after = state_of(&outside);
    // The test itself writes through the symlink.
    after.retain(|path, _| !path.ends_with(b".new"));
    assert_same(&after, &before, "the directory outside");
}
