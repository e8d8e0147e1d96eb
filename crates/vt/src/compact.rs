//! Common styles packed into 29 bits.
//!
//! ```text
//! bits   0..9   foreground: 0 default, 1..=16 the sixteen colors, 17..=272 the palette
//!        9..18  background, encoded alike
//!       18..24  the attributes that xterm.js stores above the foreground
//!       24..29  the attributes that xterm.js stores above the background
//! ```
//! True colors, links and underline styles other than single do not fit. [`Styles`] interns
//! those in a table and returns their index with the highest bit set. The default style is 0.
//!
//! [`Styles`]: crate::style_table::Styles

use crate::style::{EXTENDED, MODE, P16, P256, Style, UNDERLINE, UNDERLINE_SHIFT};

/// Set in the number of a style that is in the table.
pub(crate) const INTERNED: u32 = 1 << 31;

const COLOR_BITS: u32 = 9;
const COLOR_CODE: u32 = (1 << COLOR_BITS) - 1;
const FLAGS: u32 = 2 * COLOR_BITS;
const FLAGS_BG: u32 = FLAGS + 6;
/// The lowest attribute bit of a color word.
const WORD: u32 = 26;
const P16_CODE: u32 = 1;
const P256_CODE: u32 = 17;

/// Packs a style, or returns `None` if it does not fit.
#[inline]
pub(crate) fn pack(style: &Style) -> Option<u32> {
    // A single underline implies its underline style; both flags are at the same bit.
    let implied = (style.fg & UNDERLINE) >> (UNDERLINE.trailing_zeros() - UNDERLINE_SHIFT);
    let other = style.link | (style.ext ^ implied) | ((style.fg ^ style.bg) & EXTENDED);
    if other | (style.bg >> 31) != 0 {
        return None;
    }
    let colors = color_code(style.fg)? | color_code(style.bg)? << COLOR_BITS;
    Some(colors | (style.fg >> WORD) << FLAGS | (style.bg >> WORD) << FLAGS_BG)
}

/// Restores the style from its packed form.
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

/// By color mode: the offset that is added to the value, and the number of values.
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
    fn a_packed_style_is_unpacked_unchanged() {
        let plain_underline = 1 << UNDERLINE_SHIFT;
        for style in [
            Style::default(),
            Style { fg: P16 | 15 | BOLD, ..Style::default() },
            Style { fg: P256 | 255 | STRIKE, bg: P256 | DIM, ..Style::default() },
            Style { fg: P16, bg: P16 | 15 | OVERLINE | PROTECTED, ..Style::default() },
            Style { fg: UNDERLINE, bg: EXTENDED, ext: plain_underline, link: 0 },
        ] {
            let packed = pack(&style).expect("a common style");
            assert_eq!(unpack(packed), style);
            assert_eq!(packed & INTERNED, 0);
        }
        assert_eq!(pack(&Style::default()), Some(0));
    }

    #[test]
    fn a_style_that_does_not_fit_is_refused() {
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
