//! Finding a checkpoint by its number in the list, by digits of its id, or by its mark.

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::store::{Checkpoint, Readable};

/// Number of digits of an id that name a checkpoint: at least 4, at most the length of a SHA-256 id.
const ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=64;

/// Returns the checkpoint of this number, abbreviated id or mark. Fails with `Invalid` if the name is none of these, with
/// `NotFound`, with `Ambiguous`, or with `Damaged` if it may be among the checkpoints that cannot be read.
pub(crate) fn find<'a>(history: &'a Readable, name: &str) -> Result<&'a Checkpoint> {
    let checkpoints = &history.checkpoints;
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number
        && let Some(checkpoint) = name.parse().ok().and_then(|number: usize| rows(history).nth(number.checked_sub(1)?))
    {
        return Ok(checkpoint);
    }
    if let Some(marked) = checkpoints.iter().find(|one| one.marks.iter().any(|mark| mark == name)) {
        return Ok(marked);
    }
    if let Some((mark, id)) = history.unavailable.iter().find(|(mark, _)| mark == name) {
        let why = format!("its commit {id} is missing or damaged");
        return Err(Error::damaged(format!("find the checkpoint marked {mark}"), why).with_hint(Hint::Repair));
    }
    let is_id = ID_DIGITS.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_number && !is_id {
        return Err(Error::new(ErrorKind::Invalid, format!("take {name:?} for a checkpoint"))
            .because("a checkpoint is named by its number, by 4 to 64 hexadecimal digits of its id, or by its mark")
            .with_hint(Hint::ListCheckpoints));
    }
    let prefix = name.to_ascii_lowercase();
    let all = checkpoints.iter().chain(&history.fetched);
    let mut found = all.filter(|one| is_id && one.id.to_string().starts_with(&prefix));
    match (found.next(), found.next()) {
        (Some(checkpoint), None) => Ok(checkpoint),
        (Some(one), Some(other)) => Err(ambiguous(name, [one, other].into_iter().chain(found))),
        (None, _) => Err(not_found(history, name)),
    }
}

/// Returns the numbered rows of a history, newest first.
pub(crate) fn rows(history: &Readable) -> impl Iterator<Item = &Checkpoint> {
    history.checkpoints.iter().filter(|checkpoint| checkpoint.is_row())
}

/// Returns the error for a checkpoint that is not in a history.
pub(crate) fn not_found(history: &Readable, name: &str) -> Error {
    let checkpoints = &history.checkpoints;
    if let Some(damage) = &history.rest {
        return Error::damaged(format!("find the checkpoint {name}"), format!("older ones are damaged: {damage}"))
            .with_hint(Hint::Repair);
    }
    let there_are = match rows(history).count() {
        0 => "this project has no checkpoints".to_owned(),
        1 => "this project has 1 checkpoint".to_owned(),
        count => format!("this project has {count} checkpoints"),
    };
    let hint = if checkpoints.is_empty() { Hint::TakeFirstCheckpoint } else { Hint::ListCheckpoints };
    Error::new(ErrorKind::NotFound, format!("find the checkpoint {name}")).because(there_are).with_hint(hint)
}

fn ambiguous<'a>(name: &str, candidates: impl Iterator<Item = &'a Checkpoint>) -> Error {
    let candidates: Vec<_> = candidates.map(|one| format!("{} ({})", &one.id.to_string()[..12], one.reason)).collect();
    Error::new(ErrorKind::Ambiguous, format!("tell which checkpoint {name} is"))
        .because(format!("it could be {}", candidates.join(", ")))
        .with_hint("give more digits")
}
