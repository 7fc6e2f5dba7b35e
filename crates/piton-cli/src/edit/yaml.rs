//! Editing of YAML line by line: comments, order, quoting and spacing are preserved.
//!
//! Only the subset that is common in configurations is understood: mappings and lists in block form, and values in
//! braces that are valid JSON. Anchors, tags and several documents in one file are refused. Callers parse the result
//! and compare it with the expected value, so that a misjudged line leads to a refusal and never to a changed meaning.

use std::ops::Range;

use serde_json::Value;

use super::flow::Flow;
use super::jsonc::{Document, Step, spaced, wrapped};

/// A text and its parsed value.
#[derive(Debug, Clone)]
pub(crate) struct Yaml {
    text: String,
    value: Value,
}

/// Lines that form a mapping or a list.
#[derive(Debug, Clone)]
struct Block {
    lines: Range<usize>,
    indent: usize,
    /// True if the block is a list item, whose first line begins with the dash.
    has_dash: bool,
}

/// Position of a member or an item.
#[derive(Debug, Clone)]
struct Spot {
    line: usize,
    /// Column at which the value begins.
    column: usize,
    /// The lines below it that belong to it.
    body: Range<usize>,
    indent: usize,
}

/// Result of following a path.
enum Found {
    Here(Spot),
    /// A flow value, and the number of steps that lead to it. The rest of the path is inside of it.
    Flow(Spot, usize),
    /// The block in which the next key is missing, and the number of steps that lead to it.
    Missing(Block, usize),
    /// The member without a value in which the next key is missing, and the number of steps that lead to it.
    Empty(Spot, usize),
}

impl Yaml {
    /// Parses a text. Fails with the message of the parser.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let plain = text.trim_start_matches('\u{feff}');
        let is_empty = plain.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let value = if is_empty {
            Value::Null
        } else {
            serde_saphyr::from_str(plain).map_err(|error| first_line(&error.to_string()))?
        };
        Ok(Self { text: text.to_owned(), value })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parsed value; `Null` for an empty document.
    pub(super) fn value(&self) -> Value {
        self.value.clone()
    }

    /// Like [`Document::push`].
    pub(super) fn push(&mut self, keys: &[&str], item: &Value) -> Result<usize, String> {
        self.add(keys, item, true)
    }

    /// Like [`Document::set_default`].
    pub(super) fn set_default(&mut self, keys: &[&str], value: &Value) -> Result<usize, String> {
        self.add(keys, value, false)
    }

    /// Replaces a scalar by another value.
    pub(super) fn replace_scalar(&mut self, path: &[Step], value: &Value) -> Result<(), String> {
        match self.find(path)? {
            Found::Here(spot) => {
                let range = self.scalar_at(&spot)?;
                self.splice(range, &value.to_string())
            }
            Found::Flow(spot, depth) => self.in_flow(&spot, |flow| flow.replace_scalar(&path[depth..], value)),
            _ => Err("the value is not there".to_owned()),
        }
    }

    /// Sets a member to a value, in place, or adds it. Comments are preserved, except for those on the line of a
    /// removed list item and those inside of a list in brackets.
    pub(super) fn set(&mut self, keys: &[&str], value: &Value) -> Result<(), String> {
        let path: Vec<_> = keys.iter().map(|key| Step::Key((*key).to_owned())).collect();
        if let [section, _] = keys
            && self.value[section].is_null()
        {
            self.open(section)?;
        }
        match self.find(&path)? {
            Found::Missing(..) | Found::Empty(..) => self.add(keys, value, false).map(|_| ()),
            Found::Flow(spot, depth) => {
                let start = self.flow_start(&spot);
                let flow = Flow::new(&self.text[start..]);
                let flow = flow.ok_or_else(|| format!("line {}: it is never closed", spot.line + 1))?;
                let (range, new) = match &keys[depth..] {
                    [] => (0..flow.end, spaced(value)),
                    [key] => flow.member(key, &spaced(value)),
                    _ => return Err(format!("line {}: braces within braces are not edited here", spot.line + 1)),
                };
                self.splice(start + range.start..start + range.end, &new)
            }
            Found::Here(spot) if !spot.body.is_empty() => self.set_list(&path, &spot, value),
            Found::Here(spot) => match self.scalar_at(&spot) {
                Ok(range) => self.splice(range, &spaced(value)),
                Err(_) => {
                    let at = offset(&self.lines(), spot.line) + spot.column;
                    self.splice(at..at, &format!(" {}", spaced(value)))
                }
            },
        }
    }

    /// Removes the scalar of a member, so that a section can be added below it. The comment after it is kept.
    pub(super) fn open(&mut self, key: &str) -> Result<(), String> {
        let Found::Here(spot) = self.find(&[Step::Key(key.to_owned())])? else { return Ok(()) };
        let start = offset(&self.lines(), spot.line) + spot.column;
        self.scalar_at(&spot).map_or(Ok(()), |scalar| self.splice(start..scalar.end, ""))
    }

    /// Replaces the items of a list in block form. Items that it already has keep their lines and the comments above
    /// them; comments above a removed item move to the next one.
    fn set_list(&mut self, path: &[Step], spot: &Spot, value: &Value) -> Result<(), String> {
        let lines = self.lines();
        let there = path.iter().try_fold(&self.value, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Item(at) => value.get(at),
        });
        let spots = items(&lines, &inner(&lines, spot, false));
        let (Some(Value::Array(there)), Value::Array(wanted)) = (there, value) else {
            return Err(format!("line {}: the value below it is not edited here", spot.line + 1));
        };
        if spots.is_empty() || spots.len() != there.len() {
            return Err(format!("line {}: the list below it is not edited here", spot.line + 1));
        }
        let text_of = |range: Range<usize>| {
            let line = |line: &&str| format!("{}{}", line.trim_end_matches(['\r', '\n']), self.line_end());
            lines[range].iter().map(line).collect::<String>()
        };
        let (mut kept, mut above, mut from) = (Vec::new(), String::new(), spot.body.start);
        for (item, here) in there.iter().zip(&spots) {
            let end = here.body.end.max(here.line + 1);
            above.push_str(&text_of(from..here.line));
            if wanted.contains(item) {
                kept.push((item, std::mem::take(&mut above) + &text_of(here.line..end)));
            }
            from = end;
        }
        let mut text = if kept.is_empty() { std::mem::take(&mut above) } else { String::new() };
        for item in wanted {
            match kept.iter().position(|(there, _)| *there == item) {
                Some(at) => text.push_str(&kept.remove(at).1),
                None => text.push_str(&self.block(&Value::Array(vec![item.clone()]), spots[0].indent)),
            }
        }
        let start = offset(&lines, spot.line) + spot.column;
        let (body, end) = (offset(&lines, spot.body.start), offset(&lines, spot.body.end));
        let head = if wanted.is_empty() { " []" } else { "" }.to_owned() + &self.text[start..body];
        let mut new = head + &text + &above;
        if !self.text[..end].ends_with('\n') {
            new.truncate(new.trim_end().len());
        }
        self.splice(start..end, &new)
    }

    /// Removes a member or an item.
    pub(super) fn remove(&mut self, path: &[Step]) -> Result<(), String> {
        match self.find(path)? {
            Found::Here(spot) => {
                let lines = self.lines();
                let start = offset(&lines, spot.line);
                let end = offset(&lines, spot.body.end.max(spot.line + 1));
                let is_dashed = lines[spot.line].trim_start().starts_with("- ");
                if is_dashed && matches!(path.last(), Some(Step::Key(_))) {
                    return Err(format!("line {}: it stands on the line of a list item", spot.line + 1));
                }
                self.splice(start..end, "")
            }
            Found::Flow(spot, depth) => self.in_flow(&spot, |flow| flow.remove(&path[depth..])),
            _ => Err("the value is not there".to_owned()),
        }
    }

    fn add(&mut self, keys: &[&str], value: &Value, is_item: bool) -> Result<usize, String> {
        let path: Vec<_> = keys.iter().map(|key| Step::Key((*key).to_owned())).collect();
        let list = |value: &Value| if is_item { Value::Array(vec![value.clone()]) } else { value.clone() };
        let unit = self.unit();
        match self.find(&path)? {
            Found::Here(spot) if is_item => {
                let lines = self.lines();
                let first = lines.get(spot.body.start).filter(|_| !spot.body.is_empty());
                let indent = first.map_or(spot.indent + unit, |line| indent_of(line));
                let text = self.block(&list(value), indent);
                self.insert_below(&spot, &text)?;
                Ok(keys.len())
            }
            Found::Here(_) => Ok(keys.len()),
            Found::Missing(block, depth) => {
                let text = self.block(&wrapped(&keys[depth..], list(value)), block.indent);
                let end = offset(&self.lines(), block.lines.end);
                self.insert_line(end, &text)?;
                Ok(depth)
            }
            Found::Empty(spot, depth) => {
                let text = self.block(&wrapped(&keys[depth..], list(value)), spot.indent + unit);
                self.insert_below(&spot, &text)?;
                Ok(depth)
            }
            Found::Flow(spot, depth) => {
                let mut found = depth;
                self.in_flow(&spot, |flow| {
                    // An empty collection would be formatted on several lines, but a flow value has to stay on one.
                    if matches!(flow.text().trim_matches(['{', '[', ' ', ']', '}']), "") {
                        *flow = Document::parse(&spaced(&wrapped(&keys[depth..], list(value))))?;
                        return Ok(());
                    }
                    let rest = &keys[depth..];
                    found += if is_item { flow.push(rest, value)? } else { flow.set_default(rest, value)? };
                    Ok(())
                })?;
                Ok(found)
            }
        }
    }

    fn lines(&self) -> Vec<&str> {
        self.text.split_inclusive('\n').collect()
    }

    /// Follows a path as far as it exists.
    fn find(&self, path: &[Step]) -> Result<Found, String> {
        let lines = self.lines();
        let is_mark = |line: &&str| line.starts_with("---") || line.starts_with("...");
        let content = lines.iter().position(|line| is_content(line)).unwrap_or(lines.len());
        let first = content + usize::from(lines.get(content).is_some_and(|line| line.starts_with("---")));
        if lines[first..].iter().any(is_mark) {
            return Err("it holds several documents".to_owned());
        }
        let mut block = Block { lines: first..lines.len(), indent: 0, has_dash: false };
        let mut spot = None;
        for (depth, step) in path.iter().enumerate() {
            let here = match step {
                Step::Key(key) => member(&lines, &block, key),
                Step::Item(at) => items(&lines, &block).into_iter().nth(*at),
            };
            let Some(here) = here else {
                return Ok(match spot {
                    Some(spot) if block.lines.is_empty() => Found::Empty(spot, depth),
                    _ => Found::Missing(block, depth),
                });
            };
            let value = lines[here.line][here.column..].trim_start();
            if value.starts_with(['{', '[']) {
                return Ok(Found::Flow(here, depth + 1));
            }
            if value.starts_with(['&', '*', '!', '|', '>']) {
                return Err(format!("line {} uses a part of YAML that is not edited here", here.line + 1));
            }
            let is_item = matches!(step, Step::Item(_));
            let has_value = !is_item && !value.is_empty() && !value.starts_with(['#', '\r', '\n']);
            if has_value && depth + 1 < path.len() {
                return Err(format!("line {}: a value stands where keys are expected", here.line + 1));
            }
            block = inner(&lines, &here, is_item);
            spot = Some(here);
        }
        spot.map(Found::Here).ok_or_else(|| "the whole document is not ours".to_owned())
    }

    /// Returns the range of a scalar that is on the line of its key. Fails if there is none.
    fn scalar_at(&self, spot: &Spot) -> Result<Range<usize>, String> {
        let lines = self.lines();
        let line = &lines[spot.line][spot.column..];
        let value = strip_comment(line.trim_start());
        if value.is_empty() || !spot.body.is_empty() {
            return Err(format!("line {}: expected a value on the same line", spot.line + 1));
        }
        let start = offset(&lines, spot.line) + spot.column + (line.len() - line.trim_start().len());
        Ok(start..start + value.len())
    }

    /// Returns the offset at which a flow value begins.
    fn flow_start(&self, spot: &Spot) -> usize {
        let lines = self.lines();
        offset(&lines, spot.line) + spot.column + lines[spot.line][spot.column..].find(['{', '[']).unwrap_or(0)
    }

    fn in_flow(&mut self, spot: &Spot, edit: impl FnOnce(&mut Document) -> Result<(), String>) -> Result<(), String> {
        let start = self.flow_start(spot);
        let (mut flow, length) = Document::parse_prefix(&self.text[start..])
            .map_err(|_| format!("line {}: a value in braces that is no JSON is not edited here", spot.line + 1))?;
        edit(&mut flow)?;
        self.splice(start..start + length, flow.text())
    }

    /// Returns the number of spaces per level of indentation.
    fn unit(&self) -> usize {
        let lines = self.lines();
        lines.iter().filter(|line| is_content(line)).map(|line| indent_of(line)).find(|indent| *indent > 0).unwrap_or(2)
    }

    fn line_end(&self) -> &'static str {
        let end = self.text.find('\n');
        if end.is_some_and(|at| self.text[..at].ends_with('\r')) { "\r\n" } else { "\n" }
    }

    /// Formats a value in block form, each line with its line end.
    fn block(&self, value: &Value, indent: usize) -> String {
        let mut lines = Vec::new();
        render(value, indent, self.unit(), &mut lines);
        lines.iter().map(|line| format!("{line}{}", self.line_end())).collect()
    }

    fn insert_below(&mut self, spot: &Spot, text: &str) -> Result<(), String> {
        let end = offset(&self.lines(), spot.body.end.max(spot.line + 1));
        self.insert_line(end, text)
    }

    /// Inserts whole lines at the beginning of a line, or at the end of a text that may lack its last line end.
    fn insert_line(&mut self, at: usize, text: &str) -> Result<(), String> {
        if at > 0 && !self.text[..at].ends_with('\n') {
            let text = format!("{}{}", self.line_end(), text.trim_end());
            return self.splice(at..at, &text);
        }
        self.splice(at..at, text)
    }

    fn splice(&mut self, range: Range<usize>, new: &str) -> Result<(), String> {
        let mut text = self.text.clone();
        text.replace_range(range, new);
        *self = Self::parse(&text).map_err(|why| format!("the edit would break it: {why}"))?;
        Ok(())
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn offset(lines: &[&str], line: usize) -> usize {
    lines[..line.min(lines.len())].iter().map(|line| line.len()).sum()
}

fn is_content(line: &str) -> bool {
    let line = line.trim_start_matches('\u{feff}').trim();
    !line.is_empty() && !line.starts_with('#')
}

fn indent_of(line: &str) -> usize {
    let line = line.trim_start_matches('\u{feff}');
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns a value without the comment after it and the line end.
fn strip_comment(text: &str) -> &str {
    let text = text.trim_end();
    let quoted_end = match text.chars().next() {
        Some('"') => Document::parse_prefix(text).ok().map(|(_, end)| end),
        Some('\'') => {
            let mut quotes = text.match_indices('\'').skip(1).peekable();
            let mut end = None;
            while let Some((at, _)) = quotes.next() {
                if quotes.peek().is_some_and(|(next, _)| *next == at + 1) {
                    quotes.next();
                } else {
                    end = Some(at + 1);
                    break;
                }
            }
            end
        }
        _ => None,
    };
    match quoted_end {
        Some(end) => &text[..end],
        None if text.starts_with('#') => "",
        None => text.split(" #").next().unwrap_or(text).trim_end(),
    }
}

/// Finds the member of that name in a block mapping.
fn member(lines: &[&str], block: &Block, key: &str) -> Option<Spot> {
    let names = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
    block.lines.clone().filter(|at| is_content(lines[*at])).find_map(|at| {
        let line = lines[at];
        let is_dashed = block.has_dash && at == block.lines.start;
        let text = if is_dashed { line.replacen('-', " ", 1) } else { line.to_owned() };
        let mark = text.len() - text.trim_start_matches('\u{feff}').len();
        let rest = &text[mark + indent_of(&text)..];
        if indent_of(&text) != block.indent {
            return None;
        }
        let after = names.iter().find_map(|name| {
            let after = rest.strip_prefix(name.as_str())?.trim_start_matches(' ').strip_prefix(':')?;
            (after.trim_end().is_empty() || after.starts_with([' ', '\t'])).then_some(after)
        })?;
        let body = body_of(lines, at, block);
        Some(Spot { line: at, column: line.len() - after.len(), body, indent: block.indent })
    })
}

/// Returns the items of a block list.
fn items(lines: &[&str], block: &Block) -> Vec<Spot> {
    let is_item = |at: &usize| {
        let rest = lines[*at].trim_start_matches(' ');
        indent_of(lines[*at]) == block.indent && (rest.starts_with("- ") || rest.trim_end() == "-")
    };
    let starts: Vec<usize> = block.lines.clone().filter(is_item).collect();
    let ends = starts.iter().skip(1).copied().chain([block.lines.end]);
    let spot = |(start, end): (usize, usize)| Spot {
        line: start,
        column: block.indent + 1,
        body: start + 1..last_content(lines, start + 1..end),
        indent: block.indent,
    };
    starts.iter().copied().zip(ends).map(spot).collect()
}

/// Returns the block inside of a member or an item.
fn inner(lines: &[&str], spot: &Spot, is_item: bool) -> Block {
    if is_item {
        let rest = &lines[spot.line][spot.column..];
        let indent = spot.column + rest.len() - rest.trim_start_matches(' ').len();
        return Block { lines: spot.line..spot.body.end.max(spot.line + 1), indent, has_dash: true };
    }
    let first = spot.body.clone().find(|at| is_content(lines[*at]));
    let indent = first.map_or(0, |at| indent_of(lines[at]));
    Block { lines: spot.body.clone(), indent, has_dash: false }
}

/// Returns the lines below a member that belong to it: those indented further, and list items with the same
/// indentation.
fn body_of(lines: &[&str], at: usize, block: &Block) -> Range<usize> {
    let is_outside = |line: &&str| {
        let indent = indent_of(line);
        is_content(line) && (indent < block.indent || indent == block.indent && !line[indent..].starts_with('-'))
    };
    let end = lines[at + 1..block.lines.end].iter().position(is_outside).map_or(block.lines.end, |more| at + 1 + more);
    at + 1..last_content(lines, at + 1..end)
}

/// Returns the end of the last line with content: trailing blank lines and comments belong to the next entry.
fn last_content(lines: &[&str], range: Range<usize>) -> usize {
    range.clone().rfind(|at| is_content(lines[*at])).map_or(range.start, |at| at + 1)
}

fn render(value: &Value, indent: usize, unit: usize, out: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push(format!("{pad}{key}:"));
                        render(value, indent + unit, unit, out);
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        out.push(format!("{pad}{key}:"));
                        render(value, indent + unit, unit, out);
                    }
                    scalar => out.push(format!("{pad}{key}: {scalar}")),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let start = out.len();
                render(item, indent + 2, unit, out);
                if let Some(first) = out.get_mut(start) {
                    first.replace_range(indent..indent + 1, "-");
                }
            }
        }
        scalar => out.push(format!("{pad}{scalar}")),
    }
}
