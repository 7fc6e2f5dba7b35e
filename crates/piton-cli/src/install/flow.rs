//! Where things stand in a YAML value in braces or brackets. Quotes and comments are skipped, nothing is read: whoever
//! splices at these places parses the result, as in `yaml`.

use std::ops::Range;

/// A value in braces or brackets that a text begins with.
pub(super) struct Flow<'a> {
    text: &'a str,
    /// Its members or items, without the space and the comments around them.
    parts: Vec<Range<usize>>,
    /// Where it ends.
    pub(super) end: usize,
}

impl<'a> Flow<'a> {
    /// `None` if it is never closed.
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
                    // Within a word it is only an apostrophe.
                    let is_quote = matches!(c, '"' | '\'') && (before.is_whitespace() || "[{,:".contains(before));
                    let length = if is_quote { quoted(rest)? } else { c.len_utf8() };
                    part.get_or_insert(at..at).end = at + length;
                    length
                }
            };
            at += length;
        }
    }

    /// Where the value of a member stands, and the text that makes it say `value`: the member is added behind the last
    /// one where it is missing.
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

/// How long the quoted text is that a text begins with.
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
