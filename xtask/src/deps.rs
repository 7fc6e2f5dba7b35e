//! Dependency check: every crate linked into the programs, with its licence and source, against the rules in
//! `deny.toml`; and the list of them in `crates/piton-cli/THIRD-PARTY.md`.
//!
//! cargo-deny does the same and more, and is run as well if it is installed. It takes many minutes to build, this takes
//! no time: see docs/decisions/0020.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::workspace::workspace_root;

const LIST: &str = "crates/piton-cli/THIRD-PARTY.md";
const HEAD: &str = "\
# What piton is made of

Every crate in the programs `piton` and `piton-remote` that is not its own, with its licence, as `cargo xtask deps --write` finds
them.

";

/// The crates of the programs. What `deny.toml` denies must not be part of the first.
const PACKAGES: [&str; 2] = ["piton-cli", "piton-remote"];

/// A crate linked into a program.
struct Part {
    /// Crates of the programs that it is part of.
    of: Vec<&'static str>,
    name: String,
    version: String,
    licence: String,
    source: Option<String>,
    home: String,
    dir: String,
}

impl Part {
    /// Returns true if it is this crate, in a version that begins with these numbers.
    fn is_of(&self, name: &str, version: &str) -> bool {
        let rest = self.version.strip_prefix(version).filter(|_| self.name == name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[derive(clap::Args)]
pub(crate) struct DepsArgs {
    /// Write crates/piton-cli/THIRD-PARTY.md instead of comparing it
    #[arg(long, conflicts_with = "texts")]
    write: bool,
    /// Collect the texts of the licences in FILE, for redistributing the program
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
}

/// Checks the rules and the list.
pub(crate) fn run(args: &DepsArgs) -> Result<ExitCode> {
    let root = workspace_root();
    let parts = parts(&root)?;
    let rules: toml::Table = fs::read_to_string(root.join("deny.toml"))?.parse().context("cannot read deny.toml")?;
    let mut wrong = Vec::new();
    check_licences(&parts, &strings(&rules, "licenses", "allow"), &mut wrong);
    check_versions(&parts, &rules, &mut wrong);
    check_sources(&parts, &strings(&rules, "sources", "allow-registry"), &mut wrong);
    if let Some(file) = &args.texts {
        fs::write(file, all_texts(&parts))?;
    } else if args.write {
        fs::write(root.join(LIST), list(&parts))?;
    } else if fs::read_to_string(root.join(LIST)).unwrap_or_default() != list(&parts) {
        wrong.push(format!("{LIST} is not up to date: `cargo xtask deps --write`"));
    }
    for line in &wrong {
        eprintln!("error: {line}");
    }
    ensure!(wrong.is_empty(), "the rules of deny.toml do not hold");
    let judge = if is_asked_of_cargo_deny(&root)? { "by cargo-deny, too" } else { "cargo-deny is not installed" };
    println!("{} crates, all within the rules of deny.toml ({judge})", parts.len());
    Ok(ExitCode::SUCCESS)
}

/// Runs cargo-deny if it is installed. Returns false if it is not, and fails if it finds a violation.
fn is_asked_of_cargo_deny(root: &Path) -> Result<bool> {
    let deny = |arguments: &[&str]| Command::new("cargo-deny").args(arguments).current_dir(root).output();
    if deny(&["--version"]).is_err() {
        return Ok(false);
    }
    // Advisories are left out: they are fetched, and a merge must not depend on what was published in the meantime.
    let output = deny(&["--offline", "check", "licenses", "bans", "sources"])?;
    ensure!(output.status.success(), "cargo-deny says:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(true)
}

/// Returns every crate linked into a program, without those that only build or test it. `cargo metadata` alone would
/// also list crates of features that are not enabled.
fn parts(root: &Path) -> Result<Vec<Part>> {
    let mut linked: BTreeMap<(String, String), Vec<&'static str>> = BTreeMap::new();
    for package in PACKAGES {
        let edges = "--edges=normal,no-proc-macro";
        let tree = ["tree", "--locked", "--package", package, edges, "--prefix=none", "--format={p}"];
        let tree = String::from_utf8(cargo(root, &tree)?).context("cannot read what cargo tree says")?;
        let names: BTreeSet<_> = tree.lines().filter_map(name_and_version).collect();
        for (name, version) in names {
            linked.entry((name.to_owned(), version.to_owned())).or_default().push(package);
        }
    }
    let metadata = cargo(root, &["metadata", "--locked", "--format-version=1"])?;
    let metadata: Value = serde_json::from_slice(&metadata).context("cannot read what cargo metadata says")?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let part = |package: &Value| Part {
        of: linked.get(&(text(package, "name"), text(package, "version"))).cloned().unwrap_or_default(),
        name: text(package, "name"),
        version: text(package, "version"),
        licence: text(package, "license"),
        source: package["source"].as_str().map(str::to_owned),
        home: text(package, "repository"),
        dir: text(package, "manifest_path").trim_end_matches("Cargo.toml").to_owned(),
    };
    let mut parts: Vec<_> = metadata["packages"].as_array().into_iter().flatten().map(part).collect();
    parts.retain(|part| part.source.is_some() && !part.of.is_empty());
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    ensure!(parts.len() > 20, "the dependencies are not found any more");
    Ok(parts)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = cargo.args(arguments).current_dir(root).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Parses `name v1.2.3 (*)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

fn strings(rules: &toml::Table, section: &str, key: &str) -> BTreeSet<String> {
    let list = rules.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
    list.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// Returns the crates named in a list of `{ crate = "name@version", ... }`.
fn crates(rules: &toml::Table, key: &str) -> BTreeSet<String> {
    let list = rules.get("bans").and_then(|section| section.get(key)).and_then(toml::Value::as_array);
    let name = |one: &toml::Value| one.get("crate").and_then(|name| name.as_str()).map(str::to_owned);
    list.into_iter().flatten().filter_map(name).collect()
}

fn check_licences(parts: &[Part], allowed: &BTreeSet<String>, wrong: &mut Vec<String>) {
    for part in parts {
        if !is_allowed(&part.licence, allowed) {
            wrong.push(format!("{} {} has the licence {:?}", part.name, part.version, part.licence));
        }
    }
}

fn check_versions(parts: &[Part], rules: &toml::Table, wrong: &mut Vec<String>) {
    let (denied, skipped) = (crates(rules, "deny"), crates(rules, "skip"));
    for part in parts.iter().filter(|part| part.of.contains(&PACKAGES[0]) && denied.contains(&part.name)) {
        wrong.push(format!("{} must not be part of piton", part.name));
    }
    let is_skipped = |part: &Part| {
        let is_meant = |rule: &String| rule.split_once('@').is_some_and(|(name, version)| part.is_of(name, version));
        skipped.iter().any(is_meant)
    };
    for program in PACKAGES {
        let linked: Vec<_> = parts.iter().filter(|part| part.of.contains(&program) && !is_skipped(part)).collect();
        for pair in linked.windows(2).filter(|pair| pair[0].name == pair[1].name) {
            let (name, one, other) = (&pair[0].name, &pair[0].version, &pair[1].version);
            wrong.push(format!("{name} is twice in {program}: {one} and {other}"));
        }
    }
}

fn check_sources(parts: &[Part], allowed: &BTreeSet<String>, wrong: &mut Vec<String>) {
    for part in parts {
        let source = part.source.as_deref().unwrap_or_default();
        if !source.strip_prefix("registry+").is_some_and(|registry| allowed.contains(registry)) {
            wrong.push(format!("{} {} is from {source:?}", part.name, part.version));
        }
    }
}

/// Returns true if the allowed licences satisfy an SPDX expression. An older form has `/` for `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    !words.is_empty() && any_of(&mut rest, allowed) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut is_met = all_of(words, allowed);
    while let Some((&"OR", rest)) = words.split_first() {
        *words = rest;
        is_met |= all_of(words, allowed);
    }
    is_met
}

fn all_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut is_met = one(words, allowed);
    while let Some((&"AND", rest)) = words.split_first() {
        *words = rest;
        is_met &= one(words, allowed);
    }
    is_met
}

fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match **words {
        ["(", ..] => {
            *words = &words[1..];
            let is_met = any_of(words, allowed);
            let is_closed = words.first() == Some(&")");
            *words = words.get(1..).unwrap_or_default();
            is_met && is_closed
        }
        [name, "WITH", exception, ..] => {
            *words = &words[3..];
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        [name, ..] => {
            *words = &words[1..];
            allowed.contains(name)
        }
        [] => false,
    }
}

fn list(parts: &[Part]) -> String {
    let mut text = format!("{HEAD}| crate | version | licence | from |\n|---|---|---|---|\n");
    for part in parts {
        let _ = writeln!(text, "| {} | {} | {} | {} |", part.name, part.version, part.licence, part.home);
    }
    text
}

/// Returns the texts of the licences of everything that is linked into the program.
pub(crate) fn licence_texts(root: &Path) -> Result<String> {
    Ok(all_texts(&parts(root)?))
}

/// Returns the licence texts that the crates contain, each text once.
fn all_texts(parts: &[Part]) -> String {
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts {
        for entry in fs::read_dir(&part.dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().to_uppercase();
            let is_text =
                ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|word| name.starts_with(word));
            if let Some(text) = is_text.then(|| fs::read_to_string(entry.path()).ok()).flatten() {
                holders.entry(text).or_default().push(format!("{} {}", part.name, part.version));
            }
        }
    }
    let mut all = String::new();
    for (text, crates) in holders {
        let _ = write!(all, "{}\n\n{}\n\n{}\n\n", crates.join(", "), text.trim(), "=".repeat(78));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_has_them() {
        let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        for met in
            ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND Zlib", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(is_allowed(met, &allowed), "{met}");
        }
        for unmet in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR GPL-2.0", "Apache-2.0", "(MIT", "MIT MIT"]
        {
            assert!(!is_allowed(unmet, &allowed), "{unmet}");
        }
    }
}
