//! Layout of the screen by its size. Drawing and mouse clicks both use it.

use ratatui::layout::{Rect, Size};

/// Minimum width for both panes side by side.
const SIDE_BY_SIDE_COLUMNS_MIN: u16 = 90;
/// Minimum height for both panes on top of each other, on a narrow screen.
const STACKED_ROWS_MIN: u16 = 30;

/// The pane that has the keyboard focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Focus {
    #[default]
    List,
    Diff,
}

/// The panes including their frames, and the line below them. A hidden pane is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Areas {
    pub(super) list: Rect,
    pub(super) diff: Rect,
    pub(super) bottom: Rect,
}

impl Areas {
    pub(super) fn of(size: Size, focus: Focus) -> Self {
        let Size { width, height } = size;
        let rows = height.saturating_sub(1);
        let bottom = Rect::new(0, rows, width, height - rows);
        let whole = Rect::new(0, 0, width, rows);
        let (list, diff) = if width >= SIDE_BY_SIDE_COLUMNS_MIN {
            let left = (width * 9 / 20).min(96);
            (Rect { width: left, ..whole }, Rect { x: left, width: width - left, ..whole })
        } else if height >= STACKED_ROWS_MIN {
            let top = rows * 2 / 5;
            (Rect { height: top, ..whole }, Rect { y: top, height: rows - top, ..whole })
        } else if focus == Focus::List {
            (whole, Rect::default())
        } else {
            (Rect::default(), whole)
        };
        Self { list, diff, bottom }
    }

    /// Returns the area of the list inside its frame.
    pub(super) fn rows(&self) -> Rect {
        inside(self.list)
    }
}

/// Parts of the diff pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiffAreas {
    /// The checkpoint, and the size of the changes since.
    pub(super) head: Rect,
    /// The list of files.
    pub(super) files: Rect,
    /// The lines of the diff.
    pub(super) lines: Rect,
}

impl DiffAreas {
    pub(super) fn of(pane: Rect, files: usize) -> Self {
        let inner = inside(pane);
        let head = inner.height.min(2);
        let files_max = (inner.height - head) / 3;
        let files = u16::try_from(files).unwrap_or(u16::MAX).min(files_max);
        let lines = inner.height - head - files;
        Self {
            head: Rect { height: head, ..inner },
            files: Rect { y: inner.y + head, height: files, ..inner },
            lines: Rect { y: inner.y + head + files, height: lines, ..inner },
        }
    }
}

/// Returns the area inside a frame of one cell.
pub(super) fn inside(frame: Rect) -> Rect {
    Rect {
        x: frame.x + frame.width.min(1),
        y: frame.y + frame.height.min(1),
        width: frame.width.saturating_sub(2),
        height: frame.height.saturating_sub(2),
    }
}

/// Returns a box of this size, clipped to the screen and centred on it.
pub(super) fn centred(screen: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(screen.width), height.min(screen.height));
    Rect { x: screen.x + (screen.width - width) / 2, y: screen.y + (screen.height - height) / 2, width, height }
}

/// Returns the number of lines of text in the largest overlay, without its frame and two lines of its own.
pub(super) fn overlay_height(size: Size) -> usize {
    usize::from(size.height.saturating_sub(6)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pane_is_on_the_screen_whatever_its_size() {
        for (width, height) in (0..130).step_by(3).flat_map(|width| (0..40).map(move |height| (width, height))) {
            let screen = Rect::new(0, 0, width, height);
            for focus in [Focus::List, Focus::Diff] {
                let areas = Areas::of(Size { width, height }, focus);
                let parts = DiffAreas::of(areas.diff, 50);
                for area in [areas.list, areas.diff, areas.bottom, areas.rows(), parts.head, parts.files, parts.lines] {
                    assert!(area.is_empty() || screen.union(area) == screen, "{area:?} at {width}x{height}");
                }
                assert!(!areas.list.intersects(areas.diff) && !areas.bottom.intersects(areas.list));
            }
        }
    }

    #[test]
    fn narrow_screens_show_one_pane_and_high_ones_both() {
        let areas = |width, height, focus| Areas::of(Size { width, height }, focus);
        let wide = areas(120, 35, Focus::List);
        assert!(!wide.list.is_empty() && wide.list.height == wide.diff.height);
        let high = areas(60, 40, Focus::List);
        assert!(!high.list.is_empty() && high.list.width == high.diff.width);
        assert!(areas(40, 12, Focus::List).diff.is_empty() && areas(40, 12, Focus::Diff).list.is_empty());
    }
}
