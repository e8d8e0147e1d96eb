//! Injects faults, at times that follow from the seed.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::{
    leftovers::Traces,
    report::Report,
    rng::Rng,
    server::{RunDirectory, Server, signal},
    vendor::{BAD_MOODS, SandboxVendor, VendorMood},
};

const DAY_SECONDS: u64 = 24 * 3600;

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
    /// No file descriptors for the server.
    Descriptors,
    /// `fsync` fails with EIO in the server, which is then killed.
    Fsync,
    /// SIGKILL of the server, then a restart with a wall clock that is days off. Needs a debug build.
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
    /// Parses a list such as `kill,stop`; `all` and `none` are lists too.
    ///
    /// # Errors
    /// A word in the list is not the name of a fault.
    pub fn parse_list(list: &str) -> Result<BTreeSet<Fault>> {
        match list {
            "all" => return Ok(NAMES.iter().map(|(_, fault)| *fault).collect()),
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
    /// The names of instances that existed during the run.
    pub traces: Traces,
}

impl Injector {
    /// Injects faults until the deadline, and undoes the last one.
    ///
    /// # Errors
    /// If the server does not restart.
    pub fn run(&mut self, seed: u64, faults: &BTreeSet<Fault>, deadline: Instant) -> Result<()> {
        let active: Vec<Fault> =
            faults.iter().copied().filter(|fault| *fault != Fault::Vanish).collect();
        for index in 0.. {
            let mut rng = Rng::new(seed, &[2, index]);
            let pause = Duration::from_millis(rng.between(300, 3000));
            let left = deadline.saturating_duration_since(Instant::now());
            std::thread::sleep(pause.min(left));
            self.traces.collect(&self.directory);
            if active.is_empty() && !left.is_zero() {
                continue;
            }
            if Instant::now() >= deadline {
                break;
            }
            let fault = *rng.pick(&active);
            self.inject(fault, &mut rng)
                .with_context(|| format!("after fault {index} ({})", fault.name()))?;
            self.report.count(format!("fault {}", fault.name()));
            self.traces.collect(&self.directory);
        }
        Ok(())
    }

    fn inject(&mut self, fault: Fault, rng: &mut Rng) -> Result<()> {
        match fault {
            Fault::Kill => {
                let mut server = self.server.lock();
                server.kill();
                std::thread::sleep(Duration::from_millis(rng.below(300)));
                server.restart()
            }
            Fault::Term => {
                let mut server = self.server.lock();
                if server.stop().is_none() {
                    self.report.violation("stop", "server", "SIGTERM did not end it within 60 s");
                }
                server.restart()
            }
            Fault::HostKill => {
                if let Some(host) = self.host(rng) {
                    signal(host, Signal::KILL);
                }
                Ok(())
            }
            Fault::Stop => {
                if let Some(host) = self.host(rng) {
                    signal(host, Signal::STOP);
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
                    restarted?;
                }
                Ok(())
            }
            Fault::ShellKill => {
                let children = self.host(rng).map(children).unwrap_or_default();
                if !children.is_empty() {
                    signal(*rng.pick(&children), Signal::KILL);
                }
                Ok(())
            }
            Fault::Disk => self.fill_disk(Duration::from_millis(rng.between(200, 3000))),
            Fault::Descriptors => {
                self.limit_descriptors(Duration::from_millis(rng.between(200, 3000)));
                Ok(())
            }
            Fault::Fsync => self.fail_fsync(Duration::from_millis(rng.between(200, 1500))),
            Fault::Clock => {
                let mut server = self.server.lock();
                server.kill();
                server.clock_offset =
                    rng.below(4 * DAY_SECONDS).cast_signed() - 2 * DAY_SECONDS.cast_signed();
                server.restart()
            }
            Fault::Vendor => {
                if let Some(vendor) = &self.vendor {
                    vendor.set_mood(*rng.pick(&BAD_MOODS));
                    std::thread::sleep(Duration::from_millis(rng.between(200, 6000)));
                    vendor.set_mood(VendorMood::Good);
                }
                Ok(())
            }
            Fault::Vanish => Ok(()),
        }
    }

    fn host(&self, rng: &mut Rng) -> Option<i32> {
        let hosts = self.directory.hosts();
        (!hosts.is_empty()).then(|| *rng.pick(&hosts))
    }

    /// Fills the file system of the home temporarily.
    fn fill_disk(&self, duration: Duration) -> Result<()> {
        let path = self.directory.home().join("filler");
        let mut file = File::create(&path)?;
        for size in [1 << 20, 4096, 1] {
            let block = vec![1; size];
            while file.write_all(&block).is_ok() {}
        }
        std::thread::sleep(duration);
        drop(file);
        fs::remove_file(path)?;
        Ok(())
    }

    /// Temporarily limits the server to the descriptors that it has open.
    fn limit_descriptors(&self, duration: Duration) {
        let Some(pid) = self.server.lock().pid() else { return };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().count() as u64;
        let limit = |current| Rlimit { current: Some(current), maximum: Some(524_288) };
        if let Ok(before) = prlimit(Pid::from_raw(pid), Resource::Nofile, limit(open)) {
            std::thread::sleep(duration);
            let _ = prlimit(Pid::from_raw(pid), Resource::Nofile, before);
        }
    }

    /// Lets `fsync` fail temporarily. The server may refuse writes for good after that, so it is restarted.
    fn fail_fsync(&self, duration: Duration) -> Result<()> {
        let Some(pid) = self.server.lock().pid() else { return Ok(()) };
        let tracer = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"])
            .args(["-e", "inject=fsync,fdatasync:error=EIO", "-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut tracer) = tracer else { return Ok(()) };
        std::thread::sleep(duration);
        let mut server = self.server.lock();
        server.kill();
        signal(tracer.id().cast_signed(), Signal::TERM);
        let _ = tracer.wait();
        server.restart()
    }
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
