//! The executable that sandboxes are started from, kept where each of them can see it.
//!
//! A copy, so that the machine's own may be replaced or removed while sandboxes run, and in a
//! directory that is shown inside as a whole, so that a running host can become a later one.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Programs {
    dir: PathBuf,
    executable: PathBuf,
    /// The name of the copy, once it is made.
    name: Mutex<Option<String>>,
}

impl Programs {
    pub(crate) fn new(dir: PathBuf, executable: PathBuf) -> Self {
        Self { dir, executable, name: Mutex::new(None) }
    }

    /// The name that a copy of our executable has.
    pub(super) fn name(&self) -> io::Result<String> {
        let found = fs::metadata(&self.executable)?;
        Ok(format!("stead-{:x}-{:x}-{:x}", found.ino(), found.size(), found.mtime_nsec()))
    }

    /// The directory, and the name of our executable in it. Blocking the first time.
    pub(crate) fn ready(&self) -> io::Result<(PathBuf, String)> {
        let mut name = self.name.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(name) = &*name {
            return Ok((self.dir.clone(), name.clone()));
        }
        // Each kind of sandbox has one of these, and all have the same directory.
        static COPYING: Mutex<()> = Mutex::new(());
        let _alone = COPYING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        fs::create_dir_all(&self.dir)?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o755))?;
        let fresh = self.name()?;
        let copy = self.dir.join(&fresh);
        if !copy.exists() {
            let beside = self.dir.join(format!(".{fresh}"));
            fs::copy(&self.executable, &beside)?;
            fs::set_permissions(&beside, fs::Permissions::from_mode(0o555))?;
            fs::rename(&beside, &copy)?;
        }
        *name = Some(fresh.clone());
        Ok((self.dir.clone(), fresh))
    }
}
