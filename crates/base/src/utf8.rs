//! Cuts a byte stream at UTF-8 character boundaries.

use bytes::Bytes;

/// Holds back an incomplete character until its remaining bytes arrive.
#[derive(Debug, Default)]
pub struct Cutter {
    rest: Vec<u8>,
}

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Utf8Piece {
    Text(String),
    /// Not valid UTF-8.
    Binary(Vec<u8>),
}

impl Cutter {
    /// Returns the complete characters of the held-back bytes and `bytes`; `None` if there is none.
    pub fn cut(&mut self, bytes: &[u8]) -> Option<Utf8Piece> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let keep = all.len() - unfinished(&all);
        self.rest = all.split_off(keep);
        if all.is_empty() {
            return None;
        }
        Some(match String::from_utf8(all) {
            Ok(text) => Utf8Piece::Text(text),
            Err(error) => Utf8Piece::Binary(error.into_bytes()),
        })
    }

    /// Like [`Cutter::cut`], for clients that accept any bytes.
    pub fn cut_bytes(&mut self, bytes: Bytes) -> Option<Bytes> {
        let all = if self.rest.is_empty() {
            bytes
        } else {
            let mut all = std::mem::take(&mut self.rest);
            all.extend_from_slice(&bytes);
            all.into()
        };
        let keep = all.len() - unfinished(&all);
        self.rest = all[keep..].to_vec();
        (keep > 0).then(|| all.slice(..keep))
    }

    pub fn held(&self) -> usize {
        self.rest.len()
    }

    /// Takes the held-back bytes at the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Like [`Cutter::cut`], with invalid bytes replaced.
    pub fn lossy(&mut self, bytes: &[u8]) -> String {
        match self.cut(bytes) {
            Some(Utf8Piece::Text(text)) => text,
            Some(Utf8Piece::Binary(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            None => String::new(),
        }
    }
}

/// Returns how many bytes at the end of `bytes` belong to an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_stays_text_however_it_is_cut(text in "\\PC{0,40}", cuts in prop::collection::vec(0usize..160, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut cutter = Cutter::default();
            let mut seen = String::new();
            for pair in cuts.windows(2) {
                match cutter.cut(&bytes[pair[0]..pair[1]]) {
                    Some(Utf8Piece::Text(piece)) => seen.push_str(&piece),
                    Some(Utf8Piece::Binary(piece)) => panic!("{piece:?} is not text"),
                    None => {}
                }
            }
            prop_assert_eq!(seen, text);
        }

        #[test]
        fn no_byte_is_lost(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in 0usize..64) {
            let cut = cut.min(bytes.len());
            let mut cutter = Cutter::default();
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                match cutter.cut(part) {
                    Some(Utf8Piece::Text(piece)) => seen.extend(piece.into_bytes()),
                    Some(Utf8Piece::Binary(piece)) => seen.extend(piece),
                    None => {}
                }
            }
            prop_assert!(bytes.starts_with(&seen));
            prop_assert_eq!(bytes.len() - seen.len(), cutter.held());
            let mut cutter = Cutter::default();
            let parts = [&bytes[..cut], &bytes[cut..]].map(Bytes::copy_from_slice);
            let same: Vec<Bytes> =
                parts.into_iter().filter_map(|part| cutter.cut_bytes(part)).collect();
            prop_assert_eq!(same.concat(), seen);
        }
    }
}
