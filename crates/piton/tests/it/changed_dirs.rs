//! A caller that names the directories in which something changed: the others are taken from the stat cache.
//!
//! Every step is taken twice: into a store that is told the directories, and into a new one that lists everything.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use piton::{
    ChangedDirs, CheckpointKind, Facts, History, Moment, ObjectId, Outcome, Progress, Project, Report, Request,
    Settings, Store,
};
use testkit::Sandbox;

use crate::behind::bulk;
use crate::kit::{Dice, cases, left_out, next_tick, now, settled, take_at};
use crate::rescan::note;

const TREE: &str = "
    top.txt
    more.txt
    a/one.txt
    a/two.txt
    a/deep/er/x.txt
    a/deep/er/y.txt
    b/one.txt
    b/two.txt
    c/.gitignore = *.log\\n
    c/one.txt
    c/sub/one.txt
    c/sub/two.txt";

fn changed(dirs: &[&str]) -> ChangedDirs {
    let mut changed = ChangedDirs::default();
    dirs.iter().for_each(|dir| changed.add(dir.as_bytes()).expect("a relative path"));
    changed
}

fn take_changed(base: &Path, dir: &Path, settings: &Settings, changed: Option<ChangedDirs>) -> Report {
    let store = Store::open_or_create(base, now()).expect("a store");
    let project = Project::at(dir, None).expect("a project");
    let request = Request::default().reason("a test").kind(CheckpointKind::Manual).changed_dirs(changed);
    piton::take(&store, &project, &request, settings, settled(), &Progress::default()).expect("a take")
}

/// Everything that a checkpoint holds, and everything that its take reported.
#[derive(Debug, PartialEq)]
struct Seen {
    tree: Option<ObjectId>,
    files: u64,
    facts: Facts,
    skipped: Vec<String>,
    unprotected: bool,
}

fn seen(base: &Path, dir: &Path, report: &Report) -> Seen {
    let store = Store::open_existing(base).expect("a base").expect("a store");
    let project = Project::at(dir, None).expect("a project");
    let history = History::of(&store, &project).expect("a history");
    let mut facts = history.checkpoints().first().expect("a checkpoint").facts.clone();
    // An unchanged take leaves the facts about skipped files as they are.
    facts.skipped.clear();
    Seen { tree: report.tree, files: report.files, facts, skipped: left_out(report), unprotected: report.unprotected }
}

/// A project in a store that is told what changed.
struct Watched {
    sandbox: Sandbox,
    settings: Settings,
}

impl Watched {
    fn new(tree: &str) -> Self {
        let sandbox = Sandbox::new();
        sandbox.tree(tree);
        let watched = Self { sandbox, settings: Settings::default() };
        watched.take(None);
        watched
    }

    fn take(&self, changed: Option<ChangedDirs>) -> Report {
        let report = take_changed(&self.sandbox.base(), &self.sandbox.project(), &self.settings, changed);
        next_tick(&self.sandbox);
        report
    }

    /// Takes a checkpoint, and asserts that it equals one of a store that knows nothing.
    fn assert_whole(&self, changed: ChangedDirs, after: &str) -> Report {
        let (base, project) = (self.sandbox.base(), self.sandbox.project());
        let report = self.take(Some(changed));
        let fresh = self.sandbox.root().join("fresh");
        let _ = fs::remove_dir_all(&fresh);
        let all = take_at(&fresh, &project, &self.settings, now());
        assert_eq!(seen(&base, &project, &report), seen(&fresh, &project, &all), "after {after}");
        report
    }

    fn text_in(&self, report: &Report, path: &str) -> Option<String> {
        let tree = report.tree.expect("a tree");
        let listed = self.sandbox.store_git(&["ls-tree", "-r", "--name-only", &tree.to_string(), path]);
        (!listed.is_empty()).then(|| {
            let bytes = self.sandbox.store_git(&["cat-file", "blob", &format!("{tree}:{path}")]);
            String::from_utf8(bytes).expect("UTF-8")
        })
    }
}

/// C6.
#[test]
fn a_change_that_is_not_named_is_missing_until_a_take_lists_everything() {
    for tree in [TREE.to_owned(), format!("{TREE}\n{}", bulk())] {
        let watched = Watched::new(&tree);
        let sandbox = &watched.sandbox;
        sandbox.write("a/one.txt", "named");
        sandbox.write("a/deep/er/x.txt", "not named");
        sandbox.write("b/new.txt", "not named");
        fs::remove_file(sandbox.path("c/sub/two.txt")).expect("a file");
        let report = watched.take(Some(changed(&["a"])));
        let text = |path| watched.text_in(&report, path);
        assert_eq!(text("a/one.txt").as_deref(), Some("named"));
        assert_eq!(text("a/deep/er/x.txt").as_deref(), Some("a/deep/er/x.txt"), "it is taken from the cache");
        assert_eq!((text("b/new.txt"), text("c/sub/two.txt").is_some()), (None, true));
        // A second take that names nothing has nothing to find, and does not make the cache believe the changes.
        assert!(matches!(watched.take(Some(changed(&[]))).outcome, Outcome::Unchanged(_)));
        let report = watched.take(None);
        let text = |path| watched.text_in(&report, path);
        assert_eq!(text("a/deep/er/x.txt").as_deref(), Some("not named"));
        assert_eq!((text("b/new.txt").as_deref(), text("c/sub/two.txt")), (Some("not named"), None));
        sandbox.assert_store_is_whole();
    }
}

/// C6.
#[test]
fn a_take_that_is_told_the_right_directories_equals_one_that_lists_everything() {
    let watched = Watched::new(TREE);
    let sandbox = &watched.sandbox;
    let mode = |path: &str, mode| {
        fs::set_permissions(sandbox.path(path), fs::Permissions::from_mode(mode)).expect("permissions");
    };
    sandbox.write("a/deep/er/x.txt", "edited");
    watched.assert_whole(changed(&["a/deep/er"]), "an edit");
    sandbox.write("a/new/dir/z.txt", "new");
    watched.assert_whole(changed(&["a"]), "a new directory");
    fs::create_dir_all(sandbox.path("b/empty/more")).expect("a directory");
    watched.assert_whole(changed(&["b"]), "empty directories");
    sandbox.write("b/empty/more/file.txt", "no longer empty");
    watched.assert_whole(changed(&["b/empty/more"]), "a file in a directory that the cache does not know");
    mode("c/sub/one.txt", 0o600);
    mode("a/one.txt", 0o755);
    watched.assert_whole(changed(&["c/sub", "a"]), "other permissions");
    mode("b", 0o700);
    watched.assert_whole(changed(&["b"]), "other permissions of a directory");
    sandbox.write("top.txt", "edited");
    watched.assert_whole(changed(&["."]), "an edit beside directories with unusual permissions");
    sandbox.write("c/sub/skipped.log", "ignored");
    watched.assert_whole(changed(&["c/sub"]), "an ignored file");
    sandbox.write("c/.gitignore", "*.txt\n");
    watched.assert_whole(changed(&["c"]), "rules for everything below");
    sandbox.write("c/.gitignore", "*.log\n.gitignore\n");
    watched.assert_whole(changed(&["c"]), "rules that leave themselves out");
    sandbox.write("c/sub/new.log", "ignored");
    sandbox.write("c/sub/new.txt", "new");
    watched.assert_whole(changed(&["c/sub"]), "files below such rules");
    fs::remove_dir_all(sandbox.path("a/deep")).expect("a directory");
    watched.assert_whole(changed(&["a"]), "a directory that is gone");
    fs::rename(sandbox.path("b"), sandbox.path("a/moved")).expect("a rename");
    let mut moved = changed(&["."]);
    moved.add_with_contents(b"a").expect("a path");
    watched.assert_whole(moved, "a directory that was moved");
    sandbox.assert_store_is_whole();
}

/// C3, C6.
#[test]
fn the_list_is_not_used_if_the_cache_is_not_trusted() {
    let expect_found = |what: &str, prepare: &dyn Fn(&mut Watched)| {
        let mut watched = Watched::new(TREE);
        prepare(&mut watched);
        watched.sandbox.write("b/one.txt", "not named");
        let report = watched.take(Some(changed(&["a"])));
        assert_eq!(watched.text_in(&report, "b/one.txt").as_deref(), Some("not named"), "{what}");
    };
    expect_found("another run of the machine", &|watched| note(&watched.sandbox, "index_boot", "another".into()));
    expect_found("another index", &|watched| note(&watched.sandbox, "index", "another".into()));
    expect_found("a smaller limit", &|watched| watched.settings.max_file_size_mb = 1);
    expect_found("other rules", &|watched| watched.settings.exclude = vec!["*.tmp".to_owned()]);
    expect_found("no size limit on record", &|watched| note(&watched.sandbox, "index_limit", serde_json::Value::Null));
    expect_found("few files", &|watched| {
        fs::remove_dir_all(watched.sandbox.path("c")).expect("a directory");
        fs::remove_dir_all(watched.sandbox.path("a/deep")).expect("a directory");
        watched.take(None);
    });
}

/// C5, C6: an entry of a file that had just changed when it was read is not trusted, even if the caller vouches for it.
#[test]
fn a_young_file_is_looked_at_although_it_is_not_named() {
    let sandbox = Sandbox::new();
    sandbox.tree(TREE);
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), now());
    next_tick(&sandbox);
    sandbox.write("b/one.txt", "not named");
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let request = Request::default().kind(CheckpointKind::Manual).changed_dirs(changed(&["a"]));
    let later = Moment { secs: now().secs + 5, ..now() };
    let report =
        piton::take(&store, &project, &request, &Settings::default(), later, &Progress::default()).expect("a take");
    let blob = format!("{}:b/one.txt", report.tree.expect("a tree"));
    assert_eq!(sandbox.store_git(&["cat-file", "blob", &blob]), b"not named");
}

/// C6. Random edits, with exactly the directories named in which they were made.
#[test]
fn any_sequence_of_named_changes_is_followed() {
    const DIRS: [&str; 9] = ["", "a", "a/b", "a/b/c", "d", "d/e", "d/e/f", "g", "g/h"];
    const NAMES: [&str; 5] = ["x.txt", "y.txt", "z.log", ".gitignore", "w"];
    const RULES: [&str; 5] = ["*.log\n", ".gitignore\n*.txt\n", "w\n", "/x.txt\n", "!*\n"];
    for seed in 0..cases("PITON_CHANGED_CASES", 6) {
        let mut dice = Dice::new(seed + 1);
        let files =
            DIRS.map(|dir| format!("{dir}/x.txt\n{dir}/keep.txt\n").trim_start_matches('/').replace("\n/", "\n"));
        let extra = if seed % 2 == 0 { String::new() } else { bulk() };
        let watched = Watched::new(&format!("{}\n{extra}", files.concat()));
        let sandbox = &watched.sandbox;
        let mut story = String::new();
        // The newest checkpoint is what a caller's list refers to: an unchanged take does not end it.
        let mut named: BTreeSet<String> = BTreeSet::new();
        for _ in 0..15 {
            for _ in 0..dice.roll(3) + 1 {
                let (dir, name) = (dice.pick(&DIRS), dice.pick(&NAMES));
                let path = format!("{dir}/{name}").trim_start_matches('/').to_owned();
                let did = change(&mut dice, sandbox, dir, &path, RULES[dice_rule(name, &path)], &mut named);
                story = format!("{story}\n  {did}");
            }
            story = format!("{story}\n  take {named:?}");
            let mut list = ChangedDirs::default();
            for dir in &named {
                list.add(if dir.is_empty() { b"." } else { dir.as_bytes() }).expect("a path");
            }
            let report = watched.assert_whole(list, &format!("(seed {seed}){story}"));
            if matches!(report.outcome, Outcome::Taken(_)) {
                named.clear();
            }
        }
        sandbox.assert_store_is_whole();
    }
}

fn dice_rule(name: &str, path: &str) -> usize {
    (name.len() + path.len()) % 5
}

/// Makes one change, and adds the directories in which it shows.
fn change(
    dice: &mut Dice,
    sandbox: &Sandbox,
    dir: &str,
    path: &str,
    rule: &str,
    named: &mut BTreeSet<String>,
) -> String {
    // A directory that is made shows in the one around it, which did not have it.
    let make_dir = |dir: &str, named: &mut BTreeSet<String>| {
        let mut missing = Path::new(dir);
        while !missing.as_os_str().is_empty() && !sandbox.project().join(missing).exists() {
            missing = missing.parent().unwrap_or(Path::new(""));
            named.insert(missing.to_string_lossy().into_owned());
        }
        fs::create_dir_all(sandbox.path(dir)).expect("a directory");
    };
    match dice.roll(7) {
        0..3 => {
            make_dir(dir, named);
            let text = if path.ends_with(".gitignore") { rule.to_owned() } else { format!("{}", dice.roll(3)) };
            sandbox.write(path, &text);
            named.insert(dir.to_owned());
            format!("write {path} = {text:?}")
        }
        3 => {
            let _ = fs::remove_file(sandbox.path(path));
            named.insert(dir.to_owned());
            format!("rm {path}")
        }
        4 if !dir.is_empty() => {
            let _ = fs::remove_dir_all(sandbox.path(dir));
            let around = Path::new(dir).parent().unwrap_or(Path::new(""));
            named.insert(around.to_string_lossy().into_owned());
            format!("rm -r {dir}")
        }
        5 => {
            let empty = format!("{dir}/empty{}", dice.roll(2)).trim_start_matches('/').to_owned();
            make_dir(&empty, named);
            format!("mkdir {empty}")
        }
        _ => {
            let mode = if dice.roll(2) == 0 { 0o755 } else { 0o600 };
            let _ = fs::set_permissions(sandbox.path(path), fs::Permissions::from_mode(mode));
            named.insert(dir.to_owned());
            format!("chmod {path} {mode:o}")
        }
    }
}
