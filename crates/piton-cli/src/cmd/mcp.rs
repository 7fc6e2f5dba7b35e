//! The `piton mcp` command.

use clap::Args;

use crate::options::EXIT_CODES;

/// Give an agent tools of its own: the Model Context Protocol over stdin and stdout
#[derive(Debug, Args)]
#[command(after_help = format!("\
Tools: take, list, diff, log, blame, search and restore_plan. `restore` is
offered only to clients that can ask you, and asks you with the plan; others
get the plan and the command for you to type.

Example of an entry in an agent's configuration, which runs `piton mcp`:
  {{\"command\": \"piton\", \"args\": [\"mcp\"]}}

Hooks protect every prompt without the model's help: `piton install` comes
first, this is an addition. It ends when stdin does.

{EXIT_CODES}"))]
pub(crate) struct Mcp {}
