//! Making a container.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, sleep, timeout};

use super::container::{self, Plan};
use super::engine::{self, Engine, Kind, Seen};
use super::launch::{self, Launch};
use super::{Docker, LOOK, PATIENCE, labels};
use crate::namespace::disk::Base;
use crate::namespace::host::Host;
use crate::namespace::launch::TERMINALS;
use crate::namespace::make::{complaint, make_dir};
use crate::namespace::{Label, SandboxSpec, blocking, pool, seccomp as filter};
use crate::volume;
use provider::{Created, Intent, ProviderError};

/// How often a container that does not come to the door is looked at.
const DOUBT: Duration = Duration::from_millis(200);

const MAKING: &str = "make a container";

impl Docker {
    /// Makes the instance; whoever asks for it meanwhile waits and finds it.
    pub(super) async fn make_once(&self, intent: &Intent) -> Result<Created, ProviderError> {
        self.0.making.with(intent.instance_id.as_str(), self.make(intent)).await
    }

    /// Makes it, and what it shares with others be seen in it: nobody is in it before.
    async fn make(&self, intent: &Intent) -> Result<Created, ProviderError> {
        let mut spec = self.spec(&intent.spec, Some(&intent.lease_id))?;
        let volumes = std::mem::take(&mut spec.volumes);
        let created = self.make_alone(intent, spec).await?;
        if !volumes.is_empty() {
            let (id, options) = (&intent.instance_id, &self.0.options);
            let host = self.host(id).await?;
            let shown = volumes.iter().map(|mounted| volume::data_in(&options.home, mounted));
            let (this, id, shown) = (self.clone(), id.clone(), shown.collect::<Vec<_>>());
            blocking("mount a volume", move || this.note_shown(&id, shown)).await?;
            volume::show_all(&options.home, &options.executable, host.pid, &volumes).await?;
        }
        Ok(created)
    }

    async fn make_alone(
        &self,
        intent: &Intent,
        spec: SandboxSpec,
    ) -> Result<Created, ProviderError> {
        let failed = |source| ProviderError::failed(MAKING, source);
        let id = &intent.instance_id;
        let dir = self.dir(id);
        if Host::connect(&dir).await.map_err(failed)?.is_some() {
            return Ok(Created { reference: self.container(id) });
        }
        // What an earlier try left is in the way of the next. It began with the directory.
        if dir.exists() {
            self.end(id).await?;
        }
        if let Some(reference) = pool::claim(self, intent, &spec).await? {
            return Ok(Created { reference });
        }
        let label = Label {
            lease_id: intent.lease_id.clone(),
            generation: intent.generation,
            instance_id: id.clone(),
            name: labels::container(id.as_str()),
        };
        make_dir(&dir).and_then(|()| label.write(&dir)).map_err(failed)?;
        let disk = self.0.disks.of(intent.lease_id.as_str());
        match self.bring_up(id.as_str(), Some(&label), &spec, disk).await {
            Ok(()) => Ok(Created { reference: label.name }),
            Err(error) => {
                self.end(id).await?;
                Err(error)
            }
        }
    }

    /// Makes a container in the directory of this name, which is there; with its disk, if that is not.
    /// One without a label waits to be given away.
    pub(super) async fn bring_up(
        &self,
        name: &str,
        label: Option<&Label>,
        spec: &SandboxSpec,
        disk: PathBuf,
    ) -> Result<(), ProviderError> {
        let engine = self.engine().await?;
        let image = self.image(&engine, spec.image.as_deref()).await?;
        self.0.disks.ready(&disk, Base::Image, spec).await?;
        let (dir, container) = (self.0.containers.join(name), labels::container(name));
        let launch = Launch {
            name: container,
            egress: spec.egress.clone(),
            disk,
            shown: image.shown(&self.0.options.shown),
        };
        let up = self.launch(&engine, &dir, &launch, label, spec, &image.reference).await;
        if up.is_err() {
            let said = engine.last_words(&launch.name).await;
            if !said.is_empty() {
                tracing::warn!(container = launch.name, said, "a container did not come up");
            }
            // Somebody may have removed it from the engine.
            self.forget_machine_image();
        }
        up
    }

    async fn launch(
        &self,
        engine: &Engine,
        dir: &Path,
        launch: &Launch,
        label: Option<&Label>,
        spec: &SandboxSpec,
        image: &str,
    ) -> Result<(), ProviderError> {
        let failed = |source| ProviderError::failed(MAKING, source);
        prepare(dir, launch, spec).map_err(failed)?;
        let this = self.clone();
        let (programs, program) =
            blocking("copy the host's program", move || this.0.programs.ready()).await?;
        let seccomp = seccomp(engine.kind, dir).map_err(failed)?;
        let purpose = label.map(|label| format!("{}:{}", label.lease_id, label.generation));
        let body = container::body(&Plan {
            image,
            dir,
            spec,
            programs: &programs,
            program: &program,
            label: &purpose.unwrap_or_default(),
            labels: labels::write(label, &self.0.home),
            shown: &launch.shown,
            seccomp: &seccomp,
            kind: engine.kind,
        });
        let mut launcher =
            Launcher::start(&self.0.options.executable, dir).await.map_err(failed)?;
        engine.create(&launch.name, body).await.map_err(engine::failed(MAKING))?;
        engine.start(&launch.name).await.map_err(engine::failed(MAKING))?;
        launcher.finish(engine, &launch.name).await.map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        while Host::connect(dir).await.map_err(failed)?.is_none() {
            if Instant::now() > deadline {
                return Err(failed(io::Error::other("the host does not listen")));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Writes down what the launcher needs to know. Blocking, and short.
fn prepare(dir: &Path, launch: &Launch, spec: &SandboxSpec) -> io::Result<()> {
    make_dir(&dir.join(TERMINALS))?;
    let door = dir.join(launch::DOOR);
    make_dir(&door)?;
    fs::set_permissions(&door, fs::Permissions::from_mode(0o755))?;
    fs::write(dir.join(launch::FILE), serde_json::to_vec(launch)?)?;
    fs::write(dir.join(super::SPEC), serde_json::to_vec(spec)?)
}

/// The filter of system calls as an engine takes it: one wants the text, the other a file.
fn seccomp(kind: Kind, dir: &Path) -> io::Result<String> {
    let text = serde_json::to_string(&filter::oci().map_err(io::Error::other)?)?;
    match kind {
        Kind::Docker => Ok(text),
        Kind::Podman => {
            let path = dir.join("seccomp.json");
            fs::write(&path, text)?;
            Ok(path.to_string_lossy().into_owned())
        }
    }
}

/// The launcher of one container, at work.
struct Launcher<'a> {
    child: Child,
    /// When this is closed, it gives up.
    _held: Option<ChildStdin>,
    dir: &'a Path,
}

impl<'a> Launcher<'a> {
    /// Starts it, and waits until the container may be started.
    async fn start(executable: &Path, dir: &'a Path) -> io::Result<Self> {
        let complaints = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(dir.join("launch.err"))?;
        let mut child = tokio::process::Command::new(executable)
            .args(["container", "launch"])
            .arg(dir)
            .env_clear()
            .env("PATH", crate::namespace::bundle::PATH)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .kill_on_drop(true)
            .spawn()?;
        let held = child.stdin.take();
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let _ = timeout(PATIENCE, stdout.read_line(&mut said)).await;
        }
        if said.trim() != launch::READY {
            return Err(io::Error::other(complaint(dir, "the launcher is not ready")));
        }
        Ok(Self { child, _held: held, dir })
    }

    /// Waits until the container has what it needs, or has ended.
    async fn finish(&mut self, engine: &Engine, container: &str) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(status) = timeout(DOUBT, self.child.wait()).await {
                let status = status?;
                if status.success() {
                    return Ok(());
                }
                return Err(io::Error::other(complaint(self.dir, &status.to_string())));
            }
            match engine.look(container).await {
                Ok(Seen::Ended | Seen::Nothing) => {
                    return Err(io::Error::other("the container ended before it began"));
                }
                Ok(Seen::Alive) | Err(_) if Instant::now() < deadline => {}
                Ok(Seen::Alive) | Err(_) => {
                    return Err(io::Error::other("the container does not come to the door"));
                }
            }
        }
    }
}
