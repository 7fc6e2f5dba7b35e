//! Offsets in a YAML flow collection, i.e. a value in braces or brackets. The scanner skips quotes and comments, but
//! does not validate: callers that splice text at these offsets parse the result, as in `yaml`.

use std::ops::Range;

/// The flow collection at the beginning of a text.
pub(super) struct Flow<'a> {
    text: &'a str,
    /// Its members or items, without surrounding space and comments.
    parts: Vec<Range<usize>>,
    /// Offset of its end.
    pub(super) end: usize,
}

impl<'a> Flow<'a> {
    /// Returns `None` if the collection is not closed.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        let (mut parts, mut part, mut depth, mut at) = (Vec::new(), None::<Range<usize>>, 1, 1);
        loop {
            let rest = text.get(at..)?;
            let before = text[..at].chars().next_back()?;
            let length = match rest.chars().next()? {
                c if c.is_whitespace() => c.len_utf8(),
                '#' if before.is_whitespace() => rest.find('\n')?,
                ',' if depth == 1 => {
                    parts.extend(part.take());
                    1
                }
                ']' | '}' if depth == 1 => {
                    parts.extend(part.take());
                    return Some(Self { text, parts, end: at + 1 });
                }
                c => {
                    depth = match c {
                        '[' | '{' => depth + 1,
                        ']' | '}' => depth - 1,
                        _ => depth,
                    };
                    // Within a word, a quote is an apostrophe.
                    let is_quote = matches!(c, '"' | '\'') && (before.is_whitespace() || "[{,:".contains(before));
                    let length = if is_quote { quoted(rest)? } else { c.len_utf8() };
                    part.get_or_insert(at..at).end = at + length;
                    length
                }
            };
            at += length;
        }
    }

    /// Returns the range of a member's value, and the text to replace it with so that it has this value. If the member
    /// is missing, the range is empty and after the last member, and the text adds the member.
    pub(super) fn member(&self, key: &str, value: &str) -> (Range<usize>, String) {
        let names = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
        let there = self.parts.iter().rev().find_map(|part| {
            let text = &self.text[part.clone()];
            let after =
                names.iter().find_map(|name| text.strip_prefix(name.as_str())?.trim_start().strip_prefix(':'))?;
            Some(part.end - after.len()..part.end)
        });
        match (there, self.parts.last()) {
            (Some(range), _) => (range, format!(" {value}")),
            (None, Some(last)) => {
                let is_quoted = self.text[last.clone()].starts_with('"');
                (last.end..last.end, format!(", {}: {value}", names[usize::from(is_quoted)]))
            }
            (None, None) => (1..1, format!("{key}: {value}")),
        }
    }
}

/// Returns the length of the quoted string at the beginning of a text; `None` if it is not terminated.
fn quoted(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            '\'' if quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') => drop(chars.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}
