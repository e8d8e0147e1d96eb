//! Terminal modes: set, reset, reported, saved and restored.

use super::Screen;
use crate::grid::buffer::Margins;

/// The keyboard, mouse and display modes that the program set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modes {
    /// DECCKM: cursor keys send application sequences.
    pub app_cursor: bool,
    /// DECKPAM: the keypad sends application sequences.
    pub app_keypad: bool,
    /// Pasted text is bracketed.
    pub bracketed_paste: bool,
    /// IRM: a printed character shifts the rest of the line.
    pub insert: bool,
    /// DECOM: rows are counted from the top of the region.
    pub origin: bool,
    /// Backspace at the start of a line moves to the end of the line above.
    pub reverse_wrap: bool,
    /// Focus changes are reported.
    pub send_focus: bool,
    /// The program is in the middle of a synchronized update.
    pub synchronized: bool,
    /// DECAWM: lines wrap.
    pub wrap: bool,
    /// LNM: a line feed is also a carriage return.
    pub line_feed: bool,
    /// DECSCNM: the whole screen is in reverse video.
    pub reverse_video: bool,
    /// DECLRMM: side margins can be set.
    pub margins: bool,
    /// DECTCEM is reset: the cursor is hidden.
    pub cursor_hidden: bool,
    /// The cursor blinks unless its style overrides that.
    pub blink: bool,
    /// Shape and blinking of the cursor, if the program chose them.
    pub cursor_style: Option<(CursorShape, bool)>,
    /// Which mouse events are reported.
    pub mouse: MouseMode,
    /// The format of mouse reports.
    pub mouse_encoding: MouseEncoding,
    /// DECSACE: attribute changes apply to the rectangle, not to the stream of characters.
    pub(crate) rect_exact: bool,
    /// DECSCL: the conformance level, and whether controls are sent as 7 bits.
    pub(crate) level: (u8, u8),
    /// Modes that are stored but have no effect here, one bit each.
    pub(crate) inert: u64,
    /// The private modes that XTSAVE saved: which, and their values.
    pub(crate) kept: (u64, u64),
}

/// The shape of the cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CursorShape {
    /// A block.
    Block,
    /// A line beneath.
    Underline,
    /// A bar at the left.
    Bar,
}

/// Which mouse events are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MouseMode {
    /// None.
    #[default]
    None,
    /// Presses.
    X10,
    /// Presses and releases.
    Vt200,
    /// Presses, releases, and motion while a button is down.
    Drag,
    /// Presses, releases and all motion.
    Any,
}

/// The format of a mouse report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MouseEncoding {
    /// Three bytes.
    #[default]
    Default,
    /// Decimal numbers.
    Sgr,
    /// Decimal numbers, in pixels.
    SgrPixels,
}

impl Default for Modes {
    fn default() -> Self {
        Modes {
            app_cursor: false,
            app_keypad: false,
            bracketed_paste: false,
            insert: false,
            origin: false,
            reverse_wrap: false,
            send_focus: false,
            synchronized: false,
            wrap: true,
            line_feed: false,
            reverse_video: false,
            margins: false,
            cursor_hidden: false,
            blink: false,
            cursor_style: None,
            mouse: MouseMode::None,
            mouse_encoding: MouseEncoding::Default,
            rect_exact: false,
            level: (61, 1),
            inert: 0,
            kept: (0, 0),
        }
    }
}

/// Private modes without effect on the screen. The index is the bit.
const INERT: [i32; 30] = [
    2, 4, 18, 19, 34, 35, 36, 40, 41, 42, 57, 60, 61, 64, 68, 73, 81, 95, 96, 97, 98, 99, 100, 101,
    102, 103, 104, 106, 1007, 1034,
];
/// ANSI modes without effect on the screen.
const INERT_ANSI: [i32; 1] = [12];
/// Modes that XTSAVE supports. The index is the bit.
const SAVABLE: [i32; 22] = [
    1, 5, 6, 7, 9, 12, 25, 45, 47, 66, 69, 1000, 1002, 1003, 1004, 1006, 1016, 1047, 1049, 2004,
    40, 41,
];

impl Modes {
    /// DECSCUSR: sets shape and blinking of the cursor.
    pub(super) fn set_cursor_style(&mut self, style: i32) {
        let shape = match style {
            0 => {
                self.cursor_style = None;
                return;
            }
            1 | 2 => CursorShape::Block,
            3 | 4 => CursorShape::Underline,
            5 | 6 => CursorShape::Bar,
            _ => self.cursor_style.map_or(CursorShape::Block, |(shape, _)| shape),
        };
        self.cursor_style = Some((shape, style % 2 == 1));
    }

    /// Returns the DECSCUSR parameter for the current style, or 0 if none was chosen.
    pub(crate) fn cursor_style_param(&self) -> u8 {
        match self.cursor_style {
            None => 0,
            Some((shape, blink)) => {
                let steady = match shape {
                    CursorShape::Block => 2,
                    CursorShape::Underline => 4,
                    CursorShape::Bar => 6,
                };
                steady - u8::from(blink)
            }
        }
    }

    /// Returns the modes without effect that are set.
    pub(crate) fn inert_set(&self) -> impl Iterator<Item = i32> {
        let bits = self.inert;
        INERT.into_iter().enumerate().filter(move |(i, _)| bits >> i & 1 != 0).map(|(_, mode)| mode)
    }

    fn private(&mut self, mode: i32) -> Option<&mut bool> {
        Some(match mode {
            1 => &mut self.app_cursor,
            5 => &mut self.reverse_video,
            6 => &mut self.origin,
            7 => &mut self.wrap,
            12 => &mut self.blink,
            45 => &mut self.reverse_wrap,
            66 => &mut self.app_keypad,
            69 => &mut self.margins,
            1004 => &mut self.send_focus,
            2004 => &mut self.bracketed_paste,
            2026 => &mut self.synchronized,
            _ => return None,
        })
    }
}

fn inert_bit(list: &[i32], mode: i32) -> Option<u32> {
    list.iter().position(|m| *m == mode).map(|at| at as u32)
}

impl Screen {
    pub(super) fn set_ansi_modes(&mut self, on: bool) {
        for i in 0..self.parser.params.len() {
            match self.parser.params.get(i) {
                4 => self.modes.insert = on,
                20 => self.modes.line_feed = on,
                _ => {}
            }
        }
    }

    pub(super) fn set_private_modes(&mut self, on: bool) {
        for i in 0..self.parser.params.len() {
            self.set_private_mode(self.parser.params.get(i), on);
        }
    }

    fn set_private_mode(&mut self, mode: i32, on: bool) {
        if let Some(flag) = self.modes.private(mode) {
            *flag = on;
        }
        match mode {
            2 if on => {
                self.charsets = super::Charsets { level: self.charsets.level, ..Default::default() }
            }
            6 => self.move_to(0, 0),
            9 => self.modes.mouse = if on { MouseMode::X10 } else { MouseMode::None },
            1000 => self.modes.mouse = if on { MouseMode::Vt200 } else { MouseMode::None },
            1002 => self.modes.mouse = if on { MouseMode::Drag } else { MouseMode::None },
            1003 => self.modes.mouse = if on { MouseMode::Any } else { MouseMode::None },
            1006 => {
                self.modes.mouse_encoding =
                    if on { MouseEncoding::Sgr } else { MouseEncoding::Default }
            }
            1016 => {
                self.modes.mouse_encoding =
                    if on { MouseEncoding::SgrPixels } else { MouseEncoding::Default }
            }
            25 => self.modes.cursor_hidden = !on,
            69 if !on => {
                let Margins { top, bottom, .. } = self.buf.margins;
                self.buf.margins = Margins { top, bottom, ..Margins::full(self.cols, self.rows) };
            }
            1048 if on => self.save_cursor(),
            1048 => self.restore_cursor(),
            1049 if on => {
                self.save_cursor();
                self.show_alternate();
            }
            1049 => {
                self.show_normal();
                self.restore_cursor();
            }
            47 | 1047 if on => self.show_alternate(),
            47 | 1047 => self.show_normal(),
            _ => {}
        }
        if let Some(bit) = inert_bit(&INERT, mode) {
            self.modes.inert = self.modes.inert & !(1 << bit) | u64::from(on) << bit;
        }
    }

    pub(super) fn show_alternate(&mut self) {
        if self.alt {
            return;
        }
        let fill = self.erased();
        self.other.fill(fill);
        self.other.x = self.buf.x;
        self.other.y = self.buf.y;
        std::mem::swap(&mut self.buf, &mut self.other);
        self.alt = true;
    }

    pub(super) fn show_normal(&mut self) {
        if !self.alt {
            return;
        }
        self.other.x = self.buf.x;
        self.other.y = self.buf.y;
        self.buf.clear();
        std::mem::swap(&mut self.buf, &mut self.other);
        self.alt = false;
    }

    fn private_mode(&mut self, mode: i32) -> Option<bool> {
        let modes = &mut self.modes;
        if let Some(flag) = modes.private(mode) {
            return Some(*flag);
        }
        if let Some(bit) = inert_bit(&INERT, mode) {
            return Some(modes.inert >> bit & 1 != 0);
        }
        Some(match mode {
            9 => modes.mouse == MouseMode::X10,
            1000 => modes.mouse == MouseMode::Vt200,
            1002 => modes.mouse == MouseMode::Drag,
            1003 => modes.mouse == MouseMode::Any,
            1006 => modes.mouse_encoding == MouseEncoding::Sgr,
            1016 => modes.mouse_encoding == MouseEncoding::SgrPixels,
            25 => !modes.cursor_hidden,
            47 | 1047 | 1049 => self.alt,
            1048 => true,
            _ => return None,
        })
    }

    pub(super) fn report_private_mode(&mut self) {
        let mode = self.parser.params.get(0);
        let value = match mode {
            8 => 3,
            67 | 1005 | 1015 => 4,
            _ => match self.private_mode(mode) {
                Some(true) => 1,
                Some(false) => 2,
                None => 0,
            },
        };
        self.reply(format!("\x1b[?{mode};{value}$y").as_bytes());
    }

    pub(super) fn report_ansi_mode(&mut self) {
        let mode = self.parser.params.get(0);
        let value = match mode {
            // ECMA-48 modes that terminals of this kind do not implement.
            1 | 2 | 5 | 7 | 10 | 11 | 13..=19 => 4,
            4 => 2 - i32::from(self.modes.insert),
            20 => 2 - i32::from(self.modes.line_feed),
            _ if INERT_ANSI.contains(&mode) => 3,
            _ => 0,
        };
        self.reply(format!("\x1b[{mode};{value}$y").as_bytes());
    }

    /// XTSAVE: saves private modes.
    pub(super) fn save_private_modes(&mut self) {
        for i in 0..self.parser.params.len() {
            let mode = self.parser.params.get(i);
            if let Some(bit) = inert_bit(&SAVABLE, mode)
                && let Some(on) = self.private_mode(mode)
            {
                let (known, value) = &mut self.modes.kept;
                *known |= 1 << bit;
                *value = *value & !(1 << bit) | u64::from(on) << bit;
            }
        }
    }

    /// XTRESTORE: restores saved private modes.
    pub(super) fn restore_private_modes(&mut self) {
        for i in 0..self.parser.params.len() {
            let mode = self.parser.params.get(i);
            if let Some(bit) = inert_bit(&SAVABLE, mode)
                && self.modes.kept.0 >> bit & 1 != 0
            {
                self.set_private_mode(mode, self.modes.kept.1 >> bit & 1 != 0);
            }
        }
    }
}
