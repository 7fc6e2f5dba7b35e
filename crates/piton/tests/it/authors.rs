//! The history by author: log, blame and search, with stock git as the oracle.

use std::collections::BTreeSet;
use std::fs;

use piton::{
    Author, ErrorKind, History, LogOptions, Origin, Progress, Project, ProjectLog, Restore, RestoreOptions, RestoreTo,
    SearchOptions, SearchReport, Settings, blame_file, log, search,
};
use testkit::{Dice, Sandbox};

use crate::kit::{now, project_id};
use crate::turns::{end, origin, start, take};
use crate::upkeep::store_of;

fn project(sandbox: &Sandbox) -> Project {
    Project::at(&sandbox.project(), None).expect("a project")
}

fn history(sandbox: &Sandbox) -> History {
    History::of(&store_of(sandbox), &project(sandbox)).expect("a history")
}

fn log_of(sandbox: &Sandbox, paths: &[&str]) -> ProjectLog {
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    log(&history(sandbox), &LogOptions::default().paths(&paths), &Progress::default()).expect("a log")
}

/// Returns author and turn of each entry, newest first.
fn authors(log: &ProjectLog) -> Vec<(Author, String)> {
    let name = |entry: &piton::LogEntry| entry.period.turn.as_ref().map_or_else(String::new, |turn| turn.turn.clone());
    log.entries.iter().map(|entry| (entry.period.by, name(entry))).collect()
}

fn blame(sandbox: &Sandbox, path: &str) -> piton::Result<piton::FileBlame> {
    let (store, settings) = (store_of(sandbox), Settings::default());
    blame_file(&history(sandbox), &store, &project(sandbox), &settings, path.as_bytes())
}

/// Returns author and turn of each line.
fn blamed(sandbox: &Sandbox, path: &str) -> Vec<(String, Author, String)> {
    let blame = blame(sandbox, path).expect("a blame");
    let line = |line: &piton::BlameLine| {
        let period = &blame.periods[line.period];
        let turn = period.turn.as_ref().map_or_else(String::new, |turn| turn.turn.clone());
        (String::from_utf8_lossy(&line.text).into_owned(), period.by, turn)
    };
    blame.lines.iter().map(line).collect()
}

fn searched(sandbox: &Sandbox, text: &str, options: &SearchOptions<'_>) -> SearchReport {
    search(&history(sandbox), text, options, &Progress::default()).expect("a search")
}

fn line(text: &str, by: Author, turn: &str) -> (String, Author, String) {
    (text.to_owned(), by, turn.to_owned())
}

fn by_you(sandbox: &Sandbox) {
    take(sandbox, "by hand", Origin::default());
}

fn restore(sandbox: &Sandbox, to: RestoreTo<'_>) {
    let (store, project, settings) = (store_of(sandbox), project(sandbox), Settings::default());
    let options = RestoreOptions::default().across_sessions(true);
    let restore = Restore::prepare(&store, &project, to, options, &settings, now(), &Progress::default());
    restore.expect("a plan").apply().expect("a restore");
}

#[test]
fn changes_belong_to_the_turn_that_made_them_and_to_the_user_between_turns() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "earlier\n");
    sandbox.write("other", "x\n");
    start(&sandbox, "s", "one");
    sandbox.write("file", "earlier\none\n");
    end(&sandbox, "s", "one");
    sandbox.write("file", "earlier\none\nyou\n");
    start(&sandbox, "s", "two");
    sandbox.write("file", "earlier\none\nyou\ntwo\n");
    sandbox.write("other", "y\n");
    // Its end is not reported.
    start(&sandbox, "s", "three");
    sandbox.write("file", "earlier\none\nyou\ntwo\nthree\n");
    end(&sandbox, "s", "three");
    sandbox.write("file", "earlier\none\nyou\ntwo\nthree\nyou again\n");
    let (agent, you, unknown) = (Author::Agent, Author::You, Author::Unknown);
    let name = |by: Author, turn: &str| (by, turn.to_owned());
    let all = [name(agent, "three"), name(unknown, "two"), name(you, ""), name(agent, "one")];
    assert_eq!(authors(&log_of(&sandbox, &[])), all);
    assert_eq!(authors(&log_of(&sandbox, &["file"])), all);
    assert_eq!(authors(&log_of(&sandbox, &["other"])), [name(unknown, "two")]);
    assert_eq!(authors(&log_of(&sandbox, &["missing"])), []);
    let want = [
        line("earlier", Author::Earlier, ""),
        line("one", agent, "one"),
        line("you", you, ""),
        line("two", unknown, "two"),
        line("three", agent, "three"),
        line("you again", you, ""),
    ];
    assert_eq!(blamed(&sandbox, "file"), want);
}

#[test]
fn a_turn_that_is_still_open_may_have_made_the_newest_changes() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "earlier\n");
    start(&sandbox, "s", "one");
    sandbox.write("file", "earlier\none\n");
    assert_eq!(blamed(&sandbox, "file")[1], line("one", Author::Unknown, "one"));
    // An open turn of a killed agent ends where the same agent begins another one.
    start(&sandbox, "t", "two");
    sandbox.write("file", "earlier\none\ntwo\n");
    end(&sandbox, "t", "two");
    sandbox.write("file", "earlier\none\ntwo\nyou\n");
    let want = [
        line("earlier", Author::Earlier, ""),
        line("one", Author::Unknown, "one"),
        line("two", Author::Agent, "two"),
        line("you", Author::You, ""),
    ];
    assert_eq!(blamed(&sandbox, "file"), want);
}

#[test]
fn of_two_agents_at_work_at_the_same_time_neither_is_certain() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "earlier\n");
    start(&sandbox, "s", "one");
    sandbox.write("other", "1");
    take(&sandbox, "prompt: two", Origin::default().agent("codex").session("t").turn("two"));
    sandbox.write("file", "earlier\nwhose\n");
    end(&sandbox, "s", "one");
    let after = history(&sandbox).checkpoints()[0].id;
    let (store, project) = (store_of(&sandbox), project(&sandbox));
    let two = Origin::default().agent("codex").session("t").turn("two");
    piton::note_turn_end(&store, &project, &two, after, now()).expect("noted");
    assert_eq!(blamed(&sandbox, "file")[1].1, Author::Unknown);
}

#[test]
fn lines_that_a_restore_brings_back_belong_to_their_first_author() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "earlier\n");
    start(&sandbox, "s", "one");
    sandbox.write("file", "earlier\none\n");
    end(&sandbox, "s", "one");
    sandbox.write("mine", "1");
    start(&sandbox, "s", "two");
    fs::remove_file(sandbox.path("file")).expect("a file");
    sandbox.write("junk", "junk\n");
    end(&sandbox, "s", "two");
    restore(&sandbox, RestoreTo::Named("2"));
    let want = [line("earlier", Author::Earlier, ""), line("one", Author::Agent, "one")];
    assert_eq!(blamed(&sandbox, "file"), want);
    // The same once the restored files are in a checkpoint.
    start(&sandbox, "s", "three");
    assert_eq!(blamed(&sandbox, "file"), want);
    let log = log_of(&sandbox, &["file"]);
    let restored = log.entries.iter().find(|entry| entry.period.restored.is_some()).expect("a restore");
    assert_eq!(restored.period.by, Author::You);
}

#[test]
fn blame_follows_renames() {
    let sandbox = Sandbox::new();
    sandbox.write("old", "1\n2\n3\n4\n5\n6\n");
    start(&sandbox, "s", "one");
    sandbox.write("old", "1\n2\n3\n4\n5\n6\none\n");
    end(&sandbox, "s", "one");
    sandbox.write("mine", "1");
    start(&sandbox, "s", "two");
    fs::rename(sandbox.path("old"), sandbox.path("new")).expect("a file");
    sandbox.write("new", "1\n2\n3\n4\n5\n6\none\ntwo\n");
    end(&sandbox, "s", "two");
    let found = blamed(&sandbox, "new");
    let by: Vec<_> = found.iter().map(|(_, by, turn)| (*by, turn.as_str())).collect();
    assert_eq!(by[..6], [(Author::Earlier, ""); 6]);
    assert_eq!(by[6..], [(Author::Agent, "one"), (Author::Agent, "two")]);
}

#[test]
fn a_file_without_lines_or_without_text_has_no_blame() {
    let sandbox = Sandbox::new();
    sandbox.write("empty", "");
    sandbox.write("binary", b"\0\x01");
    sandbox.write("gone", "x\n");
    sandbox.tree("dir/x = 1");
    sandbox.write(".gitignore", "private/\n");
    sandbox.write(".env", "KEY=1\n");
    sandbox.tree("private/key = 1");
    by_you(&sandbox);
    fs::remove_file(sandbox.path("gone")).expect("a file");
    let kind = |path: &str| blame(&sandbox, path).map(|blame| blame.lines.len()).map_err(|error| error.kind());
    assert_eq!(kind("empty"), Ok(0));
    assert_eq!(kind("binary"), Err(ErrorKind::Invalid));
    assert_eq!(kind("dir"), Err(ErrorKind::Invalid));
    assert_eq!(kind(".env"), Err(ErrorKind::Invalid));
    assert_eq!(kind("private/key"), Err(ErrorKind::Invalid));
    assert_eq!(kind("gone"), Err(ErrorKind::NotFound));
    assert_eq!(kind("never"), Err(ErrorKind::NotFound));
}

/// A project of some files whose lines are words, changed at random: 17 checkpoints.
fn random_history(seed: u64) -> Sandbox {
    let (sandbox, mut dice) = (Sandbox::new(), Dice::new(seed));
    const FILES: [&str; 6] = ["a", "dir/b", "dir/deep/c", "d", "dir/e", "f"];
    const WORDS: [&str; 5] = ["needle", "hay", "needle needle", "straw", "needles, hay"];
    for file in FILES {
        sandbox.write(file, "hay\nneedle\n");
    }
    by_you(&sandbox);
    for number in 0..16 {
        for _ in 0..dice.between(1, 3) {
            let file = dice.pick(&FILES);
            match dice.roll(8) {
                0 => drop(fs::remove_file(sandbox.path(file))),
                1 => drop(fs::rename(sandbox.path(file), sandbox.path(dice.pick(&FILES)))),
                2 => sandbox.write(file, [b"\0needle", dice.noise(20).as_slice()].concat()),
                _ => {
                    let mut lines: Vec<String> = (0..dice.roll(6)).map(|_| dice.pick(&WORDS).to_owned()).collect();
                    lines.push(format!("{number}"));
                    sandbox.write(file, lines.join("\n"));
                }
            }
        }
        by_you(&sandbox);
    }
    sandbox
}

/// Returns the commits that git finds.
fn git_log(sandbox: &Sandbox, args: &[&str]) -> BTreeSet<String> {
    let name = format!("refs/hermes/{}", project_id(sandbox));
    let args = [&["log", "-M100%", "-l0", "--format=%H"], args, &[&name, "--"]].concat();
    String::from_utf8_lossy(&sandbox.store_git(&args)).lines().map(str::to_owned).collect()
}

#[test]
fn search_finds_the_commits_that_git_log_s_finds() {
    let mut commits = 0;
    for seed in 1..9 {
        let sandbox = random_history(seed);
        let found = |text: &str, is_regex: bool| -> BTreeSet<String> {
            let options = SearchOptions::default().is_regex(is_regex).within(true, false).in_oldest(true);
            let entries = searched(&sandbox, text, &options).entries;
            entries.iter().flat_map(|entry| &entry.contents).map(|found| found.to.to_string()).collect()
        };
        for text in ["needle", "hay", "straw", "needles", "nothing of the kind"] {
            let want = git_log(&sandbox, &[&format!("-S{text}")]);
            assert_eq!(found(text, false), want, "seed {seed}: {text}");
            commits += want.len();
        }
        for text in ["n[aeiou]+dles?", "^hay$", "needle.*needle", "[0-9]+"] {
            let want = git_log(&sandbox, &["--pickaxe-regex", &format!("-S{text}")]);
            assert_eq!(found(text, true), want, "seed {seed}: {text}");
        }
    }
    assert!(commits > 100, "the histories are too plain: {commits}");
}

#[test]
fn the_log_of_a_path_has_the_commits_and_the_counts_of_git() {
    for seed in 1..6 {
        let sandbox = random_history(seed);
        for path in ["a", "dir", "dir/deep/c", "."] {
            let wanted: &[&str] = if path == "." { &[] } else { &[path] };
            let log = log_of(&sandbox, wanted);
            let found: BTreeSet<String> =
                log.entries.iter().filter_map(|entry| entry.period.to).map(|id| id.to_string()).collect();
            let name = format!("refs/hermes/{}", project_id(&sandbox));
            let want = sandbox.store_git(&["log", "--format=%H", "--min-parents=1", &name, "--", path]);
            let want: BTreeSet<String> = String::from_utf8_lossy(&want).lines().map(str::to_owned).collect();
            assert_eq!(found, want, "seed {seed}: {path}");
            for entry in &log.entries {
                let (from, to) = (entry.period.from.expect("an id"), entry.period.to.expect("an id"));
                let args = ["diff", "--no-renames", "--numstat", &from.to_string(), &to.to_string(), "--", path];
                let counts = String::from_utf8_lossy(&sandbox.store_git(&args)).into_owned();
                let sum = |at: usize| -> u64 {
                    counts.lines().filter_map(|line| line.split('\t').nth(at)?.parse::<u64>().ok()).sum()
                };
                let renamed = entry.files.iter().any(|file| file.old_path.is_some());
                assert!(renamed || entry.totals() == (sum(0), sum(1)), "seed {seed}: {path} {entry:?}\n{counts}");
            }
        }
    }
}

#[test]
fn the_patch_of_a_log_entry_is_that_of_a_diff() {
    let sandbox = random_history(3);
    let options = LogOptions::default().with_patch(true);
    let with = log(&history(&sandbox), &options, &Progress::default()).expect("a log");
    let without = log_of(&sandbox, &[]);
    assert_eq!(with.entries.len(), without.entries.len());
    for (with, without) in with.entries.iter().zip(&without.entries) {
        assert_eq!(with.files, without.files);
        let names = [with.period.from, with.period.to].map(|id| id.expect("an id").to_string());
        let (store, project) = (store_of(&sandbox), project(&sandbox));
        let settings = Settings::default();
        let diff = piton::diff(&store, &project, (&names[0], Some(&names[1])), &[], &settings, &Progress::default());
        assert_eq!(with.patch.as_ref(), Some(&diff.expect("a diff").patch));
    }
}

#[test]
fn blame_names_the_commits_that_git_blame_names() {
    for seed in 20..26 {
        let (sandbox, mut dice) = (Sandbox::new(), Dice::new(seed));
        let mut lines: Vec<String> = (0..20).map(|at| format!("line {at}\n")).collect();
        for round in 0..16 {
            for _ in 0..dice.between(1, 4) {
                let at = dice.roll(lines.len() + 1);
                match dice.roll(3) {
                    0 if at < lines.len() => drop(lines.remove(at)),
                    _ => lines.insert(at, format!("round {round}, {}\n", dice.roll(1000))),
                }
            }
            sandbox.write("file", lines.concat());
            by_you(&sandbox);
        }
        let blame = blame(&sandbox, "file").expect("a blame");
        let found: Vec<String> =
            blame.lines.iter().map(|line| blame.periods[line.period].to.expect("a checkpoint").to_string()).collect();
        let name = format!("refs/hermes/{}", project_id(&sandbox));
        let porcelain = sandbox.store_git(&["blame", "--line-porcelain", "--root", &name, "--", "file"]);
        let porcelain = String::from_utf8_lossy(&porcelain).into_owned();
        let is_id = |word: &&str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let want: Vec<String> = porcelain
            .lines()
            .filter(|line| !line.starts_with('\t'))
            .filter_map(|line| line.split(' ').next().filter(is_id).map(str::to_owned))
            .collect();
        assert_eq!(found, want, "seed {seed}");
    }
}

#[test]
fn search_finds_prompts_reasons_and_paths() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "1");
    take(&sandbox, "prompt: look for the unicorn", origin("s", "one"));
    sandbox.write("file", "2");
    take(&sandbox, "prompt: any other unicorn?", origin("s", "two"));
    sandbox.tree("herd/unicorn.txt = 2");
    end(&sandbox, "s", "two");
    sandbox.write("file", "3");
    take(&sandbox, "a unicorn by hand", Origin::default());
    let all = searched(&sandbox, "unicorn", &SearchOptions::default()).entries;
    let prompts: Vec<&str> =
        all.iter().flat_map(|entry| &entry.texts).filter(|one| one.is_prompt).map(|one| one.text.as_str()).collect();
    let reasons: Vec<&str> =
        all.iter().flat_map(|entry| &entry.texts).filter(|one| !one.is_prompt).map(|one| one.text.as_str()).collect();
    let paths: Vec<&[u8]> = all.iter().flat_map(|entry| &entry.paths).map(Vec::as_slice).collect();
    assert_eq!(prompts.iter().collect::<BTreeSet<_>>().len(), 2, "{prompts:?}");
    assert_eq!(reasons, ["a unicorn by hand"]);
    assert_eq!(paths, [b"herd/unicorn.txt"]);
    let only = |contents: bool, prompts: bool| {
        let options = SearchOptions::default().within(contents, prompts);
        let entries = searched(&sandbox, "unicorn", &options).entries;
        let texts = entries.iter().map(|entry| entry.texts.len()).sum::<usize>();
        (texts, entries.iter().map(|entry| entry.paths.len()).sum::<usize>())
    };
    assert_eq!(only(true, false), (0, 1));
    assert_eq!(only(false, true), (3, 0));
    // With paths, only the turns that changed them.
    let herd = [b"herd".to_vec()];
    let entries = searched(&sandbox, "unicorn", &SearchOptions::default().paths(&herd)).entries;
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].texts.len(), 1, "{entries:?}");
}

#[test]
fn what_was_made_and_destroyed_in_one_turn_is_found() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "hay\n");
    start(&sandbox, "s", "one");
    sandbox.write("file", "hay\nneedle\n");
    take(&sandbox, "before terminal: rm", Origin::default());
    sandbox.write("file", "hay\n");
    sandbox.write("x", "1");
    end(&sandbox, "s", "one");
    let entries = searched(&sandbox, "needle", &SearchOptions::default()).entries;
    assert_eq!(entries.len(), 1, "one turn: {entries:?}");
    let counts: Vec<_> = entries[0].contents.iter().map(|found| (found.before, found.after)).collect();
    assert_eq!(counts, [(0, 1), (1, 0)]);
    let lines: Vec<_> = entries[0].contents.iter().flat_map(|found| &found.lines).collect();
    assert_eq!(lines.iter().map(|line| (line.added, line.line)).collect::<Vec<_>>(), [(true, 2), (false, 2)]);
    assert_eq!(log_of(&sandbox, &["file"]).entries, [], "from start to end nothing changed");
}

#[test]
fn a_pattern_that_is_empty_or_invalid_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "1");
    by_you(&sandbox);
    let kind = |text: &str, is_regex: bool| {
        let options = SearchOptions::default().is_regex(is_regex);
        search(&history(&sandbox), text, &options, &Progress::default()).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(kind("", false), Err(ErrorKind::Invalid));
    assert_eq!(kind("(", true), Err(ErrorKind::Invalid));
    assert_eq!(kind("(", false), Ok(()));
}

#[test]
fn a_history_with_missing_contents_is_searched_as_far_as_it_can_be_read() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "hay\n");
    by_you(&sandbox);
    sandbox.write("file", "needle one\n");
    by_you(&sandbox);
    sandbox.write("file", "needle two\n");
    by_you(&sandbox);
    sandbox.write("file", "straw\n");
    by_you(&sandbox);
    // The contents of the second checkpoint are lost.
    let name = format!("refs/hermes/{}~2", project_id(&sandbox));
    let blob = sandbox.store_git(&["rev-parse", &format!("{name}:file")]);
    let blob = String::from_utf8_lossy(&blob).trim().to_owned();
    lose(&sandbox, &blob);
    let report = searched(&sandbox, "needle", &SearchOptions::default());
    assert_eq!(report.unread.len(), 2, "{report:?}");
    assert_eq!(report.entries.len(), 1, "{report:?}");
    let log = log_of(&sandbox, &[]);
    assert_eq!((log.unread.len(), log.entries.len()), (2, 1));
}

/// Removes one object from the store: all packs become loose objects, and its file goes.
fn lose(sandbox: &Sandbox, id: &str) {
    let dir = sandbox.store().join("objects/pack");
    let aside = sandbox.root().join("packs");
    fs::create_dir(&aside).expect("a directory");
    for entry in fs::read_dir(&dir).expect("packs").flatten() {
        fs::rename(entry.path(), aside.join(entry.file_name())).expect("a file");
    }
    for entry in fs::read_dir(&aside).expect("packs").flatten() {
        if entry.path().extension().is_some_and(|end| end == "pack") {
            let mut git = testkit::git();
            git.arg("--git-dir").arg(sandbox.store()).args(["unpack-objects", "-q"]);
            git.stdin(fs::File::open(entry.path()).expect("a pack"));
            assert!(git.status().expect("git runs").success());
        }
    }
    fs::remove_file(sandbox.store().join("objects").join(&id[..2]).join(&id[2..])).expect("a loose object");
}
