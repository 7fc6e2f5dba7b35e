//! Random work on a project, against a plain list of what was there at each take.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use piton::{Outcome, Settings};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use testkit::{Held, Sandbox, files_in};

use crate::kit::{cases, next_tick, now, settled, take_at};

/// Few names, so that they meet: files become directories, and the other way round.
const NAMES: [&str; 8] = ["a", "a/x", "a/y", "a/x/deep", "b/x", "b/y/z", "a.b", "-c"];

#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<u8>),
    Append(usize),
    Truncate(usize),
    Remove(usize),
    MakeDir(usize),
    RemoveDir(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Chmod(usize, u32),
    /// A file where a directory was, or the other way round.
    Swap(usize),
    /// Whether what it notes is trusted by the next one.
    Take(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let modes = prop_oneof![Just(0o644), Just(0o755), Just(0o600), Just(0o700), Just(0o444)];
    prop_oneof![
        4 => (name(), proptest::collection::vec(any::<u8>(), 0..3)).prop_map(|(name, bytes)| Step::Write(name, bytes)),
        1 => name().prop_map(Step::Append),
        1 => name().prop_map(Step::Truncate),
        1 => name().prop_map(Step::Remove),
        1 => name().prop_map(Step::MakeDir),
        1 => name().prop_map(Step::RemoveDir),
        2 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (name(), name()).prop_map(|(name, to)| Step::Link(name, to)),
        1 => (name(), modes).prop_map(|(name, mode)| Step::Chmod(name, mode)),
        1 => name().prop_map(Step::Swap),
        5 => any::<bool>().prop_map(Step::Take),
    ]
}

/// One project and all that was taken of it. A step that the file system refuses does nothing.
struct Model {
    sandbox: Sandbox,
    taken: BTreeMap<String, BTreeMap<Vec<u8>, Held>>,
}

impl Model {
    fn path(&self, name: usize) -> PathBuf {
        self.sandbox.path(NAMES[name])
    }

    fn run(&mut self, step: &Step) {
        let path = |name: &usize| self.path(*name);
        let _ = match step {
            Step::Write(name, bytes) => {
                let _ = fs::create_dir_all(path(name).parent().expect("a directory around it"));
                fs::write(path(name), bytes)
            }
            Step::Append(name) => {
                fs::read(path(name)).and_then(|bytes| fs::write(path(name), [&bytes[..], b"+"].concat()))
            }
            Step::Truncate(name) => fs::File::options().write(true).open(path(name)).and_then(|file| file.set_len(0)),
            Step::Remove(name) => fs::remove_file(path(name)),
            Step::MakeDir(name) => fs::create_dir(path(name)),
            Step::RemoveDir(name) => fs::remove_dir(path(name)),
            Step::Rename(from, to) => fs::rename(path(from), path(to)),
            Step::Link(name, to) => std::os::unix::fs::symlink(NAMES[*to], path(name)),
            Step::Chmod(name, mode) => chmod(&path(name), *mode),
            Step::Swap(name) if path(name).symlink_metadata().is_ok_and(|stat| stat.is_dir()) => {
                fs::remove_dir_all(path(name)).and_then(|()| fs::write(path(name), "was a directory"))
            }
            Step::Swap(name) => fs::remove_file(path(name)).and_then(|()| fs::create_dir(path(name))),
            Step::Take(trusted) => {
                self.take(*trusted);
                Ok(())
            }
        };
    }

    fn take(&mut self, trusted: bool) {
        let (base, project) = (self.sandbox.base(), self.sandbox.project());
        let report = take_at(&base, &project, &Settings::default(), if trusted { settled() } else { now() });
        next_tick(&self.sandbox);
        let files = files_in(&project);
        assert_eq!(report.files, files.len() as u64);
        match report.outcome {
            // What it holds is compared at the end: it must still be the same then.
            Outcome::Taken(id) => {
                assert!(self.taken.insert(id.to_string(), files).is_none(), "an id that was there before");
            }
            Outcome::Unchanged(id) => assert_eq!(self.taken[&id.to_string()], files),
            Outcome::Skipped(_) => assert!(files.is_empty() && self.taken.is_empty(), "{report:?}"),
        }
    }

    fn finish(mut self) {
        self.take(false);
        for (id, files) in &self.taken {
            assert_eq!(self.sandbox.held_by(id), *files, "{id} does not hold what it held when it was taken");
        }
        if !self.taken.is_empty() {
            self.sandbox.assert_store_is_whole();
            assert!(self.sandbox.temporary_files().is_empty());
        }
    }
}

/// Never through a link: the permissions would be those of something else.
fn chmod(path: &std::path::Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let stat = path.symlink_metadata()?;
    let mode = if stat.is_dir() { mode | 0o700 } else { mode };
    if stat.is_symlink() { Ok(()) } else { fs::set_permissions(path, fs::Permissions::from_mode(mode)) }
}

#[test]
fn every_checkpoint_holds_what_was_there_whatever_happened_before_and_after() {
    let count = cases("PITON_MODEL_CASES", 64);
    let config = ProptestConfig {
        cases: u32::try_from(count).unwrap_or(u32::MAX),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    // More cases are other cases; the usual ones are the same each time.
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&count.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let steps = proptest::collection::vec(step(), 30);
    let ran = runner.run(&steps, |steps| {
        let mut model = Model { sandbox: Sandbox::new(), taken: BTreeMap::new() };
        steps.iter().for_each(|step| model.run(step));
        model.finish();
        Ok(())
    });
    assert!(ran.is_ok(), "{}", ran.expect_err("a failure"));
}
