//! Pods of a Kubernetes cluster, through a small client of our own
//! ([decision 46](../../../../docs/decisions/0046-pods-by-a-client-of-our-own.md)).
//!
//! A pod is named after its lease and generation, so that a repeated creation never makes a second one. The server
//! reaches the host inside over the API server and the kubelet, as `kubectl exec` does.

mod client;
mod exec;
mod kubeconfig;
mod manifest;
mod options;
mod status;
mod yaml;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use self::client::{KubernetesClient, ObjectKind, VENDOR};
use self::manifest::{CONTAINER, HOME, PROGRAM, PodSpec};
use self::status::{Metadata, Pod, PodState};
use super::http::{UploadProgress, VendorFault};
use super::pipe::Channel;
use super::vendor::{
    Execute, Executed, HOME_LABEL, INSTANCE_LABEL, LEASE_LABEL, TRANSITION_TIMEOUT, Vendor,
    VendorDisks, VendorLabels, VendorReply, VendorSandbox, settings,
};
use crate::websocket::WebSocket;
use base::backoff::Backoff;
use provider::{Fidelity, Observed};

pub use kubeconfig::{AccessError, KubernetesAccess};
pub use options::KubernetesOptions;

const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// The waits between two looks at a pod that starts or ends.
const POLLS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
/// A pod needs no keep-alive: the ping of its stream shows that the node answers.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(3600);
/// Runs a command for at most as many seconds as its first argument says, where the image can.
const RUN_SCRIPT: &str = "if command -v timeout >/dev/null; then exec timeout -s KILL \"$1\" \
                          /bin/sh -c \"$2\"; else exec /bin/sh -c \"$2\"; fi";
/// Writes as many bytes as its second argument says: the input has no end.
const UPLOAD_SCRIPT: &str = "mkdir -p \"$(dirname \"$1\")\" && head -c \"$2\" >\"$1\" && \
                             test \"$(wc -c <\"$1\")\" -eq \"$2\"";
/// How `exec` is refused in a pod that no node has yet, or whose container does not run yet.
const NOT_STARTED: [StatusCode; 2] = [StatusCode::BAD_REQUEST, StatusCode::INTERNAL_SERVER_ERROR];

#[derive(Debug)]
pub(super) struct KubernetesVendor {
    options: KubernetesOptions,
    client: KubernetesClient,
}

/// A volume claim in a response.
#[derive(Debug, serde::Deserialize)]
struct VolumeClaim {
    metadata: Metadata,
}

impl KubernetesVendor {
    pub(super) fn new(options: KubernetesOptions) -> std::io::Result<Self> {
        let client = KubernetesClient::new(&options)?;
        Ok(Self { options, client })
    }

    fn sandbox(&self, pod: Pod) -> VendorSandbox {
        let observed = match pod.state() {
            PodState::Ended(_) => Observed::Gone,
            PodState::Running
            | PodState::Starting(_)
            | PodState::BadImage(_)
            | PodState::BadSettings(_) => Observed::Running,
        };
        VendorSandbox {
            id: pod.metadata.name,
            labels: pod.metadata.labels,
            observed,
            url: String::new(),
            token: None,
            server: None,
            pty_url: None,
            program: self.options.host_image.is_some().then(|| PROGRAM.to_owned()),
        }
    }

    async fn pod(&self, name: &str) -> Result<Option<Pod>, VendorFault> {
        self.client.get(ObjectKind::Pod, name).await
    }

    /// Waits until a pod runs. One that cannot start is deleted, so that the next attempt makes another.
    async fn started(&self, name: &str) -> Result<Pod, VendorFault> {
        let deadline = Instant::now() + self.options.start_timeout;
        let mut backoff = POLLS;
        let fault = loop {
            let Some(pod) = self.pod(name).await? else {
                let reason = "the pod was deleted before it ran".to_owned();
                return Err(VendorFault::Transport { vendor: VENDOR, reason });
            };
            match pod.state() {
                PodState::Running => return Ok(pod),
                PodState::BadImage(reason) => break VendorFault::BadImage { reason },
                PodState::BadSettings(reason) => break VendorFault::Refused { reason },
                PodState::Ended(reason) => {
                    break VendorFault::Transport { vendor: VENDOR, reason };
                }
                PodState::Starting(words) if Instant::now() > deadline => {
                    let limit = self.options.start_timeout.as_secs();
                    let reason = format!("the pod did not start within {limit} s: {words}");
                    break VendorFault::Refused { reason };
                }
                PodState::Starting(_) => sleep(backoff.next_wait()).await,
            }
        };
        tracing::warn!(pod = name, %fault, "a pod did not start");
        self.remove(name).await?;
        Err(fault)
    }

    /// Deletes a pod and waits until it does not exist, so that nothing uses its disk any more.
    async fn remove(&self, name: &str) -> Result<(), VendorFault> {
        self.client.delete(ObjectKind::Pod, name).await?;
        let deadline = Instant::now() + TRANSITION_TIMEOUT;
        let mut backoff = POLLS;
        while self.pod(name).await?.is_some() {
            if Instant::now() > deadline {
                let limit = TRANSITION_TIMEOUT.as_secs();
                let reason = format!(
                    "the pod {name} still exists {limit} s after its deletion; its node may be lost"
                );
                return Err(VendorFault::Transport { vendor: VENDOR, reason });
            }
            sleep(backoff.next_wait()).await;
        }
        Ok(())
    }

    /// Starts a program in a pod, once the pod runs. A server that was killed while it made a pod comes back before the
    /// pod has started.
    async fn exec(&self, name: &str, argv: &[&str]) -> Result<WebSocket, VendorFault> {
        let fault = match self.client.exec(name, CONTAINER, argv).await {
            Err(fault) if fault.status().is_some_and(|it| NOT_STARTED.contains(&it)) => fault,
            other => return other,
        };
        tracing::debug!(pod = name, %fault, "a program in a pod was refused; the pod may be starting");
        self.started(name).await?;
        self.client.exec(name, CONTAINER, argv).await
    }

    /// Waits until no pod of an earlier generation uses the disk of a lease. A pod that was deleted still ends.
    async fn free_disk(&self, labels: &VendorLabels) -> Result<(), VendorFault> {
        let mut lease = labels.clone();
        lease.retain(|name, _| [HOME_LABEL, LEASE_LABEL].contains(&name.as_str()));
        let pods: Vec<Pod> = self.client.list(ObjectKind::Pod, &lease).await?;
        let name = manifest::pod_name(labels);
        for pod in pods.into_iter().filter(|pod| pod.metadata.name != name) {
            self.remove(&pod.metadata.name).await?;
        }
        Ok(())
    }

    /// Creates the pod of an instance, or adopts the one that an earlier attempt has left.
    async fn make(
        &self,
        labels: &VendorLabels,
        spec: &PodSpec,
    ) -> Result<VendorSandbox, VendorFault> {
        if self.options.storage_class.is_some() {
            self.free_disk(labels).await?;
            // The claim of a lease that had an instance before exists.
            self.client.create(ObjectKind::Claim, &manifest::claim(&self.options, labels)).await?;
        }
        let manifest = manifest::pod(&self.options, labels, spec);
        let name = manifest::pod_name(labels);
        if !self.client.create(ObjectKind::Pod, &manifest).await? {
            let existing = self.pod(&name).await?;
            let foreign = existing.as_ref().is_some_and(|pod| {
                pod.metadata.labels.get(INSTANCE_LABEL) != labels.get(INSTANCE_LABEL)
            });
            if foreign {
                let reason = format!("the pod {name} exists and belongs to another instance");
                return Err(VendorFault::Refused { reason });
            }
            let ended = existing.is_none_or(|pod| matches!(pod.state(), PodState::Ended(_)));
            if ended {
                self.remove(&name).await?;
                self.client.create(ObjectKind::Pod, &manifest).await?;
            }
        }
        Ok(self.sandbox(self.started(&name).await?))
    }
}

impl Vendor for Arc<KubernetesVendor> {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn user(&self) -> (&'static str, &'static str) {
        (if self.options.user == 0 { "root" } else { "stead" }, HOME)
    }

    fn pauses(&self) -> Fidelity {
        Fidelity::None
    }

    fn isolation(&self) -> Vec<String> {
        let runtime = match &self.options.runtime_class {
            Some(class) => format!("pods with the runtime class {class}, outside this machine"),
            None => "pods of the cluster's container runtime, without privileges".to_owned(),
        };
        vec![runtime, "no token of the cluster's API in the pod".to_owned()]
    }

    fn missing(&self) -> VendorReply<'_, Vec<String>> {
        Box::pin(async move {
            let none: VendorLabels = [(INSTANCE_LABEL.to_owned(), "none".to_owned())].into();
            let listed = self.client.list::<Pod>(ObjectKind::Pod, &none).await;
            let namespace = self.client.namespace();
            Ok(listed
                .err()
                .into_iter()
                .map(|fault| {
                    format!("cluster: cannot list pods in the namespace {namespace}: {fault}")
                })
                .collect())
        })
    }

    fn accepts(&self, spec: &Value) -> Result<(), String> {
        settings::<PodSpec>(spec)?.check()
    }

    fn create<'a>(
        &'a self,
        _name: &'a str,
        labels: &'a VendorLabels,
        spec: &'a Value,
    ) -> VendorReply<'a, VendorSandbox> {
        Box::pin(async move {
            let refused = |reason| VendorFault::Refused { reason };
            let spec = settings::<PodSpec>(spec).map_err(refused)?;
            self.make(labels, &spec).await
        })
    }

    fn find<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorSandbox>> {
        Box::pin(async move {
            let pods: Vec<Pod> = self.client.list(ObjectKind::Pod, labels).await?;
            Ok(pods.into_iter().map(|pod| self.sandbox(pod)).collect())
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> VendorReply<'a, Option<VendorSandbox>> {
        Box::pin(async move {
            let Some(pod) = self.pod(id).await? else { return Ok(None) };
            if let PodState::Ended(words) = pod.state() {
                tracing::info!(pod = id, words, "a pod has ended");
                return Ok(None);
            }
            Ok(Some(self.sandbox(pod)))
        })
    }

    fn wait_until_started<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(async move { self.started(id).await.map(drop) })
    }

    fn pause<'a>(&'a self, _id: &'a str) -> VendorReply<'a, ()> {
        let reason = "a pod cannot be paused".to_owned();
        Box::pin(std::future::ready(Err(VendorFault::Refused { reason })))
    }

    fn resume<'a>(&'a self, _id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn delete<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(self.remove(id))
    }

    fn keep_alive<'a>(&'a self, _sandbox: &'a VendorSandbox) -> VendorReply<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn keep_alive_interval(&self) -> Duration {
        KEEP_ALIVE_INTERVAL
    }

    fn run<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        command: &'a Execute,
    ) -> VendorReply<'a, Executed> {
        Box::pin(async move {
            let seconds = command.timeout.as_secs().max(1).to_string();
            let variables: Vec<String> =
                command.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut argv = Vec::new();
            if !variables.is_empty() {
                argv.push("env");
                argv.extend(variables.iter().map(String::as_str));
            }
            let script = match &command.cwd {
                Some(cwd) => format!("cd -- '{}' && {RUN_SCRIPT}", cwd.replace('\'', r"'\''")),
                None => RUN_SCRIPT.to_owned(),
            };
            argv.extend(["/bin/sh", "-c", &script, "sh", &seconds, &command.command]);
            let began = Instant::now();
            let socket = self.exec(&sandbox.id, &argv).await?;
            let ran = exec::run(socket, Bytes::new(), command.timeout, None).await?;
            let killed = ran.exit_code == Some(137) && began.elapsed() >= command.timeout;
            Ok(Executed { exit_code: ran.exit_code.filter(|_| !killed), ..ran })
        })
    }

    fn upload<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<UploadProgress>,
    ) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let size = bytes.len().to_string();
            let argv = ["/bin/sh", "-c", UPLOAD_SCRIPT, "sh", path, &size];
            let socket = self.exec(&sandbox.id, &argv).await?;
            let ran = exec::run(socket, bytes, UPLOAD_TIMEOUT, progress).await?;
            if ran.exit_code == Some(0) {
                return Ok(());
            }
            let message = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            let reason = format!("cannot write {path} in the pod: {message}");
            Err(VendorFault::Transport { vendor: VENDOR, reason })
        })
    }

    fn attach<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        argv: &'a [String],
    ) -> VendorReply<'a, Channel> {
        Box::pin(async move {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let socket = self.exec(&sandbox.id, &argv).await?;
            Ok(exec::channel(socket))
        })
    }

    fn disks(&self) -> Option<&dyn VendorDisks> {
        self.options.storage_class.is_some().then_some(self as &dyn VendorDisks)
    }
}

impl VendorDisks for Arc<KubernetesVendor> {
    fn disks_with<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorLabels>> {
        Box::pin(async move {
            let claims: Vec<VolumeClaim> = self.client.list(ObjectKind::Claim, labels).await?;
            let kept = claims.into_iter().filter(|claim| !claim.metadata.is_being_deleted());
            Ok(kept.map(|claim| claim.metadata.labels).collect())
        })
    }

    fn remove_disks<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, ()> {
        Box::pin(async move {
            let claims: Vec<VolumeClaim> = self.client.list(ObjectKind::Claim, labels).await?;
            for claim in claims {
                self.client.delete(ObjectKind::Claim, &claim.metadata.name).await?;
            }
            Ok(())
        })
    }
}
