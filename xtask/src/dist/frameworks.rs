//! Stubs of the frameworks of macOS that the programs are linked with. Zig brings the C library of a Mac only, and the rest
//! of Apple's SDK cannot be had from a registry. A stub lists the names that a framework has: those that the crates with its
//! declarations declare.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use syn::visit::Visit;

/// Each framework, and the crate with its declarations.
const FRAMEWORKS: [(&str, &str); 2] =
    [("CoreFoundation", "core-foundation-sys"), ("Security", "security-framework-sys")];

/// Writes the stubs below `dir`, which the linker is given as a directory of frameworks.
pub(super) fn write_stubs(root: &Path, dir: &Path) -> Result<()> {
    let mut metadata = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    metadata.args(["metadata", "--locked", "--format-version=1"]).current_dir(root);
    let metadata: Value = serde_json::from_slice(&crate::measure::run(&mut metadata)?)?;
    for (framework, package) in FRAMEWORKS {
        let found = metadata["packages"].as_array().into_iter().flatten().find(|one| one["name"] == package);
        let manifest = found.and_then(|one| one["manifest_path"].as_str());
        let manifest = manifest.with_context(|| format!("{package} is not among the dependencies"))?;
        let names = declared(&Path::new(manifest).with_file_name("src"))?;
        ensure!(names.len() > 50, "{package} declares {} names", names.len());
        let place = dir.join(format!("{framework}.framework"));
        fs::create_dir_all(&place)?;
        fs::write(place.join(format!("{framework}.tbd")), stub(framework, &names))?;
    }
    Ok(())
}

/// Returns the names of foreign functions and statics in the sources below a directory, sorted.
fn declared(sources: &Path) -> Result<Vec<String>> {
    let mut names = ForeignNames::default();
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "rs") {
            names.visit_file(&syn::parse_file(&fs::read_to_string(&path)?)?);
        }
    }
    names.0.sort();
    names.0.dedup();
    Ok(names.0)
}

#[derive(Default)]
struct ForeignNames(Vec<String>);

impl<'a> Visit<'a> for ForeignNames {
    fn visit_foreign_item(&mut self, item: &'a syn::ForeignItem) {
        match item {
            syn::ForeignItem::Fn(function) => self.0.push(function.sig.ident.to_string()),
            syn::ForeignItem::Static(value) => self.0.push(value.ident.to_string()),
            _ => {}
        }
    }
}

/// Returns a stub in the text format of Apple's linker, version 4.
fn stub(framework: &str, names: &[String]) -> String {
    let targets = "[ x86_64-macos, arm64-macos ]";
    let place = format!("/System/Library/Frameworks/{framework}.framework/Versions/A/{framework}");
    let mut text = format!("--- !tapi-tbd\ntbd-version: 4\ntargets: {targets}\ninstall-name: '{place}'\n");
    let _ = write!(text, "exports:\n  - targets: {targets}\n    symbols: [ ");
    let symbols: Vec<_> = names.iter().map(|name| format!("_{name}")).collect();
    let _ = write!(text, "{} ]\n...\n", symbols.join(", "));
    text
}
