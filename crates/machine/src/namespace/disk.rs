//! The disks of sandboxes: files with an ext4 file system in them, as large as the sandbox's limit
//! and as big as what it wrote.
//!
//! ```text
//! HOME/templates/<base>-<bytes>.img    made once, copied for each
//! HOME/disks/<lease>.img               a lease's own; outlives its instances
//! ```
//! On such a disk, `root` holds the sandbox's files; with an image beneath it is the overlay's upper
//! layer, and `work` what the overlay needs beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::SeekFrom;

use super::sys;

/// What a disk begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// A small root of its own, over this machine's programs.
    Machine,
    /// Nothing: the files are an image's.
    Image,
}

/// What is behind the name of a file that is not whole yet.
pub(super) const BESIDE: &str = "new";

/// Directories that every sandbox has.
const DIRECTORIES: &[&str] = &[
    "dev",
    "etc",
    "home",
    "media",
    "memories",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "var/cache",
    "var/lib",
    "var/log",
    "var/tmp",
    "workspace",
    ".stead",
];

/// Those of them that everybody inside may write to.
const SHARED: &[&str] = &["tmp", "var/tmp"];

/// What of this machine's `/etc` is its own business, though everybody on it may read it.
const PRIVATE: &[&str] = &[
    "fstab",
    "group",
    "group-",
    "gshadow",
    "gshadow-",
    "hostname",
    "hosts",
    "machine-id",
    "mtab",
    "passwd",
    "passwd-",
    "resolv.conf",
    "shadow",
    "shadow-",
    "ssh",
    "subgid",
    "subgid-",
    "subuid",
    "subuid-",
    "cron.d",
    "cron.daily",
    "cron.hourly",
    "cron.monthly",
    "cron.weekly",
    "crontab",
    "exports",
    "krb5.keytab",
    "docker",
    "containers",
    "kubernetes",
    "wireguard",
    "letsencrypt",
    "apt/auth.conf",
    "apt/auth.conf.d",
    "environment",
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n";

/// How many symbolic links, files and directories of `/etc` are taken at most.
const MOST_FILES: usize = 20_000;

/// Makes a template: an ext4 image of this size with what a sandbox begins with. Blocking.
pub(super) fn make_template(base: Base, bytes: u64, image: &Path) -> io::Result<()> {
    let beside = image.with_extension(BESIDE);
    let skeleton = image.with_extension("root");
    remove_all(&skeleton)?;
    fs::DirBuilder::new().mode(0o755).create(&skeleton)?;
    let root = skeleton.join("root");
    directory(&root, 0o755)?;
    directory(&skeleton.join("work"), 0o755)?;
    match base {
        Base::Machine => furnish(&root)?,
        Base::Image => {}
    }
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.set_len(bytes)?;
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-m", "0", "-J", "size=8", "-E"])
        .arg("lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0")
        .arg("-d")
        .arg(&skeleton)
        .arg(&beside)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .output()?;
    remove_all(&skeleton)?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(io::Error::other(format!("mkfs.ext4: {}", said.trim())));
    }
    fs::rename(&beside, image)
}

/// Where the machine's tools are.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Copies a disk, holes and all; shares its blocks where the file system can.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let beside = to.with_extension(BESIDE);
    copy_beside(from, &beside)?;
    fs::rename(&beside, to)
}

fn copy_beside(from: &Path, beside: &Path) -> io::Result<File> {
    let source = File::open(from)?;
    let target =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        copy_data(&source, &target)?;
    }
    Ok(target)
}

/// Makes a disk that nothing runs on larger, with what is on it. A copy is, so that there is the one or
/// the other at every instant.
pub(super) fn grow(disk: &Path, bytes: u64) -> io::Result<()> {
    let held = sys::unused_image(disk)?;
    if held.metadata()?.len() >= bytes {
        return Ok(());
    }
    let beside = disk.with_extension(BESIDE);
    let grown = grown_copy(disk, &beside, bytes);
    if grown.is_err() {
        remove(&beside)?;
    }
    grown?;
    fs::rename(&beside, disk)
}

fn grown_copy(disk: &Path, beside: &Path, bytes: u64) -> io::Result<()> {
    let file = copy_beside(disk, beside)?;
    file.set_len(bytes)?;
    // What ran on it may have been killed: its journal is read first. It says 1 where that mended something.
    for (program, options, most) in [("e2fsck", &["-f", "-p"][..], 1), ("resize2fs", &["-f"], 0)] {
        let done = Command::new(program)
            .args(options)
            .arg(beside)
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::null())
            .output()?;
        if done.status.code().is_none_or(|code| code > most) {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(io::Error::other(format!("{program}: {}", said.trim())));
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
            let most = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
            let copied =
                rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), most)?;
            if copied == 0 {
                break;
            }
        }
        at = end;
    }
    Ok(())
}

/// Fills the root of a sandbox that runs this machine's programs.
pub(crate) fn furnish(root: &Path) -> io::Result<()> {
    for name in DIRECTORIES {
        directory(&root.join(name), 0o755)?;
    }
    for name in SHARED {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o1777))?;
    }
    fs::set_permissions(root.join("root"), fs::Permissions::from_mode(0o700))?;
    for memory in ["memories/hot", "memories/persistent"] {
        directory(&root.join(memory), 0o755)?;
    }
    // Where the programs are links into /usr they are so inside; else they are mounted like it.
    for name in TOP {
        match fs::symlink_metadata(Path::new("/").join(name)) {
            Ok(kind) if kind.is_symlink() => {
                symlink(fs::read_link(Path::new("/").join(name))?, root.join(name))?;
            }
            Ok(kind) if kind.is_dir() => directory(&root.join(name), 0o755)?,
            _ => {}
        }
    }
    let mut left = MOST_FILES;
    copy_public(Path::new("/etc"), &root.join("etc"), Path::new(""), &mut left)?;
    for (name, text) in [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("hostname", "stead\n"),
        ("machine-id", ""),
        ("hosts", HOSTS),
        ("resolv.conf", ""),
    ] {
        fs::write(root.join("etc").join(name), text)?;
    }
    Ok(())
}

/// The names that every sandbox knows.
pub(super) const HOSTS: &str = "127.0.0.1 localhost stead\n::1 localhost\n";

/// Where programs are on a machine that keeps some of them outside `/usr`.
pub(super) const TOP: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Copies what everybody on the machine may read.
fn copy_public(from: &Path, to: &Path, below: &Path, left: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(from)?.flatten() {
        let name = below.join(entry.file_name());
        if PRIVATE.iter().any(|private| Path::new(private) == name) || *left == 0 {
            continue;
        }
        *left -= 1;
        let Ok(kind) = entry.metadata() else { continue };
        let mode = kind.permissions().mode();
        let target = to.join(entry.file_name());
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_dir() && mode & 0o005 == 0o005 {
            directory(&target, 0o755)?;
            copy_public(&entry.path(), &target, &name, left)?;
        } else if kind.is_file() && mode & 0o004 != 0 && kind.len() < 4 << 20 {
            let mut copy =
                OpenOptions::new().write(true).create_new(true).mode(mode & 0o755).open(&target)?;
            copy.write_all(&fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    // The mode a directory is made with is cut by the umask.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Removes whatever is there.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file that may be there.
pub(super) fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The file of a template.
pub(super) fn template(home: &Path, base: Base, bytes: u64) -> PathBuf {
    let name = match base {
        Base::Machine => "machine",
        Base::Image => "image",
    };
    home.join("templates").join(format!("{name}-{bytes}.img"))
}
