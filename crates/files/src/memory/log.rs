//! On-disk format of the hot memories of one project.
//!
//! ```text
//! snapshot       the state after all logs before generation G
//! log.<G>        all later changes, in order; log.<G+1> while a snapshot is being written
//! ```
//! A change is acknowledged when its record is synced. Writing a snapshot starts with the log of the next
//! generation; older logs are removed only after the snapshot is synced and renamed. So at any time the
//! snapshot and the logs starting at its generation are the complete state.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::memory::{
    map::Map,
    record::{self, Op},
};
use base::durable::{open_directory, part_name, publish, sweep_parts, sync_directory};

const SNAPSHOT: &str = "snapshot";

/// The log that changes are appended to.
#[derive(Debug)]
pub(super) struct MemoryLog {
    directory: PathBuf,
    generation: u64,
    /// `None` after a failed write: it is unknown which bytes reached the disk, so nothing more is
    /// appended.
    file: Option<File>,
    /// Bytes in the logs that are not in the snapshot.
    bytes: u64,
}

/// The state found on disk.
pub(super) struct Recovered {
    pub(super) log: MemoryLog,
    pub(super) map: Map,
    /// Descriptions of any corruption.
    pub(super) damage: Vec<String>,
}

impl MemoryLog {
    /// Reads the files and opens the log for appending.
    pub(super) fn open(directory: &Path) -> io::Result<Recovered> {
        sweep_parts(directory)?;
        let (mut map, mut damage) = (Map::default(), Vec::new());
        let since = read_snapshot(directory, &mut map, &mut damage)?;
        let mut generations = generations(directory)?;
        generations.retain(|&generation| {
            // A crash happened after the snapshot was written and before the old logs were removed.
            generation >= since || fs::remove_file(log_path(directory, generation)).is_err()
        });
        let mut bytes = 0;
        for &generation in generations.iter().filter(|&&generation| generation >= since) {
            bytes += read_log(&log_path(directory, generation), &mut map, &mut damage)?;
        }
        let generation = generations.last().copied().unwrap_or(since);
        let path = log_path(directory, generation);
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.sync_all()?;
        sync_directory(open_directory(directory)?)?;
        let directory = directory.to_owned();
        Ok(Recovered { log: Self { directory, generation, file: Some(file), bytes }, map, damage })
    }

    /// Returns the bytes in the logs that are not in the snapshot.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether records can be appended.
    pub(super) fn is_usable(&self) -> bool {
        self.file.is_some()
    }

    /// Appends records and returns when they are on stable storage. After an error nothing more is appended
    /// to this file: a failed sync is never retried.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let Some(mut file) = self.file.take() else {
            return Err(io::Error::other("an earlier write failed"));
        };
        file.write_all(records)?;
        file.sync_data()?;
        self.bytes += records.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    /// Starts the log of the next generation and returns its number.
    pub(super) fn rotate(&mut self) -> io::Result<u64> {
        let generation = self.generation + 1;
        let path = log_path(&self.directory, generation);
        // An existing file of this name is an empty leftover of an earlier failed attempt.
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
        file.sync_all()?;
        sync_directory(open_directory(&self.directory)?)?;
        self.generation = generation;
        self.file = Some(file);
        Ok(generation)
    }

    /// Stops appending to this generation.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Replaces the file that records are appended to.
    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) {
        self.file = Some(file);
    }

    /// The directory of the files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Records that the snapshot for this generation is written: only later logs are not in it.
    pub(super) fn snapshotted(&mut self, generation: u64) {
        let since = (generation..=self.generation)
            .filter_map(|generation| fs::metadata(log_path(&self.directory, generation)).ok())
            .map(|metadata| metadata.len());
        self.bytes = since.sum();
    }
}

/// Writes the snapshot of all changes before `generation`, then removes the older logs. Returns its size.
pub(super) fn write_snapshot(directory: &Path, generation: u64, map: &Map) -> io::Result<u64> {
    let part = directory.join(part_name()?);
    let written = write_part(&part, generation, map).and_then(|size| {
        publish(&part, &directory.join(SNAPSHOT))?;
        Ok(size)
    });
    if written.is_err() {
        // The first error is reported; the next start removes the leftover file.
        let _ = fs::remove_file(&part);
    }
    let size = written?;
    for older in generations(directory)?.into_iter().filter(|&older| older < generation) {
        fs::remove_file(log_path(directory, older))?;
    }
    Ok(size)
}

fn write_part(path: &Path, generation: u64, map: &Map) -> io::Result<u64> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut out = BufWriter::with_capacity(256 << 10, file);
    let mut buffer = Vec::new();
    let (mut size, mut count) = (0, 0);
    let mut write = |op: &Op| {
        buffer.clear();
        record::encode(op, &mut buffer);
        size += buffer.len() as u64;
        out.write_all(&buffer)
    };
    write(&Op::Begin { generation, version: map.version() })?;
    for op in map.ops() {
        write(&op)?;
        count += 1;
    }
    write(&Op::End { count })?;
    out.into_inner()?.sync_all()?;
    Ok(size)
}

/// Reads the snapshot into the map and returns the generation of its first log. A damaged snapshot is read
/// up to the damage, and the file is renamed.
fn read_snapshot(directory: &Path, map: &mut Map, damage: &mut Vec<String>) -> io::Result<u64> {
    let path = directory.join(SNAPSHOT);
    let mut rest = match fs::read(&path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let (mut since, mut count, mut complete) = (None, 0, false);
    while let Some((op, length)) = record::decode(&rest) {
        let _ = rest.split_to(length);
        match op {
            Op::Begin { generation, .. } => {
                since = Some(generation);
                map.apply(&op);
            }
            Op::End { count: expected } => {
                complete = since.is_some() && expected == count && rest.is_empty();
                break;
            }
            Op::Put { .. } | Op::MakeDirectory { .. } | Op::Remove { .. } | Op::Move { .. } => {
                map.apply(&op);
                count += 1;
            }
        }
    }
    if !complete {
        let aside = directory.join("snapshot.damaged");
        fs::copy(&path, &aside)?;
        damage.push(format!(
            "{} is damaged: {count} memories were recovered; the file is kept as {}",
            path.display(),
            aside.display()
        ));
    }
    // If the generation is unknown, all existing logs are applied.
    Ok(since.unwrap_or(0))
}

/// Applies the records of a log up to the first invalid one, and truncates the rest.
fn read_log(path: &Path, map: &mut Map, damage: &mut Vec<String>) -> io::Result<u64> {
    let mut rest = Bytes::from(fs::read(path)?);
    let mut good = 0;
    while let Some((op, length)) = record::decode(&rest) {
        let _ = rest.split_to(length);
        good += length as u64;
        map.apply(&op);
    }
    if !rest.is_empty() {
        let cut = rest.len();
        damage
            .push(format!("{} was truncated at {good}: {cut} bytes were invalid", path.display()));
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(good)?;
        file.sync_all()?;
    }
    Ok(good)
}

fn log_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("log.{generation:016x}"))
}

/// Returns the generations of the existing logs, sorted.
fn generations(directory: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("log."));
        found.extend(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
    }
    found.sort_unstable();
    Ok(found)
}
