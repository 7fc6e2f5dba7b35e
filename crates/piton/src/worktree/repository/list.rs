//! Lists the files of a repository, with stat data only.

use std::ffi::CString;
use std::io;

use super::Repository;
use super::write::TEMP_LOCK;
use crate::progress::Progress;
use crate::relpath::{self, escape};
use crate::sys::{self, Dir, Kind, Stat};

/// Maximum depth of directories.
const DEPTH_MAX: usize = 64;
/// Maximum number of small files. A repository with more loose refs than this is left to `git pack-refs`.
const FILES_MAX: usize = 200_000;

/// A small file, or a link.
#[derive(Debug, Clone)]
pub(crate) struct RepositoryFile {
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
}

/// Small files of a repository, and the directories of its objects.
#[derive(Debug, Default)]
pub(crate) struct FileListing {
    /// Sorted by path.
    pub(crate) files: Vec<RepositoryFile>,
    /// Directories that were listed, with their stat data before that.
    pub(crate) dirs: Vec<RepositoryFile>,
    /// Directories named `objects`: of the repository and of those of its submodules.
    pub(crate) object_roots: Vec<Vec<u8>>,
    /// Descriptions of the parts that are left out.
    pub(crate) left_out: Vec<String>,
}

/// A directory of object files: one of the 256 for loose objects, or that of packs.
#[derive(Debug, Clone)]
pub(crate) struct ObjectDir {
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
    pub(crate) is_packs: bool,
}

impl Repository {
    /// Lists the small files. Fails with `Interrupted` if it is cancelled.
    pub(crate) fn list_files(&self, progress: &Progress) -> io::Result<FileListing> {
        let mut listing = FileListing::default();
        let mut walk = Walk { listing: &mut listing, buffer: Vec::new(), progress };
        walk.enter(&self.dir, b"", 0)?;
        listing.files.sort_by(|a, b| a.path.cmp(&b.path));
        listing.object_roots.sort();
        Ok(listing)
    }

    /// Lists the directories with object files below a directory named `objects`; that of packs comes last, because a
    /// repack writes the new pack before it removes anything.
    pub(crate) fn object_dirs(&self, root: &[u8]) -> io::Result<Vec<ObjectDir>> {
        let dir = self.dir.open_dir(root)?;
        let mut names = Vec::new();
        dir.for_each(&mut Vec::new(), |name, _| {
            if name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit) || name == b"pack" {
                names.push(name.to_vec());
            }
        })?;
        names.sort();
        let mut dirs = Vec::with_capacity(names.len());
        for name in names {
            match dir.stat_at(&CString::new(&name[..])?) {
                Ok(stat) if stat.kind == Kind::Dir => {
                    dirs.push(ObjectDir { path: relpath::join(root, &name), stat, is_packs: name == b"pack" });
                }
                Ok(_) => {}
                Err(error) if sys::is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(dirs)
    }

    /// Opens a directory of object files, and lists the names of object files in it.
    pub(crate) fn object_names(&self, dir: &ObjectDir) -> io::Result<(Dir, Vec<Vec<u8>>)> {
        let opened = self.dir.open_dir(&dir.path)?;
        let mut names = Vec::new();
        opened.for_each(&mut Vec::new(), |name, _| {
            let is_object = if dir.is_packs { is_pack_file(name) } else { is_loose_name(name) };
            names.extend(is_object.then(|| name.to_vec()));
        })?;
        // A pack is of use once its idx is there: this one last.
        names.sort_by_key(|name| (name.ends_with(b".idx"), name.clone()));
        Ok((opened, names))
    }
}

/// Returns true for the name of a loose object of SHA-1 or SHA-256, without its first two digits.
fn is_loose_name(name: &[u8]) -> bool {
    matches!(name.len(), 38 | 62) && name.iter().all(u8::is_ascii_hexdigit)
}

/// Returns true for a file of a pack: the pack itself, its idx and what belongs to them.
fn is_pack_file(name: &[u8]) -> bool {
    name.starts_with(b"pack-") && !name.ends_with(b".lock") && !name.contains(&b'/')
}

struct Walk<'a> {
    listing: &'a mut FileListing,
    buffer: Vec<std::mem::MaybeUninit<u8>>,
    progress: &'a Progress,
}

impl Walk<'_> {
    fn enter(&mut self, dir: &Dir, path: &[u8], depth: usize) -> io::Result<()> {
        if self.progress.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.listing.dirs.push(RepositoryFile { path: path.to_vec(), stat: dir.stat()? });
        let mut names: Vec<Vec<u8>> = Vec::new();
        dir.for_each(&mut self.buffer, |name, _| names.push(name.to_vec()))?;
        let has = |wanted: &[u8]| names.iter().any(|name| name == wanted);
        // The repositories of submodules are inside this one.
        let is_git_dir = path.is_empty() || has(b"HEAD") && has(b"objects") && !path.starts_with(b"refs/");
        for name in names {
            let below = relpath::join(path, &name);
            let is_passing = name.ends_with(b".lock") || is_git_dir && is_of_a_process(&name);
            if is_passing {
                continue;
            }
            if is_git_dir && name == b"lfs" {
                self.large_files(dir, &below);
                continue;
            }
            let stat = match dir.stat_at(&CString::new(&name[..])?) {
                Ok(stat) => stat,
                Err(error) if sys::is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            match stat.kind {
                Kind::Dir if is_git_dir && name == b"objects" => self.objects(dir, below, stat)?,
                Kind::Link if is_git_dir && name == b"objects" => {
                    self.leave_out("objects behind a symbolic link", &below);
                }
                Kind::Dir if depth < DEPTH_MAX => {
                    match dir.open_dir(&name) {
                        Ok(opened) => self.enter(&opened, &below, depth + 1)?,
                        Err(error) if sys::is_gone(&error) => {}
                        Err(error) => return Err(error),
                    };
                }
                Kind::Dir => self.leave_out("files in too many directories", &below),
                Kind::File | Kind::Link if self.listing.files.len() >= FILES_MAX => {
                    return Err(io::Error::other(format!("there are more than {FILES_MAX} small files in it")));
                }
                // A link to a name below `refs` is how old versions of git wrote a symbolic ref.
                Kind::Link
                    if is_in_refs(&below)
                        && !dir.read_link(&CString::new(&name[..])?).is_ok_and(|to| to.starts_with(b"refs/")) =>
                {
                    self.leave_out("refs behind a symbolic link", &below);
                    self.listing.files.push(RepositoryFile { path: below, stat });
                }
                Kind::File | Kind::Link => self.listing.files.push(RepositoryFile { path: below, stat }),
                Kind::Special => {}
            }
        }
        Ok(())
    }

    /// Notes a directory of objects, and lists the small files in it that say where other objects are.
    fn objects(&mut self, parent: &Dir, path: Vec<u8>, stat: Stat) -> io::Result<()> {
        self.listing.dirs.push(RepositoryFile { path: path.clone(), stat });
        if let Ok(info) = parent.open_dir(b"objects/info") {
            let dir = relpath::join(&path, b"info");
            self.listing.dirs.push(RepositoryFile { path: dir.clone(), stat: info.stat()? });
            for name in [c"alternates", c"http-alternates"] {
                if let Ok(stat) = info.stat_at(name) {
                    let path = relpath::join(&dir, name.to_bytes());
                    self.leave_out("objects of other repositories that it uses", &path);
                    self.listing.files.push(RepositoryFile { path, stat });
                }
            }
        }
        if let Ok(packs) = parent.open_dir(b"objects/pack") {
            let mut is_partial = false;
            packs.for_each(&mut self.buffer, |name, _| is_partial |= name.ends_with(b".promisor"))?;
            if is_partial {
                self.leave_out("objects that this partial clone has not fetched", &path);
            }
        }
        self.listing.object_roots.push(path);
        Ok(())
    }

    /// Notes the files of LFS, if there are any.
    fn large_files(&mut self, git_dir: &Dir, path: &[u8]) {
        let mut has_files = false;
        let listed =
            git_dir.open_dir(b"lfs/objects").and_then(|dir| dir.for_each(&mut self.buffer, |_, _| has_files = true));
        if has_files || listed.is_err_and(|error| !sys::is_gone(&error)) {
            self.leave_out("files of LFS", path);
        }
    }

    fn leave_out(&mut self, what: &str, path: &[u8]) {
        self.listing.left_out.push(format!("{what} ({})", escape(path)));
    }
}

/// Returns true for the directory of refs and what is in it.
fn is_in_refs(path: &[u8]) -> bool {
    path == b"refs" || path.starts_with(b"refs/")
}

/// Returns true for a file that belongs to a running process and not to the state of the repository.
fn is_of_a_process(name: &[u8]) -> bool {
    matches!(name, b"gc.pid" | b"gc.log") || name.starts_with(b"fsmonitor--daemon") || name.starts_with(TEMP_LOCK)
}
