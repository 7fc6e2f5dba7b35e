//! The `piton hook` command.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::install::names;
use crate::agents::Agent;
use crate::hook::{Call, respond};
use crate::options::Global;
use crate::platform;

/// Handle an agent's event: payload on stdin, reply on stdout
#[derive(Debug, Args)]
#[command(after_help = format!("\
Agents: {},
and plain for others, which send this on stdin:
  {{\"event\": \"prompt\" or \"before_tool\" or \"session_start\",
   \"cwd\": ..., \"session_id\": ..., \"turn_id\": ..., \"prompt\": ...,
   \"tool_name\": ..., \"tool_input\": {{\"path\": ...}} or {{\"command\": ...}}}}

Example:
  echo '{{\"event\": \"prompt\", \"cwd\": \"/home/you/code\"}}' | piton hook plain

Exit codes: 0, whatever goes wrong: the agent continues, and `piton status`
            shows what was missed. With --fail-closed: 2 stops the tool", names()))]
pub(crate) struct Hook {
    /// Name of the agent
    #[arg(value_name = "AGENT")]
    agent: String,
    /// Name of the event, for agents that do not send it
    #[arg(value_name = "EVENT")]
    event: Option<String>,
    /// Stop the agent, with exit code 2, before a tool that may change files if no checkpoint could be taken
    #[arg(long)]
    fail_closed: bool,
}

pub(crate) fn run(args: &Hook, global: &Global) -> ExitCode {
    let agent = Agent::parse(&args.agent);
    let complaint =
        agent.is_none().then(|| format!("`piton hook` was called for an agent that it does not know: {}", args.agent));
    let event = args.event.as_deref();
    let (agent, fail_closed) = (agent.unwrap_or(Agent::PLAIN), args.fail_closed);
    say(&Call { agent, event, global, fail_closed, wants_proof: false, complaint })
}

/// Handles a `piton hook` with invalid arguments. The agent cannot fix them and would take exit code 2 for a denial, so
/// the call is answered like any other, and the error is passed on as its complaint.
pub(crate) fn usage_error(error: &clap::Error) -> ExitCode {
    let words = error.to_string();
    let complaint = format!("`piton hook` was called with wrong arguments: {}", first_words(&words));
    let PartialArgs { agent, event, global, fail_closed } = parse_leniently(std::env::args_os().skip(1));
    let (agent, event) = (agent.unwrap_or(Agent::PLAIN), event.as_deref());
    say(&Call { agent, event, global: &global, fail_closed, wants_proof: false, complaint: Some(complaint) })
}

/// The arguments that could be recognised in an invalid command line.
#[derive(Debug, Default)]
struct PartialArgs {
    agent: Option<Agent>,
    event: Option<String>,
    global: Global,
    fail_closed: bool,
}

/// Parses an invalid command line, ignoring unknown options: they must not change where checkpoints are stored or
/// whether the agent is stopped.
///
/// clap's `ignore_errors` does not do that: it stops at the first error, and loses a `--base` after it.
fn parse_leniently(mut args: impl Iterator<Item = OsString>) -> PartialArgs {
    let mut parse_leniently = PartialArgs::default();
    while let Some(arg) = args.next() {
        let bytes = arg.as_encoded_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(platform::name_of_bytes(&bytes[at + 1..]).to_owned())),
            None => (bytes, None),
        };
        match name {
            b"--base" => parse_leniently.global.base = value.or_else(|| args.next()).map(PathBuf::from),
            b"--config" => parse_leniently.global.config = value.or_else(|| args.next()).map(PathBuf::from),
            b"-C" => parse_leniently.global.dir = args.next().map(PathBuf::from),
            b"--checkpoints" => parse_leniently.global.checkpoints = true,
            b"--fail-closed" => parse_leniently.fail_closed = true,
            _ if name.starts_with(b"-") => {}
            _ if parse_leniently.agent.is_none() => parse_leniently.agent = arg.to_str().and_then(Agent::parse),
            _ => parse_leniently.event = parse_leniently.event.or_else(|| arg.into_string().ok()),
        }
    }
    parse_leniently
}

/// Returns the first paragraph of clap's error message on one line, without its `error: `.
fn first_words(error: &str) -> String {
    let lines = error.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Returns true if an agent calls `piton hook`, with valid arguments or not. A user at a terminal is not an agent.
pub(crate) fn is_called_by_agent() -> bool {
    is_hook_invocation() && !std::io::stdin().is_terminal()
}

fn is_hook_invocation() -> bool {
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-C" | "--base" | "--config") => drop(args.next()),
            Some(option) if option.starts_with('-') => {}
            other => return other == Some("hook"),
        }
    }
    false
}

fn say(call: &Call<'_>) -> ExitCode {
    let reply = respond(call);
    // Errors are ignored: an agent that does not read the reply must not make the hook fail.
    let _ = std::io::stdout().write_all(reply.stdout.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(reply.stderr.as_bytes());
    // Exits instead of returning, so that work which is still running on a detached thread ends at once.
    std::process::exit(i32::from(reply.code));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_after_an_error_count() {
        for line in [
            "hook claude --no-such-option --base /b --fail-closed",
            "--no-such-option hook --base=/b claude --fail-closed",
            "hook -x claude --fail-closed --fail-closed --base /b",
            "hook claude --base /a --base /b --fail-closed=yes",
        ] {
            let parsed = parse_leniently(line.split(' ').map(OsString::from));
            let found = (parsed.agent, parsed.global.base, parsed.fail_closed);
            assert_eq!(found, (Agent::parse("claude"), Some("/b".into()), true), "{line}");
        }
    }
}
