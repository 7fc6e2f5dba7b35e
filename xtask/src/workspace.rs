//! The workspace that this program was built in, and the piton that is built from it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Returns the root of the workspace that this program was built in.
pub(crate) fn workspace_root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.clone(), PathBuf::from)
}

/// Returns the given piton by its canonical path, or builds one from this workspace.
pub(crate) fn piton(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) => path.canonicalize().with_context(|| format!("there is no {}", path.display())),
        None => build_piton(),
    }
}

/// Builds piton from this workspace with optimisations.
pub(crate) fn build_piton() -> Result<PathBuf> {
    build(&["-p", "piton-cli"], "piton")
}

/// Builds an example of the library with optimisations.
pub(crate) fn build_example(name: &str) -> Result<PathBuf> {
    build(&["-p", "piton", "--example", name], &format!("examples/{name}"))
}

fn build(what: &[&str], made: &str) -> Result<PathBuf> {
    eprintln!("building {made}");
    let root = workspace_root();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--release"]).args(what).current_dir(&root).status()?;
    ensure!(status.success(), "{made} does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(target.join("release").join(made))
}
