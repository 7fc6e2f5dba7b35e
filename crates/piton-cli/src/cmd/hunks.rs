//! The changes of a turn by file and hunk, and the prompt to select among them, like that of `git add -p`.

use std::collections::BTreeSet;
use std::io;

use piton::{Diff, DiffStatus, FileDiff};

use super::diff::shown as shown_patch;
use super::restore::shown;
use crate::output::Output;

/// One hunk of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatchHunk {
    /// Its first line in the new file, from 1 on, as its header says.
    pub(crate) start: usize,
    /// The header and the lines.
    text: Vec<u8>,
}

/// The part of a patch about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePatch {
    pub(crate) file: FileDiff,
    /// Lines before the first hunk.
    head: Vec<u8>,
    /// Empty if the file can only be taken back as a whole.
    pub(crate) hunks: Vec<PatchHunk>,
}

impl FilePatch {
    /// Returns the paths of the file; of a renamed file, both.
    fn paths(&self) -> impl Iterator<Item = Vec<u8>> {
        [Some(self.file.path.clone()), self.file.old_path.clone()].into_iter().flatten()
    }
}

/// Splits a patch into files and hunks.
pub(crate) fn split(diff: &Diff) -> Vec<FilePatch> {
    let is_renamed = |file: &&FileDiff| file.status == DiffStatus::Renamed;
    // Renamed files come first in a patch.
    let files = diff.files.iter().filter(is_renamed).chain(diff.files.iter().filter(|file| !is_renamed(file)));
    let mut patches: Vec<FilePatch> =
        files.map(|file| FilePatch { file: file.clone(), head: Vec::new(), hunks: Vec::new() }).collect();
    let (mut at, mut last_header, mut is_binary) = (None, Vec::new(), false);
    for line in diff.patch.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"diff --git ") {
            // A file that became a link has two sections, and is one change.
            if line != last_header {
                at = Some(at.map_or(0, |at| at + 1));
            }
            (last_header, is_binary) = (line.to_vec(), false);
        }
        let Some(patch) = at.and_then(|at: usize| patches.get_mut(at)) else { continue };
        is_binary |= line.starts_with(b"GIT binary patch");
        match (start_of(line).filter(|_| !is_binary), patch.hunks.last_mut()) {
            (Some(start), _) => patch.hunks.push(PatchHunk { start, text: line.to_vec() }),
            (None, Some(hunk)) if !line.starts_with(b"diff --git ") => hunk.text.extend_from_slice(line),
            _ if is_binary => {}
            _ => patch.head.extend_from_slice(line),
        }
    }
    for patch in &mut patches {
        // Only a file that exists on both sides under the same name has hunks of its own.
        if patch.file.status != DiffStatus::Modified || patch.hunks.len() < 2 {
            let text: Vec<u8> = patch.hunks.drain(..).flat_map(|hunk| hunk.text).collect();
            patch.head.extend(text);
        }
    }
    patches
}

/// Returns the first line in the new file that the header of a hunk names: `@@ -1,2 +3,4 @@`.
pub(crate) fn start_of(line: &[u8]) -> Option<usize> {
    let ranges = line.strip_prefix(b"@@ -")?;
    let plus = ranges.iter().position(|byte| *byte == b'+')?;
    let digits = ranges[plus + 1..].iter().take_while(|byte| byte.is_ascii_digit());
    String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
}

/// Files and hunks that the user chose.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) paths: Vec<Vec<u8>>,
    /// The hunks of files of which not all were chosen, by their first line.
    pub(crate) hunks: Vec<(Vec<u8>, BTreeSet<usize>)>,
}

const HELP: &str = "\
y - take back this hunk
n - do not take back this hunk
a - take back this hunk and all later ones in the file
d - take back neither this hunk nor a later one in the file
q - quit: take back only what was chosen until now
? - print this help";

/// Shows each hunk and asks whether it is taken back. Returns `None` if none is chosen.
pub(crate) fn choose(patches: &[FilePatch], output: &Output) -> io::Result<Option<Chosen>> {
    choose_by(patches, &mut |text, question| {
        output.text(String::from_utf8_lossy(&shown_patch(text, output)).trim_end_matches('\n'));
        loop {
            match output.asked(question)?.as_deref() {
                None => return Ok(Answer::Quit),
                Some("y" | "yes") => return Ok(Answer::Yes),
                Some("n" | "no") => return Ok(Answer::No),
                Some("a") => return Ok(Answer::All),
                Some("d") => return Ok(Answer::Done),
                Some("q") => return Ok(Answer::Quit),
                Some(_) => output.text(HELP),
            }
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    All,
    Done,
    Quit,
}

fn choose_by(
    patches: &[FilePatch],
    ask: &mut dyn FnMut(&[u8], &str) -> io::Result<Answer>,
) -> io::Result<Option<Chosen>> {
    let mut chosen = Chosen::default();
    'files: for patch in patches {
        if patch.hunks.is_empty() {
            let what = match patch.file.status {
                DiffStatus::Added => "the addition of",
                DiffStatus::Deleted => "the deletion of",
                DiffStatus::Renamed => "the new name of",
                _ => "the change of",
            };
            let question = format!("Take back {what} {} [y,n,a,d,q,?]? ", shown(&patch.file.path));
            match ask(&patch.head, &question)? {
                Answer::Yes | Answer::All => chosen.paths.extend(patch.paths()),
                Answer::No | Answer::Done => {}
                Answer::Quit => break,
            }
            continue;
        }
        let (mut starts, mut rest, mut is_over) = (BTreeSet::new(), None, false);
        for (at, hunk) in patch.hunks.iter().enumerate() {
            let answer = match rest {
                Some(answer) => answer,
                None => {
                    let head: &[u8] = if at == 0 { &patch.head } else { b"" };
                    let place = format!("({}/{}) ", at + 1, patch.hunks.len());
                    ask(&[head, &hunk.text].concat(), &format!("{place}Take back this hunk [y,n,a,d,q,?]? "))?
                }
            };
            match answer {
                Answer::Yes | Answer::All => drop(starts.insert(hunk.start)),
                Answer::No | Answer::Done => {}
                Answer::Quit => is_over = true,
            }
            rest = rest.or((answer != Answer::Yes && answer != Answer::No).then_some(answer));
        }
        if !starts.is_empty() {
            chosen.paths.push(patch.file.path.clone());
            if starts.len() < patch.hunks.len() {
                chosen.hunks.push((patch.file.path.clone(), starts));
            }
        }
        if is_over {
            break 'files;
        }
    }
    Ok((!chosen.paths.is_empty()).then_some(chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, status: DiffStatus) -> FileDiff {
        FileDiff::new(path, status)
    }

    fn diff() -> Diff {
        let mut diff = Diff::default();
        diff.files = vec![
            file("a", DiffStatus::Modified),
            file("b", DiffStatus::Added),
            file("c", DiffStatus::Modified),
            file("z", DiffStatus::Renamed),
        ];
        diff.files[3].old_path = Some(b"y".to_vec());
        diff.patch = b"diff --git a/y b/z\nsimilarity index 100%\n\
            diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n@@ -20 +20 @@ fn\n-20\n+@@ -1 +7 @@\n\
            @@ -40,0 +41,2 @@\n+41\n+42\n\
            diff --git a/b b/b\nnew file mode 100644\n@@ -0,0 +1 @@\n+b\n\
            diff --git a/c b/c\nGIT binary patch\nliteral 3\n@@ -1 +1 @@\n\n"
            .to_vec();
        diff
    }

    #[test]
    fn a_patch_is_split_into_files_and_hunks() {
        let patches = split(&diff());
        let shape: Vec<(&[u8], Vec<usize>)> = patches
            .iter()
            .map(|patch| (&*patch.file.path, patch.hunks.iter().map(|hunk| hunk.start).collect()))
            .collect();
        assert_eq!(shape, [(&b"z"[..], vec![]), (b"a", vec![1, 20, 41]), (b"b", vec![]), (b"c", vec![])]);
        assert_eq!(patches[1].hunks[1].text, b"@@ -20 +20 @@ fn\n-20\n+@@ -1 +7 @@\n");
        assert!(patches[2].head.ends_with(b"@@ -0,0 +1 @@\n+b\n"));
    }

    #[test]
    fn each_answer_means_what_it_means_to_git() {
        let chosen = |answers: &str| {
            let mut answers = answers.chars();
            let mut ask = |_: &[u8], _: &str| {
                Ok(match answers.next().expect("an answer") {
                    'y' => Answer::Yes,
                    'a' => Answer::All,
                    'd' => Answer::Done,
                    'q' => Answer::Quit,
                    _ => Answer::No,
                })
            };
            let chosen = choose_by(&split(&diff()), &mut ask).expect("answers").unwrap_or_default();
            assert_eq!(answers.next(), None, "all answers are used");
            let names = |paths: &[Vec<u8>]| paths.iter().map(|path| path[0] as char).collect::<String>();
            (names(&chosen.paths), chosen.hunks.into_iter().flat_map(|(_, starts)| starts).collect::<Vec<_>>())
        };
        assert_eq!(chosen("nnynnn"), ("a".into(), vec![20]));
        assert_eq!(chosen("ynann"), ("zya".into(), vec![20, 41]));
        assert_eq!(chosen("naay"), ("abc".into(), vec![]));
        assert_eq!(chosen("nydyn"), ("ab".into(), vec![1]));
        assert_eq!(chosen("nyq"), ("a".into(), vec![1]));
        assert_eq!(chosen("q"), (String::new(), vec![]));
        assert_eq!(chosen("nnnnnn"), (String::new(), vec![]));
    }
}
