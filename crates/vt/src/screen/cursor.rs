//! Cursor movement.

use super::Screen;
use crate::grid::buffer::Saved;
use crate::style::Style;

impl Screen {
    /// Clamps the cursor to the screen or region; `last` is the rightmost allowed column.
    pub(super) fn restrict_to(&mut self, last: usize) {
        self.buf.x = self.buf.x.min(last);
        self.buf.y = if self.modes.origin {
            self.buf.y.clamp(self.buf.margins.top, self.buf.margins.bottom)
        } else {
            self.buf.y.min(self.rows - 1)
        };
    }

    pub(super) fn restrict(&mut self) {
        self.restrict_to(self.cols - 1);
    }

    /// Moves the cursor to a position, which is relative to the margins in origin mode.
    pub(super) fn move_to(&mut self, x: i64, y: i64) {
        let margins = self.buf.margins;
        let (left, top) =
            if self.modes.origin { (margins.left as i64, margins.top as i64) } else { (0, 0) };
        let mut x = (left + x).clamp(0, self.cols as i64 - 1);
        if self.modes.origin && self.modes.margins {
            x = x.min(margins.right as i64);
        }
        self.buf.x = x as usize;
        self.buf.y = (top + y).clamp(0, self.rows as i64 - 1) as usize;
        self.restrict();
    }

    /// Moves the cursor relative to its position.
    pub(super) fn move_by(&mut self, cols: i64, rows: i64) {
        self.restrict();
        let (x, y) = self.relative_position();
        self.move_to(x + cols, y + rows);
    }

    /// Moves the cursor up or down. Stops at the edge of the region if it starts inside.
    pub(super) fn move_rows(&mut self, by: i64) {
        let margins = self.buf.margins;
        let y = self.buf.y as i64;
        let (above, below) = (y - margins.top as i64, margins.bottom as i64 - y);
        let by = if by < 0 && above >= 0 {
            by.max(-above)
        } else if by > 0 && below >= 0 {
            by.min(below)
        } else {
            by
        };
        self.move_by(0, by);
    }

    /// Moves the cursor left or right. Stops at the margins if it starts between them.
    pub(super) fn move_cols(&mut self, by: i64) {
        let mut by = by;
        if self.modes.margins {
            let x = self.buf.x.min(self.cols - 1) as i64;
            let margins = self.buf.margins;
            let (before, after) = (x - margins.left as i64, margins.right as i64 - x);
            if by < 0 && before >= 0 {
                by = by.max(-before);
            } else if by > 0 && after >= 0 {
                by = by.min(after);
            }
        }
        self.move_by(by, 0);
    }

    pub(super) fn row_absolute(&mut self, row: i64) {
        let (x, _) = self.relative_position();
        self.move_to(x, row);
    }

    pub(super) fn col_absolute(&mut self, col: i64) {
        let (_, y) = self.relative_position();
        self.move_to(col, y);
    }

    /// Returns the cursor position as an argument for `move_to`. In origin mode xterm.js adds the top
    /// of the region to the row a second time, and so do we to match the browser. With side
    /// margins,
    /// which xterm.js does not support, the row is counted correctly.
    fn relative_position(&self) -> (i64, i64) {
        let margins = self.buf.margins;
        let left = if self.modes.origin { margins.left } else { 0 };
        let top = if self.modes.origin && self.modes.margins { margins.top } else { 0 };
        (self.buf.x as i64 - left as i64, self.buf.y as i64 - top as i64)
    }

    pub(super) fn line_feed(&mut self) {
        if self.modes.line_feed {
            self.buf.x = 0;
        }
        if self.buf.y == self.buf.margins.bottom {
            if self.in_columns() {
                self.scroll(false);
            }
        } else if self.buf.y + 1 < self.rows {
            self.buf.y += 1;
            self.buf.row().wrapped = false;
        }
        if self.buf.x >= self.cols {
            self.buf.x -= 1;
        }
    }

    /// Whether the cursor is between the left and right margins.
    pub(super) fn in_columns(&self) -> bool {
        let margins = self.buf.margins;
        !self.modes.margins || (margins.left..=margins.right).contains(&self.buf.x)
    }

    /// Whether the cursor is inside the scrolling region.
    pub(super) fn in_region(&self) -> bool {
        let margins = self.buf.margins;
        (margins.top..=margins.bottom).contains(&self.buf.y) && self.in_columns()
    }

    pub(super) fn carriage_return(&mut self) {
        let left = self.buf.margins.left;
        self.buf.x =
            if self.modes.margins && (self.buf.x >= left || self.modes.origin) { left } else { 0 };
    }

    pub(super) fn index(&mut self) {
        self.restrict();
        if self.buf.y == self.buf.margins.bottom {
            if self.in_columns() {
                self.scroll(false);
            }
        } else {
            self.buf.y = (self.buf.y + 1).min(self.rows - 1);
        }
        self.restrict();
    }

    pub(super) fn reverse_index(&mut self) {
        self.restrict();
        if self.buf.y == self.buf.margins.top {
            if self.in_columns() {
                let fill = self.erased();
                self.buf.scroll_down(self.buf.margins.top, 1, fill);
            }
        } else {
            self.buf.y = self.buf.y.saturating_sub(1);
            self.restrict();
        }
    }

    pub(super) fn backspace(&mut self) {
        if !self.modes.reverse_wrap {
            self.restrict();
            let left = self.buf.margins.left;
            if self.buf.x > 0 && !(self.modes.margins && self.buf.x == left) {
                self.buf.x -= 1;
            }
            return;
        }
        self.restrict_to(self.cols);
        let margins = self.buf.margins;
        if self.modes.margins && (self.buf.x == margins.left || self.buf.x == 0) {
            self.reverse_wrap_in_margins();
        } else if self.buf.x > 0 {
            self.buf.x -= 1;
        } else if self.buf.y > margins.top && self.buf.y <= margins.bottom && self.buf.row().wrapped
        {
            self.buf.row().wrapped = false;
            self.buf.y -= 1;
            self.buf.x = self.cols - 1;
            let last = self.buf.x;
            // A wide character that wrapped early left the last column blank; skip it.
            if self.buf.row().get(last).is_null() {
                self.buf.x -= 1;
            }
        }
        self.restrict();
    }

    /// Does not check whether the line above wrapped: between side margins no row has that flag.
    fn reverse_wrap_in_margins(&mut self) {
        let margins = self.buf.margins;
        if self.modes.wrap && self.buf.y > margins.top {
            self.buf.row().wrapped = false;
            self.buf.y -= 1;
            self.buf.x = margins.right;
        }
    }

    pub(super) fn tab(&mut self, count: usize) {
        if self.buf.x >= self.cols {
            return;
        }
        let inside = self.modes.margins && self.buf.x <= self.buf.margins.right;
        for _ in 0..count.min(self.cols) {
            self.buf.x = self.buf.tabs.next(self.buf.x, self.cols);
        }
        if inside {
            self.buf.x = self.buf.x.min(self.buf.margins.right);
        }
    }

    pub(super) fn back_tab(&mut self, count: usize) {
        if self.buf.x >= self.cols {
            return;
        }
        let left = if self.modes.origin { self.buf.margins.left } else { 0 };
        for _ in 0..count.min(self.cols) {
            self.buf.x = self.buf.tabs.previous(self.buf.x, self.cols).max(left);
        }
    }

    pub(super) fn save_cursor(&mut self) {
        self.buf.saved = Saved {
            x: self.buf.x,
            y: self.buf.base() + self.buf.y,
            fg: self.pen.fg,
            bg: self.pen.bg,
            charset: self.charsets.current,
        };
    }

    pub(super) fn restore_cursor(&mut self) {
        let saved = self.buf.saved;
        self.buf.x = saved.x;
        self.buf.y = saved.y.saturating_sub(self.buf.base());
        self.set_pen(Style { fg: saved.fg, bg: saved.bg, ..self.pen });
        self.charsets.current = saved.charset;
        self.restrict();
    }
}
