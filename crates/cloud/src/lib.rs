//! Providers on vendors' sandboxes, through the vendors' HTTP APIs.
//!
//! ```text
//!   server ── mirror ── pipe ══ the vendor's process stream ══ bridge ── host.sock ── host ── shells
//! ```
//! A host runs inside each sandbox, from our own executable, which is uploaded once; so terminals there are
//! full terminals. All their output is copied to this machine as it arrives (`mirror`), because a sandbox may
//! vanish. Every sandbox carries our labels, so that it is found again if the reply to its creation is lost.
//! The vendor's key never enters a sandbox.
//!
//! If a vendor only runs commands, or by setting, there is no host inside: terminals use the in-process host
//! in [`remote`], which needs only [`Vendor::run`] and [`Vendor::upload`].

mod agentbay;
mod bridge;
mod capture;
mod commands;
mod daytona;
mod disks;
mod e2b;
mod executable;
mod http;
mod kubernetes;
mod line;
mod mirror;
mod multipart;
mod pipe;
mod reached;
mod remote;
mod scripts;
mod vendor;
mod webhook;
mod websocket;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use base::event::{EventKind, Events};
use base::keyed_lock::KeyedLock;
use base::{backoff::Backoff, durable::replace};
use executable::{Executable, PackedExecutable};
use http::{UploadProgress, VendorFault};
use mirror::Mirrors;
use model::{Env, Instance, InstanceId, LeaseId, Money};
use provider::{
    CREATION_LIMIT, Capabilities, Connection, Created, Disks, Fidelity, Found, HostConnection,
    ImageShell, Intent, Metrics, MountedPaths, Mounts, Observed, Profile, Provider, ProviderError,
    Reply, Scripts, TerminalMounts,
};
use reached::Reached;
use remote::Remotes;
use vendor::{
    Execute, GENERATION_LABEL, HOME_LABEL, INSTANCE_LABEL, LEASE_LABEL, Vendor, VendorLabels,
    VendorSandbox,
};

pub use agentbay::AgentBayOptions;
pub use bridge::main;
pub use daytona::DaytonaOptions;
pub use e2b::E2bOptions;
pub use http::VendorKey;
pub use kubernetes::{AccessError, KubernetesAccess, KubernetesOptions};
pub use webhook::{WebhookClient, WebhookError};
pub use websocket::{UpgradeError, WebSocket, upgrade};

/// The deadline of a command that prepares a sandbox.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often we search for a sandbox whose creation was not confirmed, and the waits before.
const MAX_LOOKUPS: u32 = 4;
const LOOKUPS: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
/// How long a measurement is reused.
const MEASUREMENT_TTL: Duration = Duration::from_secs(3);
/// How long a lease waits for an unreachable host.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(600);

/// How the terminals of a sandbox run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalRuntime {
    /// A host inside the sandbox.
    Host,
    /// The in-process host, by commands that the vendor runs.
    Remote,
}

/// Settings for all vendors.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// The server's home directory.
    pub home: PathBuf,
    pub executable: PathBuf,
    pub runtime: TerminalRuntime,
    /// The directory inside a sandbox that holds our files.
    pub inside: String,
    /// The price of one hour.
    pub price: Money,
    /// The size of each terminal's log in bytes.
    pub log_limit: u64,
    /// Receives the progress of uploads.
    pub events: Option<Events>,
}

impl CloudOptions {
    /// The default settings.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            executable: PathBuf::from("/proc/self/exe"),
            runtime: TerminalRuntime::Host,
            inside: "/tmp".to_owned(),
            price: Money::default(),
            log_limit: 16 << 20,
            events: None,
        }
    }
}

/// A provider whose instances are sandboxes of a vendor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cloud(Arc<CloudInner>);

#[derive(Debug)]
struct CloudInner {
    vendor: Box<dyn Vendor>,
    options: CloudOptions,
    /// A random name that distinguishes this home from others with the same key.
    home: String,
    program: Executable,
    mirrors: Arc<Mirrors>,
    remotes: Remotes,
    making: KeyedLock,
    measured: Mutex<HashMap<InstanceId, (Instant, Metrics)>>,
    reached: Reached,
}

impl Cloud {
    /// Creates the provider `e2b`.
    ///
    /// # Errors
    /// The name of the home cannot be stored, or TLS cannot be set up.
    pub fn e2b(vendor: E2bOptions, options: CloudOptions) -> io::Result<Self> {
        Self::new(Box::new(Arc::new(e2b::E2bVendor::new(vendor)?)), options)
    }

    /// Creates the provider `daytona`.
    ///
    /// # Errors
    /// As [`Cloud::e2b`].
    pub fn daytona(vendor: DaytonaOptions, options: CloudOptions) -> io::Result<Self> {
        Self::new(Box::new(Arc::new(daytona::DaytonaVendor::new(vendor)?)), options)
    }

    /// Creates the provider `agentbay`.
    ///
    /// # Errors
    /// As [`Cloud::e2b`].
    pub fn agentbay(vendor: AgentBayOptions, options: CloudOptions) -> io::Result<Self> {
        // AgentBay cannot stream to a program.
        let options = CloudOptions { runtime: TerminalRuntime::Remote, ..options };
        Self::new(Box::new(Arc::new(agentbay::AgentBayVendor::new(vendor)?)), options)
    }

    /// Creates the provider `kubernetes`.
    ///
    /// # Errors
    /// As [`Cloud::e2b`].
    pub fn kubernetes(vendor: KubernetesOptions, options: CloudOptions) -> io::Result<Self> {
        Self::new(Box::new(Arc::new(kubernetes::KubernetesVendor::new(vendor)?)), options)
    }

    fn new(vendor: Box<dyn Vendor>, options: CloudOptions) -> io::Result<Self> {
        let program = Executable::new(options.home.join("programs"), options.executable.clone());
        let mirrors = Mirrors::new(options.home.join("terminals"), options.log_limit);
        Ok(Self(Arc::new(CloudInner {
            home: home_name(&options.home)?,
            vendor,
            program,
            mirrors: Arc::new(mirrors),
            remotes: Remotes::new(options.home.join("remote")),
            making: KeyedLock::new("the instance", CREATION_LIMIT),
            measured: Mutex::default(),
            reached: Reached::default(),
            options,
        })))
    }

    /// The directory inside that holds our files of an instance.
    fn root(&self, instance: &InstanceId) -> String {
        format!("{}/stead-{instance}", self.0.options.inside.trim_end_matches('/'))
    }

    fn labels(&self, more: &[(&str, String)]) -> VendorLabels {
        let own = [(HOME_LABEL, self.0.home.clone())];
        let all = own.iter().chain(more).map(|(name, value)| ((*name).to_owned(), value.clone()));
        all.collect()
    }

    /// Lists the sandboxes of an instance. There is more than one if the reply to a creation was lost.
    async fn sandboxes_of(&self, instance: &InstanceId) -> Result<Vec<VendorSandbox>, VendorFault> {
        let labels = self.labels(&[(INSTANCE_LABEL, instance.to_string())]);
        let mut found = self.0.vendor.find(&labels).await?;
        // Some vendors ignore the filter.
        found.retain(|sandbox| labels.iter().all(|(k, v)| sandbox.labels.get(k) == Some(v)));
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    async fn sandbox(
        &self,
        instance: &Instance,
        doing: &'static str,
    ) -> Result<VendorSandbox, ProviderError> {
        let gone = || ProviderError::Gone { instance: instance.instance_id.clone() };
        let found = if instance.reference.is_empty() {
            let found =
                self.sandboxes_of(&instance.instance_id).await.map_err(|fault| fault.of(doing))?;
            match found.into_iter().next() {
                // A list does not contain the token.
                Some(found) => self.0.vendor.get(&found.id).await,
                None => return Err(gone()),
            }
        } else {
            self.0.vendor.get(&instance.reference).await
        };
        found.map_err(|fault| fault.of(doing))?.ok_or_else(gone)
    }

    fn of_sandbox(
        &self,
        instance: &Instance,
        doing: &'static str,
        fault: VendorFault,
    ) -> ProviderError {
        match fault.status() {
            Some(::http::StatusCode::NOT_FOUND) => {
                ProviderError::Gone { instance: instance.instance_id.clone() }
            }
            _ => fault.of(doing),
        }
    }

    async fn make(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let doing = "create a sandbox";
        let found =
            self.sandboxes_of(&intent.instance_id).await.map_err(|fault| fault.of(doing))?;
        let sandbox = match found.into_iter().next() {
            Some(found) => {
                let started = self.0.vendor.wait_until_started(&found.id).await;
                started.map_err(|fault| fault.of(doing))?;
                found
            }
            None => self.create_new(intent).await.map_err(|fault| fault.of(doing))?,
        };
        if sandbox.observed == Observed::Paused {
            let resumed = self.0.vendor.resume(&sandbox.id).await;
            resumed.map_err(|fault| fault.of("resume a sandbox"))?;
        }
        let doing = "prepare a sandbox";
        let whole = self.0.vendor.get(&sandbox.id).await.map_err(|fault| fault.of(doing))?;
        let gone = || ProviderError::Gone { instance: intent.instance_id.clone() };
        let whole = whole.ok_or_else(gone)?;
        match self.0.options.runtime {
            TerminalRuntime::Host => drop(self.install(&whole, &intent.instance_id).await?),
            TerminalRuntime::Remote => self.prepare(whole, &intent.instance_id).await?,
        }
        Ok(Created { reference: sandbox.id })
    }

    /// Creates a sandbox. If the reply is lost, the sandbox is found by its labels.
    async fn create_new(&self, intent: &Intent) -> Result<VendorSandbox, VendorFault> {
        let labels = self.labels(&[
            (LEASE_LABEL, intent.lease_id.to_string()),
            (GENERATION_LABEL, intent.generation.to_string()),
            (INSTANCE_LABEL, intent.instance_id.to_string()),
        ]);
        let name = format!("stead-{}", intent.instance_id);
        let fault = match self.0.vendor.create(&name, &labels, &intent.spec).await {
            Ok(sandbox) => return Ok(sandbox),
            // A sandbox with our name exists, or may exist.
            Err(fault) if fault.is_unknown() || is_conflict(&fault) => fault,
            Err(fault) => return Err(fault),
        };
        let mut backoff = LOOKUPS;
        for _ in 0..MAX_LOOKUPS {
            sleep(backoff.next_wait()).await;
            match self.sandboxes_of(&intent.instance_id).await {
                Ok(found) => {
                    let mut found = found.into_iter();
                    if let Some(first) = found.next() {
                        tracing::info!(instance = %intent.instance_id, sandbox = first.id,
                            "found a sandbox whose creation was not confirmed");
                        for another in found {
                            self.0.vendor.delete(&another.id).await?;
                        }
                        return Ok(first);
                    }
                }
                Err(error) => tracing::debug!(%error, "cannot list sandboxes; retrying"),
            }
        }
        Err(fault)
    }

    /// Uploads our executable and starts the host. Returns the path of the executable inside.
    async fn install(
        &self,
        sandbox: &VendorSandbox,
        instance: &InstanceId,
    ) -> Result<String, ProviderError> {
        let doing = "prepare a sandbox";
        let root = self.root(instance);
        if let Some(program) = &sandbox.program {
            let start = format!(
                "mkdir -p {root} && chmod 700 {root} && {program} cloud start {root} {instance}"
            );
            self.shell(sandbox, start).await?;
            return Ok(program.clone());
        }
        let inner = self.0.clone();
        let packed = base::task::blocking(move || inner.program.ready()).await;
        let packed = packed.map_err(|error| ProviderError::failed(doing, error))?;
        let packed = packed.map_err(|error| ProviderError::failed(doing, error))?;
        let program = format!("{root}/{}", packed.name());
        let start = format!("{program} cloud start {root} {instance} && echo have");
        let have =
            format!("mkdir -p {root} && chmod 700 {root} && if [ -x {program} ]; then {start}; fi");
        if self.shell(sandbox, have).await?.trim() == "have" {
            return Ok(program);
        }
        self.send(sandbox, &packed, &format!("{root}/program.gz")).await?;
        let sum = &packed.sha256;
        // Without `sha256sum`, only the checksum of gzip is verified.
        let unpack = format!(
            "cd {root} && gzip -dc program.gz > program.new && \
             if command -v sha256sum >/dev/null; then \
             echo '{sum}  program.new' | sha256sum -c - >/dev/null; fi && \
             chmod 755 program.new && mv program.new {program} && rm -f program.gz && {start}"
        );
        let output = self.shell(sandbox, unpack).await?;
        if output.trim() == "have" {
            return Ok(program);
        }
        let reason = format!("our executable did not arrive intact: {}", output.trim());
        Err(ProviderError::failed(doing, io::Error::other(reason)))
    }

    async fn send(
        &self,
        sandbox: &VendorSandbox,
        packed: &PackedExecutable,
        path: &str,
    ) -> Result<(), ProviderError> {
        let doing = "upload our executable into a sandbox";
        let from = packed.clone();
        let bytes = base::task::blocking(move || from.read()).await;
        let bytes = bytes.map_err(|error| ProviderError::failed(doing, error))?;
        let bytes = bytes.map_err(|error| ProviderError::failed(doing, error))?;
        let (total, events) = (bytes.len() as u64, self.0.options.events.clone());
        let image = format!("{}:{}", self.0.vendor.name(), sandbox.id);
        tracing::info!(sandbox = sandbox.id, bytes = total, "uploading our executable");
        let reported = AtomicU64::new(0);
        let progress: UploadProgress = Arc::new(move |done_bytes| {
            // Ten events per upload.
            let tenth = done_bytes.min(total) * 10 / total.max(1);
            if reported.fetch_max(tenth, Ordering::Relaxed) == tenth {
                return;
            }
            if let Some(events) = &events {
                events.publish(EventKind::ImageProgress {
                    image: image.clone(),
                    status: "uploading the host".to_owned(),
                    done_bytes: done_bytes.min(total),
                    total_bytes: total,
                });
            }
        });
        let sent = self.0.vendor.upload(sandbox, path, bytes, Some(progress)).await;
        sent.map_err(|fault| fault.of(doing))
    }

    /// Runs a command of our own and returns its standard output.
    async fn shell(
        &self,
        sandbox: &VendorSandbox,
        command: String,
    ) -> Result<String, ProviderError> {
        let doing = "prepare a sandbox";
        let command = Execute { command, env: Env::new(), cwd: None, timeout: PREPARE_TIMEOUT };
        let ran = self.0.vendor.run(sandbox, &command).await.map_err(|fault| fault.of(doing))?;
        if ran.exit_code == Some(0) {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let output = [ran.stdout, ran.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        let code =
            ran.exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
        let reason = format!("a command failed with {code}: {}", output.trim());
        Err(ProviderError::failed(doing, io::Error::other(reason)))
    }

    async fn reach(&self, instance: &Instance) -> Result<Connection, ProviderError> {
        let doing = "connect to a sandbox";
        let sandbox = self.sandbox(instance, doing).await?;
        if sandbox.observed != Observed::Running {
            let error = io::Error::other("the sandbox is paused");
            return Err(ProviderError::failed(doing, error));
        }
        let id = &instance.instance_id;
        if self.0.options.runtime == TerminalRuntime::Remote {
            return Ok(self.connect_remote(instance, sandbox));
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| ProviderError::failed(doing, io::Error::other(error.to_string())))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let program = self.install(&sandbox, id).await?;
        let argv =
            [program, "cloud".into(), "bridge".into(), self.root(id), name.clone(), id.to_string()];
        let channel = self.0.vendor.attach(&sandbox, &argv).await;
        let channel = channel.map_err(|fault| self.of_sandbox(instance, doing, fault))?;
        let stream = pipe::join(channel, &name).await;
        let stream = stream.map_err(|error| ProviderError::failed(doing, error))?;
        let closed = CancellationToken::new();
        let stream = self.0.mirrors.watch(stream, closed.clone().drop_guard());
        tokio::spawn(self.clone().keep_alive(sandbox, closed));
        Ok(Box::new(stream))
    }

    /// Keeps a sandbox alive as long as we are connected to it.
    async fn keep_alive(self, sandbox: VendorSandbox, closed: CancellationToken) {
        loop {
            tokio::select! {
                () = closed.cancelled() => return,
                () = sleep(self.0.vendor.keep_alive_interval()) => {}
            }
            if let Err(fault) = self.0.vendor.keep_alive(&sandbox).await {
                tracing::warn!(sandbox = sandbox.id, %fault, "cannot keep a sandbox alive");
            }
        }
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let labels = match lease {
            Some(lease) => self.labels(&[(LEASE_LABEL, lease.to_string())]),
            None => self.labels(&[]),
        };
        let found = self.0.vendor.find(&labels).await;
        let found = found.map_err(|fault| fault.of("list sandboxes"))?;
        let ours = |sandbox: &VendorSandbox| {
            labels.iter().all(|(name, value)| sandbox.labels.get(name) == Some(value))
        };
        Ok(found.into_iter().filter(ours).filter_map(labelled).collect())
    }

    async fn end(&self, instance: &Instance) -> Result<(), ProviderError> {
        let doing = "delete a sandbox";
        self.0.measured.lock().remove(&instance.instance_id);
        self.0.reached.forget(&instance.instance_id);
        self.0.remotes.remove(&instance.instance_id);
        if !instance.reference.is_empty() {
            let killed = self.0.vendor.delete(&instance.reference).await;
            return killed.map_err(|fault| fault.of(doing));
        }
        let found =
            self.sandboxes_of(&instance.instance_id).await.map_err(|fault| fault.of(doing))?;
        for sandbox in found {
            self.0.vendor.delete(&sandbox.id).await.map_err(|fault| fault.of(doing))?;
        }
        Ok(())
    }

    async fn measure(&self, instance: &Instance) -> Result<Metrics, ProviderError> {
        let known = self.0.measured.lock().get(&instance.instance_id).copied();
        if let Some((at, metrics)) = known
            && at.elapsed() < MEASUREMENT_TTL
        {
            return Ok(metrics);
        }
        let doing = "measure a sandbox";
        let sandbox = self.sandbox(instance, doing).await?;
        if sandbox.observed != Observed::Running {
            // Some vendors would resume it.
            return Err(ProviderError::failed(doing, io::Error::other("the sandbox is paused")));
        }
        let root = self.root(&instance.instance_id);
        let metrics = match self.0.options.runtime {
            TerminalRuntime::Host => {
                let program = self.install(&sandbox, &instance.instance_id).await?;
                let output =
                    self.shell(&sandbox, format!("{program} cloud measure {root}")).await?;
                serde_json::from_str(output.trim())
                    .map_err(|error| ProviderError::failed(doing, io::Error::other(error)))?
            }
            TerminalRuntime::Remote => {
                let before = known.map_or(0, |(_, metrics)| metrics.cpu_us);
                self.measure_remote(&instance.instance_id, sandbox, before).await?
            }
        };
        self.0.measured.lock().insert(instance.instance_id.clone(), (Instant::now(), metrics));
        Ok(metrics)
    }
}

fn is_conflict(fault: &VendorFault) -> bool {
    fault.status() == Some(::http::StatusCode::CONFLICT)
}

fn labelled(sandbox: VendorSandbox) -> Option<Found> {
    Some(Found {
        lease_id: sandbox.labels.get(LEASE_LABEL)?.parse().ok()?,
        generation: sandbox.labels.get(GENERATION_LABEL)?.parse().ok()?,
        instance_id: sandbox.labels.get(INSTANCE_LABEL)?.parse().ok()?,
        observed: sandbox.observed,
        reference: sandbox.id,
    })
}

/// Returns the name of a home, random and stored. Several homes may use one key; each deletes only its own
/// sandboxes.
fn home_name(home: &Path) -> io::Result<String> {
    let path = home.join("cloud-name");
    if let Ok(name) = fs::read_to_string(&path)
        && name.len() == 32
    {
        return Ok(name);
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::create_dir_all(home)?;
    replace(&path, name.as_bytes())?;
    Ok(name)
}

impl Provider for Cloud {
    fn name(&self) -> &str {
        self.0.vendor.name()
    }

    fn capabilities(&self) -> Capabilities {
        let hosted = self.0.options.runtime == TerminalRuntime::Host;
        Capabilities {
            hosted,
            pause: self.0.vendor.pauses(),
            metrics: true,
            isolation: self.0.vendor.isolation(),
        }
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(async {
            self.0.making.with(intent.instance_id.as_str(), self.make(intent)).await?
        })
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        Box::pin(async move {
            match self.sandbox(instance, "inspect a sandbox").await {
                Ok(sandbox) => Ok(sandbox.observed),
                Err(ProviderError::Gone { .. }) => Ok(Observed::Gone),
                Err(error) => Err(error),
            }
        })
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(async move {
            let doing = "pause a sandbox";
            let sandbox = self.sandbox(instance, doing).await?;
            if sandbox.observed == Observed::Paused {
                return Ok(());
            }
            // Stop all calls to the sandbox first: some vendors would resume it.
            self.0.remotes.pause(&instance.instance_id);
            self.0.reached.forget(&instance.instance_id);
            let paused = self.0.vendor.pause(&sandbox.id).await;
            paused.map_err(|fault| {
                self.0.remotes.resume(&instance.instance_id);
                self.of_sandbox(instance, doing, fault)
            })
        })
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(async move {
            let doing = "resume a sandbox";
            let sandbox = self.sandbox(instance, doing).await?;
            if sandbox.observed != Observed::Running {
                let resumed = self.0.vendor.resume(&sandbox.id).await;
                resumed.map_err(|fault| self.of_sandbox(instance, doing, fault))?;
            }
            self.0.remotes.resume(&instance.instance_id);
            Ok(())
        })
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.end(instance))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection> {
        Box::pin(async { Ok(HostConnection { stream: self.reach(instance).await?, pid: None }) })
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        Box::pin(self.find(lease))
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(self.measure(instance))
    }

    fn profile(&self) -> Profile {
        let (user, home) = self.0.vendor.user();
        let all = [("HOME", home), ("USER", user), ("LOGNAME", user), ("SHELL", "/bin/bash")];
        let environment = all.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Profile {
            environment: Some(environment),
            hourly_price: self.0.options.price,
            reconnect_timeout: UNREACHABLE_TIMEOUT,
            suspend: match self.0.vendor.disks() {
                Some(_) => Fidelity::Filesystem,
                None => Fidelity::None,
            },
            ..Profile::default()
        }
    }

    fn missing(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async {
            let missing = self.0.vendor.missing().await;
            missing.map_err(|fault| fault.of("look for what is missing"))
        })
    }

    fn disks(&self) -> Option<&dyn Disks> {
        self.0.vendor.disks().map(|_| self as &dyn Disks)
    }

    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "accept the settings", reason };
        self.0.vendor.accepts(spec).map_err(refused)
    }

    fn scripts(&self) -> Option<&dyn Scripts> {
        Some(self)
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(self)
    }
}

impl Mounts for Cloud {
    fn mount<'a>(
        &'a self,
        instance: &'a Instance,
        wanted: &'a TerminalMounts,
    ) -> Reply<'a, MountedPaths> {
        let root = Cloud::root(self, &instance.instance_id);
        let (_, home) = self.0.vendor.user();
        // A project's files are on this machine. In the sandbox, shells start in the home directory, and the
        // other mounts are empty directories.
        let seen = wanted.mounts.iter().enumerate().map(|(index, (outside, inside))| {
            let name = inside.file_name().map(|name| name.to_string_lossy().into_owned());
            let other = || format!("{root}/{}", name.clone().unwrap_or_default());
            (outside.clone(), PathBuf::from(if index == 0 { home.to_owned() } else { other() }))
        });
        let dir = match self.0.options.runtime {
            TerminalRuntime::Host => PathBuf::from(format!("{root}/t/{}", wanted.terminal)),
            // Written by us, not by a host inside.
            TerminalRuntime::Remote => wanted.dir.clone(),
        };
        let mounted = MountedPaths { dir, seen: seen.collect(), image: ImageShell::default() };
        Box::pin(std::future::ready(Ok(mounted)))
    }

    fn root<'a>(&'a self, _: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn image<'a>(&'a self, _: &'a Instance) -> Reply<'a, ImageShell> {
        Box::pin(std::future::ready(Ok(ImageShell::default())))
    }
}
