//! A project with large files and a home directory with files of its own, and commands of an agent that destroy them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Sandbox;

use crate::hook_kit::{bash, hook_command, prompt, send};
use crate::kit::{Ran, in_dir};

/// Contents of two megabytes that differ from file to file.
pub(crate) fn large(seed: u8) -> Vec<u8> {
    (0..2_u32 << 20).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

/// A project with large files, ignored and not, and a home directory with files of its own.
pub(crate) fn world() -> Sandbox {
    filled(Sandbox::new())
}

/// Like [`world`], in this sandbox.
pub(crate) fn filled(sandbox: Sandbox) -> Sandbox {
    let (project, home) = (sandbox.project(), sandbox.home());
    sandbox.tree("src/main.rs = fn main() {}\n keep.txt = 1");
    sandbox.write(".gitignore", "data/\n");
    for (seed, name) in
        ["big.bin", "copy.bin", "data/set.bin", "data/deep/other.bin", "two/a.bin", "two/b.bin"].iter().enumerate()
    {
        let path = project.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, large(u8::try_from(seed).expect("few"))).expect("a file");
    }
    fs::set_permissions(project.join("data/set.bin"), fs::Permissions::from_mode(0o640)).expect("a mode");
    fs::write(project.join("clean.sh"), "#!/bin/sh\nset -e\nrm -f big.bin\n").expect("a script");
    fs::set_permissions(project.join("clean.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(project.join("Makefile"), "OUT = data\nclean:\n\trm -rf $(OUT)\n").expect("a makefile");
    fs::write(project.join("package.json"), r#"{"scripts": {"clean": "rm -rf data"}}"#).expect("a file");
    fs::write(home.join("thesis.txt"), "years of work\n").expect("a file");
    fs::write(home.join("notes.db"), large(77)).expect("a file");
    fs::create_dir_all(home.join("photos/2020")).expect("a directory");
    fs::write(home.join("photos/a.jpg"), large(78)).expect("a file");
    fs::write(home.join("photos/2020/b.jpg"), "small").expect("a file");
    symlink("a.jpg", home.join("photos/newest")).expect("a link");
    sandbox
}

pub(crate) fn with_settings(command: &mut Command) -> &mut Command {
    // Low limits, so that "large" files are quick to make. How full the disk is does not matter.
    command.env("PITON_MAX_FILE_SIZE_MB", "1").env("PITON_KEEP_FILE_SIZE_MB", "1").env("PITON_KEEP_MIN_FREE_MB", "0")
}

pub(crate) fn hooked(sandbox: &Sandbox, payload: &str) {
    let ran = send(with_settings(&mut hook_command(sandbox, &["claude"])), payload);
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
}

/// Reports the command to the hook as an agent does, and runs it.
pub(crate) fn agent_runs(sandbox: &Sandbox, line: &str) {
    hooked(sandbox, &prompt(sandbox, "s", "p1", "go"));
    announce(sandbox, line);
    execute(sandbox, line);
}

pub(crate) fn announce(sandbox: &Sandbox, line: &str) {
    hooked(sandbox, &bash(sandbox, "s", "p1", line));
}

pub(crate) fn execute(sandbox: &Sandbox, line: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(sandbox.project()).env("HOME", sandbox.home());
    let ran = shell.output().expect("a shell");
    assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
}

pub(crate) fn piton(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let mut command = in_dir(sandbox, &sandbox.project());
    with_settings(&mut command).args(args).output().expect("piton").into()
}

/// A file, with the attributes that a recovery restores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) mtime: (i64, i64),
}

/// Returns every file and link below a directory that is not in `.hermes`.
pub(crate) fn files_below(dir: &Path) -> BTreeMap<PathBuf, FileState> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
        if kind.is_dir() {
            if entry.file_name() != ".hermes" {
                found.extend(files_below(&path));
            }
            continue;
        }
        let stat = fs::symlink_metadata(&path).expect("a file");
        let bytes = match kind.is_symlink() {
            true => fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes(),
            false => fs::read(&path).expect("a file"),
        };
        let mtime = if kind.is_symlink() { (0, 0) } else { (stat.mtime(), stat.mtime_nsec()) };
        found.insert(path, FileState { bytes, mode: stat.mode(), mtime });
    }
    found
}

pub(crate) fn everything(sandbox: &Sandbox) -> BTreeMap<PathBuf, FileState> {
    let mut all = files_below(&sandbox.project());
    all.extend(files_below(&sandbox.home()));
    all
}

pub(crate) fn kept_files(sandbox: &Sandbox) -> Vec<PathBuf> {
    let all = files_below(&sandbox.base().join("local/files"));
    all.into_keys().filter(|path| path.iter().any(|name| name == "data")).collect()
}
