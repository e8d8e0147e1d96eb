//! A cell of eight bytes: a character or a grapheme cluster, and a style number.

use std::collections::HashMap;

const CODE: u32 = 0x1f_ffff;
const CLUSTER: u32 = 0x20_0000;
const CONTENT: u32 = CODE | CLUSTER;
const WIDTH_SHIFT: u32 = 22;

/// One column of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    content: u32,
    pub style: u32,
}

impl Cell {
    /// Never written, or erased with the default background.
    pub const NULL: Cell = Cell { content: 1 << WIDTH_SHIFT, style: 0 };

    #[inline]
    pub fn new(code: u32, width: u8, style: u32) -> Cell {
        Cell { content: code | (u32::from(width) << WIDTH_SHIFT), style }
    }

    pub fn null(style: u32) -> Cell {
        Cell { style, ..Cell::NULL }
    }

    pub fn cluster(number: u32, width: u8, style: u32) -> Cell {
        Cell { content: number | CLUSTER | (u32::from(width) << WIDTH_SHIFT), style }
    }

    pub fn with_style(self, style: u32) -> Cell {
        Cell { style, ..self }
    }

    #[inline]
    pub fn width(self) -> u8 {
        (self.content >> WIDTH_SHIFT) as u8
    }

    #[inline]
    pub fn has_content(self) -> bool {
        self.content & CONTENT != 0
    }

    /// Whether this is the second half of a wide character, possibly without its first half.
    pub fn is_spacer(self) -> bool {
        self.content == 0
    }

    pub fn is_null(self) -> bool {
        self.content == Cell::NULL.content
    }

    pub fn glyph(self) -> Glyph {
        match self.content & CONTENT {
            0 => Glyph::None,
            content if content & CLUSTER != 0 => Glyph::Cluster(content & CODE),
            code => Glyph::Char(code),
        }
    }

    /// The byte of a printable ASCII character.
    #[inline]
    pub fn ascii(self) -> Option<u8> {
        const SPACE: u32 = Cell::NULL.content | 0x20;
        const TILDE: u32 = Cell::NULL.content | 0x7e;
        (SPACE..=TILDE).contains(&self.content).then_some(self.content as u8)
    }

    /// Returns the byte that encodes this cell in a plain line, and bits that are zero if that is
    /// possible.
    #[inline]
    pub fn plain(self) -> (u8, u32) {
        (self.content as u8, ((self.content & !0x7f) ^ Cell::NULL.content) | self.style)
    }
}

/// The content of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Glyph {
    None,
    Char(u32),
    /// The number of a character with combining marks.
    Cluster(u32),
}

/// Further combining marks of a cell are dropped.
pub(crate) const MAX_CLUSTER_CHARS: usize = 32;
/// Once this many distinct clusters are in use, further combining marks are dropped.
const MAX_CLUSTERS: usize = 1 << 20;
const MIN_SWEEP_COUNT: usize = 1024;

/// Characters with combining marks. The number of a cluster in use never changes.
#[derive(Clone, Default)]
pub(crate) struct Clusters {
    list: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    free: Vec<u32>,
    limit: usize,
}

impl Clusters {
    pub fn get(&self, number: u32) -> &str {
        self.list.get(number as usize).map_or("", |text| text)
    }

    pub fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(text) {
            return Some(number);
        }
        if self.numbers.len() >= MAX_CLUSTERS {
            return None;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.list[number as usize] = text.into();
                number
            }
            None => {
                self.list.push(text.into());
                self.list.len() as u32 - 1
            }
        };
        self.numbers.insert(text.into(), number);
        Some(number)
    }

    pub fn wants_sweep(&self) -> bool {
        self.numbers.len() >= self.limit.max(MIN_SWEEP_COUNT)
    }

    pub fn highest(&self) -> usize {
        self.list.len()
    }

    pub fn heap(&self) -> usize {
        self.list.iter().map(|text| text.len() + 16).sum::<usize>() * 2
            + self.list.capacity() * 16
            + self.numbers.capacity() * 24
    }

    /// Removes every cluster whose mark is not set.
    pub fn sweep(&mut self, marks: &[bool]) {
        let marked = |number: u32| marks.get(number as usize).copied().unwrap_or(false);
        self.numbers.retain(|_, number| marked(*number));
        while self.list.len() > marks.len()
            || (!self.list.is_empty() && !marks[self.list.len() - 1])
        {
            self.list.pop();
        }
        self.free = (0..self.list.len() as u32).filter(|n| !marked(*n)).collect();
        self.limit = self.numbers.len() * 2;
    }
}
