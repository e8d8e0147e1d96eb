//! The cgroup (version 2) that a host puts its terminals into, where there is one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::LOOK;

/// A cgroup that exists.
#[derive(Debug, Clone)]
pub(super) struct Cgroup {
    path: PathBuf,
}

/// The cgroup of an instance whose host has this process id: beside the host's own, by the instance's
/// name.
pub(super) fn of_instance(host: i32, instance: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string(format!("/proc/{host}/cgroup")).ok()?;
    let path = directory(&mounts, &own)?.join("stead").join(instance);
    path.join("cgroup.freeze").exists().then_some(path)
}

impl Cgroup {
    /// The cgroup at this path, if it exists.
    pub(super) fn open(path: PathBuf) -> Option<Self> {
        path.join("cgroup.freeze").exists().then_some(Self { path })
    }

    /// Whether everything in it was told to hold still.
    pub(super) fn is_frozen(&self) -> bool {
        self.read("cgroup.freeze").is_some_and(|text| text.trim() == "1")
    }

    /// Whether a process is in it, or in one below.
    pub(super) fn holds(&self, pid: i32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return false };
        let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
        directory(&mounts, &text).is_some_and(|path| path.starts_with(&self.path))
    }

    /// Makes everything in it hold still; returns when it does.
    pub(super) async fn freeze(&self, patience: Duration) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "1")?;
        let frozen = self.wait("frozen 1", patience).await;
        if frozen.is_err() {
            // All or nothing: what cannot be frozen whole goes on whole.
            let _ = fs::write(self.path.join("cgroup.freeze"), "0");
        }
        frozen
    }

    /// Makes everything in it go on; returns when it does, or when it has been told.
    pub(super) async fn thaw(&self, patience: Duration) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "0")?;
        self.wait("frozen 0", patience).await
    }

    /// Ends everything in it and removes it.
    pub(super) async fn kill(&self, patience: Duration) -> io::Result<()> {
        if self.path.exists() {
            match fs::write(self.path.join("cgroup.kill"), "1") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.wait("populated 0", patience).await?;
            remove(&self.path)?;
        }
        Ok(())
    }

    /// Processor time of everything that ever ran in it, in microseconds.
    pub(super) fn cpu_us(&self) -> Option<u64> {
        let text = self.read("cpu.stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        line.trim().parse().ok()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    /// Waits for a line of its events. One that does not exist any more has nothing to wait for.
    async fn wait(&self, line: &str, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let Some(events) = self.read("cgroup.events") else { return Ok(()) };
            if events.lines().any(|event| event == line) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let path = self.path.display();
                return Err(io::Error::other(format!("{path} does not come to {line:?}")));
            }
            sleep(LOOK).await;
        }
    }
}

/// Removes an empty cgroup and the empty ones below it.
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

/// The directory of a process's cgroup, from what the kernel says of mounts and of the process.
fn directory(mountinfo: &str, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}
