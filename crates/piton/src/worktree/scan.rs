//! Scan of a project: lists every directory in scope and examines every file in it, on all cores.
//!
//! The scan reads no file but `.gitignore`. Files that are unchanged according to the cache have their ids; the caller
//! reads the others if it needs their contents.

mod from_cache;

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::cache::{CachedFile, DirInCache, StatCache, Vouched};
use super::manifest::{DirNode, FileNode, Manifest, Modes};
use super::scope::{Decision, DirectoryRules, RuleSets, RulesAfter, Scope};
use crate::progress::Progress;
use crate::relpath;
use crate::skipped::{SkipReason, Skipped};
use crate::sys::{self, Dir, Kind, Stat};
use crate::threads;

/// Input of a scan.
pub(crate) struct Scan<'a> {
    pub(crate) root: &'a Dir,
    pub(crate) scope: &'a Scope,
    /// Additional rules: everything in scope by these is in scope, too.
    pub(crate) rules_after: Option<&'a RulesAfter<'a>>,
    pub(crate) cache: &'a StatCache<'a>,
    /// Directories that are taken from the cache without listing them. `None` if all are listed.
    pub(crate) vouched: Option<&'a Vouched<'a>>,
    /// Size limit of files; larger ones are skipped.
    pub(crate) file_bytes_max: u64,
    /// Number of files above which the scan ends. `None` means no limit.
    pub(crate) files_max: Option<u64>,
    pub(crate) threads: usize,
    /// Counts the files in scope, and cancels the scan.
    pub(crate) progress: &'a Progress,
}

/// Result of a scan.
pub(crate) enum ScanEnd {
    Done {
        manifest: Manifest,
        skipped: Vec<Skipped>,
        /// True if the ignore rules leave out all or nearly all of the project.
        unprotected: bool,
        /// True if some files are known from the cache only, and changed shortly before they were read.
        has_young: bool,
    },
    TooManyFiles,
    Stopped,
}

/// Scans the project. Fails only if its own directory cannot be read, or if this process cannot open more files.
pub(crate) fn scan(scan: &Scan<'_>) -> io::Result<ScanEnd> {
    let first = Task {
        at: 0,
        path: Vec::new(),
        parent: None,
        judges: RuleSets { now: DirectoryRules::default(), after: scan.rules_after.map(|_| DirectoryRules::default()) },
        cached: scan.cache.entries().map(|_| 0),
        same_rules: scan.cache.has_rules(scan.scope.sum()),
    };
    let work = Work {
        scan,
        queue: Mutex::new(Queue { tasks: vec![first], unfinished: 1 }),
        changed: Condvar::new(),
        dirs: AtomicUsize::new(1),
        failed: AtomicBool::new(false),
    };
    let found = threads::together(scan.threads, |_| work.run());
    if scan.progress.is_cancelled() {
        return Ok(ScanEnd::Stopped);
    }
    if scan.files_max.is_some_and(|max| scan.progress.files_found.load(Ordering::Relaxed) > max) {
        return Ok(ScanEnd::TooManyFiles);
    }
    let mut skipped = Vec::new();
    let (mut unprotected, mut covered, mut has_young) = (false, false, false);
    let mut nodes: Vec<Option<DirNode>> = Vec::new();
    nodes.resize_with(work.dirs.into_inner(), || None);
    for found in found {
        if let Some(error) = found.fatal_error {
            return Err(error);
        }
        skipped.extend(found.skipped);
        unprotected |= found.unprotected;
        covered |= found.covered;
        has_young |= found.has_young;
        for (at, node) in found.nodes {
            nodes[at] = Some(node);
        }
    }
    let manifest = assemble(nodes);
    let is_ignored = |skipped: &Skipped| skipped.why == SkipReason::Ignored;
    let files = manifest.files();
    if files < FEW_FILES && scan.vouched.is_some() {
        // With so few files, the rules of every directory count.
        scan.progress.files_found.store(0, Ordering::Relaxed);
        return self::scan(&Scan { vouched: None, ..*scan });
    }
    unprotected |= (covered && files < FEW_FILES) || (files == 0 && skipped.iter().any(is_ignored));
    Ok(ScanEnd::Done { manifest, skipped, unprotected, has_young })
}

/// Renumbers the directories, without those that were gone or unreadable when they were listed.
fn assemble(nodes: Vec<Option<DirNode>>) -> Manifest {
    let mut numbers = 0..;
    let place: Vec<_> = nodes.iter().map(|node| node.as_ref().and_then(|_| numbers.next())).collect();
    // Reuses the memory, which may be megabytes.
    let mut dirs: Vec<_> = nodes.into_iter().flatten().collect();
    for dir in &mut dirs {
        dir.dirs.retain_mut(|below| {
            let place = place[*below];
            *below = place.unwrap_or_default();
            place.is_some()
        });
    }
    Manifest { dirs }
}

/// A project with fewer files in scope than this, and with a directory whose own rules cover all of it, is hardly
/// protected.
const FEW_FILES: u64 = 10;

/// Number of directories that stay open until their subdirectories were listed: opening those by name is half as much
/// work as by path. Each thread has one open at each depth.
const KEPT_OPEN_MAX: usize = 64;

/// Directory to be listed.
struct Task {
    at: usize,
    path: Vec<u8>,
    /// Parent directory, if it is still open.
    parent: Option<Arc<Dir>>,
    judges: RuleSets,
    cached: Option<usize>,
    same_rules: bool,
}

struct Queue {
    tasks: Vec<Task>,
    /// Number of tasks that are queued or being processed.
    unfinished: usize,
}

struct Work<'a> {
    scan: &'a Scan<'a>,
    queue: Mutex<Queue>,
    changed: Condvar,
    dirs: AtomicUsize,
    failed: AtomicBool,
}

/// Results of one thread.
#[derive(Default)]
struct ThreadResult {
    nodes: Vec<(usize, DirNode)>,
    skipped: Vec<Skipped>,
    unprotected: bool,
    /// True if the own rules of some directory leave out everything in it.
    covered: bool,
    has_young: bool,
    fatal_error: Option<io::Error>,
}

/// Buffers that are reused for each directory.
#[derive(Default)]
struct Scratch {
    buffer: Vec<MaybeUninit<u8>>,
    /// Names, each with a NUL after it.
    text: Vec<u8>,
    names: Vec<Name>,
    /// Stat result of each name, in listing order; not for directories.
    stats: Vec<StatResult>,
    path: Vec<u8>,
}

/// Result of a stat call on a name.
#[derive(Clone, Copy)]
enum StatResult {
    /// The name is a directory, or is gone.
    Skipped,
    Answered(Stat),
    /// The file exists, but stat failed: the directory may be readable and not searchable, for example.
    Refused,
}

#[derive(Clone, Copy)]
struct Name {
    /// Its first bytes, as a number that sorts as they do.
    prefix: u64,
    start: usize,
    length: usize,
    kind: Option<Kind>,
    /// Position in [`Scratch::stats`].
    place: usize,
}

impl Work<'_> {
    fn run(&self) -> ThreadResult {
        let mut found = ThreadResult::default();
        let mut scratch = Scratch::default();
        while let Some(task) = self.next() {
            let below = self.list(task, &mut found, &mut scratch);
            let mut queue = self.queue.lock().expect("no thread panics with the queue");
            queue.unfinished += below.len();
            queue.unfinished -= 1;
            let wake = below.len() > 1 || queue.unfinished == 0;
            // Depth first: children of the same directory are close to each other on disk and in the cache.
            queue.tasks.extend(below.into_iter().rev());
            drop(queue);
            if wake {
                self.changed.notify_all();
            }
        }
        // If the scan ended early, directories remain unfinished, and no other thread would wake those that wait for
        // them.
        self.changed.notify_all();
        found
    }

    fn next(&self) -> Option<Task> {
        let mut queue = self.queue.lock().expect("no thread panics with the queue");
        loop {
            if self.is_over() || queue.unfinished == 0 {
                return None;
            }
            match queue.tasks.pop() {
                Some(task) => return Some(task),
                None => queue = self.changed.wait(queue).expect("no thread panics with the queue"),
            }
        }
    }

    fn is_over(&self) -> bool {
        let too_many =
            self.scan.files_max.is_some_and(|max| self.scan.progress.files_found.load(Ordering::Relaxed) > max);
        too_many || self.scan.progress.is_cancelled() || self.failed.load(Ordering::Relaxed)
    }

    /// Lists one directory. Returns its subdirectories that are in scope.
    fn list(&self, task: Task, found: &mut ThreadResult, scratch: &mut Scratch) -> Vec<Task> {
        if let Some(below) = self.take_from_cache(&task, found) {
            return below;
        }
        let opened = match &task.parent {
            Some(parent) => parent.open_dir(relpath::split(&task.path).1),
            None => self.scan.root.open_dir(&task.path),
        };
        let opened = opened.and_then(|dir| {
            scratch.read_names(&dir)?;
            Ok((dir.stat()?, Arc::new(dir)))
        });
        let (stat, dir) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.give_up(task, error, found);
                return Vec::new();
            }
        };
        let cached = self.scan.cache.entries().zip(task.cached).map(|(entries, at)| entries.dir(at));
        let listing = Listing::begin(self, &dir, &task, cached, scratch);
        let is_named = || self.scan.scope.is_named_outside(&task.path);
        let exceptional = task.judges.within().is_some() && !is_named();
        let node = DirNode {
            path: task.path.into(),
            mode: stat.mode,
            ctime: stat.ctime,
            mtime: stat.mtime,
            files: Vec::new(),
            names: Vec::new(),
            dirs: Vec::new(),
            cached: task.cached,
            same_files: false,
            modes: Modes::default(),
            hidden_rules: None,
            exceptional,
        };
        listing.run(task.at, node, found, scratch)
    }

    fn give_up(&self, task: Task, error: io::Error, found: &mut ThreadResult) {
        if task.at == 0 || sys::is_exhausted(&error) {
            found.fatal_error = Some(error);
            self.failed.store(true, Ordering::Relaxed);
            self.changed.notify_all();
        } else if error.kind() != io::ErrorKind::NotFound {
            found.skipped.push(Skipped::dir(task.path, SkipReason::Unreadable));
        }
    }
}

/// Returns the first eight bytes of a name as a number. Names hold no NUL byte, so a shorter name sorts first.
fn prefix(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(8);
    bytes[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(bytes)
}

impl Scratch {
    /// Reads the names in a directory and stats each. The kernel has them at hand in the order in which it lists them:
    /// any other order takes half as long again.
    fn read_names(&mut self, dir: &Dir) -> io::Result<()> {
        let Self { buffer, text, names, stats, .. } = self;
        text.clear();
        names.clear();
        stats.clear();
        dir.for_each(buffer, |name, kind| {
            names.push(Name { prefix: prefix(name), start: text.len(), length: name.len(), kind, place: names.len() });
            text.extend_from_slice(name);
            text.push(0);
        })?;
        for name in names.iter_mut() {
            let asked = match name.kind {
                Some(Kind::Dir) => StatResult::Skipped,
                _ => match dir.stat_at(name_in(text, *name)) {
                    Ok(stat) => StatResult::Answered(stat),
                    Err(error) if sys::is_gone(&error) => StatResult::Skipped,
                    Err(_) => StatResult::Refused,
                },
            };
            if let StatResult::Answered(stat) = asked {
                name.kind = name.kind.or(Some(stat.kind));
            }
            stats.push(asked);
        }
        let whole = |name: &Name| &text[name.start..name.start + name.length];
        names.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| whole(a).cmp(whole(b))));
        Ok(())
    }

    fn has_gitignore(&self) -> bool {
        let is_it = |name: &Name| &self.text[name.start..name.start + name.length] == b".gitignore";
        self.names.iter().any(|name| is_it(name) && is_rules_file(name.kind))
    }
}

fn name_in(text: &[u8], name: Name) -> &CStr {
    CStr::from_bytes_with_nul(&text[name.start..=name.start + name.length]).expect("a name and its NUL")
}

/// Returns true if the entry can be a rules file. Git does not follow a link for rules either.
fn is_rules_file(kind: Option<Kind>) -> bool {
    matches!(kind, Some(Kind::File) | None)
}

/// Listing of one directory.
struct Listing<'a> {
    work: &'a Work<'a>,
    dir: &'a Arc<Dir>,
    cached: Option<DirInCache<'a>>,
    judges: RuleSets,
    same_rules: bool,
}

impl<'a> Listing<'a> {
    fn begin(
        work: &'a Work<'a>,
        dir: &'a Arc<Dir>,
        task: &Task,
        cached: Option<DirInCache<'a>>,
        scratch: &Scratch,
    ) -> Self {
        let has_gitignore = scratch.has_gitignore();
        let judges = task.judges.enter(&task.path, has_gitignore, work.scan.rules_after);
        let known = cached.and_then(|cached| cached.file(b".gitignore"));
        let has_rules = |stat: Option<&Stat>| {
            let entry = known.as_ref().map(|known| &known.entry);
            work.scan.cache.has_same_rules(&task.path, entry, stat)
        };
        let is_same = task.same_rules
            && match has_gitignore {
                false => has_rules(None),
                true => dir.stat_at(c".gitignore").is_ok_and(|stat| has_rules(Some(&stat))),
            };
        // Exceptions depend on what git tracks: evaluate them each time.
        let same_rules = is_same && task.judges.now.within.is_none();
        Self { work, dir, cached, judges, same_rules }
    }

    fn run(self, at: usize, mut node: DirNode, found: &mut ThreadResult, scratch: &mut Scratch) -> Vec<Task> {
        let mut below = Vec::new();
        let mut cached_files = self.cached.into_iter().flat_map(DirInCache::files).peekable();
        node.files.reserve_exact(scratch.names.len());
        let mut agreeing = 0;
        let mut top = Top::default();
        let has_own_rules = scratch.has_gitignore();
        scratch.path.clear();
        scratch.path.extend_from_slice(&node.path);
        if !node.path.is_empty() {
            scratch.path.push(b'/');
        }
        let prefix_bytes = scratch.path.len();
        for place in 0..scratch.names.len() {
            let name = scratch.names[place];
            scratch.path.truncate(prefix_bytes);
            scratch.path.extend_from_slice(&scratch.text[name.start..name.start + name.length]);
            let bytes = &scratch.path[prefix_bytes..];
            while cached_files.next_if(|cached| cached.name < bytes).is_some() {}
            let cached = cached_files.next_if(|cached| cached.name == bytes);
            let (kind, asked) = (name.kind, scratch.stats[name.place]);
            let name = name_in(&scratch.text, name);
            let is_dir = kind == Some(Kind::Dir);
            let is_known = self.same_rules && cached.is_some() && !is_dir;
            let (decision, judges) =
                if is_known { (Decision::In, RuleSets::default()) } else { self.decide(&scratch.path, is_dir) };
            top.count(bytes, decision);
            match decision {
                Decision::Out(why) => {
                    if bytes == b".gitignore" && is_rules_file(kind) {
                        node.hidden_rules = if let StatResult::Answered(stat) = asked { Some(stat) } else { None };
                    }
                    found.skipped.push(left_out(&scratch.path, is_dir, why));
                }
                Decision::In | Decision::OnlyExceptions(_) if is_dir => {
                    let task = self.task_for(&scratch.path, bytes, judges);
                    node.dirs.push(task.at);
                    below.push(task);
                }
                _ => match self.file(name, asked, cached.as_ref(), &scratch.path) {
                    Ok(mut file) => {
                        file.name = node.keep_name(name.to_bytes());
                        agreeing += usize::from(file.id.is_some());
                        found.has_young |= file.id.is_some() && self.work.scan.cache.is_young(&file.stat);
                        node.modes.count(&file.stat);
                        node.files.push(file);
                    }
                    Err(skipped) => found.skipped.extend(skipped),
                },
            }
        }
        let cached_count = self.cached.map_or(0, DirInCache::len);
        node.same_files = self.cached.is_some() && agreeing == cached_count && agreeing == node.files.len();
        self.work.scan.progress.files_found.fetch_add(node.files.len() as u64, Ordering::Relaxed);
        found.covered |= has_own_rules && top.in_scope == 0 && top.left_out > 0;
        if at == 0 {
            found.unprotected = top.is_unprotected(|| {
                self.work.scan.scope.leaves_out_everything(self.judges.now.rules.as_deref(), self.work.scan.root)
            });
        }
        found.nodes.push((at, node));
        below
    }

    fn decide(&self, path: &[u8], is_dir: bool) -> (Decision, RuleSets) {
        let scan = self.work.scan;
        self.judges.decide(scan.scope, path, is_dir, scan.root)
    }

    fn task_for(&self, path: &[u8], name: &[u8], judges: RuleSets) -> Task {
        let depth = path.iter().filter(|byte| **byte == b'/').count();
        Task {
            at: self.work.dirs.fetch_add(1, Ordering::Relaxed),
            path: path.to_vec(),
            parent: (depth < KEPT_OPEN_MAX / self.work.scan.threads).then(|| Arc::clone(self.dir)),
            judges,
            cached: self.cached.and_then(|cached| cached.dir(name)),
            same_rules: self.same_rules,
        }
    }

    /// Returns one file or link, or the reason why it is skipped. Fails with `None` if it is gone or became a directory
    /// meanwhile.
    fn file(
        &self,
        name: &CStr,
        asked: StatResult,
        cached: Option<&CachedFile<'_>>,
        path: &[u8],
    ) -> Result<FileNode, Option<Skipped>> {
        let skipped = |why| Err(Some(Skipped::file(path.to_vec(), why)));
        let stat = match asked {
            StatResult::Answered(stat) => stat,
            StatResult::Skipped => return Err(None),
            StatResult::Refused => return skipped(SkipReason::Unreadable),
        };
        match stat.kind {
            Kind::Dir => return Err(None),
            Kind::Special => return skipped(SkipReason::Special),
            Kind::File if stat.size > self.work.scan.file_bytes_max => {
                return skipped(SkipReason::TooLarge);
            }
            Kind::File | Kind::Link => {}
        }
        let id = cached.and_then(|cached| self.work.scan.cache.trusted_id(&cached.entry, &stat));
        let mut target = None;
        if stat.kind == Kind::Link && id.is_none() {
            match self.dir.read_link(name) {
                Ok(read) => target = Some(read.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(None),
                Err(_) => return skipped(SkipReason::Unreadable),
            }
        }
        let may_be_known = id.is_none() && cached.is_some_and(|cached| cached.entry.has_size_of(&stat));
        Ok(FileNode { name: 0..0, stat, id, target, may_be_known })
    }
}

fn left_out(path: &[u8], is_dir: bool, why: SkipReason) -> Skipped {
    if is_dir { Skipped::dir(path.to_vec(), why) } else { Skipped::file(path.to_vec(), why) }
}

/// Effect of the rules on one directory.
#[derive(Default)]
struct Top {
    in_scope: usize,
    left_out: usize,
}

impl Top {
    fn count(&mut self, name: &[u8], decision: Decision) {
        match decision {
            Decision::Out(SkipReason::Ignored) | Decision::OnlyExceptions(SkipReason::Ignored) => self.left_out += 1,
            // The files with the rules are not the user's work.
            Decision::In if !name.starts_with(b".git") => self.in_scope += 1,
            _ => {}
        }
    }

    /// Returns true if the rules ignore names at the top of the project and leave nothing else in scope, or leave less
    /// in scope than they ignore and would ignore any new name. Such rules protect only the names that they list.
    fn is_unprotected(&self, leaves_out_everything: impl FnOnce() -> bool) -> bool {
        self.left_out > 0 && (self.in_scope == 0 || (self.left_out > self.in_scope && leaves_out_everything()))
    }
}

/// Counts the files in a directory that was not entered, until there are `max`. Follows no links, and skips unreadable
/// directories.
pub(crate) fn count_files(root: &Dir, path: &[u8], max: u64) -> u64 {
    let mut buffer = Vec::new();
    let mut files = 0;
    let mut open = vec![path.to_vec()];
    while let Some(path) = open.pop() {
        let Ok(dir) = root.open_dir(&path) else { continue };
        let _ = dir.for_each(&mut buffer, |name, kind| match kind {
            Some(Kind::Dir) => open.push(relpath::join(&path, name)),
            _ => files += 1,
        });
        if files >= max {
            break;
        }
    }
    files
}
