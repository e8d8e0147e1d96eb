//! The home directory: who may look into it, the token, and the lock that lets one server in.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use base::durable::replace;
use model::{AccessToken, TOKEN_BYTES};
use store::{HomeLock, LockError};

/// How long the lock of another server is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// A home this process holds the lock of.
pub struct Home {
    path: PathBuf,
    _lock: HomeLock,
}

impl Home {
    /// Makes the directory if need be and takes its lock.
    pub fn open(path: &Path) -> anyhow::Result<Home> {
        let naming = || format!("cannot use {} as home", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(naming)?;
        fs::set_permissions(path, Permissions::from_mode(0o700)).with_context(naming)?;
        let lock = take_lock(path)?;
        Ok(Home { path: path.to_owned(), _lock: lock })
    }

    /// Returns the token; generates one on the first start. Its text does not depend on which of its
    /// forms the file has.
    pub fn token(&self) -> anyhow::Result<String> {
        let path = self.path.join("token");
        match read_token(&self.path) {
            Ok(token) => {
                fs::set_permissions(&path, Permissions::from_mode(0o600))
                    .with_context(|| format!("cannot keep {} private", path.display()))?;
                Ok(AccessToken::read(&token).canonical())
            }
            Err(error) if is_missing(&error) => make_token(&path),
            Err(error) => Err(error),
        }
    }
}

/// A server that was just killed holds the lock until the kernel has taken it apart.
fn take_lock(path: &Path) -> Result<HomeLock, LockError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match HomeLock::take(path) {
            Err(LockError::Held { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

impl Home {
    /// Leaves the address for the command line to find.
    pub fn write_address(&self, url: &str) -> anyhow::Result<()> {
        let path = self.path.join("address");
        fs::write(&path, format!("{url}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the address and the certificate.
    pub fn remove_address(&self) {
        // One that stays is harmless: nobody listens there.
        let _ = fs::remove_file(self.path.join("address"));
        let _ = fs::remove_file(certificate_path(&self.path));
    }
}

/// Path of the certificate that the running server presents, for the command line to compare.
pub fn certificate_path(home: &Path) -> PathBuf {
    home.join("certificate.pem")
}

/// Replaces the certificate in that home.
pub(super) fn write_certificate(home: &Path, pem: &str) -> std::io::Result<()> {
    let path = certificate_path(home);
    let beside = path.with_extension("tmp");
    fs::write(&beside, pem)?;
    fs::rename(&beside, &path)
}

/// The address of the server in that home, if one is or was running.
pub fn read_address(home: &Path) -> Option<String> {
    let text = fs::read_to_string(home.join("address")).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

fn is_missing(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::NotFound)
}

/// The token in that home, as the command line reads it.
pub fn read_token(home: &Path) -> anyhow::Result<String> {
    let path = home.join("token");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.trim();
    if token.len() < 32 {
        bail!("{} holds no token; remove it to have another made", path.display());
    }
    Ok(token.to_owned())
}

/// There is a whole token or none.
fn make_token(path: &Path) -> anyhow::Result<String> {
    let naming = || format!("cannot write {}", path.display());
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).context("no randomness for the token")?;
    let token = AccessToken::new(bytes).canonical();
    replace(path, format!("{token}\n").as_bytes()).with_context(naming)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_has_one_server_and_one_token() {
        let path = std::env::temp_dir().join(format!("stead-home-{}", std::process::id()));
        let home = Home::open(&path).unwrap();
        let token = home.token().unwrap();
        assert_eq!(home.token().unwrap(), token);
        assert_eq!(read_token(&path).unwrap(), token);
        let digits = token.strip_prefix("stead_").unwrap();
        assert!(digits.len() == 40 && digits.bytes().all(|it| it.is_ascii_hexdigit()), "{token}");
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("."), mode("token"), mode("lock")), (0o700, 0o600, 0o600));
        assert!(Home::open(&path).is_err());
        drop(home);
        assert_eq!(Home::open(&path).unwrap().token().unwrap(), token);
        fs::write(path.join("token"), format!("e2b_{digits}\n")).unwrap();
        assert_eq!(Home::open(&path).unwrap().token().unwrap(), token);
        fs::remove_dir_all(&path).unwrap();
    }
}
