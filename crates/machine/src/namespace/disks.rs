//! The disks of one kind of sandboxes: one a lease, and copies of them that are kept under a name.
//!
//! ```text
//! HOME/<disks>/<lease>.img         a lease's own; outlives its instances
//! HOME/<snapshots>/<name>.img      a disk, as it was
//! HOME/…/<the same>.json           the image it lies over, if it does
//! ```
//! What a copy needs to be whole is that nothing is written meanwhile: the sandbox holds still, and
//! what it wrote is on its disk. Where the file system can, a copy shares its blocks with the first.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cgroup::Cgroups;
use super::disk::{self, Base};
use super::make::{is_image_name, make_dir};
use super::pace::Pace;
use super::spec::SandboxSpec;
use super::{blocking, pool, sys};
use model::{Instance, LeaseId, Timestamp};
use provider::{CopyTo, Observed, Provider, ProviderError, Snapshot};

/// What a disk lies over.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Over {
    image: Option<String>,
}

/// The disks of the sandboxes of a provider. What lies on another's means nothing to it.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    provider: &'static str,
    home: PathBuf,
    leases: PathBuf,
    snapshots: PathBuf,
}

impl Disks {
    /// Those of a home, in directories of these names.
    pub(crate) fn new(provider: &'static str, home: &Path, leases: &str, snapshots: &str) -> Self {
        let (leases, snapshots) = (home.join(leases), home.join(snapshots));
        Self { provider, home: home.to_owned(), leases, snapshots }
    }

    /// The file of a lease's disk, or of one that waits for a lease.
    pub(crate) fn of(&self, name: &str) -> PathBuf {
        self.leases.join(format!("{name}.img"))
    }

    /// Makes a disk be there for a sandbox: one that is stays as it is.
    pub(crate) async fn ready(
        &self,
        disk: &Path,
        base: Base,
        spec: &SandboxSpec,
    ) -> Result<(), ProviderError> {
        let (target, image) = (disk.to_owned(), spec.image.clone());
        let from = match &spec.snapshot {
            _ if disk.exists() => None,
            Some(name) => Some(self.snapshot(name)?),
            None => Some(self.template(base, spec.disk).await?),
        };
        blocking("make a disk", move || {
            if let Some(from) = from {
                make_dir(target.parent().unwrap_or(Path::new("/")))?;
                disk::copy(&from, &target)?;
            }
            image.map_or(Ok(()), |image| note_image(&target, &image))
        })
        .await
    }

    /// The disk that fresh ones are copied from.
    async fn template(&self, base: Base, bytes: u64) -> Result<PathBuf, ProviderError> {
        // All kinds of sandboxes have the same templates.
        static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let template = disk::template(&self.home, base, bytes);
        if !template.exists() {
            let _alone = ONE_AT_A_TIME.lock().await;
            if !template.exists() {
                let image = template.clone();
                blocking("make the disk that others are copied from", move || {
                    make_dir(image.parent().unwrap_or(Path::new("/")))?;
                    disk::make_template(base, bytes, &image)
                })
                .await?;
            }
        }
        Ok(template)
    }

    /// Gives the disk of one that waited to a lease. Blocking, and short.
    pub(super) fn give(&self, waited: &str, lease: &LeaseId) -> io::Result<()> {
        let (from, to) = (self.of(waited), self.of(lease.as_str()));
        if let Some(image) = image_beneath(&from)? {
            note_image(&to, &image)?;
            disk::remove(&from.with_extension("json"))?;
        }
        fs::rename(from, to)
    }

    /// Removes the disk of this name, and what is noted beside it. Blocking.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        remove(&self.of(name))
    }

    /// Removes a lease's disk.
    pub(crate) async fn forget(&self, lease: &LeaseId) -> Result<(), ProviderError> {
        let disk = self.of(lease.as_str());
        blocking("remove a sandbox's disk", move || remove(&disk)).await
    }

    /// Makes a lease's disk this large; nothing may run on it. One that is not made yet will be.
    pub(crate) async fn grow(&self, lease: &LeaseId, bytes: u64) -> Result<(), ProviderError> {
        let disk = self.of(lease.as_str());
        let Ok(kind) = fs::metadata(&disk) else { return Ok(()) };
        if kind.len() > bytes {
            let reason = "disk: what is on it may not fit; a disk only grows".to_owned();
            return Err(ProviderError::Refused { doing: "make a disk smaller", reason });
        }
        blocking("make a disk larger", move || disk::grow(&disk, bytes)).await
    }

    /// The leases that have a disk.
    pub(crate) async fn kept(&self) -> Result<Vec<LeaseId>, ProviderError> {
        let dir = self.leases.clone();
        blocking("look for disks", move || {
            let names = files(&dir)?.into_iter().map(|(name, _)| name);
            Ok(names.filter_map(|name| name.parse().ok()).collect())
        })
        .await
    }

    /// Removes what a server that was killed left half written, here and of templates and programs, and
    /// the disks of those that waited for it. Blocking.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let shared = ["templates", "programs"].map(|name| self.home.join(name));
        for dir in [&self.leases, &self.snapshots].into_iter().chain(&shared) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".new") || name.starts_with('.') || name.starts_with(pool::MARK) {
                    fs::remove_file(entry.path())?;
                    continue;
                }
                if name.ends_with(".root") {
                    disk::remove_all(&entry.path())?;
                }
                // Noted beside a disk that was not made any more.
                if name.ends_with(".json") && !entry.path().with_extension("img").exists() {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// The disk of a snapshot.
    fn snapshot(&self, name: &str) -> Result<PathBuf, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "find a snapshot", reason };
        if !is_image_name(name) {
            return Err(refused(format!("snapshot: {name:?} is no name of one")));
        }
        let file = self.snapshots.join(format!("{name}.img"));
        match file.exists() {
            true => Ok(file),
            false => Err(refused(format!("snapshot: there is none with the name {name}"))),
        }
    }

    /// The settings of a sandbox that begins with a snapshot: its disk and image are the snapshot's,
    /// or those of the disk that the lease has had since.
    pub(crate) fn over_snapshot(
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
        spec.image = image_beneath(&disk).map_err(failed)?;
        Ok(spec)
    }

    /// Copies the disk of a lease, whose instance holds still meanwhile and may write to it only at this
    /// pace.
    pub(crate) async fn copy(
        &self,
        provider: &dyn Provider,
        (lease, instance): (&LeaseId, Option<&Instance>),
        pace: Option<(Pace, Cgroups)>,
        to: &CopyTo,
    ) -> Result<(), ProviderError> {
        let source = self.of(lease.as_str());
        if !source.exists() {
            let what = "copy the files of a lease that was never used";
            return Err(ProviderError::Unsupported { provider: self.provider.into(), what });
        }
        let target = match to {
            CopyTo::Lease(lease) => self.of(lease.as_str()),
            CopyTo::Snapshot(name) => {
                if !is_image_name(name) {
                    let reason = format!("{name:?} is no name of a snapshot");
                    return Err(ProviderError::Refused { doing: "make a snapshot", reason });
                }
                self.snapshots.join(format!("{name}.img"))
            }
        };
        let mut root = None;
        let mut held = None;
        if let Some(instance) = instance {
            let observed = provider.inspect(instance).await?;
            if observed != Observed::Gone {
                root = match provider.root(instance).await {
                    Ok(path) => path.and_then(|path| fs::File::open(path).ok()),
                    Err(ProviderError::Gone { .. }) => None,
                    Err(error) => return Err(error),
                };
            }
            if observed == Observed::Running {
                provider.pause(instance).await?;
                held = Some(instance);
            }
        }
        let copied = blocking("copy a sandbox's files", move || {
            let _unused = match root {
                Some(root) => {
                    // It holds still meanwhile: this is no time to be slow.
                    pace.iter().try_for_each(|(pace, cgroups)| pace.lift(cgroups))?;
                    let synced = rustix::fs::syncfs(root);
                    pace.iter().try_for_each(|(pace, cgroups)| pace.again(cgroups))?;
                    synced?;
                    None
                }
                // What ran on it a moment ago may still be on its way to it.
                None => Some(sys::unused_image(&source)?),
            };
            if let Some(dir) = target.parent() {
                make_dir(dir)?;
            }
            let image = image_beneath(&source)?;
            if image != image_beneath(&target)? {
                // At no moment does a disk lie over another's image.
                remove(&target)?;
            }
            if let Some(image) = image {
                note_image(&target, &image)?;
            }
            disk::copy(&source, &target)
        })
        .await;
        if let Some(instance) = held {
            provider.resume(instance).await?;
        }
        copied
    }

    /// The snapshots there are.
    pub(crate) async fn snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        let dir = self.snapshots.clone();
        blocking("look for snapshots", move || {
            let mut all: Vec<Snapshot> = files(&dir)?
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

    /// Removes a snapshot; answers whether it was there.
    pub(crate) async fn remove_snapshot(&self, name: &str) -> Result<bool, ProviderError> {
        let Ok(file) = self.snapshot(name) else { return Ok(false) };
        blocking("remove a snapshot", move || {
            remove(&file)?;
            Ok(true)
        })
        .await
    }
}

/// The disks in a directory, by name.
fn files(dir: &Path) -> io::Result<Vec<(String, fs::Metadata)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let file = entry.file_name().into_string().unwrap_or_default();
        if let Some(name) = file.strip_suffix(".img") {
            // One that is removed or renamed meanwhile is not there.
            let Ok(kind) = entry.metadata() else { continue };
            found.push((name.to_owned(), kind));
        }
    }
    Ok(found)
}

/// Writes down beside a disk which image it lies over.
fn note_image(disk: &Path, image: &str) -> io::Result<()> {
    let over = Over { image: Some(image.to_owned()) };
    fs::write(disk.with_extension("json"), serde_json::to_vec(&over)?)
}

fn image_beneath(disk: &Path) -> io::Result<Option<String>> {
    match fs::read(disk.with_extension("json")) {
        Ok(text) => Ok(serde_json::from_slice::<Over>(&text)?.image),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(disk: &Path) -> io::Result<()> {
    disk::remove(disk)?;
    // What a copy that was cut short has left of it.
    disk::remove(&disk.with_extension(disk::BESIDE))?;
    disk::remove(&disk.with_extension("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_goes_with_what_was_left_beside_it() {
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
