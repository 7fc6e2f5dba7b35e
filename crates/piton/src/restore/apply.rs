//! Applies a restore plan, path by path, on all cores. A path that fails is left as it is and reported; the others are
//! still restored.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::kept::KeptDone;
use super::left::{Left, WhyLeft};
use super::plan::{Remove, RestorePlan, Write};
use crate::error::{Error, Result, plain_io};
use crate::hint::Hint;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::progress::Progress;
use crate::relpath;
use crate::store::Objects;
use crate::sys::{self, Dir};
use crate::threads;
use crate::worktree::{ChangeResult, NewContents, SeenFile, WorktreeWriter};

/// Larger contents are streamed from the store to the file.
const IN_MEMORY_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of bytes of verified contents that are kept in memory until they are written.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Contents that were read and verified.
#[derive(Default)]
pub(super) struct VerifiedContents {
    /// The contents that are kept in memory.
    kept: HashMap<ObjectId, Vec<u8>>,
    kept_bytes: usize,
    /// The contents that are streamed and never in memory as a whole.
    large: HashSet<ObjectId>,
    /// Total size of all files that get these contents.
    bytes: u64,
}

/// Result of applying a plan.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) written: Vec<Vec<u8>>,
    pub(super) removed: Vec<Vec<u8>>,
    pub(super) modes_changed: usize,
    pub(super) made_dirs: Vec<Vec<u8>>,
    pub(super) removed_dirs: Vec<Vec<u8>>,
    pub(super) moved_aside: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) left: Vec<Left>,
}

/// Runs `work` on every item, on all cores; each thread has its own `worker`, which it passes to `end`.
fn for_all<T: Sync, W>(
    items: &[T],
    worker: impl Fn(usize) -> W + Sync,
    work: impl Fn(&mut W, &T) + Sync,
    end: impl Fn(W) + Sync,
) {
    let next = AtomicUsize::new(0);
    let run = |number| {
        let mut own = worker(number);
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut own, item);
        }
        end(own);
    };
    threads::together(threads::cores().min(items.len().div_ceil(4)), run);
}

/// Reads and verifies all contents that the plan will write. Keeps up to `KEPT_BYTES_MAX` of them in memory. Fails if
/// any are missing or corrupt.
pub(super) fn read_all(plan: &RestorePlan, objects: &Objects, progress: &Progress) -> Result<VerifiedContents> {
    let mut files: HashMap<ObjectId, u64> = HashMap::new();
    let written = plan.writes.iter().map(|write| write.id);
    let copied = plan.modes.iter().filter_map(|set| set.linked()).map(|seen| seen.id);
    written.chain(copied).for_each(|id| *files.entry(id).or_default() += 1);
    let mut ids: Vec<_> = files.keys().copied().collect();
    ids.sort_unstable();
    add(&progress.contents_to_check, ids.len() as u64);
    let contents: Mutex<VerifiedContents> = Mutex::default();
    let failed: Mutex<Option<Error>> = Mutex::default();
    let shared = objects.shared();
    for_all(
        &ids,
        |_| shared.objects(),
        |objects, id| match check_blob(objects, *id) {
            Ok(blob) => {
                let mut contents = contents.lock().expect("no thread panics with it");
                contents.take_in(*id, blob, files[id]);
                add(&progress.contents_checked, 1);
            }
            Err(error) => *failed.lock().expect("no thread panics with it") = Some(error),
        },
        drop,
    );
    match failed.into_inner().expect("no thread panics with it") {
        Some(error) => Err(error),
        None => Ok(contents.into_inner().expect("no thread panics with it")),
    }
}

/// Verifies the objects that the safety checkpoint shares with earlier ones. Its new objects were just written, but
/// those that the store already had may have become corrupt, and then the files are the only place that still has the
/// contents.
pub(super) fn check_saved(plan: &RestorePlan, objects: &Objects, progress: &Progress) -> Result<()> {
    let known: Vec<_> = plan.saved.iter().filter(|(_, id)| objects.has(*id)).copied().collect();
    add(&progress.contents_to_check, known.len() as u64);
    let failed: Mutex<Option<Error>> = Mutex::default();
    let shared = objects.shared();
    for_all(
        &known,
        |_| shared.objects(),
        |objects, (kind, id)| {
            let checked = match kind {
                ObjectKind::Blob => check_blob(objects, *id).map(drop),
                _ => read_whole(objects, *id, *kind).map(drop),
            };
            if let Err(error) = checked {
                *failed.lock().expect("no thread panics with it") = Some(error);
            }
            add(&progress.contents_checked, 1);
        },
        drop,
    );
    failed.into_inner().expect("no thread panics with it").map_or(Ok(()), Err)
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl VerifiedContents {
    /// Records contents that `files` files will get, and keeps them in memory while there is room.
    fn take_in(&mut self, id: ObjectId, blob: Blob, files: u64) {
        match blob {
            Blob::InMemory(bytes) => {
                self.bytes += bytes.len() as u64 * files;
                if self.kept_bytes + bytes.len() <= KEPT_BYTES_MAX {
                    self.kept_bytes += bytes.len();
                    self.kept.insert(id, bytes);
                }
            }
            Blob::Large(size) => {
                self.bytes += size * files;
                self.large.insert(id);
            }
        }
    }
}

/// Verified contents of a file.
enum Blob {
    InMemory(Vec<u8>),
    /// Too large to be kept in memory; the size in bytes.
    Large(u64),
}

/// Reads contents from beginning to end. Fails if they do not match their id.
fn check_blob(objects: &Objects, id: ObjectId) -> Result<Blob> {
    let size = objects.blob_size(id)?;
    if size <= IN_MEMORY_BYTES_MAX {
        return read_whole(objects, id, ObjectKind::Blob).map(Blob::InMemory);
    }
    objects.stream_blob(id, &mut |_| true).map_err(nothing_touched)?;
    Ok(Blob::Large(size))
}

fn nothing_touched(error: Error) -> Error {
    error.with_hint(Hint::Repair.nothing_touched())
}

/// Streams large contents from the store to a file. They are verified against their id once more.
fn write_stream(objects: &Objects, id: ObjectId, file: &mut File) -> io::Result<u64> {
    let (mut failed, mut written) = (None, 0);
    let streamed = objects.stream_blob(id, &mut |bytes| match file.write_all(bytes) {
        Ok(()) => {
            written += bytes.len() as u64;
            true
        }
        Err(error) => {
            failed = Some(error);
            false
        }
    });
    match failed {
        Some(error) => Err(error),
        None => streamed.map(|()| written).map_err(io::Error::other),
    }
}

fn read_whole(objects: &Objects, id: ObjectId, kind: ObjectKind) -> Result<Vec<u8>> {
    let bytes = objects.read(id, kind)?;
    if IdHasher::of(kind, &bytes) != Ok(id) {
        return Err(Error::damaged(format!("use the contents {id}"), "they are not as they were written")
            .with_hint(Hint::Repair.nothing_touched()));
    }
    Ok(bytes)
}

/// Applies the plan. `token` is part of the names of its temporary files.
pub(super) fn apply(
    plan: RestorePlan,
    contents: &VerifiedContents,
    objects: &Objects,
    root: &Dir,
    token: &str,
    progress: &Progress,
) -> Done {
    add(&progress.files_to_write, plan.writes.len() as u64);
    add(&progress.bytes_to_write, contents.bytes);
    let mut hand = WorktreeWriter::new(root, format!("{token}-m"));
    let mut done = Done { left: plan.left, ..Done::default() };
    for (path, seen) in &plan.leftovers {
        let swept = if let Some(seen) = seen { hand.remove(path, seen) } else { hand.sweep(path) };
        done.note(path, swept, WhyLeft::Changed);
    }
    for (path, name) in plan.asides {
        if done.note_failure(&path, hand.move_aside(&path, &name)).is_some() {
            done.moved_aside.push((path, name));
        }
    }
    for Remove { path, seen } in plan.removes {
        let removed = hand.remove(&path, &seen);
        if done.note(&path, removed, WhyLeft::Changed) {
            done.removed.push(path);
        }
    }
    drop_dirs(plan.drop_dirs, &mut hand, &mut done);
    // Comes after `drop_dirs`, so that a directory in the way of one of these is gone.
    for (path, name) in plan.backs {
        done.note_failure(&path, hand.move_aside(&path, &name));
    }
    let mut made = Vec::new();
    for (path, mode) in plan.make_dirs {
        match hand.make_dir(&path) {
            Ok(Some(ChangeResult::Made)) => made.push((path, mode)),
            Ok(None) => {}
            Ok(Some(ChangeResult::Left)) => done.left.push(Left { path, why: WhyLeft::InTheWay }),
            Err(error) => done.left.push(failed(&path, &error)),
        }
    }
    let writing = Writing { contents, root, token, progress };
    writing.write_all(&plan.writes, objects, &mut done);
    for set in plan.modes {
        let changed = match set.linked() {
            Some(seen) => writing.write(&set.path, seen.id, Some(set.mode), Some(seen), objects, &mut hand),
            None => hand.set_mode(&set.path, set.mode, set.seen.as_ref().map(|seen| &seen.stat)),
        };
        done.modes_changed += usize::from(done.note(&set.path, changed, WhyLeft::Changed));
    }
    for (path, mode) in made.iter().rev() {
        let set = hand.set_mode(path, *mode, None);
        done.note(path, set, WhyLeft::Changed);
    }
    done.made_dirs = made.into_iter().map(|(path, _)| path).collect();
    if let Err(error) = hand.finish() {
        done.left.push(failed(b"", &error));
    }
    done.left.sort_by(|a, b| a.path.cmp(&b.path));
    done
}

fn drop_dirs(dirs: Vec<Vec<u8>>, hand: &mut WorktreeWriter<'_>, done: &mut Done) {
    for path in dirs {
        match hand.remove_dir(&path) {
            Ok(ChangeResult::Made) => done.removed_dirs.push(path),
            // A directory that is not empty stays, rightly: its contents are out of scope.
            Ok(ChangeResult::Left) => {}
            Err(error) if sys::is_gone(&error) => {}
            Err(error) => done.left.push(failed(&path, &error)),
        }
    }
}

/// The inputs that all writes share.
struct Writing<'a> {
    contents: &'a VerifiedContents,
    root: &'a Dir,
    token: &'a str,
    progress: &'a Progress,
}

impl Writing<'_> {
    /// Writes all files, grouped by directory so that each directory is opened once.
    fn write_all(&self, writes: &[Write], objects: &Objects, done: &mut Done) {
        let by_dir: Vec<&[Write]> =
            writes.chunk_by(|a, b| relpath::split(&a.path).0 == relpath::split(&b.path).0).collect();
        let all: Mutex<&mut Done> = Mutex::new(done);
        let shared = objects.shared();
        for_all(
            &by_dir,
            |number| {
                (shared.objects(), WorktreeWriter::new(self.root, format!("{}-{number}", self.token)), Done::default())
            },
            |(objects, hand, done), writes| {
                for write in *writes {
                    let why = if write.over.is_some() { WhyLeft::Changed } else { WhyLeft::InTheWay };
                    let put = self.write(&write.path, write.id, write.mode, write.over.as_ref(), objects, hand);
                    if done.note(&write.path, put, why) {
                        done.written.push(write.path.clone());
                    }
                    add(&self.progress.files_written, 1);
                }
            },
            |(_, hand, mut done)| {
                if let Err(error) = hand.finish() {
                    done.left.push(failed(b"", &error));
                }
                let mut all = all.lock().expect("no thread panics with it");
                all.written.append(&mut done.written);
                all.left.append(&mut done.left);
            },
        );
        done.written.sort();
    }

    /// Writes one file, or a symbolic link if `mode` is `None`.
    fn write(
        &self,
        path: &[u8],
        id: ObjectId,
        mode: Option<u16>,
        over: Option<&SeenFile>,
        objects: &Objects,
        hand: &mut WorktreeWriter<'_>,
    ) -> io::Result<ChangeResult> {
        if let Some(mode) = mode.filter(|_| self.contents.large.contains(&id)) {
            let mut written = 0;
            let mut stream = |file: &mut File| {
                written = write_stream(objects, id, file)?;
                Ok(())
            };
            let put = hand.put(path, NewContents::Streamed(&mut stream, mode), id, over);
            add(&self.progress.bytes_written, written);
            return put;
        }
        let read;
        let bytes = match self.contents.kept.get(&id) {
            Some(bytes) => bytes,
            None => {
                read = read_whole(objects, id, ObjectKind::Blob).map_err(io::Error::other)?;
                &read
            }
        };
        let new = match mode {
            Some(mode) => NewContents::File(bytes, mode),
            None => NewContents::Link(bytes),
        };
        let put = hand.put(path, new, id, over);
        add(&self.progress.bytes_written, bytes.len() as u64);
        put
    }
}

fn failed(path: &[u8], error: &io::Error) -> Left {
    let why = if sys::is_gone(error) { WhyLeft::InTheWay } else { WhyLeft::Failed(plain_io(error)) };
    Left { path: path.to_vec(), why }
}

impl Done {
    /// Adds the result for kept files.
    pub(super) fn add(&mut self, kept: &KeptDone) {
        self.written.extend(kept.written.iter().cloned());
        self.written.sort();
        self.removed.extend(kept.removed.iter().cloned());
        self.left.extend(kept.left.iter().cloned());
        self.left.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Returns true if the change was made; otherwise records the reason why not.
    fn note(&mut self, path: &[u8], change: io::Result<ChangeResult>, why_left: WhyLeft) -> bool {
        match change {
            Ok(ChangeResult::Made) => return true,
            Ok(ChangeResult::Left) => self.left.push(Left { path: path.to_vec(), why: why_left }),
            Err(error) => self.left.push(failed(path, &error)),
        }
        false
    }

    fn note_failure<T>(&mut self, path: &[u8], result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.left.push(failed(path, &error))).ok()
    }
}
