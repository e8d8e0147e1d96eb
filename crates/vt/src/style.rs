//! What a cell looks like, beside its character.
//!
//! The words have the layout of xterm.js, so that every oddity a program can
//! reach there (an underline flag without an underline style, say) has the same
//! representation here.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Colour mode and value share the low 26 bits of `fg`, `bg` and `ext`.
pub(crate) const COLOR: u32 = 0x3ff_ffff;
pub(crate) const MODE: u32 = 0x300_0000;
pub(crate) const P16: u32 = 0x100_0000;
pub(crate) const P256: u32 = 0x200_0000;
pub(crate) const RGB: u32 = 0x300_0000;

pub(crate) const INVERSE: u32 = 0x400_0000;
pub(crate) const BOLD: u32 = 0x800_0000;
pub(crate) const UNDERLINE: u32 = 0x1000_0000;
pub(crate) const BLINK: u32 = 0x2000_0000;
pub(crate) const INVISIBLE: u32 = 0x4000_0000;
pub(crate) const STRIKE: u32 = 0x8000_0000;

pub(crate) const ITALIC: u32 = 0x400_0000;
pub(crate) const DIM: u32 = 0x800_0000;
pub(crate) const EXTENDED: u32 = 0x1000_0000;
pub(crate) const PROTECTED: u32 = 0x2000_0000;
pub(crate) const OVERLINE: u32 = 0x4000_0000;

pub(crate) const UNDERLINE_SHIFT: u32 = 26;
pub(crate) const UNDERLINE_STYLE: u32 = 0x1c00_0000;

/// Everything SGR, DECSCA and OSC 8 can say about a cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Style {
    pub fg: u32,
    pub bg: u32,
    /// Underline colour in the low bits, underline style above it.
    pub ext: u32,
    /// The hyperlink, 0 for none.
    pub link: u32,
}

impl Style {
    /// The style of erased cells: the background colour alone.
    pub fn erase(&self) -> Style {
        Style { bg: self.bg & COLOR, ..Style::default() }
    }

    /// What a cell keeps of a pen: the extended part only when it is in force.
    pub fn for_cell(self) -> Style {
        let pen = self.settled();
        if pen.bg & EXTENDED == 0 { Style { ext: 0, link: 0, ..pen } } else { pen }
    }

    /// The pen without what only a saved pen could bring back: an underline style or a
    /// link that is not in force.
    pub fn settled(self) -> Style {
        let mut pen = self;
        if pen.bg & EXTENDED == 0 {
            pen.link = 0;
        }
        if pen.fg & UNDERLINE == 0 {
            pen.ext &= COLOR;
            if pen.link == 0 {
                pen.bg &= !EXTENDED;
            }
        } else if pen.link != 0 && pen.ext & UNDERLINE_STYLE == 0 {
            // A link hides the style.
            pen.ext |= 1 << UNDERLINE_SHIFT;
        }
        pen
    }

    /// Underlined without a style: DECSC keeps the one and not the other. Such a pen
    /// can only be had from a saved cursor, which also ends a pending wrap.
    pub fn is_odd(&self) -> bool {
        self.fg & UNDERLINE != 0 && self.bg & EXTENDED != 0 && self.underline_style() == 0
    }

    pub fn underline_style(&self) -> u32 {
        if self.link != 0 { 5 } else { (self.ext & UNDERLINE_STYLE) >> UNDERLINE_SHIFT }
    }

    pub fn set_underline_style(&mut self, style: u32) {
        self.ext = (self.ext & !UNDERLINE_STYLE) | ((style << UNDERLINE_SHIFT) & UNDERLINE_STYLE);
        self.update_extended();
    }

    pub fn update_extended(&mut self) {
        if self.underline_style() == 0 {
            self.bg &= !EXTENDED;
        } else {
            self.bg |= EXTENDED;
        }
    }

    /// SGR 0: everything but the hyperlink.
    pub fn reset(&mut self) {
        self.fg = 0;
        self.bg = 0;
        self.ext = 0;
        self.update_extended();
    }
}

/// A multiply-and-rotate hash: the keys are our own small words, not an attacker's map.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<WordHasher>>;

/// The fewest entries before a sweep is worth its walk through the scrollback.
const SWEEP_FLOOR: usize = 4096;

/// Styles by number. Number 0 is the default style; numbers in use never move.
#[derive(Clone, Default)]
pub(crate) struct Styles {
    list: Vec<Style>,
    numbers: Map<Style>,
    free: Vec<u32>,
    limit: usize,
}

impl Styles {
    #[inline]
    pub fn get(&self, number: u32) -> Style {
        if number == 0 {
            return Style::default();
        }
        self.list.get(number as usize - 1).copied().unwrap_or_default()
    }

    pub fn find(&self, style: Style) -> Option<u32> {
        if style == Style::default() { Some(0) } else { self.numbers.get(&style).copied() }
    }

    pub fn number(&mut self, style: Style) -> u32 {
        if style == Style::default() {
            return 0;
        }
        if let Some(&number) = self.numbers.get(&style) {
            return number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.list[number as usize - 1] = style;
                number
            }
            None => {
                self.list.push(style);
                self.list.len() as u32
            }
        };
        self.numbers.insert(style, number);
        number
    }

    pub fn wants_sweep(&self) -> bool {
        self.numbers.len() >= self.limit.max(SWEEP_FLOOR)
    }

    /// Highest number ever given out, for the marks of a sweep.
    pub fn highest(&self) -> usize {
        self.list.len()
    }

    /// Forgets every style whose mark is not set. The next sweep waits until twice
    /// the survivors are in use, so the cost stays in proportion to the input.
    pub fn sweep(&mut self, marks: &[bool]) {
        let list = &self.list;
        self.numbers.retain(|style, number| {
            debug_assert_eq!(list[*number as usize - 1], *style);
            marks.get(*number as usize).copied().unwrap_or(false)
        });
        let mut used = vec![false; self.list.len() + 1];
        for number in self.numbers.values() {
            used[*number as usize] = true;
        }
        while !self.list.is_empty() && !used[self.list.len()] {
            self.list.pop();
        }
        self.free = (1..=self.list.len() as u32).filter(|n| !used[*n as usize]).collect();
        self.list.shrink_to(SWEEP_FLOOR);
        self.numbers.shrink_to(SWEEP_FLOOR);
        self.limit = self.numbers.len() * 2;
    }

    pub fn any_odd(&self) -> bool {
        self.numbers.keys().any(Style::is_odd)
    }

    pub fn heap(&self) -> usize {
        self.list.capacity() * size_of::<Style>() + self.numbers.capacity() * 21
    }

    pub fn live(&self) -> impl Iterator<Item = (u32, Style)> + '_ {
        let mut all: Vec<(u32, Style)> = self.numbers.iter().map(|(s, n)| (*n, *s)).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter()
    }

    /// Puts a style back under the number it had when it was written down.
    pub fn put(&mut self, number: u32, style: Style) {
        let at = number as usize;
        while self.list.len() < at {
            self.list.push(Style::default());
            if self.list.len() < at {
                self.free.push(self.list.len() as u32);
            }
        }
        self.list[at - 1] = style;
        self.numbers.insert(style, number);
    }
}

impl Style {
    /// The parameters of an SGR that makes a pen this style, from any other.
    pub fn sgr(&self) -> String {
        use std::fmt::Write;
        let mut out = String::from("0");
        for (word, bit, code) in [
            (self.fg, BOLD, 1),
            (self.bg, DIM, 2),
            (self.bg, ITALIC, 3),
            (self.fg, BLINK, 5),
            (self.fg, INVERSE, 7),
            (self.fg, INVISIBLE, 8),
            (self.fg, STRIKE, 9),
            (self.bg, OVERLINE, 53),
        ] {
            if word & bit != 0 {
                let _ = write!(out, ";{code}");
            }
        }
        if self.fg & UNDERLINE != 0 {
            match (self.ext & UNDERLINE_STYLE) >> UNDERLINE_SHIFT {
                0 | 1 => out.push_str(";4"),
                style => {
                    let _ = write!(out, ";4:{style}");
                }
            }
        }
        color(&mut out, self.fg, 30);
        color(&mut out, self.bg, 40);
        color(&mut out, self.ext, 50);
        out
    }
}

/// `base` is 30, 40 or 50: foreground, background, underline.
fn color(out: &mut String, word: u32, base: u32) {
    use std::fmt::Write;
    let value = word & 0xff_ffff;
    let _ = match word & MODE {
        P16 if base < 50 && value < 8 => write!(out, ";{}", base + value),
        P16 if base < 50 => write!(out, ";{}", base + 60 + (value & 7)),
        P16 | P256 => write!(out, ";{}:5:{}", base + 8, value & 255),
        RGB => write!(out, ";{}:2::{}:{}:{}", base + 8, value >> 16, value >> 8 & 255, value & 255),
        _ => Ok(()),
    };
}
