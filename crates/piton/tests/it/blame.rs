//! Attribution of lines in scripted sessions of 50 turns. Every line has a unique token, so its writer is known.

use std::collections::{BTreeMap, HashMap};

use piton::ObjectId;
use piton::blame::{FileVersion, attribute, renamed_from};
use piton::merge::{Entry, EntryKind, Tree};
use testkit::Dice;

/// A writer of lines, as `blame` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Earlier,
    You,
    Turn(usize),
}

/// A file that is changed by agents and by its user: lines with their writers.
struct Script {
    dice: Dice,
    tokens: usize,
    lines: Vec<(Vec<u8>, Step)>,
}

impl Script {
    fn new(seed: u64) -> Self {
        let mut script = Self { dice: Dice::new(seed + 1), tokens: 0, lines: Vec::new() };
        let count = script.dice.between(5, 60);
        script.insert(0, count, Step::Earlier);
        script
    }

    fn insert(&mut self, at: usize, count: usize, step: Step) {
        let mut lines = Vec::new();
        for _ in 0..count {
            self.tokens += 1;
            let indent = " ".repeat(4 * self.dice.roll(3));
            let end = if self.dice.roll(5) == 0 { "\r\n" } else { "\n" };
            lines.push((format!("{indent}call_{}();{end}", self.tokens).into_bytes(), step));
        }
        self.lines.splice(at..at, lines);
    }

    /// Inserts, deletes, replaces or reformats some lines.
    fn edit(&mut self, step: Step) {
        for _ in 0..self.dice.between(1, 4) {
            let at = self.dice.roll(self.lines.len() + 1);
            let end = (at + self.dice.roll(5)).min(self.lines.len());
            match self.dice.roll(4) {
                0 | 1 => {
                    let count = self.dice.between(1, 6);
                    self.insert(at, count, step);
                }
                2 => drop(self.lines.drain(at..end)),
                _ => {
                    for (line, by) in &mut self.lines[at..end] {
                        line.splice(0..0, *b"\t");
                        *by = step;
                    }
                }
            }
        }
    }

    fn text(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|(line, _)| line.clone()).collect()
    }
}

#[test]
fn every_line_of_a_session_of_50_turns_belongs_to_its_writer() {
    let mut lines = 0;
    for seed in 0..60 {
        let mut script = Script::new(seed);
        let mut versions = vec![(script.text(), Step::Earlier)];
        for turn in 0..50 {
            script.edit(Step::Turn(turn));
            versions.push((script.text(), Step::Turn(turn)));
            // Most turns are followed by an edit of the user; the others leave the file as it is.
            if script.dice.roll(3) > 0 {
                script.edit(Step::You);
            }
            versions.push((script.text(), Step::You));
        }
        let versions: Vec<_> = versions.iter().map(|(text, step)| FileVersion { text, step: *step }).collect();
        let want: Vec<Step> = script.lines.iter().map(|(_, step)| *step).collect();
        assert_eq!(attribute(&versions), Some(want), "seed {seed}");
        lines += script.lines.len();
    }
    assert!(lines > 1000, "the sessions leave too few lines: {lines}");
}

#[test]
fn a_file_of_200_versions_and_10_000_lines_is_attributed() {
    let mut script = Script::new(7);
    script.insert(0, 10_000, Step::Earlier);
    let mut versions = vec![(script.text(), Step::Earlier)];
    for turn in 0..200 {
        script.edit(Step::Turn(turn));
        versions.push((script.text(), Step::Turn(turn)));
    }
    let versions: Vec<_> = versions.iter().map(|(text, step)| FileVersion { text, step: *step }).collect();
    let want: Vec<Step> = script.lines.iter().map(|(_, step)| *step).collect();
    assert_eq!(attribute(&versions), Some(want));
}

#[test]
fn a_version_that_is_no_text_has_no_lines_in_common() {
    let version = |text, step| FileVersion { text, step };
    assert_eq!(attribute::<u8>(&[]), None);
    assert_eq!(attribute(&[version(b"a\0", 1)]), None);
    assert_eq!(attribute(&[version(b"a\n", 1), version(b"a\0", 2), version(b"a\n", 3)]), Some(vec![3]));
    assert_eq!(attribute(&[version(b"a\n", 1), version(b"", 2), version(b"a\n", 3)]), Some(vec![3]));
    assert_eq!(attribute(&[version(b"a", 1), version(b"a\nb", 2)]), Some(vec![2, 2]));
    assert_eq!(attribute(&[version(b"", 1)]), Some(vec![]));
}

#[test]
fn a_file_is_followed_through_renames() {
    let contents: BTreeMap<u8, &[u8]> = BTreeMap::from([
        (1, &b"one\ntwo\nthree\nfour\n"[..]),
        (2, b"one\ntwo\nthree\nFOUR\n"),
        (3, b"something else\n"),
    ]);
    let id = |number: u8| ObjectId::from_bytes([number; 20]);
    let by_id: HashMap<ObjectId, &[u8]> = contents.iter().map(|(number, bytes)| (id(*number), *bytes)).collect();
    let tree = |files: &[(&str, u8)]| -> Tree {
        let entry = |number: u8| Entry { kind: EntryKind::File, id: id(number) };
        files.iter().map(|(path, number)| (path.as_bytes().to_vec(), entry(*number))).collect()
    };
    let follow = |path: &str, before: &[(&str, u8)], after: &[(&str, u8)]| {
        let mut read = |id| Ok(Some(by_id[&id].to_vec()));
        let from = renamed_from(path.as_bytes(), &tree(before), &tree(after), &mut read).expect("all is read");
        from.map(|path| String::from_utf8(path).expect("UTF-8"))
    };
    assert_eq!(follow("new", &[("old", 1)], &[("new", 1)]), Some("old".to_owned()));
    assert_eq!(follow("new", &[("old", 1), ("gone", 3)], &[("new", 2)]), Some("old".to_owned()));
    assert_eq!(follow("new", &[("old", 1)], &[("old", 1), ("new", 1)]), None);
    assert_eq!(follow("new", &[("old", 3)], &[("new", 1)]), None);
    assert_eq!(follow("same", &[("same", 1)], &[("same", 2)]), None);
}
