//! Colors and attributes of a cell.
//!
//! The fields have the layout of xterm.js, so that every state a program can reach there (such as
//! an underline flag without an underline style) can be represented here.
/// Color mode and value share the low 26 bits of `fg`, `bg` and `ext`.
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

/// All attributes that SGR, DECSCA and OSC 8 give to a cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Style {
    pub fg: u32,
    pub bg: u32,
    /// Underline color in the low bits, underline style above it.
    pub ext: u32,
    /// The number of the hyperlink, or 0.
    pub link: u32,
}

impl Style {
    pub const PLAIN: Style = Style { fg: 0, bg: 0, ext: 0, link: 0 };

    /// Whether an erase can leave cells of this style.
    pub fn is_erased(&self) -> bool {
        *self == self.erase()
    }

    /// The style of erased cells: only the background color.
    pub fn erase(&self) -> Style {
        Style { bg: self.bg & COLOR, ..Style::default() }
    }

    /// The part of a pen that a cell stores: the extended attributes only if they are active.
    #[inline]
    pub fn for_cell(self) -> Style {
        if self.fg & UNDERLINE == 0 && self.bg & EXTENDED == 0 {
            return Style { ext: 0, link: 0, ..self };
        }
        let pen = self.settled();
        if pen.bg & EXTENDED == 0 { Style { ext: 0, link: 0, ..pen } } else { pen }
    }

    /// The pen without state that only a saved pen could restore: an inactive underline style or
    /// link.
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
            // A link overrides the underline style.
            pen.ext |= 1 << UNDERLINE_SHIFT;
        }
        pen
    }

    /// Whether this is underlined without an underline style: DECSC saves the one and not the
    /// other. Such a pen can only be set through a saved cursor, which also ends a pending wrap.
    pub fn is_odd(&self) -> bool {
        self.fg & UNDERLINE != 0 && self.underline_style() == 0
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

    /// SGR 0: resets everything except the hyperlink.
    pub fn reset(&mut self) {
        self.fg = 0;
        self.bg = 0;
        self.ext = 0;
        self.update_extended();
    }
}

impl Style {
    /// Returns the SGR parameters that set any pen to this style.
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
