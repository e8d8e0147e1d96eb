//! A line editor for terminals without a PTY. Pure.
//!
//! It knows printable text, backspace, Ctrl-U, Ctrl-C, Ctrl-D and return, and ignores escape sequences.

const MAX_LINE_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct InputLine {
    text: String,
    /// The bytes of an incomplete character.
    partial: Vec<u8>,
    within: EscapeState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    Escape,
    /// After `ESC [` or `ESC O`.
    Sequence,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineEvent {
    Show(String),
    Line(String),
    Interrupt,
    /// Ctrl-D on an empty line.
    End,
}

impl InputLine {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the events of the bytes, in order.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<LineEvent> {
        let mut keys = Vec::new();
        for &byte in bytes {
            self.byte(byte, &mut keys);
        }
        keys
    }

    fn byte(&mut self, byte: u8, keys: &mut Vec<LineEvent>) {
        match (self.within, byte) {
            (EscapeState::Escape, b'[' | b'O') => self.within = EscapeState::Sequence,
            (EscapeState::Escape, _) => self.within = EscapeState::Text,
            (EscapeState::Sequence, 0x40..=0x7e) => self.within = EscapeState::Text,
            (EscapeState::Sequence, _) => {}
            (EscapeState::Text, 0x1b) => self.within = EscapeState::Escape,
            (EscapeState::Text, b'\r' | b'\n') => {
                keys.push(LineEvent::Line(std::mem::take(&mut self.text)))
            }
            (EscapeState::Text, 3) => {
                self.text.clear();
                keys.push(LineEvent::Interrupt);
            }
            (EscapeState::Text, 4) if self.text.is_empty() => keys.push(LineEvent::End),
            (EscapeState::Text, 8 | 0x7f) => {
                if self.text.pop().is_some() {
                    show(keys, "\x08 \x08");
                }
            }
            (EscapeState::Text, 0x15) => {
                let count = self.text.chars().count();
                self.text.clear();
                show(keys, &"\x08 \x08".repeat(count));
            }
            (EscapeState::Text, b'\t') => self.push(' ', keys),
            (EscapeState::Text, 0..0x20) => {}
            (EscapeState::Text, _) => {
                self.partial.push(byte);
                match std::str::from_utf8(&self.partial).map(|text| text.chars().next()) {
                    Ok(Some(whole)) => {
                        self.partial.clear();
                        self.push(whole, keys);
                    }
                    Ok(None) => {}
                    Err(error) if error.error_len().is_none() => {}
                    Err(_) => self.partial.clear(),
                }
            }
        }
    }

    fn push(&mut self, character: char, keys: &mut Vec<LineEvent>) {
        if self.text.len() + character.len_utf8() > MAX_LINE_BYTES {
            return show(keys, "\x07");
        }
        self.text.push(character);
        show(keys, character.encode_utf8(&mut [0; 4]));
    }
}

fn show(keys: &mut Vec<LineEvent>, text: &str) {
    match keys.last_mut() {
        Some(LineEvent::Show(shown)) => shown.push_str(text),
        _ => keys.push(LineEvent::Show(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_key_by_key() {
        let check = |typed: &str, expected: &[LineEvent]| {
            let mut line = InputLine::default();
            assert_eq!(line.take(typed.as_bytes()), expected, "{typed:?}");
        };
        let shown = |text: &str| LineEvent::Show(text.to_owned());
        let whole = |text: &str| LineEvent::Line(text.to_owned());
        check("ls -l\r", &[shown("ls -l"), whole("ls -l")]);
        check("ab\x7fc\r", &[shown("ab\x08 \x08c"), whole("ac")]);
        check("é\x7f\x7fx\r", &[shown("é\x08 \x08x"), whole("x")]);
        check("a\x15b\r", &[shown("a\x08 \x08b"), whole("b")]);
        check("\x1b[A\x1bOB\x1bxq\r", &[shown("q"), whole("q")]);
        check("a\x03\x04", &[shown("a"), LineEvent::Interrupt, LineEvent::End]);
        check("\u{4}\r", &[LineEvent::End, whole("")]);
    }

    #[test]
    fn the_length_of_a_line_is_limited() {
        let mut line = InputLine::default();
        line.take(&vec![b'x'; 10_000]);
        assert_eq!(line.text().len(), MAX_LINE_BYTES);
        let mut line = InputLine::default();
        line.take(&[0xff, 0xfe, b'a']);
        assert_eq!(line.text(), "a");
    }
}
