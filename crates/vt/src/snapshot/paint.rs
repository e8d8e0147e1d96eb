//! Rows as escape sequences, as short as possible.

use crate::Screen;
use crate::grid::buffer::{Buffer, Saved, Tabs};
use crate::grid::cell::{Cell, Glyph};
use crate::grid::row::Row;
use crate::grid::scrollback::{Line, Names, Packed};
use crate::style::*;
use crate::width::width;

use super::pen::sgr_change;

/// One cell, or a wide character with its spacer, ready to be written.
#[derive(Clone, Copy)]
pub(super) struct PaintPiece<'a> {
    style: Style,
    content: PieceContent<'a>,
    /// Columns that the terminal advances; 0 for a combining mark without a base character.
    width: u8,
    /// Number of cells it covers.
    span: u8,
}

#[derive(Clone, Copy)]
enum PieceContent<'a> {
    Blank,
    Char(u32),
    Text(&'a str),
}

impl PaintPiece<'_> {
    const BLANK: Self =
        PaintPiece { style: Style::PLAIN, content: PieceContent::Blank, width: 1, span: 1 };

    /// Replaces a wide character without its second half, which cannot be printed.
    fn printable(self) -> Self {
        if self.width != 2 || self.span == 2 {
            return self;
        }
        let first = match self.content {
            PieceContent::Blank => return PaintPiece { width: 1, ..self },
            PieceContent::Char(code) => code,
            PieceContent::Text(text) => text.chars().next().map_or(0, |c| c as u32),
        };
        match width(first) {
            2 => PaintPiece { content: PieceContent::Blank, width: 1, ..self },
            own => PaintPiece { width: own, ..self },
        }
    }

    fn is_blank(&self) -> bool {
        matches!(self.content, PieceContent::Blank)
    }
}

/// Breaks a row into pieces.
pub(super) fn pieces<'a>(row: &Row, cols: usize, names: Names<'a>, out: &mut Vec<PaintPiece<'a>>) {
    out.clear();
    let cells = &row.cells()[..row.cells().len().min(cols)];
    let mut at = 0;
    while let Some(&cell) = cells.get(at) {
        let pair = cell.width() == 2
            && cells
                .get(at + 1)
                .is_some_and(|next: &Cell| next.is_spacer() && next.style == cell.style);
        let content = match cell.glyph() {
            Glyph::None => PieceContent::Blank,
            Glyph::Char(code) => PieceContent::Char(code),
            Glyph::Cluster(number) => PieceContent::Text(names.clusters.get(number)),
        };
        let span = if pair { 2 } else { 1 };
        let style = names.styles.get(cell.style);
        out.push(PaintPiece { style, content, width: cell.width(), span }.printable());
        at += usize::from(span);
    }
    trim(out);
}

/// Removes trailing blanks: cells beyond the last piece are blank anyway.
fn trim(out: &mut Vec<PaintPiece<'_>>) {
    while out.last().is_some_and(|last| last.is_blank() && last.style == Style::PLAIN) {
        out.pop();
    }
}

/// Replaces a blank last column by a space, unless the whole row is blank in one style: that row
/// can be erased with the cursor past its end.
pub(super) fn end_in_content(cols: usize, out: &mut Vec<PaintPiece<'_>>) {
    let reach: usize = out.iter().map(|piece| usize::from(piece.span)).sum();
    if let Some(last) = out.last_mut().filter(|last| reach == cols && last.style.is_odd()) {
        // The last column is printed again later, when an odd pen can no longer be set.
        last.style.set_underline_style(1);
    }
    let plain = out.iter().all(|p| p.is_blank() && p.style == out[0].style);
    if plain && (reach == cols || out.iter().all(|p| p.style == Style::PLAIN)) {
        return;
    }
    out.extend(std::iter::repeat_n(PaintPiece::BLANK, cols - reach));
    if let Some(last) = out.last_mut().filter(|last| last.is_blank()) {
        *last = PaintPiece { content: PieceContent::Char(0x20), width: 1, ..*last };
    }
}

impl<'a> Line<'a> {
    /// Breaks a packed line into pieces.
    pub(super) fn pieces(self, out: &mut Vec<PaintPiece<'a>>) {
        out.clear();
        self.visit(|style, packed, span| {
            let piece = match packed {
                Packed::Blank | Packed::Half => PaintPiece { style, ..PaintPiece::BLANK },
                Packed::Char { code, width } => {
                    PaintPiece { style, content: PieceContent::Char(code), width, span }
                }
                Packed::Cluster { text, width } => {
                    PaintPiece { style, content: PieceContent::Text(text), width, span }
                }
            };
            // The second half of a cluster is packed separately.
            if matches!(packed, Packed::Half)
                && let Some(last) = out.last_mut()
                && last.width == 2
                && last.span == 1
                && last.style == style
            {
                last.span = 2;
                return;
            }
            out.push(piece);
        });
        for piece in out.iter_mut() {
            *piece = piece.printable();
        }
        trim(out);
    }
}

/// An ideographic space: a blank of two columns.
const WIDE: &[u8] = "\u{3000}".as_bytes();

/// How the cursor moves from a row to the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowEnd {
    Wrap,
    NewLine,
}

/// Writes rows and tracks the state of the terminal that reads them.
pub(super) struct Painter<'a> {
    pub screen: &'a Screen,
    pub out: Vec<u8>,
    pen: Style,
    x: usize,
    y: usize,
    /// The style of the unwritten cells of this row.
    fill: Style,
    /// Columns that were written only for a side effect and still need their content.
    dirty: Vec<usize>,
    /// The saved cursor was overwritten to set an odd pen, and has to be saved again.
    overwrote_saved: bool,
    /// The saved cursor of this buffer is already set.
    saved_early: bool,
}

impl<'a> Painter<'a> {
    pub fn new(screen: &'a Screen) -> Painter<'a> {
        Painter {
            screen,
            out: Vec::with_capacity(screen.normal().scrollback.bytes() * 2 + 4096),
            pen: Style::default(),
            x: 0,
            y: 0,
            fill: Style::PLAIN,
            dirty: Vec::new(),
            overwrote_saved: false,
            saved_early: false,
        }
    }

    /// Starts on a blank screen with the cursor at home.
    pub fn begin(&mut self) {
        (self.x, self.y) = (0, 0);
        self.fill = Style::PLAIN;
        self.dirty.clear();
    }

    /// Starts with a first row that continues a dropped line: wraps into it and scrolls it to the
    /// top.
    pub fn begin_wrapped(&mut self) {
        if self.screen.rows < 2 {
            return;
        }
        self.pen(Style::PLAIN);
        self.go(self.screen.cols - 1);
        self.out.extend_from_slice(b"  \x1b[S\x1b[H");
        self.begin();
        self.dirty.push(0);
    }

    pub fn number(&mut self, number: u32) {
        push_number(&mut self.out, number as usize);
    }

    fn sequence(&mut self, number: usize, last: u8) {
        self.out.extend_from_slice(b"\x1b[");
        if number > 1 {
            push_number(&mut self.out, number);
        }
        self.out.push(last);
    }

    /// Moves the cursor to any position while neither margins nor origin mode are set.
    pub fn move_to(&mut self, x: usize, y: usize) {
        self.out.extend_from_slice(b"\x1b[");
        if (x, y) != (0, 0) {
            self.number(y as u32 + 1);
            self.out.push(b';');
            self.number(x as u32 + 1);
        }
        self.out.push(b'H');
        (self.x, self.y) = (x, y);
    }

    /// Writes a line of ASCII that neither continues nor is continued. Returns `false`, without
    /// output, for any other line.
    pub fn simple_line(&mut self, line: Line<'_>) -> bool {
        if let Some(text) = line.plain() {
            self.plain_line(text);
            return true;
        }
        let (start, pen, overwrote_saved) = (self.out.len(), self.pen, self.overwrote_saved);
        let simple = line.ascii_runs(|style, text, ahead| {
            if self.pen != *style {
                self.change_pen(*style);
            }
            match ahead {
                // A copy of constant size is one instruction; the excess is truncated.
                Some(ahead) if text.len() <= ahead.len() => {
                    let end = self.out.len() + text.len();
                    self.out.extend_from_slice(ahead);
                    self.out.truncate(end);
                }
                Some(_) | None => self.out.extend_from_slice(text),
            }
        });
        if simple {
            self.new_line();
        } else {
            self.out.truncate(start);
            (self.pen, self.overwrote_saved) = (pen, overwrote_saved);
        }
        simple
    }

    /// Writes plain text that fills its row, so that the first character of the next row, also
    /// plain text, wraps automatically. Returns `false`, without output, for any other line.
    pub fn open_line(&mut self, line: Line<'_>, next: Line<'_>, entering: bool) -> bool {
        let fills = |text: &[u8]| text.len() == self.screen.cols && !text.contains(&0);
        let continues = |text: &[u8]| text.first().is_some_and(|byte| *byte != 0);
        let Some(text) = line.plain().filter(|text| fills(text)) else { return false };
        if self.screen.rows < 2 || !next.plain().is_some_and(continues) {
            return false;
        }
        self.pen(Style::PLAIN);
        if entering {
            self.enter_row(0);
        }
        self.out.extend_from_slice(text);
        self.x = self.screen.cols;
        true
    }

    /// Writes the last row of a line that `open_line` started. Returns whether it is plain text.
    pub fn close_line(&mut self, line: Line<'_>) -> bool {
        let Some(text) = line.plain() else { return false };
        self.pen(Style::PLAIN);
        self.enter_row(0);
        self.plain_line(text);
        true
    }

    /// Continues a line that `open_line` started with a row that is not plain text.
    pub fn enter_open(&mut self, first: PaintPiece<'_>) {
        self.pen(first.style);
        self.print(&first);
        self.enter_row(usize::from(first.span));
    }

    fn plain_line(&mut self, text: &[u8]) {
        if text.contains(&0) {
            let mut at = 0;
            while at < text.len() {
                let blank = text[at] == 0;
                let end = text[at..]
                    .iter()
                    .position(|b| (*b == 0) != blank)
                    .map_or(text.len(), |n| at + n);
                if blank {
                    self.sequence(end - at, b'C');
                } else {
                    self.pen(Style::PLAIN);
                    self.out.extend_from_slice(&text[at..end]);
                }
                at = end;
            }
        } else if !text.is_empty() {
            self.pen(Style::PLAIN);
            self.out.extend_from_slice(text);
        }
        self.new_line();
    }

    /// Writes a row and moves to the next one, by wrapping if that one continues it.
    pub fn row(&mut self, row: &[PaintPiece<'_>], next: Option<&[PaintPiece<'_>]>) {
        match next {
            Some(next) if self.screen.rows > 1 => {
                self.paint(row, RowEnd::Wrap);
                self.wrap(row, next.first().copied().unwrap_or(PaintPiece::BLANK));
            }
            Some(_) | None => {
                self.paint(row, RowEnd::NewLine);
                self.new_line();
            }
        }
    }

    pub fn last_row(&mut self, row: &[PaintPiece<'_>]) {
        self.paint(row, RowEnd::NewLine);
    }

    fn new_line(&mut self) {
        if self.pen.bg & COLOR != 0 {
            self.pen(Style::PLAIN);
        }
        self.out.extend_from_slice(b"\r\n");
        self.x = 0;
        self.y = (self.y + 1).min(self.screen.rows - 1);
        self.fill = Style::PLAIN;
        self.dirty.clear();
    }

    /// Returns the number of columns that the pieces cover.
    fn reach(row: &[PaintPiece<'_>]) -> usize {
        row.iter().map(|piece| usize::from(piece.span)).sum()
    }

    /// Wraps into the next row, so that it continues this one.
    fn wrap(&mut self, row: &[PaintPiece<'_>], first: PaintPiece<'_>) {
        let cols = self.screen.cols;
        let last = match row.last() {
            Some(piece) if Self::reach(row) == cols => *piece,
            _ => PaintPiece::BLANK,
        };
        let pending = self.x == cols && !last.is_blank();
        let odd = first.style.is_odd();
        if !first.is_blank() && first.width > 0 && !odd && (pending || wrapped_early(&last, &first))
        {
            // Printing the first character wraps automatically.
            if !pending {
                self.go(cols - 1);
            }
            self.pen(first.style);
            self.print(&first);
            self.enter_row(usize::from(first.span));
            return;
        }
        if last.is_blank() && !last.style.is_erased() {
            // A wide character that did not fit left this blank; another one does the same.
            self.go(cols - 1);
            self.pen(last.style);
            self.out.extend_from_slice(WIDE);
            self.enter_row(2);
            self.go(0);
            self.dirty.extend([0, 1]);
            return;
        }
        self.pen(Style::PLAIN);
        if !pending {
            self.go(cols - 1);
            self.out.push(b' ');
        }
        self.out.push(b' ');
        self.enter_row(1);
        if !pending {
            // Erases the cell that was printed only to reach the end.
            self.out.extend_from_slice(b"\x1b[A");
            self.go(cols - 1);
            if last.style.is_erased() {
                self.pen(last.style);
            }
            self.out.extend_from_slice(b"\x1b[X\x1b[B");
        }
        self.go(0);
        self.dirty.push(0);
    }

    fn enter_row(&mut self, x: usize) {
        self.fill = Style::PLAIN;
        if self.y + 1 == self.screen.rows && self.pen.bg & COLOR != 0 {
            // The row scrolled in at the bottom, in the background color of the pen.
            self.fill = self.pen.erase();
        }
        self.x = x;
        self.y = (self.y + 1).min(self.screen.rows - 1);
        self.dirty.clear();
    }

    fn paint(&mut self, row: &[PaintPiece<'_>], row_end: RowEnd) {
        let cols = self.screen.cols;
        let entered = self.x;
        self.styled_blanks(row, row_end);
        let mut col = 0;
        let mut i = 0;
        while i < row.len() {
            let piece = row[i];
            let span = usize::from(piece.span);
            // The character that wrapped into this row is already printed.
            let clean = || self.dirty.iter().all(|col| *col >= span);
            if col == 0 && span <= entered && !piece.is_blank() && clean() {
                col += span;
                i += 1;
                continue;
            }
            if !piece.is_blank() {
                self.go(col);
                self.pen(piece.style);
                if piece.width == 0 {
                    // A control sequence before the mark keeps it from joining the previous
                    // character.
                    self.sequence(col + 1, b'G');
                }
                self.print(&piece);
                self.x = (col + usize::from(piece.width.max(1))).min(cols);
                col += span;
                i += 1;
                continue;
            }
            let count = blank_run(&row[i..]);
            if piece.style.is_erased() {
                self.blanks(col, count, piece.style);
            }
            col += count;
            i += count;
        }
        if col < cols {
            self.blanks(col, cols - col, Style::PLAIN);
        }
    }

    /// Erases cells in the given style, unless they already are.
    fn blanks(&mut self, col: usize, count: usize, style: Style) {
        if style != self.fill {
            return self.erase(col, count, style);
        }
        for i in 0..self.dirty.len() {
            if (col..col + count).contains(&self.dirty[i]) {
                self.erase(self.dirty[i], 1, style);
            }
        }
    }

    /// Writes blanks in styles that no erase produces: halves of wide characters that were
    /// overwritten. They are reproduced the same way, before the rest of the row.
    fn styled_blanks(&mut self, row: &[PaintPiece<'_>], row_end: RowEnd) {
        let cols = self.screen.cols;
        let mut runs = Vec::new();
        let (mut col, mut i) = (0, 0);
        while i < row.len() {
            let piece = row[i];
            let styled = piece.is_blank() && !piece.style.is_erased();
            let count = if styled { blank_run(&row[i..]) } else { 1 };
            let width = if styled { count } else { usize::from(piece.span) };
            if styled {
                // Wrapping a wide character produces the last one.
                let from_wrap = col + width == cols && row_end == RowEnd::Wrap;
                runs.push((col, col + width - usize::from(from_wrap), piece.style));
            }
            col += width;
            i += count;
        }
        // From the right, because each one overwrites the cell to its left.
        for (col, end, style) in runs.into_iter().rev() {
            self.styled_run(col, end, style);
        }
    }

    fn styled_run(&mut self, col: usize, end: usize, style: Style) {
        if col > 0 {
            // Overwriting the first half blanks the second half.
            for at in (col..end).rev() {
                self.go(at - 1);
                self.out.extend_from_slice(WIDE);
                self.x = at + 1;
                self.go(at - 1);
                self.pen(style);
                self.out.push(b' ');
                self.x = at;
            }
            self.dirty.push(col - 1);
        } else if end < self.screen.cols {
            // At the start of the row the second half is overwritten instead.
            for at in 0..end {
                self.go(at);
                self.pen(style);
                self.out.extend_from_slice(WIDE);
                self.x = at + 2;
            }
            self.go(end);
            self.out.push(b' ');
            self.x = end + 1;
            self.dirty.push(end);
        }
    }

    fn erase(&mut self, col: usize, count: usize, style: Style) {
        self.go(col);
        self.pen(style);
        // From the first column EL would also clear the wrapped flag.
        if col + count == self.screen.cols && count > 1 && col > 0 {
            self.sequence(0, b'K');
        } else {
            self.sequence(count, b'X');
        }
    }

    fn go(&mut self, col: usize) {
        if self.x == col {
            return;
        }
        if col == 0 {
            self.out.push(b'\r');
        } else if col > self.x && self.x < self.screen.cols {
            self.sequence(col - self.x, b'C');
        } else {
            self.sequence(col + 1, b'G');
        }
        self.x = col;
    }

    fn print(&mut self, piece: &PaintPiece<'_>) {
        match piece.content {
            PieceContent::Blank => {}
            PieceContent::Char(code) => push_char(&mut self.out, code),
            // Combining marks do not join a mark without a base character.
            PieceContent::Text(text) if piece.width == 0 => {
                let first = text.chars().next().map_or(0, |c| c as u32);
                push_char(&mut self.out, first);
            }
            PieceContent::Text(text) => self.out.extend_from_slice(text.as_bytes()),
        }
    }

    /// Sets the terminal's pen to a style.
    #[inline]
    pub fn pen(&mut self, to: Style) {
        if self.pen != to {
            self.change_pen(to);
        }
    }

    fn change_pen(&mut self, to: Style) {
        let from = self.pen;
        if from.link != to.link {
            self.link(to.link);
        }
        let mut have = from;
        have.link = to.link;
        if (have.fg, have.bg & !PROTECTED & !EXTENDED, have.ext)
            != (to.fg, to.bg & !PROTECTED & !EXTENDED, to.ext)
            || (to.is_odd() && (from.bg ^ to.bg) & EXTENDED != 0)
        {
            self.overwrote_saved |= sgr_change(&mut self.out, &mut have, &to);
        }
        if have.bg & PROTECTED != to.bg & PROTECTED {
            let on = if to.bg & PROTECTED != 0 { b'1' } else { b'0' };
            self.out.extend_from_slice(&[0x1b, b'[', on, b'"', b'q']);
        }
        self.pen = to;
    }

    fn link(&mut self, number: u32) {
        self.out.extend_from_slice(b"\x1b]8;");
        if let Some(link) = self.screen.links.get(number) {
            if let Some(id) = &link.id {
                self.out.extend_from_slice(b"id=");
                self.out.extend_from_slice(id.as_bytes());
            }
            self.out.push(b';');
            self.out.extend_from_slice(link.uri.as_bytes());
        } else {
            self.out.push(b';');
        }
        self.out.extend_from_slice(b"\x1b\\");
    }

    pub fn tabs(&mut self, tabs: &Tabs) {
        if tabs.is_default() {
            return;
        }
        self.out.extend_from_slice(b"\x1b[3g");
        for col in (0..self.screen.cols).filter(|col| tabs.at(*col)) {
            self.sequence(col + 1, b'G');
            self.out.extend_from_slice(b"\x1bH");
        }
        self.x = usize::MAX;
    }

    pub fn margins(&mut self, buffer: &Buffer) {
        let margins = buffer.margins;
        let screen = self.screen;
        if screen.modes.margins && std::ptr::eq(buffer, &screen.buf) {
            self.out.extend_from_slice(b"\x1b[?69h");
            if !buffer.full_width() {
                self.out.extend_from_slice(b"\x1b[");
                self.number(margins.left as u32 + 1);
                self.out.push(b';');
                self.number(margins.right as u32 + 1);
                self.out.push(b's');
            }
        }
        if (margins.top, margins.bottom) != (0, screen.rows - 1) {
            self.out.extend_from_slice(b"\x1b[");
            self.number(margins.top as u32 + 1);
            self.out.push(b';');
            self.number(margins.bottom as u32 + 1);
            self.out.push(b'r');
        }
        self.x = usize::MAX;
    }

    /// Restores the saved cursor of a buffer, if it is on the screen.
    pub fn save_cursor(&mut self, buffer: &Buffer) {
        let saved = buffer.saved;
        let set = std::mem::take(&mut self.saved_early) || saved == Default::default();
        if set && !self.overwrote_saved {
            return;
        }
        let y = saved.y.saturating_sub(buffer.base()).min(self.screen.rows - 1);
        self.save(saved, y);
    }

    /// Restores the saved cursor of the inactive alternate buffer by switching to it and back.
    pub fn save_alternate(&mut self, saved: &Saved) {
        if *saved == Default::default() {
            return;
        }
        self.out.extend_from_slice(b"\x1b[?1047h");
        self.save(*saved, saved.y.min(self.screen.rows - 1));
        self.pen(Style::default());
        self.out.extend_from_slice(b"\x1b[?1047l\x1b[H");
        self.begin();
    }

    /// Restores a saved cursor that scrolled off the screen. Its row is counted from the oldest
    /// line, so it is saved on that line before anything else is printed.
    pub fn save_scrolled_off(&mut self, buffer: &Buffer, lines: usize) {
        let saved = buffer.saved;
        let rows = self.screen.rows;
        let line = (saved.y + lines).saturating_sub(buffer.base());
        if saved == Default::default() || (lines..lines + rows).contains(&line) {
            return;
        }
        if self.any_odd(buffer) {
            // The saved cursor will be overwritten and can only be restored at the end.
            return;
        }
        let below = line.min(MAX_SAVED_LINE).saturating_sub(rows - 1);
        if below > 0 {
            self.move_to(0, rows - 1);
            self.out.extend(std::iter::repeat_n(b'\n', below));
        }
        self.save(saved, line.min(rows - 1));
        self.pen(Style::default());
        if below > 0 {
            self.out.extend_from_slice(b"\x1b[3J");
        }
        self.out.extend_from_slice(b"\x1b[H");
        self.begin();
        self.saved_early = true;
    }

    fn any_odd(&self, buffer: &Buffer) -> bool {
        let styles = &self.screen.styles;
        let mut cells = buffer.rows.iter().flat_map(|row| row.cells());
        buffer.scrollback.any_odd()
            || (styles.any_odd() && cells.any(|cell| styles.get(cell.style).is_odd()))
    }

    fn save(&mut self, saved: Saved, y: usize) {
        self.move_to(saved.x.min(self.screen.cols - 1), y);
        let mut pen = Style { fg: saved.fg, bg: saved.bg, ..Style::default() };
        // A pen that is extended but not underlined has a link.
        let linked = pen.bg & EXTENDED != 0 && pen.fg & UNDERLINE == 0;
        if pen.fg & UNDERLINE != 0 {
            pen.set_underline_style(1);
        } else {
            pen.bg &= !EXTENDED;
        }
        self.pen(pen);
        if linked {
            self.out.extend_from_slice(b"\x1b]8;;x\x1b\\");
        }
        if saved.charset != b'B' {
            self.out.extend_from_slice(&[0x1b, b'(', saved.charset]);
        }
        self.out.extend_from_slice(b"\x1b7");
        self.overwrote_saved = false;
        if linked {
            self.out.extend_from_slice(b"\x1b]8;;\x1b\\");
        }
        if saved.charset != b'B' {
            self.out.extend_from_slice(b"\x1b(B");
        }
    }

    /// DECRC: restores cursor, pen and character set.
    pub fn restored(&mut self, saved: &Saved) {
        self.pen(Style::default());
        self.out.extend_from_slice(b"\x1b8");
        self.pen = Style { fg: saved.fg, bg: saved.bg, ..self.pen };
    }
}

/// A saved cursor on a later line is restored on this line.
const MAX_SAVED_LINE: usize = 20_000;

/// Returns how many leading pieces are blanks of one style.
fn blank_run(row: &[PaintPiece<'_>]) -> usize {
    row.iter().take_while(|piece| piece.is_blank() && piece.style == row[0].style).count()
}

/// Whether a blank at the end of a row is there because the next wide character did not fit.
fn wrapped_early(last: &PaintPiece<'_>, first: &PaintPiece<'_>) -> bool {
    last.is_blank() && first.width == 2 && !first.is_blank() && last.style == first.style
}

pub(super) fn push_char(out: &mut Vec<u8>, code: u32) {
    if code < 0x80 {
        out.push(code as u8);
    } else if let Some(c) = char::from_u32(code) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

pub(super) fn push_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
