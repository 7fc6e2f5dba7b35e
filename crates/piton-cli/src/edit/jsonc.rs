//! Editing of JSON with comments, as text: only our entry changes.
//!
//! Comments, trailing commas, spacing, a byte order mark and the kind of line end are preserved. The scanner finds the
//! offsets of each value; an edit splices text at these offsets. Otherwise the parser is strict: text that no agent
//! would accept is an error here, too.
//!
//! - I9. [`Document::push`] followed by [`Document::remove`] of the pushed item restores the exact text, if the list
//!   was not empty before.

use std::ops::Range;

use serde_json::{Map, Value};

/// Maximum depth of nesting: the scanner is recursive.
const DEPTH_MAX: usize = 100;

/// One step of a path into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Item(usize),
}

/// A text with the offsets of its values.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    text: String,
    /// `None` if the text has only space and comments.
    root: Option<Node>,
}

#[derive(Debug, Clone)]
struct Node {
    span: Range<usize>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Scalar(Value),
}

#[derive(Debug, Clone)]
struct Member {
    key: String,
    start: usize,
    value: Node,
}

impl Node {
    fn value(&self) -> Value {
        match &self.kind {
            // Of duplicate keys the last one counts, as in other parsers.
            Kind::Object(members) => {
                Value::Object(members.iter().map(|member| (member.key.clone(), member.value.value())).collect())
            }
            Kind::Array(items) => items.iter().map(Node::value).collect(),
            Kind::Scalar(value) => value.clone(),
        }
    }

    /// Returns the ranges of its members, including their keys, or of its items.
    fn parts(&self) -> Vec<Range<usize>> {
        match &self.kind {
            Kind::Object(members) => members.iter().map(|member| member.start..member.value.span.end).collect(),
            Kind::Array(items) => items.iter().map(|item| item.span.clone()).collect(),
            Kind::Scalar(_) => Vec::new(),
        }
    }
}

impl Document {
    /// Parses a text. Fails with a message that names the line and column.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut scanner = Scanner { text, at: 0 };
        scanner.at = text.len() - text.trim_start_matches('\u{feff}').len();
        scanner.skip_trivia()?;
        let root = if scanner.at < text.len() { Some(scanner.node(0)?) } else { None };
        scanner.skip_trivia()?;
        if scanner.at < text.len() {
            return Err(scanner.wrong("nothing more"));
        }
        Ok(Self { text: text.to_owned(), root })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parsed value; `Null` for an empty document.
    pub(super) fn value(&self) -> Value {
        self.root.as_ref().map_or(Value::Null, Node::value)
    }

    /// Appends an item to the list at `keys`, creating missing objects and the list. Returns how many of the keys
    /// existed.
    pub(super) fn push(&mut self, keys: &[&str], item: &Value) -> Result<usize, String> {
        let found = self.descend(keys)?;
        match keys[found..].split_first() {
            Some((key, inner)) => {
                let list = wrapped(inner, Value::Array(vec![item.clone()]));
                self.insert(&keys[..found], Some(key), &list)?;
            }
            None => self.insert(keys, None, item)?,
        }
        Ok(found)
    }

    /// Adds a member, creating missing objects above it. Returns how many of the keys existed; if all of them did,
    /// nothing is changed.
    pub(super) fn set_default(&mut self, keys: &[&str], value: &Value) -> Result<usize, String> {
        let found = self.descend(keys)?;
        if let Some((key, inner)) = keys[found..].split_first() {
            self.insert(&keys[..found], Some(key), &wrapped(inner, value.clone()))?;
        }
        Ok(found)
    }

    /// Replaces a scalar by another value.
    pub(super) fn replace_scalar(&mut self, path: &[Step], value: &Value) -> Result<(), String> {
        let node = self.node_at(path).ok_or("the value is not there")?;
        self.splice(&[(node.span.clone(), value.to_string())])
    }

    /// Removes a member or an item, and its comma.
    pub(super) fn remove(&mut self, path: &[Step]) -> Result<(), String> {
        let (last, around) = path.split_last().ok_or("the whole document is not ours")?;
        let parent = self.node_at(around).ok_or("the value is not there")?;
        let parts = parent.parts();
        let at = match (&parent.kind, last) {
            (Kind::Object(members), Step::Key(key)) => members.iter().rposition(|member| member.key == *key),
            (Kind::Array(_), Step::Item(at)) => Some(*at).filter(|at| *at < parts.len()),
            _ => None,
        };
        let at = at.ok_or("the value is not there")?;
        let Range { start, end } = parts[at].clone();
        let comma_after = self.comma_after(end);
        let end = comma_after.map_or(end, |comma| comma + 1);
        // Remove the space before it, too, unless the rest of its line would then become part of a line comment.
        let space = self.text[..start].trim_end().len();
        let trivia = parts[..at].last().map_or(parent.span.start + 1, |before| before.end)..start;
        let is_end_of_line = self.text[end..].trim_start_matches([' ', '\t', '\r']).starts_with('\n');
        let from = if is_end_of_line || !self.ends_in_line_comment(trivia) { space } else { start };
        let mut cuts = vec![(from..end, String::new())];
        if comma_after.is_none() && at > 0 {
            // It was the last one: remove the comma that separated it from the one before.
            let comma = self.comma_after(parts[at - 1].end).ok_or("a comma is missing")?;
            cuts.insert(0, (comma..comma + 1, String::new()));
        } else if parts.len() == 1 {
            // The collection becomes empty: remove the space inside, unless there is a comment.
            let inner = parent.span.start + 1..parent.span.end - 1;
            if self.text[inner.start..start].trim().is_empty() && self.text[end..inner.end].trim().is_empty() {
                cuts = vec![(inner, String::new())];
            }
        }
        self.splice(&cuts)
    }

    /// Returns how many of the keys exist. Fails if one of them is looked up in a value that is not an object.
    fn descend(&self, keys: &[&str]) -> Result<usize, String> {
        let Some(mut node) = self.root.as_ref() else { return Ok(0) };
        for (depth, key) in keys.iter().enumerate() {
            let Kind::Object(members) = &node.kind else {
                return Err(format!("{} is not an object", shown(&keys[..depth])));
            };
            match members.iter().rfind(|member| member.key == *key) {
                Some(member) => node = &member.value,
                None => return Ok(depth),
            }
        }
        Ok(keys.len())
    }

    fn node_at(&self, path: &[Step]) -> Option<&Node> {
        path.iter().try_fold(self.root.as_ref()?, |node, step| match (&node.kind, step) {
            (Kind::Object(members), Step::Key(key)) => Some(&members.iter().rfind(|member| member.key == *key)?.value),
            (Kind::Array(items), Step::Item(at)) => items.get(*at),
            _ => None,
        })
    }

    fn comma_after(&self, end: usize) -> Option<usize> {
        let mut scanner = Scanner { text: &self.text, at: end };
        scanner.skip_trivia().ok()?;
        (self.text.as_bytes().get(scanner.at) == Some(&b',')).then_some(scanner.at)
    }

    /// Adds a member (or an item, if there is no key) after the last one of the collection at `keys`.
    fn insert(&mut self, keys: &[&str], key: Option<&str>, value: &Value) -> Result<(), String> {
        let style = Style::of(&self.text);
        let Some(root) = &self.root else {
            let text =
                style.render(&Value::Object(Map::from_iter([(key.unwrap_or_default().to_owned(), value.clone())])));
            let gap = if self.text.trim().is_empty() || self.text.ends_with('\n') { "" } else { style.line_end };
            return self.replace_text(&format!("{}{gap}{text}{}", self.text, style.line_end));
        };
        let steps: Vec<_> = keys.iter().map(|key| Step::Key((*key).to_owned())).collect();
        let node = self.node_at(&steps).ok_or("the value is not there")?;
        if matches!((&node.kind, key), (Kind::Scalar(_), _) | (Kind::Object(_), None) | (Kind::Array(_), Some(_))) {
            let wanted = if key.is_some() { "an object" } else { "a list" };
            return Err(format!("{} is not {wanted}", shown(keys)));
        }
        let parts = node.parts();
        let is_one_line = match parts.first() {
            Some(first) => !self.text[node.span.start..first.start].contains('\n'),
            None => !keys.is_empty() && !self.text[root.span.clone()].contains('\n'),
        };
        let base = self.indent_of(node.span.start);
        let (gap, text) = if is_one_line {
            (if parts.is_empty() || style.is_tight { String::new() } else { " ".to_owned() }, style.compact(value))
        } else {
            // Indented as the last one, if that is on a line of its own.
            let last = parts.last().map(|last| self.text[..last.start].rsplit('\n').next().unwrap_or_default());
            let inner = match last {
                Some(indent) if indent.trim_matches([' ', '\t']).is_empty() => indent.to_owned(),
                _ => format!("{base}{}", style.unit),
            };
            (format!("{}{inner}", style.line_end), style.render(value).replace('\n', &format!("\n{inner}")))
        };
        let colon = if is_one_line && style.is_tight { ":" } else { ": " };
        let text = gap + &key.map(|key| Value::from(key).to_string() + colon).unwrap_or_default() + &text;
        let cuts = self.cuts_of_insert(node, &parts, &text, is_one_line, &format!("{}{base}", style.line_end));
        self.splice(&cuts)
    }

    fn cuts_of_insert(
        &self,
        node: &Node,
        parts: &[Range<usize>],
        text: &str,
        is_one_line: bool,
        closing: &str,
    ) -> Vec<(Range<usize>, String)> {
        let Some(last) = parts.last() else {
            let inner = node.span.start + 1..node.span.end - 1;
            let comments = self.text[inner.clone()].trim();
            if comments.is_empty() {
                let closing = if is_one_line { "" } else { closing };
                return vec![(inner, format!("{text}{closing}"))];
            }
            let end = inner.start + self.text[inner.clone()].trim_end().len();
            let closing = if self.text[end..inner.end].contains('\n') { "" } else { closing };
            return vec![(end..end, format!("{text}{closing}"))];
        };
        let comma = self.comma_after(last.end);
        let after = comma.map_or(last.end, |comma| comma + 1);
        let at = if is_one_line { after } else { self.end_of_line_comment(after) };
        let text = if comma.is_some() { format!("{text},") } else { text.to_owned() };
        match comma {
            Some(_) => vec![(at..at, text)],
            None => vec![(last.end..last.end, ",".to_owned()), (at..at, text)],
        }
    }

    /// Returns true if the last token in a range of space, commas and comments is a line comment.
    fn ends_in_line_comment(&self, trivia: Range<usize>) -> bool {
        let mut rest = self.text[trivia].trim_start();
        let mut is_line = false;
        while !rest.is_empty() {
            is_line = rest.starts_with("//");
            let end = match rest.as_bytes() {
                [b',', ..] => Some(1),
                _ if is_line => rest.find('\n'),
                _ => rest.find("*/").map(|at| at + 2),
            };
            rest = rest[end.unwrap_or(rest.len())..].trim_start();
        }
        is_line
    }

    /// Returns the end of a comment that follows on the same line, which belongs to the value before it.
    fn end_of_line_comment(&self, at: usize) -> usize {
        let line = self.text[at..].split(['\r', '\n']).next().unwrap_or_default();
        let mut rest = line.trim();
        while let Some(body) = rest.strip_prefix("/*") {
            let Some(end) = body.find("*/") else { return at };
            rest = body[end + 2..].trim_start();
        }
        if rest.is_empty() || rest.starts_with("//") { at + line.trim_end().len() } else { at }
    }

    /// Returns the indentation of the line at offset `at`.
    fn indent_of(&self, at: usize) -> &str {
        let line = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let rest = self.text[line..at].trim_start_matches('\u{feff}');
        let rest = &self.text[at - rest.len()..at];
        &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
    }

    fn splice(&mut self, cuts: &[(Range<usize>, String)]) -> Result<(), String> {
        let mut text = self.text.clone();
        for (range, new) in cuts.iter().rev() {
            text.replace_range(range.clone(), new);
        }
        self.replace_text(&text)
    }

    fn replace_text(&mut self, text: &str) -> Result<(), String> {
        *self = Self::parse(text).map_err(|why| format!("the edit would break it: {why}"))?;
        Ok(())
    }
}

/// Returns the value nested in objects with these keys.
pub(super) fn wrapped(keys: &[&str], value: Value) -> Value {
    keys.iter().rev().fold(value, |value, key| Value::Object(Map::from_iter([((*key).to_owned(), value)])))
}

fn shown(keys: &[&str]) -> String {
    if keys.is_empty() { "the document".to_owned() } else { format!("`{}`", keys.join(".")) }
}

/// Indentation, line ends and spacing of a text.
struct Style {
    unit: String,
    line_end: &'static str,
    /// True if there is no space after a colon.
    is_tight: bool,
}

impl Style {
    fn of(text: &str) -> Self {
        let line_end = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let indented = |is_wanted: fn(&str) -> bool| {
            text.lines().skip(1).find_map(|line| {
                let rest = line.trim_start_matches([' ', '\t']);
                (is_wanted(rest) && rest.len() < line.len()).then(|| line[..line.len() - rest.len()].to_owned())
            })
        };
        // Lines with a key are the best sample; otherwise use any indented line.
        let indented = indented(|rest| rest.starts_with('"')).or_else(|| indented(|rest| !rest.is_empty()));
        let is_tight = text.contains("\":") && !text.contains("\": ");
        Self { unit: indented.unwrap_or_else(|| "  ".to_owned()), line_end, is_tight }
    }

    /// Formats a value on several lines like `serde_json`, in this style.
    fn render(&self, value: &Value) -> String {
        let mut bytes = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(self.unit.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        serde::Serialize::serialize(value, &mut serializer).expect("memory takes everything");
        String::from_utf8(bytes).expect("JSON is UTF-8").replace('\n', self.line_end)
    }

    fn compact(&self, value: &Value) -> String {
        if self.is_tight { value.to_string() } else { spaced(value) }
    }
}

/// Formats a value on one line, with a space after commas and colons.
pub(super) fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), spaced(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, expected: &str) -> String {
        let before = &self.text[..self.text.floor_char_boundary(self.at)];
        let (line, column) =
            (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1);
        let found = self.text[before.len()..].chars().next();
        let found = found.map_or_else(|| "the end".to_owned(), |character| format!("{character:?}"));
        format!("line {line}, column {column}: expected {expected}, but found {found}")
    }

    /// Skips space and comments.
    fn skip_trivia(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.text[self.at..];
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(body) = rest.strip_prefix("/*") {
                self.at += 2 + body.find("*/").ok_or_else(|| self.wrong("a comment that ends"))? + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("less nesting"));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object(self.members(depth)?),
            Some(b'[') => Kind::Array(self.items(depth)?),
            Some(b'"') => Kind::Scalar(Value::from(self.string()?)),
            _ => {
                let rest = &self.text[self.at..];
                let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
                let value = match serde_json::from_str(word) {
                    Ok(value) => value,
                    // A number out of range is kept as text: it is left as it is.
                    Err(error) if error.to_string().contains("out of range") => Value::from(word),
                    Err(_) => return Err(self.wrong("a value")),
                };
                self.at += word.len();
                Kind::Scalar(value)
            }
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn string(&mut self) -> Result<String, String> {
        let start = self.at;
        let mut end = start + 1;
        let bytes = self.text.as_bytes();
        while bytes.get(end).is_some_and(|byte| *byte != b'"') {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let text = self.text.get(start..=end).ok_or_else(|| self.wrong("a text that ends"))?;
        let value = serde_json::from_str(text).map_err(|_| self.wrong("a text without line ends and bad escapes"))?;
        self.at = end + 1;
        Ok(value)
    }

    fn members(&mut self, depth: usize) -> Result<Vec<Member>, String> {
        let mut members = Vec::new();
        self.collection(b'}', |scanner| {
            if scanner.peek() != Some(b'"') {
                return Err(scanner.wrong("a key in quotes"));
            }
            let start = scanner.at;
            let key = scanner.string()?;
            scanner.skip_trivia()?;
            if scanner.peek() != Some(b':') {
                return Err(scanner.wrong("a colon"));
            }
            scanner.at += 1;
            scanner.skip_trivia()?;
            members.push(Member { key, start, value: scanner.node(depth + 1)? });
            Ok(())
        })?;
        Ok(members)
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, String> {
        let mut items = Vec::new();
        self.collection(b']', |scanner| {
            items.push(scanner.node(depth + 1)?);
            Ok(())
        })?;
        Ok(items)
    }

    fn collection(&mut self, end: u8, mut part: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.at += 1;
        loop {
            self.skip_trivia()?;
            if self.peek() == Some(end) {
                self.at += 1;
                return Ok(());
            }
            part(self)?;
            self.skip_trivia()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == end => {}
                _ => return Err(self.wrong(if end == b'}' { "a comma or }" } else { "a comma or ]" })),
            }
        }
    }
}
