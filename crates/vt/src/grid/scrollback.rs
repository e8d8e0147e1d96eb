//! Lines that left the top of the screen, packed into blocks of bytes.
//!
//! ```text
//! line    = length:u32  flags:u8  body  length:u32        (length of flags and body)
//! body    = bytes, one for a cell                          plain: ASCII or 0, default style
//!         | { style:varint count:varint cell{count} }      styled
//! cell    = 0 blank | 1 half of a wide character | 2 width length:varint text
//!         | 3 width char | char                            the table's width, and its other half
//! ```
//! The length stands at both ends so that lines can be taken back from the end
//! when the screen grows.

use std::collections::VecDeque;

use super::cell::{CLUSTER_CHARS, Cell, Clusters, Glyph};
use super::row::Row;
use crate::width::width;

const BLOCK: usize = 32 * 1024;
const FRAME: usize = 9;
const WRAPPED: u8 = 1;
const STYLED: u8 = 2;

const BLANK: u8 = 0;
const HALF: u8 = 1;
const CLUSTER: u8 = 2;
const SIZED: u8 = 3;

#[derive(Clone, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Where the oldest line of the block begins.
    start: usize,
}

/// The packed lines, oldest first.
#[derive(Clone, Default)]
pub(crate) struct Scrollback {
    blocks: VecDeque<Block>,
    lines: usize,
    limit: usize,
}

/// A packed line.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    flags: u8,
    body: &'a [u8],
}

impl Scrollback {
    pub fn new(limit: usize) -> Scrollback {
        Scrollback { limit, ..Scrollback::default() }
    }

    pub fn len(&self) -> usize {
        self.lines
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        self.lines = 0;
    }

    /// Appends a row; the oldest line goes when there are too many.
    pub fn push(&mut self, row: &Row, clusters: &Clusters) {
        if self.limit == 0 {
            return;
        }
        while self.lines >= self.limit {
            self.drop_oldest();
        }
        let cells = row.cells();
        let block = self.block_for(cells.len() + FRAME);
        let at = block.bytes.len();
        let wrapped = if row.wrapped { WRAPPED } else { 0 };
        block.bytes.extend_from_slice(&[0, 0, 0, 0, wrapped]);
        let body = block.bytes.len();
        let mut refused = 0;
        block.bytes.extend(cells.iter().map(|cell| {
            let (byte, bits) = cell.plain();
            refused |= bits;
            byte
        }));
        if refused != 0 {
            block.bytes.truncate(body);
            block.bytes[at + 4] |= STYLED;
            pack(cells, clusters, &mut block.bytes);
        } else {
            let end = block.bytes[body..].iter().rposition(|b| *b != BLANK).map_or(0, |i| i + 1);
            block.bytes.truncate(body + end);
        }
        let length = (block.bytes.len() - at - 4) as u32;
        block.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        block.bytes.extend_from_slice(&length.to_le_bytes());
        self.lines += 1;
    }

    fn block_for(&mut self, size: usize) -> &mut Block {
        let full = self.blocks.back().is_none_or(|b| {
            let len = b.bytes.len();
            len + size > b.bytes.capacity().max(BLOCK)
        });
        if full {
            // Only the first block grows step by step: a quiet terminal stays small.
            let capacity = if self.blocks.is_empty() { size.max(512) } else { BLOCK.max(size) };
            if let Some(last) = self.blocks.back_mut() {
                last.bytes.shrink_to_fit();
            }
            self.blocks.push_back(Block { bytes: Vec::with_capacity(capacity), start: 0 });
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    fn drop_oldest(&mut self) {
        let Some(block) = self.blocks.front_mut() else { return };
        let length = read_u32(&block.bytes, block.start) as usize;
        block.start += length + 8;
        self.lines -= 1;
        if block.start >= block.bytes.len() {
            self.blocks.pop_front();
        }
    }

    /// Takes the newest line back.
    pub fn pop(&mut self, clusters: &mut Clusters) -> Option<Row> {
        let block = self.blocks.back_mut()?;
        let end = block.bytes.len();
        let length = read_u32(&block.bytes, end - 4) as usize;
        let at = end - 4 - length;
        let row =
            Line { flags: block.bytes[at], body: &block.bytes[at + 1..end - 4] }.row(clusters);
        block.bytes.truncate(at - 4);
        if block.bytes.len() <= block.start {
            self.blocks.pop_back();
        }
        self.lines -= 1;
        Some(row)
    }

    /// The newest `count` lines, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = Line<'_>> {
        self.iter().skip(self.lines.saturating_sub(count))
    }

    pub fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        self.blocks.iter().flat_map(|block| Lines { bytes: &block.bytes, at: block.start })
    }

    /// Clears the mark that line `index` continues the one above it.
    pub fn unwrap_line(&mut self, mut index: usize) {
        for block in &mut self.blocks {
            let mut at = block.start;
            while at < block.bytes.len() {
                if index == 0 {
                    block.bytes[at + 4] &= !WRAPPED;
                    return;
                }
                index -= 1;
                at += read_u32(&block.bytes, at) as usize + 8;
            }
        }
    }

    /// Marks the styles the lines use.
    pub fn mark(&self, styles: &mut [bool]) {
        for line in self.iter().filter(|line| line.flags & STYLED != 0) {
            let mut body = line.body;
            while let Some((style, count)) = take_run(&mut body) {
                if let Some(mark) = styles.get_mut(style as usize) {
                    *mark = true;
                }
                let mut left = count;
                while left > 0 {
                    let Some((_, cells)) = take_packed(&mut body) else { break };
                    left = left.saturating_sub(cells);
                }
            }
        }
    }

    /// The bytes of all lines, for a checkpoint.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().map(|block| &block.bytes[block.start..])
    }

    /// Takes over lines from a checkpoint. `None` when they are not well formed.
    pub fn adopt(&mut self, bytes: &[u8]) -> Option<()> {
        let (mut at, mut from) = (0, 0);
        while at < bytes.len() {
            let length = read_u32(bytes.get(at..at + 4)?, 0) as usize;
            let next = at.checked_add(length)?.checked_add(8)?;
            if length == 0 || read_u32(bytes.get(next - 4..next)?, 0) as usize != length {
                return None;
            }
            self.lines += 1;
            if next - from > BLOCK && at > from {
                self.blocks.push_back(Block { bytes: bytes[from..at].to_vec(), start: 0 });
                from = at;
            }
            at = next;
        }
        if at > from {
            self.blocks.push_back(Block { bytes: bytes[from..at].to_vec(), start: 0 });
        }
        (self.lines <= self.limit).then_some(())
    }

    pub fn heap(&self) -> usize {
        self.blocks.iter().map(|b| b.bytes.capacity()).sum::<usize>()
            + self.blocks.capacity() * size_of::<Block>()
    }
}

struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let length = read_u32(self.bytes, self.at) as usize;
        let from = self.at + 4;
        self.at = from + length + 4;
        Some(Line { flags: self.bytes[from], body: &self.bytes[from + 1..from + length] })
    }
}

/// One packed cell, or a pair.
pub(crate) enum Packed<'a> {
    Blank,
    Half,
    Char { text: &'a str, width: u8 },
}

impl<'a> Line<'a> {
    pub fn wrapped(self) -> bool {
        self.flags & WRAPPED != 0
    }

    /// The bytes of a plain line: ASCII, with 0 for a blank.
    pub fn plain(self) -> Option<&'a [u8]> {
        (self.flags & STYLED == 0).then_some(self.body)
    }

    pub fn row(self, clusters: &mut Clusters) -> Row {
        let mut cells = Vec::new();
        match self.plain() {
            Some(bytes) => cells.extend(bytes.iter().map(|b| Cell::new(u32::from(*b), 1, 0))),
            None => self.unpack(clusters, &mut cells),
        }
        Row::from_cells(cells, self.wrapped())
    }

    fn unpack(self, clusters: &mut Clusters, cells: &mut Vec<Cell>) {
        self.visit(|style, packed, span| match packed {
            Packed::Blank => cells.push(Cell::null(style)),
            Packed::Half => cells.push(Cell::new(0, 0, style)),
            Packed::Char { text, width } => {
                let mut chars = text.chars();
                let first = chars.next().map_or(0, |c| c as u32);
                let cluster = chars.next().and_then(|_| clusters.number(text));
                cells.push(match cluster {
                    Some(number) => Cell::cluster(number, width, style),
                    None => Cell::new(first, width, style),
                });
                if span == 2 {
                    cells.push(Cell::new(0, 0, style));
                }
            }
        });
    }

    /// Calls `see` with the style, the content and the number of cells of each piece.
    pub fn visit(self, mut see: impl FnMut(u32, Packed<'a>, u8)) {
        let mut body = self.body;
        if self.flags & STYLED == 0 {
            for at in 0..body.len() {
                match std::str::from_utf8(&body[at..=at]) {
                    Ok("\0") | Err(_) => see(0, Packed::Blank, 1),
                    Ok(text) => see(0, Packed::Char { text, width: 1 }, 1),
                }
            }
            return;
        }
        while let Some((style, count)) = take_run(&mut body) {
            let mut left = count;
            while left > 0 {
                let Some((packed, taken)) = take_packed(&mut body) else { return };
                see(style, packed, taken as u8);
                left = left.saturating_sub(taken);
            }
        }
    }
}

fn pack(cells: &[Cell], clusters: &Clusters, out: &mut Vec<u8>) {
    let mut end = cells.len();
    while end > 0 && cells[end - 1] == Cell::NULL {
        end -= 1;
    }
    let mut from = 0;
    while from < end {
        let style = cells[from].style;
        let count = cells[from..end].iter().take_while(|cell| cell.style == style).count();
        put_varint(out, style);
        put_varint(out, count as u32);
        let run = &cells[from..from + count];
        let mut at = 0;
        while at < count {
            at += pack_cell(run[at], run.get(at + 1).copied(), clusters, out);
        }
        from += count;
    }
}

/// Packs one cell and says how many it stood for.
fn pack_cell(cell: Cell, next: Option<Cell>, clusters: &Clusters, out: &mut Vec<u8>) -> usize {
    let implied = next.is_some_and(Cell::is_spacer);
    match cell.glyph() {
        Glyph::None => {
            if cell.width() == 0 {
                out.push(HALF);
            } else {
                out.push(BLANK);
            }
            1
        }
        Glyph::Char(code) => {
            let as_table = cell.width() == width(code) && cell.width() > 0;
            let pair = cell.width() == 2;
            if !as_table || (pair && !implied) {
                out.extend_from_slice(&[SIZED, cell.width()]);
                put_char(out, code);
                return 1;
            }
            put_char(out, code);
            if pair { 2 } else { 1 }
        }
        Glyph::Cluster(number) => {
            let text = clusters.get(number);
            out.extend_from_slice(&[CLUSTER, cell.width()]);
            put_varint(out, text.len() as u32);
            out.extend_from_slice(text.as_bytes());
            1
        }
    }
}

fn put_char(out: &mut Vec<u8>, code: u32) {
    if code < 0x80 {
        out.push(code as u8);
        return;
    }
    let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn take_run(body: &mut &[u8]) -> Option<(u32, usize)> {
    if body.is_empty() {
        return None;
    }
    Some((take_varint(body)?, take_varint(body)? as usize))
}

/// Takes one packed cell and the number of cells it stands for.
pub(crate) fn take_packed<'a>(body: &mut &'a [u8]) -> Option<(Packed<'a>, usize)> {
    let all = *body;
    let first = *all.first()?;
    let (text, width, rest, cells) = match first {
        BLANK => {
            *body = &all[1..];
            return Some((Packed::Blank, 1));
        }
        HALF => {
            *body = &all[1..];
            return Some((Packed::Half, 1));
        }
        CLUSTER => {
            let size = *all.get(1)?;
            let mut after = &all[2..];
            let length = take_varint(&mut after)? as usize;
            if length > CLUSTER_CHARS * 4 {
                return None;
            }
            (after.get(..length)?, size, after.get(length..)?, 1)
        }
        SIZED => {
            let length = utf8_len(*all.get(2)?);
            (all.get(2..2 + length)?, *all.get(1)?, all.get(2 + length..)?, 1)
        }
        lead => {
            let length = utf8_len(lead);
            let text = all.get(..length)?;
            let size = if length == 1 { 1 } else { text_width(text)? };
            (text, size, &all[length..], usize::from(size.max(1)))
        }
    };
    *body = rest;
    Some((Packed::Char { text: std::str::from_utf8(text).ok()?, width: width.min(2) }, cells))
}

fn text_width(text: &[u8]) -> Option<u8> {
    Some(width(std::str::from_utf8(text).ok()?.chars().next()? as u32))
}

fn utf8_len(lead: u8) -> usize {
    match lead {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let (mut value, mut shift) = (0u32, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift > 28 {
            return None;
        }
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
}
