//! A row: cells up to the last one ever touched; what lies beyond is blank.

use super::cell::{Cell, Glyph};
use crate::compact::INTERNED;
use crate::style::PROTECTED;
use crate::style_table::Styles;

/// A line of cells, and whether it continues the line above.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    cells: Vec<Cell>,
    pub wrapped: bool,
}

/// Which cells an erase may touch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spare {
    None,
    /// Those written under DECSCA or SPA stay.
    Protected,
}

impl Row {
    pub fn filled(fill: Cell, cols: usize) -> Row {
        let mut row = Row::default();
        row.fill(fill, cols);
        row
    }

    pub fn from_cells(cells: Vec<Cell>, wrapped: bool) -> Row {
        Row { cells, wrapped }
    }

    /// The cells that were touched; fewer than the columns, as a rule.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    #[inline]
    pub fn get(&self, col: usize) -> Cell {
        self.cells.get(col).copied().unwrap_or(Cell::NULL)
    }

    #[inline]
    pub fn width(&self, col: usize) -> u8 {
        self.get(col).width()
    }

    #[inline]
    pub fn set(&mut self, col: usize, cell: Cell) {
        if col < self.cells.len() {
            self.cells[col] = cell;
        } else {
            self.grow(col);
            self.cells.push(cell);
        }
    }

    /// Writes printable ASCII from `col` on.
    #[inline]
    pub fn set_ascii(&mut self, col: usize, text: &[u8], style: u32) {
        if self.cells.len() < col {
            self.grow(col);
        }
        let over = (self.cells.len() - col).min(text.len());
        for (cell, byte) in self.cells[col..col + over].iter_mut().zip(text) {
            *cell = Cell::new(u32::from(*byte), 1, style);
        }
        self.cells.extend(text[over..].iter().map(|b| Cell::new(u32::from(*b), 1, style)));
    }

    fn grow(&mut self, len: usize) {
        if self.cells.len() < len {
            self.cells.resize(len, Cell::NULL);
        }
    }

    /// Makes the whole row `fill`, reusing its memory.
    pub fn fill(&mut self, fill: Cell, cols: usize) {
        self.cells.clear();
        if fill != Cell::NULL {
            self.cells.resize(cols, fill);
        }
        self.wrapped = false;
    }

    pub fn truncate(&mut self, cols: usize) {
        self.cells.truncate(cols);
    }

    /// Forgets trailing cells that say nothing.
    pub fn trim(&mut self) {
        while self.cells.last() == Some(&Cell::NULL) {
            self.cells.pop();
        }
    }

    /// Shifts `pos..end` right by `n`, as ICH does, with the care wide characters need.
    pub fn insert(&mut self, pos: usize, n: usize, end: usize, fill: Cell) {
        self.grow(end);
        if pos > 0 && self.width(pos - 1) == 2 {
            self.set(pos - 1, Cell::null(fill.style));
        }
        let n = n.min(end - pos);
        self.cells.copy_within(pos..end - n, pos + n);
        self.cells[pos..pos + n].fill(fill);
        if self.width(end - 1) == 2 {
            self.set(end - 1, Cell::null(fill.style));
        }
    }

    /// Shifts what follows `pos + n` left, as DCH does.
    pub fn delete(&mut self, pos: usize, n: usize, end: usize, fill: Cell) {
        self.grow(end);
        let n = n.min(end - pos);
        self.cells.copy_within(pos + n..end, pos);
        self.cells[end - n..end].fill(fill);
        if pos > 0 && self.width(pos - 1) == 2 {
            self.set(pos - 1, Cell::null(fill.style));
        }
        if self.get(pos).is_spacer() {
            self.set(pos, Cell::null(fill.style));
        }
        if fill == Cell::NULL {
            self.trim();
        }
    }

    /// Erases `start..end`, with the care wide characters at the edges need.
    pub fn erase(&mut self, start: usize, end: usize, cols: usize, fill: Cell) {
        if start > 0 && self.width(start - 1) == 2 {
            self.set(start - 1, Cell::null(fill.style));
        }
        if end < cols && end > 0 && self.width(end - 1) == 2 {
            self.set(end, Cell::null(fill.style));
        }
        self.put(start, end.min(cols), cols, fill);
    }

    fn put(&mut self, start: usize, end: usize, cols: usize, fill: Cell) {
        if start >= end {
            return;
        }
        if fill == Cell::NULL && end >= self.cells.len().min(cols) {
            // Cells beyond the columns survive in the alternate screen until it grows again.
            if self.cells.len() <= cols {
                self.cells.truncate(start);
                return;
            }
        }
        self.grow(end);
        self.cells[start..end].fill(fill);
    }

    /// Erases what DECSCA does not protect.
    pub fn erase_unprotected(
        &mut self,
        start: usize,
        end: usize,
        cols: usize,
        fill: Cell,
        styles: &Styles,
    ) {
        let protected = |cell: Cell| styles.get(cell.style).bg & PROTECTED != 0;
        if start > 0 && self.width(start - 1) == 2 && !protected(self.get(start - 1)) {
            self.set(start - 1, Cell::null(fill.style));
        }
        if end < cols && end > 0 && self.width(end - 1) == 2 && !protected(self.get(end)) {
            self.set(end, Cell::null(fill.style));
        }
        for col in start..end.min(cols) {
            if !protected(self.get(col)) {
                self.set(col, fill);
            }
        }
        if fill == Cell::NULL {
            self.trim();
        }
    }

    /// Columns up to the last character.
    pub fn trimmed_len(&self) -> usize {
        match self.cells.iter().rposition(|cell| cell.has_content()) {
            Some(col) => col + self.cells[col].width() as usize,
            None => 0,
        }
    }

    /// Copies cells between rows, as the reflow does.
    pub fn copy_from(&mut self, from: &[Cell], from_col: usize, to_col: usize, count: usize) {
        for i in 0..count {
            let cell = from.get(from_col + i).copied().unwrap_or(Cell::NULL);
            self.set(to_col + i, cell);
        }
    }

    /// Marks the styles of the table and the clusters this row uses.
    pub fn mark(&self, styles: &mut [bool], clusters: &mut [bool]) {
        for cell in &self.cells {
            if let Some(mark) = styles.get_mut((cell.style ^ INTERNED) as usize) {
                *mark = true;
            }
            if let Glyph::Cluster(number) = cell.glyph()
                && let Some(mark) = clusters.get_mut(number as usize)
            {
                *mark = true;
            }
        }
    }

    pub fn heap(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }
}
