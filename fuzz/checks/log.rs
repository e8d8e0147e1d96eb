//! Any bytes as a terminal's log: what is read is in order, the log can be opened, and what is
//! appended then is read back.

use std::path::Path;

use host::log::{Entry, Log, Reader};
use wire::RecordKind;

fn read(dir: &Path) -> (u64, Vec<u8>) {
    let mut reader = Reader::open(dir, 0);
    let mut next = 0;
    let mut last = Vec::new();
    loop {
        let entries = reader.read(1 << 20).expect("files that can be read");
        if entries.is_empty() {
            assert_eq!(reader.offset(), next);
            return (next, last);
        }
        for entry in entries {
            match entry {
                Entry::Record(record) => {
                    assert_eq!(record.offset, next);
                    if record.kind != RecordKind::Resize {
                        next += record.data.len() as u64;
                        last = record.data;
                    }
                }
                Entry::Gap { from, to } => {
                    assert!(from == next && to > from);
                    next = to;
                }
            }
        }
    }
}

/// Real segments to damage: the input says where.
fn segments() -> [(&'static str, Vec<u8>); 2] {
    let dir = std::env::temp_dir().join(format!("stead-fuzz-log-seed-{}", std::process::id()));
    let mut log = Log::open(dir.clone(), 0, 0, (80, 24)).expect("a directory for temporary files");
    log.append(RecordKind::Output, 1, b"hello");
    log.resize(2, 100, 50);
    log.append(RecordKind::Notice, 3, b"notice");
    drop(log);
    let mut log = Log::open(dir.clone(), 0, 64, (80, 24)).expect("the same directory");
    log.append(RecordKind::Output, 4, b"more");
    drop(log);
    let names = ["0000000000000000", "0000000000000040"];
    let read = names.map(|name| (name, std::fs::read(dir.join(name)).expect("a segment")));
    std::fs::remove_dir_all(&dir).expect("our own directory");
    read
}

pub fn check(data: &[u8]) {
    let dir = std::env::temp_dir().join(format!("stead-fuzz-log-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a directory for temporary files");
    // Half of the runs damage a sound log, half bring a file of their own.
    match data.split_first() {
        Some((kind, damage)) if kind & 1 == 0 => {
            for (index, (name, mut bytes)) in segments().into_iter().enumerate() {
                for change in
                    damage.chunks_exact(3).filter(|change| change[0] as usize % 2 == index)
                {
                    let place =
                        (usize::from(change[0]) << 8 | usize::from(change[1])) % bytes.len();
                    bytes[place] ^= change[2];
                }
                std::fs::write(dir.join(name), bytes).expect("room for a file");
            }
        }
        _ => std::fs::write(dir.join("0000000000000000"), data).expect("room for a file"),
    }
    read(&dir);
    let mut log = Log::open(dir.clone(), 0, 0, (80, 24)).expect("any log can be opened");
    let end = log.append(RecordKind::Output, 1, b"appended");
    let (after, last) = read(&dir);
    assert_eq!((after, last.as_slice()), (end + 8, b"appended".as_slice()));
}
