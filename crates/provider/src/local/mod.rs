//! Instances on this machine, as the user the server runs as: a host process each, and whatever runs
//! on its terminals. Nothing keeps them apart from this machine.
//!
//! ```text
//! HOME/run/<instance>/
//!     label       what it was made for (ours, written before the host is started)
//!     paused      what was stopped, while it is paused and has no cgroup (ours)
//!     host.sock   the host's
//! ```
//! Whether an instance lives is told by its socket alone: the kernel closes it with the host, at a
//! reboot too. The host's process id comes with the connection, so that no number in a file is ever
//! taken for a process that has it by chance.

mod cgroup;
mod host;
mod metrics;
mod processes;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};

use super::{
    Capabilities, Connection, Created, Fidelity, Found, Intent, Metrics, Observed, Provider,
    ProviderError, Reply,
};
use base::durable::replace_volatile;
use cgroup::Cgroup;
use host::Host;
pub use metrics::disk;
use model::{Instance, InstanceId, LeaseId};

/// What a host uses with its descendants, and what these directories have on disk.
pub fn measured(host: i32, dirs: Vec<PathBuf>) -> Metrics {
    metrics::measure(host, None, dirs)
}

/// How long a host has to come up, and to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether something outside our control has come about.
const LOOK: Duration = Duration::from_millis(2);

/// How long a host that another try starts may take until it listens.
const FIRST: Duration = Duration::from_secs(2);

/// Instances that are hosts on this machine.
#[derive(Debug, Clone)]
pub struct Local {
    run: PathBuf,
    terminals: PathBuf,
    executable: PathBuf,
}

/// What an instance was made for, as it stands in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Label {
    lease_id: LeaseId,
    generation: u64,
    instance_id: InstanceId,
    /// The cgroup its terminals are in, known once the host runs.
    #[serde(default)]
    cgroup: Option<PathBuf>,
}

impl Label {
    fn of(intent: &Intent) -> Self {
        Self {
            lease_id: intent.lease_id.clone(),
            generation: intent.generation,
            instance_id: intent.instance_id.clone(),
            cgroup: None,
        }
    }
}

impl Local {
    /// The provider for a home; hosts are started from our own executable.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        // The link names the file that runs, even after another was put in its place.
        Self::with_executable(home, Path::new("/proc/self/exe"))
    }

    /// The provider for a home; hosts are started from this executable.
    #[must_use]
    pub fn with_executable(home: &Path, executable: &Path) -> Self {
        Self::beneath(home, "run", executable)
    }

    /// The same, with the directories of instances in this one of the home.
    pub fn beneath(home: &Path, run: &str, executable: &Path) -> Self {
        Self {
            run: home.join(run),
            terminals: home.join("terminals"),
            executable: executable.to_owned(),
        }
    }

    pub fn dir(&self, instance: &InstanceId) -> PathBuf {
        self.run.join(instance.as_str())
    }

    /// The process id of an instance's host, if it lives.
    pub async fn pid(&self, id: &InstanceId) -> Result<Option<i32>, ProviderError> {
        let failed = |source| ProviderError::failed("reach a host", source);
        let host = Host::connect(&self.dir(id)).await.map_err(failed)?;
        Ok(host.map(|host| host.pid()))
    }

    /// Waits until the host of a directory listens.
    pub async fn comes_up(&self, dir: &Path) -> io::Result<()> {
        while Host::connect(dir).await?.is_none() {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Makes the directory of an instance that is about to be, and writes down what it is for.
    pub fn note(&self, intent: &Intent) -> io::Result<PathBuf> {
        let dir = self.dir(&intent.instance_id);
        make_dir(&self.run)?;
        make_dir(&dir)?;
        write_label(&dir, &Label::of(intent))?;
        Ok(dir)
    }

    /// What a directory has on disk.
    pub fn disk(dir: PathBuf) -> u64 {
        disk(dir)
    }

    async fn make(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let failed = |source: io::Error| ProviderError::failed("start a host", source);
        let dir = self.dir(&intent.instance_id);
        let created = Created { reference: String::new() };
        if Host::connect(&dir).await.map_err(failed)?.is_some() {
            return Ok(created);
        }
        self.note(intent).map_err(failed)?;
        let mut label = Label::of(intent);
        let (executable, run_dir) = (self.executable.clone(), dir.clone());
        let text = format!("{}:{}", intent.lease_id, intent.generation);
        let started = tokio::task::spawn_blocking(move || {
            ::host::spawn_detached(&executable, &run_dir, &text)
        })
        .await
        .map_err(|error| failed(io::Error::other(error)))?;
        let host = match (Host::connect(&dir).await.map_err(failed)?, started) {
            (Some(host), _) => host,
            // A failure may only mean that another try of ours was first, and is not there yet.
            (None, Err(error)) => match first(&dir).await.map_err(failed)? {
                Some(host) => host,
                None => return Err(ProviderError::failed("start a host", error)),
            },
            (None, Ok(())) => return Err(failed(io::Error::other("it ended at once"))),
        };
        label.cgroup = cgroup::of_instance(host.pid(), intent.instance_id.as_str());
        if label.cgroup.is_some() {
            write_label(&dir, &label).map_err(failed)?;
        }
        Ok(created)
    }

    async fn look(&self, id: &InstanceId) -> Result<Observed, ProviderError> {
        let dir = self.dir(id);
        let failed = |source| ProviderError::failed("look at a host", source);
        match Host::connect(&dir).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Observed::Gone),
            // One that is stopped accepts nobody, so that its queue may be full: it lives.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
        let frozen = self.cgroup(id).is_some_and(|cgroup| cgroup.is_frozen());
        Ok(if frozen || dir.join("paused").exists() { Observed::Paused } else { Observed::Running })
    }

    async fn hold(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("pause a host's processes", source);
        let host = self.host(id).await?;
        let cgroup = self.cgroup(id);
        if let Some(cgroup) = &cgroup {
            cgroup.freeze(PATIENCE).await.map_err(failed)?;
        }
        let outside = |pid: i32| cgroup.as_ref().is_none_or(|cgroup| !cgroup.holds(pid));
        processes::stop(host.pid(), &self.dir(id).join("paused"), outside).await.map_err(failed)
    }

    async fn go_on(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("resume a host's processes", source);
        self.host(id).await?;
        if let Some(cgroup) = self.cgroup(id) {
            cgroup.thaw(PATIENCE).await.map_err(failed)?;
        }
        processes::go_on(&self.dir(id).join("paused")).map_err(failed)
    }

    async fn end(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.end_processes(id).await?;
        match fs::remove_dir_all(self.dir(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ProviderError::failed("end a host", error))
            }
            _ => Ok(()),
        }
    }

    /// Ends a host with all it has; its directory stays.
    pub async fn end_processes(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("end a host", source);
        let dir = self.dir(id);
        let cgroup = self.cgroup(id);
        if let Some(host) = Host::connect(&dir).await.map_err(failed)? {
            // What is frozen or stopped can be killed, but not reaped by one that waits for it.
            let family = processes::descendants(host.pid());
            if let Some(cgroup) = &cgroup {
                let _ = cgroup.thaw(Duration::ZERO).await;
            }
            let asked = timeout(PATIENCE / 2, host.shut_down()).await;
            if !matches!(asked, Ok(Ok(()))) {
                host.kill();
            }
            if timeout(PATIENCE, host.ended()).await.is_err() {
                return Err(failed(io::Error::other("the host does not end")));
            }
            processes::kill_all(&family);
        }
        if let Some(cgroup) = &cgroup {
            cgroup.kill(PATIENCE).await.map_err(failed)?;
        }
        processes::kill_orphans(&self.terminals, PATIENCE, || self.living_hosts())
            .await
            .map_err(failed)
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let failed = |source| ProviderError::failed("look for hosts", source);
        let entries = match fs::read_dir(&self.run) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Some(label) = read_label(&entry.path()) else { continue };
            if lease.is_some_and(|lease| *lease != label.lease_id) {
                continue;
            }
            // A directory that was renamed by somebody is not the instance its label names.
            if entry.file_name() != label.instance_id.as_str() {
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

    /// The process ids of the hosts of this home.
    async fn living_hosts(&self) -> Vec<i32> {
        let mut living = Vec::new();
        for entry in fs::read_dir(&self.run).into_iter().flatten().flatten() {
            if let Ok(Some(host)) = Host::connect(&entry.path()).await {
                living.push(host.pid());
            }
        }
        living
    }

    async fn host(&self, id: &InstanceId) -> Result<Host, ProviderError> {
        let failed = |source| ProviderError::failed("reach a host", source);
        let host = Host::connect(&self.dir(id)).await.map_err(failed)?;
        host.ok_or_else(|| ProviderError::Gone { instance: id.clone() })
    }

    fn cgroup(&self, id: &InstanceId) -> Option<Cgroup> {
        let path = read_label(&self.dir(id))?.cgroup?;
        Cgroup::open(path)
    }
}

impl Provider for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { hosted: true, pause: Fidelity::Memory, metrics: true, isolation: vec![] }
    }

    /// Its files are this machine's.
    fn keeps(&self) -> Fidelity {
        Fidelity::Filesystem
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(self.make(intent))
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
            match Host::connect(&self.dir(&instance.instance_id)).await {
                Ok(Some(host)) => Ok(Box::new(host.into_stream()) as Connection),
                Ok(None) => Err(ProviderError::Gone { instance: instance.instance_id.clone() }),
                Err(error) => Err(ProviderError::connect_failed("reach a host", error)),
            }
        })
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        Box::pin(self.find(lease))
    }

    fn root<'a>(&'a self, _: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(async { Ok(Some("/".into())) })
    }

    fn dial<'a>(&'a self, _: &'a Instance, port: u16) -> Reply<'a, Connection> {
        Box::pin(async move {
            let failed = |source| ProviderError::failed("reach a port", source);
            let here = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            let places = here.map(|address| SocketAddr::new(address, port));
            let stream = timeout(PATIENCE, TcpStream::connect(&places[..])).await;
            let stream = stream.unwrap_or_else(|late| Err(io::Error::from(late)));
            Ok(Box::new(stream.map_err(failed)?) as Connection)
        })
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(async {
            let failed = |source| ProviderError::failed("measure a host", source);
            let mut host = self.host(&instance.instance_id).await?;
            let cgroup = self.cgroup(&instance.instance_id);
            let terminals = timeout(PATIENCE, host.terminals())
                .await
                .unwrap_or_else(|late| Err(io::Error::from(late)))
                .map_err(failed)?;
            let dirs = terminals.iter().map(|id| self.terminals.join(id)).collect();
            let pid = host.pid();
            tokio::task::spawn_blocking(move || metrics::measure(pid, cgroup.as_ref(), dirs))
                .await
                .map_err(|error| failed(io::Error::other(error)))
        })
    }
}

/// Makes a directory that is ours alone, if it is not there.
/// The host that another try starts in this directory, for as long as that may take.
async fn first(dir: &Path) -> io::Result<Option<Host>> {
    let until = tokio::time::Instant::now() + FIRST;
    loop {
        let host = Host::connect(dir).await?;
        if host.is_some() || tokio::time::Instant::now() >= until {
            return Ok(host);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_label(dir: &Path, label: &Label) -> io::Result<()> {
    // What it labels does not outlive the machine either.
    replace_volatile(&dir.join("label"), &serde_json::to_vec(label)?)
}

fn read_label(dir: &Path) -> Option<Label> {
    serde_json::from_slice(&fs::read(dir.join("label")).ok()?).ok()
}
