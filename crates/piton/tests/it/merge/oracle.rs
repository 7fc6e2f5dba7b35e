//! Random histories, reverted by the library and by `git merge-tree`.
//!
//! `PITON_MERGE_CASES` is the number of histories (300 if not set), `PITON_MERGE_SEED` the first seed; every history has
//! its own seed, which a failure names.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use piton::ObjectId;
use piton::merge::{ConflictReason, Entry, EntryKind, MergedContents, Tree, TreeMerge, merge_trees};
use testkit::Held;

use super::history::{History, State, history};

/// Returns the number in an environment variable.
pub(super) fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Contents by a made-up id.
#[derive(Default)]
struct Contents {
    ids: HashMap<Vec<u8>, ObjectId>,
    bytes: HashMap<ObjectId, Vec<u8>>,
}

impl Contents {
    fn id(&mut self, bytes: &[u8]) -> ObjectId {
        let mut raw = [0; 20];
        raw[..8].copy_from_slice(&(self.ids.len() as u64).to_be_bytes());
        let id = *self.ids.entry(bytes.to_vec()).or_insert(ObjectId::from_bytes(raw));
        self.bytes.insert(id, bytes.to_vec());
        id
    }

    fn tree(&mut self, state: &State) -> Tree {
        let entry = |held: &Held| match held {
            Held::File(false, bytes) => (EntryKind::File, bytes.clone()),
            Held::File(true, bytes) => (EntryKind::Executable, bytes.clone()),
            Held::Link(target) => (EntryKind::Link, target.clone()),
        };
        let entries = state.iter().map(|(path, held)| (path.clone(), entry(held)));
        entries.map(|(path, (kind, bytes))| (path, Entry { kind, id: self.id(&bytes) })).collect()
    }
}

/// Reverts the turn of a history. Returns the merge, and the state with its changes applied.
pub(crate) fn revert(history: &History) -> (TreeMerge, State) {
    let mut contents = Contents::default();
    let [base, ours, theirs] = [&history.end, &history.now, &history.start].map(|state| contents.tree(state));
    let merge =
        merge_trees(&base, &ours, &theirs, &mut |id| Ok(Some(contents.bytes[&id].clone()))).expect("all is read");
    let mut state = history.now.clone();
    for change in &merge.changes {
        assert_eq!(change.old, ours.get(&change.path).copied(), "{:?}", change.path.escape_ascii());
        let held = change.new.as_ref().map(|new| {
            let bytes = match &new.contents {
                MergedContents::Stored(id) => contents.bytes[id].clone(),
                MergedContents::Merged(bytes) => bytes.clone(),
            };
            match new.kind {
                EntryKind::Link => Held::Link(bytes),
                kind => Held::File(kind == EntryKind::Executable, bytes),
            }
        });
        match held {
            Some(held) => drop(state.insert(change.path.clone(), held)),
            None => drop(state.remove(&change.path)),
        }
    }
    for path in state.keys() {
        let mut above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        assert!(!above.any(|dir| state.contains_key(dir)), "{:?} is below a file", path.escape_ascii());
    }
    (merge, state)
}

/// Adds a commit to a stream for `git fast-import`.
fn put_commit(stream: &mut Vec<u8>, name: &str, parent: Option<&str>, state: &State) {
    let mut head = format!("commit refs/heads/{name}\ncommitter A <a@example.com> 0 +0000\ndata 0\n");
    parent.iter().for_each(|parent| writeln!(head, "from refs/heads/{parent}").expect("memory"));
    stream.extend(head.bytes().chain(*b"deleteall\n"));
    for (path, held) in state {
        let (mode, bytes) = match held {
            Held::File(false, bytes) => ("100644", bytes),
            Held::File(true, bytes) => ("100755", bytes),
            Held::Link(target) => ("120000", target),
        };
        stream.extend(format!("M {mode} inline ").bytes().chain(path.iter().copied()));
        stream.extend(format!("\ndata {}\n", bytes.len()).bytes().chain(bytes.iter().copied()).chain(*b"\n"));
    }
    stream.push(b'\n');
}

/// Runs git with input on stdin. Returns its output.
pub(super) fn git_with(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command: Command = testkit::git();
    command.arg("-C").arg(dir).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("git");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("git reads"));
        child.wait_with_output().expect("git ends")
    });
    assert!(output.status.success(), "git {args:?}");
    output.stdout
}

/// Returns for each history the tree that git makes of it, or `None` if git reports a conflict.
fn merged_by_git(dir: &Path, seeds: &[u64]) -> Vec<Option<String>> {
    let pairs: String = seeds.iter().map(|seed| format!("now{seed} start{seed}\n")).collect();
    let args = ["-c", "merge.directoryRenames=false", "merge-tree", "--stdin", "--no-messages", "--name-only"];
    let output = git_with(dir, &args, pairs.as_bytes());
    let mut words = output.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut results = Vec::new();
    for _ in seeds {
        let is_clean = words.next().expect("a status").trim() == "1";
        let tree = words.next().expect("a tree");
        while words.next().is_some_and(|name| !name.is_empty()) {}
        results.push(is_clean.then_some(tree));
    }
    results
}

/// Takes back two turns one after the other with `git merge-tree`, the newer one first. Returns the files of the result,
/// or `None` if git reports a conflict.
pub(crate) fn two_turns_by_git([start_one, end_one, start_two, end_two, now]: &[State; 5]) -> Option<State> {
    let sandbox = testkit::Sandbox::new();
    git_with(&sandbox.root(), &["init", "--quiet", "--bare", "oracle"], b"");
    let dir = sandbox.root().join("oracle");
    let mut stream = Vec::new();
    for (name, parent, state) in [
        ("end2", None, end_two),
        ("now", Some("end2"), now),
        ("start2", Some("end2"), start_two),
        ("end1", None, end_one),
        ("start1", Some("end1"), start_one),
    ] {
        put_commit(&mut stream, name, parent, state);
    }
    git_with(&dir, &["fast-import", "--quiet"], &stream);
    let merge = |ours: &str, theirs: &str| {
        let args = ["-c", "merge.directoryRenames=false", "merge-tree", "--write-tree", ours, theirs];
        let output = testkit::git().arg("-C").arg(&dir).args(args).output().expect("git");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The start of the second turn has the edits of the user since the first one.
    let tree = merge("now", "start2")?;
    let identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"];
    let commit = git_with(&dir, &[&identity[..], &["commit-tree", &tree, "-p", "end1"]].concat(), b"");
    let tree = merge(String::from_utf8_lossy(&commit).trim(), "start1")?;
    let listed = git_with(&dir, &["ls-tree", "-r", "-z", &tree], b"");
    let entries = listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    Some(entries.map(|entry| held_in_git(&dir, entry)).collect())
}

/// Returns the path and the contents of a line of `git ls-tree`.
fn held_in_git(dir: &Path, entry: &[u8]) -> (Vec<u8>, Held) {
    let tab = entry.iter().position(|byte| *byte == b'\t').expect("a tab");
    let facts = String::from_utf8_lossy(&entry[..tab]).into_owned();
    let facts: Vec<&str> = facts.split(' ').collect();
    let bytes = git_with(dir, &["cat-file", "blob", facts[2]], b"");
    let held = if facts[0] == "120000" { Held::Link(bytes) } else { Held::File(facts[0] == "100755", bytes) };
    (entry[tab + 1..].to_vec(), held)
}

/// Returns the trees of the commits that are named.
fn trees_of(dir: &Path, names: impl Iterator<Item = String>) -> Vec<String> {
    let asked: String = names.map(|name| format!("{name}^{{tree}}\n")).collect();
    let output = git_with(dir, &["cat-file", "--batch-check=%(objectname)"], asked.as_bytes());
    String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
}

/// Returns the difference between our tree and git's, and what git says about the merge.
fn explain(dir: &Path, seed: u64, ours: &str, theirs: Option<&str>) -> String {
    let args = ["-c", "merge.directoryRenames=false", "merge-tree", &format!("now{seed}"), &format!("start{seed}")];
    let said = testkit::git().arg("-C").arg(dir).args(args).output().expect("git").stdout;
    let tree = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
    let diff = git_with(dir, &["diff", &tree, ours], b"");
    let verdict = if theirs.is_some() { "both are clean and differ" } else { "only git has a conflict" };
    format!("{seed}: {verdict}\n{}\n{}", String::from_utf8_lossy(&said), String::from_utf8_lossy(&diff))
}

#[derive(Default, Debug)]
struct Tally {
    clean_in_both: u64,
    conflict_in_both: u64,
    conflict_here_only: u64,
}

fn compare(seeds: std::ops::Range<u64>, tally: &mut Tally, failures: &mut Vec<String>) {
    let seeds: Vec<u64> = seeds.collect();
    let sandbox = testkit::Sandbox::new();
    let dir = sandbox.root();
    git_with(&dir, &["init", "--quiet", "--bare", "oracle"], b"");
    let dir = dir.join("oracle");
    let (mut stream, mut ours) = (Vec::new(), Vec::new());
    for seed in &seeds {
        let history = history(*seed);
        let end = format!("end{seed}");
        put_commit(&mut stream, &end, None, &history.end);
        put_commit(&mut stream, &format!("now{seed}"), Some(&end), &history.now);
        put_commit(&mut stream, &format!("start{seed}"), Some(&end), &history.start);
        let (merge, state) = revert(&history);
        put_commit(&mut stream, &format!("ours{seed}"), None, &state);
        ours.push(merge);
    }
    git_with(&dir, &["fast-import", "--quiet"], &stream);
    let theirs = merged_by_git(&dir, &seeds);
    let trees = trees_of(&dir, seeds.iter().map(|seed| format!("ours{seed}")));
    for (((seed, merge), theirs), tree) in seeds.iter().zip(ours).zip(theirs).zip(trees) {
        match (merge.conflicts.is_empty(), theirs) {
            (true, Some(theirs)) if theirs == tree => tally.clean_in_both += 1,
            (true, theirs) => failures.push(explain(&dir, *seed, &tree, theirs.as_deref())),
            (false, Some(_)) => {
                tally.conflict_here_only += 1;
                if std::env::var_os("PITON_MERGE_SHOW").is_some() {
                    let reasons: Vec<&ConflictReason> =
                        merge.conflicts.iter().map(|conflict| &conflict.reason).collect();
                    let _ = writeln!(std::io::stderr(), "{seed}: {reasons:?}");
                }
            }
            (false, None) => tally.conflict_in_both += 1,
        }
    }
}

#[test]
fn random_histories_are_reverted_as_git_merges_them() {
    let first = number_from("PITON_MERGE_SEED", 0);
    let end = first + number_from("PITON_MERGE_CASES", 300);
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    for start in (first..end).step_by(500) {
        compare(start..end.min(start + 500), &mut tally, &mut failures);
    }
    let _ = writeln!(std::io::stderr(), "{tally:?}");
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), end - first, failures.join("\n"));
    assert!(tally.clean_in_both * 4 > end - first, "too few histories are clean: {tally:?}");
    assert!(tally.conflict_here_only * 20 < end - first, "too many conflicts that git does not have: {tally:?}");
}
