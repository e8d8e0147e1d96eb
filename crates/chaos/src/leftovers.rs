//! Checks that a run leaves nothing on the machine.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::server::{POLL_INTERVAL, RunDirectory, cgroups};

/// How long removal may take after the last thread was deleted.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Names that belong to this run, collected while its instances exist.
#[derive(Debug, Default, Clone)]
pub struct Traces {
    instances: BTreeSet<String>,
    links: BTreeSet<String>,
    hosts: BTreeSet<i32>,
}

impl Traces {
    /// Records the names of everything that exists now.
    pub fn collect(&mut self, directory: &RunDirectory) {
        for instance in directory.instances() {
            if let Some(name) = instance.file_name() {
                self.instances.insert(name.to_string_lossy().into_owned());
            }
            if let Ok(link) = fs::read_to_string(instance.join("wire")) {
                self.links.extend(link.split_whitespace().next().map(str::to_owned));
            }
        }
        self.hosts.extend(directory.hosts());
    }

    /// Waits until nothing is left; after the timeout, returns what is left.
    #[must_use]
    pub fn wait_until_gone(&self, directory: &RunDirectory, servers: &[i32]) -> BTreeSet<String> {
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        loop {
            let left = self.left(directory, servers);
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(10 * POLL_INTERVAL);
        }
    }

    fn left(&self, directory: &RunDirectory, servers: &[i32]) -> BTreeSet<String> {
        let mut left = BTreeSet::new();
        files(&directory.home(), &mut left);
        processes(directory.path(), servers, &mut left);
        for instance in &self.instances {
            left.extend(cgroups(instance).iter().map(|path| format!("cgroup {}", path.display())));
        }
        let home = directory.home().to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = format!(" {home}/");
        // Disks of workspaces belong to projects, which exist.
        let workspaces = format!("{home}/workspaces/");
        let is_left = |line: &&str| line.contains(&below) && !line.contains(&workspaces);
        left.extend(mounts.lines().filter(is_left).map(|line| format!("mount {line}")));
        for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = fs::read_to_string(device.path().join("loop/backing_file"));
            if let Some(file) = file.ok().filter(|f| {
                f.starts_with(&home) && !f.contains("/warm-") && !f.starts_with(&workspaces)
            }) {
                left.insert(format!("loop device of {}", file.trim()));
            }
        }
        if !self.links.is_empty() {
            let rules = Command::new("nft").args(["list", "ruleset"]).output();
            let rules = rules.map(|output| output.stdout).unwrap_or_default();
            let rules = String::from_utf8_lossy(&rules);
            for link in &self.links {
                if Path::new("/sys/class/net").join(link).exists() {
                    left.insert(format!("interface {link}"));
                }
                if rules.contains(&format!("\"{link}\"")) {
                    left.insert(format!("nft rule for {link}"));
                }
            }
        }
        for owner in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if !owner.file_name().to_string_lossy().starts_with(".stead-") {
                continue;
            }
            for entry in fs::read_dir(owner.path()).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let host = name.split('.').nth(1).and_then(|pid| pid.parse().ok());
                if host.is_some_and(|pid: i32| self.hosts.contains(&pid) && !is_alive(pid)) {
                    left.insert(format!("files in memory {}", entry.path().display()));
                }
            }
        }
        left
    }
}

fn is_alive(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn files(home: &Path, left: &mut BTreeSet<String>) {
    for part in ["run", "sandboxes", "disks", "containers", "container-disks", "terminals"] {
        for entry in fs::read_dir(home.join(part)).into_iter().flatten().flatten() {
            // The pool keeps sandboxes ready; they belong to the server, not to a thread.
            if !entry.file_name().to_string_lossy().starts_with("warm-") {
                left.insert(format!("file {}", entry.path().display()));
            }
        }
    }
}

/// Finds processes that were started below the run's directory, by their arguments, environment or directory.
fn processes(directory: &Path, servers: &[i32], left: &mut BTreeSet<String>) {
    let needle = directory.to_string_lossy().into_owned();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if servers.contains(&pid) || pid == std::process::id().cast_signed() {
            continue;
        }
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let (command, environment) = (read("cmdline"), read("environ"));
        let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let contains =
            |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
        let pool = command.windows(6).any(|window| window == b"/warm-");
        if !pool && (contains(&command) || contains(&environment) || cwd.starts_with(directory)) {
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            // A process between fork and exec still has the server's arguments for a moment.
            left.insert(format!("process {pid}: {command}"));
        }
    }
}
