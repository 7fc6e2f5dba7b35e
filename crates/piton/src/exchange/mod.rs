//! Checkpoints for other machines, and from them: the input of a push, and the result of a fetch. Knows no network and
//! no bucket.
//!
//! - Z4. Only the commits of checkpoints and the objects reachable from them are sent, never local files, kept files or
//!   git states.
//! - Z5. A fetched checkpoint is complete, belongs to the project that it was fetched for, and has a pin of its own: it
//!   is never part of that project's history, and changes no other checkpoint.

mod incoming;
mod outgoing;

pub use incoming::{
    FetchRequest, FetchedPath, Incoming, TreeItem, checkpoint_tree, forget_fetched, names_path, tree_items,
};
pub use outgoing::{Outgoing, SentCheckpoint, SentProject};

/// Returns the identity of a project, the same on every machine: the name that the user gave it, else the repository that
/// it is in, else its directory.
pub fn project_identity(name: Option<&str>, repository: Option<&str>, directory: &str) -> String {
    match (name, repository) {
        (Some(name), _) => format!("name:{name}"),
        (None, Some(repository)) => format!("git:{repository}"),
        (None, None) => format!("path:{directory}"),
    }
}

/// Returns the identity of a directory in its git repository, which is the same on every machine. Returns `None`
/// without a repository or without a remote `origin`. See [`SentProject::repository`].
pub fn repository_identity(directory: &std::path::Path) -> Option<String> {
    crate::worktree::repository_identity(directory)
}
