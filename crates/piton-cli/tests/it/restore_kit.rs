//! The command in a sandbox, for the tests about restoring, and the exact state of a directory.

use std::process::{Command, Output};

use serde_json::Value;
pub(crate) use testkit::state::{State, assert_same, difference, state_of};
use testkit::{Sandbox, clean_command};

/// Sets the environment of a sandbox on a command.
pub(crate) fn in_sandbox<'a>(sandbox: &Sandbox, command: &'a mut Command) -> &'a mut Command {
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project())
}

/// Runs the command in the project.
pub(crate) fn piton(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = clean_command(crate::kit::PITON);
    in_sandbox(sandbox, &mut command).args(args).output().expect("piton runs")
}

/// Runs the command and asserts this exit code.
#[track_caller]
pub(crate) fn exits(sandbox: &Sandbox, args: &[&str], code: i32) -> Output {
    let output = piton(sandbox, args);
    let words = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "piton {args:?}: {words}");
    output
}

/// Runs the command with `--json` and returns its output.
#[track_caller]
pub(crate) fn json(sandbox: &Sandbox, args: &[&str], code: i32) -> Value {
    let args = [&["--json"], args].concat();
    let output = exits(sandbox, &args, code);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the names of temporary files that a restore left in the project.
pub(crate) fn leftovers(sandbox: &Sandbox) -> Vec<String> {
    let is_leftover = |path: &&Vec<u8>| text(path).rsplit('/').next().is_some_and(|name| name.starts_with(".piton"));
    state_of(&sandbox.project()).keys().filter(is_leftover).map(|path| text(path)).collect()
}
