//! Parts of a command besides its words: redirections, conditions and arithmetic.

use rable::{Node, NodeKind};

use super::limits::DEPTH_MAX;
use super::losses;
use super::place::Cwd;
use super::walk::Walker;
use super::word::Word;

impl Walker<'_> {
    pub(super) fn redirects(&mut self, redirects: &[Node], cwd: &Cwd) {
        for redirect in redirects {
            match &redirect.kind {
                NodeKind::Redirect { op, target, .. } => {
                    let word = self.word(target, cwd);
                    if writes(op, &word) {
                        self.found.mark_target(&word, cwd);
                        losses::of_redirect(&mut self.found, op, &word, cwd);
                    }
                }
                // Bodies are read with the whole text: the parser may attach one to another here-document.
                NodeKind::HereDoc { .. } => {}
                _ => self.found.mark(cwd),
            }
        }
    }

    pub(super) fn condition(&mut self, node: &Node, cwd: &Cwd) {
        if self.depth >= DEPTH_MAX {
            return self.found.mark(cwd);
        }
        self.depth += 1;
        match &node.kind {
            NodeKind::CondAnd { left, right } | NodeKind::CondOr { left, right } => {
                self.condition(left, cwd);
                self.condition(right, cwd);
            }
            NodeKind::CondNot { operand: inner } | NodeKind::CondParen { inner } => self.condition(inner, cwd),
            NodeKind::UnaryTest { operand, .. } => self.term(operand, cwd),
            NodeKind::BinaryTest { left, right, .. } => {
                self.term(left, cwd);
                self.term(right, cwd);
            }
            _ => self.found.mark(cwd),
        }
        self.depth -= 1;
    }

    /// Analyses an operand of `[[`: after `-v`, or as a number, its subscript is expanded again.
    fn term(&mut self, node: &Node, cwd: &Cwd) {
        if self.word(node, cwd).hides_code() {
            self.found.mark(cwd);
        }
    }

    /// Analyses `((...))`. With unbalanced brackets a shell reads it as subshells, not as arithmetic.
    pub(super) fn arithmetic(&mut self, raw: &str, cwd: &Cwd) {
        let mut depth = 0i32;
        let paired = raw.chars().all(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth >= 0
        });
        if !paired || depth != 0 {
            self.found.mark(cwd);
        }
        self.expansions(raw, cwd);
    }
}

/// Returns true if a redirection writes to a file.
fn writes(op: &str, word: &Word) -> bool {
    const DEVICES: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"];
    if !op.contains('>') || op == ">&-" || word.pipe {
        return false;
    }
    let Some(name) = word.known() else { return true };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let duplicates = op == ">&" && (is_number(name) || name == "-");
    let device = DEVICES.contains(&name) || name.strip_prefix("/dev/fd/").is_some_and(is_number);
    !duplicates && !device
}
