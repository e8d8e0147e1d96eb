//! Lines that scrolled off the screen, packed into blocks of bytes.
//!
//! ```text
//! line    = length:u32  flags:u8  body  length:u32        (length of flags and body)
//! body    = bytes, one per cell                            plain: ASCII or 0, default style
//!         | { run }                                        styled
//! run     = (128 + count):u8 number:u32 cell{count}        a packed style
//!         | change count:varint? cell{count}
//! change  = bits:u8 color? color? attributes:u16? (ext:u32 link:varint)?
//! color   = 0..15 | 16 default | 17 index:u8 | 18 r g b
//! cell    = 0 blank | 1 half of a wide character | 2 width length:varint text
//!         | 3 width char | char                            width of the table, with its spacer
//! ```
//! The low bits of a change are set for the parts of the style that differ from the previous
//! run, the high bits count up to 7 cells. Interned styles are written in full, so that their
//! numbers are needed only while they are on the screen. The length of a line is at both ends,
//! so that lines can be removed from the end when the screen grows.

use std::collections::VecDeque;

use super::cell::{Cell, Clusters, Glyph, MAX_CLUSTER_CHARS};
use super::row::Row;
use crate::ascii::{printable, printable_of_eight};
use crate::compact::{self, INTERNED};
use crate::style::{COLOR, MODE, P16, P256, RGB, Style};
use crate::style_table::Styles;
use crate::width::width;

const BLOCK_BYTES: usize = 32 * 1024;
const FRAME_BYTES: usize = 9;
/// A generous estimate of a packed cell: a block that has to grow costs a copy.
const CELL_BYTES: usize = 8;
/// The memory of all lines is bounded by the larger of `limit * LINE_BYTES` and
/// `MIN_BUDGET_BYTES`. Otherwise lines of combining marks could grow without bound.
const LINE_BYTES: usize = 4096;
const MIN_BUDGET_BYTES: usize = 1 << 20;
const WRAPPED: u8 = 1;
const STYLED: u8 = 2;
const LINKED: u8 = 4;

const BLANK: u8 = 0;
const HALF: u8 = 1;
const CLUSTER: u8 = 2;
const SIZED: u8 = 3;

#[derive(Clone, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Offset of the oldest line in the block.
    start: usize,
}

/// The packed lines, oldest first.
#[derive(Clone, Default)]
pub(crate) struct Scrollback {
    blocks: VecDeque<Block>,
    lines: usize,
    limit: usize,
    /// Bytes of all lines.
    bytes: usize,
    /// Whether any line has an odd style (see [`Style::is_odd`]).
    odd: bool,
}

/// The tables for style and cluster numbers.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub styles: &'a Styles,
    pub clusters: &'a Clusters,
}

/// One line in its packed form.
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

    /// Bytes of all lines.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        self.lines = 0;
        self.bytes = 0;
    }

    /// Appends a row. Drops the oldest lines beyond the limits.
    pub fn push(&mut self, row: &Row, names: Names<'_>) {
        if self.limit == 0 {
            return;
        }
        let budget = self.limit.saturating_mul(LINE_BYTES).max(MIN_BUDGET_BYTES);
        while self.lines >= self.limit || (self.bytes > budget && self.lines > 0) {
            self.drop_oldest();
        }
        let cells = row.cells();
        let block = self.block_for(cells.len() * CELL_BYTES + FRAME_BYTES);
        let at = block.bytes.len();
        let wrapped = if row.wrapped { WRAPPED } else { 0 };
        block.bytes.extend_from_slice(&[0, 0, 0, 0, wrapped]);
        let body = block.bytes.len();
        // A line whose first cell is styled or not ASCII cannot be plain.
        let (mut refused, mut odd) = (cells.first().map_or(0, |cell| cell.plain().1), false);
        if refused == 0 {
            block.bytes.extend(cells.iter().map(|cell| {
                let (byte, bits) = cell.plain();
                refused |= bits;
                byte
            }));
        }
        if refused != 0 {
            block.bytes.truncate(body);
            let seen = pack(cells, names, &mut block.bytes);
            block.bytes[at + 4] |= STYLED | if seen.link { LINKED } else { 0 };
            odd = seen.odd;
        } else {
            let end = block.bytes[body..].iter().rposition(|b| *b != BLANK).map_or(0, |i| i + 1);
            block.bytes.truncate(body + end);
        }
        let length = (block.bytes.len() - at - 4) as u32;
        block.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        block.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes += length as usize + 8;
        self.odd |= odd;
        self.lines += 1;
    }

    pub fn any_odd(&self) -> bool {
        self.odd
    }

    fn block_for(&mut self, size: usize) -> &mut Block {
        let full = self.blocks.back().is_none_or(|b| b.bytes.len() + size > BLOCK_BYTES);
        if full {
            // Only the first block grows in steps, so that an idle terminal needs little memory.
            let capacity = if self.blocks.is_empty() { 512 } else { BLOCK_BYTES.max(size) };
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
        self.bytes -= length + 8;
        self.lines -= 1;
        if block.start >= block.bytes.len() {
            self.blocks.pop_front();
        }
    }

    /// Removes the newest line and returns it.
    pub fn pop(&mut self, styles: &mut Styles, clusters: &mut Clusters) -> Option<Row> {
        let block = self.blocks.back_mut()?;
        let end = block.bytes.len();
        let length = read_u32(&block.bytes, end - 4) as usize;
        let at = end - 4 - length;
        let line = Line { flags: block.bytes[at], body: &block.bytes[at + 1..end - 4] };
        let row = line.row(styles, clusters);
        block.bytes.truncate(at - 4);
        self.bytes -= length + 8;
        if block.bytes.len() <= block.start {
            self.blocks.pop_back();
        }
        self.lines -= 1;
        Some(row)
    }

    /// Returns the newest `count` lines, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = Line<'_>> {
        self.iter().skip(self.lines.saturating_sub(count))
    }

    pub fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        self.blocks.iter().flat_map(|block| Lines { bytes: &block.bytes, at: block.start })
    }

    /// Clears the wrapped flag of line `index`.
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

    /// Marks the links that the lines use.
    pub fn mark_links(&self, links: &mut [bool]) {
        for line in self.iter().filter(|line| line.flags & LINKED != 0) {
            line.visit(|style, _, _| {
                if let Some(mark) = links.get_mut(style.link as usize) {
                    *mark = true;
                }
            });
        }
    }

    /// Returns the packed bytes of all lines, for a checkpoint.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().map(|block| &block.bytes[block.start..])
    }

    /// Loads the lines of a checkpoint. Returns `None` if they are malformed.
    pub fn adopt(&mut self, bytes: &[u8], odd: bool) -> Option<()> {
        self.odd = odd;
        self.bytes = bytes.len();
        let (mut at, mut from) = (0, 0);
        while at < bytes.len() {
            let length = read_u32(bytes.get(at..at + 4)?, 0) as usize;
            let next = at.checked_add(length)?.checked_add(8)?;
            if length == 0 || read_u32(bytes.get(next - 4..next)?, 0) as usize != length {
                return None;
            }
            self.lines += 1;
            if next - from > BLOCK_BYTES && at > from {
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

/// The content of one packed cell, or of a wide character and its spacer.
pub(crate) enum Packed<'a> {
    Blank,
    Half,
    Char { code: u32, width: u8 },
    Cluster { text: &'a str, width: u8 },
}

impl<'a> Line<'a> {
    pub fn wrapped(self) -> bool {
        self.flags & WRAPPED != 0
    }

    /// Returns the bytes of a plain line: ASCII, or 0 for a blank.
    pub fn plain(self) -> Option<&'a [u8]> {
        (self.flags & STYLED == 0).then_some(self.body)
    }

    pub fn row(self, styles: &mut Styles, clusters: &mut Clusters) -> Row {
        let mut cells = Vec::new();
        match self.plain() {
            Some(bytes) => cells.extend(bytes.iter().map(|b| Cell::new(u32::from(*b), 1, 0))),
            None => self.unpack(styles, clusters, &mut cells),
        }
        Row::from_cells(cells, self.wrapped())
    }

    fn unpack(self, styles: &mut Styles, clusters: &mut Clusters, cells: &mut Vec<Cell>) {
        let mut last = (Style::default(), 0);
        self.visit(|style, packed, span| {
            if style != last.0 {
                last = (style, styles.number(style));
            }
            let number = last.1;
            match packed {
                Packed::Blank => cells.push(Cell::null(number)),
                Packed::Half => cells.push(Cell::new(0, 0, number)),
                Packed::Char { code, width } => {
                    cells.push(Cell::new(code, width, number));
                    if span == 2 {
                        cells.push(Cell::new(0, 0, number));
                    }
                }
                Packed::Cluster { text, width } => {
                    let first = text.chars().next().map_or(0, |c| c as u32);
                    cells.push(match clusters.number(text) {
                        Some(cluster) => Cell::cluster(cluster, width, number),
                        None => Cell::new(first, width, number),
                    });
                }
            }
        });
    }

    /// Calls `see` for each run of a styled line while all runs are printable ASCII, and returns
    /// whether all were. The third argument is the eight bytes at the start of the run, if the
    /// line has that many left.
    pub fn ascii_runs(self, mut see: impl FnMut(&Style, &'a [u8], Option<&'a [u8; 8]>)) -> bool {
        let mut body = self.body;
        let mut style = Style::default();
        while let Some(count) = take_change(&mut body, &mut style) {
            let Some((run, rest)) = body.split_at_checked(count) else { return false };
            let ahead = body.first_chunk();
            let all = match ahead {
                Some(ahead) if count <= 8 => printable_of_eight(ahead) >= count,
                Some(_) | None => printable(run) == count,
            };
            if !all {
                return false;
            }
            see(&style, run, ahead);
            body = rest;
        }
        true
    }

    /// Calls `see` with the style, content and number of cells of each packed cell.
    pub fn visit(self, mut see: impl FnMut(Style, Packed<'a>, u8)) {
        let mut body = self.body;
        let mut style = Style::default();
        if self.flags & STYLED == 0 {
            for &byte in body {
                match byte {
                    BLANK => see(style, Packed::Blank, 1),
                    byte => see(style, Packed::Char { code: u32::from(byte), width: 1 }, 1),
                }
            }
            return;
        }
        while let Some(count) = take_change(&mut body, &mut style) {
            let mut left = count;
            while left > 0 {
                let Some((packed, taken)) = take_packed(&mut body) else { return };
                see(style, packed, taken as u8);
                left = left.saturating_sub(taken);
            }
        }
    }
}

/// Properties of the styles that were packed.
struct PackedStyles {
    link: bool,
    odd: bool,
}

fn pack(cells: &[Cell], names: Names<'_>, out: &mut Vec<u8>) -> PackedStyles {
    let mut seen = PackedStyles { link: false, odd: false };
    let mut end = cells.len();
    while end > 0 && cells[end - 1] == Cell::NULL {
        end -= 1;
    }
    let cells = &cells[..end];
    let mut from = pack_compact(cells, out);
    let mut before = from.checked_sub(1).map_or(0, |last| cells[last].style);
    while from < end {
        let number = cells[from].style;
        let same = cells[from..].iter().take_while(|cell| cell.style == number).count();
        let count = if number & INTERNED == 0 {
            let count = same.min(MAX_COMPACT_CELLS);
            out.push(COMPACT | count as u8);
            out.extend_from_slice(&number.to_le_bytes());
            count
        } else {
            let style = names.styles.get(number);
            seen.link |= style.link != 0;
            seen.odd |= style.is_odd();
            put_change(out, &names.styles.get(before), &style, same);
            same
        };
        before = number;
        let run = &cells[from..from + count];
        let mut at = 0;
        while at < count {
            match run[at].ascii() {
                Some(byte) => {
                    out.push(byte);
                    at += 1;
                }
                None => at += pack_cell(run[at], run.get(at + 1).copied(), names.clusters, out),
            }
        }
        from += count;
    }
    seen
}

/// Packs the leading cells that are ASCII in compact styles. Returns how many were packed.
fn pack_compact(cells: &[Cell], out: &mut Vec<u8>) -> usize {
    const HEAD: usize = 5;
    // The worst case is allocated at once, and the unused rest is truncated.
    let start = out.len();
    out.resize(start + cells.len() * (HEAD + 1), 0);
    let room = &mut out[start..];
    let (mut head, mut at, mut style, mut taken) = (0, 0, INTERNED, 0);
    for cell in cells {
        let Some(byte) = cell.ascii() else { break };
        if cell.style != style || at - head == HEAD + MAX_COMPACT_CELLS {
            if cell.style & INTERNED != 0 {
                break;
            }
            if taken > 0 {
                room[head] = COMPACT | (at - head - HEAD) as u8;
            }
            (head, style) = (at, cell.style);
            room[at + 1..at + HEAD].copy_from_slice(&style.to_le_bytes());
            at += HEAD;
        }
        room[at] = byte;
        at += 1;
        taken += 1;
    }
    if taken > 0 {
        room[head] = COMPACT | (at - head - HEAD) as u8;
    }
    out.truncate(start + at);
    taken
}

/// Set in the head of a run of a compact style; the other bits count its cells.
const COMPACT: u8 = 0x80;
const MAX_COMPACT_CELLS: usize = 0x7f;

const FG: u8 = 1;
const BG: u8 = 2;
const ATTRIBUTES: u8 = 4;
const EXTENDED: u8 = 8;
const DEFAULT: u8 = 16;
const INDEXED: u8 = 17;
const TRUE: u8 = 18;

fn put_change(out: &mut Vec<u8>, from: &Style, to: &Style, count: usize) {
    let at = out.len();
    let mut bits = 0;
    out.push(0);
    if (from.fg ^ to.fg) & COLOR != 0 {
        bits |= FG;
        put_color(out, to.fg);
    }
    if (from.bg ^ to.bg) & COLOR != 0 {
        bits |= BG;
        put_color(out, to.bg);
    }
    if (from.fg ^ to.fg | from.bg ^ to.bg) & !COLOR != 0 {
        bits |= ATTRIBUTES;
        out.extend_from_slice(&[(to.fg >> 26) as u8, (to.bg >> 26) as u8]);
    }
    if (from.ext, from.link) != (to.ext, to.link) {
        bits |= EXTENDED;
        out.extend_from_slice(&to.ext.to_le_bytes());
        put_varint(out, to.link);
    }
    if count < 8 {
        bits |= (count as u8) << 4;
    } else {
        put_varint(out, count as u32);
    }
    out[at] = bits;
}

/// Reads the head of a run, updates the style and returns the number of cells.
#[inline(always)]
fn take_change(body: &mut &[u8], style: &mut Style) -> Option<usize> {
    let bits = take_byte(body)?;
    if bits & COMPACT != 0 {
        let (number, rest) = body.split_first_chunk()?;
        *body = rest;
        *style = compact::unpack(u32::from_le_bytes(*number));
        return Some(usize::from(bits & !COMPACT));
    }
    if bits & FG != 0 {
        style.fg = (style.fg & !COLOR) | take_color(body)?;
    }
    if bits & BG != 0 {
        style.bg = (style.bg & !COLOR) | take_color(body)?;
    }
    if bits & ATTRIBUTES != 0 {
        style.fg = (style.fg & COLOR) | (u32::from(take_byte(body)?) << 26);
        style.bg = (style.bg & COLOR) | (u32::from(take_byte(body)?) << 26);
    }
    if bits & EXTENDED != 0 {
        let (ext, rest) = body.split_first_chunk()?;
        *body = rest;
        style.ext = u32::from_le_bytes(*ext);
        style.link = take_varint(body)?;
    }
    match bits >> 4 {
        0 => Some(take_varint(body)? as usize),
        count => Some(usize::from(count)),
    }
}

fn put_color(out: &mut Vec<u8>, word: u32) {
    let [value, g, r, _] = (word & COLOR).to_le_bytes();
    match word & MODE {
        P16 => out.push(value & 15),
        P256 => out.extend_from_slice(&[INDEXED, value]),
        RGB => out.extend_from_slice(&[TRUE, r, g, value]),
        _ => out.push(DEFAULT),
    }
}

#[inline]
fn take_color(body: &mut &[u8]) -> Option<u32> {
    Some(match take_byte(body)? {
        value @ 0..=15 => P16 | u32::from(value),
        INDEXED => P256 | u32::from(take_byte(body)?),
        TRUE => {
            let ([r, g, b], rest) = body.split_first_chunk()?;
            *body = rest;
            RGB | u32::from_be_bytes([0, *r, *g, *b])
        }
        _ => 0,
    })
}

#[inline]
fn take_byte(body: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = body.split_first()?;
    *body = rest;
    Some(byte)
}

/// Packs one cell and its spacer. Returns how many cells that were.
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
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let length = c.encode_utf8(&mut out[start..]).len();
    out.truncate(start + length);
}

/// Reads one packed cell and the number of cells it covers.
#[inline]
fn take_packed<'a>(body: &mut &'a [u8]) -> Option<(Packed<'a>, usize)> {
    let all = *body;
    let first = *all.first()?;
    match first {
        BLANK => {
            *body = &all[1..];
            Some((Packed::Blank, 1))
        }
        HALF => {
            *body = &all[1..];
            Some((Packed::Half, 1))
        }
        CLUSTER => {
            let width = (*all.get(1)?).min(2);
            let mut after = &all[2..];
            let length = take_varint(&mut after)? as usize;
            if length > MAX_CLUSTER_CHARS * 4 {
                return None;
            }
            let text = std::str::from_utf8(after.get(..length)?).ok()?;
            *body = &after[length..];
            Some((Packed::Cluster { text, width }, 1))
        }
        SIZED => {
            let width = (*all.get(1)?).min(2);
            let (code, length) = take_char(all.get(2..)?)?;
            *body = &all[2 + length..];
            Some((Packed::Char { code, width }, 1))
        }
        0x20..0x7f => {
            *body = &all[1..];
            Some((Packed::Char { code: u32::from(first), width: 1 }, 1))
        }
        _ => {
            let (code, length) = take_char(all)?;
            let width = width(code);
            *body = &all[length..];
            Some((Packed::Char { code, width }, usize::from(width.max(1))))
        }
    }
}

/// Reads the first character and its length in bytes.
fn take_char(bytes: &[u8]) -> Option<(u32, usize)> {
    let length = utf8_len(*bytes.first()?);
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    Some((text.chars().next()? as u32, length))
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
