//! Attribution of the lines of one file as it is now.

use super::log::PeriodJson;
use super::{Period, Timeline};
use crate::blame::{FileVersion, attribute, renamed_from};
use crate::diff::{TEXT_BYTES_MAX, is_text, split_lines};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::History;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::json::{AtPath, JsonPath};
use crate::merge::{Entry, Tree};
use crate::project::Project;
use crate::settings::Settings;
use crate::store::{EntryMode, Objects, Store, TreeWalk};
use crate::survey::scope_by_rules;
use crate::sys::{Kind, is_gone};
use crate::worktree::{Scope, ScopePreview, read_path, stat_path};

/// Lines of a file with their authors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileBlame {
    /// Path of the file.
    pub path: Vec<u8>,
    /// Lines, in order.
    pub lines: Vec<BlameLine>,
    /// Periods in which the lines were written.
    pub periods: Vec<Period>,
}

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlameLine {
    /// Text, without the line end.
    pub text: Vec<u8>,
    /// Index of the period in which it was written, in [`FileBlame::periods`].
    pub period: usize,
}

/// JSON of a [`FileBlame`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FileBlameJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// lines of the file
    lines: Vec<LineJson<'a>>,
}

/// JSON of a line.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LineJson<'a> {
    /// number of the line, from 1
    line: usize,
    /// text of the line; bytes that are not UTF-8 are replaced
    text: String,
    #[serde(flatten)]
    period: PeriodJson<'a>,
}

impl<'a> From<&'a FileBlame> for FileBlameJson<'a> {
    fn from(blame: &'a FileBlame) -> Self {
        let line = |(line, at): (&'a BlameLine, usize)| LineJson {
            line: at,
            text: String::from_utf8_lossy(&line.text).into_owned(),
            period: PeriodJson::from(&blame.periods[line.period]),
        };
        Self { path: JsonPath::new(&blame.path), lines: blame.lines.iter().zip(1..).map(line).collect() }
    }
}

crate::json::serialized_as! {
    FileBlame => FileBlameJson<'_>;
}

/// Returns for each line of a file, as it is now, the period in which it was written. Renames are followed, and lines
/// that a restore brought back belong to the period that wrote them first.
///
/// Fails with `NotFound` if there is no such file, and with `Invalid` if it is a directory, is out of scope by the rules
/// of `settings` and the project, is not text or is larger than 16 MiB. A file out of scope may hold secrets, and no
/// checkpoint has it.
///
/// ```
/// use piton::{Author, History, blame_file};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &piton::Request::default(), &settings, now, &progress)?;
/// std::fs::write(code.join("main.rs"), "// Starts here.\nfn main() {}\n")?;
/// let history = History::of(&store, &project)?;
/// let blame = blame_file(&history, &store, &project, &settings, b"main.rs")?;
/// let by: Vec<_> = blame.lines.iter().map(|line| blame.periods[line.period].by).collect();
/// assert_eq!(by, [Author::You, Author::Earlier]);
/// # Ok(())
/// # }
/// ```
pub fn blame_file(
    history: &History,
    store: &Store,
    project: &Project,
    settings: &Settings,
    path: &[u8],
) -> Result<FileBlame> {
    let what = || format!("blame {}", String::from_utf8_lossy(path));
    let scope = scope_by_rules(store, project, settings)?;
    let current = read_current(project, &scope, path, history)?;
    if !is_text(&current) {
        return Err(Error::new(ErrorKind::Invalid, what()).because("it is not text, or larger than 16 MB"));
    }
    let timeline = Timeline::new(history);
    let objects = history.objects();
    let id = IdHasher::of(ObjectKind::Blob, &current).map_err(|collision| Error::damaged(what(), collision))?;
    let mut chain = Chain { timeline: &timeline, objects, walk: TreeWalk::new(objects), versions: Vec::new() };
    chain.follow(path, id)?;
    let versions = chain.versions;
    let mut texts = Vec::with_capacity(versions.len());
    for (version, _) in &versions {
        let is_large = *version != id && objects.blob_size(*version)? > TEXT_BYTES_MAX as u64;
        texts.push(match *version {
            version if version == id => current.clone(),
            // Contents that are not text have no lines in common with any.
            _ if is_large => vec![0],
            version => objects.read(version, ObjectKind::Blob)?,
        });
    }
    let steps = texts.iter().zip(&versions).rev().map(|(text, (_, step))| FileVersion { text, step: *step });
    let steps = attribute(&steps.collect::<Vec<_>>()).unwrap_or_default();
    let mut blame = FileBlame { path: path.to_vec(), lines: Vec::new(), periods: Vec::new() };
    let mut known: Vec<Option<usize>> = Vec::new();
    for (line, step) in split_lines(&current).into_iter().zip(steps) {
        let at = known.iter().position(|one| *one == step);
        let period = match at {
            Some(at) => at,
            None => {
                let period = step.map(|step| timeline.period_of_step(step)).or_else(|| timeline.earlier());
                // Without any checkpoint, everything is the user's.
                blame.periods.push(period.unwrap_or_else(Period::without_checkpoints));
                known.push(step);
                known.len() - 1
            }
        };
        blame.lines.push(BlameLine { text: line.strip_suffix(b"\n").unwrap_or(line).to_vec(), period });
    }
    Ok(blame)
}

/// Reads a current file that is in scope.
fn read_current(project: &Project, scope: &Scope, path: &[u8], history: &History) -> Result<Vec<u8>> {
    let what = || format!("blame {}", String::from_utf8_lossy(path));
    let missing = || {
        let is_known = history.versions(path).is_ok_and(|versions| versions.iter().any(Option::is_some));
        let why = if is_known { "it is not there now" } else { "there is no such file" };
        let error = Error::new(ErrorKind::NotFound, what()).because(why);
        if is_known { error.with_hint(Hint::FindLostFile) } else { error.with_hint(Hint::ListFiles) }
    };
    let root = project.open_dir()?.ok_or_else(missing)?;
    let failed = |error: std::io::Error| {
        if is_gone(&error) { missing() } else { Error::io("read", String::from_utf8_lossy(path).as_ref(), error) }
    };
    let kind = stat_path(&root, path).map_err(failed)?.kind;
    if !matches!(kind, Kind::File | Kind::Link) {
        return Err(Error::new(ErrorKind::Invalid, what()).because("it is not a file"));
    }
    if !ScopePreview::new(scope, &root, None).covers_file(path) {
        return Err(
            Error::new(ErrorKind::Invalid, what()).because("checkpoints leave it out: it is ignored or excluded")
        );
    }
    read_path(&root, path, kind, TEXT_BYTES_MAX as u64 + 1).map_err(failed)
}

/// Versions of a file, newest first, each with the step that led to it. `None` is the oldest checkpoint.
struct Chain<'a> {
    timeline: &'a Timeline<'a>,
    objects: &'a Objects,
    walk: TreeWalk<'a>,
    versions: Vec<(ObjectId, Option<usize>)>,
}

impl Chain<'_> {
    /// Follows a file with these contents back from the current files.
    fn follow(&mut self, path: &[u8], current: ObjectId) -> Result<()> {
        let states = &self.timeline.states;
        let (mut path, mut id) = (path.to_vec(), current);
        // Number of the state whose version is `id`; one more than there are for the current files.
        let mut at = states.len();
        while at > 0 {
            let step = at - 1;
            // Lines that a restore brought back are as old as the checkpoint.
            if let Some(restored) = self.timeline.restored_by(step)
                && self.version(restored, &path)? == Some(id)
            {
                at = restored;
                continue;
            }
            let before = match self.version(step, &path)? {
                Some(before) => before,
                None => {
                    self.versions.push((id, Some(step)));
                    let Some(old) = self.renamed(step, &path)? else { return Ok(()) };
                    path = old;
                    let Some(before) = self.version(step, &path)? else { return Ok(()) };
                    (id, at) = (before, step);
                    continue;
                }
            };
            if before != id {
                self.versions.push((id, Some(step)));
            }
            (id, at) = (before, step);
        }
        self.versions.push((id, None));
        Ok(())
    }

    /// Returns the contents of a file in a state.
    fn version(&mut self, state: usize, path: &[u8]) -> Result<Option<ObjectId>> {
        let found = self.walk.entry_at(self.timeline.states[state].tree, path)?;
        Ok(found.filter(|(mode, _)| !matches!(mode, EntryMode::Dir | EntryMode::Commit)).map(|(_, id)| id))
    }

    /// Returns the path that a file had in a state, if the step from there renamed it. A rename since the newest
    /// checkpoint is not known.
    fn renamed(&mut self, step: usize, path: &[u8]) -> Result<Option<Vec<u8>>> {
        let states = &self.timeline.states;
        let Some(after) = states.get(step + 1) else { return Ok(None) };
        let (mut old, mut new) = (Tree::new(), Tree::new());
        for change in self.walk.compare(states[step].tree, after.tree, &[])? {
            old.extend(change.old.and_then(Entry::of).map(|entry| (change.path.clone(), entry)));
            new.extend(change.new.and_then(Entry::of).map(|entry| (change.path, entry)));
        }
        let objects = self.objects;
        renamed_from(path, &old, &new, &mut |id| {
            let is_large = objects.blob_size(id)? > TEXT_BYTES_MAX as u64;
            if is_large { Ok(None) } else { objects.read(id, ObjectKind::Blob).map(Some) }
        })
    }
}
