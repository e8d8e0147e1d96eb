//! A style in 29 bits, when it is one of the usual ones.
//!
//! ```text
//! bits   0..9   colour of the character: 0 default, 1..=16 the sixteen, 17..=272 of the palette
//!        9..18  colour behind it, the same way
//!       18..24  the attributes that xterm.js keeps above the first colour
//!       24..29  and those above the second
//! ```
//! True colours, links and underlines other than the plain one do not fit; [`Styles`] keeps
//! those in a table and gives out a number with the highest bit set. The default style is 0.
//!
//! [`Styles`]: crate::style_table::Styles

use crate::style::{EXTENDED, MODE, P16, P256, Style, UNDERLINE, UNDERLINE_SHIFT};

/// Marks the number of a style that does not fit.
pub(crate) const INTERNED: u32 = 1 << 31;

const COLOR_BITS: u32 = 9;
const COLOR_CODE: u32 = (1 << COLOR_BITS) - 1;
const FLAGS: u32 = 2 * COLOR_BITS;
const FLAGS_BG: u32 = FLAGS + 6;
/// Attributes stand above this bit of a colour word.
const WORD: u32 = 26;
const P16_CODE: u32 = 1;
const P256_CODE: u32 = 17;

/// The style in few bits, or nothing when it does not fit.
#[inline]
pub(crate) fn pack(style: &Style) -> Option<u32> {
    // A plain underline implies its style; the flags for both stand at the same bit.
    let implied = (style.fg & UNDERLINE) >> (UNDERLINE.trailing_zeros() - UNDERLINE_SHIFT);
    let odd = style.link | (style.ext ^ implied) | ((style.fg ^ style.bg) & EXTENDED);
    if odd | (style.bg >> 31) != 0 {
        return None;
    }
    let colors = color_code(style.fg)? | color_code(style.bg)? << COLOR_BITS;
    Some(colors | (style.fg >> WORD) << FLAGS | (style.bg >> WORD) << FLAGS_BG)
}

/// The style that was packed.
#[inline]
pub(crate) fn unpack(packed: u32) -> Style {
    let fg = color_word(fg_code(packed)) | (packed >> FLAGS & 0x3f) << WORD;
    let bg = color_word(bg_code(packed)) | (packed >> FLAGS_BG & 0x1f) << WORD;
    let ext = (fg & UNDERLINE) >> (UNDERLINE.trailing_zeros() - UNDERLINE_SHIFT);
    Style { fg, bg, ext, link: 0 }
}

#[inline]
pub(crate) fn fg_code(packed: u32) -> u32 {
    packed & COLOR_CODE
}

#[inline]
pub(crate) fn bg_code(packed: u32) -> u32 {
    packed >> COLOR_BITS & COLOR_CODE
}

/// By mode: what is added to a colour's value, and how many values there are.
const CODES: [(u32, u32); 4] = [(0, 1), (P16_CODE, 16), (P256_CODE, 256), (0, 0)];

#[inline]
fn color_code(word: u32) -> Option<u32> {
    let value = word & 0xff_ffff;
    let (first, count) = CODES[((word & MODE) / P16) as usize];
    (value < count).then_some(first + value)
}

#[inline]
fn color_word(code: u32) -> u32 {
    match code {
        0 => 0,
        P16_CODE..P256_CODE => P16 | (code - P16_CODE),
        _ => P256 | (code - P256_CODE) & 0xff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{BOLD, DIM, OVERLINE, PROTECTED, RGB, STRIKE};

    #[test]
    fn what_fits_comes_back_as_it_was() {
        let plain_underline = 1 << UNDERLINE_SHIFT;
        for style in [
            Style::default(),
            Style { fg: P16 | 15 | BOLD, ..Style::default() },
            Style { fg: P256 | 255 | STRIKE, bg: P256 | DIM, ..Style::default() },
            Style { fg: P16, bg: P16 | 15 | OVERLINE | PROTECTED, ..Style::default() },
            Style { fg: UNDERLINE, bg: EXTENDED, ext: plain_underline, link: 0 },
        ] {
            let packed = pack(&style).expect("a usual style");
            assert_eq!(unpack(packed), style);
            assert_eq!(packed & INTERNED, 0);
        }
        assert_eq!(pack(&Style::default()), Some(0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let plain_underline = 1 << UNDERLINE_SHIFT;
        for style in [
            Style { fg: RGB | 0x12_3456, ..Style::default() },
            Style { bg: RGB, ..Style::default() },
            Style { fg: UNDERLINE, ..Style::default() },
            Style { fg: UNDERLINE, bg: EXTENDED, ext: 3 << UNDERLINE_SHIFT, link: 0 },
            Style { fg: UNDERLINE, bg: EXTENDED, ext: plain_underline | P16, link: 0 },
            Style { bg: EXTENDED, link: 1, ..Style::default() },
            Style { fg: P16 | 16, ..Style::default() },
            Style { fg: P256 | 256, ..Style::default() },
        ] {
            assert_eq!(pack(&style), None, "{style:x?}");
        }
    }
}
