//! Printing a diff in the format of `git apply`.

use std::io::Write as _;
use std::ops::Range;

use flate2::{Compression, write::ZlibEncoder};

use super::lines::{CONTEXT, Hunk, Lines};
use crate::id::{ID_BYTES, ObjectId};

const NO_ID: ObjectId = ObjectId::from_bytes([0; ID_BYTES]);

/// One side of a file that differs.
pub(crate) struct PatchSide<'a> {
    /// Mode in git's terms: 100644, 100755 or 120000.
    pub(crate) mode: u32,
    pub(crate) id: ObjectId,
    /// Contents; `None` if they are too large to be shown.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Prints one file that was added, deleted or modified.
pub(crate) fn print<'a>(out: &mut Vec<u8>, path: &[u8], old: Option<&PatchSide<'a>>, new: Option<&PatchSide<'a>>) {
    if let (Some(one), Some(other)) = (old, new)
        && (one.mode ^ other.mode) & 0o170_000 != 0
    {
        // A file that became a link, or the reverse, is printed as one deletion and one addition.
        print(out, path, old, None);
        print(out, path, None, new);
        return;
    }
    let (from, to) = (quoted(b"a/", path), quoted(b"b/", path));
    put(out, &[b"diff --git ", &from, b" ", &to, b"\n"]);
    match (old, new) {
        (None, Some(new)) => line(out, &format!("new file mode {:o}", new.mode)),
        (Some(old), None) => line(out, &format!("deleted file mode {:o}", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => {
            line(out, &format!("old mode {:o}\nnew mode {:o}", old.mode, new.mode));
        }
        _ => {}
    }
    let id = |version: Option<&PatchSide<'_>>| version.map_or(NO_ID, |version| version.id);
    if id(old) == id(new) {
        return;
    }
    let same_mode = old.zip(new).filter(|(old, new)| old.mode == new.mode);
    let mode = same_mode.map(|(old, _)| format!(" {:o}", old.mode)).unwrap_or_default();
    line(out, &format!("index {}..{}{mode}", id(old), id(new)));
    let is_shown = [old, new].into_iter().flatten().all(|version| version.bytes.is_some());
    if !is_shown {
        let name = |version: Option<&PatchSide<'a>>, name| if version.is_some() { name } else { b"/dev/null".to_vec() };
        put(out, &[b"Binary files ", &name(old, from), b" and ", &name(new, to), b" differ\n"]);
        return;
    }
    let bytes = |version: Option<&PatchSide<'a>>| version.and_then(|version| version.bytes).unwrap_or_default();
    print_contents(out, (bytes(old), old.map(|_| from)), (bytes(new), new.map(|_| to)));
}

/// Prints a file that was renamed and is otherwise unchanged.
pub(crate) fn print_rename(out: &mut Vec<u8>, from: &[u8], to: &[u8]) {
    put(out, &[b"diff --git ", &quoted(b"a/", from), b" ", &quoted(b"b/", to), b"\nsimilarity index 100%\n"]);
    put(out, &[b"rename from ", &quoted(b"", from), b"\nrename to ", &quoted(b"", to), b"\n"]);
}

/// Returns the unified diff of two versions of a file, for display. Empty if they are equal.
///
/// ```
/// let patch = piton::unified_diff(b"notes.md", Some(b"one\n"), Some(b"one\ntwo\n"));
/// assert!(String::from_utf8_lossy(&patch).ends_with("@@ -1 +1,2 @@\n one\n+two\n"));
/// assert!(piton::unified_diff(b"notes.md", Some(b"one\n"), Some(b"one\n")).is_empty());
/// ```
pub fn unified_diff(name: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    let named = |_| quoted(b"", name);
    print_contents(&mut out, (old.unwrap_or_default(), old.map(named)), (new.unwrap_or_default(), new.map(named)));
    out
}

fn print_contents(out: &mut Vec<u8>, old: (&[u8], Option<Vec<u8>>), new: (&[u8], Option<Vec<u8>>)) {
    let Some(lines) = Lines::compare(old.0, new.0) else {
        line(out, "GIT binary patch");
        print_literal(out, new.0);
        print_literal(out, old.0);
        return;
    };
    let hunks = lines.hunks_with_context();
    if hunks.is_empty() {
        return;
    }
    for (mark, name) in [(&b"--- "[..], old.1), (b"+++ ", new.1)] {
        let name = name.unwrap_or_else(|| b"/dev/null".to_vec());
        // A tab ends a name with a space in it, because a parser would take the rest for a date.
        let end: &[u8] = if name.contains(&b' ') && !name.starts_with(b"\"") { b"\t\n" } else { b"\n" };
        put(out, &[mark, &name, end]);
    }
    for group in &hunks {
        print_hunk(out, &lines, group);
    }
}

fn print_hunk(out: &mut Vec<u8>, lines: &Lines<'_>, group: &[Hunk]) {
    let (first, last) = (&group[0], &group[group.len() - 1]);
    let before = first.old.start.min(CONTEXT);
    let after = (lines.old.len() - last.old.end).min(CONTEXT);
    let old = first.old.start - before..last.old.end + after;
    let new = first.new.start - before..last.new.end + after;
    line(out, &format!("@@ -{} +{} @@", range(&old), range(&new)));
    let mut at = old.start;
    for hunk in group {
        print_lines(out, b" ", &lines.old[at..hunk.old.start]);
        print_lines(out, b"-", &lines.old[hunk.old.clone()]);
        print_lines(out, b"+", &lines.new[hunk.new.clone()]);
        at = hunk.old.end;
    }
    print_lines(out, b" ", &lines.old[at..old.end]);
}

/// Formats a line range: lines count from 1, and an empty range is named by the line before it.
fn range(lines: &Range<usize>) -> String {
    match lines.len() {
        1 => (lines.start + 1).to_string(),
        0 => format!("{},0", lines.start),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn print_lines(out: &mut Vec<u8>, mark: &[u8], lines: &[&[u8]]) {
    for text in lines {
        put(out, &[mark, text]);
        if !text.ends_with(b"\n") {
            line(out, "\n\\ No newline at end of file");
        }
    }
}

/// Prints compressed bytes in git's base 85, 52 bytes per line.
fn print_literal(out: &mut Vec<u8>, bytes: &[u8]) {
    line(out, &format!("literal {}", bytes.len()));
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    let deflated = encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes everything");
    for chunk in deflated.chunks(52) {
        let length = u8::try_from(chunk.len()).expect("at most 52");
        out.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
        for word in chunk.chunks(4) {
            let mut padded = [0; 4];
            padded[..word.len()].copy_from_slice(word);
            print_word(out, u32::from_be_bytes(padded));
        }
        out.push(b'\n');
    }
    out.push(b'\n');
}

fn print_word(out: &mut Vec<u8>, mut word: u32) {
    const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let mut text = [0; 5];
    for place in text.iter_mut().rev() {
        *place = DIGITS[word as usize % 85];
        word /= 85;
    }
    out.extend_from_slice(&text);
}

/// Returns a path as git prints it: in quotes, with escapes, if it contains anything but plain ASCII.
pub(crate) fn quoted(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_plain) {
        return [prefix, path].concat();
    }
    let mut text = [b"\"", prefix].concat();
    for byte in path {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            byte if is_plain(byte) => text.push(*byte),
            byte => text.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    text.push(b'"');
    text
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn line(out: &mut Vec<u8>, text: &str) {
    put(out, &[text.as_bytes(), b"\n"]);
}
