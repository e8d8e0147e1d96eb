//! A row: the cells up to the last one that was written; all cells beyond are blank.

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
    /// Cells that DECSCA protects are not erased.
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

    /// Returns the written cells, usually fewer than the columns.
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

    /// Writes printable ASCII starting at `col`.
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

    /// Fills the whole row, reusing its memory.
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

    /// Removes trailing cells that are blank.
    pub fn trim(&mut self) {
        while self.cells.last() == Some(&Cell::NULL) {
            self.cells.pop();
        }
    }

    /// Shifts `pos..end` right by `n` (ICH). Blanks wide characters that are split.
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

    /// Shifts `pos + n..end` left by `n` (DCH). Blanks wide characters that are split.
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

    /// Erases `start..end` and the other halves of wide characters at its edges.
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
            // The alternate screen keeps cells beyond the last column until it grows again.
            if self.cells.len() <= cols {
                self.cells.truncate(start);
                return;
            }
        }
        self.grow(end);
        self.cells[start..end].fill(fill);
    }

    /// Erases the cells that DECSCA does not protect.
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

    /// Returns the number of columns up to the last character.
    pub fn trimmed_len(&self) -> usize {
        match self.cells.iter().rposition(|cell| cell.has_content()) {
            Some(col) => col + self.cells[col].width() as usize,
            None => 0,
        }
    }

    /// Copies `count` cells to `to_col`; missing cells are blank.
    pub fn copy_from(&mut self, from: &[Cell], from_col: usize, to_col: usize, count: usize) {
        for i in 0..count {
            let cell = from.get(from_col + i).copied().unwrap_or(Cell::NULL);
            self.set(to_col + i, cell);
        }
    }

    /// Marks the interned styles and the clusters that this row uses.
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
