//! The cgroups of a sandbox: one with the same path in every hierarchy of this machine.
//!
//! On machines with both versions, version 1 has the limits, and version 2 can freeze and kill. Each
//! operation uses the best that the machine has.

mod disk_reserve;
mod hierarchy;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use oci_spec::runtime::LinuxResources;

pub use disk_reserve::DiskReserve;
pub use hierarchy::path;
use hierarchy::{
    Hierarchy, enable_controllers, format_cpus, hierarchies, inherit_cpus, parse_cpus,
};

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How long [`Cgroups::kill_all_but`] kills processes that are created meanwhile.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The version 1 controllers of a sandbox.
const CONTROLLERS: [&str; 8] =
    ["memory", "pids", "cpu", "cpuacct", "cpuset", "blkio", "devices", "freezer"];

/// The version 1 file with the write rate limit of each device.
const WRITE_RATES: &str = "blkio.throttle.write_bps_device";

/// The cgroups of one sandbox.
#[derive(Debug, Clone)]
pub struct Cgroups {
    hierarchies: Arc<[Hierarchy]>,
    /// The path in each hierarchy, with a leading slash.
    path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupUsage {
    pub cpu_us: u64,
    pub memory_bytes: u64,
    pub processes: u64,
}

/// How often limits were reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReachedLimits {
    /// Processes that were killed because the memory was full.
    pub out_of_memory: u64,
    /// Processes that could not be started.
    pub processes: u64,
}

impl Cgroups {
    /// The cgroups with this path, whether they exist or not.
    pub fn new(path: &str) -> io::Result<Self> {
        // Hierarchies are mounted before any server starts.
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

    /// Whether this machine can limit memory, processes and CPU time.
    pub fn can_limit(&self) -> bool {
        ["memory", "pids", "cpu"].iter().all(|name| self.with(name).is_some())
    }

    /// Creates the cgroups with these limits.
    pub fn create(&self, limits: &LinuxResources) -> io::Result<()> {
        for hierarchy in self.joined() {
            let dir = self.dir(hierarchy);
            fs::create_dir_all(&dir)?;
            if hierarchy.controllers.is_empty() {
                enable_controllers(&hierarchy.mount, &dir)?;
            }
            if hierarchy.has("cpuset") {
                inherit_cpus(&hierarchy.mount, &dir)?;
            }
        }
        self.limit(limits)
    }

    /// Sets the limits, or replaces them.
    pub fn limit(&self, limits: &LinuxResources) -> io::Result<()> {
        let number = |value: Option<i64>| value.unwrap_or(-1).to_string();
        if let Some(memory) = limits.memory() {
            let (limit, swap) = (number(memory.limit()), number(memory.swap()));
            if self.is_v1("memory") {
                // The limit with swap must never be the smaller one, so it is set before a raise and after a
                // cut. Not every machine has it.
                let with_swap = || self.set("memory", "memory.memsw.limit_in_bytes", &swap);
                let _ = with_swap();
                self.set("memory", "memory.limit_in_bytes", &limit)?;
                let _ = with_swap();
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
            self.set_cpu_shares(shares)?;
            if self.is_v1("cpu") {
                self.set("cpu", "cpu.cfs_period_us", &period.to_string())?;
                self.set("cpu", "cpu.cfs_quota_us", &quota)?;
            } else {
                self.set("cpu", "cpu.max", &format!("{quota} {period}"))?;
            }
        }
        Ok(())
    }

    /// Sets the share of contended CPUs.
    pub fn set_cpu_shares(&self, shares: u64) -> io::Result<()> {
        if self.is_v1("cpu") {
            return self.set("cpu", "cpu.shares", &shares.to_string());
        }
        // Shares are 2 to 262,144, and weights 1 to 10,000.
        let weight = 1 + (shares.saturating_sub(2) * 9999) / 262_142;
        self.set("cpu", "cpu.weight", &weight.to_string())
    }

    /// Limits the bytes per second that the cgroups in these write to a device; 0 removes the limit. Does nothing
    /// if the kernel cannot limit writes.
    ///
    /// Version 2 charges delayed writes of programs to their cgroup, and limits all cgroups in this one together.
    /// Version 1 charges them to the root cgroup, so there the device itself is limited; direct writes are limited
    /// in each cgroup.
    pub fn limit_writes(&self, device: &str, rate: u64) -> io::Result<()> {
        if self.is_v1("blkio")
            && let Some(blkio) = self.with("blkio")
        {
            let limit = format!("{device} {rate}");
            for entry in fs::read_dir(self.dir(blkio)).into_iter().flatten().flatten() {
                // Its sandbox may end meanwhile.
                let _ = fs::write(entry.path().join(WRITE_RATES), &limit);
            }
            return fs::write(blkio.mount.join(WRITE_RATES), limit);
        }
        if self.with("io").is_none() {
            return Ok(());
        }
        let rate = if rate == 0 { "max".to_owned() } else { rate.to_string() };
        self.set("io", "io.max", &format!("{device} wbps={rate}"))
    }

    /// Whether this machine can limit writes to a device.
    pub fn can_limit_writes(&self) -> bool {
        self.with("blkio").or_else(|| self.with("io")).is_some()
    }

    /// The loop devices with a limit that [`Self::limit_writes`] set.
    pub fn limited_devices(&self) -> Vec<String> {
        let text = match self.with("blkio").filter(|_| self.is_v1("blkio")) {
            Some(blkio) => fs::read_to_string(blkio.mount.join(WRITE_RATES)).unwrap_or_default(),
            None => self.file("io", "io.max").unwrap_or_default(),
        };
        let limited = |line: &&str| line.starts_with("7:") && !line.contains("wbps=max");
        let devices = text.lines().filter(limited);
        devices.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
    }

    /// Whether this machine can restrict sandboxes to some CPUs.
    pub fn can_restrict_cpus(&self) -> bool {
        self.with("cpuset").is_some()
    }

    /// Keeps all processes off the first `count` CPUs of the machine, but never off all. 0 allows every
    /// CPU.
    pub fn avoid_first_cpus(&self, count: usize) -> io::Result<()> {
        let all = self.parent_cpus()?;
        let count = count.min(all.len().saturating_sub(1));
        let list = match (count, self.is_v1("cpuset")) {
            // In version 2, an empty list means the CPUs of the parent.
            (0, false) => "\n".to_owned(),
            _ => format_cpus(&all[count..]),
        };
        self.set("cpuset", "cpuset.cpus", &list)
    }

    /// Whether some of the machine's CPUs are excluded.
    pub fn avoids_cpus(&self) -> bool {
        let own = self.file("cpuset", "cpuset.cpus").unwrap_or_default();
        let own = parse_cpus(&own);
        !own.is_empty() && self.parent_cpus().is_ok_and(|all| own.len() < all.len())
    }

    /// The CPUs of the parent.
    fn parent_cpus(&self) -> io::Result<Vec<usize>> {
        let missing = || io::Error::other("this machine has no cgroup for cpuset");
        let dir = self.with("cpuset").map(|hierarchy| self.dir(hierarchy)).ok_or_else(missing)?;
        let parent = dir.parent().unwrap_or(&dir);
        let name = if self.is_v1("cpuset") { "cpuset.cpus" } else { "cpuset.cpus.effective" };
        Ok(parse_cpus(&fs::read_to_string(parent.join(name))?))
    }

    /// Moves a process into the cgroups.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        for hierarchy in self.joined() {
            fs::write(self.dir(hierarchy).join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Denies access to all devices except harmless ones and terminals. Without a devices controller,
    /// programs
    /// still cannot create devices, and only these are mounted.
    pub fn deny_devices(&self) -> io::Result<()> {
        if self.with("devices").is_none() {
            return Ok(());
        }
        self.set("devices", "devices.deny", "a")?;
        for device in ["1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:2", "136:*"] {
            self.set("devices", "devices.allow", &format!("c {device} rw"))?;
        }
        Ok(())
    }

    /// The hierarchies that a sandbox is in.
    fn joined(&self) -> impl Iterator<Item = &Hierarchy> {
        self.hierarchies.iter().filter(|hierarchy| {
            let wanted = |name: &String| CONTROLLERS.contains(&name.as_str());
            hierarchy.controllers.is_empty() || hierarchy.controllers.iter().any(wanted)
        })
    }

    /// Whether a controller is in a hierarchy of version 1.
    fn is_v1(&self, controller: &str) -> bool {
        self.with(controller).is_some_and(|hierarchy| !hierarchy.controllers.is_empty())
    }

    fn set(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        let missing = || io::Error::other(format!("this machine has no cgroup for {controller}"));
        let hierarchy = self.with(controller).ok_or_else(missing)?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
        fs::write(self.dir(hierarchy).join(file), value).map_err(named)
    }

    /// Freezes all processes, and waits until they are.
    pub fn freeze(&self, timeout: Duration) -> io::Result<()> {
        if let Some(dir) = self.unified("cgroup.freeze") {
            fs::write(dir.join("cgroup.freeze"), "1")?;
            return wait(timeout, || line(&dir.join("cgroup.events"), "frozen 1"));
        }
        let dir = self.freezer()?;
        wait(timeout, || {
            // A process that is forked meanwhile is only frozen by another write.
            fs::write(dir.join("freezer.state"), "FROZEN").is_ok()
                && line(&dir.join("freezer.state"), "FROZEN")
        })
    }

    /// Thaws all processes, and waits until they are.
    pub fn thaw(&self, timeout: Duration) -> io::Result<()> {
        if let Some(dir) = self.unified("cgroup.freeze") {
            fs::write(dir.join("cgroup.freeze"), "0")?;
            return wait(timeout, || line(&dir.join("cgroup.events"), "frozen 0"));
        }
        let dir = self.freezer()?;
        fs::write(dir.join("freezer.state"), "THAWED")?;
        wait(timeout, || line(&dir.join("freezer.state"), "THAWED"))
    }

    /// Whether they were frozen. The kernel may still be freezing them.
    pub fn is_frozen(&self) -> bool {
        // A machine may have both versions, and an engine may use the other one.
        let unified = |dir: PathBuf| line(&dir.join("cgroup.freeze"), "1");
        let state = |dir: PathBuf| {
            let state = fs::read_to_string(dir.join("freezer.state"));
            state.is_ok_and(|state| state.trim() != "THAWED")
        };
        self.unified("cgroup.freeze").is_some_and(unified) || self.freezer().is_ok_and(state)
    }

    /// Kills all processes and removes the cgroups. A missing cgroup is a success.
    pub fn kill(&self, timeout: Duration) -> io::Result<()> {
        let dirs: Vec<PathBuf> = self.dirs().collect();
        wait(timeout, || {
            let mut empty = true;
            for dir in &dirs {
                let _ = fs::write(dir.join("cgroup.kill"), "1");
                for pid in members(dir) {
                    empty = false;
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            // A frozen process dies only when it is thawed.
            let _ = self.thaw(Duration::ZERO);
            // A runtime that is still starting may have added a process since.
            empty && dirs.iter().all(|dir| remove(dir))
        })
    }

    /// Kills all processes but one, and those that are forked in the next [`KILL_TIMEOUT`].
    pub fn kill_all_but(&self, spared: i32) -> io::Result<()> {
        let Some(dir) = self.with("pids").map(|hierarchy| self.dir(hierarchy)) else {
            return Ok(());
        };
        wait(KILL_TIMEOUT, || {
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

    pub fn usage(&self) -> CgroupUsage {
        let memory = self.file("memory", "memory.usage_in_bytes");
        let memory = memory.or_else(|| self.file("memory", "memory.current"));
        CgroupUsage {
            cpu_us: self.cpu_us(),
            memory_bytes: memory.and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            // Not `pids.current`, which also counts threads.
            processes: self.with("pids").map_or(0, |h| members(&self.dir(h)).len() as u64),
        }
    }

    /// The CPU time of all processes, including those that have ended.
    pub fn cpu_us(&self) -> u64 {
        match self.file("cpuacct", "cpuacct.usage") {
            Some(text) => text.trim().parse::<u64>().unwrap_or(0) / 1000,
            None => self
                .file("cpu", "cpu.stat")
                .and_then(|text| field(&text, "usage_usec"))
                .unwrap_or(0),
        }
    }

    /// How often the limits were reached.
    #[must_use]
    pub fn exceeded(&self) -> ReachedLimits {
        let memory = self.file("memory", "memory.oom_control");
        let memory = memory.or_else(|| self.file("memory", "memory.events"));
        let processes = self.file("pids", "pids.events");
        ReachedLimits {
            out_of_memory: memory.and_then(|text| field(&text, "oom_kill")).unwrap_or(0),
            processes: processes.and_then(|text| field(&text, "max")).unwrap_or(0),
        }
    }

    fn file(&self, controller: &str, name: &str) -> Option<String> {
        fs::read_to_string(self.dir(self.with(controller)?).join(name)).ok()
    }

    fn with(&self, controller: &str) -> Option<&Hierarchy> {
        let named = |h: &&Hierarchy| h.has(controller);
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

    /// The directory in the hierarchy of version 2, if it has a file of this name.
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

/// The processes in a cgroup and its children.
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

/// Removes a cgroup and its children. Returns whether it no longer exists.
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

/// Polls until a condition holds.
fn wait(timeout: Duration, mut holds: impl FnMut() -> bool) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        if holds() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
