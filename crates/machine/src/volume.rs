//! Directories of the home that sandboxes share. They outlive whoever mounts them.
//!
//! ```text
//! HOME/volumes/<id>/volume.json   its name, and when it was made
//! HOME/volumes/<id>/data/         what is in it, with the numbers that its owners have inside
//! ```
//! The directories say which volumes there are. One appears whole, by a rename, and goes by one; what a
//! server that was killed left half done has a name that begins with a dot, and goes at the next start.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use serde::{Deserialize, Serialize};

use super::namespace::{make::make_dir, place, show};
use model::Timestamp;
use provider::ProviderError;

/// Volumes at most.
const MOST: usize = 10_000;
/// Bytes of a name.
const MOST_NAME: usize = 128;
const FILE: &str = "volume.json";
const DATA: &str = "data";
/// Places inside that nothing is mounted over.
const KEPT: [&str; 8] = ["/proc", "/sys", "/dev", "/run", "/.stead", "/usr", "/etc", "/bin"];

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its id, a UUID.
    pub id: String,
    /// What it is called; no other has the name.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Why there is no such volume, or none is made.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The name cannot be one.
    #[error("a volume's name has 1 to {MOST_NAME} letters, digits, '.', '_' or '-'")]
    BadName,
    /// Another has the name.
    #[error("volume with name {name} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// There are as many as may be.
    #[error("there are {MOST} volumes; delete one first")]
    TooMany,
    /// The disk did not do it.
    #[error("cannot {doing} a volume")]
    Disk {
        /// What was to be done.
        doing: &'static str,
        /// Why it was not.
        #[source]
        source: io::Error,
    },
}

/// A volume in the settings of a lease: which, and where it is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mounted {
    /// The volume's id.
    pub id: String,
    /// Where it is seen inside.
    pub path: String,
    /// The directory in it that is seen there, in place of all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpath: String,
}

impl Mounted {
    /// Says what is wrong with it.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), String> {
        let plain = |path: &str| path.split('/').all(|name| !matches!(name, "" | "." | ".."));
        let Mounted { id, path, subpath } = self;
        if uuid::Uuid::try_parse(id).is_err() {
            return Err(format!("{id:?} is no id of a volume"));
        }
        let below = path.strip_prefix('/').filter(|rest| plain(rest) && !path.contains('\0'));
        if below.is_none() {
            return Err(format!("{path:?} is no absolute path that a volume can be seen at"));
        }
        let within = |kept: &&str| {
            path.strip_prefix(*kept).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if KEPT.iter().any(within) {
            return Err(format!("{path:?} is a place of the system"));
        }
        if !subpath.is_empty() && (!plain(subpath) || subpath.contains('\0')) {
            return Err(format!("{subpath:?} is no path in a volume"));
        }
        Ok(())
    }
}

/// The volumes of a home.
#[derive(Debug)]
pub struct Volumes {
    dir: PathBuf,
    /// Held while one is made: names are theirs alone.
    making: Mutex<()>,
}

impl Volumes {
    /// Those of a home. Removes what a server that was killed left half done.
    #[must_use]
    pub fn new(home: &Path) -> Volumes {
        let dir = home.join("volumes");
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Volumes { dir, making: Mutex::default() }
    }

    /// Every volume, by name. Blocking.
    pub fn all(&self) -> Result<Vec<Volume>, VolumeError> {
        let failed = |source| VolumeError::Disk { doing: "look for", source };
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
                // It goes at this moment.
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

    /// Makes a volume; it is on the disk when this returns. Blocking.
    pub fn create(&self, name: &str) -> Result<Volume, VolumeError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=MOST_NAME).contains(&name.len()) || !name.bytes().all(letter) {
            return Err(VolumeError::BadName);
        }
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.all()?;
        if all.iter().any(|volume| volume.name == name) {
            return Err(VolumeError::Exists { name: name.to_owned() });
        }
        if all.len() >= MOST {
            return Err(VolumeError::TooMany);
        }
        let volume = Volume {
            id: uuid::Uuid::now_v7().to_string(),
            name: name.to_owned(),
            created_at: Timestamp::now(),
        };
        let written = self.write(&volume);
        written.map_err(|source| VolumeError::Disk { doing: "make", source })?;
        Ok(volume)
    }

    fn write(&self, volume: &Volume) -> io::Result<()> {
        let beside = self.dir.join(format!(".{}", volume.id));
        make_dir(&beside.join(DATA))?;
        // Whoever is in a sandbox may go in; nobody of the machine gets as far as here.
        fs::set_permissions(beside.join(DATA), fs::Permissions::from_mode(0o777))?;
        let mut file = File::create(beside.join(FILE))?;
        file.write_all(&serde_json::to_vec(volume)?)?;
        file.sync_all()?;
        File::open(&beside)?.sync_all()?;
        fs::rename(&beside, self.dir.join(&volume.id))?;
        File::open(&self.dir)?.sync_all()
    }

    /// Removes a volume and what is in it; whether it was there. Nobody may have it mounted. Blocking.
    pub fn remove(&self, id: &str) -> Result<bool, VolumeError> {
        let failed = |source| VolumeError::Disk { doing: "remove", source };
        if uuid::Uuid::try_parse(id).is_err() {
            return Ok(false);
        }
        let gone = self.dir.join(format!(".{id}"));
        match fs::rename(self.dir.join(id), &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed.map_err(failed)?,
        }
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        fs::remove_dir_all(gone).map_err(failed)?;
        Ok(true)
    }

    /// What is at a path of a volume, and where a link points. The last link is not followed, and none
    /// leads out. Blocking.
    pub fn look(&self, id: &str, path: &str) -> io::Result<(Stat, Option<String>)> {
        let held = self.at(id, path)?;
        let stat = rustix::fs::fstat(&held)?;
        let target = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Some(rustix::fs::readlinkat(&held, "", vec![])?),
            _ => None,
        };
        Ok((stat, target.map(|target| target.to_string_lossy().into_owned())))
    }

    /// Changes whose something in a volume is, and who may do what with it. Blocking.
    pub fn change(
        &self,
        id: &str,
        path: &str,
        (user, group): (Option<u32>, Option<u32>),
        mode: Option<u32>,
    ) -> io::Result<()> {
        let held = self.at(id, path)?;
        if user.is_some() || group.is_some() {
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&held, "", user, group, flags)?;
        }
        if let Some(mode) = mode {
            // Of a link there is no mode to change, and none is followed.
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode);
            if kind == FileType::Symlink {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let name = format!("/proc/self/fd/{}", held.as_raw_fd());
            rustix::fs::chmod(name, Mode::from_raw_mode(mode & 0o7777))?;
        }
        Ok(())
    }

    fn at(&self, id: &str, path: &str) -> io::Result<OwnedFd> {
        let root = rustix::fs::open(self.data(id), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&root, path, flags, Mode::empty(), within)?)
    }

    /// Where what is in a volume is.
    #[must_use]
    pub fn data(&self, id: &str) -> PathBuf {
        data(&self.dir, id)
    }
}

/// Where what a mount shows is.
pub(crate) fn data_in(home: &Path, mounted: &Mounted) -> PathBuf {
    data(&home.join("volumes"), &mounted.id)
}

fn data(volumes: &Path, id: &str) -> PathBuf {
    volumes.join(id).join(DATA)
}

/// Opens what is to be seen of a volume. What is in it was in the hands of sandboxes: no link is followed.
fn open(home: &Path, mounted: &Mounted) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(data(&home.join("volumes"), &mounted.id), flags, Mode::empty())?;
    for name in mounted.subpath.split('/').filter(|name| !name.is_empty()) {
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        at = rustix::fs::openat2(at.as_fd(), name, flags, Mode::empty(), beneath)?;
    }
    Ok(at)
}

/// Makes volumes be seen in the sandbox that a process is in. What is seen already stays.
pub(crate) async fn show_all(
    home: &Path,
    executable: &Path,
    pid: i32,
    volumes: &[Mounted],
) -> Result<(), ProviderError> {
    let failed = |source| ProviderError::failed("mount a volume", source);
    // Held until they are mounted, and named by that: nobody can put another in their place.
    let mut held = Vec::new();
    let mut missing = Vec::new();
    for mounted in volumes {
        let directory = open(home, mounted).map_err(failed)?;
        let name = format!("/proc/{}/fd/{}", std::process::id(), directory.as_raw_fd());
        let (source, target) = (PathBuf::from(name), PathBuf::from(&mounted.path));
        match place::seen(pid, &source, &target).map_err(failed)? {
            place::Seen::Already => {}
            place::Seen::Nothing => missing.push((source, target)),
            place::Seen::Another => {
                let reason = format!("something else is mounted at {}", mounted.path);
                return Err(ProviderError::Refused { doing: "mount a volume", reason });
            }
        }
        held.push(directory);
    }
    if !missing.is_empty() {
        show(executable, pid, &missing).await.map_err(failed)?;
    }
    drop(held);
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
    fn a_volume_is_found_by_the_next_server_and_half_of_one_is_not() {
        let home = home();
        let volumes = Volumes::new(&home);
        assert_eq!(volumes.all().unwrap(), []);
        let made = volumes.create("cache").unwrap();
        fs::write(volumes.data(&made.id).join("file"), "kept").unwrap();
        assert!(matches!(volumes.create("cache"), Err(VolumeError::Exists { .. })));
        for name in ["", "a/b", "..%", &"a".repeat(129)] {
            assert!(matches!(volumes.create(name), Err(VolumeError::BadName)), "{name}");
        }
        // A server that was killed while it made one, and one that removed one.
        for name in [".half", ".gone"] {
            fs::create_dir_all(home.join("volumes").join(name).join(DATA)).unwrap();
        }
        let next = Volumes::new(&home);
        assert_eq!(fs::read_dir(home.join("volumes")).unwrap().count(), 1);
        assert_eq!(next.find("cache").unwrap(), Some(made.clone()));
        assert_eq!(next.find(&made.id).unwrap(), Some(made.clone()));
        assert_eq!(fs::read_to_string(next.data(&made.id).join("file")).unwrap(), "kept");
        assert!(next.remove(&made.id).unwrap());
        assert!(!next.remove(&made.id).unwrap());
        assert!(!next.remove("../..").unwrap());
        assert_eq!(next.find("cache").unwrap(), None);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_place_of_the_system_is_no_place_for_a_volume() {
        let id = uuid::Uuid::now_v7().to_string();
        let check = |path: &str, subpath: &str| {
            let (path, subpath) = (path.to_owned(), subpath.to_owned());
            Mounted { id: id.clone(), path, subpath }.check().is_ok()
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
            Mounted { id: "..".into(), path: "/a".into(), subpath: String::new() }.check().is_err()
        );
    }

    #[test]
    fn what_is_seen_of_a_volume_is_in_it_whatever_links_it_holds() {
        let home = home();
        let volumes = Volumes::new(&home);
        let made = volumes.create("v").unwrap();
        std::os::unix::fs::symlink("/etc", volumes.data(&made.id).join("link")).unwrap();
        let of = |subpath: &str| {
            let mounted =
                Mounted { id: made.id.clone(), path: "/a".into(), subpath: subpath.into() };
            open(&home, &mounted)
        };
        assert!(of("").is_ok() && of("new/one").is_ok());
        assert!(volumes.data(&made.id).join("new/one").is_dir());
        assert!(of("link").is_err() && of("link/ssl").is_err());
        fs::remove_dir_all(home).unwrap();
    }
}
