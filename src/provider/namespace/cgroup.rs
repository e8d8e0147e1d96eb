//! The cgroups of a sandbox: one of the same name in every hierarchy this machine has.
//!
//! Version 1 has the limits on machines with both; version 2 has freezing and killing. Each
//! operation takes the best that is there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use oci_spec::runtime::LinuxResources;

use crate::provider::Exceeded;

/// A version 1 controller, or the one hierarchy of version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    /// The controllers; empty for version 2.
    controllers: Vec<String>,
    mount: PathBuf,
}

/// The cgroups of one sandbox.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Cgroups {
    hierarchies: Arc<[Hierarchy]>,
    /// The path in each, with its slash.
    path: String,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::provider) struct Usage {
    pub(in crate::provider) cpu_us: u64,
    pub(in crate::provider) memory_bytes: u64,
    pub(in crate::provider) processes: u64,
}

impl Cgroups {
    /// The cgroups with this path on this machine.
    pub(in crate::provider) fn new(path: &str) -> io::Result<Self> {
        // Where they are mounted is settled before any server starts.
        static MOUNTED: OnceLock<Arc<[Hierarchy]>> = OnceLock::new();
        let hierarchies = match MOUNTED.get() {
            Some(mounted) => mounted.clone(),
            None => {
                let mounts = fs::read_to_string("/proc/self/mountinfo")?;
                MOUNTED.get_or_init(|| hierarchies(&mounts).into()).clone()
            }
        };
        Ok(Self { hierarchies, path: path.to_owned() })
    }

    /// Whether memory, processes and processor time can be limited here.
    pub(super) fn limits(&self) -> bool {
        ["memory", "pids", "cpu"].iter().all(|name| self.with(name).is_some())
    }

    /// Makes it, with these limits.
    pub(super) fn make(&self, limits: &LinuxResources) -> io::Result<()> {
        for hierarchy in self.joined() {
            let dir = self.dir(hierarchy);
            fs::create_dir_all(&dir)?;
            if hierarchy.controllers.is_empty() {
                hand_down(&hierarchy.mount, &dir)?;
            }
        }
        let number = |value: Option<i64>| value.unwrap_or(-1).to_string();
        if let Some(memory) = limits.memory() {
            let (limit, swap) = (number(memory.limit()), number(memory.swap()));
            if self.is_old("memory") {
                self.set("memory", "memory.limit_in_bytes", &limit)?;
                // Not on every machine.
                let _ = self.set("memory", "memory.memsw.limit_in_bytes", &swap);
            } else {
                self.set("memory", "memory.max", &limit)?;
                let _ = self.set("memory", "memory.swap.max", "0");
            }
        }
        if let Some(pids) = limits.pids() {
            self.set("pids", "pids.max", &pids.limit().to_string())?;
        }
        if let Some(cpu) = limits.cpu() {
            let (period, shares) = (cpu.period().unwrap_or(100_000), cpu.shares().unwrap_or(1024));
            let quota = number(cpu.quota());
            if self.is_old("cpu") {
                self.set("cpu", "cpu.shares", &shares.to_string())?;
                self.set("cpu", "cpu.cfs_period_us", &period.to_string())?;
                self.set("cpu", "cpu.cfs_quota_us", &quota)?;
            } else {
                // Of 2 to 262,144 shares to 1 to 10,000 of weight.
                let weight = 1 + (shares.saturating_sub(2) * 9999) / 262_142;
                self.set("cpu", "cpu.weight", &weight.to_string())?;
                self.set("cpu", "cpu.max", &format!("{quota} {period}"))?;
            }
        }
        Ok(())
    }

    /// Takes a process in.
    pub(super) fn take_in(&self, pid: u32) -> io::Result<()> {
        for hierarchy in self.joined() {
            fs::write(self.dir(hierarchy).join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Denies whatever is in it all devices but the harmless ones and its terminals. Where there is no
    /// such controller, nobody inside can make a device, and none but these is shown.
    pub(super) fn deny_devices(&self) -> io::Result<()> {
        if self.with("devices").is_none() {
            return Ok(());
        }
        self.set("devices", "devices.deny", "a")?;
        for device in ["1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:2", "136:*"] {
            self.set("devices", "devices.allow", &format!("c {device} rw"))?;
        }
        Ok(())
    }

    /// The hierarchies that bound, count or hold something of a sandbox.
    fn joined(&self) -> impl Iterator<Item = &Hierarchy> {
        self.hierarchies.iter().filter(|hierarchy| {
            let wanted = |name: &String| JOINED.contains(&name.as_str());
            hierarchy.controllers.is_empty() || hierarchy.controllers.iter().any(wanted)
        })
    }

    /// Whether a controller is one of version 1.
    fn is_old(&self, controller: &str) -> bool {
        self.with(controller).is_some_and(|hierarchy| !hierarchy.controllers.is_empty())
    }

    fn set(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        let missing = || io::Error::other(format!("this machine has no cgroup for {controller}"));
        let hierarchy = self.with(controller).ok_or_else(missing)?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
        fs::write(self.dir(hierarchy).join(file), value).map_err(named)
    }

    /// Makes everything in it hold still; returns when it does.
    pub(super) fn freeze(&self, patience: Duration) -> io::Result<()> {
        if let Some(dir) = self.unified("cgroup.freeze") {
            fs::write(dir.join("cgroup.freeze"), "1")?;
            return wait(patience, || line(&dir.join("cgroup.events"), "frozen 1"));
        }
        let dir = self.freezer()?;
        wait(patience, || {
            // A process that is being made meanwhile is only caught by asking again.
            fs::write(dir.join("freezer.state"), "FROZEN").is_ok()
                && line(&dir.join("freezer.state"), "FROZEN")
        })
    }

    /// Makes everything in it go on.
    pub(super) fn thaw(&self, patience: Duration) -> io::Result<()> {
        if let Some(dir) = self.unified("cgroup.freeze") {
            fs::write(dir.join("cgroup.freeze"), "0")?;
            return wait(patience, || line(&dir.join("cgroup.events"), "frozen 0"));
        }
        let dir = self.freezer()?;
        fs::write(dir.join("freezer.state"), "THAWED")?;
        wait(patience, || line(&dir.join("freezer.state"), "THAWED"))
    }

    /// Whether it was told to hold still.
    pub(in crate::provider) fn is_frozen(&self) -> bool {
        // An engine takes the one, we take the other, and both may be there.
        let told = |dir: PathBuf| line(&dir.join("cgroup.freeze"), "1");
        let state = |dir: PathBuf| {
            let state = fs::read_to_string(dir.join("freezer.state"));
            state.is_ok_and(|state| state.trim() != "THAWED")
        };
        self.unified("cgroup.freeze").is_some_and(told) || self.freezer().is_ok_and(state)
    }

    /// Ends everything in it and removes it. One that is not there is a success.
    pub(super) fn kill(&self, patience: Duration) -> io::Result<()> {
        let dirs: Vec<PathBuf> = self.dirs().collect();
        wait(patience, || {
            let mut empty = true;
            for dir in &dirs {
                let _ = fs::write(dir.join("cgroup.kill"), "1");
                for pid in members(dir) {
                    empty = false;
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            // What is frozen dies only when it goes on.
            let _ = self.thaw(Duration::ZERO);
            // Looked at anew each time: a runtime that is at work may have put something in since.
            empty && dirs.iter().all(|dir| remove(dir))
        })
    }

    /// Ends everything in it but one process; for a while at most, as more may be made meanwhile.
    pub(super) fn kill_but(&self, spared: i32) -> io::Result<()> {
        let Some(dir) = self.with("pids").map(|hierarchy| self.dir(hierarchy)) else {
            return Ok(());
        };
        wait(Duration::from_secs(2), || {
            let others =
                members(&dir).into_iter().filter(|pid| pid.as_raw_nonzero().get() != spared);
            let killed = others.map(|pid| {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
            });
            killed.filter(|killed| *killed).count() == 0
        })
        .or_else(|error| match error.kind() {
            io::ErrorKind::TimedOut => Ok(()),
            _ => Err(error),
        })
    }

    /// What it uses.
    pub(in crate::provider) fn usage(&self) -> Usage {
        let memory = self.file("memory", "memory.usage_in_bytes");
        let memory = memory.or_else(|| self.file("memory", "memory.current"));
        let cpu_us = match self.file("cpuacct", "cpuacct.usage") {
            Some(text) => text.trim().parse::<u64>().unwrap_or(0) / 1000,
            None => self
                .file("cpu", "cpu.stat")
                .and_then(|text| field(&text, "usage_usec"))
                .unwrap_or(0),
        };
        Usage {
            cpu_us,
            memory_bytes: memory.and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            // The kernel counts threads, too.
            processes: self.with("pids").map_or(0, |h| members(&self.dir(h)).len() as u64),
        }
    }

    /// What was killed or refused for going beyond a limit.
    pub(in crate::provider) fn exceeded(&self) -> Exceeded {
        let memory = self.file("memory", "memory.oom_control");
        let memory = memory.or_else(|| self.file("memory", "memory.events"));
        let processes = self.file("pids", "pids.events");
        Exceeded {
            out_of_memory: memory.and_then(|text| field(&text, "oom_kill")).unwrap_or(0),
            processes: processes.and_then(|text| field(&text, "max")).unwrap_or(0),
            disk: 0,
        }
    }

    fn file(&self, controller: &str, name: &str) -> Option<String> {
        fs::read_to_string(self.dir(self.with(controller)?).join(name)).ok()
    }

    /// The hierarchy that has a controller.
    fn with(&self, controller: &str) -> Option<&Hierarchy> {
        let named = |h: &&Hierarchy| h.controllers.iter().any(|name| name == controller);
        self.hierarchies.iter().find(named).or_else(|| {
            self.hierarchies.iter().find(|hierarchy| {
                let all = fs::read_to_string(hierarchy.mount.join("cgroup.controllers"));
                hierarchy.controllers.is_empty()
                    && all.is_ok_and(|all| all.split_whitespace().any(|name| name == controller))
            })
        })
    }

    fn freezer(&self) -> io::Result<PathBuf> {
        let none = || io::Error::other("this machine has no cgroup that can be frozen");
        Ok(self.dir(self.with("freezer").ok_or_else(none)?))
    }

    /// The directory in version 2's hierarchy, if it is there and has a file of this name.
    fn unified(&self, file: &str) -> Option<PathBuf> {
        let unified = self.hierarchies.iter().find(|h| h.controllers.is_empty())?;
        Some(self.dir(unified)).filter(|dir| dir.join(file).exists())
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.hierarchies.iter().map(|hierarchy| self.dir(hierarchy))
    }

    fn dir(&self, hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.mount.join(self.path.trim_start_matches('/'))
    }
}

/// The path that a process has in the hierarchies with the limits, from its `/proc/PID/cgroup`.
pub(in crate::provider) fn path(of_process: &str) -> Option<&str> {
    let lines = || of_process.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let limited = |(names, _): &(&str, &str)| names.split(',').any(|name| name == "memory");
    let found = lines().find(limited).or_else(|| lines().find(|(names, _)| names.is_empty()));
    found.map(|(_, path)| path)
}

fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let found = mountinfo.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let mut rest = rest.split(' ');
        let (kind, options) = (rest.next()?, rest.nth(1)?);
        let at = PathBuf::from(mount.split(' ').nth(4)?);
        match kind {
            "cgroup2" => Some(Hierarchy { controllers: vec![], mount: at }),
            "cgroup" => Some(Hierarchy {
                controllers: options
                    .split(',')
                    .filter(|word| !matches!(*word, "rw" | "ro"))
                    .map(str::to_owned)
                    .collect(),
                mount: at,
            }),
            _ => None,
        }
    });
    let mut list: Vec<Hierarchy> = Vec::new();
    for hierarchy in found {
        // One that is mounted twice is still one.
        if !list.iter().any(|known| known.controllers == hierarchy.controllers) {
            list.push(hierarchy);
        }
    }
    list
}

/// The controllers of version 1 that a sandbox is under.
const JOINED: [&str; 6] = ["memory", "pids", "cpu", "cpuacct", "devices", "freezer"];

/// Lets the limits of version 2 hold below everything from the mount down to above `dir`.
fn hand_down(mount: &Path, dir: &Path) -> io::Result<()> {
    let Ok(below) = dir.strip_prefix(mount) else { return Ok(()) };
    let mut at = mount.to_owned();
    for name in below {
        let has = fs::read_to_string(at.join("cgroup.controllers"))?;
        let on = fs::read_to_string(at.join("cgroup.subtree_control"))?;
        let word = |text: &str, wanted: &str| text.split_whitespace().any(|name| name == wanted);
        for controller in ["memory", "pids", "cpu"] {
            if word(&has, controller) && !word(&on, controller) {
                fs::write(at.join("cgroup.subtree_control"), format!("+{controller}"))?;
            }
        }
        at.push(name);
    }
    Ok(())
}

fn members(dir: &Path) -> Vec<rustix::process::Pid> {
    let mut pids: Vec<_> = fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?))
        .collect();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            pids.extend(members(&entry.path()));
        }
    }
    pids
}

/// Removes a cgroup and those below it; whether it is gone.
fn remove(dir: &Path) -> bool {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !remove(&entry.path()) {
            return false;
        }
    }
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn line(file: &Path, wanted: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line.trim() == wanted))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Looks until a condition holds.
fn wait(patience: Duration, mut holds: impl FnMut() -> bool) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        if holds() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
31 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:4 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 25 0:29 / /elsewhere rw,relatime - cgroup2 cgroup2 rw
35 25 0:30 / /proc rw - proc proc rw
";

    #[test]
    fn both_versions_are_seen_side_by_side() {
        let list = hierarchies(HYBRID);
        let seen: Vec<(&str, &str)> = list
            .iter()
            .map(|h| (h.mount.to_str().unwrap(), h.controllers.first().map_or("", String::as_str)))
            .collect();
        assert_eq!(
            seen,
            [
                ("/sys/fs/cgroup/cpu", "cpu"),
                ("/sys/fs/cgroup/memory", "memory"),
                ("/sys/fs/cgroup/systemd", "name=systemd"),
                ("/sys/fs/cgroup/unified", ""),
            ]
        );
    }

    #[test]
    fn a_process_is_where_its_limits_are() {
        let both = "4:cpu,cpuacct:/a\n3:memory:/engine/x:y\n0::/\n";
        assert_eq!(path(both), Some("/engine/x:y"));
        assert_eq!(path("0::/engine/x\n"), Some("/engine/x"));
        assert_eq!(path(""), None);
    }

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(field(text, "oom_kill"), Some(3));
        assert_eq!(field(text, "oom"), None);
    }
}
