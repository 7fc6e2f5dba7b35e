//! The files of a project: what a step does to them, what a checkpoint holds of them, and what a restore may make of them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use testkit::Held;

use crate::kit::Dice;
use crate::restore_kit::{Node, State, assert_same};

/// Few names, so that they meet: files, directories and links take each other's place.
pub(super) const NAMES: [&str; 16] = [
    "a", "b", "c", "a/a", "a/b", "a/c", "b/a", "b/b", "c/a", "a/a/a", "a/b/c", "b/a/b", "c.ig", "a/c.ig", "b/c.ig/a",
    "-a.b",
];
const RULES: &str = ".gitignore";
const TARGETS: [&str; 4] = ["a", "../b", "/nowhere", "c/a"];
const FILE_MODES: [u32; 7] = [0o644, 0o644, 0o644, 0o600, 0o755, 0o700, 0o444];
const DIR_MODES: [u32; 3] = [0o755, 0o700, 0o750];

/// What the ignore rules of a project are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rules {
    /// Nothing is ignored.
    None,
    /// All that ends in `.ig`.
    Ends,
    /// The same, and all that is called `b`.
    EndsAndB,
}

impl Rules {
    fn text(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::Ends => b"*.ig\n",
            Self::EndsAndB => b"*.ig\nb\n",
        }
    }

    /// Those of a state.
    pub(super) fn of(state: &State) -> Self {
        match state.get(RULES.as_bytes()) {
            Some(Node::File(_, bytes)) if bytes == Self::Ends.text() => Self::Ends,
            Some(Node::File(_, bytes)) if bytes == Self::EndsAndB.text() => Self::EndsAndB,
            _ => Self::None,
        }
    }

    pub(super) fn ignore(self, path: &[u8]) -> bool {
        let ignores = |name: &[u8]| match self {
            Self::None => false,
            Self::Ends => name.ends_with(b".ig"),
            Self::EndsAndB => name.ends_with(b".ig") || name == b"b",
        };
        path.split(|byte| *byte == b'/').any(ignores)
    }
}

/// One change of a project's files. One that the file system refuses does nothing, and so every part of a list of steps
/// is a list of steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Edit {
    /// One of few contents, so that the same ones meet again.
    Write {
        name: usize,
        text: u8,
        mode: usize,
    },
    /// So many KiB that do not compress.
    Noise {
        name: usize,
        kib: usize,
    },
    MakeDir {
        name: usize,
        mode: usize,
    },
    Link {
        name: usize,
        to: usize,
    },
    Append {
        name: usize,
    },
    Remove {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Chmod {
        name: usize,
        mode: usize,
    },
    Rules {
        rules: Rules,
    },
}

pub(super) fn edit() -> impl Strategy<Value = Edit> {
    let name = || 0..NAMES.len();
    let rules = prop_oneof![Just(Rules::None), Just(Rules::Ends), Just(Rules::EndsAndB)];
    prop_oneof![
        6 => (name(), 0..12u8, 0..FILE_MODES.len()).prop_map(|(name, text, mode)| Edit::Write { name, text, mode }),
        1 => (name(), 1..200usize).prop_map(|(name, kib)| Edit::Noise { name, kib }),
        3 => (name(), 0..DIR_MODES.len()).prop_map(|(name, mode)| Edit::MakeDir { name, mode }),
        2 => (name(), 0..TARGETS.len()).prop_map(|(name, to)| Edit::Link { name, to }),
        1 => name().prop_map(|name| Edit::Append { name }),
        2 => name().prop_map(|name| Edit::Remove { name }),
        2 => (name(), name()).prop_map(|(from, to)| Edit::Rename { from, to }),
        2 => (name(), 0..FILE_MODES.len()).prop_map(|(name, mode)| Edit::Chmod { name, mode }),
        1 => rules.prop_map(|rules| Edit::Rules { rules }),
    ]
}

impl Edit {
    pub(super) fn make(&self, dir: &Path) {
        let at = |name: usize| dir.join(NAMES[name]);
        let set_mode = |path: &PathBuf, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode));
        let _ = match self {
            Self::Write { name, text, mode } => {
                clear(&at(*name));
                let bytes = format!("text {text}\n").repeat(if *text == 0 { 3000 } else { 1 });
                fs::write(at(*name), bytes).and_then(|()| set_mode(&at(*name), FILE_MODES[*mode]))
            }
            Self::Noise { name, kib } => {
                clear(&at(*name));
                fs::write(at(*name), Dice::new((*name * 1000 + *kib) as u64).noise(kib << 10))
            }
            Self::MakeDir { name, mode } => {
                clear(&at(*name));
                fs::create_dir(at(*name)).and_then(|()| set_mode(&at(*name), DIR_MODES[*mode]))
            }
            Self::Link { name, to } => {
                clear(&at(*name));
                symlink(TARGETS[*to], at(*name))
            }
            Self::Append { name } if !at(*name).is_symlink() => {
                fs::read(at(*name)).and_then(|bytes| fs::write(at(*name), [&bytes[..], b"more\n"].concat()))
            }
            Self::Remove { name } => {
                clear(&at(*name));
                Ok(())
            }
            Self::Rename { from, to } => fs::rename(at(*from), at(*to)),
            // Never through a link: the permissions would be those of something else.
            Self::Chmod { name, mode } if !at(*name).is_symlink() => {
                let mode = if at(*name).is_dir() { DIR_MODES[*mode % DIR_MODES.len()] } else { FILE_MODES[*mode] };
                set_mode(&at(*name), mode)
            }
            Self::Append { .. } | Self::Chmod { .. } => Ok(()),
            Self::Rules { rules } => fs::write(dir.join(RULES), rules.text()),
        };
    }
}

/// Makes room for something: whatever is there goes. Not through a link in the path, which may lead out of the project.
fn clear(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(path).expect("a directory of ours");
    } else {
        let _ = fs::remove_file(path);
    }
}

/// What a checkpoint of this state holds.
pub(super) fn held(state: &State) -> BTreeMap<Vec<u8>, Held> {
    let rules = Rules::of(state);
    let in_scope = state.iter().filter(|(path, _)| !rules.ignore(path));
    in_scope.filter_map(|(path, node)| Some((path.clone(), as_held(node)?))).collect()
}

fn as_held(node: &Node) -> Option<Held> {
    match node {
        Node::File(mode, bytes) => Some(Held::File(mode & 0o100 != 0, bytes.clone())),
        Node::Link(target) => Some(Held::Link(target.clone())),
        Node::Dir(_) | Node::Special => None,
    }
}

pub(super) fn is_within(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// The directories around a path, innermost first.
fn around(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(parent(path)), |dir| Some(parent(dir))).take_while(|dir| !dir.is_empty())
}

fn is_dir(node: &Node) -> bool {
    matches!(node, Node::Dir(_))
}

/// A restore of `want` that made `after` of `before`.
pub(super) struct Went<'a> {
    pub(super) before: &'a State,
    pub(super) after: &'a State,
    pub(super) want: &'a State,
    /// All that was asked for; everything, if there are none.
    pub(super) paths: &'a [Vec<u8>],
    /// Whether nothing was left as it was.
    pub(super) is_all: bool,
    /// Whether the checkpoint lost some of what it held to a purge.
    pub(super) is_purged: bool,
    pub(super) words: &'a str,
}

impl Went<'_> {
    fn is_meant(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| is_within(path, wanted))
    }

    /// It did what it should, and nothing else.
    pub(super) fn check(&self) {
        let rules = Rules::of(self.before);
        if rules == Rules::of(self.want) && !self.is_purged {
            self.check_to_the_last_bit(rules);
        } else {
            self.check_files();
        }
    }

    fn check_to_the_last_bit(&self, rules: Rules) {
        let Self { before, after, want, paths, is_all, words, .. } = *self;
        let is_ignored = |path: &[u8]| rules.ignore(path);
        let is_meant = |path: &[u8]| self.is_meant(path);
        let leads_to = |path: &[u8]| paths.iter().any(|wanted| is_within(wanted, path));
        let same = |want: &State, keep: &dyn Fn(&[u8]) -> bool, what: &str| {
            let only = |state: &State| -> State {
                state.iter().filter(|(path, _)| keep(path)).map(|(path, node)| (path.clone(), node.clone())).collect()
            };
            assert_same(&only(after), &only(want), &format!("{what} after {words}"));
        };
        same(before, &is_ignored, "ignored files");
        // A directory around a path may have been made or dropped with it.
        same(before, &|path| !is_meant(path) && !leads_to(path), "other files");
        let holds_ignored = |path: &[u8]| before.keys().any(|other| is_ignored(other) && is_within(other, path));
        let stays = |path: &[u8]| !is_ignored(path) && holds_ignored(path);
        same(before, &|path| stays(path) && !want.get(path).is_some_and(is_dir), "what holds ignored files");
        // What stands in the way of a checkpoint and may not be touched is left: ignored files where it has none, and
        // a file that was not asked for, where a path that was is in a directory of that name.
        let blocks = |path: &[u8]| around(path).any(|dir| want.get(dir).is_some_and(|node| !is_dir(node)));
        let has_room = |path: &[u8]| around(path).all(|dir| before.get(dir).is_none_or(is_dir));
        if is_all {
            same(
                want,
                &|path| is_meant(path) && !is_ignored(path) && (want.contains_key(path) || !stays(path)),
                "files",
            );
        } else {
            let is_excused = before.keys().any(|path| is_ignored(path) && blocks(path));
            assert!(is_excused || !paths.iter().all(|path| has_room(path)), "something was left after {words}");
        }
    }

    /// The rules were others then, or some of the checkpoint is gone: files only, and what was in scope at one of the two
    /// times alone is either as it was or as the checkpoint has it.
    pub(super) fn check_files(&self) {
        let (now, then) = (Rules::of(self.before), Rules::of(self.want));
        let held = |state: &State, path: &Vec<u8>| state.get(path).and_then(as_held);
        let all = self.before.keys().chain(self.after.keys()).chain(self.want.keys());
        for path in all {
            let [before, after, want] = [self.before, self.after, self.want].map(|state| held(state, path));
            let is_right = if !self.is_meant(path) {
                after == before
            } else if now.ignore(path) {
                after == before || before.is_none() && after == want
            } else if then.ignore(path) {
                after == before || after.is_none()
            } else {
                after == want || !self.is_all
            };
            let shown = String::from_utf8_lossy(path);
            assert!(is_right, "{shown} after {}: was {before:?}, is {after:?}, then {want:?}", self.words);
        }
    }
}
