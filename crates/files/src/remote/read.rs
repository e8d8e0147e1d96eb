//! Reading in blocks. A file that is replaced meanwhile ends the reading with an error; the content of two files is
//! never mixed.

use std::io;
use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::{StreamExt, stream};
use tokio::io::AsyncRead;
use tokio_util::io::StreamReader;

use super::output::records;
use super::{RemoteDirectory, quoted};
use crate::{FileError, Relative, Stat};
use base::durable::part_name;

/// How much of a file is fetched together with its metadata.
const HEAD_BYTES: usize = 192 << 10;
/// Blocks that are fetched at the same time.
const MAX_CONCURRENT_BLOCKS: usize = 2;

/// A file in an instance that is being read.
#[derive(Debug, Clone)]
pub(crate) struct RemoteFile {
    files: RemoteDirectory,
    path: Relative,
    version: Option<u64>,
    /// The first bytes of its content.
    head: Bytes,
}

/// The output of a script that may be large.
pub(super) struct Fetched {
    pub(super) bytes: Vec<u8>,
    /// The prefix of each record.
    pub(super) mark: String,
    /// The lines that the script printed before its output.
    pub(super) first_line: String,
    /// The output exceeds the limit and is incomplete.
    pub(super) is_cut: bool,
}

impl RemoteDirectory {
    /// Opens a file for reading, and returns its metadata. Links are followed.
    pub(crate) async fn open(&self, path: &Relative) -> Result<(RemoteFile, Stat), FileError> {
        let length = HEAD_BYTES.min(self.block_bytes());
        let script = format!("open {} {length}", self.quoted(path));
        let (mark, output) = self.run(&script, path.as_str()).await?;
        let begin = format!("{mark}D");
        let unexpected = || self.unexpected(b"without content");
        let at = find(&output, begin.as_bytes()).ok_or_else(unexpected)?;
        let found = records(&output[..at], &mark).and_then(|found| found.into_iter().next());
        let mut stat = found.ok_or_else(unexpected)?.stat;
        let head = Bytes::from(output).slice(at + begin.len()..);
        stat.path = path.to_string();
        if stat.size == 0 {
            // Kernel files, such as those in /proc, report a size of 0.
            stat.size = head.len() as u64;
        }
        let (files, path) = (self.clone(), path.clone());
        Ok((RemoteFile { files, path, version: stat.version, head }, stat))
    }

    /// How many bytes of a file fit the output of one script.
    fn block_bytes(&self) -> usize {
        self.scripts().max_output_bytes()
    }

    /// Reads a block, and checks that the file still is the one that was opened.
    async fn block(&self, file: &RemoteFile, index: u64) -> Result<Bytes, FileError> {
        let path = &file.path;
        let script = format!("block {} {} {index}", self.quoted(path), self.block_bytes());
        let (mark, output) = self.run(&script, path.as_str()).await?;
        let end = format!("\n{mark}");
        let unexpected = || self.unexpected(b"without metadata");
        let at = output.windows(end.len()).rposition(|window| window == end.as_bytes());
        let at = at.ok_or_else(unexpected)?;
        let found = records(&output[at..], &mark).and_then(|found| found.into_iter().next());
        if found.ok_or_else(unexpected)?.stat.version != file.version {
            return Err(FileError::Changed { path: path.to_string() });
        }
        Ok(Bytes::from(output).slice(..at))
    }

    /// Runs the checks in all lines of a script but the last, whose output is then fetched up to `limit` bytes,
    /// compressed and not.
    pub(super) async fn fetch(
        &self,
        script: &str,
        path: &Relative,
        limit: usize,
    ) -> Result<Fetched, FileError> {
        let name = part_name().map_err(|error| FileError::from_io("read", path.as_str(), error))?;
        let part = self.block_bytes();
        // The size takes some of the first output.
        let script = format!("{script} | fetch {limit} {} {name}", part - 64);
        let (mark, output) = self.run(&script, path.as_str()).await?;
        let unexpected = || self.unexpected(b"without a size");
        let (mut first_line, mut start) = (String::new(), 0);
        let size: usize = loop {
            let length = find(&output[start..], b"\n").ok_or_else(unexpected)?;
            let line = String::from_utf8_lossy(&output[start..start + length]).into_owned();
            start += length + 1;
            match line.parse() {
                Ok(size) => break size,
                Err(_) => first_line = line,
            }
        };
        let mut packed = output[start..].to_vec();
        let file = quoted(&format!("{}/{name}", self.directory()));
        for index in 0..size.div_ceil(part) {
            if packed.len() >= size {
                break;
            }
            let script = format!("dd if={file} bs={part} skip={index} count=1 2>/dev/null");
            packed.extend_from_slice(&self.run(&script, path.as_str()).await?.1);
            if packed.len() >= size {
                self.run(&format!("rm -f {file}"), path.as_str()).await?;
            }
        }
        if packed.len() != size {
            return Err(self.unexpected(b"cut off"));
        }
        let unpacked = base::task::blocking(move || {
            let mut bytes = Vec::new();
            let read = GzDecoder::new(&*packed).take(limit as u64).read_to_end(&mut bytes);
            (bytes, read.is_err())
        });
        let (bytes, is_cut) =
            unpacked.await.map_err(|error| FileError::Unavailable { reason: error.to_string() })?;
        let is_cut = is_cut || bytes.len() >= limit;
        Ok(Fetched { bytes, mark, first_line, is_cut })
    }
}

impl RemoteFile {
    /// Returns `length` bytes from an offset. The caller knows that the file has them.
    pub(crate) fn part(self, offset: u64, length: u64) -> Box<dyn AsyncRead + Send + Unpin> {
        let end = offset + length;
        if end <= self.head.len() as u64 {
            let (start, end) = (saturated(offset), saturated(end));
            return Box::new(io::Cursor::new(self.head.slice(start..end)));
        }
        let size = self.files.block_bytes() as u64;
        let blocks = stream::iter(offset / size..end.div_ceil(size)).map(move |index| {
            let file = self.clone();
            async move {
                let block = file.files.block(&file, index).await.map_err(io::Error::other)?;
                let begin = index * size;
                let (first, last) = (offset.max(begin) - begin, end.min(begin + size) - begin);
                let (first, last) = (saturated(first), saturated(last));
                match block.len() < last {
                    true => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                    false => Ok(block.slice(first..last)),
                }
            }
        });
        Box::new(StreamReader::new(blocks.buffered(MAX_CONCURRENT_BLOCKS).boxed()))
    }
}

fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
