//! The hot memories of one project on disk.
//!
//! ```text
//! snapshot       all that the logs before generation G held
//! log.<G>        every change since, in order; log.<G+1> while a snapshot is being made
//! ```
//! A change is acknowledged when its record is synced. A snapshot begins by starting the next
//! generation's log; only when it is synced and has its name are the older logs removed. So at any
//! instant the snapshot that is there and the logs from its generation on are all there is to know.

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
use base::durable::{open_directory, part_name, sweep_parts, sync_directory};

const SNAPSHOT: &str = "snapshot";

/// The log that is written to.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    generation: u64,
    /// None after a failed write: what reached the disk is not known, so this file gets no more.
    file: Option<File>,
    /// Bytes in the logs that the snapshot does not hold.
    bytes: u64,
}

/// What was found on disk.
pub(super) struct Recovered {
    pub(super) log: Log,
    pub(super) map: Map,
    /// What was not as we wrote it, in words.
    pub(super) damage: Vec<String>,
}

impl Log {
    /// Reads what is there and makes it ready for more.
    pub(super) fn open(directory: &Path) -> io::Result<Recovered> {
        sweep_parts(directory)?;
        let (mut map, mut damage) = (Map::default(), Vec::new());
        let since = read_snapshot(directory, &mut map, &mut damage)?;
        let mut generations = generations(directory)?;
        generations.retain(|&generation| {
            // A crash came between the snapshot and the removal of what it replaced.
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

    /// Bytes that the snapshot does not hold.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether records can be appended.
    pub(super) fn is_sound(&self) -> bool {
        self.file.is_some()
    }

    /// Appends records and answers when they are on stable storage. After an error nothing more is
    /// appended to this file: a failed sync is not tried again.
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

    /// Starts the next generation's log and answers its number.
    pub(super) fn rotate(&mut self) -> io::Result<u64> {
        let generation = self.generation + 1;
        let path = log_path(&self.directory, generation);
        // One of that name can only be what an earlier, failed attempt left, with nothing in it.
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
        file.sync_all()?;
        sync_directory(open_directory(&self.directory)?)?;
        self.generation = generation;
        self.file = Some(file);
        Ok(generation)
    }

    /// Appends nothing more to this generation.
    pub(super) fn give_up(&mut self) {
        self.file = None;
    }

    /// Writes to another file from here on.
    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) {
        self.file = Some(file);
    }

    /// Where the files are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The snapshot of all before this generation is in place; only later changes are not in it.
    pub(super) fn snapshotted(&mut self, generation: u64) {
        let since = (generation..=self.generation)
            .filter_map(|generation| fs::metadata(log_path(&self.directory, generation)).ok())
            .map(|metadata| metadata.len());
        self.bytes = since.sum();
    }
}

/// Writes the snapshot that holds all before `generation`, then removes what it replaces. Answers
/// its size.
pub(super) fn write_snapshot(directory: &Path, generation: u64, map: &Map) -> io::Result<u64> {
    let part = directory.join(part_name()?);
    let written = write_part(&part, generation, map).and_then(|size| {
        fs::rename(&part, directory.join(SNAPSHOT))?;
        sync_directory(open_directory(directory)?)?;
        Ok(size)
    });
    if written.is_err() {
        // The first error is the one to tell; what is left is removed at the next start.
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

/// Reads the snapshot into the map; answers the generation its logs begin with. What can be read of
/// a damaged one is kept, and the file is put aside.
fn read_snapshot(directory: &Path, map: &mut Map, damage: &mut Vec<String>) -> io::Result<u64> {
    let path = directory.join(SNAPSHOT);
    let mut rest = match fs::read(&path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let (mut since, mut count, mut whole) = (None, 0, false);
    while let Some((op, length)) = record::decode(&rest) {
        let _ = rest.split_to(length);
        match op {
            Op::Begin { generation, .. } => {
                since = Some(generation);
                map.apply(&op);
            }
            Op::End { count: expected } => {
                whole = since.is_some() && expected == count && rest.is_empty();
                break;
            }
            Op::Put { .. } | Op::MakeDirectory { .. } | Op::Remove { .. } | Op::Move { .. } => {
                map.apply(&op);
                count += 1;
            }
        }
    }
    if !whole {
        let aside = directory.join("snapshot.damaged");
        fs::copy(&path, &aside)?;
        damage.push(format!(
            "{} is damaged: {count} memories could be read of it; it is kept as {}",
            path.display(),
            aside.display()
        ));
    }
    // Without its generation every log that is left belongs to it.
    Ok(since.unwrap_or(0))
}

/// Applies the records of a log up to the first that is not whole, and cuts the rest off.
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
        damage.push(format!("{} was cut at {good}: {cut} bytes are no record", path.display()));
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(good)?;
        file.sync_all()?;
    }
    Ok(good)
}

fn log_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("log.{generation:016x}"))
}

/// The generations of the logs that are there, in order.
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
