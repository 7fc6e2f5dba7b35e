//! Writing nodes as YAML that every reader interprets alike: plain scalars unchanged, quotes for text that some reader
//! could take for something else, block scalars for text of several lines, and none of the finer points of YAML on
//! which readers differ.

use super::scalar::{Meaning, meaning};
use super::yaml::{Map, Node, NodeKind};

/// Length above which a key is written in explicit form: readers search only so far for the colon.
const KEY_CHARS_MAX: usize = 120;

/// Returns the text of a record.
pub(super) fn emit(map: &Map) -> String {
    let mut out = String::new();
    if map.0.is_empty() {
        out.push_str("{}\n");
    }
    write_map(&mut out, map, 0, false);
    out
}

fn indent(out: &mut String, by: usize) {
    out.extend(std::iter::repeat_n(' ', by));
}

/// Writes the entries of a mapping, one per line. The first may be on the line of the list's dash.
fn write_map(out: &mut String, map: &Map, by: usize, is_first_inline: bool) {
    for (at, (key, value)) in map.0.iter().enumerate() {
        if at > 0 || !is_first_inline {
            indent(out, by);
        }
        let is_merge = key.meaning() == Some(Meaning::Merge) && !matches!(value.kind, NodeKind::Scalar { .. });
        let key = if is_merge { "<<".to_owned() } else { one_line(key) };
        if key.chars().count() <= KEY_CHARS_MAX {
            out.push_str(&key);
            out.push(':');
            write_value(out, value, by, by);
        } else {
            out.push_str("? ");
            out.push_str(&key);
            out.push('\n');
            indent(out, by);
            out.push(':');
            write_value(out, value, by, by + 2);
        }
    }
}

/// Writes the part after `key:`. Lists are below their key, at the same indentation, which is how PyYAML writes them.
fn write_value(out: &mut String, value: &Node, by: usize, list_by: usize) {
    write_tag(out, value);
    match &value.kind {
        NodeKind::Scalar { .. } => write_scalar(out, value, by + 2),
        NodeKind::List(items) if items.is_empty() => out.push_str(" []\n"),
        NodeKind::Map(map) if map.0.is_empty() => out.push_str(" {}\n"),
        NodeKind::List(items) => {
            out.push('\n');
            write_list(out, items, list_by, false);
        }
        NodeKind::Map(map) => {
            out.push('\n');
            write_map(out, map, by + 2, false);
        }
    }
}

fn write_list(out: &mut String, items: &[Node], by: usize, is_first_inline: bool) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 || !is_first_inline {
            indent(out, by);
        }
        out.push('-');
        match &item.kind {
            NodeKind::List(items) if item.tag.is_none() && !items.is_empty() => {
                out.push(' ');
                write_list(out, items, by + 2, true);
            }
            NodeKind::Map(map) if item.tag.is_none() && !map.0.is_empty() => {
                out.push(' ');
                write_map(out, map, by + 2, true);
            }
            _ => write_value(out, item, by, by + 2),
        }
    }
}

fn write_tag(out: &mut String, node: &Node) {
    if let Some(tag) = &node.tag {
        out.push(' ');
        out.push_str(&shorthand(tag));
    }
}

fn shorthand(tag: &str) -> String {
    let is_simple =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if let Some(name) = tag.strip_prefix("tag:yaml.org,2002:").filter(|name| is_simple(name)) {
        return format!("!!{name}");
    }
    if tag.strip_prefix('!').is_some_and(is_simple) {
        return tag.to_owned();
    }
    let escaped: String = tag
        .bytes()
        .map(|byte| match byte {
            b'!' | b'$' | b'&'..=b';' | b'=' | b'?'..=b'Z' | b'_' | b'a'..=b'z' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    format!("!<{escaped}>")
}

fn write_scalar(out: &mut String, node: &Node, by: usize) {
    let text = node.as_str().unwrap_or_default();
    let is_text = node.tag.is_none() && node.meaning() == Some(Meaning::Text);
    if is_text && fits_a_block(text) {
        out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
        for line in text.lines() {
            if !line.is_empty() {
                indent(out, by);
            }
            out.push_str(line);
            out.push('\n');
        }
        return;
    }
    out.push(' ');
    out.push_str(&untagged(node));
    out.push('\n');
}

/// Returns a key with its tag.
fn one_line(node: &Node) -> String {
    let mut line = String::new();
    write_tag(&mut line, node);
    line.push(' ');
    line.push_str(&untagged(node));
    line.trim_start().to_owned()
}

/// Returns a scalar on one line, without its tag.
fn untagged(node: &Node) -> String {
    let text = node.as_str().unwrap_or_default();
    match node.meaning() {
        Some(Meaning::Null) if text.is_empty() => "null".to_owned(),
        // Some readers end a plain scalar at a tab.
        _ if text.contains('\t') => quoted(text),
        Some(Meaning::Null | Meaning::Bool(_) | Meaning::Int(_) | Meaning::Float(_) | Meaning::Time(_)) => {
            text.to_owned()
        }
        _ if node.is_plain() && may_stay_plain(text) => text.to_owned(),
        _ if node.tag.is_none() && is_safe_plain(text) => text.to_owned(),
        _ => quoted(text),
    }
}

/// Returns true if text needs no quotes for any reader, including those that do not know all the rules.
fn is_safe_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "true", "false", "on", "off", "null"];
    let starts_well = text.starts_with(|first: char| first.is_alphabetic() || "/_(".contains(first));
    starts_well && has_plain_form(text) && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// Returns true if text that was read without quotes may be written without. `1e3` is text to one reader and a number
/// to another, and must stay the same for each.
fn may_stay_plain(text: &str) -> bool {
    let starts_well = |first: char| first.is_alphanumeric() || "/_(".contains(first);
    let is_like_a_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let has_sign = text.starts_with(['-', '+', '.']) && is_like_a_number(text.trim_start_matches(['-', '+', '.']));
    (text.starts_with(starts_well) || has_sign) && has_plain_form(text)
}

fn has_plain_form(text: &str) -> bool {
    let is_unambiguous = !text.ends_with([' ', ':']) && !text.contains(": ") && !text.contains(" #");
    is_unambiguous && text.chars().all(is_printable) && meaning(text) == Meaning::Text
}

/// Returns true if YAML 1.1 allows the character unescaped within a line.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Returns true for text of several lines that reads well as a block scalar, and whose indentation and trailing blank
/// lines are unambiguous.
fn fits_a_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let is_line = |line: &str| line.is_empty() || (!line.trim().is_empty() && line.chars().all(is_printable));
    body.contains('\n') && !body.starts_with([' ', '\n']) && !body.ends_with('\n') && body.split('\n').all(is_line)
}

fn quoted(text: &str) -> String {
    if text.chars().all(is_printable) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) <= 0xff => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            c if u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}
