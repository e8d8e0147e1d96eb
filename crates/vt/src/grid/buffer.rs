//! The normal or alternate buffer: rows, cursor and margins.

use std::collections::VecDeque;

use super::cell::Cell;
use super::row::Row;
use super::scrollback::{Names, Scrollback};

/// The normal or the alternate screen buffer.
#[derive(Clone)]
pub(crate) struct Buffer {
    pub rows: VecDeque<Row>,
    pub scrollback: Scrollback,
    /// Column of the cursor; equal to the number of columns while a wrap is pending.
    pub x: usize,
    pub y: usize,
    pub margins: Margins,
    pub saved: Saved,
    pub tabs: Tabs,
    pub cols: usize,
    pub height: usize,
}

/// The scrolling region. All bounds are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Margins {
    pub top: usize,
    pub bottom: usize,
    pub left: usize,
    pub right: usize,
}

/// The cursor state that DECSC saves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Saved {
    pub x: usize,
    /// Counted from the oldest scrollback line, as in xterm.js.
    pub y: usize,
    pub fg: u32,
    pub bg: u32,
    /// The final byte of the active character set.
    pub charset: u8,
}

impl Default for Saved {
    fn default() -> Self {
        Saved { x: 0, y: 0, fg: 0, bg: 0, charset: b'B' }
    }
}

impl Buffer {
    /// Creates a buffer without rows; `fill` adds them.
    pub fn new(cols: usize, height: usize, scrollback: usize) -> Buffer {
        Buffer {
            rows: VecDeque::new(),
            scrollback: Scrollback::new(scrollback),
            x: 0,
            y: 0,
            margins: Margins::full(cols, height),
            saved: Saved::default(),
            tabs: Tabs::default(),
            cols,
            height,
        }
    }

    /// Adds the rows if the buffer has none.
    pub fn fill(&mut self, fill: Cell) {
        if self.rows.is_empty() {
            self.rows = (0..self.height).map(|_| Row::filled(fill, self.cols)).collect();
        }
    }

    /// Removes all rows and resets the state, except the saved cursor.
    pub fn clear(&mut self) {
        self.rows = VecDeque::new();
        self.scrollback.clear();
        self.x = 0;
        self.y = 0;
        self.margins = Margins::full(self.cols, self.height);
        self.tabs = Tabs::default();
    }

    /// Returns the number of lines above the screen.
    pub fn base(&self) -> usize {
        self.scrollback.len()
    }

    #[inline]
    pub fn row(&mut self) -> &mut Row {
        &mut self.rows[self.y]
    }

    pub fn full_width(&self) -> bool {
        self.margins.left == 0 && self.margins.right + 1 == self.cols
    }

    /// Scrolls the region up by one line. A line that leaves the top of the screen goes to the
    /// scrollback.
    pub fn scroll(&mut self, fill: Cell, wrapped: bool, names: Names<'_>) {
        let Margins { top, bottom, .. } = self.margins;
        if !self.full_width() {
            return self.scroll_up(top, 1, fill);
        }
        let mut row = if top == 0 {
            let Some(row) = self.rows.pop_front() else { return };
            self.scrollback.push(&row, names);
            row
        } else {
            let Some(row) = self.rows.remove(top) else { return };
            row
        };
        row.fill(fill, self.cols);
        row.wrapped = wrapped;
        if bottom + 1 == self.height {
            self.rows.push_back(row);
        } else {
            self.rows.insert(bottom, row);
        }
    }

    /// Removes `n` lines at `top` and adds `n` blank lines at the bottom of the region.
    pub fn scroll_up(&mut self, top: usize, n: usize, fill: Cell) {
        let Margins { bottom, left, right, .. } = self.margins;
        let n = n.min(bottom + 1 - top);
        if self.full_width() {
            for _ in 0..n {
                let Some(mut row) = self.rows.remove(top) else { return };
                row.fill(fill, self.cols);
                self.rows.insert(bottom, row);
            }
            return;
        }
        for y in top..=bottom {
            self.copy_span(y, (y + n <= bottom).then_some(y + n), left, right, fill);
        }
    }

    /// Removes `n` lines at the bottom of the region and adds `n` blank lines at `top`.
    pub fn scroll_down(&mut self, top: usize, n: usize, fill: Cell) {
        let Margins { bottom, left, right, .. } = self.margins;
        let n = n.min(bottom + 1 - top);
        if self.full_width() {
            for _ in 0..n {
                let Some(mut row) = self.rows.remove(bottom) else { return };
                row.fill(fill, self.cols);
                self.rows.insert(top, row);
            }
            return;
        }
        for y in (top..=bottom).rev() {
            let from = (y >= top + n).then(|| y - n);
            self.copy_span(y, from, left, right, fill);
        }
    }

    /// Copies columns `left..=right` of row `from` to row `to`, or blanks them.
    fn copy_span(&mut self, to: usize, from: Option<usize>, left: usize, right: usize, fill: Cell) {
        let cells: Vec<Cell> = match from {
            Some(from) => (left..=right).map(|col| self.rows[from].get(col)).collect(),
            None => vec![fill; right + 1 - left],
        };
        let row = &mut self.rows[to];
        // A margin that splits a wide character also blanks its other half.
        if left > 0 && row.width(left - 1) == 2 {
            row.set(left - 1, Cell::NULL);
        }
        if row.width(right) == 2 && right + 1 < self.cols {
            row.set(right + 1, Cell::NULL);
        }
        row.copy_from(&cells, 0, left, cells.len());
        if row.get(left).is_spacer() {
            row.set(left, Cell::NULL);
        }
        if row.width(right) == 2 {
            row.set(right, Cell::NULL);
        }
        row.trim();
    }

    pub fn heap(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.rows.iter().map(Row::heap).sum::<usize>()
            + self.scrollback.heap()
            + self.tabs.custom.as_ref().map_or(0, Vec::capacity)
    }
}

impl Margins {
    pub fn full(cols: usize, rows: usize) -> Margins {
        Margins { top: 0, bottom: rows - 1, left: 0, right: cols - 1 }
    }
}

const TAB_WIDTH: usize = 8;

/// The tab stops: every eighth column until a program changes them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tabs {
    custom: Option<Vec<bool>>,
}

impl Tabs {
    pub fn is_default(&self) -> bool {
        self.custom.is_none()
    }

    pub fn at(&self, col: usize) -> bool {
        match &self.custom {
            None => col.is_multiple_of(TAB_WIDTH),
            Some(stops) => stops.get(col).copied().unwrap_or(false),
        }
    }

    pub fn with(custom: Option<Vec<bool>>) -> Tabs {
        Tabs { custom }
    }

    pub fn custom(&self) -> Option<&[bool]> {
        self.custom.as_deref()
    }

    fn custom_mut(&mut self, cols: usize) -> &mut Vec<bool> {
        let stops = self
            .custom
            .get_or_insert_with(|| (0..cols).map(|col| col.is_multiple_of(TAB_WIDTH)).collect());
        if stops.len() < cols {
            stops.resize(cols, false);
        }
        stops
    }

    pub fn set(&mut self, col: usize, cols: usize) {
        if !self.at(col) && col < cols {
            self.custom_mut(cols)[col] = true;
            self.drop_default(cols);
        }
    }

    pub fn unset(&mut self, col: usize, cols: usize) {
        if self.at(col) && col < cols {
            self.custom_mut(cols)[col] = false;
            self.drop_default(cols);
        }
    }

    pub fn unset_all(&mut self, cols: usize) {
        self.custom_mut(cols).fill(false);
    }

    /// Drops the list if it equals the default stops.
    fn drop_default(&mut self, cols: usize) {
        if (0..cols).all(|col| self.at(col) == col.is_multiple_of(TAB_WIDTH)) {
            self.custom = None;
        }
    }

    pub fn next(&self, mut x: usize, cols: usize) -> usize {
        loop {
            x += 1;
            if x >= cols {
                return cols - 1;
            }
            if self.at(x) {
                return x;
            }
        }
    }

    pub fn previous(&self, mut x: usize, cols: usize) -> usize {
        while x > 0 {
            x -= 1;
            if self.at(x) {
                break;
            }
        }
        x.min(cols - 1)
    }

    /// Adds a stop at every eighth column after the last one if the screen became wider.
    pub fn resize(&mut self, cols: usize) {
        if self.custom.is_none() || self.at(cols) {
            return;
        }
        let mut at = self.previous(cols, cols);
        let stops = self.custom_mut(cols);
        while at < cols {
            stops[at] = true;
            at += TAB_WIDTH;
        }
        self.drop_default(cols);
    }
}
