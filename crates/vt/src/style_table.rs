//! The interned styles, by number.

use crate::compact::{self, INTERNED};
use crate::style::Style;

/// With fewer styles a sweep is not worth its scan of the screen.
const MIN_SWEEP_COUNT: usize = 2048;

/// Styles by number. Common styles are packed into their number (see [`compact`]); the others are
/// interned, and the number of a style in use never changes.
#[derive(Clone, Default)]
pub(crate) struct Styles {
    /// Index 1 is the first. A freed entry contains the default style.
    list: Vec<Style>,
    /// Hash table of numbers, 0 for an empty slot. Its size is a power of two, and it is at most
    /// half full.
    slots: Vec<u32>,
    free: Vec<u32>,
    used: usize,
    limit: usize,
}

impl Styles {
    #[inline]
    pub fn get(&self, number: u32) -> Style {
        if number & INTERNED == 0 {
            return compact::unpack(number);
        }
        let index = (number & !INTERNED) as usize;
        self.list.get(index.wrapping_sub(1)).copied().unwrap_or_default()
    }

    #[inline]
    fn slot(&self, style: &Style) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let a = u64::from(style.fg) | u64::from(style.bg) << 32;
        let b = u64::from(style.ext) | u64::from(style.link) << 32;
        let hash = (a.wrapping_mul(ODD) ^ b).wrapping_mul(ODD);
        let mut at = (hash >> 32) as usize & (self.slots.len() - 1);
        loop {
            match self.slots[at] {
                0 => return at,
                number if self.list[number as usize - 1] == *style => return at,
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Returns the number of a style, interning it if needed.
    #[inline]
    pub fn number(&mut self, style: Style) -> u32 {
        compact::pack(&style).unwrap_or_else(|| self.intern(style) | INTERNED)
    }

    fn intern(&mut self, style: Style) -> u32 {
        if self.slots.len() < (self.used + 1) * 2 {
            self.rehash();
        }
        let at = self.slot(&style);
        if self.slots[at] == 0 {
            let number = self.free.pop().unwrap_or_else(|| {
                self.list.push(Style::default());
                self.list.len() as u32
            });
            self.list[number as usize - 1] = style;
            self.slots[at] = number;
            self.used += 1;
        }
        self.slots[at]
    }

    fn rehash(&mut self) {
        let size = ((self.used + 1) * 2).next_power_of_two().max(16);
        self.slots = vec![0; size];
        for number in 1..=self.list.len() as u32 {
            let style = self.list[number as usize - 1];
            if style != Style::default() {
                let at = self.slot(&style);
                self.slots[at] = number;
            }
        }
    }

    pub fn wants_sweep(&self) -> bool {
        self.used >= self.limit.max(MIN_SWEEP_COUNT)
    }

    /// The highest index ever used, which is the size of the marks for a sweep.
    pub fn highest(&self) -> usize {
        self.list.len()
    }

    /// Removes every style whose mark is not set. The next sweep runs when twice as many styles are
    /// in use, so its cost is proportional to the input.
    pub fn sweep(&mut self, marks: &[bool]) {
        self.free.clear();
        self.used = 0;
        for (i, style) in self.list.iter_mut().enumerate() {
            if marks.get(i + 1).copied().unwrap_or(false) && *style != Style::default() {
                self.used += 1;
            } else {
                *style = Style::default();
                self.free.push(i as u32 + 1);
            }
        }
        self.rehash();
        self.limit = self.used * 2;
    }

    pub fn any_odd(&self) -> bool {
        self.list.iter().any(Style::is_odd)
    }

    pub fn heap(&self) -> usize {
        self.list.capacity() * size_of::<Style>()
            + (self.slots.capacity() + self.free.capacity()) * 4
    }

    /// Returns all interned styles.
    pub fn live(&self) -> impl Iterator<Item = Style> + '_ {
        self.list.iter().copied().filter(|style| *style != Style::default())
    }
}
