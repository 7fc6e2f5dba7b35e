//! Tests of the analysis of shell commands.

mod triggers;
