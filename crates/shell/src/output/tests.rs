//! Output in memory and in files.

use super::*;
use proptest::prelude::*;

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stead-output-{name}-{}", std::process::id()));
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
fn a_file_can_be_read_without_knowing_its_limits() {
    let scratch = Scratch::new("open");
    let path = scratch.0.join("o");
    let mut output = Output::new(path.clone(), Keep { head: 10, tail: 5 });
    output.append(b"0123456789abcdefghij");
    output.settle();
    let read = Output::open(path.clone()).unwrap();
    assert_eq!(read.written(), 20);
    assert_eq!(read_all(&read), read_all(&output));
    assert_eq!(read.read(12, 9).unwrap(), Piece { offset: 15, next: 20, bytes: b"fghij".to_vec() });
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
fn output_that_a_killed_host_persisted_can_be_read() {
    let scratch = Scratch::new("persist");
    let path = scratch.0.join("o");
    let mut output = Output::new(path.clone(), Keep { head: 100, tail: 5 });
    output.append(b"before");
    assert!(!path.exists(), "short output of a short command stays in memory");
    output.persist();
    output.append(b", after");
    drop(output);
    let read = Output::left(path).unwrap();
    assert_eq!(read.read(0, 100).unwrap().bytes, b"before, after");
}

#[test]
fn output_before_the_disk_was_full_stays_readable() {
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
    output.storage = Storage::Disk(File::open(&output.path).unwrap());
    output.append(b"y");
    check(&output, &[b'x'; 40_000], 40_001);
    output.settle();
    check(&output, &[b'x'; 40_000], 40_001);
    check(&Output::left(scratch.0.join("o")).unwrap(), &[b'x'; 40_000], 40_000);
}

#[test]
fn short_output_stays_in_memory_while_the_disk_is_full() {
    let scratch = Scratch::new("short");
    let directory = scratch.0.join("later");
    let mut output = Output::new(directory.join("o"), Keep { head: 1 << 20, tail: 5 });
    output.append(b"seen");
    output.persist();
    output.append(b", kept");
    assert_eq!(output.read(0, 100).unwrap().bytes, b"seen, kept");
    std::fs::create_dir(&directory).unwrap();
    output.append(b", stored");
    drop(output);
    let read = Output::left(directory.join("o")).unwrap();
    assert_eq!(read.read(0, 100).unwrap().bytes, b"seen, kept, stored");
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
