//! Watches of files that are not on this machine: the files are listed again and again, and the lists compared.
//!
//! The vendors' own watches differ, and one vendor has none. Comparing lists means the same at all of them. What changes and
//! changes back between two lists is not reported.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::RemoteDirectory;
use crate::event::FileEvent;
use crate::watch::{Below, Watched};
use crate::{FileError, FileKind, Relative};

/// The time between two lists, and how many times as long as one list took, so that the vendor is mostly idle.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const REST_FACTOR: u32 = 10;
/// Lists in a row that may fail before the watch ends. The pause doubles after each.
const MAX_FAILURES: u32 = 6;
/// Files per watch; directories with more cannot be watched.
const MAX_FILES: usize = 20_000;
/// As deep as directories are usually nested; further levels are not watched.
const MAX_DEPTH: u32 = 64;

/// A watch on a file or directory.
#[derive(Debug)]
pub struct RemoteWatch {
    remote: RemoteDirectory,
    path: Relative,
    kind: FileKind,
    depth: u32,
    known: Versions,
    waiting: VecDeque<Watched>,
    interval: Duration,
    failures: u32,
}

/// The files by their path, each with what changes with its content.
type Versions = BTreeMap<String, (FileKind, Option<u64>)>;

impl RemoteDirectory {
    /// Starts watching a file or a directory.
    pub(crate) async fn watch(
        &self,
        path: &Relative,
        below: Below,
    ) -> Result<RemoteWatch, FileError> {
        let depth = match below {
            Below::Children => 1,
            Below::All => MAX_DEPTH,
        };
        let mut watch = RemoteWatch {
            remote: self.clone(),
            path: path.clone(),
            kind: self.stat(path).await?.kind,
            depth,
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            interval: MIN_INTERVAL,
            failures: 0,
        };
        watch.known = watch.versions().await?;
        Ok(watch)
    }
}

impl RemoteWatch {
    /// Waits for the next report.
    pub(crate) async fn next(&mut self) -> Result<Watched, FileError> {
        loop {
            if let Some(watched) = self.waiting.pop_front() {
                return Ok(watched);
            }
            tokio::time::sleep(self.interval).await;
            let began = Instant::now();
            match self.versions().await {
                Ok(versions) => {
                    self.failures = 0;
                    self.interval = (began.elapsed() * REST_FACTOR).max(MIN_INTERVAL);
                    let before = std::mem::replace(&mut self.known, versions);
                    self.waiting.extend(changes(&before, &self.known).map(Watched::Event));
                }
                // The watched directory was removed, or is no directory any more.
                Err(FileError::Missing { .. } | FileError::NotDirectory { .. }) => {
                    return Ok(Watched::Gone);
                }
                Err(error) => {
                    self.failures += 1;
                    if self.failures == MAX_FAILURES {
                        return Err(error);
                    }
                    self.interval *= 2;
                }
            }
        }
    }

    async fn versions(&self) -> Result<Versions, FileError> {
        let found = match self.kind {
            FileKind::Directory => {
                self.remote.list(&self.path, self.depth, None, MAX_FILES + 1).await?
            }
            // By its name: another file may get it.
            FileKind::File | FileKind::Link | FileKind::Other => {
                match self.remote.stat(&self.path).await {
                    Err(FileError::Missing { .. }) => vec![],
                    found => vec![found?],
                }
            }
        };
        if found.len() > MAX_FILES {
            return Err(FileError::Full { what: "watched files", limit: MAX_FILES as u64 });
        }
        Ok(found.into_iter().map(|stat| (stat.path, (stat.kind, stat.version))).collect())
    }
}

/// What happened between two lists: removals first, because a name may have become a directory.
fn changes(before: &Versions, after: &Versions) -> impl Iterator<Item = FileEvent> {
    let kind = |versions: &Versions, path: &String| versions.get(path).map(|(kind, _)| *kind);
    let gone = |(path, (was, _)): &(&String, &(FileKind, _))| kind(after, path) != Some(*was);
    let removed = before.iter().rev().filter(gone).map(|(path, _)| FileEvent::removed(path));
    let changed = after.iter().filter_map(move |(path, now)| match before.get(path) {
        Some(was) if was == now => None,
        Some(was) if was.0 == now.0 => Some(FileEvent::modified(path)),
        _ => Some(FileEvent::created(path)),
    });
    removed.collect::<Vec<_>>().into_iter().chain(changed.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::FileEventKind;

    #[test]
    fn the_difference_of_two_lists_is_what_happened() {
        let list = |files: &[(&str, FileKind, u64)]| -> Versions {
            let of = |(path, kind, version): &(&str, FileKind, u64)| {
                let version = (*kind == FileKind::File).then_some(*version);
                ((*path).to_owned(), (*kind, version))
            };
            files.iter().map(of).collect()
        };
        let before = list(&[
            ("a", FileKind::File, 1),
            ("becomes", FileKind::File, 1),
            ("d", FileKind::Directory, 0),
            ("d/x", FileKind::File, 1),
            ("same", FileKind::File, 1),
        ]);
        let after = list(&[
            ("a", FileKind::File, 2),
            ("becomes", FileKind::Directory, 0),
            ("becomes/y", FileKind::File, 1),
            ("same", FileKind::File, 1),
        ]);
        let found: Vec<_> = changes(&before, &after).map(|it| (it.path, it.kind)).collect();
        let expected = [
            ("d/x", FileEventKind::Removed),
            ("d", FileEventKind::Removed),
            ("becomes", FileEventKind::Removed),
            ("a", FileEventKind::Modified),
            ("becomes", FileEventKind::Created),
            ("becomes/y", FileEventKind::Created),
        ];
        assert_eq!(found, expected.map(|(path, kind)| (path.to_owned(), kind)));
    }
}
