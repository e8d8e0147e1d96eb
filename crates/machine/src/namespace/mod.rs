//! Sandboxes on this machine: Linux namespaces, one user range each, no capabilities, a filter of
//! system calls, limits by cgroups, a disk of its own, rules for its network. The host is process 1.
//!
//! ```text
//! HOME/sandboxes/<instance>/
//!     label         what it was made for
//!     launch.json   what the launcher was told
//!     launch.err    what the launcher, the runtime and the host complained about
//!     host.sock     the host's; nobody inside can see it
//!     t/            the directories of its terminals; nobody inside but the host can see them
//! HOME/disks/<lease>.img      outlives the instances of a lease
//! HOME/images/<name>/rootfs   what an operator imported
//! HOME/snapshots/<name>.img   files of a lease as they once were
//! ```
//! Whether a sandbox lives is told by its socket alone, as with a host on this machine. What is left
//! of one that is dead is a directory and a cgroup of the same name; mounts, loop devices and network
//! interfaces hang on its namespaces and go with its last process.

pub(crate) mod bundle;
pub(crate) mod cgroup;
mod check;
mod confined;
pub(crate) mod connect;
mod courtesy;
pub(crate) mod disk;
pub(crate) mod disks;
mod filter;
pub(crate) mod host;
mod label;
pub(crate) mod launch;
pub(crate) mod make;
mod netlink;
mod network;
mod pace;
mod pasta;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod programs;
mod rules;
pub(crate) mod runtime;
pub(crate) mod seccomp;
mod spec;
pub(crate) mod sys;
pub(crate) mod warden;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use check::{Check, Finding, Verdict};
pub use confined::Confined;
pub use courtesy::EVERY as COURTESY;
pub(crate) use label::Label;
pub use make::is_image_name;
pub use rules::{Block, Target};
pub use spec::{BadSpec, Destination, Egress, SandboxSpec};
pub use sys::with_rights_of;

use tokio_util::sync::CancellationToken;

use base::durable::replace_volatile;
use base::keyed_lock::KeyedLock;
use cgroup::Cgroups;
use courtesy::Courtesy;
use disks::Disks;
use host::Host;
use model::{Env, Instance, InstanceId, LeaseId};
use pace::Pace;
use pool::Pool;
use programs::Programs;
use provider::{
    Capabilities, Connection, CopyTo, Created, Exceeded, Fidelity, Found, Intent, Limits, Metrics,
    Observed, Place, Placed, Provider, ProviderError, Reply, Snapshot,
};
use warden::Warden;

/// How long a sandbox has to come up, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is looked whether something outside our control has come about.
const LOOK: Duration = Duration::from_millis(2);

/// The name of the OCI runtime that is built in.
pub const OWN_RUNTIME: &str = "stead";

/// What an operator chose.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's home.
    pub home: PathBuf,
    /// The OCI runtime: a path, or a name to be found in `PATH`; [`OWN_RUNTIME`] for our own.
    pub runtime: PathBuf,
    /// The executable that hosts and launchers are started from.
    pub executable: PathBuf,
    /// Directories of this machine that are shown read-only beside `/usr`.
    pub shown: Vec<PathBuf>,
    /// The limits where a lease names none.
    pub defaults: SandboxSpec,
    /// How many sandboxes of a kind wait for somebody who asks for one.
    pub warm: usize,
    /// How many processors are kept free of sandboxes that compute for long.
    pub reserve_cpus: usize,
    /// Bytes a second that a sandbox may write to its disk; 0 is no bound.
    pub disk_rate: u64,
}

impl Options {
    /// The usual choices for a home.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Self {
            home: home.to_owned(),
            runtime: OWN_RUNTIME.into(),
            executable: "/proc/self/exe".into(),
            shown: vec![],
            defaults: SandboxSpec::default_for(memory.unwrap_or(2 << 30), cpus),
            warm: 0,
            reserve_cpus: 1,
            disk_rate: 64 << 20,
        }
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Instances that are sandboxes on this machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    sandboxes: PathBuf,
    terminals: PathBuf,
    programs: Programs,
    disks: Disks,
    pool: Pool,
    warden: Warden,
    courtesy: Courtesy,
    /// Sandboxes reach nothing on this machine, whatever they are to.
    unreachable: AtomicBool,
    /// The instances that are being made, each by one task at a time.
    making: KeyedLock,
}

impl Namespace {
    /// The provider. Whether this machine can give what it promises is what [`Check`] says.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let home = &options.home;
        Self(Arc::new(Inner {
            disks: Disks::new("namespace", home, "disks", "snapshots"),
            pool: Pool::new(home.join("sandboxes"), options.warm),
            warden: Warden::new(home.join("sandboxes")),
            sandboxes: home.join("sandboxes"),
            terminals: home.join("terminals"),
            programs: Programs::new(home.join("programs"), options.executable.clone()),
            courtesy: Courtesy::default(),
            unreachable: AtomicBool::new(false),
            making: KeyedLock::default(),
            options,
        }))
    }

    /// Ends what a server that was killed had begun to make and not yet given a name, and removes
    /// half-written files. For a start, before anything is made.
    ///
    /// # Errors
    /// When something cannot be ended.
    pub async fn sweep(&self) -> Result<(), ProviderError> {
        let (home, disks) = (self.0.options.home.clone(), self.0.disks.clone());
        blocking("end what was left half made", move || {
            end_all(&home, |dir| {
                let named = Label::read(dir).map(|label| label.instance_id.to_string());
                named.is_none_or(|named| dir.file_name() != Some(OsStr::new(&named)))
            })?;
            launch::sweep_slots()?;
            pace::sweep()?;
            disks.sweep()
        })
        .await
    }

    /// Looks after what sandboxes write outside their own disks until told to stop.
    pub async fn watch_writing(self, stop: CancellationToken) {
        self.0.warden.watch(stop).await;
    }

    /// Keeps sandboxes ready until told to stop; with `usual`, also before anybody has asked for one.
    pub async fn keep_warm(self, usual: bool, stop: CancellationToken) {
        let usual = usual.then(|| self.asked("make a sandbox", &serde_json::Value::Null, None));
        pool::keep_warm(self, usual.and_then(Result::ok), stop).await;
    }

    /// The usual settings with what a lease's `spec` says instead.
    fn asked(
        &self,
        doing: &'static str,
        spec: &serde_json::Value,
        lease: Option<&LeaseId>,
    ) -> Result<SandboxSpec, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing, reason };
        let usual = self.0.options.defaults.clone();
        let mut asked = usual.with(spec).map_err(|bad| refused(bad.to_string()))?;
        if self.0.unreachable.load(Ordering::Relaxed) && asked.egress != Egress::None {
            if !spec["egress"].is_null() {
                let reason =
                    "egress: sandboxes reach nothing on this machine; stead doctor says why";
                return Err(refused(reason.to_owned()));
            }
            asked.egress = Egress::None;
        }
        self.0.disks.over_snapshot(asked, lease)
    }

    fn limits(&self, instance: &InstanceId) -> Option<Limits> {
        Some(launch::read(&self.dir(instance)).ok()?.spec.limits())
    }

    fn dir(&self, instance: &InstanceId) -> PathBuf {
        self.0.sandboxes.join(instance.as_str())
    }

    async fn host(&self, id: &InstanceId) -> Result<Host, ProviderError> {
        let failed = |source| ProviderError::connect_failed("reach a sandbox", source);
        let host = Host::connect(&self.dir(id)).await.map_err(failed)?;
        host.ok_or_else(|| ProviderError::Gone { instance: id.clone() })
    }

    async fn alive(&self, id: &InstanceId) -> Result<(), ProviderError> {
        match self.look(id).await? {
            Observed::Running | Observed::Paused => Ok(()),
            Observed::Gone => Err(ProviderError::Gone { instance: id.clone() }),
        }
    }

    fn cgroups(&self, id: &InstanceId) -> Result<Cgroups, ProviderError> {
        let failed = |source| ProviderError::failed("find the cgroups of a sandbox", source);
        let name = Label::read(&self.dir(id)).map_or_else(|| id.to_string(), |label| label.name);
        Cgroups::new(&format!("{}/{name}", launch::CGROUP)).map_err(failed)
    }

    async fn look(&self, id: &InstanceId) -> Result<Observed, ProviderError> {
        let failed = |source| ProviderError::failed("look at a sandbox", source);
        if !Host::lives(&self.dir(id)).await.map_err(failed)? {
            return Ok(Observed::Gone);
        }
        let frozen = self.cgroups(id)?.is_frozen();
        Ok(if frozen { Observed::Paused } else { Observed::Running })
    }

    async fn relimit(
        &self,
        lease: &LeaseId,
        id: &InstanceId,
        spec: &serde_json::Value,
    ) -> Result<(), ProviderError> {
        self.alive(id).await?;
        let asked = self.asked("change the limits", spec, Some(lease))?;
        let (dir, cgroups) = (self.dir(id), self.cgroups(id)?);
        blocking("change the limits of a sandbox", move || {
            cgroups.limit(&bundle::resources(&asked).map_err(io::Error::other)?)?;
            // What was asked for is read by whoever tells of it.
            let mut told = launch::read(&dir)?;
            let SandboxSpec { disk, egress, .. } = told.spec;
            told.spec = SandboxSpec { disk, egress, ..asked };
            // A sandbox does not outlive the machine.
            replace_volatile(&dir.join(launch::FILE), &serde_json::to_vec(&told)?)
        })
        .await
    }

    async fn hold(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.alive(id).await?;
        let cgroups = self.cgroups(id)?;
        blocking("pause a sandbox", move || cgroups.freeze(PATIENCE)).await
    }

    async fn go_on(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.alive(id).await?;
        let cgroups = self.cgroups(id)?;
        blocking("resume a sandbox", move || cgroups.thaw(PATIENCE)).await
    }

    async fn end(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.0.warden.forget(id);
        self.0.pool.release(id);
        let dir = self.dir(id);
        let cgroups = self.cgroups(id)?;
        let terminals = self.0.terminals.clone();
        blocking("end a sandbox", move || end(&dir, &cgroups, &terminals)).await
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let sandboxes = self.0.sandboxes.clone();
        let labels = blocking("look for sandboxes", move || Label::all(&sandboxes)).await?;
        let mut found = Vec::new();
        for label in labels {
            if lease.is_some_and(|lease| *lease != label.lease_id) {
                continue;
            }
            found.push(Found {
                observed: self.look(&label.instance_id).await?,
                lease_id: label.lease_id,
                generation: label.generation,
                instance_id: label.instance_id,
                reference: String::new(),
            });
        }
        Ok(found)
    }

    async fn measure(&self, id: &InstanceId) -> Result<Metrics, ProviderError> {
        let host = self.host(id).await?;
        let (this, id) = (self.clone(), id.clone());
        blocking("measure a sandbox", move || {
            let disk = rustix::fs::statvfs(format!("/proc/{}/root", host.pid))?;
            let usage = this.cgroups(&id).map_err(io::Error::other)?.usage();
            Ok(Metrics {
                cpu_us: usage.cpu_us,
                memory_bytes: usage.memory_bytes,
                processes: usage.processes,
                disk_bytes: (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
                limits: this.limits(&id),
                exceeded: Some(this.met(&id).map_err(io::Error::other)?),
            })
        })
        .await
    }

    /// How often its limits were met.
    fn met(&self, id: &InstanceId) -> Result<Exceeded, ProviderError> {
        Ok(Exceeded { disk: self.0.warden.stopped(id), ..self.cgroups(id)?.exceeded() })
    }

    async fn bring_in(&self, id: &InstanceId, place: &Place) -> Result<Placed, ProviderError> {
        let host = self.host(id).await?;
        let area = self.dir(id).join(launch::TERMINALS);
        let dir = launch::terminal_inside(&place.terminal);
        let (this, id, place, pid) = (self.clone(), id.clone(), place.clone(), host.pid);
        let (seen, missing) = blocking("bring a terminal into a sandbox", move || {
            place::take_in(&area, place.terminal.as_str(), &place.dir)?;
            let (seen, missing) = names_inside(pid, &place.mounts)?;
            if !missing.is_empty() {
                this.note_shown(&id, missing.iter().map(|(outside, _)| outside.clone()))?;
            }
            Ok((seen, missing))
        })
        .await?;
        if !missing.is_empty() {
            let failed = |source| ProviderError::failed("show a directory in a sandbox", source);
            show(&self.0.options.executable, host.pid, &missing).await.map_err(failed)?;
        }
        Ok(Placed { dir, seen })
    }

    /// Notes that a sandbox is shown directories, to which it may write what its disk may hold. Blocking.
    fn note_shown(
        &self,
        id: &InstanceId,
        directories: impl IntoIterator<Item = PathBuf>,
    ) -> io::Result<()> {
        let limit = self.limits(id).and_then(|limits| limits.disk_bytes).unwrap_or(u64::MAX);
        self.0.warden.note(id, directories, limit)
    }
}

/// A directory of the machine, and where it is seen in a sandbox.
type Shown = (PathBuf, PathBuf);

/// Where directories of the machine are seen in the sandbox that a process is in, or are to be; and
/// those that are not yet.
pub(crate) fn names_inside(
    pid: i32,
    directories: &[Shown],
) -> io::Result<(Vec<Shown>, Vec<Shown>)> {
    let (mut seen, mut missing) = (Vec::with_capacity(directories.len()), Vec::new());
    for (outside, target) in directories {
        let (inside, there) = name_inside(pid, outside, target)?;
        if !there {
            missing.push((outside.clone(), inside.clone()));
        }
        seen.push((outside.clone(), inside));
    }
    Ok((seen, missing))
}

/// Shows directories of the machine, each at its place, in the sandbox that a process is in.
pub(crate) async fn show(executable: &Path, pid: i32, directories: &[Shown]) -> io::Result<()> {
    let output = tokio::process::Command::new(executable)
        .args(["sandbox", "mount"])
        .arg(pid.to_string())
        .args(directories.iter().flat_map(|(source, target)| [source, target]))
        .env_clear()
        .kill_on_drop(true)
        .output()
        .await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(said))
}

/// Where a directory of the machine is seen, or is to be, and whether it is. A lease may be shared by
/// projects; the first has the short name.
fn name_inside(pid: i32, source: &Path, target: &Path) -> io::Result<(PathBuf, bool)> {
    match place::seen(pid, source, target)? {
        place::Seen::Already => Ok((target.to_owned(), true)),
        place::Seen::Nothing => Ok((target.to_owned(), false)),
        place::Seen::Another => {
            let target = place::longer(source, target);
            let there = place::seen(pid, source, &target)? == place::Seen::Already;
            Ok((target, there))
        }
    }
}

/// Ends every sandbox of a home that `which` names by its directory.
fn end_all(home: &Path, which: impl Fn(&Path) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(home.join("sandboxes")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten().filter(|entry| which(&entry.path())) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = Label::read(&entry.path()).map_or(name, |label| label.name);
        let cgroups = Cgroups::new(&format!("{}/{name}", launch::CGROUP))?;
        end(&entry.path(), &cgroups, &home.join("terminals"))?;
    }
    Ok(())
}

/// Ends what is left of a sandbox, in an order in which nothing is forgotten when it is interrupted.
fn end(dir: &Path, cgroups: &Cgroups, terminals: &Path) -> io::Result<()> {
    // Its disk is unmounted with its last process, and whatever is not written by then is.
    let let_write = || Pace::of(dir).map_or(Ok(()), |pace| pace.end(cgroups));
    let_write()?;
    // Killed first, so that a launcher that became the runtime does not wait for its child.
    cgroups.kill(PATIENCE)?;
    // One of a user's is in none.
    host::kill(dir);
    if dir.exists() {
        // A launcher may still be at work; what it starts is in the cgroup.
        let launcher = launch::lock(&dir.join(launch::LOCK))?;
        let_write()?;
        cgroups.kill(PATIENCE)?;
        connect::disconnect(dir)?;
        launch::give_slot_back(dir)?;
        place::give_all_back(&dir.join(launch::TERMINALS), terminals)?;
        disk::remove_all(dir)?;
        drop(launcher);
    }
    Ok(())
}

pub(crate) async fn blocking<T: Send + 'static>(
    doing: &'static str,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ProviderError> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result.map_err(|source| ProviderError::failed(doing, source)),
        Err(error) => Err(ProviderError::failed(doing, error)),
    }
}

/// Gives the sandbox that a process is in other rules for its network. One that was made without a way
/// out has none to open.
pub(crate) async fn reach(
    name: &str,
    executable: &Path,
    pid: i32,
    (made_with, egress): (&Egress, &Egress),
) -> Result<(), ProviderError> {
    if *made_with == Egress::None {
        if *egress == Egress::None {
            return Ok(());
        }
        let what = "give an instance a network that was made without one";
        return Err(ProviderError::Unsupported { provider: name.to_owned(), what });
    }
    let failed = |source| ProviderError::failed("change what a sandbox reaches", source);
    let egress = serde_json::to_string(egress).map_err(|error| failed(error.into()))?;
    let output = tokio::process::Command::new(executable)
        .args(["sandbox", "reach", &pid.to_string(), &egress])
        .env_clear()
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(io::Error::other(said)))
}

const USAGE: &str =
    "usage: stead sandbox launch DIR | mount PID [SOURCE TARGET]… | reach PID EGRESS | end HOME";

/// What a shell's environment begins with in a sandbox.
pub(crate) fn environment() -> Env {
    let pairs = [
        ("HOME", "/root"),
        ("USER", "root"),
        ("LOGNAME", "root"),
        ("SHELL", "/bin/bash"),
        ("PATH", disk::PATH),
        ("LANG", "C.UTF-8"),
    ];
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// Runs `stead sandbox …` with the arguments that follow: what the provider starts of itself, each a
/// process of one thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let error = match words.as_slice() {
        ["launch", dir] => match launch::launch(Path::new(dir)) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error,
        },
        ["confine", dir] => match launch::confine(Path::new(dir)) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error,
        },
        ["mount", pid, directories @ ..] if directories.len() % 2 == 0 => {
            let pairs =
                directories.chunks_exact(2).map(|pair| (Path::new(pair[0]), Path::new(pair[1])));
            match place::mount(pid.parse().unwrap_or(0), &pairs.collect::<Vec<_>>()) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => error,
            }
        }
        ["reach", pid, egress] => {
            let egress = serde_json::from_str::<Egress>(egress).map_err(io::Error::from);
            match egress.and_then(|egress| connect::change(pid.parse().unwrap_or(0), &egress)) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => error,
            }
        }
        ["end", home] => match end_all(Path::new(home), |_| true) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error,
        },
        _ => io::Error::other(USAGE),
    };
    eprintln!("stead sandbox: {error}");
    ExitCode::FAILURE
}

impl pool::Makes for Namespace {
    fn pool(&self) -> &Pool {
        &self.0.pool
    }

    fn disks(&self) -> &Disks {
        &self.0.disks
    }

    fn called(&self, name: &str) -> String {
        name.to_owned()
    }

    async fn make(&self, name: &str, spec: &SandboxSpec) -> Result<(), ProviderError> {
        let (disk, dir) = (self.0.disks.of(name), self.0.sandboxes.join(name));
        self.bring_up(name, "", spec.clone(), disk, &dir).await
    }

    async fn end(&self, name: &str) -> Result<(), ProviderError> {
        let (dir, terminals) = (self.0.sandboxes.join(name), self.0.terminals.clone());
        let path = format!("{}/{name}", launch::CGROUP);
        blocking("end a sandbox", move || end(&dir, &Cgroups::new(&path)?, &terminals)).await
    }
}

impl Provider for Namespace {
    fn name(&self) -> &str {
        "namespace"
    }

    fn capabilities(&self) -> Capabilities {
        let unreachable = self.0.unreachable.load(Ordering::Relaxed);
        Capabilities {
            hosted: true,
            pause: Fidelity::Memory,
            metrics: true,
            isolation: [
                "namespaces: user, mount, process, network, ipc, uts, cgroup",
                "no capabilities, no new privileges",
                "system call filter",
                "limits of memory, processor, processes and disk",
                if unreachable { "no network" } else { "network egress rules" },
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(self.make_once(intent))
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        Box::pin(self.look(&instance.instance_id))
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.hold(&instance.instance_id))
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.go_on(&instance.instance_id))
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.end(&instance.instance_id))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Connection> {
        Box::pin(async {
            let host = self.host(&instance.instance_id).await?;
            Ok(Box::new(host.stream) as Connection)
        })
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        Box::pin(self.find(lease))
    }

    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(async {
            let host = self.host(&instance.instance_id).await?;
            Ok(Some(format!("/proc/{}/root", host.pid).into()))
        })
    }

    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection> {
        Box::pin(async move {
            let host = self.host(&instance.instance_id).await?;
            port::dial(host.pid, port).await
        })
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(self.measure(&instance.instance_id))
    }

    fn environment(&self) -> Option<Env> {
        Some(environment())
    }

    fn place<'a>(&'a self, instance: &'a Instance, place: &'a Place) -> Reply<'a, Placed> {
        Box::pin(self.bring_in(&instance.instance_id, place))
    }

    fn accepts(&self, spec: &serde_json::Value) -> Result<(), ProviderError> {
        let spec = self.asked("take the settings", spec, None)?;
        spec.image.map_or(Ok(()), |name| self.image(&name).map(drop))
    }

    fn limits_of(&self, spec: &serde_json::Value, lease: Option<&LeaseId>) -> Option<Limits> {
        Some(self.asked("tell the limits", spec, lease).ok()?.limits())
    }

    fn resize<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: &'a Instance,
        spec: &'a serde_json::Value,
    ) -> Reply<'a, ()> {
        Box::pin(self.relimit(lease, &instance.instance_id, spec))
    }

    fn reach<'a>(&'a self, instance: &'a Instance, spec: &'a serde_json::Value) -> Reply<'a, ()> {
        Box::pin(async move {
            let (id, doing) = (&instance.instance_id, "change what a sandbox reaches");
            let egress = self.asked(doing, spec, None)?.egress;
            let host = self.host(id).await?;
            let dir = self.dir(id);
            let made = blocking(doing, move || launch::read(&dir)).await?;
            let executable = &self.0.options.executable;
            reach(self.name(), executable, host.pid, (&made.spec.egress, &egress)).await
        })
    }

    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()> {
        Box::pin(self.0.disks.grow(lease, bytes))
    }

    fn ready(&self) -> Option<usize> {
        self.0.pool.ready()
    }

    fn exceeded(&self, instance: &Instance) -> Option<Exceeded> {
        self.met(&instance.instance_id).ok()
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        Box::pin(self.0.disks.forget(lease))
    }

    fn keeps(&self) -> Fidelity {
        Fidelity::Filesystem
    }

    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()> {
        let pace = instance.and_then(|instance| {
            let id = &instance.instance_id;
            Some((Pace::of(&self.dir(id))?, self.cgroups(id).ok()?))
        });
        Box::pin(self.0.disks.copy(self, (lease, instance), pace, to))
    }

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        Box::pin(self.0.disks.snapshots())
    }

    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        Box::pin(self.0.disks.remove_snapshot(name))
    }

    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        Box::pin(self.0.disks.kept())
    }
}
