//! Whether output has switched to the alternate screen, as full-screen programs do.

/// A longer list of modes is cut; it does not end with one of these.
const MAX_PARAMETER_BYTES: usize = 64;

/// Follows the sequences that switch screens, also if they are split across reads.
#[derive(Debug, Default)]
pub(super) struct AltScreen {
    pub(super) is_on: bool,
    state: ParserState,
    parameters: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum ParserState {
    #[default]
    Text,
    Escape,
    Bracket,
    /// In the parameters that follow `CSI ?`.
    Modes,
}

impl AltScreen {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = match (self.state, byte) {
                (_, 0x1b) => ParserState::Escape,
                (ParserState::Escape, b'[') => ParserState::Bracket,
                // RIS resets the screen.
                (ParserState::Escape, b'c') => {
                    self.is_on = false;
                    ParserState::Text
                }
                (ParserState::Bracket, b'?') => {
                    self.parameters.clear();
                    ParserState::Modes
                }
                (ParserState::Modes, b'0'..=b'9' | b';') => {
                    if self.parameters.len() < MAX_PARAMETER_BYTES {
                        self.parameters.push(*byte);
                    }
                    ParserState::Modes
                }
                (ParserState::Modes, b'h' | b'l') => {
                    let mut modes = self.parameters.split(|byte| *byte == b';');
                    if modes.any(|mode| matches!(mode, b"47" | b"1047" | b"1049")) {
                        self.is_on = *byte == b'h';
                    }
                    ParserState::Text
                }
                _ => ParserState::Text,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, is_on: bool) {
        let bytes = output.as_bytes();
        for cut in 0..=bytes.len() {
            let mut screen = AltScreen::default();
            screen.push(&bytes[..cut]);
            screen.push(&bytes[cut..]);
            assert_eq!(screen.is_on, is_on, "{output:?} cut at {cut}");
        }
    }

    #[test]
    fn all_sequences_of_the_alternate_screen_are_known() {
        check("ls\r\n", false);
        check("\x1b[?1049h\x1b[H", true);
        check("\x1b[?47h", true);
        // Snapshots of the server use this one.
        check("\x1b[?1047h\x1b[Hfull screen", true);
        check("\x1b[?25;1049h", true);
        check("\x1b[?1049h\x1b[?1049l", false);
        check("\x1b[?1047h\x1bc", false);
        check("\x1b[?11047h\x1b[1049h?1049h", false);
    }
}
