//! Making a sandbox.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::time::{Instant, sleep, timeout};

use super::connect;
use super::disk::{self, Base};
use super::host::Host;
use super::label::Label;
use super::launch::{self, Launch};
use super::spec::SandboxSpec;
use super::{LOOK, Namespace, OWN_RUNTIME, PATIENCE, blocking, pool};
use crate::volume::{self, Mounted};
use model::InstanceId;
use provider::{Created, Intent, ProviderError};

/// What a sandbox is refused for is said by the launcher in at most so many bytes.
const COMPLAINT: usize = 4096;

impl Namespace {
    /// Makes the instance; whoever asks for it meanwhile waits and finds it.
    pub(super) async fn make_once(&self, intent: &Intent) -> Result<Created, ProviderError> {
        self.0.making.with(intent.instance_id.as_str(), self.make(intent)).await
    }

    /// Makes it, and what it shares with others be seen in it: nobody is in it before.
    async fn make(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let mut spec = self.asked("make a sandbox", &intent.spec, Some(&intent.lease_id))?;
        let volumes = std::mem::take(&mut spec.volumes);
        let created = self.make_alone(intent, spec).await?;
        self.show_volumes(&intent.instance_id, &volumes).await?;
        Ok(created)
    }

    async fn show_volumes(
        &self,
        id: &InstanceId,
        volumes: &[Mounted],
    ) -> Result<(), ProviderError> {
        if volumes.is_empty() {
            return Ok(());
        }
        let options = &self.0.options;
        let host = self.host(id).await?;
        let shown = volumes.iter().map(|mounted| volume::data_in(&options.home, mounted));
        let (this, id, shown) = (self.clone(), id.clone(), shown.collect::<Vec<_>>());
        blocking("mount a volume", move || this.note_shown(&id, shown)).await?;
        volume::show_all(&options.home, &options.executable, host.pid, volumes).await
    }

    async fn make_alone(
        &self,
        intent: &Intent,
        spec: SandboxSpec,
    ) -> Result<Created, ProviderError> {
        let failed = |source| ProviderError::failed("make a sandbox", source);
        let created = Created { reference: String::new() };
        let dir = self.dir(&intent.instance_id);
        if Host::connect(&dir).await.map_err(failed)?.is_some() {
            return Ok(created);
        }
        // What an earlier try left is in the way of the next.
        self.end(&intent.instance_id).await?;
        if pool::claim(self, intent, &spec).await?.is_some() {
            return Ok(created);
        }
        let label = Label {
            lease_id: intent.lease_id.clone(),
            generation: intent.generation,
            instance_id: intent.instance_id.clone(),
            name: intent.instance_id.to_string(),
        };
        make_dir(&dir.join(launch::TERMINALS)).and_then(|()| label.write(&dir)).map_err(failed)?;
        let disk = self.0.disks.of(intent.lease_id.as_str());
        let purpose = format!("{}:{}", intent.lease_id, intent.generation);
        self.bring_up(&label.name, &purpose, spec, disk, &dir).await?;
        Ok(created)
    }

    /// Makes a sandbox in a directory that is there; with its disk, if that is not there.
    pub(super) async fn bring_up(
        &self,
        name: &str,
        purpose: &str,
        spec: SandboxSpec,
        disk: PathBuf,
        dir: &Path,
    ) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed("make a sandbox", source);
        let image = match &spec.image {
            None => None,
            Some(name) => Some(self.image(name)?),
        };
        let base = if image.is_some() { Base::Image } else { Base::Machine };
        self.0.disks.ready(&disk, base, &spec).await?;
        let this = self.clone();
        let (programs, program) =
            blocking("copy the host's program", move || this.0.programs.ready()).await?;
        let launch = Launch {
            name: name.to_owned(),
            label: purpose.to_owned(),
            spec,
            disk,
            image,
            programs,
            program,
            runtime: self.runtime().map_err(failed)?,
            shown: self.0.options.shown.clone(),
            disk_rate: self.0.options.disk_rate,
        };
        let text = serde_json::to_vec(&launch).map_err(|error| failed(error.into()))?;
        fs::write(dir.join(launch::FILE), text).map_err(failed)?;
        self.launch(dir).await.map_err(failed)
    }

    /// Runs the launcher, and waits until the host listens.
    async fn launch(&self, dir: &Path) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let complaints = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(dir.join("launch.err"))?;
        let mut child = tokio::process::Command::new(&self.0.options.executable)
            .args(["sandbox", "launch"])
            .arg(dir)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(complaints.try_clone()?)
            .stderr(complaints)
            .spawn()?;
        let status = match timeout(PATIENCE, child.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                let _ = child.start_kill();
                return Err(io::Error::other("the launcher does not come to an end"));
            }
        };
        if !status.success() {
            return Err(io::Error::other(complaint(dir, &status.to_string())));
        }
        while Host::connect(dir).await?.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other(complaint(dir, "the host does not listen")));
            }
            sleep(LOOK).await;
        }
        loop {
            match connect::connected(dir) {
                Some(connected) => return connected.map_err(io::Error::other),
                None if Instant::now() > deadline => {
                    return Err(io::Error::other(complaint(dir, "the network does not come up")));
                }
                None => sleep(LOOK).await,
            }
        }
    }

    /// The root of an imported image.
    pub(super) fn image(&self, name: &str) -> Result<PathBuf, ProviderError> {
        let refused = |reason: String| ProviderError::Refused { doing: "make a sandbox", reason };
        if !is_image_name(name) {
            return Err(refused(format!("image {name:?} is no name of an image")));
        }
        let root = self.0.options.home.join("images").join(name).join("rootfs");
        if !root.is_dir() {
            return Err(refused(format!("there is no image {name}; stead image import makes one")));
        }
        Ok(root)
    }

    /// The OCI runtime's path, unless it is our own.
    fn runtime(&self) -> io::Result<Option<PathBuf>> {
        let name = &self.0.options.runtime;
        if name == Path::new(OWN_RUNTIME) {
            return Ok(None);
        }
        let found = find_program(name);
        found.map(Some).ok_or_else(|| io::Error::other(format!("there is no {}", name.display())))
    }
}

/// Whether a string can name an image.
#[must_use]
pub fn is_image_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// A program of this machine.
pub(crate) fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    disk::PATH.split(':').map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

pub(crate) fn complaint(dir: &Path, how: &str) -> String {
    let said = fs::read_to_string(dir.join("launch.err")).unwrap_or_default();
    let said = said.trim();
    let from = said.len().saturating_sub(COMPLAINT);
    match said.get(from..) {
        Some(said) if !said.is_empty() => format!("{how}: {said}"),
        _ => how.to_owned(),
    }
}

/// Makes a directory that is ours alone, if it is not there.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
