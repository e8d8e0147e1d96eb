//! SGR: colors and attributes of the pen.

use super::Screen;
use crate::parser::{MISSING, Params};
use crate::style::*;

impl Screen {
    pub(super) fn sgr(&mut self) {
        self.pen_number = None;
        apply(&mut self.pen, &self.parser.params);
    }
}

pub(super) fn apply(pen: &mut Style, params: &Params) {
    let mut i = 0;
    while i < params.len() {
        let p = params.get(i);
        match p {
            0 => pen.reset(),
            30..=37 => pen.fg = palette(pen.fg, P16, p - 30),
            40..=47 => pen.bg = palette(pen.bg, P16, p - 40),
            90..=97 => pen.fg = palette(pen.fg, P16, p - 90 + 8),
            100..=107 => pen.bg = palette(pen.bg, P16, p - 100 + 8),
            // By far the most frequent extended color.
            38 | 48 if params.get(i + 1) == 5 && i + 2 < params.len() && !params.has_subs() => {
                let word = if p == 38 { &mut pen.fg } else { &mut pen.bg };
                *word = palette(*word, P256, params.get(i + 2) & 255);
                i += 2;
            }
            38 | 48 | 58 => i += extended(pen, params, i),
            39 => pen.fg &= !COLOR,
            49 => pen.bg &= !COLOR,
            // xterm.js stores "none" as the color with all bits set, which is white.
            59 => {
                pen.ext |= COLOR;
                pen.update_extended();
            }
            1 => pen.fg |= BOLD,
            2 => pen.bg |= DIM,
            3 => pen.bg |= ITALIC,
            4 => underline(pen, params.subs(i).first().copied().unwrap_or(1)),
            5 => pen.fg |= BLINK,
            7 => pen.fg |= INVERSE,
            8 => pen.fg |= INVISIBLE,
            9 => pen.fg |= STRIKE,
            21 => underline(pen, 2),
            22 => {
                pen.fg &= !BOLD;
                pen.bg &= !DIM;
            }
            23 => pen.bg &= !ITALIC,
            24 => underline(pen, 0),
            25 => pen.fg &= !BLINK,
            27 => pen.fg &= !INVERSE,
            28 => pen.fg &= !INVISIBLE,
            29 => pen.fg &= !STRIKE,
            53 => pen.bg |= OVERLINE,
            55 => pen.bg &= !OVERLINE,
            _ => {}
        }
        i += 1;
    }
}

fn palette(word: u32, mode: u32, index: i32) -> u32 {
    (word & !COLOR) | mode | index as u32
}

fn underline(pen: &mut Style, style: i32) {
    let style = if (0..=5).contains(&style) { style as u32 } else { 1 };
    if style == 0 {
        pen.fg &= !UNDERLINE;
    } else {
        pen.fg |= UNDERLINE;
    }
    pen.set_underline_style(style);
}

/// Applies 38, 48 or 58, with semicolons or colons. Returns how many further parameters were used.
fn extended(pen: &mut Style, params: &Params, at: usize) -> usize {
    // Target, mode, color space, then the values.
    let mut values = [0, 0, MISSING, 0, 0, 0];
    let mut space = 0;
    let mut used = 0;
    loop {
        values[used + space] = params.get(at + used);
        let subs = params.subs(at + used);
        if !subs.is_empty() {
            for (i, sub) in subs.iter().enumerate() {
                if values[1] == 5 {
                    space = 1;
                }
                let slot = used + i + 1 + space;
                if slot >= values.len() {
                    break;
                }
                values[slot] = *sub;
            }
            break;
        }
        if (values[1] == 5 && used + space >= 2) || (values[1] == 2 && used + space >= 5) {
            break;
        }
        if values[1] != 0 {
            space = 1;
        }
        used += 1;
        if at + used >= params.len() || used + space >= values.len() {
            break;
        }
    }
    for value in &mut values[2..] {
        if *value == MISSING {
            *value = 0;
        }
    }
    let [target, mode, _, a, b, c] = values;
    let color = |word: u32| match mode {
        2 => {
            let [r, g, b] = [a, b, c].map(|v| v as u32 & 255);
            (word & !COLOR) | RGB | r << 16 | g << 8 | b
        }
        5 => palette(word, P256, a & 255),
        _ => word,
    };
    match target {
        38 => pen.fg = color(pen.fg),
        48 => pen.bg = color(pen.bg),
        _ => pen.ext = color(pen.ext),
    }
    used
}
