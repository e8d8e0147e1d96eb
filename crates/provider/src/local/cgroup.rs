//! The cgroup (version 2) of a host's terminals, on machines where a host can create one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::timing::POLL_INTERVAL;
use host::cgroup_directory;

/// A cgroup that exists.
#[derive(Debug, Clone)]
pub(super) struct InstanceCgroup {
    path: PathBuf,
}

/// The cgroup of an instance: `stead/<instance>` below the cgroup of its host.
pub(super) fn of_instance(host: i32, instance: &str) -> Option<PathBuf> {
    below(&host.to_string(), instance).filter(|path| path.join("cgroup.freeze").exists())
}

/// The cgroup that a host of this process will create for an instance, if it can.
pub(super) fn of_future_instance(instance: &str) -> Option<PathBuf> {
    below("self", instance)
}

fn below(process: &str, instance: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    Some(cgroup_directory(&mounts, &own)?.join("stead").join(instance))
}

impl InstanceCgroup {
    pub(super) fn open(path: PathBuf) -> Option<Self> {
        path.join("cgroup.freeze").exists().then_some(Self { path })
    }

    /// Whether it was frozen. The kernel may still be freezing it.
    pub(super) fn is_frozen(&self) -> bool {
        self.read("cgroup.freeze").is_some_and(|text| text.trim() == "1")
    }

    /// Whether a process is in it or in a child.
    pub(super) fn holds(&self, pid: i32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return false };
        let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
        cgroup_directory(&mounts, &text).is_some_and(|path| path.starts_with(&self.path))
    }

    /// Freezes all its processes, and waits until they are.
    pub(super) async fn freeze(&self, timeout: Duration) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "1")?;
        let frozen = self.wait("frozen 1", timeout).await;
        if frozen.is_err() {
            // All or nothing: a cgroup that cannot freeze completely is thawed.
            let _ = fs::write(self.path.join("cgroup.freeze"), "0");
        }
        frozen
    }

    /// Thaws all its processes, and waits until they are.
    pub(super) async fn thaw(&self, timeout: Duration) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "0")?;
        self.wait("frozen 0", timeout).await
    }

    /// Kills all its processes and removes it.
    pub(super) async fn kill(&self, timeout: Duration) -> io::Result<()> {
        if self.path.exists() {
            match fs::write(self.path.join("cgroup.kill"), "1") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.wait("populated 0", timeout).await?;
            remove(&self.path)?;
        }
        Ok(())
    }

    /// CPU time of all processes that ever ran in it, in microseconds.
    pub(super) fn cpu_us(&self) -> Option<u64> {
        let text = self.read("cpu.stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        line.trim().parse().ok()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    /// Waits for a line of `cgroup.events`. A removed cgroup is a success.
    async fn wait(&self, line: &str, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let Some(events) = self.read("cgroup.events") else { return Ok(()) };
            if events.lines().any(|event| event == line) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let path = self.path.display();
                return Err(io::Error::other(format!("{path} did not reach {line:?} in time")));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Removes an empty cgroup and its empty children.
fn remove(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
