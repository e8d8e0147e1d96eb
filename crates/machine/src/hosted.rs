//! The provider traits for all sandboxes of this machine whose host is process 1.
//!
//! A sandbox runs as long as its host's socket is open. A dead sandbox leaves a directory and, depending on
//! its kind, a cgroup or a container of the same name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::disk::store::DiskStore;
use crate::files::make_dir;
use crate::instances::Instances;
use crate::kind::SandboxKind;
use crate::label::InstanceLabel;
use crate::layout::{self, TERMINALS};
use crate::network::{connect, read_log};
use crate::pool::{self, Pool, Prewarm, WarmSource};
use crate::spec::SandboxSpec;
use crate::volume::{self, VolumeMount};
use crate::workspace::{self, WorkspaceBound};
use crate::{mount, port, shared_tree, terminal_dir};
use model::{Instance, InstanceId, LeaseId};
use provider::{
    Capabilities, Connection, CopyTo, Created, Disks, Egress, EgressLog, Exceeded, Fidelity, Found,
    HostConnection, HostSocket, ImageShell, Intent, Limits, Metrics, MountedPaths, Mounts,
    Observed, Ports, Profile, Provider, ProviderError, Reply, ResourceLimits, Snapshot,
    TerminalMounts,
};

/// The provider of one kind of sandbox. Cheap to clone.
#[derive(Debug)]
pub struct Hosted<K>(Arc<K>);

impl<K> Clone for Hosted<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Hosted<K> {
    pub(crate) fn from_kind(kind: K) -> Self {
        Self(Arc::new(kind))
    }

    pub(crate) fn kind(&self) -> &K {
        &self.0
    }
}

#[expect(private_bounds, reason = "only this crate has kinds; callers use the aliases")]
impl<K: SandboxKind> Hosted<K> {
    /// Enforces the disk quotas until `stop` is cancelled.
    pub async fn enforce_quotas(self, stop: CancellationToken) {
        self.instances().quota.enforce(stop).await;
    }

    /// Keeps the pool of warm sandboxes filled until `stop` is cancelled.
    pub async fn keep_warm(self, prewarm: Prewarm, stop: CancellationToken) {
        let first = match prewarm {
            Prewarm::Default => self.0.settings(&Value::Null, None).ok(),
            Prewarm::OnDemand => None,
        };
        pool::keep_warm(self, first, stop).await;
    }

    fn instances(&self) -> &Instances {
        self.0.instances()
    }

    /// The name of the cgroup or container of an instance.
    fn runtime_name(&self, id: &InstanceId) -> String {
        let name = Instances::labelled_name(&self.instances().dir(id));
        name.unwrap_or_else(|| self.0.runtime_name(id.as_str()))
    }

    async fn observe(&self, id: &InstanceId) -> Result<Observed, ProviderError> {
        let failed = |source| ProviderError::failed("inspect a sandbox", source);
        let dir = self.instances().dir(id);
        if !HostSocket::is_alive(&dir).await.map_err(failed)? {
            return Ok(Observed::Gone);
        }
        let frozen = self.0.cgroups(&dir).is_some_and(|cgroups| cgroups.is_frozen());
        Ok(if frozen { Observed::Paused } else { Observed::Running })
    }

    /// Returns the state of a sandbox whose host runs.
    async fn observe_living(&self, id: &InstanceId) -> Result<Observed, ProviderError> {
        match self.observe(id).await? {
            Observed::Gone => Err(ProviderError::Gone { instance: id.clone() }),
            observed @ (Observed::Running | Observed::Paused) => Ok(observed),
        }
    }

    /// Creates the sandbox, and mounts its volumes before anything else runs in it.
    async fn create_with_volumes(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let mut spec = self.0.settings(&intent.spec, Some(&intent.lease_id))?;
        let volumes = std::mem::take(&mut spec.volumes);
        let created = self.create_sandbox(intent, spec).await?;
        if !volumes.is_empty() {
            self.mount_volumes(&intent.instance_id, &volumes).await?;
        }
        Ok(created)
    }

    async fn create_sandbox(
        &self,
        intent: &Intent,
        spec: SandboxSpec,
    ) -> Result<Created, ProviderError> {
        let failed = |source| ProviderError::failed("start a sandbox", source);
        let id = &intent.instance_id;
        let dir = self.instances().dir(id);
        let created = |name: String| Created { reference: self.0.reference(name) };
        if HostSocket::connect(&dir).await.map_err(failed)?.is_some() {
            return Ok(created(self.runtime_name(id)));
        }
        // An earlier attempt created the directory and failed; its leftovers are removed first.
        if dir.exists() {
            self.end(id).await?;
        }
        if let Some(name) = pool::claim(self, intent, &spec).await? {
            return Ok(created(name));
        }
        let label = InstanceLabel::new(intent, self.0.runtime_name(id.as_str()));
        make_dir(&dir.join(TERMINALS)).and_then(|()| label.write(&dir)).map_err(failed)?;
        let disk = self.instances().disks.of(intent.lease_id.as_str());
        match self.0.start(id.as_str(), Some(&label), spec, disk).await {
            Ok(()) => Ok(created(label.name)),
            Err(error) => {
                self.end(id).await?;
                Err(error)
            }
        }
    }

    async fn mount_volumes(
        &self,
        id: &InstanceId,
        volumes: &[VolumeMount],
    ) -> Result<(), ProviderError> {
        let Instances { home, executable, .. } = self.instances();
        let host = self.instances().host(id).await?;
        let (this, id, wanted, pid) = (self.clone(), id.clone(), volumes.to_vec(), host.pid);
        let directory = home.clone();
        blocking("mount a volume", move || {
            let found = wanted.iter().map(|volume| volume::data_of(&directory, volume));
            let found = found.collect::<io::Result<Vec<_>>>()?;
            if mount::has_capabilities(pid)? {
                shared_tree::share_all(found.iter().map(|(content, _)| content.as_path()))?;
            }
            // The kernel bounds those with a size.
            let unlimited = found.into_iter().filter(|(_, has_size)| !has_size);
            this.add_to_quota(&id, unlimited.map(|(content, _)| content))
        })
        .await?;
        volume::mount_all(home, executable, host.pid, volumes).await
    }

    async fn end(&self, id: &InstanceId) -> Result<(), ProviderError> {
        self.instances().quota.forget(id);
        self.instances().pool.release(id);
        self.0.end(&self.runtime_name(id), self.instances().dir(id)).await
    }

    async fn find(&self, lease: Option<&LeaseId>) -> Result<Vec<Found>, ProviderError> {
        let root = self.instances().root.clone();
        let mut labels = blocking("list the sandboxes", move || InstanceLabel::all(&root)).await?;
        labels.extend(self.0.without_directory().await);
        labels.sort_by(|one, other| one.instance_id.cmp(&other.instance_id));
        labels.dedup_by(|one, other| one.instance_id == other.instance_id);
        let mut found = Vec::new();
        for label in labels {
            if lease.is_some_and(|lease| *lease != label.lease_id) {
                continue;
            }
            found.push(Found {
                observed: self.observe(&label.instance_id).await?,
                reference: self.0.reference(label.name),
                lease_id: label.lease_id,
                generation: label.generation,
                instance_id: label.instance_id,
            });
        }
        Ok(found)
    }

    async fn measure(&self, id: &InstanceId) -> Result<Metrics, ProviderError> {
        let host = self.instances().host(id).await?;
        let (this, id) = (self.clone(), id.clone());
        blocking("measure a sandbox", move || {
            let disk = rustix::fs::statvfs(format!("/proc/{}/root", host.pid))?;
            let dir = this.instances().dir(&id);
            let usage = this.0.cgroups(&dir).map(|cgroups| cgroups.usage()).unwrap_or_default();
            Ok(Metrics {
                cpu_us: usage.cpu_us,
                memory_bytes: usage.memory_bytes,
                processes: usage.processes,
                disk_bytes: (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
                limits: this.started_limits(&id),
                exceeded: this.count_exceeded(&id),
            })
        })
        .await
    }

    fn started_limits(&self, id: &InstanceId) -> Option<ResourceLimits> {
        Some(self.0.started_with(&self.instances().dir(id)).ok()?.limits())
    }

    fn count_exceeded(&self, id: &InstanceId) -> Option<Exceeded> {
        let cgroups = self.0.cgroups(&self.instances().dir(id))?;
        let reached = cgroups.exceeded();
        Some(Exceeded {
            out_of_memory: reached.out_of_memory,
            processes: reached.processes,
            disk: self.instances().quota.exceeded(id),
        })
    }

    /// Adds directories that a sandbox may write to, up to the size of its disk. Blocking.
    fn add_to_quota(
        &self,
        id: &InstanceId,
        directories: impl IntoIterator<Item = PathBuf>,
    ) -> io::Result<()> {
        let limit = self.started_limits(id).and_then(|limits| limits.disk_bytes);
        self.instances().quota.add(id, directories, limit.unwrap_or(u64::MAX))
    }

    /// Puts the workspace of a project on a disk as large as that of the sandbox. Blocking.
    fn bound_workspace(
        &self,
        id: &InstanceId,
        workspace: Option<&Path>,
    ) -> io::Result<WorkspaceBound> {
        let limit = self.started_limits(id).and_then(|limits| limits.disk_bytes);
        let (Some(workspace), Some(limit)) = (workspace, limit) else {
            return Ok(WorkspaceBound::None("it has no limit"));
        };
        let bound = workspace::bound(workspace, limit)?;
        if let WorkspaceBound::None(reason) = bound {
            let workspace = workspace.display();
            tracing::warn!(%workspace, reason, "writes to a workspace are checked after the fact");
        }
        Ok(bound)
    }

    async fn mount_terminal(
        &self,
        id: &InstanceId,
        wanted: &TerminalMounts,
    ) -> Result<MountedPaths, ProviderError> {
        let host = self.instances().host(id).await?;
        let area = self.instances().dir(id).join(TERMINALS);
        let dir = layout::terminal_inside(&wanted.terminal);
        let (this, id, wanted, pid) = (self.clone(), id.clone(), wanted.clone(), host.pid);
        let (image, seen, missing) = blocking("move a terminal into a sandbox", move || {
            let image = this.0.image_settings(&this.instances().dir(&id))?;
            terminal_dir::move_in(&area, wanted.terminal.as_str(), &wanted.dir)?;
            let bound = this.bound_workspace(&id, wanted.workspace.as_deref())?;
            let (seen, missing) = mount::plan(pid, &wanted.mounts)?;
            if mount::has_capabilities(pid)? {
                shared_tree::share_all(missing.iter().map(|(outside, _)| outside.as_path()))?;
            }
            if !missing.is_empty() && bound != WorkspaceBound::Disk {
                this.add_to_quota(&id, missing.iter().map(|(outside, _)| outside.clone()))?;
            }
            Ok((image, seen, missing))
        })
        .await?;
        if !missing.is_empty() {
            let failed = |source| ProviderError::failed("mount a directory in a sandbox", source);
            let executable = &self.instances().executable;
            mount::show(executable, host.pid, &missing).await.map_err(failed)?;
        }
        let image = ImageShell { env: image.env, directory: image.directory };
        Ok(MountedPaths { dir, seen, image })
    }

    async fn copy_disk(
        &self,
        lease: &LeaseId,
        instance: Option<&Instance>,
        to: &CopyTo,
    ) -> Result<(), ProviderError> {
        let disks = &self.instances().disks;
        let target = disks.copy_target(lease, to)?;
        let Some(instance) = instance else {
            return disks.copy(lease, None, target).await;
        };
        let observed = self.observe(&instance.instance_id).await?;
        let root = match observed {
            Observed::Gone => None,
            Observed::Running | Observed::Paused => match self.root(instance).await {
                Ok(path) => path.and_then(|path| fs::File::open(path).ok()),
                Err(ProviderError::Gone { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        let Some(root) = root else { return disks.copy(lease, None, target).await };
        // The instance is paused only for the copy itself: a process that waits for the disk cannot be paused, so
        // its data is written first, at full speed.
        let (governor, disk) = (self.0.disk_governor().cloned(), root.try_clone());
        let image = disks.of(lease.as_str());
        let _full_speed = blocking("sync a sandbox's disk", move || {
            let full_speed = governor.map(|governor| governor.at_full_speed(&image));
            rustix::fs::syncfs(disk?)?;
            Ok(full_speed)
        })
        .await?;
        if observed == Observed::Paused {
            return disks.copy(lease, Some(root), target).await;
        }
        let copied = match self.pause(instance).await {
            Ok(()) => disks.copy(lease, Some(root), target).await,
            Err(error) => Err(error),
        };
        // A pause that failed may have stopped some of the processes.
        self.resume(instance).await?;
        copied
    }
}

impl<K: SandboxKind> WarmSource for Hosted<K> {
    fn pool(&self) -> &Pool {
        &self.instances().pool
    }

    fn disk_store(&self) -> &DiskStore {
        &self.instances().disks
    }

    fn runtime_name(&self, directory: &str) -> String {
        self.0.runtime_name(directory)
    }

    async fn start(&self, name: &str, spec: &SandboxSpec) -> Result<(), ProviderError> {
        self.0.start(name, None, spec.clone(), self.instances().disks.of(name)).await
    }

    async fn end(&self, name: &str) -> Result<(), ProviderError> {
        self.0.end(&self.0.runtime_name(name), self.instances().root.join(name)).await
    }
}

impl<K: SandboxKind> Provider for Hosted<K> {
    fn name(&self) -> &str {
        K::NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            hosted: true,
            pause: Fidelity::Memory,
            metrics: true,
            isolation: self.0.isolation(),
        }
    }

    fn profile(&self) -> Profile {
        Profile {
            environment: Some(layout::environment()),
            suspend: Fidelity::Filesystem,
            warm: self.instances().pool.ready(),
            ..Profile::default()
        }
    }

    fn missing(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(self.0.missing().await) })
    }

    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        self.0.check_image(&self.0.settings(spec, None)?)
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        let creating = &self.instances().creating;
        let create = self.create_with_volumes(intent);
        Box::pin(async { creating.with(intent.instance_id.as_str(), create).await? })
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        Box::pin(self.observe(&instance.instance_id))
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(async {
            let id = &instance.instance_id;
            let observed = self.observe_living(id).await?;
            self.0.pause(&self.instances().dir(id), observed).await
        })
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(async {
            let id = &instance.instance_id;
            let observed = self.observe_living(id).await?;
            self.0.resume(&self.instances().dir(id), observed).await
        })
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        Box::pin(Hosted::end(self, &instance.instance_id))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection> {
        Box::pin(async { Ok(self.instances().host(&instance.instance_id).await?.into()) })
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        Box::pin(self.find(lease))
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        Box::pin(self.measure(&instance.instance_id))
    }

    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }

    fn limits(&self) -> Option<&dyn Limits> {
        Some(self)
    }

    fn egress(&self) -> Option<&dyn Egress> {
        Some(self)
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(self)
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(self)
    }
}

impl<K: SandboxKind> Disks for Hosted<K> {
    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        Box::pin(self.instances().disks.kept())
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        Box::pin(self.instances().disks.forget(lease))
    }

    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()> {
        Box::pin(self.copy_disk(lease, instance, to))
    }

    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()> {
        Box::pin(self.instances().disks.grow(lease, bytes))
    }

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        Box::pin(self.instances().disks.snapshots())
    }

    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        Box::pin(self.instances().disks.remove_snapshot(name))
    }
}

impl<K: SandboxKind> Limits for Hosted<K> {
    fn limits_of(&self, spec: &Value, lease: Option<&LeaseId>) -> Option<ResourceLimits> {
        Some(self.0.settings(spec, lease).ok()?.limits())
    }

    fn exceeded(&self, instance: &Instance) -> Option<Exceeded> {
        self.count_exceeded(&instance.instance_id)
    }

    fn resize<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: &'a Instance,
        spec: &'a Value,
    ) -> Reply<'a, ()> {
        Box::pin(async move {
            self.observe_living(&instance.instance_id).await?;
            let spec = self.0.settings(spec, Some(lease))?;
            self.0.resize(self.instances().dir(&instance.instance_id), spec).await
        })
    }
}

impl<K: SandboxKind> Egress for Hosted<K> {
    fn set_egress<'a>(&'a self, instance: &'a Instance, spec: &'a Value) -> Reply<'a, ()> {
        Box::pin(async move {
            let egress = self.0.settings(spec, None)?.egress;
            let host = self.instances().host(&instance.instance_id).await?;
            let (this, dir) = (self.clone(), self.instances().dir(&instance.instance_id));
            let started =
                blocking("change the egress of a sandbox", move || this.0.started_with(&dir));
            let started = started.await?.egress;
            let executable = &self.instances().executable;
            connect::set_egress(K::NAME, executable, host.pid, (&started, &egress)).await
        })
    }

    fn egress_log<'a>(&'a self, instance: &'a Instance) -> Reply<'a, EgressLog> {
        Box::pin(async move {
            let host = self.instances().host(&instance.instance_id).await?;
            read_log::egress_log(&self.instances().executable, host.pid).await
        })
    }
}

impl<K: SandboxKind> Ports for Hosted<K> {
    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection> {
        Box::pin(async move {
            let host = self.instances().host(&instance.instance_id).await?;
            port::dial(host.pid, port).await
        })
    }
}

impl<K: SandboxKind> Mounts for Hosted<K> {
    fn mount<'a>(
        &'a self,
        instance: &'a Instance,
        mounts: &'a TerminalMounts,
    ) -> Reply<'a, MountedPaths> {
        Box::pin(self.mount_terminal(&instance.instance_id, mounts))
    }

    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        Box::pin(async {
            let host = self.instances().host(&instance.instance_id).await?;
            Ok(Some(format!("/proc/{}/root", host.pid).into()))
        })
    }

    fn image<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ImageShell> {
        let (this, dir) = (self.clone(), self.instances().dir(&instance.instance_id));
        Box::pin(async move {
            let read = move || this.0.image_settings(&dir);
            let image = blocking("read the settings of an image", read).await?;
            Ok(ImageShell { env: image.env, directory: image.directory })
        })
    }
}
