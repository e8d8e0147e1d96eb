//! Operating system commands: titles, colors, links, directories, shell marks.

use super::{Screen, ScreenEvent};
use crate::style::Style;

/// A boundary between prompt, input and output that the shell marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The prompt begins (A).
    Prompt,
    /// The prompt ends and user input begins (B).
    Input,
    /// The command starts and its output begins (C).
    Output,
    /// The command ended (D), with its exit code if the shell reported it.
    Done(Option<i32>),
}

const PALETTE: usize = 256;
const ATTRIBUTE_COLORS: usize = 5;

/// Colors that the program set, as `0xrrggbb`. The client's theme applies to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Colors {
    pub palette: [Option<u32>; PALETTE],
    /// Foreground, background, cursor.
    pub special: [Option<u32>; 3],
    /// For bold, underlined, blinking, reversed and italic text. They are not drawn, only stored
    /// for programs that query them.
    pub attributes: [Option<u32>; ATTRIBUTE_COLORS],
}

impl Default for Colors {
    fn default() -> Self {
        Colors {
            palette: [None; PALETTE],
            special: [None; 3],
            attributes: [None; ATTRIBUTE_COLORS],
        }
    }
}

impl Colors {
    /// Returns the color at a palette index, or of an attribute, which are numbered after the
    /// palette.
    fn slot(&mut self, at: usize) -> &mut Option<u32> {
        match at.checked_sub(PALETTE) {
            Some(attribute) => &mut self.attributes[attribute],
            None => &mut self.palette[at],
        }
    }
}

/// The colors that are reported until the program sets them: those of a dark theme.
const SPECIAL: [u32; 3] = [0xff_ffff, 0x00_0000, 0xff_ffff];
const MAX_CWD_BYTES: usize = 8 * 1024;

/// Whether an OSC string is supported. The payload of other strings is not stored.
pub(crate) fn wanted(id: u32) -> bool {
    matches!(id, 0..=2 | 4 | 5 | 7 | 8 | 10..=12 | 104 | 105 | 110..=112 | 133 | 633)
}

impl Screen {
    pub(super) fn osc(&mut self, id: u32, data: &str) {
        match id {
            0 => {
                self.icon = data.into();
                self.set_title(data.into());
            }
            1 => self.icon = data.into(),
            2 => self.set_title(data.into()),
            4 => self.indexed_colors(data, 4, 0),
            5 => self.indexed_colors(data, 5, PALETTE),
            7 => self.set_cwd(data),
            8 => self.hyperlink(data),
            10..=12 => self.special_colors(data, id as usize - 10),
            104 => self.reset_palette(data),
            105 => self.reset_attribute_colors(data),
            110..=112 => self.set_special(id as usize - 110, None),
            133 => self.shell_mark(data),
            633 => self.vscode_mark(data),
            _ => {}
        }
    }

    pub(super) fn set_title(&mut self, title: String) {
        self.title.clone_from(&title);
        self.event(ScreenEvent::Title(title));
    }

    fn set_cwd(&mut self, data: &str) {
        if data.len() > MAX_CWD_BYTES {
            return;
        }
        let path = match data.strip_prefix("file://") {
            // The host name ends where the path begins.
            Some(rest) => match rest.find('/') {
                Some(at) => percent_decoded(&rest[at..]),
                None => return,
            },
            None => data.to_owned(),
        };
        self.cwd.clone_from(&path);
        self.event(ScreenEvent::Cwd(path));
    }

    fn hyperlink(&mut self, data: &str) {
        let Some((params, uri)) = data.split_once(';') else { return };
        let params = params.trim();
        if uri.is_empty() && !params.is_empty() {
            return;
        }
        let id = params.split(':').find_map(|p| p.strip_prefix("id=")).filter(|id| !id.is_empty());
        let link = if uri.is_empty() { 0 } else { self.links.number(id, uri) };
        let mut pen = Style { link, ..self.pen };
        pen.update_extended();
        self.set_pen(pen);
    }

    /// OSC 4 and 5. Attribute colors are numbered from 0 (OSC 5) or after the palette (OSC 4).
    fn indexed_colors(&mut self, data: &str, id: u32, from: usize) {
        let mut slots = data.split(';');
        while let (Some(index), Some(spec)) = (slots.next(), slots.next()) {
            let Some(index) = color_index(index) else { continue };
            let at = from + index;
            if at >= PALETTE + ATTRIBUTE_COLORS {
                continue;
            }
            if spec == "?" {
                let set = self.colors.as_deref_mut().and_then(|colors| *colors.slot(at));
                let rgb = set
                    .unwrap_or_else(|| if at < PALETTE { default_color(at) } else { SPECIAL[0] });
                self.reply(format!("\x1b]{id};{index};{}\x1b\\", format_color(rgb)).as_bytes());
            } else if let Some(rgb) = parse_color(spec) {
                *self.colors.get_or_insert_default().slot(at) = Some(rgb);
            }
        }
    }

    fn reset_palette(&mut self, data: &str) {
        let Some(colors) = &mut self.colors else { return };
        if data.is_empty() {
            // Attribute colors are numbered after the palette, so they are reset too.
            colors.palette = [None; PALETTE];
            colors.attributes = [None; ATTRIBUTE_COLORS];
        } else {
            for index in data.split(';').filter_map(color_index).filter(|i| *i < PALETTE) {
                colors.palette[index] = None;
            }
        }
        self.drop_default_colors();
    }

    fn reset_attribute_colors(&mut self, data: &str) {
        let Some(colors) = &mut self.colors else { return };
        if data.is_empty() {
            colors.attributes = [None; ATTRIBUTE_COLORS];
        } else {
            for index in data.split(';').filter_map(color_index).filter(|i| *i < ATTRIBUTE_COLORS) {
                colors.attributes[index] = None;
            }
        }
        self.drop_default_colors();
    }

    fn special_colors(&mut self, data: &str, from: usize) {
        for (which, spec) in (from..3).zip(data.split(';')) {
            if spec == "?" {
                let set = self.colors.as_ref().and_then(|colors| colors.special[which]);
                let rgb = set.unwrap_or(SPECIAL[which]);
                self.reply(format!("\x1b]{};{}\x1b\\", which + 10, format_color(rgb)).as_bytes());
            } else if let Some(rgb) = parse_color(spec) {
                self.set_special(which, Some(rgb));
            }
        }
    }

    fn set_special(&mut self, which: usize, rgb: Option<u32>) {
        if rgb.is_some() || self.colors.is_some() {
            self.colors.get_or_insert_default().special[which] = rgb;
        }
        self.drop_default_colors();
    }

    fn drop_default_colors(&mut self) {
        if self.colors.as_deref() == Some(&Colors::default()) {
            self.colors = None;
        }
    }

    fn shell_mark(&mut self, data: &str) {
        let mut parts = data.split(';');
        let mark = match parts.next() {
            Some("A" | "N" | "P") => Mark::Prompt,
            Some("B" | "I") => Mark::Input,
            Some("C") => Mark::Output,
            Some("D") => Mark::Done(parts.next().and_then(|code| code.parse().ok())),
            _ => return,
        };
        self.mark = Some(mark);
        self.event(ScreenEvent::Mark(mark));
    }

    fn vscode_mark(&mut self, data: &str) {
        match data.split_once(';') {
            Some(("P", property)) => {
                if let Some(cwd) = property.strip_prefix("Cwd=") {
                    self.set_cwd(cwd);
                }
            }
            Some(("E", _)) => {}
            Some(_) | None => self.shell_mark(data),
        }
    }
}

fn color_index(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|index| digits && *index < PALETTE + ATTRIBUTE_COLORS)
}

/// `rgb:r/g/b` with one to four digits each, or `#` and three, six, nine or twelve.
fn parse_color(spec: &str) -> Option<u32> {
    let spec = spec.to_ascii_lowercase();
    let hex = |text: &str| {
        let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| digits)
    };
    let mut rgb = 0;
    if let Some(rest) = spec.strip_prefix("rgb:") {
        let parts: Vec<&str> = rest.split('/').collect();
        let [first, ..] = parts[..] else { return None };
        if parts.len() != 3 || first.len() > 4 || parts.iter().any(|p| p.len() != first.len()) {
            return None;
        }
        let most = (1u32 << (4 * first.len())) - 1;
        for part in parts {
            rgb = (rgb << 8) | ((hex(part)? * 255 * 2 + most) / (most * 2));
        }
        return Some(rgb);
    }
    let rest = spec.strip_prefix('#')?;
    if !matches!(rest.len(), 3 | 6 | 9 | 12) || !rest.is_ascii() {
        return None;
    }
    let each = rest.len() / 3;
    for i in 0..3 {
        let value = hex(&rest[i * each..(i + 1) * each])?;
        let byte = match each {
            1 => value << 4,
            2 => value,
            3 => value >> 4,
            _ => value >> 8,
        };
        rgb = (rgb << 8) | byte;
    }
    Some(rgb)
}

/// Formats a color for a reply, with 16 bits per channel.
fn format_color(rgb: u32) -> String {
    let [_, r, g, b] = rgb.to_be_bytes();
    format!("rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}")
}

/// Returns a color of the default palette of xterm.js.
pub(crate) fn default_color(index: usize) -> u32 {
    const BASE: [u32; 16] = [
        0x2e3436, 0xcc0000, 0x4e9a06, 0xc4a000, 0x3465a4, 0x75507b, 0x06989a, 0xd3d7cf, 0x555753,
        0xef2929, 0x8ae234, 0xfce94f, 0x729fcf, 0xad7fa8, 0x34e2e2, 0xeeeeec,
    ];
    const STEPS: [u32; 6] = [0, 95, 135, 175, 215, 255];
    match index {
        0..16 => BASE[index],
        16..232 => {
            let i = index - 16;
            STEPS[i / 36] << 16 | STEPS[i / 6 % 6] << 8 | STEPS[i % 6]
        }
        _ => (8 + 10 * (index as u32 - 232)) * 0x01_0101,
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_parsed_in_every_format() {
        for (spec, expected) in [
            ("rgb:f/0/8", Some(0xff0088)),
            ("rgb:ff/80/00", Some(0xff8000)),
            ("rgb:ffff/8080/0000", Some(0xff8000)),
            ("#f08", Some(0xf00080)),
            ("#FF8000", Some(0xff8000)),
            ("#ffff80800000", Some(0xff8000)),
            ("red", None),
            ("rgb:ff/80", None),
            ("rgb:ff/8/0", None),
            ("#ff", None),
            ("", None),
        ] {
            assert_eq!(parse_color(spec), expected, "{spec}");
        }
    }

    #[test]
    fn paths_are_decoded() {
        assert_eq!(percent_decoded("/a%20b/%C3%A9%"), "/a b/é%");
    }
}
