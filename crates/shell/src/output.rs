//! The output of one stream of a command: a bounded head and tail are kept, with the offset of every byte;
//! the bytes between are only counted.
//!
//! ```text
//! file:  [ "STEADOUT" | keep_head | keep_tail | written | head: keep_head bytes | ring: keep_tail bytes ]
//! offset o < keep_head lies at o, any other at keep_head + (o - keep_head) % keep_tail
//! ```
//! Short output of a short command stays in memory while the command is remembered. A file contains its own
//! limits, so that the server can read it when the host that wrote it is gone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Output up to this size stays in memory.
const MAX_MEMORY_BYTES: usize = 32 << 10;

/// The first bytes of every file.
const MAGIC: &[u8; 8] = b"STEADOUT";

/// The length of the header.
const HEADER: u64 = 32;

/// How much of a stream is kept.
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
    /// Writing failed, as on a full disk: the bytes from this offset on are only counted.
    cut: Option<u64>,
    place: Storage,
    /// The next bytes go to disk at once, however few they are.
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
        let place = Storage::Memory(Vec::new());
        Self { path, keep, written: 0, cut: None, place, persistent: false }
    }

    /// Returns output that another executable of this host had in memory.
    pub fn remembered(path: PathBuf, keep: Keep, bytes: Vec<u8>) -> Self {
        let written = bytes.len() as u64;
        let place = Storage::Memory(bytes);
        Self { path, keep, written, cut: None, place, persistent: false }
    }

    /// Opens output on disk, to be read or continued.
    ///
    /// # Errors
    /// If there is no such file, or it has another format.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut header = [0; HEADER as usize];
        file.read_exact_at(&mut header, 0)?;
        let (words, _) = header.as_chunks::<8>();
        let [magic, head, tail, written] = words else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if magic != MAGIC {
            return Err(io::Error::other(format!("{} holds no output", path.display())));
        }
        let keep = Keep { head: u64::from_le_bytes(*head), tail: u64::from_le_bytes(*tail) };
        let written = u64::from_le_bytes(*written);
        let place = Storage::Disk(file);
        Ok(Self { path, keep, written, cut: None, place, persistent: true })
    }

    /// Opens the output of another host, only to be read. A host that was killed did not store the length:
    /// then it is taken from the size of the file, up to the head.
    ///
    /// # Errors
    /// If there is no such file, or it has another format.
    pub fn left(path: PathBuf) -> io::Result<Self> {
        let length = std::fs::metadata(&path)?.len().saturating_sub(HEADER);
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
        match &self.place {
            Storage::Memory(bytes) => Some(bytes),
            Storage::Disk(_) | Storage::Settled => None,
        }
    }

    /// Appends bytes. If they cannot be stored, those before them stay readable.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.cut.is_none() && self.store(bytes).is_err() {
            self.cut = Some(self.written.min(self.keep.head));
        }
        self.written += bytes.len() as u64;
    }

    fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Storage::Memory(kept) = &mut self.place {
            let most =
                MAX_MEMORY_BYTES.min(usize::try_from(self.keep.head).unwrap_or(MAX_MEMORY_BYTES));
            if kept.len() + bytes.len() <= most && (!self.persistent || bytes.is_empty()) {
                kept.extend_from_slice(bytes);
                return Ok(());
            }
            self.place = Storage::Disk(spill(&self.path, self.keep, kept)?);
        }
        match &self.place {
            Storage::Disk(file) => write(file, self.keep, self.written, bytes),
            Storage::Memory(_) | Storage::Settled => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Moves the output to disk, now and for all further bytes, so that it survives if this process is
    /// killed.
    pub fn persist(&mut self) {
        self.persistent = true;
        if let Storage::Memory(kept) = &self.place
            && !kept.is_empty()
            && let Ok(file) = spill(&self.path, self.keep, kept)
        {
            self.place = Storage::Disk(file);
        }
    }

    /// Skips to a later offset: the bytes between were written but not kept.
    pub fn skip_to(&mut self, offset: u64) {
        if offset <= self.written {
            return;
        }
        if let Storage::Memory(kept) = &self.place {
            match spill(&self.path, self.keep, kept) {
                Ok(file) => self.place = Storage::Disk(file),
                Err(_) => self.cut = self.cut.or(Some(self.written)),
            }
        }
        self.written = offset;
    }

    /// Removes the last occurrence of `bytes`, if the output is in memory.
    pub fn remove_last(&mut self, bytes: &[u8]) {
        if let Storage::Memory(kept) = &mut self.place
            && let Some(at) = kept.windows(bytes.len()).rposition(|window| window == bytes)
        {
            kept.drain(at..at + bytes.len());
            self.written = kept.len() as u64;
        }
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
        match &self.place {
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
        self.note();
        match &self.place {
            Storage::Memory(kept) if kept.is_empty() => {}
            Storage::Memory(kept) => {
                if spill(&self.path, self.keep, kept).is_ok() {
                    self.place = Storage::Settled;
                }
            }
            Storage::Disk(_) | Storage::Settled => self.place = Storage::Settled,
        }
    }

    /// Stores the length in the file, for the executable that continues it.
    pub fn note(&self) {
        if let Storage::Disk(file) = &self.place {
            let readable = self.cut.unwrap_or(self.written);
            let _ = file.write_all_at(&readable.to_le_bytes(), HEADER - 8);
        }
    }

    /// Removes the file.
    pub fn remove(&self) {
        if !matches!(self.place, Storage::Memory(_)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn spill(path: &Path, keep: Keep, bytes: &[u8]) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let mut start = Vec::with_capacity(bytes.len() + HEADER as usize);
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
fn place(keep: Keep, offset: u64) -> (u64, u64) {
    if offset < keep.head {
        return (HEADER + offset, keep.head - offset);
    }
    if keep.tail == 0 {
        return (HEADER + keep.head, 0);
    }
    let turn = (offset - keep.head) % keep.tail;
    (HEADER + keep.head + turn, keep.tail - turn)
}

fn write(file: &File, keep: Keep, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (at, room) = place(keep, offset);
        if room == 0 {
            return Ok(());
        }
        // Of a write longer than the ring only the end is written.
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
        let (at, room) = place(keep, offset);
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A directory of the test's own, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("stead-output-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn read_all(output: &Output) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        let mut from = 0;
        while from < output.written() {
            let piece = output.read(from, 7).unwrap();
            if piece.next == from && piece.bytes.is_empty() {
                break;
            }
            from = piece.next;
            pieces.push((piece.offset, piece.bytes));
        }
        pieces
    }

    #[test]
    fn a_file_tells_all_that_is_needed_to_read_it() {
        let scratch = Scratch::new("open");
        let path = scratch.0.join("o");
        let mut output = Output::new(path.clone(), Keep { head: 10, tail: 5 });
        output.append(b"0123456789abcdefghij");
        output.settle();
        let read = Output::open(path.clone()).unwrap();
        assert_eq!(read.written(), 20);
        assert_eq!(read_all(&read), read_all(&output));
        assert_eq!(
            read.read(12, 9).unwrap(),
            Piece { offset: 15, next: 20, bytes: b"fghij".to_vec() }
        );
        let mut killed = Output::new(scratch.0.join("k"), Keep { head: 40_000, tail: 5 });
        killed.append(&[b'x'; 30_000]);
        killed.append(&[b'y'; 5_000]);
        drop(killed);
        let read = Output::left(scratch.0.join("k")).unwrap();
        assert_eq!(read.written(), 35_000);
        assert_eq!(read.read(29_999, 2).unwrap().bytes, b"xy");
        std::fs::write(&path, "something else that is long enough").unwrap();
        assert!(Output::open(path).is_err());
    }

    #[test]
    fn what_a_killed_host_had_persisted_is_there_to_be_read() {
        let scratch = Scratch::new("persist");
        let path = scratch.0.join("o");
        let mut output = Output::new(path.clone(), Keep { head: 100, tail: 5 });
        output.append(b"before");
        assert!(!path.exists(), "little of a short command stays in memory");
        output.persist();
        output.append(b", after");
        drop(output);
        let read = Output::left(path).unwrap();
        assert_eq!(read.read(0, 100).unwrap().bytes, b"before, after");
    }

    #[test]
    fn what_was_received_before_the_disk_was_full_stays_readable() {
        let scratch = Scratch::new("full");
        let check = |output: &Output, first: &[u8], written| {
            assert_eq!(output.read(0, 1 << 20).unwrap().bytes, first);
            let after = output.read(first.len() as u64, 1 << 20).unwrap();
            assert_eq!(after, Piece { offset: written, next: written, bytes: Vec::new() });
        };
        // A file cannot be created below a directory that does not exist.
        let missing = scratch.0.join("missing/o");
        let mut output = Output::new(missing, Keep { head: 1 << 20, tail: 5 });
        output.append(&[b'x'; 30_000]);
        output.append(&[b'y'; 5_000]);
        output.append(b"z");
        check(&output, &[b'x'; 30_000], 35_001);
        output.settle();
        check(&output, &[b'x'; 30_000], 35_001);

        let mut output = Output::new(scratch.0.join("o"), Keep { head: 1 << 20, tail: 5 });
        output.append(&[b'x'; 40_000]);
        // The kernel refuses to write to a descriptor that was opened for reading.
        output.place = Storage::Disk(File::open(&output.path).unwrap());
        output.append(b"y");
        check(&output, &[b'x'; 40_000], 40_001);
        output.settle();
        check(&output, &[b'x'; 40_000], 40_001);
        check(&Output::left(scratch.0.join("o")).unwrap(), &[b'x'; 40_000], 40_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn head_and_tail_are_kept_at_their_offsets(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
            head in 0u64..50, tail in 0u64..50,
        ) {
            let scratch = Scratch::new("keep");
            let keep = Keep { head, tail };
            let mut output = Output::new(scratch.0.join("o"), keep);
            let mut all = Vec::new();
            for piece in &pieces {
                output.append(piece);
                all.extend_from_slice(piece);
            }
            prop_assert_eq!(output.written(), all.len() as u64);
            let mut got = vec![None; all.len()];
            for (offset, bytes) in read_all(&output) {
                for (nth, byte) in bytes.iter().enumerate() {
                    got[offset as usize + nth] = Some(*byte);
                }
            }
            let tail_from = (all.len() as u64).saturating_sub(tail);
            for (nth, byte) in all.iter().enumerate() {
                let kept = (nth as u64) < head || nth as u64 >= tail_from;
                prop_assert_eq!(got[nth], kept.then_some(*byte), "offset {}", nth);
            }
        }
    }
}
