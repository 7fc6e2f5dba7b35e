//! Machines that share a bucket, which is a directory: each has its own home, base and project in one sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::Sandbox;

use crate::kit::{PITON, Ran, in_dir, run};

/// Builds `piton-remote` beside the program under test, if it is not there. Cargo builds only the programs of the package
/// that is tested.
pub(crate) fn ensure_program() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = Path::new(PITON).parent().expect("a directory");
        if dir.join("piton-remote").exists() {
            return;
        }
        let target = dir.parent().expect("the target directory");
        let profile = if dir.ends_with("release") { "release" } else { "dev" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "piton-remote", "--profile", profile, "--target-dir"]).arg(target);
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
        assert!(built.success() && dir.join("piton-remote").exists(), "piton-remote is not built");
    });
}

/// A machine: a home with a base, and a project.
pub(crate) struct Machine<'a> {
    sandbox: &'a Sandbox,
    pub(crate) name: &'static str,
    pub(crate) home: PathBuf,
    pub(crate) project: PathBuf,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, name: &'static str) -> Self {
        ensure_program();
        let home = sandbox.root().join(name);
        let project = home.join("code");
        fs::create_dir_all(&project).expect("a directory");
        Self { sandbox, name, home, project }
    }

    pub(crate) fn bucket(&self) -> PathBuf {
        self.sandbox.root().join("bucket")
    }

    pub(crate) fn phrase(&self) -> PathBuf {
        self.sandbox.root().join("phrase")
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.home.join(".hermes/checkpoints")
    }

    /// Returns the command on this machine. No push is started in the background.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = in_dir(self.sandbox, &self.project);
        command.env("HOME", &self.home).env("PITON_REMOTE", "false").args(line);
        command
    }

    pub(crate) fn piton(&self, line: &[&str]) -> Ran {
        run(&mut self.command(line))
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.project.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.project.join(path)).ok()
    }

    /// Makes the bucket, or joins it if it is there.
    #[track_caller]
    pub(crate) fn add(&self) -> Ran {
        let (url, phrase) = (format!("file://{}", self.bucket().display()), self.phrase().display().to_string());
        let option = if self.phrase().exists() { "--phrase-file" } else { "--phrase-out" };
        self.piton(&["remote", "add", &url, "--machine", self.name, option, &phrase]).done()
    }
}

/// Puts a copy of the program under test into a directory, with a script in place of `piton-remote`, or without one.
pub(crate) fn beside(sandbox: &Sandbox, script: Option<&str>) -> PathBuf {
    let program = sandbox.root().join("programs/piton");
    if !program.exists() {
        sandbox.copy_of_program(PITON, "programs");
    }
    if let Some(script) = script {
        sandbox.write_program(&program.with_file_name("piton-remote"), &format!("#!/bin/sh\n{script}\n"));
    }
    program
}
