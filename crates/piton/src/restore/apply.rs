//! Doing what a plan says, path by path, on all cores. What does not work is left and reported; the rest goes on.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::left::{Left, WhyLeft};
use super::plan::{Remove, RestorePlan, SetMode, Write};
use crate::error::{Error, Result, plain_io};
use crate::id::{CheckpointId, IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::store::Objects;
use crate::sys::{self, Dir};
use crate::take::Progress;
use crate::threads;
use crate::worktree::{Change, Hand, NewContents};

/// How much of what will be written is kept in memory from the time when it was checked.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Contents that were read and found whole.
#[derive(Default)]
pub(super) struct Contents {
    /// Some of them.
    kept: HashMap<ObjectId, Vec<u8>>,
    kept_bytes: usize,
    /// What all files that they are for come to.
    bytes: u64,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) written: Vec<Vec<u8>>,
    pub(super) removed: Vec<Vec<u8>>,
    pub(super) remoded: usize,
    pub(super) made_dirs: Vec<Vec<u8>>,
    pub(super) removed_dirs: Vec<Vec<u8>>,
    pub(super) moved_aside: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) left: Vec<Left>,
}

/// Runs `work` on every item, on all cores; each thread has its own `worker`.
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

/// Reads everything that the plan will write, and checks it. The first part of it is kept.
pub(super) fn read_all(plan: &RestorePlan, objects: &Objects, progress: &Progress) -> Result<Contents> {
    let mut files: HashMap<ObjectId, u64> = HashMap::new();
    plan.writes.iter().for_each(|write| *files.entry(write.id).or_default() += 1);
    let mut ids: Vec<_> = files.keys().copied().collect();
    ids.sort_unstable();
    add(&progress.contents_to_check, ids.len() as u64);
    let contents: Mutex<Contents> = Mutex::default();
    let failed: Mutex<Option<Error>> = Mutex::default();
    let shared = objects.shared();
    for_all(
        &ids,
        |_| shared.objects(),
        |objects, id| match read_one(objects, *id) {
            Ok(bytes) => {
                let mut contents = contents.lock().expect("no thread panics with it");
                contents.bytes += bytes.len() as u64 * files[id];
                if contents.kept_bytes + bytes.len() <= KEPT_BYTES_MAX {
                    contents.kept_bytes += bytes.len();
                    contents.kept.insert(*id, bytes);
                }
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

/// Checks that what the safety checkpoint shares with earlier ones is whole: what is new in it was just written, but
/// what the store had before may have been damaged since, and then the files are the only place that still has it.
pub(super) fn check_saved(plan: &RestorePlan, objects: &Objects, progress: &Progress) -> Result<()> {
    let known: Vec<_> = plan.saved.iter().filter(|(_, id)| objects.has(*id)).copied().collect();
    add(&progress.contents_to_check, known.len() as u64);
    let failed: Mutex<Option<Error>> = Mutex::default();
    let shared = objects.shared();
    for_all(
        &known,
        |_| shared.objects(),
        |objects, (kind, id)| {
            if let Err(error) = read_whole(objects, *id, *kind) {
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

fn read_one(objects: &Objects, id: ObjectId) -> Result<Vec<u8>> {
    read_whole(objects, id, ObjectKind::Blob)
}

fn read_whole(objects: &Objects, id: ObjectId, kind: ObjectKind) -> Result<Vec<u8>> {
    let bytes = objects.read(id, kind)?;
    if IdHasher::of(kind, &bytes) != Ok(id) {
        return Err(Error::damaged(format!("use the contents {id}"), "they are not as they were written")
            .with_hint("nothing was touched; `piton verify` shows what else is damaged, `piton repair` mends it"));
    }
    Ok(bytes)
}

/// Does what the plan says. `token` makes the names of temporary files differ from those of other restores.
pub(super) fn apply(
    plan: RestorePlan,
    contents: &Contents,
    objects: &Objects,
    root: &Dir,
    token: CheckpointId,
    progress: &Progress,
) -> Done {
    add(&progress.files_to_write, plan.writes.len() as u64);
    add(&progress.bytes_to_write, contents.bytes);
    let token = token.short();
    let mut hand = Hand::new(root, format!("{token}-m"));
    let mut done = Done { left: plan.left, ..Done::default() };
    for path in &plan.leftovers {
        done.note_failure(path, hand.sweep(path));
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
    for path in &plan.drop_dirs {
        match hand.remove_dir(path) {
            Ok(Change::Made) => done.removed_dirs.push(path.clone()),
            // One that still holds something stays, and that is right: what it holds is out of scope.
            Ok(Change::Left) => {}
            Err(error) if sys::is_gone(&error) => {}
            Err(error) => done.left.push(failed(path, &error)),
        }
    }
    // A directory that made way for one of these is gone by now.
    for (path, name) in plan.backs {
        done.note_failure(&path, hand.move_aside(&path, &name));
    }
    let mut made = Vec::new();
    for (path, mode) in plan.make_dirs {
        match hand.make_dir(&path) {
            Ok(Some(Change::Made)) => made.push((path, mode)),
            Ok(None) => {}
            Ok(Some(Change::Left)) => done.left.push(Left { path, why: WhyLeft::InTheWay }),
            Err(error) => done.left.push(failed(&path, &error)),
        }
    }
    let writing = Writing { contents, root, token: &token, progress };
    writing.write_all(&plan.writes, objects, &mut done);
    for SetMode { path, mode, seen } in plan.modes {
        let set = hand.set_mode(&path, mode, seen.as_ref());
        done.remoded += usize::from(done.note(&path, set, WhyLeft::Changed));
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

/// What writing needs.
struct Writing<'a> {
    contents: &'a Contents,
    root: &'a Dir,
    token: &'a str,
    progress: &'a Progress,
}

impl Writing<'_> {
    /// Writes go by directories, so that each is opened once.
    fn write_all(&self, writes: &[Write], objects: &Objects, done: &mut Done) {
        let by_dir: Vec<&[Write]> =
            writes.chunk_by(|a, b| relpath::split(&a.path).0 == relpath::split(&b.path).0).collect();
        let all: Mutex<&mut Done> = Mutex::new(done);
        let shared = objects.shared();
        for_all(
            &by_dir,
            |number| (shared.objects(), Hand::new(self.root, format!("{}-{number}", self.token)), Done::default()),
            |(objects, hand, done), writes| {
                for write in *writes {
                    let why = if write.over.is_some() { WhyLeft::Changed } else { WhyLeft::InTheWay };
                    let put = self.write_one(write, objects, hand);
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

    fn write_one(&self, write: &Write, objects: &Objects, hand: &mut Hand<'_>) -> io::Result<Change> {
        let read;
        let bytes = match self.contents.kept.get(&write.id) {
            Some(bytes) => bytes,
            None => {
                read = read_one(objects, write.id).map_err(io::Error::other)?;
                &read
            }
        };
        let new = match write.mode {
            Some(mode) => NewContents::File(bytes, mode),
            None => NewContents::Link(bytes),
        };
        let put = hand.put(&write.path, new, write.over.as_ref());
        add(&self.progress.bytes_written, bytes.len() as u64);
        put
    }
}

fn failed(path: &[u8], error: &io::Error) -> Left {
    let why = if sys::is_gone(error) { WhyLeft::InTheWay } else { WhyLeft::Failed(plain_io(error)) };
    Left { path: path.to_vec(), why }
}

impl Done {
    /// Whether the change was made; notes why not.
    fn note(&mut self, path: &[u8], change: io::Result<Change>, why_left: WhyLeft) -> bool {
        match change {
            Ok(Change::Made) => return true,
            Ok(Change::Left) => self.left.push(Left { path: path.to_vec(), why: why_left }),
            Err(error) => self.left.push(failed(path, &error)),
        }
        false
    }

    fn note_failure<T>(&mut self, path: &[u8], result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.left.push(failed(path, &error))).ok()
    }
}
