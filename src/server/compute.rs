//! The providers this server has.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Map, Value, json};

use base::event::Events;
use cloud::{self, AgentBayOptions, Cloud, DaytonaOptions, E2bOptions, Key};
use config::{Runtime, Sandbox, Settings};
use machine::{
    Docker, Namespace,
    docker::DockerOptions,
    namespace::{Check, Confined, NamespaceOptions},
};
use provider::{Local, Provider, Providers};

/// The providers, and the one of a thread that names none.
pub struct Compute {
    /// The providers.
    pub providers: Providers,
    /// The name of the one that is taken where none is named.
    pub chosen: String,
    /// The sandboxes, to be kept ready, where there are any.
    pub sandboxes: Option<Namespace>,
    /// The containers, the same.
    pub containers: Option<Docker>,
}

/// Finds out which providers this machine can have.
pub async fn gather(settings: &Settings, events: &Events) -> anyhow::Result<Compute> {
    let namespace = sandboxes(settings)?;
    let confined = confined(settings)?;
    let check = match (&confined, settings.provider.as_str()) {
        // What everything is going to stand on is tried out, not only looked at.
        (None, "namespace" | "auto") => Check::once_per_boot(&namespace).await,
        (None, _) => Check::inspect(&namespace),
        (Some(confined), "namespace") => Check::try_as_user(confined).await,
        (Some(_), _) => Check::inspect_as_user(),
    };
    let chosen = match settings.provider.as_str() {
        // What a user's sandbox lacks, above all its limits, is for the operator to choose.
        "auto" if check.passes() && confined.is_none() => "namespace".to_owned(),
        "auto" => "local".to_owned(),
        named => named.to_owned(),
    };
    let mut ready = None;
    let mut all: Vec<Arc<dyn Provider>> = vec![Arc::new(Local::new(&settings.home))];
    let mut absent = Vec::new();
    if let (true, Some(confined)) = (check.passes(), confined) {
        all.push(Arc::new(confined));
    } else if check.passes() {
        namespace.sweep().await.context("cannot end what an earlier server left half made")?;
        all.push(Arc::new(namespace.clone()));
        ready = Some(namespace);
    } else {
        let missing = check.missing();
        tracing::info!(missing = missing.join("; "), "there are no namespace sandboxes here");
        if chosen == "namespace" {
            anyhow::bail!("provider namespace cannot be had here: {}", missing.join("; "));
        }
        absent.push(("namespace".to_owned(), missing));
    }
    let mut in_engine = None;
    let missing = Docker::impossible();
    if missing.is_empty() {
        let docker = containers(settings, events)?;
        docker.sweep().await.context("cannot remove what an earlier server left half made")?;
        // An engine may come up after us, and what ran in it is still ours.
        if chosen == docker.name() {
            for missing in docker.missing().await? {
                tracing::warn!(missing, "there are no containers here yet");
            }
        }
        all.push(Arc::new(docker.clone()));
        in_engine = Some(docker);
    } else {
        if chosen == "docker" {
            anyhow::bail!("provider docker cannot be had here: {}", missing.join("; "));
        }
        absent.push(("docker".to_owned(), missing));
    }
    let clouds = [
        ("e2b", e2b(settings, events)?),
        ("daytona", daytona(settings, events)?),
        ("agentbay", agentbay(settings, events)?),
    ];
    for (name, cloud) in clouds {
        match cloud {
            Some(cloud) => all.push(Arc::new(cloud)),
            None => {
                let missing =
                    format!("key: set {name}.key or {}_API_KEY", name.to_ascii_uppercase());
                if chosen == name {
                    anyhow::bail!("provider {name} cannot be had here: {missing}");
                }
                absent.push((name.to_owned(), vec![missing]));
            }
        }
    }
    let providers = Providers::new(all).without(absent);
    Ok(Compute { providers, chosen, sandboxes: ready, containers: in_engine })
}

/// What was said, unless that is `auto`.
fn said(text: &str) -> String {
    if text == "auto" { String::new() } else { text.to_owned() }
}

/// The sandboxes of E2B, as they are configured, if there is a key to them.
fn e2b(settings: &Settings, events: &Events) -> anyhow::Result<Option<Cloud>> {
    let e2b = &settings.e2b;
    if e2b.key.reveal().is_empty() {
        return Ok(None);
    }
    let vendor = E2bOptions {
        key: Key::new(e2b.key.reveal()),
        endpoint: said(&e2b.endpoint),
        sandbox_url: said(&e2b.sandbox_url),
        template: e2b.template.clone(),
        timeout: e2b.timeout,
    };
    let options = cloud(settings, &e2b.directory, e2b.price, e2b.runtime, events);
    Ok(Some(Cloud::e2b(vendor, options).context("cannot use E2B")?))
}

/// The sandboxes of Daytona, the same.
fn daytona(settings: &Settings, events: &Events) -> anyhow::Result<Option<Cloud>> {
    let daytona = &settings.daytona;
    if daytona.key.reveal().is_empty() {
        return Ok(None);
    }
    let vendor = DaytonaOptions {
        key: Key::new(daytona.key.reveal()),
        endpoint: said(&daytona.endpoint),
        snapshot: said(&daytona.snapshot),
        auto_stop: daytona.auto_stop,
    };
    let options = cloud(settings, &daytona.directory, daytona.price, daytona.runtime, events);
    Ok(Some(Cloud::daytona(vendor, options).context("cannot use Daytona")?))
}

/// The sessions of AgentBay, the same.
fn agentbay(settings: &Settings, events: &Events) -> anyhow::Result<Option<Cloud>> {
    let agentbay = &settings.agentbay;
    if agentbay.key.reveal().is_empty() {
        return Ok(None);
    }
    let vendor = AgentBayOptions {
        key: Key::new(agentbay.key.reveal()),
        endpoint: said(&agentbay.endpoint),
        image: agentbay.image.clone(),
        timeout: agentbay.timeout,
    };
    let options = cloud(settings, &agentbay.directory, agentbay.price, Runtime::Remote, events);
    Ok(Some(Cloud::agentbay(vendor, options).context("cannot use AgentBay")?))
}

/// What holds for all providers that are somewhere else.
fn cloud(
    settings: &Settings,
    directory: &str,
    price: f64,
    runtime: Runtime,
    events: &Events,
) -> cloud::Options {
    cloud::Options {
        price: price.into(),
        runtime: match runtime {
            Runtime::Host => cloud::Runtime::Host,
            Runtime::Remote => cloud::Runtime::Remote,
        },
        inside: directory.to_owned(),
        log_limit: settings.terminal.log_limit_bytes,
        events: Some(events.clone()),
        ..cloud::Options::new(&settings.home)
    }
}

/// The provider of containers, as it is configured.
fn containers(settings: &Settings, events: &Events) -> anyhow::Result<Docker> {
    let mut options = DockerOptions::new(&settings.home);
    options.host = said(&settings.docker.host);
    options.shown = settings.sandbox.show.iter().map(PathBuf::from).collect();
    options.defaults = options
        .defaults
        .with(&limits(&settings.sandbox))
        .map_err(|bad| anyhow::anyhow!("the setting sandbox.{bad}"))?;
    options.defaults.image = Some(said(&settings.docker.image)).filter(|image| !image.is_empty());
    options.warm = settings.sandbox.warm;
    options.events = Some(events.clone());
    Ok(Docker::new(options))
}

/// The provider of sandboxes of a user, where the server is not root.
pub fn confined(settings: &Settings) -> anyhow::Result<Option<Confined>> {
    if rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    Ok(Some(Confined::new(sandbox_options(settings)?)))
}

/// The provider of sandboxes, as it is configured.
pub fn sandboxes(settings: &Settings) -> anyhow::Result<Namespace> {
    Ok(Namespace::new(sandbox_options(settings)?))
}

fn sandbox_options(settings: &Settings) -> anyhow::Result<NamespaceOptions> {
    let mut options = NamespaceOptions::new(&settings.home);
    options.runtime = settings.sandbox.runtime.clone().into();
    options.warm = settings.sandbox.warm;
    options.reserve_cpus = settings.sandbox.reserve_cpus;
    options.disk_rate = settings.sandbox.disk_rate;
    options.shown = settings.sandbox.show.iter().map(PathBuf::from).collect();
    options.defaults = options
        .defaults
        .with(&limits(&settings.sandbox))
        .map_err(|bad| anyhow::anyhow!("the setting sandbox.{bad}"))?;
    Ok(options)
}

fn limits(sandbox: &Sandbox) -> Value {
    let mut limits = Map::from_iter([
        ("processes".to_owned(), json!(sandbox.processes)),
        ("disk".to_owned(), json!(sandbox.disk)),
        ("egress".to_owned(), json!(sandbox.egress)),
    ]);
    for (name, value) in [("memory", &sandbox.memory), ("cpus", &sandbox.cpus)] {
        if value != "auto" {
            limits.insert(name.to_owned(), json!(value));
        }
    }
    Value::Object(limits)
}
