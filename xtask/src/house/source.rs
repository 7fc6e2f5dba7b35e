//! The measured sources: every `.rs` file below `src`, parsed, without its tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Item, Meta};

use super::Row;

/// One file of a crate.
pub(super) struct Source {
    pub(super) package: String,
    /// Path below `src`, without the extension: `store/gc/mod`.
    pub(super) path: String,
    pub(super) text: String,
    /// Parsed items, without those compiled in tests only.
    pub(super) items: Vec<Item>,
}

impl Source {
    /// Returns the path of the module that the file defines, from the crate's root: `["store", "gc"]`.
    pub(super) fn module(&self) -> Vec<&str> {
        let parts = self.path.split('/');
        let mut parts: Vec<_> = parts.filter(|part| !["mod", "lib", "main"].contains(part)).collect();
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Returns the number of lines of the file, up to its tests.
    fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// Reads the sources of some crates, sorted by path. A crate that does not exist has none. Fails if a file cannot be read or parsed.
pub(super) fn read_crates(root: &Path, packages: &[&str]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for package in packages {
        let dir = root.join("crates").join(package).join("src");
        if !dir.exists() {
            continue;
        }
        for file in files_below(&dir)? {
            let path = file.strip_prefix(&dir).context("outside of src")?.with_extension("");
            let path = path.to_str().context("a name that is not UTF-8")?.to_owned();
            let name = path.rsplit('/').next().unwrap_or_default();
            if name == "tests" || name == "fuzz" || name.ends_with("_tests") {
                continue;
            }
            let whole = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let parsed = syn::parse_file(&whole).with_context(|| format!("cannot parse {}", file.display()))?;
            let items = parsed.items.into_iter().filter(|item| !is_test(attributes(item))).collect();
            let text = whole.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
            sources.push(Source { package: (*package).to_owned(), path, text, items });
        }
    }
    sources.sort_by(|a, b| (&a.package, &a.path).cmp(&(&b.package, &b.path)));
    Ok(sources)
}

/// Returns every `.rs` file below a directory.
pub(super) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the attributes of an item; empty for the kinds of items not listed here.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns true if an item is compiled in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.starts_with("test") || condition.starts_with("any (test") || condition.starts_with("any(test")
        }
        meta => meta.path().is_ident("test"),
    })
}

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
