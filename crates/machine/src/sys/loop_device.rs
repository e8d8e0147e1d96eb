//! Loop devices: files used as block devices.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4C07;
const EXT4_IOC_RESIZE_FS: libc::c_ulong = 0x4008_6610;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The number of free devices to try.
const MAX_ATTEMPTS: u32 = 100;

/// How long to wait for a disk that the previous sandbox still uses; less than the launch timeout.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(10);

/// The kernel's `loop_config`: a descriptor, a block size, `loop_info64`, and reserved bytes.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    before_flags: [u64; 5],
    encrypt: [u32; 3],
    flags: u32,
    names_and_key: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// The kernel's `loop_info64`. It starts with the device and the inode of the file.
#[repr(C)]
struct LoopStatus {
    file_device: u64,
    file_inode: u64,
    rest: [u64; 27],
}

/// Opens a disk image that is not a loop device, and keeps it from becoming one while it is open. All
/// data that was written to an earlier device is in the image by then.
pub(crate) fn lock_unused_image(image: &Path) -> io::Result<File> {
    let image = OpenOptions::new().read(true).write(true).open(image)?;
    let deadline = Instant::now() + IN_USE_TIMEOUT;
    while let Err(error) = rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK || Instant::now() > deadline {
            return Err(io::Error::new(error.kind(), "the disk is in use by another sandbox"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(image)
}

/// Makes a file a block device, and returns the device with its path. The kernel frees it after its last
/// use, so the descriptor has to be kept until the device is mounted.
///
/// A file is one device at a time: two file systems on it would destroy each other. The lock belongs to
/// the open file that the kernel holds, so it ends with the device.
pub(crate) fn loop_device(image: &Path) -> io::Result<(File, String)> {
    let image = lock_unused_image(image)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    // Another process may take the free device before we do.
    for _ in 0..MAX_ATTEMPTS {
        // SAFETY: this request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = format!("/dev/loop{number}");
        let device = match OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
        {
            Ok(device) => device,
            // Where udev creates the device node, it appears a moment later.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            Err(error) => return Err(error),
        };
        let config = LoopConfig {
            fd: image.as_raw_fd() as u32,
            block_size: 0,
            before_flags: [0; 5],
            encrypt: [0; 3],
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            names_and_key: [0; 160],
            init: [0; 2],
            reserved: [0; 8],
        };
        // SAFETY: `config` has the kernel's layout and lives through the call.
        let done =
            unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
        if done == 0 {
            return Ok((device, path));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
    }
    Err(io::Error::other("other processes keep taking the free loop devices"))
}

/// Finds the block device that a file is, and returns it with its path. The kernel keeps the device as long as
/// the descriptor is open.
pub(crate) fn loop_device_of(image: &Path) -> io::Result<Option<(File, String)>> {
    let wanted = fs::metadata(image)?;
    for entry in fs::read_dir("/sys/block")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Only a device that is in use has this file. Opening others might delay their end.
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end_matches('\n')).file_name() != image.file_name() {
            continue;
        }
        let path = format!("/dev/{name}");
        let Ok(device) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        let mut status = LoopStatus { file_device: 0, file_inode: 0, rest: [0; 27] };
        // SAFETY: `status` has the size of the kernel's structure and lives through the call.
        let read =
            unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut status) };
        if read == 0 && (status.file_device, status.file_inode) == (wanted.dev(), wanted.ino()) {
            return Ok(Some((device, path)));
        }
    }
    Ok(None)
}

/// Makes a block device as large as its file has become.
pub(crate) fn grow_loop_device(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY as _, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Grows the mounted ext4 file system of an open file to this number of blocks. The kernel does it step by
/// step, so a crash leaves an intact file system.
pub(crate) fn grow_ext4(file: &File, blocks: u64) -> io::Result<()> {
    // SAFETY: `blocks` lives through the call, which only reads it.
    match unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_RESIZE_FS as _, &raw const blocks) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
