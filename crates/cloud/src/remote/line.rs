//! What a person types where there is no PTY: a line, put together and shown by us. Pure.
//!
//! Printable text, backspace, Ctrl-U, Ctrl-C, Ctrl-D and return are all there is; keys that send
//! escape sequences do nothing.

/// The longest line.
const LONGEST: usize = 4 << 10;

/// A line as it is typed.
#[derive(Debug, Default)]
pub(super) struct Line {
    text: String,
    /// The start of a character whose end has not come.
    partial: Vec<u8>,
    within: Within,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Within {
    #[default]
    Text,
    Escape,
    /// After `ESC [` or `ESC O`.
    Sequence,
}

/// What a key led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// This is shown.
    Show(String),
    /// The line is whole.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty line.
    End,
}

impl Line {
    /// What is typed so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Takes bytes in; what they lead to, in order.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for &byte in bytes {
            self.byte(byte, &mut keys);
        }
        keys
    }

    fn byte(&mut self, byte: u8, keys: &mut Vec<Key>) {
        match (self.within, byte) {
            (Within::Escape, b'[' | b'O') => self.within = Within::Sequence,
            (Within::Escape, _) => self.within = Within::Text,
            (Within::Sequence, 0x40..=0x7e) => self.within = Within::Text,
            (Within::Sequence, _) => {}
            (Within::Text, 0x1b) => self.within = Within::Escape,
            (Within::Text, b'\r' | b'\n') => keys.push(Key::Line(std::mem::take(&mut self.text))),
            (Within::Text, 3) => {
                self.text.clear();
                keys.push(Key::Interrupt);
            }
            (Within::Text, 4) if self.text.is_empty() => keys.push(Key::End),
            (Within::Text, 8 | 0x7f) => {
                if self.text.pop().is_some() {
                    show(keys, "\x08 \x08");
                }
            }
            (Within::Text, 0x15) => {
                let count = self.text.chars().count();
                self.text.clear();
                show(keys, &"\x08 \x08".repeat(count));
            }
            (Within::Text, b'\t') => self.push(' ', keys),
            (Within::Text, 0..0x20) => {}
            (Within::Text, _) => {
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

    fn push(&mut self, character: char, keys: &mut Vec<Key>) {
        if self.text.len() + character.len_utf8() > LONGEST {
            return show(keys, "\x07");
        }
        self.text.push(character);
        show(keys, character.encode_utf8(&mut [0; 4]));
    }
}

fn show(keys: &mut Vec<Key>, text: &str) {
    match keys.last_mut() {
        Some(Key::Show(shown)) => shown.push_str(text),
        _ => keys.push(Key::Show(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_put_together_key_by_key() {
        let check = |typed: &str, expected: &[Key]| {
            let mut line = Line::default();
            assert_eq!(line.take(typed.as_bytes()), expected, "{typed:?}");
        };
        let shown = |text: &str| Key::Show(text.to_owned());
        let whole = |text: &str| Key::Line(text.to_owned());
        check("ls -l\r", &[shown("ls -l"), whole("ls -l")]);
        check("ab\x7fc\r", &[shown("ab\x08 \x08c"), whole("ac")]);
        check("é\x7f\x7fx\r", &[shown("é\x08 \x08x"), whole("x")]);
        check("a\x15b\r", &[shown("a\x08 \x08b"), whole("b")]);
        check("\x1b[A\x1bOB\x1bxq\r", &[shown("q"), whole("q")]);
        check("a\x03\x04", &[shown("a"), Key::Interrupt, Key::End]);
        check("\u{4}\r", &[Key::End, whole("")]);
    }

    #[test]
    fn a_line_has_an_end() {
        let mut line = Line::default();
        line.take(&vec![b'x'; 10_000]);
        assert_eq!(line.text().len(), LONGEST);
        let mut line = Line::default();
        line.take(&[0xff, 0xfe, b'a']);
        assert_eq!(line.text(), "a");
    }
}
