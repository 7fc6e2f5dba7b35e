//! Build output, dependencies and caches: what programs make again, and what is therefore neither saved with checkpoints
//! nor kept before a command destroys it.

use std::sync::OnceLock;

use piton_ignore::Patterns;

use super::scope::matches_or_around;

/// Build output, dependencies and caches, in gitignore syntax: programs make them again.
const REGENERATED: &[&str] = &[
    // Dependencies.
    "node_modules/",
    "bower_components/",
    "jspm_packages/",
    "site-packages/",
    "vendor/",
    "Pods/",
    "Carthage/",
    ".yarn/",
    ".pnpm-store/",
    ".npm/",
    ".m2/",
    ".cargo/",
    ".rustup/",
    ".gradle/",
    ".pub-cache/",
    "elm-stuff/",
    // Build output.
    "target/",
    "dist/",
    "build/",
    "_build/",
    ".build/",
    "dist-newstyle/",
    "obj/",
    "DerivedData/",
    "CMakeFiles/",
    "cmake-build-*/",
    "bazel-*",
    ".next/",
    ".nuxt/",
    ".output/",
    ".svelte-kit/",
    ".angular/",
    ".expo/",
    ".docusaurus/",
    ".dart_tool/",
    ".stack-work/",
    ".serverless/",
    ".aws-sam/",
    ".eggs/",
    "*.egg-info/",
    // Virtual environments. Others are known by their `pyvenv.cfg`.
    ".venv/",
    "venv/",
    "virtualenv/",
    ".tox/",
    ".nox/",
    // Caches. Others are known by their `CACHEDIR.TAG`.
    "__pycache__/",
    ".cache/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".parcel-cache/",
    ".turbo/",
    ".vite/",
    ".sass-cache/",
    ".ccache/",
    ".bloop/",
    ".metals/",
    ".terraform/",
    ".vs/",
    ".ipynb_checkpoints/",
    "tmp/cache/",
    "coverage/",
    "htmlcov/",
    ".nyc_output/",
    ".coverage",
    // Compiled code, and files of operating systems.
    "*.pyc",
    "*.pyo",
    "*.class",
    "*.o",
    "*.obj",
    "*.so",
    "*.dylib",
    "*.dll",
    "*.a",
    ".DS_Store",
    "Thumbs.db",
];

/// Directories and files of version control, in gitignore syntax.
const VERSION_CONTROL: &[&str] = &[".git", ".hg/", ".svn/", ".jj/"];

/// Returns true if a path of a project, or a directory around it, is something that programs make again.
pub(crate) fn is_regenerated(path: &[u8], is_dir: bool) -> bool {
    static PATTERNS: OnceLock<Patterns> = OnceLock::new();
    let patterns = PATTERNS.get_or_init(|| Patterns::parse(REGENERATED.join("\n").as_bytes()));
    matches_or_around(patterns, path, is_dir)
}

/// Returns true if a path of a project, or a directory around it, is something that programs make again or belongs to
/// version control.
pub(super) fn is_regenerated_or_versions(path: &[u8], is_dir: bool) -> bool {
    static PATTERNS: OnceLock<Patterns> = OnceLock::new();
    let all = || [REGENERATED, VERSION_CONTROL].concat().join("\n");
    let patterns = PATTERNS.get_or_init(|| Patterns::parse(all().as_bytes()));
    matches_or_around(patterns, path, is_dir)
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
