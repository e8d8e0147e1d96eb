//! Files that clients upload for builds: archives, named by the hash of their content.
//!
//! ```text
//! HOME/builds/files/<hash>
//! ```
//! They are kept for later builds with the same files, up to a limit; the oldest are removed first.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use axum::body::Body;
use tokio::io::AsyncWriteExt;

use crate::Adapter;
use api::{
    error::{Code, Problem},
    transfer::Chunks,
};

/// The limit of kept archives.
const MAX_FILES: usize = 512;
/// The limit of the total size of kept archives.
const MAX_BYTES: u64 = 8 << 30;
/// The file extension of an incomplete archive.
const PART_EXTENSION: &str = "part";

/// Whether a text is well-formed as a hash of files.
fn is_hash(hash: &str) -> bool {
    (16..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The path of the archive with this hash, whether or not it exists.
pub fn path(home: &Path, hash: &str) -> Result<PathBuf, Problem> {
    if !is_hash(hash) {
        return Err(Problem::new(Code::InvalidRequest, format!("{hash:?} is not a hash of files")));
    }
    Ok(home.join("builds").join("files").join(hash))
}

/// Stores an archive. Its path appears only once it is complete.
pub async fn receive(app: &Adapter, hash: &str, body: Body) -> Result<(), Problem> {
    let path = path(&app.settings.home, hash)?;
    let part = path.with_extension(format!("{}.{PART_EXTENSION}", uuid::Uuid::now_v7().simple()));
    let stored = match write(app, &part, body).await {
        Ok(()) => {
            let (part, path) = (part.clone(), path.clone());
            match base::task::blocking(move || base::durable::publish(&part, &path)).await {
                Ok(published) => published.map_err(|error| failed(&error)),
                Err(error) => Err(failed(&io::Error::other(error))),
            }
        }
        Err(problem) => Err(problem),
    };
    if stored.is_err() {
        let _ = tokio::fs::remove_file(&part).await;
    }
    stored?;
    let dir = path.parent().map(Path::to_owned).unwrap_or_default();
    let evicted = base::task::blocking(move || evict(&dir, &path)).await;
    match evicted {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot remove old uploads of builds"),
        Err(error) => tracing::warn!(%error, "cannot remove old uploads of builds"),
    }
    Ok(())
}

/// Removes an archive that no later build can use.
pub fn remove(home: &Path, hash: &str) {
    let Ok(path) = path(home, hash) else { return };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "cannot remove the files of a build");
        }
        _ => {}
    }
}

fn failed(error: &io::Error) -> Problem {
    Problem::internal("store files for a build", error)
}

async fn write(app: &Adapter, part: &Path, body: Body) -> Result<(), Problem> {
    if let Some(dir) = part.parent() {
        tokio::fs::create_dir_all(dir).await.map_err(|error| failed(&error))?;
    }
    let mut file = tokio::fs::File::create(part).await.map_err(|error| failed(&error))?;
    let mut chunks = Chunks::new(app, body);
    while let Some(chunk) = chunks.next().await? {
        file.write_all(&chunk).await.map_err(|error| failed(&error))?;
    }
    file.sync_all().await.map_err(|error| failed(&error))
}

/// Removes the oldest archives until the limits hold, but never the newest.
fn evict(dir: &Path, newest: &Path) -> io::Result<()> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        let is_part = path.extension().is_some_and(|extension| extension == PART_EXTENSION);
        // Another task may have removed the file meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        if !is_part && path != newest {
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            all.push((modified, metadata.len(), path));
        }
    }
    all.sort();
    let mut bytes: u64 = all.iter().map(|(_, size, _)| size).sum();
    let mut count = all.len() + 1;
    for (_, size, path) in all {
        if count <= MAX_FILES && bytes <= MAX_BYTES {
            break;
        }
        fs::remove_file(path)?;
        count -= 1;
        bytes -= size;
    }
    Ok(())
}

/// Removes the incomplete archives of uploads that a crash interrupted.
pub fn clean(home: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(home.join("builds").join("files")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == PART_EXTENSION) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_archives_are_evicted_and_incomplete_ones_are_removed_at_the_start() {
        let home = std::env::temp_dir().join(format!("stead-upload-{}", uuid::Uuid::now_v7()));
        let dir = home.join("builds/files");
        fs::create_dir_all(&dir).unwrap();
        for number in 0..MAX_FILES + 3 {
            let file = fs::File::create(dir.join(format!("{number:016x}"))).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            file.set_modified(at).unwrap();
        }
        fs::write(dir.join("incomplete.1.part"), "").unwrap();
        // The newest archive stays, whatever its modification time.
        evict(&dir, &dir.join(format!("{:016x}", 0))).unwrap();
        let exists = |number: usize| dir.join(format!("{number:016x}")).exists();
        assert_eq!([0, 1, 2, 3, 4].map(exists), [true, false, false, false, true]);
        assert!(dir.join("incomplete.1.part").exists(), "its upload may still be running");
        clean(&home).unwrap();
        assert!(!dir.join("incomplete.1.part").exists());
        assert!(exists(MAX_FILES));
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_path_is_not_accepted_as_a_hash() {
        for bad in ["", "abc", "../../../../etc/passwd", "0123456789abcde/", &"a".repeat(129)] {
            assert!(path(Path::new("/home"), bad).is_err(), "{bad}");
        }
        assert!(path(Path::new("/home"), &"0aF9".repeat(16)).is_ok());
    }
}
