//! The input loop, with fast paths for common input.

use super::{Fed, Screen, wanted_osc};
use crate::ascii::printable;
use crate::parser::table::*;
use crate::parser::{Decoded, OscPhase, StringRetention};

impl Screen {
    /// Processes output of the program. The result does not depend on where it was split.
    pub fn feed(&mut self, bytes: &[u8]) -> Fed {
        let mut at = 0;
        while at < bytes.len() {
            at += if self.parser.state == GROUND && self.parser.utf8.is_empty() {
                self.feed_ground(&bytes[at..])
            } else {
                self.feed_byte(bytes[at])
            };
        }
        std::mem::take(&mut self.fed)
    }

    /// Processes bytes outside of any sequence. Returns how many were consumed, at least one.
    fn feed_ground(&mut self, bytes: &[u8]) -> usize {
        match bytes[0] {
            0x20..=0x7e => {
                let run = printable(bytes);
                self.print_ascii(&bytes[..run]);
                run
            }
            0x1b if bytes.get(1) == Some(&b'[') => self.feed_csi(bytes),
            0x80.. => self.feed_text(bytes),
            _ => self.feed_byte(bytes[0]),
        }
    }

    /// Prints characters beyond ASCII, up to the first byte that is something else.
    fn feed_text(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        let mut started = false;
        while at < bytes.len() && bytes[at] >= 0x80 {
            if started && self.parser.utf8.is_empty() {
                let taken = self.print_simple(&bytes[at..]);
                if taken > 0 {
                    at += taken;
                    continue;
                }
            }
            let whole = if self.parser.utf8.is_empty() { whole_char(&bytes[at..]) } else { None };
            let (code, size) = match whole {
                Some(found) => found,
                None => match self.parser.utf8.push(bytes[at]) {
                    Decoded::Code(code) => (code, 1),
                    Decoded::More | Decoded::Skip => {
                        at += 1;
                        continue;
                    }
                    Decoded::Again => continue,
                },
            };
            at += size;
            if code < 0xa0 {
                if started {
                    self.end_run();
                }
                self.step(code);
                return at;
            }
            if !std::mem::replace(&mut started, true) {
                self.begin_run();
            }
            self.print_code(code);
        }
        if started {
            self.end_run();
        }
        at
    }

    /// Fast path for a complete control sequence without intermediates; others go byte by byte.
    fn feed_csi(&mut self, bytes: &[u8]) -> usize {
        self.parser.clear();
        let mut at = 2;
        let prefix = bytes.get(2).copied().filter(|byte| matches!(byte, 0x3c..=0x3f));
        if let Some(prefix) = prefix {
            self.parser.collect(prefix);
            at = 3;
        }
        at += self.parser.params.numbers(&bytes[at..]);
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match byte {
                0x30..=0x3b => self.parser.params.byte(byte),
                0x40..=0x7e => {
                    // By far the most frequent sequence.
                    if byte == b'm' && prefix.is_none() {
                        self.sgr();
                    } else {
                        self.dispatch_csi(byte);
                    }
                    self.parser.join = 0;
                    return at;
                }
                _ => break,
            }
        }
        self.feed_byte(bytes[0])
    }

    fn feed_byte(&mut self, byte: u8) -> usize {
        match self.parser.utf8.push(byte) {
            Decoded::Code(code) => {
                self.step(code);
                1
            }
            Decoded::More | Decoded::Skip => 1,
            Decoded::Again => 0,
        }
    }

    fn step(&mut self, code: u32) {
        let (action, next) = transition(self.parser.state, code);
        let mut next = next;
        let byte = code.min(0xff) as u8;
        match action {
            PRINT => {
                self.begin_run();
                self.print_code(code);
                self.end_run();
            }
            EXECUTE => {
                self.execute(byte);
                self.parser.join = 0;
            }
            CLEAR => self.parser.clear(),
            COLLECT => self.parser.collect(byte),
            PARAM => self.parser.params.byte(byte),
            ESC_DISPATCH => {
                self.parser.state = GROUND;
                self.dispatch_esc(byte);
                self.parser.join = 0;
            }
            CSI_DISPATCH => {
                self.dispatch_csi(byte);
                self.parser.join = 0;
            }
            OSC_START => self.parser.osc_start(),
            OSC_PUT => self.parser.osc_put(code, wanted_osc),
            OSC_END => {
                if byte != 0x18 && byte != 0x1a {
                    self.end_osc();
                }
                next = self.end_string(byte, next);
            }
            DCS_HOOK => {
                let wanted = self.wants_dcs(byte);
                self.parser.dcs_hook(byte, wanted);
            }
            DCS_PUT => self.parser.dcs_put(code),
            DCS_UNHOOK => {
                if byte != 0x18 && byte != 0x1a && self.parser.string.keep == StringRetention::All {
                    self.end_dcs();
                }
                next = self.end_string(byte, next);
            }
            _ => {}
        }
        self.parser.state = next;
    }

    fn end_osc(&mut self) {
        let text = std::mem::take(&mut self.parser.string);
        if matches!(text.phase, OscPhase::Id | OscPhase::Payload)
            && text.keep == StringRetention::All
        {
            self.osc(text.id, text.as_str());
        }
    }

    fn end_string(&mut self, byte: u8, next: u8) -> u8 {
        self.parser.string = Default::default();
        self.parser.clear();
        self.parser.join = 0;
        if byte == 0x1b { ESCAPE } else { next }
    }
}

/// Decodes a complete, well-formed character of two to four bytes that is not a control.
#[inline(always)]
pub(super) fn whole_char(bytes: &[u8]) -> Option<(u32, usize)> {
    let low = |byte: u8| u32::from(byte & 0x3f);
    let (code, size) = match *bytes {
        [a @ 0xc2..=0xdf, b @ 0x80..=0xbf, ..] => {
            let code = u32::from(a & 31) << 6 | low(b);
            (code, if code < 0xa0 { 0 } else { 2 })
        }
        [a @ 0xe0..=0xef, b @ 0x80..=0xbf, c @ 0x80..=0xbf, ..] => {
            let code = u32::from(a & 15) << 12 | low(b) << 6 | low(c);
            (code, if code < 0x800 || code == 0xfeff { 0 } else { 3 })
        }
        [a @ 0xf0..=0xf4, b @ 0x80..=0xbf, c @ 0x80..=0xbf, d @ 0x80..=0xbf, ..] => {
            let code = u32::from(a & 7) << 18 | low(b) << 12 | low(c) << 6 | low(d);
            (code, if code < 0x1_0000 { 0 } else { 4 })
        }
        _ => return None,
    };
    (size > 0 && char::from_u32(code).is_some()).then_some((code, size))
}
