//! What the scripts print, and what their error messages mean.

use rustix::fs::FileType;

use crate::{FileError, FileKind, Stat};
use model::Timestamp;

/// The metadata of a file, as a script printed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) stat: Stat,
    /// The fields that change with each write, as text.
    pub(super) raw: String,
}

/// Parses the records of an output, each of which begins with `mark`.
pub(super) fn records(output: &[u8], mark: &str) -> Option<Vec<Listed>> {
    let text = String::from_utf8_lossy(output);
    let mut found: Vec<Listed> = Vec::new();
    let mut link = None;
    for record in text.split(mark).skip(1) {
        let record = record.strip_suffix('\n').unwrap_or(record);
        if let Some(path) = record.strip_prefix('L') {
            link = Some(relative(path));
        } else if let Some(target) = record.strip_prefix('T') {
            let path = link.take()?;
            if let Some(listed) = found.iter_mut().find(|listed| listed.stat.path == path) {
                listed.stat.target = Some(target.to_owned());
            }
        } else {
            found.push(status(record)?);
        }
    }
    Some(found)
}

fn relative(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

/// Parses `MODE SIZE USER GROUP DEVICE INODE|MODIFIED|CHANGED|PATH`.
fn status(record: &str) -> Option<Listed> {
    let mut parts = record.splitn(4, '|');
    let (numbers, modified, changed, path) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let words: Vec<&str> = numbers.split(' ').collect();
    let [mode, size, user, group, device, inode] = words.as_slice() else { return None };
    let mode = u32::from_str_radix(mode, 16).ok()?;
    let kind = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    let is_file = kind == FileKind::File;
    let size: u64 = size.parse().ok()?;
    let state = format!("{device} {inode} {size} {modified} {changed}");
    let stat = Stat {
        path: relative(path),
        kind,
        size: if is_file { size } else { 0 },
        modified_at: time(modified),
        mode: Some(mode & 0o7777),
        owner: Some((user.parse().ok()?, group.parse().ok()?)),
        target: None,
        version: is_file.then(|| version(&state)),
    };
    Some(Listed { stat, raw: format!("{numbers}|{modified}|{changed}") })
}

/// Parses a time as `stat` prints it in UTC, such as `2026-01-02 03:04:05.678 +0000`.
fn time(text: &str) -> Option<Timestamp> {
    let mut words = text.split(' ');
    let (date, time) = (words.next()?, words.next()?);
    format!("{date}T{time}Z").parse().ok()
}

fn version(state: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&blake3::hash(state.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// The error that the message of a failed program stands for; `None` if it has no known reason.
pub(super) fn error_of(message: &str, path: &str) -> Option<FileError> {
    let path = path.to_owned();
    message.lines().map(str::trim_end).find_map(|line| {
        let reason = line.rsplit(": ").next()?;
        let path = path.clone();
        Some(match reason {
            "No such file or directory" => FileError::Missing { path },
            "File exists" => FileError::Exists { path },
            "Is a directory" => FileError::IsDirectory { path },
            "Not a directory" => FileError::NotDirectory { path },
            "Directory not empty" => FileError::NotEmpty { path },
            "Permission denied" | "Operation not permitted" | "Device or resource busy" => {
                FileError::Forbidden { path }
            }
            "Read-only file system" => FileError::ReadOnly { path },
            "No space left on device" | "Disk quota exceeded" => FileError::NoSpace,
            "Too many levels of symbolic links" => FileError::Loop { path },
            "File name too long" => FileError::BadPath { path, why: "it is too long" },
            "changed" => FileError::Changed { path },
            "kind a FIFO" => FileError::NotRegular { path, kind: "a FIFO" },
            "kind a socket" => FileError::NotRegular { path, kind: "a socket" },
            "kind a device" => FileError::NotRegular { path, kind: "a device" },
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed_whatever_a_name_contains() {
        let output = "#81a4 12 0 0 254 77|2026-01-02 03:04:05.678000000 +0000|2026-01-02 03:04:06 +0000|/a|b\nc\n\
                      #a1ff 3 5 6 254 78|2026-01-02 03:04:05 +0000|x|/link\n#L/link\n#Tto it\n";
        let found = records(output.as_bytes(), "#").unwrap();
        let (file, link) = (&found[0].stat, &found[1].stat);
        assert_eq!((&*file.path, file.kind, file.size), ("a|b\nc", FileKind::File, 12));
        assert_eq!((file.mode, file.owner), (Some(0o644), Some((0, 0))));
        assert_eq!(file.modified_at.unwrap().to_string(), "2026-01-02T03:04:05.678Z");
        assert!(file.version.is_some() && link.version.is_none());
        assert_eq!((&*link.path, link.kind, link.size), ("link", FileKind::Link, 0));
        assert_eq!((link.target.as_deref(), link.owner), (Some("to it"), Some((5, 6))));
        assert_eq!(records(b"#81a4 12|x", "#"), None);
    }

    #[test]
    fn messages_of_programs_become_errors() {
        let check = |message: &str, expected: &str| {
            let error = error_of(message, "x").map(|error| error.to_string());
            assert_eq!(error.as_deref().unwrap_or("none"), expected, "{message}");
        };
        check("stat: cannot statx '/x': No such file or directory\n", "\"x\" does not exist");
        check("stat: can't stat '/x': No such file or directory\n", "\"x\" does not exist");
        check(
            "dd: error writing '/x': No space left on device\n1+0 records in\n",
            "the disk is full",
        );
        check("stead: kind a FIFO", "\"x\" is a FIFO, not a file");
        check(
            "mkdir: cannot create directory '/a: File exists/b': Permission denied",
            "permission denied for \"x\"",
        );
        check("sh: stat: not found", "none");
        check("", "none");
    }
}
