//! Writing a log.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::format::{self, MAX_RECORD_BYTES, SCRATCH_BYTES, SEGMENT_HEADER_BYTES};
use super::reader::{LogCursor, ReadProgress};
use super::sync::{Durable, SyncJob, SyncScope};
use wire::RecordKind;

/// The minimum size limit of a log, so that any record fits into a segment.
pub const MIN_LIMIT_BYTES: u64 = 256 << 10;

/// How long after a failed write the next write is attempted.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum size of a segment. Trimming and seeking work on whole segments.
const MAX_SEGMENT_BYTES: u64 = 4 << 20;

/// How many unsynced bytes are synced without waiting for the timer.
const SYNC_BYTES: u64 = 128 << 10;

/// The one writer of a log directory.
#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    limit: u64,
    /// Oldest first. If there is a `file`, it is the last segment.
    segments: VecDeque<Segment>,
    file: Option<Arc<File>>,
    end: u64,
    size: (u16, u16),
    broken_since: Option<Instant>,
    lost: u64,
    unsynced: Unsynced,
    durable: Arc<Durable>,
}

#[derive(Debug)]
struct Segment {
    base: u64,
    size: u64,
}

/// The segments written since the last sync job.
#[derive(Debug, Default)]
struct Unsynced {
    bytes: u64,
    created: bool,
    previous: Option<Arc<File>>,
    /// More segments were closed than stay open for the syncer.
    skipped: bool,
}

/// The position of a log, so that another executable can continue without reading it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The offset after the last byte.
    pub end: u64,
    /// The base of the current segment.
    pub base: u64,
    /// The length of the current segment.
    pub length: u64,
}

impl Log {
    /// Opens or creates a log directory and finds its end, cutting it at the first bad record. The first
    /// offset is `base` if the log does not reach as far.
    ///
    /// # Errors
    /// If the directory cannot be created or read, or its last segment cannot be cut.
    pub fn open(dir: PathBuf, limit: u64, base: u64, size: (u16, u16)) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let mut log = Self::empty(dir, limit, base, size);
        log.recover()?;
        Ok(log)
    }

    /// Continues at the position of another executable. If the directory has changed or cannot be read,
    /// the log continues in a new segment.
    #[must_use]
    pub fn resume(dir: PathBuf, limit: u64, position: Position, size: (u16, u16)) -> Self {
        let mut log = Self::empty(dir, limit, position.end, size);
        let _ = log.load_segments();
        let last = log.segments.back();
        if last.is_some_and(|last| last.base == position.base && last.size == position.length) {
            let file = open(&log.dir, position.base, OpenOptions::new().write(true));
            log.file = file.ok().map(Arc::new);
        }
        // It is unknown what the other executable had synced.
        log.unsynced = Unsynced { bytes: 1, skipped: true, ..Unsynced::default() };
        log
    }

    fn empty(dir: PathBuf, limit: u64, end: u64, size: (u16, u16)) -> Self {
        Self {
            dir,
            limit: limit.max(MIN_LIMIT_BYTES),
            segments: VecDeque::new(),
            file: None,
            end,
            size,
            broken_since: None,
            lost: 0,
            unsynced: Unsynced::default(),
            durable: Arc::new(Durable::new(end)),
        }
    }

    fn load_segments(&mut self) -> io::Result<()> {
        for base in format::list(&self.dir)? {
            let size = fs::metadata(self.dir.join(format::name(base)))?.len();
            self.segments.push_back(Segment { base, size });
        }
        Ok(())
    }

    /// Finds the end of the last segment with a valid record, and cuts what follows.
    fn recover(&mut self) -> io::Result<()> {
        self.load_segments()?;
        let mut scratch = vec![0; SCRATCH_BYTES].into_boxed_slice();
        let scratch: &mut [u8; SCRATCH_BYTES] =
            scratch.as_mut().try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        while let Some(last) = self.segments.back_mut() {
            self.end = self.end.max(last.base);
            let mut cursor = LogCursor::new(last.base);
            while cursor.advance(&self.dir, scratch, usize::MAX, &mut |_| ())? == ReadProgress::More
            {
            }
            let length = cursor.position();
            let path = self.dir.join(format::name(last.base));
            if length <= SEGMENT_HEADER_BYTES as u64 {
                // The segment has no valid record: it was damaged at its start, or its writer was killed
                // between creating and filling it.
                fs::remove_file(path)?;
                self.segments.pop_back();
                continue;
            }
            if length < last.size {
                OpenOptions::new().write(true).open(path)?.set_len(length)?;
                last.size = length;
            }
            if cursor.offset() >= self.end {
                self.end = cursor.offset();
                self.file =
                    Some(Arc::new(open(&self.dir, last.base, OpenOptions::new().write(true))?));
            }
            break;
        }
        self.durable = Arc::new(Durable::new(self.end));
        Ok(())
    }

    /// Appends bytes and returns the offset of the first. Never fails: bytes that cannot be written become
    /// a gap.
    pub fn append(&mut self, kind: RecordKind, time_ms: u64, data: &[u8]) -> u64 {
        let offset = self.end;
        for piece in data.chunks(MAX_RECORD_BYTES) {
            let at = self.end;
            self.end += format::span(kind, piece.len());
            if self.write(kind, at, time_ms, piece).is_err() {
                self.lost += format::span(kind, piece.len());
                self.close_segment();
                // A write that was not attempted does not delay the next attempt.
                if !self.is_backing_off() {
                    self.broken_since = Some(Instant::now());
                }
            }
        }
        offset
    }

    /// Skips to a later offset. The bytes between were never written, and never will be.
    pub fn skip_to(&mut self, offset: u64) {
        if offset > self.end {
            self.close_segment();
            self.end = offset;
        }
    }

    /// Records a new screen size.
    pub fn resize(&mut self, time_ms: u64, cols: u16, rows: u16) -> u64 {
        self.size = (cols, rows);
        self.append(RecordKind::Resize, time_ms, &size_bytes(self.size))
    }

    fn write(
        &mut self,
        kind: RecordKind,
        offset: u64,
        time_ms: u64,
        data: &[u8],
    ) -> io::Result<()> {
        if self.is_backing_off() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.durable.take_failure() {
            // After a failed sync the bytes may be lost although the kernel calls the pages clean: nothing
            // is written after them.
            self.close_segment();
        }
        let needed = (format::RECORD_HEADER_BYTES + data.len()) as u64;
        if self.file.is_some() && self.written() + needed > self.segment_limit() {
            self.close_segment();
        }
        if self.file.is_none() {
            self.begin(offset, time_ms)?;
        }
        let Some(file) = self.file.as_ref() else { return Ok(()) };
        let head = format::record(kind, offset, time_ms, data);
        write_at(file, &[&head, data], self.written())?;
        if let Some(last) = self.segments.back_mut() {
            last.size += needed;
        }
        self.broken_since = None;
        self.unsynced.bytes += needed;
        self.enforce_limit();
        Ok(())
    }

    /// Returns whether a write failed so recently that it is not retried yet.
    fn is_backing_off(&self) -> bool {
        self.broken_since.is_some_and(|since| since.elapsed() < RETRY_INTERVAL)
    }

    /// Creates the segment that begins at `base`.
    fn begin(&mut self, base: u64, time_ms: u64) -> io::Result<()> {
        let size = size_bytes(self.size);
        let resize = format::record(RecordKind::Resize, base, time_ms, &size);
        // A segment without output has the same base, and is overwritten.
        let same = self.segments.back().is_some_and(|last| last.base == base);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = open(&self.dir, base, &options)?;
        if let Err(error) = write_at(&file, &[&format::header(base), &resize, &size], 0) {
            let _ = fs::remove_file(self.dir.join(format::name(base)));
            if same {
                self.segments.pop_back();
            }
            return Err(error);
        }
        if same {
            self.segments.pop_back();
        }
        let length = (SEGMENT_HEADER_BYTES + format::RECORD_HEADER_BYTES + size.len()) as u64;
        self.segments.push_back(Segment { base, size: length });
        self.file = Some(Arc::new(file));
        self.unsynced.created = true;
        Ok(())
    }

    /// Closes the current segment; the next record begins another.
    fn close_segment(&mut self) {
        let Some(file) = self.file.take() else { return };
        // A torn record at the end is cut off. If that fails, too, readers stop before it.
        let _ = file.set_len(self.written());
        if self.unsynced.previous.replace(file).is_some() {
            self.unsynced.skipped = true;
        }
    }

    fn written(&self) -> u64 {
        self.segments.back().map_or(0, |last| last.size)
    }

    fn segment_limit(&self) -> u64 {
        (self.limit / 8).min(MAX_SEGMENT_BYTES)
    }

    fn enforce_limit(&mut self) {
        while self.segments.len() > 1 && self.bytes() > self.limit {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.segments.pop_front() {
            // If it cannot be removed, readers still find it; the size limit is enforced again at the next
            // start.
            let _ = fs::remove_file(self.dir.join(format::name(oldest.base)));
        }
    }

    /// Deletes the segments that end at or before `upto`.
    pub fn trim(&mut self, upto: u64) {
        while self.segments.get(1).is_some_and(|second| second.base <= upto) {
            self.drop_oldest();
        }
        self.durable.trimmed(upto);
    }

    /// Returns the first offset in the log.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.segments.front().map_or(self.end, |first| first.base)
    }

    /// Returns the offset after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the offset up to which everything is on stable storage.
    #[must_use]
    pub fn durable(&self) -> u64 {
        if self.unsynced.bytes == 0 && !self.durable.is_busy() && !self.durable.has_failed() {
            return self.end;
        }
        self.durable.offset()
    }

    /// Returns the size of the log on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Returns how many bytes of output could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the directory of the log.
    #[must_use]
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Returns the size limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the position, for [`Log::resume`].
    #[must_use]
    pub fn position(&self) -> Position {
        let (base, length) = match (&self.file, self.segments.back()) {
            (Some(_), Some(last)) => (last.base, last.size),
            _ => (u64::MAX, 0),
        };
        Position { end: self.end, base, length }
    }

    /// Returns whether anything was written since the last [`Log::sync`].
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.unsynced.bytes > 0
    }

    /// Returns whether so many bytes were written that they should be synced without waiting for the timer.
    #[must_use]
    pub fn is_sync_due(&self) -> bool {
        self.unsynced.bytes >= SYNC_BYTES && !self.durable.is_busy()
    }

    /// Returns the next sync job, unless there is nothing to sync or the last job is still running.
    pub fn sync(&mut self) -> Option<SyncJob> {
        if !self.is_dirty() || self.durable.is_busy() {
            return None;
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        let files = self.file.iter().cloned().chain(unsynced.previous).collect();
        let dir = unsynced.created.then(|| self.dir.clone());
        let scope = if unsynced.skipped { SyncScope::FileSystem } else { SyncScope::Files };
        Some(SyncJob::new(files, dir, scope, self.end, Arc::clone(&self.durable)))
    }
}

fn size_bytes((cols, rows): (u16, u16)) -> [u8; 4] {
    let ([c0, c1], [r0, r1]) = (cols.to_le_bytes(), rows.to_le_bytes());
    [c0, c1, r0, r1]
}

fn open(dir: &std::path::Path, base: u64, options: &OpenOptions) -> io::Result<File> {
    options.clone().mode(0o600).open(dir.join(format::name(base)))
}

/// Writes all parts in one call. A partial write is an error, because a torn record is invalid.
fn write_at(file: &File, parts: &[&[u8]], position: u64) -> io::Result<()> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut slices = [IoSlice::new(&[]); 3];
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let written =
        rustix::io::retry_on_intr(|| rustix::io::pwritev(file, &slices[..parts.len()], position))?;
    if written == total { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
