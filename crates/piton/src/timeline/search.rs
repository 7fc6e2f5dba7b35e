//! Search in the history: the periods in which a text appeared or vanished.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use memchr::memmem;

use super::local::LocalHistory;
use super::log::{PeriodJson, check_cancelled};
use super::{Period, Timeline};
use crate::diff::{changed_lines, is_text, pair_renames, split_lines};
use crate::error::{Error, ErrorKind, Result};
use crate::history::History;
use crate::id::{CheckpointId, ObjectId, ObjectKind};
use crate::json::{AtPath, JsonPath};
use crate::progress::Progress;
use crate::relpath;
use crate::store::{CheckpointKind, EntryMode, Objects, TreeChange, TreeWalk};
use crate::threads;

/// Larger contents are not searched.
const SEARCHED_BYTES_MAX: u64 = 64 << 20;
/// Number of lines that are shown of one file.
const LINES_MAX: usize = 20;
/// Length of a line that is shown, in bytes.
const LINE_BYTES_MAX: usize = 400;

/// Options of a search.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SearchOptions<'a> {
    /// Only files at or below these paths, and the periods that changed them. Empty for all.
    pub paths: &'a [Vec<u8>],
    /// True if the text is a regular expression.
    pub is_regex: bool,
    /// Search the contents of files, and their paths.
    pub in_contents: bool,
    /// Search prompts and reasons.
    pub in_prompts: bool,
    /// Search the contents of the oldest checkpoint, too.
    pub in_oldest: bool,
}

impl Default for SearchOptions<'_> {
    fn default() -> Self {
        Self { paths: &[], is_regex: false, in_contents: true, in_prompts: true, in_oldest: false }
    }
}

impl<'a> SearchOptions<'a> {
    /// Sets [`SearchOptions::paths`].
    #[must_use]
    pub fn paths(mut self, paths: &'a [Vec<u8>]) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`SearchOptions::is_regex`].
    #[must_use]
    pub fn is_regex(mut self, is_regex: bool) -> Self {
        self.is_regex = is_regex;
        self
    }

    /// Sets [`SearchOptions::in_contents`] and [`SearchOptions::in_prompts`].
    #[must_use]
    pub fn within(mut self, in_contents: bool, in_prompts: bool) -> Self {
        (self.in_contents, self.in_prompts) = (in_contents, in_prompts);
        self
    }

    /// Sets [`SearchOptions::in_oldest`].
    #[must_use]
    pub fn in_oldest(mut self, in_oldest: bool) -> Self {
        self.in_oldest = in_oldest;
        self
    }
}

/// Result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchReport {
    /// Periods in which the text was found, newest first.
    pub entries: Vec<SearchEntry>,
    /// Files that were not searched, because they are larger than 64 MiB.
    pub too_large: Vec<Vec<u8>>,
    /// Checkpoints that could not be compared with the ones before them, because their contents are missing or corrupt.
    pub unread: Vec<CheckpointId>,
}

/// A period in which a text was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchEntry {
    /// Author, and the checkpoints before and after.
    pub period: Period,
    /// Files in which the number of occurrences changed.
    pub contents: Vec<ContentMatch>,
    /// Changed files whose path contains the text.
    pub paths: Vec<Vec<u8>>,
    /// Local files that changed and whose path contains the text. Their contents are not searched.
    pub local: Vec<Vec<u8>>,
    /// The prompt and reasons that contain the text.
    pub texts: Vec<TextMatch>,
}

/// A file in which the number of occurrences changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentMatch {
    /// Path of the file.
    pub path: Vec<u8>,
    /// Number of occurrences before.
    pub before: usize,
    /// Number of occurrences after.
    pub after: usize,
    /// Checkpoint before. `None` for the oldest checkpoint.
    pub from: Option<CheckpointId>,
    /// Checkpoint after.
    pub to: CheckpointId,
    /// Added and removed lines with the text, up to 20.
    pub lines: Vec<MatchLine>,
}

/// A line that was added or removed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MatchLine {
    /// true if it was added, false if it was removed
    pub added: bool,
    /// number of the line, in the file that has it
    pub line: usize,
    /// text of the line; bytes that are not UTF-8 are replaced
    pub text: String,
}

/// A prompt or reason with the text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TextMatch {
    /// true for a prompt, false for the reason of a checkpoint
    pub is_prompt: bool,
    /// the prompt, as far as it is stored, or the reason
    pub text: String,
}

/// JSON of a [`SearchEntry`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SearchEntryJson<'a> {
    #[serde(flatten)]
    period: PeriodJson<'a>,
    /// files in which the text appeared or vanished
    contents: &'a [ContentMatch],
    /// changed files whose path contains the text
    paths: Vec<MatchedPathJson<'a>>,
    /// files out of scope that changed and whose path contains the text; their contents are not searched
    local: Vec<MatchedPathJson<'a>>,
    /// the prompt and reasons that contain the text
    texts: &'a [TextMatch],
}

/// JSON of a path.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MatchedPathJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
}

/// JSON of a [`ContentMatch`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ContentMatchJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// number of occurrences before
    before: usize,
    /// number of occurrences after
    after: usize,
    /// id of the checkpoint before, or null
    from: Option<CheckpointId>,
    /// id of the checkpoint after
    to: CheckpointId,
    /// added and removed lines with the text, up to 20
    lines: &'a [MatchLine],
}

impl<'a> From<&'a SearchEntry> for SearchEntryJson<'a> {
    fn from(entry: &'a SearchEntry) -> Self {
        let path = |path: &'a Vec<u8>| MatchedPathJson { path: JsonPath::new(path) };
        Self {
            period: PeriodJson::from(&entry.period),
            contents: &entry.contents,
            paths: entry.paths.iter().map(path).collect(),
            local: entry.local.iter().map(path).collect(),
            texts: &entry.texts,
        }
    }
}

impl<'a> From<&'a ContentMatch> for ContentMatchJson<'a> {
    fn from(found: &'a ContentMatch) -> Self {
        let ContentMatch { path, before, after, from, to, lines } = found;
        Self { path: JsonPath::new(path), before: *before, after: *after, from: *from, to: *to, lines }
    }
}

crate::json::serialized_as! {
    SearchEntry => SearchEntryJson<'_>;
    ContentMatch => ContentMatchJson<'_>;
}

/// Returns the periods in which a text appeared or vanished: in which the number of its occurrences in a file changed, as
/// for `git log -S`. A file that was renamed and is otherwise unchanged does not count. Also returns the periods whose
/// prompt, reason or changed paths contain the text.
///
/// Fails with `Invalid` if the text is empty, or if a regular expression is invalid, and with `Stopped` if the search
/// was cancelled.
pub fn search(history: &History, text: &str, options: &SearchOptions<'_>, progress: &Progress) -> Result<SearchReport> {
    let pattern = Pattern::new(text, options.is_regex)?;
    let timeline = Timeline::new(history);
    let search = Search { history, timeline: &timeline, pattern: &pattern, options, progress };
    let mut found = search.steps()?;
    let local_files = LocalHistory::of(history)?;
    let mut report = SearchReport::default();
    // Each entry with the number of its first step.
    let mut entries: Vec<(usize, SearchEntry)> = Vec::new();
    let mut texts = if options.in_prompts { search.texts() } else { Vec::new() };
    for range in timeline.ranges() {
        let mut entry = SearchEntry::new(timeline.period(&range));
        let mut is_changed = false;
        for step in &mut found[range.clone()] {
            let step = std::mem::take(step);
            is_changed |= step.is_changed;
            entry.contents.extend(step.contents);
            entry.paths.extend(step.paths);
            report.too_large.extend(step.too_large);
            report.unread.extend(step.unread);
        }
        entry.paths.sort();
        entry.paths.dedup();
        let (from, to) = (timeline.states[range.start].id, timeline.states[range.end].id);
        match local_files.changed(Some(from), to, options.paths) {
            Err(error) if error.kind() == ErrorKind::Damaged => report.unread.push(to),
            changed => {
                let changed = changed?;
                is_changed |= !changed.is_empty();
                entry.local = search.matching(changed);
            }
        }
        if options.paths.is_empty() || is_changed {
            entry.texts = texts.extract_if(.., |(at, _, _)| range.contains(at)).map(|(_, _, text)| text).collect();
        }
        if entry.is_match() {
            entries.push((range.start, entry));
        }
    }
    // Of turns that changed nothing, and of the oldest checkpoint.
    texts.retain(|_| options.paths.is_empty());
    for (at, period, text) in texts {
        match entries.iter_mut().find(|(_, entry)| entry.period == period) {
            Some((_, entry)) => entry.texts.push(text),
            None => entries.push((at, SearchEntry { texts: vec![text], ..SearchEntry::new(period) })),
        }
    }
    entries.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    report.entries = entries.into_iter().map(|(_, entry)| entry).collect();
    report.entries.extend(search.oldest(&local_files, &mut report.too_large)?);
    report.too_large.sort();
    report.too_large.dedup();
    Ok(report)
}

impl SearchEntry {
    fn new(period: Period) -> Self {
        Self { period, contents: Vec::new(), paths: Vec::new(), local: Vec::new(), texts: Vec::new() }
    }

    fn is_match(&self) -> bool {
        !(self.contents.is_empty() && self.paths.is_empty() && self.local.is_empty() && self.texts.is_empty())
    }
}

/// A text or a regular expression to search for.
enum Pattern {
    Text(Box<memmem::Finder<'static>>),
    Regex(regex::bytes::Regex),
}

impl Pattern {
    fn new(text: &str, is_regex: bool) -> Result<Self> {
        let invalid = |why: String| Error::new(ErrorKind::Invalid, format!("search for {text:?}")).because(why);
        if text.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        if !is_regex {
            return Ok(Self::Text(Box::new(memmem::Finder::new(text).into_owned())));
        }
        // As in git, the ends of lines are ends of the text.
        let built = regex::bytes::RegexBuilder::new(text).multi_line(true).build();
        built.map(Self::Regex).map_err(|error| invalid(error.to_string()))
    }

    fn count(&self, bytes: &[u8]) -> usize {
        match self {
            Self::Text(finder) => finder.find_iter(bytes).count(),
            Self::Regex(regex) => regex.find_iter(bytes).count(),
        }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Text(finder) => finder.find(bytes).is_some(),
            Self::Regex(regex) => regex.is_match(bytes),
        }
    }
}

/// Matches of one step.
#[derive(Default)]
struct StepMatches {
    contents: Vec<ContentMatch>,
    paths: Vec<Vec<u8>>,
    too_large: Vec<Vec<u8>>,
    unread: Option<CheckpointId>,
    /// True if one of the wanted paths changed.
    is_changed: bool,
}

/// A search in progress.
struct Search<'a> {
    history: &'a History,
    timeline: &'a Timeline<'a>,
    pattern: &'a Pattern,
    options: &'a SearchOptions<'a>,
    progress: &'a Progress,
}

impl Search<'_> {
    /// Searches the changes of every step, on all cores.
    fn steps(&self) -> Result<Vec<StepMatches>> {
        let steps = self.timeline.states.len().saturating_sub(1);
        let mut found: Vec<StepMatches> = Vec::new();
        found.resize_with(steps, StepMatches::default);
        if !self.options.in_contents && self.options.paths.is_empty() {
            return Ok(found);
        }
        let part = steps.div_ceil(4 * threads::cores()).max(8);
        let (shared, next) = (self.history.objects().shared(), AtomicUsize::new(0));
        let plain = PlainSearch::of(self);
        let parts = threads::together(threads::cores().min(steps.div_ceil(part)), |_| {
            let objects = shared.objects();
            let mut found = Vec::new();
            loop {
                let start = next.fetch_add(part, Ordering::Relaxed);
                if start >= steps {
                    return Ok(found);
                }
                let (walk, counts) = (TreeWalk::new(&objects), HashMap::new());
                let mut reader = StepReader { search: &plain, objects: &objects, walk, counts };
                for step in start..steps.min(start + part) {
                    check_cancelled(plain.progress)?;
                    found.push((step, reader.search(step)?));
                }
            }
        });
        for (step, one) in parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten() {
            found[step] = one;
        }
        Ok(found)
    }

    /// Returns the prompts and reasons that match: the step and the period that each belongs to.
    fn texts(&self) -> Vec<(usize, Period, TextMatch)> {
        let mut texts = Vec::new();
        for (at, state) in self.timeline.states.iter().enumerate() {
            let is_own = state.turns.is_empty() || state.facts.kind != CheckpointKind::Auto;
            if is_own && self.pattern.is_in(state.reason.as_bytes()) {
                let text = TextMatch { is_prompt: false, text: state.reason.clone() };
                let step = at.checked_sub(1);
                let period = step.map(|step| self.timeline.period_of_step(step)).or_else(|| self.timeline.earlier());
                texts.extend(period.map(|period| (step.unwrap_or(0), period, text)));
            }
        }
        for (step, period) in self.timeline.periods_of_turns() {
            let prompt = period.turn.as_ref().and_then(|turn| turn.prompt.clone());
            if let Some(text) = prompt.filter(|text| self.pattern.is_in(text.as_bytes())) {
                texts.push((step, period, TextMatch { is_prompt: true, text }));
            }
        }
        texts
    }

    /// Returns the paths that contain the text, if paths are searched.
    fn matching(&self, mut paths: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        paths.retain(|path| self.options.in_contents && self.pattern.is_in(path));
        paths
    }

    /// Searches the contents of the oldest checkpoint, if the options say so.
    fn oldest(&self, local: &LocalHistory<'_>, too_large: &mut Vec<Vec<u8>>) -> Result<Option<SearchEntry>> {
        let is_wanted = self.options.in_oldest && self.options.in_contents;
        let (Some(oldest), Some(period)) = (self.timeline.states.first(), self.timeline.earlier()) else {
            return Ok(None);
        };
        if !is_wanted {
            return Ok(None);
        }
        let is_meant = |path: &[u8]| {
            let paths = self.options.paths;
            paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(path, wanted))
        };
        let mut files = self.history.objects().compare_trees(None, Some(oldest.tree))?;
        files.retain(|file| is_meant(&file.path));
        let (shared, next) = (self.history.objects().shared(), AtomicUsize::new(0));
        let plain = PlainSearch::of(self);
        let parts = threads::together(threads::cores().min(files.len().div_ceil(64)), |_| {
            let objects = shared.objects();
            let (walk, counts) = (TreeWalk::new(&objects), HashMap::new());
            let mut reader = StepReader { search: &plain, objects: &objects, walk, counts };
            let mut found = StepMatches::default();
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                check_cancelled(plain.progress)?;
                reader.search_file(file, (None, oldest.id), &mut found)?;
            }
            Ok(found)
        });
        let mut entry = SearchEntry::new(period);
        for found in parts.into_iter().collect::<Result<Vec<_>>>()? {
            entry.contents.extend(found.contents);
            too_large.extend(found.too_large);
        }
        let in_path = |file: &&TreeChange| self.pattern.is_in(&file.path);
        entry.paths = files.iter().filter(in_path).map(|file| file.path.clone()).collect();
        entry.contents.sort_by(|a, b| a.path.cmp(&b.path));
        entry.local = self.matching(local.changed(None, oldest.id, self.options.paths)?);
        Ok(Some(entry).filter(SearchEntry::is_match))
    }
}

/// The part of a search that every thread can use.
struct PlainSearch<'a> {
    /// Id and tree of each checkpoint, oldest first.
    states: Vec<(CheckpointId, ObjectId)>,
    pattern: &'a Pattern,
    options: &'a SearchOptions<'a>,
    progress: &'a Progress,
}

impl<'a> PlainSearch<'a> {
    fn of(search: &Search<'a>) -> Self {
        let states = search.timeline.states.iter().map(|state| (state.id, state.tree)).collect();
        let Search { pattern, options, progress, .. } = *search;
        Self { states, pattern, options, progress }
    }
}

/// Searches steps on one thread.
struct StepReader<'a> {
    search: &'a PlainSearch<'a>,
    objects: &'a Objects,
    walk: TreeWalk<'a>,
    /// Number of occurrences in contents. `None` if they are too large.
    counts: HashMap<ObjectId, Option<usize>>,
}

impl StepReader<'_> {
    fn search(&mut self, step: usize) -> Result<StepMatches> {
        let mut found = StepMatches::default();
        let ((from, old), (to, new)) = (self.search.states[step], self.search.states[step + 1]);
        match self.search_step((from, old), (to, new), &mut found) {
            Err(error) if error.kind() == ErrorKind::Damaged => found.unread = Some(to),
            done => done?,
        }
        Ok(found)
    }

    fn search_step(
        &mut self,
        (from, old): (CheckpointId, ObjectId),
        (to, new): (CheckpointId, ObjectId),
        found: &mut StepMatches,
    ) -> Result<()> {
        let changes = self.walk.compare(old, new, self.search.options.paths)?;
        found.is_changed = !changes.is_empty();
        if !self.search.options.in_contents {
            return Ok(());
        }
        let in_path = |change: &&TreeChange| self.search.pattern.is_in(&change.path);
        found.paths = changes.iter().filter(in_path).map(|change| change.path.clone()).collect();
        for change in pair_renames(changes).1 {
            self.search_file(&change, (Some(from), to), found)?;
        }
        Ok(())
    }

    fn search_file(
        &mut self,
        change: &TreeChange,
        (from, to): (Option<CheckpointId>, CheckpointId),
        found: &mut StepMatches,
    ) -> Result<()> {
        let blob = |side: Option<(EntryMode, ObjectId)>| side.filter(|(mode, _)| *mode != EntryMode::Commit);
        let (old, new) = (blob(change.old).map(|(_, id)| id), blob(change.new).map(|(_, id)| id));
        if old == new {
            return Ok(());
        }
        let mut count = |id: Option<ObjectId>| id.map_or(Ok(Some(0)), |id| self.count(id));
        let (Some(before), Some(after)) = (count(old)?, count(new)?) else {
            found.too_large.push(change.path.clone());
            return Ok(());
        };
        if before != after {
            let (path, lines) = (change.path.clone(), self.lines(old, new)?);
            found.contents.push(ContentMatch { path, before, after, from, to, lines });
        }
        Ok(())
    }

    /// Returns the number of occurrences in contents, or `None` if they are too large.
    fn count(&mut self, id: ObjectId) -> Result<Option<usize>> {
        if let Some(known) = self.counts.get(&id) {
            return Ok(*known);
        }
        let is_large = self.objects.blob_size(id)? > SEARCHED_BYTES_MAX;
        let count =
            if is_large { None } else { Some(self.search.pattern.count(&self.objects.read(id, ObjectKind::Blob)?)) };
        self.counts.insert(id, count);
        Ok(count)
    }

    /// Returns the added and removed lines that contain the text. None if either side is not text.
    fn lines(&self, old: Option<ObjectId>, new: Option<ObjectId>) -> Result<Vec<MatchLine>> {
        let read = |id: Option<ObjectId>| id.map_or(Ok(Vec::new()), |id| self.objects.read(id, ObjectKind::Blob));
        let (old, new) = (read(old)?, read(new)?);
        if !is_text(&old) || !is_text(&new) {
            return Ok(Vec::new());
        }
        let (old, new) = (split_lines(&old), split_lines(&new));
        let mut lines = Vec::new();
        for hunk in changed_lines(&old, &new) {
            let removed = hunk.old.map(|at| (false, at, old[at]));
            let added = hunk.new.map(|at| (true, at, new[at]));
            lines.extend(removed.chain(added).filter(|(_, _, text)| self.search.pattern.is_in(text)));
        }
        let line = |(added, at, text): (bool, usize, &[u8])| {
            let text = &text[..text.len().min(LINE_BYTES_MAX)];
            MatchLine { added, line: at + 1, text: String::from_utf8_lossy(text).trim_end_matches('\n').to_owned() }
        };
        Ok(lines.into_iter().take(LINES_MAX).map(line).collect())
    }
}
