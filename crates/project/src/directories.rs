//! The directories of projects on disk: moved, removed and measured. Everything here blocks.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::error::{ProjectError, failed};
use base::durable::{make_directory, open_directory, sync_directory};
use files::remove_tree_at;
use provider::WorkspaceDisks;

/// Moves a directory, unless that was done already. Its disk is mounted again at the next use.
pub(super) fn move_directory(
    disks: &dyn WorkspaceDisks,
    from: &Path,
    to: &Path,
) -> Result<(), ProjectError> {
    let act = || -> io::Result<()> {
        for path in [from, to] {
            if let Some(above) = path.parent() {
                make_directory(above)?;
            }
        }
        if !from.is_dir() {
            return Ok(());
        }
        if to.is_dir() {
            // Created by a shell that had not ended, or left by an earlier project with this id.
            remove_directory(disks, to)?;
        }
        disks.detach(from)?;
        std::fs::rename(from, to)?;
        for path in [from, to] {
            if let Some(above) = path.parent() {
                sync_directory(open_directory(above)?)?;
            }
        }
        Ok(())
    };
    act().map_err(|source| failed("move", from, source))
}

/// Removes a directory with its content.
pub(super) fn remove_directory(disks: &dyn WorkspaceDisks, path: &Path) -> io::Result<()> {
    disks.detach(path)?;
    let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(io::Error::other("not a project directory"));
    };
    match open_directory(above) {
        Ok(above) => remove_tree_at(above, name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the name of a project's directory during its import.
pub(super) fn importing(workspace: &Path) -> PathBuf {
    prefixed(workspace, ".import-")
}

/// Returns the name of a deleted project's directory during its permanent removal.
pub(super) fn purging(trashed: &Path) -> PathBuf {
    prefixed(trashed, ".purge-")
}

fn prefixed(path: &Path, prefix: &str) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    path.with_file_name(format!("{prefix}{}", name.unwrap_or_default()))
}

/// Removes unfinished imports and purges that have no row.
pub(super) fn remove_unfinished_moves(
    disks: &dyn WorkspaceDisks,
    home: &Path,
) -> Result<(), ProjectError> {
    for folder in [home.join("workspaces"), home.join("trash")] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(".import-") || name.starts_with(".purge-") {
                remove_directory(disks, &entry.path())
                    .map_err(|source| failed("remove", &entry.path(), source))?;
            }
        }
    }
    Ok(())
}

/// Empties the directory of unfinished files.
pub(super) fn remove_unfinished_files(tmp: &Path) -> Result<(), ProjectError> {
    let act = || -> io::Result<()> {
        let entries = match std::fs::read_dir(tmp) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let directory = open_directory(tmp)?;
        for entry in entries {
            if let Some(name) = entry?.file_name().to_str() {
                remove_tree_at(&directory, name)?;
            }
        }
        Ok(())
    };
    act().map_err(|source| failed("empty", tmp, source))
}

/// Returns how many bytes the files of a project use. Those on its disk are counted one by one while it is mounted.
pub(super) fn disk_bytes(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let is_mounted = root.join("repo").is_dir();
    let is_image = |path: &Path| path.parent() == Some(root) && path.ends_with("disk.img");
    let (mut sum, mut folders) = (0, vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            // `metadata` does not follow a link.
            let Ok(metadata) = entry.metadata() else { continue };
            if !(is_mounted && is_image(&entry.path())) {
                sum += metadata.blocks() * 512;
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    sum
}
