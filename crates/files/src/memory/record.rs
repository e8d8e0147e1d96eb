//! The record format of changes: `u32 length | 8 bytes checksum | body`, integers little-endian.
//!
//! Log and snapshot consist of the same records. A reader stops at the first invalid record. The framing
//! does not depend on the data.

use bytes::Bytes;

use model::Timestamp;

/// Length and checksum before the body.
const HEADER_BYTES: usize = 12;
/// A longer record is invalid; this is above any configurable limit.
const MAX_BODY_BYTES: usize = 1 << 30;

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// Writes a file with this content.
    Put { key: Box<str>, bytes: Bytes, at: Timestamp, version: u64 },
    /// Creates a directory that exists even if it is empty.
    MakeDirectory { key: Box<str>, at: Timestamp },
    /// Removes a file, or a directory with everything below it.
    Remove { key: Box<str> },
    /// Moves a file, or a directory with everything below it, and replaces the target.
    Move { from: Box<str>, to: Box<str> },
    /// Starts a snapshot, which contains all logs before this generation.
    Begin { generation: u64, version: u64 },
    /// Ends a snapshot with this many records.
    End { count: u64 },
}

/// Appends the record of a change.
pub(super) fn encode(op: &Op, out: &mut Vec<u8>) {
    let head = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    match op {
        Op::Put { key, bytes, at, version } => {
            out.push(1);
            out.extend_from_slice(&at.as_microsecond().to_le_bytes());
            out.extend_from_slice(&version.to_le_bytes());
            text(key, out);
            out.extend_from_slice(bytes);
        }
        Op::MakeDirectory { key, at } => {
            out.push(2);
            out.extend_from_slice(&at.as_microsecond().to_le_bytes());
            text(key, out);
        }
        Op::Remove { key } => {
            out.push(3);
            text(key, out);
        }
        Op::Move { from, to } => {
            out.push(4);
            text(from, out);
            text(to, out);
        }
        Op::Begin { generation, version } => {
            out.push(5);
            out.extend_from_slice(&generation.to_le_bytes());
            out.extend_from_slice(&version.to_le_bytes());
        }
        Op::End { count } => {
            out.push(6);
            out.extend_from_slice(&count.to_le_bytes());
        }
    }
    let body = head + HEADER_BYTES;
    let length = u32::try_from(out.len() - body).expect("a record is far below 4 GiB");
    let sum = checksum(&out[body..]);
    out[head..head + 4].copy_from_slice(&length.to_le_bytes());
    out[head + 4..body].copy_from_slice(&sum);
}

/// Decodes the first record and returns it with its length, or `None` if it is incomplete or invalid.
pub(super) fn decode(from: &Bytes) -> Option<(Op, usize)> {
    let length = u32::from_le_bytes(from.get(..4)?.try_into().ok()?) as usize;
    if length == 0 || length > MAX_BODY_BYTES {
        return None;
    }
    let end = HEADER_BYTES + length;
    if from.len() < end || checksum(&from[HEADER_BYTES..end]) != from[4..HEADER_BYTES] {
        return None;
    }
    let mut body = Body(from.slice(HEADER_BYTES..end));
    let op = match body.take(1)?[0] {
        1 => {
            let at = body.time()?;
            let version = body.number()?;
            let key = body.text()?;
            // A copy, because a slice would keep the whole file in memory.
            Op::Put { key, bytes: Bytes::copy_from_slice(&body.0), at, version }
        }
        2 => {
            let at = body.time()?;
            Op::MakeDirectory { key: body.text()?, at }
        }
        3 => Op::Remove { key: body.text()? },
        4 => Op::Move { from: body.text()?, to: body.text()? },
        5 => Op::Begin { generation: body.number()?, version: body.number()? },
        6 => Op::End { count: body.number()? },
        _ => return None,
    };
    Some((op, end))
}

fn text(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("a path is short");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn checksum(body: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&blake3::hash(body).as_bytes()[..8]);
    sum
}

struct Body(Bytes);

impl Body {
    fn take(&mut self, count: usize) -> Option<Bytes> {
        (self.0.len() >= count).then(|| self.0.split_to(count))
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.as_ref().try_into().ok()?))
    }

    fn time(&mut self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.number()?.cast_signed()).ok()
    }

    fn text(&mut self) -> Option<Box<str>> {
        let length = u32::from_le_bytes(self.take(4)?.as_ref().try_into().ok()?);
        let bytes = self.take(length as usize)?;
        Some(std::str::from_utf8(&bytes).ok()?.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ops() -> impl Strategy<Value = Op> {
        let key = "[a-z/]{0,20}".prop_map(String::into_boxed_str);
        let at = (0i64..4_000_000_000_000_000)
            .prop_map(|micros| Timestamp::from_microsecond(micros).unwrap());
        let bytes = prop::collection::vec(any::<u8>(), 0..100).prop_map(Bytes::from);
        prop_oneof![
            (key.clone(), bytes, at.clone(), any::<u64>())
                .prop_map(|(key, bytes, at, version)| Op::Put { key, bytes, at, version }),
            (key.clone(), at).prop_map(|(key, at)| Op::MakeDirectory { key, at }),
            key.clone().prop_map(|key| Op::Remove { key }),
            (key.clone(), key).prop_map(|(from, to)| Op::Move { from, to }),
            any::<(u64, u64)>().prop_map(|(generation, version)| Op::Begin { generation, version }),
            any::<u64>().prop_map(|count| Op::End { count }),
        ]
    }

    proptest! {
        #[test]
        fn a_record_survives_encoding_and_decoding(op in ops()) {
            let mut bytes = Vec::new();
            encode(&op, &mut bytes);
            let length = bytes.len();
            bytes.extend_from_slice(b"what follows");
            prop_assert_eq!(decode(&Bytes::from(bytes)), Some((op, length)));
        }

        #[test]
        fn a_truncated_or_corrupted_record_is_invalid(op in ops(), at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = Vec::new();
            encode(&op, &mut bytes);
            let at = at.index(bytes.len());
            prop_assert_eq!(decode(&Bytes::copy_from_slice(&bytes[..at])), None);
            bytes[at] ^= flip;
            prop_assert_eq!(decode(&Bytes::from(bytes)), None);
        }

        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&Bytes::from(bytes));
        }
    }
}
