//! The container engine: Docker or Podman, over the same API on a local socket.

use std::collections::BTreeMap;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
    LogsOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker as Client};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::labels;
use crate::label::InstanceLabel;
use provider::ProviderError;

/// The default sockets of engines.
const DEFAULT_SOCKETS: [&str; 2] =
    ["unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"];

/// How long an engine may take to report its version, and each line of a log.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an engine may take for one request.
const REQUEST_TIMEOUT_SECONDS: u64 = 120;

/// How long the removal of a container is retried, and how often.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);
const REMOVE_INTERVAL: Duration = Duration::from_millis(50);

/// How much of a container's output is logged.
const MAX_OUTPUT_BYTES: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineKind {
    Docker,
    Podman,
}

/// An engine that is connected.
#[derive(Debug, Clone)]
pub(super) struct ContainerEngine {
    pub(super) client: Client,
    pub(super) kind: EngineKind,
}

/// The state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// The container is running or paused.
    Alive,
    /// Created, but not running.
    Ended,
    Missing,
}

/// Containers by name, each with its label.
pub(super) type ListedContainers = BTreeMap<String, Option<InstanceLabel>>;

/// The connection to the engine, which is made at its first use.
#[derive(Debug)]
pub(super) struct EngineLink {
    /// The configured address; empty for `DOCKER_HOST` or the default sockets.
    address: String,
    /// The engine that responded last.
    engine: Mutex<Option<ContainerEngine>>,
}

impl EngineLink {
    pub(super) fn new(address: String) -> Self {
        Self { address, engine: Mutex::default() }
    }

    pub(super) async fn get(&self) -> Result<ContainerEngine, ProviderError> {
        let known = self.engine.lock().clone();
        if let Some(engine) = known {
            return Ok(engine);
        }
        let failed = |why| {
            ProviderError::failed("connect to a container engine", std::io::Error::other(why))
        };
        self.refresh().await.map_err(failed)
    }

    /// Reconnects: the last engine may have stopped, and another may have started.
    pub(super) async fn refresh(&self) -> Result<ContainerEngine, String> {
        let engine = ContainerEngine::connect(&self.address).await?;
        *self.engine.lock() = Some(engine.clone());
        Ok(engine)
    }
}

impl ContainerEngine {
    /// Connects to the engine at this address, or to the first default socket that responds.
    ///
    /// # Errors
    /// The tried addresses with their errors, as text.
    async fn connect(configured: &str) -> Result<Self, String> {
        let environment = std::env::var("DOCKER_HOST").unwrap_or_default();
        let mut tried = Vec::new();
        for address in addresses(configured, &environment) {
            match Self::at(&address).await {
                Ok(engine) => return Ok(engine),
                Err(why) => tried.push(format!("{address}: {why}")),
            }
        }
        Err(format!(
            "engine: no container engine found ({}); install Docker or Podman, or set docker.host",
            tried.join("; ")
        ))
    }

    async fn at(address: &str) -> Result<Self, String> {
        let Some(path) = socket(address) else {
            return Err(
                "the engine has to be on this machine; use the path of a unix socket".into()
            );
        };
        let client = Client::connect_with_unix(path, REQUEST_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            .map_err(|error| error.to_string())?;
        let version = match timeout(RESPONSE_TIMEOUT, client.version()).await {
            Ok(version) => version.map_err(|error| cause(&error))?,
            Err(_) => return Err("timed out".into()),
        };
        let podman = version
            .components
            .unwrap_or_default()
            .iter()
            .any(|part| part.name.to_ascii_lowercase().contains("podman"));
        Ok(Self { client, kind: if podman { EngineKind::Podman } else { EngineKind::Docker } })
    }

    /// Creates a container without starting it. Replaces one of the same name, which a killed server may
    /// have
    /// requested and the engine created later.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<(), Error> {
        let options = || CreateContainerOptionsBuilder::new().name(name).build();
        let mut created = self.client.create_container(Some(options()), body.clone()).await;
        if created.as_ref().is_err_and(is_taken) {
            self.remove(name).await?;
            created = self.client.create_container(Some(options()), body).await;
        }
        for warning in created?.warnings {
            tracing::debug!(container = name, warning, "warning of the engine");
        }
        Ok(())
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), Error> {
        self.client.start_container(name, None::<StartContainerOptions>).await
    }

    pub(super) async fn pause(&self, name: &str) -> Result<(), Error> {
        self.client.pause_container(name).await
    }

    pub(super) async fn resume(&self, name: &str) -> Result<(), Error> {
        self.client.unpause_container(name).await
    }

    pub(super) async fn inspect(&self, name: &str) -> Result<ContainerState, Error> {
        match self.client.inspect_container(name, None::<InspectContainerOptions>).await {
            Ok(found) => {
                let state = found.state.unwrap_or_default();
                let alive = state.running == Some(true) || state.paused == Some(true);
                Ok(if alive { ContainerState::Alive } else { ContainerState::Ended })
            }
            Err(error) if is_missing(&error) => Ok(ContainerState::Missing),
            Err(error) => Err(error),
        }
    }

    /// Kills and removes a container. Succeeds if it does not exist.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        loop {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            match self.client.remove_container(name, Some(options)).await {
                Ok(()) => return Ok(()),
                Err(error) if is_missing(&error) => return Ok(()),
                // Another request is creating, pausing or removing it.
                Err(error) if answered(&error) && Instant::now() < deadline => {
                    tracing::debug!(container = name, %error, "container not removed yet");
                    sleep(REMOVE_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// All containers of a home, running or not.
    pub(super) async fn labelled(&self, home: &str) -> Result<ListedContainers, Error> {
        let filters = labels::filter(home);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.client.list_containers(Some(options)).await?;
        let listed = found.into_iter().filter_map(|found| {
            let name = found.names?.first()?.trim_start_matches('/').to_owned();
            Some((name, labels::read(&found.labels.unwrap_or_default())))
        });
        Ok(listed.collect())
    }

    /// The last output of a container.
    pub(super) async fn last_output(&self, name: &str) -> String {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("20").build();
        let mut lines = self.client.logs(name, Some(options));
        let mut output = String::new();
        while let Ok(Some(Ok(line))) = timeout(RESPONSE_TIMEOUT, lines.next()).await {
            output.push_str(&line.to_string());
            if output.len() > MAX_OUTPUT_BYTES {
                break;
            }
        }
        output.trim().to_owned()
    }
}

/// The addresses to try, best first.
fn addresses(configured: &str, environment: &str) -> Vec<String> {
    match [configured, environment].into_iter().find(|address| !address.is_empty()) {
        Some(address) => vec![address.to_owned()],
        None => DEFAULT_SOCKETS.map(str::to_owned).to_vec(),
    }
}

/// The path of a local socket.
fn socket(address: &str) -> Option<&str> {
    let path = address.strip_prefix("unix://").unwrap_or(address);
    path.starts_with('/').then_some(path)
}

/// Whether the engine responded with "not found".
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

/// Whether the engine responded that the name is in use. Podman reports that as an internal error.
fn is_taken(error: &Error) -> bool {
    match error {
        Error::DockerResponseServerError { status_code: 409, .. } => true,
        Error::DockerResponseServerError { message, .. } => message.contains("already in use"),
        _ => false,
    }
}

/// Whether the engine responded at all.
fn answered(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { .. })
}

/// The innermost cause of an error.
fn cause(error: &Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Converts an engine's error.
pub(super) fn failed(doing: &'static str) -> impl Fn(Error) -> ProviderError {
    move |error| match error {
        // A bad request stays bad when it is repeated.
        Error::DockerResponseServerError { status_code: 400 | 413, message } => {
            ProviderError::Refused { doing, reason: message }
        }
        Error::DockerResponseServerError { message, .. } => {
            ProviderError::failed(doing, std::io::Error::other(message))
        }
        error => ProviderError::failed(doing, std::io::Error::other(cause(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_configured_address_is_tried() {
        assert_eq!(addresses("unix:///a", "unix:///b"), ["unix:///a"]);
        assert_eq!(addresses("", "unix:///b"), ["unix:///b"]);
        assert_eq!(addresses("", ""), DEFAULT_SOCKETS);
    }

    #[test]
    fn only_a_local_socket_is_accepted() {
        assert_eq!(socket("unix:///run/x.sock"), Some("/run/x.sock"));
        assert_eq!(socket("/run/x.sock"), Some("/run/x.sock"));
        assert_eq!(socket("tcp://10.0.0.1:2375"), None);
        assert_eq!(socket("ssh://build"), None);
    }

    #[tokio::test]
    async fn the_reason_why_an_engine_cannot_be_used_is_reported() {
        for (address, reason) in [
            ("tcp://10.0.0.1:2375", "on this machine"),
            ("unix:///nowhere/engine.sock", "/nowhere/engine.sock"),
        ] {
            let error = ContainerEngine::connect(address).await.unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
