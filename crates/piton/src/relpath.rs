//! Names and paths inside a project, as bytes, and the rules for those that may enter a checkpoint.
//!
//! A path is relative, its components are separated by `/`, and none is empty, `.`, `..` or `.git` in any disguise.
//! Names are bytes and need not be UTF-8.

use std::cmp::Ordering;

/// Joins a name to the path of its directory. The project's own directory has the empty path.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    if !dir.is_empty() {
        path.extend_from_slice(dir);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Splits a path into the path of its directory and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Returns a directory and its parents, without the project's root.
pub(crate) fn ancestors(dir: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(dir), |dir| Some(split(dir).0)).take_while(|dir| !dir.is_empty())
}

/// Returns true if `path` is `dir` or is inside it.
pub(crate) fn is_within(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Compares two names, each with true for a directory, in git's order: a directory sorts as if its name ended in a
/// slash.
pub(crate) fn git_order(a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
    let key = |(name, is_dir): (&'_ [u8], bool), at: usize| match name.get(at) {
        Some(byte) => Some(*byte),
        None if at == name.len() && is_dir => Some(b'/'),
        None => None,
    };
    let common = a.0.len().min(b.0.len());
    a.0[..common].cmp(&b.0[..common]).then_with(|| key(a, common).cmp(&key(b, common)))
}

/// Returns true if a name may be in a tree. Not allowed are the empty name, `.`, `..`, names with a separator or a NUL,
/// and `.git` in any disguise that some file system or some version of git takes for the real one.
pub(crate) fn is_allowed(name: &[u8]) -> bool {
    !(name.is_empty()
        || name == b"."
        || name == b".."
        || name.iter().any(|byte| matches!(byte, b'/' | 0))
        || is_git_dir(name))
}

/// Returns true if the name is `.git`, also as macOS folds it (case, and characters that it ignores) and as Windows
/// does (case, the short name `git~1`, trailing dots and spaces, streams, and a backslash as separator).
pub(crate) fn is_git_dir(name: &[u8]) -> bool {
    folds_to_git(name) || name.split(|byte| *byte == b'\\').any(is_windows_git)
}

fn is_windows_git(name: &[u8]) -> bool {
    let rest = match name {
        [b'.', rest @ ..] if starts_with_fold(rest, b"git") => &rest[3..],
        rest if starts_with_fold(rest, b"git~1") => &rest[5..],
        _ => return false,
    };
    let end = rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len());
    rest[..end].iter().all(|byte| matches!(byte, b'.' | b' '))
}

fn starts_with_fold(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns true for a character that HFS+ ignores when it compares names.
fn is_unseen(character: char) -> bool {
    matches!(character, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

fn folds_to_git(name: &[u8]) -> bool {
    // A name that is not UTF-8 does not fold to `.git`.
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let mut seen = name.chars().filter(|character| !is_unseen(*character));
    b".git".iter().all(|want| seen.next().is_some_and(|have| have.eq_ignore_ascii_case(&char::from(*want))))
        && seen.next().is_none()
}

/// Prefix of the names of a restore's temporary files. A kind (`w` or `x`), the token of the restore and a number
/// follow, separated by hyphens.
pub(crate) const TEMPORARY: &[u8] = b".piton-restore-";

/// Returns the kind of a temporary file of a restore with one of these tokens. Returns `None` for every other file,
/// however similar its name is.
pub(crate) fn temporary_kind(name: &[u8], tokens: &[String]) -> Option<u8> {
    let (kind, rest) = name.strip_prefix(TEMPORARY)?.split_first()?;
    let rest = rest.strip_prefix(b"-")?;
    let is_one = |token: &String| rest.strip_prefix(token.as_bytes()).is_some_and(|rest| rest.starts_with(b"-"));
    (matches!(kind, b'w' | b'x') && tokens.iter().any(is_one)).then_some(*kind)
}

/// Reason why a path typed by a user cannot name something in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPath {
    /// It is empty.
    #[error("the path is empty")]
    Empty,
    /// It starts at the root of the file system.
    #[error("the path must be relative to the project")]
    Absolute,
    /// It contains `..`.
    #[error("the path leads out of the project")]
    Outside,
    /// It contains a component that no checkpoint holds.
    #[error("no checkpoint holds a path with .git in it")]
    GitDir,
    /// It contains a NUL byte, which no file system allows.
    #[error("the path contains a NUL byte")]
    Nul,
}

/// Parses a path typed by a user: `./a//b/` is `a/b`, and `.` is the project itself, the empty path.
///
/// ```
/// use piton::{BadPath, parse_path};
///
/// assert_eq!(parse_path(b"./src//main.rs"), Ok(b"src/main.rs".to_vec()));
/// assert_eq!(parse_path(b"../other"), Err(BadPath::Outside));
/// ```
pub fn parse(typed: &[u8]) -> Result<Vec<u8>, BadPath> {
    if typed.is_empty() {
        return Err(BadPath::Empty);
    }
    if typed[0] == b'/' {
        return Err(BadPath::Absolute);
    }
    if typed.contains(&0) {
        return Err(BadPath::Nul);
    }
    let mut path = Vec::new();
    for name in typed.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        if name == b".." {
            return Err(BadPath::Outside);
        }
        if !is_allowed(name) {
            return Err(BadPath::GitDir);
        }
        path = join(&path, name);
    }
    Ok(path)
}

/// Returns the bytes as printable ASCII without spaces: all other bytes, and `%` itself, become `%` and two hexadecimal
/// digits.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}

/// Decodes the result of [`escape`]. Returns `None` if a `%` is not followed by two hexadecimal digits.
pub(crate) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            bytes.push(hex_byte(after.get(..2)?)?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Some(bytes)
}

/// Parses two hexadecimal digits.
pub(crate) fn hex_byte(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else {
        return None;
    };
    Some(hex_digit(*high)? << 4 | hex_digit(*low)?)
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| u8::try_from(value).expect("a digit is below 16"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_in_any_disguise_is_refused() {
        for name in [
            &b".git"[..],
            b".GIT",
            b".Git",
            b"git~1",
            b"GIT~1",
            b".git.",
            b".git ",
            b".git. .",
            b"git~1.",
            b".git::$INDEX_ALLOCATION",
            b"a\\.git",
            b".git\\x",
            ".g\u{200c}it".as_bytes(),
            "\u{feff}.git".as_bytes(),
            b"",
            b".",
            b"..",
            b"a/b",
            b"a\0b",
        ] {
            assert!(!is_allowed(name), "{:?}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn names_of_every_other_kind_are_fine() {
        let long = [b'x'; 255];
        for name in [
            &b".gitignore"[..],
            b".github",
            b"git",
            b"git~2",
            b"x.git",
            b".gitx",
            b"-rf",
            b"a\nb",
            b"\xff\xfe",
            b" ",
            b"...",
            b"a\\b",
            &long,
        ] {
            assert!(is_allowed(name), "{:?}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn a_typed_path_stays_inside_the_project() {
        assert_eq!(parse(b"./src//main.rs/"), Ok(b"src/main.rs".to_vec()));
        assert_eq!(parse(b"."), Ok(Vec::new()));
        assert_eq!(parse(b""), Err(BadPath::Empty));
        assert_eq!(parse(b"/etc/passwd"), Err(BadPath::Absolute));
        assert_eq!(parse(b"src/../../x"), Err(BadPath::Outside));
        assert_eq!(parse(b"a/.GIT/config"), Err(BadPath::GitDir));
    }

    #[test]
    fn escaped_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(escape(&all).as_bytes()), Some(all));
        assert_eq!(unescape(b"%"), None);
        assert_eq!(unescape(b"%+1"), None);
        assert_eq!(unescape(b"%zz"), None);
    }
}
