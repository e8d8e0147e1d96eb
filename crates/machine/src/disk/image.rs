//! Disk images: sparse files with an ext4 file system. Their size is the sandbox's limit.
//!
//! ```text
//! HOME/templates/<base>-<bytes>.img    created once, and copied for each sandbox
//! HOME/disks/<lease>.img               the disk of a lease; outlives its instances
//! ```
//! On such a disk, `root` contains the sandbox's files. With an image, `root` is the overlay's upper layer
//! and `work` is its work directory. `layers` contains what the sandbox changed in this machine's programs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::outbound::program::ProgramError;
use rustix::fs::SeekFrom;

use super::{skeleton, system_files};
use crate::files::{remove, remove_all};
use crate::spec::SandboxCapabilities;
use crate::sys;
use crate::tools::{make_ext4, run_tool};

/// The initial content of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DiskBase {
    /// A small root for this machine's programs.
    Machine,
    /// The same with the accounts and directories that managing packages needs.
    System,
    /// No files: they come from an image.
    Image,
}

impl DiskBase {
    /// The files of a sandbox with this machine's programs.
    pub(crate) fn of_machine(capabilities: SandboxCapabilities) -> Self {
        match capabilities {
            SandboxCapabilities::Root => Self::System,
            SandboxCapabilities::None => Self::Machine,
        }
    }

    /// Writes the files to a directory. Blocking.
    pub(crate) fn furnish(self, root: &Path) -> io::Result<()> {
        match self {
            Self::Machine => skeleton::furnish(root),
            Self::System => {
                skeleton::furnish(root)?;
                system_files::furnish(root)
            }
            Self::Image => Ok(()),
        }
    }
}

/// The extension of a file that is still being written.
pub(super) const UNFINISHED: &str = "new";

/// How long each program that checks and grows a disk may take.
const GROW_TIMEOUT: Duration = Duration::from_secs(900);

/// Creates a template: an ext4 image of this size with the initial content of a sandbox. Blocking.
pub(super) fn make_template(base: DiskBase, bytes: u64, image: &Path) -> io::Result<()> {
    let unfinished = image.with_extension(UNFINISHED);
    let files = image.with_extension("root");
    remove_all(&files)?;
    fs::DirBuilder::new().mode(0o755).create(&files)?;
    let root = files.join("root");
    skeleton::make_dir_with_mode(&root, 0o755)?;
    skeleton::make_dir_with_mode(&files.join("work"), 0o755)?;
    base.furnish(&root)?;
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.set_len(bytes)?;
    let made = make_ext4(vec!["-d".into(), (&files).into(), (&unfinished).into()]);
    remove_all(&files)?;
    made?;
    fs::rename(&unfinished, image)
}

/// Copies a disk with its holes. The copy shares blocks with the original where the file system can.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let unfinished = to.with_extension(UNFINISHED);
    copy_to(from, &unfinished)?;
    fs::rename(&unfinished, to)
}

fn copy_to(from: &Path, unfinished: &Path) -> io::Result<File> {
    let source = File::open(from)?;
    let target =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(unfinished)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        copy_data(&source, &target)?;
    }
    Ok(target)
}

/// Grows an unused disk. A copy is grown and renamed, so a crash leaves an intact disk.
pub(crate) fn grow(disk: &Path, bytes: u64) -> io::Result<()> {
    let locked = sys::lock_unused_image(disk)?;
    if locked.metadata()?.len() >= bytes {
        return Ok(());
    }
    let unfinished = disk.with_extension(UNFINISHED);
    let grown = grown_copy(disk, &unfinished, bytes);
    if grown.is_err() {
        remove(&unfinished)?;
    }
    grown?;
    fs::rename(&unfinished, disk)
}

fn grown_copy(disk: &Path, unfinished: &Path, bytes: u64) -> io::Result<()> {
    let file = copy_to(disk, unfinished)?;
    file.set_len(bytes)?;
    // The sandbox may have been killed, so e2fsck replays the journal first. Its exit code 1 means repaired.
    for (program, options, max_code) in
        [("e2fsck", &["-f", "-p"][..], 1), ("resize2fs", &["-f"], 0)]
    {
        let arguments = options.iter().map(Into::into).chain([unfinished.into()]).collect();
        match run_tool("disk.grow", GROW_TIMEOUT, program, arguments, None) {
            Err(ProgramError::Failed { status, .. })
                if status.code().is_some_and(|code| code <= max_code) => {}
            done => done.map_err(io::Error::other)?,
        }
    }
    file.sync_all()
}

fn copy_data(source: &File, target: &File) -> io::Result<()> {
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(source, SeekFrom::Hole(start))?;
        let (mut from, mut to) = (start, start);
        while from < end {
            let count = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
            let copied =
                rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), count)?;
            if copied == 0 {
                break;
            }
        }
        at = end;
    }
    Ok(())
}

/// The file of a template.
pub(super) fn template(home: &Path, base: DiskBase, bytes: u64) -> PathBuf {
    let name = match base {
        DiskBase::Machine => "machine",
        DiskBase::System => "system",
        DiskBase::Image => "image",
    };
    home.join("templates").join(format!("{name}-{bytes}.img"))
}
