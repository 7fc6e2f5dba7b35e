//! Creating a store, finishing an interrupted creation, and archiving the repositories of an older layout.
//!
//! Everything happens under a kernel lock on the base directory itself, so that two processes that start at the same
//! moment create one store. Each piece is created only if it is missing, and the last one (`locks/gate`) marks that all
//! of them existed once. Opening a store usually only checks that all of them still exist: a tool that skips empty
//! directories may have copied the store.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::EXCLUDE_BYTES_MAX;
use super::layout::{CLEARING, JOURNAL, LAST_PRUNE, LEGACY_PREFIX, LEGACY_WORKDIR, LOCAL, Layout, STORE};
use super::wait;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::hint::Hint;
use crate::sys;
use crate::time::Moment;

/// Patterns that are left out of every checkpoint, unless the project's own git tracks the file.
const EXCLUDES: &[&str] = &[
    // Dependencies and build output.
    "node_modules/",
    "dist/",
    "build/",
    "target/",
    "out/",
    ".next/",
    ".nuxt/",
    // Caches.
    "__pycache__/",
    "*.pyc",
    "*.pyo",
    ".cache/",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    "coverage/",
    ".coverage",
    // Virtual environments.
    ".venv/",
    "venv/",
    "env/",
    // Version control, and worktrees that agents create next to each other.
    ".git/",
    ".hg/",
    ".svn/",
    ".worktrees/",
    // Compiled code.
    "*.so",
    "*.dylib",
    "*.dll",
    "*.o",
    "*.a",
    "*.jar",
    "*.class",
    "*.exe",
    "*.obj",
    // Media and archives.
    "*.mp4",
    "*.mov",
    "*.mkv",
    "*.webm",
    "*.zip",
    "*.tar",
    "*.tar.gz",
    "*.tgz",
    "*.7z",
    "*.rar",
    "*.iso",
    // Secrets.
    ".env",
    ".env.*",
    ".env.local",
    ".env.*.local",
    // Files of operating systems, and logs.
    ".DS_Store",
    "Thumbs.db",
    "*.log",
];

/// Returns the exclude list that is written to a new store.
pub(super) fn exclude_list() -> String {
    EXCLUDES.join("\n") + "\n"
}

/// Returns true for the exclude file that `git init` creates, which holds only comments. Without a real list, secrets
/// and dependencies would be stored.
pub(super) fn is_template_of_git(list: &[u8]) -> bool {
    let mut lines = list.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    list.starts_with(b"# git ls-files --others --exclude-from=") && lines.all(|line| line.is_empty() || line[0] == b'#')
}

/// For users of stock git on the store: without this, `git checkout` and `git add` would convert line endings.
const ATTRIBUTES: &str = "* -text !eol -crlf -ident !filter !working-tree-encoding\n";

/// Configuration of a new store. The `fsck` keys are there because users' files may hold what `git fsck` reports as an
/// attack on people who clone the repository. A store is never cloned, and the files must be kept as they are.
pub(super) const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
[user]
\temail = hermes@local
\tname = Hermes Checkpoint
[commit]
\tgpgsign = false
[tag]
\tgpgSign = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fsck]
\tgitmodulesUrl = ignore
\tgitmodulesName = ignore
\tgitmodulesPath = ignore
\tgitmodulesUpdate = ignore
\tgitmodulesParse = ignore
\tgitmodulesLarge = ignore
\tgitmodulesBlob = ignore
\tgitmodulesSymlink = ignore
\tgitignoreSymlink = ignore
\tgitattributesSymlink = ignore
\tgitattributesLarge = ignore
\tgitattributesLineLength = ignore
\tgitattributesBlob = ignore
\tmailmapSymlink = ignore
";

/// Returns the base as an absolute path without symbolic links, and creates it if it is missing. Fails with `Invalid`
/// if `base` is not absolute.
pub(super) fn absolute_base(base: &Path) -> Result<PathBuf> {
    if !base.is_absolute() {
        return Err(Error::new(ErrorKind::Invalid, "use as a base")
            .with_path(base)
            .because("it is not an absolute path")
            .with_hint("give the path from / on"));
    }
    fsx::ensure_dir(base)?;
    fsx::canonical(base)
}

/// Returns true if a store exists, created by piton or by stock git. Fails with `NotOurs` if it belongs to another
/// user.
pub(super) fn is_there(layout: &Layout) -> Result<bool> {
    for path in [layout.base(), layout.store()] {
        // Both a link and its target must belong to this user.
        for found in [fs::symlink_metadata(path), fs::metadata(path)] {
            match found {
                Ok(found) if sys::owner(&found) != sys::effective_uid() => return Err(not_ours(path)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(Error::io("open the store", path, error)),
            }
        }
    }
    Ok(fsx::metadata_opt(&layout.head())?.is_some()
        && fsx::metadata_opt(&layout.objects())?.is_some_and(|found| found.is_dir()))
}

/// Returns true if the store exists with all its pieces and other users cannot write to it.
fn is_whole(layout: &Layout) -> Result<bool> {
    let files = [layout.lock(wait::GATE), layout.config(), layout.exclude(), layout.attributes()];
    let is_dir = |dir: PathBuf| dir.symlink_metadata().is_ok_and(|found| found.is_dir());
    let is_link = |dir: PathBuf| dir.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let is_closed = |dir: &Path, bits: u32| dir.metadata().is_ok_and(|found| sys::mode(&found) & bits == 0);
    Ok(is_there(layout)?
        && is_closed(layout.base(), 0o077)
        && is_closed(layout.store(), 0o022)
        && layout.directories().all(is_dir)
        && !layout.directories_made_later().any(is_link)
        && files.iter().all(|file| file.symlink_metadata().is_ok()))
}

/// Fails with `NotOurs` if a directory in the store is a symbolic link: data written to it would end up elsewhere.
fn refuse_link(dir: &Path) -> Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(found) if !found.is_symlink() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::NotOurs, format!("use {}", dir.display()))
            .because("it is a link, and what is written there would be elsewhere")
            .with_hint("remove the link, or move what it leads to in its place")),
        Err(error) => Err(Error::io("look at", dir, error)),
    }
}

fn not_ours(path: &Path) -> Error {
    Error::new(ErrorKind::NotOurs, format!("use {}", path.display()))
        .because("it belongs to another user")
        .with_hint(Hint::UseOwnBase)
}

/// Creates the store, or the pieces of it that are missing.
pub(super) fn ensure(layout: &Layout, now: Moment) -> Result<()> {
    if is_whole(layout)? {
        return Ok(());
    }
    let _locked = wait::lock_base(layout.base(), "the making of the store")?;
    if is_whole(layout)? {
        return Ok(());
    }
    refuse_foreign_directory(layout, "make a store in")?;
    make_base_private(layout)?;
    let half_made = fsx::metadata_opt(layout.store())?.is_some();
    fsx::ensure_dir(layout.store())?;
    if fsx::metadata_opt(&layout.head())?.is_none() {
        move_old_layout_aside(layout, now, half_made)?;
    }
    // Temporary files of a process that was killed here. All other processes wait for the lock.
    fsx::remove_beginning_with(fsx::TEMP_PREFIX, &layout.info())?;
    fill_in(layout)?;
    // Starts the interval to the first prune: a new store holds nothing to prune.
    let mark = layout.last_prune();
    if !half_made && fsx::metadata_opt(&mark)?.is_none() {
        fsx::replace(&mark, now.as_secs_f64().to_string().as_bytes(), Durability::Rebuildable)?;
    }
    Ok(())
}

/// Creates the base if it is missing, for data that is kept beside the store. Refuses the same directories as
/// [`ensure`].
pub(crate) fn claim_base(base: &Path) -> Result<()> {
    let layout = Layout::new(absolute_base(base)?);
    if !is_there(&layout)? {
        refuse_foreign_directory(&layout, "keep session records in")?;
    }
    make_base_private(&layout)
}

fn make_base_private(layout: &Layout) -> Result<()> {
    let base = layout.base();
    let found = fs::metadata(base).map_err(|error| Error::io("look at", base, error))?;
    if sys::mode(&found) == 0o700 {
        return Ok(());
    }
    fs::set_permissions(base, sys::permissions(0o700)).map_err(|error| Error::io("make private", base, error))
}

/// Creates the pieces that a store made by stock git lacks, before the first command that writes. Permissions of
/// existing files do not change.
pub(super) fn ensure_lockable(layout: &Layout) -> Result<()> {
    if fsx::exists(&layout.lock(wait::GATE))? || !is_there(layout)? {
        return Ok(());
    }
    let _locked = wait::lock_base(layout.base(), "the making of the store")?;
    make_missing(layout)
}

/// Creates every missing piece, and makes the store accessible to its owner only.
pub(super) fn fill_in(layout: &Layout) -> Result<()> {
    make_missing(layout)?;
    make_private(layout.store())
}

fn make_missing(layout: &Layout) -> Result<()> {
    for dir in layout.directories() {
        fsx::ensure_dir(&dir)?;
        refuse_link(&dir)?;
    }
    layout.directories_made_later().try_for_each(|dir| refuse_link(&dir))?;
    let attributes = ATTRIBUTES.to_owned();
    let pieces = [
        (layout.config(), CONFIG.to_owned()),
        (layout.exclude(), exclude_list()),
        (layout.attributes(), attributes),
        (layout.head(), "ref: refs/heads/master\n".to_owned()),
    ];
    for (path, text) in pieces {
        if fsx::metadata_opt(&path)?.is_none() {
            fsx::replace(&path, text.as_bytes(), Durability::Synced)?;
        }
    }
    let list = fsx::read_small(&layout.exclude(), EXCLUDE_BYTES_MAX)?;
    if list.is_some_and(|list| is_template_of_git(&list)) {
        fsx::replace(&layout.exclude(), exclude_list().as_bytes(), Durability::Synced)?;
    }
    for name in [wait::GC, wait::STORE, wait::GATE] {
        let path = layout.lock(name);
        sys::open_lock(&path).map_err(|error| Error::io("make", &path, error))?;
    }
    Ok(())
}

/// Removes the access of group and others from a directory and everything below it: the permissions of a store that
/// stock git made depend on the umask. Files that git made read-only stay read-only.
fn make_private(dir: &Path) -> Result<()> {
    for name in fsx::names_in(dir)? {
        let path = dir.join(name);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            // A collection by stock git removes objects and their directories.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("look at", &path, error)),
        };
        let mode = sys::mode(&found);
        if !found.is_symlink() && mode & 0o077 != 0 {
            set_private(&path, mode & 0o700)?;
        }
        if found.is_dir() {
            make_private(&path)?;
        }
    }
    set_private(dir, 0o700)
}

/// Sets the permission bits of a file or directory. Succeeds if it is missing, since stock git may be removing it.
fn set_private(path: &Path, mode: u32) -> Result<()> {
    match fs::set_permissions(path, sys::permissions(mode)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("make private", path, error)),
        _ => Ok(()),
    }
}

fn is_session_record(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_damaged = Layout::damaged_session_in(name).is_some();
    (path.extension() == Some(OsStr::new("yaml")) || is_damaged) && !path.is_dir()
}

/// Returns true for files that piton itself keeps in the base.
fn is_ours(base: &Path, name: &OsStr) -> Result<bool> {
    let bytes = name.as_encoded_bytes();
    if name == STORE {
        return is_a_store(&base.join(name));
    }
    Ok(name == LAST_PRUNE
        || name == CLEARING
        || name == LOCAL && !base.join(name).join("HEAD").exists()
        || bytes.starts_with(LEGACY_PREFIX.as_bytes())
        || bytes.starts_with(JOURNAL.as_bytes())
        || is_session_record(&base.join(name))
        // A temporary file of a process that was killed.
        || (bytes.starts_with(fsx::TEMP_PREFIX.as_bytes()) && !base.join(name).is_dir()))
}

/// Returns the names in the base: those of piton, and all others.
fn ours_and_others(base: &Path) -> Result<(Vec<OsString>, Vec<OsString>)> {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for name in fsx::names_in(base)? {
        if is_ours(base, &name)? { ours.push(name) } else { others.push(name) }
    }
    Ok((ours, others))
}

/// Returns true if a directory of this name can be a store, complete or not: every name in it is one that git or piton
/// uses.
pub(super) fn is_a_store(dir: &Path) -> Result<bool> {
    const NAMES: &[&str] = &[
        "HEAD",
        "config",
        "description",
        "hooks",
        "info",
        "objects",
        "refs",
        "branches",
        "packed-refs",
        "shallow",
        "logs",
        "indexes",
        "projects",
        "restores",
        "turns",
        "notices",
        "installs",
        "repairs",
        "locks",
        "size",
        "index",
        "gc.log",
        "gc.pid",
        "FETCH_HEAD",
        "ORIG_HEAD",
        "COMMIT_EDITMSG",
        LEGACY_WORKDIR,
        "worktrees",
        "modules",
        "config.worktree",
        "rr-cache",
    ];
    let is_known = |name: &OsString| {
        let bytes = name.as_encoded_bytes();
        let is_passing = bytes.starts_with(fsx::TEMP_PREFIX.as_bytes()) || bytes.ends_with(b".lock");
        is_passing || NAMES.iter().any(|known| name == known)
    };
    let is_dir = fsx::metadata_opt(dir)?.is_some_and(|found| found.is_dir());
    Ok(is_dir && fsx::names_in(dir)?.iter().all(is_known))
}

/// Returns true if a directory may be a repository of the older layout, under any name. A directory that holds one is a
/// base.
fn may_be_old_repository(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && (dir.join(LEGACY_WORKDIR).exists() || dir.join("objects").is_dir())
}

fn refuse_foreign_directory(layout: &Layout, action: &str) -> Result<()> {
    let base = layout.base();
    let (ours, others) = ours_and_others(base)?;
    let known =
        ours.iter().any(|name| *name == STORE) || others.iter().any(|name| may_be_old_repository(&base.join(name)));
    match others.first() {
        Some(stranger) if !known => Err(Error::new(ErrorKind::NotOurs, format!("{action} {}", base.display()))
            .because(format!("the directory holds other files ({})", stranger.display()))
            .with_hint(Hint::UseEmptyBase)),
        _ => Ok(()),
    }
}

/// Moves the repositories of the older layout, and all other foreign files, into one archive. An interrupted move
/// continues in the archive that it began.
fn move_old_layout_aside(layout: &Layout, now: Moment, half_made: bool) -> Result<()> {
    let base = layout.base();
    let (ours, others) = ours_and_others(base)?;
    if others.is_empty() {
        return Ok(());
    }
    let begun = ours.iter().rfind(|name| half_made && name.as_encoded_bytes().starts_with(LEGACY_PREFIX.as_bytes()));
    // An archive that holds the same name is an older one. The clock may also have been set back.
    let later = (0..).map(|secs| Moment { secs: now.secs.saturating_add(secs), ..now }.stamp());
    let mut archives = begun.cloned().into_iter().chain(later.map(|stamp| format!("{LEGACY_PREFIX}{stamp}").into()));
    let mut archive = base.join(archives.next().unwrap_or_default());
    while others.iter().map(|name| fsx::exists(&archive.join(name))).collect::<Result<Vec<_>>>()?.contains(&true) {
        archive = base.join(archives.next().unwrap_or_default());
    }
    fsx::ensure_dir(&archive)?;
    for name in &others {
        let (from, to) = (base.join(name), archive.join(name));
        fs::rename(&from, &to).map_err(|error| Error::io("move aside", &from, error))?;
    }
    fsx::sync_dir(&archive)?;
    fsx::sync_dir(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_there_if_it_has_its_head_and_its_objects() {
        let temp = tempfile::tempdir().expect("a directory");
        let now = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
        let layout = Layout::new(fsx::canonical(temp.path()).expect("a path").join("base"));
        super::super::Store::open_or_create(layout.base(), now).expect("a store");
        assert!(is_there(&layout).expect("an answer"));
        for piece in [layout.head(), layout.objects()] {
            let away = temp.path().join("away");
            fs::rename(&piece, &away).expect("a piece");
            assert!(!is_there(&layout).expect("an answer"), "{}", piece.display());
            fs::rename(&away, &piece).expect("a piece");
        }
    }
}
