//! The `piton serve` command.

use clap::Args;

use crate::options::EXIT_CODES;

/// Answer the requests of a program: JSON-RPC 2.0, one message a line
#[derive(Debug, Args)]
#[command(after_help = format!("\
Every command is a method. Its parameters are the options and arguments of the
command, `directory` says where, and its result is what `--json` prints. The
contract is docs/schema/rpc.json; docs/guide/programs.md shows how to use it.

Example:
  echo '{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"take\"}}' | piton serve

It ends when stdin does.

{EXIT_CODES}"))]
pub(crate) struct Serve {}
