//! Handling of keys and the mouse.

use piton::DiffStatus;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;

use super::layout::Focus;
use super::list::FileFilter;
use super::patch::ShownHunk;
use super::state::{
    Action, Asked, Busy, DiffOf, Overlay, Planned, RestoreRequest, RevertPart, Stage, State, WorkError,
};

const WHEEL_LINES: isize = 3;
const SIDEWAYS_COLUMNS: usize = 8;

impl State {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if is_control(key, 'c') {
            return self.quit();
        }
        match self.overlay.take() {
            None => self.pane_key(key),
            Some(Overlay::Prompt(asked, text)) => self.prompt_key(key, asked, text),
            Some(overlay) if self.scrolls_overlay(key) => self.keep(overlay),
            Some(Overlay::Plan(planned, stage)) => self.plan_key(key, planned, stage),
            Some(overlay) => match key.code {
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?') => Vec::new(),
                _ => self.keep(overlay),
            },
        }
    }

    fn plan_key(&mut self, key: KeyEvent, planned: Planned, stage: Stage) -> Vec<Action> {
        let next = match (key.code, stage) {
            (KeyCode::Esc | KeyCode::Char('q'), Stage::Look) => return Vec::new(),
            (KeyCode::Enter | KeyCode::Char('r'), Stage::Look) if planned.changes > 0 => Stage::Confirm,
            (KeyCode::Char('p'), Stage::Confirm) => Stage::Look,
            (KeyCode::Char('y' | 'Y'), Stage::Confirm) if !planned.others.is_empty() => Stage::Others,
            (KeyCode::Char('y' | 'Y'), Stage::Confirm | Stage::Others) => {
                self.busy = Some(Busy::Restoring);
                return vec![Action::Do(planned, stage == Stage::Others)];
            }
            (KeyCode::Esc | KeyCode::Char('n' | 'N' | 'q'), Stage::Confirm | Stage::Others) => {
                "Nothing was done".clone_into(&mut self.status);
                return Vec::new();
            }
            _ => return self.keep(Overlay::Plan(planned, stage)),
        };
        self.open(Overlay::Plan(planned, next));
        Vec::new()
    }

    /// Keeps the overlay open.
    fn keep(&mut self, overlay: Overlay) -> Vec<Action> {
        self.overlay = Some(overlay);
        Vec::new()
    }

    /// Scrolls the overlay if the key is one that scrolls, and returns true if so.
    fn scrolls_overlay(&mut self, key: KeyEvent) -> bool {
        let page = usize::from(self.size.height / 2).max(1);
        self.overlay_line = match key.code {
            KeyCode::Down | KeyCode::Char('j') => self.overlay_line + 1,
            KeyCode::Up | KeyCode::Char('k') => self.overlay_line.saturating_sub(1),
            KeyCode::PageDown => self.overlay_line + page,
            KeyCode::PageUp => self.overlay_line.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => 0,
            _ => return false,
        };
        true
    }

    fn quit(&mut self) -> Vec<Action> {
        if self.busy == Some(Busy::Restoring) {
            "A restore is under way; it is soon done".clone_into(&mut self.status);
            return Vec::new();
        }
        vec![Action::Quit]
    }

    fn pane_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if let Some(actions) = self.moves(key) {
            return actions;
        }
        match key.code {
            KeyCode::Char('q') => return self.quit(),
            KeyCode::Esc => {
                // Cancels a plan that is still being made: its answer will be ignored.
                let was_planning = matches!(self.busy, Some(Busy::Planning(_)));
                if was_planning {
                    self.busy = None;
                }
                return if was_planning || self.list.clear_filters() { Vec::new() } else { self.quit() };
            }
            KeyCode::Char('?') => self.open(Overlay::Help),
            KeyCode::Char('/') => {
                let text = self.list.text().to_owned();
                self.open(Overlay::Prompt(Asked::Text, text));
            }
            KeyCode::Char('f') => {
                let known = self.list.file().map(|file| file.path.clone());
                let path = known.or_else(|| self.selected_path()).unwrap_or_default();
                self.open(Overlay::Prompt(Asked::File, String::from_utf8_lossy(&path).into_owned()));
            }
            KeyCode::Char('s') if self.list.has_sessions() => self.list.next_session(),
            KeyCode::Char('s') => "There is only one session".clone_into(&mut self.status),
            KeyCode::Char('R') => return vec![Action::List],
            KeyCode::Enter | KeyCode::Char('r') => return self.plan(false, None),
            KeyCode::Char('p') => return self.plan(true, None),
            KeyCode::Char('w') => return self.plan_rewind(),
            KeyCode::Char('o') => return self.plan_file(),
            KeyCode::Char('t') => self.toggle_turn(),
            KeyCode::Char('v') => return self.plan_revert(RevertPart::default()),
            KeyCode::Char('V') => return self.plan_revert_of_file(),
            KeyCode::Char('h') => return self.plan_revert_of_hunk(),
            KeyCode::Char('u') => {
                return self.begin(RestoreRequest {
                    to: None,
                    path: None,
                    only_look: false,
                    revert: None,
                    is_rewind: false,
                });
            }
            _ => {}
        }
        Vec::new()
    }

    /// Handles the keys that move the focus, the selection or the view. Returns `None` for any other key.
    fn moves(&mut self, key: KeyEvent) -> Option<Vec<Action>> {
        let in_list = self.focus == Focus::List;
        let (list_page, page) = (signed(self.list_height()), signed(usize::from(self.diff_areas().lines.height)));
        let shows_diff = !self.areas().diff.is_empty();
        match key.code {
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if in_list { Focus::Diff } else { Focus::List };
            }
            KeyCode::Down | KeyCode::Char('j') if in_list => self.list.move_by(1),
            KeyCode::Up | KeyCode::Char('k') if in_list => self.list.move_by(-1),
            KeyCode::Home | KeyCode::Char('g') if in_list => self.list.select(0),
            KeyCode::End | KeyCode::Char('G') if in_list => self.list.select(usize::MAX),
            KeyCode::PageDown if !shows_diff => self.list.move_by(list_page),
            KeyCode::PageUp if !shows_diff => self.list.move_by(-list_page),
            KeyCode::Down | KeyCode::Char('j' | 'n') => self.select_file(self.file + 1),
            KeyCode::Up | KeyCode::Char('k' | 'N') => self.select_file(self.file.saturating_sub(1)),
            KeyCode::Home | KeyCode::Char('g') => self.scroll_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.scroll_by(isize::MAX),
            KeyCode::PageDown => self.scroll_by(page.max(1)),
            KeyCode::PageUp => self.scroll_by(-page.max(1)),
            KeyCode::Char(']') => self.select_hunk(self.hunk + 1),
            KeyCode::Char('[') => self.select_hunk(self.hunk.saturating_sub(1)),
            KeyCode::Char('J') => self.scroll_by(1),
            KeyCode::Char('K') => self.scroll_by(-1),
            KeyCode::Right => self.column = (self.column + SIDEWAYS_COLUMNS).min(4096),
            KeyCode::Left => self.column = self.column.saturating_sub(SIDEWAYS_COLUMNS),
            _ => return None,
        }
        Some(Vec::new())
    }

    fn scroll_by(&mut self, lines: isize) {
        let line = self.line.saturating_add_signed(lines).min(self.last_line());
        if line != self.line {
            self.line = line;
            self.file = self.patch().map_or(0, |patch| patch.file_at(line));
        }
    }

    fn select_file(&mut self, file: usize) {
        let Some(patch) = self.patch() else { return };
        let file = file.min(patch.files.len().saturating_sub(1));
        let line = patch.files.get(file).map_or(0, |file| file.at);
        let hunk = patch.hunks.iter().position(|hunk| hunk.file >= file).unwrap_or(0);
        (self.file, self.hunk, self.line, self.column) = (file, hunk, line.min(self.last_line()), 0);
    }

    /// Selects a hunk, and scrolls until its header is on the screen.
    fn select_hunk(&mut self, hunk: usize) {
        let Some(patch) = self.patch() else { return };
        let hunk = hunk.min(patch.hunks.len().saturating_sub(1));
        let Some(ShownHunk { at, file, .. }) = patch.hunks.get(hunk).copied() else { return };
        let height = usize::from(self.diff_areas().lines.height);
        let is_on_screen = (self.line..self.line + height).contains(&at);
        let line = if is_on_screen { self.line } else { at.min(self.last_line()) };
        (self.hunk, self.file, self.line) = (hunk, file, line);
    }

    fn selected_path(&self) -> Option<Vec<u8>> {
        let (_, patch) = self.current()?;
        let file = patch.files.get(self.file)?;
        Some(file.path.clone().unwrap_or_else(|| file.name.clone().into_bytes()))
    }

    fn plan(&mut self, only_look: bool, path: Option<Vec<u8>>) -> Vec<Action> {
        let Some(row) = self.list.selected() else { return Vec::new() };
        let to = Some(row.id);
        self.begin(RestoreRequest { to, path, only_look, revert: None, is_rewind: false })
    }

    /// Plans a rewind. The plan is shown first: it has the last messages of the conversation.
    fn plan_rewind(&mut self) -> Vec<Action> {
        let Some(row) = self.list.selected() else { return Vec::new() };
        let to = Some(row.id);
        self.begin(RestoreRequest { to, path: None, only_look: true, revert: None, is_rewind: true })
    }

    fn plan_revert(&mut self, part: RevertPart) -> Vec<Action> {
        let Some(row) = self.list.selected() else { return Vec::new() };
        let to = Some(row.id);
        self.begin(RestoreRequest { to, path: None, only_look: false, revert: Some(part), is_rewind: false })
    }

    fn plan_revert_of_file(&mut self) -> Vec<Action> {
        let Some((_, patch)) = self.current() else { return Vec::new() };
        let Some(file) = patch.files.get(self.file) else {
            "There is no changed file".clone_into(&mut self.status);
            return Vec::new();
        };
        let paths = file.paths.clone();
        self.plan_revert(RevertPart { paths, hunk: None })
    }

    fn plan_revert_of_hunk(&mut self) -> Vec<Action> {
        if self.diff_of != DiffOf::Turn {
            "Hunks are those of a turn: t shows what this one did".clone_into(&mut self.status);
            return Vec::new();
        }
        let Some((_, patch)) = self.current() else { return Vec::new() };
        let Some(ShownHunk { file, start, .. }) = patch.hunks.get(self.hunk).copied() else {
            "The turn changed no text; v takes back all of it, V one file".clone_into(&mut self.status);
            return Vec::new();
        };
        let file = &patch.files[file];
        // A file that exists on one side only has one hunk, which is all of it.
        let hunk = (file.status == DiffStatus::Modified).then_some(start);
        let paths = file.paths.clone();
        self.plan_revert(RevertPart { paths, hunk })
    }

    fn plan_file(&mut self) -> Vec<Action> {
        let Some((id, patch)) = self.current() else { return Vec::new() };
        match patch.files.get(self.file) {
            None => "No file differs from this checkpoint".clone_into(&mut self.status),
            Some(file) if file.path.is_none() => {
                let message = format!("cannot restore {} from {}: it held no such file", file.name, id.short());
                let hint = Some("restoring everything (r) removes what was made since".to_owned());
                self.open(Overlay::Error(WorkError { message, hint }));
            }
            Some(file) => {
                let path = file.path.clone();
                return self.plan(false, path);
            }
        }
        Vec::new()
    }

    fn begin(&mut self, request: RestoreRequest) -> Vec<Action> {
        if self.busy.is_some() {
            return Vec::new();
        }
        self.status.clear();
        self.busy = Some(Busy::Planning(request.clone()));
        vec![Action::Plan(request)]
    }

    fn prompt_key(&mut self, key: KeyEvent, asked: Asked, mut text: String) -> Vec<Action> {
        match key.code {
            KeyCode::Enter => return self.prompted(asked, &text),
            KeyCode::Esc => {
                // The text filter is applied while it is typed, so cancelling the prompt clears it.
                if asked == Asked::Text {
                    self.list.set_text("");
                }
                return Vec::new();
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(typed) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                text.push(typed);
            }
            _ => {}
        }
        if asked == Asked::Text {
            self.list.set_text(&text);
        }
        self.keep(Overlay::Prompt(asked, text))
    }

    fn prompted(&mut self, asked: Asked, text: &str) -> Vec<Action> {
        match (asked, piton::parse_path(text.as_bytes())) {
            (Asked::Text, _) => self.list.set_text(text),
            (Asked::File, _) if text.is_empty() => self.list.set_file(None),
            (Asked::File, Ok(path)) => {
                self.list.set_file(Some(FileFilter { path: path.clone(), ids: None }));
                return vec![Action::Find(path)];
            }
            (Asked::File, Err(bad)) => {
                let message = format!("cannot use the path {text:?}: {bad}");
                let hint = Some("paths are relative to the project".to_owned());
                self.open(Overlay::Error(WorkError { message, hint }));
            }
        }
        Vec::new()
    }

    pub(super) fn mouse(&mut self, mouse: MouseEvent) -> Vec<Action> {
        let at = Position::new(mouse.column, mouse.row);
        let (areas, parts) = (self.areas(), self.diff_areas());
        let wheel = match mouse.kind {
            MouseEventKind::ScrollDown => WHEEL_LINES,
            MouseEventKind::ScrollUp => -WHEEL_LINES,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return Vec::new(),
        };
        match (&self.overlay, wheel) {
            (None, 0) if areas.rows().contains(at) => {
                self.focus = Focus::List;
                let place = self.list.top + usize::from(at.y - areas.rows().y);
                if place < self.list.counts().1 {
                    self.list.select(place);
                }
            }
            (None, 0) if areas.diff.contains(at) => {
                self.focus = Focus::Diff;
                if parts.files.contains(at) {
                    self.select_file(self.first_file() + usize::from(at.y - parts.files.y));
                }
            }
            (None, 0) => {}
            (None, lines) if areas.list.contains(at) => self.list.scroll_by(lines, self.list_height()),
            (None, lines) => self.scroll_by(lines),
            (Some(_), lines) => self.overlay_line = self.overlay_line.saturating_add_signed(lines),
        }
        Vec::new()
    }
}

fn is_control(key: KeyEvent, character: char) -> bool {
    key.code == KeyCode::Char(character) && key.modifiers.contains(KeyModifiers::CONTROL)
}

fn signed(count: usize) -> isize {
    isize::try_from(count).unwrap_or(isize::MAX)
}
