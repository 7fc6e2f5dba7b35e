//! The one place that calls the parser, within a budget.
//!
//! Every text that is parsed again (a substitution, `sh -c`, `eval`) pays from the same budget, so the work of one
//! analysis has a bound whatever it contains. A panic inside the parser counts as "cannot be parsed".

use std::panic::catch_unwind;

use rable::{Node, NodeKind};

use super::limits;

/// Bytes that one analysis may hand to the parser, counting repeats.
const BYTES_MAX: usize = 1024 * 1024;
/// Calls of the parser in one analysis.
const CALLS_MAX: usize = 5_000;

pub(super) struct Parser {
    bytes_left: usize,
    calls_left: usize,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self { bytes_left: BYTES_MAX, calls_left: CALLS_MAX }
    }

    /// The commands in `source`, or nothing when it is over a limit or no shell would be sure to read it.
    pub(super) fn parse(&mut self, source: &str) -> Option<Vec<Node>> {
        self.bytes_left = self.bytes_left.checked_sub(source.len())?;
        self.calls_left = self.calls_left.checked_sub(1)?;
        if !limits::within(source) {
            return None;
        }
        catch_unwind(|| rable::parse(source, false)).ok()?.ok()
    }

    /// Returns whether `source` is one word that consists of one substitution, from its first character to its last.
    pub(super) fn is_one_substitution(&mut self, source: &str) -> bool {
        let Some(nodes) = self.parse(source) else { return false };
        let [Node { kind: NodeKind::Command { assignments, words, redirects }, .. }] = nodes.as_slice() else {
            return false;
        };
        let [Node { kind: NodeKind::Word { value, parts, .. }, .. }] = words.as_slice() else { return false };
        assignments.is_empty() && redirects.is_empty() && parts.len() == 1 && value == source
    }
}
