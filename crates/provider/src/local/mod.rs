//! Instances on this machine, as the user of the server: one host process each, and the processes of its
//! terminals. Nothing isolates them from this machine.
//!
//! ```text
//! HOME/run/<instance>/
//!     label       lease and instance (ours, written before the host is started)
//!     paused      the stopped processes, while it is paused and has no cgroup (ours)
//!     host.sock   the host's
//! ```

mod cgroup;
mod host_process;
mod metrics;
mod processes;
mod timing;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};

use crate::error::ProviderError;
use crate::instance::{
    Capabilities, Connection, Created, Fidelity, Found, HostConnection, Intent, Metrics, Observed,
    Profile, Reply,
};
use crate::label::{read_label, write_label};
use crate::traits::{Ports, Provider};
use cgroup::InstanceCgroup;
use host_process::HostProcess;
pub use metrics::directory_size;
use model::{Instance, InstanceId, LeaseId};
use timing::{CONCURRENT_START_TIMEOUT, HOST_TIMEOUT, POLL_INTERVAL};

/// Measures a host, its descendants, and the size of these directories.
pub fn measured(host: i32, dirs: Vec<PathBuf>) -> Metrics {
    metrics::measure(host, None, dirs)
}

/// Instances that are hosts on this machine.
#[derive(Debug, Clone)]
pub struct Local {
    run: PathBuf,
    terminals: PathBuf,
    executable: PathBuf,
}

/// The lease and instance that a directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HostLabel {
    lease_id: LeaseId,
    generation: u64,
    instance_id: InstanceId,
    /// The cgroup of its terminals. Written before the host creates it, so that it is found if the host or the server
    /// is killed at that moment.
    #[serde(default)]
    cgroup: Option<PathBuf>,
}

impl HostLabel {
    fn of(intent: &Intent) -> Self {
        Self {
            lease_id: intent.lease_id.clone(),
            generation: intent.generation,
            instance_id: intent.instance_id.clone(),
            cgroup: cgroup::of_future_instance(intent.instance_id.as_str()),
        }
    }
}

impl Local {
    /// Creates the provider for a home. Hosts are started from our own executable.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        // The link names the running file, even after an upgrade replaced it.
        Self::beneath(home, "run", Path::new("/proc/self/exe"))
    }

    /// Creates the provider for a home whose instances are in the directory `run` of that home. Hosts are started
    /// from this executable.
    #[must_use]
    pub fn beneath(home: &Path, run: &str, executable: &Path) -> Self {
        Self {
            run: home.join(run),
            terminals: home.join("terminals"),
            executable: executable.to_owned(),
        }
    }

    #[must_use]
    pub fn dir(&self, instance: &InstanceId) -> PathBuf {
        self.run.join(instance.as_str())
    }

    /// Returns the process id of an instance's host, if it runs.
    pub async fn pid(&self, id: &InstanceId) -> Result<Option<i32>, ProviderError> {
        let failed = |source| ProviderError::failed("connect to a host", source);
        let host = HostProcess::connect(&self.dir(id)).await.map_err(failed)?;
        Ok(host.map(|host| host.pid()))
    }

    /// Waits until the host of a directory listens.
    pub async fn wait_until_listening(&self, dir: &Path) -> io::Result<()> {
        while HostProcess::connect(dir).await?.is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Creates the directory of a future instance, with its label.
    pub fn prepare(&self, intent: &Intent) -> io::Result<PathBuf> {
        let dir = self.dir(&intent.instance_id);
        make_dir(&self.run)?;
        make_dir(&dir)?;
        write_label(&dir, &HostLabel::of(intent))?;
        Ok(dir)
    }

    async fn start(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let failed = |source: io::Error| ProviderError::failed("start a host", source);
        let dir = self.dir(&intent.instance_id);
        let created = Created { reference: String::new() };
        if HostProcess::connect(&dir).await.map_err(failed)?.is_some() {
            return Ok(created);
        }
        self.prepare(intent).map_err(failed)?;
        let mut label = HostLabel::of(intent);
        let (executable, run_dir) = (self.executable.clone(), dir.clone());
        let text = format!("{}:{}", intent.lease_id, intent.generation);
        let started =
            base::task::blocking(move || host::spawn_detached(&executable, &run_dir, &text))
                .await
                .map_err(|error| failed(io::Error::other(error)))?;
        let host = match (HostProcess::connect(&dir).await.map_err(failed)?, started) {
            (Some(host), _) => host,
            // This start may have failed because a concurrent one was first, whose host is not up yet.
            (None, Err(error)) => match concurrently_started(&dir).await.map_err(failed)? {
                Some(host) => host,
                None => return Err(ProviderError::failed("start a host", error)),
            },
            (None, Ok(())) => return Err(failed(io::Error::other("the host exited immediately"))),
        };
        let cgroup = cgroup::of_instance(host.pid(), intent.instance_id.as_str());
        if cgroup.is_some() && cgroup != label.cgroup {
            label.cgroup = cgroup;
            write_label(&dir, &label).map_err(failed)?;
        }
        Ok(created)
    }

    async fn observe(&self, id: &InstanceId) -> Result<Observed, ProviderError> {
        let dir = self.dir(id);
        let failed = |source| ProviderError::failed("inspect a host", source);
        match HostProcess::connect(&dir).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Observed::Gone),
            // A stopped host accepts no connections, so its queue may be full, but it exists.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
        let frozen = self.cgroup(id).is_some_and(|cgroup| cgroup.is_frozen());
        Ok(if frozen || dir.join("paused").exists() { Observed::Paused } else { Observed::Running })
    }

    async fn pause_processes(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("pause a host's processes", source);
        let host = self.host(id).await?;
        let cgroup = self.cgroup(id);
        if let Some(cgroup) = &cgroup {
            cgroup.freeze(HOST_TIMEOUT).await.map_err(failed)?;
        }
        let outside = |pid: i32| cgroup.as_ref().is_none_or(|cgroup| !cgroup.holds(pid));
        processes::stop(host.pid(), &self.dir(id).join("paused"), outside).await.map_err(failed)
    }

    async fn resume_processes(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("resume a host's processes", source);
        self.host(id).await?;
        if let Some(cgroup) = self.cgroup(id) {
            cgroup.thaw(HOST_TIMEOUT).await.map_err(failed)?;
        }
        processes::resume(&self.dir(id).join("paused")).map_err(failed)
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

    /// Ends a host and all its processes, but keeps its directory.
    pub async fn end_processes(&self, id: &InstanceId) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("end a host", source);
        let dir = self.dir(id);
        let cgroup = self.cgroup(id);
        if let Some(host) = HostProcess::connect(&dir).await.map_err(failed)? {
            // A frozen or stopped process can be killed, but the host cannot reap it before it is thawed.
            let family = processes::descendants(host.pid());
            if let Some(cgroup) = &cgroup {
                let _ = cgroup.thaw(Duration::ZERO).await;
            }
            let requested = timeout(HOST_TIMEOUT / 2, host.shut_down()).await;
            if !matches!(requested, Ok(Ok(()))) {
                host.kill();
            }
            if timeout(HOST_TIMEOUT, host.ended()).await.is_err() {
                return Err(failed(io::Error::other("the host did not end in time")));
            }
            processes::kill_all(&family);
        }
        if let Some(cgroup) = &cgroup {
            cgroup.kill(HOST_TIMEOUT).await.map_err(failed)?;
        }
        processes::kill_orphans(&self.terminals, HOST_TIMEOUT, || self.living_hosts())
            .await
            .map_err(failed)
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let failed = |source| ProviderError::failed("list the hosts", source);
        let entries = match fs::read_dir(&self.run) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Some(label) = read_label::<HostLabel>(&entry.path()) else { continue };
            if lease.is_some_and(|lease| *lease != label.lease_id) {
                continue;
            }
            // A renamed directory does not belong to the instance in its label.
            if entry.file_name() != label.instance_id.as_str() {
                continue;
            }
            found.push(Found {
                observed: self.observe(&label.instance_id).await?,
                lease_id: label.lease_id,
                generation: label.generation,
                instance_id: label.instance_id,
                reference: String::new(),
            });
        }
        Ok(found)
    }

    /// Returns the process ids of the running hosts of this home.
    async fn living_hosts(&self) -> Vec<i32> {
        let mut living = Vec::new();
        for entry in fs::read_dir(&self.run).into_iter().flatten().flatten() {
            if let Ok(Some(host)) = HostProcess::connect(&entry.path()).await {
                living.push(host.pid());
            }
        }
        living
    }

    async fn host(&self, id: &InstanceId) -> Result<HostProcess, ProviderError> {
        let failed = |source| ProviderError::failed("connect to a host", source);
        let host = HostProcess::connect(&self.dir(id)).await.map_err(failed)?;
        host.ok_or_else(|| ProviderError::Gone { instance: id.clone() })
    }

    fn cgroup(&self, id: &InstanceId) -> Option<InstanceCgroup> {
        let path = read_label::<HostLabel>(&self.dir(id))?.cgroup?;
        InstanceCgroup::open(path)
    }
}

impl Provider for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { hosted: true, pause: Fidelity::Memory, metrics: true, isolation: vec![] }
    }

    fn profile(&self) -> Profile {
        // The files of an instance belong to this machine, so they outlive it.
        Profile { suspend: Fidelity::Filesystem, ..Profile::default() }
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(self.start(intent))
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        Box::pin(self.observe(&instance.instance_id))
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.pause_processes(&instance.instance_id))
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.resume_processes(&instance.instance_id))
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.end(&instance.instance_id))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection> {
        Box::pin(async {
            match HostProcess::connect(&self.dir(&instance.instance_id)).await {
                Ok(Some(host)) => Ok(host.into_socket().into()),
                Ok(None) => Err(ProviderError::Gone { instance: instance.instance_id.clone() }),
                Err(error) => Err(ProviderError::connect_failed("connect to a host", error)),
            }
        })
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        Box::pin(self.find(lease))
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(async {
            let failed = |source| ProviderError::failed("measure a host", source);
            let host = self.host(&instance.instance_id).await?.pid();
            let cgroup = self.cgroup(&instance.instance_id);
            let terminals = self.terminals.clone();
            // Without a request to the host, which may have stopped.
            let measured = move || {
                let dirs = metrics::open_directories(host, &terminals);
                metrics::measure(host, cgroup.as_ref(), dirs)
            };
            base::task::blocking(measured).await.map_err(|error| failed(io::Error::other(error)))
        })
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(self)
    }
}

impl Ports for Local {
    fn dial<'a>(&'a self, _: &'a Instance, port: u16) -> Reply<'a, Connection> {
        Box::pin(async move {
            let failed = |source| ProviderError::failed("connect to a port", source);
            let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            let addresses = loopback.map(|address| SocketAddr::new(address, port));
            let stream = timeout(HOST_TIMEOUT, TcpStream::connect(&addresses[..])).await;
            let stream = stream.unwrap_or_else(|late| Err(io::Error::from(late)));
            Ok(Box::new(stream.map_err(failed)?) as Connection)
        })
    }
}

/// Waits for the host that a concurrent call starts in this directory. Returns `None` if it does not start.
async fn concurrently_started(dir: &Path) -> io::Result<Option<HostProcess>> {
    let deadline = tokio::time::Instant::now() + CONCURRENT_START_TIMEOUT;
    loop {
        let host = HostProcess::connect(dir).await?;
        if host.is_some() || tokio::time::Instant::now() >= deadline {
            return Ok(host);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Creates a directory with mode 0700, and its parents, unless it exists.
fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host is killed as soon as it has created its cgroup, before the server knows that it runs.
    #[tokio::test]
    async fn the_cgroup_of_a_host_that_was_killed_at_its_start_is_removed() {
        let home = std::env::temp_dir().join(format!("stead-local-{}", std::process::id()));
        let local = Local::new(&home);
        let instance = InstanceId::fresh();
        let intent = Intent {
            lease_id: LeaseId::fresh(),
            generation: 1,
            instance_id: instance.clone(),
            spec: serde_json::Value::Null,
        };
        local.prepare(&intent).unwrap();
        let cgroup = cgroup::of_future_instance(instance.as_str());
        let Some(cgroup) = cgroup.filter(|path| fs::create_dir_all(path).is_ok()) else {
            eprintln!("skipped: this machine has no writable cgroups");
            return;
        };
        local.end(&instance).await.unwrap();
        assert!(!cgroup.exists(), "{} is left", cgroup.display());
        fs::remove_dir_all(home).unwrap();
    }
}
