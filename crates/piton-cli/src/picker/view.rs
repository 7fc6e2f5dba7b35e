//! Draws the state. Reads it only, and of long lists and diffs only the part on the screen.

use std::path::Path;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use super::help::HELP;
use super::layout::{Focus, centred, inside, overlay_height};
use super::list::Row;
use super::patch::{LineKind, Patch, PatchFile};
use super::state::{Asked, Busy, DiffOf, Overlay, Planned, RestoreRequest, Stage, State};
use crate::cmd::restore::{files, shown};
use crate::cmd::rollback::counts;
use crate::columns::what_fits;
use crate::output::plain;

const HINTS: &str = "Enter restore  o one file  v revert  p plan  u undo  / f s filter  Tab  ? help  q leave";

/// Colours and the project directory, which do not change while the picker runs.
pub(super) struct Look {
    has_colours: bool,
    dir: String,
}

impl Look {
    pub(super) fn new(has_colours: bool, dir: &Path, machine: Option<&str>) -> Self {
        let dir = dir.display();
        let place = machine.map_or_else(|| dir.to_string(), |machine| format!("{machine} ({dir})"));
        Self { has_colours, dir: plain(&place) }
    }

    fn colour(&self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn line(&self, kind: LineKind) -> Style {
        match kind {
            LineKind::Head => Style::new().add_modifier(Modifier::BOLD),
            LineKind::Hunk => self.colour(Color::Cyan),
            LineKind::Added => self.colour(Color::Green),
            LineKind::Removed => self.colour(Color::Red),
            LineKind::Same => Style::new(),
            LineKind::Note => self.colour(Color::Yellow),
        }
    }
}

const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything. The terminal may have been resized since the state was updated, so every widget is clipped to the
/// frame.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, look: &Look) {
    draw_list(frame, state, look);
    draw_diff(frame, state, look);
    draw_bottom(frame, state, look);
    if let Some(overlay) = &state.overlay {
        draw_overlay(frame, overlay, state, look);
    }
}

fn put_lines<'a>(frame: &mut Frame<'_>, lines: impl Iterator<Item = Line<'a>>, area: Rect) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
}

fn framed<'a>(title: String, has_focus: bool, look: &Look) -> Block<'a> {
    let style = if has_focus { look.colour(Color::Cyan).patch(BOLD) } else { DIM };
    Block::bordered().border_style(style).title(Line::styled(title, BOLD))
}

/// Marks a line of a list as selected with `>` and reverse video; `>` is visible without colours, too.
fn marked(mut line: Line<'_>, is_selected: bool) -> Line<'_> {
    line.spans.insert(0, Span::raw(if is_selected { ">" } else { " " }));
    if is_selected {
        // One bar in a single style: drop the colours of the spans.
        line.spans.iter_mut().for_each(|span| span.style = SELECTED);
    }
    line
}

fn draw_list(frame: &mut Frame<'_>, state: &State, look: &Look) {
    let (areas, list) = (state.areas(), &state.list);
    let (all, shown) = list.counts();
    let mut title = if all == shown { format!(" {all} checkpoints") } else { format!(" {shown} of {all} checkpoints") };
    if !list.text().is_empty() {
        title += &format!(", text {:?}", list.text());
    }
    if let Some(file) = list.file() {
        let name = String::from_utf8_lossy(&file.path);
        title += &format!(", file {}{}", plain(&name), if file.ids.is_none() { " ..." } else { "" });
    }
    if let Some(session) = list.session() {
        title += &format!(", session {}", plain(session));
    }
    title += &format!(" in {} ", look.dir);
    let title = clipped(&title, usize::from(areas.list.width.saturating_sub(2)));
    frame.render_widget(framed(title, state.focus == Focus::List, look), areas.list);
    let rows = areas.rows();
    let with_session = list.has_sessions();
    let lines = list.window(usize::from(rows.height)).map(|(row, is_selected)| {
        marked(row_line(row, with_session, usize::from(rows.width.saturating_sub(1)), look), is_selected)
    });
    put_lines(frame, lines, rows);
    if shown == 0 {
        let words = if all == 0 { "No checkpoints" } else { "No checkpoint is left by the filters (Esc drops them)" };
        frame.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), rows);
    }
}

/// Marks a checkpoint that does not hold every file of its time.
const INCOMPLETE: &str = "  incomplete";

/// Draws ` 1 4270a8c  2026-03-16 04:36  before patch  [agent 0123abcd]      (1 file, +1/-0)`, shortened to the width.
fn row_line<'a>(row: &Row, with_session: bool, width: usize, look: &Look) -> Line<'a> {
    let when = match width {
        0..40 => "",
        40..64 => row.when.get(5..).unwrap_or_default(),
        _ => &row.when,
    };
    let gap = if when.is_empty() { " " } else { "  " };
    let head = format!("{:>3} ", row.number);
    let change = row.change.as_ref().map(|change| match width {
        0..64 if change.files > 0 => format!("  +{}/-{}", change.insertions, change.deletions),
        _ => counts(change),
    });
    // On a narrow screen the line above the diff says so.
    let incomplete = if row.is_incomplete && width >= 64 { INCOMPLETE } else { "" };
    let change = change.unwrap_or_default() + incomplete;
    let who = row.who.as_ref().filter(|_| with_session).map(|who| format!("  [{who}]")).unwrap_or_default();
    let fixed = head.len() + 7 + gap.len() + when.len() + if when.is_empty() { 0 } else { 2 };
    let room = width.saturating_sub(fixed + change.width());
    let reason = clipped(&row.reason, room.saturating_sub(who.width()).max(room / 2));
    let who = clipped(&who, room.saturating_sub(reason.width()));
    let fill = " ".repeat(room.saturating_sub(reason.width() + who.width()));
    let after_when = if when.is_empty() { "" } else { "  " };
    Line::from(vec![
        Span::raw(head),
        Span::styled(row.id.short(), look.colour(Color::Yellow)),
        Span::raw(gap),
        Span::styled(format!("{when}{after_when}"), DIM),
        Span::raw(reason),
        Span::styled(who, look.colour(Color::Magenta)),
        Span::raw(fill),
        Span::styled(change, DIM),
    ])
}

fn draw_diff(frame: &mut Frame<'_>, state: &State, look: &Look) {
    let (areas, parts) = (state.areas(), state.diff_areas());
    let title = match state.diff_of {
        _ if state.is_stale() => " comparing ... ",
        DiffOf::Since => " since then (what a restore takes back) ",
        DiffOf::Turn => " what this turn did (v all, V file, h hunk: revert) ",
    };
    let title = clipped(title, usize::from(areas.diff.width.saturating_sub(2)));
    frame.render_widget(framed(title, state.focus == Focus::Diff, look), areas.diff);
    let Some(row) = state.list.selected() else { return };
    let who = row.who.as_ref().map(|who| format!("  [{who}]")).unwrap_or_default();
    let incomplete = if row.is_incomplete { INCOMPLETE } else { "" };
    let what = Line::from(vec![
        Span::styled(row.id.short(), look.colour(Color::Yellow)),
        Span::raw(format!("  {}{incomplete}  {}{who}", row.when, row.reason)),
    ]);
    let words = match &state.shown {
        None => String::new(),
        Some((_, Ok(patch))) => summary(patch),
        Some((_, Err(error))) => error.message.clone(),
    };
    put_lines(frame, [what, Line::styled(words.clone(), BOLD)].into_iter(), parts.head);
    let Some(patch) = state.patch() else {
        // The whole message, wrapped: the line above may be too short for it.
        let hint = state.shown.as_ref().and_then(|(_, patch)| patch.as_ref().err()?.hint.clone()).unwrap_or_default();
        frame.render_widget(Paragraph::new(format!("{words}\n\n{hint}")).wrap(Wrap { trim: false }), parts.lines);
        return;
    };
    let fade = if state.is_stale() { DIM } else { Style::new() };
    let first = state.first_file();
    let width = usize::from(parts.files.width.saturating_sub(1));
    let files = (first..)
        .zip(patch.files.iter().skip(first))
        .map(|(at, file)| marked(file_line(file, width, look), at == state.file).patch_style(fade));
    put_lines(frame, files, parts.files);
    let lines = patch.lines(state.line, usize::from(parts.lines.height));
    let hunk = patch.hunks.get(state.hunk).filter(|_| state.diff_of == DiffOf::Turn).map(|hunk| hunk.at);
    let lines = (state.line..).zip(lines).map(|(at, (text, kind))| {
        let style = if hunk == Some(at) { SELECTED } else { look.line(kind).patch(fade) };
        Line::styled(skipped(text, state.column), style)
    });
    put_lines(frame, lines, parts.lines);
}

fn summary(patch: &Patch) -> String {
    let (plus, minus) = patch.totals();
    match patch.files.len() {
        0 => "Nothing differs".to_owned(),
        count => format!("{} changed, +{plus}/-{minus}", files(count)),
    }
}

/// Draws ` src/main.rs                 +4/-2`.
fn file_line<'a>(file: &PatchFile, width: usize, look: &Look) -> Line<'a> {
    let mark = match file.status {
        piton::DiffStatus::Added => "A ",
        piton::DiffStatus::Deleted => "D ",
        piton::DiffStatus::Renamed => "R ",
        _ => "M ",
    };
    let (plus, minus) = match file.is_binary {
        true => ("binary".to_owned(), String::new()),
        false => (format!("+{}", file.insertions), format!("/-{}", file.deletions)),
    };
    let room = width.saturating_sub(mark.len() + plus.len() + minus.len() + 1);
    let name = clipped(&file.name, room);
    let fill = " ".repeat(room.saturating_sub(name.width()) + 1);
    Line::from(vec![
        Span::styled(mark, look.colour(Color::Yellow)),
        Span::raw(name),
        Span::raw(fill),
        Span::styled(plus, look.colour(Color::Green)),
        Span::styled(minus, look.colour(Color::Red)),
    ])
}

fn draw_bottom(frame: &mut Frame<'_>, state: &State, look: &Look) {
    let line = match (&state.busy, state.status.as_str()) {
        _ if state.waits.is_some() => Line::styled(plain(state.waits.as_deref().unwrap_or_default()), BOLD),
        (Some(Busy::Planning(_)), _) => Line::styled("Checking what that would change ...", BOLD),
        (Some(Busy::Restoring), "") => Line::styled("Restoring ...", BOLD),
        (_, "") => Line::styled(HINTS, DIM),
        (_, status) => Line::styled(plain(status), look.colour(Color::Green).patch(BOLD)),
    };
    frame.render_widget(line, state.areas().bottom);
}

fn draw_overlay(frame: &mut Frame<'_>, overlay: &Overlay, state: &State, look: &Look) {
    match overlay {
        Overlay::Help => {
            let lines = HELP.iter().map(|(keys, what)| format!("{keys:<16}{what}"));
            draw_tall(frame, " Keys ", &mut lines.collect::<Vec<_>>().iter().map(String::as_str), "Esc closes", state);
        }
        Overlay::Plan(planned, Stage::Look) => {
            let title = format!(" Plan for {} ({}) ", planned.target.short(), planned.reason);
            let close = if planned.request.is_rewind {
                "Enter rewinds, Esc closes"
            } else if planned.changes > 0 {
                "Enter restores, Esc closes"
            } else {
                "nothing to do, Esc closes"
            };
            let nothing = planned.lines.is_empty().then_some("  the files are as they were");
            let mut lines = planned.lines.iter().chain(&planned.others).map(String::as_str).chain(nothing);
            draw_tall(frame, &title, &mut lines, &format!("{}: {close}", amount(planned)), state);
        }
        Overlay::Plan(planned, Stage::Confirm) => {
            let question = format!("{}. y/n\n\np shows the plan; undo goes back", question(planned));
            let title = match planned.request {
                RestoreRequest { revert: Some(_), .. } => " Revert? ",
                RestoreRequest { is_rewind: true, .. } => " Rewind? ",
                _ => " Restore? ",
            };
            draw_words(frame, title, &question, look.colour(Color::Yellow), 0);
        }
        Overlay::Plan(planned, Stage::Others) => {
            let others = planned.others.join("\n");
            // The question comes first: a small screen cuts off the end of a long list.
            let words = format!("Undo that, too? y/n\n\n{others}");
            draw_words(frame, " Other sessions ", &words, look.colour(Color::Red), 0);
        }
        Overlay::Error(error) => {
            let hint = error.hint.as_ref().map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default();
            let words = format!("{}{hint}", error.message);
            draw_words(frame, " Attention (Esc closes) ", &words, look.colour(Color::Red), state.overlay_line);
        }
        Overlay::Prompt(asked, text) => {
            let before = match asked {
                Asked::Text => "Reason or id: ",
                Asked::File => "File: ",
            };
            let area = state.areas().bottom;
            frame.render_widget(Clear, area);
            // If the text is too long, show its end, which is being typed.
            let room = usize::from(area.width).saturating_sub(before.len() + 1);
            let text = plain(text);
            let hidden = text.width().saturating_sub(room);
            frame.render_widget(Line::styled(format!("{before}{}█", skipped(&text, hidden)), BOLD), area);
        }
    }
}

/// Formats `Restore src/main.rs from 4270a8c: 3 files written, 1 removed`.
fn question(planned: &Planned) -> String {
    let short = planned.target.short();
    if let Some(part) = &planned.request.revert {
        let names: Vec<_> = part.paths.iter().map(|path| shown(path)).collect();
        let place = if names.is_empty() { String::new() } else { format!(" in {}", names.join(", ")) };
        let hunk = part.hunk.map(|start| format!(", the hunk at line {start}")).unwrap_or_default();
        return format!("Take back what {} did{place}{hunk}: {} changed", planned.reason, files(planned.changes));
    }
    let what = match (&planned.request.path, planned.request.to) {
        (Some(path), _) => format!("Restore {} from {short}", shown(path)),
        (None, Some(_)) if planned.request.is_rewind => format!("Rewind files and conversation to {short}"),
        (None, Some(_)) => format!("Restore to {short}"),
        (None, None) => format!("Undo: back to {short} ({})", planned.reason),
    };
    format!("{what}: {}", amount(planned))
}

fn amount(planned: &Planned) -> String {
    let Planned { written, removed, changes, left, .. } = planned;
    let more = match changes - written - removed {
        0 => String::new(),
        more => format!(", {more} other changes"),
    };
    let left = if *left > 0 { format!(", {left} left as they are") } else { String::new() };
    format!("{} written, {removed} removed{more}{left}", files(*written))
}

/// Draws lines to scroll through. Only those on the screen are formatted.
fn draw_tall(frame: &mut Frame<'_>, title: &str, lines: &mut dyn Iterator<Item = &str>, below: &str, state: &State) {
    let height = overlay_height(state.size);
    let lines: Vec<_> = lines.skip(state.overlay_line).take(height).collect();
    let widest = lines.iter().copied().chain([title, below]).map(UnicodeWidthStr::width).max().unwrap_or(0);
    let (width, rows) = (as_u16(widest + 4), as_u16(lines.len() + 4));
    let area = centred(frame.area(), width, rows);
    frame.render_widget(Clear, area);
    let title = clipped(title, usize::from(area.width.saturating_sub(2)));
    frame.render_widget(Block::bordered().title(Line::styled(title, BOLD)), area);
    let inner = inside(area);
    let text = lines.into_iter().map(Line::raw).chain([Line::raw(""), Line::styled(below.to_owned(), DIM)]);
    put_lines(frame, text, Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner });
}

/// Draws a short text, wrapped at words.
fn draw_words(frame: &mut Frame<'_>, title: &str, words: &str, style: Style, from: usize) {
    let screen = frame.area();
    let width = screen.width.min(72);
    let room = usize::from(width.saturating_sub(4)).max(1);
    // Wrapping at words leaves lines partly empty, so allow a quarter more.
    let rows: usize = words.lines().skip(from).map(|line| (line.width() * 5 / 4).div_ceil(room).max(1)).sum();
    let area = centred(screen, width, as_u16(rows + 2));
    frame.render_widget(Clear, area);
    frame.render_widget(Block::bordered().border_style(style).title(Line::styled(title.to_owned(), BOLD)), area);
    let inner = inside(area);
    let text: Vec<_> = words.lines().skip(from).take(usize::from(inner.height)).map(plain).collect();
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    frame.render_widget(Paragraph::new(text.join("\n")).wrap(Wrap { trim: false }), inner);
}

fn as_u16(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Returns the text, truncated with `…` to this many columns.
fn clipped(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let end = if columns > 0 { "…" } else { "" };
    what_fits(text.chars(), columns).chain(end.chars()).collect()
}

/// Returns the text without its first columns.
fn skipped(text: &str, columns: usize) -> &str {
    let mut skip = columns;
    let start = text.char_indices().find(|(_, character)| {
        let is_start = skip == 0;
        skip = skip.saturating_sub(character.width().unwrap_or(0));
        is_start
    });
    start.map_or(if columns == 0 { text } else { "" }, |(at, _)| &text[at..])
}
