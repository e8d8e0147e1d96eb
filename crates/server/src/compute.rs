//! Finds and configures the providers of this server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Map, Value, json};

use base::event::Events;
use cloud::{
    self, AgentBayOptions, Cloud, DaytonaOptions, E2bOptions, KubernetesAccess, KubernetesOptions,
    VendorKey,
};
use config::{SandboxDefaults, Settings, VendorRuntime};
use machine::{
    Docker, ImageStoreOptions, Namespace,
    docker::DockerOptions,
    namespace::{Check, Confined, NamespaceOptions},
};
use provider::{Local, Provider, Providers};

/// The providers, and the default one.
pub struct Compute {
    pub providers: Providers,
    /// Name of the default provider.
    pub chosen: String,
    /// The namespace provider, if it is available.
    pub sandboxes: Option<Namespace>,
    /// The container provider, if it is available.
    pub containers: Option<Docker>,
}

impl Compute {
    /// Describes in one line what separates the commands from this machine.
    pub fn isolation(&self) -> String {
        match (self.chosen.as_str(), &self.sandboxes) {
            ("local", _) => {
                let remedy = match rustix::process::geteuid().is_root() {
                    true => "run with --provider namespace",
                    false => "run as root or with --provider namespace",
                };
                format!(
                    "WARNING: commands run as you, without isolation; {remedy} (stead doctor tells what is missing)"
                )
            }
            ("namespace", Some(_)) => "sandboxes (namespace)".to_owned(),
            ("namespace", None) => {
                "sandboxes (namespace), without limits of memory, processors and disk".to_owned()
            }
            ("docker", _) => "containers (docker)".to_owned(),
            ("kubernetes", _) => "pods (kubernetes)".to_owned(),
            (vendor, _) => format!("sandboxes of {vendor}"),
        }
    }
}

/// Detects which providers this machine supports.
pub async fn gather(settings: &Settings, events: &Events) -> anyhow::Result<Compute> {
    let namespace = sandboxes_with(settings, Some(events))?;
    let confined = confined(settings)?;
    let check = match (&confined, settings.provider.as_str()) {
        // The provider that will be used is tested by running a sandbox.
        (None, "namespace" | "auto") => Check::once_per_boot(&namespace).await,
        (None, _) => Check::inspect(&namespace),
        (Some(confined), "namespace") => Check::try_as_user(confined).await,
        (Some(confined), "auto") if Check::inspect_as_user().connects() => {
            Check::try_as_user(confined).await
        }
        (Some(_), _) => Check::inspect_as_user(),
    };
    let chosen = match settings.provider.as_str() {
        // Users expect a network. They can ask for sandboxes that have none.
        "auto" if check.passes() && (confined.is_none() || check.connects()) => {
            "namespace".to_owned()
        }
        "auto" => "local".to_owned(),
        named => named.to_owned(),
    };
    let mut ready = None;
    let mut all: Vec<Arc<dyn Provider>> = vec![Arc::new(Local::new(&settings.home))];
    let mut absent = Vec::new();
    if let (true, Some(confined)) = (check.passes(), confined) {
        all.push(Arc::new(confined));
    } else if check.passes() {
        namespace
            .sweep()
            .await
            .context("cannot remove incomplete sandboxes of an earlier server")?;
        all.push(Arc::new(namespace.clone()));
        ready = Some(namespace);
    } else {
        let missing = check.missing();
        tracing::debug!(missing = missing.join("; "), "namespace sandboxes are not available");
        if chosen == "namespace" {
            anyhow::bail!("provider namespace is not available: {}", missing.join("; "));
        }
        absent.push(("namespace".to_owned(), missing));
    }
    let mut in_engine = None;
    let missing = Docker::impossible();
    if missing.is_empty() {
        let docker = containers(settings, events)?;
        docker.sweep().await.context("cannot remove incomplete containers of an earlier server")?;
        // The engine may start after the server, with containers that belong to it.
        if chosen == docker.name() {
            for lacking in docker.missing().await? {
                tracing::warn!(lacking, "containers are not available yet");
            }
        }
        all.push(Arc::new(docker.clone()));
        in_engine = Some(docker);
    } else {
        if chosen == "docker" {
            anyhow::bail!("provider docker is not available: {}", missing.join("; "));
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
                    anyhow::bail!("provider {name} is not available: {missing}");
                }
                absent.push((name.to_owned(), vec![missing]));
            }
        }
    }
    match kubernetes(settings, events) {
        Ok(pods) => all.push(Arc::new(pods)),
        Err(missing) => {
            if chosen == "kubernetes" {
                anyhow::bail!("provider kubernetes is not available: {missing}");
            }
            if settings.kubernetes.config.is_some() {
                tracing::warn!(missing, "provider kubernetes is not available");
            }
            absent.push(("kubernetes".to_owned(), vec![missing]));
        }
    }
    let providers = Providers::new(all).without(absent);
    Ok(Compute { providers, chosen, sandboxes: ready, containers: in_engine })
}

/// Returns a setting; empty for `auto`.
fn explicit(text: &str) -> String {
    if text == "auto" { String::new() } else { text.to_owned() }
}

/// Returns the E2B provider if a key is configured.
fn e2b(settings: &Settings, events: &Events) -> anyhow::Result<Option<Cloud>> {
    let e2b = &settings.e2b;
    if e2b.key.reveal().is_empty() {
        return Ok(None);
    }
    let vendor = E2bOptions {
        key: VendorKey::new(e2b.key.reveal()),
        endpoint: explicit(&e2b.endpoint),
        sandbox_url: explicit(&e2b.sandbox_url),
        template: e2b.template.clone(),
        timeout: e2b.timeout,
    };
    let options = cloud(settings, &e2b.directory, e2b.price, e2b.runtime, events);
    Ok(Some(Cloud::e2b(vendor, options).context("cannot use E2B")?))
}

/// Returns the Daytona provider if a key is configured.
fn daytona(settings: &Settings, events: &Events) -> anyhow::Result<Option<Cloud>> {
    let daytona = &settings.daytona;
    if daytona.key.reveal().is_empty() {
        return Ok(None);
    }
    let vendor = DaytonaOptions {
        key: VendorKey::new(daytona.key.reveal()),
        endpoint: explicit(&daytona.endpoint),
        snapshot: explicit(&daytona.snapshot),
        auto_stop: daytona.auto_stop,
    };
    let options = cloud(settings, &daytona.directory, daytona.price, daytona.runtime, events);
    Ok(Some(Cloud::daytona(vendor, options).context("cannot use Daytona")?))
}

/// Returns the AgentBay provider if a key is configured.
fn agentbay(settings: &Settings, events: &Events) -> anyhow::Result<Option<Cloud>> {
    let agentbay = &settings.agentbay;
    if agentbay.key.reveal().is_empty() {
        return Ok(None);
    }
    let vendor = AgentBayOptions {
        key: VendorKey::new(agentbay.key.reveal()),
        endpoint: explicit(&agentbay.endpoint),
        image: agentbay.image.clone(),
        timeout: agentbay.timeout,
    };
    let options =
        cloud(settings, &agentbay.directory, agentbay.price, VendorRuntime::Remote, events);
    Ok(Some(Cloud::agentbay(vendor, options).context("cannot use AgentBay")?))
}

/// Returns the provider of pods. The error says what is missing.
fn kubernetes(settings: &Settings, events: &Events) -> Result<Cloud, String> {
    let pods = &settings.kubernetes;
    let wrong = |key: &str, reason: &str| format!("setting: kubernetes.{key} {reason}");
    let Some(config) = &pods.config else {
        return Err("cluster: set kubernetes.config to a kubeconfig file or in-cluster".to_owned());
    };
    let named = |text: &str| Some(explicit(text)).filter(|text| !text.is_empty());
    let access = match config.as_str() {
        "in-cluster" => KubernetesAccess::in_cluster(),
        path => KubernetesAccess::from_kubeconfig(path.as_ref(), named(&pods.context).as_deref()),
    };
    let access = access.map_err(|error| format!("cluster: {:#}", anyhow::Error::from(error)))?;
    if !["Always", "IfNotPresent", "Never"].contains(&pods.pull_policy.as_str()) {
        return Err(wrong("pull_policy", "must be Always, IfNotPresent or Never"));
    }
    if pods.node_selector.iter().any(|pair| !pair.contains('=')) {
        return Err(wrong("node_selector", "must consist of KEY=VALUE"));
    }
    let user = i32::try_from(pods.user).ok().and_then(|user| u32::try_from(user).ok());
    let vendor = KubernetesOptions {
        access,
        namespace: named(&pods.namespace),
        image: pods.image.clone(),
        pull_policy: pods.pull_policy.clone(),
        pull_secrets: pods.pull_secrets.clone(),
        service_account: pods.service_account.clone(),
        node_selector: pods.node_selector.clone(),
        tolerations: pods.tolerations.clone(),
        runtime_class: pods.runtime_class.clone(),
        user: user.ok_or_else(|| wrong("user", "is not a user id"))?,
        cpus: pods.cpus,
        memory_bytes: pods.memory,
        disk_bytes: pods.disk,
        storage_class: pods.storage_class.clone(),
        host_image: pods.host_image.clone(),
        start_timeout: pods.start_timeout,
    };
    let options = cloud(settings, &pods.directory, pods.price, VendorRuntime::Host, events);
    Cloud::kubernetes(vendor, options).map_err(|error| format!("cluster: {error}"))
}

/// The options that all cloud providers share.
fn cloud(
    settings: &Settings,
    directory: &str,
    price: f64,
    runtime: VendorRuntime,
    events: &Events,
) -> cloud::CloudOptions {
    cloud::CloudOptions {
        price: price.into(),
        runtime: match runtime {
            VendorRuntime::Host => cloud::TerminalRuntime::Host,
            VendorRuntime::Remote => cloud::TerminalRuntime::Remote,
        },
        inside: directory.to_owned(),
        log_limit: settings.terminal.log_limit_bytes,
        events: Some(events.clone()),
        ..cloud::CloudOptions::new(&settings.home)
    }
}

/// Returns the configured container provider.
fn containers(settings: &Settings, events: &Events) -> anyhow::Result<Docker> {
    let mut options = DockerOptions::new(&settings.home);
    options.host = explicit(&settings.docker.host);
    options.shown = settings.sandbox.show.iter().map(PathBuf::from).collect();
    options.defaults = options
        .defaults
        .with(&limits(&settings.sandbox))
        .map_err(|bad| anyhow::anyhow!("the setting sandbox.{bad}"))?;
    options.defaults.image =
        Some(explicit(&settings.docker.image)).filter(|image| !image.is_empty());
    options.warm = settings.sandbox.warm;
    options.events = Some(events.clone());
    options.images = image_options(settings);
    Ok(Docker::new(options))
}

/// Returns the provider of unprivileged sandboxes if the server is not root.
pub fn confined(settings: &Settings) -> anyhow::Result<Option<Confined>> {
    if rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    Ok(Some(Confined::new(sandbox_options(settings)?)))
}

/// Returns the configured namespace provider.
pub fn sandboxes(settings: &Settings) -> anyhow::Result<Namespace> {
    sandboxes_with(settings, None)
}

fn sandboxes_with(settings: &Settings, events: Option<&Events>) -> anyhow::Result<Namespace> {
    let options = sandbox_options(settings)?;
    Ok(Namespace::new(NamespaceOptions { events: events.cloned(), ..options }))
}

/// Returns the configured store of pulled images.
pub fn image_options(settings: &Settings) -> ImageStoreOptions {
    let mut options = machine::image_store_options(&settings.home);
    let image = &settings.image;
    if image.credentials != "auto" {
        options.credentials = image.credentials.clone().into();
    }
    options.plain_http = image.plain_http.clone();
    options.max_image_bytes = image.max_size;
    options.max_unreferenced_bytes = image.cache;
    options.max_store_bytes = image.max_total;
    options
}

fn sandbox_options(settings: &Settings) -> anyhow::Result<NamespaceOptions> {
    let mut options = NamespaceOptions::new(&settings.home);
    options.runtime = settings.sandbox.runtime.clone().into();
    options.warm = settings.sandbox.warm;
    options.reserve_cpus = settings.sandbox.reserve_cpus;
    options.disk_rate = settings.sandbox.disk_rate;
    options.images = image_options(settings);
    options.shown = settings.sandbox.show.iter().map(PathBuf::from).collect();
    options.defaults = options
        .defaults
        .with(&limits(&settings.sandbox))
        .map_err(|bad| anyhow::anyhow!("the setting sandbox.{bad}"))?;
    Ok(options)
}

fn limits(sandbox: &SandboxDefaults) -> Value {
    let mut limits = Map::from_iter([
        ("processes".to_owned(), json!(sandbox.processes)),
        ("disk".to_owned(), json!(sandbox.disk)),
        ("egress".to_owned(), json!(sandbox.egress)),
        ("capabilities".to_owned(), json!(sandbox.capabilities)),
    ]);
    for (name, value) in [("memory", &sandbox.memory), ("cpus", &sandbox.cpus)] {
        if value != "auto" {
            limits.insert(name.to_owned(), json!(value));
        }
    }
    Value::Object(limits)
}
