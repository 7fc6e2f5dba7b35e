//! Concepts: the number of files to open for a change to the stat cache, an agent or a setting; JSON built by hand.

use testkit::source::Source;

use super::Row;

/// Returns the number of files whose code contains one of the words.
fn files_with(sources: &[Source], words: &[&str]) -> usize {
    let has_word = |source: &&Source| {
        let code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.into_iter().any(|line| words.iter().any(|word| line.contains(word)))
    };
    sources.iter().filter(has_word).count()
}

pub(super) fn rows(sources: &[Source]) -> Vec<Row> {
    let count = |word: &str| -> usize { sources.iter().map(|source| source.text.matches(word).count()).sum() };
    let cache = [
        "index_bytes",
        "IndexAfter",
        "may_be_behind",
        "believed_before",
        "IndexState",
        "write_index",
        "Known::",
        "StatCache",
    ];
    vec![
        Row::new("files that touch the stat cache", files_with(sources, &cache)),
        Row::new("files that name one agent (Copilot)", files_with(sources, &["copilot", "Copilot"])),
        Row::new(
            "files with an arm for one agent (Copilot)",
            files_with(sources, &["Agent::Copilot", "Self::Copilot"]),
        ),
        Row::new("arms for one agent (Copilot)", count("Agent::Copilot") + count("Self::Copilot")),
        Row::new("files that name one setting (delete_orphans)", files_with(sources, &["delete_orphans"])),
        Row::new("places that name one setting (delete_orphans)", count("delete_orphans")),
        Row::new("JSON written by hand (json!)", count("json!(")),
        Row::new("types that derive Serialize", count("Serialize")),
        Row::new("#[non_exhaustive]", count("#[non_exhaustive]")),
    ]
}
