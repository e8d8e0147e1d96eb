//! Sandboxes of other people, reached through their own HTTP APIs.
//!
//! ```text
//!   server ── mirror ── pipe ══ the vendor's process stream ══ bridge ── host.sock ── host ── shells
//! ```
//! A host of ours runs inside, from our own executable, which is sent there once; so terminals there are
//! full terminals. Everything they write is copied to this machine as it comes (`mirror`), for a sandbox
//! may vanish. What a vendor made for us carries our labels: a reply that got lost leaves nothing that
//! is not found again. The key stays here: nothing inside knows it.
//!
//! Where a vendor only runs commands, or by setting, there is no host inside: terminals stand on
//! [`remote`](super::remote), which needs nothing but [`Vendor::run`] and [`Vendor::upload`].

mod agentbay;
mod apart;
mod bridge;
mod commands;
mod daytona;
mod e2b;
mod http;
mod line;
mod mirror;
mod pipe;
mod program;
mod remote;
mod socket;
mod vendor;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use base::durable::replace;
use base::event::{Events, Happened};
use base::keyed_lock::KeyedLock;
use http::{Fault, Progress};
use mirror::Mirrors;
use model::{Env, Instance, InstanceId, LeaseId, Money};
use program::{Packed, Program};
use provider::{
    Capabilities, Connection, Created, Found, Intent, Metrics, MountedPaths, Mounts, Observed,
    Profile, Provider, ProviderError, Reply, TerminalMounts,
};
use remote::Remotes;
use vendor::{Execute, Labels, Sandbox, Vendor};

pub use agentbay::Options as AgentBayOptions;
pub use bridge::main;
pub use daytona::Options as DaytonaOptions;
pub use e2b::Options as E2bOptions;
pub use http::Key;

const HOME: &str = "stead_home";
const LEASE: &str = "stead_lease";
const GENERATION: &str = "stead_generation";
const INSTANCE: &str = "stead_instance";

/// How long what prepares a sandbox may take.
const PREPARING: Duration = Duration::from_secs(120);
/// How often a sandbox is looked for whose making was not answered, and with what waits.
const LOOKS: u32 = 4;
const LOOK: Duration = Duration::from_millis(100);
/// How long a measurement is good for.
const MEASURED: Duration = Duration::from_secs(3);
/// How long a host that cannot be reached is looked for: networks come back.
const PATIENCE: Duration = Duration::from_secs(600);

/// What terminals stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// A host of ours inside the sandbox.
    Host,
    /// Commands that the vendor runs, one at a time.
    Remote,
}

/// What an operator chose, for every vendor.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's home.
    pub home: PathBuf,
    /// The executable that is sent into sandboxes.
    pub executable: PathBuf,
    /// What terminals stand on.
    pub runtime: Runtime,
    /// The directory inside a sandbox below which we keep our files.
    pub inside: String,
    /// What an hour of a sandbox costs.
    pub price: Money,
    /// Bytes of output kept of each terminal.
    pub log_limit: u64,
    /// Who is told how an upload goes.
    pub events: Option<Events>,
}

impl Options {
    /// The usual choices for a home.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            executable: PathBuf::from("/proc/self/exe"),
            runtime: Runtime::Host,
            inside: "/tmp".to_owned(),
            price: Money::default(),
            log_limit: 16 << 20,
            events: None,
        }
    }
}

/// Instances that are sandboxes of a vendor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cloud(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vendor: Box<dyn Vendor>,
    options: Options,
    /// Which of all homes that use the same key this is.
    home: String,
    program: Program,
    mirrors: Arc<Mirrors>,
    remotes: Remotes,
    making: KeyedLock,
    measured: Mutex<HashMap<InstanceId, (Instant, Metrics)>>,
}

impl Cloud {
    /// Instances that are sandboxes of E2B.
    ///
    /// # Errors
    /// When the home cannot be given a name, or no connection could ever be made.
    pub fn e2b(vendor: e2b::Options, options: Options) -> io::Result<Self> {
        Self::new(Box::new(Arc::new(e2b::E2b::new(vendor)?)), options)
    }

    /// Instances that are sandboxes of Daytona.
    ///
    /// # Errors
    /// As [`Cloud::e2b`].
    pub fn daytona(vendor: daytona::Options, options: Options) -> io::Result<Self> {
        Self::new(Box::new(Arc::new(daytona::Daytona::new(vendor)?)), options)
    }

    /// Instances that are sessions of AgentBay.
    ///
    /// # Errors
    /// As [`Cloud::e2b`].
    pub fn agentbay(vendor: agentbay::Options, options: Options) -> io::Result<Self> {
        // It runs commands, and nothing else.
        let options = Options { runtime: Runtime::Remote, ..options };
        Self::new(Box::new(Arc::new(agentbay::AgentBay::new(vendor)?)), options)
    }

    fn new(vendor: Box<dyn Vendor>, options: Options) -> io::Result<Self> {
        let program = Program::new(options.home.join("programs"), options.executable.clone());
        let mirrors = Mirrors::new(options.home.join("terminals"), options.log_limit);
        Ok(Self(Arc::new(Inner {
            home: home_name(&options.home)?,
            vendor,
            program,
            mirrors: Arc::new(mirrors),
            remotes: Remotes::new(options.home.join("remote")),
            making: KeyedLock::default(),
            measured: Mutex::default(),
            options,
        })))
    }

    /// The directory of an instance's host, inside.
    fn root(&self, instance: &InstanceId) -> String {
        format!("{}/stead-{instance}", self.0.options.inside.trim_end_matches('/'))
    }

    fn labels(&self, more: &[(&str, String)]) -> Labels {
        let own = [(HOME, self.0.home.clone())];
        let all = own.iter().chain(more).map(|(name, value)| ((*name).to_owned(), value.clone()));
        all.collect()
    }

    /// The sandboxes that were made for an instance; more than one if a reply got lost in a way that
    /// nobody could know.
    async fn of(&self, instance: &InstanceId) -> Result<Vec<Sandbox>, Fault> {
        let labels = self.labels(&[(INSTANCE, instance.to_string())]);
        let mut found = self.0.vendor.find(&labels).await?;
        // A vendor that does not know how to search tells everything.
        found.retain(|sandbox| labels.iter().all(|(k, v)| sandbox.labels.get(k) == Some(v)));
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    /// The sandbox of an instance.
    async fn sandbox(
        &self,
        instance: &Instance,
        doing: &'static str,
    ) -> Result<Sandbox, ProviderError> {
        let gone = || ProviderError::Gone { instance: instance.instance_id.clone() };
        let found = if instance.reference.is_empty() {
            let found = self.of(&instance.instance_id).await.map_err(|fault| fault.of(doing))?;
            match found.into_iter().next() {
                // A list does not tell what opens it.
                Some(found) => self.0.vendor.look(&found.id).await,
                None => return Err(gone()),
            }
        } else {
            self.0.vendor.look(&instance.reference).await
        };
        found.map_err(|fault| fault.of(doing))?.ok_or_else(gone)
    }

    fn of_sandbox(&self, instance: &Instance, doing: &'static str, fault: Fault) -> ProviderError {
        match fault.status() {
            Some(::http::StatusCode::NOT_FOUND) => {
                ProviderError::Gone { instance: instance.instance_id.clone() }
            }
            _ => fault.of(doing),
        }
    }

    async fn make(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let doing = "make a sandbox";
        let found = self.of(&intent.instance_id).await.map_err(|fault| fault.of(doing))?;
        let sandbox = match found.into_iter().next() {
            Some(found) => found,
            None => self.make_new(intent).await.map_err(|fault| fault.of(doing))?,
        };
        if sandbox.observed == Observed::Paused {
            let resumed = self.0.vendor.resume(&sandbox.id).await;
            resumed.map_err(|fault| fault.of("resume a sandbox"))?;
        }
        let doing = "prepare a sandbox";
        let whole = self.0.vendor.look(&sandbox.id).await.map_err(|fault| fault.of(doing))?;
        let gone = || ProviderError::Gone { instance: intent.instance_id.clone() };
        let whole = whole.ok_or_else(gone)?;
        match self.0.options.runtime {
            Runtime::Host => drop(self.install(&whole, &intent.instance_id).await?),
            Runtime::Remote => self.prepare(whole, &intent.instance_id).await?,
        }
        Ok(Created { reference: sandbox.id })
    }

    /// Asks for a sandbox. One that was made although we did not hear of it is found by its labels.
    async fn make_new(&self, intent: &Intent) -> Result<Sandbox, Fault> {
        let labels = self.labels(&[
            (LEASE, intent.lease_id.to_string()),
            (GENERATION, intent.generation.to_string()),
            (INSTANCE, intent.instance_id.to_string()),
        ]);
        let name = format!("stead-{}", intent.instance_id);
        let fault = match self.0.vendor.make(&name, &labels, &intent.spec).await {
            Ok(sandbox) => return Ok(sandbox),
            // One with our name is there already, or may be.
            Err(fault) if fault.is_unknown() || is_conflict(&fault) => fault,
            Err(fault) => return Err(fault),
        };
        for look in 0..LOOKS {
            sleep(LOOK * (1 << look)).await;
            match self.of(&intent.instance_id).await {
                Ok(found) => {
                    let mut found = found.into_iter();
                    if let Some(first) = found.next() {
                        tracing::info!(instance = %intent.instance_id, sandbox = first.id,
                            "found a sandbox whose making was not answered");
                        for another in found {
                            self.0.vendor.kill(&another.id).await?;
                        }
                        return Ok(first);
                    }
                }
                Err(error) => tracing::debug!(%error, "cannot look for a sandbox yet"),
            }
        }
        Err(fault)
    }

    /// Makes our executable be inside and a host of it run; answers its path.
    async fn install(
        &self,
        sandbox: &Sandbox,
        instance: &InstanceId,
    ) -> Result<String, ProviderError> {
        let doing = "prepare a sandbox";
        let inner = self.0.clone();
        let packed = tokio::task::spawn_blocking(move || inner.program.ready()).await;
        let packed = packed.map_err(|error| ProviderError::failed(doing, error))?;
        let packed = packed.map_err(|error| ProviderError::failed(doing, error))?;
        let root = self.root(instance);
        let program = format!("{root}/{}", packed.name());
        let start = format!("{program} cloud start {root} {instance} && echo have");
        let have =
            format!("mkdir -p {root} && chmod 700 {root} && if [ -x {program} ]; then {start}; fi");
        if self.shell(sandbox, have).await?.trim() == "have" {
            return Ok(program);
        }
        self.send(sandbox, &packed, &format!("{root}/program.gz")).await?;
        let sum = &packed.sha256;
        // A sandbox without the means to check trusts the checksum of the compressed file.
        let unpack = format!(
            "cd {root} && gzip -dc program.gz > program.new && \
             if command -v sha256sum >/dev/null; then \
             echo '{sum}  program.new' | sha256sum -c - >/dev/null; fi && \
             chmod 755 program.new && mv program.new {program} && rm -f program.gz && {start}"
        );
        let said = self.shell(sandbox, unpack).await?;
        if said.trim() == "have" {
            return Ok(program);
        }
        let reason = format!("our executable did not arrive whole: {}", said.trim());
        Err(ProviderError::failed(doing, io::Error::other(reason)))
    }

    async fn send(
        &self,
        sandbox: &Sandbox,
        packed: &Packed,
        path: &str,
    ) -> Result<(), ProviderError> {
        let doing = "send our executable into a sandbox";
        let from = packed.clone();
        let bytes = tokio::task::spawn_blocking(move || from.read()).await;
        let bytes = bytes.map_err(|error| ProviderError::failed(doing, error))?;
        let bytes = bytes.map_err(|error| ProviderError::failed(doing, error))?;
        let (total, events) = (bytes.len() as u64, self.0.options.events.clone());
        let image = format!("{}:{}", self.0.vendor.name(), sandbox.id);
        tracing::info!(sandbox = sandbox.id, bytes = total, "sending our executable");
        let told = AtomicU64::new(0);
        let progress: Progress = Arc::new(move |done_bytes| {
            // Ten times in all, the last when it is done.
            let tenth = done_bytes.min(total) * 10 / total.max(1);
            if told.fetch_max(tenth, Ordering::Relaxed) == tenth {
                return;
            }
            if let Some(events) = &events {
                events.tell(Happened::ImageProgress {
                    image: image.clone(),
                    status: "sending the host".to_owned(),
                    done_bytes: done_bytes.min(total),
                    total_bytes: total,
                });
            }
        });
        let sent = self.0.vendor.upload(sandbox, path, bytes, Some(progress)).await;
        sent.map_err(|fault| fault.of(doing))
    }

    /// What a command of our own says.
    async fn shell(&self, sandbox: &Sandbox, command: String) -> Result<String, ProviderError> {
        let doing = "prepare a sandbox";
        let command = Execute { command, env: Env::new(), cwd: None, timeout: PREPARING };
        let ran = self.0.vendor.run(sandbox, &command).await.map_err(|fault| fault.of(doing))?;
        if ran.exit_code == Some(0) {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let code =
            ran.exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
        let reason = format!("a command ended with {code}: {}", said.trim());
        Err(ProviderError::failed(doing, io::Error::other(reason)))
    }

    async fn reach(&self, instance: &Instance) -> Result<Connection, ProviderError> {
        let doing = "connect to a sandbox";
        let sandbox = self.sandbox(instance, doing).await?;
        if sandbox.observed != Observed::Running {
            let error = io::Error::other("it is paused");
            return Err(ProviderError::failed(doing, error));
        }
        let id = &instance.instance_id;
        if self.0.options.runtime == Runtime::Remote {
            return Ok(self.stand_in(instance, sandbox));
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| ProviderError::failed(doing, io::Error::other(error.to_string())))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let program = self.install(&sandbox, id).await?;
        let words =
            [program, "cloud".into(), "bridge".into(), self.root(id), name.clone(), id.to_string()];
        let channel = self.0.vendor.attach(&sandbox, &words).await;
        let channel = channel.map_err(|fault| self.of_sandbox(instance, doing, fault))?;
        let stream = pipe::join(channel, &name).await;
        let stream = stream.map_err(|error| ProviderError::failed(doing, error))?;
        let over = CancellationToken::new();
        let stream = self.0.mirrors.watch(stream, over.clone().drop_guard());
        tokio::spawn(self.clone().attend_to(sandbox, over));
        Ok(Box::new(stream))
    }

    /// Says that a sandbox is needed, as long as we are connected to it.
    async fn attend_to(self, sandbox: Sandbox, over: CancellationToken) {
        loop {
            tokio::select! {
                () = over.cancelled() => return,
                () = sleep(self.0.vendor.pace()) => {}
            }
            if let Err(fault) = self.0.vendor.keep(&sandbox).await {
                tracing::warn!(sandbox = sandbox.id, %fault, "cannot say that a sandbox is needed");
            }
        }
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let labels = match lease {
            Some(lease) => self.labels(&[(LEASE, lease.to_string())]),
            None => self.labels(&[]),
        };
        let found = self.0.vendor.find(&labels).await;
        let found = found.map_err(|fault| fault.of("look for sandboxes"))?;
        let ours = |sandbox: &Sandbox| {
            labels.iter().all(|(name, value)| sandbox.labels.get(name) == Some(value))
        };
        Ok(found.into_iter().filter(ours).filter_map(labelled).collect())
    }

    async fn end(&self, instance: &Instance) -> Result<(), ProviderError> {
        let doing = "end a sandbox";
        self.measured().remove(&instance.instance_id);
        self.0.remotes.forget(&instance.instance_id);
        if !instance.reference.is_empty() {
            let killed = self.0.vendor.kill(&instance.reference).await;
            return killed.map_err(|fault| fault.of(doing));
        }
        let found = self.of(&instance.instance_id).await.map_err(|fault| fault.of(doing))?;
        for sandbox in found {
            self.0.vendor.kill(&sandbox.id).await.map_err(|fault| fault.of(doing))?;
        }
        Ok(())
    }

    async fn measure(&self, instance: &Instance) -> Result<Metrics, ProviderError> {
        let known = self.measured().get(&instance.instance_id).copied();
        if let Some((at, metrics)) = known
            && at.elapsed() < MEASURED
        {
            return Ok(metrics);
        }
        let doing = "measure a sandbox";
        let sandbox = self.sandbox(instance, doing).await?;
        if sandbox.observed != Observed::Running {
            // Some vendors would wake it up.
            return Err(ProviderError::failed(doing, io::Error::other("it is paused")));
        }
        let root = self.root(&instance.instance_id);
        let metrics = match self.0.options.runtime {
            Runtime::Host => {
                let program = self.install(&sandbox, &instance.instance_id).await?;
                let said = self.shell(&sandbox, format!("{program} cloud measure {root}")).await?;
                serde_json::from_str(said.trim())
                    .map_err(|error| ProviderError::failed(doing, io::Error::other(error)))?
            }
            Runtime::Remote => {
                let before = known.map_or(0, |(_, metrics)| metrics.cpu_us);
                self.count(&instance.instance_id, sandbox, before).await?
            }
        };
        self.measured().insert(instance.instance_id.clone(), (Instant::now(), metrics));
        Ok(metrics)
    }

    fn measured(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, (Instant, Metrics)>> {
        self.0.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_conflict(fault: &Fault) -> bool {
    fault.status() == Some(::http::StatusCode::CONFLICT)
}

fn labelled(sandbox: Sandbox) -> Option<Found> {
    Some(Found {
        lease_id: sandbox.labels.get(LEASE)?.parse().ok()?,
        generation: sandbox.labels.get(GENERATION)?.parse().ok()?,
        instance_id: sandbox.labels.get(INSTANCE)?.parse().ok()?,
        observed: sandbox.observed,
        reference: sandbox.id,
    })
}

/// A name for a home, random and kept: many homes may use one key, and each ends only its own.
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

/// A form with files, and what kind it is.
fn multipart(fields: &[(&str, Option<&str>, &[u8])]) -> (String, Bytes) {
    let whole: Vec<&[u8]> = fields.iter().map(|(_, _, bytes)| *bytes).collect();
    let mark = blake3::hash(&whole.concat()).to_hex();
    let mark = format!("stead-{}", &mark[..32]);
    let mut body = Vec::new();
    for (name, file, bytes) in fields {
        body.extend_from_slice(format!("--{mark}\r\n").as_bytes());
        let head = match file {
            Some(file) => format!(
                "Content-Disposition: form-data; name=\"{name}\"; filename=\"{}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n",
                file.replace(['"', '\r', '\n'], "_")
            ),
            None => format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n"),
        };
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{mark}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={mark}"), body.into())
}

impl Provider for Cloud {
    fn name(&self) -> &str {
        self.0.vendor.name()
    }

    fn capabilities(&self) -> Capabilities {
        let hosted = self.0.options.runtime == Runtime::Host;
        Capabilities {
            hosted,
            pause: self.0.vendor.pauses(),
            metrics: true,
            isolation: vec!["sandboxes of another provider, away from this machine".to_owned()],
        }
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(self.0.making.with(intent.instance_id.as_str(), self.make(intent)))
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        Box::pin(async move {
            match self.sandbox(instance, "look at a sandbox").await {
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
            // Nothing is asked of it meanwhile: some vendors would wake it up for that.
            self.0.remotes.hold(&instance.instance_id, true);
            let paused = self.0.vendor.pause(&sandbox.id).await;
            paused.map_err(|fault| {
                self.0.remotes.hold(&instance.instance_id, false);
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
            self.0.remotes.hold(&instance.instance_id, false);
            Ok(())
        })
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.end(instance))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Connection> {
        Box::pin(self.reach(instance))
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
            reconnect_timeout: PATIENCE,
            ..Profile::default()
        }
    }

    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "take the settings", reason };
        self.0.vendor.accepts(spec).map_err(refused)
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
        // A project's files are on this machine: shells start at home there, and what else they are
        // told of is an empty place of their own.
        let seen = wanted.mounts.iter().enumerate().map(|(index, (outside, inside))| {
            let name = inside.file_name().map(|name| name.to_string_lossy().into_owned());
            let other = || format!("{root}/{}", name.clone().unwrap_or_default());
            (outside.clone(), PathBuf::from(if index == 0 { home.to_owned() } else { other() }))
        });
        let dir = match self.0.options.runtime {
            Runtime::Host => PathBuf::from(format!("{root}/t/{}", wanted.terminal)),
            // Written by us, not by a host inside.
            Runtime::Remote => wanted.dir.clone(),
        };
        let mounted = MountedPaths { dir, seen: seen.collect() };
        Box::pin(std::future::ready(Ok(mounted)))
    }

    fn root<'a>(&'a self, _: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
