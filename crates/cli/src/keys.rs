//! Separates keys from the replies of the user's terminal.
//!
//! A terminal replies to queries (cursor position, device attributes) through the same channel that carries the
//! keys. The server has already answered the program; a second reply would be typed into the shell. So replies
//! are dropped here. The keys that detach and show the status are recognized here, too.

/// Input without the replies of the terminal.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct FilteredInput {
    pub(super) keys: Vec<u8>,
    /// Whether the detach key was pressed; the input after it is dropped.
    pub(super) detach: bool,
    /// Whether the status key was pressed.
    pub(super) status: bool,
}

/// Filters input across reads.
#[derive(Debug)]
pub(super) struct KeyFilter {
    detach: u8,
    status: Option<u8>,
    held: Vec<u8>,
}

/// An incomplete sequence longer than this is not a reply.
const MAX_SEQUENCE_BYTES: usize = 64 * 1024;

enum Sequence {
    /// The length, and whether it is a reply of the terminal.
    Whole(usize, bool),
    /// The rest has not arrived yet.
    Part,
}

impl KeyFilter {
    /// `detach` is the control character that detaches, `status` the one that shows the status.
    pub(super) fn new(detach: u8, status: Option<u8>) -> KeyFilter {
        KeyFilter { detach, status, held: Vec::new() }
    }

    /// Whether an incomplete sequence is held back.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the incomplete sequence as keys.
    pub(super) fn release(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> FilteredInput {
        let mut input = std::mem::take(&mut self.held);
        input.extend_from_slice(bytes);
        let (mut typed, mut at) = (FilteredInput::default(), 0);
        while at < input.len() {
            let rest = &input[at..];
            if rest[0] == self.detach {
                return FilteredInput { detach: true, ..typed };
            }
            if Some(rest[0]) == self.status {
                typed.status = true;
                at += 1;
                continue;
            }
            if rest[0] != 0x1b {
                typed.keys.push(rest[0]);
                at += 1;
                continue;
            }
            match sequence(rest) {
                Sequence::Whole(length, own) => {
                    if is_control_key(self.detach, &rest[..length]) {
                        return FilteredInput { detach: true, ..typed };
                    }
                    if self.status.is_some_and(|key| is_control_key(key, &rest[..length])) {
                        typed.status = true;
                    } else if !own {
                        typed.keys.extend_from_slice(&rest[..length]);
                    }
                    at += length;
                }
                Sequence::Part if rest.len() < MAX_SEQUENCE_BYTES => {
                    self.held = rest.to_vec();
                    break;
                }
                Sequence::Part => {
                    typed.keys.extend_from_slice(rest);
                    break;
                }
            }
        }
        typed
    }
}

/// Whether a sequence is a control key: with an extended key protocol, terminals send it so.
fn is_control_key(key: u8, sequence: &[u8]) -> bool {
    let code = u32::from(key | 0x40).to_string();
    let letter = u32::from((key | 0x40).to_ascii_lowercase()).to_string();
    let Ok(text) = std::str::from_utf8(sequence) else { return false };
    [code, letter].iter().any(|code| {
        text == format!("\x1b[{code};5u")
            || text == format!("\x1b[{code};5:1u")
            || text == format!("\x1b[27;5;{code}~")
    })
}

/// Parses the sequence at the start of `bytes`, whose first byte is ESC.
fn sequence(bytes: &[u8]) -> Sequence {
    match bytes.get(1) {
        // A lone ESC is a key; waiting for more would delay it.
        None => Sequence::Whole(1, false),
        Some(b'[') => control(bytes),
        // DCS, OSC, APC, PM and SOS: no key sends these.
        Some(b'P' | b']' | b'_' | b'^' | b'X') => {
            let body = &bytes[2..];
            let bell = body.iter().position(|byte| *byte == 0x07).map(|end| end + 3);
            let terminator = body.windows(2).position(|pair| pair == b"\x1b\\").map(|end| end + 4);
            match [bell, terminator].into_iter().flatten().min() {
                Some(end) => Sequence::Whole(end, true),
                // Alt with one of these letters.
                None if body.is_empty() => Sequence::Whole(2, false),
                None => Sequence::Part,
            }
        }
        Some(_) => Sequence::Whole(2, false),
    }
}

fn control(bytes: &[u8]) -> Sequence {
    let body = &bytes[2..];
    let Some(end) = body.iter().position(|byte| matches!(byte, 0x40..=0x7e)) else {
        return if body.is_empty() { Sequence::Whole(2, false) } else { Sequence::Part };
    };
    let (parameters, last) = (&body[..end], body[end]);
    let private = matches!(parameters.first(), Some(b'?' | b'>' | b'='));
    let own = match last {
        b'c' => private,
        b'y' | b'n' | b't' => true,
        b'R' => private || !is_f3(parameters),
        b'u' => private,
        _ => false,
    };
    Sequence::Whole(end + 3, own)
}

/// F3 with a modifier is `CSI 1;N R`, which is also the position of a cursor in the first row.
fn is_f3(parameters: &[u8]) -> bool {
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    match text.split_once(';') {
        None => true,
        Some((one, modifier)) => {
            one == "1" && modifier.parse::<u8>().is_ok_and(|modifier| (2..=16).contains(&modifier))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETACH: u8 = 0x1c;
    const STATUS: u8 = 0x1e;

    fn check(input: &str, keys: &str, detach: bool) {
        let typed = KeyFilter::new(DETACH, Some(STATUS)).push(input.as_bytes());
        assert_eq!(String::from_utf8_lossy(&typed.keys), keys, "{input:?}");
        assert_eq!(typed.detach, detach, "{input:?}");
    }

    #[test]
    fn keys_pass_and_replies_do_not() {
        check("ls\r", "ls\r", false);
        check("\x1b", "\x1b", false);
        check("\x1bx\x1b[A\x1bOP", "\x1bx\x1b[A\x1bOP", false);
        check(
            "\x1b[1;5C\x1b[3~\x1b[200~hi\x1b[201~",
            "\x1b[1;5C\x1b[3~\x1b[200~hi\x1b[201~",
            false,
        );
        check("\x1b[<0;3;4M\x1b[<0;3;4m\x1b[I", "\x1b[<0;3;4M\x1b[<0;3;4m\x1b[I", false);
        check("\x1b[1;2R\x1b[97;5u", "\x1b[1;2R\x1b[97;5u", false);
        check("a\x1b[?62;4cb", "ab", false);
        check("a\x1b[>1;10;0cb\x1b[24;80Rc\x1b[0n", "abc", false);
        check("a\x1b[?2026;2$yb\x1b[8;24;80t\x1b[?1u", "ab", false);
        check("a\x1b]11;rgb:00/00/00\x07b\x1bP1+r\x1b\\c", "abc", false);
        check("\x1bP", "\x1bP", false);
    }

    #[test]
    fn the_detach_key_ends_the_input() {
        check("ab\x1ccd", "ab", true);
        check("\x1b[92;5u", "", true);
        check("\x1b[27;5;92~", "", true);
    }

    #[test]
    fn the_status_key_is_no_input() {
        for input in ["a\x1eb", "a\x1b[94;5ub", "a\x1b[27;5;94~b"] {
            let typed = KeyFilter::new(DETACH, Some(STATUS)).push(input.as_bytes());
            assert_eq!((typed.keys.as_slice(), typed.status), (b"ab".as_slice(), true));
        }
        let typed = KeyFilter::new(DETACH, None).push(b"a\x1eb");
        assert_eq!((typed.keys.as_slice(), typed.status), (b"a\x1eb".as_slice(), false));
    }

    #[test]
    fn a_reply_is_dropped_however_it_is_split() {
        let input = b"a\x1b]10;rgb:1/2/3\x1b\\b\x1b[?62;1;4cd\x1b[Ae";
        for cut in 0..input.len() {
            // A cut right after ESC looks like the key; the terminal writes a reply in one piece.
            if cut > 0 && input[cut - 1] == 0x1b {
                continue;
            }
            // The same holds for a cut after the second byte, which looks like Alt and a letter.
            if cut > 1 && input[cut - 2] == 0x1b {
                continue;
            }
            let mut keys = KeyFilter::new(DETACH, Some(STATUS));
            let mut seen = keys.push(&input[..cut]).keys;
            seen.extend(keys.push(&input[cut..]).keys);
            assert_eq!(seen, b"abd\x1b[Ae", "cut at {cut}");
            assert!(!keys.holds());
        }
    }

    #[test]
    fn a_sequence_that_never_ends_is_returned() {
        let mut keys = KeyFilter::new(DETACH, Some(STATUS));
        assert_eq!(keys.push(b"\x1b]0;x").keys, b"");
        assert!(keys.holds());
        assert_eq!(keys.release(), b"\x1b]0;x");
    }
}
