//! Dispatch of control sequences.

use super::Screen;
use super::erase::Shift;
use crate::grid::row::Spare;
use crate::style::{PROTECTED, Style};

impl Screen {
    pub(super) fn dispatch_csi(&mut self, last: u8) {
        if self.margin_wrap.is_some() && last != b'm' {
            self.margin_wrap = None;
        }
        let Some(collected) = self.parser.collected() else { return };
        match *collected {
            [] => self.csi(last),
            [b'?'] => self.csi_private(last),
            [prefix @ (b'<' | b'=' | b'>')] => self.csi_prefixed(prefix, last),
            [intermediate] => self.csi_intermediate(intermediate, last),
            [b'?', b'$'] if last == b'p' => self.report_private_mode(),
            _ => {}
        }
    }

    fn first(&self) -> i32 {
        self.parser.params.get(0)
    }

    /// Returns the first parameter as a count: 0 means 1.
    fn count(&self) -> usize {
        self.parser.params.count(0)
    }

    fn csi(&mut self, last: u8) {
        match last {
            b'm' => self.sgr(),
            b'H' | b'f' => {
                let params = &self.parser.params;
                let (row, col) = (params.count(0), params.count(1));
                self.move_to(col as i64 - 1, row as i64 - 1);
            }
            b'A' => self.move_rows(-(self.count() as i64)),
            b'B' => self.move_rows(self.count() as i64),
            b'C' | b'a' => self.move_cols(self.count() as i64),
            b'D' => self.move_cols(-(self.count() as i64)),
            b'E' => {
                self.move_rows(self.count() as i64);
                self.carriage_return();
            }
            b'F' => {
                self.move_rows(-(self.count() as i64));
                self.carriage_return();
            }
            b'G' | b'`' => self.col_absolute(self.count() as i64 - 1),
            b'd' => self.row_absolute(self.count() as i64 - 1),
            b'e' => self.move_by(0, self.count() as i64),
            b'I' => self.tab(self.count()),
            b'Z' => self.back_tab(self.count()),
            b'J' => self.erase_in_display(self.first(), Spare::None),
            b'K' => self.erase_in_line(self.first(), Spare::None),
            b'X' => self.erase_chars(self.count()),
            b'@' => self.insert_chars(self.count()),
            b'P' => self.delete_chars(self.count()),
            b'L' => self.insert_lines(self.count()),
            b'M' => self.delete_lines(self.count()),
            b'S' => self.scroll_up(self.count()),
            b'T' => self.scroll_down(self.count()),
            b'b' => self.repeat(self.count()),
            b'g' => self.clear_tabs(),
            b'h' => self.set_ansi_modes(true),
            b'l' => self.set_ansi_modes(false),
            b'r' => self.set_region(),
            b's' => self.save_or_set_margins(),
            b'u' => self.restore_cursor(),
            b'c' => self.primary_attributes(),
            b'n' => self.device_status(),
            b't' => self.window(),
            b'x' => self.terminal_parameters(),
            _ => {}
        }
    }

    fn csi_private(&mut self, last: u8) {
        match last {
            b'h' => self.set_private_modes(true),
            b'l' => self.set_private_modes(false),
            b'J' => self.erase_in_display(self.first(), Spare::Protected),
            b'K' => self.erase_in_line(self.first(), Spare::Protected),
            b'm' => self.report_key_modifiers(),
            b'n' => self.private_device_status(),
            b's' => self.save_private_modes(),
            b'r' => self.restore_private_modes(),
            b'W' if self.first() == 5 => self.buf.tabs = Default::default(),
            _ => {}
        }
    }

    fn csi_prefixed(&mut self, prefix: u8, last: u8) {
        let params = &self.parser.params;
        match (prefix, last) {
            (b'>', b'c') => self.secondary_attributes(),
            (b'=', b'c') => self.tertiary_attributes(),
            (b'>', b'q') => self.report_version(),
            (b'>', b'm') => self.set_key_modifiers(),
            (b'>', b'n') if params.get(0) == 4 => self.keyboard.modify_other_keys = 0,
            (b'>', b'u') => self.keyboard.push(self.alt, params.get(0)),
            (b'<', b'u') => self.keyboard.pop(self.alt, params.count(0)),
            (b'=', b'u') => {
                let (flags, mode) = (params.get(0), params.get(1));
                self.keyboard.set(self.alt, flags, mode);
            }
            _ => {}
        }
    }

    fn csi_intermediate(&mut self, intermediate: u8, last: u8) {
        match (intermediate, last) {
            (b' ', b'@') => self.shift_columns(Shift::Left, self.shift_start(), self.count()),
            (b' ', b'A') => self.shift_columns(Shift::Right, self.shift_start(), self.count()),
            (b'\'', b'}') => self.shift_columns(Shift::Right, self.buf.x, self.count()),
            (b'\'', b'~') => self.shift_columns(Shift::Left, self.buf.x, self.count()),
            (b' ', b'q') => self.modes.set_cursor_style(self.parser.params.get(0)),
            (b'!', b'p') => self.soft_reset(),
            (b'"', b'p') => self.set_level(),
            (b'"', b'q') => self.protect(),
            (b'$', b'p') => self.report_ansi_mode(),
            (b'$', b'r' | b't') => self.change_rect_attributes(last),
            (b'$', b'v') => self.copy_rect(),
            (b'$', b'x') => self.fill_rect(),
            (b'$', b'z') => self.erase_rect(Spare::None),
            (b'$', b'{') => self.erase_rect(Spare::Protected),
            (b'*', b'x') => self.modes.rect_exact = self.first() == 2,
            (b'*', b'y') => self.report_checksum(),
            _ => {}
        }
    }

    fn clear_tabs(&mut self) {
        match self.first() {
            0 => self.buf.tabs.unset(self.buf.x, self.cols),
            3 => self.buf.tabs.unset_all(self.cols),
            _ => {}
        }
    }

    /// DECSCA: protects following characters from selective erase.
    fn protect(&mut self) {
        let bg = match self.first() {
            1 => self.pen.bg | PROTECTED,
            0 | 2 => self.pen.bg & !PROTECTED,
            _ => return,
        };
        self.set_pen(Style { bg, ..self.pen });
    }

    /// DECSTBM: sets top and bottom margins.
    fn set_region(&mut self) {
        let top = self.count();
        let mut bottom = self.parser.params.get(1).max(0) as usize;
        if bottom == 0 || bottom > self.rows {
            bottom = self.rows;
        }
        if bottom > top {
            self.buf.margins.top = top - 1;
            self.buf.margins.bottom = bottom - 1;
            self.move_to(0, 0);
        }
    }

    /// `CSI s` saves the cursor, or sets the side margins if DECLRMM is set.
    fn save_or_set_margins(&mut self) {
        if !self.modes.margins {
            return self.save_cursor();
        }
        let left = self.count();
        let mut right = self.parser.params.get(1).max(0) as usize;
        if right == 0 || right > self.cols {
            right = self.cols;
        }
        if right > left {
            self.buf.margins.left = left - 1;
            self.buf.margins.right = right - 1;
            self.move_to(0, 0);
        }
    }
}
