//! Logs that are written, damaged, trimmed and read in a scratch directory.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;
use wire::RecordKind;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("stead-log-test-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self, limit: u64) -> Log {
        Log::open(self.0.clone(), limit, 0, (80, 24)).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The screen sizes, each with the offset from which on it applies.
type Sizes = Vec<(u64, (u16, u16))>;

/// Returns all bytes from an offset on, with `None` for each byte of a gap, and all sizes. Checks that the
/// entries are in order and do not overlap.
fn read(dir: &Path, from: u64, limit: usize) -> (Vec<Option<u8>>, Sizes) {
    let mut reader = Reader::open(dir, from);
    let mut bytes = Vec::new();
    let mut sizes = Vec::new();
    loop {
        let entries = reader.read(limit).unwrap();
        if entries.is_empty() {
            assert_eq!(reader.offset(), from + bytes.len() as u64);
            return (bytes, sizes);
        }
        for entry in entries {
            let here = from + bytes.len() as u64;
            match entry {
                Entry::Gap { from, to } => {
                    assert_eq!(from, here);
                    bytes.extend((from..to).map(|_| None));
                }
                Entry::Record(record) => {
                    assert_eq!(record.offset, here);
                    match record.size() {
                        Some(size) => sizes.push((record.offset, size)),
                        None => bytes.extend(record.data.into_iter().map(Some)),
                    }
                }
            }
        }
    }
}

fn some(bytes: &[u8]) -> Vec<Option<u8>> {
    bytes.iter().copied().map(Some).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Output(usize),
    Notice(usize),
    Resize(u16),
    Reopen,
    Resume,
    Trim(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1usize..20_000).prop_map(Step::Output),
        1 => (65_000usize..140_000).prop_map(Step::Output),
        1 => (1usize..100).prop_map(Step::Notice),
        1 => (1u16..300).prop_map(Step::Resize),
        1 => Just(Step::Reopen),
        1 => Just(Step::Resume),
        1 => (0u64..500_000).prop_map(Step::Trim),
    ]
}

fn data(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| (((seed + index) * 2_654_435_761) >> 7) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn written_bytes_are_read_from_every_offset(
        steps in proptest::collection::vec(step(), 1..60),
        from in 0.0f64..1.0,
        limit in 1usize..100_000,
    ) {
        let dir = Dir::new();
        let mut log = dir.open(0);
        let mut written = Vec::new();
        let mut kept = 0;
        for step in steps {
            match step {
                Step::Output(length) | Step::Notice(length) => {
                    let kind = match step {
                        Step::Notice(_) => RecordKind::Notice,
                        _ => RecordKind::Output,
                    };
                    let bytes = data(written.len() as u64, length);
                    prop_assert_eq!(log.append(kind, 1, &bytes), written.len() as u64);
                    written.extend(bytes);
                }
                Step::Resize(cols) => { log.resize(2, cols, 24); }
                Step::Reopen => {
                    drop(log);
                    log = dir.open(0);
                }
                Step::Resume => {
                    let position = log.position();
                    log = Log::resume(dir.0.clone(), 0, position, (80, 24));
                }
                Step::Trim(upto) => {
                    let upto = upto.min(written.len() as u64);
                    log.trim(upto);
                    prop_assert!(log.first() <= upto.max(kept));
                }
            }
            kept = kept.max(log.first());
            prop_assert_eq!(log.end(), written.len() as u64);
            prop_assert!(log.bytes() <= MIN_LIMIT_BYTES + SCRATCH_BYTES as u64, "{}", log.bytes());
            let on_disk: u64 = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
            prop_assert_eq!(log.bytes(), on_disk);
        }
        let from = (written.len() as f64 * from) as u64;
        let (bytes, _) = read(&dir.0, from, limit);
        let first = log.first().clamp(from, written.len() as u64);
        let mut expected: Vec<Option<u8>> = (from..first).map(|_| None).collect();
        expected.extend(written[first as usize..].iter().copied().map(Some));
        prop_assert_eq!(bytes.len(), expected.len());
        prop_assert!(bytes == expected);
        if !written.is_empty() {
            prop_assert_eq!(bounds(&dir.0).unwrap(), Some((log.first(), log.end())));
        }
    }

    #[test]
    fn a_damaged_log_is_cut_at_the_first_bad_record(
        lengths in proptest::collection::vec(1usize..60, 1..12),
        position in 0.0f64..1.0,
        damage in prop_oneof![(1u8..=255).prop_map(Some), Just(None)],
    ) {
        let dir = Dir::new();
        let mut log = dir.open(0);
        let mut written = Vec::new();
        let mut boundaries = vec![0];
        for length in lengths {
            let bytes = data(written.len() as u64, length);
            log.append(RecordKind::Output, 7, &bytes);
            written.extend(bytes);
            boundaries.push(written.len());
        }
        drop(log);
        let path = dir.0.join("0000000000000000");
        let mut file = fs::read(&path).unwrap();
        let position = (file.len() as f64 * position) as usize;
        match damage {
            Some(flip) => file[position] ^= flip,
            None => file.truncate(position),
        }
        fs::write(&path, &file).unwrap();

        // A reader sees a prefix that ends at a record boundary, before and after the cut.
        let (before, _) = read(&dir.0, 0, 1 << 20);
        prop_assert!(boundaries.contains(&before.len()), "{} of {boundaries:?}", before.len());
        prop_assert_eq!(&before, &some(&written[..before.len()]));
        let mut log = dir.open(0);
        prop_assert_eq!(log.end(), before.len() as u64);
        prop_assert_eq!(log.append(RecordKind::Output, 8, b"after"), before.len() as u64);
        let (after, _) = read(&dir.0, 0, 1 << 20);
        let mut expected = before;
        expected.extend(some(b"after"));
        prop_assert_eq!(after, expected);
    }
}

#[test]
fn damage_in_an_older_segment_loses_only_the_rest_of_that_segment() {
    let dir = Dir::new();
    let mut log = dir.open(0);
    let mut written = Vec::new();
    for _ in 0..15 {
        let bytes = data(written.len() as u64, 10_000);
        log.append(RecordKind::Output, 1, &bytes);
        written.extend(bytes);
    }
    let second = fs::read_dir(&dir.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "0000000000000000")
        .min()
        .unwrap();
    let base = u64::from_str_radix(&second, 16).unwrap() as usize;
    let path = dir.0.join(second);
    let mut file = fs::read(&path).unwrap();
    // In the second record of output, after the header, the resize and the first record.
    let position = 24 + 17 + 4 + 17 + 10_000 + 100;
    file[position] ^= 1;
    fs::write(&path, file).unwrap();
    let (bytes, _) = read(&dir.0, 0, 1 << 20);
    assert_eq!(bytes.len(), written.len());
    let missing: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_none()).collect();
    assert_eq!(missing.first(), Some(&(base + 10_000)));
    for at in 0..bytes.len() {
        assert!(bytes[at].is_none_or(|byte| byte == written[at]));
    }
    assert!(missing.len() <= 20_000, "{}", missing.len());
}

#[test]
fn each_segment_begins_with_the_screen_size() {
    let dir = Dir::new();
    let mut log = dir.open(0);
    log.append(RecordKind::Output, 1, b"x");
    log.resize(2, 100, 50);
    for _ in 0..40 {
        log.append(RecordKind::Output, 3, &[b'y'; 10_000]);
    }
    assert!(log.first() > 0);
    let (_, sizes) = read(&dir.0, log.first(), 1 << 20);
    assert_eq!(sizes.first(), Some(&(log.first(), (100, 50))));
}

#[test]
fn offsets_continue_at_the_base_if_the_log_is_shorter() {
    let dir = Dir::new();
    let mut log = dir.open(0);
    log.append(RecordKind::Output, 1, b"abc");
    drop(log);
    let mut log = Log::open(dir.0.clone(), 0, 1000, (80, 24)).unwrap();
    assert_eq!((log.first(), log.end()), (0, 1000));
    assert_eq!(log.append(RecordKind::Output, 1, b"def"), 1000);
    let mut reader = Reader::open(&dir.0, 1);
    let mut seen = Vec::new();
    loop {
        let entries = reader.read(1 << 20).unwrap();
        if entries.is_empty() {
            break;
        }
        seen.extend(entries);
    }
    seen.retain(|entry| !matches!(entry, Entry::Record(record) if record.size().is_some()));
    let record = |offset, data: &[u8]| {
        let (kind, time_ms, data) = (RecordKind::Output, 1, data.to_vec());
        Entry::Record(Record { kind, offset, time_ms, data })
    };
    let gap = Entry::Gap { from: 3, to: 1000 };
    assert_eq!(seen, [record(1, b"bc"), gap, record(1000, b"def")]);
}

#[test]
fn a_reader_follows_a_writer() {
    let dir = Dir::new();
    let mut log = dir.open(0);
    let path = dir.0.clone();
    let end = 3_000_000u64;
    let follower = std::thread::spawn(move || {
        let mut reader = Reader::open(path, 0);
        let mut seen = 0u64;
        while seen < end {
            for entry in reader.read(1 << 20).unwrap() {
                match entry {
                    Entry::Record(record) if record.kind == RecordKind::Output => {
                        assert_eq!(record.offset, seen);
                        assert_eq!(record.data, data(seen, record.data.len()));
                        seen += record.data.len() as u64;
                    }
                    Entry::Record(_) => {}
                    Entry::Gap { from, to } => {
                        assert_eq!(from, seen);
                        seen = to;
                    }
                }
            }
        }
    });
    while log.end() < end {
        let bytes = data(log.end(), 997.min((end - log.end()) as usize));
        log.append(RecordKind::Output, 1, &bytes);
    }
    follower.join().unwrap();
}

#[test]
fn synced_bytes_are_durable_unless_a_sync_failed() {
    let dir = Dir::new();
    let mut log = dir.open(0);
    log.append(RecordKind::Output, 1, b"abc");
    assert_eq!(log.durable(), 0);
    let job = log.sync().unwrap();
    assert!(log.sync().is_none(), "one sync job at a time");
    job.run().unwrap();
    assert_eq!(log.durable(), 3);
    assert!(log.sync().is_none(), "nothing to sync");

    // The directory cannot be synced while it is renamed; the segment itself is still open.
    log.append(RecordKind::Output, 1, &[0; 40_000]);
    let moved = dir.0.with_extension("moved");
    fs::rename(&dir.0, &moved).unwrap();
    assert!(log.sync().unwrap().run().is_err());
    fs::rename(&moved, &dir.0).unwrap();
    assert_eq!(log.durable(), 3);
    log.append(RecordKind::Output, 1, b"more");
    log.sync().unwrap().run().unwrap();
    assert_eq!(log.durable(), 3, "bytes that were written before may be missing");
    log.trim(log.end());
    log.append(RecordKind::Output, 1, b"more");
    log.sync().unwrap().run().unwrap();
    assert_eq!(log.durable(), log.end());
    assert_eq!(read(&dir.0, 0, 1 << 20).0.len() as u64, log.end());
}

#[test]
fn a_log_continues_when_the_disk_accepts_writes_again() {
    let dir = Dir::new();
    let mut log = dir.open(0);
    log.append(RecordKind::Output, 1, b"kept");
    // Without its directory no segment can be created; the next large record does not fit the current one.
    let moved = dir.0.with_extension("moved");
    fs::rename(&dir.0, &moved).unwrap();
    assert_eq!(log.append(RecordKind::Output, 1, &[b'x'; 60_000]), 4);
    assert_eq!((log.end(), log.lost()), (60_004, 60_000));
    fs::rename(&moved, &dir.0).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while log.lost() == log.end() - 4 {
        log.append(RecordKind::Output, 1, b"y");
        assert!(std::time::Instant::now() < until);
    }
    let (bytes, _) = read(&dir.0, 0, 1 << 20);
    assert_eq!(bytes[..4], some(b"kept")[..]);
    assert_eq!(bytes.last(), Some(&Some(b'y')));
    assert_eq!(bytes.iter().filter(|byte| byte.is_none()).count() as u64, log.lost());
}
