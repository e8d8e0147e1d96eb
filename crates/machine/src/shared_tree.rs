//! Gives directories that sandboxes share with the machine to users that no account of the machine has.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use base::shared_users::SharedUsers;

/// Directories below a shared one may be nested this deeply.
const MAX_DEPTH: usize = 4096;

/// The users of a directory, if it has been given to sandboxes.
pub(crate) fn users_of(directory: &Path) -> io::Result<Option<SharedUsers>> {
    Ok(SharedUsers::of(fs::metadata(directory)?.uid()))
}

/// Gives directories to sandboxes, each unless that is done. Those that are mounted together get the same users,
/// so that one mapping serves them all. Blocking.
pub(crate) fn share_all<'a>(directories: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
    let mut common = None;
    for directory in directories {
        let users = match (users_of(directory)?, common) {
            (Some(users), _) => users,
            (None, Some(users)) => share(directory, users)?,
            (None, None) => {
                let name = fs::canonicalize(directory)?;
                share(directory, SharedUsers::for_name(name.as_os_str().as_bytes()))?
            }
        };
        common.get_or_insert(users);
    }
    Ok(())
}

/// Gives a directory and everything below it to users. Changing an owner also removes set-id bits. The directory
/// itself comes last, so an interrupted call is completed by the next.
fn share(directory: &Path, users: SharedUsers) -> io::Result<SharedUsers> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, flags, Mode::empty())?;
    // Programs may be renaming and removing files here, so every step is relative to an open directory.
    let mut open = vec![Dir::new(rustix::io::dup(&root)?)?];
    while let Some(dir) = open.last_mut() {
        let Some(entry) = dir.read() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let at = dir.fd()?;
        let kind = match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            kind => kind?,
        };
        if let Some((user, group)) = change(users, &kind) {
            match rustix::fs::chownat(at, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
            {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if FileType::from_raw_mode(kind.st_mode) == FileType::Directory {
            match rustix::fs::openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(_) if open.len() >= MAX_DEPTH => {
                    return Err(io::Error::other("its directories are nested too deeply"));
                }
                Ok(below) => open.push(Dir::new(below)?),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    if let Some((user, group)) = change(users, &rustix::fs::fstat(&root)?) {
        rustix::fs::fchown(&root, Some(user), Some(group))?;
    }
    Ok(users)
}

/// The owner that a file gets, if it has another.
fn change(users: SharedUsers, file: &Stat) -> Option<(Uid, Gid)> {
    let (user, group) = (users.adopt(file.st_uid), users.adopt(file.st_gid));
    ((user, group) != (file.st_uid, file.st_gid))
        .then(|| (Uid::from_raw(user), Gid::from_raw(group)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_shared_directory_has_no_user_of_the_machine() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can change owners");
            return;
        }
        let dir = std::env::temp_dir().join(format!("stead-shared-{}", uuid::Uuid::now_v7()));
        let outside = dir.with_extension("outside");
        fs::write(&outside, "").unwrap();
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/program"), "").unwrap();
        symlink(&outside, dir.join("a/link")).unwrap();
        chown(dir.join("a/b"), Some(1000), Some(100)).unwrap();
        fs::set_permissions(dir.join("a/b/program"), fs::Permissions::from_mode(0o4755)).unwrap();
        let other = dir.with_extension("other");
        fs::create_dir(&other).unwrap();
        share_all([dir.as_path(), &other]).unwrap();
        let users = users_of(&dir).unwrap().unwrap();
        assert_eq!(users_of(&other).unwrap(), Some(users));
        let owner = |name: &str| {
            let kind = fs::symlink_metadata(dir.join(name)).unwrap();
            (kind.uid() - users.first(), kind.gid() - users.first())
        };
        assert_eq!(owner("a"), (0, 0));
        assert_eq!(owner("a/b"), (1000, 100));
        assert_eq!(owner("a/link"), (0, 0));
        let program = fs::metadata(dir.join("a/b/program")).unwrap();
        assert_eq!((owner("a/b/program"), program.mode() & 0o7777), ((0, 0), 0o755));
        assert_eq!(fs::metadata(&outside).unwrap().uid(), 0, "no link is followed");
        share_all([dir.as_path()]).unwrap();
        assert_eq!(users_of(&dir).unwrap(), Some(users));
        fs::remove_dir_all(dir).unwrap();
        fs::remove_dir_all(other).unwrap();
        fs::remove_file(outside).unwrap();
    }
}
