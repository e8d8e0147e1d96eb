//! Volumes: directories of the home that sandboxes share. They outlive the sandboxes that mount them.
//!
//! ```text
//! HOME/volumes/<id>/volume.json   its name, and when it was created
//! HOME/volumes/<id>/data/         its content, with the user ids of sandboxes
//! HOME/volumes/<id>/disk.img      with a size: a file system of that size, mounted at disk/ on first use; then
//!                                 the content is in disk/data/
//! ```
//! The directories are the only record of the volumes. A volume is created and removed by one rename. A
//! directory whose name starts with a dot was left unfinished by a killed server, and the next start
//! removes it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use serde::{Deserialize, Serialize};

use crate::files::make_dir;
use crate::mount::{self, MountState};
use crate::{shared_tree, workspace};
use base::shared_users::inside;
use model::Timestamp;
use provider::ProviderError;

const MAX_VOLUMES: usize = 10_000;
const MAX_NAME_BYTES: usize = 128;
/// Below this, a file system has no room for files.
const MIN_BYTES: u64 = 16 << 20;
const MAX_BYTES: u64 = 16 << 40;
const FILE: &str = "volume.json";
const DATA: &str = "data";
/// System directories, over which no volume is mounted.
const SYSTEM_DIRECTORIES: [&str; 8] =
    ["/proc", "/sys", "/dev", "/run", "/.stead", "/usr", "/etc", "/bin"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// A UUID.
    pub id: String,
    /// Unique among all volumes.
    pub name: String,
    pub created_at: Timestamp,
    /// Its size, which the kernel enforces; `None` if it has no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Why a volume cannot be listed, created or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("a volume name must have 1 to {MAX_NAME_BYTES} letters, digits, '.', '_' or '-'")]
    BadName,
    #[error("volume with name {name} already exists")]
    Exists { name: String },
    #[error("a volume must have a size of {} MiB to {} TiB", MIN_BYTES >> 20, MAX_BYTES >> 40)]
    BadSize,
    #[error("a volume with a size needs a server that runs as root")]
    NeedsRoot,
    #[error("there are {MAX_VOLUMES} volumes; delete one first")]
    TooMany,
    #[error("cannot {doing} a volume")]
    Disk {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// A volume in the settings of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// The volume's id.
    pub id: String,
    /// The mount point inside.
    pub path: String,
    /// The directory of the volume to mount; empty for the whole volume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpath: String,
}

impl VolumeMount {
    /// Validates the mount.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn check(&self) -> Result<(), String> {
        let plain = |path: &str| path.split('/').all(|name| !matches!(name, "" | "." | ".."));
        let VolumeMount { id, path, subpath } = self;
        if uuid::Uuid::try_parse(id).is_err() {
            return Err(format!("{id:?} is not the id of a volume"));
        }
        let below = path.strip_prefix('/').filter(|rest| plain(rest) && !path.contains('\0'));
        if below.is_none() {
            return Err(format!(
                "{path:?} is not an absolute path at which a volume can be mounted"
            ));
        }
        let within = |system: &&str| {
            path.strip_prefix(*system).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if SYSTEM_DIRECTORIES.iter().any(within) {
            return Err(format!("{path:?} belongs to the system"));
        }
        if !subpath.is_empty() && (!plain(subpath) || subpath.contains('\0')) {
            return Err(format!("{subpath:?} is not a path in a volume"));
        }
        Ok(())
    }
}

/// The volumes of a home.
#[derive(Debug)]
pub struct Volumes {
    dir: PathBuf,
    /// Locked while a volume is created, so that names stay unique.
    creating: Mutex<()>,
}

impl Volumes {
    /// Opens the volumes of a home. Removes directories that a killed server left unfinished.
    #[must_use]
    pub fn new(home: &Path) -> Volumes {
        let dir = home.join("volumes");
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                let _ = workspace::detach_disk(&entry.path());
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Volumes { dir, creating: Mutex::default() }
    }

    /// All volumes, ordered by name. Blocking.
    pub fn all(&self) -> Result<Vec<Volume>, VolumeError> {
        let failed = |source| VolumeError::Disk { doing: "list", source };
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries.map_err(failed)?,
        };
        let mut all = Vec::new();
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match fs::read(entry.path().join(FILE)) {
                Ok(text) => all.push(serde_json::from_slice(&text).map_err(|e| failed(e.into()))?),
                // It is being removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        all.sort_by(|one: &Volume, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// The volume with this id or name. Blocking.
    pub fn find(&self, name: &str) -> Result<Option<Volume>, VolumeError> {
        let all = self.all()?;
        let found = all.iter().find(|volume| volume.id == name);
        Ok(found.or_else(|| all.iter().find(|volume| volume.name == name)).cloned())
    }

    /// Creates a volume, with a size if there is one. It is on stable storage when this returns. Blocking.
    pub fn create(&self, name: &str, bytes: Option<u64>) -> Result<Volume, VolumeError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(letter) {
            return Err(VolumeError::BadName);
        }
        if bytes.is_some_and(|bytes| !(MIN_BYTES..=MAX_BYTES).contains(&bytes)) {
            return Err(VolumeError::BadSize);
        }
        if bytes.is_some() && !rustix::process::geteuid().is_root() {
            return Err(VolumeError::NeedsRoot);
        }
        let _alone = self.creating.lock();
        let all = self.all()?;
        if all.iter().any(|volume| volume.name == name) {
            return Err(VolumeError::Exists { name: name.to_owned() });
        }
        if all.len() >= MAX_VOLUMES {
            return Err(VolumeError::TooMany);
        }
        let volume = Volume {
            id: uuid::Uuid::now_v7().to_string(),
            name: name.to_owned(),
            created_at: Timestamp::now(),
            bytes,
        };
        let written = self.write(&volume);
        written.map_err(|source| VolumeError::Disk { doing: "create", source })?;
        Ok(volume)
    }

    fn write(&self, volume: &Volume) -> io::Result<()> {
        let unfinished = self.dir.join(format!(".{}", volume.id));
        make_dir(&unfinished)?;
        let data = match volume.bytes {
            Some(bytes) => workspace::create_disk(&unfinished, bytes)?.join(DATA),
            None => unfinished.join(DATA),
        };
        make_dir(&data)?;
        // Any user in a sandbox may use it. Users of the machine cannot access the home.
        fs::set_permissions(&data, fs::Permissions::from_mode(0o777))?;
        if volume.bytes.is_some() {
            rustix::fs::syncfs(File::open(&data)?)?;
            workspace::detach_disk(&unfinished)?;
        }
        let mut file = File::create(unfinished.join(FILE))?;
        file.write_all(&serde_json::to_vec(volume)?)?;
        file.sync_all()?;
        File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, self.dir.join(&volume.id))?;
        File::open(&self.dir)?.sync_all()
    }

    /// Removes a volume with its content. Returns whether it existed. No sandbox may have it mounted.
    /// Blocking.
    pub fn remove(&self, id: &str) -> Result<bool, VolumeError> {
        let failed = |source| VolumeError::Disk { doing: "remove", source };
        if uuid::Uuid::try_parse(id).is_err() {
            return Ok(false);
        }
        let removed = self.dir.join(format!(".{id}"));
        match workspace::detach_disk(&self.dir.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        match fs::rename(self.dir.join(id), &removed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed.map_err(failed)?,
        }
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        fs::remove_dir_all(removed).map_err(failed)?;
        Ok(true)
    }

    /// Returns the metadata of a path in a volume, and the target of a link. The last link is not followed,
    /// and
    /// no link leads outside. Blocking.
    pub fn metadata(&self, id: &str, path: &str) -> io::Result<(Stat, Option<String>)> {
        let file = self.open(id, path)?;
        let mut stat = rustix::fs::fstat(&file)?;
        (stat.st_uid, stat.st_gid) = (inside(stat.st_uid), inside(stat.st_gid));
        let target = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Some(rustix::fs::readlinkat(&file, "", vec![])?),
            _ => None,
        };
        Ok((stat, target.map(|target| target.to_string_lossy().into_owned())))
    }

    /// Changes the owner and the mode of a path in a volume. Blocking.
    pub fn set_metadata(
        &self,
        id: &str,
        path: &str,
        (user, group): (Option<u32>, Option<u32>),
        mode: Option<u32>,
    ) -> io::Result<()> {
        let file = self.open(id, path)?;
        if user.is_some() || group.is_some() {
            let shared = shared_tree::users_of(&self.data(id)?)?;
            let outside = |id: u32| shared.map_or(id, |shared| shared.adopt(id));
            let (user, group) = (user.map(outside), group.map(outside));
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&file, "", user, group, flags)?;
        }
        if let Some(mode) = mode {
            // A link has no mode, and is not followed.
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
            if kind == FileType::Symlink {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::chmod(name, Mode::from_raw_mode(mode & 0o7777))?;
        }
        Ok(())
    }

    fn open(&self, id: &str, path: &str) -> io::Result<OwnedFd> {
        let root = rustix::fs::open(self.data(id)?, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&root, path, flags, Mode::empty(), within)?)
    }

    /// The directory with the content of a volume, whose disk is mounted if it has one. Blocking.
    ///
    /// # Errors
    /// If the disk cannot be mounted.
    pub fn data(&self, id: &str) -> io::Result<PathBuf> {
        data(&self.dir, id)
    }
}

/// The directory with the content of a mounted volume, and whether the volume has a size. Blocking.
pub(crate) fn data_of(home: &Path, volume: &VolumeMount) -> io::Result<(PathBuf, bool)> {
    let volumes = home.join("volumes");
    let content = data(&volumes, &volume.id)?;
    let has_size = content != volumes.join(&volume.id).join(DATA);
    Ok((content, has_size))
}

fn data(volumes: &Path, id: &str) -> io::Result<PathBuf> {
    let volume = volumes.join(id);
    Ok(match workspace::mount_disk(&volume)? {
        Some(disk) => disk.join(DATA),
        None => volume.join(DATA),
    })
}

/// Opens the directory of a volume that is to be mounted. Sandboxes wrote its content, so no link is
/// followed.
fn open(home: &Path, volume: &VolumeMount) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(data(&home.join("volumes"), &volume.id)?, flags, Mode::empty())?;
    for name in volume.subpath.split('/').filter(|name| !name.is_empty()) {
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => {
                // The users of the volume, which its owner shows.
                let above = rustix::fs::fstat(&at)?;
                let (user, group) = (Uid::from_raw(above.st_uid), Gid::from_raw(above.st_gid));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&at, name, Some(user), Some(group), flags)?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        at = rustix::fs::openat2(at.as_fd(), name, flags, Mode::empty(), beneath)?;
    }
    Ok(at)
}

/// Mounts volumes in the sandbox of a process. Existing mounts stay.
pub(crate) async fn mount_all(
    home: &Path,
    executable: &Path,
    pid: i32,
    volumes: &[VolumeMount],
) -> Result<(), ProviderError> {
    let failed = |source| ProviderError::failed("mount a volume", source);
    // The mounts use the open descriptors, so the directories cannot be swapped meanwhile.
    let mut directories = Vec::new();
    let mut missing = Vec::new();
    for volume in volumes {
        let directory = open(home, volume).map_err(failed)?;
        let name = format!("/proc/{}/fd/{}", std::process::id(), directory.as_raw_fd());
        let (source, target) = (PathBuf::from(name), PathBuf::from(&volume.path));
        match mount::state(pid, &source, &target).map_err(failed)? {
            MountState::Same => {}
            MountState::None => missing.push((source, target)),
            MountState::Other => {
                let reason = format!("another directory is mounted at {}", volume.path);
                return Err(ProviderError::Refused { doing: "mount a volume", reason });
            }
        }
        directories.push(directory);
    }
    if !missing.is_empty() {
        mount::show(executable, pid, &missing).await.map_err(failed)?;
    }
    drop(directories);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> PathBuf {
        let home = std::env::temp_dir().join(format!("stead-volumes-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&home).unwrap();
        home
    }

    #[test]
    fn a_volume_is_found_by_the_next_server_and_an_unfinished_one_is_removed() {
        let home = home();
        let volumes = Volumes::new(&home);
        assert_eq!(volumes.all().unwrap(), []);
        let created = volumes.create("cache", None).unwrap();
        fs::write(volumes.data(&created.id).unwrap().join("file"), "kept").unwrap();
        assert!(matches!(volumes.create("cache", None), Err(VolumeError::Exists { .. })));
        for name in ["", "a/b", "..%", &"a".repeat(129)] {
            assert!(matches!(volumes.create(name, None), Err(VolumeError::BadName)), "{name}");
        }
        // Servers that were killed while they created and removed a volume.
        for name in [".half", ".removed"] {
            fs::create_dir_all(home.join("volumes").join(name).join(DATA)).unwrap();
        }
        let next = Volumes::new(&home);
        assert_eq!(fs::read_dir(home.join("volumes")).unwrap().count(), 1);
        assert_eq!(next.find("cache").unwrap(), Some(created.clone()));
        assert_eq!(next.find(&created.id).unwrap(), Some(created.clone()));
        assert_eq!(
            fs::read_to_string(next.data(&created.id).unwrap().join("file")).unwrap(),
            "kept"
        );
        assert!(next.remove(&created.id).unwrap());
        assert!(!next.remove(&created.id).unwrap());
        assert!(!next.remove("../..").unwrap());
        assert_eq!(next.find("cache").unwrap(), None);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn the_kernel_bounds_a_volume_with_a_size_until_it_is_removed() {
        let home = home();
        let volumes = Volumes::new(&home);
        for bytes in [0, 1 << 20, u64::MAX] {
            let refused = volumes.create("v", Some(bytes));
            assert!(matches!(refused, Err(VolumeError::BadSize)), "{bytes}: {refused:?}");
        }
        let created = match volumes.create("v", Some(32 << 20)) {
            Ok(created) => created,
            Err(error) => {
                eprintln!("skipped: no volumes with a size on this machine: {error:?}");
                return fs::remove_dir_all(home).unwrap();
            }
        };
        let mount = |subpath: &str| {
            let (path, subpath) = ("/a".to_owned(), subpath.to_owned());
            VolumeMount { id: created.id.clone(), path, subpath }
        };
        assert!(open(&home, &mount("below")).is_ok());
        let data = volumes.data(&created.id).unwrap();
        let full = fs::write(data.join("big"), vec![7; 40 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        fs::write(data.join("big"), "small").unwrap();
        // The next server finds it mounted, and one after a restart of the machine mounts it again.
        assert_eq!(Volumes::new(&home).find("v").unwrap(), Some(created.clone()));
        workspace::detach_disk(&home.join("volumes").join(&created.id)).unwrap();
        let data = Volumes::new(&home).data(&created.id).unwrap();
        assert_eq!(fs::read_to_string(data.join("big")).unwrap(), "small");
        // A server that was killed while it created one.
        let half = home.join("volumes/.half");
        fs::create_dir(&half).unwrap();
        workspace::create_disk(&half, 32 << 20).unwrap();
        let next = Volumes::new(&home);
        assert!(!half.exists());
        assert!(next.remove(&created.id).unwrap());
        assert_eq!(fs::read_dir(home.join("volumes")).unwrap().count(), 0);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_volume_is_not_mounted_over_the_system() {
        let id = uuid::Uuid::now_v7().to_string();
        let check = |path: &str, subpath: &str| {
            let (path, subpath) = (path.to_owned(), subpath.to_owned());
            VolumeMount { id: id.clone(), path, subpath }.check().is_ok()
        };
        for path in ["/mnt/a", "/home/daytona/volume", "/processes"] {
            assert!(check(path, "") && check(path, "a/b"), "{path}");
        }
        for path in ["", "/", "a", "/a/../b", "/a//b", "/proc", "/etc/x", "/.stead", "/a\0"] {
            assert!(!check(path, ""), "{path}");
        }
        for subpath in ["/a", "..", "a/../b", "a//b"] {
            assert!(!check("/mnt/a", subpath), "{subpath}");
        }
        assert!(
            VolumeMount { id: "..".into(), path: "/a".into(), subpath: String::new() }
                .check()
                .is_err()
        );
    }

    #[test]
    fn links_in_a_volume_never_lead_a_mount_outside() {
        let home = home();
        let volumes = Volumes::new(&home);
        let created = volumes.create("v", None).unwrap();
        std::os::unix::fs::symlink("/etc", volumes.data(&created.id).unwrap().join("link"))
            .unwrap();
        let of = |subpath: &str| {
            let volume =
                VolumeMount { id: created.id.clone(), path: "/a".into(), subpath: subpath.into() };
            open(&home, &volume)
        };
        assert!(of("").is_ok() && of("new/one").is_ok());
        assert!(volumes.data(&created.id).unwrap().join("new/one").is_dir());
        assert!(of("link").is_err() && of("link/ssl").is_err());
        fs::remove_dir_all(home).unwrap();
    }
}
