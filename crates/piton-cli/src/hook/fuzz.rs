//! Fuzz targets of the hook. See `crate::fuzz`.

use clap::Parser as _;
use clap::error::ErrorKind;
use serde_json::Value;

use super::answer;
use super::decode::decode;
use super::salvage::Payload;
use super::typed_command;
use crate::agents::Agent;
use crate::agents::event::{EventKind, ToolChange};
use crate::cli::Cli;
use crate::surface::Surface;

const EVENTS: [Option<&str>; 4] = [None, Some("preToolUse"), Some("prompt"), Some("beforeShellExecution")];

/// Decodes a payload for every agent, and checks the event and the replies. The first byte selects the event for which
/// the hook is called.
pub(crate) fn payload(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let event = EVENTS[usize::from(*which) % EVENTS.len()];
    let is_cut = Payload::read(bytes).is_cut;
    for agent in Agent::all() {
        let event = decode(agent, event, bytes);
        let names = [&event.session, &event.turn, &event.parent];
        assert!(names.into_iter().flatten().all(|name| name.chars().count() <= 200), "names go into records");
        assert!(event.cwd.iter().chain(&event.roots).all(|dir| dir.is_absolute()));
        assert!(event.agent.answers.go_on.is_none() || !answer::go_on(&event).is_empty(), "silence is a denial");
        let answers =
            [Some(answer::go_on(&event)), Some(answer::stop(&event, "why")), answer::with_context(&event, "x")];
        let answers = answers.into_iter().flatten().chain(answer::block_prompt_with(&event, "x"));
        for answer in answers.filter(|answer| !answer.is_empty()) {
            assert!(serde_json::from_str::<Value>(&answer).is_ok_and(|answer| answer.is_object()), "{answer}");
        }
        match &event.kind {
            EventKind::BeforeTool { change, .. } if is_cut => {
                assert_eq!(*change, ToolChange::Files(Vec::new()), "H2: what is missing may change anything");
            }
            EventKind::Prompt { text } => typed(text),
            _ => {}
        }
    }
}

/// Parses a typed rollback as a command line. No typed word may be taken for an option, except those that are allowed.
pub(crate) fn typed(prompt: &str) {
    let Some(words) = typed_command::rollback(prompt) else { return };
    let arguments = ["piton", "--no-color"].map(str::to_owned).into_iter().chain(typed_command::arguments(
        Some("-s"),
        Surface::Prompt,
        &words,
    ));
    if let Err(error) = Cli::try_parse_from(arguments) {
        assert!(!matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion), "{error}");
    }
}
