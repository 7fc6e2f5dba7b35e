//! Detects files and entries that an older version installed and this version replaces. Read only.

use std::fs;
use std::time::UNIX_EPOCH;

use super::pieces::Pieces;
use crate::agents::Agent;
use crate::agents::setup::{OwnFile, Setup};
use crate::edit::{Config, files};

/// Returns messages about command files of an older version, and about configuration entries that differ from those of
/// this version.
pub(crate) fn outdated(agent: Agent, setup: &Setup) -> Vec<String> {
    let mut found = Vec::new();
    for file in setup.files.iter().filter(|file| !file.is_needed) {
        let text = files::read(&file.path).ok().flatten();
        if text.is_some_and(|text| text.contains(file.mark) && same_for_all(&text) != same_for_all(&file.text)) {
            found.push(format!("{} is of another version of piton, and may go to the model", file.path.display()));
        }
    }
    for config in &setup.configs {
        let text = files::read(&config.path).ok().flatten().unwrap_or_default();
        let Ok(parsed) = Config::parse(&text, config.format) else { continue };
        let pieces = Pieces { all: &config.pieces, agent };
        for keys in pieces.outdated(&parsed) {
            let what = format!("`{keys}` in {} is not as this version of piton needs it", config.path.display());
            found.push(format!("{what}: {}", agent.install.outdated_effect));
        }
    }
    found
}

/// Returns the modification time of the newest command file of an agent, in seconds since the epoch; `None` if there is
/// none.
pub(crate) fn written_secs(setup: &Setup) -> Option<i64> {
    let written = |file: &OwnFile| {
        let modified = fs::metadata(&file.path).and_then(|stat| stat.modified()).ok()?;
        i64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    };
    setup.files.iter().filter(|file| !file.is_needed).filter_map(written).max()
}

/// Returns the lines of a text without the one that holds the path of this program.
fn same_for_all(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("COMMAND = ")).collect()
}
