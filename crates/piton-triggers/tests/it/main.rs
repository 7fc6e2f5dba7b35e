//! Tests of the analysis of shell commands.

mod losses;
mod triggers;
