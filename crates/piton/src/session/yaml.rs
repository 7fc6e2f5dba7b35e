//! YAML as a tree of nodes that preserves how each scalar was written.
//!
//! Typed parsing would lose information: to YAML 1.2 `1e3` is a number and `2026-11-15` is text, to PyYAML it is the
//! other way round. So a plain scalar stays plain, with its own text, and every other scalar is text. The next reader
//! of the file decides what a plain scalar means.
//!
//! Aliases are expanded. A file whose expansion is too large, or that is nested too deeply, is refused.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag, options};

use super::scalar::{Meaning, meaning};

/// Nesting limit of collections.
const DEPTH_MAX: usize = 64;
/// Size limit of one file in memory, with all aliases expanded.
const COST_MAX: usize = 16 << 20;
/// Cost of a node in addition to its text.
const NODE_COST: usize = 16;
/// Line breaks in YAML 1.1 but not in 1.2. In a quoted scalar they are kept, and blanks around them are removed.
const SEPARATORS: [char; 2] = ['\u{2028}', '\u{2029}'];
const CORE: &str = "tag:yaml.org,2002:";

/// Reason why a text is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub(super) struct Refusal {
    /// Line, counted from 1.
    pub(super) line: usize,
    pub(super) why: String,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Full tag, if one is written and has a meaning.
    pub(super) tag: Option<String>,
    pub(super) kind: NodeKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeKind {
    Scalar { text: String, is_plain: bool },
    List(Vec<Node>),
    Map(Map),
}

/// Keys and values in order, without duplicate keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Map(pub(super) Vec<(Node, Node)>);

impl Node {
    pub(super) fn new(kind: NodeKind) -> Self {
        Self { tag: None, kind }
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::new(NodeKind::Scalar { text: text.into(), is_plain: false })
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(NodeKind::Scalar { text: text.into(), is_plain: true })
    }

    /// Returns the meaning of a scalar. One with quotes or a tag is text.
    pub(super) fn meaning(&self) -> Option<Meaning> {
        match &self.kind {
            NodeKind::Scalar { text, is_plain: true } if self.tag.is_none() => Some(meaning(text)),
            NodeKind::Scalar { .. } => Some(Meaning::Text),
            _ => None,
        }
    }

    /// Returns true for a scalar without quotes and tag.
    pub(super) fn is_plain(&self) -> bool {
        self.tag.is_none() && matches!(self.kind, NodeKind::Scalar { is_plain: true, .. })
    }

    pub(super) fn is_null(&self) -> bool {
        self.meaning() == Some(Meaning::Null)
    }

    /// Returns the characters of a scalar, whatever its meaning.
    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the characters of a key. An omitted key is equal to `null`.
    pub(super) fn key(&self) -> &str {
        if self.is_null() { "null" } else { self.as_str().unwrap_or_default() }
    }

    pub(super) fn as_map(&self) -> Option<&Map> {
        match &self.kind {
            NodeKind::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns a tag in this tree that an ordinary YAML reader does not know, or that does not match its value.
    pub(super) fn foreign_tag(&self) -> Option<&str> {
        let own = self.tag.as_deref().filter(|tag| !tag.strip_prefix(CORE).is_some_and(|name| self.goes_with(name)));
        own.or_else(|| match &self.kind {
            NodeKind::Scalar { .. } => None,
            NodeKind::List(items) => items.iter().find_map(Self::foreign_tag),
            NodeKind::Map(map) => map.foreign_tag(),
        })
    }

    fn goes_with(&self, tag: &str) -> bool {
        let single = |item: &Self| item.as_map().is_some_and(|map| map.0.len() == 1);
        match (&self.kind, tag) {
            (NodeKind::List(items), "omap" | "pairs") => items.iter().all(single),
            (NodeKind::Map(_), "set") | (NodeKind::Scalar { .. }, "null") => true,
            (NodeKind::Scalar { text, .. }, "binary") => {
                text.bytes().filter(|byte| !byte.is_ascii_whitespace()).count() % 4 == 0 && text.is_ascii()
            }
            (NodeKind::Scalar { text, .. }, _) => matches!(
                (meaning(text), tag),
                (Meaning::Bool(_), "bool")
                    | (Meaning::Int(_), "int" | "float")
                    | (Meaning::Float(_), "float")
                    | (Meaning::Time(_), "timestamp")
            ),
            _ => false,
        }
    }
}

/// Returns the parts by which keys are compared. Quotes are not among them.
fn identity(key: &Node) -> (bool, Option<&str>, &str) {
    let is_text = matches!(key.meaning(), Some(Meaning::Text | Meaning::Nonsense));
    (is_text, key.tag.as_deref(), key.key())
}

impl Map {
    pub(super) fn foreign_tag(&self) -> Option<&str> {
        self.0.iter().find_map(|(key, value)| key.foreign_tag().or_else(|| value.foreign_tag()))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|(key, _)| identity(key) == (true, None, name)).map(|(_, value)| value)
    }

    /// Sets the value of a key. An existing key keeps its position, as it does for every reader.
    pub(super) fn set(&mut self, key: Node, value: Node) {
        match self.0.iter_mut().find(|(there, _)| identity(there) == identity(&key)) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Node> {
        let at = self.0.iter().position(|(key, _)| identity(key) == (true, None, name))?;
        Some(self.0.remove(at).1)
    }
}

/// Parses one document. JSON is parsed as JSON, because escapes and numbers differ.
pub(super) fn parse(text: &str) -> Result<Node, Refusal> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    // To PyYAML this character is a line break.
    let source = if is_json { without_controls(text) } else { text.replace('\u{85}', "\n") };
    let options = options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
        simple_key_max_lookahead: if is_json { source.len() } else { 1024 },
    };
    let parser = Parser::new_from_str_with_options(&source, options);
    NodeReader { parser, source: &source, is_json, anchors: HashMap::new(), budget: COST_MAX }.document()
}

/// Node with the cost and the nesting depth of repeating it.
#[derive(Clone)]
struct Built {
    node: Node,
    cost: usize,
    height: usize,
}

struct NodeReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a str,
    is_json: bool,
    anchors: HashMap<usize, Built>,
    budget: usize,
}

fn too_deep() -> String {
    format!("collections are nested more than {DEPTH_MAX} deep")
}

fn refused(span: Span, why: impl Into<String>) -> Refusal {
    Refusal { line: span.start.line(), why: why.into() }
}

impl<'a> NodeReader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Refusal> {
        let scan = |error: &ScanError| Refusal {
            line: error.marker().line(),
            why: match error.kind() {
                ErrorKind::RecursionLimitExceeded => too_deep(),
                _ => error.info(),
            },
        };
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| scan(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(mut self) -> Result<Node, Refusal> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(root.unwrap_or_else(|| Node::plain(""))),
                (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
                (_, span) if root.is_some() => return Err(refused(span, "a second document begins here")),
                (event, span) => root = Some(self.node(event, span, 0)?.node),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Built, Refusal> {
        if depth > DEPTH_MAX {
            return Err(refused(span, too_deep()));
        }
        let (anchor, built) = match event {
            Event::Alias(id) => return self.alias(id, span, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let text = self.scalar_text(text.into_owned(), style, span);
                let cost = NODE_COST + text.len();
                let node = tagged(NodeKind::Scalar { text, is_plain: style == ScalarStyle::Plain }, tag.as_deref());
                self.spend(cost, span)?;
                (anchor, Built { node, cost, height: 0 })
            }
            Event::SequenceStart(_, anchor, tag) => (anchor, self.list(span, depth, tag.as_deref())?),
            Event::MappingStart(_, anchor, tag) => (anchor, self.map(span, depth, tag.as_deref())?),
            _ => return Err(refused(span, "this is not a value")),
        };
        if anchor != 0 {
            self.spend(built.cost, span)?;
            self.anchors.insert(anchor, built.clone());
        }
        Ok(built)
    }

    fn list(&mut self, span: Span, depth: usize, tag: Option<&Tag>) -> Result<Built, Refusal> {
        let (mut items, mut cost, mut height) = (Vec::new(), NODE_COST, 0);
        self.spend(NODE_COST, span)?;
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Built { node: tagged(NodeKind::List(items), tag), cost, height: height + 1 });
            }
            let item = self.node(event, span, depth + 1)?;
            (cost, height) = (cost + item.cost, height.max(item.height));
            items.push(item.node);
        }
    }

    fn map(&mut self, span: Span, depth: usize, tag: Option<&Tag>) -> Result<Built, Refusal> {
        let (mut entries, mut cost, mut height) = (Vec::<(Node, Node)>::new(), NODE_COST, 0);
        let mut places = HashMap::new();
        self.spend(NODE_COST, span)?;
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Built { node: tagged(NodeKind::Map(Map(entries)), tag), cost, height: height + 1 });
            }
            let key = self.node(event, span, depth + 1)?;
            if key.node.as_str().is_none() {
                return Err(refused(span, "a key is a list or a mapping; it must be text or a number"));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            (cost, height) = (cost + key.cost + value.cost, height.max(value.height));
            let (is_text, tag, text) = identity(&key.node);
            let place = (is_text, tag.map(str::to_owned), text.to_owned());
            // The last value wins, at the position of the first. Only merge keys accumulate.
            match places.get(&place).filter(|_| key.node.meaning() != Some(Meaning::Merge)) {
                Some(at) => entries[*at] = (key.node, value.node),
                None => {
                    places.insert(place, entries.len());
                    entries.push((key.node, value.node));
                }
            }
        }
    }

    fn alias(&mut self, id: usize, span: Span, depth: usize) -> Result<Built, Refusal> {
        let Some(built) = self.anchors.get(&id) else {
            return Err(refused(span, "an alias refers to a value that contains it"));
        };
        let (cost, height) = (built.cost, built.height);
        if depth + height > DEPTH_MAX {
            return Err(refused(span, too_deep()));
        }
        self.spend(cost, span)?;
        Ok(self.anchors[&id].clone())
    }

    fn spend(&mut self, cost: usize, span: Span) -> Result<(), Refusal> {
        self.budget = self.budget.checked_sub(cost).ok_or_else(|| {
            refused(span, "with all aliases replaced by what they stand for, it is larger than a record may be")
        })?;
        Ok(())
    }

    fn scalar_text(&self, text: String, style: ScalarStyle, span: Span) -> String {
        let raw = span.slice(self.source).unwrap_or_default();
        match style {
            ScalarStyle::DoubleQuoted if self.is_json => serde_json::from_str(raw).unwrap_or(text),
            ScalarStyle::Plain if self.is_json => yaml_number(&text),
            ScalarStyle::Plain if text.contains(SEPARATORS) => {
                refold(raw).trim_matches(|c: char| c == ' ' || SEPARATORS.contains(&c)).to_owned()
            }
            ScalarStyle::SingleQuoted if text.contains(SEPARATORS) => {
                let inner = raw.strip_prefix('\'').and_then(|raw| raw.strip_suffix('\''));
                inner.map_or(text, |inner| refold(&inner.replace("''", "'")))
            }
            _ => text,
        }
    }
}

fn tagged(kind: NodeKind, tag: Option<&Tag>) -> Node {
    let full = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
    match (full.as_deref(), kind) {
        (Some("tag:yaml.org,2002:str"), NodeKind::Scalar { text, .. }) => Node::text(text),
        // To PyYAML the first of these has no meaning.
        (Some("!" | "tag:yaml.org,2002:seq" | "tag:yaml.org,2002:map"), kind) => Node::new(kind),
        (_, kind) => Node { tag: full, kind },
    }
}

/// Escapes characters in JSON strings that YAML does not allow unescaped.
fn without_controls(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                plain.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => plain.push(c),
        }
    }
    plain
}

/// Rewrites a JSON number so that YAML 1.1 takes it for a number, too: with an exponent, it needs a decimal point, and
/// the exponent needs a sign.
fn yaml_number(text: &str) -> String {
    match text.split_once(['e', 'E']) {
        Some((digits, exponent)) if digits.ends_with(|last: char| last.is_ascii_digit()) => {
            let point = if digits.contains('.') { "" } else { ".0" };
            let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
            format!("{digits}{point}e{sign}{exponent}")
        }
        _ => text.to_owned(),
    }
}

/// Folds a scalar of several lines as YAML 1.1 does: a single line break becomes a space; of several, the first is
/// dropped and the others are kept. Separators are kept, and blanks at line ends are removed.
fn refold(raw: &str) -> String {
    let inner = raw.replace("\r\n", "\n").replace('\r', "\n");
    let is_break = |c: char| c == '\n' || SEPARATORS.contains(&c);
    let is_blank = |c: char| c == ' ' || c == '\t';
    let mut folded = String::new();
    let mut rest = inner.as_str();
    while let Some(at) = rest.find(is_break) {
        folded.push_str(rest[..at].trim_end_matches(is_blank));
        let line_end = rest[at..].find(|c| !is_break(c) && !is_blank(c)).map_or(rest.len(), |end| at + end);
        let breaks: String = rest[at..line_end].chars().filter(|c| is_break(*c)).collect();
        match breaks.strip_prefix('\n') {
            Some("") => folded.push(' '),
            Some(further) => folded.push_str(further),
            None => folded.push_str(&breaks),
        }
        rest = &rest[line_end..];
    }
    folded + rest
}
