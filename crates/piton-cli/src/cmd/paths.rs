//! Paths on the command line. They are relative to the root of the project, not to the current directory. If the user
//! is in a subdirectory and may have meant a file there, a message says which file is used, and how to name the other
//! one.

use std::ffi::OsString;
use std::fs;

use piton::{Error, ErrorKind, History, Project, Store, parse_path};

use crate::context::Context;
use crate::output::{Output, plain};
use crate::platform;

/// Parses paths as they were typed. Fails with `Invalid` if one is outside of the project.
pub(crate) fn parse_paths(typed: &[OsString]) -> anyhow::Result<Vec<Vec<u8>>> {
    let parse = |path: &OsString| {
        parse_path(path.as_encoded_bytes()).map_err(|bad| {
            Error::new(ErrorKind::Invalid, format!("use the path {:?}", shown(path.as_encoded_bytes())))
                .because(bad)
                .with_hint("paths are relative to the project, and inside of it")
                .into()
        })
    };
    typed.iter().map(parse).collect()
}

/// Checks paths that could also be meant relative to the current directory. Fails with `NotFound` and a hint if a path
/// exists only there; warns if it exists in both places, and the one relative to the project is used.
pub(crate) fn check_from_here(
    paths: &[Vec<u8>],
    store: &Store,
    project: &Project,
    context: &Context,
    output: &Output,
) -> anyhow::Result<()> {
    let here = fs::canonicalize(&context.dir).unwrap_or_default();
    let Ok(here) = here.strip_prefix(project.dir()) else { return Ok(()) };
    let here = here.as_os_str().as_encoded_bytes();
    if here.is_empty() || paths.is_empty() {
        return Ok(());
    }
    let history = History::of(store, project)?;
    let is_known = |path: &[u8]| {
        let is_there = project.dir().join(platform::name_of_bytes(path)).symlink_metadata().is_ok();
        is_there || history.versions(path).is_ok_and(|versions| versions.iter().any(Option::is_some))
    };
    for path in paths {
        if path.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "use the path \".\"")
                .because(format!("it is the whole project, and this is {}/", shown(here)))
                .with_hint(format!(
                    "type `{}` for all that is here; without a path it is all of the project",
                    shown(here)
                ))
                .into());
        }
        let from_here = [here, b"/", path].concat();
        match (is_known(&from_here), is_known(path)) {
            (false, _) => {}
            (true, true) => output.warn(&format!(
                "paths are relative to the project: {} is not the one here, which is {}",
                shown(path),
                shown(&from_here)
            )),
            (true, false) => {
                return Err(Error::new(ErrorKind::NotFound, format!("find {}", shown(path)))
                    .because("paths are relative to the project, and it has no such file or directory")
                    .with_hint(format!("type `{}` for the one here", shown(&from_here)))
                    .into());
            }
        }
    }
    Ok(())
}

fn shown(path: &[u8]) -> String {
    plain(&String::from_utf8_lossy(path))
}
