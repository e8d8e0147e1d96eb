//! Resizing a buffer: rows move between screen and scrollback, and wrapped lines of the normal
//! buffer are reflowed. As in xterm.js the cursor's line is not reflowed: the program redraws it.

use super::buffer::{Buffer, Margins};
use super::cell::{Cell, Clusters};
use super::row::Row;
use super::scrollback::Names;
use crate::style_table::Styles;

/// Whether a resize reflows wrapped lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reflow {
    Yes,
    No,
}

/// The tables for style and cluster numbers, with write access.
pub(crate) struct NamesMut<'a> {
    pub styles: &'a mut Styles,
    pub clusters: &'a mut Clusters,
}

impl NamesMut<'_> {
    fn view(&self) -> Names<'_> {
        Names { styles: self.styles, clusters: self.clusters }
    }
}

impl Buffer {
    /// Resizes the buffer to columns and rows.
    pub fn resize(&mut self, size: (usize, usize), reflow: Reflow, names: &mut NamesMut<'_>) {
        let (cols, height) = size;
        let before = self.cols;
        self.cols = cols;
        if self.rows.is_empty() {
            self.height = height;
            self.margins = Margins::full(cols, height);
            self.tabs.resize(cols);
            return;
        }
        self.change_height(height, names);
        self.x = self.x.min(cols - 1);
        self.saved.x = self.saved.x.min(cols - 1);
        self.margins = Margins::full(cols, height);
        if reflow == Reflow::Yes && before != cols {
            self.reflow(before, names);
        }
        self.tabs.resize(cols);
    }

    fn change_height(&mut self, height: usize, names: &mut NamesMut<'_>) {
        let mut added = 0;
        while self.rows.len() < height {
            if self.base() > 0
                && self.rows.len() <= self.y + added + 1
                && let Some(row) = self.scrollback.pop(names.styles, names.clusters)
            {
                self.rows.push_front(row);
                added += 1;
            } else {
                self.rows.push_back(Row::default());
            }
        }
        let (base, mut pushed) = (self.base(), 0);
        while self.rows.len() > height {
            if self.rows.len() > self.y + 1 {
                self.rows.pop_back();
            } else if let Some(row) = self.rows.pop_front() {
                self.scrollback.push(&row, names.view());
                pushed += 1;
            }
        }
        let trimmed = base + pushed - self.base();
        self.saved.y = self.saved.y.saturating_sub(trimmed);
        self.y = (self.y.min(height - 1) + added).min(height - 1);
        self.height = height;
    }

    fn reflow(&mut self, before: usize, names: &mut NamesMut<'_>) {
        let packed: Vec<_> = self.scrollback.iter().collect();
        let mut lines: Vec<Row> = Vec::with_capacity(packed.len() + self.rows.len());
        for line in packed {
            lines.push(line.row(names.styles, names.clusters));
        }
        let mut layout = Layout {
            base: lines.len(),
            y: self.y,
            saved_y: self.saved.y,
            height: self.height,
            max: self.height + self.scrollback.limit(),
            cols: self.cols,
            before,
            lines: Vec::new(),
        };
        lines.extend(self.rows.drain(..));
        layout.lines = lines;
        if self.cols > before {
            layout.widen();
        } else {
            layout.narrow();
        }
        let Layout { mut lines, mut base, y, saved_y, .. } = layout;
        for row in &mut lines {
            row.truncate(self.cols);
        }
        while lines.len() < base + self.height {
            lines.push(Row::default());
        }
        base = lines.len() - self.height;
        self.scrollback.clear();
        for row in &lines[..base] {
            self.scrollback.push(row, names.view());
        }
        self.rows = lines.drain(base..).collect();
        self.y = y.min(self.height - 1);
        self.saved.y = saved_y;
    }
}

/// All lines of a buffer during a reflow.
struct Layout {
    lines: Vec<Row>,
    base: usize,
    y: usize,
    saved_y: usize,
    height: usize,
    max: usize,
    cols: usize,
    before: usize,
}

impl Layout {
    fn contains_cursor(&self, first: usize, count: usize) -> bool {
        (first..first + count).contains(&(self.base + self.y))
    }

    fn widen(&mut self) {
        let mut removed = vec![false; self.lines.len()];
        let mut first = 0;
        while first + 1 < self.lines.len() {
            let count = 1 + self.lines[first + 1..].iter().take_while(|line| line.wrapped).count();
            if count > 1 && !self.contains_cursor(first, count) {
                let drop = self.join(first, count);
                removed[first + count - drop..first + count].fill(true);
            }
            first += count;
        }
        let count = removed.iter().filter(|dropped| **dropped).count();
        if count == 0 {
            return;
        }
        let mut dropped = removed.into_iter();
        self.lines.retain(|_| !dropped.next().unwrap_or(false));
        for _ in 0..count {
            if self.base == 0 {
                self.y = self.y.saturating_sub(1);
                if self.lines.len() < self.height {
                    self.lines.push(Row::default());
                }
            } else {
                self.base -= 1;
            }
        }
        self.saved_y = self.saved_y.saturating_sub(count);
    }

    /// Joins the rows of one wrapped line. Returns how many rows at its end became empty.
    fn join(&mut self, first: usize, count: usize) -> usize {
        let cols = self.cols;
        let group = &mut self.lines[first..first + count];
        let (mut to, mut to_col) = (0, used(group, 0, self.before));
        let (mut from, mut from_col) = (1, 0);
        while from < count {
            let length = used(group, from, self.before);
            let n = (length - from_col).min(cols - to_col);
            let cells = group[from].cells().to_vec();
            group[to].copy_from(&cells, from_col, to_col, n);
            to_col += n;
            if to_col == cols {
                to += 1;
                to_col = 0;
            }
            from_col += n;
            if from_col == length {
                from += 1;
                from_col = 0;
            }
            // A wide character does not fit into the last column alone.
            if to_col == 0 && to != 0 && to < count && group[to - 1].width(cols - 1) == 2 {
                let wide = group[to - 1].get(cols - 1);
                group[to].set(0, wide);
                to_col = 1;
                group[to - 1].set(cols - 1, Cell::NULL);
            }
        }
        if to < count {
            group[to].erase(to_col, cols, cols, Cell::NULL);
        }
        (1..count).rev().take_while(|i| *i > to || group[*i].trimmed_len() == 0).count()
    }

    fn narrow(&mut self) {
        // Lines are processed from the end, so that the cursor's row is final before the lines
        // above it are reflowed.
        let mut pieces: Vec<Vec<Row>> = Vec::new();
        let mut length = self.lines.len();
        let mut inserted = 0;
        let mut end = self.lines.len();
        while end > 0 {
            let mut first = end - 1;
            while self.lines[first].wrapped && first > 0 {
                first -= 1;
            }
            let count = end - first;
            let alone = count == 1 && !self.lines[first].wrapped;
            let fits = alone && self.lines[first].trimmed_len() <= self.cols;
            if fits || self.contains_cursor(first, count) {
                pieces.push(self.lines.drain(first..end).collect());
                end = first;
                continue;
            }
            let group: Vec<Row> = self.lines.drain(first..end).collect();
            let reflowed = split(group, self.before, self.cols);
            let added = reflowed.len() - count;
            pieces.push(reflowed);
            inserted += added;
            let over = if self.base == 0 && self.y + 1 != length {
                (self.y + added).saturating_sub(self.max)
            } else {
                (length + added).saturating_sub(self.max)
            };
            for _ in over.min(added)..added {
                if self.base == 0 {
                    // An empty line at the bottom makes room. xterm.js drops a line with text as well.
                    if self.y + 1 < self.height && drop_empty(&mut pieces) {
                        self.y += 1;
                        length -= 1;
                    } else {
                        self.base += 1;
                    }
                } else if self.base + self.height < self.max.min(length + inserted) {
                    self.base += 1;
                }
            }
            self.saved_y = (self.saved_y + added).min(self.base + self.height - 1);
            end = first;
        }
        self.lines = pieces.into_iter().rev().flatten().collect();
        if self.lines.len() > self.max {
            self.lines.drain(..self.lines.len() - self.max);
            self.base = self.base.min(self.max - self.height);
        }
    }
}

/// Drops the lowest line, the last of the first piece, if it is empty.
fn drop_empty(pieces: &mut Vec<Vec<Row>>) -> bool {
    pieces.retain(|piece| !piece.is_empty());
    let Some(piece) = pieces.first_mut() else { return false };
    piece.pop_if(|row| row.trimmed_len() == 0).is_some()
}

/// Returns how many columns of row `i` of a wrapped line belong to the text.
fn used(group: &[Row], i: usize, cols: usize) -> usize {
    if i + 1 == group.len() {
        return group[i].trimmed_len();
    }
    // A wide character that did not fit left the last column blank.
    let last = group[i].get(cols - 1);
    if !last.has_content() && last.width() == 1 && group[i + 1].width(0) == 2 {
        return cols - 1;
    }
    cols
}

fn split(group: Vec<Row>, before: usize, cols: usize) -> Vec<Row> {
    let mut cells: Vec<Cell> = Vec::new();
    for i in 0..group.len() {
        cells.extend((0..used(&group, i, before)).map(|col| group[i].get(col)));
    }
    let mut reflowed: Vec<Row> = Vec::new();
    let mut group = group.into_iter();
    let mut at = 0;
    while at < cells.len() || group.len() > 0 {
        let left = cells.len() - at;
        let mut n = left.min(cols);
        if left >= cols && cols > 1 && cells[at + cols - 1].width() == 2 {
            n = cols - 1;
        }
        let mut row = group.next().unwrap_or_default();
        row.wrapped = if reflowed.is_empty() { row.wrapped } else { true };
        row.copy_from(&cells, at, 0, n);
        if n < cols {
            row.set(n, Cell::NULL);
        }
        reflowed.push(row);
        at += n;
    }
    reflowed
}
