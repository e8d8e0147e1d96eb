//! Characters onto the screen: wrapping, wide characters, marks, insertion.

use super::feed::whole_char;
use super::{Screen, charset};
use crate::grid::cell::{CLUSTER_CHARS, Cell, Glyph};
use crate::width::width;

impl Screen {
    /// Prints ASCII, all at once where nothing stands in the way.
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
                    // Every further character takes the place of the last one.
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

    /// Before printing: a wide character whose second half is about to go loses the first
    /// too. Text that goes on where text stopped is still the same run.
    #[inline]
    pub(super) fn begin_run(&mut self) {
        let x = self.buf.x;
        if x > 0 && self.parser.join == 0 && self.buf.row().width(x - 1) == 2 {
            let pen = self.pen_number();
            self.buf.row().set(x - 1, Cell::null(pen));
        }
    }

    /// After printing: a second half without its first is a blank.
    #[inline]
    pub(super) fn end_run(&mut self) {
        let x = self.buf.x;
        if x < self.cols && self.buf.row().get(x).is_spacer() {
            let pen = self.pen_number();
            self.buf.row().set(x, Cell::null(pen));
        }
    }

    /// Prints characters beyond ASCII from the front of `bytes`, within a run, as long as they
    /// have columns of their own and the line has room; returns how many bytes those were.
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
        // Most characters have columns of their own, and room.
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
        self.print_slowly(code);
    }

    fn print_slowly(&mut self, code: u32) {
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
                // What a wide character leaves free at the end is blank.
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
            // A mark with nothing to join, behind the last column.
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
            // Inside margins the cursor waits on the last column.
            self.buf.x = limit - 1;
            self.margin_wrap = Some((self.buf.x, self.buf.y));
        }
    }

    /// One past the last column this line may fill.
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

    /// To the beginning of the next line, which continues this one.
    fn wrap(&mut self, start: usize) {
        self.buf.x = start;
        if self.buf.y == self.buf.margins.bottom {
            self.scroll(true);
        } else {
            self.buf.y = (self.buf.y + 1).min(self.rows - 1);
            self.buf.row().wrapped = true;
        }
    }

    /// Adds a mark to the character before the cursor.
    fn join(&mut self, code: u32, columns: u8) {
        let Some(c) = char::from_u32(code) else { return };
        let mut x = self.buf.x;
        if self.margin_wrap == Some((self.buf.x, self.buf.y)) {
            x += 1;
        }
        if x == 0 {
            return self.place_mark(code);
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
        if text.chars().count() >= CLUSTER_CHARS {
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

    /// A mark that has nothing to its left takes a cell of its own.
    fn place_mark(&mut self, code: u32) {
        let pen = self.pen_number();
        let x = self.buf.x;
        self.buf.row().set(x, Cell::new(code, 0, pen));
        self.buf.x = x + 1;
    }

    /// REP: the character before the cursor, again.
    pub(super) fn repeat(&mut self, count: usize) {
        let columns = usize::from(self.parser.join);
        let Some(at) = self.buf.x.checked_sub(columns).filter(|_| columns > 0) else { return };
        let text: Vec<u32> = match self.buf.row().get(at).glyph() {
            Glyph::None => return,
            Glyph::Char(code) => vec![code],
            Glyph::Cluster(number) => self.clusters.get(number).chars().map(|c| c as u32).collect(),
        };
        self.begin_run();
        // More than a screenful looks the same, and costs its sender nothing.
        for _ in 0..count.min(self.cols * self.rows) {
            for code in &text {
                self.print_code(*code);
            }
        }
        self.end_run();
    }
}
