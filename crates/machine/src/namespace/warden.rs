//! Looks after what sandboxes write outside their own disks.
//!
//! A workspace is a directory of the machine, on a disk that all share and that has no quota. So the
//! free space of that disk is looked at, and when it shrinks, what each sandbox has written to the
//! directories it was shown. One that has written more there than its disk may hold has its processes
//! ended, its host excepted; what it wrote stays.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::blocking;
use super::cgroup::{self, Cgroups};
use super::host::Host;
use super::label::Label;
use base::durable::replace_volatile;
use model::{InstanceId, Timestamp};
use provider::ProviderError;

/// How often the free space is looked at.
const EVERY: Duration = Duration::from_millis(250);

/// It has to shrink by some part of the smallest limit before anything else is looked at.
const PART: u64 = 8;
const LEAST: u64 = 16 << 20;
const MOST: u64 = 1 << 30;

/// A file counts for at least so many bytes: an empty one takes up a place on the disk, too.
const LEAST_FILE: u64 = 4096;

/// So many files of a sandbox are looked at at most.
const FILES: usize = 1 << 20;

/// The file in a sandbox's directory that [`Shown`] is in.
const FILE: &str = "shown.json";

/// What a sandbox was shown of the machine to write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    directories: Vec<PathBuf>,
    /// Since when, in seconds of the epoch.
    since: i64,
    /// How much it may write there.
    limit: u64,
    /// How often it wrote more.
    #[serde(default)]
    stopped: u64,
}

/// Every sandbox of a kind that was shown something.
#[derive(Debug)]
pub(crate) struct Warden {
    /// The directory that the directories of the instances are in, on the disk that is looked at.
    places: PathBuf,
    shown: Mutex<HashMap<InstanceId, Shown>>,
    /// Held while [`FILE`] is written.
    writing: Mutex<()>,
}

impl Warden {
    pub(crate) fn new(places: PathBuf) -> Self {
        Self { places, shown: Mutex::default(), writing: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a sandbox was stopped for writing too much.
    pub(crate) fn stopped(&self, id: &InstanceId) -> u64 {
        self.lock().get(id).map_or(0, |shown| shown.stopped)
    }

    pub(crate) fn forget(&self, id: &InstanceId) {
        self.lock().remove(id);
    }

    /// How much the free space has to shrink; `None` if nobody was shown anything.
    fn step(&self) -> Option<u64> {
        let least = self.lock().values().map(|shown| shown.limit).min()?;
        Some((least / PART).clamp(LEAST, MOST))
    }

    /// Notes that a sandbox was shown these directories, to which it may write so much. Blocking.
    pub(crate) fn note(
        &self,
        id: &InstanceId,
        directories: impl IntoIterator<Item = PathBuf>,
        limit: u64,
    ) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = {
            let mut all = self.lock();
            let shown = all.entry(id.clone()).or_insert_with(|| Shown {
                directories: vec![],
                since: Timestamp::now().as_second(),
                limit,
                stopped: 0,
            });
            for directory in directories {
                if !shown.directories.contains(&directory) {
                    shown.directories.push(directory);
                }
            }
            shown.clone()
        };
        // For the next server; a sandbox does not outlive the machine.
        replace_volatile(&self.places.join(id.as_str()).join(FILE), &serde_json::to_vec(&shown)?)
    }

    /// Looks after what is written until told to stop.
    pub(crate) async fn watch(&self, stop: CancellationToken) {
        let places = self.places.clone();
        let noted = blocking("read what sandboxes were shown", move || Ok(noted(&places))).await;
        for (id, shown) in noted.unwrap_or_default() {
            self.lock().entry(id).or_insert(shown);
        }
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut most_bytes, mut most_files) = (0, 0);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            let Some(step) = self.step() else { continue };
            let places = self.places.clone();
            let looked =
                blocking("look at the free space", move || Ok(rustix::fs::statvfs(places)?));
            let Ok(disk) = looked.await else { continue };
            let (bytes, files) = (disk.f_bfree * disk.f_frsize, disk.f_ffree);
            (most_bytes, most_files) = (most_bytes.max(bytes), most_files.max(files));
            if most_bytes - bytes < step && (most_files - files) * LEAST_FILE < step {
                continue;
            }
            (most_bytes, most_files) = (bytes, files);
            if let Err(error) = self.stop_writers().await {
                tracing::warn!(%error, "cannot tell who fills the disk");
            }
        }
    }

    /// Ends the processes of those that have written too much.
    async fn stop_writers(&self) -> Result<(), ProviderError> {
        let all = self.lock().clone();
        let over = blocking("look at what was written", move || {
            let over = all.into_iter().filter(|(_, shown)| {
                let mut left = FILES;
                let written = |dir| written_since(dir, shown.since, &mut left);
                shown.directories.iter().map(PathBuf::as_path).map(written).sum::<u64>()
                    > shown.limit
            });
            Ok(over.map(|(id, _)| id).collect::<Vec<_>>())
        })
        .await?;
        for id in over {
            let failed = |source| ProviderError::failed("reach a sandbox", source);
            let Some(host) = Host::connect(&self.places.join(id.as_str())).await.map_err(failed)?
            else {
                self.forget(&id);
                continue;
            };
            tracing::warn!(instance = %id, "a sandbox wrote more than its disk may hold");
            if let Some(shown) = self.lock().get_mut(&id) {
                shown.stopped += 1;
            }
            blocking("stop a sandbox that writes", move || {
                let groups = fs::read_to_string(format!("/proc/{}/cgroup", host.pid))?;
                let own = cgroup::path(&groups).ok_or(io::ErrorKind::NotFound)?;
                Cgroups::new(own)?.kill_but(host.pid)
            })
            .await?;
        }
        Ok(())
    }
}

/// What the sandboxes of a directory were shown, as an earlier server noted it.
fn noted(places: &Path) -> Vec<(InstanceId, Shown)> {
    let entries = fs::read_dir(places).into_iter().flatten().flatten();
    let noted = entries.filter_map(|entry| {
        let shown = serde_json::from_slice(&fs::read(entry.path().join(FILE)).ok()?).ok()?;
        Some((Label::read(&entry.path())?.instance_id, shown))
    });
    noted.collect()
}

/// Bytes of the files below a directory that were changed since then. No link is followed.
fn written_since(dir: &Path, since: i64, left: &mut usize) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let Ok(kind) = entry.metadata() else { continue };
        if kind.is_dir() {
            bytes += written_since(&entry.path(), since, left);
            if kind.ctime() >= since {
                bytes += LEAST_FILE;
            }
        } else if kind.ctime() >= since {
            bytes += (kind.blocks() * 512).max(LEAST_FILE);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_does_not_count() {
        let dir = std::env::temp_dir().join(format!("stead-warden-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        fs::write(dir.join("below/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", dir.join("out")).unwrap();
        let now = Timestamp::now().as_second();
        assert!(written_since(&dir, now - 60, &mut 100) >= 100_000);
        assert_eq!(written_since(&dir, now + 60, &mut 100), 0);
        for name in 0..50 {
            fs::write(dir.join(name.to_string()), "").unwrap();
        }
        assert!(written_since(&dir, now - 60, &mut 100) >= 100_000 + 50 * LEAST_FILE);
        let mut none = 0;
        assert_eq!(
            written_since(&dir, now - 60, &mut none),
            0,
            "no more are looked at than may be"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_small_limit_is_looked_at_often() {
        let warden = Warden::new(PathBuf::new());
        assert_eq!(warden.step(), None);
        let shown = |limit| Shown { directories: vec![], since: 0, limit, stopped: 0 };
        warden.lock().insert(InstanceId::fresh(), shown(8 << 30));
        assert_eq!(warden.step(), Some(1 << 30));
        warden.lock().insert(InstanceId::fresh(), shown(64 << 20));
        assert_eq!(warden.step(), Some(16 << 20));
    }
}
