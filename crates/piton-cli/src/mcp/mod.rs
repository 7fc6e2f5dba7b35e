//! The Model Context Protocol over stdin and stdout: `piton mcp`. The messages are those of JSON-RPC 2.0, one a line, and the
//! tools are methods of `piton serve` with fewer parameters.
//!
//! - Y1. No file of the project changes unless a person agreed to the plan, through the client's elicitation. To a client
//!   without it the tool is not offered, and a call of it is answered with the plan and the command to type.
//! - Y2. Work of other sessions, contents outside the scope, the user's own repository and history are out of reach: no tool
//!   has a parameter for them.

mod ask;
pub(crate) mod server;
mod tools;
