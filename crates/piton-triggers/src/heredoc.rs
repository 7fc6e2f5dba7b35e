//! Here-documents of a text, collected before the walk.
//!
//! The parser assigns bodies by order and skips some places, so a body may be attached to another here-document than
//! its own. If any of them is expanded, the bodies of all are read for substitutions.

use rable::{CasePattern, Node, NodeKind};

use super::limits::DEPTH_MAX;

#[derive(Default)]
pub(super) struct Docs {
    pub(super) bodies: Vec<String>,
    /// True if one of them has an unquoted delimiter, so that its body is expanded.
    pub(super) expanded: bool,
    delimiters: Vec<(String, bool)>,
    /// True if some are nested too deeply to be collected, or have no body.
    lost: bool,
}

impl Docs {
    /// Returns true if shells and the parser could disagree on the end of a body, for example because a line starts
    /// with the delimiter and is longer. Text to one would then be a command to the other.
    pub(super) fn unsure(&self, source: &str) -> bool {
        self.lost
            || self.delimiters.iter().any(|(delimiter, tabs)| {
                delimiter.is_empty()
                    || source.lines().any(|line| {
                        let line = if *tabs { line.trim_start_matches('\t') } else { line };
                        line != delimiter && line.starts_with(delimiter.as_str())
                    })
            })
    }

    pub(super) fn collect(&mut self, node: &Node, depth: usize) {
        if depth > DEPTH_MAX {
            self.lost = true;
            return;
        }
        let mut each = |nodes: &[Node]| nodes.iter().for_each(|node| self.collect(node, depth + 1));
        match &node.kind {
            NodeKind::HereDoc { delimiter, content, strip_tabs, quoted, .. } => {
                self.bodies.push(content.clone());
                self.expanded |= !quoted;
                self.delimiters.push((delimiter.clone(), *strip_tabs));
            }
            NodeKind::Command { redirects, .. } => each(redirects),
            // The parser does not attach the bodies of these.
            NodeKind::ArithmeticCommand { redirects, .. } | NodeKind::ConditionalExpr { redirects, .. } => {
                self.lost |= has_doc(redirects);
            }
            NodeKind::ForArith { body, redirects, .. } => {
                self.lost |= has_doc(redirects);
                self.collect(body, depth + 1);
            }
            NodeKind::Pipeline { commands, .. } => each(commands),
            NodeKind::List { items } => items.iter().for_each(|item| self.collect(&item.command, depth + 1)),
            NodeKind::If { condition, then_body, else_body, redirects } => {
                each(redirects);
                self.collect(condition, depth + 1);
                self.collect(then_body, depth + 1);
                if let Some(body) = else_body {
                    self.collect(body, depth + 1);
                }
            }
            NodeKind::While { condition, body, redirects } | NodeKind::Until { condition, body, redirects } => {
                each(redirects);
                self.collect(condition, depth + 1);
                self.collect(body, depth + 1);
            }
            NodeKind::For { body, redirects, .. }
            | NodeKind::Select { body, redirects, .. }
            | NodeKind::Subshell { body, redirects }
            | NodeKind::BraceGroup { body, redirects } => {
                each(redirects);
                self.collect(body, depth + 1);
            }
            NodeKind::Case { patterns, redirects, .. } => {
                each(redirects);
                let bodies = patterns.iter().filter_map(|CasePattern { body, .. }| body.as_ref());
                bodies.for_each(|body| self.collect(body, depth + 1));
            }
            NodeKind::Function { body, .. } | NodeKind::Coproc { command: body, .. } => self.collect(body, depth + 1),
            NodeKind::Negation { pipeline } | NodeKind::Time { pipeline, .. } => self.collect(pipeline, depth + 1),
            _ => {}
        }
    }
}

fn has_doc(redirects: &[Node]) -> bool {
    redirects.iter().any(|node| matches!(node.kind, NodeKind::HereDoc { .. }))
}
