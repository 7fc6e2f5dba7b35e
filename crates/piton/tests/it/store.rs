//! The store: creating, completing and refusing it, and its tolerance of damage to files that can be rebuilt.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use piton::{ErrorKind, Moment, Settings, Store};
use testkit::{Sandbox, files_in, git};

use crate::kit::{
    Dice, is_root, next_tick, now, project_id, runs_under, settled, take, take_at, taken, without_roots_powers,
};

const EXCLUDES: &str = "
    node_modules/ dist/ build/ target/ out/ .next/ .nuxt/ __pycache__/ *.pyc *.pyo .cache/ .pytest_cache/ .mypy_cache/
    .ruff_cache/ coverage/ .coverage .venv/ venv/ env/ .git/ .hg/ .svn/ .worktrees/ *.so *.dylib *.dll *.o *.a *.jar
    *.class *.exe *.obj *.mp4 *.mov *.mkv *.webm *.zip *.tar *.tar.gz *.tgz *.7z *.rar *.iso .env .env.* .env.local
    .env.*.local .DS_Store Thumbs.db *.log";

fn open(base: &Path) -> piton::Result<Store> {
    Store::open_or_create(base, now())
}

/// Returns every entry below a directory, with its mode and contents.
fn everything(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    testkit::walk(dir, &mut |path| {
        let mode = path.symlink_metadata().expect("what was just listed").mode();
        let bytes = if path.is_file() { fs::read(path).expect("a file") } else { Vec::new() };
        all.insert(path.strip_prefix(dir).expect("below it").to_owned(), (mode, bytes));
    });
    all
}

/// S3, F2.
#[test]
fn a_new_store_is_the_owners_alone_whatever_the_umask() {
    let command = ["sh", "-c", "umask 0; exec \"$0\" \"$@\""];
    if !runs_under("store::a_new_store_is_the_owners_alone_whatever_the_umask", &command) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    take(&sandbox);
    sandbox.write("a.txt", "2");
    take(&sandbox);
    assert_eq!(sandbox.base().metadata().expect("a base").mode() & 0o7777, 0o700);
    for (path, (mode, _)) in everything(&sandbox.base()) {
        let expected = if mode & 0o170_000 == 0o040_000 { 0o700 } else { 0o600 };
        assert_eq!(mode & 0o7777, expected, "{}", path.display());
    }
}

#[test]
fn a_new_store_is_a_repository_with_the_exclude_list_and_settings() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.base()).expect("a store");
    assert_eq!(store.git_dir(), sandbox.store());
    let list = fs::read_to_string(sandbox.store().join("info/exclude")).expect("the list");
    assert_eq!(list.lines().collect::<Vec<_>>(), EXCLUDES.split_whitespace().collect::<Vec<_>>());
    assert!(fs::read_to_string(sandbox.store().join("info/attributes")).expect("attributes").starts_with("* -text"));
    for (key, value) in [
        ("core.bare", "true"),
        ("user.email", "hermes@local"),
        ("user.name", "Hermes Checkpoint"),
        ("commit.gpgsign", "false"),
        ("tag.gpgsign", "false"),
        ("gc.auto", "0"),
    ] {
        assert_eq!(String::from_utf8_lossy(&sandbox.store_git(&["config", key])).trim(), value, "{key}");
    }
    assert!(sandbox.store_git(&["rev-parse", "--show-object-format"]).starts_with(b"sha1"));
    assert_eq!(everything(&sandbox.base()), {
        open(&sandbox.base()).expect("a store");
        everything(&sandbox.base())
    });
    sandbox.assert_store_is_whole();
}

#[test]
fn a_list_that_the_user_edited_stays() {
    let sandbox = Sandbox::new();
    open(&sandbox.base()).expect("a store");
    fs::write(sandbox.store().join("info/exclude"), "*.mine\n").expect("a list");
    fs::remove_file(sandbox.store().join("locks/gate")).expect("a lock");
    open(&sandbox.base()).expect("a store");
    assert_eq!(fs::read_to_string(sandbox.store().join("info/exclude")).expect("a list"), "*.mine\n");
}

#[test]
fn a_store_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    for whose in ["", "store"] {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt");
        take(&sandbox);
        let before = everything(&sandbox.base());
        std::os::unix::fs::chown(sandbox.base().join(whose), Some(65_534), None).expect("another owner");
        assert_eq!(open(&sandbox.base()).expect_err("refused").kind(), ErrorKind::NotOurs, "{whose:?}");
        assert_eq!(Store::open_existing(&sandbox.base()).expect_err("refused").kind(), ErrorKind::NotOurs);
        assert_eq!(everything(&sandbox.base()), before);
    }
}

/// Asserts that a store without these parts works again with the next take.
fn assert_heals(sandbox: &Sandbox, gone: &[&PathBuf]) {
    let _ = fs::remove_dir_all(sandbox.base());
    open(&sandbox.base()).expect("a store");
    for piece in gone {
        let path = sandbox.base().join(piece);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    let healed = open(&sandbox.base());
    assert!(healed.is_ok(), "without {gone:?}: {healed:?}");
    let id = taken(&take(sandbox));
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()), "without {gone:?}");
    sandbox.assert_store_is_whole();
    assert!(sandbox.temporary_files().is_empty());
}

#[test]
fn missing_pieces_of_a_store_are_created_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n dir/b.txt");
    open(&sandbox.base()).expect("a store");
    let pieces: Vec<PathBuf> = everything(&sandbox.base()).into_keys().collect();
    assert!(pieces.len() > 15, "{pieces:?}");
    for piece in &pieces {
        assert_heals(&sandbox, &[piece]);
    }
    let mut dice = Dice::new(3);
    for _ in 0..100 {
        let gone: Vec<_> = pieces[1..].iter().filter(|_| dice.roll(4) == 0).collect();
        assert_heals(&sandbox, &gone);
    }
}

/// Without a record, nothing shows that there was a project.
#[test]
fn a_store_whose_last_project_was_dropped_by_git_goes_on() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    taken(&take(&sandbox));
    let project = project_id(&sandbox);
    sandbox.store_git(&["update-ref", "-d", &format!("refs/hermes/{project}")]);
    fs::remove_file(sandbox.store().join(format!("projects/{project}.json"))).expect("a record");
    taken(&take(&sandbox));
    sandbox.assert_store_is_whole();
}

#[test]
fn a_directory_of_other_files_is_refused_and_left_alone() {
    for stranger in ["letter.txt", "project/Cargo.toml", ".git/HEAD", "notes.yml", "stored/HEAD"] {
        let sandbox = Sandbox::new();
        let base = sandbox.other_project("documents");
        fs::create_dir_all(base.join(stranger).parent().expect("a directory")).expect("directories");
        fs::write(base.join(stranger), "mine").expect("a file");
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).expect("permissions");
        let before = everything(&base);
        assert_eq!(open(&base).expect_err("refused").kind(), ErrorKind::NotOurs, "{stranger}");
        assert_eq!(everything(&base), before);
        assert_eq!(base.metadata().expect("a base").mode() & 0o777, 0o755);
    }
    assert_eq!(open(Path::new("relative/base")).expect_err("refused").kind(), ErrorKind::Invalid);
}

/// Creates a base in the older layout: a repository for each directory, and session records beside them.
fn old_layout(sandbox: &Sandbox) -> PathBuf {
    let base = sandbox.base();
    for name in ["0123456789abcdef", "1123456789abcdef", "2123456789abcdef", "no-hash"] {
        let output = git().args(["init", "-q", "--bare"]).arg(base.join(name)).output().expect("git runs");
        assert!(output.status.success());
        fs::write(base.join(name).join("HERMES_WORKDIR"), "/somewhere\n").expect("a file");
    }
    fs::create_dir_all(base.join("stray/dir")).expect("a directory");
    for (name, text) in [("s-1.yaml", "task: a\n"), ("s-2.yaml", "task: b\n"), (".last_prune", "1700000000.5")] {
        fs::write(base.join(name), text).expect("a file");
    }
    base
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_older_layout_moves_into_one_archive_and_session_records_stay() {
    let sandbox = Sandbox::new();
    let base = old_layout(&sandbox);
    let before = everything(&base);
    let at = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
    Store::open_or_create(&base, at).expect("a store");
    let expected = [".last_prune", "legacy-20260316-043600", "s-1.yaml", "s-2.yaml", "store"];
    assert_eq!(names(&base), expected);
    let after = everything(&base);
    for (path, what) in &before {
        let is_record = path.extension().is_some_and(|end| end == "yaml") || path.ends_with(".last_prune");
        let now_at = if is_record { path.clone() } else { Path::new(expected[1]).join(path) };
        assert_eq!(after.get(&now_at), Some(what), "{}", path.display());
    }
    fs::create_dir(base.join("new-stray")).expect("a directory");
    open(&base).expect("a store");
    assert_eq!(names(&base).len(), 6, "a second open moves nothing");
}

#[test]
fn a_move_that_was_cut_short_goes_on_in_the_same_archive() {
    let sandbox = Sandbox::new();
    let base = old_layout(&sandbox);
    let archive = base.join("legacy-20200101-000000");
    for dir in [base.join("store"), archive.clone()] {
        fs::create_dir(dir).expect("a directory");
    }
    fs::rename(base.join("no-hash"), archive.join("no-hash")).expect("a rename");
    open(&base).expect("a store");
    assert_eq!(names(&base), [".last_prune", "legacy-20200101-000000", "s-1.yaml", "s-2.yaml", "store"]);
    assert_eq!(names(&archive), ["0123456789abcdef", "1123456789abcdef", "2123456789abcdef", "no-hash", "stray"]);
}

#[test]
fn what_another_archive_holds_is_not_written_over() {
    let sandbox = Sandbox::new();
    let at = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
    let (first, second) = ("legacy-20260316-043600", "legacy-20260316-043601");
    let base = old_layout(&sandbox);
    Store::open_or_create(&base, at).expect("a store");
    fs::write(base.join(first).join("0123456789abcdef/mine"), "1").expect("a file");
    fs::remove_dir_all(base.join("store")).expect("a store");
    // The clock was set back, and the old program has run again.
    old_layout(&sandbox);
    Store::open_or_create(&base, at).expect("a store");
    assert_eq!(names(&base), [".last_prune", first, second, "s-1.yaml", "s-2.yaml", "store"]);
    assert!(base.join(first).join("0123456789abcdef/mine").exists());
    assert!(base.join(second).join("0123456789abcdef/HEAD").exists());
}

#[test]
fn leftovers_of_a_killed_process_are_not_foreign_files() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.base()).expect("a base");
    fs::write(sandbox.base().join("tmp_x1y2z3"), "half of a session record").expect("a file");
    open(&sandbox.base()).expect("a store");
    assert_eq!(names(&sandbox.base()), [".last_prune", "store", "tmp_x1y2z3"]);
    // Its temporary files in the store do not make a repair refuse the store either.
    for name in ["tmp_x1y2z3", "packed-refs.lock"] {
        fs::write(sandbox.store().join(name), "half of it").expect("a file");
    }
    assert!(Store::open_damaged(&sandbox.base()).expect("a base").is_some());
}

fn record_path(sandbox: &Sandbox) -> PathBuf {
    sandbox.store().join("projects").join(format!("{}.json", project_id(sandbox)))
}

fn record(sandbox: &Sandbox) -> serde_json::Map<String, serde_json::Value> {
    serde_json::from_slice(&fs::read(record_path(sandbox)).expect("a record")).expect("JSON")
}

#[test]
fn a_record_keeps_what_it_does_not_know_and_when_it_began() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let at = |secs| Moment { secs, nanos: 500_000_000, offset_secs: 0 };
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at(1_700_000_000));
    let mut edited = record(&sandbox);
    assert_eq!(edited["workdir"], sandbox.project().to_str().expect("UTF-8"));
    edited.insert("theirs".into(), serde_json::json!({"deep": [1, null, "x"]}));
    fs::write(record_path(&sandbox), serde_json::to_vec(&edited).expect("JSON")).expect("a record");
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at(1_700_000_100));
    let after = record(&sandbox);
    assert_eq!(after["theirs"], edited["theirs"]);
    assert_eq!((&after["created_at"], &after["last_touch"]), (&1_700_000_000.5.into(), &1_700_000_100.5.into()));
}

#[test]
fn rules_files_out_of_scope_do_not_crowd_out_the_record() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = .gitignore\\n\n a.txt");
    for number in 0..2500 {
        let dir = format!("{}/{}{number}", "x".repeat(240), "y".repeat(240));
        sandbox.write(format!("{dir}/.gitignore"), "z\n");
    }
    let at = |secs| Moment { secs, ..settled() };
    let first = settled().secs;
    for secs in [first, first + 100] {
        take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at(secs));
    }
    let record = record(&sandbox);
    assert!(record_path(&sandbox).metadata().expect("a record").len() < 1 << 20);
    assert!(record["created_at"].as_f64() < record["last_touch"].as_f64(), "it does not know itself again");
}

/// Damages a file in every way, each time in its newest and most trusted form, with a take after it.
fn assert_damage_costs_nothing(sandbox: &Sandbox, path: &Path) {
    type Damage = Box<dyn Fn(&mut Vec<u8>)>;
    let mut damages: Vec<Damage> = Vec::new();
    for at in (0..fs::read(path).expect("a file").len()).step_by(16) {
        damages.push(Box::new(move |bytes| bytes.truncate(at)));
        // Times in it have more or fewer digits from one take to the next.
        damages.push(Box::new(move |bytes| {
            let last = bytes.len() - 1;
            bytes[at.min(last)] ^= 0x41;
        }));
    }
    for other in ["garbage", "[]", "{\"index\":5,\"rules\":{},\"turns\":3,\"hidden_rules\":[]}", "DIRC"] {
        damages.push(Box::new(move |bytes| *bytes = other.as_bytes().to_vec()));
    }
    for (round, damage) in damages.iter().enumerate() {
        take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
        let mut bytes = fs::read(path).expect("a file");
        damage(&mut bytes);
        fs::write(path, bytes).expect("a file");
        next_tick(sandbox);
        let text = format!("{round:03}");
        sandbox.write("a.txt", &text);
        let id = taken(&take(sandbox));
        let kept = sandbox.store_git(&["grep", "-hI", "", &id]);
        assert_eq!(String::from_utf8_lossy(&kept), format!("{text}\ndir/b.txt\nz.txt\n"), "{round}");
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn a_damaged_index_costs_nothing_but_time() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n dir/b.txt\n z.txt");
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
    assert_damage_costs_nothing(&sandbox, &sandbox.store().join("indexes").join(project_id(&sandbox)));
}

#[test]
fn a_damaged_record_costs_nothing_but_what_it_said() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n dir/b.txt\n z.txt");
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
    assert_damage_costs_nothing(&sandbox, &record_path(&sandbox));
}

/// An empty list because of a read error would be wrong.
#[test]
fn a_base_that_cannot_be_looked_at_is_not_taken_for_none() {
    if !without_roots_powers("store::a_base_that_cannot_be_looked_at_is_not_taken_for_none") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    taken(&take(&sandbox));
    let around = sandbox.base().parent().expect("a directory").to_owned();
    fs::set_permissions(&around, fs::Permissions::from_mode(0o000)).expect("permissions");
    let opened = Store::open_existing(&sandbox.base());
    fs::set_permissions(&around, fs::Permissions::from_mode(0o700)).expect("permissions");
    assert_eq!(opened.expect_err("it cannot be looked at").kind(), ErrorKind::Io);
    fs::set_permissions(sandbox.base(), fs::Permissions::from_mode(0o600)).expect("permissions");
    let opened = Store::open_existing(&sandbox.base());
    fs::set_permissions(sandbox.base(), fs::Permissions::from_mode(0o700)).expect("permissions");
    assert_eq!(opened.expect_err("what is in it cannot be looked at").kind(), ErrorKind::Io);
    assert!(Store::open_existing(&sandbox.base()).expect("a store").is_some());
}
