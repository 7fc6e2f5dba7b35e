//! Pins: refs of their own for checkpoints that stay when their history is cut. A mark is a pin with a name that the
//! user chose.
//!
//! - B1. A pinned checkpoint keeps its id, and stays until its pin is removed. No cut of a history removes a mark.
//! - B2. A pin that is not part of its project's history is the end of a history: nothing older is kept for its sake.
//!   Whatever cuts a history writes both ends at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::boundary::Boundary;
use super::commit::{Checkpoint, Readable};
use super::layout::{Layout, PIN_REFS};
use super::lock::ProjectLock;
use super::objects::Objects;
use super::refs::{REFS_BYTES_MAX, Refs};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::time::Moment;

/// Directory of marks below the refs of a project.
const MARKS: &str = "marks";
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
}

impl PinName {
    /// Returns the ref of this pin.
    fn ref_name(&self, project: &ProjectId) -> String {
        match self {
            Self::Mark(mark) => format!("{PIN_REFS}{project}/{MARKS}/{}", escape(mark)),
        }
    }

    /// Returns the project and the name of the pin with this ref. Returns `None` for all other refs.
    fn parse(name: &str) -> Option<(ProjectId, Self)> {
        let (project, rest) = name.strip_prefix(PIN_REFS)?.split_once('/')?;
        let (kind, name) = rest.split_once('/')?;
        let pin = match kind {
            MARKS => Self::Mark(unescape(name)?),
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
        let dir = format!("{PIN_REFS}{project}/{MARKS}");
        // Loose refs first: stock git writes `packed-refs` before it removes them.
        for file in fsx::names_in(&self.layout.store().join(&dir))? {
            let Some(name) = file.to_str().map(|file| format!("{dir}/{file}")) else { continue };
            let Some((_, pin)) = PinName::parse(&name) else { continue };
            let text = fsx::read_small(&self.layout.store().join(&name), REFS_BYTES_MAX)?.unwrap_or_default();
            if let Some(id) = ObjectId::from_hex(text.trim_ascii()) {
                found.insert(pin, id);
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
        Ok(self.of(project)?.into_iter().map(|Pin { name: PinName::Mark(mark), .. }| mark).collect())
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

    /// Ends the history of a project at `end`, and the pins that are not in `kept`, the rest of that history, at
    /// themselves. `kept` is complete, and read under the lock: an end within it would hide everything older.
    pub(crate) fn cut_before(
        &self,
        held: &ProjectLock,
        project: &ProjectId,
        end: CheckpointId,
        kept: impl FnOnce() -> Result<HashSet<CheckpointId>>,
        now: Moment,
    ) -> Result<()> {
        let mut ends = vec![end];
        let pins = self.of(project)?;
        if !pins.is_empty() {
            let (known, kept) = (self.boundary.ends()?, kept()?);
            let loose = pins.iter().map(|pin| pin.id).filter(|id| !known.contains(id) && !kept.contains(id));
            ends.extend(loose);
        }
        self.boundary.cut_before(held, project, &ends, now)
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
    let mut beyond: Vec<Checkpoint> = Vec::new();
    for Pin { name, id } in pins {
        let in_history = history.checkpoints.iter().position(|one| one.id == id);
        let known = beyond.iter().position(|one| one.id == id);
        let place = match (in_history, known) {
            (Some(at), _) => &mut history.checkpoints[at],
            (None, Some(at)) => &mut beyond[at],
            (None, None) => match objects.checkpoint(id) {
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    let PinName::Mark(mark) = name;
                    history.unavailable.push((mark, id));
                    continue;
                }
                pinned => place_of(pinned?, history, &mut beyond),
            },
        };
        let PinName::Mark(mark) = name;
        place.marks.push(mark);
    }
    beyond.sort_by_key(|one| (std::cmp::Reverse(one.time.as_nanos()), one.id));
    history.checkpoints.extend(beyond);
    Ok(())
}

/// Adds a pinned checkpoint whose id is not in the history, and returns it.
fn place_of<'a>(
    mut pinned: Checkpoint,
    history: &'a mut Readable,
    beyond: &'a mut Vec<Checkpoint>,
) -> &'a mut Checkpoint {
    let is_same = |one: &Checkpoint| one.tree == pinned.tree && one.time.secs == pinned.time.secs;
    let twin = history.checkpoints.iter().position(is_same);
    match twin {
        Some(0) => &mut history.checkpoints[0],
        Some(at) => {
            pinned.marks = std::mem::take(&mut history.checkpoints[at].marks);
            history.checkpoints[at] = pinned;
            &mut history.checkpoints[at]
        }
        None => {
            beyond.push(pinned);
            beyond.last_mut().expect("pushed above")
        }
    }
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
        assert_eq!(PinName::parse("refs/piton/xyz/marks/a"), None);
        assert_eq!(PinName::parse("refs/hermes/0123456789abcdef"), None);
    }
}
