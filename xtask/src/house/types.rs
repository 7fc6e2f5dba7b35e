//! Types: methods per type and the number of files they are in, and names that occur twice in a crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::{ImplItem, Item, Type};
use testkit::source::Source;

use super::Row;

/// Methods of one type outside of trait implementations.
#[derive(Default)]
struct Methods<'a> {
    count: usize,
    files: BTreeSet<&'a str>,
}

fn methods(sources: &[Source]) -> BTreeMap<(&str, String), Methods<'_>> {
    let mut types: BTreeMap<_, Methods<'_>> = BTreeMap::new();
    for source in sources {
        for item in &source.items {
            let Item::Impl(block) = item else { continue };
            let (None, Type::Path(path)) = (&block.trait_, &*block.self_ty) else { continue };
            let Some(name) = path.path.segments.last() else { continue };
            let methods = types.entry((source.package.as_str(), name.ident.to_string())).or_default();
            methods.count += block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
            methods.files.insert(&source.path);
        }
    }
    types
}

/// Returns the type names that are defined in more than one place of a crate, with their files.
pub(super) fn repeated_names(sources: &[Source]) -> Vec<String> {
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

pub(super) fn rows(sources: &[Source]) -> Vec<Row> {
    let types = methods(sources);
    let most = types.iter().max_by_key(|(_, methods)| methods.count);
    let most = most.map(|((_, name), methods)| format!("{} ({name}, {} files)", methods.count, methods.files.len()));
    let scattered = types.values().filter(|methods| methods.files.len() > 1).count();
    vec![
        Row::new("most methods of one type", most.unwrap_or_default()),
        Row::new("types with methods in several files", scattered),
        Row::new("type names that occur twice in a crate", repeated_names(sources).len()),
    ]
}
