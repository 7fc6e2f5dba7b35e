//! Random histories of a project: the state before a turn, the state after it, and the current state.

use std::collections::BTreeMap;

use testkit::{Dice, Held};

/// Files of one state.
pub(crate) type State = BTreeMap<Vec<u8>, Held>;

/// States of a project around one turn.
pub(crate) struct History {
    pub(crate) start: State,
    pub(crate) end: State,
    pub(crate) now: State,
}

/// Returns the history with this seed: some files, a turn that changes some of them, then later turns, other sessions
/// and edits by the user.
pub(crate) fn history(seed: u64) -> History {
    let mut random = Random { dice: Dice::new(seed + 1), tokens: 0 };
    let mut start = State::new();
    for _ in 0..random.dice.between(2, 7) {
        random.add(&mut start);
    }
    let mut end = start.clone();
    for _ in 0..random.dice.between(1, 4) {
        random.change(&mut end);
    }
    let mut now = end.clone();
    for _ in 0..random.dice.between(1, 5) {
        random.change(&mut now);
    }
    History { start, end, now }
}

/// Returns a text of up to 120 lines, and the same text with some changes.
pub(super) fn change_of_one_file(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random { dice: Dice::new(seed + 1), tokens: 0 };
    let old: Vec<u8> = (0..3).flat_map(|_| random.text()).collect();
    let mut state = State::from([(b"f".to_vec(), Held::File(false, old.clone()))]);
    for _ in 0..random.dice.between(1, 4) {
        random.edit(&mut state, b"f");
    }
    match state.remove(&b"f"[..]) {
        Some(Held::File(_, new)) => (old, new),
        _ => (old.clone(), old),
    }
}

/// Returns five states: the start and the end of a turn, the start and the end of the next, and the current state. The
/// user edits between the turns and after them.
pub(crate) fn two_turns(seed: u64) -> [State; 5] {
    let mut random = Random { dice: Dice::new(seed + 70_001), tokens: 0 };
    let mut state = State::new();
    for _ in 0..random.dice.between(3, 7) {
        random.add(&mut state);
    }
    let first = state.clone();
    let mut next = || {
        // Each state differs from the one before.
        random.tokens += 1;
        state.insert(format!("state {}", random.tokens).into_bytes(), Held::File(false, b"new\n".to_vec()));
        for _ in 0..random.dice.between(1, 2) {
            random.change(&mut state);
        }
        state.clone()
    };
    [first, next(), next(), next(), next()]
}

struct Random {
    dice: Dice,
    tokens: usize,
}

impl Random {
    /// Returns a path that can be added: no file is in the place of one of its directories, and it is not a directory.
    fn path(&mut self, state: &State) -> Vec<u8> {
        loop {
            let dir = self.dice.pick(&["", "", "src/", "src/", "src/deep/", "docs/", "b.txt/"]);
            let name = self.dice.pick(&["a.rs", "b.txt", "lib.rs", "main.py", "x", "mod.rs", "notes", "z.bin"]);
            let path = format!("{dir}{name}").into_bytes();
            if is_free(state, &path) {
                return path;
            }
        }
    }

    fn any(&mut self, state: &State) -> Option<Vec<u8>> {
        (!state.is_empty()).then(|| state.keys().nth(self.dice.roll(state.len())).expect("in range").clone())
    }

    /// Returns a line: unique, one of a few that occur often, or empty.
    fn line(&mut self) -> Vec<u8> {
        self.tokens += 1;
        match self.dice.roll(6) {
            0 => b"}\n".to_vec(),
            1 => b"\n".to_vec(),
            2 => b"    return value;\n".to_vec(),
            3 => format!("let same = {};\n", self.dice.roll(3)).into_bytes(),
            _ => format!("let token_{} = {};\n", self.tokens, self.dice.roll(1000)).into_bytes(),
        }
    }

    fn text(&mut self) -> Vec<u8> {
        let count = self.dice.pick(&[0, 1, 3, 8, 8, 15, 40]);
        let mut text: Vec<u8> = (0..count).flat_map(|_| self.line()).collect();
        match self.dice.roll(8) {
            0 => drop(text.pop()),
            1 => text = with_crlf(&text),
            2 => text.splice(0..0, "\u{feff}".bytes()).for_each(drop),
            _ => {}
        }
        text
    }

    fn add(&mut self, state: &mut State) {
        let path = self.path(state);
        let held = match self.dice.roll(12) {
            0 => Held::Link(format!("target{}", self.dice.roll(3)).into_bytes()),
            1 => Held::File(false, [b"\0".to_vec(), self.dice.noise(300)].concat()),
            2 if !state.is_empty() => state.values().nth(self.dice.roll(state.len())).expect("in range").clone(),
            3 => Held::File(true, self.text()),
            _ => Held::File(false, self.text()),
        };
        state.insert(path, held);
    }

    /// Makes one change: mostly of lines, and of everything else sometimes.
    fn change(&mut self, state: &mut State) {
        let Some(path) = self.any(state) else {
            return self.add(state);
        };
        match self.dice.roll(20) {
            0 | 1 => self.add(state),
            2 => drop(state.remove(&path)),
            3 | 4 => self.rename(state, &path),
            5 => {
                self.rename(state, &path);
                self.rename_dir(state);
            }
            6 => {
                if let Some(Held::File(is_executable, _)) = state.get_mut(&path) {
                    *is_executable = !*is_executable;
                }
            }
            7 => self.replace(state, path),
            8 => {
                if let Some(Held::File(_, bytes)) = state.get_mut(&path) {
                    *bytes = with_crlf(bytes);
                }
            }
            _ => self.edit(state, &path),
        }
    }

    /// Moves a file, and changes it in half of the cases.
    fn rename(&mut self, state: &mut State, path: &[u8]) {
        if let Some(held) = state.remove(path) {
            let new = self.path(state);
            state.insert(new.clone(), held);
            if self.dice.roll(2) == 0 {
                self.edit(state, &new);
            }
        }
    }

    fn rename_dir(&mut self, state: &mut State) {
        let (from, to) = (&b"src/"[..], self.dice.pick(&[&b"moved/"[..], b"docs/src/", b"notes/"]));
        let inside: Vec<_> = state.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in inside {
            let new = [to, &path[from.len()..]].concat();
            if is_free(state, &new) {
                let held = state.remove(&path).expect("it was listed");
                state.insert(new, held);
            }
        }
    }

    /// Replaces a file by something else of the same name: a link, a directory or other contents.
    fn replace(&mut self, state: &mut State, path: Vec<u8>) {
        let held = state.remove(&path).expect("it exists");
        match self.dice.roll(3) {
            0 => drop(state.insert([&path, &b"/inside"[..]].concat(), held)),
            1 => drop(state.insert(path, Held::Link(b"elsewhere".to_vec()))),
            _ => drop(state.insert(path, Held::File(false, self.text()))),
        }
    }

    fn edit(&mut self, state: &mut State, path: &[u8]) {
        let fresh = self.text();
        match state.get_mut(path) {
            Some(Held::Link(target)) => *target = format!("target{}", self.dice.roll(3)).into_bytes(),
            Some(Held::File(_, bytes)) if bytes.contains(&0) => {
                bytes.truncate(self.dice.between(1, 300));
                bytes.extend(self.dice.noise(20));
            }
            Some(Held::File(_, bytes)) => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                for _ in 0..self.dice.pick(&[1, 1, 1, 2, 4]) {
                    self.edit_lines(&mut lines, &fresh);
                }
                *bytes = lines.concat();
                if self.dice.roll(20) == 0 {
                    bytes.pop();
                }
            }
            None => {}
        }
    }

    fn edit_lines(&mut self, lines: &mut Vec<Vec<u8>>, fresh: &[u8]) {
        let at = self.dice.roll(lines.len() + 1);
        let end = (at + self.dice.roll(4)).min(lines.len());
        match self.dice.roll(8) {
            0 | 1 => drop(lines.splice(at..at, [self.line()])),
            2 | 3 => drop(lines.drain(at..end)),
            4 => {
                // A block moves.
                let block: Vec<_> = lines.drain(at..end).collect();
                let to = self.dice.roll(lines.len() + 1);
                lines.splice(to..to, block);
            }
            5 => drop(lines.splice(at..at, fresh.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec))),
            _ => {
                let new: Vec<_> = (at..end).map(|_| self.line()).collect();
                lines.splice(at..end, new);
            }
        }
    }
}

/// Returns true if neither the path nor a directory above it is a file, and the path is not a directory.
fn is_free(state: &State, path: &[u8]) -> bool {
    let dirs = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
    let inside = [path, b"/"].concat();
    !state.contains_key(path)
        && dirs.into_iter().all(|dir| !state.contains_key(dir))
        && !state.keys().any(|other| other.starts_with(&inside))
}

fn with_crlf(text: &[u8]) -> Vec<u8> {
    let plain: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\r').collect();
    plain.iter().flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] }).collect()
}
