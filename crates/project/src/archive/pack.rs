//! Writes an archive.

use std::{
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use rustix::fs::{Dir, Mode as FileMode, OFlags, openat};
use tar::{Builder, EntryType, Header};

use super::layout::{FOLDERS, MAX_ROWS_BYTES, stays_inside};
use crate::workspace::Workspace;
use base::durable::{PART, open_directory};
use files::{FileKind, Stat, memory::MemoryEntry, open_regular, stat_at};
use store::Bundle;

/// How many omitted files are listed in left-out.json.
const MAX_LEFT_OUT: usize = 1000;

pub(super) fn write_archive(
    out: impl Write,
    bundle: &Bundle,
    hot: &[(Box<str>, MemoryEntry)],
    workspace: &Workspace,
) -> io::Result<()> {
    let mut packed = zstd::Encoder::new(out, 3)?;
    packed.include_checksum(true)?;
    let mut tar = Builder::new(packed);
    tar.mode(tar::HeaderMode::Deterministic);
    let rows = serde_json::to_vec(bundle)?;
    if rows.len() as u64 > MAX_ROWS_BYTES {
        return Err(io::Error::other("the rows of the project exceed the limit of an archive"));
    }
    append(&mut tar, "rows.json", &mut Header::new_gnu(), rows.len() as u64, &*rows)?;
    for (key, entry) in hot {
        let mut header = Header::new_gnu();
        header.set_mtime(seconds(Some(entry.modified_at)));
        let size = entry.bytes.len() as u64;
        append(&mut tar, &format!("hot/{key}"), &mut header, size, &*entry.bytes)?;
    }
    let mut left_out = Vec::new();
    for folder in FOLDERS {
        let path = workspace.root.join(folder);
        if path.is_dir() {
            append_folder(&mut tar, &open_directory(&path)?, folder, folder, &mut left_out, 0)?;
        }
    }
    let left_out = serde_json::to_vec(&left_out)?;
    let size = left_out.len() as u64;
    append(&mut tar, "left-out.json", &mut Header::new_gnu(), size, &*left_out)?;
    tar.into_inner()?.finish()?.flush()
}

fn append_folder<W: Write>(
    tar: &mut Builder<W>,
    directory: &OwnedFd,
    path: &str,
    folder: &str,
    left_out: &mut Vec<String>,
    depth: u32,
) -> io::Result<()> {
    let mut omit = |path: &str, why: &str| {
        if left_out.len() < MAX_LEFT_OUT {
            left_out.push(format!("{path}: {why}"));
        }
    };
    if depth > 256 {
        omit(path, "it is nested too deeply");
        return Ok(());
    }
    let mut folders = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            omit(path, "a name in it is not UTF-8");
            continue;
        };
        if matches!(name, "." | "..") || name.starts_with(PART) {
            continue;
        }
        let below = format!("{path}/{name}");
        // The file may have been removed meanwhile.
        let Ok(stat) = stat_at(directory, name, &below) else { continue };
        let mut header = header_of(&stat);
        match stat.kind {
            FileKind::Directory => {
                header.set_entry_type(EntryType::Directory);
                append(tar, &below, &mut header, 0, io::empty())?;
                folders.push(name.to_owned());
            }
            FileKind::File => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let Ok(held) = openat(directory, name, flags, FileMode::empty()) else { continue };
                match open_regular(&held, &below) {
                    Ok((file, stat)) => {
                        // The size is written first: a file that shrinks meanwhile is padded, and one that
                        // grows is cut.
                        let content = file.take(stat.size).chain(io::repeat(0)).take(stat.size);
                        append(tar, &below, &mut header, stat.size, content)?;
                    }
                    Err(error) => omit(&below, &error.to_string()),
                }
            }
            FileKind::Link => match stat.target.as_deref() {
                Some(target) if stays_inside(&below, target, folder) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, &below, target)?;
                }
                _ => omit(&below, "the link leads outside"),
            },
            FileKind::Other => omit(&below, "it is a FIFO, a socket or a device"),
        }
    }
    for name in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(child) = openat(directory, &name, flags, FileMode::empty()) else { continue };
        append_folder(tar, &child, &format!("{path}/{name}"), folder, left_out, depth + 1)?;
    }
    Ok(())
}

fn header_of(stat: &Stat) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(stat.mode.unwrap_or(0o644) & 0o777);
    header.set_mtime(seconds(stat.modified_at));
    header
}

fn seconds(at: Option<model::Timestamp>) -> u64 {
    at.map_or(0, |at| u64::try_from(at.as_second()).unwrap_or(0))
}

fn append<W: Write>(
    tar: &mut Builder<W>,
    path: &str,
    header: &mut Header,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    header.set_size(size);
    if header.mode().unwrap_or(0) == 0 {
        header.set_mode(0o644);
    }
    tar.append_data(header, path, content)
}
