//! The module graph of a crate, built from the paths that its sources name, and its cycles.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Item, ItemUse, Path, UseTree};

use crate::source::Source;

/// Number of re-exports that are followed for one path.
const REEXPORTS_MAX: usize = 8;

/// Collects the paths that a file names, as segments.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.found.extend(leaves(&[], &item.tree).into_iter().map(|(_, path)| path));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

/// Returns every name that a `use` brings in, and its path. A glob has the name `*`.
fn leaves(before: &[String], tree: &UseTree) -> Vec<(String, Vec<String>)> {
    let with = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => leaves(&with(path.ident.to_string()), &path.tree),
        UseTree::Name(name) if name.ident == "self" => {
            vec![(before.last().cloned().unwrap_or_default(), before.to_vec())]
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), with(name.ident.to_string()))],
        UseTree::Rename(name) => vec![(name.rename.to_string(), with(name.ident.to_string()))],
        UseTree::Glob(_) => vec![("*".to_owned(), before.to_vec())],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(before, tree)).collect(),
    }
}

/// The modules of one crate, and the names that each of them brings in from others.
struct Modules<'a> {
    own: Vec<&'a Source>,
    imports: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

impl<'a> Modules<'a> {
    fn of(sources: &'a [Source], package: &str) -> Self {
        let own: Vec<_> = sources.iter().filter(|source| source.package == package).collect();
        let mut imports: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for source in &own {
            let module: Vec<String> = source.module().into_iter().map(str::to_owned).collect();
            for item in &source.items {
                let Item::Use(item) = item else { continue };
                for (name, path) in leaves(&[], &item.tree) {
                    let is_child = |child: &&Source| {
                        let child = child.module();
                        child.len() == module.len() + 1
                            && child.starts_with(&source.module())
                            && child.last() == path.first().map(String::as_str).as_ref()
                    };
                    let absolute = absolute(&path, &module)
                        .or_else(|| own.iter().any(is_child).then(|| module.iter().chain(&path).cloned().collect()));
                    if let Some(absolute) = absolute {
                        imports.entry(module.clone()).or_default().insert(name, absolute);
                    }
                }
            }
        }
        Self { own, imports }
    }

    /// Returns the file that defines the innermost module on a path, after following re-exports.
    fn target(&self, path: Vec<String>) -> Option<&'a Source> {
        let mut path = path;
        for _ in 0..REEXPORTS_MAX {
            let found = self.own.iter().filter(|source| path_starts_with(&path, &source.module()));
            let found = found.max_by_key(|source| source.module().len())?;
            let depth = found.module().len();
            let imported = path.get(depth).and_then(|name| self.imports.get(&path[..depth])?.get(name));
            match imported {
                Some(imported) if *imported != path => {
                    path = imported.iter().chain(&path[depth + 1..]).cloned().collect();
                }
                _ => return Some(found),
            }
        }
        None
    }

    /// Returns a path from the crate's root. Its first segment is `crate`, `self`, `super`, or a name that the module
    /// imports; `None` for all others.
    fn absolute_in(&self, path: &[String], module: &[String]) -> Option<Vec<String>> {
        let imported = || {
            let (first, rest) = path.split_first()?;
            let base = self.imports.get(module)?.get(first)?;
            Some(base.iter().chain(rest).cloned().collect())
        };
        absolute(path, module).or_else(imported)
    }

    /// Returns, for each file, the files whose modules it names, directly or by an imported name. Edges between a
    /// module and its own parent or child are left out: the re-exports of a `mod.rs` do not make it depend on its parts.
    fn graph(&self) -> Graph<'a> {
        let mut graph = Graph::new();
        for source in self.own.iter().filter(|source| !source.module().is_empty()) {
            let mut paths = Paths::default();
            source.items.iter().for_each(|item| paths.visit_item(item));
            let module: Vec<String> = source.module().into_iter().map(str::to_owned).collect();
            let named = paths.found.iter().filter_map(|path| self.target(self.absolute_in(path, &module)?));
            let named =
                named.filter(|other| !other.module().is_empty() && !is_related(&source.module(), &other.module()));
            graph.entry(source.path.as_str()).or_default().extend(named.map(|other| other.path.as_str()));
        }
        graph
    }
}

/// Returns a path from the crate's root; `None` if it does not begin with `crate`, `self` or `super`.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let mut names = path.iter().map(String::as_str).peekable();
    let mut absolute: Vec<String> = match names.next()? {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while names.next_if_eq(&"super").is_some() {
        absolute.pop();
    }
    absolute.extend(names.map(str::to_owned));
    Some(absolute)
}

fn path_starts_with(path: &[String], module: &[&str]) -> bool {
    path.len() >= module.len() && path.iter().zip(module).all(|(name, part)| name == part)
}

/// Returns true if one module contains the other.
fn is_related(one: &[&str], other: &[&str]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the cycles among the modules of a crate, each as the sorted files of one strongly connected component.
pub fn cycles<'a>(sources: &'a [Source], package: &str) -> Vec<Vec<&'a str>> {
    let graph = Modules::of(sources, package).graph();
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
    components.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::parse("x", path, text).expect("Rust")).collect()
    }

    #[test]
    fn modules_that_name_each_other_are_a_cycle() {
        let found = sources(&[
            ("lib", "mod a; mod b; mod c;"),
            ("a", "use crate::b::B; use crate::c;"),
            ("b", "fn b() { crate::a::a() }"),
            ("c", "#[cfg(test)]\nmod tests { use crate::a; }"),
        ]);
        assert_eq!(cycles(&found, "x"), [["a", "b"]]);
    }

    #[test]
    fn a_cycle_through_re_exports_is_found() {
        let found = sources(&[
            ("lib", "mod s;"),
            ("s/mod", "mod a; mod b; pub(crate) use a::A; pub(crate) use b::B as Other;"),
            ("s/a", "use super::Other;"),
            ("s/b", "use super::{A, b};"),
        ]);
        assert_eq!(cycles(&found, "x"), [["s/a", "s/b"]]);
    }

    #[test]
    fn a_parent_and_its_parts_are_no_cycle() {
        let found = sources(&[("lib", "mod s;"), ("s/mod", "mod a; use a::A; struct S(A);"), ("s/a", "use super::S;")]);
        assert_eq!(cycles(&found, "x"), [[""; 0]; 0]);
    }
}
