//! Compares the matcher with stock git: random trees with random lists, walked by both.
//!
//! Each tree is a real directory and is listed with one `git ls-files --others --exclude-standard`, which prints the
//! files that are not ignored. `PITON_IGNORE_CASES` is the number of trees (200 if not set), `PITON_IGNORE_SEED` the
//! first seed; every tree has its own seed, which a failure names. Without git there is nothing to compare with, and
//! the tests fail.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_ignore::{MatchVerdict, Patterns};
use testkit::Dice;

type Bytes = Vec<u8>;

/// Source of random trees: a seed gives the same tree everywhere.
struct Random(Dice);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Dice::new(seed + 1))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.roll(bound)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the words, which are separated by `|`.
    fn word<'a>(&mut self, words: &'a [u8]) -> &'a [u8] {
        let words: Vec<_> = words.split(|b| *b == b'|').collect();
        words[self.below(words.len())]
    }

    fn byte(&mut self, from: &[u8]) -> u8 {
        from[self.below(from.len())]
    }
}

/// A directory: entries by name, and maybe a list.
#[derive(Default)]
struct Dir {
    list: Option<Bytes>,
    dirs: BTreeMap<Bytes, Dir>,
    files: BTreeSet<Bytes>,
    links: BTreeSet<Bytes>,
}

const PLAIN: &[u8] = b"aaabbbccA.";
const ODD: &[u8] = b"abc.*?[]!^\\# -{}\t\r~1\x01\xff\xc3\xa9";
const SOUP: &[u8] = b"aabbcc..**??[[]]!^\\\\//# -{}\t\r,:~1\x01\xff\xc3\xa9";

const CLASSES: &[u8] = b"[:alpha:]|[:lower:]|[:upper:]|[:alnum:]|[:digit:]|[:space:]|[:punct:]|\
    [:xdigit:]|[:print:]|[:graph:]|[:cntrl:]|[:blank:]|[:no:]|[::]|[:";
const LINES: &[u8] = b"|/|!|#a|\\#a|\\!a|*|*/|/*|**|!*/|//|a |a\\ |a \\|\\|**/|/**| |a\t|\
    \xef\xbb\xbfa|.*|.gitignore|\\a|[|a\0b|!!a|\\\\|*.*|a\\ \\  |b\r\0";

fn random_name(random: &mut Random) -> Bytes {
    if random.one_in(50) {
        return vec![random.byte(PLAIN); 60 + random.below(8)];
    }
    let (letters, most) = match random.below(12) {
        0 | 1 => (ODD, 4),
        2..5 => (&b"ab"[..], 14),
        _ => (PLAIN, 4),
    };
    loop {
        let length = 1 + random.below(most);
        let name: Bytes = (0..length).map(|_| random.byte(letters)).collect();
        if name != b"." && name != b".." {
            return name;
        }
    }
}

fn random_dir(random: &mut Random, depth: usize) -> Dir {
    let mut dir = Dir::default();
    for _ in 0..=random.below(4) {
        dir.files.insert(random_name(random));
    }
    for _ in 0..if depth == 0 { 0 } else { random.below(5) } {
        let name = random_name(random);
        if !dir.files.contains(&name) {
            dir.dirs.insert(name, random_dir(random, depth - 1));
        }
    }
    if random.one_in(8) {
        let name = random_name(random);
        if !dir.files.contains(&name) && !dir.dirs.contains_key(&name) {
            dir.links.insert(name);
        }
    }
    dir
}

fn paths_below(dir: &Dir, prefix: &[u8], paths: &mut Vec<Bytes>) {
    let join = |name: &Bytes| [prefix, name].concat();
    paths.extend(dir.files.iter().chain(&dir.links).map(join));
    for (name, sub) in &dir.dirs {
        let path = join(name);
        paths_below(sub, &[&path, &b"/"[..]].concat(), paths);
        paths.push(path);
    }
}

/// Creates a pattern from an existing path, so that a fair share of the patterns matches something.
fn bent_pattern(random: &mut Random, path: &[u8]) -> Bytes {
    let mut parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    parts.drain(..random.below(parts.len()));
    let mut pattern = Bytes::new();
    let wild = 3 + random.below(12);
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            pattern.extend(random.word(b"/|/|/|/**/|\\/|**/|/**|*"));
        }
        if random.one_in(wild) {
            pattern.extend(random.word(b"*|**|***|*/*|?"));
            continue;
        }
        for byte in *part {
            bend(random, *byte, wild, &mut pattern);
        }
    }
    let before = random.word(b"||||/|**/|/**/|*|**|*/|**/**/");
    let behind = random.word(b"||||/|/**|*|**|/*|/**/|//");
    [before, &pattern, behind].concat()
}

fn bend(random: &mut Random, byte: u8, wild: usize, pattern: &mut Bytes) {
    let special = b"*?[\\!# ".contains(&byte);
    if special && !random.one_in(4) {
        pattern.extend([b'\\', byte]);
    } else if !random.one_in(wild) {
        pattern.push(byte);
    } else {
        match random.below(8) {
            0 => pattern.push(b'?'),
            1 => pattern.extend([b'\\', byte]),
            2 => pattern.push(b'*'),
            3 => pattern.extend(b"**"),
            4 => pattern.extend([b'[', byte, b']']),
            5 => pattern.push(random.byte(SOUP)),
            6 => random_set(random, Some(byte), pattern),
            _ => random_set(random, None, pattern),
        }
    }
}

fn random_set(random: &mut Random, member: Option<u8>, pattern: &mut Bytes) {
    pattern.extend(random.word(b"[|[|[!|[^|[]|[!]"));
    for i in 0..random.below(4) {
        if i == 1 {
            pattern.extend(member);
        }
        match random.below(6) {
            0 => pattern.extend([random.byte(ODD), b'-', random.byte(ODD)]),
            1 => pattern.extend([b'\\', random.byte(SOUP)]),
            2 => pattern.extend(random.word(CLASSES)),
            3 => pattern.extend(random.word(b"a-c|a-b|\\a-\\c|-|/|--|a-")),
            _ => pattern.push(random.byte(SOUP)),
        }
    }
    if !random.one_in(12) {
        pattern.push(b']');
    }
}

fn random_list(random: &mut Random, paths: &[Bytes]) -> Bytes {
    let mut list = Bytes::new();
    if random.one_in(15) {
        list.extend(b"\xef\xbb\xbf");
    }
    let most = if random.one_in(4) { 25 } else { 6 };
    let lines = 1 + random.below(most);
    for _ in 0..lines {
        if random.one_in(4) {
            list.push(b'!');
        }
        match random.below(12) {
            0 => list.extend((0..random.below(7)).map(|_| random.byte(SOUP)).collect::<Bytes>()),
            1 => list.extend(random.word(LINES)),
            // Many stars over two letters, to make the matcher backtrack.
            2 => (0..2 + random.below(10)).for_each(|_| {
                list.extend(random.word(b"a|b|ab|ba|*|*|*a|*b*|?|[a]|/|/**/|**/|/*"));
            }),
            _ => {
                let path = &paths[random.below(paths.len())];
                list.extend(bent_pattern(random, path));
            }
        }
        if random.one_in(10) {
            list.extend(random.word(b" |  |\t|\\ |\r| \r|\r\r|\\"));
        }
        list.extend(random.word(b"\n|\n|\n|\n|\n|\r\n"));
    }
    if random.one_in(4) {
        list.pop();
    }
    list
}

fn add_lists(random: &mut Random, dir: &mut Dir, root: bool) {
    if root || random.one_in(4) {
        let mut paths = Vec::new();
        paths_below(dir, b"", &mut paths);
        dir.list = Some(random_list(random, &paths));
    }
    for sub in dir.dirs.values_mut() {
        add_lists(random, sub, false);
    }
}

fn make(dir: &Dir, at: &Path) {
    fs::create_dir(at).expect("a directory of our own, and git");
    let path = |name: &Bytes| at.join(OsStr::from_bytes(name));
    dir.files.iter().for_each(|name| fs::write(path(name), b"").expect("a directory of our own, and git"));
    dir.links
        .iter()
        .for_each(|name| std::os::unix::fs::symlink(".", path(name)).expect("a directory of our own, and git"));
    dir.dirs.iter().for_each(|(name, sub)| make(sub, &path(name)));
    if let Some(list) = &dir.list {
        fs::write(at.join(".gitignore"), list).expect("a directory of our own, and git");
    }
}

/// Collects the files that are not ignored, the way the matcher's callers do.
fn walk(dir: &Dir, prefix: &[u8], lists: &mut Vec<(usize, Patterns)>, kept: &mut BTreeSet<Bytes>) {
    if let Some(list) = &dir.list {
        lists.push((prefix.len(), Patterns::parse(list)));
    }
    let ignored = |lists: &[(usize, Patterns)], path: &[u8], is_dir| {
        let mut verdicts = lists.iter().rev().map(|(base, list)| list.verdict(&path[*base..], is_dir));
        verdicts.find_map(|verdict| verdict) == Some(MatchVerdict::Ignored)
    };
    let list_name = dir.list.as_ref().map(|_| b".gitignore".to_vec());
    for name in dir.files.iter().chain(&dir.links).chain(&list_name) {
        let path = [prefix, name].concat();
        if !ignored(lists, &path, false) {
            kept.insert(path);
        }
    }
    for (name, sub) in &dir.dirs {
        let path = [prefix, name].concat();
        if !ignored(lists, &path, true) {
            walk(sub, &[&path, &b"/"[..]].concat(), lists, kept);
        }
    }
    if dir.list.is_some() {
        lists.pop();
    }
}

/// A temporary directory with an empty repository, removed on drop.
struct Lab(PathBuf);

impl Lab {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("ignore-oracle-{name}-{}", std::process::id()));
        fs::create_dir(&root).expect("a directory of our own, and git");
        let lab = Self(root);
        let git =
            lab.git(&lab.0).args(["init", "--quiet", "--template="]).output().expect("a directory of our own, and git");
        assert!(git.status.success(), "{}", String::from_utf8_lossy(&git.stderr));
        lab
    }

    fn git(&self, tree: &Path) -> Command {
        let mut git = Command::new("git");
        for name in ["GIT_INDEX_FILE", "GIT_CONFIG", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"] {
            git.env_remove(name);
        }
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        git.env("GIT_DIR", self.0.join("repository")).env("GIT_WORK_TREE", tree).current_dir(tree);
        git.args(["-c", "core.excludesFile=/dev/null", "-c", "core.untrackedCache=false"]);
        git.args(["-c", "core.ignoreCase=false"]);
        git
    }

    /// Returns the files that git does not ignore.
    fn oracle(&self, dir: &Dir) -> BTreeSet<Bytes> {
        let tree = self.0.join("tree");
        make(dir, &tree);
        let args = ["ls-files", "-z", "--others", "--exclude-standard"];
        let git = self.git(&tree).args(args).output().expect("a directory of our own, and git");
        assert!(git.status.success(), "{}", String::from_utf8_lossy(&git.stderr));
        fs::remove_dir_all(&tree).expect("a directory of our own, and git");
        let paths = git.stdout.split(|b| *b == 0).filter(|path| !path.is_empty());
        paths.map(<[u8]>::to_vec).collect()
    }

    /// Compares the two; returns the number of files and the number kept.
    fn compare(&self, dir: &Dir, label: &str) -> Result<(usize, usize), String> {
        let theirs = self.oracle(dir);
        let mut ours = BTreeSet::new();
        walk(dir, b"", &mut Vec::new(), &mut ours);
        if ours == theirs {
            let mut all = Vec::new();
            paths_below(dir, b"", &mut all);
            return Ok((all.len(), ours.len()));
        }
        let mut report = format!("{label}\n");
        for (who, paths) in [("ours", ours.difference(&theirs)), ("git", theirs.difference(&ours))] {
            for path in paths {
                report += &["  only ", who, " keeps ", &path.escape_ascii().to_string(), "\n"].concat();
            }
        }
        describe_lists(dir, b"", &mut report);
        Err(report)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Best effort: a leftover directory must not fail the test.
        _ = fs::remove_dir_all(&self.0);
    }
}

fn describe_lists(dir: &Dir, prefix: &[u8], report: &mut String) {
    if let Some(list) = &dir.list {
        *report += &["  in ./", &prefix.escape_ascii().to_string(), "\n"].concat();
        for line in list.split(|b| *b == b'\n') {
            *report += &["    |", &line.escape_ascii().to_string(), "|\n"].concat();
        }
    }
    for (name, sub) in &dir.dirs {
        describe_lists(sub, &[prefix, name, b"/"].concat(), report);
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a directory of our own, and git"))
}

#[test]
fn random_trees() {
    let (cases, seed) = (setting("PITON_IGNORE_CASES", 200), setting("PITON_IGNORE_SEED", 0));
    let threads = 2;
    let run = |thread: u64| {
        let lab = Lab::new(&format!("random{thread}"));
        let (mut failures, mut all, mut kept) = (Vec::new(), 0, 0);
        for case in (seed..seed + cases).filter(|case| case % threads == thread) {
            let mut random = Random::new(case);
            let mut dir = random_dir(&mut random, 4);
            add_lists(&mut random, &mut dir, true);
            match lab.compare(&dir, &format!("seed {case}:")) {
                Ok(counts) => (all, kept) = (all + counts.0, kept + counts.1),
                Err(report) => failures.push(report),
            }
        }
        (failures, all, kept)
    };
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a directory of our own, and git")).collect::<Vec<_>>()
    });
    let failures: Vec<_> = results.iter().flat_map(|result| &result.0).collect();
    let (all, kept) = results.iter().fold((0, 0), |sum, result| (sum.0 + result.1, sum.1 + result.2));
    let first: String = failures.iter().take(10).map(|report| report.as_str()).collect();
    assert!(failures.is_empty(), "{} of {cases} trees differ:\n{first}", failures.len());
    // The comparison proves little if all or nothing is ignored.
    assert!(kept * 10 > all && kept * 10 < all * 9);
}

/// Compares every byte that a name can contain with every class, and with plain and negated ranges.
#[test]
fn every_byte_in_sets() {
    let lab = Lab::new("bytes");
    let classes = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit ALPHA ";
    let mut patterns: Vec<Bytes> = Vec::new();
    for class in classes.split(' ') {
        patterns.push(format!("x[[:{class}:]]").into());
        patterns.push(format!("x[![:{class}:]]").into());
        patterns.push(format!("/x[^[:{class}:]a-f]").into());
    }
    let others = b"x[\x01-\xff] x[!\x80-\xff] x[+--] x[!--0] x? /x? x* x[Z-a] x[a-Z] x[a-f-z] x[]-a]";
    patterns.extend(others.split(|b| *b == b' ').map(<[u8]>::to_vec));
    let mut dir = Dir::default();
    dir.files.extend((1..=255).filter(|b| *b != b'/').map(|b| vec![b'x', b]));
    for pattern in patterns {
        dir.list = Some(pattern.clone());
        lab.compare(&dir, &format!("{}", pattern.escape_ascii())).expect("a directory of our own, and git");
    }
}
