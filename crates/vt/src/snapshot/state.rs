//! State besides the cells: modes, titles, colors, the cursor.

use super::paint::{Painter, push_char, push_number};
use crate::grid::cell::Glyph;
use crate::screen::{Charsets, Mark, MouseEncoding, MouseMode, Screen, charset_changes};

impl Screen {
    /// Resets the terminal. A full reset alone keeps some modes.
    pub(super) fn write_prologue(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\x1bc\x1b[?25h\x1b[?12l\x1b[20l");
        if self.modes.level != (61, 1) {
            let (level, bits) = self.modes.level;
            out.extend_from_slice(
                format!("\x1b[{level};{}\"p", if bits == 1 { 1 } else { 2 }).as_bytes(),
            );
        }
        let Some(colors) = &self.colors else { return };
        let mut set = |name: String, rgb: u32| {
            let [_, r, g, b] = rgb.to_be_bytes();
            out.extend_from_slice(
                format!("\x1b]{name};rgb:{r:02x}/{g:02x}/{b:02x}\x1b\\").as_bytes(),
            );
        };
        for (index, rgb) in colors.palette.iter().enumerate() {
            if let Some(rgb) = rgb {
                set(format!("4;{index}"), *rgb);
            }
        }
        for (which, rgb) in colors.attributes.iter().enumerate() {
            if let Some(rgb) = rgb {
                set(format!("5;{which}"), *rgb);
            }
        }
        for (which, rgb) in colors.special.iter().enumerate() {
            if let Some(rgb) = rgb {
                set(format!("{}", 10 + which), *rgb);
            }
        }
    }

    pub(super) fn write_stack(&self, out: &mut Vec<u8>, stack: &[u8]) {
        for (i, flags) in stack.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(format!("\x1b[>{flags}u").as_bytes());
            } else if *flags != 0 || stack.len() == 1 {
                out.extend_from_slice(format!("\x1b[={flags}u").as_bytes());
            }
        }
    }

    pub(super) fn write_titles(&self, out: &mut Vec<u8>) {
        let mut osc = |head: &str, text: &str, after: &str| {
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\x1b\\");
            out.extend_from_slice(after.as_bytes());
        };
        for title in &self.titles {
            osc("\x1b]2;", title, "\x1b[22;2t");
        }
        for icon in &self.icons {
            osc("\x1b]1;", icon, "\x1b[22;1t");
        }
        if !self.title.is_empty() || !self.titles.is_empty() {
            osc("\x1b]2;", &self.title, "");
        }
        if !self.icon.is_empty() || !self.icons.is_empty() {
            osc("\x1b]1;", &self.icon, "");
        }
        match self.cwd.starts_with('/') {
            true => osc("\x1b]7;file://", &percent_encoded(&self.cwd), ""),
            // Not a path, so it was stored as received.
            false if !self.cwd.is_empty() => osc("\x1b]7;", &self.cwd, ""),
            false => {}
        }
        match self.mark {
            None => {}
            Some(Mark::Prompt) => osc("\x1b]133;A", "", ""),
            Some(Mark::Input) => osc("\x1b]133;B", "", ""),
            Some(Mark::Output) => osc("\x1b]133;C", "", ""),
            Some(Mark::Done(None)) => osc("\x1b]133;D", "", ""),
            Some(Mark::Done(Some(code))) => osc("\x1b]133;D;", &code.to_string(), ""),
        }
    }

    /// Writes the modes that affect neither printing nor the cursor position.
    pub(super) fn write_modes(&self, out: &mut Vec<u8>) {
        let modes = &self.modes;
        let mut private = |on: bool, mode: u32| {
            if on {
                out.extend_from_slice(b"\x1b[?");
                push_number(out, mode as usize);
                out.push(b'h');
            }
        };
        private(modes.app_cursor, 1);
        private(modes.reverse_video, 5);
        private(modes.blink, 12);
        private(modes.reverse_wrap, 45);
        private(modes.app_keypad, 66);
        private(modes.send_focus, 1004);
        private(modes.bracketed_paste, 2004);
        private(modes.mouse == MouseMode::X10, 9);
        private(modes.mouse == MouseMode::Vt200, 1000);
        private(modes.mouse == MouseMode::Drag, 1002);
        private(modes.mouse == MouseMode::Any, 1003);
        private(modes.mouse_encoding == MouseEncoding::Sgr, 1006);
        private(modes.mouse_encoding == MouseEncoding::SgrPixels, 1016);
        for mode in modes.inert_set() {
            private(true, mode as u32);
        }
        if modes.cursor_hidden {
            out.extend_from_slice(b"\x1b[?25l");
        }
        if modes.line_feed {
            out.extend_from_slice(b"\x1b[20h");
        }
        if modes.rect_exact {
            out.extend_from_slice(b"\x1b[2*x");
        }
        if modes.cursor_style.is_some() {
            out.extend_from_slice(&[0x1b, b'[', b'0' + modes.cursor_style_param(), b' ', b'q']);
        }
        if self.keyboard.modify_other_keys != 0 {
            out.extend_from_slice(&[
                0x1b,
                b'[',
                b'>',
                b'4',
                b';',
                b'0' + self.keyboard.modify_other_keys,
                b'm',
            ]);
        }
    }

    /// Writes the cursor and all state that affects the next character.
    pub(super) fn write_cursor(&self, painter: &mut Painter<'_>) {
        let (charsets, saved) = (&self.charsets, &self.buf.saved);
        // DECRC restored the set in use, which differs from the invoked one.
        let restored = charsets.current != charsets.sets[usize::from(charsets.level)]
            && charsets.current == saved.charset;
        if restored {
            charset_changes(&Charsets::default(), charsets, &mut painter.out);
            painter.restored(saved);
        }
        if self.modes.origin {
            painter.out.extend_from_slice(b"\x1b[?6h");
        }
        let joined = self.joined();
        if joined.is_none() {
            if self.buf.x >= self.cols {
                self.reprint_last(painter);
                // Keeps combining marks from joining a character that was printed only to move
                // there.
                painter.out.extend_from_slice(b"\x1b\\");
            } else {
                self.write_position(&mut painter.out, self.buf.x, self.buf.y);
            }
        }
        let mut pen = self.pen.settled();
        if pen.is_odd() {
            pen.set_underline_style(1);
        }
        painter.pen(pen);
        if !restored {
            charset_changes(&Charsets::default(), charsets, &mut painter.out);
        }
        if self.modes.insert {
            painter.out.extend_from_slice(b"\x1b[4h");
        }
        if !self.modes.wrap {
            painter.out.extend_from_slice(b"\x1b[?7l");
        }
        if let Some((x, text)) = joined {
            let out = &mut painter.out;
            self.write_position(out, x, self.buf.y);
            if self.modes.insert {
                // Printing shifts the rest of the line back.
                out.extend_from_slice(b"\x1b[");
                push_number(out, self.buf.x - x);
                out.push(b'P');
            }
            out.extend_from_slice(text.as_bytes());
        }
    }

    fn write_position(&self, out: &mut Vec<u8>, x: usize, y: usize) {
        let margins = self.buf.margins;
        let (left, top) = if self.modes.origin { (margins.left, margins.top) } else { (0, 0) };
        let (x, y) = (x.saturating_sub(left), y.saturating_sub(top));
        out.extend_from_slice(b"\x1b[");
        if (x, y) != (0, 0) {
            push_number(out, y + 1);
            out.push(b';');
            push_number(out, x + 1);
        }
        out.push(b'H');
    }

    /// Returns column and text of the character before the cursor that a combining mark would join.
    fn joined(&self) -> Option<(usize, String)> {
        let columns = usize::from(self.parser.join);
        // An odd pen cannot be set at this point.
        if columns == 0 || self.modes.margins || self.pen.for_cell().is_odd() {
            return None;
        }
        let x = self.buf.x.checked_sub(columns)?;
        let cell = self.buf.rows[self.buf.y].get(x);
        let mut text = Vec::new();
        match cell.glyph() {
            Glyph::None => return None,
            Glyph::Char(code) => push_char(&mut text, code),
            Glyph::Cluster(number) => text.extend_from_slice(self.clusters.get(number).as_bytes()),
        }
        let text = String::from_utf8(text).ok()?;
        let same = self.styles.get(cell.style) == self.pen.for_cell()
            && text.chars().all(|c| self.charsets.map(c as u32) == c as u32);
        (same && usize::from(cell.width()) == columns).then_some((x, text))
    }

    /// Makes a wrap pending by printing the last column again.
    fn reprint_last(&self, painter: &mut Painter<'_>) {
        let row = &self.buf.rows[self.buf.y];
        let mut x = self.cols - 1;
        if row.get(x).is_spacer() && x > 0 && row.width(x - 1) == 2 {
            x -= 1;
        }
        let cell = row.get(x);
        self.write_position(&mut painter.out, x, self.buf.y);
        let mut pen = self.styles.get(cell.style);
        if pen.is_odd() {
            // An odd pen could only be set through the saved cursor, which is already final.
            pen.set_underline_style(1);
        }
        painter.pen(pen);
        match cell.glyph() {
            Glyph::Char(code) => push_char(&mut painter.out, code),
            Glyph::Cluster(number) => {
                painter.out.extend_from_slice(self.clusters.get(number).as_bytes());
            }
            Glyph::None => {
                // The last column was erased while the wrap was pending, usually with the whole
                // row.
                painter.out.push(b' ');
                let all = (0..self.cols).all(|col| row.get(col) == cell);
                if all {
                    painter.out.extend_from_slice(b"\x1b[1K");
                }
            }
        }
    }
}

fn percent_encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'/'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b'+'
            | b','
            | b'@' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
