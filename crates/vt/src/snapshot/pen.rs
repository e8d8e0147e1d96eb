//! The shortest sequence that changes one pen into another.

use crate::style::*;

/// Writes the shortest SGR sequence from one pen to another. Returns whether it overwrote the
/// saved cursor.
pub(super) fn sgr_change(out: &mut Vec<u8>, have: &mut Style, to: &Style) -> bool {
    const FG: u32 = INVERSE | BOLD | UNDERLINE | BLINK | INVISIBLE | STRIKE;
    const BG: u32 = ITALIC | DIM | OVERLINE;
    let odd = to.is_odd();
    let plain = Style::PLAIN;
    if (to.fg, to.bg & !EXTENDED & !PROTECTED, to.ext) == (plain.fg, plain.bg, plain.ext) {
        out.extend_from_slice(b"\x1b[m");
        have.bg &= !PROTECTED;
        return false;
    }
    let lost = (have.fg & !to.fg & FG) | (have.bg & !to.bg & BG);
    let same_underline = have.ext & UNDERLINE_STYLE == to.ext & UNDERLINE_STYLE;
    let unset = |from: u32, to: u32| from & COLOR != 0 && to & COLOR == 0;
    let mut sgr = Sgr::begin(out);
    if lost != 0 || odd || !same_underline || unset(have.ext, to.ext) {
        sgr.put(*b"0;");
        *have = Style { link: have.link, ..plain };
    }
    if (to.fg & !have.fg & FG) | (to.bg & !have.bg & BG) != 0 {
        sgr.attributes(have, to);
    }
    sgr.color(have.fg, to.fg, *b"3");
    sgr.color(have.bg, to.bg, *b"4");
    sgr.color(have.ext, to.ext, *b"5");
    sgr.end();
    if odd {
        out.extend_from_slice(b"\x1b7\x1b[24m\x1b8");
        if to.bg & EXTENDED == 0 {
            // Ending a link makes xterm.js clear the extended flag, since there is no style.
            out.extend_from_slice(b"\x1b]8;;\x1b\\");
        }
    }
    odd
}

/// The longest sequence has a reset, nine attributes and three true colors.
const MAX_SGR_BYTES: usize = 96;

/// A sequence being written into a buffer that fits the longest one.
struct Sgr<'a> {
    out: &'a mut Vec<u8>,
    at: usize,
}

impl<'a> Sgr<'a> {
    #[inline]
    fn begin(out: &'a mut Vec<u8>) -> Sgr<'a> {
        let at = out.len();
        out.extend_from_slice(&[0; MAX_SGR_BYTES]);
        let mut sgr = Sgr { out, at };
        sgr.put(*b"\x1b[");
        sgr
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }

    /// Writes a number of up to three digits and a semicolon.
    #[inline]
    fn number(&mut self, number: u32) {
        let (digits, count) = DIGITS[number as usize & 255];
        self.put(digits);
        self.at -= 4 - usize::from(count);
    }

    /// Writes the attributes that `have` lacks.
    fn attributes(&mut self, have: &Style, to: &Style) {
        let (fg, bg) = (to.fg & !have.fg, to.bg & !have.bg);
        for (missing, code) in [
            (fg & BOLD, 1),
            (bg & DIM, 2),
            (bg & ITALIC, 3),
            (fg & BLINK, 5),
            (fg & INVERSE, 7),
            (fg & INVISIBLE, 8),
            (fg & STRIKE, 9),
            (bg & OVERLINE, 53),
        ] {
            if missing != 0 {
                self.number(code);
            }
        }
        if fg & UNDERLINE != 0 {
            match (to.ext & UNDERLINE_STYLE) >> UNDERLINE_SHIFT {
                0 | 1 => self.put(*b"4;"),
                style => {
                    self.put(*b"4:");
                    self.number(style);
                }
            }
        }
    }

    /// Writes a color. `base` is 3, 4 or 5: foreground, background, underline.
    #[inline]
    fn color(&mut self, had: u32, want: u32, base: [u8; 1]) {
        let (had, want) = (had & COLOR, want & COLOR);
        if had == want {
            return;
        }
        let value = want & 0xff_ffff;
        match want & MODE {
            0 => {
                self.put(base);
                self.put(*b"9;");
            }
            P16 if base != *b"5" => {
                let tens = u32::from(base[0] - b'0') * 10;
                self.number(tens + (value & 7) + if value & 8 != 0 { 60 } else { 0 });
            }
            P16 | P256 => {
                self.put(base);
                self.put(*b"8;5;");
                self.number(value);
            }
            _ => {
                self.put(base);
                self.put(*b"8;2;");
                for shift in [16, 8, 0] {
                    self.number(value >> shift);
                }
            }
        }
    }

    /// Ends the sequence, replacing the last separator.
    #[inline]
    fn end(mut self) {
        if self.out[self.at - 1] == b';' {
            self.at -= 1;
        }
        self.put(*b"m");
        self.out.truncate(self.at);
    }
}

/// The digits of a byte with a semicolon, and their length.
static DIGITS: [([u8; 4], u8); 256] = digits();

const fn digits() -> [([u8; 4], u8); 256] {
    let mut all = [([b';'; 4], 0); 256];
    let mut n = 0;
    while n < 256 {
        let (h, t, u) = ((n / 100) as u8, (n / 10 % 10) as u8, (n % 10) as u8);
        let (h, t, u) = (h + b'0', t + b'0', u + b'0');
        all[n] = match n {
            0..10 => ([u, b';', b';', b';'], 2),
            10..100 => ([t, u, b';', b';'], 3),
            _ => ([h, t, u, b';'], 4),
        };
        n += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: Style, to: Style, expected: &str) {
        let mut out = Vec::new();
        sgr_change(&mut out, &mut from.clone(), &to);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn only_differences_are_written() {
        let plain = Style::default();
        let red = Style { fg: P16 | 1, ..plain };
        check(plain, red, "\x1b[31m");
        check(red, plain, "\x1b[m");
        check(red, Style { fg: P16 | 9 | BOLD, ..plain }, "\x1b[1;91m");
        check(Style { fg: BOLD, ..plain }, red, "\x1b[0;31m");
        check(plain, Style { fg: P256 | 7, bg: P256 | 200, ..plain }, "\x1b[38;5;7;48;5;200m");
        check(Style { bg: P16, ..red }, red, "\x1b[49m");
        check(plain, Style { bg: RGB | 0x01_0aff, ..plain }, "\x1b[48;2;1;10;255m");
        let underlined =
            Style { fg: UNDERLINE, bg: EXTENDED, ext: 3 << UNDERLINE_SHIFT | P256 | 99, link: 0 };
        check(plain, underlined, "\x1b[0;4:3;58;5;99m");
    }

    #[test]
    fn the_longest_change_fits_the_buffer() {
        let all = Style {
            fg: RGB | 0xff_ffff | INVERSE | BOLD | UNDERLINE | BLINK | INVISIBLE | STRIKE,
            bg: RGB | 0xff_ffff | ITALIC | DIM | OVERLINE | EXTENDED,
            ext: RGB | 0xff_ffff | 5 << UNDERLINE_SHIFT,
            link: 0,
        };
        let colors = "38;2;255;255;255;48;2;255;255;255;58;2;255;255;255";
        let expected = format!("\x1b[0;1;2;3;5;7;8;9;53;4:5;{colors}m");
        check(Style::default(), all, &expected);
    }
}
