//! Atomic writes in a sandbox: pieces are uploaded and joined in an unfinished file, which then gets its name.

use super::output::records;
use super::{RemoteDirectory, quoted};
use crate::{Above, FileError, Relative, memory::Expect};
use base::durable::part_name;

/// The size of the pieces of a large file, which is a multiple of [`BLOCK_BYTES`].
const PIECE_BYTES: usize = 8 << 20;
/// The unit of the offsets of pieces.
const BLOCK_BYTES: u64 = 64 << 10;

/// A file in a sandbox that is being written. What is unfinished is removed if it is dropped before `finish`.
#[derive(Debug)]
pub struct RemoteWrite {
    files: RemoteDirectory,
    path: Relative,
    above: Above,
    /// The precondition, as the scripts take it.
    expect: String,
    /// The name of the unfinished file.
    name: String,
    buffer: Vec<u8>,
    /// The number of bytes in the unfinished file.
    written: u64,
    begun: bool,
}

impl RemoteDirectory {
    /// Starts writing a file. A link at the end of the path is followed. Nothing is sent before the first piece is
    /// complete.
    pub(crate) async fn write(
        &self,
        path: &Relative,
        above: Above,
        expect: Expect,
    ) -> Result<RemoteWrite, FileError> {
        let expect = match expect {
            Expect::Anything => "any".to_owned(),
            Expect::Absent => "absent".to_owned(),
            Expect::Version(version) => {
                let changed = || FileError::Changed { path: path.to_string() };
                let found = match self.status_followed(path).await {
                    Err(FileError::Missing { .. }) => return Err(changed()),
                    found => found?,
                };
                if found.stat.version != Some(version) {
                    return Err(changed());
                }
                found.raw
            }
        };
        let name =
            part_name().map_err(|error| FileError::from_io("write", path.as_str(), error))?;
        let (files, path, buffer) = (self.clone(), path.clone(), Vec::new());
        Ok(RemoteWrite { files, path, above, expect, name, buffer, written: 0, begun: false })
    }
}

impl RemoteWrite {
    pub(crate) fn path(&self) -> &Relative {
        &self.path
    }

    pub(crate) async fn write(&mut self, more: &[u8]) -> Result<(), FileError> {
        let mut rest = more;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PIECE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            rest = later;
            if self.buffer.len() == PIECE_BYTES {
                self.send(None).await?;
            }
        }
        Ok(())
    }

    /// Gives the file its name. Returns its version.
    pub(crate) async fn finish(mut self) -> Result<Option<u64>, FileError> {
        let finish = format!("\nfinish {}", quoted(&self.expect));
        let (mark, output) = self.send(Some(&finish)).await?;
        self.begun = false;
        let found = records(&output, &mark).and_then(|found| found.into_iter().next());
        let found = found.ok_or_else(|| self.files.unexpected(&output))?;
        Ok(found.stat.version)
    }

    /// Appends the buffered piece to the unfinished file, and runs a command after that.
    async fn send(&mut self, then: Option<&str>) -> Result<(String, Vec<u8>), FileError> {
        self.begun = true;
        let above = match self.above {
            Above::Make => "make",
            Above::MustExist => "exists",
        };
        let (path, expect) = (self.files.quoted(&self.path), quoted(&self.expect));
        let mut script = format!("part {path} {} {above} {expect}", self.name);
        let piece = std::mem::take(&mut self.buffer);
        if !piece.is_empty() {
            let (upload, length) = (self.piece(), piece.len() as u64);
            self.files.put(&upload, piece).await?;
            let block = self.written / BLOCK_BYTES;
            script.push_str(&format!("\npiece {} {block}", quoted(&upload)));
            self.written += length;
        }
        script.push_str(then.unwrap_or_default());
        self.files.run(&script, self.path.as_str()).await
    }

    fn piece(&self) -> String {
        format!("{}/{}", self.files.directory(), self.name)
    }
}

impl Drop for RemoteWrite {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.begun {
            return;
        }
        let (files, path) = (self.files.clone(), self.path.clone());
        let (name, upload) = (self.name.clone(), quoted(&self.piece()));
        runtime.spawn(async move {
            let script = format!(
                "target {}; rm -f \"${{t%/*}}/{name}\" {upload} {upload}.error",
                files.quoted(&path)
            );
            if let Err(error) = files.run(&script, path.as_str()).await {
                tracing::debug!(%error, "cannot remove an unfinished file in a sandbox");
            }
        });
    }
}
