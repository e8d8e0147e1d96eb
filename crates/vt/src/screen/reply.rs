//! Replies to queries. They consist of digits and a few fixed letters only: output of a program
//! is never echoed back as input.

use super::Screen;

impl Screen {
    pub(super) fn primary_attributes(&mut self) {
        if self.parser.params.get(0) <= 0 {
            self.reply(b"\x1b[?1;2c");
        }
    }

    pub(super) fn secondary_attributes(&mut self) {
        if self.parser.params.get(0) <= 0 {
            self.reply(b"\x1b[>0;276;0c");
        }
    }

    pub(super) fn tertiary_attributes(&mut self) {
        if self.parser.params.get(0) <= 0 {
            self.reply(b"\x1bP!|00000000\x1b\\");
        }
    }

    /// XTVERSION: reports name and version.
    pub(super) fn report_version(&mut self) {
        if self.parser.params.get(0) == 0 {
            self.reply(concat!("\x1bP>|stead(", env!("CARGO_PKG_VERSION"), ")\x1b\\").as_bytes());
        }
    }

    fn position(&self) -> (usize, usize) {
        let margins = self.buf.margins;
        // While a wrap is pending, the cursor is still in the last column.
        let (x, y) = (self.buf.x.min(self.cols - 1), self.buf.y);
        // Only side margins, which xterm.js does not support, change how positions are counted.
        if self.modes.origin && self.modes.margins {
            return (y.saturating_sub(margins.top) + 1, x.saturating_sub(margins.left) + 1);
        }
        (y + 1, x + 1)
    }

    pub(super) fn device_status(&mut self) {
        match self.parser.params.get(0) {
            5 => self.reply(b"\x1b[0n"),
            6 => {
                let (row, col) = self.position();
                self.reply(format!("\x1b[{row};{col}R").as_bytes());
            }
            _ => {}
        }
    }

    pub(super) fn private_device_status(&mut self) {
        match self.parser.params.get(0) {
            6 => {
                let (row, col) = self.position();
                self.reply(format!("\x1b[?{row};{col}R").as_bytes());
            }
            // No printer, no user-defined keys, a North American keyboard as reported by the
            // terminal type of DA2, no locator.
            15 => self.reply(b"\x1b[?13n"),
            25 => self.reply(b"\x1b[?20n"),
            26 => self.reply(b"\x1b[?27;1n"),
            53 | 55 => self.reply(b"\x1b[?50n"),
            56 => self.reply(b"\x1b[?57;0n"),
            62 => self.reply(b"\x1b[0*{"),
            63 => {
                let id = self.parser.params.get(1).clamp(0, 0xffff);
                self.reply(format!("\x1bP{id}!~0000\x1b\\").as_bytes());
            }
            75 => self.reply(b"\x1b[?70n"),
            85 => self.reply(b"\x1b[?83n"),
            _ => {}
        }
    }

    /// DECREQTPARM: reports communication parameters.
    pub(super) fn terminal_parameters(&mut self) {
        if let which @ 0..=1 = self.parser.params.get(0) {
            self.reply(format!("\x1b[{};1;1;128;128;1;0x", which + 2).as_bytes());
        }
    }

    /// XTMODKEYS: sets the mode modifyOtherKeys.
    pub(super) fn set_key_modifiers(&mut self) {
        let params = &self.parser.params;
        if params.get(0) == 4 {
            self.keyboard.modify_other_keys = params.get(1).clamp(0, 2) as u8;
        } else if params.get(0) == 0 && params.len() == 1 {
            self.keyboard.modify_other_keys = 0;
        }
    }

    pub(super) fn report_key_modifiers(&mut self) {
        if self.parser.params.get(0) == 4 {
            let value = self.keyboard.modify_other_keys;
            self.reply(format!("\x1b[>4;{value}m").as_bytes());
        }
    }

    /// DECSCL: sets the conformance level.
    pub(super) fn set_level(&mut self) {
        let params = &self.parser.params;
        let (level, bits) = (params.get(0), params.get(1));
        if (61..=65).contains(&level) {
            self.soft_reset();
            self.modes.level = (level as u8, u8::from(bits == 1 || level == 61));
        }
    }
}
