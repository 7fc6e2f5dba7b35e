//! The module graph of a crate, built from the paths that its sources name, and its cycles.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{ItemUse, Path, UseTree};

use super::source::Source;

/// Collects the paths that a file names, as segments.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.found.push(with(name.ident.to_string())),
            UseTree::Rename(name) => self.found.push(with(name.ident.to_string())),
            UseTree::Glob(_) => self.found.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Returns, for each file of a crate, the files whose modules it names with `crate::`, `super::` or `self::`. Edges
/// between a module and its own parent or child are left out: the re-exports of a `mod.rs` do not make it depend on its
/// parts.
fn graph<'a>(sources: &'a [Source], package: &str) -> Graph<'a> {
    let own: Vec<_> = sources.iter().filter(|source| source.package == package && source.path != "lib").collect();
    let mut graph = Graph::new();
    for source in &own {
        let mut paths = Paths::default();
        source.items.iter().for_each(|item| paths.visit_item(item));
        let module = source.module();
        let named = paths.found.iter().filter_map(|path| target(path, &module, &own));
        let named = named.filter(|other| other.path != source.path && !is_related(&module, &other.module()));
        graph.entry(source.path.as_str()).or_default().extend(named.map(|other| other.path.as_str()));
    }
    graph
}

/// Returns true if one module contains the other.
fn is_related(one: &[&str], other: &[&str]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the file that defines the innermost module on a path.
fn target<'a>(path: &[String], module: &[&str], own: &[&'a Source]) -> Option<&'a Source> {
    let mut names: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut absolute: Vec<&str> = match *names.first()? {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    names.remove(0);
    while names.first() == Some(&"super") {
        absolute.pop();
        names.remove(0);
    }
    absolute.extend(names);
    let is_on_path = |source: &&&Source| {
        let module = source.module();
        !module.is_empty() && absolute.starts_with(&module)
    };
    own.iter().filter(is_on_path).max_by_key(|source| source.module().len()).copied()
}

/// Returns the cycles among the modules of a crate: each strongly connected component of more than one file.
pub(super) fn cycles(sources: &[Source], package: &str) -> Vec<String> {
    let graph = graph(sources, package);
    let mut reach: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for start in graph.keys() {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = graph[start].iter().copied().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(graph.get(next).into_iter().flatten());
            }
        }
        reach.insert(start, seen);
    }
    let mut components = BTreeSet::new();
    for (start, seen) in &reach {
        let together: Vec<&str> =
            seen.iter().filter(|other| reach.get(**other).is_some_and(|back| back.contains(start))).copied().collect();
        if together.len() > 1 {
            components.insert(together);
        }
    }
    components.into_iter().map(|component| format!("{package}: {}", component.join(" <-> "))).collect()
}
