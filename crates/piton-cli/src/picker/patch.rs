//! The diff since a checkpoint, as lines to scroll through. A worker builds it once; after that it is only read.

use piton::{Diff, DiffStatus, FileDiff};

use crate::cmd::hunks::start_of;
use crate::output::plain;

/// Limit on lines held in memory; further lines are counted but not shown.
const LINES_MAX: usize = 200_000;
/// Longer lines are truncated: no screen is that wide.
const LINE_BYTES_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 64 << 20;
const TAB: &str = "    ";

/// Kind of a line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// Header of a file.
    Head,
    /// Header of a hunk.
    Hunk,
    /// In the current files, but not in the checkpoint.
    Added,
    /// In the checkpoint, but not in the current files.
    Removed,
    /// Context line, the same in both.
    Same,
    /// A note of the picker, not part of the patch.
    Note,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatchFile {
    /// Display name; for a renamed file, both names.
    pub(super) name: String,
    /// Path in the checkpoint, by which the file can be restored on its own. `None` if the checkpoint does not contain
    /// it.
    pub(super) path: Option<Vec<u8>>,
    /// Its paths on both sides.
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
    pub(super) is_binary: bool,
    pub(super) status: DiffStatus,
    /// Index of its first line.
    pub(super) at: usize,
}

/// Differences since a checkpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Patch {
    text: String,
    /// End offset in `text` and kind of each line.
    lines: Vec<(usize, LineKind)>,
    /// In the order of their lines.
    pub(super) files: Vec<PatchFile>,
    /// In the order of their lines.
    pub(super) hunks: Vec<ShownHunk>,
}

/// One hunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownHunk {
    /// Index of its first line, the header.
    pub(super) at: usize,
    /// Index of its file.
    pub(super) file: usize,
    /// Its first line in the new file, from 1 on.
    pub(super) start: usize,
}

impl Patch {
    pub(super) fn new(diff: &Diff) -> Self {
        let mut patch = Self { files: files(diff), ..Self::default() };
        let mut headers = Vec::new();
        let mut last_header: &[u8] = b"";
        let mut place = Place::Head;
        let mut unshown = 0_usize;
        for line in diff.patch.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let starts_file = line.starts_with(b"diff --git ");
            // A file that became a link has two sections in a patch, but is one change.
            if starts_file && line != last_header {
                last_header = line;
                headers.push(patch.lines.len());
            }
            let (kind, next) = place.read(line);
            place = next;
            match kind {
                None => {}
                Some(_) if patch.lines.len() >= LINES_MAX || patch.text.len() >= TEXT_BYTES_MAX => unshown += 1,
                Some(LineKind::Note) => patch.push("binary contents differ", LineKind::Note),
                Some(kind) => {
                    if let (LineKind::Hunk, Some(start)) = (kind, start_of(line)) {
                        let (at, file) = (patch.lines.len(), headers.len().saturating_sub(1));
                        patch.hunks.push(ShownHunk { at, file, start });
                    }
                    patch.push(&shown(line), kind);
                }
            }
        }
        if unshown > 0 {
            let end = patch.lines.len();
            patch.push(&format!("... and {unshown} more lines: `piton diff` has them all"), LineKind::Note);
            headers.iter_mut().for_each(|at| *at = (*at).min(end));
        }
        for (file, at) in patch.files.iter_mut().zip(headers) {
            file.at = at;
        }
        patch.text.shrink_to_fit();
        patch
    }

    fn push(&mut self, line: &str, kind: LineKind) {
        self.text.push_str(line);
        self.lines.push((self.text.len(), kind));
    }

    /// Returns the number of lines.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns up to `count` lines, beginning with line `from`.
    pub(super) fn lines(&self, from: usize, count: usize) -> impl Iterator<Item = (&str, LineKind)> {
        let end = self.lines.len().min(from.saturating_add(count));
        (from.min(end)..end).map(|at| {
            let start = at.checked_sub(1).map_or(0, |before| self.lines[before].0);
            let (end, kind) = self.lines[at];
            (&self.text[start..end], kind)
        })
    }

    /// Returns the index of the file that a line belongs to.
    pub(super) fn file_at(&self, line: usize) -> usize {
        self.files.partition_point(|file| file.at <= line).saturating_sub(1)
    }

    /// Returns the numbers of lines added and removed.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.files.iter().fold((0, 0), |(plus, minus), file| (plus + file.insertions, minus + file.deletions))
    }
}

/// Returns the files in the order of the patch: renamed files first, then the others, each group by path.
fn files(diff: &Diff) -> Vec<PatchFile> {
    let is_moved = |file: &&FileDiff| file.status == DiffStatus::Renamed;
    let ordered = diff.files.iter().filter(is_moved).chain(diff.files.iter().filter(|file| !is_moved(file)));
    let name = |path: &[u8]| plain(&String::from_utf8_lossy(path));
    let file = |file: &FileDiff| PatchFile {
        name: match &file.old_path {
            Some(old) => format!("{} => {}", name(old), name(&file.path)),
            None => name(&file.path),
        },
        path: match file.status {
            DiffStatus::Added => None,
            _ => Some(file.old_path.as_ref().unwrap_or(&file.path).clone()),
        },
        paths: file.old_path.iter().chain([&file.path]).cloned().collect(),
        insertions: file.insertions,
        deletions: file.deletions,
        is_binary: file.is_binary,
        status: file.status,
        at: 0,
    };
    ordered.map(file).collect()
}

/// Parser state: `--- x` names a file before the first hunk, and is a removed line after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    Hunk,
    Binary,
}

impl Place {
    /// Returns the kind of a line, or `None` if it is not shown, and the parser state for the next line.
    fn read(self, line: &[u8]) -> (Option<LineKind>, Self) {
        // No line of a hunk begins with a letter, and none of a binary patch contains a space.
        if line.starts_with(b"diff --git ") {
            return (Some(LineKind::Head), Self::Head);
        }
        match (self, line.first()) {
            (Self::Head, _) if line == b"GIT binary patch" => (Some(LineKind::Note), Self::Binary),
            (Self::Binary, _) => (None, Self::Binary),
            (_, Some(b'@')) => (Some(LineKind::Hunk), Self::Hunk),
            // Object ids are of no use to people.
            (Self::Head, _) if line.starts_with(b"index ") => (None, Self::Head),
            (Self::Head, _) => (Some(LineKind::Head), Self::Head),
            (Self::Hunk, Some(b'+')) => (Some(LineKind::Added), self),
            (Self::Hunk, Some(b'-')) => (Some(LineKind::Removed), self),
            (Self::Hunk, _) => (Some(LineKind::Same), self),
        }
    }
}

/// Returns a line as it is shown: truncated, with tabs expanded and control characters replaced.
fn shown(line: &[u8]) -> String {
    let line = &line[..line.len().min(LINE_BYTES_MAX)];
    plain(&String::from_utf8_lossy(line).replace('\t', TAB).replace('\r', "␍"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, status: DiffStatus) -> FileDiff {
        let mut file = FileDiff::new(path, status);
        file.old_path = (status == DiffStatus::Renamed).then(|| b"old".to_vec());
        (file.insertions, file.deletions) = (1, 2);
        file
    }

    fn patch_of(files: Vec<FileDiff>, patch: impl Into<Vec<u8>>) -> Patch {
        let mut diff = Diff::default();
        (diff.files, diff.patch) = (files, patch.into());
        Patch::new(&diff)
    }

    fn kinds(patch: &Patch) -> Vec<LineKind> {
        patch.lines(0, usize::MAX).map(|(_, kind)| kind).collect()
    }

    #[test]
    fn a_line_that_looks_like_a_header_is_read_by_where_it_stands() {
        let text = b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- x\n+++ y\n same\n";
        let patch = patch_of(vec![file("x", DiffStatus::Modified)], text.to_vec());
        use LineKind::{Added, Head, Hunk, Removed, Same};
        assert_eq!(kinds(&patch), [Head, Head, Head, Hunk, Removed, Added, Same]);
    }

    #[test]
    fn files_begin_where_the_patch_has_them() {
        let text = "diff --git a/old b/z\nsimilarity index 100%\n\
                    diff --git a/a b/a\ndeleted file mode 100644\n\
                    diff --git a/a b/a\nnew file mode 120000\n\
                    diff --git a/b b/b\nGIT binary patch\nliteral 3\ndiff--git\n\ndiff --git a/c b/c\nold mode 1\n";
        let files = vec![
            file("a", DiffStatus::Modified),
            file("b", DiffStatus::Modified),
            file("c", DiffStatus::Added),
            file("z", DiffStatus::Renamed),
        ];
        let patch = patch_of(files, text);
        let at: Vec<_> = patch.files.iter().map(|file| (file.name.as_str(), file.at)).collect();
        assert_eq!(at, [("old => z", 0), ("a", 2), ("b", 6), ("c", 8)]);
        assert_eq!(patch.lines(7, 1).next(), Some(("binary contents differ", LineKind::Note)));
        assert_eq!((patch.file_at(0), patch.file_at(5), patch.file_at(7), patch.file_at(99)), (0, 1, 2, 3));
        let paths: Vec<_> = patch.files.iter().map(|file| file.path.as_deref()).collect();
        assert_eq!(paths, [Some(&b"old"[..]), Some(b"a"), Some(b"b"), None]);
        assert_eq!(patch.totals(), (4, 8));
    }

    #[test]
    fn what_is_held_has_a_limit() {
        let mut text = b"diff --git a/x b/x\n@@ -0,0 +1 @@\n".to_vec();
        text.extend(b"+a\n".repeat(LINES_MAX));
        text.extend(b"diff --git a/y b/y\n");
        let files = vec![file("x", DiffStatus::Modified), file("y", DiffStatus::Modified)];
        let patch = patch_of(files, text);
        assert_eq!(patch.len(), LINES_MAX + 1);
        let (last, _) = patch.lines(LINES_MAX, 9).next().expect("the last line");
        assert_eq!(last, "... and 3 more lines: `piton diff` has them all");
        assert_eq!(patch.files[1].at, LINES_MAX);
        let long = [b"diff --git a/x b/x\n@@ @@\n+", "é".repeat(5000).as_bytes()].concat();
        let patch = patch_of(vec![file("x", DiffStatus::Modified)], long);
        assert!(patch.lines(2, 1).next().expect("a line").0.len() <= LINE_BYTES_MAX + 2);
    }

    #[test]
    fn nothing_of_a_file_moves_the_cursor() {
        let text = b"diff --git a/x b/x\n@@ -1 +1 @@\n+\ta\x1b[2J\r\n".to_vec();
        let patch = patch_of(vec![file("x\n\x1b", DiffStatus::Modified)], text);
        assert_eq!(patch.lines(2, 1).next(), Some(("+    a\u{fffd}[2J␍", LineKind::Added)));
        assert_eq!(patch.files[0].name, "x \u{fffd}");
    }
}
