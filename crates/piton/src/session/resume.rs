//! Text that an agent puts into its context to continue: the task, completed steps and open ones. Its length is
//! limited; if there is more, the newest lines are kept and the others counted.

use std::collections::HashSet;

use super::yaml::{Node, NodeKind};
use super::{Record, SessionId, TASK, UPDATED};

/// Length limit of the text.
const CHARS_MAX: usize = 4000;
const TASK_CHARS_MAX: usize = 1000;
/// Chosen so that one line of each section fits beside the longest task.
const ITEM_CHARS_MAX: usize = 350;
/// Space reserved for the line that counts hidden lines.
const COUNT_CHARS: usize = 40;
/// Status values of steps that need no more work.
const DONE: [&str; 9] =
    ["completed", "complete", "done", "success", "ok", "finished", "passed", "skipped", "cancelled"];

/// Lines under a title, of which the first may be hidden.
struct ResumeSection {
    title: &'static str,
    lines: Vec<String>,
    /// Number of lines shown, counted from the end.
    shown: usize,
}

impl Record {
    /// Returns the text that an agent needs to continue, at most 4,000 characters. Returns `None` if the task is
    /// completed.
    pub fn resume(&self, id: &SessionId) -> Option<String> {
        if self.is_completed() {
            return None;
        }
        let get = |key: &str| self.map.get(key).filter(|node| !node.is_null());
        let inline_of = |key: &str, max| get(key).map(|node| cut(&inline(node), max)).unwrap_or_default();
        let mut head = format!("Resume of session {id}");
        for key in ["status", UPDATED] {
            let value = inline_of(key, 60);
            if !value.is_empty() {
                head.push_str(&format!(", {key}: {value}"));
            }
        }
        head.push_str(&format!("\nTask: {}\n", inline_of(TASK, TASK_CHARS_MAX)));
        let (done, open): (Vec<_>, Vec<_>) = latest(items(get("progress"))).into_iter().partition(|step| is_done(step));
        let lines = |nodes: &[&Node]| nodes.iter().map(|node| line(node)).collect();
        // In the order of display, which is not that of importance.
        let sections = [
            section("Done", lines(&done)),
            section("Open", lines(&open)),
            section("Decisions", lines(&items(get("decisions")))),
            section("Blocked", lines(&items(get("blocked")))),
            section("Unresolved", lines(&items(get("unresolved")))),
            section("State", pairs(get("state"))),
        ];
        Some(fill(head, sections))
    }
}

fn section(title: &'static str, lines: Vec<String>) -> ResumeSection {
    ResumeSection { title, lines, shown: 0 }
}

/// Adds one line at a time to each section in turn, from its end, while there is room.
fn fill(head: String, mut sections: [ResumeSection; 6]) -> String {
    const TURNS: [usize; 6] = [1, 3, 4, 5, 2, 0];
    let mut room = CHARS_MAX.saturating_sub(head.chars().count());
    let mut is_full = [false; 6];
    while is_full.contains(&false) {
        for at in TURNS {
            let section = &mut sections[at];
            let next = section.lines.len().checked_sub(section.shown + 1).and_then(|next| section.lines.get(next));
            let title = if section.shown == 0 { section.title.len() + COUNT_CHARS } else { 0 };
            match next.map(|line| line.chars().count() + 1 + title).filter(|cost| *cost <= room && !is_full[at]) {
                Some(cost) => (room, section.shown) = (room - cost, section.shown + 1),
                None => is_full[at] = true,
            }
        }
    }
    let mut block = head;
    for ResumeSection { title, lines, shown } in sections.iter().filter(|section| section.shown > 0) {
        block.push_str(&format!("{title}:\n"));
        let hidden = lines.len() - shown;
        if hidden > 0 {
            block.push_str(&format!("- ({hidden} earlier)\n"));
        }
        lines[hidden..].iter().for_each(|line| block.extend([line.as_str(), "\n"]));
    }
    block
}

fn items(node: Option<&Node>) -> Vec<&Node> {
    match node.map(|node| (node, &node.kind)) {
        None => Vec::new(),
        Some((_, NodeKind::List(items))) => items.iter().collect(),
        Some((node, _)) => vec![node],
    }
}

/// Keeps only the last entry of each named step.
fn latest(mut steps: Vec<&Node>) -> Vec<&Node> {
    let mut seen = HashSet::new();
    steps.reverse();
    steps.retain(|step| match step.as_map().and_then(|map| map.get("step")?.as_str()) {
        Some(name) => seen.insert(name),
        None => true,
    });
    steps.reverse();
    steps
}

/// Returns true if the step needs no more work. A step without a status was noted because it was done.
fn is_done(step: &Node) -> bool {
    let status = step.as_map().and_then(|map| map.get("status")).filter(|status| !status.is_null());
    status.and_then(Node::as_str).is_none_or(|status| DONE.contains(&status.trim().to_ascii_lowercase().as_str()))
}

/// Returns one item as a line: a step in readable form, everything else as it is.
fn line(node: &Node) -> String {
    let step = node.as_map().and_then(|map| {
        let field = |name: &str| map.get(name).filter(|value| !value.is_null()).map(inline);
        let mut text = field("step")?;
        if let Some(status) = field("status").filter(|_| !is_done(node)) {
            text.push_str(&format!(" [{status}]"));
        }
        if let Some(result) = field("result").filter(|result| !result.is_empty()) {
            text.push_str(&format!(": {result}"));
        }
        let is_further = |key: &Node| !matches!(key.as_str(), Some("step" | "status" | "result"));
        for (key, value) in map.0.iter().filter(|(key, _)| is_further(key)) {
            text.push_str(&format!("; {}: {}", inline(key), inline(value)));
        }
        Some(text)
    });
    format!("- {}", cut(&step.unwrap_or_else(|| inline(node)), ITEM_CHARS_MAX))
}

fn pairs(node: Option<&Node>) -> Vec<String> {
    let Some(map) = node.and_then(Node::as_map) else {
        return items(node).into_iter().map(line).collect();
    };
    let says_something = |value: &Node| !value.is_null() && !inline(value).is_empty();
    let pairs = map.0.iter().filter(|(_, value)| says_something(value));
    pairs
        .map(|(key, value)| format!("- {}", cut(&format!("{}: {}", inline(key), inline(value)), ITEM_CHARS_MAX)))
        .collect()
}

/// Returns a value on one line, without control characters.
fn inline(node: &Node) -> String {
    match &node.kind {
        NodeKind::Scalar { text, .. } => {
            let words: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            words.split_whitespace().collect::<Vec<_>>().join(" ")
        }
        NodeKind::List(items) => items.iter().map(inline).collect::<Vec<_>>().join(", "),
        NodeKind::Map(map) if map.0.is_empty() => String::new(),
        NodeKind::Map(map) => {
            let pairs = map.0.iter().map(|(key, value)| format!("{}: {}", inline(key), inline(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max - 1).chain(['…']).collect(),
    }
}
