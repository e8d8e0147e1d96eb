//! The home directory: its permissions, the token, and the lock that admits one server.

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

/// How long to wait for the lock of another server.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// A home directory that this process has locked.
pub struct Home {
    path: PathBuf,
    _lock: HomeLock,
}

impl Home {
    /// Creates the directory if it does not exist, and locks it.
    pub fn open(path: &Path) -> anyhow::Result<Home> {
        let context = || format!("cannot use {} as the home directory", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(context)?;
        fs::set_permissions(path, Permissions::from_mode(0o700)).with_context(context)?;
        let lock = take_lock(path)?;
        Ok(Home { path: path.to_owned(), _lock: lock })
    }

    /// Returns the token in its canonical form; generates one on the first start.
    pub fn token(&self) -> anyhow::Result<String> {
        let path = self.path.join("token");
        match read_token(&self.path) {
            Ok(token) => {
                fs::set_permissions(&path, Permissions::from_mode(0o600))
                    .with_context(|| format!("cannot keep {} private", path.display()))?;
                Ok(AccessToken::read(&token).canonical())
            }
            Err(error) if is_missing(&error) => generate_token(&path),
            Err(error) => Err(error),
        }
    }
}

/// Waits for the lock: a killed server holds it until the kernel has cleaned up the process.
fn take_lock(path: &Path) -> Result<HomeLock, LockError> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
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
    /// Writes the address for the command line.
    pub fn write_address(&self, url: &str) -> anyhow::Result<()> {
        let path = self.path.join("address");
        fs::write(&path, format!("{url}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the address and the certificate.
    pub fn remove_address(&self) {
        // A leftover file is harmless: no server listens at that address.
        let _ = fs::remove_file(self.path.join("address"));
        let _ = fs::remove_file(certificate_path(&self.path));
    }
}

/// Path of the certificate of the running server, which the command line trusts.
pub fn certificate_path(home: &Path) -> PathBuf {
    home.join("certificate.pem")
}

/// Replaces the certificate in a home directory.
pub(super) fn write_certificate(home: &Path, pem: &str) -> std::io::Result<()> {
    replace(&certificate_path(home), pem.as_bytes())
}

/// Returns the address of the server of a home directory, if one is or was running.
pub fn read_address(home: &Path) -> Option<String> {
    let text = fs::read_to_string(home.join("address")).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

fn is_missing(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::NotFound)
}

/// Reads the token of a home directory.
pub fn read_token(home: &Path) -> anyhow::Result<String> {
    let path = home.join("token");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.trim();
    if token.len() < 32 {
        bail!("{} contains no valid token; delete it to generate a new one", path.display());
    }
    Ok(token.to_owned())
}

/// Generates a token and writes it atomically.
fn generate_token(path: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot write {}", path.display());
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).context("cannot generate a random token")?;
    let token = AccessToken::new(bytes).canonical();
    replace(path, format!("{token}\n").as_bytes()).with_context(context)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_admits_one_server_and_has_one_token() {
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
