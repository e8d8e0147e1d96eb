//! A file system with one file, `disk`, that records every write and every barrier.
//!
//! A loop device on that file forwards block writes and flushes one by one, so the record is that of a disk controller.
//! It implements the kernel's FUSE protocol (`linux/fuse.h`) over `/dev/fuse`, one request at a time.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Instant,
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The maximum size of a write request.
const MAX_WRITE_BYTES: usize = 1 << 20;
/// The header of a request.
const REQUEST_HEADER_BYTES: usize = 40;
/// The inode of the file; the root has 1.
const DISK_INODE: u64 = 2;

/// A write or a barrier that reached the disk.
#[derive(Debug, Clone)]
pub enum DiskRecord {
    /// Bytes at an offset.
    Write(u64, Vec<u8>),
    /// Everything before is on stable storage.
    Barrier,
}

/// The content of the disk and its record.
#[derive(Debug)]
pub struct Disk {
    /// The content as programs see it.
    pub content: Vec<u8>,
    /// Writes and barriers since the recording was started.
    pub records: Vec<DiskRecord>,
    /// The time of each record.
    pub times: Vec<Instant>,
}

impl Disk {
    fn push(&mut self, record: DiskRecord) {
        self.records.push(record);
        self.times.push(Instant::now());
    }
}

/// The mounted file system.
#[derive(Debug)]
pub struct RecordingDisk {
    directory: PathBuf,
    /// The recorded disk.
    pub disk: Arc<Mutex<Disk>>,
    server: Option<JoinHandle<()>>,
}

impl RecordingDisk {
    /// Mounts the file system at a directory, with an empty disk.
    ///
    /// # Errors
    /// If the kernel refuses, for example without root.
    pub fn mount(directory: &Path, bytes: usize) -> Result<RecordingDisk> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.context("cannot open /dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options)?;
        mount("stead-power", directory, "fuse", MountFlags::empty(), options.as_c_str())
            .context("cannot mount the recording file system")?;
        let disk = Disk { content: vec![0; bytes], records: Vec::new(), times: Vec::new() };
        let disk = Arc::new(Mutex::new(disk));
        let served = disk.clone();
        let server = std::thread::spawn(move || serve(device, &served));
        Ok(RecordingDisk { directory: directory.to_owned(), disk, server: Some(server) })
    }

    /// Returns the path of the file that is the disk.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.join("disk")
    }

    /// Returns the number of records so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.disk.lock().records.len()
    }
}

impl Drop for RecordingDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.directory, UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

fn serve(mut device: File, disk: &Mutex<Disk>) {
    let mut buffer = vec![0; MAX_WRITE_BYTES + 4096];
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) if length >= REQUEST_HEADER_BYTES => length,
            Err(error) if matches!(error.raw_os_error(), Some(2 | 4 | 11)) => continue,
            // The file system was unmounted.
            Ok(_) | Err(_) => return,
        };
        let request = &buffer[..length];
        let (opcode, unique) = (number32(request, 4), number64(request, 8));
        let body = &request[REQUEST_HEADER_BYTES..];
        let Some(answer) = answer(opcode, number64(request, 16), body, disk) else { continue };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut bytes = Vec::with_capacity(16 + payload.len());
        bytes.extend(u32::try_from(16 + payload.len()).unwrap_or(16).to_ne_bytes());
        bytes.extend(error.to_ne_bytes());
        bytes.extend(unique.to_ne_bytes());
        bytes.extend(payload);
        let _ = device.write_all(&bytes);
    }
}

/// Answers one request; `None` for those that have no answer.
fn answer(
    opcode: u32,
    inode: u64,
    body: &[u8],
    disk: &Mutex<Disk>,
) -> Option<Result<Vec<u8>, i32>> {
    const ENOENT: i32 = 2;
    const ENOSYS: i32 = 38;
    let size = || disk.lock().content.len() as u64;
    Some(match opcode {
        // LOOKUP
        1 if body.starts_with(b"disk\0") => {
            let mut payload = Vec::new();
            for number in [DISK_INODE, 0, 3600, 3600, 0] {
                payload.extend(number.to_ne_bytes());
            }
            payload.extend(attributes(DISK_INODE, size()));
            Ok(payload)
        }
        1 => Err(ENOENT),
        // FORGET, BATCH_FORGET, INTERRUPT
        2 | 42 | 36 => return None,
        // GETATTR, SETATTR
        3 | 4 => {
            let mut payload = Vec::new();
            payload.extend(3600_u64.to_ne_bytes());
            payload.extend(0_u64.to_ne_bytes());
            payload.extend(attributes(inode, size()));
            Ok(payload)
        }
        // OPEN, OPENDIR
        14 | 27 => Ok(vec![0; 16]),
        // READ
        15 => {
            let (offset, length) = (number64(body, 8) as usize, number32(body, 16) as usize);
            let disk = disk.lock();
            let start = offset.min(disk.content.len());
            let end = (offset + length).min(disk.content.len());
            Ok(disk.content[start..end].to_vec())
        }
        // WRITE
        16 => {
            let (offset, length) = (number64(body, 8), number32(body, 16));
            let data = &body[40..40 + length as usize];
            let mut disk = disk.lock();
            let start = offset as usize;
            if start + data.len() > disk.content.len() {
                Err(28)
            } else {
                disk.content[start..start + data.len()].copy_from_slice(data);
                disk.push(DiskRecord::Write(offset, data.to_vec()));
                let mut payload = length.to_ne_bytes().to_vec();
                payload.extend([0; 4]);
                Ok(payload)
            }
        }
        // STATFS
        17 => Ok(vec![0; 80]),
        // FSYNC
        20 => {
            disk.lock().push(DiskRecord::Barrier);
            Ok(Vec::new())
        }
        // RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
        18 | 25 | 29 | 34 | 38 => Ok(Vec::new()),
        // READDIR: the directory is never listed.
        28 => Ok(Vec::new()),
        // INIT
        26 => {
            const BIG_WRITES: u32 = 1 << 5;
            const MAX_PAGES: u32 = 1 << 22;
            let mut payload = Vec::new();
            for number in [7, 31, number32(body, 8), BIG_WRITES | MAX_PAGES, 0] {
                payload.extend(number.to_ne_bytes());
            }
            payload.extend((MAX_WRITE_BYTES as u32).to_ne_bytes());
            payload.extend(1_u32.to_ne_bytes());
            payload.extend(((MAX_WRITE_BYTES / 4096) as u16).to_ne_bytes());
            payload.resize(64, 0);
            Ok(payload)
        }
        // The kernel works without these optional requests: FALLOCATE, extended attributes and so on.
        _ => Err(ENOSYS),
    })
}

/// Encodes the `struct fuse_attr` of an inode.
fn attributes(inode: u64, size: u64) -> Vec<u8> {
    const DIRECTORY: u32 = 0o040_700;
    const FILE: u32 = 0o100_600;
    let (mode, size) = if inode == DISK_INODE { (FILE, size) } else { (DIRECTORY, 0) };
    let mut bytes = Vec::new();
    for number in [inode, size, size / 512, 0, 0, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    for number in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0_u32] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(number)
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(number)
}
