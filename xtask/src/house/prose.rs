//! Comments: openings of doc comments, and words used in place of a standard term.

use super::Row;
use super::source::Source;

/// Words that open a doc comment with a question instead of a thing.
const INTERROGATIVES: [&str; 7] = ["What", "Whether", "How", "Where", "Which", "Who", "Why"];
/// Words and phrases of a house dialect.
const DIALECT: [&str; 9] =
    ["whoever", "nobody", "somebody", "anew", "mend", "mends", "goes by", "came of", "told to stop"];

/// The first line of a doc comment and its position.
struct Opening<'a> {
    source: &'a Source,
    line: usize,
    text: &'a str,
}

impl Opening<'_> {
    fn is_interrogative(&self) -> bool {
        let word = self.text.split(|character: char| !character.is_alphabetic()).next().unwrap_or_default();
        INTERROGATIVES.contains(&word)
    }
}

fn doc_comments(sources: &[Source]) -> Vec<Opening<'_>> {
    let mut openings = Vec::new();
    for source in sources {
        let mut is_inside = false;
        for (at, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(text) = text.filter(|_| !is_inside) {
                openings.push(Opening { source, line: at + 1, text: text.trim() });
            }
            is_inside = text.is_some();
        }
    }
    openings
}

/// Returns every doc comment that opens with an interrogative, as `file:line: text`.
pub(super) fn openings(sources: &[Source]) -> Vec<String> {
    let found = doc_comments(sources).into_iter().filter(Opening::is_interrogative);
    found.map(|one| place(one.source, one.line, one.text)).collect()
}

/// Returns every comment, message or name that uses a word of the dialect, as `file:line: text`.
pub(super) fn dialect(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            let lower = line.to_lowercase();
            found
                .extend(DIALECT.iter().filter(|word| contains_word(&lower, word)).map(|_| place(source, at + 1, line)));
        }
    }
    found
}

fn place(source: &Source, line: usize, text: &str) -> String {
    format!("crates/{}/src/{}.rs:{line}: {}", source.package, source.path, text.trim())
}

/// Returns true if `line` contains `words` as whole words.
fn contains_word(line: &str, words: &str) -> bool {
    line.match_indices(words).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + words.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
}

pub(super) fn rows(sources: &[Source]) -> Vec<Row> {
    let comments = doc_comments(sources);
    let interrogative = comments.iter().filter(|one| one.is_interrogative()).count();
    let percent = 100.0 * interrogative as f64 / comments.len().max(1) as f64;
    vec![
        Row::new("doc comments", comments.len()),
        Row::new("of them opening with an interrogative", format!("{interrogative} ({percent:.0} %)")),
        Row::new("words of the dialect", dialect(sources).len()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_whole_only() {
        assert!(contains_word("this is anew.", "anew") && contains_word("what it goes by", "goes by"));
        assert!(!contains_word("amends", "mend") && !contains_word("recommend", "mend"));
    }
}
