//! Erasing, inserting, deleting and scrolling.

use super::Screen;
use crate::grid::cell::Cell;
use crate::grid::row::Spare;
use crate::style::Style;

impl Screen {
    fn erase_in_row(&mut self, y: usize, start: usize, end: usize, spare: Spare) {
        let fill = self.erased();
        let row = &mut self.buf.rows[y];
        match spare {
            Spare::None => row.erase(start, end, self.cols, fill),
            Spare::Protected => row.erase_unprotected(start, end, self.cols, fill, &self.styles),
        }
    }

    fn erase_row(&mut self, y: usize, spare: Spare) {
        let fill = self.erased();
        let row = &mut self.buf.rows[y];
        match spare {
            Spare::None => row.fill(fill, self.cols),
            Spare::Protected => {
                row.erase_unprotected(0, self.cols, self.cols, fill, &self.styles);
                row.wrapped = false;
            }
        }
    }

    pub(super) fn erase_in_display(&mut self, part: i32, spare: Spare) {
        self.restrict_to(self.cols);
        let (x, y) = (self.buf.x, self.buf.y);
        match part {
            0 => {
                self.erase_in_row(y, x, self.cols, spare);
                if x == 0 {
                    self.buf.rows[y].wrapped = false;
                }
                for below in y + 1..self.rows {
                    self.erase_row(below, spare);
                }
            }
            1 => {
                self.erase_in_row(y, 0, x + 1, spare);
                self.buf.rows[y].wrapped = false;
                if x + 1 >= self.cols {
                    self.unwrap_absolute(y + 1);
                }
                for above in 0..y {
                    self.erase_row(above, spare);
                }
            }
            2 => {
                for row in 0..self.rows {
                    self.erase_row(row, spare);
                }
            }
            3 => self.buf.scrollback.clear(),
            _ => {}
        }
    }

    /// Clears the wrapped flag of a line that xterm.js counts from the oldest scrollback line.
    fn unwrap_absolute(&mut self, line: usize) {
        let base = self.buf.base();
        if line < base {
            self.buf.scrollback.unwrap_line(line);
        } else if let Some(row) = self.buf.rows.get_mut(line - base) {
            row.wrapped = false;
        }
    }

    pub(super) fn erase_in_line(&mut self, part: i32, spare: Spare) {
        self.restrict_to(self.cols);
        let (x, y) = (self.buf.x, self.buf.y);
        match part {
            0 => {
                self.erase_in_row(y, x, self.cols, spare);
                if x == 0 {
                    self.buf.rows[y].wrapped = false;
                }
            }
            1 => self.erase_in_row(y, 0, x + 1, spare),
            2 => {
                self.erase_in_row(y, 0, self.cols, spare);
                self.buf.rows[y].wrapped = false;
            }
            _ => {}
        }
    }

    pub(super) fn erase_chars(&mut self, count: usize) {
        self.restrict();
        let (x, y) = (self.buf.x, self.buf.y);
        self.erase_in_row(y, x, x.saturating_add(count), Spare::None);
    }

    pub(super) fn insert_lines(&mut self, count: usize) {
        self.restrict();
        if self.in_region() {
            let fill = self.erased();
            self.buf.scroll_down(self.buf.y, count, fill);
            self.buf.x = self.buf.margins.left;
        }
    }

    pub(super) fn delete_lines(&mut self, count: usize) {
        self.restrict();
        if self.in_region() {
            let fill = self.erased();
            self.buf.scroll_up(self.buf.y, count, fill);
            self.buf.x = self.buf.margins.left;
        }
    }

    /// Returns the end of the columns that ICH and DCH shift.
    fn shift_end(&self) -> usize {
        if self.modes.margins { self.buf.margins.right + 1 } else { self.cols }
    }

    pub(super) fn insert_chars(&mut self, count: usize) {
        self.restrict();
        if self.in_columns() {
            let (x, end, fill) = (self.buf.x, self.shift_end(), self.erased());
            self.buf.row().insert(x, count, end, fill);
        }
    }

    pub(super) fn delete_chars(&mut self, count: usize) {
        self.restrict();
        if self.in_columns() {
            let (x, end, fill) = (self.buf.x, self.shift_end(), self.erased());
            self.buf.row().delete(x, count, end, fill);
        }
    }

    pub(super) fn scroll_up(&mut self, count: usize) {
        let fill = self.erased();
        self.buf.scroll_up(self.buf.margins.top, count, fill);
    }

    pub(super) fn scroll_down(&mut self, count: usize) {
        self.buf.scroll_down(self.buf.margins.top, count, Cell::NULL);
    }

    /// SL, SR, DECIC and DECDC: shifts columns in every row of the region.
    pub(super) fn shift_columns(&mut self, shift: Shift, from: usize, count: usize) {
        if !self.in_region() {
            return;
        }
        let (end, fill) = (self.shift_end(), self.erased());
        // A pending wrap is one column past the row, which xterm.js treats as its first column.
        let from = from % self.cols;
        if from >= end {
            return;
        }
        for y in self.buf.margins.top..=self.buf.margins.bottom {
            let row = &mut self.buf.rows[y];
            match shift {
                Shift::Left => row.delete(from, count, end, fill),
                Shift::Right => row.insert(from, count, end, fill),
            }
            row.wrapped = false;
        }
    }

    pub(super) fn shift_start(&self) -> usize {
        if self.modes.margins { self.buf.margins.left } else { 0 }
    }

    /// DECALN: fills the screen with E.
    pub(super) fn fill_with_e(&mut self) {
        self.move_to(0, 0);
        let style = self.styles.number(Style { ext: 0, link: 0, ..self.pen });
        // In origin mode xterm.js starts at the top of the region and fills as many rows as the
        // screen has. Rows past the end wrap around in the alternate buffer only.
        let top = if self.alt { 0 } else { self.buf.y };
        for row in self.buf.rows.iter_mut().skip(top) {
            row.fill(Cell::new(u32::from(b'E'), 1, style), self.cols);
        }
        self.move_to(0, 0);
    }
}

/// The direction in which columns move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    Left,
    Right,
}
