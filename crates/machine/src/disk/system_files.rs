//! The initial files of a sandbox whose root has capabilities: the accounts of the machine's programs, and the
//! directories in `/var` that its package manager expects.
//!
//! Accounts of people, passwords and data of services stay on the machine.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use super::skeleton::make_dir_with_mode;

/// Users and groups from this number on belong to people.
const FIRST_PERSON: u32 = 1000;

/// The user and group without any rights.
const UNPRIVILEGED: u32 = 65_534;

/// The account with which `apt` downloads.
const DOWNLOADER: &str = "_apt";

/// Directories of the package manager and of services.
const DIRECTORIES: [&str; 14] = [
    "var/backups",
    "var/cache/apt/archives",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/lib/apt/mirrors/partial",
    "var/lib/apt/periodic",
    "var/lib/dpkg",
    "var/lib/misc",
    "var/local",
    "var/log/apt",
    "var/mail",
    "var/opt",
    "var/spool",
    "var/spool/cron",
];

/// Directories that belong to [`DOWNLOADER`], with mode 0700.
const DOWNLOADS: [&str; 2] = ["var/cache/apt/archives/partial", "var/lib/apt/lists/partial"];

/// Links to the RAM disk of running services.
const LINKS: [(&str, &str); 2] = [("run", "var/run"), ("run/lock", "var/lock")];

/// Small files of the machine that say which packages were installed on request.
const COPIED: [&str; 1] = ["var/lib/apt/extended_states"];

/// The rules of `sudo`, if the machine has it: its own rules may name people.
const SUDOERS: &str = "Defaults env_reset\n\
    root ALL=(ALL:ALL) ALL\n\
    %sudo ALL=(ALL:ALL) ALL\n\
    @includedir /etc/sudoers.d\n";

/// Completes the initial files at a root. Needs the rights of the machine's root.
pub(super) fn furnish(root: &Path) -> io::Result<()> {
    let accounts = Accounts::of(
        &fs::read_to_string("/etc/passwd").unwrap_or_default(),
        &fs::read_to_string("/etc/group").unwrap_or_default(),
    );
    let etc = root.join("etc");
    for (name, text, mode) in [
        ("passwd", &accounts.passwd, 0o644),
        ("group", &accounts.group, 0o644),
        ("shadow", &accounts.shadow, 0o640),
        ("gshadow", &accounts.gshadow, 0o640),
    ] {
        write_with_mode(&etc.join(name), text, mode)?;
    }
    if let Some(group) = accounts.shadow_group {
        for name in ["shadow", "gshadow"] {
            chown(etc.join(name), Some(0), Some(group))?;
        }
    }
    if Path::new("/usr/bin/sudo").exists() {
        write_with_mode(&etc.join("sudoers"), SUDOERS, 0o440)?;
        make_dir_with_mode(&etc.join("sudoers.d"), 0o755)?;
    }
    for name in DIRECTORIES {
        make_dir_with_mode(&root.join(name), 0o755)?;
    }
    for name in DOWNLOADS {
        make_dir_with_mode(&root.join(name), 0o700)?;
        if let Some(user) = accounts.downloader {
            chown(root.join(name), Some(user), Some(0))?;
        }
    }
    for (target, name) in LINKS {
        symlink(Path::new("/").join(target), root.join(name))?;
    }
    for name in COPIED {
        if let Ok(text) = fs::read(Path::new("/").join(name)) {
            fs::write(root.join(name), text)?;
        }
    }
    Ok(())
}

fn write_with_mode(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// The accounts of a sandbox.
#[derive(Debug, Default, PartialEq, Eq)]
struct Accounts {
    passwd: String,
    group: String,
    shadow: String,
    gshadow: String,
    /// The group that may read the hashes of passwords.
    shadow_group: Option<u32>,
    downloader: Option<u32>,
}

impl Accounts {
    /// The system accounts among those of a machine, without members and without passwords.
    fn of(passwd: &str, group: &str) -> Self {
        let mut accounts = Self::default();
        let is_system = |number: &u32| *number < FIRST_PERSON || *number == UNPRIVILEGED;
        for line in passwd.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, user, group, about, home, shell] = fields[..] else { continue };
            let Some(number) = user.parse().ok().filter(is_system) else { continue };
            // The full name of root may be a person's.
            let about = if number == 0 { "root" } else { about };
            accounts.passwd += &format!("{name}:x:{number}:{group}:{about}:{home}:{shell}\n");
            accounts.shadow += &format!("{name}:*:19000:0:99999:7:::\n");
            if name == DOWNLOADER {
                accounts.downloader = Some(number);
            }
        }
        for line in group.lines() {
            let mut fields = line.split(':');
            let (name, number) = (fields.next().unwrap_or_default(), fields.nth(1));
            let number = number.and_then(|number| number.parse().ok());
            let Some(number) = number.filter(is_system) else { continue };
            accounts.group += &format!("{name}:x:{number}:\n");
            accounts.gshadow += &format!("{name}:*::\n");
            if name == "shadow" {
                accounts.shadow_group = Some(number);
            }
        }
        accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_passwords_stay_on_the_machine() {
        let passwd = "root:x:0:0:Ada Lovelace:/root:/bin/bash\n\
            _apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n\
            ada:x:1000:1000:Ada,,,:/home/ada:/bin/zsh\nbroken\n\
            nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
        let group = "root:x:0:\nsudo:x:27:ada\nshadow:x:43:\nada:x:1000:\nnogroup:x:65534:\n";
        let accounts = Accounts::of(passwd, group);
        assert_eq!(
            accounts.passwd,
            "root:x:0:0:root:/root:/bin/bash\n\
            _apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n\
            nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        assert_eq!(accounts.group, "root:x:0:\nsudo:x:27:\nshadow:x:43:\nnogroup:x:65534:\n");
        assert!(accounts.shadow.lines().all(|line| line.split(':').nth(1) == Some("*")));
        assert_eq!((accounts.shadow_group, accounts.downloader), (Some(43), Some(42)));
    }
}
