//! Copies of our executable, in a directory that every sandbox can see.
//!
//! A copy allows the original to be replaced or removed while sandboxes run. The whole directory is mounted
//! inside, so a running host can replace itself by a later version.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use base::durable;

/// The directory with the copies.
#[derive(Debug)]
pub(crate) struct Programs {
    dir: PathBuf,
    executable: PathBuf,
    /// The file name of the current copy, once it exists.
    name: Mutex<Option<String>>,
}

impl Programs {
    pub(crate) fn new(dir: PathBuf, executable: PathBuf) -> Self {
        Self { dir, executable, name: Mutex::new(None) }
    }

    /// The file name of a copy of our executable. It changes with the executable.
    pub(crate) fn name(&self) -> io::Result<String> {
        program_name(&self.executable)
    }

    /// Copies our executable on first use, and returns the directory and the file name. Blocks the first
    /// time.
    pub(crate) fn ready(&self) -> io::Result<(PathBuf, String)> {
        let mut name = self.name.lock();
        if let Some(name) = &*name {
            return Ok((self.dir.clone(), name.clone()));
        }
        // The providers of a server share one directory.
        static COPYING: Mutex<()> = Mutex::new(());
        let _alone = COPYING.lock();
        fs::create_dir_all(&self.dir)?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o755))?;
        let current = self.name()?;
        let copy = self.dir.join(&current);
        if !copy.exists() {
            // A power failure must not leave an empty program under this name, which is never copied again.
            durable::copy(&self.executable, &copy, 0o555)?;
        }
        *name = Some(current.clone());
        Ok((self.dir.clone(), current))
    }
}

/// The file name of the copy of an executable.
pub(crate) fn program_name(executable: &Path) -> io::Result<String> {
    let found = fs::metadata(executable)?;
    Ok(format!("stead-{:x}-{:x}-{:x}", found.ino(), found.size(), found.mtime_nsec()))
}
