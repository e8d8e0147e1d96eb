//! Paginated, recursive directory listings that need memory for one page only.

use std::{collections::BinaryHeap, os::fd::OwnedFd};

use rustix::{
    fs::{Dir, Mode, OFlags, openat},
    io::Errno,
};

use crate::directory::{Directory, stat_at};
use crate::{FileError, FileKind, Relative, Stat};
use base::durable::PART;

impl Directory {
    /// Lists the entries below a path up to a depth, starting after `after`. Entries are sorted by name,
    /// and
    /// each directory directly precedes its entries. Links are listed, not followed.
    pub fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        let directory = self.open_below(path)?;
        let after = after.and_then(|after| after.below(path));
        let after: Vec<&str> = match &after {
            Some(after) if !after.is_root() => after.as_str().split('/').collect(),
            _ => Vec::new(),
        };
        let mut walk = Walk { found: Vec::new(), limit };
        walk.enter(&directory, path.as_str(), depth, &after)
            .map_err(|errno| FileError::from_io("list", path.as_str(), errno.into()))?;
        Ok(walk.found)
    }
}

struct Walk {
    found: Vec<Stat>,
    limit: usize,
}

impl Walk {
    fn enter(
        &mut self,
        directory: &OwnedFd,
        path: &str,
        depth: u32,
        after: &[&str],
    ) -> Result<(), Errno> {
        if depth == 0 {
            return Ok(());
        }
        let first = after.first().copied();
        for name in self.names(directory, first)? {
            if self.found.len() >= self.limit {
                break;
            }
            let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            // The entry may have been removed meanwhile.
            let Ok(stat) = stat_at(directory, &name, &below) else { continue };
            let is_directory = stat.kind == FileKind::Directory;
            let seen = first == Some(name.as_str());
            if !seen {
                self.found.push(stat);
            }
            if is_directory && depth > 1 && self.found.len() < self.limit {
                match open_child(directory, &name) {
                    Ok(child) => {
                        let after = if seen { &after[1..] } else { &[] };
                        self.enter(&child, &below, depth - 1, after)?;
                    }
                    // No permission, or no longer a directory.
                    Err(Errno::ACCESS | Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// Returns the first names starting at `from` that fit a page, sorted.
    fn names(&self, directory: &OwnedFd, from: Option<&str>) -> Result<Vec<String>, Errno> {
        // One more than the page has left: the first may already be listed.
        let max = self.limit - self.found.len() + 1;
        let mut names = BinaryHeap::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            let hidden = name == "." || name == ".." || name.starts_with(PART);
            if hidden || from.is_some_and(|from| *name < *from) {
                continue;
            }
            names.push(name.into_owned());
            if names.len() > max {
                names.pop();
            }
        }
        Ok(names.into_sorted_vec())
    }
}

/// Opens a directory that is not a link.
pub(super) fn open_child(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
