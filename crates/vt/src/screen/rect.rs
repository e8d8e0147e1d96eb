//! Rectangle operations: fill, erase, copy, change attributes, checksum.

use super::Screen;
use crate::grid::cell::{Cell, Glyph};
use crate::grid::row::Spare;
use crate::parser::Params;
use crate::style::*;

/// Rows and columns. All bounds are inclusive.
#[derive(Clone, Copy)]
struct Rect {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
}

impl Screen {
    /// Parses the rectangle in the parameters starting at `at`. Returns `None` if it is empty.
    fn rect(&self, at: usize) -> Option<Rect> {
        let params = &self.parser.params;
        let margins = self.buf.margins;
        let (top, left, bottom, right) = if self.modes.origin {
            (margins.top, margins.left, margins.bottom, margins.right)
        } else {
            (0, 0, self.rows - 1, self.cols - 1)
        };
        let bound = |i: usize, base: usize, last: usize| match params.get(i) {
            ..=0 => last,
            n => (base + n as usize - 1).min(last),
        };
        let rect = Rect {
            top: top + params.count(at) - 1,
            left: left + params.count(at + 1) - 1,
            bottom: bound(at + 2, top, bottom),
            right: bound(at + 3, left, right),
        };
        (rect.top <= rect.bottom && rect.left <= rect.right).then_some(rect)
    }

    /// DECFRA: fills a rectangle with a character.
    pub(super) fn fill_rect(&mut self) {
        let code = self.parser.params.get(0) as u32;
        if !matches!(code, 0x20..=0x7e | 0xa0..=0xff) {
            return;
        }
        let Some(rect) = self.rect(1) else { return };
        let pen = self.pen_number();
        self.put_rect(rect, Cell::new(code, 1, pen));
    }

    /// DECERA and DECSERA: erase a rectangle.
    pub(super) fn erase_rect(&mut self, spare: Spare) {
        let Some(rect) = self.rect(0) else { return };
        let fill = self.erased();
        for y in rect.top..=rect.bottom {
            let row = &mut self.buf.rows[y];
            match spare {
                Spare::None => row.erase(rect.left, rect.right + 1, self.cols, fill),
                Spare::Protected => {
                    row.erase_unprotected(rect.left, rect.right + 1, self.cols, fill, &self.styles)
                }
            }
        }
    }

    fn put_rect(&mut self, rect: Rect, cell: Cell) {
        for y in rect.top..=rect.bottom {
            let row = &mut self.buf.rows[y];
            row.erase(rect.left, rect.right + 1, self.cols, cell);
        }
    }

    /// DECCRA: copies a rectangle.
    pub(super) fn copy_rect(&mut self) {
        let Some(from) = self.rect(0) else { return };
        let params = &self.parser.params;
        let margins = self.buf.margins;
        let (top, left) = if self.modes.origin { (margins.top, margins.left) } else { (0, 0) };
        let (top, left) = (top + params.count(5) - 1, left + params.count(6) - 1);
        if top >= self.rows || left >= self.cols {
            return;
        }
        let copy: Vec<Vec<Cell>> = (from.top..=from.bottom)
            .map(|y| (from.left..=from.right).map(|x| self.buf.rows[y].get(x)).collect())
            .collect();
        for (row, cells) in self.buf.rows.iter_mut().skip(top).zip(copy) {
            let count = cells.len().min(self.cols - left);
            let end = left + count;
            // Both the old and the copied cells may split a wide character at the edges.
            if left > 0 && row.width(left - 1) == 2 {
                row.set(left - 1, Cell::NULL);
            }
            if end < self.cols && row.get(end).is_spacer() {
                row.set(end, Cell::NULL);
            }
            row.copy_from(&cells, 0, left, count);
            if row.get(left).is_spacer() {
                row.set(left, Cell::NULL);
            }
            if row.width(end - 1) == 2 {
                row.set(end - 1, Cell::NULL);
            }
        }
    }

    /// DECCARA sets attributes, DECRARA inverts them.
    pub(super) fn change_rect_attributes(&mut self, last: u8) {
        let Some(rect) = self.rect(0) else { return };
        let params = self.parser.params.clone();
        for y in rect.top..=rect.bottom {
            // A stream extends from the first row's start column through the last row's end column.
            let stream = !self.modes.rect_exact;
            let from = if stream && y > rect.top { 0 } else { rect.left };
            let to = if stream && y < rect.bottom { self.cols - 1 } else { rect.right };
            // A wide character changes as a whole.
            let row = &self.buf.rows[y];
            let half = from > 0 && row.get(from).is_spacer() && row.width(from - 1) == 2;
            let from = from - usize::from(half);
            let to = (to + usize::from(row.width(to) == 2)).min(self.cols - 1);
            for x in from..=to {
                let cell = self.buf.rows[y].get(x);
                let mut style = self.styles.get(cell.style);
                for i in 4..params.len().max(5) {
                    change(&mut style, &params, i, last);
                }
                let number = self.styles.number(style.for_cell());
                // A blank can show an attribute only as a space.
                let changed = if cell.is_null() && style != style.erase() {
                    Cell::new(0x20, 1, number)
                } else {
                    cell.with_style(number)
                };
                self.buf.rows[y].set(x, changed);
            }
        }
        self.pen_number = None;
    }

    /// DECRQCRA: reports the sum of the characters, counting a blank as a space. Attributes are
    /// ignored and the sum is not negated, as conformance suites expect.
    pub(super) fn report_checksum(&mut self) {
        if !self.checksum_reports {
            return;
        }
        let id = self.parser.params.get(0).clamp(0, 0xffff);
        let mut sum: u32 = 0;
        if let Some(rect) = self.rect(2) {
            for y in rect.top..=rect.bottom.min(self.rows - 1) {
                for x in rect.left..=rect.right.min(self.cols - 1) {
                    sum = sum.wrapping_add(self.checksum(self.buf.rows[y].get(x)));
                }
            }
        }
        self.reply(format!("\x1bP{id}!~{:04X}\x1b\\", sum & 0xffff).as_bytes());
    }

    fn checksum(&self, cell: Cell) -> u32 {
        match cell.glyph() {
            Glyph::None => 0x20,
            Glyph::Char(code) => code,
            Glyph::Cluster(number) => {
                self.clusters.get(number).chars().map(|c| c as u32).fold(0, u32::wrapping_add)
            }
        }
    }
}

fn change(style: &mut Style, params: &Params, i: usize, last: u8) {
    let p = params.get(i);
    if last == b'r' {
        match p {
            0 => style.fg &= !(BOLD | UNDERLINE | BLINK | INVERSE),
            1 => style.fg |= BOLD,
            4 => style.fg |= UNDERLINE,
            5 => style.fg |= BLINK,
            7 => style.fg |= INVERSE,
            22 => style.fg &= !BOLD,
            24 => style.fg &= !UNDERLINE,
            25 => style.fg &= !BLINK,
            27 => style.fg &= !INVERSE,
            _ => {}
        }
    } else {
        match p {
            0 => style.fg ^= BOLD | UNDERLINE | BLINK | INVERSE,
            1 => style.fg ^= BOLD,
            4 => style.fg ^= UNDERLINE,
            5 => style.fg ^= BLINK,
            7 => style.fg ^= INVERSE,
            _ => {}
        }
    }
    let underlined = style.fg & UNDERLINE != 0;
    if underlined != (style.ext & UNDERLINE_STYLE != 0) {
        style.set_underline_style(u32::from(underlined));
    }
}
