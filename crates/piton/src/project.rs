//! Projects: which directory is meant, and what it is called in the store.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::ProjectId;
use crate::store::Store;

/// A directory with one of these in it is the root of what somebody works on.
const MARKERS: [&str; 9] =
    [".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile"];

/// One working directory.
///
/// ```
/// use piton::Project;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let home = temp.path().canonicalize()?;
/// # std::fs::create_dir_all(home.join("code/src"))?;
/// std::fs::write(home.join("code/Cargo.toml"), "")?;
/// let project = Project::around(&home.join("code/src"), None, Some(&home))?; // a marker file shows the root
/// assert_eq!(project.dir(), home.join("code"));
/// assert!(Project::at(&home, Some(&home))?.is_too_broad());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    id: ProjectId,
    dir: PathBuf,
    is_too_broad: bool,
}

impl Project {
    /// The project in exactly this directory. `home` is the user's home directory: neither it nor anything around it
    /// can be a project.
    pub fn at(dir: &Path, home: Option<&Path>) -> Result<Self> {
        let dir = fsx::canonical(dir)?;
        if !fsx::is_dir(&dir)? {
            return Err(Error::new(ErrorKind::Invalid, "use as a project")
                .with_path(&dir)
                .because("it is not a directory"));
        }
        Ok(Self { id: ProjectId::of(&dir), is_too_broad: is_too_broad(&dir, home), dir })
    }

    /// The project that a command started in `dir` means: the innermost directory known to the store that `dir` is or
    /// is in; else the root that its marker files show; else `dir` itself.
    pub fn around(dir: &Path, store: Option<&Store>, home: Option<&Path>) -> Result<Self> {
        let dir = fsx::canonical(dir)?;
        let known = store
            .and_then(|store| dir.ancestors().find(|dir| !is_too_broad(dir, home) && store.knows(&ProjectId::of(dir))));
        match known {
            Some(known) => Self::at(known, home),
            None => Self::at(&working_dir_for_path(&dir, home), home),
        }
    }

    /// Its name in the store.
    pub fn id(&self) -> &ProjectId {
        &self.id
    }

    /// Its directory, free of links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it is `/`, the home directory, or something around that.
    pub fn is_too_broad(&self) -> bool {
        self.is_too_broad
    }
}

fn is_too_broad(dir: &Path, home: Option<&Path>) -> bool {
    let home = home.map(|home| fsx::canonical(home).unwrap_or_else(|_| home.to_owned()));
    dir.parent().is_none() || home.is_some_and(|home| home.starts_with(dir))
}

/// Where a file belongs: the first directory upwards that holds a marker file, else the file's own directory. Never
/// `/` nor the home directory, unless the file lies right there.
pub fn working_dir_for_path(path: &Path, home: Option<&Path>) -> PathBuf {
    let path = fsx::canonical(path).unwrap_or_else(|_| path.to_owned());
    // What cannot be looked at is no reason to take what is around it: whoever uses it is told.
    let own = if fsx::is_dir(&path).unwrap_or(true) { path.as_path() } else { path.parent().unwrap_or(&path) };
    let has_marker = |dir: &Path| MARKERS.iter().any(|marker| dir.join(marker).symlink_metadata().is_ok());
    own.ancestors().take_while(|dir| !is_too_broad(dir, home)).find(|dir| has_marker(dir)).unwrap_or(own).to_owned()
}
