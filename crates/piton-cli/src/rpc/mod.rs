//! JSON-RPC 2.0 for programs, one message a line on stdin and stdout: `piton serve`.
//!
//! A method is a command of the command line, its parameters are the options and arguments of that command, and its
//! result is what the command prints with `--json`: both are derived from the same definitions, and so is the contract
//! in `docs/schema/rpc.json`.
//!
//! line -> `wire` -> message -> `params` -> arguments of the command -> the command, with a `Request` in place of the
//! terminal -> its report -> line
//!
//! - Q1. Each request is answered exactly once, by its result or by an error. Only messages are written to stdout.
//! - Q2. No input ends the process: neither a line that is too long or is not JSON, nor a panic of a command.
//! - Q3. The process ends when stdin is closed: if the client still reads, after every request was answered; otherwise,
//!   after every request that can be cancelled was cancelled.

pub(crate) mod contract;
mod event;
pub(crate) mod methods;
pub(crate) mod params;
pub(crate) mod pool;
pub(crate) mod serve;
pub(crate) mod wire;
