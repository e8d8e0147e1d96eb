//! The provider `docker`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use images::ImageSettings;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::engine::{EngineLink, failed};
use super::image::Images;
use super::launch::{CGROUP_FILE, ContainerLaunch};
use super::options::DockerOptions;
use super::start::{self, ContainerStart, SPEC_FILE};
use super::{labels, orphans};
use crate::blocking::blocking;
use crate::disk::image::DiskBase;
use crate::disk_governor::DiskGovernor;
use crate::files::remove_all;
use crate::hosted::Hosted;
use crate::instances::{DirectoryNames, Instances};
use crate::kind::SandboxKind;
use crate::label::InstanceLabel;
use crate::layout::{LOCK, TERMINALS};
use crate::lock::lock;
use crate::network::connect::disconnect;
use crate::spec::{SandboxCapabilities, SandboxSpec};
use crate::tools::find_program;
use crate::{slot, terminal_dir};
use cgroup::Cgroups;
use model::LeaseId;
use provider::{Observed, ProviderError};

/// Containers of an engine on this machine. Cheap to clone.
pub type Docker = Hosted<DockerKind>;

#[derive(Debug)]
pub struct DockerKind {
    options: DockerOptions,
    /// The home as it is written in labels.
    home: String,
    instances: Instances,
    engine: EngineLink,
    images: Images,
}

impl Hosted<DockerKind> {
    /// Creates the provider. It connects to the engine on first use.
    #[must_use]
    pub fn new(options: DockerOptions) -> Self {
        let home = options.home.canonicalize().unwrap_or_else(|_| options.home.clone());
        let names = DirectoryNames {
            instances: "containers",
            disks: "container-disks",
            snapshots: "container-snapshots",
        };
        let DockerOptions { executable, warm, host, .. } = &options;
        Self::from_kind(DockerKind {
            home: home.to_string_lossy().into_owned(),
            instances: Instances::new(DockerKind::NAME, &home, executable, names, *warm),
            engine: EngineLink::new(host.clone()),
            images: Images::new(home, &options),
            options,
        })
    }

    /// Returns requirements for containers that this server can never meet, as text.
    #[must_use]
    pub fn impossible() -> Vec<String> {
        if rustix::process::geteuid().is_root() {
            return vec![];
        }
        vec!["root: run the server as root".to_owned()]
    }

    /// Removes the directories that a killed server left without a label; their containers are orphans.
    /// Called at a start, before any container is created.
    ///
    /// # Errors
    /// If a directory cannot be removed.
    pub async fn sweep(&self) -> Result<(), ProviderError> {
        let instances = self.kind().instances();
        let (root, terminals) = (instances.root.clone(), instances.terminals.clone());
        let disks = instances.disks.clone();
        blocking("remove unfinished containers", move || {
            for entry in fs::read_dir(root).into_iter().flatten().flatten() {
                if !InstanceLabel::names(&entry.path()) {
                    clear(&entry.path(), &terminals)?;
                }
            }
            disks.sweep()
        })
        .await
    }

    /// Removes containers of ours without a directory, until `stop` is cancelled.
    pub async fn remove_orphans(self, stop: CancellationToken) {
        let kind = self.kind();
        orphans::watch(&kind.engine, &kind.home, &kind.instances, stop).await;
    }
}

impl SandboxKind for DockerKind {
    const NAME: &'static str = "docker";

    fn instances(&self) -> &Instances {
        &self.instances
    }

    fn isolation(&self) -> Vec<String> {
        let capabilities = match self.options.defaults.capabilities {
            SandboxCapabilities::Root => "capabilities over its own files and users only",
            SandboxCapabilities::None => "no capabilities, no new privileges",
        };
        [
            "the engine's namespaces: mount, process, network, ipc, uts, cgroup; a user namespace of its own",
            capabilities,
            "system call filter",
            "limits for memory, CPU, processes and disk",
            "network egress rules",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    async fn missing(&self) -> Vec<String> {
        let mut missing = Hosted::<DockerKind>::impossible();
        for (program, package) in
            [("ip", "iproute2"), ("nft", "nftables"), ("mkfs.ext4", "e2fsprogs")]
        {
            if find_program(Path::new(program)).is_none() {
                missing.push(format!("{program}: install {package}"));
            }
        }
        if !Path::new("/dev/loop-control").exists() {
            missing.push("loop devices: load the module loop".to_owned());
        }
        missing.extend(self.engine.refresh().await.err());
        missing
    }

    fn settings(
        &self,
        spec: &Value,
        lease: Option<&LeaseId>,
    ) -> Result<SandboxSpec, ProviderError> {
        let refused =
            |reason: String| ProviderError::Refused { doing: "accept the settings", reason };
        let defaults = self.options.defaults.clone();
        let settings = defaults.with(spec).map_err(|bad| refused(bad.to_string()))?;
        if let Some(image) = settings.image.as_deref().filter(|image| !is_reference(image)) {
            return Err(refused(format!("image: {image:?} is not a valid image reference")));
        }
        self.instances.disks.with_snapshot(settings, lease)
    }

    fn check_image(&self, _: &SandboxSpec) -> Result<(), ProviderError> {
        Ok(())
    }

    fn runtime_name(&self, directory: &str) -> String {
        labels::container(directory)
    }

    fn reference(&self, runtime_name: String) -> String {
        runtime_name
    }

    async fn start(
        &self,
        directory: &str,
        label: Option<&InstanceLabel>,
        spec: SandboxSpec,
        disk: PathBuf,
    ) -> Result<(), ProviderError> {
        let engine = self.engine.get().await?;
        let image = self.images.ready(&engine, &spec).await?;
        self.instances.disks.prepare(&disk, DiskBase::Image, &spec).await?;
        let launch = ContainerLaunch {
            name: labels::container(directory),
            egress: spec.egress.clone(),
            disk,
            shown: image.machine_directories(&self.options.shown),
            image: image.settings.clone(),
            programs: image.programs,
            capabilities: spec.capabilities,
        };
        let (programs, program) = self.instances.copy_program().await?;
        let dir = self.instances.root.join(directory);
        let purpose = label.map(InstanceLabel::purpose).unwrap_or_default();
        let plan = ContainerStart {
            engine: &engine,
            executable: &self.instances.executable,
            dir: &dir,
            launch: &launch,
            spec: &spec,
            image: &image.reference,
            programs: &programs,
            program: &program,
            purpose: &purpose,
            labels: labels::write(label, &self.home),
        };
        let started = start::start(&plan).await;
        if started.is_err() {
            let output = engine.last_output(&launch.name).await;
            if !output.is_empty() {
                tracing::warn!(container = launch.name, output, "a container did not start");
            }
            // It may have been removed from the engine.
            self.images.forget_machine_images();
        }
        started
    }

    async fn end(&self, runtime_name: &str, dir: PathBuf) -> Result<(), ProviderError> {
        let engine = match self.engine.get().await {
            Ok(engine) => engine,
            // Without a directory no container was ever requested.
            Err(_) if !dir.exists() => return Ok(()),
            Err(error) => return Err(error),
        };
        // The container first: as long as its directory exists, it is found and ended again.
        engine.remove(runtime_name).await.map_err(failed("remove a container"))?;
        let terminals = self.instances.terminals.clone();
        blocking("remove a container's directory", move || clear(&dir, &terminals)).await
    }

    async fn pause(&self, dir: &Path, observed: Observed) -> Result<(), ProviderError> {
        if observed == Observed::Paused {
            return Ok(());
        }
        let paused = self.engine.get().await?.pause(&container_of(dir)).await;
        paused.map_err(failed("pause a container"))
    }

    async fn resume(&self, dir: &Path, observed: Observed) -> Result<(), ProviderError> {
        if observed == Observed::Running {
            return Ok(());
        }
        let resumed = self.engine.get().await?.resume(&container_of(dir)).await;
        resumed.map_err(failed("resume a container"))
    }

    async fn resize(&self, _: PathBuf, _: SandboxSpec) -> Result<(), ProviderError> {
        let what = "change the limits of a running container; stop it first";
        Err(ProviderError::unsupported(Self::NAME, what))
    }

    /// While the engine is down, only directories are known; other containers are found when it is back.
    async fn without_directory(&self) -> Vec<InstanceLabel> {
        let Ok(engine) = self.engine.get().await else { return vec![] };
        match engine.labelled(&self.home).await {
            Ok(listed) => {
                let orphans = orphans::without_directory(&self.instances, listed);
                orphans.into_values().flatten().collect()
            }
            Err(error) => {
                tracing::debug!(%error, "the engine does not list its containers");
                vec![]
            }
        }
    }

    fn cgroups(&self, dir: &Path) -> Option<Cgroups> {
        let path = fs::read_to_string(dir.join(CGROUP_FILE)).ok()?;
        Cgroups::new(path.trim()).ok()
    }

    fn started_with(&self, dir: &Path) -> io::Result<SandboxSpec> {
        Ok(serde_json::from_slice(&fs::read(dir.join(SPEC_FILE))?)?)
    }

    fn image_settings(&self, dir: &Path) -> io::Result<ImageSettings> {
        Ok(ContainerLaunch::read(dir)?.image)
    }

    fn disk_governor(&self) -> Option<&Arc<DiskGovernor>> {
        None
    }
}

/// The name of the container with this directory. A warm container keeps the name it was started with.
fn container_of(dir: &Path) -> String {
    let name = || labels::container(&dir.file_name().unwrap_or_default().to_string_lossy());
    Instances::labelled_name(dir).unwrap_or_else(name)
}

/// Whether a text is a valid reference of an image in a registry, and cannot be read as anything else.
fn is_reference(name: &str) -> bool {
    (1..=512).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte))
        && !name.contains("..")
        && !name.contains("//")
}

/// Removes the directory of an ended container. The directory itself is removed last, so that the next
/// removal completes an interrupted one.
fn clear(dir: &Path, terminals: &Path) -> io::Result<()> {
    if dir.exists() {
        // A launcher may still be running.
        let launcher = lock(&dir.join(LOCK))?;
        disconnect(dir)?;
        slot::release(dir)?;
        terminal_dir::move_all_out(&dir.join(TERMINALS), terminals)?;
        remove_all(dir)?;
        drop(launcher);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use provider::Provider;

    #[test]
    fn invalid_settings_are_refused() {
        let provider = Docker::new(DockerOptions::new(Path::new("/nowhere")));
        for (spec, fine) in [
            (json!(null), true),
            (json!({"memory": "512m", "cpus": 1, "egress": "none"}), true),
            (json!({"image": "localhost:5000/a/b:1.2"}), true),
            (json!({"image": "../../etc"}), false),
            (json!({"image": "-v"}), false),
            (json!({"disk": "1g"}), true),
            (json!({"disk": "1k"}), false),
            (json!({"snapshot": "of another"}), false),
            (json!({"privileged": true}), false),
        ] {
            assert_eq!(provider.accepts(&spec).is_ok(), fine, "{spec}");
        }
    }
}
