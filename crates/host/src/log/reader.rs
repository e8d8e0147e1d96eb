//! Reading a log from an offset, while it is written or after its writer has exited.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{self, MAX_RECORD_BYTES, Parsed, SCRATCH_BYTES, SEGMENT_HEADER_BYTES};
use wire::RecordKind;

/// A position in a log. It has no open file, so that there can be thousands of positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCursor {
    /// The first offset that was not read.
    next: u64,
    position: Option<SegmentPosition>,
}

/// A record boundary in a segment: its position in the file, and its offset in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SegmentPosition {
    base: u64,
    in_file: u64,
    offset: u64,
}

/// An item of a log.
#[derive(Debug, PartialEq, Eq)]
pub enum LogItem<'a> {
    /// A record, or the rest of one.
    Record {
        /// The kind of record.
        kind: RecordKind,
        /// The offset of the first byte of `data`.
        offset: u64,
        /// When it was written.
        time_ms: u64,
        /// The content, as in [`Record::data`].
        data: &'a [u8],
    },
    /// Offsets that cannot be read.
    Gap {
        /// The first missing offset.
        from: u64,
        /// The first offset after the gap.
        to: u64,
    },
}

/// Whether there may be more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadProgress {
    /// There may be more to read.
    More,
    /// The end of the log was reached.
    End,
}

impl LogCursor {
    /// Returns a cursor at `offset`.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self { next: offset, position: None }
    }

    /// Returns the first offset that was not read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.next
    }

    /// Returns the position in the current segment.
    pub(super) fn position(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.in_file)
    }

    /// Reads once from the disk, at most `limit` bytes of data, and passes the items to `visit`. There may
    /// be no item even if [`ReadProgress::More`] is returned.
    ///
    /// # Errors
    /// The error of the disk; the cursor does not move.
    pub fn advance(
        &mut self,
        dir: &Path,
        scratch: &mut [u8; SCRATCH_BYTES],
        limit: usize,
        visit: &mut dyn FnMut(LogItem<'_>),
    ) -> io::Result<ReadProgress> {
        let Some(position) = self.position.clone() else { return self.enter(dir, visit) };
        let file = match File::open(dir.join(format::name(position.base))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Dropped at the size limit or trimmed: continue with the oldest segment.
                self.position = None;
                return Ok(ReadProgress::More);
            }
            file => file?,
        };
        let is_valid =
            position.in_file > SEGMENT_HEADER_BYTES as u64 || has_header(&file, position.base)?;
        if is_valid && self.records(&file, scratch, limit, visit)? {
            return Ok(ReadProgress::More);
        }
        let mut bases = format::list(dir)?.into_iter();
        let Some(following) = bases.find(|base| *base > position.base) else {
            return Ok(ReadProgress::End);
        };
        // The writer may have appended to this segment and begun the next one since the read above. A
        // segment is final once the next one exists, so this second read finds the rest.
        if is_valid && self.records(&file, scratch, limit, visit)? {
            return Ok(ReadProgress::More);
        }
        self.skip_to(following, visit);
        Ok(ReadProgress::More)
    }

    /// Finds the first segment to read.
    fn enter(
        &mut self,
        dir: &Path,
        visit: &mut dyn FnMut(LogItem<'_>),
    ) -> io::Result<ReadProgress> {
        let bases = format::list(dir)?;
        let begun = bases.iter().rev().find(|base| **base <= self.next);
        let Some(base) = begun.or(bases.first()) else { return Ok(ReadProgress::End) };
        self.skip_to(*base, visit);
        Ok(ReadProgress::More)
    }

    fn skip_to(&mut self, base: u64, visit: &mut dyn FnMut(LogItem<'_>)) {
        if self.next < base {
            visit(LogItem::Gap { from: self.next, to: base });
            self.next = base;
        }
        let in_file = SEGMENT_HEADER_BYTES as u64;
        self.position = Some(SegmentPosition { base, in_file, offset: base });
    }

    /// Reads records of the current segment. Returns `false` if there is none at the cursor.
    fn records(
        &mut self,
        file: &File,
        scratch: &mut [u8; SCRATCH_BYTES],
        mut limit: usize,
        visit: &mut dyn FnMut(LogItem<'_>),
    ) -> io::Result<bool> {
        let Some(position) = self.position.as_mut() else { return Ok(false) };
        let filled = read_at(file, scratch, position.in_file)?;
        let mut rest = &scratch[..filled];
        let mut found = false;
        while let Parsed::Record { kind, time_ms, data } = format::parse(rest, position.offset) {
            found = true;
            let end = position.offset + format::span(kind, data.len());
            if kind == RecordKind::Resize {
                if position.offset >= self.next {
                    visit(LogItem::Record { kind, offset: position.offset, time_ms, data });
                }
            } else if end > self.next {
                if limit == 0 {
                    break;
                }
                let offset = self.next.max(position.offset);
                let unread = &data[(offset - position.offset) as usize..];
                let part = &unread[..unread.len().min(limit)];
                visit(LogItem::Record { kind, offset, time_ms, data: part });
                limit -= part.len();
                self.next = offset + part.len() as u64;
                if part.len() < unread.len() {
                    break;
                }
            }
            position.offset = end;
            let size = format::RECORD_HEADER_BYTES + data.len();
            position.in_file += size as u64;
            rest = &rest[size..];
        }
        Ok(found)
    }
}

fn has_header(file: &File, base: u64) -> io::Result<bool> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    Ok(read_at(file, &mut bytes, 0)? == SEGMENT_HEADER_BYTES && bytes == format::header(base))
}

/// Fills `bytes` up to the end of the file. Returns the number of bytes read.
fn read_at(file: &File, bytes: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A record that owns its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The kind of record.
    pub kind: RecordKind,
    /// The offset of its first byte.
    pub offset: u64,
    /// When it was written.
    pub time_ms: u64,
    /// The content; for [`RecordKind::Resize`], columns and rows as two little-endian `u16`.
    pub data: Vec<u8>,
}

impl Record {
    /// Returns columns and rows if this is a resize.
    #[must_use]
    pub fn size(&self) -> Option<(u16, u16)> {
        match (self.kind, self.data.as_slice()) {
            (RecordKind::Resize, &[c0, c1, r0, r1]) => {
                Some((u16::from_le_bytes([c0, c1]), u16::from_le_bytes([r0, r1])))
            }
            _ => None,
        }
    }
}

/// A record, or offsets that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A record, or the rest of one.
    Record(Record),
    /// Offsets that were dropped, damaged or never written.
    Gap {
        /// The first missing offset.
        from: u64,
        /// The first offset after the gap.
        to: u64,
    },
}

/// Reads a log directory, even of a host that has exited. Blocking.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    cursor: LogCursor,
    scratch: Box<[u8; SCRATCH_BYTES]>,
}

impl Reader {
    /// Creates a reader for the `log` directory of a terminal, from an offset on.
    #[must_use]
    pub fn open(dir: impl Into<PathBuf>, from: u64) -> Self {
        Self {
            dir: dir.into(),
            cursor: LogCursor::new(from),
            scratch: vec![0; SCRATCH_BYTES]
                .into_boxed_slice()
                .try_into()
                .unwrap_or_else(|_| Box::new([0; SCRATCH_BYTES])),
        }
    }

    /// Returns the next entries, in order and without overlap, with at most `limit` bytes of data. Returns
    /// no entries at the end of the log.
    ///
    /// # Errors
    /// The error of the disk; the same entries can be read again.
    pub fn read(&mut self, limit: usize) -> io::Result<Vec<Entry>> {
        let limit = limit.clamp(1, 16 * MAX_RECORD_BYTES);
        let mut entries = Vec::new();
        let mut taken = 0;
        while taken < limit {
            let mut visit = |item: LogItem<'_>| {
                entries.push(match item {
                    LogItem::Record { kind, offset, time_ms, data } => {
                        taken += data.len();
                        Entry::Record(Record { kind, offset, time_ms, data: data.to_vec() })
                    }
                    LogItem::Gap { from, to } => Entry::Gap { from, to },
                });
            };
            let left = limit;
            match self.cursor.advance(&self.dir, &mut self.scratch, left, &mut visit)? {
                ReadProgress::More if entries.is_empty() => {}
                ReadProgress::More | ReadProgress::End => break,
            }
        }
        Ok(entries)
    }

    /// Returns the first offset that was not read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.cursor.offset()
    }
}

/// Returns the first offset of a log directory and the offset after its last, or `None` if it is empty.
///
/// # Errors
/// The error of the disk.
pub fn bounds(dir: &Path) -> io::Result<Option<(u64, u64)>> {
    let bases = format::list(dir)?;
    let (Some(first), Some(last)) = (bases.first(), bases.last()) else { return Ok(None) };
    let mut reader = Reader::open(dir, *last);
    while !reader.read(usize::MAX)?.is_empty() {}
    Ok(Some((*first, reader.offset())))
}
