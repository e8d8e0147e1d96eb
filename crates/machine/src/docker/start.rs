//! Starts a container: prepares its directory, runs its launcher while the engine starts the container, and
//! waits for its host.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, sleep, timeout};

use super::container::{self, ContainerPlan};
use super::engine::{ContainerEngine, ContainerState, EngineKind, failed};
use super::launch::{self, ContainerLaunch, HANDOFF};
use super::timing::{POLL_INTERVAL, START_TIMEOUT};
use crate::files::make_dir;
use crate::layout::{ERRORS, TERMINALS, launch_failure};
use crate::seccomp::denied;
use crate::spec::{SandboxCapabilities, SandboxSpec};
use crate::tools::PATH;
use provider::{HostSocket, ProviderError};

/// The file with the settings of a container.
pub(super) const SPEC_FILE: &str = "spec.json";

/// The interval between two checks of a container's state while its launcher runs.
const STATE_INTERVAL: Duration = Duration::from_millis(200);

const STARTING: &str = "start a container";

/// The parameters for starting a container.
pub(super) struct ContainerStart<'a> {
    pub(super) engine: &'a ContainerEngine,
    /// The executable that launchers are started from.
    pub(super) executable: &'a Path,
    /// The instance's directory, which exists.
    pub(super) dir: &'a Path,
    pub(super) launch: &'a ContainerLaunch,
    pub(super) spec: &'a SandboxSpec,
    pub(super) image: &'a str,
    /// The directory with the host's executable.
    pub(super) programs: &'a Path,
    /// The file name of the host's executable.
    pub(super) program: &'a str,
    /// The lease and generation, which the host repeats; empty for a warm container.
    pub(super) purpose: &'a str,
    /// The labels for the engine.
    pub(super) labels: HashMap<String, String>,
}

/// Starts a container, and waits until its host listens.
pub(super) async fn start(plan: &ContainerStart<'_>) -> Result<(), ProviderError> {
    let &ContainerStart { engine, dir, launch, spec, .. } = plan;
    let cannot_start = |source| ProviderError::failed(STARTING, source);
    prepare(dir, launch, spec).map_err(cannot_start)?;
    let mut launcher =
        ContainerLauncher::start(plan.executable, dir).await.map_err(cannot_start)?;
    let user = launcher.user;
    let shares =
        "a container shares the limits of the machine's user 0, and its root has no capabilities";
    if user == 0 {
        tracing::warn!(container = launch.name, "{shares}: users may not create user namespaces");
    }
    match create(plan, user).await {
        // An engine that maps users itself does not have this one.
        Err(error) if user != 0 => {
            tracing::warn!(container = launch.name, %error, "{shares}");
            engine.remove(&launch.name).await.map_err(failed(STARTING))?;
            create(plan, 0).await?;
        }
        created => created?,
    }
    launcher.finish(engine, &launch.name).await.map_err(cannot_start)?;
    let deadline = Instant::now() + START_TIMEOUT;
    while HostSocket::connect(dir).await.map_err(cannot_start)?.is_none() {
        if Instant::now() > deadline {
            return Err(cannot_start(io::Error::other("the host does not listen")));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Creates and starts the container itself, whose process 1 is first this user.
async fn create(plan: &ContainerStart<'_>, user: u32) -> Result<(), ProviderError> {
    let &ContainerStart { engine, dir, launch, spec, .. } = plan;
    let capabilities = launch::effective_capabilities(launch.capabilities, user);
    let seccomp = seccomp(engine.kind, dir, user, capabilities);
    let seccomp = seccomp.map_err(|source| ProviderError::failed(STARTING, source))?;
    let body = container::body(&ContainerPlan {
        image: plan.image,
        dir,
        spec,
        programs: plan.programs,
        program: plan.program,
        label: plan.purpose,
        labels: plan.labels.clone(),
        shown: &launch.shown,
        seccomp: &seccomp,
        kind: engine.kind,
        user,
        capabilities,
    });
    engine.create(&launch.name, body).await.map_err(failed(STARTING))?;
    engine.start(&launch.name).await.map_err(failed(STARTING))
}

/// Writes the files that the launcher reads. Blocking, and short.
fn prepare(dir: &Path, launch: &ContainerLaunch, spec: &SandboxSpec) -> io::Result<()> {
    make_dir(&dir.join(TERMINALS))?;
    let handoff = dir.join(HANDOFF);
    make_dir(&handoff)?;
    fs::set_permissions(&handoff, fs::Permissions::from_mode(0o755))?;
    launch.write(dir)?;
    fs::write(dir.join(SPEC_FILE), serde_json::to_vec(spec)?)
}

/// The seccomp profile in the form that the engine accepts: text for Docker, a file for Podman.
fn seccomp(
    kind: EngineKind,
    dir: &Path,
    user: u32,
    capabilities: SandboxCapabilities,
) -> io::Result<String> {
    let profile =
        if user == 0 { denied::oci(capabilities) } else { denied::oci_of_entry(capabilities) };
    let text = serde_json::to_string(&profile.map_err(io::Error::other)?)?;
    match kind {
        EngineKind::Docker => Ok(text),
        EngineKind::Podman => {
            let path = dir.join("seccomp.json");
            fs::write(&path, text)?;
            Ok(path.to_string_lossy().into_owned())
        }
    }
}

/// The launcher process of a container.
struct ContainerLauncher<'a> {
    child: Child,
    /// The launcher exits when this is closed.
    _stdin: Option<ChildStdin>,
    dir: &'a Path,
    /// The user of process 1.
    user: u32,
}

impl<'a> ContainerLauncher<'a> {
    /// Starts the launcher, and waits until the container may be started.
    async fn start(executable: &Path, dir: &'a Path) -> io::Result<Self> {
        let errors =
            fs::OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(ERRORS))?;
        let mut child = tokio::process::Command::new(executable)
            .args(["container", "launch"])
            .arg(dir)
            .env_clear()
            .env("PATH", PATH)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let _ = timeout(START_TIMEOUT, stdout.read_line(&mut line)).await;
        }
        let user = line.strip_prefix(launch::READY).and_then(|user| user.trim().parse().ok());
        let not_ready = || io::Error::other(launch_failure(dir, "the launcher is not ready"));
        Ok(Self { child, _stdin: stdin, dir, user: user.ok_or_else(not_ready)? })
    }

    /// Waits until the launcher is done, or the container has ended.
    async fn finish(&mut self, engine: &ContainerEngine, container: &str) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(status) = timeout(STATE_INTERVAL, self.child.wait()).await {
                let status = status?;
                if status.success() {
                    return Ok(());
                }
                return Err(io::Error::other(launch_failure(self.dir, &status.to_string())));
            }
            match engine.inspect(container).await {
                Ok(ContainerState::Ended | ContainerState::Missing) => {
                    return Err(io::Error::other("the container ended before its host started"));
                }
                Ok(ContainerState::Alive) | Err(_) if Instant::now() < deadline => {}
                Ok(ContainerState::Alive) | Err(_) => {
                    return Err(io::Error::other("the container does not start its host"));
                }
            }
        }
    }
}
