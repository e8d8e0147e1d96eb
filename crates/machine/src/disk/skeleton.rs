//! The initial files of a sandbox that runs this machine's programs: directories, and a copy of the
//! world-readable files in `/etc`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

/// Directories of the root that may contain programs outside `/usr`.
pub(crate) const TOP: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The `/etc/hosts` of every sandbox.
pub(crate) const HOSTS: &str = "127.0.0.1 localhost stead\n::1 localhost\n";

const DIRECTORIES: &[&str] = &[
    "dev",
    "etc",
    "home",
    "media",
    "memories",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "var/cache",
    "var/lib",
    "var/log",
    "var/tmp",
    "workspace",
    ".stead",
];

/// Directories with mode 1777.
const WORLD_WRITABLE: &[&str] = &["tmp", "var/tmp"];

/// World-readable files of `/etc` that are not copied, because they describe this machine.
const PRIVATE: &[&str] = &[
    "fstab",
    "group",
    "group-",
    "gshadow",
    "gshadow-",
    "hostname",
    "hosts",
    "machine-id",
    "mtab",
    "passwd",
    "passwd-",
    "resolv.conf",
    "shadow",
    "shadow-",
    "ssh",
    "subgid",
    "subgid-",
    "subuid",
    "subuid-",
    "cron.d",
    "cron.daily",
    "cron.hourly",
    "cron.monthly",
    "cron.weekly",
    "crontab",
    "exports",
    "krb5.keytab",
    "docker",
    "containers",
    "kubernetes",
    "wireguard",
    "letsencrypt",
    "apt/auth.conf",
    "apt/auth.conf.d",
    "environment",
    "ssl/private",
    "sudoers",
    "sudoers.d",
    "NetworkManager",
    "netplan",
    "ppp",
    "cni",
    "containerd",
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n";

/// Links, files and directories of `/etc`; further ones are not copied.
const MAX_FILES: usize = 20_000;

/// Larger files of `/etc` are not copied.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Creates the initial files of a sandbox that runs this machine's programs.
pub(crate) fn furnish(root: &Path) -> io::Result<()> {
    for name in DIRECTORIES {
        make_dir_with_mode(&root.join(name), 0o755)?;
    }
    for name in WORLD_WRITABLE {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o1777))?;
    }
    fs::set_permissions(root.join("root"), fs::Permissions::from_mode(0o700))?;
    for memory in ["memories/hot", "memories/persistent"] {
        make_dir_with_mode(&root.join(memory), 0o755)?;
    }
    // A link into /usr is copied. A directory is mounted like /usr.
    for name in TOP {
        match fs::symlink_metadata(Path::new("/").join(name)) {
            Ok(kind) if kind.is_symlink() => {
                symlink(fs::read_link(Path::new("/").join(name))?, root.join(name))?;
            }
            Ok(kind) if kind.is_dir() => make_dir_with_mode(&root.join(name), 0o755)?,
            _ => {}
        }
    }
    let mut left = MAX_FILES;
    copy_public(Path::new("/etc"), &root.join("etc"), Path::new(""), &mut left)?;
    for (name, text) in [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("hostname", "stead\n"),
        ("machine-id", ""),
        ("hosts", HOSTS),
        ("resolv.conf", ""),
    ] {
        fs::write(root.join("etc").join(name), text)?;
    }
    Ok(())
}

/// Copies the world-readable files and directories.
fn copy_public(from: &Path, to: &Path, below: &Path, left: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(from)?.flatten() {
        let name = below.join(entry.file_name());
        if PRIVATE.iter().any(|private| Path::new(private) == name)
            || has_service_data(&name)
            || *left == 0
        {
            continue;
        }
        *left -= 1;
        let Ok(kind) = entry.metadata() else { continue };
        let mode = kind.permissions().mode();
        let target = to.join(entry.file_name());
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_dir() && mode & 0o005 == 0o005 {
            make_dir_with_mode(&target, 0o755)?;
            copy_public(&entry.path(), &target, &name, left)?;
        } else if kind.is_file() && mode & 0o004 != 0 && kind.len() < MAX_FILE_BYTES {
            let mut copy =
                OpenOptions::new().write(true).create_new(true).mode(mode & 0o755).open(&target)?;
            let text = fs::read(entry.path())?;
            if !(name.starts_with("apt") && has_credentials(&text)) {
                copy.write_all(&text)?;
            }
        }
    }
    Ok(())
}

/// Whether a directory of `/etc` configures a service whose data in `/var/lib` belongs to another user. Without
/// the data, the configuration would be wrong inside.
fn has_service_data(name: &Path) -> bool {
    let data = fs::symlink_metadata(Path::new("/var/lib").join(name));
    name.components().count() == 1 && data.is_ok_and(|data| data.is_dir() && data.uid() != 0)
}

/// Whether a text contains a URL with a user name or password.
fn has_credentials(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| c == '/' || c == '"' || c.is_whitespace()).next();
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

pub(super) fn make_dir_with_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    // The mode of a new directory is reduced by the umask.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_with_a_password_is_found() {
        for (text, expected) in [
            ("Acquire::http::Proxy \"http://user:secret@proxy:3128\";", true),
            ("deb https://token@packages.example/debian stable main", true),
            ("Acquire::http::Proxy \"http://proxy:3128\"; // ask admin@example", false),
            ("URIs: http://deb.debian.org/debian/@x", false),
        ] {
            assert_eq!(has_credentials(text.as_bytes()), expected, "{text}");
        }
    }
}
