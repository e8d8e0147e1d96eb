//! The input that a person has typed into the shell since it started.

use std::time::{Duration, Instant};

/// The line discipline may still hold a key for this long after it was pressed.
pub const SETTLE_TIME: Duration = Duration::from_millis(20);
/// A shell that has printed nothing for this long after a line was entered does not echo it.
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);

/// What is known from a person's input.
#[derive(Debug, Default)]
pub struct Keyboard {
    /// When a key was last pressed.
    pub typed: Option<Instant>,
    /// When a line was entered, if a person's command may have run since the state was last read.
    pub entered: Option<Instant>,
    /// The shell has printed something since a line was last entered, so the line has reached it.
    pub echoed: bool,
    /// The line editor holds an unfinished line.
    pub half_typed: bool,
    /// The line begins with a blank, so the history may not contain it.
    pub starts_with_blank: bool,
}

impl Keyboard {
    /// Notes bytes that are about to be written to the PTY for a person.
    pub fn note(&mut self, bytes: &[u8], now: Instant) {
        let Some(last) = bytes.last() else { return };
        self.typed = Some(now);
        let answer = is_answer(bytes);
        if self.entered.is_none() && !self.half_typed && !answer {
            self.starts_with_blank = bytes.starts_with(b" ");
        }
        if bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 3 | 4 | 15)) {
            self.entered.get_or_insert(now);
            self.echoed = false;
        }
        if !answer {
            self.half_typed = !matches!(last, b'\r' | b'\n' | 3 | 21);
        }
    }

    /// Returns whether the shell has read what was typed, if it is at its prompt.
    pub fn is_settled(&self, now: Instant) -> bool {
        let echoes = self.entered.is_some() && !self.echoed;
        let wait = if echoes { ECHO_TIMEOUT } else { SETTLE_TIME };
        self.typed.is_none_or(|typed| now >= typed + wait)
    }
}

/// Returns whether the bytes are a terminal's answers to queries, and not typed by a person.
fn is_answer(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(length) = answer_length(rest) {
        rest = &rest[length..];
    }
    rest.is_empty()
}

/// Returns the length of the answer that `bytes` begin with.
fn answer_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let parameter = |byte: &u8| matches!(byte, b'0'..=b'9' | b';' | b'?' | b'>' | b'$');
            let end = rest.iter().position(|byte| !parameter(byte))?;
            matches!(rest[end], b'R' | b'c' | b'n' | b'y' | b't').then_some(end + 3)
        }
        [0x1b, b']' | b'P', rest @ ..] => {
            let st = rest.windows(2).position(|two| two == b"\x1b\\").map(|at| at + 4);
            let bell = rest.iter().position(|byte| *byte == 7).map(|at| at + 3);
            Some(st.into_iter().chain(bell).min().unwrap_or(bytes.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_answer;

    #[test]
    fn an_answer_is_distinguished_from_typing() {
        let check =
            |text: &str, expected| assert_eq!(is_answer(text.as_bytes()), expected, "{text:?}");
        check("\x1b[12;40R", true);
        check("\x1b[?62;22c", true);
        check("\x1b]11;rgb:0000/0000/0000\x1b\\", true);
        // Under load several answers arrive at once.
        check("\x1b[12;40R\x1b[12;40R", true);
        check("\x1b]11;rgb:0/0/0\x07\x1b[1;1R\x1bP1$r0m\x1b\\\x1b[0n", true);
        check("\x1b[12;40Rls", false);
        check("\x1b[12;40R\x1b[A", false);
        check("\x1b[A", false);
        check("ls -R", false);
        check("\x1b[200~R", false);
    }
}
