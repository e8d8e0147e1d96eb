//! The format of segments and records. Pure.

use std::path::Path;

use wire::{MAX_DATA, RecordKind};

/// The maximum length of the data in one record.
pub const MAX_RECORD_BYTES: usize = MAX_DATA;

/// The size of a reader's buffer, which fits the longest record.
pub const SCRATCH_BYTES: usize = RECORD_HEADER_BYTES + MAX_RECORD_BYTES;

/// The length of a segment's header.
pub(super) const SEGMENT_HEADER_BYTES: usize = 24;
/// The length of a record's header.
pub(super) const RECORD_HEADER_BYTES: usize = 17;

const MAGIC: &[u8; 8] = b"STEADLOG";
const VERSION: u32 = 1;

/// Returns the header of the segment that begins at `base`.
pub(super) fn header(base: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..20].copy_from_slice(&base.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Returns the header of a record.
pub(super) fn record(
    kind: RecordKind,
    offset: u64,
    time_ms: u64,
    data: &[u8],
) -> [u8; RECORD_HEADER_BYTES] {
    let mut bytes = [0; RECORD_HEADER_BYTES];
    bytes[0] = kind.number();
    bytes[1..5].copy_from_slice(&(data.len() as u32).to_le_bytes());
    bytes[5..13].copy_from_slice(&time_ms.to_le_bytes());
    let crc = checksum(&bytes[..13], offset, data);
    bytes[13..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn checksum(head: &[u8], offset: u64, data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(&offset.to_le_bytes());
    hasher.update(data);
    hasher.finalize()
}

/// The result of parsing a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A complete record with a correct checksum.
    Record { kind: RecordKind, time_ms: u64, data: &'a [u8] },
    /// More bytes are needed.
    Short,
    /// The bytes are not a valid record.
    Bad,
}

/// Reads the record at the start of `bytes`, which should be the one at `offset`.
pub(super) fn parse(bytes: &[u8], offset: u64) -> Parsed<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return Parsed::Short;
    };
    let [kind, l0, l1, l2, l3, t0, t1, t2, t3, t4, t5, t6, t7, c0, c1, c2, c3] = *head;
    let kind = RecordKind::from(kind);
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let time_ms = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let shape_is_possible = match kind {
        RecordKind::Output | RecordKind::Notice => (1..=MAX_RECORD_BYTES).contains(&length),
        RecordKind::Resize => length == 4,
        RecordKind::Other(_) => false,
    };
    if !shape_is_possible || offset.checked_add(length as u64).is_none() {
        return Parsed::Bad;
    }
    let Some(data) = rest.get(..length) else { return Parsed::Short };
    if checksum(&head[..13], offset, data) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Parsed::Bad;
    }
    Parsed::Record { kind, time_ms, data }
}

/// Returns how many offsets a record takes.
pub(super) fn span(kind: RecordKind, length: usize) -> u64 {
    match kind {
        RecordKind::Output | RecordKind::Notice => length as u64,
        RecordKind::Resize | RecordKind::Other(_) => 0,
    }
}

/// Returns the file name of the segment that begins at `base`.
pub(super) fn name(base: u64) -> String {
    format!("{base:016x}")
}

fn base(name: &str) -> Option<u64> {
    let plain =
        name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    plain.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

/// Returns the bases of all segments in a directory in ascending order. A missing directory has none.
pub(super) fn list(dir: &Path) -> std::io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut bases = Vec::new();
    for entry in entries {
        if let Some(base) = entry?.file_name().to_str().and_then(base) {
            bases.push(base);
        }
    }
    bases.sort_unstable();
    Ok(bases)
}
