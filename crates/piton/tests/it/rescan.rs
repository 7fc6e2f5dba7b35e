//! A scan trusts what the previous one recorded, and must give the same result as a scan that trusts nothing.
//!
//! Every step here is taken twice: into the store that knows the project, and into a new one.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use piton::{CheckpointKind, Moment, Outcome, Progress, Project, Report, Request, Settings, Store};
use testkit::{Sandbox, git};

use crate::behind::bulk;
use crate::kit::{Dice, cases, left_out, next_tick, now, paths_in, project_id, settled, take, take_at, taken};

/// A project and its settings, both of which change from step to step.
struct Twice {
    sandbox: Sandbox,
    settings: RefCell<Settings>,
}

impl Twice {
    fn new(tree: &str) -> Self {
        let sandbox = Sandbox::new();
        sandbox.project_git(&["init", "-q"]);
        sandbox.tree(tree);
        let twice = Self { sandbox, settings: RefCell::default() };
        twice.assert_same("at first");
        twice
    }

    /// Creates one project as given, and one with so many more files that its index may become outdated.
    fn both(tree: &str) -> [Self; 2] {
        [Self::new(tree), Self::new(&format!("{tree}\n{}", bulk()))]
    }

    fn assert_same(&self, after: &str) {
        let sandbox = &self.sandbox;
        let known = take_at(&sandbox.base(), &sandbox.project(), &self.settings.borrow(), settled());
        let fresh = sandbox.root().join("fresh");
        let _ = fs::remove_dir_all(&fresh);
        Store::open_or_create(&fresh, now()).expect("a store");
        fs::copy(self.exclude_list(), fresh.join("store/info/exclude")).expect("the list");
        let new = take_at(&fresh, &sandbox.project(), &self.settings.borrow(), now());
        assert_eq!(seen(&sandbox.base(), &known), seen(&fresh, &new), "after {after}");
        next_tick(sandbox);
    }

    fn step(&self, what: &str, change: impl Fn(&Self)) {
        change(self);
        self.assert_same(what);
    }

    fn exclude_list(&self) -> std::path::PathBuf {
        self.sandbox.store().join("info/exclude")
    }

    fn edit_exclude_list(&self, from: &str, to: &str) {
        let list = fs::read_to_string(self.exclude_list()).expect("the list");
        fs::write(self.exclude_list(), list.replace(from, to)).expect("the list");
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.sandbox.path(from), self.sandbox.path(to)).expect("a rename");
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.sandbox.path(path)).expect("a file");
    }
}

/// Returns everything that the scope decides: the files, what was left out, and whether that is too much.
fn seen(base: &Path, report: &Report) -> (String, Vec<String>, bool) {
    let files = match report.outcome {
        Outcome::Taken(id) | Outcome::Unchanged(id) => {
            let store = format!("--git-dir={}", base.join("store").display());
            let output = git().arg(store).args(["ls-tree", "-r", &id.to_string()]).output().expect("git runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => String::new(),
    };
    (files, left_out(report), report.unprotected)
}

const TREE: &str = "
    a.txt
    notes.tmp
    app.log
    src/main.rs
    src/keep.tmp
    src/gen/x.gen
    src/gen/y.gen
    dist/bundle.js
    dist/deep/bundle.css
    docs/.gitignore = *.html\\n
    docs/a.html
    docs/a.md
    docs/more/b.html
    docs/more/b.md";

#[test]
fn a_rule_that_comes_goes_or_changes_is_followed() {
    for twice in Twice::both(TREE) {
        let write = |path: &'static str, text: &'static str| move |twice: &Twice| twice.sandbox.write(path, text);
        twice.step("a new .gitignore", write(".gitignore", "*.tmp\n"));
        twice.step("a negation in it", write(".gitignore", "*.tmp\n!keep.tmp\n"));
        twice.step("a nested one", write("src/.gitignore", "gen/\n"));
        twice.step("another one of the same length", write("src/.gitignore", "*.rs\n"));
        twice.step("an edit of the same length", write("docs/.gitignore", "*a.md\n"));
        twice.step("a nested one that is gone", |twice| twice.remove("docs/.gitignore"));
        twice.step("a .gitignore that is gone", |twice| twice.remove(".gitignore"));
        twice.step("a directory that moves with its rules", |twice| twice.rename("src", "docs/src"));
        twice.step("and back", |twice| twice.rename("docs/src", "src"));
        twice.step("rules for everything", write(".gitignore", "/*\n"));
        twice.step("and none", write(".gitignore", "# /*\n"));
        twice.step("a link in the place of rules", |twice| {
            twice.remove("src/.gitignore");
            twice.sandbox.link("src/.gitignore", "../.gitignore");
        });
        twice.step("a directory in the place of rules", |twice| {
            twice.remove("src/.gitignore");
            twice.sandbox.tree("src/.gitignore/file");
        });
    }
}

#[test]
fn rules_that_are_out_of_scope_themselves_are_followed() {
    for twice in Twice::both(TREE) {
        let write = |path: &'static str, text: &'static str| move |twice: &Twice| twice.sandbox.write(path, text);
        twice.step("rules that leave themselves out", write(".gitignore", ".gitignore\n*.tmp\n"));
        twice.step("nothing", |_| ());
        twice.step("an edit of them", write(".gitignore", ".gitignore\n*.txt\n"));
        twice.step("nested ones", write("src/.gitignore", "gen\n"));
        twice.step("an edit of the nested ones", write("src/.gitignore", "*.rs"));
        twice.step("others by rename", |twice| {
            twice.sandbox.write("src/new", "gen\n");
            twice.rename("src/new", "src/.gitignore");
        });
        twice.step("nested ones that are gone", |twice| twice.remove("src/.gitignore"));
        twice.step("all of them gone", |twice| twice.remove(".gitignore"));
    }
}

#[test]
fn what_the_projects_git_tracks_from_now_on_or_no_more_is_followed() {
    for twice in Twice::both(TREE) {
        let run = |args: &'static [&'static str]| move |twice: &Twice| drop(twice.sandbox.project_git(args));
        twice.step("rules", |twice| twice.sandbox.write(".gitignore", "*.tmp\nsrc/gen/\n"));
        twice.step("git add of an ignored file", run(&["add", "-f", "notes.tmp"]));
        twice.step("git add in an ignored directory", run(&["add", "-f", "src/gen/x.gen"]));
        twice.step("git add in an excluded directory", run(&["add", "-f", "dist/deep/bundle.css"]));
        twice.step("a neighbour of it", |twice| twice.sandbox.write("dist/deep/other.css", "x"));
        twice.step("an edit of it", |twice| twice.sandbox.write("dist/deep/bundle.css", "edited"));
        twice.step("git rm --cached", run(&["rm", "-q", "-f", "--cached", "notes.tmp", "dist/deep/bundle.css"]));
        twice.step("git add -N", run(&["add", "-N", "-f", "app.log"]));
        twice.step("version 4", run(&["update-index", "--index-version", "4"]));
        twice.step("a split index", run(&["update-index", "--split-index"]));
        twice.step("an addition to it", run(&["add", "-f", "dist/bundle.js"]));
        twice.step("a removal from it", run(&["rm", "-q", "--cached", "src/gen/x.gen"]));
        twice.step("no repository", |twice| fs::remove_dir_all(twice.sandbox.path(".git")).expect(".git"));
    }
}

#[test]
fn a_list_or_a_setting_that_changes_is_followed() {
    for twice in Twice::both(TREE) {
        let set = |change: fn(&mut Settings)| move |twice: &Twice| change(&mut twice.settings.borrow_mut());
        twice.step("a line less in the exclude list", |twice| twice.edit_exclude_list("dist/\n", ""));
        twice.step("another line of the same length", |twice| twice.edit_exclude_list("*.log", "*.css"));
        twice.step("a line more", |twice| twice.edit_exclude_list("*.css", "*.md"));
        twice.step("an exclude setting", set(|settings| settings.exclude = vec!["src/".into()]));
        twice
            .step("an include setting", set(|settings| settings.include = vec!["src/gen/x.gen".into(), "*.md".into()]));
        twice.step(
            "the same patterns the other way round",
            set(|settings| {
                std::mem::swap(&mut settings.include, &mut settings.exclude);
            }),
        );
        twice.step("none of them", set(|settings| *settings = Settings::default()));
    }
}

#[test]
fn any_sequence_of_such_changes_is_followed() {
    const PATHS: [&str; 8] =
        ["a.txt", "b.tmp", "src/a.txt", "src/b.tmp", "src/gen/c.txt", "dist/a.txt", "dist/sub/b.tmp", "x/y/c.txt"];
    const DIRS: [&str; 5] = ["", "src/", "src/gen/", "x/", "dist/"];
    const RULES: [&str; 10] =
        ["*.tmp", "!*.tmp", "/src/", "gen/", "*.txt\n!a.txt", "*", ".gitignore", "!dist/", "c.txt", "/*\n!/src/"];
    for seed in 0..cases("PITON_RESCAN_CASES", 6) {
        let mut dice = Dice::new(seed + 1);
        let [small, large] = Twice::both("root.txt\n src/a.txt\n src/gen/c.txt\n dist/a.txt\n x/y/c.txt");
        let twice = if seed % 2 == 0 { small } else { large };
        let mut story = String::new();
        for _ in 0..15 {
            let (path, dir, rule) = (dice.pick(&PATHS), dice.pick(&DIRS), dice.pick(&RULES));
            let sandbox = &twice.sandbox;
            let did = match dice.roll(8) {
                0..3 => {
                    sandbox.write(format!("{dir}.gitignore"), rule);
                    format!("{dir}.gitignore = {rule:?}")
                }
                3 => {
                    let _ = fs::remove_file(sandbox.path(format!("{dir}.gitignore")));
                    format!("rm {dir}.gitignore")
                }
                4 => {
                    sandbox.write(path, format!("{}", dice.roll(2)));
                    format!("write {path}")
                }
                5 => {
                    let _ = fs::remove_file(sandbox.path(path));
                    format!("rm {path}")
                }
                6 => {
                    let _ = git().current_dir(sandbox.project()).args(["add", "-f", path]).output();
                    format!("git add {path}")
                }
                _ => {
                    let args = ["rm", "-q", "--cached", path];
                    let _ = git().current_dir(sandbox.project()).args(args).output();
                    format!("git rm {path}")
                }
            };
            story = format!("{story}\n  {did}");
            twice.assert_same(&format!("(seed {seed}){story}"));
        }
        twice.sandbox.assert_store_is_whole();
    }
}

#[test]
fn a_file_with_the_same_size_and_a_restored_time_is_seen() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = before\n b.txt");
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
    next_tick(&sandbox);
    let time = sandbox.path("a.txt").metadata().and_then(|stat| stat.modified()).expect("a time");
    sandbox.write("a.txt", "after!");
    let file = fs::File::options().write(true).open(sandbox.path("a.txt")).expect("a file");
    file.set_modified(time).expect("a time");
    let id = taken(&take(&sandbox));
    assert_eq!(sandbox.store_git(&["cat-file", "blob", &format!("{id}:a.txt")]), b"after!");
}

/// C1.
#[test]
fn a_file_rewritten_right_after_a_take_is_seen() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = first\n same.txt");
    take(&sandbox);
    for round in 0..300 {
        let text = format!("{round:05}");
        sandbox.write("a.txt", &text);
        let id = taken(&take(&sandbox));
        // Reading each one with git would take most of the time: the last ones are representative.
        if round >= 290 {
            assert_eq!(sandbox.store_git(&["cat-file", "blob", &format!("{id}:a.txt")]), text.as_bytes());
        }
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn a_file_emptied_right_after_a_take_is_seen() {
    let sandbox = Sandbox::new();
    sandbox.tree("same.txt");
    for _ in 0..150 {
        sandbox.write("a.txt", "full");
        let full = taken(&take(&sandbox));
        fs::File::options().write(true).open(sandbox.path("a.txt")).and_then(|file| file.set_len(0)).expect("a file");
        let empty = taken(&take(&sandbox));
        assert_ne!(full, empty);
    }
}

/// Returns the number of bytes that a take reads if it trusts the index.
pub(crate) fn bytes_read_by_take(sandbox: &Sandbox, now: Moment) -> u64 {
    let store = Store::open_or_create(&sandbox.base(), now).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let request = Request::default().reason("a test").kind(CheckpointKind::Manual);
    let progress = Progress::default();
    piton::take(&store, &project, &request, &Settings::default(), now, &progress).expect("a take");
    progress.bytes_to_read.into_inner()
}

/// Changes what the project's record says about the index.
pub(crate) fn note(sandbox: &Sandbox, key: &str, value: serde_json::Value) {
    let path = sandbox.store().join(format!("projects/{}.json", project_id(sandbox)));
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("a record")).expect("JSON");
    assert!(!record[key].is_null(), "{record}");
    record[key] = value;
    fs::write(path, record.to_string()).expect("a record");
}

/// Makes the project's record say that it was written before a reboot.
fn restart_machine(sandbox: &Sandbox) {
    note(sandbox, "index_boot", "another".into());
}

/// Either checksum proves that an index is intact; with neither it is not trusted.
#[test]
fn an_index_is_believed_by_its_crc_or_its_checksum() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 12345");
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 5);
    let path = sandbox.store().join("indexes").join(project_id(&sandbox));
    let mut index = fs::read(&path).expect("an index");
    // Far from the entries, where only a checksum shows it: the id of the tree.
    let in_the_tree = index.len() - 25;
    index[in_the_tree] ^= 1;
    let crc = crc32fast::hash(&index[..index.len() - 20]);
    fs::write(&path, &index).expect("an index");
    note(&sandbox, "index_crc", crc.into());
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 0, "the one that was noted is right");
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 0, "and it was rewritten");
    note(&sandbox, "index_crc", 5.into());
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 0, "the checksum is right");
    let mut index = fs::read(&path).expect("an index");
    index[in_the_tree] ^= 1;
    fs::write(&path, &index).expect("an index");
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 5, "neither is right");
}

/// C3. The power may have failed and left a file with its new timestamps and its old bytes.
#[test]
fn recent_changes_are_read_again_after_a_reboot() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 12345\n dir/b = 123");
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 8);
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 0, "nothing changed");
    restart_machine(&sandbox);
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 8, "the power may have failed");
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 0, "once is enough");
}

#[test]
fn old_entries_are_trusted_after_a_reboot() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 12345\n dir/b = 123");
    let hours_later = |hours: i64| Moment { secs: now().secs + hours * 3600, ..now() };
    assert_eq!(bytes_read_by_take(&sandbox, hours_later(2)), 8);
    restart_machine(&sandbox);
    assert_eq!(bytes_read_by_take(&sandbox, hours_later(3)), 0, "it was on the disk by then");
}

/// The removed rules had re-included a file that is ignored without them.
#[test]
fn rules_that_no_checkpoint_holds_are_missed_when_they_go() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = d/.gitignore\\n*.gen\\n\n d/.gitignore = !kept.gen\\n\n d/kept.gen\n d/a");
    let first = taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled()));
    assert_eq!(paths_in(&sandbox, &first), [".gitignore", "d/a", "d/kept.gen"]);
    next_tick(&sandbox);
    fs::remove_file(sandbox.path("d/.gitignore")).expect("a file");
    let second = taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled()));
    assert_eq!(paths_in(&sandbox, &second), [".gitignore", "d/a"]);
}

/// The index lists all files of the directory, but the store has lost their contents.
#[test]
fn what_the_store_forgot_is_read_again_though_nothing_changed() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n dir/b = 2");
    taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled()));
    let id = |output: Vec<u8>| String::from_utf8(output).expect("an id").trim().to_owned();
    let tree = id(sandbox.store_git(&["mktree", "--missing"]));
    let other =
        id(sandbox.store_git(&["-c", "user.name=a", "-c", "user.email=b", "commit-tree", "-m", "other", &tree]));
    sandbox.store_git(&["update-ref", &format!("refs/hermes/{}", project_id(&sandbox)), &other]);
    sandbox.store_git(&["-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now"]);
    let id = taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled()));
    assert_eq!(paths_in(&sandbox, &id), ["a", "dir/b"]);
    sandbox.assert_store_is_whole();
}

/// The modes in a directory without changes are counted as a whole if they are all equal.
#[test]
fn permissions_are_kept_where_nothing_changed() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    sandbox.tree("dir/a = 1\n dir/b = 2\n dir/c = 3\n other = 1");
    fs::set_permissions(sandbox.path("dir/b"), fs::Permissions::from_mode(0o600)).expect("a file");
    let modes = |id: &str| {
        let commit = String::from_utf8(sandbox.store_git(&["cat-file", "commit", id])).expect("text");
        commit.lines().filter(|line| line.contains("mode")).map(str::to_owned).collect::<Vec<_>>()
    };
    let take = || taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled()));
    let first = modes(&take());
    assert!(first.iter().any(|line| line.contains("dir/b")), "{first:?}");
    next_tick(&sandbox);
    sandbox.write("other", "2");
    assert_eq!(modes(&take()), first);
}
