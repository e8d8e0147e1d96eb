//! The engine that runs containers: Docker or Podman, by the same API over a socket of this machine.

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
use tokio::time::{Instant, sleep, timeout};

use super::labels;
use crate::namespace::Label;
use provider::ProviderError;

/// Where engines listen if nothing else is said.
const USUAL: [&str; 2] = ["unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"];

/// How long an engine has to say who it is.
const ANSWER: Duration = Duration::from_secs(5);

/// How long an engine may take for one request, in seconds.
const REQUEST: u64 = 120;

/// How long a container may take to be removed, and how often it is tried.
const REMOVAL: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(50);

/// How much of what a container said is repeated.
const LAST_WORDS: usize = 2048;

/// Which engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Podman,
}

/// An engine that answered.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) client: Client,
    pub(super) kind: Kind,
}

/// How a container is, as its engine says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It runs or is paused.
    Alive,
    /// It was made and does not run.
    Ended,
    /// There is none.
    Nothing,
}

/// Containers by name, and what each was made for.
pub(super) type Listed = BTreeMap<String, Option<Label>>;

impl Engine {
    /// The engine at this address, or the first of the usual ones that answers; else why not.
    pub(super) async fn reach(configured: &str) -> Result<Self, String> {
        let environment = std::env::var("DOCKER_HOST").unwrap_or_default();
        let mut tried = Vec::new();
        for address in addresses(configured, &environment) {
            match Self::at(&address).await {
                Ok(engine) => return Ok(engine),
                Err(why) => tried.push(format!("{address}: {why}")),
            }
        }
        Err(format!(
            "engine: none answers ({}); install docker.io or podman, or set docker.host",
            tried.join("; ")
        ))
    }

    async fn at(address: &str) -> Result<Self, String> {
        let Some(path) = socket(address) else {
            return Err("an engine of another machine cannot be used; name a unix socket".into());
        };
        let client = Client::connect_with_unix(path, REQUEST, API_DEFAULT_VERSION)
            .map_err(|error| error.to_string())?;
        let version = match timeout(ANSWER, client.version()).await {
            Ok(version) => version.map_err(|error| cause(&error))?,
            Err(_) => return Err("it does not answer".into()),
        };
        let podman = version
            .components
            .unwrap_or_default()
            .iter()
            .any(|part| part.name.to_ascii_lowercase().contains("podman"));
        Ok(Self { client, kind: if podman { Kind::Podman } else { Kind::Docker } })
    }

    /// Makes a container that does not run yet, in place of one that has its name: a server that was
    /// killed may have asked for that, and the engine gone on making it.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<(), Error> {
        let options = || CreateContainerOptionsBuilder::new().name(name).build();
        let mut made = self.client.create_container(Some(options()), body.clone()).await;
        if made.as_ref().is_err_and(is_taken) {
            self.remove(name).await?;
            made = self.client.create_container(Some(options()), body).await;
        }
        let made = made?;
        for warning in made.warnings {
            tracing::debug!(container = name, warning, "the engine warns");
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

    /// How a container is.
    pub(super) async fn look(&self, name: &str) -> Result<Seen, Error> {
        match self.client.inspect_container(name, None::<InspectContainerOptions>).await {
            Ok(found) => {
                let state = found.state.unwrap_or_default();
                let alive = state.running == Some(true) || state.paused == Some(true);
                Ok(if alive { Seen::Alive } else { Seen::Ended })
            }
            Err(error) if is_missing(&error) => Ok(Seen::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Ends a container and removes it, whatever it does. One that is not there is a success.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        let deadline = Instant::now() + REMOVAL;
        loop {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            match self.client.remove_container(name, Some(options)).await {
                Ok(()) => return Ok(()),
                Err(error) if is_missing(&error) => return Ok(()),
                // It is being made, paused or removed by somebody else at this moment.
                Err(error) if answered(&error) && Instant::now() < deadline => {
                    tracing::debug!(container = name, %error, "not removed yet");
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Every container of a home by its name, whatever it does, and what it was made for if that is
    /// known.
    pub(super) async fn labelled(&self, home: &str) -> Result<Listed, Error> {
        let filters = labels::filter(home);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.client.list_containers(Some(options)).await?;
        let listed = found.into_iter().filter_map(|found| {
            let name = found.names?.first()?.trim_start_matches('/').to_owned();
            Some((name, labels::read(&found.labels.unwrap_or_default())))
        });
        Ok(listed.collect())
    }

    /// What a container said last.
    pub(super) async fn last_words(&self, name: &str) -> String {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("20").build();
        let mut lines = self.client.logs(name, Some(options));
        let mut said = String::new();
        while let Ok(Some(Ok(line))) = timeout(ANSWER, lines.next()).await {
            said.push_str(&line.to_string());
            if said.len() > LAST_WORDS {
                break;
            }
        }
        said.trim().to_owned()
    }
}

/// Where to look, best first.
fn addresses(configured: &str, environment: &str) -> Vec<String> {
    match [configured, environment].into_iter().find(|address| !address.is_empty()) {
        Some(address) => vec![address.to_owned()],
        None => USUAL.map(str::to_owned).to_vec(),
    }
}

/// The path of a socket of this machine.
fn socket(address: &str) -> Option<&str> {
    let path = address.strip_prefix("unix://").unwrap_or(address);
    path.starts_with('/').then_some(path)
}

/// Whether the engine said that there is no such thing.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

/// Whether the engine said that something of that name is there already. Podman says it as a failure
/// of its own.
fn is_taken(error: &Error) -> bool {
    match error {
        Error::DockerResponseServerError { status_code: 409, .. } => true,
        Error::DockerResponseServerError { message, .. } => message.contains("already in use"),
        _ => false,
    }
}

/// Whether the engine said anything at all.
fn answered(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { .. })
}

/// What went wrong, in words of its cause.
fn cause(error: &Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// An engine's failure as a provider's.
pub(super) fn failed(doing: &'static str) -> impl Fn(Error) -> ProviderError {
    move |error| match error {
        // What was asked for makes no sense to it, and would not the next time either.
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
    fn what_is_configured_is_asked_alone() {
        assert_eq!(addresses("unix:///a", "unix:///b"), ["unix:///a"]);
        assert_eq!(addresses("", "unix:///b"), ["unix:///b"]);
        assert_eq!(addresses("", ""), USUAL);
    }

    #[test]
    fn only_a_socket_of_this_machine_will_do() {
        assert_eq!(socket("unix:///run/x.sock"), Some("/run/x.sock"));
        assert_eq!(socket("/run/x.sock"), Some("/run/x.sock"));
        assert_eq!(socket("tcp://10.0.0.1:2375"), None);
        assert_eq!(socket("ssh://build"), None);
    }

    #[tokio::test]
    async fn an_engine_that_cannot_be_used_is_said_with_its_reason() {
        for (address, reason) in [
            ("tcp://10.0.0.1:2375", "another machine"),
            ("unix:///nowhere/engine.sock", "/nowhere/engine.sock"),
        ] {
            let said = Engine::reach(address).await.unwrap_err();
            assert!(said.contains(reason), "{said}");
        }
    }
}
