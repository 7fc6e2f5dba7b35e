//! Fuzz targets of the command line; see `piton::fuzz` for those of the library.

use std::path::Path;

use clap::Parser as _;
use serde_json::json;

use crate::agents::Agent;
use crate::agents::setup::{Caller, Homes, Whose};
use crate::cli::Cli;
use crate::edit::{Config, Format};
use crate::hook::fuzz as hooks;
use crate::install::pieces::Pieces;
use crate::shell;

/// A function that tests one input, and panics if it finds a bug.
pub type Target = fn(&[u8]);

/// All targets, by the names of their directories in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 3] = [("arguments", arguments), ("edits", edits), ("hook", hooks::payload)];

/// Returns the target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|(other, _)| *other == name).map(|(_, target)| target)
}

/// Tests the input as command-line arguments, one per line; as a prompt; and as a shell command line.
fn arguments(bytes: &[u8]) {
    let words = bytes.split(|byte| *byte == b'\n').map(|word| crate::platform::name_from_bytes(word.to_vec()));
    if let Err(error) = Cli::try_parse_from(std::iter::once("piton".into()).chain(words)) {
        assert!(!error.to_string().is_empty());
    }
    let text = String::from_utf8_lossy(bytes);
    hooks::typed(&text);
    hooks::typed(&format!("/rollback {text}"));
    assert_eq!(shell::words(&shell::quote(&text)), Some(vec![text.clone().into_owned()]), "what is quoted comes back");
    let _ = shell::with_option(&text, "--base", "/b");
}

/// Tests adding our pieces to a configuration and removing them. The first byte selects the agent.
fn edits(bytes: &[u8]) {
    let Some((which, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let agent = Agent::named(["claude", "hermes", "cursor", "codex"][usize::from(*which) % 4]);
    let caller = Caller { program: "/opt/piton".to_owned(), options: Vec::new() };
    let homes = Homes::new(Path::new("/home/u"), |_| None);
    let setup = agent.setup(&Whose::User, &homes, &caller).expect("an agent with a configuration");
    let file = &setup.configs[0];
    let pieces = Pieces { all: &file.pieces, agent };
    let Ok(before) = Config::parse(text, file.format) else { return };
    assert_eq!(before.text(), text);
    switch_on(&before);
    let mut config = before.clone();
    let Ok(edited) = pieces.install(&mut config) else { return };
    let same = |one: &Config, other: &Config| one.says_the_same(other);
    let reread = Config::parse(config.text(), file.format).expect("what was just edited");
    assert!(same(&reread, &config), "the text says what the edit meant");
    // A name in a list of names counts as ours, even if we did not add it.
    let had_ours = !pieces.our_commands(&before).is_empty() || text.contains("piton");
    assert!(!pieces.our_commands(&config).is_empty());
    let mut again = config.clone();
    assert!(pieces.install(&mut again).is_ok_and(|edited| edited.made.is_empty()));
    assert_eq!(again.text(), config.text(), "once is enough");
    if pieces.uninstall(&mut config, Some(&edited.made)).is_ok() {
        // A default that we added for the agent to read the file is kept while the file has other entries for the
        // agent.
        if edited.made.iter().any(|keys| keys == &["version"]) {
            let _ = config.unset(&["version"]);
        }
        assert!(pieces.our_commands(&config).is_empty());
        assert!(
            had_ours || !edited.left.is_empty() || same(&config, &before),
            "{:?}\n{:?}",
            before.text(),
            config.text()
        );
    }
}

/// Tests setting our own settings in a configuration, as `config set` does.
fn switch_on(before: &Config) {
    let format = if matches!(before, Config::Json(_)) { Format::Json } else { Format::Yaml };
    for (key, value) in [("enabled", json!(true)), ("exclude", json!(["data/", "*.bin"])), ("include", json!([]))] {
        let mut config = before.clone();
        let _ = config.expand("checkpoints", "enabled");
        if config.set(&["checkpoints", key], &value).is_ok() {
            let reread = Config::parse(config.text(), format).expect("what was just edited");
            let there = &reread.value()["checkpoints"][key];
            assert!(*there == value || value == json!([]) && there.is_null(), "{:?}", config.text());
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_input_that_is_kept_keeps_its_promises() {
        for (name, target) in super::TARGETS {
            testkit::each_kept_input(name, target);
        }
    }
}
