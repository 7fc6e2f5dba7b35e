//! Matching of paths against gitignore lists, exactly as git does it.
//!
//! A list keeps its patterns by how they can be looked up. Whole names, suffixes of names (`*.o`) and whole paths are
//! in hash tables behind a filter on length and last byte; only the remaining patterns are tried one by one. So the
//! usual list of some hundred lines costs a few lookups per path, however long it is. The last matching line decides,
//! hence every pattern carries the rank of its line.
//!
//! Not done here: reading files (git does not follow a symbolic link in place of a `.gitignore`, and drops a list of
//! more than 100 MiB), ordering the lists of nested directories, and skipping ignored directories. Callers consult the
//! list of the deepest directory first and stop at the first verdict.
//!
//! ```
//! use piton_ignore::{MatchVerdict, Patterns};
//!
//! let list = Patterns::parse(b"*.log\n!keep.log\n/target/\n");
//! assert_eq!(list.verdict(b"a/b.log", false), Some(MatchVerdict::Ignored));
//! assert_eq!(list.verdict(b"a/keep.log", false), Some(MatchVerdict::Included));
//! assert_eq!(list.verdict(b"target", true), Some(MatchVerdict::Ignored));
//! assert_eq!(list.verdict(b"target", false), None);
//! ```

mod wildmatch;

use std::collections::HashMap;

use wildmatch::{Against, Glob, Shape, byte_bits, compile};

/// Verdict of a list on a path that one of its patterns matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchVerdict {
    /// The last matching pattern ignores the path.
    Ignored,
    /// The last matching pattern begins with `!`.
    Included,
}

/// One list of patterns, as in one `.gitignore` file.
#[derive(Debug, Default)]
pub struct Patterns {
    names: Table,
    endings: Table,
    paths: Table,
    /// Ranks of `*` and `*/`: their suffix is empty, and the filter by last byte cannot hold it.
    all: Ranks,
    name_globs: Vec<Ranked>,
    path_globs: Vec<Ranked>,
}

/// Glob that no table can look up, in the order of the lines.
#[derive(Debug)]
struct Ranked {
    rank: Rank,
    dir_only: bool,
    glob: Glob,
}

/// Position of a pattern in the list, in a comparable form: later lines are greater, 0 means no line, and the lowest
/// bit is set for a negated pattern.
type Rank = usize;

/// Ranks of the last line with a given pattern: among all lines, and among those that are not for directories only.
#[derive(Clone, Copy, Debug, Default)]
struct Ranks {
    dir: Rank,
    file: Rank,
}

impl Ranks {
    fn add(&mut self, rank: Rank, dir_only: bool) {
        self.dir = rank;
        if !dir_only {
            self.file = rank;
        }
    }

    fn get(self, is_dir: bool) -> Rank {
        if is_dir { self.dir } else { self.file }
    }
}

impl Patterns {
    /// Parses a list. Never fails: a line that git cannot use is ignored.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut list = Self::default();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (number, line) in text.split(|b| *b == b'\n').enumerate() {
            list.add_line(line, 2 * (number + 1));
        }
        list
    }

    /// Returns the verdict of the last pattern that matches. `path` is relative to the directory of the list, without a
    /// slash at either end. A symbolic link to a directory is not a directory.
    #[must_use]
    pub fn verdict(&self, path: &[u8], is_dir: bool) -> Option<MatchVerdict> {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let mut best = self.all.get(is_dir);
        best = best.max(self.names.whole(name).get(is_dir));
        best = best.max(self.paths.whole(path).get(is_dir));
        best = best.max(self.endings.ending(name, is_dir));
        if !self.name_globs.is_empty() {
            best = last_match(&self.name_globs, name, byte_bits(name), is_dir, best);
        }
        // Most path globs fail at their first byte, so computing the bits of the whole path would cost more.
        best = last_match(&self.path_globs, path, u64::MAX, is_dir, best);
        match best {
            0 => None,
            rank if negated(rank) => Some(MatchVerdict::Included),
            _ => Some(MatchVerdict::Ignored),
        }
    }

    fn add_line(&mut self, line: &[u8], mut rank: Rank) {
        if line.starts_with(b"#") {
            return;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Git ignores everything after a NUL byte; a carriage return before it is not at the end of the line.
        let line = line.split(|b| *b == 0).next().unwrap_or(line);
        let mut body = without_trailing_spaces(line);
        if let Some(rest) = body.strip_prefix(b"!") {
            body = rest;
            rank |= 1;
        }
        let dir_only = body.ends_with(b"/");
        body = body.strip_suffix(b"/").unwrap_or(body);
        let mut against = Against::Name;
        // A slash within a set or after a backslash counts, too.
        if body.contains(&b'/') {
            body = body.strip_prefix(b"/").unwrap_or(body);
            match below_anything(body) {
                Some(name) => body = name,
                None => against = Against::Path,
            }
        }
        if !body.is_empty() {
            self.add_pattern(body, against, rank, dir_only);
        }
    }

    fn add_pattern(&mut self, body: &[u8], against: Against, rank: Rank, dir_only: bool) {
        match (compile(body, against), against) {
            (None, _) => {}
            (Some(Shape::Literal(name)), Against::Name) => self.names.add(name, rank, dir_only),
            (Some(Shape::Literal(path)), Against::Path) => self.paths.add(path, rank, dir_only),
            (Some(Shape::Ending(end)), _) if end.is_empty() => self.all.add(rank, dir_only),
            (Some(Shape::Ending(end)), _) => self.endings.add(end, rank, dir_only),
            (Some(Shape::Glob(glob)), against) => {
                let globs = match against {
                    Against::Name => &mut self.name_globs,
                    Against::Path => &mut self.path_globs,
                };
                globs.push(Ranked { rank, dir_only, glob });
            }
        }
    }
}

fn negated(rank: Rank) -> bool {
    rank & 1 == 1
}

/// Returns the rank of the last glob that matches, or `best` if that is greater.
fn last_match(globs: &[Ranked], text: &[u8], bits: u64, is_dir: bool, best: Rank) -> Rank {
    for Ranked { rank, dir_only, glob } in globs.iter().rev() {
        if *rank < best {
            break;
        }
        if (*dir_only && !is_dir) || !glob.may_match(bits) {
            continue;
        }
        // A match that was given up counts as whichever result keeps the path: for a negated pattern, that is a match.
        if glob.matches(text).unwrap_or(negated(*rank)) {
            return *rank;
        }
    }
    best
}

/// Strips trailing spaces, except one that a backslash escapes. A tab is part of the pattern. Scanning from the end
/// would be wrong: whether a backslash escapes depends on those before it.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        at += if *byte == b'\\' { 2 } else { 1 };
        if *byte != b' ' {
            end = at;
        }
    }
    // A lone backslash at the end counts as two.
    &line[..end.min(line.len())]
}

/// Returns the name in `**/name`, which is equivalent to `name` alone and can be looked up.
fn below_anything(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    path[..slash]
        .split(|b| *b == b'/')
        .all(|part| part.len() > 1 && part.iter().all(|b| *b == b'*'))
        .then_some(&path[slash + 1..])
}

/// Non-empty literal texts, looked up by the whole text or by its suffixes.
#[derive(Debug, Default)]
struct Table {
    ranks: HashMap<Box<[u8]>, Ranks>,
    /// Lengths that occur, as bits, by last byte; the top bit means `LONG` or more. Rejects most paths without hashing.
    /// Not allocated while the table is empty, as most are.
    lengths: Vec<u64>,
}

const LONG: usize = 63;

impl Table {
    fn add(&mut self, text: Box<[u8]>, rank: Rank, dir_only: bool) {
        self.lengths.resize(256, 0);
        let last = text.last().expect("tables hold no empty text");
        self.lengths[usize::from(*last)] |= 1 << text.len().min(LONG);
        self.ranks.entry(text).or_default().add(rank, dir_only);
    }

    fn lengths(&self, text: &[u8]) -> u64 {
        let last = text.last().and_then(|last| self.lengths.get(usize::from(*last)));
        last.copied().unwrap_or(0)
    }

    fn whole(&self, text: &[u8]) -> Ranks {
        if self.lengths(text) >> text.len().min(LONG) & 1 == 0 {
            return Ranks::default();
        }
        self.ranks.get(text).copied().unwrap_or_default()
    }

    /// Returns the greatest rank of all suffixes of the text.
    fn ending(&self, text: &[u8], is_dir: bool) -> Rank {
        let mut best = 0;
        let mut look_up = |length| {
            let ending = &text[text.len() - length..];
            if let Some(ranks) = self.ranks.get(ending) {
                best = best.max(ranks.get(is_dir));
            }
        };
        let mut lengths = self.lengths(text);
        while lengths != 0 {
            let length = lengths.trailing_zeros() as usize;
            lengths &= lengths - 1;
            if length == LONG {
                (LONG..=text.len()).for_each(&mut look_up);
            } else if length <= text.len() {
                look_up(length);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MatchVerdict::{Ignored, Included};

    fn verdict(list: &str, path: &str) -> Option<MatchVerdict> {
        let is_dir = path.ends_with('/');
        Patterns::parse(list.as_bytes()).verdict(path.trim_end_matches('/').as_bytes(), is_dir)
    }

    #[test]
    fn lines() {
        for (list, path, expected) in [
            ("#a", "#a", None),
            ("\\#a", "#a", Some(Ignored)),
            ("!#a", "#a", Some(Included)),
            ("\\!a", "!a", Some(Ignored)),
            ("!!a", "!a", Some(Included)),
            ("a  ", "a", Some(Ignored)),
            ("a\\  ", "a ", Some(Ignored)),
            ("a\\\\ ", "a\\", Some(Ignored)),
            ("a\t", "a", None),
            ("a \r\nb\r", "a", Some(Ignored)),
            ("a \r\nb\r", "b", Some(Ignored)),
            ("a\r\r\n", "a\r", Some(Ignored)),
            ("\u{feff}a", "a", Some(Ignored)),
            ("\u{feff}#a", "#a", None),
            ("\n\u{feff}a", "a", None),
            ("a\0b", "a", Some(Ignored)),
            ("a\r\0", "a", None),
        ] {
            assert_eq!(verdict(list, path), expected, "{list:?} on {path:?}");
        }
    }

    #[test]
    fn anchors_and_directories() {
        for (list, path, expected) in [
            ("a", "x/a", Some(Ignored)),
            ("/a", "a", Some(Ignored)),
            ("/a", "x/a", None),
            ("a/b", "a/b", Some(Ignored)),
            ("a/b", "x/a/b", None),
            ("a/", "x/a/", Some(Ignored)),
            ("a/", "x/a", None),
            ("/*", "x/a", None),
            ("**/a", "a", Some(Ignored)),
            ("/**/**/a*", "x/y/ab", Some(Ignored)),
            ("**/a/b", "x/a/b", Some(Ignored)),
            ("a//", "a/", None),
            ("*.o", "x/.o", Some(Ignored)),
            ("*/", "x/", Some(Ignored)),
            ("*/", "x", None),
        ] {
            assert_eq!(verdict(list, path), expected, "{list:?} on {path:?}");
        }
    }

    #[test]
    fn the_last_match_decides_across_kinds() {
        let kinds = ["x.o", "*.o", "*", "/d/x.o", "[x].o", "d/?.o", "**/x.o", "d/**"];
        for first in kinds {
            assert_eq!(verdict(first, "d/x.o"), Some(Ignored));
            for second in kinds {
                assert_eq!(verdict(&format!("{first}\n!{second}"), "d/x.o"), Some(Included));
                assert_eq!(verdict(&format!("!{first}\n{second}"), "d/x.o"), Some(Ignored));
                // A pattern for directories only leaves a file to the line before.
                let list = format!("{first}\n!{second}/");
                assert_eq!(verdict(&list, "d/x.o"), Some(Ignored), "{list}");
                assert_eq!(verdict(&list, "d/x.o/"), Some(Included), "{list}");
            }
        }
    }

    #[test]
    fn endings_of_any_length() {
        for length in [1, 62, 63, 64, 200] {
            let ending = "e".repeat(length);
            let list = format!("*{ending}");
            assert_eq!(verdict(&list, &ending), Some(Ignored));
            assert_eq!(verdict(&list, &format!("x{ending}")), Some(Ignored));
            assert_eq!(verdict(&list, &ending[1..]), None);
            assert_eq!(verdict(&ending, &ending), Some(Ignored));
            assert_eq!(verdict(&ending, &format!("e{ending}")), None);
        }
    }

    #[test]
    fn a_match_given_up_keeps_the_path() {
        let hostile = "**/".to_owned() + &"a/".repeat(10_000) + "[b]*";
        let path = "a/".repeat(30_000) + "a";
        assert_eq!(verdict(&hostile, &path), None);
        assert_eq!(verdict(&format!("*\n!{hostile}"), &path), Some(Included));
    }

    #[test]
    fn lines_that_mean_nothing_match_nothing() {
        for list in ["", "\n\r\n", "#a\n", "/", "!", "//", "**//", "[a", "a\\", "   "] {
            for path in ["a", "[a", "a/b", "#a", " "] {
                assert_eq!(Patterns::parse(list.as_bytes()).verdict(path.as_bytes(), true), None, "{list:?} {path:?}");
            }
        }
    }

    #[test]
    fn shared_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Patterns>();
    }
}
