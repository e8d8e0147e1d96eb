//! A byte stream both ways as lines of text, for channels that only promise to carry text.
//!
//! ```text
//! d OFFSET CHECK BASE64     bytes, and where in the stream they belong
//! a OFFSET CHECK            so much has arrived
//! ```
//! A line that was torn fails its check and is passed over; one that comes twice is known by its
//! offset. So whoever does not know whether a line arrived may send it again. Only so many bytes are on
//! their way at a time, so that no buffer on the way overflows.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

/// Bytes that may be on their way into a sandbox: what a terminal there takes at once is little.
pub(super) const INWARD: u64 = 32 << 10;
/// Bytes that may be on their way out of it: a terminal's watcher there that falls far behind gets a picture
/// instead of what was written.
pub(super) const OUTWARD: u64 = 256 << 10;
/// Bytes in one line.
pub(super) const PIECE: usize = 24 << 10;
/// The longest line there can be.
pub(super) const LONGEST: usize = 2 * PIECE;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Bytes from an offset on.
    Data(u64, Vec<u8>),
    /// Everything before this has arrived.
    Arrived(u64),
}

impl Line {
    /// What a line says, if it is whole.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end_matches(['\r', '\n']);
        let mut words = text.split(' ');
        let kind = words.next()?;
        let offset: u64 = words.next()?.parse().ok()?;
        let sum = words.next()?;
        let line = match kind {
            "d" => Self::Data(offset, STANDARD_NO_PAD.decode(words.next()?).ok()?),
            "a" => Self::Arrived(offset),
            _ => return None,
        };
        (words.next().is_none() && line.check() == sum).then_some(line)
    }

    /// The line, with its end.
    pub(super) fn text(&self) -> String {
        let check = self.check();
        match self {
            Self::Data(offset, bytes) => {
                format!("d {offset} {check} {}\n", STANDARD_NO_PAD.encode(bytes))
            }
            Self::Arrived(offset) => format!("a {offset} {check}\n"),
        }
    }

    fn check(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        match self {
            Self::Data(offset, bytes) => {
                hasher.update(b"d").update(&offset.to_le_bytes()).update(bytes)
            }
            Self::Arrived(offset) => hasher.update(b"a").update(&offset.to_le_bytes()),
        };
        hasher.finalize().to_hex()[..8].to_owned()
    }
}

/// The next line of what has come, with its end, if it is there.
pub(super) fn take(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let rest = buffer.split_off(end + 1);
    Some(std::mem::replace(buffer, rest))
}

/// One end of a stream.
#[derive(Debug)]
pub(super) struct End {
    /// How much may be on its way from here.
    window: u64,
    /// How much is taken in before that is said.
    step: u64,
    sent: u64,
    arrived: u64,
    received: u64,
    said: u64,
}

/// Bytes are missing: the other end is not the one we think it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missing;

impl End {
    /// The end outside the sandbox.
    pub(super) fn outside() -> Self {
        Self::new(INWARD, OUTWARD)
    }

    /// The end inside it.
    pub(super) fn inside() -> Self {
        Self::new(OUTWARD, INWARD)
    }

    fn new(window: u64, theirs: u64) -> Self {
        Self { window, step: theirs / 8, sent: 0, arrived: 0, received: 0, said: 0 }
    }

    /// How many bytes may be sent now.
    pub(super) fn room(&self) -> usize {
        let on_the_way = self.sent - self.arrived;
        usize::try_from(self.window.saturating_sub(on_the_way)).unwrap_or(0)
    }

    /// The lines for these bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        for piece in bytes.chunks(PIECE) {
            text.push_str(&Line::Data(self.sent, piece.to_vec()).text());
            self.sent += piece.len() as u64;
        }
        text
    }

    /// Takes in what came; answers the bytes that were not known yet.
    pub(super) fn receive(&mut self, line: Line) -> Result<Vec<u8>, Missing> {
        match line {
            Line::Arrived(offset) => {
                if offset > self.sent {
                    return Err(Missing);
                }
                self.arrived = self.arrived.max(offset);
                Ok(Vec::new())
            }
            Line::Data(offset, _) if offset > self.received => Err(Missing),
            Line::Data(offset, mut bytes) => {
                let known = usize::try_from(self.received - offset).unwrap_or(usize::MAX);
                if known >= bytes.len() {
                    return Ok(Vec::new());
                }
                self.received = offset + bytes.len() as u64;
                Ok(bytes.split_off(known))
            }
        }
    }

    /// What the other end should hear of what has arrived, if it is time.
    pub(super) fn answer(&mut self) -> Option<String> {
        (self.received - self.said >= self.step).then(|| {
            self.said = self.received;
            Line::Arrived(self.received).text()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whatever is torn, doubled or noise in between, the bytes come once and in order.
        #[test]
        fn bytes_come_once_and_in_order(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60_000), 0..4u8), 0..12),
        ) {
            let (mut here, mut there) = (End::inside(), End::outside());
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
                    if let Some(line) = Line::parse(&line) {
                        got.extend(there.receive(line).unwrap());
                    }
                }
                if let Some(answer) = there.answer() {
                    let answer = Line::parse(answer.as_bytes()).unwrap();
                    prop_assert!(here.receive(answer).unwrap().is_empty());
                }
                prop_assert!(here.room() as u64 >= OUTWARD - OUTWARD / 8);
            }
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn what_is_missing_is_noticed() {
        let (mut here, mut there) = (End::inside(), End::outside());
        here.send(b"one");
        let second = here.send(b"two");
        assert_eq!(there.receive(Line::parse(second.as_bytes()).unwrap()), Err(Missing));
        assert_eq!(there.receive(Line::Arrived(1)), Err(Missing));
        assert_eq!(Line::parse(b"d 0 00000000 AAAA\n"), None);
    }
}
