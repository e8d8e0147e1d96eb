//! Sandboxes of a server that is not root: the same root, the same runtime and the same filter of system
//! calls, in a user namespace with one user. What only root can give is left out, and said.
//!
//! ```text
//! HOME/sandboxes/<instance>/    as for root
//! HOME/disks/<lease>/root       its files; outlives the instances of a lease
//! ```
//! Its processes are held together by their process namespace; they are found, stopped and measured like
//! those of a shell on this machine.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokio::time::timeout;

use super::launch::{self, Launch};
use super::make::{complaint, make_dir};
use super::programs::Programs;
use super::spec::{Egress, SandboxSpec};
use super::{
    Options, PATIENCE, blocking, disk, environment, names_inside, pasta, place, reach, show,
};
use base::keyed_lock::KeyedLock;
use model::{Env, Instance, InstanceId, LeaseId};
use provider::{
    Capabilities, Connection, Created, Fidelity, Found, Intent, Local, Metrics, Observed, Place,
    Placed, Provider, ProviderError, Reply,
};

/// Settings that need root.
const ROOTS: [&str; 6] = ["memory", "cpus", "disk", "image", "snapshot", "volumes"];

/// Instances that are sandboxes of a user.
#[derive(Debug)]
pub struct Confined {
    options: Options,
    hosts: Local,
    programs: Programs,
    /// The instances that are being made, each by one task at a time.
    making: KeyedLock,
    /// Why sandboxes reach nothing, if they do not.
    unreachable: Mutex<Option<String>>,
}

impl Confined {
    /// The provider. Whether this machine lets a user have what it promises is what [`Self::try_out`]
    /// says.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let home = &options.home;
        Self {
            hosts: Local::beneath(home, "sandboxes", &options.executable),
            programs: Programs::new(home.join("programs"), options.executable.clone()),
            making: KeyedLock::default(),
            unreachable: Mutex::new(pasta::impossible()),
            options,
        }
    }

    fn asked(&self, spec: &Value) -> Result<SandboxSpec, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "take the settings", reason };
        let asked = spec.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
        if let Some(field) = asked.into_iter().find(|field| ROOTS.contains(field)) {
            return Err(refused(format!("{field}: only a server that is root can give that")));
        }
        let mut usual = self.options.defaults.clone();
        let unreachable = self.unreachable();
        if unreachable.is_some() {
            usual.egress = Egress::None;
        }
        let asked = usual.with(spec).map_err(|bad| refused(bad.to_string()))?;
        match unreachable {
            Some(why) if asked.egress != Egress::None => {
                Err(refused(format!("egress: sandboxes reach nothing on this machine: {why}")))
            }
            _ => Ok(asked),
        }
    }

    /// Why sandboxes reach nothing, if they do not.
    fn unreachable(&self) -> Option<String> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on sandboxes reach nothing, unless a reason is known already; answers whether it was not.
    pub(super) fn without_reach(&self, why: &str) -> bool {
        let mut unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        let first = unreachable.is_none() && self.options.defaults.egress != Egress::None;
        if first {
            *unreachable = Some(why.to_owned());
        }
        first
    }

    async fn make(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let failed = |source| ProviderError::failed("make a sandbox", source);
        let created = Created { reference: String::new() };
        if self.hosts.pid(&intent.instance_id).await?.is_some() {
            return Ok(created);
        }
        let spec = self.asked(&intent.spec)?;
        // What an earlier try left is in the way of the next.
        self.end(&intent.instance_id).await?;
        let dir = self.hosts.note(intent).map_err(failed)?;
        make_dir(&dir.join(launch::TERMINALS)).map_err(failed)?;
        let files = self.files(&intent.lease_id);
        let disk = files.clone();
        blocking("make a sandbox's files", move || make_files(&files)).await?;
        let (programs, program) = self.programs.ready().map_err(failed)?;
        let launch = Launch {
            name: intent.instance_id.to_string(),
            label: format!("{}:{}", intent.lease_id, intent.generation),
            spec,
            disk,
            image: None,
            programs,
            program,
            runtime: None,
            shown: self.options.shown.clone(),
            disk_rate: 0,
        };
        let text = serde_json::to_vec(&launch).map_err(|error| failed(error.into()))?;
        fs::write(dir.join(launch::FILE), text).map_err(failed)?;
        self.launch(&dir).await.map_err(failed)?;
        match timeout(PATIENCE, self.hosts.comes_up(&dir)).await {
            Ok(Ok(())) => Ok(created),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(io::Error::other(complaint(&dir, "the host does not listen")))),
        }
    }

    async fn launch(&self, dir: &Path) -> io::Result<()> {
        let complaints = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(dir.join("launch.err"))?;
        let child = tokio::process::Command::new(&self.options.executable)
            .args(["sandbox", "confine"])
            .arg(dir)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(complaints.try_clone()?)
            .stderr(complaints)
            .kill_on_drop(true)
            .status();
        let status = timeout(PATIENCE, child).await.map_err(io::Error::other)??;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(complaint(dir, &status.to_string())))
    }

    async fn end(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.hosts.end_processes(id).await?;
        let dir = self.hosts.dir(id);
        let terminals = self.options.home.join("terminals");
        blocking("end a sandbox", move || {
            place::give_all_back(&dir.join(launch::TERMINALS), &terminals)?;
            disk::remove_all(&dir)
        })
        .await
    }

    async fn bring_in(&self, id: &InstanceId, place: &Place) -> Result<Placed, ProviderError> {
        let gone = || ProviderError::Gone { instance: id.clone() };
        let failed = |source| ProviderError::failed("show a directory in a sandbox", source);
        let pid = self.hosts.pid(id).await?.ok_or_else(gone)?;
        let area = self.hosts.dir(id).join(launch::TERMINALS);
        let dir = launch::terminal_inside(&place.terminal);
        let place = place.clone();
        let (seen, missing) = blocking("bring a terminal into a sandbox", move || {
            place::take_in(&area, place.terminal.as_str(), &place.dir)?;
            names_inside(pid, &place.mounts)
        })
        .await?;
        if !missing.is_empty() {
            show(&self.options.executable, pid, &missing).await.map_err(failed)?;
        }
        Ok(Placed { dir, seen })
    }

    fn files(&self, lease: &LeaseId) -> PathBuf {
        self.options.home.join("disks").join(lease.as_str())
    }

    async fn measure(&self, instance: &Instance) -> Result<Metrics, ProviderError> {
        let metrics = self.hosts.metrics(instance).await?;
        let launch = launch::read(&self.hosts.dir(&instance.instance_id));
        let files = launch.as_ref().map_or(0, |launch| Local::disk(launch.disk.clone()));
        Ok(Metrics { disk_bytes: files, ..metrics })
    }
}

/// Makes what a sandbox begins with, if it is not there.
fn make_files(files: &Path) -> io::Result<()> {
    if files.exists() {
        return Ok(());
    }
    let beside = files.with_extension("new");
    remove_files(&beside)?;
    make_dir(&beside)?;
    disk::furnish(&beside.join("root"))?;
    fs::rename(beside, files)
}

/// Removes what a sandbox wrote, whatever rights it gave it.
fn remove_files(files: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if disk::remove_all(files).is_ok() {
        return Ok(());
    }
    let mut open = vec![files.to_owned()];
    while let Some(dir) = open.pop() {
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(dirs.map(|entry| entry.path()));
    }
    disk::remove_all(files)
}

impl Provider for Confined {
    fn name(&self) -> &str {
        "namespace"
    }

    fn capabilities(&self) -> Capabilities {
        let network = match self.unreachable() {
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
                "limit of processes",
                &network,
                "no limits of memory, processor and disk: the server is not root",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        Box::pin(self.making.with(intent.instance_id.as_str(), self.make(intent)))
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

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Connection> {
        self.hosts.connect(instance)
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        self.hosts.find_by_label(lease)
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(self.measure(instance))
    }

    fn environment(&self) -> Option<Env> {
        Some(environment())
    }

    fn place<'a>(&'a self, instance: &'a Instance, place: &'a Place) -> Reply<'a, Placed> {
        Box::pin(self.bring_in(&instance.instance_id, place))
    }

    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        self.asked(spec).map(drop)
    }

    fn reach<'a>(&'a self, instance: &'a Instance, spec: &'a Value) -> Reply<'a, ()> {
        Box::pin(async move {
            let id = &instance.instance_id;
            let egress = self.asked(spec)?.egress;
            let pid = self.hosts.pid(id).await?;
            let pid = pid.ok_or_else(|| ProviderError::Gone { instance: id.clone() })?;
            let failed = |source| ProviderError::failed("change what a sandbox reaches", source);
            let made = launch::read(&self.hosts.dir(id)).map_err(failed)?.spec.egress;
            reach(self.name(), &self.options.executable, pid, (&made, &egress)).await
        })
    }

    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(async {
            let pid = self.hosts.pid(&instance.instance_id).await?;
            Ok(pid.map(|pid| format!("/proc/{pid}/root").into()))
        })
    }

    fn keeps(&self) -> Fidelity {
        Fidelity::Filesystem
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        let files = self.files(lease);
        Box::pin(blocking("remove a sandbox's files", move || remove_files(&files)))
    }

    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        let dir = self.options.home.join("disks");
        Box::pin(blocking("look for files of sandboxes", move || {
            let entries = match fs::read_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
                entries => entries?,
            };
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            Ok(names.filter_map(|name| name.parse().ok()).collect())
        }))
    }
}
