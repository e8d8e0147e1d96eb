//! Injects faults, at times that follow from the seed.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{ErrorKind, Write},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::{
    report::Report,
    rng::Rng,
    server::{POLL_INTERVAL, RunDirectory, Server, signal},
    vendor::{FAULTY_BEHAVIORS, SandboxVendor, VendorBehavior},
};

const DAY_SECONDS: u64 = 24 * 3600;
/// The max_pause delay between two faults.
const MAX_PAUSE_MS: u64 = 3000;
/// How long a fault waits for a host, a shell or a tracer.
const TARGET_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer a run takes than asked for, until each of its faults has happened once.
const MAX_EXTENSION: Duration = Duration::from_secs(90);

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL of the server, then a restart.
    Kill,
    /// SIGTERM of the server, then a restart.
    Term,
    /// SIGKILL of a host, and with it all its shells.
    HostKill,
    /// SIGSTOP of a host, then SIGCONT.
    Stop,
    /// SIGKILL of a process below a host: a shell or a command.
    ShellKill,
    /// Clients that disconnect at any byte, as the plan decides.
    Vanish,
    /// No space on the file system of the home.
    Disk,
    /// No file descriptors for the server, or for a host and its shells.
    Descriptors,
    /// `fsync` fails with EIO in the server, which is then killed.
    Fsync,
    /// A jump of the server's wall clock by days, while it runs or between SIGKILL and a restart.
    Clock,
    /// The vendor beneath the provider `e2b` is slow, loses requests, fails or lies.
    Vendor,
}

const NAMES: [(&str, Fault); 11] = [
    ("kill", Fault::Kill),
    ("term", Fault::Term),
    ("host-kill", Fault::HostKill),
    ("stop", Fault::Stop),
    ("shell-kill", Fault::ShellKill),
    ("vanish", Fault::Vanish),
    ("disk", Fault::Disk),
    ("descriptors", Fault::Descriptors),
    ("fsync", Fault::Fsync),
    ("clock", Fault::Clock),
    ("vendor", Fault::Vendor),
];

impl Fault {
    /// Parses a list such as `kill,stop`. `all` are those that do not need a vendor, `none` is the empty list.
    ///
    /// # Errors
    /// A word in the list is not the name of a fault.
    pub fn parse_list(list: &str) -> Result<BTreeSet<Fault>> {
        match list {
            "all" => {
                let all = NAMES.iter().map(|(_, fault)| *fault);
                return Ok(all.filter(|fault| *fault != Fault::Vendor).collect());
            }
            "none" => return Ok(BTreeSet::new()),
            _ => {}
        }
        let find = |word: &str| NAMES.iter().find(|(name, _)| *name == word).map(|(_, f)| *f);
        list.split(',')
            .map(|word| find(word).with_context(|| format!("unknown fault {word:?}")))
            .collect()
    }

    /// Returns the name in `--faults`.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }

    /// Returns the counter of a report for the injections that happened.
    #[must_use]
    pub fn counter(self) -> String {
        format!("fault {}", self.name())
    }

    /// Checks that the fault can happen on this machine with this provider.
    ///
    /// # Errors
    /// If something that the fault needs is missing.
    pub fn check(self, provider: &str) -> Result<()> {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Fault::Disk if !is_root => bail!("the fault `disk` needs root"),
            Fault::Fsync if Command::new("strace").arg("-V").output().is_err() => {
                bail!("the fault `fsync` needs strace")
            }
            Fault::Vendor if provider != "e2b" => {
                bail!("the fault `vendor` needs --provider e2b")
            }
            _ => Ok(()),
        }
    }
}

/// The result of one injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injection {
    Happened,
    /// The fault did not happen, for this reason.
    Missed(&'static str),
}

/// Injects faults into the server and its hosts.
#[derive(Debug)]
pub struct Injector {
    /// The server.
    pub server: Arc<Mutex<Server>>,
    /// The directory with the instances: the server's, or the vendor's.
    pub directory: RunDirectory,
    /// The vendor beneath the server, if there is one.
    pub vendor: Option<Arc<SandboxVendor>>,
    pub report: Arc<Report>,
}

impl Injector {
    /// Injects faults until the deadline and until each has happened once, and undoes the last one. Faults that never
    /// happened are violations.
    ///
    /// # Errors
    /// If the server does not restart.
    pub fn run(&self, seed: u64, faults: &BTreeSet<Fault>, deadline: Instant) -> Result<()> {
        let mut active: Vec<Fault> =
            faults.iter().copied().filter(|fault| *fault != Fault::Vanish).collect();
        if active.is_empty() {
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        // In a short run, every fault fits in once before the deadline.
        let left = deadline.saturating_duration_since(Instant::now());
        let max_pause = left / (2 * active.len().max(1) as u32);
        let max_pause = (max_pause.as_millis() as u64).clamp(200, MAX_PAUSE_MS);
        let mut missing = active.clone();
        'rounds: for index in 0.. {
            // Each round has every fault once, so that a short run has them, too.
            let position = index % active.len().max(1) as u64;
            if position == 0 {
                Rng::new(seed, &[3, index]).shuffle(&mut active);
            }
            let Some(fault) = active.get(position as usize).copied() else { break };
            let mut rng = Rng::new(seed, &[2, index]);
            let pause = Duration::from_millis(rng.between(100, max_pause));
            let left = deadline.saturating_duration_since(Instant::now());
            std::thread::sleep(pause.min(left));
            if Instant::now() >= deadline {
                if missing.is_empty() || Instant::now() >= deadline + MAX_EXTENSION {
                    break 'rounds;
                }
                if !missing.contains(&fault) {
                    continue;
                }
            }
            let injection = self
                .inject(fault, &mut rng)
                .with_context(|| format!("after fault {index} ({})", fault.name()))?;
            match injection {
                Injection::Happened => {
                    self.report.count(fault.counter());
                    missing.retain(|it| *it != fault);
                }
                Injection::Missed(why) => {
                    self.report.count(format!("missed fault {}: {why}", fault.name()));
                }
            }
        }
        for fault in missing {
            self.report.violation("fault", fault.name(), "was asked for and never happened");
        }
        Ok(())
    }

    fn inject(&self, fault: Fault, rng: &mut Rng) -> Result<Injection> {
        match fault {
            Fault::Kill => {
                let mut server = self.server.lock();
                server.kill();
                std::thread::sleep(Duration::from_millis(rng.below(300)));
                server.restart()?;
            }
            Fault::Term => {
                let mut server = self.server.lock();
                if server.stop().is_none() {
                    self.report.violation("stop", "server", "SIGTERM did not end it within 60 s");
                }
                server.restart()?;
            }
            Fault::HostKill => {
                let Some(host) = self.host(rng) else { return Ok(NO_HOST) };
                if !signal(host, Signal::KILL) {
                    return Ok(NO_HOST);
                }
            }
            Fault::Stop => return self.stop_host(rng),
            Fault::ShellKill => {
                let below = || self.directory.hosts().into_iter().flat_map(children).collect();
                let Some(shell) = pick(rng, below) else {
                    return Ok(Injection::Missed("no shell"));
                };
                if !signal(shell, Signal::KILL) {
                    return Ok(Injection::Missed("the shell had ended"));
                }
            }
            Fault::Disk => return self.fill_disk(Duration::from_millis(rng.between(200, 3000))),
            Fault::Descriptors => return Ok(self.limit_descriptors(rng)),
            Fault::Fsync => return self.fail_fsync(Duration::from_millis(rng.between(200, 1500))),
            Fault::Clock => {
                let mut server = self.server.lock();
                let offset = rng.below(4 * DAY_SECONDS).cast_signed();
                let restarts = rng.chance(50);
                if restarts {
                    server.kill();
                }
                server.set_clock_offset(offset - 2 * DAY_SECONDS.cast_signed())?;
                if restarts {
                    server.restart()?;
                }
            }
            Fault::Vendor => {
                let Some(vendor) = &self.vendor else { return Ok(Injection::Missed("no vendor")) };
                let before = vendor.affected();
                vendor.set_behavior(*rng.pick(&FAULTY_BEHAVIORS));
                std::thread::sleep(Duration::from_millis(rng.between(200, 6000)));
                vendor.set_behavior(VendorBehavior::Correct);
                if vendor.affected() == before {
                    return Ok(Injection::Missed("no request to the vendor"));
                }
            }
            Fault::Vanish => {}
        }
        Ok(Injection::Happened)
    }

    fn host(&self, rng: &mut Rng) -> Option<i32> {
        pick(rng, || self.directory.hosts())
    }

    fn stop_host(&self, rng: &mut Rng) -> Result<Injection> {
        let Some(host) = self.host(rng) else { return Ok(NO_HOST) };
        if !signal(host, Signal::STOP) {
            return Ok(NO_HOST);
        }
        std::thread::sleep(Duration::from_millis(rng.between(100, 8000)));
        // Half of the time the server starts while a host does not answer.
        let restarted = if rng.chance(50) {
            let mut server = self.server.lock();
            server.kill();
            server.restart()
        } else {
            Ok(())
        };
        signal(host, Signal::CONT);
        restarted.map(|()| Injection::Happened)
    }

    /// Fills the file system of the home temporarily.
    fn fill_disk(&self, duration: Duration) -> Result<Injection> {
        let path = self.directory.home().join("filler");
        let mut file = File::create(&path)?;
        let mut end = None;
        for size in [1 << 20, 4096, 1] {
            let block = vec![1; size];
            while end.insert(file.write_all(&block)).is_ok() {}
        }
        std::thread::sleep(duration);
        drop(file);
        fs::remove_file(path)?;
        match end {
            Some(Err(error)) if error.kind() == ErrorKind::StorageFull => Ok(Injection::Happened),
            _ => Ok(Injection::Missed("the disk did not get full")),
        }
    }

    /// Temporarily limits the server, or a host and the processes below it, to the descriptors that it has open.
    fn limit_descriptors(&self, rng: &mut Rng) -> Injection {
        let duration = Duration::from_millis(rng.between(200, 3000));
        let limited = if rng.chance(50) { self.host(rng) } else { self.server.lock().pid() };
        let Some(pid) = limited else { return NO_HOST };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().count() as u64;
        let Some((_, maximum)) = descriptor_limits(pid) else { return NO_HOST };
        let limit = Rlimit { current: Some(open), maximum: Some(maximum) };
        let Ok(before) = prlimit(Pid::from_raw(pid), Resource::Nofile, limit) else {
            return Injection::Missed("the limit was refused");
        };
        std::thread::sleep(duration);
        // A process that was started meanwhile has inherited the limit.
        for pid in children(pid).into_iter().chain([pid]) {
            if descriptor_limits(pid).is_some_and(|(current, _)| current == open) {
                let _ = prlimit(Pid::from_raw(pid), Resource::Nofile, before);
            }
        }
        Injection::Happened
    }

    /// Lets `fsync` fail temporarily. The server may refuse writes for good after that, so it is restarted.
    fn fail_fsync(&self, duration: Duration) -> Result<Injection> {
        let mut server = self.server.lock();
        let Some(pid) = server.pid() else { return Ok(Injection::Missed("no server")) };
        let trace = self.directory.path().join("strace");
        let mut tracer = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fsync,fdatasync"])
            .args(["-e", "inject=fsync,fdatasync:error=EIO", "-p", &pid.to_string(), "-o"])
            .arg(&trace)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run strace")?;
        let deadline = Instant::now() + TARGET_TIMEOUT;
        while !is_traced(pid) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        std::thread::sleep(duration);
        server.kill();
        signal(tracer.id().cast_signed(), Signal::TERM);
        let deadline = Instant::now() + TARGET_TIMEOUT;
        while tracer.try_wait()?.is_none() {
            // It can wait forever for a first process of a sandbox that has ended.
            if Instant::now() > deadline {
                let _ = tracer.kill();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        server.restart()?;
        let failed = fs::read_to_string(&trace).is_ok_and(|text| text.contains("(INJECTED)"));
        let missed = Injection::Missed("nothing was synced, or strace could not attach");
        Ok(if failed { Injection::Happened } else { missed })
    }
}

const NO_HOST: Injection = Injection::Missed("no host");

/// Waits until there are processes, and picks one.
fn pick(rng: &mut Rng, find: impl Fn() -> Vec<i32>) -> Option<i32> {
    let deadline = Instant::now() + TARGET_TIMEOUT;
    loop {
        let found = find();
        if !found.is_empty() {
            return Some(*rng.pick(&found));
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn is_traced(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// Returns the current and the maximum number of descriptors of a process.
fn descriptor_limits(pid: i32) -> Option<(u64, u64)> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the pids of all descendants of a process.
fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        let path = format!("/proc/{parent}/task/{parent}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        let pids: Vec<i32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        open.extend(&pids);
        found.extend(pids);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_fault_that_cannot_happen_is_not_counted_and_fails_the_run() {
        let parent = std::env::temp_dir().join(format!("stead-faults-{}", std::process::id()));
        let directory = RunDirectory::create(&parent).unwrap();
        let server = Server::new(Path::new("/nonexistent"), &directory, "e2b", Vec::new()).unwrap();
        let report = Arc::new(Report::default());
        let injector = Injector {
            server: Arc::new(Mutex::new(server)),
            directory,
            vendor: None,
            report: report.clone(),
        };
        let missed = injector.inject(Fault::Vendor, &mut Rng::new(1, &[])).unwrap();
        assert_eq!(missed, Injection::Missed("no vendor"));
        let long_ago = Instant::now().checked_sub(2 * MAX_EXTENSION).unwrap();
        injector.run(1, &BTreeSet::from([Fault::Vendor]), long_ago).unwrap();
        let violations = report.violations();
        assert_eq!(violations.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["vendor"]);
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn each_fault_is_in_the_list_of_names() {
        let all = Fault::parse_list("all").unwrap();
        assert!(!all.contains(&Fault::Vendor));
        assert_eq!(all.len(), NAMES.len() - 1);
        assert!(Fault::Vendor.check("local").is_err() && Fault::Vendor.check("e2b").is_ok());
    }
}
