//! File permissions of the database: only its owner can read it, independent of the umask.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

const OWNER_ONLY: u32 = 0o600;

/// Creates the database file with owner-only permissions, or restricts an existing one. SQLite gives the
/// write-ahead log and its shared memory the permissions of the database.
pub(crate) fn restrict(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::metadata(&name) {
            Ok(found) if found.permissions().mode() & 0o077 != 0 => {
                fs::set_permissions(&name, Permissions::from_mode(OWNER_ONLY))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_can_read_the_database() {
        let home = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(home.path().join(name)).unwrap().permissions().mode();
        let store = crate::Store::open(home.path()).unwrap();
        for name in ["stead.db", "stead.db-wal", "stead.db-shm"] {
            assert_eq!(mode(name) & 0o777, OWNER_ONLY, "{name}");
        }
        drop(store);
        let path = home.path().join("stead.db");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let _store = crate::Store::open(home.path()).unwrap();
        assert_eq!(mode("stead.db") & 0o777, OWNER_ONLY);
    }
}
