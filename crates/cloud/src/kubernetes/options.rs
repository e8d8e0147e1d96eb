//! The settings of the provider.

use std::time::Duration;

use super::kubeconfig::KubernetesAccess;

#[derive(Debug)]
pub struct KubernetesOptions {
    pub access: KubernetesAccess,
    /// The namespace of all pods; `None` for that of the context.
    pub namespace: Option<String>,
    /// The default image. It needs `sh`, `head` and `gzip`.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// The names of secrets with credentials for registries.
    pub pull_secrets: Vec<String>,
    /// The service account of the pods, whose token they do not get; `None` for the default one.
    pub service_account: Option<String>,
    /// Labels (`KEY=VALUE`) that nodes must have.
    pub node_selector: Vec<String>,
    /// Tolerated taints: `KEY`, `KEY=VALUE`, both optionally with `:EFFECT`.
    pub tolerations: Vec<String>,
    pub runtime_class: Option<String>,
    /// The user and group id of all programs.
    pub user: u32,
    /// The default limit of CPUs.
    pub cpus: f64,
    /// The default limit of memory.
    pub memory_bytes: u64,
    /// The size of the disk.
    pub disk_bytes: u64,
    /// The storage class of disks that outlive pods, `auto` for the cluster's default; `None` if files are lost with
    /// the pod.
    pub storage_class: Option<String>,
    /// An image of Stead, from which pods get our executable; `None` to upload it.
    pub host_image: Option<String>,
    /// How long a pod may take to run, which includes pulling its image.
    pub start_timeout: Duration,
}

impl KubernetesOptions {
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(&self.access.namespace)
    }
}
