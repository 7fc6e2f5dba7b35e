//! Pins: refs of their own for checkpoints that stay when their history is cut. A mark is a pin with a name that the
//! user chose; the others are named after the time of the checkpoint.
//!
//! - B1. A pinned checkpoint keeps its id, and stays until its pin is removed. No cut of a history removes a mark.
//! - B3. A cut pins what stays before it ends the history. Between any two steps, every checkpoint that stays can be
//!   reached.
//! - B2. A pin outside of its project's history is itself the end of a history: it does not keep older checkpoints
//!   alive. A cut writes the end of the history and those of its pins at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::boundary::Boundary;
use super::commit::{Checkpoint, Readable};
use super::facts::CheckpointKind;
use super::layout::{Layout, PIN_REFS};
use super::lock::ProjectLock;
use super::objects::Objects;
use super::refs::{REFS_BYTES_MAX, Refs};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::time::Moment;

/// Directories below the refs of a project, by kind of pin.
const MARKS: &str = "marks";
const ROWS: &str = "rows";
const ENDS: &str = "ends";
const STEPS: &str = "steps";
const FETCHED: &str = "fetched";
/// Maximum number of characters of a mark.
const MARK_CHARS_MAX: usize = 64;
/// Maximum number of bytes of a mark in the name of its ref, so that a file of that name and its lock can exist.
const MARK_BYTES_MAX: usize = 240;
/// Digits of an id that name a checkpoint.
const ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=64;
/// Words that have a meaning where a checkpoint is named.
const RESERVED: [&str; 2] = ["diff", "revert"];

/// A checkpoint with a ref of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pin {
    pub(crate) name: PinName,
    pub(crate) id: CheckpointId,
}

/// Name of a pin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PinName {
    /// Name that the user chose.
    Mark(String),
    /// Row of the list that is not in the history any more.
    Row(PinTime),
    /// End of a turn that is not in the history any more.
    End(PinTime),
    /// Step of a turn that is not in the history any more.
    Step(PinTime),
    /// Checkpoint of another machine, by the time of the fetch.
    Fetched(PinTime),
}

/// Time of a pinned checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PinTime {
    secs: i64,
    /// Tells the checkpoints of one second from each other, the oldest first.
    number: u32,
    offset_secs: i32,
}

impl PinTime {
    /// Returns the first name that no pin has for a checkpoint of this time.
    pub(crate) fn after(time: Moment, pins: &[Pin]) -> Self {
        let secs = time.secs.max(0);
        let same = pins.iter().filter_map(|pin| pin.name.time()).filter(|one| one.secs == secs);
        let number = same.map(|one| one.number.saturating_add(1)).max().unwrap_or(0);
        let offset_secs = Moment::parse_git_offset(time.git_offset().as_bytes());
        Self { secs, number, offset_secs }
    }

    pub(crate) fn moment(self) -> Moment {
        Moment { secs: self.secs, nanos: 0, offset_secs: self.offset_secs }
    }

    fn parse(text: &str) -> Option<Self> {
        let (time, number) = text.split_once('.').map_or((text, None), |(time, number)| (time, Some(number)));
        let (secs, offset) = time.split_at_checked(time.len().checked_sub(5)?)?;
        let offset_secs = Moment::parse_git_offset(offset.as_bytes());
        let number = number.map_or(Some(0), |number| number.parse().ok())?;
        let parsed = Self { secs: secs.parse().ok()?, number, offset_secs };
        (parsed.to_string() == text).then_some(parsed)
    }
}

impl std::fmt::Display for PinTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.secs, self.moment().git_offset())?;
        if self.number > 0 { write!(f, ".{}", self.number) } else { Ok(()) }
    }
}

impl PinName {
    /// Returns the ref of this pin.
    fn ref_name(&self, project: &ProjectId) -> String {
        let (kind, name) = match self {
            Self::Mark(mark) => (MARKS, escape(mark)),
            Self::Row(time) => (ROWS, time.to_string()),
            Self::End(time) => (ENDS, time.to_string()),
            Self::Step(time) => (STEPS, time.to_string()),
            Self::Fetched(time) => (FETCHED, time.to_string()),
        };
        format!("{PIN_REFS}{project}/{kind}/{name}")
    }

    /// Returns the name of the pin of a checkpoint of this kind and time.
    fn of(kind: CheckpointKind, time: PinTime) -> Self {
        match kind {
            CheckpointKind::Auto | CheckpointKind::Manual | CheckpointKind::Safety => Self::Row(time),
            CheckpointKind::End => Self::End(time),
            CheckpointKind::Step => Self::Step(time),
        }
    }

    pub(crate) fn is_mark(&self) -> bool {
        matches!(self, Self::Mark(_))
    }

    pub(crate) fn is_fetched(&self) -> bool {
        matches!(self, Self::Fetched(_))
    }

    /// Returns the time of the checkpoint, or of the fetch, for a pin that is named after it.
    pub(crate) fn time(&self) -> Option<PinTime> {
        match self {
            Self::Mark(_) => None,
            Self::Row(time) | Self::End(time) | Self::Step(time) | Self::Fetched(time) => Some(*time),
        }
    }

    /// Returns the project and the name of the pin with this ref. Returns `None` for all other refs.
    fn parse(name: &str) -> Option<(ProjectId, Self)> {
        let (project, rest) = name.strip_prefix(PIN_REFS)?.split_once('/')?;
        let (kind, name) = rest.split_once('/')?;
        let pin = match kind {
            MARKS => Self::Mark(unescape(name)?),
            ROWS => Self::Row(PinTime::parse(name)?),
            ENDS => Self::End(PinTime::parse(name)?),
            STEPS => Self::Step(PinTime::parse(name)?),
            FETCHED => Self::Fetched(PinTime::parse(name)?),
            _ => return None,
        };
        Some((ProjectId::parse(project)?, pin))
    }
}

/// Returns the pins among all refs, by project, and removes them from `refs`.
pub(super) fn split_off(refs: &mut BTreeMap<String, ObjectId>) -> BTreeMap<ProjectId, Vec<Pin>> {
    let mut pins: BTreeMap<ProjectId, Vec<Pin>> = BTreeMap::new();
    refs.retain(|name, id| match PinName::parse(name) {
        Some((project, name)) => {
            pins.entry(project).or_default().push(Pin { name, id: *id });
            false
        }
        None => true,
    });
    pins
}

/// Fails with `Invalid` if a checkpoint cannot have this mark.
pub(crate) fn check_mark(mark: &str) -> Result<()> {
    let is_number = mark.bytes().all(|byte| byte.is_ascii_digit());
    let is_id = ID_DIGITS.contains(&mark.len()) && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    let why = if mark.is_empty() {
        "it is empty"
    } else if is_number {
        "a number names a line of the list"
    } else if is_id {
        "4 to 64 hexadecimal digits are an id"
    } else if RESERVED.contains(&mark) {
        "this word has another meaning"
    } else if mark.contains('/') {
        "it has a slash in it"
    } else if mark.starts_with('-') {
        "options begin with a dash"
    } else if mark.chars().any(char::is_control) || mark.trim() != mark {
        "it has spaces around it, or control characters in it"
    } else if mark.chars().count() > MARK_CHARS_MAX || escape(mark).len() > MARK_BYTES_MAX {
        "it is longer than 64 characters"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, format!("mark a checkpoint as {mark:?}"))
        .because(why)
        .with_hint("choose a name such as `before-the-move`"))
}

/// Returns a mark as a part of a ref name: ASCII other than letters, digits, `-` and `_` is `%` and two digits.
fn escape(mark: &str) -> String {
    let mut text = String::with_capacity(mark.len());
    for character in mark.chars() {
        match character {
            _ if !character.is_ascii() => text.push(character),
            '-' | '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => text.push(character),
            _ => text.push_str(&format!("%{:02x}", u32::from(character))),
        }
    }
    text
}

/// Reverses [`escape`]. Returns `None` for anything that it does not return.
fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut mark = parts.next()?.to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        mark.push(u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii)?.into());
        mark.push_str(rest);
    }
    (escape(&mark) == text && check_mark(&mark).is_ok()).then_some(mark)
}

/// A cut: the new end of a history, and the older checkpoints to keep. Computed under the project's lock.
pub(crate) struct Cut<'a> {
    /// The current pins.
    pub(crate) pins: &'a [Pin],
    /// Checkpoint at which the history ends from here on. `None` if it stays as it is.
    pub(crate) end: Option<CheckpointId>,
    /// Returns the ids of the history up to that end. Complete: another end within it would hide everything older.
    pub(crate) kept: &'a dyn Fn() -> Result<HashSet<CheckpointId>>,
    /// Checkpoints beyond that end that stay, the oldest first.
    pub(crate) pinned: Vec<&'a Checkpoint>,
    /// Pins to remove, the oldest first.
    pub(crate) unpinned: Vec<PinName>,
}

/// The pins of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    pub(super) layout: Arc<Layout>,
    pub(super) refs: Refs,
    pub(super) boundary: Boundary,
}

impl Pins {
    /// Returns the pins of a project, sorted.
    pub(crate) fn of(&self, project: &ProjectId) -> Result<Vec<Pin>> {
        let mut found = BTreeMap::new();
        // Loose refs first: stock git writes `packed-refs` before it removes them.
        for kind in [MARKS, ROWS, ENDS, STEPS, FETCHED] {
            let dir = format!("{PIN_REFS}{project}/{kind}");
            for file in fsx::names_in(&self.layout.store().join(&dir))? {
                let Some(name) = file.to_str().map(|file| format!("{dir}/{file}")) else { continue };
                let Some((_, pin)) = PinName::parse(&name) else { continue };
                let text = fsx::read_small(&self.layout.store().join(&name), REFS_BYTES_MAX)?.unwrap_or_default();
                if let Some(id) = ObjectId::from_hex(text.trim_ascii()) {
                    found.insert(pin, id);
                }
            }
        }
        for (name, id) in self.refs.packed_below(&format!("{PIN_REFS}{project}/"))? {
            if let Some((_, pin)) = PinName::parse(&name) {
                found.entry(pin).or_insert(id);
            }
        }
        Ok(found.into_iter().map(|(name, id)| Pin { name, id }).collect())
    }

    /// Returns the marks of a project, sorted.
    pub(crate) fn marks(&self, project: &ProjectId) -> Result<Vec<String>> {
        let mark = |pin: Pin| match pin.name {
            PinName::Mark(mark) => Some(mark),
            _ => None,
        };
        Ok(self.of(project)?.into_iter().filter_map(mark).collect())
    }

    /// Pins a checkpoint, or moves the pin of this name to it. Synced on return.
    pub(crate) fn set(&self, _held: &ProjectLock, project: &ProjectId, pin: &Pin, now: Moment) -> Result<()> {
        self.refs.set_ref(project.as_str(), &pin.name.ref_name(project), Some(pin.id), now)
    }

    /// Removes a pin.
    pub(crate) fn remove(&self, held: &ProjectLock, project: &ProjectId, name: &PinName, now: Moment) -> Result<()> {
        self.refs.delete(held, project, &name.ref_name(project), now)
    }

    /// Removes all pins of a project.
    pub(crate) fn remove_all(&self, held: &ProjectLock, project: &ProjectId, now: Moment) -> Result<()> {
        for pin in self.of(project)? {
            self.remove(held, project, &pin.name, now)?;
        }
        Ok(())
    }

    /// Cuts the history of a project, and pins and unpins checkpoints as the cut says.
    pub(crate) fn cut(&self, held: &ProjectLock, project: &ProjectId, cut: Cut<'_>, now: Moment) -> Result<()> {
        let mut pins = cut.pins.to_vec();
        for checkpoint in cut.pinned {
            if pins.iter().all(|pin| pin.name.is_mark() || pin.id != checkpoint.id) {
                let time = PinTime::after(checkpoint.time, &pins);
                let pin = Pin { name: PinName::of(checkpoint.facts.kind, time), id: checkpoint.id };
                self.set(held, project, &pin, now)?;
                pins.push(pin);
            }
        }
        // The oldest are removed first, so that a killed process leaves the newer ones.
        cut.unpinned.iter().try_for_each(|name| self.remove(held, project, name, now))?;
        if let Some(end) = cut.end {
            let mut ends = vec![end];
            if !pins.is_empty() {
                let (known, kept) = (self.boundary.ends()?, (cut.kept)()?);
                let stays = pins.iter().filter(|pin| !cut.unpinned.contains(&pin.name)).map(|pin| pin.id);
                let loose = stays.filter(|id| !known.contains(id) && !kept.contains(id));
                ends.extend(loose);
            }
            self.boundary.cut_before(held, project, &ends, now)?;
        }
        Ok(())
    }

    /// Ends the pins that are not in the history of their project at themselves: version 0.1, which cuts histories too,
    /// does not. `history` is complete, and read under the lock.
    pub(crate) fn cut_loose(
        &self,
        held: &ProjectLock,
        project: &ProjectId,
        history: &HashSet<CheckpointId>,
        now: Moment,
    ) -> Result<()> {
        let known = self.boundary.ends()?;
        let pins = self.of(project)?.into_iter().map(|pin| pin.id);
        let ends: Vec<_> = pins.filter(|id| !known.contains(id) && !history.contains(id)).collect();
        if ends.is_empty() { Ok(()) } else { self.boundary.cut_before(held, project, &ends, now) }
    }

    /// Adds the marks of a project to its history, and the pinned checkpoints that are not part of it, newest first.
    pub(super) fn attach(&self, objects: &Objects, project: &ProjectId, history: &mut Readable) -> Result<()> {
        attach(objects, self.of(project)?, history)
    }
}

/// Implements [`Pins::attach`].
///
/// Hermes rewrites commits when it prunes, and keeps the tree, the time and the subject. The pinned one still has the
/// other facts, so it is listed instead of the rewritten one, unless that is the newest.
fn attach(objects: &Objects, pins: Vec<Pin>, history: &mut Readable) -> Result<()> {
    let mut places: HashMap<_, _> = history.checkpoints.iter().enumerate().map(|(at, one)| (one.id, at)).collect();
    let chain = places.len();
    let mut beyond: Vec<(PinTime, Checkpoint)> = Vec::new();
    for Pin { name, id } in pins {
        if name.is_fetched() {
            // One that is missing or corrupt can be fetched again.
            history.fetched.extend(objects.checkpoint(id).ok());
            continue;
        }
        if let Entry::Vacant(vacant) = places.entry(id) {
            let pinned = match objects.checkpoint(id) {
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    match name {
                        PinName::Mark(mark) => history.unavailable.push((mark, id)),
                        _ => drop(history.rest.get_or_insert(error)),
                    }
                    continue;
                }
                pinned => pinned?,
            };
            let place = match twin_of(&pinned, &mut history.checkpoints) {
                Some(at) => at,
                None => {
                    beyond.push((PinTime::after(pinned.time, &[]), pinned));
                    chain + beyond.len() - 1
                }
            };
            vacant.insert(place);
        }
        let at = places[&id];
        let named = name.time();
        match (name, at.checked_sub(chain).map(|at| &mut beyond[at])) {
            (PinName::Mark(mark), None) => history.checkpoints[at].marks.push(mark),
            (PinName::Mark(mark), Some((_, pinned))) => pinned.marks.push(mark),
            (_, Some((time, _))) => *time = named.unwrap_or(*time),
            (_, None) => {}
        }
    }
    beyond.sort_by_key(|(time, one)| (std::cmp::Reverse((time.secs, time.number)), one.id));
    history.checkpoints.extend(beyond.into_iter().map(|(_, one)| one));
    Ok(())
}

/// Returns the position of the checkpoint that Hermes made of a pinned one, and replaces it by that unless it is the
/// newest.
fn twin_of(pinned: &Checkpoint, history: &mut [Checkpoint]) -> Option<usize> {
    let is_rewritten = |one: &Checkpoint| one.facts.files.is_none();
    let is_same = |one: &Checkpoint| one.tree == pinned.tree && one.time.secs == pinned.time.secs;
    let at = history.iter().position(|one| is_same(one) && is_rewritten(one))?;
    if at > 0 {
        let marks = std::mem::take(&mut history[at].marks);
        history[at] = Checkpoint { marks, ..pinned.clone() };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_told_from_a_number_an_id_and_a_word_of_the_command_line() {
        for good in ["a", "abc", "before-the-move", "v1.0", "Grüße", "two words", "..", "x.lock", "@{1}", "abcg", "1a"]
        {
            assert!(check_mark(good).is_ok(), "{good}");
            let name = PinName::Mark(good.to_owned());
            let project = ProjectId::parse("0123456789abcdef").expect("an id");
            let ref_name = name.ref_name(&project);
            assert!(super::super::refs::is_ref_name(&ref_name), "{ref_name}");
            assert_eq!(PinName::parse(&ref_name), Some((project, name)));
        }
        let long = "x".repeat(MARK_CHARS_MAX + 1);
        let wide = "\u{1f9d7}".repeat(MARK_CHARS_MAX);
        for bad in ["", "0", "12", "abcd", "ABCDEF12", "diff", "revert", "a/b", "-x", " a", "a ", "a\nb", &long, &wide]
        {
            assert_eq!(check_mark(bad).map_err(|error| error.kind()), Err(ErrorKind::Invalid), "{bad:?}");
        }
        assert!(check_mark(&"%".repeat(MARK_CHARS_MAX)).is_ok());
    }

    #[test]
    fn a_ref_that_piton_does_not_write_is_no_pin() {
        let of = |rest: &str| format!("refs/piton/0123456789abcdef/{rest}");
        assert!(PinName::parse(&of("marks/a%2eb")).is_some());
        for name in ["marks/a.b", "marks/a%2Eb", "marks/1234", "marks/a/b", "marks/%ff", "marks/%", "other/a", "x"] {
            assert_eq!(PinName::parse(&of(name)), None, "{name}");
        }
        for name in ["rows/1790000000+0200", "ends/0-0330", "steps/1790000000+0000.12"] {
            let (project, pin) = PinName::parse(&of(name)).expect("a pin");
            assert_eq!(pin.ref_name(&project), of(name));
            assert!(super::super::refs::is_ref_name(&of(name)), "{name}");
        }
        for name in ["rows/1790000000", "rows/+0200", "rows/01+0200", "rows/1+0200.0", "rows/1+0200.x", "rows/1+02000"]
        {
            assert_eq!(PinName::parse(&of(name)), None, "{name}");
        }
        assert_eq!(PinName::parse("refs/piton/xyz/marks/a"), None);
        assert_eq!(PinName::parse("refs/hermes/0123456789abcdef"), None);
    }
}
