//! Files that a scan skipped, with the reason: part of a report, never an error.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::json::{AtPath, JsonPath};
use crate::relpath;

/// Reason why a file was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// Matched by a `.gitignore` of the project.
    Ignored,
    /// Matched by the built-in exclude list or the user's own.
    Excluded,
    /// File that commonly holds secrets (`.env` and the like).
    Secret,
    /// Larger than the limit for one file.
    TooLarge,
    /// Could not be read.
    Unreadable,
    /// Socket, FIFO or device.
    Special,
    /// Name that a git tree cannot hold.
    BadName,
    /// Changed each time it was read, or after the time of a checkpoint that was completed later.
    Changing,
    /// Contents crafted to collide with another file's hash.
    Collision,
    /// The store itself.
    Store,
    /// Temporary file of an interrupted restore.
    Temporary,
    /// Directory of a git repository.
    GitDir,
    /// Was in the checkpoint, and was removed by a purge.
    Purged,
}

impl SkipReason {
    pub(crate) const ALL: [Self; 13] = [
        Self::Ignored,
        Self::Excluded,
        Self::Secret,
        Self::TooLarge,
        Self::Unreadable,
        Self::Special,
        Self::BadName,
        Self::Changing,
        Self::Collision,
        Self::Store,
        Self::Temporary,
        Self::GitDir,
        Self::Purged,
    ];

    /// Returns its name in records and in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::Excluded => "excluded",
            Self::Secret => "secret",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
            Self::Special => "special",
            Self::BadName => "bad_name",
            Self::Changing => "changing",
            Self::Collision => "collision",
            Self::Store => "store",
            Self::Temporary => "temporary",
            Self::GitDir => "git_dir",
            Self::Purged => "purged",
        }
    }

    /// Parses the result of [`Self::word`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }

    /// Returns true if the user should be warned, because they expect the file to be protected. The other reasons
    /// follow from the rules.
    pub fn is_a_surprise(self) -> bool {
        !matches!(self, Self::Ignored | Self::Excluded | Self::Store | Self::GitDir | Self::Purged)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "too large",
            Self::Special => "not a regular file",
            Self::BadName => "git cannot hold this name",
            Self::Changing => "changed while it was read",
            Self::Collision => "contents made to collide",
            Self::Store => "the store itself",
            Self::Temporary => "left by a restore that was cut short",
            Self::GitDir => "git's own directory",
            other => other.word(),
        })
    }
}

/// A skipped file, a directory that was not entered, or several files of one directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Skipped {
    /// Path of the file, or of the directory that contains the files, relative to the project.
    pub path: Vec<u8>,
    /// Reason.
    pub why: SkipReason,
    /// Kind of `path`, and how much of it was skipped.
    pub extent: Extent,
}

/// Extent of a [`Skipped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Extent {
    /// One file.
    File,
    /// Whole directory, not entered; with the number of files in it if they were counted.
    Dir(Option<u64>),
    /// This many of the files in the directory or below it.
    Some(u64),
}

impl Skipped {
    /// Returns an entry for one file.
    pub fn file(path: Vec<u8>, why: SkipReason) -> Self {
        Self { path, why, extent: Extent::File }
    }

    /// Returns an entry for one directory that was not entered.
    pub fn dir(path: Vec<u8>, why: SkipReason) -> Self {
        Self { path, why, extent: Extent::Dir(None) }
    }

    /// Returns the path for display: a directory ends in a slash, and bytes that are not UTF-8 are replaced.
    pub fn shown_path(&self) -> String {
        String::from_utf8_lossy(&self.marked_path()).into_owned()
    }

    /// Returns the path with a slash after it if it is a directory.
    fn marked_path(&self) -> Cow<'_, [u8]> {
        match self.extent {
            Extent::File => Cow::Borrowed(&self.path),
            _ if self.path.is_empty() => Cow::Borrowed(b"./"),
            _ => Cow::Owned([&self.path[..], b"/"].concat()),
        }
    }
}

crate::json::serialized_as_word!(SkipReason);

/// JSON of a [`Skipped`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SkippedJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// reason
    why: SkipReason,
    /// number of files, or null if they were not counted
    files: Option<u64>,
}

impl<'a> From<&'a Skipped> for SkippedJson<'a> {
    fn from(skipped: &'a Skipped) -> Self {
        let files = match skipped.extent {
            Extent::File => Some(1),
            Extent::Dir(files) => files,
            Extent::Some(files) => Some(files),
        };
        Self { path: JsonPath::new(skipped.marked_path()), why: skipped.why, files }
    }
}

crate::json::serialized_as! {
    Skipped => SkippedJson<'_>;
}

/// Formats as `node_modules/ (excluded, 41,203 files not entered)`.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.shown_path(), self.why)?;
        match self.extent {
            Extent::File => {}
            Extent::Dir(Some(1)) if self.why == SkipReason::Purged => f.write_str(", 1 file")?,
            Extent::Dir(Some(files)) if self.why == SkipReason::Purged => write!(f, ", {} files", grouped(files))?,
            Extent::Dir(None) => f.write_str(", not entered")?,
            Extent::Dir(Some(1)) => f.write_str(", 1 file not entered")?,
            Extent::Dir(Some(files)) => write!(f, ", {} files not entered", grouped(files))?,
            Extent::Some(files) => write!(f, ", {} files", grouped(files))?,
        }
        f.write_str(")")
    }
}

/// Formats a number with separators: `41,203`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Number of files of one directory that are listed one by one.
pub(crate) const NAMED_MAX: usize = 8;

/// Sorts the entries and merges them: first the files of one directory that were skipped for the same reason, if there
/// are more than `NAMED_MAX`; then, while there are more than `lines_max` entries, whole directories, deepest first.
pub(crate) fn summarise(mut all: Vec<Skipped>, lines_max: usize) -> Vec<Skipped> {
    all.sort();
    let mut lines = fold(all, |skipped, alike| match skipped.extent {
        // A restore leaves changing files alone, and needs their names.
        Extent::File if alike > NAMED_MAX && skipped.why != SkipReason::Changing => {
            Some(relpath::split(&skipped.path).0.to_vec())
        }
        _ => None,
    });
    while lines.len() > lines_max {
        let depth = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count() + usize::from(!path.is_empty());
        let deepest = lines.iter().map(|skipped| depth(&skipped.path)).max().unwrap_or(0);
        if deepest == 0 {
            break;
        }
        lines = fold(lines, |skipped, _| {
            (depth(&skipped.path) == deepest).then(|| relpath::split(&skipped.path).0.to_vec())
        });
    }
    lines
}

/// Merges all entries for which `into` returns a directory, by directory and reason. `into` also gets the number of
/// entries with the same parent directory and reason.
fn fold(all: Vec<Skipped>, into: impl Fn(&Skipped, usize) -> Option<Vec<u8>>) -> Vec<Skipped> {
    let mut alike: BTreeMap<(Vec<u8>, SkipReason), usize> = BTreeMap::new();
    for skipped in &all {
        *alike.entry((relpath::split(&skipped.path).0.to_vec(), skipped.why)).or_default() += 1;
    }
    let mut merged: BTreeMap<(Vec<u8>, SkipReason), u64> = BTreeMap::new();
    let mut kept = Vec::new();
    for skipped in all {
        let here = (relpath::split(&skipped.path).0.to_vec(), skipped.why);
        match into(&skipped, alike[&here]) {
            Some(dir) => *merged.entry((dir, skipped.why)).or_default() += count(skipped.extent),
            None => kept.push(skipped),
        }
    }
    kept.extend(merged.into_iter().map(|((path, why), files)| Skipped { path, why, extent: Extent::Some(files) }));
    kept.sort();
    kept
}

fn count(extent: Extent) -> u64 {
    match extent {
        Extent::File | Extent::Dir(None) => 1,
        Extent::Dir(Some(files)) | Extent::Some(files) => files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_of_one_directory_become_one_line() {
        let mut all: Vec<_> =
            (0..1203).map(|n| Skipped::file(format!("drivers/net/{n}.o").into_bytes(), SkipReason::Ignored)).collect();
        all.push(Skipped::file(b"drivers/net/secret".to_vec(), SkipReason::Unreadable));
        all.push(Skipped {
            path: b"node_modules".to_vec(),
            why: SkipReason::Excluded,
            extent: Extent::Dir(Some(41203)),
        });
        let lines: Vec<_> = summarise(all, 100).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "drivers/net/ (ignored, 1,203 files)",
                "drivers/net/secret (unreadable)",
                "node_modules/ (excluded, 41,203 files not entered)",
            ]
        );
    }

    #[test]
    fn the_summary_keeps_its_limit_and_its_sum() {
        let all: Vec<_> =
            (0..500).map(|n| Skipped::file(format!("a{}/b{n}/c", n % 7).into_bytes(), SkipReason::TooLarge)).collect();
        let lines = summarise(all, 10);
        assert!(lines.len() <= 10, "{lines:?}");
        assert_eq!(lines.iter().map(|line| count(line.extent)).sum::<u64>(), 500);
    }
}
