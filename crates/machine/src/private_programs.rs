//! The files of this machine's program directories that a sandbox must not get as they are: files that not
//! every user of the machine may read, and programs with file capabilities.
//!
//! Root inside reads whatever its capabilities allow, so the layers of a sandbox hide the former. A program
//! with capabilities that its caller may not gain is refused by the kernel, so the layers have a copy without
//! them. Finding these files takes a few tenths of a second; all servers of a machine share the result.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::{lock, machine_lock};
use base::durable::replace_volatile;

/// After this time the directories are read again, even if no change is visible from the outside.
const MAX_AGE: Duration = Duration::from_hours(1);

/// With more, sandboxes whose root has capabilities are refused.
const MAX_FILES: usize = 10_000;

/// Directories whose modification times show that packages were installed.
const CHANGED: [&str; 9] = [
    "/usr",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/libexec",
    "/usr/share",
    "/usr/local",
    "/usr/local/bin",
    "/var/lib/dpkg/status",
];

/// The files that need a treatment, by their paths on the machine.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivatePrograms {
    /// The state of the machine when they were found.
    stamp: String,
    /// Files and directories that are hidden.
    pub(crate) hidden: Vec<PathBuf>,
    /// Programs that are replaced by copies.
    pub(crate) with_capabilities: Vec<PathBuf>,
}

impl PrivatePrograms {
    /// Returns the files of these directories, from the saved result if it is recent.
    pub(crate) fn find(directories: &[PathBuf]) -> io::Result<Self> {
        let lock_path = machine_lock("programs")?;
        let saved = lock_path.with_extension("json");
        let stamp = stamp();
        if let Some(found) = Self::read(&saved, &stamp) {
            return Ok(found);
        }
        let _alone = lock(&lock_path)?;
        if let Some(found) = Self::read(&saved, &stamp) {
            return Ok(found);
        }
        let mut found = Self { stamp, ..Self::default() };
        for directory in directories {
            found.search(directory)?;
        }
        replace_volatile(&saved, &serde_json::to_vec(&found)?)?;
        Ok(found)
    }

    fn read(saved: &Path, stamp: &str) -> Option<Self> {
        let age = fs::metadata(saved).ok()?.modified().ok()?.elapsed().ok()?;
        let found: Self = serde_json::from_slice(&fs::read(saved).ok()?).ok()?;
        (age < MAX_AGE && found.stamp == stamp).then_some(found)
    }

    fn search(&mut self, directory: &Path) -> io::Result<()> {
        let entries = match fs::read_dir(directory) {
            // Removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            self.add(&entry?)?;
        }
        if self.hidden.len() + self.with_capabilities.len() > MAX_FILES {
            let advice = "set sandbox.capabilities = \"none\"";
            return Err(io::Error::other(format!("too many private files in /usr; {advice}")));
        }
        Ok(())
    }

    fn add(&mut self, entry: &DirEntry) -> io::Result<()> {
        // Removed in the meantime.
        let Ok(kind) = entry.metadata() else { return Ok(()) };
        let path = entry.path();
        if kind.is_symlink() {
            return Ok(());
        }
        // Sandboxes could talk to each other, or to the machine, through a FIFO, a socket or a device.
        let is_public = (kind.is_file() && kind.mode() & 0o004 != 0)
            || (kind.is_dir() && kind.mode() & 0o005 == 0o005);
        match is_public {
            true if kind.is_dir() => return self.search(&path),
            true if kind.mode() & 0o111 != 0
                && path.to_str().is_some()
                && has_capabilities(&path) =>
            {
                self.with_capabilities.push(path);
            }
            true => {}
            false => {
                // The saved result is JSON.
                if path.to_str().is_none() {
                    return Err(io::Error::other(format!("{path:?} cannot be hidden")));
                }
                self.hidden.push(path);
            }
        }
        Ok(())
    }
}

fn has_capabilities(path: &Path) -> bool {
    let size = rustix::fs::lgetxattr(path, "security.capability", &mut [0u8; 64][..]);
    size.is_ok_and(|size| size > 0)
}

/// A text that changes when packages are installed or removed.
fn stamp() -> String {
    let parts = CHANGED.iter().map(|path| match fs::metadata(path) {
        Ok(kind) => format!("{}.{}", kind.mtime(), kind.mtime_nsec()),
        Err(_) => "-".to_owned(),
    });
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_that_not_every_user_may_read_are_found() {
        let dir = std::env::temp_dir().join(format!("stead-private-{}", uuid::Uuid::now_v7()));
        for (name, mode) in [("a", 0o755), ("a/open", 0o755), ("a/closed", 0o750)] {
            fs::create_dir_all(dir.join(name)).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (name, mode) in
            [("a/open/public", 0o644), ("a/open/secret", 0o640), ("a/closed/inside", 0o644)]
        {
            fs::write(dir.join(name), "").unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("/etc/shadow", dir.join("a/link")).unwrap();
        let mut found = PrivatePrograms::default();
        found.search(&dir).unwrap();
        found.hidden.sort();
        assert_eq!(found.hidden, [dir.join("a/closed"), dir.join("a/open/secret")]);
        assert_eq!(found.with_capabilities, Vec::<PathBuf>::new());
        fs::remove_dir_all(dir).unwrap();
    }
}
