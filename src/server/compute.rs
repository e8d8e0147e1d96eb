//! The providers this server has.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::{
    config::{Sandbox, Settings},
    event::Events,
    provider::{
        Docker, Local, Namespace, Provider, Providers, docker,
        namespace::{Check, Options},
    },
};

/// The providers, and the one of a thread that names none.
pub struct Compute {
    /// The providers.
    pub providers: Providers,
    /// The name of the one that is taken where none is named.
    pub chosen: String,
    /// The sandboxes, to be kept ready, where there are any.
    pub sandboxes: Option<Namespace>,
}

/// Finds out which providers this machine can have.
pub async fn gather(settings: &Settings, events: &Events) -> anyhow::Result<Compute> {
    let namespace = sandboxes(settings)?;
    let check = match settings.provider.as_str() {
        // What everything is going to stand on is tried out, not only looked at.
        "namespace" | "auto" => Check::once_a_boot(&namespace).await,
        _ => Check::look(&namespace),
    };
    let chosen = match settings.provider.as_str() {
        "auto" if check.passes() => "namespace".to_owned(),
        "auto" => "local".to_owned(),
        named => named.to_owned(),
    };
    let mut ready = None;
    let mut all: Vec<Arc<dyn Provider>> = vec![Arc::new(Local::new(&settings.home))];
    let mut absent = Vec::new();
    if check.passes() {
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
    let missing = Docker::impossible();
    if missing.is_empty() {
        let docker = containers(settings, events)?;
        docker.sweep().await.context("cannot remove what an earlier server left half made")?;
        // An engine may come up after us, and what ran in it is still ours.
        if chosen == docker.name() {
            for lacking in docker.lacks().await? {
                tracing::warn!(lacking, "there are no containers here yet");
            }
        }
        all.push(Arc::new(docker));
    } else {
        if chosen == "docker" {
            anyhow::bail!("provider docker cannot be had here: {}", missing.join("; "));
        }
        absent.push(("docker".to_owned(), missing));
    }
    let providers = Providers::new(all).without(absent);
    Ok(Compute { providers, chosen, sandboxes: ready })
}

/// The provider of containers, as it is configured.
fn containers(settings: &Settings, events: &Events) -> anyhow::Result<Docker> {
    let mut options = docker::Options::new(&settings.home);
    let said = |text: &String| (text != "auto").then(|| text.clone());
    options.host = said(&settings.docker.host).unwrap_or_default();
    options.shown = settings.sandbox.show.iter().map(PathBuf::from).collect();
    options.defaults = options
        .defaults
        .with(&limits(&settings.sandbox))
        .map_err(|bad| anyhow::anyhow!("the setting sandbox.{bad}"))?;
    options.defaults.image = said(&settings.docker.image);
    options.events = Some(events.clone());
    Ok(Docker::new(options))
}

/// The provider of sandboxes, as it is configured.
pub fn sandboxes(settings: &Settings) -> anyhow::Result<Namespace> {
    let mut options = Options::new(&settings.home);
    options.runtime = settings.sandbox.runtime.clone().into();
    options.warm = settings.sandbox.warm;
    options.shown = settings.sandbox.show.iter().map(PathBuf::from).collect();
    options.defaults = options
        .defaults
        .with(&limits(&settings.sandbox))
        .map_err(|bad| anyhow::anyhow!("the setting sandbox.{bad}"))?;
    Ok(Namespace::new(options))
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
