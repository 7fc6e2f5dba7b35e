//! Quoting and splitting of command lines.

use crate::printable::plain;

/// Quotes a word so that every shell, and Python's `shlex`, reads it back unchanged.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Quotes a word of any bytes, in one line of printable text. A word with a control character or with bytes that are not
/// UTF-8 is written as `$'...'` with escapes, which bash, zsh, ksh and newer POSIX shells read.
pub(crate) fn quote_bytes(word: &[u8]) -> String {
    match std::str::from_utf8(word) {
        Ok(text) if plain(text) == text => return quote(text),
        _ => {}
    }
    let escaped = word.iter().map(|byte| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        // Three digits: a digit that follows is not part of it.
        _ => format!("\\{byte:03o}"),
    });
    format!("$'{}'", escaped.collect::<String>())
}

/// Splits a command line into words as `shlex` does. Returns `None` if a quote or an escape is not terminated.
pub(crate) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(rest.next()?),
            '\'' => loop {
                match rest.next()? {
                    '\'' => break word.get_or_insert_default().push_str(""),
                    other => word.get_or_insert_default().push(other),
                }
            },
            '"' => loop {
                match rest.next()? {
                    '"' => break word.get_or_insert_default().push_str(""),
                    '\\' => match rest.next()? {
                        escaped @ ('"' | '\\' | '$' | '`') => word.get_or_insert_default().push(escaped),
                        other => word.get_or_insert_default().extend(['\\', other]),
                    },
                    other => word.get_or_insert_default().push(other),
                }
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

/// Suffix of command lines for agents that treat a failing hook as a refusal.
pub(crate) const FAILS_OPEN: &str = " 2>/dev/null || true";

/// Returns the program that a command line starts.
pub(crate) fn program(line: &str) -> Option<String> {
    words(line)?.into_iter().next()
}

/// Returns the command line with another value for an option; unchanged if it does not have that option.
pub(crate) fn with_option(line: &str, option: &str, value: &str) -> String {
    let words = words(line).unwrap_or_default();
    let old = words.iter().position(|word| word == option).and_then(|at| words.get(at + 1));
    let written = |value: &str| format!("{option} {}", quote(value));
    old.map_or_else(|| line.to_owned(), |old| line.replacen(&written(old), &written(value), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_comes_back() {
        for word in
            ["/usr/bin/piton", "/a b/piton", "/it's/piton", "/\"x\"/$HOME/`y`", "", "/tab\there", "/ü/piton", "a\\b"]
        {
            assert_eq!(words(&quote(word)).as_deref(), Some(&[word.to_owned()][..]), "{word:?}");
        }
        assert_eq!(quote("/usr/bin/piton"), "/usr/bin/piton");
        assert_eq!(words("a 'b"), None);
        assert_eq!(words("a\\"), None);
        assert_eq!(words(r#"x "a \"b\" \n" '' y"#).expect("whole").join("|"), r#"x|a "b" \n||y"#);
    }
}
