//! Parser state between two bytes. It can continue after any byte, and it can be exported as the
//! bytes that bring a fresh parser to the same state.

mod params;
pub(crate) mod table;

pub(crate) use params::{MISSING, Params};
use table::*;

/// Longer OSC strings are parsed and ignored.
const MAX_OSC_BYTES: usize = 64 * 1024;
/// Longer DCS strings are ignored: only short queries are answered.
const MAX_DCS_BYTES: usize = 4096;
/// More intermediates than any supported sequence has.
const MAX_COLLECTED: usize = 4;

/// The state of the parser between two bytes.
#[derive(Clone, Default)]
pub(crate) struct Parser {
    pub state: u8,
    pub params: Params,
    collect: [u8; MAX_COLLECTED],
    collected: u8,
    /// Columns of the character that was just printed, or 0 after anything else. A combining mark
    /// joins it, and REP repeats it.
    pub join: u8,
    pub utf8: Utf8,
    pub string: Text,
}

/// An OSC or DCS string that is being read.
#[derive(Clone, Default)]
pub(crate) struct Text {
    pub phase: OscPhase,
    /// The number of an OSC string, or the final byte of a DCS header.
    pub id: u32,
    pub data: Vec<u8>,
    pub keep: StringRetention,
}

/// Whether the payload of a string is stored.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum StringRetention {
    #[default]
    All,
    /// The string is not supported.
    Unwanted,
    /// The string exceeds its limit, so all of it is ignored.
    TooLong,
}

/// The id of an OSC string before its first digit.
const NO_ID: u32 = u32::MAX;

/// The part of an OSC string that is being read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum OscPhase {
    #[default]
    Start,
    Id,
    Payload,
    Abort,
}

impl Parser {
    pub fn reset(&mut self) {
        self.state = GROUND;
        self.clear();
        self.join = 0;
        self.string = Text::default();
    }

    #[inline]
    pub fn clear(&mut self) {
        self.params.reset();
        self.collected = 0;
    }

    pub fn collect(&mut self, byte: u8) {
        if usize::from(self.collected) < MAX_COLLECTED {
            self.collect[usize::from(self.collected)] = byte;
        }
        self.collected = (self.collected + 1).min(MAX_COLLECTED as u8 + 1);
    }

    /// Returns prefix and intermediates, or `None` if there are too many.
    pub fn collected(&self) -> Option<&[u8]> {
        self.collect.get(..usize::from(self.collected))
    }

    pub fn osc_start(&mut self) {
        self.string = Text { phase: OscPhase::Id, id: NO_ID, ..Text::default() };
    }

    pub fn osc_put(&mut self, code: u32, wanted: fn(u32) -> bool) {
        let text = &mut self.string;
        match text.phase {
            OscPhase::Start | OscPhase::Abort => {}
            OscPhase::Id => match code {
                0x3b => {
                    text.phase = OscPhase::Payload;
                    text.keep = if wanted(text.id) {
                        StringRetention::All
                    } else {
                        StringRetention::Unwanted
                    };
                }
                0x30..=0x39 => {
                    let id = if text.id == NO_ID { 0 } else { text.id };
                    text.id = id.saturating_mul(10).saturating_add(code - 0x30).min(NO_ID - 1);
                }
                _ => text.phase = OscPhase::Abort,
            },
            OscPhase::Payload => text.put(code, MAX_OSC_BYTES),
        }
    }

    pub fn dcs_hook(&mut self, last: u8, wanted: bool) {
        let keep = if wanted { StringRetention::All } else { StringRetention::Unwanted };
        self.string = Text { phase: OscPhase::Start, id: u32::from(last), data: Vec::new(), keep };
    }

    pub fn dcs_put(&mut self, code: u32) {
        self.string.put(code, MAX_DCS_BYTES);
    }

    /// Writes the bytes that bring a fresh parser to this state. Control characters that were
    /// executed in the middle of the sequence are not among them.
    pub fn pending(&self, out: &mut Vec<u8>) {
        let collected = &self.collect[..usize::from(self.collected).min(MAX_COLLECTED)];
        let (prefix, intermediates) = match collected.first() {
            Some(0x3c..=0x3f) => collected.split_at(1),
            Some(_) | None => collected.split_at(0),
        };
        let head = |out: &mut Vec<u8>, kind: u8| {
            out.extend_from_slice(&[0x1b, kind]);
            out.extend_from_slice(prefix);
            self.params.write(out);
            out.extend_from_slice(intermediates);
        };
        match self.state {
            ESCAPE => out.push(0x1b),
            ESCAPE_INTERMEDIATE => {
                out.push(0x1b);
                out.extend_from_slice(collected);
            }
            CSI_ENTRY => out.extend_from_slice(b"\x1b["),
            CSI_PARAM | CSI_INTERMEDIATE => head(out, b'['),
            CSI_IGNORE => out.extend_from_slice(b"\x1b[ 0"),
            STRING => out.extend_from_slice(b"\x1b_"),
            OSC => self.pending_osc(out),
            DCS_ENTRY => out.extend_from_slice(b"\x1bP"),
            DCS_PARAM | DCS_INTERMEDIATE => head(out, b'P'),
            DCS_IGNORE => out.extend_from_slice(b"\x1bP 0"),
            DCS_PASSTHROUGH => {
                head(out, b'P');
                out.push(self.string.id as u8);
                out.extend_from_slice(&self.string.data);
            }
            _ => {}
        }
        out.extend_from_slice(self.utf8.bytes());
    }

    fn pending_osc(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\x1b]");
        let text = &self.string;
        let id = |out: &mut Vec<u8>| {
            if text.id != NO_ID {
                out.extend_from_slice(text.id.to_string().as_bytes());
            }
        };
        match text.phase {
            // A letter instead of an id makes the parser ignore the rest of the string.
            OscPhase::Start | OscPhase::Abort => out.push(b'x'),
            OscPhase::Id => id(out),
            OscPhase::Payload if text.keep == StringRetention::TooLong => out.push(b'x'),
            OscPhase::Payload => {
                id(out);
                out.push(b';');
                out.extend_from_slice(&text.data);
            }
        }
    }
}

impl Text {
    fn put(&mut self, code: u32, limit: usize) {
        if self.keep != StringRetention::All {
            return;
        }
        let Some(c) = char::from_u32(code) else { return };
        self.data.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        if self.data.len() > limit {
            self.data = Vec::new();
            self.keep = StringRetention::TooLong;
        }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.data).unwrap_or("")
    }
}

/// A UTF-8 character of which only some bytes have arrived.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Utf8 {
    bytes: [u8; 3],
    len: u8,
    need: u8,
}

/// The result of one byte of UTF-8.
pub(crate) enum Decoded {
    Code(u32),
    More,
    /// The byte, or the character that it ends, is dropped.
    Skip,
    /// The incomplete character is dropped, and the byte has to be pushed again.
    Again,
}

impl Utf8 {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Decodes the next byte. Malformed input and byte order marks are dropped silently.
    #[inline]
    pub fn push(&mut self, byte: u8) -> Decoded {
        if self.len == 0 {
            self.need = match byte {
                0..0x80 => return Decoded::Code(u32::from(byte)),
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0..0xf8 => 4,
                _ => return Decoded::Skip,
            };
            self.bytes[0] = byte;
            self.len = 1;
            return Decoded::More;
        }
        if byte & 0xc0 != 0x80 {
            self.len = 0;
            return Decoded::Again;
        }
        if self.len + 1 < self.need {
            self.bytes[usize::from(self.len)] = byte;
            self.len += 1;
            return Decoded::More;
        }
        let low = |b: u8| u32::from(b & 0x3f);
        let [a, b, c] = self.bytes;
        self.len = 0;
        let (code, min) = match self.need {
            2 => (u32::from(a & 0x1f) << 6 | low(byte), 0x80),
            3 => (u32::from(a & 0x0f) << 12 | low(b) << 6 | low(byte), 0x800),
            _ => (u32::from(a & 7) << 18 | low(b) << 12 | low(c) << 6 | low(byte), 0x1_0000),
        };
        if code < min || code == 0xfeff || char::from_u32(code).is_none() {
            return Decoded::Skip;
        }
        Decoded::Code(code)
    }
}
