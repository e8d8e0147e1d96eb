//! Kinds of compute that can hold instances.
//!
//! A provider is asked for states, not steps: each operation may be repeated after a crash or a lost
//! reply and then does nothing, or what is still to be done. What it creates carries the lease and
//! generation it was created for, so that it can be found again. It knows nothing of rows.

mod bounded;
mod error;
pub mod local;

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

pub use error::ProviderError;
pub use local::Local;

use model::{Env, Instance, InstanceId, LeaseId, Money, TerminalId, Timestamp};

/// What every operation answers.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// A byte stream to the host inside an instance.
pub type Connection = Box<dyn Stream>;

/// What a connection can do.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A kind of compute.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// The name clients choose it by.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// What is missing at this moment for it to be used, in words; empty if nothing is.
    fn lacks(&self) -> Reply<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }

    /// Makes the instance be there and running. Asked again for the same one, finds it.
    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created>;

    /// How an instance is.
    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed>;

    /// Makes every process of an instance hold still.
    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Makes an instance go on.
    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Makes an instance be gone, with every process it had. One that is gone already is a success.
    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Opens a stream to the host inside an instance.
    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Connection>;

    /// Everything that carries our label, or only what was made for one lease.
    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>>;

    /// What an instance uses.
    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics>;

    /// What a shell's environment begins with inside; `None` for the server's own.
    fn environment(&self) -> Option<Env> {
        None
    }

    /// Makes a terminal's directory and a project's files be there for the host and the shells of an
    /// instance, and answers under which names.
    fn place<'a>(&'a self, instance: &'a Instance, place: &'a Place) -> Reply<'a, Placed> {
        let _ = instance;
        let seen = place.mounts.iter().map(|(outside, _)| (outside.clone(), outside.clone()));
        Box::pin(std::future::ready(Ok(Placed { dir: place.dir.clone(), seen: seen.collect() })))
    }

    /// What an instance costs for an hour that it runs.
    fn price(&self) -> Money {
        Money::default()
    }

    /// How long a host that cannot be reached is looked for before it counts as gone.
    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Whether these settings of a lease can be taken.
    fn accepts(&self, spec: &serde_json::Value) -> Result<(), ProviderError> {
        let nothing = spec.is_null() || spec.as_object().is_some_and(serde_json::Map::is_empty);
        if nothing {
            return Ok(());
        }
        let reason = format!("provider {} has no settings", self.name());
        Err(ProviderError::Refused { doing: "take the settings", reason })
    }

    /// Makes an instance that is there reach what these settings of its lease say now. Nothing that runs
    /// in it ends for that.
    fn reach<'a>(&'a self, instance: &'a Instance, spec: &'a serde_json::Value) -> Reply<'a, ()> {
        let _ = (instance, spec);
        unsupported(self.name(), "change what an instance reaches")
    }

    /// What was killed or refused in an instance for going beyond its limits; `None` where there are
    /// none.
    fn exceeded(&self, instance: &Instance) -> Option<Exceeded> {
        let _ = instance;
        None
    }

    /// What an instance may use under these settings, or under those that a lease has had since; `None`
    /// where nothing limits it.
    fn limits_of(&self, spec: &serde_json::Value, lease: Option<&LeaseId>) -> Option<Limits> {
        let _ = (spec, lease);
        None
    }

    /// Makes the limits of an instance be those of these settings. Its disk stays as it is.
    fn resize<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: &'a Instance,
        spec: &'a serde_json::Value,
    ) -> Reply<'a, ()> {
        let _ = (lease, instance, spec);
        unsupported(self.name(), "change the limits of what runs; stop it first")
    }

    /// Makes the disk that is kept for a lease this large, with what is on it. Nothing runs on it.
    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()> {
        let _ = (lease, bytes);
        unsupported(self.name(), "change the size of a disk")
    }

    /// How many instances wait for somebody who asks for one; `None` where none ever do.
    fn ready(&self) -> Option<usize> {
        None
    }

    /// Makes everything be gone that is kept for a lease between its instances.
    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        let _ = lease;
        Box::pin(std::future::ready(Ok(())))
    }

    /// What is kept of an instance that was ended, for the next one under its lease.
    fn keeps(&self) -> Fidelity {
        Fidelity::None
    }

    /// Copies the files that are kept for a lease, with what its instance has written so far.
    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()> {
        let _ = (lease, instance, to);
        unsupported(self.name(), "copy a lease's files")
    }

    /// The snapshots there are.
    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }

    /// Makes a snapshot be gone; answers whether it was there.
    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        let _ = name;
        Box::pin(std::future::ready(Ok(false)))
    }

    /// The leases for which something is kept between their instances.
    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }

    /// Where this machine sees the root of an instance's files, if it does.
    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        let _ = instance;
        Box::pin(async { Ok(None) })
    }

    /// Opens a stream to a port that a program inside listens on.
    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection> {
        let _ = (instance, port);
        unsupported(self.name(), "reach a port")
    }

    /// Runs one command, where there is no host.
    fn execute<'a>(&'a self, instance: &'a Instance, _: &'a Execute) -> Reply<'a, Executed> {
        let _ = instance;
        unsupported(self.name(), "run a command without a host")
    }

    /// Reads a file, where there is no host.
    fn read_file<'a>(&'a self, instance: &'a Instance, path: &'a str) -> Reply<'a, Vec<u8>> {
        let _ = (instance, path);
        unsupported(self.name(), "read a file without a host")
    }

    /// Writes a file, where there is no host.
    fn write_file<'a>(
        &'a self,
        instance: &'a Instance,
        path: &'a str,
        bytes: &'a [u8],
    ) -> Reply<'a, ()> {
        let _ = (instance, path, bytes);
        unsupported(self.name(), "write a file without a host")
    }

    /// Lists a directory, where there is no host.
    fn list_dir<'a>(&'a self, instance: &'a Instance, path: &'a str) -> Reply<'a, Vec<Entry>> {
        let _ = (instance, path);
        unsupported(self.name(), "list a directory without a host")
    }
}

/// What a provider can do. What it cannot is refused with [`ProviderError::Unsupported`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// A host runs inside, so that terminals are real ones.
    pub hosted: bool,
    /// What survives a pause.
    pub pause: Fidelity,
    /// Whether it tells what an instance uses.
    pub metrics: bool,
    /// What keeps instances apart from this machine and from each other, in words; empty if nothing.
    pub isolation: Vec<String>,
}

/// What is kept of an instance that is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// Every process, with its memory.
    Memory,
    /// Files alone.
    Filesystem,
    /// It cannot be paused.
    None,
}

/// An instance that is about to be made, as it was recorded beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    /// The lease it is for.
    pub lease_id: LeaseId,
    /// Which of that lease's instances it is.
    pub generation: u64,
    /// Its id; never used for another.
    pub instance_id: InstanceId,
    /// The provider's own settings.
    pub spec: serde_json::Value,
}

/// An instance that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// What the provider calls it; empty if it goes by our id.
    pub reference: String,
}

/// How an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// It runs.
    Running,
    /// It holds still.
    Paused,
    /// It is not there, or no longer alive.
    Gone,
}

/// Where the files of a lease are copied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyTo {
    /// A lease that has none yet.
    Lease(LeaseId),
    /// A snapshot of this name, in place of one that has it.
    Snapshot(String),
}

/// Files of a lease as they once were; others may begin with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// What it takes on disk.
    pub bytes: u64,
    /// When it was made.
    pub at: Timestamp,
}

/// What a terminal needs inside an instance, by its names outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The terminal.
    pub terminal: TerminalId,
    /// Its directory.
    pub dir: PathBuf,
    /// Directories, and where they are to be seen if names differ inside.
    pub mounts: Vec<(PathBuf, PathBuf)>,
}

/// The names inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The terminal's directory, for the host.
    pub dir: PathBuf,
    /// The directories that were given, and where each is seen.
    pub seen: Vec<(PathBuf, PathBuf)>,
}

impl Placed {
    /// The name inside of a directory that was given; any other keeps its own.
    #[must_use]
    pub fn inside(&self, outside: &Path) -> PathBuf {
        let seen = self.seen.iter().find(|(given, _)| given == outside);
        seen.map_or_else(|| outside.to_owned(), |(_, inside)| inside.clone())
    }
}

/// Something that carries our label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The lease it was made for.
    pub lease_id: LeaseId,
    /// Which of that lease's instances it is.
    pub generation: u64,
    /// Its id.
    pub instance_id: InstanceId,
    /// What the provider calls it.
    pub reference: String,
    /// How it is.
    pub observed: Observed,
}

impl Found {
    /// The instance that was found, as operations take it.
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

/// What was killed or refused for going beyond a limit, since the instance began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exceeded {
    /// Processes that were killed because memory was at its limit.
    pub out_of_memory: u64,
    /// Processes that could not be made because there were as many as may be.
    pub processes: u64,
    /// How often its processes were ended for writing more than it may.
    pub disk: u64,
}

/// What an instance may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory.
    pub memory_bytes: u64,
    /// Thousandths of a processor.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Disk, where that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// What an instance uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// Processor time since it was made, in microseconds.
    pub cpu_us: u64,
    /// Memory, with what is shared counted in parts.
    pub memory_bytes: u64,
    /// Processes, the host included.
    pub processes: u64,
    /// What its terminals have on disk, logs and outputs; of a sandbox, its whole disk.
    pub disk_bytes: u64,
    /// What it may use, where that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// How often it met a limit, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<Exceeded>,
}

/// One command for an instance without a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// What to run, by a POSIX shell.
    pub command: String,
    /// What its environment has beyond the instance's own.
    pub env: Env,
    /// Where it runs.
    pub cwd: Option<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Its exit code; `None` if its time was over.
    pub exit_code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its size.
    pub size: u64,
}

/// The answer of a provider to what it cannot do.
pub fn unsupported<'a, T: 'a + Send>(provider: &str, what: &'static str) -> Reply<'a, T> {
    let error = ProviderError::Unsupported { provider: provider.to_owned(), what };
    Box::pin(std::future::ready(Err(error)))
}

/// The providers this server has, by name.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    by_name: Arc<BTreeMap<String, Arc<dyn Provider>>>,
    absent: Arc<BTreeMap<String, Vec<String>>>,
}

impl Providers {
    /// These providers, each with a deadline for every answer.
    #[must_use]
    pub fn new(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let named = providers.into_iter().map(|provider| {
            let name = provider.name().to_owned();
            (name, Arc::new(bounded::Bounded(provider)) as Arc<dyn Provider>)
        });
        Self { by_name: Arc::new(named.collect()), absent: Arc::default() }
    }

    /// The same, and why these others are not among them.
    #[must_use]
    pub fn without(self, absent: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self { absent: Arc::new(absent.into_iter().collect()), ..self }
    }

    /// The providers that this machine cannot have, and what each lacks.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.absent.iter().map(|(name, lacks)| (name.as_str(), lacks.as_slice()))
    }

    /// The one with this name.
    pub fn named(&self, name: &str) -> Result<&Arc<dyn Provider>, ProviderError> {
        let unknown = || ProviderError::Unknown { provider: name.to_owned() };
        self.by_name.get(name).ok_or_else(unknown)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.by_name.values()
    }
}
