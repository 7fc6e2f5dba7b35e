//! Exact state of a directory, including permissions, empty directories and special files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use crate::walk;

/// An entry at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file: its permission bits and its bytes.
    File(u32, Vec<u8>),
    /// A symlink: its target.
    Link(Vec<u8>),
    /// A directory: its permission bits.
    Dir(u32),
    /// A socket or a FIFO.
    Special,
}

/// Every entry below a directory, by its relative path.
pub type State = BTreeMap<Vec<u8>, Node>;

/// Reads the state of a directory.
pub fn state_of(dir: &Path) -> State {
    let mut state = State::new();
    walk(dir, &mut |path| {
        let relative = path.strip_prefix(dir).expect("below it").as_os_str().as_bytes().to_vec();
        let stat = path.symlink_metadata().expect("what was just listed");
        let mode = stat.permissions().mode() & 0o7777;
        let node = if stat.is_symlink() {
            Node::Link(fs::read_link(path).expect("a link").into_os_string().into_vec())
        } else if stat.is_dir() {
            Node::Dir(mode)
        } else if stat.file_type().is_fifo() || stat.file_type().is_socket() {
            Node::Special
        } else {
            Node::File(mode, fs::read(path).unwrap_or_else(|_| b"(unreadable)".to_vec()))
        };
        state.insert(relative, node);
    });
    state
}

/// Returns the differences between two states, one line each; empty if they are equal.
pub fn difference(now: &State, want: &State) -> String {
    let names: BTreeSet<_> = now.keys().chain(want.keys()).collect();
    let shown = |node: Option<&Node>| match node {
        Some(Node::File(mode, bytes)) => format!("file {mode:o} {:.60}", String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    };
    let differing = names.into_iter().filter(|name| now.get(*name) != want.get(*name)).map(|name| {
        let (now, want) = (shown(now.get(name)), shown(want.get(name)));
        format!("{}: is {now}, should be {want}\n", String::from_utf8_lossy(name))
    });
    differing.collect()
}

/// Asserts that two states are equal; panics with the differences.
#[track_caller]
pub fn assert_same(now: &State, want: &State, when: &str) {
    let difference = difference(now, want);
    assert!(difference.is_empty(), "{when}:\n{difference}");
}
