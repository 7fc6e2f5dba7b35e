//! Positions of the values in a YAML text, from the spans of the parser's events.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, StructureStyle, options};

/// Maximum depth of nesting: the reader is recursive.
const DEPTH_MAX: usize = 100;

/// A value and its offsets in the text.
#[derive(Debug, Clone)]
pub(super) struct YamlNode {
    /// Offset of the value itself, after an anchor or a tag.
    pub(super) start: usize,
    /// Offset of its end, without space and comments after it.
    pub(super) end: usize,
    /// True for a collection in braces or brackets.
    pub(super) is_flow: bool,
    pub(super) kind: YamlKind,
}

#[derive(Debug, Clone)]
pub(super) enum YamlKind {
    /// No value is written.
    Empty,
    /// `is_block` is true for a text below its header (`|` or `>`), which is before `start`.
    Scalar {
        is_block: bool,
    },
    Alias,
    Map(Vec<YamlMember>),
    List(Vec<YamlNode>),
}

/// One member of a mapping.
#[derive(Debug, Clone)]
pub(super) struct YamlMember {
    /// The key, if it is a scalar.
    pub(super) key: Option<String>,
    /// Offset of the key.
    pub(super) start: usize,
    /// Offset after the colon. `None` if the colon does not follow the key on the same line.
    pub(super) after_colon: Option<usize>,
    pub(super) value: YamlNode,
}

impl YamlMember {
    /// Returns the offset of its end.
    pub(super) fn end(&self) -> usize {
        self.value.end.max(self.after_colon.unwrap_or(self.start))
    }
}

/// Reads the positions of a document. Returns `None` if it has no value. Fails if there are several documents.
pub(super) fn read(text: &str) -> Result<Option<YamlNode>, String> {
    let plain = text.trim_start_matches('\u{feff}');
    let options = options! { emit_comments: false, flow_nesting_limit: DEPTH_MAX, block_nesting_limit: DEPTH_MAX };
    let parser = Parser::new_from_str_with_options(plain, options);
    let mut reader = TreeReader { parser, text, mark: text.len() - plain.len() };
    let mut root = None;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
            _ if root.is_some() => return Err("it holds several documents".to_owned()),
            (event, span) => root = Some(reader.node(&event, span)?),
        }
    }
}

struct TreeReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// Length of the byte order mark, which the parser does not see.
    mark: usize,
}

impl<'a> TreeReader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| error.to_string()),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// Returns the offsets of a span in the whole text.
    fn range(&self, span: Span) -> Result<(usize, usize), String> {
        let range = span.byte_range().ok_or("its positions are not known")?;
        Ok((range.start + self.mark, range.end + self.mark))
    }

    fn node(&mut self, event: &Event<'a>, span: Span) -> Result<YamlNode, String> {
        let (start, end) = self.range(span)?;
        match event {
            Event::Alias(_) => Ok(YamlNode { start, end, is_flow: false, kind: YamlKind::Alias }),
            Event::Scalar(_, style, ..) => {
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let is_empty = start == end && *style == ScalarStyle::Plain;
                // The span of a text below its header includes the line ends after it.
                let end = if is_block { start + self.text[start..end].trim_end().len() } else { end };
                let kind = if is_empty { YamlKind::Empty } else { YamlKind::Scalar { is_block } };
                Ok(YamlNode { start, end, is_flow: false, kind })
            }
            Event::SequenceStart(style, ..) => self.list(start, *style == StructureStyle::Flow),
            Event::MappingStart(style, ..) => self.map(start, *style == StructureStyle::Flow),
            _ => Err("a value is missing".to_owned()),
        }
    }

    fn list(&mut self, start: usize, is_flow: bool) -> Result<YamlNode, String> {
        let mut items: Vec<YamlNode> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                let last = items.last().map_or(start, |item| item.end);
                let end = if is_flow { self.range(span)?.1 } else { last };
                return Ok(YamlNode { start, end, is_flow, kind: YamlKind::List(items) });
            }
            items.push(self.node(&event, span)?);
        }
    }

    fn map(&mut self, start: usize, is_flow: bool) -> Result<YamlNode, String> {
        let mut members: Vec<YamlMember> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                let last = members.last().map_or(start, YamlMember::end);
                let end = if is_flow { self.range(span)?.1 } else { last };
                return Ok(YamlNode { start, end, is_flow, kind: YamlKind::Map(members) });
            }
            let name = if let Event::Scalar(text, ..) = &event { Some(text.clone().into_owned()) } else { None };
            let key = self.node(&event, span)?;
            let (event, span) = self.next()?;
            let value = self.node(&event, span)?;
            let gap = &self.text[key.end..];
            let gap = gap.len() - gap.trim_start_matches([' ', '\t']).len();
            let after_colon = self.text[key.end + gap..].starts_with(':').then_some(key.end + gap + 1);
            members.push(YamlMember { key: name, start: key.start, after_colon, value });
        }
    }
}
