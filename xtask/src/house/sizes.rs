//! Sizes of the measured sources and of the documents.

use std::fs;
use std::path::Path;

use testkit::source::{Source, files_below};

use super::Row;

/// Returns the lines per crate, of tests and of documents, and the median and longest source file.
pub(super) fn sizes(root: &Path, sources: &[Source], packages: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for package in packages {
        let mut lines: Vec<_> =
            sources.iter().filter(|source| source.package == *package).map(|source| (source.lines(), source)).collect();
        lines.sort_by_key(|(lines, _)| *lines);
        let total: usize = lines.iter().map(|(lines, _)| lines).sum();
        rows.push(Row::new(format!("{package}: lines without tests"), total));
        rows.push(Row::new(format!("{package}: files"), lines.len()));
        if let (Some((median, _)), Some((longest, source))) = (lines.get(lines.len() / 2), lines.last()) {
            rows.push(Row::new(format!("{package}: median file"), median));
            rows.push(Row::new(format!("{package}: longest file"), format!("{longest} ({}.rs)", source.path)));
        }
        let tests = files_below(&root.join("crates").join(package).join("tests")).unwrap_or_default();
        let tests: usize =
            tests.iter().filter_map(|file| fs::read_to_string(file).ok()).map(|text| text.lines().count()).sum();
        rows.push(Row::new(format!("{package}: lines of tests"), tests));
    }
    rows.push(Row::new("words of documents", document_words(root)));
    rows
}

/// Returns the number of words in README and in all documents below `docs`.
fn document_words(root: &Path) -> usize {
    let mut words = 0;
    let mut open = vec![root.join("docs"), root.join("README.md")];
    while let Some(path) = open.pop() {
        if let Ok(entries) = fs::read_dir(&path) {
            open.extend(entries.flatten().map(|entry| entry.path()));
        } else if path.extension().is_some_and(|end| end == "md") {
            words += fs::read_to_string(&path).map_or(0, |text| text.split_whitespace().count());
        }
    }
    words
}
