//! The files of a project: the edits of a step, the contents of a checkpoint, and the allowed results of a restore.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use testkit::Held;

use crate::kit::Dice;
use crate::restore_kit::{Node, State, assert_same};

/// Few names, so that they collide: files, directories and links replace each other.
pub(super) const NAMES: [&str; 24] = [
    "a",
    "b",
    "c",
    "a/a",
    "a/b",
    "a/c",
    "b/a",
    "b/b",
    "c/a",
    "a/a/a",
    "a/b/c",
    "b/a/b",
    "c.ig",
    "a/c.ig",
    "b/c.ig/a",
    "-a.b",
    "tmp",
    "tmp/ lead",
    "tmp/x",
    "tmp/ lead/x",
    "a.ex",
    "b.ex/a",
    "b.ex",
    "b/c.ig",
];
const RULES: &str = ".gitignore";
const NESTED: &str = "tmp/.gitignore";
const NESTED_TEXT: &[u8] = b"x\n";
const TARGETS: [&str; 4] = ["a", "../b", "/nowhere", "c/a"];
const FILE_MODES: [u32; 9] = [0o644, 0o644, 0o644, 0o600, 0o755, 0o700, 0o444, 0o777, 0o400];
const DIR_MODES: [u32; 3] = [0o755, 0o700, 0o750];

/// Ignore rules in the root of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rules {
    /// Nothing is ignored.
    None,
    /// Everything that ends in `.ig`.
    Ends,
    /// Everything that ends in `.ig` or is named `b`.
    EndsAndB,
    /// Everything named `tmp`.
    Tmp,
}

impl Rules {
    const ALL: [Self; 4] = [Self::None, Self::Ends, Self::EndsAndB, Self::Tmp];

    fn text(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::Ends => b"*.ig\n",
            Self::EndsAndB => b"*.ig\nb\n",
            Self::Tmp => b"tmp\n",
        }
    }

    fn ignores(self, name: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Ends => name.ends_with(b".ig"),
            Self::EndsAndB => name.ends_with(b".ig") || name == b"b",
            Self::Tmp => name == b"tmp",
        }
    }
}

/// All rules of a project: its `.gitignore` files, and the list in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scope {
    top: Rules,
    /// Directories with their own rules, which ignore everything named `x`.
    nested: Vec<Vec<u8>>,
    /// True if the settings exclude everything that ends in `.ex`.
    excludes: bool,
}

impl Scope {
    pub(super) const EXCLUDED: &str = "*.ex";

    /// Returns the rules of a state.
    pub(super) fn of(state: &State, excludes: bool) -> Self {
        let text = |path: &[u8]| match state.get(path) {
            Some(Node::File(_, bytes)) => Some(bytes.as_slice()),
            _ => None,
        };
        let top = Rules::ALL.into_iter().find(|rules| text(RULES.as_bytes()) == Some(rules.text()));
        let nested = state.keys().filter(|path| path.ends_with(b"/.gitignore") && text(path) == Some(NESTED_TEXT));
        Self { top: top.unwrap_or(Rules::None), nested: nested.map(|path| parent(path).to_vec()).collect(), excludes }
    }

    pub(super) fn ignore(&self, path: &[u8]) -> bool {
        let is_x = |dir: &Vec<u8>| {
            let rest = path.strip_prefix(dir.as_slice()).and_then(|rest| rest.strip_prefix(b"/"));
            rest.is_some_and(|rest| rest.split(|byte| *byte == b'/').any(|name| name == b"x"))
        };
        let is_nested = self.nested.iter().any(is_x);
        is_nested || self.excludes(path) || path.split(|byte| *byte == b'/').any(|name| self.top.ignores(name))
    }

    /// Returns true if the settings exclude this path.
    pub(super) fn excludes(&self, path: &[u8]) -> bool {
        self.excludes && path.split(|byte| *byte == b'/').any(|name| name.ends_with(b".ex"))
    }
}

/// One change of a project's files. A change that the file system refuses has no effect, so any part of a list of steps
/// is a valid list of steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Edit {
    /// One of few contents, so that the same ones occur again.
    Write {
        name: usize,
        text: u8,
        mode: usize,
    },
    /// This many KiB of incompressible data.
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
    /// Creates or removes the rules in `tmp`.
    Nested {
        is_there: bool,
    },
    /// Other bytes of the same length, with the old mtime set again.
    Disguise {
        name: usize,
    },
    /// A hard link to the same file.
    HardLink {
        from: usize,
        to: usize,
    },
    /// Other bytes of the same length, stored through a memory mapping of the file.
    Map {
        name: usize,
        byte: u8,
    },
}

/// Returns true if a class of steps is tested: all are, unless `PITON_MODEL_CLASSES` lists others.
fn has_class(name: &str) -> bool {
    std::env::var("PITON_MODEL_CLASSES").map_or(true, |classes| classes.split(',').any(|class| class == name))
}

pub(super) fn edit() -> impl Strategy<Value = Edit> {
    let name = || 0..NAMES.len();
    let rules = (0..Rules::ALL.len()).prop_map(|at| Rules::ALL[at]);
    let disguise = || name().prop_map(|name| Edit::Disguise { name }).boxed();
    let linked = || (name(), name()).prop_map(|(from, to)| Edit::HardLink { from, to }).boxed();
    let mapped = || (name(), any::<u8>()).prop_map(|(name, byte)| Edit::Map { name, byte }).boxed();
    prop_oneof![
        1 => any::<bool>().prop_map(|is_there| Edit::Nested { is_there }),
        1 => disguise(),
        1 => if has_class("links") { linked() } else { disguise() },
        1 => if has_class("mmap") { mapped() } else { disguise() },
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

/// Edits of the few names that some rule or list excludes, and of the rules.
pub(super) fn edit_left_out() -> impl Strategy<Value = Edit> {
    const LEFT_OUT: [usize; 8] = [0, 12, 16, 18, 20, 20, 21, 22];
    let name = || (0..LEFT_OUT.len()).prop_map(|at| LEFT_OUT[at]);
    let rules = (0..Rules::ALL.len()).prop_map(|at| Rules::ALL[at]);
    prop_oneof![
        6 => (name(), 1..6u8, 0..FILE_MODES.len()).prop_map(|(name, text, mode)| Edit::Write { name, text, mode }),
        2 => (name(), 0..DIR_MODES.len()).prop_map(|(name, mode)| Edit::MakeDir { name, mode }),
        1 => (name(), 0..TARGETS.len()).prop_map(|(name, to)| Edit::Link { name, to }),
        2 => name().prop_map(|name| Edit::Remove { name }),
        1 => (name(), name()).prop_map(|(from, to)| Edit::Rename { from, to }),
        2 => rules.prop_map(|rules| Edit::Rules { rules }),
        1 => any::<bool>().prop_map(|is_there| Edit::Nested { is_there }),
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
            // Never through a link, which would change the permissions of its target.
            Self::Chmod { name, mode } if !at(*name).is_symlink() => {
                let mode = if at(*name).is_dir() { DIR_MODES[*mode % DIR_MODES.len()] } else { FILE_MODES[*mode] };
                set_mode(&at(*name), mode)
            }
            Self::Append { .. } | Self::Chmod { .. } => Ok(()),
            Self::Rules { rules } => fs::write(dir.join(RULES), rules.text()),
            // Never through a link, which would write the rules to another directory.
            Self::Nested { .. } if dir.join("tmp").is_symlink() => Ok(()),
            Self::Nested { is_there: true } => fs::write(dir.join(NESTED), NESTED_TEXT),
            Self::Nested { is_there: false } => fs::remove_file(dir.join(NESTED)),
            Self::Disguise { name } => disguise(&at(*name)),
            Self::HardLink { from, to } => {
                clear(&at(*to));
                if at(*from).is_symlink() { Ok(()) } else { fs::hard_link(at(*from), at(*to)) }
            }
            Self::Map { name, byte } => {
                store_through_mapping(&at(*name), *byte);
                Ok(())
            }
        };
    }
}

/// Changes a byte of a file without changing its length, and sets the old mtime again.
fn disguise(path: &Path) -> std::io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() == 0 {
        return Ok(());
    }
    let mut bytes = fs::read(path)?;
    bytes[0] = bytes[0].wrapping_add(1);
    let file = fs::File::options().write(true).open(path)?;
    (&file).write_all(&bytes)?;
    file.set_modified(found.modified()?)
}

/// Stores a byte through a memory mapping, in a Python process: creating a mapping in this one would need unsafe code.
fn store_through_mapping(path: &Path, byte: u8) {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[0]=int(sys.argv[2])";
    if is_file && testkit::has_program("python3") {
        let _ = testkit::clean_command("python3").args(["-c", script]).arg(path).arg(byte.to_string()).status();
    }
}

/// Removes whatever is at `path`. Does not follow a link there, which may lead out of the project.
fn clear(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        let _ = fs::remove_dir_all(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// Returns the contents of a checkpoint of this state.
pub(super) fn held(state: &State, excludes: bool) -> BTreeMap<Vec<u8>, Held> {
    let rules = Scope::of(state, excludes);
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

/// Returns the parent directories of a path, innermost first.
fn around(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(parent(path)), |dir| Some(parent(dir))).take_while(|dir| !dir.is_empty())
}

fn is_dir(node: &Node) -> bool {
    matches!(node, Node::Dir(_))
}

/// A restore to `want` that turned `before` into `after`.
pub(super) struct Went<'a> {
    pub(super) before: &'a State,
    pub(super) after: &'a State,
    pub(super) want: &'a State,
    /// The rules before it, and those of the checkpoint.
    pub(super) rules: [Scope; 2],
    /// Restored paths. Empty for all.
    pub(super) paths: &'a [Vec<u8>],
    /// True if everything could be restored.
    pub(super) is_all: bool,
    /// True if files that no checkpoint covers are moved aside.
    pub(super) moves_aside: bool,
    /// True if the checkpoint holds exactly the files in scope of its state: no purge removed any, and no restore added
    /// files out of scope.
    pub(super) is_plain: bool,
    /// Contents of the checkpoints taken before it: by a killed restore, and by the one that continued it.
    pub(super) saved: &'a [BTreeMap<Vec<u8>, Held>],
    pub(super) words: &'a str,
}

impl Went<'_> {
    fn is_meant(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| is_within(path, wanted))
    }

    /// Asserts that it did what it should, and nothing else.
    pub(super) fn check(&self) {
        let [now, then] = &self.rules;
        if now == then && self.is_plain && !self.moves_aside {
            self.check_to_the_last_bit(now);
        } else {
            self.check_files();
        }
        self.check_nothing_is_lost();
    }

    /// Returns true if the file was moved aside for a restored path below it: with `--force-uncovered`, or by a restore to a
    /// checkpoint that lists moves.
    fn made_way(&self, path: &Vec<u8>) -> bool {
        let is_moved = |other: &Vec<u8>| other != path && without_aside(other) == *path;
        let is_below = |wanted: &Vec<u8>| is_within(wanted, path);
        (self.moves_aside || !self.is_plain) && self.paths.iter().any(is_below) && self.after.keys().any(is_moved)
    }

    /// Asserts that each file is where it was, or was moved aside, or is in the checkpoint taken first. Files that no
    /// checkpoint covers are not touched at all, except by a restore to a checkpoint that lists what a restore created
    /// out of scope.
    fn check_nothing_is_lost(&self) {
        let now = &self.rules[0];
        // Files that restored rules bring into scope are in the safety checkpoint. These are the rules of the
        // checkpoint only if all of it was restored.
        let after = Scope::of(self.after, now.excludes);
        let is_uncovered = |path: &[u8]| now.ignore(path) && after.ignore(path);
        for (path, node) in self.before.iter().filter(|(_, node)| !is_dir(node)) {
            // It was moved aside, or it is moved back; or the reverse, if that is undone.
            let is_moved =
                |(other, found): (&Vec<u8>, &Node)| found == node && without_aside(other) == without_aside(path);
            let may_move = self.moves_aside || !self.is_plain;
            let is_there = self.after.get(path) == Some(node) || may_move && self.after.iter().any(is_moved);
            let may_go = !self.is_plain || !is_uncovered(path);
            let is_safe = is_there || may_go && self.is_saved(path, node);
            assert!(is_safe, "{} is lost after {}", String::from_utf8_lossy(path), self.words);
        }
    }

    /// Returns true if the contents are in a checkpoint taken first. Permissions are compared elsewhere.
    fn is_saved(&self, path: &[u8], node: &Node) -> bool {
        let held = as_held(node);
        self.saved.iter().any(|saved| saved.get(path) == held.as_ref())
            || self.after.get(path).and_then(as_held) == held
    }

    fn check_to_the_last_bit(&self, rules: &Scope) {
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
        // A parent directory of a path may have been created or removed with it.
        same(before, &|path| !is_meant(path) && !leads_to(path), "other files");
        let holds_ignored = |path: &[u8]| before.keys().any(|other| is_ignored(other) && is_within(other, path));
        let stays = |path: &[u8]| !is_ignored(path) && holds_ignored(path);
        same(before, &|path| stays(path) && !want.get(path).is_some_and(is_dir), "what holds ignored files");
        // Files in the way of a checkpoint that may not be touched are left: ignored files that it does not hold, and a
        // file that is not among the restored paths where one of these is in a directory of that name.
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

    /// Compares files only, for rules that differ or a checkpoint that does not hold exactly the files of its state.
    /// Files in scope at only one of the two times are unchanged or as in the checkpoint. Files that restored rules
    /// bring into scope are as in the checkpoint.
    pub(super) fn check_files(&self) {
        let [now, then] = &self.rules;
        let held = |state: &State, path: &Vec<u8>| state.get(path).and_then(as_held);
        let all = self.before.keys().chain(self.after.keys()).chain(self.want.keys());
        let is_whole = self.is_all && self.is_plain && self.paths.is_empty();
        for path in all {
            let [before, after, want] = [self.before, self.after, self.want].map(|state| held(state, path));
            let is_kept = after == before || before.is_none() && after == want;
            let is_right = if without_aside(path) != *path {
                // It was moved aside or back, or was created since.
                true
            } else if !self.is_meant(path) {
                after == before || after.is_none() && self.made_way(path)
            } else if now.excludes(path) || then.excludes(path) {
                is_kept || self.moves_aside || after == want || after.is_none()
            } else if now.ignore(path) && then.ignore(path) {
                is_kept || self.moves_aside || after == want && !self.is_plain
            } else if now.ignore(path) {
                after == want || !is_whole && (is_kept || self.moves_aside || after.is_none())
            } else if then.ignore(path) {
                after == before || after.is_none() || after == want
            } else {
                after == want || !self.is_all
            };
            let shown = String::from_utf8_lossy(path);
            assert!(is_right, "{shown} after {}: was {before:?}, is {after:?}, then {want:?}", self.words);
        }
    }
}

/// Returns the path that a file had before it was moved aside.
fn without_aside(path: &[u8]) -> Vec<u8> {
    let own = |name: &[u8]| {
        let at = name.windows(11).position(|part| part == b".uncovered-").unwrap_or(name.len());
        name[..at].to_vec()
    };
    path.split(|byte| *byte == b'/').map(own).collect::<Vec<_>>().join(&b'/')
}
