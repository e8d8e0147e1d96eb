//! Finds processes that use directories: shells of the machine by their paths, and running sandboxes by their
//! mounts.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether a process other than this one uses a directory or a file below.
pub(super) fn has_other_users(directories: &[PathBuf]) -> io::Result<bool> {
    let directories: Vec<PathBuf> =
        directories.iter().map(fs::canonicalize).collect::<io::Result<_>>()?;
    let own = fs::read_link("/proc/self/ns/mnt")?;
    let mut namespaces = HashSet::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let process = entry.path();
        let pid = entry.file_name().to_string_lossy().parse::<u32>();
        if pid.map_or(true, |pid| pid == std::process::id()) {
            continue;
        }
        // A process that has ended meanwhile has none.
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
        let is_elsewhere = namespace != own && namespaces.insert(namespace);
        if has_below(&process, &directories) || is_elsewhere && has_mounted(&process, &directories)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a process has its working directory or an open file below one of these.
fn has_below(process: &Path, directories: &[PathBuf]) -> bool {
    let below = |link: &Path| {
        fs::read_link(link).is_ok_and(|path| directories.iter().any(|it| path.starts_with(it)))
    };
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    below(&process.join("cwd")) || files.map(|file| file.path()).any(|file| below(&file))
}

/// Whether one of these directories is mounted in the namespace of a process.
fn has_mounted(process: &Path, directories: &[PathBuf]) -> bool {
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(3);
        let (Some(source), Some(target)) = (fields.next(), fields.next()) else { return false };
        let named = |directory: &&PathBuf| Path::new(source).file_name() == directory.file_name();
        let target = process.join("root").join(target.trim_start_matches('/'));
        directories.iter().filter(named).any(|directory| is_same(directory, &target))
    })
}

fn is_same(directory: &Path, mounted: &Path) -> bool {
    match (fs::metadata(directory), fs::symlink_metadata(mounted)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
