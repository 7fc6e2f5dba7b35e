//! Walk over the parsed commands, which tracks the working directory.
//!
//! A command may succeed or fail, and `cd` changes the directory only if it succeeds. So each step returns the possible
//! directories of the shell in either case: `cd x && rm y` removes in `x`, `cd x; rm y` in `x` or, if there is no `x`,
//! in the current directory.

use std::collections::HashMap;
use std::path::Path;

use rable::{CasePattern, ListItem, ListOperator, Node, NodeKind};

use super::findings::Findings;
use super::heredoc::Docs;
use super::limits::DEPTH_MAX;
use super::parse::Parser;
use super::place::Cwd;
use super::runs;
use super::vars;
use super::word::{Read, Word, read_expansions, read_word};

mod find;
mod invoke;

/// Depth limit of texts inside texts: `sh -c`, `eval`, substitutions.
const SOURCE_DEPTH_MAX: usize = 40;
/// Possible directories of the shell after a command that succeeded, or failed.
#[derive(Clone)]
pub(super) struct Flow {
    pub(super) ok: Cwd,
    pub(super) fail: Cwd,
}

impl Flow {
    pub(super) fn stay(cwd: &Cwd) -> Self {
        Self { ok: cwd.clone(), fail: cwd.clone() }
    }

    fn end(&self, start: &Cwd) -> Cwd {
        self.ok.join(&self.fail).or(start)
    }
}

/// Function defined by the command. Its body was counted at its definition.
struct Function {
    changes: bool,
    leaves: Option<Cwd>,
}

pub(super) struct Walker<'a> {
    pub(super) found: Findings<'a>,
    pub(super) parser: Parser,
    functions: HashMap<String, Function>,
    stack: Vec<Cwd>,
    /// Number of enclosing constructs that may not run, or not in this shell.
    branches: usize,
    pub(super) depth: usize,
    source_depth: usize,
}

impl<'a> Walker<'a> {
    pub(super) fn new(home: Option<&'a Path>) -> Self {
        Self {
            found: Findings::new(home),
            parser: Parser::new(),
            functions: HashMap::new(),
            stack: Vec::new(),
            branches: 0,
            depth: 0,
            source_depth: 0,
        }
    }

    /// Walks a text as commands in this shell.
    pub(super) fn source(&mut self, source: &str, cwd: &Cwd) -> Flow {
        if self.source_depth >= SOURCE_DEPTH_MAX {
            self.found.destroys = true;
            self.found.mark(cwd);
            return Flow::stay(cwd);
        }
        let Some(nodes) = self.parser.parse(source) else {
            self.found.destroys = true;
            self.found.add_unread(source);
            self.found.mark(cwd);
            return Flow { ok: cwd.clone().lost(), fail: cwd.clone().lost() };
        };
        self.source_depth += 1;
        let mut docs = Docs::default();
        nodes.iter().for_each(|node| docs.collect(node, 0));
        if docs.unsure(source) {
            self.found.mark(cwd);
        }
        for body in docs.bodies.iter().filter(|_| docs.expanded) {
            let read = read_expansions(body, &mut self.parser);
            self.code(read, cwd);
        }
        let mut flow = Flow::stay(cwd);
        for node in &nodes {
            let here = flow.end(cwd);
            flow = self.node(node, &here);
        }
        self.source_depth -= 1;
        flow
    }

    /// Walks a text in a subshell.
    pub(super) fn subshell(&mut self, source: &str, cwd: &Cwd) {
        let label = self.found.label.clone();
        self.apart(|walker| {
            walker.source(source, cwd);
        });
        self.found.label = label;
    }

    /// Runs `inside` without effect on this shell: neither its directory nor its functions change.
    fn apart(&mut self, inside: impl FnOnce(&mut Self)) {
        self.branches += 1;
        let stack = self.stack.clone();
        inside(self);
        self.stack = stack;
        self.branches -= 1;
    }

    fn code(&mut self, read: Read, cwd: &Cwd) -> Word {
        if read.odd {
            self.found.mark(cwd);
        }
        for source in &read.code {
            self.subshell(source, cwd);
        }
        read.word
    }

    /// Reads a word and walks the code in it.
    fn text(&mut self, raw: &str, cwd: &Cwd) -> Word {
        let home = self.found.home.and_then(Path::to_str);
        let read = read_word(raw, home, &mut self.parser);
        self.code(read, cwd)
    }

    pub(super) fn expansions(&mut self, raw: &str, cwd: &Cwd) {
        let read = read_expansions(raw, &mut self.parser);
        self.code(read, cwd);
    }

    pub(super) fn word(&mut self, node: &Node, cwd: &Cwd) -> Word {
        match &node.kind {
            NodeKind::Word { value, .. } | NodeKind::CondTerm { value, .. } | NodeKind::WordLiteral { value } => {
                self.text(value, cwd)
            }
            _ => {
                self.found.mark(cwd);
                Word::starting("")
            }
        }
    }

    fn words(&mut self, variable: &str, nodes: Option<&Vec<Node>>, cwd: &Cwd) {
        for node in nodes.into_iter().flatten() {
            let word = self.word(node, cwd);
            self.found.set_value(variable, &word);
            self.found.hint(word, cwd);
        }
    }

    pub(super) fn node(&mut self, node: &Node, cwd: &Cwd) -> Flow {
        if self.depth >= DEPTH_MAX {
            self.found.mark(cwd);
            return Flow::stay(cwd);
        }
        self.depth += 1;
        let flow = self.node_inner(node, cwd);
        self.depth -= 1;
        flow
    }

    fn node_inner(&mut self, node: &Node, cwd: &Cwd) -> Flow {
        match &node.kind {
            NodeKind::Empty | NodeKind::Comment { .. } => Flow::stay(cwd),
            NodeKind::Command { assignments, words, redirects } => self.command(assignments, words, redirects, cwd),
            NodeKind::Pipeline { commands, .. } => {
                self.pipeline(commands, cwd);
                Flow::stay(cwd)
            }
            NodeKind::List { items } => self.list(items, cwd),
            NodeKind::Negation { pipeline } => {
                let flow = self.node(pipeline, cwd);
                Flow { ok: flow.fail, fail: flow.ok }
            }
            NodeKind::Time { pipeline, .. } => self.node(pipeline, cwd),
            NodeKind::Coproc { command, .. } => self.aside(command, cwd),
            NodeKind::Subshell { body, redirects } => {
                self.redirects(redirects, cwd);
                self.aside(body, cwd)
            }
            NodeKind::BraceGroup { body, redirects } => {
                self.redirects(redirects, cwd);
                self.node(body, cwd)
            }
            NodeKind::If { condition, then_body, else_body, redirects } => {
                self.redirects(redirects, cwd);
                self.branch(condition, then_body, else_body.as_deref(), cwd)
            }
            NodeKind::While { condition, body, redirects } | NodeKind::Until { condition, body, redirects } => {
                self.redirects(redirects, cwd);
                let flow = self.node(condition, cwd);
                self.repeated(body, &flow.end(cwd))
            }
            NodeKind::For { var, words, body, redirects } | NodeKind::Select { var, words, body, redirects } => {
                self.redirects(redirects, cwd);
                self.words(var, words.as_ref(), cwd);
                self.repeated(body, cwd)
            }
            NodeKind::ForArith { init, cond, incr, body, redirects } => {
                self.redirects(redirects, cwd);
                self.arithmetic(&format!("{init};{cond};{incr}"), cwd);
                self.repeated(body, cwd)
            }
            NodeKind::Case { word, patterns, redirects } => {
                self.redirects(redirects, cwd);
                self.word(word, cwd);
                self.case(patterns, cwd)
            }
            NodeKind::Function { name, body } => self.define(name, body, cwd),
            NodeKind::ArithmeticCommand { raw_content, redirects, .. } => {
                self.redirects(redirects, cwd);
                self.arithmetic(raw_content, cwd);
                Flow::stay(cwd)
            }
            NodeKind::ConditionalExpr { body, redirects } => {
                self.redirects(redirects, cwd);
                self.condition(body, cwd);
                Flow::stay(cwd)
            }
            // No other node is valid in place of a command.
            _ => {
                self.found.mark(cwd);
                Flow::stay(cwd)
            }
        }
    }

    /// Walks a command that runs in a process of its own.
    fn aside(&mut self, node: &Node, cwd: &Cwd) -> Flow {
        self.apart(|walker| {
            walker.node(node, cwd);
        });
        Flow::stay(cwd)
    }

    /// Walks the commands of a pipeline, and tells which names a `find` passes to one that destroys them.
    fn pipeline(&mut self, commands: &[Node], cwd: &Cwd) {
        let earlier = self.found.printed.take();
        let waiting = self.found.placeholder.take();
        for command in commands {
            self.aside(command, cwd);
        }
        let printed = std::mem::replace(&mut self.found.printed, earlier);
        let lost = self.found.placeholder.take();
        self.found.placeholder = waiting;
        match (printed, lost) {
            (Some(printed), Some(lost)) => self.found.lose_found(&printed, lost),
            (None, Some(lost)) => self.found.placeholder = Some(lost),
            (_, None) => {}
        }
    }

    fn list(&mut self, items: &[ListItem], cwd: &Cwd) -> Flow {
        let mut flow = Flow::stay(cwd);
        let mut before = None;
        let mut here = cwd.clone();
        for item in items {
            let start = match before {
                Some(ListOperator::And) => flow.ok.clone().or(&here),
                Some(ListOperator::Or) => flow.fail.clone().or(&here),
                _ => flow.end(&here),
            };
            let chained = matches!(before, Some(ListOperator::And | ListOperator::Or));
            self.branches += usize::from(chained);
            let next = if item.operator == Some(ListOperator::Background) {
                self.aside(&item.command, &start)
            } else {
                self.node(&item.command, &start)
            };
            self.branches -= usize::from(chained);
            flow = match before {
                Some(ListOperator::And) => Flow { ok: next.ok, fail: flow.fail.join(&next.fail) },
                Some(ListOperator::Or) => Flow { ok: flow.ok.join(&next.ok), fail: next.fail },
                _ => next,
            };
            here = start;
            before = item.operator;
        }
        flow
    }

    fn branch(&mut self, condition: &Node, then: &Node, otherwise: Option<&Node>, cwd: &Cwd) -> Flow {
        let tested = self.node(condition, cwd);
        self.branches += 1;
        let yes = self.node(then, &tested.ok.clone().or(cwd));
        let no = match otherwise {
            Some(node) => self.node(node, &tested.fail.clone().or(cwd)),
            None => Flow { ok: tested.fail.clone(), fail: tested.fail },
        };
        self.branches -= 1;
        Flow { ok: yes.ok.join(&no.ok), fail: yes.fail.join(&no.fail) }
    }

    /// Walks a body that runs any number of times. If it changes the directory, the next iteration starts elsewhere.
    fn repeated(&mut self, body: &Node, cwd: &Cwd) -> Flow {
        let marks = self.found.marks;
        self.branches += 1;
        let end = self.node(body, cwd).end(cwd);
        self.branches -= 1;
        if end == *cwd {
            return Flow::stay(cwd);
        }
        let after = cwd.join(&end).lost();
        if self.found.marks > marks {
            self.found.add(after.known.iter().cloned());
        }
        Flow::stay(&after)
    }

    fn case(&mut self, patterns: &[CasePattern], cwd: &Cwd) -> Flow {
        let mut end = cwd.clone();
        self.branches += 1;
        for pattern in patterns {
            for word in &pattern.patterns {
                self.word(word, cwd);
            }
            if let Some(body) = &pattern.body {
                // `;&` falls through: start in any directory that an earlier branch may have changed to.
                let start = if end == *cwd { cwd.clone() } else { end.clone() };
                end = end.join(&self.node(body, &start).end(cwd));
            }
        }
        self.branches -= 1;
        Flow::stay(&end)
    }

    fn define(&mut self, name: &str, body: &Node, cwd: &Cwd) -> Flow {
        let marks = self.found.marks;
        self.branches += 1;
        let end = self.node(body, cwd).end(cwd);
        self.branches -= 1;
        if self.branches == 0 {
            let leaves = (end != *cwd).then_some(end);
            self.functions.insert(name.into(), Function { changes: self.found.marks > marks, leaves });
        }
        Flow::stay(cwd)
    }

    /// Walks a call of a function that was certainly defined before. Returns `None` if there is none.
    pub(super) fn call(&mut self, name: &str, cwd: &Cwd) -> Option<Flow> {
        let function = self.functions.get(name)?;
        let after = match &function.leaves {
            Some(end) => cwd.join(end).lost(),
            None => cwd.clone(),
        };
        if function.changes {
            self.found.mark(&after);
        }
        Some(Flow::stay(&after))
    }

    pub(super) fn forget_functions(&mut self) {
        self.functions.clear();
    }

    fn command(&mut self, assignments: &[Node], words: &[Node], redirects: &[Node], cwd: &Cwd) -> Flow {
        let name = label(words, redirects);
        self.found.label.clone_from(&name);
        for node in assignments {
            let NodeKind::Word { value, .. } = &node.kind else {
                self.found.mark(cwd);
                continue;
            };
            let word = self.text(value, cwd);
            vars::assign(&mut self.found, &word, cwd);
        }
        let words: Vec<Word> = words.iter().map(|node| self.word(node, cwd)).collect();
        self.redirects(redirects, cwd);
        self.found.label = name;
        let flow = invoke::run(self, &words, cwd);
        self.input(&words, redirects, cwd);
        flow
    }

    /// Walks what a shell or another interpreter reads. A shell counts as changing already; its input tells where.
    fn input(&mut self, words: &[Word], redirects: &[Node], cwd: &Cwd) {
        let is_shell = words.iter().any(|word| invoke::shell_name(&word.text).is_some());
        for redirect in redirects {
            match &redirect.kind {
                NodeKind::HereDoc { content, .. } if is_shell => self.subshell(content, cwd),
                NodeKind::HereDoc { content, .. } => runs::of_input(&mut self.found, words, content, cwd),
                NodeKind::Redirect { op, target, .. } if is_shell && matches!(op.as_str(), "<" | "<<<") => {
                    let word = self.word(target, cwd);
                    match op.as_str() {
                        "<" => self.found.run_script(&word, cwd),
                        _ => self.subshell(&word.full, cwd),
                    }
                }
                _ => {}
            }
        }
        if redirects.is_empty()
            && let Some(shell) = invoke::reads_commands(words)
        {
            self.found.add_unread(&format!("commands that {shell} reads"));
        }
    }
}

fn label(words: &[Node], redirects: &[Node]) -> String {
    let mut out = Vec::new();
    for node in words.iter().take(40) {
        if let NodeKind::Word { value, .. } = &node.kind {
            out.push(value.clone());
        }
    }
    for node in redirects.iter().take(4) {
        if let NodeKind::Redirect { op, target, .. } = &node.kind
            && let NodeKind::Word { value, .. } = &target.kind
        {
            out.push(format!("{op} {value}"));
        }
    }
    out.join(" ")
}
