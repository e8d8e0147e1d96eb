//! Device control strings: queries for settings and capabilities. The parser skips images.

use super::Screen;
use crate::style::*;

impl Screen {
    /// Whether the string with this header is a query that we answer.
    pub(super) fn wants_dcs(&self, last: u8) -> bool {
        matches!((self.parser.collected(), last), (Some(b"$" | b"+"), b'q'))
    }

    pub(super) fn end_dcs(&mut self) {
        let text = std::mem::take(&mut self.parser.string);
        match self.parser.collected() {
            Some(b"$") => self.request_setting(text.as_str()),
            Some(b"+") => self.request_capabilities(text.as_str()),
            _ => {}
        }
    }

    /// DECRQSS: reports a setting.
    fn request_setting(&mut self, setting: &str) {
        let margins = self.buf.margins;
        let answer = match setting {
            "\"q" => format!("{}\"q", u8::from(self.pen.bg & PROTECTED != 0)),
            "\"p" => format!("{};{}\"p", self.modes.level.0, self.modes.level.1),
            "r" => format!("{};{}r", margins.top + 1, margins.bottom + 1),
            "s" => format!("{};{}s", margins.left + 1, margins.right + 1),
            "m" => format!("{}m", self.pen.sgr()),
            " q" => match self.modes.cursor_style_param() {
                0 => format!("{} q", 2 - u8::from(self.modes.blink)),
                style => format!("{style} q"),
            },
            "t" => format!("{}t", self.rows),
            "$|" => format!("{}$|", self.cols),
            "*|" => format!("{}*|", self.rows),
            "*x" => format!("{}*x", 2 * u8::from(self.modes.rect_exact)),
            // There is no status line.
            "$}" | "$~" => format!("0{setting}"),
            _ => return self.reply(b"\x1bP0$r\x1b\\"),
        };
        self.reply(format!("\x1bP1$r{answer}\x1b\\").as_bytes());
    }

    /// XTGETTCAP: names and values in hexadecimal. The first unknown name ends the answer.
    fn request_capabilities(&mut self, names: &str) {
        for name in names.split(';') {
            let value = match name.to_ascii_uppercase().as_str() {
                // TN and name
                "544E" | "6E616D65" => "787465726D2D323536636F6C6F72".to_owned(),
                // Co and colors
                "436F" | "636F6C6F7273" => "323536".to_owned(),
                // RGB
                "524742" => "38".to_owned(),
                _ => return self.reply(b"\x1bP0+r\x1b\\"),
            };
            let name: String = name.chars().filter(char::is_ascii_hexdigit).collect();
            self.reply(format!("\x1bP1+r{name}={value}\x1b\\").as_bytes());
        }
    }
}
