//! The only caller of the parser, with a budget.
//!
//! Every text that is parsed again (a substitution, `sh -c`, `eval`) uses the same budget, so the work of one analysis
//! is bounded for any input. A panic inside the parser counts as a parse error.

use std::panic::catch_unwind;

use rable::{Node, NodeKind};

use super::limits;

/// Number of bytes that one analysis may pass to the parser, including repeats.
const BYTES_MAX: usize = 1024 * 1024;
/// Number of calls of the parser in one analysis.
const CALLS_MAX: usize = 5_000;

pub(super) struct Parser {
    bytes_left: usize,
    calls_left: usize,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self { bytes_left: BYTES_MAX, calls_left: CALLS_MAX }
    }

    /// Returns the commands in `source`, or `None` if it exceeds a limit or cannot be parsed.
    pub(super) fn parse(&mut self, source: &str) -> Option<Vec<Node>> {
        self.bytes_left = self.bytes_left.checked_sub(source.len())?;
        self.calls_left = self.calls_left.checked_sub(1)?;
        if !limits::within(source) {
            return None;
        }
        catch_unwind(|| rable::parse(source, false)).ok()?.ok()
    }

    /// Returns true if `source` is one word that consists of one substitution, from its first character to its last.
    pub(super) fn is_one_substitution(&mut self, source: &str) -> bool {
        let Some(nodes) = self.parse(source) else { return false };
        let [Node { kind: NodeKind::Command { assignments, words, redirects }, .. }] = nodes.as_slice() else {
            return false;
        };
        let [Node { kind: NodeKind::Word { value, parts, .. }, .. }] = words.as_slice() else { return false };
        assignments.is_empty() && redirects.is_empty() && parts.len() == 1 && value == source
    }
}
