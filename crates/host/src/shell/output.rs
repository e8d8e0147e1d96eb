//! What a command wrote to one stream: the start and the end are kept, bounded, with the offset of
//! every byte; what lies between is counted and gone.
//!
//! ```text
//! file:  [ "STEADOUT" | keep_head | keep_tail | written | head: keep_head bytes | ring: keep_tail bytes ]
//! offset o < keep_head lies at o, any other at keep_head + (o - keep_head) % keep_tail
//! ```
//! Little output of a short command stays in memory and does not meet the disk while the command is
//! remembered. A file
//! tells its own limits, so that the server can read it when the host that wrote it is gone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Up to here output stays in memory.
const SMALL: usize = 32 << 10;

/// What every file begins with.
const MAGIC: &[u8; 8] = b"STEADOUT";

/// How long what comes before the head is.
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
    place: Place,
    /// Whether what is written next goes to disk at once, however little it is.
    persistent: bool,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<u8>),
    Disk(File),
    /// On disk, and no descriptor spent on it.
    Settled,
    /// The disk would not take it: everything but the count is gone.
    Nowhere,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Of the first byte; beyond the one asked for where bytes were not kept.
    pub offset: u64,
    /// Where to read on.
    pub next: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Output {
    /// Nothing yet; `path` is where it goes when it becomes much.
    pub fn new(path: PathBuf, keep: Keep) -> Self {
        let place = Place::Memory(Vec::new());
        Self { path, keep, written: 0, place, persistent: false }
    }

    /// Output that was in memory when another executable of this host took over.
    pub fn remembered(path: PathBuf, keep: Keep, bytes: Vec<u8>) -> Self {
        let written = bytes.len() as u64;
        Self { path, keep, written, place: Place::Memory(bytes), persistent: false }
    }

    /// Output that is on disk, to be read or gone on with.
    ///
    /// # Errors
    /// When there is no such file or it is none of ours.
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
        Ok(Self { path, keep, written, place: Place::Disk(file), persistent: true })
    }

    /// Output that a host left behind, only to be read. One that was killed did not note how much there
    /// is: then the head tells, as far as it is there.
    ///
    /// # Errors
    /// When there is no such file or it is none of ours.
    pub fn left(path: PathBuf) -> io::Result<Self> {
        let length = std::fs::metadata(&path)?.len().saturating_sub(HEADER);
        let mut output = Self::open(path)?;
        output.written = output.written.max(length.min(output.keep.head));
        Ok(output)
    }

    /// How many bytes were written, kept or not.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The limits it was made with.
    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// The bytes, where they are in memory.
    pub fn memory(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Memory(bytes) => Some(bytes),
            Place::Disk(_) | Place::Settled | Place::Nowhere => None,
        }
    }

    /// Takes in what was written next.
    pub fn append(&mut self, bytes: &[u8]) {
        if let Place::Memory(kept) = &mut self.place {
            let most = SMALL.min(usize::try_from(self.keep.head).unwrap_or(SMALL));
            if kept.len() + bytes.len() <= most && (!self.persistent || bytes.is_empty()) {
                kept.extend_from_slice(bytes);
                self.written += bytes.len() as u64;
                return;
            }
            let kept = std::mem::take(kept);
            self.place = match spill(&self.path, self.keep, &kept) {
                Ok(file) => Place::Disk(file),
                Err(_) => Place::Nowhere,
            };
        }
        if let Place::Disk(file) = &self.place
            && write(file, self.keep, self.written, bytes).is_err()
        {
            self.place = Place::Nowhere;
        }
        self.written += bytes.len() as u64;
    }

    /// Puts what is in memory on disk, and everything that is written from now on: a reader of the file
    /// finds it there if this process is killed.
    pub fn persist(&mut self) {
        self.persistent = true;
        if let Place::Memory(kept) = &self.place
            && !kept.is_empty()
        {
            self.place = spill(&self.path, self.keep, kept).map_or(Place::Nowhere, Place::Disk);
        }
    }

    /// What lies between the end and a later offset was written and not kept.
    pub fn skip_to(&mut self, offset: u64) {
        if offset <= self.written {
            return;
        }
        if let Place::Memory(kept) = &self.place {
            self.place = spill(&self.path, self.keep, kept).map_or(Place::Nowhere, Place::Disk);
        }
        self.written = offset;
    }

    /// Takes the last occurrence of `bytes` out, while all is in memory.
    pub fn remove_last(&mut self, bytes: &[u8]) {
        if let Place::Memory(kept) = &mut self.place
            && let Some(at) = kept.windows(bytes.len()).rposition(|window| window == bytes)
        {
            kept.drain(at..at + bytes.len());
            self.written = kept.len() as u64;
        }
    }

    /// At most `limit` bytes from `from` on, or from the next byte that was kept.
    pub fn read(&self, from: u64, limit: usize) -> io::Result<Piece> {
        let from = self.kept_from(from);
        let available = if from < self.keep.head && from < self.written {
            self.keep.head.min(self.written) - from
        } else {
            self.written - from
        };
        let length = usize::try_from(available).unwrap_or(limit).min(limit);
        let mut bytes = vec![0; length];
        match &self.place {
            Place::Memory(kept) => {
                let start = usize::try_from(from).unwrap_or(kept.len()).min(kept.len());
                bytes.copy_from_slice(&kept[start..start + length]);
            }
            Place::Disk(file) => read(file, self.keep, from, &mut bytes)?,
            Place::Settled => read(&File::open(&self.path)?, self.keep, from, &mut bytes)?,
            Place::Nowhere => {
                return Ok(Piece { offset: self.written, next: self.written, bytes: Vec::new() });
            }
        }
        Ok(Piece { offset: from, next: from + length as u64, bytes })
    }

    /// The first offset at or behind `from` that was kept.
    fn kept_from(&self, from: u64) -> u64 {
        let from = from.min(self.written);
        let tail = self.written.saturating_sub(self.keep.tail).max(self.keep.head);
        if from >= self.keep.head && from < tail { tail.min(self.written) } else { from }
    }

    /// Puts what is still in memory on disk, so that neither memory nor descriptor is spent on it.
    pub fn settle(&mut self) {
        match &mut self.place {
            Place::Memory(kept) if kept.is_empty() => {}
            Place::Memory(kept) => {
                let kept = std::mem::take(kept);
                let spilled = spill(&self.path, self.keep, &kept);
                self.place = spilled.map_or(Place::Nowhere, |_| Place::Settled);
            }
            Place::Disk(file) => {
                let written = file.write_all_at(&self.written.to_le_bytes(), HEADER - 8);
                self.place = written.map_or(Place::Nowhere, |()| Place::Settled);
            }
            Place::Settled | Place::Nowhere => {}
        }
    }

    /// Makes the file tell how much there is, for whoever goes on with it.
    pub fn note(&self) {
        if let Place::Disk(file) = &self.place {
            let _ = file.write_all_at(&self.written.to_le_bytes(), HEADER - 8);
        }
    }

    /// Removes what is on disk.
    pub fn remove(&self) {
        if !matches!(self.place, Place::Memory(_)) {
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
    file.write_all_at(&start, 0)?;
    Ok(file)
}

/// Where `offset` lies in the file, and how many bytes follow it there.
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
        // A piece longer than the whole ring overwrites itself: only its end need be written.
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
