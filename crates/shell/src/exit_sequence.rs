//! The escape sequence that the line editor of an exiting shell writes to standard error, wherever that goes.
//!
//! It is not output of the command, but only the exit tells: the shell runs its exit trap in between. So the
//! sequence and what follows it are held back until the command ends, or for a short time.

use std::time::{Duration, Instant};

/// Turns bracketed paste off. A line editor writes it by one call.
const SEQUENCE: &[u8] = b"\x1b[?2004l\r";

/// How long output is held back if the shell does not exit.
const MAX_HELD_TIME: Duration = Duration::from_secs(2);

/// How many bytes are held back.
const MAX_HELD_BYTES: usize = 32 << 10;

/// The standard error of a running command from a possible exit sequence on.
#[derive(Debug, Default)]
pub struct ExitSequence {
    held: Vec<u8>,
    since: Option<Instant>,
}

impl ExitSequence {
    /// Takes output, and returns the part that is not held back.
    pub fn take<'a>(&mut self, bytes: &'a [u8], now: Instant) -> &'a [u8] {
        if self.since.is_some() {
            self.held.extend_from_slice(bytes);
            return &[];
        }
        let Some(at) = find_last(bytes) else { return bytes };
        self.held.extend_from_slice(&bytes[at..]);
        self.since = Some(now);
        &bytes[..at]
    }

    /// Returns when the output is due, whether the shell exits or not.
    pub fn due(&self) -> Option<Instant> {
        let since = self.since?;
        Some(if self.held.len() > MAX_HELD_BYTES { since } else { since + MAX_HELD_TIME })
    }

    /// Returns the output that was held back. The sequence was written by the command.
    pub fn release(&mut self) -> Vec<u8> {
        self.since = None;
        std::mem::take(&mut self.held)
    }

    /// Returns the output that was held back, without the last sequence: the shell wrote it and exited.
    pub fn remove(&mut self) -> Vec<u8> {
        let mut bytes = self.release();
        if let Some(at) = find_last(&bytes) {
            bytes.drain(at..at + SEQUENCE.len());
        }
        bytes
    }
}

fn find_last(bytes: &[u8]) -> Option<usize> {
    bytes.windows(SEQUENCE.len()).rposition(|window| window == SEQUENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence_after(text: &[u8]) -> Vec<u8> {
        [text, SEQUENCE].concat()
    }

    #[test]
    fn the_sequence_of_an_exiting_shell_is_never_seen_and_its_trap_is() {
        let (mut sequence, now) = (ExitSequence::default(), Instant::now());
        assert_eq!(sequence.take(&sequence_after(b"e1\n"), now), b"e1\n");
        assert_eq!(sequence.take(b"err\n", now), b"");
        assert_eq!(sequence.remove(), b"err\n");
        assert_eq!(sequence.due(), None);
        assert_eq!(sequence.take(b"more", now), b"more");
    }

    #[test]
    fn a_sequence_of_the_command_is_released_in_order() {
        let (mut sequence, now) = (ExitSequence::default(), Instant::now());
        assert_eq!(sequence.take(&sequence_after(b"a"), now), b"a");
        assert_eq!(sequence.take(b"b", now), b"");
        assert_eq!(sequence.due(), Some(now + MAX_HELD_TIME));
        assert_eq!(sequence.release(), [SEQUENCE, b"b"].concat());
    }

    #[test]
    fn much_output_is_due_at_once() {
        let (mut sequence, now) = (ExitSequence::default(), Instant::now());
        sequence.take(SEQUENCE, now);
        sequence.take(&vec![b'x'; MAX_HELD_BYTES], now);
        assert_eq!(sequence.due(), Some(now));
    }
}
