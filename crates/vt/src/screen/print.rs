//! Printing characters: wrapping, wide characters, combining marks, insert mode.

use super::feed::whole_char;
use super::{Screen, charset};
use crate::grid::cell::{Cell, Glyph, MAX_CLUSTER_CHARS};
use crate::width::width;

impl Screen {
    /// Prints ASCII, as a whole run if no mode prevents that.
    pub(super) fn print_ascii(&mut self, text: &[u8]) {
        if self.modes.insert || self.modes.margins || self.charsets.current != b'B' {
            self.begin_run();
            for byte in text {
                self.print_code(u32::from(*byte));
            }
            self.end_run();
            return;
        }
        let pen = self.pen_number();
        let x = self.buf.x;
        if x + text.len() <= self.cols {
            let row = self.buf.row();
            if x > 0 && self.parser.join == 0 && row.width(x - 1) == 2 {
                row.set(x - 1, Cell::null(pen));
            }
            row.set_ascii(x, text, pen);
            let end = x + text.len();
            if row.get(end).is_spacer() && end < self.cols {
                row.set(end, Cell::null(pen));
            }
            self.buf.x = end;
            self.parser.join = 1;
            return;
        }
        self.begin_run();
        let mut text = text;
        loop {
            if self.buf.x >= self.cols {
                if self.modes.wrap {
                    self.wrap(0);
                } else {
                    // Every further character overwrites the last column.
                    self.buf.x = self.cols - 1;
                    text = &text[text.len() - 1..];
                }
            }
            let x = self.buf.x;
            let (now, later) = text.split_at(text.len().min(self.cols - x));
            self.buf.row().set_ascii(x, now, pen);
            self.buf.x += now.len();
            if later.is_empty() {
                break;
            }
            text = later;
        }
        self.parser.join = 1;
        self.end_run();
    }

    /// Call before printing. Blanks the first half of a wide character whose second half is about
    /// to be overwritten. Text directly after text belongs to the same run.
    #[inline]
    pub(super) fn begin_run(&mut self) {
        let x = self.buf.x;
        if x > 0 && self.parser.join == 0 && self.buf.row().width(x - 1) == 2 {
            let pen = self.pen_number();
            self.buf.row().set(x - 1, Cell::null(pen));
        }
    }

    /// Call after printing. Blanks a second half that lost its first half.
    #[inline]
    pub(super) fn end_run(&mut self) {
        let x = self.buf.x;
        if x < self.cols && self.buf.row().get(x).is_spacer() {
            let pen = self.pen_number();
            self.buf.row().set(x, Cell::null(pen));
        }
    }

    /// Prints leading characters beyond ASCII, within a run, until a combining mark or the end of
    /// the line. Returns the number of bytes printed.
    pub(super) fn print_simple(&mut self, bytes: &[u8]) -> usize {
        if self.modes.insert || self.modes.margins {
            return 0;
        }
        let pen = self.pen_number();
        let (mut x, mut at) = (self.buf.x, 0);
        let cols = self.cols;
        let row = self.buf.row();
        let mut join = self.parser.join;
        while let Some((code, size)) = whole_char(&bytes[at..]) {
            let columns = width(code);
            if columns == 0 || x + usize::from(columns) > cols {
                break;
            }
            row.set(x, Cell::new(code, columns, pen));
            if columns == 2 {
                row.set(x + 1, Cell::new(0, 0, pen));
            }
            x += usize::from(columns);
            at += size;
            join = columns;
        }
        self.buf.x = x;
        self.parser.join = join;
        at
    }

    /// Prints one character, within a run.
    #[inline]
    pub(super) fn print_code(&mut self, code: u32) {
        // Fast path: a character that is no combining mark and fits into the line.
        let columns = usize::from(width(code));
        let x = self.buf.x;
        let simple = columns > 0 && code >= 127 && !self.modes.insert && !self.modes.margins;
        if simple && x + columns <= self.cols {
            let pen = self.pen_number();
            let row = self.buf.row();
            row.set(x, Cell::new(code, columns as u8, pen));
            if columns == 2 {
                row.set(x + 1, Cell::new(0, 0, pen));
            }
            self.buf.x = x + columns;
            self.parser.join = columns as u8;
            return;
        }
        self.print_any(code);
    }

    fn print_any(&mut self, code: u32) {
        let code = if code < 127 { charset::map(self.charsets.current, code) } else { code };
        let own = width(code);
        let before = self.parser.join;
        if own == 0 && before != 0 {
            self.join(code, before);
            return;
        }
        self.parser.join = own;
        let pen = self.pen_number();
        let columns = usize::from(own);
        let limit = self.line_end();
        let at_margin = self.margin_wrap.take() == Some((self.buf.x, self.buf.y));
        if at_margin || self.buf.x + columns > limit {
            if self.modes.wrap {
                // A wide character that does not fit leaves the end of the line blank.
                if !at_margin {
                    for col in self.buf.x..limit {
                        self.buf.row().set(col, Cell::null(pen));
                    }
                }
                self.wrap(self.line_start());
            } else {
                self.buf.x = limit - 1;
                if own == 2 {
                    return;
                }
            }
        }
        let limit = self.line_end();
        let x = self.buf.x;
        if x >= self.cols {
            // A combining mark without a base character, past the last column.
            return;
        }
        if self.modes.insert {
            let row = self.buf.row();
            row.insert(x, columns, limit.max(x + 1), Cell::null(pen));
        }
        let row = self.buf.row();
        row.set(x, Cell::new(code, own, pen));
        if own == 2 && x + 1 < self.cols {
            row.set(x + 1, Cell::new(0, 0, pen));
        }
        self.buf.x = (x + columns.max(1)).min(self.cols);
        if self.buf.x == limit && limit < self.cols {
            // Between margins the cursor stays on the last column until the next character wraps.
            self.buf.x = limit - 1;
            self.margin_wrap = Some((self.buf.x, self.buf.y));
        }
    }

    /// Returns the end of the columns that this line may fill.
    fn line_end(&self) -> usize {
        let right = self.buf.margins.right;
        if self.modes.margins && self.buf.x <= right { right + 1 } else { self.cols }
    }

    fn line_start(&self) -> usize {
        let margins = self.buf.margins;
        if self.modes.margins && (margins.left..=margins.right).contains(&self.buf.x) {
            margins.left
        } else {
            0
        }
    }

    /// Moves to the start of the next line and marks it as wrapped.
    fn wrap(&mut self, start: usize) {
        self.buf.x = start;
        if self.buf.y == self.buf.margins.bottom {
            self.scroll(true);
        } else {
            self.buf.y = (self.buf.y + 1).min(self.rows - 1);
            self.buf.row().wrapped = true;
        }
    }

    /// Adds a combining mark to the character before the cursor.
    fn join(&mut self, code: u32, columns: u8) {
        let Some(c) = char::from_u32(code) else { return };
        let mut x = self.buf.x;
        if self.margin_wrap == Some((self.buf.x, self.buf.y)) {
            x += 1;
        }
        if x == 0 {
            return self.print_mark(code);
        }
        let back = if self.buf.row().width(x - 1) > 0 { 1 } else { 2 };
        let Some(at) = x.checked_sub(back) else { return };
        let cell = self.buf.row().get(at);
        let mut text = String::new();
        match cell.glyph() {
            Glyph::None => {
                self.buf.row().set(at, Cell::new(code, columns, cell.style));
                return;
            }
            Glyph::Char(first) => text.extend(char::from_u32(first)),
            Glyph::Cluster(number) => text.push_str(self.clusters.get(number)),
        }
        if text.chars().count() >= MAX_CLUSTER_CHARS {
            return;
        }
        text.push(c);
        if self.clusters.wants_sweep() {
            self.sweep();
        }
        if let Some(number) = self.clusters.number(&text) {
            self.buf.row().set(at, Cell::cluster(number, columns, cell.style));
        }
    }

    /// Prints a combining mark without a base character into its own cell.
    fn print_mark(&mut self, code: u32) {
        let pen = self.pen_number();
        let x = self.buf.x;
        self.buf.row().set(x, Cell::new(code, 0, pen));
        self.buf.x = x + 1;
    }

    /// REP: repeats the character before the cursor.
    pub(super) fn repeat(&mut self, count: usize) {
        let columns = usize::from(self.parser.join);
        let Some(at) = self.buf.x.checked_sub(columns).filter(|_| columns > 0) else { return };
        let text: Vec<u32> = match self.buf.row().get(at).glyph() {
            Glyph::None => return,
            Glyph::Char(code) => vec![code],
            Glyph::Cluster(number) => self.clusters.get(number).chars().map(|c| c as u32).collect(),
        };
        self.begin_run();
        // More than a screenful would look the same, and is cheap to request.
        for _ in 0..count.min(self.cols * self.rows) {
            for code in &text {
                self.print_code(*code);
            }
        }
        self.end_run();
    }
}
