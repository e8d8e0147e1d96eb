//! Images that an operator imports from a directory or an archive of this machine.
//!
//! ```text
//! HOME/images/.lock          held by the process that imports or removes an image
//! HOME/images/<name>/rootfs  an imported image
//! ```
//! An image is copied under a name that begins with a dot, synced, and renamed. The next change removes such
//! copies of a process that was killed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, RenameFlags};

use crate::layout::{is_layout, unpack_layout};
use crate::lock::{LOCK_TIMEOUT, lock_file, open_lock, try_lock};
use base::durable::{open_directory, part_name, sync_directory};
use base::outbound::TimedOut;
use base::outbound::program::{ProgramCall, ProgramError};

const LOCK: &str = ".lock";
const ROOTFS: &str = "rootfs";
/// How long a root file system may take to be copied.
const COPY_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Why an image cannot be imported or removed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("image {0} already exists")]
    Exists(String),
    #[error("{} is not a root file system: it has neither bin nor usr", .0.display())]
    NoRoot(PathBuf),
    #[error("cannot copy the root file system")]
    Copy(#[from] ProgramError),
    #[error("another process is importing or removing an image: {0}")]
    Locked(TimedOut),
    #[error("cannot {doing}")]
    Failed {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// What happens to an image that has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingImage {
    Keep,
    Replace,
}

/// The imported images of a home. Their names are checked by the caller.
#[derive(Debug, Clone)]
pub struct ImportedImages {
    dir: PathBuf,
}

impl ImportedImages {
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { dir: home.join("images") }
    }

    /// The names of all images, in order.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string().ok().filter(|it| !it.starts_with('.')));
        }
        names.sort();
        Ok(names)
    }

    /// The root directory of an image.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<PathBuf> {
        let root = self.dir.join(name).join(ROOTFS);
        root.is_dir().then_some(root)
    }

    /// Copies a directory, or unpacks an archive with `tar`, as an image. If that is an OCI image layout, its
    /// image is unpacked, unless it has more bytes than `max_bytes`.
    ///
    /// # Errors
    /// If there is an image of this name that must be kept, if the source is no root file system, or if it
    /// cannot be copied. Nothing has changed then.
    pub async fn import(
        &self,
        name: &str,
        source: &Path,
        existing: ExistingImage,
        max_bytes: u64,
    ) -> Result<(), ImportError> {
        let lock = self.lock().await?;
        let target = self.dir.join(name);
        let exists = target.exists();
        if exists && existing == ExistingImage::Keep {
            return Err(ImportError::Exists(name.to_owned()));
        }
        let beside = self.dir.join(part_name().map_err(failed("name the image"))?);
        let copied = copy(source, &beside, &lock, max_bytes).await;
        if copied.is_err() {
            // The next change removes what is left.
            let _ = fs::remove_dir_all(&beside);
        }
        copied?;
        let renamed = if exists {
            // In one step: at no moment is there no image of this name.
            rustix::fs::renameat_with(CWD, &beside, CWD, &target, RenameFlags::EXCHANGE)
        } else {
            rustix::fs::rename(&beside, &target)
        };
        renamed.map_err(|error| failed("rename the image")(error.into()))?;
        let finish = || {
            sync_directory(open_directory(&self.dir)?)?;
            if exists { fs::remove_dir_all(&beside) } else { Ok(()) }
        };
        finish().map_err(failed("remove the image that was replaced"))
    }

    /// Removes an image. Returns whether it existed.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn remove(&self, name: &str) -> Result<bool, ImportError> {
        if !self.dir.join(name).exists() {
            return Ok(false);
        }
        let _lock = self.lock().await?;
        let remove = || {
            let beside = self.dir.join(part_name()?);
            match fs::rename(self.dir.join(name), &beside) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                renamed => renamed?,
            }
            sync_directory(open_directory(&self.dir)?)?;
            fs::remove_dir_all(beside).map(|()| true)
        };
        remove().map_err(failed("remove the image"))
    }

    /// Removes what a killed process left. Returns `false` if another process is changing the images. Blocking.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn sweep(&self) -> io::Result<bool> {
        if !self.dir.exists() {
            return Ok(true);
        }
        let lock = self.open_lock()?;
        if !try_lock(&lock)? {
            return Ok(false);
        }
        self.remove_leftovers().map(|()| true)
    }

    /// Waits for other processes, and removes what a killed one left.
    async fn lock(&self) -> Result<File, ImportError> {
        let lock = self.open_lock().map_err(failed("lock the images"))?;
        let locked = lock_file(&lock, FlockOperation::NonBlockingLockExclusive, LOCK_TIMEOUT).await;
        locked.map_err(ImportError::Locked)?.map_err(failed("lock the images"))?;
        self.remove_leftovers().map_err(failed("remove an unfinished image"))?;
        Ok(lock)
    }

    fn open_lock(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        open_lock(&self.dir.join(LOCK))
    }

    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != LOCK && name.to_string_lossy().starts_with('.') {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> ImportError {
    move |source| ImportError::Failed { doing, source }
}

/// Copies a root file system, and syncs it.
async fn copy(source: &Path, to: &Path, lock: &File, max_bytes: u64) -> Result<(), ImportError> {
    let root = to.join(ROOTFS);
    if is_layout(source) {
        let made = DirBuilder::new().mode(0o700).create(to);
        made.map_err(failed("create the image"))?;
        return finish(source, to, move |source, root| unpack_layout(source, root, max_bytes))
            .await;
    }
    let prepare = || {
        fs::metadata(source)?;
        DirBuilder::new().mode(0o700).create(to)?;
        DirBuilder::new().mode(0o755).create(&root)?;
        lock.try_clone()
    };
    let lock = prepare().map_err(failed("read the root file system"))?;
    let (program, flags, paths) = if source.is_dir() {
        // The kernel would refuse programs whose file capabilities sandboxes do not have.
        let flags = vec!["-a", "--reflink=auto", "--no-preserve=xattr"];
        ("cp", flags, [source.join(".").into(), root.clone().into()])
    } else {
        let mut into = OsString::from("--directory=");
        into.push(&root);
        let mut file = OsString::from("--file=");
        file.push(source);
        ("tar", vec!["-xp", "--numeric-owner"], [into, file])
    };
    let arguments = flags.into_iter().map(OsString::from).chain(paths).collect();
    let call = "image.import";
    let copy =
        ProgramCall { call, limit: COPY_TIMEOUT, program, arguments, lock: Some(lock.into()) };
    copy.run().await?;
    if !is_layout(&root) {
        return finish(source, to, |_, _| Ok(())).await;
    }
    let layout = to.join("layout");
    fs::rename(&root, &layout).map_err(failed("rename the image layout"))?;
    let unpack = move |_: &Path, root: &Path| {
        unpack_layout(&layout, root, max_bytes)?;
        fs::remove_dir_all(&layout)
    };
    finish(source, to, unpack).await
}

/// Completes the root file system, checks that it looks like one, and syncs it.
async fn finish(
    source: &Path,
    to: &Path,
    complete: impl FnOnce(&Path, &Path) -> io::Result<()> + Send + 'static,
) -> Result<(), ImportError> {
    let (source, root) = (source.to_owned(), to.join(ROOTFS));
    let done = tokio::task::spawn_blocking(move || {
        complete(&source, &root).map_err(failed("unpack the image layout"))?;
        let has = |name: &str| root.join(name).symlink_metadata().is_ok();
        if !has("bin") && !has("usr") {
            return Err(ImportError::NoRoot(source));
        }
        let sync = || -> io::Result<()> { Ok(rustix::fs::syncfs(open_directory(&root)?)?) };
        sync().map_err(failed("write the root file system"))
    });
    done.await.map_err(|error| failed("write the root file system")(io::Error::other(error)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(dir: &Path, text: &str) -> PathBuf {
        let source = dir.join(format!("source-{text}"));
        fs::create_dir_all(source.join("bin")).unwrap();
        fs::write(source.join("bin/sh"), text).unwrap();
        source
    }

    fn hidden(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir.join("images")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.') && name != LOCK).collect()
    }

    #[tokio::test]
    async fn an_image_is_imported_replaced_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImportedImages::new(dir.path());
        assert_eq!(images.names().unwrap(), [""; 0]);
        let text = || fs::read_to_string(dir.path().join("images/a/rootfs/bin/sh")).unwrap();
        let (one, two) = (source(dir.path(), "one"), source(dir.path(), "two"));
        images.import("a", &one, ExistingImage::Keep, 1 << 20).await.unwrap();
        let kept = images.import("a", &two, ExistingImage::Keep, 1 << 20).await;
        assert!(matches!(kept, Err(ImportError::Exists(_))), "{kept:?}");
        assert_eq!(text(), "one");
        images.import("a", &two, ExistingImage::Replace, 1 << 20).await.unwrap();
        assert_eq!(text(), "two");
        fs::create_dir(dir.path().join("empty")).unwrap();
        for bad in ["empty", "absent"] {
            let refused =
                images.import("a", &dir.path().join(bad), ExistingImage::Replace, 1 << 20).await;
            assert!(refused.is_err(), "{bad}");
            assert_eq!(text(), "two");
        }
        assert_eq!(images.names().unwrap(), ["a"]);
        assert!(images.remove("a").await.unwrap());
        assert!(!images.remove("a").await.unwrap());
        assert_eq!(hidden(dir.path()), [""; 0]);
    }

    #[tokio::test]
    async fn the_next_change_removes_what_a_killed_import_left() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImportedImages::new(dir.path());
        let left = dir.path().join("images").join(part_name().unwrap()).join(ROOTFS);
        fs::create_dir_all(&left).unwrap();
        assert_eq!(images.names().unwrap(), [""; 0]);
        images.import("a", &source(dir.path(), "a"), ExistingImage::Keep, 1 << 20).await.unwrap();
        assert_eq!(hidden(dir.path()), [""; 0]);
    }
}
