//! Lower bound: reads every directory of a tree and stats every entry, with two threads and nothing else.
//!
//! No ignore rules, no order, no output except a count. Every scan of a tree has to do at least this much.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io;

const THREADS: usize = 2;
const BUFFER_BYTES: usize = 32 * 1024;

/// A directory to be read, named relative to its open parent so that no path is resolved from the root again.
struct Pending {
    parent: Arc<OwnedFd>,
    name: CString,
}

#[derive(Default)]
struct State {
    /// Last in, first out, which keeps few parents open: those with waiting children, about the depth of the tree.
    waiting: Vec<Pending>,
    busy: usize,
    idle: usize,
    entries: u64,
    failed: Option<io::Errno>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// Returns the number of entries below `root`, without following symlinks.
pub(crate) fn walk(root: &Path) -> Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root_fd = openat(CWD, root, flags, Mode::empty()).with_context(|| format!("cannot open {}", root.display()))?;
    let queue = Queue::default();
    queue.lock().waiting.push(Pending { parent: Arc::new(root_fd), name: c".".to_owned() });
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| work(&queue));
        }
        work(&queue);
    });
    let state = queue.lock();
    match state.failed {
        Some(errno) => Err(errno).with_context(|| format!("cannot walk {}", root.display())),
        None => Ok(state.entries),
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the queue")
    }

    /// Blocks while the queue is empty but another thread may still add to it. Returns `None` once the walk is
    /// complete.
    fn next(&self) -> Option<Pending> {
        let mut state = self.lock();
        loop {
            if let Some(pending) = state.waiting.pop() {
                state.busy += 1;
                return Some(pending);
            }
            if state.busy == 0 {
                self.changed.notify_all();
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).expect("no thread panics while it holds the queue");
            state.idle -= 1;
        }
    }

    fn done(&self, entries: u64, children: &mut Vec<Pending>, failed: Option<io::Errno>) {
        let mut state = self.lock();
        state.entries += entries;
        state.waiting.append(children);
        state.failed = state.failed.or(failed);
        state.busy -= 1;
        // Waking costs a system call, and most of the time no thread sleeps.
        if state.idle > 0 {
            self.changed.notify_all();
        }
    }
}

fn work(queue: &Queue) {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut children = Vec::new();
    while let Some(pending) = queue.next() {
        let mut entries = 0;
        let result = read(&pending, &mut buffer, &mut children, &mut entries);
        queue.done(entries, &mut children, result.err());
    }
}

fn read(
    pending: &Pending,
    buffer: &mut [MaybeUninit<u8>],
    children: &mut Vec<Pending>,
    entries: &mut u64,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = Arc::new(openat(&pending.parent, &*pending.name, flags, Mode::empty())?);
    let mut listing = RawDir::new(&directory, buffer);
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        *entries += 1;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            children.push(Pending { parent: Arc::clone(&directory), name: name.to_owned() });
        }
    }
    Ok(())
}
