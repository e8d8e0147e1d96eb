//! The provider `namespace` on a server that is not root: the same root file system, runtime and system call
//! filter, in a user namespace with one user. Limits and images, which need root, are not supported.
//!
//! ```text
//! HOME/sandboxes/<instance>/    as for root
//! HOME/disks/<lease>/root       its files; outlive the instances of a lease
//! ```
//! Its processes end with their PID namespace. They are found, paused and measured like those of a shell on
//! this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use super::launch_file::SandboxLaunch;
use super::options::NamespaceOptions;
use super::start;
use super::timing::SANDBOX_TIMEOUT;
use crate::blocking::blocking;
use crate::disk::skeleton;
use crate::files::{make_dir, remove_all};
use crate::layout::{self, TERMINALS, launch_failure};
use crate::network::{connect, pasta, read_log};
use crate::programs::Programs;
use crate::spec::{EgressPolicy, SandboxCapabilities, SandboxSpec};
use crate::{mount, terminal_dir};
use base::keyed_lock::KeyedLock;
use model::{Instance, InstanceId, LeaseId};
use provider::local::directory_size;
use provider::{
    CREATION_LIMIT, Capabilities, CopyTo, Created, Disks, Egress, EgressLog, Fidelity, Found,
    HostConnection, ImageShell, Intent, Local, Metrics, MountedPaths, Mounts, Observed, Profile,
    Provider, ProviderError, Reply, Snapshot, TerminalMounts,
};

/// Settings that need a server that runs as root.
const ROOT_SETTINGS: [&str; 6] = ["memory", "cpus", "disk", "image", "snapshot", "volumes"];

/// Sandboxes of an unprivileged user.
#[derive(Debug)]
pub struct Confined {
    options: NamespaceOptions,
    hosts: Local,
    programs: Programs,
    /// The instances that are being created, each by one task at a time.
    creating: KeyedLock,
    /// Why sandboxes have no network, if so.
    no_egress: Mutex<Option<String>>,
}

impl Confined {
    /// Creates the provider. [`Check`](super::Check) tests whether this machine allows users to run it.
    #[must_use]
    pub fn new(options: NamespaceOptions) -> Self {
        let home = &options.home;
        Self {
            hosts: Local::beneath(home, "sandboxes", &options.executable),
            programs: Programs::new(home.join("programs"), options.executable.clone()),
            creating: KeyedLock::new("the instance", CREATION_LIMIT),
            no_egress: Mutex::new(pasta::impossible()),
            options,
        }
    }

    /// The settings of a lease, completed with the defaults.
    fn settings(&self, spec: &Value) -> Result<SandboxSpec, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "accept the settings", reason };
        let fields = spec.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
        if let Some(field) = fields.into_iter().find(|field| ROOT_SETTINGS.contains(field)) {
            return Err(refused(format!("{field}: needs a server that runs as root")));
        }
        let mut defaults = self.options.defaults.clone();
        defaults.capabilities = SandboxCapabilities::None;
        let no_egress = self.no_egress.lock().clone();
        if no_egress.is_some() {
            defaults.egress = EgressPolicy::None;
        }
        let settings = defaults.with(spec).map_err(|bad| refused(bad.to_string()))?;
        if settings.capabilities == SandboxCapabilities::Root {
            return Err(refused("capabilities: root needs a server that runs as root".to_owned()));
        }
        match no_egress {
            Some(why) if settings.egress != EgressPolicy::None => {
                Err(refused(format!("egress: sandboxes have no network on this machine: {why}")))
            }
            _ => Ok(settings),
        }
    }

    /// Turns the network of all later sandboxes off. Returns whether it was on.
    pub(super) fn disable_egress(&self, why: &str) -> bool {
        let mut no_egress = self.no_egress.lock();
        let first = no_egress.is_none() && self.options.defaults.egress != EgressPolicy::None;
        if first {
            *no_egress = Some(why.to_owned());
        }
        first
    }

    async fn start(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let failed = |source| ProviderError::failed("start a sandbox", source);
        let created = Created { reference: String::new() };
        if self.hosts.pid(&intent.instance_id).await?.is_some() {
            return Ok(created);
        }
        let spec = self.settings(&intent.spec)?;
        // Removes the leftovers of an earlier attempt.
        self.end(&intent.instance_id).await?;
        let dir = self.hosts.prepare(intent).map_err(failed)?;
        make_dir(&dir.join(TERMINALS)).map_err(failed)?;
        let files = self.files(&intent.lease_id);
        let disk = files.clone();
        blocking("create a sandbox's files", move || make_files(&files)).await?;
        let (programs, program) = self.programs.ready().map_err(failed)?;
        let launch = SandboxLaunch {
            name: intent.instance_id.to_string(),
            label: format!("{}:{}", intent.lease_id, intent.generation),
            spec,
            disk,
            image: None,
            programs,
            program,
            runtime: None,
            shown: self.options.shown.clone(),
        };
        launch.write(&dir).map_err(failed)?;
        let executable = &self.options.executable;
        start::run_launcher(executable, "confine", &dir).await.map_err(failed)?;
        match timeout(SANDBOX_TIMEOUT, self.hosts.wait_until_listening(&dir)).await {
            Ok(Ok(())) => Ok(created),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                Err(failed(io::Error::other(launch_failure(&dir, "the host does not listen"))))
            }
        }
    }

    async fn end(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.hosts.end_processes(id).await?;
        let dir = self.hosts.dir(id);
        let terminals = self.options.home.join("terminals");
        blocking("end a sandbox", move || {
            terminal_dir::move_all_out(&dir.join(TERMINALS), &terminals)?;
            remove_all(&dir)
        })
        .await
    }

    async fn mount_terminal(
        &self,
        id: &InstanceId,
        wanted: &TerminalMounts,
    ) -> Result<MountedPaths, ProviderError> {
        let not_running = || ProviderError::Gone { instance: id.clone() };
        let failed = |source| ProviderError::failed("mount a directory in a sandbox", source);
        let pid = self.hosts.pid(id).await?.ok_or_else(not_running)?;
        let area = self.hosts.dir(id).join(TERMINALS);
        let dir = layout::terminal_inside(&wanted.terminal);
        let wanted = wanted.clone();
        let (seen, missing) = blocking("move a terminal into a sandbox", move || {
            terminal_dir::move_in(&area, wanted.terminal.as_str(), &wanted.dir)?;
            mount::plan(pid, &wanted.mounts)
        })
        .await?;
        if !missing.is_empty() {
            mount::show(&self.options.executable, pid, &missing).await.map_err(failed)?;
        }
        Ok(MountedPaths { dir, seen, image: ImageShell::default() })
    }

    fn files(&self, lease: &LeaseId) -> PathBuf {
        self.options.home.join("disks").join(lease.as_str())
    }

    async fn measure(&self, instance: &Instance) -> Result<Metrics, ProviderError> {
        let metrics = self.hosts.metrics(instance).await?;
        let launch = SandboxLaunch::read(&self.hosts.dir(&instance.instance_id));
        let disk_bytes = launch.map_or(0, |launch| directory_size(launch.disk));
        Ok(Metrics { disk_bytes, ..metrics })
    }
}

/// Creates the initial files of a sandbox, unless they exist.
fn make_files(files: &Path) -> io::Result<()> {
    if files.exists() {
        return Ok(());
    }
    let unfinished = files.with_extension("new");
    remove_files(&unfinished)?;
    make_dir(&unfinished)?;
    skeleton::furnish(&unfinished.join("root"))?;
    fs::rename(unfinished, files)
}

/// Removes the files of a sandbox regardless of their modes.
fn remove_files(files: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if remove_all(files).is_ok() {
        return Ok(());
    }
    let mut open = vec![files.to_owned()];
    while let Some(dir) = open.pop() {
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(dirs.map(|entry| entry.path()));
    }
    remove_all(files)
}

impl Provider for Confined {
    fn name(&self) -> &str {
        "namespace"
    }

    fn capabilities(&self) -> Capabilities {
        let network = match &*self.no_egress.lock() {
            None => "network egress rules".to_owned(),
            Some(why) => format!("no network: {why}"),
        };
        Capabilities {
            hosted: true,
            pause: Fidelity::Memory,
            metrics: true,
            isolation: [
                "namespaces: user, mount, process, network, ipc, uts, cgroup",
                "no capabilities, no new privileges",
                "system call filter",
                "process limit",
                &network,
                "no limits for memory, CPU and disk: the server is not root",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(async {
            self.creating.with(intent.instance_id.as_str(), self.start(intent)).await?
        })
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        self.hosts.inspect(instance)
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        self.hosts.pause(instance)
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        self.hosts.resume(instance)
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(self.end(&instance.instance_id))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection> {
        self.hosts.connect(instance)
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        self.hosts.find_by_label(lease)
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(self.measure(instance))
    }

    fn profile(&self) -> Profile {
        Profile {
            environment: Some(layout::environment()),
            suspend: Fidelity::Filesystem,
            ..Profile::default()
        }
    }

    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        self.settings(spec).map(drop)
    }

    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }

    fn egress(&self) -> Option<&dyn Egress> {
        Some(self)
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(self)
    }
}

/// The files of a lease are a directory: they are kept, but can neither be limited nor copied while in use.
impl Disks for Confined {
    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        let dir = self.options.home.join("disks");
        Box::pin(blocking("list the files of sandboxes", move || {
            let entries = match fs::read_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
                entries => entries?,
            };
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            Ok(names.filter_map(|name| name.parse().ok()).collect())
        }))
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        let files = self.files(lease);
        Box::pin(blocking("remove a sandbox's files", move || remove_files(&files)))
    }

    fn copy<'a>(&'a self, _: &'a LeaseId, _: Option<&'a Instance>, _: &'a CopyTo) -> Reply<'a, ()> {
        let error = ProviderError::unsupported(self.name(), "copy a lease's files");
        Box::pin(std::future::ready(Err(error)))
    }

    fn grow<'a>(&'a self, _: &'a LeaseId, _: u64) -> Reply<'a, ()> {
        let error = ProviderError::unsupported(self.name(), "change the size of a disk");
        Box::pin(std::future::ready(Err(error)))
    }

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }

    fn remove_snapshot<'a>(&'a self, _: &'a str) -> Reply<'a, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

impl Egress for Confined {
    fn set_egress<'a>(&'a self, instance: &'a Instance, spec: &'a Value) -> Reply<'a, ()> {
        Box::pin(async move {
            let id = &instance.instance_id;
            let egress = self.settings(spec)?.egress;
            let pid = self.hosts.pid(id).await?;
            let pid = pid.ok_or_else(|| ProviderError::Gone { instance: id.clone() })?;
            let failed = |source| ProviderError::failed("change the egress of a sandbox", source);
            let started = SandboxLaunch::read(&self.hosts.dir(id)).map_err(failed)?.spec.egress;
            let executable = &self.options.executable;
            connect::set_egress(self.name(), executable, pid, (&started, &egress)).await
        })
    }

    fn egress_log<'a>(&'a self, instance: &'a Instance) -> Reply<'a, EgressLog> {
        Box::pin(async move {
            let id = &instance.instance_id;
            let pid = self.hosts.pid(id).await?;
            let pid = pid.ok_or_else(|| ProviderError::Gone { instance: id.clone() })?;
            read_log::egress_log(&self.options.executable, pid).await
        })
    }
}

impl Mounts for Confined {
    fn mount<'a>(
        &'a self,
        instance: &'a Instance,
        mounts: &'a TerminalMounts,
    ) -> Reply<'a, MountedPaths> {
        Box::pin(self.mount_terminal(&instance.instance_id, mounts))
    }

    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(async {
            let pid = self.hosts.pid(&instance.instance_id).await?;
            Ok(pid.map(|pid| format!("/proc/{pid}/root").into()))
        })
    }

    fn image<'a>(&'a self, _: &'a Instance) -> Reply<'a, ImageShell> {
        Box::pin(std::future::ready(Ok(ImageShell::default())))
    }
}
