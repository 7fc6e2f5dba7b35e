//! The command in a sandbox, for the tests about restoring, and what a directory holds to the last bit.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Sandbox, clean_command, walk};

/// What stands at one path: its kind and permission bits, and its bytes or where it leads.
pub(crate) type State = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

/// Everything below a directory.
pub(crate) fn state_of(dir: &Path) -> State {
    let mut state = State::new();
    walk(dir, &mut |path| {
        let relative = path.strip_prefix(dir).expect("below it").as_os_str().as_bytes().to_vec();
        let stat = path.symlink_metadata().expect("what was just listed");
        let mode = stat.permissions().mode() & 0o7777;
        let node = if stat.is_symlink() {
            ("link".to_owned(), fs::read_link(path).expect("a link").into_os_string().into_vec())
        } else if stat.is_dir() {
            (format!("dir {mode:o}"), Vec::new())
        } else {
            (format!("file {mode:o}"), fs::read(path).expect("a file"))
        };
        state.insert(relative, node);
    });
    state
}

/// Where two states differ, in words.
pub(crate) fn difference(now: &State, want: &State) -> String {
    let names: std::collections::BTreeSet<_> = now.keys().chain(want.keys()).collect();
    let shown = |node: Option<&(String, Vec<u8>)>| {
        node.map_or("nothing".to_owned(), |(kind, bytes)| format!("{kind} {:.40}", String::from_utf8_lossy(bytes)))
    };
    let differing = names.into_iter().filter(|name| now.get(*name) != want.get(*name)).map(|name| {
        let (now, want) = (shown(now.get(name)), shown(want.get(name)));
        format!("{}: is {now}, should be {want}\n", String::from_utf8_lossy(name))
    });
    differing.collect()
}

#[track_caller]
pub(crate) fn assert_same(now: &State, want: &State, when: &str) {
    let difference = difference(now, want);
    assert!(difference.is_empty(), "{when}:\n{difference}");
}

/// Puts the environment of a sandbox around a command.
pub(crate) fn in_sandbox<'a>(sandbox: &Sandbox, command: &'a mut Command) -> &'a mut Command {
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project())
}

/// Runs the command in the project.
pub(crate) fn piton(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = clean_command(env!("CARGO_BIN_EXE_piton"));
    in_sandbox(sandbox, &mut command).args(args).output().expect("piton runs")
}

/// Runs it, and it ends with this exit code.
#[track_caller]
pub(crate) fn exits(sandbox: &Sandbox, args: &[&str], code: i32) -> Output {
    let output = piton(sandbox, args);
    let words = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "piton {args:?}: {words}");
    output
}

/// Runs it with `--json`; what it prints.
#[track_caller]
pub(crate) fn json(sandbox: &Sandbox, args: &[&str], code: i32) -> Value {
    let args = [&["--json"], args].concat();
    let output = exits(sandbox, &args, code);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The names of temporary files that a restore left in the project.
pub(crate) fn leftovers(sandbox: &Sandbox) -> Vec<String> {
    let is_leftover = |path: &&Vec<u8>| text(path).rsplit('/').next().is_some_and(|name| name.starts_with(".piton"));
    state_of(&sandbox.project()).keys().filter(is_leftover).map(|path| text(path)).collect()
}
