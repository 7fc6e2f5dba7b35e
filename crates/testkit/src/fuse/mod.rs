//! A file system in memory, mounted through FUSE, that lacks what poorer file systems lack: names fold as on macOS,
//! locks fail as on a network share. Kernels for servers often come without such file systems.
//!
//! One difference from macOS: Linux looks up both names of a rename itself, so that a rename to the same name in other
//! case does nothing.

mod nodes;
mod quirk;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use self::nodes::{Contents, Listing, Nodes, Owner};
pub use self::quirk::Quirk;
use self::quirk::Quirks;

/// The kernel asks each time: another spelling of a name may have changed the node.
const TTL: Duration = Duration::ZERO;
/// Free room that is reported, in blocks of 4096 bytes.
const FREE_BLOCKS: u64 = 1 << 20;

/// A mounted file system. It is unmounted when dropped.
pub struct FuseMount {
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl FuseMount {
    /// Mounts a new file system on a directory. Returns `None`, and says so, if that is not permitted here.
    pub fn new(dir: &Path, quirks: &[Quirk]) -> Option<Self> {
        std::fs::create_dir_all(dir).expect("a directory for the file system");
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("quirks".to_owned()), MountOption::DefaultPermissions];
        match fuser::spawn_mount(QuirkyFs::new(dir, quirks), dir, &config) {
            Ok(session) => Some(Self { dir: dir.to_owned(), session: Some(session) }),
            Err(error) => {
                assert!(std::env::var_os("PITON_TEST_ALL").is_none(), "FUSE cannot be mounted: {error}");
                crate::note_skipped(&format!("FUSE cannot be mounted: {error}"));
                None
            }
        }
    }

    /// Returns the directory on which it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        // Detached first: a process that was killed a moment ago may still have a file open.
        let _ = crate::clean_command("umount").arg("-l").arg(&self.dir).output();
        drop(self.session.take());
    }
}

struct QuirkyFs {
    nodes: Mutex<Nodes>,
    /// Listings of open directories.
    listings: Mutex<HashMap<u64, Listing>>,
    quirks: Quirks,
}

impl QuirkyFs {
    fn new(dir: &Path, quirks: &[Quirk]) -> Self {
        let quirks = Quirks(quirks.to_vec());
        let (uid, gid) = dir.metadata().map_or((0, 0), |found| (found.uid(), found.gid()));
        let nodes = Nodes::new(quirks.clone(), Owner { mode: 0o755, uid, gid });
        Self { nodes: Mutex::new(nodes), listings: Mutex::default(), quirks }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().expect("no thread panics with it")
    }

    fn make(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        contents: Contents,
        mode: u32,
    ) -> Result<fuser::FileAttr, Errno> {
        let mut nodes = self.nodes();
        let mode = match contents {
            Contents::File(_) if self.quirks.has(Quirk::NoModes) => 0o644,
            Contents::Dir(_) if self.quirks.has(Quirk::NoModes) => 0o755,
            _ => mode,
        };
        let ino = nodes.make(dir.0, name, contents, Owner { mode, uid: req.uid(), gid: req.gid() })?;
        nodes.attributes(ino)
    }
}

fn answer(reply: ReplyEntry, made: Result<fuser::FileAttr, Errno>) {
    match made {
        Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn done(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for QuirkyFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without this flag, the kernel has the locks.
        if self.quirks.has(Quirk::NoLocks) || self.quirks.has(Quirk::IdleLocks) {
            let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let nodes = self.nodes();
        answer(reply, nodes.lookup(parent.0, name).and_then(|ino| nodes.attributes(ino)));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let attributes = self.nodes().attributes(ino.0);
        match attributes {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() && self.quirks.has(Quirk::NoModes) {
            return reply.error(Errno::EPERM);
        }
        let mut nodes = self.nodes();
        let mtime = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => nodes.time(time),
            TimeOrNow::Now => nodes.now(),
        });
        let changed = (|| {
            if let Some(size) = size {
                nodes.bytes(ino.0)?.resize(usize::try_from(size).map_err(|_| Errno::EFBIG)?, 0);
            }
            let node = nodes.change(ino.0)?;
            node.owner.mode = mode.unwrap_or(node.owner.mode);
            node.owner.uid = uid.unwrap_or(node.owner.uid);
            node.owner.gid = gid.unwrap_or(node.owner.gid);
            node.mtime = mtime.unwrap_or(node.mtime);
            nodes.attributes(ino.0)
        })();
        match changed {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.nodes().get(ino.0).map(|node| &node.contents) {
            Ok(Contents::Link(target)) => reply.data(target),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        answer(reply, self.make(req, parent, name, Contents::Dir(BTreeMap::new()), mode & !umask));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.nodes().remove(parent.0, name, false));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.nodes().remove(parent.0, name, true));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        if self.quirks.has(Quirk::NoLinks) {
            return reply.error(Errno::EPERM);
        }
        let target = target.as_os_str().as_bytes().to_vec();
        answer(reply, self.make(req, parent, name, Contents::Link(target), 0o777));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        done(reply, self.nodes().rename((parent.0, name), (newparent.0, newname), flags));
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let mut nodes = self.nodes();
        answer(reply, nodes.link(ino.0, newparent.0, newname).and_then(|()| nodes.attributes(ino.0)));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(req, parent, name, Contents::File(Vec::new()), mode & !umask) {
            Ok(attributes) => reply.created(&TTL, &attributes, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.nodes().get(ino.0).map(|node| &node.contents) {
            Ok(Contents::File(bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(size as usize).min(bytes.len());
                reply.data(&bytes[start..end]);
            }
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (mut nodes, size) = (self.nodes(), u32::try_from(data.len()).expect("the kernel writes less at once"));
        let written = nodes.bytes(ino.0).and_then(|bytes| {
            let start = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
            bytes.resize(bytes.len().max(start + data.len()), 0);
            bytes[start..start + data.len()].copy_from_slice(data);
            if self.quirks.has(Quirk::TextMode) {
                *bytes = String::from_utf8_lossy(bytes).replace("\r\n", "\n").into_bytes();
            }
            Ok(())
        });
        match written {
            Ok(()) => reply.written(size),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, if self.quirks.has(Quirk::NoSync) { Err(Errno::EIO) } else { Ok(()) });
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, if self.quirks.has(Quirk::NoSync) { Err(Errno::EIO) } else { Ok(()) });
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let listing = self.nodes().list(ino.0);
        match listing {
            Ok(listing) => {
                let mut listings = self.listings.lock().expect("no thread panics with it");
                let handle = (0..).find(|handle| !listings.contains_key(handle)).expect("a free number");
                listings.insert(handle, listing);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut listings = self.listings.lock().expect("no thread panics with it");
        if offset == 0
            && let Ok(listing) = self.nodes().list(ino.0)
        {
            // From its beginning: a directory that was rewound shows what has changed.
            listings.insert(fh.0, listing);
        }
        let dots = [".", ".."].map(|name| (OsString::from(name), ino.0, FileType::Directory));
        let all = dots.iter().chain(listings.get(&fh.0).into_iter().flatten()).zip(1..);
        for ((name, ino, kind), next) in all.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(INodeNo(*ino), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.listings.lock().expect("no thread panics with it").remove(&fh.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(2 * FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn setlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        done(reply, if self.quirks.has(Quirk::NoLocks) { Err(Errno::ENOLCK) } else { Ok(()) });
    }
}
