//! The bytes of one change: `u32 length | 8 bytes checksum | body`, integers little-endian.
//!
//! The log and the snapshot are made of the same records. A reader stops at the first one that is
//! not whole; nothing in the data decides the framing.

use bytes::Bytes;

use model::Timestamp;

/// Bytes before the body.
const HEAD: usize = 12;
/// Largest body that is believed: beyond any limit that can be set.
const MAX_BODY: usize = 1 << 30;

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// A file has this content.
    Put { key: Box<str>, bytes: Bytes, at: Timestamp, version: u64 },
    /// A directory is there even when nothing is in it.
    MakeDirectory { key: Box<str>, at: Timestamp },
    /// This and all below it is no more.
    Remove { key: Box<str> },
    /// This and all below it is there instead; what was there before is no more.
    Move { from: Box<str>, to: Box<str> },
    /// A snapshot begins: it holds what all logs before this generation hold.
    Begin { generation: u64, version: u64 },
    /// A snapshot ends and has that many records between.
    End { count: u64 },
}

/// Appends the record of a change.
pub(super) fn encode(op: &Op, out: &mut Vec<u8>) {
    let head = out.len();
    out.extend_from_slice(&[0; HEAD]);
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
    let body = head + HEAD;
    let length = u32::try_from(out.len() - body).expect("a value is far below 4 GiB");
    let sum = checksum(&out[body..]);
    out[head..head + 4].copy_from_slice(&length.to_le_bytes());
    out[head + 4..body].copy_from_slice(&sum);
}

/// The change at the beginning of these bytes and how many bytes it takes; `None` if there is none
/// that is whole.
pub(super) fn decode(from: &Bytes) -> Option<(Op, usize)> {
    let length = u32::from_le_bytes(from.get(..4)?.try_into().ok()?) as usize;
    if length == 0 || length > MAX_BODY {
        return None;
    }
    let end = HEAD + length;
    if from.len() < end || checksum(&from[HEAD..end]) != from[4..HEAD] {
        return None;
    }
    let mut body = Body(from.slice(HEAD..end));
    let op = match body.take(1)?[0] {
        1 => {
            let at = body.time()?;
            let version = body.number()?;
            let key = body.text()?;
            // A copy, or one small value would keep a whole file in memory.
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
        fn a_record_comes_back_as_it_went(op in ops()) {
            let mut bytes = Vec::new();
            encode(&op, &mut bytes);
            let length = bytes.len();
            bytes.extend_from_slice(b"what follows");
            prop_assert_eq!(decode(&Bytes::from(bytes)), Some((op, length)));
        }

        #[test]
        fn a_cut_or_changed_record_is_none(op in ops(), at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = Vec::new();
            encode(&op, &mut bytes);
            let at = at.index(bytes.len());
            prop_assert_eq!(decode(&Bytes::copy_from_slice(&bytes[..at])), None);
            bytes[at] ^= flip;
            prop_assert_eq!(decode(&Bytes::from(bytes)), None);
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&Bytes::from(bytes));
        }
    }
}
