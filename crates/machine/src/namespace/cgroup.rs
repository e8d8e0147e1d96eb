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

use provider::Exceeded;

/// A version 1 controller, or the one hierarchy of version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    /// The controllers; empty for version 2.
    controllers: Vec<String>,
    mount: PathBuf,
}

impl Hierarchy {
    /// Whether it is this controller's, in version 1.
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// The cgroups of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    hierarchies: Arc<[Hierarchy]>,
    /// The path in each, with its slash.
    path: String,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_us: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
}

impl Cgroups {
    /// The cgroups with this path on this machine.
    pub(crate) fn new(path: &str) -> io::Result<Self> {
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
            if hierarchy.has("cpuset") {
                inherit_processors(&hierarchy.mount, &dir)?;
            }
        }
        self.limit(limits)
    }

    /// Sets what it may use; of what is there already, other limits.
    pub(super) fn limit(&self, limits: &LinuxResources) -> io::Result<()> {
        let number = |value: Option<i64>| value.unwrap_or(-1).to_string();
        if let Some(memory) = limits.memory() {
            let (limit, swap) = (number(memory.limit()), number(memory.swap()));
            if self.is_old("memory") {
                // Not on every machine. Neither may pass the other on its way, up or down.
                let all = || self.set("memory", "memory.memsw.limit_in_bytes", &swap);
                let _ = all();
                self.set("memory", "memory.limit_in_bytes", &limit)?;
                let _ = all();
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
            self.weigh(shares)?;
            if self.is_old("cpu") {
                self.set("cpu", "cpu.cfs_period_us", &period.to_string())?;
                self.set("cpu", "cpu.cfs_quota_us", &quota)?;
            } else {
                self.set("cpu", "cpu.max", &format!("{quota} {period}"))?;
            }
        }
        let devices =
            limits.block_io().as_ref().and_then(|disks| disks.throttle_write_bps_device().as_ref());
        for device in devices.into_iter().flatten() {
            let number = format!("{}:{}", device.major(), device.minor());
            self.pace_writing(&number, device.rate())?;
        }
        Ok(())
    }

    /// Sets what it gets of processors that others want, too.
    pub(super) fn weigh(&self, shares: u64) -> io::Result<()> {
        if self.is_old("cpu") {
            return self.set("cpu", "cpu.shares", &shares.to_string());
        }
        // Of 2 to 262,144 shares to 1 to 10,000 of weight.
        let weight = 1 + (shares.saturating_sub(2) * 9999) / 262_142;
        self.set("cpu", "cpu.weight", &weight.to_string())
    }

    /// Bounds the bytes a second that it writes to a device; 0 is no bound. Where the kernel cannot
    /// do that, nothing happens.
    pub(super) fn pace_writing(&self, device: &str, rate: u64) -> io::Result<()> {
        if self.is_old("blkio") {
            return self.set("blkio", WRITING, &format!("{device} {rate}"));
        }
        if self.with("io").is_none() {
            return Ok(());
        }
        let rate = if rate == 0 { "max".to_owned() } else { rate.to_string() };
        self.set("io", "io.max", &format!("{device} wbps={rate}"))
    }

    /// Whether what it writes to a device can be bounded.
    pub(super) fn can_pace_writing(&self) -> bool {
        self.with("blkio").or_else(|| self.with("io")).is_some()
    }

    /// Where the kernel is told what it may itself write to devices, in version 1. There, what it writes
    /// on behalf of programs long after they wrote is its own; in version 2 it is theirs.
    pub(super) fn kernels_writing(&self) -> Option<PathBuf> {
        let old = self.is_old("blkio").then(|| self.with("blkio")).flatten()?;
        Some(old.mount.join(WRITING))
    }

    /// Whether it can be kept off processors.
    pub(super) fn can_keep_off(&self) -> bool {
        self.with("cpuset").is_some()
    }

    /// Keeps everything in it off the machine's first processors, but never off all; with 0, off none.
    pub(super) fn keep_off(&self, first: usize) -> io::Result<()> {
        let all = self.processors_above()?;
        let first = first.min(all.len().saturating_sub(1));
        let list = match (first, self.is_old("cpuset")) {
            // In version 2 it then has what is above it.
            (0, false) => "\n".to_owned(),
            _ => processor_list(&all[first..]),
        };
        self.set("cpuset", "cpuset.cpus", &list)
    }

    /// Whether it is kept off some of the machine's processors.
    pub(super) fn is_kept_off(&self) -> bool {
        let own = self.file("cpuset", "cpuset.cpus").unwrap_or_default();
        let own = processors(&own);
        !own.is_empty() && self.processors_above().is_ok_and(|all| own.len() < all.len())
    }

    /// The processors that it could have.
    fn processors_above(&self) -> io::Result<Vec<usize>> {
        let missing = || io::Error::other("this machine has no cgroup for cpuset");
        let dir = self.with("cpuset").map(|hierarchy| self.dir(hierarchy)).ok_or_else(missing)?;
        let above = dir.parent().unwrap_or(&dir);
        let name = if self.is_old("cpuset") { "cpuset.cpus" } else { "cpuset.cpus.effective" };
        Ok(processors(&fs::read_to_string(above.join(name))?))
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
    pub(crate) fn is_frozen(&self) -> bool {
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
    pub(crate) fn usage(&self) -> Usage {
        let memory = self.file("memory", "memory.usage_in_bytes");
        let memory = memory.or_else(|| self.file("memory", "memory.current"));
        Usage {
            cpu_us: self.cpu_us(),
            memory_bytes: memory.and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            // The kernel counts threads, too.
            processes: self.with("pids").map_or(0, |h| members(&self.dir(h)).len() as u64),
        }
    }

    /// Processor time that it and those below it have used.
    pub(super) fn cpu_us(&self) -> u64 {
        match self.file("cpuacct", "cpuacct.usage") {
            Some(text) => text.trim().parse::<u64>().unwrap_or(0) / 1000,
            None => self
                .file("cpu", "cpu.stat")
                .and_then(|text| field(&text, "usage_usec"))
                .unwrap_or(0),
        }
    }

    /// What was killed or refused for going beyond a limit.
    pub(crate) fn exceeded(&self) -> Exceeded {
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
pub(crate) fn path(of_process: &str) -> Option<&str> {
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
const JOINED: [&str; 8] =
    ["memory", "pids", "cpu", "cpuacct", "cpuset", "blkio", "devices", "freezer"];

/// The file of version 1 with the bytes a second that may be written to each device.
const WRITING: &str = "blkio.throttle.write_bps_device";

/// Gives `dir`, and what is between it and the mount, the processors and memory of what is above, where
/// it has none: version 1 lets nobody in before.
fn inherit_processors(mount: &Path, dir: &Path) -> io::Result<()> {
    let Ok(below) = dir.strip_prefix(mount) else { return Ok(()) };
    let mut at = mount.to_owned();
    for name in below {
        let above = at.clone();
        at.push(name);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if fs::read_to_string(at.join(file))?.trim().is_empty() {
                fs::write(at.join(file), fs::read_to_string(above.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// The processors of a list such as `0-3,8`.
fn processors(list: &str) -> Vec<usize> {
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    parts.flatten().collect()
}

fn processor_list(processors: &[usize]) -> String {
    processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Lets the limits of version 2 hold below everything from the mount down to above `dir`.
fn hand_down(mount: &Path, dir: &Path) -> io::Result<()> {
    let Ok(below) = dir.strip_prefix(mount) else { return Ok(()) };
    let mut at = mount.to_owned();
    for name in below {
        let has = fs::read_to_string(at.join("cgroup.controllers"))?;
        let on = fs::read_to_string(at.join("cgroup.subtree_control"))?;
        let word = |text: &str, wanted: &str| text.split_whitespace().any(|name| name == wanted);
        for controller in ["memory", "pids", "cpu", "cpuset", "io"] {
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

    /// Cgroups in files of a test's own: what the kernel would be told can be read.
    fn written(controllers: &[&str], files: &[(&str, &str)]) -> (Cgroups, PathBuf) {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mount =
            std::env::temp_dir().join(format!("stead-cgroups-{}-{nth}", std::process::id()));
        fs::create_dir_all(mount.join("sandbox")).unwrap();
        for (name, text) in files {
            fs::write(mount.join(name), text).unwrap();
        }
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        let hierarchies = [Hierarchy { controllers, mount: mount.clone() }].into();
        (Cgroups { hierarchies, path: "/sandbox".into() }, mount)
    }

    /// For each version: what stands above a sandbox, and what it has when it has everything.
    #[test]
    fn a_sandbox_is_kept_off_the_first_processors_but_never_off_all() {
        let old = written(&["cpuset"], &[("cpuset.cpus", "0-1,4\n")]);
        let new = [("cgroup.controllers", "cpuset cpu"), ("cpuset.cpus.effective", "0-1,4\n")];
        for ((cgroups, mount), whole) in [(old, "0,1,4"), (written(&[], &new), "\n")] {
            let own = || fs::read_to_string(mount.join("sandbox/cpuset.cpus")).unwrap();
            for (first, expected, kept_off) in [(1, "1,4", true), (9, "4", true), (0, whole, false)]
            {
                cgroups.keep_off(first).unwrap();
                assert_eq!((own().as_str(), cgroups.is_kept_off()), (expected, kept_off));
            }
            fs::remove_dir_all(mount).unwrap();
        }
    }

    #[test]
    fn what_has_no_processors_yet_has_those_above_it() {
        let none = [("sandbox/cpuset.cpus", "\n"), ("sandbox/cpuset.mems", "0\n")];
        let above = [("cpuset.cpus", "2-3\n"), ("cpuset.mems", "0-1\n")];
        let (_, mount) = written(&["cpuset"], &[above, none].concat());
        inherit_processors(&mount, &mount.join("sandbox")).unwrap();
        let read = |name: &str| fs::read_to_string(mount.join("sandbox").join(name)).unwrap();
        assert_eq!((read("cpuset.cpus").as_str(), read("cpuset.mems").as_str()), ("2-3\n", "0\n"));
        fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn writing_is_paced_in_the_words_of_either_version() {
        let (old, mount) = written(&["blkio"], &[]);
        old.pace_writing("7:3", 1000).unwrap();
        let said = fs::read_to_string(mount.join("sandbox").join(WRITING)).unwrap();
        assert_eq!(said, "7:3 1000");
        assert_eq!(old.kernels_writing(), Some(mount.join(WRITING)));
        fs::remove_dir_all(mount).unwrap();
        let (new, mount) = written(&[], &[("cgroup.controllers", "io memory")]);
        for (rate, expected) in [(1000, "7:3 wbps=1000"), (0, "7:3 wbps=max")] {
            new.pace_writing("7:3", rate).unwrap();
            assert_eq!(fs::read_to_string(mount.join("sandbox/io.max")).unwrap(), expected);
        }
        assert_eq!(new.kernels_writing(), None);
        fs::remove_dir_all(mount).unwrap();
        let (neither, mount) = written(&["memory"], &[]);
        neither.pace_writing("7:3", 1000).unwrap();
        fs::remove_dir_all(mount).unwrap();
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
