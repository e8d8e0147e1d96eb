//! Access to the files inside a sandbox, with the permissions of its user.

use std::path::PathBuf;

use super::vendor::standard_home;
use crate::Adapter;
use api::error::{Code, Problem};
use files::{Directory, FileError, FileKind, Reach, Relative};
use machine::with_rights_of;
use store::SandboxRecord;

/// The files of a running sandbox.
#[derive(Debug, Clone)]
pub struct Files {
    pub directory: Directory,
    /// The user and group ids that the sandbox's programs have on this machine.
    pub owner: (u32, u32),
    user: String,
}

impl Files {
    /// Runs a blocking operation on the files, with the permissions of the sandbox's user.
    pub async fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Directory) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let files = self.clone();
        base::task::blocking(move || files.act_blocking(act))
            .await
            .map_err(|error| FileError::Unavailable { reason: error.to_string() })?
    }

    /// Runs an operation on the files from a thread that may block.
    pub fn act_blocking<T>(
        &self,
        act: impl FnOnce(&Directory) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        with_rights_of(self.owner, || act(&self.directory))
    }

    /// The name of a user or group id. The id that programs run as has the name that clients expect.
    pub fn name(&self, number: u32, programs: u32) -> String {
        match number.checked_sub(programs) {
            Some(0) => self.user.clone(),
            Some(inside) if inside < base::shared_users::USERS => inside.to_string(),
            Some(_) | None => number.to_string(),
        }
    }
}

impl Adapter {
    /// The files of a sandbox. Fails if the sandbox is paused.
    pub async fn sandbox_files(&self, sandbox: &SandboxRecord) -> Result<Files, Problem> {
        let running = self
            .leases
            .running_if(&sandbox.thread.lease_id, engine::lease::IfPaused::Refuse)
            .await?;
        let provider = running.provider.as_str();
        let root = match provider {
            "local" => Some(PathBuf::from("/")),
            name => {
                let unknown = |error: provider::ProviderError| {
                    Problem::new(Code::NotSupported, error.to_string())
                };
                let provider = self.leases.providers().named(name).map_err(unknown)?;
                match provider.mounts() {
                    Some(mounts) => mounts.root(&running.instance).await.map_err(unknown)?,
                    None => None,
                }
            }
        };
        let Some(root) = root else {
            let detail = format!("files on provider {provider} can only be accessed with commands");
            return Err(Problem::new(Code::NotSupported, detail));
        };
        // Files are not synced: they have the same durability as files that programs in the sandbox write.
        let directory = Directory::open(&root, None, Reach::InRoot).map_err(|error| match error {
            FileError::Missing { .. } => {
                FileError::Unavailable { reason: "the sandbox has just ended".to_owned() }
            }
            other => other,
        });
        let directory = directory?.cached();
        let owner = match provider {
            "local" => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                (user.as_raw(), group.as_raw())
            }
            _ => directory.root_owner()?,
        };
        Ok(Files { directory, owner, user: sandbox.row.user.clone() })
    }
}

/// The home directory of a user of a sandbox; `None` if there is no such user.
pub fn home_of<'a>(sandbox: &'a SandboxRecord, user: Option<&str>) -> Option<&'a str> {
    let is_standard = sandbox.row.home == standard_home(&sandbox.row.user);
    match user {
        None | Some("") => Some(&sandbox.row.home),
        Some(name) if name == sandbox.row.user => Some(&sandbox.row.home),
        Some("root") => Some(if is_standard { "/root" } else { &sandbox.row.home }),
        Some(_) => None,
    }
}

/// Makes a client's path absolute and normalizes it: `~` and relative paths are below `home`, and `..` removes
/// the name before it.
pub fn absolute(path: &str, home: &str) -> String {
    let joined = match path {
        "" | "~" => home.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{home}/{}", path.strip_prefix("~/").unwrap_or(path)),
    };
    let mut names: Vec<&str> = Vec::new();
    for name in joined.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// Permission bits in the notation of `ls -l`.
pub fn permissions(kind: FileKind, bits: u32) -> String {
    let mut letters = String::from(match kind {
        FileKind::Directory => "d",
        FileKind::Link => "L",
        FileKind::File | FileKind::Other => "-",
    });
    for bit in (0..9).rev() {
        let letter = ['x', 'w', 'r'][bit % 3];
        letters.push(if bits >> bit & 1 == 1 { letter } else { '-' });
    }
    letters
}

/// Turns an absolute path into a path below the root.
pub fn relative(absolute: &str) -> Result<Relative, FileError> {
    Relative::parse(absolute.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_absolute_and_normalized() {
        let check = |path: &str, expected: &str| assert_eq!(absolute(path, "/home/user"), expected);
        check("a.txt", "/home/user/a.txt");
        check("", "/home/user");
        check("~", "/home/user");
        check("~/a", "/home/user/a");
        check("~a", "/home/user/~a");
        check("/", "/");
        check("/tmp//x/./y/", "/tmp/x/y");
        check("../other/b", "/home/other/b");
        check("/../../etc", "/etc");
        assert_eq!(relative("/tmp/x").unwrap().as_str(), "tmp/x");
        assert!(relative("/").unwrap().is_root());
    }

    #[test]
    fn permissions_are_written_in_letters() {
        assert_eq!(permissions(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(permissions(FileKind::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(permissions(FileKind::Link, 0o777), "Lrwxrwxrwx");
        assert_eq!(permissions(FileKind::File, 0), "----------");
    }
}
