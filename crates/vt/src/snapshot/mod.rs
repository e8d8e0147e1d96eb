//! The screen as escape sequences: written to a fresh terminal of the same size, they bring it to
//! the same state.
//!
//! The order matters. Text is printed first, in default modes. Margins and origin mode home the
//! cursor, so they precede its position. The pen, character sets and modes that change printing
//! follow. A character that a combining mark may still join is printed again at the very end,
//! followed by the bytes of an incomplete sequence. There are no queries among them, and
//! synchronized output, which would freeze the client, is left out.

mod paint;
mod pen;
mod state;

use crate::Screen;
use crate::grid::buffer::Buffer;
use crate::grid::cell::Cell;
use crate::grid::row::Row;
use crate::grid::scrollback::Names;
use crate::style::Style;
use paint::{PaintPiece, Painter};

impl Screen {
    /// Returns the whole terminal, with all of the scrollback.
    pub fn snapshot(&self) -> Vec<u8> {
        self.snapshot_with(usize::MAX)
    }

    /// Returns the whole terminal, with at most `scrollback_lines` lines of scrollback.
    pub fn snapshot_with(&self, scrollback_lines: usize) -> Vec<u8> {
        let mut painter = Painter::new(self);
        self.write_prologue(&mut painter.out);
        let normal = self.normal();
        if !self.alt {
            painter.save_alternate(&self.other.saved);
        }
        self.paint_normal(&mut painter, normal, scrollback_lines);
        self.write_stack(&mut painter.out, &self.keyboard.normal);
        if self.alt {
            // The state of the normal buffer while the alternate one is active.
            painter.tabs(&normal.tabs);
            painter.margins(normal);
            painter.save_cursor(normal);
            painter.move_to(normal.x.min(self.cols - 1), normal.y);
            painter.pen(Style::default());
            painter.out.extend_from_slice(b"\x1b[?1047h\x1b[H");
            painter.begin();
            if self.buf.rows[0].wrapped {
                painter.begin_wrapped();
            }
            paint_rows(&mut painter, &self.buf);
            self.write_stack(&mut painter.out, &self.keyboard.alternate);
        }
        painter.tabs(&self.buf.tabs);
        painter.margins(&self.buf);
        painter.save_cursor(&self.buf);
        self.write_titles(&mut painter.out);
        self.write_modes(&mut painter.out);
        self.write_cursor(&mut painter);
        let mut out = painter.out;
        self.parser.pending(&mut out);
        out
    }

    fn paint_normal(&self, painter: &mut Painter<'_>, buffer: &Buffer, scrollback: usize) {
        let lines = scrollback.min(buffer.scrollback.len());
        let mut packed = buffer.scrollback.last(lines).peekable();
        let first_row = buffer.rows.front().is_some_and(|row| row.wrapped);
        let wrapped = packed.peek().map_or(first_row, |line| line.wrapped());
        painter.save_scrolled_off(buffer, lines);
        if wrapped {
            painter.begin_wrapped();
        }
        let (mut now, mut next) = (Vec::new(), Vec::new());
        // Whether the previous line was written by `open_line`.
        let mut open = false;
        while let Some(line) = packed.next() {
            let continues = packed.peek().map_or(first_row, |line| line.wrapped());
            if line.wrapped() == open {
                let done = if continues {
                    packed.peek().is_some_and(|next| painter.open_line(line, *next, open))
                } else if open {
                    painter.close_line(line)
                } else {
                    painter.simple_line(line)
                };
                if done {
                    open = continues;
                    continue;
                }
            }
            line.pieces(&mut now);
            if open {
                painter.enter_open(now[0]);
                open = false;
            }
            if continues {
                match packed.peek() {
                    Some(line) => line.pieces(&mut next),
                    None => row_pieces(self, &buffer.rows[0], &mut next),
                }
            }
            painter.row(&now, continues.then_some(&next[..]));
        }
        if lines > 0 {
            paint_all_rows(painter, buffer);
        } else {
            paint_rows(painter, buffer);
        }
    }
}

fn row_pieces<'a>(screen: &'a Screen, row: &Row, out: &mut Vec<PaintPiece<'a>>) {
    let names = Names { styles: &screen.styles, clusters: &screen.clusters };
    paint::pieces(row, screen.cols, names, out);
    if screen.buf.x >= screen.cols && std::ptr::eq(row, &screen.buf.rows[screen.buf.y]) {
        // A wrap can only be pending after the last column was printed.
        paint::end_in_content(screen.cols, out);
    }
}

/// Paints all rows, so that the lines above scroll off the screen.
fn paint_all_rows(painter: &mut Painter<'_>, buffer: &Buffer) {
    paint(painter, buffer, buffer.rows.len());
}

/// Paints the rows down to the last one that is not blank.
fn paint_rows(painter: &mut Painter<'_>, buffer: &Buffer) {
    let blank = |row: &Row| row.cells().iter().all(|c| *c == Cell::NULL) && !row.wrapped;
    let count = buffer.rows.iter().rposition(|row| !blank(row)).map_or(0, |y| y + 1);
    paint(painter, buffer, count);
}

fn paint(painter: &mut Painter<'_>, buffer: &Buffer, count: usize) {
    let screen = painter.screen;
    let (mut now, mut next) = (Vec::new(), Vec::new());
    for y in 0..count {
        row_pieces(screen, &buffer.rows[y], &mut now);
        let continues = y + 1 < count && buffer.rows[y + 1].wrapped;
        if continues {
            row_pieces(screen, &buffer.rows[y + 1], &mut next);
        }
        if y + 1 == count {
            painter.last_row(&now);
        } else {
            painter.row(&now, continues.then_some(&next[..]));
        }
    }
}
