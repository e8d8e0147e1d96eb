//! The output of one stream of a command. A bounded head and tail are kept, with the offset of every byte;
//! the bytes between them are only counted.
//!
//! ```text
//! file:  [ "STEADOUT" | keep_head | keep_tail | written | head: keep_head bytes | ring: keep_tail bytes ]
//! offset o < keep_head is stored at o, any other at keep_head + (o - keep_head) % keep_tail
//! ```
//! Short output of a short command stays in memory until the command is forgotten. A file contains its own
//! limits, so that the server can read it after the host that wrote it has exited.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The maximum size of output that stays in memory.
const MAX_MEMORY_BYTES: usize = 32 << 10;

/// The first bytes of every file.
const MAGIC: &[u8; 8] = b"STEADOUT";

/// The length of the header of a file.
const HEADER_BYTES: u64 = 32;

/// How many bytes of a stream are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Bytes kept from the start.
    pub head: u64,
    /// Bytes kept from the end.
    pub tail: u64,
}

/// The output of one stream of one command.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    keep: Keep,
    written: u64,
    /// The offset from which on bytes are only counted, because writing failed, as on a full disk.
    cut: Option<u64>,
    storage: Storage,
    /// The next bytes are written to disk at once, however few they are.
    persistent: bool,
}

#[derive(Debug)]
enum Storage {
    Memory(Vec<u8>),
    Disk(File),
    /// On disk, without an open descriptor.
    Settled,
}

/// A part of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The offset of the first byte; larger than requested if bytes were not kept.
    pub offset: u64,
    /// The offset for the next read.
    pub next: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Output {
    /// Creates an empty output, which moves to a file at `path` when it grows.
    pub fn new(path: PathBuf, keep: Keep) -> Self {
        let storage = Storage::Memory(Vec::new());
        Self { path, keep, written: 0, cut: None, storage, persistent: false }
    }

    /// Restores output that another executable of this host had in memory.
    pub fn remembered(path: PathBuf, keep: Keep, bytes: Vec<u8>) -> Self {
        let written = bytes.len() as u64;
        let storage = Storage::Memory(bytes);
        Self { path, keep, written, cut: None, storage, persistent: false }
    }

    /// Opens output on disk, to be read or continued.
    ///
    /// # Errors
    /// If the file does not exist, or has another format.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0)?;
        let (words, _) = header.as_chunks::<8>();
        let [magic, head, tail, written] = words else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if magic != MAGIC {
            return Err(io::Error::other(format!("{} is not an output file", path.display())));
        }
        let keep = Keep { head: u64::from_le_bytes(*head), tail: u64::from_le_bytes(*tail) };
        let written = u64::from_le_bytes(*written);
        let storage = Storage::Disk(file);
        Ok(Self { path, keep, written, cut: None, storage, persistent: true })
    }

    /// Opens the output of another host for reading. A host that was killed did not store the length; then
    /// the length is derived from the size of the file, up to the length of the head.
    ///
    /// # Errors
    /// If the file does not exist, or has another format.
    pub fn left(path: PathBuf) -> io::Result<Self> {
        let length = std::fs::metadata(&path)?.len().saturating_sub(HEADER_BYTES);
        let mut output = Self::open(path)?;
        output.written = output.written.max(length.min(output.keep.head));
        Ok(output)
    }

    /// Returns how many bytes were written, kept or not.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the limits of the output.
    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Returns the bytes if they are in memory.
    pub fn memory(&self) -> Option<&[u8]> {
        match &self.storage {
            Storage::Memory(bytes) => Some(bytes),
            Storage::Disk(_) | Storage::Settled => None,
        }
    }

    /// Appends bytes. If they cannot be stored, the bytes before them stay readable.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.cut.is_none() && self.store(bytes).is_err() {
            self.cut = Some(self.written.min(self.keep.head));
        }
        self.written += bytes.len() as u64;
    }

    fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Storage::Memory(kept) = &mut self.storage {
            let max_bytes =
                MAX_MEMORY_BYTES.min(usize::try_from(self.keep.head).unwrap_or(MAX_MEMORY_BYTES));
            let fits = kept.len() + bytes.len() <= max_bytes;
            if fits && (!self.persistent || bytes.is_empty()) {
                kept.extend_from_slice(bytes);
                return Ok(());
            }
            match spill(&self.path, self.keep, kept) {
                Ok(file) => self.storage = Storage::Disk(file),
                // Memory is less safe than the disk, and better than nothing.
                Err(_) if fits => {
                    kept.extend_from_slice(bytes);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        match &self.storage {
            Storage::Disk(file) => write(file, self.keep, self.written, bytes),
            Storage::Memory(_) | Storage::Settled => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Moves the output to disk, and writes all further bytes there, so that it survives if this process
    /// is killed.
    pub fn persist(&mut self) {
        self.persistent = true;
        if let Storage::Memory(kept) = &self.storage
            && !kept.is_empty()
            && let Ok(file) = spill(&self.path, self.keep, kept)
        {
            self.storage = Storage::Disk(file);
        }
    }

    /// Skips to a later offset: the bytes between were written but not kept.
    pub fn skip_to(&mut self, offset: u64) {
        if offset <= self.written {
            return;
        }
        if let Storage::Memory(kept) = &self.storage {
            match spill(&self.path, self.keep, kept) {
                Ok(file) => self.storage = Storage::Disk(file),
                Err(_) => self.cut = self.cut.or(Some(self.written)),
            }
        }
        self.written = offset;
    }

    /// Returns at most `limit` bytes from `from` on, or from the next byte that was kept.
    pub fn read(&self, from: u64, limit: usize) -> io::Result<Piece> {
        let from = self.kept_from(from);
        let available = if let Some(cut) = self.cut.filter(|cut| from < *cut) {
            cut - from
        } else if from < self.keep.head && from < self.written {
            self.keep.head.min(self.written) - from
        } else {
            self.written - from
        };
        let length = usize::try_from(available).unwrap_or(limit).min(limit);
        let mut bytes = vec![0; length];
        match &self.storage {
            Storage::Memory(kept) => {
                let start = usize::try_from(from).unwrap_or(kept.len()).min(kept.len());
                bytes.copy_from_slice(&kept[start..start + length]);
            }
            Storage::Disk(file) => read(file, self.keep, from, &mut bytes)?,
            Storage::Settled => read(&File::open(&self.path)?, self.keep, from, &mut bytes)?,
        }
        Ok(Piece { offset: from, next: from + length as u64, bytes })
    }

    /// Returns the first offset at or after `from` that was kept.
    fn kept_from(&self, from: u64) -> u64 {
        let from = from.min(self.written);
        if self.cut.is_some_and(|cut| from >= cut) {
            return self.written;
        }
        let tail = self.written.saturating_sub(self.keep.tail).max(self.keep.head);
        if from >= self.keep.head && from < tail { tail.min(self.written) } else { from }
    }

    /// Moves the output to disk and closes the file, so that it uses neither memory nor a descriptor. If the
    /// disk is full, the output stays in memory.
    pub fn settle(&mut self) {
        self.store_length();
        match &self.storage {
            Storage::Memory(kept) if kept.is_empty() => {}
            Storage::Memory(kept) => {
                if spill(&self.path, self.keep, kept).is_ok() {
                    self.storage = Storage::Settled;
                }
            }
            Storage::Disk(_) | Storage::Settled => self.storage = Storage::Settled,
        }
    }

    /// Stores the length in the file, for the executable that continues to write it.
    pub fn store_length(&self) {
        if let Storage::Disk(file) = &self.storage {
            let readable = self.cut.unwrap_or(self.written);
            let _ = file.write_all_at(&readable.to_le_bytes(), HEADER_BYTES - 8);
        }
    }

    /// Removes the file.
    pub fn remove(&self) {
        if !matches!(self.storage, Storage::Memory(_)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn spill(path: &Path, keep: Keep, bytes: &[u8]) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let mut start = Vec::with_capacity(bytes.len() + HEADER_BYTES as usize);
    start.extend_from_slice(MAGIC);
    for number in [keep.head, keep.tail, bytes.len() as u64] {
        start.extend_from_slice(&number.to_le_bytes());
    }
    start.extend_from_slice(bytes);
    match file.write_all_at(&start, 0) {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = std::fs::remove_file(path);
            Err(error)
        }
    }
}

/// Returns the position of `offset` in the file, and how many bytes follow contiguously.
fn position(keep: Keep, offset: u64) -> (u64, u64) {
    if offset < keep.head {
        return (HEADER_BYTES + offset, keep.head - offset);
    }
    if keep.tail == 0 {
        return (HEADER_BYTES + keep.head, 0);
    }
    let in_ring = (offset - keep.head) % keep.tail;
    (HEADER_BYTES + keep.head + in_ring, keep.tail - in_ring)
}

fn write(file: &File, keep: Keep, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (at, room) = position(keep, offset);
        if room == 0 {
            return Ok(());
        }
        // Only the end of a write longer than the ring is written.
        if offset >= keep.head && bytes.len() as u64 > keep.tail {
            let skipped = bytes.len() - usize::try_from(keep.tail).unwrap_or(bytes.len());
            offset += skipped as u64;
            bytes = &bytes[skipped..];
            continue;
        }
        let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        file.write_all_at(&bytes[..length], at)?;
        offset += length as u64;
        bytes = &bytes[length..];
    }
    Ok(())
}

fn read(file: &File, keep: Keep, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (at, room) = position(keep, offset);
        let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if length == 0 {
            break;
        }
        file.read_exact_at(&mut bytes[..length], at)?;
        offset += length as u64;
        bytes = &mut bytes[length..];
    }
    Ok(())
}

#[cfg(test)]
mod tests;
