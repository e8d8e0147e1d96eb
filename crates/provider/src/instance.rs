//! The values that providers take and return.

use std::future::Future;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::ProviderError;
use super::host_socket::HostSocket;
use model::{Env, Instance, InstanceId, LeaseId, Money, TerminalId, Timestamp};

/// The result of an operation, as a future that a trait object can return.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// A byte stream to a host or to a program inside an instance.
pub type Connection = Box<dyn ByteStream>;

/// The traits of a [`Connection`].
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A stream to the host inside an instance.
pub struct HostConnection {
    pub stream: Connection,
    /// The host's process id on this machine, also if it runs in a PID namespace; `None` if it runs
    /// elsewhere.
    pub pid: Option<i32>,
}

impl From<HostSocket> for HostConnection {
    fn from(socket: HostSocket) -> Self {
        Self { stream: Box::new(socket.stream), pid: Some(socket.pid) }
    }
}

/// The capabilities of a provider, as `/api/providers` shows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// A host runs inside, so terminals are real PTYs.
    pub hosted: bool,
    /// What survives a pause.
    pub pause: Fidelity,
    pub metrics: bool,
    /// The mechanisms that isolate instances from this machine and from each other, as text. Empty if there
    /// are none.
    pub isolation: Vec<String>,
}

/// What survives when an instance is paused or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// Every process, with its memory.
    Memory,
    /// Only files.
    Filesystem,
    None,
}

/// Properties that all instances of a provider share.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The initial environment of shells, or `None` for the server's environment.
    pub environment: Option<Env>,
    /// The price of one hour of a running instance.
    pub hourly_price: Money,
    /// How long an unreachable host is retried before it counts as lost.
    pub reconnect_timeout: Duration,
    /// What the next instance of a lease inherits from an ended one.
    pub suspend: Fidelity,
    /// The number of warm instances in the pool, or `None` if there is no pool.
    pub warm: Option<usize>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            environment: None,
            hourly_price: Money::default(),
            reconnect_timeout: Duration::from_secs(5),
            suspend: Fidelity::None,
            warm: None,
        }
    }
}

/// An instance to be created, as recorded before the creation.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    pub lease_id: LeaseId,
    /// Counts the instances of the lease.
    pub generation: u64,
    /// Never used for another instance.
    pub instance_id: InstanceId,
    /// Provider-specific settings.
    pub spec: serde_json::Value,
}

/// An instance that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The provider's name for the instance; empty if that is our id.
    pub reference: String,
}

/// The state of an instance, as its provider reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    Running,
    Paused,
    /// It does not exist, or has ended.
    Gone,
}

/// The target of a copy of a lease's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyTo {
    /// A lease that has no files yet.
    Lease(LeaseId),
    /// A snapshot of this name, replacing an existing one.
    Snapshot(String),
}

/// A named copy of a lease's files, from which other leases can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub name: String,
    /// The used disk space.
    pub bytes: u64,
    /// When it was taken.
    pub at: Timestamp,
}

/// The directories that a terminal needs inside an instance, by their paths outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalMounts {
    pub terminal: TerminalId,
    /// The terminal's own directory, which only the host uses.
    pub dir: PathBuf,
    /// Directories for the shell, each with its preferred path inside.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// The directory of the project that these belong to.
    pub workspace: Option<PathBuf>,
}

/// The paths of [`TerminalMounts`] inside an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedPaths {
    /// The terminal's own directory, as the host opens it.
    pub dir: PathBuf,
    /// Each directory outside, and its path inside.
    pub seen: Vec<(PathBuf, PathBuf)>,
    /// The settings of the instance's image for shells.
    pub image: ImageShell,
}

/// What the image of an instance says about shells in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageShell {
    /// Variables, which have precedence over those of [`Profile::environment`].
    pub env: Env,
    /// Where shells start, unless in the directory of the project.
    pub directory: Option<PathBuf>,
}

impl MountedPaths {
    /// The paths where inside and outside are the same.
    #[must_use]
    pub fn unchanged(wanted: &TerminalMounts) -> Self {
        let seen = wanted.mounts.iter().map(|(outside, _)| (outside.clone(), outside.clone()));
        Self { dir: wanted.dir.clone(), seen: seen.collect(), image: ImageShell::default() }
    }

    /// The path inside of a mounted directory; any other path is returned as it is.
    #[must_use]
    pub fn inside(&self, outside: &Path) -> PathBuf {
        let seen = self.seen.iter().find(|(mounted, _)| mounted == outside);
        seen.map_or_else(|| outside.to_owned(), |(_, inside)| inside.clone())
    }
}

/// The result of a script inside an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutput {
    /// `None` if the script was ended at its time limit.
    pub exit_code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// An instance that was found by our label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub lease_id: LeaseId,
    pub generation: u64,
    pub instance_id: InstanceId,
    /// The provider's name for the instance.
    pub reference: String,
    pub observed: Observed,
}

impl Found {
    #[must_use]
    pub fn instance(&self, started_at: Timestamp) -> Instance {
        Instance {
            instance_id: self.instance_id.clone(),
            generation: self.generation,
            reference: self.reference.clone(),
            started_at,
        }
    }
}

/// The destinations that programs of an instance tried to reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EgressLog {
    /// The most recently used first.
    pub destinations: Vec<EgressDestination>,
    /// Attempts to reach further allowed destinations, for which the log had no room.
    pub unlisted_allowed: u64,
    /// The same for refused destinations.
    pub unlisted_refused: u64,
}

/// A destination in an egress log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressDestination {
    pub address: Ipv4Addr,
    /// `None` if the protocol has no ports.
    pub port: Option<u16>,
    pub protocol: String,
    /// The name for which the egress rules allow the address.
    pub name: Option<String>,
    pub verdict: EgressVerdict,
    /// First packets of connections, including repeated ones; for refused destinations, all packets.
    pub attempts: u64,
    /// The time since the last attempt, in whole seconds.
    pub idle: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressVerdict {
    Allowed,
    Refused,
}

/// How often an instance reached its limits since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exceeded {
    /// Processes that were killed at the memory limit.
    pub out_of_memory: u64,
    /// Processes that could not be created at the process limit.
    pub processes: u64,
    /// How often its processes were killed for exceeding the disk quota.
    pub disk: u64,
}

/// The resource limits of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    pub memory_bytes: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub processes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// The resource usage of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// CPU time since it was created, in microseconds.
    pub cpu_us: u64,
    /// Memory, with shared pages counted proportionally.
    pub memory_bytes: u64,
    /// Processes, including the host.
    pub processes: u64,
    /// The size of its terminals' logs and outputs; for a sandbox, the used space of its disk.
    pub disk_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<Exceeded>,
}
