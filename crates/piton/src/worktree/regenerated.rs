//! Build output, dependencies and caches: files that programs can regenerate, and that are therefore neither saved with
//! checkpoints nor kept before a command destroys them.

use crate::relpath;

/// Directories of dependencies, build output and caches.
const DIRS: &[&str] = &[
    // Dependencies.
    "node_modules",
    "bower_components",
    "jspm_packages",
    "site-packages",
    "vendor",
    "Pods",
    "Carthage",
    ".yarn",
    ".pnpm-store",
    ".npm",
    ".m2",
    ".cargo",
    ".rustup",
    ".gradle",
    ".pub-cache",
    "elm-stuff",
    // Build output.
    "target",
    "dist",
    "build",
    "_build",
    ".build",
    "dist-newstyle",
    "obj",
    "DerivedData",
    "CMakeFiles",
    ".next",
    ".nuxt",
    ".output",
    ".svelte-kit",
    ".angular",
    ".expo",
    ".docusaurus",
    ".dart_tool",
    ".stack-work",
    ".serverless",
    ".aws-sam",
    ".eggs",
    // Virtual environments. Others are known by their `pyvenv.cfg`.
    ".venv",
    "venv",
    "virtualenv",
    ".tox",
    ".nox",
    // Caches. Others are known by their `CACHEDIR.TAG`.
    "__pycache__",
    ".cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".parcel-cache",
    ".turbo",
    ".vite",
    ".sass-cache",
    ".ccache",
    ".bloop",
    ".metals",
    ".terraform",
    ".vs",
    ".ipynb_checkpoints",
    "coverage",
    "htmlcov",
    ".nyc_output",
];

/// Beginnings and ends of names of such directories.
const DIR_STARTS: &[&str] = &["cmake-build-"];
const DIR_ENDS: &[&str] = &[".egg-info"];

/// Such a directory by its path in the project.
const DIR_PATH: &[u8] = b"tmp/cache";

/// Names of files and directories that programs make again: reports, and files of operating systems.
const NAMES: &[&str] = &[".coverage", ".DS_Store", "Thumbs.db"];

/// Beginnings of such names: links to build output.
const STARTS: &[&str] = &["bazel-"];

/// Ends of such names: compiled code.
const ENDS: &[&str] = &[".pyc", ".pyo", ".class", ".o", ".obj", ".so", ".dylib", ".dll", ".a"];

/// Returns true if a name alone says that programs make the file or directory again.
fn is_regenerated_name(name: &[u8], is_dir: bool) -> bool {
    let is = |known: &&str| known.as_bytes() == name;
    let begins = |start: &&str| name.starts_with(start.as_bytes());
    let ends = |end: &&str| name.ends_with(end.as_bytes());
    let is_such_dir = || DIRS.iter().any(is) || DIR_STARTS.iter().any(begins) || DIR_ENDS.iter().any(ends);
    is_dir && is_such_dir() || NAMES.iter().any(is) || STARTS.iter().any(begins) || ENDS.iter().any(ends)
}

/// Returns true for a directory or file of version control.
fn is_of_versions(name: &[u8], is_dir: bool) -> bool {
    name == b".git" || is_dir && matches!(name, b".hg" | b".svn" | b".jj")
}

/// Returns true if a path, or a directory around it, has a name for which `is_meant` returns true.
fn has_name(path: &[u8], is_dir: bool, is_meant: impl Fn(&[u8], bool) -> bool) -> bool {
    let (around, name) = relpath::split(path);
    is_meant(name, is_dir) || !around.is_empty() && around.split(|byte| *byte == b'/').any(|name| is_meant(name, true))
}

/// Returns true if a path of a project, or a directory around it, is something that programs make again.
pub(crate) fn is_regenerated(path: &[u8], is_dir: bool) -> bool {
    let is_below = relpath::is_within(path, DIR_PATH) && (is_dir || path != DIR_PATH);
    is_below || has_name(path, is_dir, is_regenerated_name)
}

/// Returns true if a path of a project, or a directory around it, is something that programs make again or belongs to
/// version control.
pub(super) fn is_regenerated_or_versions(path: &[u8], is_dir: bool) -> bool {
    is_regenerated(path, is_dir) || has_name(path, is_dir, is_of_versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_make_again_is_told_from_what_people_make() {
        for (path, is_dir) in [
            (&b"node_modules"[..], true),
            (b"web/node_modules/x/readme", false),
            (b"target", true),
            (b"a/__pycache__/b.pyc", false),
            (b".DS_Store", false),
            (b"tmp/cache", true),
            (b"tmp/cache/a", false),
            (b"cmake-build-debug/x", false),
            (b"x.egg-info", true),
            (b"bazel-out", false),
            (b"a.class/b", false),
        ] {
            assert!(is_regenerated(path, is_dir), "{}", String::from_utf8_lossy(path));
        }
        for (path, is_dir) in [
            (&b"data"[..], true),
            (b".env", false),
            (b"local.db", false),
            (b"notes.md", false),
            (b".claude/settings.local.json", false),
            (b"out", true),
            (b"tmp", true),
            (b"tmp/cache", false),
            (b"a/tmp/cache", true),
            (b"x.egg-info", false),
            (b"terraform.tfstate", false),
            (b"app.log", false),
            (b"target", false),
            (b"x/.git", true),
        ] {
            assert!(!is_regenerated(path, is_dir), "{}", String::from_utf8_lossy(path));
        }
        for (path, is_left_out) in
            [(&b"x/.git"[..], true), (b".hg/store", true), (b"target/x", true), (b".gitignore", false)]
        {
            assert_eq!(is_regenerated_or_versions(path, true), is_left_out, "{}", String::from_utf8_lossy(path));
        }
    }
}
