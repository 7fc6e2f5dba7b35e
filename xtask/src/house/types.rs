//! Types: methods per type and the number of files they are in, and names that occur twice in a crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::{ImplItem, Item, Type};
use testkit::source::{Source, repeated_names};

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
