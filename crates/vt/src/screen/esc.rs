//! Control characters and escape sequences.

use super::{Charsets, KeyboardFlags, Modes, Screen, ScreenEvent, charset};
use crate::grid::buffer::Buffer;
use crate::grid::cell::Cell;
use crate::style::Style;

impl Screen {
    /// Executes a C0 or C1 control character.
    pub(super) fn execute(&mut self, code: u8) {
        if self.margin_wrap.is_some() {
            self.margin_wrap = None;
        }
        match code {
            0x07 => self.event(ScreenEvent::Bell),
            0x08 => self.backspace(),
            0x09 => self.tab(1),
            0x0a..=0x0c => self.line_feed(),
            0x0d => self.carriage_return(),
            0x0e => self.charsets.invoke(1),
            0x0f => self.charsets.invoke(0),
            0x84 => self.index(),
            0x85 => self.next_line(),
            0x88 => self.set_tab(),
            _ => {}
        }
    }

    fn next_line(&mut self) {
        // Index first: a cursor outside the side margins must not scroll the region between them.
        self.index();
        self.carriage_return();
    }

    fn set_tab(&mut self) {
        self.buf.tabs.set(self.buf.x, self.cols);
    }

    pub(super) fn dispatch_esc(&mut self, last: u8) {
        self.margin_wrap = None;
        let Some(collected) = self.parser.collected() else { return };
        let intermediate = match collected {
            [] => 0,
            [one] => *one,
            _ => return,
        };
        match (intermediate, last) {
            (0, b'7') => self.save_cursor(),
            (0, b'8') => self.restore_cursor(),
            (0, b'6') => self.back_index(),
            (0, b'9') => self.forward_index(),
            (0, b'D') => self.index(),
            (0, b'E') => self.next_line(),
            (0, b'H') => self.set_tab(),
            (0, b'M') => self.reverse_index(),
            (0, b'=') => self.modes.app_keypad = true,
            (0, b'>') => self.modes.app_keypad = false,
            (0, b'Z') => self.reply(b"\x1b[?1;2c"),
            (0, b'c') => self.full_reset(),
            (0, b'n' | b'}') => self.charsets.invoke(2),
            (0, b'o' | b'|') => self.charsets.invoke(3),
            (0, b'~') => self.charsets.invoke(1),
            (b'%', b'@' | b'G') => {
                self.charsets.invoke(0);
                self.charsets.designate(0, b'B');
            }
            (b'(' | b')' | b'*' | b'+' | b'-' | b'.', set) if charset::is_known(set) => {
                let level = match intermediate {
                    b'(' => 0,
                    b')' | b'-' => 1,
                    b'*' | b'.' => 2,
                    _ => 3,
                };
                self.charsets.designate(level, set);
            }
            (b'#', b'8') => self.fill_with_e(),
            _ => {}
        }
    }

    /// DECBI: moves the cursor left. At the left margin it shifts the columns right instead.
    fn back_index(&mut self) {
        self.restrict();
        if self.buf.x == self.shift_start() {
            self.shift_columns(super::erase::Shift::Right, self.buf.x, 1);
        } else {
            self.buf.x = self.buf.x.saturating_sub(1);
        }
    }

    /// DECFI: moves the cursor right. At the right margin it shifts the columns left instead.
    fn forward_index(&mut self) {
        self.restrict();
        let right = if self.modes.margins { self.buf.margins.right } else { self.cols - 1 };
        if self.buf.x == right {
            self.shift_columns(super::erase::Shift::Left, self.shift_start(), 1);
        } else {
            self.buf.x = (self.buf.x + 1).min(self.cols - 1);
        }
    }

    /// RIS. As in xterm.js it keeps title, cursor visibility and line feed mode.
    pub(super) fn full_reset(&mut self) {
        self.parser.reset();
        let limit = self.normal().scrollback.limit();
        self.buf = Buffer::new(self.cols, self.rows, limit);
        self.buf.fill(Cell::NULL);
        self.other = Buffer::new(self.cols, self.rows, 0);
        self.alt = false;
        self.modes = Modes {
            cursor_hidden: self.modes.cursor_hidden,
            line_feed: self.modes.line_feed,
            blink: self.modes.blink,
            ..Modes::default()
        };
        self.charsets = Charsets::default();
        self.keyboard = KeyboardFlags::default();
        self.colors = None;
        self.set_pen(Style::default());
        self.sweep();
    }

    /// DECSTR: resets modes, margins, character sets and the pen.
    pub(super) fn soft_reset(&mut self) {
        self.modes = Modes {
            line_feed: self.modes.line_feed,
            blink: self.modes.blink,
            mouse: self.modes.mouse,
            mouse_encoding: self.modes.mouse_encoding,
            reverse_video: self.modes.reverse_video,
            level: self.modes.level,
            ..Modes::default()
        };
        self.buf.margins = crate::grid::buffer::Margins::full(self.cols, self.rows);
        self.charsets = Charsets::default();
        self.set_pen(Style::default());
        self.buf.saved = crate::grid::buffer::Saved { y: self.buf.base(), ..Default::default() };
    }
}
