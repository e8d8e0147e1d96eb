//! The provider `namespace` on a server that is root.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use images::ImageSettings;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cpu_governor::CpuGovernor;
use super::launch_file::SandboxLaunch;
use super::options::{NamespaceOptions, OWN_RUNTIME};
use super::timing::SANDBOX_TIMEOUT;
use super::{bundle, end, start};
use crate::blocking::blocking;
use crate::disk::image::DiskBase;
use crate::disk_governor::{DiskGovernor, LatencyProbe};
use crate::hosted::Hosted;
use crate::instances::{DirectoryNames, Instances};
use crate::kind::SandboxKind;
use crate::label::InstanceLabel;
use crate::layout::CGROUP;
use crate::sandbox_images::{ReadyImage, SandboxImages};
use crate::slot;
use crate::spec::{EgressPolicy, SandboxCapabilities, SandboxSpec};
use crate::tools::find_program;
use cgroup::Cgroups;
use model::LeaseId;
use provider::{Observed, ProviderError};

/// The interval between two attempts to remove unfinished images.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Sandboxes of Linux namespaces. Cheap to clone.
pub type Namespace = Hosted<NamespaceKind>;

#[derive(Debug)]
pub struct NamespaceKind {
    pub(super) options: NamespaceOptions,
    instances: Instances,
    images: SandboxImages,
    governor: CpuGovernor,
    disk_governor: Arc<DiskGovernor>,
    /// This machine cannot enforce egress rules, so all egress is off.
    pub(super) no_egress: AtomicBool,
    /// This machine cannot give sandboxes writable programs, so their root has no capabilities.
    pub(super) no_root: AtomicBool,
}

impl Hosted<NamespaceKind> {
    /// Creates the provider. [`Check`](super::Check) tests whether this machine can run it.
    #[must_use]
    pub fn new(options: NamespaceOptions) -> Self {
        let names =
            DirectoryNames { instances: "sandboxes", disks: "disks", snapshots: "snapshots" };
        let NamespaceOptions { home, executable, warm, images, events, .. } = &options;
        let disk_governor = DiskGovernor::new(home, options.disk_rate, LatencyProbe::of_home(home));
        Self::from_kind(NamespaceKind {
            instances: Instances::new(NamespaceKind::NAME, home, executable, names, *warm),
            images: SandboxImages::new(home, images.clone(), events.clone()),
            governor: CpuGovernor::default(),
            disk_governor: Arc::new(disk_governor),
            no_egress: AtomicBool::new(false),
            no_root: AtomicBool::new(false),
            options,
        })
    }

    /// Ends the sandboxes that a killed server left without a label, and removes unfinished files. Called
    /// at a start, before any sandbox is created.
    ///
    /// # Errors
    /// If a sandbox cannot be ended.
    pub async fn sweep(&self) -> Result<(), ProviderError> {
        let instances = self.kind().instances();
        let (home, disks) = (instances.home.clone(), instances.disks.clone());
        let this = self.clone();
        blocking("remove unfinished sandboxes", move || {
            this.kind().images.sweep();
            end::end_all(&home, |dir| !InstanceLabel::names(dir))?;
            slot::sweep()?;
            disks.sweep()
        })
        .await
    }

    /// Removes the unfinished images that [`Self::sweep`] could not, because a program that a killed server started
    /// was still working on one. Repeated until none does, or `stop` is cancelled.
    pub async fn sweep_images(self, stop: CancellationToken) {
        let sweep = || {
            let this = self.clone();
            blocking("remove unfinished images", move || Ok(this.kind().images.sweep()))
        };
        while let Ok(false) = sweep().await {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
        }
    }

    /// Checks once which sandboxes are busy, and moves them off or back to the reserved CPUs. Call it every
    /// [`GOVERNOR_INTERVAL`](super::GOVERNOR_INTERVAL).
    pub async fn govern_cpus(&self) {
        let kind = self.kind();
        let reserved = kind.options.reserve_cpus;
        // Reads one small file while no sandbox is busy.
        if reserved == 0 || !kind.governor.is_due(CGROUP) {
            return;
        }
        let this = self.clone();
        let governed = blocking("govern the CPUs of sandboxes", move || {
            this.kind().governor.govern(&this.kind().instances.root, reserved);
            Ok(())
        });
        if let Err(error) = governed.await {
            tracing::warn!(%error, "cannot keep busy sandboxes off the reserved CPUs");
        }
    }

    /// Checks once which sandboxes write while others wait for the disk. Call it every
    /// [`DISK_GOVERNOR_INTERVAL`](crate::DISK_GOVERNOR_INTERVAL).
    pub async fn govern_disks(&self) {
        let governor = self.kind().disk_governor.clone();
        if let Err(error) =
            blocking("govern the disks of sandboxes", move || governor.govern()).await
        {
            tracing::warn!(%error, "cannot slow heavy writers down");
        }
    }
}

impl NamespaceKind {
    /// The file name of the host's executable.
    pub(super) fn program(&self) -> io::Result<String> {
        self.instances.programs.name()
    }

    /// The image of a sandbox: the one that its disk was created with, or the one that its settings name.
    async fn image(
        &self,
        disk: &Path,
        spec: &SandboxSpec,
    ) -> Result<Option<ReadyImage>, ProviderError> {
        let recorded = self.instances.disks.image_below(disk)?;
        match recorded.or_else(|| spec.image.clone()) {
            Some(name) => self.images.ready(&name).await.map(Some),
            None => Ok(None),
        }
    }

    fn has_own_runtime(&self) -> bool {
        self.options.runtime == Path::new(OWN_RUNTIME)
    }

    /// Whether root in a sandbox can have capabilities. An external runtime could not install the system call
    /// filter of such a sandbox.
    pub(super) fn can_have_root(&self) -> bool {
        self.has_own_runtime() && !self.no_root.load(Ordering::Relaxed)
    }

    /// The path of an external OCI runtime; `None` for the built-in one.
    fn runtime(&self) -> io::Result<Option<PathBuf>> {
        let name = &self.options.runtime;
        if self.has_own_runtime() {
            return Ok(None);
        }
        let missing = || io::Error::other(format!("runtime {} was not found", name.display()));
        find_program(name).map(Some).ok_or_else(missing)
    }

    fn name_of(dir: &Path) -> String {
        let name = || dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Instances::labelled_name(dir).unwrap_or_else(name)
    }

    fn cgroups_of(dir: &Path) -> io::Result<Cgroups> {
        Cgroups::new(&format!("{CGROUP}/{}", Self::name_of(dir)))
    }
}

impl SandboxKind for NamespaceKind {
    const NAME: &'static str = "namespace";

    fn instances(&self) -> &Instances {
        &self.instances
    }

    fn isolation(&self) -> Vec<String> {
        let no_egress = self.no_egress.load(Ordering::Relaxed);
        let capabilities = match self.options.defaults.capabilities {
            SandboxCapabilities::Root if self.can_have_root() => {
                "capabilities over its own files and users only"
            }
            SandboxCapabilities::Root | SandboxCapabilities::None => {
                "no capabilities, no new privileges"
            }
        };
        [
            "namespaces: user, mount, process, network, ipc, uts, cgroup",
            capabilities,
            "system call filter",
            "limits for memory, CPU, processes and disk",
            if no_egress { "no network" } else { "network egress rules" },
        ]
        .map(str::to_owned)
        .to_vec()
    }

    async fn missing(&self) -> Vec<String> {
        vec![]
    }

    fn settings(
        &self,
        spec: &Value,
        lease: Option<&LeaseId>,
    ) -> Result<SandboxSpec, ProviderError> {
        let refused = |reason| ProviderError::Refused { doing: "accept the settings", reason };
        let defaults = self.options.defaults.clone();
        let mut settings = defaults.with(spec).map_err(|bad| refused(bad.to_string()))?;
        if self.no_egress.load(Ordering::Relaxed) && settings.egress != EgressPolicy::None {
            if !spec["egress"].is_null() {
                let reason =
                    "egress: sandboxes have no network on this machine; run `stead doctor`";
                return Err(refused(reason.to_owned()));
            }
            settings.egress = EgressPolicy::None;
        }
        if settings.capabilities == SandboxCapabilities::Root && !self.can_have_root() {
            if !spec["capabilities"].is_null() {
                let reason =
                    "capabilities: sandboxes have none on this machine; run `stead doctor`";
                return Err(refused(reason.to_owned()));
            }
            settings.capabilities = SandboxCapabilities::None;
        }
        self.instances.disks.with_snapshot(settings, lease)
    }

    fn check_image(&self, spec: &SandboxSpec) -> Result<(), ProviderError> {
        spec.image.as_ref().map_or(Ok(()), |name| self.images.check(name))
    }

    fn runtime_name(&self, directory: &str) -> String {
        directory.to_owned()
    }

    fn reference(&self, _: String) -> String {
        String::new()
    }

    async fn start(
        &self,
        directory: &str,
        label: Option<&InstanceLabel>,
        spec: SandboxSpec,
        disk: PathBuf,
    ) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("start a sandbox", source);
        let dir = self.instances.root.join(directory);
        let image = self.image(&disk, &spec).await?;
        let base = match &image {
            Some(_) => DiskBase::Image,
            None => DiskBase::of_machine(spec.capabilities),
        };
        let recorded = image.as_ref().map(|image| image.name.clone());
        let prepared = SandboxSpec { image: recorded, ..spec.clone() };
        self.instances.disks.prepare(&disk, base, &prepared).await?;
        let (programs, program) = self.instances.copy_program().await?;
        let launch = SandboxLaunch {
            name: label.map_or_else(|| directory.to_owned(), |label| label.name.clone()),
            label: label.map(InstanceLabel::purpose).unwrap_or_default(),
            spec,
            disk,
            image: image.as_ref().map(|image| image.root.clone()),
            programs,
            program,
            runtime: self.runtime().map_err(failed)?,
            shown: self.options.shown.clone(),
        };
        launch.write(&dir).map_err(failed)?;
        start::launch(&self.instances.executable, &dir).await.map_err(failed)
    }

    async fn end(&self, runtime_name: &str, dir: PathBuf) -> Result<(), ProviderError> {
        let (name, terminals) = (runtime_name.to_owned(), self.instances.terminals.clone());
        let (governor, disks) = (self.disk_governor.clone(), self.instances.disks.clone());
        blocking("end a sandbox", move || {
            // The disk is unmounted with the last process. What waits to be written is written at full speed.
            let disk = InstanceLabel::read(&dir).map(|label| disks.of(label.lease_id.as_str()));
            let _full_speed = disk.map(|disk| governor.at_full_speed(&disk));
            end::end(&dir, &name, &terminals)
        })
        .await
    }

    async fn pause(&self, dir: &Path, _: Observed) -> Result<(), ProviderError> {
        let dir = dir.to_owned();
        // Repeated for a paused sandbox: an earlier call may have timed out while it was freezing.
        blocking("pause a sandbox", move || Self::cgroups_of(&dir)?.freeze(SANDBOX_TIMEOUT)).await
    }

    async fn resume(&self, dir: &Path, _: Observed) -> Result<(), ProviderError> {
        let dir = dir.to_owned();
        blocking("resume a sandbox", move || Self::cgroups_of(&dir)?.thaw(SANDBOX_TIMEOUT)).await
    }

    async fn resize(&self, dir: PathBuf, spec: SandboxSpec) -> Result<(), ProviderError> {
        blocking("change the limits of a sandbox", move || {
            Self::cgroups_of(&dir)?.limit(&bundle::resources(&spec).map_err(io::Error::other)?)?;
            let mut launch = SandboxLaunch::read(&dir)?;
            let SandboxSpec { disk, egress, .. } = launch.spec;
            launch.spec = SandboxSpec { disk, egress, ..spec };
            launch.write(&dir)
        })
        .await
    }

    async fn without_directory(&self) -> Vec<InstanceLabel> {
        vec![]
    }

    fn cgroups(&self, dir: &Path) -> Option<Cgroups> {
        Self::cgroups_of(dir).ok()
    }

    fn started_with(&self, dir: &Path) -> io::Result<SandboxSpec> {
        Ok(SandboxLaunch::read(dir)?.spec)
    }

    fn image_settings(&self, dir: &Path) -> io::Result<ImageSettings> {
        let root = SandboxLaunch::read(dir)?.image;
        root.map_or_else(|| Ok(ImageSettings::default()), |root| ImageSettings::of_root(&root))
    }

    fn disk_governor(&self) -> Option<&Arc<DiskGovernor>> {
        Some(&self.disk_governor)
    }
}
