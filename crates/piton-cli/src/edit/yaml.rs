//! Editing of YAML as text: comments, order, quoting and spacing are preserved.
//!
//! The positions of values come from the parser ([`yaml_tree`]); an edit adds, removes or replaces whole lines of a block,
//! or the text of one value. A value in braces or brackets is edited if it is valid JSON. Several documents in one file
//! are refused. Callers parse the result and compare it with the expected value, so that an edit that would also change
//! an alias, say, leads to a refusal and never to a changed meaning.
//!
//! [`yaml_tree`]: super::yaml_tree

use std::ops::Range;

use serde_json::Value;

use super::jsonc::{Document, Step, spaced, wrapped};
use super::yaml_tree::{self, YamlKind, YamlMember, YamlNode};

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
}

/// Position of a member or an item, and its value.
#[derive(Debug, Clone)]
struct Spot {
    line: usize,
    /// Column at which the value begins.
    column: usize,
    /// The lines below it that belong to it.
    body: Range<usize>,
    indent: usize,
    value: YamlNode,
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
                let (range, new) = match &keys[depth..] {
                    [] => (spot.value.start..spot.value.end, spaced(value)),
                    [key] => self.flow_member(&spot.value, key, &spaced(value)),
                    _ => return Err(format!("line {}: braces within braces are not edited here", spot.line + 1)),
                };
                self.splice(range, &new)
            }
            Found::Here(spot) => match &spot.value.kind {
                YamlKind::Map(_) | YamlKind::List(_) => self.set_list(&path, &spot, value),
                YamlKind::Empty => {
                    let at = offset(&self.lines(), spot.line) + spot.column;
                    self.splice(at..at, &format!(" {}", spaced(value)))
                }
                YamlKind::Scalar { .. } | YamlKind::Alias => self.splice(self.scalar_at(&spot)?, &spaced(value)),
            },
        }
    }

    /// Returns the range of a member's value in a flow mapping, and the text to replace it with so that it has this
    /// value. If the member is missing, the range is empty and after the last member, and the text adds the member.
    fn flow_member(&self, node: &YamlNode, key: &str, value: &str) -> (Range<usize>, String) {
        let members = if let YamlKind::Map(members) = &node.kind { &members[..] } else { &[] };
        let there = members.iter().rfind(|member| member.key.as_deref() == Some(key));
        match (there, members.last()) {
            (Some(member), _) => {
                let start = member.after_colon.unwrap_or_else(|| member.end());
                (start..member.end(), format!(" {value}"))
            }
            (None, Some(last)) => {
                let is_quoted = self.text[last.start..].starts_with('"');
                let key = if is_quoted { format!("\"{key}\"") } else { key.to_owned() };
                (last.end()..last.end(), format!(", {key}: {value}"))
            }
            (None, None) => (node.start + 1..node.start + 1, format!("{key}: {value}")),
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
        let spots = self.items(&spot.value, spot.indent)?;
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
                let first = self.items(&spot.value, spot.indent)?.into_iter().next();
                let indent = first.map_or(spot.indent + unit, |first| first.indent);
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
        let whole = Block { lines: first..lines.len(), indent: 0 };
        let Some(root) = yaml_tree::read(&self.text)? else { return Ok(Found::Missing(whole, 0)) };
        let start = self.line_of(root.start);
        let mut spot = Spot { line: start, column: 0, body: start + 1..lines.len(), indent: 0, value: root };
        for (depth, step) in path.iter().enumerate() {
            let here = match (&spot.value.kind, step) {
                _ if spot.value.is_flow => return Ok(Found::Flow(spot, depth)),
                (YamlKind::Map(members), Step::Key(key)) => {
                    match members.iter().find(|member| member.key.as_ref() == Some(key)) {
                        Some(member) => Some(self.member_spot(member)?),
                        None => {
                            let indent = members.first().map_or(0, |first| self.column_of(first.start));
                            let lines = if depth == 0 { whole.lines } else { spot.line..spot.body.end };
                            return Ok(Found::Missing(Block { lines, indent }, depth));
                        }
                    }
                }
                (YamlKind::List(_), Step::Item(at)) => self.items(&spot.value, spot.indent)?.into_iter().nth(*at),
                (YamlKind::Empty, Step::Key(_)) if depth == 0 => return Ok(Found::Missing(whole, 0)),
                (YamlKind::Empty, Step::Key(_)) => return Ok(Found::Empty(spot, depth)),
                _ => None,
            };
            spot = here.ok_or_else(|| format!("line {}: a value stands where keys are expected", spot.line + 1))?;
        }
        match path {
            [] => Err("the whole document is not ours".to_owned()),
            _ if spot.value.is_flow => Ok(Found::Flow(spot, path.len())),
            _ => Ok(Found::Here(spot)),
        }
    }

    fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count()
    }

    /// Returns the column of an offset, without a byte order mark.
    fn column_of(&self, at: usize) -> usize {
        self.text[..at].rsplit('\n').next().unwrap_or_default().trim_start_matches('\u{feff}').len()
    }

    /// Returns the lines below `line` that belong to a value.
    fn body_of(&self, line: usize, value: &YamlNode) -> Range<usize> {
        let is_empty = matches!(value.kind, YamlKind::Empty);
        let end = if is_empty { line + 1 } else { self.line_of(value.end) + 1 };
        line + 1..end.max(line + 1)
    }

    fn member_spot(&self, member: &YamlMember) -> Result<Spot, String> {
        let line = self.line_of(member.start);
        let after = member.after_colon;
        let after = after.ok_or_else(|| format!("line {} uses a part of YAML that is not edited here", line + 1))?;
        let column = after - offset(&self.lines(), line);
        let (body, indent) = (self.body_of(line, &member.value), self.column_of(member.start));
        Ok(Spot { line, column, body, indent, value: member.value.clone() })
    }

    /// Returns the items of a block list; none if it is not one. `around` is the indentation of the member that holds
    /// the list.
    fn items(&self, list: &YamlNode, around: usize) -> Result<Vec<Spot>, String> {
        let YamlKind::List(items) = &list.kind else { return Ok(Vec::new()) };
        // The list begins at its first dash, or behind that if the dash has the indentation of the key.
        let has_dash = self.text[list.start..].starts_with('-')
            && !matches!(items.first(), Some(item) if item.start == list.start);
        let indent = if has_dash { self.column_of(list.start) } else { around };
        let lines = self.lines();
        let is_dash = |line: &usize| {
            let text = lines[*line].trim_start_matches('\u{feff}').as_bytes();
            text.get(indent) == Some(&b'-') && text[..indent].iter().all(|byte| matches!(byte, b' ' | b'-'))
        };
        let spot = |item: &YamlNode| {
            let line = (0..=self.line_of(item.start)).rfind(is_dash)?;
            let column = lines[line].len() - lines[line].trim_start_matches('\u{feff}').len() + indent + 1;
            Some(Spot { line, column, body: self.body_of(line, item), indent, value: item.clone() })
        };
        let found = items.iter().map(spot).collect::<Option<_>>();
        found.ok_or_else(|| format!("line {}: its items are not edited here", self.line_of(list.start) + 1))
    }

    /// Returns the range of a scalar. Fails if there is none.
    fn scalar_at(&self, spot: &Spot) -> Result<Range<usize>, String> {
        let YamlNode { start, end, .. } = spot.value;
        match spot.value.kind {
            YamlKind::Scalar { is_block: false } | YamlKind::Alias => Ok(start..end),
            YamlKind::Scalar { is_block: true } => {
                let lines = self.lines();
                let header = lines[spot.line][spot.column..].find(['|', '>']);
                let header = header.ok_or_else(|| format!("line {}: its text is not edited here", spot.line + 1))?;
                Ok(offset(&lines, spot.line) + spot.column + header..end)
            }
            _ => Err(format!("line {}: expected a value", spot.line + 1)),
        }
    }

    fn in_flow(&mut self, spot: &Spot, edit: impl FnOnce(&mut Document) -> Result<(), String>) -> Result<(), String> {
        let YamlNode { start, end, .. } = spot.value;
        let mut flow = Document::parse(&self.text[start..end])
            .map_err(|_| format!("line {}: a value in braces that is no JSON is not edited here", spot.line + 1))?;
        edit(&mut flow)?;
        self.splice(start..end, flow.text())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::edit::{Config, Format};

    /// Sets `checkpoints.enabled`, adds an item to `hooks.Event`, and returns the text.
    fn edited(text: &str) -> Result<String, String> {
        let mut config = Config::parse(text, Format::Yaml)?;
        config.set(&["checkpoints", "enabled"], &json!(true))?;
        config.push(&["hooks", "Event"], &json!({"command": "x"}))?;
        Ok(config.text().to_owned())
    }

    #[test]
    fn anchors_tags_and_texts_over_several_lines_are_no_obstacle() {
        for (text, expected) in [
            (
                "checkpoints: &c\n  enabled: false # off\nhooks:\n  Event: # none\n",
                "checkpoints: &c\n  enabled: true # off\nhooks:\n  Event: # none\n    - command: \"x\"\n",
            ),
            (
                "checkpoints:\n  enabled: >-\n    fal\n    se\n\n# end\nhooks: !!map\n  Event:\n  -  a: |\n       # text\n       - b\n",
                "checkpoints:\n  enabled: true\n\n# end\nhooks: !!map\n  Event:\n  -  a: |\n       # text\n       - b\n  - command: \"x\"\n",
            ),
            (
                "checkpoints:\n  enabled: \"a\n    b: c\"\n  ? k\n  : v\nhooks:\n  Event:\n  - - 1\n    - 2\n",
                "checkpoints:\n  enabled: true\n  ? k\n  : v\nhooks:\n  Event:\n  - - 1\n    - 2\n  - command: \"x\"\n",
            ),
            (
                "\u{feff}'checkpoints': {enabled: no, exclude: [a b]}\r\nhooks:\r\n  Event:\r\n    - &a {b: 1}\r\n    - *a\r\n",
                "\u{feff}'checkpoints': {enabled: true, exclude: [a b]}\r\nhooks:\r\n  Event:\r\n    - &a {b: 1}\r\n    - *a\r\n    - command: \"x\"\r\n",
            ),
        ] {
            assert_eq!(edited(text).as_deref(), Ok(expected), "{text:?}");
        }
    }

    /// I4. An edit of an anchored value would change its aliases, too.
    #[test]
    fn an_edit_that_an_alias_would_repeat_is_refused() {
        let text = "checkpoints: &c\n  enabled: false\nother: *c\n";
        assert!(edited(text).is_err_and(|why| why.contains("more than it should")), "{:?}", edited(text));
        assert!(edited("a: 1\n---\nb: 2\n").is_err());
    }
}
