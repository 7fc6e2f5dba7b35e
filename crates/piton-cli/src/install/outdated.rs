//! Finding what an older version installed and this one does otherwise. Read only.

use std::fs;
use std::time::UNIX_EPOCH;

use super::edit::Config;
use super::files;
use super::setup::{OwnFile, Setup};
use crate::agents::Agent;

/// Returns what is outdated, in words: command files of an older version, and pieces that this version does without.
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
        for keys in parsed.outdated(&config.pieces, agent) {
            let what = format!("`{keys}` in {} is not as this version of piton needs it", config.path.display());
            found.push(what + ": /piton may only list");
        }
    }
    found
}

/// Returns the time at which the newest command file of an agent was written, in seconds; `None` if there is none.
pub(crate) fn written_secs(setup: &Setup) -> Option<i64> {
    let written = |file: &OwnFile| {
        let modified = fs::metadata(&file.path).and_then(|stat| stat.modified()).ok()?;
        i64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    };
    setup.files.iter().filter(|file| !file.is_needed).filter_map(written).max()
}

/// A text without the line that names this program by its path.
fn same_for_all(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("COMMAND = ")).collect()
}
