//! The files of a directory as data, to compare states exactly.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::platform;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TreeNode {
    Dir,
    File { mode: u32, bytes: Vec<u8> },
    Link(Vec<u8>),
}

/// Contents of a directory, by path.
pub(super) type Tree = BTreeMap<Vec<u8>, TreeNode>;

/// Reads everything below a directory.
pub(super) fn read(dir: &Path) -> Result<Tree, String> {
    let mut tree = Tree::new();
    read_into(dir, &[], &mut tree).map_err(|error| format!("cannot read the files: {error}"))?;
    Ok(tree)
}

fn read_into(dir: &Path, below: &[u8], tree: &mut Tree) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let mut path = below.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(entry.file_name().as_encoded_bytes());
        let found = entry.path().symlink_metadata()?;
        let node = if found.is_dir() {
            read_into(&entry.path(), &path, tree)?;
            TreeNode::Dir
        } else if found.is_symlink() {
            TreeNode::Link(fs::read_link(entry.path())?.into_os_string().into_encoded_bytes())
        } else {
            TreeNode::File { mode: platform::mode(&found), bytes: fs::read(entry.path())? }
        };
        tree.insert(path, node);
    }
    Ok(())
}

/// Returns the first difference between two states in words, or `None` if they are equal.
pub(super) fn difference(wanted: &Tree, found: &Tree) -> Option<String> {
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    for (path, node) in wanted {
        match (node, found.get(path)) {
            (_, None) => return Some(format!("{} is missing", name(path))),
            (TreeNode::File { mode, bytes }, Some(TreeNode::File { mode: other, bytes: others })) => {
                if bytes != others {
                    return Some(format!("{} has other bytes", name(path)));
                }
                if mode != other {
                    return Some(format!("{} has the mode {other:o}, not {mode:o}", name(path)));
                }
            }
            (node, Some(other)) if node != other => return Some(format!("{} is something else", name(path))),
            _ => {}
        }
    }
    found.keys().find(|path| !wanted.contains_key(*path)).map(|path| format!("{} should not be there", name(path)))
}
