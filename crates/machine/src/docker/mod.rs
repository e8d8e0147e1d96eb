//! Containers of an engine on this machine, Docker or Podman. The host is process 1.
//!
//! ```text
//! HOME/containers/<instance>/
//!     label         what it was made for; the engine has the same in the container's labels
//!     launch.json   what the launcher was told
//!     launch.err    what it complained about
//!     spec.json     the limits
//!     cgroup        the path of the container's cgroup
//!     host.sock     the host's; nobody inside can see it
//!     t/            the directories of its terminals; nobody inside but the host can see them
//!     door/         shown inside; empty once the host runs
//!     shown.json    the directories of the machine that it may write to
//! HOME/container-disks/<lease>.img      what a lease's containers wrote; outlives them
//! HOME/container-snapshots/<name>.img   the same, as it once was
//! ```
//! Whether an instance lives is told by its socket alone: shells go on while the engine is away, and
//! are used as before. The engine is asked to make, pause, resume and remove. What a server that was
//! killed had begun is a directory with a label, a container with the same label, or both.

mod container;
mod engine;
mod image;
mod labels;
mod launch;
mod make;
mod root;
mod strays;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::namespace::cgroup::Cgroups;
use super::namespace::connect::disconnect;
use super::namespace::disks::Disks;
use super::namespace::host::Host;
use super::namespace::launch::{LOCK, TERMINALS, give_slot_back, lock};
use super::namespace::make::find_program;
use super::namespace::pool::{self, Pool};
use super::namespace::programs::Programs;
use super::namespace::warden::Warden;
use super::namespace::{
    self, Label, SandboxSpec, blocking, bundle, disk, environment, names_inside, place, show,
};
use base::event::Events;
use base::keyed_lock::KeyedLock;
use engine::Engine;
use model::{Env, Instance, InstanceId, LeaseId};
use provider::{
    Capabilities, Connection, CopyTo, Created, Exceeded, Fidelity, Found, Intent, Limits, Metrics,
    Observed, Place, Placed, Provider, ProviderError, Reply, Snapshot,
};

/// How long a container has to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked whether something outside our control has come about.
const LOOK: Duration = Duration::from_millis(2);

/// The file with the limits of an instance.
const SPEC: &str = "spec.json";

/// What an operator chose.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's home.
    pub home: PathBuf,
    /// The executable that hosts and launchers are started from.
    pub executable: PathBuf,
    /// The engine's address; empty for `DOCKER_HOST` or the usual sockets.
    pub host: String,
    /// Directories of this machine that are shown read-only beside `/usr`.
    pub shown: Vec<PathBuf>,
    /// The limits and the image where a lease names none.
    pub defaults: SandboxSpec,
    /// How many containers of a kind wait for somebody who asks for one.
    pub warm: usize,
    /// Who is told how a pull goes.
    pub events: Option<Events>,
}

impl Options {
    /// The usual choices for a home.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        let namespace::Options { home, executable, shown, defaults, warm, .. } =
            namespace::Options::new(home);
        Self { home, executable, host: String::new(), shown, defaults, warm, events: None }
    }
}

/// Instances that are containers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Docker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    /// The home as it stands in labels.
    home: String,
    containers: PathBuf,
    terminals: PathBuf,
    programs: Programs,
    disks: Disks,
    pool: Pool,
    warden: Warden,
    /// The engine that answered last.
    engine: Mutex<Option<Engine>>,
    /// The engine's name of the image of this machine's programs, once it was made.
    machine_image: Mutex<Option<String>>,
    /// The instances that are being made.
    making: KeyedLock,
    /// The images that are being pulled or imported.
    images: KeyedLock,
}

impl Docker {
    /// The provider. Whether there is an engine is found out when it is used.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let home = options.home.canonicalize().unwrap_or_else(|_| options.home.clone());
        let options = Options { home: home.clone(), ..options };
        Self(Arc::new(Inner {
            home: home.to_string_lossy().into_owned(),
            disks: Disks::new("docker", &home, "container-disks", "container-snapshots"),
            pool: Pool::new(home.join("containers"), options.warm),
            warden: Warden::new(home.join("containers")),
            containers: home.join("containers"),
            terminals: home.join("terminals"),
            programs: Programs::new(home.join("programs"), options.executable.clone()),
            engine: Mutex::default(),
            machine_image: Mutex::default(),
            making: KeyedLock::default(),
            images: KeyedLock::default(),
            options,
        }))
    }

    /// What this machine will never have for containers, however long one waits.
    #[must_use]
    pub fn impossible() -> Vec<String> {
        if rustix::process::geteuid().is_root() {
            return vec![];
        }
        vec!["root: run the server as root".to_owned()]
    }

    /// Removes what a server that was killed had not yet given a name; their containers are found as
    /// strays. For a start, before anything is made.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub async fn sweep(&self) -> Result<(), ProviderError> {
        let (containers, terminals) = (self.0.containers.clone(), self.0.terminals.clone());
        let disks = self.0.disks.clone();
        blocking("remove what was left half made", move || {
            for entry in fs::read_dir(containers).into_iter().flatten().flatten() {
                let named = Label::read(&entry.path()).map(|label| label.instance_id.to_string());
                if named.is_none_or(|named| entry.file_name() != *named) {
                    clear(&entry.path(), &terminals)?;
                }
            }
            disks.sweep()
        })
        .await
    }

    /// Looks after what containers write outside their own disks until told to stop.
    pub async fn watch_writing(self, stop: CancellationToken) {
        self.0.warden.watch(stop).await;
    }

    /// Keeps containers ready until told to stop; with `usual`, also before anybody has asked for one.
    pub async fn keep_warm(self, usual: bool, stop: CancellationToken) {
        let usual = usual.then(|| self.spec(&serde_json::Value::Null, None));
        pool::keep_warm(self, usual.and_then(Result::ok), stop).await;
    }

    /// The engine.
    async fn engine(&self) -> Result<Engine, ProviderError> {
        let known = || self.0.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().clone();
        if let Some(engine) = found {
            return Ok(engine);
        }
        let engine = Engine::reach(&self.0.options.host).await.map_err(|why| {
            ProviderError::failed("reach a container engine", io::Error::other(why))
        })?;
        *known() = Some(engine.clone());
        Ok(engine)
    }

    /// What is missing at this moment.
    async fn missing(&self) -> Vec<String> {
        let mut missing = Self::impossible();
        for (program, package) in
            [("ip", "iproute2"), ("nft", "nftables"), ("mkfs.ext4", "e2fsprogs")]
        {
            if find_program(Path::new(program)).is_none() {
                missing.push(format!("{program}: install {package}"));
            }
        }
        if !Path::new("/dev/loop-control").exists() {
            missing.push("loop devices: load the module loop".to_owned());
        }
        // Asked anew: one that answered before may be gone, and another may have come.
        match Engine::reach(&self.0.options.host).await {
            Ok(engine) => {
                *self.0.engine.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine);
            }
            Err(why) => missing.push(why),
        }
        missing
    }

    /// The limits with what a lease says instead.
    fn spec(
        &self,
        said: &serde_json::Value,
        lease: Option<&LeaseId>,
    ) -> Result<SandboxSpec, ProviderError> {
        let refused =
            |reason: String| ProviderError::Refused { doing: "take the settings", reason };
        let spec = self.0.options.defaults.clone().with(said);
        let spec = spec.map_err(|bad| refused(bad.to_string()))?;
        if let Some(image) = spec.image.as_deref().filter(|image| !is_reference(image)) {
            return Err(refused(format!("image: {image:?} is no name of an image")));
        }
        self.0.disks.over_snapshot(spec, lease)
    }

    /// What the engine calls the container of an instance: one that waited keeps the name it had.
    fn container(&self, id: &InstanceId) -> String {
        let own = || labels::container(id.as_str());
        Label::read(&self.dir(id)).map_or_else(own, |label| label.name)
    }

    fn dir(&self, instance: &InstanceId) -> PathBuf {
        self.0.containers.join(instance.as_str())
    }

    /// The cgroups of a container that was started.
    fn cgroups(&self, id: &InstanceId) -> Option<Cgroups> {
        let path = fs::read_to_string(self.dir(id).join(launch::CGROUP)).ok()?;
        Cgroups::new(path.trim()).ok()
    }

    fn limits(&self, id: &InstanceId) -> Option<Limits> {
        let spec = fs::read(self.dir(id).join(SPEC)).ok()?;
        Some(serde_json::from_slice::<SandboxSpec>(&spec).ok()?.limits())
    }

    async fn host(&self, id: &InstanceId) -> Result<Host, ProviderError> {
        let failed = |source| ProviderError::connect_failed("reach a container", source);
        let host = Host::connect(&self.dir(id)).await.map_err(failed)?;
        host.ok_or_else(|| ProviderError::Gone { instance: id.clone() })
    }

    async fn look(&self, id: &InstanceId) -> Result<Observed, ProviderError> {
        let failed = |source| ProviderError::failed("look at a container", source);
        if !Host::lives(&self.dir(id)).await.map_err(failed)? {
            return Ok(Observed::Gone);
        }
        let frozen = self.cgroups(id).is_some_and(|cgroups| cgroups.is_frozen());
        Ok(if frozen { Observed::Paused } else { Observed::Running })
    }

    async fn hold(&self, id: &InstanceId) -> Result<(), ProviderError> {
        match self.look(id).await? {
            Observed::Gone => Err(ProviderError::Gone { instance: id.clone() }),
            Observed::Paused => Ok(()),
            Observed::Running => {
                let paused = self.engine().await?.pause(&self.container(id)).await;
                paused.map_err(engine::failed("pause a container"))
            }
        }
    }

    async fn go_on(&self, id: &InstanceId) -> Result<(), ProviderError> {
        match self.look(id).await? {
            Observed::Gone => Err(ProviderError::Gone { instance: id.clone() }),
            Observed::Running => Ok(()),
            Observed::Paused => {
                let resumed = self.engine().await?.resume(&self.container(id)).await;
                resumed.map_err(engine::failed("resume a container"))
            }
        }
    }

    async fn end(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.0.warden.forget(id);
        self.0.pool.release(id);
        self.remove(&self.container(id), self.dir(id)).await
    }

    /// Removes the container first: as long as its directory is there, it is found and ended again.
    async fn remove(&self, container: &str, dir: PathBuf) -> Result<(), ProviderError> {
        let engine = match self.engine().await {
            Ok(engine) => engine,
            // Where there never was an engine there is nothing to end.
            Err(_) if !dir.exists() => return Ok(()),
            Err(error) => return Err(error),
        };
        let removed = engine.remove(container).await;
        removed.map_err(engine::failed("remove a container"))?;
        let terminals = self.0.terminals.clone();
        blocking("remove what was a container's", move || clear(&dir, &terminals)).await
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let containers = self.0.containers.clone();
        let labels = blocking("look for containers", move || Label::all(&containers)).await?;
        let mut labels: BTreeMap<String, Label> =
            labels.into_iter().map(|label| (label.instance_id.to_string(), label)).collect();
        // While the engine is away, what it has is known by our directories; what it has beyond them
        // is found when it is back.
        if let Ok(engine) = self.engine().await {
            match engine.labelled(&self.0.home).await {
                Ok(listed) => labels.extend(
                    self.unknown(listed)
                        .into_values()
                        .flatten()
                        .map(|label| (label.instance_id.to_string(), label)),
                ),
                Err(error) => tracing::debug!(%error, "the engine does not list its containers"),
            }
        }
        let mut found = Vec::new();
        for label in labels.into_values() {
            if lease.is_some_and(|lease| *lease != label.lease_id) {
                continue;
            }
            found.push(Found {
                observed: self.look(&label.instance_id).await?,
                reference: label.name,
                lease_id: label.lease_id,
                generation: label.generation,
                instance_id: label.instance_id,
            });
        }
        Ok(found)
    }

    async fn measure(&self, id: &InstanceId) -> Result<Metrics, ProviderError> {
        let host = self.host(id).await?;
        let (this, id) = (self.clone(), id.clone());
        blocking("measure a container", move || {
            let disk = rustix::fs::statvfs(format!("/proc/{}/root", host.pid))?;
            let usage = this.cgroups(&id).map(|cgroups| cgroups.usage()).unwrap_or_default();
            Ok(Metrics {
                cpu_us: usage.cpu_us,
                memory_bytes: usage.memory_bytes,
                processes: usage.processes,
                disk_bytes: (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
                limits: this.limits(&id),
                exceeded: this.met(&id),
            })
        })
        .await
    }

    /// How often its limits were met.
    fn met(&self, id: &InstanceId) -> Option<Exceeded> {
        Some(Exceeded { disk: self.0.warden.stopped(id), ..self.cgroups(id)?.exceeded() })
    }

    async fn bring_in(&self, id: &InstanceId, place: &Place) -> Result<Placed, ProviderError> {
        let host = self.host(id).await?;
        let area = self.dir(id).join(TERMINALS);
        let dir = format!("/proc/self/fd/{}/{}", bundle::TERMINALS_FD, place.terminal).into();
        let (this, id, place, pid) = (self.clone(), id.clone(), place.clone(), host.pid);
        let (seen, missing) = blocking("bring a terminal into a container", move || {
            place::take_in(&area, place.terminal.as_str(), &place.dir)?;
            let (seen, missing) = names_inside(pid, &place.mounts)?;
            if !missing.is_empty() {
                this.note_shown(&id, missing.iter().map(|(outside, _)| outside.clone()))?;
            }
            Ok((seen, missing))
        })
        .await?;
        if !missing.is_empty() {
            let failed = |source| ProviderError::failed("show a directory in a container", source);
            show(&self.0.options.executable, host.pid, &missing).await.map_err(failed)?;
        }
        Ok(Placed { dir, seen })
    }

    /// Notes that a container is shown directories, to which it may write what its disk may hold.
    /// Blocking.
    fn note_shown(
        &self,
        id: &InstanceId,
        directories: impl IntoIterator<Item = PathBuf>,
    ) -> io::Result<()> {
        let limit = self.limits(id).and_then(|limits| limits.disk_bytes).unwrap_or(u64::MAX);
        self.0.warden.note(id, directories, limit)
    }
}

/// Whether a text can name an image of a registry: what every engine takes, and nothing that could be
/// read as something else.
fn is_reference(name: &str) -> bool {
    (1..=512).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte))
        && !name.contains("..")
        && !name.contains("//")
}

/// Removes the directory of a container that is gone, in an order in which nothing is forgotten when it
/// is interrupted.
fn clear(dir: &Path, terminals: &Path) -> io::Result<()> {
    if dir.exists() {
        // A launcher may still be at work.
        let launcher = lock(&dir.join(LOCK))?;
        disconnect(dir)?;
        give_slot_back(dir)?;
        place::give_all_back(&dir.join(TERMINALS), terminals)?;
        disk::remove_all(dir)?;
        drop(launcher);
    }
    Ok(())
}

/// Runs `stead container …` with the arguments that follow: what the provider starts of itself, each a
/// process of one thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let error = match words.as_slice() {
        ["launch", dir] => match launch::launch(Path::new(dir)) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => error,
        },
        ["enter", door, ..] if words.len() == args.len() => {
            launch::enter(Path::new(door), &args[2..])
        }
        _ => io::Error::other("usage: stead container launch DIR | enter DOOR ARGUMENTS"),
    };
    eprintln!("stead container: {error}");
    ExitCode::FAILURE
}

impl pool::Makes for Docker {
    fn pool(&self) -> &Pool {
        &self.0.pool
    }

    fn disks(&self) -> &Disks {
        &self.0.disks
    }

    fn called(&self, name: &str) -> String {
        labels::container(name)
    }

    async fn make(&self, name: &str, spec: &SandboxSpec) -> Result<(), ProviderError> {
        self.bring_up(name, None, spec, self.0.disks.of(name)).await
    }

    async fn end(&self, name: &str) -> Result<(), ProviderError> {
        self.remove(&labels::container(name), self.0.containers.join(name)).await
    }
}

impl Provider for Docker {
    fn name(&self) -> &str {
        "docker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            hosted: true,
            pause: Fidelity::Memory,
            metrics: true,
            isolation: [
                "the engine's namespaces: mount, process, network, ipc, uts, cgroup; user where it maps users",
                "no capabilities, no new privileges",
                "system call filter",
                "limits of memory, processor, processes and disk",
                "network egress rules",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn lacks(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(self.missing().await) })
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

    fn reach<'a>(&'a self, instance: &'a Instance, spec: &'a serde_json::Value) -> Reply<'a, ()> {
        Box::pin(async move {
            let egress = self.spec(spec, None)?.egress;
            let host = self.host(&instance.instance_id).await?;
            let dir = self.dir(&instance.instance_id);
            let doing = "change what a container reaches";
            let made = blocking(doing, move || launch::read(&dir)).await?.egress;
            let executable = &self.0.options.executable;
            namespace::reach(self.name(), executable, host.pid, (&made, &egress)).await
        })
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
            crate::namespace::port::dial(host.pid, port).await
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
        self.spec(spec, None).map(drop)
    }

    fn limits_of(&self, spec: &serde_json::Value, lease: Option<&LeaseId>) -> Option<Limits> {
        Some(self.spec(spec, lease).ok()?.limits())
    }

    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()> {
        Box::pin(self.0.disks.grow(lease, bytes))
    }

    fn exceeded(&self, instance: &Instance) -> Option<Exceeded> {
        self.met(&instance.instance_id)
    }

    fn ready(&self) -> Option<usize> {
        self.0.pool.ready()
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
        Box::pin(self.0.disks.copy(self, (lease, instance), None, to))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_cannot_be_kept_are_refused() {
        let provider = Docker::new(Options::new(Path::new("/nowhere")));
        for (spec, fine) in [
            (json!(null), true),
            (json!({"memory": "512m", "cpus": 1, "egress": "none"}), true),
            (json!({"image": "localhost:5000/a/b:1.2"}), true),
            (json!({"image": "../../etc"}), false),
            (json!({"image": "-v"}), false),
            (json!({"disk": "1g"}), true),
            (json!({"disk": "1k"}), false),
            (json!({"snapshot": "of another"}), false),
            (json!({"privileged": true}), false),
        ] {
            assert_eq!(provider.accepts(&spec).is_ok(), fine, "{spec}");
        }
    }
}
