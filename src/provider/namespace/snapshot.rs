//! Copies of a lease's files: for another lease, or to be kept under a name.
//!
//! ```text
//! HOME/snapshots/<name>.img     a disk, as it was
//! HOME/snapshots/<name>.json    the image it lies over, if it does; as beside a lease's disk
//! ```
//! What a copy needs to be whole is that nothing is written meanwhile: the sandbox holds still, and
//! what it wrote is on its disk. Where the file system can, a copy shares its blocks with the first.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::host::Host;
use super::make::{is_image_name, make_dir};
use super::pace::Pace;
use super::spec::SandboxSpec;
use super::{Namespace, blocking, disk};
use crate::model::{Instance, LeaseId, Timestamp};
use crate::provider::{CopyTo, Observed, ProviderError, Snapshot};

/// What a disk lies over.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Over {
    image: Option<String>,
}

/// Writes down beside a disk which image it lies over.
pub(super) fn note_image(disk: &Path, image: &str) -> io::Result<()> {
    let over = Over { image: Some(image.to_owned()) };
    fs::write(disk.with_extension("json"), serde_json::to_vec(&over)?)
}

/// Removes a disk, and what is noted beside it.
pub(super) fn remove(disk: &Path) -> io::Result<()> {
    disk::remove(disk)?;
    disk::remove(&disk.with_extension("json"))
}

fn image_beneath(disk: &Path) -> io::Result<Option<String>> {
    match fs::read(disk.with_extension("json")) {
        Ok(text) => Ok(serde_json::from_slice::<Over>(&text)?.image),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Namespace {
    fn snapshot_dir(&self) -> PathBuf {
        self.0.options.home.join("snapshots")
    }

    /// The disk of a snapshot.
    pub(super) fn snapshot(&self, name: &str) -> Result<PathBuf, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "find a snapshot", reason };
        if !is_image_name(name) {
            return Err(refused(format!("snapshot: {name:?} is no name of one")));
        }
        let file = self.snapshot_dir().join(format!("{name}.img"));
        match file.exists() {
            true => Ok(file),
            false => Err(refused(format!("snapshot: there is none with the name {name}"))),
        }
    }

    /// The settings of a sandbox that begins with a snapshot: its disk and image are the snapshot's,
    /// or those of the disk that the lease has had since.
    pub(super) fn over_snapshot(
        &self,
        mut spec: SandboxSpec,
        lease: Option<&LeaseId>,
    ) -> Result<SandboxSpec, ProviderError> {
        let Some(name) = &spec.snapshot else { return Ok(spec) };
        let failed = |source: io::Error| ProviderError::failed("read a snapshot", source);
        let own = lease.map(|lease| disk::of_lease(&self.0.options.home, lease.as_str()));
        let disk = match own.filter(|own| own.exists()) {
            Some(own) => own,
            None => self.snapshot(name)?,
        };
        spec.disk = fs::metadata(&disk).map_err(failed)?.len();
        spec.image = image_beneath(&disk).map_err(failed)?;
        Ok(spec)
    }

    pub(super) async fn copy_files(
        &self,
        lease: &LeaseId,
        instance: Option<&Instance>,
        to: &CopyTo,
    ) -> Result<(), ProviderError> {
        let home = &self.0.options.home;
        let source = disk::of_lease(home, lease.as_str());
        if !source.exists() {
            let what = "copy the files of a lease that was never used";
            return Err(ProviderError::Unsupported { provider: "namespace".into(), what });
        }
        let target = match to {
            CopyTo::Lease(lease) => disk::of_lease(home, lease.as_str()),
            CopyTo::Snapshot(name) => {
                if !is_image_name(name) {
                    let reason = format!("{name:?} is no name of a snapshot");
                    return Err(ProviderError::Refused { doing: "make a snapshot", reason });
                }
                self.snapshot_dir().join(format!("{name}.img"))
            }
        };
        let (mut root, mut pace, mut held) = (None, None, None);
        if let Some(instance) = instance {
            let id = &instance.instance_id;
            let observed = self.look(id).await?;
            if observed != Observed::Gone {
                let failed = |source| ProviderError::failed("reach a sandbox", source);
                let host = Host::connect(&self.dir(id)).await.map_err(failed)?;
                let pid = host.map(|host| host.pid);
                root = pid.and_then(|pid| fs::File::open(format!("/proc/{pid}/root")).ok());
                pace = Pace::of(&self.dir(id)).map(|pace| self.cgroups(id).map(|all| (pace, all)));
            }
            if observed == Observed::Running {
                self.hold(id).await?;
                held = Some(id);
            }
        }
        let pace = pace.transpose()?;
        let copied = blocking("copy a sandbox's files", move || {
            if let Some(root) = root {
                // It holds still meanwhile: this is no time to be slow.
                pace.iter().try_for_each(|(pace, cgroups)| pace.lift(cgroups))?;
                let synced = rustix::fs::syncfs(root);
                pace.iter().try_for_each(|(pace, cgroups)| pace.again(cgroups))?;
                synced?;
            }
            if let Some(dir) = target.parent() {
                make_dir(dir)?;
            }
            match image_beneath(&source)? {
                Some(image) => note_image(&target, &image)?,
                None => disk::remove(&target.with_extension("json"))?,
            }
            disk::copy(&source, &target)
        })
        .await;
        if let Some(id) = held {
            self.go_on(id).await?;
        }
        copied
    }

    pub(super) async fn all_snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        let dir = self.snapshot_dir();
        blocking("look for snapshots", move || {
            let entries = match fs::read_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
                entries => entries?,
            };
            let mut all = Vec::new();
            for entry in entries.flatten() {
                let file = entry.file_name().into_string().unwrap_or_default();
                let Some(name) = file.strip_suffix(".img") else { continue };
                let kind = entry.metadata()?;
                let at = kind.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
                let bytes = kind.blocks() * 512;
                all.push(Snapshot { name: name.to_owned(), bytes, at: at.unwrap_or_default() });
            }
            all.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(all)
        })
        .await
    }

    pub(super) async fn forget_snapshot(&self, name: &str) -> Result<bool, ProviderError> {
        let Ok(file) = self.snapshot(name) else { return Ok(false) };
        blocking("remove a snapshot", move || {
            remove(&file)?;
            Ok(true)
        })
        .await
    }
}
