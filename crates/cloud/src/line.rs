//! A byte stream in both directions as lines of text, for channels that only carry text.
//!
//! ```text
//! d OFFSET CHECK BASE64     bytes, and their offset in the stream
//! a OFFSET CHECK            acknowledges everything before the offset
//! ```
//! A torn line fails its check and is ignored; a repeated one is recognized by its offset. So a sender that
//! does not know whether a line arrived may send it again. A window limits the bytes in transit, so that no
//! buffer on the way overflows.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

/// The window into a sandbox, whose terminal has a small input buffer.
pub(super) const INWARD_WINDOW: u64 = 32 << 10;
/// The window out of a sandbox. A watcher that falls far behind gets a snapshot instead of the output.
pub(super) const OUTWARD_WINDOW: u64 = 256 << 10;
/// The maximum number of bytes per line.
pub(super) const MAX_LINE_BYTES: usize = 24 << 10;
pub(super) const MAX_LINE_CHARS: usize = 2 * MAX_LINE_BYTES;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BridgeLine {
    /// Bytes, and the offset of the first.
    Data(u64, Vec<u8>),
    /// All bytes before this offset have arrived.
    Acknowledge(u64),
}

impl BridgeLine {
    /// Parses a line; `None` if its check fails.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end_matches(['\r', '\n']);
        let mut words = text.split(' ');
        let kind = words.next()?;
        let offset: u64 = words.next()?.parse().ok()?;
        let sum = words.next()?;
        let line = match kind {
            "d" => Self::Data(offset, STANDARD_NO_PAD.decode(words.next()?).ok()?),
            "a" => Self::Acknowledge(offset),
            _ => return None,
        };
        (words.next().is_none() && line.check() == sum).then_some(line)
    }

    /// Formats the line, with its newline.
    pub(super) fn text(&self) -> String {
        let check = self.check();
        match self {
            Self::Data(offset, bytes) => {
                format!("d {offset} {check} {}\n", STANDARD_NO_PAD.encode(bytes))
            }
            Self::Acknowledge(offset) => format!("a {offset} {check}\n"),
        }
    }

    fn check(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        match self {
            Self::Data(offset, bytes) => {
                hasher.update(b"d").update(&offset.to_le_bytes()).update(bytes)
            }
            Self::Acknowledge(offset) => hasher.update(b"a").update(&offset.to_le_bytes()),
        };
        hasher.finalize().to_hex()[..8].to_owned()
    }
}

/// Removes the first complete line from a buffer.
pub(super) fn take(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let rest = buffer.split_off(end + 1);
    Some(std::mem::replace(buffer, rest))
}

/// One end of a stream.
#[derive(Debug)]
pub(super) struct StreamEnd {
    /// How many bytes may be in transit from here.
    window: u64,
    /// How many bytes are received before an acknowledgement is sent.
    step: u64,
    /// How many bytes were sent.
    sent: u64,
    /// The last of them, which were not acknowledged.
    in_transit: Vec<u8>,
    received: u64,
    acknowledged: u64,
    /// The other end repeated a line, so it lacks an acknowledgement.
    was_asked: bool,
}

/// Bytes are missing: the other end belongs to another stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingBytes;

impl StreamEnd {
    pub(super) fn outside() -> Self {
        Self::new(INWARD_WINDOW, OUTWARD_WINDOW)
    }

    pub(super) fn inside() -> Self {
        Self::new(OUTWARD_WINDOW, INWARD_WINDOW)
    }

    fn new(window: u64, theirs: u64) -> Self {
        Self {
            window,
            step: theirs / 8,
            sent: 0,
            in_transit: Vec::new(),
            received: 0,
            acknowledged: 0,
            was_asked: false,
        }
    }

    /// How many bytes may be sent now.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.window).unwrap_or(usize::MAX).saturating_sub(self.in_transit.len())
    }

    /// The offset up to which everything has arrived, if bytes are in transit.
    pub(super) fn awaits(&self) -> Option<u64> {
        (!self.in_transit.is_empty()).then(|| self.sent - self.in_transit.len() as u64)
    }

    /// Formats the bytes in transit again. The other end acknowledges what it has.
    pub(super) fn repeat(&self) -> String {
        let mut offset = self.sent - self.in_transit.len() as u64;
        let mut text = String::new();
        for piece in self.in_transit.chunks(MAX_LINE_BYTES) {
            text.push_str(&BridgeLine::Data(offset, piece.to_vec()).text());
            offset += piece.len() as u64;
        }
        text
    }

    /// Formats these bytes as lines.
    pub(super) fn send(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        for piece in bytes.chunks(MAX_LINE_BYTES) {
            text.push_str(&BridgeLine::Data(self.sent, piece.to_vec()).text());
            self.sent += piece.len() as u64;
        }
        self.in_transit.extend_from_slice(bytes);
        text
    }

    /// Applies a line. Returns the bytes that are new.
    pub(super) fn receive(&mut self, line: BridgeLine) -> Result<Vec<u8>, MissingBytes> {
        match line {
            BridgeLine::Acknowledge(offset) => {
                if offset > self.sent {
                    return Err(MissingBytes);
                }
                let left = usize::try_from(self.sent - offset).unwrap_or(usize::MAX);
                let arrived = self.in_transit.len().saturating_sub(left);
                self.in_transit.drain(..arrived);
                Ok(Vec::new())
            }
            BridgeLine::Data(offset, _) if offset > self.received => Err(MissingBytes),
            BridgeLine::Data(offset, mut bytes) => {
                let known = usize::try_from(self.received - offset).unwrap_or(usize::MAX);
                if known > 0 {
                    self.was_asked = true;
                }
                if known >= bytes.len() {
                    return Ok(Vec::new());
                }
                self.received = offset + bytes.len() as u64;
                Ok(bytes.split_off(known))
            }
        }
    }

    /// Returns an acknowledgement, if one is due.
    pub(super) fn answer(&mut self) -> Option<String> {
        let asked = std::mem::take(&mut self.was_asked);
        (asked || self.received - self.acknowledged >= self.step).then(|| {
            self.acknowledged = self.received;
            BridgeLine::Acknowledge(self.received).text()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Torn lines, repeated lines and noise do not change the bytes.
        #[test]
        fn bytes_arrive_once_and_in_order(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60_000), 0..4u8), 0..12),
        ) {
            let (mut here, mut there) = (StreamEnd::inside(), StreamEnd::outside());
            let (mut sent, mut got) = (Vec::new(), Vec::new());
            for (bytes, harm) in pieces {
                sent.extend_from_slice(&bytes);
                let text = here.send(&bytes);
                let mut wire = match harm {
                    0 => text,
                    1 => format!("{text}{text}"),
                    2 => format!("{}\n{text}", &text[..text.len() / 2]),
                    _ => format!("\n$ noise d 1 2\r\n{text}"),
                }.into_bytes();
                while let Some(line) = take(&mut wire) {
                    if let Some(line) = BridgeLine::parse(&line) {
                        got.extend(there.receive(line).unwrap());
                    }
                }
                if let Some(answer) = there.answer() {
                    let answer = BridgeLine::parse(answer.as_bytes()).unwrap();
                    prop_assert!(here.receive(answer).unwrap().is_empty());
                }
                prop_assert!(here.room() as u64 >= OUTWARD_WINDOW - OUTWARD_WINDOW / 8);
            }
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn a_lost_line_is_repeated_and_acknowledged() {
        let (mut here, mut there) = (StreamEnd::inside(), StreamEnd::outside());
        let first = here.send(b"one");
        let line = |text: &str| BridgeLine::parse(text.as_bytes()).unwrap();
        assert_eq!(there.receive(line(&first)).unwrap(), b"one");
        assert_eq!(there.answer(), None, "few bytes need no acknowledgement");
        here.send(b"two");
        assert_eq!(here.awaits(), Some(0));
        // The second line was lost.
        assert_eq!(there.receive(line(&here.repeat())).unwrap(), b"two");
        let answer = there.answer().unwrap();
        here.receive(line(&answer)).unwrap();
        assert_eq!((here.awaits(), here.room() as u64), (None, OUTWARD_WINDOW));
        assert_eq!(here.repeat(), "");
    }

    #[test]
    fn missing_bytes_are_detected() {
        let (mut here, mut there) = (StreamEnd::inside(), StreamEnd::outside());
        here.send(b"one");
        let second = here.send(b"two");
        assert_eq!(there.receive(BridgeLine::parse(second.as_bytes()).unwrap()), Err(MissingBytes));
        assert_eq!(there.receive(BridgeLine::Acknowledge(1)), Err(MissingBytes));
        assert_eq!(BridgeLine::parse(b"d 0 00000000 AAAA\n"), None);
    }
}
