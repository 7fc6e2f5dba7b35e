//! Reading a conversation that is a file with one JSON record a line.

use std::fs::Metadata;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CONVERSATION_BYTES_MAX, NewFile, WhyNot};
use crate::platform;

/// A conversation on disk, as it was when it was read.
pub(crate) struct Transcript {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    stat: Metadata,
}

impl Transcript {
    /// Reads a conversation. A running agent may be writing to it: what is on disk counts.
    pub(crate) fn read(path: &Path) -> Result<Self, WhyNot> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => WhyNot::new(format!("{} is gone", path.display())),
            _ => WhyNot::unreadable(path, &error),
        };
        let file = platform::open_without_blocking(path).map_err(failed)?;
        let stat = file.metadata().map_err(failed)?;
        if !stat.is_file() {
            return Err(WhyNot::new(format!("{} is not a regular file", path.display())));
        }
        if stat.len() > CONVERSATION_BYTES_MAX {
            return Err(WhyNot::too_large());
        }
        let mut bytes = Vec::new();
        file.take(CONVERSATION_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Self { path: path.to_owned(), bytes, stat })
    }

    /// Returns the lines, without their ends. The last one may be cut short.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        let mut start = 0;
        self.bytes.split_inclusive(|byte| *byte == b'\n').map(move |line| {
            let range = start..start + line.len();
            start = range.end;
            (range, line.strip_suffix(b"\n").unwrap_or(line))
        })
    }

    /// Returns the records before `end`, with their places. Fails if a line is not a JSON object, and if `end` is not the
    /// end of a line.
    pub(crate) fn records(&self, end: usize) -> Result<Vec<(Range<usize>, Value)>, WhyNot> {
        self.each_record(end, |range, value| Ok((range, value)))
    }

    /// Calls `read` with each record before `end`, one at a time: a conversation may be large.
    pub(crate) fn each_record<T>(
        &self,
        end: usize,
        mut read: impl FnMut(Range<usize>, Value) -> Result<T, WhyNot>,
    ) -> Result<Vec<T>, WhyNot> {
        let mut all = Vec::new();
        for (number, (range, line)) in (1..).zip(self.lines()) {
            if range.start >= end {
                break;
            }
            if range.end > end || self.bytes[range.end - 1] != b'\n' {
                return Err(WhyNot::new(format!("its line {number} is cut short")));
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match parse(line) {
                Some(value) => all.push(read(range, value)?),
                None => return Err(WhyNot::new(format!("its line {number} is damaged"))),
            }
        }
        Ok(all)
    }

    /// Returns the number of bytes before the place that was recorded at a prompt. Fails if the file is shorter.
    pub(crate) fn prefix(&self, recorded: u64) -> Result<usize, WhyNot> {
        let end = usize::try_from(recorded).ok().filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| WhyNot::new("it is shorter now than it was at the prompt"))?;
        match end.checked_sub(1).map(|last| self.bytes[last]) {
            None | Some(b'\n') => Ok(end),
            Some(_) => Err(WhyNot::new("it was rewritten since the prompt")),
        }
    }

    /// Returns a new file with the owner and the mode of this one.
    pub(crate) fn sibling(&self, path: PathBuf, bytes: Vec<u8>) -> NewFile {
        NewFile { path, bytes, like: self.stat.clone() }
    }

    /// Returns a path in the same directory.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }
}

/// Parses a line that holds a JSON object.
pub(crate) fn parse(line: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(line).ok().filter(Value::is_object)
}

/// Replaces the value of a key where it is the id of the session. Everything else stays byte for byte: numbers and escapes
/// of other programs may not survive a parser.
pub(crate) fn replace_id(line: &[u8], keys: &[&str], old: &str, new: &str) -> Vec<u8> {
    let mut line = line.to_vec();
    for key in keys {
        for space in ["", " "] {
            let pattern = format!("\"{key}\":{space}\"{old}\"");
            let with = format!("\"{key}\":{space}\"{new}\"");
            line = replace(&line, pattern.as_bytes(), with.as_bytes());
        }
    }
    line
}

/// Replaces every occurrence.
pub(crate) fn replace(bytes: &[u8], pattern: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, pattern) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + pattern.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the place of the first occurrence.
pub(crate) fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    let first = *pattern.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first).map(|at| from + at) {
        if bytes[at..].starts_with(pattern) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns the text of a message, which is a string or a list of parts with a `text`.
pub(crate) fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    let texts: Vec<_> = parts.filter_map(|part| part.as_str().or_else(|| part["text"].as_str())).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(text: &str) -> Transcript {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("t.jsonl");
        std::fs::write(&path, text).expect("a file");
        Transcript::read(&path).expect("a transcript")
    }

    #[test]
    fn a_torn_last_line_matters_only_before_the_cut() {
        let text = "{\"a\":1}\n{\"b\":2}\n{\"c\":";
        let torn = transcript(text);
        assert_eq!(torn.records(16).expect("whole lines").len(), 2);
        assert!(torn.records(text.len()).is_err());
        assert!(torn.records(10).is_err(), "the cut is within a line");
        assert_eq!(torn.prefix(8), Ok(8));
        assert!(torn.prefix(9).is_err() && torn.prefix(99).is_err());
        assert!(transcript("{\"a\":1}\nnot JSON\n").records(17).is_err());
        assert!(transcript("[1]\n").records(4).is_err());
    }

    #[test]
    fn only_the_value_of_the_key_is_replaced() {
        let line = br#"{"sessionId":"old","x":1.50,"text":"\"sessionId\":\"old\" old","y":{"sessionId": "old"}}"#;
        let want = br#"{"sessionId":"new1","x":1.50,"text":"\"sessionId\":\"old\" old","y":{"sessionId": "new1"}}"#;
        assert_eq!(replace_id(line, &["sessionId"], "old", "new1"), want);
        assert_eq!(find(b"aab", b"ab"), Some(1));
        assert_eq!(find(b"aab", b"b "), None);
    }
}
