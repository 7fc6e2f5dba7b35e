//! `install` and `uninstall` killed, or made to fail, at any system call: every configuration is the old or the new
//! one, byte for byte, and the next run gives the result of an undisturbed one.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use testkit::{Sandbox, clean_command};

use crate::fault_store::answer;
use crate::install::{put, tree};
use crate::kit::{Ran, piton};
use crate::sweep::{After, Scene, fail, kill};

type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// One agent of each shape: a configuration behind a symlink, one with an unusual mode, YAML, a file that is piton's
/// alone, and an agent without a configuration.
const AGENTS: [&str; 5] = ["claude", "gemini", "hermes", "opencode", "codex"];
/// Removing piton's entries one by one would not restore the empty object exactly.
const OLD: &str = "{\n  // mine\n  \"hooks\": {\n  },\n}\n";

struct Installing {
    sandbox: Sandbox,
    verb: &'static str,
    /// State before, with only checkpoints enabled, with everything installed, and after everything was uninstalled
    /// again.
    old: Tree,
    switched_on: Tree,
    new: Tree,
    gone: Tree,
}

impl Installing {
    fn new(verb: &'static str) -> Self {
        let sandbox = Sandbox::new();
        let home = sandbox.home();
        put(&sandbox, ".hermes/config.yaml", "# mine\nmodel: x\n");
        let real = put(&sandbox, "dotfiles/claude.json", OLD);
        fs::set_permissions(real, Permissions::from_mode(0o640)).expect("permissions");
        fs::create_dir(home.join(".claude")).expect("a directory");
        symlink("../dotfiles/claude.json", home.join(".claude/settings.json")).expect("a link");
        put(&sandbox, ".gemini/settings.json", OLD);
        fs::set_permissions(home.join(".gemini/settings.json"), Permissions::from_mode(0o604)).expect("permissions");
        // Empty, but not created by piton.
        fs::create_dir(home.join(".codex")).expect("a directory");
        let empty = Tree::new();
        let mut scene =
            Self { sandbox, verb, old: tree(&home), switched_on: empty.clone(), new: empty.clone(), gone: empty };
        let aside = scene.sandbox.root().join("before");
        let copied = clean_command("cp").arg("-a").args([&home, &aside]).status().expect("cp runs");
        assert!(copied.success());
        scene.switched_on = scene.after(&["install", "crush"]);
        scene.after(&["uninstall", "crush"]);
        scene.new = scene.after(&scene.all("install"));
        scene.gone = scene.after(&scene.all("uninstall"));
        crate::kit::replace_dir(&aside, &home);
        if verb == "uninstall" {
            scene.after(&scene.all("install"));
            scene.old = scene.new.clone();
        }
        scene
    }

    fn all(&self, verb: &'static str) -> Vec<&'static str> {
        [&[verb, "--json"], &AGENTS[..]].concat()
    }

    fn after(&self, args: &[&str]) -> Tree {
        piton(&self.sandbox, args).done();
        tree(&self.sandbox.home())
    }

    /// Asserts that every file is as at some step of an undisturbed run, and that no original file is missing.
    fn check_files(&self, after: &After<'_>) {
        let now = tree(&self.sandbox.home());
        let steps = [&self.old, &self.switched_on, &self.new, &self.gone];
        for (path, found) in &now {
            let is_temporary = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".piton-tmp-"));
            let is_excused = is_temporary && !after.is_done();
            let is_a_step = steps.iter().any(|step| step.get(path) == Some(found));
            let text = String::from_utf8_lossy(&found.1);
            assert!(is_a_step || is_excused, "{} is {:o} {text}: {after:?}", path.display(), found.0);
        }
        for path in self.old.keys().filter(|path| self.gone.contains_key(*path)) {
            assert!(now.contains_key(path), "{} is gone: {after:?}", path.display());
        }
    }
}

impl Scene for Installing {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.all(self.verb)
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
    }

    fn check(&self, after: &After<'_>) {
        let report = answer(after);
        self.check_files(after);
        let (done, other) = if self.verb == "install" { (&self.new, "uninstall") } else { (&self.gone, "install") };
        let home = self.sandbox.home();
        // An empty directory that cannot be removed stays, and does no harm.
        let is_excused = after.point.call == "rmdir";
        let files = |tree: &Tree| -> Tree {
            let is_kept = |(_, (mode, _)): &(&PathBuf, &(u32, Vec<u8>))| !is_excused || mode & 0o170_000 != 0o040_000;
            tree.iter().filter(is_kept).map(|(path, found)| (path.clone(), found.clone())).collect()
        };
        if after.is_done() && report.is_some() {
            assert_eq!(files(&tree(&home)), files(done), "{after:?}");
        }
        for verb in [self.verb, other, "uninstall"] {
            let next = piton(&self.sandbox, self.all(verb));
            assert_eq!(next.code(), 0, "{next:?} after {after:?}");
            let wanted = if verb == "install" { &self.new } else { &self.gone };
            assert_eq!(files(&tree(&home)), files(wanted), "{verb} after {after:?}");
        }
    }
}

/// I6, I8.
#[test]
fn an_install_may_be_killed_anywhere() {
    assert!(kill(|| Installing::new("install")).felt >= 10);
}

#[test]
fn an_uninstall_may_be_killed_anywhere() {
    assert!(kill(|| Installing::new("uninstall")).felt >= 7);
}

#[test]
fn an_install_survives_the_failure_of_any_call() {
    assert!(fail(|| Installing::new("install")).felt >= 10);
}

#[test]
fn an_uninstall_survives_the_failure_of_any_call() {
    assert!(fail(|| Installing::new("uninstall")).felt >= 7);
}
