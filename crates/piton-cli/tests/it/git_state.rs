//! `piton git`: the state of the user's repository, recorded with each checkpoint and brought back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Sandbox, walk};

use crate::git_kit::{GitProject, Shape};
use crate::kit::{command, piton, run};

/// Bytes, mode and mtime of every file below a directory.
fn everything_in(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    let mut all = BTreeMap::new();
    walk(dir, &mut |path| {
        let found = fs::symlink_metadata(path).expect("a file");
        let bytes = if found.is_file() { fs::read(path).expect("a file") } else { Vec::new() };
        all.insert(path.to_owned(), (bytes, found.mode(), found.mtime(), found.mtime_nsec()));
    });
    all
}

fn names(report: &Value, list: &str) -> Vec<String> {
    let name =
        |item: &Value| format!("{} {}", item["kind"].as_str().unwrap_or(""), item["name"].as_str().unwrap_or(""));
    report[list].as_array().expect("a list").iter().map(name).collect()
}

/// The directory in which the git state of the only project is.
fn held_dir(sandbox: &Sandbox) -> PathBuf {
    let dir = sandbox.base().join("local/git");
    fs::read_dir(dir).expect("git states").next().expect("a project").expect("an entry").path()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    walk(dir, &mut |path| files.extend(path.is_file().then(|| path.to_owned())));
    files
}

/// D14.
#[test]
fn a_take_leaves_every_byte_mode_and_time_of_the_repository_alone() {
    for shape in Shape::ALL {
        let Some(project) = GitProject::new(shape) else { continue };
        let common = project.common_dir();
        let before = everything_in(&common);
        let report = project.piton(&["take", "--json"]).done().json();
        assert_eq!(report["git"], "recorded", "{shape:?}: {report}");
        project.piton(&["git", "show", "1"]).done();
        project.piton(&["git", "restore", "1", "--all", "--force", "--dry-run"]);
        assert_eq!(everything_in(&common), before, "{shape:?}");
        let again = project.piton(&["take", "--json"]).done().json();
        assert_eq!((&again["git"], &again["git_state"]), (&json!("unchanged"), &report["git_state"]), "{shape:?}");
        assert_eq!(everything_in(&common), before, "{shape:?}");
    }
}

/// D11.
#[test]
fn a_deleted_branch_comes_back_by_default_and_goes_again_by_undo() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let before = project.view();
    project.turn(
        "t1",
        "git branch -D feature && git stash clear && git reflog expire --expire=now --all && git gc -q --prune=now",
    );
    let lost = project.view();
    assert!(!lost.refs.contains("refs/heads/feature") && lost.stash.is_empty(), "{lost:?}");
    let plan = project.piton(&["git", "restore", "1", "--dry-run", "--json"]).done().json();
    assert_eq!((&plan["outcome"], &plan["before"]), (&json!("planned"), &json!(null)));
    assert_eq!(project.view(), lost, "a dry run");
    let report = project.piton(&["git", "restore", "1", "--json"]).done().json();
    assert_eq!(report["outcome"], "restored");
    assert!(names(&report, "restored").contains(&"branch feature".to_owned()), "{report}");
    let back = project.view();
    assert_eq!((&back.refs, &back.stash), (&before.refs, &before.stash));
    project.assert_whole("restored");
    project.piton(&["git", "undo"]).done();
    let undone = project.view();
    assert_eq!((undone.refs, undone.stash), (lost.refs, lost.stash), "undo");
    project.piton(&["git", "undo"]).done();
    assert_eq!(project.view().refs, before.refs, "redo");
    assert_eq!(project.view().stash, before.stash, "redo");
    project.assert_whole("redone");
    let nothing = project.piton(&["git", "restore", "1", "--json"]).done().json();
    assert_eq!(nothing["outcome"], "nothing_to_do");
}

/// Files are equal, so the take is `unchanged`: the state is recorded all the same.
#[test]
fn a_turn_that_changes_git_state_only_is_recorded_and_named_by_recover() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.turn("t1", "git branch only-here feature");
    project.turn("t2", "git branch -D only-here; git stash drop");
    let states = project.piton(&["git", "show", "--json"]).done().json();
    assert!(states.as_array().expect("a list").len() >= 3, "{states}");
    let lost = project.piton(&["recover", "--json"]).done().json();
    let kinds: Vec<_> = lost["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| (item["kind"].clone(), item["path"].clone()))
        .collect();
    assert!(kinds.contains(&(json!("branch"), json!("only-here"))), "{lost}");
    assert!(kinds.contains(&(json!("stash"), json!("stash@{0}"))), "{lost}");
    let state = lost["items"][0]["git_state"].as_str().expect("an id").to_owned();
    project.piton(&["git", "restore", &state[..10], "only-here"]).done();
    assert!(project.git(&["branch", "--list", "only-here"]).contains("only-here"));
    assert!(project.git(&["stash", "list"]).lines().count() == 1, "only what was named");
}

#[test]
fn a_branch_that_moved_is_put_elsewhere_unless_forced() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let old = project.git(&["rev-parse", "feature"]);
    project.turn("t1", "git branch -f feature HEAD~1");
    let new = project.git(&["rev-parse", "feature"]);
    let report = project.piton(&["git", "restore", "1", "feature", "--json"]).done().json();
    let name = report["restored"][0]["name"].as_str().expect("a name").to_owned();
    assert!(name.starts_with("refs/recovered/") && name.ends_with("/heads/feature"), "{report}");
    assert_eq!(
        (project.git(&["rev-parse", &name]), project.git(&["rev-parse", "feature"])),
        (old.clone(), new.clone())
    );
    let report = project.piton(&["git", "restore", "1", "feature", "--force", "--json"]).done().json();
    assert_eq!(report["restored"][0]["from"].as_str(), Some(new.trim()));
    assert_eq!(project.git(&["rev-parse", "feature"]), old);
    project.piton(&["git", "undo"]).done();
    assert_eq!(project.git(&["rev-parse", "feature"]), new);
    let unknown = project.piton(&["git", "restore", "1", "no-such-branch", "--json"]);
    assert_eq!((unknown.code(), names(&unknown.json(), "left")), (3, vec!["ref no-such-branch".to_owned()]));
}

#[test]
fn a_deleted_repository_is_rebuilt_whole() {
    for shape in Shape::ALL {
        let Some(project) = GitProject::new(shape) else { continue };
        let before = project.view();
        let common = project.common_dir();
        project.piton(&["take"]).done();
        fs::remove_dir_all(&common).expect("a repository");
        let lost = project.piton(&["recover", "--json"]).done().json();
        assert_eq!(lost["items"][0]["kind"], "repository", "{shape:?}: {lost}");
        let report = project.piton(&["git", "restore", "1", "--json"]).done().json();
        assert_eq!(names(&report, "restored"), [format!("repository {}", common.display())], "{shape:?}");
        assert_eq!(project.view(), before, "{shape:?}");
        project.assert_whole("rebuilt");
        let left = fs::read_dir(common.parent().expect("a parent")).expect("a directory").flatten();
        let left: Vec<_> =
            left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("piton")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// D18.
#[test]
fn a_restore_refuses_to_run_beside_another_git_command() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.turn("t1", "git branch -D feature");
    let locks = ["index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/other.lock", "config.lock"];
    for lock in locks.map(|name| project.dir.join(".git").join(name)) {
        fs::write(&lock, "").expect("a lock");
        for args in [&["git", "restore", "1"][..], &["git", "undo"]] {
            let ran = project.piton(args);
            assert!(
                [4, 5].contains(&ran.code())
                    && (args[1] == "undo" || ran.stderr.contains(lock.to_str().expect("UTF-8"))),
                "{ran:?}"
            );
        }
        assert!(lock.exists(), "it is another process's");
        fs::remove_file(&lock).expect("a lock");
    }
    project.piton(&["git", "restore", "1"]).done();
    assert!(files_below(&project.dir.join(".git")).iter().all(|path| path.extension().is_none_or(|end| end != "lock")));
}

#[test]
fn a_repository_that_is_a_link_is_declined_and_named() {
    let project = GitProject::new(Shape::Sha256).or_else(|| GitProject::new(Shape::Clone)).expect("a repository");
    let elsewhere = project.sandbox.root().join("elsewhere");
    fs::rename(project.dir.join(".git"), &elsewhere)
        .and_then(|()| symlink(&elsewhere, project.dir.join(".git")))
        .expect("a link");
    let report = project.piton(&["take", "--json"]).done().json();
    assert_eq!(report["git"], "declined");
    let status = project.piton(&["status", "--json"]).done().json();
    assert!(status["problems"].to_string().contains("symbolic link"), "{status}");
    project.piton(&["git", "show", "1"]).failed(4);
}

/// Takes a checkpoint, and asserts that take, status and doctor name what is not saved of the repository.
#[track_caller]
fn assert_named(project: &GitProject, words: &str) {
    let ran = project.piton(&["take"]).done();
    assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    assert_named_by_status(project, words);
}

#[track_caller]
fn assert_named_by_status(project: &GitProject, words: &str) {
    for _ in 0..2 {
        // Nothing changed by the second time, and it is still not saved.
        project.piton(&["take"]).done();
        let status = project.piton(&["status", "--json"]).done().json();
        assert!(status["problems"].to_string().contains(words), "{words}: {status}");
        let doctor = project.piton(&["doctor"]);
        assert!(doctor.stdout.contains(words), "{words}: {doctor:?}");
    }
}

#[test]
fn what_is_not_saved_of_a_repository_is_named_before_it_is_lost() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    fs::create_dir_all(project.dir.join(".git/lfs/objects/ab")).expect("a directory");
    assert_named(&project, "files of LFS (lfs) are not saved");
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let packs = project.dir.join(".git/objects/pack");
    fs::write(packs.join("pack-0123456789012345678901234567890123456789.promisor"), "").expect("a file");
    assert_named(&project, "objects that this partial clone has not fetched (objects) are not saved");
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let borrowed = project.sandbox.root().join("origin/.git/objects");
    fs::write(project.dir.join(".git/objects/info/alternates"), format!("{}\n", borrowed.display())).expect("a file");
    assert_named(&project, "objects of other repositories that it uses (objects/info/alternates) are not saved");
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.shell("git init -q inner && cd inner && git commit -q --allow-empty -m inner");
    let inner = project.dir.join("inner").display().to_string();
    assert_named_by_status(
        &project,
        &format!("branches and stashes of the git repository in {inner} are not recorded"),
    );
    project.piton(&["-C", &inner, "take"]);
    let project = GitProject::new(Shape::Clone).expect("a clone");
    fs::write(project.dir.join(".git/objects/info/alternates"), format!("{}\n", borrowed.display())).expect("a file");
    project.piton(&["take"]).done();
    // Once it is not so any more, nothing is named.
    fs::remove_file(project.dir.join(".git/objects/info/alternates")).expect("a file");
    project.piton(&["take"]).done();
    let status = project.piton(&["status", "--json"]).done().json();
    assert!(!status["problems"].to_string().contains("not saved"), "{status}");
}

/// The second of two captures compares stat data only. It must see everything that git does in between.
#[test]
fn any_change_after_a_capture_that_found_nothing_is_recorded() {
    for (nth, line) in [
        "git branch new",
        "git branch -D other",
        "git tag -d v1",
        "git stash drop",
        "git reflog expire --expire=now --all",
        "git config core.abbrev 9",
        "git add -A",
        "git pack-refs --all",
        "git commit -q --allow-empty -m x",
        "echo x >> .git/info/exclude",
        "echo 'ref: refs/heads/feature' > .git/HEAD",
        "git rev-parse feature~1 > .git/refs/heads/feature",
    ]
    .into_iter()
    .enumerate()
    {
        let project = GitProject::new(Shape::Clone).expect("a clone");
        // Older than anything that may change again within a tick.
        project.shell("find .git -exec touch -h -d '1 hour ago' {} +");
        // Their ctime is not, and stat data is trusted after two seconds: once is enough to go that way.
        std::thread::sleep(std::time::Duration::from_millis(if nth % 4 == 0 { 2_200 } else { 0 }));
        let state = |project: &GitProject| project.piton(&["take", "--json"]).done().json();
        state(&project);
        let before = state(&project);
        assert_eq!(before["git"], "unchanged");
        project.shell(line);
        let after = state(&project);
        assert_ne!(after["git_state"], before["git_state"], "{line}");
        assert_eq!(state(&project)["git_state"], after["git_state"], "{line}");
    }
}

/// D12 and D13.
#[test]
fn packs_that_a_repack_replaced_are_released_and_lost_objects_stay() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.piton(&["take"]).done();
    let held = held_dir(&project.sandbox).join("held");
    assert!(files_below(&held).iter().all(|path| fs::metadata(path).expect("a file").nlink() > 1), "links, no copies");
    let loose = files_below(&held).len();
    project.git(&["repack", "-q", "-a", "-d", "-k"]);
    project.piton(&["take"]).done();
    project.piton(&["prune"]).done();
    let after = files_below(&held);
    assert!(
        after.len() < loose && after.iter().all(|path| fs::metadata(path).expect("a file").nlink() > 1),
        "{after:?}"
    );
    let before = project.view();
    project.shell("git branch -D feature; git reflog expire --expire=now --all; git gc -q --prune=now");
    project.piton(&["take"]).done();
    project.piton(&["prune"]).done();
    let status = project.piton(&["status", "--json"]).done().json();
    assert!(status["projects"][0]["git_bytes"].as_u64() > Some(0), "{status}");
    project.piton(&["git", "restore", "1"]);
    let oldest = project.piton(&["git", "show", "--json"]).done().json();
    let oldest =
        oldest.as_array().expect("a list").last().expect("one")["short_id"].as_str().expect("an id").to_owned();
    project.piton(&["git", "restore", &oldest, "feature"]).done();
    assert_eq!(project.view().refs, before.refs);
    project.assert_whole("after prunes");
}

#[test]
fn clear_removes_git_states_and_not_a_byte_of_the_repository() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.piton(&["take"]).done();
    let before = everything_in(&project.dir.join(".git"));
    project.piton(&["clear", "--force"]).done();
    assert!(!project.sandbox.base().join("local/git").exists());
    assert_eq!(everything_in(&project.dir.join(".git")), before);
}

#[test]
fn a_damaged_state_or_pack_is_found_and_dropped_by_repair() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.git(&["repack", "-q", "-a", "-d"]);
    project.piton(&["take"]).done();
    project.piton(&["verify"]).done();
    let dir = held_dir(&project.sandbox);
    let state = fs::read_dir(dir.join("states")).expect("states").next().expect("one").expect("an entry").path();
    let bytes = fs::read(&state).expect("a state");
    fs::write(&state, &bytes[..bytes.len() / 2]).expect("a state");
    let report = project.piton(&["verify", "--json"]).json();
    assert_eq!((&report["whole"], &report["findings"][0]["kind"]), (&json!(false), &json!("git_state")), "{report}");
    project.piton(&["git", "show", "1"]).failed(1);
    let repaired = project.piton(&["repair", "--json"]).done().json();
    assert_eq!(repaired["steps"][0]["step"], "git_state_dropped", "{repaired}");
    project.piton(&["verify"]).done();
    // A pack of the repository itself is never touched: the held one is replaced by a shorter file.
    let pack = files_below(&dir.join("held"))
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "pack"))
        .expect("a pack");
    let bytes = fs::read(&pack).expect("a pack");
    fs::remove_file(&pack).and_then(|()| fs::write(&pack, &bytes[..bytes.len() - 1])).expect("a pack");
    let report = project.piton(&["verify", "--json"]).json();
    assert!(report.to_string().contains("cut short or replaced"), "{report}");
    project.piton(&["repair"]).done();
    project.piton(&["take"]).done();
    project.piton(&["verify"]).done();
    project.assert_whole("the repository");
}

/// Where a link is not possible, files are copied up to the limit, and what is not is named.
#[test]
fn objects_on_another_file_system_are_copied_within_the_limit() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let other = Path::new("/dev/shm");
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    if device(other).is_none() || device(other) == device(&project.dir) {
        testkit::note_skipped("there is no second file system");
        return;
    }
    let temp = tempfile::tempdir_in(other).expect("a directory");
    let base = temp.path().join("base");
    let base = base.to_str().expect("UTF-8");
    let big =
        (0..400_000_u32).flat_map(|number| (number.wrapping_mul(2_654_435_761)).to_le_bytes()).collect::<Vec<u8>>();
    fs::write(project.dir.join("big"), big).expect("a file");
    project.git(&["add", "big"]);
    let take = |mb: &str| {
        let mut take = crate::kit::in_dir(&project.sandbox, &project.dir);
        run(take.args(["--base", base, "take", "--json"]).env("PITON_KEEP_GIT_MB", mb)).done().json()
    };
    let report = take("1");
    assert!(report["git_problem"].as_str().is_some_and(|text| text.contains("keep_git_mb")), "{report}");
    let report = take("100");
    assert_eq!(report["git_problem"], json!(null), "{report}");
    let before = project.view();
    fs::remove_dir_all(project.dir.join(".git")).expect("a repository");
    project.piton(&["--base", base, "git", "restore", "1"]).done();
    assert_eq!(project.view(), before);
    project.assert_whole("from copies");
}

/// Where objects can neither be linked nor copied, those that the repository still has are enough.
#[test]
fn a_deleted_branch_comes_back_if_its_objects_are_in_the_repository_only() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    let other = Path::new("/dev/shm");
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    if device(other).is_none() || device(other) == device(&project.dir) {
        testkit::note_skipped("there is no second file system");
        return;
    }
    let temp = tempfile::tempdir_in(other).expect("a directory");
    let base = temp.path().join("base");
    let base = base.to_str().expect("UTF-8");
    let piton = |args: &[&str]| {
        let mut command = crate::kit::in_dir(&project.sandbox, &project.dir);
        run(command.args(["--base", base]).args(args).env("PITON_KEEP_GIT_MB", "0"))
    };
    for line in ["true", "git gc -q"] {
        project.git(&["commit", "-q", "--allow-empty", "-m", line]);
        project.shell(line);
        piton(&["take"]).done();
        let before = project.view();
        project.git(&["branch", "-D", "feature"]);
        let report = piton(&["git", "restore", "1", "--json"]).done().json();
        assert_eq!(report["outcome"], "restored", "{line}: {report}");
        assert_eq!(project.view().refs, before.refs, "{line}");
    }
    piton(&["take"]).done();
    project.shell("git branch -D feature; git reflog expire --expire=now --all; git gc -q --prune=now");
    let ran = piton(&["git", "restore", "1", "--json"]);
    assert_eq!(
        (ran.code(), names(&ran.json(), "left")),
        (3, vec!["branch feature".to_owned(), "stash stash@{1}".to_owned()]),
        "they are nowhere"
    );
}

/// D13.
#[test]
fn objects_that_only_a_forgotten_project_held_stay_for_keep_days() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.piton(&["take"]).done();
    let state = project.piton(&["git", "show", "--json"]).done().json()[0]["state"].clone();
    let feature = project.git(&["rev-parse", "feature"]);
    project.shell("git branch -D feature; git reflog expire --expire=now --all; git gc -q --prune=now");
    let held = held_dir(&project.sandbox).join("held");
    let loose = |id: &str| held.join("objects").join(&id[..2]).join(id[2..].trim_end());
    let kept = project.git(&["rev-parse", "HEAD"]);
    assert!(loose(&feature).exists() && loose(&kept).exists());
    project.piton(&["prune", "--forget", project.dir.to_str().expect("UTF-8")]).done();
    project.piton(&["prune"]).done();
    assert!(loose(&feature).exists(), "the repository has lost it");
    assert!(!loose(&kept).exists(), "the repository has it");
    project.piton(&["git", "restore", state.as_str().expect("an id"), "feature"]).done();
    assert_eq!(project.git(&["rev-parse", "feature"]), feature);
    project.assert_whole("restored");
    // With its objects back in the repository, nothing of it need be held.
    project.piton(&["prune"]).done();
    assert_eq!(files_below(&project.sandbox.base().join("local/git")), [] as [PathBuf; 0]);
}

#[test]
fn a_project_without_a_repository_has_no_git_state() {
    let sandbox = Sandbox::new();
    sandbox.write("f", "1");
    let report = piton(&sandbox, ["take", "--json"]).done().json();
    assert_eq!(report["git"], "no_repository");
    assert!(!sandbox.base().join("local/git").exists());
    run(command(&sandbox).args(["git", "show", "1"])).failed(4);
    run(command(&sandbox).args(["git", "undo"])).failed(4);
    assert_eq!(piton(&sandbox, ["git", "show", "--json"]).done().json(), json!([]));
}

#[test]
fn a_branch_that_was_moved_back_is_named_and_put_elsewhere_without_its_name() {
    for (shape, line) in [
        (Shape::Clone, "git reset -q --hard HEAD~1; git reflog expire --expire=now --all; git gc -q --prune=now"),
        (Shape::Clone, "git branch -D other; git branch -f feature HEAD~1"),
    ] {
        let project = GitProject::new(shape).expect("a clone");
        let branch = if line.contains("feature") { "feature" } else { "main" };
        let (old, tags) = (project.git(&["rev-parse", branch]), project.git(&["tag", "-d", "v1", "v2"]));
        project.git(&["remote", "remove", "origin"]);
        project.git(&["stash", "clear"]);
        if branch == "main" {
            project.git(&["branch", "-D", "feature"]);
        }
        project.git(&["worktree", "remove", "--force", "../beside"]);
        project.turn("t1", line);
        let lost = project.piton(&["recover", "--json"]).done().json();
        let items = lost["items"].as_array().expect("a list");
        let item = items.iter().find(|item| item["kind"] == "branch" && item["path"] == branch);
        assert_eq!(item.map(|item| &item["replaced"]), Some(&json!(true)), "{lost} {tags}");
        let text = project.piton(&["recover"]).done();
        assert!(text.stdout.contains(&format!("branch {branch} points elsewhere")), "{text:?}");
        let shown = project.piton(&["git", "show", "1"]).done();
        assert!(shown.stderr.contains("refs/recovered/"), "{shown:?}");
        let report = project.piton(&["git", "restore", "1", "--json"]).done().json();
        let name = format!("refs/recovered/{}/heads/{branch}", &report["state"].as_str().expect("an id")[..7]);
        assert!(names(&report, "restored").contains(&format!("branch {name}")), "{report}");
        assert_eq!(project.git(&["rev-parse", &name]), old);
        project.assert_whole(line);
        let after = project.piton(&["recover", "--json"]).done().json();
        assert!(!after.to_string().contains("\"branch\""), "{after}");
    }
}

#[test]
fn a_branch_that_went_forward_is_not_named_as_lost() {
    let project = GitProject::new(Shape::Clone).expect("a clone");
    project.turn("t1", "git commit -qam more; git checkout -q feature; git commit -q --allow-empty -m more");
    let lost = project.piton(&["recover", "--json"]).done().json();
    assert!(!lost.to_string().contains("\"branch\""), "{lost}");
}

#[test]
fn something_that_stands_at_the_place_of_a_deleted_repository_is_moved_away() {
    for (line, is_left) in [
        ("rm -rf .git && touch .git", true),
        ("rm -rf .git && ln -s /nowhere .git", true),
        ("rm -rf .git && mkdir .git", false),
        ("rm -rf .git && echo 'not a repository' > .git", true),
    ] {
        let project = GitProject::new(Shape::Sha256).expect("a repository");
        let before = project.view();
        project.turn("t1", line);
        let plan = project.piton(&["git", "restore", "1", "--dry-run", "--json"]).done().json();
        assert_eq!(plan["outcome"], "planned", "{line}");
        let report = project.piton(&["git", "restore", "1", "--json"]).done().json();
        assert_eq!(report["outcome"], "restored", "{line}: {report}");
        assert_eq!(project.view(), before, "{line}");
        project.assert_whole(line);
        let mut beside: Vec<_> = fs::read_dir(&project.dir).expect("a directory").flatten().collect();
        beside.retain(|entry| entry.file_name().to_string_lossy().starts_with(".git."));
        assert_eq!(beside.len(), usize::from(is_left), "{line}: {beside:?}");
        let moved = beside.iter().map(|entry| entry.path().display().to_string()).collect::<String>();
        assert!(report.to_string().contains(&moved), "{line}: {report}");
    }
}

/// D11.
#[test]
fn verify_names_an_object_file_that_a_state_held_and_that_is_gone() {
    for name in ["objects/", "objects/pack"] {
        let project = GitProject::new(Shape::Sha256).expect("a repository");
        project.git(&["repack", "-q", "-d"]);
        project.shell("echo more > h; git add h; git commit -qm more");
        project.turn("t1", "rm -rf .git");
        project.piton(&["verify"]).done();
        let held = files_below(&held_dir(&project.sandbox).join("held"));
        let is_it = |path: &&PathBuf| path.to_string_lossy().contains("pack") == name.contains("pack");
        let file = held.iter().find(is_it).expect("held");
        for part in ["", "idx", "pack"] {
            let file = if part.is_empty() { file.clone() } else { file.with_extension(part) };
            let _ = fs::remove_file(file);
        }
        let ran = project.piton(&["verify", "--json"]);
        let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(ran.code() == 1 && ran.stdout.contains(&stem), "{file:?}: {ran:?}");
        project.piton(&["repair"]);
        assert_eq!(project.piton(&["verify"]).code(), 0);
    }
}

/// D13: a file that is released by rule is not missing.
#[test]
fn verify_does_not_miss_object_files_that_were_packed_and_released() {
    let project = GitProject::new(Shape::Sha256).expect("a repository");
    project.turn("t1", "git gc -q --prune=now");
    project.turn("t2", "echo more > h; git add h; git commit -qm more; git gc -q --prune=now");
    project.turn("t3", "true");
    project.piton(&["prune"]).done();
    project.piton(&["verify"]).done();
}

#[test]
fn a_reftable_that_changed_is_named_with_the_command_that_brings_it_back() {
    let Some(project) = GitProject::new(Shape::Reftable) else { return };
    let before = project.view();
    project.turn("t1", "git branch -D feature; git stash drop");
    let lost = project.piton(&["recover", "--json"]).done().json();
    let item = lost["items"].as_array().expect("a list").iter().find(|item| item["kind"] == "refs").cloned();
    assert_eq!(item.map(|item| item["replaced"].clone()), Some(json!(true)), "{lost}");
    let text = project.piton(&["recover"]).done();
    assert!(text.stdout.contains("--all --force"), "{text:?}");
    let shown = project.piton(&["git", "show", "1"]).done();
    assert!(shown.stdout.contains("refs in a reftable") && !shown.stdout.contains(".invalid"), "{shown:?}");
    assert!(shown.stderr.contains("--all --force"), "{shown:?}");
    let named = project.piton(&["git", "restore", "1", "feature"]);
    assert!(named.code() == 3 && named.stderr.contains("--all --force"), "{named:?}");
    project.piton(&["git", "restore", "1", "--all", "--force"]).done();
    assert_eq!(project.view().refs, before.refs);
    assert_eq!(project.piton(&["recover", "--json"]).json()["outcome"], "nothing_lost");
}

#[test]
fn a_repository_comes_back_with_the_modes_of_its_directories() {
    let project = GitProject::new(Shape::Sha256).expect("a repository");
    let mode = |name: &str| fs::metadata(project.dir.join(".git").join(name)).expect("a directory").mode() & 0o7777;
    project.shell("chmod 700 .git .git/refs .git/refs/heads .git/objects; chmod 750 .git/hooks; chmod 2770 .git/info");
    let all = ["", "refs", "refs/heads", "refs/tags", "objects", "hooks", "info", "logs"];
    let before: Vec<u32> = all.iter().map(|name| mode(name)).collect();
    project.turn("t1", "rm -rf .git");
    project.piton(&["git", "restore", "1"]).done();
    assert_eq!(all.iter().map(|name| mode(name)).collect::<Vec<_>>(), before);
}
