//! Files for builds, as clients send them: archives by the hash of what is in them.
//!
//! ```text
//! HOME/builds/files/<hash>
//! ```
//! They are kept for the next build with the same files, up to a bound; the oldest go first.

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

/// Archives that are kept.
const MAX_FILES: usize = 512;
/// Bytes of all that are kept.
const MAX_BYTES: u64 = 8 << 30;
/// What one that is not whole yet has behind its hash.
const PART: &str = "part";

/// Whether a text can be the hash of files.
fn is_hash(hash: &str) -> bool {
    (16..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where the archive with this hash is, or would be.
pub fn path(home: &Path, hash: &str) -> Result<PathBuf, Problem> {
    if !is_hash(hash) {
        return Err(Problem::new(Code::InvalidRequest, format!("{hash:?} is no hash of files")));
    }
    Ok(home.join("builds").join("files").join(hash))
}

/// Takes an archive; it is there whole or not at all.
pub async fn receive(app: &Adapter, hash: &str, body: Body) -> Result<(), Problem> {
    let path = path(&app.settings.home, hash)?;
    let part = path.with_extension(format!("{}.{PART}", uuid::Uuid::now_v7().simple()));
    let taken = take(app, &part, body).await;
    let kept = match taken {
        Ok(()) => tokio::fs::rename(&part, &path).await.map_err(|error| failed(&error)),
        Err(problem) => Err(problem),
    };
    if kept.is_err() {
        let _ = tokio::fs::remove_file(&part).await;
    }
    kept?;
    let dir = path.parent().map(Path::to_owned).unwrap_or_default();
    let room = tokio::task::spawn_blocking(move || make_room(&dir, &path)).await;
    match room {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot make room for files of builds"),
        Err(error) => tracing::warn!(%error, "cannot make room for files of builds"),
    }
    Ok(())
}

fn failed(error: &io::Error) -> Problem {
    Problem::internal("keep files for a build", error)
}

async fn take(app: &Adapter, part: &Path, body: Body) -> Result<(), Problem> {
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

/// Removes the oldest until the bounds are kept, but not the one that just came.
fn make_room(dir: &Path, newest: &Path) -> io::Result<()> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        let is_part = path.extension().is_some_and(|extension| extension == PART);
        // One that goes meanwhile is gone.
        let Ok(kind) = entry.metadata() else { continue };
        if !is_part && path != newest {
            all.push((kind.modified().unwrap_or(SystemTime::UNIX_EPOCH), kind.len(), path));
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

/// Removes what uploads that a crash ended have left.
pub fn clean(home: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(home.join("builds").join("files")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == PART) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_what_is_half_there_at_the_next_start() {
        let home = std::env::temp_dir().join(format!("stead-upload-{}", uuid::Uuid::now_v7()));
        let dir = home.join("builds/files");
        fs::create_dir_all(&dir).unwrap();
        for number in 0..MAX_FILES + 3 {
            let file = fs::File::create(dir.join(format!("{number:016x}"))).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            file.set_modified(at).unwrap();
        }
        fs::write(dir.join("half.1.part"), "").unwrap();
        // The newest stays, whatever its time says.
        make_room(&dir, &dir.join(format!("{:016x}", 0))).unwrap();
        let there = |number: usize| dir.join(format!("{number:016x}")).exists();
        assert_eq!([0, 1, 2, 3, 4].map(there), [true, false, false, false, true]);
        assert!(dir.join("half.1.part").exists(), "it may still be coming");
        clean(&home).unwrap();
        assert!(!dir.join("half.1.part").exists());
        assert!(there(MAX_FILES));
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_hash_is_no_path() {
        for bad in ["", "abc", "../../../../etc/passwd", "0123456789abcde/", &"a".repeat(129)] {
            assert!(path(Path::new("/home"), bad).is_err(), "{bad}");
        }
        assert!(path(Path::new("/home"), &"0aF9".repeat(16)).is_ok());
    }
}
