//! Measures of comments: how doc comments open, and words that replace a standard term.

/// A doc comment that opens with one of these asks a question instead of naming a thing.
const INTERROGATIVES: [&str; 7] = ["What", "Whether", "How", "Where", "Which", "Who", "Why"];
/// Words and phrases of a house dialect.
const DIALECT: [&str; 11] = [
    "whoever",
    "nobody",
    "nobodys",
    "somebody",
    "anew",
    "mend",
    "mends",
    "mended",
    "goes by",
    "came of",
    "told to stop",
];

/// The first line of a doc comment.
pub struct Opening<'a> {
    /// Line number, from 1.
    pub line: usize,
    /// Text without the comment marker.
    pub text: &'a str,
}

impl Opening<'_> {
    /// Returns true if the comment opens with an interrogative.
    pub fn is_interrogative(&self) -> bool {
        let word = self.text.split(|character: char| !character.is_alphabetic()).next().unwrap_or_default();
        INTERROGATIVES.contains(&word)
    }
}

/// Returns the openings of all doc comments in a source file.
pub fn doc_comments(source: &str) -> Vec<Opening<'_>> {
    let mut openings = Vec::new();
    let mut is_inside = false;
    for (at, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(text) = text.filter(|_| !is_inside) {
            openings.push(Opening { line: at + 1, text: text.trim() });
        }
        is_inside = text.is_some();
    }
    openings
}

/// Returns the words of the dialect in one line of a comment, message or name.
pub fn dialect(line: &str) -> impl Iterator<Item = &'static str> {
    let lower = line.to_lowercase();
    DIALECT.into_iter().filter(move |word| contains_word(&lower, word))
}

/// Returns true if `line` contains `words`, not as a part of a longer word.
fn contains_word(line: &str, words: &str) -> bool {
    line.match_indices(words).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + words.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_whole_only() {
        assert!(contains_word("this is anew.", "anew") && contains_word("what it goes by", "goes by"));
        assert!(!contains_word("amends", "mend") && !contains_word("recommend", "mend"));
    }

    #[test]
    fn a_comment_opens_once() {
        let openings = doc_comments("//! One\n//! What it is\n\n/// Whether two\nfn two() {}\n");
        let found: Vec<_> = openings.iter().map(|one| (one.line, one.is_interrogative())).collect();
        assert_eq!(found, [(1, false), (4, true)]);
    }
}
