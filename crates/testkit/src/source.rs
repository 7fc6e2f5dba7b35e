//! The sources of a crate, parsed: every `.rs` file below `src`, without its tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, ImplItem, Item, Meta, Type};

/// One file of a crate.
pub struct Source {
    /// Name of the crate.
    pub package: String,
    /// Path below `src`, without the extension: `store/gc/mod`.
    pub path: String,
    /// Text up to the tests.
    pub text: String,
    /// Parsed items, without those compiled in tests only.
    pub items: Vec<Item>,
}

impl Source {
    /// Parses a file. Fails if it is not valid Rust.
    pub fn parse(package: &str, path: &str, whole: &str) -> Result<Self, String> {
        let parsed = syn::parse_file(whole).map_err(|error| format!("cannot parse {package}: {path}: {error}"))?;
        let items = parsed.items.into_iter().filter(|item| !is_test(attributes(item))).collect();
        let text = whole.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        Ok(Self { package: package.to_owned(), path: path.to_owned(), text, items })
    }

    /// Returns the path of the module that the file defines, from the crate's root: `["store", "gc"]`.
    pub fn module(&self) -> Vec<&str> {
        let parts = self.path.split('/');
        parts.filter(|part| !part.is_empty() && !["mod", "lib", "main"].contains(part)).collect()
    }

    /// Returns true if the file defines this module, or one inside it.
    pub fn is_in(&self, module: &str) -> bool {
        self.path == module || self.path.starts_with(&format!("{module}/"))
    }

    /// Returns the number of lines up to the tests.
    pub fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// Returns the type names that are defined in more than one place of a crate, with their files.
pub fn repeated_names(sources: &[Source]) -> Vec<String> {
    let mut names: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for source in sources {
        for item in &source.items {
            let name = match item {
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                _ => continue,
            };
            names.entry((&source.package, name.to_string())).or_default().push(&source.path);
        }
    }
    let repeated = names.into_iter().filter(|(_, files)| files.len() > 1);
    repeated.map(|((package, name), files)| format!("{package}: {name} in {}", files.join(", "))).collect()
}

/// Reads the sources of some crates, sorted by path. A crate that does not exist has none. Fails if a file cannot be
/// read or parsed.
pub fn read_crates(root: &Path, packages: &[&str]) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for package in packages {
        let dir = root.join("crates").join(package).join("src");
        if !dir.exists() {
            continue;
        }
        for file in files_below(&dir)? {
            let path = file.strip_prefix(&dir).map_err(|error| error.to_string())?.with_extension("");
            let path = path.to_str().ok_or("a name that is not UTF-8")?.to_owned();
            let name = path.rsplit('/').next().unwrap_or_default();
            if name == "tests" || name == "fuzz" || name.ends_with("_tests") {
                continue;
            }
            let whole =
                fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            sources.push(Source::parse(package, &path, &whole)?);
        }
    }
    sources.sort_by(|a, b| (&a.package, &a.path).cmp(&(&b.package, &b.path)));
    Ok(sources)
}

/// Returns every `.rs` file below a directory.
pub fn files_below(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let failed = |error: std::io::Error| format!("cannot list {}: {error}", dir.display());
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
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
pub fn attributes(item: &Item) -> &[Attribute] {
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

/// Returns the files that define methods of a type, outside of trait implementations, and the number in each.
pub fn methods<'a>(sources: &'a [Source], name: &str) -> Vec<(&'a str, usize)> {
    let count = |source: &Source| {
        let blocks = source.items.iter().filter_map(|item| match item {
            Item::Impl(block) if block.trait_.is_none() => Some(block),
            _ => None,
        });
        let own = blocks.filter(|block| match &*block.self_ty {
            Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
            _ => false,
        });
        own.flat_map(|block| &block.items).filter(|item| matches!(item, ImplItem::Fn(_))).count()
    };
    let counts = sources.iter().map(|source| (source.path.as_str(), count(source)));
    counts.filter(|(_, count)| *count > 0).collect()
}
