//! Random work, checkpoints and restores in any order, against a model: a map from path to what stands there.
//!
//! `PITON_RESTORE_STEPS` says how many steps, `PITON_RESTORE_SEED` where the first round begins.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use piton::{CheckpointKind, Outcome, Progress, Project, Request, Restore, RestoreOptions, RestoreTo, Settings, Store};
use testkit::{Sandbox, os};

use crate::kit::now;
use crate::restore_kit::{Node, State, assert_same, state_of};

/// Numbers that look random and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("less than the limit")
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A path of at most three names. One name in ten is ignored.
    fn path(&mut self) -> Vec<u8> {
        let depth = 1 + self.below(3);
        let names: Vec<&[u8]> = (0..depth)
            .map(|_| if self.below(10) == 0 { &b"c.ig"[..] } else { *self.pick(&[&b"a"[..], b"b", b"c"]) })
            .collect();
        names.join(&b'/')
    }
}

fn is_ignored(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name.ends_with(b".ig"))
}

fn is_within(path: &[u8], dir: &[u8]) -> bool {
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

/// A checkpoint, what it held, and, for one that a restore took, whether that was an undo and of which paths.
#[derive(Clone)]
struct Kept {
    id: String,
    state: State,
    restored: Option<(bool, Vec<Vec<u8>>)>,
}

struct World {
    random: Random,
    store: Store,
    project: Project,
    dir: PathBuf,
    model: State,
    kept: Vec<Kept>,
    _sandbox: Sandbox,
}

impl World {
    fn new(seed: u64) -> Self {
        let sandbox = Sandbox::new();
        sandbox.tree(".gitignore = *.ig\\n");
        let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
        let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
        let (dir, model) = (sandbox.project(), state_of(&sandbox.project()));
        let random = Random(seed);
        Self { random, store, project, dir, model, kept: Vec::new(), _sandbox: sandbox }
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        self.dir.join(os(path))
    }

    /// Whether something can be made at a path: the directories around it are there.
    fn has_room(&self, path: &[u8]) -> bool {
        let dir = parent(path);
        dir.is_empty() || matches!(self.model.get(dir), Some(Node::Dir(_)))
    }

    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<Vec<u8>> {
        let all: Vec<_> = self.model.iter().filter(|(path, node)| *path != b".gitignore" && wanted(node)).collect();
        (!all.is_empty()).then(|| self.random.pick(&all).0.clone())
    }

    fn remove(&mut self, path: &[u8]) {
        let is_dir = matches!(self.model.get(path), Some(Node::Dir(_)));
        let at = self.at(path);
        if is_dir { fs::remove_dir_all(at) } else { fs::remove_file(at) }.expect("removed");
        self.model.retain(|other, _| !is_within(other, path));
    }

    fn make(&mut self, path: &[u8], node: Node) {
        let at = self.at(path);
        match &node {
            Node::File(mode, bytes) => {
                fs::write(&at, bytes).expect("a file");
                fs::set_permissions(&at, Permissions::from_mode(*mode)).expect("permissions");
            }
            Node::Dir(mode) => {
                fs::create_dir(&at).expect("a directory");
                fs::set_permissions(&at, Permissions::from_mode(*mode)).expect("permissions");
            }
            Node::Link(target) => symlink(os(target), &at).expect("a link"),
            Node::Special => unreachable!("none is made"),
        }
        self.model.insert(path.to_vec(), node);
    }

    fn new_file(&mut self) -> Node {
        let mode = *self.random.pick(&[0o644, 0o644, 0o644, 0o600, 0o755, 0o700, 0o444]);
        // Few contents, so that the same ones meet again; now and then a long one.
        let text = format!("text {}\n", self.random.below(40));
        let times = if self.random.below(20) == 0 { 3000 } else { 1 };
        Node::File(mode, text.repeat(times).into_bytes())
    }

    fn work(&mut self) {
        let path = self.random.path();
        match self.random.below(13) {
            // Make something, over whatever is there: files, directories and links take each other's place.
            0..=6 => {
                let node = match self.random.below(10) {
                    0..=4 => self.new_file(),
                    5..=7 => Node::Dir(*self.random.pick(&[0o755, 0o755, 0o700])),
                    _ => Node::Link(self.random.pick(&[&b"a"[..], b"../b", b"/nowhere", b"c/a"]).to_vec()),
                };
                if self.has_room(&path) {
                    if self.model.contains_key(&path) {
                        self.remove(&path);
                    }
                    self.make(&path, node);
                }
            }
            7 => {
                if let Some(path) = self.any(|node| matches!(node, Node::File(mode, _) if mode & 0o200 != 0)) {
                    let at = self.at(&path);
                    let Some(Node::File(_, bytes)) = self.model.get_mut(&path) else { unreachable!("a file") };
                    bytes.extend_from_slice(b"more\n");
                    fs::write(at, bytes).expect("a file");
                }
            }
            8 | 9 => {
                if let Some(path) = self.any(|_| true) {
                    self.remove(&path);
                }
            }
            10 => {
                if let Some(from) = self.any(|_| true)
                    && self.has_room(&path)
                    && !self.model.contains_key(&path)
                    && !is_within(&path, &from)
                {
                    fs::rename(self.at(&from), self.at(&path)).expect("a rename");
                    let moved: Vec<_> = self.model.extract_if(.., |other, _| is_within(other, &from)).collect();
                    for (other, node) in moved {
                        self.model.insert([&path, &other[from.len()..]].concat(), node);
                    }
                }
            }
            11 => {
                if let Some(path) = self.any(|node| matches!(node, Node::File(..))) {
                    let new = *self.random.pick(&[0o644, 0o600, 0o755, 0o700, 0o444]);
                    fs::set_permissions(self.at(&path), Permissions::from_mode(new)).expect("permissions");
                    let Some(Node::File(mode, _)) = self.model.get_mut(&path) else { unreachable!("a file") };
                    *mode = new;
                }
            }
            _ => {
                if let Some(path) = self.any(|node| matches!(node, Node::Dir(_))) {
                    let new = *self.random.pick(&[0o755, 0o700, 0o750]);
                    fs::set_permissions(self.at(&path), Permissions::from_mode(new)).expect("permissions");
                    self.model.insert(path, Node::Dir(new));
                }
            }
        }
    }

    fn take(&mut self) {
        let request = Request { reason: "model".into(), kind: CheckpointKind::Manual, ..Request::default() };
        let settings = keeping_all();
        let taken = piton::take(&self.store, &self.project, &request, &settings, now(), &Progress::default());
        if let Outcome::Taken(id) = taken.expect("a take").outcome {
            self.kept.push(Kept { id: id.to_string(), state: self.model.clone(), restored: None });
        }
    }

    /// Restores a checkpoint, or some of it, and holds the result against what the model says.
    fn go_to(&mut self, target: usize, verb: &str, paths: &[Vec<u8>]) {
        let Kept { id, state: want, .. } = self.kept[target].clone();
        let to = match verb {
            "undo" => RestoreTo::Undo,
            "redo" => RestoreTo::Redo,
            _ => RestoreTo::Named(&id),
        };
        let asked = if verb == "restore" { paths } else { &[] };
        let options = RestoreOptions { paths: asked, ..RestoreOptions::default() };
        let (settings, progress) = (keeping_all(), Progress::default());
        let prepared = Restore::prepare(&self.store, &self.project, to, options, &settings, now(), &progress);
        let report = prepared.and_then(Restore::apply).expect("a restore");
        let before = std::mem::replace(&mut self.model, state_of(&self.dir));
        let shown: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
        let words = format!("{verb} of {id} {shown:?} ({report:?})");
        self.check(&before, &want, paths, report.left.is_empty(), &words);
        if let Some(id) = report.safety {
            let restored = Some((verb == "undo", paths.to_vec()));
            self.kept.push(Kept { id: id.to_string(), state: before, restored });
        } else {
            assert_same(&self.model, &before, &format!("nothing was to be done: {words}"));
        }
    }

    fn check(&self, before: &State, want: &State, paths: &[Vec<u8>], is_all: bool, words: &str) {
        let is_meant = |path: &[u8]| paths.is_empty() || paths.iter().any(|wanted| is_within(path, wanted));
        let leads_to = |path: &[u8]| paths.iter().any(|wanted| is_within(wanted, path));
        let same = |want: &State, keep: &dyn Fn(&[u8]) -> bool, what: &str| {
            let only = |state: &State| -> State {
                state.iter().filter(|(path, _)| keep(path)).map(|(path, node)| (path.clone(), node.clone())).collect()
            };
            assert_same(&only(&self.model), &only(want), &format!("{what} after {words}"));
        };
        same(before, &is_ignored, "ignored files");
        // A directory around a path may have been made or dropped with it.
        same(before, &|path| !is_meant(path) && !leads_to(path), "other files");
        let holds_ignored = |path: &[u8]| before.keys().any(|other| is_ignored(other) && is_within(other, path));
        let stays = |path: &[u8]| !is_ignored(path) && holds_ignored(path);
        same(before, &|path| stays(path) && !matches!(want.get(path), Some(Node::Dir(_))), "what holds ignored files");
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

    fn step(&mut self) {
        match self.random.below(20) {
            0..=12 => self.work(),
            13 | 14 => self.take(),
            15 | 16 if !self.kept.is_empty() => {
                let target = self.random.below(self.kept.len());
                self.go_to(target, "restore", &[]);
            }
            17 if !self.kept.is_empty() => {
                let target = self.random.below(self.kept.len());
                let paths: Vec<_> = self.kept[target].state.keys().filter(|path| !is_ignored(path)).cloned().collect();
                if !paths.is_empty() {
                    let count = 1 + self.random.below(2);
                    let paths: Vec<_> = (0..count).map(|_| self.random.pick(&paths).clone()).collect();
                    self.go_to(target, "restore", &paths);
                }
            }
            18 | 19 => {
                if let Some(target) = self.kept.iter().rposition(|kept| kept.restored.is_some()) {
                    let (was_undo, paths) = self.kept[target].restored.clone().expect("found by it");
                    let verb = if was_undo && self.random.below(2) == 0 { "redo" } else { "undo" };
                    self.go_to(target, verb, &paths);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn random_work_is_brought_back_to_the_last_bit() {
    let number = |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (steps, seed) = (number("PITON_RESTORE_STEPS", 3000), number("PITON_RESTORE_SEED", 1));
    for round in 0..steps.div_ceil(500) {
        let mut world = World::new(seed + round);
        for step in 0..500.min(steps) {
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.step()));
            assert!(run.is_ok(), "step {step} of seed {}", seed + round);
            assert_same(&state_of(&world.dir), &world.model, &format!("the model, step {step}, seed {}", seed + round));
        }
    }
}

/// Every checkpoint of the model can be restored at any time.
fn keeping_all() -> Settings {
    Settings { max_snapshots: 1_000_000, ..Settings::default() }
}
