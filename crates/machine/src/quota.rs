//! Disk quotas for writes of sandboxes outside of their own disks.
//!
//! A volume, or a workspace that is not on a disk of its own, is a directory of the machine, on a disk that all
//! sandboxes share and that has no quota. So the free space of that disk is polled. When it shrinks, the writes of each sandbox to its mounted
//! directories are counted. A sandbox that wrote more than its disk limit has its processes killed, except
//! the host; the files stay.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::label::InstanceLabel;
use base::durable::replace_volatile;
use cgroup::Cgroups;
use model::{InstanceId, Timestamp};
use provider::{HostSocket, ProviderError};

/// The interval between two checks of the free space.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The free space has to shrink by this part of the smallest limit, within these bounds, before the writes
/// of each sandbox are counted.
const STEP_DIVISOR: u64 = 8;
const MIN_STEP_BYTES: u64 = 16 << 20;
const MAX_STEP_BYTES: u64 = 1 << 30;

/// A file counts for at least one block: an empty file takes an inode.
const MIN_FILE_BYTES: u64 = 4096;

/// Further files of a sandbox are not counted.
const MAX_FILES: usize = 1 << 20;

/// The file in a sandbox's directory that contains its [`SharedWrites`].
const FILE: &str = "shown.json";

/// The directories of the machine that a sandbox may write to, and the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SharedWrites {
    directories: Vec<PathBuf>,
    /// When the first was mounted, in seconds since the epoch.
    since: i64,
    /// Bytes it may write there.
    limit: u64,
    /// How often it exceeded the limit.
    #[serde(default)]
    stopped: u64,
}

/// The quotas of all sandboxes of one provider.
#[derive(Debug)]
pub(crate) struct Quota {
    /// The directory of all instances, on the disk whose free space is polled.
    instances: PathBuf,
    shown: Mutex<HashMap<InstanceId, SharedWrites>>,
    /// Locked while [`FILE`] is written.
    writing: Mutex<()>,
}

impl Quota {
    pub(crate) fn new(instances: PathBuf) -> Self {
        Self { instances, shown: Mutex::default(), writing: Mutex::default() }
    }

    /// How often the processes of a sandbox were killed for exceeding the quota.
    pub(crate) fn exceeded(&self, id: &InstanceId) -> u64 {
        self.shown.lock().get(id).map_or(0, |shown| shown.stopped)
    }

    pub(crate) fn forget(&self, id: &InstanceId) {
        self.shown.lock().remove(id);
    }

    /// How much the free space has to shrink before writes are counted; `None` if there is no quota.
    fn step(&self) -> Option<u64> {
        let smallest = self.shown.lock().values().map(|shown| shown.limit).min()?;
        Some((smallest / STEP_DIVISOR).clamp(MIN_STEP_BYTES, MAX_STEP_BYTES))
    }

    /// Adds directories that a sandbox may write `limit` bytes to. Blocking.
    pub(crate) fn add(
        &self,
        id: &InstanceId,
        directories: impl IntoIterator<Item = PathBuf>,
        limit: u64,
    ) -> io::Result<()> {
        let _writing = self.writing.lock();
        let shown = {
            let mut all = self.shown.lock();
            let shown = all.entry(id.clone()).or_insert_with(|| SharedWrites {
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
        // Not synced: the sandbox does not survive a reboot either.
        replace_volatile(&self.instances.join(id.as_str()).join(FILE), &serde_json::to_vec(&shown)?)
    }

    /// Enforces the quotas until `stop` is cancelled.
    pub(crate) async fn enforce(&self, stop: CancellationToken) {
        let instances = self.instances.clone();
        let saved = blocking("read the disk quotas", move || Ok(saved(&instances))).await;
        for (id, shown) in saved.unwrap_or_default() {
            self.shown.lock().entry(id).or_insert(shown);
        }
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut max_bytes, mut max_files) = (0, 0);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            let Some(step) = self.step() else { continue };
            let instances = self.instances.clone();
            let checked =
                blocking("read the free space", move || Ok(rustix::fs::statvfs(instances)?));
            let Ok(disk) = checked.await else { continue };
            let (bytes, files) = (disk.f_bfree * disk.f_frsize, disk.f_ffree);
            (max_bytes, max_files) = (max_bytes.max(bytes), max_files.max(files));
            if max_bytes - bytes < step && (max_files - files) * MIN_FILE_BYTES < step {
                continue;
            }
            (max_bytes, max_files) = (bytes, files);
            if let Err(error) = self.kill_exceeding().await {
                tracing::warn!(%error, "cannot check the disk quotas");
            }
        }
    }

    /// Kills the processes of sandboxes that exceed their quota.
    async fn kill_exceeding(&self) -> Result<(), ProviderError> {
        let all = self.shown.lock().clone();
        let over = blocking("count the writes of sandboxes", move || {
            let over = all.into_iter().filter(|(_, shown)| {
                let mut left = MAX_FILES;
                let written = |dir| written_since(dir, shown.since, &mut left);
                shown.directories.iter().map(PathBuf::as_path).map(written).sum::<u64>()
                    > shown.limit
            });
            Ok(over.map(|(id, _)| id).collect::<Vec<_>>())
        })
        .await?;
        for id in over {
            let failed = |source| ProviderError::failed("connect to a sandbox", source);
            let dir = self.instances.join(id.as_str());
            let Some(host) = HostSocket::connect(&dir).await.map_err(failed)? else {
                self.forget(&id);
                continue;
            };
            tracing::warn!(instance = %id, "killing the processes of a sandbox that exceeds its disk quota");
            if let Some(shown) = self.shown.lock().get_mut(&id) {
                shown.stopped += 1;
            }
            blocking("kill the processes of a sandbox", move || {
                let groups = fs::read_to_string(format!("/proc/{}/cgroup", host.pid))?;
                let own = cgroup::path(&groups).ok_or(io::ErrorKind::NotFound)?;
                Cgroups::new(own)?.kill_all_but(host.pid)
            })
            .await?;
        }
        Ok(())
    }
}

/// The quotas that an earlier server saved.
fn saved(instances: &Path) -> Vec<(InstanceId, SharedWrites)> {
    let entries = fs::read_dir(instances).into_iter().flatten().flatten();
    let saved = entries.filter_map(|entry| {
        let shown = serde_json::from_slice(&fs::read(entry.path().join(FILE)).ok()?).ok()?;
        Some((InstanceLabel::read(&entry.path())?.instance_id, shown))
    });
    saved.collect()
}

/// The bytes of files below a directory that changed since a time. Links are not followed.
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
                bytes += MIN_FILE_BYTES;
            }
        } else if kind.ctime() >= since {
            bytes += (kind.blocks() * 512).max(MIN_FILE_BYTES);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_from_before_the_mount_do_not_count() {
        let dir = std::env::temp_dir().join(format!("stead-quota-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        fs::write(dir.join("below/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", dir.join("out")).unwrap();
        let now = Timestamp::now().as_second();
        assert!(written_since(&dir, now - 60, &mut 100) >= 100_000);
        assert_eq!(written_since(&dir, now + 60, &mut 100), 0);
        for name in 0..50 {
            fs::write(dir.join(name.to_string()), "").unwrap();
        }
        assert!(written_since(&dir, now - 60, &mut 100) >= 100_000 + 50 * MIN_FILE_BYTES);
        let mut none = 0;
        assert_eq!(
            written_since(&dir, now - 60, &mut none),
            0,
            "the number of counted files is bounded"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_small_limit_is_checked_after_fewer_bytes() {
        let quota = Quota::new(PathBuf::new());
        assert_eq!(quota.step(), None);
        let shown = |limit| SharedWrites { directories: vec![], since: 0, limit, stopped: 0 };
        quota.shown.lock().insert(InstanceId::fresh(), shown(8 << 30));
        assert_eq!(quota.step(), Some(1 << 30));
        quota.shown.lock().insert(InstanceId::fresh(), shown(64 << 20));
        assert_eq!(quota.step(), Some(16 << 20));
    }
}
