//! Files, directories and links in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, RenameFlags};

use super::quirk::{Quirk, Quirks};

/// Names in a directory, with number and kind of the node.
pub(super) type Listing = Vec<(OsString, u64, FileType)>;

/// Permission bits and owner of a new node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

#[derive(Debug)]
pub(super) enum Contents {
    File(Vec<u8>),
    /// Entries by key: the stored name and the number of the node.
    Dir(BTreeMap<Vec<u8>, (OsString, u64)>),
    Link(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) contents: Contents,
    pub(super) owner: Owner,
    pub(super) mtime: SystemTime,
    pub(super) ctime: SystemTime,
    links: u32,
}

/// All nodes of a file system. A node without a name stays, since a process may have it open.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: HashMap<u64, Node>,
    last: u64,
    quirks: Quirks,
}

impl Nodes {
    pub(super) fn new(quirks: Quirks, owner: Owner) -> Self {
        let mut nodes = Self { nodes: HashMap::new(), last: 0, quirks };
        nodes.insert(Contents::Dir(BTreeMap::new()), owner);
        nodes
    }

    /// Returns the time now, in the steps that this file system has.
    pub(super) fn now(&self) -> SystemTime {
        self.time(SystemTime::now())
    }

    pub(super) fn time(&self, time: SystemTime) -> SystemTime {
        let secs = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.quirks.has(Quirk::CoarseTimes) { UNIX_EPOCH + Duration::from_secs(secs & !1) } else { time }
    }

    fn insert(&mut self, contents: Contents, owner: Owner) -> u64 {
        let now = self.now();
        self.last += 1;
        self.nodes.insert(self.last, Node { contents, owner, mtime: now, ctime: now, links: 1 });
        self.last
    }

    pub(super) fn get(&self, ino: u64) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::ENOENT)
    }

    /// Returns a node that is about to change.
    pub(super) fn change(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        let now = self.now();
        let node = self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)?;
        node.ctime = now;
        Ok(node)
    }

    pub(super) fn bytes(&mut self, ino: u64) -> Result<&mut Vec<u8>, Errno> {
        let now = self.now();
        let node = self.change(ino)?;
        node.mtime = now;
        match &mut node.contents {
            Contents::File(bytes) => Ok(bytes),
            Contents::Dir(_) | Contents::Link(_) => Err(Errno::EINVAL),
        }
    }

    fn entries(&self, dir: u64) -> Result<&BTreeMap<Vec<u8>, (OsString, u64)>, Errno> {
        match &self.get(dir)?.contents {
            Contents::Dir(entries) => Ok(entries),
            Contents::File(_) | Contents::Link(_) => Err(Errno::ENOTDIR),
        }
    }

    fn change_entries(&mut self, dir: u64) -> Result<&mut BTreeMap<Vec<u8>, (OsString, u64)>, Errno> {
        let now = self.now();
        let node = self.change(dir)?;
        node.mtime = now;
        match &mut node.contents {
            Contents::Dir(entries) => Ok(entries),
            Contents::File(_) | Contents::Link(_) => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn lookup(&self, dir: u64, name: &OsStr) -> Result<u64, Errno> {
        Ok(self.entries(dir)?.get(&self.quirks.key(name)).ok_or(Errno::ENOENT)?.1)
    }

    /// Adds a name for a node.
    fn name(&mut self, dir: u64, name: &OsStr, ino: u64) -> Result<(), Errno> {
        let stored = self.quirks.stored(name).ok_or(Errno::EILSEQ)?;
        let key = self.quirks.key(name);
        self.change_entries(dir)?.insert(key, (stored, ino));
        Ok(())
    }

    /// Creates a node with a name that is free.
    pub(super) fn make(&mut self, dir: u64, name: &OsStr, contents: Contents, owner: Owner) -> Result<u64, Errno> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.lookup(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.quirks.stored(name).ok_or(Errno::EILSEQ)?;
        let ino = self.insert(contents, owner);
        self.name(dir, name, ino)?;
        Ok(ino)
    }

    /// Adds a hard link.
    pub(super) fn link(&mut self, ino: u64, dir: u64, name: &OsStr) -> Result<(), Errno> {
        if self.lookup(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.name(dir, name, ino)?;
        self.change(ino)?.links += 1;
        Ok(())
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, dir: u64, name: &OsStr, is_dir: bool) -> Result<(), Errno> {
        let ino = self.lookup(dir, name)?;
        match &self.get(ino)?.contents {
            Contents::Dir(_) if !is_dir => return Err(Errno::EISDIR),
            Contents::Dir(entries) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            Contents::File(_) | Contents::Link(_) if is_dir => return Err(Errno::ENOTDIR),
            _ => {}
        }
        let key = self.quirks.key(name);
        self.change_entries(dir)?.remove(&key);
        self.change(ino)?.links -= 1;
        Ok(())
    }

    /// Renames as `renameat2`.
    pub(super) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), flags: RenameFlags) -> Result<(), Errno> {
        let (ino, over) = (self.lookup(from.0, from.1)?, self.lookup(to.0, to.1).ok());
        if self.quirks.has(Quirk::NoRename) {
            return Err(Errno::EPERM);
        }
        if !flags.is_empty() && self.quirks.has(Quirk::NoExchange) {
            return Err(Errno::EINVAL);
        }
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            let over = over.ok_or(Errno::ENOENT)?;
            self.name(from.0, from.1, over)?;
            self.name(to.0, to.1, ino)?;
            self.change(over)?;
        } else {
            match over {
                Some(_) if flags.contains(RenameFlags::RENAME_NOREPLACE) => return Err(Errno::EEXIST),
                Some(over) if over != ino => {
                    let is_dir = matches!(self.get(ino)?.contents, Contents::Dir(_));
                    self.remove(to.0, to.1, is_dir)?;
                }
                _ => {}
            }
            let key = self.quirks.key(from.1);
            self.change_entries(from.0)?.remove(&key);
            self.name(to.0, to.1, ino)?;
        }
        self.change(ino)?;
        Ok(())
    }

    /// Returns the names in a directory, with number and kind.
    pub(super) fn list(&self, dir: u64) -> Result<Listing, Errno> {
        let kind = |ino: u64| self.get(ino).map_or(FileType::RegularFile, Node::kind);
        Ok(self.entries(dir)?.values().map(|(name, ino)| (name.clone(), *ino, kind(*ino))).collect())
    }

    pub(super) fn attributes(&self, ino: u64) -> Result<FileAttr, Errno> {
        let node = self.get(ino)?;
        let size = match &node.contents {
            Contents::File(bytes) | Contents::Link(bytes) => bytes.len() as u64,
            Contents::Dir(_) => 0,
        };
        let perm = u16::try_from(node.owner.mode & 0o7777).expect("twelve bits");
        Ok(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(512),
            atime: node.mtime,
            mtime: node.mtime,
            ctime: node.ctime,
            crtime: node.ctime,
            kind: node.kind(),
            perm,
            nlink: node.links,
            uid: node.owner.uid,
            gid: node.owner.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Node {
    fn kind(&self) -> FileType {
        match self.contents {
            Contents::File(_) => FileType::RegularFile,
            Contents::Dir(_) => FileType::Directory,
            Contents::Link(_) => FileType::Symlink,
        }
    }
}
