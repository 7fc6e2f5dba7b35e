//! Finds local files: small files that the scope leaves out and that no program can make again.
//!
//! The scan begins with what the scan of the project skipped, so that a project without ignored files costs nothing.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::io::{self, Read as _};
use std::sync::OnceLock;

use piton_ignore::Patterns;

use super::cache::{CachedDirs, StatCache};
use super::manifest::{DirNode, FileNode, Manifest};
use super::regenerated::is_regenerated_or_versions;
use super::scope::{Scope, is_secret, matches_or_around};
use crate::id::ObjectId;
use crate::progress::Progress;
use crate::relpath;
use crate::skipped::{Extent, SkipReason, Skipped};
use crate::sys::{self, Dir, Kind, Stat};

/// Names of files that commonly hold secrets, besides `.env`.
const SECRETS: &[&str] = &[
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    "credentials",
    "credentials.*",
    "secrets",
    "secrets.*",
    "secret.*",
    "*.secret",
    "*.secrets",
    "service-account*.json",
    "*.tfvars",
    "*.ovpn",
    ".aws/",
    ".ssh/",
    ".gnupg/",
];

/// Files that mark the directory that they are in as one that a program makes again.
const MARKERS: [&[u8]; 2] = [b"CACHEDIR.TAG", b"pyvenv.cfg"];

/// Suffixes of the files that belong to an SQLite database. The last one is memory that connections share, and is made
/// again.
const WITH_DATABASE: [&[u8]; 3] = [b"-wal", b"-journal", b"-shm"];

/// First bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Number of files of a state.
const FILES_MAX: usize = 20_000;
/// Number of names that are examined, so that a large directory does not take long.
const NAMES_MAX: usize = 100_000;
/// Number of files that are named as too large.
const TOO_LARGE_MAX: usize = 100;

/// Limits on local files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalLimits {
    pub(crate) file_bytes_max: u64,
    pub(crate) total_bytes_max: u64,
    pub(crate) with_secrets: bool,
}

/// Local files that were found.
#[derive(Debug, Default)]
pub(crate) struct LocalScan {
    /// The files, with the ids that the cache has.
    pub(crate) manifest: Manifest,
    /// Files above the size limit, by path; not all if there are many.
    pub(crate) too_large: Vec<Vec<u8>>,
    /// Files and directories that cannot be read.
    pub(crate) unread: Vec<Vec<u8>>,
    /// True if there are more files than the limits allow, or if the scan was cancelled.
    pub(crate) is_cut: bool,
    /// True if some files are known from the cache only, and changed shortly before they were read.
    pub(crate) has_young: bool,
}

/// Returns true if a skipped path may lead to local files. The others are skipped for a reason that applies here as well.
fn is_out_of_scope(why: SkipReason) -> bool {
    matches!(why, SkipReason::Ignored | SkipReason::Excluded | SkipReason::Secret)
}

/// Returns true if a scan for local files may find any.
pub(crate) fn has_local_candidates(skipped: &[Skipped]) -> bool {
    skipped.iter().any(|skipped| {
        is_out_of_scope(skipped.why) && !is_regenerated_or_versions(&skipped.path, skipped.extent != Extent::File)
    })
}

/// Returns true if the name of a path, or of a directory around it, is one that commonly holds secrets.
pub(crate) fn holds_secrets(path: &[u8], is_dir: bool) -> bool {
    static PATTERNS: OnceLock<Patterns> = OnceLock::new();
    let patterns = PATTERNS.get_or_init(|| Patterns::parse(SECRETS.join("\n").as_bytes()));
    is_secret(relpath::split(path).1) || matches_or_around(patterns, path, is_dir)
}

/// Finds the local files of a project, given what its scan skipped. Those in directories near the top come first.
pub(crate) fn scan_local(
    root: &Dir,
    scope: &Scope,
    skipped: &[Skipped],
    cache: &StatCache<'_>,
    limits: LocalLimits,
    progress: &Progress,
) -> LocalScan {
    let mut search = LocalSearch {
        root,
        scope,
        limits,
        progress,
        files: BTreeMap::new(),
        bytes: 0,
        names: 0,
        scan: LocalScan::default(),
    };
    let mut dirs: Vec<&Skipped> = Vec::new();
    for skipped in skipped.iter().filter(|skipped| is_out_of_scope(skipped.why)) {
        match skipped.extent {
            Extent::File => search.look_at(&skipped.path),
            _ => dirs.push(skipped),
        }
    }
    dirs.sort_by_key(|dir| dir.path.iter().filter(|byte| **byte == b'/').count());
    search.walk(dirs.into_iter().map(|dir| dir.path.clone()).collect());
    let LocalSearch { mut files, mut scan, .. } = search;
    leave_out_broken_sets(&mut files, &mut scan.too_large);
    let (manifest, has_young) = assemble(root, files, cache, &mut scan.unread);
    (scan.manifest, scan.has_young) = (manifest, has_young);
    scan
}

/// A scan in progress.
struct LocalSearch<'a> {
    root: &'a Dir,
    scope: &'a Scope,
    limits: LocalLimits,
    progress: &'a Progress,
    files: BTreeMap<Vec<u8>, Stat>,
    bytes: u64,
    names: usize,
    scan: LocalScan,
}

impl LocalSearch<'_> {
    fn is_wanted(&self, path: &[u8], is_dir: bool) -> bool {
        let name = relpath::split(path).1;
        let is_kept = !is_regenerated_or_versions(path, is_dir) || self.scope.is_included_by_user(path, is_dir);
        is_kept
            && relpath::is_allowed(name)
            && !self.scope.is_base(path)
            && !self.scope.is_excluded_by_user(path, is_dir)
            && !self.scope.covers_outside(path)
            && (is_dir || !self.scope.is_temporary(name))
            && (self.limits.with_secrets || !holds_secrets(path, is_dir))
    }

    fn is_over(&mut self) -> bool {
        let is_over = self.files.len() >= FILES_MAX || self.names >= NAMES_MAX || self.progress.is_cancelled();
        self.scan.is_cut |= is_over;
        is_over
    }

    fn look_at(&mut self, path: &[u8]) {
        if self.is_over() || !self.is_wanted(path, false) {
            return;
        }
        self.names += 1;
        match super::inspect::stat_path(self.root, path) {
            Ok(stat) => self.add(path.to_vec(), stat),
            Err(error) => self.note_unread(path, &error),
        }
    }

    fn note_unread(&mut self, path: &[u8], error: &io::Error) {
        if !sys::is_gone(error) && self.scan.unread.len() < TOO_LARGE_MAX {
            self.scan.unread.push(path.to_vec());
        }
    }

    fn add(&mut self, path: Vec<u8>, stat: Stat) {
        match stat.kind {
            Kind::Dir | Kind::Special => return,
            Kind::File | Kind::Link => {}
        }
        if stat.kind == Kind::File && stat.size > self.limits.file_bytes_max {
            if self.scan.too_large.len() < TOO_LARGE_MAX {
                self.scan.too_large.push(path);
            }
        } else if self.bytes.saturating_add(stat.size) > self.limits.total_bytes_max {
            self.scan.is_cut = true;
        } else {
            self.bytes += stat.size;
            self.files.insert(path, stat);
        }
    }

    /// Enters directories, breadth first.
    fn walk(&mut self, mut open: VecDeque<Vec<u8>>) {
        let mut buffer = Vec::new();
        while let Some(path) = open.pop_front() {
            if !self.is_wanted(&path, true) {
                continue;
            }
            if self.is_over() {
                return;
            }
            let mut names = Vec::new();
            let mut is_marked = false;
            let listed = self.root.open_dir(&path).and_then(|dir| {
                dir.for_each(&mut buffer, |name, kind| {
                    is_marked |= MARKERS.contains(&name);
                    names.push((name.to_vec(), kind));
                })?;
                Ok(dir)
            });
            match listed {
                Err(error) => self.note_unread(&path, &error),
                Ok(_) if is_marked && !self.scope.is_included_by_user(&path, true) => {}
                Ok(dir) => {
                    names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                    self.look_into(&path, &dir, names, &mut open);
                }
            }
        }
    }

    /// Examines the names in a directory, and adds its subdirectories to those to be entered.
    fn look_into(&mut self, path: &[u8], dir: &Dir, names: Vec<(Vec<u8>, Option<Kind>)>, open: &mut VecDeque<Vec<u8>>) {
        for (name, kind) in names {
            let below = relpath::join(path, &name);
            self.names += 1;
            if kind == Some(Kind::Dir) {
                open.push_back(below);
                continue;
            }
            if self.is_over() {
                return;
            }
            if !self.is_wanted(&below, false) {
                continue;
            }
            match CString::new(name).map_err(io::Error::from).and_then(|name| dir.stat_at(&name)) {
                // File systems that do not tell the kind of a name.
                Ok(stat) if stat.kind == Kind::Dir => open.push_back(below),
                Ok(stat) => self.add(below, stat),
                Err(error) => self.note_unread(&below, &error),
            }
        }
    }
}

/// Returns the path of the database that a file belongs to, judging by its name.
pub(crate) fn database_of(path: &[u8]) -> Option<&[u8]> {
    WITH_DATABASE.iter().find_map(|suffix| path.strip_suffix(*suffix)).filter(|path| !path.ends_with(b"/"))
}

/// Returns true if a file begins as every SQLite database does.
pub(crate) fn is_database(root: &Dir, path: &[u8]) -> bool {
    let mut begin = [0; MAGIC.len()];
    root.open_file(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *MAGIC
}

/// Returns the paths of the files that belong to a database, itself first, without the shared memory.
pub(crate) fn database_set(path: &[u8]) -> [Vec<u8>; 3] {
    [path.to_vec(), [path, WITH_DATABASE[0]].concat(), [path, WITH_DATABASE[1]].concat()]
}

/// Removes shared memory, and the rest of databases of which a file is too large: a log without its database is of no
/// use.
fn leave_out_broken_sets(files: &mut BTreeMap<Vec<u8>, Stat>, too_large: &mut Vec<Vec<u8>>) {
    let shared: Vec<_> = files.keys().filter(|path| path.ends_with(WITH_DATABASE[2])).cloned().collect();
    for path in shared {
        if database_of(&path).is_some_and(|database| files.contains_key(database)) {
            files.remove(&path);
        }
    }
    let large: Vec<_> = too_large.clone();
    for path in large {
        let database = database_of(&path).unwrap_or(&path).to_vec();
        for other in database_set(&database) {
            if files.remove(&other).is_some() {
                too_large.push(other);
            }
        }
    }
}

/// Returns the manifest of these files, and true if some of them are young. Adds those in directories that cannot be opened
/// to `unread`.
fn assemble(
    root: &Dir,
    files: BTreeMap<Vec<u8>, Stat>,
    cache: &StatCache<'_>,
    unread: &mut Vec<Vec<u8>>,
) -> (Manifest, bool) {
    let mut manifest = Manifest { dirs: vec![DirNode { cached: cache.entries().map(|_| 0), ..DirNode::default() }] };
    let mut places: BTreeMap<Vec<u8>, usize> = BTreeMap::from([(Vec::new(), 0)]);
    let mut has_young = false;
    for (path, stat) in files {
        let (dir, name) = relpath::split(&path);
        let Some(at) = enter(root, dir, &mut manifest, &mut places, cache.entries()) else {
            unread.push(path);
            continue;
        };
        let node = &mut manifest.dirs[at];
        let cached = cache.entries().zip(node.cached).and_then(|(entries, at)| entries.dir(at).file(name));
        let id = cached.as_ref().and_then(|cached| cache.trusted_id(&cached.entry, &stat));
        let may_be_known = id.is_none() && cached.is_some_and(|cached| cached.entry.has_size_of(&stat));
        has_young |= id.is_some() && cache.is_young(&stat);
        let name = node.keep_name(name);
        node.files.push(FileNode { name, stat, id, target: None, may_be_known });
    }
    for dir in &mut manifest.dirs {
        let (mut files, names) = (std::mem::take(&mut dir.files), &dir.names);
        let name = |file: &FileNode| &names[file.name.start as usize..file.name.end as usize];
        files.sort_by(|a, b| name(a).cmp(name(b)));
        let known = files.iter().filter(|file| file.id.is_some()).count();
        let cached = cache.entries().zip(dir.cached).map(|(entries, at)| entries.dir(at).len());
        dir.same_files = cached == Some(known) && known == files.len();
        dir.files = files;
    }
    let names: Vec<_> = manifest.dirs.iter().map(|dir| dir.name().to_vec()).collect();
    manifest.dirs.iter_mut().for_each(|dir| dir.dirs.sort_by(|a, b| names[*a].cmp(&names[*b])));
    (manifest, has_young)
}

/// Returns the position of a directory in the manifest, and adds it and those around it.
fn enter(
    root: &Dir,
    dir: &[u8],
    manifest: &mut Manifest,
    places: &mut BTreeMap<Vec<u8>, usize>,
    cached: Option<&CachedDirs<'_>>,
) -> Option<usize> {
    // Starts at the outermost unknown directory, without recursion, because a path may be long.
    let unknown = std::iter::successors(Some(dir), |dir| Some(relpath::split(dir).0));
    let unknown: Vec<_> = unknown.take_while(|dir| !places.contains_key(*dir)).collect();
    for dir in unknown.into_iter().rev() {
        let (around, name) = relpath::split(dir);
        let parent = places[around];
        let stat = root.open_dir(dir).and_then(|dir| dir.stat()).ok()?;
        let at = manifest.dirs.len();
        let in_cache = cached.zip(manifest.dirs[parent].cached);
        let in_cache = in_cache.and_then(|(cached, parent)| cached.dir(parent).dir(name));
        manifest.dirs[parent].dirs.push(at);
        let (mode, ctime, mtime) = (stat.mode, stat.ctime, stat.mtime);
        manifest.dirs.push(DirNode { path: dir.into(), mode, ctime, mtime, cached: in_cache, ..DirNode::default() });
        places.insert(dir.to_vec(), at);
    }
    places.get(dir).copied()
}

/// A path, and what was read there; `None` if nothing is.
pub(crate) type FileReading = (Vec<u8>, Option<(Stat, ObjectId)>);

impl Manifest {
    /// Returns every file with its path.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = (Vec<u8>, &FileNode)> {
        self.dirs.iter().flat_map(|dir| dir.files.iter().map(|file| (dir.path_of(file), file)))
    }

    /// Replaces the files with these paths by what was read of them, or removes those that are gone. Files in
    /// directories that the manifest does not have are ignored.
    pub(crate) fn replace_files(&mut self, files: &[FileReading]) {
        for (path, read) in files {
            let (dir, name) = relpath::split(path);
            let Some(dir) = self.dirs.iter_mut().find(|node| *node.path == *dir) else { continue };
            dir.same_files = false;
            let at = dir
                .files
                .binary_search_by(|file| dir.names[file.name.start as usize..file.name.end as usize].cmp(name));
            match (at, read) {
                (Ok(at), Some((stat, id))) => (dir.files[at].stat, dir.files[at].id) = (*stat, Some(*id)),
                (Ok(at), None) => drop(dir.files.remove(at)),
                (Err(at), Some((stat, id))) => {
                    let name = dir.keep_name(name);
                    let (stat, id, target, may_be_known) = (*stat, Some(*id), None, false);
                    dir.files.insert(at, FileNode { name, stat, id, target, may_be_known });
                }
                (Err(_), None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_the_names_beside_it() {
        assert_eq!(database_of(b"a/x.db-wal"), Some(&b"a/x.db"[..]));
        assert_eq!(database_of(b"a/x.db"), None);
        assert_eq!(database_of(b"a/-wal"), None, "no name is left");
        assert_eq!(database_set(b"x")[1..], [b"x-wal".to_vec(), b"x-journal".to_vec()]);
    }
}
