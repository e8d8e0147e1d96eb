//! A terminal's output on disk: bounded, checksummed, addressed by the offset of each byte.
//!
//! ```text
//! log/0000000000000000      a segment, named by the offset of its first byte in 16 hex digits
//! log/00000000000f4240      the segment that is being written
//!
//! segment:  "STEADLOG" | u32 version | u64 base offset | u32 crc          then records
//! record:   u8 kind | u32 length | u64 time_ms | u32 crc | data
//! ```
//! A record's checksum also covers its offset, so that a record can only be read where it was
//! written. Output and notices take as many offsets as they have bytes, resizes none. Each segment
//! begins with a resize, so that any of them can be replayed alone.
//!
//! One [`Log`] writes. Any number of [`Reader`]s, in this process or another, read it, even after its
//! writer has exited. Bytes that cannot be read, because they were dropped at the size limit, damaged or
//! never written on a full disk, are reported as a gap. The log is cut at the first bad record.
//!
//! Writing never fails for the caller: offsets continue to rise, and the log continues in a new segment
//! when the disk accepts writes again.

mod format;
mod reader;
mod sync;
mod writer;

pub use format::{MAX_RECORD_BYTES, SCRATCH_BYTES};
pub use reader::{Entry, LogCursor, LogItem, ReadProgress, Reader, Record, bounds};
pub use sync::{Durable, SyncJob, Syncer};
pub use writer::{Log, MIN_LIMIT_BYTES, Position};

#[cfg(test)]
mod tests;
