//! Resolves the operands of a command against the file system: patterns, and files that would be replaced by copies.

use std::collections::VecDeque;
use std::fs;
use std::path::{Component, Path, PathBuf};

use piton_ignore::Patterns;

/// Number of names that are examined for one pattern.
const NAMES_MAX: usize = 20_000;
/// Number of paths that one pattern or one copy may expand to.
const PATHS_MAX: usize = 2_000;

/// Paths that were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub(crate) paths: Vec<PathBuf>,
    /// True if there are more.
    pub(crate) is_cut: bool,
}

/// Returns the existing paths that a pattern of the shell matches. `*` does not match a dot at the beginning of a name,
/// and `**` is any number of directories. Brackets may have been quoted, so a name that contains them matches, too.
pub(crate) fn expand(pattern: &Path) -> Expanded {
    let mut found = Expanded { paths: vec![PathBuf::from("/")], is_cut: false };
    let mut names = 0;
    let mut parts = pattern.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(part) = part else { continue };
        let text = part.to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            found.paths.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let is_match = name_matcher(&text);
        let is_quoted = name_matcher(&text.replace('[', "\\["));
        let is_deep = text == "**";
        let mut next = if is_deep { found.paths.clone() } else { Vec::new() };
        let mut dirs = VecDeque::from(std::mem::take(&mut found.paths));
        while let Some(dir) = dirs.pop_front() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                names += 1;
                let name = entry.file_name();
                let is_hidden = name.as_encoded_bytes().starts_with(b".") && !text.starts_with('.');
                if names > NAMES_MAX || next.len() >= PATHS_MAX {
                    found.is_cut = true;
                    break;
                }
                if is_hidden || !is_match(name.as_encoded_bytes()) && !is_quoted(name.as_encoded_bytes()) {
                    continue;
                }
                let is_dir = is_deep && entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_dir {
                    dirs.push_back(entry.path());
                }
                if is_dir || !is_deep || parts.peek().is_none() {
                    next.push(entry.path());
                }
            }
        }
        next.sort();
        found.paths = next;
    }
    found.paths.retain(|path| fs::symlink_metadata(path).is_ok());
    found
}

/// Returns a function that tells if a file name matches a pattern, as `find -name` does.
pub(crate) fn name_matcher(pattern: &str) -> impl Fn(&[u8]) -> bool + use<> {
    // The slash makes it match whole names, and takes the meaning from `!` and `#`.
    let patterns = Patterns::parse(format!("/{pattern}").as_bytes());
    move |name| patterns.verdict(name, false).is_some()
}

/// Returns the existing files that a copy of `sources` to `target` would replace. A directory that is moved replaces
/// nothing; one that is copied replaces the files that are on both sides.
pub(crate) fn replaced(target: &Path, sources: &[PathBuf], copies_dirs: bool) -> Expanded {
    let mut found = Expanded::default();
    let Ok(is_dir) = fs::metadata(target).map(|target| target.is_dir()) else {
        // A dangling link is replaced as such.
        found.paths.extend(fs::symlink_metadata(target).ok().map(|_| target.to_owned()));
        return found;
    };
    if !is_dir {
        found.paths.push(target.to_owned());
        return found;
    }
    for source in sources {
        let Expanded { paths, is_cut } = expand(source);
        found.is_cut |= is_cut;
        // One that the command makes first is not there yet: its name says enough if a file has that.
        let made = if paths.is_empty() { vec![source.clone()] } else { paths };
        for source in made {
            let onto = source.file_name().map(|name| target.join(name));
            let Some(onto) = onto.filter(|onto| fs::symlink_metadata(onto).is_ok()) else { continue };
            if !onto.is_dir() {
                found.paths.push(onto);
            } else if copies_dirs {
                both(&source, &onto, &mut found, 0);
            }
        }
    }
    found
}

/// Adds the files that are in both directories.
fn both(from: &Path, to: &Path, found: &mut Expanded, depth: usize) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        if found.paths.len() >= PATHS_MAX || depth > 32 {
            found.is_cut = true;
            return;
        }
        let onto = to.join(entry.file_name());
        match fs::symlink_metadata(&onto) {
            Ok(there) if there.is_dir() => both(&entry.path(), &onto, found, depth + 1),
            Ok(_) => found.paths.push(onto),
            Err(_) => {}
        }
    }
}
