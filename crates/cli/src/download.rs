//! Writes the body of a response to a file or to standard output.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::{
    fs::{self, File},
    io::AsyncWriteExt,
};

use super::{client::ApiResponse, progress::TransferProgress};

/// Whether a downloaded file survives a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileDurability {
    Synced,
    Volatile,
}

/// Writes the body to a file beside `path`, which is then renamed: a file of that name is complete.
pub(super) async fn to_file(
    body: ApiResponse,
    path: &Path,
    durability: FileDurability,
    progress: &TransferProgress,
) -> anyhow::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = write_part(body, &part, durability, progress).await;
    let renamed = match written {
        Ok(()) => fs::rename(&part, path).await.map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    if renamed.is_err() {
        let _ = fs::remove_file(&part).await;
    }
    renamed.with_context(|| format!("cannot write {}", path.display()))
}

async fn write_part(
    mut body: ApiResponse,
    part: &Path,
    durability: FileDurability,
    progress: &TransferProgress,
) -> anyhow::Result<()> {
    let mut file = File::create(part).await?;
    while let Some(chunk) = body.chunk().await? {
        file.write_all(&chunk).await?;
        progress.add(chunk.len());
    }
    match durability {
        FileDurability::Synced => file.sync_all().await?,
        FileDurability::Volatile => file.flush().await?,
    }
    Ok(())
}

/// Writes the body to standard output.
pub(super) async fn to_stdout(mut body: ApiResponse) -> anyhow::Result<()> {
    let mut out = tokio::io::stdout();
    while let Some(chunk) = body.chunk().await? {
        out.write_all(&chunk).await?;
    }
    Ok(out.flush().await?)
}
