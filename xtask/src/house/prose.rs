//! Comments: how doc comments open, and words that replace a standard term.

use testkit::prose::{Opening, dialect as dialect_words, doc_comments};
use testkit::source::Source;

use super::Row;

fn all_doc_comments(sources: &[Source]) -> Vec<(&Source, Opening<'_>)> {
    sources.iter().flat_map(|source| doc_comments(&source.text).into_iter().map(move |one| (source, one))).collect()
}

/// Returns every doc comment that opens with an interrogative, as `file:line: text`.
pub(super) fn openings(sources: &[Source]) -> Vec<String> {
    let found = all_doc_comments(sources).into_iter().filter(|(_, opening)| opening.is_interrogative());
    found.map(|(source, opening)| place(source, opening.line, opening.text)).collect()
}

/// Returns every comment, message or name that uses a word of the dialect, as `file:line: text`.
pub(super) fn dialect(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            found.extend(dialect_words(line).map(|_| place(source, at + 1, line)));
        }
    }
    found
}

fn place(source: &Source, line: usize, text: &str) -> String {
    format!("crates/{}/src/{}.rs:{line}: {}", source.package, source.path, text.trim())
}

pub(super) fn rows(sources: &[Source]) -> Vec<Row> {
    let comments = all_doc_comments(sources);
    let interrogative = comments.iter().filter(|(_, opening)| opening.is_interrogative()).count();
    let percent = 100.0 * interrogative as f64 / comments.len().max(1) as f64;
    vec![
        Row::new("doc comments", comments.len()),
        Row::new("of them opening with an interrogative", format!("{interrogative} ({percent:.0} %)")),
        Row::new("words of the dialect", dialect(sources).len()),
    ]
}
