//! The disks of one provider: one per lease, and snapshots of them.
//!
//! ```text
//! HOME/<disks>/<lease>.img         the disk of a lease; outlives its instances
//! HOME/<snapshots>/<name>.img      a copy of a disk
//! HOME/…/<the same>.json           the image below the disk, if there is one
//! ```
//! A copy is consistent because the sandbox is paused and synced meanwhile. Where the file system can, a
//! copy shares its blocks with the original.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::image::{self, DiskBase, UNFINISHED};
use crate::blocking::blocking;
use crate::files::{self, make_dir};
use crate::spec::{SandboxSpec, is_image_name};
use crate::sys;
use base::durable::replace_volatile;
use base::lock::locked;
use model::{LeaseId, Timestamp};
use provider::{CopyTo, ProviderError, Snapshot};

/// The prefix of the names of warm sandboxes and of their disks.
pub(crate) const WARM_PREFIX: &str = "warm-";

/// How long a template that another sandbox needs, too, is waited for.
const TEMPLATE_WAIT: Duration = Duration::from_secs(180);

/// The image below a disk.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DiskBacking {
    image: Option<String>,
}

/// The disks of one provider.
#[derive(Debug, Clone)]
pub(crate) struct DiskStore {
    provider: &'static str,
    home: PathBuf,
    leases: PathBuf,
    snapshots: PathBuf,
}

impl DiskStore {
    /// The disks of a home, in directories of these names.
    pub(crate) fn new(provider: &'static str, home: &Path, leases: &str, snapshots: &str) -> Self {
        let (leases, snapshots) = (home.join(leases), home.join(snapshots));
        Self { provider, home: home.to_owned(), leases, snapshots }
    }

    /// The disk of a lease, or of a warm sandbox.
    pub(crate) fn of(&self, name: &str) -> PathBuf {
        self.leases.join(format!("{name}.img"))
    }

    /// The image that an existing disk records.
    pub(crate) fn image_below(&self, disk: &Path) -> Result<Option<String>, ProviderError> {
        if !disk.exists() {
            return Ok(None);
        }
        image_below(disk).map_err(|error| ProviderError::failed("read a disk's image", error))
    }

    /// Creates the disk of a sandbox unless it exists.
    pub(crate) async fn prepare(
        &self,
        disk: &Path,
        base: DiskBase,
        spec: &SandboxSpec,
    ) -> Result<(), ProviderError> {
        let (target, below) = (disk.to_owned(), spec.image.clone());
        let from = match &spec.snapshot {
            _ if disk.exists() => None,
            Some(name) => Some(self.snapshot(name)?),
            None => Some(self.template(base, spec.disk).await?),
        };
        blocking("create a disk", move || {
            if let Some(from) = from {
                make_dir(target.parent().unwrap_or(Path::new("/")))?;
                image::copy(&from, &target)?;
            }
            below.map_or(Ok(()), |image| note_image(&target, &image))
        })
        .await
    }

    /// Returns the template of a disk, creating it on first use.
    async fn template(&self, base: DiskBase, bytes: u64) -> Result<PathBuf, ProviderError> {
        // The providers of a server share their templates.
        static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let template = image::template(&self.home, base, bytes);
        if !template.exists() {
            let alone = locked("the template of new disks", TEMPLATE_WAIT, ONE_AT_A_TIME.lock());
            let alone = alone.await?;
            if !template.exists() {
                let file = template.clone();
                blocking("make a template disk", move || {
                    // Also if the caller stops waiting.
                    let _alone = alone;
                    make_dir(file.parent().unwrap_or(Path::new("/")))?;
                    image::make_template(base, bytes, &file)
                })
                .await?;
            }
        }
        Ok(template)
    }

    /// Gives the disk of a warm sandbox to a lease. Blocking, and short.
    pub(crate) fn give(&self, warm: &str, lease: &LeaseId) -> io::Result<()> {
        let (from, to) = (self.of(warm), self.of(lease.as_str()));
        if let Some(image) = image_below(&from)? {
            note_image(&to, &image)?;
            files::remove(&from.with_extension("json"))?;
        }
        fs::rename(from, to)
    }

    /// Removes the disk of this name and its accompanying files. Blocking.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        remove(&self.of(name))
    }

    /// Removes a lease's disk.
    pub(crate) async fn forget(&self, lease: &LeaseId) -> Result<(), ProviderError> {
        let disk = self.of(lease.as_str());
        blocking("remove a disk", move || remove(&disk)).await
    }

    /// Grows the disk of a lease, which no instance may use. A disk that does not exist yet is created with
    /// the new size later.
    pub(crate) async fn grow(&self, lease: &LeaseId, bytes: u64) -> Result<(), ProviderError> {
        let disk = self.of(lease.as_str());
        let Ok(kind) = fs::metadata(&disk) else { return Ok(()) };
        if kind.len() > bytes {
            let reason = "disk: its content may not fit; a disk can only grow".to_owned();
            return Err(ProviderError::Refused { doing: "shrink a disk", reason });
        }
        blocking("grow a disk", move || image::grow(&disk, bytes)).await
    }

    pub(crate) async fn kept(&self) -> Result<Vec<LeaseId>, ProviderError> {
        let dir = self.leases.clone();
        blocking("list the disks", move || {
            let names = images(&dir)?.into_iter().map(|(name, _)| name);
            Ok(names.filter_map(|name| name.parse().ok()).collect())
        })
        .await
    }

    /// Removes the unfinished disks, templates and programs of a server that was killed, and the disks of its
    /// warm sandboxes. Blocking.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let shared = ["templates", "programs"].map(|name| self.home.join(name));
        for dir in [&self.leases, &self.snapshots].into_iter().chain(&shared) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".new") || name.starts_with('.') || name.starts_with(WARM_PREFIX)
                {
                    fs::remove_file(entry.path())?;
                    continue;
                }
                if name.ends_with(".root") {
                    files::remove_all(&entry.path())?;
                }
                // Its disk was never created.
                if name.ends_with(".json") && !entry.path().with_extension("img").exists() {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }

    fn snapshot(&self, name: &str) -> Result<PathBuf, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "find a snapshot", reason };
        if !is_image_name(name) {
            return Err(refused(format!("snapshot: {name:?} is not a valid name")));
        }
        let file = self.snapshots.join(format!("{name}.img"));
        match file.exists() {
            true => Ok(file),
            false => Err(refused(format!("snapshot: {name} does not exist"))),
        }
    }

    /// Completes the settings of a sandbox that starts from a snapshot: its disk size and image are those of
    /// the snapshot, or of the disk that the lease has by now.
    pub(crate) fn with_snapshot(
        &self,
        mut spec: SandboxSpec,
        lease: Option<&LeaseId>,
    ) -> Result<SandboxSpec, ProviderError> {
        let Some(name) = &spec.snapshot else { return Ok(spec) };
        let failed = |source: io::Error| ProviderError::failed("read a snapshot", source);
        let own = lease.map(|lease| self.of(lease.as_str()));
        let disk = match own.filter(|own| own.exists()) {
            Some(own) => own,
            None => self.snapshot(name)?,
        };
        spec.disk = fs::metadata(&disk).map_err(failed)?.len();
        spec.image = image_below(&disk).map_err(failed)?;
        Ok(spec)
    }

    /// The disk to copy to. Refuses a lease without a disk, and a bad snapshot name.
    pub(crate) fn copy_target(
        &self,
        lease: &LeaseId,
        to: &CopyTo,
    ) -> Result<PathBuf, ProviderError> {
        if !self.of(lease.as_str()).exists() {
            let what = "copy the files of a lease that was never used";
            return Err(ProviderError::unsupported(self.provider, what));
        }
        match to {
            CopyTo::Lease(lease) => Ok(self.of(lease.as_str())),
            CopyTo::Snapshot(name) if is_image_name(name) => {
                Ok(self.snapshots.join(format!("{name}.img")))
            }
            CopyTo::Snapshot(name) => {
                let reason = format!("{name:?} is not a valid name of a snapshot");
                Err(ProviderError::Refused { doing: "take a snapshot", reason })
            }
        }
    }

    /// Copies the disk of a lease. An instance that uses it must be paused, and is given by its `root`.
    pub(crate) async fn copy(
        &self,
        lease: &LeaseId,
        root: Option<fs::File>,
        target: PathBuf,
    ) -> Result<(), ProviderError> {
        let source = self.of(lease.as_str());
        blocking("copy a sandbox's disk", move || {
            let _unused = match root {
                Some(root) => {
                    rustix::fs::syncfs(root)?;
                    None
                }
                // The kernel may still be writing the data of an instance that has just ended.
                None => Some(sys::lock_unused_image(&source)?),
            };
            if let Some(dir) = target.parent() {
                make_dir(dir)?;
            }
            let below = image_below(&source)?;
            if below != image_below(&target)? {
                // A disk must never be combined with the image of another.
                remove(&target)?;
            }
            if let Some(image) = below {
                note_image(&target, &image)?;
            }
            image::copy(&source, &target)
        })
        .await
    }

    pub(crate) async fn snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        let dir = self.snapshots.clone();
        blocking("list the snapshots", move || {
            let mut all: Vec<Snapshot> = images(&dir)?
                .into_iter()
                .map(|(name, kind)| {
                    let at = kind.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
                    Snapshot { name, bytes: kind.blocks() * 512, at: at.unwrap_or_default() }
                })
                .collect();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(all)
        })
        .await
    }

    /// Removes a snapshot. Returns whether it existed.
    pub(crate) async fn remove_snapshot(&self, name: &str) -> Result<bool, ProviderError> {
        let Ok(file) = self.snapshot(name) else { return Ok(false) };
        blocking("remove a snapshot", move || {
            remove(&file)?;
            Ok(true)
        })
        .await
    }
}

/// The disk images in a directory, by name.
fn images(dir: &Path) -> io::Result<Vec<(String, fs::Metadata)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let file = entry.file_name().into_string().unwrap_or_default();
        if let Some(name) = file.strip_suffix(".img") {
            // Removed or renamed in the meantime.
            let Ok(kind) = entry.metadata() else { continue };
            found.push((name.to_owned(), kind));
        }
    }
    Ok(found)
}

/// A disk or snapshot that has an image below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageUse {
    /// The name or the digest of the image.
    pub image: String,
    /// The lease of the disk, or the snapshot.
    pub user: String,
}

/// The images below the disks and snapshots of all providers in a home.
pub(crate) fn images_below(home: &Path) -> io::Result<Vec<ImageUse>> {
    let mut uses = Vec::new();
    for (dir, kind) in [
        ("disks", ""),
        ("snapshots", "snapshot "),
        ("container-disks", ""),
        ("container-snapshots", "snapshot "),
    ] {
        let entries = match fs::read_dir(home.join(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(image) = image_below(&path)?
            {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                uses.push(ImageUse { image, user: format!("{kind}{name}") });
            }
        }
    }
    uses.sort_by(|one, other| one.user.cmp(&other.user));
    Ok(uses)
}

/// Records the image below a disk.
fn note_image(disk: &Path, image: &str) -> io::Result<()> {
    let backing = DiskBacking { image: Some(image.to_owned()) };
    // Not synced, like the disk itself.
    replace_volatile(&disk.with_extension("json"), &serde_json::to_vec(&backing)?)
}

/// The image below a disk.
pub(crate) fn image_below(disk: &Path) -> io::Result<Option<String>> {
    match fs::read(disk.with_extension("json")) {
        Ok(text) => Ok(serde_json::from_slice::<DiskBacking>(&text)?.image),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(disk: &Path) -> io::Result<()> {
    files::remove(disk)?;
    // Left by an interrupted copy.
    files::remove(&disk.with_extension(UNFINISHED))?;
    files::remove(&disk.with_extension("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_removed_with_its_accompanying_files() {
        let dir = std::env::temp_dir().join(format!("stead-disks-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["a.img", "a.new", "a.json", "b.new"] {
            fs::write(dir.join(name), "").unwrap();
        }
        remove(&dir.join("a.img")).unwrap();
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["b.new"]);
        fs::remove_dir_all(dir).unwrap();
    }
}
